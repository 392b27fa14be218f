//! Walks over records that arrive in pieces.
//!
//! In: the bytes of a records section, in pieces of any length. Out: each row's key and the offset of its record. The
//! walk checks that every record is complete, that its key is greater than the previous key and the end of the previous
//! range, and that its padding is zero. Values are skipped, so they need not fit into memory.

use super::FinishError;
use crate::format::FormatError;
use crate::format::form::{RecordForm, RowKey, order_fault};
use crate::format::key::Key;
use crate::format::record::{HEAD_LEN_MAX_BYTES, VALUE_LEN_MAX_BYTES, record_head, record_len_bytes};

/// A row that a [`Walk`] has reached.
pub(super) struct WalkedRow<'a> {
    pub(super) key: Key<'a>,
    /// The record's offset in the section.
    pub(super) offset_bytes: u64,
}

/// A walk over the records of a section. The walk can stop and continue at any byte.
pub(super) struct Walk {
    form: RecordForm,
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
    /// A copy of the last key in the earlier pieces, and of its end, encoded as in a record.
    previous: Vec<u8>,
}

impl Walk {
    pub(super) fn new(form: RecordForm, align_bytes: usize, row_count: u64, records_len_bytes: u64) -> Walk {
        Walk {
            form,
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
        let mut previous = self.form.read(&stored).map(|(row_key, _)| row_key);
        loop {
            bytes = self.pass_value(bytes).map_err(FinishError::ReadBack)?;
            if bytes.is_empty() {
                break;
            }
            if head.is_empty()
                && let Some((row_key, whole)) = record_head(self.form, bytes)
            {
                passed(self.pass_head(whole, row_key, previous).map_err(FinishError::ReadBack)?)?;
                previous = Some(row_key);
                bytes = &bytes[whole.len()..];
                continue;
            }
            let earlier_len_bytes = head.len();
            head.extend_from_slice(&bytes[..bytes.len().min(HEAD_LEN_MAX_BYTES)]);
            // If the head is still incomplete, it has all bytes of this piece.
            let Some((row_key, whole)) = record_head(self.form, &head) else { break };
            passed(self.pass_head(whole, row_key, previous).map_err(FinishError::ReadBack)?)?;
            bytes = &bytes[whole.len() - earlier_len_bytes..];
            stored.clear();
            stored.extend_from_slice(whole);
            head.clear();
            previous = self.form.read(&stored).map(|(row_key, _)| row_key);
        }
        let mut record = Vec::new();
        if let Some(row_key) = previous {
            self.form.write_to(row_key, &mut record);
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
        row_key: RowKey<'a>,
        previous: Option<RowKey<'_>>,
    ) -> Result<WalkedRow<'a>, FormatError> {
        if self.row == self.row_count {
            return Err(self.fault("there are records beyond the last row"));
        }
        let header = head.last_chunk().map_or(u64::MAX, |header| u64::from_be_bytes(*header));
        if header > VALUE_LEN_MAX_BYTES as u64 {
            return Err(self.fault("the record is missing or malformed"));
        }
        let value_len_bytes = header as usize;
        let len_bytes = record_len_bytes(self.form, row_key, value_len_bytes, self.align_bytes);
        if self.next_bytes + len_bytes as u64 > self.records_len_bytes {
            return Err(self.fault("the record is missing or malformed"));
        }
        if let Some(found) = order_fault(previous, row_key) {
            return Err(self.fault(found.what()));
        }
        if !self.form.is_padded_with_zeros(row_key, head) {
            return Err(self.fault("the padding is missing or not zero"));
        }
        let passed = WalkedRow { key: row_key.key, offset_bytes: self.next_bytes };
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
    use crate::format::form::KeyForm;
    use crate::format::key::KeyKind;
    use crate::protocol::native::ResponseHeader;
    use zerocopy::IntoBytes;

    fn records(form: RecordForm, keys: &[RowKey<'_>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (row, key) in keys.iter().enumerate() {
            form.write_to(*key, &mut bytes);
            bytes.extend_from_slice(ResponseHeader::of_value(row * 3).unwrap().as_bytes());
            bytes.resize((bytes.len() + row * 3).next_multiple_of(8), 0);
        }
        bytes
    }

    /// Walks over pieces of `piece` bytes, and returns the key and offset of each row.
    fn walk(form: RecordForm, rows: u64, bytes: &[u8], piece: usize) -> Result<Vec<(String, u64)>, FormatError> {
        let mut walk = Walk::new(form, 8, rows, bytes.len() as u64);
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

    /// Returns the rows of a table with these keys, and of a table of ranges that begin and end with two of them.
    fn forms<'k>(keys: KeyForm, all: &[Key<'k>]) -> [(RecordForm, Vec<RowKey<'k>>); 2] {
        let ranges = all.chunks_exact(2).map(|pair| RowKey { key: pair[0], end: Some(pair[1]) });
        [
            (RecordForm { keys, has_ends: false }, all.iter().map(|key| (*key).into()).collect()),
            (RecordForm { keys, has_ends: true }, ranges.collect()),
        ]
    }

    #[test]
    fn pieces_of_any_length_give_the_same_rows() {
        let texts: Vec<String> = (0..30).map(|row| format!("{row:03}{}", "k".repeat(row))).collect();
        let texts: Vec<Key<'_>> = texts.iter().map(Key::from).collect();
        let numbers: Vec<Key<'_>> = (0..30).map(|row| Key::U64(row * row)).collect();
        let fixed: Vec<[u8; 16]> = (0..30_u128).map(|row| (row << 100 | row).to_be_bytes()).collect();
        let fixed: Vec<Key<'_>> = fixed.iter().map(Key::from).collect();
        let all = [(KeyForm::Bytes, texts), (KeyForm::U64, numbers), (KeyForm::Fixed, fixed)];
        for (form, keys) in all.iter().flat_map(|(keys, all)| forms(*keys, all)) {
            let bytes = records(form, &keys);
            let rows = keys.len() as u64;
            let all = walk(form, rows, &bytes, usize::MAX).unwrap();
            assert!(keys.iter().map(|row| row.key.to_string()).eq(all.iter().map(|(key, _)| key.clone())));
            for piece in 1..200 {
                assert_eq!(walk(form, rows, &bytes, piece).as_ref(), Ok(&all), "pieces of {piece} bytes");
            }
            for piece in [1, 7, 64, usize::MAX] {
                let row = |row, what| Err(FormatError::Row { row, what });
                assert_eq!(walk(form, rows - 1, &bytes, piece), row(rows - 1, "there are records beyond the last row"));
                assert_eq!(walk(form, rows + 1, &bytes, piece), row(rows, "the record is missing or malformed"));
                assert_eq!(
                    walk(form, rows, &bytes[..bytes.len() - 8], piece),
                    row(rows - 1, "the record is missing or malformed")
                );
                // The last byte of the last row is padding.
                let mut damaged = bytes.clone();
                *damaged.last_mut().unwrap() = 1;
                assert_eq!(walk(form, rows, &damaged, piece), row(rows - 1, "the padding is missing or not zero"));
            }
        }
    }

    #[test]
    fn rows_that_are_out_of_order_are_rejected_in_pieces_of_any_length() {
        let row = |key, end| RowKey { key, end: Some(end) };
        let [five, six, seven] = [5, 6, 7].map(Key::U64);
        let [a, b, c] = ["a", "b", "c"].map(Key::from);
        let not_greater = "the key is not greater than the preceding key";
        let cases: [([RowKey<'_>; 2], &str); 8] = [
            ([five.into(), five.into()], not_greater),
            ([b.into(), a.into()], not_greater),
            ([row(five, six), row(five, seven)], not_greater),
            ([row(a, b), row(a, c)], not_greater),
            ([row(five, six), row(seven, six)], "the range ends before it begins"),
            ([row(a, a), row(c, b)], "the range ends before it begins"),
            ([row(five, six), row(six, seven)], "the range begins before the preceding range ends"),
            ([row(a, c), row(b, c)], "the range begins before the preceding range ends"),
        ];
        for (keys, what) in cases {
            let form = RecordForm { has_ends: keys[0].end.is_some(), ..keys[0].key.kind().into() };
            for piece in [1, 8, 16, 24, 100] {
                let rejected = walk(form, 2, &records(form, &keys), piece);
                assert_eq!(rejected, Err(FormatError::Row { row: 1, what }));
            }
        }
        let what = "the key is empty";
        assert_eq!(walk(KeyKind::Bytes.into(), 1, &[0; 16], 3), Err(FormatError::Row { row: 0, what }));
    }

    #[test]
    fn the_padding_of_a_key_and_of_an_end_is_zero() {
        let form = RecordForm { keys: KeyForm::Bytes, has_ends: true };
        let bytes = records(form, &[RowKey { key: Key::from("a"), end: Some(Key::from("bc")) }]);
        assert_eq!(bytes.len(), 24);
        for at in (3..8).chain(12..16) {
            let mut damaged = bytes.clone();
            damaged[at] = 1;
            let what = "the padding is missing or not zero";
            assert_eq!(walk(form, 1, &damaged, 5), Err(FormatError::Row { row: 0, what }), "byte {at}");
        }
    }
}
