//! Which I/O model a configuration asks for: the default engines, or one of the papers.
//!
//! A setting that the chosen model does not know is refused, rather than ignored: a comparison would not compare what it says.

use crate::config::{Config, EpollFlush, EpollTrigger, Id, IoEngine, UringOrder, UringSubmit};
use gimmal_io::{Choice, EpollOptions, Flush, Model, Order, Submit, Trigger, UringSendOptions};
use std::time::Duration;

/// What to run, or which two settings contradict each other, and why.
pub fn choice(config: &Config) -> Result<Choice, String> {
    let engine = config.io_engine();
    for (needed, why, ids) in BELONGS {
        let given = ids.iter().find(|id| is_given(config, **id));
        if let Some(id) = given.filter(|_| *needed != engine) {
            return Err(contradiction(config, *id, Id::of("io-engine"), needed.word(), why));
        }
    }
    Ok(match engine {
        IoEngine::Auto => Choice::Auto,
        IoEngine::Uring => Choice::Uring,
        IoEngine::Epoll => epoll(config),
        IoEngine::UringSend => Choice::Model(Model::UringSend(uring_send(config)?)),
    })
}

const SUBMIT: Id = Id::of("uring-submit");
const ORDER: Id = Id::of("uring-order");
const THRESHOLD: Id = Id::of("uring-submit-threshold");
const INTERVAL: Id = Id::of("uring-submit-interval-us");

/// Settings of one engine each, and why no other has them.
const BELONGS: &[(IoEngine, &str, &[Id])] = &[
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
