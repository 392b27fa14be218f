//! The Arrow schema that programs based on Arrow store in the metadata of a Parquet file, beside Parquet's own schema.
//!
//! In: the key-value metadata of a file. Out: what Parquet's schema does not tell about a column: the length of lists
//! that all have one length, and the unit of durations, which Parquet stores as plain integers. Everything else is
//! ignored.
//!
//! The schema is a message of Arrow's IPC format, a FlatBuffer in Base64. Every offset is checked before it is used. A
//! damaged schema tells nothing: the file can be read without it.

use std::collections::HashMap;

use ::parquet::file::metadata::KeyValue;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The key of the schema in the metadata.
const METADATA_KEY: &str = "ARROW:schema";
/// The limit on fields, and on types in types, so that a forged schema is read in bounded time.
const FIELDS_MAX: usize = 1 << 16;
const DEPTH_MAX: usize = 64;

/// What the Arrow schema tells about a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ArrowFacts {
    /// The number of elements, if all lists of the column have this length.
    pub(super) list_len: Option<u32>,
    /// The unit, if the column or the elements of its lists are durations.
    pub(super) duration_unit: Option<&'static str>,
}

/// The columns about which the schema tells something. The name of a column in a group is its path, `group.name`.
#[derive(Clone, Debug, Default)]
pub(super) struct ArrowSchema(HashMap<String, ArrowFacts>);

impl ArrowSchema {
    /// Reads the schema in the metadata of a file, if there is one.
    pub(super) fn new(metadata: Option<&Vec<KeyValue>>) -> ArrowSchema {
        let values = metadata.into_iter().flatten().filter(|entry| entry.key == METADATA_KEY);
        let message = values.filter_map(|entry| STANDARD.decode(entry.value.as_ref()?).ok()).next();
        let mut found = Found::default();
        if let Some(message) = &message {
            // The fields before a damaged one are known.
            let _ = found.add_message(message);
        }
        ArrowSchema(found.facts)
    }

    pub(super) fn facts(&self, column: &str) -> ArrowFacts {
        self.0.get(column).copied().unwrap_or_default()
    }
}

/// The codes of types in Arrow's `Schema.fbs`.
mod type_code {
    pub(super) const LIST: u8 = 12;
    pub(super) const STRUCT: u8 = 13;
    pub(super) const FIXED_SIZE_LIST: u8 = 16;
    pub(super) const DURATION: u8 = 18;
    pub(super) const LARGE_LIST: u8 = 21;
    pub(super) const LIST_VIEW: u8 = 25;
    pub(super) const LARGE_LIST_VIEW: u8 = 26;
}

/// The names of Arrow's units of time, by their codes.
const UNITS: [&str; 4] = ["seconds", "milliseconds", "microseconds", "nanoseconds"];
/// The code of a unit that is left out.
const UNIT_DEFAULT: u16 = 1;

#[derive(Default)]
struct Found {
    facts: HashMap<String, ArrowFacts>,
    fields: usize,
}

impl Found {
    fn add_message(&mut self, message: &[u8]) -> Option<()> {
        // The length of the message precedes it. Newer messages begin with a mark before the length.
        let start = if message.starts_with(&[0xff; 4]) { 8 } else { 4 };
        let message = Table::root(message.get(start..)?)?;
        const HEADER: usize = 2;
        const FIELDS: usize = 1;
        self.add_fields(&message.table(HEADER)?, FIELDS, "", 0)
    }

    /// Adds the fields in a vector of a table.
    fn add_fields(&mut self, table: &Table<'_>, vector: usize, prefix: &str, depth: usize) -> Option<()> {
        (0..table.vector_len(vector)?).try_for_each(|i| self.add_field(&table.element(vector, i)?, prefix, depth))
    }

    fn add_field(&mut self, field: &Table<'_>, prefix: &str, depth: usize) -> Option<()> {
        use type_code as T;
        self.fields += 1;
        if self.fields > FIELDS_MAX || depth > DEPTH_MAX {
            return None;
        }
        let path = format!("{prefix}{}", field.text(Field::NAME)?);
        let code = Field::type_code(field)?;
        let mut facts = ArrowFacts::default();
        match code {
            T::STRUCT => return self.add_fields(field, Field::CHILDREN, &format!("{path}."), depth + 1),
            T::FIXED_SIZE_LIST => {
                const LIST_LEN: usize = 0;
                let len = field.table(Field::TYPE)?.u32(LIST_LEN).unwrap_or(0);
                facts.list_len = Some(len).filter(|len| *len > 0 && i32::try_from(*len).is_ok());
                facts.duration_unit = element_unit(field);
            }
            T::LIST | T::LARGE_LIST | T::LIST_VIEW | T::LARGE_LIST_VIEW => facts.duration_unit = element_unit(field),
            T::DURATION => facts.duration_unit = duration_unit(field),
            _ => {}
        }
        if facts != ArrowFacts::default() {
            self.facts.insert(path, facts);
        }
        Some(())
    }
}

/// The positions in a table of the type `Field`.
struct Field;

impl Field {
    const NAME: usize = 0;
    const TYPE_CODE: usize = 2;
    const TYPE: usize = 3;
    const CHILDREN: usize = 5;

    fn type_code(field: &Table<'_>) -> Option<u8> {
        field.bytes_of(Self::TYPE_CODE).map(|[code]| code)
    }
}

