//! Asking the processor for a cache line ahead of its use.
//!
//! # Safety
//! A prefetch never faults and has no architectural effect, whatever the address: the pointer need not be valid.

/// Requests the line at `address` for writing: taken from the core that wrote it last, while other work goes on.
#[inline(always)]
pub(crate) fn prefetch_to_write<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        // By name, since the intrinsic becomes a prefetch for reading where the target does not promise this instruction.
        // SAFETY: PREFETCHW is a hint that does not fault for any address; processors without it treat it as no operation.
        unsafe {
            std::arch::asm!("prefetchw [{0}]", in(reg) address, options(nostack, readonly, preserves_flags));
        }
    }
    #[cfg(target_arch = "aarch64")]
    {
        // SAFETY: PRFM is a hint that does not fault for any address and changes neither memory nor flags.
        unsafe {
            std::arch::asm!("prfm pstl1keep, [{0}]", in(reg) address, options(nostack, readonly, preserves_flags));
        }
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
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

/// Requests all lines of some values at once, where reading them in turn would wait for one after another.
#[inline]
pub(crate) fn prefetch_all<T>(values: &[T]) {
    const LINE: usize = 64;
    let begin = values.as_ptr().cast::<u8>();
    for line in 0..size_of_val(values).div_ceil(LINE) {
        prefetch(begin.wrapping_add(line * LINE));
    }
}
