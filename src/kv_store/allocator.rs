//! How the allocator returns memory to the system.

/// The size from which on an allocation is a mapping of its own: above those of idle connections, below the pending
/// responses of a client that does not read, which are up to 64 KiB.
#[cfg(target_env = "gnu")]
const MAPPED_MIN_LEN_BYTES: i32 = 32 << 10;

/// Has large allocations returned to the system as soon as they are freed.
///
/// By default glibc takes those of less than 128 KiB, and after the first large one is freed up to 32 MiB, from heaps
/// that shrink only at their end. Thousands of clients that do not read would leave their buffers' memory there.
pub(crate) fn return_large_allocations() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it sets a number of the allocator, and is called before there is another thread.
    let is_set = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_MIN_LEN_BYTES) };
    #[cfg(target_env = "gnu")]
    debug_assert_eq!(is_set, 1, "glibc takes thresholds up to 32 MiB");
}
