//! One key with its value: a single allocation, laid out by hand.
//!
//! ```text
//! header (8 bytes) | expire: i64, if any | key length: u32, if >= 255 | key | value
//! header = kind u8 (type: high 4 bits, encoding: low 4) | flags u8 | access clock u24 | key length u8 | value length u16
//! ```
//! A string is its bytes up to [`INLINE_MAX`], an `i64`, or a [`Rope`] (one pointer, aligned to 8); an aggregate is its packed bytes
//! or the address of a boxed tree, of the type in the header. The allocation's size is rounded to 8 and can be recomputed from the
//! header, so nothing else records it.
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

use crate::hash::short_word;
use crate::rope::Rope;
use crate::snapshot::Epoch;
use crate::types::{
    Aggregate, FieldsRef, Form, LargeTree, ListRef, Packed, PackedBuf, Parts, SetRef, SortedSetRef, Type,
};
use crate::value::{Encoding, Large, NewValue, StringRef, ValueRef};

/// Longest string kept inside its entry, in bytes; longer ones are ropes. One page: the most that a copy under the lock should cost.
pub const INLINE_MAX: usize = 4096;

/// Longest string that OBJECT ENCODING calls `embstr`.
const EMBSTR_MAX: usize = 44;

/// Values of the access clock are below this: 24 bits.
pub const CLOCK_LIMIT: u32 = 1 << 24;

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

    /// The value, if it is a string.
    #[inline(always)]
    pub fn string(&self) -> Option<StringRef<'a>> {
        self.raw.string()
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

    /// Its type.
    #[inline]
    pub fn kind(&self) -> Type {
        self.raw.header().kind()
    }

    /// A copy with this access clock, to be put under another key or into another table; a large value is shared.
    pub fn copied(&self, clock: u32) -> OwnedEntry {
        let body = self.raw.shared_body();
        let (modified, epoch) = (self.raw.is_modified(), self.raw.epoch());
        let content = Content { body, expire_at_ms: self.expire_at_ms(), clock, modified, epoch };
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
        1 + self.0.large_cost()
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
/// The [`Epoch`].
const EPOCH: u8 = Epoch::FLAG;

/// Key lengths from here on do not fit the header's byte.
const LONG_KEY_MIN: usize = 255;

const INT: u8 = 0;
const INLINE: u8 = 1;
/// `Header::kind` of a string of this encoding.
const STRING_INLINE: u8 = (Type::String as u8) << 4 | INLINE;
const ROPE: u8 = 2;
const PACKED: u8 = 3;
const TREE: u8 = 4;

impl Header {
    fn clock(self) -> u32 {
        let [a, b, c] = self.clock;
        u32::from_le_bytes([a, b, c, 0])
    }

    fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Low half of `kind`.
    fn encoding(self) -> u8 {
        self.kind & 0x0F
    }

    /// High half of `kind`.
    fn kind(self) -> Type {
        match self.kind >> 4 {
            0 => Type::String,
            1 => Type::List,
            2 => Type::Set,
            3 => Type::SortedSet,
            4 => Type::Hash,
            _ => Type::Stream,
        }
    }
}

/// What goes into an entry: everything but the key.
pub(crate) struct Content<'v> {
    pub(crate) body: Body<'v>,
    pub(crate) expire_at_ms: Option<i64>,
    pub(crate) clock: u32,
    pub(crate) modified: bool,
    /// Of which snapshots it can be a part.
    pub(crate) epoch: Epoch,
}

