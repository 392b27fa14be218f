//! Rows in, file out.
//!
//! In: inputs in any of several formats. Out: a baked file, put in place whole or
//! not at all. The stages are apart: `input` gives bytes, `cut` and `parse` make
//! rows of them, `fill` reads their keys, `gather` runs these on several threads
//! and hands batches to `sort`, or, if they come in order, to `stream`; `combine`
//! merges what is sorted, and the rows of an `old_table`, into records, `index` makes lookups of them, `verify`
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
mod old_table;
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
#[cfg(test)]
mod tests;
mod verify;
mod walk;

use std::io::Read;
use std::path::{Path, PathBuf};

pub use bad_rows::BadRows;
pub use budget::{MEMORY_MIN_BYTES, MEMORY_SHARE};
pub use cancel::Cancel;
pub use columns::Column;
pub use error::{BakeError, RowFault};
pub use input::{Compression, Input, InputFacts};
pub use keys::Keys;
pub use old_table::TableFacts;
pub use options::{Duplicates, Format, Options, Progress, Verify};
pub use parse::ValueSpec;
pub use parse::pack::Pack;
pub use report::{Report, Stage, StageFacts, ValueLens};
pub use shard::{Shard, ShardFault};

use crate::format::header::Layout;
use budget::Budget;
use combine::{Combined, Parts, combine, each_row, reduce, refuse_duplicate};
use gather::{Context, Gathered, gather};
use old_table::OldTable;
use origins::{Origins, Unit};
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
    bake_within(Budget::of(options, output)?, inputs, output, options, progress)
}

