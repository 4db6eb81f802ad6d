//! The types of directives that are one word of a list: an enum whose discriminants are the codes in the table.

/// Defines an enum, its words for the table, and the way back from a code.
macro_rules! choices {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal $(| $synonym:literal)*,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            /// The words a file may use, with their codes.
            pub const WORDS: &'static [(&'static str, u8)] =
                &[$(($word, $name::$variant as u8), $(($synonym, $name::$variant as u8),)*)+];

            /// The word it is printed as.
            pub fn word(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)+
                }
            }

            /// The variant with this code of [`Self::WORDS`].
            pub(super) fn from_code(code: u8) -> $name {
                match code {
                    $(code if code == $name::$variant as u8 => $name::$variant,)+
                    _ => unreachable!("a code that no word has"),
                }
            }
        }
    };
}

choices! {
    /// `loglevel`, from chatty to silent.
    LogLevel {
        /// Everything.
        Debug = "debug",
        /// Much that is rarely useful.
        Verbose = "verbose",
        /// What an operator wants to see.
        Notice = "notice",
        /// Only what is wrong.
        Warning = "warning",
        /// Nothing.
        Nothing = "nothing",
    }
}

choices! {
    /// `supervised`.
    Supervised {
        /// Tell upstart by stopping.
        Upstart = "upstart",
        /// Tell systemd over its notification socket.
        Systemd = "systemd",
        /// Whichever the environment shows.
        Auto = "auto",
        /// Nobody to tell.
        No = "no",
    }
}

choices! {
    /// `oom-score-adj`.
    OomScoreAdj {
        /// Leave it alone.
        No = "no",
        /// Relative to the value at start.
        Relative = "yes" | "relative",
        /// As given.
        Absolute = "absolute",
    }
}

choices! {
    /// `io-engine`.
    IoEngine {
        /// io_uring where it works well, else epoll.
        Auto = "auto",
        /// io_uring.
        Uring = "uring",
        /// epoll.
        Epoll = "epoll",
        /// epoll, read(2), and replies through a ring.
        UringSend = "uring-send",
    }
}

choices! {
    /// `io-model`: which threads do what.
    IoModel {
        /// Each worker reads, executes and writes.
        Workers = "workers",
        /// One executes; reading and writing are phases of several.
        Phases = "phases",
        /// One reads and executes, others write.
        Queue = "queue",
    }
}

choices! {
    /// `reply-queue`.
    ReplyQueue {
        /// A lock around a linked list.
        Lock = "lock",
        /// Michael and Scott's.
        Ms = "ms",
        /// Several of those.
        Distributed = "distributed",
    }
}

choices! {
    /// `epoll-trigger`.
    EpollTrigger {
        /// What has become readable or writable is reported.
        Edge = "edge",
        /// What is readable or writable is reported.
        Level = "level",
    }
}

choices! {
    /// `uring-recv`.
    UringRecv {
        /// One entry for the life of a connection.
        Multishot = "multishot",
        /// An entry for each receive.
        Single = "single",
        /// An entry that waits until there is something, and one that reads it.
        Poll = "poll",
    }
}

choices! {
    /// `uring-write`.
    UringWrite {
        /// Entries that send.
        Send = "send",
        /// Entries that write a vector.
        Writev = "writev",
    }
}

choices! {
    /// `uring-submit`.
    UringSubmit {
        /// All replies of a pass together.
        Batch = "batch",
        /// Each by itself.
        Async = "async",
        /// Each by itself, and waited for.
        Sequential = "sequential",
    }
}

choices! {
    /// `uring-order`: who keeps a connection's replies in order.
    UringOrder {
        /// The application.
        App = "app",
        /// The kernel.
        Kernel = "kernel",
    }
}

choices! {
    /// `epoll-flush`.
    EpollFlush {
        /// Behind each group of completions.
        Group = "group",
        /// At the end of the pass.
        Loop = "loop",
        /// Behind each command.
        Command = "command",
    }
}

