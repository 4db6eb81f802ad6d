//! CRC-64 as Redis uses it: the polynomial of W. Jones (ad93d23594c935a9), reflected, initial value 0, no final xor.
//!
//! Eight bytes a step with eight tables ("slicing by 8", Kounavis and Berry, 2005), which are made at compile time.
//! Dropped: carry-less multiplication, which is faster still, but needs `unsafe`; loading is not bound by the checksum.

/// The checksum of `bytes` behind data whose checksum is `crc`; begin with 0.
pub fn crc64(crc: u64, bytes: &[u8]) -> u64 {
    let mut crc = crc;
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let [b0, b1, b2, b3, b4, b5, b6, b7] = (crc ^ u64::from_le_bytes(*word)).to_le_bytes();
        crc = TABLES[7][usize::from(b0)]
            ^ TABLES[6][usize::from(b1)]
            ^ TABLES[5][usize::from(b2)]
            ^ TABLES[4][usize::from(b3)]
            ^ TABLES[3][usize::from(b4)]
            ^ TABLES[2][usize::from(b5)]
            ^ TABLES[1][usize::from(b6)]
            ^ TABLES[0][usize::from(b7)];
    }
    for byte in rest {
        let [low, ..] = crc.to_le_bytes();
        crc = TABLES[0][usize::from(low ^ byte)] ^ (crc >> 8);
    }
    crc
}

/// The polynomial, its bits reversed, because the checksum takes the lowest bit of a byte first.
const REVERSED: u64 = 0xad93_d235_94c9_35a9_u64.reverse_bits();

/// `TABLES[n][b]` is the checksum of the byte `b` and `n` zero bytes.
static TABLES: [[u64; 256]; 8] = tables();

const fn tables() -> [[u64; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ REVERSED } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut n = 1;
    while n < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[n - 1][byte];
            tables[n][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        n += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_value() {
        assert_eq!(crc64(0, b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        assert_eq!(crc64(0, b""), 0);
    }

    #[test]
    fn any_cut_gives_the_same() {
        let bytes: Vec<u8> = (0..=255_u8).chain((0..=255).rev()).collect();
        let bit_by_bit = bytes.iter().fold(0_u64, |mut crc, byte| {
            crc ^= u64::from(*byte);
            for _ in 0..8 {
                crc = if crc & 1 == 1 { (crc >> 1) ^ REVERSED } else { crc >> 1 };
            }
            crc
        });
        for cut in 0..bytes.len() {
            assert_eq!(crc64(crc64(0, &bytes[..cut]), &bytes[cut..]), bit_by_bit, "cut at {cut}");
        }
    }
}
