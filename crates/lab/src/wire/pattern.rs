//! What is expected of a reply: a type, and mostly a value.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};

use super::Protocol;
use crate::reply::Reply;
use crate::words::double_quoted;

/// Values captured from replies (`:=id`, `$=name`), for `%{id}` in later lines of the case.
pub type Variables = BTreeMap<String, Vec<u8>>;

/// One expected reply. Types that RESP2 lacks match the form in which RESP2 sends them.
#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    /// `*`: any reply
    Any,
    /// `?`: a blank, to be filled with what the server answers
    Blank,
    /// `+text`
    Simple(Vec<u8>),
    /// `-text`; with `...` at its end a beginning
    Error(Vec<u8>),
    /// `:5`, `:1..5`, `:*`
    Integer(i64, i64),
    /// `"bytes"`
    Bulk(Vec<u8>),
    /// `$*`
    AnyBulk,
    /// `g"glob"`: a bulk or verbatim string that matches, `*` and `?` as wildcards
    Glob(Vec<u8>),
    /// `_`: `$-1` or `_`
    Null,
    /// `*_`: `*-1` or `_`
    NullArray,
    /// `#t`, `#f`: in RESP2 `:1`, `:0`
    Boolean(bool),
    /// `,1.5`: in RESP2 a bulk string
    Double(String),
    /// `(123`: in RESP2 a bulk string
    BigNumber(String),
    /// `=txt"bytes"`: in RESP2 a bulk string
    Verbatim(String, Vec<u8>),
    /// `[…]`
    Array(Vec<Pattern>),
    /// `@[…]`: an array in any order
    AnyOrder(Vec<Pattern>),
    /// `~[…]`: any order; in RESP2 an array
    Set(Vec<Pattern>),
    /// `>[…]`: in RESP2 an array
    Push(Vec<Pattern>),
    /// `{key value …}`: pairs in any order; in RESP2 an array of keys and values
    Map(Vec<(Pattern, Pattern)>),
    /// `:=name`
    CaptureInteger(String),
    /// `$=name`
    CaptureBulk(String),
}

impl Pattern {
    /// Reads the pattern of a line. A simple string or an error at the top takes the rest of the line.
    pub fn parse(text: &str) -> Result<Self> {
        let text = text.trim();
        match text.as_bytes() {
            [mark @ (b'+' | b'-'), rest @ ..] if rest.first() != Some(&b'"') => Ok(line_of(*mark, rest)),
            _ => {
                let mut reader = Reader { rest: text.as_bytes(), line: text };
                let pattern = reader.pattern()?;
                ensure!(reader.peek().is_none(), "more than one reply: {text}");
                Ok(pattern)
            }
        }
    }

    /// Whether `reply` is what is expected of a connection that speaks `protocol`; captures go to `variables`.
    pub fn matches(&self, reply: &Reply, protocol: Protocol, variables: &mut Variables) -> bool {
        let resp3 = protocol == Protocol::Resp3;
        match (self, reply) {
            (Self::Any | Self::Blank, _) | (Self::AnyBulk, Reply::Bulk(_)) => true,
            (Self::Simple(wanted), Reply::Simple(text)) => expand(wanted, variables) == *text,
            (Self::Error(wanted), Reply::Error(text)) => is_error(&expand(wanted, variables), text),
            (Self::Integer(low, high), Reply::Integer(value)) => (low..=high).contains(&value),
            (Self::Bulk(wanted), Reply::Bulk(text)) => expand(wanted, variables) == *text,
            (Self::Glob(glob), Reply::Bulk(text) | Reply::Verbatim(_, text)) => {
                glob_matches(&expand(glob, variables), text)
            }
            (Self::Null | Self::NullArray, Reply::Null) => resp3,
            (Self::Null, Reply::NullBulk) | (Self::NullArray, Reply::NullArray) => !resp3,
            (Self::Boolean(wanted), Reply::Boolean(value)) => resp3 && wanted == value,
            (Self::Boolean(wanted), Reply::Integer(value)) => !resp3 && *value == i64::from(*wanted),
            (Self::Double(wanted), Reply::Double(text)) | (Self::BigNumber(wanted), Reply::BigNumber(text)) => {
                resp3 && wanted == text
            }
            (Self::Double(wanted) | Self::BigNumber(wanted), Reply::Bulk(text)) => !resp3 && wanted.as_bytes() == text,
            (Self::Verbatim(format, wanted), Reply::Verbatim(actual, text)) => {
                resp3 && format == actual && glob_matches(&expand(wanted, variables), text)
            }
            (Self::Verbatim(_, wanted), Reply::Bulk(text)) => !resp3 && glob_matches(&expand(wanted, variables), text),
            (Self::CaptureInteger(name), Reply::Integer(value)) => {
                variables.insert(name.clone(), value.to_string().into_bytes());
                true
            }
            (Self::CaptureBulk(name), Reply::Bulk(text)) => {
                variables.insert(name.clone(), text.clone());
                true
            }
            _ => self.matches_aggregate(reply, protocol, variables),
        }
    }

