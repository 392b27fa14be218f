//! The text of cells: what CSV files, Redis replies, and the tools contain.
//!
//! | type | text | also parsed |
//! |---|---|---|
//! | `bool` | `true`, `false` | `1`, `0`, any case |
//! | integers | decimal digits, with a sign if negative | a leading `+` |
//! | `f32`, `f64` | the shortest text that is read back as the same number; `NaN`, `inf`, `-inf` | any decimal number |
//! | `text`, `bytes` | the bytes | |
//! | `date` | `2026-11-21` | |
//! | `timestamp` | `2026-11-21T19:09:38.000Z`, with 3, 6, or 9 decimal places, depending on the unit | other offsets; no offset, which means UTC; a space for `T`; fewer decimal places |
//! | `decimal` | all digits of its scale, `-12.50` | fewer decimal places |
//! | `list` | a JSON array: `[1.5,2]`; dates and timestamps are quoted | white space between elements |
//!
//! The text of null is empty.

use std::io::Write;
use std::ops::Range;

use super::cell::{List, Value, fits};
use super::types::{ColumnType, ElementType, TimeUnit};

const SECONDS_PER_DAY: i64 = 24 * 60 * 60;
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
        Value::Timestamp(units, unit) => write_timestamp(*units, *unit, to),
        Value::Decimal { unscaled, scale } => write_decimal(*unscaled, (*scale).into(), to),
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

fn write_date(days: i64, to: &mut Vec<u8>) -> std::io::Result<()> {
    let Date { year, month, day } = Date::from_days(days);
    match year {
        0..=9999 => write!(to, "{year:04}-{month:02}-{day:02}"),
        // As in ISO 8601, a year with another number of digits has a sign.
        _ => write!(to, "{year:+05}-{month:02}-{day:02}"),
    }
}

fn write_timestamp(units: i64, unit: TimeUnit, to: &mut Vec<u8>) -> std::io::Result<()> {
    let per_second = unit.per_second();
    let (seconds, fraction) = (units.div_euclid(per_second), units.rem_euclid(per_second));
    write_date(seconds.div_euclid(SECONDS_PER_DAY), to)?;
    let of_day = seconds.rem_euclid(SECONDS_PER_DAY);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let digits = per_second.ilog10() as usize;
    write!(to, "T{hour:02}:{minute:02}:{second:02}.{fraction:0digits$}Z")
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
        ColumnType::Text | ColumnType::Bytes | ColumnType::List { len: None, .. } => return None,
    })
}

/// Returns the maximum length of the text of a list's element, with its quotes and a comma.
#[cfg(feature = "server")]
pub(crate) fn element_len_max_bytes(element: ElementType) -> usize {
    "\"\",".len() + text_len_max_bytes(element.column_type()).unwrap_or(0)
}

/// Parses the texts of cells, one after another. Keeps the buffer for the elements of lists.
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
                list.ok_or(TextFault("a list of the column's length"))
            }
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
        ColumnType::F32 => text.parse().map(Value::F32).map_err(|_| TextFault("a number, NaN, inf, or -inf")),
        ColumnType::F64 => text.parse().map(Value::F64).map_err(|_| TextFault("a number, NaN, inf, or -inf")),
        ColumnType::Date => date(text)
            .and_then(|days| i32::try_from(days).ok())
            .map(Value::Date)
            .ok_or(TextFault("a date, such as 2026-11-21")),
        ColumnType::Timestamp(unit) => timestamp(text, unit)
            .map(|units| Value::Timestamp(units, unit))
            .ok_or(TextFault("a time with at most the decimal places of the column, such as 2026-11-21T19:09:38.5Z")),
        ColumnType::Decimal { scale, .. } => decimal(text, scale)
            .map(|unscaled| Value::Decimal { unscaled, scale })
            .filter(|value| fits(value, column_type))
            .ok_or(TextFault("a decimal number with at most the digits of the column")),
        ColumnType::Text | ColumnType::Bytes | ColumnType::List { .. } => {
            unreachable!("these types have their own parsers")
        }
    }
}

