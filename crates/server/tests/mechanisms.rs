//! Each I/O model does what its paper says, by what INFO `io` counts: known traffic, exact counts.

mod running;

use running::{Client, Running, ok};
use std::collections::BTreeMap;
use std::time::Duration;

/// Counters of INFO io, with the prefix `io_`.
struct Counts(BTreeMap<String, u64>);

impl Counts {
    fn of(client: &mut Client) -> Counts {
        let reply = client.ask("INFO io");
        let text = String::from_utf8_lossy(reply.as_bytes().expect("a text")).into_owned();
        let lines = text.lines().filter_map(|line| line.strip_prefix("io_")?.split_once(':'));
        Counts(lines.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect())
    }

    fn get(&self, name: &str) -> u64 {
        *self.0.get(name).unwrap_or_else(|| panic!("INFO io has no io_{name}: {:?}", self.0))
    }
}

/// What `names` were counted up by while `traffic` ran, and the reply to the INFO before it.
fn counted<const N: usize>(admin: &mut Client, names: [&str; N], traffic: impl FnOnce()) -> [u64; N] {
    settle();
    let before = Counts::of(admin);
    traffic();
    settle();
    let after = Counts::of(admin);
    names.map(|name| after.get(name) - before.get(name))
}

/// INFO shows how the counters stood at the end of the last pass, and what a pass leaves to be submitted is counted by the next:
/// so one must have gone by, as timers make it ten times a second.
fn settle() {
    std::thread::sleep(Duration::from_millis(250));
}

/// So many clients.
fn clients(server: &Running, count: usize) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..count).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| drop(client.ask("PING")));
    clients
}

/// One at a time: `rounds` requests and replies.
fn ping_pong(clients: &mut [Client], rounds: usize) {
    for round in 0..rounds {
        let at = round % clients.len();
        assert_eq!(clients[at].ask("ECHO x").as_bytes(), Some(&b"x"[..]));
    }
}

/// All at once: each client's pipeline is sent before any reply is read.
fn pipelines(clients: &mut [Client], rounds: usize, depth: usize) {
    for _ in 0..rounds {
        clients.iter_mut().for_each(|client| client.send("ECHO x\r\n".repeat(depth).as_bytes()));
        for client in &mut *clients {
            (0..depth).for_each(|_| assert_eq!(client.reply().as_bytes(), Some(&b"x"[..])));
        }
    }
}

#[test]
fn sequential_enters_once_per_reply_and_waits_for_it() {
    let server = Running::start("--workers 1 --io-engine uring-send --uring-submit sequential");
    let (mut admin, mut clients) = (server.connect(), clients(&server, 4));
    let names = ["ring_sends", "enters", "submits", "submit_waits", "sqes", "links", "drains"];
    let [sends, enters, submits, waits, sqes, links, drains] =
        counted(&mut admin, names, || ping_pong(&mut clients, 500));
    // The reply to the first INFO is sent after it has counted.
    assert_eq!([sends, enters, submits, waits, sqes, links, drains], [501, 501, 501, 501, 501, 0, 0]);
}

#[test]
fn async_enters_once_per_reply_and_waits_for_none() {
    let server = Running::start("--workers 1 --io-engine uring-send --uring-submit async");
    let (mut admin, mut clients) = (server.connect(), clients(&server, 4));
    let names = ["ring_sends", "enters", "submits", "submit_waits", "sqes"];
    let [sends, enters, submits, waits, sqes] = counted(&mut admin, names, || pipelines(&mut clients, 100, 1));
    assert_eq!([sends, enters, submits, waits, sqes], [401, 401, 401, 0, 401]);
}

#[test]
fn a_batch_is_all_of_a_pass_and_entered_once() {
    let server = Running::start("--workers 1 --io-engine uring-send");
    let (mut admin, mut clients) = (server.connect(), clients(&server, 32));
    let names = ["ring_sends", "enters", "submits", "submit_waits", "polls"];
    let [sends, enters, submits, waits, polls] = counted(&mut admin, names, || pipelines(&mut clients, 50, 1));
    assert_eq!([sends, waits], [1601, 0]);
    assert_eq!(enters, submits, "the ring carries nothing but replies");
    assert!(submits < sends, "{submits} submissions of {sends} replies");
    assert!(polls >= submits, "readiness comes from epoll: {polls} waits");
}

