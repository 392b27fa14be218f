//! Splits work into ranges, and processes the ranges on several threads.

use std::ops::Range;
use std::panic;
use std::thread;

/// Splits `count` items into at most `threads` ranges that begin at multiples of `unit`.
pub(super) fn ranges(count: usize, unit: usize, threads: usize) -> impl Iterator<Item = Range<usize>> {
    let len = count.div_ceil(threads.max(1)).next_multiple_of(unit).max(unit);
    // Without items, there is one empty range, so that the check for records beyond the last row runs.
    (0..count.max(1)).step_by(len).map(move |start| start..count.min(start + len))
}

/// Processes all ranges in parallel. The calling thread processes the first range, and reports progress. Returns the
/// results in order.
pub(super) fn on_threads<T: Send>(
    ranges: impl Iterator<Item = Range<usize>>,
    work: impl Fn(Range<usize>, &mut dyn FnMut()) -> T + Sync,
    report: &mut dyn FnMut(),
) -> Vec<T> {
    let work = &work;
    thread::scope(|scope| {
        let mut ranges = ranges;
        let first = ranges.next();
        let helpers: Vec<_> = ranges
            .map(|range| {
                let helper = thread::Builder::new().spawn_scoped(scope, {
                    let range = range.clone();
                    move || work(range, &mut || ())
                });
                (range, helper)
            })
            .collect();
        let mut done: Vec<T> = first.into_iter().map(|range| work(range, report)).collect();
        for (range, helper) in helpers {
            done.push(match helper {
                Ok(helper) => helper.join().unwrap_or_else(|payload| panic::resume_unwind(payload)),
                // If the system cannot start a thread, this thread processes the range.
                Err(_) => work(range, report),
            });
        }
        done
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_each_item_once_and_begin_at_multiples_of_the_unit() {
        for count in [0, 1, 15, 16, 17, 100, 1000] {
            for (unit, threads) in [(16, 1), (16, 2), (16, 7), (1, 3), (256, 2)] {
                let all: Vec<_> = ranges(count, unit, threads).collect();
                assert!(!all.is_empty() && all.len() <= threads, "{all:?}");
                assert!(all.iter().all(|range| range.start % unit == 0), "{all:?}");
                assert!(all.into_iter().flatten().eq(0..count));
            }
        }
    }
}
