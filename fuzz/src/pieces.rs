//! Inputs as the targets read them: expanded, so that few bytes make large arguments, and cut as a network would.

/// In an input this byte and a count `n` stand for `n` KiB of `v`.
pub const RUN: u8 = 0xfe;

/// Replaces every run by what it stands for.
pub fn expand(input: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(input.len());
    let mut rest = input;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match (byte, after) {
            (RUN, [count, after @ ..]) => {
                bytes.resize(bytes.len() + usize::from(*count) * 1024, b'v');
                rest = after;
            }
            _ => bytes.push(byte),
        }
    }
    bytes
}

/// Cuts bytes into pieces whose sizes follow from `how`: 0 does not cut, 1 makes single bytes (of short inputs), all
/// others a mixture of tiny and larger ones.
pub fn cut(bytes: &[u8], how: u8) -> Vec<&[u8]> {
    let mut random = u64::from(how);
    let mut pieces = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let draw = usize::try_from(random >> 33).expect("31 bits");
        let size = match how {
            0 => rest.len(),
            1 if bytes.len() < 4096 => 1,
            _ if draw % 4 == 0 => 1 + draw / 4 % 8,
            _ => 1 + draw / 4 % 20_000,
        };
        let (piece, after) = rest.split_at(size.min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces
}
