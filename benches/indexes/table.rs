//! The table that the compared indexes search: sorted keys, and records as described in `docs/FORMAT.md`.

use zero_kv::format::record::{ALIGN_BYTES, Record, record_len_bytes};
use zero_kv::protocol::native::ResponseHeader;
use zero_kv::{Key, KeyKind};
use zerocopy::IntoBytes;

use crate::indexes::memory::{LINE_LEN_BYTES, prefetch};
use crate::support::push_value;

const LINE_PLACES: usize = LINE_LEN_BYTES / size_of::<u32>();

/// A cache line with the places of records. A place is a record's offset divided by 8.
#[derive(Clone)]
#[repr(align(64))]
struct PlaceLine([u32; LINE_PLACES]);

pub(crate) struct Table {
    pub(crate) keys: Vec<u64>,
    places: Vec<PlaceLine>,
    records: Vec<u8>,
    record_len_bytes: usize,
}

impl Table {
    pub(crate) fn new(keys: Vec<u64>, value_len_bytes: usize) -> Table {
        let header = ResponseHeader::of_value(value_len_bytes).expect("valid length");
        let record_len_bytes = record_len_bytes(KeyKind::U64.into(), Key::U64(0).into(), value_len_bytes, ALIGN_BYTES);
        let mut records = Vec::with_capacity(keys.len() * record_len_bytes);
        let mut places = vec![PlaceLine([0; LINE_PLACES]); keys.len().div_ceil(LINE_PLACES)];
        for (row, key) in keys.iter().enumerate() {
            let place = records.len() / ALIGN_BYTES;
            places[row / LINE_PLACES].0[row % LINE_PLACES] = u32::try_from(place).expect("at most 32 GiB of records");
            records.extend_from_slice(&key.to_le_bytes());
            records.extend_from_slice(header.as_bytes());
            push_value(&mut records, *key, value_len_bytes);
            records.resize((row + 1) * record_len_bytes, 0);
        }
        Table { keys, places, records, record_len_bytes }
    }

    /// Returns the length of the records and places, without the sorted keys.
    pub(crate) fn len_bytes(&self) -> usize {
        size_of_val(&*self.places) + self.records.len()
    }

    /// Returns the offset of a row's record, or any offset if there is no such row.
    #[inline(always)]
    pub(crate) fn offset_bytes(&self, row: usize) -> usize {
        let line = self.places.get(row / LINE_PLACES);
        line.map_or(usize::MAX, |line| line.0[row % LINE_PLACES] as usize * ALIGN_BYTES)
    }

    /// Returns the value of the record at an offset, if the record has this key.
    #[inline(always)]
    pub(crate) fn value(&self, key: u64, offset_bytes: usize) -> Option<&[u8]> {
        let record = Record::at(KeyKind::U64.into(), &self.records, offset_bytes as u64)?;
        (record.key() == key).then(|| record.value())
    }

    /// Returns the value of the record at an offset, if the record's key is not greater than `key`.
    #[inline(always)]
    pub(crate) fn value_up_to(&self, key: u64, offset_bytes: usize) -> Option<&[u8]> {
        let record = Record::at(KeyKind::U64.into(), &self.records, offset_bytes as u64)?;
        (record.key() <= Key::U64(key)).then(|| record.value())
    }

    #[inline(always)]
    pub(crate) fn prefetch_place(&self, row: usize) {
        if let Some(line) = self.places.get(row / LINE_PLACES) {
            prefetch(line);
        }
    }

    #[inline(always)]
    pub(crate) fn prefetch_record(&self, offset_bytes: usize) {
        let record = self.records.get(offset_bytes..).and_then(|rest| rest.get(..self.record_len_bytes));
        let Some(record) = record else { return };
        for line in record.chunks(LINE_LEN_BYTES) {
            prefetch(&line[0]);
        }
        prefetch(&record[record.len() - 1]);
    }
}