    fn matches_aggregate(&self, reply: &Reply, protocol: Protocol, variables: &mut Variables) -> bool {
        let resp3 = protocol == Protocol::Resp3;
        let mut item = |wanted: &Self, actual: &Reply| wanted.matches(actual, protocol, variables);
        match (self, reply) {
            (Self::Array(wanted), Reply::Array(items)) => in_order(wanted, items, &mut item),
            (Self::Push(wanted), Reply::Push(items)) => resp3 && in_order(wanted, items, &mut item),
            (Self::Push(wanted), Reply::Array(items)) => !resp3 && in_order(wanted, items, &mut item),
            (Self::AnyOrder(wanted), Reply::Array(items)) => in_any_order(wanted, items, &mut item),
            (Self::Set(wanted), Reply::Set(items)) => resp3 && in_any_order(wanted, items, &mut item),
            (Self::Set(wanted), Reply::Array(items)) => !resp3 && in_any_order(wanted, items, &mut item),
            (Self::Map(wanted), Reply::Map(pairs)) => {
                let mut pair = |wanted: &(Self, Self), actual: &(Reply, Reply)| {
                    item(&wanted.0, &actual.0) && item(&wanted.1, &actual.1)
                };
                resp3 && in_any_order(wanted, pairs, &mut pair)
            }
            (Self::Map(wanted), Reply::Array(items)) => {
                let pairs: Vec<&[Reply]> = items.chunks(2).collect();
                let mut pair = |wanted: &(Self, Self), actual: &&[Reply]| {
                    actual.len() == 2 && item(&wanted.0, &actual[0]) && item(&wanted.1, &actual[1])
                };
                !resp3 && in_any_order(wanted, &pairs, &mut pair)
            }
            _ => false,
        }
    }
}

fn line_of(mark: u8, rest: &[u8]) -> Pattern {
    if mark == b'+' { Pattern::Simple(rest.to_vec()) } else { Pattern::Error(rest.to_vec()) }
}

fn is_error(wanted: &[u8], text: &[u8]) -> bool {
    match wanted.strip_suffix(b"...") {
        Some(start) => text.starts_with(start),
        None => wanted == text,
    }
}

fn in_order<P, R>(wanted: &[P], actual: &[R], matches: &mut impl FnMut(&P, &R) -> bool) -> bool {
    wanted.len() == actual.len() && wanted.iter().zip(actual).all(|(wanted, actual)| matches(wanted, actual))
}

/// Each expected item takes the first actual one that it matches; literal items, the usual case, need no more.
fn in_any_order<P, R>(wanted: &[P], actual: &[R], matches: &mut impl FnMut(&P, &R) -> bool) -> bool {
    let mut left: Vec<&R> = actual.iter().collect();
    let all_found = wanted.iter().all(|wanted| {
        let at = left.iter().position(|actual| matches(wanted, actual));
        at.map(|at| left.remove(at)).is_some()
    });
    all_found && left.is_empty()
}

