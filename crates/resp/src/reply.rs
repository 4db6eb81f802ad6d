//! Reading replies, for tests and load generators: RESP2 and RESP3, except RESP3's streamed types, which no server sends.
//!
//! Two layers. [`ReplyScanner`] finds where a reply ends, in time linear in the bytes however they arrive, and builds
//! nothing: enough to count replies. [`Reply::parse`] builds the tree of a complete reply; [`ReplyReader`] joins the two.

use crate::number::parse_i64;

/// One reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// `+`
    Simple(Vec<u8>),
    /// `-`, with its code.
    Error(Vec<u8>),
    /// `:`
    Integer(i64),
    /// `$`
    Bulk(Vec<u8>),
    /// RESP2's `$-1`.
    NullBulk,
    /// RESP2's `*-1`.
    NullArray,
    /// RESP3's `_`.
    Null,
    /// `*`
    Array(Vec<Reply>),
    /// `%`
    Map(Vec<(Reply, Reply)>),
    /// `~`
    Set(Vec<Reply>),
    /// `>`
    Push(Vec<Reply>),
    /// `,`
    Double(f64),
    /// `#`
    Boolean(bool),
    /// `=`: format and text.
    Verbatim([u8; 3], Vec<u8>),
    /// `(`
    BigNumber(Vec<u8>),
    /// `!`
    BulkError(Vec<u8>),
    /// `|`: the attributes and the reply they belong to.
    Attributed(Vec<(Reply, Reply)>, Box<Reply>),
}

impl Reply {
    /// Parses the reply at the start of `buf`. `None`: incomplete. Otherwise the reply and how many bytes it has.
    ///
    /// # Errors
    /// When the bytes are no reply, or are nested more than [`MAX_DEPTH`] deep.
    pub fn parse(buf: &[u8]) -> Result<Option<(Reply, usize)>, ReplyError> {
        let mut scanner = ReplyScanner::default();
        let Some(len) = scanner.scan(buf)? else {
            return Ok(None);
        };
        Ok(Some((build(&buf[..len], &mut 0, 0)?, len)))
    }

    /// Whether this is any of the three nulls.
    pub fn is_null(&self) -> bool {
        matches!(self, Reply::Null | Reply::NullBulk | Reply::NullArray)
    }

    /// Whether this is an error.
    pub fn is_error(&self) -> bool {
        matches!(self, Reply::Error(_) | Reply::BulkError(_))
    }

    /// The bytes of a string of any kind, an error or a big number included.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Reply::Simple(text) | Reply::Error(text) | Reply::Bulk(text) | Reply::BulkError(text) => Some(text),
            Reply::Verbatim(_, text) | Reply::BigNumber(text) => Some(text),
            _ => None,
        }
    }

    /// The elements of an array, a set or a push.
    pub fn as_list(&self) -> Option<&[Reply]> {
        match self {
            Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => Some(items),
            _ => None,
        }
    }
}

/// Bytes that are no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyError {
    /// A reply begins with this byte, which is no type.
    UnknownType(u8),
    /// A length, number, boolean or line end is malformed; the type byte of the reply.
    Malformed(u8),
    /// Nested deeper than [`MAX_DEPTH`].
    TooDeep,
}

impl std::fmt::Display for ReplyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReplyError::UnknownType(byte) => {
                write!(f, "no reply begins with '{}'", byte.escape_ascii())
            }
            ReplyError::Malformed(kind) => {
                write!(f, "malformed reply of type '{}'", kind.escape_ascii())
            }
            ReplyError::TooDeep => write!(f, "replies nested more than {MAX_DEPTH} deep"),
        }
    }
}

impl std::error::Error for ReplyError {}

/// Replies out of a stream that arrives in pieces.
#[derive(Debug, Default)]
pub struct ReplyReader {
    buf: Vec<u8>,
    taken: usize,
    scanner: ReplyScanner,
}

impl ReplyReader {
    /// Adds received bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            self.buf.drain(..self.taken);
            self.taken = 0;
        }
        self.buf.extend_from_slice(bytes);
    }

    /// The next complete reply.
    ///
    /// # Errors
    /// When the stream is no sequence of replies; it stays unusable.
    pub fn next_reply(&mut self) -> Result<Option<Reply>, ReplyError> {
        let pending = &self.buf[self.taken..];
        let Some(len) = self.scanner.scan(pending)? else {
            return Ok(None);
        };
        let reply = build(&pending[..len], &mut 0, 0)?;
        self.taken += len;
        Ok(Some(reply))
    }

    /// How many received bytes are not part of a returned reply.
    pub fn pending(&self) -> usize {
        self.buf.len() - self.taken
    }
}

/// Finds the end of a reply without building it, going on where it stopped.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplyScanner {
    /// Bytes of the current reply that need not be looked at again.
    at: usize,
    /// Elements still to come in aggregates already begun, after the one at `at`.
    open: u64,
}

