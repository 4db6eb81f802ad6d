//! Counts replies by their headers alone, in RESP2 and RESP3, however the stream was cut.
//!
//! A reply is whole when no item is owed: a header of n items adds n, each finished item takes one away, so nesting
//! needs no stack. The bodies of strings are stepped over without being looked at. Pushes and attributes are no
//! replies. Bytes that no server may send are an error, but payloads are not checked: `reply` is the strict parser.

use anyhow::{Context, Result, bail, ensure};

/// The state between two reads of one connection.
#[derive(Debug, Default)]
pub struct ReplyCounter {
    replies: u64,
    nulls: u64,
    errors: u64,
    tolerant: bool,
    /// Items missing until the present reply is whole; 0 between replies.
    owed: u64,
    /// The present reply is no answer to a command.
    push: bool,
    /// The present item is a reply of its own.
    outermost: bool,
    kind: u8,
    part: Part,
    /// Text of an error, as far as it came.
    text: Vec<u8>,
}

#[derive(Debug, Default, Clone, Copy)]
enum Part {
    /// The first byte of an item comes next.
    #[default]
    Kind,
    /// A header's number, as far as it came.
    Number { value: u64, negative: bool },
    /// The rest of a line whose text does not matter.
    Line,
    /// So many bytes of a string, its CRLF among them.
    Body(u64),
}

/// No server sends a longer string or a larger aggregate.
const LENGTH_LIMIT: u64 = 1 << 40;

impl ReplyCounter {
    /// A counter to which an error reply is a reply like another.
    pub fn tolerant() -> Self {
        Self { tolerant: true, ..Self::default() }
    }

    /// Whole replies so far.
    pub fn replies(&self) -> u64 {
        self.replies
    }

    /// How many of them said that there is nothing.
    pub fn nulls(&self) -> u64 {
        self.nulls
    }

    /// Error replies so far, those inside arrays among them.
    pub fn errors(&self) -> u64 {
        self.errors
    }

    /// Whether the bytes so far end where a reply ends.
    pub fn is_between(&self) -> bool {
        self.owed == 0
    }