/// Returns the unit of the durations in the lists of a field.
fn element_unit(list: &Table<'_>) -> Option<&'static str> {
    let element = list.element(Field::CHILDREN, 0)?;
    if Field::type_code(&element)? == type_code::DURATION { duration_unit(&element) } else { None }
}

fn duration_unit(field: &Table<'_>) -> Option<&'static str> {
    const UNIT: usize = 0;
    let unit = field.table(Field::TYPE)?.bytes_of(UNIT).map_or(UNIT_DEFAULT, u16::from_le_bytes);
    UNITS.get(usize::from(unit)).copied()
}

/// A table of a FlatBuffer.
struct Table<'b> {
    buffer: &'b [u8],
    at: usize,
    /// The offsets of the values, 2 bytes each, from the table's start. An offset of 0 means that there is no value.
    offsets: &'b [u8],
}

impl<'b> Table<'b> {
    fn root(buffer: &'b [u8]) -> Option<Table<'b>> {
        Table::new(buffer, offset(buffer, 0)?)
    }

    fn new(buffer: &'b [u8], at: usize) -> Option<Table<'b>> {
        let back = i32::from_le_bytes(bytes(buffer, at)?);
        let vtable = usize::try_from(i64::try_from(at).ok()? - i64::from(back)).ok()?;
        let len_bytes = usize::from(u16::from_le_bytes(bytes(buffer, vtable)?));
        const HEADER_LEN_BYTES: usize = 4;
        let offsets = buffer.get(vtable..vtable.checked_add(len_bytes)?)?.get(HEADER_LEN_BYTES..)?;
        Some(Table { buffer, at, offsets })
    }

    /// Returns the position of a value in the buffer.
    fn value_at(&self, value: usize) -> Option<usize> {
        let offset = u16::from_le_bytes(bytes(self.offsets, 2 * value)?);
        (offset > 0).then_some(self.at + usize::from(offset))
    }

    fn bytes_of<const LEN: usize>(&self, value: usize) -> Option<[u8; LEN]> {
        bytes(self.buffer, self.value_at(value)?)
    }

    fn u32(&self, value: usize) -> Option<u32> {
        self.bytes_of(value).map(u32::from_le_bytes)
    }

    fn table(&self, value: usize) -> Option<Table<'b>> {
        Table::new(self.buffer, offset(self.buffer, self.value_at(value)?)?)
    }

    fn text(&self, value: usize) -> Option<&'b str> {
        let at = offset(self.buffer, self.value_at(value)?)?;
        let len_bytes = u32::from_le_bytes(bytes(self.buffer, at)?) as usize;
        std::str::from_utf8(self.buffer.get(at + 4..)?.get(..len_bytes)?).ok()
    }

    /// Returns the number of elements of a vector, which can be left out if it is empty.
    fn vector_len(&self, value: usize) -> Option<usize> {
        let Some(at) = self.value_at(value) else { return Some(0) };
        bytes(self.buffer, offset(self.buffer, at)?).map(|len| u32::from_le_bytes(len) as usize)
    }

    /// Returns a table in a vector of tables.
    fn element(&self, value: usize, i: usize) -> Option<Table<'b>> {
        let vector = offset(self.buffer, self.value_at(value)?)?;
        let at = vector.checked_add(4)?.checked_add(i.checked_mul(4)?)?;
        (i < self.vector_len(value)?).then_some(())?;
        Table::new(self.buffer, offset(self.buffer, at)?)
    }
}

/// Returns the position to which the offset at a position refers.
fn offset(buffer: &[u8], at: usize) -> Option<usize> {
    at.checked_add(u32::from_le_bytes(bytes(buffer, at)?) as usize)
}

fn bytes<const LEN: usize>(buffer: &[u8], at: usize) -> Option<[u8; LEN]> {
    buffer.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The schema of pyarrow for the columns `id: uint64`, `v: fixed_size_list<float>[64]`, `d: duration[us]`,
    /// `s: struct<d: duration[s], l: list<duration[ms]>>`, and `t: list<string>`.
    const PYARROW: &str = include_str!("arrow_schema.txt");

    fn schema(message: &str) -> ArrowSchema {
        let entry = |key: &str, value: &str| KeyValue { key: key.to_owned(), value: Some(value.to_owned()) };
        ArrowSchema::new(Some(&vec![entry("pandas", "{}"), entry(METADATA_KEY, message)]))
    }

    fn duration(unit: &'static str) -> ArrowFacts {
        ArrowFacts { list_len: None, duration_unit: Some(unit) }
    }

    #[test]
    fn lists_of_one_length_and_durations_are_found() {
        let schema = schema(PYARROW.trim());
        for (column, expected) in [
            ("id", ArrowFacts::default()),
            ("v", ArrowFacts { list_len: Some(64), duration_unit: None }),
            ("d", duration("microseconds")),
            ("s.d", duration("seconds")),
            ("s.l", duration("milliseconds")),
            ("t", ArrowFacts::default()),
            ("none", ArrowFacts::default()),
        ] {
            assert_eq!(schema.facts(column), expected, "{column}");
        }
    }

    #[test]
    fn a_damaged_schema_is_read_without_a_panic() {
        let message = STANDARD.decode(PYARROW.trim()).unwrap();
        for at in 0..message.len() {
            for changed_to in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = message.clone();
                changed[at] = changed_to;
                schema(&STANDARD.encode(&changed));
            }
            schema(&STANDARD.encode(&message[..at]));
        }
        for text in ["", "=", "not Base64", "////"] {
            assert_eq!(schema(text).facts("v"), ArrowFacts::default(), "{text}");
        }
    }
}
