//! The differences that are known: a list in `tests/differential/known.txt`, each with the texts that it explains.

use std::cell::Cell;

use anyhow::{Context, Result, ensure};

use super::compare::{is, same, shown};
use super::grammar::Words;
use crate::reply::Reply;
use crate::wire::{describe, glob_matches};

/// The differences that are known, each with its reason.
pub struct Known {
    entries: Vec<Entry>,
}

/// A known difference. Its three patterns have `*` and `?` as wildcards.
pub struct Entry {
    /// Why the servers differ.
    pub reason: String,
    /// How often it was met.
    pub met: Cell<u64>,
    /// One pattern for each word; `...` at the end stands for any words that follow, or none.
    command: Vec<String>,
    redis: String,
    gimmal: String,
    /// Known only in an episode with these values of directives.
    config: Vec<(String, String)>,
    /// Known only behind one of these commands, if there are any.
    after: Vec<Vec<String>>,
    /// The servers' data differ after it, so that the episode cannot go on.
    ends: bool,
}

/// What an episode has done, as far as entries ask for it.
#[derive(Clone, Debug)]
pub struct History<'a> {
    /// Directives that were set before it.
    config: &'a [(&'static str, String)],
    /// By entry, whether a command came that it is known after.
    came: Vec<bool>,
}

/// What a known difference means for what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// The data are the same.
    GoesOn,
    /// They are not.
    Ends,
}

impl Known {
    /// Reads a list: `== reason`, then lines `command …`, `redis …`, `gimmal …`, `config NAME VALUE` if it is only known with
    /// this value of a directive, `after …` if only behind such a command that was accepted (one of several, on any key,
    /// since values are copied and renamed), and `ends` if the data differ.
    ///
    /// # Errors
    /// A line that is none of these, or an entry that lacks one.
    pub fn parse(text: &str) -> Result<Self> {
        let mut entries: Vec<Entry> = Vec::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
            match (name, entries.last_mut(), rest.split_once(' ')) {
                ("==", _, _) => entries.push(Entry {
                    reason: rest.to_owned(),
                    met: Cell::new(0),
                    command: Vec::new(),
                    redis: String::new(),
                    gimmal: String::new(),
                    config: Vec::new(),
                    after: Vec::new(),
                    ends: false,
                }),
                ("command", Some(entry), _) => entry.command = patterns(rest),
                ("after", Some(entry), Some(_)) => entry.after.push(patterns(rest)),
                ("redis", Some(entry), _) => rest.clone_into(&mut entry.redis),
                ("gimmal", Some(entry), _) => rest.clone_into(&mut entry.gimmal),
                ("config", Some(entry), Some((name, value))) => entry.config.push((name.to_owned(), value.to_owned())),
                ("ends", Some(entry), None) => entry.ends = true,
                _ => return Err(anyhow::anyhow!("not a line of a known difference: {line}")),
            }
        }
        for entry in &entries {
            let complete =
                !entry.command.is_empty() && ![&entry.reason, &entry.redis, &entry.gimmal].iter().any(|s| s.is_empty());
            ensure!(complete, "a known difference that lacks a line: {}", entry.reason);
        }
        Ok(Self { entries })
    }

    /// The history of an episode that begins.
    pub fn begin<'a>(&self, config: &'a [(&'static str, String)]) -> History<'a> {
        History { config, came: self.entries.iter().map(|entry| entry.after.is_empty()).collect() }
    }

    /// Notes a command that was not refused.
    pub fn note(&self, words: &[Vec<u8>], history: &mut History<'_>) {
        let name = lowercase(&words[..1]);
        let mut all = None;
        for (entry, came) in self.entries.iter().zip(&mut history.came).filter(|(_, came)| !**came) {
            *came = entry.after.iter().any(|after| {
                fits(&after[0], &name[0]) && fits_words(after, all.get_or_insert_with(|| lowercase(words)))
            });
        }
    }

    /// Whether the difference is known, at this point of an episode.
    pub fn explains(
        &self,
        words: &[Vec<u8>],
        redis: &Reply,
        gimmal: &Reply,
        queued: Option<&[Words]>,
        history: &History<'_>,
    ) -> Option<After> {
        if let (Some(queued), Reply::Array(redis), Reply::Array(gimmal)) = (queued, redis, gimmal)
            && is(words, 0, "EXEC")
        {
            return self.explains_each(queued, redis, gimmal, history);
        }
        let (redis, gimmal) = (describe(redis), describe(gimmal));
        let command = lowercase(words);
        let explains = |entry: &Entry| {
            let is_set = |(name, value): &(String, String)| history.config.iter().any(|(n, v)| n == name && v == value);
            fits_words(&entry.command, &command)
                && fits(&entry.redis, &redis)
                && fits(&entry.gimmal, &gimmal)
                && entry.config.iter().all(is_set)
        };
        let (entry, _) = self.entries.iter().zip(&history.came).find(|(entry, came)| **came && explains(entry))?;
        entry.met.set(entry.met.get() + 1);
        Some(if entry.ends { After::Ends } else { After::GoesOn })
    }

    /// Whether the data may differ although the replies are the same: an entry that ends an episode matches both.
    pub fn ends_though_same(
        &self,
        words: &[Vec<u8>],
        reply: &Reply,
        queued: Option<&[Words]>,
        history: &History<'_>,
    ) -> bool {
        match (reply, queued) {
            (Reply::Array(replies), Some(queued)) if is(words, 0, "EXEC") => {
                replies.iter().zip(queued).any(|(reply, words)| self.ends_though_same(words, reply, None, history))
            }
            (Reply::Error(_), _) => self.explains(words, reply, reply, None, history) == Some(After::Ends),
            _ => false,
        }
    }

    fn explains_each(
        &self,
        queued: &[Words],
        redis: &[Reply],
        gimmal: &[Reply],
        history: &History<'_>,
    ) -> Option<After> {
        if [redis.len(), gimmal.len()] != [queued.len(); 2] {
            return None;
        }
        for ((redis, gimmal), words) in redis.iter().zip(gimmal).zip(queued) {
            let ends = if same(words, redis, gimmal, None) {
                self.ends_though_same(words, redis, None, history)
            } else {
                self.explains(words, redis, gimmal, None, history)? == After::Ends
            };
            // What follows in the transaction meets other data.
            if ends {
                return Some(After::Ends);
            }
        }
        Some(After::GoesOn)
    }

    /// All of them.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }
}

fn patterns(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_ascii_lowercase).collect()
}

