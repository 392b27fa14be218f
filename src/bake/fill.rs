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
    is_first: bool,
}

impl<'f> Filler<'f> {
    pub(super) fn new(options: &'f Options, input: &'f str, batch: &'f mut Batch, is_first: bool) -> Self {
        let is_first = is_first && !options.header;
        Filler { options, kind: options.keys.kind(), input, batch, is_first }
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
        let is_first = std::mem::take(&mut self.is_first);
        let pushed = self.is_deleted(row).and_then(|deleted| {
            let key = keys::key(self.kind, row.key, is_first)?;
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
        self.is_first = false;
        match self.options.bad_rows {
            BadRows::Refuse => Err(BakeError::Row { input: self.input.to_owned(), line, fault }),
            BadRows::Skip { .. } => {
                self.batch.bad.push(BadRow { input: self.input.to_owned(), line, fault, text: text.to_vec() });
                Ok(())
            }
        }
    }
}