/// Replaces each `%{name}` by its variable; a name that was not captured stays as it is.
pub fn expand(text: &[u8], variables: &Variables) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memchr::memmem::find(rest, b"%{") {
        out.extend_from_slice(&rest[..at]);
        let end = memchr::memchr(b'}', &rest[at..]).map(|length| at + length);
        let value = end.and_then(|end| variables.get(std::str::from_utf8(&rest[at + 2..end]).ok()?));
        match (end, value) {
            (Some(end), Some(value)) => {
                out.extend_from_slice(value);
                rest = &rest[end + 1..];
            }
            _ => {
                out.extend_from_slice(b"%{");
                rest = &rest[at + 2..];
            }
        }
    }
    out.extend_from_slice(rest);
    out
}

/// `*` and `?` as wildcards. On a mismatch the last `*` takes one byte more: no recursion, no exponential case.
pub fn glob_matches(glob: &[u8], text: &[u8]) -> bool {
    let (mut g, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if glob.get(g) == Some(&b'*') {
            star = Some((g + 1, t));
            g += 1;
        } else if glob.get(g).is_some_and(|byte| *byte == b'?' || *byte == text[t]) {
            (g, t) = (g + 1, t + 1);
        } else if let Some((after, from)) = star {
            (g, t) = (after, from + 1);
            star = Some((after, from + 1));
        } else {
            return false;
        }
    }
    glob[g..].iter().all(|byte| *byte == b'*')
}

/// Reads patterns from a line.
struct Reader<'a> {
    rest: &'a [u8],
    line: &'a str,
}

impl<'a> Reader<'a> {
    fn peek(&mut self) -> Option<u8> {
        self.rest = self.rest.trim_ascii_start();
        self.rest.first().copied()
    }

    fn pattern(&mut self) -> Result<Pattern> {
        let mark = self.peek().with_context(|| format!("no reply in: {}", self.line))?;
        Ok(match mark {
            b'"' => Pattern::Bulk(self.quoted()?),
            b'[' => Pattern::Array(self.list(b']')?),
            b'{' => {
                let items = self.list(b'}')?;
                ensure!(items.len().is_multiple_of(2), "a key without a value: {}", self.line);
                Pattern::Map(items.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect())
            }
            b'@' | b'~' | b'>' if self.rest.get(1) == Some(&b'[') => {
                self.rest = &self.rest[1..];
                let items = self.list(b']')?;
                match mark {
                    b'@' => Pattern::AnyOrder(items),
                    b'~' => Pattern::Set(items),
                    _ => Pattern::Push(items),
                }
            }
            b'+' | b'-' | b'g' if self.rest.get(1) == Some(&b'"') => {
                self.rest = &self.rest[1..];
                let text = self.quoted()?;
                if mark == b'g' { Pattern::Glob(text) } else { line_of(mark, &text) }
            }
            b'=' => {
                let format = String::from_utf8_lossy(self.rest.get(1..4).context("=txt\"…\"")?).into_owned();
                self.rest = &self.rest[4..];
                ensure!(self.rest.first() == Some(&b'"'), "=txt\"…\", not: {}", self.line);
                Pattern::Verbatim(format, self.quoted()?)
            }
            _ => self.word()?,
        })
    }

    fn list(&mut self, close: u8) -> Result<Vec<Pattern>> {
        self.rest = &self.rest[1..];
        let mut items = Vec::new();
        while self.peek() != Some(close) {
            items.push(self.pattern()?);
        }
        self.rest = &self.rest[1..];
        Ok(items)
    }

    /// A quoted string, repeated if `*N` follows.
    fn quoted(&mut self) -> Result<Vec<u8>> {
        let (text, rest) = double_quoted(self.rest, self.line)?;
        let (times, rest) = repetition(rest)?;
        self.rest = rest;
        Ok(text.repeat(times))
    }

