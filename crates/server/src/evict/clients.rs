//! `maxmemory-clients`: when the buffers of all clients together take too much, the client with the most is closed, and the next
//! one, until they do not.
//!
//! Clients belong to workers, and only its own worker can close one. Each worker publishes an upper bound of what the largest of
//! its clients takes: raised as buffers grow, made exact by a walk at each tick and whenever it is asked. Over the limit the
//! worker whose bound is the highest closes; whoever notices first and is not that worker wakes it.

use crate::connection::Connection;
use crate::mail::Message;
use crate::worker::State;
use gimmal_io::ConnId;

/// Closes clients of this worker until all together are within their limit, or another worker has a larger one; true if that one
/// is still to be closed. One branch without a limit.
#[inline]
pub fn go_on(state: &mut State) -> bool {
    match state.local.evictor.client_limit {
        Some(limit) => counted_bytes(state) > limit && close_largest(state, limit),
        None => false,
    }
}

/// Makes this worker's bound exact again.
pub fn tick(state: &State) {
    if state.local.evictor.client_limit.is_some() {
        look(state);
    }
}

/// What is compared with the limit: all buffers, and what a connection takes without any.
fn counted_bytes(state: &State) -> usize {
    let clients = usize::try_from(state.shared.lifecycle.clients()).unwrap_or(usize::MAX);
    state.shared.client_bytes.estimate(state.local.id) + clients.saturating_mul(size_of::<Connection>())
}

/// Notes that a client's buffers have grown to `bytes`.
#[inline]
pub fn grown(state: &State, c: &Connection, bytes: usize) {
    if state.local.evictor.client_limit.is_some() && !c.session.no_evict {
        state.local.stats.largest_client.raise(bytes as u64);
    }
}

/// Publishes what the largest client takes that may be closed; returns it.
fn look(state: &State) -> Option<(ConnId, u64)> {
    let evictable = |c: &Connection| c.is_open() && !c.session.no_evict;
    let own = state.connections.iter().filter(|(_, c)| evictable(c));
    let largest = own.map(|(id, c)| (id, c.counted_bytes as u64)).max_by_key(|(_, bytes)| *bytes);
    state.local.stats.largest_client.set(largest.map_or(0, |(_, bytes)| bytes));
    largest
}

#[cold]
fn close_largest(state: &mut State, limit: usize) -> bool {
    let shared = state.shared.clone();
    shared.client_bytes.settle(state.local.id);
    while counted_bytes(state) > limit {
        let largest = look(state);
        let own_bytes = largest.map_or(0, |(_, bytes)| bytes);
        let others = (0..shared.mail.len()).filter(|worker| *worker != state.local.id);
        let other = others.max_by_key(|worker| shared.stats[*worker].largest_client.value());
        if let Some(other) = other
            && class(shared.stats[other].largest_client.value()) > class(own_bytes)
        {
            shared.mail[other].post(Message::Look);
            return true;
        }
        let Some((id, _)) = largest else { return false };
        evict(state, id);
    }
    false
}

/// Clients whose sizes have one power of two are equally large, as in Redis.
fn class(bytes: u64) -> u32 {
    u64::BITS - bytes.leading_zeros()
}

fn evict(state: &mut State, id: ConnId) {
    let Some(mut connection) = state.connections.lift(id) else { return };
    let line = crate::commands::client::describe(&state.shared, id, &connection, state.local.now_ms);
    crate::notice!("Evicting client: {line}");
    state.local.stats.evicted_clients.add(1);
    // It counts no more from now on; the engine gives its buffers back when it has closed the socket.
    state.uncount_buffers(&mut connection);
    state.connections.put_back(id, connection);
    state.close(id);
}
