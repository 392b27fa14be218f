//! The value of one column in one row.

use std::fmt;

use super::text_list::TextList;
use super::types::{ColumnType, ElementType, TimeUnit, has_digits_at_most};
use crate::for_each_number;

/// The value of one column in one row, borrowed from the row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// No value.
    Null,
    /// A Boolean.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A floating-point number of 32 bits.
    F32(f32),
    /// A floating-point number of 64 bits.
    F64(f64),
    /// UTF-8 text.
    Text(&'a str),
    /// A string of any bytes.
    Bytes(&'a [u8]),
    /// A date: days since 1970-01-01.
    Date(i32),
    /// An instant: units since 1970-01-01T00:00:00Z.
    Timestamp(i64, TimeUnit),
    /// A decimal number: an integer, divided by 10 to the power of `scale`.
    Decimal {
        /// The integer.
        unscaled: i128,
        /// The number of digits after the decimal point.
        scale: u8,
    },
    /// A list.
    List(List<'a>),
    /// A list of texts.
    TextList(TextList<'a>),
}

impl<'a> Value<'a> {
    /// Returns the value of a type of fixed length in its little-endian encoding: a number, a date, a timestamp, a
    /// decimal, or a list of a fixed length. Returns `None` if the type has no fixed length, or if `bytes` has another
    /// length.
    ///
    /// # Example
    /// ```
    /// use zero_kv::typed::{ColumnType, Value};
    ///
    /// assert_eq!(Value::from_fixed_bytes(ColumnType::I16, &[1, 2]), Some(Value::Int(513)));
    /// assert_eq!(Value::from_fixed_bytes(ColumnType::I16, &[1]), None);
    /// ```
    pub fn from_fixed_bytes(column_type: ColumnType, bytes: &'a [u8]) -> Option<Value<'a>> {
        (column_type.fixed_len_bytes() == Some(bytes.len())).then(|| scalar(column_type, bytes))
    }
}

impl Value<'_> {
    /// Returns the encoding of a number, a date, a timestamp, or a decimal. A column has the first bytes of it, as many
    /// as its width: if the value fits the column's type, the other bytes only extend the sign.
    pub(super) fn fixed_bytes(&self) -> [u8; 16] {
        match self {
            Value::Int(value) | Value::Timestamp(value, _) => i128::from(*value),
            Value::Uint(value) => i128::from(*value),
            Value::Decimal { unscaled, .. } => *unscaled,
            Value::Date(value) => i128::from(*value),
            Value::F32(value) => i128::from(value.to_bits()),
            Value::F64(value) => i128::from(value.to_bits()),
            Value::Null | Value::Bool(_) | Value::Text(_) | Value::Bytes(_) | Value::List(_) | Value::TextList(_) => {
                unreachable!("these values are not of fixed width")
            }
        }
        .to_le_bytes()
    }
}

/// A list of elements of one type, in their little-endian encoding.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct List<'a> {
    element: ElementType,
    bytes: &'a [u8],
}

impl<'a> List<'a> {
    /// Returns the list with these encoded elements, or `None` if the length of `bytes` is not a multiple of the length
    /// of an element.
    pub fn new(element: ElementType, bytes: &'a [u8]) -> Option<List<'a>> {
        bytes.len().is_multiple_of(element.len_bytes()).then_some(List { element, bytes })
    }

    /// Returns the type of the elements.
    pub fn element(&self) -> ElementType {
        self.element
    }

    /// Returns the encoded elements, little-endian. In a mapped file, they are aligned to the length of an element.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.element.len_bytes()
    }

    /// Returns whether the list has no elements.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the list of the elements in a range of positions.
    ///
    /// # Panics
    /// If the list does not have all these elements.
    #[cfg(any(feature = "bake", feature = "server"))]
    pub(super) fn part(&self, range: std::ops::Range<usize>) -> List<'a> {
        let len_bytes = self.element.len_bytes();
        List { element: self.element, bytes: &self.bytes[range.start * len_bytes..range.end * len_bytes] }
    }

    /// Returns an iterator over the elements.
    pub fn iter(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let element = self.element.column_type();
        self.bytes.chunks_exact(self.element.len_bytes()).map(move |bytes| scalar(element, bytes))
    }
}

impl fmt::Debug for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Returns the value of a type of fixed length, except lists, in the encoding of `bytes`.
///
/// # Panics
/// If `bytes` does not have the length of the type.
pub(super) fn scalar<'a>(column_type: ColumnType, bytes: &'a [u8]) -> Value<'a> {
    /// Calls a conversion with the bytes as an array.
    macro_rules! read {
        ($type:ty) => {
            <$type>::from_le_bytes(bytes.try_into().expect("the layout has the length of the type"))
        };
    }
    macro_rules! read_scalar {
        ([] $($variant:ident $number:ident $value:ident),*) => {
            match column_type {
                $(ColumnType::$variant => Value::$value(read!($number).into()),)*
                ColumnType::Date => Value::Date(read!(i32)),
                ColumnType::Timestamp(unit) => Value::Timestamp(read!(i64), unit),
                ColumnType::Decimal { scale, .. } => {
                    let unscaled = if bytes.len() == size_of::<i64>() { read!(i64).into() } else { read!(i128) };
                    Value::Decimal { unscaled, scale }
                }
                ColumnType::List { element, .. } => Value::List(List { element, bytes }),
                ColumnType::Bool | ColumnType::Text | ColumnType::Bytes | ColumnType::TextList => {
                    unreachable!("these types have no fixed length")
                }
            }
        };
    }
    for_each_number!(read_scalar)
}

/// Returns whether a value can be stored in a column of this type. Null can be stored in any nullable column.
pub(super) fn fits(value: &Value<'_>, column_type: ColumnType) -> bool {
    match (column_type, value) {
        (ColumnType::Bool, Value::Bool(_))
        | (ColumnType::F32, Value::F32(_))
        | (ColumnType::F64, Value::F64(_) | Value::F32(_))
        | (ColumnType::Text, Value::Text(_))
        | (ColumnType::Bytes, Value::Bytes(_))
        | (ColumnType::Date, Value::Date(_))
        | (ColumnType::TextList, Value::TextList(_)) => true,
        (ColumnType::Timestamp(unit), Value::Timestamp(_, found)) => unit == *found,
        (ColumnType::Decimal { precision, scale }, Value::Decimal { unscaled, scale: found }) => {
            scale == *found && has_digits_at_most(*unscaled, precision)
        }
        (ColumnType::List { element, len }, Value::List(list)) => {
            list.element == element && len.is_none_or(|len| list.len() == len as usize)
        }
        (integer_type, value) => {
            let integer = match value {
                Value::Int(value) => i128::from(*value),
                Value::Uint(value) => i128::from(*value),
                _ => return false,
            };
            macro_rules! fits_integer {
                (@fits Int $number:ident) => { $number::try_from(integer).is_ok() };
                (@fits Uint $number:ident) => { $number::try_from(integer).is_ok() };
                (@fits $float:ident $number:ident) => { false };
                ([] $($variant:ident $number:ident $value:ident),*) => {
                    match integer_type {
                        $(ColumnType::$variant => fits_integer!(@fits $value $number),)*
                        _ => false,
                    }
                };
            }
            for_each_number!(fits_integer)
        }
    }
}
