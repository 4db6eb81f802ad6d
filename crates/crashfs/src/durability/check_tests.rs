//! Histories that keep every promise, and for each promise histories that break it.

use super::super::history::{Data, Stamp, Value};
use super::*;

/// Builds a history: time is the number of calls, a position of the file system is ten of them.
#[derive(Default)]
struct Script {
    history: History,
    tick: u64,
    sequences: HashMap<u32, u32>,
}

impl Script {
    fn stamp(&mut self) -> Stamp {
        self.tick += 1;
        Stamp { tick: self.tick, position: self.tick * 10 }
    }

    /// Sends; the operation's place.
    fn send(&mut self, connection: u32, action: Action) -> usize {
        let sequence = self.sequences.entry(connection).or_default();
        *sequence += 1;
        let sequence = *sequence;
        let invoked = self.stamp();
        self.history.operations.push(Operation { connection, sequence, invoked, action, answer: None });
        self.history.operations.len() - 1
    }

    fn answer(&mut self, at: usize, answer: Answer) {
        let stamp = self.stamp();
        self.history.operations[at].answer = Some((stamp, answer));
    }

    fn done(&mut self, connection: u32, action: Action, answer: Answer) {
        let at = self.send(connection, action);
        self.answer(at, answer);
    }

    fn set(&mut self, key: &str, value: &str) {
        self.done(1, set(key, value), Answer::Done);
    }

    fn broken(&self, state: &Recovered) -> Vec<Property> {
        self.broken_at(u64::MAX, state)
    }

    fn broken_at(&self, cut: u64, state: &Recovered) -> Vec<Property> {
        self.broken_from(&Recovered::default(), cut, state)
    }

    fn broken_from(&self, base: &Recovered, cut: u64, state: &Recovered) -> Vec<Property> {
        let found: BTreeSet<_> =
            Index::new(&self.history).check(base, cut, state).iter().map(|lost| lost.property).collect();
        found.into_iter().collect()
    }
}

fn set(key: &str, value: &str) -> Action {
    Action::Set(key.to_owned(), value.to_owned(), None)
}

fn push(key: &str, value: &str) -> Action {
    Action::Push(key.to_owned(), value.to_owned())
}

fn pair(value: &str) -> Action {
    Action::Pair(["a".to_owned(), "b".to_owned()], value.to_owned(), true)
}

fn text(value: &str) -> Answer {
    Answer::Value(Some(value.to_owned()))
}

fn strings(values: &[&str]) -> Vec<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

fn texts(values: &[(&str, &str)]) -> Recovered {
    let value = |text: &str| Value { data: Data::Text(text.to_owned()), deadline_ms: None };
    Recovered { values: values.iter().map(|(key, text)| ((*key).to_owned(), value(text))).collect() }
}

fn list(values: &[&str]) -> Recovered {
    Recovered { values: [("l".to_owned(), Value { data: Data::List(strings(values)), deadline_ms: None })].into() }
}

use Property::*;

#[test]
fn p1_an_acknowledged_write_is_there() {
    let mut script = Script::default();
    script.set("k", "1:1");
    let after_first = script.tick * 10;
    script.set("k", "1:2");
    assert_eq!(script.broken(&texts(&[("k", "1:2")])), []);
    assert_eq!(script.broken(&texts(&[("k", "1:1")])), [P1Durable]);
    assert_eq!(script.broken(&texts(&[])), [P1Durable]);
    assert_eq!(script.broken_at(after_first, &texts(&[("k", "1:1")])), [], "the second came after the cut");
    assert_eq!(script.broken_at(0, &texts(&[])), []);
}

#[test]
fn p1_of_counters_and_lists() {
    let mut script = Script::default();
    script.done(1, Action::Increment("c".to_owned()), Answer::Count(1));
    script.done(1, Action::Increment("c".to_owned()), Answer::Count(2));
    script.send(1, Action::Increment("c".to_owned()));
    assert_eq!(script.broken(&texts(&[("c", "2")])), []);
    assert_eq!(script.broken(&texts(&[("c", "3")])), []);
    assert_eq!(script.broken(&texts(&[("c", "1")])), [P1Durable]);
    assert_eq!(script.broken(&texts(&[])), [P1Durable]);
    assert_eq!(script.broken(&texts(&[("c", "4")])), [P2Whole]);
    assert_eq!(script.broken(&texts(&[("c", "1x")])), [P2Whole]);
    let mut script = Script::default();
    script.done(1, push("l", "1:1"), Answer::Count(1));
    script.done(2, push("l", "2:1"), Answer::Count(2));
    assert_eq!(script.broken(&list(&["1:1", "2:1"])), []);
    assert_eq!(script.broken(&list(&["1:1"])), [P1Durable]);
    assert_eq!(script.broken(&list(&["2:1"])), [P1Durable, P3Prefix]);
}

