//! What the log asks of a file system, as two traits, so that tests can lose, tear, refuse and delay.
//!
//! Nothing is durable before [`DiskFile::sync_data`] (bytes and length) or [`Disk::sync_directory`] (names).

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::mutant::{self, Mutant};

/// How to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// To read an existing one.
    Read,
    /// To read and write an existing one.
    Write,
    /// To write a new or emptied one.
    Create,
}

/// A file system.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Opens a file.
    ///
    /// # Errors
    /// Those of the file system.
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn DiskFile>>;
    /// Whether there is a file or directory of this name.
    ///
    /// # Errors
    /// Those of the file system.
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// Makes a directory, unless there is one.
    ///
    /// # Errors
    /// Those of the file system.
    fn create_directory(&self, path: &Path) -> io::Result<()>;
    /// Gives a file another name, replacing what had it.
    ///
    /// # Errors
    /// Those of the file system.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    ///
    /// # Errors
    /// Those of the file system.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// Those of the file system.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
}

/// An open file. One thread writes; another may sync meanwhile.
pub trait DiskFile: Send + Sync + fmt::Debug {
    /// Reads some bytes; none at the end of the file.
    ///
    /// # Errors
    /// Those of the file system.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes some of the bytes.
    ///
    /// # Errors
    /// Those of the file system.
    fn write_at(&self, slices: &[IoSlice<'_>], offset: u64) -> io::Result<usize>;
    /// Makes the file's bytes and length durable.
    ///
    /// # Errors
    /// Those of the file system. After one, what was written may be lost although a second call succeeds.
    fn sync_data(&self) -> io::Result<()>;
    /// Cuts the file off, or extends it by zeros.
    ///
    /// # Errors
    /// Those of the file system.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// The file's length in bytes.
    ///
    /// # Errors
    /// Those of the file system.
    fn length(&self) -> io::Result<u64>;
    /// The descriptor, if the kernel knows this file.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}

/// The kernel's file systems.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(how != Open::Read).create(how == Open::Create).truncate(how == Open::Create);
        Ok(Arc::new(RealFile(options.open(path)?)))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        match fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            result => result,
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        if mutant::is(Mutant::NoDirsync) {
            return Ok(());
        }
        File::open(path)?.sync_all()
    }
}

#[derive(Debug)]
struct RealFile(File);

impl DiskFile for RealFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn write_at(&self, slices: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        // A seek is 0.1 µs; the standard library has no vectored write at an offset. One thread writes, so the position
        // is its own.
        let mut file = &self.0;
        file.seek(SeekFrom::Start(offset))?;
        file.write_vectored(slices)
    }

    fn sync_data(&self) -> io::Result<()> {
        if mutant::is(Mutant::NoFsync) {
            return Ok(());
        }
        self.0.sync_data()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

/// Slices that one call of the kernel takes at most (`IOV_MAX`).
const SLICES: usize = 1024;

/// Writes all slices from `offset` on. On an error, also how many bytes were written before it.
pub(super) fn write_all(
    file: &dyn DiskFile,
    mut slices: &mut [IoSlice<'_>],
    offset: u64,
) -> Result<u64, (u64, io::Error)> {
    let mut written = 0;
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        match file.write_at(&slices[..slices.len().min(SLICES)], offset + written) {
            Ok(0) => return Err((written, io::ErrorKind::WriteZero.into())),
            Ok(count) => {
                written += count as u64;
                IoSlice::advance_slices(&mut slices, count);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((written, error)),
        }
    }
    Ok(written)
}

/// Writes `bytes` from `offset` on.
pub(super) fn write_bytes(file: &dyn DiskFile, bytes: &[u8], offset: u64) -> io::Result<()> {
    write_all(file, &mut [IoSlice::new(bytes)], offset).map(drop).map_err(|(_, error)| error)
}

/// An error that says what was tried on which file. It keeps its kind.
pub(super) fn told(what: &str, path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    let text = format!("{what} {}", path.display());
    move |error| io::Error::new(error.kind(), format!("{text}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_in_slices_and_read_back() {
        let directory = std::env::temp_dir().join(format!("gimmal-disk-{}", std::process::id()));
        RealDisk.create_directory(&directory).expect("a directory");
        RealDisk.create_directory(&directory).expect("it may exist");
        let path = directory.join("file");
        let file = RealDisk.open(&path, Open::Create).expect("a file");
        let many: Vec<Vec<u8>> = (0..3000_u32).map(|n| n.to_string().into_bytes()).collect();
        let mut slices: Vec<IoSlice<'_>> = many.iter().map(|bytes| IoSlice::new(bytes)).collect();
        let expected = many.concat();
        assert_eq!(write_all(&*file, &mut slices, 5).expect("written"), expected.len() as u64);
        file.sync_data().expect("synced");
        assert_eq!(file.length().expect("a length"), 5 + expected.len() as u64);
        let mut read = vec![0; expected.len()];
        assert_eq!(file.read_at(&mut read, 5).expect("read"), expected.len());
        assert_eq!(read, expected);
        let moved = directory.join("moved");
        RealDisk.rename(&path, &moved).expect("renamed");
        RealDisk.sync_directory(&directory).expect("synced");
        assert!(RealDisk.exists(&moved).expect("looked") && !RealDisk.exists(&path).expect("looked"));
        RealDisk.remove(&moved).expect("removed");
        fs::remove_dir(directory).expect("empty");
    }
}
