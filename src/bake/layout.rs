//! The layouts that a table can have.

use super::error::BakeError;
use super::options::Options;
use crate::format::header::TableLayout;
use crate::format::key::KeyKind;
use crate::format::key_type::KeyType;

/// Checks that a table of this layout can have these rows.
pub(super) fn check(options: &Options, key_type: KeyType, has_ranges: bool) -> Result<(), BakeError> {
    match options.layout {
        TableLayout::Compact if has_ranges => Err(BakeError::CompactRanges),
        TableLayout::Compact if key_type.kind() == KeyKind::Bytes => Err(BakeError::CompactKeys { key_type }),
        _ => Ok(()),
    }
}
