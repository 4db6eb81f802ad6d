//! One key with its value: a single allocation, laid out by hand.
//!
//! ```text
//! header (8 bytes) | expire: i64, if any | key length: u32, if >= 255 | key | value
//! header = kind u8 (type: high 4 bits, encoding: low 4) | flags u8 | access clock u24 | key length u8 | value length u16
//! ```
//! The value is the bytes themselves up to [`INLINE_MAX`], an `i64`, or a [`Rope`] (one pointer, aligned to 8). The allocation's
//! size is rounded to 8 and can be recomputed from the header, so nothing else records it.
//!
//! Dropped: a `Box` with an enum inside (a pointer chase and 24 bytes more per key), and a compressed integer of 1 to 8 bytes
//! (INCR would have to reallocate at each width).
//!
//! # Safety
//! [`RawEntry`] is a copyable address. Its invariant: it came from [`RawEntry::allocate`] and was not freed. All code of this
//! crate that keeps one (a slot of a segment, [`OwnedEntry`]) owns it, and frees it once. Its methods are safe under that
//! invariant; references handed out carry a lifetime that the caller ties to the owner (`Entry`, `OwnedEntry`). The header's clock
//! is written through a raw pointer while keys and values are borrowed: no reference to the header exists. Entries are only reached
//! by the thread that holds the shard's lock; lock-free prefetching never dereferences one.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::rope::Rope;

/// Longest string kept inside its entry, in bytes; longer ones are ropes. One page: the most that a copy under the lock should cost.
pub const INLINE_MAX: usize = 4096;

/// Longest string that OBJECT ENCODING calls `embstr`.
const EMBSTR_MAX: usize = 44;

/// Values of the access clock are below this: 24 bits.
pub const CLOCK_LIMIT: u32 = 1 << 24;

/// A value, borrowed.
#[derive(Debug, PartialEq, Eq)]
pub enum ValueRef<'a> {
    /// A string that is the decimal form of an integer.
    Int(i64),
    /// A string in one piece.
    Bytes(&'a [u8]),
    /// A string in extents.
    Rope(&'a Rope),
}

/// A value to be stored.
#[derive(Debug)]
pub enum NewValue<'v> {
    /// Kept as an integer.
    Int(i64),
    /// Copied once: into the entry, or into a rope if longer than [`INLINE_MAX`].
    Bytes(&'v [u8]),
    /// Taken as it is.
    Rope(Rope),
}

/// What OBJECT ENCODING says of a string.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encoding {
    /// An integer.
    Int,
    /// At most 44 bytes, never changed in part.
    Embstr,
    /// Longer, or changed by APPEND or SETRANGE.
    Raw,
}

impl Encoding {
    /// The name that OBJECT ENCODING answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Int => "int",
            Self::Embstr => "embstr",
            Self::Raw => "raw",
        }
    }
}

/// A key with its value, borrowed from its table.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    raw: RawEntry,
    borrow: PhantomData<&'a RawEntry>,
}

impl<'a> Entry<'a> {
    /// `raw` must stay allocated and unchanged, but for the clock, for `'a`.
    #[inline]
    pub(crate) fn new(raw: RawEntry) -> Self {
        Self { raw, borrow: PhantomData }
    }

    /// The key.
    #[inline]
    pub fn key(&self) -> &'a [u8] {
        self.raw.key()
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> ValueRef<'a> {
        self.raw.value()
    }

    /// When the key expires, in ms of the caller's clock.
    #[inline]
    pub fn expire_at_ms(&self) -> Option<i64> {
        self.raw.expire_at_ms()
    }

    /// The 24-bit access clock, whose meaning is the caller's (LRU time or LFU counter).
    pub fn clock(&self) -> u32 {
        self.raw.header().clock()
    }

    /// Notes an access: the only change that is made through a shared borrow, as nothing else depends on the clock.
    #[inline]
    pub fn touch(&self, clock: u32) {
        self.raw.set_clock(clock);
    }

    /// Bytes of memory for key and value, with its slot's share left out.
    pub fn memory_bytes(&self) -> usize {
        self.raw.memory_bytes()
    }

    /// What OBJECT ENCODING says.
    pub fn encoding(&self) -> Encoding {
        self.raw.encoding()
    }

    /// A copy with this access clock, to be put under another key or into another table; a large value is shared.
    pub fn copied(&self, clock: u32) -> OwnedEntry {
        let body = match self.value() {
            ValueRef::Int(int) => Body::Int(int),
            ValueRef::Bytes(bytes) => Body::Inline(bytes, &[]),
            ValueRef::Rope(rope) => Body::Rope(rope.clone()),
        };
        let content = Content { body, expire_at_ms: self.expire_at_ms(), clock, modified: self.raw.is_modified() };
        OwnedEntry::new(RawEntry::allocate(self.key(), content))
    }
}

