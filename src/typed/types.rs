//! The types of columns, their codes in a file, and their names.

use std::fmt;

/// The maximum number of digits of a decimal.
pub const DECIMAL_PRECISION_MAX: u8 = 38;
/// The maximum number of digits of a decimal that is stored in 8 bytes. Longer decimals are stored in 16 bytes.
pub const DECIMAL64_PRECISION_MAX: u8 = 18;

/// The powers of ten, from 10^0 to 10^38.
const POWERS_OF_TEN: [u128; DECIMAL_PRECISION_MAX as usize + 1] = {
    let mut powers = [1; DECIMAL_PRECISION_MAX as usize + 1];
    let mut digits = 1;
    while digits < powers.len() {
        powers[digits] = 10 * powers[digits - 1];
        digits += 1;
    }
    powers
};

/// Returns whether the integer of a decimal has at most `precision` digits.
pub(super) fn has_digits_at_most(unscaled: i128, precision: u8) -> bool {
    unscaled.unsigned_abs() < POWERS_OF_TEN[usize::from(precision)]
}

/// The type of a column.
///
/// The [`Display`](fmt::Display) form and the [`FromStr`](std::str::FromStr) form are the name of the type, as in the
/// options of `baker`:
///
/// | type | name |
/// |---|---|
/// | numbers | `i8` to `i64`, `u8` to `u64`, `f32`, `f64` |
/// | others without parameters | `bool`, `text`, `bytes`, `date` |
/// | [`ColumnType::Timestamp`] | `timestamp(ms)`, `timestamp(us)`, `timestamp(ns)`; `timestamp` means `timestamp(us)` |
/// | [`ColumnType::Decimal`] | `decimal(precision,scale)`, such as `decimal(10,2)` |
/// | [`ColumnType::List`] | `list(element)`, or `list(element,length)` if all lists have one length, such as `list(f32,128)` |
/// | [`ColumnType::TextList`] | `list(text)` |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// A Boolean.
    Bool,
    /// A signed integer of 8 bits.
    I8,
    /// A signed integer of 16 bits.
    I16,
    /// A signed integer of 32 bits.
    I32,
    /// A signed integer of 64 bits.
    I64,
    /// An unsigned integer of 8 bits.
    U8,
    /// An unsigned integer of 16 bits.
    U16,
    /// An unsigned integer of 32 bits.
    U32,
    /// An unsigned integer of 64 bits.
    U64,
    /// A floating-point number of 32 bits.
    F32,
    /// A floating-point number of 64 bits.
    F64,
    /// UTF-8 text.
    Text,
    /// A string of any bytes.
    Bytes,
    /// A date: days since 1970-01-01, as an `i32`.
    Date,
    /// An instant: units of time since 1970-01-01T00:00:00Z, as an `i64`.
    Timestamp(TimeUnit),
    /// A decimal number: an integer, divided by 10 to the power of `scale`.
    Decimal {
        /// The maximum number of digits of the integer, 1 to 38.
        precision: u8,
        /// The number of digits after the decimal point, 0 to `precision`.
        scale: u8,
    },
    /// A list of elements of one type. Elements are never null.
    List {
        /// The type of the elements.
        element: ElementType,
        /// The number of elements, if all lists of the column have this length.
        len: Option<u32>,
    },
    /// A list of texts. Texts are never null.
    TextList,
}

/// The unit of a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimeUnit {
    /// Milliseconds.
    Millis,
    /// Microseconds.
    Micros,
    /// Nanoseconds.
    Nanos,
}

/// The type of the elements of a list. Each element is stored as a value of the column type with the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are those of column types")]
pub enum ElementType {
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F32,
    F64,
    Date,
    Timestamp(TimeUnit),
}

/// The reason for a text that is not the name of any type.
const TYPE_NAMES: &str = "expected bool, i8 to i64, u8 to u64, f32, f64, text, bytes, date, timestamp, timestamp(ms), \
                          timestamp(us), timestamp(ns), decimal(10,2), list(f32), list(f32,128), or list(text)";
/// The reason for a list of elements that cannot be in a list.
const ELEMENT_NAMES: &str =
    "the elements of a list are i8 to i64, u8 to u64, f32, f64, date, timestamp, or, without a length, text";

/// Runs a macro with all types of numbers: the variant of [`ColumnType`] and of [`ColumnValues`](super::ColumnValues),
/// the Rust type, and the variant of [`Value`](super::Value). The arguments of the call precede the types.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_number {
    ($run:ident $(, $($argument:tt)*)?) => {
        $run! {
            [$($($argument)*)?]
            I8 i8 Int, I16 i16 Int, I32 i32 Int, I64 i64 Int, U8 u8 Uint, U16 u16 Uint, U32 u32 Uint, U64 u64 Uint,
            F32 f32 F32, F64 f64 F64
        }
    };
}

