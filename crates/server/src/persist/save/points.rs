//! Snapshots that begin by themselves: save points, what BGSAVE SCHEDULE put off, and FLUSHALL.

use super::{Failure, Kind, file};
use crate::config::Config;
use crate::exec::Exec;
use crate::notice;
use crate::shared::Shared;
use crate::worker::State;
use gimmal_store::Batch;

/// Seconds after a failure before the next try.
const RETRY_S: i64 = 5;

/// Begins what is due. Called by the first worker at every tick.
pub fn tick(state: &mut State) {
    let shared = state.shared.clone();
    if !is_due(&shared, &state.local.config, state.local.now_ms / 1000) {
        return;
    }
    let batch = shared.keyspace.gate().enter(state.local.id);
    // Somebody else closes it: at the next tick.
    let Some(_closed) = batch.try_close() else { return };
    shared.persist.save.unschedule();
    // If another one has begun in between there will be a next tick.
    let _refused = super::begin(&shared, &batch, background(&shared)).is_err();
}

/// A snapshot that nobody waits for.
pub fn background(shared: &Shared) -> super::Request {
    file::request(shared, Kind::Background, |_, _| ())
}

/// Whether a snapshot should begin by itself now.
fn is_due(shared: &Shared, config: &Config, now_s: i64) -> bool {
    let saving = &shared.persist.save;
    let state = saving.state();
    let ends = shared.lifecycle.hold().is_some() || shared.lifecycle.is_stopping();
    if state.running.is_some() || ends || shared.persist.load.is_under_way() || !saving.has_thread() {
        return false;
    }
    // Not at once again what has just failed.
    let may_try = !saving.has_failed() || state.last.tried_s.is_none_or(|tried_s| now_s - tried_s > RETRY_S);
    let since_s = now_s - state.last.saved_s.unwrap_or(shared.identity.started_ms / 1000);
    let changes = shared.sum(|stats| stats.dirty.value()).saturating_sub(state.last.dirty);
    let points = config.save();
    let point = points
        .iter()
        .find(|point| changes >= point.changes && since_s > i64::try_from(point.seconds).unwrap_or(i64::MAX));
    if let Some(point) = point.filter(|_| may_try) {
        notice!("{} changes in {} seconds. Saving...", point.changes, point.seconds);
        return true;
    }
    may_try && state.scheduled
}

/// All keys were removed, and the gate is still closed. As in Redis a snapshot of what there was is given up, and if there are save
/// points the empty one is saved at once, so that the keys do not come back with the next start.
pub fn flushed(exec: &Exec<'_>, batch: &Batch<'_>) {
    let (shared, saving) = (exec.shared, &exec.shared.persist.save);
    let cancelled = saving.cancel(|kind| kind == Kind::Background);
    if exec.local.config.save().is_empty() || !saving.has_thread() {
        return;
    }
    let request = background(shared);
    // In the middle of a transaction nothing begins: a snapshot has all of it or nothing.
    let request = match cancelled || exec.in_transaction() {
        true => Some(request),
        false => super::begin(shared, batch, request).err(),
    };
    request.into_iter().for_each(|request| super::submit(shared, request));
}

/// What a client is told of a snapshot that was not made.
pub fn failure_text(failure: &Failure) -> String {
    format!("ERR the snapshot was not saved: {failure}")
}
