//! RESP2 and RESP3 replies as values, parsed from bytes that may be incomplete.
//!
//! The parser is written for tests and set-up, not for speed, and it is strict: what a client library could not
//! read is an error here. It shares no code with the server, so that one mistake cannot hide in both.

use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, bail, ensure};

use crate::template::{Keys, Template};

/// One reply. Attributes are not part of it: no server under test sends any.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// `+text`
    Simple(Vec<u8>),
    /// `-text`, or RESP3's `!`
    Error(Vec<u8>),
    /// `:1`
    Integer(i64),
    /// `$n`
    Bulk(Vec<u8>),
    /// `$-1`, RESP2's missing value
    NullBulk,
    /// `*-1`, RESP2's missing array
    NullArray,
    /// `_`, RESP3's missing anything
    Null,
    /// `#t`, `#f`
    Boolean(bool),
    /// `,1.5` as it was written: its spelling is part of what is tested
    Double(String),
    /// `(123`
    BigNumber(String),
    /// `=n`, with its format of three letters
    Verbatim(String, Vec<u8>),
    /// `*n`
    Array(Vec<Reply>),
    /// `~n`
    Set(Vec<Reply>),
    /// `%n`
    Map(Vec<(Reply, Reply)>),
    /// `>n`
    Push(Vec<Reply>),
}

/// Nesting that no server exceeds; the parser recurses once per level.
const DEPTH_LIMIT: usize = 64;

/// Parses one reply at the start of `bytes`: the reply and its length, or `None` while it is incomplete.
///
/// # Errors
/// Bytes that no continuation turns into a reply.
pub fn parse(bytes: &[u8]) -> Result<Option<(Reply, usize)>> {
    let mut cursor = Cursor { bytes, at: 0 };
    Ok(cursor.reply(0)?.map(|reply| (reply, cursor.at)))
}

/// How many whole replies `bytes` starts with, and their length together; an error reply is an error.
pub fn count_successes(bytes: &[u8], at_most: usize) -> Result<(usize, usize)> {
    let (mut count, mut length) = (0, 0);
    while count < at_most
        && let Some((reply, used)) = parse(&bytes[length..])?
    {
        if let Reply::Error(text) = reply {
            bail!("the server answers -{}", String::from_utf8_lossy(&text));
        }
        count += 1;
        length += used;
    }
    Ok((count, length))
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn reply(&mut self, depth: usize) -> Result<Option<Reply>> {
        ensure!(depth < DEPTH_LIMIT, "replies nested more than {DEPTH_LIMIT} deep");
        let Some(line) = self.line()? else { return Ok(None) };
        let (&kind, rest) = line.split_first().context("an empty line where a reply should start")?;
        let text = || String::from_utf8_lossy(rest).into_owned();
        Ok(Some(match kind {
            b'+' => Reply::Simple(rest.to_vec()),
            b'-' => Reply::Error(rest.to_vec()),
            b':' => Reply::Integer(text().parse().with_context(|| format!("the integer :{}", text()))?),
            b',' => Reply::Double(text()),
            b'(' => Reply::BigNumber(text()),
            b'_' if rest.is_empty() => Reply::Null,
            b'#' if rest == b"t" || rest == b"f" => Reply::Boolean(rest == b"t"),
            b'$' if rest == b"-1" => Reply::NullBulk,
            b'*' if rest == b"-1" => Reply::NullArray,
            b'$' | b'!' | b'=' => {
                let Some(body) = self.body(count(rest)?)? else { return Ok(None) };
                blob(kind, body)?
            }
            b'*' | b'~' | b'%' | b'>' => return self.items(kind, count(rest)?, depth),
            other => bail!("a reply cannot start with {:?}", char::from(other)),
        }))
    }

    fn items(&mut self, kind: u8, count: usize, depth: usize) -> Result<Option<Reply>> {
        let replies = if kind == b'%' { count.checked_mul(2).context("a map too large")? } else { count };
        let mut items = Vec::new();
        for _ in 0..replies {
            let Some(item) = self.reply(depth + 1)? else { return Ok(None) };
            items.push(item);
        }
        Ok(Some(match kind {
            b'*' => Reply::Array(items),
            b'~' => Reply::Set(items),
            b'>' => Reply::Push(items),
            _ => Reply::Map(pairs(items)),
        }))
    }

    fn line(&mut self) -> Result<Option<&'a [u8]>> {
        let rest = &self.bytes[self.at..];
        let Some(end) = memchr::memchr(b'\r', rest) else {
            ensure!(!rest.contains(&b'\n'), "a line feed without a carriage return");
            return Ok(None);
        };
        match rest.get(end + 1) {
            None => Ok(None),
            Some(b'\n') => {
                self.at += end + 2;
                Ok(Some(&rest[..end]))
            }
            Some(_) => bail!("a carriage return without a line feed"),
        }
    }

    fn body(&mut self, length: usize) -> Result<Option<&'a [u8]>> {
        let rest = &self.bytes[self.at..];
        let whole = length.checked_add(2).context("a string too long")?;
        if rest.len() < whole {
            return Ok(None);
        }
        ensure!(&rest[length..whole] == b"\r\n", "a string of {length} bytes does not end where it should");
        self.at += whole;
        Ok(Some(&rest[..length]))
    }
}

