//! The log's files on a disk that tears, loses, refuses and delays: what was durable comes back, nothing else than a prefix
//! of what was appended ever does, and what cannot be told apart from loss refuses.

#![cfg(not(loom))]

mod disk;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use disk::{Crash, Faults, MemoryDisk, Random};
use gimmal_log::aof::thread::Bell;
use gimmal_log::aof::{
    BaseKind, Condition, Directory, Fsync, Open, Progress, RecoverError, Recovered, Recovery, Settings, Step, Timing,
    Writer, WriterThread, check,
};
use gimmal_log::{Appender, Log, Lsn, Reader, Record};

const DIRECTORY: &str = "/data/appendonlydir";
const NAME: &str = "appendonly.aof";

const ALWAYS: Settings = Settings { fsync: Fsync::Always, preallocate: 8192, timestamps: false };
const APPENDING: Settings = Settings { preallocate: 0, ..ALWAYS };

fn open(disk: &MemoryDisk) -> Directory {
    try_open(disk).expect("a directory")
}

fn try_open(disk: &MemoryDisk) -> std::io::Result<Directory> {
    Directory::open(Arc::new(disk.clone()), Path::new("/data"), "appendonlydir", NAME)
}

fn increment_path(number: u64) -> PathBuf {
    Path::new(DIRECTORY).join(format!("{NAME}.{number}.incr.aof"))
}

/// Everything that a start reads: the base's bytes and the increments'.
fn recover(disk: &MemoryDisk) -> Result<(Vec<u8>, Recovered), RecoverError> {
    let directory = try_open(disk)?;
    let mut recovery = Recovery::new(&directory, true);
    if let Some((path, kind)) = directory.base()? {
        assert_eq!(kind, BaseKind::Resp);
        recovery.begin_with_base(path, 0)?;
    }
    let (mut bytes, mut expected) = (Vec::new(), None);
    while let Some(piece) = recovery.next_piece()? {
        if let Some(lsn) = piece.lsn {
            assert!(expected.is_none_or(|expected| expected == lsn), "positions follow each other");
        }
        expected = piece.lsn.map(|lsn| lsn + piece.bytes.len() as u64);
        bytes.extend_from_slice(piece.bytes);
    }
    Ok((bytes, recovery.finish()))
}

/// A server's life: a log, a writer, and what was appended so far.
struct Life {
    directory: Directory,
    log: Arc<Log>,
    appender: Appender,
    reader: Reader,
    writer: Writer,
    stream: Vec<u8>,
    ends: Vec<Lsn>,
}

fn quick() -> Timing {
    let ms = Duration::from_millis;
    Timing { between_syncs: ms(20), stuck_after: ms(40), retry_full: ms(5) }
}

fn quiet() -> Arc<Progress> {
    Arc::new(Progress::new(Box::new(|| {})))
}

impl Life {
    /// Recovers, and goes on. `Err`: the disk died meanwhile.
    fn start(disk: &MemoryDisk, settings: Settings) -> Result<Life, RecoverError> {
        let (stream, recovered) = recover(disk)?;
        let mut directory = try_open(disk)?;
        let increment = directory.start(&recovered)?;
        directory.remove_history()?;
        let log = Log::new(1, 1 << 30);
        let reader = log.activate(stream.len() as Lsn);
        let ends = vec![reader.position()];
        let writer = Writer::new(&log, reader.position(), increment, settings, quick(), quiet());
        Ok(Life { directory, appender: log.appender(0), log, reader, writer, stream, ends })
    }

    fn append(&mut self, record: &Record) {
        for part in record.parts() {
            self.stream.extend_from_slice(part.bytes());
        }
        let end = self.appender.append_record(record);
        assert_eq!(end, self.stream.len() as Lsn);
        self.ends.push(end);
    }

    fn append_random(&mut self, random: &mut Random) {
        let mut record = Record::new();
        let database = if random.below(4) == 0 { 3 } else { 0 };
        let len = match random.below(20) {
            0 => random.below(40_000),
            1..5 => random.below(3000),
            _ => random.below(90),
        };
        let value = Arc::new(vec![b'a' + u8::try_from(random.below(26)).expect("a letter"); len as usize]);
        if random.below(5) == 0 {
            record.transaction();
            record.command(database, &["SET", "other", "x"]);
        }
        record.begin_command(database, 3).arg(b"SET").arg(b"key").shared_arg(&value, 0..value.len());
        self.append(record.finish());
    }

