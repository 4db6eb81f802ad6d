//! Commands that are more than one question: draws of random elements, complete scans, values carried across. Those that
//! ask again only where the replies differ have files of their own.

use anyhow::{Context, Result};

use super::compare::{by_no_key, is, same, shortest, shown, sorted};
use super::encoding::{encoding, is_encoding};
use super::grammar::Words;
use super::pair::{Link, Pair, words};
use super::search::{is_sorted_search, search};
use crate::reply::Reply;
use crate::wire::describe;

/// What the two servers said, where it is not the same.
pub type Unlike = Option<(Reply, Reply)>;

/// What came of a command.
pub struct Asked {
    /// What the servers said, where it is not the same.
    pub unlike: Unlike,
    /// Whether the server under test refused it.
    pub is_error: bool,
}

/// How a command is asked that is more than one question.
pub type Macro = fn(&mut Pair, &Words) -> Result<Asked>;

/// The name of the copies that are sorted in place of sorted sets.
pub const SORTED: &[u8] = b"sorted";

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
    } else if is_sort(command) {
        Some(sort)
    } else if is_sorted_search(command) {
        Some(search)
    } else if is_encoding(command) {
        Some(encoding)
    } else if max_deleted_given(command).is_some() {
        Some(set_id)
    } else if !create_consumers(command).is_empty() {
        Some(consume)
    } else {
        None
    }
}

fn is_sort(command: &Words) -> bool {
    command.len() > 1 && ["SORT", "SORT_RO"].into_iter().any(|name| is(command, 0, name))
}

/// For a command that a consumer gets entries by: what makes the consumer in each of its groups.
fn create_consumers(command: &Words) -> Vec<Words> {
    let at = |name: &str| command.iter().position(|word| word.eq_ignore_ascii_case(name.as_bytes()));
    let create = |key: &Vec<u8>, who: &[Vec<u8>]| {
        let mut create = words(&["XGROUP", "CREATECONSUMER"]);
        create.push(key.clone());
        create.extend_from_slice(who);
        create
    };
    if ["XCLAIM", "XAUTOCLAIM"].into_iter().any(|name| is(command, 0, name)) && command.len() > 3 {
        return vec![create(&command[1], &command[2..4])];
    }
    let (Some(group), Some(streams), true) = (at("GROUP"), at("STREAMS"), is(command, 0, "XREADGROUP")) else {
        return Vec::new();
    };
    let keys = &command[streams + 1..streams + 1 + (command.len() - streams - 1) / 2];
    command.get(group + 1..group + 3).map_or_else(Vec::new, |who| keys.iter().map(|key| create(key, who)).collect())
}

/// The commands to draw in place of one in a transaction, where there is no asking between: what is sorted is a copy, and
/// who claims is there before. Before SORT a number is read without an error: it takes an `errno` of a command before it for
/// its own.
pub fn in_transaction(command: Words) -> Vec<Words> {
    if is_sort(&command) {
        let forget_errno = words(&["GEORADIUS_RO", "none", "1", "1", "1", "km"]);
        let copy = [&b"COPY"[..], &command[1], SORTED, b"REPLACE"].map(<[u8]>::to_vec).to_vec();
        let mut sort = command;
        sort[1] = SORTED.to_vec();
        vec![copy, forget_errno, sort, vec![b"DEL".to_vec(), SORTED.to_vec()]]
    } else {
        let mut commands = create_consumers(&command);
        commands.push(command);
        commands
    }
}

/// Whether a command that is a macro can be asked in a transaction, where [`in_transaction`] has prepared for it.
pub fn goes_into_transaction(command: &Words) -> bool {
    is_sort(command) && command[1] == SORTED || !create_consumers(command).is_empty()
}

/// SORT: of the oracle's sorted sets a copy is sorted, since Redis leaves the one that it sorts in another encoding.
fn sort(pair: &mut Pair, command: &Words) -> Result<Asked> {
    let kind = pair.redis.ask(&vec![b"TYPE".to_vec(), command[1].clone()])?;
    let is_zset = kind == Reply::Simple(b"zset".to_vec());
    let mut reply = None;
    for step in in_transaction(command.clone()) {
        let is_sort = is_sort(&step);
        let step = if is_sort && !is_zset { command } else { &step };
        let answer = pair.redis.ask(step)?;
        reply = reply.or(is_sort.then_some(answer));
    }
    let (redis, gimmal) = (reply.context("one of the steps sorts")?, pair.gimmal.ask(command)?);
    // Not sorted at all: lists and sorted sets then keep the order that they have.
    if by_no_key(command) && kind != Reply::Simple(b"set".to_vec()) {
        let is_error = matches!(gimmal, Reply::Error(_));
        return Ok(Asked { unlike: (redis != gimmal).then_some((redis, gimmal)), is_error });
    }
    Ok(asked(command, redis, gimmal))
}

