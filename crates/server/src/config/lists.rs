//! Directives whose value is a list with rules of its own: addresses, save points, output limits, OOM scores, percentiles,
//! `replicaof`, keyspace events and `dir`.

use super::directive::Form;
use super::value::{Reading, Value, integer, memory, print_memory};
use std::path::{Path, PathBuf};

/// Save a snapshot when at least `changes` writes happened in `seconds`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavePoint {
    /// Seconds since the last save, at least 1.
    pub seconds: u64,
    /// Writes since the last save.
    pub changes: u64,
}

/// Classes of clients with a limit of their own for unread replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientClass {
    /// Everything else.
    Normal,
    /// Replicas of this server.
    Replica,
    /// Connections with a subscription.
    Pubsub,
}

/// When a client with unread replies is closed. 0 means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLimit {
    /// Bytes at which it is closed at once.
    pub hard: u64,
    /// Bytes at which it is closed after `soft_seconds` above them.
    pub soft: u64,
    /// See `soft`; never negative.
    pub soft_seconds: i64,
}

/// One limit per [`ClientClass`], in its order.
pub type OutputLimits = [OutputLimit; 3];

/// The primary of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaOf {
    /// Name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// A set of classes of keyspace events, as bits in the order of [`Events::LETTERS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events(pub u16);

impl Events {
    /// The letter of each bit, in the order in which CONFIG GET prints them.
    pub const LETTERS: &'static [u8] = b"g$lshzxetdnKEm";
    /// The classes that `A` stands for: all but key misses and new keys.
    pub const ALL: Events = Events(0b11_1111_1111);
    /// Published to `__keyspace@db__:key`.
    pub const KEYSPACE: Events = Events::of(b'K');
    /// Published to `__keyevent@db__:event`.
    pub const KEYEVENT: Events = Events::of(b'E');

    /// The class with this letter. Panics where there is none, which a constant finds out while compiling.
    pub const fn of(letter: u8) -> Events {
        let mut bit = 0;
        while Self::LETTERS[bit] != letter {
            bit += 1;
        }
        Events(1 << bit)
    }

    /// Whether any class of `other` is in the set.
    pub const fn intersects(self, other: Events) -> bool {
        self.0 & other.0 != 0
    }

    fn read(letters: &str) -> Option<Events> {
        letters.bytes().try_fold(Events(0), |set, letter| match letter {
            b'A' => Some(Events(set.0 | Self::ALL.0)),
            _ if Self::LETTERS.contains(&letter) => Some(Events(set.0 | Self::of(letter).0)),
            _ => None,
        })
    }

    fn print(self) -> String {
        let all = self.0 & Self::ALL.0 == Self::ALL.0;
        let shown = Self::LETTERS.iter().filter(|letter| {
            let class = Self::of(**letter);
            self.intersects(class) && !(all && class.intersects(Self::ALL))
        });
        let prefix = if all { "A" } else { "" };
        prefix.chars().chain(shown.map(|letter| char::from(*letter))).collect()
    }
}

/// Most addresses of `bind`.
const ADDRESSES_MAX: usize = 16;
const CLASS_NAMES: [&str; 3] = ["normal", "slave", "pubsub"];

/// Reads a list from its words; a list of no words is empty.
pub fn read(form: Form, words: &[String], reading: &Reading<'_>) -> Result<Value, String> {
    match form {
        Form::Addresses if words.len() > ADDRESSES_MAX => Err("Too many bind addresses specified.".into()),
        Form::Addresses => Ok(Value::Addresses(words.iter().filter(|word| !word.is_empty()).cloned().collect())),
        Form::SavePoints => {
            let points = save_points(words).ok_or("Invalid save parameters")?;
            match reading.previous {
                // Several `save` lines make one list, but an empty one starts it anew.
                Value::SavePoints(before) if reading.adds_up && !words.is_empty() => {
                    Ok(Value::SavePoints([before.as_slice(), &points].concat()))
                }
                _ => Ok(Value::SavePoints(points)),
            }
        }
        Form::OutputLimits => output_limits(words, reading.previous).map(Value::OutputLimits),
        Form::OomScores => oom_scores(words).map(Value::OomScores),
        Form::Percentiles => {
            words.iter().map(|word| percentile(word)).collect::<Result<_, _>>().map(Value::Percentiles)
        }
        Form::ReplicaOf => replica_of(words).map(Value::ReplicaOf),
        Form::Events => match Events::read(&words[0]) {
            Some(events) => Ok(Value::Events(events)),
            None => Err("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".into()),
        },
        Form::Directory => directory(reading.base, &words[0]).map(Value::Directory),
    }
}

fn save_points(words: &[String]) -> Option<Vec<SavePoint>> {
    let (pairs, rest) = words.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs
        .iter()
        .map(|[seconds, changes]| {
            let seconds = u64::try_from(integer(seconds)?).ok().filter(|seconds| *seconds >= 1)?;
            let changes = u64::try_from(integer(changes)?).ok()?;
            Some(SavePoint { seconds, changes })
        })
        .collect()
}

