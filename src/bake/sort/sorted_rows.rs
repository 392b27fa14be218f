//! Reads sorted rows from memory or from disk.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::blocks::{BlockReader, BlockSums, Extent};
use super::run::SortedRun;
use super::spill::SpilledRun;
use super::{ExtentOwner, HeldRow, OriginJumps};
use crate::Lookup;
use crate::bake::error::BakeError;
use crate::bake::range_keys::RangeKeys;
use crate::bake::table::WrittenRecords;
use crate::format::checksum::BLOCK_LEN_BYTES;
use crate::format::form::RecordForm;
use crate::format::header::RECORDS_OFFSET_BYTES;
use crate::format::key::{Key, KeyKind};
use crate::format::key_type::KeyType;
use crate::format::record::ALIGN_BYTES;
use crate::format::{FormatError, OwnedKey, Row};
use crate::slots::{SlotSet, slot_of_typed};
use crate::store::{MappedRows, MappedStore};

/// A cursor over sorted rows in memory or on disk.
pub(in crate::bake) struct SortedRows<'r> {
    storage: Storage<'r>,
    /// The rank of these rows in a merge. If several sources have a row with the same key, the merge keeps the row of
    /// the source with the lowest rank.
    pub(in crate::bake) rank: u32,
}

/// The rank of the base: a row of any other source replaces the base's row with the same key.
pub(in crate::bake) const BASE_RANK: u32 = u32::MAX;

enum Storage<'r> {
    Memory { run: &'r SortedRun, next: usize },
    Blocks(Box<BlockRows>),
    Groups(Box<GroupRows>),
}

/// What is wrong with a row whose range does not fit the type of the keys.
const WRONG_RANGE: &str = "the range is not one of the type of the keys";

/// Rows of an older table with the compact layout, whose keys and values are in different sections.
struct GroupRows {
    rows: MappedRows<Arc<MappedStore>>,
    /// The row that the cursor has moved to, and the last key of its range in a table of ranges.
    next: Option<(Row, Option<OwnedKey>)>,
    /// How the keys by which ranges are sorted are computed, if they are returned instead of the stored keys.
    range_keys: Option<RangeKeys>,
    /// The returned key of the next row, unless it is the stored one.
    returned_key: Vec<u8>,
    /// The number of rows read, including skipped rows.
    row: u64,
    origins: RowOrigins,
    next_origin: u64,
    owner: ExtentOwner,
    checks: TableChecks,
}

/// Rows in blocks on disk.
struct BlockRows {
    reader: BlockReader,
    /// How the rows store keys and ends.
    form: RecordForm,
    /// The number of bytes from the next row to the end of the range to read.
    left_bytes: u64,
    /// The length of the next row, which is at the start of the reader's bytes. 0 if there is no next row.
    next_len_bytes: usize,
    next_origin: u64,
    origins: RowOrigins,
    /// The number of rows read, including skipped rows.
    row: u64,
    align_bytes: usize,
    returned: Returned,
    /// The returned key of the next row, unless it is the stored one.
    returned_key: Vec<u8>,
    /// The checks for rows of an older table. `None` for rows that this bake has written.
    table: Option<TableChecks>,
}

/// Which keys are returned.
#[derive(Clone, Copy)]
enum Returned {
    /// The stored keys.
    Stored,
    /// Numbers as decimal text.
    Text,
    /// The keys by which ranges are sorted.
    Ranges(RangeKeys),
}

/// The checks for rows of an older table. They are necessary although blocks are verified, because a forged table can
/// have correct checksums and invalid rows.
struct TableChecks {
    /// The number of rows in the table. `None` if reading does not start at the first row.
    row_count: Option<u64>,
    /// The prefix that all keys share.
    common: Vec<u8>,
    last_head: Option<u64>,
    key_type: KeyType,
    /// The slots whose rows are returned. If `None`, all rows are returned.
    slots: Option<Arc<SlotSet>>,
}

/// How the origin of each row is found. An origin identifies a row's input and line.
#[derive(Clone)]
pub(in crate::bake) enum RowOrigins {
    /// The origin of the run's first line. Each row stores its line relative to the first line. The row's origin is the
    /// sum of this origin and the stored line.
    InRow(u64),
    /// The origin of the first row. The origin of row `n`, counted from 0, is this number plus `n`.
    Counted(u64),
    /// The origins of all rows are stored in an [`OriginJumps`].
    Jumps(Arc<OriginJumps>),
}

