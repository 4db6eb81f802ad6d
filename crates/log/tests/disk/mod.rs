//! A disk in memory that loses what was not synced, and refuses, tears and delays on request.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use gimmal_log::aof::{Disk, DiskFile, Open};

/// A random sequence: xorshift64*.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }
}

/// What a crash leaves of what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// Nothing.
    DropAll,
    /// Everything: a killed process.
    KeepAll,
    /// Changes in order up to a random one, which may be torn.
    Prefix,
    /// Each sector by chance; a file may be longer than what reached it.
    Subset,
}

/// What the disk does wrong. Nothing by default.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// A write takes at most so many bytes.
    pub short_writes: Option<usize>,
    /// All files together hold at most so many bytes.
    pub capacity: Option<u64>,
    /// So many operations succeed, then all fail: the process has died.
    pub dies_after: Option<u64>,
    /// The sync of that number, from 1 on, fails once; what it should have synced is forgotten to be unsynced.
    pub failing_sync: Option<u64>,
    /// The write of that number, from 1 on, fails once.
    pub failing_write: Option<u64>,
    /// Syncs do not end.
    pub stuck: bool,
}

#[derive(Clone, Debug, Default)]
pub struct MemoryDisk(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Debug, Default)]
struct State {
    files: Vec<Content>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    /// Changes of names that are not synced, oldest first.
    name_changes: Vec<Names>,
    faults: Faults,
    operations: u64,
    syncs: u64,
    writes: u64,
}

/// One change of names: a new one, a removal, or both.
type Names = Vec<(PathBuf, Option<usize>)>;

#[derive(Clone, Default)]
struct Content {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    changes: Vec<Change>,
}

impl fmt::Debug for Content {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} bytes, {} durable", self.bytes.len(), self.durable.len())
    }
}

#[derive(Clone)]
enum Change {
    Write(usize, Vec<u8>),
    Length(usize),
}

const SECTOR: usize = 512;

impl MemoryDisk {
    pub fn set_faults(&self, faults: Faults) {
        self.lock().faults = faults;
        self.0.changed.notify_all();
    }

    pub fn operations(&self) -> u64 {
        self.lock().operations
    }

    pub fn syncs(&self) -> u64 {
        self.lock().syncs
    }

    /// The bytes of a file, synced or not.
    pub fn bytes(&self, path: &Path) -> Vec<u8> {
        let state = self.lock();
        state.names.get(path).map(|at| state.files[*at].bytes.clone()).unwrap_or_default()
    }

    /// Replaces a file, durably.
    pub fn put(&self, path: &Path, bytes: Vec<u8>) {
        let mut state = self.lock();
        state.files.push(Content { durable: bytes.clone(), bytes, changes: Vec::new() });
        let at = state.files.len() - 1;
        state.names.insert(path.to_owned(), at);
        state.durable_names.insert(path.to_owned(), at);
    }

    pub fn names(&self) -> Vec<PathBuf> {
        self.lock().names.keys().cloned().collect()
    }

    /// A copy, as it is.
    pub fn copy(&self) -> MemoryDisk {
        let mut state = self.lock().clone();
        state.faults = Faults::default();
        MemoryDisk(Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() }))
    }

    /// The disk after a crash now.
    pub fn after(&self, crash: Crash, random: &mut Random) -> MemoryDisk {
        let mut state = self.lock().clone();
        let changes = std::mem::take(&mut state.name_changes);
        let ordered = match crash {
            Crash::DropAll => 0,
            Crash::KeepAll | Crash::Subset => changes.len(),
            Crash::Prefix => usize_of(random.below(changes.len() as u64 + 1)),
        };
        for change in changes.into_iter().take(ordered) {
            // Names are not ordered among each other either.
            if crash != Crash::Subset || random.below(2) == 0 {
                rename(&mut state.durable_names, change);
            }
        }
        state.names = state.durable_names.clone();
        for file in &mut state.files {
            file.crash(crash, random);
        }
        state.faults = Faults::default();
        MemoryDisk(Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("no test panics while it holds the lock")
    }

    /// Counts an operation.
    fn begin(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.lock();
        if state.faults.dies_after.is_some_and(|limit| state.operations >= limit) {
            return Err(io::Error::other("died"));
        }
        state.operations += 1;
        Ok(state)
    }
}

fn usize_of(number: u64) -> usize {
    usize::try_from(number).expect("in memory")
}

fn rename(names: &mut BTreeMap<PathBuf, usize>, change: Names) {
    for (path, file) in change {
        match file {
            Some(file) => drop(names.insert(path, file)),
            None => drop(names.remove(&path)),
        }
    }
}

