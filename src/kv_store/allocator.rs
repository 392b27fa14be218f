//! Configures when the allocator returns memory to the system.

/// The minimum length of an allocation that gets its own mapping. The buffers of an idle connection are shorter. The
/// buffer of responses that a client does not read grows beyond this length, to about 64 KiB.
#[cfg(target_env = "gnu")]
const MAPPED_MIN_LEN_BYTES: i32 = 32 << 10;

/// Makes the allocator return large allocations to the system as soon as they are freed.
///
/// By default, glibc takes allocations below a threshold from heaps, and a heap shrinks only at its end. The threshold
/// is 128 KiB at first, and rises to at most 32 MiB when larger allocations are freed. With this default, the buffers
/// of thousands of clients would stay in the heaps after the clients have disconnected.
pub(crate) fn return_large_allocations() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `mallopt` only sets a parameter of the allocator, and no other thread exists yet.
    let is_set = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_MIN_LEN_BYTES) };
    #[cfg(target_env = "gnu")]
    debug_assert_eq!(is_set, 1, "glibc takes thresholds up to 32 MiB");
}
