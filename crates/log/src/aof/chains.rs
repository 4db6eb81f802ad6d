//! `aof-io uring`: each group is a chain of a write and a linked fdatasync on a ring of its own.
//!
//! A chain that was broken (a short write, after which the kernel cancels the sync) is submitted again from where it
//! stopped, at its explicit offset, with a new sync. A chain counts as done when all before it are, so a watermark is a
//! contiguous prefix whatever the order of completion.
//!
//! Order `Flush`: one chain in flight. Order `Free`: as many as the depth, and the kernel may run them in any order, which
//! is how the system that this follows was built (io_uring links do not extend over submissions).
//!
//! The operations are handed to a [`Queue`], so that tests can complete them in any order.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::disk::DiskFile;
use crate::Lsn;
use crate::mutant::{self, Mutant};

/// Whether chains wait for each other (`aof-uring-order`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The next chain after the previous one's completions.
    Flush,
    /// No order.
    Free,
}

/// How completions are waited for (`aof-uring-completion`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// In the kernel.
    Event,
    /// By looking at the ring, for ten seconds; then in the kernel.
    Spin,
}

/// How a ring is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSettings {
    /// Whether chains wait for each other.
    pub order: Order,
    /// How completions are waited for.
    pub completion: Completion,
    /// How many chains are in flight at most, without order.
    pub depth: u32,
    /// Whether a kernel thread takes the submissions.
    pub sqpoll: bool,
    /// How many kernel workers the ring has at most. 0: the kernel's default.
    pub workers: u32,
}

impl Default for RingSettings {
    fn default() -> RingSettings {
        RingSettings { order: Order::Flush, completion: Completion::Event, depth: 64, sqpoll: false, workers: 2 }
    }
}

/// An operation for the kernel.
#[derive(Debug)]
pub(super) enum Operation {
    /// Writes `bytes[from..]` at `offset`; the operation queued next waits for it.
    Write { file: Arc<dyn DiskFile>, bytes: Arc<Vec<u8>>, from: usize, offset: u64, linked: bool },
    /// Syncs the file.
    Sync { file: Arc<dyn DiskFile> },
}

/// A completed operation: the number it was queued with, and what came out.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) number: u64,
    pub(super) result: Result<usize, io::Error>,
}

/// Where operations are queued and completed.
pub(super) trait Queue: Send + fmt::Debug {
    /// Queues an operation.
    fn push(&mut self, number: u64, operation: Operation) -> io::Result<()>;
    /// Submits what is queued, and waits for a completion: not at all, so long, or until there is one.
    fn submit(&mut self, wait: Option<Duration>) -> io::Result<()>;
    /// Whether there is a completion.
    fn is_ready(&mut self) -> bool;
    /// The next completion.
    fn pop(&mut self) -> Option<Done>;
}

/// The chains in flight.
#[derive(Debug)]
pub(super) struct Chains {
    queue: Box<dyn Queue>,
    settings: RingSettings,
    flying: VecDeque<Chain>,
    first: u64,
    reached: Reached,
    pub(super) resubmitted: u64,
}

#[derive(Debug)]
struct Chain {
    file: Arc<dyn DiskFile>,
    bytes: Arc<Vec<u8>>,
    offset: u64,
    /// Bytes written.
    done: usize,
    /// The position after the group.
    end: Lsn,
    sync: bool,
    synced: bool,
    /// Operations not completed.
    outstanding: u8,
}

/// How far the chains are: what the last contiguous one reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reached {
    pub(super) written: Option<Lsn>,
    pub(super) durable: Option<Lsn>,
}

/// Why a chain cannot go on.
#[derive(Debug)]
pub(super) enum Broken {
    /// There is no room. [`Chains::resubmit`] tries again.
    Full(io::Error),
    Write(io::Error),
    Sync(io::Error),
    Ring(io::Error),
}

/// After so long without a completion spinning ends.
const SPIN: Duration = Duration::from_secs(10);
/// How long the kernel waits for a completion before the log is looked at again, where more chains may fly.
const LOOK: Duration = Duration::from_micros(100);

impl Chains {
    pub(super) fn new(queue: Box<dyn Queue>, settings: RingSettings) -> Chains {
        Chains { queue, settings, flying: VecDeque::new(), first: 0, reached: Reached::default(), resubmitted: 0 }
    }

