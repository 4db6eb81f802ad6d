//! The process's allocator: that of `gimmal_store`, whose layouts are made for it.
//!
//! # Safety
//! Each block calls a function of mimalloc; those that write into memory of ours get pointers to locals of their type.

#[global_allocator]
static ALLOCATOR: gimmal_store::Allocator = gimmal_store::Allocator;

/// Takes back what other threads freed of this thread's memory, so that it does not pile up while this one allocates
/// nothing itself.
pub fn collect() {
    // SAFETY: works on this thread's own heap; `false` frees only what is unused.
    unsafe { libmimalloc_sys::mi_collect(false) };
}

/// Gives unused memory back to the system: of this thread's heap, and whatever threads have given up.
pub fn purge() {
    // SAFETY: works on this thread's own heap; it frees only what is unused.
    unsafe { libmimalloc_sys::mi_collect(true) };
}

/// What the allocator says of the process, for people.
pub fn report() -> String {
    let (mut elapsed_ms, mut user_ms, mut system_ms, mut page_faults) = (0, 0, 0, 0);
    let (mut resident, mut peak_resident, mut commit, mut peak_commit) = (0, 0, 0, 0);
    // SAFETY: every pointer is to a local that outlives the call.
    unsafe {
        libmimalloc_sys::mi_process_info(
            &mut elapsed_ms,
            &mut user_ms,
            &mut system_ms,
            &mut resident,
            &mut peak_resident,
            &mut commit,
            &mut peak_commit,
            &mut page_faults,
        );
    }
    // SAFETY: takes nothing and reads a constant.
    let version = unsafe { libmimalloc_sys::mi_version() };
    // Its resident size is an estimate on Linux; the kernel's is exact.
    let rss = crate::os::rss_bytes();
    format!(
        "allocator: mimalloc {version}\ncommitted: {commit} bytes, at most {peak_commit}\nresident: {rss} bytes\n\
         hard page faults: {page_faults}\n"
    )
}
