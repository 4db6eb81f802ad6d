//! Plays an episode on both servers and stops at the first difference that is not known.

use anyhow::Result;

use super::compare::{After, Known, is, same, shown};
use super::episode::{Episode, Step};
use super::grammar::Words;
use super::macros::{Unlike, explained, macro_for};
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
#[derive(Clone, Copy, Debug, Default)]
pub struct Played {
    /// Commands compared.
    pub commands: u64,
    /// Keys compared at checkpoints.
    pub keys: u64,
    /// A known difference ended it before its last step.
    pub cut_short: bool,
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
    let mut play = Play { control, pairs, known, played: Played::default(), step: 0 };
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
                    if *connection != waits_on || macro_for(words).is_some() {
                        self.pipeline(waits_on, &mut waiting)?;
                        waits_on = *connection;
                    }
                    match macro_for(words) {
                        Some(ask) => {
                            self.step = at;
                            self.ask_macro(*connection, words, ask)?;
                        }
                        None => waiting.push((at, words.clone())),
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
            self.compare(words, redis.clone(), gimmal, queued.as_deref())?;
            self.pairs[connection].queued = follow(words, &redis, queued);
            self.played.commands += 1;
        }
        Ok(())
    }

    /// Within a transaction these commands cannot be asked; they are left out.
    fn ask_macro(&mut self, connection: usize, words: &Words, ask: super::macros::Macro) -> Result<(), Stop> {
        if self.pairs[connection].queued.is_some() {
            return Ok(());
        }
        self.played.commands += 1;
        let unlike: Unlike = ask(&mut self.pairs[connection], words)
            .map_err(|error| self.failed(std::slice::from_ref(words), &error))?;
        match unlike {
            Some((redis, gimmal)) => self.differ(words, &redis, &gimmal, None),
            None => Ok(()),
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
                let replies = self.control(&[
                    of_key(&["TYPE"], &key),
                    of_key(&["OBJECT", "ENCODING"], &key),
                    of_key(&["PEXPIRETIME"], &key),
                ])?;
                let Some((Reply::Simple(kind), _)) = replies.first() else { continue };
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

    fn compare(&self, words: &Words, redis: Reply, gimmal: Reply, queued: Option<&[Words]>) -> Result<(), Stop> {
        if same(words, &redis, &gimmal, queued) { Ok(()) } else { self.differ(words, &redis, &gimmal, queued) }
    }

    fn differ(&self, words: &Words, redis: &Reply, gimmal: &Reply, queued: Option<&[Words]>) -> Result<(), Stop> {
        match self.known.explains(words, redis, gimmal, queued) {
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
        b"stream" => &[&["XRANGE", "", "-", "+"], &["XINFO", "STREAM", ""], &["XINFO", "GROUPS", ""]],
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
