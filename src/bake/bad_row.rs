//! A bad row of an input.

use super::row_fault::RowFault;

/// A bad row that the bake skips.
pub(in crate::bake) struct BadRow {
    pub(in crate::bake) input: String,
    pub(in crate::bake) line: u64,
    pub(in crate::bake) fault: RowFault,
    pub(in crate::bake) text: Vec<u8>,
}
