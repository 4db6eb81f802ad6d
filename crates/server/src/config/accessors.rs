//! Typed access to values: by id, and by name for what the server asks for often.

use super::choices::{
    AofAck, AofIo, AofUringCompletion, AofUringOrder, Appendfsync, EpollFlush, EpollTrigger, Guarded, IoEngine,
    IoModel, LogLevel, MaxmemoryPolicy, OnError, OomScoreAdj, ReplyQueue, ShutdownWish, Supervised, UringOrder,
    UringRecv, UringSubmit, UringWrite,
};
use super::lists::{ClientClass, Events, OutputLimit, ReplicaOf, SavePoint};
use super::table::{Bytes, Choice, Flag, Id, Number, Text};
use super::{Config, Value};
use std::path::Path;

impl Config {
    /// A `yes`/`no` value: `config.flag(const { Flag::of("appendonly") })`.
    pub fn flag(&self, id: Flag) -> bool {
        match self.value(id.0) {
            Value::Flag(flag) => *flag,
            other => other.mismatch(id.0),
        }
    }

    /// An integer.
    pub fn number(&self, id: Number) -> i64 {
        match self.value(id.0) {
            Value::Number(number) => *number,
            other => other.mismatch(id.0),
        }
    }

    /// An integer as a narrower type, which the directive's bounds are known to fit.
    fn narrow<T: TryFrom<i64>>(&self, id: Number) -> T {
        match T::try_from(self.number(id)) {
            Ok(narrow) => narrow,
            Err(_) => self.value(id.0).mismatch(id.0),
        }
    }

    /// Bytes, or permission bits.
    pub fn bytes(&self, id: Bytes) -> u64 {
        match self.value(id.0) {
            Value::Bytes(bytes) => *bytes,
            other => other.mismatch(id.0),
        }
    }

    /// A text.
    pub fn text(&self, id: Text) -> &str {
        match self.value(id.0) {
            Value::Text(text) => text,
            other => other.mismatch(id.0),
        }
    }

    /// The code of a word, or the bits of several.
    pub fn choice(&self, id: Choice) -> u8 {
        match self.value(id.0) {
            Value::Choice(code) | Value::Choices(code) => *code,
            other => other.mismatch(id.0),
        }
    }
}

impl Value {
    /// A value that is not of its directive's type or bounds: whoever stored it did not read it through the table.
    #[cold]
    fn mismatch(&self, id: Id) -> ! {
        unreachable!("{} holds {self:?}", id.directive().name)
    }
}

