//! Large strings: a reference-counted list of extents, copied only where it is written while shared.
//!
//! A clone takes the value in O(1): a reply that is streamed after the lock is released, a snapshot, COPY and background freeing
//! all hold one. A write to a shared rope copies the list of extents and the extents it touches, never the whole string.
//!
//! Invariant: every extent but the last holds exactly [`EXTENT`] bytes, and the last is not empty.
//!
//! Dropped: one contiguous buffer (SETRANGE of one byte in a shared 512 MiB string would copy it all, and growth would move it).

use std::ops::Range;
use std::sync::{Arc, LazyLock};

/// Bytes in each extent but the last: large enough that per-extent costs vanish, small enough to copy within 20 µs.
pub const EXTENT: usize = 256 * 1024;

/// An immutable-when-shared string of bytes.
#[derive(Clone, Default)]
pub struct Rope(Arc<Inner>);

#[derive(Clone, Default)]
struct Inner {
    len: usize,
    extents: Vec<Arc<Vec<u8>>>,
}

impl Rope {
    /// A rope with a copy of `bytes`.
    pub fn from_slice(bytes: &[u8]) -> Self {
        let extents = bytes.chunks(EXTENT).map(|chunk| Arc::new(chunk.to_vec())).collect();
        Self(Arc::new(Inner { len: bytes.len(), extents }))
    }

    /// A rope of `bytes`, which are not copied if they fit one extent.
    pub fn from_vec(bytes: Vec<u8>) -> Self {
        if bytes.is_empty() || bytes.len() > EXTENT {
            return Self::from_slice(&bytes);
        }
        Self(Arc::new(Inner { len: bytes.len(), extents: vec![Arc::new(bytes)] }))
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// The extents in order.
    pub fn extents(&self) -> impl ExactSizeIterator<Item = &Arc<Vec<u8>>> {
        self.0.extents.iter()
    }

    /// The bytes `start..end`, as parts of extents that can be held without copying. `end` is cut to the length.
    pub fn range(&self, start: usize, end: usize) -> impl Iterator<Item = (Arc<Vec<u8>>, Range<usize>)> + '_ {
        self.slices(start, end).map(|(extent, part)| (Arc::clone(extent), part))
    }

    /// The bytes `start..end`, piece by piece. `end` is cut to the length.
    pub fn pieces(&self, start: usize, end: usize) -> impl Iterator<Item = &[u8]> {
        self.slices(start, end).map(|(extent, part)| &extent[part])
    }

    /// Byte number `at`, if the string is so long.
    #[inline]
    pub fn byte(&self, at: usize) -> Option<u8> {
        self.0.extents.get(at / EXTENT)?.get(at % EXTENT).copied()
    }

    /// Whether both are the very same value, unchanged since one was cloned from the other: O(1).
    pub fn is_same(&self, other: &Rope) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Appends the bytes `start..end` to `out`. `end` is cut to the length.
    pub fn copy_range(&self, start: usize, end: usize, out: &mut Vec<u8>) {
        for (extent, part) in self.slices(start, end) {
            out.extend_from_slice(&extent[part]);
        }
    }