/// A key with its value outside of any table. Dropping it frees it.
pub struct OwnedEntry(RawEntry);

// SAFETY: the entry is exclusively owned plain bytes, or a `Rope`, which is `Send`.
unsafe impl Send for OwnedEntry {}

impl OwnedEntry {
    /// Takes over `raw`, which no slot refers to any more.
    pub(crate) fn new(raw: RawEntry) -> Self {
        Self(raw)
    }

    /// Gives up the allocation to the caller.
    pub(crate) fn into_raw(self) -> RawEntry {
        let raw = self.0;
        std::mem::forget(self);
        raw
    }

    /// Key, value and the rest, borrowed.
    pub fn entry(&self) -> Entry<'_> {
        Entry::new(self.0)
    }

    /// The value.
    pub fn value(&self) -> ValueRef<'_> {
        self.0.value()
    }

    /// When the key expires, in ms.
    pub fn expire_at_ms(&self) -> Option<i64> {
        self.0.expire_at_ms()
    }

    /// Allocations that dropping this frees: above some bound it is better dropped by a background thread.
    pub fn free_cost(&self) -> usize {
        match self.0.value() {
            ValueRef::Int(_) | ValueRef::Bytes(_) => 1,
            ValueRef::Rope(rope) => 1 + rope.free_cost(),
        }
    }
}

impl Drop for OwnedEntry {
    fn drop(&mut self) {
        self.0.free();
    }
}

/// First 8 bytes of an entry.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct Header {
    kind: u8,
    flags: u8,
    clock: [u8; 3],
    key_len: u8,
    value_len: u16,
}

const _: () = assert!(size_of::<Header>() == 8);

/// An `i64` with the time of expiry follows the header.
const EXPIRE: u8 = 1;
/// The key's length is a `u32` of its own.
const LONG_KEY: u8 = 2;
/// The string was changed by APPEND or SETRANGE, which OBJECT ENCODING reports as `raw`.
const MODIFIED: u8 = 4;

/// Key lengths from here on do not fit the header's byte.
const LONG_KEY_MIN: usize = 255;

const INT: u8 = 0;
const INLINE: u8 = 1;
const ROPE: u8 = 2;

impl Header {
    fn clock(self) -> u32 {
        let [a, b, c] = self.clock;
        u32::from_le_bytes([a, b, c, 0])
    }

    fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Low half of `kind`; the high half, the type, is 0: string.
    fn encoding(self) -> u8 {
        self.kind & 0x0F
    }
}

/// What goes into an entry: everything but the key.
pub(crate) struct Content<'v> {
    pub(crate) body: Body<'v>,
    pub(crate) expire_at_ms: Option<i64>,
    pub(crate) clock: u32,
    pub(crate) modified: bool,
}

pub(crate) enum Body<'v> {
    Int(i64),
    /// Two pieces that become one string of at most [`INLINE_MAX`] bytes.
    Inline(&'v [u8], &'v [u8]),
    Rope(Rope),
}

impl<'v> Body<'v> {
    pub(crate) fn new(value: NewValue<'v>) -> Self {
        match value {
            NewValue::Int(int) => Self::Int(int),
            NewValue::Bytes(bytes) if bytes.len() <= INLINE_MAX => Self::Inline(bytes, &[]),
            NewValue::Bytes(bytes) => Self::Rope(Rope::from_slice(bytes)),
            NewValue::Rope(rope) => Self::Rope(rope),
        }
    }

