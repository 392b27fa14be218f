//! The reasons why a row is rejected.

use thiserror::Error;

use super::remedy::Remedy;
use crate::excerpt::excerpt_chars;
use crate::format::FormatError;
use crate::format::key::{KEY_LEN_MAX_BYTES, Key};
use crate::format::record::VALUE_LEN_MAX_BYTES;
use crate::typed::{Column, ColumnType};

/// The reason why a row is rejected.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RowFault {
    /// The row has too few or too many fields.
    #[error(
        "{found} field{} where {expected} {} expected: {}",
        if *found == 1 { "" } else { "s" },
        if *expected == 1 { "was" } else { "were" },
        field_count_advice(*expected, *found, *columns_chosen)
    )]
    FieldCount {
        /// The number of fields that a row must have.
        expected: usize,
        /// The number of fields that the row has.
        found: usize,
        /// Whether the options choose columns.
        columns_chosen: bool,
    },
    /// The key is not a number.
    #[error(
        "the key is {found:?} where an unsigned 64-bit decimal (0 to 18446744073709551615) was expected: {}",
        key_advice(*has_spaces, *may_be_header)
    )]
    Key {
        /// The key field, shortened for the message.
        found: String,
        /// Whether the key starts or ends with ASCII white space.
        has_spaces: bool,
        /// Whether the row is the first of its input and the options declare no header, so that the row may be a
        /// header.
        may_be_header: bool,
    },
    /// The key is empty or too long.
    #[error(
        "a key of {len_bytes} bytes, where 1 to {KEY_LEN_MAX_BYTES} are allowed: correct the row, or choose another key column"
    )]
    KeyLen {
        /// The key's length.
        len_bytes: usize,
    },
    /// The field in the delete column is not a valid Boolean.
    #[error(
        "the delete column is {found:?}, where true, 1, false, 0, or an empty field was expected: correct the row, or choose another delete column"
    )]
    Deletion {
        /// The field in the delete column, shortened for the message.
        found: String,
    },
    /// An earlier row has the same key.
    #[error("key {key} is already on {first}: remove one, or choose which row to keep")]
    Duplicate {
        /// The key. A key of bytes is quoted, and shortened for the message.
        key: String,
        /// The line or row number of the first row with this key, and its input if the two rows are in different
        /// inputs.
        first: String,
    },
    /// The input ends inside a quoted field.
    #[error("a quoted field is not closed before the input ends: add the closing quote, and double each inner quote")]
    UnclosedQuote,
    /// Text follows a closing quote.
    #[error("text follows a closing quote: double each quote inside a quoted field")]
    TextAfterQuote,
    /// A carriage return outside quotes is not followed by a line feed.
    #[error("a carriage return without a line feed: end lines with LF or CRLF, and quote values that contain CR")]
    BareReturn,
    /// The row exceeds the maximum length of a row.
    #[error(
        "a row of more than {len_max_bytes} bytes begins here: close its quote, split the value, or, if the row has at most {VALUE_LEN_MAX_BYTES} bytes, allow memory of eight times its length"
    )]
    Endless {
        /// The maximum length of a row, which depends on the memory limit of the bake.
        len_max_bytes: usize,
    },
    /// A line of JSON Lines is not JSON.
    #[error("invalid JSON at byte {at}: {fault}: one object was expected on each line")]
    Json {
        /// The position of the error in the line, in bytes, counted from 1.
        at: usize,
        /// The JSON parser's message.
        fault: String,
    },
    /// A line of JSON Lines is JSON, but not an object.
    #[error("the line is {found}, where an object was expected: write one object per line")]
    NotObject {
        /// The JSON type found.
        found: &'static str,
    },
    /// An object lacks a chosen field.
    #[error("field {field:?} is missing: correct the row, or choose another key or value field")]
    MissingField {
        /// The name of the missing field.
        field: String,
    },
    /// An object has a chosen field more than once.
    #[error("field {field:?} occurs twice: remove one")]
    FieldTwice {
        /// The name of the field.
        field: String,
    },
    /// The key column has a value of a type that cannot be a key.
    #[error("the key {column:?} is {found}, where a string or a number was expected: choose another key column")]
    KeyType {
        /// The name of the field or column.
        column: String,
        /// The type found.
        found: &'static str,
    },
    /// The key or the value is null.
    #[error(
        "{column:?} is null: give every row a key and a value, or pack the column into the value, which may hold null"
    )]
    Null {
        /// The name of the field or column.
        column: String,
    },
    /// A field that is packed into the value is not valid UTF-8.
    #[error("{column:?} is not UTF-8 at byte {at}: convert it, or leave it out of the packed columns")]
    NotUtf8 {
        /// The name of the column.
        column: String,
        /// The position of the first invalid byte in the field, counted from 1.
        at: usize,
    },
    /// JSON cannot represent a field that is packed into the value: the field is binary, or a float that is not finite.
    #[error(
        "{column:?} is {found}, which JSON cannot represent: leave it out of the packed columns, or bake a typed table"
    )]
    NotInJson {
        /// The name of the column.
        column: String,
        /// The type found.
        found: &'static str,
    },
    /// A date, time, or timestamp is outside the range that can be converted to text, or a decimal has too many digits.
    #[error("{column:?} is {found}: correct it, or choose another column")]
    OutOfRange {
        /// The name of the column.
        column: String,
        /// A description of the value found.
        found: &'static str,
    },
    /// A value does not fit the type of its column in a typed table.
    #[error(
        "column {column:?} is {found:?}, where {column_type} was expected ({expected}): correct the row, or declare another type"
    )]
    Cell {
        /// The name of the column.
        column: Box<str>,
        /// The type of the column.
        column_type: ColumnType,
        /// The text of the value, shortened for the message.
        found: Box<str>,
        /// What was expected instead.
        expected: &'static str,
    },
    /// A column of a typed table has no value in a row, but every row must have a value of this column.
    #[error(
        "column {column:?} has no value, where {column_type} was expected in every row: correct the row, or declare that the column can be null"
    )]
    NoValue {
        /// The name of the column.
        column: String,
        /// The type of the column.
        column_type: ColumnType,
    },
    /// A value from memory or from a table is not a row of the schema.
    #[error("the value is not a row of the typed columns ({what}): encode it with these columns, in this order")]
    TypedRow {
        /// What is wrong with the value.
        what: String,
    },
    /// The value is too long.
    #[error(transparent)]
    Value(FormatError),
    /// The row does not fit into memory in addition to the rows before it.
    #[error("the rows before this one fill the machine's memory: bake on a larger machine, or split the table")]
    OutOfMemory,
}

