//! Infers the types of columns from the first rows of an input.
//!
//! A column of text gets the first of these types that all its values have: `i64`, `f64`, `bool`, `date`, `timestamp`,
//! `timestamp(ns)`, and otherwise `text`. A column of JSON Lines can also become `list(i64)` or `list(f64)`, with a length
//! if all lists have the same length, at least 2, or `list(text)`. A number with a leading zero or plus sign is text, because a number would lose this character. An integer that is too large
//! to be exact in a column of numbers is text, too. A column can be null if one of the first rows has no value in it.

use memchr::{memchr, memchr_iter};

use crate::typed::{Column, ColumnType, ElementType, TextParser, TimeUnit, Value};

/// The length of the part of an input from which types are inferred: the first row, and all rows that end within this
/// length. The length does not depend on the memory of the bake, so that the same rows give the same types.
pub(in crate::bake) const INFERENCE_LEN_BYTES: usize = 1 << 20;

/// The types that can be inferred, in the order of preference. They are followed by text.
const CANDIDATES: [ColumnType; 9] = [
    ColumnType::I64,
    ColumnType::F64,
    ColumnType::Bool,
    ColumnType::Date,
    ColumnType::Timestamp(TimeUnit::Micros),
    ColumnType::Timestamp(TimeUnit::Nanos),
    ColumnType::List { element: ElementType::I64, len: None },
    ColumnType::List { element: ElementType::F64, len: None },
    ColumnType::TextList,
];
const LISTS: std::ops::Range<usize> = 6..9;
/// The largest integer up to which all integers are 64-bit floats.
const F64_INTEGER_MAX: u64 = 1 << 53;

/// The lowest length that is inferred. A list of one element is rather a list that happens to have one.
pub(in crate::bake) const LIST_LEN_MIN: usize = 2;

/// The length of all lists of a column so far.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::bake) enum ListLen {
    #[default]
    Unknown,
    One(usize),
    Different,
}

impl ListLen {
    /// Notes the length of a list.
    pub(in crate::bake) fn add(&mut self, len: usize) {
        *self = match *self {
            ListLen::Unknown => ListLen::One(len),
            ListLen::One(other) if other == len => *self,
            _ => ListLen::Different,
        }
    }

    /// Returns the length of all lists, if it can be the length of a type.
    pub(in crate::bake) fn of_all(self) -> Option<u32> {
        match self {
            ListLen::One(len) if len >= LIST_LEN_MIN => len.try_into().ok(),
            _ => None,
        }
    }
}

/// The types that fit all values of a column so far.
#[derive(Clone, Debug)]
pub(in crate::bake) struct Inference {
    fits: [bool; CANDIDATES.len()],
    /// Whether a row has no value.
    has_empty: bool,
    has_value: bool,
    /// Whether a value has a digit. `NaN` and `inf` alone do not make a column of numbers.
    has_digit: bool,
    list_len: ListLen,
    parser: TextParser,
}

impl Inference {
    pub(in crate::bake) fn new() -> Inference {
        let fits = [true; CANDIDATES.len()];
        Inference {
            fits,
            has_empty: false,
            has_value: false,
            has_digit: false,
            list_len: ListLen::default(),
            parser: TextParser::default(),
        }
    }

    /// Notes a row without a value.
    pub(in crate::bake) fn add_empty(&mut self) {
        self.has_empty = true;
    }

    /// Notes the field of a text format. An empty field is no value.
    pub(in crate::bake) fn add_text(&mut self, text: &[u8]) {
        match text.is_empty() {
            true => self.add_empty(),
            false => self.add(text, |candidate| !LISTS.contains(&candidate)),
        }
    }

    pub(in crate::bake) fn add_json(&mut self, json: &str) {
        match json.as_bytes()[0] {
            b'n' => self.add_empty(),
            b'"' => {
                let inside = &json.as_bytes()[1..json.len() - 1];
                let is_plain = memchr(b'\\', inside).is_none();
                self.add(inside, |candidate| is_plain && (3..LISTS.start).contains(&candidate));
            }
            b't' | b'f' => self.add(json.as_bytes(), |candidate| CANDIDATES[candidate] == ColumnType::Bool),
            b'[' => {
                self.add(json.as_bytes(), |candidate| LISTS.contains(&candidate));
                // No element of a list of numbers contains a comma.
                let commas = memchr_iter(b',', json.as_bytes()).count();
                let is_empty = json[1..json.len() - 1].trim_ascii().is_empty();
                self.list_len.add(if is_empty { 0 } else { commas + 1 });
            }
            _ => self.add(json.as_bytes(), |candidate| candidate < 2),
        }
    }

    fn add(&mut self, text: &[u8], is_possible: impl Fn(usize) -> bool) {
        self.has_value = true;
        self.has_digit |= text.iter().any(u8::is_ascii_digit);
        for (i, candidate) in CANDIDATES.into_iter().enumerate() {
            self.fits[i] = self.fits[i] && is_possible(i) && has_type(&mut self.parser, candidate, text);
        }
    }

