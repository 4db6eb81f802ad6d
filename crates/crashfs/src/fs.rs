//! What may be done: checks each operation as a file system would, asks the rules of faults, applies and records it.
//!
//! One lock covers all. It is the place that knows errors; the state below takes only what is possible.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use crate::content::{index, length};
use crate::cut::{Image, Policy};
use crate::delay::Delays;
use crate::faults::{Event, Faults, Rule, Verdict};
use crate::operation::{Ino, Kind, Name, Operation, ROOT};
use crate::random::mix;
use crate::state::{Body, Inode, Personality, Recording, State};

/// An errno.
pub type Errno = i32;

/// How a file system is made.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What its syncs make durable.
    pub personality: Personality,
    /// Whether all operations are kept, for cuts at earlier positions. It costs the memory of all that is written.
    pub is_recording: bool,
    /// What it holds, in bytes.
    pub capacity_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { personality: Personality::StrictPosix, is_recording: true, capacity_bytes: 1 << 40 }
    }
}

/// The file system: the handle that tests hold while it is mounted.
#[derive(Clone)]
pub struct CrashFs {
    shared: Arc<Shared>,
}

struct Shared {
    inner: Mutex<Inner>,
    delays: Delays,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Writes.
    pub writes: u64,
    /// Bytes in them.
    pub written_bytes: u64,
    /// Syncs of files that succeeded.
    pub syncs: u64,
    /// Writes that were durable when they returned.
    pub synced_writes: u64,
    /// Syncs of directories.
    pub directory_syncs: u64,
    /// Operations that failed or were shortened because a rule said so.
    pub faults: u64,
}

pub(crate) struct Inner {
    state: State,
    recording: Option<Vec<Operation>>,
    faults: Faults,
    capacity_bytes: u64,
    used_bytes: u64,
    is_off: bool,
    next_ino: Ino,
    pub(crate) open: HashMap<Ino, u64>,
    times: HashMap<Ino, SystemTime>,
    statistics: Statistics,
}

impl CrashFs {
    /// An empty file system, not mounted.
    ///
    /// # Errors
    /// The system has no thread left for delays.
    pub fn new(options: Options) -> io::Result<Self> {
        let inner = Inner {
            state: State::new(options.personality),
            recording: options.is_recording.then(Vec::new),
            faults: Faults::default(),
            capacity_bytes: options.capacity_bytes,
            used_bytes: 0,
            is_off: false,
            next_ino: ROOT + 1,
            open: HashMap::new(),
            times: HashMap::new(),
            statistics: Statistics::default(),
        };
        Ok(Self { shared: Arc::new(Shared { inner: Mutex::new(inner), delays: Delays::new()? }) })
    }

    /// How many operations were done: whatever a client read before this call was caused by these.
    pub fn position(&self) -> u64 {
        self.lock().state.position()
    }

    /// The state now.
    pub fn state(&self) -> State {
        self.lock().state.clone()
    }

    /// All operations so far; `None` if they are not recorded.
    pub fn recording(&self) -> Option<Recording> {
        let inner = self.lock();
        let operations = inner.recording.clone()?;
        Some(Recording { personality: inner.state.personality(), operations })
    }

    /// Writes what a cut now would leave into `dir` of a real file system.
    ///
    /// # Errors
    /// Those of that file system.
    pub fn materialise(&self, seed: u64, policy: Policy, dir: &Path) -> io::Result<()> {
        Image::cut(&self.state(), seed, policy).write_to(dir)
    }

    /// Everything that is there becomes durable, as after a clean unmount.
    pub fn sync_all(&self) {
        let mut inner = self.lock();
        let inodes: Vec<(Ino, bool)> = inner
            .state
            .inodes()
            .filter(|(_, inode)| inode.links > 0 && !matches!(inode.body, Body::Symlink(_)))
            .map(|(ino, inode)| (ino, matches!(inode.body, Body::Directory(_))))
            .collect();
        for (ino, is_directory) in inodes {
            let synced = if is_directory { inner.sync_directory(ino) } else { inner.sync(ino) };
            debug_assert!(synced.is_ok() || inner.is_off, "what exists can be synced");
        }
    }

