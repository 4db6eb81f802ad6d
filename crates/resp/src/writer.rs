//! The reply writer: the only code that knows what RESP2 and RESP3 have in common and where they differ.
//!
//! A handler says what it means (a map of three pairs, a double); the writer knows that a RESP2 client gets an array of
//! six and a bulk string. Headers for small numbers come from a table ([`encode`](crate::encode)).
//!
//! An aggregate's length comes first, so the caller counts before it writes. The alternative, a placeholder patched
//! afterwards, was dropped: it makes every reply pay for the few that cannot count, and those can collect first.

use crate::double::{as_integer, format_double};
use crate::encode::{encode_bulk, header, line};
use crate::error::ProtocolError;

/// Appends replies to a buffer, in the protocol version of one connection.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    proto3: bool,
}

impl<'a> Writer<'a> {
    /// A writer of RESP3 (`proto3`) or RESP2 to the end of `out`.
    #[inline]
    pub fn new(out: &'a mut Vec<u8>, proto3: bool) -> Writer<'a> {
        Writer { out, proto3 }
    }

    /// Whether the client asked for RESP3. For the few replies whose shape differs by more than its types.
    #[inline]
    pub fn is_proto3(&self) -> bool {
        self.proto3
    }

    /// The buffer, for what is already encoded, and for measuring how much a reply wrote.
    #[inline]
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        self.out
    }

    /// `+OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// A status line that is known to be one line.
    #[inline]
    pub fn status(&mut self, text: &'static str) {
        debug_assert!(!text.contains(['\r', '\n', '\0']));
        line(self.out, b'+', text.as_bytes());
    }

    /// A status line, made one line if it is not: it may come from a script.
    pub fn simple(&mut self, text: impl AsRef<[u8]>) {
        self.one_line(b'+', text.as_ref());
    }

    /// An error. The text begins with its code ("ERR ...") and is made one line: it often quotes the client.
    pub fn error(&mut self, text: impl AsRef<[u8]>) {
        self.one_line(b'-', text.as_ref());
    }

    /// The last reply of a connection whose stream can no longer be followed.
    pub fn protocol_error(&mut self, error: &ProtocolError) {
        self.out.extend_from_slice(b"-ERR Protocol error: ");
        self.out.extend_from_slice(&error.text());
        self.out.extend_from_slice(b"\r\n");
    }

    /// A signed integer.
    #[inline]
    pub fn integer(&mut self, n: i64) {
        match usize::try_from(n) {
            Ok(n) => header(self.out, b':', n),
            Err(_) => line(self.out, b':', itoa::Buffer::new().format(n).as_bytes()),
        }
    }

    /// A count as an integer reply. Counts above `i64::MAX` do not exist.
    #[inline]
    pub fn count(&mut self, n: usize) {
        header(self.out, b':', n);
    }

