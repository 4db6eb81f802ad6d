//! Splitting a line of configuration into words, and quoting a word so that it splits back into itself.
//!
//! The rules are those of Redis: words are separated by white space; `"…"` understands `\n \r \t \b \a \xhh` and `\` before
//! any other byte; `'…'` understands `\'` only; a closing quote must end the word.

/// The words of a line; `None` where quotes are not balanced. Words may hold any bytes through `\x`.
pub fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return Some(words);
        }
        let mut word = Vec::new();
        while let Some((&byte, after)) = rest.split_first() {
            match byte {
                b' ' | b'\n' | b'\r' | b'\t' => break,
                b'"' | b'\'' => {
                    rest = quoted(after, byte, &mut word)?;
                    break;
                }
                _ => {
                    word.push(byte);
                    rest = after;
                }
            }
        }
        words.push(word);
    }
}

/// Reads up to the closing quote; what follows it must be white space or nothing.
fn quoted<'a>(mut rest: &'a [u8], quote: u8, word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [] => return None,
            [close, after @ ..] if *close == quote => {
                return match after.first() {
                    Some(next) if !next.is_ascii_whitespace() => None,
                    _ => Some(after),
                };
            }
            [b'\\', b'x', high, low, after @ ..]
                if quote == b'"' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                word.push(hex(*high) * 16 + hex(*low));
                rest = after;
            }
            [b'\\', escaped, after @ ..] if quote == b'"' => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                rest = after;
            }
            [b'\\', b'\'', after @ ..] if quote == b'\'' => {
                word.push(b'\'');
                rest = after;
            }
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
        }
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => digit.to_ascii_lowercase() - b'a' + 10,
    }
}

/// The word in double quotes, every byte that is not printable ASCII escaped, so that no value can break its line.
pub fn quote(word: &str) -> String {
    let mut quoted = String::with_capacity(word.len() + 2);
    quoted.push('"');
    for byte in word.bytes() {
        match byte {
            b'\\' | b'"' => quoted.extend(['\\', char::from(byte)]),
            b'\n' => quoted.push_str("\\n"),
            b'\r' => quoted.push_str("\\r"),
            b'\t' => quoted.push_str("\\t"),
            7 => quoted.push_str("\\a"),
            8 => quoted.push_str("\\b"),
            b' '..=b'~' => quoted.push(char::from(byte)),
            _ => quoted.push_str(&format!("\\x{byte:02x}")),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::{quote, split};

    #[track_caller]
    fn check(line: &str, expected: &[&str]) {
        let words = split(line.as_bytes()).expect("balanced");
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let expected: Vec<&[u8]> = expected.iter().map(|word| word.as_bytes()).collect();
        assert_eq!(words, expected, "{line}");
    }

    #[test]
    fn words_and_quotes() {
        check("", &[]);
        check("  a  b\tc ", &["a", "b", "c"]);
        check("save \"\"", &["save", ""]);
        check("x \"a b\" 'c \\' d'", &["x", "a b", "c ' d"]);
        check("x \"\\x41\\n\\q\\\"\"", &["x", "A\nq\""]);
        check("ab\"cd\"", &["abcd"]);
    }

    #[test]
    fn unbalanced_quotes_are_refused() {
        for line in ["\"", "'", "a \"b", "\"a\"b", "'a'b", "\"a\\"] {
            assert_eq!(split(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn a_quoted_word_splits_into_itself() {
        for word in ["", "plain", "two words", "q\"u'o\\te", "line\nbreak\r\t\u{7}\u{8}\u{0}", "größe", "\\x41"] {
            assert_eq!(split(quote(word).as_bytes()), Some(vec![word.as_bytes().to_vec()]), "{word:?}");
        }
    }
}
