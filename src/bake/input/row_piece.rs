//! Consecutive rows that the caller adds from memory.

use twox_hash::XxHash3_128;

use crate::format::key::Key;

/// Receives consecutive rows from the caller of [`Input::rows`](crate::bake::Input::rows).
pub struct RowPiece {
    /// The bytes of all keys and values, one after another.
    bytes: Vec<u8>,
    /// For each row, the offsets in `bytes` at which the key and the value end.
    ends: Vec<(usize, usize)>,
    wanted_bytes: usize,
}

impl RowPiece {
    pub(in crate::bake) fn new(mut buffer: Vec<u8>, wanted_bytes: usize) -> Self {
        buffer.clear();
        RowPiece { bytes: buffer, ends: Vec::new(), wanted_bytes }
    }

    /// Adds a row. A number is stored as decimal text. The bake checks keys and values later.
    pub fn push<'k>(&mut self, key: impl Into<Key<'k>>, value: impl AsRef<[u8]>) {
        match key.into() {
            Key::U64(key) => self.bytes.extend_from_slice(itoa::Buffer::new().format(key).as_bytes()),
            Key::Bytes(key) => self.bytes.extend_from_slice(key),
        }
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value.as_ref());
        self.ends.push((key_end, self.bytes.len()));
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether the piece has no rows.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns whether the piece has reached the recommended size. A full piece still accepts rows, but then takes more
    /// memory than recommended.
    pub fn is_full(&self) -> bool {
        self.len_bytes() >= self.wanted_bytes
    }

    /// Returns the approximate memory that the rows take.
    pub(in crate::bake) fn len_bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&self.ends[..])
    }

    /// Returns the length of all keys and values.
    pub(in crate::bake) fn content_len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the key and the value of each row.
    pub(in crate::bake) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(_, value_end)| *value_end));
        starts
            .zip(&self.ends)
            .map(|(start, &(key_end, value_end))| (&self.bytes[start..key_end], &self.bytes[key_end..value_end]))
    }

    /// Adds the rows to a digest. The lengths of keys and values are part of the digest, so that the digest depends on
    /// where each key and each value ends.
    pub(in crate::bake) fn digest_into(&self, hasher: &mut XxHash3_128) {
        for (key, value) in self.iter() {
            for bytes in [key, value] {
                hasher.write(&(bytes.len() as u64).to_le_bytes());
                hasher.write(bytes);
            }
        }
    }

    pub(in crate::bake) fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }
}
