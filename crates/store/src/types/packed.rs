//! Small aggregates: a few items in one string of bytes, embedded in the entry.
//!
//! ```text
//! form u8 | count u16 | item ...        item = length (1 or 2 bytes) | bytes
//! ```
//! What an item's bytes mean is the type's business (a member; a field with its value; a score with its member). There is no
//! length at an item's end: a packed value is at most [`PACKED_MAX`] bytes, which are walked from the front faster than a cache
//! miss takes. Dropped: integers in binary (they save a byte or two, and every reader would have to turn them into text).

use super::Form;

/// Longest packed value, in bytes: what a change may copy. Above it the value is a tree.
pub const PACKED_MAX: usize = 1024;

/// Bytes before the first item.
pub(super) const HEADER: usize = 3;

/// Lengths below this take one byte.
const SHORT: usize = 0x80;

/// Longest item that can be written with its length in two bytes.
pub(super) const ITEM_MAX: usize = 0x7EFF;

/// Bytes that an item of this length takes.
pub(super) fn item_size(len: usize) -> usize {
    len + if len < SHORT { 1 } else { 2 }
}

/// Appends an item's length.
pub(super) fn push_len(to: &mut Vec<u8>, len: usize) {
    debug_assert!(len <= ITEM_MAX);
    let [high, low] = u16::try_from(len).expect("items are at most ITEM_MAX bytes").to_be_bytes();
    if len < SHORT {
        to.push(low);
    } else {
        to.extend_from_slice(&[high | 0x80, low]);
    }
}

/// Reads an item's length at `at`: where its bytes begin, and how many they are.
#[inline]
pub(super) fn read_len(data: &[u8], at: usize) -> (usize, usize) {
    let first = usize::from(data[at]);
    if first < SHORT { (at + 1, first) } else { (at + 2, (first & 0x7F) << 8 | usize::from(data[at + 1])) }
}

/// A packed value, borrowed from its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed<'a>(&'a [u8]);

impl<'a> Packed<'a> {
    /// A view of what [`PackedBuf`] wrote.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        debug_assert!(bytes.len() >= HEADER);
        Self(bytes)
    }

    /// The value as OBJECT ENCODING should call it.
    #[inline]
    pub fn form(self) -> Form {
        Form::of(self.0[0])
    }

    /// Number of items.
    #[inline]
    pub fn len(self) -> usize {
        usize::from(u16::from_le_bytes([self.0[1], self.0[2]]))
    }

    /// Whether there are no items.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// All bytes.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// The items in order, each with its position.
    #[inline]
    pub fn items(self) -> Items<'a> {
        Items { data: self.0, at: HEADER }
    }

    /// The item number `index`.
    pub fn nth(self, index: usize) -> Option<(usize, &'a [u8])> {
        self.items().nth(index)
    }

    /// The position of item `index`, or the end.
    pub fn position(self, index: usize) -> usize {
        self.nth(index).map_or(self.0.len(), |(at, _)| at)
    }
}

/// Iterator over a packed value's items and their positions.
#[derive(Clone, Debug)]
pub struct Items<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Items<'a> {
    type Item = (usize, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.data.len() {
            return None;
        }
        let at = self.at;
        let (begin, len) = read_len(self.data, at);
        self.at = begin + len;
        Some((at, &self.data[begin..self.at]))
    }
}

/// A packed value that is being made or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedBuf(Vec<u8>);

impl PackedBuf {
    /// No items, in this buffer, whose contents are given up.
    pub fn empty_in(mut buffer: Vec<u8>, form: Form) -> Self {
        buffer.clear();
        buffer.extend_from_slice(&[form as u8, 0, 0]);
        Self(buffer)
    }

    /// A copy of a packed value, in this buffer.
    pub fn copy_in(mut buffer: Vec<u8>, packed: Packed<'_>) -> Self {
        buffer.clear();
        buffer.extend_from_slice(packed.0);
        Self(buffer)
    }

