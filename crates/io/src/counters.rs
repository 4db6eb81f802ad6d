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
}
