//! RENAME: each connection has one value, which it alone moves from name to name. So its moves have an order, the name under which the
//! value is found says how many of them are there, and it must be found under exactly one.

use std::collections::BTreeMap;

use super::super::history::{Data, Place, Value};
use super::{Action, Answer, Checker, Key, Operation, Property, Recovered};

/// What was asked of one connection's value.
pub(super) struct Moves<'a> {
    /// What to call it.
    name: Key,
    /// Its moves, in order.
    moves: Vec<(u64, &'a Operation)>,
    looks: Vec<(u64, &'a Operation)>,
}

/// By connection.
#[derive(Default)]
pub(super) struct Movers<'a>(BTreeMap<u32, Moves<'a>>);

impl<'a> Movers<'a> {
    /// Takes an operation, if it is about such a value.
    pub(super) fn add(&mut self, operation: &'a Operation) {
        let (Action::Move(place) | Action::Look(place)) = operation.action else { return };
        let new = || Moves { name: format!("m:{}", place.connection), moves: Vec::new(), looks: Vec::new() };
        let moves = self.0.entry(place.connection).or_insert_with(new);
        match operation.action {
            Action::Move(_) => moves.moves.push((place.step, operation)),
            _ => moves.looks.push((place.step, operation)),
        }
    }

    /// In order of their steps.
    pub(super) fn sort(&mut self) {
        self.0.values_mut().for_each(|moves| moves.moves.sort_by_key(|(step, _)| *step));
    }

    /// Whether the value of this key's connection was moved or looked at; `false` for other keys.
    pub(super) fn has(&self, key: &str) -> bool {
        Place::of_key(key).is_some_and(|place| self.0.contains_key(&place.connection))
    }
}

impl<'a> Checker<'a> {
    /// The values that move.
    pub(super) fn movers(&mut self, movers: &'a Movers<'a>) {
        let before = places(self.base);
        let found = places(self.state);
        for (connection, steps) in &before {
            let now = found.get(connection).map_or(&[][..], Vec::as_slice);
            if !movers.0.contains_key(connection) && now != steps.as_slice() {
                let text = format!("was after step {steps:?}, is after {now:?}");
                self.report(Property::P7Again, &format!("m:{connection}"), text);
            }
        }
        for (connection, moves) in &movers.0 {
            self.moves(moves, found.get(connection).map_or(&[], Vec::as_slice));
        }
        for (key, value) in &self.state.values {
            let Some(place) = Place::of_key(key) else { continue };
            if *value != (Value { data: Data::Text(place.value()), deadline_ms: None }) {
                self.report(Property::P2Whole, key, format!("holds {value:?}"));
            }
        }
    }

    fn moves(&mut self, moves: &'a Moves<'a>, found: &[u64]) {
        let Moves { name, .. } = moves;
        let sent: Vec<_> = moves.moves.iter().filter(|(_, operation)| operation.is_invoked(self.cut)).collect();
        let acknowledged = sent.iter().filter(|(_, operation)| operation.acknowledged(self.cut).is_some());
        let acknowledged = acknowledged.map(|(step, _)| *step).max();
        let observed = moves.looks.iter().filter_map(|(step, look)| self.observed(moves, *step, look)).max();
        let step = match found {
            [] if acknowledged.max(observed).is_none() => return,
            [] if sent.len() > 1 => {
                return self.report(Property::P5Atomic, name, "is nowhere: renamed, and not there".to_owned());
            }
            [] => return self.report(Property::P1Durable, name, "is not there".to_owned()),
            [step] => *step,
            steps => return self.report(Property::P5Atomic, name, format!("is there after steps {steps:?}")),
        };
        if sent.last().is_none_or(|(last, _)| *last < step) {
            self.report(Property::P2Whole, name, format!("is after step {step}, which nobody asked for"));
        }
        if let Some(acknowledged) = acknowledged.filter(|acknowledged| step < *acknowledged) {
            let text = format!("is after step {step}, but {acknowledged} was acknowledged");
            self.report(Property::P1Durable, name, text);
        }
        if let Some(observed) = observed.filter(|observed| step < *observed) {
            self.report(
                Property::P4Observed,
                name,
                format!("is after step {step}, but a reader saw it after {observed}"),
            );
        }
        // Behind one that was refused there is nothing to rename.
        for (nth, operation) in sent.into_iter().take_while(|(_, operation)| !operation.is_refused()) {
            self.reflect(operation, *nth <= step, name);
        }
    }

    /// The least step after which the value was when a reader was shown it, or its absence where it was known to have been.
    fn observed(&self, moves: &Moves<'_>, step: u64, look: &Operation) -> Option<u64> {
        match look.acknowledged(self.cut)?.1 {
            Answer::Value(Some(_)) => Some(step),
            Answer::Value(None) => {
                let (_, came) = moves.moves.iter().find(|(nth, _)| *nth == step)?;
                let (stamp, _) = came.acknowledged(self.cut)?;
                (stamp.tick < look.invoked.tick).then_some(step + 1)
            }
            _ => None,
        }
    }
}

/// By connection: the steps after which its value is there.
fn places(state: &Recovered) -> BTreeMap<u32, Vec<u64>> {
    let mut places: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for place in state.values.keys().filter_map(|key| Place::of_key(key)) {
        places.entry(place.connection).or_default().push(place.step);
    }
    places
}
