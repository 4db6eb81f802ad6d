//! Commands that are more than one question: draws of random elements, complete scans, values carried across.

use anyhow::Result;

use super::compare::{is, same, shortest, shown, sorted};
use super::grammar::Words;
use super::pair::{Link, Pair, words};
use crate::reply::Reply;
use crate::wire::describe;

/// What the two servers said, where it is not the same.
pub type Unlike = Option<(Reply, Reply)>;

/// How a command is asked that is more than one question.
pub type Macro = fn(&mut Pair, &Words) -> Result<Unlike>;

/// The macro for a command, if it is one.
pub fn macro_for(command: &Words) -> Option<Macro> {
    let named = |name| is(command, 0, name);
    let starts_scan = |at: usize| command.get(at).is_some_and(|cursor| cursor == b"0");
    if named("SPOP") {
        Some(pop)
    } else if ["SRANDMEMBER", "HRANDFIELD", "ZRANDMEMBER", "RANDOMKEY"].into_iter().any(named) {
        Some(draw)
    } else if named("SCAN") && starts_scan(1) || ["SSCAN", "HSCAN", "ZSCAN"].into_iter().any(named) && starts_scan(2) {
        Some(scan)
    } else if named("CARRY") {
        Some(carry)
    } else {
        None
    }
}

/// SPOP: what the server under test draws must be in the oracle's set, from where it is removed.
fn pop(pair: &mut Pair, command: &Words) -> Result<Unlike> {
    let gimmal = pair.gimmal.ask(command)?;
    let drawn = members(&gimmal);
    if drawn.is_empty() {
        let redis = pair.redis.ask(command)?;
        return Ok(unlike(command, redis, gimmal));
    }
    let Reply::Integer(size) = pair.redis.ask(&vec![b"SCARD".to_vec(), command[1].clone()])? else {
        let redis = pair.redis.ask(command)?;
        return Ok(Some((redis, gimmal)));
    };
    let asked = command.get(2).map_or(Some(1), |count| str::from_utf8(count).ok()?.parse::<i64>().ok());
    let expected = asked.map(|count| count.min(size));
    let mut remove = vec![b"SREM".to_vec(), command[1].clone()];
    remove.extend(drawn.iter().cloned());
    let removed = pair.redis.ask(&remove)?;
    let is_right =
        removed == Reply::Integer(i64::try_from(drawn.len())?) && expected == i64::try_from(drawn.len()).ok();
    Ok((!is_right).then_some((removed, gimmal)))
}

fn members(reply: &Reply) -> Words {
    match reply {
        Reply::Bulk(member) => vec![member.clone()],
        Reply::Array(items) | Reply::Set(items) => items.iter().flat_map(members).collect(),
        _ => Vec::new(),
    }
}

/// As many elements as the oracle draws, all of them in the oracle's value, and distinct if the count is positive.
fn draw(pair: &mut Pair, command: &Words) -> Result<Unlike> {
    let (redis, gimmal) = pair.ask_one(command)?;
    let with_values = command.len() > 3;
    let (expected, drawn) = (units(&redis, with_values), units(&gimmal, with_values));
    if expected.is_empty() || drawn.is_empty() {
        return Ok(unlike(command, redis, gimmal));
    }
    let whole = match command[0].to_ascii_uppercase().as_slice() {
        b"RANDOMKEY" => words(&["KEYS", "*"]),
        b"SRANDMEMBER" => vec![b"SMEMBERS".to_vec(), command[1].clone()],
        b"HRANDFIELD" if with_values => vec![b"HGETALL".to_vec(), command[1].clone()],
        b"HRANDFIELD" => vec![b"HKEYS".to_vec(), command[1].clone()],
        _ => {
            let mut range = vec![b"ZRANGE".to_vec(), command[1].clone(), b"0".to_vec(), b"-1".to_vec()];
            range.extend(with_values.then(|| b"WITHSCORES".to_vec()));
            range
        }
    };
    let whole = units(&pair.redis.ask(&whole)?, with_values);
    let distinct = command.get(2).is_some_and(|count| !count.starts_with(b"-"));
    let mut unique = drawn.clone();
    unique.sort_unstable();
    unique.dedup();
    let fits = drawn.len() == expected.len()
        && std::mem::discriminant(&redis) == std::mem::discriminant(&gimmal)
        && drawn.iter().all(|unit| whole.contains(unit))
        && (!distinct || unique.len() == drawn.len());
    Ok((!fits).then_some((redis, gimmal)))
}