pub(crate) enum Body<'v> {
    Int(i64),
    /// Two pieces that become one string of at most [`INLINE_MAX`] bytes.
    Inline(&'v [u8], &'v [u8]),
    Rope(Rope),
    /// An aggregate of at most [`crate::types::PACKED_MAX`] bytes.
    Packed(Type, &'v [u8]),
    /// The same, of its own.
    PackedBuf(Type, PackedBuf),
    Tree(LargeTree),
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

    pub(crate) fn aggregate(value: Aggregate) -> Self {
        let kind = value.kind();
        match value.into_parts() {
            Parts::Packed(buf) => Self::PackedBuf(kind, buf),
            Parts::Tree(tree) => Self::Tree(tree),
        }
    }

    fn shape(&self) -> (u8, usize) {
        match self {
            Self::Int(_) => (INT, 8),
            Self::Inline(head, tail) => (INLINE, head.len() + tail.len()),
            Self::Rope(_) => (ROPE, 8),
            Self::Packed(_, bytes) => (PACKED, bytes.len()),
            Self::PackedBuf(_, buf) => (PACKED, buf.view().bytes().len()),
            Self::Tree(_) => (TREE, 8),
        }
    }

    /// The value, if it is an allocation of its own.
    pub(crate) fn into_large(self) -> Option<Large> {
        match self {
            Self::Rope(rope) => Some(Large::Rope(rope)),
            Self::Tree(tree) => Some(Large::Tree(tree)),
            Self::Int(_) | Self::Inline(..) | Self::Packed(..) | Self::PackedBuf(..) => None,
        }
    }

    fn kind(&self) -> Type {
        match self {
            Self::Int(_) | Self::Inline(..) | Self::Rope(_) => Type::String,
            Self::Packed(kind, _) | Self::PackedBuf(kind, _) => *kind,
            Self::Tree(tree) => tree.kind(),
        }
    }
}

