//! Plays an episode on both servers and stops at the first difference that is not known.

use std::collections::BTreeMap;

use anyhow::Result;

use super::compare::{is, same, shown};
use super::encoding::encoding;
use super::episode::{Episode, Step};
use super::grammar::Words;
use super::known::{After, History, Known};
use super::macros::{Asked, Macro, explained, goes_into_transaction, macro_for};
use super::pair::{Pair, words};
use crate::reply::Reply;
use crate::wire::{Protocol, describe};

/// An unexplained difference.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The step of the episode.
    pub step: usize,
    /// The command that was answered differently.
    pub command: String,
    /// What the oracle answers.
    pub redis: String,
    /// What the server under test answers.
    pub gimmal: String,
}

/// How an episode ended that found nothing new.
#[derive(Clone, Debug, Default)]
pub struct Played {
    /// Replies compared.
    pub commands: u64,
    /// By the names of commands, those of transactions that were executed among them.
    pub names: BTreeMap<String, Count>,
    /// Keys compared at checkpoints.
    pub keys: u64,
    /// A known difference ended it before its last step.
    pub cut_short: bool,
}

/// How often a command was answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    /// With anything.
    pub answered: u64,
    /// With anything but an error.
    pub accepted: u64,
}

/// An episode's end.
pub type Outcome = Result<Played, Box<Difference>>;

/// Databases that commands select.
const DATABASES: usize = 3;

/// Plays it. The servers must have nothing else to do.
///
/// # Errors
/// The servers cannot be emptied or set up. A connection that fails later is a difference.
pub fn play(ports: [u16; 2], episode: &Episode, known: &Known) -> Result<Outcome> {
    let mut control = Pair::connect(ports, Protocol::Resp2)?;
    let mut set_up = vec![words(&["FLUSHALL"])];
    set_up.extend(episode.config.iter().map(|(name, value)| words(&["CONFIG", "SET", name, value])));
    control.ask(&set_up)?;
    let pairs = episode.protocols.iter().map(|protocol| Pair::connect(ports, *protocol)).collect::<Result<_>>()?;
    let history = known.begin(&episode.config);
    let mut play = Play { control, pairs, known, history, played: Played::default(), step: 0 };
    Ok(match play.steps(&episode.steps) {
        Ok(()) => Ok(play.played),
        Err(Stop::Known) => Ok(Played { cut_short: true, ..play.played }),
        Err(Stop::Unknown(difference)) => Err(difference),
    })
}

struct Play<'a> {
    control: Pair,
    pairs: Vec<Pair>,
    known: &'a Known,
    history: History<'a>,
    played: Played,
    step: usize,
}

enum Stop {
    Known,
    Unknown(Box<Difference>),
}

