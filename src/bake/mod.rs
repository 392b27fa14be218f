//! Rows in, file out.
//!
//! In: inputs in any of several formats, rows in memory, and tables that were baked before. Out: a
//! baked file, put in place whole or not at all. The stages are apart: `input`
//! gives bytes, `feed` cuts them at row ends (`cut`), `parse` makes rows of them,
//! `fill` reads their keys, `gather` runs these on several threads and hands batches to
//! `sort`, or, if they come in order, to `stream`; `combine` merges what is sorted,
//! and the rows of an `old_table`, into records (`table`), `index` makes lookups of
//! them, `verify` reads the file back, `place` gives it its name. `finish` has the
//! order of the last of these.

mod bad_rows;
mod budget;
mod cancel;
mod columns;
mod combine;
mod context;
mod cut;
mod error;
mod feed;
mod fill;
mod finish;
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
mod sort;
mod stream;
mod table;
#[cfg(test)]
mod tests;
mod verify;

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
pub use parse::rows::RowPiece;
pub use report::{Report, Stage, StageFacts, ValueLens};
pub use shard::{Shard, ShardFault};

use budget::Budget;
use context::Context;
use finish::{Finish, OldTables};
use gather::{Gathered, gather};
use old_table::OldTable;
use origins::{Origins, Unit};
use place::NewFile;
use report::Clock;
use stream::Stream;

use crate::format::key::Key;

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

/// Bakes rows that are in memory, of any bytes, into `output`: [`bake`] with one [`Input::rows`].
///
/// # Errors
/// [`BakeError`]; messages call the input "rows", and count them from 1.
///
/// # Example
/// ```
/// use zero_kv::Store;
/// use zero_kv::bake::{self, Options};
///
/// let folder = tempfile::tempdir()?;
/// let output = folder.path().join("storage.db");
/// let report = bake::bake_rows([(2, "two"), (1, "one\nand more")], &output, &Options::default(), &mut |_| ())?;
/// assert_eq!(report.rows, 2);
/// assert_eq!(Store::open(&output)?.get(1)?, Some(&b"one\nand more"[..]));
///
/// let error = bake::bake_rows([(1, "one"), (1, "uno")], &output, &Options::default(), &mut |_| ()).unwrap_err();
/// assert!(error.to_string().starts_with("rows:2: key 1 is already on row 1"), "{error}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn bake_rows<'k, K, V, I>(
    rows: I,
    output: &Path,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, BakeError>
where
    K: Into<Key<'k>>,
    V: AsRef<[u8]>,
    I: IntoIterator<Item = (K, V), IntoIter: Send>,
{
    let mut rows = rows.into_iter();
    let fill = move |piece: &mut RowPiece| {
        while !piece.is_full()
            && let Some((key, value)) = rows.next()
        {
            piece.push(key, value);
        }
        Ok(())
    };
    bake(vec![Input::rows("rows", fill)], output, options, progress)
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

    // Whether there can be an output is known before the first row is read.
    let file = NewFile::beside(output, &options.cancel).map_err(|error| BakeError::output(output, error))?;
    // Numbers and text have different orders, and with Auto which of them the keys are is only known at the end.
    let can_stream = options.keys != Keys::Auto && options.verify != Verify::Full && base.is_none();
    let stream = || Stream::new(output, file, options.keys.kind(), options.duplicates, &pool, budget.threads);
    let stream = can_stream.then(stream).transpose()?;
    let gathered = gather(inputs, &context, &mut origins, stream, progress)?;
    let read_bytes = gathered.inputs.iter().map(|input| input.len_bytes).sum();
    clock.end(Stage::Read, Some(gathered.rows_read), Some(read_bytes), progress);
    Finish { context: &context, origins: &origins, output, progress, clock }
        .all(gathered, OldTables { base, tables: Vec::new() })
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
    let finish = Finish { context: &context, origins: &origins, output, progress, clock };
    finish.all(Gathered::nothing(kind), OldTables { base, tables: opened })
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
