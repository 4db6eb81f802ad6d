//! The writing side: takes what the log's reader has, writes it as one group, syncs by policy, moves the watermarks.
//!
//! A [`Writer`] has no thread of its own: [`WriterThread`](super::WriterThread) runs one (`aof-io thread`), or a worker calls
//! [`Writer::step`] after its pass (`aof-io inline`, as Redis does it). With [`Writer::use_ring`] groups are written and
//! synced as chains on a ring (`aof-io uring`); files are begun and closed without it, after all chains are done.
//!
//! * `always`: each group is synced before its LSN is released.
//! * `everysec`: an LSN is released when it is written; another thread syncs each second. While that sync does not end,
//!   writing goes on for two seconds more, then it waits.
//! * `no`: released when written, never synced but when a file is closed.
//!
//! Without room on the disk the file is cut back to where the group began, nothing is acknowledged, and it is tried again.
//! Any other error of a write, and every error of a sync, is final.

use std::io::{self, IoSlice};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::cache;
use super::chains::{Broken, Chains, Reached, RingSettings};
use super::directory::Increment;
use super::disk::{DiskFile, write_all};
use super::gather::Gather;
use super::header::{BLOCK, FILL, HEAD, Header, Kind, MAX_LENGTH, encode_timestamp};
use super::progress::{Condition, Progress};
use super::ring::Ring;
use super::sync_thread::{SyncThread, Synced};
use crate::mutant::{self, Mutant};
use crate::read::{Chunk, Reader};
use crate::{Log, Lsn};

/// When to sync (`appendfsync`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fsync {
    /// Each group.
    Always,
    /// Once a second, on another thread.
    EverySecond,
    /// Never.
    No,
}

/// What can change while the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// When to sync.
    pub fsync: Fsync,
    /// How much space to write ahead with `always`, in bytes; rounded up to blocks of 64. 0: none.
    pub preallocate: u64,
    /// Whether groups carry Redis's time stamps.
    pub timestamps: bool,
}

/// How much space [`Settings::preallocate`] is best, in bytes: with less, more groups bring space with them; with more, the
/// slowest group takes longer (`examples/aof_sync.rs`: worst 0.2 to 0.4 ms, with 1 MiB 0.6 to 2.8 ms, with 4 MiB 2 to 5 ms).
pub const PREALLOCATE: u64 = 256 << 10;

impl Default for Settings {
    fn default() -> Settings {
        Settings { fsync: Fsync::EverySecond, preallocate: PREALLOCATE, timestamps: false }
    }
}

/// How long is what. Constants, but for tests.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// `everysec`: from the begin of a sync to that of the next.
    pub between_syncs: Duration,
    /// `everysec`: how long a sync may take before writing waits for it.
    pub stuck_after: Duration,
    /// Between two attempts on a full disk.
    pub retry_full: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            between_syncs: Duration::from_secs(1),
            stuck_after: Duration::from_secs(2),
            retry_full: Duration::from_millis(100),
        }
    }
}

/// What a step left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There may be more: call again.
    More,
    /// Nothing until the log has more, or until the time is over.
    Idle(Option<Duration>),
    /// Nothing until the time is over, although the log has more.
    Blocked(Duration),
    /// Nothing until the log can be read up to here, a worker that waits sleeps, or the time is over: more will come in a moment.
    Gather(Lsn, Duration),
    /// It was told to stop, and the file is closed.
    Stopped,
    /// Nothing ever again; see [`Progress::reason`].
    Failed,
}

/// What others want of a writer. It looks at them in each step.
#[derive(Debug, Default)]
pub struct Orders(Mutex<Wanted>);

#[derive(Debug, Default)]
struct Wanted {
    settings: Option<Settings>,
    rotation: Option<(Lsn, Increment)>,
    stop: bool,
}

impl Orders {
    /// Other settings from the next group on.
    pub fn set(&self, settings: Settings) {
        self.lock().settings = Some(settings);
    }

    /// Goes on in another file at `lsn`. To be called while the gate is closed and `lsn` is the log's end, so that no
    /// later byte can have been written.
    pub fn rotate_at(&self, lsn: Lsn, increment: Increment) {
        let mut wanted = self.lock();
        assert!(wanted.rotation.is_none(), "the rotation before this one is over");
        wanted.rotation = Some((lsn, increment));
    }