/// The types without parameters, with their codes in a file and their names.
const SIMPLE_TYPES: [(u8, &str, ColumnType); 14] = [
    (1, "bool", ColumnType::Bool),
    (2, "i8", ColumnType::I8),
    (3, "i16", ColumnType::I16),
    (4, "i32", ColumnType::I32),
    (5, "i64", ColumnType::I64),
    (6, "u8", ColumnType::U8),
    (7, "u16", ColumnType::U16),
    (8, "u32", ColumnType::U32),
    (9, "u64", ColumnType::U64),
    (10, "f32", ColumnType::F32),
    (11, "f64", ColumnType::F64),
    (12, "text", ColumnType::Text),
    (13, "bytes", ColumnType::Bytes),
    (14, "date", ColumnType::Date),
];
const TIMESTAMP_CODE: u8 = 15;
const DECIMAL_CODE: u8 = 16;
const LIST_CODE: u8 = 17;

/// The fields of a schema entry that describe a type: see `docs/FORMAT.md`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TypeCode {
    pub(super) code: u8,
    pub(super) element: u8,
    /// The precision of a decimal, or the unit of a timestamp.
    pub(super) parameter: u8,
    pub(super) scale: u8,
    pub(super) list_len: u32,
}

impl ColumnType {
    /// Returns the number of bytes of a value in the fixed part of a row. Returns `None` for a Boolean, which takes one
    /// bit, and for a type whose values have different lengths.
    pub fn fixed_len_bytes(self) -> Option<usize> {
        macro_rules! fixed_len_bytes {
            ([] $($variant:ident $number:ident $value:ident),*) => {
                match self {
                    ColumnType::Bool | ColumnType::Text | ColumnType::Bytes | ColumnType::TextList => None,
                    $(ColumnType::$variant => Some(size_of::<$number>()),)*
                    ColumnType::Date => Some(size_of::<i32>()),
                    ColumnType::Timestamp(_) => Some(size_of::<i64>()),
                    ColumnType::Decimal { precision, .. } if precision <= DECIMAL64_PRECISION_MAX => Some(8),
                    ColumnType::Decimal { .. } => Some(16),
                    ColumnType::List { element, len } => Some(element.len_bytes() * len? as usize),
                }
            };
        }
        for_each_number!(fixed_len_bytes)
    }

    /// The type of numbers that values are stored as: `i32` for a date, `i64` for a timestamp, and otherwise `self`.
    pub fn stored_as(self) -> ColumnType {
        match self {
            ColumnType::Date => ColumnType::I32,
            ColumnType::Timestamp(_) => ColumnType::I64,
            other => other,
        }
    }

    /// Returns whether values have different lengths, so that they are stored after the fixed part of a row.
    pub fn is_variable(self) -> bool {
        use ColumnType::{Bytes, List, Text, TextList};
        matches!(self, Text | Bytes | TextList | List { len: None, .. })
    }

    /// Returns the alignment of a value in a row, in bytes: 1, 2, 4, or 8.
    pub fn align_bytes(self) -> usize {
        match self {
            ColumnType::List { element, .. } => element.len_bytes(),
            _ => self.fixed_len_bytes().unwrap_or(1).min(8),
        }
    }

    /// Returns the fields of a schema entry that describe this type.
    pub(super) fn encode(self) -> TypeCode {
        let code = |code| TypeCode { code, ..TypeCode::default() };
        match self {
            ColumnType::Timestamp(unit) => TypeCode { parameter: unit as u8 + 1, ..code(TIMESTAMP_CODE) },
            ColumnType::Decimal { precision, scale } => TypeCode { parameter: precision, scale, ..code(DECIMAL_CODE) },
            ColumnType::List { element, len } => {
                let of_element = element.column_type().encode();
                let parameter = of_element.parameter;
                TypeCode { element: of_element.code, parameter, list_len: len.unwrap_or(0), ..code(LIST_CODE) }
            }
            ColumnType::TextList => TypeCode { element: ColumnType::Text.encode().code, ..code(LIST_CODE) },
            simple => code(SIMPLE_TYPES.iter().find(|entry| entry.2 == simple).map_or(0, |entry| entry.0)),
        }
    }

    /// Returns the type that the fields of a schema entry describe, or `None` if no type has these fields.
    pub(super) fn decode(fields: TypeCode) -> Option<ColumnType> {
        let decoded = match fields.code {
            TIMESTAMP_CODE => ColumnType::Timestamp(TimeUnit::from_code(fields.parameter)?),
            DECIMAL_CODE => ColumnType::decimal(fields.parameter, fields.scale)?,
            LIST_CODE if fields == ColumnType::TextList.encode() => ColumnType::TextList,
            LIST_CODE => {
                let element = TypeCode { code: fields.element, parameter: fields.parameter, ..TypeCode::default() };
                let len = Some(fields.list_len).filter(|len| *len > 0);
                ColumnType::List { element: ElementType::new(ColumnType::decode(element)?)?, len }
            }
            code => SIMPLE_TYPES.iter().find(|entry| entry.0 == code)?.2,
        };
        // All fields that the type does not use must be zero.
        (decoded.encode() == fields).then_some(decoded)
    }