impl ReplyScanner {
    /// Given all bytes from the start of a reply, says how long the reply is and is then ready for the next one. `None`:
    /// incomplete; call again with the same bytes and more.
    ///
    /// # Errors
    /// When the bytes are no reply.
    pub fn scan(&mut self, buf: &[u8]) -> Result<Option<usize>, ReplyError> {
        loop {
            let Some(head) = Head::read(buf, self.at)? else {
                return Ok(None);
            };
            let body_end = head.after.checked_add(head.body).ok_or(ReplyError::Malformed(head.kind))?;
            if buf.len() < body_end {
                return Ok(None);
            }
            self.at = body_end;
            self.open = self.open.checked_add(head.children).ok_or(ReplyError::Malformed(head.kind))?;
            if self.open == 0 {
                let len = self.at;
                *self = ReplyScanner::default();
                return Ok(Some(len));
            }
            self.open -= 1;
        }
    }
}

/// The first line of a reply or of an element.
struct Head<'a> {
    kind: u8,
    text: &'a [u8],
    /// Position behind the line.
    after: usize,
    /// Bytes behind the line that belong to a string, its line end included.
    body: usize,
    /// Elements that follow. The reply that attributes belong to counts as one of theirs.
    children: u64,
    null: bool,
}

impl Head<'_> {
    fn read(buf: &[u8], at: usize) -> Result<Option<Head<'_>>, ReplyError> {
        let Some((kind, rest)) = buf.get(at..).and_then(|rest| rest.split_first()) else {
            return Ok(None);
        };
        if !b"+-:$*_%~>,#=(!|".contains(kind) {
            return Err(ReplyError::UnknownType(*kind));
        }
        let Some(cr) = memchr::memchr(b'\r', rest) else {
            return Ok(None);
        };
        match rest.get(cr + 1) {
            None => return Ok(None),
            Some(b'\n') => {}
            Some(_) => return Err(ReplyError::Malformed(*kind)),
        }
        let mut head = Head { kind: *kind, text: &rest[..cr], after: at + cr + 3, body: 0, children: 0, null: false };
        if !b"$*%~>=!|".contains(kind) {
            return Ok(Some(head));
        }
        if matches!(kind, b'$' | b'*') && head.text == b"-1" {
            head.null = true;
            return Ok(Some(head));
        }
        let malformed = ReplyError::Malformed(*kind);
        let n = parse_i64(head.text).and_then(|n| u64::try_from(n).ok()).ok_or(malformed)?;
        match kind {
            b'$' | b'=' | b'!' => {
                head.body = usize::try_from(n).ok().and_then(|n| n.checked_add(2)).ok_or(malformed)?
            }
            b'%' => head.children = n.checked_mul(2).ok_or(malformed)?,
            b'|' => head.children = n.checked_mul(2).and_then(|n| n.checked_add(1)).ok_or(malformed)?,
            _ => head.children = n,
        }
        Ok(Some(head))
    }
}

/// Builds the reply at `*at` of a buffer that is known to hold all of it.
fn build(buf: &[u8], at: &mut usize, depth: usize) -> Result<Reply, ReplyError> {
    if depth > MAX_DEPTH {
        return Err(ReplyError::TooDeep);
    }
    let head = Head::read(buf, *at)?.ok_or(ReplyError::TooDeep)?;
    let malformed = ReplyError::Malformed(head.kind);
    let body_end = head.after + head.body;
    *at = body_end;
    let text = || head.text.to_vec();
    let body = || match &buf[head.after..body_end] {
        [body @ .., b'\r', b'\n'] => Ok(body.to_vec()),
        _ => Err(malformed),
    };
    let list = |at: &mut usize| (0..head.children).map(|_| build(buf, at, depth + 1)).collect::<Result<Vec<_>, _>>();
    let pairs = |at: &mut usize| {
        (0..head.children / 2)
            .map(|_| Ok((build(buf, at, depth + 1)?, build(buf, at, depth + 1)?)))
            .collect::<Result<Vec<_>, ReplyError>>()
    };
    Ok(match head.kind {
        b'$' if head.null => Reply::NullBulk,
        b'*' if head.null => Reply::NullArray,
        b'_' if head.text.is_empty() => Reply::Null,
        b'+' => Reply::Simple(text()),
        b'-' => Reply::Error(text()),
        b':' => Reply::Integer(parse_i64(head.text).ok_or(malformed)?),
        b'$' => Reply::Bulk(body()?),
        b'!' => Reply::BulkError(body()?),
        b'*' => Reply::Array(list(at)?),
        b'~' => Reply::Set(list(at)?),
        b'>' => Reply::Push(list(at)?),
        b'%' => Reply::Map(pairs(at)?),
        b'|' => {
            let attributes = pairs(at)?;
            Reply::Attributed(attributes, Box::new(build(buf, at, depth + 1)?))
        }
        b'#' if head.text == b"t" => Reply::Boolean(true),
        b'#' if head.text == b"f" => Reply::Boolean(false),
        b',' => Reply::Double(std::str::from_utf8(head.text).ok().and_then(|text| text.parse().ok()).ok_or(malformed)?),
        b'(' => Reply::BigNumber(text()),
        b'=' => match body()?.split_first_chunk::<4>() {
            Some(([a, b, c, b':'], text)) => Reply::Verbatim([*a, *b, *c], text.to_vec()),
            _ => return Err(malformed),
        },
        _ => return Err(malformed),
    })
}

