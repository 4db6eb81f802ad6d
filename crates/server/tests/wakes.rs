//! The log's writer wakes at most two of the workers that hold replies, however many there are; these wake the others.

mod running;

use gimmal_resp::{Reply, encode_command};
use running::{Client, Running, Scratch, number};
use std::time::{Duration, Instant};

const WORKERS: usize = 16;

#[test]
fn a_group_costs_its_writer_at_most_two_wakes_with_sixteen_workers_that_hold_replies() {
    let scratch = Scratch::new("wakes");
    let arguments = "--appendonly yes --appendfsync always --workers";
    let server = Running::start(&format!("--dir {} {arguments} {WORKERS}", scratch.0.display()));
    let mut clients: Vec<Client> = (0..WORKERS * 2).map(|_| server.connect()).collect();
    let begun = Instant::now();
    let mut rounds = 0;
    while begun.elapsed() < Duration::from_secs(1) {
        // All of them write and wait at once.
        for (at, client) in clients.iter_mut().enumerate() {
            let mut bytes = Vec::new();
            encode_command(&mut bytes, &["SET", &format!("key:{at}"), &rounds.to_string()]);
            client.send(&bytes);
        }
        clients.iter_mut().for_each(|client| assert_eq!(client.reply(), Reply::Simple(b"OK".to_vec())));
        rounds += 1;
    }
    let (groups, wakes) = (number(&mut clients[0], "aof_groups"), number(&mut clients[0], "aof_wakes"));
    eprintln!("{rounds} rounds of {} writes, {groups} groups, {wakes} wakes by the writer", clients.len());
    assert!(groups > 10 && wakes > 0, "{groups} groups, {wakes} wakes");
    assert!(wakes <= 2 * groups, "{wakes} wakes for {groups} groups");
}
