//! The commands that read hashes, on a typed table: each row is a hash whose fields are the columns. A null cell is an
//! absent field.
//!
//! In: commands. Out: replies. Pipelined HGET, HMGET, and HGETALL commands are looked up together (`runs`). A reply
//! that can be long is sent over several passes.

use std::sync::Arc;

use super::keys::number;
use super::keyspace::{self, CursorOwner, ScanOptions};
use super::lookup::{LONE_LOOKUP_STEPS, TextLookup, WRONG_TYPE};
use super::strings::next;
use super::work::{CellProgress, HashReply, Items, Outcome, Parts, Work, WorkStep};
use super::{Counted, NOT_AN_INTEGER, Out, Replied, SYNTAX, mix};
use crate::protocol::resp::commands::{Id, Missing};
use crate::protocol::resp::{Args, Command, Sink, Version, integer};
use crate::server::table::fields::Fields;
use crate::typed::{List, TypedRow, Value, write_elements, write_text};

/// The number of columns whose cells are located in one step.
const STEP_COLUMNS: usize = 8;

/// Executes a command that reads a hash.
pub(super) fn execute(
    lookup: TextLookup<'_>,
    fields: &Fields,
    (id, missing): (Id, Missing),
    command: &Command<'_>,
    random: u64,
    counted: &mut Counted,
    out: &mut Out<'_>,
) -> Result<Outcome, String> {
    let mut args = command.args();
    args.next();
    let text = next(&mut args);
    // Redis checks these arguments before it looks the key up.
    let cursor = if id == Id::HScan { number(next(&mut args)).ok_or("ERR invalid cursor")? } else { 0 };
    let wanted = if id == Id::HRandField { Wanted::parse(args.clone())? } else { None };
    let Some((value, _)) = lookup.find_counted(text, counted)? else {
        push_missing(missing, command, out);
        return Ok(Outcome::Done);
    };
    let row = checked_row(fields, value, out)?;
    match id {
        Id::HLen => out.integer(fields.count_values(&row) as i64),
        Id::HExists => {
            let column = fields.position(next(&mut args));
            out.integer(column.is_some_and(|column| row.has_value(column)).into());
        }
        Id::HGet => match fields.position(next(&mut args)) {
            Some(column) => return Ok(columns(vec![column as u16], Parts::Values)),
            None => out.null(),
        },
        Id::HStrLen => match fields.position(next(&mut args)) {
            Some(column) => return Ok(columns(vec![column as u16], Parts::Lengths)),
            None => out.integer(0),
        },
        Id::HMGet => {
            out.array(command.arg_count() - 2);
            return Ok(begin(Items::Args { next_arg: args.offset_bytes() }, Parts::Values));
        }
        Id::HScan => return scan(fields, &row, cursor, args, out),
        Id::HRandField => return Ok(random_fields(all_columns(fields, &row), wanted, random, out)),
        _ => {
            let listed = all_columns(fields, &row);
            let (count, parts) = (listed.len(), parts_of(id));
            if parts == Parts::Both {
                out.map(count);
            } else {
                out.array(count);
            }
            return Ok(columns(listed, parts));
        }
    }
    Ok(Outcome::Done)
}

/// Executes a command that reads a hash, on a table without columns: its keys are missing, or have the wrong type.
pub(super) fn execute_on_strings(
    lookup: TextLookup<'_>,
    missing: Missing,
    command: &Command<'_>,
    counted: &mut Counted,
    out: &mut Out<'_>,
) -> Replied {
    out.sink().steps().add(LONE_LOOKUP_STEPS);
    if lookup.find_counted(command.args().nth(1).unwrap_or_default(), counted)?.is_some() {
        return Err(WRONG_TYPE.to_owned());
    }
    push_missing(missing, command, out);
    Ok(())
}

/// Replies that the key of a command does not exist.
fn push_missing(missing: Missing, command: &Command<'_>, out: &mut Out<'_>) {
    let args_after_key = command.arg_count().saturating_sub(2);
    match missing {
        Missing::Null => out.null(),
        Missing::Zero => out.integer(0),
        Missing::Map => out.map(0),
        Missing::Nulls => {
            out.array(args_after_key);
            (0..args_after_key).for_each(|_| out.null());
        }
        Missing::NullOrArray if args_after_key == 0 => out.null(),
        Missing::Array | Missing::NullOrArray => out.array(0),
        Missing::Scan => {
            out.array(2);
            out.bulk(b"0");
            out.array(0);
        }
    }
}

