//! Turns sorted rows into complete files at their final paths.
//!
//! In: the sorted rows of the inputs, and old tables. Out: a file at the output's path, or several files in the
//! output's folder, and a report of each file. This module calls the last stages of a bake in order: `combine`,
//! `index`, `verify`, and `place`.
//!
//! Reasons and evidence: `docs/decisions/bake-file-order.md`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{panic, thread};

use super::budget::{Budget, Context, spawn};
use super::combine::{SortedParts, Target, combine, each_row, reduce, reject_duplicate};
use super::error::BakeError;
use super::feed::Origins;
use super::gather::Gathered;
use super::index::{self, FinishError};
use super::keys::Keys;
use super::layout;
use super::old_table::{self, OldTable};
use super::options::Duplicates;
use super::place::{Cancel, NewFile, PlaceError, put_all_in_place};
use super::report::{Progress, Report, Stage, StageClock};
use super::shards::{self, ShardReport, Shards, path_of};
use super::sort::sorted_rows::{RowOrigins, SortedRows, TableRecords};
use super::sort::{ExtentOwner, Tally};
use super::table::WrittenRecords;
use crate::Lookup;
use crate::folder::remove_file;
use crate::format::FormatError;
use crate::format::header::Layout;
use crate::format::record::PLACE_BITS;
use crate::replace::TableSummary;
use crate::slots::{SlotRange, slot_of_typed};
use crate::store::check_plan::Plan;
use crate::store::{Memory, OpenOptions, Pace, Store, StoreError};
use crate::typed::Schema;

/// The baked tables whose rows a bake reads.
pub(super) struct OldTables {
    /// The base. A row of an input or of another table replaces the base's row with the same key.
    pub(super) base: Option<OldTable>,
    /// The tables to merge, in the order given.
    pub(super) tables: Vec<OldTable>,
}

/// Where a bake writes its rows.
#[derive(Clone, Copy)]
pub(super) enum Output<'o> {
    /// One file.
    File(&'o Path),
    /// One file per shard, in a folder.
    Folder(&'o Path, Shards),
}

impl Output<'_> {
    pub(super) fn first_path(&self) -> PathBuf {
        match self {
            Output::File(path) => path.to_path_buf(),
            Output::Folder(folder, _) => path_of(folder, SlotRange::ALL),
        }
    }
}

/// A new file, whose records are written.
struct NewTable {
    path: PathBuf,
    /// The slots of the file's keys. `None` if the file has all rows.
    slots: Option<SlotRange>,
    file: NewFile,
    records: WrittenRecords,
}

/// A new file, which is complete and verified.
struct Finished {
    table: NewTable,
    layout: Layout,
    keys_looked_up: u64,
}

/// The new files of a bake.
struct Written {
    tables: Vec<NewTable>,
    parts: SortedParts,
}

/// Runs the last stages of a bake, from the merge of all sorted rows to the rename of the new files.
pub(super) struct Finish<'c, 'p> {
    pub(super) context: &'c Context<'c>,
    pub(super) origins: &'c Origins,
    /// The columns of a typed table.
    pub(super) schema: Option<Arc<Schema>>,
    pub(super) output: Output<'c>,
    pub(super) progress: &'p mut dyn FnMut(Progress),
    pub(super) clock: StageClock,
}

impl Finish<'_, '_> {
    /// Returns one report per file.
    pub(super) fn run(mut self, mut gathered: Gathered<'_>, old: OldTables) -> Result<Vec<ShardReport>, BakeError> {
        let bad_rows = std::mem::take(&mut gathered.bad_rows).finish()?;
        let Written { tables, parts } = self.records(&mut gathered, &old)?;
        // A table that must not replace the old one is rejected before the index is built.
        self.check_replacement(&tables)?;
        // Releases the memory of the sorted rows before the index is built, unless a full verification needs them.
        let parts = self.context.options.compare_rows.then_some(parts);
        self.context.check_canceled()?;
        let indexed = self.index(tables)?;
        self.context.check_canceled()?;
        let finished = self.verify(indexed, parts)?;
        let facts = self.place(finished)?;
        Ok(self.reports(gathered, bad_rows, &old, facts))
    }

    /// Returns the path that messages about the output name.
    fn output_path(&self) -> &Path {
        match self.output {
            Output::File(path) | Output::Folder(path, _) => path,
        }
    }

