//! Which I/O model a configuration asks for: the default engines, or one of the papers.
//!
//! A setting that the chosen model does not know is refused, rather than ignored: a comparison would not compare what it says.

use crate::config::{Config, EpollFlush, EpollTrigger, Id, IoEngine, IoModel, ReplyQueue};
use crate::config::{UringOrder, UringRecv, UringSubmit, UringWrite};
use crate::parsed;
use gimmal_io::{Choice, EpollOptions, FindRequests, Flush, Model, Order, PhasesOptions, QueueOptions, ReceiveBy};
use gimmal_io::{ReplyQueueKind, Submit, Trigger, UringModelOptions, UringSendOptions, WriteBy};
use std::time::Duration;

/// What to run, or which two settings contradict each other, and why.
pub fn choice(config: &Config) -> Result<Choice, String> {
    let engine = config.io_engine();
    if config.io_model() != IoModel::Workers {
        return one_worker(config);
    }
    if let Some(id) = OF_QUEUE.iter().find(|id| is_given(config, **id)) {
        return Err(contradiction(config, *id, MODEL, IoModel::Queue.word(), "no other model has a reply queue"));
    }
    for (needed, why, ids) in BELONGS {
        let given = ids.iter().find(|id| is_given(config, **id));
        if let Some(id) = given.filter(|_| *needed != engine) {
            return Err(contradiction(config, *id, Id::of("io-engine"), needed.word(), why));
        }
    }
    Ok(match engine {
        IoEngine::Auto => Choice::Auto,
        IoEngine::Uring => uring(config)?,
        IoEngine::Epoll => epoll(config),
        IoEngine::UringSend => Choice::Model(Model::UringSend(uring_send(config)?)),
    })
}

/// The models in which one thread executes and others help it.
fn one_worker(config: &Config) -> Result<Choice, String> {
    let model = config.io_model();
    let engine = config.io_engine();
    if !matches!(engine, IoEngine::Auto | IoEngine::Epoll) {
        let why = "threads that share sockets with the worker read and write them by system calls";
        return Err(contradiction(config, MODEL, Id::of("io-engine"), IoEngine::Epoll.word(), why));
    }
    if config.workers() > 1 {
        return Err(contradiction(
            config,
            MODEL,
            Id::of("workers"),
            "1",
            "one thread executes, and the others help it",
        ));
    }
    let of_engines = BELONGS.iter().flat_map(|(_, _, ids)| ids.iter());
    if let Some(id) = of_engines.copied().find(|id| is_given(config, *id)) {
        let why = "the other models poll and flush as Redis does";
        return Err(contradiction(config, id, MODEL, IoModel::Workers.word(), why));
    }
    if model == IoModel::Phases {
        if let Some(id) = OF_QUEUE.iter().find(|id| is_given(config, **id)) {
            return Err(contradiction(config, *id, MODEL, IoModel::Queue.word(), "no other model has a reply queue"));
        }
        let reads = config.io_threads_do_reads().then_some(FindRequests(parsed::find));
        return Ok(Choice::Model(Model::Phases(PhasesOptions { threads: config.io_threads(), reads })));
    }
    let queue = match config.reply_queue() {
        ReplyQueue::Lock => ReplyQueueKind::Lock,
        ReplyQueue::Ms => ReplyQueueKind::Ms,
        ReplyQueue::Distributed => {
            let processors = || std::thread::available_parallelism().map_or(1, usize::from);
            let partial = config.reply_queue_partial().unwrap_or_else(processors);
            ReplyQueueKind::Distributed { partial, balancers: config.reply_queue_balancers() }
        }
    };
    if let Some(id) = OF_DISTRIBUTED.iter().find(|id| is_given(config, **id))
        && config.reply_queue() != ReplyQueue::Distributed
    {
        let why = "the others are one queue";
        return Err(contradiction(config, *id, QUEUE, ReplyQueue::Distributed.word(), why));
    }
    Ok(Choice::Model(Model::Queue(QueueOptions { queue, writers: config.reply_threads() })))
}

const MODEL: Id = Id::of("io-model");
const QUEUE: Id = Id::of("reply-queue");
const PARTIAL: Id = Id::of("reply-queue-partial");
const BALANCERS: Id = Id::of("reply-queue-balancers");

/// Settings of `io-model queue`, and those of its distributed queue.
const OF_QUEUE: &[Id] = &[QUEUE, Id::of("reply-threads"), PARTIAL, BALANCERS];
const OF_DISTRIBUTED: &[Id] = &[PARTIAL, BALANCERS];

const RECV: Id = Id::of("uring-recv");
const WRITE: Id = Id::of("uring-write");
const ASYNC: Id = Id::of("uring-async-threshold");
const SUBMIT: Id = Id::of("uring-submit");
const ORDER: Id = Id::of("uring-order");
const THRESHOLD: Id = Id::of("uring-submit-threshold");
const INTERVAL: Id = Id::of("uring-submit-interval-us");