/// XREADGROUP, XCLAIM, XAUTOCLAIM: since Redis 7.2 the consumer is made even if it gets nothing; the oracle's may be missing.
fn consume(pair: &mut Pair, command: &Words) -> Result<Asked> {
    let (redis, gimmal) = pair.ask_one(command)?;
    let mut answered = asked(command, redis, gimmal);
    if answered.unlike.is_none() && !answered.is_error {
        for create in create_consumers(command) {
            let (redis, gimmal) = pair.ask_one(&create)?;
            let existed = gimmal == Reply::Integer(0);
            answered.unlike = answered.unlike.or_else(|| (!existed).then_some((redis, gimmal)));
        }
    }
    Ok(answered)
}

/// The MAXDELETEDID of XSETID, if it is an id.
fn max_deleted_given(command: &Words) -> Option<(u64, u64)> {
    let at = command.iter().position(|word| word.eq_ignore_ascii_case(b"MAXDELETEDID"))?;
    is(command, 0, "XSETID").then(|| id_of(command.get(at + 1)?)).flatten()
}

fn id_of(text: &[u8]) -> Option<(u64, u64)> {
    let text = str::from_utf8(text).ok()?;
    let (ms, seq) = text.split_once('-').unwrap_or((text, "0"));
    Some((ms.parse().ok()?, seq.parse().ok()?))
}

/// XSETID: one that lowers the id deleted last is reported like a difference, since the oracle's data are then other ones: it
/// keeps deleted entries, which may from now on have higher ids than entries behind them.
fn set_id(pair: &mut Pair, command: &Words) -> Result<Asked> {
    let mut info = words(&["XINFO", "STREAM"]);
    info.extend(command.get(1).cloned());
    let info = pair.redis.ask(&info)?;
    let (redis, gimmal) = pair.ask_one(command)?;
    let is_set = [&redis, &gimmal].iter().all(|reply| **reply == Reply::Simple(b"OK".to_vec()));
    if is_set && max_deleted_of(&info) > max_deleted_given(command) {
        return Ok(Asked { unlike: Some((redis, gimmal)), is_error: false });
    }
    Ok(asked(command, redis, gimmal))
}

/// What XINFO STREAM says of it.
fn max_deleted_of(info: &Reply) -> Option<(u64, u64)> {
    let is_name = |name: &Reply| *name == Reply::Bulk(b"max-deleted-entry-id".to_vec());
    let value = match info {
        Reply::Array(fields) => fields.chunks(2).find(|field| is_name(&field[0])).and_then(|field| field.get(1)),
        Reply::Map(fields) => fields.iter().find(|(name, _)| is_name(name)).map(|(_, value)| value),
        _ => None,
    };
    if let Some(Reply::Bulk(id)) = value { id_of(id) } else { None }
}

/// SPOP: what the server under test draws must be in the oracle's set, from where it is removed.
fn pop(pair: &mut Pair, command: &Words) -> Result<Asked> {
    let gimmal = pair.gimmal.ask(command)?;
    let drawn = members(&gimmal);
    if drawn.is_empty() {
        let redis = pair.redis.ask(command)?;
        return Ok(asked(command, redis, gimmal));
    }
    let Reply::Integer(size) = pair.redis.ask(&vec![b"SCARD".to_vec(), command[1].clone()])? else {
        let redis = pair.redis.ask(command)?;
        return Ok(Asked { unlike: Some((redis, gimmal)), is_error: false });
    };
    let asked = command.get(2).map_or(Some(1), |count| str::from_utf8(count).ok()?.parse::<i64>().ok());
    let expected = asked.map(|count| count.min(size));
    let mut remove = vec![b"SREM".to_vec(), command[1].clone()];
    remove.extend(drawn.iter().cloned());
    let removed = pair.redis.ask(&remove)?;
    let is_right =
        removed == Reply::Integer(i64::try_from(drawn.len())?) && expected == i64::try_from(drawn.len()).ok();
    Ok(Asked { unlike: (!is_right).then_some((removed, gimmal)), is_error: false })
}

fn members(reply: &Reply) -> Words {
    match reply {
        Reply::Bulk(member) => vec![member.clone()],
        Reply::Array(items) | Reply::Set(items) => items.iter().flat_map(members).collect(),
        _ => Vec::new(),
    }
}

