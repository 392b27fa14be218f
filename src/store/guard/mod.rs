//! Guards mappings whose pages may become unreadable.
//!
//! Reading a page of a mapped file raises SIGBUS if the file was truncated or the disk fails to deliver the page. By
//! default, SIGBUS ends the process. With this module's handler installed, the missing page of a guarded mapping reads
//! as zeros, and the fault is counted. Readers check the count before they use the bytes that they read. A SIGBUS for
//! any other address goes to the handler that was installed before.
//!
//! Reasons and evidence: `docs/decisions/bus-errors.md`.

mod handler;
mod ranges;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::ops::{Deref, Range};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence};

use memmap2::Mmap;
use nix::sys::signal::{SigSet, Signal};

use ranges::{Entry, Ranges};

/// The length of a patch: a range of memory that is replaced with zeros after one fault. A patch is as long as the
/// largest page of any system, because a part of a page cannot be replaced.
const PATCH_LEN_BYTES: usize = 64 << 10;
/// The number of faults in a mapping after which the whole mapping is replaced with zeros. Until then, each fault adds
/// a separate mapping of zeros, and a Linux process can have at most 65,530 mappings by default.
const PATCHES_MAX: u64 = 256;
/// The maximum number of patches in all mappings together. A patch is a range that was replaced with zeros after a
/// fault.
const PATCHES_TOTAL_MAX: usize = 16 << 10;

#[cfg(not(all(test, loom)))]
static RANGES: Ranges = Ranges { newest: AtomicPtr::new(ptr::null_mut()) };
// Loom's atomics cannot be created in a constant.
#[cfg(all(test, loom))]
static RANGES: std::sync::LazyLock<Ranges> = std::sync::LazyLock::new(Ranges::default);
/// The number of patches (ranges that were replaced with zeros) in the mappings that are guarded now.
static PATCHES: AtomicUsize = AtomicUsize::new(0);

/// Turns faults in mapped files into errors: from now on, a lookup that reads a missing page returns
/// [`LookupError::Damaged`](super::LookupError), and the process continues.
///
/// This function installs a handler for SIGBUS in the whole process. If a SIGBUS does not concern a mapped table, this
/// handler passes the signal to the handler that was installed before. If other code has replaced this handler since
/// the last call of this function, this call installs the handler again, in front of the other code's handler.
///
/// A server calls this function when it binds and before it opens a file. A direct client, and
/// [`MappedStore::open`](super::MappedStore::open), call it before they map a file. Other programs may call it, too.
///
/// # Errors
/// Fails if the system does not install the handler, or if other code has replaced the handler 8 times.
pub fn survive_bus_errors() -> io::Result<()> {
    // A fault whose signal is blocked ends the process without a call of the handler.
    unblock(Signal::SIGBUS);
    handler::ensure_installed()
}

/// Unblocks a signal in this thread and in the threads that this thread starts later. The signal may be blocked,
/// because a process inherits the blocked signals of its parent.
pub(super) fn unblock(signal: Signal) {
    // The system call fails only if its operation is unknown, so the error is ignored.
    let _ = SigSet::from(signal).thread_unblock();
}

/// A read-only mapping whose faults are counted.
pub(super) struct Guarded {
    /// The mapping's entry in the list of guarded ranges.
    entry: &'static Entry,
    /// The mapping. The memory is unmapped after [`Guarded::drop`] has removed the entry.
    memory: Mmap,
}

impl Guarded {
    /// Guards a mapping of a file.
    pub(super) fn new(memory: Mmap) -> Guarded {
        // The system maps whole pages of at least 4 KiB, so the bytes from the end of the slice up to the next multiple
        // of 4 KiB are mapped, too. With longer pages, the kernel rounds the end of a patch up to the end of the page.
        let start = memory.as_ptr().addr();
        let end = start + memory.len().next_multiple_of(4096);
        Guarded { entry: RANGES.insert(start..end), memory }
    }

    /// Returns the number of faults in this mapping.
    #[inline]
    pub(super) fn faults(&self) -> u64 {
        self.entry.faults.load(Ordering::Acquire)
    }
}

impl Deref for Guarded {
    type Target = Mmap;

    fn deref(&self) -> &Mmap {
        &self.memory
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let patches = self.faults().min(PATCHES_MAX);
        self.entry.remove();
        PATCHES.fetch_sub(patches as usize, Ordering::Relaxed);
    }
}

impl fmt::Debug for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guarded").field("len_bytes", &self.memory.len()).field("faults", &self.faults()).finish()
    }
}

/// Replaces the pages around a faulting address with zeros, and counts the fault. Returns `false` if no guarded mapping
/// contains the address, or if the system has no memory for the zeros. Called by the signal handler.
fn patch(address: usize) -> bool {
    let Some((entry, range)) = RANGES.find(address) else { return false };
    let faults = entry.faults.fetch_add(1, Ordering::AcqRel);
    // A batch that copies the zeros finds the fault. The kernel orders the two, too, but does not document it.
    fence(Ordering::Release);
    let total = if faults < PATCHES_MAX { PATCHES.fetch_add(1, Ordering::Relaxed) } else { 0 };
    let patch_start = address - address % PATCH_LEN_BYTES;
    let around = range.start.max(patch_start)..range.end.min(patch_start + PATCH_LEN_BYTES);
    let is_small = faults < PATCHES_MAX && total < PATCHES_TOTAL_MAX;
    // SAFETY: `RANGES` contains exactly the ranges of live `Guarded`, which own their mappings: `Guarded::new` inserts
    // the range of a mapping, and `Drop` removes it before the mapping is unmapped. `find` does not mix two ranges (see
    // `Entry::range`). The range stays mapped until this function returns, because the thread that the handler
    // interrupted was reading `address` through a borrow of the `Guarded`, or through a slice that the owner of the
    // `Guarded` lends for no longer than the `Guarded` lives. So nothing except that mapping is mapped at `around`.
    if is_small && unsafe { replace_with_zeros(&around) } {
        return true;
    }
    // Replacing the whole range adds no mapping, so it succeeds where a small patch would exceed the system's limit.
    // SAFETY: The proof for `around` applies to all of `range`.
    unsafe { replace_with_zeros(&range) }
}

/// Returns whether a guarded mapping contains an address.
fn is_guarded(address: usize) -> bool {
    RANGES.find(address).is_some()
}

/// Maps zeros over a range. Returns `false` if the system cannot do this.
///
/// # Safety
/// The range must be within one read-only mapping of a file that a [`Guarded`] owns until this function returns. Some
/// of its pages may be copies (`page_copies.rs`). The pages stay readable, but their bytes change, which all code that
/// reads a mapped file through `Map` must expect.
unsafe fn replace_with_zeros(range: &Range<usize>) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    let start = ptr::without_provenance_mut(range.start);
    // SAFETY: The caller guarantees that nothing else is mapped there. The arguments ask for anonymous memory.
    let mapped = unsafe { libc::mmap(start, range.len(), libc::PROT_READ, flags, -1, 0) };
    mapped != libc::MAP_FAILED
}
