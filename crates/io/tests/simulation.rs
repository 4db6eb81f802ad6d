//! The simulated network by itself: the same seed gives the same run, to the byte, and faults do happen.

mod world;

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use gimmal_io::{ConnId, Faults, Output, SimClient, SimEngine, SimNet};
use world::{Random, Seen, Server};

/// An echo of a few clients, all driven from this thread; returns everything that was seen, in order.
fn run(seed: u64, faults: Faults) -> Vec<Seen> {
    let net = SimNet::new(seed, faults);
    let mut server = Server::with(Box::new(SimEngine::new(&net)));
    server.engine.listen(1, net.listen(6379).unwrap()).unwrap();
    let mut clients: Vec<Client> = (0..4).map(|n| Client::new(net.connect(6379).unwrap(), n)).collect();
    let mut pending: Vec<(ConnId, Vec<u8>)> = Vec::new();
    let mut transcript = Vec::new();
    for _ in 0..5_000 {
        let seen = server.pass(Some(Duration::ZERO));
        for socket in std::mem::take(&mut server.sockets) {
            server.attach(socket);
        }
        for item in &seen {
            match item {
                Seen::Received(conn, data) => pending.push((*conn, data.clone())),
                Seen::Ended(conn, _) | Seen::Sent(conn, Err(_)) if server.is_open(*conn) => {
                    pending.retain(|(id, _)| id != conn);
                    server.close(*conn);
                }
                _ => {}
            }
        }
        for (conn, data) in std::mem::take(&mut pending) {
            if !server.is_open(conn) {
                continue;
            }
            if server.is_sending(conn) {
                pending.push((conn, data));
            } else if let Some(Err(_)) = server.send(conn, Output::with_head(data)) {
                server.close(conn);
            }
        }
        transcript.extend(seen);
        clients.iter_mut().for_each(Client::advance);
    }
    assert!(clients.iter().all(|client| client.broken || client.echoed == client.sent.len()));
    server.finish();
    transcript
}

/// Writes and reads what it can without blocking, and checks the echo.
struct Client {
    end: SimClient,
    sent: Vec<u8>,
    written: usize,
    echoed: usize,
    broken: bool,
}

impl Client {
    fn new(mut end: SimClient, seed: u64) -> Client {
        end.set_timeout(Duration::ZERO);
        Client { end, sent: Random(seed).bytes(6_000), written: 0, echoed: 0, broken: false }
    }

    fn advance(&mut self) {
        let mut buffer = [0; 700];
        let rest = &self.sent[self.written..];
        match self.end.write(&rest[..rest.len().min(900)]) {
            Ok(count) => self.written += count,
            Err(error) => self.broken |= error.kind() != ErrorKind::WouldBlock,
        }
        match self.end.read(&mut buffer) {
            Ok(0) => self.broken = true,
            Ok(count) => {
                assert_eq!(buffer[..count], self.sent[self.echoed..self.echoed + count], "the echo differs");
                self.echoed += count;
            }
            Err(error) => self.broken |= error.kind() != ErrorKind::WouldBlock,
        }
    }
}

#[test]
fn the_same_seed_repeats_the_run_and_others_differ() {
    let first = run(11, Faults::hostile());
    assert_eq!(first, run(11, Faults::hostile()));
    assert_ne!(first, run(12, Faults::hostile()));
}

#[test]
fn many_seeds_echo_every_byte() {
    for seed in 0..100 {
        run(seed, Faults::hostile());
    }
}

#[test]
fn resets_and_failed_accepts_happen_and_are_survived() {
    let faults = Faults { resets_per_10_000: 200, ..Faults::hostile() };
    let mut all = Vec::new();
    for seed in 0..30 {
        all.extend(run(seed, faults));
    }
    assert!(all.iter().any(|seen| matches!(seen, Seen::Ended(_, Some(ErrorKind::ConnectionReset)))));
    assert!(all.iter().any(|seen| matches!(seen, Seen::Sent(_, Err(_)))));
    assert!(all.contains(&Seen::AcceptFailed(1)));
    assert!(all.iter().any(|seen| matches!(seen, Seen::Received(_, data) if data.len() == 1)), "cuts at any byte");
}

#[test]
fn clients_block_only_as_long_as_they_are_told() {
    let net = SimNet::new(1, Faults::none());
    assert_eq!(net.connect(1).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let listener = net.listen(1).unwrap();
    assert_eq!(net.listen(1).unwrap_err().kind(), ErrorKind::AddrInUse);
    let mut client = net.connect(1).unwrap();
    client.set_timeout(Duration::from_millis(10));
    assert_eq!(client.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    let window = Faults::none().window_bytes;
    assert_eq!(client.write(&vec![0; window + 1]).unwrap(), window);
    assert_eq!(client.write(&[0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    drop(listener);
    assert_eq!(client.write(&[0]).unwrap_err().kind(), ErrorKind::BrokenPipe);
    assert_eq!(client.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn kernel_sockets_and_simulated_ones_do_not_mix() {
    let net = SimNet::new(1, Faults::none());
    let conn = ConnId { index: 0, generation: 1 };
    let mut epoll = gimmal_io::Epoll::new().unwrap();
    let mut sim = SimEngine::new(&net);
    let pair = std::os::unix::net::UnixStream::pair().unwrap().0;
    let refused = [
        gimmal_io::Engine::attach(&mut epoll, conn, net.pair().0),
        gimmal_io::Engine::attach(&mut sim, conn, std::os::fd::OwnedFd::from(pair).into()),
        gimmal_io::Engine::listen(&mut sim, 1, net.pair().0),
    ];
    for result in refused {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
