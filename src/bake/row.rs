//! A row of an input, as a parser emits it, and the sink that parses its key.
//!
//! Reasons and evidence: `docs/decisions/bake-rows.md`.

use super::bad_rows::{BadRow, BadRows};
use super::error::{BakeError, RowFault, RowPlace};
use super::keys::KeyParser;
use super::options::Options;
use super::ranges::RangeParser;
use super::sort::parsed_piece::ParsedPiece;
use crate::slots::slot_of_typed;

/// A row of an input: its fields, before the key is parsed.
pub(super) struct InputRow<'a> {
    /// The line on which the row begins, counted from 1. In formats without lines, this is the row's number, counted
    /// from 1.
    pub(super) line: u64,
    pub(super) key: &'a [u8],
    /// The field in the column with the ends of ranges, if there is such a column.
    pub(super) end: Option<&'a [u8]>,
    /// The value, which is empty if the row has no value. Only a row that removes its key can lack a value.
    pub(super) value: &'a [u8],
    /// The field in the delete column, if there is a delete column and the field is not null.
    pub(super) delete: Option<&'a [u8]>,
    /// The row's text, without its line end. In formats that are not text, this field is empty.
    pub(super) text: &'a [u8],
}

/// Receives the rows that a parser finds.
pub(super) trait RowSink {
    fn row(&mut self, row: &InputRow<'_>) -> Result<(), BakeError>;

    /// Receives a bad row. `text` is the row's text without its line end, or empty in formats that are not text.
    fn bad(&mut self, line: u64, fault: RowFault, text: &[u8]) -> Result<(), BakeError>;

    /// Notes that a quoted field of the row on this line has lines that look like rows.
    fn rows_in_quotes(&mut self, line: u64);
}

/// Returns the value of a row, or an empty value if the row has no value and removes its key. Any other row without a
/// value is rejected with the fault `missing`. `delete` is the row's field in the delete column, if there is one.
pub(super) fn value_unless_removed<'a>(
    value: Option<&'a [u8]>,
    delete: Option<&[u8]>,
    missing: impl FnOnce() -> RowFault,
) -> Result<&'a [u8], RowFault> {
    match value {
        None if is_removed(delete) => Ok(b""),
        value => value.ok_or_else(missing),
    }
}

/// Returns whether a row removes its key. `delete` is the row's field in the delete column, if there is one.
pub(super) fn is_removed(delete: Option<&[u8]>) -> bool {
    delete.and_then(parse_deletion) == Some(true)
}

/// Parses a field of the delete column. Returns whether the row removes its key. Returns `None` if the field is not a
/// valid Boolean.
pub(super) fn parse_deletion(text: &[u8]) -> Option<bool> {
    let is_any = |words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word.as_bytes()));
    match text {
        _ if is_any(&["1", "true", "t", "yes", "y"]) => Some(true),
        _ if is_any(&["", "0", "false", "f", "no", "n"]) => Some(false),
        _ => None,
    }
}

/// Parses the keys of one piece's rows, and collects these rows.
pub(super) struct Filler<'f> {
    options: &'f Options,
    keys: KeyParser,
    /// Parses the keys of a table of ranges instead of `keys`.
    ranges: Option<RangeParser>,
    input: &'f str,
    piece: &'f mut ParsedPiece,
    /// The place of the next row.
    next: RowPlace,
}

impl<'f> Filler<'f> {
    pub(super) fn new(options: &'f Options, input: &'f str, piece: &'f mut ParsedPiece, first: RowPlace) -> Self {
        let (keys, ranges) = (KeyParser::new(options.keys), RangeParser::new(options));
        Filler { options, keys, ranges, input, piece, next: first }
    }

    #[inline]
    fn is_deleted(&self, row: &InputRow<'_>) -> Result<bool, RowFault> {
        let is_marked = self.options.delete_marker.as_deref().is_some_and(|marker| marker == row.value);
        match row.delete {
            Some(word) => Ok(parse_deletion(word).ok_or_else(|| RowFault::deletion(word))? || is_marked),
            None => Ok(is_marked),
        }
    }
}

impl RowSink for Filler<'_> {
    #[inline]
    fn row(&mut self, row: &InputRow<'_>) -> Result<(), BakeError> {
        let place = std::mem::take(&mut self.next);
        let pushed = self.is_deleted(row).and_then(|deleted| {
            let key_type = self.keys.key_type();
            let key = match &mut self.ranges {
                None => self.keys.parse(row.key, place)?,
                Some(ranges) => ranges.parse(row.key, row.end, place)?,
            };
            let value = if deleted { &[] } else { row.value };
            match self.options.slots {
                Some(slots) if !slots.has(slot_of_typed(key_type, key)) => Ok(()),
                _ => self.piece.push(key, value, row.line, deleted),
            }
        });
        match pushed {
            Ok(()) => Ok(()),
            Err(fault) => self.bad(row.line, fault, row.text),
        }
    }

    fn bad(&mut self, line: u64, fault: RowFault, text: &[u8]) -> Result<(), BakeError> {
        self.next = RowPlace::default();
        match self.options.bad_rows {
            BadRows::Refuse => Err(BakeError::Row { input: self.input.to_owned(), line, fault }),
            // The first bad row beyond the limit ends the bake, so later bad rows are not kept.
            BadRows::Skip { max, .. } if self.piece.bad.len() as u64 > max => Ok(()),
            BadRows::Skip { .. } => {
                self.piece.bad.push(BadRow { input: self.input.to_owned(), line, fault, text: text.to_vec() });
                Ok(())
            }
        }
    }

    fn rows_in_quotes(&mut self, line: u64) {
        self.piece.add_row_in_quotes(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delete_field_means_yes_or_no() {
        for yes in ["1", "true", "TRUE", "t", "Yes", "y"] {
            assert_eq!(parse_deletion(yes.as_bytes()), Some(true), "{yes}");
        }
        for no in ["", "0", "False", "f", "no", "N"] {
            assert_eq!(parse_deletion(no.as_bytes()), Some(false), "{no}");
        }
        for neither in ["2", " ", "tru", "null", "-"] {
            assert_eq!(parse_deletion(neither.as_bytes()), None, "{neither}");
        }
    }
}
