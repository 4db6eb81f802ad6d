//! Reading a file through a window of bounded size.

use std::io;
use std::sync::Arc;

use super::disk::DiskFile;

/// How much is read at once. Bytes.
const WINDOW: usize = 256 * 1024;

/// A file, its length when it was opened, and a part of its bytes.
#[derive(Debug)]
pub(super) struct Window {
    file: Arc<dyn DiskFile>,
    length: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    pub(super) fn new(file: Arc<dyn DiskFile>) -> io::Result<Window> {
        let length = file.length()?;
        Ok(Window { file, length, start: 0, bytes: Vec::new() })
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    pub(super) fn file(&self) -> &Arc<dyn DiskFile> {
        &self.file
    }

    /// Bytes from `offset` on: at least `want`, or all that the file has.
    pub(super) fn at(&mut self, offset: u64, want: usize) -> io::Result<&[u8]> {
        let left = usize::try_from(self.length.saturating_sub(offset)).unwrap_or(usize::MAX);
        let want = want.min(left);
        let end = self.start + self.bytes.len() as u64;
        if offset < self.start || offset + want as u64 > end {
            self.bytes.resize(left.min(WINDOW.max(want)), 0);
            read_exactly(&*self.file, &mut self.bytes, offset)?;
            self.start = offset;
        }
        // Inside the window, which is in memory.
        let skip = usize::try_from(offset - self.start).expect("inside the window").min(self.bytes.len());
        Ok(&self.bytes[skip..])
    }
}

/// Fills `buffer` from `offset` on.
pub(super) fn read_exactly(file: &dyn DiskFile, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
