//! Converts values to other types.
//!
//! A conversion is exact or fails: the converted value has the same meaning, and converting it back gives the same
//! value. Exception: a text can have several spellings of one value, such as `1.50` and `1.5`.
//!
//! | from | to |
//! |---|---|
//! | an integer, a float, a decimal | an integer, a float, or a decimal of the same value |
//! | `date` | a timestamp at midnight |
//! | `timestamp` | a timestamp of another unit; at midnight, a date |
//! | `text`, `bytes` | each other, if the bytes are UTF-8 |
//! | any type | the text of the value |
//! | `text` | the value with this text |
//! | `list` | a list whose elements are converted; `list(text)` becomes only text |

use super::cell::{List, Value, fits};
use super::text::{TextParser, write_text};
use super::types::{ColumnType, TimeUnit};

const SECONDS_PER_DAY: i128 = 24 * 60 * 60;
/// The largest power of 10 that a 64-bit float represents exactly.
const F64_POWER_MAX: u8 = 22;
/// All integers up to this number are 64-bit floats.
const F64_INTEGER_MAX: u128 = 1 << 53;

/// Converts values of one column, one after another. Keeps the buffers of converted texts and lists.
#[derive(Clone, Debug, Default)]
pub struct Caster {
    bytes: Vec<u8>,
    parser: TextParser,
}

impl Caster {
    /// Returns the value as a value of the given type, or `None` if this type has no such value. Null stays null.
    pub fn cast<'v>(&'v mut self, value: Value<'v>, to: ColumnType) -> Option<Value<'v>> {
        if value == Value::Null || fits(&value, to) {
            return Some(value);
        }
        let cast = match (value, to) {
            (Value::Text(text), ColumnType::Bytes) => Value::Bytes(text.as_bytes()),
            (Value::Bytes(bytes), ColumnType::Text) => Value::Text(std::str::from_utf8(bytes).ok()?),
            (Value::Text(text), to) => self.parser.parse(to, text.as_bytes()).ok()?,
            (value, ColumnType::Text) => {
                self.bytes.clear();
                write_text(&value, &mut self.bytes);
                Value::Text(std::str::from_utf8(&self.bytes).ok()?)
            }
            (Value::List(list), ColumnType::List { element, .. }) => {
                self.bytes.clear();
                for value in list.iter() {
                    let cast = cast_scalar(value, element.column_type())?;
                    self.bytes.extend_from_slice(&cast.fixed_bytes()[..element.len_bytes()]);
                }
                Value::List(List::new(element, &self.bytes)?)
            }
            (value, to) => cast_scalar(value, to)?,
        };
        fits(&cast, to).then_some(cast)
    }
}

