//! The share of fuzzing that every test run does: what was found before, the kept corpus, and seeded random inputs.
//!
//! `FUZZ_INPUTS` is the number of random inputs for each target. A failure prints the input; put it into a file of
//! `regressions/TARGET/`, named after what went wrong.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

const INPUTS: usize = 4000;

#[test]
fn resp_request() {
    replay("resp_request", gimmal_fuzz::resp_request::run);
}

#[test]
fn resp_reply() {
    replay("resp_reply", gimmal_fuzz::resp_reply::run);
}

#[test]
fn command_front() {
    replay("command_front", gimmal_fuzz::command_front::run);
}

#[test]
fn rdb_value() {
    replay("rdb_value", gimmal_fuzz::rdb_value::run);
}

#[test]
fn restore() {
    // Inputs of both targets are values of the same form.
    replay_with("restore", &["restore", "rdb_value"], gimmal_fuzz::restore::run);
}

fn replay(target: &str, run: fn(&[u8])) {
    replay_with(target, &[target], run);
}

/// With the inputs that were kept for several targets.
fn replay_with(target: &str, kept_for: &[&str], run: fn(&[u8])) {
    let mut kept = Vec::new();
    for dir in ["regressions", "corpus"] {
        for kept_for in kept_for {
            files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(dir).join(kept_for), &mut kept);
        }
    }
    for path in &kept {
        let input = fs::read(path).expect("a readable input");
        check(&input, run, &path.display().to_string());
    }
    let inputs = std::env::var("FUZZ_INPUTS").map_or(INPUTS, |count| count.parse().expect("a number of inputs"));
    let mut random = Random(0x5eed);
    let corpus: Vec<Vec<u8>> = kept.iter().map(|path| fs::read(path).expect("a readable input")).collect();
    for number in 0..inputs {
        let input = random.input(&corpus);
        check(&input, run, &format!("random input {number}"));
    }
    eprintln!("{target}: {} kept inputs and {inputs} random ones", kept.len());
}

fn check(input: &[u8], run: fn(&[u8]), name: &str) {
    if catch_unwind(AssertUnwindSafe(|| run(input))).is_err() {
        panic!("{name}: b\"{}\"", input.escape_ascii());
    }
}

/// The files below a directory, in order of their names; none if there is no directory.
fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable entry").path()).collect();
    paths.sort();
    found.extend(paths.into_iter().filter(|path| path.is_file()));
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % bound
    }

    /// Random bytes, bytes that mean something to the protocol, or a kept input with some bytes changed.
    fn input(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        const WORDS: [&[u8]; 12] = [
            b"*1\r\n",
            b"*3\r\n",
            b"$3\r\n",
            b"$40000\r\n",
            b"\r\n",
            b"GET",
            b"+OK\r\n",
            b"%1\r\n",
            b"\"",
            b"*-1\r\n",
            b":1\r\n",
            b"\xfe\x28",
        ];
        let mut bytes = match self.below(3) {
            0 if !corpus.is_empty() => corpus[self.below(corpus.len())].clone(),
            _ => Vec::new(),
        };
        // A value that is only a little wrong gets further than one that is wrong all over.
        let most = if self.below(2) == 0 { 4 } else { 60 };
        for _ in 0..self.below(most) {
            let at = self.below(bytes.len() + 1);
            match self.below(4) {
                0 if at < bytes.len() => bytes[at] = self.byte(),
                1 => {
                    let word = WORDS[self.below(WORDS.len())];
                    bytes.splice(at..at, word.iter().copied());
                }
                _ => {
                    let byte = self.byte();
                    bytes.insert(at, byte);
                }
            }
        }
        bytes
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).expect("a byte")
    }
}
