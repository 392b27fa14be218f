//! Rows in key order, one after another, from wherever they are.

use std::fs::File;
use std::io;
use std::sync::Arc;

use super::blocks::{BlockReader, Extent, ReadBack};
use super::held::Held;
use super::run::Run;
use super::spill::SpilledRun;
use crate::bake::stream::Jumps;
use crate::bake::table::WrittenRecords;
use crate::format::checksum::BLOCK_LEN_BYTES;
use crate::format::header::HEADER_LEN_BYTES;
use crate::format::key::{Key, KeyKind};

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
    Blocks(Stored),
}

/// Rows in blocks on disk.
struct Stored {
    reader: BlockReader,
    kind: KeyKind,
    /// Bytes of the extent from the next row to the end.
    left_bytes: u64,
    next: Option<Next>,
    origins: RowOrigins,
    row: u64,
    align_bytes: usize,
    /// Numbers are handed on as the bytes of their decimals.
    as_text: bool,
    text: Vec<u8>,
}

/// The row at the reader's beginning.
struct Next {
    head: u64,
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
}

impl Table {
    /// The records that were written into a file, which has nothing else yet.
    pub(in crate::bake) fn written(
        file: &File,
        records: &WrittenRecords,
        origins: RowOrigins,
        first_key: Vec<u8>,
    ) -> io::Result<Table> {
        let extent = Extent {
            file: Arc::new(file.try_clone()?),
            offset_bytes: HEADER_LEN_BYTES as u64,
            len_bytes: records.records_len_bytes,
            block_len_bytes: BLOCK_LEN_BYTES,
            sums: records.block_sums.as_slice().into(),
        };
        Ok(Table {
            extent,
            kind: records.key_kind,
            row_count: records.row_count,
            align_bytes: records.record_align_bytes,
            origins,
            first_key,
            common_len_bytes: records.common_len_bytes,
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
    ) -> Result<Vec<Self>, ReadBack> {
        let as_text = run.kind != kind;
        let ranges: Vec<(u64, u64)> = match as_text {
            true => run.digits_at[1..].windows(2).map(|pair| (pair[0], pair[1])).collect(),
            false => vec![(0, run.extent.len_bytes)],
        };
        let ranges = ranges.into_iter().filter(|(from, to)| from < to);
        let sources = ranges.map(|(from, to)| {
            let reader = BlockReader::new(run.extent.clone(), from, buffer_len_bytes)?;
            let stored = Stored {
                reader,
                kind: run.kind,
                left_bytes: to - from,
                next: None,
                origins: RowOrigins::Held(run.first_origin),
                row: 0,
                align_bytes: crate::format::record::ALIGN_BYTES,
                as_text,
                text: Vec::new(),
            };
            Ok(Source { rows: Rows::Blocks(stored), rank, is_base: false })
        });
        sources.collect()
    }

    /// The rows of a table.
    pub(in crate::bake) fn table(
        table: &Table,
        rank: u32,
        is_base: bool,
        buffer_len_bytes: usize,
    ) -> Result<Self, ReadBack> {
        let stored = Stored {
            reader: BlockReader::new(table.extent.clone(), 0, buffer_len_bytes)?,
            kind: table.kind,
            left_bytes: table.extent.len_bytes,
            next: None,
            origins: table.origins.clone(),
            row: 0,
            align_bytes: table.align_bytes,
            as_text: false,
            text: Vec::new(),
        };
        Ok(Source { rows: Rows::Blocks(stored), rank, is_base })
    }

    /// Goes to the first row, and gives what stands for its key: see [`Key::head`]. `None` if there is none.
    pub(in crate::bake) fn begin(&mut self, common_len_bytes: usize) -> Result<Option<u64>, ReadBack> {
        match &mut self.rows {
            Rows::Memory { .. } => Ok(self.head(common_len_bytes)),
            Rows::Blocks(stored) => {
                stored.read_next()?;
                Ok(self.head(common_len_bytes))
            }
        }
    }

    /// Goes to the next row.
    #[inline]
    pub(in crate::bake) fn advance(&mut self, common_len_bytes: usize) -> Result<Option<u64>, ReadBack> {
        match &mut self.rows {
            Rows::Memory { next, .. } => *next += 1,
            Rows::Blocks(stored) => {
                if let Some(next) = stored.next.take() {
                    stored.reader.consume(next.len_bytes);
                    stored.left_bytes -= next.len_bytes as u64;
                }
                stored.read_next()?;
            }
        }
        Ok(self.head(common_len_bytes))
    }

    #[inline]
    fn head(&self, common_len_bytes: usize) -> Option<u64> {
        match &self.rows {
            Rows::Memory { run, next } => run.head(*next, common_len_bytes),
            Rows::Blocks(stored) => {
                let next = stored.next.as_ref()?;
                Some(if stored.kind == KeyKind::U64 && !stored.as_text {
                    next.head
                } else {
                    self.key().head(common_len_bytes)
                })
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
    fn read_next(&mut self) -> Result<(), ReadBack> {
        if self.left_bytes == 0 {
            return Ok(());
        }
        loop {
            if let Some((row, len_bytes)) = Held::at(self.kind, self.reader.rest(), 0) {
                let len_bytes = len_bytes.next_multiple_of(self.align_bytes);
                if len_bytes <= self.reader.rest().len() && len_bytes as u64 <= self.left_bytes {
                    let origin = match &self.origins {
                        RowOrigins::Held(first) => first + u64::from(row.line),
                        RowOrigins::Counted(first) => first + self.row,
                        RowOrigins::Jumps(jumps) => jumps.origin(self.row),
                    };
                    self.row += 1;
                    let head = row.key.as_u64().unwrap_or_default();
                    if self.as_text {
                        self.text.clear();
                        self.text.extend_from_slice(itoa::Buffer::new().format(head).as_bytes());
                    }
                    self.next = Some(Next { head, len_bytes, origin });
                    return Ok(());
                }
            }
            if !self.reader.fill()? {
                return Err(self.reader.damaged());
            }
        }
    }

    #[inline]
    fn row(&self) -> (Held<'_>, u64) {
        let (row, _) = Held::at(self.kind, self.reader.rest(), 0).expect("a row that read_next has seen");
        let origin = self.next.as_ref().map_or(0, |next| next.origin);
        let key = if self.as_text { Key::Bytes(&self.text) } else { row.key };
        (Held { key, ..row }, origin)
    }
}
