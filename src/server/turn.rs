//! The limits on the work of one connection before other connections get their turn.

use super::pass::READ_LEN_BYTES;
use super::steps::{PASS_STEPS_MAX, TURN_STEPS_MAX};

/// The maximum number of request bytes that are answered or read ahead in a turn.
const BYTES_MAX: usize = 4 * READ_LEN_BYTES;
const PASSES_MAX: usize = 16;
/// The maximum number of response bytes that are sent in a turn.
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
        super::steps::USED_ON_THREAD.set(super::steps::USED_ON_THREAD.get() + steps);
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