fn bake_within(
    budget: Budget,
    inputs: Vec<Input<'_>>,
    output: &Path,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, BakeError> {
    let mut clock = Clock::start();
    let base = options.base.as_deref().map(|path| OldTable::open(path, 0, options.shard.as_ref())).transpose()?;
    let options = &Options { keys: keys_beside(options.keys, base.as_ref())?, ..options.clone() };
    check_shard(options)?;
    let pool = budget.thread_pool()?;
    let context = Context { options, budget: &budget, pool: &pool };
    let mut origins = Origins::default();

    let new_file = || NewFile::beside(output, &options.cancel).map_err(|error| BakeError::output(output, error));
    let stream = match options.keys {
        // Numbers and text have different orders, and which of them the keys are is only known at the end.
        Keys::Auto => None,
        _ if options.verify == Verify::Full || base.is_some() => None,
        keys => Some(Stream::new(output, new_file()?, keys.kind(), options.duplicates, &pool, budget.threads)?),
    };
    let gathered = gather(inputs, &context, &mut origins, stream, progress)?;
    let read_bytes = gathered.inputs.iter().map(|input| input.len_bytes).sum();
    clock.end(Stage::Read, Some(gathered.rows_read), Some(read_bytes), progress);
    finish(gathered, OldTables { base, tables: Vec::new() }, &context, &origins, output, progress, clock)
}

/// Merges tables into one at `output`, which may be one of them.
///
/// All must have keys of the same kind. Of the options, those that say how rows are read from text do not matter.
/// Rows with the same key are dealt with as those of inputs in the order of the tables. With one table and
/// [`Options::shard`], what comes out is a part of it. As in [`bake`], the same rows give the same file.
///
/// # Errors
/// [`BakeError`]; a damaged table is named with the block that is.
///
/// # Example
/// ```
/// use zero_kv::Store;
/// use zero_kv::bake::{self, Duplicates, Options};
///
/// let folder = tempfile::tempdir()?;
/// let [old, new, both] = ["old.db", "new.db", "both.db"].map(|name| folder.path().join(name));
/// bake::bake_csv("1,one\n2,two\n".as_bytes(), &old, &Options::default(), &mut |_| ())?;
/// bake::bake_csv("2,dos\n3,tres\n".as_bytes(), &new, &Options::default(), &mut |_| ())?;
///
/// let mut options = Options::default();
/// let error = bake::merge(&[old.clone(), new.clone()], &both, &options, &mut |_| ()).unwrap_err();
/// assert!(error.to_string().contains("new.db: row 0: key 2 is already on row 1 of"), "{error}");
///
/// options.duplicates = Duplicates::Last;
/// let report = bake::merge(&[old, new], &both, &options, &mut |_| ())?;
/// assert_eq!((report.rows, report.duplicates_dropped), (3, 1));
/// assert_eq!(Store::open(&both)?.get(2)?, Some(&b"dos"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn merge(
    tables: &[PathBuf],
    output: &Path,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, BakeError> {
    merge_within(Budget::of(options, output)?, tables, output, options, progress)
}

fn merge_within(
    budget: Budget,
    tables: &[PathBuf],
    output: &Path,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, BakeError> {
    let clock = Clock::start();
    if tables.len() > budget.fan_in() {
        return Err(BakeError::TooManyTables { tables: tables.len(), tables_max: budget.fan_in() });
    }
    let base = options.base.as_deref().map(|path| OldTable::open(path, 0, options.shard.as_ref())).transpose()?;
    let (mut origins, mut opened) = (Origins::default(), Vec::new());
    for path in tables {
        let rows_before = opened.last().map_or(0, |before: &OldTable| before.facts.rows);
        let origin = origins.begin(&path.display().to_string(), Unit::TableRow, rows_before);
        opened.push(OldTable::open(path, origin, options.shard.as_ref())?);
    }
    let mut all = base.iter().chain(&opened);
    let first = all.next().ok_or(BakeError::NoTables)?;
    if let Some(other) = all.find(|other| other.table.kind != first.table.kind) {
        return Err(BakeError::TableKeys {
            table: first.facts.path.clone(),
            kind: first.table.kind,
            other: other.facts.path.clone(),
            other_kind: other.table.kind,
        });
    }
    let kind = first.table.kind;
    let options = &Options { keys: kind.into(), ..options.clone() };
    check_shard(options)?;
    let pool = budget.thread_pool()?;
    let context = Context { options, budget: &budget, pool: &pool };
    finish(Gathered::nothing(kind), OldTables { base, tables: opened }, &context, &origins, output, progress, clock)
}

/// What the keys of the input are, beside a base.
fn keys_beside(keys: Keys, base: Option<&OldTable>) -> Result<Keys, BakeError> {
    let Some(base) = base else { return Ok(keys) };
    let base_kind = base.table.kind;
    if keys != Keys::Auto && keys.kind() != base_kind {
        return Err(BakeError::BaseKeys { base: base.facts.path.clone(), base_kind, input_kind: keys.kind() });
    }
    Ok(base_kind.into())
}

/// Whether it is clear which rows the shard has.
fn check_shard(options: &Options) -> Result<(), BakeError> {
    let Some(shard) = &options.shard else { return Ok(()) };
    let keys = match options.keys {
        Keys::Auto => return Err(BakeError::ShardKeysUnknown),
        keys => keys.kind(),
    };
    match shard.bounds_kind() {
        Some(bounds) if bounds != keys => Err(BakeError::ShardBounds { bounds, keys }),
        _ => Ok(()),
    }
}

/// Tables that were baked before.
struct OldTables {
    /// Its rows give way to all others.
    base: Option<OldTable>,
    /// In the order in which they were given.
    tables: Vec<OldTable>,
}

/// From sorted rows to a file that is in place.
fn finish(
    mut gathered: Gathered<'_>,
    old: OldTables,
    context: &Context<'_>,
    origins: &Origins,
    output: &Path,
    progress: &mut dyn FnMut(Progress),
    mut clock: Clock,
) -> Result<Report, BakeError> {
    let budget = context.budget;
    let (file, combined, parts) = records(&mut gathered, &old, context, origins, output, progress, &mut clock)?;
    // Memory that is only held for a comparison.
    let parts = (context.options.verify == Verify::Full).then_some(parts);
    context.check_cancelled()?;
    // The disk takes the records while the index is made.
    let (layout, synced) = std::thread::scope(|scope| {
        let sync = scope.spawn(|| file.file().sync_data());
        let layout = index::build(file.file(), &combined.records, budget, &mut |done, total| {
            progress(Progress::Index { done, total });
        });
        (layout, sync.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let layout = layout.map_err(|error| BakeError::finish(output, error))?;
    // What the disk could not take is told once, and not by the next sync again.
    synced.map_err(|error| BakeError::output(output, error))?;
    let index_len_bytes = layout.file_len_bytes() - combined.records.records_len_bytes;
    clock.end(Stage::Index, Some(combined.records.row_count), Some(index_len_bytes), progress);

    context.check_cancelled()?;
    let (rows_total, file_len_bytes) = (layout.dimensions.row_count, layout.file_len_bytes());
    verify::read_back(file.file(), output, &layout, budget, &mut |rows| {
        let bytes = (u128::from(file_len_bytes) * u128::from(rows) / u128::from(rows_total.max(1))) as u64;
        progress(Progress::Verify { bytes, bytes_total: file_len_bytes });
    })?;
    if let Some(parts) = parts {
        verify::compare(file.file(), output, &combined.records, &parts, context, progress)?;
    }
    clock.end(Stage::Verify, Some(rows_total), Some(file_len_bytes), progress);

    progress(Progress::Settle);
    let placed = file.put_in_place();
    let folder = placed.map_err(|error| match context.options.cancel.is_set() {
        true => BakeError::Cancelled,
        false => BakeError::output(output, error),
    })?;
    folder.sync_all().map_err(|error| BakeError::FolderSync { path: output.to_path_buf(), error })?;
    clock.end(Stage::Settle, None, Some(file_len_bytes), progress);
    Ok(report(gathered, &old, &combined, &layout, context, origins, clock))
}

/// Writes all records into a file.
fn records(
    gathered: &mut Gathered<'_>,
    old: &OldTables,
    context: &Context<'_>,
    origins: &Origins,
    output: &Path,
    progress: &mut dyn FnMut(Progress),
    clock: &mut Clock,
) -> Result<(NewFile, Combined, Parts), BakeError> {
    let mut parts = Parts {
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
            refuse_duplicate(context, &gathered.tally, origins)?;
            // All but the last rows were written while they were read.
            clock.end(Stage::Write, None, None, progress);
            return Ok((streamed.file, Combined { records: streamed.records, removals: 0 }, parts));
        }
        parts.tables.push(streamed.into_table().map_err(|error| BakeError::output(output, error))?);
    }
    let runs = parts.spilled.len();
    gathered.merge_passes = reduce(&mut parts, context, &mut gathered.tally, progress)?;
    if parts.spilled.len() < runs {
        let merged = parts.spilled.iter().map(|run| (run.row_count, run.extent.len_bytes));
        let (rows, len_bytes) = merged.fold((0, 0), |all, run| (all.0 + run.0, all.1 + run.1));
        clock.end(Stage::Merge, Some(rows), Some(len_bytes), progress);
    }
    if gathered.tally.duplicate.is_some() && context.options.duplicates == Duplicates::Error {
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
    gathered: Gathered<'_>,
    old: &OldTables,
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
        inputs: gathered.inputs,
        base: old.base.as_ref().map(|base| base.facts.clone()),
        tables: old.tables.iter().map(|old| old.facts.clone()).collect(),
        rows_read: gathered.rows_read,
        rows_streamed: gathered.rows_streamed,
        bad_rows: gathered.bad_rows,
        duplicates_dropped: tally.duplicates_dropped,
        base_replaced: tally.base_replaced,
        base_removed: tally.base_removed,
        absent_removed: combined.removals - tally.base_removed,
        runs: gathered.runs,
        merge_passes: gathered.merge_passes,
        rows: combined.records.row_count,
        key_kind: combined.records.key_kind,
        first_text_key: first_text_key.map(|(input, _, line)| (input.to_owned(), line)),
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
