//! JSON Lines: one object per line.
//!
//! If the key or value is a string, its text is used. For any other type, the JSON text is used, unchanged. The key
//! must be a string or a number. Fields that are not chosen must be valid JSON and are skipped. Blank lines are skipped
//! too.
//!
//! The columns of a typed table are fields. Without declared types, they are the fields of the first objects, in the
//! order in which they first occur.

use std::fmt;

use memchr::memchr;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::pack::{Cell, Packer, ValueColumns};
use super::text::{TextFormat, TextParser, TextPiece};
use crate::bake::columns::{Column, ColumnsFault, ValueSpec};
use crate::bake::error::{BakeError, Remedy, RowFault};
use crate::bake::options::Options;
use crate::bake::row::{InputRow, RowSink, is_removed, value_unless_removed};
use crate::bake::typed::infer::{INFERENCE_LEN_BYTES, Inference};
use crate::bake::typed::row_builder::{RowBuilder, unescaped};
use crate::bake::typed::{Selected, TypedPlan};
use crate::typed;

/// The JSON Lines format.
pub(super) struct JsonLinesFormat<'o> {
    pub(super) options: &'o Options,
    pub(super) typed: Option<&'o TypedPlan>,
}

impl TextFormat for JsonLinesFormat<'_> {
    type Parser = JsonLinesParser;

    fn delimiter(&self) -> Option<u8> {
        None
    }

    fn parser(&self, input: &str, first: &mut TextPiece) -> Result<Option<JsonLinesParser>, BakeError> {
        match self.typed {
            None => JsonLinesParser::new(self.options).map(Some).map_err(|fault| fault.in_input(input)),
            Some(plan) => JsonLinesParser::typed(self.options, plan, input, first),
        }
    }
}

/// Parses the pieces of one input.
#[derive(Clone)]
pub(super) struct JsonLinesParser {
    /// The names of all chosen fields, without duplicates.
    fields: Vec<String>,
    /// The key's position in `fields`.
    key: usize,
    value: ValueColumns,
    delete: Option<usize>,
    texts: Texts,
}

/// Buffers for the text of strings that contain escapes.
#[derive(Clone, Default)]
struct Texts {
    key: String,
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
        Ok(JsonLinesParser { fields, key, value, delete, texts: Texts::default() })
    }
}

/// Returns the position of a field among the chosen fields, and chooses it if it was not chosen before.
fn position(fields: &mut Vec<String>, name: String) -> usize {
    fields.iter().position(|field| *field == name).unwrap_or_else(|| {
        fields.push(name);
        fields.len() - 1
    })
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
        for (line, text) in (piece.first_line..).zip(lines(&piece.bytes)) {
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            if !text.trim_ascii().is_empty() {
                match self.row(line, text, &mut found) {
                    Ok(row) => sink.row(&row)?,
                    Err(fault) => sink.bad(line, fault, text)?,
                }
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
                None => not_an_object(text).unwrap_or_else(|| RowFault::json(&error, 0)),
            });
        }
        let Texts { key: key_text, value: value_text, delete: delete_text } = &mut self.texts;
        let missing = |field: usize| RowFault::MissingField { field: self.fields[field].clone() };
        let key = found[self.key].ok_or_else(|| missing(self.key))?;
        let key = match key.get().as_bytes()[0] {
            b'"' | b'-' | b'0'..=b'9' => content(text, key, key_text)?,
            first => return Err(RowFault::KeyType { column: self.fields[self.key].clone(), found: kind(first) }),
        };
        let delete = match self.delete.and_then(|field| found[field]).filter(|raw| raw.get() != "null") {
            Some(raw) => Some(content(text, raw, delete_text)?),
            None => None,
        };
        let value = match &mut self.value {
            ValueColumns::Typed(..) if is_removed(delete) => b"",
            ValueColumns::Typed(fields, rows) => rows.json(text, fields.iter().map(|field| found[*field]))?,
            ValueColumns::Packed(fields, packer) => packer.pack(fields.iter().map(|field| match found[*field] {
                Some(raw) => Cell::Json(raw.get()),
                None => Cell::Null,
            }))?,
            ValueColumns::One(field) => {
                let value = found[*field].map(|raw| content(text, raw, value_text)).transpose()?;
                value_unless_removed(value, delete, || missing(*field))?
            }
        };
        Ok(InputRow { line, key, value, delete, text })
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

