//! Models of the watermark: workers sleep until a position is released, the releaser wakes at most two, these wake the
//! next. A lost wake is a deadlock, which loom reports.

#![cfg(loom)]

use std::sync::Arc;

use gimmal_log::{Appender, Log, Lsn};
use loom::sync::Notify;

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

fn sleeper(log: &Arc<Log>, worker: usize) -> (Appender, loom::sync::Arc<Notify>) {
    let bell = loom::sync::Arc::new(Notify::new());
    let rung = bell.clone();
    log.set_waker(worker, Box::new(move || rung.notify()));
    (log.appender(worker), bell)
}

/// What a worker does that has nothing but held replies up to `lsn`.
fn sleep_until_released((mut appender, bell): (Appender, loom::sync::Arc<Notify>), lsn: Lsn) {
    while appender.log().released() < lsn {
        if appender.await_release(lsn) {
            bell.wait();
        }
        appender.awake();
    }
}

#[test]
fn one_sleeper_two_steps() {
    check(4, || {
        let log = Log::new(1, 100);
        let worker = sleeper(&log, 0);
        let thread = loom::thread::spawn(move || sleep_until_released(worker, 2));
        log.release(1);
        log.release(2);
        thread.join().unwrap();
    });
}

/// With two wakes per scan, the third sleeper is woken by one of the first two, or wakes by itself.
#[test]
fn three_sleepers_one_release() {
    check(2, || {
        let log = Log::new(3, 100);
        let workers: Vec<_> = (0..3).map(|worker| sleeper(&log, worker)).collect();
        let threads: Vec<_> =
            workers.into_iter().map(|worker| loom::thread::spawn(move || sleep_until_released(worker, 1))).collect();
        log.release(1);
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

/// Two threads move the watermark; sleepers wait for different positions, one of them twice.
#[test]
fn two_releasers_two_sleepers() {
    check(2, || {
        let log = Log::new(2, 100);
        let (first, second) = (sleeper(&log, 0), sleeper(&log, 1));
        let releaser = {
            let log = Arc::clone(&log);
            loom::thread::spawn(move || log.release(2))
        };
        let threads = [
            loom::thread::spawn(move || sleep_until_released(first, 1)),
            loom::thread::spawn(move || sleep_until_released(second, 2)),
        ];
        log.release(1);
        releaser.join().unwrap();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}
