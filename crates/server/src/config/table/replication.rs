//! Replication.

use super::super::check;
use super::super::directive::{Directive, Form, bound, bytes, choice, flag, list, number, optional};

/// The section's rows.
#[rustfmt::skip] // one row, one line
pub const DIRECTIVES: &[Directive] = &[
    list("replicaof", "no one", Form::ReplicaOf, "Follow this primary: host and port.").alias(&["slaveof"]).at_start().not_yet(),
    optional("masterauth", "Password for the primary.").alias(&["primaryauth"]).sensitive().not_yet(),
    optional("masteruser", "User name for the primary.").alias(&["primaryuser"]).sensitive().not_yet(),
    flag("replica-serve-stale-data", true, "Answer reads while there is no link to the primary.").alias(&["slave-serve-stale-data"]).not_yet(),
    flag("replica-read-only", true, "Refuse writes of clients on a replica.").alias(&["slave-read-only"]).not_yet(),
    flag("repl-diskless-sync", true, "Send a snapshot to replicas without a file.").not_yet(),
    number("repl-diskless-sync-delay", 5, bound::INT, "Seconds to wait for more replicas before that.").not_yet(),
    number("repl-diskless-sync-max-replicas", 0, bound::INT, "Replicas at which the wait ends early; 0 for no such number.").not_yet(),
    choice("repl-diskless-load", 0, DISKLESS_LOAD, "How a replica loads a snapshot: from a file, or from the socket when it is empty, beside its old data, or after dropping it.").fixed_while_loading().not_yet(),
    flag("dual-channel-replication-enabled", false, "Send the snapshot on a connection of its own.").valkey().not_yet(),
    flag("repl-disable-tcp-nodelay", false, "Send fewer, larger packets to replicas, later.").not_yet(),
    bytes("repl-backlog-size", 1 << 20, (1, i64::MAX as u64), "Stream kept for replicas that come back, at least 16kb.").check(check::backlog).not_yet(),
    number("repl-backlog-ttl", 3600, bound::LONG, "Seconds without replicas after which it is dropped; 0 for never.").not_yet(),
    number("repl-timeout", 60, bound::POSITIVE_INT, "Seconds of silence after which a link is given up.").not_yet(),
    number("repl-ping-replica-period", 10, bound::POSITIVE_INT, "Seconds between pings to replicas.").alias(&["repl-ping-slave-period"]).not_yet(),
    number("replica-priority", 100, bound::INT, "Sentinel promotes the replica with the lowest; 0 for never.").alias(&["slave-priority"]).not_yet(),
    flag("replica-announced", true, "Let Sentinel name this replica to clients.").not_yet(),
    optional("replica-announce-ip", "Address a replica reports.").alias(&["slave-announce-ip"]).not_yet(),
    number("replica-announce-port", 0, bound::PORT, "Port a replica reports; 0 for its own.").alias(&["slave-announce-port"]).not_yet(),
    flag("replica-ignore-maxmemory", true, "Leave eviction on a replica to its primary.").alias(&["slave-ignore-maxmemory"]).not_yet(),
    flag("replica-lazy-flush", false, "Drop a replica's old data in the background.").alias(&["slave-lazy-flush"]).ignored("large values are always freed in the background"),
    flag("replica-ignore-disk-write-errors", false, "Let a replica go on when it cannot write to disk.").not_yet(),
    choice("propagation-error-behavior", 0, &[("ignore", 0), ("panic", 1), ("panic-on-replicas", 2)], "What a replica does when a command of the stream fails.").not_yet(),
    number("min-replicas-to-write", 0, bound::INT, "Refuse writes with fewer replicas than this; 0 for never.").alias(&["min-slaves-to-write"]).not_yet(),
    number("min-replicas-max-lag", 10, bound::INT, "Seconds of silence after which a replica does not count.").alias(&["min-slaves-max-lag"]).not_yet(),
];

const DISKLESS_LOAD: &[(&str, u8)] = &[("disabled", 0), ("on-empty-db", 1), ("swapdb", 2), ("flush-before-load", 3)];