    /// Returns the column with the inferred type.
    pub(in crate::bake) fn column(&self, name: String) -> Column {
        let is_float =
            |column_type| matches!(column_type, ColumnType::F64 | ColumnType::List { element: ElementType::F64, .. });
        let fits = |i: &usize| self.fits[*i] && (self.has_digit || !is_float(CANDIDATES[*i]));
        let found = (0..CANDIDATES.len()).find(fits).filter(|_| self.has_value);
        let column_type = match found.map_or(ColumnType::Text, |i| CANDIDATES[i]) {
            ColumnType::List { element, .. } => ColumnType::List { element, len: self.list_len.of_all() },
            other => other,
        };
        Column { name, column_type, is_nullable: self.has_empty || !self.has_value }
    }
}

fn has_type(parser: &mut TextParser, column_type: ColumnType, text: &[u8]) -> bool {
    let is_number = matches!(column_type, ColumnType::I64 | ColumnType::F64);
    if is_number && !is_usual_number(text) {
        return false;
    }
    match parser.parse(column_type, text) {
        Ok(Value::F64(_)) => is_exact(text),
        Ok(Value::List(list)) if list.element() == ElementType::F64 => {
            text.split(|byte| matches!(byte, b'[' | b']' | b',')).all(|text| is_exact(text.trim_ascii()))
        }
        Ok(_) => true,
        Err(_) => false,
    }
}

/// Returns whether the text of a number begins as a number is usually written: without a plus sign, and without leading
/// zeros.
fn is_usual_number(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    !matches!(digits, [b'+', ..] | [b'0', b'0'..=b'9', ..])
}

/// Returns whether a float can represent a number exactly, if the text is an integer. A text that is not an integer is
/// a float anyway.
fn is_exact(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    if !digits.iter().all(u8::is_ascii_digit) || digits.is_empty() {
        return true;
    }
    let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
    number.is_some_and(|number: u64| number <= F64_INTEGER_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_texts(texts: &[&str]) -> String {
        let mut inference = Inference::new();
        texts.iter().for_each(|text| inference.add_text(text.as_bytes()));
        inference.column("a".to_owned()).to_string()
    }

    fn of_json(values: &[&str]) -> String {
        let mut inference = Inference::new();
        values.iter().for_each(|value| inference.add_json(value));
        inference.column("a".to_owned()).to_string()
    }

    #[test]
    fn the_first_type_that_all_values_have_is_inferred() {
        for (texts, expected) in [
            (&["1", "-2"][..], "a:i64"),
            (&["1", "-2.5", "1e3"], "a:f64"),
            (&["1", "NaN", "-inf"], "a:f64"),
            (&["1", ""], "a:i64?"),
            (&["true", "FALSE"], "a:bool"),
            (&["2026-11-21", ""], "a:date?"),
            (&["2026-11-21T19:09:38Z"], "a:timestamp(us)"),
            (&["2026-11-21 19:09:38.123456789"], "a:timestamp(ns)"),
            (&["1", "one"], "a:text"),
            (&["[1,2]"], "a:text"),
            (&["NaN", "inf"], "a:text"),
            (&["007"], "a:text"),
            (&["00.7"], "a:text"),
            (&["0", "0.7", "-0.5"], "a:f64"),
            (&["+49"], "a:text"),
            (&["18446744073709551615"], "a:text"),
            (&["9007199254740993", "0.5"], "a:text"),
            (&["", ""], "a:text?"),
            (&[], "a:text?"),
            (&["2026-11-21", "2026-11-21T19:09:38Z"], "a:text"),
        ] {
            assert_eq!(of_texts(texts), expected, "{texts:?}");
        }
    }

    #[test]
    fn json_values_keep_their_types() {
        for (values, expected) in [
            (&["1", "null"][..], "a:i64?"),
            (&["1", "1.0"], "a:f64"),
            (&["\"1\""], "a:text"),
            (&["true", "false"], "a:bool"),
            (&["true", "1"], "a:text"),
            (&["\"2026-11-21\""], "a:date"),
            (&["\"2026-11-21T19:09:38Z\""], "a:timestamp(us)"),
            (&["[1,2]", "[]"], "a:list(i64)"),
            (&["[1,2]", "[0.5]"], "a:list(f64)"),
            (&["[1,2]", "[ 3 , 0.5 ]", "null"], "a:list(f64,2)?"),
            (&["[1]", "[2]"], "a:list(i64)"),
            (&["[]", "[ ]"], "a:list(i64)"),
            (&["[9007199254740993,0.5]"], "a:text"),
            (&["[\"a\"]", "[]"], "a:list(text)"),
            (&["[\"a\"]", "[1]"], "a:text"),
            (&["[\"a\",null]"], "a:text"),
            (&["[0.5,null]", "[\"NaN\",\"-inf\"]"], "a:list(f64,2)"),
            (&["[null]"], "a:text"),
            (&["[\"NaN\"]"], "a:list(text)"),
            (&["[\"1\",\"2\"]"], "a:list(text)"),
            (&["[[1]]"], "a:text"),
            (&["{}"], "a:text"),
            (&["\"\""], "a:text"),
        ] {
            assert_eq!(of_json(values), expected, "{values:?}");
        }
    }
}