/// The location and properties of the records in a table file.
#[derive(Clone)]
pub(in crate::bake) struct TableRecords {
    pub(in crate::bake) extent: Extent,
    pub(in crate::bake) key_type: KeyType,
    /// Whether each row has the end of a range.
    pub(in crate::bake) has_ranges: bool,
    pub(in crate::bake) row_count: u64,
    pub(in crate::bake) align_bytes: usize,
    pub(in crate::bake) origins: RowOrigins,
    /// The first key. Its first `common_len_bytes` bytes are the prefix that all keys share.
    pub(in crate::bake) first_key: Vec<u8>,
    pub(in crate::bake) common_len_bytes: usize,
    /// The slots to read. If `None`, all rows are read.
    pub(in crate::bake) slots: Option<Arc<SlotSet>>,
    /// The table, if it has the compact layout.
    pub(in crate::bake) groups: Option<Arc<MappedStore>>,
}

impl TableRecords {
    /// Returns the records in a file whose other sections have not been written yet.
    pub(in crate::bake) fn written(
        file: &File,
        records: &WrittenRecords,
        origins: RowOrigins,
        first_key: Vec<u8>,
        owner: ExtentOwner,
    ) -> io::Result<TableRecords> {
        let extent = Extent {
            file: Arc::new(file.try_clone()?),
            offset_bytes: RECORDS_OFFSET_BYTES,
            len_bytes: records.records_len_bytes,
            block_len_bytes: BLOCK_LEN_BYTES,
            sums: BlockSums::Memory(records.block_sums.as_slice().into()),
            owner,
        };
        Ok(TableRecords {
            extent,
            key_type: records.key_type,
            has_ranges: records.has_ranges,
            row_count: records.row_count,
            align_bytes: records.record_align_bytes,
            origins,
            first_key,
            common_len_bytes: records.common_len_bytes,
            slots: None,
            groups: None,
        })
    }
}

impl<'r> SortedRows<'r> {
    pub(in crate::bake) fn memory(run: &'r SortedRun, rank: u32) -> Self {
        SortedRows { storage: Storage::Memory { run, next: 0 }, rank }
    }

    /// Returns cursors over the rows of a run on disk. The cursors return keys of the kind `kind`. If a run of numbers
    /// is read as bytes, the cursors return the numbers as text, and there is one cursor per digit count, because
    /// numeric and text order agree only among numbers of equal length. Otherwise, there is one cursor.
    pub(in crate::bake) fn spilled(
        run: &SpilledRun,
        kind: KeyKind,
        rank: u32,
        buffer_len_bytes: usize,
    ) -> Result<Vec<Self>, BakeError> {
        let returned = if run.kind == kind { Returned::Stored } else { Returned::Text };
        let sources = run.ranges(kind).map(|(from, to)| {
            let origins = RowOrigins::InRow(run.first_origin);
            let stored =
                BlockRows::new(&run.extent, from..to, run.kind.into(), ALIGN_BYTES, origins, buffer_len_bytes)?;
            let storage = Storage::Blocks(Box::new(BlockRows { returned, ..stored }));
            Ok(SortedRows { storage, rank })
        });
        sources.collect()
    }

    /// Returns a cursor over the rows of a table, starting at an offset of its records.
    pub(in crate::bake) fn table(
        table: &TableRecords,
        from_bytes: u64,
        rank: u32,
        buffer_len_bytes: usize,
    ) -> Result<Self, BakeError> {
        let checks = || TableChecks {
            row_count: (from_bytes == 0).then_some(table.row_count),
            common: table.first_key.get(..table.common_len_bytes).unwrap_or_default().to_vec(),
            last_head: None,
            key_type: table.key_type,
            slots: table.slots.clone(),
        };
        if let Some(groups) = &table.groups {
            let rows = GroupRows {
                rows: MappedRows::new(Arc::clone(groups), groups.unverified().iter().span()),
                next: None,
                range_keys: None,
                returned_key: Vec::new(),
                row: 0,
                origins: table.origins.clone(),
                next_origin: 0,
                owner: table.extent.owner.clone(),
                checks: checks(),
            };
            return Ok(SortedRows { storage: Storage::Groups(Box::new(rows)), rank });
        }
        let checks = matches!(table.extent.owner, ExtentOwner::Table(_)).then(checks);
        let TableRecords { extent, key_type, has_ranges, align_bytes, origins, .. } = table;
        let (range, form) = (from_bytes..extent.len_bytes, RecordForm::new(*key_type, *has_ranges));
        let stored = BlockRows::new(extent, range, form, *align_bytes, origins.clone(), buffer_len_bytes)?;
        Ok(SortedRows { storage: Storage::Blocks(Box::new(BlockRows { table: checks, ..stored })), rank })
    }