impl Content {
    fn crash(&mut self, crash: Crash, random: &mut Random) {
        let changes = std::mem::take(&mut self.changes);
        match crash {
            Crash::DropAll => {}
            Crash::KeepAll => self.durable = self.bytes.clone(),
            Crash::Prefix => {
                let kept = usize_of(random.below(changes.len() as u64 + 1));
                for change in &changes[..kept] {
                    apply(&mut self.durable, change);
                }
                if let Some(Change::Write(at, bytes)) = changes.get(kept) {
                    let torn = usize_of(random.below(bytes.len() as u64 + 1));
                    apply(&mut self.durable, &Change::Write(*at, bytes[..torn].to_vec()));
                }
            }
            Crash::Subset => {
                for change in &changes {
                    match change {
                        Change::Length(_) if random.below(2) == 0 => {}
                        Change::Length(_) => apply(&mut self.durable, change),
                        Change::Write(at, bytes) => subset(&mut self.durable, *at, bytes, random),
                    }
                }
            }
        }
        self.bytes = self.durable.clone();
    }
}

fn subset(durable: &mut Vec<u8>, at: usize, bytes: &[u8], random: &mut Random) {
    let mut from = 0;
    while from < bytes.len() {
        let to = bytes.len().min(from + SECTOR - (at + from) % SECTOR);
        match random.below(4) {
            0 => {}
            1 if durable.len() < at + to => durable.resize(at + to, 0),
            _ => apply(durable, &Change::Write(at + from, bytes[from..to].to_vec())),
        }
        from = to;
    }
}

fn apply(content: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Length(len) => content.resize(*len, 0),
        Change::Write(_, bytes) if bytes.is_empty() => {}
        Change::Write(at, bytes) => {
            if content.len() < at + bytes.len() {
                content.resize(at + bytes.len(), 0);
            }
            content[*at..at + bytes.len()].copy_from_slice(bytes);
        }
    }
}

impl Disk for MemoryDisk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.begin()?;
        let existing = state.names.get(path).copied();
        let file = match (existing, how) {
            (Some(file), Open::Create) => {
                state.files[file].bytes.clear();
                state.files[file].changes.push(Change::Length(0));
                file
            }
            (Some(file), _) => file,
            (None, Open::Create) => {
                state.files.push(Content::default());
                let file = state.files.len() - 1;
                state.names.insert(path.to_owned(), file);
                state.name_changes.push(vec![(path.to_owned(), Some(file))]);
                file
            }
            (None, _) => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(Arc::new(MemoryFile { disk: self.clone(), file }))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.begin()?.names.contains_key(path))
    }

    fn create_directory(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.begin()?;
        let file = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.to_owned(), file);
        state.name_changes.push(vec![(to.to_owned(), Some(file)), (from.to_owned(), None)]);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.begin()?;
        state.names.remove(path).ok_or(io::ErrorKind::NotFound)?;
        state.name_changes.push(vec![(path.to_owned(), None)]);
        Ok(())
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.begin()?;
        let changes = std::mem::take(&mut state.name_changes);
        for mut change in changes {
            let (synced, rest): (Names, Names) = change.drain(..).partition(|(name, _)| name.parent() == Some(path));
            rename(&mut state.durable_names, synced);
            if !rest.is_empty() {
                state.name_changes.push(rest);
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct MemoryFile {
    disk: MemoryDisk,
    file: usize,
}

impl DiskFile for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.disk.begin()?;
        let bytes = &state.files[self.file].bytes;
        let from = usize_of(offset).min(bytes.len());
        let count = buffer.len().min(bytes.len() - from);
        buffer[..count].copy_from_slice(&bytes[from..from + count]);
        Ok(count)
    }

    fn write_at(&self, slices: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let mut state = self.disk.begin()?;
        state.writes += 1;
        if state.faults.failing_write == Some(state.writes) {
            return Err(io::Error::from_raw_os_error(5));
        }
        let mut bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        bytes.truncate(state.faults.short_writes.unwrap_or(usize::MAX));
        let at = usize_of(offset);
        if let Some(capacity) = state.faults.capacity {
            let others: u64 = state.files.iter().map(|file| file.bytes.len() as u64).sum::<u64>()
                - state.files[self.file].bytes.len() as u64;
            let room = usize_of(capacity.saturating_sub(others)).max(state.files[self.file].bytes.len());
            bytes.truncate(room.saturating_sub(at));
            if bytes.is_empty() {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        let count = bytes.len();
        let change = Change::Write(at, bytes);
        apply(&mut state.files[self.file].bytes, &change);
        state.files[self.file].changes.push(change);
        Ok(count)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.begin()?;
        state.syncs += 1;
        let number = state.syncs;
        while state.faults.stuck {
            state = self.disk.0.changed.wait(state).expect("no test panics while it holds the lock");
        }
        let fails = state.faults.failing_sync == Some(number);
        let file = &mut state.files[self.file];
        if fails {
            // As Linux does it: the pages are clean now, and lost.
            file.changes.clear();
            return Err(io::Error::from_raw_os_error(5));
        }
        for change in std::mem::take(&mut file.changes) {
            apply(&mut file.durable, &change);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.begin()?;
        let file = &mut state.files[self.file];
        file.bytes.resize(usize_of(len), 0);
        file.changes.push(Change::Length(usize_of(len)));
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.disk.begin()?.files[self.file].bytes.len() as u64)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
