//! The turns of connections: counts the work of a pass, and what a pass returns to its connection.
//!
//! In: work that was done. Out: whether other connections should get their turn. Work is counted in steps and not
//! timed, so that counting costs next to nothing and tests can check the counts. A step is work of at most about 100
//! ns: a lookup, a visited row, or 64 bytes that were read or written.
//!
//! Reasons and evidence: `docs/decisions/turns.md`, `docs/decisions/two-protocols.md`.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::protocol::native::REQUEST_LEN_BYTES;
use crate::store::verification_work_on_thread;

/// The maximum number of steps after which a pass ends: about 1 ms of work. If many connections wait for their turn, a
/// pass ends earlier: see `Turn::begin`.
pub(super) const PASS_STEPS_MAX: usize = 10_000;
/// The number of steps after which a connection's turn ends. A turn ends only at the end of a pass, so the last pass of
/// a turn may take the turn past this number.
pub(super) const TURN_STEPS_MAX: usize = 2 * PASS_STEPS_MAX;
/// The time after which a pass, and its turn, end if its lookups may wait for the disk. Workers do not wait for the
/// pages of given keys, but for the rows of commands that scan the table.
const COLD_PASS_MAX: Duration = Duration::from_micros(500);
/// The number of bytes that are read, hashed, compared, or copied in one step.
pub(super) const STEP_LEN_BYTES: usize = 64;
/// The number of block tags that verification reads in one step. The tag of a block stores the epoch in which the block
/// was last verified.
const STEP_WORK: usize = 64;
/// The amount of verification work in one pass after which verification is interrupted. The unit is the work of reading
/// one block tag. An interrupted request is repeated in the next turn.
pub(super) const VERIFICATION_WORK_MAX: usize = TURN_STEPS_MAX * STEP_WORK;

// Verification is interrupted only after it has used more steps than a pass may take, so an interruption always ends
// the pass.
const _: () = assert!(TURN_STEPS_MAX > PASS_STEPS_MAX);

pub(super) struct Steps {
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
    pub(super) fn begin(max: usize) -> Steps {
        Steps { counted: 0, max, ends_at: None, verification_work_before: verification_work_on_thread() }
    }

    #[inline]
    pub(super) fn add(&mut self, steps: usize) {
        self.counted += steps;
    }

    #[inline]
    pub(super) fn add_bytes(&mut self, len_bytes: usize) {
        self.counted += len_bytes / STEP_LEN_BYTES;
    }

    /// Returns the number of steps so far, including the verification of blocks.
    #[inline]
    pub(super) fn total(&self) -> usize {
        // Only code that verifies a block counts its work, so lookups of verified blocks do not pay for the count.
        self.counted + verification_work_on_thread().wrapping_sub(self.verification_work_before) / STEP_WORK
    }

    /// Returns `Break` if a run of lookups should end after `count` lookups, because the pass has used up its steps on
    /// verifying blocks.
    ///
    /// This check costs more than a lookup, so it takes place only if `count` is a multiple of 16.
    #[inline]
    pub(super) fn continue_after(&self, count: usize) -> ControlFlow<()> {
        const EVERY_LOOKUPS: usize = 16;
        match count.is_multiple_of(EVERY_LOOKUPS) && self.is_pass_over() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// Limits the time of the pass, because its lookups may wait for the disk.
    pub(super) fn limit_time(&mut self) {
        self.ends_at = Some(Instant::now() + COLD_PASS_MAX);
    }

    /// Returns whether the pass has used up its time. A pass whose lookups do not wait for the disk has no time limit.
    #[inline]
    pub(super) fn is_time_over(&self) -> bool {
        self.ends_at.is_some_and(|ends_at| Instant::now() >= ends_at)
    }

    #[inline]
    pub(super) fn is_pass_over(&self) -> bool {
        self.total() > self.max || self.is_time_over()
    }
}

/// The maximum number of request bytes that are answered or read ahead in a turn.
const BYTES_MAX: usize = 4 * READ_LEN_BYTES;
const PASSES_MAX: usize = 16;
const SENT_BYTES_MAX: usize = 2 << 20;
/// The number of connections that have turns of full length. If more have work left, they share the time of this many
/// turns, about 8 ms, so that a new request of another connection does not wait much longer.
const FULL_TURNS_MAX: usize = 4;
/// The minimum number of steps, and of response bytes, of a turn. In shorter turns, the switches between connections
/// would take a considerable part of the time.
const STEPS_MIN: usize = 1000;
const SENT_BYTES_MIN: usize = 64 << 10;

/// The remaining budget of a connection's turn.
pub(super) struct Turn {
    bytes: usize,
    passes: usize,
    steps: usize,
    /// The number of steps after which a pass ends.
    pub(super) pass_steps: usize,
    pub(super) sent_bytes: usize,
    /// Whether the turn was ended to let other connections have theirs, although this connection could continue.
    pub(super) has_ended: bool,
}

impl Turn {
    /// Begins a turn while `waiting` other connections have work left after their turns.
    #[inline]
    pub(super) fn begin(waiting: usize) -> Turn {
        // A new request waits for one turn of every connection that has work left, so the turns become shorter as these
        // connections become more.
        let shares = (waiting + 1).div_ceil(FULL_TURNS_MAX);
        let share = |max: usize, min: usize| (max / shares).max(min);
        let steps = share(TURN_STEPS_MAX, STEPS_MIN);
        Turn {
            bytes: share(BYTES_MAX, READ_LEN_BYTES),
            passes: PASSES_MAX,
            steps,
            pass_steps: steps.min(PASS_STEPS_MAX),
            sent_bytes: share(SENT_BYTES_MAX, SENT_BYTES_MIN),
            has_ended: false,
        }
    }