#[test]
fn p2_what_was_not_acknowledged_is_there_whole_or_not_at_all() {
    let mut script = Script::default();
    script.set("k", "1:1");
    script.send(1, set("k", "1:2"));
    assert_eq!(script.broken(&texts(&[("k", "1:1")])), []);
    assert_eq!(script.broken(&texts(&[("k", "1:2")])), []);
    assert_eq!(script.broken(&texts(&[("k", "1:")])), [P2Whole]);
    assert_eq!(script.broken(&texts(&[("k", "1:1"), ("other", "x")])), [P2Whole]);
    assert_eq!(
        script.broken(&Recovered { values: [("k".to_owned(), list(&["x"]).values["l"].clone())].into() }),
        [P2Whole]
    );
    let mut script = Script::default();
    script.send(1, push("l", "1:1"));
    assert_eq!(script.broken(&list(&["1:1", "1:1"])), [P2Whole]);
    assert_eq!(script.broken(&list(&["x"])), [P2Whole]);
    script.done(1, set("k", "1:2"), Answer::Failed("MISCONF".to_owned()));
    assert_eq!(script.broken(&texts(&[])), [], "an error may mean either");
}

#[test]
fn p3_a_connection_is_reflected_up_to_a_point() {
    let mut script = Script::default();
    script.send(1, push("l", "1:1"));
    script.send(1, set("k", "1:2"));
    script.send(1, Action::Increment("c".to_owned()));
    let mut all = list(&["1:1"]);
    all.values.extend(texts(&[("k", "1:2"), ("c", "1")]).values);
    assert_eq!(script.broken(&all), []);
    assert_eq!(script.broken(&list(&["1:1"])), []);
    assert_eq!(script.broken(&texts(&[("k", "1:2"), ("c", "1")])), [P3Prefix]);
    assert_eq!(script.broken(&texts(&[("c", "1")])), [P3Prefix]);
    all.values.remove("k");
    assert_eq!(script.broken(&all), [P3Prefix], "the counter came after the register");
}

#[test]
fn p3_a_list_keeps_the_order_that_was_acknowledged() {
    let mut script = Script::default();
    let first = script.send(1, push("l", "1:1"));
    let second = script.send(2, push("l", "2:1"));
    script.answer(second, Answer::Count(1));
    script.answer(first, Answer::Count(2));
    assert_eq!(script.broken(&list(&["2:1", "1:1"])), []);
    assert_eq!(script.broken(&list(&["1:1", "2:1"])), [P3Prefix]);
}

#[test]
fn p4_what_a_reader_was_shown_is_there() {
    let mut script = Script::default();
    script.set("k", "1:1");
    script.send(1, set("k", "1:2"));
    script.done(2, Action::Get("k".to_owned()), text("1:2"));
    assert_eq!(script.broken(&texts(&[("k", "1:2")])), []);
    assert_eq!(script.broken(&texts(&[("k", "1:1")])), [P4Observed]);
    let mut script = Script::default();
    script.send(1, push("l", "1:1"));
    script.done(2, Action::Range("l".to_owned()), Answer::Values(strings(&["1:1"])));
    assert_eq!(script.broken(&list(&[])), [P4Observed]);
    let mut script = Script::default();
    script.send(1, Action::Increment("c".to_owned()));
    script.done(2, Action::Get("c".to_owned()), text("1"));
    assert_eq!(script.broken(&texts(&[])), [P4Observed]);
}

#[test]
fn p4_an_absence_that_was_shown_stays() {
    let mut script = Script::default();
    script.set("k", "1:1");
    script.send(1, Action::Delete("k".to_owned()));
    assert_eq!(script.broken(&texts(&[("k", "1:1")])), []);
    script.done(2, Action::Get("k".to_owned()), Answer::Value(None));
    assert_eq!(script.broken(&texts(&[("k", "1:1")])), [P4Observed]);
    assert_eq!(script.broken(&texts(&[])), []);
}

