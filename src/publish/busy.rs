//! Pauses that a store asks for.
//!
//! In: responses of a store that is busy and states for how long (`Retry-After`). Out: the time until all requests to the
//! store wait. A command can set a deadline, so that it does not wait for a pause that ends later, and learns what it waits
//! for.

use std::fmt::{self, Debug, Formatter};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use object_store::client::{HttpError, HttpErrorKind};
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use thiserror::Error;
use tokio::time::{Instant, sleep_until};

use crate::sync::unpoisoned;

/// The maximum time that requests wait because a store is busy.
const BUSY_MAX: Duration = Duration::from_secs(60);
/// After this time, the user of a command learns why it waits.
const NOTICE_AFTER: Duration = Duration::from_secs(2);

/// Shows a message to the user of a command.
type Notice = Arc<dyn Fn(&str) + Send + Sync>;

/// The pause that a store has asked for, and who waits for its end.
#[derive(Default)]
pub(super) struct Busy(Mutex<State>);

#[derive(Clone, Default)]
struct State {
    pause: Option<Pause>,
    /// Requests fail at once if they would have to wait longer.
    deadline: Option<Instant>,
    notice: Option<Notice>,
    /// The end of the pause that was noticed.
    noticed: Option<Instant>,
}

#[derive(Clone, Copy)]
struct Pause {
    end: Instant,
    status: StatusCode,
}

/// A pause that ends after the deadline.
#[derive(Debug, Error)]
#[error("the store is busy (status {}), and asks to wait {left_s} s more, which is longer than this command may wait", status.as_u16())]
pub(super) struct TooBusy {
    status: StatusCode,
    left_s: u64,
}

impl Busy {
    /// Sets the time that no pause may exceed, and a function that shows a message about each pause longer than
    /// [`NOTICE_AFTER`].
    pub(super) fn set_patience(&self, deadline: Option<Instant>, notice: Notice) {
        let mut state = unpoisoned(&self.0);
        (state.deadline, state.notice) = (deadline, Some(notice));
    }

    /// Waits until the store accepts requests again. Fails if that is after the deadline.
    pub(super) async fn wait(&self) -> Result<(), HttpError> {
        let (now, State { pause, deadline, .. }) = (Instant::now(), unpoisoned(&self.0).clone());
        let Some(Pause { end, status }) = pause.filter(|pause| pause.end > now) else { return Ok(()) };
        if deadline.is_some_and(|deadline| deadline < end) {
            let left_s = (end - now).as_secs_f64().ceil() as u64;
            // The crate does not repeat such requests.
            return Err(HttpError::new(HttpErrorKind::Decode, TooBusy { status, left_s }));
        }
        sleep_until(end.min(now + NOTICE_AFTER)).await;
        self.notice(end, status);
        sleep_until(end).await;
        Ok(())
    }

    /// Reports a pause that has not ended, once for all requests that wait.
    fn notice(&self, end: Instant, status: StatusCode) {
        let left = end.saturating_duration_since(Instant::now());
        let mut state = unpoisoned(&self.0);
        if left.is_zero() || state.noticed.replace(end) == Some(end) {
            return;
        }
        let Some(notice) = state.notice.clone() else { return };
        drop(state);
        let (left_s, status) = (left.as_secs_f64().ceil(), status.as_u16());
        notice(&format!("the store is busy (status {status}), and asked to wait {left_s} s more: waiting"));
    }

    /// Records a response that asks for a pause.
    pub(super) fn record(&self, status: StatusCode, headers: &HeaderMap) {
        if status != StatusCode::TOO_MANY_REQUESTS && !status.is_server_error() {
            return;
        }
        let pause = headers.get(RETRY_AFTER).and_then(|value| retry_after(value.to_str().ok()?));
        if let Some(pause) = pause {
            let (mut state, end) = (unpoisoned(&self.0), Instant::now() + pause.min(BUSY_MAX));
            if state.pause.is_none_or(|pause| pause.end < end) {
                state.pause = Some(Pause { end, status });
            }
        }
    }
}

impl Debug for Busy {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let pause = unpoisoned(&self.0).pause.map(|pause| pause.end);
        formatter.debug_tuple("Busy").field(&pause).finish()
    }
}

/// Parses `Retry-After`: a number of seconds, or a date.
fn retry_after(value: &str) -> Option<Duration> {
    if let Ok(seconds) = value.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = chrono::DateTime::parse_from_rfc2822(value.trim()).ok()?;
    SystemTime::from(date).duration_since(SystemTime::now()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_seconds_or_dates() {
        assert_eq!(retry_after(" 120 "), Some(Duration::from_secs(120)));
        assert_eq!(retry_after("18446744073709551615"), Some(Duration::from_secs(u64::MAX)));
        let future = chrono::DateTime::<chrono::Utc>::from(SystemTime::now() + Duration::from_secs(3000));
        let pause = retry_after(&future.format("%a, %d %b %Y %H:%M:%S GMT").to_string()).unwrap();
        assert!(pause <= Duration::from_secs(3000) && pause > Duration::from_secs(2000), "{pause:?}");
        for none in ["Wed, 21 Oct 2015 07:28:00 GMT", "", "-1", "soon", "1.5"] {
            assert_eq!(retry_after(none), None, "{none}");
        }
    }
}
