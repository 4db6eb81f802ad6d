//! OBJECT ENCODING: since Redis 7.2 small lists and small sets are listpacks. That they are small is looked up.

use anyhow::{Context, Result};

use super::compare::is;
use super::grammar::Words;
use super::macros::{Asked, asked};
use super::pair::{Link, Pair, words};
use crate::reply::Reply;

/// Whether the command asks for an encoding.
pub fn is_encoding(command: &Words) -> bool {
    command.len() == 3 && is(command, 0, "OBJECT") && is(command, 1, "ENCODING")
}

/// Asks both; where the server under test has the newer encoding, its value must be within the limits of that.
pub fn encoding(pair: &mut Pair, command: &Words) -> Result<Asked> {
    let (redis, gimmal) = pair.ask_one(command)?;
    let is_explained = match (&redis, &gimmal) {
        (Reply::Bulk(old), Reply::Bulk(new)) => match (&old[..], &new[..]) {
            (b"quicklist", b"listpack") => is_small_list(&mut pair.gimmal, &command[2])?,
            (b"hashtable", b"listpack") => is_small_set(&mut pair.gimmal, &command[2])?,
            _ => false,
        },
        _ => false,
    };
    if is_explained { Ok(Asked { unlike: None, is_error: false }) } else { Ok(asked(command, redis, gimmal)) }
}

fn is_small_list(server: &mut Link, key: &[u8]) -> Result<bool> {
    let elements = elements(server, &[b"LRANGE", key, b"0", b"-1"])?;
    Ok(fits_listpack(&elements, limit(server, "list-max-listpack-size")?))
}

fn is_small_set(server: &mut Link, key: &[u8]) -> Result<bool> {
    let elements = elements(server, &[b"SMEMBERS", key])?;
    let most = limit(server, "set-max-listpack-entries")?;
    let longest = limit(server, "set-max-listpack-value")?;
    Ok(is_within(elements.len(), most) && elements.iter().all(|element| is_within(element.len(), longest)))
}

/// The limit of a list: a number of elements, or a class of sizes in bytes if it is negative.
fn fits_listpack(elements: &[Vec<u8>], limit: i64) -> bool {
    const CLASSES: [usize; 5] = [4096, 8192, 16384, 32768, 65536];
    const FRAME: usize = 7;
    match usize::try_from(-limit) {
        Ok(class @ 1..=5) => {
            FRAME + elements.iter().map(|element| least_size(element)).sum::<usize>() <= CLASSES[class - 1]
        }
        _ => is_within(elements.len(), limit),
    }
}

/// The least that an element takes in a listpack: its text, or its number in as few bytes as there are, with a byte before
/// and one behind.
fn least_size(element: &[u8]) -> usize {
    let number = str::from_utf8(element).ok().and_then(|text| text.parse::<i64>().ok());
    match number {
        Some(number) => 2 + usize::try_from((64 - number.unsigned_abs().leading_zeros()) / 8).expect("at most 8 bytes"),
        None => 2 + element.len(),
    }
}

fn is_within(length: usize, limit: i64) -> bool {
    usize::try_from(limit).is_ok_and(|limit| length <= limit)
}

fn elements(server: &mut Link, command: &[&[u8]]) -> Result<Vec<Vec<u8>>> {
    let reply = server.ask(&command.iter().map(|word| word.to_vec()).collect())?;
    let items = match reply {
        Reply::Array(items) | Reply::Set(items) => items,
        other => anyhow::bail!("no elements: {other:?}"),
    };
    let text = |item| if let Reply::Bulk(text) = item { Some(text) } else { None };
    items.into_iter().map(text).collect::<Option<_>>().context("elements are texts")
}

fn limit(server: &mut Link, directive: &str) -> Result<i64> {
    let reply = server.ask(&words(&["CONFIG", "GET", directive]))?;
    let value = match &reply {
        Reply::Array(pair) => pair.get(1),
        Reply::Map(pairs) => pairs.first().map(|(_, value)| value),
        _ => None,
    };
    match value {
        Some(Reply::Bulk(text)) => Ok(str::from_utf8(text)?.parse()?),
        _ => anyhow::bail!("no value of {directive}: {reply:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_is_what_the_limit_says() {
        let elements = |count: usize, text: &str| vec![text.as_bytes().to_vec(); count];
        assert!(fits_listpack(&elements(4, "a"), 4) && !fits_listpack(&elements(5, "a"), 4));
        // Two bytes around each of them, seven around all.
        assert!(
            fits_listpack(&elements(81, &"x".repeat(98)), -2) && !fits_listpack(&elements(82, &"x".repeat(98)), -2)
        );
        assert!(fits_listpack(&elements(4000, "1"), -2), "numbers are shorter than their texts");
        assert!(!fits_listpack(&elements(5000, "1"), -2) && !fits_listpack(&elements(1, "a"), 0));
    }

    #[test]
    fn only_encodings_are_asked_for() {
        assert!(is_encoding(&words(&["object", "encoding", "k"])));
        assert!(!is_encoding(&words(&["OBJECT", "ENCODING"])) && !is_encoding(&words(&["OBJECT", "FREQ", "k"])));
    }
}
