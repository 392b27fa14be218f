//! Processor instructions that plain Rust does not offer, and accesses to slices with fewer checks of bounds than plain
//! Rust has.
//!
//! Reasons and evidence: `docs/decisions/short-responses.md`.

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
    #[cfg(target_arch = "aarch64")]
    {
        let address = items.as_ptr().wrapping_add(index);
        // `core::arch::aarch64::_prefetch` is not stable.
        // SAFETY: A prefetch is a hint: it reads nothing that the program sees, and faults on no address.
        unsafe {
            std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, readonly, preserves_flags));
        }
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = (items, index);
}

/// Work that [`run_with_new_instructions`] does.
pub(crate) trait Task {
    type Output;

    /// Does the work. An implementation must be `#[inline(always)]`, because only code that is inlined can use the new
    /// instructions.
    fn run(self) -> Self::Output;
}

/// Runs a task. If the processor has AVX2, BMI2, and MOVBE, as almost all x86-64 processors since 2015 have, runs a
/// copy of the task's code that the compiler built for these instructions.
#[inline(always)]
pub(crate) fn run_with_new_instructions<T: Task>(task: T) -> T::Output {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,bmi1,bmi2,movbe")]
        fn run<T: Task>(task: T) -> T::Output {
            task.run()
        }
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("movbe")
        {
            // SAFETY: The processor has all features that the function needs.
            return unsafe { run(task) };
        }
    }
    task.run()
}

/// Returns the item whose index is `fraction / 2⁶⁴ * items.len()`, rounded down. Returns `None` if there are no items.
#[inline(always)]
pub(crate) fn item_at_fraction<T>(items: &[T], fraction: u64) -> Option<&T> {
    if items.is_empty() {
        return None;
    }
    let index = ((u128::from(fraction) * items.len() as u128) >> u64::BITS) as usize;
    debug_assert!(index < items.len());
    // SAFETY: `fraction` is less than 2⁶⁴, so `index` is less than `items.len()`, which is not 0.
    Some(unsafe { items.get_unchecked(index) })
}

/// The ranges of `N` bytes of a slice.
#[derive(Clone, Copy)]
pub(crate) struct Windows<'a, const N: usize> {
    bytes: &'a [u8],
    /// The number of positions at which a range of `N` bytes can start. At most `bytes.len() - N + 1` if the slice has
    /// `N` bytes, and 0 otherwise.
    start_count: usize,
}

impl<'a, const N: usize> Windows<'a, N> {
    #[inline(always)]
    pub(crate) fn new(bytes: &'a [u8]) -> Windows<'a, N> {
        Windows { bytes, start_count: (bytes.len() + 1).saturating_sub(N) }
    }

    /// Returns the `N` bytes from `start` on, or `None` if they are not all inside the slice. Takes one comparison.
    #[inline(always)]
    pub(crate) fn at(&self, start: usize) -> Option<&'a [u8; N]> {
        if start >= self.start_count {
            return None;
        }
        debug_assert!(start + N <= self.bytes.len());
        // SAFETY: `start < start_count`, so `start_count` is not 0 and equals `bytes.len() + 1 - N`. Therefore,
        // `start + N` is at most `bytes.len()`.
        let window = unsafe { self.bytes.get_unchecked(start..start + N) };
        window.first_chunk()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fraction_selects_the_item_that_plain_rust_selects() {
        assert_eq!(item_at_fraction::<u8>(&[], u64::MAX), None);
        for len in [1_usize, 2, 3, 7, 255, 1000] {
            let items: Vec<usize> = (0..len).collect();
            let step = u64::MAX / 4999;
            for fraction in (0..5000_u64).map(|i| i.wrapping_mul(step)).chain([0, 1, u64::MAX - 1, u64::MAX]) {
                let expected = (u128::from(fraction) * len as u128 / (1 << 64)) as usize;
                assert_eq!(item_at_fraction(&items, fraction), items.get(expected), "{fraction} of {len}");
            }
        }
    }

    #[test]
    fn windows_are_exactly_the_ranges_inside_the_slice() {
        let bytes: Vec<u8> = (0..40).collect();
        for len_bytes in 0..bytes.len() {
            let slice = &bytes[..len_bytes];
            let windows = Windows::<'_, 16>::new(slice);
            for start in (0..50).chain([usize::MAX - 16, usize::MAX - 15, usize::MAX]) {
                let expected = start.checked_add(16).and_then(|end| slice.get(start..end));
                assert_eq!(windows.at(start).map(<[u8; 16]>::as_slice), expected, "{start} in {len_bytes}");
            }
        }
    }
}
