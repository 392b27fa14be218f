//! The text of cells: what CSV files, Redis replies, and the tools contain.
//!
//! | type | text | also parsed |
//! |---|---|---|
//! | `bool` | `true`, `false` | `1`, `0`, any case |
//! | integers | decimal digits, with a sign if negative | a leading `+` |
//! | `f32`, `f64` | the shortest text that is read back as the same number; `NaN`, `inf`, `-inf` | any decimal number in the range of the type; an integer without a point and an exponent only if the type has exactly this number, or this is the text of a number |
//! | `text`, `bytes` | the bytes | |
//! | `date` | `2026-11-21` | |
//! | `timestamp` | `2026-11-21T19:09:38.000Z`, with 3, 6, or 9 decimal places, depending on the unit | other offsets; no offset, which means UTC; a space for `T`; fewer decimal places |
//! | `decimal` | all digits of its scale, `-12.50` | fewer decimal places |
//! | `list` | a JSON array: `[1.5,2]`; dates and timestamps are quoted | white space between elements; for NaN, `null`; quotes around `NaN`, `inf`, and `-inf` |
//! | `list(text)` | a JSON array of strings | any white space and escapes |
//!
//! The text of null is empty.

use std::io::Write;
use std::ops::Range;

use super::cell::{List, Value, fits};
use super::text_list::TextList;
use super::types::{ColumnType, ElementType};
use crate::calendar::{parse_date, parse_instant, write_date, write_instant};

/// Floats with an absolute value from this number on have an exponent in their text.
const EXPONENT_FROM: f64 = 1e16;
/// Floats with an absolute value below this number have an exponent in their text, except 0.
const EXPONENT_BELOW: f64 = 1e-5;

/// Appends the text of a value.
pub fn write_text(value: &Value<'_>, to: &mut Vec<u8>) {
    let written = match value {
        Value::Null => Ok(()),
        Value::Bool(value) => write!(to, "{value}"),
        Value::Int(value) => to.write_all(itoa::Buffer::new().format(*value).as_bytes()),
        Value::Uint(value) => to.write_all(itoa::Buffer::new().format(*value).as_bytes()),
        Value::F32(value) if has_exponent(f64::from(*value)) => write!(to, "{value:e}"),
        Value::F32(value) => write!(to, "{value}"),
        Value::F64(value) if has_exponent(*value) => write!(to, "{value:e}"),
        Value::F64(value) => write!(to, "{value}"),
        Value::Text(text) => to.write_all(text.as_bytes()),
        Value::Bytes(bytes) => to.write_all(bytes),
        Value::Date(days) => write_date((*days).into(), to),
        Value::Timestamp(units, unit) => {
            let per_second = unit.per_second();
            write_instant(units.div_euclid(per_second), units.rem_euclid(per_second), unit.digits(), to);
            Ok(())
        }
        Value::Decimal { unscaled, scale } => write_decimal(*unscaled, (*scale).into(), to),
        Value::TextList(list) => to.write_all(list.as_json().as_bytes()),
        Value::List(list) => {
            to.push(b'[');
            write_elements(list, 0..list.len(), to);
            to.push(b']');
            Ok(())
        }
    };
    written.expect("writes to a vector do not fail");
}

/// Appends a part of the text of a list: the elements in a range of positions, each except the first of the list after
/// a comma. The text of the list is these elements in brackets.
///
/// # Panics
/// If the list does not have all these elements.
pub(crate) fn write_elements(list: &List<'_>, range: Range<usize>, to: &mut Vec<u8>) {
    let is_quoted = matches!(list.element(), ElementType::Date | ElementType::Timestamp(_));
    let quote: &[u8] = if is_quoted { b"\"" } else { b"" };
    for (i, element) in range.clone().zip(list.part(range).iter()) {
        to.extend_from_slice(if i == 0 { b"" } else { b"," });
        to.extend_from_slice(quote);
        write_text(&element, to);
        to.extend_from_slice(quote);
    }
}

fn has_exponent(value: f64) -> bool {
    let size = value.abs();
    size.is_finite() && size != 0.0 && !(EXPONENT_BELOW..EXPONENT_FROM).contains(&size)
}

fn write_decimal(unscaled: i128, scale: usize, to: &mut Vec<u8>) -> std::io::Result<()> {
    let sign = if unscaled < 0 { "-" } else { "" };
    let per_whole = 10_u128.pow(scale as u32);
    let (whole, fraction) = (unscaled.unsigned_abs() / per_whole, unscaled.unsigned_abs() % per_whole);
    match scale {
        0 => write!(to, "{sign}{whole}"),
        _ => write!(to, "{sign}{whole}.{fraction:0scale$}"),
    }
}

