//! [`Team`]: some threads that do a phase's jobs together, the calling one among them.
//!
//! As in Redis 6 (`networking.c`, threaded I/O) jobs are dealt evenly, round-robin, and nobody takes another one's; the
//! phase is over when all have done theirs. Who waits spins first, as the other side mostly is about to come, and then
//! parks. Redis's threads spin for a million turns, about a millisecond, and its main thread without end. That is only for a
//! machine with a processor for each thread. With fewer, the spin takes the time of the very thread that is waited for.
//!
//! Invariants: between [`Team::run`]s all jobs are with the caller; during one, each thread's list is its own until it
//! has said that it is done. The list's lock is never contended: `pending` hands the list over, there and back.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// Something to do for one connection.
pub(super) trait Job: Send + 'static {
    fn run(&mut self);
}

/// The threads beside the caller's.
pub(super) struct Team<J> {
    desks: Vec<Arc<Desk<J>>>,
    threads: Vec<JoinHandle<()>>,
    /// The caller's own jobs of a phase.
    mine: Vec<J>,
    spins: u32,
}

/// Where a thread finds its jobs.
#[repr(align(128))]
struct Desk<J> {
    /// Jobs that are not done; set by the caller, and to 0 by the thread.
    pending: AtomicUsize,
    jobs: Mutex<Vec<J>>,
    stopped: AtomicBool,
    caller: Thread,
}

/// How often Redis looks for work before it lets a thread sleep, without a pause in between: with one, this would take
/// ten times as long.
const SPINS: u32 = 1_000_000;
/// The same where threads outnumber processors.
const FEW_SPINS: u32 = 100;

impl<J: Job> Team<J> {
    /// A team of so many threads for the calling one, which is one of them.
    ///
    /// # Errors
    /// Threads cannot be started.
    pub(super) fn start(threads: usize) -> io::Result<Team<J>> {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let spins = if threads <= processors { SPINS } else { FEW_SPINS };
        let mut team = Team { desks: Vec::new(), threads: Vec::new(), mine: Vec::new(), spins };
        for at in 1..threads {
            let (pending, jobs, stopped) = (AtomicUsize::new(0), Mutex::default(), AtomicBool::new(false));
            let desk = Arc::new(Desk { pending, jobs, stopped, caller: thread::current() });
            team.desks.push(Arc::clone(&desk));
            let body = move || desk.work(spins);
            team.threads.push(thread::Builder::new().name(format!("io {at}")).spawn(body)?);
        }
        Ok(team)
    }

    pub(super) fn threads(&self) -> usize {
        self.desks.len() + 1
    }

    /// Does these jobs: a phase. Afterwards they are all back, grouped by thread. Returns how long the caller, done with its
    /// own, waited for the others, if it did.
    pub(super) fn run(&mut self, jobs: &mut Vec<J>) -> Option<Duration> {
        let threads = self.threads();
        {
            let mut lists: Vec<MutexGuard<'_, Vec<J>>> = self.desks.iter().map(|desk| desk.jobs()).collect();
            for (at, job) in jobs.drain(..).enumerate() {
                match (at % threads).checked_sub(1) {
                    None => self.mine.push(job),
                    Some(desk) => lists[desk].push(job),
                }
            }
        }
        for (desk, thread) in self.desks.iter().zip(&self.threads) {
            let pending = desk.jobs().len();
            if pending > 0 {
                desk.pending.store(pending, Ordering::Release);
                thread.thread().unpark();
            }
        }
        self.mine.iter_mut().for_each(Job::run);
        jobs.append(&mut self.mine);
        let done = |desk: &Arc<Desk<J>>| desk.pending.load(Ordering::Acquire) == 0;
        let began = (!self.desks.iter().all(done)).then(Instant::now);
        for desk in &self.desks {
            wait_until(self.spins, || done(desk));
            jobs.append(&mut desk.jobs());
        }
        began.map(|began| began.elapsed())
    }
}

impl<J> Drop for Team<J> {
    fn drop(&mut self) {
        for (desk, thread) in self.desks.iter().zip(self.threads.drain(..)) {
            desk.stopped.store(true, Ordering::Release);
            thread.thread().unpark();
            // Its panic was reported when it happened; there is no one left to tell.
            let _panicked = thread.join().is_err();
        }
    }
}

impl<J: Job> Desk<J> {
    fn jobs(&self) -> MutexGuard<'_, Vec<J>> {
        self.jobs.lock().expect("no job panics")
    }

    /// What a thread does until the end.
    fn work(&self, spins: u32) {
        loop {
            let is_stopped = || self.stopped.load(Ordering::Acquire);
            wait_until(spins, || self.pending.load(Ordering::Acquire) > 0 || is_stopped());
            if is_stopped() {
                return;
            }
            self.jobs().iter_mut().for_each(Job::run);
            self.pending.store(0, Ordering::Release);
            self.caller.unpark();
        }
    }
}

/// Spins, then parks until it is true; whoever makes it true unparks.
fn wait_until(spins: u32, is_true: impl Fn() -> bool) {
    for _ in 0..spins {
        if is_true() {
            return;
        }
    }
    while !is_true() {
        thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Square {
        number: u64,
        by: Option<thread::ThreadId>,
    }

    impl Job for Square {
        fn run(&mut self) {
            assert_eq!(self.by.replace(thread::current().id()), None, "done twice");
            self.number *= self.number;
        }
    }

    #[test]
    fn jobs_are_dealt_evenly_and_all_come_back_done() {
        let mut team = Team::start(3).unwrap();
        for phase in 0..20_000 {
            let count = phase % 11;
            let mut jobs: Vec<Square> = (0..count).map(|number| Square { number, by: None }).collect();
            team.run(&mut jobs);
            let mut numbers: Vec<u64> = jobs.iter().map(|job| job.number).collect();
            numbers.sort_unstable();
            assert_eq!(numbers, (0..count).map(|number| number * number).collect::<Vec<_>>());
            let mut by: Vec<_> = jobs.iter().map(|job| job.by.expect("each is done")).collect();
            by.dedup();
            assert_eq!(by.len() as u64, count.min(3), "grouped by thread, and none does nothing");
            let most = jobs.chunk_by(|a, b| a.by == b.by).map(<[Square]>::len).max();
            assert_eq!(most.unwrap_or(0) as u64, count.div_ceil(3), "the last one has as many as the others");
        }
    }

    #[test]
    fn a_team_of_one_is_the_caller() {
        let mut team = Team::start(1).unwrap();
        let mut jobs = vec![Square { number: 3, by: None }];
        team.run(&mut jobs);
        assert_eq!((jobs[0].number, jobs[0].by), (9, Some(thread::current().id())));
    }
}