    /// Whether another chain may be submitted.
    pub(super) fn has_room(&self) -> bool {
        let limit = match self.settings.order {
            Order::Flush => 1,
            Order::Free => self.settings.depth.max(1),
        };
        self.flying.len() < limit as usize
    }

    pub(super) fn is_empty(&self) -> bool {
        self.flying.is_empty()
    }

    /// Submits a chain: `bytes` at `offset`, then a sync if one is wanted.
    pub(super) fn submit(
        &mut self,
        file: &Arc<dyn DiskFile>,
        bytes: Vec<u8>,
        offset: u64,
        end: Lsn,
        sync: bool,
    ) -> Result<(), Broken> {
        let (file, bytes) = (Arc::clone(file), Arc::new(bytes));
        self.flying.push_back(Chain { file, bytes, offset, done: 0, end, sync, synced: false, outstanding: 0 });
        self.queue_chain(self.flying.len() - 1)?;
        self.queue.submit(Some(Duration::ZERO)).map_err(Broken::Ring)
    }

    /// Submits again, in order, what is not done and not in flight.
    pub(super) fn resubmit(&mut self) -> Result<(), Broken> {
        for at in 0..self.flying.len() {
            let chain = &self.flying[at];
            if chain.outstanding == 0 && !chain.is_done() {
                self.resubmitted += 1;
                self.queue_chain(at)?;
            }
        }
        self.queue.submit(Some(Duration::ZERO)).map_err(Broken::Ring)
    }

    /// Takes completions. With `wait`, at least one; or none, if more chains may be submitted and `more` says that there
    /// is something to submit, or after a short while.
    pub(super) fn reap(&mut self, wait: bool, more: impl Fn() -> bool) -> Result<(), Broken> {
        if wait && !self.flying.is_empty() {
            self.wait(more)?;
        }
        let (mut broken, mut again) = (None, false);
        while let Some(done) = self.queue.pop() {
            match self.complete(done) {
                Ok(to_do) => again |= to_do,
                // An error of a sync or of another kind is final, so it must not be hidden by a full disk.
                Err(error) if broken.is_none() || !matches!(error, Broken::Full(_)) => broken = Some(error),
                Err(_) => {}
            }
        }
        self.take_done();
        match broken {
            Some(error) => Err(error),
            None if again => self.resubmit(),
            None => Ok(()),
        }
    }

    /// How far the chains are.
    pub(super) fn reached(&self) -> Reached {
        self.reached
    }