/// How deep replies may be nested: building them recurses.
pub const MAX_DEPTH: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] = b"+OK\r\n-ERR no\r\n:-5\r\n$3\r\na\r\n\r\n$0\r\n\r\n$-1\r\n*-1\r\n_\r\n*2\r\n:1\r\n*1\r\n+x\r\n*0\r\n\
        %1\r\n+k\r\n,0.5\r\n~1\r\n#t\r\n>2\r\n+a\r\n#f\r\n=7\r\ntxt:abc\r\n(123\r\n!5\r\nERR x\r\n|1\r\n+ttl\r\n:3\r\n*1\r\n,inf\r\n,-inf\r\n";

    fn expected() -> Vec<Reply> {
        let simple = |text: &str| Reply::Simple(text.into());
        vec![
            simple("OK"),
            Reply::Error("ERR no".into()),
            Reply::Integer(-5),
            Reply::Bulk("a\r\n".into()),
            Reply::Bulk(vec![]),
            Reply::NullBulk,
            Reply::NullArray,
            Reply::Null,
            Reply::Array(vec![Reply::Integer(1), Reply::Array(vec![simple("x")])]),
            Reply::Array(vec![]),
            Reply::Map(vec![(simple("k"), Reply::Double(0.5))]),
            Reply::Set(vec![Reply::Boolean(true)]),
            Reply::Push(vec![simple("a"), Reply::Boolean(false)]),
            Reply::Verbatim(*b"txt", "abc".into()),
            Reply::BigNumber("123".into()),
            Reply::BulkError("ERR x".into()),
            Reply::Attributed(
                vec![(simple("ttl"), Reply::Integer(3))],
                Box::new(Reply::Array(vec![Reply::Double(f64::INFINITY)])),
            ),
            Reply::Double(f64::NEG_INFINITY),
        ]
    }

    #[test]
    fn every_type_in_pieces_of_every_size() {
        for size in 1..=STREAM.len() {
            let mut reader = ReplyReader::default();
            let mut replies = Vec::new();
            for piece in STREAM.chunks(size) {
                reader.feed(piece);
                while let Some(reply) = reader.next_reply().expect("a legal stream") {
                    replies.push(reply);
                }
            }
            assert_eq!(replies, expected(), "pieces of {size}");
            assert_eq!(reader.pending(), 0);
        }
    }

    #[test]
    fn what_is_no_reply() {
        for (bytes, error) in [
            ("x\r\n", ReplyError::UnknownType(b'x')),
            (":x\r\n", ReplyError::Malformed(b':')),
            ("$x\r\n", ReplyError::Malformed(b'$')),
            ("$-2\r\n", ReplyError::Malformed(b'$')),
            ("+a\rb\n", ReplyError::Malformed(b'+')),
            ("$1\r\nabc", ReplyError::Malformed(b'$')),
            ("#x\r\n", ReplyError::Malformed(b'#')),
            ("=3\r\nabc\r\n", ReplyError::Malformed(b'=')),
            ("%-1\r\n", ReplyError::Malformed(b'%')),
        ] {
            let mut reader = ReplyReader::default();
            reader.feed(bytes.as_bytes());
            assert_eq!(reader.next_reply(), Err(error), "{bytes:?}");
        }
        // A huge length is no error; nothing is allocated for it.
        assert_eq!(Reply::parse(b"$9223372036854775807\r\nabc"), Ok(None));
        assert_eq!(Reply::parse(b"*9223372036854775807\r\n"), Ok(None));
    }

    #[test]
    fn deep_nesting_is_an_error_not_a_crash() {
        let mut bytes = b"*1\r\n".repeat(1_000_000);
        bytes.extend_from_slice(b":1\r\n");
        assert_eq!(Reply::parse(&bytes), Err(ReplyError::TooDeep));
        let mut bytes = b"*1\r\n".repeat(MAX_DEPTH);
        bytes.extend_from_slice(b":1\r\n");
        assert!(Reply::parse(&bytes).is_ok_and(|reply| reply.is_some()));
    }

    #[test]
    fn the_scanner_counts_without_building() {
        let mut scanner = ReplyScanner::default();
        let (mut at, mut count) = (0, 0);
        while let Some(len) = scanner.scan(&STREAM[at..]).expect("a legal stream") {
            at += len;
            count += 1;
        }
        assert_eq!((at, count), (STREAM.len(), expected().len()));
    }
}