fn lowercase(words: &[Vec<u8>]) -> Vec<String> {
    words.iter().map(|word| shown(std::slice::from_ref(word)).to_ascii_lowercase()).collect()
}

fn fits(pattern: &str, text: &str) -> bool {
    glob_matches(pattern.as_bytes(), text.as_bytes())
}

fn fits_words(patterns: &[String], words: &[String]) -> bool {
    let (patterns, more) = match patterns {
        [patterns @ .., last] if last == "..." => (patterns, true),
        patterns => (patterns, false),
    };
    (patterns.len() == words.len() || more && patterns.len() < words.len())
        && patterns.iter().zip(words).all(|(pattern, word)| fits(pattern, word))
}

/// The list in the repository.
pub fn known() -> Result<Known> {
    Known::parse(include_str!("../../../../tests/differential/known.txt")).context("known.txt")
}
#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Words {
        crate::words::split(line).expect("splits")
    }

    #[test]
    fn the_list_is_read_and_explains() {
        let known = "== why\ncommand GET *\nredis -ERR a*\ngimmal _\nends\n== x\ncommand SET k ...\nredis :1\ngimmal :?\nconfig a 6";
        let known = Known::parse(known).expect("a list");
        let error = Reply::Error(b"ERR abc".to_vec());
        let (one, two) = (Reply::Integer(1), Reply::Integer(2));
        let get = |line: &str, redis: &Reply, gimmal: &Reply| {
            known.explains(&words(line), redis, gimmal, None, &known.begin(&[]))
        };
        assert_eq!(get("get k", &error, &Reply::Null), Some(After::Ends));
        assert_eq!(get("get k", &Reply::Null, &error), None);
        assert_eq!(get("get k k", &error, &Reply::Null), None);
        let set = |line: &str, value: &str| {
            known.explains(&words(line), &one, &two, None, &known.begin(&[("a", value.to_owned())]))
        };
        assert_eq!([set("SET k v w", "6"), set("SET k v", "5"), set("SET j", "6")], [Some(After::GoesOn), None, None]);
        assert_eq!(set("SET k", "6"), Some(After::GoesOn), "none are any words as well");
        assert!(Known::parse("== why\ncommand GET *\n").is_err());
        assert!(Known::parse("redis x\n").is_err());
        assert!(super::known().is_ok());
    }

    #[test]
    fn an_entry_that_fits_both_replies_ends_an_episode() {
        let known = Known::parse("== why\ncommand GET *\nredis -ERR a*\ngimmal -ERR a*\nends").expect("a list");
        let history = known.begin(&[]);
        let error = Reply::Error(b"ERR abc".to_vec());
        assert!(known.ends_though_same(&words("GET k"), &error, None, &history));
        assert!(!known.ends_though_same(&words("SET k"), &error, None, &history));
        assert!(!known.ends_though_same(&words("GET k"), &Reply::Null, None, &history));
        let executed = Reply::Array(vec![Reply::Null, error]);
        let queued = [words("GET j"), words("GET k")];
        assert!(known.ends_though_same(&words("EXEC"), &executed, Some(&queued), &history));
    }

    #[test]
    fn some_are_known_only_behind_other_commands() {
        let known = "== why\ncommand GET *\nredis :1\ngimmal :2\nafter SET * x\nafter APPEND * ...\nends";
        let known = Known::parse(known).expect("a list");
        let get = |history: &History<'_>| {
            known.explains(&words("GET k"), &Reply::Integer(1), &Reply::Integer(2), None, history)
        };
        let mut history = known.begin(&[]);
        ["SET k y", "GET k", "SET k x y"].iter().for_each(|line| known.note(&words(line), &mut history));
        assert_eq!(get(&history), None);
        for line in ["set other X", "APPEND k z", "APPEND k"] {
            let mut history = history.clone();
            known.note(&words(line), &mut history);
            assert_eq!(get(&history), Some(After::Ends), "after {line}");
        }
        assert!(Known::parse("== why\ncommand GET *\nredis :1\ngimmal :2\nafter SET").is_err(), "too wide");
    }
}
