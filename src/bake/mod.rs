//! Bakes rows into a table file.
//!
//! In: inputs in several formats, rows in memory, and older tables. Out: one complete file, which is renamed to the
//! output's path. If a stage before the rename fails, the old output is unchanged. A bake runs these stages:
//!
//! `input` opens and decompresses inputs. `parse` cuts them into pieces and parses the pieces into rows, and `row`
//! parses the keys. `feed` and `gather` run these stages on several threads, and pass the parsed rows of each piece to
//! `sort`, or to `stream` if the rows arrive sorted. `combine` merges all sorted rows, including the rows of an
//! `old_table`, and writes them as records (`table`). `index` builds the index, `finish` reads the file back, and
//! `place` renames it. `finish` calls the stages from `combine` on.

mod bad_rows;
mod budget;
mod columns;
mod combine;
mod error;
mod feed;
mod finish;
mod gather;
mod groups;
mod index;
mod input;
mod keys;
mod layout;
mod old_table;
mod options;
mod other_lens;
mod parse;
mod place;
mod range_keys;
mod ranges;
mod report;
mod row;
mod section;
mod shards;
mod sort;
mod stream;
mod table;
#[cfg(test)]
mod tests;
mod typed;
mod warning;

use std::io::Read;
use std::path::{Path, PathBuf};

#[doc(inline)]
pub use crate::format::header::TableLayout;
use crate::format::key::{Key, KeyKind};
use crate::format::key_type::PartType;
use crate::progress::WithProgress;
#[doc(hidden)]
pub use crate::replace::ReplaceError;
#[doc(inline)]
pub use crate::replace::ReplaceRules;
#[doc(inline)]
pub use crate::slots::SlotRange;
pub use bad_rows::BadRows;
pub use budget::MEMORY_SHARE;
use budget::{Budget, Context};
pub use columns::{Column, ValueSpec};
pub use error::{BakeError, MEMORY_MIN_BYTES};
#[doc(hidden)]
pub use error::{Remedy, RowFault, RowLayout};
use feed::Origins;
use finish::{Finish, OldTables, Output};
use gather::{Gathered, RowsInQuotes, gather};
pub use input::Input;
#[doc(hidden)]
pub use input::{Compression, InputFacts, RowPiece};
pub use keys::Keys;
use old_table::{OldTable, check_base, check_base_ranges};
pub use options::{Duplicates, Format, Options, Overlaps, Quote, RangeEnds, TypedColumns};
use parse::RowUnit;
#[cfg(feature = "parquet")]
pub use parse::parquet_key_type;
pub use place::Cancel;
use place::NewFile;
use report::StageClock;
pub use report::{OtherLayout, Progress, Report};
#[doc(hidden)]
pub use report::{Stage, StageFacts, TableFacts};
#[doc(hidden)]
pub use shards::SlotLens;
use shards::in_shard_folder;
pub use shards::{SHARD_LEN_MAX_BYTES, SHARDS_MAX, ShardReport, Shards};
use sort::BASE_ORIGIN;
use stream::SortedStream;
#[doc(hidden)]
pub use table::ValueLens;
use typed::{Base, TypedPlan, check_options, final_schema};
pub use typed::{parse_types, write_types};
pub use warning::Warning;

/// Bakes delimited text (RFC 4180) from one reader into a table at `output`: see [`bake`].
///
/// # Errors
/// [`BakeError`]. Messages call the reader `input`.
///
/// # Example
/// ```
/// use zero_kv::bake::{self, Options};
///
/// let folder = tempfile::tempdir()?;
/// let output = folder.path().join("storage.db");
/// let report = bake::bake_csv("2,two\n1,\"one, quoted\"\n".as_bytes(), &output, &Options::default())?;
/// assert_eq!(report.rows, 2);
///
/// let error = bake::bake_csv("1,one\n1,uno\n".as_bytes(), &output, &Options::default()).unwrap_err();
/// assert!(error.to_string().starts_with("input:2: key 1 is already on line 1"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn bake_csv<'a>(
    input: impl Read + Send,
    output: &Path,
    options: impl Into<WithProgress<'a, Options, Progress>>,
) -> Result<Report, BakeError> {
    bake(vec![Input::reader("input", input)], output, options)
}

