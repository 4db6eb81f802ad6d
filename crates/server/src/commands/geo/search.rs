//! GEOSEARCH, GEOSEARCHSTORE, GEORADIUS and GEORADIUSBYMEMBER.

use super::cell::{Cell, Place, covering};
use super::position::{place, put_distance, put_place};
use super::shape::Shape;
use crate::args::Args;
use crate::commands::sorted_set::{limits, record, sorted, sorted_set_of, store};
use crate::dispatch::SYNTAX;
use crate::exec::{Continuation, Exec, Key, Outcome, ReplyError, Stop, error};
use crate::kept::Kept;
use crate::offload;
use crate::reply::Reply;
use gimmal_io::Output;
use gimmal_store::types::{Limits, ScoreRange, Scored, SortedSet, SortedSetRef};
use std::ops::Bound;
use std::sync::Arc;

/// Which command it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// GEORADIUS, with STORE or without.
    Around {
        stores: bool,
    },
    /// GEORADIUSBYMEMBER.
    AroundMember {
        stores: bool,
    },
    Search,
    SearchStore,
}

pub(super) fn georadius(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    search(exec, args, Form::Around { stores: true })
}

pub(super) fn georadius_ro(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    search(exec, args, Form::Around { stores: false })
}

pub(super) fn georadiusbymember(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    search(exec, args, Form::AroundMember { stores: true })
}

pub(super) fn georadiusbymember_ro(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    search(exec, args, Form::AroundMember { stores: false })
}

pub(super) fn geosearch(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    search(exec, args, Form::Search)
}

pub(super) fn geosearchstore(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    search(exec, args, Form::SearchStore)
}

/// The keys of GEORADIUS and GEORADIUSBYMEMBER: that of the set, and the last one behind STORE or STOREDIST.
pub(super) fn keys(args: &Args<'_>) -> Option<Vec<(usize, u32)>> {
    use crate::command::keyflag::{ACCESS, OW, RO, UPDATE};
    let mut stored = None;
    let mut i = 5;
    while i + 1 < args.len() {
        if args.is(i, "store") || args.is(i, "storedist") {
            i += 1;
            stored = Some((i, OW | UPDATE));
        }
        i += 1;
    }
    Some(std::iter::once((1, RO | ACCESS)).chain(stored).collect())
}

/// What is asked for. It is filled while the arguments are read, so that what stands before a fault is known.
#[derive(Default)]
struct Search<'a> {
    from: Option<From<'a>>,
    shape: Option<Shape>,
    /// The radius of GEORADIUSBYMEMBER is no fault if there is no set.
    bad_radius: Option<ReplyError>,
    with_distance: bool,
    with_hash: bool,
    with_place: bool,
    any: bool,
    count: Option<usize>,
    /// Farthest first, or nearest first.
    descending: Option<bool>,
    store: Option<&'a [u8]>,
    store_distance: bool,
}

enum From<'a> {
    Place(Place),
    Member(&'a [u8]),
}

/// The scores of a cell's places.
fn within(cell: Cell) -> ScoreRange {
    let scores = cell.scores();
    ScoreRange { min: Bound::Included(scores.start), max: Bound::Excluded(scores.end) }
}

/// A member that was found.
struct Found<'s> {
    member: &'s [u8],
    score: f64,
    place: Place,
    distance_m: f64,
}

const NO_MEMBER: ReplyError = error("ERR could not decode requested zset member");

