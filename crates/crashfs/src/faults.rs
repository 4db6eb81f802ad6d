//! Faults: rules that say which operations of which files fail, wait or lie, and when.
//!
//! A rule counts the operations that it matches: it lets `skip` of them pass, then takes effect `times` times. All rules
//! that match count, and their effects add up, so that a slow disk and one failing fsync are two rules.

use std::str::FromStr;
use std::time::Duration;

use crate::random::mix;

/// What a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A write; with `O_DSYNC` it is both a write and an fsync.
    Write,
    /// A read that reached the file system.
    Read,
    /// fsync or fdatasync of a file.
    Fsync,
    /// fsync of a directory.
    FsyncDirectory,
    /// A new name: create, mkdir, link, symlink.
    Create,
    /// A rename.
    Rename,
    /// unlink and rmdir.
    Remove,
    /// Truncation and fallocate.
    Resize,
}

/// What happens then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It fails with this errno, after its delay. A sync that fails loses what was to be synced.
    Error(i32),
    /// It takes so long, spread evenly between the two.
    Delay(Duration, Duration),
    /// It does not end until the rules are cleared.
    Stuck,
    /// At most so many bytes are written.
    Short(u32),
    /// One bit of what is read is wrong.
    FlipBit,
    /// A sync answers that all is well and does nothing: a drive that lies, or a server that forgot it.
    Lie,
}

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What it is about.
    pub event: Event,
    /// Only files whose last component contains this.
    pub name: Option<String>,
    /// How many pass first.
    pub skip: u64,
    /// How many it then hits; `u64::MAX` for all.
    pub times: u64,
    /// What happens to them.
    pub effect: Effect,
}

impl Rule {
    /// Every such event of every file.
    pub fn every(event: Event, effect: Effect) -> Self {
        Self { event, name: None, skip: 0, times: u64::MAX, effect }
    }

    /// Only the nth such event, counted from 1.
    pub fn nth(event: Event, nth: u64, effect: Effect) -> Self {
        Self { skip: nth.saturating_sub(1), times: 1, ..Self::every(event, effect) }
    }

    /// The same rule for files whose name contains this.
    #[must_use]
    pub fn of(self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self }
    }
}

/// All effects on one operation.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// It fails.
    pub error: Option<i32>,
    /// It waits first.
    pub delay: Duration,
    /// It waits until the rules are cleared.
    pub is_stuck: bool,
    /// It writes at most so much.
    pub short: Option<u32>,
    /// It is not done.
    pub is_lie: bool,
    /// It reads one bit wrong: which, is a function of this.
    pub flip: Option<u64>,
}

/// The rules in force.
#[derive(Debug, Default)]
pub struct Faults {
    rules: Vec<(Rule, u64)>,
    events: u64,
}

impl Faults {
    /// Adds one.
    pub fn add(&mut self, rule: Rule) {
        self.rules.push((rule, 0));
    }

    /// Ends all.
    pub fn clear(&mut self) {
        self.rules.clear();
    }

    /// Counts an event and says what happens to it.
    pub fn judge(&mut self, event: Event, name: &str) -> Verdict {
        self.events += 1;
        let mut verdict = Verdict::default();
        for (rule, seen) in &mut self.rules {
            if rule.event != event || rule.name.as_ref().is_some_and(|part| !name.contains(part.as_str())) {
                continue;
            }
            let nth = *seen;
            *seen += 1;
            if nth < rule.skip || nth - rule.skip >= rule.times {
                continue;
            }
            match &rule.effect {
                Effect::Error(errno) => verdict.error = Some(*errno),
                Effect::Delay(from, to) => verdict.delay += between(*from, *to, self.events),
                Effect::Stuck => verdict.is_stuck = true,
                Effect::Short(bytes) => verdict.short = Some(*bytes),
                Effect::Lie => verdict.is_lie = true,
                Effect::FlipBit => verdict.flip = Some(mix(self.events, 2)),
            }
        }
        verdict
    }
}

fn between(from: Duration, to: Duration, salt: u64) -> Duration {
    let span = u64::try_from(to.saturating_sub(from).as_micros()).unwrap_or(u64::MAX);
    from + Duration::from_micros(mix(salt, 1) % span.saturating_add(1).max(1))
}

impl FromStr for Rule {
    type Err = String;

