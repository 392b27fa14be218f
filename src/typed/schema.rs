//! A table's schema: the names and types of its columns.
//!
//! In: columns, or the bytes of a file's schema section. Out: the checked schema, or its bytes. `docs/FORMAT.md`
//! describes the bytes.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use thiserror::Error;
use twox_hash::XxHash3_64;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::layout::{FIXED_LEN_MAX_BYTES, RowLayout};
use super::types::Column;
use super::types::{ColumnType, TypeCode};

/// The maximum number of columns of a schema.
pub const COLUMN_COUNT_MAX: usize = 4096;
/// The maximum length of a column's name, in bytes.
pub const NAME_LEN_MAX_BYTES: usize = 255;

/// The flag of a column that can be null.
const NULLABLE: u8 = 1;

/// The beginning of a schema section.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct SchemaHeader {
    column_count: U32,
    key_name_len_bytes: U16,
    reserved: U16,
}

/// The entry of a column in a schema section.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ColumnEntry {
    code: u8,
    element: u8,
    flags: u8,
    parameter: u8,
    scale: u8,
    name_len_bytes: u8,
    reserved: U16,
    list_len: U32,
    reserved_too: U32,
}

const _: () = assert!(size_of::<SchemaHeader>() == 8 && size_of::<ColumnEntry>() == 16);

/// The columns of a typed table. They have different names. The table's key is not one of them.
#[derive(Clone, PartialEq, Eq)]
pub struct Schema {
    columns: Box<[Column]>,
    /// The name of the key's column in the input, or an empty string.
    key_name: Box<str>,
    layout: RowLayout,
    id: u64,
}

/// The reason why columns or bytes are not a schema.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SchemaError {
    /// The schema has no columns, or too many.
    #[error("{found} columns, where 1 to {COLUMN_COUNT_MAX} are allowed: choose the columns to store")]
    ColumnCount {
        /// The number of columns.
        found: usize,
    },
    /// A column's name is empty or too long.
    #[error(
        "the column name {name:?} has {} bytes, where 1 to {NAME_LEN_MAX_BYTES} are allowed: rename the column",
        name.len()
    )]
    Name {
        /// The name.
        name: String,
    },
    /// Two columns have one name.
    #[error("two columns have the name {name:?}: rename one")]
    NameTwice {
        /// The name.
        name: String,
    },
    /// The values of one row take too much space.
    #[error(
        "the columns of fixed length take {len_bytes} bytes per row, where at most {FIXED_LEN_MAX_BYTES} are allowed: \
         leave out columns, or use lists without a fixed length"
    )]
    FixedLen {
        /// The length of the fixed part of a row.
        len_bytes: usize,
    },
    /// A text is not the name of a type.
    #[error("{found:?} is not a type: {reason}")]
    TypeName {
        /// The text.
        found: String,
        /// What is wrong with the text, and what is expected.
        reason: &'static str,
    },
    /// A text has the form `name:type`, but its type is unknown.
    #[error("the column {column:?}: {error}")]
    Type {
        /// The name of the column.
        column: String,
        /// The reason why the type is unknown.
        #[source]
        error: Box<SchemaError>,
    },
    /// A text does not have the form `name:type`.
    #[error("{found:?}, where a column and its type were expected, as in price:f32")]
    Syntax {
        /// The text.
        found: String,
    },
    /// The bytes of a schema section are invalid.
    #[error("the schema section is invalid at byte {at}: {what}: damaged or forged")]
    Bytes {
        /// The offset of the invalid bytes in the section.
        at: usize,
        /// What is wrong with the bytes.
        what: &'static str,
    },
}

impl Schema {
    /// Creates a schema. `key_name` is the name of the key's column, or empty if it has none.
    ///
    /// # Errors
    /// [`SchemaError`] if a limit is exceeded, or if two columns have one name.
    ///
    /// # Example
    /// ```
    /// use zero_kv::typed::{Column, ColumnType, Schema};
    ///
    /// let schema = Schema::new("id", ["price:f32".parse()?, "name:text?".parse::<Column>()?])?;
    /// assert_eq!(schema.columns()[0].column_type, ColumnType::F32);
    /// assert_eq!(schema.position("name"), Some(1));
    /// assert_eq!(schema.to_string(), "price:f32,name:text?");
    /// # Ok::<(), zero_kv::typed::SchemaError>(())
    /// ```
    pub fn new(key_name: &str, columns: impl IntoIterator<Item = Column>) -> Result<Schema, SchemaError> {
        let columns: Box<[Column]> = columns.into_iter().collect();
        if columns.is_empty() || columns.len() > COLUMN_COUNT_MAX {
            return Err(SchemaError::ColumnCount { found: columns.len() });
        }
        if key_name.len() > NAME_LEN_MAX_BYTES {
            return Err(SchemaError::Name { name: key_name.to_owned() });
        }
        let mut names = HashSet::with_capacity(columns.len());
        for Column { name, .. } in &columns {
            if !(1..=NAME_LEN_MAX_BYTES).contains(&name.len()) {
                return Err(SchemaError::Name { name: name.clone() });
            }
            if !names.insert(name) {
                return Err(SchemaError::NameTwice { name: name.clone() });
            }
        }
        let layout = RowLayout::new(&columns).map_err(|len_bytes| SchemaError::FixedLen { len_bytes })?;
        let mut schema = Schema { columns, key_name: key_name.into(), layout, id: 0 };
        schema.id = XxHash3_64::oneshot(&schema.encode());
        Ok(schema)
    }

