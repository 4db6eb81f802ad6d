//! Replies that wait for the log, on one worker that is driven pass by pass: the test is the log's reader, so that it says
//! when a write is released. What is checked is order: whatever is said behind a held reply is said after it.

use gimmal_io::{Faults, SimClient, SimEngine, SimNet};
use gimmal_log::Reader;
use gimmal_server::config;
use gimmal_server::logging::{self, Level};
use gimmal_server::session::Peer;
use gimmal_server::shared::Shared;
use gimmal_server::start::{self, EngineChoice};
use gimmal_server::worker::Worker;
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::Duration;

const PORT: u16 = 1;

/// A server without threads whose log is read by the test.
struct Held {
    net: Arc<SimNet>,
    shared: Arc<Shared>,
    worker: Worker<SimEngine>,
    reader: Option<Reader>,
}

impl Held {
    fn new() -> Held {
        logging::configure(Level::Nothing, "");
        let words = ["--save", "", "--shards", "4"].map(String::from);
        let config = config::read(&words).expect("a good configuration").config;
        let net = SimNet::new(1, Faults::none());
        let listener = net.listen(PORT).expect("the port is free");
        let make = EngineChoice::Sim(Arc::new({
            let net = Arc::clone(&net);
            move |_| SimEngine::new(&net)
        }));
        let shared = Arc::new(start::shared(config, 1, &make).expect("the state of a server"));
        let reader = Some(shared.log.activate(0));
        let mut worker = Worker::new(0, SimEngine::new(&net), Arc::clone(&shared));
        worker.listen(vec![(listener, Peer::Sim)]).expect("a simulated listener");
        Held { net, shared, worker, reader }
    }

    fn connect(&self) -> SimClient {
        let mut client = self.net.connect(PORT).expect("the backlog is empty");
        client.set_timeout(Duration::ZERO);
        client
    }

    fn passes(&mut self) {
        for _ in 0..20 {
            self.worker.pass(&self.shared, Duration::ZERO).expect("a simulated engine does not fail");
        }
    }