    /// Returns the slots whose rows are baked.
    fn slots(&self) -> SlotRange {
        self.context.options.slots.unwrap_or(SlotRange::ALL)
    }

    fn check_replacement(&self, tables: &[NewTable]) -> Result<(), BakeError> {
        let path = self.output_path();
        let rows = tables.iter().map(|table| table.records.row_count).sum();
        let new = TableSummary { rows, key_type: tables[0].records.key_type };
        let replaced = match self.output {
            Output::File(path) => old_table::summary(path)?,
            Output::Folder(folder, _) => shards::summary(folder, self.slots())?,
        };
        let checked = self.context.options.replace.check(new, replaced);
        checked.map_err(|error| BakeError::Replace { path: path.to_path_buf(), error })
    }

    fn end(&mut self, stage: Stage, rows: Option<u64>, len_bytes: Option<u64>) {
        self.clock.end(stage, rows, len_bytes, self.progress);
    }

    /// Merges all sorted rows, and writes them as records into new files. If the rows arrived sorted, and a
    /// [`SortedStream`](super::stream::SortedStream) has already written all of them as records, returns the stream's
    /// file instead.
    fn records(&mut self, gathered: &mut Gathered<'_>, old: &OldTables) -> Result<Written, BakeError> {
        let context = self.context;
        let mut parts = SortedParts {
            sorted_type: self.context.options.sorted_keys().key_type(gathered.kind),
            key_type: self.context.options.keys.key_type(gathered.kind),
            has_ranges: context.options.ranges.is_some(),
            base: old.base.as_ref().map(|base| base.table.clone()),
            tables: old.tables.iter().map(|old| old.table.clone()).collect(),
            spilled: std::mem::take(&mut gathered.spilled),
            last: gathered.last.take(),
        };
        layout::check(context.options, parts.key_type)?;
        if let Some(stream) = gathered.stream.take().filter(|stream| !stream.is_empty()) {
            let (path, streamed) = (self.output_path().to_path_buf(), stream.finish()?);
            gathered.rows_streamed = streamed.records.row_count;
            if parts.spilled.is_empty() && parts.last.is_none() {
                reject_duplicate(context, &gathered.tally, self.origins)?;
                // The rows were written while they were read, so this stage has processed no rows.
                self.end(Stage::Write, None, None);
                let table = NewTable { path, slots: None, file: streamed.file, records: streamed.records };
                return Ok(Written { tables: vec![table], parts });
            }
            parts.tables.push(streamed.into_table().map_err(|error| BakeError::output(&path, error))?);
        }
        let runs = parts.spilled.len();
        gathered.merge_passes = reduce(&mut parts, context, &mut gathered.tally, self.progress)?;
        if parts.spilled.len() < runs {
            let merged = parts.spilled.iter().map(|run| (run.row_count, run.extent.len_bytes));
            let (rows, len_bytes) = merged.fold((0, 0), |all, run| (all.0 + run.0, all.1 + run.1));
            self.end(Stage::Merge, Some(rows), Some(len_bytes));
        }
        if gathered.tally.duplicate.is_some() && context.options.duplicates == Duplicates::Error {
            // The duplicate found may not be the first one in the input, because two rows with the same key can be in
            // different runs. Only a merge of all parts finds the first duplicate.
            each_row(&parts, context, &mut gathered.tally, |_, _| context.check_canceled())?;
            reject_duplicate(context, &gathered.tally, self.origins)?;
        }
        let tables = self.combine(&parts, gathered)?;
        reject_duplicate(context, &gathered.tally, self.origins)?;
        let counts = tables.iter().map(|table| (table.records.row_count, table.records.records_len_bytes));
        let (rows, len_bytes) = counts.fold((0, 0), |all, table| (all.0 + table.0, all.1 + table.1));
        self.end(Stage::Write, Some(rows), Some(len_bytes));
        Ok(Written { tables, parts })
    }

