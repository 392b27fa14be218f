//! Writes the records section, and counts the lengths of values.
//!
//! In: keys and values in key order. Out: the section, and facts that the index needs, such as the number of rows and
//! the checksums of blocks. A row is borrowed only while it is added.

use std::fs::File;
use std::hash::Hasher;
use std::io;
use std::path::Path;

use hdrhistogram::Histogram;
use twox_hash::XxHash3_64;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use super::groups::{GroupsWriter, WrittenGroups};
use super::other_lens::OtherLens;
use super::section::SectionWriter;
use crate::format::FormatError;
use crate::format::form::{RecordForm, RowKey};
use crate::format::group::GroupRow;
use crate::format::header::{RECORDS_OFFSET_BYTES, TableLayout};
use crate::format::key::Key;
use crate::format::key_type::KeyType;
use crate::format::record::{
    ALIGN_BYTES, PLACE_BITS, RECORD_ALIGN_MAX_BYTES, RECORDS_LEN_MAX_BYTES, VALUE_LEN_MAX_BYTES, record_align_bytes,
    record_len_bytes, records_len_max_bytes,
};
use crate::protocol::native::ResponseHeader;

/// The number of key bytes that are collected before they are hashed.
const SEED_LEN_BYTES: usize = 16 << 10;

/// Writes the records of a table into a file.
pub(super) struct RecordsWriter {
    section: SectionWriter,
    key_type: KeyType,
    form: RecordForm,
    align_bytes: usize,
    /// The maximum total length of the records at `align_bytes` and `place_bits`.
    len_max_bytes: u64,
    place_bits: u32,
    row_count: u64,
    values_len_bytes: u64,
    value_lens: LenCounts,
    /// Each alignment smaller than `align_bytes`, with the total length that the records would have at this alignment.
    at_smaller: Vec<(usize, u64)>,
    seed: XxHash3_64,
    /// Keys that have been collected, but not hashed yet.
    seed_bytes: Vec<u8>,
    /// The first key and the latest key, if keys are bytes.
    ends: Option<(Vec<u8>, Vec<u8>)>,
    /// The buffer for the key and header of a record that does not fit into the section's buffer. This buffer is reused
    /// for the next such record.
    split_head: Vec<u8>,
    /// The groups of a table with the compact layout.
    groups: Option<GroupsWriter>,
    /// What the rows take in the other layout, if their keys allow it.
    other_lens: Option<OtherLens>,
}

/// Facts about the records that a [`RecordsWriter`] has written.
#[derive(Clone, Debug)]
pub(super) struct WrittenRecords {
    pub(super) key_type: KeyType,
    /// Whether each row has the end of a range.
    pub(super) has_ranges: bool,
    pub(super) row_count: u64,
    /// The sum of the lengths of all values.
    pub(super) values_len_bytes: u64,
    pub(super) value_lens: ValueLens,
    pub(super) records_len_bytes: u64,
    /// The alignment of the records.
    pub(super) record_align_bytes: usize,
    /// The alignment that the format requires, at most `record_align_bytes`. If this alignment is less than
    /// `record_align_bytes`, the records must be written again with this alignment.
    pub(super) wanted_align_bytes: usize,
    /// The length of the prefix that all keys share; 0 for numbers.
    pub(super) common_len_bytes: usize,
    /// The hash of all keys. The hash seeds are derived from this hash.
    pub(super) first_seed: u64,
    /// The checksum of each block, computed before the block was written.
    pub(super) block_sums: Vec<U64>,
    /// The groups of a table with the compact layout, whose records are only values.
    pub(super) groups: Option<WrittenGroups>,
    /// What the rows take in the other layout, if their keys allow it.
    pub(super) other_lens: Option<OtherLens>,
}