    /// What a client is told from now on, until nothing more comes.
    fn told(&mut self, client: &mut SimClient) -> String {
        self.passes();
        let mut told = Vec::new();
        let mut chunk = [0; 4096];
        loop {
            match client.read(&mut chunk) {
                Ok(0) => told.extend_from_slice(b"<end>"),
                Ok(count) => {
                    told.extend_from_slice(&chunk[..count]);
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("no reply: {error}"),
            }
            return String::from_utf8(told).expect("text");
        }
    }

    /// Releases all writes so far.
    fn release(&mut self) {
        let reader = self.reader.as_mut().expect("the log is read");
        let position = reader.readable();
        reader.consumed(position);
        self.shared.log.release(position);
    }

    /// Nothing reads the log any more, and nothing waits for it.
    fn switch_off(&mut self) {
        let reader = self.reader.take().expect("the log is read");
        self.shared.log.deactivate(reader);
    }
}

#[test]
fn a_read_of_a_write_that_is_not_released_waits_with_it() {
    let mut server = Held::new();
    let (mut writer, mut reader) = (server.connect(), server.connect());
    writer.write_all(b"SET k v\r\n").unwrap();
    assert_eq!(server.told(&mut writer), "");
    reader.write_all(b"GET other\r\nGET k\r\n").unwrap();
    assert_eq!(server.told(&mut reader), "", "a pipeline's replies are held as one");
    let mut third = server.connect();
    third.write_all(b"GET other\r\n").unwrap();
    assert_eq!(server.told(&mut third), "$-1\r\n", "a clean key waits for nothing");
    server.release();
    assert_eq!(server.told(&mut writer), "+OK\r\n");
    assert_eq!(server.told(&mut reader), "$-1\r\n$1\r\nv\r\n");
}

/// Killed connections leave, what they held with them, but stayed in the list of those that wait for the log.
#[test]
fn clients_that_are_killed_while_the_disk_is_stuck_are_forgotten() {
    let mut server = Held::new();
    let (mut killer, mut most) = (server.connect(), 0);
    for _ in 0..3000 {
        let mut client = server.connect();
        client.write_all(b"SET a 1\r\n").unwrap();
        server.worker.pass(&server.shared, Duration::ZERO).unwrap();
        killer.write_all(b"CLIENT KILL TYPE normal SKIPME yes\r\n").unwrap();
        for _ in 0..3 {
            server.worker.pass(&server.shared, Duration::ZERO).unwrap();
        }
        most = most.max(server.worker.holders());
    }
    assert!((1000..1200).contains(&most), "{most} connections listed");
    let killed = server.told(&mut killer);
    assert_eq!(killed.matches(":1\r\n").count(), 3000, "{}", &killed[..100]);
    let mut last = server.connect();
    last.write_all(b"SET a 2\r\n").unwrap();
    assert_eq!(server.told(&mut last), "");
    server.release();
    assert_eq!(server.told(&mut last), "+OK\r\n");
}

/// The error of a broken stream was put straight into the output, ahead of the replies that were held: the client read
/// the error as the answer to its write.
#[test]
fn a_protocol_error_comes_behind_held_replies() {
    let mut server = Held::new();
    let mut client = server.connect();
    client.write_all(b"SET k v\r\n*1\r\nbroken\r\n").unwrap();
    assert_eq!(server.told(&mut client), "");
    server.release();
    let told = server.told(&mut client);
    assert!(told.starts_with("+OK\r\n-ERR Protocol error"), "{told}");
}

/// While the log was active a reply was held. Once it had been switched off later replies were not held any more, and
/// overtook it.
#[test]
fn replies_keep_their_order_when_the_log_is_switched_off() {
    let mut server = Held::new();
    let mut client = server.connect();
    client.write_all(b"SET k v\r\n").unwrap();
    assert_eq!(server.told(&mut client), "");
    server.switch_off();
    client.write_all(b"PING\r\n").unwrap();
    assert_eq!(server.told(&mut client), "+OK\r\n+PONG\r\n");
}

#[test]
fn what_is_said_by_message_comes_behind_held_replies() {
    let mut server = Held::new();
    let mut client = server.connect();
    client.write_all(b"SET k v\r\nCLIENT LIST TYPE replica\r\nPING\r\n").unwrap();
    assert_eq!(server.told(&mut client), "");
    server.release();
    assert_eq!(server.told(&mut client), "+OK\r\n$0\r\n\r\n+PONG\r\n");
}

#[test]
fn an_invalidation_comes_with_the_write_that_it_shows() {
    let mut server = Held::new();
    let (mut reader, mut writer) = (server.connect(), server.connect());
    reader.write_all(b"HELLO 3\r\nCLIENT TRACKING on\r\nGET k\r\n").unwrap();
    let told = server.told(&mut reader);
    assert!(told.ends_with("+OK\r\n_\r\n"), "{told}");
    writer.write_all(b"SET k v\r\n").unwrap();
    assert_eq!(server.told(&mut writer), "");
    assert_eq!(server.told(&mut reader), "", "told of a write that may yet be lost");
    server.release();
    assert_eq!(server.told(&mut writer), "+OK\r\n");
    assert_eq!(server.told(&mut reader), ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n");
}

#[test]
fn a_key_found_expired_is_a_write_of_its_own() {
    let mut server = Held::new();
    let mut client = server.connect();
    client.write_all(b"DEBUG SET-ACTIVE-EXPIRE 0\r\nSET k v PX 1\r\n").unwrap();
    server.passes();
    server.release();
    server.told(&mut client);
    std::thread::sleep(Duration::from_millis(5));
    client.write_all(b"GET k\r\n").unwrap();
    assert_eq!(server.told(&mut client), "", "the removal of the key is not released");
    server.release();
    assert_eq!(server.told(&mut client), "$-1\r\n");
}

#[test]
fn whole_databases_depend_on_the_newest_write_of_all() {
    for question in ["DBSIZE", "KEYS *", "SCAN 0 COUNT 1000", "RANDOMKEY"] {
        let mut server = Held::new();
        let (mut writer, mut reader) = (server.connect(), server.connect());
        writer.write_all(b"SET k v\r\n").unwrap();
        server.passes();
        reader.write_all(format!("{question}\r\n").as_bytes()).unwrap();
        assert_eq!(server.told(&mut reader), "", "{question} shows a write that is not released");
        server.release();
        assert_ne!(server.told(&mut reader), "", "{question}");
        writer.write_all(b"FLUSHALL\r\n").unwrap();
        server.passes();
        reader.write_all(format!("{question}\r\nGET k\r\n").as_bytes()).unwrap();
        assert_eq!(server.told(&mut reader), "", "{question} shows a flush that is not released");
        server.release();
        assert_ne!(server.told(&mut reader), "", "{question}");
    }
}