/// Limits of the classes named, the others as they were.
fn output_limits(words: &[String], previous: &Value) -> Result<OutputLimits, String> {
    let (groups, rest) = words.as_chunks::<4>();
    if !rest.is_empty() {
        return Err("Wrong number of arguments in buffer limit configuration.".into());
    }
    let mut limits = match previous {
        Value::OutputLimits(limits) => *limits,
        _ => unreachable!("the value of another directive"),
    };
    for [class, hard, soft, seconds] in groups {
        let class = class.to_ascii_lowercase();
        let class = if class == "replica" { CLASS_NAMES[1] } else { class.as_str() };
        let Some(index) = CLASS_NAMES.iter().position(|known| *known == class) else {
            return Err("Invalid client class specified in buffer limit configuration.".into());
        };
        let seconds = integer(seconds).filter(|seconds| *seconds >= 0);
        let (Some(hard), Some(soft), Some(soft_seconds)) = (memory(hard), memory(soft), seconds) else {
            return Err("Error in hard, soft or soft_seconds setting in buffer limit configuration.".into());
        };
        limits[index] = OutputLimit { hard, soft, soft_seconds };
    }
    Ok(limits)
}

fn oom_scores(words: &[String]) -> Result<[i32; 3], String> {
    let words: &[String; 3] = words.try_into().map_err(|_| "wrong number of arguments")?;
    let mut scores = [0; 3];
    for (score, word) in scores.iter_mut().zip(words) {
        *score = integer(word)
            .and_then(|value| i32::try_from(value).ok())
            .filter(|value| (-2000..=2000).contains(value))
            .ok_or("Invalid oom-score-adj-values, elements must be between -2000 and 2000.")?;
    }
    Ok(scores)
}

fn percentile(word: &str) -> Result<f64, String> {
    match word.parse::<f64>() {
        Ok(share) if (0.0..=100.0).contains(&share) => Ok(share),
        Ok(share) if !share.is_nan() => {
            Err("latency-tracking-info-percentiles parameters should sit between [0.0,100.0]".into())
        }
        _ => Err("Invalid latency-tracking-info-percentiles parameters".into()),
    }
}

fn replica_of(words: &[String]) -> Result<Option<ReplicaOf>, String> {
    match words {
        [no, one] if no.eq_ignore_ascii_case("no") && one.eq_ignore_ascii_case("one") => Ok(None),
        [host, port] => match port.parse() {
            Ok(port) => Ok(Some(ReplicaOf { host: host.clone(), port })),
            Err(_) => Err("Invalid master port".into()),
        },
        _ => Err("wrong number of arguments".into()),
    }
}

fn directory(base: &Path, word: &str) -> Result<PathBuf, String> {
    if word.is_empty() {
        return Err("dir can't be empty".into());
    }
    let path = base.join(word).canonicalize().map_err(|error| plain(&error))?;
    let metadata = path.metadata().map_err(|error| plain(&error))?;
    if !metadata.is_dir() {
        return Err("Not a directory".into());
    }
    if path.to_str().is_none() {
        return Err("the directory's name is not valid UTF-8".into());
    }
    Ok(path)
}

/// The error as `strerror` says it, without the number that the standard library adds.
pub fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

impl Value {
    /// The value as CONFIG GET prints it, for those that need no table of words.
    pub(super) fn print(&self) -> String {
        match self {
            Value::Flag(true) => "yes".into(),
            Value::Flag(false) => "no".into(),
            Value::Number(number) => number.to_string(),
            Value::Bytes(bytes) => bytes.to_string(),
            Value::Percent(share) => format!("{share}%"),
            Value::Choice(code) | Value::Choices(code) => unreachable!("code {code} without its words"),
            Value::Text(text) => text.clone(),
            Value::Addresses(addresses) => addresses.join(" "),
            Value::SavePoints(points) => join(points, |point| format!("{} {}", point.seconds, point.changes)),
            Value::OutputLimits(limits) => join(&[0, 1, 2], |class| {
                let OutputLimit { hard, soft, soft_seconds } = limits[*class];
                format!("{} {hard} {soft} {soft_seconds}", CLASS_NAMES[*class])
            }),
            Value::OomScores(scores) => join(scores, i32::to_string),
            Value::Percentiles(shares) => join(shares, |share| print_share(*share)),
            Value::ReplicaOf(None) => String::new(),
            Value::ReplicaOf(Some(primary)) => format!("{} {}", primary.host, primary.port),
            Value::Events(events) => events.print(),
            Value::Directory(path) => path.to_string_lossy().into_owned(),
        }
    }

    /// The lines' arguments with which a file gives this value; none where no line is needed to say it.
    pub(super) fn list_lines(&self) -> Vec<String> {
        match self {
            Value::OutputLimits(limits) => ["normal", "replica", "pubsub"]
                .iter()
                .zip(limits)
                .map(|(class, limit)| {
                    let (hard, soft) = (print_memory(limit.hard), print_memory(limit.soft));
                    format!("{class} {hard} {soft} {}", limit.soft_seconds)
                })
                .collect(),
            Value::ReplicaOf(None) => Vec::new(),
            Value::Addresses(_) | Value::SavePoints(_) | Value::Percentiles(_) => {
                let words = self.print();
                vec![if words.is_empty() { "\"\"".into() } else { words }]
            }
            Value::Events(_) | Value::Directory(_) => vec![super::words::quote(&self.print())],
            _ => vec![self.print()],
        }
    }
}

fn join<T>(items: &[T], print: impl Fn(&T) -> String) -> String {
    items.iter().map(print).collect::<Vec<_>>().join(" ")
}

/// Six decimals without the zeros at the end.
fn print_share(share: f64) -> String {
    let digits = format!("{share:.6}");
    digits.trim_end_matches('0').trim_end_matches('.').to_owned()
}
