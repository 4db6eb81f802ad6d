//! GEOADD, GEOPOS, GEODIST and GEOHASH, and how places and distances are read and written.

use super::cell::{Cell, LATITUDES, LONGITUDES, Place, STEPS};
use crate::args::Args;
use crate::commands::sorted_set::add::{Conditions, Members, add, add_many};
use crate::commands::sorted_set::read::each_score;
use crate::commands::sorted_set::sorted_set_of;
use crate::dispatch::SYNTAX;
use crate::double;
use crate::exec::{Exec, Key, Outcome, ReplyError, error};
use crate::offload;
use crate::reply::Reply;

const NOT_A_FLOAT: ReplyError = error("ERR value is not a valid float");

/// The place at argument `at` and the next.
pub(super) fn place(args: &Args<'_>, at: usize) -> Result<Place, ReplyError> {
    let longitude = double::parse(args.at(at)).ok_or(NOT_A_FLOAT)?;
    let latitude = double::parse(args.at(at + 1)).ok_or(NOT_A_FLOAT)?;
    let covered = |at: f64, (min, max): (f64, f64)| at >= min && at <= max;
    if !covered(longitude, LONGITUDES) || !covered(latitude, LATITUDES) {
        return Err(format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}").into());
    }
    Ok(Place { longitude, latitude })
}

/// The metres of the unit that argument `i` names.
pub(super) fn unit(args: &Args<'_>, i: usize) -> Result<f64, ReplyError> {
    let units = [("m", 1.0), ("km", 1000.0), ("ft", 0.3048), ("mi", 1609.34)];
    let found = units.iter().find(|(name, _)| args.is(i, name));
    found.map(|(_, metres)| *metres).ok_or(error("ERR unsupported unit provided. please use M, KM, FT, MI"))
}

/// A distance as a bulk string, with four decimals.
pub(super) fn put_distance(reply: &mut Reply<'_>, distance: f64) {
    let scaled = (distance * 10_000.0).round_ties_even() as i64;
    let (sign, scaled) = (if scaled < 0 { "-" } else { "" }, scaled.unsigned_abs());
    reply.put().bulk_str(&format!("{sign}{}.{:04}", scaled / 10_000, scaled % 10_000));
}

/// Longitude and latitude, each with up to 17 decimals.
pub(super) fn put_place(reply: &mut Reply<'_>, place: Place) {
    let mut reply = reply.put();
    reply.array(2);
    for degrees in [place.longitude, place.latitude] {
        let text = format!("{degrees:.17}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        if reply.is_proto3() {
            reply.raw(b",");
            reply.raw(text.as_bytes());
            reply.raw(b"\r\n");
        } else {
            reply.bulk_str(text);
        }
    }
}

pub(super) fn geoadd(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let mut conditions = Conditions::default();
    let mut first = 2;
    while first < args.len() {
        match args.at(first) {
            word if word.eq_ignore_ascii_case(b"nx") => conditions.nx = true,
            word if word.eq_ignore_ascii_case(b"xx") => conditions.xx = true,
            word if word.eq_ignore_ascii_case(b"ch") => conditions.ch = true,
            _ => break,
        }
        first += 1;
    }
    let words = args.len() - first;
    if words == 0 || !words.is_multiple_of(3) || conditions.nx && conditions.xx {
        return Err(SYNTAX.into());
    }
    let members = Members { first, each: 3, parse: scored };
    if offload::is_due(exec, words / 3) {
        return add_many(exec, args, geoadd, conditions, members, record);
    }
    let parsed = members.parse(args)?;
    add(exec, args, conditions, &parsed, |exec, key, changes| {
        let scores: Vec<f64> = parsed.iter().map(|(score, _)| *score).collect();
        record(exec, key, args, members, &scores, changes);
    })
}

/// The member behind the place at argument `at`, and its score.
fn scored<'a>(args: &Args<'a>, at: usize) -> Result<(f64, &'a [u8]), ReplyError> {
    Ok((Cell::of(place(args, at)?, STEPS).bits() as f64, args.at(at + 2)))
}

/// Records GEOADD as the ZADD that it is.
fn record(exec: &mut Exec<'_>, key: Key<'_, '_>, args: &Args<'_>, members: Members, scores: &[f64], changes: usize) {
    let scores: Vec<String> = match exec.local.log_active {
        true => scores.iter().map(|score| format!("{score:.0}")).collect(),
        false => Vec::new(),
    };
    let mut words: Vec<&[u8]> = vec![b"ZADD"];
    words.extend(args.rest(1).take(members.first - 1));
    for (score, at) in scores.iter().zip((members.first..args.len()).step_by(members.each)) {
        words.extend([score.as_bytes(), args.at(at + 2)]);
    }
    exec.effect(key, &words);
    exec.changed(changes as u64 - 1);
}

pub(super) fn geopos(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    each_score(exec, args, |score, reply| match score {
        Some(score) => put_place(reply, Place::of_score(score)),
        None => reply.put().null_array(),
    })
}

pub(super) fn geohash(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    each_score(exec, args, |score, reply| match score {
        Some(score) => reply.put().bulk(&standard_geohash(Place::of_score(score))),
        None => reply.put().null(),
    })
}

/// The usual geohash, whose latitudes reach to the poles: 52 bits, five to a letter; the eleventh letter has none left.
fn standard_geohash(place: Place) -> [u8; 11] {
    const LETTERS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
    let bits = Cell::within(place, STEPS, (-180.0, 180.0), (-90.0, 90.0)).bits();
    let mut text = [LETTERS[0]; 11];
    for (letter, shift) in text.iter_mut().zip((2..=47).rev().step_by(5)) {
        *letter = LETTERS[usize::try_from(bits >> shift & 0x1F).expect("5 bits")];
    }
    text
}

pub(super) fn geodist(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let unit_m = match args.len() {
        4 => 1.0,
        5 => unit(args, 4)?,
        _ => return Err(SYNTAX.into()),
    };
    let mut locked = exec.lock(args.at(1))?;
    let set = exec.read(locked.key()).map(|entry| sorted_set_of(&entry)).transpose()?;
    let place = |i| set.and_then(|set| set.score(args.at(i))).map(Place::of_score);
    match (place(2), place(3)) {
        (Some(from), Some(to)) => put_distance(&mut exec.reply, from.distance_m(to) / unit_m),
        _ => exec.reply.put().null(),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn geohashes_are_the_usual_ones() {
        let palermo = Place::of_score(3_479_099_956_230_698.0);
        assert_eq!(&standard_geohash(palermo), b"sqc8b49rny0");
    }
}
