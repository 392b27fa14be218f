//! Whether a call that failed is made once more, and when.
//!
//! In: what it came to. Out: how long to pause before the next attempt, or that
//! there is none. It does not wait itself.

use std::time::{Duration, Instant};

use super::error::{ClientError, Refusal};
use super::options::Options;

/// How long to wait before connecting again to a server that is not there.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// Each pause is twice as long as the one before, up to this.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// When a call has to be done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    pub(super) started: Instant,
    at: Option<Instant>,
}

impl Deadline {
    pub(super) fn after(timeout: Option<Duration>) -> Self {
        let started = Instant::now();
        // What is beyond the clock never comes.
        Deadline { started, at: timeout.and_then(|timeout| started.checked_add(timeout)) }
    }

    /// When that is, if ever.
    #[cfg(feature = "tokio")]
    pub(super) fn at(&self) -> Option<Instant> {
        self.at
    }

    /// How much time is left, `None` if there is no end to it.
    pub(super) fn left(&self) -> Option<Duration> {
        self.at.map(|at| at.saturating_duration_since(Instant::now()))
    }
}

/// What is left to be tried of one call.
#[derive(Debug)]
pub(super) struct Retry {
    left: u32,
    reconnect_timeout: Duration,
    /// Once the connection has failed: until when a server is waited for.
    reconnect: Option<Deadline>,
    pause: Duration,
}

impl Retry {
    pub(super) fn new(options: &Options, is_idempotent: bool) -> Self {
        let left = if is_idempotent { options.retries } else { 0 };
        Retry { left, reconnect_timeout: options.reconnect_timeout, reconnect: None, pause: PAUSE_MIN }
    }

    /// How long to pause before another attempt, if there is to be one.
    pub(super) fn after(&mut self, error: &ClientError, call: Deadline) -> Option<Duration> {
        // A server that restarts may take a connection and end before it reads from it.
        let is_absent = match error {
            ClientError::NotRunning { .. } | ClientError::Refused { reason: Refusal::Closed, .. } => true,
            ClientError::Closed { .. } => false,
            _ => return None,
        };
        let pause = match (is_absent, &self.reconnect) {
            (true, Some(reconnect)) => {
                let left = reconnect.left().unwrap_or(PAUSE_MAX);
                if left.is_zero() {
                    return None;
                }
                self.pause = (2 * self.pause).min(PAUSE_MAX);
                self.pause.min(left)
            }
            _ => {
                self.left = self.left.checked_sub(1)?;
                self.reconnect = Some(Deadline::after(Some(self.reconnect_timeout)));
                self.pause = PAUSE_MIN;
                if is_absent { PAUSE_MIN } else { Duration::ZERO }
            }
        };
        call.left().is_none_or(|left| left > pause).then_some(pause)
    }
}