impl Play<'_> {
    fn steps(&mut self, steps: &[Step]) -> Result<(), Stop> {
        let mut waiting: Vec<(usize, Words)> = Vec::new();
        let mut waits_on = 0;
        for (at, step) in steps.iter().enumerate() {
            match step {
                Step::Checkpoint => {
                    self.pipeline(waits_on, &mut waiting)?;
                    self.step = at;
                    self.checkpoint()?;
                }
                Step::Command { connection, words, ends_pipeline } => {
                    let ask = macro_for(words);
                    if *connection != waits_on || ask.is_some() {
                        self.pipeline(waits_on, &mut waiting)?;
                        waits_on = *connection;
                    }
                    match ask {
                        Some(ask) if self.pairs[*connection].queued.is_none() => {
                            self.step = at;
                            self.ask_macro(*connection, words, ask)?;
                        }
                        Some(_) if !goes_into_transaction(words) => {}
                        _ => waiting.push((at, words.clone())),
                    }
                    if *ends_pipeline {
                        self.pipeline(waits_on, &mut waiting)?;
                    }
                }
            }
        }
        self.pipeline(waits_on, &mut waiting)
    }

    fn pipeline(&mut self, connection: usize, waiting: &mut Vec<(usize, Words)>) -> Result<(), Stop> {
        let (steps, commands): (Vec<usize>, Vec<Words>) = waiting.drain(..).unzip();
        let Some(last) = steps.last() else { return Ok(()) };
        self.step = *last;
        let replies = self.pairs[connection].ask(&commands).map_err(|error| self.failed(&commands, &error))?;
        for ((step, words), (redis, gimmal)) in steps.into_iter().zip(&commands).zip(replies) {
            self.step = step;
            let queued = self.pairs[connection].queued.take();
            self.count(words, &gimmal, queued.as_deref());
            self.compare(words, redis.clone(), gimmal, queued.as_deref())?;
            self.pairs[connection].queued = follow(words, &redis, queued);
            self.played.commands += 1;
        }
        Ok(())
    }

    fn ask_macro(&mut self, connection: usize, words: &Words, ask: Macro) -> Result<(), Stop> {
        let asked = ask(&mut self.pairs[connection], words);
        if let Ok(asked) = &asked {
            self.played.commands += 1;
            self.count_one(words, asked.is_error);
        }
        self.answered(words, asked)
    }

    fn answered(&mut self, words: &Words, asked: Result<Asked>) -> Result<(), Stop> {
        let Asked { unlike, .. } = asked.map_err(|error| self.failed(std::slice::from_ref(words), &error))?;
        unlike.map_or(Ok(()), |(redis, gimmal)| self.differ(words, &redis, &gimmal, None))
    }

    /// What is queued counts when it is executed.
    fn count(&mut self, words: &Words, reply: &Reply, queued: Option<&[Words]>) {
        if let (Some(queued), Reply::Array(replies)) = (queued, reply)
            && is(words, 0, "EXEC")
        {
            for (words, reply) in queued.iter().zip(replies) {
                self.count_one(words, matches!(reply, Reply::Error(_)));
            }
        }
        if *reply != Reply::Simple(b"QUEUED".to_vec()) {
            self.count_one(words, matches!(reply, Reply::Error(_)));
        }
    }

    fn count_one(&mut self, words: &Words, is_error: bool) {
        let name = String::from_utf8_lossy(&words[0]).to_ascii_uppercase();
        let names = if name == "CARRY" { ["DUMP", "RESTORE"].map(str::to_owned).to_vec() } else { vec![name] };
        for name in names {
            let count = self.played.names.entry(name).or_default();
            count.answered += 1;
            count.accepted += u64::from(!is_error);
        }
    }

    fn checkpoint(&mut self) -> Result<(), Stop> {
        for database in 0..DATABASES {
            let database = database.to_string();
            let replies = self.control(&[words(&["SELECT", &database]), words(&["KEYS", "*"])])?;
            let Some((_, Reply::Array(keys))) = replies.last().cloned() else { continue };
            let keys: Vec<Vec<u8>> =
                keys.into_iter().filter_map(|key| if let Reply::Bulk(key) = key { Some(key) } else { None }).collect();
            let of_key = |name: &[&str], key: &Vec<u8>| {
                let mut command = words(name);
                command.push(key.clone());
                command
            };
            self.played.keys += u64::try_from(keys.len()).expect("a length fits 64 bits");
            for key in keys {
                let replies = self.control(&[of_key(&["TYPE"], &key), of_key(&["PEXPIRETIME"], &key)])?;
                let Some((Reply::Simple(kind), _)) = replies.first() else { continue };
                let ask_encoding = of_key(&["OBJECT", "ENCODING"], &key);
                let asked = encoding(&mut self.control, &ask_encoding);
                self.answered(&ask_encoding, asked)?;
                self.control(&whole_value(kind, &key))?;
            }
        }
        Ok(())
    }

    fn control(&mut self, commands: &[Words]) -> Result<Vec<(Reply, Reply)>, Stop> {
        let replies = self.control.ask(commands).map_err(|error| self.failed(commands, &error))?;
        for (words, (redis, gimmal)) in commands.iter().zip(&replies) {
            self.compare(words, redis.clone(), gimmal.clone(), None)?;
        }
        Ok(replies)
    }

    fn compare(&mut self, words: &Words, redis: Reply, gimmal: Reply, queued: Option<&[Words]>) -> Result<(), Stop> {
        // One that is queued counts already: what is known after it is then known a little too early.
        if !matches!(redis, Reply::Error(_)) {
            self.known.note(words, &mut self.history);
        }
        if !same(words, &redis, &gimmal, queued) {
            return self.differ(words, &redis, &gimmal, queued);
        }
        if self.known.ends_though_same(words, &redis, queued, &self.history) { Err(Stop::Known) } else { Ok(()) }
    }

    fn differ(&self, words: &Words, redis: &Reply, gimmal: &Reply, queued: Option<&[Words]>) -> Result<(), Stop> {
        match self.known.explains(words, redis, gimmal, queued, &self.history) {
            Some(After::GoesOn) => Ok(()),
            Some(After::Ends) => Err(Stop::Known),
            None => {
                let inside =
                    queued.filter(|_| is(words, 0, "EXEC")).and_then(|queued| first_unlike(queued, redis, gimmal));
                let command = inside.map_or_else(|| explained(words), |inside| format!("EXEC of {inside}"));
                Err(Stop::Unknown(Box::new(Difference {
                    step: self.step,
                    command,
                    redis: describe(redis),
                    gimmal: describe(gimmal),
                })))
            }
        }
    }

    fn failed(&self, commands: &[Words], error: &anyhow::Error) -> Stop {
        let commands: Vec<String> = commands.iter().map(|words| shown(words)).collect();
        Stop::Unknown(Box::new(Difference {
            step: self.step,
            command: format!("one of: {}", commands.join(" / ")),
            redis: String::new(),
            gimmal: format!("{error:#}"),
        }))
    }
}