    /// Appends a record of 64 bytes. In groups of such records each begins on a block, where a torn group's missing
    /// beginning could make it pass as what a Redis appended.
    fn append_block(&mut self) {
        let mut record = Record::new();
        record.command(0, &["SET", "k", &"v".repeat(37)]).finish();
        assert_eq!(record.contiguous().map(<[u8]>::len), Some(64));
        self.append(&record);
    }

    /// Steps until there is nothing to do. Where the disk has room, being held up is being held up by the thread that
    /// syncs: a machine that does not let it run for a moment must not change what is written.
    fn write(&mut self) -> Step {
        loop {
            match self.write_unless_held_up() {
                Step::Blocked(limit) if !self.writer.is_full() => std::thread::sleep(limit),
                step => return step,
            }
        }
    }

    /// Steps until there is nothing to do, or nothing can be done for now.
    fn write_unless_held_up(&mut self) -> Step {
        loop {
            match self.writer.step(&mut self.reader) {
                Step::More => {}
                step => return step,
            }
        }
    }

    /// A rewrite as the server makes it: the new increment, the flip, more writes, the base, the removal.
    fn rewrite(&mut self, random: &mut Random) -> std::io::Result<()> {
        let increment = self.directory.add_increment()?;
        let first = increment.seq;
        self.writer.orders().rotate_at(self.log.end(), increment);
        let base = self.stream.clone();
        self.append_random(random);
        if self.write() == Step::Failed {
            return Err(std::io::Error::other("died"));
        }
        assert!(!self.writer.orders().is_rotating(), "it goes on in the new file");
        let temporary = self.directory.disk().open(&self.directory.temporary_base(), Open::Create)?;
        for at in (0..base.len()).step_by(5000) {
            let piece = &base[at..base.len().min(at + 5000)];
            assert_eq!(temporary.write_at(&[std::io::IoSlice::new(piece)], at as u64)?, piece.len());
        }
        self.directory.replace_base(BaseKind::Resp, Some(first))?;
        self.directory.remove_history()
    }

    fn durable(&self) -> Lsn {
        self.writer.progress().durable_lsn()
    }
}

/// What a recovery may find: a prefix that ends where a record ends and holds all that was durable.
fn assert_recovers(disk: &MemoryDisk, stream: &[u8], ends: &[Lsn], durable: Lsn, what: &str) -> u64 {
    let (bytes, recovered) = recover(disk).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(stream.starts_with(&bytes), "{what}: not what was appended");
    let lsn = bytes.len() as Lsn;
    assert!(lsn >= durable, "{what}: {lsn} of {durable} durable bytes; {recovered:?}");
    assert!(lsn == 0 || ends.contains(&lsn), "{what}: {lsn} is inside a record");
    assert!(recovered.lsn.is_none_or(|recovered| recovered == lsn), "{what}: {recovered:?}");
    lsn
}

fn modes() -> [Settings; 5] {
    let with = |fsync, preallocate, timestamps| Settings { fsync, preallocate, timestamps };
    [
        ALWAYS,
        APPENDING,
        with(Fsync::Always, 70_000, true),
        with(Fsync::EverySecond, 4096, false),
        with(Fsync::No, 0, true),
    ]
}

#[test]
fn what_is_written_comes_back_over_several_lives() {
    for settings in modes() {
        let disk = MemoryDisk::default();
        let mut random = Random::new(1);
        for life in 0..6 {
            let mut now = Life::start(&disk, settings).expect("a start");
            for _ in 0..30 {
                for _ in 0..random.below(6) {
                    now.append_random(&mut random);
                }
                now.write();
            }
            assert_eq!(now.writer.progress().written_lsn(), now.log.end());
            if life % 2 == 0 {
                now.writer.orders().stop();
                assert_eq!(now.write(), Step::Stopped);
                assert_eq!(now.durable(), now.log.end());
                let (bytes, recovered) = recover(&disk.after(Crash::DropAll, &mut random)).expect("closed and synced");
                assert!(bytes == now.stream && recovered.clean && recovered.cut.is_none() && !recovered.foreign);
            }
            let (bytes, recovered) = recover(&disk).expect("whole");
            assert!(bytes == now.stream && recovered.cut.is_none(), "{settings:?}: {recovered:?}");
        }
    }
}

