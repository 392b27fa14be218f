//! JSON objects: one per line (JSON Lines), in a list, or one after the other.
//!
//! If the key or value is a string, its text is used. For any other type, the JSON text is used, unchanged. The key
//! must be a string or a number. Fields that are not chosen must be valid JSON and are skipped. Blank lines are skipped
//! too.
//!
//! The columns of a typed table are fields. Without declared types, they are the fields of the first objects, in the
//! order in which they first occur.

use std::collections::HashMap;
use std::fmt;

use memchr::memchr;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::deletions::DeletionColumns;
use super::json_values::JsonValues;
use super::pack::{Cell, Packer, ValueColumns};
use super::text::{RowRule, TextFormat, TextParser, TextPiece};
use crate::bake::columns::{Column, ColumnsFault, ValueSpec};
use crate::bake::error::{BakeError, Remedy, RowFault};
use crate::bake::keys::{KeyColumns, canonical_decimal, key_name};
use crate::bake::options::Options;
use crate::bake::row::{InputRow, RowSink, is_removed, value_unless_removed};
use crate::bake::typed::infer::{INFERENCE_LEN_BYTES, Inference};
use crate::bake::typed::row_builder::{RowBuilder, unescaped};
use crate::bake::typed::{Selected, TypedPlan};
use crate::bake::warning::Warning;
use crate::typed;

/// The JSON Lines format.
pub(super) struct JsonLinesFormat<'o> {
    pub(super) options: &'o Options,
    pub(super) typed: Option<&'o TypedPlan>,
}

impl TextFormat for JsonLinesFormat<'_> {
    type Parser = JsonLinesParser;

    fn row_rule(&self) -> RowRule {
        RowRule::JSON
    }

    fn skip_lines(&self) -> u64 {
        0
    }

    fn parser(&self, input: &str, first: &mut TextPiece) -> Result<Option<JsonLinesParser>, BakeError> {
        let parser = match self.typed {
            None => JsonLinesParser::new(self.options).map(Some).map_err(|fault| fault.in_input(input))?,
            Some(plan) => JsonLinesParser::typed(self.options, plan, input, first)?,
        };
        first.warnings.extend(self.warning_of_possible_deletions(input, first));
        Ok(parser)
    }
}

impl JsonLinesFormat<'_> {
    /// Returns a warning if a field of the first rows seems to mark deletions.
    fn warning_of_possible_deletions(&self, input: &str, first: &TextPiece) -> Option<Warning> {
        const ROWS: usize = 1000;
        self.options.base.as_ref()?;
        rows(first).take(ROWS).find_map(|row| {
            let fields: HashMap<String, &RawValue> = serde_json::from_slice(row.text).ok()?;
            let columns = fields.iter().map(|(name, value)| (name.clone(), value.get().trim_matches('"')));
            let deletions = DeletionColumns::new(self.options, self.typed, columns);
            deletions.warning(input, |value| Some(value.as_bytes()))
        })
    }
}

/// Parses the pieces of one input.
#[derive(Clone)]
pub(super) struct JsonLinesParser {
    /// The names of all chosen fields, without duplicates.
    fields: Vec<String>,
    /// The positions of the key's fields in `fields`.
    key: KeyColumns,
    /// The position of the end of ranges in `fields`.
    end: Option<usize>,
    value: ValueColumns,
    delete: Option<usize>,
    texts: Texts,
}

/// Buffers for the text of strings that contain escapes.
#[derive(Clone, Default)]
struct Texts {
    key: String,
    end: String,
    value: String,
    delete: String,
}

