//! What the server asks of the operating system beyond the standard library: thread CPU time, local time, process
//! identity and its limits.
//!
//! # Safety
//! Every block is one libc call with arguments that outlive it; results are checked before use.

use std::io;
use std::time::Duration;

/// CPU time this thread has used.
pub fn thread_cpu() -> Duration {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock(id: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the call to fill.
    let failed = unsafe { libc::clock_gettime(id, &mut time) };
    assert!(failed == 0, "clock_gettime of a standard clock");
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// CPU time of the process: (user, system), and of its ended children.
pub fn process_cpu() -> [Duration; 4] {
    let usage = |who| {
        // SAFETY: an all-zero rusage is a valid value for the call to overwrite.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `usage` is valid for writes, `who` is one of the two standard constants.
        let failed = unsafe { libc::getrusage(who, &mut usage) };
        assert!(failed == 0, "getrusage of a standard target");
        let of = |t: libc::timeval| Duration::new(t.tv_sec.unsigned_abs(), t.tv_usec.unsigned_abs() as u32 * 1000);
        (of(usage.ru_utime), of(usage.ru_stime))
    };
    let (me, children) = (usage(libc::RUSAGE_SELF), usage(libc::RUSAGE_CHILDREN));
    [me.0, me.1, children.0, children.1]
}

/// The local time as Redis logs it: `21 Nov 2026 20:50:01.123`.
pub fn local_time_text() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let seconds = libc::time_t::try_from(now.as_secs()).unwrap_or(0);
    // SAFETY: an all-zero tm is a valid value for the call to overwrite.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call.
    if unsafe { libc::localtime_r(&seconds, &mut parts) }.is_null() {
        return format!("@{seconds}");
    }
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = usize::try_from(parts.tm_mon).ok().and_then(|m| MONTHS.get(m)).unwrap_or(&"???");
    format!(
        "{:02} {month} {} {:02}:{:02}:{:02}.{:03}",
        parts.tm_mday,
        parts.tm_year + 1900,
        parts.tm_hour,
        parts.tm_min,
        parts.tm_sec,
        now.subsec_millis()
    )
}

/// Resident set size, in bytes, from `/proc/self/statm`.
pub fn rss_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
    // SAFETY: sysconf takes a constant and touches no memory of ours.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    pages.unwrap_or(0) * u64::try_from(page).unwrap_or(4096)
}

/// Lets this thread run behind those that serve clients. Where that is not allowed it runs as they do.
pub fn lower_priority() {
    const NICE: libc::c_int = 10;
    // SAFETY: takes numbers only; 0 names the calling thread.
    let _not_allowed = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

/// Memory of the machine, in bytes, from `/proc/meminfo`; 0 if it does not say.
pub fn memory_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Kernel name, release and machine, as `uname` gives them.
pub fn kernel() -> String {
    let read = |name: &str| {
        std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).map(|s| s.trim().to_string()).unwrap_or_default()
    };
    format!("{} {} {}", read("ostype"), read("osrelease"), std::env::consts::ARCH)
}

/// The system's words for an error, without the number that the standard library adds.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split_once(" (os error").map_or(text.as_str(), |(words, _)| words).to_owned()
}

/// Raises the limit of open files to at least `wanted` where allowed; returns the limit in force.
pub fn raise_file_limit(wanted: u64) -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writes.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if limit.rlim_cur >= wanted {
        return Ok(limit.rlim_cur);
    }
    let higher = libc::rlimit { rlim_cur: wanted, rlim_max: limit.rlim_max.max(wanted) };
    let possible = libc::rlimit { rlim_cur: limit.rlim_max, rlim_max: limit.rlim_max };
    for try_limit in [higher, possible] {
        // SAFETY: `try_limit` is a valid rlimit that outlives the call.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &try_limit) } == 0 {
            return Ok(try_limit.rlim_cur);
        }
    }
    Ok(limit.rlim_cur)
}

/// Continues in the background: the parent exits, the child leads a session of its own without a terminal.
/// Call it before any thread is started.
pub fn daemonize() -> io::Result<()> {
    // SAFETY: called while the process has one thread, so the child is in a consistent state.
    match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {}
        _ => std::process::exit(0),
    }
    // SAFETY: setsid takes nothing and touches no memory of ours.
    unsafe { libc::setsid() };
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    for standard in 0..3 {
        // SAFETY: `null` is open; 0 to 2 are this process's standard streams, which nothing else owns.
        if unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&null), standard) } == -1 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Sets an integer socket option.
pub fn set_socket_option(fd: std::os::fd::RawFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    let size = libc::socklen_t::try_from(size_of::<i32>()).expect("four bytes");
    // SAFETY: `value` outlives the call and `size` is its length.
    let failed = unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), size) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Changes the backlog of a listening socket.
pub fn listen_again(fd: std::os::fd::RawFd, backlog: i32) -> io::Result<()> {
    // SAFETY: listen takes integers only.
    if unsafe { libc::listen(fd, backlog) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// TCP keepalive probes after `seconds` of silence, given up after about as long again; 0: none.
pub fn set_keepalive(fd: std::os::fd::RawFd, seconds: i32) -> io::Result<()> {
    if seconds == 0 {
        return Ok(());
    }
    set_socket_option(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    set_socket_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, seconds)?;
    set_socket_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, (seconds / 3).max(1))?;
    set_socket_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 3)
}

/// No transparent huge pages for this process: small entries would make them resident whole.
pub fn disable_huge_pages() {
    // SAFETY: prctl with integer arguments only. A refusal leaves the system's setting, which is no error.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
}

#[cfg(test)]
mod tests {
    #[test]
    fn cpu_time_and_memory_are_reported() {
        let before = super::thread_cpu();
        let mut sum = 0u64;
        for i in 0..3_000_000u64 {
            sum = std::hint::black_box(sum.wrapping_add(i * i));
        }
        assert!(super::thread_cpu() > before);
        assert!(super::rss_bytes() > 100_000);
        assert!(super::local_time_text().len() >= 23);
    }
}
