//! Delays the replies to the failed logins of one connection.
//!
//! The first failed login of a connection is answered after [`FIRST_DELAY`], and each further one after twice the
//! previous delay, up to [`DELAY_MAX`]. The connection waits for a timer, so its worker can serve other connections
//! meanwhile.

use std::time::{Duration, Instant};

/// The delay of the reply to the first failed login of a connection.
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// The maximum delay of the reply to a failed login.
const DELAY_MAX: Duration = Duration::from_secs(10);

/// The failed logins of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::server) struct Attempts {
    failed: u32,
    /// The time from which the current login may be answered. `None` if no login waits.
    until: Option<Instant>,
}

impl Attempts {
    /// Returns the time until which the reply to a failed login must wait. Once this time has passed, counts the failed
    /// login and returns `None`. Must be called again for the same login after the wait.
    pub(in crate::server) fn delay(&mut self, now: Instant) -> Option<Instant> {
        let until = *self.until.get_or_insert_with(|| now + delay_after(self.failed));
        if now < until {
            return Some(until);
        }
        *self = Attempts { failed: self.failed.saturating_add(1), until: None };
        None
    }

    /// Ends the wait of a login that has succeeded after all, for example because the users file was replaced
    /// meanwhile.
    pub(in crate::server) fn succeeded(&mut self) {
        self.until = None;
    }
}

fn delay_after(failed: u32) -> Duration {
    FIRST_DELAY.saturating_mul(2_u32.saturating_pow(failed)).min(DELAY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failed_login_is_delayed_twice_as_long_up_to_the_maximum() {
        let (mut attempts, mut now) = (Attempts::default(), Instant::now());
        let mut delays_ms = Vec::new();
        for _ in 0..40 {
            let until = attempts.delay(now).unwrap();
            assert_eq!(attempts.delay(until - Duration::from_nanos(1)), Some(until));
            delays_ms.push((until - now).as_millis());
            now = until;
            assert_eq!(attempts.delay(now), None);
        }
        assert_eq!(delays_ms[..8], [100, 200, 400, 800, 1600, 3200, 6400, 10_000]);
        assert!(delays_ms[8..].iter().all(|delay_ms| *delay_ms == 10_000));
    }

    #[test]
    fn a_login_that_succeeds_after_all_ends_the_wait_but_not_the_count() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        attempts.delay(now).unwrap();
        attempts.delay(now + FIRST_DELAY);
        attempts.delay(now).unwrap();
        attempts.succeeded();
        assert_eq!(attempts.delay(now), Some(now + 2 * FIRST_DELAY));
    }
}