fn search(exec: &mut Exec<'_>, args: &Args<'_>, form: Form) -> Outcome {
    let mut search = Search::default();
    let parsed = search.parse(args, form);
    let source = if form == Form::SearchStore { 2 } else { 1 };
    let limits = limits(exec);
    let mut keys = exec.lock_all(std::iter::once(args.at(source)).chain(search.store))?;
    let set = exec.read(keys.key(0)).map(|entry| sorted_set_of(&entry)).transpose()?.map(SortedSetRef::to_owned);
    // The order of Redis's errors: type, member, what stands behind it.
    let mut centre = None;
    if let Some(set) = &set {
        centre = match search.from {
            Some(From::Member(member)) => Some(Place::of_score(set.view().score(member).ok_or(NO_MEMBER)?)),
            Some(From::Place(place)) => Some(place),
            None => None,
        };
        if let Some(error) = search.bad_radius.take() {
            return Err(error.into());
        }
    }
    parsed?;
    let centre = centre.or_else(|| search.shape.as_ref().and_then(Shape::centre));
    let asked = match (set, search.shape.as_ref(), centre) {
        (Some(set), Some(shape), Some(centre)) => {
            let candidates = Search::candidates(set.view(), shape, centre);
            Some((set, centre, candidates))
        }
        _ => None,
    };
    if let Some((set, centre, candidates)) = &asked
        && offload::is_due(exec, *candidates)
    {
        let (set, centre) = (set.clone(), *centre);
        drop(keys);
        return aside(exec, args, form, set, centre);
    }
    let asked = asked.map(|(set, centre, _)| (set, centre));
    let (found, unit_m) = search.found(asked.as_ref());
    match search.store {
        None => search.answer(&mut exec.reply, &found, unit_m),
        Some(name) => put_in_place(exec, args, keys.key(1), form, name, search.set(&found, unit_m, limits)),
    }
    Ok(())
}

/// What a thread has made of a search: a reply, or what is to be stored.
enum Product {
    Reply(Output),
    Set(SortedSet),
}

fn put_in_place(exec: &mut Exec<'_>, args: &Args<'_>, key: Key<'_, '_>, form: Form, name: &[u8], set: SortedSet) {
    let event = if form == Form::SearchStore { "geosearchstore" } else { "georadiusstore" };
    let count = store(exec, key, name, event, Some(set), |exec, key, count| record(exec, key, args, count));
    exec.reply.put().count(count);
}

/// Has a thread search.
fn aside(exec: &mut Exec<'_>, args: &Args<'_>, form: Form, set: SortedSet, centre: Place) -> Outcome {
    let (kept, tries) = (exec.keep(args), exec.local.begun_anew);
    let (limits, resp3) = (limits(exec), exec.session.resp3);
    offload::start(exec, move || {
        let mut search = Search::default();
        // Its faults were answered before.
        let _parsed = search.parse(&kept.args(), form);
        let asked = (set, centre);
        let (found, unit_m) = search.found(Some(&asked));
        let result = Some(match search.store {
            None => {
                let mut reply = Output::default();
                search.answer(&mut Reply::new(&mut reply, resp3), &found, unit_m);
                Product::Reply(reply)
            }
            Some(_) => Product::Set(search.set(&found, unit_m, limits)),
        });
        Box::new(Searched { kept, form, set: asked.0, result, tries })
    })
}

/// A search that a thread has made.
struct Searched {
    kept: Arc<Kept>,
    form: Form,
    set: SortedSet,
    result: Option<Product>,
    tries: u32,
}

impl Continuation for Searched {
    fn step(&mut self, exec: &mut Exec<'_>) -> Result<bool, Stop> {
        let args = self.kept.args();
        let mut search = Search::default();
        let _parsed = search.parse(&args, self.form);
        let Some(name) = search.store else {
            if let Some(Product::Reply(reply)) = self.result.take() {
                exec.reply.output().append(reply);
            }
            return Ok(true);
        };
        let source = if self.form == Form::SearchStore { 2 } else { 1 };
        let mut keys = exec.lock_all([args.at(source), name].into_iter())?;
        let now = exec.read(keys.key(0)).map(|entry| sorted_set_of(&entry)).transpose()?;
        if now.is_some_and(|now| now.is_same(self.set.view())) {
            if let Some(Product::Set(set)) = self.result.take() {
                put_in_place(exec, &args, keys.key(1), self.form, name, set);
            }
            return Ok(true);
        }
        drop(keys);
        offload::anew(exec, self.tries, |exec| self::search(exec, &args, self.form))
    }
}

