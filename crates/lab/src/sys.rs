//! The system calls that the standard library does not offer: epoll, processor affinity, limits.
//!
//! # Safety
//! Every call passes either plain integers or a pointer to a local (or owned) object that outlives the call, with
//! its true size. Descriptors are owned (`OwnedFd`) or borrowed (`AsFd`), so none is used after it was closed.
//! Dropped alternative: a crate for each of them; these few calls are shorter than their wrappers.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// A level-triggered epoll set and the events of its last wait.
pub struct Epoll {
    fd: OwnedFd,
    ready: Vec<libc::epoll_event>,
}

/// What a descriptor waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interest {
    /// Bytes to read, a connection to accept, or the end of the stream.
    Read,
    /// The same, and room to write.
    ReadWrite,
}

impl Epoll {
    /// An empty set that reports at most `events` events per wait.
    pub fn new(events: usize) -> io::Result<Self> {
        // SAFETY: epoll_create1 takes no pointer.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the descriptor was just made and nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, ready: Vec::with_capacity(events) })
    }

    /// Adds a descriptor; its events carry `token`. Closing the descriptor removes it.
    pub fn add(&self, fd: &impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, interest)
    }

    /// Changes what an added descriptor waits for.
    pub fn modify(&self, fd: &impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, token, interest)
    }

    /// Waits for events, at most `timeout_ms` (-1: for ever), and returns how many there are.
    pub fn wait(&mut self, timeout_ms: i32) -> io::Result<usize> {
        self.ready.clear();
        let capacity = i32::try_from(self.ready.capacity()).unwrap_or(i32::MAX);
        loop {
            // SAFETY: the buffer has room for `capacity` events and lives as long as the call.
            let n = unsafe { libc::epoll_wait(self.fd.as_raw_fd(), self.ready.as_mut_ptr(), capacity, timeout_ms) };
            match check(n) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(n) => {
                    let n = usize::try_from(n).unwrap_or(0);
                    // SAFETY: the kernel has initialised the first `n` events, and `n <= capacity`.
                    unsafe { self.ready.set_len(n) };
                    return Ok(n);
                }
            }
        }
    }

    /// Waits with the resolution of a nanosecond clock instead of a millisecond one.
    ///
    /// An epoll descriptor is itself pollable, so `ppoll` does the sleeping; this works on every kernel, which
    /// `epoll_pwait2` (5.11) does not.
    pub fn wait_precisely(&mut self, timeout: Duration) -> io::Result<usize> {
        let mut fd = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let limit = libc::timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // SAFETY: one pollfd and one timespec, both locals; a null signal mask changes nothing.
        match check(unsafe { libc::ppoll(&raw mut fd, 1, &raw const limit, std::ptr::null()) }) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => self.wait(0),
        }
    }

    /// The token of event `index` of the last wait.
    pub fn token(&self, index: usize) -> u64 {
        self.ready[index].u64
    }

    fn control(&self, operation: i32, fd: &impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        let events = match interest {
            Interest::Read => libc::EPOLLIN,
            Interest::ReadWrite => libc::EPOLLIN | libc::EPOLLOUT,
        };
        let mut event = libc::epoll_event { events: events.cast_unsigned(), u64: token };
        let target = fd.as_fd().as_raw_fd();
        // SAFETY: both descriptors are open for the duration of the borrow; the event is a local.
        check(unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), operation, target, &raw mut event) }).map(drop)
    }
}

/// Lets a listening socket hold `backlog` connections that are not accepted yet (the standard library asks for 128).
pub fn deepen_backlog(listener: &impl AsFd, backlog: i32) -> io::Result<()> {
    // SAFETY: no pointer; the descriptor is borrowed.
    check(unsafe { libc::listen(listener.as_fd().as_raw_fd(), backlog) }).map(drop)
}

/// Runs `f` with the calling thread bound to one processor, then gives the thread its old set back.
/// A process started inside `f` inherits the binding.
pub fn on_cpu<T>(cpu: usize, f: impl FnOnce() -> T) -> io::Result<T> {
    let before = affinity()?;
    let mut only: libc::cpu_set_t = empty_cpu_set();
    if cpu >= usize::try_from(libc::CPU_SETSIZE).unwrap_or(0) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("no processor {cpu}")));
    }
    // SAFETY: `cpu` is below CPU_SETSIZE, so the bit is inside the set.
    unsafe { libc::CPU_SET(cpu, &mut only) };
    set_affinity(&only)?;
    let result = f();
    set_affinity(&before)?;
    Ok(result)
}

/// Raises this process's limit of open files to the hard limit and returns it.
pub fn raise_open_files() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is a local of the right type.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: as above.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) })?;
    Ok(limit.rlim_cur)
}

/// Lets every other thread go before this one and those it starts (the nice value belongs to a thread on Linux).
pub fn step_back() -> io::Result<()> {
    const LAST: i32 = 19;
    // SAFETY: three integers; 0 is the calling thread.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, LAST) }).map(drop)
}

/// Lets timed waits of this thread end on time: the default slack is 50 µs.
pub fn tighten_timer_slack() -> io::Result<()> {
    let nanoseconds: libc::c_ulong = 1;
    // SAFETY: PR_SET_TIMERSLACK takes one integer.
    check(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, nanoseconds) }).map(drop)
}

/// Clock ticks in a second, the unit of times in `/proc/PID/stat`.
pub fn ticks_per_second() -> u64 {
    // SAFETY: sysconf takes one integer.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).unwrap_or(100).max(1)
}

fn affinity() -> io::Result<libc::cpu_set_t> {
    let mut set = empty_cpu_set();
    // SAFETY: the set is a local and its true size is passed; 0 names the calling thread.
    check(unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) })?;
    Ok(set)
}

fn set_affinity(set: &libc::cpu_set_t) -> io::Result<()> {
    // SAFETY: the set is borrowed for the call and its true size is passed; 0 names the calling thread.
    check(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set) }).map(drop)
}

fn empty_cpu_set() -> libc::cpu_set_t {
    // SAFETY: cpu_set_t is an array of integers, for which all zeros is a value (the empty set).
    unsafe { std::mem::zeroed() }
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    #[test]
    fn an_event_carries_its_token() {
        let (mut a, b) = UnixStream::pair().expect("a pair of sockets");
        let mut epoll = Epoll::new(4).expect("an epoll set");
        epoll.add(&b, 77, Interest::Read).expect("added");
        assert_eq!(epoll.wait(0).expect("waited"), 0);
        a.write_all(b"x").expect("written");
        assert_eq!(epoll.wait(1000).expect("waited"), 1);
        assert_eq!(epoll.token(0), 77);
        epoll.modify(&b, 78, Interest::ReadWrite).expect("modified");
        assert_eq!(epoll.wait(0).expect("waited"), 1);
        assert_eq!(epoll.token(0), 78);
    }

    #[test]
    fn a_precise_wait_ends_near_its_time() {
        let mut epoll = Epoll::new(1).expect("an epoll set");
        let start = Instant::now();
        assert_eq!(epoll.wait_precisely(Duration::from_micros(300)).expect("waited"), 0);
        assert!(start.elapsed() >= Duration::from_micros(300));
    }

    #[test]
    fn a_binding_ends_with_its_closure() {
        let before = std::thread::available_parallelism().expect("known").get();
        let inside = on_cpu(0, || std::thread::available_parallelism().expect("known").get()).expect("processor 0");
        assert_eq!(inside, 1);
        assert_eq!(std::thread::available_parallelism().expect("known").get(), before);
        assert!(on_cpu(1 << 20, || ()).is_err());
    }
}
