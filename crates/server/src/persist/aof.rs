//! The append-only file.

/// The append-only file of this server.
#[derive(Default)]
pub struct Aof {}
