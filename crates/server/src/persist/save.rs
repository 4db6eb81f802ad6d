//! Snapshots.

/// The snapshots of this server.
#[derive(Default)]
pub struct Saving {}
