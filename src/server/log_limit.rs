//! Limits the log lines that clients can cause: at most one line of each kind is logged per second.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::sync::unpoisoned;

const PAUSE: Duration = Duration::from_secs(1);

/// Limits one kind of log line to one line per second.
#[derive(Default)]
pub(super) struct LogLimit(Mutex<LogState>);

#[derive(Default)]
struct LogState {
    last: Option<Instant>,
    left_out: u64,
}

impl LogLimit {
    /// If a line may be logged now, returns the number of lines that were omitted since the last logged line.
    /// Otherwise, counts an omitted line and returns `None`.
    pub(super) fn line(&self) -> Option<u64> {
        self.line_at(Instant::now())
    }

    fn line_at(&self, now: Instant) -> Option<u64> {
        let mut state = unpoisoned(&self.0);
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
    fn one_line_per_second_is_logged_with_the_number_of_omitted_lines() {
        let (limit, start) = (LogLimit::default(), Instant::now());
        assert_eq!(limit.line_at(start), Some(0));
        assert_eq!(limit.line_at(start + PAUSE / 4), None);
        assert_eq!(limit.line_at(start + PAUSE / 2), None);
        assert_eq!(limit.line_at(start + PAUSE), Some(2));
        assert_eq!(limit.line_at(start + PAUSE * 2), Some(0));
    }
}