/// Returns the maximum length of the text of a cell, or `None` if it depends on the length of the cell's data.
#[cfg(feature = "server")]
pub(crate) fn text_len_max_bytes(column_type: ColumnType) -> Option<usize> {
    Some(match column_type {
        ColumnType::Bool => "false".len(),
        ColumnType::I8 | ColumnType::U8 => "-128".len(),
        ColumnType::I16 | ColumnType::U16 => "-32768".len(),
        ColumnType::I32 | ColumnType::U32 => "-2147483648".len(),
        ColumnType::I64 | ColumnType::U64 => "-9223372036854775808".len(),
        ColumnType::F32 => "-9999999000000000".len(),
        ColumnType::F64 => "-0.000012345678901234567".len(),
        ColumnType::Date => "+5881580-07-11".len(),
        ColumnType::Timestamp(_) => "+292278994-08-17T07:12:55.807000000Z".len(),
        // A sign, a zero, and a point precede the digits at most.
        ColumnType::Decimal { precision, .. } => "-0.".len() + usize::from(precision),
        ColumnType::List { element, len: Some(len) } => "[]".len() + len as usize * element_len_max_bytes(element),
        ColumnType::Text | ColumnType::Bytes | ColumnType::TextList | ColumnType::List { len: None, .. } => {
            return None;
        }
    })
}

/// Returns the maximum length of the text of a list's element, with its quotes and a comma.
#[cfg(feature = "server")]
pub(crate) fn element_len_max_bytes(element: ElementType) -> usize {
    "\"\",".len() + text_len_max_bytes(element.column_type()).unwrap_or(0)
}

/// What is expected instead of a list of another length than the column's.
pub(crate) const LIST_LEN_EXPECTED: &str =
    "a list of the column's length; a type without a length has lists of any length";

/// Parses the texts of cells, one after another. Keeps the buffer for the bytes of lists.
#[derive(Clone, Debug, Default)]
pub struct TextParser {
    elements: Vec<u8>,
}

/// The reason why a text is not a value of a type: what was expected instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextFault(pub &'static str);

impl TextParser {
    /// Parses the text of a value.
    ///
    /// # Errors
    /// [`TextFault`] if the text is not a value of the type.
    pub fn parse<'t>(&'t mut self, column_type: ColumnType, text: &'t [u8]) -> Result<Value<'t>, TextFault> {
        match column_type {
            ColumnType::Bytes => Ok(Value::Bytes(text)),
            ColumnType::Text => std::str::from_utf8(text).map(Value::Text).map_err(|_| TextFault("UTF-8 text")),
            ColumnType::List { element, len } => {
                self.elements.clear();
                list(element, text, &mut self.elements)?;
                let list = List::new(element, &self.elements).map(Value::List);
                let list = list.filter(|list| fits(list, ColumnType::List { element, len }));
                list.ok_or(TextFault(LIST_LEN_EXPECTED))
            }
            ColumnType::TextList => text_list(text, &mut self.elements).map(Value::TextList),
            scalar => parse_scalar(scalar, std::str::from_utf8(text).map_err(|_| TextFault("ASCII text"))?),
        }
    }
}

