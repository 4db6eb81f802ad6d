//! What clients ask: seeded, every value written once, four shapes of keys.
//!
//! | keys | written by | asked by readers with |
//! |---|---|---|
//! | `r:N` registers | SET, SET PXAT, DEL | GET |
//! | `c:CONNECTION` counters | INCR of that connection | GET |
//! | `l:ERA:N` lists | RPUSH; a new era begins after some hundred pushes, so that they stay short | LRANGE |
//! | `a:N`, `b:N` pairs | MSET, or MULTI … EXEC | MGET |

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use super::history::{Action, Key};
use crate::random::Random;

/// Pushes of all clients together in one era of lists.
const ERA_PUSHES: u64 = 400;

/// How far in the future deadlines lie: no test runs as long.
const DEADLINE: Duration = Duration::from_secs(36_000);

/// What all clients of a run share.
#[derive(Debug)]
pub struct Shared {
    /// Keys of each shape.
    pub keys: u64,
    pushes: AtomicU64,
}

impl Shared {
    /// So many keys of each shape.
    pub fn new(keys: u64) -> Self {
        Self { keys, pushes: AtomicU64::new(0) }
    }

    fn list(&self, random: &mut Random, is_push: bool) -> Key {
        let pushes = self.pushes.fetch_add(u64::from(is_push), Ordering::Relaxed);
        format!("l:{}:{}", pushes / ERA_PUSHES, random.below(4))
    }
}

/// One client's operations.
pub struct Workload<'a> {
    shared: &'a Shared,
    random: Random,
    connection: u32,
    first_counter: u32,
    sequence: u32,
    is_reader: bool,
}

impl<'a> Workload<'a> {
    /// The operations of a client that writes, or of one that reads; counters belong to connections from
    /// `first_counter` on.
    pub fn new(shared: &'a Shared, seed: u64, connection: u32, first_counter: u32, is_reader: bool) -> Self {
        let random = Random::new(crate::random::mix(seed, u64::from(connection)));
        Self { shared, random, connection, first_counter, sequence: 0, is_reader }
    }

    /// The next operation and its number.
    pub fn operation(&mut self) -> (u32, Action) {
        self.sequence += 1;
        let action = if self.is_reader { self.read() } else { self.write() };
        (self.sequence, action)
    }

    /// How many to send at once.
    pub fn pipeline(&mut self, at_most: u64) -> u64 {
        1 + self.random.below(at_most)
    }

    fn write(&mut self) -> Action {
        match self.random.below(100) {
            0..35 => Action::Set(self.register(), self.value(), None),
            35..40 => Action::Set(self.register(), self.value(), Some(self.deadline_ms())),
            40..50 => Action::Delete(self.register()),
            50..62 => Action::Increment(format!("c:{}", self.connection)),
            62..80 => Action::Push(self.shared.list(&mut self.random, true), self.value()),
            draw => Action::Pair(self.pair(), self.value(), draw < 90),
        }
    }

    fn read(&mut self) -> Action {
        match self.random.below(10) {
            0..5 => Action::Get(self.register()),
            5 => {
                let owner = u64::from(self.first_counter)
                    + self.random.below(u64::from(self.connection - self.first_counter).max(1));
                Action::Get(format!("c:{owner}"))
            }
            6..8 => Action::GetPair(self.pair()),
            _ => Action::Range(self.shared.list(&mut self.random, false)),
        }
    }

    fn register(&mut self) -> Key {
        format!("r:{}", self.random.below(self.shared.keys))
    }

    fn pair(&mut self) -> [Key; 2] {
        let nth = self.random.below(self.shared.keys);
        [format!("a:{nth}"), format!("b:{nth}")]
    }

    /// Unlike any other; of many lengths, so that records end everywhere in a sector.
    fn value(&mut self) -> String {
        let padding = if self.random.one_in(50) { 2000 } else { self.random.below(120) };
        let padding = usize::try_from(padding).expect("small");
        format!("{}:{}:{}", self.connection, self.sequence, "x".repeat(padding))
    }

    fn deadline_ms(&mut self) -> u64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from((now + DEADLINE).as_millis()).expect("milliseconds") + self.random.below(1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_value_is_written_once_and_every_shape_appears() {
        let shared = Shared::new(20);
        let mut values = HashSet::new();
        let mut shapes = HashSet::new();
        for connection in 1..4 {
            let mut workload = Workload::new(&shared, 5, connection, 1, connection == 3);
            for _ in 0..2000 {
                let (_, action) = workload.operation();
                shapes.insert(std::mem::discriminant(&action));
                if let Action::Set(_, value, _) | Action::Push(_, value) | Action::Pair(_, value, _) = action {
                    assert!(values.insert(value.clone()), "{value}");
                }
            }
        }
        assert_eq!(shapes.len(), 8);
    }
}
