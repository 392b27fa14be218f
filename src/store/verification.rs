//! Counts the work that a thread does to verify blocks, and limits that work.
//!
//! In: the work of each lookup. Out: whether the lookup may continue. A server's worker sets a limit for each pass over
//! a connection's requests, and repeats a request that reached the limit. Blocks stay verified, so each repetition gets
//! further. Other threads have no limit: they verify a value of any length in one lookup.

use std::cell::Cell;

use crate::format::checksum::BLOCK_LEN_BYTES;

/// The work of verifying one block, including page faults: 200 units per KiB. One unit is the work of finding that a
/// block is already verified.
pub(super) const BLOCK_WORK: usize = 200 * BLOCK_LEN_BYTES / 1024;

/// The work of copying the pages of a block, verifying the copy, and releasing it later: about ten system calls. They
/// take longer than copying the bytes, even those of a page of 64 KiB.
const COPY_WORK: usize = 10 * BLOCK_WORK;

struct Meter {
    /// The total work that the thread has done. The count wraps around.
    done: Cell<usize>,
    /// How much more work the thread may do before verification is interrupted.
    left: Cell<usize>,
    is_interrupted: Cell<bool>,
    /// Whether this thread has [`FixedCopies`](super::page_copies::FixedCopies).
    has_fixed_copies: Cell<bool>,
}

thread_local! {
    static METER: Meter = const {
        Meter {
            done: Cell::new(0),
            left: Cell::new(usize::MAX),
            is_interrupted: Cell::new(false),
            has_fixed_copies: Cell::new(false),
        }
    };
}

/// Counts work whose result is not stored, so every lookup repeats the work.
pub(super) fn count(work: usize) {
    METER.with(|meter| meter.done.set(meter.done.get().wrapping_add(work)));
}

/// Counts work whose result later lookups reuse. Returns `true` if the caller may do the work. Returns `false`, and
/// does not count the work, if this thread has reached its limit.
pub(super) fn begin(work: usize) -> bool {
    METER.with(|meter| {
        let left = meter.left.get();
        if left == 0 {
            meter.is_interrupted.set(true);
            return false;
        }
        meter.left.set(left.saturating_sub(work));
        meter.done.set(meter.done.get().wrapping_add(work));
        true
    })
}

/// Like [`begin`], for a block whose pages must be copied. Returns `false` while this thread has
/// [`FixedCopies`](super::page_copies::FixedCopies).
pub(super) fn begin_copy() -> bool {
    let is_fixed = has_fixed_copies();
    METER.with(|meter| meter.is_interrupted.set(meter.is_interrupted.get() || is_fixed));
    !is_fixed && begin(COPY_WORK)
}

pub(super) fn has_fixed_copies() -> bool {
    METER.with(|meter| meter.has_fixed_copies.get())
}

/// Records whether this thread has [`FixedCopies`](super::page_copies::FixedCopies).
pub(super) fn fix_copies(is_fixed: bool) {
    METER.with(|meter| {
        meter.has_fixed_copies.set(is_fixed);
        meter.is_interrupted.set(false);
    });
}

/// Returns the verification work that this thread has done, in the unit that [`BLOCK_WORK`] defines. The count wraps
/// around.
#[cfg(feature = "server")]
#[inline]
pub(crate) fn verification_work_on_thread() -> usize {
    METER.with(|meter| meter.done.get())
}

/// Returns whether a lookup of this thread failed because the [`VerificationLimit`] was reached. The lookup has to be
/// repeated.
#[cfg(feature = "server")]
#[inline]
pub(crate) fn is_verification_interrupted() -> bool {
    METER.with(|meter| meter.is_interrupted.get())
}

/// Limits the verification work of this thread until the `VerificationLimit` is dropped.
///
/// A lookup that needs more work than the limit fails as if a block were damaged, and [`is_verification_interrupted`]
/// then returns `true` until the `VerificationLimit` is dropped. The block that reaches the limit is still verified, so
/// every limit above 0 allows progress.
#[cfg(feature = "server")]
pub(crate) struct VerificationLimit(());

#[cfg(feature = "server")]
impl VerificationLimit {
    #[inline]
    pub(crate) fn begin(work_max: usize) -> VerificationLimit {
        METER.with(|meter| meter.left.set(work_max));
        VerificationLimit(())
    }
}

#[cfg(feature = "server")]
impl Drop for VerificationLimit {
    #[inline]
    fn drop(&mut self) {
        METER.with(|meter| {
            meter.left.set(usize::MAX);
            meter.is_interrupted.set(false);
        });
    }
}