#[test]
fn p5_a_pair_is_there_whole_or_not_at_all() {
    let mut script = Script::default();
    script.done(1, pair("1:1"), Answer::Done);
    script.send(1, pair("1:2"));
    assert_eq!(script.broken(&texts(&[("a", "1:1"), ("b", "1:1")])), []);
    assert_eq!(script.broken(&texts(&[("a", "1:2"), ("b", "1:2")])), []);
    assert!(script.broken(&texts(&[("a", "1:2"), ("b", "1:1")])).contains(&P5Atomic));
    let keys = ["a".to_owned(), "b".to_owned()];
    script.done(2, Action::GetPair(keys), Answer::Values(strings(&["1:2", "1:1"])));
    assert!(script.broken(&texts(&[("a", "1:2"), ("b", "1:2")])).contains(&P5Atomic), "a torn read");
}

#[test]
fn p6_what_was_deleted_stays_deleted_and_deadlines_stay() {
    let mut script = Script::default();
    script.set("k", "1:1");
    script.done(1, Action::Delete("k".to_owned()), Answer::Done);
    assert_eq!(script.broken(&texts(&[])), []);
    assert_eq!(script.broken(&texts(&[("k", "1:1")])), [P6Deleted]);
    let mut script = Script::default();
    script.done(1, Action::Set("k".to_owned(), "1:1".to_owned(), Some(5000)), Answer::Done);
    let mut state = texts(&[("k", "1:1")]);
    assert_eq!(script.broken(&state), [P6Deleted], "the deadline was lost");
    state.values.get_mut("k").expect("there").deadline_ms = Some(5000);
    assert_eq!(script.broken(&state), []);
}

#[test]
fn p7_what_was_recovered_once_is_recovered_again() {
    let base = texts(&[("k", "1:1"), ("c", "4")]);
    let mut script = Script::default();
    script.done(3, Action::Increment("c".to_owned()), Answer::Count(5));
    assert_eq!(script.broken_from(&base, u64::MAX, &texts(&[("k", "1:1"), ("c", "5")])), []);
    assert_eq!(script.broken_from(&base, u64::MAX, &texts(&[("c", "5")])), [P7Again]);
    assert_eq!(script.broken_from(&base, 0, &texts(&[("k", "1:1"), ("c", "3")])), [P7Again]);
    script.set("k", "3:2");
    assert_eq!(script.broken_from(&base, u64::MAX, &texts(&[("k", "1:1"), ("c", "5")])), [P1Durable]);
    let listed = list(&["1:1", "1:2"]);
    assert_eq!(Script::default().broken_from(&listed, 0, &list(&["1:2"])), [P7Again]);
    assert_eq!(check_again(&base, &base), []);
    let differing = check_again(&base, &texts(&[("k", "1:1")]));
    assert_eq!(differing.iter().map(|lost| (lost.property, lost.key.as_str())).collect::<Vec<_>>(), [(P7Again, "c")]);
}

#[test]
fn p8_damage_is_refused_or_does_no_harm() {
    let mut script = Script::default();
    script.set("k", "1:1");
    let judged = |damage, outcome: &Outcome| {
        let found = judge(&Index::new(&script.history), &Recovered::default(), u64::MAX, damage, outcome);
        found.into_iter().map(|lost| lost.property).collect::<Vec<_>>()
    };
    let refused = Outcome::Refused("bad checksum".to_owned());
    assert_eq!(judged(Damage::BelowDurable, &refused), []);
    assert_eq!(judged(Damage::None, &refused), [P8Honest]);
    let whole = Outcome::Recovered(texts(&[("k", "1:1")]));
    assert_eq!(judged(Damage::BelowDurable, &whole), []);
    let lost = Outcome::Recovered(texts(&[]));
    assert_eq!(judged(Damage::BelowDurable, &lost), [P8Honest]);
    assert_eq!(judged(Damage::None, &lost), [P1Durable]);
}

#[test]
fn operations_that_ran_at_the_same_time_may_come_in_any_order() {
    let mut script = Script::default();
    let first = script.send(1, set("k", "1:1"));
    let second = script.send(2, set("k", "2:1"));
    let third = script.send(3, Action::Delete("k".to_owned()));
    for at in [third, second, first] {
        script.answer(at, Answer::Done);
    }
    for state in [texts(&[("k", "1:1")]), texts(&[("k", "2:1")]), texts(&[])] {
        assert_eq!(script.broken(&state), [], "{state:?}");
    }
    // A reader that came after all of them settles it.
    script.done(4, Action::Get("k".to_owned()), text("2:1"));
    assert_eq!(script.broken(&texts(&[("k", "1:1")])), [P4Observed]);
    assert_eq!(script.broken(&texts(&[])), [P4Observed]);
    assert_eq!(script.broken(&texts(&[("k", "2:1")])), []);
}

