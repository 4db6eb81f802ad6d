//! A connection that does what the parser asks of its caller, and nothing cleverer: the model for the tests.

// Each test uses a part of this.
#![allow(dead_code)]

use gimmal_resp::{Beginning, Limits, Next, Parser, ProtocolError, Span};

pub type Command = Vec<Vec<u8>>;

/// Keeps unfinished bytes, takes large arguments into buffers of its own, collects commands.
#[derive(Default)]
pub struct Connection {
    parser: Parser,
    kept: Vec<u8>,
    detached: Vec<Vec<u8>>,
    pub commands: Vec<Command>,
    pub larges: usize,
    /// Commands that were known by how the one before began.
    pub repeated: usize,
}

impl Connection {
    /// Receives bytes, as one read gave them.
    pub fn receive(&mut self, mut bytes: &[u8], limits: &Limits) -> Result<(), ProtocolError> {
        let direct = self.parser.large_missing().min(bytes.len());
        if direct > 0 {
            self.take(&bytes[..direct]);
            bytes = &bytes[direct..];
        }
        if self.parser.large_missing() > 0 {
            return Ok(());
        }
        let mut buf = std::mem::take(&mut self.kept);
        buf.extend_from_slice(bytes);
        let mut pos = 0;
        let mut args = Vec::new();
        let mut beginning = Beginning::default();
        loop {
            let start = pos;
            args.clear();
            let (next, repeats) = self.parser.next_after(&buf, &mut pos, limits, &mut args, &mut beginning)?;
            assert!(!repeats || next == Next::Command);
            match next {
                Next::Command => {
                    assert!(pos > start, "a command has bytes");
                    if !args.is_empty() {
                        let command: Command = args.iter().map(|span| self.argument(*span, &buf)).collect();
                        if repeats {
                            self.repeated += 1;
                            let before = self.commands.last().expect("a command that is repeated");
                            assert_eq!((&before[0], before.len()), (&command[0], command.len()));
                        }
                        self.commands.push(command);
                    }
                    self.detached.clear();
                }
                Next::Inline(command) => {
                    assert!(pos > start && args.is_empty() && !command.is_empty());
                    self.commands.push(command);
                }
                Next::Incomplete => {
                    assert!(args.is_empty(), "an unfinished command leaves no spans");
                    assert_eq!(pos, start);
                    self.kept = buf.split_off(pos);
                    return Ok(());
                }
                Next::Large { missing } => {
                    assert!(args.is_empty());
                    assert_eq!(missing, self.parser.large_missing());
                    assert!(missing > buf.len() - pos);
                    self.detached.push(Vec::new());
                    let payload = buf.split_off(pos);
                    self.take(&payload);
                    self.kept = buf.split_off(start);
                    self.larges += 1;
                    return Ok(());
                }
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.detached.last_mut().expect("a large argument").extend_from_slice(bytes);
        self.parser.large_taken(bytes.len());
    }

    fn argument(&self, span: Span, buf: &[u8]) -> Vec<u8> {
        if span.is_detached() { self.detached[span.len as usize].clone() } else { span.bytes(buf).to_vec() }
    }

    pub fn is_idle(&self) -> bool {
        self.parser.is_idle() && self.kept.is_empty()
    }

    /// How many bytes the connection holds back for an unfinished command, large arguments not counted.
    pub fn kept(&self) -> usize {
        self.kept.len()
    }
}

/// A small generator for reproducible tests (Knuth's MMIX constants, high bits only).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % bound
    }
}
