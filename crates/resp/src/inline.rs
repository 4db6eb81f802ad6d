//! Inline commands: a line typed by hand, split into arguments with Redis's quoting rules. The same rules apply to the
//! lines of a configuration file.
//!
//! Unlike Redis, which handles the line as a C string, a NUL byte is an ordinary byte here: Redis stops reading such a
//! line at the NUL and waits for more input until its 64 KiB limit.

/// Splits a line (without its line end) into arguments. `None`: unbalanced quotes.
///
/// * blanks separate arguments;
/// * `"..."` understands `\n \r \t \b \a \xHH`, and a backslash before any other byte gives that byte;
/// * `'...'` understands only `\'`;
/// * a quote may open inside an argument, and a closing quote must be followed by a blank or the end.
pub fn split_args(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut args = Vec::new();
    let mut rest = line;
    loop {
        let Some(start) = rest.iter().position(|byte| !is_blank(*byte)) else {
            return Some(args);
        };
        let (arg, after) = one_arg(&rest[start..])?;
        args.push(arg);
        rest = after;
    }
}

/// Finds the arguments of a line without quotes, in place: first bytes and lengths. `None`: it has quotes, which may have to be
/// removed.
pub(crate) fn plain_args(line: &[u8]) -> Option<impl Iterator<Item = (usize, usize)>> {
    if memchr::memchr2(b'"', b'\'', line).is_some() {
        return None;
    }
    let mut at = 0;
    Some(std::iter::from_fn(move || {
        let start = at + line[at..].iter().position(|byte| !is_blank(*byte))?;
        let len = line[start..].iter().position(|byte| ends_argument(*byte)).unwrap_or(line.len() - start);
        at = start + len;
        Some((start, len))
    }))
}

/// Only these end a bare argument; vertical tab and form feed separate arguments but do not end one (as in Redis).
fn ends_argument(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn one_arg(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut arg = Vec::new();
    loop {
        match rest {
            [] => return Some((arg, rest)),
            [byte, ..] if ends_argument(*byte) => return Some((arg, rest)),
            [b'"', quoted @ ..] => return double_quoted(arg, quoted),
            [b'\'', quoted @ ..] => return single_quoted(arg, quoted),
            [byte, after @ ..] => {
                arg.push(*byte);
                rest = after;
            }
        }
    }
}

fn double_quoted(mut arg: Vec<u8>, mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    loop {
        match rest {
            [] => return None,
            [b'"', after @ ..] => return closed(arg, after),
            [b'\\', b'x', high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                arg.push(hex_digit(*high) << 4 | hex_digit(*low));
                rest = after;
            }
            [b'\\', escaped, after @ ..] => {
                arg.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                rest = after;
            }
            [byte, after @ ..] => {
                arg.push(*byte);
                rest = after;
            }
        }
    }
}

fn single_quoted(mut arg: Vec<u8>, mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    loop {
        match rest {
            [] => return None,
            [b'\\', b'\'', after @ ..] => {
                arg.push(b'\'');
                rest = after;
            }
            [b'\'', after @ ..] => return closed(arg, after),
            [byte, after @ ..] => {
                arg.push(*byte);
                rest = after;
            }
        }
    }
}

fn closed(arg: Vec<u8>, after: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    after.first().is_none_or(|byte| is_blank(*byte)).then_some((arg, after))
}

/// The value of a byte that is known to be a hexadecimal digit.
fn hex_digit(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        b'a'..=b'f' => byte - b'a' + 10,
        _ => byte - b'A' + 10,
    }
}

/// C's `isspace`.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_quotes_is_split_in_place_as_it_is_by_copying() {
        let letters = [b'a', b'b', b' ', b'\t', b'\r', 0x0b, 0x0c, 0, b'\''];
        for number in 0..letters.len().pow(5) {
            let line: Vec<u8> =
                (0..5).map(|place| letters[number / letters.len().pow(place) % letters.len()]).collect();
            let plain = plain_args(&line);
            assert_eq!(plain.is_none(), line.contains(&b'\''));
            let Some(plain) = plain else { continue };
            let plain: Vec<_> = plain.map(|(start, len)| line[start..start + len].to_vec()).collect();
            assert_eq!(Some(plain), split_args(&line), "{line:?}");
        }
    }

    fn split(line: &str) -> Option<Vec<String>> {
        split_args(line.as_bytes())
            .map(|args| args.iter().map(|arg| String::from_utf8_lossy(arg).into_owned()).collect())
    }

    #[test]
    fn blanks_separate() {
        assert_eq!(split(""), Some(vec![]));
        assert_eq!(split(" \t \x0b\x0c\r "), Some(vec![]));
        assert_eq!(split("  SET  k\tv  "), Some(vec!["SET".into(), "k".into(), "v".into()]));
        assert_eq!(split("a\x0bb"), Some(vec!["a\x0bb".into()]));
    }

    #[test]
    fn quotes() {
        assert_eq!(split(r#"ECHO "a\x41\n\q" "#), Some(vec!["ECHO".into(), "aA\nq".into()]));
        assert_eq!(split(r"ECHO 'a\'b\n' "), Some(vec!["ECHO".into(), r"a'b\n".into()]));
        assert_eq!(split(r#"ECHO a"b c""#), Some(vec!["ECHO".into(), "ab c".into()]));
        assert_eq!(split(r#"ECHO "\x4""#), Some(vec!["ECHO".into(), "x4".into()]));
        assert_eq!(split(r#"ECHO "" ''"#), Some(vec!["ECHO".into(), String::new(), String::new()]));
        for unbalanced in [r#"ECHO "abc"#, r#"ECHO "a"b"#, "ECHO 'a'b", "ECHO a'b c'd", "'", "\"\\", "\"\\\""] {
            assert_eq!(split(unbalanced), None, "{unbalanced:?}");
        }
    }
}
