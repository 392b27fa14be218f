//! Checks the values of a typed table.

use crate::format::FormatError;
use crate::format::key::Key;
use crate::format::record::Record;
use crate::typed::{ColumnError, Schema, TypedRow};

/// Checks that the value of a record is a row of the schema.
pub(super) fn check_cells(schema: &Schema, row: usize, record: &Record<'_>) -> Result<(), FormatError> {
    TypedRow::new(schema, record.value()).and_then(|row| row.check()).map_err(|error| {
        let what = if let ColumnError::Malformed { what } = error { what } else { "it is not a row of the schema" };
        FormatError::Cells { row: row as u64, key: shown_key(record.key()), what }
    })
}

/// Returns a key as text for messages. Byte keys are quoted and escaped, and truncated after 64 bytes.
fn shown_key(key: Key<'_>) -> String {
    const SHOWN_MAX_BYTES: usize = 64;
    match key {
        Key::U64(key) => key.to_string(),
        Key::Bytes(key) if key.len() > SHOWN_MAX_BYTES => format!("\"{}...\"", key[..SHOWN_MAX_BYTES].escape_ascii()),
        Key::Bytes(key) => format!("\"{}\"", key.escape_ascii()),
    }
}