/// As many elements as the oracle draws, all of them in the oracle's value, and distinct if the count is positive.
fn draw(pair: &mut Pair, command: &Words) -> Result<Asked> {
    let (redis, gimmal) = pair.ask_one(command)?;
    let with_values = command.len() > 3;
    let (expected, drawn) = (units(&redis, with_values, command), units(&gimmal, with_values, command));
    if expected.is_empty() || drawn.is_empty() {
        return Ok(asked(command, redis, gimmal));
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
    let whole = units(&pair.redis.ask(&whole)?, with_values, command);
    let distinct = command.get(2).is_some_and(|count| !count.starts_with(b"-"));
    let mut unique = drawn.clone();
    unique.sort_unstable();
    unique.dedup();
    let fits = drawn.len() == expected.len()
        && std::mem::discriminant(&redis) == std::mem::discriminant(&gimmal)
        && drawn.iter().all(|unit| whole.contains(unit))
        && (!distinct || unique.len() == drawn.len());
    Ok(Asked { unlike: (!fits).then_some((redis, gimmal)), is_error: false })
}

/// The elements of a reply, each with its value if the reply has them: nested in RESP3, flat in RESP2.
fn units(reply: &Reply, with_values: bool, of: &Words) -> Vec<Words> {
    let text = |reply: &Reply| match reply {
        Reply::Bulk(text) | Reply::Simple(text) => text.clone(),
        Reply::Double(text) => shortest(text.as_bytes()),
        other => describe(other).into_bytes(),
    };
    let value = |reply: &Reply| match reply {
        Reply::Bulk(score) if is(of, 0, "ZRANDMEMBER") => shortest(score),
        other => text(other),
    };
    match reply {
        Reply::Bulk(_) => vec![vec![text(reply)]],
        Reply::Map(pairs) => pairs.iter().map(|(key, with)| vec![text(key), value(with)]).collect(),
        Reply::Array(items) | Reply::Set(items) => match items.first() {
            Some(Reply::Array(_)) => items.iter().flat_map(|item| units(item, true, of)).collect(),
            Some(_) if with_values => items
                .chunks(2)
                .map(|pair| {
                    pair.iter().enumerate().map(|(at, item)| if at == 0 { text(item) } else { value(item) }).collect()
                })
                .collect(),
            _ => items.iter().map(|item| vec![text(item)]).collect(),
        },
        _ => Vec::new(),
    }
}

/// A complete scan on each server finds the same.
fn scan(pair: &mut Pair, command: &Words) -> Result<Asked> {
    let redis = complete(&mut pair.redis, command)?;
    let gimmal = complete(&mut pair.gimmal, command)?;
    let is_error = matches!(gimmal, Reply::Error(_));
    Ok(Asked { unlike: (redis != gimmal).then_some((redis, gimmal)), is_error })
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
                let is_score = |at: usize| is(&command, 0, "ZSCAN") && at % 2 == 1;
                let items: Words = items.iter().enumerate().map(|(at, item)| text_of(item, is_score(at))).collect();
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
fn carry(pair: &mut Pair, command: &Words) -> Result<Asked> {
    let [_, from, to] = command.as_slice() else { return Ok(Asked { unlike: None, is_error: true }) };
    let dumped = pair.ask_one(&vec![b"DUMP".to_vec(), from.clone()])?;
    let (Reply::Bulk(by_redis), Reply::Bulk(by_gimmal)) = &dumped else {
        return Ok(asked(command, dumped.0, dumped.1));
    };
    let restore = |payload: &Vec<u8>| {
        [b"RESTORE", to.as_slice(), b"0", payload, b"REPLACE"].into_iter().map(<[u8]>::to_vec).collect::<Words>()
    };
    let restored = (pair.redis.ask(&restore(by_gimmal))?, pair.gimmal.ask(&restore(by_redis))?);
    Ok(asked(command, restored.0, restored.1))
}

/// What came of a command that both were asked.
pub fn asked(command: &Words, redis: Reply, gimmal: Reply) -> Asked {
    let is_error = matches!(gimmal, Reply::Error(_));
    Asked { unlike: (!same(command, &redis, &gimmal, None)).then_some((redis, gimmal)), is_error }
}

/// For a report: which macro a command is.
pub fn explained(command: &Words) -> String {
    if is(command, 0, "CARRY") { format!("{} (DUMP here, RESTORE there)", shown(command)) } else { shown(command) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_deleted_last_is_found() {
        let given = |line: &str| max_deleted_given(&crate::words::split(line).expect("splits"));
        assert_eq!(given("xsetid x 9-9 ENTRIESADDED 3 maxdeletedid 8-1"), Some((8, 1)));
        assert_eq!(
            [given("XSETID x 9 MAXDELETEDID abc"), given("XSETID x 9"), given("XADD x 9 MAXDELETEDID 1")],
            [None; 3]
        );
        let (name, id) = (Reply::Bulk(b"max-deleted-entry-id".to_vec()), Reply::Bulk(b"8-2".to_vec()));
        assert_eq!(max_deleted_of(&Reply::Map(vec![(name.clone(), id.clone())])), Some((8, 2)));
        let flat = vec![Reply::Bulk(b"length".to_vec()), Reply::Integer(1), name, id];
        assert_eq!(max_deleted_of(&Reply::Array(flat)), Some((8, 2)));
        assert_eq!(max_deleted_of(&Reply::Error(b"ERR no such key".to_vec())), None);
    }
}