    /// The power goes: every operation from now on fails, what waits fails too, and the state stays as it is.
    pub fn power_off(&self) {
        self.lock().is_off = true;
        self.shared.delays.give_up();
    }

    /// Adds a fault.
    pub fn add_rule(&self, rule: Rule) {
        self.lock().faults.add(rule);
    }

    /// Ends all faults and what is stuck.
    pub fn clear_rules(&self) {
        self.lock().faults.clear();
        self.shared.delays.release();
    }

    /// How much it holds from now on.
    pub fn set_capacity(&self, bytes: u64) {
        self.lock().capacity_bytes = bytes;
    }

    /// Counts since the start.
    pub fn statistics(&self) -> Statistics {
        self.lock().statistics
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.shared.inner.lock().expect("nobody panics with the lock")
    }

    /// Ends what waits.
    pub(crate) fn give_up(&self) {
        self.shared.delays.give_up();
    }

    /// Asks the rules, waits as they say, then acts: `act` gets the verdict, or the error that ends it.
    pub(crate) fn judged(
        &self,
        event: Event,
        name: &str,
        act: impl FnOnce(&Self, Result<Verdict, Errno>) + Send + 'static,
    ) {
        let mut inner = self.lock();
        if inner.is_off {
            drop(inner);
            return act(self, Err(libc::EIO));
        }
        let verdict = inner.faults.judge(event, name);
        let is_hit = verdict.error.is_some() || verdict.short.is_some() || verdict.flip.is_some() || verdict.is_lie;
        inner.statistics.faults += u64::from(is_hit);
        drop(inner);
        if !verdict.is_stuck && verdict.delay.is_zero() {
            return act(self, Ok(verdict));
        }
        // A weak handle: what waits forever must not keep the file system alive.
        let weak = Arc::downgrade(&self.shared);
        let (is_stuck, delay) = (verdict.is_stuck, verdict.delay);
        let action = Box::new(move |is_over: bool| {
            let Some(shared) = weak.upgrade() else { return };
            let verdict = if is_over { Err(libc::EIO) } else { Ok(verdict) };
            act(&CrashFs { shared }, verdict);
        });
        if is_stuck { self.shared.delays.stuck(action) } else { self.shared.delays.after(delay, action) }
    }
}

impl Inner {
    pub(crate) fn inode(&self, ino: Ino) -> Result<&Inode, Errno> {
        self.state.inode(ino).ok_or(libc::ENOENT)
    }

