//! Values of directives: their types, how they are read from words, printed, and written back into a file.
//!
//! Invariant: `read(words(print(v))) == v` for every value, so that CONFIG GET, CONFIG SET and CONFIG REWRITE agree.
//! Values are UTF-8; other bytes are refused with a reason. Dropped: byte strings throughout, which would have helped nobody
//! but a password in Latin-1 and made every path and log line a conversion.

use super::directive::{Directive, Form, Kind};
use super::lists::{Events, OutputLimit, OutputLimits, ReplicaOf, SavePoint};
use std::path::PathBuf;

/// One directive's value. Which variant it is follows from the directive's [`Kind`].
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `yes` or `no`.
    Flag(bool),
    /// An integer.
    Number(i64),
    /// Bytes, or permission bits.
    Bytes(u64),
    /// A share of another amount, 1 to 100.
    Percent(u8),
    /// The code of a word.
    Choice(u8),
    /// Bits of words.
    Choices(u8),
    /// A text.
    Text(String),
    /// Addresses to listen on.
    Addresses(Vec<String>),
    /// When to save.
    SavePoints(Vec<SavePoint>),
    /// Limits of reply buffers per class of client.
    OutputLimits(OutputLimits),
    /// Adjustments for primary, replica and background work.
    OomScores([i32; 3]),
    /// Percentiles, 0 to 100.
    Percentiles(Vec<f64>),
    /// The primary to follow.
    ReplicaOf(Option<ReplicaOf>),
    /// Which keyspace events are published.
    Events(Events),
    /// An absolute path of a directory.
    Directory(PathBuf),
}

/// Where a value comes from, which changes how a repeated directive combines.
pub struct Reading<'a> {
    /// The directive's value so far.
    pub previous: &'a Value,
    /// Whether earlier lines of the same start already gave it: `save` lines then add up.
    pub adds_up: bool,
    /// What a relative `dir` is relative to.
    pub base: &'a std::path::Path,
}

impl Directive {
    /// Reads a value from a directive's arguments, checks included.
    ///
    /// # Errors
    /// The reason, in the words of Redis 7 where it has any.
    pub fn read(&self, words: &[String], reading: &Reading<'_>) -> Result<Value, String> {
        let value = match self.kind {
            Kind::Choices { words: known } => read_choices(words, known)?,
            Kind::List { form, .. } => read_list(form, words, reading)?,
            _ => match words {
                [word] => self.kind.read_word(word)?,
                _ => return Err(WRONG_NUMBER.into()),
            },
        };
        match self.check {
            Some(check) => check(value),
            None => Ok(value),
        }
    }

    /// The value when nothing sets it; `base` is the directory the process was started in.
    pub fn default_value(&self, base: &std::path::Path) -> Value {
        match self.kind {
            Kind::Flag(default) => Value::Flag(default),
            Kind::Number { default, .. } => Value::Number(default),
            Kind::Octal { .. } | Kind::BytesOrPercent { .. } => Value::Bytes(0),
            Kind::Bytes { default, .. } => Value::Bytes(default),
            Kind::Choice { default, .. } => Value::Choice(default),
            Kind::Choices { .. } => Value::Choices(0),
            Kind::Text { default, .. } => Value::Text(default.into()),
            Kind::List { form: Form::Directory, .. } => Value::Directory(base.to_path_buf()),
            Kind::List { form, default } => {
                let words: Vec<String> = default.split_whitespace().map(str::to_owned).collect();
                let words = if form.takes_one() { vec![default.to_owned()] } else { words };
                let nothing = Value::OutputLimits([OutputLimit::default(); 3]);
                let reading = Reading { previous: &nothing, adds_up: false, base };
                match read_list(form, &words, &reading) {
                    Ok(value) => value,
                    Err(why) => unreachable!("default of {}: {why}", self.name),
                }
            }
        }
    }

    /// The value as CONFIG GET prints it.
    pub fn print(&self, value: &Value) -> String {
        match (value, self.kind) {
            (Value::Choice(code), Kind::Choice { words, .. }) => word_of(words, *code).into(),
            (Value::Choices(bits), Kind::Choices { words }) => print_choices(*bits, words),
            (Value::Bytes(bits), Kind::Octal { .. }) => format!("{bits:o}"),
            (value, _) => value.print(),
        }
    }
}

const WRONG_NUMBER: &str = "wrong number of arguments";

