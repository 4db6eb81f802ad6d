//! What clients did and saw: the only thing that the checker believes.
//!
//! Every value is written once (`CONNECTION:SEQUENCE`), so that whoever reads one knows which operation wrote it.

use std::collections::BTreeMap;

/// A key, as text.
pub type Key = String;

/// A moment: in the order of the clients, and as a bound on what the file system had done by then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Drawn from one counter by all clients.
    pub tick: u64,
    /// Operations that the file system had done when it was drawn.
    pub position: u64,
}

/// What a client asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// `SET key value`, with `PXAT` if there is a deadline in ms.
    Set(Key, String, Option<u64>),
    /// `DEL key`
    Delete(Key),
    /// `GET key`
    Get(Key),
    /// `INCR key`, of a key that only this connection increments.
    Increment(Key),
    /// `RPUSH key value`
    Push(Key, String),
    /// `LRANGE key 0 -1`
    Range(Key),
    /// Both keys set to the value, by MSET, or, if true, by MULTI … EXEC. Such keys are written in no other way.
    Pair([Key; 2], String, bool),
    /// `MGET` of such a pair.
    GetPair([Key; 2]),
    /// The value of a connection moves one step, from its last name to the next: `RENAME`; at step 0 `SET`.
    Move(Place),
    /// `GET` of the value of a connection where it is after that step.
    Look(Place),
}

/// Where the value of a connection is after a step. Its name says both, so a value that is found says how often it has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Whose.
    pub connection: u32,
    /// How often it has moved.
    pub step: u64,
}

impl Place {
    /// The key.
    pub fn key(self) -> Key {
        format!("m:{}:{}", self.connection, self.step)
    }

    /// The place that this key names.
    pub fn of_key(key: &str) -> Option<Self> {
        let (connection, step) = key.strip_prefix("m:")?.split_once(':')?;
        Some(Self { connection: connection.parse().ok()?, step: step.parse().ok()? })
    }

    /// The value, which stays the same.
    pub fn value(self) -> String {
        format!("{}:moves", self.connection)
    }
}

/// What it was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done.
    Done,
    /// The number after an increment, or the length after a push.
    Count(u64),
    /// A value or its absence.
    Value(Option<String>),
    /// The values of a list, or the two of a pair with absence as the empty string.
    Values(Vec<String>),
    /// An error: it may have been done or not.
    Failed(String),
}

/// One operation of one client.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Who.
    pub connection: u32,
    /// Its number on the connection: the order of sending, in which a server executes.
    pub sequence: u32,
    /// Drawn before it was sent.
    pub invoked: Stamp,
    /// What it asked.
    pub action: Action,
    /// The answer, with a stamp drawn after its last byte was read.
    pub answer: Option<(Stamp, Answer)>,
}

impl Operation {
    /// Its answer, if that was read before the cut and is no error.
    pub fn acknowledged(&self, cut: u64) -> Option<(Stamp, &Answer)> {
        let (stamp, answer) = self.answer.as_ref()?;
        (stamp.position <= cut && !matches!(answer, Answer::Failed(_))).then_some((*stamp, answer))
    }

    /// Whether it was answered an error, at any time.
    pub fn is_refused(&self) -> bool {
        matches!(self.answer, Some((_, Answer::Failed(_))))
    }

    /// Whether the server may have seen it before the cut.
    pub fn is_invoked(&self, cut: u64) -> bool {
        self.invoked.position <= cut
    }
}

/// The operations of all clients, in any order.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// They.
    pub operations: Vec<Operation>,
}

/// What a server held after it recovered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// By key; only what exists.
    pub values: BTreeMap<Key, Value>,
}

/// A value and its deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The value.
    pub data: Data,
    /// When it expires, in ms since 1970.
    pub deadline_ms: Option<u64>,
}

/// What a key holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// A string.
    Text(String),
    /// A list.
    List(Vec<String>),
}

impl Recovered {
    /// The string at `key`; `None` if there is none.
    pub fn text(&self, key: &str) -> Option<&str> {
        match &self.values.get(key)?.data {
            Data::Text(text) => Some(text),
            Data::List(_) => None,
        }
    }

    /// The list at `key`, empty if there is none.
    pub fn list(&self, key: &str) -> &[String] {
        match self.values.get(key).map(|value| &value.data) {
            Some(Data::List(values)) => values,
            _ => &[],
        }
    }
}
