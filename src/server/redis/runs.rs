//! Runs of commands that are looked up together: pipelined GET; HGET, HMGET, and HGETALL; ZKV.FLOOR, ZKV.CEILING, and
//! ZKV.COVER; ZKV.RANGE and ZKV.COUNT; and the keys of an MGET.
//!
//! In: the commands at the start of the input, or keys. Out: their replies, as long as there is room for replies and
//! verification is not interrupted. A command that a run cannot answer ends the run, and is executed individually. Only
//! runs of ranges, and runs in tables whose keys are not plain, allocate.

use std::ops::ControlFlow;

use super::keys::{KeyTexts, damaged, key_steps, number, plain_kind, refusal};
use super::order::{RangeCommand, SEARCH_STEPS, push_neighbor, push_range};
use super::stored::{push_answer, push_bare_value, push_null, push_short_bulk};
use super::{COMMAND_STEPS, LOOKUP_STEPS};
use crate::Lookup;
use crate::format::key::{Key, KeyKind, OwnedKey};
use crate::format::key_type::KeyType;
use crate::format::lookup_key::LookupKey;
use crate::format::record::value_of_response;
use crate::protocol::resp::commands::Id;
use crate::protocol::resp::{
    Command, HashFields, HashRead, ParseProgress, Parsed, Reply, Version, get, hash_read, neighbor, parse,
    range_or_count,
};
use crate::server::responses::Responses;
use crate::server::table::fields::Fields;
use crate::server::users::{Access, Users};
use crate::store::{ColdLookup, Found, Side, Store, is_verification_interrupted};
use crate::typed::{ColumnError, TypedRow, Value, write_text};

/// The maximum number of keys, or of ZKV.FLOOR, ZKV.CEILING, and ZKV.COVER commands, in a run.
const RUN_KEYS_MAX: usize = 256;
const RUN_HASHES_MAX: usize = 64;
const RUN_RANGES_MAX: usize = 128;
const HASH_LEN_MAX_BYTES: usize = 16 << 10;
/// The maximum length of null as a reply.
const NULL_LEN_MAX_BYTES: usize = "$-1\r\n".len();

#[derive(Default)]
pub(super) struct Run {
    pub(super) count: usize,
    pub(super) hits: usize,
    pub(super) misses: usize,
    /// Commands or keys that were answered with an error.
    pub(super) errors: usize,
    /// The last answered command. `None` if no command was answered, and for the keys of an MGET.
    pub(super) last: Option<Id>,
    /// The steps that the caller counts for the run, besides those of the bytes up to `end_bytes`.
    pub(super) steps: usize,
    /// Whether there was no room for the next reply.
    pub(super) is_full: bool,
    /// The offset at which the last answered command or key ends. 0 if nothing was answered.
    pub(super) end_bytes: usize,
}

/// Decides which keys of a run a node answers for.
pub(super) trait Routing: Copy {
    /// Returns whether a plain key may be looked up in a run.
    fn admits(self, kind: KeyKind, text: &[u8]) -> bool;

