//! Processor instructions that plain Rust does not offer.

/// Prefetches the cache line in which the item at an index begins. An index beyond the end of `items` is allowed; the
/// prefetch is then useless.
#[inline(always)]
pub(crate) fn prefetch<T>(items: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let address = items.as_ptr().wrapping_add(index);
        // SAFETY: A prefetch is a hint: it reads nothing that the program sees, and faults on no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (items, index);
}