    fn word(&mut self) -> Result<Pattern> {
        let is_end = |byte: &u8| byte.is_ascii_whitespace() || b"]}".contains(byte);
        let end = self.rest.iter().position(is_end).unwrap_or(self.rest.len());
        let word = std::str::from_utf8(&self.rest[..end])?;
        self.rest = &self.rest[end..];
        Ok(match word {
            "*" => Pattern::Any,
            "?" => Pattern::Blank,
            "$*" => Pattern::AnyBulk,
            ":*" => Pattern::Integer(i64::MIN, i64::MAX),
            "_" => Pattern::Null,
            "*_" => Pattern::NullArray,
            "#t" => Pattern::Boolean(true),
            "#f" => Pattern::Boolean(false),
            _ => match word.split_at_checked(1) {
                Some((":", rest)) if rest.starts_with('=') => Pattern::CaptureInteger(rest[1..].to_owned()),
                Some((":", rest)) => range(rest).with_context(|| self.line.to_owned())?,
                Some(("$", rest)) if rest.starts_with('=') => Pattern::CaptureBulk(rest[1..].to_owned()),
                Some((",", rest)) => Pattern::Double(rest.to_owned()),
                Some(("(", rest)) => Pattern::BigNumber(rest.to_owned()),
                _ => bail!("{word:?} is no reply: {}", self.line),
            },
        })
    }
}

/// `*N` behind a quoted string: how often it stands there, and what follows.
pub fn repetition(rest: &[u8]) -> Result<(usize, &[u8])> {
    let Some(digits) = rest.strip_prefix(b"*") else { return Ok((1, rest)) };
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    let times = std::str::from_utf8(&digits[..end])?.parse().context("the N of \"…\"*N")?;
    Ok((times, &digits[end..]))
}

fn range(text: &str) -> Result<Pattern> {
    let (low, high) = text.split_once("..").unwrap_or((text, text));
    Ok(Pattern::Integer(low.parse()?, high.parse()?))
}

/// A reply in the notation of patterns.
pub fn describe(reply: &Reply) -> String {
    let list = |items: &[Reply]| items.iter().map(describe).collect::<Vec<_>>().join(" ");
    match reply {
        Reply::Simple(text) => format!("+{}", quote_unless_plain(text)),
        Reply::Error(text) => format!("-{}", quote_unless_plain(text)),
        Reply::Integer(value) => format!(":{value}"),
        Reply::Bulk(text) => quote(text),
        Reply::NullBulk | Reply::Null => "_".to_owned(),
        Reply::NullArray => "*_".to_owned(),
        Reply::Boolean(value) => if *value { "#t" } else { "#f" }.to_owned(),
        Reply::Double(text) => format!(",{text}"),
        Reply::BigNumber(text) => format!("({text}"),
        Reply::Verbatim(format, text) => format!("={format}{}", quote(text)),
        Reply::Array(items) => format!("[{}]", list(items)),
        Reply::Set(items) => format!("~[{}]", list(items)),
        Reply::Push(items) => format!(">[{}]", list(items)),
        Reply::Map(pairs) => {
            let pairs: Vec<_> = pairs.iter().map(|(k, v)| format!("{} {}", describe(k), describe(v))).collect();
            format!("{{{}}}", pairs.join(" "))
        }
    }
}

fn quote_unless_plain(text: &[u8]) -> String {
    match std::str::from_utf8(text) {
        Ok(text) if !text.contains(['\r', '\n', '"']) && text.trim() == text => text.to_owned(),
        _ => quote(text),
    }
}

