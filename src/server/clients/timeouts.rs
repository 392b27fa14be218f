//! The rules that disconnect idle, stalled, and slow connections.
//!
//! In: the activity of a connection, at each tick of the registry. Out: the reason to disconnect it, if there is one.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::{Activity, Waits};
use crate::server::limits::Limits;
use crate::server::stats::Totals;
use crate::setting::Setting;

/// The time between two checks of the connections, and the unit of time in this file. Time is measured by counting
/// ticks, not with a clock, so that no client is disconnected because the server was suspended (SIGSTOP).
pub(in crate::server) const TICK: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Reason {
    /// The client sent no request for `ticks` ticks.
    Idle { ticks: u32 },
    /// No byte of an unfinished request arrived for `ticks` ticks.
    StalledRequest { arrived_bytes: usize, ticks: u32 },
    /// The client neither received a byte of pending responses nor sent a byte for `ticks` ticks.
    StalledResponse { pending_bytes: usize, ticks: u32 },
    /// While responses were pending, the client received and sent, in total, fewer bytes in `ticks` ticks than the
    /// minimum drain rate requires.
    Slow { moved_bytes: u64, min_bytes: u64, ticks: u32 },
    /// The connection holds an old generation, and there are more retained generations than the limit allows.
    Generation { number: u64 },
    /// The connection's user was removed or disabled, or now needs a password.
    User,
}

impl Reason {
    pub(in crate::server) fn counter(self, totals: &Totals) -> &AtomicU64 {
        match self {
            Reason::Idle { .. } => &totals.cut_idle,
            Reason::StalledRequest { .. } | Reason::StalledResponse { .. } => &totals.cut_stalled,
            Reason::Slow { .. } => &totals.cut_slow,
            Reason::Generation { .. } => &totals.cut_generation,
            Reason::User => &totals.cut_user,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Idle { ticks } => write!(f, "idle: sent no request for {ticks} s"),
            Reason::StalledRequest { arrived_bytes, ticks } => {
                write!(f, "stalled: {arrived_bytes} bytes of a request arrived, and no more for {ticks} s")
            }
            Reason::StalledResponse { pending_bytes, ticks } => {
                write!(
                    f,
                    "stalled: received none of {pending_bytes} bytes of pending responses for {ticks} s, and sent \
                     nothing"
                )
            }
            Reason::Slow { moved_bytes, min_bytes, ticks } => write!(
                f,
                "slow: while responses were pending, received and sent {moved_bytes} bytes in {ticks} s, where at \
                 least {min_bytes} were expected ({})",
                Setting::DrainRateMin
            ),
            Reason::Generation { number } => write!(
                f,
                "its pending responses hold generation {number}, and too many replaced generations are held ({})",
                Setting::GenerationsMax
            ),
            Reason::User => {
                write!(f, "its user was removed, disabled, or needs a password now ({})", Setting::Users)
            }
        }
    }
}

/// The data that the rules keep about a connection from one tick to the next. This type is small, because every
/// connection needs one.
#[derive(Default)]
pub(in crate::server) struct Observed {
    /// The low 32 bits of [`Activity::progress_bytes`] at the last tick. The rules check only whether this number has
    /// changed.
    progress_bytes_low: u32,
    /// The tick at which the current window for averaging the drain rate began. `None`: no responses are pending.
    window_since_tick: Option<NonZeroU32>,
    /// [`Activity::progress_bytes`] when the current window for averaging the drain rate began.
    window_progress_bytes: u64,
}

/// The time-outs and the minimum drain rate, with ticks as the unit of time.
pub(in crate::server) struct Timeouts {
    /// The idle time-out. 0: no time-out.
    idle_ticks: u32,
    /// The stall time-out. 0: no time-out.
    stall_ticks: u32,
    /// The minimum drain rate. 0: no minimum.
    drain_min_bytes_per_tick: u64,
    /// The length of the window over which the drain rate is averaged.
    window_ticks: u32,
}

impl Timeouts {
    pub(in crate::server) fn new(limits: &Limits) -> Timeouts {
        let ticks =
            |timeout: Duration| u32::try_from(timeout.as_millis().div_ceil(TICK.as_millis())).unwrap_or(u32::MAX);
        Timeouts {
            idle_ticks: ticks(limits.idle_timeout),
            stall_ticks: ticks(limits.stall_timeout),
            drain_min_bytes_per_tick: limits.drain_rate_min_bytes_per_s.saturating_mul(TICK.as_secs()),
            window_ticks: ticks(limits.drain_window()).max(1),
        }
    }

