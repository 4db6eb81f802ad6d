//! The request parser: whatever the bytes, it neither panics nor keeps what it should not, and it finds the same commands
//! and the same error however the bytes are cut.
//!
//! Input: a byte for the limits, a byte for the cuts, then the stream (with runs, see [`crate::pieces`]).

use crate::pieces::{cut, expand};
use gimmal_resp::{Limits, Next, Parser, ProtocolError, Span, encode_command};

type Command = Vec<Vec<u8>>;

/// Runs one input.
pub fn run(input: &[u8]) {
    let [mode, how, stream @ ..] = input else { return };
    let limits = match mode % 4 {
        0 => Limits::unauthenticated(),
        1 => Limits::authenticated(64 * 1024),
        _ => Limits::default(),
    };
    let stream = expand(stream);
    let whole = parse(&stream, 0, &limits);
    let in_pieces = parse(&stream, (*how).max(1), &limits);
    assert!(whole == in_pieces, "cuts change what is found: {} and {}", whole.describe(), in_pieces.describe());
    whole.reads_back();
}

/// What was found in a stream.
#[derive(PartialEq)]
struct Found {
    commands: Vec<Command>,
    error: Option<ProtocolError>,
}

impl Found {
    fn describe(&self) -> String {
        let sizes: Vec<Vec<usize>> = self.commands.iter().map(|args| args.iter().map(Vec::len).collect()).collect();
        format!("commands with arguments of {sizes:?} bytes, then {:?}", self.error)
    }

    /// The commands, encoded anew, are found again.
    fn reads_back(&self) {
        let mut bytes = Vec::new();
        for command in &self.commands {
            encode_command(&mut bytes, command);
        }
        let again = parse(&bytes, 0, &Limits::default());
        assert!(again.error.is_none() && again.commands == self.commands, "not read back: {}", self.describe());
    }
}

fn parse(stream: &[u8], how: u8, limits: &Limits) -> Found {
    let mut reader = Reader::default();
    for piece in cut(stream, how) {
        if let Err(error) = reader.receive(piece, limits) {
            return Found { commands: reader.commands, error: Some(error) };
        }
    }
    Found { commands: reader.commands, error: None }
}

/// Does what the parser asks of a connection, in the plainest way.
#[derive(Default)]
struct Reader {
    parser: Parser,
    /// Bytes of an unfinished command, without its large arguments.
    kept: Vec<u8>,
    larges: Vec<Vec<u8>>,
    commands: Vec<Command>,
}

impl Reader {
    fn receive(&mut self, mut bytes: &[u8], limits: &Limits) -> Result<(), ProtocolError> {
        let missing = self.parser.large_missing();
        if missing > 0 {
            let (payload, rest) = bytes.split_at(missing.min(bytes.len()));
            self.take(payload);
            bytes = rest;
            if payload.len() < missing {
                return Ok(());
            }
        }
        self.kept.extend_from_slice(bytes);
        let buffer = std::mem::take(&mut self.kept);
        let (mut at, mut args) = (0, Vec::new());
        loop {
            let begin = at;
            args.clear();
            match self.parser.next(&buffer, &mut at, limits, &mut args)? {
                Next::Command => {
                    assert!(at > begin && at <= buffer.len());
                    if !args.is_empty() {
                        self.commands.push(args.iter().map(|span| self.argument(*span, &buffer)).collect());
                    }
                    self.larges.clear();
                }
                Next::Inline(words) => {
                    assert!(at > begin && at <= buffer.len() && !words.is_empty());
                    self.commands.push(words);
                }
                Next::Incomplete => {
                    assert_eq!(at, begin, "what is kept begins where the command does");
                    self.kept = buffer[at..].to_vec();
                    return Ok(());
                }
                Next::Large { missing } => {
                    assert!(missing > buffer.len() - at, "a complete argument is not taken out");
                    self.larges.push(Vec::new());
                    self.take(&buffer[at..]);
                    self.kept = buffer[begin..at].to_vec();
                    return Ok(());
                }
            }
            assert!(self.larges.is_empty());
        }
    }

    fn take(&mut self, payload: &[u8]) {
        self.larges.last_mut().expect("a large argument was begun").extend_from_slice(payload);
        self.parser.large_taken(payload.len());
    }

    fn argument(&self, span: Span, buffer: &[u8]) -> Vec<u8> {
        if span.is_detached() { self.larges[span.len as usize].clone() } else { span.bytes(buffer).to_vec() }
    }
}
