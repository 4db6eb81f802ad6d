//! Time slices of threads that share processors with busy workers (Linux 6.12 and later; an older kernel takes no notice).
//!
//! Who is woken on a processor whose thread has a longer slice runs at once; otherwise it waits for the end of that slice, or for the
//! thread to sleep. So the thread that writes the log has a short one: it starts the disk, and sleeps again. Workers have a brief one:
//! who is woken by a client does not wait for a thread that makes a snapshot, or frees. (A longer one for the thread of snapshots is
//! worse: preempted with a shard locked, it does not come back for long.) None gets more of the processor than before, and no privilege
//! is needed.
//!
//! # Safety
//! One system call, which reads a structure of its own size that lives across it.

use std::io;
use std::time::Duration;

/// The shortest that the kernel takes.
pub const SHORT: Duration = Duration::from_micros(100);
/// For a thread that serves clients: longer than that, shorter than what others have.
pub const BRIEF: Duration = Duration::from_micros(700);

/// `struct sched_attr` of the kernel, as of its first version.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// For an ordinary thread its slice, in ns.
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// `SCHED_FLAG_KEEP_PARAMS` would keep the slice, too; what a thread of this kind has beside it is its niceness.
const OTHER: u32 = 0;

/// Asks for a slice of this length for the calling thread.
///
/// # Errors
/// The kernel's: a filter of system calls may refuse it. The thread works without.
pub fn set(slice: Duration) -> io::Result<()> {
    // SAFETY: a number of a thread, which is 0 for the calling one, and no memory.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    // SAFETY: no arguments.
    if unsafe { libc::sched_getscheduler(0) } != libc::SCHED_OTHER {
        // Somebody has chosen another policy for the whole process.
        return Ok(());
    }
    let size = size_of::<Attributes>() as u32;
    let runtime = slice.as_nanos() as u64;
    let attributes = Attributes { size, policy: OTHER, nice, runtime, ..Attributes::default() };
    // SAFETY: the kernel reads `size` bytes of the structure, which outlives the call.
    let answer = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_thread_may_ask_for_it() {
        let asked = std::thread::spawn(|| super::set(super::SHORT).and_then(|()| super::set(super::BRIEF)))
            .join()
            .expect("it does not panic");
        // Where a filter refuses it the thread goes on as it is.
        assert!(asked.is_ok() || asked.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied));
    }
}
