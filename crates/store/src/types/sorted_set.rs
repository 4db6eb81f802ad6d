//! A sorted set: members in the order of their scores, those of one score in the order of their bytes.
//!
//! A packed one is sorted; its items are a score (8 bytes) and a member. A large one is two trees: by score, with the scores as
//! tags, and by name. Every range is one of ranks: [`SortedSetRef::ranks_of_scores`] and [`SortedSetRef::ranks_of_members`] find
//! one in two descents, so that counting, skipping and cutting ranges cost nothing more.
//!
//! Invariants: no score is NaN; both trees have the same members. Scores are compared as numbers, so that 0 and -0 are one. As in
//! Redis, a set that is reported as compact forgets the sign of a zero.
//!
//! Dropped: the scores alone in the tree by name, found again by score and hash (a third less memory, but ZSCAN could not name
//! what it visits without losing members whose score changes meanwhile).

use std::cmp::Ordering;
use std::ops::{Bound, Range};

use super::ahead::{TOGETHER, is_large};
use super::dict::{Dict, Keyed};
use super::list::End;
use super::packed::{HEADER, Items, PACKED_MAX, Packed, PackedBuf};
use super::tree::{Cursor, Order, Position, Tree, last_before};
use super::{Form, Limits, Repr};

/// Order by score, then by the member's bytes.
#[derive(Clone, Copy, Debug)]
pub struct ByScore;

impl Order for ByScore {
    type Tag = f64;
    type Rest = Box<[u8]>;

    fn rest(member: &[u8]) -> Box<[u8]> {
        Box::from(member)
    }
}

/// An item is a score (8 bytes) and its member.
#[derive(Clone, Copy, Debug)]
pub struct ScoredMember;

impl Keyed for ScoredMember {
    #[inline]
    fn key(item: &[u8]) -> &[u8] {
        &item[8..]
    }
}

/// A large sorted set: the same members twice, by score and by name.
#[derive(Clone, Debug)]
pub struct SortedSetTree {
    by_score: Tree<ByScore>,
    by_name: Dict<ScoredMember>,
    form: Form,
    /// So many of the members that are popped next were requested from memory.
    requested: usize,
}

impl SortedSetTree {
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.by_score.memory_bytes() + self.by_name.memory_bytes()
    }

    pub(super) fn free_cost(&self) -> usize {
        self.by_score.free_cost() + self.by_name.free_cost()
    }
}

/// A member with its score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scored<'a> {
    /// The member.
    pub member: &'a [u8],
    /// Its score; never NaN.
    pub score: f64,
}

impl<'a> Scored<'a> {
    /// Reads an item.
    #[inline]
    fn read(item: &'a [u8]) -> Self {
        let (score, member) = item.split_first_chunk::<8>().expect("an item begins with its score");
        Self { member, score: f64::from_le_bytes(*score) }
    }

    /// The order of a sorted set.
    pub fn order(&self, other: &Self) -> Ordering {
        // Scores are numbers.
        let scores = self.score.partial_cmp(&other.score).unwrap_or(Ordering::Equal);
        scores.then_with(|| self.member.cmp(other.member))
    }

    /// Whether it lies before a member with a score.
    #[inline]
    fn is_before(self, score: f64, member: &[u8]) -> bool {
        self.score < score || self.score == score && self.member < member
    }
}

/// A range of scores.
#[derive(Clone, Copy, Debug)]
pub struct ScoreRange {
    /// Its lower end.
    pub min: Bound<f64>,
    /// Its upper end.
    pub max: Bound<f64>,
}

impl ScoreRange {
    #[inline]
    fn is_below(&self, score: f64) -> bool {
        match self.min {
            Bound::Included(min) => score < min,
            Bound::Excluded(min) => score <= min,
            Bound::Unbounded => false,
        }
    }

    #[inline]
    fn is_above(&self, score: f64) -> bool {
        match self.max {
            Bound::Included(max) => score > max,
            Bound::Excluded(max) => score >= max,
            Bound::Unbounded => false,
        }
    }
}

/// One end of a range of members by their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberBound<'a> {
    /// Before every member.
    Lowest,
    /// At this member.
    Included(&'a [u8]),
    /// Beside this member.
    Excluded(&'a [u8]),
    /// Behind every member.
    Highest,
}

/// A range of members by their bytes, for sorted sets whose scores are all the same.
#[derive(Clone, Copy, Debug)]
pub struct MemberRange<'a> {
    /// Its lower end.
    pub min: MemberBound<'a>,
    /// Its upper end.
    pub max: MemberBound<'a>,
}

