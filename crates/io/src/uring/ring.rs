//! [`Ring`]: setting up an io_uring, queueing entries, entering the kernel, taking completions.
//!
//! Invariants: one enter both submits and waits, always with GETEVENTS (deferred task work runs in no other way); it
//! never waits while completions are visible. Queueing never fails: what the submission queue and the kernel do not
//! take at once goes to a backlog, in order. The crate's own `submit` is not used: it forgets the registered ring
//! descriptor and leaves GETEVENTS out.
//!
//! # Safety
//! Queued entries point to memory of their operations' owners (`Output`, `Message`, `Buffers`); that it outlives the
//! operation is the engine's duty, see `uring`. The raw calls pass pointers to locals that outlive them.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use io_uring::{IoUring, cqueue, squeue};

/// When the kernel runs the work that completes our operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TaskRun {
    /// At any transition into the kernel (`COOP_TASKRUN`).
    Coop,
    /// Only when we enter for completions (`DEFER_TASKRUN`).
    Defer,
}

/// Which set-up flags the kernel took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Setup {
    pub(crate) task_run: Option<TaskRun>,
    pub(crate) no_sqarray: bool,
    pub(crate) registered: bool,
}

impl fmt::Display for Setup {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self.task_run {
            Some(TaskRun::Coop) => "cooperative task work",
            Some(TaskRun::Defer) => "deferred task work",
            None => "no task-run flags",
        })?;
        out.write_str(if self.no_sqarray { ", no SQ array" } else { "" })?;
        out.write_str(if self.registered { ", registered ring" } else { "" })
    }
}

/// A completion, as plain values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cqe {
    pub(crate) user_data: u64,
    pub(crate) result: i32,
    pub(crate) flags: u32,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct RingCounters {
    pub(crate) enters: u64,
    pub(crate) sqes: u64,
    pub(crate) cqes: u64,
    pub(crate) cq_overflow: u64,
}

pub(crate) struct Ring {
    uring: IoUring,
    setup: Setup,
    /// The descriptor to enter with: the registered index, or the real one.
    enter_fd: i32,
    enter_flags: u32,
    backlog: VecDeque<squeue::Entry>,
    /// Completions taken off the queue, all at once: so the queue's ends are looked at once a pass, and it has room.
    stash: VecDeque<Cqe>,
    /// Completions that belong to the current pass.
    pass: usize,
    pub(crate) counters: RingCounters,
}

const ENTER_GETEVENTS: u32 = 1 << 0;
const ENTER_EXT_ARG: u32 = 1 << 3;
const ENTER_REGISTERED_RING: u32 = 1 << 4;
const REGISTER_RING_FDS: u32 = 20;
const UNREGISTER_RING_FDS: u32 = 21;

/// `struct io_uring_getevents_arg`.
#[repr(C)]
struct WaitArgument {
    sigmask: u64,
    sigmask_size: u32,
    min_wait_us: u32,
    timespec: u64,
}

/// `struct __kernel_timespec`.
#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

/// `struct io_uring_rsrc_update`.
#[repr(C)]
struct RegisterFd {
    offset: u32,
    reserved: u32,
    data: u64,
}

impl Ring {
    /// Sets up a ring for the calling thread. Flags unknown to the kernel (`EINVAL`) are left out one by one.
    pub(crate) fn open(sq_entries: u32, cq_entries: u32, task_run: TaskRun) -> io::Result<Ring> {
        let fallback = match task_run {
            TaskRun::Defer => Some(TaskRun::Coop),
            TaskRun::Coop => None,
        };
        let mut attempts = vec![(Some(task_run), true), (Some(task_run), false)];
        attempts.extend(fallback.map(|task_run| (Some(task_run), false)));
        attempts.push((None, false));
        let mut refused = io::Error::from_raw_os_error(libc::EINVAL);
        for (task_run, no_sqarray) in attempts {
            match build(sq_entries, cq_entries, task_run, no_sqarray) {
                Ok(uring) => return Ok(Ring::new(uring, task_run, no_sqarray)),
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => refused = error,
                Err(error) => return Err(error),
            }
        }
        Err(refused)
    }

