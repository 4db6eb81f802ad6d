//! SORT and SORT_RO: elements of a list, a set or a sorted set in order, with weights and answers from other keys.
//!
//! What is sorted is taken by its root. A sort that neither stores nor looks at other keys does its work without any lock, one
//! that stores does it under the locks of both keys; of many elements either is done by a thread. Which keys `BY` and `GET` reach is known only from the elements: for
//! them the gate is closed. Numbers are parsed once, into integers of the same order; so are the first bytes of texts, so that
//! most comparisons are of integers.
//!
//! Elements of equal weight are ordered by their bytes, as in Redis, and texts by their bytes in any locale. Texts by `BY`
//! that are equal keep the order of the source.

use crate::args::Args;
use crate::commands::generic::sort_number;
use crate::dispatch::SYNTAX;
use crate::exec::{Continuation, Exec, Key, Outcome, ReplyError, Stop, WRONG_TYPE, error};
use crate::kept::Kept;
use crate::notify;
use crate::offload;
use crate::reply::Reply;
use crate::streamed::{self, Elements};
use gimmal_store::types::{Aggregate, End, Kind, List, NodeLimit, Set, SortedSet};
use gimmal_store::{Entry, StringRef, ValueRef};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

const NOT_NUMBERS: ReplyError = error("ERR One or more scores can't be converted into double");

pub(super) fn sort(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    run(exec, args, &Options::parse(args, true)?)
}

pub(super) fn sort_ro(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    run(exec, args, &Options::parse(args, false)?)
}

/// What SORT was asked beside its key.
#[derive(Debug, PartialEq, Eq)]
struct Options<'a> {
    descending: bool,
    alpha: bool,
    /// The first element that is wanted, and how many; negative for all.
    limit: (i64, i64),
    by: Option<Pattern<'a>>,
    /// One of the patterns of `BY` has no `*`: the source's order stays, whatever the others are.
    unsorted: bool,
    get: Vec<Pattern<'a>>,
    store: Option<&'a [u8]>,
}

