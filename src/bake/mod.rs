//! Rows in, file out.
//!
//! In: inputs in any of several formats. Out: a baked file, put in place whole or
//! not at all. The stages are apart: `input` gives bytes, `cut` and `parse` make
//! rows of them, `fill` reads their keys, `gather` runs these on several threads
//! and hands batches to `sort`, or, if they come in order, to `stream`; `combine`
//! merges what is sorted into records, `index` makes lookups of them, `verify`
//! reads the file back, `place` gives it its name.

mod bad_rows;
mod buckets;
mod budget;
mod cancel;
mod columns;
mod combine;
mod cut;
mod error;
mod feed;
mod fill;
mod gather;
mod index;
mod input;
mod keys;
mod options;
mod origins;
mod parse;
mod place;
mod report;
mod section;
mod shard;
mod slots;
mod sort;
mod stream;
mod table;
mod verify;
mod walk;

use std::io::Read;
use std::path::Path;

pub use bad_rows::BadRows;
pub use budget::{MEMORY_MIN_BYTES, MEMORY_SHARE};
pub use cancel::Cancel;
pub use columns::Column;
pub use error::{BakeError, RowFault};
pub use input::{Compression, Input, InputFacts};
pub use keys::Keys;
pub use options::{Duplicates, Format, Options, Progress, Verify};
pub use parse::ValueSpec;
pub use parse::pack::Pack;
pub use report::{Report, Stage, StageFacts, ValueLens};
pub use shard::{Shard, ShardFault};

use crate::format::header::Layout;
use budget::Budget;
use combine::{Combined, Parts, combine, each_row, reduce, refuse_duplicate};
use gather::{Context, Gathered, gather};
use origins::Origins;
use place::NewFile;
use report::Clock;
use stream::Stream;

/// Bakes delimited text (RFC 4180) into `output`: [`bake`] with one reader.
///
/// # Errors
/// [`BakeError`]; messages call the reader "input".
///
/// # Example
/// ```
/// use zero_kv::bake::{self, Options};
///
/// let folder = tempfile::tempdir()?;
/// let output = folder.path().join("storage.db");
/// let report = bake::bake_csv("2,two\n1,\"one, quoted\"\n".as_bytes(), &output, &Options::default(), &mut |_| ())?;
/// assert_eq!(report.rows, 2);
///
/// let error = bake::bake_csv("1,one\n1,uno\n".as_bytes(), &output, &Options::default(), &mut |_| ()).unwrap_err();
/// assert!(error.to_string().starts_with("input:2: key 1 is already on line 1"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn bake_csv(
    input: impl Read + Send,
    output: &Path,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, BakeError> {
    bake(vec![Input::reader("input", input)], output, options, progress)
}

