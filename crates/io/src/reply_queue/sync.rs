//! The primitives that the models replace. Under `--cfg loom` they are loom's, which runs every interleaving and checks
//! every access against the memory model; otherwise they are the standard library's.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, fence};

#[cfg(loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

pub(crate) use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};

/// Others were faster: what they did is looked at once more. To loom this says that it must come into sight now.
#[cfg(loom)]
pub(crate) use loom::thread::yield_now as again;
#[cfg(not(loom))]
pub(crate) use std::hint::spin_loop as again;

/// A value alone on its cache lines (two: the adjacent line is prefetched with it), so that writing it slows nobody else.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);