/// Bakes rows from memory into a table at `output`: see [`bake`]. Keys and values may be any bytes.
///
/// # Errors
/// [`BakeError`]. Messages call the input `rows` and count its rows from 1.
///
/// # Example
/// ```
/// use zero_kv::{Lookup, Store};
/// use zero_kv::bake::{self, Options};
///
/// let folder = tempfile::tempdir()?;
/// let output = folder.path().join("storage.db");
/// let report = bake::bake_rows([(2, "two"), (1, "one\nand more")], &output, &Options::default())?;
/// assert_eq!(report.rows, 2);
/// assert_eq!(Store::open(&output)?.get(1)?, Some(&b"one\nand more"[..]));
///
/// let error = bake::bake_rows([(1, "one"), (1, "uno")], &output, &Options::default()).unwrap_err();
/// assert!(error.to_string().starts_with("rows:2: key 1 is already on row 1"), "{error}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn bake_rows<'a, 'k, K, V, I>(
    rows: I,
    output: &Path,
    options: impl Into<WithProgress<'a, Options, Progress>>,
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
    bake(vec![Input::rows("rows", fill)], output, options)
}

/// Bakes the rows of all inputs into one table at `output`. The inputs are read in the order given.
///
/// Rows may come in any order. Rows that do not fit into the memory limit are sorted in unnamed temporary files. The
/// same rows give the same file, regardless of the memory, the number of threads, and the order of the rows.
/// (Exception: if several rows have the same key, [`Options::duplicates`] can keep the first or the last of them.) The
/// new file has no name, or a hidden name, until it has been read back and synced. Then it is renamed to `output`.
/// After any error except [`BakeError::FolderSync`], `output` is unchanged.
///
/// # Errors
/// [`BakeError`]. The message for a bad row names its input and line.
pub fn bake<'a>(
    inputs: Vec<Input<'_>>,
    output: &Path,
    options: impl Into<WithProgress<'a, Options, Progress>>,
) -> Result<Report, BakeError> {
    options
        .into()
        .run(|options, progress| bake_within(Budget::new(options, output)?, inputs, output, options, progress))
}

fn bake_within(
    budget: Budget,
    inputs: Vec<Input<'_>>,
    output: &Path,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, BakeError> {
    bake_to(budget, inputs, Output::File(output), options, progress).map(report_of_one_file)
}

/// Bakes the rows of all inputs into several tables, the shards of one table, in one pass over the inputs: see
/// [`bake`].
///
/// `folder` must not exist, or be empty. Each shard gets the file `FIRST-LAST.db` there, where FIRST and LAST are its
/// first and last slot. [`Options::slots`] selects the slots that are divided into shards. The rules of
/// [`Options::replace`] apply to the rows of all shards together. The shards are renamed one at a time, after all of
/// them are complete. Unless the process is killed at that moment, the folder has all shards or none.
///
/// # Errors
/// [`BakeError`].
///
/// # Example
/// ```
/// use zero_kv::{Lookup, Store};
/// use zero_kv::bake::{self, Input, Options, Shards};
///
/// let (parent, options) = (tempfile::tempdir()?, Options::default());
/// let rows = Input::reader("rows.csv", "7,seven\n42,forty-two\n".as_bytes());
/// let shards = bake::bake_shards(vec![rows], &parent.path().join("shards"), Shards::Count(2), &options)?;
/// assert!(shards[0].path.ends_with("shards/0-8191.db"));
/// // The slot of 42 is 8000.
/// assert_eq!(Store::open(&shards[0].path)?.get(42)?, Some(&b"forty-two"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn bake_shards<'a>(
    inputs: Vec<Input<'_>>,
    folder: &Path,
    shards: Shards,
    options: impl Into<WithProgress<'a, Options, Progress>>,
) -> Result<Vec<ShardReport>, BakeError> {
    options.into().run(|options, progress| {
        let budget = Budget::new(options, &folder.join("shard"))?;
        in_shard_folder(folder, options.slots.unwrap_or(SlotRange::ALL), || {
            bake_to(budget, inputs, Output::Folder(folder, shards), options, progress)
        })
    })
}