    pub(crate) fn name_of(&self, ino: Ino) -> String {
        self.state.inode(ino).map(|inode| inode.name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    pub(crate) fn modified(&self, ino: Ino) -> SystemTime {
        self.times.get(&ino).copied().unwrap_or(SystemTime::UNIX_EPOCH)
    }

    pub(crate) fn capacity(&self) -> (u64, u64) {
        (self.capacity_bytes, self.used_bytes)
    }

    pub(crate) fn lookup(&self, name: &Name) -> Result<Ino, Errno> {
        self.directory(name.dir)?;
        self.state.lookup(name).ok_or(libc::ENOENT)
    }

    pub(crate) fn create(&mut self, name: Name, kind: Kind, mode: u32) -> Result<Ino, Errno> {
        self.check_new(&name)?;
        let ino = self.next_ino;
        self.next_ino += 1;
        self.touch(ino);
        self.touch(name.dir);
        self.apply(Operation::Create { name, ino, kind, mode })?;
        Ok(ino)
    }

    pub(crate) fn link(&mut self, ino: Ino, name: Name) -> Result<(), Errno> {
        self.check_new(&name)?;
        if matches!(self.inode(ino)?.body, Body::Directory(_)) {
            return Err(libc::EPERM);
        }
        self.apply(Operation::Link { name, ino })
    }

    pub(crate) fn remove(&mut self, name: Name, is_directory: bool) -> Result<(), Errno> {
        let ino = self.lookup(&name)?;
        match (&self.inode(ino)?.body, is_directory) {
            (Body::Directory(_), false) => return Err(libc::EISDIR),
            (Body::Directory(directory), true) if !directory.live.is_empty() => return Err(libc::ENOTEMPTY),
            (Body::Directory(_), true) => {}
            (_, true) => return Err(libc::ENOTDIR),
            (_, false) => {}
        }
        self.uncharge_if_last(ino);
        self.touch(name.dir);
        self.apply(Operation::Remove { name })?;
        self.collect();
        Ok(())
    }

    pub(crate) fn rename(&mut self, from: Name, to: Name, flags: u32) -> Result<(), Errno> {
        let moved = self.lookup(&from)?;
        self.directory(to.dir)?;
        let replaced = self.state.lookup(&to);
        let is_exchange = flags & libc::RENAME_EXCHANGE != 0;
        match replaced {
            None if is_exchange => return Err(libc::ENOENT),
            Some(_) if flags & libc::RENAME_NOREPLACE != 0 => return Err(libc::EEXIST),
            Some(ino) if !is_exchange && ino != moved => {
                let is_directory = matches!(self.inode(moved)?.body, Body::Directory(_));
                match &self.inode(ino)?.body {
                    Body::Directory(_) if !is_directory => return Err(libc::EISDIR),
                    Body::Directory(directory) if !directory.live.is_empty() => return Err(libc::ENOTEMPTY),
                    Body::Directory(_) => {}
                    _ if is_directory => return Err(libc::ENOTDIR),
                    _ => {}
                }
                self.uncharge_if_last(ino);
            }
            _ => {}
        }
        self.touch(from.dir);
        self.touch(to.dir);
        self.apply(Operation::Rename { from, to, is_exchange })?;
        self.collect();
        Ok(())
    }

    pub(crate) fn read(&self, ino: Ino, offset: u64, len: u32, flip: Option<u64>) -> Result<Vec<u8>, Errno> {
        if self.is_off {
            return Err(libc::EIO);
        }
        let mut data = self.state.file(ino).ok_or(libc::EISDIR)?.live().read(offset, u64::from(len));
        if let Some(choice) = flip
            && !data.is_empty()
        {
            let at = index(choice % length(&data));
            data[at] ^= 1 << (mix(choice, 3) % 8);
        }
        Ok(data)
    }

    /// Writes what fits; the number of bytes that were written.
    pub(crate) fn write(&mut self, ino: Ino, offset: u64, data: &[u8]) -> Result<u32, Errno> {
        let size = self.state.file(ino).ok_or(libc::EISDIR)?.live().size();
        let end = offset.checked_add(length(data)).ok_or(libc::EFBIG)?;
        let room = size.saturating_add(self.capacity_bytes.saturating_sub(self.used_bytes));
        let fits = end.min(room.max(size)).saturating_sub(offset);
        if fits == 0 && !data.is_empty() {
            return Err(libc::ENOSPC);
        }
        let data = &data[..index(fits)];
        self.used_bytes += (offset + fits).saturating_sub(size);
        self.statistics.writes += 1;
        self.statistics.written_bytes += fits;
        self.touch(ino);
        self.apply(Operation::Write { ino, offset, data: data.into() })?;
        u32::try_from(fits).map_err(|_| libc::EFBIG)
    }

    pub(crate) fn resize(&mut self, ino: Ino, size: u64) -> Result<(), Errno> {
        let before = self.state.file(ino).ok_or(libc::EISDIR)?.live().size();
        self.used_bytes = self.used_bytes.saturating_sub(before).saturating_add(size);
        self.touch(ino);
        self.apply(Operation::Resize { ino, size })
    }

    /// fallocate: reserve, punch a hole, or make a range zero.
    pub(crate) fn allocate(&mut self, ino: Ino, offset: u64, len: u64, mode: i32) -> Result<(), Errno> {
        let before = self.state.file(ino).ok_or(libc::EISDIR)?.live().size();
        let end = offset.checked_add(len).ok_or(libc::EFBIG)?;
        let size = if mode & libc::FALLOC_FL_KEEP_SIZE != 0 { before } else { before.max(end) };
        let len = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => 0,
            libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE => len,
            _ => return Err(libc::EOPNOTSUPP),
        };
        if self.used_bytes + (size - before) > self.capacity_bytes {
            return Err(libc::ENOSPC);
        }
        self.used_bytes += size - before;
        self.touch(ino);
        self.apply(Operation::Zero { ino, offset, len, size })
    }

    /// The end of a write under `O_DSYNC`.
    pub(crate) fn sync_range(&mut self, ino: Ino, offset: u64, len: u64) -> Result<(), Errno> {
        self.state.file(ino).ok_or(libc::EINVAL)?;
        self.apply(Operation::SyncRange { ino, offset, len })?;
        self.statistics.synced_writes += 1;
        Ok(())
    }

    pub(crate) fn sync(&mut self, ino: Ino) -> Result<(), Errno> {
        self.state.file(ino).ok_or(libc::EINVAL)?;
        self.apply(Operation::Sync { ino })?;
        self.statistics.syncs += 1;
        Ok(())
    }

    pub(crate) fn sync_failed(&mut self, ino: Ino) -> Result<(), Errno> {
        self.state.file(ino).ok_or(libc::EINVAL)?;
        self.apply(Operation::SyncFailed { ino })
    }

    pub(crate) fn sync_directory(&mut self, ino: Ino) -> Result<(), Errno> {
        self.directory(ino)?;
        self.apply(Operation::SyncDirectory { ino })?;
        self.statistics.directory_syncs += 1;
        self.collect();
        Ok(())
    }

    pub(crate) fn set_mode(&mut self, ino: Ino, mode: u32) {
        self.state.set_mode(ino, mode);
    }

    pub(crate) fn opened(&mut self, ino: Ino) {
        *self.open.entry(ino).or_default() += 1;
    }

    pub(crate) fn closed(&mut self, ino: Ino) {
        if let Some(count) = self.open.get_mut(&ino) {
            *count -= 1;
            if *count == 0 {
                self.open.remove(&ino);
                self.collect();
            }
        }
    }

    /// Names and inodes of a directory.
    pub(crate) fn list(&self, ino: Ino) -> Result<Vec<(OsString, Ino)>, Errno> {
        Ok(self.directory(ino)?.live.iter().map(|(name, ino)| (name.clone(), *ino)).collect())
    }

    pub(crate) fn symlink_target(&self, ino: Ino) -> Result<PathBuf, Errno> {
        match &self.inode(ino)?.body {
            Body::Symlink(target) => Ok(target.clone()),
            _ => Err(libc::EINVAL),
        }
    }

    fn directory(&self, ino: Ino) -> Result<&crate::state::Directory, Errno> {
        self.inode(ino)?;
        self.state.directory(ino).ok_or(libc::ENOTDIR)
    }

    fn check_new(&self, name: &Name) -> Result<(), Errno> {
        match self.lookup(name) {
            Ok(_) => Err(libc::EEXIST),
            Err(libc::ENOENT) if self.state.directory(name.dir).is_some() => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    fn apply(&mut self, operation: Operation) -> Result<(), Errno> {
        if self.is_off {
            return Err(libc::EIO);
        }
        self.state.apply(&operation);
        if let Some(recording) = &mut self.recording {
            recording.push(operation);
        }
        Ok(())
    }

    fn touch(&mut self, ino: Ino) {
        self.times.insert(ino, SystemTime::now());
    }

    fn collect(&mut self) {
        let open = &self.open;
        self.state.collect(|ino| open.contains_key(&ino));
    }

    fn uncharge_if_last(&mut self, ino: Ino) {
        if let (Some(file), Ok(inode)) = (self.state.file(ino), self.inode(ino))
            && inode.links == 1
        {
            self.used_bytes = self.used_bytes.saturating_sub(file.live().size());
        }
    }
}
