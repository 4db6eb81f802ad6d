//! The lab: measures and tests any RESP server as a black box over TCP.
//!
//! Nothing here links the server: what is measured is the binary that users start, and the same programs measure
//! its peers. `unsafe` lives in `sys` alone.
//!
//! | module | what |
//! |---|---|
//! | `limit` | share of the limit: servers against the least a RESP server can do, side by side |
//! | `suite` | the same for a list of commands: redis-benchmark's tests, and commands on large values |
//! | `models` | the papers' I/O models against the default, by size of the reply |
//! | `sample` | one server under one load: what these are made of |
//! | `limit_server`, `load` | the two processes that `limit` is made of |
//! | `probe` | open-loop latency, counted from the intended send time |
//! | `fairness` | what one client feels beside another that does its worst |
//! | `memory` | bytes per key and per idle connection |
//! | `steps` | the longest step of operations on values of millions of elements |
//! | `snapshot` | what clients feel while a snapshot is made, and the memory that it takes |
//! | `differential` | random commands to a real Redis and to a server, every reply compared |
//! | `wire` | scripts of commands and the exact replies that must come back |
//! | `process`, `host`, `stats` | starting servers, describing the machine, medians and intervals |
//! | `reply`, `counter`, `template`, `words` | RESP replies read and merely counted, commands with placeholders, quoted words |

#![deny(unsafe_code)]
#![allow(clippy::print_stdout, reason = "the lab's results go to standard output")]

pub mod counter;
pub mod differential;
pub mod fairness;
pub mod host;
pub mod limit;
pub mod limit_server;
pub mod load;
pub mod memory;
pub mod models;
pub mod probe;
pub mod process;
pub mod reply;
pub mod sample;
pub mod snapshot;
pub mod stats;
pub mod steps;
pub mod suite;
#[allow(unsafe_code)]
pub mod sys;
pub mod template;
pub mod wire;
pub mod words;
