//! One connection as a line of CLIENT LIST, with Redis's fields in Redis's order.

use crate::connection::{Aside, Connection, State as Doing};
use crate::pubsub::Kind;
use crate::session::{Peer, Session};
use crate::shared::Shared;
use crate::tracking::Tracker;
use gimmal_io::ConnId;

/// What a connection holds in its buffers, in bytes.
#[derive(Debug, Default, Clone, Copy)]
pub struct Buffers {
    /// Received and not yet run.
    pub query: usize,
    /// Room behind that.
    pub query_free: usize,
    /// Arguments of a command that waits.
    pub arguments: usize,
    /// Room for replies.
    pub reply_room: usize,
    /// Replies not yet given to the kernel.
    pub replies: usize,
    /// Batches of replies held back for the log.
    pub held_batches: usize,
    /// Bytes of those, and of what is being sent.
    pub held: usize,
    /// Its command waits to be run.
    pub blocked: bool,
    /// It is being closed once its replies are sent.
    pub finishing: bool,
}

impl Buffers {
    /// Those of a connection that no command runs on at the moment.
    pub fn of(c: &Connection) -> Buffers {
        let query = c.query_bytes();
        Buffers {
            query,
            query_free: c.query.capacity() - (c.query.len() - c.query_at),
            arguments: match c.aside.as_deref() {
                Some(Aside::Parked(parked)) => parked.command.bytes(),
                _ => 0,
            },
            reply_room: c.output.head_capacity(),
            replies: c.output.len(),
            held_batches: c.held.len(),
            held: c.held_bytes + c.sending,
            blocked: c.is_blocked(),
            finishing: c.state == Doing::Finishing,
        }
    }

    fn total(&self) -> usize {
        self.query + self.query_free + self.arguments + self.reply_room.max(self.replies) + self.held
    }
}

/// A connection's line in CLIENT LIST, without its end.
pub fn describe(shared: &Shared, conn: ConnId, c: &Connection, now_ms: i64) -> String {
    line(shared, conn, &c.session, Buffers::of(c), now_ms)
}

/// The line, from the parts that CLIENT INFO can reach of its own connection.
pub fn line(shared: &Shared, conn: ConnId, session: &Session, buffers: Buffers, now_ms: i64) -> String {
    let seconds_since = |then_ms: i64| (now_ms - then_ms).max(0) / 1000;
    let command = usize::try_from(session.last_command).ok().and_then(|id| shared.commands.by_id(id));
    let (library, version) = session.library.as_deref().map_or(("", ""), |both| (&both.0, &both.1));
    let names = |kind| session.subscriptions.as_ref().map_or(0, |all| all.names(kind).len());
    // Ids, numbers and words only: nothing a client chose contains a blank.
    format!(
        "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={} db={} sub={} psub={} ssub={} multi={} watch={} \
         qbuf={} qbuf-free={} argv-mem={} multi-mem={} rbs={} rbp={} obl={} oll={} omem={} tot-mem={} events=r \
         cmd={} user=default redir={} resp={} lib-name={library} lib-ver={version} tot-net-in={} tot-net-out={} tot-cmds={}",
        session.id,
        session.address(),
        session.local_address(),
        conn.index,
        session.name.as_deref().unwrap_or(""),
        seconds_since(session.created_ms),
        seconds_since(session.active_ms),
        flags(session, &buffers),
        session.db,
        names(Kind::Channel),
        names(Kind::Pattern),
        names(Kind::Shard),
        session.multi.as_ref().map_or(-1, |multi| i64::try_from(multi.len()).unwrap_or(i64::MAX)),
        session.watch.as_ref().map_or(0, |watch| watch.len()),
        buffers.query,
        buffers.query_free,
        buffers.arguments,
        session.multi.as_ref().map_or(0, |multi| multi.size()),
        buffers.reply_room,
        buffers.reply_room,
        buffers.replies,
        buffers.held_batches,
        buffers.held,
        buffers.total() + session.transaction_bytes() + size_of::<Connection>(),
        command.map_or("NULL", |entry| &entry.full_name),
        tracker(session).map_or(-1, |tracker| tracker.redirect_id().cast_signed()),
        if session.resp3 { 3 } else { 2 },
        session.received_bytes,
        session.replied_bytes,
        session.commands,
    )
}

fn tracker(session: &Session) -> Option<&Tracker> {
    Some(&*session.tracking.as_ref()?.on.as_ref()?.tracker)
}

/// A letter for each state that is not the usual one, or `N`.
fn flags(session: &Session, buffers: &Buffers) -> String {
    let tracker = tracker(session);
    let letters = [
        (session.monitors, 'O'),
        (session.subscriptions.is_some(), 'P'),
        (session.multi.is_some(), 'x'),
        (buffers.blocked, 'b'),
        (tracker.is_some(), 't'),
        (tracker.is_some_and(|tracker| tracker.is_broken()), 'R'),
        (tracker.is_some_and(|tracker| tracker.bcast), 'B'),
        (session.watch.as_ref().is_some_and(|watch| watch.is_dirty()), 'd'),
        (buffers.finishing || session.close_after_reply, 'c'),
        (session.peer == Peer::Unix, 'U'),
        (session.no_evict, 'e'),
        (!session.touches, 'T'),
    ];
    let text: String = letters.iter().filter(|(on, _)| *on).map(|(_, letter)| letter).collect();
    if text.is_empty() { "N".into() } else { text }
}