fn quote(text: &[u8]) -> String {
    const SHOWN: usize = 4096;
    let mut out = String::from("\"");
    for byte in text.iter().take(SHOWN) {
        match byte {
            b'"' | b'\\' => out.extend(['\\', char::from(*byte)]),
            b'\r' => out.push_str("\\r"),
            b'\n' => out.push_str("\\n"),
            b' '..=b'~' => out.push(char::from(*byte)),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out.push('"');
    if text.len() > SHOWN {
        out.push_str(&format!(" (and {} bytes more)", text.len() - SHOWN));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::parse;

    fn fits(pattern: &str, bytes: &[u8], protocol: Protocol) -> bool {
        let (reply, _) = parse(bytes).expect("valid").expect("complete");
        Pattern::parse(pattern).expect("parses").matches(&reply, protocol, &mut Variables::new())
    }

    #[test]
    fn one_pattern_has_a_form_in_each_protocol() {
        use Protocol::{Resp2, Resp3};
        let forms: [(&str, &[u8], &[u8]); 9] = [
            ("_", b"$-1\r\n", b"_\r\n"),
            ("*_", b"*-1\r\n", b"_\r\n"),
            ("#t", b":1\r\n", b"#t\r\n"),
            (",1.5", b"$3\r\n1.5\r\n", b",1.5\r\n"),
            ("=txt\"a*\"", b"$2\r\nab\r\n", b"=6\r\ntxt:ab\r\n"),
            ("~[:1 :2]", b"*2\r\n:2\r\n:1\r\n", b"~2\r\n:2\r\n:1\r\n"),
            (">[:1 :2]", b"*2\r\n:1\r\n:2\r\n", b">2\r\n:1\r\n:2\r\n"),
            ("{:1 :2}", b"*2\r\n:1\r\n:2\r\n", b"%1\r\n:1\r\n:2\r\n"),
            (
                "{\"a\" [] \"b\" *}",
                b"*4\r\n$1\r\nb\r\n:1\r\n$1\r\na\r\n*0\r\n",
                b"%2\r\n$1\r\nb\r\n:1\r\n$1\r\na\r\n*0\r\n",
            ),
        ];
        for (pattern, resp2, resp3) in forms {
            assert!(fits(pattern, resp2, Resp2), "{pattern} in RESP2");
            assert!(fits(pattern, resp3, Resp3), "{pattern} in RESP3");
            assert!(!fits(pattern, resp2, Resp3) && !fits(pattern, resp3, Resp2), "{pattern} the wrong way round");
        }
    }

    #[test]
    fn values_are_compared() {
        let cases: [(&str, &[u8], bool); 14] = [
            ("+OK", b"+OK\r\n", true),
            ("+OK", b"+OKAY\r\n", false),
            ("-ERR a...", b"-ERR abc\r\n", true),
            ("-ERR a", b"-ERR abc\r\n", false),
            (":1..5", b":5\r\n", true),
            (":1..5", b":6\r\n", false),
            (":*", b":-6\r\n", true),
            ("\"ab\"*2", b"$4\r\nabab\r\n", true),
            ("\"OK\"", b"+OK\r\n", false),
            ("g\"a*c?\"", b"$5\r\nabbcd\r\n", true),
            ("g\"a*c?\"", b"$4\r\nabbc\r\n", false),
            ("@[:1 :2]", b"*2\r\n:2\r\n:1\r\n", true),
            ("[:1 :2]", b"*2\r\n:2\r\n:1\r\n", false),
            ("@[:1 :1]", b"*2\r\n:2\r\n:1\r\n", false),
        ];
        for (pattern, bytes, expected) in cases {
            assert_eq!(fits(pattern, bytes, Protocol::Resp2), expected, "{pattern}");
        }
    }

    #[test]
    fn captures_are_put_into_later_lines() {
        let mut variables = Variables::new();
        let pattern = Pattern::parse("[:=id $=name]").expect("parses");
        let reply = Reply::Array(vec![Reply::Integer(7), Reply::Bulk(b"x".to_vec())]);
        assert!(pattern.matches(&reply, Protocol::Resp2, &mut variables));
        assert_eq!(expand(b"a%{id}-%{name}%{no}%{", &variables), b"a7-x%{no}%{");
    }

    #[test]
    fn a_described_reply_is_its_own_pattern() {
        for bytes in [&b"+OK\r\n"[..], b"-ERR \"x\"\r\n", b"*2\r\n$3\r\n\"\r\xff\r\n_\r\n", b"%1\r\n:1\r\n,1.5\r\n"] {
            let (reply, _) = parse(bytes).expect("valid").expect("complete");
            let pattern = Pattern::parse(&describe(&reply)).expect("parses");
            assert!(pattern.matches(&reply, Protocol::Resp3, &mut Variables::new()), "{}", describe(&reply));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "OK", "[:1", "{:1}", ":x", "\"a\" \"b\"", "\"a", "=tx"] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
    }
}
