//! The checker of acknowledged writes: clients that note what they asked and were answered, cuts of what the server had
//! on its disk, and the properties that what it recovers must have.
//!
//! `history` (what clients saw) and `check` (P1 to P8, pure) know no server; `workload` makes commands; `client` speaks
//! RESP; `run` brings them together on a [`crate::CrashFs`], with any server that a command line starts.

pub mod check;
pub mod client;
pub mod full;
pub mod history;
pub mod run;
pub mod server;
pub mod workload;
