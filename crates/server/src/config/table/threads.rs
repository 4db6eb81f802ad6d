//! Workers, shards, the I/O engine, and what other servers have in their place.

use super::super::check;
use super::super::choices::IoEngine;
use super::super::directive::{Directive, bound, choice, flag, number, optional};

const WORKERS: &str = "use workers";

/// The section's rows.
#[rustfmt::skip] // one row, one line
pub const DIRECTIVES: &[Directive] = &[
    number("workers", 0, (0, 1024), "Threads that each serve connections and run commands; 0 for one per core.").at_start().gimmal(),
    number("shards", 1024, (1, 16384), "Parts of the keyspace with a lock each, a power of two.").at_start().gimmal().check(check::shards),
    choice("io-engine", IoEngine::Auto as u8, IoEngine::WORDS, "How sockets are driven: io_uring, epoll, or the better one this kernel allows.").at_start().gimmal(),
    number("io-threads", 1, (1, 128), "Threads of Redis and Valkey that read and write sockets.").at_start().ignored(WORKERS),
    flag("io-threads-do-reads", false, "Let those threads read too.").at_start().ignored(WORKERS),
    number("events-per-io-thread", 2, bound::INT, "Events per loop that wake another I/O thread of Valkey.").valkey().ignored(WORKERS),
    number("prefetch-batch-max-size", 16, (0, 128), "Commands whose keys Valkey prefetches together.").valkey().ignored("a pipeline is prefetched whole"),
    optional("server_cpulist", "Processors for the serving threads.").alias(&["server-cpulist"]).at_start().not_yet(),
    optional("bio_cpulist", "Processors for background threads.").alias(&["bio-cpulist"]).at_start().not_yet(),
    optional("aof_rewrite_cpulist", "Processors for rewriting the append-only file.").alias(&["aof-rewrite-cpulist"]).at_start().not_yet(),
    optional("bgsave_cpulist", "Processors for saving a snapshot.").alias(&["bgsave-cpulist"]).at_start().not_yet(),
];