    /// Whether a rotation is still to be done.
    pub fn is_rotating(&self) -> bool {
        self.lock().rotation.is_some()
    }

    /// Writes and syncs what there is, marks the end, and stops.
    pub fn stop(&self) {
        self.lock().stop = true;
    }

    /// Whether [`Orders::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        self.lock().stop
    }

    fn lock(&self) -> MutexGuard<'_, Wanted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes the log to its file.
#[derive(Debug)]
pub struct Writer {
    log: Arc<Log>,
    place: Place,
    /// How far groups were made of the log.
    written: Lsn,
    /// How far they are in the kernel. Behind `written` only while chains are in flight.
    in_kernel: Lsn,
    durable: Lsn,
    released: Lsn,
    settings: Settings,
    timing: Timing,
    orders: Arc<Orders>,
    progress: Arc<Progress>,
    /// Headers of the group being written.
    line: Vec<u8>,
    chains: Option<Chains>,
    syncs: Option<SyncThread>,
    /// The sync under way on the other thread: when it was asked for.
    asked: Option<Instant>,
    /// When the last one was.
    last_asked: Instant,
    is_delayed: bool,
    retry_at: Option<Instant>,
    /// No space is prepared before this, because there was none.
    prepare_after: Option<Instant>,
    last_stamp: u64,
    gather: Gather,
}

/// Where in a file.
#[derive(Debug)]
struct Place {
    file: Arc<dyn DiskFile>,
    nonce: u64,
    /// Where the next group begins, if it fits.
    offset: u64,
    /// Where the prepared space ends; the end of the file.
    size: u64,
    /// What is before was given back to the kernel.
    let_go: u64,
    /// Whether the first, empty group is written and synced.
    is_begun: bool,
}

/// Where a group goes.
#[derive(Clone, Copy, Debug)]
struct Spot {
    offset: u64,
    end: u64,
    /// The file's size with it.
    size: u64,
}

enum Trouble {
    Full(String),
    Final(String),
}

type Outcome<T> = Result<T, Trouble>;

impl Writer {
    /// A writer that goes on at `lsn` in a new file.
    pub fn new(
        log: &Arc<Log>,
        lsn: Lsn,
        increment: Increment,
        settings: Settings,
        timing: Timing,
        progress: Arc<Progress>,
    ) -> Writer {
        progress.set_written(lsn);
        progress.set_durable(lsn);
        progress.counts.increment.store(increment.seq, Ordering::Relaxed);
        Writer {
            log: Arc::clone(log),
            place: Place::new(increment),
            written: lsn,
            in_kernel: lsn,
            durable: lsn,
            released: lsn,
            settings,
            timing,
            orders: Arc::default(),
            progress,
            line: Vec::new(),
            chains: None,
            syncs: None,
            asked: None,
            last_asked: Instant::now(),
            is_delayed: false,
            retry_at: None,
            prepare_after: None,
            last_stamp: 0,
            gather: Gather::default(),
        }
    }

    /// Writes through a ring from now on.
    ///
    /// # Errors
    /// The kernel has no such ring.
    pub fn use_ring(&mut self, settings: RingSettings) -> io::Result<()> {
        self.chains = Some(Chains::new(Box::new(Ring::open(settings)?), settings));
        Ok(())
    }

    /// Waits a moment before a group where that makes it larger. For a writer with a thread of its own.
    pub(super) fn gather(&mut self) {
        self.gather.switch_on();
    }

    /// The wait that [`Step::Gather`] asked for is over.
    pub(super) fn gathered(&mut self) {
        self.gather.slept();
    }

    /// What others can ask of this writer.
    pub fn orders(&self) -> &Arc<Orders> {
        &self.orders
    }

    /// How far it is.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Up to where it has written.
    pub fn written(&self) -> Lsn {
        self.written
    }

    /// Whether the disk was full at the last attempt.
    pub fn is_full(&self) -> bool {
        self.progress.condition() == Condition::Full
    }

    /// Writes and syncs what is to be written and synced now.
    pub fn step(&mut self, reader: &mut Reader) -> Step {
        if self.progress.condition() == Condition::Failed {
            return Step::Failed;
        }
        if let Some(left) = self.retry_at.map(|at| at.saturating_duration_since(Instant::now()))
            && !left.is_zero()
        {
            return Step::Blocked(left);
        }
        match self.try_step(reader) {
            Ok(step) => {
                self.retry_at = None;
                if !matches!(step, Step::Blocked(_)) {
                    self.progress.set_condition(Condition::Fine, String::new());
                }
                step
            }
            Err(Trouble::Full(reason)) => {
                self.retry_at = Some(Instant::now() + self.timing.retry_full);
                self.progress.set_condition(Condition::Full, reason);
                Step::Blocked(self.timing.retry_full)
            }
            Err(Trouble::Final(reason)) => {
                self.progress.set_condition(Condition::Failed, reason);
                Step::Failed
            }
        }
    }

