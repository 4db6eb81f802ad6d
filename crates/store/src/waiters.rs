//! Who waits for a key: kept with its shard, under the shard's lock.
//!
//! Finding a key empty and being listed here is one critical section, and so is making the key and looking here: nobody can fall
//! between them. Whoever no longer waits is not removed at once, as that would need the lock of every shard that it waits in; it is
//! passed over, and swept out when a list or the whole map has doubled since the last sweep. Dropped: unlisting at the end of a wait
//! (a timeout could not take the locks without waiting for them).

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use crate::types::Type;

/// Somebody who waits for one or more keys.
pub trait Waiter: Any + Send + Sync {
    /// Whether it still waits. Once false it stays false.
    fn is_waiting(&self) -> bool;

    /// Its place among all waiters: who came first is served first. Drawn under the lock of the keys it waits for.
    fn number(&self) -> u64;

    /// The type of value that can serve it.
    fn kind(&self) -> Type;

    /// Whether a change that leaves this at the key, a value of a type or none, concerns it.
    fn is_concerned(&self, there: Option<Type>) -> bool;
}

/// The waiters of each key of a database, in the order in which they came.
type ByKey = HashMap<Box<[u8]>, Vec<Arc<dyn Waiter>>>;

/// The waiters of one shard.
#[derive(Default)]
pub struct Waiters {
    databases: HashMap<usize, ByKey>,
    /// Waiters in all lists, with those that no longer wait.
    listed: usize,
    /// Sweep when this many are listed.
    sweep_at: usize,
}

/// No sweep below this many.
const SWEEP_MIN: usize = 64;

impl Waiters {
    /// Whether nobody is listed.
    pub fn is_empty(&self) -> bool {
        self.databases.is_empty()
    }

    /// Lists a waiter for a key, behind all that are there.
    pub fn add(&mut self, db: usize, key: &[u8], waiter: Arc<dyn Waiter>) {
        if self.listed >= self.sweep_at.max(SWEEP_MIN) {
            self.sweep();
        }
        let list = self.databases.entry(db).or_default().entry(Box::from(key)).or_default();
        debug_assert!(list.last().is_none_or(|last| last.number() <= waiter.number()));
        list.push(waiter);
        self.listed += 1;
    }

    /// Whether somebody waits for a key.
    pub fn waits(&self, db: usize, key: &[u8]) -> bool {
        self.list(db, key).iter().any(|waiter| waiter.is_waiting())
    }

    /// Whether somebody waits for a value of this type at a key.
    pub fn waits_for(&self, db: usize, key: &[u8], kind: Type) -> bool {
        self.list(db, key).iter().any(|waiter| waiter.kind() == kind && waiter.is_waiting())
    }

    /// The waiters of a key from this number on, oldest first.
    pub fn from_number(&self, db: usize, key: &[u8], number: u64) -> impl Iterator<Item = &Arc<dyn Waiter>> {
        let list = self.list(db, key);
        let from = list.partition_point(|waiter| waiter.number() < number);
        list[from..].iter().filter(|waiter| waiter.is_waiting())
    }

    /// Forgets the waiters of a key that no longer wait.
    pub fn sweep_key(&mut self, db: usize, key: &[u8]) {
        let Some(by_key) = self.databases.get_mut(&db) else { return };
        if let Some(list) = by_key.get_mut(key) {
            let before = list.len();
            list.retain(|waiter| waiter.is_waiting());
            self.listed -= before - list.len();
            if list.is_empty() {
                by_key.remove(key);
            }
        }
        if by_key.is_empty() {
            self.databases.remove(&db);
        }
    }

    /// The keys of a database that somebody waits for, or has waited for.
    pub fn keys(&self, db: usize) -> impl Iterator<Item = &[u8]> {
        self.databases.get(&db).into_iter().flat_map(HashMap::keys).map(|key| &**key)
    }

    fn list(&self, db: usize, key: &[u8]) -> &[Arc<dyn Waiter>] {
        self.databases.get(&db).and_then(|by_key| by_key.get(key)).map_or(&[], Vec::as_slice)
    }

    fn sweep(&mut self) {
        self.databases.retain(|_, by_key| {
            by_key.retain(|_, list| {
                list.retain(|waiter| waiter.is_waiting());
                !list.is_empty()
            });
            !by_key.is_empty()
        });
        self.listed = self.databases.values().flat_map(HashMap::values).map(Vec::len).sum();
        self.sweep_at = self.listed * 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    struct Test(u64, AtomicBool);

    impl Waiter for Test {
        fn is_waiting(&self) -> bool {
            self.1.load(Relaxed)
        }

        fn number(&self) -> u64 {
            self.0
        }

        fn kind(&self) -> Type {
            Type::List
        }

        fn is_concerned(&self, there: Option<Type>) -> bool {
            there == Some(Type::List)
        }
    }

    fn waiter(number: u64) -> Arc<Test> {
        Arc::new(Test(number, AtomicBool::new(true)))
    }

    fn numbers(waiters: &Waiters, from: u64) -> Vec<u64> {
        waiters.from_number(0, b"k", from).map(|waiter| waiter.number()).collect()
    }

    #[test]
    fn the_oldest_that_still_waits_comes_first() {
        let mut waiters = Waiters::default();
        let all: Vec<_> = (1..=4).map(waiter).collect();
        for one in &all {
            waiters.add(0, b"k", one.clone());
        }
        waiters.add(1, b"k", waiter(5));
        all[0].1.store(false, Relaxed);
        assert_eq!((numbers(&waiters, 0), numbers(&waiters, 3)), (vec![2, 3, 4], vec![3, 4]));
        all[1..].iter().for_each(|one| one.1.store(false, Relaxed));
        assert!(!waiters.waits(0, b"k") && waiters.waits(1, b"k"));
        waiters.sweep_key(0, b"k");
        assert_eq!((waiters.keys(0).count(), waiters.keys(1).count()), (0, 1));
    }

    /// Clients that time out on ever new keys leave nothing behind for long.
    #[test]
    fn lists_of_the_gone_do_not_pile_up() {
        let mut waiters = Waiters::default();
        for number in 0..100_000_u64 {
            let one = waiter(number);
            waiters.add(0, &number.to_le_bytes(), one.clone());
            one.1.store(false, Relaxed);
        }
        assert!(waiters.keys(0).count() <= 2 * SWEEP_MIN);
    }
}
