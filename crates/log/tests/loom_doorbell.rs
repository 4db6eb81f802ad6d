//! Model of the reader's sleep: two workers append and ring, the reader sleeps whenever there is nothing to read. A lost
//! wake is a deadlock, which loom reports.

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
