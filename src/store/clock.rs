//! Reads the clock that lease deadlines are compared with.
//!
//! This clock is CLOCK_MONOTONIC_COARSE. It shows the time of the last timer tick, so it is up to about 10 ms behind
//! CLOCK_MONOTONIC. Reading this clock takes about 5 ns; reading CLOCK_MONOTONIC takes about 25 ns. The deadline of a
//! lease has a margin of more than 400 ms: see `lease`. The kernel measures its time limit for a lease in the same
//! ticks, so it revokes the lease with the same delay.

use rustix::time::{ClockId, clock_gettime};

const CLOCK: ClockId = ClockId::MonotonicCoarse;

/// Returns the time of CLOCK_MONOTONIC_COARSE in nanoseconds. All processes of a time namespace read the same clock.
#[inline]
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(CLOCK);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
