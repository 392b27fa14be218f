//! Laying rows out as the sections of a file.
//!
//! In: rows in key order, and how many there will be. Out: bytes at their place
//! in the file. Sections grow side by side, so a row is looked at once and the
//! table need not be in memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use crate::format::FormatError;
use crate::format::checksum::{BLOCK_LEN_BYTES, block_sum, section_sum, section_sum_of};
use crate::format::header::{Layout, Section};
use crate::format::index::{LEAF_ROWS, Leaf, NODE_KEYS, Node, UNUSED_KEY};
use crate::format::record::{Locator, announced_len_bytes};

/// What a section gathers before it writes: whole blocks, so that each is
/// summed while it is at hand.
const WRITE_LEN_BYTES: usize = 64 * BLOCK_LEN_BYTES;

/// Writes one table into an empty file.
pub(super) struct TableWriter<'f> {
    file: &'f File,
    /// Final but for the length of the records and what follows them.
    layout: Layout,
    leaf: Leaf,
    rows: usize,
    values_len_bytes: u64,
    first_keys: Vec<U64>,
    leaves: SectionWriter<'f>,
    records: SectionWriter<'f>,
}

impl<'f> TableWriter<'f> {
    pub(super) fn new(file: &'f File, row_count: u64) -> Result<Self, FormatError> {
        let layout = Layout::of(row_count, 0)?;
        Ok(TableWriter {
            file,
            leaf: Leaf::UNUSED,
            rows: 0,
            values_len_bytes: 0,
            first_keys: Vec::with_capacity(layout.shape.leaf_count),
            leaves: SectionWriter::new(file, layout.leaves),
            records: SectionWriter::new(file, layout.records),
            layout,
        })
    }

    /// Adds the next row in key order, its record with header and padding.
    pub(super) fn push(&mut self, key: u64, record: &[u8]) -> io::Result<()> {
        let value_len_bytes = announced_len_bytes(record).expect("a record with its header");
        let locator = Locator::new(self.records.len_bytes(), value_len_bytes)
            .ok_or_else(|| io::Error::new(io::ErrorKind::FileTooLarge, FormatError::RecordsTooLong))?;
        let place = self.rows % LEAF_ROWS;
        if place == 0 {
            self.first_keys.push(key.into());
        }
        self.leaf.keys[place] = key.into();
        self.leaf.locators[place] = locator;
        self.rows += 1;
        self.values_len_bytes += value_len_bytes as u64;
        if place == LEAF_ROWS - 1 {
            self.leaves.push(std::mem::replace(&mut self.leaf, Leaf::UNUSED).as_bytes())?;
        }
        self.records.push(record)
    }

    /// Writes what is left: the last leaf, the directory, the block sums and
    /// the header. Gives the lengths of all values together.
    pub(super) fn finish(mut self) -> io::Result<u64> {
        assert_eq!(self.rows, self.layout.shape.row_count, "as many rows as were announced");
        if !self.rows.is_multiple_of(LEAF_ROWS) {
            self.leaves.push(self.leaf.as_bytes())?;
        }
        let records_len_bytes = self.records.len_bytes();
        let leaf_sums = self.leaves.finish()?;
        let block_sums = self.records.finish()?;

        let mut layout = Layout::of(self.rows as u64, records_len_bytes)
            .map_err(|error| io::Error::new(io::ErrorKind::FileTooLarge, error))?;
        let directory = directory(&layout, self.first_keys);
        layout.directory.checksum = section_sum_of(directory.as_bytes());
        layout.leaves.checksum = section_sum(&leaf_sums);
        layout.records.checksum = section_sum(&block_sums);
        layout.block_sums.checksum = section_sum_of(block_sums.as_bytes());
        self.file.write_all_at(directory.as_bytes(), layout.directory.offset_bytes)?;
        self.file.write_all_at(block_sums.as_bytes(), layout.block_sums.offset_bytes)?;
        self.file.write_all_at(&layout.encode(), 0)?;
        // Where the last section is empty, the file ends with padding that nobody wrote.
        self.file.set_len(layout.file_len_bytes())?;
        Ok(self.values_len_bytes)
    }
}

/// All levels of the directory, from the root down, above leaves with these
/// first keys.
fn directory(layout: &Layout, first_keys: Vec<U64>) -> Vec<Node> {
    let mut levels = Vec::new();
    let mut below = first_keys;
    for _ in &layout.shape.levels {
        let nodes: Vec<Node> = below.chunks(NODE_KEYS).map(node).collect();
        below = nodes.iter().map(|node| node.keys[0]).collect();
        levels.push(nodes);
    }
    levels.reverse();
    levels.concat()
}

fn node(keys: &[U64]) -> Node {
    Node { keys: std::array::from_fn(|i| keys.get(i).copied().unwrap_or(UNUSED_KEY)) }
}

/// One section, written front to back.
struct SectionWriter<'f> {
    file: &'f File,
    written_to_bytes: u64,
    start_bytes: u64,
    pending: Vec<u8>,
    sums: Vec<U64>,
}

impl<'f> SectionWriter<'f> {
    fn new(file: &'f File, section: Section) -> Self {
        let start_bytes = section.offset_bytes;
        let pending = Vec::with_capacity(WRITE_LEN_BYTES);
        SectionWriter { file, written_to_bytes: start_bytes, start_bytes, pending, sums: Vec::new() }
    }

    fn len_bytes(&self) -> u64 {
        self.written_to_bytes - self.start_bytes + self.pending.len() as u64
    }

    fn push(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while bytes.len() >= WRITE_LEN_BYTES - self.pending.len() {
            let (fits, rest) = bytes.split_at(WRITE_LEN_BYTES - self.pending.len());
            self.pending.extend_from_slice(fits);
            self.write()?;
            bytes = rest;
        }
        self.pending.extend_from_slice(bytes);
        Ok(())
    }

    /// Writes what is left and gives the sums of all blocks.
    fn finish(mut self) -> io::Result<Vec<U64>> {
        self.write()?;
        Ok(self.sums)
    }

    fn write(&mut self) -> io::Result<()> {
        self.sums.extend(self.pending.chunks(BLOCK_LEN_BYTES).map(block_sum));
        self.file.write_all_at(&self.pending, self.written_to_bytes)?;
        self.written_to_bytes += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }
}
