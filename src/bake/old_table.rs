//! Reads the rows of an older table, and converts them to the schema of the new table.
//!
//! In: a path. Out: the table's records, read front to back. Each block is verified against its checksum before its
//! bytes are used. The table is not mapped, and most of its block checksums stay on disk: memory holds one read buffer,
//! one block of checksums, and one checksum (8 bytes) of each block of checksums. A block of checksums covers 32 MiB of
//! records, and is verified whenever it is read. The old index is not read, because the bake builds a new one.
//!
//! A table with the compact layout is mapped, and its rows are copied, as [`MappedStore`] does.
//!
//! A table whose columns differ from those of the new table is copied into an unnamed temporary file, with values of
//! the new schema. Columns are matched by name. Added columns are null, and other columns of the table are dropped.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use zerocopy::{FromZeros, IntoBytes};

use super::bad_rows::{BadRow, BadRows, BadRowsFile};
use super::budget::Context;
use super::error::{BakeError, RowFault};
use super::options::Options;
use super::report::TableFacts;
use super::sort::ExtentOwner;
use super::sort::blocks::{BlockSums, Extent, TableSums};
use super::sort::sorted_rows::{BASE_RANK, RowOrigins, SortedRows, TableRecords};
use super::table::RecordsWriter;
use super::typed::row_builder::RowBuilder;
use super::typed::write_types;
use crate::folder::unnamed_file_in;
use crate::format::FormatError;
use crate::format::checksum::{BLOCK_LEN_BYTES, section_sum_of};
use crate::format::fence::{FENCE_ROWS, Fence, fence_count};
use crate::format::header::{HEADER_LEN_BYTES, Layout, RECORDS_OFFSET_BYTES, Section, SectionKind, check_padding};
use crate::format::key::{Key, KeyKind};
use crate::format::record::{RECORD_ALIGN_MAX_BYTES, record_align_bytes};
use crate::replace::TableSummary;
use crate::slots::SlotSet;
use crate::store::{MappedStore, Memory, OpenOptions, Store, StoreError, Verify, open_regular, survive_bus_errors};
use crate::typed::{Column, Schema, SchemaError, TypedRow, Value};

/// The length of the read buffer with which the first and the last key of a table are read.
const ENDS_BUFFER_LEN_BYTES: usize = 16 * BLOCK_LEN_BYTES;

/// A baked table whose rows are read.
pub(super) struct OldTable {
    pub(super) table: TableRecords,
    /// The columns of a typed table.
    pub(super) schema: Option<Arc<Schema>>,
    pub(super) facts: TableFacts,
}

impl OldTable {
    /// Opens a table to read the rows of the slots that the options name. Row number `n` gets the origin
    /// `first_origin + n`, which identifies the row in messages.
    pub(super) fn open(path: &Path, first_origin: u64, options: &Options) -> Result<OldTable, BakeError> {
        let reader = Reader::open(path)?;
        let layout = reader.layout()?;
        let dimensions = &layout.dimensions;
        let groups = match dimensions.is_compact() {
            true => Some(Arc::new(reader.mapped(path)?)),
            false => None,
        };
        let sums = TableSums::open(reader.file.clone(), &layout, reader.owner.clone(), &options.cancel)?;
        let mut table = TableRecords {
            extent: Extent {
                sums: BlockSums::Table(sums.into()),
                file: reader.file.clone(),
                offset_bytes: layout.records.offset_bytes,
                len_bytes: layout.records.len_bytes,
                block_len_bytes: BLOCK_LEN_BYTES,
                owner: reader.owner.clone(),
            },
            key_type: dimensions.key_type,
            has_ranges: dimensions.has_ranges,
            row_count: dimensions.row_count,
            align_bytes: dimensions.record_align_bytes,
            origins: RowOrigins::Counted(first_origin),
            first_key: Vec::new(),
            common_len_bytes: 0,
            slots: None,
            groups,
        };
        // A merge compares heads of keys after the prefix that the first and the last key share.
        if table.key_type.kind() == KeyKind::Bytes && table.row_count > 0 {
            let first = first_key(&table)?;
            let last = reader.last_key(&table, &layout)?;
            table.common_len_bytes = Key::Bytes(&first).common_len_bytes(&Key::Bytes(&last));
            table.first_key = first;
        }
        let of_range = || options.slots.map(|slots| Arc::new(SlotSet::from_iter([slots])));
        table.slots = options.table_slots.clone().or_else(of_range);
        let facts = TableFacts {
            path: path.to_path_buf(),
            len_bytes: layout.file_len_bytes(),
            rows: table.row_count,
            digest: layout.digest(),
        };
        Ok(OldTable { table, schema: reader.schema(&layout)?, facts })
    }
}

