//! Snapshots and the append-only file.

use super::super::check;
use super::super::choices::{AofAck, AofIo, AofUringCompletion, AofUringOrder, Appendfsync, OnError};
use super::super::directive::{Directive, Form, bound, bytes, choice, flag, list, number, text};

/// The section's rows.
#[rustfmt::skip] // one row, one line
pub const DIRECTIVES: &[Directive] = &[
    list("save", "3600 1 300 100 60 10000", Form::SavePoints, "Save a snapshot after so many seconds with so many writes; several pairs, or \"\" for never."),
    flag("stop-writes-on-bgsave-error", true, "Refuse writes after a snapshot failed."),
    flag("rdbcompression", true, "Compress strings in snapshots and in payloads of DUMP."),
    flag("rdbchecksum", true, "End snapshots with a checksum, and check it.").at_start(),
    choice("sanitize-dump-payload", 0, &[("no", 0), ("yes", 1), ("clients", 2)], "Check every value of a snapshot and of RESTORE in depth.").ignored("values are always checked"),
    text("dbfilename", "dump.rdb", "Name of the snapshot in the working directory.").protected().check(check::dbfilename),
    flag("rdb-del-sync-files", false, "Remove snapshots made only for replication.").not_yet(),
    flag("rdb-save-incremental-fsync", true, "Sync a snapshot piece by piece while it is written."),
    flag("appendonly", false, "Log every write to the append-only file.").fixed_while_loading(),
    text("appendfilename", "appendonly.aof", "First part of the names of the append-only files.").at_start().check(check::appendfilename),
    text("appenddirname", "appendonlydir", "Directory of the append-only files, in the working directory.").at_start().check(check::appenddirname),
    choice("appendfsync", Appendfsync::EverySec as u8, Appendfsync::WORDS, "When a write is synced: before it is acknowledged, once a second, or when the kernel likes."),
    choice("aof-ack", AofAck::Durable as u8, AofAck::WORDS, "What a reply waits for: with durable for the sync (appendfsync always) or the write to the file (everysec, no) of what it shows; with memory for nothing.").gimmal(),
    choice("aof-on-error", OnError::Exit as u8, OnError::WORDS, "What follows when the log cannot be written or synced, after which nothing is acknowledged any more: exit, or serve reads of what is on disk.").gimmal(),
    choice("aof-io", AofIo::Thread as u8, AofIo::WORDS, "Who writes the log: a thread of its own, the worker that ends its pass (as Redis does), or a thread with a ring of its own.").at_start().gimmal(),
    bytes("aof-preallocate", 256 << 10, (0, 64 << 20), "Space that is written ahead of the log's end with appendfsync always, so that a sync need not change the file's size; 0 for none.").gimmal(),
    choice("aof-uring-order", AofUringOrder::Flush as u8, AofUringOrder::WORDS, "With aof-io uring: whether a group waits for the one before it.").at_start().gimmal(),
    choice("aof-uring-completion", AofUringCompletion::Event as u8, AofUringCompletion::WORDS, "With aof-io uring: how the end of a group is waited for, in the kernel or by looking at the ring.").at_start().gimmal(),
    number("aof-uring-depth", 64, (1, 4096), "With aof-io uring and without order: how many groups are on their way.").at_start().gimmal(),
    flag("aof-uring-sqpoll", false, "With aof-io uring: a thread of the kernel takes what is submitted.").at_start().gimmal(),
    number("aof-uring-workers", 2, (0, 1024), "With aof-io uring: how many threads of the kernel write and sync at most; 0 for its default.").at_start().gimmal(),
    flag("no-appendfsync-on-rewrite", false, "Do not sync while a snapshot or rewrite is written.").ignored("a rewrite does not hold up syncing"),
    number("auto-aof-rewrite-percentage", 100, bound::INT, "Growth in percent since the last rewrite that starts the next; 0 for never."),
    bytes("auto-aof-rewrite-min-size", 64 << 20, bound::SIZE, "Size below which no rewrite starts by itself."),
    flag("aof-load-truncated", true, "Start from a file whose end was cut off, without that end."),
    flag("aof-use-rdb-preamble", true, "Begin a rewritten file with a snapshot, not with commands."),
    flag("aof-timestamp-enabled", false, "Write times into the file, so that it can be cut at one."),
    flag("aof-rewrite-incremental-fsync", true, "Sync a rewritten file piece by piece."),
    flag("aof-disable-auto-gc", false, "Keep files that a rewrite has replaced.").hidden(),
    number("rdb-key-save-delay", 0, bound::ANY_INT, "Microseconds to wait after each key saved, for tests.").hidden(),
    number("key-load-delay", 0, bound::ANY_INT, "Microseconds to wait after each key loaded, for tests.").hidden(),
    number("loading-process-events-interval-bytes", 2 << 20, (1024, i32::MAX as i64), "Bytes loaded between two looks at clients.").hidden().ignored("loading and clients have threads of their own"),
];