impl RecordsWriter {
    /// Empties the file, and begins the records section of a table in it. With `has_ranges`, each row has the end of a
    /// range.
    pub(super) fn new(
        file: &File,
        key_type: KeyType,
        has_ranges: bool,
        record_align_bytes: usize,
        threads: usize,
    ) -> io::Result<Self> {
        assert!(record_align_bytes.is_power_of_two());
        assert!((ALIGN_BYTES..=RECORD_ALIGN_MAX_BYTES).contains(&record_align_bytes));
        file.set_len(0)?;
        let smaller = (ALIGN_BYTES.ilog2()..record_align_bytes.ilog2()).map(|bits| (1 << bits, 0));
        let form = RecordForm::new(key_type, has_ranges);
        Ok(RecordsWriter {
            section: SectionWriter::new(file, RECORDS_OFFSET_BYTES, threads)?,
            key_type,
            form,
            align_bytes: record_align_bytes,
            len_max_bytes: records_len_max_bytes(record_align_bytes, PLACE_BITS),
            place_bits: PLACE_BITS,
            row_count: 0,
            values_len_bytes: 0,
            value_lens: LenCounts::new(),
            at_smaller: smaller.collect(),
            seed: XxHash3_64::new(),
            seed_bytes: Vec::with_capacity(SEED_LEN_BYTES),
            ends: None,
            split_head: Vec::new(),
            groups: None,
            other_lens: OtherLens::new(TableLayout::Fast, form),
        })
    }

    /// Begins a table with the compact layout instead. Its keys must be numbers. Its groups are collected in a temporary
    /// file in `temp_dir`.
    pub(super) fn compact(self, temp_dir: &Path) -> io::Result<Self> {
        let groups = Some(GroupsWriter::new(temp_dir, self.form.has_ends)?);
        let other_lens = OtherLens::new(TableLayout::Compact, self.form);
        let len_max_bytes = RECORDS_LEN_MAX_BYTES;
        Ok(RecordsWriter { groups, align_bytes: 1, len_max_bytes, at_smaller: vec![], other_lens, ..self })
    }

    /// Sets the number of bits of a place. Tests use few bits, so that a short section already exceeds the range of
    /// places.
    pub(super) fn with_place_bits(self, place_bits: u32) -> Self {
        RecordsWriter { len_max_bytes: records_len_max_bytes(self.align_bytes, place_bits), place_bits, ..self }
    }

    /// Returns the length of the records added so far.
    pub(super) fn len_bytes(&self) -> u64 {
        self.section.len_bytes()
    }

    pub(super) fn row_count(&self) -> u64 {
        self.row_count
    }