    fn decimal(precision: u8, scale: u8) -> Option<ColumnType> {
        ((1..=DECIMAL_PRECISION_MAX).contains(&precision) && scale <= precision)
            .then_some(ColumnType::Decimal { precision, scale })
    }
}

impl TimeUnit {
    const NAMES: [(&str, TimeUnit); 3] = [("ms", TimeUnit::Millis), ("us", TimeUnit::Micros), ("ns", TimeUnit::Nanos)];

    /// Returns the number of units in a second.
    pub fn per_second(self) -> i64 {
        match self {
            TimeUnit::Millis => 1_000,
            TimeUnit::Micros => 1_000_000,
            TimeUnit::Nanos => 1_000_000_000,
        }
    }

    /// Returns the number of decimal places of a second that the unit expresses.
    pub fn digits(self) -> usize {
        self.per_second().ilog10() as usize
    }

    fn from_code(code: u8) -> Option<TimeUnit> {
        let index = usize::from(code).checked_sub(1)?;
        Self::NAMES.get(index).map(|(_, unit)| *unit)
    }
}

impl ElementType {
    /// Returns the element type, or `None` if lists cannot have elements of this type.
    pub fn new(element: ColumnType) -> Option<ElementType> {
        macro_rules! new {
            ([] $($variant:ident $number:ident $value:ident),*) => {
                match element {
                    $(ColumnType::$variant => Some(ElementType::$variant),)*
                    ColumnType::Date => Some(ElementType::Date),
                    ColumnType::Timestamp(unit) => Some(ElementType::Timestamp(unit)),
                    _ => None,
                }
            };
        }
        for_each_number!(new)
    }

    /// Returns the type of an element as a column type.
    pub fn column_type(self) -> ColumnType {
        macro_rules! column_type {
            ([] $($variant:ident $number:ident $value:ident),*) => {
                match self {
                    $(ElementType::$variant => ColumnType::$variant,)*
                    ElementType::Date => ColumnType::Date,
                    ElementType::Timestamp(unit) => ColumnType::Timestamp(unit),
                }
            };
        }
        for_each_number!(column_type)
    }

    /// Returns the length of an element in bytes: 1, 2, 4, or 8.
    pub fn len_bytes(self) -> usize {
        self.column_type().fixed_len_bytes().expect("elements have a fixed length")
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ColumnType::Timestamp(unit) => write!(f, "timestamp({unit})"),
            ColumnType::Decimal { precision, scale } => write!(f, "decimal({precision},{scale})"),
            ColumnType::List { element, len: None } => write!(f, "list({element})"),
            ColumnType::List { element, len: Some(len) } => write!(f, "list({element},{len})"),
            ColumnType::TextList => f.write_str("list(text)"),
            simple => f.write_str(SIMPLE_TYPES.iter().find(|entry| entry.2 == *simple).map_or("", |entry| entry.1)),
        }
    }
}

impl fmt::Display for TimeUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAMES[*self as usize].0)
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.column_type().fmt(f)
    }
}

impl ColumnType {
    /// Parses the name of a type. The error is what is wrong with the text, and what is expected.
    pub(super) fn parse(text: &str) -> Result<ColumnType, &'static str> {
        let (name, parameters) = match text.strip_suffix(')').map(|text| text.split_once('(')) {
            Some(Some((name, parameters))) => (name, Some(parameters)),
            Some(None) => return Err(TYPE_NAMES),
            None => (text, None),
        };
        match (name, parameters) {
            ("timestamp", None) => Ok(ColumnType::Timestamp(TimeUnit::Micros)),
            ("timestamp", Some(unit)) => TimeUnit::NAMES
                .iter()
                .find(|entry| entry.0 == unit)
                .map(|entry| ColumnType::Timestamp(entry.1))
                .ok_or("the unit of a timestamp is ms, us, or ns"),
            ("decimal", parameters) => parameters
                .and_then(|parameters| parameters.split_once(','))
                .and_then(|(precision, scale)| {
                    ColumnType::decimal(precision.trim().parse().ok()?, scale.trim().parse().ok()?)
                })
                .ok_or("a decimal has 1 to 38 digits, of which at most all are decimal places, as in decimal(10,2)"),
            ("list", Some(parameters)) => {
                let (element, len) = list_parameters(parameters)
                    .ok_or("the length of a list is a number from 1 to 4294967295, as in list(f32,128)")?;
                let element = ColumnType::parse(element).map_err(|_| ELEMENT_NAMES)?;
                match ElementType::new(element) {
                    Some(element) => Ok(ColumnType::List { element, len }),
                    None if (element, len) == (ColumnType::Text, None) => Ok(ColumnType::TextList),
                    None => Err(ELEMENT_NAMES),
                }
            }
            (name, None) => SIMPLE_TYPES.iter().find(|entry| entry.1 == name).map(|entry| entry.2).ok_or(TYPE_NAMES),
            _ => Err(TYPE_NAMES),
        }
    }
}