#[test]
fn short_writes_are_continued() {
    let disk = MemoryDisk::default();
    let mut life = Life::start(&disk, ALWAYS).expect("a start");
    disk.set_faults(Faults { short_writes: Some(7), ..Faults::default() });
    let mut random = Random::new(2);
    for _ in 0..40 {
        life.append_random(&mut random);
        life.write();
    }
    assert_eq!(recover(&disk).expect("whole").0, life.stream);
}

/// A small file, and where its groups end, as (offset in the file, position).
fn small_file(settings: Settings) -> (MemoryDisk, Vec<u8>, Vec<(usize, usize)>) {
    let disk = MemoryDisk::default();
    let mut life = Life::start(&disk, settings).expect("a start");
    life.write();
    let mut ends = vec![(usize::try_from(life.writer.progress().file_bytes()).expect("small"), 0)];
    let mut random = Random::new(3);
    for _ in 0..6 {
        for _ in 0..1 + random.below(3) {
            let mut record = Record::new();
            let value = "v".repeat(usize::try_from(random.below(200)).expect("small"));
            record.command(0, &["SET", "k", &value]);
            life.append(record.finish());
        }
        life.write();
        let end = usize::try_from(life.writer.progress().file_bytes()).expect("small");
        ends.push((end, life.stream.len()));
    }
    (disk, life.stream, ends)
}

#[test]
fn a_file_cut_at_any_byte_recovers_its_whole_groups() {
    for settings in [ALWAYS, APPENDING] {
        let (disk, stream, ends) = small_file(settings);
        let path = increment_path(1);
        let whole = disk.bytes(&path);
        for cut in 128..whole.len() {
            for zeros in [0, 1000] {
                let copy = disk.copy();
                copy.put(&path, [&whole[..cut], &vec![0; zeros]].concat());
                let (bytes, recovered) = recover(&copy).unwrap_or_else(|error| panic!("cut at {cut}: {error}"));
                let (offset, lsn) = ends.iter().rev().find(|(offset, _)| *offset <= cut).copied().unwrap_or((128, 0));
                assert!(stream.starts_with(&bytes) && bytes.len() >= lsn, "cut at {cut}");
                // No crash cuts space that was synced, so a tool did, which kept whole commands.
                if recovered.foreign {
                    assert_eq!(settings, ALWAYS);
                    continue;
                }
                assert_eq!(bytes.len(), lsn, "cut at {cut}");
                let lost = zeros > 0 || whole[offset..cut].iter().any(|byte| !b"#\r\n".contains(byte));
                match recovered.cut {
                    Some(told) => assert_eq!(told.offset, offset as u64, "cut at {cut}"),
                    None => assert!(!lost, "what is lost at {cut} is told"),
                }
            }
        }
    }
}

#[test]
fn no_flipped_bit_is_ever_loaded_and_none_below_the_durable_lsn_is_cut() {
    for settings in [ALWAYS, APPENDING] {
        let (disk, stream, ends) = small_file(settings);
        let path = increment_path(1);
        let whole = disk.bytes(&path);
        let written = ends.last().expect("groups").0;
        let mut refused = 0;
        for at in 0..whole.len().min(written + 1000) {
            let copy = disk.copy();
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            copy.put(&path, bytes);
            match recover(&copy) {
                Ok((bytes, recovered)) => {
                    assert!(stream.starts_with(&bytes), "byte {at}");
                    // The last group's header says that all before it was durable.
                    let durable = ends[ends.len() - 2].1;
                    assert!(bytes.len() >= durable, "byte {at}: {} of {durable}", bytes.len());
                    assert!(bytes.len() == stream.len() || recovered.cut.is_some(), "byte {at}");
                }
                Err(RecoverError::Damage { path: told, offset, .. }) => {
                    refused += 1;
                    assert_eq!(told, path);
                    assert!(offset <= at as u64, "byte {at} is told at {offset}");
                }
                Err(error) => panic!("byte {at}: {error}"),
            }
        }
        assert!(refused > ends[ends.len() - 2].0 - 300, "{refused} of {written}");
    }
}