    /// Writes all rows into new files.
    fn combine(&mut self, parts: &SortedParts, gathered: &mut Gathered<'_>) -> Result<Vec<NewTable>, BakeError> {
        let context = self.context;
        let files: Vec<(PathBuf, Option<SlotRange>)> = match self.output {
            Output::File(path) => vec![(path.to_path_buf(), None)],
            Output::Folder(folder, shards) => {
                let ranges = shards.ranges(self.slots(), parts, context)?.into_iter();
                ranges.map(|slots| (path_of(folder, slots), Some(slots))).collect()
            }
        };
        let create = |(path, _): &(PathBuf, _)| {
            NewFile::beside(path, &context.options.cancel).map_err(|error| BakeError::output(path, error))
        };
        let created = files.iter().map(create).collect::<Result<Vec<_>, _>>()?;
        let targets = files.iter().zip(&created).map(|((path, slots), file)| Target { file, path, slots: *slots });
        let targets: Vec<_> = targets.collect();
        let records = combine(PLACE_BITS, parts, &targets, context, &mut gathered.tally, self.progress)?;
        let tables = files.into_iter().zip(created).zip(records);
        let tables = tables.map(|(((path, slots), file), records)| NewTable { path, slots, file, records });
        Ok(tables.collect())
    }

    fn index(&mut self, tables: Vec<NewTable>) -> Result<Vec<(NewTable, Layout)>, BakeError> {
        let schema = self.schema.as_deref().map(Schema::encode).unwrap_or_default();
        let rows_total: u64 = tables.iter().map(|table| table.records.row_count).sum();
        let (mut rows, mut len_bytes, mut indexed) = (0, 0, Vec::new());
        for table in tables {
            let layout = self.index_table(&table, &schema, 2 * rows, 2 * rows_total)?;
            rows += table.records.row_count;
            len_bytes += layout.file_len_bytes() - table.records.records_len_bytes;
            indexed.push((table, layout));
        }
        self.end(Stage::Index, Some(rows), Some(len_bytes));
        Ok(indexed)
    }

    /// Builds the index of a file. The files before it have `done_before` of the `total` units of work.
    fn index_table(
        &mut self,
        table: &NewTable,
        schema: &[u8],
        done_before: u64,
        total: u64,
    ) -> Result<Layout, BakeError> {
        let (context, progress) = (self.context, &mut *self.progress);
        // The records are synced to disk while the index is built.
        let (layout, synced) = thread::scope(|scope| {
            let sync = spawn(scope, || table.file.file().sync_data())?;
            let layout = index::build(table.file.file(), &table.records, schema, context.budget, &mut |done, _| {
                progress(Progress::Index { done: done_before + done, total });
            });
            Ok::<_, BakeError>((layout, sync.join().unwrap_or_else(|panic| panic::resume_unwind(panic))))
        })?;
        let layout = layout.map_err(|error| index_failed(&table.path, error))?;
        // A write error is reported here, because the next sync would not report it again.
        synced.map_err(|error| BakeError::output(&table.path, error))?;
        Ok(layout)
    }

    /// Reads the files back, and looks up their keys or samples of them. If `parts` is not `None`, also compares the
    /// files' rows with the rows of `parts`.
    fn verify(
        &mut self,
        tables: Vec<(NewTable, Layout)>,
        parts: Option<SortedParts>,
    ) -> Result<Vec<Finished>, BakeError> {
        let (context, progress) = (self.context, &mut *self.progress);
        let bytes_total: u64 = tables.iter().map(|(_, layout)| layout.file_len_bytes()).sum();
        let (mut bytes_before, mut rows_total, mut finished) = (0, 0, Vec::new());
        for (table, layout) in tables {
            let (len_bytes, row_count) = (layout.file_len_bytes(), layout.dimensions.row_count);
            let (file, cancel) = (table.file.file(), &context.options.cancel);
            let keys_looked_up = read_back(file, &table.path, &layout, context.budget, cancel, &mut |rows| {
                let bytes = (u128::from(len_bytes) * u128::from(rows) / u128::from(row_count.max(1))) as u64;
                progress(Progress::Verify { bytes: bytes_before + bytes, bytes_total });
            })?;
            if let Some(parts) = &parts {
                let target = Target { file: &table.file, path: &table.path, slots: table.slots };
                compare(&target, &table.records, parts, context, progress)?;
            }
            (bytes_before, rows_total) = (bytes_before + len_bytes, rows_total + row_count);
            finished.push(Finished { table, layout, keys_looked_up });
        }
        self.end(Stage::Verify, Some(rows_total), Some(bytes_total));
        Ok(finished)
    }

