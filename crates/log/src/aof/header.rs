//! The annotation lines of our files. Redis from 7.0 on skips a line that begins with `#` and has less than 1,024 bytes.
//!
//! Everything is laid out in blocks of 64 bytes.
//! * The *head* of a file, two blocks: `#F NONCE VERSION CRC`, then `SELECT 0`, which is outside the LSN.
//! * A *group*: `#G NONCE LSN LENGTH DURABLE SIZE CRC HEADER-CRC` in hex of fixed width, `#` up to where the payload will
//!   end on a block, line end, payload. DURABLE is the durable LSN when it was written; SIZE where the prepared space ends.
//! * The *end mark*, `#E` with the same fields: all before it is synced.
//! * *Fill*: blocks of `#`, prepared space that is not used yet.
//! * A *time stamp* of Redis's, `#TS:SECONDS`, filled to a block.
//!
//! CRC is the CRC32C of the payload, HEADER-CRC that of the header's text before it and of the header's offset in the file.
//! A header that is valid is therefore where it was written, in the file for which it was written.

/// Everything begins on a multiple of this.
pub const BLOCK: usize = 64;
/// Length of a file's head.
pub const HEAD: usize = 2 * BLOCK;
/// Length of a header without padding.
const FIELDS: usize = 99;
/// The longest header.
pub const LONGEST: usize = FIELDS + BLOCK - 1;
/// Where the header's own checksum stands.
const OWN_CRC: usize = FIELDS - 10;
/// The longest group that a header can announce, in bytes.
pub const MAX_LENGTH: u64 = (1 << 48) - 1;

/// `SELECT 0`, with which each file begins.
pub const SELECT_0: &[u8] = b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n";
/// A block of prepared space.
pub const FILL: [u8; BLOCK] = {
    let mut block = [b'#'; BLOCK];
    block[BLOCK - 2] = b'\r';
    block[BLOCK - 1] = b'\n';
    block
};

const VERSION: u64 = 1;

/// What a header announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A group follows.
    Group,
    /// The log was closed here.
    End,
}

/// A group's header, or an end mark (with no payload).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it is.
    pub kind: Kind,
    /// The file's own number.
    pub nonce: u64,
    /// The position in the log of the payload's first byte.
    pub lsn: u64,
    /// Bytes of payload.
    pub length: u64,
    /// The durable LSN at the time of writing.
    pub durable: u64,
    /// Where the file's prepared space ends, this group included.
    pub size: u64,
    /// CRC32C of the payload.
    pub crc: u32,
}

impl Header {
    /// The length of the header's line, for a payload of `length` bytes.
    pub fn line_length(length: u64) -> usize {
        // Less than a block.
        let over = ((FIELDS as u64 + length) % BLOCK as u64) as usize;
        FIELDS + (BLOCK - over) % BLOCK
    }

    /// Adds the header's line to `out`, to be written at `offset`.
    pub fn encode(&self, offset: u64, out: &mut Vec<u8>) {
        assert!(self.length <= MAX_LENGTH && self.size <= MAX_LENGTH, "groups and files are shorter than 256 TiB");
        let kind = match self.kind {
            Kind::Group => 'G',
            Kind::End => 'E',
        };
        let Header { nonce, lsn, length, durable, size, crc, .. } = self;
        let start = out.len();
        let text = format!("#{kind} {nonce:016x} {lsn:016x} {length:012x} {durable:016x} {size:012x} {crc:08x}");
        out.extend_from_slice(text.as_bytes());
        let own = own_crc(&out[start..], offset);
        out.extend_from_slice(format!(" {own:08x}").as_bytes());
        out.resize(start + Self::line_length(*length) - 2, b'#');
        out.extend_from_slice(b"\r\n");
    }

    /// Reads the header at `offset` in a file of this nonce, and its length. `bytes` begin there and hold [`LONGEST`]
    /// bytes or all that the file has. `None`: there is no valid header.
    pub fn parse(bytes: &[u8], offset: u64, nonce: u64) -> Option<(Header, usize)> {
        let kind = match bytes.get(..3)? {
            b"#G " => Kind::Group,
            b"#E " => Kind::End,
            _ => return None,
        };
        let mut fields = Fields(bytes.get(3..FIELDS - 2)?);
        let header = Header {
            kind,
            nonce: fields.next(16)?,
            lsn: fields.next(16)?,
            length: fields.next(12)?,
            durable: fields.next(16)?,
            size: fields.next(12)?,
            crc: u32::try_from(fields.next(8)?).ok()?,
        };
        let own = u32::try_from(fields.next(8)?).ok()?;
        if header.nonce != nonce || own != own_crc(&bytes[..OWN_CRC - 1], offset) {
            return None;
        }
        let line = Self::line_length(header.length);
        let padding = bytes.get(FIELDS - 2..line - 2)?;
        let whole = padding.iter().all(|byte| *byte == b'#') && bytes.get(line - 2..line)? == b"\r\n";
        (whole && (kind == Kind::Group || header.length == 0)).then_some((header, line))
    }

