//! Laying rows out as the sections of a file.
//!
//! In: records in key order, and how many there will be. Out: bytes at their
//! place in the file. Records are written as they come; fences, and what the index
//! needs of each row, a number or where its key is, wait until all are there.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use super::slots::{self, Keyed, Slots};
use crate::format::FormatError;
use crate::format::checksum::{BLOCK_LEN_BYTES, block_sum, section_sum, section_sum_of};
use crate::format::header::{Dimensions, Layout, Section};
use crate::format::index::{FENCE_ROWS, Fence, fence_count};
use crate::format::key::{Key, KeyKind};
use crate::format::record::{RECORD_ALIGN_MAX_BYTES, Record};

/// What a section gathers before it writes: whole blocks, so that each is
/// summed while it is at hand.
const WRITE_LEN_BYTES: usize = 64 * BLOCK_LEN_BYTES;

/// Writes one table into an empty file.
pub(super) struct TableWriter<'f, 'r> {
    file: &'f File,
    dimensions: Dimensions,
    values_len_bytes: u64,
    fences: Vec<Fence>,
    records: SectionWriter<'f>,
    /// How many bytes all keys begin with.
    common_len_bytes: usize,
    keys: KeyedRows<'r>,
}

/// The rows so far, as the index sees them.
enum KeyedRows<'r> {
    U64(Vec<Keyed<u64>>),
    Bytes(Vec<Keyed<&'r [u8]>>),
}

impl<'r> KeyedRows<'r> {
    fn new(kind: KeyKind, count: usize) -> Self {
        match kind {
            KeyKind::U64 => KeyedRows::U64(Vec::with_capacity(count)),
            KeyKind::Bytes => KeyedRows::Bytes(Vec::with_capacity(count)),
        }
    }

    fn len(&self) -> usize {
        match self {
            KeyedRows::U64(keys) => keys.len(),
            KeyedRows::Bytes(keys) => keys.len(),
        }
    }

    /// # Panics
    /// If the key is of another kind.
    fn push(&mut self, key: Key<'r>, place: u32) {
        match (self, key) {
            (KeyedRows::U64(keys), Key::U64(source)) => keys.push(Keyed { source, place }),
            (KeyedRows::Bytes(keys), Key::Bytes(source)) => keys.push(Keyed { source, place }),
            _ => unreachable!("all keys of a table are of one kind"),
        }
    }

    fn assign(&self) -> Result<Slots, FormatError> {
        match self {
            KeyedRows::U64(keys) => slots::assign(keys),
            KeyedRows::Bytes(keys) => slots::assign(keys),
        }
    }
}

/// Why a table cannot be finished.
#[derive(Debug)]
pub(super) enum FinishError {
    Format(FormatError),
    Io(io::Error),
}

impl From<FormatError> for FinishError {
    fn from(error: FormatError) -> Self {
        FinishError::Format(error)
    }
}

impl From<io::Error> for FinishError {
    fn from(error: io::Error) -> Self {
        FinishError::Io(error)
    }
}

impl<'f, 'r> TableWriter<'f, 'r> {
    /// The rows' keys begin with `common_len_bytes` that they have in common.
    pub(super) fn new(
        file: &'f File,
        key_kind: KeyKind,
        row_count: u64,
        record_align_bytes: usize,
        common_len_bytes: usize,
    ) -> Result<Self, FormatError> {
        let dimensions = Dimensions {
            key_kind,
            row_count,
            hash_seed: 0,
            record_align_bytes,
            records_len_bytes: 0,
            part_pilots: 1,
            part_slots: 1,
        };
        // Final for the beginning of the records, which is all that is needed for now.
        let layout = Layout::of(dimensions)?;
        Ok(TableWriter {
            file,
            dimensions,
            values_len_bytes: 0,
            fences: Vec::with_capacity(fence_count(row_count)),
            records: SectionWriter::new(file, layout.records),
            common_len_bytes,
            keys: KeyedRows::new(key_kind, row_count as usize),
        })
    }

