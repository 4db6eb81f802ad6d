//! Model of the reader's sleep: two workers append and ring, the reader sleeps whenever there is nothing to read, or gathers until
//! there is more or a worker sleeps. A lost wake is a deadlock, which loom reports.

#![cfg(loom)]

use gimmal_log::Log;
use loom::sync::{Arc, Notify};

#[test]
fn no_wake_is_lost() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let log = Log::new(2, 100);
        let mut reader = log.activate(0);
        let bell = Arc::new(Notify::new());
        let rung = bell.clone();
        log.set_reader_waker(Box::new(move || rung.notify()));
        let workers = [0, 1].map(|worker| {
            let mut appender = log.appender(worker);
            loom::thread::spawn(move || {
                appender.append(b"ab");
                appender.log().ring();
            })
        });
        loop {
            let readable = reader.readable();
            reader.consumed(readable);
            if readable == 4 {
                break;
            }
            if reader.may_sleep(readable) {
                bell.wait();
            }
        }
        for worker in workers {
            worker.join().unwrap();
        }
    });
}

#[test]
fn a_reader_that_gathers_is_woken_by_a_worker_that_sleeps() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let log = Log::new(1, 100);
        let mut reader = log.activate(0);
        let (bell, alarm) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (rung, woken) = (bell.clone(), alarm.clone());
        log.set_reader_waker(Box::new(move || rung.notify()));
        log.set_waker(0, Box::new(move || woken.notify()));
        let mut appender = log.appender(0);
        let worker = loom::thread::spawn(move || {
            let lsn = appender.append(b"ab");
            appender.log().ring();
            while appender.await_release(lsn) {
                alarm.wait();
            }
            appender.awake();
        });
        // More than will ever come: only the worker's sleep ends the wait.
        while reader.readable() < 2 {
            if reader.may_sleep(0) {
                bell.wait();
            }
        }
        if reader.may_gather(1000) {
            bell.wait();
        }
        reader.awake();
        reader.consumed(2);
        log.release(2);
        worker.join().unwrap();
    });
}
