//! Packs several columns into one value.
//!
//! The value is a JSON object or a MessagePack map with one entry per column, in the order of the chosen columns. The
//! type of an entry depends on the type in the input:
//!
//! | in the input | JSON | MessagePack |
//! |---|---|---|
//! | text; each field of CSV, which must be UTF-8 | string | str |
//! | integer | number | the shortest integer |
//! | 32-bit float | the shortest number that is read back as the same float | float 32 |
//! | 64-bit float | the shortest number that is read back as the same float | float 64 |
//! | NaN or an infinite float | a fault | float |
//! | boolean | boolean | bool |
//! | null, or a field that a JSON object lacks | null | nil |
//! | binary | a fault | bin |
//!
//! Fields of JSON Lines keep their JSON text when they are packed into a JSON object. When they are packed into a
//! MessagePack map, lists become arrays, objects become maps, numbers that are not 64-bit integers become float 64, and
//! all other fields become the types in the table above.

use std::fmt;
use std::str;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::bake::columns::Pack;
use crate::bake::row_fault::RowFault;
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
    /// The columns of a typed table, in its order.
    Typed(Vec<usize>, Box<RowBuilder>),
}

/// Packs the chosen columns of rows, one row after another.
#[derive(Clone)]
pub(super) struct Packer {
    pack: Pack,
    names: Vec<Name>,
    buffer: Vec<u8>,
}

#[derive(Clone)]
struct Name {
    name: String,
    /// The encoded bytes that precede the column's value.
    encoded: Vec<u8>,
}

impl Packer {
    pub(super) fn new(names: impl IntoIterator<Item = String>, pack: Pack) -> Self {
        let encoded = |(index, name): (usize, String)| {
            let mut encoded = Vec::new();
            match pack {
                Pack::Json => {
                    encoded.push(if index == 0 { b'{' } else { b',' });
                    push_json(&mut encoded, &name);
                    encoded.push(b':');
                }
                Pack::MessagePack => push_str(&mut encoded, &name),
            }
            Name { name, encoded }
        };
        Packer { pack, names: names.into_iter().enumerate().map(encoded).collect(), buffer: Vec::new() }
    }

