//! The file system as programs see it: a program of a few lines for each way to write and to sync, and what a cut that
//! loses everything else must leave of it. Then faults, cost, and what programs expect of any file system.
//!
//! It has a `main` of its own, so that where nothing can be mounted every case is reported as not run.
//!
//! # Safety
//! The system calls that the standard library lacks (`pwritev2`, `sync_file_range`, `fallocate`, io_uring) get pointers to
//! buffers that live until the call returns, or, for io_uring, until its completion was taken.

#![allow(clippy::print_stdout, reason = "this is a test runner")]

use std::alloc::Layout;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use gimmal_crashfs::{CrashFs, Effect, Event, Image, Mounted, Options, Personality, Policy, Rule, control};
use io_uring::{IoUring, opcode, types};

/// A case: its name, and what asserts.
type Case = (&'static str, fn(&Stage));

const CASES: &[Case] = &[
    ("buffered writes are lost", buffered_is_lost),
    ("buffered writes and close are lost", closed_is_lost),
    ("buffered, fsync", fsync_is_kept),
    ("buffered, fdatasync", fdatasync_is_kept),
    ("buffered, fsync by another descriptor", fsync_elsewhere_is_kept),
    ("buffered, sync_file_range promises nothing", sync_file_range_is_lost),
    ("O_DIRECT is lost", direct_is_lost),
    ("O_DIRECT, fdatasync", direct_fdatasync_is_kept),
    ("O_DSYNC", dsync_is_kept),
    ("O_SYNC", sync_is_kept),
    ("O_DIRECT and O_DSYNC", direct_dsync_is_kept),
    ("RWF_DSYNC", rwf_dsync_is_kept),
    ("O_DIRECT and RWF_DSYNC", direct_rwf_dsync_is_kept),
    ("io_uring write is lost", uring_write_is_lost),
    ("io_uring write, fsync", uring_fsync_is_kept),
    ("io_uring write with RWF_DSYNC", uring_rwf_dsync_is_kept),
    ("O_DSYNC keeps its own bytes only, and a failed one none", dsync_is_exact),
    ("a sync that lies", lying_sync),
    ("preallocated, overwritten, fdatasync", preallocated_is_kept),
    ("a directory needs its own fsync", directories_need_fsync),
    ("ext4-like: fsync of the file keeps its name", ext4_keeps_the_name),
    ("a rename is lost without fsync of the directory", renames_need_fsync),
    ("cuts at earlier positions", cuts_at_positions),
    ("EIO once, and the retry that lies", fsync_fails_once),
    ("EIO on write", write_fails),
    ("a full disk, then room", full_disk),
    ("short writes", short_writes),
    ("a slow fsync does not hold up other files", slow_fsync),
    ("a stuck fsync ends when released", stuck_fsync),
    ("one bit read wrong", flipped_bit),
    ("the power goes", power_goes),
    ("control by lines", control_lines),
    ("the program, its socket and its end", program_serves),
    ("names, links, listings, holes", ordinary_use),
    ("a log of 64 MiB with 10,000 syncs in seconds", large_log),
];

fn main() -> ExitCode {
    let filters: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let (mut passed, mut failed) = (0, 0);
    let unmountable = Stage::new(Options::default()).err();
    let no_ring = IoUring::new(4).err();
    for (name, case) in CASES.iter().filter(|(name, _)| filters.iter().all(|filter| name.contains(filter.as_str()))) {
        if let Some(reason) = unmountable.as_ref().or(no_ring.as_ref().filter(|_| name.starts_with("io_uring"))) {
            println!("crashfs: not run: {name}: {reason}");
            continue;
        }
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
            case(&Stage::new(Options::default()).expect("it could be mounted before"));
        }));
        println!("case {name} ... {}", if outcome.is_ok() { "ok" } else { "FAILED" });
        if outcome.is_ok() { passed += 1 } else { failed += 1 }
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {verdict}. {passed} passed; {failed} failed; 0 ignored");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A mounted file system in a directory of its own.
struct Stage {
    fs: CrashFs,
    dir: PathBuf,
    mounted: Option<Mounted>,
}

