//! When the allocator returns memory to the system.

/// The smallest allocation that becomes a mapping of its own. It is above the buffers of idle connections and below
/// the pending responses of a client that does not read, which are up to 64 KiB.
#[cfg(target_env = "gnu")]
const MAPPED_MIN_LEN_BYTES: i32 = 32 << 10;

/// Makes the allocator return large allocations to the system as soon as they are freed.
///
/// By default, glibc takes allocations below 128 KiB (below up to 32 MiB, once a large one was freed) from heaps that
/// shrink only at their end. The buffers of thousands of clients that do not read would stay there.
pub(crate) fn return_large_allocations() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `mallopt` sets a number of the allocator, and no other thread exists yet.
    let is_set = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_MIN_LEN_BYTES) };
    #[cfg(target_env = "gnu")]
    debug_assert_eq!(is_set, 1, "glibc takes thresholds up to 32 MiB");
}