impl JsonLinesParser {
    /// Returns a parser for the fields that the options choose. If the options choose neither the key field nor the
    /// value field, the fields are `key` and `value`.
    pub(super) fn new(options: &Options) -> Result<Self, ColumnsFault> {
        let mut fields = Vec::new();
        let mut position = |name: String| position(&mut fields, name);
        let (key, value) = match (&options.key, &options.value) {
            (None, ValueSpec::Unnamed) => (position("key".to_owned()), ValueColumns::One(position("value".to_owned()))),
            (Some(_), ValueSpec::Unnamed) => {
                let message = "the key field is chosen: choose the value field as well";
                return Err(ColumnsFault::new(message, &[Remedy::ChooseValue]));
            }
            (None, _) => {
                let message = "the value field is chosen: choose the key field as well";
                return Err(ColumnsFault::new(message, &[Remedy::ChooseKey]));
            }
            (Some(key), ValueSpec::Column(value)) => {
                (position(field_name(key)), ValueColumns::One(position(field_name(value))))
            }
            (Some(key), ValueSpec::Packed(columns)) => {
                let key = position(field_name(key));
                let packed = columns.iter().map(|column| position(field_name(column))).collect();
                (key, ValueColumns::Packed(packed, Packer::new(columns.iter().map(field_name))))
            }
        };
        let delete = options.delete_column.as_ref().map(|column| position(field_name(column)));
        let more_keys = options.more_key_columns.iter().map(|column| position(field_name(column))).collect();
        let end = options.end_column().map(|column| position(field_name(column)));
        let (key, texts) = (KeyColumns::new(key, more_keys), Texts::default());
        Ok(JsonLinesParser { fields, key, end, value, delete, texts })
    }
}

/// Returns the position of a field among the chosen fields, and chooses it if it was not chosen before.
fn position(fields: &mut Vec<String>, name: String) -> usize {
    fields.iter().position(|field| *field == name).unwrap_or_else(|| {
        fields.push(name);
        fields.len() - 1
    })
}

/// A row of a piece: the number of the line on which it begins, its text, and the offset after it.
struct JsonRow<'p> {
    line: u64,
    text: &'p [u8],
    end: usize,
}

/// Returns the rows of a piece, without blank lines.
fn rows(piece: &TextPiece) -> Box<dyn Iterator<Item = JsonRow<'_>> + '_> {
    let bytes = &piece.bytes[..];
    if let Some(is_in_list) = piece.starts_in_list {
        let (mut line, mut counted) = (piece.first_line, 0);
        return Box::new(JsonValues { bytes, at: 0, is_in_list, at_end: true }.map(move |range| {
            line += memchr::memchr_iter(b'\n', &bytes[counted..range.start]).count() as u64;
            counted = range.start;
            JsonRow { line, text: &bytes[range.clone()], end: range.end }
        }));
    }
    let mut end = 0;
    let rows = (piece.first_line..).zip(lines(bytes)).map(move |(line, text)| {
        end += text.len() + 1;
        JsonRow { line, text: text.strip_suffix(b"\r").unwrap_or(text), end: end.min(bytes.len()) }
    });
    Box::new(rows.filter(|row| !row.text.trim_ascii().is_empty()))
}

/// Returns the lines of a piece without their line feeds.
fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(bytes).filter(|bytes| !bytes.is_empty());
    std::iter::from_fn(move || {
        let bytes = rest?;
        let end = memchr(b'\n', bytes).unwrap_or(bytes.len());
        rest = bytes.get(end + 1..).filter(|rest| !rest.is_empty());
        Some(&bytes[..end])
    })
}

impl TextParser for JsonLinesParser {
    fn parse(&mut self, piece: &TextPiece, sink: &mut impl RowSink) -> Result<(), BakeError> {
        let mut found = vec![None; self.fields.len()];
        for JsonRow { line, text, .. } in rows(piece) {
            match self.row(line, text, &mut found) {
                Ok(row) => sink.row(&row)?,
                Err(fault) => sink.bad(line, fault, text)?,
            }
        }
        Ok(())
    }
}

