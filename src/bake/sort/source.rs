//! Rows in key order, one after another, from wherever they are.

use std::fs::File;
use std::io;
use std::sync::Arc;

use super::blocks::{BlockReader, Extent, Home};
use super::held::Held;
use super::run::Run;
use super::spill::SpilledRun;
use crate::bake::stream::Jumps;
use crate::bake::table::WrittenRecords;
use crate::bake::{BakeError, Shard};
use crate::format::FormatError;
use crate::format::checksum::BLOCK_LEN_BYTES;
use crate::format::header::HEADER_LEN_BYTES;
use crate::format::key::{Key, KeyKind};
use crate::format::record::ALIGN_BYTES;

/// Sorted rows, and the one that is next.
pub(in crate::bake) struct Source<'r> {
    rows: Rows<'r>,
    /// Of sources with the same key, that with the lowest rank comes first.
    pub(in crate::bake) rank: u32,
    /// Its rows are older than the input: any row of the input takes their place.
    pub(in crate::bake) is_base: bool,
}

enum Rows<'r> {
    Memory { run: &'r Run, next: usize },
    Blocks(Box<Stored>),
}

/// Rows in blocks on disk.
struct Stored {
    reader: BlockReader,
    kind: KeyKind,
    /// Bytes of the extent from the next row to the end.
    left_bytes: u64,
    next: Option<Next>,
    origins: RowOrigins,
    /// Rows read.
    row: u64,
    align_bytes: usize,
    /// Numbers are handed on as the bytes of their decimals.
    as_text: bool,
    text: Vec<u8>,
    /// Of a table that this bake has not written: what its rows must be.
    table: Option<Expected>,
}

/// What is expected of the rows of a table that was baked before. Its blocks are what their checksums say; but whoever
/// made them may not have been a baker.
struct Expected {
    /// Unless it is read from the middle.
    row_count: Option<u64>,
    /// What all keys begin with.
    common: Vec<u8>,
    last_head: Option<u64>,
    /// Rows of other shards are left out.
    shard: Option<Shard>,
}

/// The row at the reader's beginning.
struct Next {
    len_bytes: usize,
    origin: u64,
}

/// How the origin of a row is known.
#[derive(Clone)]
pub(in crate::bake) enum RowOrigins {
    /// The row has it, counted from here.
    Held(u64),
    /// Row `n` has this and `n`.
    Counted(u64),
    /// They were noted.
    Jumps(Arc<Jumps>),
}

/// A table's records, ready to be read as a source.
#[derive(Clone)]
pub(in crate::bake) struct Table {
    pub(in crate::bake) extent: Extent,
    pub(in crate::bake) kind: KeyKind,
    pub(in crate::bake) row_count: u64,
    pub(in crate::bake) align_bytes: usize,
    pub(in crate::bake) origins: RowOrigins,
    /// How many bytes all keys begin with, of which `first_key` is one.
    pub(in crate::bake) first_key: Vec<u8>,
    pub(in crate::bake) common_len_bytes: usize,
    /// The rows to take, if not all.
    pub(in crate::bake) shard: Option<Shard>,
}

impl Table {
    /// The records that were written into a file, which has nothing else yet.
    pub(in crate::bake) fn written(
        file: &File,
        records: &WrittenRecords,
        origins: RowOrigins,
        first_key: Vec<u8>,
        home: Home,
    ) -> io::Result<Table> {
        let extent = Extent {
            file: Arc::new(file.try_clone()?),
            offset_bytes: HEADER_LEN_BYTES as u64,
            len_bytes: records.records_len_bytes,
            block_len_bytes: BLOCK_LEN_BYTES,
            sums: records.block_sums.as_slice().into(),
            home,
        };
        Ok(Table {
            extent,
            kind: records.key_kind,
            row_count: records.row_count,
            align_bytes: records.record_align_bytes,
            origins,
            first_key,
            common_len_bytes: records.common_len_bytes,
            shard: None,
        })
    }
}

