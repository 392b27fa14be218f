//! Looks up the keys of pipelined HGET, HMGET, and HGETALL commands together.
//!
//! In: commands, as they are parsed. Out: their replies. Allocates nothing. A command whose reply may be long ends the
//! run, and is executed individually.

use std::ops::ControlFlow;

use crate::Lookup;
use crate::format::key::{Key, KeyKind, LookupKey};
use crate::format::record::value_of_response;
use crate::protocol::resp::commands::Id;
use crate::protocol::resp::{HashFields, HashRead, Reply, Version, hash_read};
use crate::server::redis::slots::Routing;
use crate::server::redis::stored::{push_null, push_short_bulk};
use crate::server::redis::text::{damaged, number};
use crate::server::responses::Responses;
use crate::server::table::fields::Fields;
use crate::store::{Found, Store, is_verification_interrupted};
use crate::typed::{ColumnError, TypedRow, Value, write_text};

/// The maximum number of commands that are looked up together.
const RUN_COMMANDS_MAX: usize = 64;
/// The maximum length of a reply in a run.
const REPLY_LEN_MAX_BYTES: usize = 16 << 10;

/// The counts of a run of commands that were answered together.
#[derive(Default)]
pub(in crate::server::redis) struct HashRun {
    pub(in crate::server::redis) count: usize,
    pub(in crate::server::redis) misses: usize,
    /// Commands that were answered with an error, because a record is damaged or not a row of the schema.
    pub(in crate::server::redis) errors: usize,
    /// The last answered command.
    pub(in crate::server::redis) last: Option<Id>,
    /// The steps of writing the cells of the replies.
    pub(in crate::server::redis) cell_steps: usize,
    /// Whether the run has ended because there was no room for the next reply.
    pub(in crate::server::redis) is_full: bool,
    /// The offset in the input at which the last answered command ends. 0 if no command was answered.
    pub(in crate::server::redis) end_bytes: usize,
}

/// The reason why a command is not answered in a run.
enum Refusal {
    /// The reply may be long.
    Long,
    /// The reply may be longer than the room that is left.
    Full,
    Malformed(ColumnError),
}

/// Answers the HGET, HMGET, and HGETALL commands at the start of `input`, as long as there is room for replies and
/// verification is not interrupted. Returns `None` if `input` begins with another command, with a key that is not of the
/// table's kind, or with a command whose reply may be long.
pub(in crate::server::redis) fn answer<'i>(
    fields: &Fields,
    store: &Store,
    input: &'i [u8],
    version: Version,
    routing: impl Routing,
    responses: &mut Responses,
) -> Option<HashRun> {
    let first = hash_read(input)?;
    let kind = store.key_kind();
    if !routing.admits(kind, first.key) {
        return None;
    }
    match kind {
        KeyKind::U64 => {
            number(first.key)?;
            let parse = |key| number(key).filter(|_| routing.admits(kind, key));
            run(fields, store, parse, input, version, routing, responses)
        }
        KeyKind::Bytes => {
            let parse = |key: &'i [u8]| routing.admits(kind, key).then_some(key);
            run(fields, store, parse, input, version, routing, responses)
        }
    }
}

/// Answers the commands whose keys `parse` accepts.
fn run<'i, K: LookupKey + Into<Key<'i>> + Default>(
    fields: &Fields,
    store: &Store,
    parse: impl Fn(&'i [u8]) -> Option<K>,
    input: &'i [u8],
    version: Version,
    routing: impl Routing,
    responses: &mut Responses,
) -> Option<HashRun> {
    let mut keys = [K::default(); RUN_COMMANDS_MAX];
    let mut commands = [(Id::HGetAll, HashFields::NONE, 0); RUN_COMMANDS_MAX];
    let (mut key_count, mut at_bytes) = (0, 0);
    while key_count < RUN_COMMANDS_MAX
        && let Some(HashRead { id, key, fields, len_bytes }) = hash_read(&input[at_bytes..])
        && let Some(key) = parse(key)
    {
        at_bytes += len_bytes;
        (keys[key_count], commands[key_count]) = (key, (id, fields, at_bytes));
        key_count += 1;
    }
    let key_count = responses.ready_count(store, key_count, |i| store.point_lookup(keys[i]));
    let (mut run, mut is_long) = (HashRun::default(), false);
    responses.with_text(|responses, text| {
        store.find_each(
            &keys[..key_count],
            |key| *key,
            |key: &K, found| {
                let (id, names, _) = commands[run.count];
                if responses.is_full() {
                    return ControlFlow::Break(());
                }
                let mut writer = Writer { fields, version, responses, text, steps: 0 };
                let written = match found {
                    Found::Answer(answer, offset_bytes) => {
                        writer.write_row(id, names, value_of_response(answer, offset_bytes).0)
                    }
                    Found::Missing if routing.refuse_missing((*key).into(), version, writer.responses) => {
                        run.errors += 1;
                        Ok(())
                    }
                    Found::Missing => writer.write_missing(id, names).inspect(|()| run.misses += 1),
                    Found::Damaged if is_verification_interrupted() => return ControlFlow::Break(()),
                    Found::Damaged => {
                        run.errors += 1;
                        Reply::new(writer.responses, version).error(damaged());
                        Ok(())
                    }
                };
                run.cell_steps += writer.steps;
                match written {
                    Ok(()) => {}
                    Err(Refusal::Malformed(error)) => {
                        run.errors += 1;
                        Reply::new(writer.responses, version).error(format!("ERR {error}"));
                    }
                    Err(refusal) => {
                        (is_long, run.is_full) = (matches!(refusal, Refusal::Long), matches!(refusal, Refusal::Full));
                        return ControlFlow::Break(());
                    }
                }
                run.count += 1;
                responses.steps().continue_after(run.count)
            },
        );
    });
    if let Some(last) = run.count.checked_sub(1) {
        (run.last, run.end_bytes) = (Some(commands[last].0), commands[last].2);
    }
    (run.count > 0 || !is_long).then_some(run)
}

/// Writes the replies of a run.
struct Writer<'w> {
    fields: &'w Fields,
    version: Version,
    responses: &'w mut Responses,
    /// A buffer for the text of one cell.
    text: &'w mut Vec<u8>,
    steps: usize,
}

