//! Memory requested for what several connections sent, before the first of their commands is run.
//!
//! A pipeline is prefetched as a batch (`batch.rs`), but of a client that waits for each reply there is one command at a time, and
//! each would wait alone for its bucket and its entry. So the worker looks at what the engine is going to hand out next, takes the
//! first argument of each command for a key, and requests these keys' lines together: with 500 connections that wait for each reply
//! a tenth of the time went into those two misses. It is a guess: nothing depends on it, and each command is parsed and hashed again
//! when its turn comes.

use crate::worker::State;
use gimmal_io::{ConnId, LOOK_AHEAD};
use gimmal_store::{Ahead, Batch, Hash};

/// With fewer commands the loads overlap too little to pay.
const LEAST: usize = 3;
/// Of more bytes than these the beginning is probably a pipeline's, which is prefetched as a whole.
const BRIEF: usize = 512;

impl State {
    /// Requests what the first commands of these connections, which sent these bytes, are going to use.
    #[inline]
    pub fn look_ahead<'a>(&mut self, coming: impl Iterator<Item = (ConnId, &'a [u8])>, batch: &Batch<'_>) {
        let keyspace = &self.shared.keyspace;
        let mut keys: [Option<(Ahead<'_>, Hash)>; LOOK_AHEAD] = [None; LOOK_AHEAD];
        let mut found = 0;
        for (conn, data) in coming {
            if data.is_empty() || data.len() > BRIEF {
                continue;
            }
            let Some(key) = gimmal_resp::first_argument(data) else { continue };
            let Some(connection) = self.connections.find(conn) else { continue };
            let Some(ahead) = keyspace.ahead(batch, connection.session.db) else { continue };
            let hash = keyspace.hash(key);
            ahead.shard(hash);
            keys[found] = Some((ahead, hash));
            found += 1;
        }
        if found < LEAST {
            return;
        }
        for (ahead, hash) in keys[..found].iter().flatten() {
            ahead.directory(*hash);
            if self.local.log_active {
                ahead.stamps(*hash);
            }
        }
        let buckets = keys.map(|key| key.and_then(|(ahead, hash)| ahead.bucket(hash)));
        for bucket in buckets[..found].iter().flatten() {
            bucket.prefetch_entry();
        }
    }
}