/// Bakes the rows of all inputs, in their order, into one table at `output`.
///
/// Rows may come in any order. What does not fit into the memory that the options
/// allow is sorted in temporary files without a name. The same rows give the
/// same file, whatever the memory, the threads and the order of the rows. The
/// file is written without a name, read back, synced, and put in place by a
/// rename: whatever fails, what was at `output` before is still there.
///
/// # Errors
/// [`BakeError`]; a bad row is named by its input and its line.
pub fn bake(
    inputs: Vec<Input<'_>>,
    output: &Path,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, BakeError> {
    let budget = Budget::of(options, output)?;
    let pool = budget.thread_pool()?;
    let context = Context { options, budget: &budget, pool: &pool };
    let mut clock = Clock::start();
    let mut origins = Origins::default();

    let new_file = || NewFile::beside(output, &options.cancel).map_err(|error| BakeError::output(output, error));
    let stream = match options.keys {
        // Numbers and text have different orders, and which of them the keys are is only known at the end.
        Keys::Auto => None,
        _ if options.verify == Verify::Full => None,
        keys => Some(Stream::new(output, new_file()?, keys.kind(), options.duplicates, &pool, budget.threads)?),
    };
    let mut gathered = gather(inputs, &context, &mut origins, stream, progress)?;
    let read_bytes = gathered.inputs.iter().map(|input| input.len_bytes).sum();
    clock.end(Stage::Read, Some(gathered.rows_read), Some(read_bytes), progress);

    let stream = gathered.stream.take();
    let (file, combined, parts) = records(stream, &mut gathered, &context, &origins, output, progress, &mut clock)?;
    // Memory that is only held for a comparison.
    let parts = (options.verify == Verify::Full).then_some(parts);
    context.check_cancelled()?;
    let layout = index::build(file.file(), &combined.records, &budget, &mut |done, total| {
        progress(Progress::Index { done, total });
    });
    let layout = layout.map_err(|error| BakeError::finish(output, error))?;
    let index_len_bytes = layout.file_len_bytes() - combined.records.records_len_bytes;
    clock.end(Stage::Index, Some(combined.records.row_count), Some(index_len_bytes), progress);

    context.check_cancelled()?;
    let (rows_total, file_len_bytes) = (layout.dimensions.row_count, layout.file_len_bytes());
    verify::read_back(file.file(), output, &layout, &budget, &mut |rows| {
        let bytes = (u128::from(file_len_bytes) * u128::from(rows) / u128::from(rows_total.max(1))) as u64;
        progress(Progress::Verify { bytes, bytes_total: file_len_bytes });
    })?;
    if let Some(parts) = parts {
        verify::compare(file.file(), output, &combined.records, &parts, &context, progress)?;
    }
    clock.end(Stage::Verify, Some(rows_total), Some(file_len_bytes), progress);

    progress(Progress::Settle);
    let placed = file.put_in_place();
    let folder = placed.map_err(|error| match options.cancel.is_set() {
        true => BakeError::Cancelled,
        false => BakeError::output(output, error),
    })?;
    folder.sync_all().map_err(|error| BakeError::FolderSync { path: output.to_path_buf(), error })?;
    clock.end(Stage::Settle, None, Some(file_len_bytes), progress);
    Ok(report(&gathered, &combined, &layout, &context, &origins, clock))
}

/// Writes all records into a file.
fn records(
    stream: Option<Stream<'_>>,
    gathered: &mut Gathered<'_>,
    context: &Context<'_>,
    origins: &Origins,
    output: &Path,
    progress: &mut dyn FnMut(Progress),
    clock: &mut Clock,
) -> Result<(NewFile, Combined, Parts), BakeError> {
    let mut parts = Parts {
        kind: gathered.kind,
        bases: Vec::new(),
        tables: Vec::new(),
        spilled: std::mem::take(&mut gathered.spilled),
        last: gathered.last.take(),
    };
    if let Some(stream) = stream.filter(|stream| !stream.is_empty()) {
        let streamed = stream.finish()?;
        if parts.spilled.is_empty() && parts.last.is_none() {
            refuse_duplicate(context, &gathered.tally, origins)?;
            // All but the last rows were written while they were read.
            clock.end(Stage::Write, None, None, progress);
            return Ok((streamed.file, Combined { records: streamed.records, removals: 0 }, parts));
        }
        parts.tables.push(streamed.into_table().map_err(|error| BakeError::output(output, error))?);
    }
    let runs = parts.spilled.len();
    reduce(&mut parts, context, &mut gathered.tally, progress)?;
    if parts.spilled.len() < runs {
        let merged = parts.spilled.iter().map(|run| (run.row_count, run.extent.len_bytes));
        let (rows, len_bytes) = merged.fold((0, 0), |all, run| (all.0 + run.0, all.1 + run.1));
        clock.end(Stage::Merge, Some(rows), Some(len_bytes), progress);
    }
    if gathered.tally.duplicate.is_some() {
        // There may be another before it, of rows in different runs.
        each_row(&parts, context, &mut gathered.tally, |_, _| context.check_cancelled())?;
        refuse_duplicate(context, &gathered.tally, origins)?;
    }
    let file = NewFile::beside(output, &context.options.cancel).map_err(|error| BakeError::output(output, error))?;
    let combined = combine(&parts, &file, output, context, &mut gathered.tally, progress)?;
    refuse_duplicate(context, &gathered.tally, origins)?;
    let records = &combined.records;
    clock.end(Stage::Write, Some(records.row_count), Some(records.records_len_bytes), progress);
    Ok((file, combined, parts))
}

fn report(
    gathered: &Gathered<'_>,
    combined: &Combined,
    layout: &Layout,
    context: &Context<'_>,
    origins: &Origins,
    clock: Clock,
) -> Report {
    let tally = &gathered.tally;
    let first_text_origin = gathered.first_text_origin.filter(|_| context.options.keys == Keys::Auto);
    let first_text_key = first_text_origin.map(|origin| origins.of(origin));
    Report {
        inputs: gathered.inputs.clone(),
        rows_read: gathered.rows_read,
        bad_rows: gathered.bad_rows,
        duplicates_dropped: tally.duplicates_dropped,
        base_replaced: tally.base_replaced,
        base_removed: tally.base_removed,
        absent_removed: combined.removals - tally.base_removed,
        runs: gathered.runs,
        rows: combined.records.row_count,
        key_kind: combined.records.key_kind,
        first_text_key: first_text_key.map(|(input, line)| (input.to_owned(), line)),
        file_len_bytes: layout.file_len_bytes(),
        sections: layout.sections().map(|(kind, section)| (kind, section.len_bytes)).to_vec(),
        values_len_bytes: combined.records.values_len_bytes,
        value_lens: combined.records.value_lens,
        digest: layout.digest(),
        stages: clock.stages(),
        memory_limit_bytes: context.budget.memory_bytes,
        threads: context.budget.threads,
    }
}