impl Writer<'_> {
    /// Replies with the requested fields of a row. Writes nothing if it fails.
    fn write_row(&mut self, id: Id, names: HashFields<'_>, value: &[u8]) -> Result<(), Refusal> {
        let row = TypedRow::new(self.fields.schema(), value).map_err(Refusal::Malformed)?;
        let len_max_bytes = match id {
            Id::HGetAll => self.fields.all_len_max_bytes(value.len()),
            _ => names.fold(Reply::<Responses>::HEADER_LEN_MAX_BYTES, |len, name| {
                let column = self.fields.position(name);
                len + column.map_or(0, |column| self.fields.value_len_max_bytes(column, value.len()))
            }),
        };
        self.require_room(len_max_bytes + names.len() * NULL_LEN_MAX_BYTES)?;
        let end = self.responses.end();
        let written = match id {
            Id::HGetAll => self.write_all(&row),
            _ => self.write_fields(id, names, &row),
        };
        written.map_err(|error| {
            self.responses.truncate(&end);
            Refusal::Malformed(error)
        })
    }

    /// Replies that the table does not have the key.
    fn write_missing(&mut self, id: Id, names: HashFields<'_>) -> Result<(), Refusal> {
        self.require_room(Reply::<Responses>::HEADER_LEN_MAX_BYTES + names.len() * NULL_LEN_MAX_BYTES)?;
        match id {
            Id::HGetAll => Reply::new(self.responses, self.version).map(0),
            Id::HMGet => Reply::new(self.responses, self.version).array(names.len()),
            _ => {}
        }
        names.for_each(|_| push_null(self.responses, self.version));
        self.steps += names.len();
        Ok(())
    }

    fn require_room(&mut self, len_max_bytes: usize) -> Result<(), Refusal> {
        match len_max_bytes {
            len if len > REPLY_LEN_MAX_BYTES => Err(Refusal::Long),
            len if len > self.responses.room().len() => Err(Refusal::Full),
            _ => Ok(()),
        }
    }

    fn write_all(&mut self, row: &TypedRow<'_>) -> Result<(), ColumnError> {
        Reply::new(self.responses, self.version).map(self.fields.count_values(row));
        self.steps += self.fields.len();
        for column in self.fields.columns_with_value(row) {
            self.responses.push(self.fields.name(column));
            self.write_value(row, column)?;
        }
        Ok(())
    }

    fn write_fields(&mut self, id: Id, names: HashFields<'_>, row: &TypedRow<'_>) -> Result<(), ColumnError> {
        if id == Id::HMGet {
            Reply::new(self.responses, self.version).array(names.len());
        }
        self.steps += names.len();
        for name in names {
            match self.fields.position(name) {
                Some(column) => self.write_value(row, column)?,
                None => push_null(self.responses, self.version),
            }
        }
        Ok(())
    }

    /// Replies with the text of a cell, or with null if the cell is null.
    #[inline]
    fn write_value(&mut self, row: &TypedRow<'_>, column: usize) -> Result<(), ColumnError> {
        match row.unchecked_value(column)? {
            Value::Null => push_null(self.responses, self.version),
            Value::Bytes(bytes) => push_short_bulk(self.responses, bytes),
            Value::Int(number) => push_short_bulk(self.responses, itoa::Buffer::new().format(number).as_bytes()),
            Value::Uint(number) => push_short_bulk(self.responses, itoa::Buffer::new().format(number).as_bytes()),
            value => {
                self.text.clear();
                write_text(&value, self.text);
                push_short_bulk(self.responses, self.text);
            }
        }
        Ok(())
    }
}

/// The maximum length of null as a reply.
const NULL_LEN_MAX_BYTES: usize = "$-1\r\n".len();
