//! A worker's timers: active expiry, time limits of its connections, the end of a pause, the rebalancer.
//!
//! Everything walks in steps: a tick looks at a share of the shards and of the connections and remembers where it stood.

use crate::connection::State as Doing;
use crate::evict;
use crate::lazyfree::removal;
use crate::persist::aof::rewrite;
use crate::persist::save::points;
use crate::shared::Shared;
use crate::tracking;
use crate::worker::{Action, Local, State};
use gimmal_io::ConnId;
use gimmal_store::{Expired, Shard};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Where the walks stand.
#[derive(Default)]
pub struct Ticker {
    last: Option<Instant>,
    collected: Option<Instant>,
    /// Another thread frees what may be of this one's heap.
    freeing: bool,
    shard: usize,
    connection: usize,
    long_passes: u32,
    /// There is more to evict: no sleep.
    evicting: bool,
    /// Active expiry did not finish, and when it ended.
    behind: Option<Instant>,
}

/// Between two ticks.
const TICK: Duration = Duration::from_millis(100);
/// Between two collections of what another thread frees meanwhile: all at once it would be ms.
const COLLECT_PAUSE: Duration = Duration::from_micros(250);
/// A slice of active expiry, and the time between two of them while there is a backlog: a quarter of the processor, as in Redis.
const EXPIRE_BUDGET: Duration = Duration::from_millis(1);
const EXPIRE_PAUSE: Duration = Duration::from_millis(3);
/// Keys that one visit of a shard may remove while it holds the lock.
const EXPIRE_KEYS: usize = 64;
/// How long a connection lingers after its last reply, at most, in ms.
const LINGER_MS: i64 = 1000;
/// How long a client may take to authenticate, in ms.
const AUTHENTICATE_MS: i64 = 10_000;
/// Ticks in a row with long passes after which connections are moved away, and how many at a time.
const LONG_TICKS: u32 = 3;
const MOVE_AT_ONCE: usize = 16;
/// A pass this long hurts the other connections of the worker, in µs.
const LONG_PASS_US: u64 = 1000;

impl Ticker {
    /// How long until the next tick, at most `most`.
    pub fn until_next(&self, most: Duration) -> Duration {
        match self.last {
            Some(last) if !self.evicting => {
                let until_tick = most.saturating_sub(last.elapsed());
                let until_tick = if self.freeing { until_tick.min(COLLECT_PAUSE) } else { until_tick };
                self.behind.map_or(until_tick, |ended| until_tick.min(EXPIRE_PAUSE.saturating_sub(ended.elapsed())))
            }
            _ => Duration::ZERO,
        }
    }
}

/// Does what is due. Called once a pass; cheap unless a tick is due.
pub fn tick(state: &mut State) {
    // Clients go before keys do.
    // As the pass saw it, as it saw whether there is a log.
    let loading = state.local.loading;
    state.ticker.evicting = !evict::clients::go_on(state) && !loading && evict::go_on(state);
    state.publish_rest();
    let now = Instant::now();
    collect(state, now);
    if state.ticker.last.is_some_and(|last| now.duration_since(last) < TICK) {
        if state.ticker.behind.is_some_and(|ended| now.duration_since(ended) >= EXPIRE_PAUSE) {
            state.local.now_ms = crate::now_ms();
            expire(state, now);
            state.publish_rest();
        }
        return;
    }
    state.ticker.last = Some(now);
    state.local.now_ms = crate::now_ms();
    state.local.look_at_clock();
    expire(state, now);
    // What has expired is being freed: the next collection should not wait for the next tick.
    state.ticker.freeing |= state.shared.lazyfree.pending() > 0;
    tracking::tick(state);
    state.publish_rest();
    time_limits(state);
    rebalance(state);
    evict::clients::tick(state);
    if state.local.id == 0 {
        state.shared.look_at_rates(now);
        points::tick(state);
        rewrite::tick(state);
    }
    state.local.stats.timers_ns.add(u64::try_from(now.elapsed().as_nanos()).unwrap_or(u64::MAX));
}

/// Takes back what other threads have freed of this one's heap: at every tick, and more often while something large is being freed.
fn collect(state: &mut State, now: Instant) {
    // Once more after it has ended.
    let freeing = state.shared.lazyfree.pending() > 0;
    let pause = if freeing || state.ticker.freeing { COLLECT_PAUSE } else { TICK };
    if state.ticker.collected.is_none_or(|last| now.duration_since(last) >= pause) {
        state.ticker.collected = Some(now);
        state.ticker.freeing = freeing;
        crate::alloc::collect();
    }
}