#[test]
fn a_crash_at_any_operation_loses_nothing_durable() {
    for seed in 0..rounds(300) {
        let mut random = Random::new(seed);
        let settings = modes()[usize::try_from(seed).expect("small") % 5];
        let disk = MemoryDisk::default();
        let (mut on, mut history) = (disk, Vec::new());
        // Several lives, each ended by a crash; the next goes on with what is left.
        for life in 0..4 {
            let base = on.operations();
            let limit = base + 20 + random.below(400);
            on.set_faults(Faults { dies_after: Some(limit), ..Faults::default() });
            let (stream, ends, durable) = match Life::start(&on, settings) {
                Ok(mut now) => {
                    assert_eq!(now.stream, history, "seed {seed}, life {life}");
                    live(&mut now, &mut random);
                    (now.stream.clone(), now.ends.clone(), now.durable())
                }
                Err(RecoverError::Io(_)) => (history.clone(), vec![history.len() as Lsn], history.len() as Lsn),
                Err(error) => panic!("seed {seed}, life {life}: {error}"),
            };
            let crash = [Crash::DropAll, Crash::KeepAll, Crash::Prefix, Crash::Subset][random.below(4) as usize];
            on = on.after(crash, &mut random);
            let what = format!("seed {seed}, life {life}, {crash:?}, {settings:?}");
            let kept = assert_recovers(&on, &stream, &ends, durable, &what);
            history = stream[..usize::try_from(kept).expect("small")].to_vec();
        }
    }
}

/// Appends, writes and rewrites until the disk dies.
fn live(life: &mut Life, random: &mut Random) {
    let blocks = random.below(2) == 0;
    for _ in 0..200 {
        for _ in 0..random.below(4) {
            life.append_random(random);
        }
        if blocks {
            life.write();
            (0..random.below(60)).for_each(|_| life.append_block());
        }
        let failed = life.write() == Step::Failed;
        if failed || (random.below(12) == 0 && life.rewrite(random).is_err()) {
            return;
        }
    }
}