/// The elements of a reply, each with its value if the reply has them: nested in RESP3, flat in RESP2.
fn units(reply: &Reply, with_values: bool) -> Vec<Words> {
    let text = |reply: &Reply| match reply {
        Reply::Bulk(text) | Reply::Simple(text) => shortest(text),
        Reply::Double(text) => shortest(text.as_bytes()),
        other => describe(other).into_bytes(),
    };
    match reply {
        Reply::Bulk(_) => vec![vec![text(reply)]],
        Reply::Map(pairs) => pairs.iter().map(|(key, value)| vec![text(key), text(value)]).collect(),
        Reply::Array(items) | Reply::Set(items) => match items.first() {
            Some(Reply::Array(_)) => items.iter().flat_map(|item| units(item, true)).collect(),
            Some(_) if with_values => items.chunks(2).map(|pair| pair.iter().map(text).collect()).collect(),
            _ => items.iter().map(|item| vec![text(item)]).collect(),
        },
        _ => Vec::new(),
    }
}

/// A complete scan on each server finds the same.
fn scan(pair: &mut Pair, command: &Words) -> Result<Unlike> {
    let redis = complete(&mut pair.redis, command)?;
    let gimmal = complete(&mut pair.gimmal, command)?;
    Ok((redis != gimmal).then_some((redis, gimmal)))
}

/// Calls of one scan until it must have ended.
const SCAN_LIMIT: usize = 100_000;

fn complete(link: &mut Link, command: &Words) -> Result<Reply> {
    let cursor_at = if is(command, 0, "SCAN") { 1 } else { 2 };
    let with_values = is(command, 0, "HSCAN") && !super::compare::has(command, "NOVALUES") || is(command, 0, "ZSCAN");
    let mut command = command.clone();
    let mut found = Vec::new();
    for _ in 0..SCAN_LIMIT {
        match link.ask(&command)? {
            Reply::Array(mut halves) if halves.len() == 2 => {
                let (Some(Reply::Array(items)), Some(Reply::Bulk(cursor))) = (halves.pop(), halves.pop()) else {
                    return Ok(Reply::Simple(b"not a cursor and an array".to_vec()));
                };
                let items: Words = items.iter().map(|item| text_of(item, is(&command, 0, "ZSCAN"))).collect();
                found.extend(items.chunks(if with_values { 2 } else { 1 }).map(<[Vec<u8>]>::to_vec));
                if cursor == b"0" {
                    let mut found = sorted(found.iter().map(|unit| shown(unit)));
                    found.dedup();
                    return Ok(Reply::Array(found.into_iter().map(|item| Reply::Bulk(item.into_bytes())).collect()));
                }
                command[cursor_at] = cursor;
            }
            other => return Ok(other),
        }
    }
    Ok(Reply::Simple(b"a scan without an end".to_vec()))
}

fn text_of(item: &Reply, is_score: bool) -> Vec<u8> {
    match item {
        Reply::Bulk(text) if is_score => shortest(text),
        Reply::Bulk(text) => text.clone(),
        other => describe(other).into_bytes(),
    }
}

/// CARRY from to: what each server dumps, the other restores.
fn carry(pair: &mut Pair, command: &Words) -> Result<Unlike> {
    let [_, from, to] = command.as_slice() else { return Ok(None) };
    let dumped = pair.ask_one(&vec![b"DUMP".to_vec(), from.clone()])?;
    let (Reply::Bulk(by_redis), Reply::Bulk(by_gimmal)) = &dumped else {
        return Ok(unlike(command, dumped.0, dumped.1));
    };
    let restore = |payload: &Vec<u8>| {
        [b"RESTORE", to.as_slice(), b"0", payload, b"REPLACE"].into_iter().map(<[u8]>::to_vec).collect::<Words>()
    };
    let restored = (pair.redis.ask(&restore(by_gimmal))?, pair.gimmal.ask(&restore(by_redis))?);
    Ok(unlike(command, restored.0, restored.1))
}

fn unlike(command: &Words, redis: Reply, gimmal: Reply) -> Unlike {
    (!same(command, &redis, &gimmal, None)).then_some((redis, gimmal))
}

/// For a report: which macro a command is.
pub fn explained(command: &Words) -> String {
    if is(command, 0, "CARRY") { format!("{} (DUMP here, RESTORE there)", shown(command)) } else { shown(command) }
}
