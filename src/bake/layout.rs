//! The layouts that a table can have.

use super::error::BakeError;
use super::options::Options;
use crate::format::header::TableLayout;
use crate::format::key::KeyKind;
use crate::format::key_type::KeyType;

/// Checks that a table of this layout can have keys of a type.
pub(super) fn check(options: &Options, key_type: KeyType) -> Result<(), BakeError> {
    match options.layout {
        TableLayout::Compact if key_type.kind() == KeyKind::Bytes => Err(BakeError::CompactKeys { key_type }),
        _ => Ok(()),
    }
}