/// Splits the parameters of a list into the name of the element type and the length. Returns `None` if the length is
/// not a positive number.
fn list_parameters(parameters: &str) -> Option<(&str, Option<u32>)> {
    // The unit of a timestamp is in parentheses, and contains no comma.
    match parameters.rsplit_once(',') {
        Some((element, len)) => Some((element.trim(), Some(len.trim().parse().ok().filter(|len| *len > 0)?))),
        None => Some((parameters.trim(), None)),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns types of every kind.
    pub(in crate::typed) fn all_types() -> Vec<ColumnType> {
        let mut types: Vec<ColumnType> = SIMPLE_TYPES.iter().map(|entry| entry.2).collect();
        types.extend(TimeUnit::NAMES.map(|(_, unit)| ColumnType::Timestamp(unit)));
        types.extend(
            [(1, 0), (10, 2), (18, 18), (19, 0), (38, 38)]
                .map(|(precision, scale)| ColumnType::Decimal { precision, scale }),
        );
        let elements: Vec<_> = types.iter().filter_map(|element| ElementType::new(*element)).collect();
        for len in [None, Some(1), Some(3)] {
            types.extend(elements.iter().map(|element| ColumnType::List { element: *element, len }));
        }
        types.push(ColumnType::TextList);
        types
    }

    #[test]
    fn every_type_is_read_back_from_its_name_and_from_its_code() {
        let types = all_types();
        assert!(types.len() > 50);
        for expected in types {
            assert_eq!(expected.to_string().parse(), Ok(expected), "{expected}");
            assert_eq!(ColumnType::decode(expected.encode()), Some(expected), "{expected}");
        }
        assert_eq!("timestamp".parse(), Ok(ColumnType::Timestamp(TimeUnit::Micros)));
    }

    #[test]
    fn a_text_that_names_no_type_is_rejected_with_what_is_expected() {
        for (text, reason) in [
            ("int", TYPE_NAMES),
            ("", TYPE_NAMES),
            ("f32)", TYPE_NAMES),
            ("f32()", TYPE_NAMES),
            ("list", TYPE_NAMES),
            ("list(text,2)", ELEMENT_NAMES),
            ("list(bytes)", ELEMENT_NAMES),
            ("list(list(f32))", ELEMENT_NAMES),
            ("list(f32,0)", "the length of a list is a number from 1 to 4294967295, as in list(f32,128)"),
            ("timestamp(s)", "the unit of a timestamp is ms, us, or ns"),
        ] {
            assert_eq!(ColumnType::parse(text), Err(reason), "{text}");
        }
        for text in ["decimal", "decimal(0,0)", "decimal(39,0)", "decimal(3,4)", "decimal(3)"] {
            assert!(ColumnType::parse(text).unwrap_err().contains("as in decimal(10,2)"), "{text}");
        }
    }

    #[test]
    fn fields_that_no_type_has_are_rejected() {
        let valid = ColumnType::I8.encode();
        for fields in [
            TypeCode { code: 0, ..valid },
            TypeCode { code: 18, ..valid },
            TypeCode { element: 1, ..valid },
            TypeCode { parameter: 1, ..valid },
            TypeCode { scale: 1, ..valid },
            TypeCode { list_len: 1, ..valid },
            TypeCode { code: TIMESTAMP_CODE, ..valid },
            TypeCode { code: TIMESTAMP_CODE, parameter: 4, ..valid },
            TypeCode { code: DECIMAL_CODE, parameter: 39, ..valid },
            TypeCode { code: LIST_CODE, ..valid },
            TypeCode { code: LIST_CODE, element: 12, list_len: 1, ..valid },
            TypeCode { code: LIST_CODE, element: 13, ..valid },
        ] {
            assert_eq!(ColumnType::decode(fields), None, "{fields:?}");
        }
    }
}

/// A column of a typed table.
///
/// The [`Display`](fmt::Display) form and the [`FromStr`](std::str::FromStr) form are `name:type`, followed by `?` if
/// the column can be null: `price:f32?`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Column {
    /// The name, 1 to 255 bytes.
    pub name: String,
    /// The type.
    pub column_type: ColumnType,
    /// Whether a row may have no value in this column.
    pub is_nullable: bool,
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nullable = if self.is_nullable { "?" } else { "" };
        write!(f, "{}:{}{nullable}", self.name, self.column_type)
    }
}
