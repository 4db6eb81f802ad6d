//! The gate under loom: every interleaving of small cases, with the memory model's reorderings.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p gimmal-store --release --test loom_gate`; without the flag the file is empty.
//!
//! # Safety
//! [`Place`] is shared between the model's threads only to let loom find out whether two of them are in it at once; its content
//! is never touched.
#![cfg(loom)]

use gimmal_store::{Batch, Gate};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

/// A place that may be in shared or in exclusive use; loom reports a violation, or one use not ordered after the other.
struct Place(UnsafeCell<()>);

// SAFETY: the content has no size and is never touched; loom checks the uses themselves.
unsafe impl Sync for Place {}
// SAFETY: as above.
unsafe impl Send for Place {}

impl Place {
    fn new() -> Self {
        Self(UnsafeCell::new(()))
    }

    fn shared(&self) {
        self.0.with(|_| ());
    }

    fn exclusive(&self) {
        self.0.with_mut(|_| ());
    }
}

fn model(preemptions: usize, case: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(case);
}

#[test]
fn a_closer_is_alone() {
    model(3, || {
        let shared = Arc::new((Gate::new(2), Place::new()));
        let worker = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for _ in 0..2 {
                    let batch = shared.0.enter(0);
                    shared.1.shared();
                    drop(batch);
                }
            })
        };
        // The other one closes the gate too, when it enters for the first time.
        loop {
            let batch = shared.0.enter(1);
            let Some(exclusive) = batch.try_close() else { continue };
            shared.1.exclusive();
            drop(exclusive);
            // Inside, but no longer exclusively.
            shared.1.shared();
            break;
        }
        worker.join().expect("the worker ends");
    });
}

/// A lock as a shard's: by a store while alone, else by a compare-exchange.
fn lock_once(gate: &Gate, owner: &AtomicUsize, place: &Place, participant: usize) {
    lock_in(&gate.enter(participant), owner, place, participant);
}

fn lock_in(batch: &Batch<'_>, owner: &AtomicUsize, place: &Place, participant: usize) {
    let locked = if batch.is_alone() {
        let free = owner.load(Ordering::Relaxed) == 0;
        if free {
            owner.store(participant + 1, Ordering::Relaxed);
        }
        free
    } else {
        owner.compare_exchange(0, participant + 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    };
    if locked {
        place.exclusive();
        owner.store(0, Ordering::Release);
    }
}

/// The first participant, on a thread of its own, locks twice.
fn lock_twice(shared: &Arc<(Gate, AtomicUsize, Place)>) -> thread::JoinHandle<()> {
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        for _ in 0..2 {
            lock_once(&shared.0, &shared.1, &shared.2, 0);
        }
    })
}

#[test]
fn locks_exclude_while_a_second_participant_comes() {
    model(3, || {
        let shared = Arc::new((Gate::new(2), AtomicUsize::new(0), Place::new()));
        let other = lock_twice(&shared);
        lock_once(&shared.0, &shared.1, &shared.2, 1);
        lock_once(&shared.0, &shared.1, &shared.2, 1);
        other.join().expect("the other thread ends");
    });
}

#[test]
fn locks_exclude_while_a_visitor_comes_and_goes() {
    model(3, || {
        let shared = Arc::new((Gate::new(2), AtomicUsize::new(0), Place::new()));
        let other = lock_twice(&shared);
        let visit = shared.0.visit(1);
        lock_in(&visit.enter(), &shared.1, &shared.2, 1);
        drop(visit);
        other.join().expect("the other thread ends");
    });
}

/// A shard that is lent: locked, then borrowed twice by its own participant, each time exclusively, then given back.
fn lend_once(gate: &Gate, owner: &AtomicUsize, place: &Place, participant: usize) {
    const LENT: usize = 1 << 31;
    let batch = gate.enter(participant);
    let locked = match batch.is_alone() {
        true => owner.load(Ordering::Relaxed) == 0,
        false => owner.compare_exchange(0, participant + 1, Ordering::Acquire, Ordering::Relaxed).is_ok(),
    };
    if !locked {
        return;
    }
    owner.store((participant + 1) | LENT, Ordering::Relaxed);
    for _ in 0..2 {
        assert_eq!(owner.load(Ordering::Relaxed), (participant + 1) | LENT, "nobody else takes what is lent");
        owner.store(participant + 1, Ordering::Relaxed);
        place.exclusive();
        owner.store((participant + 1) | LENT, Ordering::Release);
    }
    owner.store(0, Ordering::Release);
}

#[test]
fn what_is_lent_is_its_participants_alone() {
    model(3, || {
        let shared = Arc::new((Gate::new(2), AtomicUsize::new(0), Place::new()));
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                lock_once(&shared.0, &shared.1, &shared.2, 0);
                lend_once(&shared.0, &shared.1, &shared.2, 0);
            })
        };
        lend_once(&shared.0, &shared.1, &shared.2, 1);
        lock_once(&shared.0, &shared.1, &shared.2, 1);
        other.join().expect("the other thread ends");
    });
}

#[test]
fn of_two_closers_each_gets_its_turn() {
    fn close_once(gate: &Gate, place: &Place, participant: usize) {
        loop {
            let batch = gate.enter(participant);
            if let Some(exclusive) = batch.try_close() {
                place.exclusive();
                drop(exclusive);
                return;
            }
        }
    }
    model(2, || {
        let shared = Arc::new((Gate::new(2), Place::new()));
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || close_once(&shared.0, &shared.1, 0))
        };
        close_once(&shared.0, &shared.1, 1);
        other.join().expect("the other closer ends");
    });
}

/// A reader follows a link inside a batch; the writer exchanges the link, ends the epoch and frees what it replaced once no
/// batch can hold it. "Freed" is an exclusive use of the place: loom finds a reader that is still there.
fn retire_while_reading(batches: usize) {
    let shared = Arc::new((Gate::new(2), AtomicUsize::new(0), [Place::new(), Place::new()]));
    let reader = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            let (gate, link, places) = (&shared.0, &shared.1, &shared.2);
            for _ in 0..batches {
                let batch = gate.enter(0);
                places[link.load(Ordering::Acquire)].shared();
                drop(batch);
            }
        })
    };
    let (gate, link, places) = (&shared.0, &shared.1, &shared.2);
    let batch = gate.enter(1);
    link.store(1, Ordering::Release);
    drop(batch);
    let ended = gate.advance();
    if gate.oldest() > ended {
        places[0].exclusive();
    }
    reader.join().expect("the reader ends");
}

#[test]
fn nothing_is_freed_under_a_reader() {
    model(3, || retire_while_reading(1));
}

#[test]
fn nothing_is_freed_under_a_reader_of_several_batches() {
    model(3, || retire_while_reading(2));
}