    /// All bytes, copied together.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.0.len);
        self.copy_range(0, self.0.len, &mut out);
        out
    }

    /// The bytes if they lie in one piece.
    pub fn as_single(&self) -> Option<&[u8]> {
        match self.0.extents.as_slice() {
            [] => Some(&[]),
            [only] => Some(only),
            _ => None,
        }
    }

    /// The bytes if they lie in one piece, to change; copied first if they are shared.
    pub fn single_mut(&mut self) -> Option<&mut [u8]> {
        if self.0.extents.len() > 1 {
            return None;
        }
        Some(Arc::make_mut(&mut self.0).extents.first_mut().map_or(&mut [], |only| Arc::make_mut(only).as_mut_slice()))
    }

    /// Adds `bytes` at the end.
    pub fn append(&mut self, bytes: &[u8]) {
        Arc::make_mut(&mut self.0).append(bytes.len(), 0, |at, room| room.extend_from_slice(&bytes[at]));
    }

    /// Writes `bytes` at `offset`, growing the string as needed; a gap is filled with zeros. Whole extents of zeros are
    /// shared: a byte far behind the end costs neither their memory nor the time to clear it.
    pub fn set_range(&mut self, offset: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let inner = Arc::make_mut(&mut self.0);
        if let Some(gap) = offset.checked_sub(inner.len) {
            inner.append_zeros(gap, bytes.len());
        }
        let (over, beyond) = bytes.split_at(bytes.len().min(inner.len - offset));
        let mut written = 0;
        while written < over.len() {
            let at = offset + written;
            let extent = Arc::make_mut(&mut inner.extents[at / EXTENT]);
            let start = at % EXTENT;
            let count = (extent.len() - start).min(over.len() - written);
            extent[start..start + count].copy_from_slice(&over[written..written + count]);
            written += count;
        }
        inner.append(beyond.len(), 0, |at, room| room.extend_from_slice(&beyond[at]));
    }

    /// Bytes of memory, in O(1): full extents, the last with its spare capacity, counts and list. Shared extents count in full.
    pub fn memory_bytes(&self) -> usize {
        const PER_EXTENT: usize = size_of::<Arc<Vec<u8>>>() + size_of::<Vec<u8>>() + 2 * size_of::<usize>();
        const ROOT: usize = size_of::<Inner>() + 2 * size_of::<usize>();
        let Some((last, full)) = self.0.extents.split_last() else {
            return ROOT;
        };
        ROOT + full.len() * (EXTENT + PER_EXTENT) + last.capacity() + PER_EXTENT
    }

    /// Allocations that dropping the last reference frees: for the choice whether to drop it elsewhere.
    pub fn free_cost(&self) -> usize {
        if Arc::strong_count(&self.0) > 1 { 1 } else { 2 * self.0.extents.len() + 2 }
    }

    fn slices(&self, start: usize, end: usize) -> impl Iterator<Item = (&Arc<Vec<u8>>, Range<usize>)> {
        let end = end.min(self.0.len);
        let start = start.min(end);
        let used = start / EXTENT..end.div_ceil(EXTENT);
        used.filter(move |_| start < end).map(move |index| {
            let base = index * EXTENT;
            let extent = &self.0.extents[index];
            (extent, start.saturating_sub(base)..(end - base).min(extent.len()))
        })
    }
}

/// An extent of zeros, which all gaps share.
static ZEROS: LazyLock<Arc<Vec<u8>>> = LazyLock::new(|| Arc::new(vec![0; EXTENT]));

impl Inner {
    /// Grows by `count` zeros, to which `more` bytes will be added.
    fn append_zeros(&mut self, count: usize, more: usize) {
        let fill = |at: Range<usize>, room: &mut Vec<u8>| room.resize(room.len() + at.len(), 0);
        let before = count.min(self.len.next_multiple_of(EXTENT) - self.len);
        self.append(before, (count - before).saturating_add(more), fill);
        let whole = (count - before) / EXTENT;
        self.extents.extend(std::iter::repeat_n(&*ZEROS, whole).cloned());
        self.len += whole * EXTENT;
        self.append(count - before - whole * EXTENT, more, fill);
    }

    /// Grows by `count` bytes, letting `fill(range of the added bytes, extent)` append each piece. `more` bytes will follow at once.
    fn append(&mut self, count: usize, more: usize, fill: impl Fn(Range<usize>, &mut Vec<u8>)) {
        let mut done = 0;
        while done < count {
            if self.len.is_multiple_of(EXTENT) {
                // Exactly what is known to come: a string that never grows again wastes nothing.
                self.extents.push(Arc::new(Vec::with_capacity((count - done).saturating_add(more).min(EXTENT))));
            }
            let extent = Arc::make_mut(self.extents.last_mut().expect("one was pushed when the last was full"));
            let step = (EXTENT - extent.len()).min(count - done);
            let needed = extent.len() + step;
            if extent.capacity() < needed {
                let known = needed.saturating_add(more).min(EXTENT);
                let wanted = known.max((extent.len() * 2).min(EXTENT));
                extent.reserve_exact(wanted - extent.len());
            }
            fill(done..done + step, extent);
            debug_assert_eq!(extent.len(), needed);
            self.len += step;
            done += step;
        }
    }
}

impl PartialEq for Rope {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.extents().zip(other.extents()).all(|(a, b)| Arc::ptr_eq(a, b) || a == b)
    }
}