/// Removes expired keys and fields of this worker's share of the shards, for at most a millisecond.
fn expire(state: &mut State, started: Instant) {
    state.ticker.behind = None;
    let shared = state.shared.clone();
    if state.local.loading || shared.debug.no_active_expire.load(Relaxed) || !shared.log.has_room() {
        return;
    }
    // While writes are paused the data does not change, not even by itself.
    if shared.pause.at(state.local.now_ms).is_some() {
        return;
    }
    let keyspace = &shared.keyspace;
    let (workers, me) = (shared.mail.len(), state.local.id);
    let batch = keyspace.gate().enter(me);
    // It may have begun since the pass did.
    if shared.lifecycle.hold().is_some() {
        return;
    }
    // It may have been switched on since the pass began.
    state.local.look_at_log(&shared);
    let now_ms = state.local.now_ms;
    // Looks without the locks: most shards have nothing due.
    let due: Vec<usize> = (0..keyspace.databases()).filter(|&db| keyspace.earliest_ms(&batch, db) < now_ms).collect();
    let mine = keyspace.shards().div_ceil(workers);
    for _ in 0..if due.is_empty() { 0 } else { mine } {
        let shard = state.ticker.shard * workers + me;
        let id = u32::try_from(shard).expect("at most 16384");
        let is_due = |db: &usize| keyspace.deadline_ms(&batch, *db, id) < now_ms;
        // Again while there is more: a large hash is one key of one shard.
        while shard < keyspace.shards() && due.iter().any(is_due) && started.elapsed() < EXPIRE_BUDGET {
            let Some(mut shard) = keyspace.try_lock(&batch, id) else { break };
            due.iter().for_each(|&db| expire_in(&mut state.local, &shared, &mut shard, db));
        }
        if started.elapsed() > EXPIRE_BUDGET {
            state.ticker.behind = Some(Instant::now());
            break;
        }
        state.ticker.shard = (state.ticker.shard + 1) % mine;
    }
    state.local.stats.expire_ns.add(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX));
}

/// Removes some of what is due from one database of a locked shard.
fn expire_in(local: &mut Local, shared: &Shared, shard: &mut Shard<'_>, db: usize) {
    let now_ms = local.now_ms.max(shard.state().last_now_ms);
    shard.state().last_now_ms = now_ms;
    let mut all = Vec::new();
    shard.table(db).expire_some(now_ms, EXPIRE_KEYS, &mut |expired, hash| all.push((expired, hash)));
    for (expired, hash) in all {
        local.modified(shared, shard.state(), db, hash, expired.key(), 0);
        let names = match &expired {
            Expired::Key(_) => &[][..],
            Expired::Fields { names, .. } => names,
        };
        if local.log_active {
            let lazy = local.config.lazyfree_lazy_expire();
            let name = if names.is_empty() { removal(lazy) } else { b"HDEL" };
            let words = [name, expired.key()].into_iter().chain(names.iter().map(Vec::as_slice));
            let lsn = local.append(db, &words.collect::<Vec<_>>());
            shard.state().stamp(db, hash, lsn);
            local.changed_by_others(lsn);
        }
        match expired {
            Expired::Key(removed) => {
                local.stats.expired_keys.add(1);
                local.expired(shared, db, removed.entry().key());
                shared.lazyfree.discard(removed);
            }
            Expired::Fields { key, names, emptied } => {
                local.stats.expired_fields.add(names.len() as u64);
                local.fields_expired(shared, db, &key, emptied.is_some());
                emptied.into_iter().for_each(|removed| shared.lazyfree.discard(removed));
            }
        }
    }
}

/// Looks at a tenth of the connections, so at each about once a second.
fn time_limits(state: &mut State) {
    let slots = state.connections.slots();
    let has_password = !state.local.config.requirepass().is_empty();
    let timeout_ms = state.local.config.timeout().saturating_mul(1000);
    let now = state.local.now_ms;
    for _ in 0..(slots / 10 + 1).min(slots) {
        let index = state.ticker.connection % slots;
        state.ticker.connection = index + 1;
        let Some((id, c)) = state.connections.at(index) else { continue };
        let idle_ms = now - c.session.active_ms;
        let over = match c.state {
            Doing::Lingering => now - c.since_ms > LINGER_MS,
            Doing::Open if has_password && !c.session.authenticated => {
                now - c.session.stranger_since_ms > AUTHENTICATE_MS
            }
            Doing::Open => timeout_ms > 0 && idle_ms > timeout_ms && c.sending == 0 && !c.session.is_listener(),
            _ => false,
        };
        let limits = c.marks.paused || c.since_ms != 0 && c.session.is_listener();
        if over {
            state.close(id);
        } else if limits && let Some(mut c) = state.connections.lift(id) {
            state.enforce_limits(id, &mut c);
            state.connections.put_back(id, c);
        }
    }
}

/// Moves quiet connections away from a worker whose passes stay long to the one whose passes are shortest.
fn rebalance(state: &mut State) {
    let shared = state.shared.clone();
    let me = state.local.id;
    let my_pass = state.local.stats.pass_us.value();
    state.local.stats.pass_us.set(my_pass / 2);
    state.ticker.long_passes = if my_pass > LONG_PASS_US { state.ticker.long_passes + 1 } else { 0 };
    if shared.mail.len() == 1 || state.ticker.long_passes < LONG_TICKS || state.connections.len() < 2 {
        return;
    }
    let shortest = (0..shared.mail.len()).min_by_key(|&w| shared.stats[w].pass_us.value()).expect("there are workers");
    if shortest == me || shared.stats[shortest].pass_us.value() * 2 > my_pass {
        return;
    }
    let to = u16::try_from(shortest).expect("at most 1024 workers");
    let quiet: Vec<ConnId> =
        state.connections.iter().filter(|(_, c)| c.is_quiescent()).map(|(id, _)| id).take(MOVE_AT_ONCE).collect();
    for id in quiet {
        if let Some(c) = state.connections.find(id) {
            c.state = Doing::Moving(to);
            state.actions.push(Action::Detach(id));
        }
    }
}
