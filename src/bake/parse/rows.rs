//! Rows that the caller has in memory.
//!
//! In: keys and values, of any bytes. Out: the same, piece by piece: nothing is
//! quoted, and nothing is looked for in them. Rows are counted from 1.

use twox_hash::XxHash3_128;

use super::{RawRow, RowSink};
use crate::bake::BakeError;
use crate::format::key::Key;

/// Some of the rows of [`Input::rows`](crate::bake::Input::rows).
pub struct RowPiece {
    first_row: u64,
    /// Keys and values, side by side.
    bytes: Vec<u8>,
    /// Where each key and each value ends.
    ends: Vec<(usize, usize)>,
    wanted_bytes: usize,
}

impl RowPiece {
    pub(in crate::bake) fn new(first_row: u64, mut bytes: Vec<u8>, wanted_bytes: usize) -> Self {
        bytes.clear();
        RowPiece { first_row, bytes, ends: Vec::new(), wanted_bytes }
    }

    /// Adds a row. A number as key is its decimal; what a table takes as keys and
    /// values is looked at later.
    pub fn push<'k>(&mut self, key: impl Into<Key<'k>>, value: impl AsRef<[u8]>) {
        match key.into() {
            Key::U64(key) => self.bytes.extend_from_slice(itoa::Buffer::new().format(key).as_bytes()),
            Key::Bytes(key) => self.bytes.extend_from_slice(key),
        }
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value.as_ref());
        self.ends.push((key_end, self.bytes.len()));
    }

    /// How many rows it has.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether it has no row.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Whether it is as large as pieces are. It still takes rows, and memory for them.
    pub fn is_full(&self) -> bool {
        self.len_bytes() >= self.wanted_bytes
    }

    pub(in crate::bake) fn first_row(&self) -> u64 {
        self.first_row
    }

    /// What the rows take up, more or less.
    pub(in crate::bake) fn len_bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&self.ends[..])
    }

    /// How many bytes its keys and values have.
    pub(in crate::bake) fn content_len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds the rows to a digest, so that it tells where each key and value ends.
    pub(in crate::bake) fn digest_into(&self, hasher: &mut XxHash3_128) {
        let mut start = 0;
        for &(key_end, value_end) in &self.ends {
            for end in [key_end, value_end] {
                hasher.write(&((end - start) as u64).to_le_bytes());
                hasher.write(&self.bytes[start..end]);
                start = end;
            }
        }
    }

    pub(in crate::bake) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub(in crate::bake) fn parse(&self, sink: &mut impl RowSink) -> Result<(), BakeError> {
        let mut start = 0;
        for (line, &(key_end, value_end)) in (self.first_row..).zip(&self.ends) {
            let (key, value) = (&self.bytes[start..key_end], &self.bytes[key_end..value_end]);
            sink.row(&RawRow { line, key, value, delete: None, text: b"" })?;
            start = value_end;
        }
        Ok(())
    }
}
