//! Commands as bytes: what a client sends, and what the log, AOF files and replication streams carry. The encoding is the
//! same in RESP2 and RESP3.

/// Appends one command: an array of bulk strings.
pub fn encode_command<T: AsRef<[u8]>>(out: &mut Vec<u8>, args: &[T]) {
    encode_array_header(out, args.len());
    for arg in args {
        encode_bulk(out, arg.as_ref());
    }
}

/// Appends `*count\r\n`, for a command whose arguments are then appended with [`encode_bulk`].
#[inline]
pub fn encode_array_header(out: &mut Vec<u8>, count: usize) {
    header(out, b'*', count);
}

/// Appends one bulk string: `$len\r\n`, the bytes, `\r\n`.
#[inline]
pub fn encode_bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len().saturating_add(SHORT_HEADER + 2));
    header(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Appends `$len\r\n`, for a bulk string whose bytes and line end the caller adds or sends itself.
#[inline]
pub fn encode_bulk_header(out: &mut Vec<u8>, len: usize) {
    header(out, b'$', len);
}

/// Appends `<kind><n>\r\n`.
///
/// Short headers are written as the eight bytes of a table entry and then cut to their length: one store instead of a
/// copy whose size the compiler cannot know.
#[inline]
pub(crate) fn header(out: &mut Vec<u8>, kind: u8, n: usize) {
    let Some(short) = SHORT.get(n) else {
        return long_header(out, kind, n);
    };
    let [_, text @ .., len] = *short;
    let [a, b, c, d, e, f] = text;
    let end = out.len() + usize::from(len);
    out.extend_from_slice(&[kind, a, b, c, d, e, f, 0]);
    out.truncate(end);
}

/// Written from behind, two digits of a table entry at a time, so that one copy appends all of it.
#[inline(never)]
fn long_header(out: &mut Vec<u8>, kind: u8, n: usize) {
    let mut text = [b'\n'; LONG_HEADER];
    text[LONG_HEADER - 2] = b'\r';
    let (mut rest, mut at) = (n, LONG_HEADER - 2);
    while rest >= 100 {
        // The last two of three digits.
        let [_, _, tens, ones, ..] = SHORT[100 + rest % 100];
        rest /= 100;
        at -= 2;
        (text[at], text[at + 1]) = (tens, ones);
    }
    let [_, first, second, ..] = SHORT[rest];
    if rest >= 10 {
        at -= 2;
        (text[at], text[at + 1]) = (first, second);
    } else {
        at -= 1;
        text[at] = first;
    }
    text[at - 1] = kind;
    out.extend_from_slice(&text[at - 1..]);
}

/// Appends a line that begins with its kind.
#[inline]
pub(crate) fn line(out: &mut Vec<u8>, kind: u8, text: &[u8]) {
    out.reserve(text.len().saturating_add(3));
    out.push(kind);
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

/// The size of a table entry: room for the kind, four digits and the line end, and in the last byte the header's length.
const SHORT_HEADER: usize = 8;
/// Room for the kind, the 20 digits of a 64-bit number and the line end.
const LONG_HEADER: usize = 23;
/// Headers below this number come from the table (8 KiB, of which a server touches the few lines it uses).
const SHORT_COUNT: usize = 1024;

static SHORT: [[u8; SHORT_HEADER]; SHORT_COUNT] = short_headers();

const fn short_headers() -> [[u8; SHORT_HEADER]; SHORT_COUNT] {
    let mut table = [[0; SHORT_HEADER]; SHORT_COUNT];
    let mut n = 0;
    while n < SHORT_COUNT {
        let digits = if n < 10 {
            1
        } else if n < 100 {
            2
        } else if n < 1000 {
            3
        } else {
            4
        };
        let mut rest = n;
        let mut at = digits;
        while at > 0 {
            table[n][at] = b'0' + (rest % 10).to_le_bytes()[0];
            rest /= 10;
            at -= 1;
        }
        table[n][digits + 1] = b'\r';
        table[n][digits + 2] = b'\n';
        table[n][SHORT_HEADER - 1] = digits.to_le_bytes()[0] + 3;
        n += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_header_is_what_format_would_write() {
        for n in (0..2000).chain([9_999, 10_000, 65_536, 1 << 32, usize::MAX]) {
            let mut out = b"before".to_vec();
            header(&mut out, b'$', n);
            assert_eq!(out, format!("before${n}\r\n").into_bytes());
        }
    }

    #[test]
    fn a_command() {
        let mut out = Vec::new();
        encode_command(&mut out, &["SET", "k", ""]);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n");
        out.clear();
        encode_command::<&[u8]>(&mut out, &[]);
        assert_eq!(out, b"*0\r\n");
    }
}
