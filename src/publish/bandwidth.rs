//! A limit on the rate of downloads.
//!
//! In: the numbers of bytes that transfers are about to request. Out: how long each transfer waits before it requests
//! them.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::sync::unpoisoned;

/// A limit on the number of bytes per second of all transfers together.
pub(super) struct Bandwidth {
    /// `None` for no limit.
    bytes_per_s: Option<u64>,
    /// When all bytes that were reserved so far will have been transferred at the limit.
    free_at: Mutex<Option<Instant>>,
}

impl Bandwidth {
    pub(super) fn new(bytes_per_s: Option<u64>) -> Bandwidth {
        Bandwidth { bytes_per_s: bytes_per_s.filter(|rate| *rate > 0), free_at: Mutex::default() }
    }

    /// Waits until `bytes` more bytes may be requested. The first bytes after an idle time need not wait.
    pub(super) async fn reserve(&self, bytes: u64) {
        if let Some(start) = self.reserve_at(bytes, Instant::now()) {
            tokio::time::sleep_until(start).await;
        }
    }

    /// Reserves the time that `bytes` bytes take at the limit. Returns when this time begins, or `None` if it is now.
    fn reserve_at(&self, bytes: u64, now: Instant) -> Option<Instant> {
        let rate = self.bytes_per_s?;
        let mut free_at = unpoisoned(&self.free_at);
        let start = free_at.map_or(now, |free_at| free_at.max(now));
        *free_at = Some(start + Duration::from_secs_f64(bytes as f64 / rate as f64));
        (start > now).then_some(start)
    }

    /// Returns the length of the ranges that a transfer requests, for parts of at most `len_max_bytes`: less than a
    /// second's worth of bytes if the rate is limited.
    pub(super) fn range_len_bytes(&self, len_max_bytes: u64) -> u64 {
        const LEN_MIN_BYTES: u64 = 64 << 10;
        self.bytes_per_s.map_or(len_max_bytes, |rate| (rate / 4).clamp(LEN_MIN_BYTES, len_max_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_bytes_take_the_time_that_the_limit_implies() {
        let (limited, start) = (Bandwidth::new(Some(1000)), Instant::now());
        let after = |ms| Some(start + Duration::from_millis(ms));
        assert_eq!(limited.reserve_at(500, start), None);
        assert_eq!(limited.reserve_at(250, start), after(500));
        assert_eq!(limited.reserve_at(250, start + Duration::from_millis(600)), after(750));
        // Unused time is not saved up.
        assert_eq!(limited.reserve_at(1000, start + Duration::from_secs(9)), None);
        assert_eq!(limited.reserve_at(1, start + Duration::from_secs(9)), after(10_000));
        assert_eq!(Bandwidth::new(None).reserve_at(1 << 40, start), None);
    }
}
