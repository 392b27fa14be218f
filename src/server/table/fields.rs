//! The columns of a typed table as fields of Redis hashes.
//!
//! In: a schema. Out: for each column, its name as a bulk string, and the maximum length of the text of its cells. They
//! are computed once per generation.

use std::collections::HashMap;
use std::sync::Arc;

use crate::typed::{ColumnType, Schema, TypedRow, Value, text_len_max_bytes, write_text};

/// The maximum length of the frame of a value that is sent as a bulk string: `$`, a length, and two line ends.
const FRAME_LEN_MAX_BYTES: usize = "$4294967295\r\n\r\n".len();
/// The maximum length of the header of an array or a map.
const HEADER_LEN_MAX_BYTES: usize = "*10000\r\n".len();
/// The maximum number of bytes of a list's text for one byte of its elements, rounded up: `-1.2345678e-10` and a comma
/// for the 4 bytes of an `f32`, and a quoted time and a comma for the 8 bytes of a timestamp.
const LIST_TEXT_GROWTH: usize = 8;
/// The limits up to which Redis stores a hash in its compact encoding, a listpack, by default.
const LISTPACK_FIELDS_MAX: usize = 512;
const LISTPACK_LEN_MAX_BYTES: usize = 64;
/// A list with more elements than this has a text longer than [`LISTPACK_LEN_MAX_BYTES`].
const LISTPACK_ELEMENTS_MAX: usize = LISTPACK_LEN_MAX_BYTES / 2;

/// The columns of a typed table as fields of hashes.
pub(in crate::server) struct Fields {
    schema: Arc<Schema>,
    /// The positions of the columns by name.
    by_name: HashMap<Box<[u8]>, u16>,
    /// The names as bulk strings, one after the other.
    names: Vec<u8>,
    fields: Box<[Field]>,
    is_nullable: bool,
    /// The maximum length of a reply with all fields, without the part that depends on the length of the row.
    reply_len_max_bytes: usize,
    /// The maximum number of bytes that a reply has for one byte of a row's data of variable width.
    growth: usize,
}

#[derive(Clone, Copy)]
struct Field {
    /// The end of the name in [`Fields::names`].
    name_end: usize,
    /// The maximum length of the cell's text as a bulk string. `None` if it depends on the length of the row.
    value_len_max_bytes: Option<usize>,
}

impl Fields {
    pub(in crate::server) fn new(schema: Arc<Schema>) -> Fields {
        let (mut names, mut fields, mut by_name) = (Vec::new(), Vec::new(), HashMap::new());
        for (position, column) in schema.columns().iter().enumerate() {
            let name = column.name.as_bytes();
            names.extend_from_slice(format!("${}\r\n", name.len()).as_bytes());
            names.extend_from_slice(name);
            names.extend_from_slice(b"\r\n");
            by_name.insert(name.into(), position as u16);
            let value_len_max_bytes = text_len_max_bytes(column.column_type).map(|len| FRAME_LEN_MAX_BYTES + len);
            fields.push(Field { name_end: names.len(), value_len_max_bytes });
        }
        let values = fields.iter().map(|field| field.value_len_max_bytes.unwrap_or(FRAME_LEN_MAX_BYTES + "[]".len()));
        let reply_len_max_bytes = HEADER_LEN_MAX_BYTES + names.len() + values.sum::<usize>();
        let is_list = |column_type| matches!(column_type, ColumnType::List { len: None, .. });
        let has_lists = schema.columns().iter().any(|column| is_list(column.column_type));
        Fields {
            by_name,
            names,
            fields: fields.into(),
            is_nullable: schema.columns().iter().any(|column| column.is_nullable),
            reply_len_max_bytes,
            growth: if has_lists { LIST_TEXT_GROWTH } else { 1 },
            schema,
        }
    }

    pub(in crate::server) fn schema(&self) -> &Schema {
        &self.schema
    }

    pub(in crate::server) fn len(&self) -> usize {
        self.fields.len()
    }

    pub(in crate::server) fn position(&self, name: &[u8]) -> Option<usize> {
        self.by_name.get(name).map(|position| usize::from(*position))
    }

    #[inline]
    pub(in crate::server) fn name(&self, column: usize) -> &[u8] {
        let start = column.checked_sub(1).map_or(0, |before| self.fields[before].name_end);
        &self.names[start..self.fields[column].name_end]
    }

    /// Returns the maximum length of a reply with all fields of a row whose value has this length.
    pub(in crate::server) fn all_len_max_bytes(&self, row_len_bytes: usize) -> usize {
        self.reply_len_max_bytes + self.growth * row_len_bytes
    }

