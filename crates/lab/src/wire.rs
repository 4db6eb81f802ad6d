//! Wire scripts: what a client sends and the exact RESP that must come back, in both protocols.
//!
//! A script is a text file; `tests/wire/README.md` describes its lines. `script` reads it, `pattern` holds what is
//! expected of a reply, `runner` plays a case over any [`Network`]: TCP here, the simulated engine in the server's
//! own tests. A pattern names a reply's type as RESP3 has it and matches the form that this type takes in the
//! connection's protocol, so that one line tests both. Dropped alternative: expectations as raw bytes; every case
//! would be written twice, and nobody reads lengths.

mod pattern;
mod runner;
mod script;
mod tcp;

pub use pattern::{Pattern, Variables, describe, glob_matches};
pub use runner::{Blank, Failure, Network, Received, Transport, missing_command, reset, run_case};
pub use script::{Action, Audience, Case, Script, Step};
pub use tcp::TcpNetwork;

/// The protocol that a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// RESP2, what every connection starts with.
    Resp2,
    /// RESP3, after `HELLO 3`.
    Resp3,
}

impl std::fmt::Display for Protocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if *self == Self::Resp2 { "RESP2" } else { "RESP3" })
    }
}
