//! Draws an episode: some thousand steps that start from an empty keyspace and depend on nothing but a seed.

use std::collections::HashSet;

use super::dice::Dice;
use super::grammar::{Grammar, Production, Words};
use super::macros::in_transaction;
use crate::wire::Protocol;

/// What is played in one go, from an empty keyspace.
#[derive(Clone, Debug)]
pub struct Episode {
    /// Protocol of each connection.
    pub protocols: Vec<Protocol>,
    /// Directives set before: name and value.
    pub config: Vec<(&'static str, String)>,
    /// In this order.
    pub steps: Vec<Step>,
}

/// One step.
#[derive(Clone, Debug)]
pub enum Step {
    /// A command on one of the connections; it goes out with the ones before it when its pipeline ends.
    Command {
        /// Which connection.
        connection: usize,
        /// The command.
        words: Words,
        /// Whether it is the last of its pipeline.
        ends_pipeline: bool,
    },
    /// The full keyspace is compared.
    Checkpoint,
}

/// What is drawn from.
pub struct Choice<'a> {
    /// The grammar.
    pub grammar: &'a Grammar,
    /// By group, the commands that both servers know.
    pub groups: Vec<Vec<&'a Production>>,
    /// The protocols that connections may speak.
    pub protocols: &'a [Protocol],
}

/// Draws the episode of `seed` with about `length` commands.
pub fn draw(choice: &Choice<'_>, seed: u64, length: usize) -> Episode {
    let mut dice = Dice::new(seed);
    let connections = 1 + dice.below(3);
    let protocols = (0..connections).map(|_| *dice.pick(choice.protocols)).collect();
    let config: Vec<_> = THRESHOLDS.iter().map(|(name, values)| (*name, (*dice.pick(values)).to_owned())).collect();
    let groups = draw_groups(choice, &mut dice);
    let (mut in_multi, mut watches) = (vec![false; connections], vec![false; connections]);
    let mut steps = Vec::new();
    let mut commands = 0;
    let mut next_checkpoint = dice.below(CHECKPOINT_EVERY);
    while commands < length {
        let connection = dice.below(connections);
        let pipeline = if dice.one_in(3) { 1 } else { 1 + dice.below(PIPELINE_LIMIT) };
        for left in (0..pipeline).rev() {
            let words = draw_command(choice, &groups, in_multi[connection], &mut dice);
            let mut words = without_hints(words, &config);
            if watches.contains(&true) {
                grow_openly(&mut words);
            }
            let drawn = if in_multi[connection] { in_transaction(words) } else { vec![words] };
            let words = drawn.last().expect("a command");
            match words.first().map(|name| name.to_ascii_uppercase()).as_deref() {
                Some(b"MULTI") if words.len() == 1 => in_multi[connection] = true,
                Some(b"EXEC" | b"DISCARD") if words.len() == 1 => {
                    (in_multi[connection], watches[connection]) = (false, false);
                }
                Some(b"WATCH") => watches[connection] = true,
                _ => {}
            }
            for (behind, words) in (0..drawn.len()).rev().zip(drawn) {
                steps.push(Step::Command { connection, words, ends_pipeline: left + behind == 0 });
            }
        }
        commands += pipeline;
        if commands > next_checkpoint {
            steps.push(Step::Checkpoint);
            next_checkpoint = commands + dice.below(CHECKPOINT_EVERY);
        }
    }
    steps.push(Step::Checkpoint);
    Episode { protocols, config, steps }
}

const PIPELINE_LIMIT: usize = 48;
const CHECKPOINT_EVERY: usize = 1500;

/// Low values let small data change their encodings. The first of each is the default.
const THRESHOLDS: &[(&str, &[&str])] = &[
    ("hash-max-listpack-entries", &["512", "8"]),
    ("hash-max-listpack-value", &["64", "10"]),
    ("list-max-listpack-size", &["-2", "4"]),
    ("set-max-intset-entries", &["512", "6"]),
    ("zset-max-listpack-entries", &["128", "6"]),
    ("zset-max-listpack-value", &["64", "10"]),
    ("hll-sparse-max-bytes", &["3000", "200"]),
    ("stream-node-max-entries", &["100", "5"]),
];

/// All groups, or a few, whose values then grow richer.
fn draw_groups(choice: &Choice<'_>, dice: &mut Dice) -> Vec<usize> {
    let all = choice.groups.len();
    if dice.one_in(2) { (0..all).collect() } else { (0..1 + dice.below(3)).map(|_| dice.below(all)).collect() }
}

