//! Messages between workers. Posting never blocks; a sleeping worker is woken once.
//!
//! The wake-up protocol: a worker announces that it will sleep, looks at its box once more, then sleeps. A sender
//! posts, then looks whether the receiver announced sleep. Both sides put a sequentially consistent operation between
//! their write and their read, so at least one of them sees the other. A worker also looks at everything once a tick.

use crate::connection::Connection;
use crate::exec::Continuation;
use crate::gather::Gather;
use crate::persist::load::replace;
use crate::pubsub::Publication;
use crate::session::Peer;
use crossbeam_queue::SegQueue;
use gimmal_io::{ConnId, Output, Socket, Waker};
use gimmal_log::Lsn;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

/// What one worker tells another.
pub enum Message {
    /// A new connection is yours.
    Adopt(Socket, Peer),
    /// A running connection is yours from now on.
    Move(Socket, Box<Connection>),
    /// A question that every worker answers.
    Ask(Arc<Gather>),
    /// All workers have answered your connection's question.
    Answered(Arc<Gather>),
    /// Your connection's blocking command was served.
    Served {
        /// The connection.
        conn: ConnId,
        /// The wait's number.
        number: u64,
        /// The reply.
        output: Output,
        /// The reply shows writes up to here.
        lsn: Lsn,
    },
    /// A thread has done its part of your connection's command.
    Resume {
        /// The connection.
        conn: ConnId,
        /// What is left to do.
        rest: Box<dyn Continuation>,
    },
    /// The data set is to be replaced; commands are held already.
    Replace(replace::Order),
    /// Look at the shared state: the log was released, a pause ended, the server stops.
    Look,
}

/// A worker's box.
#[derive(Default)]
pub struct Mailbox {
    messages: SegQueue<Message>,
    /// Apart from the messages, because a worker empties it between two commands.
    publications: SegQueue<Arc<Publication>>,
    /// Bytes of these.
    publication_bytes: AtomicUsize,
    asleep: AtomicBool,
    waker: OnceLock<Waker>,
}

impl Mailbox {
    /// Leaves a message, and wakes the worker if it sleeps.
    pub fn post(&self, message: Message) {
        self.messages.push(message);
        self.wake_if_asleep();
    }

    /// Wakes the worker if it sleeps or is about to.
    pub fn wake_if_asleep(&self) {
        if self.asleep.swap(false, SeqCst)
            && let Some(waker) = self.waker.get()
        {
            waker.wake();
        }
    }

    /// Leaves a publication. The worker is not woken: the publisher may hold a lock, and does that later.
    pub fn publish(&self, publication: Arc<Publication>) {
        self.publication_bytes.fetch_add(publication.len(), SeqCst);
        self.publications.push(publication);
    }

    /// The next publication; only the owner takes.
    pub fn take_publication(&self) -> Option<Arc<Publication>> {
        let publication = self.publications.pop()?;
        self.publication_bytes.fetch_sub(publication.len(), SeqCst);
        Some(publication)
    }

    /// Whether there is a publication.
    #[inline]
    pub fn has_publications(&self) -> bool {
        !self.publications.is_empty()
    }

    /// Bytes of the publications.
    pub fn backlog(&self) -> usize {
        self.publication_bytes.load(SeqCst)
    }

    /// The next message; only the owner takes.
    pub fn take(&self) -> Option<Message> {
        self.messages.pop()
    }

    /// The owner will sleep. False if there is mail, so that it must not.
    pub fn may_sleep(&self) -> bool {
        self.asleep.store(true, SeqCst);
        if self.messages.is_empty() && self.publications.is_empty() {
            return true;
        }
        self.awake();
        false
    }

    /// The owner is awake.
    pub fn awake(&self) {
        self.asleep.store(false, SeqCst);
    }

    /// The owner's engine can be woken with this.
    pub fn set_waker(&self, waker: Waker) {
        assert!(self.waker.set(waker).is_ok(), "a worker starts once");
    }
}
