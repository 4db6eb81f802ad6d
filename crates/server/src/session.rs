//! A connection as commands see it: its database, protocol, identity and the modes a client can set.

use crate::command::gate;
use crate::pubsub::Subscriptions;
use crate::tracking::Tracking;
use crate::tx::{Transaction, Watch};
use gimmal_log::Lsn;
use std::net::SocketAddr;

/// Who is at the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// A TCP client: its address and ours.
    Tcp(SocketAddr, SocketAddr),
    /// A client of the Unix socket.
    Unix,
    /// A client of the simulated network.
    Sim,
}

/// What CLIENT REPLY asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyMode {
    /// Replies are sent.
    On,
    /// No replies.
    Off,
    /// The next command's reply is not sent.
    SkipNext,
    /// This command's reply is not sent.
    Skip,
    /// It is no client, but the log that is being replayed.
    Replay,
}

/// Per-connection state that commands read and change.
#[derive(Debug)]
pub struct Session {
    /// Unique for the life of the process.
    pub id: u64,
    /// Selected database.
    pub db: usize,
    /// RESP3 was chosen by HELLO.
    pub resp3: bool,
    /// The password was given, or none is needed.
    pub authenticated: bool,
    /// Reads record the access time (CLIENT NO-TOUCH off).
    pub touches: bool,
    /// CLIENT NO-EVICT on.
    pub no_evict: bool,
    /// Close once all replies are sent.
    pub close_after_reply: bool,
    /// CLIENT REPLY.
    pub reply_mode: ReplyMode,
    /// The other end.
    pub peer: Peer,
    /// CLIENT SETNAME.
    pub name: Option<Box<str>>,
    /// CLIENT SETINFO lib-name and lib-ver.
    pub library: Option<Box<(String, String)>>,
    /// When it connected, in ms.
    pub created_ms: i64,
    /// Since when it has to authenticate, if it has not, in ms.
    pub stranger_since_ms: i64,
    /// When it last sent a command, in ms.
    pub active_ms: i64,
    /// Statistics index of its last command, for CLIENT LIST.
    pub last_command: u32,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes of replies.
    pub replied_bytes: u64,
    /// Commands run.
    pub commands: u64,
    /// Bits of `command::gate` that are closed for this client alone.
    pub gates: u32,
    /// Commands queued since MULTI.
    pub multi: Option<Box<Transaction>>,
    /// Keys watched.
    pub watch: Option<Box<Watch>>,
    /// What it listens to, if to anything.
    pub subscriptions: Option<Box<Subscriptions>>,
    /// How it is told of changes of keys, if it is or ever was.
    pub tracking: Option<Box<Tracking>>,
    /// It is shown the commands of all clients.
    pub monitors: bool,
    /// The command that is set aside was shown to monitors.
    pub shown: bool,
    /// Its WAITAOF waits until the log is on disk up to here, or until that time, in ms.
    pub awaits: Option<(Lsn, Option<i64>)>,
}

impl Session {
    /// A new connection's state.
    pub fn new(id: u64, peer: Peer, authenticated: bool, now_ms: i64) -> Session {
        Session {
            id,
            db: 0,
            resp3: false,
            authenticated,
            touches: true,
            no_evict: false,
            close_after_reply: false,
            reply_mode: ReplyMode::On,
            peer,
            name: None,
            library: None,
            created_ms: now_ms,
            stranger_since_ms: now_ms,
            active_ms: now_ms,
            last_command: u32::MAX,
            received_bytes: 0,
            replied_bytes: 0,
            commands: 0,
            gates: 0,
            multi: None,
            watch: None,
            subscriptions: None,
            tracking: None,
            monitors: false,
            shown: false,
            awaits: None,
        }
    }

    /// What RESET puts back.
    pub fn reset(&mut self, authenticated: bool, now_ms: i64) {
        self.db = 0;
        self.resp3 = false;
        self.authenticated = authenticated;
        self.stranger_since_ms = now_ms;
        self.touches = true;
        self.no_evict = false;
        self.reply_mode = ReplyMode::On;
        self.name = None;
        self.discard();
    }

    /// Begins a transaction: commands are queued.
    pub fn begin(&mut self) {
        self.multi = Some(Box::default());
        self.gates |= gate::IN_MULTI;
    }

    /// Bytes of what is queued and watched, about.
    #[inline]
    pub fn transaction_bytes(&self) -> usize {
        self.multi.as_ref().map_or(0, |multi| multi.size()) + self.watch.as_ref().map_or(0, |watch| watch.size())
    }

    /// Whether it queues commands or watches keys.
    pub fn has_transaction(&self) -> bool {
        self.multi.is_some() || self.watch.is_some()
    }

    /// Takes the queue: commands are carried out again.
    pub fn end(&mut self) -> Option<Box<Transaction>> {
        self.gates &= !gate::IN_MULTI;
        self.multi.take()
    }

    /// Forgets transaction and watches.
    pub fn discard(&mut self) {
        self.end();
        self.watch = None;
    }

    /// A command could not be queued: EXEC will refuse the transaction, if there is one.
    pub fn spoil(&mut self) {
        if let Some(multi) = &mut self.multi {
            multi.spoil();
        }
    }

    /// What kind of client it is, as filters and limits name it.
    pub fn class(&self) -> &'static str {
        if self.subscriptions.is_some() { "pubsub" } else { "normal" }
    }

    /// Messages may come to it at any time.
    pub fn is_listener(&self) -> bool {
        self.subscriptions.is_some() || self.monitors
    }

    /// Others know where it is: it does not move, and they are told when it ends.
    pub fn is_known(&self) -> bool {
        self.is_listener() || self.tracking.is_some()
    }

    /// The connection ends: nobody is told here for others any more.
    pub fn close_inbox(&self) {
        if let Some(inbox) = self.tracking.as_ref().and_then(|tracking| tracking.inbox.as_ref()) {
            inbox.close();
        }
    }

    /// Closes the gate that a subscriber's protocol wants closed: in RESP2 a reply cannot be told from a message.
    pub fn restrict(&mut self) {
        self.gates &= !gate::SUBSCRIBED;
        if self.subscriptions.is_some() && !self.resp3 {
            self.gates |= gate::SUBSCRIBED;
        }
    }

    /// The user it is authenticated as.
    pub fn user(&self) -> &'static str {
        "default"
    }

    /// The other end as Redis writes it.
    pub fn address(&self) -> String {
        match &self.peer {
            Peer::Tcp(peer, _) => peer.to_string(),
            Peer::Unix => "/unixsocket:0".into(),
            Peer::Sim => "127.0.0.1:0".into(),
        }
    }

    /// Our end as Redis writes it.
    pub fn local_address(&self) -> String {
        match &self.peer {
            Peer::Tcp(_, local) => local.to_string(),
            Peer::Unix => "/unixsocket:0".into(),
            Peer::Sim => "127.0.0.1:0".into(),
        }
    }
}
