//! Sorted searches of places: the order of members at one distance is not defined, nor which of them COUNT takes.
//!
//! Where the replies differ, the oracle is asked for every place within the area and all there is to say of it. Then both
//! replies must name different members at the same distances, one after the other, and say the truth of each.

use std::collections::{HashMap, HashSet};

use anyhow::Result;

use super::compare::{has, is, same};
use super::grammar::Words;
use super::macros::{Asked, asked};
use super::pair::Pair;
use crate::reply::Reply;

/// Whether members at one distance are in an order of the server's own. What is stored has none.
pub fn is_sorted_search(command: &Words) -> bool {
    options_at(command).is_some()
        && ["COUNT", "ASC", "DESC"].into_iter().any(|option| has(command, option))
        && !["ANY", "STORE", "STOREDIST"].into_iter().any(|option| has(command, option))
}

/// Where a search's options begin; nothing for other commands.
fn options_at(command: &Words) -> Option<usize> {
    let of = |names: &[&str]| names.iter().any(|name| is(command, 0, name));
    if of(&["GEORADIUS", "GEORADIUS_RO"]) {
        Some(6)
    } else if of(&["GEORADIUSBYMEMBER", "GEORADIUSBYMEMBER_RO"]) {
        Some(5)
    } else {
        of(&["GEOSEARCH"]).then_some(2)
    }
}

/// Asks both, and the oracle once more if they do not say the same.
pub fn search(pair: &mut Pair, command: &Words) -> Result<Asked> {
    let (redis, gimmal) = pair.ask_one(command)?;
    if same(command, &redis, &gimmal, None) {
        return Ok(asked(command, redis, gimmal));
    }
    let places = Places::of(&pair.redis.ask(&everything(command))?);
    let tied = places.is_some_and(|places| places.are_tied(command, &redis, &gimmal));
    Ok(Asked { unlike: (!tied).then_some((redis, gimmal)), is_error: false })
}

const DETAILS: [&str; 3] = ["WITHDIST", "WITHHASH", "WITHCOORD"];

/// The same search without a count and an order, with all details.
fn everything(command: &Words) -> Words {
    let (area, options) = command.split_at(options_at(command).unwrap_or(command.len()).min(command.len()));
    let mut all = area.to_vec();
    let mut options = options.iter();
    while let Some(option) = options.next() {
        let is_one = |names: &[&str]| names.iter().any(|name| option.eq_ignore_ascii_case(name.as_bytes()));
        if is_one(&["COUNT"]) {
            options.next();
        } else if !is_one(&["ASC", "DESC"]) && !is_one(&DETAILS) {
            all.push(option.clone());
        }
    }
    all.extend(DETAILS.map(|detail| detail.as_bytes().to_vec()));
    all
}

/// By member, the distance, the hash and the position, as replies.
struct Places(HashMap<Vec<u8>, [Reply; 3]>);

impl Places {
    fn of(everything: &Reply) -> Option<Places> {
        let Reply::Array(items) = everything else { return None };
        let place = |item: &Reply| match item {
            Reply::Array(parts) => match &parts[..] {
                [Reply::Bulk(member), details @ ..] => Some((member.clone(), details.to_vec().try_into().ok()?)),
                _ => None,
            },
            _ => None,
        };
        items.iter().map(place).collect::<Option<_>>().map(Places)
    }

    /// Whether the two replies to `command` differ by nothing but members at the same distance.
    fn are_tied(&self, command: &Words, redis: &Reply, gimmal: &Reply) -> bool {
        let ([Some(redis), Some(gimmal)], true) =
            ([redis, gimmal].map(|reply| self.distances(command, reply)), self.0.len() > 1)
        else {
            return false;
        };
        redis == gimmal
    }

    /// How far each item is; nothing if a reply names a member twice or says what is not so.
    fn distances(&self, command: &Words, reply: &Reply) -> Option<Vec<&Reply>> {
        let Reply::Array(items) = reply else { return None };
        let mut met = HashSet::new();
        let distance = |item: &Reply| {
            let (member, told) = match item {
                Reply::Bulk(member) => (member, &[][..]),
                Reply::Array(parts) => match &parts[..] {
                    [Reply::Bulk(member), told @ ..] => (member, told),
                    _ => return None,
                },
                _ => return None,
            };
            let details = self.0.get(member)?;
            let asked = DETAILS.iter().zip(details).filter(|(name, _)| has(command, name)).map(|(_, detail)| detail);
            (met.insert(member.clone()) && asked.eq(told)).then_some(&details[0])
        };
        items.iter().map(distance).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Words {
        crate::words::split(line).expect("splits")
    }

    fn bulk(text: &str) -> Reply {
        Reply::Bulk(text.into())
    }

    fn members(names: &str) -> Reply {
        Reply::Array(names.split(' ').map(bulk).collect())
    }

    /// `a` is near, `b` and `c` are at one distance.
    fn places() -> Places {
        let place = |(name, distance)| {
            let position = Reply::Array(vec![bulk("1"), bulk(name)]);
            Reply::Array(vec![bulk(name), bulk(distance), Reply::Integer(7), position])
        };
        Places::of(&Reply::Array([("a", "1.0"), ("b", "2.0"), ("c", "2.0")].map(place).to_vec())).expect("places")
    }

    #[test]
    fn only_those_at_one_distance_may_change_places() {
        let tied = |redis: &str, gimmal: &str| {
            places().are_tied(&words("GEORADIUS g 1 1 5 m COUNT 2"), &members(redis), &members(gimmal))
        };
        assert!(tied("a b c", "a c b") && tied("a b", "a c"));
        assert!(!tied("a b", "b a") && !tied("a b", "a b c"));
        assert!(!tied("a b c", "a b b"), "one twice");
        assert!(!tied("a b", "a d"), "one that is not there");
        assert!(!places().are_tied(&words("GEORADIUS g 1 1 5 m COUNT 2"), &members("a"), &Reply::Null));
    }

    #[test]
    fn what_is_said_of_a_member_is_its_own() {
        let item =
            |name: &str, hash| Reply::Array(vec![Reply::Array(vec![bulk(name), bulk("2.0"), Reply::Integer(hash)])]);
        let tied = |options: &str, hash| {
            let command = words(&format!("GEOSEARCH g FROMMEMBER a BYRADIUS 5 m DESC COUNT 1 {options}"));
            places().are_tied(&command, &item("b", 7), &item("c", hash))
        };
        assert!(tied("WITHHASH WITHDIST", 7));
        assert!(!tied("WITHHASH WITHDIST", 8) && !tied("WITHDIST", 7));
    }

    #[test]
    fn everything_is_asked_for() {
        let asked = |line: &str| {
            everything(&words(line)).iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            asked("GEORADIUS g 1 2 5 m count 3 asc WITHDIST"),
            "GEORADIUS g 1 2 5 m WITHDIST WITHHASH WITHCOORD"
        );
        assert_eq!(
            asked("GEOSEARCH g FROMMEMBER a BYRADIUS 5 m DESC COUNT 1"),
            "GEOSEARCH g FROMMEMBER a BYRADIUS 5 m WITHDIST WITHHASH WITHCOORD"
        );
        assert!(is_sorted_search(&words("georadiusbymember g m 1 km COUNT 3")));
        assert!(
            !is_sorted_search(&words("GEORADIUS g 1 1 1 km ASC STORE z")) && !is_sorted_search(&words("GEOSEARCH g"))
        );
    }
}
