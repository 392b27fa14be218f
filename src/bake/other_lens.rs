//! Counts what the rows of a table would take in the layout that the table does not have.
//!
//! In: the keys and the lengths of the values of all rows, in key order. Out: the length of the groups, or of the records.

use crate::format::form::{RecordForm, RowKey};
use crate::format::group::{GROUP_ROWS, GroupRow, len_of_group_bytes};
use crate::format::header::TableLayout;
use crate::format::key::KeyKind;
use crate::format::record::{ALIGN_BYTES, record_len_bytes};

/// Counts what rows take in the layout that their table does not have.
#[derive(Clone, Debug)]
pub(super) struct OtherLens {
    /// The layout that is counted.
    pub(super) layout: TableLayout,
    form: RecordForm,
    /// The length of all groups, or of all records at the least alignment.
    pub(super) len_bytes: u64,
    /// The rows after the last complete group.
    rows: Vec<GroupRow>,
}

impl OtherLens {
    /// Returns the counts of a table of a layout. Returns `None` if its keys allow no other layout.
    pub(super) fn new(of: TableLayout, form: RecordForm) -> Option<OtherLens> {
        let layout = match of {
            TableLayout::Fast => TableLayout::Compact,
            TableLayout::Compact => TableLayout::Fast,
        };
        let is_possible = layout == TableLayout::Fast || form.keys.kind() == KeyKind::U64;
        is_possible.then(|| OtherLens { layout, form, len_bytes: 0, rows: Vec::with_capacity(GROUP_ROWS) })
    }

    /// Counts the next row in key order.
    #[inline]
    pub(super) fn add(&mut self, row_key: RowKey<'_>, value_len_bytes: usize) {
        match self.layout {
            TableLayout::Fast => {
                self.len_bytes += record_len_bytes(self.form, row_key, value_len_bytes, ALIGN_BYTES) as u64;
            }
            TableLayout::Compact => {
                let (key, end) = (row_key.key.as_u64().unwrap_or_default(), row_key.end.and_then(|end| end.as_u64()));
                self.rows.push(GroupRow { key, end, value_len_bytes: value_len_bytes as u64 });
                if self.rows.len() == GROUP_ROWS {
                    self.end_group();
                }
            }
        }
    }

    /// Ends the counts after the last row.
    pub(super) fn finish(&mut self) {
        if !self.rows.is_empty() {
            self.end_group();
        }
    }

    #[inline(never)]
    fn end_group(&mut self) {
        self.len_bytes += len_of_group_bytes(&self.rows) as u64;
        self.rows.clear();
    }
}