impl<'r> Source<'r> {
    /// The rows of a run in memory.
    pub(in crate::bake) fn memory(run: &'r Run, rank: u32) -> Self {
        Source { rows: Rows::Memory { run, next: 0 }, rank, is_base: false }
    }

    /// The rows of a run on disk, as keys of a kind. A run of numbers becomes several sources of text: in each, all have
    /// the same number of digits, and so the same order as text.
    pub(in crate::bake) fn spilled(
        run: &SpilledRun,
        kind: KeyKind,
        rank: u32,
        buffer_len_bytes: usize,
    ) -> Result<Vec<Self>, BakeError> {
        let as_text = run.kind != kind;
        let sources = run.ranges(kind).map(|(from, to)| {
            let reader = BlockReader::new(run.extent.clone(), from, buffer_len_bytes)?;
            let stored = Stored {
                reader,
                kind: run.kind,
                left_bytes: to - from,
                next: None,
                origins: RowOrigins::Held(run.first_origin),
                row: 0,
                align_bytes: ALIGN_BYTES,
                as_text,
                text: Vec::new(),
                table: None,
            };
            Ok(Source { rows: Rows::Blocks(Box::new(stored)), rank, is_base: false })
        });
        sources.collect()
    }

    /// The rows of a table.
    pub(in crate::bake) fn table(
        table: &Table,
        rank: u32,
        is_base: bool,
        buffer_len_bytes: usize,
    ) -> Result<Self, BakeError> {
        Source::table_from(table, 0, rank, is_base, buffer_len_bytes)
    }

    /// The rows of a table from the one that is at some offset of its records.
    pub(in crate::bake) fn table_from(
        table: &Table,
        from_bytes: u64,
        rank: u32,
        is_base: bool,
        buffer_len_bytes: usize,
    ) -> Result<Self, BakeError> {
        let expected = matches!(table.extent.home, Home::Table(_)).then(|| Expected {
            row_count: (from_bytes == 0).then_some(table.row_count),
            common: table.first_key.get(..table.common_len_bytes).unwrap_or_default().to_vec(),
            last_head: None,
            shard: table.shard.clone(),
        });
        let stored = Stored {
            reader: BlockReader::new(table.extent.clone(), from_bytes, buffer_len_bytes)?,
            kind: table.kind,
            left_bytes: table.extent.len_bytes - from_bytes,
            next: None,
            origins: table.origins.clone(),
            row: 0,
            align_bytes: table.align_bytes,
            as_text: false,
            text: Vec::new(),
            table: expected,
        };
        Ok(Source { rows: Rows::Blocks(Box::new(stored)), rank, is_base })
    }

    /// Goes to the first row, and gives what stands for its key: see [`Key::head`]. `None` if there is none.
    pub(in crate::bake) fn begin(&mut self, common_len_bytes: usize) -> Result<Option<u64>, BakeError> {
        match &mut self.rows {
            Rows::Memory { run, next } => Ok(run.head(*next, common_len_bytes)),
            Rows::Blocks(stored) => stored.read_next(common_len_bytes),
        }
    }

    /// Goes to the next row.
    #[inline]
    pub(in crate::bake) fn advance(&mut self, common_len_bytes: usize) -> Result<Option<u64>, BakeError> {
        match &mut self.rows {
            Rows::Memory { run, next } => {
                *next += 1;
                Ok(run.head(*next, common_len_bytes))
            }
            Rows::Blocks(stored) => {
                if let Some(next) = stored.next.take() {
                    stored.consume(next.len_bytes);
                }
                stored.read_next(common_len_bytes)
            }
        }
    }

    /// The next row's key. There must be one.
    #[inline]
    pub(in crate::bake) fn key(&self) -> Key<'_> {
        self.row().0.key
    }

    /// The next row and its origin. There must be one.
    #[inline]
    pub(in crate::bake) fn row(&self) -> (Held<'_>, u64) {
        match &self.rows {
            Rows::Memory { run, next } => run.row(*next),
            Rows::Blocks(stored) => stored.row(),
        }
    }
}