    fn shape(&self) -> (u8, usize) {
        match self {
            Self::Int(_) => (INT, 8),
            Self::Inline(head, tail) => (INLINE, head.len() + tail.len()),
            Self::Rope(_) => (ROPE, 8),
        }
    }
}

/// Where the parts of an entry are.
#[derive(Clone, Copy)]
struct Shape {
    key_at: usize,
    key_len: usize,
    value_at: usize,
    value_len: usize,
}

impl Shape {
    #[inline]
    fn new(key_len: usize, expires: bool, encoding: u8, value_len: usize) -> Self {
        let key_at = 8 + if expires { 8 } else { 0 } + if key_len >= LONG_KEY_MIN { 4 } else { 0 };
        let key_end = key_at + key_len;
        let value_at = if encoding == ROPE { key_end.next_multiple_of(8) } else { key_end };
        Self { key_at, key_len, value_at, value_len }
    }

    #[inline]
    fn size(self) -> usize {
        (self.value_at + self.value_len).next_multiple_of(8)
    }
}

/// Address of an entry; see the module's `Safety`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct RawEntry(NonNull<u8>);

impl RawEntry {
    /// # Safety
    /// `pointer` came from [`RawEntry::as_ptr`] of an entry that is still allocated.
    #[inline]
    pub(crate) unsafe fn from_ptr(pointer: NonNull<u8>) -> Self {
        Self(pointer)
    }

    #[inline]
    pub(crate) fn as_ptr(self) -> NonNull<u8> {
        self.0
    }

    /// A new entry.
    ///
    /// # Panics
    /// If the key is longer than `u32::MAX`; the protocol's limit is far below.
    pub(crate) fn allocate(key: &[u8], content: Content<'_>) -> Self {
        let (encoding, value_len) = content.body.shape();
        let shape = Shape::new(key.len(), content.expire_at_ms.is_some(), encoding, value_len);
        let layout = layout(shape.size());
        // SAFETY: the layout's size is at least 8.
        let pointer = unsafe { alloc(layout) };
        let raw = Self(NonNull::new(pointer).unwrap_or_else(|| handle_alloc_error(layout)));
        assert_eq!(
            pointer.addr() >> 48,
            0,
            "the allocator returned an address above 48 bits, which a slot cannot hold"
        );
        raw.fill(key, content, shape);
        raw
    }

