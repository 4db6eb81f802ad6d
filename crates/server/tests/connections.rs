//! What becomes of connections that do something unusual: end their stream early, are paused twice, reset themselves.

mod running;

use gimmal_resp::Reply;
use running::{PATIENCE, Running, error_text, ok};
use std::net::Shutdown;
use std::time::{Duration, Instant};

const ENGINES: [&str; 2] = ["auto", "epoll"];

/// CLIENT LIST is answered by message. A client that had ended its stream behind it (`printf … | nc -N`) was closed while
/// it waited, without the answer and without those of the commands behind.
#[test]
fn a_client_that_has_ended_its_stream_gets_an_answer_that_comes_by_message() {
    for engine in ENGINES {
        let server = Running::start(&format!("--io-engine {engine} --workers 2"));
        for _ in 0..20 {
            let mut client = server.connect();
            client.send(b"PING\r\nCLIENT LIST\r\nECHO behind\r\n");
            client.stream.shutdown(Shutdown::Write).expect("it is open");
            assert_eq!(client.reply(), Reply::Simple("PONG".into()), "{engine}");
            let list = client.reply();
            assert!(list.as_bytes().is_some_and(|list| list.starts_with(b"id=")), "{engine}: {list:?}");
            assert_eq!(client.reply().as_bytes(), Some(&b"behind"[..]), "{engine}");
            assert!(client.is_closed_within(PATIENCE));
        }
    }
}

/// A pause that had run out still made the next one stricter: after CLIENT PAUSE 1 ALL every later pause stopped reads.
#[test]
fn a_pause_that_is_over_says_nothing_about_the_next() {
    let server = Running::start("--workers 2");
    let (mut admin, mut client) = (server.connect(), server.connect());
    assert_eq!(admin.ask("CLIENT PAUSE 1 ALL"), ok());
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(admin.ask("CLIENT PAUSE 600000 WRITE"), ok());
    assert_eq!(client.ask("GET k"), Reply::NullBulk, "a pause of writes stops reads");
    client.send(b"SET k v\r\n");
    assert_eq!(admin.ask("CLIENT UNPAUSE"), ok());
    assert_eq!(client.reply(), ok());
}

/// The ten seconds in which a client must authenticate were counted from its connection. One that had been there for
/// longer and sent RESET, as pools of connections do, was closed before it could give the password again.
#[test]
fn after_reset_a_client_has_time_to_authenticate() {
    let server = Running::start("--requirepass secret");
    let mut client = server.connect();
    assert_eq!(client.ask("AUTH secret"), ok());
    std::thread::sleep(Duration::from_millis(10_500));
    assert_eq!(client.ask("RESET"), Reply::Simple("RESET".into()));
    std::thread::sleep(Duration::from_millis(2500));
    assert!(error_text(&client.ask("GET k")).starts_with("NOAUTH"));
    assert_eq!(client.ask("AUTH secret"), ok());
}

/// INFO summed the bytes of the data twice, and took one sum from the other: a value of some megabytes that another worker
/// stored in between ended the server.
#[test]
fn info_is_asked_while_large_values_come_and_go() {
    const VALUE: &str = "SETRANGE large 60000000 x\r\nDEL large\r\n";
    let server = Running::start("--workers 4");
    let until = Instant::now() + Duration::from_secs(4);
    std::thread::scope(|scope| {
        for line in ["INFO memory\r\n", "MEMORY STATS\r\n", "MEMORY DOCTOR\r\n", VALUE, VALUE] {
            let mut client = server.connect();
            scope.spawn(move || {
                let replies = line.matches('\n').count();
                while Instant::now() < until {
                    client.send(line.repeat(10).as_bytes());
                    for _ in 0..10 * replies {
                        assert!(!client.reply().is_error());
                    }
                }
            });
        }
    });
    assert_eq!(server.connect().ask("PING"), Reply::Simple("PONG".into()));
}
