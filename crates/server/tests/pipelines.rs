//! Pipelines of look-ups in values so large that what these read is requested from memory together: the answers are those of commands
//! that came one by one, whatever the commands between them change.

mod in_process;
mod running;

use gimmal_resp::{Reply, encode_command};
use in_process::InProcess;
use running::Client;

const MEMBERS: usize = 60_000;

/// Adds all members to a sorted set, a set and a hash: their scores and values are their numbers.
fn fill(client: &mut Client) {
    for start in (0..MEMBERS).step_by(500) {
        let members = || start..start + 500;
        let scored = members().flat_map(|n| [n.to_string(), format!("member:{n}")]);
        let valued = members().flat_map(|n| [format!("member:{n}"), n.to_string()]);
        let lines: [Vec<String>; 3] = [
            ["ZADD", "board"].map(str::to_owned).into_iter().chain(scored).collect(),
            ["SADD", "set"].map(str::to_owned).into_iter().chain(members().map(|n| format!("member:{n}"))).collect(),
            ["HSET", "hash"].map(str::to_owned).into_iter().chain(valued).collect(),
        ];
        for line in lines {
            let words: Vec<&[u8]> = line.iter().map(String::as_bytes).collect();
            assert_eq!(client.call(&words), Reply::Integer(500));
        }
    }
}

/// Sends all lines at once, and takes a reply for each.
fn pipeline(client: &mut Client, lines: &[String]) -> Vec<Reply> {
    let mut bytes = Vec::new();
    for line in lines {
        encode_command(&mut bytes, &line.split(' ').collect::<Vec<_>>());
    }
    client.send(&bytes);
    lines.iter().map(|_| client.reply()).collect()
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

#[test]
fn elements_requested_ahead_are_the_ones_that_are_found() {
    let server = InProcess::start(2);
    let mut client = server.connect();
    fill(&mut client);
    let numbers: Vec<usize> = (0..400).map(|i| i * 7919 % MEMBERS).collect();
    let lines = |command: &str| -> Vec<String> { numbers.iter().map(|n| format!("{command} member:{n}")).collect() };
    let texts = || numbers.iter().map(|n| bulk(&n.to_string()));
    let integers = || numbers.iter().map(|n| Reply::Integer(*n as i64));
    assert!(pipeline(&mut client, &lines("ZSCORE board")).into_iter().eq(texts()));
    assert!(pipeline(&mut client, &lines("ZRANK board")).into_iter().eq(integers()));
    assert!(pipeline(&mut client, &lines("HGET hash")).into_iter().eq(texts()));
    assert!(pipeline(&mut client, &lines("SISMEMBER set")).into_iter().all(|reply| reply == Reply::Integer(1)));
    // What the commands before have changed is seen, also by the rest of what was requested with them.
    let next: Vec<Reply> = numbers.iter().map(|n| bulk(&(n + 1).to_string())).collect();
    assert_eq!(pipeline(&mut client, &lines("ZINCRBY board 1")), next);
    assert_eq!(pipeline(&mut client, &lines("ZSCORE board")), next);
    let twice: Vec<String> = numbers.iter().flat_map(|n| vec![format!("SREM set member:{n}"); 2]).collect();
    for replies in pipeline(&mut client, &twice).chunks(2) {
        assert_eq!(replies, [Reply::Integer(1), Reply::Integer(0)]);
    }
    assert!(pipeline(&mut client, &lines("SADD set")).into_iter().all(|reply| reply == Reply::Integer(1)));
    assert!(pipeline(&mut client, &lines("HDEL hash")).into_iter().all(|reply| reply == Reply::Integer(1)));
    assert!(pipeline(&mut client, &lines("HGET hash")).into_iter().all(|reply| reply.is_null()));
    assert_eq!(client.ask("HLEN hash"), Reply::Integer((MEMBERS - numbers.len()) as i64));
}

#[test]
fn members_popped_in_a_pipeline_come_in_order() {
    let server = InProcess::start(1);
    let mut client = server.connect();
    fill(&mut client);
    let half = MEMBERS / 2;
    for start in (0..half).step_by(500) {
        let pops = vec!["ZPOPMIN board".to_owned(); 500];
        for (i, reply) in pipeline(&mut client, &pops).iter().enumerate() {
            let n = start + i;
            assert_eq!(reply.as_list(), Some(&[bulk(&format!("member:{n}")), bulk(&n.to_string())][..]));
        }
        let last = MEMBERS - 1 - start / 500;
        let reply = client.ask("ZPOPMAX board");
        assert_eq!(reply.as_list(), Some(&[bulk(&format!("member:{last}")), bulk(&last.to_string())][..]));
        // One that comes between those that were requested.
        assert_eq!(client.ask("ZADD board -1 first"), Reply::Integer(1));
        let reply = client.ask("ZPOPMIN board");
        assert_eq!(reply.as_list(), Some(&[bulk("first"), bulk("-1")][..]));
    }
    assert_eq!(client.ask("ZCARD board"), Reply::Integer((half - half / 500) as i64));
}