    /// Returns the columns, in the order in which they were declared.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Returns the position of the column with this name.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// Returns the name of the key's column in the input, or `None` if it had no name.
    pub fn key_name(&self) -> Option<&str> {
        Some(&*self.key_name).filter(|name| !name.is_empty())
    }

    /// Returns the schema's ID, the XXH3-64 of its bytes. Different schemas have different IDs, unless somebody
    /// constructed a collision.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the length of the part that every row has, including the null bits and the Booleans: the columns of
    /// fixed length, and the 4-byte ends of the others.
    pub fn fixed_len_bytes(&self) -> usize {
        self.layout.fixed_len_bytes
    }

    /// Returns the positions of the cells in a row.
    pub(crate) fn layout(&self) -> &RowLayout {
        &self.layout
    }

    /// Returns the bytes of the schema section.
    pub fn encode(&self) -> Vec<u8> {
        let header = SchemaHeader {
            column_count: (self.columns.len() as u32).into(),
            key_name_len_bytes: (self.key_name.len() as u16).into(),
            reserved: U16::ZERO,
        };
        let mut bytes = header.as_bytes().to_vec();
        for column in &self.columns {
            let TypeCode { code, element, parameter, scale, list_len } = column.column_type.encode();
            let entry = ColumnEntry {
                code,
                element,
                flags: if column.is_nullable { NULLABLE } else { 0 },
                parameter,
                scale,
                name_len_bytes: column.name.len() as u8,
                reserved: U16::ZERO,
                list_len: list_len.into(),
                reserved_too: U32::ZERO,
            };
            bytes.extend_from_slice(entry.as_bytes());
        }
        bytes.extend_from_slice(self.key_name.as_bytes());
        self.columns.iter().for_each(|column| bytes.extend_from_slice(column.name.as_bytes()));
        bytes
    }

    /// Parses and checks the bytes of a schema section.
    ///
    /// # Errors
    /// [`SchemaError`] for the first fault found.
    pub fn decode(bytes: &[u8]) -> Result<Schema, SchemaError> {
        let invalid = |at: usize, what| SchemaError::Bytes { at, what };
        let too_short = || invalid(bytes.len(), "it ends too early");
        let (header, rest) = SchemaHeader::ref_from_prefix(bytes).map_err(|_| too_short())?;
        if header.reserved != 0 {
            return Err(invalid(6, "a reserved field is not zero"));
        }
        let count = header.column_count.get() as usize;
        if count == 0 || count > COLUMN_COUNT_MAX {
            return Err(SchemaError::ColumnCount { found: count });
        }
        let (entries, names) = <[ColumnEntry]>::ref_from_prefix_with_elems(rest, count).map_err(|_| too_short())?;
        let mut names = Names { rest: names, len_bytes: bytes.len() };
        let key_name = names.next(header.key_name_len_bytes.get().into())?;
        let mut columns = Vec::with_capacity(count);
        for (i, entry) in entries.iter().enumerate() {
            let at = size_of::<SchemaHeader>() + i * size_of::<ColumnEntry>();
            let column_type = entry.column_type().ok_or_else(|| invalid(at, "an unknown type"))?;
            if entry.reserved != 0 || entry.reserved_too != 0 || entry.flags & !NULLABLE != 0 {
                return Err(invalid(at, "a reserved field is not zero"));
            }
            let name = names.next(entry.name_len_bytes.into())?.to_owned();
            columns.push(Column { name, column_type, is_nullable: entry.flags == NULLABLE });
        }
        if !names.rest.is_empty() {
            return Err(invalid(bytes.len() - names.rest.len(), "bytes follow the last name"));
        }
        Schema::new(key_name, columns)
    }
}

impl ColumnEntry {
    fn column_type(&self) -> Option<ColumnType> {
        let ColumnEntry { code, element, parameter, scale, .. } = *self;
        ColumnType::decode(TypeCode { code, element, parameter, scale, list_len: self.list_len.get() })
    }
}

/// Reads the names at the end of a schema section.
struct Names<'a> {
    rest: &'a [u8],
    /// The length of the section.
    len_bytes: usize,
}

impl<'a> Names<'a> {
    fn next(&mut self, len_bytes: usize) -> Result<&'a str, SchemaError> {
        let at = self.len_bytes - self.rest.len();
        let (name, rest) = self
            .rest
            .split_at_checked(len_bytes)
            .ok_or(SchemaError::Bytes { at: self.len_bytes, what: "it ends too early" })?;
        self.rest = rest;
        std::str::from_utf8(name).map_err(|_| SchemaError::Bytes { at, what: "a name is not UTF-8" })
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schema({self})")
    }
}