    /// Takes the next bytes of the stream.
    ///
    /// # Errors
    /// Bytes that are no reply; the text of an error reply unless the counter is tolerant.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<()> {
        let mut rest = bytes;
        while let [first, tail @ ..] = rest {
            rest = match self.part {
                Part::Kind => {
                    self.open(*first)?;
                    tail
                }
                Part::Number { value, negative } => self.number(rest, value, negative)?,
                Part::Line => self.line(rest)?,
                Part::Body(length) => self.body(rest, length)?,
            };
        }
        Ok(())
    }

    fn open(&mut self, kind: u8) -> Result<()> {
        self.outermost = self.owed == 0;
        if self.outermost {
            self.owed = 1;
            self.push = kind == b'>';
        }
        self.kind = kind;
        self.part = match kind {
            b'$' | b'*' | b'%' | b'~' | b'>' | b'|' | b'=' | b'!' => Part::Number { value: 0, negative: false },
            b'+' | b'-' | b':' | b',' | b'(' | b'#' | b'_' => Part::Line,
            other => bail!("a reply cannot start with {:?}", char::from(other)),
        };
        Ok(())
    }

    fn number<'a>(&mut self, bytes: &'a [u8], mut value: u64, mut negative: bool) -> Result<&'a [u8]> {
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                b'0'..=b'9' => value = value * 10 + u64::from(byte - b'0'),
                b'-' => negative = true,
                b'\r' => {}
                b'\n' => {
                    self.header(value, negative)?;
                    return Ok(&bytes[at + 1..]);
                }
                other => bail!("{:?} in the length of a reply", char::from(*other)),
            }
            ensure!(value < LENGTH_LIMIT, "a reply of more than {LENGTH_LIMIT} bytes or items");
        }
        self.part = Part::Number { value, negative };
        Ok(&[])
    }

    fn header(&mut self, value: u64, negative: bool) -> Result<()> {
        if negative {
            self.nulls += u64::from(self.outermost);
            return self.close();
        }
        self.part = Part::Kind;
        match self.kind {
            b'$' | b'=' | b'!' => self.part = Part::Body(value + 2),
            b'%' => self.owed += 2 * value,
            // What is annotated follows as an item of its own.
            b'|' => self.owed += 2 * value + 1,
            _ => self.owed += value,
        }
        if matches!(self.part, Part::Kind) { self.close() } else { Ok(()) }
    }

    fn line<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8]> {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        if self.kind == b'-' {
            self.text.extend_from_slice(&bytes[..end.unwrap_or(bytes.len())]);
        }
        let Some(end) = end else { return Ok(&[]) };
        self.nulls += u64::from(self.kind == b'_' && self.outermost);
        self.close()?;
        Ok(&bytes[end + 1..])
    }

    fn body<'a>(&mut self, bytes: &'a [u8], length: u64) -> Result<&'a [u8]> {
        let here = usize::try_from(length).unwrap_or(usize::MAX).min(bytes.len());
        let (body, rest) = bytes.split_at(here);
        if self.kind == b'!' {
            self.text.extend_from_slice(body);
        }
        match length - u64::try_from(here)? {
            0 => self.close()?,
            left => self.part = Part::Body(left),
        }
        Ok(rest)
    }

    /// The present item is whole.
    fn close(&mut self) -> Result<()> {
        self.part = Part::Kind;
        self.owed = self.owed.checked_sub(1).context("an item that nobody asked for")?;
        if self.owed == 0 && !self.push {
            self.replies += 1;
        }
        if matches!(self.kind, b'-' | b'!') {
            self.errors += 1;
            ensure!(self.tolerant, "the server answers -{}", String::from_utf8_lossy(&self.text).trim_end());
            self.text.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replies, the nulls among them, and errors.
    type Counts = (u64, u64, u64);

    /// Of `bytes`, cut into pieces of `size`.
    fn counted(bytes: &[u8], size: usize) -> Counts {
        let mut counter = ReplyCounter::tolerant();
        bytes.chunks(size).for_each(|piece| counter.feed(piece).expect("replies"));
        assert!(counter.is_between(), "{:?}", String::from_utf8_lossy(bytes));
        (counter.replies(), counter.nulls(), counter.errors())
    }

    const KINDS: [(&[u8], Counts); 22] = [
        (b"+OK\r\n", (1, 0, 0)),
        (b"+\r\n", (1, 0, 0)),
        (b":-12\r\n", (1, 0, 0)),
        (b"$3\r\n*2\r\r\n", (1, 0, 0)),
        (b"$0\r\n\r\n", (1, 0, 0)),
        (b"$-1\r\n", (1, 1, 0)),
        (b"*-1\r\n", (1, 1, 0)),
        (b"_\r\n", (1, 1, 0)),
        (b"*0\r\n", (1, 0, 0)),
        (b"*2\r\n$-1\r\n_\r\n", (1, 0, 0)),
        (b"*2\r\n*0\r\n*2\r\n:1\r\n$2\r\n\r\n\r\n", (1, 0, 0)),
        (b"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n", (1, 0, 0)),
        (b"~2\r\n#t\r\n#f\r\n", (1, 0, 0)),
        (b",1.5e10\r\n", (1, 0, 0)),
        (b"(12345678901234567890\r\n", (1, 0, 0)),
        (b"=5\r\ntxt:a\r\n", (1, 0, 0)),
        (b"-ERR no\r\n", (1, 0, 1)),
        (b"!6\r\nERR no\r\n", (1, 0, 1)),
        (b"*2\r\n+OK\r\n-ERR no\r\n", (1, 0, 1)),
        (b">2\r\n+invalidate\r\n*1\r\n+k\r\n", (0, 0, 0)),
        (b"|1\r\n+ttl\r\n:5\r\n+OK\r\n", (1, 0, 0)),
        (b"*2\r\n|1\r\n+ttl\r\n:5\r\n+OK\r\n:1\r\n", (1, 0, 0)),
    ];

    #[test]
    fn every_kind_counts_as_one_however_it_is_cut() {
        for (bytes, expected) in KINDS {
            for cut in 1..=bytes.len() {
                assert_eq!(counted(bytes, cut), expected, "{:?} by {cut}", String::from_utf8_lossy(bytes));
            }
        }
    }

    #[test]
    fn a_stream_of_all_kinds_can_be_cut_at_every_byte() {
        let stream: Vec<u8> = KINDS.iter().flat_map(|(bytes, _)| bytes.iter().copied()).collect();
        let sum = |of: fn(&Counts) -> u64| KINDS.iter().map(|(_, counts)| of(counts)).sum::<u64>();
        let expected = (sum(|c| c.0), sum(|c| c.1), sum(|c| c.2));
        for cut in 0..=stream.len() {
            let mut counter = ReplyCounter::tolerant();
            counter.feed(&stream[..cut]).expect("replies");
            counter.feed(&stream[cut..]).expect("replies");
            assert_eq!((counter.replies(), counter.nulls(), counter.errors()), expected, "cut at {cut}");
        }
        (1..40).for_each(|size| assert_eq!(counted(&stream, size), expected, "pieces of {size}"));
    }

    #[test]
    fn no_prefix_of_a_reply_is_a_reply() {
        for (bytes, _) in KINDS {
            for cut in 1..bytes.len() {
                let mut counter = ReplyCounter::tolerant();
                counter.feed(&bytes[..cut]).expect("valid so far");
                assert_eq!((counter.replies(), counter.is_between()), (0, false), "{bytes:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn it_agrees_with_the_strict_parser() {
        for (bytes, (replies, ..)) in KINDS.iter().filter(|(bytes, _)| !bytes.contains(&b'|')) {
            let (_, used) = crate::reply::parse(bytes).expect("valid").expect("whole");
            assert_eq!(used, bytes.len());
            assert_eq!(counted(bytes, used).0, *replies);
        }
    }

    #[test]
    fn an_error_reply_is_told_with_its_whole_text() {
        for bytes in [&b"+OK\r\n-ERR no such thing\r\n"[..], b"+OK\r\n!17\r\nERR no such thing\r\n"] {
            for cut in 1..bytes.len() {
                let mut counter = ReplyCounter::default();
                let error = bytes.chunks(cut).try_for_each(|piece| counter.feed(piece)).expect_err("an error reply");
                assert_eq!(error.to_string(), "the server answers -ERR no such thing", "pieces of {cut}");
            }
        }
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        for bytes in [&b"x"[..], b"\r\n", b"$x\r\n", b"$?\r\n", b"*99999999999999999999\r\n", b"+OK\r\n\r\n"] {
            assert!(ReplyCounter::default().feed(bytes).is_err(), "{:?}", String::from_utf8_lossy(bytes));
        }
    }
}
