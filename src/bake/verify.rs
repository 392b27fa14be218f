//! Reads a new file back before it replaces the output.
//!
//! In: the file and its expected layout. Out: success or an error. The new file is verified on several threads, by the
//! same code that verifies a table when it is opened. Each thread reads its share of the file in short windows, so that
//! little of the file stays in memory. If the index does not fit into memory, only a sample of the keys is looked up.

use std::fs::File;
use std::path::Path;

use super::budget::Budget;
use super::cancel::Cancel;
use super::combine::{SortedParts, Target, each_row};
use super::context::Context;
use super::error::BakeError;
use super::progress::Progress;
use super::sort::extent_owner::ExtentOwner;
use super::sort::sorted_rows::{RowOrigins, SortedRows, TableRecords};
use super::sort::tally::Tally;
use super::table::WrittenRecords;
use crate::format::FormatError;
use crate::format::header::Layout;
use crate::store::check::Plan;
use crate::store::{Pace, Store, StoreError};

/// The minimum number of keys in a sample. The keys are evenly spread over the rows.
const SAMPLE_KEYS: u64 = 100_000;
/// The number of rows between two calls of the progress function.
const PROGRESS_ROWS: u64 = 1 << 16;
const BUFFER_LEN_BYTES: usize = 1 << 20;

/// Verifies that the file is intact and has this layout. Looks up all keys if pilots and places take at most half of
/// the budget's memory, and otherwise only a sample of the keys. Calls `progress` with the number of rows verified so
/// far. Returns the number of keys looked up.
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
        StoreError::Canceled { .. } => BakeError::Canceled,
        error => BakeError::Verify(error),
    })?;
    let (expected_rows, found_rows) = (layout.dimensions.row_count, found.dimensions.row_count);
    if found_rows != expected_rows {
        return Err(BakeError::ReadBack { expected_rows, found_rows });
    }
    // The digest covers the checksums of all sections, so equal digests prove that every byte was read back as it was
    // written.
    let (expected, found) = (layout.digest(), found.digest());
    if found != expected {
        let error = FormatError::Digest { expected, found };
        return Err(BakeError::Verify(StoreError::Format { path: path.to_path_buf(), error }));
    }
    Ok(expected_rows.div_ceil(plan.lookup_rows as u64))
}

/// Compares the records in a file with the sorted rows that they were written from.
pub(super) fn compare(
    target: &Target<'_>,
    records: &WrittenRecords,
    parts: &SortedParts,
    context: &Context<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), BakeError> {
    let (file, owner) = (target.file.file(), ExtentOwner::Output(target.path.into()));
    let table = TableRecords::written(file, records, RowOrigins::Counted(0), Vec::new(), owner);
    let table = table.map_err(|error| BakeError::output(target.path, error))?;
    let mut written = SortedRows::table(&table, 0, 0, BUFFER_LEN_BYTES)?;
    let mut found = written.begin(0)?;
    let mut row_number = 0;
    each_row(parts, context, &mut Tally::default(), |row, _| {
        if row.deleted || target.slots.is_some_and(|slots| !slots.has_key(row.key)) {
            return Ok(());
        }
        if row_number % PROGRESS_ROWS == 0 {
            context.check_canceled()?;
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

    /// Returns a file with `row_count` rows, and its expected layout.
    fn baked(row_count: u64) -> (File, Layout) {
        let file = tempfile::tempfile().unwrap();
        let mut records = RecordsWriter::new(&file, KeyKind::U64, 8, 1).unwrap();
        (0..row_count).for_each(|key| records.push(Key::U64(key), &[b'v'; 80]).unwrap());
        let layout =
            index::build(&file, &records.finish().unwrap(), &[], &Budget::test(1 << 30, 2), &mut |_, _| ()).unwrap();
        (file, layout)
    }

    fn rejection(file: &File, layout: &Layout, budget: &Budget) -> FormatError {
        match read_back(file, Path::new("test"), layout, budget, &Cancel::default(), &mut |_| ()) {
            Err(BakeError::Verify(StoreError::Format { error, .. })) => error,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_intact_file_is_accepted_with_any_number_of_threads_and_any_memory() {
        for row_count in [0, 1, 17, 150_000] {
            let (file, layout) = baked(row_count);
            for threads in [1, 2, 5] {
                let mut reported = Vec::new();
                let looked_up = read_back(
                    &file,
                    Path::new("test"),
                    &layout,
                    &Budget::test(1 << 30, threads),
                    &Cancel::default(),
                    &mut |rows| {
                        reported.push(rows);
                    },
                );
                assert_eq!(looked_up.unwrap(), row_count, "{threads} threads");
                assert!(reported.is_sorted() && reported.iter().all(|rows| *rows <= row_count), "{reported:?}");
            }
        }
        let (file, layout) = baked(250_000);
        let looked_up =
            read_back(&file, Path::new("test"), &layout, &Budget::test(0, 2), &Cancel::default(), &mut |_| ());
        assert_eq!(looked_up.unwrap(), 125_000, "every second key");
    }

    #[test]
    fn damage_is_found_with_any_number_of_threads() {
        let (file, layout) = baked(100_000);
        for threads in [1, 2, 3] {
            // The schema is empty.
            for (_, section) in layout.sections().into_iter().filter(|(_, section)| section.len_bytes > 0) {
                for at in [section.offset_bytes, section.offset_bytes + section.len_bytes - 1] {
                    let mut byte = [0];
                    file.read_exact_at(&mut byte, at).unwrap();
                    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
                    let found = rejection(&file, &layout, &Budget::test(1 << 30, threads));
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
    fn an_intact_file_with_another_layout_is_rejected() {
        let ((file, _), (_, other)) = (baked(1000), baked(1001));
        let found =
            read_back(&file, Path::new("test"), &other, &Budget::test(1 << 30, 1), &Cancel::default(), &mut |_| ());
        assert!(matches!(found, Err(BakeError::ReadBack { expected_rows: 1001, found_rows: 1000 })), "{found:?}");
        let (_, mut other) = baked(1000);
        other.fences.checksum ^= 1;
        assert!(matches!(rejection(&file, &other, &Budget::test(1 << 30, 1)), FormatError::Digest { .. }));
    }
}