impl fmt::Display for Schema {
    /// Writes the columns as `name:type`, separated by commas.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, column) in self.columns.iter().enumerate() {
            let separator = if i == 0 { "" } else { "," };
            write!(f, "{separator}{column}")?;
        }
        Ok(())
    }
}

impl FromStr for ColumnType {
    type Err = SchemaError;

    /// Parses the name of a type.
    fn from_str(text: &str) -> Result<ColumnType, SchemaError> {
        ColumnType::parse(text).map_err(|reason| SchemaError::TypeName { found: text.to_owned(), reason })
    }
}

impl FromStr for Column {
    type Err = SchemaError;

    /// Parses `name:type` or `name:type?`. The name may contain colons, but no type does.
    fn from_str(text: &str) -> Result<Column, SchemaError> {
        let (name, column_type) =
            text.rsplit_once(':').ok_or_else(|| SchemaError::Syntax { found: text.to_owned() })?;
        let (column_type, is_nullable) = match column_type.strip_suffix('?') {
            Some(column_type) => (column_type, true),
            None => (column_type, false),
        };
        let unknown = |error| SchemaError::Type { column: name.to_owned(), error: Box::new(error) };
        let column_type = column_type.parse().map_err(unknown)?;
        Ok(Column { name: name.to_owned(), column_type, is_nullable })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::types::tests::all_types;
    use super::*;

    /// Returns a schema with a nullable column and another column of each type.
    pub(in crate::typed) fn schema_of_all_types() -> Schema {
        let columns = all_types().into_iter().flat_map(|column_type| {
            [false, true].map(|is_nullable| Column {
                name: format!("{column_type}{}", if is_nullable { "?" } else { "" }),
                column_type,
                is_nullable,
            })
        });
        Schema::new("key", columns).unwrap()
    }

    pub(in crate::typed) fn schema(text: &str) -> Schema {
        Schema::new("", text.split_whitespace().map(|column| column.parse().unwrap())).unwrap()
    }

    #[test]
    fn a_schema_is_read_back_from_its_bytes() {
        for schema in [schema_of_all_types(), schema("a:f32"), schema("a:b:bool? 🦀:decimal(10,2)")] {
            let decoded = Schema::decode(&schema.encode()).unwrap();
            assert!(decoded == schema && decoded.id() == schema.id());
            let columns = schema.columns().iter().map(|column| column.to_string().parse().unwrap());
            assert!(Schema::new(schema.key_name().unwrap_or(""), columns).unwrap() == schema);
        }
    }

    #[test]
    fn every_truncated_or_extended_schema_is_rejected() {
        let bytes = schema_of_all_types().encode();
        for len in 0..bytes.len() {
            assert!(Schema::decode(&bytes[..len]).is_err(), "{len}");
        }
        assert_eq!(
            Schema::decode(&[&bytes[..], b"x"].concat()),
            Err(SchemaError::Bytes { at: bytes.len(), what: "bytes follow the last name" })
        );
    }

    #[test]
    fn every_changed_byte_yields_another_schema_or_an_error() {
        let schema = schema("id:u64 price:f32? tags:list(i16,3) at:timestamp(ms)");
        let bytes = schema.encode();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                if let Ok(decoded) = Schema::decode(&changed) {
                    assert!(decoded != schema && decoded.encode() == changed, "byte {at}, bit {bit}");
                }
            }
        }
    }

    #[test]
    fn limits_are_enforced() {
        let column = |name: String, column_type: &str| Column {
            name,
            column_type: column_type.parse().unwrap(),
            is_nullable: false,
        };
        let columns = |count: usize| (0..count).map(|i| column(i.to_string(), "i8"));
        assert!(Schema::new("", columns(COLUMN_COUNT_MAX)).is_ok());
        for count in [0, COLUMN_COUNT_MAX + 1] {
            assert_eq!(Schema::new("", columns(count)), Err(SchemaError::ColumnCount { found: count }));
        }
        let long = "x".repeat(256);
        for name in ["", &long] {
            let error = SchemaError::Name { name: name.to_owned() };
            assert_eq!(Schema::new("", [column(name.to_owned(), "i8")]), Err(error));
        }
        assert_eq!(Schema::new(&long, columns(1)), Err(SchemaError::Name { name: long.clone() }));
        let twice = ["a", "b", "a"].map(|name| column(name.to_owned(), "i8"));
        assert_eq!(Schema::new("", twice), Err(SchemaError::NameTwice { name: "a".to_owned() }));
        let wide = |len: usize| Schema::new("", [column("a".to_owned(), &format!("list(u8,{len})"))]);
        assert!(wide(FIXED_LEN_MAX_BYTES).is_ok());
        for len in [FIXED_LEN_MAX_BYTES + 1, u32::MAX as usize] {
            assert_eq!(wide(len), Err(SchemaError::FixedLen { len_bytes: len }));
        }
    }
}
