//! The limits on the work of one connection before other connections get their turn.

use super::pass::READ_LEN_BYTES;
use super::steps::TURN_STEPS_MAX;

/// The maximum number of request bytes that are answered or read ahead in a turn.
const BYTES_MAX: usize = 4 * READ_LEN_BYTES;
const PASSES_MAX: usize = 16;
/// The maximum number of response bytes that are sent in a turn.
const SENT_BYTES_MAX: usize = 2 << 20;

/// The remaining budget of a connection's turn.
pub(super) struct Turn {
    bytes: usize,
    passes: usize,
    steps: usize,
    pub(super) sent_bytes: usize,
    /// Whether the turn was ended to let other connections have theirs, although this connection could continue.
    pub(super) has_ended: bool,
}

impl Turn {
    pub(super) fn begin() -> Turn {
        Turn {
            bytes: BYTES_MAX,
            passes: PASSES_MAX,
            steps: TURN_STEPS_MAX,
            sent_bytes: SENT_BYTES_MAX,
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