/// Settings of one engine each, and why no other has them.
const BELONGS: &[(IoEngine, &str, &[Id])] = &[
    (IoEngine::Uring, "no other engine receives and sends by one ring", &[RECV, WRITE, ASYNC]),
    (
        IoEngine::Epoll,
        "no other engine is driven by epoll's events alone",
        &[Id::of("epoll-trigger"), Id::of("epoll-flush")],
    ),
    (
        IoEngine::UringSend,
        "only there replies have a ring of their own (a drained entry never completes beside an open receive)",
        &[SUBMIT, ORDER, THRESHOLD, INTERVAL],
    ),
];

fn epoll(config: &Config) -> Choice {
    let flush = match config.epoll_flush() {
        EpollFlush::Group => Flush::Group,
        EpollFlush::Loop => Flush::Loop,
        EpollFlush::Command => Flush::Command,
    };
    let trigger = match config.epoll_trigger() {
        EpollTrigger::Level => Trigger::Level,
        EpollTrigger::Edge if flush == Flush::Group => return Choice::Epoll,
        EpollTrigger::Edge => Trigger::Edge,
    };
    Choice::Model(Model::Epoll(EpollOptions { trigger, flush }))
}

fn uring(config: &Config) -> Result<Choice, String> {
    let receive = match config.uring_recv() {
        UringRecv::Multishot => ReceiveBy::Multishot,
        UringRecv::Single => ReceiveBy::Single,
        UringRecv::Poll => ReceiveBy::Poll,
    };
    let write = match config.uring_write() {
        UringWrite::Send => WriteBy::Send,
        UringWrite::Writev => WriteBy::Writev,
    };
    let async_threshold = config.uring_async_threshold().unsigned_abs();
    if write == WriteBy::Send && async_threshold > 0 {
        let why = "a send that waits for room would hold a thread of the kernel";
        return Err(contradiction(config, ASYNC, WRITE, UringWrite::Writev.word(), why));
    }
    let papers = UringModelOptions { receive, write, async_threshold };
    let is_usual = papers == UringModelOptions::default();
    Ok(if is_usual { Choice::Uring } else { Choice::Model(Model::Uring(papers)) })
}

fn uring_send(config: &Config) -> Result<UringSendOptions, String> {
    let submit = match config.uring_submit() {
        UringSubmit::Batch => Submit::Batch,
        UringSubmit::Async => Submit::Async,
        UringSubmit::Sequential => Submit::Sequential,
    };
    let order = match config.uring_order() {
        UringOrder::App => Order::App,
        UringOrder::Kernel => Order::Kernel,
    };
    if submit != Submit::Batch {
        let about_batches = [
            (ORDER, "links join the entries of one batch"),
            (THRESHOLD, "it says when a batch is submitted"),
            (INTERVAL, "it says when a batch is submitted"),
        ];
        if let Some((id, why)) = about_batches.into_iter().find(|(id, _)| is_given(config, *id)) {
            return Err(contradiction(config, id, SUBMIT, UringSubmit::Batch.word(), why));
        }
    }
    let interval = Duration::from_micros(config.uring_submit_interval_us() as u64);
    Ok(UringSendOptions { submit, order, threshold: config.uring_submit_threshold(), interval, ..Default::default() })
}

fn is_given(config: &Config, id: Id) -> bool {
    config.value(id) != Config::default().value(id)
}

