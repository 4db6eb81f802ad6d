//! A window over a reader: bytes are taken from a buffer that is refilled, and summed up when they leave it.

use crate::crc64::crc64;
use crate::error::{Error, ErrorKind, Result};
use crate::source::Source;
use std::io::{self, Read};

/// The buffer and its reader.
#[derive(Debug)]
pub(super) struct Window<R> {
    read: R,
    /// `start..end` is read and not taken.
    buf: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes that left the buffer at its front.
    gone: u64,
    /// Checksum of everything before `summed`, which lies at or before the mark, and at or before `start`.
    crc: u64,
    summed: usize,
    /// From where on everything stays in the buffer, and how much that may become.
    mark: Option<(usize, usize)>,
    over_limit: bool,
}

impl<R: Read> Window<R> {
    pub(super) fn new(read: R) -> Window<R> {
        Window {
            read,
            buf: vec![0; USUAL],
            start: 0,
            end: 0,
            gone: 0,
            crc: 0,
            summed: 0,
            mark: None,
            over_limit: false,
        }
    }

    /// The checksum of all bytes taken so far.
    pub(super) fn checksum(&mut self) -> u64 {
        self.sum_to(self.start);
        self.crc
    }

    /// What was read and not taken, and the reader.
    pub(super) fn into_rest(self) -> (Vec<u8>, R) {
        (self.buf[self.start..self.end].to_vec(), self.read)
    }

    /// From here on bytes that are taken stay, up to `limit` of them: taking more fails until [`Window::rewind`].
    pub(super) fn set_mark(&mut self, limit: usize) {
        self.mark = Some((self.start, limit));
        self.over_limit = false;
    }

    /// Whether taking failed because of the limit.
    pub(super) fn is_over_limit(&self) -> bool {
        self.over_limit
    }

    /// Goes back to the mark and removes it.
    pub(super) fn rewind(&mut self) {
        if let Some((mark, _)) = self.mark.take() {
            self.start = mark;
        }
        self.over_limit = false;
    }

    /// Bytes taken since the mark.
    pub(super) fn len_since_mark(&self) -> usize {
        self.mark.map_or(0, |(mark, _)| self.start - mark)
    }

    /// Goes back to `len` bytes behind the mark, which is removed, and hands these out.
    pub(super) fn cut_at(&mut self, len: usize) -> &[u8] {
        let (mark, _) = self.mark.take().expect("there is a mark");
        self.over_limit = false;
        debug_assert!(len <= self.start - mark, "only what was taken is cut");
        self.start = mark + len;
        &self.buf[mark..self.start]
    }

    /// What was taken since the mark, which is removed.
    pub(super) fn since_mark(&mut self) -> &[u8] {
        let from = self.mark.take().map_or(self.start, |(mark, _)| mark);
        &self.buf[from..self.start]
    }

    fn sum_to(&mut self, to: usize) {
        self.crc = crc64(self.crc, &self.buf[self.summed..to]);
        self.summed = to;
    }

    /// Makes `len` bytes available from `start` on. The buffer grows only as bytes arrive.
    #[cold]
    fn fill(&mut self, len: usize) -> Result<()> {
        let keep = match self.mark {
            Some((mark, limit)) if self.start - mark > limit || len > limit - (self.start - mark) => {
                self.over_limit = true;
                return Err(self.truncated());
            }
            Some((mark, _)) => mark,
            None => self.start,
        };
        self.sum_to(keep);
        self.buf.copy_within(keep..self.end, 0);
        self.gone += keep as u64;
        (self.start, self.end, self.summed) = (self.start - keep, self.end - keep, 0);
        self.mark = self.mark.map(|(_, limit)| (0, limit));
        if self.end == 0 && self.buf.len() > USUAL && len <= USUAL {
            self.buf = vec![0; USUAL];
        }
        while self.end - self.start < len {
            if self.end == self.buf.len() {
                let wanted = self.start.saturating_add(len);
                self.buf.resize(wanted.min(2 * self.buf.len()).max(self.buf.len() + 1), 0);
            }
            match self.read.read(&mut self.buf[self.end..]) {
                Ok(0) => return Err(self.truncated()),
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::new(ErrorKind::Io(error), self.gone + self.end as u64)),
            }
        }
        Ok(())
    }

    fn truncated(&self) -> Error {
        Error::new(ErrorKind::Truncated, self.gone + self.end as u64)
    }
}

impl<R: Read> Source for Window<R> {
    #[inline]
    fn take(&mut self, len: usize) -> Result<&[u8]> {
        if self.end - self.start < len {
            self.fill(len)?;
        }
        let from = self.start;
        self.start += len;
        Ok(&self.buf[from..from + len])
    }

    fn skip(&mut self, len: u64) -> Result<()> {
        let mut left = len;
        while left > 0 {
            let step = usize::try_from(left).map_or(STEP, |left| left.min(STEP));
            self.take(step)?;
            left -= step as u64;
        }
        Ok(())
    }

    fn position(&self) -> u64 {
        self.gone + self.start as u64
    }
}

/// Size of the buffer as long as nothing longer has to be in one piece.
const USUAL: usize = 256 * 1024;
/// Bytes that are passed over at once.
const STEP: usize = 64 * 1024;