impl Stage {
    fn new(options: Options) -> io::Result<Self> {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let nth = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("crashfs-modes-{}-{nth}", std::process::id()));
        fs::create_dir_all(&dir)?;
        let fs = CrashFs::new(options)?;
        let mounted = fs.mount(&dir);
        if mounted.is_err() {
            fs::remove_dir(&dir)?;
        }
        Ok(Self { fs, dir, mounted: Some(mounted?) })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A new file whose name is durable.
    fn file(&self, name: &str, flags: i32) -> File {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).custom_flags(flags).open(self.path(name)).expect(name);
        self.sync_dir();
        file
    }

    fn sync_dir(&self) {
        File::open(&self.dir).and_then(|dir| dir.sync_all()).expect("fsync of a directory");
    }

    /// What is left of a file if nothing else reached the disk.
    fn left(&self, name: &str) -> Option<Vec<u8>> {
        Image::cut(&self.fs.state(), 0, Policy::DropAll).file(name)
    }

    fn is_kept(&self, data: &[u8]) {
        assert_eq!(fs::read(self.path("f")).expect("it is seen"), data, "seen");
        assert_eq!(self.left("f").as_deref(), Some(data), "durable");
    }

    fn is_lost(&self, data: &[u8]) {
        assert_eq!(fs::read(self.path("f")).expect("it is seen"), data, "seen");
        assert_eq!(self.left("f"), Some(Vec::new()), "durable");
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(mounted) = self.mounted.take()
            && let Err(error) = mounted.unmount()
        {
            println!("{} stays mounted: {error}", self.dir.display());
        }
        // What stays mounted cannot be removed, and was reported.
        drop(fs::remove_dir(&self.dir));
    }
}

/// A page-aligned block of `byte`, as O_DIRECT wants it.
struct Block(*mut u8);

const BLOCK: Layout = match Layout::from_size_align(4096, 4096) {
    Ok(layout) => layout,
    Err(_) => panic!("4096 is a power of two"),
};

impl Block {
    fn new(byte: u8) -> Self {
        // SAFETY: the layout has a size.
        let start = unsafe { std::alloc::alloc(BLOCK) };
        assert!(!start.is_null());
        // SAFETY: 4096 bytes were allocated.
        unsafe { start.write_bytes(byte, 4096) };
        Self(start)
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: 4096 bytes were allocated and written.
        unsafe { std::slice::from_raw_parts(self.0, 4096) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and freed once.
        unsafe { std::alloc::dealloc(self.0, BLOCK) };
    }
}

fn write_flagged(file: &File, data: &[u8], flags: i32) {
    let part = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
    // SAFETY: one part, which lives until the call returns; a write does not change it.
    let written = unsafe { libc::pwritev2(file.as_raw_fd(), &raw const part, 1, 0, flags) };
    assert_eq!(usize::try_from(written).ok(), Some(data.len()), "{}", io::Error::last_os_error());
}

fn fallocate(file: &File, mode: i32, offset: i64, len: i64) -> io::Result<()> {
    // SAFETY: no pointers.
    let result = unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn buffered_is_lost(stage: &Stage) {
    let mut file = stage.file("f", 0);
    file.write_all(b"data").expect("written");
    stage.is_lost(b"data");
}

fn closed_is_lost(stage: &Stage) {
    stage.file("f", 0).write_all(b"data").expect("written");
    stage.is_lost(b"data");
    assert_eq!(stage.fs.statistics().writes, 1);
}

fn fsync_is_kept(stage: &Stage) {
    let mut file = stage.file("f", 0);
    file.write_all(b"data").and_then(|()| file.sync_all()).expect("fsync");
    stage.is_kept(b"data");
    file.write_all(b"more").expect("written");
    assert_eq!(stage.left("f").as_deref(), Some(&b"data"[..]));
}

fn fdatasync_is_kept(stage: &Stage) {
    let mut file = stage.file("f", 0);
    file.write_all(b"data").and_then(|()| file.sync_data()).expect("fdatasync");
    stage.is_kept(b"data");
}

fn fsync_elsewhere_is_kept(stage: &Stage) {
    stage.file("f", 0).write_all(b"data").expect("written");
    File::open(stage.path("f")).and_then(|file| file.sync_all()).expect("fsync of a descriptor for reading");
    stage.is_kept(b"data");
}

fn sync_file_range_is_lost(stage: &Stage) {
    let mut file = stage.file("f", 0);
    file.write_all(b"data").expect("written");
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 4, flags) }, 0);
    stage.is_lost(b"data");
}

