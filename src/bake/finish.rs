//! Turns sorted rows into a complete file at the output's path.
//!
//! In: the sorted rows of the inputs, and old tables. Out: a file at the output's path, and the report. This module
//! calls the last stages of a bake in order: `combine`, `index`, `verify`, and `place`.

use std::panic;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use super::budget::spawn;
use super::combine::{Combined, SortedParts, combine, each_row, reduce, reject_duplicate};
use super::context::Context;
use super::error::BakeError;
use super::gather::Gathered;
use super::index::FinishError;
use super::keys::Keys;
use super::old_table::{self, OldTable};
use super::options::{Duplicates, Verify};
use super::origins::Origins;
use super::place::{NewFile, PlaceError};
use super::progress::{Progress, Stage, StageClock};
use super::report::Report;
use super::{index, verify};
use crate::format::header::Layout;
use crate::format::record::PLACE_BITS;
use crate::replace::TableSummary;
use crate::store::StoreError;
use crate::typed::Schema;

/// The baked tables whose rows a bake reads.
pub(super) struct OldTables {
    /// The base. A row of an input or of another table replaces the base's row with the same key.
    pub(super) base: Option<OldTable>,
    /// The tables to merge, in the order given.
    pub(super) tables: Vec<OldTable>,
}

/// Runs the last stages of a bake, from the merge of all sorted rows to the rename of the new file.
pub(super) struct Finish<'c, 'p> {
    pub(super) context: &'c Context<'c>,
    pub(super) origins: &'c Origins,
    /// The columns of a typed table.
    pub(super) schema: Option<Arc<Schema>>,
    pub(super) output: &'c Path,
    pub(super) progress: &'p mut dyn FnMut(Progress),
    pub(super) clock: StageClock,
}

impl Finish<'_, '_> {
    pub(super) fn run(mut self, mut gathered: Gathered<'_>, old: OldTables) -> Result<Report, BakeError> {
        let bad_rows = std::mem::take(&mut gathered.bad_rows).finish()?;
        let (file, combined, parts) = self.records(&mut gathered, &old)?;
        self.check_replacement(&combined)?;
        // Releases the memory of the sorted rows before the index is built, unless a full verification needs them.
        let parts = (self.context.options.verify == Verify::Full).then_some(parts);
        self.context.check_canceled()?;
        let layout = self.index(&file, &combined)?;
        self.context.check_canceled()?;
        let keys_looked_up = self.verify(&file, &combined, &layout, parts)?;
        self.place(file, &layout)?;
        Ok(self.report(gathered, bad_rows, &old, &combined, &layout, keys_looked_up))
    }

    fn check_replacement(&self, combined: &Combined) -> Result<(), BakeError> {
        let new = TableSummary { rows: combined.records.row_count, key_kind: combined.records.key_kind };
        let replaced = old_table::summary(self.output)?;
        let checked = self.context.options.replace.check(new, replaced);
        checked.map_err(|error| BakeError::Replace { path: self.output.to_path_buf(), error })
    }

    fn end(&mut self, stage: Stage, rows: Option<u64>, len_bytes: Option<u64>) {
        self.clock.end(stage, rows, len_bytes, self.progress);
    }

    fn output_failed(&self, error: std::io::Error) -> BakeError {
        BakeError::output(self.output, error)
    }

    fn index_failed(&self, error: FinishError) -> BakeError {
        match error {
            FinishError::Format(error) => error.into(),
            FinishError::ReadBack(error) => {
                BakeError::Verify(StoreError::Format { path: self.output.to_path_buf(), error })
            }
            FinishError::Io(error) => self.output_failed(error),
            FinishError::Temp { folder, error } => BakeError::temporary(&folder, error),
        }
    }