    /// Returns a cursor over the same rows of a table, with the keys by which its ranges are sorted, if it has ranges.
    pub(in crate::bake) fn sorted_by(mut self, keys: Option<RangeKeys>) -> Self {
        match (&mut self.storage, keys) {
            (Storage::Blocks(stored), Some(keys)) => stored.returned = Returned::Ranges(keys),
            (Storage::Groups(stored), Some(_)) => stored.range_keys = keys,
            _ => {}
        }
        self
    }

    /// Moves to the first row and returns the head of its key: see [`Key::head`]. Returns `None` if there is no row.
    pub(in crate::bake) fn begin(&mut self, common_len_bytes: usize) -> Result<Option<u64>, BakeError> {
        match &mut self.storage {
            Storage::Memory { run, next } => Ok(run.head(*next, common_len_bytes)),
            Storage::Blocks(stored) => stored.read_next(common_len_bytes),
            Storage::Groups(stored) => stored.read_next(common_len_bytes),
        }
    }

    /// Moves to the next row and returns the head of its key: see [`Key::head`].
    #[inline]
    pub(in crate::bake) fn advance(&mut self, common_len_bytes: usize) -> Result<Option<u64>, BakeError> {
        match &mut self.storage {
            Storage::Memory { run, next } => {
                *next += 1;
                Ok(run.head(*next, common_len_bytes))
            }
            Storage::Blocks(stored) => stored.read_next(common_len_bytes),
            Storage::Groups(stored) => stored.read_next(common_len_bytes),
        }
    }

    /// Returns the key of the row that the cursor has moved to. The cursor must not be at its end.
    #[inline]
    pub(in crate::bake) fn key(&self) -> Key<'_> {
        self.row().0.key
    }

    /// Returns the row that the cursor has moved to, and its origin (input and line). The cursor must not be at its
    /// end.
    #[inline]
    pub(in crate::bake) fn row(&self) -> (HeldRow<'_>, u64) {
        match &self.storage {
            Storage::Memory { run, next } => run.row(*next),
            Storage::Blocks(stored) => stored.row(),
            Storage::Groups(stored) => stored.row(),
        }
    }
}

impl GroupRows {
    /// Moves to the next row of the slots, and returns the head of its key: see [`Key::head`].
    fn read_next(&mut self, common_len_bytes: usize) -> Result<Option<u64>, BakeError> {
        self.next = None;
        while let Some(row) = self.rows.next_with_end() {
            let ((key, value), end) = row.map_err(|_| self.owner.changed(self.row))?;
            let (stored, stored_end) = (key.as_key(), end.as_ref().map(OwnedKey::as_key));
            let held = HeldRow { key: stored, end: stored_end, value: &value, line: 0, deleted: false };
            self.checks.check(&held, self.row, stored.head(0)).map_err(|error| self.owner.damaged(error))?;
            let head = match (self.range_keys, stored_end) {
                (Some(keys), Some(end)) if keys.are_of(held.row_key()) => {
                    keys.encode(stored, end, &mut self.returned_key);
                    Key::Bytes(&self.returned_key).head(common_len_bytes)
                }
                (Some(_), _) => {
                    let error = FormatError::Row { row: self.row, what: WRONG_RANGE };
                    return Err(self.owner.damaged(error));
                }
                (None, _) => stored.head(common_len_bytes),
            };
            self.next_origin = self.origins.origin_of(self.row, 0);
            self.row += 1;
            if !self.checks.skips(&stored) {
                self.next = Some(((key, value), end));
                return Ok(Some(head));
            }
        }
        Ok(None)
    }

    fn row(&self) -> (HeldRow<'_>, u64) {
        let ((key, value), end) = self.next.as_ref().expect("a row that read_next has read");
        let key = if self.range_keys.is_some() { Key::Bytes(&self.returned_key) } else { key.as_key() };
        let end = end.as_ref().map(OwnedKey::as_key);
        (HeldRow { key, end, value, line: 0, deleted: false }, self.next_origin)
    }
}

impl BlockRows {
    /// Returns a cursor over the rows in a range of an extent. `range` is relative to the start of the extent.
    fn new(
        extent: &Extent,
        range: Range<u64>,
        form: RecordForm,
        align_bytes: usize,
        origins: RowOrigins,
        buffer_len_bytes: usize,
    ) -> Result<Self, BakeError> {
        Ok(BlockRows {
            reader: BlockReader::new(extent.clone(), range.start, buffer_len_bytes)?,
            form,
            left_bytes: range.end - range.start,
            next_len_bytes: 0,
            next_origin: 0,
            origins,
            row: 0,
            align_bytes,
            returned: Returned::Stored,
            returned_key: Vec::new(),
            table: None,
        })
    }