impl<'a> Search<'a> {
    fn parse(&mut self, args: &Args<'a>, form: Form) -> Result<(), ReplyError> {
        let first = match form {
            Form::Around { .. } => {
                self.from = Some(From::Place(place(args, 2)?));
                self.shape = Some(Shape::circle(args, 4)?);
                6
            }
            Form::AroundMember { .. } => {
                self.from = Some(From::Member(args.at(2)));
                match Shape::circle(args, 3) {
                    Ok(shape) => self.shape = Some(shape),
                    Err(error) => self.bad_radius = Some(error),
                }
                5
            }
            Form::Search => 2,
            Form::SearchStore => {
                self.store = Some(args.at(1));
                3
            }
        };
        let mut i = first;
        while i < args.len() {
            i += self.option(args, i, form)?;
        }
        self.check(args, form)
    }

    /// Reads the option at argument `i`; returns how many arguments it has.
    fn option(&mut self, args: &Args<'a>, i: usize, form: Form) -> Result<usize, ReplyError> {
        let more = args.len() - i - 1;
        let searches = matches!(form, Form::Search | Form::SearchStore);
        let stores = matches!(form, Form::Around { stores: true } | Form::AroundMember { stores: true });
        let polygon = self.shape.as_ref().is_some_and(|shape| shape.centre().is_some());
        // A shape or a centre may be given again, but not one of another kind.
        let by = |kind: &'static str| searches && self.shape.as_ref().is_none_or(|shape| shape.is(kind));
        match args.at(i).to_ascii_lowercase().as_slice() {
            b"withdist" => self.with_distance = true,
            b"withhash" => self.with_hash = true,
            b"withcoord" => self.with_place = true,
            b"any" => self.any = true,
            b"asc" => self.descending = Some(false),
            b"desc" => self.descending = Some(true),
            b"count" if more >= 1 => {
                let count = args.int(i + 1)?;
                let count = usize::try_from(count).ok().filter(|count| *count > 0);
                self.count = Some(count.ok_or(error("ERR COUNT must be > 0"))?);
                return Ok(2);
            }
            b"store" if more >= 1 && stores => {
                (self.store, self.store_distance) = (Some(args.at(i + 1)), false);
                return Ok(2);
            }
            b"storedist" if more >= 1 && stores => {
                (self.store, self.store_distance) = (Some(args.at(i + 1)), true);
                return Ok(2);
            }
            b"storedist" if form == Form::SearchStore => self.store_distance = true,
            b"frommember" if more >= 1 && searches && !polygon && !matches!(self.from, Some(From::Place(_))) => {
                self.from = Some(From::Member(args.at(i + 1)));
                return Ok(2);
            }
            b"fromlonlat" if more >= 2 && searches && !polygon && !matches!(self.from, Some(From::Member(_))) => {
                self.from = Some(From::Place(place(args, i + 1)?));
                return Ok(3);
            }
            b"byradius" if more >= 2 && by("circle") => {
                self.shape = Some(Shape::circle(args, i + 1)?);
                return Ok(3);
            }
            b"bybox" if more >= 3 && by("box") => {
                self.shape = Some(Shape::rectangle(args, i + 1)?);
                return Ok(4);
            }
            b"bypolygon" if more >= 1 && by("polygon") && self.from.is_none() => {
                let (shape, words) = Shape::polygon(args, i + 1)?;
                self.shape = Some(shape);
                return Ok(1 + words);
            }
            _ => return Err(SYNTAX),
        }
        Ok(1)
    }