fn direct_is_lost(stage: &Stage) {
    let (file, block) = (stage.file("f", libc::O_DIRECT), Block::new(b'd'));
    file.write_all_at(block.bytes(), 0).expect("written");
    stage.is_lost(block.bytes());
}

fn direct_fdatasync_is_kept(stage: &Stage) {
    let (file, block) = (stage.file("f", libc::O_DIRECT), Block::new(b'd'));
    file.write_all_at(block.bytes(), 0).and_then(|()| file.sync_data()).expect("fdatasync");
    stage.is_kept(block.bytes());
}

fn dsync_is_kept(stage: &Stage) {
    stage.file("f", libc::O_DSYNC).write_all(b"data").expect("written");
    stage.is_kept(b"data");
    assert_eq!(stage.fs.statistics().synced_writes, 1);
}

fn sync_is_kept(stage: &Stage) {
    stage.file("f", libc::O_SYNC).write_all(b"data").expect("written");
    stage.is_kept(b"data");
}

fn direct_dsync_is_kept(stage: &Stage) {
    let (file, block) = (stage.file("f", libc::O_DIRECT | libc::O_DSYNC), Block::new(b'd'));
    file.write_all_at(block.bytes(), 0).expect("written");
    stage.is_kept(block.bytes());
}

fn rwf_dsync_is_kept(stage: &Stage) {
    let file = stage.file("f", 0);
    write_flagged(&file, b"data", libc::RWF_DSYNC);
    stage.is_kept(b"data");
    write_flagged(&file, b"lost", 0);
    assert_eq!(stage.left("f").as_deref(), Some(&b"data"[..]));
}

fn direct_rwf_dsync_is_kept(stage: &Stage) {
    let (file, block) = (stage.file("f", libc::O_DIRECT), Block::new(b'd'));
    write_flagged(&file, block.bytes(), libc::RWF_DSYNC);
    stage.is_kept(block.bytes());
}

/// Runs one entry to its completion; the buffers that it points to must live until then.
fn run_entry(ring: &mut IoUring, entry: &io_uring::squeue::Entry) -> i32 {
    // SAFETY: the callers' buffers and files live until this function has taken the completion.
    unsafe { ring.submission().push(entry) }.expect("an empty queue has room");
    ring.submit_and_wait(1).expect("submitted");
    ring.completion().next().expect("one completion").result()
}

fn uring_case(stage: &Stage, flags: i32, is_synced: bool) {
    let mut ring = IoUring::new(4).expect("it could be made before");
    let (file, data) = (stage.file("f", 0), *b"data");
    let fd = types::Fd(file.as_raw_fd());
    let write = opcode::Write::new(fd, data.as_ptr(), 4).rw_flags(flags).build();
    assert_eq!(run_entry(&mut ring, &write), 4);
    if is_synced {
        stage.is_lost(b"data");
        assert_eq!(run_entry(&mut ring, &opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build()), 0);
    }
    if is_synced || flags != 0 { stage.is_kept(b"data") } else { stage.is_lost(b"data") }
}

fn uring_write_is_lost(stage: &Stage) {
    uring_case(stage, 0, false);
}

fn uring_fsync_is_kept(stage: &Stage) {
    uring_case(stage, 0, true);
}

fn uring_rwf_dsync_is_kept(stage: &Stage) {
    uring_case(stage, libc::RWF_DSYNC, false);
}