/// Checks that a typed bake has a typed base, and that a bake of untyped values has an untyped base.
pub(super) fn check_base(options: &Options, base: &OldTable) -> Result<(), BakeError> {
    let path = base.facts.path.clone();
    match (&options.typed, &base.schema) {
        (Some(_), None) => Err(BakeError::UntypedBase { base: path }),
        (None, Some(_)) => Err(BakeError::TypedBase { base: path }),
        _ => Ok(()),
    }
}

/// Checks that a bake of ranges has a base of ranges, and that a bake of single keys has a base of single keys.
pub(super) fn check_base_ranges(options: &Options, base: &OldTable) -> Result<(), BakeError> {
    match base.table.has_ranges {
        has_ranges if has_ranges == options.ranges.is_some() => Ok(()),
        has_ranges => Err(BakeError::BaseRanges { base: base.facts.path.clone(), has_ranges }),
    }
}

/// Returns the number of rows and the kind of the keys of the table at a path. Returns `None` if there is no table at
/// the path, or if the table is damaged. In both cases, there is nothing to compare the new table with.
pub(super) fn summary(path: &Path) -> Result<Option<TableSummary>, BakeError> {
    let layout = match Reader::open(path).and_then(|reader| reader.layout()) {
        Ok(layout) => layout,
        Err(BakeError::OldTable(StoreError::Io { path, error })) if !is_no_table(&error) => {
            return Err(BakeError::OldTable(StoreError::Io { path, error }));
        }
        Err(_) => return Ok(None),
    };
    let dimensions = layout.dimensions;
    Ok(Some(TableSummary { rows: dimensions.row_count, key_type: dimensions.key_type }))
}

/// Returns whether an error means that there is no table: nothing exists at the path, symbolic links form a loop, or
/// the file is not a regular file or is too short for a table.
fn is_no_table(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ELOOP)
        || matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof)
}

/// Reads the header and the last fence of an open table file.
struct Reader {
    file: Arc<File>,
    len_bytes: u64,
    owner: ExtentOwner,
}

impl Reader {
    fn open(path: &Path) -> Result<Reader, BakeError> {
        let owner = ExtentOwner::Table(path.into());
        let failed = |error| owner.failed(error);
        let file = open_regular(path).map_err(failed)?;
        let len_bytes = file.metadata().map_err(failed)?.len();
        Ok(Reader { file: Arc::new(file), len_bytes, owner })
    }

    fn read(&self, bytes: &mut [u8], offset_bytes: u64) -> Result<(), BakeError> {
        self.file.read_exact_at(bytes, offset_bytes).map_err(|error| self.owner.failed(error))
    }

    /// Reads the header, and checks that the padding between sections is zero.
    fn layout(&self) -> Result<Layout, BakeError> {
        let damaged = |error| self.owner.damaged(error);
        let mut start = vec![0; self.len_bytes.min(HEADER_LEN_BYTES as u64) as usize];
        self.read(&mut start, 0)?;
        let layout = Layout::decode_start(&start, self.len_bytes).map_err(damaged)?;
        for padding in layout.paddings() {
            let mut bytes = [0; RECORDS_OFFSET_BYTES as usize];
            let bytes = &mut bytes[..(padding.end - padding.start) as usize];
            self.read(bytes, padding.start)?;
            check_padding(bytes, padding.end).map_err(damaged)?;
        }
        Ok(layout)
    }

    /// Maps a table with the compact layout.
    fn mapped(&self, path: &Path) -> Result<MappedStore, BakeError> {
        let failed = |error| BakeError::OldTable(StoreError::Io { path: path.to_path_buf(), error });
        survive_bus_errors().map_err(failed)?;
        let options = OpenOptions { verify: Verify::Touch, ..OpenOptions::default() };
        let store = Store::from_file(&self.file, path, Memory::Map, &options, &mut |_| ());
        Ok(store.map_err(BakeError::OldTable)?.into())
    }