/// Returns a fault if a line is JSON but not an object. Returns `None` for any other line.
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
        let Some(key) = &options.key else {
            let message = "typed columns are chosen: choose the key field as well";
            return Err(ColumnsFault::new(message, &[Remedy::ChooseKey]).in_input(input));
        };
        let key = field_name(key);
        let delete = options.delete_column.as_ref().map(field_name);
        let selected = plan.selected(&key, |column| Ok(field_name(column))).map_err(|fault| fault.in_input(input))?;
        let schema = match selected {
            Selected::Typed(columns) => plan.set(&key, columns, input)?,
            selected => {
                let chosen = if let Selected::Named(names) = selected { Some(names) } else { None };
                match infer(first, chosen, &key, delete.as_deref()) {
                    Some(columns) => plan.set_inferred(&key, columns, input)?,
                    None => return Ok(None),
                }
            }
        };
        let mut fields = Vec::new();
        let key = position(&mut fields, key);
        let positions = schema.columns().iter().map(|column| position(&mut fields, column.name.clone())).collect();
        let delete = delete.map(|delete| position(&mut fields, delete));
        let value = ValueColumns::Typed(positions, Box::new(RowBuilder::new(schema.clone())));
        Ok(Some(JsonLinesParser { fields, key, value, delete, texts: Texts::default() }))
    }
}

/// Infers the types of the chosen fields, or of all fields except the key and the mark of deletions, from the first
/// objects. Returns `None` if there are no objects.
fn infer(
    piece: &TextPiece,
    chosen: Option<Vec<String>>,
    key: &str,
    delete: Option<&str>,
) -> Option<Vec<typed::Column>> {
    let takes_all = chosen.is_none();
    let mut columns: Vec<(String, Inference, u64)> =
        chosen.unwrap_or_default().into_iter().map(|name| (name, Inference::new(), 0)).collect();
    let (mut end, mut rows) = (0, 0);
    for line in lines(&piece.bytes) {
        end += line.len() + 1;
        if rows > 0 && end.min(piece.bytes.len()) > INFERENCE_LEN_BYTES {
            break;
        }
        // The parser reports malformed lines later.
        let mut json = serde_json::Deserializer::from_slice(line);
        let Ok(fields) = json.deserialize_map(Fields) else { continue };
        let mut marks = fields.iter().filter(|(name, _)| Some(name.as_str()) == delete);
        if marks.any(|(_, value)| is_removed(Some(value.get().trim_matches('"').as_bytes()))) {
            continue;
        }
        rows += 1;
        for (name, value) in fields {
            let is_new = || takes_all && name != key && Some(name.as_str()) != delete;
            let at = match columns.iter().position(|(other, ..)| *other == name) {
                Some(at) => at,
                None if is_new() => {
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
        if count < rows {
            inference.add_empty();
        }
        inference.column(name)
    };
    (rows > 0).then(|| columns.into_iter().map(column).collect())
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
        let piece = TextPiece { bytes: piece.as_ref().to_vec(), first_line: 7, has_quotes: false };
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
            ("[1,2]", "7: the line is a list, where an object was expected"),
            ("\"k\"", "7: the line is a string, "),
            ("-17", "7: the line is a number, "),
            ("null", "7: the line is null, "),
            ("1,one", "7: invalid JSON at byte 1: "),
            ("key", "7: invalid JSON at byte 1: "),
            (r#"{"k":1,"v":2"#, "7: invalid JSON at byte 12: EOF while parsing an object: one object was expected"),
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
}