    /// A bulk string.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        encode_bulk(self.out, bytes);
    }

    /// A bulk string of formatted text, such as a number.
    pub fn bulk_str(&mut self, text: &str) {
        encode_bulk(self.out, text.as_bytes());
    }

    /// An integer as a bulk string.
    #[inline]
    pub fn bulk_integer(&mut self, n: i64) {
        encode_bulk(self.out, itoa::Buffer::new().format(n).as_bytes());
    }

    /// The header of a bulk string of `len` bytes that the caller sends itself, followed by [`Writer::bulk_end`].
    #[inline]
    pub fn bulk_header(&mut self, len: usize) {
        header(self.out, b'$', len);
    }

    /// The line end behind the bytes announced by [`Writer::bulk_header`].
    #[inline]
    pub fn bulk_end(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }

    /// No value, where a value was asked for. RESP2: the null bulk string.
    #[inline]
    pub fn null(&mut self) {
        self.out.extend_from_slice(if self.proto3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// No value, where an array was asked for. RESP2: the null array.
    #[inline]
    pub fn null_array(&mut self) {
        self.out.extend_from_slice(if self.proto3 { b"_\r\n" } else { b"*-1\r\n" });
    }

    /// An array; `n` replies follow.
    #[inline]
    pub fn array(&mut self, n: usize) {
        header(self.out, b'*', n);
    }

    /// A map; `n` pairs of replies follow. RESP2: a flat array.
    #[inline]
    pub fn map(&mut self, n: usize) {
        if self.proto3 {
            header(self.out, b'%', n);
        } else {
            header(self.out, b'*', n.saturating_mul(2));
        }
    }

    /// A set; `n` replies follow. RESP2: an array.
    #[inline]
    pub fn set(&mut self, n: usize) {
        header(self.out, if self.proto3 { b'~' } else { b'*' }, n);
    }

    /// An out-of-band message of `n` parts. RESP2: an array, which only a subscriber expects.
    #[inline]
    pub fn push(&mut self, n: usize) {
        header(self.out, if self.proto3 { b'>' } else { b'*' }, n);
    }

    /// A double. RESP2: a bulk string of the same text.
    pub fn double(&mut self, value: f64) {
        // Most scores are integers.
        if let Some(n) = as_integer(value) {
            return if self.proto3 {
                line(self.out, b',', itoa::Buffer::new().format(n).as_bytes())
            } else {
                self.bulk_integer(n)
            };
        }
        let text = format_double(value);
        if self.proto3 {
            line(self.out, b',', text.as_bytes());
        } else {
            encode_bulk(self.out, text.as_bytes());
        }
    }

    /// A truth value. RESP2: the integer 1 or 0.
    pub fn boolean(&mut self, value: bool) {
        self.out.extend_from_slice(match (self.proto3, value) {
            (true, true) => b"#t\r\n",
            (true, false) => b"#f\r\n",
            (false, true) => b":1\r\n",
            (false, false) => b":0\r\n",
        });
    }

    /// Text for humans, with its three-letter format ("txt", "mkd"). RESP2: a bulk string without the format.
    pub fn verbatim(&mut self, format: &[u8; 3], text: &[u8]) {
        if self.proto3 {
            header(self.out, b'=', text.len().saturating_add(format.len() + 1));
            self.out.extend_from_slice(format);
            self.out.push(b':');
            self.out.extend_from_slice(text);
            self.out.extend_from_slice(b"\r\n");
        } else {
            encode_bulk(self.out, text);
        }
    }

    /// An integer of any size, in decimal. RESP2: a bulk string.
    pub fn big_number(&mut self, digits: &str) {
        if self.proto3 {
            self.one_line(b'(', digits.as_bytes());
        } else {
            encode_bulk(self.out, digits.as_bytes());
        }
    }

    /// Attributes of the next reply; `n` pairs follow. RESP2 has none: nothing is written, and the caller, told `false`,
    /// writes no pairs.
    #[must_use]
    pub fn attribute(&mut self, n: usize) -> bool {
        if self.proto3 {
            header(self.out, b'|', n);
        }
        self.proto3
    }

    /// Replies that are already encoded for this protocol version.
    #[inline]
    pub fn raw(&mut self, encoded: &[u8]) {
        self.out.extend_from_slice(encoded);
    }

    fn one_line(&mut self, kind: u8, text: &[u8]) {
        self.out.push(kind);
        let start = self.out.len();
        // Redis trims line ends at the end, and shows those inside as blanks.
        let end = text.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |last| last + 1);
        self.out.extend_from_slice(&text[..end]);
        for byte in &mut self.out[start..] {
            if matches!(*byte, b'\r' | b'\n' | 0) {
                *byte = b' ';
            }
        }
        self.out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(write: impl Fn(&mut Writer<'_>)) -> (String, String) {
        let in_version = |proto3| {
            let mut out = Vec::new();
            write(&mut Writer::new(&mut out, proto3));
            String::from_utf8_lossy(&out).into_owned()
        };
        (in_version(false), in_version(true))
    }

    fn same(write: impl Fn(&mut Writer<'_>), expected: &str) {
        assert_eq!(both(write), (expected.into(), expected.into()));
    }

    fn differs(write: impl Fn(&mut Writer<'_>), resp2: &str, resp3: &str) {
        assert_eq!(both(write), (resp2.into(), resp3.into()));
    }

    #[test]
    fn the_same_in_both_versions() {
        same(|w| w.ok(), "+OK\r\n");
        same(|w| w.simple("QUEUED"), "+QUEUED\r\n");
        same(|w| w.error("ERR no"), "-ERR no\r\n");
        same(|w| w.integer(0), ":0\r\n");
        same(|w| w.integer(-1), ":-1\r\n");
        same(|w| w.integer(i64::MIN), ":-9223372036854775808\r\n");
        same(|w| w.integer(i64::MAX), ":9223372036854775807\r\n");
        same(|w| w.count(1024), ":1024\r\n");
        same(|w| w.bulk(b""), "$0\r\n\r\n");
        same(|w| w.bulk(b"a\r\nb"), "$4\r\na\r\nb\r\n");
        same(|w| w.bulk_integer(-12), "$3\r\n-12\r\n");
        same(|w| w.array(2), "*2\r\n");
        same(
            |w| {
                w.bulk_header(3);
                w.raw(b"abc");
                w.bulk_end();
            },
            "$3\r\nabc\r\n",
        );
    }

    #[test]
    fn different_by_version() {
        differs(|w| w.null(), "$-1\r\n", "_\r\n");
        differs(|w| w.null_array(), "*-1\r\n", "_\r\n");
        differs(|w| w.map(3), "*6\r\n", "%3\r\n");
        differs(|w| w.set(3), "*3\r\n", "~3\r\n");
        differs(|w| w.push(3), "*3\r\n", ">3\r\n");
        differs(|w| w.double(0.1), "$3\r\n0.1\r\n", ",0.1\r\n");
        differs(|w| w.double(-7.0), "$2\r\n-7\r\n", ",-7\r\n");
        differs(|w| w.double(-0.0), "$2\r\n-0\r\n", ",-0\r\n");
        differs(|w| w.double(f64::NEG_INFINITY), "$4\r\n-inf\r\n", ",-inf\r\n");
        differs(|w| w.boolean(true), ":1\r\n", "#t\r\n");
        differs(|w| w.boolean(false), ":0\r\n", "#f\r\n");
        differs(|w| w.verbatim(b"txt", b"hello"), "$5\r\nhello\r\n", "=9\r\ntxt:hello\r\n");
        differs(|w| w.big_number("123"), "$3\r\n123\r\n", "(123\r\n");
        differs(|w| assert_eq!(w.attribute(1), w.is_proto3()), "", "|1\r\n");
    }

    /// An error that quotes a client's argument must not let it end the line and forge another reply.
    #[test]
    fn lines_stay_lines() {
        same(|w| w.error("ERR unknown command 'a\r\n+OK\r\n'"), "-ERR unknown command 'a  +OK  '\r\n");
        same(|w| w.error(b"ERR \xff\0x\r\n".as_slice()), "-ERR \u{fffd} x\r\n");
        same(|w| w.simple("\r\n\r\n"), "+\r\n");
        same(
            |w| w.protocol_error(&ProtocolError::ExpectedDollar(b'\n')),
            "-ERR Protocol error: expected '$', got ' '\r\n",
        );
    }
}
