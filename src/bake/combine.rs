//! Merges all sorted rows into the records of one or more files.

use std::path::Path;

use super::budget::{Budget, Context};
use super::error::{BakeError, RowFault, display_key};
use super::feed::Origins;
use super::keys::Keys;
use super::options::Duplicates;
use super::parse::RowUnit;
use super::place::NewFile;
use super::range_keys::RangeKeys;
use super::ranges::RowsOfRanges;
use super::report::Progress;
use super::sort::merge::{ReplacedRow, merge};
use super::sort::run::SortedRun;
use super::sort::sorted_rows::{BASE_RANK, SortedRows, TableRecords};
use super::sort::spill::{SpillFile, SpilledRun};
use super::sort::{Duplicate, HeldRow, LINES_MAX, Tally};
use super::table::{RecordsWriter, WrittenRecords, is_too_long};
use crate::format::header::TableLayout;
use crate::format::key::{Key, KeyKind};
use crate::format::key_type::KeyType;
use crate::format::record::{ALIGN_BYTES, PLACE_BITS, RECORD_ALIGN_MAX_BYTES, record_align_bytes};
use crate::slots::{SLOT_COUNT, SlotRange, slot_of_typed};

/// The number of rows between two calls of the progress function.
const PROGRESS_ROWS: u64 = 1 << 16;

/// All sorted rows of a bake: the base, other tables, and runs. Within one table or run, no two rows have the same key.
pub(super) struct SortedParts {
    /// The type of the keys by which the rows are sorted.
    pub(super) sorted_type: KeyType,
    /// The type of the table's keys, which differs from `sorted_type` if rows have ranges.
    pub(super) key_type: KeyType,
    /// Whether each row has the end of a range.
    pub(super) has_ranges: bool,
    /// The base. A row of another table or of a run replaces the base's row with the same key.
    pub(super) base: Option<TableRecords>,
    /// In a merge, the tables to merge. In a bake of inputs, at most one table, whose rows are the first rows of the
    /// inputs. These rows arrived sorted, so they were written to a file immediately. The rows of `spilled` are next in
    /// the inputs, and the rows of `last` are at the end.
    pub(super) tables: Vec<TableRecords>,
    pub(super) spilled: Vec<SpilledRun>,
    pub(super) last: Option<SortedRun>,
}

impl SortedParts {
    fn row_count_max(&self) -> u64 {
        let tables = self.base.iter().chain(&self.tables).map(|table| table.row_count);
        let spilled = self.spilled.iter().map(|run| run.row_count);
        tables.chain(spilled).sum::<u64>() + self.last.as_ref().map_or(0, SortedRun::len) as u64
    }

    /// Estimates the total length of the new records at the smallest record alignment. The estimate is too high if the
    /// merge drops rows. The estimate can be too low if number keys are merged as text, because a number takes 8 bytes
    /// and its text can be longer.
    fn len_bytes(&self) -> u64 {
        let tables = self.base.iter().chain(&self.tables).map(|table| table.extent.len_bytes);
        let spilled = self.spilled.iter().map(|run| run.extent.len_bytes);
        tables.chain(spilled).sum::<u64>() + self.last.as_ref().map_or(0, SortedRun::len_bytes) as u64
    }

    /// Returns the length of the prefix that all keys share. Returns 0 for number keys, and for byte keys if some runs
    /// hold their keys as numbers.
    fn common_len_bytes(&self) -> usize {
        if self.sorted_type.kind() == KeyKind::U64 || self.spilled.iter().any(|run| run.kind != self.sorted_type.kind())
        {
            return 0;
        }
        let tables = self.base.iter().chain(&self.tables).filter(|table| table.row_count > 0);
        let tables = tables.map(|table| (&table.first_key[..], table.common_len_bytes));
        let spilled = self.spilled.iter().map(|run| (&run.first_key[..], run.common_len_bytes));
        let mut all = tables.chain(spilled).chain(self.last.as_ref().and_then(SortedRun::common));
        let Some((first, common)) = all.next() else { return 0 };
        let common_with = |key: &[u8]| Key::Bytes(first).common_len_bytes(&Key::Bytes(key));
        all.fold(common, |common, (key, its_common)| common.min(its_common).min(common_with(key)))
    }

