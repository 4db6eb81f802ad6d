//! Whether a recovered state is one that the acknowledged history allows: a pure function.
//!
//! An operation *ends* when its effect is known: when its answer was read, or when a reader was shown it. One operation is
//! *before* another if it ended before the other was invoked, or was sent earlier on the same connection. A recovered value
//! is wrong if its writer is before another write that was acknowledged (lost), or before a read that was acknowledged and
//! showed something else (observed, then lost). So nothing is asked of operations that ran at the same time.
//!
//! P7 is this same function with the state that was recovered first as the start of the second history; P8 is
//! [`judge`], which takes what the damage was.

mod moves;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::str::FromStr;

use self::moves::Movers;
use super::history::{Action, Answer, History, Key, Operation, Place, Recovered};

/// What a store that acknowledges writes promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Property {
    /// What was acknowledged is there.
    P1Durable,
    /// What was not is there whole or not at all; nothing else is there.
    P2Whole,
    /// What is there is a prefix of what each connection sent, and of each list.
    P3Prefix,
    /// What a reader was shown is there.
    P4Observed,
    /// Transactions are there whole or not at all.
    P5Atomic,
    /// What was deleted stays deleted; deadlines stay what they were.
    P6Deleted,
    /// What one recovery kept the next keeps.
    P7Again,
    /// Damage to what was durable is reported, never served; an ordinary cut is no damage.
    P8Honest,
}

impl Property {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::P1Durable,
        Self::P2Whole,
        Self::P3Prefix,
        Self::P4Observed,
        Self::P5Atomic,
        Self::P6Deleted,
        Self::P7Again,
        Self::P8Honest,
    ];
}

impl FromStr for Property {
    type Err = String;

    /// `P1` to `P8`.
    fn from_str(text: &str) -> Result<Self, String> {
        let is_it = |property: &Self| text.len() == 2 && format!("{property:?}").starts_with(text);
        Self::ALL.into_iter().find(is_it).ok_or_else(|| format!("there is no property {text:?}"))
    }
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub property: Property,
    /// Of what.
    pub key: Key,
    /// How.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}: {}", self.property, self.key, self.text)
    }
}

/// What starting a server on an image led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It serves this.
    Recovered(Recovered),
    /// It did not start; what it printed last.
    Refused(String),
}

/// What was done to the image beyond a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Nothing.
    None,
    /// Bytes that were durable were changed.
    BelowDurable,
}

/// All violations of one recovery: P1 to P6 by the history up to the cut, P8 by what was damaged.
pub fn judge(index: &Index<'_>, base: &Recovered, cut: u64, damage: Damage, outcome: &Outcome) -> Vec<Violation> {
    let honest = |text: String| Violation { property: Property::P8Honest, key: "(server)".to_owned(), text };
    match (outcome, damage) {
        (Outcome::Refused(text), Damage::None) => vec![honest(format!("did not start after a cut: {text}"))],
        (Outcome::Refused(_), Damage::BelowDurable) => Vec::new(),
        (Outcome::Recovered(state), Damage::None) => index.check(base, cut, state),
        (Outcome::Recovered(state), Damage::BelowDurable) => {
            let wrong = index.check(base, cut, state);
            wrong.into_iter().map(|lost| honest(format!("served in spite of the damage: {lost}"))).collect()
        }
    }
}

/// P7 in its simplest form: the same files, recovered again.
pub fn check_again(first: &Recovered, second: &Recovered) -> Vec<Violation> {
    let keys: BTreeSet<&Key> = first.values.keys().chain(second.values.keys()).collect();
    let differing = keys.into_iter().filter(|key| first.values.get(*key) != second.values.get(*key));
    let violation = |key: &Key| {
        let text = format!("{:?} became {:?}", first.values.get(key), second.values.get(key));
        Violation { property: Property::P7Again, key: key.clone(), text }
    };
    differing.map(violation).collect()
}

/// A history by key: made once, for all its cuts.
pub struct Index<'a> {
    by_key: BTreeMap<&'a Key, Vec<&'a Operation>>,
    pairs: Vec<&'a Operation>,
    pair_reads: Vec<&'a Operation>,
    movers: Movers<'a>,
}

