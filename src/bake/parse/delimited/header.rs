//! Detects first rows that are probably headers.

use std::collections::HashSet;
use std::ops::ControlFlow;

use super::{Dialect, Record, Records, TextPiece};
use crate::bake::error::BakeError;
use crate::bake::typed::infer::Inference;
use crate::typed::ColumnType;

/// The number of rows with which the first row is compared.
const COMPARED_ROWS: usize = 100;
/// The maximum length of the name of a column.
const NAME_LEN_MAX_BYTES: usize = 64;
/// Usual names of key columns, and usual ends of such names after an underscore.
const KEY_NAMES: [&str; 8] = ["id", "key", "uuid", "guid", "name", "code", "email", "sku"];

/// Returns the line of the first row if it looks like a header: all its fields are different names, and the key has a
/// usual name, or the values below another name have a type other than text, such as numbers or dates.
pub(super) fn line_of_possible_header(
    first: &TextPiece,
    dialect: Dialect,
    key: usize,
) -> Result<Option<u64>, BakeError> {
    let (mut names, mut columns, mut line, mut rows) = (Vec::new(), Vec::new(), 0, 0);
    Records::new(dialect).each(first, |record| {
        if names.is_empty() {
            line = record.line;
            names = record.fields().map(<[u8]>::to_vec).collect();
            columns = vec![Inference::new(); names.len()];
            return Ok(if are_names(&record) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) });
        }
        rows += 1;
        columns.iter_mut().zip(record.fields()).for_each(|(column, field)| column.add_text(field));
        Ok(if rows < COMPARED_ROWS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    let is_usual_key = names.get(key).is_some_and(|name| is_usual_key(name));
    let has_type = |column: &Inference| column.column(String::new()).column_type != ColumnType::Text;
    Ok((rows > 0 && (is_usual_key || columns.iter().any(has_type))).then_some(line))
}

fn are_names(record: &Record<'_>) -> bool {
    let mut names = HashSet::new();
    record.fields().all(|field| is_name(field) && names.insert(field))
}

fn is_name(field: &[u8]) -> bool {
    let starts = field.first().is_some_and(|first| first.is_ascii_alphabetic() || *first == b'_');
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_ -.".contains(byte);
    starts && (2..=NAME_LEN_MAX_BYTES).contains(&field.len()) && field.iter().all(is_of_name)
}

fn is_usual_key(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    let is_usual = |usual: &str| {
        let before = name.strip_suffix(usual.as_bytes());
        before.is_some_and(|before| before.is_empty() || before.ends_with(b"_"))
    };
    KEY_NAMES.iter().any(|usual| is_usual(usual))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Comparing each name with each other one would take minutes.
    #[test]
    fn a_header_can_have_any_number_of_names() {
        let names = |last: &str| (0..200_000).map(|i| format!("name{i},")).collect::<String>() + last;
        let values = |last: &str| "text,".repeat(200_000) + last;
        for (names, values, expected) in [
            (names("size"), values("7"), Some(5)),
            (names("size"), values("large"), None),
            (names("name7"), values("7"), None),
        ] {
            let first = TextPiece::of_lines(format!("{names}\n{values}\n").into_bytes(), 5);
            let found = line_of_possible_header(&first, Dialect::with_delimiter(b','), 0).unwrap();
            assert_eq!(found, expected);
        }
    }
}
