//! Buffers of sent replies, to be used again; the last one used is the warmest.

use gimmal_io::Output;

/// Some outputs with capacity, bounded in number and in bytes.
#[derive(Default)]
pub struct Spare {
    outputs: Vec<Output>,
    bytes: usize,
}

/// Enough for the held replies of many connections: in one release they all come back.
const MOST: usize = 1024;
/// What all may keep together.
const MOST_BYTES: usize = 8 << 20;
/// The largest that is kept.
const LARGEST: usize = 64 * 1024;

impl Spare {
    /// An output to write to.
    #[inline]
    pub fn take(&mut self) -> Output {
        let output = self.outputs.pop().unwrap_or_default();
        self.bytes -= output.head_capacity();
        output
    }

    /// Keeps an output; gives it back if it is too large, or there are enough.
    #[inline]
    pub fn keep(&mut self, output: Output) -> Option<Output> {
        let capacity = output.head_capacity();
        if self.outputs.len() >= MOST || capacity > LARGEST || self.bytes + capacity > MOST_BYTES {
            return Some(output);
        }
        self.bytes += capacity;
        self.outputs.push(output);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(capacity: usize) -> Output {
        Output::with_head(Vec::with_capacity(capacity))
    }

    #[test]
    fn what_is_kept_is_bounded_in_number_and_in_bytes() {
        let mut spare = Spare::default();
        assert!(spare.keep(output(LARGEST + 1)).is_some());
        let kept = (0..2 * MOST).filter(|_| spare.keep(output(LARGEST)).is_none()).count();
        assert_eq!(kept, MOST_BYTES / LARGEST);
        for _ in 0..kept {
            assert_eq!(spare.take().head_capacity(), LARGEST);
        }
        assert_eq!((spare.take().head_capacity(), spare.bytes), (0, 0));
        let kept = (0..2 * MOST).filter(|_| spare.keep(output(64)).is_none()).count();
        assert_eq!(kept, MOST);
    }
}