choices! {
    /// Who may do something that is dangerous in the wrong hands.
    Guarded {
        /// Nobody.
        No = "no",
        /// Everybody.
        Yes = "yes",
        /// Clients on this host.
        Local = "local",
    }
}

impl Guarded {
    /// Whether a client may; `local` says that it is on this host.
    pub fn allows(self, local: bool) -> bool {
        match self {
            Guarded::No => false,
            Guarded::Yes => true,
            Guarded::Local => local,
        }
    }
}

choices! {
    /// `maxmemory-policy`.
    MaxmemoryPolicy {
        /// Least recently used, of keys with a time to live.
        VolatileLru = "volatile-lru",
        /// Least often used, of keys with a time to live.
        VolatileLfu = "volatile-lfu",
        /// Any key with a time to live.
        VolatileRandom = "volatile-random",
        /// The key with a time to live that ends first.
        VolatileTtl = "volatile-ttl",
        /// Least recently used.
        AllkeysLru = "allkeys-lru",
        /// Least often used.
        AllkeysLfu = "allkeys-lfu",
        /// Any key.
        AllkeysRandom = "allkeys-random",
        /// None: writes are refused.
        NoEviction = "noeviction",
    }
}

choices! {
    /// `appendfsync`.
    Appendfsync {
        /// Once a second.
        EverySec = "everysec",
        /// Before a write is acknowledged.
        Always = "always",
        /// When the kernel likes.
        No = "no",
    }
}

choices! {
    /// `aof-ack`: what a reply waits for.
    AofAck {
        /// What `appendfsync` promises: with `always` the sync, else the write to the file, so that a killed process loses nothing
        /// acknowledged.
        Durable = "durable",
        /// Nothing.
        Memory = "memory",
    }
}

choices! {
    /// `aof-on-error`: what follows when the log can be written no more.
    OnError {
        /// The server ends.
        Exit = "exit",
        /// It serves reads of what is on disk.
        ReadOnly = "readonly",
    }
}

choices! {
    /// `aof-io`: who writes the log, and how.
    AofIo {
        /// A thread: one write and one sync for all that has gathered meanwhile.
        Thread = "thread",
        /// The worker that ends its pass, as in Redis.
        Inline = "inline",
        /// A thread with a ring of its own: chains of a write and a sync.
        Uring = "uring",
    }
}

choices! {
    /// `aof-uring-order`: whether a chain waits for the one before it.
    AofUringOrder {
        /// It does.
        Flush = "flush",
        /// As many as the depth are on their way, in any order.
        None = "none",
    }
}

choices! {
    /// `aof-uring-completion`: how the end of a chain is waited for.
    AofUringCompletion {
        /// In the kernel.
        Event = "event",
        /// By looking at the ring.
        Spin = "spin",
    }
}

/// What a signal to stop asks for: bits of [`SHUTDOWN`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShutdownWish(pub(super) u8);

impl ShutdownWish {
    /// To save, save points or not.
    pub fn saves(self) -> bool {
        self.0 & 1 != 0
    }

    /// Not to save.
    pub fn saves_not(self) -> bool {
        self.0 & 2 != 0
    }

    /// To stop even if saving fails.
    pub fn forces(self) -> bool {
        self.0 & 8 != 0
    }
}

/// `shutdown-on-sigint` and `shutdown-on-sigterm`.
pub const SHUTDOWN: &[(&str, u8)] = &[("default", 0), ("save", 1), ("nosave", 2), ("now", 4), ("force", 8)];

/// `syslog-facility`, in the order of the facilities.
pub const SYSLOG_FACILITIES: &[(&str, u8)] = &[
    ("user", 0),
    ("local0", 1),
    ("local1", 2),
    ("local2", 3),
    ("local3", 4),
    ("local4", 5),
    ("local5", 6),
    ("local6", 7),
    ("local7", 8),
];
