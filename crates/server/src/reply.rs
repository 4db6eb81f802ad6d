//! A command's reply on its way into the connection's output. Large values are attached by reference, not copied.

use gimmal_io::Output;
use gimmal_resp::Writer;
use gimmal_store::{Rope, StringRef};

/// From this size a string is attached to the output by reference instead of being copied into it.
const SHARE_FROM: usize = 16 * 1024;

/// Writes replies of the connection's protocol version into its output.
pub struct Reply<'a> {
    output: &'a mut Output,
    resp3: bool,
}

impl<'a> Reply<'a> {
    /// Replies into `output`, in RESP3 or RESP2.
    pub fn new(output: &'a mut Output, resp3: bool) -> Reply<'a> {
        Reply { output, resp3 }
    }

    /// The protocol writer.
    #[inline]
    pub fn put(&mut self) -> Writer<'_> {
        Writer::new(self.output.bytes_mut(), self.resp3)
    }

    /// Changes the protocol version of what follows.
    pub fn switch(&mut self, resp3: bool) {
        self.resp3 = resp3;
    }

    /// A stored string as a bulk string.
    #[inline]
    pub fn string(&mut self, value: StringRef<'_>) {
        match value {
            StringRef::Int(n) => {
                let mut text = itoa::Buffer::new();
                self.put().bulk(text.format(n).as_bytes());
            }
            StringRef::Bytes(bytes) => self.put().bulk(bytes),
            StringRef::Rope(rope) => self.rope(rope, 0, rope.len()),
        }
    }

    /// Bytes `start..end` of a large string as a bulk string.
    pub fn rope(&mut self, rope: &Rope, start: usize, end: usize) {
        self.put().bulk_header(end - start);
        for (extent, range) in rope.range(start, end) {
            if range.len() >= SHARE_FROM {
                self.output.push_shared(extent, range);
            } else {
                self.output.bytes_mut().extend_from_slice(&extent[range]);
            }
        }
        self.output.bytes_mut().extend_from_slice(b"\r\n");
    }

    /// The output itself, to move prepared replies into it.
    pub fn output(&mut self) -> &mut Output {
        self.output
    }
}