impl JsonLinesParser {
    fn row<'s, 'p: 's>(
        &'s mut self,
        line: u64,
        text: &'p [u8],
        found: &mut [Option<&'p RawValue>],
    ) -> Result<InputRow<'s>, RowFault> {
        found.fill(None);
        let mut twice = None;
        let object = Object { fields: &self.fields, found, twice: &mut twice };
        let mut json = serde_json::Deserializer::from_slice(text);
        if let Err(error) = object.deserialize(&mut json).and_then(|()| json.end()) {
            return Err(match twice {
                Some(field) => RowFault::FieldTwice { field: self.fields[field].clone() },
                None => fault_of(text, &error),
            });
        }
        let Texts { key: key_text, end: end_text, value: value_text, delete: delete_text } = &mut self.texts;
        let missing = |field: usize| RowFault::MissingField { field: self.fields[field].clone() };
        let raw_key = |field: usize| {
            let raw = found[field].ok_or_else(|| missing(field))?;
            match raw.get().as_bytes()[0] {
                b'"' | b'-' | b'0'..=b'9' => Ok(raw),
                first => Err(RowFault::KeyType { column: self.fields[field].clone(), found: kind(first) }),
            }
        };
        let end = self.end.map(|end| content(text, raw_key(end)?, end_text)).transpose()?;
        let key = self.key.text(
            |field| content(text, raw_key(field)?, key_text),
            // A part that has escapes needs a buffer of its own.
            |field| content(text, raw_key(field)?, &mut String::new()).map(<[u8]>::to_vec),
        )?;
        let delete = match self.delete.and_then(|field| found[field]).filter(|raw| raw.get() != "null") {
            Some(raw) => Some(content(text, raw, delete_text)?),
            None => None,
        };
        let value = match &mut self.value {
            ValueColumns::Typed(..) if is_removed(delete) => b"",
            ValueColumns::Typed(fields, rows) => rows.json(text, fields.iter().map(|field| found[(*field)?]))?,
            ValueColumns::Packed(fields, packer) => packer.pack(fields.iter().map(|field| match found[*field] {
                Some(raw) => Cell::Json(raw.get()),
                None => Cell::Null,
            }))?,
            ValueColumns::One(field) => {
                let value = found[*field].map(|raw| content(text, raw, value_text)).transpose()?;
                value_unless_removed(value, delete, || missing(*field))?
            }
        };
        Ok(InputRow { line, key, end, value, delete, text })
    }
}

/// Returns the name of the field that a column selects. Fields of objects have names but no numbers, so the column
/// number 7 selects the field named `7`.
fn field_name(column: &Column) -> String {
    match column {
        Column::Number(number) => number.to_string(),
        Column::Name(name) => name.clone(),
    }
}

/// Returns the unescaped text of a string, or the unchanged JSON text of any other value. A string with escapes is
/// unescaped into the buffer `text`.
fn content<'t>(line: &[u8], raw: &'t RawValue, text: &'t mut String) -> Result<&'t [u8], RowFault> {
    let json = raw.get();
    if json.starts_with('"') { unescaped(line, json, text) } else { Ok(json.as_bytes()) }
}

/// Returns the fault of a row that is not an object, or not JSON.
fn fault_of(text: &[u8], error: &serde_json::Error) -> RowFault {
    let line_at = match error.line() {
        0 | 1 => 0,
        line => memchr::memchr_iter(b'\n', text).nth(line - 2).map_or(0, |line_end| line_end + 1),
    };
    not_an_object(text).unwrap_or_else(|| RowFault::json(error, line_at))
}

/// Returns a fault if a row is JSON but not an object. Returns `None` for any other row.
fn not_an_object(text: &[u8]) -> Option<RowFault> {
    let first = *text.trim_ascii().first()?;
    let is_json = || serde_json::from_slice::<IgnoredAny>(text).is_ok();
    (first != b'{' && is_json()).then(|| RowFault::NotObject { found: kind(first) })
}

/// Returns the type of a JSON value whose text starts with this byte.
fn kind(first: u8) -> &'static str {
    match first {
        b'{' => "an object",
        b'[' => "a list",
        b'"' => "a string",
        b't' | b'f' => "a boolean",
        b'n' => "null",
        _ => "a number",
    }
}

/// Deserializes the chosen fields of an object into `found`. If a chosen field occurs twice, sets `twice` to the
/// field's position among the chosen fields, and fails.
struct Object<'f, 'de> {
    fields: &'f [String],
    found: &'f mut [Option<&'de RawValue>],
    twice: &'f mut Option<usize>,
}

impl<'de> DeserializeSeed<'de> for Object<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Object<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        while let Some(field) = object.next_key_seed(Field(self.fields))? {
            let Some(field) = field else {
                object.next_value::<IgnoredAny>()?;
                continue;
            };
            if self.found[field].replace(object.next_value()?).is_some() {
                *self.twice = Some(field);
                return Err(A::Error::custom("a field twice"));
            }
        }
        Ok(())
    }
}

/// Deserializes the name of a field into its position among the chosen fields.
struct Field<'f>(&'f [String]);

impl<'de> DeserializeSeed<'de> for Field<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<usize>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Field<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Option<usize>, E> {
        Ok(self.0.iter().position(|field| field == name))
    }
}

