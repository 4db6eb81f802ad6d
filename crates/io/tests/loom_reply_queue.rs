//! The reply queues under loom: every interleaving of small cases, with the memory model's reorderings.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p gimmal-io --release --test loom_reply_queue`; without the flag the file is
//! empty.
#![cfg(loom)]

use gimmal_io::{ReplyQueue, ReplyQueueKind, Turn};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

const STRICT: [ReplyQueueKind; 2] = [ReplyQueueKind::Lock, ReplyQueueKind::Ms];
const DISTRIBUTED: ReplyQueueKind = ReplyQueueKind::Distributed { partial: 2, balancers: 1 };

fn model(preemptions: usize, case: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(case);
}

fn queue(kind: ReplyQueueKind, threads: usize) -> Arc<ReplyQueue> {
    let queue = Arc::new(ReplyQueue::new(kind, threads));
    queue.reserve(2);
    queue
}

/// Two threads put two values each in; what each one put comes out in order, and all of it.
#[test]
fn what_threads_put_in_comes_out_once_and_in_order() {
    for kind in STRICT {
        model(5, move || {
            let queue = queue(kind, 2);
            let other = {
                let queue = Arc::clone(&queue);
                thread::spawn(move || queue.put(&mut Turn::new(1), 10))
            };
            let mut turn = Turn::new(0);
            queue.put(&mut turn, 0);
            let first = queue.try_take(&mut turn);
            other.join().unwrap();
            let second = queue.try_take(&mut turn);
            assert!([(Some(0), Some(10)), (Some(10), Some(0))].contains(&(first, second)), "{first:?} {second:?}");
            assert_eq!(queue.try_take(&mut turn), None);
        });
    }
}

/// Takers race for values while nodes are freed and used again.
#[test]
fn takers_share_what_is_there() {
    for kind in [ReplyQueueKind::Lock, ReplyQueueKind::Ms, DISTRIBUTED] {
        model(4, move || {
            let queue = queue(kind, 2);
            let mut turn = Turn::new(0);
            queue.put(&mut turn, 1);
            queue.put(&mut turn, 2);
            let other = {
                let queue = Arc::clone(&queue);
                thread::spawn(move || {
                    let mut turn = Turn::new(1);
                    let taken = queue.try_take(&mut turn);
                    queue.put(&mut turn, 3);
                    taken.expect("there are two, and one other taker")
                })
            };
            let first = queue.try_take(&mut turn).expect("there are two, and one other taker");
            let theirs = other.join().unwrap();
            let mut all = [first, theirs, queue.try_take(&mut turn).expect("one was put in at the end")];
            all.sort_unstable();
            assert_eq!(all, [1, 2, 3]);
            assert_eq!(queue.try_take(&mut turn), None);
        });
    }
}

/// One thread stands still in the middle of taking or putting while the other one uses the same nodes again: only their tags
/// and the second look at the ends tell.
#[test]
fn who_is_behind_is_not_deceived_by_nodes_that_are_used_again() {
    model(4, || {
        let queue = queue(ReplyQueueKind::Ms, 2);
        let mut turn = Turn::new(0);
        queue.put(&mut turn, 1);
        let other = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                let mut turn = Turn::new(1);
                let first = queue.try_take(&mut turn);
                queue.put(&mut turn, 2);
                [first, queue.try_take(&mut turn)]
            })
        };
        let mine = queue.try_take(&mut turn);
        let theirs = other.join().unwrap();
        let mut all: Vec<_> = [mine, theirs[0], theirs[1], queue.try_take(&mut turn)].into_iter().flatten().collect();
        all.sort_unstable();
        assert_eq!(all, [1, 2]);
    });
    model(4, || {
        let queue = queue(ReplyQueueKind::Ms, 2);
        let mut turn = Turn::new(0);
        queue.put(&mut turn, 1);
        let other = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                let mut turn = Turn::new(1);
                queue.put(&mut turn, 2);
                queue.try_take(&mut turn).expect("there is what was put last, or what was before");
                queue.put(&mut turn, 3);
            })
        };
        // There is at least one value all the time.
        assert!(queue.try_take(&mut turn).is_some());
        other.join().unwrap();
    });
    model(4, || {
        let queue = queue(ReplyQueueKind::Ms, 2);
        let mut turn = Turn::new(0);
        let other = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                let mut turn = Turn::new(1);
                queue.put(&mut turn, 2);
                queue.try_take(&mut turn).expect("there is what was put last, or what was before");
                queue.put(&mut turn, 3);
            })
        };
        queue.put(&mut turn, 1);
        // The other thread takes one, and only after it has put one.
        assert!(queue.try_take(&mut turn).is_some());
        other.join().unwrap();
    });
}

/// A value that is in the queue all the time is found, though others come and go in the other partial queue: the distributed
/// queue is not said to be empty.
#[test]
fn a_distributed_queue_is_empty_only_if_it_is() {
    model(5, || {
        let queue = queue(DISTRIBUTED, 2);
        let mut turn = Turn::new(0);
        // Into the second partial queue, while the first one is empty.
        queue.put(&mut turn, 7);
        assert_eq!(queue.try_take(&mut turn), Some(7));
        queue.put(&mut turn, 8);
        let other = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                let mut turn = Turn::new(1);
                queue.put(&mut turn, 9);
                queue.try_take(&mut turn).expect("one of two is left for each taker")
            })
        };
        let mine = queue.try_take(&mut turn).expect("there is one all the time");
        let mut both = [mine, other.join().unwrap()];
        both.sort_unstable();
        assert_eq!(both, [8, 9]);
    });
}

/// Who sleeps is woken for each value; a lost wake-up is a deadlock, which loom reports.
#[test]
fn a_sleeper_is_woken() {
    for kind in STRICT {
        model(5, move || {
            let queue = queue(kind, 2);
            let taker = {
                let queue = Arc::clone(&queue);
                thread::spawn(move || {
                    let mut turn = Turn::new(1);
                    (queue.take(&mut turn), queue.take(&mut turn))
                })
            };
            let mut turn = Turn::new(0);
            queue.put(&mut turn, 1);
            queue.put(&mut turn, 2);
            assert_eq!(taker.join().unwrap(), (Some(1), Some(2)));
        });
    }
}

/// Two sleepers and two values: both are woken, though one may take what the other was woken for.
#[test]
fn each_value_wakes_a_sleeper() {
    model(4, || {
        let queue = queue(ReplyQueueKind::Lock, 3);
        let sum = Arc::new(AtomicU32::new(0));
        let takers: Vec<_> = (1..3)
            .map(|thread| {
                let (queue, sum) = (Arc::clone(&queue), Arc::clone(&sum));
                thread::spawn(move || {
                    let value = queue.take(&mut Turn::new(thread)).expect("it is not stopped");
                    sum.fetch_add(value, Ordering::Relaxed);
                })
            })
            .collect();
        let mut turn = Turn::new(0);
        queue.put(&mut turn, 1);
        queue.put(&mut turn, 2);
        takers.into_iter().for_each(|taker| taker.join().unwrap());
        assert_eq!(sum.load(Ordering::Relaxed), 3);
    });
}

/// A stop wakes who sleeps and who is about to; what is inside is taken first.
#[test]
fn a_stop_ends_all_waits() {
    model(5, || {
        let queue = queue(ReplyQueueKind::Lock, 2);
        let taker = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.take(&mut Turn::new(1)))
        };
        queue.put(&mut Turn::new(0), 1);
        queue.stop();
        // It may come too late to sleep, but not to take what is there.
        assert_eq!(taker.join().unwrap(), Some(1));
    });
}
