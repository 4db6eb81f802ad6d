//! A worker's timers: active expiry, time limits of its connections, the end of a pause, the rebalancer.
//!
//! Everything walks in steps: a tick looks at a share of the shards and of the connections and remembers where it stood.

use crate::connection::State as Doing;
use crate::evict;
use crate::worker::{Action, State};
use gimmal_io::ConnId;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Where the walks stand.
#[derive(Default)]
pub struct Ticker {
    last: Option<Instant>,
    shard: usize,
    connection: usize,
    long_passes: u32,
    /// There is more to evict: no sleep.
    evicting: bool,
}

/// Between two ticks.
const TICK: Duration = Duration::from_millis(100);
/// Between two slices of active expiry while there is a backlog.
const EXPIRE_BUDGET: Duration = Duration::from_millis(1);
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
            Some(last) if !self.evicting => most.saturating_sub(last.elapsed()),
            _ => Duration::ZERO,
        }
    }
}

/// Does what is due. Called once a pass; cheap unless a tick is due.
pub fn tick(state: &mut State) {
    // Clients go before keys do.
    state.ticker.evicting = !evict::clients::go_on(state) && evict::go_on(state);
    let now = Instant::now();
    if state.ticker.last.is_some_and(|last| now.duration_since(last) < TICK) {
        return;
    }
    state.ticker.last = Some(now);
    state.local.now_ms = crate::now_ms();
    state.local.look_at_clock();
    expire(state, now);
    state.publish_rest();
    time_limits(state);
    rebalance(state);
    evict::clients::tick(state);
    if state.local.id == 0 {
        state.shared.look_at_rates(now);
    }
    crate::alloc::collect();
    state.local.stats.timers_ns.add(u64::try_from(now.elapsed().as_nanos()).unwrap_or(u64::MAX));
}

/// Removes expired keys of this worker's share of the shards, for at most a millisecond.
fn expire(state: &mut State, started: Instant) {
    let shared = state.shared.clone();
    if shared.debug.no_active_expire.load(Relaxed) || !shared.log.has_room() {
        return;
    }
    let keyspace = &shared.keyspace;
    let (workers, me) = (shared.mail.len(), state.local.id);
    let batch = keyspace.gate().enter(me);
    let volatile: Vec<usize> = (0..keyspace.databases()).filter(|&db| keyspace.volatile_len(&batch, db) > 0).collect();
    let mine = keyspace.shards().div_ceil(workers);
    for _ in 0..if volatile.is_empty() { 0 } else { mine } {
        let shard = state.ticker.shard * workers + me;
        state.ticker.shard = (state.ticker.shard + 1) % mine;
        let id = u32::try_from(shard).expect("at most 16384");
        // A look without the lock: most shards have nothing due.
        let is_due = |db: &usize| keyspace.deadline_ms(&batch, *db, id) < state.local.now_ms;
        if shard >= keyspace.shards() || !volatile.iter().any(is_due) {
            continue;
        }
        let Some(mut shard) = keyspace.try_lock(&batch, id) else { continue };
        let now_ms = state.local.now_ms.max(shard.state().last_now_ms);
        shard.state().last_now_ms = now_ms;
        for &db in &volatile {
            if shard.table(db).volatile_len() == 0 {
                continue;
            }
            let mut expired = Vec::new();
            shard.table(db).expire_some(now_ms, EXPIRE_KEYS, &mut |removed, hash| expired.push((removed, hash)));
            state.local.stats.expired_keys.add(expired.len() as u64);
            for (removed, hash) in expired {
                if shard.state().modified(db, hash, removed.entry().key()) {
                    state.local.woken(db, removed.entry().key());
                }
                if state.local.log_active {
                    let lsn = state.local.append(db, &[b"DEL", removed.entry().key()]);
                    shard.state().stamp(db, hash, lsn);
                }
                state.local.expired(&shared, db, removed.entry().key());
                shared.lazyfree.discard(removed);
            }
        }
        drop(shard);
        if started.elapsed() > EXPIRE_BUDGET {
            break;
        }
    }
    state.local.stats.expire_ns.add(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX));
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