    /// Returns the packed value of a row. `cells` has one cell for each column name.
    pub(super) fn pack<'c>(&mut self, cells: impl IntoIterator<Item = Cell<'c>>) -> Result<&[u8], RowFault> {
        let buffer = &mut self.buffer;
        buffer.clear();
        if self.pack == Pack::MessagePack {
            infallible(rmp::encode::write_map_len(buffer, self.names.len() as u32));
        }
        for (name, cell) in self.names.iter().zip(cells) {
            buffer.extend_from_slice(&name.encoded);
            match self.pack {
                Pack::Json => cell.push_json(buffer, &name.name)?,
                Pack::MessagePack => cell.push_message_pack(buffer, &name.name)?,
            }
        }
        match (self.pack, self.names.is_empty()) {
            (Pack::Json, true) => buffer.extend_from_slice(b"{}"),
            (Pack::Json, false) => buffer.push(b'}'),
            (Pack::MessagePack, _) => {}
        }
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

    fn push_message_pack(self, buffer: &mut Vec<u8>, column: &str) -> Result<(), RowFault> {
        match self {
            Cell::Null => infallible(rmp::encode::write_nil(buffer)),
            Cell::Bool(value) => infallible(rmp::encode::write_bool(buffer, value)),
            Cell::Int(value) => push_int(buffer, value),
            Cell::Uint(value) => push_uint(buffer, value),
            Cell::F32(value) => infallible(rmp::encode::write_f32(buffer, value)),
            Cell::F64(value) => infallible(rmp::encode::write_f64(buffer, value)),
            Cell::Text(text) => push_str(buffer, utf8(text, column)?),
            Cell::Binary(bytes) => infallible(rmp::encode::write_bin(buffer, bytes)),
            Cell::Json(text) => {
                let mut json = serde_json::Deserializer::from_str(text);
                ToMessagePack(buffer).deserialize(&mut json).map_err(|error| RowFault::json(&error, 0))?;
            }
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

fn push_str(buffer: &mut Vec<u8>, text: &str) {
    infallible(rmp::encode::write_str(buffer, text));
}

fn push_int(buffer: &mut Vec<u8>, value: i64) {
    infallible(rmp::encode::write_sint(buffer, value));
}

fn push_uint(buffer: &mut Vec<u8>, value: u64) {
    infallible(rmp::encode::write_uint(buffer, value));
}

fn infallible<T, E: fmt::Debug>(written: Result<T, E>) {
    written.expect("writes to a vector do not fail");
}

/// Converts JSON text directly to MessagePack, without building a tree.
struct ToMessagePack<'b>(&'b mut Vec<u8>);

impl ToMessagePack<'_> {
    /// Inserts the header of a list or object before its entries, which begin at the offset `at`. The header contains
    /// the number of entries, so it is encoded after them and then rotated to the front.
    fn put_header(&mut self, at: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let end = self.0.len();
        write(self.0);
        let header_len_bytes = self.0.len() - end;
        self.0[at..].rotate_right(header_len_bytes);
    }
}

impl<'de> DeserializeSeed<'de> for ToMessagePack<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ToMessagePack<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        infallible(rmp::encode::write_nil(self.0));
        Ok(())
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<(), E> {
        infallible(rmp::encode::write_bool(self.0, value));
        Ok(())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<(), E> {
        push_int(self.0, value);
        Ok(())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<(), E> {
        push_uint(self.0, value);
        Ok(())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<(), E> {
        infallible(rmp::encode::write_f64(self.0, value));
        Ok(())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        push_str(self.0, text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        let at = self.0.len();
        let mut count = 0;
        while list.next_element_seed(ToMessagePack(self.0))?.is_some() {
            count += 1;
        }
        self.put_header(at, |buffer| infallible(rmp::encode::write_array_len(buffer, count)));
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut object: A) -> Result<(), A::Error> {
        let at = self.0.len();
        let mut count = 0;
        while object.next_key_seed(ToMessagePack(self.0))?.is_some() {
            object.next_value_seed(ToMessagePack(self.0))?;
            count += 1;
        }
        self.put_header(at, |buffer| infallible(rmp::encode::write_map_len(buffer, count)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(pack: Pack, cells: &[(&str, Cell<'_>)]) -> Result<Vec<u8>, RowFault> {
        let mut packer = Packer::new(cells.iter().map(|(name, _)| (*name).to_owned()), pack);
        packer.pack([Cell::Text(b"of the previous row")]).unwrap();
        packer.pack(cells.iter().map(|(_, cell)| *cell)).map(<[u8]>::to_vec)
    }

    fn json(cells: &[(&str, Cell<'_>)]) -> String {
        String::from_utf8(packed(Pack::Json, cells).unwrap()).unwrap()
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

    /// The expected bytes follow the MessagePack specification.
    #[test]
    fn a_message_pack_map_has_the_chosen_columns_in_order() {
        let cells = [
            ("z", Cell::Text("ü".as_bytes())),
            ("a", Cell::Int(-33)),
            ("i", Cell::Int(5)),
            ("u", Cell::Uint(u64::MAX)),
            ("f", Cell::F32(1.5)),
            ("g", Cell::F64(f64::INFINITY)),
            ("n", Cell::Null),
            ("t", Cell::Bool(false)),
            ("b", Cell::Binary(b"\xff")),
        ];
        let expected = [
            b"\x89\xa1z\xa2\xc3\xbc".as_slice(),
            b"\xa1a\xd0\xdf",
            b"\xa1i\x05",
            b"\xa1u\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\xa1f\xca\x3f\xc0\0\0",
            b"\xa1g\xcb\x7f\xf0\0\0\0\0\0\0",
            b"\xa1n\xc0",
            b"\xa1t\xc2",
            b"\xa1b\xc4\x01\xff",
        ];
        assert_eq!(packed(Pack::MessagePack, &cells).unwrap(), expected.concat());
        assert_eq!(packed(Pack::MessagePack, &[]).unwrap(), b"\x80");
    }

    #[test]
    fn json_becomes_message_pack_of_the_same_shape() {
        let converted = |text| packed(Pack::MessagePack, &[("j", Cell::Json(text))]).map(|packed| packed[3..].to_vec());
        let cases: [(&str, &[u8]); 10] = [
            ("null", b"\xc0"),
            (" true ", b"\xc3"),
            ("-1", b"\xff"),
            ("1e0", b"\xcb\x3f\xf0\0\0\0\0\0\0"),
            ("18446744073709551615", b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff"),
            ("18446744073709551616", b"\xcb\x43\xf0\0\0\0\0\0\0"),
            (r#""a\u0000\n""#, b"\xa3a\0\n"),
            ("[]", b"\x90"),
            (r#"{"b":[1,[2,{}]],"a":null}"#, b"\x82\xa1b\x92\x01\x92\x02\x80\xa1a\xc0"),
            (r#"{"a":1,"a":2}"#, b"\x82\xa1a\x01\xa1a\x02"),
        ];
        for (text, expected) in cases {
            assert_eq!(converted(text).unwrap(), expected, "{text}");
        }
        let long = format!("[{}0]", "0,".repeat(16));
        assert_eq!(converted(&long).unwrap(), [b"\xdc\0\x11".as_slice(), &[0; 17]].concat(), "a header of three bytes");
        assert!(matches!(converted(&"[".repeat(100_000)), Err(RowFault::Json { .. })), "depth is bounded");
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
        for pack in [Pack::Json, Pack::MessagePack] {
            let fault = packed(pack, &[("a", Cell::Null), ("b", Cell::Text(b"ab\xffc"))]).unwrap_err();
            assert_eq!(fault, RowFault::NotUtf8 { column: "b".to_owned(), at: 3 });
        }
        for cell in [Cell::Binary(b"text"), Cell::F32(f32::NAN), Cell::F64(f64::NEG_INFINITY)] {
            let fault = packed(Pack::Json, &[("b", cell)]).unwrap_err();
            assert!(matches!(&fault, RowFault::NotInJson { column, .. } if column == "b"), "{fault}");
        }
    }
}
