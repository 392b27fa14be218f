//! Asking for memory before it is needed.

const CACHE_LINE_LEN_BYTES: usize = 64;

/// Starts to load the cache line of `bytes[at]`, if there is such a byte, and
/// does not wait for it.
#[inline(always)]
pub(super) fn prefetch(bytes: &[u8], at: usize) {
    if let Some(byte) = bytes.get(at) {
        prefetch_line(byte);
    }
}

/// Starts to load all cache lines of a value, and does not wait for them.
#[inline(always)]
pub(super) fn prefetch_value<T>(value: &T) {
    let first: *const T = value;
    for line in 0..size_of::<T>().div_ceil(CACHE_LINE_LEN_BYTES) {
        prefetch_line(first.cast::<u8>().wrapping_add(line * CACHE_LINE_LEN_BYTES));
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch_line(byte: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: A prefetch is a hint: it reads nothing that the program sees, and faults on no address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(byte.cast()) };
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn prefetch_line(_: *const u8) {}