/// Whether two keys are equal. Keys are short: words in a loop, of which the last overlaps, are faster than a call of `memcmp`.
#[inline(always)]
fn same_bytes(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let (Some(a_end), Some(b_end)) = (a.last_chunk::<8>(), b.last_chunk::<8>()) else {
        return short_word(a) == short_word(b);
    };
    let (a_words, b_words) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
    u64::from_ne_bytes(*a_end) == u64::from_ne_bytes(*b_end)
        && a_words.iter().zip(b_words).all(|(x, y)| u64::from_ne_bytes(*x) == u64::from_ne_bytes(*y))
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
        let value_at = if encoding == ROPE || encoding == TREE { key_end.next_multiple_of(8) } else { key_end };
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
    /// The key must be the one it has, and no bytes of the content may be this entry's own. Returns the large value that was replaced.
    #[inline]
    pub(crate) fn overwrite<'v>(self, key: &[u8], content: Content<'v>) -> Result<Option<Large>, Content<'v>> {
        let (encoding, value_len) = content.body.shape();
        let shape = Shape::new(key.len(), content.expire_at_ms.is_some(), encoding, value_len);
        if shape.size() != self.shape().size() {
            return Err(content);
        }
        let old = self.move_large();
        self.fill(key, content, shape);
        Ok(old)
    }

    /// Makes these the bytes of an entry that has an inline string of the same length and does not expire: nothing that the table
    /// keeps account of changes. False if it is another entry. The bytes must not be its own.
    #[inline]
    pub(crate) fn rewrite(self, bytes: &[u8], clock: u32) -> bool {
        let mut header = self.header();
        if header.kind != STRING_INLINE || header.has(EXPIRE) || usize::from(header.value_len) != bytes.len() {
            return false;
        }
        header.flags &= !MODIFIED;
        let [a, b, c, _] = clock.to_le_bytes();
        header.clock = [a, b, c];
        let value_at = self.shape().value_at;
        // SAFETY: the header is at the 8-aligned start, and so many bytes of value are at this place; no reference into the entry is
        // live, since it is reached through the table's `&mut`.
        unsafe {
            self.0.cast::<Header>().write(header);
            self.0.add(value_at).as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        true
    }

    #[inline]
    fn fill(self, key: &[u8], content: Content<'_>, shape: Shape) {
        let (encoding, _) = content.body.shape();
        let kind = (content.body.kind() as u8) << 4 | encoding;
        let mut flags = 0;
        flags |= if content.expire_at_ms.is_some() { EXPIRE } else { 0 };
        flags |= if key.len() >= LONG_KEY_MIN { LONG_KEY } else { 0 };
        flags |= if content.modified { MODIFIED } else { 0 };
        flags |= content.epoch.flag();
        let [a, b, c, _] = content.clock.to_le_bytes();
        let key_len = u8::try_from(key.len()).unwrap_or(u8::MAX);
        let value_len = u16::try_from(shape.value_len).expect("inline values are at most INLINE_MAX bytes");
        let header = Header { kind, flags, clock: [a, b, c], key_len, value_len };
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
                Body::Packed(_, bytes) => value.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()),
                Body::PackedBuf(_, buf) => {
                    let bytes = buf.view().bytes();
                    value.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
                }
                Body::Tree(tree) => value.cast::<*mut u8>().write(into_raw(tree)),
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

    /// Whether this is the key.
    #[inline(always)]
    pub(crate) fn has_key(self, key: &[u8]) -> bool {
        let header = self.header();
        if header.has(LONG_KEY) {
            return self.key() == key;
        }
        let at = if header.has(EXPIRE) { 16 } else { 8 };
        // SAFETY: without this flag the key begins there and has as many bytes as the header says.
        let bytes = unsafe { std::slice::from_raw_parts(self.0.add(at).as_ptr(), usize::from(header.key_len)) };
        same_bytes(bytes, key)
    }

    /// The value, if it is a string: the same as of [`RawEntry::value`], and a branch for what nearly all strings are.
    #[inline(always)]
    pub(crate) fn string<'a>(self) -> Option<StringRef<'a>> {
        if self.header().kind != STRING_INLINE {
            return self.value().as_string();
        }
        let shape = self.shape();
        // SAFETY: `fill` wrote so many bytes at this place; the caller ties the lifetime to the owner.
        let bytes = unsafe { std::slice::from_raw_parts(self.0.add(shape.value_at).as_ptr(), shape.value_len) };
        Some(StringRef::Bytes(bytes))
    }

    #[inline]
    pub(crate) fn value<'a>(self) -> ValueRef<'a> {
        let shape = self.shape();
        // SAFETY: `fill` wrote a value of this encoding at this place, a rope aligned to 8; the caller ties the lifetime to the owner.
        unsafe {
            let value = self.0.add(shape.value_at);
            match self.header().encoding() {
                INT => ValueRef::String(StringRef::Int(value.cast::<i64>().read_unaligned())),
                INLINE => {
                    let bytes = std::slice::from_raw_parts(value.as_ptr(), shape.value_len);
                    ValueRef::String(StringRef::Bytes(bytes))
                }
                ROPE => ValueRef::String(StringRef::Rope(value.cast::<Rope>().as_ref())),
                PACKED => self.packed_value(std::slice::from_raw_parts(value.as_ptr(), shape.value_len)),
                _ => self.tree_value(value.cast::<*mut u8>().read()),
            }
        }
    }

    fn packed_value<'a>(self, bytes: &'a [u8]) -> ValueRef<'a> {
        let packed = Packed::new(bytes);
        match self.header().kind() {
            Type::List => ValueRef::List(ListRef::Packed(packed)),
            Type::Set => ValueRef::Set(SetRef::Packed(packed)),
            Type::SortedSet => ValueRef::SortedSet(SortedSetRef::Packed(packed)),
            Type::Hash => ValueRef::Hash(FieldsRef::Packed(packed)),
            Type::String | Type::Stream => unreachable!("neither is ever packed"),
        }
    }

    /// # Safety
    /// `tree` is what this entry, of encoding [`TREE`], holds; the lifetime is tied to the owner.
    unsafe fn tree_value<'a>(self, tree: *mut u8) -> ValueRef<'a> {
        // SAFETY: `into_raw` made this address from a box of the type in the header, which the entry owns.
        unsafe {
            match self.header().kind() {
                Type::List => ValueRef::List(ListRef::Tree(&*tree.cast())),
                Type::Set => ValueRef::Set(SetRef::Tree(&*tree.cast())),
                Type::SortedSet => ValueRef::SortedSet(SortedSetRef::Tree(&*tree.cast())),
                Type::Hash => ValueRef::Hash(FieldsRef::Tree(&*tree.cast())),
                Type::Stream => ValueRef::Stream(&*tree.cast()),
                Type::String => unreachable!("a string is no tree"),
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

    /// Takes a large value out. The entry must be refilled or freed without dropping its value.
    #[inline]
    fn move_large(self) -> Option<Large> {
        let header = self.header();
        // SAFETY: as in `value`; the caller does not use the entry's copy of the rope or of the box again.
        unsafe {
            let value = || self.0.add(self.shape().value_at);
            match header.encoding() {
                ROPE => Some(Large::Rope(value().cast::<Rope>().read())),
                TREE => Some(Large::Tree(from_raw(header.kind(), value().cast::<*mut u8>().read()))),
                _ => None,
            }
        }
    }

    /// A copy of the value: bytes are borrowed, large values shared.
    fn shared_body<'a>(self) -> Body<'a> {
        match self.value() {
            ValueRef::String(StringRef::Int(int)) => Body::Int(int),
            ValueRef::String(StringRef::Bytes(bytes)) => Body::Inline(bytes, &[]),
            ValueRef::String(StringRef::Rope(rope)) => Body::Rope(rope.clone()),
            _ if self.header().encoding() == PACKED => Body::Packed(self.header().kind(), self.packed_bytes()),
            _ => {
                let tree = std::mem::ManuallyDrop::new(self.move_large());
                let Some(Large::Tree(tree)) = &*tree else { unreachable!("all other values were seen") };
                Body::Tree(tree.clone())
            }
        }
    }

    /// The bytes of a packed value.
    fn packed_bytes<'a>(self) -> &'a [u8] {
        let shape = self.shape();
        debug_assert_eq!(self.header().encoding(), PACKED);
        // SAFETY: `fill` wrote so many bytes there; the caller ties the lifetime to the owner.
        unsafe { std::slice::from_raw_parts(self.0.add(shape.value_at).as_ptr(), shape.value_len) }
    }

    /// A packed aggregate of this type for a change, as a copy in `buffer`, which comes back if there is none. The entry is then to
    /// be given the result by [`RawEntry::overwrite_packed`], or freed by [`RawEntry::free_shell`].
    #[inline]
    pub(crate) fn lift_packed(self, kind: Type, buffer: Vec<u8>) -> Result<Aggregate, Vec<u8>> {
        if self.header().kind != (kind as u8) << 4 | PACKED {
            return Err(buffer);
        }
        let buf = PackedBuf::copy_in(buffer, Packed::new(self.packed_bytes()));
        Ok(Aggregate::from_packed(kind, buf))
    }

    /// A tree of this type for a change, taken out, and the place to which [`put_tree_at`] is to write it again; or the entry is freed
    /// by [`RawEntry::free_shell`].
    #[inline]
    pub(crate) fn lift_tree(self, kind: Type) -> Option<(LargeTree, NonNull<*mut u8>)> {
        if self.header().kind != (kind as u8) << 4 | TREE {
            return None;
        }
        // SAFETY: an entry of this encoding has the address of a tree of its type there, aligned to 8; the caller does not use the
        // entry's copy of it again.
        unsafe {
            let place = self.0.add(self.shape().value_at).cast::<*mut u8>();
            Some((from_raw(kind, place.read()), place))
        }
    }

    /// Writes a packed value over the packed value of this entry, if its size in memory stays the same.
    pub(crate) fn overwrite_packed(self, kind: Type, bytes: &[u8]) -> bool {
        let (header, shape) = (self.header(), self.shape());
        let fits = header.encoding() == PACKED
            && header.kind() == kind
            && (shape.value_at + bytes.len()).next_multiple_of(8) == shape.size();
        if fits {
            let len = u16::try_from(bytes.len()).expect("packed values are at most PACKED_MAX bytes");
            // SAFETY: the allocation has room for so many bytes behind `value_at`, `bytes` is a buffer of its own, and the header's
            // last two bytes are the value's length; no reference into the entry is live, as it is reached through `&mut`.
            unsafe {
                self.0.add(shape.value_at).as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
                self.0.add(6).cast::<u16>().write(len);
            }
        }
        fits
    }

    /// What `look` says of a large value, which stays where it is.
    #[inline]
    fn with_large<R>(self, look: impl FnOnce(&Large) -> R) -> Option<R> {
        std::mem::ManuallyDrop::new(self.move_large()).as_ref().map(look)
    }

    fn large_cost(self) -> usize {
        self.with_large(Large::free_cost).unwrap_or(0)
    }

    #[inline]
    pub(crate) fn expire_at_ms(self) -> Option<i64> {
        // SAFETY: an entry with this flag has its time of expiry there, aligned to 8.
        self.header().has(EXPIRE).then(|| unsafe { self.0.add(8).cast::<i64>().read() })
    }

    /// When the first of a hash's fields expires.
    #[inline]
    pub(crate) fn fields_due_ms(self) -> Option<i64> {
        match self.header().kind() {
            Type::Hash => match self.value() {
                ValueRef::Hash(fields) => fields.deadline_ms(),
                _ => None,
            },
            _ => None,
        }
    }

    /// When something of it expires first, the key or a field; `i64::MAX` if nothing does.
    pub(crate) fn due_ms(self) -> i64 {
        let (key_ms, fields_ms) = (self.expire_at_ms(), self.fields_due_ms());
        key_ms.unwrap_or(i64::MAX).min(fields_ms.unwrap_or(i64::MAX))
    }

    /// Changes the time of expiry of an entry that has one.
    pub(crate) fn set_expire_in_place(self, at_ms: i64) {
        assert!(self.header().has(EXPIRE), "the entry has no room for a time of expiry");
        // SAFETY: as in `expire_at_ms`; no reference to these bytes is ever made.
        unsafe { self.0.add(8).cast::<i64>().write(at_ms) }
    }

    #[inline]
    pub(crate) fn set_clock(self, clock: u32) {
        const CLOCK: u64 = 0xFF_FFFF << 16;
        // SAFETY: the eight bytes of the header, aligned to 8, to which no reference is ever made. As one word: who reads the header
        // next does not wait for parts of it.
        unsafe {
            let header = self.0.cast::<u64>();
            let word = u64::from_le(header.read());
            header.write((word & !CLOCK | u64::from(clock) << 16 & CLOCK).to_le());
        }
    }

    /// Marks the string as changed in part.
    pub(crate) fn set_modified(self) {
        let flags = self.header().flags | MODIFIED;
        // SAFETY: byte 1 of the header, to which no reference is ever made.
        unsafe { self.0.add(1).write(flags) }
    }

    /// Its epoch; see `snapshot.rs`.
    #[inline]
    pub(crate) fn epoch(self) -> Epoch {
        Epoch::of(self.header().flags & EPOCH)
    }

    /// Moves the entry on to an epoch.
    #[inline]
    pub(crate) fn set_epoch(self, epoch: Epoch) {
        let flags = self.header().flags & !EPOCH | epoch.flag();
        // SAFETY: byte 1 of the header, to which no reference is ever made.
        unsafe { self.0.add(1).write(flags) }
    }

    /// Whether the value is an allocation of its own, shared by its copies.
    #[inline]
    pub(crate) fn is_large(self) -> bool {
        matches!(self.header().encoding(), ROPE | TREE)
    }

    /// Everything but the key, taken out: a large value is moved, inline bytes are borrowed. The entry is then only good for
    /// [`RawEntry::free_shell`].
    ///
    /// # Safety
    /// The inline bytes are not used after the shell was freed.
    pub(crate) unsafe fn take_content<'a>(self) -> Content<'a> {
        let header = self.header();
        let body = match (self.move_large(), self.value()) {
            (Some(Large::Rope(rope)), _) => Body::Rope(rope),
            (Some(Large::Tree(tree)), _) => Body::Tree(tree),
            (None, ValueRef::String(StringRef::Int(int))) => Body::Int(int),
            (None, ValueRef::String(StringRef::Bytes(bytes))) => Body::Inline(bytes, &[]),
            (None, _) => Body::Packed(header.kind(), self.packed_bytes()),
        };
        let (modified, epoch) = (header.has(MODIFIED), self.epoch());
        Content { body, expire_at_ms: self.expire_at_ms(), clock: header.clock(), modified, epoch }
    }

    /// Bytes of the allocation alone.
    #[inline]
    pub(crate) fn size(self) -> usize {
        self.shape().size()
    }

    pub(crate) fn memory_bytes(self) -> usize {
        self.size() + self.with_large(Large::memory_bytes).unwrap_or(0)
    }

    pub(crate) fn is_modified(self) -> bool {
        self.header().has(MODIFIED)
    }

    pub(crate) fn encoding(self) -> Encoding {
        let value = self.value();
        match (value.kind(), value.form()) {
            (Type::String, _) => match value.as_string() {
                Some(StringRef::Int(_)) => Encoding::Int,
                Some(StringRef::Bytes(bytes)) if bytes.len() <= EMBSTR_MAX && !self.is_modified() => Encoding::Embstr,
                _ => Encoding::Raw,
            },
            (Type::Stream, _) => Encoding::Stream,
            (_, Form::Compact) => Encoding::Listpack,
            (_, Form::Expiring) => Encoding::Hashtable,
            (_, Form::Integers) => Encoding::Intset,
            (Type::List, Form::Large) => Encoding::Quicklist,
            (Type::SortedSet, Form::Large) => Encoding::Skiplist,
            (Type::Set | Type::Hash, Form::Large) => Encoding::Hashtable,
        }
    }

    /// Drops the value and frees the allocation. The owner must not use the entry again.
    pub(crate) fn free(self) {
        drop(self.move_large());
        self.free_shell();
    }

    /// Frees the allocation without dropping the value, which was taken out.
    pub(crate) fn free_shell(self) {
        let layout = layout(self.size());
        // SAFETY: allocated with this layout, which the header still gives; owned and not used again by the caller.
        unsafe { dealloc(self.0.as_ptr(), layout) }
    }
}

/// The address that an entry keeps of a tree, which it then owns.
#[inline]
fn into_raw(tree: LargeTree) -> *mut u8 {
    match tree {
        LargeTree::List(tree) => Box::into_raw(tree).cast(),
        LargeTree::Set(tree) => Box::into_raw(tree).cast(),
        LargeTree::SortedSet(tree) => Box::into_raw(tree).cast(),
        LargeTree::Hash(tree) => Box::into_raw(tree).cast(),
        LargeTree::Stream(stream) => Box::into_raw(stream).cast(),
    }
}

/// The inverse of [`into_raw`].
///
/// # Safety
/// The address came from `into_raw` of a tree of this type and is used once.
#[inline]
unsafe fn from_raw(kind: Type, tree: *mut u8) -> LargeTree {
    // SAFETY: by this function's contract.
    unsafe {
        match kind {
            Type::List => LargeTree::List(Box::from_raw(tree.cast())),
            Type::Set => LargeTree::Set(Box::from_raw(tree.cast())),
            Type::SortedSet => LargeTree::SortedSet(Box::from_raw(tree.cast())),
            Type::Hash => LargeTree::Hash(Box::from_raw(tree.cast())),
            Type::Stream => LargeTree::Stream(Box::from_raw(tree.cast())),
            Type::String => unreachable!("a string is no tree"),
        }
    }
}

/// Gives a tree back to the entry from which [`RawEntry::lift_tree`] took one.
///
/// # Safety
/// The place came from `lift_tree` of an entry that is still allocated and was not changed, the tree is of the same type, and no
/// reference into the entry is live.
#[inline]
pub(crate) unsafe fn put_tree_at(place: NonNull<*mut u8>, tree: LargeTree) {
    // SAFETY: by this function's contract.
    unsafe { place.write(into_raw(tree)) }
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).expect("an entry is far smaller than the address space")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(value: NewValue<'_>, expire_at_ms: Option<i64>) -> Content<'_> {
        Content { body: Body::new(value), expire_at_ms, clock: 7, modified: false, epoch: Epoch::default() }
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
                    match entry.value().as_string().expect("a string") {
                        StringRef::Bytes(value) => assert!(value == bytes && len <= INLINE_MAX),
                        StringRef::Rope(rope) => assert!(rope.to_vec() == bytes && len > INLINE_MAX),
                        StringRef::Int(_) => unreachable!(),
                    }
                    assert_eq!(entry.encoding(), if len <= 44 { Encoding::Embstr } else { Encoding::Raw });
                }
                let owned = OwnedEntry::new(RawEntry::allocate(&key, content(NewValue::Int(i64::MIN), expire)));
                assert_eq!((owned.value().as_string(), owned.expire_at_ms()), (Some(StringRef::Int(i64::MIN)), expire));
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
            assert_eq!(
                (entry.key(), entry.value().as_string(), entry.clock()),
                (&b"key"[..], owned.value().as_string(), 9)
            );
            assert_eq!((entry.expire_at_ms(), entry.encoding()), (Some(5), owned.entry().encoding()));
            if let (Some(StringRef::Rope(copied)), Some(first)) = (entry.value().as_string(), rope.extents().next()) {
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
            (owned.entry().key(), owned.value().as_string(), owned.expire_at_ms()),
            (&b"key"[..], Some(StringRef::Bytes(b"value")), Some(5))
        );
    }

    #[test]
    fn overwrite_reuses_equal_sizes_only() {
        let owned =
            OwnedEntry::new(RawEntry::allocate(b"key", content(NewValue::Rope(Rope::from_slice(b"rope")), None)));
        let old =
            owned.0.overwrite(b"key", content(NewValue::Int(3), None)).ok().expect("8 + 3 + 8 rounds to the same 24");
        assert!(matches!(old, Some(Large::Rope(rope)) if rope == Rope::from_slice(b"rope")));
        assert_eq!(owned.value().as_string(), Some(StringRef::Int(3)));
        assert!(owned.0.overwrite(b"key", content(NewValue::Int(3), Some(1))).is_err());
    }
}
