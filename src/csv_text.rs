//! Determines how fields are quoted in the CSV and TSV that this package writes, so that a bake reads the fields back
//! unchanged. TSV has no quotes.
//!
//! In: the delimiter and the first field. Out: the settings of the crate `csv`.

use std::io;

use csv::{ErrorKind, QuoteStyle, WriterBuilder};

/// The UTF-8 byte order mark. Readers of text, such as `baker`, strip the mark from the beginning of their input.
pub const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Returns the settings for a writer of delimited text. The first field of the first row, `first_field`, determines
/// whether all fields must be quoted. If the delimiter is a tab, no field is quoted, and [`fits_tsv`] must be true of
/// each field.
pub fn csv_settings(delimiter: u8, first_field: &[u8]) -> WriterBuilder {
    // A byte order mark may belong to the first field. A quote before the mark keeps readers from stripping it.
    let is_stripped = first_field.starts_with(BYTE_ORDER_MARK);
    let quote_style = match delimiter {
        b'\t' => QuoteStyle::Never,
        _ if is_stripped => QuoteStyle::Always,
        _ => QuoteStyle::Necessary,
    };
    let mut settings = WriterBuilder::new();
    settings.delimiter(delimiter).quote_style(quote_style);
    settings
}

/// Returns whether TSV can contain a field: it has no tab and no line end. `is_first` tells that the field is the first
/// one of the text, which must not begin with a byte order mark.
pub fn fits_tsv(field: &[u8], is_first: bool) -> bool {
    let has_mark = is_first && field.starts_with(BYTE_ORDER_MARK);
    !has_mark && !field.iter().any(|byte| b"\t\n\r".contains(byte))
}

/// Converts an error of the crate `csv` into an I/O error.
pub fn csv_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        ErrorKind::Io(error) => error,
        fault => io::Error::other(format!("{fault:?}")),
    }
}