/// Parses a value of a type that is neither text, nor bytes, nor a list.
fn parse_scalar(column_type: ColumnType, text: &str) -> Result<Value<'static>, TextFault> {
    /// Parses an integer, and rejects a text that is out of the type's range.
    macro_rules! integer {
        ($type:ty, $value:ident, $expected:literal) => {
            text.parse::<$type>().map(|value| Value::$value(value.into())).map_err(|_| TextFault($expected))
        };
    }
    match column_type {
        ColumnType::Bool => match text {
            "1" => Ok(Value::Bool(true)),
            "0" => Ok(Value::Bool(false)),
            _ if text.eq_ignore_ascii_case("true") => Ok(Value::Bool(true)),
            _ if text.eq_ignore_ascii_case("false") => Ok(Value::Bool(false)),
            _ => Err(TextFault("true, false, 1, or 0")),
        },
        ColumnType::I8 => integer!(i8, Int, "an integer from -128 to 127"),
        ColumnType::I16 => integer!(i16, Int, "an integer from -32768 to 32767"),
        ColumnType::I32 => integer!(i32, Int, "an integer from -2147483648 to 2147483647"),
        ColumnType::I64 => integer!(i64, Int, "an integer from -9223372036854775808 to 9223372036854775807"),
        ColumnType::U8 => integer!(u8, Uint, "an integer from 0 to 255"),
        ColumnType::U16 => integer!(u16, Uint, "an integer from 0 to 65535"),
        ColumnType::U32 => integer!(u32, Uint, "an integer from 0 to 4294967295"),
        ColumnType::U64 => integer!(u64, Uint, "an integer from 0 to 18446744073709551615"),
        ColumnType::F32 => {
            let value: f32 = text.parse().map_err(|_| NO_FLOAT)?;
            check_float(text, value.is_infinite(), f32::DIGITS + 1, || [format!("{value:.0}"), value.to_string()])?;
            Ok(Value::F32(value))
        }
        ColumnType::F64 => {
            let value: f64 = text.parse().map_err(|_| NO_FLOAT)?;
            check_float(text, value.is_infinite(), f64::DIGITS, || [format!("{value:.0}"), value.to_string()])?;
            Ok(Value::F64(value))
        }
        ColumnType::Date => parse_date(text)
            .and_then(|days| i32::try_from(days).ok())
            .map(Value::Date)
            .ok_or(TextFault("a date, such as 2026-11-21")),
        ColumnType::Timestamp(unit) => parse_instant(text, unit.digits())
            .map(|units| Value::Timestamp(units, unit))
            .ok_or(TextFault("a time with at most the decimal places of the column, such as 2026-11-21T19:09:38.5Z")),
        ColumnType::Decimal { scale, .. } => decimal(text, scale)
            .map(|unscaled| Value::Decimal { unscaled, scale })
            .filter(|value| fits(value, column_type))
            .ok_or(TextFault("a decimal number with at most the digits of the column")),
        ColumnType::Text | ColumnType::Bytes | ColumnType::List { .. } | ColumnType::TextList => {
            unreachable!("these types have their own parsers")
        }
    }
}

const NO_FLOAT: TextFault = TextFault("a number, NaN, inf, or -inf");

/// Rejects the text of a number that overflows its type, and of an integer that the type rounds. Integers of up to
/// `exact_digits` digits are never rounded. `texts` returns the parsed number with all digits, and its shortest text, in
/// which zeros take the place of the last digits.
fn check_float(
    text: &str,
    is_infinite: bool,
    exact_digits: u32,
    texts: impl Fn() -> [String; 2],
) -> Result<(), TextFault> {
    if is_infinite && text.bytes().any(|byte| byte.is_ascii_digit()) {
        return Err(TextFault("a number in the range of the type"));
    }
    if text.len() <= exact_digits as usize {
        return Ok(());
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(());
    }
    let significant = digits.trim_start_matches('0');
    match significant.is_empty() || texts().iter().any(|text| text.trim_start_matches('-') == significant) {
        true => Ok(()),
        false => Err(TextFault("an integer that the type holds exactly, or a number with a point")),
    }
}

/// Parses a decimal number, and returns the number times 10 to the power of `scale`. Digits beyond the scale must be
/// zero.
fn decimal(text: &str, scale: u8) -> Option<i128> {
    let (is_negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let (kept, dropped) = fraction.split_at_checked(scale.into()).unwrap_or((fraction, ""));
    if dropped.bytes().any(|byte| byte != b'0') {
        return None;
    }
    let zeros = usize::from(scale) - kept.len();
    let mut unscaled = 0_i128;
    for digit in whole.bytes().chain(kept.bytes()).chain(std::iter::repeat_n(b'0', zeros)) {
        if !digit.is_ascii_digit() {
            return None;
        }
        unscaled = unscaled.checked_mul(10)?.checked_add((digit - b'0').into())?;
    }
    Some(if is_negative { -unscaled } else { unscaled })
}

/// Parses a JSON array, and appends its encoded elements.
fn list(element: ElementType, text: &[u8], elements: &mut Vec<u8>) -> Result<(), TextFault> {
    const EXPECTED: TextFault = TextFault("a list, such as [1,2.5]");
    let text = std::str::from_utf8(text).map_err(|_| EXPECTED)?.trim_ascii();
    let inside = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).ok_or(EXPECTED)?;
    if inside.trim_ascii().is_empty() {
        return Ok(());
    }
    for part in inside.split(',') {
        let part = part.trim_ascii();
        let quoted = part.strip_prefix('"').and_then(|part| part.strip_suffix('"'));
        let part = match (element, quoted) {
            (ElementType::Date | ElementType::Timestamp(_), quoted) => quoted.ok_or(EXPECTED)?,
            // JSON has no numbers that are not finite. Programs write them as strings, and NaN also as null.
            (ElementType::F32 | ElementType::F64, None) if part == "null" => "NaN",
            (ElementType::F32 | ElementType::F64, Some(text)) if !text.bytes().any(|byte| byte.is_ascii_digit()) => {
                text
            }
            _ => part,
        };
        let value = parse_scalar(element.column_type(), part)?;
        let encoded = value.fixed_bytes();
        elements.extend_from_slice(&encoded[..element.len_bytes()]);
    }
    Ok(())
}