#[test]
fn properties_are_named_by_their_numbers() {
    let named: Vec<Property> = (1..=8).map(|nth| format!("P{nth}").parse().expect("a property")).collect();
    assert_eq!(named, Property::ALL);
    for wrong in ["", "P", "P9", "P1Durable", "p1"] {
        assert!(wrong.parse::<Property>().is_err(), "{wrong:?}");
    }
}

/// A full disk refuses some of what a connection sends, and takes what it sends later.
#[test]
fn what_was_refused_is_no_gap() {
    let refused = || Answer::Failed("MISCONF".to_owned());
    let mut script = Script::default();
    script.set("k", "1:1");
    script.done(1, set("j", "1:2"), refused());
    script.done(1, push("l", "1:3"), refused());
    script.done(1, Action::Increment("c".to_owned()), refused());
    script.done(1, Action::Increment("c".to_owned()), Answer::Count(1));
    script.set("k", "1:6");
    assert_eq!(script.broken(&texts(&[("k", "1:6"), ("c", "1")])), []);
    assert_eq!(script.broken(&texts(&[("k", "1:6"), ("c", "1"), ("j", "1:2")])), [], "it may have been done");
    assert_eq!(script.broken(&texts(&[("k", "1:6")])), [P1Durable]);
    // One that was not answered is.
    script.send(1, set("j", "1:7"));
    script.set("k", "1:8");
    assert_eq!(script.broken(&texts(&[("k", "1:8"), ("c", "1")])), [P3Prefix]);
}

fn moved(step: u64) -> Action {
    Action::Move(Place { connection: 1, step })
}

fn look(step: u64) -> Action {
    Action::Look(Place { connection: 1, step })
}

#[test]
fn a_value_that_is_renamed_is_in_one_place_and_not_behind_what_was_acknowledged_or_shown() {
    let mut script = Script::default();
    script.done(1, moved(0), Answer::Done);
    script.done(1, moved(1), Answer::Done);
    script.send(1, moved(2));
    script.send(1, moved(3));
    let at = |steps: &[u64]| {
        let keys: Vec<String> = steps.iter().map(|step| format!("m:1:{step}")).collect();
        texts(&keys.iter().map(|key| (key.as_str(), "1:moves")).collect::<Vec<_>>())
    };
    for (steps, broken) in [
        (&[1][..], &[][..]),
        (&[3], &[]),
        (&[0], &[P1Durable]),
        (&[], &[P5Atomic]),
        (&[1, 2], &[P5Atomic]),
        (&[4], &[P2Whole]),
    ] {
        assert_eq!(script.broken(&at(steps)), broken, "{steps:?}");
    }
    assert_eq!(script.broken(&texts(&[("m:1:1", "another")])), [P2Whole]);
    assert_eq!(script.broken(&texts(&[("m:1:1", "1:moves"), ("m:2:0", "2:moves")])), [P2Whole], "nobody wrote that");
    // A reader saw it come to 2; another one that it was no longer there.
    script.done(7, look(2), text("1:moves"));
    assert_eq!(script.broken(&at(&[1])), [P4Observed]);
    assert_eq!(script.broken(&at(&[2])), []);
    script.answer(2, Answer::Done);
    script.done(7, look(2), Answer::Value(None));
    assert_eq!(script.broken(&at(&[2])), [P4Observed]);
    assert_eq!(script.broken(&at(&[3])), []);
    // The next life's connections are others.
    assert_eq!(Script::default().broken_from(&at(&[3]), u64::MAX, &at(&[3])), []);
    assert_eq!(Script::default().broken_from(&at(&[3]), u64::MAX, &at(&[2])), [P2Whole, P7Again]);
    assert_eq!(Script::default().broken_from(&at(&[3]), u64::MAX, &at(&[])), [P7Again]);
}

#[test]
fn a_rename_that_was_refused_ends_what_is_known() {
    let mut script = Script::default();
    script.done(1, moved(0), Answer::Done);
    script.done(1, moved(1), Answer::Failed("MISCONF".to_owned()));
    script.done(1, moved(2), Answer::Failed("ERR no such key".to_owned()));
    script.send(1, moved(3));
    script.done(1, set("k", "1:5"), Answer::Done);
    assert_eq!(script.broken(&texts(&[("m:1:0", "1:moves"), ("k", "1:5")])), []);
    assert_eq!(script.broken(&texts(&[("m:1:1", "1:moves"), ("k", "1:5")])), [], "it may have been done");
}
