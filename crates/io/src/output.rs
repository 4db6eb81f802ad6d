//! [`Output`]: bytes on their way out of a connection.
//!
//! Small replies are appended to one contiguous vector, so that the common send is one pointer and one length. A large
//! value is not copied: it goes in as a shared chunk, and small bytes after it start a new vector.
//!
//! Invariants: bytes before the cursor (`chunk`, `offset`) are sent; a shared chunk is let go as soon as it is sent;
//! the length is known without walking the chunks. The alternative that was dropped is a rope of fixed blocks: it makes
//! every send an iovec and every reply writer a loop.

use std::ops::Range;
use std::sync::Arc;

/// An output's head or chunk at or below this size is copied rather than chained when outputs are joined: one more
/// iovec costs about as much as copying this.
const COPY_BYTES: usize = 4096;

/// A piece of an [`Output`] after its head.
#[derive(Debug)]
pub enum Chunk {
    /// Bytes that belong to this output alone.
    Owned(Vec<u8>),
    /// A part of a value that others may hold as well.
    Shared {
        /// The value.
        bytes: Arc<Vec<u8>>,
        /// Where the part starts.
        start: usize,
        /// Where it ends.
        end: usize,
    },
}

impl Chunk {
    fn bytes(&self) -> &[u8] {
        match self {
            Chunk::Owned(bytes) => bytes,
            Chunk::Shared { bytes, start, end } => &bytes[*start..*end],
        }
    }
}

/// Bytes on their way out: a head, then chunks, and how far sending has come.
///
/// The engine owns it while a send is in flight.
#[derive(Debug, Default)]
pub struct Output {
    head: Vec<u8>,
    tail: Vec<Chunk>,
    /// Length of all parts but the one that [`Output::bytes_mut`] would append to.
    closed: usize,
    /// Bytes sent.
    sent: usize,
    /// The part that is being sent: 0 is the head, n is `tail[n - 1]`.
    chunk: usize,
    /// Bytes of that part which are sent.
    offset: usize,
}

impl Output {
    /// An empty output that has allocated nothing.
    #[must_use]
    pub fn new() -> Output {
        Output::default()
    }

    /// An output of these bytes; the vector's capacity is what later small bytes grow into.
    #[must_use]
    pub fn with_head(head: Vec<u8>) -> Output {
        Output { head, ..Output::default() }
    }