    /// Adds the next row in key order.
    pub(super) fn push(&mut self, record: &Record<'r>) -> io::Result<()> {
        const ZEROS: [u8; RECORD_ALIGN_MAX_BYTES] = [0; RECORD_ALIGN_MAX_BYTES];
        let offset_bytes = self.records.len_bytes();
        let place = u32::try_from(offset_bytes / self.dimensions.record_align_bytes as u64)
            .map_err(|_| io::Error::new(io::ErrorKind::FileTooLarge, FormatError::RecordsTooLong))?;
        if self.keys.len().is_multiple_of(FENCE_ROWS) {
            let head = record.key().head(self.common_len_bytes);
            self.fences.push(Fence { head: head.into(), offset_bytes: offset_bytes.into() });
        }
        self.keys.push(record.key(), place);
        self.values_len_bytes += record.value().len() as u64;
        let padding_len_bytes = record.len_bytes(self.dimensions.record_align_bytes) - record.bytes().len();
        self.records.push(record.bytes())?;
        self.records.push(&ZEROS[..padding_len_bytes])
    }

    /// Writes what is left: pilots, places, block sums and the header. Gives the lengths
    /// of all values together.
    pub(super) fn finish(mut self) -> Result<u64, FinishError> {
        assert_eq!(self.keys.len() as u64, self.dimensions.row_count, "as many rows as were announced");
        self.dimensions.records_len_bytes = self.records.len_bytes();
        let block_sums = self.records.finish()?;
        let slots = self.keys.assign()?;
        self.dimensions.hash_seed = slots.hash_seed;
        self.dimensions.part_pilots = slots.parts.pilots;
        self.dimensions.part_slots = slots.parts.slots;

        let mut layout = Layout::of(self.dimensions)?;
        layout.fences.checksum = section_sum_of(self.fences.as_bytes());
        layout.records.checksum = section_sum(&block_sums);
        layout.pilots.checksum = section_sum_of(&slots.pilots);
        layout.places.checksum = section_sum_of(slots.places.as_bytes());
        layout.block_sums.checksum = section_sum_of(block_sums.as_bytes());
        self.file.write_all_at(self.fences.as_bytes(), layout.fences.offset_bytes)?;
        self.file.write_all_at(&slots.pilots, layout.pilots.offset_bytes)?;
        self.file.write_all_at(slots.places.as_bytes(), layout.places.offset_bytes)?;
        self.file.write_all_at(block_sums.as_bytes(), layout.block_sums.offset_bytes)?;
        self.file.write_all_at(&layout.encode(), 0)?;
        // Where the last section is empty, the file ends with padding that nobody wrote.
        self.file.set_len(layout.file_len_bytes())?;
        Ok(self.values_len_bytes)
    }
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::format::record::record_len_bytes;
    use crate::store::Store;

    /// Such alignments are for records of more than 32 GiB, which no test makes.
    #[test]
    fn a_file_with_any_record_alignment_is_read() {
        for align_bytes in [8, 16, 64, 4096] {
            let file = tempfile::tempfile().unwrap();
            let mut table = TableWriter::new(&file, KeyKind::U64, 1000, align_bytes, 0).unwrap();
            let record =
                |key: u64| [&key.to_le_bytes()[..], &(key % 50).to_be_bytes(), &vec![b'v'; key as usize % 50]].concat();
            let records: Vec<Vec<u8>> = (0..1000).map(record).collect();
            for record in &records {
                table.push(&Record::at(KeyKind::U64, record, 0).unwrap()).unwrap();
            }
            table.finish().unwrap();
            let store = Store::of_file(&file, Path::new("test")).unwrap();
            for key in 0..1000_u64 {
                assert_eq!(store.get(key).unwrap(), Some(&vec![b'v'; key as usize % 50][..]));
            }
            let records_len_bytes: usize =
                (0..1000).map(|key| record_len_bytes(Key::U64(0), key % 50, align_bytes)).sum();
            assert!(store.file_len_bytes() > records_len_bytes as u64);
        }
    }
}
