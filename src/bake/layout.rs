//! The layouts that a table can have, and the length of a table's file in the other layout.

use super::error::BakeError;
use super::index::parts;
use super::options::Options;
use super::report::OtherLayout;
use super::table::WrittenRecords;
use crate::format::header::{Dimensions, Layout, TableLayout};
use crate::format::index::Parts;
use crate::format::key::KeyKind;
use crate::format::key_type::KeyType;
use crate::format::record::{ALIGN_BYTES, record_align_bytes};

/// Checks that a table of this layout can have keys of a type.
pub(super) fn check(options: &Options, key_type: KeyType) -> Result<(), BakeError> {
    match options.layout {
        TableLayout::Compact if key_type.kind() == KeyKind::Bytes => Err(BakeError::CompactKeys { key_type }),
        _ => Ok(()),
    }
}

/// Returns how long a table's file would be in the layout that it does not have. `layout` describes the file. Returns
/// `None` if its keys allow no other layout, or if the rows exceed a limit of the other layout.
pub(super) fn other(records: &WrittenRecords, layout: &Layout) -> Option<OtherLayout> {
    let lens = records.other_lens.as_ref()?;
    let of_file = layout.dimensions;
    let (dimensions, is_exact) = match lens.layout {
        TableLayout::Compact => {
            let dimensions = Dimensions {
                table_layout: TableLayout::Compact,
                hash_seed: 0,
                record_align_bytes: 1,
                records_len_bytes: records.values_len_bytes,
                groups_len_bytes: lens.len_bytes,
                part_pilots: 0,
                part_slots: 0,
                ..of_file
            };
            (dimensions, true)
        }
        TableLayout::Fast => {
            // A greater alignment adds half of the difference to a record, on average.
            let row_count = records.row_count;
            let at_align = |align_bytes: usize| lens.len_bytes + row_count * (align_bytes - ALIGN_BYTES) as u64 / 2;
            let align_bytes = record_align_bytes(at_align)?;
            let index = parts(row_count, largest_part_rows(row_count));
            let dimensions = Dimensions {
                table_layout: TableLayout::Fast,
                record_align_bytes: align_bytes,
                records_len_bytes: at_align(align_bytes),
                groups_len_bytes: 0,
                part_pilots: index.pilots,
                part_slots: index.slots,
                ..of_file
            };
            (dimensions, index.count <= 1 && align_bytes == ALIGN_BYTES)
        }
    };
    let len_bytes = Layout::new(dimensions).ok()?.file_len_bytes();
    Some(OtherLayout { layout: lens.layout, len_bytes, is_exact })
}

/// Returns the number of rows that the largest part of an index probably has: hashes distribute rows like random
/// numbers.
fn largest_part_rows(row_count: u64) -> u64 {
    let count = Parts::count(row_count).max(1) as f64;
    let mean = row_count as f64 / count;
    (mean + (2.0 * mean * count.ln()).sqrt()).ceil() as u64
}