    pub(super) fn use_pass(&mut self, taken_bytes: usize, steps: usize) {
        #[cfg(test)]
        USED_ON_THREAD.set(USED_ON_THREAD.get() + steps);
        self.bytes = self.bytes.saturating_sub(taken_bytes);
        self.passes = self.passes.saturating_sub(1);
        self.steps = self.steps.saturating_sub(steps);
    }

    /// Deducts request bytes from the budget when they are read ahead, that is, before a pass answers them.
    pub(super) fn use_input(&mut self, len_bytes: usize) {
        self.bytes = self.bytes.saturating_sub(len_bytes);
    }

    pub(super) fn use_sent(&mut self, len_bytes: usize) {
        self.sent_bytes = self.sent_bytes.saturating_sub(len_bytes);
    }

    pub(super) fn is_over(&self) -> bool {
        self.bytes == 0 || self.passes == 0 || self.steps == 0 || self.sent_bytes == 0
    }
}

/// The maximum number of 16-byte requests in a run, which is a sequence of requests that are answered together.
pub(super) const RUN_REQUESTS_MAX: usize = 1024;

/// The length of the read buffer. A read that does not fill the buffer shows that the socket is empty. To avoid a
/// second read, the buffer is longer than a pipeline of 256 requests, which is a common size.
pub(super) const READ_LEN_BYTES: usize = RUN_REQUESTS_MAX * REQUEST_LEN_BYTES;

/// The result of a pass over a client's unanswered requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pass {
    /// The number of input bytes that the pass consumed. The requests in these bytes are answered, or need no response.
    pub(super) taken_bytes: usize,
    /// What the connection does after the responses are sent.
    pub(super) then: Then,
}

/// What a connection does after a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// Reads more input, because the remaining input is not a complete request.
    Read,
    /// Runs another pass over the remaining input.
    Answer,
    /// Lets other connections have their turn, and then runs another pass over the remaining input.
    Yield,
    /// Waits for more input, or until the state of the table differs from the given state. The remaining input is an
    /// Open request that waits for this change.
    Wait(u64),
    /// Waits until the pages of the next lookups were read from the disk: see `ColdLookups::take_waiting`.
    Load,
    /// Answers nothing before this time, because a login failed.
    Delay(Instant),
    /// Closes the connection.
    Close,
    /// Closes the connection, because the rest of the input cannot be split into requests. First discards what the
    /// client still sends, so that it can read the error.
    Refuse,
}

#[cfg(test)]
thread_local! {
    /// The number of steps of all turns that ran on this thread.
    pub(super) static USED_ON_THREAD: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_of_all_turns_is_short_however_many_connections_have_work_left() {
        for connections in 1..10_000 {
            let turn = Turn::begin(connections - 1);
            if connections <= FULL_TURNS_MAX {
                assert_eq!((turn.steps, turn.pass_steps), (TURN_STEPS_MAX, PASS_STEPS_MAX));
            }
            assert!(turn.pass_steps <= turn.steps && turn.steps >= STEPS_MIN);
            let round_steps = connections * turn.steps;
            assert!(round_steps <= (FULL_TURNS_MAX * TURN_STEPS_MAX).max(connections * STEPS_MIN), "{connections}");
        }
    }
}
