//! Values of the store as payloads of DUMP and RESTORE, and back.
//!
//! `gimmal-rdb` knows no store and the store no format; this is where they meet. A payload is written for Redis 7.0, and so
//! for every later server, but for a hash whose fields expire, which only Valkey 9 understands.

pub mod commands;
mod read;
mod stream;
mod write;

pub use read::{Build, Built, Limits, built};
pub use write::{Large, Written, encode, encode_large, is_large, options, whole, written};