    /// Opens each table and run as a source of the merge, and gives each source a rank. If several sources have a row
    /// with the same key, the merge keeps the row of the source with the lowest rank.
    fn sources(&self, context: &Context<'_>) -> Result<Vec<SortedRows<'_>>, BakeError> {
        let buffer_len_bytes = context.budget.merge_buffer_len_bytes(self.source_count());
        let mut sources = Vec::new();
        // Ranks follow the order of the input, or the reverse order if the last row with each key is kept.
        let part_count = (self.tables.len() + self.spilled.len() + 1) as u32;
        let mut next = 0..part_count;
        let mut rank = || {
            let place = next.next().unwrap_or(part_count);
            if context.options.duplicates == Duplicates::Last { part_count - place } else { place }
        };
        let range_keys = RangeKeys::new(context.options);
        for table in &self.tables {
            sources.push(SortedRows::table(table, 0, rank(), buffer_len_bytes)?.sorted_by(range_keys));
        }
        for run in &self.spilled {
            sources.extend(SortedRows::spilled(run, self.sorted_type.kind(), rank(), buffer_len_bytes)?);
        }
        if let Some(run) = &self.last {
            sources.push(SortedRows::memory(run, rank()));
        }
        if let Some(base) = &self.base {
            sources.push(SortedRows::table(base, 0, BASE_RANK, buffer_len_bytes)?.sorted_by(range_keys));
        }
        Ok(sources)
    }

    fn source_count(&self) -> usize {
        let of_runs: usize = self.spilled.iter().map(|run| run.ranges(self.sorted_type.kind()).count()).sum();
        self.base.iter().count() + self.tables.len() + of_runs + 1
    }

    /// Returns an upper bound on the memory that rows take while all spilled runs are merged. The merge holds one row
    /// of each run at a time, so the bound is the total length of the runs' longest rows.
    fn rows_len_bytes(&self) -> u64 {
        self.spilled.iter().map(|run| run.row_len_max_bytes as u64).sum()
    }

    fn are_too_many(&self, budget: &Budget) -> bool {
        self.source_count() > budget.fan_in() || self.rows_len_bytes() > budget.merge_rows_len_bytes()
    }
}

/// Performs merge passes, each of which merges all spilled runs into fewer runs. Stops when all tables and runs can be
/// merged at once, or when a pass does not reduce the number of runs. Returns the number of merge passes.
pub(super) fn reduce(
    parts: &mut SortedParts,
    context: &Context<'_>,
    tally: &mut Tally,
    progress: &mut dyn FnMut(Progress),
) -> Result<usize, BakeError> {
    let (budget, folder) = (context.budget, &context.budget.temp_dir);
    let temporary = |error| BakeError::temporary(folder, error);
    let mut passes = 0;
    while parts.are_too_many(budget) && parts.spilled.len() > 1 {
        let rows_total = parts.spilled.iter().map(|run| run.row_count).sum();
        let mut rows = 0;
        let mut file = SpillFile::new(folder).map_err(temporary)?;
        let mut merged = Vec::new();
        let runs_before = parts.spilled.len();
        let mut left = std::mem::take(&mut parts.spilled).into_iter().peekable();
        while let Some(first) = left.next() {
            // Merges only adjacent runs, to preserve the order of the input. A row stores its line relative to the
            // first line of its run, so the merged runs must span at most `LINES_MAX` lines.
            let (first_origin, kind) = (first.first_origin, first.kind);
            let mut rows_len_bytes = first.row_len_max_bytes as u64;
            let mut group = vec![first];
            while group.len() < budget.fan_in()
                && let Some(run) = left.next_if(|run| {
                    rows_len_bytes += run.row_len_max_bytes as u64;
                    let fits = rows_len_bytes <= budget.merge_rows_len_bytes() || group.len() == 1;
                    fits && run.kind == kind && run.last_origin - first_origin < LINES_MAX
                })
            {
                group.push(run);
            }
            let (sorted_type, key_type) = (kind.into(), context.options.keys.key_type(kind));
            let (has_ranges, base, tables, last) = (false, None, Vec::new(), None);
            let group = SortedParts { sorted_type, key_type, has_ranges, base, tables, spilled: group, last };
            let mut writer = file.begin(kind, first_origin);
            let (mut sources, common_len_bytes) = (group.sources(context)?, group.common_len_bytes());
            merge(&mut sources, common_len_bytes, ReplacedRow::Dropped, tally, |row, origin| {
                rows += 1;
                if rows % PROGRESS_ROWS == 0 {
                    context.check_canceled()?;
                    progress(Progress::Merge { rows, rows_total });
                }
                writer.push(row, origin).map_err(temporary)
            })?;
            merged.push(writer.finish().map_err(temporary)?);
        }
        parts.spilled = merged;
        passes += 1;
        // Neighbors have keys of different kinds, or span too many lines, so another pass would change nothing.
        if parts.spilled.len() == runs_before {
            break;
        }
    }
    Ok(passes)
}

/// A new file, and the rows that it gets.
pub(super) struct Target<'t> {
    pub(super) file: &'t NewFile,
    /// The file's final path.
    pub(super) path: &'t Path,
    /// The slots of the rows. `None` if the file gets all rows.
    pub(super) slots: Option<SlotRange>,
}