impl Stored {
    #[inline]
    fn consume(&mut self, len_bytes: usize) {
        self.reader.consume(len_bytes);
        self.left_bytes -= len_bytes as u64;
    }

    /// Finds the next row to hand on, and gives its head.
    #[inline]
    fn read_next(&mut self, common_len_bytes: usize) -> Result<Option<u64>, BakeError> {
        while self.left_bytes > 0 {
            let whole = whole_row(self.kind, self.reader.rest(), self.align_bytes, self.left_bytes);
            let Some((row, len_bytes)) = whole else {
                if self.reader.fill()? {
                    continue;
                }
                return Err(self.fault("the record does not fit"));
            };
            if self.as_text {
                self.text.clear();
                let number = row.key.as_u64().unwrap_or_default();
                self.text.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
            }
            let key = if self.as_text { Key::Bytes(&self.text) } else { row.key };
            let head = key.head(common_len_bytes);
            if let Some(expected) = &mut self.table {
                expected.check(&row, self.row, head).map_err(|error| self.reader.home().damaged(error))?;
            }
            let (line, is_left_out) = (row.line, self.table.as_ref().is_some_and(|table| table.leaves_out(&row.key)));
            let origin = self.origins.of(self.row, line);
            self.row += 1;
            if is_left_out {
                self.consume(len_bytes);
                continue;
            }
            self.next = Some(Next { len_bytes, origin });
            return Ok(Some(head));
        }
        match &self.table {
            Some(Expected { row_count: Some(row_count), .. }) if self.row < *row_count => {
                Err(self.fault("the record does not fit"))
            }
            _ => Ok(None),
        }
    }

    #[cold]
    fn fault(&self, what: &'static str) -> BakeError {
        self.reader.home().damaged(FormatError::Row { row: self.row, what })
    }

    #[inline]
    fn row(&self) -> (Held<'_>, u64) {
        let (row, _) = Held::at(self.kind, self.reader.rest(), 0).expect("a row that read_next has seen");
        let origin = self.next.as_ref().map_or(0, |next| next.origin);
        let key = if self.as_text { Key::Bytes(&self.text) } else { row.key };
        (Held { key, ..row }, origin)
    }
}

/// The row at the beginning of some bytes, of which so many are left, and what it takes up. `None` if it is not there
/// whole.
#[inline]
fn whole_row(kind: KeyKind, rest: &[u8], align_bytes: usize, left_bytes: u64) -> Option<(Held<'_>, usize)> {
    let (row, len_bytes) = Held::at(kind, rest, 0)?;
    let len_bytes = len_bytes.next_multiple_of(align_bytes);
    (len_bytes <= rest.len() && len_bytes as u64 <= left_bytes).then_some((row, len_bytes))
}

impl RowOrigins {
    #[inline]
    fn of(&self, row: u64, line: u32) -> u64 {
        match self {
            RowOrigins::Held(first) => first + u64::from(line),
            RowOrigins::Counted(first) => first + row,
            RowOrigins::Jumps(jumps) => jumps.origin(row),
        }
    }
}

impl Expected {
    /// Keys of bytes with the same head are compared when the new records are indexed.
    #[inline]
    fn check(&mut self, row: &Held<'_>, number: u64, head: u64) -> Result<(), FormatError> {
        let fault = |what| Err(FormatError::Row { row: number, what });
        let is_above = match row.key {
            Key::U64(_) => self.last_head.is_none_or(|last| last < head),
            Key::Bytes(key) => key.starts_with(&self.common) && self.last_head.is_none_or(|last| last <= head),
        };
        if !is_above {
            return fault("the key is not above the one before");
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
    fn leaves_out(&self, key: &Key<'_>) -> bool {
        self.shard.as_ref().is_some_and(|shard| !shard.has(key))
    }
}