    /// Adds a row. Its key must be of the table's kind, and greater than all earlier keys. In a table of ranges, the row
    /// must have an end that is not less than its key, and its key must be greater than the preceding end.
    ///
    /// # Errors
    /// Returns `InvalidInput` if the value is too long, or if the table cannot store the key or the end. If the record would end beyond the range of places, returns an
    /// error for which [`is_too_long`] returns true. Returns a write error if this row or an earlier row cannot be
    /// written.
    #[inline]
    pub(super) fn push<'k>(&mut self, row_key: impl Into<RowKey<'k>>, value: &[u8]) -> io::Result<()> {
        let row_key = row_key.into();
        if !self.form.fits(row_key) {
            return Err(self.misfit());
        }
        let Some(header) = ResponseHeader::of_value(value.len()) else {
            let error = FormatError::ValueTooLong { len_bytes: value.len() as u64 };
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        };
        if self.groups.is_some() {
            return self.push_value(row_key, value);
        }
        let len_bytes = record_len_bytes(self.form, row_key, value.len(), self.align_bytes);
        if self.section.len_bytes() + len_bytes as u64 > self.len_max_bytes {
            let error = FormatError::RecordsTooLong { len_max_bytes: self.len_max_bytes };
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, error));
        }
        match self.section.room(len_bytes) {
            Some(room) => put_record(room, self.form, row_key, header, value, len_bytes),
            None => {
                // Only a record that spans two writes is assembled outside the write buffer.
                self.split_head.clear();
                let head_len_bytes = self.form.answer_at_bytes(row_key) + size_of_val(&header);
                put_record(&mut self.split_head, self.form, row_key, header, &[], head_len_bytes);
                self.section.push(&self.split_head)?;
                self.section.push(value)?;
                let zeros = [0; RECORD_ALIGN_MAX_BYTES];
                self.section.push(&zeros[..len_bytes - self.split_head.len() - value.len()])?;
            }
        }
        self.count(row_key, value.len());
        // The format requires the smallest alignment that fits, so that the same rows give the same bytes.
        for (align_bytes, all_len_bytes) in &mut self.at_smaller {
            *all_len_bytes += record_len_bytes(self.form, row_key, value.len(), *align_bytes) as u64;
        }
        self.note(row_key.key);
        Ok(())
    }

    /// Implements [`RecordsWriter::push`] for the compact layout.
    fn push_value(&mut self, row_key: RowKey<'_>, value: &[u8]) -> io::Result<()> {
        let (Some(groups), Some(key)) = (&mut self.groups, row_key.key.as_u64()) else { return Err(self.misfit()) };
        if self.section.len_bytes() + value.len() as u64 > self.len_max_bytes {
            let error = FormatError::RecordsTooLong { len_max_bytes: self.len_max_bytes };
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, error));
        }
        let end = row_key.end.and_then(|end| end.as_u64());
        groups.push(GroupRow { key, end, value_len_bytes: value.len() as u64 })?;
        self.section.push(value)?;
        self.count(row_key, value.len());
        Ok(())
    }

    /// Counts a row that was added.
    #[inline]
    fn count(&mut self, row_key: RowKey<'_>, value_len_bytes: usize) {
        self.row_count += 1;
        self.values_len_bytes += value_len_bytes as u64;
        self.value_lens.add(value_len_bytes);
        if let Some(lens) = &mut self.other_lens {
            lens.add(row_key, value_len_bytes);
        }
    }

    /// Returns the error for a row whose key or end has another form than those of the table.
    #[cold]
    fn misfit(&self) -> io::Error {
        let what = "the key or the end of the range does not have the form of the table's keys";
        io::Error::new(io::ErrorKind::InvalidInput, FormatError::Row { row: self.row_count, what })
    }

    /// Ends the section: waits until all records are in the file, and returns facts about them.
    pub(super) fn finish(mut self) -> io::Result<WrittenRecords> {
        let records_len_bytes = self.len_bytes();
        let groups = self.groups.map(GroupsWriter::finish).transpose()?;
        let wanted = record_align_bytes(|align_bytes| {
            let smaller = self.at_smaller.iter().find(|(smaller, _)| *smaller == align_bytes);
            smaller.map_or(records_len_bytes, |(_, len_bytes)| *len_bytes) << (PLACE_BITS - self.place_bits)
        });
        let common = self.ends.map_or(0, |(first, last)| Key::Bytes(&first).common_len_bytes(&Key::Bytes(&last)));
        self.seed.write(&self.seed_bytes);
        self.other_lens.iter_mut().for_each(OtherLens::finish);
        Ok(WrittenRecords {
            key_type: self.key_type,
            has_ranges: self.form.has_ends,
            row_count: self.row_count,
            values_len_bytes: self.values_len_bytes,
            value_lens: self.value_lens.lens(),
            records_len_bytes,
            record_align_bytes: self.align_bytes,
            wanted_align_bytes: wanted.filter(|_| groups.is_none()).unwrap_or(self.align_bytes),
            common_len_bytes: common,
            first_seed: self.seed.finish(),
            block_sums: self.section.finish()?,
            groups,
            other_lens: self.other_lens,
        })
    }

    /// Adds a key to the hash of all keys, and keeps it as the latest key. A number is hashed as 8 bytes. For a byte
    /// key, the length is hashed first, so that the hash depends on where each key ends.
    #[inline]
    fn note(&mut self, key: Key<'_>) {
        match key {
            Key::U64(key) => self.seed_bytes.extend_from_slice(&key.to_le_bytes()),
            Key::Bytes(key) => {
                self.seed_bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
                self.seed_bytes.extend_from_slice(key);
                let (_, last) = self.ends.get_or_insert_with(|| (key.to_vec(), Vec::new()));
                last.clear();
                last.extend_from_slice(key);
            }
        }
        // The hash is fast only for long inputs.
        if self.seed_bytes.len() >= SEED_LEN_BYTES - size_of::<u64>() {
            self.seed.write(&self.seed_bytes);
            self.seed_bytes.clear();
        }
    }
}