    /// Returns the reason to disconnect a connection at this tick, if there is one. Must be called at each tick.
    pub(in crate::server) fn due(&self, now_tick: u32, activity: &Activity, observed: &mut Observed) -> Option<Reason> {
        let progress_bytes = activity.progress_bytes();
        if progress_bytes as u32 != observed.progress_bytes_low {
            observed.progress_bytes_low = progress_bytes as u32;
            activity.set_moved_tick(now_tick.wrapping_sub(1));
        }
        let waits = activity.waits();
        let slow = self.slow(now_tick, waits, progress_bytes, observed);
        self.timed_out(now_tick, waits, activity).or(slow)
    }

    fn timed_out(&self, now_tick: u32, waits: Waits, activity: &Activity) -> Option<Reason> {
        let (ticks, reason) = match waits {
            Waits::Turn => return None,
            Waits::Request => (self.idle_ticks, Reason::Idle { ticks: self.idle_ticks }),
            Waits::Rest(arrived_bytes) => {
                (self.stall_ticks, Reason::StalledRequest { arrived_bytes, ticks: self.stall_ticks })
            }
            Waits::Client(pending_bytes) => {
                (self.stall_ticks, Reason::StalledResponse { pending_bytes, ticks: self.stall_ticks })
            }
        };
        // The last byte may have been sent or received almost one tick after the tick that was recorded for it. One
        // extra tick ensures that the whole time-out has passed.
        let waited_ticks = now_tick.wrapping_sub(activity.moved_tick());
        (ticks > 0 && waited_ticks > ticks).then_some(reason)
    }

