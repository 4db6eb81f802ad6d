//! Freeing a whole table in slices, so that dropping millions of keys never holds a thread up.
//!
//! # Safety
//! [`Remains`] owns its directory, the segments and the entries: no table, and so no other thread, reaches them any more.

use crate::directory::Directory;
use crate::entry::OwnedEntry;

/// The directory, segments and entries of a table that no longer exists. Dropping it frees what is left.
pub(crate) struct Remains {
    directory: Option<Directory>,
    next: usize,
    len: usize,
}

// SAFETY: exclusively owned memory of plain bytes and ropes, which any thread may free.
unsafe impl Send for Remains {}

impl Remains {
    /// Takes over a directory with all that it links.
    pub(super) fn new(directory: Option<Directory>, len: usize) -> Self {
        Self { directory, next: 0, len }
    }

    /// Entries that are left.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Frees segments until at least `count` entries were freed; true when nothing is left.
    pub(crate) fn free_slice(&mut self, count: usize) -> bool {
        let Some(directory) = self.directory else {
            return true;
        };
        let enough = self.len.saturating_sub(count);
        while self.next < directory.len() {
            let segment = directory.segment(self.next);
            self.next = directory.span(self.next, segment.depth()).end;
            self.len -= segment.len();
            for (_, raw) in segment.entries() {
                drop(OwnedEntry::new(raw));
            }
            segment.free();
            if self.len <= enough && self.next < directory.len() {
                return false;
            }
        }
        directory.free();
        self.directory = None;
        true
    }
}

impl Drop for Remains {
    fn drop(&mut self) {
        self.free_slice(usize::MAX);
    }
}
