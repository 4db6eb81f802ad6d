//! [`Bell`]: lets threads sleep until there may be something for them, without losing a wake-up.
//!
//! Who wants to sleep says so, looks once more, and only then sleeps. Who has put something down looks afterwards whether
//! anyone has said so, and if so hands out one permit. Both have a full fence between their own store and their look, so at
//! least one sees the other. A permit is handed out to each thread that has said so at most once: under load, when all
//! are busy, putting something down costs one load and no system call.
//!
//! Invariant: under the lock, `asleep` plus `permits` is the number of threads that have said that they want to sleep and
//! have not yet gone on.

use super::sync::{AtomicUsize, Condvar, Mutex, Relaxed, SeqCst, fence};

/// Where threads wait for work.
#[derive(Debug)]
pub(super) struct Bell {
    /// Written under the lock only.
    asleep: AtomicUsize,
    state: Mutex<State>,
    rung: Condvar,
}

#[derive(Debug)]
struct State {
    permits: usize,
    stopped: bool,
}

impl Bell {
    pub(super) fn new() -> Bell {
        let state = Mutex::new(State { permits: 0, stopped: false });
        Bell { asleep: AtomicUsize::new(0), state, rung: Condvar::new() }
    }

    /// Wakes one thread, if one sleeps or is about to; called after something was put where `look` finds it.
    pub(super) fn ring(&self) {
        fence(SeqCst);
        if self.asleep.load(Relaxed) == 0 {
            return;
        }
        let mut state = self.lock();
        let asleep = self.asleep.load(Relaxed);
        if asleep > 0 {
            self.asleep.store(asleep - 1, Relaxed);
            state.permits += 1;
            drop(state);
            self.rung.notify_one();
        }
    }

    /// Sleeps until `look` finds something; once the bell is stopped, `None` if it does not.
    pub(super) fn wait<T>(&self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        loop {
            {
                let state = self.lock();
                if state.stopped {
                    drop(state);
                    return look();
                }
                self.asleep.store(self.asleep.load(Relaxed) + 1, Relaxed);
            }
            fence(SeqCst);
            let found = look();
            let mut state = self.lock();
            if found.is_some() {
                // If a permit was meant for this thread, it has just done what the permit is for.
                match self.asleep.load(Relaxed) {
                    0 => state.permits -= 1,
                    asleep => self.asleep.store(asleep - 1, Relaxed),
                }
                return found;
            }
            while state.permits == 0 && !state.stopped {
                state = self.rung.wait(state).expect("nothing panics under this lock");
            }
            if state.permits == 0 {
                drop(state);
                return look();
            }
            state.permits -= 1;
            drop(state);
            if let Some(found) = look() {
                return Some(found);
            }
        }
    }

    /// Ends all waits, now and in future.
    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.rung.notify_all();
    }

    fn lock(&self) -> super::sync::MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics under this lock")
    }
}