impl JsonLinesParser {
    /// Returns a parser for the columns of a typed table, or `None` if their types must be inferred and the piece has
    /// no rows.
    pub(super) fn typed(
        options: &Options,
        plan: &TypedPlan,
        input: &str,
        first: &TextPiece,
    ) -> Result<Option<JsonLinesParser>, BakeError> {
        let keys: Vec<String> = options.key_columns().map(field_name).collect();
        if keys.is_empty() {
            let message = "typed columns are chosen: choose the key field as well";
            return Err(ColumnsFault::new(message, &[Remedy::ChooseKey]).in_input(input));
        }
        let key = key_name(keys.iter().map(String::as_str));
        let (delete, end) = (options.delete_column.as_ref().map(field_name), options.end_column().map(field_name));
        let selected = plan.selected(&keys, |column| Ok(field_name(column))).map_err(|fault| fault.in_input(input))?;
        let schema = match selected {
            Selected::Typed(columns) => plan.set(&key, columns, input)?,
            selected => {
                let chosen = if let Selected::Named(names) = selected { Some(names) } else { None };
                match infer(first, chosen, &keys, [delete.as_deref(), end.as_deref()]) {
                    Some((columns, has_text_key)) => plan.set_inferred(&key, columns, has_text_key, input)?,
                    None => return no_objects(first, input).map_or(Ok(None), Err),
                }
            }
        };
        let mut fields = Vec::new();
        let mut keys = keys.into_iter().map(|name| position(&mut fields, name)).collect::<Vec<_>>();
        let key = KeyColumns::new(keys.remove(0), keys);
        let columns = schema.columns().iter();
        let positions = columns.map(|column| Some(position(&mut fields, column.name.clone()))).collect();
        let [delete, end] = [delete, end].map(|name| name.map(|name| position(&mut fields, name)));
        let value = ValueColumns::Typed(positions, Box::new(RowBuilder::new(schema.clone())));
        Ok(Some(JsonLinesParser { fields, key, end, value, delete, texts: Texts::default() }))
    }
}

/// Returns the error for a piece that has rows, but no objects from which types can be inferred.
fn no_objects(piece: &TextPiece, input: &str) -> Option<BakeError> {
    let row = rows(piece).next()?;
    let mut json = serde_json::Deserializer::from_slice(row.text);
    Some(match json.deserialize_map(Fields) {
        Err(error) => BakeError::Row { input: input.to_owned(), line: row.line, fault: fault_of(row.text, &error) },
        // The first objects only remove keys.
        Ok(_) => BakeError::NoTypes,
    })
}

/// Infers the types of the chosen fields, or of all fields except the key, the mark of deletions, and the end of ranges,
/// from the first objects. Also returns whether a key in them is text. Returns `None` if there are no objects.
fn infer(
    piece: &TextPiece,
    chosen: Option<Vec<String>>,
    keys: &[String],
    [delete, end_of_range]: [Option<&str>; 2],
) -> Option<(Vec<typed::Column>, bool)> {
    let takes_all = chosen.is_none();
    let mut columns: Vec<(String, Inference, u64)> =
        chosen.unwrap_or_default().into_iter().map(|name| (name, Inference::new(), 0)).collect();
    let mut positions: HashMap<String, usize> =
        columns.iter().enumerate().rev().map(|(at, (name, ..))| (name.clone(), at)).collect();
    let (mut count_of_rows, mut has_text_key) = (0, false);
    for JsonRow { text, end, .. } in rows(piece) {
        if count_of_rows > 0 && end > INFERENCE_LEN_BYTES {
            break;
        }
        // The parser reports malformed rows later.
        let mut json = serde_json::Deserializer::from_slice(text);
        let Ok(fields) = json.deserialize_map(Fields) else { continue };
        let mut marks = fields.iter().filter(|(name, _)| Some(name.as_str()) == delete);
        if marks.any(|(_, value)| is_removed(Some(value.get().trim_matches('"').as_bytes()))) {
            continue;
        }
        count_of_rows += 1;
        for (name, value) in fields {
            let is_key = keys.contains(&name);
            if is_key {
                has_text_key |= canonical_decimal(value.get().trim_matches('"').as_bytes()).is_none();
            }
            let is_new = || takes_all && !is_key && ![delete, end_of_range].contains(&Some(name.as_str()));
            let at = match positions.get(&name) {
                Some(at) => *at,
                None if is_new() => {
                    positions.insert(name.clone(), columns.len());
                    columns.push((name, Inference::new(), 0));
                    columns.len() - 1
                }
                None => continue,
            };
            let (_, inference, count) = &mut columns[at];
            inference.add_json(value.get());
            *count += 1;
        }
    }
    let column = |(name, mut inference, count): (String, Inference, u64)| {
        if count < count_of_rows {
            inference.add_empty();
        }
        inference.column(name)
    };
    (count_of_rows > 0).then(|| (columns.into_iter().map(column).collect(), has_text_key))
}

