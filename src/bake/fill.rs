//! Parses the keys of a piece's rows, and collects these rows in a [`ParsedPiece`].

use super::bad_rows::{BadRow, BadRows};
use super::error::BakeError;
use super::keys;
use super::options::Options;
use super::row::{InputRow, RowSink, parse_deletion};
use super::row_fault::RowFault;
use super::sort::parsed_piece::ParsedPiece;
use crate::format::key::KeyKind;

/// Parses the keys of one piece's rows, and collects these rows.
pub(super) struct Filler<'f> {
    options: &'f Options,
    kind: KeyKind,
    input: &'f str,
    piece: &'f mut ParsedPiece,
    /// Whether the next row could be a header that the options do not declare.
    may_be_header: bool,
}

impl<'f> Filler<'f> {
    pub(super) fn new(options: &'f Options, input: &'f str, piece: &'f mut ParsedPiece, may_be_header: bool) -> Self {
        Filler { options, kind: options.keys.kind(), input, piece, may_be_header }
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
        let may_be_header = std::mem::take(&mut self.may_be_header);
        let pushed = self.is_deleted(row).and_then(|deleted| {
            let key = keys::parse(self.kind, row.key, may_be_header)?;
            let value = if deleted { &[] } else { row.value };
            match self.options.slots {
                Some(slots) if !slots.has_key(key) => Ok(()),
                _ => self.piece.push(key, value, row.line, deleted),
            }
        });
        match pushed {
            Ok(()) => Ok(()),
            Err(fault) => self.bad(row.line, fault, row.text),
        }
    }

    fn bad(&mut self, line: u64, fault: RowFault, text: &[u8]) -> Result<(), BakeError> {
        self.may_be_header = false;
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
}