fn field_count_advice(expected: usize, found: usize, columns_chosen: bool) -> &'static str {
    match (columns_chosen, found < expected) {
        (true, _) => "give every row as many fields as the first, and quote values that hold the delimiter",
        (false, true) => "give a key and a value, or set the delimiter between them",
        (false, false) => "quote the value, or choose the key and value columns",
    }
}

fn key_advice(has_spaces: bool, may_be_header: bool) -> &'static str {
    match (has_spaces, may_be_header) {
        (true, _) => "remove the spaces around it",
        (false, true) => "if this row names the columns, read it as a header; if keys are text, take them as bytes",
        (false, false) => "correct the row, choose another key column, or take keys as bytes",
    }
}

impl RowFault {
    /// Returns the options that can be changed to avoid the fault.
    pub fn remedies(&self) -> &'static [Remedy] {
        match self {
            RowFault::FieldCount { columns_chosen: true, .. } => &[],
            RowFault::FieldCount { expected, found, .. } if found < expected => &[Remedy::SetDelimiter],
            RowFault::FieldCount { .. } => &[Remedy::ChooseKey, Remedy::ChooseValue],
            RowFault::Key { has_spaces: true, .. } => &[],
            RowFault::Key { may_be_header: true, .. } => &[Remedy::ReadHeader, Remedy::TakeKeysAsBytes],
            RowFault::Key { .. } => &[Remedy::ChooseKey, Remedy::TakeKeysAsBytes],
            RowFault::KeyLen { .. } | RowFault::KeyType { .. } => &[Remedy::ChooseKey],
            RowFault::Deletion { .. } => &[Remedy::ChooseDeleteColumn],
            RowFault::Duplicate { .. } => &[Remedy::KeepOneDuplicate],
            RowFault::Endless { .. } => &[Remedy::AllowMoreMemory],
            RowFault::MissingField { .. } => &[Remedy::ChooseKey, Remedy::ChooseValue],
            RowFault::Null { .. } | RowFault::NotUtf8 { .. } => &[Remedy::ChooseColumns],
            RowFault::NotInJson { .. } => &[Remedy::ChooseColumns, Remedy::UseTypedColumns],
            RowFault::Cell { .. } => &[Remedy::DeclareTypes],
            RowFault::NoValue { .. } => &[Remedy::MakeNullable],
            RowFault::UnclosedQuote
            | RowFault::TextAfterQuote
            | RowFault::BareReturn
            | RowFault::Json { .. }
            | RowFault::NotObject { .. }
            | RowFault::FieldTwice { .. }
            | RowFault::OutOfRange { .. }
            | RowFault::TypedRow { .. }
            | RowFault::Value(_)
            | RowFault::OutOfMemory => &[],
        }
    }

    pub(super) fn key(field: &[u8], may_be_header: bool) -> Self {
        let has_spaces = field.trim_ascii().len() < field.len();
        RowFault::Key { found: shorten(Key::Bytes(field)), has_spaces, may_be_header }
    }

    /// Returns the fault for an error in a JSON text. The text begins `part_at` bytes after the start of its line.
    pub(super) fn json(error: &serde_json::Error, part_at: usize) -> Self {
        let fault = error.to_string();
        // The parser's message ends with a position in the text. This fault has the position in the line instead.
        let end = fault.rfind(" at line ").unwrap_or(fault.len());
        RowFault::Json { at: part_at + error.column(), fault: fault[..end].to_owned() }
    }

    pub(super) fn cell(column: &Column, found: &[u8], expected: &'static str) -> Self {
        let Column { name, column_type, .. } = column;
        let found = shorten_text(found).into();
        RowFault::Cell { column: name.as_str().into(), column_type: *column_type, found, expected }
    }

    pub(super) fn no_value(column: &Column) -> Self {
        RowFault::NoValue { column: column.name.clone(), column_type: column.column_type }
    }

    pub(super) fn deletion(field: &[u8]) -> Self {
        RowFault::Deletion { found: shorten(Key::Bytes(field)) }
    }
}

/// Formats a key for a message. A number is unchanged. Bytes are shortened and quoted, and control characters are
/// escaped.
pub(super) fn display_key(key: Key<'_>) -> String {
    match key {
        Key::U64(_) => key.to_string(),
        Key::Bytes(_) => format!("{:?}", shorten(key)),
    }
}

/// The maximum number of characters of a field in a message.
const SHOWN_CHARS: usize = 40;

/// Shortens a text. Bytes that are not UTF-8 are replaced.
fn shorten_text(text: &[u8]) -> String {
    /// More bytes than the characters shown can have.
    const READ_LEN_BYTES: usize = 256;
    let read = &text[..text.len().min(READ_LEN_BYTES)];
    excerpt_chars(&String::from_utf8_lossy(read), SHOWN_CHARS).into_owned()
}

fn shorten(key: Key<'_>) -> String {
    excerpt_chars(&key.to_string(), SHOWN_CHARS).into_owned()
}