/// Converts a value that is neither text, nor bytes, nor a list. The result has the type, unless it does not fit.
fn cast_scalar(value: Value<'_>, to: ColumnType) -> Option<Value<'static>> {
    let cast = match (value, to) {
        (Value::Date(days), ColumnType::Timestamp(unit)) => {
            let units = i128::from(days) * SECONDS_PER_DAY * i128::from(unit.per_second());
            Value::Timestamp(i64::try_from(units).ok()?, unit)
        }
        (Value::Timestamp(units, unit), ColumnType::Date) => {
            let per_day = SECONDS_PER_DAY * i128::from(unit.per_second());
            Value::Date(i32::try_from(exact_quotient(units.into(), per_day)?).ok()?)
        }
        (Value::Date(days), ColumnType::Date) => Value::Date(days),
        (Value::Timestamp(units, from), ColumnType::Timestamp(unit)) => {
            Value::Timestamp(i64::try_from(change_unit(units.into(), from, unit)?).ok()?, unit)
        }
        (value, to) => {
            let number = Number::new(value)?;
            match to {
                ColumnType::F32 => {
                    let value = number.float()?;
                    let narrow = value as f32;
                    (f64::from(narrow).to_bits() == value.to_bits() || value.is_nan()).then_some(Value::F32(narrow))?
                }
                ColumnType::F64 => Value::F64(number.float()?),
                ColumnType::Decimal { scale, .. } => Value::Decimal { unscaled: number.unscaled(scale)?, scale },
                _ => {
                    let integer = number.unscaled(0)?;
                    match u64::try_from(integer) {
                        Ok(integer) => Value::Uint(integer),
                        Err(_) => Value::Int(i64::try_from(integer).ok()?),
                    }
                }
            }
        }
    };
    fits(&cast, to).then_some(cast)
}

fn change_unit(units: i128, from: TimeUnit, to: TimeUnit) -> Option<i128> {
    exact_quotient(units * i128::from(to.per_second()), from.per_second().into())
}

fn exact_quotient(dividend: i128, divisor: i128) -> Option<i128> {
    (dividend % divisor == 0).then_some(dividend / divisor)
}

/// A number of any type.
enum Number {
    Float(f64),
    /// An integer, divided by 10 to the power of `scale`.
    Decimal {
        unscaled: i128,
        scale: u8,
    },
}

impl Number {
    fn new(value: Value<'_>) -> Option<Number> {
        Some(match value {
            Value::Int(value) => Number::Decimal { unscaled: value.into(), scale: 0 },
            Value::Uint(value) => Number::Decimal { unscaled: value.into(), scale: 0 },
            Value::Decimal { unscaled, scale } => Number::Decimal { unscaled, scale },
            Value::F32(value) => Number::Float(value.into()),
            Value::F64(value) => Number::Float(value),
            _ => return None,
        })
    }

    /// Returns the number as a float, if there is a float of the same value.
    fn float(&self) -> Option<f64> {
        let (unscaled, scale) = match *self {
            Number::Float(value) => return Some(value),
            Number::Decimal { unscaled, scale } => (unscaled, scale),
        };
        if scale == 0 {
            // The range of a conversion to an integer is limited, but the float of a 128-bit integer is inside it,
            // except for the integers near the maximum. They are not decimals, which have at most 38 digits.
            let value = unscaled as f64;
            return (value as i128 == unscaled).then_some(value);
        }
        if scale > F64_POWER_MAX || unscaled.unsigned_abs() > F64_INTEGER_MAX {
            return None;
        }
        // Both operands are exact. The fused operation is exact before its only rounding, and 0 is never rounded to 0
        // from another value: the residual of a quotient is not below the smallest float.
        let (unscaled, power) = (unscaled as f64, 10_f64.powi(scale.into()));
        let quotient = unscaled / power;
        (quotient.mul_add(power, -unscaled) == 0.0).then_some(quotient)
    }

    /// Returns the number times 10 to the power of `to_scale`, if this is an integer.
    fn unscaled(&self, to_scale: u8) -> Option<i128> {
        match *self {
            Number::Decimal { unscaled, scale } if scale > to_scale => {
                exact_quotient(unscaled, 10_i128.pow((scale - to_scale).into()))
            }
            Number::Decimal { unscaled, scale } => unscaled.checked_mul(10_i128.pow((to_scale - scale).into())),
            // Negative zero would lose its sign.
            Number::Float(value) if value == 0.0 && value.is_sign_negative() => None,
            Number::Float(value) if to_scale == 0 => {
                let integer = value as i128;
                (integer as f64 == value && integer != i128::MAX).then_some(integer)
            }
            Number::Float(value) => {
                let candidate = value * 10_f64.powi(to_scale.into());
                let unscaled = Number::Float(candidate.round()).unscaled(0)?;
                let back = Number::Decimal { unscaled, scale: to_scale }.float()?;
                (back == value).then_some(unscaled)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::encode::tests::{lists, value_of};
    use super::super::types::tests::all_types;
    use super::*;

    /// Converts the text of a value of one type to another type, and returns the text of the result.
    fn cast(from: &str, text: &str, to: &str) -> Option<String> {
        let (mut parser, mut caster, mut shown) = (TextParser::default(), Caster::default(), Vec::new());
        let value = parser.parse(from.parse().unwrap(), text.as_bytes()).unwrap();
        write_text(&caster.cast(value, to.parse().unwrap())?, &mut shown);
        Some(String::from_utf8(shown).unwrap())
    }

    #[test]
    fn values_that_fit_exactly_are_converted() {
        for (from, text, to, expected) in [
            ("i8", "-7", "i64", "-7"),
            ("u64", "255", "u8", "255"),
            ("i64", "9007199254740993", "decimal(18,2)", "9007199254740993.00"),
            ("i64", "9007199254740992", "f64", "9007199254740992"),
            ("f64", "0.5", "f32", "0.5"),
            ("f64", "NaN", "f32", "NaN"),
            ("f64", "-3", "i8", "-3"),
            ("f64", "12.5", "decimal(4,2)", "12.50"),
            ("decimal(4,2)", "12.50", "f64", "12.5"),
            ("decimal(4,2)", "12.50", "decimal(5,1)", "12.5"),
            ("decimal(4,2)", "12.00", "u8", "12"),
            ("date", "2026-11-21", "timestamp(ms)", "2026-11-21T00:00:00.000Z"),
            ("timestamp(ns)", "2026-11-21T00:00:00Z", "date", "2026-11-21"),
            ("timestamp(ms)", "2026-11-21T19:09:38.5Z", "timestamp(ns)", "2026-11-21T19:09:38.500000000Z"),
            ("timestamp(ns)", "2026-11-21T19:09:38.5Z", "timestamp(ms)", "2026-11-21T19:09:38.500Z"),
            ("bytes", "text", "text", "text"),
            ("bool", "true", "text", "true"),
            ("text", "1.5", "f32", "1.5"),
            ("text", "[1,2]", "list(u8,2)", "[1,2]"),
            ("text", "[ \"a\" ]", "list(text)", "[\"a\"]"),
            ("list(text)", "[\"a\"]", "text", "[\"a\"]"),
            ("list(i64)", "[1,2]", "list(f32,2)", "[1,2]"),
            ("list(date)", "[\"2026-11-21\"]", "list(timestamp(ms))", "[\"2026-11-21T00:00:00.000Z\"]"),
        ] {
            assert_eq!(cast(from, text, to).as_deref(), Some(expected), "{from} {text} {to}");
        }
    }

    #[test]
    fn values_that_do_not_fit_exactly_are_not_converted() {
        for (from, text, to) in [
            ("i64", "128", "i8"),
            ("i64", "9007199254740993", "f64"),
            ("u64", "18446744073709551615", "i64"),
            ("u64", "18446744073709551615", "f64"),
            ("f64", "0.1", "f32"),
            ("f64", "1e300", "f32"),
            ("f64", "0.5", "i8"),
            ("f64", "-0", "i8"),
            ("f64", "NaN", "i64"),
            ("f64", "1e39", "i64"),
            ("f64", "0.1", "decimal(38,38)"),
            ("decimal(4,2)", "12.51", "decimal(5,1)"),
            ("decimal(3,2)", "0.10", "f64"),
            ("decimal(38,30)", "0.5", "f64"),
            ("timestamp(ms)", "2026-11-21T00:00:00.001Z", "date"),
            ("timestamp(ns)", "2026-11-21T00:00:00.000000001Z", "timestamp(us)"),
            ("timestamp(ms)", "2500-01-01T00:00:00Z", "timestamp(ns)"),
            ("text", "one", "i8"),
            ("i64", "1", "bool"),
            ("bool", "true", "i8"),
            ("i64", "1", "bytes"),
            ("list(i64)", "[1,300]", "list(u8)"),
            ("list(i64)", "[1]", "list(text)"),
            ("list(text)", "[\"1\"]", "list(i64)"),
            ("list(i64)", "[1]", "list(i64,2)"),
        ] {
            assert_eq!(cast(from, text, to), None, "{from} {text} {to}");
        }
    }

    #[test]
    fn a_converted_value_is_converted_back_to_the_same_value() {
        let lists = lists();
        let (mut forth, mut back, mut count) = (Caster::default(), Caster::default(), 0);
        let types = all_types();
        for from in &types {
            for to in &types {
                for number in 0..20 {
                    let value = value_of(*from, number, &lists);
                    let Some(cast) = forth.cast(value, *to) else { continue };
                    count += 1;
                    let text = |value: &Value<'_>| {
                        let mut text = Vec::new();
                        write_text(value, &mut text);
                        text
                    };
                    let (expected, shown) = (text(&value), format!("{from} {value:?} as {to} {cast:?}"));
                    let found = back.cast(cast, *from).map(|value| text(&value));
                    // A decimal in a float has the shortest text that is read back as the float.
                    assert_eq!(found.as_ref(), Some(&expected), "{shown}");
                }
            }
        }
        assert!(count > 10_000, "{count}");
    }
}
