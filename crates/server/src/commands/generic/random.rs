//! RANDOMKEY.

use crate::args::Args;
use crate::exec::{Exec, Outcome};

/// A database may hold nothing but expired keys: after so many of them, null is answered. While writes are paused they stay, and
/// as in Valkey one of them is answered.
const TRIES: usize = 100;

pub(super) fn randomkey(exec: &mut Exec<'_>, _: &Args<'_>) -> Outcome {
    let (db, mut last) = (exec.session.db, None);
    for _ in 0..TRIES {
        let Some(shard) = pick_shard(exec, db) else { break };
        let random = exec.local.random.next();
        let name = exec.lock_shard(shard)?.table(db).random(random).map(|entry| entry.key().to_vec());
        // The shard may have lost its keys since it was picked.
        let Some(name) = name else { continue };
        let mut locked = exec.lock(&name)?;
        if exec.peek(locked.key()).is_some() {
            exec.reply.put().bulk(&name);
            return Ok(());
        }
        drop(locked);
        last = Some(name);
    }
    match last {
        Some(name) if exec.writes_are_paused() => exec.reply.put().bulk(&name),
        _ => exec.reply.put().null(),
    }
    Ok(())
}

/// A shard, each with the chance that its share of the keys gives it; `None` if there are no keys.
fn pick_shard(exec: &mut Exec<'_>, db: usize) -> Option<u32> {
    let (keyspace, batch) = (&exec.shared.keyspace, exec.batch());
    let total = keyspace.len(batch, db);
    if total == 0 {
        return None;
    }
    let mut left = usize::try_from(exec.local.random.next() % total as u64).expect("below the number of keys");
    let mut last = None;
    for shard in 0..u32::try_from(keyspace.shards()).expect("at most 16384 shards") {
        let len = keyspace.shard_len(batch, db, shard);
        if len > 0 {
            last = Some(shard);
        }
        match left.checked_sub(len) {
            Some(rest) => left = rest,
            None => break,
        }
    }
    // If keys have gone since they were counted, the last shard that has any will do.
    last
}
