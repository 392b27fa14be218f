//! Packs several columns into one value: a JSON object with one entry per column, in the order of the chosen columns.
//!
//! Clients of any language can read such a value without the table's schema. The type of an entry depends on the type
//! in the input:
//!
//! | in the input | in the object |
//! |---|---|
//! | text; each field of CSV, which must be UTF-8 | string |
//! | integer | number |
//! | float | the shortest number that is read back as the same float |
//! | NaN, an infinite float, or binary | a fault |
//! | boolean | boolean |
//! | null, or a field that a JSON object lacks | null |
//! | field of JSON Lines | its JSON text, unchanged |

use std::str;

use crate::bake::error::RowFault;
use crate::bake::typed::row_builder::RowBuilder;

/// The value of one column in one row.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(not(feature = "parquet"), allow(dead_code, reason = "only Parquet has columns of these types"))]
pub(super) enum Cell<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    F32(f32),
    F64(f64),
    /// Text. If the bytes are not valid UTF-8, the cell cannot be packed.
    Text(&'a [u8]),
    Binary(&'a [u8]),
    /// Valid JSON text.
    Json(&'a str),
}

/// The columns that become the value. They are identified by their positions among the columns that are read.
#[derive(Clone)]
pub(super) enum ValueColumns {
    One(usize),
    Packed(Vec<usize>, Packer),
    /// The columns of a typed table, in its order. A column that the input lacks is `None`, and null in all rows.
    Typed(Vec<Option<usize>>, Box<RowBuilder>),
}

/// Packs the chosen columns of rows, one row at a time.
#[derive(Clone)]
pub(super) struct Packer {
    names: Vec<Name>,
    buffer: Vec<u8>,
}

#[derive(Clone)]
struct Name {
    name: String,
    /// The JSON text that precedes the column's value.
    encoded: Vec<u8>,
}

impl Packer {
    pub(super) fn new(names: impl IntoIterator<Item = String>) -> Self {
        let encoded = |(index, name): (usize, String)| {
            let mut encoded = vec![if index == 0 { b'{' } else { b',' }];
            push_json(&mut encoded, &name);
            encoded.push(b':');
            Name { name, encoded }
        };
        Packer { names: names.into_iter().enumerate().map(encoded).collect(), buffer: Vec::new() }
    }

    /// Packs a row. `cells` has one cell for each column name.
    pub(super) fn pack<'c>(&mut self, cells: impl IntoIterator<Item = Cell<'c>>) -> Result<&[u8], RowFault> {
        let buffer = &mut self.buffer;
        buffer.clear();
        for (name, cell) in self.names.iter().zip(cells) {
            buffer.extend_from_slice(&name.encoded);
            cell.push_json(buffer, &name.name)?;
        }
        buffer.extend_from_slice(if self.names.is_empty() { &b"{}"[..] } else { b"}" });
        Ok(buffer)
    }
}

impl<'a> Cell<'a> {
    /// Returns the cell as the bytes of a key, or of a value that is not packed. Text and binary are unchanged. Floats
    /// that are not finite become `NaN`, `inf`, or `-inf`. All other types become JSON text. Returns `None` for null.
    #[cfg(feature = "parquet")]
    pub(super) fn content<'b: 'c, 'c>(self, buffer: &'b mut Vec<u8>) -> Option<&'c [u8]>
    where
        'a: 'c,
    {
        buffer.clear();
        match self {
            Cell::Null => return None,
            Cell::Text(bytes) | Cell::Binary(bytes) => return Some(bytes),
            Cell::F32(value) if !value.is_finite() => buffer.extend_from_slice(value.to_string().as_bytes()),
            Cell::F64(value) if !value.is_finite() => buffer.extend_from_slice(value.to_string().as_bytes()),
            _ => self.push_json(buffer, "").expect("JSON has booleans, integers, and finite floats"),
        }
        Some(buffer)
    }

    fn push_json(self, buffer: &mut Vec<u8>, column: &str) -> Result<(), RowFault> {
        let not_in_json = |found| Err(RowFault::NotInJson { column: column.to_owned(), found });
        match self {
            Cell::Null => buffer.extend_from_slice(b"null"),
            Cell::Bool(value) => push_json(buffer, &value),
            Cell::Int(value) => push_json(buffer, &value),
            Cell::Uint(value) => push_json(buffer, &value),
            Cell::F32(value) if value.is_finite() => push_json(buffer, &value),
            Cell::F64(value) if value.is_finite() => push_json(buffer, &value),
            Cell::F32(_) | Cell::F64(_) => return not_in_json("not a finite number"),
            Cell::Text(text) => push_json(buffer, &utf8(text, column)?),
            Cell::Binary(_) => return not_in_json("binary"),
            Cell::Json(text) => buffer.extend_from_slice(text.as_bytes()),
        }
        Ok(())
    }
}

