//! The file system as the kernel asks for it: FUSE requests, translated.
//!
//! Write-back caching is off, so every write(2) arrives before it returns; reads come from the page cache, as for any file
//! system. fuser mounts by itself: no libfuse, no setuid program, but /dev/fuse and the right to mount.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, SystemTime};

use fuser::{
    AccessFlags, BackgroundSession, BsdFileFlags, Config, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use crate::content::length;
use crate::faults::Event;
use crate::fs::{CrashFs, Errno, Inner, Options};
use crate::operation::{Ino, Kind, Name, ROOT};
use crate::state::Body;

/// How long the kernel may remember names and attributes: all changes go through it, so as long as it wants.
const TTL: Duration = Duration::from_secs(3600);

/// A mounted file system. Dropping it unmounts.
pub struct Mounted {
    session: Option<BackgroundSession>,
    fs: CrashFs,
}

impl CrashFs {
    /// Mounts it on `dir`, which must exist.
    ///
    /// # Errors
    /// There is no /dev/fuse here, or no right to mount.
    pub fn mount(&self, dir: &Path) -> io::Result<Mounted> {
        static TRYING: Mutex<()> = Mutex::new(());
        let trying = TRYING.lock().expect("nobody panics with the lock");
        let is_fsync_sent = is_fsync_sent()?;
        drop(trying);
        self.mount_on(dir, is_fsync_sent)
    }

    fn mount_on(&self, dir: &Path, is_fsync_sent: bool) -> io::Result<Mounted> {
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("crashfs".to_owned()),
            MountOption::Subtype("crashfs".to_owned()),
            MountOption::DefaultPermissions,
        ];
        let kernel = Kernel {
            fs: self.clone(),
            listings: Mutex::default(),
            synced_writes: Arc::new(SyncedWrites { by_thread: Mutex::default(), is_fsync_sent }),
        };
        let session = fuser::spawn_mount(kernel, dir, &config)?;
        Ok(Mounted { session: Some(session), fs: self.clone() })
    }
}

impl Mounted {
    /// Unmounts, and says whether that worked: files that are still open keep it mounted.
    ///
    /// # Errors
    /// The kernel's.
    pub fn unmount(mut self) -> io::Result<()> {
        self.fs.give_up();
        self.session.take().map_or(Ok(()), BackgroundSession::umount_and_join)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.fs.give_up();
        if let Some(session) = self.session.take() {
            // Unmounts, without waiting for programs that still have files open.
            drop(session);
        }
    }
}

/// The requests' side of it.
struct Kernel {
    fs: CrashFs,
    /// What opened directories list, by handle.
    listings: Mutex<HashMap<u64, Vec<(OsString, Ino)>>>,
    synced_writes: Arc<SyncedWrites>,
}

/// Which threads are at the end of a write under `O_DSYNC`.
///
/// Newer kernels end such a write(2) with an fsync request of the whole file, by the same thread. It must not make
/// earlier writes durable, which on a disk would not become so; and it is no fsync that a rule should count.
struct SyncedWrites {
    by_thread: Mutex<HashMap<u32, Ino>>,
    is_fsync_sent: bool,
}

impl SyncedWrites {
    fn remember(&self, thread: u32, ino: Ino) {
        if self.is_fsync_sent {
            self.lock().insert(thread, ino);
        }
    }

    fn forget(&self, thread: u32) {
        self.lock().remove(&thread);
    }

