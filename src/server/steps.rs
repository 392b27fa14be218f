//! The work of a pass.
//!
//! In: work that was done. Out: whether other connections should have their turn. Work is counted in steps instead of
//! timed, so counting it costs next to nothing and tests can assert it. A step is work of at most about 100 ns: a
//! lookup, a visited row, or 64 bytes that were read or written.

use std::ops::ControlFlow;

use crate::store::verification_work_on_thread;

/// Steps after which a pass ends: about 1 ms.
pub(super) const PASS_STEPS_MAX: usize = 10_000;
/// Steps after which a connection's turn ends. Its last pass may exceed this by the steps of a pass.
pub(super) const TURN_STEPS_MAX: usize = 2 * PASS_STEPS_MAX;
/// Bytes that take one step to read, hash, compare, or copy.
pub(super) const STEP_LEN_BYTES: usize = 64;
/// Verification work of one step: reading this many tags of blocks.
const STEP_WORK: usize = 64;
/// Verification work after which a request is interrupted and repeated in the next turn.
pub(super) const VERIFICATION_WORK_MAX: usize = TURN_STEPS_MAX * STEP_WORK;

// Verification is interrupted only after more steps than a pass may take, so the pass ends.
const _: () = assert!(TURN_STEPS_MAX > PASS_STEPS_MAX);

/// The steps of one pass.
pub(super) struct Steps {
    counted: usize,
    verification_work_before: usize,
}

impl Steps {
    /// Begins a pass, with no steps.
    #[inline]
    pub(super) fn begin() -> Steps {
        Steps { counted: 0, verification_work_before: verification_work_on_thread() }
    }

    #[inline]
    pub(super) fn add(&mut self, steps: usize) {
        self.counted += steps;
    }

    /// Adds the steps for bytes that were read or written.
    #[inline]
    pub(super) fn add_bytes(&mut self, len_bytes: usize) {
        self.counted += len_bytes / STEP_LEN_BYTES;
    }

    /// Returns the steps so far, including the verification of blocks.
    #[inline]
    pub(super) fn total(&self) -> usize {
        self.counted + verification_work_on_thread().wrapping_sub(self.verification_work_before) / STEP_WORK
    }

    /// Returns `Break` if a run of lookups should end after the first `count`, because the pass has used up its steps.
    /// That happens if lookups had to verify blocks.
    ///
    /// The check costs more than a lookup, so it is made only after every 16th.
    #[inline]
    pub(super) fn goes_on_after(&self, count: usize) -> ControlFlow<()> {
        const EVERY_LOOKUPS: usize = 16;
        match count.is_multiple_of(EVERY_LOOKUPS) && self.are_enough() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// Returns whether the pass should end.
    #[inline]
    pub(super) fn are_enough(&self) -> bool {
        self.total() > PASS_STEPS_MAX
    }
}

#[cfg(test)]
thread_local! {
    /// The steps of all turns on this thread.
    pub(super) static USED_ON_THREAD: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