    /// Waits until something may have completed.
    fn wait(&mut self, more: impl Fn() -> bool) -> Result<(), Broken> {
        let may_submit = self.has_room();
        if self.settings.completion == Completion::Spin {
            let started = Instant::now();
            while started.elapsed() < SPIN {
                if self.queue.is_ready() || (may_submit && more()) {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
        }
        self.queue.submit(may_submit.then_some(LOOK)).map_err(Broken::Ring)
    }

    fn queue_chain(&mut self, at: usize) -> Result<(), Broken> {
        let number = (self.first + at as u64) * 2;
        let chain = &mut self.flying[at];
        let (file, bytes) = (Arc::clone(&chain.file), Arc::clone(&chain.bytes));
        if chain.done < bytes.len() {
            let linked = chain.sync && !mutant::is(Mutant::UnlinkedSync);
            let (from, offset) = (chain.done, chain.offset + chain.done as u64);
            self.queue.push(number, Operation::Write { file, bytes, from, offset, linked }).map_err(Broken::Ring)?;
            chain.outstanding += 1;
        }
        if chain.sync {
            let file = Arc::clone(&chain.file);
            self.queue.push(number + 1, Operation::Sync { file }).map_err(Broken::Ring)?;
            chain.outstanding += 1;
        }
        Ok(())
    }

    /// Whether the chain must be submitted again.
    fn complete(&mut self, Done { number, result }: Done) -> Result<bool, Broken> {
        let at = usize::try_from(number / 2 - self.first).expect("it is in flight");
        let chain = &mut self.flying[at];
        chain.outstanding -= 1;
        let is_sync = number % 2 == 1;
        match result {
            // The sync ran, so the write before it was whole.
            Ok(_) if is_sync => {
                chain.synced = chain.done == chain.bytes.len() || mutant::is(Mutant::UnlinkedSync);
            }
            Ok(0) => return Err(Broken::Write(io::ErrorKind::WriteZero.into())),
            Ok(count) => chain.done += count,
            Err(error) if is_transient(&error) => {}
            Err(_) if is_sync && mutant::is(Mutant::RetryAfterEio) => {}
            Err(error) if is_sync => return Err(Broken::Sync(error)),
            Err(error) if super::writer::is_full(&error) => return Err(Broken::Full(error)),
            Err(error) => return Err(Broken::Write(error)),
        }
        Ok(chain.outstanding == 0 && !chain.is_done())
    }

    fn take_done(&mut self) {
        while self.flying.front().is_some_and(|chain| chain.outstanding == 0 && chain.is_done()) {
            let chain = self.flying.pop_front().expect("just seen");
            self.first += 1;
            self.reached.written = Some(chain.end);
            if chain.sync {
                self.reached.durable = Some(chain.end);
            }
        }
    }
}

impl Chain {
    fn is_done(&self) -> bool {
        self.done == self.bytes.len() && (self.synced || !self.sync)
    }
}

/// A sync that was cancelled with its chain, or an interruption.
fn is_transient(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    code.is_some_and(|code| [libc::ECANCELED, libc::EINTR, libc::EAGAIN].contains(&code))
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::os::fd::BorrowedFd;
    use std::sync::Mutex;

    use super::*;

    /// A file in memory.
    #[derive(Debug, Default)]
    struct Memory(Mutex<Vec<u8>>);

    impl DiskFile for Memory {
        fn read_at(&self, _buffer: &mut [u8], _offset: u64) -> io::Result<usize> {
            Ok(0)
        }

        fn write_at(&self, slices: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
            let at = usize::try_from(offset).expect("small");
            let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            let mut content = self.0.lock().expect("a lock");
            let end = content.len().max(at + bytes.len());
            content.resize(end, 0);
            content[at..at + bytes.len()].copy_from_slice(&bytes);
            Ok(bytes.len())
        }

        fn sync_data(&self) -> io::Result<()> {
            Ok(())
        }

        fn set_len(&self, _len: u64) -> io::Result<()> {
            Ok(())
        }

        fn length(&self) -> io::Result<u64> {
            Ok(0)
        }

        fn descriptor(&self) -> Option<BorrowedFd<'_>> {
            None
        }
    }

    /// Completes chains in any order, writes short, breaks links; as the kernel may.
    #[derive(Debug)]
    struct Kernel {
        random: u64,
        queued: Vec<(u64, Operation)>,
        done: VecDeque<Done>,
        /// Errors of the writes to come, one each.
        errors: Vec<i32>,
        sync_error: Option<i32>,
    }

    impl Kernel {
        fn below(&mut self, limit: u64) -> u64 {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.random >> 33) % limit
        }

        fn run_one(&mut self) {
            let heads: Vec<usize> = (0..self.queued.len())
                .filter(|at| *at == 0 || !matches!(self.queued[at - 1].1, Operation::Write { linked: true, .. }))
                .collect();
            let Some(choice) = heads.get(self.below(heads.len().max(1) as u64) as usize).copied() else { return };
            let (number, operation) = self.queued.remove(choice);
            match operation {
                Operation::Sync { .. } => self.finish(number, Ok(0)),
                Operation::Write { file, bytes, from, offset, linked } => {
                    let left = bytes.len() - from;
                    let short = self.below(3) == 0;
                    let count = if short { 1 + self.below(left as u64) as usize } else { left };
                    let result = match self.errors.pop() {
                        Some(code) => Err(io::Error::from_raw_os_error(code)),
                        None => file.write_at(&[IoSlice::new(&bytes[from..from + count])], offset),
                    };
                    let whole = result.as_ref().is_ok_and(|written| *written == left);
                    self.done.push_back(Done { number, result });
                    if linked {
                        let (sync, _) = self.queued.remove(choice);
                        let cancelled = Err(io::Error::from_raw_os_error(libc::ECANCELED));
                        self.finish(sync, if whole { Ok(0) } else { cancelled });
                    }
                }
            }
        }

        fn finish(&mut self, number: u64, result: io::Result<usize>) {
            let result = match self.sync_error.take_if(|_| result.is_ok()) {
                Some(code) => Err(io::Error::from_raw_os_error(code)),
                None => result,
            };
            self.done.push_back(Done { number, result });
        }
    }