fn dsync_is_exact(stage: &Stage) {
    let file = stage.file("f", 0);
    file.write_all_at(b"aaaaaaaa", 0).expect("written");
    write_flagged(&file, b"data", libc::RWF_DSYNC);
    assert_eq!(stage.left("f").as_deref(), Some(&b"data"[..]), "what was written before is not synced");
    file.sync_data().expect("fdatasync");
    assert_eq!(stage.left("f").as_deref(), Some(&b"dataaaaa"[..]), "an fsync after it is one");
    stage.fs.add_rule(Rule::nth(Event::Fsync, 1, Effect::Error(libc::EIO)));
    let synced = OpenOptions::new().write(true).custom_flags(libc::O_DSYNC).open(stage.path("f")).expect("opened");
    assert_eq!(synced.write_at(b"lost", 0).expect_err("it fails").raw_os_error(), Some(libc::EIO));
    assert_eq!(stage.left("f").as_deref(), Some(&b"dataaaaa"[..]));
    synced.write_all_at(b"kept", 4).expect("only the first failed");
    assert_eq!(stage.left("f").as_deref(), Some(&b"datakept"[..]));
}

fn lying_sync(stage: &Stage) {
    let file = stage.file("f", 0);
    stage.fs.add_rule("fsync lie nth=1".parse().expect("a rule"));
    stage.fs.add_rule("fsyncdir lie".parse().expect("a rule"));
    (&file).write_all(b"data").and_then(|()| file.sync_all()).expect("it says so");
    File::create(stage.path("g")).expect("made");
    stage.sync_dir();
    assert_eq!((stage.left("f"), stage.left("g")), (Some(Vec::new()), None));
    file.sync_all().expect("the second is true");
    stage.is_kept(b"data");
}

fn preallocated_is_kept(stage: &Stage) {
    let file = stage.file("f", 0);
    fallocate(&file, 0, 0, 8192).expect("reserved");
    assert_eq!(stage.left("f"), Some(Vec::new()), "the size is not durable before a sync");
    file.sync_all().expect("fsync");
    file.write_all_at(b"data", 0).and_then(|()| file.sync_data()).expect("fdatasync");
    file.write_all_at(b"lost", 4).expect("written");
    let left = stage.left("f").expect("there");
    assert_eq!((left.len(), &left[..8]), (8192, &b"data\0\0\0\0"[..]));
}

fn directories_need_fsync(stage: &Stage) {
    fs::create_dir(stage.path("d")).expect("made");
    let file = File::create(stage.path("d/f")).expect("made");
    (&file).write_all(b"data").and_then(|()| file.sync_all()).expect("fsync");
    assert_eq!(stage.left("d/f"), None);
    File::open(stage.path("d")).and_then(|dir| dir.sync_all()).expect("fsync");
    assert_eq!(stage.left("d/f"), None, "its directory has no durable name");
    stage.sync_dir();
    assert_eq!(stage.left("d/f").as_deref(), Some(&b"data"[..]));
}

fn ext4_keeps_the_name(_: &Stage) {
    let options = Options { personality: Personality::Ext4Like, ..Options::default() };
    let stage = Stage::new(options).expect("mounted");
    let file = File::create(stage.path("f")).expect("made");
    assert_eq!(stage.left("f"), None);
    (&file).write_all(b"data").and_then(|()| file.sync_data()).expect("fsync");
    stage.is_kept(b"data");
}

fn renames_need_fsync(stage: &Stage) {
    let old = stage.file("f", 0);
    (&old).write_all(b"old").and_then(|()| old.sync_all()).expect("fsync");
    let new = File::create(stage.path("tmp")).expect("made");
    (&new).write_all(b"new").and_then(|()| new.sync_all()).expect("fsync");
    fs::rename(stage.path("tmp"), stage.path("f")).expect("renamed");
    assert_eq!(fs::read(stage.path("f")).expect("there"), b"new");
    assert_eq!(stage.left("f").as_deref(), Some(&b"old"[..]));
    stage.sync_dir();
    assert_eq!(stage.left("f").as_deref(), Some(&b"new"[..]));
    assert!(!stage.path("tmp").exists());
}

fn cuts_at_positions(stage: &Stage) {
    let mut file = stage.file("f", 0);
    let mut positions = vec![stage.fs.position()];
    for byte in b"abc" {
        file.write_all(&[*byte]).and_then(|()| file.sync_data()).expect("fdatasync");
        positions.push(stage.fs.position());
    }
    let recording = stage.fs.recording().expect("it is recorded");
    let mut replay = recording.replay();
    let mut left = |position| Image::cut(replay.state_at(position), 0, Policy::DropAll).file("f").expect("there");
    for (count, position) in positions.iter().enumerate() {
        assert_eq!(left(*position), b"abc"[..count], "after {count} syncs");
        assert!(count == 0 || left(*position - 1) == b"abc"[..count - 1], "before sync {count}");
    }
}