    fn check(&self, args: &Args<'_>, form: Form) -> Result<(), ReplyError> {
        let name = String::from_utf8_lossy(args.at(0));
        if self.store.is_some() && (self.with_distance || self.with_hash || self.with_place) {
            let what = if form == Form::SearchStore { "GEOSEARCHSTORE" } else { "STORE option in GEORADIUS" };
            return Err(format!("ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options").into());
        }
        if matches!(form, Form::Search | Form::SearchStore) {
            let polygon = self.shape.as_ref().is_some_and(|shape| shape.centre().is_some());
            if self.from.is_none() && !polygon {
                return Err(format!("ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {name}").into());
            }
            if self.shape.is_none() {
                return Err(format!("ERR exactly one of BYRADIUS and BYBOX can be specified for {name}").into());
            }
        }
        if self.any && self.count.is_none() {
            return Err(error("ERR the ANY argument requires COUNT argument"));
        }
        Ok(())
    }

    /// About how many members are looked at.
    fn candidates(set: SortedSetRef<'_>, shape: &Shape, centre: Place) -> usize {
        let (radius_m, bounds) = shape.extent(centre);
        let members = |cell: Cell| set.ranks_of_scores(&within(cell)).len();
        covering(centre, radius_m, &bounds).into_iter().map(members).sum()
    }

    /// What is found in a set around a centre, if there are both, and the unit of distances in m.
    fn found<'s>(&self, asked: Option<&'s (SortedSet, Place)>) -> (Vec<Found<'s>>, f64) {
        match (asked, &self.shape) {
            (Some((set, centre)), Some(shape)) => (self.find(set.view(), shape, *centre), shape.unit_m),
            _ => (Vec::new(), 1.0),
        }
    }

    /// What was found, to be stored.
    fn set(&self, found: &[Found<'_>], unit_m: f64, limits: Limits) -> SortedSet {
        let score = |found: &Found<'_>| if self.store_distance { found.distance_m / unit_m } else { found.score };
        let mut members: Vec<_> =
            found.iter().map(|found| Scored { member: found.member, score: score(found) }).collect();
        members.sort_by(Scored::order);
        sorted(&members, limits)
    }

    /// What lies within the shape, in the order and number that is asked for.
    fn find<'s>(&self, set: SortedSetRef<'s>, shape: &Shape, centre: Place) -> Vec<Found<'s>> {
        let enough = self.count.filter(|_| self.any).unwrap_or(usize::MAX);
        let (radius_m, bounds) = shape.extent(centre);
        let mut found = Vec::new();
        for cell in covering(centre, radius_m, &bounds) {
            for Scored { member, score } in set.range(set.ranks_of_scores(&within(cell)), false) {
                let place = Place::of_score(score);
                if let Some(distance_m) = shape.distance_m(centre, place) {
                    found.push(Found { member, score, place, distance_m });
                }
                if found.len() >= enough {
                    break;
                }
            }
            if found.len() >= enough {
                break;
            }
        }
        // So many of them, without an order, are the nearest, unless any will do.
        match self.descending.or((self.count.is_some() && !self.any).then_some(false)) {
            Some(false) => found.sort_by(|a, b| a.distance_m.total_cmp(&b.distance_m)),
            Some(true) => found.sort_by(|a, b| b.distance_m.total_cmp(&a.distance_m)),
            None => {}
        }
        found.truncate(self.count.unwrap_or(usize::MAX));
        found
    }

    fn answer(&self, reply: &mut Reply<'_>, found: &[Found<'_>], unit_m: f64) {
        let more = usize::from(self.with_distance) + usize::from(self.with_hash) + usize::from(self.with_place);
        reply.put().array(found.len());
        for found in found {
            if more > 0 {
                reply.put().array(1 + more);
            }
            reply.put().bulk(found.member);
            if self.with_distance {
                put_distance(reply, found.distance_m / unit_m);
            }
            if self.with_hash {
                reply.put().integer(found.score as i64);
            }
            if self.with_place {
                put_place(reply, found.place);
            }
        }
    }
}