/// Parses a JSON array of strings. Uses the buffer if the array is not in the form in which lists are stored.
fn text_list<'t>(text: &'t [u8], buffer: &'t mut Vec<u8>) -> Result<TextList<'t>, TextFault> {
    if let Some(list) = TextList::from_bytes(text) {
        return Ok(list);
    }
    let texts: Vec<String> =
        serde_json::from_slice(text).map_err(|_| TextFault("a list of strings, such as [\"a\",\"b\"]"))?;
    Ok(TextList::encode(texts, buffer))
}

#[cfg(test)]
mod tests {
    use super::super::encode::tests::{lists, value_of};
    use super::super::types::TimeUnit;
    use super::super::types::tests::all_types;
    use super::*;

    fn text(value: &Value<'_>) -> String {
        let mut text = Vec::new();
        write_text(value, &mut text);
        String::from_utf8(text).unwrap()
    }

    fn parse(name: &str, text: &str) -> Result<String, &'static str> {
        let column_type: ColumnType = name.parse().unwrap();
        let mut parser = TextParser::default();
        let parsed = parser.parse(column_type, text.as_bytes());
        parsed.map(|value| format!("{value:?}")).map_err(|fault| fault.0)
    }

    #[test]
    fn floats_are_rounded_only_if_their_text_has_a_point_or_an_exponent() {
        for (name, text) in [
            ("f32", "16777216"),
            ("f32", "-016777218"),
            ("f32", "340282346638528859811704183484516925440"),
            ("f32", "16777217.0"),
            ("f32", "522633000"),
            ("f32", "1e-60"),
            ("f32", "3.4028234e38"),
            ("f64", "9007199254740994"),
            ("f64", "+100000000000000000000"),
            ("f64", "0000000000000000000000000"),
            ("f64", "1.7976931348623157e308"),
            ("f64", "0.1000000000000000000000001"),
            ("f64", "inf"),
            ("f32", "-Infinity"),
        ] {
            assert!(parse(name, text).is_ok(), "{name} {text}");
        }
        for (name, text) in [
            ("f32", "16777217"),
            ("f32", "340282346638528859811704183484516925441"),
            ("f32", "3.4028236e38"),
            ("f32", "1e39"),
            ("f64", "9007199254740993"),
            ("f64", "-36028797018963969"),
            ("f64", "1e400"),
            ("f64", "-1.8e308"),
        ] {
            assert!(parse(name, text).is_err(), "{name} {text}");
        }
    }

    #[test]
    fn every_value_is_read_back_from_its_text() {
        let lists = lists();
        let mut parser = TextParser::default();
        for column_type in all_types() {
            for number in 0..500 {
                let value = value_of(column_type, number, &lists);
                let mut text = Vec::new();
                write_text(&value, &mut text);
                let parsed = parser.parse(column_type, &text);
                let shown = String::from_utf8_lossy(&text).into_owned();
                match (&parsed, &value) {
                    // The bytes of a list can be the bits of a float that is not a number.
                    (Ok(Value::List(found)), Value::List(expected)) if shown.contains("NaN") => {
                        assert_eq!(found.len(), expected.len());
                    }
                    _ => assert_eq!(parsed, Ok(value), "{column_type} {shown}"),
                }
            }
        }
    }

    #[test]
    fn texts_are_those_of_the_table_in_the_documentation() {
        let list = [1.5_f32.to_le_bytes(), 2.0_f32.to_le_bytes()].concat();
        let dates = 20_778_i32.to_le_bytes();
        for (value, expected) in [
            (Value::Null, ""),
            (Value::Bool(true), "true"),
            (Value::F32(0.1), "0.1"),
            (Value::F64(1.0), "1"),
            (Value::F64(1e16), "1e16"),
            (Value::F64(-1.5e-7), "-1.5e-7"),
            (Value::F64(f64::NAN), "NaN"),
            (Value::F32(f32::NEG_INFINITY), "-inf"),
            (Value::F64(-0.0), "-0"),
            (Value::Date(20_778), "2026-11-21"),
            (Value::Date(-719_529), "-0001-12-31"),
            (Value::Date(2_932_897), "+10000-01-01"),
            (Value::Timestamp(1_795_288_178_000, TimeUnit::Millis), "2026-11-21T19:09:38.000Z"),
            (Value::Timestamp(-1, TimeUnit::Nanos), "1969-12-31T23:59:59.999999999Z"),
            (Value::Decimal { unscaled: -1250, scale: 2 }, "-12.50"),
            (Value::Decimal { unscaled: 5, scale: 3 }, "0.005"),
            (Value::Decimal { unscaled: 7, scale: 0 }, "7"),
            (Value::List(List::new(ElementType::F32, &list).unwrap()), "[1.5,2]"),
            (Value::List(List::new(ElementType::Date, &dates).unwrap()), "[\"2026-11-21\"]"),
        ] {
            assert_eq!(text(&value), expected, "{value:?}");
        }
    }

    #[test]
    fn other_spellings_are_parsed() {
        for (name, text, expected) in [
            ("bool", "TRUE", "Bool(true)"),
            ("i8", "+7", "Int(7)"),
            ("f64", "1E3", "F64(1000.0)"),
            ("date", "+2026-11-21", "Date(20778)"),
            ("timestamp(ms)", "2026-11-21 19:09:38", "Timestamp(1795288178000, Millis)"),
            ("timestamp(ms)", "2026-11-21T20:09:38.5+01:00", "Timestamp(1795288178500, Millis)"),
            ("timestamp(us)", "2026-11-21T18:09-0100", "Timestamp(1795288140000000, Micros)"),
            ("decimal(4,2)", "-.5", "Decimal { unscaled: -50, scale: 2 }"),
            ("decimal(4,2)", "12.3400", "Decimal { unscaled: 1234, scale: 2 }"),
            ("list(u8)", " [ 1 , 2 ] ", "List([Uint(1), Uint(2)])"),
            ("list(u8)", "[]", "List([])"),
            ("list(f32)", "[1, null, \"NaN\", \"-inf\"]", "List([F32(1.0), F32(NaN), F32(NaN), F32(-inf)])"),
            ("list(f64)", "[null]", "List([F64(NaN)])"),
            ("list(text)", " [ \"a\" , \"\\u0041\\/\\n\" ] ", "TextList([\"a\", \"A/\\n\"])"),
            ("list(text)", "[]", "TextList([])"),
        ] {
            assert_eq!(parse(name, text).as_deref(), Ok(expected), "{name} {text:?}");
        }
    }

    #[test]
    fn texts_that_are_no_values_are_rejected() {
        for (name, texts) in [
            ("bool", &["", "yes", "2"][..]),
            ("i8", &["", "128", "1.0", " 1", "0x1"]),
            ("u64", &["-1", "18446744073709551616"]),
            ("f32", &["", "1,5", "one"]),
            ("text", &[]),
            ("date", &["", "2026-02-29", "2026-13-01", "26-01-01", "2026-1-1", "--2026-01-01", "2026-01-01T00:00:00Z"]),
            (
                "timestamp(ms)",
                &[
                    "2026-11-21",
                    "2026-11-21T24:00:00Z",
                    "2026-11-21T19:09:38.1234Z",
                    "2026-11-21T19:09:38.Z",
                    "2026-11-21T19:09:60Z",
                    "2026-11-21T19:09:38+1",
                    "+999999999-01-01T00:00:00Z",
                ],
            ),
            ("decimal(4,2)", &["", ".", "-", "100.00", "1.001", "1e2", "1.2.3"]),
            ("list(u8)", &["", "1", "[1", "[1,]", "[256]", "[\"1\"]", "[[1]]"]),
            ("list(u8,2)", &["[]", "[1]", "[1,2,3]"]),
            ("list(i64)", &["[null]", "[\"1\"]"]),
            ("list(f64)", &["[\"1\"]", "[\"\"]", "[\"null\"]", "[\"]"]),
            ("list(date)", &["[2026-11-21]"]),
            (
                "list(text)",
                &["", "a", "[a]", "[1]", "[null]", "[\"a\"", "[\"a\",]", "[[\"a\"]]", "{}", "[\"\\ud800\"]"],
            ),
        ] {
            for text in texts {
                assert!(parse(name, text).is_err(), "{name} {text:?}: {:?}", parse(name, text));
            }
        }
        assert_eq!(TextParser::default().parse(ColumnType::Text, b"\xff"), Err(TextFault("UTF-8 text")));
        assert_eq!(parse("i8", "128"), Err("an integer from -128 to 127"));
    }
}