fn fsync_fails_once(stage: &Stage) {
    stage.fs.add_rule(Rule::nth(Event::Fsync, 1, Effect::Error(libc::EIO)));
    let file = stage.file("f", 0);
    (&file).write_all(b"data").expect("written");
    assert_eq!(file.sync_all().expect_err("the first fails").raw_os_error(), Some(libc::EIO));
    file.sync_all().expect("the second says that all is well");
    assert_eq!(fs::read(stage.path("f")).expect("seen"), b"data");
    assert_eq!(stage.left("f"), Some(vec![0; 4]), "and the bytes are gone");
}

fn write_fails(stage: &Stage) {
    stage.fs.add_rule("write error=EIO nth=2 name=f".parse().expect("a rule"));
    let mut file = stage.file("f", 0);
    file.write_all(b"data").expect("the first");
    assert_eq!(file.write(b"more").expect_err("the second").raw_os_error(), Some(libc::EIO));
    file.write_all(b"last").and_then(|()| file.sync_all()).expect("the third");
    assert_eq!(stage.left("f").as_deref(), Some(&b"datalast"[..]));
    assert_eq!(stage.fs.statistics().faults, 1);
}

fn full_disk(stage: &Stage) {
    stage.fs.set_capacity(10_000);
    let mut file = stage.file("f", 0);
    file.write_all(&[b'a'; 9_000]).expect("it fits");
    assert_eq!(file.write(&[b'b'; 2_000]).expect("what fits"), 1_000);
    assert_eq!(file.write(b"c").expect_err("full").raw_os_error(), Some(libc::ENOSPC));
    file.write_all_at(b"z", 0).expect("what is there can be overwritten");
    assert_eq!(fallocate(&file, 0, 0, 20_000).expect_err("full").raw_os_error(), Some(libc::ENOSPC));
    let other = stage.file("g", 0);
    assert_eq!((&other).write(b"c").expect_err("full").raw_os_error(), Some(libc::ENOSPC));
    fs::remove_file(stage.path("f")).expect("removed");
    (&other).write_all(b"c").expect("there is room again");
}

fn short_writes(stage: &Stage) {
    stage.fs.add_rule(Rule::nth(Event::Write, 1, Effect::Short(3)));
    let mut file = stage.file("f", 0);
    assert_eq!(file.write(b"data").expect("some"), 3);
    file.write_all(b"a").expect("the rest");
    stage.is_lost(b"data");
}

fn slow_fsync(stage: &Stage) {
    stage.fs.add_rule("fsync delay=1500 name=f".parse().expect("a rule"));
    let (file, other) = (stage.file("f", 0), stage.file("g", 0));
    (&file).write_all(b"data").expect("written");
    let start = Instant::now();
    let slow = std::thread::spawn(move || file.sync_all().map(|()| start.elapsed()));
    std::thread::sleep(Duration::from_millis(50));
    (&other).write_all(b"data").and_then(|()| other.sync_all()).expect("the other");
    let other_took = start.elapsed();
    assert_eq!(stage.left("f"), Some(Vec::new()), "not durable before it returns");
    let elapsed = slow.join().expect("no panic").expect("it ends well");
    assert!(elapsed >= Duration::from_millis(1500), "{elapsed:?}");
    assert!(other_took < elapsed, "the other waited for the slow one: {other_took:?} of {elapsed:?}");
    stage.is_kept(b"data");
}

fn stuck_fsync(stage: &Stage) {
    stage.fs.add_rule(Rule::every(Event::Fsync, Effect::Stuck).of("f"));
    let file = stage.file("f", 0);
    (&file).write_all(b"data").expect("written");
    let stuck = std::thread::spawn(move || file.sync_all());
    std::thread::sleep(Duration::from_millis(100));
    assert!(!stuck.is_finished());
    assert_eq!(stage.left("f"), Some(Vec::new()));
    stage.fs.clear_rules();
    stuck.join().expect("no panic").expect("it ends well");
    stage.is_kept(b"data");
}