    impl Queue for Kernel {
        fn push(&mut self, number: u64, operation: Operation) -> io::Result<()> {
            self.queued.push((number, operation));
            Ok(())
        }

        fn submit(&mut self, wait: Option<Duration>) -> io::Result<()> {
            if wait != Some(Duration::ZERO) {
                self.run_one();
            }
            Ok(())
        }

        fn is_ready(&mut self) -> bool {
            self.run_one();
            !self.done.is_empty()
        }

        fn pop(&mut self) -> Option<Done> {
            self.done.pop_front()
        }
    }

    fn kernel(seed: u64) -> Kernel {
        Kernel { random: seed, queued: Vec::new(), done: VecDeque::new(), errors: Vec::new(), sync_error: None }
    }

    fn group(number: u64) -> Vec<u8> {
        let len = 1 + usize::try_from(number * 7 % 40).expect("small");
        vec![b'a' + u8::try_from(number % 26).expect("a letter"); len]
    }

    #[test]
    fn broken_chains_are_submitted_again_and_the_watermarks_are_contiguous() {
        let mut resubmitted = 0;
        for seed in 0..200 {
            let order = if seed % 2 == 0 { Order::Flush } else { Order::Free };
            let completion = if seed % 4 < 2 { Completion::Event } else { Completion::Spin };
            let settings = RingSettings { order, completion, depth: 5, ..RingSettings::default() };
            let mut chains = Chains::new(Box::new(kernel(seed)), settings);
            let memory = Arc::new(Memory::default());
            let file: Arc<dyn DiskFile> = Arc::clone(&memory) as Arc<dyn DiskFile>;
            let (mut expected, mut most) = (Vec::new(), 0);
            for number in 0..30 {
                while !chains.has_room() {
                    chains.reap(true, || false).expect("nothing is wrong");
                }
                let bytes = group(number);
                let offset = expected.len() as u64;
                expected.extend_from_slice(&bytes);
                chains.submit(&file, bytes, offset, expected.len() as u64, seed % 3 > 0).expect("submitted");
                most = most.max(chains.flying.len());
                let reached = chains.reached().written.unwrap_or(0);
                let content = memory.0.lock().expect("a lock");
                let reached = usize::try_from(reached).expect("small");
                assert_eq!(content[..reached], expected[..reached], "seed {seed}");
            }
            while !chains.is_empty() {
                chains.reap(true, || true).expect("nothing is wrong");
            }
            assert_eq!(*memory.0.lock().expect("a lock"), expected, "seed {seed}");
            let end = Some(expected.len() as u64);
            assert_eq!(chains.reached(), Reached { written: end, durable: end.filter(|_| seed % 3 > 0) });
            assert_eq!(most > 1, order == Order::Free);
            resubmitted += chains.resubmitted;
        }
        assert!(resubmitted > 200, "{resubmitted} chains were broken");
    }

    #[test]
    fn a_full_disk_is_tried_again_and_other_errors_are_told() {
        for (code, expected) in [(libc::ENOSPC, "Full"), (libc::EIO, "Write")] {
            let kernel = Kernel { errors: vec![code], ..kernel(1) };
            let mut chains = Chains::new(Box::new(kernel), RingSettings::default());
            let memory = Arc::new(Memory::default());
            let file: Arc<dyn DiskFile> = Arc::clone(&memory) as Arc<dyn DiskFile>;
            chains.submit(&file, b"bytes".to_vec(), 0, 5, true).expect("submitted");
            let broken = chains.reap(true, || false).expect_err("it fails");
            assert!(format!("{broken:?}").starts_with(expected), "{broken:?}");
            assert_eq!(chains.reached(), Reached::default());
            if code == libc::ENOSPC {
                chains.resubmit().expect("submitted");
                while !chains.is_empty() {
                    chains.reap(true, || false).expect("there is room");
                }
                assert_eq!(chains.reached(), Reached { written: Some(5), durable: Some(5) });
            }
        }
        let mut chains =
            Chains::new(Box::new(Kernel { sync_error: Some(libc::EIO), ..kernel(2) }), RingSettings::default());
        let file: Arc<dyn DiskFile> = Arc::new(Memory::default());
        chains.submit(&file, b"x".to_vec(), 0, 1, true).expect("submitted");
        assert!(matches!(chains.reap(true, || false), Err(Broken::Sync(_))));
        assert_eq!(chains.reached(), Reached::default());
    }
}
