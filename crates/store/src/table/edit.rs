//! Changing an entry where it is.
//!
//! # Safety
//! An [`EntryMut`] borrows its table uniquely, and with it the entry: while a method holds a mutable reference into the entry no
//! other reference into it exists, as those that [`EntryMut::key`] and [`EntryMut::value`] return borrow the `EntryMut`.

use super::{Location, Table};
use crate::entry::{Body, Content, Entry, INLINE_MAX, RawEntry, put_tree_at};
use crate::hash::Hash;
use crate::rope::Rope;
use crate::types::{Aggregate, Kind, Parts};
use crate::value::{Encoding, Large, NewValue, StringRef, ValueRef};

/// An entry that can be changed; reached through [`Table::find_mut`] only.
pub struct EntryMut<'a> {
    table: &'a mut Table,
    at: Location,
    hash: Hash,
}

impl<'a> EntryMut<'a> {
    #[inline]
    pub(super) fn new(table: &'a mut Table, at: Location, hash: Hash) -> Self {
        table.before_change(at.entry);
        Self { table, at, hash }
    }

    /// Where the entry is now.
    pub(super) fn into_location(self) -> Location {
        self.at
    }

    /// The entry, for reading.
    pub fn entry(&self) -> Entry<'_> {
        Entry::new(self.at.entry)
    }

    /// The key.
    pub fn key(&self) -> &[u8] {
        self.entry().key()
    }

    /// The value.
    pub fn value(&self) -> ValueRef<'_> {
        self.entry().value()
    }

    /// When the key expires, in ms.
    pub fn expire_at_ms(&self) -> Option<i64> {
        self.at.entry.expire_at_ms()
    }

    /// The access clock.
    pub fn clock(&self) -> u32 {
        self.entry().clock()
    }

    /// Bytes of memory for key and value.
    pub fn memory_bytes(&self) -> usize {
        self.at.entry.memory_bytes()
    }

    /// What OBJECT ENCODING says.
    pub fn encoding(&self) -> Encoding {
        self.at.entry.encoding()
    }

    /// Sets the access clock (24 bits).
    pub fn set_clock(&mut self, clock: u32) {
        self.at.entry.set_clock(clock);
    }

    /// Sets or removes the time of expiry.
    pub fn set_expire(&mut self, at_ms: Option<i64>) {
        let before_ms = self.at.entry.expire_at_ms();
        match (before_ms, at_ms) {
            (None, None) => {}
            (Some(_), Some(at_ms)) => {
                self.at.entry.set_expire_in_place(at_ms);
                self.table.note_expire(self.at.segment, before_ms, Some(at_ms), self.hash);
            }
            _ => self.rewrite(|content| content.expire_at_ms = at_ms),
        }
    }

    /// Makes the value an integer, keeping expiry and clock: in place if it is one already.
    pub fn set_int(&mut self, int: i64) {
        if !self.at.entry.set_int_in_place(int) {
            drop(self.replace(NewValue::Int(int)));
        }
    }

    /// Gives the key another value, keeping expiry and clock. Returns the large value that it had.
    pub fn replace(&mut self, value: NewValue<'_>) -> Option<Large> {
        let mut old = None;
        self.rewrite(|content| {
            old = Some(std::mem::replace(&mut content.body, Body::new(value)));
            content.modified = false;
        });
        old.and_then(Body::into_large)
    }

    /// Adds bytes at the end of the string; returns its new length.
    pub fn append(&mut self, bytes: &[u8]) -> usize {
        let mut digits = itoa::Buffer::new();
        let inline = match self.at.entry.value().as_string().expect(STRING) {
            StringRef::Int(int) => digits.format(int).as_bytes(),
            StringRef::Bytes(inline) => inline,
            StringRef::Rope(_) => return self.edit_rope(|rope| rope.append(bytes)),
        };
        let len = inline.len() + bytes.len();
        let body = if len <= INLINE_MAX {
            Body::Inline(inline, bytes)
        } else {
            let mut rope = Rope::from_slice(inline);
            rope.append(bytes);
            Body::Rope(rope)
        };
        self.rewrite(|content| (content.body, content.modified) = (body, true));
        len
    }

    /// Writes bytes at an offset, filling a gap with zeros; returns the string's new length. No bytes: no change.
    pub fn set_range(&mut self, offset: usize, bytes: &[u8]) -> usize {
        // SAFETY: `self` is borrowed uniquely, and the reference ends within this block.
        if let Some(inline) = unsafe { self.at.entry.inline_mut() } {
            let end = offset.checked_add(bytes.len()).expect("lengths are limited by the protocol");
            if bytes.is_empty() || end <= inline.len() {
                if !bytes.is_empty() {
                    inline[offset..end].copy_from_slice(bytes);
                    self.at.entry.set_modified();
                }
                return inline.len();
            }
        }
        let mut digits = itoa::Buffer::new();
        let inline = match self.at.entry.value().as_string().expect(STRING) {
            StringRef::Int(int) => digits.format(int).as_bytes(),
            StringRef::Bytes(inline) => inline,
            StringRef::Rope(_) => return self.edit_rope(|rope| rope.set_range(offset, bytes)),
        };
        if bytes.is_empty() {
            return inline.len();
        }
        // A rope does the arithmetic of growing and gaps; a short result goes back into the entry.
        let mut rope = Rope::from_slice(inline);
        rope.set_range(offset, bytes);
        let len = rope.len();
        match rope.as_single() {
            Some(short) if len <= INLINE_MAX => {
                self.rewrite(|content| (content.body, content.modified) = (Body::Inline(short, &[]), true));
            }
            _ => self.rewrite(|content| (content.body, content.modified) = (Body::Rope(rope), true)),
        }
        len
    }

    /// Gives the key another string, which counts as changed in part: in place if it is as long as the one before.
    pub fn set_bytes(&mut self, bytes: &[u8]) {
        // SAFETY: `self` is borrowed uniquely, and the reference ends within this block.
        if let Some(inline) = unsafe { self.at.entry.inline_mut() }.filter(|inline| inline.len() == bytes.len()) {
            inline.copy_from_slice(bytes);
            return self.at.entry.set_modified();
        }
        self.rewrite(|content| (content.body, content.modified) = (Body::new(NewValue::Bytes(bytes)), true));
    }

    /// Lets `edit` change the bytes of a string that lies in one piece; `None` if it does not, or is an integer.
    pub fn edit_bytes<R>(&mut self, edit: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        // SAFETY: `self` is borrowed uniquely, and the reference ends within this block.
        if let Some(inline) = unsafe { self.at.entry.inline_mut() } {
            let done = edit(inline);
            self.at.entry.set_modified();
            return Some(done);
        }
        match self.string() {
            StringRef::Rope(rope) if rope.as_single().is_some() => {}
            _ => return None,
        }
        let mut done = None;
        self.edit_rope(|rope| done = rope.single_mut().map(edit));
        done
    }

    /// The string that is edited.
    ///
    /// # Panics
    /// If it is none: whoever edits has looked at the type.
    pub fn string(&self) -> StringRef<'_> {
        self.at.entry.value().as_string().expect(STRING)
    }

    /// Changes an aggregate: `change` gets it, packed ones as a copy in `buffer`, which is handed back to be used again. `None`, and
    /// no change, if the value is of another type. A value that `change` left without elements is the caller's to remove.
    #[inline]
    pub fn edit<T: Kind, R>(&mut self, buffer: &mut Vec<u8>, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        let old = self.at.entry;
        let (value, place, before) = match old.lift_tree(T::TYPE) {
            Some((tree, place)) => {
                let before = tree.memory_bytes();
                (Aggregate::from_tree(tree), Some(place), before)
            }
            None => match old.lift_packed(T::TYPE, std::mem::take(buffer)) {
                Ok(value) => (value, None, 0),
                Err(unused) => {
                    *buffer = unused;
                    return None;
                }
            },
        };
        // Were `change` to unwind, both this value and the entry would own a tree.
        let bomb = place.map(|_| AbortOnUnwind);
        let mut value = T::of(value).expect("a value of the type that was asked for");
        let result = change(&mut value);
        std::mem::forget(bomb);
        // Mostly it has the form that it had: then it is written back to where it was.
        match (value.into_aggregate().into_parts(), place) {
            (Parts::Tree(tree), Some(place)) => {
                let after = tree.memory_bytes();
                // SAFETY: the entry is as it was, since `change` could not reach it; a value does not change its type.
                unsafe { put_tree_at(place, tree) };
                self.table.account(after, before);
            }
            (Parts::Tree(tree), None) => self.reallocate(Body::Tree(tree), before),
            (Parts::Packed(buf), place) => {
                let bytes = buf.view().bytes();
                if place.is_some() || !old.overwrite_packed(T::TYPE, bytes) {
                    self.reallocate(Body::Packed(T::TYPE, bytes), before);
                }
                *buffer = buf.into_buffer();
            }
        }
        self.table.note_fields(self.at.segment, self.at.entry, self.hash);
        Some(result)
    }

    /// Moves the entry to a new allocation with another body; what it had was lifted out, and took so many bytes, or was copied. Key,
    /// expiry and clock stay.
    #[inline(never)]
    fn reallocate(&mut self, body: Body<'_>, lifted: usize) {
        let old = self.at.entry;
        let before = old.size() + lifted;
        let (clock, epoch) = (Entry::new(old).clock(), old.epoch());
        let content = Content { body, expire_at_ms: old.expire_at_ms(), clock, modified: false, epoch };
        let new = RawEntry::allocate(old.key(), content);
        self.at.segment.set(self.at.index, self.hash.fingerprint(), new);
        old.free_shell();
        self.at.entry = new;
        self.table.account(new.memory_bytes(), before);
    }

    /// Changes a rope in place and accounts for its memory.
    fn edit_rope(&mut self, edit: impl FnOnce(&mut Rope)) -> usize {
        let before = self.at.entry.memory_bytes();
        // SAFETY: `self` is borrowed uniquely, and the reference is not used after `edit`.
        let rope = unsafe { self.at.entry.rope_mut() }.expect("the caller saw a rope");
        edit(rope);
        let len = rope.len();
        self.at.entry.set_modified();
        self.table.account(self.at.entry.memory_bytes(), before);
        len
    }

    /// Moves the entry to a new allocation with a changed content.
    fn rewrite<'v>(&mut self, change: impl FnOnce(&mut Content<'v>)) {
        let old = self.at.entry;
        let (before, before_ms) = (old.memory_bytes(), old.expire_at_ms());
        // SAFETY: inline bytes are copied into the new entry before the old shell is freed.
        let mut content = unsafe { old.take_content() };
        change(&mut content);
        let after_ms = content.expire_at_ms;
        let new = RawEntry::allocate(old.key(), content);
        self.at.segment.set(self.at.index, self.hash.fingerprint(), new);
        old.free_shell();
        self.at.entry = new;
        self.table.account(new.memory_bytes(), before);
        self.table.note_expire(self.at.segment, before_ms, after_ms, self.hash);
    }
}

/// Whoever edits a string has looked at the type.
const STRING: &str = "an aggregate is not edited as a string";

/// Ends the process if it is dropped: an unwinding edit would leave two owners of one value.
struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        std::process::abort();
    }
}