    /// Merges all sorted rows, and writes them as records into a new file. If the rows arrived sorted, and a
    /// [`SortedStream`](super::stream::SortedStream) has already written all of them as records, returns the stream's
    /// file instead.
    fn records(
        &mut self,
        gathered: &mut Gathered<'_>,
        old: &OldTables,
    ) -> Result<(NewFile, Combined, SortedParts), BakeError> {
        let context = self.context;
        let mut parts = SortedParts {
            kind: gathered.kind,
            base: old.base.as_ref().map(|base| base.table.clone()),
            tables: old.tables.iter().map(|old| old.table.clone()).collect(),
            spilled: std::mem::take(&mut gathered.spilled),
            last: gathered.last.take(),
        };
        if let Some(stream) = gathered.stream.take().filter(|stream| !stream.is_empty()) {
            let streamed = stream.finish()?;
            gathered.rows_streamed = streamed.records.row_count;
            if parts.spilled.is_empty() && parts.last.is_none() {
                reject_duplicate(context, &gathered.tally, self.origins)?;
                // The rows were written while they were read, so this stage has processed no rows.
                self.end(Stage::Write, None, None);
                return Ok((streamed.file, Combined { records: streamed.records, removals: 0 }, parts));
            }
            parts.tables.push(streamed.into_table().map_err(|error| self.output_failed(error))?);
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
        let file = NewFile::beside(self.output, &context.options.cancel).map_err(|error| self.output_failed(error))?;
        let combined = combine(PLACE_BITS, &parts, &file, self.output, context, &mut gathered.tally, self.progress)?;
        reject_duplicate(context, &gathered.tally, self.origins)?;
        let records = &combined.records;
        self.end(Stage::Write, Some(records.row_count), Some(records.records_len_bytes));
        Ok((file, combined, parts))
    }

    fn index(&mut self, file: &NewFile, combined: &Combined) -> Result<Layout, BakeError> {
        let (context, progress) = (self.context, &mut *self.progress);
        let schema = self.schema.as_deref().map(Schema::encode).unwrap_or_default();
        // The records are synced to disk while the index is built.
        let (layout, synced) = thread::scope(|scope| {
            let sync = spawn(scope, || file.file().sync_data())?;
            let layout = index::build(file.file(), &combined.records, &schema, context.budget, &mut |done, total| {
                progress(Progress::Index { done, total });
            });
            Ok::<_, BakeError>((layout, sync.join().unwrap_or_else(|panic| panic::resume_unwind(panic))))
        })?;
        let layout = layout.map_err(|error| self.index_failed(error))?;
        // A write error is reported here, because the next sync would not report it again.
        synced.map_err(|error| self.output_failed(error))?;
        let index_len_bytes = layout.file_len_bytes() - combined.records.records_len_bytes;
        self.end(Stage::Index, Some(combined.records.row_count), Some(index_len_bytes));
        Ok(layout)
    }

    /// Reads the file back, and looks up its keys or a sample of them. If `parts` is not `None`, also compares the
    /// file's rows with the rows of `parts`. Returns the number of keys looked up.
    fn verify(
        &mut self,
        file: &NewFile,
        combined: &Combined,
        layout: &Layout,
        parts: Option<SortedParts>,
    ) -> Result<u64, BakeError> {
        let (context, progress) = (self.context, &mut *self.progress);
        let (rows_total, bytes_total) = (layout.dimensions.row_count, layout.file_len_bytes());
        let keys_looked_up = verify::read_back(
            file.file(),
            self.output,
            layout,
            context.budget,
            &context.options.cancel,
            &mut |rows| {
                let bytes = (u128::from(bytes_total) * u128::from(rows) / u128::from(rows_total.max(1))) as u64;
                progress(Progress::Verify { bytes, bytes_total });
            },
        )?;
        if let Some(parts) = parts {
            verify::compare(file.file(), self.output, &combined.records, &parts, context, progress)?;
        }
        self.end(Stage::Verify, Some(rows_total), Some(bytes_total));
        Ok(keys_looked_up)
    }

    fn place(&mut self, file: NewFile, layout: &Layout) -> Result<(), BakeError> {
        (self.progress)(Progress::Settle);
        file.put_in_place().map_err(|error| match error {
            PlaceError::Unplaced(_) if self.context.options.cancel.is_set() => BakeError::Canceled,
            PlaceError::Unplaced(error) => self.output_failed(error),
            PlaceError::FolderSync(error) => BakeError::FolderSync { path: self.output.to_path_buf(), error },
        })?;
        self.end(Stage::Settle, None, Some(layout.file_len_bytes()));
        Ok(())
    }

    fn report(
        self,
        gathered: Gathered<'_>,
        bad_rows: u64,
        old: &OldTables,
        combined: &Combined,
        layout: &Layout,
        keys_looked_up: u64,
    ) -> Report {
        let (context, tally) = (self.context, &gathered.tally);
        let first_text_origin = gathered.first_text_origin.filter(|_| context.options.keys == Keys::Auto);
        let first_text_key = first_text_origin.map(|origin| self.origins.locate(origin));
        Report {
            inputs: gathered.inputs,
            base: old.base.as_ref().map(|base| base.facts.clone()),
            tables: old.tables.iter().map(|old| old.facts.clone()).collect(),
            rows_read: gathered.rows_read,
            rows_streamed: gathered.rows_streamed,
            bad_rows,
            duplicates_dropped: tally.duplicates_dropped,
            base_replaced: tally.base_replaced,
            base_removed: tally.base_removed,
            absent_removed: combined.removals - tally.base_removed,
            runs: gathered.runs,
            merge_passes: gathered.merge_passes,
            rows: combined.records.row_count,
            key_kind: combined.records.key_kind,
            schema: self.schema,
            first_text_key: first_text_key.map(|(input, _, line)| (input.to_owned(), line)),
            file_len_bytes: layout.file_len_bytes(),
            sections: layout.sections().map(|(kind, section)| (kind, section.len_bytes)).to_vec(),
            values_len_bytes: combined.records.values_len_bytes,
            value_lens: combined.records.value_lens,
            digest: layout.digest(),
            stages: self.clock.stages(),
            keys_looked_up,
            memory_limit_bytes: context.budget.memory_bytes,
            threads: context.budget.threads,
        }
    }
}
