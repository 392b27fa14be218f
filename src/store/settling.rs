//! Determines when every further write to a file will change the file's times: its modification time, and its change
//! time (ctime).
//!
//! File systems round times down to multiples of a resolution. On most file systems, the resolution is 10 ms or finer,
//! like the tick of the kernel's clock. The resolution is 1 s on ext2, and on ext3 and ext4 with inodes of 128 bytes.
//! On FAT, the resolution is 2 s. If two writes have the same rounded time, the second write does not change the
//! modification time.
//!
//! Reasons and evidence: `docs/decisions/changed-ctime.md`.

use std::time::{Duration, SystemTime};

/// The time from the last write to a file until the file counts as settled. Every write to a settled file changes the
/// file's modification time. Applies to file systems that store times with a resolution of 10 ms or finer. `SETTLE` is
/// longer than the resolution, so that a process that is still writing to the file usually writes again before the file
/// counts as settled.
pub(crate) const SETTLE: Duration = Duration::from_millis(50);

/// Like [`SETTLE`], for file systems that may store times with a resolution of up to 2 s.
pub(super) const SETTLE_COARSE: Duration = Duration::from_millis(2050);

/// If a modification time is a multiple of this duration, the file system may store times with a resolution of up to
/// 2 s. On file systems with a fine resolution, only about one of several thousand modification times is such a
/// multiple.
const COARSE_STEP_NS: u32 = 10_000_000;

/// Returns how long to wait until every further write to a file will change the file's modification time. `modified` is
/// the current modification time. Returns `None` if no wait is necessary. If `modified` is in the future, none is
/// necessary, because every write sets an earlier time. The same holds for a change time, and for every change of the
/// file.
pub(crate) fn unsettled_for(modified: SystemTime, now: SystemTime) -> Option<Duration> {
    let since_epoch = modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let is_coarse = since_epoch.subsec_nanos().is_multiple_of(COARSE_STEP_NS);
    let age_min = if is_coarse { SETTLE_COARSE } else { SETTLE };
    let age = now.duration_since(modified).ok()?;
    age_min.checked_sub(age).filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64, ns: u32) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::new(seconds, ns)
    }

    #[test]
    fn a_file_is_settled_once_any_write_would_change_its_time() {
        // A file system with a fine resolution stores such times. The wait depends on the file's age.
        for ns in [1, 9_999_999, 123_456_789, 999_999_999] {
            let modified = at(1000, ns);
            let left = |age_ms| unsettled_for(modified, modified + Duration::from_millis(age_ms));
            assert_eq!([left(0), left(20), left(50), left(1000)], [Some(SETTLE), Some(SETTLE * 3 / 5), None, None]);
        }
        // A file system with a coarse resolution stores whole seconds or, like exFAT, multiples of 10 ms.
        for ns in [0, 10_000_000, 500_000_000] {
            let modified = at(1000, ns);
            let left = |age_ms| unsettled_for(modified, modified + Duration::from_millis(age_ms));
            assert_eq!(left(0), Some(SETTLE_COARSE));
            assert_eq!(left(1999), Some(Duration::from_millis(51)), "FAT stores even seconds");
            assert_eq!(left(2050), None);
        }
        assert_eq!(unsettled_for(at(1000, 0), at(999, 0)), None, "a time in the future");
    }

    #[test]
    fn every_write_to_a_settled_file_changes_its_time() {
        // The kernel's clock is up to one tick late, and the file system rounds the clock's time down.
        const TICK_NS: u64 = 10_000_000;
        for step_ns in [1, TICK_NS, 1_000_000_000, 2_000_000_000] {
            let stored = |written_ns: u64| {
                let ns = (written_ns / TICK_NS * TICK_NS) / step_ns * step_ns;
                at(ns / 1_000_000_000, (ns % 1_000_000_000) as u32)
            };
            for first_ns in (4_000_000_000..6_000_000_000).step_by(7_654_321) {
                let modified = stored(first_ns);
                let left = unsettled_for(modified, at(0, 0) + Duration::from_nanos(first_ns)).unwrap_or_default();
                let settled_ns = first_ns + left.as_nanos() as u64;
                assert!(stored(settled_ns) > modified, "steps of {step_ns} ns, written at {first_ns} ns");
            }
        }
    }
}