    fn try_step(&mut self, reader: &mut Reader) -> Outcome<Step> {
        // Looked at before the orders: a rotation is ordered before anything beyond its LSN is appended.
        let readable = reader.readable();
        self.land(false)?;
        let (rotation, stop) = self.take_orders()?;
        self.collect_sync()?;
        self.begin_file()?;
        let mut up_to = rotation.map_or(readable, |lsn| lsn.min(readable));
        if mutant::is(Mutant::MultiSplit) {
            up_to = mutant::split(reader, self.written..up_to);
        }
        if up_to > self.written && self.chains.as_ref().is_none_or(Chains::has_room) {
            if self.must_wait_for_sync() {
                return Ok(Step::Blocked(POLL));
            }
            if rotation.is_none()
                && !stop
                && let Some(wait) = self.gather.wait(self.written, readable)
            {
                return Ok(wait);
            }
            self.write_group(reader, up_to)?;
            reader.consumed(up_to);
        }
        if mutant::is(Mutant::AckBeforeFsync) {
            self.log.release(self.in_kernel);
        }
        self.sync_by_policy()?;
        self.release();
        if rotation == Some(self.written) {
            self.rotate()?;
            return Ok(Step::More);
        }
        if self.is_flying() {
            self.land(true)?;
            self.release();
            return Ok(Step::More);
        }
        if readable > self.written {
            return Ok(Step::More);
        }
        if stop {
            self.close_file()?;
            self.release();
            return Ok(Step::Stopped);
        }
        Ok(Step::Idle(self.until_next_sync()))
    }

    fn is_flying(&self) -> bool {
        self.chains.as_ref().is_some_and(|chains| !chains.is_empty())
    }

    /// Takes the chains' completions, with `wait` not before there is one.
    fn land(&mut self, wait: bool) -> Outcome<()> {
        let Some(chains) = &mut self.chains else {
            return Ok(());
        };
        let (log, written) = (&self.log, self.written);
        let was_full = self.progress.condition() == Condition::Full;
        let resubmitted = if was_full { chains.resubmit() } else { Ok(()) };
        let result = resubmitted.and_then(|()| chains.reap(wait, || log.end() > written));
        let Reached { written, durable } = chains.reached();
        self.progress.counts.resubmitted.store(chains.resubmitted, Ordering::Relaxed);
        self.in_kernel = self.in_kernel.max(written.unwrap_or(0));
        self.progress.set_written(self.in_kernel);
        if durable.is_some_and(|durable| durable > self.durable) {
            self.durable = durable.unwrap_or(0);
            self.progress.set_durable(self.durable);
            self.progress.counts.syncs.fetch_add(1, Ordering::Relaxed);
        }
        result.map_err(|broken| match broken {
            Broken::Full(error) => Trouble::Full(format!("writing the log: {error}")),
            Broken::Write(error) => Trouble::Final(format!("writing the log: {error}")),
            Broken::Sync(error) => Trouble::Final(format!("syncing the log: {error}")),
            Broken::Ring(error) => Trouble::Final(format!("the log's ring: {error}")),
        })
    }

    /// Waits until no chain is in flight.
    fn land_all(&mut self) -> Outcome<()> {
        while self.is_flying() {
            self.land(true)?;
        }
        Ok(())
    }

    fn take_orders(&mut self) -> Outcome<(Option<Lsn>, bool)> {
        let settings = self.orders.lock().settings.take();
        if let Some(settings) = settings {
            // A sync in a chain is not to answer for chains without one.
            self.land_all()?;
            self.settings = settings;
        }
        let wanted = self.orders.lock();
        let rotation = wanted.rotation.as_ref().map(|(lsn, _)| *lsn);
        assert!(
            rotation.is_none_or(|lsn| self.written <= lsn),
            "nothing is written beyond a rotation before it is ordered"
        );
        Ok((rotation, wanted.stop))
    }

