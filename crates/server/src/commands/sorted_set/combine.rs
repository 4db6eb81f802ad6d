//! ZUNION, ZINTER and ZDIFF, their forms that store, and ZINTERCARD. Sets take part with a score of 1 for each member.

use super::read::put_header;
use super::{Whole, limits, record, sorted, store, write_scored};
use crate::args::Args;
use crate::dispatch::SYNTAX;
use crate::double;
use crate::exec::{Continuation, Exec, LockedMany, Outcome, ReplyError, Stop, WRONG_TYPE, error};
use crate::kept::Kept;
use crate::{offload, streamed};
use gimmal_store::ValueRef;
use gimmal_store::types::{Limits, Scored, Set, SortedSet};
use std::collections::HashMap;
use std::sync::Arc;

/// What is done with the sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Union,
    Inter,
    Diff,
}

/// What becomes of a member's scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

/// A form of the command.
#[derive(Clone, Copy)]
struct Form {
    name: &'static str,
    operation: Operation,
    /// Argument of the number of keys; before it is the destination, if there is one.
    at: usize,
    /// Only their number is answered.
    counts: bool,
}

pub(super) fn zunion(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    combine(exec, args, Form { name: "zunion", operation: Operation::Union, at: 1, counts: false })
}

pub(super) fn zinter(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    combine(exec, args, Form { name: "zinter", operation: Operation::Inter, at: 1, counts: false })
}

pub(super) fn zdiff(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    combine(exec, args, Form { name: "zdiff", operation: Operation::Diff, at: 1, counts: false })
}

pub(super) fn zintercard(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    combine(exec, args, Form { name: "zintercard", operation: Operation::Inter, at: 1, counts: true })
}

pub(super) fn zunionstore(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    combine(exec, args, Form { name: "zunionstore", operation: Operation::Union, at: 2, counts: false })
}

pub(super) fn zinterstore(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    combine(exec, args, Form { name: "zinterstore", operation: Operation::Inter, at: 2, counts: false })
}

pub(super) fn zdiffstore(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    combine(exec, args, Form { name: "zdiffstore", operation: Operation::Diff, at: 2, counts: false })
}

/// What stands behind the keys.
struct Options {
    /// One for each key, or none: all 1.
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
    /// Members to count at most; 0 for all.
    limit: usize,
}

fn combine(exec: &mut Exec<'_>, args: &Args<'_>, form: Form) -> Outcome {
    let count = args.int(form.at)?;
    if count < 1 {
        return Err(format!("ERR at least 1 input key is needed for '{}' command", form.name).into());
    }
    let first = form.at + 1;
    let count = usize::try_from(count).ok().filter(|count| *count <= args.len() - first).ok_or(SYNTAX)?;
    // A key of another type is told of before a fault in the options, as in Redis.
    let options = Options::parse(args, first + count, count, form);
    let names = args.rest(first).take(count);
    let limits = limits(exec);
    // The destination, if there is one, is the last of the keys.
    let mut keys = exec.lock_all(names.chain((form.at == 2).then(|| args.at(1))))?;
    let mut sources = sources(exec, &mut keys, count)?;
    let options = options?;
    for (source, weight) in sources.iter_mut().zip(&options.weights) {
        source.weight = *weight;
    }
    in_order(form, &mut sources);
    if offload::is_due(exec, work(form, &sources)) {
        drop(keys);
        let (kept, tries) = (exec.keep(args), exec.local.begun_anew);
        return offload::start(exec, move || {
            let done = Some(compute(form, &options, &sources, limits));
            Box::new(Computed { kept, form, with_scores: options.with_scores, count, sources, done, tries })
        });
    }
    if form.at == 1 && !form.counts {
        let members = members(form.operation, options.aggregate, &sources);
        put_header(&mut exec.reply, members.len(), options.with_scores);
        members.iter().for_each(|found| write_scored(&mut exec.reply, *found, options.with_scores));
        return Ok(());
    }
    let done = compute(form, &options, &sources, limits);
    // Shared trees would be copied where they are changed.
    drop(sources);
    match form.at {
        1 => answer(exec, options.with_scores, done),
        _ => {
            put_in_place(exec, args, &mut keys, form, done);
            Ok(())
        }
    }
}

/// The order in which sources are taken: the smallest is walked and the others are asked, or fewer scores are added to more.
fn in_order(form: Form, sources: &mut [Source]) {
    if form.operation != Operation::Diff {
        sources.sort_by_key(|source| source.len());
    }
}

/// About how many members are looked at, of sources in order.
fn work(form: Form, sources: &[Source]) -> usize {
    let first = sources.first().map_or(0, Source::len);
    match form.operation {
        Operation::Union => sources.iter().map(Source::len).sum(),
        Operation::Inter | Operation::Diff => first * sources.len(),
    }
}