/// Deserializes the names and values of all fields of an object.
struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = object.next_entry()? {
            fields.push(field);
        }
        Ok(fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bake::parse::tests::{Lines, name};

    fn options() -> Options {
        Options { key: Some(name("k")), value: ValueSpec::Column(name("v")), ..Options::default() }
    }

    fn parsed(options: &Options, piece: impl AsRef<[u8]>) -> Vec<String> {
        let mut lines = Lines::default();
        let piece = TextPiece::of_lines(piece.as_ref().to_vec(), 7);
        JsonLinesParser::new(options).unwrap().parse(&piece, &mut lines).unwrap();
        lines.0
    }

    #[track_caller]
    fn check(options: &Options, line: &str, expected: &str) {
        assert_eq!(parsed(options, line), [expected], "{line}");
    }

    #[test]
    fn strings_become_their_text_and_other_types_their_json() {
        let cases = [
            (r#"{"k":1,"v":"one"}"#, "7: 1 = one"),
            (r#" { "v" : "" , "x" : [{"k":2}] , "k" : "a" } "#, "7: a = "),
            (r#"{"k":"a\u00fc\n","v":"\"\ud83d\ude00\\\/"}"#, "7: a\\xc3\\xbc\\n = \"😀\\/"),
            (r#"{"k":-1.50e3,"v":-1.50e3}"#, "7: -1.50e3 = -1.50e3"),
            (r#"{"k":18446744073709551616,"v":true}"#, "7: 18446744073709551616 = true"),
            (r#"{"k":1,"v":null}"#, "7: 1 = null"),
            (r#"{"k":1,"v":{"b" : [1, "\n"]}}"#, r#"7: 1 = {"b" : [1, "\n"]}"#),
            (r#"{"\u006b":1,"v":2,"x":3,"x":4}"#, "7: 1 = 2"),
            ("{\"k\":\"a\\u0000\",\"v\":\"\u{7f}\"}", "7: a\\x00 = \u{7f}"),
        ];
        for (line, expected) in cases {
            check(&options(), line, expected);
        }
    }

    #[test]
    fn lines_are_numbered_and_blank_lines_have_no_row() {
        let rows = parsed(&options(), "{\"k\":1,\"v\":2}\r\n\n \t\r\n{\"v\":4,\"k\":3}\n{\"k\":5}\n{\"k\":6,\"v\":7}");
        let missing = r#"11: field "v" is missing: correct the row, or choose another key or value field [{"k":5}]"#;
        assert_eq!(rows, ["7: 1 = 2", "10: 3 = 4", missing, "12: 6 = 7"]);
        assert!(parsed(&options(), "").is_empty());
    }

    #[test]
    fn faults_name_the_value_found_and_its_position() {
        let cases = [
            (r#"{"v":1}"#, r#"7: field "k" is missing: "#),
            (r#"{"k":1,"v":1,"k":1}"#, r#"7: field "k" occurs twice: "#),
            (r#"{"k":null,"v":1}"#, r#"7: the key "k" is null, where a string or a number was expected"#),
            (r#"{"k":[1],"v":1}"#, r#"7: the key "k" is a list, "#),
            (r#"{"k":{},"v":1}"#, r#"7: the key "k" is an object, "#),
            (r#"{"k":false,"v":1}"#, r#"7: the key "k" is a boolean, "#),
            ("[1,2]", "7: the row is a list, where an object was expected"),
            ("\"k\"", "7: the row is a string, "),
            ("-17", "7: the row is a number, "),
            ("null", "7: the row is null, "),
            ("1,one", "7: invalid JSON at byte 1: "),
            ("key", "7: invalid JSON at byte 1: "),
            (r#"{"k":1,"v":2"#, "7: invalid JSON at byte 12: EOF while parsing an object: an object was expected"),
            (r#"{"k":1,"v":2} {"k":3}"#, "7: invalid JSON at byte 15: trailing characters: "),
            (r#"{"k":1,"v":"\ud800"}"#, "7: invalid JSON at byte 19: "),
            (r#"{"k":1,"x":01,"v":2}"#, "7: invalid JSON at byte 13: "),
            ("{\"k\":1,\"v\":\"\t\"}", "7: invalid JSON at byte 12: control character"),
            ("{\"k\":1,\"v\":\"\0\"}", "7: invalid JSON at byte 12: control character"),
            ("{\"k\":1,\0\"v\":2}", "7: invalid JSON at byte 8: "),
        ];
        for (line, expected) in cases {
            let rows = parsed(&options(), line);
            assert!(rows.len() == 1 && rows[0].starts_with(expected), "{line}: {rows:?}");
            assert!(rows[0].ends_with(&format!(" [{line}]")), "{rows:?}");
        }
        let rows = parsed(&options(), b"{\"k\":1,\"v\":\"\xff\"}");
        assert!(rows[0].starts_with("7: invalid JSON at byte "), "{rows:?}");
        let deep = parsed(&options(), format!("{{\"k\":1,\"v\":{}}}", "[".repeat(1 << 20)));
        assert!(deep[0].starts_with("7: invalid JSON at byte "));
    }

    #[test]
    fn missing_fields_are_packed_as_null() {
        let columns = vec![name("v"), name("k"), name("none"), name("s")];
        let packed = Options { value: ValueSpec::Packed(columns), ..options() };
        let line = r#"{"s":"a\u0062","k":1,"v":[ 1]}"#;
        check(&packed, line, r#"7: 1 = {"v":[ 1],"k":1,"none":null,"s":"a\u0062"}"#);
    }

    #[test]
    fn a_row_that_removes_its_key_needs_no_value() {
        let removing = Options { delete_column: Some(name("gone")), ..options() };
        check(&removing, r#"{"k":1,"gone":true}"#, "7: 1 =  ! true");
        check(&removing, r#"{"k":1,"gone":"y\u0065s","v":"x"}"#, "7: 1 = x ! yes");
        check(&removing, r#"{"k":1,"gone":0,"v":"x"}"#, "7: 1 = x ! 0");
        check(&removing, r#"{"k":1,"gone":null,"v":"x"}"#, "7: 1 = x");
        check(&removing, r#"{"k":1,"v":"x"}"#, "7: 1 = x");
        assert!(parsed(&removing, r#"{"k":1,"gone":false}"#)[0].contains("\"v\" is missing"));
    }

    #[test]
    fn key_and_value_fields_must_be_chosen_together() {
        let remedies = |options: &Options| match JsonLinesParser::new(options).err().unwrap().in_input("input") {
            BakeError::Columns { remedies, .. } => remedies,
            other => panic!("{other:?}"),
        };
        check(&Options::default(), r#"{"key":1,"value":2}"#, "7: 1 = 2");
        let only_key = Options { value: ValueSpec::Unnamed, ..options() };
        assert_eq!(remedies(&only_key), [Remedy::ChooseValue]);
        let only_value = Options { key: None, ..options() };
        assert_eq!(remedies(&only_value), [Remedy::ChooseKey]);
        let digits = Options { key: Some(Column::Number(1)), ..options() };
        check(&digits, r#"{"1":"one","v":2}"#, "7: one = 2");
    }
    /// Comparing each name with each other one would take minutes.
    #[test]
    fn the_types_of_any_number_of_fields_are_inferred() {
        let object = |from: u32| {
            let fields: String = (from..from + 100_000).map(|i| format!(",\"name{i}\":{i}")).collect();
            format!("{{\"k\":1{fields}}}\n")
        };
        let piece = TextPiece::of_lines((object(0) + &object(7)).into_bytes(), 1);
        let (columns, has_text_key) = infer(&piece, None, &["k".to_owned()], [None, None]).unwrap();
        assert_eq!((columns.len(), has_text_key), (100_000, false));
        let small = TextPiece::of_lines(b"{\"k\":1,\"b\":2}\n{\"a\":\"x\",\"k\":\"y\",\"b\":3}\n".to_vec(), 1);
        let (columns, has_text_key) = infer(&small, None, &["k".to_owned()], [None, None]).unwrap();
        let found: Vec<_> = columns.iter().map(|column| (&*column.name, column.is_nullable)).collect();
        assert_eq!((found, has_text_key), (vec![("b", false), ("a", true)], true));
    }
}
