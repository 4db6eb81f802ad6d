//! The kernel's ring as a [`Queue`]: each operation owns what the kernel reads until it completes.
//!
//! # Safety
//! An entry points into `bytes`, whose `Arc` is in `held` from before it is queued until after its completion was taken. A
//! ring that is dropped with operations in flight leaks what they hold.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};

use super::chains::{Done, Operation, Queue, RingSettings};
use super::disk::DiskFile;
use crate::mutant::{self, Mutant};

/// What an operation in flight needs.
type Held = (Arc<dyn DiskFile>, Option<Arc<Vec<u8>>>);

pub(super) struct Ring {
    uring: IoUring,
    held: HashMap<u64, Held>,
    done: VecDeque<Done>,
}

/// After so long without work the kernel's thread sleeps. Milliseconds.
const SQPOLL_IDLE_MS: u32 = 1000;
/// An operation's length is a 32-bit number; what is longer is written short and continued.
const MOST: usize = 1 << 30;

impl Ring {
    pub(super) fn open(settings: RingSettings) -> io::Result<Ring> {
        let mut builder = IoUring::builder();
        builder.dontfork().setup_clamp();
        if settings.sqpoll {
            builder.setup_sqpoll(SQPOLL_IDLE_MS);
        }
        let uring = builder.build(settings.depth.clamp(1, 4096) * 2)?;
        if !uring.params().is_feature_ext_arg() || !uring.params().is_feature_nodrop() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel's io_uring is too old"));
        }
        if settings.workers > 0 {
            uring.submitter().register_iowq_max_workers(&mut [settings.workers, settings.workers])?;
        }
        Ok(Ring { uring, held: HashMap::new(), done: VecDeque::new() })
    }

    fn free_entries(&mut self) -> usize {
        let submission = self.uring.submission();
        submission.capacity() - submission.len()
    }

    fn take_completions(&mut self) {
        for entry in self.uring.completion() {
            let result = match entry.result() {
                negative @ ..0 => Err(io::Error::from_raw_os_error(-negative)),
                // Not negative.
                count => Ok(count as usize),
            };
            drop(self.held.remove(&entry.user_data()));
            self.done.push_back(Done { number: entry.user_data(), result });
        }
    }
}

impl Queue for Ring {
    fn push(&mut self, number: u64, operation: Operation) -> io::Result<()> {
        let no_file = || io::Error::new(io::ErrorKind::Unsupported, "the kernel does not know this file");
        let (entry, held): (squeue::Entry, Held) = match operation {
            Operation::Write { file, bytes, from, offset, linked } => {
                let fd = Fd(file.descriptor().ok_or_else(no_file)?.as_raw_fd());
                let part = &bytes[from..];
                // At most MOST.
                let len = part.len().min(MOST) as u32;
                let entry = opcode::Write::new(fd, part.as_ptr(), len).offset(offset).build();
                let flags = if linked { squeue::Flags::IO_LINK } else { squeue::Flags::empty() };
                (entry.flags(flags), (file, Some(bytes)))
            }
            Operation::Sync { file } => {
                let fd = Fd(file.descriptor().ok_or_else(no_file)?.as_raw_fd());
                let entry = match mutant::is(Mutant::NoFsync) {
                    false => opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(),
                    true => opcode::Nop::new().build(),
                };
                (entry, (file, None))
            }
        };
        // A chain must not be spread over two submissions: there is room for both of its entries before its first.
        while number.is_multiple_of(2) && self.free_entries() < 2 {
            self.uring.submit()?;
            self.uring.submitter().squeue_wait()?;
        }
        self.held.insert(number, held);
        // SAFETY: what the entry points to is in `held` until its completion.
        let pushed = unsafe { self.uring.submission().push(&entry.user_data(number)) };
        if pushed.is_err() {
            self.held.remove(&number);
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "the submission queue is full"));
        }
        Ok(())
    }

    fn submit(&mut self, wait: Option<Duration>) -> io::Result<()> {
        let result = match wait {
            Some(Duration::ZERO) => self.uring.submit(),
            Some(limit) => {
                let timespec = Timespec::new().sec(limit.as_secs()).nsec(limit.subsec_nanos());
                self.uring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timespec))
            }
            None => self.uring.submit_and_wait(1),
        };
        match result {
            Ok(_) => Ok(()),
            // Over time, interrupted, or completions must be taken first: the caller looks, and comes again.
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY) => Ok(()),
                _ => Err(error),
            },
        }
    }

    fn is_ready(&mut self) -> bool {
        !self.done.is_empty() || !self.uring.completion().is_empty()
    }

    fn pop(&mut self) -> Option<Done> {
        if self.done.is_empty() {
            self.take_completions();
        }
        self.done.pop_front()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.take_completions();
        std::mem::take(&mut self.held).into_values().for_each(std::mem::forget);
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Ring").field("in_flight", &self.held.len()).finish_non_exhaustive()
    }
}
