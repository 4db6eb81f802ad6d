//! Asking the processor for a cache line ahead of its use.
//!
//! # Safety
//! A prefetch never faults and has no architectural effect, whatever the address: the pointer need not be valid.

/// Requests the line at `address` for writing.
#[inline(always)]
pub(crate) fn prefetch_to_write<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        // SAFETY: a hint that does not fault for any address; processors without it treat it as a no-op.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    prefetch(address);
}

/// Requests the line at `address` for reading.
#[inline(always)]
pub(crate) fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint that does not fault for any address; SSE is part of the x86-64 baseline.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(target_arch = "aarch64")]
    {
        // SAFETY: PRFM is a hint that does not fault for any address and changes neither memory nor flags.
        unsafe {
            std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, readonly, preserves_flags));
        }
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}
