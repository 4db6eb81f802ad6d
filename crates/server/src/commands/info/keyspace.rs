//! INFO keyspace: how many keys each database has, how many of them expire, and when on average.

use super::Text;
use crate::exec::Exec;

/// Deadlines looked at for the average of one database, and shards at most.
const SAMPLES: usize = 64;
const SHARDS: u32 = 64;

pub fn keyspace(exec: &mut Exec<'_>, text: &mut Text) {
    for db in 0..exec.shared.keyspace.databases() {
        let keys = exec.shared.keyspace.len(exec.batch(), db);
        if keys == 0 {
            continue;
        }
        let expires = exec.shared.keyspace.volatile_len(exec.batch(), db);
        let avg_ttl = if expires == 0 { 0 } else { average_ttl_ms(exec, db) };
        text.line(format_args!("db{db}:keys={keys},expires={expires},avg_ttl={avg_ttl}"));
    }
}

/// The average time to live of some keys that expire, in ms.
fn average_ttl_ms(exec: &mut Exec<'_>, db: usize) -> i64 {
    let keyspace = &exec.shared.keyspace;
    let shards = u32::try_from(keyspace.shards()).expect("at most 16384 shards");
    let start = u32::try_from(exec.local.random.next() % u64::from(shards)).expect("below the number of shards");
    let (mut seen, mut sum, mut looked_at) = (0_i64, 0_i64, 0);
    for shard in (0..shards).map(|i| (start + i) % shards) {
        if keyspace.deadline_ms(exec.batch(), db, shard) == i64::MAX {
            continue;
        }
        looked_at += 1;
        // A shard that is busy is passed over.
        let Some(mut shard) = keyspace.try_lock(exec.batch(), shard) else { continue };
        shard.table(db).scan(0, SAMPLES, &mut |entry| {
            if let Some(at_ms) = entry.expire_at_ms() {
                seen += 1;
                sum = sum.saturating_add(at_ms.saturating_sub(exec.local.now_ms).max(0));
            }
        });
        if seen >= 64 || looked_at >= SHARDS {
            break;
        }
    }
    sum / seen.max(1)
}