/// Returns what HGETALL, HKEYS, or HVALS replies for each field.
fn parts_of(id: Id) -> Parts {
    match id {
        Id::HKeys => Parts::Names,
        Id::HVals => Parts::Values,
        _ => Parts::Both,
    }
}

fn all_columns(fields: &Fields, row: &TypedRow<'_>) -> Vec<u16> {
    fields.columns_with_value(row).map(|column| column as u16).collect()
}

fn columns(columns: Vec<u16>, parts: Parts) -> Outcome {
    begin(Items::Columns { columns: columns.into(), next: 0 }, parts)
}

fn begin(items: Items, parts: Parts) -> Outcome {
    Outcome::Work(Work::Hash(HashReply::new(items, parts)))
}

/// Returns a row, all of whose cells can be read.
fn checked_row<'r>(fields: &'r Fields, value: &'r [u8], out: &mut Out<'_>) -> Result<TypedRow<'r>, String> {
    out.sink().steps().add(fields.len() / STEP_COLUMNS);
    let malformed = |error| format!("ERR {error}");
    let row = TypedRow::new(fields.schema(), value).map_err(malformed)?;
    (0..fields.len()).try_for_each(|column| row.unchecked_value(column).map(drop)).map_err(malformed)?;
    Ok(row)
}

/// Replies to OBJECT ENCODING with the encoding that Redis would choose for a row.
pub(super) fn encoding(lookup: TextLookup<'_>, fields: &Fields, mut args: Args<'_>, out: &mut Out<'_>) -> Replied {
    let Some((value, _)) = lookup.find(next(&mut args))? else {
        out.null();
        return Ok(());
    };
    let row = checked_row(fields, value, out)?;
    out.sink().steps().add(fields.len());
    out.bulk(if fields.is_listpack(&row) { b"listpack" } else { b"hashtable" });
    Ok(())
}

/// Continues a command that replies with fields of a row.
pub(super) fn more(
    reply: &mut HashReply,
    lookup: TextLookup<'_>,
    fields: Option<&Fields>,
    command: &Command<'_>,
    out: &mut Out<'_>,
) -> WorkStep {
    out.sink().steps().add(LONE_LOOKUP_STEPS);
    let text = command.args().nth(1).unwrap_or_default();
    let (Some(fields), Ok(Some((value, offset_bytes)))) = (fields, lookup.find(text)) else { return WorkStep::Close };
    let Ok(row) = TypedRow::new(fields.schema(), value) else { return WorkStep::Close };
    reply.more(fields, &row, offset_bytes, command, out)
}

/// Replies with a part of a row's fields. As in Redis, all fields of a row that Redis would store as a listpack are in
/// one reply. The cursor of any other row consists of the position of the next column, and of a tag that identifies the
/// columns.
fn scan(
    fields: &Fields,
    row: &TypedRow<'_>,
    cursor: u64,
    args: Args<'_>,
    out: &mut Out<'_>,
) -> Result<Outcome, String> {
    let ScanOptions { count, pattern, names_only, .. } = ScanOptions::parse(args, true)?;
    let parts = if names_only { Parts::Names } else { Parts::Both };
    let steps = out.sink().steps();
    let glob = pattern.map(|pattern| keyspace::compile(pattern, steps)).transpose()?;
    steps.add(fields.len());
    let (is_listpack, owner) = (fields.is_listpack(row), CursorOwner::schema(fields.schema()));
    let start = match owner.position(cursor, fields.len()) {
        Ok(start) => start,
        // Redis ignores the cursor of a listpack.
        Err(_) if is_listpack => 0,
        Err(problem) => return Err(problem),
    };
    let (mut visited, mut found, mut end) = (0, Vec::new(), start);
    while end < fields.len() && (is_listpack || visited < count) && !steps.is_pass_over() {
        if row.has_value(end) {
            visited += 1;
            let name = fields.schema().columns()[end].name.as_bytes();
            if glob.as_ref().is_none_or(|glob| keyspace::matches(glob, name, steps)) {
                found.push(end as u16);
            }
        }
        end += 1;
    }
    let next = (end..fields.len()).find(|column| row.has_value(*column));
    let cursor = next.map_or(0, |column| owner.cursor(column));
    out.array(2);
    out.bulk(itoa::Buffer::new().format(cursor).as_bytes());
    out.array(if parts == Parts::Both { 2 * found.len() } else { found.len() });
    Ok(columns(found, parts))
}