#[test]
fn the_kernels_order_is_a_linked_entry_per_reply_and_a_drain_per_batch() {
    let server = Running::start("--workers 1 --io-engine uring-send --uring-order kernel");
    let (mut admin, mut clients) = (server.connect(), clients(&server, 4));
    let names = ["ring_sends", "links", "drains", "submits"];
    let [sends, links, drains, submits] = counted(&mut admin, names, || pipelines(&mut clients, 50, 16));
    assert_eq!(sends, 4 * 50 * 16 + 1, "each reply is an entry");
    assert_eq!(drains, submits, "no batch begins before the one before is over");
    // Each chain has one entry without a link, its last; and a client's pipeline arrives in a few pieces at most.
    assert!(links > sends / 2 && links < sends, "{links} links of {sends} entries");
}

#[test]
fn a_threshold_cuts_batches() {
    let server = Running::start("--workers 1 --io-engine uring-send --uring-submit-threshold 4");
    let (mut admin, mut clients) = (server.connect(), clients(&server, 32));
    let names = ["ring_sends", "submits"];
    let [sends, submits] = counted(&mut admin, names, || pipelines(&mut clients, 50, 1));
    assert_eq!(sends, 1601);
    assert!(submits >= sends / 4, "{submits} submissions of {sends} replies, at most 4 each");
}

#[test]
fn a_receive_is_armed_once_or_anew_each_time() {
    for (model, is_anew) in [("", false), (" --uring-recv single", true)] {
        let server = Running::start(&format!("--workers 1 --io-engine uring{model}"));
        let (mut admin, mut clients) = (server.connect(), clients(&server, 1));
        let names = ["receives", "sqes", "ring_sends", "poll_entries", "read_entries"];
        let [receives, sqes, sends, polls, reads] = counted(&mut admin, names, || ping_pong(&mut clients, 300));
        // And the two INFOs.
        assert_eq!([receives, sends, polls, reads], [301, 301, 0, 0], "{model}");
        assert_eq!(sqes, if is_anew { 602 } else { 301 }, "{model}");
    }
}

#[test]
fn nettys_way_is_a_poll_a_read_and_a_writev() {
    let server = Running::start("--workers 1 --io-engine uring --uring-recv poll --uring-write writev");
    let (mut admin, mut clients) = (server.connect(), clients(&server, 1));
    let names = ["receives", "sqes", "ring_sends", "vector_sends", "poll_entries", "read_entries", "enobufs", "asyncs"];
    let [receives, sqes, sends, vectors, polls, reads, enobufs, asyncs] =
        counted(&mut admin, names, || ping_pong(&mut clients, 300));
    assert_eq!([receives, sends, vectors, polls, reads, enobufs, asyncs], [301, 301, 301, 301, 301, 0, 0]);
    assert_eq!(sqes, 903, "there are no other entries, none that receives");
}

#[test]
fn beyond_the_threshold_entries_are_left_to_the_kernels_threads() {
    let arguments = "--io-engine uring --uring-recv poll --uring-write writev --uring-async-threshold 5";
    let server = Running::start(&format!("--workers 1 {arguments}"));
    let (mut admin, mut clients) = (server.connect(), clients(&server, 64));
    let [asyncs, sqes] = counted(&mut admin, ["asyncs", "sqes"], || pipelines(&mut clients, 50, 1));
    assert!(asyncs > 0 && asyncs < sqes, "{asyncs} of {sqes} entries");
}

#[test]
fn epoll_sends_once_per_pass_or_once_per_command() {
    for (flush, sends_each) in [("group", 1), ("loop", 1), ("command", 16)] {
        for trigger in ["edge", "level"] {
            let server = Running::start(&format!(
                "--workers 1 --io-engine epoll --epoll-trigger {trigger} --epoll-flush {flush}"
            ));
            let (mut admin, mut clients) = (server.connect(), clients(&server, 1));
            let names = ["sends", "ring_sends", "sqes", "short_sends"];
            let counts = counted(&mut admin, names, || pipelines(&mut clients, 100, 16));
            assert_eq!(counts, [100 * sends_each + 1, 0, 0, 0], "{trigger} {flush}");
        }
    }
}

#[test]
fn resetstat_begins_anew() {
    let server = Running::start("--workers 1 --io-engine uring-send");
    let (mut admin, mut clients) = (server.connect(), clients(&server, 1));
    ping_pong(&mut clients, 200);
    assert!(Counts::of(&mut admin).get("ring_sends") >= 200);
    settle();
    assert_eq!(admin.ask("CONFIG RESETSTAT"), ok());
    settle();
    let counts = Counts::of(&mut admin);
    assert_eq!(counts.get("ring_sends"), 1, "the reply to RESETSTAT");
    assert_eq!(counts.get("receives"), 1, "RESETSTAT itself; the INFO is counted when its pass is over");
}