fn bake_to(
    budget: Budget,
    inputs: Vec<Input<'_>>,
    output: Output<'_>,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<ShardReport>, BakeError> {
    let mut clock = StageClock::start();
    let base = open_base(options)?;
    if let Some(base) = &base {
        check_base(options, base)?;
        check_base_ranges(options, base)?;
    }
    let keys = keys_with_base(check_options(options)?, base.as_ref())?;
    check_key_columns(options, keys)?;
    let options = &Options { keys, ..options.clone() };
    check_slots(options, output)?;
    check_ranges(options)?;
    layout::check(options, options.keys.key_type(KeyKind::U64))?;
    let pool = budget.thread_pool()?;
    let of_base = |base: &OldTable| Some(Base { path: base.facts.path.clone(), schema: base.schema.clone()? });
    let typed = TypedPlan::new(options, base.as_ref().and_then(of_base));
    let context = Context { options, typed, budget: &budget, pool: &pool };
    let mut origins = Origins::default();

    // Creates a new file now, so that a failure is reported before the first row is read.
    let file = NewFile::beside(&output.first_path(), &options.cancel);
    let file = file.map_err(|error| BakeError::output(&output.first_path(), error))?;
    // A stream writes rows before all rows have been read, so some options rule it out. With `Auto`, the kind and
    // order of keys are unknown until the last row. A full verification needs the sorted rows again. With a base, the
    // rows of the base must be merged with the rows of the inputs. The rows of a table of ranges are known only when all
    // ranges are sorted. A stream also writes only one file, and its rows must have keys, because they are read again
    // if later rows are not in order.
    let is_sorted = options.keys != Keys::Auto && options.ranges.is_none() && options.layout == TableLayout::Fast;
    let can_stream = is_sorted && !options.compare_rows && base.is_none();
    let stream = match output {
        Output::File(path) if can_stream => Some(SortedStream::new(path, file, &context)?),
        _ => None,
    };
    let mut gathered = gather(inputs, &context, &mut origins, stream, progress)?;
    if let RowsInQuotes { rows: rows @ 1.., first_origin: Some(origin) } = gathered.rows_in_quotes {
        let (input, _, line) = origins.locate(origin);
        progress(Progress::Warning(Warning::RowsInQuotes { input: input.to_owned(), line, rows }));
    }
    if let Some(warning) = gathered.key_forms.warning().filter(|_| base.is_none() && are_texts(options.keys)) {
        progress(Progress::Warning(warning));
    }
    let schema = final_schema(options, context.typed.as_ref())?;
    let base = match (base, &schema) {
        (Some(base), Some(schema)) => Some(old_table::convert_base(base, schema, &context, &mut gathered.bad_rows)?),
        (base, _) => base,
    };
    let read_bytes = gathered.inputs.iter().map(|input| input.len_bytes).sum();
    clock.end(Stage::Read, Some(gathered.rows_read), Some(read_bytes), progress);
    Finish { context: &context, origins: &origins, schema, output, progress, clock }
        .run(gathered, OldTables { base, tables: Vec::new() })
}

