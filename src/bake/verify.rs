//! Reading a file back before it gets its name.
//!
//! In: a file that is written, and what it must be. Out: the same, or what is
//! wrong. It is checked as a reader checks it, on all threads, and in windows: of
//! what was read little stays resident. Only where its memory cannot hold what
//! leads to all keys, a sample of the keys is looked up.

use std::fs::File;
use std::path::Path;

use super::budget::Budget;
use super::combine::{Parts, each_row};
use super::context::Context;
use super::sort::blocks::Home;
use super::sort::merge::Tally;
use super::sort::source::{RowOrigins, Source, Table};
use super::table::WrittenRecords;
use super::{BakeError, Cancel, Progress};
use crate::format::FormatError;
use crate::format::header::Layout;
use crate::store::check::Plan;
use crate::store::{Pace, Store, StoreError};

/// Keys of a sample, spread evenly over the rows.
const SAMPLE_KEYS: u64 = 100_000;
/// Rows between two calls of the progress function.
const PROGRESS_ROWS: u64 = 1 << 16;
const BUFFER_LEN_BYTES: usize = 1 << 20;

/// Checks that a file is the one with this layout, whole and right. `progress` is
/// told how many rows are checked. Gives how many keys were looked up: all, if
/// pilots and places take up no more than half of the budget's memory.
pub(super) fn read_back(
    file: &File,
    path: &Path,
    layout: &Layout,
    budget: &Budget,
    cancel: &Cancel,
    progress: &mut dyn FnMut(u64),
) -> Result<u64, BakeError> {
    let plan = plan(layout, budget, cancel);
    let found = Store::check_file(file, path, &plan, progress).map_err(|error| match error {
        StoreError::Canceled { .. } => BakeError::Cancelled,
        error => BakeError::Verify(error),
    })?;
    let (expected_rows, found_rows) = (layout.dimensions.row_count, found.dimensions.row_count);
    if found_rows != expected_rows {
        return Err(BakeError::ReadBack { expected_rows, found_rows });
    }
    // Through it, that every byte is the one that was meant to be written.
    let (expected, found) = (layout.digest(), found.digest());
    if found != expected {
        let error = FormatError::Digest { expected, found };
        return Err(BakeError::Verify(StoreError::Format { path: path.to_path_buf(), error }));
    }
    Ok(expected_rows.div_ceil(plan.lookup_rows as u64))
}

/// Compares the records in a file with the sorted rows that they were written from.
pub(super) fn compare(
    file: &File,
    path: &Path,
    records: &WrittenRecords,
    parts: &Parts,
    context: &Context<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), BakeError> {
    let table = Table::written(file, records, RowOrigins::Counted(0), Vec::new(), Home::Output(path.into()));
    let table = table.map_err(|error| BakeError::output(path, error))?;
    let mut written = Source::table(&table, 0, false, BUFFER_LEN_BYTES)?;
    let mut found = written.begin(0)?;
    let mut row_number = 0;
    each_row(parts, context, &mut Tally::default(), |row, _| {
        if row.deleted {
            return Ok(());
        }
        if row_number % PROGRESS_ROWS == 0 {
            context.check_cancelled()?;
            progress(Progress::Compare { rows: row_number, rows_total: records.row_count });
        }
        let is_same = found.is_some() && {
            let (found, _) = written.row();
            (found.key, found.value) == (row.key, row.value)
        };
        if !is_same {
            return Err(BakeError::Compare { row: row_number });
        }
        found = written.advance(0)?;
        row_number += 1;
        Ok(())
    })?;
    if found.is_some() { Err(BakeError::Compare { row: row_number }) } else { Ok(()) }
}

fn plan(layout: &Layout, budget: &Budget, cancel: &Cancel) -> Plan {
    let fits = layout.pilots.len_bytes + layout.places.len_bytes <= budget.memory_bytes / 2;
    let lookup_rows = if fits { 1 } else { (layout.dimensions.row_count / SAMPLE_KEYS).max(1) };
    let cancel = cancel.clone();
    let pace = Pace::new(move || !cancel.is_set());
    Plan { threads: budget.threads, release: true, lookup_rows: lookup_rows as usize, pace }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::bake::index;
    use crate::bake::table::RecordsWriter;
    use crate::format::key::{Key, KeyKind};

    fn budget(memory_bytes: u64, threads: usize) -> Budget {
        Budget { memory_bytes, threads, temp_dir: std::env::temp_dir() }
    }

    /// A file of so many rows, in several windows, and what it is to be.
    fn baked(row_count: u64) -> (File, Layout) {
        let file = tempfile::tempfile().unwrap();
        let mut records = RecordsWriter::new(&file, KeyKind::U64, 8, 1).unwrap();
        (0..row_count).for_each(|key| records.push(Key::U64(key), &[b'v'; 80]).unwrap());
        let layout = index::build(&file, &records.finish().unwrap(), &budget(1 << 30, 2), &mut |_, _| ()).unwrap();
        (file, layout)
    }

    fn refusal(file: &File, layout: &Layout, budget: &Budget) -> FormatError {
        match read_back(file, Path::new("test"), layout, budget, &Cancel::default(), &mut |_| ()) {
            Err(BakeError::Verify(StoreError::Format { error, .. })) => error,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_good_file_is_found_good_by_any_number_of_threads_and_with_any_memory() {
        for row_count in [0, 1, 17, 150_000] {
            let (file, layout) = baked(row_count);
            for threads in [1, 2, 5] {
                let mut told = Vec::new();
                let looked_up = read_back(
                    &file,
                    Path::new("test"),
                    &layout,
                    &budget(1 << 30, threads),
                    &Cancel::default(),
                    &mut |rows| {
                        told.push(rows);
                    },
                );
                assert_eq!(looked_up.unwrap(), row_count, "{threads} threads");
                assert!(told.is_sorted() && told.iter().all(|rows| *rows <= row_count), "{told:?}");
            }
        }
        let (file, layout) = baked(250_000);
        let looked_up = read_back(&file, Path::new("test"), &layout, &budget(0, 2), &Cancel::default(), &mut |_| ());
        assert_eq!(looked_up.unwrap(), 125_000, "every second key");
    }

    #[test]
    fn what_is_damaged_is_found_by_any_number_of_threads() {
        let (file, layout) = baked(100_000);
        for threads in [1, 2, 3] {
            for (_, section) in layout.sections() {
                for at in [section.offset_bytes, section.offset_bytes + section.len_bytes - 1] {
                    let mut byte = [0];
                    file.read_exact_at(&mut byte, at).unwrap();
                    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
                    let found = refusal(&file, &layout, &budget(1 << 30, threads));
                    let as_expected = match at < layout.fences.offset_bytes {
                        true => matches!(found, FormatError::BlockChecksum { .. }),
                        false => matches!(found, FormatError::SectionChecksum { .. }),
                    };
                    assert!(as_expected, "byte {at}, {threads} threads: {found}");
                    file.write_all_at(&byte, at).unwrap();
                }
            }
        }
    }

    #[test]
    fn another_file_than_was_meant_is_refused_however_good_it_is() {
        let ((file, _), (_, other)) = (baked(1000), baked(1001));
        let found = read_back(&file, Path::new("test"), &other, &budget(1 << 30, 1), &Cancel::default(), &mut |_| ());
        assert!(matches!(found, Err(BakeError::ReadBack { expected_rows: 1001, found_rows: 1000 })), "{found:?}");
        let (_, mut other) = baked(1000);
        other.fences.checksum ^= 1;
        assert!(matches!(refusal(&file, &other, &budget(1 << 30, 1)), FormatError::Digest { .. }));
    }
}
