//! [`Table`]: per-connection state of an engine, at the index that the worker's slab gave.
//!
//! A flat vector: the kernel's events carry index and generation, so a lookup is one bounds check and one compare.
//! An index that is reused while an event of its former owner is on its way meets a different generation.

use crate::ConnId;

/// The bits of a generation that fit beside an index and an operation in 64 bits of kernel user data.
const GENERATION_MASK: u32 = (1 << 24) - 1;

/// What an engine knows of each connection.
pub(crate) struct Table<T> {
    slots: Vec<Option<(u32, T)>>,
    len: usize,
}

impl<T> Table<T> {
    pub(crate) fn new() -> Table<T> {
        Table { slots: Vec::new(), len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// # Panics
    /// If the slot is taken: the worker reused an index before its connection was over.
    pub(crate) fn insert(&mut self, conn: ConnId, value: T) {
        let index = index(conn.index);
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || None);
        }
        assert!(self.slots[index].is_none(), "slot {index} reused while its connection is attached");
        self.slots[index] = Some((conn.generation, value));
        self.len += 1;
    }

    pub(crate) fn get(&self, conn: ConnId) -> Option<&T> {
        match self.slots.get(index(conn.index)) {
            Some(Some((generation, value))) if *generation == conn.generation => Some(value),
            _ => None,
        }
    }

    pub(crate) fn get_mut(&mut self, conn: ConnId) -> Option<&mut T> {
        match self.slots.get_mut(index(conn.index)) {
            Some(Some((generation, value))) if *generation == conn.generation => Some(value),
            _ => None,
        }
    }

    pub(crate) fn remove(&mut self, conn: ConnId) -> Option<T> {
        self.get(conn)?;
        self.len -= 1;
        self.slots[index(conn.index)].take().map(|(_, value)| value)
    }

    /// The full id of the connection that a token names, unless the token is stale.
    pub(crate) fn resolve(&self, token: Token) -> Option<ConnId> {
        match self.slots.get(index(token.index())) {
            Some(Some((generation, _))) if generation & GENERATION_MASK == token.generation() => {
                Some(ConnId { index: token.index(), generation: *generation })
            }
            _ => None,
        }
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten().map(|(_, value)| value)
    }

    pub(crate) fn ids(&self) -> Vec<ConnId> {
        let id = |(at, slot): (usize, &Option<(u32, T)>)| {
            let index = u32::try_from(at).ok()?;
            slot.as_ref().map(|(generation, _)| ConnId { index, generation: *generation })
        };
        self.slots.iter().enumerate().filter_map(id).collect()
    }
}

/// 64 bits of user data: index, 24 bits of generation, 8 bits of operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Token(pub(crate) u64);

impl Token {
    pub(crate) fn new(index: u32, generation: u32, operation: u8) -> Token {
        let generation = u64::from(generation & GENERATION_MASK);
        Token(u64::from(index) << 32 | generation << 8 | u64::from(operation))
    }

    pub(crate) fn conn(conn: ConnId, operation: u8) -> Token {
        Token::new(conn.index, conn.generation, operation)
    }

    pub(crate) fn index(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(crate) fn generation(self) -> u32 {
        (self.0 >> 8) as u32 & GENERATION_MASK
    }

    pub(crate) fn operation(self) -> u8 {
        self.0 as u8
    }
}

/// A `u32` is at most as wide as a pointer on every Linux this runs on.
fn index(index: u32) -> usize {
    const { assert!(size_of::<usize>() >= size_of::<u32>()) }
    index as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_slot_rejects_tokens_of_its_former_owner() {
        let mut table = Table::new();
        let old = ConnId { index: 3, generation: 0x0100_0007 };
        let new = ConnId { index: 3, generation: 0x0100_0008 };
        table.insert(old, "old");
        let token = Token::conn(old, 9);
        assert_eq!((token.index(), token.generation(), token.operation()), (3, 7, 9));
        assert_eq!(table.resolve(token), Some(old));
        assert_eq!(table.remove(new), None);
        assert_eq!(table.remove(old), Some("old"));
        assert_eq!(table.resolve(token), None);
        table.insert(new, "new");
        assert_eq!((table.resolve(token), table.len()), (None, 1));
        assert_eq!(table.get(old), None);
        assert_eq!(table.get_mut(new), Some(&mut "new"));
        assert_eq!(table.ids(), vec![new]);
    }

    #[test]
    #[should_panic(expected = "slot 0 reused")]
    fn a_taken_slot_is_not_overwritten() {
        let mut table = Table::new();
        table.insert(ConnId { index: 0, generation: 1 }, ());
        table.insert(ConnId { index: 0, generation: 2 }, ());
    }
}
