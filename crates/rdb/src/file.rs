//! Whole files: `magic | opcodes and keys with values … | end | checksum u64`.
//!
//! [`Reader`] and [`Writer`] go through a file once, from front to back, in memory that does not depend on its size.

mod keys;
mod reader;
mod window;
mod writer;

pub use keys::{Cut, Key, Keys, Text};
pub use reader::{Entry, Item, Reader, Tail};
pub use writer::{Meta, Writer};