/// Appends a record, padded with zeros to `len_bytes`.
#[inline(always)]
fn put_record(
    bytes: &mut Vec<u8>,
    form: RecordForm,
    row_key: RowKey<'_>,
    header: ResponseHeader,
    value: &[u8],
    len_bytes: usize,
) {
    let end = bytes.len() + len_bytes;
    form.write_to(row_key, bytes);
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(end, 0);
}

/// Returns whether the error means that the records section is too long: a place has too few bits for the position of a
/// record. A greater alignment, up to [`RECORD_ALIGN_MAX_BYTES`], can avoid the error.
pub(super) fn is_too_long(error: &io::Error) -> bool {
    let format_error = error.get_ref().and_then(|error| error.downcast_ref());
    matches!(format_error, Some(FormatError::RecordsTooLong { .. }))
}

/// The distribution of value lengths in bytes. Percentiles that are less than 2048 bytes are exact. All other
/// percentiles have three significant digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names say it")]
pub struct ValueLens {
    pub min: u64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p99_9: u64,
    pub max: u64,
}

/// Each length less than this number has its own counter.
const SHORT_LENS: usize = 2048;

/// Counts values by length.
pub(super) struct LenCounts {
    short: Box<[u64]>,
    long: Histogram<u64>,
    long_max: u64,
    long_min: u64,
}

impl LenCounts {
    pub(super) fn new() -> LenCounts {
        let long = Histogram::new_with_bounds(1, VALUE_LEN_MAX_BYTES as u64, 3)
            .expect("the upper bound is at least twice the lower bound");
        LenCounts { short: vec![0; SHORT_LENS].into(), long, long_max: 0, long_min: u64::MAX }
    }

    #[inline]
    pub(super) fn add(&mut self, len_bytes: usize) {
        // Updating the histogram for every row took a tenth of the time in which records are written.
        match self.short.get_mut(len_bytes) {
            Some(count) => *count += 1,
            None => self.add_long(len_bytes as u64),
        }
    }

    #[cold]
    fn add_long(&mut self, len_bytes: u64) {
        self.long.saturating_record(len_bytes);
        self.long_max = self.long_max.max(len_bytes);
        self.long_min = self.long_min.min(len_bytes);
    }

