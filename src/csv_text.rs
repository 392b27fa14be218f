//! Determines how fields are quoted in the CSV and TSV that this package writes, so that a bake reads the fields back
//! unchanged.
//!
//! In: the delimiter and the first field. Out: the settings of the crate `csv`.

use std::io;

use csv::{ErrorKind, QuoteStyle, WriterBuilder};

/// The UTF-8 byte order mark. Readers of text, such as `baker`, strip the mark from the beginning of their input.
pub const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Returns the settings for a writer of delimited text. The first field of the first row, `first_field`, determines
/// whether all fields must be quoted.
pub fn csv_settings(delimiter: u8, first_field: &[u8]) -> WriterBuilder {
    // A byte order mark may belong to the first field. A quote before the mark keeps readers from stripping it.
    let is_stripped = first_field.starts_with(BYTE_ORDER_MARK);
    let quote_style = if is_stripped { QuoteStyle::Always } else { QuoteStyle::Necessary };
    let mut settings = WriterBuilder::new();
    settings.delimiter(delimiter).quote_style(quote_style);
    settings
}

/// Converts an error of the crate `csv` into an I/O error.
pub fn csv_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        ErrorKind::Io(error) => error,
        fault => io::Error::other(format!("{fault:?}")),
    }
}
