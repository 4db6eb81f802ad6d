//! The grammar that random commands are drawn from: text files, one per group of commands, in `tests/differential`.
//!
//! | in a file | meaning |
//! |---|---|
//! | `# text` | comment |
//! | `name = a \| 3: b c \| d` | a rule: one of some sequences of terms, the second three times as often |
//! | `GET $key`, `5: GET $key` | a command, with a weight; 1 without |
//! | `word`, `"(1"` | itself; quoted where a character would mean something else |
//! | `$name` | what the rule draws; within a word (`u$bits`) it must be one word |
//! | `%0..9`, `%bytes` | a number of a range; up to 40 bytes of any value |
//! | `(a \| b c)` | one of them |
//! | `[a]` | `a` or nothing |
//! | `{a}`, `{a}+`, `{a}9` | none to three; one to four; one to nine times |
//!
//! Rules are known to the files that follow as well. A file's commands are one group; groups are drawn equally often.
//! Dropped alternative: generators written in Rust; a grammar is read beside a command's documentation.

use std::collections::HashMap;

use anyhow::{Context, Result, bail, ensure};

use super::dice::Dice;
use crate::words::double_quoted;

/// A command's words.
pub type Words = Vec<Vec<u8>>;

/// Rules and commands of all groups.
#[derive(Default)]
pub struct Grammar {
    rules: Vec<Alternatives>,
    names: HashMap<String, usize>,
    /// The groups with their commands.
    pub groups: Vec<Group>,
}

/// The commands of one file.
pub struct Group {
    /// Name of the file.
    pub name: String,
    /// What can be drawn.
    pub productions: Vec<Production>,
}

/// A command with all its options.
pub struct Production {
    /// How often, beside the others of the group.
    pub weight: usize,
    /// The first word.
    pub command: String,
    sequence: Sequence,
}

type Sequence = Vec<Term>;
type Alternatives = Vec<(usize, Sequence)>;

enum Term {
    Word(Vec<Piece>),
    OneOf(Alternatives),
    Repeat(Sequence, usize, usize),
}

enum Piece {
    Literal(Vec<u8>),
    Rule(usize),
    Number(i64, i64),
    Bytes,
}

impl Grammar {
    /// Adds a file's rules and commands.
    ///
    /// # Errors
    /// A line that is neither, with its number.
    pub fn add(&mut self, name: &str, text: &str) -> Result<()> {
        let mut group = Group { name: name.to_owned(), productions: Vec::new() };
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                self.line(line, &mut group).with_context(|| format!("{name}:{}: {line}", at + 1))?;
            }
        }
        if !group.productions.is_empty() {
            self.groups.push(group);
        }
        Ok(())
    }

    fn line(&mut self, line: &str, group: &mut Group) -> Result<()> {
        let rule = line.split_once(" = ").filter(|(name, _)| name.bytes().all(is_name));
        let mut reader = Reader { rest: rule.map_or(line, |(_, body)| body).as_bytes(), grammar: self, line };
        let mut alternatives = reader.alternatives(None)?;
        if let Some((name, _)) = rule {
            let before = self.names.insert(name.to_owned(), self.rules.len());
            ensure!(before.is_none(), "a second rule {name}");
            self.rules.push(alternatives);
            return Ok(());
        }
        ensure!(alternatives.len() == 1, "a command is no choice");
        let (weight, sequence) = alternatives.remove(0);
        let Some(Term::Word(pieces)) = sequence.first() else { bail!("a command starts with its name") };
        let [Piece::Literal(name)] = pieces.as_slice() else { bail!("a command starts with its name") };
        let command = String::from_utf8(name.clone())?;
        group.productions.push(Production { weight, command, sequence });
        Ok(())
    }

    /// Draws the words of a command. Words in capitals come in small letters once in a while.
    pub fn draw(&self, production: &Production, dice: &mut Dice) -> Words {
        let mut words = Vec::new();
        self.sequence(&production.sequence, dice, &mut words);
        words
    }

    fn sequence(&self, sequence: &Sequence, dice: &mut Dice, words: &mut Words) {
        for term in sequence {
            match term {
                Term::Word(pieces) => self.word(pieces, dice, words),
                Term::OneOf(alternatives) => self.one_of(alternatives, dice, words),
                Term::Repeat(body, low, high) => {
                    for _ in 0..low + dice.below(high - low + 1) {
                        self.sequence(body, dice, words);
                    }
                }
            }
        }
    }

    fn one_of(&self, alternatives: &Alternatives, dice: &mut Dice, words: &mut Words) {
        let chosen = dice.weighed(alternatives.iter().map(|(weight, _)| *weight));
        self.sequence(&alternatives[chosen].1, dice, words);
    }

    fn word(&self, pieces: &[Piece], dice: &mut Dice, words: &mut Words) {
        if let [Piece::Rule(rule)] = pieces {
            return self.one_of(&self.rules[*rule], dice, words);
        }
        let mut word = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Literal(text) if dice.one_in(16) => word.extend(text.to_ascii_lowercase()),
                Piece::Literal(text) => word.extend_from_slice(text),
                Piece::Number(low, high) => word.extend(dice.between(*low, *high).to_string().bytes()),
                Piece::Bytes => word.extend((0..dice.below(41)).map(|_| dice.roll().to_le_bytes()[0])),
                Piece::Rule(rule) => {
                    let mut drawn = Vec::new();
                    self.one_of(&self.rules[*rule], dice, &mut drawn);
                    drawn.iter().for_each(|part| word.extend_from_slice(part));
                }
            }
        }
        words.push(word);
    }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'
}