    fn is_end_of_write(&self, thread: u32, ino: Ino) -> bool {
        self.lock().remove(&thread) == Some(ino)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Ino>> {
        self.by_thread.lock().expect("nobody panics with the lock")
    }
}

/// Whether this kernel ends a write under `O_DSYNC` with an fsync request: tried once.
///
/// # Errors
/// Nothing can be mounted here.
fn is_fsync_sent() -> io::Result<bool> {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    if let Some(answer) = ANSWER.get() {
        return Ok(*answer);
    }
    let dir = std::env::temp_dir().join(format!("crashfs-kernel-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let fs = CrashFs::new(Options::default())?;
    let tried = fs.mount_on(&dir, false).and_then(|mounted| {
        let path = dir.join("f");
        let file = OpenOptions::new().write(true).create(true).truncate(true).custom_flags(libc::O_DSYNC).open(path)?;
        (&file).write_all(b"x")?;
        drop(file);
        mounted.unmount()
    });
    std::fs::remove_dir(&dir)?;
    tried?;
    Ok(*ANSWER.get_or_init(|| fs.statistics().syncs > 0))
}

impl Kernel {
    fn name(parent: INodeNo, name: &OsStr) -> Name {
        Name { dir: parent.0, name: name.to_owned() }
    }

    /// Makes a name, asked for by `request`, and answers what it names.
    fn make(&self, parent: INodeNo, name: &OsStr, kind: Kind, mode: u32, reply: ReplyEntry) {
        let name = Self::name(parent, name);
        let text = name.name.to_string_lossy().into_owned();
        self.fs.judged(Event::Create, &text, move |fs, verdict| {
            let mut inner = fs.lock();
            let made = verdict.and_then(failing).and_then(|()| inner.create(name, kind, mode));
            match made.and_then(|ino| attributes(&inner, ino)) {
                Ok(attr) => reply.entry(&TTL, &attr, Generation(0)),
                Err(errno) => reply.error(error(errno)),
            }
        });
    }

    fn remove(&self, parent: INodeNo, name: &OsStr, is_directory: bool, reply: ReplyEmpty) {
        let name = Self::name(parent, name);
        let text = name.name.to_string_lossy().into_owned();
        self.fs.judged(Event::Remove, &text, move |fs, verdict| {
            answer(reply, verdict.and_then(failing).and_then(|()| fs.lock().remove(name, is_directory)));
        });
    }
}

impl Filesystem for Kernel {
    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let inner = self.fs.lock();
        match inner.lookup(&Self::name(parent, name)).and_then(|ino| attributes(&inner, ino)) {
            Ok(attr) => reply.entry(&TTL, &attr, Generation(0)),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        match attributes(&self.fs.lock(), ino.0) {
            Ok(attr) => reply.attr(&TTL, &attr),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn setattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if let Some(mode) = mode {
            self.fs.lock().set_mode(ino.0, mode & 0o7777);
        }
        let Some(size) = size else {
            return match attributes(&self.fs.lock(), ino.0) {
                Ok(attr) => reply.attr(&TTL, &attr),
                Err(errno) => reply.error(error(errno)),
            };
        };
        let name = self.fs.lock().name_of(ino.0);
        self.fs.judged(Event::Resize, &name, move |fs, verdict| {
            let mut inner = fs.lock();
            let done = verdict.and_then(failing).and_then(|()| inner.resize(ino.0, size));
            match done.and_then(|()| attributes(&inner, ino.0)) {
                Ok(attr) => reply.attr(&TTL, &attr),
                Err(errno) => reply.error(error(errno)),
            }
        });
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        match self.fs.lock().symlink_target(ino.0) {
            Ok(target) => reply.data(target.as_os_str().as_encoded_bytes()),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn mknod(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _device: u32,
        reply: ReplyEntry,
    ) {
        if mode & libc::S_IFMT != libc::S_IFREG {
            return reply.error(error(libc::EPERM));
        }
        self.make(parent, name, Kind::File, mode & 0o7777 & !umask, reply);
    }

    fn mkdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        self.make(parent, name, Kind::Directory, mode & 0o7777 & !umask, reply);
    }

    fn symlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        self.make(parent, name, Kind::Symlink(PathBuf::from(target)), 0o777, reply);
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.remove(parent, name, false, reply);
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.remove(parent, name, true, reply);
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = (Self::name(parent, name), Self::name(new_parent, new_name));
        let text = to.name.to_string_lossy().into_owned();
        self.fs.judged(Event::Rename, &text, move |fs, verdict| {
            answer(reply, verdict.and_then(failing).and_then(|()| fs.lock().rename(from, to, flags.bits())));
        });
    }

    fn link(&self, _request: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = Self::name(parent, name);
        let text = name.name.to_string_lossy().into_owned();
        self.fs.judged(Event::Create, &text, move |fs, verdict| {
            let mut inner = fs.lock();
            let done = verdict.and_then(failing).and_then(|()| inner.link(ino.0, name));
            match done.and_then(|()| attributes(&inner, ino.0)) {
                Ok(attr) => reply.entry(&TTL, &attr, Generation(0)),
                Err(errno) => reply.error(error(errno)),
            }
        });
    }

    fn open(&self, _request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let mut inner = self.fs.lock();
        match inner.inode(ino.0).map(drop) {
            Ok(()) => {
                inner.opened(ino.0);
                reply.opened(FileHandle(0), FopenFlags::empty());
            }
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn create(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let name = Self::name(parent, name);
        let text = name.name.to_string_lossy().into_owned();
        self.fs.judged(Event::Create, &text, move |fs, verdict| {
            let mut inner = fs.lock();
            let mode = mode & 0o7777 & !umask;
            let made = verdict.and_then(failing).and_then(|()| inner.create(name, Kind::File, mode));
            match made.and_then(|ino| attributes(&inner, ino)) {
                Ok(attr) => {
                    inner.opened(attr.ino.0);
                    reply.created(&TTL, &attr, Generation(0), FileHandle(0), FopenFlags::empty());
                }
                Err(errno) => reply.error(error(errno)),
            }
        });
    }

    fn release(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.fs.lock().closed(ino.0);
        reply.ok();
    }

    fn read(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let name = self.fs.lock().name_of(ino.0);
        self.fs.judged(Event::Read, &name, move |fs, verdict| {
            let data = verdict.and_then(|verdict| match verdict.error {
                Some(errno) => Err(errno),
                None => fs.lock().read(ino.0, offset, size, verdict.flip),
            });
            match data {
                Ok(data) => reply.data(&data),
                Err(errno) => reply.error(error(errno)),
            }
        });
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // The kernel sets O_DSYNC for a write under RWF_DSYNC as well; O_SYNC contains it.
        let is_synced = flags.0 & libc::O_DSYNC != 0;
        let name = self.fs.lock().name_of(ino.0);
        let data = data.to_vec();
        let (synced_writes, thread) = (Arc::clone(&self.synced_writes), request.pid());
        synced_writes.forget(thread);
        self.fs.judged(Event::Write, &name.clone(), move |fs, verdict| {
            let written = verdict.and_then(|verdict| match verdict.error {
                Some(errno) => Err(errno),
                None => {
                    let short = verdict.short.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX);
                    fs.lock().write(ino.0, offset, &data[..data.len().min(short)])
                }
            });
            let count = match written {
                Ok(count) if !is_synced => return reply.written(count),
                Ok(count) => count,
                Err(errno) => return reply.error(error(errno)),
            };
            fs.judged(Event::Fsync, &name, move |fs, verdict| {
                match sync(fs, ino.0, verdict, |inner| inner.sync_range(ino.0, offset, u64::from(count))) {
                    Ok(()) => {
                        synced_writes.remember(thread, ino.0);
                        reply.written(count);
                    }
                    Err(errno) => reply.error(error(errno)),
                }
            });
        });
    }

    fn flush(&self, _request: &Request, _ino: INodeNo, _handle: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        // close(2) makes nothing durable.
        reply.ok();
    }

    fn fsync(&self, request: &Request, ino: INodeNo, _handle: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        if self.synced_writes.is_end_of_write(request.pid(), ino.0) {
            return reply.ok();
        }
        let name = self.fs.lock().name_of(ino.0);
        self.fs.judged(Event::Fsync, &name, move |fs, verdict| {
            answer(reply, sync(fs, ino.0, verdict, |inner| inner.sync(ino.0)));
        });
    }

    fn fsyncdir(&self, _request: &Request, ino: INodeNo, _handle: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let name = self.fs.lock().name_of(ino.0);
        self.fs.judged(Event::FsyncDirectory, &name, move |fs, verdict| {
            answer(
                reply,
                verdict.and_then(|verdict| match verdict.error {
                    Some(errno) => Err(errno),
                    None if verdict.is_lie => Ok(()),
                    None => fs.lock().sync_directory(ino.0),
                }),
            );
        });
    }

    fn opendir(&self, _request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        // A listing is taken once, so that its offsets stay valid while names come and go.
        match self.fs.lock().list(ino.0) {
            Ok(names) => {
                let mut listings = self.listings.lock().expect("nobody panics with the lock");
                let handle = listings.keys().max().map_or(1, |last| last + 1);
                listings.insert(handle, names);
                reply.opened(FileHandle(handle), FopenFlags::empty());
            }
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn readdir(&self, _request: &Request, ino: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let mut listings = self.listings.lock().expect("nobody panics with the lock");
        let inner = self.fs.lock();
        let Some(names) = listings.get_mut(&handle.0) else { return reply.error(error(libc::EBADF)) };
        // A handle that is rewound lists what is there now.
        if offset == 0
            && let Ok(now) = inner.list(ino.0)
        {
            *names = now;
        }
        let dots = [(OsString::from("."), ino.0), (OsString::from(".."), ROOT)];
        for (nth, (name, ino)) in (1..).zip(dots.iter().chain(names.iter())).skip_while(|(nth, _)| *nth <= offset) {
            let kind = inner.inode(*ino).map_or(FileType::RegularFile, |inode| file_type(&inode.body));
            if reply.add(INodeNo(*ino), nth, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _request: &Request, _ino: INodeNo, handle: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        self.listings.lock().expect("nobody panics with the lock").remove(&handle.0);
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let (capacity, used) = self.fs.lock().capacity();
        let free = capacity.saturating_sub(used) / 4096;
        reply.statfs(capacity / 4096, free, free, 1 << 20, 1 << 20, 4096, 255, 4096);
    }

    fn access(&self, _request: &Request, _ino: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fallocate(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let name = self.fs.lock().name_of(ino.0);
        self.fs.judged(Event::Resize, &name, move |fs, verdict| {
            answer(reply, verdict.and_then(failing).and_then(|()| fs.lock().allocate(ino.0, offset, len, mode)));
        });
    }
}

/// The end of a sync: done by `act`, or failed, or only said to be done.
fn sync(
    fs: &CrashFs,
    ino: Ino,
    verdict: Result<crate::faults::Verdict, Errno>,
    act: impl FnOnce(&mut Inner) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let verdict = verdict?;
    let mut inner = fs.lock();
    match verdict.error {
        Some(errno) => inner.sync_failed(ino).and(Err(errno)),
        None if verdict.is_lie => Ok(()),
        None => act(&mut inner),
    }
}

/// Whether it fails.
fn failing(verdict: crate::faults::Verdict) -> Result<(), Errno> {
    verdict.error.map_or(Ok(()), Err)
}

fn answer(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(error(errno)),
    }
}

fn error(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno)
}

fn file_type(body: &Body) -> FileType {
    match body {
        Body::File(_) => FileType::RegularFile,
        Body::Directory(_) => FileType::Directory,
        Body::Symlink(_) => FileType::Symlink,
    }
}

fn attributes(inner: &Inner, ino: Ino) -> Result<FileAttr, Errno> {
    let inode = inner.inode(ino)?;
    let size = match &inode.body {
        Body::File(file) => file.live().size(),
        Body::Directory(_) => 4096,
        Body::Symlink(target) => length(target.as_os_str().as_encoded_bytes()),
    };
    let time = inner.modified(ino);
    let (uid, gid) = owner();
    Ok(FileAttr {
        ino: INodeNo(ino),
        size,
        blocks: size.div_ceil(512),
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind: file_type(&inode.body),
        perm: u16::try_from(inode.mode & 0o7777).map_err(|_| libc::EINVAL)?,
        nlink: inode.links,
        uid,
        gid,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    })
}

/// Everything belongs to the user of this process.
fn owner() -> (u32, u32) {
    use std::os::unix::fs::MetadataExt;
    static OWNER: OnceLock<(u32, u32)> = OnceLock::new();
    *OWNER.get_or_init(|| std::fs::metadata("/proc/self").map_or((0, 0), |own| (own.uid(), own.gid())))
}