    /// Returns the maximum length of the value of a column as a bulk string, in a row whose value has this length.
    pub(in crate::server) fn value_len_max_bytes(&self, column: usize, row_len_bytes: usize) -> usize {
        let of_row = FRAME_LEN_MAX_BYTES + "[]".len() + self.growth * row_len_bytes;
        self.fields[column].value_len_max_bytes.unwrap_or(of_row)
    }

    #[inline]
    pub(in crate::server) fn count_values(&self, row: &TypedRow<'_>) -> usize {
        if self.is_nullable { self.columns_with_value(row).count() } else { self.len() }
    }

    pub(in crate::server) fn columns_with_value(&self, row: &TypedRow<'_>) -> impl Iterator<Item = usize> {
        (0..self.len()).filter(|column| row.has_value(*column))
    }

    /// Returns whether Redis would store a row as a listpack: whether the row has few fields, and their names and
    /// values are short. Otherwise, Redis would store the row as a hash table.
    pub(in crate::server) fn is_listpack(&self, row: &TypedRow<'_>) -> bool {
        let is_short = |column: usize| {
            let name_len_bytes = self.schema.columns()[column].name.len();
            name_len_bytes <= LISTPACK_LEN_MAX_BYTES
                && match row.unchecked_value(column) {
                    Ok(Value::Bytes(bytes)) => bytes.len() <= LISTPACK_LEN_MAX_BYTES,
                    Ok(Value::List(list)) if list.len() > LISTPACK_ELEMENTS_MAX => false,
                    Ok(value @ Value::List(_)) => {
                        let mut text = Vec::new();
                        write_text(&value, &mut text);
                        text.len() <= LISTPACK_LEN_MAX_BYTES
                    }
                    _ => true,
                }
        };
        self.count_values(row) <= LISTPACK_FIELDS_MAX && self.columns_with_value(row).all(is_short)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::typed::{ElementType, List, TimeUnit, element_len_max_bytes};

    fn text_len_bytes(value: &Value<'_>) -> usize {
        let mut text = Vec::new();
        write_text(value, &mut text);
        text.len()
    }

    #[test]
    fn no_text_is_longer_than_its_maximum() {
        let mut seed = 0x5EED_u64;
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            seed ^ seed >> 29
        };
        let units = [TimeUnit::Millis, TimeUnit::Micros, TimeUnit::Nanos];
        let numbers = [0, u64::MAX, i64::MAX as u64, i64::MIN as u64];
        for number in numbers.into_iter().chain(std::iter::repeat_with(&mut next).take(100_000)) {
            let bits = number as u32;
            for (name, value) in [
                ("bool", Value::Bool(false)),
                ("i8", Value::Int((number as i8).into())),
                ("u16", Value::Uint((number as u16).into())),
                ("i32", Value::Int((number as i32).into())),
                ("i64", Value::Int(number as i64)),
                ("u64", Value::Uint(number)),
                ("f32", Value::F32(f32::from_bits(bits))),
                ("f64", Value::F64(f64::from_bits(number))),
                ("f32", Value::F32(-(bits as f32) / 1e14)),
                ("f64", Value::F64(-(number as f64) / 1e24)),
                ("f64", Value::F64(-(number as f64) / 1e4)),
                ("date", Value::Date(number as i32)),
                ("timestamp(ms)", Value::Timestamp(number as i64, units[0])),
                ("timestamp(us)", Value::Timestamp(number as i64, units[1])),
                ("timestamp(ns)", Value::Timestamp(number as i64, units[2])),
                ("decimal(18,18)", Value::Decimal { unscaled: i128::from(number as i64 / 10), scale: 18 }),
            ] {
                let column_type: ColumnType = name.parse().unwrap();
                let max = text_len_max_bytes(column_type).unwrap();
                assert!(text_len_bytes(&value) <= max, "{name} {value:?}");
            }
        }
        let unscaled = -(10_i128.pow(38) - 1);
        let least = Value::Decimal { unscaled, scale: 38 };
        assert_eq!(text_len_max_bytes("decimal(38,38)".parse().unwrap()), Some(text_len_bytes(&least)));
    }

    #[test]
    fn no_text_of_a_list_is_longer_than_its_maximum() {
        let names = ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f32", "f64", "date", "timestamp(ns)"];
        for name in names {
            let element = ElementType::new(name.parse().unwrap()).unwrap();
            let per_byte = element_len_max_bytes(element).div_ceil(element.len_bytes());
            assert!(per_byte <= LIST_TEXT_GROWTH, "{name}: {per_byte}");
            let data = vec![0x80; 10 * element.len_bytes()];
            let list = Value::List(List::new(element, &data).unwrap());
            assert!(text_len_bytes(&list) <= 2 + LIST_TEXT_GROWTH * data.len());
        }
    }
}