struct Reader<'a> {
    rest: &'a [u8],
    grammar: &'a Grammar,
    line: &'a str,
}

impl Reader<'_> {
    /// Up to the end of the line or to `close`.
    fn alternatives(&mut self, close: Option<u8>) -> Result<Alternatives> {
        let mut alternatives = Vec::new();
        loop {
            let weight = self.weight();
            let sequence = self.terms(close)?;
            alternatives.push((weight, sequence));
            match self.rest.split_first() {
                Some((b'|', rest)) => self.rest = rest,
                Some((_, rest)) => {
                    self.rest = rest;
                    return Ok(alternatives);
                }
                None if close.is_none() => return Ok(alternatives),
                None => bail!("a bracket is not closed"),
            }
        }
    }

    /// `5: ` before a sequence.
    fn weight(&mut self) -> usize {
        self.rest = self.rest.trim_ascii_start();
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let number = str::from_utf8(&self.rest[..digits]).ok().and_then(|text| text.parse().ok());
        match (number, self.rest[digits..].starts_with(b": ")) {
            (Some(weight), true) => {
                self.rest = &self.rest[digits + 2..];
                weight
            }
            _ => 1,
        }
    }

    fn terms(&mut self, close: Option<u8>) -> Result<Sequence> {
        let mut terms = Vec::new();
        loop {
            self.rest = self.rest.trim_ascii_start();
            match self.rest.first() {
                None | Some(b'|') => return Ok(terms),
                Some(byte) if Some(*byte) == close => return Ok(terms),
                Some(open @ (b'(' | b'[' | b'{')) => terms.push(self.bracket(*open)?),
                Some(b')' | b']' | b'}') => bail!("a bracket closes that is not open"),
                Some(_) => terms.push(Term::Word(self.pieces()?)),
            }
        }
    }

    fn bracket(&mut self, open: u8) -> Result<Term> {
        self.rest = &self.rest[1..];
        let close = match open {
            b'(' => b')',
            b'[' => b']',
            _ => b'}',
        };
        let body = self.alternatives(Some(close))?;
        if open == b'(' {
            return Ok(Term::OneOf(body));
        }
        let (low, high) = if open == b'[' { (0, 1) } else { self.times()? };
        Ok(Term::Repeat(vec![Term::OneOf(body)], low, high))
    }

    /// What follows a closing brace.
    fn times(&mut self) -> Result<(usize, usize)> {
        if let Some(rest) = self.rest.strip_prefix(b"+") {
            self.rest = rest;
            return Ok((1, 4));
        }
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        if number.is_empty() { Ok((0, 3)) } else { Ok((1, str::from_utf8(number)?.parse()?)) }
    }

    fn pieces(&mut self) -> Result<Vec<Piece>> {
        let mut pieces = Vec::new();
        while let Some(&byte) = self.rest.first() {
            match byte {
                b' ' | b')' | b']' | b'}' | b'|' => break,
                b'"' => {
                    let (text, rest) = double_quoted(self.rest, self.line)?;
                    pieces.push(Piece::Literal(text));
                    self.rest = rest;
                }
                b'$' => pieces.push(Piece::Rule(self.rule()?)),
                b'%' => pieces.push(self.built_in()?),
                _ => {
                    let end = self.rest.iter().position(|byte| b" )]}|\"$%".contains(byte)).unwrap_or(self.rest.len());
                    pieces.push(Piece::Literal(self.rest[..end].to_vec()));
                    self.rest = &self.rest[end..];
                }
            }
        }
        Ok(pieces)
    }

    fn rule(&mut self) -> Result<usize> {
        let name = self.name_after_mark();
        self.grammar.names.get(&name).copied().with_context(|| format!("no rule {name} above"))
    }

    /// `%bytes`, or `%low..high`.
    fn built_in(&mut self) -> Result<Piece> {
        if let Some(rest) = self.rest.strip_prefix(b"%bytes") {
            self.rest = rest;
            return Ok(Piece::Bytes);
        }
        self.rest = &self.rest[1..];
        let low = self.number()?;
        self.rest = self.rest.strip_prefix(b"..").context("%low..high")?;
        let high = self.number()?;
        ensure!(low <= high, "an empty range %{low}..{high}");
        Ok(Piece::Number(low, high))
    }

    fn number(&mut self) -> Result<i64> {
        let sign = usize::from(self.rest.first() == Some(&b'-'));
        let digits = self.rest[sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = self.rest.split_at(sign + digits);
        self.rest = rest;
        Ok(str::from_utf8(number)?.parse()?)
    }

    fn name_after_mark(&mut self) -> String {
        let length = self.rest[1..].iter().take_while(|byte| is_name(**byte)).count();
        let name = String::from_utf8_lossy(&self.rest[1..=length]).into_owned();
        self.rest = &self.rest[length + 1..];
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(text: &str, times: usize) -> Vec<String> {
        let mut grammar = Grammar::default();
        grammar.add("x", text).expect("a grammar");
        let mut dice = Dice::new(1);
        let line = |words: Words| String::from_utf8_lossy(&words.join(&b' ')).to_lowercase();
        (0..times).map(|_| line(grammar.draw(&grammar.groups[0].productions[0], &mut dice))).collect()
    }

    #[test]
    fn terms_draw_what_they_say() {
        let lines = drawn("k = a | 9: b\nSET $k x$k-%1..3 [NX] (p | \"(1\" q) {r}2", 20_000);
        for want in ["set b xb-3 nx p r", "set a xa-1 (1 q r r", "set b xb-2 p r r"] {
            assert!(lines.iter().any(|line| line == want), "no {want} in {} lines", lines.len());
        }
        let b = lines.iter().filter(|line| line.starts_with("set b")).count();
        assert!((17_500..18_500).contains(&b), "{b} of 20,000");
        assert_eq!(drawn("5: PING", 1), ["ping"]);
    }

    #[test]
    fn what_is_no_grammar_is_refused() {
        for text in ["GET $none", "GET (a", "GET a)", "GET a | b", "k = a\nk = b", "$k", "GET %9..1", "GET %x"] {
            assert!(Grammar::default().add("x", text).is_err(), "{text}");
        }
    }
}