impl<'a> Index<'a> {
    /// Sorts the operations.
    pub fn new(history: &'a History) -> Self {
        let mut by_key: HashMap<&Key, Vec<&Operation>> = HashMap::new();
        let (mut pairs, mut pair_reads, mut movers) = (Vec::new(), Vec::new(), Movers::default());
        for operation in &history.operations {
            for key in keys_of(&operation.action) {
                by_key.entry(key).or_default().push(operation);
            }
            match operation.action {
                Action::Pair(..) => pairs.push(operation),
                Action::GetPair(_) => pair_reads.push(operation),
                _ => movers.add(operation),
            }
        }
        movers.sort();
        Self { by_key: by_key.into_iter().collect(), pairs, pair_reads, movers }
    }

    /// P1 to P6 of a state recovered from a cut after `cut` operations of the file system, where `base` was there before
    /// the history began; what is lost of `base` breaks P7.
    pub fn check(&self, base: &Recovered, cut: u64, state: &Recovered) -> Vec<Violation> {
        let mut checker = Checker { cut, base, state, violations: Vec::new(), reflected: HashMap::new() };
        for (key, operations) in &self.by_key {
            checker.key(key, operations);
        }
        for key in base.values.keys().filter(|key| !self.by_key.contains_key(key) && Place::of_key(key).is_none()) {
            checker.key(key, &[]);
        }
        let is_known =
            |key: &&Key| self.by_key.contains_key(*key) || base.values.contains_key(*key) || self.movers.has(key);
        for key in state.values.keys().filter(|key| !is_known(key)) {
            checker.report(Property::P2Whole, key, "nobody wrote this key".to_owned());
        }
        checker.movers(&self.movers);
        checker.pairs(&self.pairs);
        self.pair_reads.iter().for_each(|read| checker.pair_was_read_whole(read));
        checker.prefixes();
        checker.violations
    }
}

/// Operations of one key.
#[derive(Default)]
struct KeyHistory<'a> {
    writes: Vec<&'a Operation>,
    reads: Vec<&'a Operation>,
    increments: Vec<&'a Operation>,
    pushes: Vec<&'a Operation>,
}

impl<'a> KeyHistory<'a> {
    fn add(&mut self, operation: &'a Operation) {
        match operation.action {
            Action::Set(..) | Action::Delete(_) | Action::Pair(..) => self.writes.push(operation),
            Action::Get(_) | Action::Range(_) | Action::GetPair(_) => self.reads.push(operation),
            Action::Increment(_) => self.increments.push(operation),
            Action::Push(..) => self.pushes.push(operation),
            Action::Move(_) | Action::Look(_) => unreachable!("they are listed apart"),
        }
    }
}

struct Checker<'a> {
    cut: u64,
    base: &'a Recovered,
    state: &'a Recovered,
    violations: Vec<Violation>,
    /// By connection: operations that are known to be reflected or known not to be.
    reflected: HashMap<u32, Vec<(u32, bool, &'a Key)>>,
}

/// A write to a register, or the state before all of them.
#[derive(Clone, Copy)]
struct Writer<'a> {
    operation: Option<&'a Operation>,
    value: Option<&'a str>,
    /// Tick at which its effect is known; none if it never was.
    end: Option<u64>,
    is_observed_only: bool,
}

impl Writer<'_> {
    /// Whether it certainly took effect before `other` did.
    fn is_before(&self, other: &Operation) -> bool {
        let is_earlier = self.end.is_some_and(|end| end < other.invoked.tick);
        is_earlier
            || self.operation.is_some_and(|own| own.connection == other.connection && own.sequence < other.sequence)
    }
}

impl<'a> Checker<'a> {
    fn report(&mut self, property: Property, key: &str, text: String) {
        self.violations.push(Violation { property, key: key.to_owned(), text });
    }

    /// An operation is there, or it is not. One that was refused is no gap in what its connection sent.
    fn reflect(&mut self, operation: &'a Operation, is_there: bool, key: &'a Key) {
        if is_there || !operation.is_refused() {
            self.reflected.entry(operation.connection).or_default().push((operation.sequence, is_there, key));
        }
    }