fn flipped_bit(stage: &Stage) {
    fs::write(stage.path("f"), vec![0; 4096]).expect("written");
    stage.fs.add_rule(Rule::nth(Event::Read, 1, Effect::FlipBit));
    let file = stage.file("f", libc::O_DIRECT);
    let ones = || {
        let block = Block::new(0xFF);
        // SAFETY: the block is 4096 bytes, and nothing else looks at it meanwhile.
        let read = unsafe { libc::pread(file.as_raw_fd(), block.0.cast(), 4096, 0) };
        assert_eq!(read, 4096, "{}", io::Error::last_os_error());
        block.bytes().iter().map(|byte| byte.count_ones()).sum::<u32>()
    };
    assert_eq!([ones(), ones()], [1, 0]);
}

fn power_goes(stage: &Stage) {
    let mut file = stage.file("f", 0);
    file.write_all(b"data").and_then(|()| file.sync_all()).expect("fsync");
    file.write_all(b"more").expect("written");
    stage.fs.power_off();
    assert_eq!(file.sync_all().expect_err("no power").raw_os_error(), Some(libc::EIO));
    assert!(file.write(b"x").is_err() && File::create(stage.path("g")).is_err());
    assert_eq!(stage.left("f").as_deref(), Some(&b"data"[..]));
}

fn control_lines(stage: &Stage) {
    fs::write(stage.path("f"), "data").expect("written");
    stage.sync_dir();
    let position: u64 = control::run(&stage.fs, "position").expect("a number").parse().expect("a number");
    assert!(position >= 3, "{position}");
    let dir = std::env::temp_dir().join(format!("crashfs-cut-{}", std::process::id()));
    for (policy, expected) in [("keep-all", &b"data"[..]), ("drop-all", b"")] {
        control::run(&stage.fs, &format!("cut 1 {policy} {}", dir.display())).expect("cut");
        assert_eq!(fs::read(dir.join("f")).expect("there"), expected);
        fs::remove_dir_all(&dir).expect("removed");
    }
    control::run(&stage.fs, &format!("cut 1 keep-all {} 0", dir.display())).expect("cut");
    assert_eq!(fs::read_dir(&dir).expect("made").count(), 0);
    fs::remove_dir_all(&dir).expect("removed");
    assert_eq!(control::run(&stage.fs, "rule write error=EIO"), Ok(String::new()));
    assert!(fs::write(stage.path("f"), "x").is_err());
    assert_eq!(control::run(&stage.fs, "clear"), Ok(String::new()));
    fs::write(stage.path("f"), "x").expect("no rule any more");
    assert!(control::run(&stage.fs, "statistics").expect("a line").contains("faults=1"));
    for wrong in ["", "explode", "rule", "cut 1 drop-all", "capacity x", "cut 1 drop-all /proc/nothing"] {
        assert!(control::run(&stage.fs, wrong).is_err(), "{wrong}");
    }
}

/// The program that other processes use: its socket, a fault, a cut, and its end by a signal.
fn program_serves(_: &Stage) {
    let base = std::env::temp_dir().join(format!("crashfs-program-{}", std::process::id()));
    let (dir, socket, cut) = (base.join("mount"), base.join("control"), base.join("cut"));
    fs::create_dir_all(&dir).expect("made");
    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_gimmal-crashfs"))
        .arg(&dir)
        .arg("--control")
        .arg(&socket)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut ready = String::new();
    io::BufReader::new(program.stdout.take().expect("a pipe")).read_line(&mut ready).expect("it says that it is ready");
    assert!(ready.starts_with("mounted on "), "{ready:?}");
    let control = std::os::unix::net::UnixStream::connect(&socket).expect("it listens");
    let mut replies = io::BufReader::new(&control);
    let mut ask = |line: &str| {
        (&control).write_all(format!("{line}\n").as_bytes()).expect("sent");
        let mut reply = String::new();
        replies.read_line(&mut reply).expect("answered");
        reply
    };
    assert_eq!(ask("rule fsync error=EIO nth=1"), "ok\n");
    assert!(ask("nonsense").starts_with("error "));
    let file = File::create(dir.join("f")).expect("made");
    assert!(file.sync_all().is_err());
    (&file).write_all(b"data").and_then(|()| file.sync_all()).expect("the second succeeds");
    File::open(&dir).and_then(|dir| dir.sync_all()).expect("fsync");
    assert_eq!(ask(&format!("cut 1 drop-all {}", cut.display())), "ok\n");
    assert_eq!(fs::read(cut.join("f")).expect("cut"), b"data");
    drop(file);
    // SAFETY: no pointers; the child was not waited for yet, so its number is its own.
    unsafe { libc::kill(i32::try_from(program.id()).expect("a process number"), libc::SIGTERM) };
    assert!(program.wait().expect("it ends").success());
    assert!(!dir.join("f").exists() && !socket.exists());
    fs::remove_dir_all(&base).expect("removed");
}

