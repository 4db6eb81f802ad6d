//! The bodies of the fuzz targets: each is a function of bytes that panics where an invariant does not hold.
//!
//! The targets in `fuzz_targets/` give them to libFuzzer; `tests/replay.rs` gives them the corpus, what was found before,
//! and seeded random inputs, on every `cargo test`. How to run both: `docs/testing.md`.

#![forbid(unsafe_code)]

pub mod command_front;
pub mod pieces;
pub mod rdb_value;
pub mod resp_reply;
pub mod resp_request;
pub mod restore;
pub mod script;
