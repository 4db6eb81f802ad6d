//! Operations that answer later: one thread, a list by time, and those that wait until the rules are cleared.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What is done when the time has come; true if it is over before that.
type Action = Box<dyn FnOnce(bool) + Send>;

/// Operations that wait.
pub struct Delays {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    timed: Vec<(Instant, Action)>,
    stuck: Vec<Action>,
    is_over: bool,
}

impl Delays {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn new() -> std::io::Result<Self> {
        let shared = Arc::new(Shared { waiting: Mutex::default(), changed: Condvar::new() });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("crashfs-delay".to_owned()).spawn(move || of_thread.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Does it after the time.
    pub fn after(&self, delay: Duration, action: Action) {
        self.shared.lock().timed.push((Instant::now() + delay, action));
        self.shared.changed.notify_one();
    }

    /// Does it when released.
    pub fn stuck(&self, action: Action) {
        self.shared.lock().stuck.push(action);
    }

    /// Ends what is stuck.
    pub fn release(&self) {
        let stuck = std::mem::take(&mut self.shared.lock().stuck);
        for action in stuck {
            action(false);
        }
    }

    /// Ends everything early.
    pub fn give_up(&self) {
        let mut waiting = self.shared.lock();
        let stuck = std::mem::take(&mut waiting.stuck);
        let timed = std::mem::take(&mut waiting.timed);
        drop(waiting);
        for action in stuck.into_iter().chain(timed.into_iter().map(|(_, action)| action)) {
            action(true);
        }
    }
}

impl Drop for Delays {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_one();
        self.give_up();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            thread.join().expect("the thread of delays does not panic");
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("nobody panics with the lock")
    }

    fn run(&self) {
        let mut waiting = self.lock();
        while !waiting.is_over {
            let first = (0..waiting.timed.len()).min_by_key(|at| waiting.timed[*at].0);
            let left = first.map(|at| waiting.timed[at].0.saturating_duration_since(Instant::now()));
            match (first, left) {
                (Some(at), Some(Duration::ZERO)) => {
                    let (_, action) = waiting.timed.swap_remove(at);
                    drop(waiting);
                    action(false);
                    waiting = self.lock();
                }
                (_, Some(left)) => {
                    let woken = self.changed.wait_timeout(waiting, left);
                    waiting = woken.expect("nobody panics with the lock").0;
                }
                _ => waiting = self.changed.wait(waiting).expect("nobody panics with the lock"),
            }
        }
    }
}
