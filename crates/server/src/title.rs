//! What the server calls itself: names and versions in HELLO, INFO and the log.

/// The server's name where clients look for one they know (HELLO).
pub const SERVER: &str = "redis";
/// The version of Redis whose commands and replies this server speaks: clients switch features by it.
pub const REDIS_VERSION: &str = "7.2.4";
/// This server's own version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
