//! Splits a line into words the way `redis-cli` reads a line: spaces separate, quotes hold together.
//!
//! Inside double quotes `\n \r \t \a \b \\ \"` and `\xHH` are escapes; inside single quotes only `\'` is. Words are
//! bytes, because keys and values are. Used for command lines of servers, for commands and in wire scripts.

use anyhow::{Result, bail};

/// The words of `line`.
///
/// # Errors
/// A quote that is not closed, or closed with something glued to it.
pub fn split(line: &str) -> Result<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line.trim_start().as_bytes();
    while !rest.is_empty() {
        let (word, after) = match rest[0] {
            b'"' => double_quoted(rest, line)?,
            b'\'' => single_quoted(rest, line)?,
            _ => bare(rest, line)?,
        };
        words.push(word);
        if after.first().is_some_and(|byte| !byte.is_ascii_whitespace()) {
            bail!("no space after a closing quote: {line}");
        }
        rest = after.trim_ascii_start();
    }
    Ok(words)
}

/// The same, for words that must be text.
pub fn split_text(line: &str) -> Result<Vec<String>> {
    split(line)?.into_iter().map(|word| Ok(String::from_utf8(word)?)).collect()
}

/// Reads one double-quoted string at the start of `text`; returns its bytes and what follows the closing quote.
pub fn double_quoted<'a>(text: &'a [u8], line: &str) -> Result<(Vec<u8>, &'a [u8])> {
    let mut word = Vec::new();
    let mut rest = &text[1..];
    loop {
        match *rest {
            [b'"', ref after @ ..] => return Ok((word, after)),
            [b'\\', b'x', high, low, ref after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                word.push(hex_digit(high) * 16 + hex_digit(low));
                rest = after;
            }
            [b'\\', escaped, ref after @ ..] => {
                word.push(unescape(escaped));
                rest = after;
            }
            [byte, ref after @ ..] => {
                word.push(byte);
                rest = after;
            }
            [] => bail!("a double quote is not closed: {line}"),
        }
    }
}

fn single_quoted<'a>(text: &'a [u8], line: &str) -> Result<(Vec<u8>, &'a [u8])> {
    let mut word = Vec::new();
    let mut rest = &text[1..];
    loop {
        match *rest {
            [b'\'', ref after @ ..] => return Ok((word, after)),
            [b'\\', b'\'', ref after @ ..] => {
                word.push(b'\'');
                rest = after;
            }
            [byte, ref after @ ..] => {
                word.push(byte);
                rest = after;
            }
            [] => bail!("a single quote is not closed: {line}"),
        }
    }
}

/// A word that starts without a quote ends at white space; a quote inside it opens a quoted stretch (`--a="b c"`).
fn bare<'a>(text: &'a [u8], line: &str) -> Result<(Vec<u8>, &'a [u8])> {
    let end = text.iter().position(|byte| byte.is_ascii_whitespace() || *byte == b'"').unwrap_or(text.len());
    let mut word = text[..end].to_vec();
    let mut rest = &text[end..];
    if rest.first() == Some(&b'"') {
        let (quoted, after) = double_quoted(rest, line)?;
        word.extend_from_slice(&quoted);
        rest = after;
    }
    Ok((word, rest))
}

fn unescape(escaped: u8) -> u8 {
    match escaped {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

fn hex_digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_escapes() {
        assert_eq!(
            split(r#"SET  k "a b\r\n\x00\xff\"" 'it\'s' """#).expect("splits"),
            [b"SET".to_vec(), b"k".to_vec(), b"a b\r\n\x00\xff\"".to_vec(), b"it's".to_vec(), b"".to_vec()]
        );
        assert_eq!(split_text(r#"server --dir="/a b" -x"#).expect("splits"), ["server", "--dir=/a b", "-x"]);
        assert_eq!(split("   ").expect("splits"), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn bad_quotes_are_refused() {
        assert!(split("\"abc").is_err());
        assert!(split("'abc").is_err());
        assert!(split("\"a\"b").is_err());
    }
}