/// The transaction's queue after a reply.
fn follow(words: &Words, reply: &Reply, queued: Option<Vec<Words>>) -> Option<Vec<Words>> {
    let ends = is(words, 0, "EXEC") || is(words, 0, "DISCARD");
    match (reply, queued) {
        (Reply::Simple(text), None) if text == b"OK" && is(words, 0, "MULTI") => Some(Vec::new()),
        (Reply::Simple(text), Some(mut queue)) if text == b"QUEUED" => {
            queue.push(words.clone());
            Some(queue)
        }
        (Reply::Error(text), Some(_)) if ends && text.starts_with(b"EXECABORT") => None,
        (Reply::Error(_), Some(queue)) => Some(queue),
        (_, Some(_)) if ends => None,
        (_, queued) => queued,
    }
}

fn first_unlike(queued: &[Words], redis: &Reply, gimmal: &Reply) -> Option<String> {
    let (Reply::Array(redis), Reply::Array(gimmal)) = (redis, gimmal) else { return None };
    let both = redis.iter().zip(gimmal).zip(queued);
    both.filter(|((redis, gimmal), words)| !same(words, redis, gimmal, None)).map(|(_, words)| shown(words)).next()
}

/// Commands that read a value of a type whole.
fn whole_value(kind: &[u8], key: &[u8]) -> Vec<Words> {
    let lines: &[&[&str]] = match kind {
        b"string" => &[&["GET", ""]],
        b"list" => &[&["LRANGE", "", "0", "-1"]],
        b"set" => &[&["SMEMBERS", ""]],
        b"zset" => &[&["ZRANGE", "", "0", "-1", "WITHSCORES"]],
        b"hash" => &[&["HGETALL", ""]],
        b"stream" => &[
            &["XRANGE", "", "-", "+"],
            &["XINFO", "STREAM", ""],
            &["XINFO", "GROUPS", ""],
            &["XINFO", "CONSUMERS", "", "g1"],
            &["XINFO", "CONSUMERS", "", "g2"],
            &["XPENDING", "", "g1", "-", "+", "1000"],
            &["XPENDING", "", "g2", "-", "+", "1000"],
        ],
        _ => &[],
    };
    let fill = |word: &&str| if word.is_empty() { key.to_vec() } else { word.as_bytes().to_vec() };
    lines.iter().map(|line| line.iter().map(fill).collect()).collect()
}

impl Difference {
    /// What differences of the same cause mostly share: the command's name and how the replies begin.
    pub fn signature(&self) -> String {
        let start =
            |text: &str, length: usize| text.chars().take(length).filter(|c| !c.is_ascii_digit()).collect::<String>();
        let name: Vec<&str> = self.command.trim_start_matches("EXEC of ").split(' ').take(1).collect();
        let kind = |text: &str| if text.starts_with('-') { start(text, 24) } else { start(text, 1) };
        format!("{} {} {}", name.join(" ").to_ascii_uppercase(), kind(&self.redis), kind(&self.gimmal))
    }
}
