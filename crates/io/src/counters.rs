//! [`Counters`]: what an engine has done, as INFO `io` shows it.

/// Declares the counters once: fields, names and values in one order.
macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// What an engine has done since it was made. Engines leave at zero what they do not have.
        #[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
        pub struct Counters {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl Counters {
            /// Their names.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),+];

            /// Their values, in the order of the names.
            #[inline]
            #[must_use]
            pub fn values(&self) -> [u64; Counters::NAMES.len()] {
                [$(self.$name),+]
            }
        }
    };
}

counters! {
    /// Calls of `io_uring_enter`, or of `epoll_wait` where there is no ring.
    enters,
    /// Submission queue entries.
    sqes,
    /// Completion queue entries, or epoll events.
    cqes,
    /// Send operations, continuations included.
    sends,
    /// Sends that took less than was offered.
    short_sends,
    /// Receives that brought bytes.
    receives,
    /// Receives that found no provided buffer.
    enobufs,
    /// Multishot operations armed again after they ended by themselves.
    rearms,
    /// Waits that found the completion queue overflown.
    cq_overflow,
    /// Connections accepted.
    accepts,
    /// `Woken` completions.
    wakes,
    /// Sends that were entries of a ring; the others were system calls of their own.
    ring_sends,
    /// Enters that submitted such sends.
    submits,
    /// Sends of bytes in several places.
    vector_sends,
    /// How many places those were.
    slices,
    /// Calls of `epoll_wait` beside a ring.
    polls,
    /// Enters that slept until what they submitted was done.
    submit_waits,
    /// Entries with `IOSQE_IO_LINK`.
    links,
    /// Entries with `IOSQE_IO_DRAIN`.
    drains,
    /// Entries with `IOSQE_ASYNC`.
    asyncs,
    /// Entries that wait for a connection to be readable or writable.
    poll_entries,
    /// Entries that read.
    read_entries,
    /// Outputs given to writing threads.
    queue_in,
    /// Outputs that came back from them.
    queue_out,
    /// Times that a connection was put into the reply queue: once for each output, and again for what a socket did not take.
    queued,
    /// Time that connections lay in the reply queue, in ns.
    queue_wait_ns,
    /// Partial queues of a distributed reply queue that writing threads looked at.
    partial_visits,
    /// Phases in which threads received together.
    read_phases,
    /// Phases in which threads wrote together.
    write_phases,
    /// Write phases that were the worker's alone, as there was little to do.
    phases_alone,
    /// Connections that were dealt to the threads of a phase.
    phase_jobs,
    /// Phases at whose end the worker waited for others.
    barrier_waits,
    /// How long it did, in ns.
    barrier_wait_ns,
}
