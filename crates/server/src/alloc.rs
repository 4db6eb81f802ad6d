//! The process's allocator: mimalloc, with size classes of 8 bytes below 64 (see `.cargo/config.toml`).
//!
//! # Safety
//! The one block calls a function of mimalloc that takes no memory of ours.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Takes back what other threads freed of this thread's memory, so that it does not pile up while this one allocates
/// nothing itself.
pub fn collect() {
    // SAFETY: works on this thread's own heap; `false` frees only what is unused.
    unsafe { libmimalloc_sys::mi_collect(false) };
}
