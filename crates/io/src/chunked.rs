//! [`Chunked`]: a vector that grows while other threads read it. What is in it never moves.
//!
//! Chunks double in size, so that an index leads to its place without a look at others. The alternative that was dropped
//! is a vector of the largest size from the beginning: the limit of connections is mostly far from what is used.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Values by index.
#[derive(Debug)]
pub(crate) struct Chunked<T> {
    chunks: [OnceLock<Box<[T]>>; CHUNKS],
    /// How many there are; only who adds some reads and writes it.
    len: AtomicU32,
}

/// The first chunk's size. Loom follows so many atomics at most, and needs fewer.
const FIRST: u32 = if cfg!(loom) { 8 } else { 64 };
/// Enough for 2^31 values.
const CHUNKS: usize = 25;

impl<T> Chunked<T> {
    pub(crate) fn new() -> Chunked<T> {
        Chunked { chunks: std::array::from_fn(|_| OnceLock::new()), len: AtomicU32::new(0) }
    }

    /// Adds values until there are at least so many; returns which are new. One thread at a time.
    ///
    /// # Panics
    /// If they are too many for their indices.
    pub(crate) fn grow(&self, len: usize, mut make: impl FnMut() -> T) -> Range<u32> {
        let before = self.len.load(Relaxed);
        let mut now = before;
        while (now as usize) < len {
            let (chunk, _) = place(now);
            let size = FIRST << chunk;
            let values = (0..size).map(|_| make()).collect();
            let added = self.chunks.get(chunk).expect("an index has 31 bits").set(values);
            assert!(added.is_ok(), "two threads add values");
            now += size;
        }
        self.len.store(now, Relaxed);
        before..now
    }

    /// # Panics
    /// If there is no such value.
    pub(crate) fn at(&self, index: u32) -> &T {
        let (chunk, at) = place(index);
        &self.chunks[chunk].get().expect("the index is that of a value")[at]
    }
}

/// A value's chunk and its place there.
fn place(index: u32) -> (usize, usize) {
    let from_first = u64::from(index) + u64::from(FIRST);
    let chunk = (from_first.ilog2() - FIRST.ilog2()) as usize;
    (chunk, (from_first - (u64::from(FIRST) << chunk)) as usize)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn values_stay_where_they_are_while_more_are_added() {
        let values = Chunked::new();
        let mut made = 0..;
        assert_eq!(values.grow(0, || made.next()), 0..0);
        assert_eq!(values.grow(1, || made.next()), 0..64);
        let first = values.at(63);
        assert_eq!(values.grow(1000, || made.next()), 64..1984, "chunks of 128, 256, 512 and 1024");
        assert_eq!(values.grow(1000, || made.next()), 1984..1984);
        assert!(std::ptr::eq(first, values.at(63)));
        assert!((0..1984).all(|index| *values.at(index) == Some(index)));
    }

    #[test]
    fn places_lie_side_by_side() {
        let mut expected = (0, 0);
        for index in 0..100_000 {
            assert_eq!(place(index), expected);
            expected.1 += 1;
            if expected.1 == (FIRST << expected.0) as usize {
                expected = (expected.0 + 1, 0);
            }
        }
    }
}
