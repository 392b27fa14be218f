//! Keeps what clients do from filling the log: a line a second at most.

use std::sync::Mutex;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_secs(1);

/// Of one kind of line.
#[derive(Default)]
pub(super) struct LogLimit(Mutex<State>);

#[derive(Default)]
struct State {
    last: Option<Instant>,
    left_out: u64,
}

impl LogLimit {
    /// If there may be a line now, how many were left out since the last.
    pub(super) fn line(&self) -> Option<u64> {
        self.line_at(Instant::now())
    }

    fn line_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if state.last.is_some_and(|last| now.duration_since(last) < PAUSE) {
            state.left_out += 1;
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_a_second_tells_how_many_were_left_out() {
        let (limit, start) = (LogLimit::default(), Instant::now());
        assert_eq!(limit.line_at(start), Some(0));
        assert_eq!(limit.line_at(start + PAUSE / 4), None);
        assert_eq!(limit.line_at(start + PAUSE / 2), None);
        assert_eq!(limit.line_at(start + PAUSE), Some(2));
        assert_eq!(limit.line_at(start + PAUSE * 2), Some(0));
    }
}