    fn new(uring: IoUring, task_run: Option<TaskRun>, no_sqarray: bool) -> Ring {
        let index = register_ring_fd(uring.as_raw_fd());
        Ring {
            setup: Setup { task_run, no_sqarray, registered: index.is_some() },
            enter_fd: index.unwrap_or(uring.as_raw_fd()),
            enter_flags: if index.is_some() { ENTER_REGISTERED_RING } else { 0 },
            uring,
            backlog: VecDeque::new(),
            stash: VecDeque::new(),
            pass: 0,
            counters: RingCounters::default(),
        }
    }

    pub(crate) fn setup(&self) -> Setup {
        self.setup
    }

    pub(crate) fn uring(&self) -> &IoUring {
        &self.uring
    }

    /// Queues an entry; the next enter submits it.
    ///
    /// # Safety
    /// What the entry points to must stay valid and in place until its last completion.
    pub(crate) unsafe fn push(&mut self, entry: squeue::Entry) {
        self.counters.sqes += 1;
        if self.backlog.is_empty() {
            // SAFETY: the caller's promise.
            if unsafe { self.uring.submission().push(&entry) }.is_ok() {
                return;
            }
            self.submit_now();
            // SAFETY: the caller's promise.
            if unsafe { self.uring.submission().push(&entry) }.is_ok() {
                return;
            }
        }
        self.backlog.push_back(entry);
    }

    /// Makes room in a full submission queue. Failing is no loss: the wait to come submits again and reports.
    #[cold]
    fn submit_now(&mut self) {
        let queued = self.queued();
        if let Err(error) = self.enter(queued, 0, None)
            && error.raw_os_error() == Some(libc::EBUSY)
        {
            self.make_room();
        }
    }

    /// Submits everything and waits: for one completion, unless some are visible or `sleep` is false, until `timeout`.
    pub(crate) fn submit_and_wait(&mut self, sleep: bool, timeout: Option<Duration>) -> io::Result<()> {
        while !self.backlog.is_empty() {
            self.submit_backlog()?;
        }
        let (queued, visible) = (self.queued(), self.visible());
        let sleep = sleep && visible == 0 && timeout != Some(Duration::ZERO);
        let submission = self.uring.submission();
        let overflown = submission.cq_overflow();
        let kernel_has_work = overflown || submission.taskrun();
        drop(submission);
        self.counters.cq_overflow += u64::from(overflown);
        if sleep || queued > 0 || kernel_has_work {
            let result = self.enter(queued, u32::from(sleep), timeout.filter(|_| sleep));
            match result.as_ref().map_err(io::Error::raw_os_error) {
                Ok(()) | Err(Some(libc::ETIME | libc::EINTR)) => {}
                // Out of memory for requests, or overflown: completions must be taken first. Not a hot loop, as only
                // an enter that found none of them would be repeated in vain, and that one is the error's.
                Err(Some(libc::EAGAIN | libc::EBUSY)) if self.visible() > 0 => {}
                Err(_) => return result,
            }
        }
        self.take_off();
        self.pass = self.stash.len();
        Ok(())
    }

    /// Takes the next completion that the last wait found.
    pub(crate) fn pop(&mut self) -> Option<Cqe> {
        self.pass = self.pass.checked_sub(1)?;
        self.counters.cqes += 1;
        self.stash.pop_front()
    }

    /// How many completions of the last wait are still to be taken.
    pub(crate) fn left(&self) -> usize {
        self.pass
    }

    /// The completion that is taken after `at` others.
    pub(crate) fn peek(&self, at: usize) -> Option<Cqe> {
        if at < self.pass { self.stash.get(at).copied() } else { None }
    }

    /// Completions that can be taken without a system call.
    pub(crate) fn visible(&mut self) -> usize {
        self.stash.len() + self.uring.completion().len()
    }

    /// Entries that can be queued before something must be submitted.
    pub(crate) fn room(&mut self) -> usize {
        let submission = self.uring.submission();
        if self.backlog.is_empty() { submission.capacity() - submission.len() } else { 0 }
    }

    /// Entries that wait to be submitted.
    pub(crate) fn queued(&mut self) -> u32 {
        // At most the ring's 32-bit size.
        self.uring.submission().len() as u32
    }

