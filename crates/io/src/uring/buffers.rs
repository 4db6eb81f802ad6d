//! The provided-buffer ring: memory into which the kernel receives, whoever gets bytes first.
//!
//! Invariants: each buffer is in exactly one place: published to the kernel, in a completion not yet recycled (lent),
//! or on the free stack; the three counts add up to the size. Memory is mapped but untouched until used. Only as many
//! buffers are published as could be filled between two passes, and freed ones are published last in, first out:
//! the ring is first in, first out, so publishing all of them would march through all the memory, cold.
//!
//! # Safety
//! Two private anonymous mappings, owned by [`Buffers`], live until it is dropped; its owner drops the io_uring first.
//! The kernel writes to a buffer only between `publish` and the completion that names it; a slice of it is given out
//! only from `filled` after that completion, and `recycle` needs `&mut self`, which ends the borrow.

use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::Submitter;
use io_uring::types::BufRingEntry;

/// The buffer group's id; one group per ring.
pub(super) const GROUP: u16 = 0;

pub(super) struct Buffers {
    ring: Mapping,
    memory: Mapping,
    count: u16,
    bytes: u32,
    /// The ring's tail as far as entries are written.
    tail: u16,
    /// Buffers in the kernel's hands.
    published: u16,
    free: Vec<u16>,
}

impl Buffers {
    /// `count` buffers (a power of two up to 32,768) of `bytes` each, registered with the ring.
    pub(super) fn register(submitter: &Submitter<'_>, count: u16, bytes: u32) -> io::Result<Buffers> {
        assert!(count.is_power_of_two() && count <= 1 << 15 && bytes > 0, "{count} buffers of {bytes} bytes");
        let ring = Mapping::new(usize::from(count) * size_of::<BufRingEntry>())?;
        let memory = Mapping::new(usize::from(count) * bytes as usize)?;
        // SAFETY: the mapping has room for `count` entries and outlives the io_uring.
        unsafe { submitter.register_buf_ring_with_flags(ring.address.addr() as u64, count, GROUP, 0)? };
        Ok(Buffers { ring, memory, count, bytes, tail: 0, published: 0, free: (0..count).rev().collect() })
    }

    /// Hands free buffers to the kernel until it has `wanted`.
    pub(super) fn publish(&mut self, wanted: u16) {
        if self.published >= wanted || self.free.is_empty() {
            return;
        }
        while self.published < wanted
            && let Some(id) = self.free.pop()
        {
            let at = usize::from(self.tail & (self.count - 1));
            // SAFETY: `at` is less than `count`, the mapping has `count` entries, page alignment is enough, and the
            // kernel does not read entries beyond the tail. Entry fields are set one by one, as the first entry's
            // last two bytes are the ring's tail.
            let entry = unsafe { &mut *self.ring.address.cast::<BufRingEntry>().add(at) };
            entry.set_addr(self.memory.address.addr() as u64 + u64::from(id) * u64::from(self.bytes));
            entry.set_len(self.bytes);
            entry.set_bid(id);
            self.tail = self.tail.wrapping_add(1);
            self.published += 1;
        }
        // SAFETY: the tail lies in the mapping, is two-byte aligned, and both sides access it atomically.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.ring.address.cast()).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }

    /// Notes that a completion named this buffer: it is lent until it is recycled.
    pub(super) fn lend(&mut self, id: u16) {
        assert!(id < self.count && self.published > 0, "buffer {id} was not published");
        self.published -= 1;
    }

    /// The first `length` bytes of a lent buffer.
    pub(super) fn filled(&self, id: u16, length: usize) -> &[u8] {
        assert!(id < self.count && length <= self.bytes as usize);
        // SAFETY: within the memory mapping by the assertion; the kernel has filled `length` bytes and does not touch
        // a lent buffer; the borrow of self keeps it lent.
        unsafe {
            let start = self.memory.address.cast::<u8>().add(usize::from(id) * self.bytes as usize);
            std::slice::from_raw_parts(start, length)
        }
    }

    /// Takes a lent buffer back.
    pub(super) fn recycle(&mut self, id: u16) {
        debug_assert!(!self.free.contains(&id) || self.count > 64, "buffer {id} recycled twice");
        self.free.push(id);
        debug_assert!(self.free.len() + usize::from(self.published) <= usize::from(self.count));
    }

    pub(super) fn published(&self) -> u16 {
        self.published
    }

    /// Whether no buffer is lent.
    pub(super) fn all_home(&self) -> bool {
        self.free.len() + usize::from(self.published) == usize::from(self.count)
    }

    /// Gives the memory up for good: the kernel may still write to it.
    pub(super) fn leak(self) {
        std::mem::forget(self);
    }
}

/// A private anonymous mapping; pages come into being when first touched.
struct Mapping {
    address: *mut libc::c_void,
    length: usize,
}

impl Mapping {
    fn new(length: usize) -> io::Result<Mapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapping = Mapping { address, length };
        // A huge page would make resident what was never used. Kernels without huge pages answer EINVAL: as wished.
        // SAFETY: the range is the mapping just made.
        unsafe { libc::madvise(address, length, libc::MADV_NOHUGEPAGE) };
        Ok(mapping)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping, and its owner has ended all uses of it.
        let result = unsafe { libc::munmap(self.address, self.length) };
        debug_assert_eq!(result, 0);
    }
}