impl MemberRange<'_> {
    #[inline]
    fn is_below(&self, member: &[u8]) -> bool {
        match self.min {
            MemberBound::Lowest => false,
            MemberBound::Included(min) => member < min,
            MemberBound::Excluded(min) => member <= min,
            MemberBound::Highest => true,
        }
    }

    #[inline]
    fn is_above(&self, member: &[u8]) -> bool {
        match self.max {
            MemberBound::Lowest => true,
            MemberBound::Included(max) => member > max,
            MemberBound::Excluded(max) => member >= max,
            MemberBound::Highest => false,
        }
    }

    /// Whether no member of any set can lie in it.
    fn is_void(&self) -> bool {
        use MemberBound::{Excluded, Highest, Included, Lowest};
        match (self.min, self.max) {
            (Highest, _) | (_, Lowest) => true,
            (Lowest, _) | (_, Highest) => false,
            (Included(min), Included(max)) => min > max,
            (Included(min) | Excluded(min), Included(max) | Excluded(max)) => min >= max,
        }
    }
}

/// A sorted set, borrowed.
#[derive(Clone, Copy, Debug)]
pub enum SortedSetRef<'a> {
    /// A small one.
    Packed(Packed<'a>),
    /// A large one.
    Tree(&'a SortedSetTree),
}

impl<'a> SortedSetRef<'a> {
    /// Number of members.
    #[inline]
    pub fn len(self) -> usize {
        match self {
            Self::Packed(packed) => packed.len(),
            Self::Tree(tree) => tree.by_score.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// What OBJECT ENCODING should call it.
    pub fn form(self) -> Form {
        match self {
            Self::Packed(packed) => packed.form(),
            Self::Tree(tree) => tree.form,
        }
    }

    /// The same set, owned; a large one is shared.
    pub fn to_owned(self) -> SortedSet {
        SortedSet {
            repr: match self {
                Self::Packed(packed) => Repr::Packed(PackedBuf::copy_in(Vec::new(), packed)),
                Self::Tree(tree) => Repr::Tree(Box::new(tree.clone())),
            },
        }
    }

    /// Whether this is the very value that `other` is: one of them is a copy of the other that nobody has changed since.
    pub fn is_same(self, other: SortedSetRef<'_>) -> bool {
        match (self, other) {
            (Self::Packed(packed), SortedSetRef::Packed(other)) => packed == other,
            (Self::Tree(tree), SortedSetRef::Tree(other)) => {
                tree.by_score.is_same(&other.by_score) && tree.by_name.is_same(&other.by_name)
            }
            _ => false,
        }
    }

    /// A member's score.
    #[inline]
    pub fn score(self, member: &[u8]) -> Option<f64> {
        match self {
            Self::Packed(packed) => find_packed(packed, member).map(|(_, _, found)| found.score),
            Self::Tree(tree) => tree.by_name.find(member).map(|item| Scored::read(item).score),
        }
    }

    /// How many members lie before a member, and its score.
    pub fn rank(self, member: &[u8]) -> Option<(usize, f64)> {
        match self {
            Self::Packed(packed) => find_packed(packed, member).map(|(rank, _, found)| (rank, found.score)),
            Self::Tree(tree) => {
                let score = Scored::read(tree.by_name.find(member)?).score;
                Some((tree.by_score.rank(&tree.place(score, member)), score))
            }
        }
    }

    /// The member with so many before it.
    pub fn nth(self, rank: usize) -> Option<Scored<'a>> {
        match self {
            Self::Packed(packed) => packed.nth(rank).map(|(_, item)| Scored::read(item)),
            Self::Tree(tree) => tree.by_score.nth(rank).map(|(score, member)| Scored { member, score }),
        }
    }

    /// The members of a range of ranks, in order or from its end.
    pub fn range(self, ranks: Range<usize>, reverse: bool) -> Iter<'a> {
        let end = ranks.end.min(self.len());
        let left = end.saturating_sub(ranks.start);
        let source = match self {
            Self::Packed(packed) if reverse => Source::Backward(Box::new(Backward::new(packed, end))),
            Self::Packed(packed) => {
                let mut items = packed.items();
                if ranks.start > 0 {
                    items.nth(ranks.start - 1);
                }
                Source::Forward(items)
            }
            Self::Tree(tree) => {
                let first = if reverse { end.saturating_sub(1) } else { ranks.start };
                Source::Tree(Box::new(tree.by_score.cursor(&tree.by_score.seek_rank(first))))
            }
        };
        Iter { left, reverse, source }
    }

    /// All members in order.
    pub fn iter(self) -> Iter<'a> {
        self.range(0..self.len(), false)
    }

    /// The ranks of the members whose scores lie in a range.
    pub fn ranks_of_scores(self, range: &ScoreRange) -> Range<usize> {
        let (start, end) = match self {
            Self::Packed(packed) => {
                let scores = || packed.items().map(|(_, item)| Scored::read(item).score);
                (
                    scores().take_while(|score| range.is_below(*score)).count(),
                    scores().take_while(|score| !range.is_above(*score)).count(),
                )
            }
            Self::Tree(tree) => (
                tree.by_score.rank(&tree.seek_score(|score| range.is_below(score))),
                tree.by_score.rank(&tree.seek_score(|score| !range.is_above(score))),
            ),
        };
        start..end.max(start)
    }

    /// The ranks of the members that lie in a range by their bytes. If scores differ this has no meaning; of a small set it is then
    /// what Redis finds when it walks from the front or, in `reverse`, from the back.
    pub fn ranks_of_members(self, range: &MemberRange<'_>, reverse: bool) -> Range<usize> {
        if range.is_void() || self.is_empty() {
            return 0..0;
        }
        match self {
            Self::Packed(packed) => {
                let members: Vec<&[u8]> = packed.items().map(|(_, item)| Scored::read(item).member).collect();
                let (first, last) = (members[0], members[members.len() - 1]);
                if range.is_below(last) || range.is_above(first) {
                    return 0..0;
                }
                let (below, above) = (|m: &&[u8]| range.is_below(m), |m: &&[u8]| range.is_above(m));
                if reverse {
                    let end = members.iter().rposition(|m| !above(m)).map_or(0, |last| last + 1);
                    members[..end].iter().rposition(below).map_or(0, |last| last + 1)..end
                } else {
                    let start = members.iter().position(|m| !below(m)).unwrap_or(members.len());
                    start..start + members[start..].iter().take_while(|m| !above(m)).count()
                }
            }
            Self::Tree(tree) => {
                let start = tree.by_score.rank(&tree.seek_member(|member| range.is_below(member)));
                let end = tree.by_score.rank(&tree.seek_member(|member| !range.is_above(member)));
                start..end.max(start)
            }
        }
    }

    /// Visits members from a cursor on; see [`Dict::scan`]. A small set is visited whole.
    pub fn scan(self, cursor: u64, count: usize, mut visit: impl FnMut(Scored<'a>)) -> u64 {
        match self {
            Self::Packed(packed) => {
                packed.items().for_each(|(_, item)| visit(Scored::read(item)));
                0
            }
            Self::Tree(tree) => tree.by_name.scan(cursor, count, |item| visit(Scored::read(item))),
        }
    }
}

/// A member in a packed set: its rank and its position.
#[inline]
fn find_packed<'a>(packed: Packed<'a>, member: &[u8]) -> Option<(usize, usize, Scored<'a>)> {
    let mut items = packed.items().enumerate();
    items.find_map(|(rank, (at, item))| (item[8..] == *member).then(|| (rank, at, Scored::read(item))))
}

