//! The work of a pass over what a client sent.
//!
//! In: what was done. Out: whether other connections should have their turn. Work is
//! counted in steps and not timed, so counting it costs next to nothing and a test can
//! assert it. A step is work of at most about 100 ns: a lookup, a row that was visited, or
//! 64 bytes that were read or written.

use std::ops::ControlFlow;

use crate::store::verified_blocks_on_thread;

/// Steps after which a pass ends: about 1 ms.
pub(super) const PASS_STEPS_MAX: usize = 10_000;
/// Steps after which a connection's turn ends. Its last pass may add as many as a pass has.
pub(super) const TURN_STEPS_MAX: usize = 2 * PASS_STEPS_MAX;
/// Bytes that are one step to read, hash, compare or copy.
pub(super) const STEP_LEN_BYTES: usize = 64;
/// Steps to verify a block of 16 KiB on its first access, page faults included.
const BLOCK_STEPS: usize = 50;

/// The steps of one pass.
pub(super) struct Steps {
    counted: usize,
    verified_blocks_before: usize,
}

impl Steps {
    /// None yet.
    #[inline]
    pub(super) fn begin() -> Steps {
        Steps { counted: 0, verified_blocks_before: verified_blocks_on_thread() }
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

    /// The steps so far, those of blocks that lookups had to verify included.
    #[inline]
    pub(super) fn total(&self) -> usize {
        let verified_blocks = verified_blocks_on_thread().wrapping_sub(self.verified_blocks_before);
        self.counted + BLOCK_STEPS * verified_blocks
    }

    /// Ends a run of lookups after `count` of them if those had to verify so many blocks that the pass should end.
    ///
    /// The check costs more than a lookup, so it is made after every 16th.
    #[inline]
    pub(super) fn goes_on_after(&self, count: usize) -> ControlFlow<()> {
        const EVERY_LOOKUPS: usize = 16;
        match count.is_multiple_of(EVERY_LOOKUPS) && self.are_enough() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// Whether the pass should end.
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