    /// The vector at the end, to append small bytes to. Bytes may be cut off its end only down to the length it had
    /// when it was last sent from.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut Vec<u8> {
        if self.tail.is_empty() { &mut self.head } else { self.last_mut() }
    }

    fn last_mut(&mut self) -> &mut Vec<u8> {
        if matches!(self.tail.last(), Some(Chunk::Shared { .. })) {
            self.tail.push(Chunk::Owned(Vec::new()));
        }
        match self.tail.last_mut() {
            Some(Chunk::Owned(bytes)) => bytes,
            _ => &mut self.head,
        }
    }

    /// Appends a part of a shared value without copying it. An empty part is nothing.
    ///
    /// # Panics
    /// If the range is not within the value.
    pub fn push_shared(&mut self, bytes: Arc<Vec<u8>>, range: Range<usize>) {
        assert!(range.start <= range.end && range.end <= bytes.len(), "range outside the value");
        if range.is_empty() {
            return;
        }
        self.closed += self.open_len() + range.len();
        self.tail.push(Chunk::Shared { bytes, start: range.start, end: range.end });
    }

    /// Bytes not sent yet.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.closed + self.open_len() - self.sent
    }

    /// Bytes in all, sent ones included: what differs between two looks was appended in between.
    #[must_use]
    #[inline]
    pub fn end(&self) -> usize {
        self.closed + self.open_len()
    }

    /// Whether everything is sent.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends what `other` has not sent yet. Small heads are copied, large ones change hands.
    pub fn append(&mut self, mut other: Output) {
        if other.is_empty() {
            return;
        }
        if self.is_empty() && self.head.capacity() <= other.head.capacity() {
            *self = other;
            return;
        }
        for position in other.chunk..=other.tail.len() {
            let from = if position == other.chunk { other.offset } else { 0 };
            let part = match position.checked_sub(1) {
                None => Chunk::Owned(std::mem::take(&mut other.head)),
                Some(at) => std::mem::replace(&mut other.tail[at], Chunk::Owned(Vec::new())),
            };
            match part {
                Chunk::Shared { bytes, start, end } => self.push_shared(bytes, start + from..end),
                Chunk::Owned(bytes) if bytes.len() - from <= COPY_BYTES => {
                    self.bytes_mut().extend_from_slice(&bytes[from..]);
                }
                Chunk::Owned(mut bytes) => {
                    bytes.drain(..from);
                    self.closed += self.open_len();
                    self.tail.push(Chunk::Owned(bytes));
                }
            }
        }
    }

    /// Forgets everything; the head keeps its capacity.
    pub fn clear(&mut self) {
        self.head.clear();
        self.tail.clear();
        (self.closed, self.sent, self.chunk, self.offset) = (0, 0, 0, 0);
    }

    /// Forgets everything and gives away the head, empty, for its allocation.
    #[must_use]
    pub fn take_head(&mut self) -> Vec<u8> {
        self.clear();
        std::mem::take(&mut self.head)
    }

    /// Capacity of the head in bytes, to decide whether it is worth keeping.
    #[must_use]
    pub fn head_capacity(&self) -> usize {
        self.head.capacity()
    }

    /// The unsent bytes, if they lie in one piece.
    #[must_use]
    #[inline]
    pub fn contiguous(&self) -> Option<&[u8]> {
        if self.tail.is_empty() {
            return Some(if self.chunk == 0 { &self.head[self.offset..] } else { &[] });
        }
        let mut slices = self.slices();
        let first = slices.next().unwrap_or(&[]);
        slices.next().is_none().then_some(first)
    }

    /// The unsent bytes in order, as non-empty slices.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let head = (self.chunk == 0).then(|| &self.head[self.offset..]);
        let first = self.chunk.saturating_sub(1);
        let skip = if self.chunk == 0 { 0 } else { self.offset };
        let tail = self.tail[first..].iter().map(Chunk::bytes).enumerate();
        let tail = tail.map(move |(at, bytes)| if at == 0 { &bytes[skip..] } else { bytes });
        head.into_iter().chain(tail).filter(|bytes| !bytes.is_empty())
    }

    /// Fills `room` with pointers to the unsent bytes, at most `limit` bytes, for `writev` and its kin. Returns how
    /// many entries were filled and how many bytes they cover.
    pub fn iovecs<'a>(&'a self, room: &mut [std::io::IoSlice<'a>], limit: usize) -> (usize, usize) {
        let (mut filled, mut bytes) = (0, 0);
        for (entry, slice) in room.iter_mut().zip(self.slices()) {
            if bytes == limit {
                break;
            }
            let slice = &slice[..slice.len().min(limit - bytes)];
            *entry = std::io::IoSlice::new(slice);
            bytes += slice.len();
            filled += 1;
        }
        (filled, bytes)
    }

    /// Notes that the next `count` bytes are sent, and lets go of the chunks that are done.
    ///
    /// # Panics
    /// If there were not so many.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.len(), "more bytes sent than there were");
        self.sent += count;
        self.offset += count;
        while let Some(rest) = self.offset.checked_sub(self.part_len()) {
            if self.chunk == self.tail.len() {
                return;
            }
            // The freed head keeps its allocation for reuse; a chunk's memory goes now, not when the last one is sent.
            if let Some(at) = self.chunk.checked_sub(1) {
                self.tail[at] = Chunk::Owned(Vec::new());
            }
            (self.chunk, self.offset) = (self.chunk + 1, rest);
        }
    }

    /// Length of the part at the cursor.
    fn part_len(&self) -> usize {
        match self.chunk.checked_sub(1) {
            None => self.head.len(),
            Some(at) => self.tail[at].bytes().len(),
        }
    }

    /// Length of the vector that `bytes_mut` would append to, if it exists.
    #[inline]
    fn open_len(&self) -> usize {
        match self.tail.last() {
            None => self.head.len(),
            Some(Chunk::Owned(bytes)) => bytes.len(),
            Some(Chunk::Shared { .. }) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unsent(output: &Output) -> Vec<u8> {
        output.slices().flatten().copied().collect()
    }

    #[test]
    fn small_bytes_are_contiguous() {
        let mut output = Output::new();
        output.bytes_mut().extend_from_slice(b"+OK\r\n");
        output.bytes_mut().extend_from_slice(b":1\r\n");
        assert_eq!(output.contiguous(), Some(&b"+OK\r\n:1\r\n"[..]));
        assert_eq!(output.len(), 9);
        output.advance(5);
        assert_eq!(output.contiguous(), Some(&b":1\r\n"[..]));
        output.advance(4);
        assert!(output.is_empty());
        assert_eq!(output.contiguous(), Some(&b""[..]));
    }

    #[test]
    fn every_cut_of_a_mixed_output_keeps_the_rest() {
        let value = Arc::new(b"0123456789".to_vec());
        let expected = b"head23456tail89end";
        let build = || {
            let mut output = Output::with_head(b"head".to_vec());
            output.push_shared(Arc::clone(&value), 2..7);
            output.push_shared(Arc::clone(&value), 3..3);
            output.bytes_mut().extend_from_slice(b"tail");
            output.push_shared(Arc::clone(&value), 8..10);
            output.bytes_mut().extend_from_slice(b"end");
            output
        };
        for first in 0..=expected.len() {
            for second in first..=expected.len() {
                let mut output = build();
                output.advance(first);
                assert_eq!(unsent(&output), &expected[first..]);
                output.advance(second - first);
                assert_eq!(unsent(&output), &expected[second..]);
                assert_eq!(output.len(), expected.len() - second);
                let mut joined = Output::with_head(Vec::with_capacity(64));
                joined.bytes_mut().extend_from_slice(b"<");
                joined.append(output);
                joined.bytes_mut().push(b'>');
                let mut all = b"<".to_vec();
                all.extend_from_slice(&expected[second..]);
                all.push(b'>');
                assert_eq!(unsent(&joined), all);
                assert_eq!(joined.len(), all.len());
            }
        }
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn bytes_may_follow_while_the_front_is_sent() {
        let value = Arc::new(vec![b'v'; 8]);
        let mut output = Output::with_head(b"abc".to_vec());
        output.advance(3);
        output.bytes_mut().extend_from_slice(b"de");
        assert_eq!(unsent(&output), b"de");
        output.push_shared(Arc::clone(&value), 0..8);
        output.advance(10);
        assert_eq!(Arc::strong_count(&value), 2, "the last chunk is let go with clear");
        output.bytes_mut().extend_from_slice(b"f");
        assert_eq!(unsent(&output), b"f");
        output.advance(1);
        assert_eq!(Arc::strong_count(&value), 1, "a chunk that was sent is let go before the output is cleared");
        output.clear();
        assert_eq!((output.len(), output.head_capacity() >= 5), (0, true));
        assert!(output.take_head().is_empty());
    }

    #[test]
    fn large_parts_change_hands_when_outputs_are_joined() {
        let mut first = Output::with_head(vec![b'a'; 10]);
        first.append(Output::with_head(vec![b'b'; COPY_BYTES + 1]));
        first.append(Output::with_head(vec![b'c'; 3]));
        assert_eq!(first.slices().count(), 2);
        assert_eq!(first.len(), 10 + COPY_BYTES + 1 + 3);
        let mut empty = Output::new();
        empty.append(first);
        assert_eq!(empty.len(), 14 + COPY_BYTES);
    }

    #[test]
    fn iovecs_respect_room_and_limit() {
        let value = Arc::new(vec![b'v'; 100]);
        let mut output = Output::with_head(b"ab".to_vec());
        output.push_shared(Arc::clone(&value), 0..100);
        output.push_shared(value, 0..100);
        let mut room = [std::io::IoSlice::new(&[]); 2];
        assert_eq!(output.iovecs(&mut room, 1000), (2, 102));
        assert_eq!(output.iovecs(&mut room, 50), (2, 50));
        assert_eq!(output.iovecs(&mut room, 2), (1, 2));
    }

    #[test]
    #[should_panic(expected = "more bytes sent")]
    fn sending_more_than_there_is_is_refused() {
        Output::with_head(b"a".to_vec()).advance(2);
    }
}
