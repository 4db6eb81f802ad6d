//! Workers, shards, the I/O engine, and what other servers have in their place.

use super::super::check;
use super::super::choices::{
    EpollFlush, EpollTrigger, IoEngine, IoModel, ReplyQueue, UringOrder, UringRecv, UringSubmit, UringWrite,
};
use super::super::directive::{Directive, bound, choice, flag, number, optional, text};

const WORKERS: &str = "use workers";
const IO_THREADS: &str = "use workers, or io-model phases";

/// The section's rows.
#[rustfmt::skip] // one row, one line
pub const DIRECTIVES: &[Directive] = &[
    number("workers", 0, (0, 1024), "Threads that each serve connections and run commands; 0 for one per core.").at_start().gimmal(),
    number("shards", 1024, (1, 16384), "Parts of the keyspace with a lock each, a power of two.").at_start().gimmal().check(check::shards),
    choice("io-engine", IoEngine::Auto as u8, IoEngine::WORDS, "How sockets are driven: io_uring, epoll, the better one this kernel allows; or, to compare with Curto's Redis of 2020, uring-send: epoll and read(2), and replies through a ring that carries nothing else.").at_start().gimmal(),
    choice("epoll-trigger", EpollTrigger::Edge as u8, EpollTrigger::WORDS, "With io-engine epoll: what the kernel reports of a connection: edge that it has become readable or writable, level (as Redis uses it, to compare) that it is so. Edge is the default, since it was measured to be 1 to 2 % faster.").at_start().gimmal(),
    choice("epoll-flush", EpollFlush::Group as u8, EpollFlush::WORDS, "With io-engine epoll: when replies are sent: behind each group of requests, at the end of a pass (loop, as Redis does, to compare), or behind each command (as Netty's epoll transport does, to compare).").at_start().gimmal(),
    choice("uring-recv", UringRecv::Multishot as u8, UringRecv::WORDS, "With io-engine uring: how bytes are received: by one entry for the life of a connection, by an entry for each receive (single), or as Netty's io_uring transport does, by an entry that waits until there is something and one that reads it (poll). The latter two to compare.").at_start().gimmal(),
    choice("uring-write", UringWrite::Send as u8, UringWrite::WORDS, "With io-engine uring: how replies are sent: by entries that send, or as Netty's io_uring transport does, by entries that write a vector, and ones that wait for room. The latter to compare.").at_start().gimmal(),
    number("uring-async-threshold", 0, (0, 4096), "With io-engine uring and uring-write writev: once more than so many entries wait, further ones are left to threads of the kernel (IOSQE_ASYNC), as Netty's io_uring transport does beyond 25; 0 for never. To compare.").at_start().gimmal(),
    choice("uring-submit", UringSubmit::Batch as u8, UringSubmit::WORDS, "With io-engine uring-send: whether the replies of a pass are submitted together, each by itself, or each by itself and waited for. From Curto, Evaluation of Redis using io_uring communication, 2020; to compare.").at_start().gimmal(),
    choice("uring-order", UringOrder::App as u8, UringOrder::WORDS, "With io-engine uring-send and uring-submit batch: who keeps the replies of a pipeline in order: app has one send in flight, of all replies so far; kernel makes each reply an entry, linked (IOSQE_IO_LINK) within a batch, and lets no batch begin before the one before is over (IOSQE_IO_DRAIN). From the same paper, to compare; slow.").at_start().gimmal(),
    number("uring-submit-threshold", 0, (0, 4096), "With io-engine uring-send and uring-submit batch: submit once so many replies wait, and not before, as long as there is something else to do; 0 for once a pass. Proposed by the same paper; to compare.").at_start().gimmal(),
    number("uring-submit-interval-us", 0, (0, 1_000_000), "With io-engine uring-send and uring-submit batch: let replies wait so many microseconds for others, however many passes that are; 0 for once a pass. Proposed by the same paper; to compare: it adds to the latency.").at_start().gimmal(),
    choice("io-model", IoModel::Workers as u8, IoModel::WORDS, "Which threads do what: each of the workers reads, executes and writes; or, to compare, with one worker and epoll: phases (Redis 6's threaded I/O, measured by Oliveira, 2019: one executes, several write and perhaps read together, and wait for each other) or queue (Curto, Evaluation of Redis Performing Asynchronous I/O With Concurrent Queues, 2021: one reads and executes, others write).").at_start().gimmal(),
    number("io-threads", 1, (1, 128), "Threads of Redis and Valkey that read and write sockets; with io-model phases, how many in all, the worker's included.").at_start().ignored(IO_THREADS),
    flag("io-threads-do-reads", false, "Let those threads read, too, and find the commands.").at_start().ignored(IO_THREADS),
    choice("reply-queue", ReplyQueue::Lock as u8, ReplyQueue::WORDS, "With io-model queue: the queue between the worker and those who write: a lock around a linked list; Michael and Scott's queue without locks (1996); or the b-RR distributed queue of Haas and others (2013), nearly first in, first out. To compare.").at_start().gimmal(),
    number("reply-threads", 3, (1, 127), "With io-model queue: threads that write replies; the paper counts the worker, too.").at_start().gimmal(),
    text("reply-queue-partial", "auto", "With reply-queue distributed: partial queues, auto for one per processor as in the paper, or a number up to 1024.").at_start().gimmal().check(check::partial_queues),
    number("reply-queue-balancers", 1, (1, 128), "With reply-queue distributed: round-robin counters that share out enqueues and dequeues over the threads; more of them are less contended, and less in order.").at_start().gimmal(),
    number("events-per-io-thread", 2, bound::INT, "Events per loop that wake another I/O thread of Valkey.").valkey().ignored(WORKERS),
    number("prefetch-batch-max-size", 16, (0, 128), "Commands whose keys Valkey prefetches together.").valkey().ignored("a pipeline is prefetched whole"),
    optional("server_cpulist", "Processors for the serving threads.").alias(&["server-cpulist"]).at_start().not_yet(),
    optional("bio_cpulist", "Processors for background threads.").alias(&["bio-cpulist"]).at_start().not_yet(),
    optional("aof_rewrite_cpulist", "Processors for rewriting the append-only file.").alias(&["aof-rewrite-cpulist"]).at_start().not_yet(),
    optional("bgsave_cpulist", "Processors for saving a snapshot.").alias(&["bgsave-cpulist"]).at_start().not_yet(),
];