    /// The bytes of header and payload together.
    pub fn total(&self) -> u64 {
        Self::line_length(self.length) as u64 + self.length
    }
}

/// The head of a file.
pub fn encode_head(nonce: u64) -> [u8; HEAD] {
    let mut text = format!("#F {nonce:016x} {VERSION:02x}").into_bytes();
    let crc = crc32c::crc32c(&text);
    text.extend_from_slice(format!(" {crc:08x}").as_bytes());
    close_line(&mut text, BLOCK);
    text.extend_from_slice(SELECT_0);
    close_line(&mut text, HEAD);
    text.try_into().expect("two blocks")
}

/// The nonce of a file that begins with these bytes. `None`: it is not the head of a file of ours.
pub fn parse_head(bytes: &[u8]) -> Option<u64> {
    let nonce = bytes.strip_prefix(b"#F ").and_then(|rest| Fields(rest).next(16))?;
    (bytes.get(..HEAD)? == encode_head(nonce)).then_some(nonce)
}

/// A block with a time stamp as Redis writes it.
pub fn encode_timestamp(unix_s: u64) -> [u8; BLOCK] {
    let mut text = format!("#TS:{unix_s}\r\n").into_bytes();
    close_line(&mut text, BLOCK);
    text.try_into().expect("one block")
}

/// Whether a block is fill or a time stamp: a place between groups.
pub fn is_between_groups(block: &[u8]) -> bool {
    if block == FILL {
        return true;
    }
    let digits = block.strip_prefix(b"#TS:").map_or(&[][..], |rest| {
        let len = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        &rest[..len]
    });
    let unix_s = std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok());
    unix_s.is_some_and(|unix_s| block == encode_timestamp(unix_s))
}

/// Fills up with an annotation to `len` bytes.
fn close_line(text: &mut Vec<u8>, len: usize) {
    text.resize(len - 2, b'#');
    text.extend_from_slice(b"\r\n");
}

fn own_crc(text: &[u8], offset: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(text), &offset.to_le_bytes())
}

/// Words of lower-case hex digits, one space between.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn next(&mut self, digits: usize) -> Option<u64> {
        let (word, rest) = self.0.split_at_checked(digits)?;
        self.0 = match rest {
            [] => rest,
            [b' ', rest @ ..] => rest,
            _ => return None,
        };
        let is_hex = word.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        u64::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok().filter(|_| is_hex)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header =
        Header { kind: Kind::Group, nonce: 77, lsn: 1 << 40, length: 5, durable: 12, size: 4096, crc: 0xdead_beef };

    #[test]
    fn a_header_is_read_back_and_ends_its_group_on_a_block() {
        for length in 0..300 {
            let header = Header { length, ..HEADER };
            let mut line = Vec::new();
            header.encode(640, &mut line);
            assert_eq!(line.len(), Header::line_length(length));
            assert_eq!((line.len() as u64 + length) % 64, 0);
            assert!(line.len() <= LONGEST && line.ends_with(b"\r\n"));
            assert!(line[..line.len() - 2].iter().all(|byte| *byte == b' ' || byte.is_ascii_graphic()));
            assert_eq!(Header::parse(&line, 640, 77), Some((header, line.len())));
        }
    }

    #[test]
    fn any_changed_bit_another_place_or_another_file_makes_it_invalid() {
        let mut line = Vec::new();
        HEADER.encode(640, &mut line);
        assert_eq!(Header::parse(&line, 704, 77), None);
        assert_eq!(Header::parse(&line, 640, 78), None);
        for at in 0..line.len() {
            assert_eq!(Header::parse(&line[..at], 640, 77), None);
            for bit in 0..8 {
                let mut changed = line.clone();
                changed[at] ^= 1 << bit;
                assert_eq!(Header::parse(&changed, 640, 77), None, "byte {at} bit {bit}");
            }
        }
    }

    #[test]
    fn heads_fill_and_time_stamps_are_known() {
        let head = encode_head(u64::MAX - 5);
        assert_eq!(parse_head(&head), Some(u64::MAX - 5));
        assert_eq!(parse_head(&head[..127]), None);
        for at in 0..HEAD {
            let mut changed = head;
            changed[at] ^= 1;
            assert_eq!(parse_head(&changed), None, "byte {at}");
        }
        assert!(is_between_groups(&FILL) && is_between_groups(&encode_timestamp(1_700_000_000)));
        assert!(encode_timestamp(1_700_000_000).starts_with(b"#TS:1700000000\r\n###"));
        assert!(!is_between_groups(&[0; BLOCK]) && !is_between_groups(&[b'#'; BLOCK]) && !is_between_groups(b"#TS:"));
        let mut line = Vec::new();
        HEADER.encode(0, &mut line);
        assert!(!is_between_groups(&line[..BLOCK]));
    }
}
