//! The clock that lease deadlines are compared with.
//!
//! CLOCK_MONOTONIC_COARSE is the time of the last timer tick: at most about 10 ms old, and read from memory in about 5
//! ns, where CLOCK_MONOTONIC takes about 25 ns. The deadline of a lease has a margin of more than 400 ms: see `lease`.
//! The kernel times leases by the same tick, so clock and kernel are late together.

use rustix::time::{ClockId, clock_gettime};

const CLOCK: ClockId = ClockId::MonotonicCoarse;

/// Returns the nanoseconds since a moment that all processes of a time namespace share.
#[inline]
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(CLOCK);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