impl<'a> Options<'a> {
    fn parse(args: &Args<'a>, may_store: bool) -> Result<Options<'a>, ReplyError> {
        let mut options = Options {
            descending: false,
            alpha: false,
            limit: (0, -1),
            by: None,
            unsorted: false,
            get: Vec::new(),
            store: None,
        };
        let mut i = 2;
        while i < args.len() {
            let left = args.len() - i - 1;
            let mut used = 1;
            if args.is(i, "asc") {
                options.descending = false;
                used = 0;
            } else if args.is(i, "desc") {
                options.descending = true;
                used = 0;
            } else if args.is(i, "alpha") {
                options.alpha = true;
                used = 0;
            } else if args.is(i, "limit") && left >= 2 {
                options.limit = (args.int(i + 1)?, args.int(i + 2)?);
                used = 2;
            } else if may_store && args.is(i, "store") && left >= 1 {
                options.store = Some(args.at(i + 1));
            } else if args.is(i, "by") && left >= 1 {
                let by = Pattern::parse(args.at(i + 1));
                options.unsorted |= !by.reaches_further();
                options.by = Some(by);
            } else if args.is(i, "get") && left >= 1 {
                options.get.push(Pattern::parse(args.at(i + 1)));
            } else {
                return Err(SYNTAX);
            }
            i += 1 + used;
        }
        Ok(options)
    }

    /// Whether keys are reached that are not among the arguments.
    fn reaches_further(&self) -> bool {
        let by = self.by.iter().filter(|_| !self.unsorted);
        by.chain(&self.get).any(Pattern::reaches_further)
    }

    /// Whether the elements are all that is looked at and answered.
    fn is_simple(&self) -> bool {
        self.get.is_empty() && (self.by.is_none() || self.unsorted)
    }

    /// Which of so many sorted elements are wanted.
    fn window(&self, len: usize) -> Range<usize> {
        let (first, count) = self.limit;
        let start = usize::try_from(first.max(0)).unwrap_or(usize::MAX).min(len);
        start..usize::try_from(count).map_or(len, |count| start.saturating_add(count).min(len))
    }
}

/// Keys of SORT: what is sorted, and where the result goes.
pub(super) fn keys_of_sort(args: &Args<'_>) -> Option<Vec<(usize, u32)>> {
    use crate::command::keyflag::{ACCESS, OW, RO, UPDATE};
    let mut keys = vec![(1, RO | ACCESS)];
    let mut i = 2;
    while i < args.len() {
        if args.is(i, "limit") {
            i += 2;
        } else if args.is(i, "get") || args.is(i, "by") {
            i += 1;
        } else if args.is(i, "store") && i + 1 < args.len() {
            keys.truncate(1);
            keys.push((i + 1, OW | UPDATE));
            i += 1;
        }
        i += 1;
    }
    (args.len() > 1).then_some(keys)
}

/// The key of SORT_RO.
pub(super) fn keys_of_sort_ro(args: &Args<'_>) -> Option<Vec<(usize, u32)>> {
    use crate::command::keyflag::{ACCESS, RO};
    (args.len() > 1).then(|| vec![(1, RO | ACCESS)])
}

/// What `BY` and `GET` name.
#[derive(Debug, PartialEq, Eq)]
enum Pattern<'a> {
    /// `#`: the element itself.
    Element,
    /// No `*`: nothing.
    Nothing,
    /// The string at the key that has the element in the place of `*`, or a field of the hash there.
    Of { before: &'a [u8], behind: &'a [u8], field: Option<&'a [u8]> },
}

impl<'a> Pattern<'a> {
    fn parse(text: &'a [u8]) -> Pattern<'a> {
        if text == b"#" {
            return Pattern::Element;
        }
        let Some(star) = text.iter().position(|byte| *byte == b'*') else { return Pattern::Nothing };
        let (before, rest) = (&text[..star], &text[star + 1..]);
        match rest.windows(2).position(|pair| pair == b"->").filter(|arrow| arrow + 2 < rest.len()) {
            Some(arrow) => Pattern::Of { before, behind: &rest[..arrow], field: Some(&rest[arrow + 2..]) },
            None => Pattern::Of { before, behind: rest, field: None },
        }
    }

    fn reaches_further(&self) -> bool {
        matches!(self, Pattern::Of { .. })
    }

    /// Calls `visit` with what the pattern means for an element. The locks of all keys are free.
    fn look_up<R>(
        &self,
        exec: &mut Exec<'_>,
        element: &[u8],
        visit: impl FnOnce(&mut Exec<'_>, Option<&[u8]>) -> R,
    ) -> Result<R, Stop> {
        let (before, behind, field) = match self {
            Pattern::Element => return Ok(visit(exec, Some(element))),
            Pattern::Nothing => return Ok(visit(exec, None)),
            Pattern::Of { before, behind, field } => (before, behind, field),
        };
        let name = [before, element, behind].concat();
        let now_ms = exec.now_ms();
        let mut locked = exec.lock(&name)?;
        let entry = exec.read(locked.key());
        let mut digits = itoa::Buffer::new();
        let value = match (entry.map(|entry| entry.value()), field) {
            (Some(ValueRef::Hash(fields)), Some(field)) => {
                fields.find(field, now_ms).map(|field| Cow::Borrowed(field.value))
            }
            (Some(ValueRef::String(string)), None) => Some(match string {
                StringRef::Int(n) => Cow::Borrowed(digits.format(n).as_bytes()),
                StringRef::Bytes(bytes) => Cow::Borrowed(bytes),
                StringRef::Rope(rope) => Cow::Owned(rope.to_vec()),
            }),
            _ => None,
        };
        Ok(visit(exec, value.as_deref()))
    }
}

/// What is sorted, outside of its key.
enum Source {
    List(List),
    Set(Set),
    SortedSet(SortedSet),
}

impl Source {
    fn of(entry: Option<Entry<'_>>) -> Result<Source, ReplyError> {
        match entry.map(|entry| entry.value()) {
            None => Ok(Source::List(List::empty_in(Vec::new()))),
            Some(ValueRef::List(list)) => Ok(Source::List(list.to_owned())),
            Some(ValueRef::Set(set)) => Ok(Source::Set(set.to_owned())),
            Some(ValueRef::SortedSet(set)) => Ok(Source::SortedSet(set.to_owned())),
            Some(_) => Err(WRONG_TYPE),
        }
    }

    fn len(&self) -> usize {
        match self {
            Source::List(list) => list.view().len(),
            Source::Set(set) => set.view().len(),
            Source::SortedSet(set) => set.view().len(),
        }
    }

    fn is_same(&self, other: &Source) -> bool {
        match (self, other) {
            (Source::List(list), Source::List(other)) => list.is_same(other),
            (Source::Set(set), Source::Set(other)) => set.is_same(other),
            (Source::SortedSet(set), Source::SortedSet(other)) => set.is_same(other),
            _ => false,
        }
    }

    /// All elements, in the source's order.
    fn elements(&self) -> Vec<&[u8]> {
        match self {
            Source::List(list) => list.view().iter().collect(),
            Source::Set(set) => set.view().iter().collect(),
            Source::SortedSet(set) => set.view().iter().map(|scored| scored.member).collect(),
        }
    }

    /// The elements of a window of the source's order, or of the reverse of it.
    fn unsorted(&self, window: Range<usize>, backwards: bool) -> Vec<&[u8]> {
        // The same window, counted from the other end.
        let mirrored = self.len() - window.end..self.len() - window.start;
        match self {
            Source::List(list) if backwards => {
                list.view().rev_from(mirrored.end.saturating_sub(1)).take(window.len()).collect()
            }
            Source::List(list) => list.view().iter_from(window.start).take(window.len()).collect(),
            // A set has no order that could be turned round.
            Source::Set(set) => set.view().iter_from(window.start).take(window.len()).collect(),
            Source::SortedSet(set) => {
                let ranks = if backwards { mirrored } else { window };
                set.view().range(ranks, backwards).map(|scored| scored.member).collect()
            }
        }
    }
}

fn run(exec: &mut Exec<'_>, args: &Args<'_>, options: &Options<'_>) -> Outcome {
    let further = options.reaches_further();
    let closed = if further { exec.exclusive()? } else { None };
    let limit = NodeLimit::of(exec.local.config.list_max_listpack_size());
    let Some(destination) = options.store else {
        let mut locked = exec.lock(args.at(1))?;
        let source = Source::of(exec.read(locked.key()))?;
        drop(locked);
        if options.is_simple() && offload::is_due(exec, source.len()) {
            return aside(exec, args, source, limit);
        }
        let sorted = arranged(exec, options, &source)?;
        return answer(exec, options, &sorted);
    };
    if further {
        let mut locked = exec.lock(args.at(1))?;
        let source = Source::of(exec.read(locked.key()))?;
        drop(locked);
        let list = gathered(exec, options, &source, limit)?;
        // Behind the gate nothing has happened since.
        let mut locked = exec.lock(destination)?;
        store(exec, locked.key(), args, list);
    } else {
        let mut keys = exec.lock_all([args.at(1), destination].into_iter())?;
        let source = Source::of(exec.read(keys.key(0)))?;
        if options.is_simple() && offload::is_due(exec, source.len()) {
            drop(keys);
            return aside(exec, args, source, limit);
        }
        let list = gathered(exec, options, &source, limit)?;
        store(exec, keys.key(1), args, list);
    }
    drop(closed);
    Ok(())
}

/// Has a thread sort; `options` are simple.
fn aside(exec: &mut Exec<'_>, args: &Args<'_>, source: Source, limit: NodeLimit) -> Outcome {
    let (kept, tries) = (exec.keep(args), exec.local.begun_anew);
    offload::start(exec, move || {
        let sorted = Some(sorted_list(&kept.args(), &source, limit));
        Box::new(Sorted { kept, source, sorted, tries })
    })
}

fn sorted_list(args: &Args<'_>, source: &Source, limit: NodeLimit) -> Result<List, ReplyError> {
    let options = Options::parse(args, true)?;
    let mut list = List::empty_in(Vec::new());
    by_itself(&options, source)?.into_iter().for_each(|element| list.push(End::Tail, element));
    if options.store.is_some() {
        list.settle(limit);
    }
    Ok(list)
}

/// A list that a thread has sorted.
struct Sorted {
    kept: Arc<Kept>,
    source: Source,
    sorted: Option<Result<List, ReplyError>>,
    tries: u32,
}

impl Continuation for Sorted {
    fn step(&mut self, exec: &mut Exec<'_>) -> Result<bool, Stop> {
        let args = self.kept.args();
        let options = Options::parse(&args, true)?;
        if let Some(Err(error)) = &self.sorted {
            return Err(Stop::Error(error.clone()));
        }
        let mut sorted = || self.sorted.take().and_then(Result::ok).expect("it was sorted, and is used once");
        let Some(destination) = options.store else {
            let list = sorted();
            let len = list.view().len();
            exec.reply.put().array(len);
            return streamed::elements(exec, 0..len, Answer(list)).map(|()| true);
        };
        let mut keys = exec.lock_all([args.at(1), destination].into_iter())?;
        if Source::of(exec.read(keys.key(0)))?.is_same(&self.source) {
            store(exec, keys.key(1), &args, sorted());
            return Ok(true);
        }
        drop(keys);
        offload::anew(exec, self.tries, |exec| run(exec, &args, &options))
    }
}

/// Sorted elements that are answered in slices.
struct Answer(List);

impl Elements for Answer {
    fn write(&self, ranks: Range<usize>, reply: &mut Reply<'_>) {
        let mut reply = reply.put();
        self.0.view().iter_from(ranks.start).take(ranks.len()).for_each(|element| reply.bulk(element));
    }
}

/// The wanted elements in order.
fn arranged<'s>(exec: &mut Exec<'_>, options: &Options<'_>, source: &'s Source) -> Result<Vec<&'s [u8]>, Stop> {
    let window = options.window(source.len());
    let by = match &options.by {
        Some(by) if !options.unsorted => by,
        _ => return Ok(by_itself(options, source)?),
    };
    if options.alpha {
        return by_texts(exec, source, by, window, options.descending);
    }
    let weigh = |element| {
        let number = by.look_up(exec, element, |_, value| value.map_or(Some(0.0), sort_number::parse))?;
        Ok(Weighted { weight: of_number(number.ok_or(NOT_NUMBERS)?), element })
    };
    let weighted = source.elements().into_iter().map(weigh).collect::<Result<Vec<_>, Stop>>()?;
    Ok(by_weights(weighted, window, options.descending))
}

/// The wanted elements in their own order or their source's.
fn by_itself<'s>(options: &Options<'_>, source: &'s Source) -> Result<Vec<&'s [u8]>, ReplyError> {
    let window = options.window(source.len());
    // What is stored of a set must not depend on the order that it happens to have: replicas may have another.
    let imposed = options.unsorted && options.store.is_some() && matches!(source, Source::Set(_));
    if options.unsorted && !imposed {
        return Ok(source.unsorted(window, options.descending));
    }
    let elements = source.elements().into_iter();
    let weighted = if imposed || options.alpha {
        elements.map(|element| Weighted { weight: of_text(element), element }).collect()
    } else {
        let weigh = |element| sort_number::parse(element).map(|number| Weighted { weight: of_number(number), element });
        elements.map(weigh).collect::<Option<Vec<_>>>().ok_or(NOT_NUMBERS)?
    };
    Ok(by_weights(weighted, window, options.descending))
}

/// An element with an integer that decides most comparisons.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Weighted<'s> {
    weight: u64,
    element: &'s [u8],
}