/// What came out.
enum Done {
    Counted(usize),
    Members(SortedSet),
}

fn compute(form: Form, options: &Options, sources: &[Source], limits: Limits) -> Done {
    if form.counts {
        let (mut found, limit) = (0, if options.limit == 0 { usize::MAX } else { options.limit });
        intersect(sources, options.aggregate, |_, _| {
            found += 1;
            found < limit
        });
        return Done::Counted(found);
    }
    Done::Members(sorted(&members(form.operation, options.aggregate, sources), limits))
}

/// The members of the result, in order.
fn members(operation: Operation, aggregate: Aggregate, sources: &[Source]) -> Vec<Scored<'_>> {
    let mut members: Vec<Scored<'_>> = Vec::new();
    match operation {
        Operation::Union => members = united(sources, aggregate),
        Operation::Inter => intersect(sources, aggregate, |member, score| {
            members.push(Scored { member, score });
            true
        }),
        Operation::Diff => members = difference(sources),
    }
    members.sort_unstable_by(Scored::order);
    members
}

fn answer(exec: &mut Exec<'_>, with_scores: bool, done: Done) -> Outcome {
    match done {
        Done::Counted(found) => {
            exec.reply.put().count(found);
            Ok(())
        }
        Done::Members(set) => {
            let whole = Whole::new(set.view(), 0..set.view().len(), false, with_scores);
            put_header(&mut exec.reply, whole.len(), with_scores);
            streamed::elements(exec, 0..whole.len(), whole)
        }
    }
}

/// Stores a result at the last of the keys.
fn put_in_place(exec: &mut Exec<'_>, args: &Args<'_>, keys: &mut LockedMany<'_>, form: Form, done: Done) {
    let Done::Members(result) = done else { unreachable!("what is counted is not stored") };
    let last = keys.len() - 1;
    let stored =
        store(exec, keys.key(last), args.at(1), form.name, Some(result), |exec, key, _| record(exec, key, args, 1));
    exec.reply.put().count(stored);
}

/// A result that a thread has computed.
struct Computed {
    kept: Arc<Kept>,
    form: Form,
    with_scores: bool,
    /// Number of sources.
    count: usize,
    /// In the order of [`in_order`].
    sources: Vec<Source>,
    done: Option<Done>,
    tries: u32,
}

impl Continuation for Computed {
    fn step(&mut self, exec: &mut Exec<'_>) -> Result<bool, Stop> {
        let args = self.kept.args();
        let mut done = || self.done.take().expect("a result is used once");
        if self.form.at == 1 {
            return answer(exec, self.with_scores, done()).map(|()| true);
        }
        let names = args.rest(self.form.at + 1).take(self.count);
        let mut keys = exec.lock_all(names.chain([args.at(1)]))?;
        let mut now = sources(exec, &mut keys, self.count)?;
        in_order(self.form, &mut now);
        if now.iter().zip(&self.sources).all(|(now, then)| now.members.is_same(&then.members)) {
            drop(now);
            put_in_place(exec, &args, &mut keys, self.form, done());
            return Ok(true);
        }
        drop(keys);
        offload::anew(exec, self.tries, |exec| combine(exec, &args, self.form))
    }
}

impl Options {
    fn parse(args: &Args<'_>, from: usize, keys: usize, form: Form) -> Result<Options, ReplyError> {
        let mut options = Options { weights: Vec::new(), aggregate: Aggregate::Sum, with_scores: false, limit: 0 };
        let scored = form.operation != Operation::Diff && !form.counts;
        let mut i = from;
        while i < args.len() {
            let left = args.len() - i;
            if scored && left > keys && args.is(i, "weights") {
                const NO_WEIGHT: ReplyError = error("ERR weight value is not a float");
                let weights = (i + 1..=i + keys).map(|i| double::parse(args.at(i)).ok_or(NO_WEIGHT));
                options.weights = weights.collect::<Result<_, _>>()?;
                i += keys + 1;
            } else if scored && left >= 2 && args.is(i, "aggregate") {
                options.aggregate = match args.at(i + 1) {
                    word if word.eq_ignore_ascii_case(b"sum") => Aggregate::Sum,
                    word if word.eq_ignore_ascii_case(b"min") => Aggregate::Min,
                    word if word.eq_ignore_ascii_case(b"max") => Aggregate::Max,
                    _ => return Err(SYNTAX),
                };
                i += 2;
            } else if form.at == 1 && !form.counts && args.is(i, "withscores") {
                options.with_scores = true;
                i += 1;
            } else if form.counts && left >= 2 && args.is(i, "limit") {
                const NEGATIVE: ReplyError = error("ERR LIMIT can't be negative");
                let limit = crate::args::parse_int(args.at(i + 1)).ok_or(NEGATIVE)?;
                options.limit = usize::try_from(limit).map_err(|_| NEGATIVE)?;
                i += 2;
            } else {
                return Err(SYNTAX);
            }
        }
        Ok(options)
    }
}