    /// Renames the files to their final paths, and removes other shards of an earlier bake. If a shard cannot be
    /// renamed, removes the shards before it, unless they have replaced others. Returns what the reports need.
    fn place(&mut self, finished: Vec<Finished>) -> Result<Vec<PlacedFacts>, BakeError> {
        (self.progress)(Progress::Settle);
        let len_bytes = finished.iter().map(|file| file.layout.file_len_bytes()).sum();
        let old_shards = match self.output {
            Output::File(_) => Vec::new(),
            Output::Folder(folder, _) => shards::existing(folder, self.slots())?,
        };
        let (mut facts, mut files) = (Vec::new(), Vec::new());
        for Finished { table, layout, keys_looked_up } in finished {
            let NewTable { path, slots, file, records } = table;
            files.push(file);
            facts.push(PlacedFacts { path, slots, records, layout, keys_looked_up });
        }
        if let Err((placed, error)) = put_all_in_place(files) {
            let shards = facts[..placed].iter().filter(|file| file.slots.is_some() && old_shards.is_empty());
            for shard in shards {
                // The error of the bake is reported, not an error of this attempt to clean up.
                let _ = remove_file(&shard.path);
            }
            let path = facts[placed.min(facts.len() - 1)].path.clone();
            return Err(match error {
                PlaceError::Unplaced(_) if self.context.options.cancel.is_set() => BakeError::Canceled,
                PlaceError::Unplaced(error) => BakeError::output(&path, error),
                PlaceError::FolderSync(error) => BakeError::FolderSync { path, error },
            });
        }
        for old in old_shards.iter().filter(|old| facts.iter().all(|new| new.path != **old)) {
            remove_file(old).map_err(|error| BakeError::output(old, error))?;
        }
        self.end(Stage::Settle, None, Some(len_bytes));
        Ok(facts)
    }

    fn reports(
        self,
        gathered: Gathered<'_>,
        bad_rows: u64,
        old: &OldTables,
        files: Vec<PlacedFacts>,
    ) -> Vec<ShardReport> {
        let (context, tally) = (self.context, &gathered.tally);
        let first_text_origin = gathered.first_text_origin.filter(|_| context.options.keys == Keys::Auto);
        let first_text_key = first_text_origin.map(|origin| self.origins.locate(origin));
        let stages = self.clock.stages();
        let report = |file: PlacedFacts| ShardReport {
            path: file.path,
            slots: file.slots.unwrap_or(SlotRange::ALL),
            report: Report {
                inputs: gathered.inputs.clone(),
                base: old.base.as_ref().map(|base| base.facts.clone()),
                tables: old.tables.iter().map(|old| old.facts.clone()).collect(),
                rows_read: gathered.rows_read,
                rows_streamed: gathered.rows_streamed,
                bad_rows,
                duplicates_dropped: tally.duplicates_dropped,
                base_replaced: tally.base_replaced,
                base_removed: tally.base_removed,
                absent_removed: tally.absent_removed,
                runs: gathered.runs,
                merge_passes: gathered.merge_passes,
                rows: file.records.row_count,
                key_type: file.records.key_type,
                schema: self.schema.clone(),
                first_text_key: first_text_key.map(|(input, _, line)| (input.to_owned(), line)),
                file_len_bytes: file.layout.file_len_bytes(),
                other_layout: layout::other(&file.records, &file.layout),
                sections: file.layout.sections().map(|(kind, section)| (kind, section.len_bytes)).to_vec(),
                values_len_bytes: file.records.values_len_bytes,
                value_lens: file.records.value_lens,
                digest: file.layout.digest(),
                stages: stages.clone(),
                keys_looked_up: file.keys_looked_up,
                memory_limit_bytes: context.budget.memory_bytes,
                threads: context.budget.threads,
            },
        };
        files.into_iter().map(report).collect()
    }
}

/// The facts about a file that has its final path.
struct PlacedFacts {
    path: PathBuf,
    slots: Option<SlotRange>,
    records: WrittenRecords,
    layout: Layout,
    keys_looked_up: u64,
}