    /// For reading.
    #[inline]
    pub fn view(&self) -> Packed<'_> {
        Packed(&self.0)
    }

    /// The buffer, to be used again.
    pub fn into_buffer(self) -> Vec<u8> {
        self.0
    }

    /// Sets what OBJECT ENCODING should say.
    pub fn set_form(&mut self, form: Form) {
        self.0[0] = form as u8;
    }

    /// Whether an item of this length still fits.
    pub fn fits(&self, item_len: usize) -> bool {
        item_len <= ITEM_MAX && self.0.len() + item_size(item_len) <= PACKED_MAX
    }

    /// Inserts an item made of these parts at a position; [`PackedBuf::fits`] was asked before.
    pub fn insert(&mut self, at: usize, parts: &[&[u8]]) {
        let len = parts.iter().map(|part| part.len()).sum();
        if at == self.0.len() {
            push_len(&mut self.0, len);
            parts.iter().for_each(|part| self.0.extend_from_slice(part));
        } else {
            let (size, end) = (item_size(len), self.0.len());
            self.0.resize(end + size, 0);
            self.0.copy_within(at..end, at + size);
            let mut to = at + size - len;
            self.write_len(at, len);
            for part in parts {
                self.0[to..to + part.len()].copy_from_slice(part);
                to += part.len();
            }
        }
        self.count(1);
    }

    /// Appends an item.
    pub fn push(&mut self, parts: &[&[u8]]) {
        self.insert(self.0.len(), parts);
    }

    /// Removes the item at a position.
    pub fn remove(&mut self, at: usize) {
        let (begin, len) = read_len(&self.0, at);
        self.0.drain(at..begin + len);
        self.count(-1);
    }

    /// Removes so many items from a position on.
    pub fn remove_items(&mut self, at: usize, count: usize) {
        let mut end = at;
        for _ in 0..count {
            let (begin, len) = read_len(&self.0, end);
            end = begin + len;
        }
        self.0.drain(at..end);
        self.count(-i16::try_from(count).expect("a packed value has at most PACKED_MAX items"));
    }

    /// Puts other bytes in the place of the item at a position. What fits was asked before.
    pub fn replace(&mut self, at: usize, parts: &[&[u8]]) {
        let (begin, old) = read_len(&self.0, at);
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if len != old {
            self.remove(at);
            self.insert(at, parts);
            return;
        }
        let mut to = begin;
        for part in parts {
            self.0[to..to + part.len()].copy_from_slice(part);
            to += part.len();
        }
    }

    fn write_len(&mut self, at: usize, len: usize) {
        let [high, low] = u16::try_from(len).expect("items are at most ITEM_MAX bytes").to_be_bytes();
        if len < SHORT {
            self.0[at] = low;
        } else {
            (self.0[at], self.0[at + 1]) = (high | 0x80, low);
        }
    }

    fn count(&mut self, change: i16) {
        let count = u16::from_le_bytes([self.0[1], self.0[2]]);
        let count = count.checked_add_signed(change).expect("a packed value has at most PACKED_MAX items");
        self.0[1..HEADER].copy_from_slice(&count.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(buf: &PackedBuf) -> Vec<Vec<u8>> {
        buf.view().items().map(|(_, item)| item.to_vec()).collect()
    }

    #[test]
    fn edits_at_every_place_read_back() {
        let mut buf = PackedBuf::empty_in(Vec::new(), Form::Compact);
        let long = vec![b'x'; 300];
        buf.push(&[b"b"]);
        buf.insert(HEADER, &[b"a", b"1"]);
        buf.push(&[&long]);
        buf.insert(buf.view().position(1), &[]);
        assert_eq!(items(&buf), [b"a1".to_vec(), vec![], b"b".to_vec(), long.clone()]);
        assert_eq!(buf.view().len(), 4);
        buf.replace(buf.view().position(3), &[b"short"]);
        buf.replace(buf.view().position(0), &[b"", b"zz"]);
        buf.replace(buf.view().position(2), &[&long]);
        buf.remove(buf.view().position(1));
        assert_eq!(items(&buf), [b"zz".to_vec(), long, b"short".to_vec()]);
        assert_eq!((buf.view().len(), buf.view().form()), (3, Form::Compact));
    }

    #[test]
    fn what_fits_is_bounded() {
        let mut buf = PackedBuf::empty_in(Vec::new(), Form::Large);
        while buf.fits(10) {
            buf.push(&[b"0123456789"]);
        }
        assert!(buf.view().bytes().len() <= PACKED_MAX && buf.view().len() == (PACKED_MAX - HEADER) / 11);
        assert!(!buf.fits(PACKED_MAX) && !buf.fits(usize::from(u16::MAX)));
    }
}