/// Parses a date. A year has four digits, or a sign and at least four digits.
fn date(text: &str) -> Option<i64> {
    let (rest, day) = text.rsplit_once('-')?;
    let (year, month) = rest.rsplit_once('-')?;
    let is_signed = year.starts_with(['+', '-']);
    let year_digits = year.trim_start_matches(['+', '-']);
    let is_year = if is_signed { year_digits.len() >= 4 } else { year_digits.len() == 4 };
    let are_digits = [year_digits, month, day].iter().all(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    if !is_year || month.len() != 2 || day.len() != 2 || !are_digits || year.len() > year_digits.len() + 1 {
        return None;
    }
    Date { year: year.parse().ok()?, month: month.parse().ok()?, day: day.parse().ok()? }.days()
}

/// Parses a time with a date, in RFC 3339 or with a space between date and time. The offset may be missing, which means
/// UTC.
fn timestamp(text: &str, unit: TimeUnit) -> Option<i64> {
    let at = text.find(['T', 't', ' '])?;
    let days = date(&text[..at])?;
    let time = &text[at + 1..];
    let (time, offset_minutes) = match time.find(['Z', 'z', '+', '-']) {
        None => (time, 0),
        Some(at) if time[at..].eq_ignore_ascii_case("z") => (&time[..at], 0),
        Some(at) => (&time[..at], offset(&time[at..])?),
    };
    let (whole, fraction) = time.split_once('.').map_or((time, ""), |(whole, fraction)| (whole, fraction));
    if time.len() > whole.len() && fraction.is_empty() {
        return None;
    }
    let (hour, minute, second) = match whole.split(':').collect::<Vec<_>>()[..] {
        [hour, minute] => (two_digits(hour, 23)?, two_digits(minute, 59)?, 0),
        [hour, minute, second] => (two_digits(hour, 23)?, two_digits(minute, 59)?, two_digits(second, 59)?),
        _ => return None,
    };
    let seconds = i128::from(days) * i128::from(SECONDS_PER_DAY)
        + i128::from(hour * 3600 + minute * 60 + second - offset_minutes * 60);
    let digits = unit.per_second().ilog10() as u8;
    let fraction = if fraction.is_empty() { 0 } else { decimal(&format!("0.{fraction}"), digits)? };
    i64::try_from(seconds * i128::from(unit.per_second()) + fraction).ok()
}

/// Parses an offset from UTC, `+01:30` or `+0130`, in minutes.
fn offset(text: &str) -> Option<i64> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'+' => (1, &text[1..]),
        _ => (-1, &text[1..]),
    };
    let (hour, minute) = match rest.split_once(':') {
        Some(parts) => parts,
        None => rest.split_at_checked(2)?,
    };
    Some(sign * (two_digits(hour, 23)? * 60 + two_digits(minute, 59)?))
}

fn two_digits(text: &str, max: i64) -> Option<i64> {
    let are_digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| are_digits && *number <= max)
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
        let is_quoted = matches!(element, ElementType::Date | ElementType::Timestamp(_));
        let part = match is_quoted {
            true => part.strip_prefix('"').and_then(|part| part.strip_suffix('"')).ok_or(EXPECTED)?,
            false => part,
        };
        let value = parse_scalar(element.column_type(), part)?;
        let encoded = value.fixed_bytes();
        elements.extend_from_slice(&encoded[..element.len_bytes()]);
    }
    Ok(())
}

/// The number of days in 400 years, after which the calendar repeats.
const DAYS_PER_ERA: i64 = 146_097;
/// The number of days from 0000-03-01 to 1970-01-01.
const DAYS_TO_1970: i64 = 719_468;

/// A date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Date {
    pub(super) year: i64,
    /// 1 to 12.
    pub(super) month: i64,
    /// 1 to 31.
    pub(super) day: i64,
}

impl Date {
    /// Returns the date that is a number of days after 1970-01-01. The number must be one that an `i64` of milliseconds
    /// can express.
    pub(super) fn from_days(days: i64) -> Date {
        // A year begins in March here, so that the leap day is its last day.
        let days = days + DAYS_TO_1970;
        let (era, day_of_era) = (days.div_euclid(DAYS_PER_ERA), days.rem_euclid(DAYS_PER_ERA));
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        // From March on, each five months have 153 days.
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        Date { year: era * 400 + year_of_era + i64::from(month <= 2), month, day }
    }

    /// Returns the number of days from 1970-01-01 to this date. Returns `None` if the calendar has no such date, or if
    /// the year is beyond ±300 million.
    pub(super) fn days(self) -> Option<i64> {
        let Date { year, month, day } = self;
        if year.abs() > 300_000_000 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return None;
        }
        let year_from_march = year - i64::from(month <= 2);
        let (era, year_of_era) = (year_from_march.div_euclid(400), year_from_march.rem_euclid(400));
        let month_from_march = (month + 9) % 12;
        let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        let days = era * DAYS_PER_ERA + day_of_era - DAYS_TO_1970;
        // A day such as February 30 is another date.
        (Date::from_days(days) == self).then_some(days)
    }
}

#[cfg(test)]
mod tests {
    use super::super::encode::tests::{lists, value_of};
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
            ("list(date)", &["[2026-11-21]"]),
        ] {
            for text in texts {
                assert!(parse(name, text).is_err(), "{name} {text:?}: {:?}", parse(name, text));
            }
        }
        assert_eq!(TextParser::default().parse(ColumnType::Text, b"\xff"), Err(TextFault("UTF-8 text")));
        assert_eq!(parse("i8", "128"), Err("an integer from -128 to 127"));
    }

    #[test]
    fn dates_follow_each_other_and_are_read_back() {
        let month_days = |year: i64, month: i64| match month {
            2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        let (mut date, first) = (Date { year: -801, month: 1, day: 1 }, -1_012_087);
        for days in first..first + 1_200_000 {
            assert_eq!((Date::from_days(days), date.days()), (date, Some(days)));
            date.day += 1;
            if date.day > month_days(date.year, date.month) {
                assert_eq!(date.days(), None, "{date:?}");
                date = Date { day: 1, month: date.month % 12 + 1, year: date.year + i64::from(date.month == 12) };
            }
        }
        assert_eq!(Date::from_days(0), Date { year: 1970, month: 1, day: 1 });
        for days in [i32::MIN, i32::MAX] {
            assert_eq!(Date::from_days(days.into()).days(), Some(days.into()));
        }
    }
}
