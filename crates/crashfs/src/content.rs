//! The bytes of a file: sparse pages that are shared until one side writes, and a size.
//!
//! Invariants: there is no page at or behind the size, and the last page is zero behind it. So growing a file exposes
//! zeros, and copying a page from one content to another moves no byte that neither showed.
//! Dropped alternative: one buffer per file; a sync of a preallocated log of 64 MiB would copy all of it.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes per page: the unit in which a page cache writes.
pub const PAGE: u64 = 4096;

const PAGE_LEN: usize = 4096;

type Page = [u8; PAGE_LEN];

/// A file's bytes. Cloning shares the pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    pages: BTreeMap<u64, Arc<Page>>,
    size: u64,
}

impl Content {
    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Writes `data` at `offset`, growing as needed.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let end = offset + length(data);
        self.size = self.size.max(end);
        for (page, within, piece) in pieces(offset, end) {
            let from = index(offset.max(page * PAGE) - offset);
            let target = Arc::make_mut(self.pages.entry(page).or_insert_with(|| Arc::new([0; PAGE_LEN])));
            target[within..within + piece].copy_from_slice(&data[from..from + piece]);
        }
    }

    /// The bytes from `offset`, at most `len`, ending with the file.
    pub fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let end = self.size.min(offset.saturating_add(len));
        let mut out = Vec::with_capacity(index(end.saturating_sub(offset)));
        for (page, within, piece) in pieces(offset, end) {
            match self.pages.get(&page) {
                Some(bytes) => out.extend_from_slice(&bytes[within..within + piece]),
                None => out.resize(out.len() + piece, 0),
            }
        }
        out
    }

    /// All bytes.
    pub fn bytes(&self) -> Vec<u8> {
        self.read(0, self.size)
    }

    /// Cuts or grows with zeros.
    pub fn resize(&mut self, size: u64) {
        if size < self.size {
            self.pages.split_off(&size.div_ceil(PAGE));
            let within = index(size % PAGE);
            if let Some(last) = self.pages.get_mut(&(size / PAGE))
                && within > 0
            {
                Arc::make_mut(last)[within..].fill(0);
            }
        }
        self.size = size;
    }

    /// Makes `len` bytes from `offset` zero, as far as the file reaches.
    pub fn zero(&mut self, offset: u64, len: u64) {
        let end = self.size.min(offset.saturating_add(len));
        for page in self.page_numbers(offset, end) {
            let from = index(offset.max(page * PAGE) - page * PAGE);
            let to = index(end.min((page + 1) * PAGE) - page * PAGE);
            if to - from == PAGE_LEN {
                self.pages.remove(&page);
            } else if let Some(bytes) = self.pages.get_mut(&page) {
                Arc::make_mut(bytes)[from..to].fill(0);
            }
        }
    }

    /// The pages between two offsets that are not holes.
    pub fn page_numbers(&self, offset: u64, end: u64) -> Vec<u64> {
        if offset >= end {
            return Vec::new();
        }
        self.pages.range(offset / PAGE..end.div_ceil(PAGE)).map(|(page, _)| *page).collect()
    }

    /// Takes over one page of `other`, a hole included. The size must cover it before anything is read.
    pub fn share_page(&mut self, other: &Content, page: u64) {
        match other.pages.get(&page) {
            Some(bytes) => self.pages.insert(page, Arc::clone(bytes)),
            None => self.pages.remove(&page),
        };
    }

    /// Sets the size where the pages are known to fit it.
    pub fn set_size(&mut self, size: u64) {
        debug_assert!(self.pages.last_key_value().is_none_or(|(page, _)| *page < size.div_ceil(PAGE)));
        self.size = size;
    }
}

/// The parts of `offset..end` by page: page, offset within it, length.
fn pieces(offset: u64, end: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let pages = if offset < end { offset / PAGE..end.div_ceil(PAGE) } else { 0..0 };
    pages.map(move |page| {
        let start = offset.max(page * PAGE);
        let stop = end.min((page + 1) * PAGE);
        (page, index(start - page * PAGE), index(stop - start))
    })
}

/// A length in memory as a length in a file.
pub fn length(data: &[u8]) -> u64 {
    u64::try_from(data.len()).expect("memory is smaller than 2^64")
}

/// A distance within one buffer.
pub fn index(distance: u64) -> usize {
    usize::try_from(distance).expect("distances are within a buffer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_does_what_a_buffer_does() {
        let mut content = Content::default();
        let mut model: Vec<u8> = Vec::new();
        let mut seed = 1;
        for step in 0..2000_u32 {
            seed = crate::random::mix(seed, 7);
            let offset = seed % 20_000;
            let len = (seed >> 20) % 9_000;
            match seed >> 60 {
                0..8 => {
                    let data = vec![step.to_le_bytes()[0] | 1; index(len)];
                    if !data.is_empty() {
                        model.resize(model.len().max(index(offset + len)), 0);
                        model[index(offset)..index(offset + len)].copy_from_slice(&data);
                        content.write(offset, &data);
                    }
                }
                8..12 => {
                    content.resize(offset);
                    model.resize(index(offset), 0);
                }
                _ => {
                    content.zero(offset, len);
                    let end = model.len().min(index(offset + len));
                    model[index(offset).min(end)..end].fill(0);
                }
            }
            assert!(content.bytes() == model, "step {step}");
        }
    }

    #[test]
    fn clones_do_not_see_later_writes() {
        let mut content = Content::default();
        content.write(0, b"old");
        let before = content.clone();
        content.write(0, b"new");
        assert_eq!((before.bytes(), content.bytes()), (b"old".to_vec(), b"new".to_vec()));
    }
}