/// Says that a directive does not go with another one, which would have to be as `needed`.
fn contradiction(config: &Config, id: Id, other: Id, needed: &str, why: &str) -> String {
    let say = |id: Id| format!("{} {}", id.directive().name, config.print(id));
    let name = other.directive().name;
    format!("{} contradicts {}: it needs {name} {needed}, since {why}", say(id), say(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn chosen(arguments: &str) -> Result<Choice, String> {
        let arguments: Vec<&str> = arguments.split(' ').filter(|word| !word.is_empty()).collect();
        choice(&config::read(&arguments).expect("legal by itself").config)
    }

    #[test]
    fn the_defaults_are_no_model() {
        assert_eq!(chosen(""), Ok(Choice::Auto));
        assert_eq!(chosen("--io-engine uring"), Ok(Choice::Uring));
        assert_eq!(chosen("--io-engine epoll --epoll-trigger edge --epoll-flush group"), Ok(Choice::Epoll));
        assert_eq!(chosen("--io-engine uring-send"), Ok(Choice::Model(Model::UringSend(UringSendOptions::default()))));
    }

    #[test]
    fn what_contradicts_itself_is_refused_with_both_names_and_a_reason() {
        let refusals = [
            (
                "--epoll-trigger level",
                "epoll-trigger level contradicts io-engine auto: it needs io-engine epoll, since",
            ),
            (
                "--io-engine uring --epoll-flush loop",
                "epoll-flush loop contradicts io-engine uring: it needs io-engine epoll, since",
            ),
            (
                "--io-engine epoll --uring-submit async",
                "uring-submit async contradicts io-engine epoll: it needs io-engine uring-send, since",
            ),
            (
                "--io-engine uring --uring-order kernel",
                "uring-order kernel contradicts io-engine uring: it needs io-engine uring-send, since",
            ),
            (
                "--io-engine uring --uring-async-threshold 25",
                "uring-async-threshold 25 contradicts uring-write send: it needs uring-write writev, since",
            ),
            (
                "--io-engine epoll --uring-recv poll",
                "uring-recv poll contradicts io-engine epoll: it needs io-engine uring, since",
            ),
            (
                "--io-engine uring-send --uring-submit async --uring-order kernel",
                "uring-order kernel contradicts uring-submit async: it needs uring-submit batch, since",
            ),
            (
                "--io-engine uring-send --uring-submit sequential --uring-submit-threshold 4",
                "uring-submit-threshold 4 contradicts uring-submit sequential: it needs uring-submit batch, since",
            ),
        ];
        for (arguments, begins) in refusals {
            let refusal = chosen(arguments).expect_err(arguments);
            assert!(refusal.starts_with(begins) && refusal.len() > begins.len() + 10, "{arguments}: {refusal}");
        }
    }

    #[test]
    fn one_worker_with_others_that_help_it() {
        let refusals = [
            ("--io-model queue --workers 2", "io-model queue contradicts workers 2: it needs workers 1, since"),
            (
                "--io-model phases --io-engine uring",
                "io-model phases contradicts io-engine uring: it needs io-engine epoll, since",
            ),
            (
                "--io-model queue --io-engine uring-send",
                "io-model queue contradicts io-engine uring-send: it needs io-engine epoll, since",
            ),
            (
                "--io-model queue --io-engine epoll --epoll-trigger level",
                "epoll-trigger level contradicts io-model queue: it needs io-model workers, since",
            ),
            ("--reply-queue ms", "reply-queue ms contradicts io-model workers: it needs io-model queue, since"),
            (
                "--io-model phases --reply-threads 7",
                "reply-threads 7 contradicts io-model phases: it needs io-model queue, since",
            ),
            (
                "--io-model queue --reply-queue ms --reply-queue-partial 4",
                "reply-queue-partial 4 contradicts reply-queue ms: it needs reply-queue distributed, since",
            ),
            (
                "--io-model queue --reply-queue-balancers 2",
                "reply-queue-balancers 2 contradicts reply-queue lock: it needs reply-queue distributed, since",
            ),
        ];
        for (arguments, begins) in refusals {
            let refusal = chosen(arguments).expect_err(arguments);
            assert!(refusal.starts_with(begins) && refusal.len() > begins.len() + 10, "{arguments}: {refusal}");
        }
        let queue = |queue, writers| Ok(Choice::Model(Model::Queue(QueueOptions { queue, writers })));
        assert_eq!(chosen("--io-model queue"), queue(ReplyQueueKind::Lock, 3));
        assert_eq!(
            chosen("--io-model queue --workers 1 --reply-queue ms --reply-threads 1"),
            queue(ReplyQueueKind::Ms, 1)
        );
        let distributed = ReplyQueueKind::Distributed { partial: 32, balancers: 2 };
        let arguments = "--io-model queue --reply-queue distributed --reply-queue-partial 32 --reply-queue-balancers 2 --io-engine epoll";
        assert_eq!(chosen(arguments), queue(distributed, 3));
        let phases = |threads, reads| Ok(Choice::Model(Model::Phases(PhasesOptions { threads, reads })));
        assert_eq!(chosen("--io-model phases"), phases(1, None));
        let reads = Some(FindRequests(parsed::find));
        assert_eq!(chosen("--io-model phases --io-threads 4 --io-threads-do-reads yes"), phases(4, reads));
        // As in a redis.conf: it is Redis's own, so it is no contradiction.
        assert_eq!(chosen("--io-threads 4 --io-threads-do-reads yes"), Ok(Choice::Auto));
    }

    #[test]
    fn settings_reach_the_model() {
        let options = UringSendOptions {
            order: Order::Kernel,
            threshold: 16,
            interval: Duration::from_micros(50),
            ..Default::default()
        };
        let arguments =
            "--io-engine uring-send --uring-order kernel --uring-submit-threshold 16 --uring-submit-interval-us 50";
        assert_eq!(chosen(arguments), Ok(Choice::Model(Model::UringSend(options))));
        let level = EpollOptions { trigger: Trigger::Level, flush: Flush::Loop };
        let arguments = "--io-engine epoll --epoll-trigger level --epoll-flush loop";
        assert_eq!(chosen(arguments), Ok(Choice::Model(Model::Epoll(level))));
    }
}