fn blob(kind: u8, body: &[u8]) -> Result<Reply> {
    Ok(match kind {
        b'$' => Reply::Bulk(body.to_vec()),
        b'!' => Reply::Error(body.to_vec()),
        _ => {
            ensure!(body.len() >= 4 && body[3] == b':', "a verbatim string without a format");
            Reply::Verbatim(String::from_utf8_lossy(&body[..3]).into_owned(), body[4..].to_vec())
        }
    })
}

fn pairs(items: Vec<Reply>) -> Vec<(Reply, Reply)> {
    let mut pairs = Vec::with_capacity(items.len() / 2);
    let mut items = items.into_iter();
    while let (Some(key), Some(value)) = (items.next(), items.next()) {
        pairs.push((key, value));
    }
    pairs
}

fn count(digits: &[u8]) -> Result<usize> {
    let text = std::str::from_utf8(digits)?;
    ensure!(!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()), "the count {text:?}");
    Ok(text.parse()?)
}

/// A command of plain words as an array.
///
/// # Errors
/// No word at all.
pub fn encode(command: &str) -> Result<Vec<u8>> {
    let (words, mut request) = (command.split(' ').collect::<Vec<_>>(), Vec::new());
    Template::from_words(&words)?.encode(0, 0, &mut Keys::of(0), &mut request);
    Ok(request)
}

/// Sends a command of plain words and returns the text of its reply; a reply that has none is described.
///
/// # Errors
/// An error reply, or the connection's end.
pub fn ask(stream: &mut TcpStream, command: &str) -> Result<String> {
    stream.write_all(&encode(command)?)?;
    let mut input = Vec::new();
    loop {
        match parse(&input)? {
            Some((Reply::Error(text), _)) => bail!("{command}: {}", String::from_utf8_lossy(&text)),
            Some((Reply::Simple(text) | Reply::Bulk(text) | Reply::Verbatim(_, text), _)) => {
                return Ok(String::from_utf8(text)?);
            }
            Some((other, _)) => return Ok(format!("{other:?}")),
            None => {}
        }
        let mut part = [0; 16 * 1024];
        let length = stream.read(&mut part)?;
        ensure!(length > 0, "the server closed the connection");
        input.extend_from_slice(&part[..length]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(bytes: &[u8]) -> Reply {
        let (reply, used) = parse(bytes).expect("valid").expect("complete");
        assert_eq!(used, bytes.len());
        for cut in 0..bytes.len() {
            assert_eq!(parse(&bytes[..cut]).expect("valid so far"), None, "cut at {cut}");
        }
        reply
    }

    #[test]
    fn every_kind_parses_and_no_prefix_does() {
        assert_eq!(whole(b"+OK\r\n"), Reply::Simple(b"OK".to_vec()));
        assert_eq!(whole(b"-ERR x\r\n"), Reply::Error(b"ERR x".to_vec()));
        assert_eq!(whole(b"!5\r\nERR x\r\n"), Reply::Error(b"ERR x".to_vec()));
        assert_eq!(whole(b":-7\r\n"), Reply::Integer(-7));
        assert_eq!(whole(b"$3\r\na\r\n\r\n"), Reply::Bulk(b"a\r\n".to_vec()));
        assert_eq!(whole(b"$-1\r\n"), Reply::NullBulk);
        assert_eq!(whole(b"*-1\r\n"), Reply::NullArray);
        assert_eq!(whole(b"_\r\n"), Reply::Null);
        assert_eq!(whole(b"#t\r\n"), Reply::Boolean(true));
        assert_eq!(whole(b",1.5\r\n"), Reply::Double("1.5".into()));
        assert_eq!(whole(b"=5\r\ntxt:a\r\n"), Reply::Verbatim("txt".into(), b"a".to_vec()));
        let one = Reply::Integer(1);
        assert_eq!(whole(b"*2\r\n:1\r\n*0\r\n"), Reply::Array(vec![one.clone(), Reply::Array(vec![])]));
        assert_eq!(whole(b"%1\r\n:1\r\n_\r\n"), Reply::Map(vec![(one.clone(), Reply::Null)]));
        assert_eq!(whole(b"~1\r\n:1\r\n"), Reply::Set(vec![one.clone()]));
        assert_eq!(whole(b">1\r\n:1\r\n"), Reply::Push(vec![one]));
    }

    #[test]
    fn what_is_not_resp_is_an_error() {
        for bytes in [&b"x\r\n"[..], b"+a\n", b"+a\rb", b"$1\r\nab\r\n", b":x\r\n", b"$-2\r\n", b"*+1\r\n", b"\r\n"] {
            assert!(parse(bytes).is_err(), "{:?}", String::from_utf8_lossy(bytes));
        }
        assert!(parse(&b"*1\r\n".repeat(DEPTH_LIMIT + 1)).is_err());
    }

    #[test]
    fn an_error_reply_is_no_success() {
        assert_eq!(count_successes(b"+OK\r\n:1\r\n$1\r\n", 9).expect("no error"), (2, 9));
        assert_eq!(count_successes(b"+OK\r\n:1\r\n", 1).expect("no error"), (1, 5));
        assert!(count_successes(b"+OK\r\n-ERR no\r\n", 9).is_err());
    }
}