fn ordinary_use(stage: &Stage) {
    fs::create_dir_all(stage.path("a/b")).expect("made");
    for nth in 0..500 {
        fs::write(stage.path(&format!("a/{nth}")), nth.to_string()).expect("written");
    }
    assert_eq!(fs::read_dir(stage.path("a")).expect("listed").count(), 501);
    assert_eq!(fs::read_to_string(stage.path("a/77")).expect("read"), "77");
    assert!(fs::remove_dir(stage.path("a")).is_err(), "it is not empty");
    fs::hard_link(stage.path("a/1"), stage.path("one")).expect("linked");
    std::os::unix::fs::symlink("a/2", stage.path("two")).expect("linked");
    assert_eq!(fs::read_to_string(stage.path("one")).expect("read"), "1");
    assert_eq!(fs::read_to_string(stage.path("two")).expect("read"), "2");
    fs::rename(stage.path("a"), stage.path("c")).expect("renamed");
    assert!(fs::File::open(stage.path("a")).is_err());
    let mut file = stage.file("f", 0);
    file.seek(SeekFrom::Start(100_000)).and_then(|_| file.write_all(b"end")).expect("written behind a hole");
    fallocate(&file, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, 100_000, 2).expect("punched");
    file.seek(SeekFrom::Start(99_999)).expect("sought");
    let mut tail = Vec::new();
    file.read_to_end(&mut tail).expect("read");
    assert_eq!(tail, b"\0\0\0d");
    fs::remove_file(stage.path("f")).expect("removed while open");
    file.seek(SeekFrom::Start(100_002)).and_then(|_| file.read_to_end(&mut tail)).expect("still read");
    assert_eq!(tail.last(), Some(&b'd'));
    let appending = OpenOptions::new().append(true).open(stage.path("one")).expect("opened");
    (&appending).write_all(b"23").expect("appended");
    assert_eq!(fs::read_to_string(stage.path("c/1")).expect("read"), "123");
    fs::remove_dir_all(stage.path("c")).expect("removed");
    assert!(!stage.path("c").exists());
}

fn large_log(stage: &Stage) {
    const RECORD: usize = 6_711;
    let file = stage.file("f", 0);
    fallocate(&file, 0, 0, 64 << 20).and_then(|()| file.sync_all()).expect("reserved");
    let record = [b'r'; RECORD];
    let limit = Duration::from_secs(20);
    // A machine that is busy with something else is so once; what grows with the log does each time.
    let mut written = limit;
    for _ in 0..3 {
        let start = Instant::now();
        for nth in 0..10_000_u64 {
            file.write_all_at(&record, nth * 6_711).and_then(|()| file.sync_data()).expect("fdatasync");
        }
        written = written.min(start.elapsed());
        if written < limit {
            break;
        }
    }
    let start = Instant::now();
    let image = Image::cut(&stage.fs.state(), 1, Policy::Random(512));
    assert_eq!(image.file("f").expect("there")[..RECORD * 10_000], [b'r'; RECORD].repeat(10_000));
    println!("10,000 writes and syncs in {written:?}, and a cut in {:?}", start.elapsed());
    assert!(written < limit, "10,000 writes and syncs took longer than {limit:?}");
}