/// The number of random fields that an HRANDFIELD requests.
#[derive(Clone, Copy)]
struct Wanted {
    /// If negative, the fields may repeat.
    count: i64,
    with_values: bool,
}

impl Wanted {
    /// Parses the arguments after the key. Returns `None` if there are none.
    fn parse(mut args: Args<'_>) -> Result<Option<Wanted>, String> {
        let Some(count) = args.next() else { return Ok(None) };
        let count = integer(count).ok_or(NOT_AN_INTEGER)?;
        if count == i64::MIN {
            return Err(format!("ERR value is out of range, value must between {} and {}", -i64::MAX, i64::MAX));
        }
        let with_values = match (args.next(), args.next()) {
            (None, _) => false,
            (Some(option), None) if option.eq_ignore_ascii_case(b"WITHVALUES") => true,
            _ => return Err(SYNTAX.to_owned()),
        };
        if with_values && !(-i64::MAX / 2..=i64::MAX / 2).contains(&count) {
            return Err("ERR value is out of range".to_owned());
        }
        Ok(Some(Wanted { count, with_values }))
    }
}

/// Replies with random columns among `listed`.
fn random_fields(listed: Vec<u16>, wanted: Option<Wanted>, random: u64, out: &mut Out<'_>) -> Outcome {
    let Some(Wanted { count, with_values }) = wanted else {
        if listed.is_empty() {
            out.null();
            return Outcome::Done;
        }
        return begin(Items::Random { columns: listed.into(), left: 1, random }, Parts::Names);
    };
    let left = match count {
        _ if listed.is_empty() => 0,
        0.. => (listed.len() as u64).min(count as u64),
        _ => count.unsigned_abs(),
    };
    let are_flat = with_values && out.version() == Version::Resp2;
    out.array(if are_flat { 2 * left as usize } else { left as usize });
    let parts = if with_values { Parts::Pairs } else { Parts::Names };
    if count < 0 {
        return begin(Items::Random { columns: Arc::from(listed), left, random }, parts);
    }
    // Selects `left` columns with equal probability: Knuth's algorithm S.
    let (mut missing, mut remaining) = (left, listed.len() as u64);
    let is_selected = |position: usize| {
        let selected = mix(random.wrapping_add(position as u64)) % remaining < missing;
        (missing, remaining) = (missing - u64::from(selected), remaining - 1);
        selected
    };
    let mut positions = (0..listed.len()).map(is_selected).collect::<Vec<bool>>().into_iter();
    let selected = listed.into_iter().filter(|_| positions.next().unwrap_or_default()).collect();
    columns(selected, parts)
}

/// The number of elements of a list that are formatted between two checks of the pass's steps.
const LIST_PIECE_LEN: usize = 128;
/// The cost, in steps, of formatting the elements of a piece of a list.
const LIST_PIECE_STEPS: usize = LIST_PIECE_LEN;

impl HashReply {
    fn new(items: Items, parts: Parts) -> HashReply {
        HashReply { items, parts, progress: CellProgress::Start }
    }

