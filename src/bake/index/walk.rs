//! Walks over records that arrive in pieces.
//!
//! In: the bytes of a records section, in pieces of any length. Out: each row's key and the offset of its record. The
//! walk checks that every record is complete, that its key is greater than the previous key, and that its padding is
//! zero. Values are skipped, so they need not fit into memory.

use super::FinishError;
use crate::format::FormatError;
use crate::format::key::{Key, KeyKind};
use crate::format::record::{HEAD_LEN_MAX_BYTES, VALUE_LEN_MAX_BYTES, record_head, record_len_bytes};

/// A row that a [`Walk`] has reached.
pub(super) struct WalkedRow<'a> {
    pub(super) key: Key<'a>,
    /// The record's offset in the section.
    pub(super) offset_bytes: u64,
}

/// A walk over the records of a section. The walk can stop and continue at any byte.
pub(super) struct Walk {
    key_kind: KeyKind,
    align_bytes: usize,
    row_count: u64,
    records_len_bytes: u64,
    /// The number of rows reached.
    row: u64,
    /// The offset of the next record.
    next_bytes: u64,
    /// The number of bytes of the current record's value that are still to come.
    value_left_bytes: usize,
    /// The number of bytes of the current record's padding that are still to come.
    zeros_left_bytes: usize,
    /// If the last piece ended inside a record's key or response header: the bytes of this record so far. Otherwise
    /// empty.
    head: Vec<u8>,
    /// A copy of the last key in the earlier pieces, encoded as in a record.
    previous: Vec<u8>,
}

impl Walk {
    pub(super) fn new(key_kind: KeyKind, align_bytes: usize, row_count: u64, records_len_bytes: u64) -> Walk {
        Walk {
            key_kind,
            align_bytes,
            row_count,
            records_len_bytes,
            row: 0,
            next_bytes: 0,
            value_left_bytes: 0,
            zeros_left_bytes: 0,
            head: Vec::new(),
            previous: Vec::new(),
        }
    }

    /// Walks over the next bytes of the section, and calls `passed` for each row. Stops when the bytes end or `passed`
    /// returns an error.
    pub(super) fn pass(
        &mut self,
        mut bytes: &[u8],
        mut passed: impl FnMut(WalkedRow<'_>) -> Result<(), FinishError>,
    ) -> Result<(), FinishError> {
        let (mut head, mut stored) = (std::mem::take(&mut self.head), std::mem::take(&mut self.previous));
        let mut previous = Key::from_record(self.key_kind, &stored).map(|(key, _)| key);
        loop {
            bytes = self.pass_value(bytes).map_err(FinishError::ReadBack)?;
            if bytes.is_empty() {
                break;
            }
            if head.is_empty()
                && let Some((key, whole)) = record_head(self.key_kind, bytes)
            {
                passed(self.pass_head(whole, key, previous).map_err(FinishError::ReadBack)?)?;
                previous = Some(key);
                bytes = &bytes[whole.len()..];
                continue;
            }
            let earlier_len_bytes = head.len();
            head.extend_from_slice(&bytes[..bytes.len().min(HEAD_LEN_MAX_BYTES)]);
            // If the head is still incomplete, it has all bytes of this piece.
            let Some((key, whole)) = record_head(self.key_kind, &head) else { break };
            passed(self.pass_head(whole, key, previous).map_err(FinishError::ReadBack)?)?;
            bytes = &bytes[whole.len() - earlier_len_bytes..];
            stored.clear();
            stored.extend_from_slice(whole);
            head.clear();
            previous = Key::from_record(self.key_kind, &stored).map(|(key, _)| key);
        }
        let mut record = Vec::new();
        if let Some(key) = previous {
            key.write_to(&mut record);
        }
        (self.head, self.previous) = (head, record);
        Ok(())
    }

    pub(super) fn row(&self) -> u64 {
        self.row
    }

    /// Checks that the section ended exactly after the last row.
    pub(super) fn finish(self) -> Result<(), FinishError> {
        let is_whole = self.value_left_bytes == 0 && self.zeros_left_bytes == 0 && self.head.is_empty();
        match is_whole && self.row == self.row_count && self.next_bytes == self.records_len_bytes {
            true => Ok(()),
            false => Err(FinishError::ReadBack(self.fault("the record is missing or malformed"))),
        }
    }

    fn fault(&self, what: &'static str) -> FormatError {
        FormatError::Row { row: self.row, what }
    }

    /// Skips the remaining bytes of a value and of its padding. Returns the bytes that follow.
    #[inline(always)]
    fn pass_value<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], FormatError> {
        let (value, bytes) = bytes.split_at(self.value_left_bytes.min(bytes.len()));
        self.value_left_bytes -= value.len();
        let (zeros, bytes) = bytes.split_at(self.zeros_left_bytes.min(bytes.len()));
        self.zeros_left_bytes -= zeros.len();
        if zeros.iter().any(|byte| *byte != 0) {
            let row = self.row - 1;
            return Err(FormatError::Row { row, what: "the padding is missing or not zero" });
        }
        Ok(bytes)
    }

