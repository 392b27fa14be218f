//! Decides whether and when a failed call is retried.
//!
//! In: the error of an attempt. Out: the pause before the next attempt, or `None` if the call fails. The caller waits.
//!
//! Reasons and evidence: `docs/decisions/retries.md`.

use std::time::{Duration, Instant};

use super::error::ClientError;
use super::options::Options;

/// First pause before reconnecting to a server that is not running.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// Maximum pause before reconnecting. Each pause is twice as long as the previous one.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// The start of a call, and the end of its time-out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    pub(super) started: Instant,
    at: Option<Instant>,
}

impl Deadline {
    pub(super) fn after(timeout: Option<Duration>) -> Self {
        let started = Instant::now();
        // A time-out beyond the clock's range counts as unlimited.
        Deadline { started, at: timeout.and_then(|timeout| started.checked_add(timeout)) }
    }

    /// Returns the end of the time-out, or `None` if the time-out is unlimited.
    #[cfg(feature = "tokio")]
    pub(super) fn at(&self) -> Option<Instant> {
        self.at
    }

    /// Returns this deadline or, if this deadline is unlimited, a new deadline that is `timeout` from now.
    pub(super) fn or_after(self, timeout: Option<Duration>) -> Self {
        if self.at.is_some() { self } else { Deadline::after(timeout) }
    }

    /// Returns the deadline that is half of the remaining time from now.
    #[cfg(feature = "cluster")]
    pub(super) fn half(self) -> Self {
        Deadline::after(self.left().map(|left| left / 2))
    }

    /// Returns the earlier one of two deadlines, with the start of this one.
    pub(super) fn or_earlier(self, other: Option<Deadline>) -> Self {
        let ends = [self.at, other.and_then(|other| other.at)];
        Deadline { at: ends.into_iter().flatten().min(), ..self }
    }

    pub(super) fn left(&self) -> Option<Duration> {
        self.at.map(|at| at.saturating_duration_since(Instant::now()))
    }
}

/// Returns whether a call may succeed if it is repeated. Other errors would occur again, or, like a time-out, have used
/// the time of the call.
pub(super) fn is_retried(error: &ClientError) -> bool {
    matches!(error, ClientError::NotRunning { .. } | ClientError::Refused { .. } | ClientError::Closed { .. })
}

#[derive(Debug)]
pub(super) struct Retry {
    left: u32,
    reconnect_timeout: Duration,
    /// The deadline of the attempts to reconnect. `None` until the first failure.
    reconnect: Option<Deadline>,
    pause: Duration,
}

impl Retry {
    pub(super) fn new(options: &Options, is_idempotent: bool) -> Self {
        let left = if is_idempotent { options.retries } else { 0 };
        Retry { left, reconnect_timeout: options.reconnect_timeout, reconnect: None, pause: PAUSE_MIN }
    }

    /// Returns the pause before the next attempt, or `None` if the call fails with this error.
    pub(super) fn pause_after(&mut self, error: &ClientError, call: Deadline) -> Option<Duration> {
        if !is_retried(error) {
            return None;
        }
        // A refusal also means that the server is down, because a server that is stopping may accept a connection and
        // close it without reading a request.
        let is_server_down = !matches!(error, ClientError::Closed { .. });
        let pause = match (is_server_down, &self.reconnect) {
            (true, Some(reconnect)) => {
                let left = reconnect.left().unwrap_or(PAUSE_MAX);
                if left.is_zero() {
                    return None;
                }
                self.pause = (2 * self.pause).min(PAUSE_MAX);
                self.pause.min(left)
            }
            _ => {
                // Attempts to reach a server that is down count once, because only their time is limited.
                self.left = self.left.checked_sub(1)?;
                self.reconnect = Some(Deadline::after(Some(self.reconnect_timeout)));
                self.pause = PAUSE_MIN;
                if is_server_down { PAUSE_MIN } else { Duration::ZERO }
            }
        };
        call.left().is_none_or(|left| left > pause).then_some(pause)
    }
}