/// A set that takes part, as it is while the keys are locked: small ones are copied, large ones shared.
struct Source {
    members: Members,
    weight: f64,
}

enum Members {
    SortedSet(SortedSet),
    Set(Set),
}

impl Members {
    fn is_same(&self, other: &Members) -> bool {
        match (self, other) {
            (Members::SortedSet(set), Members::SortedSet(other)) => set.view().is_same(other.view()),
            (Members::Set(set), Members::Set(other)) => set.view().is_same(other.view()),
            _ => false,
        }
    }
}

/// The sets at the first keys; missing ones are empty.
fn sources(exec: &mut Exec<'_>, keys: &mut LockedMany<'_>, count: usize) -> Result<Vec<Source>, Stop> {
    let source = |i| {
        let members = match exec.read(keys.key(i)).map(|entry| entry.value()) {
            Some(ValueRef::SortedSet(set)) => Members::SortedSet(set.to_owned()),
            Some(ValueRef::Set(set)) => Members::Set(set.to_owned()),
            Some(_) => return Err(Stop::Error(WRONG_TYPE)),
            None => Members::SortedSet(SortedSet::empty_in(Vec::new())),
        };
        Ok(Source { members, weight: 1.0 })
    };
    (0..count).map(source).collect()
}

impl Source {
    fn len(&self) -> usize {
        match &self.members {
            Members::SortedSet(set) => set.view().len(),
            Members::Set(set) => set.view().len(),
        }
    }

    /// Its members with their scores.
    fn iter(&self) -> impl Iterator<Item = Scored<'_>> {
        let (sorted, plain) = match &self.members {
            Members::SortedSet(set) => (Some(set.view().iter()), None),
            Members::Set(set) => (None, Some(set.view().iter())),
        };
        let plain = plain.into_iter().flatten().map(|member| Scored { member, score: 1.0 });
        sorted.into_iter().flatten().chain(plain)
    }

    /// Its members with their weighted scores.
    fn weighted(&self) -> impl Iterator<Item = Scored<'_>> {
        let weight = self.weight;
        self.iter().map(move |found| Scored { score: number(found.score * weight), ..found })
    }

    fn score(&self, member: &[u8]) -> Option<f64> {
        match &self.members {
            Members::SortedSet(set) => set.view().score(member),
            Members::Set(set) => set.view().contains(member).then_some(1.0),
        }
    }
}

/// What is no number counts as 0.
fn number(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

impl Aggregate {
    fn apply(self, so_far: f64, score: f64) -> f64 {
        match self {
            // Infinities of both signs cancel out.
            Aggregate::Sum => number(so_far + score),
            Aggregate::Min => {
                if score < so_far {
                    score
                } else {
                    so_far
                }
            }
            Aggregate::Max => {
                if score > so_far {
                    score
                } else {
                    so_far
                }
            }
        }
    }
}

fn united(sources: &[Source], aggregate: Aggregate) -> Vec<Scored<'_>> {
    if let [source] = sources {
        return source.weighted().collect();
    }
    let most = sources.iter().map(|source| source.len()).max().unwrap_or(0);
    let mut all: HashMap<&[u8], f64> = HashMap::with_capacity(most);
    for Scored { member, score } in sources.iter().flat_map(Source::weighted) {
        all.entry(member).and_modify(|so_far| *so_far = aggregate.apply(*so_far, score)).or_insert(score);
    }
    all.into_iter().map(|(member, score)| Scored { member, score }).collect()
}

/// Shows what is in all of the sources, of which the first is the smallest, until `found` has seen enough.
fn intersect<'m>(sources: &'m [Source], aggregate: Aggregate, mut found: impl FnMut(&'m [u8], f64) -> bool) {
    let Some((first, others)) = sources.split_first() else { return };
    for Scored { member, score } in first.weighted() {
        let all = others
            .iter()
            .try_fold(score, |so_far, other| Some(aggregate.apply(so_far, other.score(member)? * other.weight)));
        if let Some(score) = all
            && !found(member, score)
        {
            return;
        }
    }
}

/// What is in the first source and in no other.
fn difference(sources: &[Source]) -> Vec<Scored<'_>> {
    let Some((first, others)) = sources.split_first() else { return Vec::new() };
    let there = |member| others.iter().any(|other| other.score(member).is_some());
    first.iter().filter(|found| !there(found.member)).collect()
}