    /// One vectored write: time stamp, header, the log's bytes, new prepared space.
    fn write_group(&mut self, reader: &Reader, up_to: Lsn) -> Outcome<()> {
        let up_to = up_to.min(self.written + MAX_LENGTH / 2);
        let chunks: Vec<Chunk<'_>> = reader.chunks(self.written..up_to).collect();
        let crc = chunks.iter().fold(0, |crc, chunk| crc32c::crc32c_append(crc, chunk.bytes()));
        self.line.clear();
        if self.settings.timestamps {
            self.stamp();
        }
        let length = up_to - self.written;
        let spot = match self.chains {
            None => self.write(Kind::Group, length, crc, &chunks)?,
            Some(_) => self.submit(length, crc, &chunks)?,
        };
        self.place.offset = spot.end;
        self.place.size = spot.size;
        self.written = up_to;
        if self.chains.is_none() {
            self.in_kernel = up_to;
            self.progress.set_written(up_to);
        }
        self.progress.counts.groups.fetch_add(1, Ordering::Relaxed);
        self.progress.counts.file_bytes.store(spot.end, Ordering::Relaxed);
        Ok(())
    }

    /// Redis's time stamp, if the second is a new one.
    fn stamp(&mut self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if now > self.last_stamp {
            self.last_stamp = now;
            self.line.extend_from_slice(&encode_timestamp(now));
        }
    }