/// One method per directive of a plain type.
macro_rules! plain {
    ($($(#[$doc:meta])* $method:ident: $kind:ident $name:literal;)+) => {
        impl Config {
            $(plain!(@ $(#[$doc])* $method $kind $name);)+
        }
    };
    (@ $(#[$doc:meta])* $method:ident flag $name:literal) => {
        $(#[$doc])*
        pub fn $method(&self) -> bool {
            self.flag(const { Flag::of($name) })
        }
    };
    (@ $(#[$doc:meta])* $method:ident count $name:literal) => {
        $(#[$doc])*
        pub fn $method(&self) -> usize {
            self.narrow(const { Number::within($name, 0, i64::MAX) })
        }
    };
    (@ $(#[$doc:meta])* $method:ident number $name:literal) => {
        $(#[$doc])*
        pub fn $method(&self) -> i64 {
            self.number(const { Number::of($name) })
        }
    };
    (@ $(#[$doc:meta])* $method:ident bytes $name:literal) => {
        $(#[$doc])*
        pub fn $method(&self) -> u64 {
            self.bytes(const { Bytes::of($name) })
        }
    };
    (@ $(#[$doc:meta])* $method:ident text $name:literal) => {
        $(#[$doc])*
        pub fn $method(&self) -> &str {
            self.text(const { Text::of($name) })
        }
    };
    (@ $(#[$doc:meta])* $method:ident int $name:literal) => {
        $(#[$doc])*
        pub fn $method(&self) -> i32 {
            self.narrow(const { Number::within($name, i32::MIN as i64, i32::MAX as i64) })
        }
    };
    (@ $(#[$doc:meta])* $method:ident size $name:literal) => {
        $(#[$doc])*
        pub fn $method(&self) -> usize {
            // More than the address space is as good as no limit.
            usize::try_from(self.bytes(const { Bytes::of($name) })).unwrap_or(usize::MAX)
        }
    };
}

plain! {
    /// Members of a sorted set kept compact.
    zset_max_listpack_entries: count "zset-max-listpack-entries";
    /// Longest member of a compact sorted set, in bytes.
    zset_max_listpack_value: size "zset-max-listpack-value";
    /// Serve only this host while there is no password.
    protected_mode: flag "protected-mode";
    /// Connections queued by the kernel.
    tcp_backlog: int "tcp-backlog";
    /// Idle seconds after which a client is closed; 0 for never.
    timeout: number "timeout";
    /// Seconds between TCP probes of an idle connection; 0 for none.
    tcp_keepalive: int "tcp-keepalive";
    /// Run in the background.
    daemonize: flag "daemonize";
    /// The log's file, relative to `dir`; empty for standard output.
    logfile: text "logfile";
    /// Print the logo even where the log is no terminal.
    always_show_logo: flag "always-show-logo";
    /// Show ports and mode in the process title.
    set_proc_title: flag "set-proc-title";
    /// Template of the process title; see [`super::title::expand`].
    proc_title_template: text "proc-title-template";
    /// Number of databases, at least 1.
    databases: count "databases";
    /// Rounds of background work per second.
    hz: count "hz";
    /// Threads that serve; 0 for one per core.
    workers: count "workers";
    /// With `io-model phases`: threads, the worker's included.
    io_threads: count "io-threads";
    /// With `io-model queue`: writing threads.
    reply_threads: count "reply-threads";
    /// With `reply-queue distributed`: balancers.
    reply_queue_balancers: count "reply-queue-balancers";
    /// With `io-engine uring`: entries that wait beyond which others are left to threads of the kernel; 0 for never.
    uring_async_threshold: int "uring-async-threshold";
    /// With `io-engine uring-send`: replies after which a batch is submitted; 0 for once a pass.
    uring_submit_threshold: count "uring-submit-threshold";
    /// With `io-engine uring-send`: how long a reply waits for others, in µs.
    uring_submit_interval_us: count "uring-submit-interval-us";
    /// Parts of the keyspace, a power of two.
    shards: count "shards";
    /// Most unfinished input of a client, in bytes.
    client_query_buffer_limit: size "client-query-buffer-limit";
    /// Longest argument, in bytes.
    proto_max_bulk_len: size "proto-max-bulk-len";
    /// Password of the default user; empty for none.
    requirepass: text "requirepass";
    /// Memory for data, in bytes; 0 for no limit.
    maxmemory: bytes "maxmemory";
    /// Keys compared to choose one to evict.
    maxmemory_samples: count "maxmemory-samples";
    /// See the reference.
    maxmemory_eviction_tenacity: number "maxmemory-eviction-tenacity";
    /// See the reference.
    lfu_log_factor: number "lfu-log-factor";
    /// Minutes.
    lfu_decay_time: number "lfu-decay-time";
    /// Up to which size a list is one listpack; see `NodeLimit`.
    list_max_listpack_size: number "list-max-listpack-size";
    /// 1 to 10.
    active_expire_effort: number "active-expire-effort";
    /// Let evicted values be freed in the background.
    lazyfree_lazy_eviction: flag "lazyfree-lazy-eviction";
    /// Let expired values be freed in the background.
    lazyfree_lazy_expire: flag "lazyfree-lazy-expire";
    /// Let overwritten values be freed in the background.
    lazyfree_lazy_server_del: flag "lazyfree-lazy-server-del";
    /// Let DEL free in the background.
    lazyfree_lazy_user_del: flag "lazyfree-lazy-user-del";
    /// Let FLUSHALL and FLUSHDB free in the background.
    lazyfree_lazy_user_flush: flag "lazyfree-lazy-user-flush";
    /// Fields of a compact hash.
    hash_max_listpack_entries: count "hash-max-listpack-entries";
    /// Longest field or value of a compact hash, in bytes.
    hash_max_listpack_value: size "hash-max-listpack-value";
    /// Members of a set of integers.
    set_max_intset_entries: count "set-max-intset-entries";
    /// Members of any other compact set.
    set_max_listpack_entries: count "set-max-listpack-entries";
    /// Longest member of a compact set, in bytes.
    set_max_listpack_value: size "set-max-listpack-value";
    /// Entries that trimming a stream with `~` removes at once; 0 for the default.
    stream_node_max_entries: count "stream-node-max-entries";
    /// Refuse writes after a failed snapshot.
    stop_writes_on_bgsave_error: flag "stop-writes-on-bgsave-error";
    /// Compress strings in snapshots.
    rdbcompression: flag "rdbcompression";
    /// Checksum snapshots.
    rdbchecksum: flag "rdbchecksum";
    /// µs to wait after each key loaded; negative: for so many keys.
    key_load_delay: number "key-load-delay";
    /// Name of the snapshot in `dir`.
    dbfilename: text "dbfilename";
    /// Sync snapshots piece by piece.
    rdb_save_incremental_fsync: flag "rdb-save-incremental-fsync";
    /// Microseconds to wait after each key saved; for tests.
    rdb_key_save_delay: number "rdb-key-save-delay";
    /// Log writes.
    appendonly: flag "appendonly";
    /// First part of the names of the log's files.
    appendfilename: text "appendfilename";
    /// Directory of the log's files, in `dir`.
    appenddirname: text "appenddirname";
    /// Percent of growth that starts a rewrite; 0 for never.
    auto_aof_rewrite_percentage: number "auto-aof-rewrite-percentage";
    /// Bytes below which no rewrite starts by itself.
    auto_aof_rewrite_min_size: bytes "auto-aof-rewrite-min-size";
    /// Start from a file whose end was cut off.
    aof_load_truncated: flag "aof-load-truncated";
    /// Write times into the log.
    aof_timestamp_enabled: flag "aof-timestamp-enabled";
    /// Space written ahead of the log's end.
    aof_preallocate: bytes "aof-preallocate";
    /// A kernel thread takes the log ring's submissions.
    aof_uring_sqpoll: flag "aof-uring-sqpoll";
    /// Sync a log's base piece by piece.
    aof_rewrite_incremental_fsync: flag "aof-rewrite-incremental-fsync";
    /// Keep files that a rewrite has replaced.
    aof_disable_auto_gc: flag "aof-disable-auto-gc";
    /// Begin a rewritten file with a snapshot.
    aof_use_rdb_preamble: flag "aof-use-rdb-preamble";
    /// Microseconds; negative for none.
    slowlog_log_slower_than: number "slowlog-log-slower-than";
    /// Commands the slow log remembers.
    slowlog_max_len: count "slowlog-max-len";
    /// Bytes; negative for none.
    commandlog_request_larger_than: number "commandlog-request-larger-than";
    /// Large requests that are remembered.
    commandlog_large_request_max_len: count "commandlog-large-request-max-len";
    /// Bytes; negative for none.
    commandlog_reply_larger_than: number "commandlog-reply-larger-than";
    /// Commands with large replies that are remembered.
    commandlog_large_reply_max_len: count "commandlog-large-reply-max-len";
    /// Milliseconds; 0 for none.
    latency_monitor_threshold: number "latency-monitor-threshold";
    /// Keep histograms of command times.
    latency_tracking: flag "latency-tracking";
    /// Measure the processor time of every command.
    command_cpu_tracking: flag "command-cpu-tracking";
    /// Milliseconds after which a script is slow.
    busy_reply_threshold: number "busy-reply-threshold";
    /// Keys remembered for caching clients; 0 for no limit.
    tracking_table_max_keys: count "tracking-table-max-keys";
    /// File with the users, relative to `dir`; empty for none.
    aclfile: text "aclfile";
    /// Refusals that ACL LOG remembers.
    acllog_max_len: count "acllog-max-len";
    /// Be a node of a cluster.
    cluster_enabled: flag "cluster-enabled";
    /// Refuse writes of clients on a replica.
    replica_read_only: flag "replica-read-only";
    /// Bytes of the stream kept for replicas that come back.
    repl_backlog_size: bytes "repl-backlog-size";
    /// Seconds a shutdown waits for replicas.
    shutdown_timeout: number "shutdown-timeout";
}

impl Config {
    /// TCP port; 0 for none.
    pub fn port(&self) -> u16 {
        self.narrow(const { Number::within("port", 0, u16::MAX as i64) })
    }

    /// Addresses to listen on; a leading `-` makes one optional, `*` and `::*` mean all.
    pub fn bind(&self) -> &[String] {
        const ID: Id = Id::of("bind");
        match self.value(ID) {
            Value::Addresses(addresses) => addresses,
            other => other.mismatch(ID),
        }
    }

    /// Permission bits of the Unix socket; none leaves them to the umask.
    pub fn unixsocketperm(&self) -> Option<u32> {
        match self.bytes(const { Bytes::of("unixsocketperm") }) {
            0 => None,
            bits => u32::try_from(bits).ok(),
        }
    }

    /// Path of the Unix socket, relative to `dir`.
    pub fn unixsocket(&self) -> Option<&str> {
        Some(self.text(const { Text::of("unixsocket") })).filter(|path| !path.is_empty())
    }

    /// The pid file, relative to `dir`: as set, or that of a daemon.
    pub fn pidfile(&self) -> Option<&str> {
        match self.text(const { Text::of("pidfile") }) {
            "" if self.daemonize() => Some("/var/run/gimmal.pid"),
            "" => None,
            path => Some(path),
        }
    }

    /// Connections served at once.
    pub fn maxclients(&self) -> u64 {
        self.narrow(const { Number::within("maxclients", 0, i64::MAX) })
    }

    /// The directory of data files, absolute.
    pub fn dir(&self) -> &Path {
        const ID: Id = Id::of("dir");
        match self.value(ID) {
            Value::Directory(path) => path,
            other => other.mismatch(ID),
        }
    }

    /// The least important messages that are logged.
    pub fn loglevel(&self) -> LogLevel {
        LogLevel::from_code(self.choice(const { Choice::of("loglevel") }))
    }

    /// Whom to tell that the server is ready.
    pub fn supervised(&self) -> Supervised {
        Supervised::from_code(self.choice(const { Choice::of("supervised") }))
    }

    /// Whether to adjust the OOM score.
    pub fn oom_score_adj(&self) -> OomScoreAdj {
        OomScoreAdj::from_code(self.choice(const { Choice::of("oom-score-adj") }))
    }

    /// How sockets are driven.
    pub fn io_engine(&self) -> IoEngine {
        IoEngine::from_code(self.choice(const { Choice::of("io-engine") }))
    }

    /// Which threads do what.
    pub fn io_model(&self) -> IoModel {
        IoModel::from_code(self.choice(const { Choice::of("io-model") }))
    }

    /// With `io-model phases`: the threads read, too.
    pub fn io_threads_do_reads(&self) -> bool {
        self.flag(const { Flag::of("io-threads-do-reads") })
    }

    /// With `io-model queue`: which queue.
    pub fn reply_queue(&self) -> ReplyQueue {
        ReplyQueue::from_code(self.choice(const { Choice::of("reply-queue") }))
    }

    /// With `reply-queue distributed`: partial queues; `None` for one per processor.
    pub fn reply_queue_partial(&self) -> Option<usize> {
        self.text(const { Text::of("reply-queue-partial") }).parse().ok()
    }

    /// What epoll reports.
    pub fn epoll_trigger(&self) -> EpollTrigger {
        EpollTrigger::from_code(self.choice(const { Choice::of("epoll-trigger") }))
    }

    /// How io_uring receives.
    pub fn uring_recv(&self) -> UringRecv {
        UringRecv::from_code(self.choice(const { Choice::of("uring-recv") }))
    }

    /// How io_uring sends.
    pub fn uring_write(&self) -> UringWrite {
        UringWrite::from_code(self.choice(const { Choice::of("uring-write") }))
    }

    /// When replies are submitted with `io-engine uring-send`.
    pub fn uring_submit(&self) -> UringSubmit {
        UringSubmit::from_code(self.choice(const { Choice::of("uring-submit") }))
    }

    /// Who keeps them in order.
    pub fn uring_order(&self) -> UringOrder {
        UringOrder::from_code(self.choice(const { Choice::of("uring-order") }))
    }

    /// When replies are sent with epoll.
    pub fn epoll_flush(&self) -> EpollFlush {
        EpollFlush::from_code(self.choice(const { Choice::of("epoll-flush") }))
    }

    /// Limit of unread replies of a class of clients.
    pub fn client_output_buffer_limit(&self, class: ClientClass) -> OutputLimit {
        const ID: Id = Id::of("client-output-buffer-limit");
        match self.value(ID) {
            Value::OutputLimits(limits) => limits[class as usize],
            other => other.mismatch(ID),
        }
    }

    /// Who may change protected directives.
    pub fn enable_protected_configs(&self) -> Guarded {
        Guarded::from_code(self.choice(const { Choice::of("enable-protected-configs") }))
    }

    /// Who may use DEBUG.
    pub fn enable_debug_command(&self) -> Guarded {
        Guarded::from_code(self.choice(const { Choice::of("enable-debug-command") }))
    }

    /// Who may load modules.
    pub fn enable_module_command(&self) -> Guarded {
        Guarded::from_code(self.choice(const { Choice::of("enable-module-command") }))
    }

    /// Which keys are evicted.
    pub fn maxmemory_policy(&self) -> MaxmemoryPolicy {
        MaxmemoryPolicy::from_code(self.choice(const { Choice::of("maxmemory-policy") }))
    }

    /// Bytes that the buffers of all clients may take; 0: no limit. A share of `maxmemory` is none if that has no limit.
    pub fn maxmemory_clients(&self) -> u64 {
        const ID: Id = Id::of("maxmemory-clients");
        match self.value(ID) {
            Value::Bytes(bytes) => *bytes,
            // 128 bits: a limit may be near the top of 64.
            Value::Percent(share) => {
                u64::try_from(u128::from(self.maxmemory()) * u128::from(*share) / 100).unwrap_or(u64::MAX)
            }
            other => other.mismatch(ID),
        }
    }

    /// When to save snapshots; empty for never.
    pub fn save(&self) -> &[SavePoint] {
        const ID: Id = Id::of("save");
        match self.value(ID) {
            Value::SavePoints(points) => points,
            other => other.mismatch(ID),
        }
    }

    /// What SIGINT does.
    pub fn shutdown_on_sigint(&self) -> ShutdownWish {
        ShutdownWish(self.choice(const { Choice::of("shutdown-on-sigint") }))
    }

    /// What SIGTERM does.
    pub fn shutdown_on_sigterm(&self) -> ShutdownWish {
        ShutdownWish(self.choice(const { Choice::of("shutdown-on-sigterm") }))
    }

    /// When a write is synced.
    pub fn appendfsync(&self) -> Appendfsync {
        Appendfsync::from_code(self.choice(const { Choice::of("appendfsync") }))
    }

    /// What a reply waits for.
    pub fn aof_ack(&self) -> AofAck {
        AofAck::from_code(self.choice(const { Choice::of("aof-ack") }))
    }

    /// What follows when the log can be written no more.
    pub fn aof_on_error(&self) -> OnError {
        OnError::from_code(self.choice(const { Choice::of("aof-on-error") }))
    }

    /// Who writes the log.
    pub fn aof_io(&self) -> AofIo {
        AofIo::from_code(self.choice(const { Choice::of("aof-io") }))
    }

    /// Whether chains of the log's ring wait for each other.
    pub fn aof_uring_order(&self) -> AofUringOrder {
        AofUringOrder::from_code(self.choice(const { Choice::of("aof-uring-order") }))
    }

    /// How the log's ring is waited for.
    pub fn aof_uring_completion(&self) -> AofUringCompletion {
        AofUringCompletion::from_code(self.choice(const { Choice::of("aof-uring-completion") }))
    }

    /// Chains in flight on the log's ring.
    pub fn aof_uring_depth(&self) -> u32 {
        self.narrow(const { Number::within("aof-uring-depth", 1, 4096) })
    }

    /// Kernel workers of the log's ring; 0 for the kernel's default.
    pub fn aof_uring_workers(&self) -> u32 {
        self.narrow(const { Number::within("aof-uring-workers", 0, 1024) })
    }

    /// Events published on changes of keys.
    pub fn notify_keyspace_events(&self) -> Events {
        const ID: Id = Id::of("notify-keyspace-events");
        match self.value(ID) {
            Value::Events(events) => *events,
            other => other.mismatch(ID),
        }
    }

    /// Percentiles of command times that INFO shows.
    pub fn latency_tracking_info_percentiles(&self) -> &[f64] {
        const ID: Id = Id::of("latency-tracking-info-percentiles");
        match self.value(ID) {
            Value::Percentiles(shares) => shares,
            other => other.mismatch(ID),
        }
    }

    /// The primary to follow at start.
    pub fn replica_of(&self) -> Option<&ReplicaOf> {
        const ID: Id = Id::of("replicaof");
        match self.value(ID) {
            Value::ReplicaOf(primary) => primary.as_ref(),
            other => other.mismatch(ID),
        }
    }
}
