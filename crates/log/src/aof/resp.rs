//! Files that a Redis wrote: commands as RESP with annotation lines between, no checksums. Read as Redis reads them: an
//! unfinished command or transaction at the end is a torn tail, anything else that is not RESP refuses.
//!
//! The file is first read to its end, without keeping anything, so that no command of a transaction without `EXEC` is
//! handed out. A tail of zeros, which some file systems leave after a power cut, is torn too; Redis refuses it.

use std::fmt;
use std::io;
use std::path::Path;

use super::disk::{Disk, Open, told};
use super::window::Window;

/// How many bytes of commands are handed out at once, if one command is not longer.
const PIECE: usize = 1 << 20;
/// Lines are shorter, as in Redis.
const LINE: usize = 1024;
/// Lines with a number are shorter.
const NUMBER: usize = 24;

/// Why a file cannot be read.
#[derive(Debug)]
pub enum RespError {
    /// The file system's error.
    Io(io::Error),
    /// Not RESP.
    Format {
        /// Where.
        offset: u64,
        /// What is wrong.
        reason: &'static str,
    },
}

impl fmt::Display for RespError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RespError::Io(error) => error.fmt(out),
            RespError::Format { offset, reason } => write!(out, "at offset {offset}: {reason}"),
        }
    }
}

impl std::error::Error for RespError {}

impl From<io::Error> for RespError {
    fn from(error: io::Error) -> RespError {
        RespError::Io(error)
    }
}

/// A file, or the rest of one, that consists of commands.
#[derive(Debug)]
pub struct RespFile {
    window: Window,
    at: u64,
    end: u64,
    commands: Vec<u8>,
}

/// One thing at an offset.
enum Parsed {
    Annotation {
        end: u64,
    },
    Command {
        end: u64,
        name: Name,
    },
    /// The file ends in it.
    Short,
    Wrong {
        offset: u64,
        reason: &'static str,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Name {
    Multi,
    Exec,
    Other,
}

impl RespFile {
    /// Opens a file whose commands begin at offset `from`, and reads it to its end.
    ///
    /// # Errors
    /// The file system's, or that the file is not RESP.
    pub fn open(disk: &dyn Disk, path: &Path, from: u64) -> Result<RespFile, RespError> {
        let window = Window::new(disk.open(path, Open::Read).map_err(told("opening", path))?)?;
        let mut file = RespFile { window, at: from, end: from, commands: Vec::new() };
        file.find_end(from)?;
        Ok(file)
    }

    /// Where the last whole command ends.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Bytes behind the last whole command: a torn tail.
    pub fn torn(&self) -> u64 {
        self.window.length().saturating_sub(self.end)
    }

