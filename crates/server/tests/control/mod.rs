//! Tells the machine's stalls from the server's: a thread that wants to run every millisecond, and notes when it could not.
//! It shares nothing with the server but the machine.

// Each test uses a part of this.
#![allow(dead_code)]

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often it wants to run.
const PERIOD: Duration = Duration::from_millis(1);
/// What is shorter is ordinary scheduling.
const LATE: Duration = Duration::from_millis(4);
/// How often a measurement is made, if the machine spoils it each time.
const TRIES: u32 = 5;

/// The thread that would run; it ends when this is dropped.
pub struct Control {
    noted: Arc<Noted>,
    thread: Option<JoinHandle<()>>,
}

struct Noted {
    is_over: AtomicBool,
    gaps: Mutex<Gaps>,
}

struct Gaps {
    /// From when to when it did not run.
    past: Vec<(Instant, Instant)>,
    last_run: Instant,
}

impl Control {
    /// Starts to run.
    pub fn start() -> Control {
        let gaps = Mutex::new(Gaps { past: Vec::new(), last_run: Instant::now() });
        let noted = Arc::new(Noted { is_over: AtomicBool::new(false), gaps });
        let thread = std::thread::spawn({
            let noted = Arc::clone(&noted);
            move || run(&noted)
        });
        Control { noted, thread: Some(thread) }
    }

    /// For how long, between two moments, it could not run.
    pub fn held_up(&self, from: Instant, to: Instant) -> Duration {
        let gaps = self.noted.gaps.lock().expect("nobody panics with it");
        // Whoever asks may have been woken before the control was.
        let all = gaps.past.iter().copied().chain([(gaps.last_run, to)]);
        let late = all.filter(|(since, until)| until.saturating_duration_since(*since) > LATE);
        late.map(|(since, until)| until.min(to).saturating_duration_since(since.max(from))).sum()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.noted.is_over.store(true, Relaxed);
        let ended = self.thread.take().expect("dropped once").join();
        // A second panic would hide the first.
        if !std::thread::panicking() {
            ended.expect("the control ends well");
        }
    }
}

fn run(noted: &Noted) {
    while !noted.is_over.load(Relaxed) {
        std::thread::sleep(PERIOD);
        let now = Instant::now();
        let mut gaps = noted.gaps.lock().expect("nobody panics with it");
        let since = std::mem::replace(&mut gaps.last_run, now);
        if now - since > LATE {
            gaps.past.push((since, now));
        }
    }
}

/// Measures, and again only if what was found is not good and the machine stood still meanwhile for more than a third of
/// the limit in question; at most [`TRIES`] times, and the last time counts.
pub fn measured<T>(limit: Duration, mut measure: impl FnMut(&Control) -> T, is_good: impl Fn(&T) -> bool) -> T {
    let mut tries = 1;
    loop {
        let (control, started) = (Control::start(), Instant::now());
        let found = measure(&control);
        let held_up = control.held_up(started, Instant::now());
        if is_good(&found) || held_up <= limit / 3 || tries == TRIES {
            return found;
        }
        eprintln!("measured again: the machine itself stood still for {held_up:?}");
        tries += 1;
    }
}