    /// Continues the reply as long as there is room for it. `offset_bytes` is the offset of the row's value in the
    /// records section.
    ///
    /// Closes the connection if the row is not a row of the schema, because the header of the reply is already sent.
    /// The caller has checked the row before it wrote the header, so this means that the file was changed.
    fn more(
        &mut self,
        fields: &Fields,
        row: &TypedRow<'_>,
        offset_bytes: u64,
        command: &Command<'_>,
        out: &mut Out<'_>,
    ) -> WorkStep {
        loop {
            if out.sink().is_full() {
                return WorkStep::Full;
            }
            if out.sink().steps().is_pass_over() {
                return WorkStep::Yield;
            }
            out.sink().steps().add(1);
            let column = match &self.items {
                Items::Columns { columns, next } => columns.get(*next).map(|column| Some(usize::from(*column))),
                Items::Args { next_arg } => command.args_from(*next_arg).next().map(|name| {
                    out.sink().steps().add_bytes(name.len());
                    fields.position(name)
                }),
                Items::Random { left: 0, .. } => None,
                Items::Random { columns, random, .. } => {
                    Some(Some(usize::from(columns[(mix(*random) % columns.len() as u64) as usize])))
                }
            };
            match column {
                None => return WorkStep::Done,
                Some(None) => {
                    out.null();
                    self.advance(command);
                }
                Some(Some(column)) => {
                    if self.send_field(fields, row, column, offset_bytes, command, out).is_none() {
                        return WorkStep::Close;
                    }
                }
            }
        }
    }

    /// Moves on to the next field.
    fn advance(&mut self, command: &Command<'_>) {
        self.progress = CellProgress::Start;
        match &mut self.items {
            Items::Columns { next, .. } => *next += 1,
            Items::Args { next_arg } => {
                let mut args = command.args_from(*next_arg);
                args.next();
                *next_arg = args.offset_bytes();
            }
            Items::Random { left, random, .. } => (*left, *random) = (*left - 1, random.wrapping_add(1)),
        }
    }

    /// Sends a field, or a part of it. Returns `None` if the row is malformed.
    fn send_field(
        &mut self,
        fields: &Fields,
        row: &TypedRow<'_>,
        column: usize,
        offset_bytes: u64,
        command: &Command<'_>,
        out: &mut Out<'_>,
    ) -> Option<()> {
        if self.progress == CellProgress::Start {
            if self.parts == Parts::Pairs && out.version() == Version::Resp3 {
                out.array(2);
            }
            if matches!(self.parts, Parts::Names | Parts::Both | Parts::Pairs) {
                out.sink().push_bytes(fields.name(column));
            }
            self.progress = CellProgress::Named;
        }
        if self.parts == Parts::Names {
            self.advance(command);
            return Some(());
        }
        match row.unchecked_value(column).ok()? {
            Value::List(list) if list.len() > LIST_PIECE_LEN => return self.send_list(&list, command, out),
            Value::Null if self.parts == Parts::Lengths => out.integer(0),
            Value::Null => out.null(),
            Value::Bytes(bytes) if self.parts == Parts::Lengths => out.integer(bytes.len() as i64),
            Value::Bytes(bytes) => {
                // The value of the cell is a part of the value of the row.
                let at = bytes.as_ptr() as usize - row.as_bytes().as_ptr() as usize;
                out.bulk_header(bytes.len());
                out.sink().push_stored(bytes, offset_bytes + at as u64);
                out.bulk_end();
            }
            value => {
                let (version, is_length) = (out.version(), self.parts == Parts::Lengths);
                out.sink().with_text(|responses, text| {
                    write_text(&value, text);
                    let mut out = Out::new(responses, version);
                    if is_length { out.integer(text.len() as i64) } else { out.bulk(text) }
                });
            }
        }
        self.advance(command);
        Some(())
    }