impl Eq for Rope {}

impl std::fmt::Debug for Rope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rope({} bytes in {} extents)", self.len(), self.0.extents.len())
    }
}

/// Receives a large argument while it arrives: each byte is copied once, and memory is taken one extent at a time, when the
/// first byte for it is there.
pub struct RopeBuilder {
    expected: usize,
    rope: Inner,
}

impl RopeBuilder {
    /// For a string of `expected` bytes. Allocates nothing.
    pub fn new(expected: usize) -> Self {
        Self { expected, rope: Inner::default() }
    }

    /// Adds the next bytes.
    ///
    /// # Panics
    /// If they are more than [`RopeBuilder::missing`].
    pub fn push(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.missing(), "{} bytes for the {} that are missing", bytes.len(), self.missing());
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.rope.len.is_multiple_of(EXTENT) {
                let capacity = (self.expected - self.rope.len).min(EXTENT);
                self.rope.extents.push(Arc::new(Vec::with_capacity(capacity)));
            }
            let last = self.rope.extents.last_mut().expect("one was pushed when the last was full");
            let extent = Arc::get_mut(last).expect("not shared before `finish`");
            let (now, later) = rest.split_at(rest.len().min(EXTENT - extent.len()));
            extent.extend_from_slice(now);
            self.rope.len += now.len();
            rest = later;
        }
    }

    /// Bytes received so far.
    pub fn filled(&self) -> usize {
        self.rope.len
    }

    /// Bytes still to come.
    pub fn missing(&self) -> usize {
        self.expected - self.rope.len
    }

    /// The string.
    ///
    /// # Panics
    /// If bytes are missing.
    pub fn finish(self) -> Rope {
        assert_eq!(self.missing(), 0, "a rope was finished before all its bytes were there");
        Rope(Arc::new(self.rope))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|i| u8::try_from(i * 31 % 251).expect("below 251")).collect()
    }

    fn check(rope: &Rope, expected: &[u8]) {
        assert_eq!(rope.len(), expected.len());
        assert_eq!(rope.to_vec(), expected);
        let count = rope.extents().len();
        for (index, extent) in rope.extents().enumerate() {
            assert!(!extent.is_empty() && (extent.len() == EXTENT || index + 1 == count));
        }
    }

    #[test]
    fn append_and_set_range_agree_with_a_vector() {
        for len in [0, 1, 5000, EXTENT - 1, EXTENT, EXTENT + 1, 3 * EXTENT] {
            let mut model = pattern(len);
            let mut rope = Rope::from_slice(&model);
            check(&rope, &model);
            for (offset, count) in [(0, 3), (len, 10), (len / 2, EXTENT + 7), (len + 2 * EXTENT, 1), (EXTENT - 2, 4)] {
                let bytes = pattern(count);
                rope.set_range(offset, &bytes);
                if model.len() < offset + count {
                    model.resize(offset + count, 0);
                }
                model[offset..offset + count].copy_from_slice(&bytes);
                check(&rope, &model);
                rope.append(&bytes[..count.min(9)]);
                model.extend_from_slice(&bytes[..count.min(9)]);
                check(&rope, &model);
            }
        }
    }

    #[test]
    fn a_clone_keeps_its_content_and_shares_untouched_extents() {
        let original = pattern(4 * EXTENT);
        let mut rope = Rope::from_slice(&original);
        let snapshot = rope.clone();
        rope.set_range(2 * EXTENT + 5, b"changed");
        rope.append(b"more");
        check(&snapshot, &original);
        let shared = rope.extents().zip(snapshot.extents()).filter(|(a, b)| Arc::ptr_eq(a, b)).count();
        assert_eq!(shared, 3, "only the written extent was copied");
        assert_eq!(rope.len(), 4 * EXTENT + 4);
    }

    #[test]
    fn a_gap_shares_its_zeros_until_they_are_written() {
        let mut rope = Rope::from_slice(b"begin");
        rope.set_range(5 * EXTENT + 3, b"end");
        let zeros: Vec<_> = rope.extents().filter(|extent| Arc::ptr_eq(extent, &ZEROS)).collect();
        assert_eq!((zeros.len(), rope.len()), (4, 5 * EXTENT + 6));
        rope.set_range(2 * EXTENT, b"x");
        rope.append(b"more");
        let mut model = b"begin".to_vec();
        model.resize(5 * EXTENT + 3, 0);
        model.extend_from_slice(b"endmore");
        model[2 * EXTENT] = b'x';
        check(&rope, &model);
        assert!(ZEROS.iter().all(|byte| *byte == 0), "shared zeros were written");
    }

    #[test]
    fn empty_set_range_changes_nothing() {
        let mut rope = Rope::from_slice(b"abc");
        rope.set_range(100, b"");
        check(&rope, b"abc");
    }

    #[test]
    fn ranges_cover_exactly_what_was_asked() {
        let bytes = pattern(2 * EXTENT + 100);
        let rope = Rope::from_slice(&bytes);
        for (start, end) in
            [(0, 0), (0, 1), (5, EXTENT), (EXTENT - 1, EXTENT + 1), (7, usize::MAX), (EXTENT, 2 * EXTENT), (9, 3)]
        {
            let joined: Vec<u8> = rope.range(start, end).flat_map(|(extent, part)| extent[part].to_vec()).collect();
            let end = end.min(bytes.len());
            assert_eq!(joined, &bytes[start.min(end)..end], "{start}..{end}");
        }
    }

    #[test]
    fn a_clone_is_the_same_until_either_changes() {
        let mut rope = Rope::from_slice(&pattern(EXTENT + 9));
        let snapshot = rope.clone();
        assert!(rope.is_same(&snapshot));
        rope.set_range(3, b"x");
        assert!(!rope.is_same(&snapshot));
        assert_eq!((rope.byte(3), snapshot.byte(3), rope.byte(EXTENT + 9)), (Some(b'x'), Some(93), None));
        let joined: Vec<u8> = snapshot.pieces(EXTENT - 2, EXTENT + 2).flatten().copied().collect();
        assert_eq!(joined, &pattern(EXTENT + 9)[EXTENT - 2..EXTENT + 2]);
    }

    #[test]
    fn bytes_in_one_piece_are_changed_without_those_of_a_clone() {
        let mut rope = Rope::from_slice(&pattern(5000));
        let snapshot = rope.clone();
        rope.single_mut().expect("one extent")[4999] = b'x';
        assert_eq!((rope.byte(4999), snapshot.byte(4999)), (Some(b'x'), Some(pattern(5000)[4999])));
        assert!(Rope::default().single_mut().expect("no extent").is_empty());
        assert!(Rope::from_slice(&pattern(EXTENT + 1)).single_mut().is_none());
    }

    #[test]
    fn growing_by_bytes_stays_in_one_extent() {
        let mut rope = Rope::default();
        for byte in pattern(10_000) {
            rope.append(&[byte]);
        }
        check(&rope, &pattern(10_000));
        assert!(rope.as_single().is_some());
        assert!(rope.memory_bytes() < 21_000);
    }

    #[test]
    fn builder_copies_pieces_of_any_size() {
        let bytes = pattern(2 * EXTENT + 77);
        for step in [1000, 16 * 1024, EXTENT + 1] {
            let mut builder = RopeBuilder::new(bytes.len());
            for piece in bytes.chunks(step) {
                builder.push(piece);
            }
            assert_eq!((builder.filled(), builder.missing()), (bytes.len(), 0));
            check(&builder.finish(), &bytes);
        }
        assert!(RopeBuilder::new(0).finish().is_empty());
    }

    #[test]
    fn builder_takes_memory_only_for_what_arrived() {
        let mut builder = RopeBuilder::new(512 << 20);
        assert_eq!(builder.rope.extents.len(), 0);
        builder.push(b"x");
        assert_eq!(builder.rope.extents.len(), 1);
        assert_eq!(builder.rope.extents[0].capacity(), EXTENT);
    }

    #[test]
    fn from_vec_keeps_the_buffer() {
        let bytes = pattern(9000);
        let address = bytes.as_ptr();
        let rope = Rope::from_vec(bytes);
        assert_eq!(rope.as_single().expect("one extent").as_ptr(), address);
        check(&Rope::from_vec(pattern(EXTENT + 3)), &pattern(EXTENT + 3));
        check(&Rope::from_vec(Vec::new()), b"");
    }
}