    /// Some whole commands, without annotations. `None`: that was all.
    ///
    /// # Errors
    /// The file system's.
    pub fn next_commands(&mut self) -> io::Result<Option<&[u8]>> {
        self.commands.clear();
        self.commands.shrink_to(2 * PIECE);
        while self.at < self.end && self.commands.len() < PIECE {
            let end = match self.parse(self.at)? {
                Parsed::Annotation { end } => end,
                Parsed::Command { end, .. } => {
                    self.copy(end)?;
                    end
                }
                Parsed::Short | Parsed::Wrong { .. } => {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "the file changed while it was read"));
                }
            };
            self.at = end;
        }
        Ok((!self.commands.is_empty()).then_some(&self.commands))
    }

    fn copy(&mut self, end: u64) -> io::Result<()> {
        let mut at = self.at;
        while at < end {
            let left = usize::try_from(end - at).unwrap_or(usize::MAX);
            let bytes = self.window.at(at, 1)?;
            let count = bytes.len().min(left);
            self.commands.extend_from_slice(&bytes[..count]);
            at += count as u64;
        }
        Ok(())
    }

    fn find_end(&mut self, from: u64) -> Result<(), RespError> {
        let (mut at, mut in_transaction) = (from, false);
        while at < self.window.length() {
            match self.parse(at)? {
                Parsed::Annotation { end } => at = end,
                Parsed::Command { name: Name::Multi, .. } if in_transaction => {
                    return Err(RespError::Format { offset: at, reason: "MULTI inside a transaction" });
                }
                Parsed::Command { name: Name::Exec, .. } if !in_transaction => {
                    return Err(RespError::Format { offset: at, reason: "EXEC without MULTI" });
                }
                Parsed::Command { end, name } => {
                    in_transaction = (in_transaction || name == Name::Multi) && name != Name::Exec;
                    at = end;
                }
                Parsed::Short => break,
                Parsed::Wrong { offset, .. } if self.is_zero_from(offset)? => break,
                Parsed::Wrong { offset, reason } => return Err(RespError::Format { offset, reason }),
            }
            if !in_transaction {
                self.end = at;
            }
        }
        Ok(())
    }

    /// Whether there are only zeros from `offset` on, but for the beginning of a number or line end.
    fn is_zero_from(&mut self, mut offset: u64) -> io::Result<bool> {
        let bytes = self.window.at(offset, NUMBER)?;
        let Some(begun) = bytes.iter().take(NUMBER).position(|byte| *byte == 0) else {
            return Ok(false);
        };
        offset += begun as u64;
        while offset < self.window.length() {
            let bytes = self.window.at(offset, 1)?;
            if bytes.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            offset += bytes.len() as u64;
        }
        Ok(true)
    }

    fn parse(&mut self, start: u64) -> io::Result<Parsed> {
        let length = self.window.length();
        let bytes = self.window.at(start, LINE)?;
        let wrong = |offset, reason| Ok(Parsed::Wrong { offset, reason });
        if bytes.first() == Some(&b'#') {
            let end = bytes[..bytes.len().min(LINE)].iter().position(|byte| *byte == b'\n');
            return match end {
                Some(end) => Ok(Parsed::Annotation { end: start + end as u64 + 1 }),
                None if length - start < LINE as u64 => Ok(Parsed::Short),
                None => wrong(start, "an annotation is too long"),
            };
        }
        let (args, mut at) = match self.number(start, b'*')? {
            Number::Is(args, end) if args > 0 => (args, end),
            Number::Short => return Ok(Parsed::Short),
            Number::Is(..) | Number::Wrong => return wrong(start, "no command begins here"),
        };
        let mut name = Name::Other;
        for arg in 0..args {
            let (len, from) = match self.number(at, b'$')? {
                Number::Is(len, end) => (len, end),
                Number::Short => return Ok(Parsed::Short),
                Number::Wrong => return wrong(at, "no argument begins here"),
            };
            let Some(end) = from.checked_add(len).filter(|end| length.saturating_sub(*end) >= 2) else {
                return Ok(Parsed::Short);
            };
            if !self.window.at(end, 2)?.starts_with(b"\r\n") {
                return wrong(end, "an argument does not end here");
            }
            if arg == 0 && len <= 5 {
                // At most five.
                name = Name::of(&self.window.at(from, 5)?[..len as usize]);
            }
            at = end + 2;
        }
        Ok(Parsed::Command { end: at, name })
    }

    /// A number after `prefix` to the end of the line.
    fn number(&mut self, at: u64, prefix: u8) -> io::Result<Number> {
        let bytes = self.window.at(at, NUMBER)?;
        let bytes = &bytes[..bytes.len().min(NUMBER)];
        let Some((first, rest)) = bytes.split_first() else {
            return Ok(Number::Short);
        };
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let behind = &rest[digits..];
        if *first != prefix || !(b"\r\n".starts_with(&behind[..behind.len().min(2)])) {
            return Ok(Number::Wrong);
        }
        if behind.len() < 2 && bytes.len() < NUMBER {
            return Ok(Number::Short);
        }
        let value = std::str::from_utf8(&rest[..digits]).ok().and_then(|text| text.parse::<u64>().ok());
        // Redis's numbers are signed; a longer argument than any file would be Short for ever.
        Ok(match value.filter(|value| behind.len() >= 2 && *value < 1 << 48) {
            Some(value) => Number::Is(value, at + 3 + digits as u64),
            None => Number::Wrong,
        })
    }
}

enum Number {
    /// The value, and where the line ends.
    Is(u64, u64),
    Short,
    Wrong,
}