fn index_failed(path: &Path, error: FinishError) -> BakeError {
    match error {
        FinishError::Format(error) => error.into(),
        FinishError::ReadBack(error) => BakeError::Verify(StoreError::Format { path: path.to_path_buf(), error }),
        FinishError::Io(error) => BakeError::output(path, error),
        FinishError::Temp { folder, error } => BakeError::temporary(&folder, error),
    }
}

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
    if records.groups.is_some() {
        return compare_with_store(target, parts, context, progress);
    }
    let (file, owner) = (target.file.file(), ExtentOwner::Output(target.path.into()));
    let table = TableRecords::written(file, records, RowOrigins::Counted(0), Vec::new(), owner);
    let table = table.map_err(|error| BakeError::output(target.path, error))?;
    let mut written = SortedRows::table(&table, 0, 0, BUFFER_LEN_BYTES)?;
    let mut found = written.begin(0)?;
    let mut row_number = 0;
    each_row(parts, context, &mut Tally::default(), |row, _| {
        if row.deleted || target.slots.is_some_and(|slots| !slots.has(slot_of_typed(parts.key_type, row.key))) {
            return Ok(());
        }
        if row_number % PROGRESS_ROWS == 0 {
            context.check_canceled()?;
            progress(Progress::Compare { rows: row_number, rows_total: records.row_count });
        }
        let is_same = found.is_some() && {
            let (found, _) = written.row();
            (found.row_key(), found.value) == (row.row_key(), row.value)
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

/// Implements [`compare`] for a table with the compact layout, whose values have no keys beside them.
fn compare_with_store(
    target: &Target<'_>,
    parts: &SortedParts,
    context: &Context<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), BakeError> {
    let store = Store::from_file(target.file.file(), target.path, Memory::Map, &OpenOptions::default(), &mut |_| ());
    let store = store.map_err(BakeError::Verify)?;
    let (mut found, mut row_number) = (store.iter(), 0);
    each_row(parts, context, &mut Tally::default(), |row, _| {
        if row.deleted || target.slots.is_some_and(|slots| !slots.has(slot_of_typed(parts.key_type, row.key))) {
            return Ok(());
        }
        if row_number % PROGRESS_ROWS == 0 {
            context.check_canceled()?;
            progress(Progress::Compare { rows: row_number, rows_total: store.len() as u64 });
        }
        let is_same = found
            .next_record()
            .is_some_and(|(record, _)| (record.row_key(), record.value()) == (row.row_key(), row.value));
        if !is_same {
            return Err(BakeError::Compare { row: row_number });
        }
        row_number += 1;
        Ok(())
    })?;
    if found.is_empty() { Ok(()) } else { Err(BakeError::Compare { row: row_number }) }
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
    use crate::format::key::Key;
    use crate::format::key_type::KeyType;

    /// Returns a file with `row_count` rows, and its expected layout.
    fn baked(row_count: u64) -> (File, Layout) {
        let file = tempfile::tempfile().unwrap();
        let mut records = RecordsWriter::new(&file, KeyType::U64, false, 8, 1).unwrap();
        (0..row_count).for_each(|key| records.push(Key::U64(key), &[b'v'; 80]).unwrap());
        let layout =
            index::build(&file, &records.finish().unwrap(), &[], &Budget::test(1 << 30, 2), &mut |_, _| ()).unwrap();
        (file, layout)
    }

    fn read(file: &File, layout: &Layout, budget: &Budget, progress: &mut dyn FnMut(u64)) -> Result<u64, BakeError> {
        read_back(file, Path::new("test"), layout, budget, &Cancel::default(), progress)
    }

    fn rejection(file: &File, layout: &Layout, budget: &Budget) -> FormatError {
        match read(file, layout, budget, &mut |_| ()) {
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
                let looked_up = read(&file, &layout, &Budget::test(1 << 30, threads), &mut |rows| reported.push(rows));
                assert_eq!(looked_up.unwrap(), row_count, "{threads} threads");
                assert!(reported.is_sorted() && reported.iter().all(|rows| *rows <= row_count), "{reported:?}");
            }
        }
        let (file, layout) = baked(250_000);
        let looked_up = read(&file, &layout, &Budget::test(0, 2), &mut |_| ());
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
        let found = read(&file, &other, &Budget::test(1 << 30, 1), &mut |_| ());
        assert!(matches!(found, Err(BakeError::ReadBack { expected_rows: 1001, found_rows: 1000 })), "{found:?}");
        let (_, mut other) = baked(1000);
        other.fences.checksum ^= 1;
        assert!(matches!(rejection(&file, &other, &Budget::test(1 << 30, 1)), FormatError::Digest { .. }));
    }
}