    /// Formats the next elements of a list, and counts or sends their bytes.
    fn send_list(&mut self, list: &List<'_>, command: &Command<'_>, out: &mut Out<'_>) -> Option<()> {
        out.sink().steps().add(LIST_PIECE_STEPS);
        let (element, len_bytes) = match self.progress {
            CellProgress::Start | CellProgress::Named => (0, "[]".len()),
            CellProgress::Measuring { element, len_bytes } => (element, len_bytes),
            CellProgress::Sending { element } => (element, 0),
        };
        let is_sending = matches!(self.progress, CellProgress::Sending { .. });
        let end = list.len().min(element + LIST_PIECE_LEN);
        if element > end {
            // The list has become shorter.
            return None;
        }
        let text_len_bytes = out.sink().with_text(|responses, text| {
            write_elements(list, element..end, text);
            if is_sending {
                responses.push(text);
            }
            text.len()
        });
        self.progress = match is_sending {
            true => CellProgress::Sending { element: end },
            false => CellProgress::Measuring { element: end, len_bytes: len_bytes + text_len_bytes },
        };
        if end < list.len() {
            return Some(());
        }
        match self.progress {
            CellProgress::Measuring { len_bytes, .. } if self.parts == Parts::Lengths => {
                out.integer(len_bytes as i64);
                self.advance(command);
            }
            CellProgress::Measuring { len_bytes, .. } => {
                out.bulk_header(len_bytes);
                out.sink().push(b"[");
                self.progress = CellProgress::Sending { element: 0 };
            }
            _ => {
                out.sink().push(b"]");
                out.bulk_end();
                self.advance(command);
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::protocol::resp::Reply;
    use crate::server::responses::Responses;
    use crate::server::turns::PASS_STEPS_MAX;
    use crate::typed::{ElementType, List, RowEncoder, Schema, TextList, Value, write_text};

    /// Returns the fields of a schema with these columns.
    fn fields(columns: &str) -> Fields {
        Fields::new(Arc::new(Schema::new("", columns.split(' ').map(|column| column.parse().unwrap())).unwrap()))
    }

    /// Returns the elements that a reply appends to its header, and the number of passes.
    fn send(mut reply: HashReply, fields: &Fields, row: &[u8], command: &[u8], version: Version) -> (Vec<u8>, usize) {
        let row = TypedRow::new(fields.schema(), row).unwrap();
        let (mut responses, mut sent, mut passes) = (Responses::new(), Vec::new(), 0);
        loop {
            passes += 1;
            responses.clear();
            let step = reply.more(fields, &row, 0, &Command::new(command), &mut Out::new(&mut responses, version));
            assert!(responses.copied().len() <= 64 << 10, "{}", responses.copied().len());
            // A field adds at most the steps of one piece of a list.
            assert!(responses.steps().total() <= PASS_STEPS_MAX + 200);
            sent.extend_from_slice(responses.copied());
            match step {
                WorkStep::Done => return (sent, passes),
                WorkStep::Full | WorkStep::Yield => {}
                WorkStep::Close | WorkStep::Load | WorkStep::Next => panic!("the row is valid"),
            }
        }
    }

    /// Returns the texts of a row's cells.
    fn texts(fields: &Fields, row: &[u8]) -> Vec<Option<Vec<u8>>> {
        let row = TypedRow::new(fields.schema(), row).unwrap();
        let text = |value: Value<'_>| {
            let mut text = Vec::new();
            write_text(&value, &mut text);
            (value != Value::Null).then_some(text)
        };
        row.values().map(|value| text(value.unwrap())).collect()
    }

    /// Returns what [`send`] should return for these columns.
    fn expected(
        fields: &Fields,
        texts: &[Option<Vec<u8>>],
        columns: &[u16],
        parts: Parts,
        version: Version,
    ) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut out = Reply::new(&mut bytes, version);
        for column in columns.iter().map(|column| usize::from(*column)) {
            if parts == Parts::Pairs && version == Version::Resp3 {
                out.array(2);
            }
            if !matches!(parts, Parts::Values | Parts::Lengths) {
                out.bulk(fields.schema().columns()[column].name.as_bytes());
            }
            match (&texts[column], parts) {
                (_, Parts::Names) => {}
                (text, Parts::Lengths) => out.integer(text.as_ref().map_or(0, Vec::len) as i64),
                (Some(text), _) => out.bulk(text),
                (None, _) => out.null(),
            }
        }
        bytes
    }

    #[test]
    fn replies_of_any_length_have_the_texts_of_the_cells() {
        let fields = fields("a:list(f64) b:text? c:u8? d:list(timestamp(ns)) e:bytes f:list(u8)? g:list(text)");
        let data: Vec<u8> = (0..80_000_u32).flat_map(|number| number.wrapping_mul(0x9E37_79B9).to_le_bytes()).collect();
        let list = |element: &str, count: usize| {
            let element = ElementType::new(element.parse().unwrap()).unwrap();
            Value::List(List::new(element, &data[..count * element.len_bytes()]).unwrap())
        };
        let mut encoder = RowEncoder::new(fields.schema());
        let mut text_list = Vec::new();
        for count in [0, 1, 127, 128, 129, 256, 257, 5000, 40_000] {
            let values = [
                list("f64", count),
                if count % 2 == 0 { Value::Null } else { Value::Text("text") },
                Value::Uint(7),
                list("timestamp(ns)", count / 2),
                Value::Bytes(&data[..count.min(4000)]),
                if count % 3 == 0 { Value::Null } else { list("u8", count) },
                Value::TextList(TextList::encode(std::iter::repeat_n("a\"", count.min(600)), &mut text_list)),
            ];
            let row = encoder.encode(&values).unwrap().to_vec();
            let texts = texts(&fields, &row);
            for version in [Version::Resp2, Version::Resp3] {
                for parts in [Parts::Names, Parts::Values, Parts::Both, Parts::Pairs, Parts::Lengths] {
                    let columns: Vec<u16> = vec![5, 0, 1, 2, 3, 4, 6, 0, 1];
                    let items = Items::Columns { columns: columns.clone().into(), next: 0 };
                    let (found, passes) = send(HashReply::new(items, parts), &fields, &row, b"", version);
                    assert!(found == expected(&fields, &texts, &columns, parts, version), "{count} elements");
                    assert!(passes > 1 || count < 40_000 || parts == Parts::Names, "a long reply takes several passes");
                }
            }
        }
    }

    #[test]
    fn fields_of_arguments_and_random_fields_are_sent_in_bounded_passes() {
        let fields = fields("a:u8? b:u16 c:text");
        let row = RowEncoder::new(fields.schema())
            .encode(&[Value::Null, Value::Uint(500), Value::Text("x")])
            .unwrap()
            .to_vec();
        let texts = texts(&fields, &row);
        let names = ["a", "b", "c", "nope", "b"].repeat(200);
        let words: Vec<&str> = ["HMGET", "k"].into_iter().chain(names.iter().copied()).collect();
        let mut command = format!("*{}\r\n", words.len()).into_bytes();
        words.iter().for_each(|word| command.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes()));
        let mut args = Command::new(&command).args();
        args.nth(1);
        let reply = HashReply::new(Items::Args { next_arg: args.offset_bytes() }, Parts::Values);
        let (found, _) = send(reply, &fields, &row, &command, Version::Resp2);
        let one = [
            b"$-1\r\n".to_vec(),
            expected(&fields, &texts, &[1, 2], Parts::Values, Version::Resp2),
            b"$-1\r\n".to_vec(),
            expected(&fields, &texts, &[1], Parts::Values, Version::Resp2),
        ];
        assert!(found == one.concat().repeat(200));

        let items = Items::Random { columns: Arc::from(vec![1, 2]), left: 100_000, random: 5 };
        let (found, passes) = send(HashReply::new(items, Parts::Pairs), &fields, &row, b"", Version::Resp2);
        let pairs = [1_u16, 2].map(|column| expected(&fields, &texts, &[column], Parts::Pairs, Version::Resp2));
        let (mut rest, mut counts) = (&found[..], [0; 2]);
        while !rest.is_empty() {
            let chosen = pairs.iter().position(|pair| rest.starts_with(pair)).expect("a field with its value");
            counts[chosen] += 1;
            rest = &rest[pairs[chosen].len()..];
        }
        assert_eq!(counts[0] + counts[1], 100_000);
        assert!(counts.iter().all(|count| (48_000..52_000).contains(count)), "{counts:?}");
        assert!(passes > 10, "{passes}");
    }

    #[test]
    fn every_choice_of_fields_without_repetition_is_equally_likely() {
        let mut counts = std::collections::BTreeMap::new();
        for random in 0..60_000_u64 {
            let mut responses = Responses::new();
            let wanted = Some(Wanted { count: 2, with_values: false });
            // Sessions pass numbers of a pseudorandom sequence.
            let mut out = Out::new(&mut responses, Version::Resp2);
            let outcome = random_fields(vec![0, 1, 2, 3], wanted, mix(mix(random)), &mut out);
            let Outcome::Work(Work::Hash(HashReply { items: Items::Columns { columns, .. }, .. })) = outcome else {
                panic!("columns")
            };
            *counts.entry(columns.to_vec()).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 6);
        assert!(counts.values().all(|count| (9_000..11_000).contains(count)), "{counts:?}");
    }
}