/// A number that is no NaN as an integer of the same order; both zeros are one.
fn of_number(number: f64) -> u64 {
    const SIGN: u64 = 1 << 63;
    let bits = (number + 0.0).to_bits();
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}

/// The first bytes of a text.
fn of_text(text: &[u8]) -> u64 {
    let mut first = [0; 8];
    let len = text.len().min(8);
    first[..len].copy_from_slice(&text[..len]);
    u64::from_be_bytes(first)
}

/// The elements of a window of the sorted order. No two that differ are equal, so the order backwards is the reverse.
fn by_weights(mut items: Vec<Weighted<'_>>, window: Range<usize>, descending: bool) -> Vec<&[u8]> {
    let window = match descending {
        true => items.len() - window.end..items.len() - window.start,
        false => window,
    };
    if window.is_empty() {
        return Vec::new();
    }
    // Only the window is sorted; what is not in it is left on either side.
    if window.end < items.len() {
        items.select_nth_unstable(window.end);
        items.truncate(window.end);
    }
    if window.start > 0 {
        items.select_nth_unstable(window.start);
        items.drain(..window.start);
    }
    items.sort_unstable();
    let elements = items.into_iter().map(|item| item.element);
    if descending { elements.rev().collect() } else { elements.collect() }
}

/// The elements of a window of the order of their texts; one without a text is before all others.
fn by_texts<'s>(
    exec: &mut Exec<'_>,
    source: &'s Source,
    by: &Pattern<'_>,
    window: Range<usize>,
    descending: bool,
) -> Result<Vec<&'s [u8]>, Stop> {
    let mut items = Vec::with_capacity(source.len());
    for element in source.elements() {
        items.push((by.look_up(exec, element, |_, value| value.map(<[u8]>::to_vec))?, element));
    }
    let order = |one: &Option<Vec<u8>>, other: &Option<Vec<u8>>| -> Ordering { one.cmp(other) };
    match descending {
        true => items.sort_by(|one, other| order(&other.0, &one.0)),
        false => items.sort_by(|one, other| order(&one.0, &other.0)),
    }
    Ok(items[window].iter().map(|(_, element)| *element).collect())
}

