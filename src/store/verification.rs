//! The work that a thread does to verify blocks, and a limit on that work.
//!
//! In: the work of each lookup. Out: whether the lookup may go on. A server's worker sets a limit for each pass over
//! requests and repeats a request that reached it. Blocks stay verified, so each repetition gets further. Other threads
//! have no limit and verify a value of any length at once.

use std::cell::Cell;

/// The work of verifying a block of 16 KiB, including page faults. The unit is the work of reading one tag.
pub(super) const BLOCK_WORK: usize = 3200;

struct Meter {
    /// All work of the thread. Wraps.
    done: Cell<usize>,
    /// Work until verification is interrupted.
    left: Cell<usize>,
    is_interrupted: Cell<bool>,
}

thread_local! {
    static METER: Meter = const {
        Meter { done: Cell::new(0), left: Cell::new(usize::MAX), is_interrupted: Cell::new(false) }
    };
}

/// Counts work that each lookup has to repeat.
pub(super) fn count(work: usize) {
    METER.with(|meter| meter.done.set(meter.done.get().wrapping_add(work)));
}

/// Counts work whose result later lookups reuse, and returns whether to do the work: `false` once the limit is reached.
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

/// Returns the verification work that this thread has done. The count wraps.
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

/// Limits the verification work of this thread until it is dropped.
///
/// A lookup that reaches the limit returns the same as for a damaged block, and [`is_verification_interrupted`] returns
/// `true` from then on. The block that reaches the limit is still verified, so every limit allows progress.
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