    /// Makes this allocation the entry for `key` and `content` if its size is the same; otherwise hands the content back.
    /// The key must be the one it has. Returns the rope that was replaced.
    #[inline]
    pub(crate) fn overwrite<'v>(self, key: &[u8], content: Content<'v>) -> Result<Option<Rope>, Content<'v>> {
        let (encoding, value_len) = content.body.shape();
        let shape = Shape::new(key.len(), content.expire_at_ms.is_some(), encoding, value_len);
        if shape.size() != self.shape().size() {
            return Err(content);
        }
        let old = self.move_rope();
        self.fill(key, content, shape);
        Ok(old)
    }

    #[inline]
    fn fill(self, key: &[u8], content: Content<'_>, shape: Shape) {
        let (encoding, _) = content.body.shape();
        let mut flags = 0;
        flags |= if content.expire_at_ms.is_some() { EXPIRE } else { 0 };
        flags |= if key.len() >= LONG_KEY_MIN { LONG_KEY } else { 0 };
        flags |= if content.modified { MODIFIED } else { 0 };
        let [a, b, c, _] = content.clock.to_le_bytes();
        let key_len = u8::try_from(key.len()).unwrap_or(u8::MAX);
        let value_len = u16::try_from(shape.value_len).expect("inline values are at most INLINE_MAX bytes");
        let header = Header { kind: encoding, flags, clock: [a, b, c], key_len, value_len };
        let base = self.0.as_ptr();
        // SAFETY: the allocation has `shape.size()` bytes, every part below lies within by `Shape::new`, the header is at the
        // 8-aligned start, and no reference into the entry is live: it is new, or reached through the table's `&mut`.
        unsafe {
            base.cast::<Header>().write(header);
            if let Some(at_ms) = content.expire_at_ms {
                base.add(8).cast::<i64>().write(at_ms);
            }
            if key.len() >= LONG_KEY_MIN {
                let len = u32::try_from(key.len()).expect("keys are at most 4 GiB");
                base.add(shape.key_at - 4).cast::<u32>().write(len);
            }
            base.add(shape.key_at).copy_from_nonoverlapping(key.as_ptr(), key.len());
            let value = base.add(shape.value_at);
            match content.body {
                Body::Int(int) => value.cast::<i64>().write_unaligned(int),
                Body::Inline(head, tail) => {
                    value.copy_from_nonoverlapping(head.as_ptr(), head.len());
                    value.add(head.len()).copy_from_nonoverlapping(tail.as_ptr(), tail.len());
                }
                Body::Rope(rope) => value.cast::<Rope>().write(rope),
            }
        }
    }

    #[inline]
    pub(crate) fn header(self) -> Header {
        // SAFETY: an entry starts with its header, aligned to 8.
        unsafe { self.0.cast::<Header>().read() }
    }

    #[inline]
    fn shape(self) -> Shape {
        let header = self.header();
        let mut key_len = usize::from(header.key_len);
        if header.has(LONG_KEY) {
            let at = if header.has(EXPIRE) { 16 } else { 8 };
            // SAFETY: an entry with this flag has its key's length there, aligned to 4. `usize` is at least 32 bits wide.
            key_len = unsafe { self.0.add(at).cast::<u32>().read() } as usize;
        }
        Shape::new(key_len, header.has(EXPIRE), header.encoding(), usize::from(header.value_len))
    }

    #[inline]
    pub(crate) fn key<'a>(self) -> &'a [u8] {
        let shape = self.shape();
        // SAFETY: the key's bytes were written by `fill`; the caller ties the lifetime to the owner.
        unsafe { std::slice::from_raw_parts(self.0.add(shape.key_at).as_ptr(), shape.key_len) }
    }

    #[inline]
    pub(crate) fn value<'a>(self) -> ValueRef<'a> {
        let shape = self.shape();
        // SAFETY: `fill` wrote a value of this encoding at this place, a rope aligned to 8; the caller ties the lifetime to the owner.
        unsafe {
            let value = self.0.add(shape.value_at);
            match self.header().encoding() {
                INT => ValueRef::Int(value.cast::<i64>().read_unaligned()),
                INLINE => ValueRef::Bytes(std::slice::from_raw_parts(value.as_ptr(), shape.value_len)),
                _ => ValueRef::Rope(value.cast::<Rope>().as_ref()),
            }
        }
    }

    /// The rope, for changing it in place.
    ///
    /// # Safety
    /// No other reference into this entry is live during `'a`.
    pub(crate) unsafe fn rope_mut<'a>(self) -> Option<&'a mut Rope> {
        let value_at = self.shape().value_at;
        // SAFETY: an entry of this encoding holds a rope there, aligned to 8; unaliased by this function's contract.
        (self.header().encoding() == ROPE).then(|| unsafe { self.0.add(value_at).cast::<Rope>().as_mut() })
    }

    /// The inline bytes, for changing them in place.
    ///
    /// # Safety
    /// No other reference into this entry is live during `'a`.
    pub(crate) unsafe fn inline_mut<'a>(self) -> Option<&'a mut [u8]> {
        let shape = self.shape();
        // SAFETY: an entry of this encoding holds so many bytes there; unaliased by this function's contract.
        (self.header().encoding() == INLINE)
            .then(|| unsafe { std::slice::from_raw_parts_mut(self.0.add(shape.value_at).as_ptr(), shape.value_len) })
    }

    /// Changes the integer of an entry that holds one; false if it does not.
    pub(crate) fn set_int_in_place(self, int: i64) -> bool {
        if self.header().encoding() != INT {
            return false;
        }
        // SAFETY: an entry of this encoding holds an integer there, to which no reference is ever made.
        unsafe { self.0.add(self.shape().value_at).cast::<i64>().write_unaligned(int) };
        true
    }

    /// Takes the rope out. The entry must be refilled or freed without dropping its value.
    fn move_rope(self) -> Option<Rope> {
        let value_at = self.shape().value_at;
        // SAFETY: an entry of this encoding holds a rope there, aligned to 8; the caller does not use that copy again.
        (self.header().encoding() == ROPE).then(|| unsafe { self.0.add(value_at).cast::<Rope>().read() })
    }

    #[inline]
    pub(crate) fn expire_at_ms(self) -> Option<i64> {
        // SAFETY: an entry with this flag has its time of expiry there, aligned to 8.
        self.header().has(EXPIRE).then(|| unsafe { self.0.add(8).cast::<i64>().read() })
    }

    /// Changes the time of expiry of an entry that has one.
    pub(crate) fn set_expire_in_place(self, at_ms: i64) {
        assert!(self.header().has(EXPIRE), "the entry has no room for a time of expiry");
        // SAFETY: as in `expire_at_ms`; no reference to these bytes is ever made.
        unsafe { self.0.add(8).cast::<i64>().write(at_ms) }
    }

    #[inline]
    pub(crate) fn set_clock(self, clock: u32) {
        let [a, b, c, _] = clock.to_le_bytes();
        // SAFETY: bytes 2 to 4 of the header, to which no reference is ever made.
        unsafe { self.0.add(2).cast::<[u8; 3]>().write([a, b, c]) }
    }

    /// Marks the string as changed in part.
    pub(crate) fn set_modified(self) {
        let flags = self.header().flags | MODIFIED;
        // SAFETY: byte 1 of the header, to which no reference is ever made.
        unsafe { self.0.add(1).write(flags) }
    }

    /// Everything but the key, taken out: the rope is moved, inline bytes are borrowed. The entry is then only good for
    /// [`RawEntry::free_shell`].
    ///
    /// # Safety
    /// The inline bytes are not used after the shell was freed.
    pub(crate) unsafe fn take_content<'a>(self) -> Content<'a> {
        let header = self.header();
        let body = match self.value() {
            ValueRef::Int(int) => Body::Int(int),
            ValueRef::Bytes(bytes) => Body::Inline(bytes, &[]),
            ValueRef::Rope(_) => Body::Rope(self.move_rope().expect("just seen")),
        };
        Content { body, expire_at_ms: self.expire_at_ms(), clock: header.clock(), modified: header.has(MODIFIED) }
    }

    /// Bytes of the allocation alone.
    #[inline]
    pub(crate) fn size(self) -> usize {
        self.shape().size()
    }

    pub(crate) fn memory_bytes(self) -> usize {
        match self.value() {
            ValueRef::Int(_) | ValueRef::Bytes(_) => self.size(),
            ValueRef::Rope(rope) => self.size() + rope.memory_bytes(),
        }
    }

    pub(crate) fn is_modified(self) -> bool {
        self.header().has(MODIFIED)
    }

    pub(crate) fn encoding(self) -> Encoding {
        match self.value() {
            ValueRef::Int(_) => Encoding::Int,
            ValueRef::Bytes(bytes) if bytes.len() <= EMBSTR_MAX && !self.is_modified() => Encoding::Embstr,
            ValueRef::Bytes(_) | ValueRef::Rope(_) => Encoding::Raw,
        }
    }

    /// Drops the value and frees the allocation. The owner must not use the entry again.
    pub(crate) fn free(self) {
        drop(self.move_rope());
        self.free_shell();
    }

    /// Frees the allocation without dropping the value, which was taken out.
    pub(crate) fn free_shell(self) {
        let layout = layout(self.size());
        // SAFETY: allocated with this layout, which the header still gives; owned and not used again by the caller.
        unsafe { dealloc(self.0.as_ptr(), layout) }
    }
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).expect("an entry is far smaller than the address space")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(value: NewValue<'_>, expire_at_ms: Option<i64>) -> Content<'_> {
        Content { body: Body::new(value), expire_at_ms, clock: 7, modified: false }
    }

    #[test]
    fn every_shape_reads_back() {
        for key_len in [0, 1, 7, 8, 16, 254, 255, 256, 70_000] {
            let key: Vec<u8> = (0..key_len).map(|i| u8::try_from(i % 256).expect("a byte")).collect();
            for expire in [None, Some(1_700_000_000_123), Some(-1)] {
                for len in [0, 1, 8, 44, 45, 4096, 4097] {
                    let bytes = vec![b'v'; len];
                    let owned = OwnedEntry::new(RawEntry::allocate(&key, content(NewValue::Bytes(&bytes), expire)));
                    let entry = owned.entry();
                    assert_eq!((entry.key(), entry.expire_at_ms(), entry.clock()), (&key[..], expire, 7));
                    match entry.value() {
                        ValueRef::Bytes(value) => assert!(value == bytes && len <= INLINE_MAX),
                        ValueRef::Rope(rope) => assert!(rope.to_vec() == bytes && len > INLINE_MAX),
                        ValueRef::Int(_) => unreachable!(),
                    }
                    assert_eq!(entry.encoding(), if len <= 44 { Encoding::Embstr } else { Encoding::Raw });
                }
                let owned = OwnedEntry::new(RawEntry::allocate(&key, content(NewValue::Int(i64::MIN), expire)));
                assert_eq!((owned.value(), owned.expire_at_ms()), (ValueRef::Int(i64::MIN), expire));
                assert_eq!(owned.entry().encoding(), Encoding::Int);
            }
        }
    }

    #[test]
    fn a_copy_shares_a_large_value_and_keeps_the_rest() {
        let rope = Rope::from_slice(&[b'r'; 5000]);
        for value in [NewValue::Int(7), NewValue::Bytes(b"text"), NewValue::Rope(rope.clone())] {
            let owned = OwnedEntry::new(RawEntry::allocate(b"key", content(value, Some(5))));
            owned.0.set_modified();
            let copy = owned.entry().copied(9);
            let entry = copy.entry();
            assert_eq!((entry.key(), entry.value(), entry.clock()), (&b"key"[..], owned.value(), 9));
            assert_eq!((entry.expire_at_ms(), entry.encoding()), (Some(5), owned.entry().encoding()));
            if let (ValueRef::Rope(copied), Some(first)) = (entry.value(), rope.extents().next()) {
                assert!(std::sync::Arc::ptr_eq(copied.extents().next().expect("an extent"), first));
            }
        }
    }

    #[test]
    fn small_entries_cost_eight_bytes_beside_key_and_value() {
        let entry = OwnedEntry::new(RawEntry::allocate(&[b'k'; 16], content(NewValue::Bytes(&[b'v'; 32]), None)));
        assert_eq!(entry.entry().memory_bytes(), 56);
    }

    #[test]
    fn clock_keeps_24_bits_and_nothing_else_changes() {
        let owned = OwnedEntry::new(RawEntry::allocate(b"key", content(NewValue::Bytes(b"value"), Some(5))));
        owned.entry().touch(CLOCK_LIMIT + 0x00AB_CDEF);
        assert_eq!(owned.entry().clock(), 0x00AB_CDEF);
        assert_eq!(
            (owned.entry().key(), owned.value(), owned.expire_at_ms()),
            (&b"key"[..], ValueRef::Bytes(b"value"), Some(5))
        );
    }

    #[test]
    fn overwrite_reuses_equal_sizes_only() {
        let owned =
            OwnedEntry::new(RawEntry::allocate(b"key", content(NewValue::Rope(Rope::from_slice(b"rope")), None)));
        let old =
            owned.0.overwrite(b"key", content(NewValue::Int(3), None)).ok().expect("8 + 3 + 8 rounds to the same 24");
        assert_eq!(old, Some(Rope::from_slice(b"rope")));
        assert_eq!(owned.value(), ValueRef::Int(3));
        assert!(owned.0.overwrite(b"key", content(NewValue::Int(3), Some(1))).is_err());
    }
}