fn utf8<'t>(text: &'t [u8], column: &str) -> Result<&'t str, RowFault> {
    str::from_utf8(text).map_err(|error| RowFault::NotUtf8 { column: column.to_owned(), at: error.valid_up_to() + 1 })
}

fn push_json(buffer: &mut Vec<u8>, value: &(impl serde::Serialize + ?Sized)) {
    serde_json::to_writer(buffer, value)
        .expect("strings and finite numbers have JSON text, and writes to a vector do not fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(cells: &[(&str, Cell<'_>)]) -> Result<Vec<u8>, RowFault> {
        let mut packer = Packer::new(cells.iter().map(|(name, _)| (*name).to_owned()));
        packer.pack([Cell::Text(b"of the previous row")]).unwrap();
        packer.pack(cells.iter().map(|(_, cell)| *cell)).map(<[u8]>::to_vec)
    }

    fn json(cells: &[(&str, Cell<'_>)]) -> String {
        String::from_utf8(packed(cells).unwrap()).unwrap()
    }

    #[test]
    fn a_json_object_has_the_chosen_columns_in_order() {
        let cells = [
            ("z", Cell::Text("\"ü\"\n\0".as_bytes())),
            ("a", Cell::Int(-1)),
            ("A \"b\"", Cell::Uint(u64::MAX)),
            ("f", Cell::F32(0.1)),
            ("g", Cell::F64(0.1 + 0.2)),
            ("n", Cell::Null),
            ("t", Cell::Bool(true)),
            ("j", Cell::Json(r#"{"b" : [1, 2.50]}"#)),
        ];
        assert_eq!(
            json(&cells),
            concat!(
                r#"{"z":"\"ü\"\n\u0000","a":-1,"A \"b\"":18446744073709551615,"f":0.1,"#,
                r#""g":0.30000000000000004,"n":null,"t":true,"j":{"b" : [1, 2.50]}}"#
            )
        );
        assert_eq!(json(&[]), "{}");
    }

    #[cfg(feature = "parquet")]
    #[test]
    fn a_float_that_is_not_finite_becomes_its_name() {
        for (value, name) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (f32::NEG_INFINITY, "-inf")] {
            for cell in [Cell::F32(value), Cell::F64(value.into())] {
                assert_eq!(cell.content(&mut Vec::new()), Some(name.as_bytes()));
            }
        }
    }

    #[test]
    fn the_fault_of_a_value_that_cannot_be_packed_names_the_column() {
        let fault = packed(&[("a", Cell::Null), ("b", Cell::Text(b"ab\xffc"))]).unwrap_err();
        assert_eq!(fault, RowFault::NotUtf8 { column: "b".to_owned(), at: 3 });
        for cell in [Cell::Binary(b"text"), Cell::F32(f32::NAN), Cell::F64(f64::NEG_INFINITY)] {
            let fault = packed(&[("b", cell)]).unwrap_err();
            assert!(matches!(&fault, RowFault::NotInJson { column, .. } if column == "b"), "{fault}");
        }
    }
}
