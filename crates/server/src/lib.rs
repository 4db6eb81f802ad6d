//! The Gimmal server: workers, connections, dispatch and commands on one keyspace of locked shards.
//!
//! # Life of a command
//! 1. `worker::Worker::run` waits on the engine; `worker::Worker::complete` takes what was received.
//! 2. `serve::State::received` finds commands in the bytes (`batch::State::parse`), looks them up, hashes their keys and
//!    fetches their buckets.
//! 3. `usual::State::execute_usual` calls the handlers of those for which nothing else is to be done; of the others
//!    `dispatch::run` checks arity and gates, and calls the handler.
//! 4. The handler parses its options, then `exec::Exec::lock` takes the shards of its keys by try-lock.
//! 5. It reads (`exec::Exec::read`) or changes (`exec::Exec::put`) and records the effect (`exec::Exec::effect`).
//! 6. Its reply is in the connection's output; the lock is released when the handler returns.
//! 7. After the pass `flush::Worker::flush` sends once for each connection that has replies.
//!
//! # Life of a durable write
//! 1. `exec::Exec::effect` appends the change to the log under the shard's lock; the position is its LSN.
//! 2. The shard remembers the LSN for the key; whoever looks at the key later depends on it (`exec::Exec::depend`).
//! 3. `held::State::hold` keeps the batch's replies back while the LSN is not released.
//! 4. The log's consumer releases up to an LSN; sleeping workers with held replies are woken.
//! 5. `held::State::release_held` lets go of the replies, and they are sent.

#![deny(unsafe_code)]

pub mod accept;
#[allow(unsafe_code)]
pub mod alloc;
pub mod args;
pub mod arguments;
pub mod batch;
pub mod blocking;
pub mod command;
pub mod commands;
pub mod config;
pub mod connection;
pub mod dispatch;
pub mod double;
pub mod events;
pub mod evict;
pub mod exec;
pub mod extended;
pub mod flush;
pub mod gather;
pub mod glob;
pub mod held;
pub mod kept;
pub mod keys;
pub mod lazyfree;
pub mod logging;
pub mod lookahead;
pub mod mail;
pub mod models;
pub mod monitor;
pub mod notify;
pub mod offload;
#[allow(unsafe_code)]
pub mod os;
pub mod parsed;
pub mod payload;
pub mod persist;
pub mod pubsub;
pub mod rates;
pub mod reply;
pub mod sample;
pub mod scan;
pub mod serve;
pub mod session;
pub mod shared;
pub mod slowlog;
pub mod spare;
pub mod start;
pub mod stats;
pub mod streamed;
pub mod tick;
pub mod title;
pub mod tracking;
pub mod tx;
pub mod usual;
pub mod worker;

/// Milliseconds since the epoch.
pub fn now_ms() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}