    #[inline]
    fn consume(&mut self, len_bytes: usize) {
        self.reader.consume(len_bytes);
        self.left_bytes -= len_bytes as u64;
    }

    /// Moves to the next row of the slots, and returns the head of its key: see [`Key::head`].
    #[inline]
    fn read_next(&mut self, common_len_bytes: usize) -> Result<Option<u64>, BakeError> {
        let read_len_bytes = std::mem::take(&mut self.next_len_bytes);
        self.consume(read_len_bytes);
        while self.left_bytes > 0 {
            let decoded = HeldRow::decode(self.form, self.reader.rest(), self.align_bytes);
            // A forged length may reach beyond the range.
            let fits = |(_, len_bytes): &(HeldRow<'_>, usize)| *len_bytes as u64 <= self.left_bytes;
            let Some((row, len_bytes)) = decoded.filter(fits) else {
                if self.reader.fill()? {
                    continue;
                }
                return Err(self.fault("the record is missing or malformed"));
            };
            if let Some(expected) = &mut self.table {
                let head = row.key.head(common_len_bytes);
                expected.check(&row, self.row, head).map_err(|error| self.reader.owner().damaged(error))?;
            }
            let key = match self.returned {
                Returned::Stored => row.key,
                Returned::Text => {
                    self.returned_key.clear();
                    let number = row.key.as_u64().unwrap_or_default();
                    self.returned_key.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
                    Key::Bytes(&self.returned_key)
                }
                Returned::Ranges(keys) => match row.end.filter(|_| keys.are_of(row.row_key())) {
                    Some(end) => {
                        keys.encode(row.key, end, &mut self.returned_key);
                        Key::Bytes(&self.returned_key)
                    }
                    None => return Err(self.fault(WRONG_RANGE)),
                },
            };
            let head = key.head(common_len_bytes);
            let (line, is_skipped) = (row.line, self.table.as_ref().is_some_and(|table| table.skips(&row.key)));
            let origin = self.origins.origin_of(self.row, line);
            self.row += 1;
            if is_skipped {
                self.consume(len_bytes);
                continue;
            }
            (self.next_len_bytes, self.next_origin) = (len_bytes, origin);
            return Ok(Some(head));
        }
        match &self.table {
            Some(TableChecks { row_count: Some(row_count), .. }) if self.row < *row_count => {
                Err(self.fault("the record is missing or malformed"))
            }
            _ => Ok(None),
        }
    }

    #[cold]
    fn fault(&self, what: &'static str) -> BakeError {
        self.reader.owner().damaged(FormatError::Row { row: self.row, what })
    }

    #[inline]
    fn row(&self) -> (HeldRow<'_>, u64) {
        let decoded = HeldRow::decode(self.form, self.reader.rest(), self.align_bytes);
        let (row, _) = decoded.expect("a row that read_next has decoded");
        let key = match self.returned {
            Returned::Stored => row.key,
            Returned::Text | Returned::Ranges(_) => Key::Bytes(&self.returned_key),
        };
        (HeldRow { key, ..row }, self.next_origin)
    }
}

impl RowOrigins {
    #[inline]
    fn origin_of(&self, row: u64, line: u32) -> u64 {
        match self {
            RowOrigins::InRow(first) => first + u64::from(line),
            RowOrigins::Counted(first) => first + row,
            RowOrigins::Jumps(jumps) => jumps.origin(row),
        }
    }
}

impl TableChecks {
    /// Checks that a row has a value, that its key is greater than the preceding key, and that its number is less than
    /// the table's number of rows. Accepts adjacent byte keys with equal heads (see [`Key::head`]), because the index
    /// build compares whole keys later, when it reads the new records.
    #[inline]
    fn check(&mut self, row: &HeldRow<'_>, number: u64, head: u64) -> Result<(), FormatError> {
        let fault = |what| Err(FormatError::Row { row: number, what });
        let is_above = match row.key {
            Key::U64(_) => self.last_head.is_none_or(|last| last < head),
            Key::Bytes(key) => key.starts_with(&self.common) && self.last_head.is_none_or(|last| last <= head),
        };
        if !is_above {
            return fault("the key is not greater than the preceding key");
        }
        if row.line != 0 || row.deleted {
            return fault("the record has no value");
        }
        if self.row_count.is_some_and(|row_count| number >= row_count) {
            return fault("there are records beyond the last row");
        }
        self.last_head = Some(head);
        Ok(())
    }

    #[inline]
    fn skips(&self, key: &Key<'_>) -> bool {
        self.slots.as_ref().is_some_and(|slots| !slots.has(slot_of_typed(self.key_type, *key)))
    }
}
