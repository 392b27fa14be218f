//! What the checks of all layouts share: plans, threads, and checks of cells.

use std::ops::Range;
use std::panic;
use std::thread;

use super::{Pace, Store};
use crate::format::FormatError;
use crate::format::checksum::BLOCK_LEN_BYTES;
use crate::format::header::Section;
use crate::format::key::Key;
use crate::format::record::Record;
use crate::typed::{ColumnError, Schema, TypedRow};

/// The length of a window, a multiple of the block length. Sections are checked window by window. Before each window,
/// the check can be canceled, and the pages of earlier windows are released.
pub(super) const WINDOW_LEN_BYTES: usize = 256 * BLOCK_LEN_BYTES;

/// Describes how a file is checked. Every plan checks the whole file, but may look up only a sample of the keys.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The number of threads, at least one.
    pub(crate) threads: usize,
    /// Whether the pages of a mapped file are released once they are checked, so that few pages are resident at a time.
    pub(crate) release: bool,
    /// Every `lookup_rows`-th row is looked up, beginning with the first.
    pub(crate) lookup_rows: usize,
    /// Can cancel the check. The caller must discard the result of a canceled check.
    pub(crate) pace: Pace,
}

impl Default for Plan {
    /// Returns a plan that checks everything on the calling thread, and keeps the pages for later use.
    fn default() -> Plan {
        Plan { threads: 1, release: false, lookup_rows: 1, pace: Pace::default() }
    }
}

/// Releases the pages of a range of a section if [`Plan::release`] is set.
pub(super) fn release(store: &Store, plan: &Plan, section: &Section, range: Range<usize>) {
    #[cfg(feature = "bake")]
    if plan.release {
        let start = section.offset_bytes as usize;
        store.map.release(start + range.start..start + range.end);
    }
    #[cfg(not(feature = "bake"))]
    let _ = (store, plan.release, section, range);
}

/// Checks that the value of a record is a row of the schema.
pub(super) fn check_cells(schema: &Schema, row: usize, record: &Record<'_>) -> Result<(), FormatError> {
    TypedRow::new(schema, record.value()).and_then(|row| row.check()).map_err(|error| {
        let what = if let ColumnError::Malformed { what } = error { what } else { "it is not a row of the schema" };
        FormatError::Cells { row: row as u64, key: shown_key(record.key()), what }
    })
}

/// Returns a key as text for messages. Byte keys are quoted and escaped, and truncated after 64 bytes.
fn shown_key(key: Key<'_>) -> String {
    const SHOWN_MAX_BYTES: usize = 64;
    match key {
        Key::U64(key) => key.to_string(),
        Key::Bytes(key) if key.len() > SHOWN_MAX_BYTES => format!("\"{}...\"", key[..SHOWN_MAX_BYTES].escape_ascii()),
        Key::Bytes(key) => format!("\"{}\"", key.escape_ascii()),
    }
}

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
