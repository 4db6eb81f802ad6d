//! What clients ask: seeded, every value written once, five shapes of keys.
//!
//! | keys | written by | asked by readers with |
//! |---|---|---|
//! | `r:N` registers | SET, SET PXAT, DEL | GET |
//! | `c:CONNECTION` counters | INCR of that connection | GET |
//! | `l:ERA:N` lists | RPUSH; a new era begins after some hundred pushes, so that they stay short | LRANGE |
//! | `a:N`, `b:N` pairs | MSET, or MULTI … EXEC | MGET |
//! | `m:CONNECTION:STEP`, one at a time | RENAME of that connection's to the next step | GET |

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use super::history::{Action, Key, Place};
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
    /// Of each connection that writes: the steps that its value was told to move.
    moves: Vec<AtomicU64>,
    first_connection: u32,
}

impl Shared {
    /// So many keys of each shape, for so many connections that write, numbered from `first_connection`.
    pub fn new(keys: u64, first_connection: u32, writers: u32) -> Self {
        let moves = (0..writers).map(|_| AtomicU64::new(0)).collect();
        Self { keys, pushes: AtomicU64::new(0), moves, first_connection }
    }

    fn list(&self, random: &mut Random, is_push: bool) -> Key {
        let pushes = self.pushes.fetch_add(u64::from(is_push), Ordering::Relaxed);
        format!("l:{}:{}", pushes / ERA_PUSHES, random.below(4))
    }

    /// The next step of a connection's own value.
    fn next_step(&self, connection: u32) -> Place {
        let step = self.moves[self.nth(connection)].fetch_add(1, Ordering::Relaxed);
        Place { connection, step }
    }

    /// Where the value of a connection is, or was a moment ago, or will be.
    fn recent_step(&self, random: &mut Random) -> Place {
        let nth = random.below(u64::try_from(self.moves.len()).expect("a count"));
        let step = self.moves[crate::content::index(nth)].load(Ordering::Relaxed).saturating_sub(random.below(4));
        Place { connection: self.first_connection + u32::try_from(nth).expect("a connection"), step }
    }

    fn nth(&self, connection: u32) -> usize {
        usize::try_from(connection - self.first_connection).expect("small")
    }
}

/// One client's operations.
pub struct Workload<'a> {
    shared: &'a Shared,
    random: Random,
    connection: u32,
    sequence: u32,
    is_reader: bool,
}

impl<'a> Workload<'a> {
    /// The operations of a client: those that write are numbered as [`Shared::new`] was told, those that read come behind.
    pub fn new(shared: &'a Shared, seed: u64, connection: u32) -> Self {
        let random = Random::new(crate::random::mix(seed, u64::from(connection)));
        let is_reader = shared.nth(connection) >= shared.moves.len();
        Self { shared, random, connection, sequence: 0, is_reader }
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
            0..30 => Action::Set(self.register(), self.value(), None),
            30..35 => Action::Move(self.shared.next_step(self.connection)),
            35..40 => Action::Set(self.register(), self.value(), Some(self.deadline_ms())),
            40..50 => Action::Delete(self.register()),
            50..62 => Action::Increment(format!("c:{}", self.connection)),
            62..80 => Action::Push(self.shared.list(&mut self.random, true), self.value()),
            draw => Action::Pair(self.pair(), self.value(), draw < 90),
        }
    }

    fn read(&mut self) -> Action {
        match self.random.below(10) {
            0..4 => Action::Get(self.register()),
            4 => Action::Look(self.shared.recent_step(&mut self.random)),
            5 => {
                let first = self.shared.first_connection;
                let owner = u64::from(first) + self.random.below(u64::from(self.connection - first).max(1));
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
        let shared = Shared::new(20, 1, 2);
        let mut values = HashSet::new();
        let mut shapes = HashSet::new();
        for connection in 1..4 {
            let mut workload = Workload::new(&shared, 5, connection);
            for _ in 0..2000 {
                let (_, action) = workload.operation();
                shapes.insert(std::mem::discriminant(&action));
                if let Action::Set(_, value, _) | Action::Push(_, value) | Action::Pair(_, value, _) = action {
                    assert!(values.insert(value.clone()), "{value}");
                }
            }
        }
        assert_eq!(shapes.len(), 10);
    }
}