/// Merges tables into one table at `output`. `output` may be the path of one of the merged tables.
///
/// All tables must have keys of the same kind. Either no table is typed, or all tables have the same columns, in any
/// order: the new table then has the columns of the first table. If several tables have a row with the same key,
/// [`Duplicates::First`] keeps the row of the table that comes first in `tables`, [`Duplicates::Last`] keeps the row of
/// the table that comes last, and [`Duplicates::Error`] rejects the merge. Either all tables have ranges or none;
/// [`Options::overlaps`] decides which row a key of several ranges belongs to. With [`Options::slots`], only the rows of
/// these slots are merged, so a merge of one table extracts a shard. Options for text formats have no effect. As in
/// [`bake`], the same rows give the same file.
///
/// # Errors
/// [`BakeError`]. The message for a damaged table names the damaged block.
///
/// # Example
/// ```
/// use zero_kv::{Lookup, Store};
/// use zero_kv::bake::{self, Duplicates, Options};
///
/// let folder = tempfile::tempdir()?;
/// let [old, new, both] = ["old.db", "new.db", "both.db"].map(|name| folder.path().join(name));
/// bake::bake_csv("1,one\n2,two\n".as_bytes(), &old, &Options::default())?;
/// bake::bake_csv("2,dos\n3,tres\n".as_bytes(), &new, &Options::default())?;
///
/// let mut options = Options::default();
/// let error = bake::merge(&[old.clone(), new.clone()], &both, &options).unwrap_err();
/// assert!(error.to_string().contains("new.db: row 0: key 2 is already on row 1 of"), "{error}");
///
/// options.duplicates = Duplicates::Last;
/// let report = bake::merge(&[old, new], &both, &options)?;
/// assert_eq!((report.rows, report.duplicates_dropped), (3, 1));
/// assert_eq!(Store::open(&both)?.get(2)?, Some(&b"dos"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn merge<'a>(
    tables: &[PathBuf],
    output: &Path,
    options: impl Into<WithProgress<'a, Options, Progress>>,
) -> Result<Report, BakeError> {
    options
        .into()
        .run(|options, progress| merge_within(Budget::new(options, output)?, tables, output, options, progress))
}

fn merge_within(
    budget: Budget,
    tables: &[PathBuf],
    output: &Path,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, BakeError> {
    merge_to(budget, tables, Output::File(output), options, progress).map(report_of_one_file)
}

/// Merges tables into several tables, the shards of one table: see [`merge`] and [`bake_shards`]. A merge of one table
/// divides it.
///
/// # Errors
/// [`BakeError`].
pub fn merge_shards<'a>(
    tables: &[PathBuf],
    folder: &Path,
    shards: Shards,
    options: impl Into<WithProgress<'a, Options, Progress>>,
) -> Result<Vec<ShardReport>, BakeError> {
    options.into().run(|options, progress| {
        let budget = Budget::new(options, &folder.join("shard"))?;
        in_shard_folder(folder, options.slots.unwrap_or(SlotRange::ALL), || {
            merge_to(budget, tables, Output::Folder(folder, shards), options, progress)
        })
    })
}

fn merge_to(
    budget: Budget,
    tables: &[PathBuf],
    output: Output<'_>,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<ShardReport>, BakeError> {
    let clock = StageClock::start();
    if tables.len() > budget.fan_in() {
        return Err(BakeError::TooManyTables { tables: tables.len(), tables_max: budget.fan_in() });
    }
    let mut base = open_base(options)?;
    let (mut origins, mut opened) = (Origins::default(), Vec::new());
    for path in tables {
        let rows_before = opened.last().map_or(0, |before: &OldTable| before.facts.rows);
        let origin = origins.begin(&path.display().to_string(), RowUnit::TableRow, rows_before);
        opened.push(OldTable::open(path, origin, options)?);
    }
    let mut all = base.iter().chain(&opened);
    let first = all.next().ok_or(BakeError::NoTables)?;
    if let Some(other) = all.find(|other| other.table.key_type != first.table.key_type) {
        return Err(BakeError::TableKeys {
            table: first.facts.path.clone(),
            key_type: first.table.key_type,
            other: other.facts.path.clone(),
            other_type: other.table.key_type,
        });
    }
    let mut all = base.iter().chain(&opened);
    if let Some(other) = all.find(|other| other.table.has_ranges != first.table.has_ranges) {
        let (ranges, single) = if first.table.has_ranges { (first, other) } else { (other, first) };
        return Err(BakeError::TableRanges { ranges: ranges.facts.path.clone(), single: single.facts.path.clone() });
    }
    let key_type = first.table.key_type;
    // A merge has no inputs with columns, so only whether there are ranges matters.
    let ranges = first.table.has_ranges.then_some(RangeEnds::Blocks);
    let options = &Options { keys: key_type.into(), ranges, ..options.clone() };
    layout::check(options, key_type)?;
    check_slots(options, output)?;
    let pool = budget.thread_pool()?;
    let context = Context { options, typed: None, budget: &budget, pool: &pool };
    old_table::align_tables(&mut base, &mut opened, &context)?;
    let schema = base.iter().chain(&opened).next().and_then(|first| first.schema.clone());
    let finish = Finish { context: &context, origins: &origins, schema, output, progress, clock };
    finish.run(Gathered::empty(key_type.kind()), OldTables { base, tables: opened })
}