fn answer(exec: &mut Exec<'_>, options: &Options<'_>, sorted: &[&[u8]]) -> Outcome {
    exec.reply.put().array(sorted.len() * options.get.len().max(1));
    for element in sorted {
        if options.get.is_empty() {
            exec.reply.put().bulk(element);
        }
        for pattern in &options.get {
            pattern.look_up(exec, element, |exec, value| match value {
                Some(value) => exec.reply.put().bulk(value),
                None => exec.reply.put().null(),
            })?;
        }
    }
    Ok(())
}

/// The result as a list.
fn gathered(exec: &mut Exec<'_>, options: &Options<'_>, source: &Source, limit: NodeLimit) -> Result<List, Stop> {
    let sorted = arranged(exec, options, source)?;
    let mut list = List::empty_in(Vec::new());
    for element in sorted {
        if options.get.is_empty() {
            list.push(End::Tail, element);
        }
        for pattern in &options.get {
            pattern.look_up(exec, element, |_, value| list.push(End::Tail, value.unwrap_or_default()))?;
        }
    }
    list.settle(limit);
    Ok(list)
}

/// Stores the result in place of whatever was there, or removes that if there is no result, and answers its length.
fn store(exec: &mut Exec<'_>, mut key: Key<'_, '_>, args: &Args<'_>, list: List) {
    let (len, name) = (list.view().len(), key.name());
    exec.reply.put().count(len);
    if len > 0 {
        let _old = exec.put_aggregate(key.again(), Aggregate::List(list), None);
        exec.effect_given(key, args, len as u64);
        exec.notify(notify::LIST, "sortstore", name);
    } else if exec.peek(key.again()).is_some() {
        drop(exec.remove(key.again()));
        exec.effect(key, &[b"DEL", name]);
        exec.notify(notify::GENERIC, "del", name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_taken_apart() {
        let of = |before, behind, field| Pattern::Of { before, behind, field };
        for (text, pattern) in [
            (b"#".as_slice(), Pattern::Element),
            (b"##", Pattern::Nothing),
            (b"", Pattern::Nothing),
            (b"w_*", of(b"w_", b"", None)),
            (b"*", of(b"", b"", None)),
            (b"a*b*c", of(b"a", b"b*c", None)),
            (b"a*->f", of(b"a", b"", Some(b"f"))),
            (b"a->b*c->f->g", of(b"a->b", b"c", Some(b"f->g"))),
            (b"a*->", of(b"a", b"->", None)),
            (b"a->b", Pattern::Nothing),
        ] {
            assert_eq!(Pattern::parse(text), pattern, "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn windows_are_cut_to_what_there_is() {
        let window = |first, count, len| {
            let limit = (first, count);
            Options { descending: false, alpha: false, limit, by: None, unsorted: false, get: Vec::new(), store: None }
                .window(len)
        };
        assert_eq!(window(0, -1, 5), 0..5);
        assert_eq!(window(2, 2, 5), 2..4);
        assert_eq!(window(-7, 2, 5), 0..2);
        assert_eq!(window(4, i64::MAX, 5), 4..5);
        assert!(window(9, 1, 5).is_empty() && window(i64::MAX, i64::MAX, 5).is_empty() && window(0, 0, 5).is_empty());
    }

    /// Whatever the window, it is that part of the whole order.
    #[test]
    fn a_window_is_a_part_of_the_order() {
        let texts: Vec<String> = (0..200).map(|n| ((n * 7919) % 83 - 40).to_string()).collect();
        let weighted = || {
            let number = |text: &str| sort_number::parse(text.as_bytes()).expect("a number");
            texts.iter().map(|text| Weighted { weight: of_number(number(text)), element: text.as_bytes() }).collect()
        };
        let mut expected: Vec<i32> = texts.iter().map(|text| text.parse().expect("a number")).collect();
        expected.sort_unstable();
        for descending in [false, true] {
            for (start, end) in [(0, 200), (0, 1), (199, 200), (50, 150), (7, 7), (0, 0), (150, 200), (0, 190)] {
                let sorted = by_weights(weighted(), start..end, descending);
                let wanted: Vec<String> = expected[start..end].iter().map(i32::to_string).collect();
                assert!(sorted.iter().copied().eq(wanted.iter().map(String::as_bytes)), "{start}..{end}");
            }
            expected.reverse();
        }
    }

    #[test]
    fn weights_have_the_order_of_what_they_stand_for() {
        let numbers = [f64::NEG_INFINITY, -1e300, -2.5, -1e-300, 0.0, 1e-300, 1.0, 3.5, f64::INFINITY];
        assert!(numbers.is_sorted_by(|one, other| of_number(*one) < of_number(*other)));
        assert_eq!(of_number(-0.0), of_number(0.0));
        let texts: [&[u8]; 6] = [b"", b"a", b"aa", b"ab", b"abcdefgh", b"b"];
        assert!(texts.is_sorted_by(|one, other| of_text(one) < of_text(other)));
    }
}