/// More with `AOF_ROUNDS`.
fn rounds(usual: u64) -> u64 {
    std::env::var("AOF_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

#[test]
fn a_rewrite_can_be_cut_at_every_step() {
    for crash in [Crash::DropAll, Crash::KeepAll, Crash::Prefix, Crash::Subset] {
        let mut finished = false;
        // Several times each: what a crash leaves is random.
        for time in 0.. {
            let step = time / 8;
            let mut random = Random::new(7 + time);
            let disk = MemoryDisk::default();
            let mut life = Life::start(&disk, ALWAYS).expect("a start");
            for _ in 0..5 {
                life.append_random(&mut random);
                life.write();
            }
            life.append_random(&mut random);
            let limit = disk.operations() + step;
            disk.set_faults(Faults { dies_after: Some(limit), ..Faults::default() });
            finished = life.rewrite(&mut random).is_ok();
            let after = disk.after(crash, &mut random);
            let what = format!("{crash:?} at step {step}");
            assert_recovers(&after, &life.stream, &life.ends, life.durable(), &what);
            // Nothing of the next life is lost either.
            let mut next = Life::start(&after, ALWAYS).expect("a start");
            next.append_random(&mut random);
            next.write();
            let again = after.after(Crash::DropAll, &mut random);
            assert_recovers(&again, &next.stream, &next.ends, next.log.end(), &what);
            if finished {
                assert_eq!(after.names().len(), 4, "base, two increments, manifest: {:?}", after.names());
                break;
            }
        }
        assert!(finished);
    }
}

#[test]
fn a_full_disk_acknowledges_nothing_and_goes_on_when_there_is_room() {
    for settings in [ALWAYS, APPENDING] {
        let disk = MemoryDisk::default();
        let mut life = Life::start(&disk, settings).expect("a start");
        life.write();
        disk.set_faults(Faults { capacity: Some(40_000), ..Faults::default() });
        let mut random = Random::new(5);
        while life.writer.progress().condition() == Condition::Fine {
            life.append_random(&mut random);
            life.write();
        }
        assert_eq!(life.writer.progress().condition(), Condition::Full);
        assert!(!life.writer.progress().reason().is_empty());
        let durable = life.durable();
        assert!(durable < life.log.end() && life.log.released() == durable);
        let left = disk.bytes(&increment_path(1));
        assert_recovers(&disk.after(Crash::KeepAll, &mut random), &life.stream, &life.ends, durable, "full");
        std::thread::sleep(Duration::from_millis(6));
        life.append_random(&mut random);
        life.write();
        assert_eq!((life.durable(), disk.bytes(&increment_path(1)) == left), (durable, true));
        disk.set_faults(Faults::default());
        std::thread::sleep(Duration::from_millis(6));
        life.write();
        assert_eq!((life.durable(), life.writer.progress().condition()), (life.log.end(), Condition::Fine));
        let after = disk.after(Crash::DropAll, &mut random);
        assert_recovers(&after, &life.stream, &life.ends, life.log.end(), "room again");
    }
}

#[test]
fn an_error_of_sync_is_never_tried_again() {
    for settings in [ALWAYS, Settings { fsync: Fsync::EverySecond, ..ALWAYS }] {
        let disk = MemoryDisk::default();
        let mut life = Life::start(&disk, settings).expect("a start");
        let mut random = Random::new(9);
        life.append_random(&mut random);
        life.write();
        wait_until(|| {
            life.write();
            life.durable() == life.log.end()
        });
        let (durable, syncs) = (life.durable(), disk.syncs());
        disk.set_faults(Faults { failing_sync: Some(syncs + 1), ..Faults::default() });
        life.append_random(&mut random);
        wait_until(|| life.write() == Step::Failed);
        assert_eq!(life.writer.progress().condition(), Condition::Failed);
        assert!(life.writer.progress().reason().contains("syncing"), "{}", life.writer.progress().reason());
        for _ in 0..3 {
            life.append_random(&mut random);
            life.writer.orders().stop();
            assert_eq!(life.write(), Step::Failed);
        }
        assert_eq!((life.durable(), disk.syncs()), (durable, syncs + 1), "nothing was synced after the error");
        if settings.fsync == Fsync::Always {
            assert_eq!(life.log.released(), durable);
        }
    }
}

#[test]
fn an_error_of_write_is_final() {
    let disk = MemoryDisk::default();
    let mut life = Life::start(&disk, ALWAYS).expect("a start");
    life.write();
    disk.set_faults(Faults { failing_write: Some(4), ..Faults::default() });
    let mut random = Random::new(9);
    for _ in 0..5 {
        life.append_random(&mut random);
        life.write();
    }
    assert_eq!(life.writer.progress().condition(), Condition::Failed);
    assert!(life.durable() < life.log.end());
}

fn wait_until(mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < Duration::from_secs(60), "it takes too long");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_sync_that_does_not_end_holds_up_writing_after_two_seconds_and_is_counted() {
    let disk = MemoryDisk::default();
    let mut life = Life::start(&disk, Settings { fsync: Fsync::EverySecond, ..ALWAYS }).expect("a start");
    let mut random = Random::new(11);
    life.write();
    disk.set_faults(Faults { stuck: true, ..Faults::default() });
    let mut blocked = false;
    wait_until(|| {
        life.append_random(&mut random);
        blocked = matches!(life.write_unless_held_up(), Step::Blocked(_));
        blocked
    });
    let written = life.writer.progress().written_lsn();
    assert!(written > 0 && written < life.log.end() && life.log.released() == written);
    assert_eq!((life.writer.progress().delayed(), life.durable()), (1, 0));
    life.write_unless_held_up();
    assert_eq!(life.writer.progress().delayed(), 1, "one wait counts once");
    disk.set_faults(Faults::default());
    wait_until(|| {
        life.write();
        life.durable() == life.log.end()
    });
}

#[test]
fn a_thread_writes_what_workers_append_and_wakes_who_waits() {
    let disk = MemoryDisk::default();
    let Life { log, mut appender, reader, writer, mut directory, .. } = Life::start(&disk, ALWAYS).expect("a start");
    let bell = Bell::of(&log);
    let thread = WriterThread::start(writer, reader, bell).expect("a thread");
    let (woken, wakes) = std::sync::mpsc::channel();
    log.set_waker(0, Box::new(move || woken.send(()).expect("somebody listens")));
    let mut stream = Vec::new();
    for number in 0..500 {
        let mut record = Record::new();
        record.command(0, &["SET", "k", &number.to_string()]).finish();
        stream.extend_from_slice(record.contiguous().expect("small"));
        let end = appender.append_record(&record);
        log.ring();
        if appender.await_release(end) {
            wakes.recv_timeout(Duration::from_secs(60)).expect("the writer wakes");
            appender.awake();
        }
        assert!(thread.progress().durable_lsn() >= end);
        if number == 250 {
            let increment = directory.add_increment().expect("a file");
            thread.orders().rotate_at(end, increment);
            thread.ring();
        }
    }
    let progress = Arc::clone(thread.progress());
    assert!(!thread.orders().is_rotating());
    let reader = thread.stop();
    assert_eq!(progress.durable_lsn(), log.end());
    log.deactivate(reader);
    let (bytes, recovered) = recover(&disk).expect("whole");
    assert!(bytes == stream && recovered.clean);
    assert_eq!(open(&disk).manifest().increments.len(), 2);
}

const SELECT_3: &[u8] = b"*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n";
const SET: &[u8] = b"*3\r\n$3\r\nSET\r\n$1\r\nf\r\n$1\r\n1\r\n";

#[test]
fn what_a_redis_appended_is_loaded_too() {
    for settings in [ALWAYS, APPENDING] {
        for closed in [false, true] {
            let (disk, stream, _) = small_file(settings);
            let path = increment_path(1);
            let mut file = disk.bytes(&path);
            let mut expected = [&stream, SELECT_3, SET].concat();
            if closed {
                let disk = MemoryDisk::default();
                let mut life = Life::start(&disk, settings).expect("a start");
                life.append(Record::new().command(0, &["SET", "k", "v"]).finish());
                life.writer.orders().stop();
                assert_eq!(life.write(), Step::Stopped);
                file = disk.bytes(&path);
                expected = [&life.stream, SELECT_3, SET].concat();
            }
            file.extend_from_slice(b"#TS:1700000000\r\n");
            file.extend_from_slice(SELECT_3);
            file.extend_from_slice(SET);
            let whole = file.len();
            file.extend_from_slice(&SET[..10]);
            disk.put(&path, file);
            let (bytes, recovered) = recover(&disk).expect("loads");
            assert_eq!(bytes, expected);
            assert!(recovered.foreign && !recovered.clean);
            assert_eq!(recovered.cut.expect("half a command").offset, whole as u64);
            // A life that goes on from it is consistent.
            let mut life = Life::start(&disk, settings).expect("a start");
            life.append(Record::new().command(0, &["DEL", "f"]).finish());
            life.write();
            assert_eq!(recover(&disk).expect("whole").0, life.stream);
        }
    }
}

#[test]
fn what_a_redis_wrote_behind_a_cut_of_its_own_is_loaded_where_that_can_be_told() {
    let (disk, stream, ends) = small_file(ALWAYS);
    let path = increment_path(1);
    let whole = disk.bytes(&path);
    let (last, before) = (ends[ends.len() - 1], ends[ends.len() - 2]);
    // At the end of a group, and after the first command of the last group.
    let end_of_first = last.0 - (last.1 - before.1)
        + stream[before.1..last.1].windows(2).position(|two| two == b"\r\n*").map_or(last.1 - before.1, |at| at + 2);
    for (cut, kept) in [(last.0, last.1), (end_of_first, before.1 + end_of_first - (last.0 - (last.1 - before.1)))] {
        disk.put(&path, [&whole[..cut], SELECT_3, SET].concat());
        let (bytes, recovered) = recover(&disk).expect("loads");
        assert_eq!(bytes, [&stream[..kept], SELECT_3, SET].concat());
        assert!(recovered.foreign && recovered.cut.is_none());
    }
}

#[test]
fn damage_is_reported_and_given_up_only_on_request() {
    let disk = MemoryDisk::default();
    let mut random = Random::new(21);
    for _ in 0..3 {
        let mut life = Life::start(&disk, ALWAYS).expect("a start");
        for _ in 0..10 {
            life.append_random(&mut random);
            life.write();
        }
    }
    let (stream, _) = recover(&disk).expect("whole");
    assert!(check(&mut open(&disk), false).expect("checked").is_sound());
    let path = increment_path(2);
    let mut bytes = disk.bytes(&path);
    // In the last group, of which only the next file tells that it was synced; then far before it.
    let last = bytes.iter().rposition(|byte| !b"#\r\n".contains(byte)).expect("groups");
    let mut damaged = bytes.clone();
    damaged[last] ^= 1;
    disk.put(&path, damaged);
    assert!(matches!(recover(&disk), Err(RecoverError::Damage { .. })));
    bytes[3000] ^= 1;
    disk.put(&path, bytes.clone());
    let Err(error @ RecoverError::Damage { .. }) = recover(&disk) else {
        panic!("damage in a file that others follow");
    };
    let text = error.to_string();
    assert!(text.contains("2.incr.aof") && text.contains("--check-aof --fix"), "{text}");
    let report = check(&mut open(&disk), false).expect("checked");
    assert!(!report.is_sound() && !report.loads && report.done.is_empty(), "{report}");
    assert_eq!(disk.bytes(&path), bytes);
    let report = check(&mut open(&disk), true).expect("fixed");
    assert_eq!(report.done.len(), 2, "{report}");
    let (left, recovered) = recover(&disk).expect("loads now");
    assert!(stream.starts_with(&left) && !left.is_empty() && recovered.cut.is_none());
    assert!(disk.names().iter().any(|name| name.to_string_lossy().contains("2.incr.aof.cut-")));
    assert!(disk.names().contains(&increment_path(3)), "later files stay");
}

#[test]
fn a_torn_tail_refuses_if_so_configured_and_can_be_fixed() {
    let (disk, _, ends) = small_file(ALWAYS);
    let path = increment_path(1);
    let mut bytes = disk.bytes(&path);
    bytes.truncate(ends[ends.len() - 1].0 - 5);
    disk.put(&path, bytes);
    let directory = open(&disk);
    let mut recovery = Recovery::new(&directory, false);
    let error = loop {
        match recovery.next_piece() {
            Ok(piece) => assert!(piece.is_some(), "the tail is torn"),
            Err(error) => break error,
        }
    };
    assert!(matches!(&error, RecoverError::Torn { cut, .. } if cut.bytes > 0), "{error}");
    assert!(error.to_string().contains("aof-load-truncated"), "{error}");
    let report = check(&mut open(&disk), true).expect("fixed");
    assert!(report.loads && report.done.len() == 1, "{report}");
    assert!(check(&mut open(&disk), false).expect("checked").problem.is_none());
}

#[test]
fn a_missing_file_or_a_hostile_manifest_refuses() {
    let (disk, ..) = small_file(ALWAYS);
    let manifest = Path::new(DIRECTORY).join(format!("{NAME}.manifest"));
    disk.put(&manifest, format!("file {NAME}.1.incr.aof seq 1 type i\nfile {NAME}.2.incr.aof seq 2 type i\n").into());
    let error = recover(&disk).expect_err("a file is missing");
    assert!(error.to_string().contains("2.incr.aof"), "{error}");
    disk.put(&manifest, b"file ../../etc/passwd seq 1 type i\n".to_vec());
    let opened = Directory::open(Arc::new(disk.clone()), Path::new("/data"), "appendonlydir", NAME);
    assert!(opened.expect_err("a path").to_string().contains("manifest"));
}

#[test]
fn an_older_single_file_is_taken_over_as_the_base() {
    use gimmal_log::aof::Found;
    let disk = MemoryDisk::default();
    disk.put(&Path::new("/data").join(NAME), [SELECT_3, SET].concat());
    for step in 0.. {
        let died = disk.copy();
        died.set_faults(Faults { dies_after: Some(died.operations() + step), ..Faults::default() });
        let adopted = Directory::open(Arc::new(died.clone()), Path::new("/data"), "appendonlydir", NAME)
            .and_then(|mut directory| directory.adopt());
        let mut random = Random::new(step);
        let after = died.after(Crash::Prefix, &mut random);
        let mut directory = open(&after);
        match directory.found().expect("looked") {
            Found::Single => directory.adopt().expect("adopted"),
            found => assert_eq!(found, Found::Directory),
        }
        assert_eq!(recover(&after).expect("loads").0, [SELECT_3, SET].concat());
        if adopted.is_ok() {
            return;
        }
    }
}

/// `CONFIG SET appendonly yes`: what the directory holds from before does not go on where the new file begins.
#[test]
fn a_log_that_is_switched_on_replaces_what_there_was_in_one_step() {
    for step in 0.. {
        let mut random = Random::new(step);
        let disk = MemoryDisk::default();
        let mut before = Life::start(&disk, ALWAYS).expect("a start");
        before.append_random(&mut random);
        before.writer.orders().stop();
        assert_eq!(before.write(), Step::Stopped);
        disk.set_faults(Faults { dies_after: Some(disk.operations() + step), ..Faults::default() });
        let switched_on = || -> std::io::Result<()> {
            let mut directory = try_open(&disk)?;
            let increment = directory.create_increment()?;
            let first = increment.seq;
            let log = Log::new(1, 1 << 20);
            let mut reader = log.activate(1_000_000);
            let mut writer = Writer::new(&log, 1_000_000, increment, ALWAYS, quick(), quiet());
            log.appender(0).append(SET);
            while writer.step(&mut reader) == Step::More {}
            let temporary = directory.disk().open(&directory.temporary_base(), Open::Create)?;
            temporary.write_at(&[std::io::IoSlice::new(SELECT_3)], 0)?;
            directory.replace_base(BaseKind::Resp, Some(first))?;
            directory.remove_history()?;
            assert_eq!(directory.sizes()?.0, SELECT_3.len() as u64);
            Ok(())
        };
        let finished = switched_on().is_ok();
        let (bytes, _) = recover(&disk.after(Crash::Prefix, &mut random)).expect("the one or the other");
        let after = [SELECT_3, SET].concat();
        assert!(bytes == after || (!finished && bytes == before.stream), "step {step}");
        if finished {
            return;
        }
    }
}

#[test]
fn whatever_is_done_to_a_file_no_other_bytes_than_those_appended_pass_as_ours() {
    let (disk, stream, _) = small_file(ALWAYS);
    let (other, ..) = small_file(APPENDING);
    let path = increment_path(1);
    let (whole, other) = (disk.bytes(&path), other.bytes(&path));
    let mut outcomes = [0; 3];
    for seed in 0..rounds(3000) {
        let mut random = Random::new(seed);
        let mut bytes = whole.clone();
        for _ in 0..1 + random.below(3) {
            spoil(&mut bytes, &other, &mut random);
        }
        let copy = disk.copy();
        copy.put(&path, bytes);
        match recover(&copy) {
            // Spoiled on a block that a tool of Redis would leave so, with commands behind: not ours to judge.
            Ok((_, recovered)) if recovered.foreign => outcomes[0] += 1,
            Ok((bytes, _)) => {
                assert!(stream.starts_with(&bytes), "seed {seed}");
                outcomes[1] += 1;
            }
            Err(RecoverError::Damage { .. }) => outcomes[2] += 1,
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    assert!(outcomes[1] > 0 && outcomes[2] > 0, "{outcomes:?}");
}

/// Overwrites, moves, removes or inserts some bytes.
fn spoil(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let grain = [1, 64, 512][random.below(3) as usize];
    let mut place = |len: usize| usize_of(random.below(len as u64 / grain + 1) * grain).min(len);
    let (at, from) = (place(bytes.len()), place(bytes.len()));
    let len = place(2048).max(1);
    let end = bytes.len().min(at + len);
    match random.below(6) {
        0 => bytes[at..end].fill(0),
        1 => bytes[at..end].iter_mut().for_each(|byte| *byte = random.below(256) as u8),
        2 => {
            let moved = bytes[from..bytes.len().min(from + len)].to_vec();
            let count = moved.len().min(bytes.len() - at);
            bytes[at..at + count].copy_from_slice(&moved[..count]);
        }
        3 => drop(bytes.drain(at..end)),
        4 => drop(bytes.splice(at..at, vec![b'#'; len])),
        _ => {
            let end = end.min(other.len());
            let at = at.min(end);
            bytes[at..end].copy_from_slice(&other[at..end]);
        }
    }
}

fn usize_of(number: u64) -> usize {
    usize::try_from(number).expect("in memory")
}
