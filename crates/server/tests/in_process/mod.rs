//! A server within the test's own process, so that a test can hold its log's reader and look into its keyspace; and
//! what its clients need: numbers that look random, and replies.

// Each test uses a part of this.
#![allow(dead_code)]

use crate::running::Client;
use gimmal_io::{Choice, Options, Socket, choose};
use gimmal_resp::encode_bulk;
use gimmal_server::config;
use gimmal_server::session::Peer;
use gimmal_server::shared::Shared;
use gimmal_server::start::Server;
use gimmal_store::types::{Field, Group, StreamEntry, StreamId};
use gimmal_store::{StringRef, ValueRef};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A running server; stopped when dropped.
pub struct InProcess {
    server: Option<Server>,
    /// Where it keeps its files.
    directory: PathBuf,
    address: SocketAddr,
    workers: usize,
}

/// An empty directory that nobody else has.
fn new_directory() -> PathBuf {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let name = format!("gimmal-in-process-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
    let directory = std::env::temp_dir().join(name);
    std::fs::create_dir(&directory).expect("a new directory");
    directory
}

/// Value and deadline of every key, by database and name.
pub type Contents = BTreeMap<(usize, Vec<u8>), (Vec<u8>, Option<i64>)>;

impl InProcess {
    /// Starts a server with so many workers on a free port, with the engine that it would choose here.
    pub fn start(workers: usize) -> InProcess {
        let directory = new_directory();
        let place = directory.display().to_string();
        let arguments = ["--workers", &workers.to_string(), "--save", "", "--dir", &place].map(str::to_owned);
        let loaded = config::read(&arguments).expect("a legal configuration");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let sockets = vec![(Socket::from(OwnedFd::from(listener)), Peer::Tcp(address, address))];
        let decision = choose(Choice::Auto, &Options::default()).expect("epoll works everywhere");
        let mut server = Server::start(loaded.config, decision.kind.into(), sockets).expect("the server starts");
        server.restored().expect("nothing is to be loaded");
        InProcess { server: Some(server), directory, address, workers }
    }

    /// A new client.
    pub fn connect(&self) -> Client {
        Client::new(TcpStream::connect(self.address).expect("the server accepts"))
    }

    /// What the workers share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.server.as_ref().expect("running until dropped").shared
    }

    /// Everything in the keyspace. Shard by shard: for a server that has nothing to do.
    pub fn contents(&self) -> Contents {
        let keyspace = &self.shared().keyspace;
        // One participant more than there are workers, for background threads: here that is the test.
        let batch = keyspace.gate().enter(self.workers);
        let mut contents = Contents::new();
        for id in 0..u32::try_from(keyspace.shards()).expect("at most 16384") {
            let mut shard = loop {
                match keyspace.try_lock(&batch, id) {
                    Some(shard) => break shard,
                    None => std::thread::yield_now(),
                }
            };
            for db in 0..keyspace.databases() {
                shard.table(db).scan(0, usize::MAX, &mut |entry| {
                    let value = rendered(entry.value());
                    let before = contents.insert((db, entry.key().to_vec()), (value, entry.expire_at_ms()));
                    assert!(before.is_none(), "visited twice: {:?}", entry.key());
                });
            }
        }
        contents
    }
}

/// A value as bytes that tell it from any other.
fn rendered(value: ValueRef<'_>) -> Vec<u8> {
    match value {
        ValueRef::String(StringRef::Int(n)) => n.to_string().into_bytes(),
        ValueRef::String(StringRef::Bytes(bytes)) => bytes.to_vec(),
        ValueRef::String(StringRef::Rope(rope)) => rope.to_vec(),
        ValueRef::SortedSet(set) => {
            let members = set.iter().map(|found| format!("{:?} {:?}", found.score, found.member.escape_ascii()));
            members.collect::<Vec<_>>().join("\n").into_bytes()
        }
        ValueRef::List(list) => {
            let mut bytes = b"list".to_vec();
            list.iter().for_each(|element| encode_bulk(&mut bytes, element));
            bytes
        }
        ValueRef::Set(set) => {
            let mut members: Vec<Vec<u8>> = set.iter().map(<[u8]>::to_vec).collect();
            members.sort();
            format!("set {members:?}").into_bytes()
        }
        ValueRef::Hash(fields) => {
            let parts = |field: Field<'_>| (field.name.to_vec(), field.value.to_vec(), field.expire_at_ms);
            let mut all: Vec<_> = fields.iter_from(0).map(parts).collect();
            all.sort();
            format!("hash {all:?}").into_bytes()
        }
        // Without the times at which consumers were seen, which no log has.
        ValueRef::Stream(stream) => {
            let entry = |entry: StreamEntry<'_>| {
                let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
                (entry.id, entry.fields().map(|(name, value)| (text(name), text(value))).collect::<Vec<_>>())
            };
            let entries: Vec<_> = stream.entries().iter_from(0).map(entry).collect();
            let groups: Vec<_> = stream.groups().map(|(name, group)| describe_group(name, group)).collect();
            let meta = (stream.last_id(), stream.max_deleted_id(), stream.entries_added());
            format!("stream {meta:?} {entries:?} {groups:?}").into_bytes()
        }
    }
}

fn describe_group(name: &[u8], group: &Group) -> String {
    let consumers: Vec<_> = group.consumers().map(|consumer| consumer.name().escape_ascii().to_string()).collect();
    let pending = group.pending_from(StreamId::MIN);
    let pending = pending.map(|one| (one.id, group.owner(&one).name().to_vec(), one.delivered_ms, one.deliveries));
    let pending: Vec<_> = pending.collect();
    format!("{} {:?} {:?} {consumers:?} {pending:?}", name.escape_ascii(), group.last_id, group.entries_read)
}

impl Drop for InProcess {
    fn drop(&mut self) {
        let server = self.server.take().expect("dropped once");
        server.shared.stop();
        let ended = server.wait();
        // What is left of it is in the way of nobody.
        drop(std::fs::remove_dir_all(&self.directory));
        // A second panic would hide the first.
        if !std::thread::panicking() {
            ended.expect("the workers end well");
        }
    }
}

/// Numbers that look random (SplitMix64; Steele, Lea, Flood 2014).
pub struct Random(pub u64);

impl Random {
    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % end as u64).expect("below a usize")
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}