impl Kind {
    fn read_word(&self, word: &str) -> Result<Value, String> {
        match *self {
            Kind::Flag(_) => match word {
                _ if word.eq_ignore_ascii_case("yes") => Ok(Value::Flag(true)),
                _ if word.eq_ignore_ascii_case("no") => Ok(Value::Flag(false)),
                _ => Err("argument must be 'yes' or 'no'".into()),
            },
            Kind::Number { min, max, .. } => {
                let number = integer(word).ok_or("argument couldn't be parsed into an integer")?;
                within(number, min, max).map(Value::Number)
            }
            Kind::Octal { max } => {
                let bits = octal(word).ok_or("argument couldn't be parsed as an octal number")?;
                if bits > max {
                    return Err(format!("argument must be between 0 and {max:o} inclusive"));
                }
                Ok(Value::Bytes(bits))
            }
            Kind::Bytes { min, max, .. } => {
                let bytes = memory(word).ok_or("argument must be a memory value")?;
                within(bytes, min, max).map(Value::Bytes)
            }
            Kind::BytesOrPercent { max } => read_bytes_or_percent(word, max),
            Kind::Choice { words, .. } => code_of(words, word).map(Value::Choice),
            Kind::Text { .. } => Ok(Value::Text(word.into())),
            Kind::Choices { .. } | Kind::List { .. } => unreachable!("read from several words"),
        }
    }
}

fn within<T: PartialOrd + std::fmt::Display>(value: T, min: T, max: T) -> Result<T, String> {
    if value < min || value > max {
        return Err(format!("argument must be between {min} and {max} inclusive"));
    }
    Ok(value)
}

fn read_bytes_or_percent(word: &str, max: u64) -> Result<Value, String> {
    if let Some(bytes) = memory(word) {
        return within(bytes, 0, max).map(Value::Bytes);
    }
    match word.strip_suffix('%').and_then(integer) {
        Some(share @ 0..) => match u8::try_from(share) {
            Ok(0) => Ok(Value::Bytes(0)),
            Ok(share @ 1..=100) => Ok(Value::Percent(share)),
            _ => Err("percentage argument must be less or equal to 100".into()),
        },
        _ => Err("argument must be a memory or percent value".into()),
    }
}

/// A decimal integer written as the server itself would: no plus sign, no leading zeros.
pub fn integer(word: &str) -> Option<i64> {
    let digits = word.strip_prefix('-').unwrap_or(word);
    let canonical = match digits.as_bytes() {
        [b'0'] => digits.len() == word.len(),
        [b'1'..=b'9', ..] => true,
        _ => false,
    };
    if canonical { word.parse().ok() } else { None }
}

/// Bytes with an optional unit; `None` also where the product does not fit.
pub fn memory(word: &str) -> Option<u64> {
    let end = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    let (digits, unit) = word.split_at(end);
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1_000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// Bytes in the largest unit that divides them, as CONFIG REWRITE writes them.
pub fn print_memory(bytes: u64) -> String {
    for (unit, size) in [("gb", 1 << 30), ("mb", 1 << 20), ("kb", 1 << 10)] {
        if bytes > 0 && bytes.is_multiple_of(size) {
            return format!("{}{unit}", bytes / size);
        }
    }
    bytes.to_string()
}

fn octal(word: &str) -> Option<u64> {
    if word.starts_with('+') { None } else { u64::from_str_radix(word, 8).ok() }
}

fn code_of(words: &[(&str, u8)], word: &str) -> Result<u8, String> {
    match words.iter().find(|(known, _)| known.eq_ignore_ascii_case(word)) {
        Some((_, code)) => Ok(*code),
        None => {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            Err(format!("argument(s) must be one of the following: {}", known.join(", ")))
        }
    }
}

fn word_of(words: &'static [(&'static str, u8)], code: u8) -> &'static str {
    match words.iter().find(|(_, known)| *known == code) {
        Some((word, _)) => word,
        None => unreachable!("a code that no word has"),
    }
}

fn read_choices(words: &[String], known: &[(&str, u8)]) -> Result<Value, String> {
    if words.is_empty() {
        return code_of(known, "").map(Value::Choices);
    }
    let mut bits = 0;
    for word in words {
        bits |= code_of(known, word)?;
    }
    Ok(Value::Choices(bits))
}

fn print_choices(bits: u8, known: &'static [(&'static str, u8)]) -> String {
    if bits == 0 {
        return word_of(known, 0).into();
    }
    let words: Vec<&str> =
        known.iter().filter(|(_, bit)| *bit != 0 && bits & bit == *bit).map(|(word, _)| *word).collect();
    words.join(" ")
}

fn read_list(form: Form, words: &[String], reading: &Reading<'_>) -> Result<Value, String> {
    // A single empty argument is how an empty list is written.
    let words = match words {
        [only] if only.is_empty() && !form.takes_one() => &[],
        _ => words,
    };
    if form.takes_one() && words.len() != 1 {
        return Err(WRONG_NUMBER.into());
    }
    super::lists::read(form, words, reading)
}
