//! Rows as they stand in an input into rows of the table.

use super::error::RowFault;
use super::parse::{RawRow, RowSink, is_deletion};
use super::sort::batch::{BadRow, Batch};
use super::{BadRows, BakeError, Options, keys};
use crate::format::key::KeyKind;

/// Fills a batch with the rows of one piece.
pub(super) struct Filler<'f> {
    options: &'f Options,
    kind: KeyKind,
    input: &'f str,
    batch: &'f mut Batch,
    /// Whether the next row is the first of an input that names no columns.
    may_be_header: bool,
}

impl<'f> Filler<'f> {
    pub(super) fn new(options: &'f Options, input: &'f str, batch: &'f mut Batch, may_be_header: bool) -> Self {
        Filler { options, kind: options.keys.kind(), input, batch, may_be_header }
    }
}

impl Filler<'_> {
    #[inline]
    fn is_deleted(&self, row: &RawRow<'_>) -> Result<bool, RowFault> {
        let marked = self.options.delete_marker.as_deref().is_some_and(|marker| marker == row.value);
        match row.delete {
            Some(word) => Ok(is_deletion(word).ok_or_else(|| RowFault::deletion(word))? || marked),
            None => Ok(marked),
        }
    }
}

impl RowSink for Filler<'_> {
    #[inline]
    fn row(&mut self, row: &RawRow<'_>) -> Result<(), BakeError> {
        let may_be_header = std::mem::take(&mut self.may_be_header);
        let pushed = self.is_deleted(row).and_then(|deleted| {
            let key = keys::key(self.kind, row.key, may_be_header)?;
            let value = if deleted { &[] } else { row.value };
            match &self.options.shard {
                Some(shard) if !shard.has(&key) => Ok(()),
                _ => self.batch.push(key, value, row.line, deleted),
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
            // One more than may be is told; those behind it need not be held.
            BadRows::Skip { max, .. } if self.batch.bad.len() as u64 > max => Ok(()),
            BadRows::Skip { .. } => {
                self.batch.bad.push(BadRow { input: self.input.to_owned(), line, fault, text: text.to_vec() });
                Ok(())
            }
        }
    }
}