    /// Reads and verifies the schema of a typed table.
    fn schema(&self, layout: &Layout) -> Result<Option<Arc<Schema>>, BakeError> {
        let Section { offset_bytes, len_bytes, checksum } = layout.schema;
        // The layout limits the length of a schema.
        let mut bytes = vec![0; len_bytes as usize];
        self.read(&mut bytes, offset_bytes)?;
        let found = section_sum_of(&bytes);
        if found != checksum {
            let error = FormatError::SectionChecksum { section: SectionKind::Schema, expected: checksum, found };
            return Err(self.owner.damaged(error));
        }
        if bytes.is_empty() {
            return Ok(None);
        }
        let invalid = |error: SchemaError| self.owner.damaged(FormatError::Schema { problem: error.to_string() });
        Schema::decode(&bytes).map(|schema| Some(Arc::new(schema))).map_err(invalid)
    }

    /// Reads the key of the last row. Only the rows from the last fence on are read.
    fn last_key(&self, table: &TableRecords, layout: &Layout) -> Result<Vec<u8>, BakeError> {
        let number = fence_count(table.row_count) - 1;
        let row = (number * FENCE_ROWS) as u64;
        let wrong_fence = || self.owner.damaged(FormatError::Row { row, what: "the fence does not match it" });
        let mut fence = Fence::new_zeroed();
        self.read(fence.as_mut_bytes(), layout.fences.offset_bytes + (number * size_of::<Fence>()) as u64)?;
        let offset_bytes = u64::from(fence.place.get()) * table.align_bytes as u64;
        if offset_bytes >= layout.records.len_bytes {
            return Err(wrong_fence());
        }
        let mut source = SortedRows::table(table, offset_bytes, BASE_RANK, ENDS_BUFFER_LEN_BYTES)?;
        let (mut left, mut last) = (table.row_count - row, Vec::new());
        let mut head = source.begin(0)?;
        while head.is_some() {
            left = left.checked_sub(1).ok_or_else(wrong_fence)?;
            if left == 0 {
                last = source.key().as_bytes().unwrap_or_default().to_vec();
            }
            head = source.advance(0)?;
        }
        if left == 0 { Ok(last) } else { Err(wrong_fence()) }
    }
}

fn first_key(table: &TableRecords) -> Result<Vec<u8>, BakeError> {
    let mut source = SortedRows::table(table, 0, BASE_RANK, ENDS_BUFFER_LEN_BYTES)?;
    let head = source.begin(0)?;
    Ok(head.and_then(|_| source.key().as_bytes().map(<[u8]>::to_vec)).unwrap_or_default())
}

/// The length of the buffer with which a table is read.
const BUFFER_LEN_BYTES: usize = 1 << 20;
/// An upper bound on the average length by which a converted cell can grow.
const CELL_LEN_BYTES: usize = 40;
/// The number of rows between two checks whether the bake was canceled.
const CANCEL_ROWS: u64 = 1 << 16;

/// Converts the rows of the base, unless the base has the columns of the new schema. Bad rows are skipped if the
/// options allow it.
pub(in crate::bake) fn convert_base(
    base: OldTable,
    schema: &Arc<Schema>,
    context: &Context<'_>,
    bad_rows: &mut BadRowsFile,
) -> Result<OldTable, BakeError> {
    let Some(old) = base.schema.clone().filter(|old| old.columns() != schema.columns()) else { return Ok(base) };
    let path = base.facts.path.clone();
    let bad = |row: u64, fault: RowFault| match &context.options.bad_rows {
        BadRows::Refuse => Err(BakeError::TableRow { path: path.clone(), row, fault }),
        BadRows::Skip { .. } => {
            let input = path.display().to_string();
            bad_rows.take(vec![BadRow { input, line: row, fault, text: Vec::new() }])
        }
    };
    let table = converted(&base.table, &old, schema, context, bad)?;
    Ok(OldTable { table: TableRecords { slots: None, ..table }, schema: Some(schema.clone()), facts: base.facts })
}

/// Makes the tables of a merge have the columns of the first table, in the same order.
pub(in crate::bake) fn align_tables(
    base: &mut Option<OldTable>,
    tables: &mut [OldTable],
    context: &Context<'_>,
) -> Result<(), BakeError> {
    let mut all = base.iter_mut().chain(tables);
    let Some(first) = all.next() else { return Ok(()) };
    for other in all {
        let (schema, old) = match (&first.schema, &other.schema) {
            (None, None) => continue,
            (Some(schema), Some(old)) if schema.columns() == old.columns() => continue,
            (Some(schema), Some(old)) if sorted(schema) == sorted(old) => (schema.clone(), old.clone()),
            (schema, old) => return Err(different_columns(first, schema.as_deref(), other, old.as_deref())),
        };
        let path = other.facts.path.clone();
        let bad = |row, fault| Err(BakeError::TableRow { path: path.clone(), row, fault });
        // The rows of all slots are converted, because the converted rows are numbered for messages.
        let all_slots = TableRecords { slots: None, ..other.table.clone() };
        let table = converted(&all_slots, &old, &schema, context, bad)?;
        other.table = TableRecords { slots: other.table.slots.take(), ..table };
        other.schema = Some(schema);
    }
    Ok(())
}

