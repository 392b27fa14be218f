//! The columns of a typed table in JSON Lines.
//!
//! Without declared types, the columns are the fields of the first objects, in the order in which they first occur.

use std::fmt;

use memchr::memchr;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{JsonLinesParser, Texts, field_name, position};
use crate::bake::columns::ColumnsFault;
use crate::bake::error::BakeError;
use crate::bake::options::Options;
use crate::bake::parse::cut::TextPiece;
use crate::bake::parse::pack::ValueColumns;
use crate::bake::remedy::Remedy;
use crate::bake::row::is_removed;
use crate::bake::typed::infer::{INFERENCE_LEN_BYTES, Inference};
use crate::bake::typed::row_builder::RowBuilder;
use crate::bake::typed::{Selected, TypedPlan};
use crate::typed::Column;

impl JsonLinesParser {
    /// Returns a parser for the columns of a typed table, or `None` if their types must be inferred and the piece has no
    /// rows.
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
fn infer(piece: &TextPiece, chosen: Option<Vec<String>>, key: &str, delete: Option<&str>) -> Option<Vec<Column>> {
    let takes_all = chosen.is_none();
    let mut columns: Vec<(String, Inference, u64)> =
        chosen.unwrap_or_default().into_iter().map(|name| (name, Inference::new(), 0)).collect();
    let (mut rest, mut rows) = (&piece.bytes[..], 0);
    while !rest.is_empty() {
        let (line, after) = match memchr(b'\n', rest) {
            Some(end) => (&rest[..end], &rest[end + 1..]),
            None => (rest, &rest[rest.len()..]),
        };
        rest = after;
        if rows > 0 && piece.bytes.len() - rest.len() > INFERENCE_LEN_BYTES {
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