    #[cold]
    fn submit_backlog(&mut self) -> io::Result<()> {
        while let Some(entry) = self.backlog.pop_front() {
            // SAFETY: the promise made to `push` for this entry.
            if unsafe { self.uring.submission().push(&entry) }.is_err() {
                self.backlog.push_front(entry);
                break;
            }
        }
        if self.backlog.is_empty() {
            return Ok(());
        }
        let queued = self.queued();
        match self.enter(queued, 0, None) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => self.make_room(),
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            result => return result,
        }
        Ok(())
    }

    /// Takes all completions off the queue, so that the kernel can post those it holds back.
    #[cold]
    fn make_room(&mut self) {
        self.counters.cq_overflow += 1;
        self.take_off();
    }

    fn take_off(&mut self) {
        let Ring { uring, stash, .. } = self;
        stash.extend(uring.completion().map(|entry| Cqe::from(&entry)));
    }

    fn enter(&mut self, submit: u32, wait_for: u32, timeout: Option<Duration>) -> io::Result<()> {
        self.counters.enters += 1;
        let timespec = timeout.map(|timeout| Timespec {
            seconds: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: i64::from(timeout.subsec_nanos()),
        });
        let argument = WaitArgument {
            sigmask: 0,
            sigmask_size: 0,
            min_wait_us: 0,
            timespec: timespec.as_ref().map_or(0, |timespec| std::ptr::from_ref(timespec).addr() as u64),
        };
        let flags = self.enter_flags | ENTER_GETEVENTS | ENTER_EXT_ARG;
        // SAFETY: the argument and the timespec it points to are locals that outlive the call; queued entries are
        // valid by the promise made to `push`.
        let result = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                self.enter_fd,
                submit,
                wait_for,
                flags,
                &raw const argument,
                size_of::<WaitArgument>(),
            )
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// A registered descriptor keeps the ring alive, and a thread has room for 16 of them.
impl Drop for Ring {
    fn drop(&mut self) {
        if let (true, Ok(index)) = (self.setup.registered, u32::try_from(self.enter_fd)) {
            let fd = self.uring.as_raw_fd();
            let mut update = RegisterFd { offset: index, reserved: 0, data: 0 };
            // SAFETY: the update outlives the call.
            let result =
                unsafe { libc::syscall(libc::SYS_io_uring_register, fd, UNREGISTER_RING_FDS, &raw mut update, 1u32) };
            debug_assert_eq!(result, 1, "unregistering the ring: {}", io::Error::last_os_error());
        }
    }
}

impl From<&cqueue::Entry> for Cqe {
    fn from(entry: &cqueue::Entry) -> Cqe {
        Cqe { user_data: entry.user_data(), result: entry.result(), flags: entry.flags() }
    }
}

fn build(sq_entries: u32, cq_entries: u32, task_run: Option<TaskRun>, no_sqarray: bool) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.dontfork().setup_clamp().setup_cqsize(cq_entries).setup_submit_all();
    match task_run {
        Some(TaskRun::Coop) => builder.setup_single_issuer().setup_coop_taskrun().setup_taskrun_flag(),
        Some(TaskRun::Defer) => builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag(),
        None => &mut builder,
    };
    if no_sqarray {
        builder.setup_no_sqarray();
    }
    let uring = builder.build(sq_entries)?;
    let parameters = uring.params();
    if !(parameters.is_feature_ext_arg() && parameters.is_feature_nodrop() && parameters.is_feature_fast_poll()) {
        return Err(io::Error::from(io::ErrorKind::Unsupported));
    }
    Ok(uring)
}

/// Spares the kernel a descriptor lookup per enter. `None` where the kernel cannot.
fn register_ring_fd(fd: i32) -> Option<i32> {
    let mut update = RegisterFd { offset: u32::MAX, reserved: 0, data: u64::try_from(fd).ok()? };
    // SAFETY: the update outlives the call, which writes the index into it.
    let result = unsafe { libc::syscall(libc::SYS_io_uring_register, fd, REGISTER_RING_FDS, &raw mut update, 1u32) };
    if result == 1 { i32::try_from(update.offset).ok() } else { None }
}