fn draw_command(choice: &Choice<'_>, groups: &[usize], in_multi: bool, dice: &mut Dice) -> Words {
    if in_multi && dice.one_in(6) {
        return vec![if dice.one_in(8) { b"DISCARD".to_vec() } else { b"EXEC".to_vec() }];
    }
    let group = &choice.groups[*dice.pick(groups)];
    let production = group[dice.weighed(group.iter().map(|production| production.weight))];
    let words = choice.grammar.draw(production, dice);
    // Their errors within a transaction end an episode, see the known differences.
    let refused = [&b"MULTI"[..], b"WATCH"].iter().any(|name| words[0].eq_ignore_ascii_case(name));
    if in_multi && refused && !dice.one_in(50) {
        return vec![b"EXEC".to_vec()];
    }
    // Redis looks at the timeouts of those who wait every 100 ms; made wrong they might wait for ever.
    let waiting = [&b"BLPOP"[..], b"BRPOP", b"BLMOVE", b"BLMPOP", b"BRPOPLPUSH", b"BZPOPMIN", b"BZPOPMAX", b"BZMPOP"];
    let waits = !in_multi && waiting.iter().any(|name| words[0].eq_ignore_ascii_case(name));
    if waits && !dice.one_in(30) {
        return vec![b"MULTI".to_vec()];
    }
    if !waits && dice.one_in(30) { spoil(words, dice) } else { words }
}

/// Since Redis 7.2 SADD, ZADD, GEOADD and HSET choose an encoding by the number of elements that they are given, and by the longest;
/// before, by those that they added. So where thresholds are low all elements are different, and what may add none of them
/// (XX) has short ones.
fn without_hints(mut words: Words, config: &[(&str, String)]) -> Words {
    const SHORT: usize = 10;
    let is_low = |name: &str| config.iter().any(|(set, value)| *set == name && value.len() == 1);
    let is_option = |word: &&Vec<u8>| {
        [&b"NX"[..], b"XX", b"GT", b"LT", b"CH", b"INCR"].iter().any(|option| word.eq_ignore_ascii_case(option))
    };
    let name = words[0].to_ascii_uppercase();
    if [&b"ZADD"[..], b"GEOADD"].contains(&name.as_slice()) && words.iter().any(|word| word.len() > SHORT) {
        words.retain(|word| !word.eq_ignore_ascii_case(b"XX"));
    }
    // One word for each element, or two; where the first one is; which of the two makes them different.
    let (size, first, by) = match name.as_slice() {
        b"SADD" if is_low("set-max-intset-entries") => (1, 2, 0),
        b"HSET" | b"HMSET" if is_low("hash-max-listpack-entries") => (2, 2, 0),
        b"ZADD" if is_low("zset-max-listpack-entries") => {
            (2, 2 + words.iter().skip(2).take_while(is_option).count(), 1)
        }
        _ => return words,
    };
    let (head, elements) = words.split_at(first.min(words.len()));
    let mut met = HashSet::new();
    let different = elements.chunks(size).filter(|element| met.insert(element.get(by))).flatten();
    head.iter().chain(different).cloned().collect()
}

/// A string that grows by a BITFIELD that then writes nothing (FAIL) has changed for those who watch it, but not in Redis,
/// whose replicas and files miss it: nothing fails where somebody watches.
fn grow_openly(words: &mut Words) {
    if words[0].eq_ignore_ascii_case(b"BITFIELD") {
        words.iter_mut().filter(|word| word.eq_ignore_ascii_case(b"FAIL")).for_each(|word| *word = b"SAT".to_vec());
    }
}

/// Makes a command wrong, mostly. A deadline that would pass while the test runs cannot come of it.
fn spoil(words: Words, dice: &mut Dice) -> Words {
    let mut spoiled = words.clone();
    let at = dice.below(words.len());
    match dice.below(5) {
        0 if words.len() > 1 => drop(spoiled.remove(at)),
        1 => spoiled.insert(at, words[at].clone()),
        2 => spoiled.swap(at, dice.below(words.len())),
        3 => spoiled[at] = dice.pick(JUNK).to_vec(),
        _ => spoiled.insert(at + 1, dice.pick(JUNK).to_vec()),
    }
    if is_risky(&spoiled) { words } else { spoiled }
}

const JUNK: &[&[u8]] = &[
    b"",
    b"abc",
    b"-1",
    b"0",
    b"1.5",
    b"nan",
    b"-inf",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"18446744073709551616",
    b" 1",
    b"NX",
    b"GET",
    b"LIMIT",
    b"COUNT",
    b"WITHSCORES",
    b"\x00\xff\r\n",
];

/// Commands that could set a deadline soon, turn the connection into a replica's, or mix the scores of sorted sets that
/// are ranged over by their members.
fn is_risky(words: &Words) -> bool {
    let is_risky = |word: &Vec<u8>| {
        let word = word.to_ascii_uppercase();
        memchr::memmem::find(&word, b"EX").is_some() || word.starts_with(b"PX")
    };
    let is_ranged_over = |word: &Vec<u8>| word.starts_with(b"lex") || word == b"never";
    let adds = [&b"ZADD"[..], b"ZRANGESTORE"].iter().any(|name| words[0].eq_ignore_ascii_case(name));
    words[0].is_empty()
        || words[0].eq_ignore_ascii_case(b"SYNC")
        || words.iter().any(is_risky)
        || adds && words.iter().any(is_ranged_over)
}
