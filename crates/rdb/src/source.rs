//! Where encoded bytes come from: a slice that is there already, or a window over a reader ([`crate::file`]).

use crate::error::{Error, ErrorKind, Result};

/// Bytes in order. What is taken is borrowed until the next call, so that a reader can hand out its buffer.
pub trait Source {
    /// The next `len` bytes. Nothing is allocated for bytes that never come.
    fn take(&mut self, len: usize) -> Result<&[u8]>;

    /// Passes over `len` bytes.
    fn skip(&mut self, len: u64) -> Result<()>;

    /// Bytes taken so far.
    fn position(&self) -> u64;
}

/// A payload in memory.
#[derive(Clone, Debug)]
pub struct Slice<'a> {
    rest: &'a [u8],
    taken: u64,
}

impl<'a> Slice<'a> {
    /// All of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Slice<'a> {
        Slice { rest: bytes, taken: 0 }
    }

    /// As [`Slice::new`], of which `at` bytes were taken already.
    pub(crate) fn after(bytes: &'a [u8], at: usize) -> Slice<'a> {
        Slice { rest: &bytes[at..], taken: at as u64 }
    }

    /// What was not taken yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl Source for Slice<'_> {
    #[inline]
    fn take(&mut self, len: usize) -> Result<&[u8]> {
        let Some((taken, rest)) = self.rest.split_at_checked(len) else {
            return Err(Error::new(ErrorKind::Truncated, self.taken));
        };
        self.rest = rest;
        self.taken += len as u64;
        Ok(taken)
    }

    fn skip(&mut self, len: u64) -> Result<()> {
        let len = usize::try_from(len).map_err(|_| Error::new(ErrorKind::Truncated, self.taken))?;
        self.take(len).map(|_| ())
    }

    fn position(&self) -> u64 {
        self.taken
    }
}