/// Opens the base, if the options choose one.
fn open_base(options: &Options) -> Result<Option<OldTable>, BakeError> {
    let open = |path| OldTable::open(path, BASE_ORIGIN, options);
    options.base.as_deref().map(open).transpose()
}

/// Returns the type of the base's keys, or `keys` if there is no base. Returns an error if `keys` selects a type that
/// differs from the base's type.
fn keys_with_base(keys: Keys, base: Option<&OldTable>) -> Result<Keys, BakeError> {
    let Some(base) = base else { return Ok(keys) };
    let base_type = base.table.key_type;
    match keys {
        Keys::Type(input_type) if input_type != base_type => {
            Err(BakeError::BaseKeys { base: base.facts.path.clone(), base_type, input_type })
        }
        _ => Ok(base_type.into()),
    }
}

/// Returns whether keys that are no numbers are baked as bytes.
fn are_texts(keys: Keys) -> bool {
    matches!(keys, Keys::Auto | Keys::BYTES)
}

/// Checks that there is a key column for each part of the keys, or one column with their written form.
fn check_key_columns(options: &Options, keys: Keys) -> Result<(), BakeError> {
    let (column_count, key_type) = (options.key_columns().count(), keys.key_type(KeyKind::Bytes));
    match column_count {
        0 | 1 => Ok(()),
        _ if column_count == key_type.parts().len() => Ok(()),
        _ => Err(BakeError::KeyColumns { column_count, key_type }),
    }
}

/// Checks that the keys can be ranges.
fn check_ranges(options: &Options) -> Result<(), BakeError> {
    let Some(ranges) = &options.ranges else { return Ok(()) };
    let Keys::Type(key_type) = options.keys else { return Err(BakeError::RangeKeysUnknown) };
    let last_part = key_type.parts().last();
    let (is_possible, expected) = match ranges {
        RangeEnds::Column(_) => (
            key_type.last_part_len_bytes().is_some(),
            "u64, i64, ipv4, ip, uuid, date, or timestamp, alone or as the last part",
        ),
        RangeEnds::Blocks => (matches!(last_part, Some(PartType::Ip | PartType::Ipv4)), "ip or ipv4"),
    };
    match is_possible {
        true => Ok(()),
        false => Err(BakeError::RangeKeys { key_type, expected }),
    }
}

/// Checks the slots and the shards. Rejects a bake of some slots if the kind of the keys depends on the rows: the
/// shards of one table could then have keys of different kinds. Rejects ranges, because the range that contains a key
/// can begin with a key of any slot.
fn check_slots(options: &Options, output: Output<'_>) -> Result<(), BakeError> {
    let has_slots = options.slots.is_some() || options.table_slots.is_some() || matches!(output, Output::Folder(..));
    if options.ranges.is_some() && has_slots {
        return Err(BakeError::DividedRanges);
    }
    match options.slots {
        Some(_) if options.keys == Keys::Auto => return Err(BakeError::SlotsKeysUnknown),
        Some(slots) if !slots.is_valid() => return Err(BakeError::Slots { slots }),
        _ => {}
    }
    match output {
        Output::File(_) => Ok(()),
        Output::Folder(_, shards) => shards.check(options.slots.unwrap_or(SlotRange::ALL)),
    }
}

fn report_of_one_file(mut reports: Vec<ShardReport>) -> Report {
    reports.pop().expect("a bake into a file has one report").report
}