    fn key(&mut self, key: &'a Key, operations: &[&'a Operation]) {
        let mut of_key = KeyHistory::default();
        operations
            .iter()
            .filter(|operation| operation.is_invoked(self.cut))
            .for_each(|operation| of_key.add(operation));
        if !of_key.increments.is_empty() {
            self.counter(key, &of_key);
        } else if !of_key.pushes.is_empty() || !self.base.list(key).is_empty() {
            self.list(key, &of_key);
        } else {
            self.register(key, &of_key);
        }
    }

    fn register(&mut self, key: &'a Key, of_key: &KeyHistory<'a>) {
        let writers = self.writers(key, of_key);
        let found = self.state.text(key);
        if found.is_none() && self.state.values.contains_key(key) {
            return self.report(Property::P2Whole, key, "it is not a string".to_owned());
        }
        let mut candidates: Vec<Writer<'a>> = writers.iter().filter(|writer| writer.value == found).copied().collect();
        // The last is most likely the one.
        candidates.sort_by_key(|writer| std::cmp::Reverse(writer.end.unwrap_or(u64::MAX)));
        if candidates.is_empty() {
            let is_untouched = of_key.writes.is_empty() || found.is_none();
            let property = if is_untouched { Property::P7Again } else { Property::P2Whole };
            return self.report(property, key, format!("{found:?}: nobody wrote that"));
        }
        let mut reasons: Vec<(Property, String)> = Vec::new();
        for candidate in &candidates {
            match self.superseded(key, candidate, &writers, of_key) {
                None => {
                    self.deadline(key, candidate);
                    return self.note_register(key, &candidates, &writers);
                }
                Some(reason) => reasons.push(reason),
            }
        }
        let (property, text) = reasons.into_iter().max().expect("there was a candidate");
        self.report(property, key, text);
        self.note_register(key, &candidates, &writers);
    }

    fn writers(&self, key: &'a str, of_key: &KeyHistory<'a>) -> Vec<Writer<'a>> {
        let mut observed: HashMap<&str, u64> = HashMap::new();
        for read in &of_key.reads {
            if let Some((stamp, answer)) = read.acknowledged(self.cut)
                && let Some(value) = shown(key, &read.action, answer).flatten()
            {
                let tick = observed.entry(value).or_insert(stamp.tick);
                *tick = stamp.tick.min(*tick);
            }
        }
        let start = Writer { operation: None, value: self.base.text(key), end: Some(0), is_observed_only: false };
        let of_operations = of_key.writes.iter().map(|operation| {
            let value = match &operation.action {
                Action::Set(_, value, _) | Action::Pair(_, value, _) => Some(value.as_str()),
                _ => None,
            };
            let acknowledged = operation.acknowledged(self.cut).map(|(stamp, _)| stamp.tick);
            let seen = value.and_then(|value| observed.get(value).copied());
            let end = acknowledged.into_iter().chain(seen).min();
            Writer { operation: Some(operation), value, end, is_observed_only: acknowledged.is_none() && end.is_some() }
        });
        std::iter::once(start).chain(of_operations).collect()
    }

    /// Why `writer` cannot be the last one.
    fn superseded(
        &self,
        key: &str,
        writer: &Writer<'a>,
        writers: &[Writer<'a>],
        of_key: &KeyHistory<'a>,
    ) -> Option<(Property, String)> {
        for other in writers {
            let Some(operation) = other.operation.filter(|_| other.end.is_some()) else { continue };
            if writer.value == other.value || !writer.is_before(operation) {
                continue;
            }
            let property = match other.value {
                None => Property::P6Deleted,
                Some(_) if other.is_observed_only => Property::P4Observed,
                Some(_) => Property::P1Durable,
            };
            let (found, sought) = (brief(writer.value), brief(other.value));
            let how = if other.is_observed_only { "shown to a reader" } else { "acknowledged" };
            let (who, nth) = (operation.connection, operation.sequence);
            return Some((property, format!("holds {found}, but {sought} of {who}:{nth} came after it and was {how}")));
        }
        for read in &of_key.reads {
            if let Some((_, answer)) = read.acknowledged(self.cut)
                && let Some(seen) = shown(key, &read.action, answer)
                && seen != writer.value
                && writer.end.is_some_and(|end| end < read.invoked.tick)
            {
                let (found, seen) = (brief(writer.value), brief(seen));
                return Some((Property::P4Observed, format!("holds {found}, but a later reader was shown {seen}")));
            }
        }
        None
    }

    fn deadline(&mut self, key: &str, writer: &Writer<'a>) {
        let Some(found) = self.state.values.get(key) else { return };
        let expected = match writer.operation.map(|operation| &operation.action) {
            Some(Action::Set(_, _, deadline)) => *deadline,
            Some(_) => None,
            None => self.base.values.get(key).and_then(|value| value.deadline_ms),
        };
        if found.deadline_ms != expected {
            let text = format!("expires at {:?}, not at {expected:?}", found.deadline_ms);
            self.report(Property::P6Deleted, key, text);
        }
    }

    fn note_register(&mut self, key: &'a Key, candidates: &[Writer<'a>], writers: &[Writer<'a>]) {
        let [last] = candidates else { return };
        if let Some(operation) = last.operation {
            self.reflect(operation, true, key);
        }
        for operation in writers.iter().filter_map(|writer| writer.operation) {
            if last.is_before(operation) {
                self.reflect(operation, false, key);
            }
        }
    }

    fn counter(&mut self, key: &'a Key, of_key: &KeyHistory<'a>) {
        let text = self.state.text(key).unwrap_or("0");
        let Ok(found) = text.parse::<u64>() else {
            return self.report(Property::P2Whole, key, format!("holds {text:?}"));
        };
        let base = self.base.text(key).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let mut sent: Vec<&Operation> = of_key.increments.clone();
        sent.sort_by_key(|operation| operation.sequence);
        let total = base + u64::try_from(sent.len()).expect("a count");
        if found > total {
            self.report(Property::P2Whole, key, format!("counts {found}, but only {total} were sent"));
        }
        if found < base {
            self.report(Property::P7Again, key, format!("counts {found}, but {base} were recovered before"));
        }
        let acknowledged = sent.iter().filter_map(|operation| match operation.acknowledged(self.cut)?.1 {
            Answer::Count(count) => Some(*count),
            _ => None,
        });
        if let Some(count) = acknowledged.max().filter(|count| found < *count) {
            self.report(Property::P1Durable, key, format!("counts {found}, but {count} was acknowledged"));
        }
        let seen = of_key.reads.iter().filter_map(|read| match read.acknowledged(self.cut)?.1 {
            Answer::Value(Some(text)) => text.parse::<u64>().ok(),
            _ => None,
        });
        if let Some(count) = seen.max().filter(|count| found < *count) {
            self.report(Property::P4Observed, key, format!("counts {found}, but a reader was shown {count}"));
        }
        // Behind one that was refused nobody knows which is which.
        let certain = sent.into_iter().take_while(|operation| !operation.is_refused());
        for (nth, operation) in (base + 1..).zip(certain) {
            self.reflect(operation, nth <= found, key);
        }
    }

    fn list(&mut self, key: &'a Key, of_key: &KeyHistory<'a>) {
        let found = self.state.list(key);
        let base = self.base.list(key);
        let mut index: HashMap<&str, usize> = HashMap::new();
        for (at, value) in found.iter().enumerate() {
            if index.insert(value, at).is_some() {
                self.report(Property::P2Whole, key, format!("holds {value:?} twice"));
            }
        }
        if !found.starts_with(base) {
            self.report(Property::P7Again, key, format!("does not start with the {} recovered before", base.len()));
        }
        let mut known: HashSet<&str> = base.iter().map(String::as_str).collect();
        for operation in &of_key.pushes {
            let Action::Push(_, value) = &operation.action else { continue };
            known.insert(value);
            let at = index.get(value.as_str()).copied();
            self.reflect(operation, at.is_some(), key);
            match (operation.acknowledged(self.cut), at) {
                (Some(_), None) => {
                    self.report(
                        Property::P1Durable,
                        key,
                        format!("lacks {}, which was acknowledged", brief(Some(value))),
                    );
                }
                (Some((_, Answer::Count(len))), Some(at)) if usize::try_from(*len) != Ok(at + 1) => {
                    self.report(
                        Property::P3Prefix,
                        key,
                        format!("holds {value:?} at {at}, acknowledged as length {len}"),
                    );
                }
                _ => {}
            }
        }
        if let Some(value) = found.iter().find(|value| !known.contains(value.as_str())) {
            self.report(Property::P2Whole, key, format!("holds {value:?}, which nobody pushed"));
        }
        for read in &of_key.reads {
            if let Some((_, Answer::Values(seen))) = read.acknowledged(self.cut)
                && !found.starts_with(seen)
            {
                let missing = seen.iter().find(|value| !index.contains_key(value.as_str()));
                let property = if missing.is_some() { Property::P4Observed } else { Property::P3Prefix };
                self.report(property, key, format!("a reader was shown {} values; missing: {missing:?}", seen.len()));
            }
        }
    }

    fn pairs(&mut self, pairs: &[&'a Operation]) {
        let mut seen: HashSet<&[Key; 2]> = HashSet::new();
        let cut = self.cut;
        for operation in pairs.iter().filter(|operation| operation.is_invoked(cut)) {
            let Action::Pair(keys, ..) = &operation.action else { continue };
            let (first, second) = (self.state.text(&keys[0]), self.state.text(&keys[1]));
            if seen.insert(keys) && first != second {
                self.report(Property::P5Atomic, &keys[0], format!("holds {first:?}, {} holds {second:?}", keys[1]));
            }
        }
    }

    fn pair_was_read_whole(&mut self, operation: &Operation) {
        if let (Action::GetPair(keys), Some((_, Answer::Values(values)))) =
            (&operation.action, operation.acknowledged(self.cut))
            && values.first() != values.get(1)
        {
            self.report(Property::P5Atomic, &keys[0], format!("a reader was shown {values:?}"));
        }
    }

    fn prefixes(&mut self) {
        for (connection, mut known) in std::mem::take(&mut self.reflected) {
            known.sort_unstable();
            let Some((lost, _, lost_key)) = known.iter().find(|(_, is_there, _)| !is_there).copied() else { continue };
            let later = known.iter().rfind(|(sequence, is_there, _)| *is_there && *sequence > lost).copied();
            if let Some((sequence, _, key)) = later {
                let text = format!("{connection}:{sequence} is there, but {connection}:{lost} on {lost_key} is not");
                self.report(Property::P3Prefix, key, text);
            }
        }
    }
}

/// The start of a value: who wrote it stands there.
fn brief(value: Option<&str>) -> String {
    const LETTERS: usize = 24;
    match value {
        None => "nothing".to_owned(),
        Some(text) if text.len() <= LETTERS => format!("{text:?}"),
        Some(text) => format!("{:?}…", text.chars().take(LETTERS).collect::<String>()),
    }
}

/// What a read of this key showed; the outer `None` if it did not read it.
fn shown<'a>(key: &str, action: &Action, answer: &'a Answer) -> Option<Option<&'a str>> {
    match (action, answer) {
        (Action::Get(_), Answer::Value(value)) => Some(value.as_deref()),
        (Action::GetPair(keys), Answer::Values(values)) => {
            let at = keys.iter().position(|pair_key| pair_key == key)?;
            Some(values.get(at).map(String::as_str).filter(|value| !value.is_empty()))
        }
        _ => None,
    }
}

fn keys_of(action: &Action) -> &[Key] {
    match action {
        Action::Set(key, ..) | Action::Push(key, _) => std::slice::from_ref(key),
        Action::Delete(key) | Action::Get(key) | Action::Increment(key) | Action::Range(key) => {
            std::slice::from_ref(key)
        }
        Action::Pair(keys, ..) | Action::GetPair(keys) => keys,
        // By the value, not by its names.
        Action::Move(_) | Action::Look(_) => &[],
    }
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