    /// `EVENT EFFECT [name=PART] [skip=N] [nth=N] [times=N]`: an event is `write`, `read`, `fsync`, `fsyncdir`, `create`,
    /// `rename`, `remove`, `resize`; an effect is `error=EIO`, `delay=MS` or `delay=MS..MS`, `stuck`, `short=BYTES`,
    /// `flip`, `lie`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let event = event(words.next().unwrap_or_default())?;
        let effect = effect(words.next().unwrap_or_default())?;
        let mut rule = Rule::every(event, effect);
        for word in words {
            let Some((key, value)) = word.split_once('=') else { return Err(format!("{word:?} is not KEY=VALUE")) };
            let number = || value.parse::<u64>().map_err(|error| format!("{word:?}: {error}"));
            match key {
                "name" => rule.name = Some(value.to_owned()),
                "skip" => rule.skip = number()?,
                "times" => rule.times = number()?,
                "nth" => {
                    rule.skip = number()?.saturating_sub(1);
                    rule.times = 1;
                }
                _ => return Err(format!("a rule has no {key:?}")),
            }
        }
        Ok(rule)
    }
}

fn event(word: &str) -> Result<Event, String> {
    Ok(match word {
        "write" => Event::Write,
        "read" => Event::Read,
        "fsync" => Event::Fsync,
        "fsyncdir" => Event::FsyncDirectory,
        "create" => Event::Create,
        "rename" => Event::Rename,
        "remove" => Event::Remove,
        "resize" => Event::Resize,
        _ => return Err(format!("there is no event {word:?}")),
    })
}

fn effect(word: &str) -> Result<Effect, String> {
    let number = |digits: &str| digits.parse::<u64>().map_err(|error| format!("{word:?}: {error}"));
    let (key, value) = word.split_once('=').unwrap_or((word, ""));
    Ok(match key {
        "error" => Effect::Error(errno(value)?),
        "delay" => {
            let (from, to) = value.split_once("..").unwrap_or((value, value));
            Effect::Delay(Duration::from_millis(number(from)?), Duration::from_millis(number(to)?))
        }
        "stuck" => Effect::Stuck,
        "short" => Effect::Short(u32::try_from(number(value)?).map_err(|error| format!("{word:?}: {error}"))?),
        "flip" => Effect::FlipBit,
        "lie" => Effect::Lie,
        _ => return Err(format!("there is no effect {word:?}")),
    })
}

fn errno(name: &str) -> Result<i32, String> {
    Ok(match name {
        "EIO" => libc::EIO,
        "ENOSPC" => libc::ENOSPC,
        "EDQUOT" => libc::EDQUOT,
        "EROFS" => libc::EROFS,
        "EINTR" => libc::EINTR,
        _ => return Err(format!("the errors are EIO, ENOSPC, EDQUOT, EROFS and EINTR, not {name:?}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nth_event_fails_once() {
        let mut faults = Faults::default();
        faults.add("fsync error=EIO nth=3 name=aof".parse().expect("a rule"));
        let errors: Vec<_> = (0..5).map(|_| faults.judge(Event::Fsync, "a.aof").error).collect();
        assert_eq!(errors, [None, None, Some(libc::EIO), None, None]);
        assert_eq!(faults.judge(Event::Write, "a.aof"), Verdict::default());
    }

    #[test]
    fn other_files_are_not_counted_and_effects_add_up() {
        let mut faults = Faults::default();
        faults.add(Rule::nth(Event::Write, 2, Effect::Short(5)).of("log"));
        faults.add("write delay=10..20".parse().expect("a rule"));
        assert_eq!(faults.judge(Event::Write, "log").short, None);
        assert_eq!(faults.judge(Event::Write, "other").short, None);
        let verdict = faults.judge(Event::Write, "log");
        assert_eq!(verdict.short, Some(5));
        assert!((10..=20).contains(&verdict.delay.as_millis()), "{verdict:?}");
        faults.clear();
        assert_eq!(faults.judge(Event::Write, "log"), Verdict::default());
    }

    #[test]
    fn what_is_not_a_rule_is_refused() {
        for wrong in ["", "fsync", "fsnyc stuck", "fsync error=EWHAT", "fsync stuck nth=x", "fsync stuck now"] {
            assert!(wrong.parse::<Rule>().is_err(), "{wrong}");
        }
    }
}