impl Name {
    fn of(name: &[u8]) -> Name {
        if name.eq_ignore_ascii_case(b"multi") {
            Name::Multi
        } else if name.eq_ignore_ascii_case(b"exec") {
            Name::Exec
        } else {
            Name::Other
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::aof::RealDisk;

    fn with_file<T>(name: &str, bytes: &[u8], run: impl FnOnce(&Path) -> T) -> T {
        let path: PathBuf = std::env::temp_dir().join(format!("gimmal-resp-{name}-{}", std::process::id()));
        std::fs::write(&path, bytes).expect("written");
        let result = run(&path);
        std::fs::remove_file(path).expect("removed");
        result
    }

    fn read(name: &str, bytes: &[u8]) -> Result<(Vec<u8>, u64), RespError> {
        with_file(name, bytes, |path| {
            let mut file = RespFile::open(&RealDisk, path, 0)?;
            let mut all = Vec::new();
            while let Some(commands) = file.next_commands()? {
                all.extend_from_slice(commands);
            }
            Ok((all, file.torn()))
        })
    }

    const SET: &[u8] = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\nvv\r\n";
    const MULTI: &[u8] = b"*1\r\n$5\r\nmulti\r\n";
    const EXEC: &[u8] = b"*1\r\n$4\r\nEXEC\r\n";

    #[test]
    fn commands_are_handed_out_without_annotations() {
        let file = [b"#TS:1\r\n", SET, b"#x\r\n", MULTI, SET, b"#y\r\n", EXEC].concat();
        assert_eq!(read("whole", &file).expect("read"), ([SET, MULTI, SET, EXEC].concat(), 0));
        assert_eq!(read("empty", b"").expect("read"), (Vec::new(), 0));
    }

    #[test]
    fn large_commands_and_many_of_them_come_whole() {
        let value = vec![b'v'; 3 << 20];
        let mut large = Vec::new();
        gimmal_resp::encode_command(&mut large, &[b"SET".as_slice(), b"k", &value]);
        let file = [SET.repeat(100_000), large, SET.to_vec()].concat();
        assert_eq!(read("large", &file).expect("read"), (file, 0));
    }

    #[test]
    fn a_cut_at_any_byte_leaves_whole_commands_and_whole_transactions() {
        let file = [SET, MULTI, SET, SET, EXEC, b"#TS:2\r\n", SET].concat();
        let ends = [0, SET.len(), 3 * SET.len() + MULTI.len() + EXEC.len(), file.len() - SET.len(), file.len()];
        for cut in 0..=file.len() {
            let (all, torn) = read("cut", &file[..cut]).expect("read");
            let expected = ends.iter().rev().find(|end| **end <= cut).expect("zero");
            assert_eq!(torn, (cut - expected) as u64, "cut at {cut}");
            let commands = [&file[..*expected]].concat();
            let text = String::from_utf8(commands).expect("text").replace("#TS:2\r\n", "");
            assert_eq!(String::from_utf8(all).expect("text"), text, "cut at {cut}");
        }
    }

    #[test]
    fn a_tail_of_zeros_is_torn() {
        for cut in 0..SET.len() {
            let file = [SET, &SET[..cut], &[0; 5000]].concat();
            let (all, torn) = read("zeros", &file).expect("read");
            assert_eq!((all.as_slice(), torn), (SET, (cut + 5000) as u64), "cut at {cut}");
        }
    }

    #[test]
    fn anything_else_is_refused_with_its_place() {
        let long = [b"#".as_slice(), &[b'x'; 2000]].concat();
        for (wrong, at) in [
            (b"hello\r\n".as_slice(), 0),
            (b"*0\r\n", 0),
            (b"*-1\r\n", 0),
            (b"*x\r\n", 0),
            (b"*1\r\n+OK\r\n", 4),
            (b"*1\r\n$2\r\nabc\r\n", 10),
            (b"*99999999999999999999999999999\r\n", 0),
            (b"*1\r\n$4\r\nEXEC\r\n", 0),
            (&long, 0),
        ] {
            let file = [SET, wrong, SET].concat();
            let expected = (SET.len() + at) as u64;
            match read("wrong", &file) {
                Err(RespError::Format { offset, .. }) => assert_eq!(offset, expected, "{wrong:?}"),
                other => panic!("{:?}: {other:?}", String::from_utf8_lossy(wrong)),
            }
        }
        assert!(matches!(read("nested", &[MULTI, MULTI].concat()), Err(RespError::Format { .. })));
    }
}