    /// Returns whether a stored key that is not plain may be looked up in a run.
    fn admits_stored(self, key: Key<'_>) -> bool;

    /// Replies with an error to a command whose key the table does not have, if another node may have it. Returns
    /// whether it did.
    fn refuse_missing(self, key: Key<'_>, version: Version, responses: &mut Responses) -> bool;
}

/// The routing of a server that is not part of a cluster, and of keys that were checked before.
#[derive(Clone, Copy)]
pub(super) struct Unrouted;

impl Routing for Unrouted {
    #[inline(always)]
    fn admits(self, _: KeyKind, _: &[u8]) -> bool {
        true
    }

    #[inline(always)]
    fn admits_stored(self, _: Key<'_>) -> bool {
        true
    }

    #[inline(always)]
    fn refuse_missing(self, _: Key<'_>, _: Version, _: &mut Responses) -> bool {
        false
    }
}

pub(super) trait RunKey<'k>: LookupKey + Into<Key<'k>> + Default {
    /// Parses a plain key. Text that is not a key is executed individually, because the setting for foreign keys
    /// determines its reply.
    fn parse(text: &'k [u8]) -> Option<Self>;

    /// Returns a stored key of this kind.
    fn of(key: &'k OwnedKey) -> Option<Self>;
}

impl RunKey<'_> for u64 {
    #[inline(always)]
    fn parse(text: &[u8]) -> Option<u64> {
        number(text)
    }

    fn of(key: &OwnedKey) -> Option<u64> {
        key.as_key().as_u64()
    }
}

impl<'k> RunKey<'k> for &'k [u8] {
    #[inline(always)]
    fn parse(text: &'k [u8]) -> Option<&'k [u8]> {
        Some(text)
    }

    fn of(key: &'k OwnedKey) -> Option<&'k [u8]> {
        key.as_key().as_bytes()
    }
}

/// Parses the keys of at most `max` commands that `next` finds at the start of `input`. `next` returns the key of a
/// command, and the length of the command. The first command whose key is not a key, or not admitted, ends the keys.
fn stored_keys<'i>(
    key_type: KeyType,
    routing: impl Routing,
    input: &'i [u8],
    max: usize,
    next: impl Fn(&'i [u8]) -> Option<(&'i [u8], usize)>,
) -> Vec<OwnedKey> {
    let (mut keys, mut at_bytes) = (Vec::new(), 0);
    while keys.len() < max
        && let Some((text, len_bytes)) = next(&input[at_bytes..])
        && let Some(key) = key_type.parse(text).ok().filter(|key| routing.admits_stored(key.as_key()))
    {
        at_bytes += len_bytes;
        keys.push(key);
    }
    keys
}

/// The table that answers a run, and where the replies go.
pub(super) struct Runs<'b, R> {
    pub(super) store: &'b Store,
    pub(super) version: Version,
    pub(super) routing: R,
    pub(super) responses: &'b mut Responses,
}

impl<R: Routing> Runs<'_, R> {
    /// Answers the run at the start of `input`. Returns `None` if `input` begins with a command that is executed
    /// individually.
    #[inline]
    pub(super) fn answer(
        mut self,
        fields: Option<&Fields>,
        access: &Access,
        users: &Users,
        input: &[u8],
    ) -> Option<Run> {
        let run = match fields {
            Some(fields) if access.is_unrestricted(users) => self.hash_reads(fields, input),
            None if access.reads_any_key() => self.gets(input),
            _ => None,
        };
        // Neighbors and ranges depend on rows of other keys, so they are no runs for a user with restricted keys.
        match run {
            None if access.is_unrestricted(users) => self.neighbors(input).or_else(|| self.ranges(input)),
            run => run,
        }
    }

    #[inline(always)]
    fn plain_key<'k, K: RunKey<'k>>(routing: R, text: &'k [u8]) -> Option<K> {
        K::parse(text).filter(|_| routing.admits(K::KIND, text))
    }

    #[inline]
    fn gets(&mut self, input: &[u8]) -> Option<Run> {
        let (first, _) = get(input)?;
        let run = match plain_kind(self.store.key_type()) {
            Some(KeyKind::U64) => self.plain_gets::<u64>(first, input)?,
            Some(KeyKind::Bytes) => self.plain_gets::<&[u8]>(first, input)?,
            None => {
                let mut at_bytes = 0;
                let run = self.stored_values(|| {
                    let (text, len_bytes) = get(&input[at_bytes..])?;
                    at_bytes += len_bytes;
                    Some((text, at_bytes))
                });
                run?
            }
        };
        Some(Run { last: (run.count > 0).then_some(Id::Get), ..run })
    }

    #[inline(always)]
    fn plain_gets<'i, K: RunKey<'i>>(&mut self, first: &'i [u8], input: &'i [u8]) -> Option<Run> {
        // Without this check, every other command would pay for the run's arrays.
        Self::plain_key::<K>(self.routing, first)?;
        let (routing, mut at_bytes) = (self.routing, 0);
        Some(self.values(|| {
            let (text, len_bytes) = get(&input[at_bytes..])?;
            let key: K = Self::plain_key(routing, text)?;
            at_bytes += len_bytes;
            Some((key, at_bytes))
        }))
    }

    /// Like [`Runs::values`], for a table whose keys are not plain: `next` returns the texts of the keys. Returns `None`
    /// if the first text is not a key, or not admitted.
    #[inline(never)]
    pub(super) fn stored_values<'k>(&mut self, mut next: impl FnMut() -> Option<(&'k [u8], usize)>) -> Option<Run> {
        let (key_type, routing) = (self.store.key_type(), self.routing);
        let mut keys = Vec::new();
        while keys.len() < RUN_KEYS_MAX
            && let Some((text, end_bytes)) = next()
            && let Some(key) = key_type.parse(text).ok().filter(|key| routing.admits_stored(key.as_key()))
        {
            keys.push((key, end_bytes));
        }
        if keys.is_empty() {
            return None;
        }
        let mut keys = keys.iter();
        let run = match key_type.kind() {
            KeyKind::U64 => self.values(|| keys.next().and_then(|(key, end_bytes)| Some((u64::of(key)?, *end_bytes)))),
            KeyKind::Bytes => {
                self.values(|| keys.next().and_then(|(key, end_bytes)| Some((<&[u8]>::of(key)?, *end_bytes))))
            }
        };
        Some(Run { steps: run.steps + key_steps(key_type) * run.count, ..run })
    }

    /// Replies with the values of the keys that `next` returns, each with the offset of its end.
    #[inline(always)]
    pub(super) fn values<'k, K: RunKey<'k>>(&mut self, mut next: impl FnMut() -> Option<(K, usize)>) -> Run {
        let (store, version, routing, responses) = (self.store, self.version, self.routing, &mut *self.responses);
        let (mut keys, mut ends_bytes) = ([K::default(); RUN_KEYS_MAX], [0; RUN_KEYS_MAX]);
        let mut key_count = 0;
        while key_count < RUN_KEYS_MAX
            && let Some((key, end_bytes)) = next()
        {
            (keys[key_count], ends_bytes[key_count]) = (key, end_bytes);
            key_count += 1;
        }
        // The keys are collected before the first lookup, so that their cache misses overlap.
        let ready_count = responses.ready_count(store, key_count, |i| store.point_lookup(keys[i]));
        let (mut count, mut misses, mut errors) = (0, 0, 0);
        store.find_each(
            &keys[..ready_count],
            |key| *key,
            |key: &K, found| {
                if responses.is_full() {
                    return ControlFlow::Break(());
                }
                match found {
                    Found::Answer(answer, offset_bytes) => push_answer(responses, answer, offset_bytes),
                    Found::Value(value, offset_bytes) => push_bare_value(responses, value, offset_bytes),
                    Found::Missing if routing.refuse_missing((*key).into(), version, responses) => errors += 1,
                    Found::Missing => {
                        misses += 1;
                        push_null(responses, version);
                    }
                    Found::Damaged if is_verification_interrupted() => return ControlFlow::Break(()),
                    Found::Damaged => {
                        errors += 1;
                        Reply::new(responses, version).error(damaged());
                    }
                }
                count += 1;
                responses.steps().continue_after(count)
            },
        );
        let (hits, steps) = (count - misses - errors, LOOKUP_STEPS * count);
        let end_bytes = if count == 0 { 0 } else { ends_bytes[count - 1] };
        Run { count, hits, misses, errors, last: None, steps, is_full: false, end_bytes }
    }

    /// Not inlined, as [`Runs::ranges`], so that the loop over values can use all registers.
    #[inline(never)]
    fn neighbors(&mut self, input: &[u8]) -> Option<Run> {
        let (_, first, _) = neighbor(input)?;
        let key_type = self.store.key_type();
        match plain_kind(key_type) {
            Some(KeyKind::U64) => u64::parse(first).map(|_| self.neighbors_of(input, u64::parse)),
            Some(KeyKind::Bytes) => Some(self.neighbors_of(input, <&[u8]>::parse)),
            None => {
                let next = |input| neighbor(input).map(|(_, text, len_bytes)| (text, len_bytes));
                let keys = stored_keys(key_type, Unrouted, input, RUN_KEYS_MAX, next);
                let mut next_keys = keys.iter();
                (!keys.is_empty()).then(|| match key_type.kind() {
                    KeyKind::U64 => self.neighbors_of(input, |_| next_keys.next().and_then(u64::of)),
                    KeyKind::Bytes => self.neighbors_of(input, |_| next_keys.next().and_then(<&[u8]>::of)),
                })
            }
        }
    }

    /// `key` returns the key of the next command, whose text it gets.
    fn neighbors_of<'i, 'k, K: RunKey<'k>>(
        &mut self,
        input: &'i [u8],
        mut key: impl FnMut(&'i [u8]) -> Option<K>,
    ) -> Run {
        let (store, version, responses) = (self.store, self.version, &mut *self.responses);
        let mut keys = [(K::default(), Side::After); RUN_KEYS_MAX];
        let mut commands = [(Id::ZkvFloor, 0); RUN_KEYS_MAX];
        let (mut key_count, mut at_bytes) = (0, 0);
        while key_count < RUN_KEYS_MAX
            && let Some((id, text, len_bytes)) = neighbor(&input[at_bytes..])
            && let Some(key) = key(text)
        {
            at_bytes += len_bytes;
            keys[key_count] = (key, if id == Id::ZkvCeiling { Side::Before } else { Side::After });
            commands[key_count] = (id, at_bytes);
            key_count += 1;
        }
        let lookup = |i: usize| ColdLookup::Neighbor(keys[i].0.into(), keys[i].1);
        let ready_count = responses.ready_count(store, key_count, lookup);
        let (mut run, mut texts) = (Run::default(), KeyTexts::new(store.key_type()));
        let answer = |i: usize, neighbor: Result<_, _>| {
            if responses.is_full() {
                return ControlFlow::Break(());
            }
            let mut reply = Reply::new(responses, version);
            let replied = match commands[i].0 {
                Id::ZkvCover => store
                    .range_at_floor(neighbor, keys[i].0.into())
                    .map(|found| push_range(&mut reply, &mut texts, found)),
                _ => neighbor.map(|found| push_neighbor(&mut reply, &mut texts, found)),
            };
            if let Err(error) = replied {
                if is_verification_interrupted() {
                    return ControlFlow::Break(());
                }
                run.errors += 1;
                reply.error(refusal(error));
            }
            run.count += 1;
            responses.steps().continue_after(run.count)
        };
        store.neighbor_each(ready_count, |i| keys[i], answer);
        run.steps = SEARCH_STEPS * run.count;
        if let Some(last) = run.count.checked_sub(1) {
            let (id, end_bytes) = commands[last];
            (run.last, run.end_bytes) = (Some(id), end_bytes);
        }
        run
    }

    #[inline(never)]
    fn ranges(&mut self, input: &[u8]) -> Option<Run> {
        let (store, version, responses) = (self.store, self.version, &mut *self.responses);
        let (mut commands, mut at_bytes) = (Vec::new(), 0);
        while commands.len() < RUN_RANGES_MAX
            && let Some((command, len_bytes, arg_count)) = next_range(store.key_type(), &input[at_bytes..])
        {
            at_bytes += len_bytes;
            commands.push((command, at_bytes, arg_count));
        }
        if commands.is_empty() {
            return None;
        }
        let lookup = |i: usize| commands[i].0.lookup();
        let cold_lookup = |i: usize| ColdLookup::Range(lookup(i), commands[i].0.limits());
        let ready_count = responses.ready_count(store, commands.len(), cold_lookup);
        let mut run = Run::default();
        let answer = |i: usize, rows: Result<_, _>| {
            if responses.is_full() || run.count > 0 && responses.steps().is_time_over() {
                return ControlFlow::Break(());
            }
            let (command, end_bytes, arg_count) = &commands[i];
            let (end, copied_before_bytes) = (responses.end(), responses.copied().len());
            let mut reply = Reply::new(responses, version);
            let replied = rows.map_err(|_| damaged()).and_then(|rows| command.reply(store, rows, &mut reply));
            if let Err(error) = &replied {
                reply.error(error);
            }
            if is_verification_interrupted() {
                responses.truncate(&end);
                return ControlFlow::Break(());
            }
            // A page can be long, so its steps are counted before the next command, and not at the end of the run.
            let reply_len_bytes = responses.copied().len() - copied_before_bytes;
            responses.steps().add(COMMAND_STEPS + command.search_steps() + arg_count);
            responses.steps().add_bytes(reply_len_bytes);
            run.count += 1;
            run.errors += usize::from(replied.is_err());
            run.last = Some(if command.is_count() { Id::ZkvCount } else { Id::ZkvRange });
            run.end_bytes = *end_bytes;
            match responses.steps().is_pass_over() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        store.row_numbers_each(ready_count, lookup, answer);
        Some(run)
    }

    fn hash_reads(&mut self, fields: &Fields, input: &[u8]) -> Option<Run> {
        let first = hash_read(input)?.key;
        let (key_type, routing) = (self.store.key_type(), self.routing);
        match plain_kind(key_type) {
            Some(KeyKind::U64) => {
                Self::plain_key::<u64>(routing, first)?;
                self.hash_reads_of(fields, input, |text| Self::plain_key::<u64>(routing, text))
            }
            Some(KeyKind::Bytes) => {
                Self::plain_key::<&[u8]>(routing, first)?;
                self.hash_reads_of(fields, input, |text| Self::plain_key::<&[u8]>(routing, text))
            }
            None => {
                let next = |input| hash_read(input).map(|HashRead { key, len_bytes, .. }| (key, len_bytes));
                let keys = stored_keys(key_type, routing, input, RUN_HASHES_MAX, next);
                let mut next_keys = keys.iter();
                match key_type.kind() {
                    _ if keys.is_empty() => None,
                    KeyKind::U64 => self.hash_reads_of(fields, input, |_| next_keys.next().and_then(u64::of)),
                    KeyKind::Bytes => self.hash_reads_of(fields, input, |_| next_keys.next().and_then(<&[u8]>::of)),
                }
            }
        }
    }

    /// `key` returns the key of the next command, whose text it gets.
    fn hash_reads_of<'i, 'k, K: RunKey<'k>>(
        &mut self,
        fields: &Fields,
        input: &'i [u8],
        mut key: impl FnMut(&'i [u8]) -> Option<K>,
    ) -> Option<Run> {
        let (store, version, routing, responses) = (self.store, self.version, self.routing, &mut *self.responses);
        let mut keys = [K::default(); RUN_HASHES_MAX];
        let mut commands = [(Id::HGetAll, HashFields::NONE, 0); RUN_HASHES_MAX];
        let (mut key_count, mut at_bytes) = (0, 0);
        while key_count < RUN_HASHES_MAX
            && let Some(HashRead { id, key: text, fields, len_bytes }) = hash_read(&input[at_bytes..])
            && let Some(key) = key(text)
        {
            at_bytes += len_bytes;
            (keys[key_count], commands[key_count]) = (key, (id, fields, at_bytes));
            key_count += 1;
        }
        let ready_count = responses.ready_count(store, key_count, |i| store.point_lookup(keys[i]));
        let (mut run, mut is_long) = (Run::default(), false);
        responses.with_text(|responses, text| {
            store.find_each(
                &keys[..ready_count],
                |key| *key,
                |key: &K, found| {
                    let (id, names, _) = commands[run.count];
                    if responses.is_full() {
                        return ControlFlow::Break(());
                    }
                    let mut writer = HashWriter { fields, version, responses, text, steps: 0 };
                    let written = match found {
                        Found::Answer(answer, offset_bytes) => {
                            writer.write_row(id, names, value_of_response(answer, offset_bytes).0)
                        }
                        Found::Value(value, _) => writer.write_row(id, names, value),
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
                    run.steps += writer.steps;
                    match written {
                        Ok(()) => {}
                        Err(Unwritten::Malformed(error)) => {
                            run.errors += 1;
                            Reply::new(writer.responses, version).error(format!("ERR {error}"));
                        }
                        Err(reason) => {
                            (is_long, run.is_full) =
                                (matches!(reason, Unwritten::Long), matches!(reason, Unwritten::Full));
                            return ControlFlow::Break(());
                        }
                    }
                    run.count += 1;
                    responses.steps().continue_after(run.count)
                },
            );
        });
        run.steps += LOOKUP_STEPS * run.count;
        run.hits = run.count - run.misses - run.errors;
        if let Some(last) = run.count.checked_sub(1) {
            (run.last, run.end_bytes) = (Some(commands[last].0), commands[last].2);
        }
        // A long reply is sent in several passes, so its command is executed individually.
        (run.count > 0 || !is_long).then_some(run)
    }
}

/// Parses a complete ZKV.RANGE or ZKV.COUNT. Returns it with its length and its number of arguments, or `None` for all
/// other input.
fn next_range(key_type: KeyType, input: &[u8]) -> Option<(RangeCommand<'_>, usize, usize)> {
    let is_range = range_or_count(input)?;
    let Ok(Parsed::Command { len_bytes, .. }) = parse(input, &mut ParseProgress::default()) else { return None };
    let command = Command::new(&input[..len_bytes]);
    let mut args = command.args();
    args.next();
    let parsed = match is_range {
        true => RangeCommand::range(key_type, args),
        false => RangeCommand::count(key_type, args),
    };
    Some((parsed.ok()?, len_bytes, command.arg_count()))
}

/// The reason why a reply with fields of a row is not written.
enum Unwritten {
    /// The reply may be long.
    Long,
    /// The reply may be longer than the room that is left.
    Full,
    Malformed(ColumnError),
}

/// Writes the replies of a run of HGET, HMGET, and HGETALL.
struct HashWriter<'w> {
    fields: &'w Fields,
    version: Version,
    responses: &'w mut Responses,
    /// A buffer for the text of one cell.
    text: &'w mut Vec<u8>,
    steps: usize,
}
impl HashWriter<'_> {
    /// Replies with the requested fields of a row. Writes nothing if it fails.
    fn write_row(&mut self, id: Id, names: HashFields<'_>, value: &[u8]) -> Result<(), Unwritten> {
        let row = TypedRow::new(self.fields.schema(), value).map_err(Unwritten::Malformed)?;
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
            Unwritten::Malformed(error)
        })
    }

    /// Replies that the table does not have the key.
    fn write_missing(&mut self, id: Id, names: HashFields<'_>) -> Result<(), Unwritten> {
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

    fn require_room(&mut self, len_max_bytes: usize) -> Result<(), Unwritten> {
        match len_max_bytes {
            len if len > HASH_LEN_MAX_BYTES => Err(Unwritten::Long),
            len if len > self.responses.room().len() => Err(Unwritten::Full),
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