    /// Returns the reason to disconnect a connection whose drain rate over a whole window was too low. While responses
    /// are pending, each window begins when the previous window ends.
    fn slow(&self, now_tick: u32, waits: Waits, progress_bytes: u64, observed: &mut Observed) -> Option<Reason> {
        match waits {
            Waits::Client(_) if self.drain_min_bytes_per_tick > 0 => {}
            // The connection waits for its next turn, in which it produces more responses, so the window continues.
            Waits::Turn => return None,
            _ => {
                observed.window_since_tick = None;
                return None;
            }
        }
        // Ticks wrap around after 136 years.
        let ticks = observed.window_since_tick.map(|since_tick| now_tick.wrapping_sub(since_tick.get()));
        if ticks.is_some_and(|ticks| ticks < self.window_ticks) {
            return None;
        }
        let moved_bytes = progress_bytes - observed.window_progress_bytes;
        observed.window_since_tick = NonZeroU32::new(now_tick);
        observed.window_progress_bytes = progress_bytes;
        let ticks = ticks?;
        let min_bytes = self.drain_min_bytes_per_tick.saturating_mul(ticks.into());
        (moved_bytes < min_bytes).then_some(Reason::Slow { moved_bytes, min_bytes, ticks })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::server::sockets::Peer;

    fn timeouts(idle_s: u64, stall_s: u64, drain_rate_min_bytes_per_s: u64) -> Timeouts {
        let (idle_timeout, stall_timeout) = (Duration::from_secs(idle_s), Duration::from_secs(stall_s));
        Timeouts::new(&Limits { idle_timeout, stall_timeout, drain_rate_min_bytes_per_s, ..Limits::default() })
    }

    /// Returns the tick at which a connection that sends and receives nothing is disconnected.
    fn due_tick(timeouts: &Timeouts, waits: Waits) -> Option<u32> {
        let (activity, mut observed) = (Activity::new(0, Peer::default(), 0), Observed::default());
        activity.set_waits(waits);
        (1..20).find(|tick| timeouts.due(*tick, &activity, &mut observed).is_some())
    }

    #[test]
    fn each_wait_state_has_its_own_time_out() {
        let kinds = [Waits::Turn, Waits::Request, Waits::Rest(7), Waits::Client(9)];
        let due = |idle_s, stall_s| kinds.map(|waits| due_tick(&timeouts(idle_s, stall_s, 0), waits));
        assert_eq!(due(5, 2), [None, Some(6), Some(3), Some(3)]);
        assert_eq!(due(0, 1), [None, None, Some(2), Some(2)]);
        assert_eq!(due(3, 0), [None, Some(4), None, None]);
        assert_eq!(due(0, 0), [None; 4]);
    }

    /// Simulates a client with pending responses that receives `taken_bytes(tick)` bytes before each tick. Returns the
    /// tick at which the client is disconnected, and the reason, or `None` if the client is not disconnected.
    fn simulate_client(timeouts: &Timeouts, ticks: u32, taken_bytes: impl Fn(u32) -> usize) -> Option<(u32, Reason)> {
        let (activity, mut observed) = (Activity::new(0, Peer::default(), 0), Observed::default());
        activity.set_waits(Waits::Client(1 << 20));
        (1..=ticks).find_map(|tick| {
            activity.count_progress(taken_bytes(tick));
            Some((tick, timeouts.due(tick, &activity, &mut observed)?))
        })
    }

    #[test]
    fn a_client_that_receives_one_byte_per_second_is_disconnected() {
        let found = simulate_client(&timeouts(0, 30, 1024), 1000, |_| 1);
        assert_eq!(found, Some((61, Reason::Slow { moved_bytes: 60, min_bytes: 61_440, ticks: 60 })));
        // Without a stall time-out, the window has its default length.
        assert_eq!(simulate_client(&timeouts(0, 0, 1024), 1000, |_| 1), found);
        assert_eq!(simulate_client(&timeouts(0, 30, 0), 1000, |_| 1), None);
    }

    #[test]
    fn a_client_that_pauses_for_less_than_the_stall_time_out_is_not_disconnected() {
        for stall_s in [2, 30, 300] {
            let pause_ticks = stall_s as u32;
            let found =
                simulate_client(
                    &timeouts(0, stall_s, 1024),
                    5000,
                    |tick| if tick % pause_ticks == 0 { 128 << 10 } else { 0 },
                );
            // A client that pauses for 300 s is too slow: it receives 437 bytes/s on average.
            assert_eq!(found.is_some(), stall_s == 300, "{stall_s}: {found:?}");
        }
        let found = simulate_client(&timeouts(0, 300, 1024), 5000, |tick| if tick % 300 == 0 { 400 << 10 } else { 0 });
        assert_eq!(found, None);
    }

    #[test]
    fn the_window_ends_when_a_client_has_received_all_responses() {
        let timeouts = timeouts(0, 30, 1024);
        let (activity, mut observed) = (Activity::new(0, Peer::default(), 0), Observed::default());
        for tick in 1..1000 {
            // Each request has one byte of responses, which the client receives after 20 seconds. The next request
            // follows 20 seconds later.
            if tick % 40 == 0 {
                activity.set_moved_tick(tick);
            }
            activity.set_waits(if tick % 40 < 20 { Waits::Client(1) } else { Waits::Request });
            activity.count_progress(usize::from(tick % 40 == 20));
            assert_eq!(timeouts.due(tick, &activity, &mut observed), None, "{tick}");
        }
    }

    #[test]
    fn a_turn_between_responses_does_not_end_the_window() {
        let timeouts = timeouts(0, 30, 1024);
        let (activity, mut observed) = (Activity::new(0, Peer::default(), 0), Observed::default());
        let due = (1..200).find(|tick| {
            activity.set_waits(if tick % 3 == 0 { Waits::Turn } else { Waits::Client(1) });
            activity.count_progress(1);
            timeouts.due(*tick, &activity, &mut observed).is_some()
        });
        assert_eq!(due, Some(61));
    }

    #[test]
    fn reasons_are_counted_by_kind() {
        let totals = Totals::default();
        for reason in [
            Reason::Idle { ticks: 1 },
            Reason::StalledRequest { arrived_bytes: 1, ticks: 1 },
            Reason::StalledResponse { pending_bytes: 1, ticks: 1 },
            Reason::Slow { moved_bytes: 1, min_bytes: 2, ticks: 1 },
            Reason::Generation { number: 1 },
        ] {
            reason.counter(&totals).fetch_add(1, Ordering::Relaxed);
        }
        let counts = [&totals.cut_idle, &totals.cut_stalled, &totals.cut_slow, &totals.cut_generation];
        assert_eq!(counts.map(|count| count.load(Ordering::Relaxed)), [1, 2, 1, 1]);
    }
}
