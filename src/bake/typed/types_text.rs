//! The text of a list of columns and their types, as on a command line.

use crate::typed::{Column, SchemaError};

/// Parses columns and their types, separated by commas: `id:u64,price:f32,name:text?,score:decimal(10,2)`. White space
/// around a column is ignored. A column whose name has a comma, a parenthesis, or a quote is enclosed in quotes, and
/// quotes in its name are doubled.
///
/// # Errors
/// [`SchemaError::Syntax`] or [`SchemaError::Type`] for the first column that is not a name and a type.
///
/// # Example
/// ```
/// use zero_kv::bake::parse_types;
///
/// let columns = parse_types("price:decimal(10,2), \"name, quoted:text?\"")?;
/// assert_eq!(columns[0].to_string(), "price:decimal(10,2)");
/// assert_eq!(columns[1].name, "name, quoted");
/// # Ok::<(), zero_kv::typed::SchemaError>(())
/// ```
pub fn parse_types(text: &str) -> Result<Vec<Column>, SchemaError> {
    let (mut columns, mut rest) = (Vec::new(), text);
    loop {
        let (column, after) = match rest.trim_start().strip_prefix('"') {
            Some(quoted) => quoted_column(quoted).ok_or_else(|| SchemaError::Syntax { found: rest.to_owned() })?,
            None => {
                let end = end_of_column(rest);
                (rest[..end].trim().to_owned(), &rest[end..])
            }
        };
        columns.push(column.parse()?);
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None => return Ok(columns),
        }
    }
}

/// Returns the position of the comma after a column, or the length of the text. A comma in parentheses separates the
/// parameters of a type.
fn end_of_column(text: &str) -> usize {
    let mut depth = 0_usize;
    let end = text.bytes().position(|byte| {
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        byte == b',' && depth == 0
    });
    end.unwrap_or(text.len())
}

/// Splits a text after an opening quote into the column up to the closing quote, and the text after it, which is empty
/// or begins with a comma. Returns `None` if the quote is not closed, or if other text follows it.
fn quoted_column(text: &str) -> Option<(String, &str)> {
    let mut column = String::new();
    let mut rest = text;
    loop {
        let (part, after) = rest.split_once('"')?;
        column.push_str(part);
        match after.strip_prefix('"') {
            Some(after) => {
                column.push('"');
                rest = after;
            }
            None => {
                let after = after.trim_start();
                return (after.is_empty() || after.starts_with(',')).then_some((column, after));
            }
        }
    }
}

/// Writes columns and their types in the form that [`parse_types`] parses.
pub fn write_types<'c>(columns: impl IntoIterator<Item = &'c Column>) -> String {
    let text = |column: &Column| {
        let is_plain = column.name.trim() == column.name && !column.name.contains([',', '(', ')', '"']);
        let text = column.to_string();
        if is_plain { text } else { format!("\"{}\"", text.replace('"', "\"\"")) }
    };
    columns.into_iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_with_any_names_are_read_back() {
        let names = ["a", "a b", " a", "a:b", "a,b", "a\"b", "\"", "(", "a)", "ä", ""];
        let types = ["u64", "text?", "decimal(10,2)", "list(f32,128)?", "timestamp(ms)"];
        let columns: Vec<Column> =
            names.iter().flat_map(|name| types.map(|text| format!("{name}:{text}").parse().unwrap())).collect();
        assert_eq!(parse_types(&write_types(&columns)), Ok(columns));
        assert_eq!(write_types(&parse_types(" a:u64 , \"b\":text").unwrap_or_default()), "");
    }

    #[test]
    fn a_text_that_is_not_a_list_of_types_is_rejected() {
        for text in ["", "a", "a:u64,", "a:int", "\"a:u64", "\"a:u64\"x", "a:decimal(1"] {
            assert!(parse_types(text).is_err(), "{text}");
        }
    }
}