    /// Writes what is in `line`, a header, the payload, and new space if the header's group does not fit into the old.
    fn write(&mut self, kind: Kind, length: u64, crc: u32, payload: &[Chunk<'_>]) -> Outcome<Spot> {
        let before = self.line.len() as u64;
        let total = before + Header::line_length(length) as u64 + length;
        let mut spot = self.place.spot(total, if kind == Kind::End { 0 } else { self.space_to_prepare() });
        loop {
            self.line.truncate(usize::try_from(before).expect("it is in memory"));
            let Place { nonce, .. } = self.place;
            let header = Header { kind, nonce, lsn: self.written, length, durable: self.durable, size: spot.size, crc };
            header.encode(spot.offset + before, &mut self.line);
            let fill = if spot.size > self.place.size { spot.size - spot.end } else { 0 };
            let mut slices = Vec::with_capacity(1 + payload.len() + fill_slices(fill));
            slices.push(IoSlice::new(&self.line));
            slices.extend(payload.iter().map(|chunk| IoSlice::new(chunk.bytes())));
            slices.extend(filling(fill));
            match write_all(&*self.place.file, &mut slices, spot.offset) {
                Ok(_) => return Ok(spot),
                Err((_, error)) if is_full(&error) && fill > 0 => {
                    // Once more without the new space, and no more of it for a while.
                    self.prepare_after = Some(Instant::now() + Duration::from_secs(1));
                    self.cut_back(&error)?;
                    spot = Spot { size: spot.end, ..spot };
                }
                Err((_, error)) if is_full(&error) => {
                    self.cut_back(&error)?;
                    return Err(Trouble::Full(format!("writing the log: {error}")));
                }
                Err((_, error)) => return Err(Trouble::Final(format!("writing the log: {error}"))),
            }
        }
    }

    /// Submits a group as a chain. Without new space: what is in flight cannot be written anew if there is none.
    fn submit(&mut self, length: u64, crc: u32, payload: &[Chunk<'_>]) -> Outcome<Spot> {
        let before = self.line.len() as u64;
        let spot = self.place.spot(before + Header::line_length(length) as u64 + length, 0);
        let Place { nonce, .. } = self.place;
        let (lsn, durable, size) = (self.written, self.durable, spot.size);
        let mut bytes = std::mem::take(&mut self.line);
        Header { kind: Kind::Group, nonce, lsn, length, durable, size, crc }.encode(spot.offset + before, &mut bytes);
        payload.iter().for_each(|chunk| bytes.extend_from_slice(chunk.bytes()));
        let sync = self.settings.fsync == Fsync::Always;
        let chains = self.chains.as_mut().expect("there is a ring");
        let submitted = chains.submit(&self.place.file, bytes, spot.offset, lsn + length, sync);
        submitted.map_err(|broken| Trouble::Final(format!("the log's ring: {broken:?}")))?;
        Ok(spot)
    }

    /// Removes what was written of a group that did not fit on the disk.
    fn cut_back(&self, cause: &io::Error) -> Outcome<()> {
        let cut = self.place.file.set_len(self.place.size);
        cut.map_err(|error| Trouble::Final(format!("writing the log: {cause}; cutting it back: {error}")))
    }

    fn space_to_prepare(&self) -> u64 {
        let is_room = self.prepare_after.is_none_or(|after| after <= Instant::now());
        let wanted = is_room && self.settings.fsync == Fsync::Always && self.chains.is_none();
        if wanted { self.settings.preallocate.min(MAX_PREPARED).next_multiple_of(BLOCK as u64) } else { 0 }
    }

    fn sync_by_policy(&mut self) -> Outcome<()> {
        match self.settings.fsync {
            Fsync::Always if self.durable < self.written && self.chains.is_none() => self.sync_now(),
            Fsync::EverySecond
                if self.durable < self.in_kernel
                    && self.asked.is_none()
                    && self.last_asked.elapsed() >= self.timing.between_syncs =>
            {
                if self.syncs.is_none() {
                    let started = SyncThread::start();
                    self.syncs = Some(started.map_err(|error| Trouble::Final(format!("starting a thread: {error}")))?);
                }
                if let Some(syncs) = &self.syncs {
                    syncs.ask(&self.place.file, self.in_kernel);
                }
                self.last_asked = Instant::now();
                self.asked = Some(self.last_asked);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Syncs on this thread.
    fn sync_now(&mut self) -> Outcome<()> {
        let started = Instant::now();
        let mut result = self.place.file.sync_data();
        if mutant::is(Mutant::RetryAfterEio) {
            result = result.or_else(|_| self.place.file.sync_data());
        }
        self.note_sync((self.written, started.elapsed(), result))?;
        self.place.let_go();
        Ok(())
    }

    fn collect_sync(&mut self) -> Outcome<()> {
        let answer = if self.asked.is_some() { self.syncs.as_ref().and_then(SyncThread::answer) } else { None };
        answer.map_or(Ok(()), |synced| self.note_asked_sync(synced))
    }

    fn note_asked_sync(&mut self, synced: Synced) -> Outcome<()> {
        (self.asked, self.is_delayed) = (None, false);
        self.note_sync(synced)
    }

    fn note_sync(&mut self, (lsn, took, result): Synced) -> Outcome<()> {
        result.map_err(|error| Trouble::Final(format!("syncing the log: {error}")))?;
        self.progress.synced(took);
        self.gather.synced(took);
        self.durable = self.durable.max(lsn);
        self.progress.set_durable(self.durable);
        Ok(())
    }

    /// Whether the other thread's sync takes so long that writing must wait, too.
    fn must_wait_for_sync(&mut self) -> bool {
        let stuck = self.asked.is_some_and(|asked| asked.elapsed() > self.timing.stuck_after);
        if stuck && !std::mem::replace(&mut self.is_delayed, true) {
            self.progress.counts.delayed.fetch_add(1, Ordering::Relaxed);
        }
        stuck
    }

    fn until_next_sync(&self) -> Option<Duration> {
        if self.asked.is_some() {
            return Some(POLL);
        }
        let pending = self.settings.fsync == Fsync::EverySecond && self.durable < self.in_kernel;
        pending.then(|| self.timing.between_syncs.saturating_sub(self.last_asked.elapsed()))
    }

    fn release(&mut self) {
        let up_to = if self.settings.fsync == Fsync::Always { self.durable } else { self.in_kernel };
        if up_to > self.released {
            if self.settings.fsync == Fsync::Always && self.chains.is_none() {
                self.gather.released(up_to - self.released, self.log.end() - up_to);
            }
            self.released = up_to;
            let woken = self.log.release(up_to) as u64;
            self.progress.counts.wakes.fetch_add(woken, Ordering::Relaxed);
        }
    }

    /// Writes and syncs a file's first group, which is empty and says where the file begins.
    fn begin_file(&mut self) -> Outcome<()> {
        if self.place.is_begun {
            return Ok(());
        }
        self.line.clear();
        let spot = self.write(Kind::Group, 0, 0, &[])?;
        (self.place.offset, self.place.size) = (spot.end, spot.size);
        self.sync_now()?;
        self.place.is_begun = true;
        self.progress.counts.file_bytes.store(spot.end, Ordering::Relaxed);
        Ok(())
    }

    /// Syncs the file to its end, then marks the end, cuts off the space that was not used, and syncs that.
    fn close_file(&mut self) -> Outcome<()> {
        self.begin_file()?;
        self.land_all()?;
        if let Some(synced) = self.syncs.as_ref().and_then(SyncThread::wait) {
            self.note_asked_sync(synced)?;
        }
        self.sync_now()?;
        self.line.clear();
        let Spot { end, .. } = self.write(Kind::End, 0, 0, &[])?;
        let cut = self.place.file.set_len(end);
        cut.map_err(|error| Trouble::Final(format!("closing the log: {error}")))?;
        self.sync_now()
    }

    fn rotate(&mut self) -> Outcome<()> {
        self.close_file()?;
        self.release();
        let (_, increment) = self.orders.lock().rotation.take().expect("a rotation was ordered");
        self.progress.counts.increment.store(increment.seq, Ordering::Relaxed);
        self.place = Place::new(increment);
        self.begin_file()
    }
}

/// How often a sync under way is looked at.
const POLL: Duration = Duration::from_millis(5);
/// No more space is prepared at once. Bytes.
const MAX_PREPARED: u64 = 64 << 20;

impl Place {
    fn new(increment: Increment) -> Place {
        let Increment { file, nonce, .. } = increment;
        Place { file, nonce, offset: HEAD as u64, size: HEAD as u64, let_go: 0, is_begun: false }
    }

    /// Gives back the page cache of groups that are on disk, but of the last ones, whose page the next one shares.
    fn let_go(&mut self) {
        let end = (self.offset / CACHED).saturating_sub(1) * CACHED;
        if end > self.let_go
            && let Some(file) = self.file.descriptor()
        {
            // Where it is refused the log is as good, and memory fuller.
            let _refused = cache::let_go(file, &(self.let_go..end)).is_err();
            self.let_go = end;
        }
    }

    /// Where `total` bytes go: into the prepared space, or behind it, with `new` bytes of new space.
    fn spot(&self, total: u64, new: u64) -> Spot {
        let end = self.offset + total;
        // The last block stays as it is: it shows that nobody cut the file.
        if end + BLOCK as u64 <= self.size {
            return Spot { offset: self.offset, end, size: self.size };
        }
        let end = self.size + total;
        Spot { offset: self.size, end, size: end + new }
    }
}

/// Bytes of the file that are given back at once.
const CACHED: u64 = 256 << 10;

static LINES: [u8; 64 << 10] = {
    let mut lines = [0; 64 << 10];
    let mut at = 0;
    while at < lines.len() {
        lines[at] = FILL[at % BLOCK];
        at += 1;
    }
    lines
};

fn fill_slices(bytes: u64) -> usize {
    // At most MAX_PREPARED over 64 KiB.
    bytes.div_ceil(LINES.len() as u64) as usize
}

/// Slices with `bytes` bytes of prepared space.
fn filling<'a>(bytes: u64) -> impl Iterator<Item = IoSlice<'a>> {
    (0..bytes).step_by(LINES.len()).map(move |at| {
        let left = usize::try_from(bytes - at).unwrap_or(LINES.len());
        IoSlice::new(&LINES[..left.min(LINES.len())])
    })
}

pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::aof::{Disk, Open, RealDisk};

    #[test]
    fn a_group_never_lies_across_the_end_of_the_prepared_space_nor_in_its_last_block() {
        let file = RealDisk.open(Path::new("/dev/null"), Open::Read).expect("a file");
        for blocks in 0..6 {
            for group in 1..9 {
                let (offset, total) = (4096, group * 64);
                let size = offset + blocks * 64;
                let place = Place { file: Arc::clone(&file), nonce: 0, offset, size, let_go: 0, is_begun: true };
                let spot = place.spot(total, 640);
                assert_eq!(spot.end - spot.offset, total);
                if spot.offset == offset && blocks > 0 {
                    assert!(spot.end <= size - 64 && spot.size == size, "{spot:?} in {blocks} blocks");
                } else {
                    assert!(spot.offset == size && spot.size == spot.end + 640, "{spot:?} behind {blocks} blocks");
                    assert!(group >= blocks, "{spot:?} would have fit into {blocks} blocks");
                }
            }
        }
        assert_eq!(filling(200_000).map(|slice| slice.len()).sum::<usize>(), 200_000);
        assert!(filling(200_000).all(|slice| slice.starts_with(&FILL) && slice.len() % 64 == 0));
    }
}
