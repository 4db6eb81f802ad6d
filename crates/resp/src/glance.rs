//! A look at a command that is not parsed yet, for who requests memory ahead of it. It may see nothing, and promises nothing: what
//! the command is, the parser says.

use crate::number::short_header;

/// The first argument behind the name of the command that `buf` begins with: the key of most. `None` if it is not an array with
/// short headers, or not all there.
#[inline]
pub fn first_argument(buf: &[u8]) -> Option<&[u8]> {
    let (_, at) = short_header(buf, 0, b'*')?;
    let (name, at) = short_header(buf, at, b'$')?;
    let (len, at) = short_header(buf, at + name + 2, b'$')?;
    buf.get(at..at + len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_argument_behind_the_name_is_seen() {
        assert_eq!(first_argument(b"*2\r\n$3\r\nGET\r\n$5\r\nhello\r\n"), Some(&b"hello"[..]));
        assert_eq!(first_argument(b"*13\r\n$4\r\nMSET\r\n$10\r\n0123456789\r\n$1\r\na"), Some(&b"0123456789"[..]));
    }

    #[test]
    fn what_is_cut_off_or_unusual_is_not() {
        let whole = b"*2\r\n$3\r\nGET\r\n$5\r\nhello\r\n";
        for end in 0..whole.len() - 2 {
            assert_eq!(first_argument(&whole[..end]), None);
        }
        for unusual in [
            &b"GET hello\r\n                "[..],
            b"*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nPING\r\n",
            b"*2\r\n$999\r\nGET\r\n$5\r\nhello",
        ] {
            assert_eq!(first_argument(unusual), None);
        }
    }
}
