//! Atomics and waiting for `gate.rs`, exchanged for loom's under `cfg(loom)` so that the very code that runs is model-checked.
//!
//! The alternative, a trait over atomics, would put type parameters on every structure that holds a gate.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

/// Waiting for another thread's store: spin shortly, then yield, then sleep in steps of 50 µs.
///
/// The spin is short because workers may outnumber cores: whoever is waited for may need this core.
#[derive(Default)]
pub(crate) struct Wait {
    turns: u32,
}

#[cfg(not(loom))]
impl Wait {
    const SPINS: u32 = 64;
    const YIELDS: u32 = 64;

    pub(crate) fn turn(&mut self) {
        if self.turns < Self::SPINS {
            std::hint::spin_loop();
        } else if self.turns < Self::SPINS + Self::YIELDS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(std::time::Duration::from_micros(50));
            return;
        }
        self.turns += 1;
    }
}

#[cfg(loom)]
impl Wait {
    pub(crate) fn turn(&mut self) {
        self.turns += 1;
        loom::thread::yield_now();
    }
}

/// A value alone on its pair of cache lines, so that its writers do not slow readers of its neighbours (x86 fetches lines in
/// pairs).
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);
