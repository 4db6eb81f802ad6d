//! The Redis serialisation protocol, RESP2 and RESP3, without any I/O.
//!
//! Four pieces, each usable alone:
//! * [`Parser`] finds commands in received bytes, in place ([`parser`]);
//! * [`Writer`] writes replies, and is the only code that knows RESP2 from RESP3 ([`writer`]);
//! * [`Reply`] and [`ReplyScanner`] read replies, for tests and load generators ([`reply`]);
//! * [`encode_command`] writes a command the way clients, the log and AOF files carry it.
//!
//! Invariants: nothing here allocates from a declared length; every length is checked before it is used; a pipeline
//! gives the same commands however the network cuts it.

#![forbid(unsafe_code)]

pub mod double;
pub mod encode;
pub mod error;
pub mod glance;
pub mod inline;
pub mod number;
pub mod parser;
pub mod reply;
pub mod writer;

pub use encode::{encode_array_header, encode_bulk, encode_bulk_header, encode_command};
pub use error::ProtocolError;
pub use glance::first_argument;
pub use inline::split_args;
pub use number::parse_i64;
pub use parser::{Beginning, LARGE, Limits, MAX_LINE, Next, Parser, Span};
pub use reply::{Reply, ReplyError, ReplyReader, ReplyScanner};
pub use writer::Writer;