    /// Checks the key and response header of the next record.
    #[inline(always)]
    fn pass_head<'a>(
        &mut self,
        head: &[u8],
        key: Key<'a>,
        previous: Option<Key<'_>>,
    ) -> Result<WalkedRow<'a>, FormatError> {
        if self.row == self.row_count {
            return Err(self.fault("there are records beyond the last row"));
        }
        let header = head.last_chunk().map_or(u64::MAX, |header| u64::from_be_bytes(*header));
        if header > VALUE_LEN_MAX_BYTES as u64 {
            return Err(self.fault("the record is missing or malformed"));
        }
        let value_len_bytes = header as usize;
        let len_bytes = record_len_bytes(key, value_len_bytes, self.align_bytes);
        if self.next_bytes + len_bytes as u64 > self.records_len_bytes {
            return Err(self.fault("the record is missing or malformed"));
        }
        if key == Key::Bytes(b"") {
            return Err(self.fault("the key is empty"));
        }
        if previous.is_some_and(|previous| previous >= key) {
            return Err(self.fault("the key is not greater than the preceding key"));
        }
        if head[key.unpadded_len_bytes()..key.prefix_len_bytes()].iter().any(|byte| *byte != 0) {
            return Err(self.fault("the padding is missing or not zero"));
        }
        let passed = WalkedRow { key, offset_bytes: self.next_bytes };
        self.value_left_bytes = value_len_bytes;
        self.zeros_left_bytes = len_bytes - head.len() - value_len_bytes;
        self.next_bytes += len_bytes as u64;
        self.row += 1;
        Ok(passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::native::ResponseHeader;
    use zerocopy::IntoBytes;

    fn records(keys: &[Key<'_>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (row, key) in keys.iter().enumerate() {
            key.write_to(&mut bytes);
            bytes.extend_from_slice(ResponseHeader::of_value(row * 3).unwrap().as_bytes());
            bytes.resize((bytes.len() + row * 3).next_multiple_of(8), 0);
        }
        bytes
    }

    /// Walks over pieces of `piece` bytes, and returns the key and offset of each row.
    fn walk(kind: KeyKind, rows: u64, bytes: &[u8], piece: usize) -> Result<Vec<(String, u64)>, FormatError> {
        let mut walk = Walk::new(kind, 8, rows, bytes.len() as u64);
        let mut all = Vec::new();
        let mut pass = |piece: &[u8]| {
            walk.pass(piece, |passed| {
                all.push((passed.key.to_string(), passed.offset_bytes));
                Ok(())
            })
        };
        match bytes.chunks(piece).try_for_each(&mut pass).and_then(|()| walk.finish()) {
            Ok(()) => Ok(all),
            Err(FinishError::ReadBack(error)) => Err(error),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn pieces_of_any_length_give_the_same_rows() {
        let texts: Vec<String> = (0..30).map(|row| format!("{row:03}{}", "k".repeat(row))).collect();
        let texts: Vec<Key<'_>> = texts.iter().map(Key::from).collect();
        let numbers: Vec<Key<'_>> = (0..30).map(|row| Key::U64(row * row)).collect();
        for keys in [texts, numbers] {
            let bytes = records(&keys);
            let kind = keys[0].kind();
            let all = walk(kind, 30, &bytes, usize::MAX).unwrap();
            assert!(keys.iter().map(Key::to_string).eq(all.iter().map(|(key, _)| key.clone())));
            for piece in 1..200 {
                assert_eq!(walk(kind, 30, &bytes, piece).as_ref(), Ok(&all), "pieces of {piece} bytes");
            }
            for piece in [1, 7, 64, usize::MAX] {
                let row = |row, what| Err(FormatError::Row { row, what });
                assert_eq!(walk(kind, 29, &bytes, piece), row(29, "there are records beyond the last row"));
                assert_eq!(walk(kind, 31, &bytes, piece), row(30, "the record is missing or malformed"));
                assert_eq!(
                    walk(kind, 30, &bytes[..bytes.len() - 8], piece),
                    row(29, "the record is missing or malformed")
                );
                // The last byte of row 29 is padding.
                let mut damaged = bytes.clone();
                *damaged.last_mut().unwrap() = 1;
                assert_eq!(walk(kind, 30, &damaged, piece), row(29, "the padding is missing or not zero"));
            }
        }
    }

    #[test]
    fn keys_that_do_not_ascend_are_rejected_in_pieces_of_any_length() {
        for keys in [[Key::U64(5), Key::U64(5)], [Key::from("b"), Key::from("a")]] {
            for piece in [1, 8, 16, 24, 100] {
                let rejected = walk(keys[0].kind(), 2, &records(&keys), piece);
                let what = "the key is not greater than the preceding key";
                assert_eq!(rejected, Err(FormatError::Row { row: 1, what }));
            }
        }
        let what = "the key is empty";
        assert_eq!(walk(KeyKind::Bytes, 1, &[0; 16], 3), Err(FormatError::Row { row: 0, what }));
    }
}