    pub(super) fn lens(mut self) -> ValueLens {
        for (len_bytes, count) in (0..).zip(&self.short) {
            self.long.saturating_record_n(len_bytes, *count);
        }
        let are_short = |count: &u64| *count > 0;
        let short_min = self.short.iter().position(are_short).map_or(u64::MAX, |len_bytes| len_bytes as u64);
        let short_max = self.short.iter().rposition(are_short).map_or(0, |len_bytes| len_bytes as u64);
        let max = short_max.max(self.long_max);
        let min = short_min.min(self.long_min).min(max);
        let at = |quantile| self.long.value_at_quantile(quantile).clamp(min, max);
        ValueLens { min, p50: at(0.5), p90: at(0.9), p99: at(0.99), p99_9: at(0.999), max }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::bake::section::WRITE_LEN_BYTES;
    use crate::format::checksum::{BLOCK_LEN_BYTES, block_sum};
    use crate::format::key::KeyKind;
    use crate::format::record::Record;

    fn write(align_bytes: usize, threads: usize, rows: &[(Key<'_>, Vec<u8>)]) -> (Vec<u8>, WrittenRecords) {
        let file = tempfile::tempfile().unwrap();
        let kind = rows.first().map_or(KeyKind::U64, |(key, _)| key.kind());
        let mut records = RecordsWriter::new(&file, kind.into(), false, align_bytes, threads).unwrap();
        for (key, value) in rows {
            records.push(*key, value).unwrap();
        }
        assert_eq!(records.row_count(), rows.len() as u64);
        let written = records.finish().unwrap();
        let mut bytes = vec![0; written.records_len_bytes as usize];
        file.read_exact_at(&mut bytes, RECORDS_OFFSET_BYTES).unwrap();
        (bytes, written)
    }

    #[test]
    fn records_are_read_as_they_were_written_at_any_alignment_and_by_any_thread() {
        let value = |key: usize| vec![key as u8; if key == 700 { 3 * WRITE_LEN_BYTES } else { key % 4000 }];
        let texts: Vec<String> = (0..1500).map(|key| format!("common {key:020}")).collect();
        let numbers: Vec<_> = (0..1500).map(|key| (Key::from(key as u64), value(key))).collect();
        let bytes: Vec<_> = texts.iter().enumerate().map(|(key, text)| (Key::from(text), value(key))).collect();
        for (rows, common) in [(numbers, 0), (bytes, 7 + 16)] {
            let seed_bytes: Vec<u8> = rows.iter().flat_map(|(key, _)| seed_bytes(*key)).collect();
            for (align_bytes, threads) in [(8, 1), (8, 2), (16, 2), (4096, 1)] {
                let (section, written) = write(align_bytes, threads, &rows);
                let mut at = 0;
                for (key, value) in &rows {
                    let record = Record::at(key.kind().into(), &section, at).unwrap();
                    assert_eq!((record.key(), record.value()), (*key, &value[..]));
                    at += record.len_bytes(align_bytes) as u64;
                }
                assert_eq!((at, written.wanted_align_bytes), (written.records_len_bytes, 8));
                assert_eq!(written.values_len_bytes, rows.iter().map(|(_, value)| value.len() as u64).sum::<u64>());
                assert_eq!(written.common_len_bytes, common);
                assert_eq!(written.first_seed, XxHash3_64::oneshot(&seed_bytes));
                assert_eq!(written.block_sums, section.chunks(BLOCK_LEN_BYTES).map(block_sum).collect::<Vec<_>>());
            }
        }
    }

    fn seed_bytes(key: Key<'_>) -> Vec<u8> {
        match key {
            Key::U64(key) => key.to_le_bytes().into(),
            Key::Bytes(key) => [&(key.len() as u16).to_le_bytes()[..], key].concat(),
        }
    }

    #[test]
    fn records_beyond_the_range_of_places_are_a_distinct_error() {
        let file = tempfile::tempfile().unwrap();
        for align_bytes in [8, 16] {
            let mut records = RecordsWriter::new(&file, KeyType::U64, false, align_bytes, 1).unwrap();
            // Lowers the limit, because a test cannot write 32 GiB.
            records.len_max_bytes = 24 * align_bytes as u64;
            let value = vec![0; 2 * align_bytes];
            let pushed = (0..100_u64).find_map(|key| records.push(Key::U64(key), &value).err()).unwrap();
            assert!(is_too_long(&pushed), "{pushed}");
            // The last record may end exactly at the limit.
            assert_eq!(records.len_bytes(), records.row_count() * (16 + 2 * align_bytes as u64));
            assert_eq!(records.row_count(), if align_bytes == 8 { 6 } else { 8 });
        }
        let mut records = RecordsWriter::new(&file, KeyType::U64, false, 8, 1).unwrap();
        assert!(!is_too_long(&records.push(Key::U64(1), &vec![0; (1 << 30) + 1]).unwrap_err()));
        assert!(!is_too_long(&io::Error::other("full")));
    }

    #[test]
    fn percentiles_are_between_the_shortest_and_the_longest_length() {
        let lens = |all: &[u64]| {
            let mut counts = LenCounts::new();
            all.iter().for_each(|len_bytes| counts.add(*len_bytes as usize));
            counts.lens()
        };
        assert_eq!(lens(&[]), ValueLens::default());
        assert_eq!(lens(&[0]), ValueLens::default());
        let one = 1_000_003;
        assert_eq!(lens(&[one]), ValueLens { min: one, p50: one, p90: one, p99: one, p99_9: one, max: one });
        let all: Vec<u64> = (1..=1000).collect();
        assert_eq!(lens(&all), ValueLens { min: 1, p50: 500, p90: 900, p99: 990, p99_9: 999, max: 1000 });
        let longest = VALUE_LEN_MAX_BYTES as u64;
        assert_eq!(
            lens(&[0, longest]),
            ValueLens { p50: 0, p90: longest, p99: longest, p99_9: longest, min: 0, max: longest }
        );
    }
}