/// Iterator over members.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    left: usize,
    reverse: bool,
    source: Source<'a>,
}

#[derive(Clone)]
enum Source<'a> {
    Forward(Items<'a>),
    Backward(Box<Backward<'a>>),
    Tree(Box<Cursor<'a, ByScore>>),
}

impl std::fmt::Debug for Source<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Forward(_) => "Forward",
            Self::Backward(_) => "Backward",
            Self::Tree(_) => "Tree",
        })
    }
}

/// Most items of a packed set: each has a length and a score.
const PACKED_ITEMS: usize = (PACKED_MAX - HEADER) / 9;

/// The items of a packed set, which can only be walked forwards.
#[derive(Clone)]
struct Backward<'a> {
    items: [&'a [u8]; PACKED_ITEMS],
    left: usize,
}

impl<'a> Backward<'a> {
    fn new(packed: Packed<'a>, end: usize) -> Self {
        let mut items: [&[u8]; PACKED_ITEMS] = [&[]; PACKED_ITEMS];
        packed.items().take(end).zip(&mut items).for_each(|((_, item), slot)| *slot = item);
        Self { items, left: end }
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Scored<'a>;

    #[inline]
    fn next(&mut self) -> Option<Scored<'a>> {
        self.left = self.left.checked_sub(1)?;
        match &mut self.source {
            Source::Forward(items) => items.next().map(|(_, item)| Scored::read(item)),
            Source::Backward(backward) => {
                backward.left -= 1;
                Some(Scored::read(backward.items[backward.left]))
            }
            Source::Tree(cursor) => {
                let (score, member) = cursor.item()?;
                if self.reverse {
                    cursor.back()
                } else {
                    cursor.next()
                }
                Some(Scored { member, score })
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Iter<'_> {}

impl SortedSetTree {
    /// The place of a member with this score.
    #[inline]
    fn place(&self, score: f64, member: &[u8]) -> Position {
        self.by_score.seek(
            |first, name| Scored { member: name, score: first }.is_before(score, member),
            |at, item| at < score || at == score && item.bytes() < member,
        )
    }

    /// See [`super::ahead`].
    pub(super) fn request(&self, members: &[&[u8]], places: bool) {
        let items = self.by_name.request(members, false);
        if !places {
            return;
        }
        let (mut keys, mut count) = ([Scored { member: &[], score: 0.0 }; TOGETHER], 0);
        for item in items.into_iter().flatten() {
            keys[count] = Scored::read(item.item());
            count += 1;
        }
        let pages = self.by_score.request_pages(&keys[..count], |key, tags, rests| {
            last_before(tags, rests, |first, name| {
                Scored { member: name, score: first }.is_before(key.score, key.member)
            })
        });
        let found = || pages.iter().flatten().zip(&keys);
        found().for_each(|(page, _)| page.request_tags());
        let mut places = [0; TOGETHER];
        for ((page, key), place) in found().zip(&mut places) {
            *place = page.tags().partition_point(|score| *score < key.score);
            page.request_slot(*place);
        }
        found().zip(places).for_each(|((page, _), place)| page.request_item(place));
    }

    fn seek_score(&self, before: impl Fn(f64) -> bool) -> Position {
        self.by_score.seek(|score, _| before(score), |score, _| before(score))
    }

    fn seek_member(&self, before: impl Fn(&[u8]) -> bool) -> Position {
        self.by_score.seek(|_, member| before(member), |_, item| before(item.bytes()))
    }
}

/// A sorted set that can be changed.
#[derive(Clone, Debug)]
pub struct SortedSet {
    repr: Repr<SortedSetTree>,
}

impl SortedSet {
    /// An empty one, in this buffer while it is small.
    pub fn empty_in(buffer: Vec<u8>) -> Self {
        Self { repr: Repr::Packed(PackedBuf::empty_in(buffer, Form::Compact)) }
    }

    pub(super) fn from_repr(repr: Repr<SortedSetTree>) -> Self {
        Self { repr }
    }

    pub(super) fn into_repr(self) -> Repr<SortedSetTree> {
        self.repr
    }

    /// For reading.
    #[inline]
    pub fn view(&self) -> SortedSetRef<'_> {
        match &self.repr {
            Repr::Packed(buf) => SortedSetRef::Packed(buf.view()),
            Repr::Tree(tree) => SortedSetRef::Tree(tree),
        }
    }

    /// Gives a member this score; returns the one that it had.
    ///
    /// # Panics
    /// If the score is NaN.
    pub fn put(&mut self, member: &[u8], score: f64, limits: Limits) -> Option<f64> {
        self.update(member, limits, |_| Some(score))
    }

    /// Looks a member up and gives it the score that `decide` finds for it, if any, from the one that it has. Returns the latter.
    ///
    /// # Panics
    /// If the new score is NaN.
    pub fn update(
        &mut self,
        member: &[u8],
        limits: Limits,
        decide: impl FnOnce(Option<f64>) -> Option<f64>,
    ) -> Option<f64> {
        if let Repr::Packed(buf) = &mut self.repr {
            let found = find_packed(buf.view(), member).map(|(_, at, found)| (at, found.score));
            let old = found.map(|(_, score)| score);
            let Some(score) = decide(old) else { return old };
            assert!(!score.is_nan(), "a score is a number");
            if let Some((at, old)) = found {
                if old == score {
                    return Some(old);
                }
                buf.remove(at);
            }
            let becomes_large = old.is_none() && (buf.view().len() >= limits.entries || member.len() > limits.value);
            if becomes_large {
                buf.set_form(Form::Large);
            }
            let score = unsigned_zero(score, buf.view().form());
            if buf.fits(8 + member.len()) {
                insert_packed(buf, member, score);
            } else {
                self.grow().update(member, limits, |_| Some(score));
            }
            return old;
        }
        let Repr::Tree(tree) = &mut self.repr else { unreachable!("the other form") };
        tree.update(member, limits, decide)
    }

    /// Removes a member; returns its score.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        match &mut self.repr {
            Repr::Packed(buf) => {
                let (at, score) = find_packed(buf.view(), member).map(|(_, at, found)| (at, found.score))?;
                buf.remove(at);
                Some(score)
            }
            Repr::Tree(tree) => {
                let at = tree.by_name.place(member);
                let score = Scored::read(tree.by_name.at(&at)?).score;
                tree.by_name.remove_at(&at);
                let place = tree.place(score, member);
                tree.by_score.remove(&place);
                Some(score)
            }
        }
    }

    /// Removes the first or the last member of a set that has one, after `look` has seen it.
    pub fn pop(&mut self, end: End, look: impl FnOnce(Scored<'_>)) {
        match &mut self.repr {
            Repr::Packed(buf) => {
                let rank = if end == End::Head { 0 } else { buf.view().len() - 1 };
                let (at, item) = buf.view().nth(rank).expect("a sorted set has members");
                look(Scored::read(item));
                buf.remove(at);
            }
            Repr::Tree(tree) => tree.pop(end, look),
        }
    }

    /// Removes a range of ranks.
    pub fn remove_ranks(&mut self, ranks: Range<usize>) {
        match &mut self.repr {
            Repr::Packed(buf) => {
                let end = ranks.end.min(buf.view().len());
                for _ in ranks.start..end {
                    let at = buf.view().position(ranks.start);
                    buf.remove(at);
                }
            }
            Repr::Tree(tree) => {
                let len = ranks.end.saturating_sub(ranks.start);
                for (_, member) in tree.by_score.iter_from(ranks.start).take(len) {
                    tree.by_name.remove(member);
                }
                drop(tree.by_score.remove_range(ranks));
            }
        }
    }

    /// Takes the encoding that Redis chooses before it adds so many members, of which the longest has `longest` bytes.
    pub fn expect(&mut self, members: usize, longest: usize, limits: Limits) {
        if members > limits.entries || longest > limits.value {
            self.set_form(Form::Large);
        }
    }

    fn set_form(&mut self, form: Form) {
        match &mut self.repr {
            Repr::Packed(buf) => buf.set_form(form),
            Repr::Tree(tree) => tree.form = form,
        }
    }

    /// From packed to trees.
    fn grow(&mut self) -> &mut SortedSetTree {
        if let Repr::Packed(buf) = &self.repr {
            let form = buf.view().form();
            let mut tree = SortedSetTree { by_score: Tree::default(), by_name: Dict::default(), form, requested: 0 };
            for (_, item) in buf.view().items() {
                let Scored { member, score } = Scored::read(item);
                tree.by_score.push(score, member);
                tree.by_name.put(item);
            }
            self.repr = Repr::Tree(Box::new(tree));
        }
        let Repr::Tree(tree) = &mut self.repr else { unreachable!("it was made large") };
        tree
    }
}

fn insert_packed(buf: &mut PackedBuf, member: &[u8], score: f64) {
    let mut items = buf.view().items();
    let behind = items.find(|(_, item)| !Scored::read(item).is_before(score, member));
    let at = behind.map_or(buf.view().bytes().len(), |(at, _)| at);
    buf.insert(at, &[&score.to_le_bytes(), member]);
}

impl SortedSetTree {
    fn pop(&mut self, end: End, look: impl FnOnce(Scored<'_>)) {
        if self.requested == 0 {
            self.request_next(end);
        }
        self.requested -= 1;
        let place = match end {
            End::Head => self.by_score.first(),
            End::Tail => self.by_score.last(),
        };
        let (score, member) = self.by_score.here(&place).expect("a sorted set has members");
        look(Scored { member, score });
        self.by_name.remove(member);
        self.by_score.remove_here(&place);
    }

    /// Requests from memory where the members that go next are in the tree by name, which each of them waits for otherwise: there they
    /// lie in no order.
    fn request_next(&mut self, end: End) {
        let (mut names, mut found): ([&[u8]; TOGETHER], _) = ([&[]; TOGETHER], 0);
        let mut cursor = self.by_score.cursor(&match end {
            End::Head => self.by_score.first(),
            End::Tail => self.by_score.last(),
        });
        while found < TOGETHER
            && let Some((_, member)) = cursor.item()
        {
            names[found] = member;
            found += 1;
            match end {
                End::Head => cursor.next(),
                End::Tail => cursor.back(),
            }
        }
        if is_large(self.memory_bytes()) {
            self.by_name.request(&names[..found], true);
        }
        self.requested = found;
    }

    fn update(
        &mut self,
        member: &[u8],
        limits: Limits,
        decide: impl FnOnce(Option<f64>) -> Option<f64>,
    ) -> Option<f64> {
        let at = self.by_name.place(member);
        let old = self.by_name.at(&at).map(|item| Scored::read(item).score);
        let Some(score) = decide(old) else { return old };
        assert!(!score.is_nan(), "a score is a number");
        if let Some(old) = old {
            if old == score {
                return Some(old);
            }
            let place = self.place(old, member);
            self.by_score.remove(&place);
        } else if self.by_score.len() >= limits.entries || member.len() > limits.value {
            self.form = Form::Large;
        }
        let score = unsigned_zero(score, self.form);
        let new = with_item(member, score, |item| self.by_name.put_at(&at, item));
        debug_assert_eq!(new, old.is_none());
        let place = self.place(score, member);
        self.by_score.insert(&place, score, member);
        old
    }
}

/// A score as a set of this form keeps it.
#[inline]
fn unsigned_zero(score: f64, form: Form) -> f64 {
    if score == 0.0 && form == Form::Compact { 0.0 } else { score }
}

/// Most bytes of an item that is put together on the stack.
const SHORT_ITEM: usize = 128;

/// Puts an item together: in most cases on the stack.
#[inline]
fn with_item<R>(member: &[u8], score: f64, put: impl FnOnce(&[u8]) -> R) -> R {
    let len = 8 + member.len();
    if len <= SHORT_ITEM {
        let mut item = [0; SHORT_ITEM];
        item[..8].copy_from_slice(&score.to_le_bytes());
        item[8..len].copy_from_slice(member);
        return put(&item[..len]);
    }
    let mut item = Vec::with_capacity(len);
    item.extend_from_slice(&score.to_le_bytes());
    item.extend_from_slice(member);
    put(&item)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const LIMITS: Limits = Limits { entries: 128, value: 64 };

    struct Random(u64);

    impl Random {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from((self.0 >> 33) % end as u64).expect("small")
        }
    }

    fn sorted(model: &BTreeMap<Vec<u8>, f64>) -> Vec<(f64, Vec<u8>)> {
        let mut all: Vec<_> = model.iter().map(|(member, score)| (*score, member.clone())).collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
        all
    }

    fn listed(iter: Iter<'_>) -> Vec<(f64, Vec<u8>)> {
        iter.map(|Scored { member, score }| (score, member.to_vec())).collect()
    }

    /// Compares everything that can be asked with the plain answer.
    fn check(set: SortedSetRef<'_>, model: &BTreeMap<Vec<u8>, f64>, random: &mut Random) {
        let all = sorted(model);
        assert_eq!(set.len(), all.len());
        assert_eq!(listed(set.iter()), all);
        let (a, b) = (random.below(all.len() + 3), random.below(all.len() + 3));
        let (start, end) = (a.min(b), a.max(b).min(all.len()));
        let expected = all.get(start..end).unwrap_or_default();
        assert_eq!(listed(set.range(start..b.max(a), false)), expected);
        let mut expected = expected.to_vec();
        expected.reverse();
        assert_eq!(listed(set.range(start..b.max(a), true)), expected);
        for (rank, (score, member)) in all.iter().enumerate() {
            assert_eq!(set.rank(member), Some((rank, *score)));
            assert_eq!(set.score(member), Some(*score));
            assert_eq!(set.nth(rank).map(|found| found.member), Some(member.as_slice()));
        }
        for _ in 0..8 {
            let mut bound = || {
                let score = random.below(12) as f64 - 1.0;
                [Bound::Included(score), Bound::Excluded(score), Bound::Unbounded][random.below(3)]
            };
            let range = ScoreRange { min: bound(), max: bound() };
            let inside = |score: f64| !range.is_below(score) && !range.is_above(score);
            let ranks = set.ranks_of_scores(&range);
            let expected: Vec<_> = all.iter().filter(|(score, _)| inside(*score)).cloned().collect();
            assert_eq!(all[ranks].to_vec(), expected, "{range:?}");
        }
    }

    #[test]
    fn edits_agree_with_a_map() {
        for names in [12, 400, 3000] {
            let mut set = SortedSet::empty_in(Vec::new());
            let mut model = BTreeMap::new();
            let mut random = Random(11);
            for round in 0..12_000 {
                let member = format!("member:{}", random.below(names)).into_bytes();
                let score = random.below(10) as f64;
                match random.below(16) {
                    0..=4 => assert_eq!(set.remove(&member), model.remove(&member)),
                    5 if !model.is_empty() && random.below(20) == 0 => {
                        let start = random.below(model.len());
                        let end = (start + random.below(200)).min(model.len());
                        for (_, gone) in &sorted(&model)[start..end] {
                            model.remove(gone);
                        }
                        set.remove_ranks(start..end);
                    }
                    _ => assert_eq!(set.put(&member, score, LIMITS), model.insert(member, score)),
                }
                if round % (names / 2) == 0 {
                    check(set.view(), &model, &mut random);
                }
            }
            check(set.view(), &model, &mut random);
            let mut seen = BTreeMap::new();
            let mut cursor = 0;
            loop {
                cursor = set.view().scan(cursor, 10, |found| {
                    assert_eq!(seen.insert(found.member.to_vec(), found.score), None);
                });
                if cursor == 0 {
                    break;
                }
            }
            assert_eq!(seen, model);
        }
    }

    #[test]
    fn members_of_one_score_are_found_by_their_bytes() {
        for count in [20_u32, 2000] {
            let mut set = SortedSet::empty_in(Vec::new());
            let mut all: Vec<Vec<u8>> = (0..count).map(|number| number.to_string().into_bytes()).collect();
            all.iter().for_each(|member| _ = set.put(member, 0.0, LIMITS));
            all.sort();
            let mut random = Random(3);
            for _ in 0..300 {
                let (a, b) = (random.below(100).to_string(), random.below(100).to_string());
                let bound = |name: &'static str, kind| match kind {
                    0 => MemberBound::Included(name.as_bytes()),
                    1 => MemberBound::Excluded(name.as_bytes()),
                    2 => MemberBound::Lowest,
                    _ => MemberBound::Highest,
                };
                let range =
                    MemberRange { min: bound(a.leak(), random.below(4)), max: bound(b.leak(), random.below(4)) };
                let inside = |member: &Vec<u8>| !range.is_below(member) && !range.is_above(member);
                let expected: Vec<_> = all.iter().filter(|member| inside(member)).collect();
                for reverse in [false, true] {
                    let ranks = set.view().ranks_of_members(&range, reverse);
                    assert_eq!(all[ranks].iter().collect::<Vec<_>>(), expected, "{range:?}");
                }
            }
        }
    }

    #[test]
    fn the_reported_encoding_follows_the_thresholds() {
        let mut set = SortedSet::empty_in(Vec::new());
        for number in 0..=128_u32 {
            assert_eq!(set.view().form(), Form::Compact, "{number}");
            set.put(number.to_string().as_bytes(), 1.0, LIMITS);
        }
        assert_eq!(set.view().form(), Form::Large);
        set.remove_ranks(0..128);
        assert_eq!((set.view().form(), set.view().len()), (Form::Large, 1), "it is kept");
        let mut long = SortedSet::empty_in(Vec::new());
        long.put(&[b'x'; 64], 1.0, LIMITS);
        assert_eq!(long.view().form(), Form::Compact);
        long.put(&[b'x'; 65], 1.0, LIMITS);
        assert_eq!(long.view().form(), Form::Large);
    }

    /// Minus zero is no other score; a compact set does not keep its sign.
    #[test]
    fn zeros_are_one_score() {
        for (limits, signed) in [(LIMITS, false), (Limits { entries: 0, value: 0 }, true)] {
            let mut set = SortedSet::empty_in(Vec::new());
            set.put(b"b", -0.0, limits);
            set.put(b"a", 0.0, limits);
            set.put(b"b", 0.0, limits);
            assert_eq!(set.view().rank(b"b").map(|(rank, score)| (rank, score.is_sign_negative())), Some((1, signed)));
        }
    }
}