/// Merges all tables and runs, and writes their rows as records into new files. A merge writes as many files as the
/// memory allows, so there can be several merges. `place_bits` is the number of bits in a place: [`PLACE_BITS`] in a
/// bake, and fewer in tests. Returns the written records of each target.
pub(super) fn combine(
    place_bits: u32,
    parts: &SortedParts,
    targets: &[Target<'_>],
    context: &Context<'_>,
    tally: &mut Tally,
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<WrittenRecords>, BakeError> {
    // The first alignment is an estimate, because the exact length of the records is known only after the merge.
    let share_len_bytes = parts.len_bytes() / targets.len() as u64;
    let estimate = record_align_bytes(|_| share_len_bytes << (PLACE_BITS - place_bits));
    let mut aligns = vec![estimate.unwrap_or(RECORD_ALIGN_MAX_BYTES); targets.len()];
    let mut written: Vec<Option<WrittenRecords>> = vec![None; targets.len()];
    let mut counts = Tally::default();
    loop {
        let is_left = |target: &usize| written[*target].is_none();
        let group: Vec<usize> = (0..targets.len()).filter(is_left).take(context.budget.files_at_once()).collect();
        if group.is_empty() {
            tally.add(counts);
            return Ok(written.into_iter().flatten().collect());
        }
        // If several files are written at once, there is no writing thread for each of them.
        let threads = if group.len() == 1 { context.budget.threads } else { 1 };
        let writing =
            |target: &usize| Writing::new(&targets[*target], parts, aligns[*target], threads, place_bits, context);
        let mut files = group.iter().map(writing).collect::<Result<Vec<_>, _>>()?;
        // Every merge counts the same rows.
        counts = write_rows(parts, &mut files, context, progress)?;
        for (target, file) in group.into_iter().zip(files) {
            match file.finish()? {
                Ok(records) => written[target] = Some(records),
                Err(wanted_align_bytes) => aligns[target] = wanted_align_bytes,
            }
        }
    }
}

/// A file whose records are being written.
struct Writing<'t> {
    target: &'t Target<'t>,
    writer: RecordsWriter,
    align_bytes: usize,
    /// Whether the records do not fit at this alignment. The rest of them is not written.
    is_full: bool,
}

impl<'t> Writing<'t> {
    fn new(
        target: &'t Target<'t>,
        parts: &SortedParts,
        align_bytes: usize,
        threads: usize,
        place_bits: u32,
        context: &Context<'_>,
    ) -> Result<Self, BakeError> {
        let failed = |error| BakeError::output(target.path, error);
        let writer = RecordsWriter::new(target.file.file(), parts.key_type, parts.has_ranges, align_bytes, threads);
        let writer = writer.map_err(failed)?.with_place_bits(place_bits);
        Ok(match context.options.layout {
            TableLayout::Fast => Writing { target, writer, align_bytes, is_full: false },
            TableLayout::Compact => {
                let writer = writer.compact(&context.budget.temp_dir).map_err(failed)?;
                Writing { target, writer, align_bytes: 1, is_full: false }
            }
        })
    }

    #[inline]
    fn push(&mut self, row: &HeldRow<'_>) -> Result<(), BakeError> {
        if self.is_full {
            return Ok(());
        }
        match self.writer.push(row.row_key(), row.value) {
            Err(error) if is_too_long(&error) && (ALIGN_BYTES..RECORD_ALIGN_MAX_BYTES).contains(&self.align_bytes) => {
                self.is_full = true;
                Ok(())
            }
            pushed => pushed.map_err(|error| BakeError::output(self.target.path, error)),
        }
    }

    /// Returns the written records, or the alignment with which they must be written again.
    fn finish(self) -> Result<Result<WrittenRecords, usize>, BakeError> {
        if self.is_full {
            return Ok(Err(self.align_bytes * 2));
        }
        let records = self.writer.finish().map_err(|error| BakeError::output(self.target.path, error))?;
        let wanted_align_bytes = records.wanted_align_bytes;
        Ok(if wanted_align_bytes == self.align_bytes { Ok(records) } else { Err(wanted_align_bytes) })
    }
}

/// Writes each row to the file that has its slot, if there is one. Returns the counts of dropped rows.
fn write_rows(
    parts: &SortedParts,
    files: &mut [Writing<'_>],
    context: &Context<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Tally, BakeError> {
    let (rows_total, file_of_slot) = (parts.row_count_max(), files_by_slot(files));
    let (mut tally, mut rows) = (Tally::default(), 0_u64);
    each_row(parts, context, &mut tally, |row, _| {
        if rows.is_multiple_of(PROGRESS_ROWS) {
            context.check_canceled()?;
            progress(Progress::Write { rows, rows_total });
        }
        if row.deleted {
            return Ok(());
        }
        rows += 1;
        let file = file_of_slot
            .as_ref()
            .map_or(0, |files| usize::from(files[usize::from(slot_of_typed(parts.key_type, row.key))]));
        files.get_mut(file).map_or(Ok(()), |file| file.push(row))
    })?;
    Ok(tally)
}

/// Returns the index of each slot's file, or `u16::MAX` for a slot without a file. Returns `None` if the first file
/// gets all rows.
fn files_by_slot(files: &[Writing<'_>]) -> Option<Vec<u16>> {
    files[0].target.slots?;
    // A table for all slots, because a search would run for every row.
    let mut file_of_slot = vec![u16::MAX; usize::from(SLOT_COUNT)];
    for (file, slots) in (0..).zip(files.iter().filter_map(|file| file.target.slots)) {
        file_of_slot[usize::from(slots.first_slot)..=usize::from(slots.last_slot)].fill(file);
    }
    Some(file_of_slot)
}

/// Passes all rows to `take` in key order and without duplicates or overlaps. Rows that remove their key are included,
/// except in a table of ranges.
pub(super) fn each_row(
    parts: &SortedParts,
    context: &Context<'_>,
    tally: &mut Tally,
    mut take: impl FnMut(&HeldRow<'_>, u64) -> Result<(), BakeError>,
) -> Result<(), BakeError> {
    let (mut sources, common_len_bytes) = (parts.sources(context)?, parts.common_len_bytes());
    let Some(mut ranges) = RowsOfRanges::new(context) else {
        let mut deletions = 0;
        merge(&mut sources, common_len_bytes, ReplacedRow::Dropped, tally, |row, origin| {
            deletions += u64::from(row.deleted);
            take(row, origin)
        })?;
        tally.absent_removed += deletions - tally.base_removed;
        return Ok(());
    };
    let push = |row: &HeldRow<'_>, origin| ranges.push(row, origin, &mut take);
    merge(&mut sources, common_len_bytes, ReplacedRow::Passed, tally, push)?;
    ranges.finish(tally, &mut take)
}

/// Returns an error for the first duplicate in the input, if the options do not allow duplicates, or for ranges that
/// overlap, if the options do not allow them.
pub(super) fn reject_duplicate(context: &Context<'_>, tally: &Tally, origins: &Origins) -> Result<(), BakeError> {
    let duplicate = tally.duplicate.as_ref().filter(|_| context.options.duplicates == Duplicates::Error);
    let Some(Duplicate { key, first_origin, later_origin }) = duplicate.or(tally.overlap.as_ref()) else {
        return Ok(());
    };
    let first = origins.describe(*first_origin, *later_origin);
    let fault = match (RangeKeys::new(context.options), context.options.keys) {
        (Some(keys), _) => {
            let (range, is_equal) = (keys.display_key(key), duplicate.is_some());
            RowFault::Overlap { range, first, is_equal }
        }
        (None, Keys::Type(key_type)) if !key_type.is_plain() => {
            RowFault::Duplicate { key: key_type.display(key.as_key()).to_string(), first }
        }
        _ => RowFault::Duplicate { key: display_key(key.as_key()), first },
    };
    Err(match origins.locate(*later_origin) {
        (table, RowUnit::TableRow, row) => BakeError::TableRow { path: table.into(), row, fault },
        (input, _, line) => BakeError::Row { input: input.to_owned(), line, fault },
    })
}
