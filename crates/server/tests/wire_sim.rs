//! The wire scripts on the simulated network: short reads and writes, reordered completions, exhausted buffers, failing
//! accepts, by seed. The same scripts run on io_uring and epoll against the binary (`crates/lab/tests/wire.rs`).

use gimmal_io::{Faults, SimClient, SimEngine, SimNet};
use gimmal_lab::wire::{Network, Received, Script, Transport, missing_command, reset, run_case};
use gimmal_server::config;
use gimmal_server::session::Peer;
use gimmal_server::start::{EngineChoice, Server};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

const PORT: u16 = 6379;

struct Sim(Arc<SimNet>);
struct Client(SimClient);

impl Network for Sim {
    type Connection = Client;

    fn connect(&mut self) -> io::Result<Client> {
        self.0.connect(PORT).map(Client)
    }

    fn pause(&mut self, time: Duration) -> io::Result<()> {
        std::thread::sleep(time);
        Ok(())
    }
}

impl Transport for Client {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.set_timeout(Duration::from_secs(10));
        self.0.write_all(bytes)
    }

    fn receive(&mut self, within: Duration) -> io::Result<Received> {
        self.0.set_timeout(within);
        let mut buffer = vec![0; 64 * 1024];
        match self.0.read(&mut buffer) {
            Ok(0) => Ok(Received::Closed),
            Ok(n) => {
                buffer.truncate(n);
                Ok(Received::Bytes(buffer))
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                Ok(Received::Nothing)
            }
            Err(error) => Err(error),
        }
    }
}

/// Starts a server on a network of its own.
fn start(seed: u64, faults: Faults, arguments: &[String]) -> (Server, Sim) {
    let net = SimNet::new(seed, faults);
    let socket = net.listen(PORT).expect("the port is free");
    let engine = {
        let net = net.clone();
        EngineChoice::Sim(Arc::new(move |_| SimEngine::new(&net)))
    };
    let config = config::read(arguments).expect("the script's arguments are good").config;
    let mut server = Server::start(config, engine, vec![(socket, Peer::Sim)]).expect("the server starts");
    server.restored().expect("nothing is to be loaded");
    (server, Sim(net))
}

fn play(seed: u64, faults: Faults, workers: usize) -> usize {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/wire");
    let mut played = 0;
    for entry in std::fs::read_dir(dir).expect("the scripts are in the repository") {
        let path = entry.expect("readable").path();
        if path.extension().is_none_or(|extension| extension != "txt") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("readable");
        let script = Script::parse(&path.display().to_string(), &text).expect("a script");
        // What the runner of the binary passes too.
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let name = format!("gimmal-wire-sim-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).expect("a new directory");
        let place = directory.display().to_string();
        let mut arguments = ["--save", "", "--appendonly", "no", "--dir", &place].map(str::to_owned).to_vec();
        arguments.extend(script.server_args.iter().cloned());
        arguments.extend(["--workers".into(), workers.to_string()]);
        let (server, mut sim) = start(seed, faults, &arguments);
        for case in &script.cases {
            let place = format!("seed {seed}, {workers} workers, {}:{}: {}", script.name, case.line, case.title);
            let missing = missing_command(&mut sim, &script, case).unwrap_or_else(|e| panic!("{place}: {e:?}"));
            if let Some(command) = missing {
                eprintln!("not run: {place}: no {command} yet");
                continue;
            }
            for &protocol in &case.protocols {
                reset(&mut sim, &script).unwrap_or_else(|e| panic!("{place}: {e:?}"));
                run_case(&mut sim, case, protocol).unwrap_or_else(|e| panic!("{place}: {protocol}: {e:?}"));
                played += 1;
            }
        }
        server.shared.stop();
        server.wait().expect("a clean end");
        std::fs::remove_dir_all(&directory).expect("it was made above");
    }
    played
}

#[test]
fn scripts_hold_on_a_network_that_behaves() {
    assert!(play(1, Faults::none(), 1) > 0, "no case could be run");
}

#[test]
fn scripts_hold_on_a_hostile_network() {
    for seed in 1..=4 {
        let workers = 1 + usize::try_from(seed % 2).expect("small");
        assert!(play(seed, Faults::hostile(), workers) > 0, "no case could be run");
    }
}