fn sorted(schema: &Schema) -> Vec<&Column> {
    let mut columns: Vec<_> = schema.columns().iter().collect();
    columns.sort_by_key(|column| &column.name);
    columns
}

fn different_columns(first: &OldTable, schema: Option<&Schema>, other: &OldTable, old: Option<&Schema>) -> BakeError {
    let beyond = |schema: Option<&Schema>, of: Option<&Schema>| {
        let Some(schema) = schema else { return "values that are not typed".to_owned() };
        let known = of.map_or(&[][..], Schema::columns);
        let own: Vec<_> = schema.columns().iter().filter(|column| !known.contains(column)).collect();
        match own.is_empty() {
            true => "no other columns".to_owned(),
            false => format!("the columns {}", write_types(own)),
        }
    };
    BakeError::TableColumns {
        table: first.facts.path.clone(),
        columns: beyond(schema, old),
        other: other.facts.path.clone(),
        other_columns: beyond(old, schema),
    }
}

/// Returns a copy of a table's rows, with values of the new schema. Calls `bad` for each row that has none, and skips
/// this row unless `bad` fails.
fn converted(
    table: &TableRecords,
    old: &Schema,
    schema: &Arc<Schema>,
    context: &Context<'_>,
    mut bad: impl FnMut(u64, RowFault) -> Result<(), BakeError>,
) -> Result<TableRecords, BakeError> {
    let folder: &Path = &context.budget.temp_dir;
    let temporary = |error| BakeError::temporary(folder, error);
    let file = unnamed_file_in(folder).map_err(temporary)?;
    // An estimate that is too low only matters for a table near the limits of the format, and is then an error.
    let len_bytes = table.extent.len_bytes * 2 + table.row_count * (schema.columns().len() * CELL_LEN_BYTES) as u64;
    let align_bytes = record_align_bytes(|_| len_bytes).unwrap_or(RECORD_ALIGN_MAX_BYTES);
    let mut writer = RecordsWriter::new(&file, table.key_type, table.has_ranges, align_bytes, context.budget.threads)
        .map_err(temporary)?;
    let positions: Vec<_> = schema.columns().iter().map(|column| old.position(&column.name)).collect();
    let mut builder = RowBuilder::new(schema.clone());
    let first_origin = if let RowOrigins::Counted(first) = table.origins { first } else { 0 };
    let mut rows = SortedRows::table(table, 0, BASE_RANK, BUFFER_LEN_BYTES)?;
    let (mut first_key, mut head) = (Vec::new(), rows.begin(0)?);
    while head.is_some() {
        let (row, origin) = rows.row();
        if writer.row_count().is_multiple_of(CANCEL_ROWS) {
            context.check_canceled()?;
        }
        match value(&mut builder, old, &positions, row.value) {
            Ok(value) => {
                if writer.row_count() == 0
                    && let Key::Bytes(key) = row.key
                {
                    first_key = key.to_vec();
                }
                writer.push(row.row_key(), value).map_err(temporary)?;
            }
            Err(fault) => bad(origin - first_origin, fault)?,
        }
        head = rows.advance(0)?;
    }
    let records = writer.finish().map_err(temporary)?;
    let owner = ExtentOwner::Temporary(folder.into());
    TableRecords::written(&file, &records, table.origins.clone(), first_key, owner).map_err(temporary)
}

/// Returns the value of a row in the new schema. `positions` has the position of each new column in the old schema.
fn value<'b>(
    builder: &'b mut RowBuilder,
    old: &'b Schema,
    positions: &[Option<usize>],
    row: &'b [u8],
) -> Result<&'b [u8], RowFault> {
    let row = TypedRow::new(old, row).map_err(|error| RowFault::typed_row(&error))?;
    row.check().map_err(|error| RowFault::typed_row(&error))?;
    let cell = |position: &Option<usize>| match position {
        Some(position) => row.value(*position).map_err(|error| RowFault::typed_row(&error)),
        None => Ok(Value::Null),
    };
    let cells = positions.iter().map(cell).collect::<Result<Vec<_>, _>>()?;
    builder.values(cells)
}
