//! Counts the work of a pass.
//!
//! In: work that was done. Out: whether other connections should get their turn. Work is counted in steps and not
//! timed, so that counting costs next to nothing and tests can check the counts. A step is work of at most about 100
//! ns: a lookup, a visited row, or 64 bytes that were read or written.
//!
//! Reasons and evidence: `docs/decisions/turns.md`.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::store::verification_work_on_thread;

/// The maximum number of steps after which a pass ends: about 1 ms of work. If many connections wait for their turn, a pass
/// ends earlier: see `Turn::begin`.
pub(in crate::server) const PASS_STEPS_MAX: usize = 10_000;
/// The number of steps after which a connection's turn ends. A turn ends only at the end of a pass, so the last pass of
/// a turn may take the turn past this number.
pub(in crate::server) const TURN_STEPS_MAX: usize = 2 * PASS_STEPS_MAX;
/// The time after which a pass, and its turn, end if its lookups may wait for the disk. Workers do not wait for the
/// pages of given keys, but for the rows of commands that scan the table.
const COLD_PASS_MAX: Duration = Duration::from_micros(500);
/// The number of bytes that are read, hashed, compared, or copied in one step.
pub(in crate::server) const STEP_LEN_BYTES: usize = 64;
/// The number of block tags that verification reads in one step. The tag of a block stores the epoch in which the block
/// was last verified.
const STEP_WORK: usize = 64;
/// The amount of verification work in one pass after which verification is interrupted. The unit is the work of reading
/// one block tag. An interrupted request is repeated in the next turn.
pub(in crate::server) const VERIFICATION_WORK_MAX: usize = TURN_STEPS_MAX * STEP_WORK;

// Verification is interrupted only after it has used more steps than a pass may take, so an interruption always ends
// the pass.
const _: () = assert!(TURN_STEPS_MAX > PASS_STEPS_MAX);

/// Counts the steps of one pass.
pub(in crate::server) struct Steps {
    counted: usize,
    /// The number of steps after which the pass ends.
    max: usize,
    /// The time at which the pass ends, if its lookups may wait for the disk.
    ends_at: Option<Instant>,
    verification_work_before: usize,
}

impl Steps {
    /// Starts to count the steps of a new pass, which ends after `max` steps.
    #[inline]
    pub(in crate::server) fn begin(max: usize) -> Steps {
        Steps { counted: 0, max, ends_at: None, verification_work_before: verification_work_on_thread() }
    }

    #[inline]
    pub(in crate::server) fn add(&mut self, steps: usize) {
        self.counted += steps;
    }

    /// Adds the steps of reading or writing bytes.
    #[inline]
    pub(in crate::server) fn add_bytes(&mut self, len_bytes: usize) {
        self.counted += len_bytes / STEP_LEN_BYTES;
    }

    /// Returns the number of steps so far, including the verification of blocks.
    #[inline]
    pub(in crate::server) fn total(&self) -> usize {
        self.counted + verification_work_on_thread().wrapping_sub(self.verification_work_before) / STEP_WORK
    }

    /// Returns `Break` if a run of lookups should end after `count` lookups, because the pass has used up its steps on
    /// verifying blocks.
    ///
    /// This check costs more than a lookup, so it takes place only if `count` is a multiple of 16.
    #[inline]
    pub(in crate::server) fn continue_after(&self, count: usize) -> ControlFlow<()> {
        const EVERY_LOOKUPS: usize = 16;
        match count.is_multiple_of(EVERY_LOOKUPS) && self.is_pass_over() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// Limits the time of the pass, because its lookups may wait for the disk.
    pub(in crate::server) fn limit_time(&mut self) {
        self.ends_at = Some(Instant::now() + COLD_PASS_MAX);
    }

    /// Returns whether the pass has used up its time. A pass whose lookups do not wait for the disk has no time limit.
    #[inline]
    pub(in crate::server) fn is_time_over(&self) -> bool {
        self.ends_at.is_some_and(|ends_at| Instant::now() >= ends_at)
    }

    /// Returns whether the pass should end.
    #[inline]
    pub(in crate::server) fn is_pass_over(&self) -> bool {
        self.total() > self.max || self.is_time_over()
    }
}

#[cfg(test)]
thread_local! {
    /// The number of steps of all turns that ran on this thread.
    pub(in crate::server) static USED_ON_THREAD: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
