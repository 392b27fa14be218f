//! Lookups of keys that a client sent as text.
//!
//! In: text, or a command. Out: stored values, or whether the command must wait until the pages that it reads are in
//! memory. Text that is not a key of the table's type either causes an error or counts as a missing key.

use super::Counted;
use super::keys::{TextKey, damaged, key, number, plain_kind};
use super::order::RangeCommand;
use crate::Lookup;
use crate::format::key::{Key, KeyKind};
use crate::format::key_type::KeyType;
use crate::protocol::resp::Command;
use crate::protocol::resp::commands::{Id, resolve};
use crate::server::responses::Responses;
use crate::server::state::ForeignKeys;
use crate::setting::Setting;
use crate::store::{ColdLookup, Found, Side, Store};

/// The cost, in steps, of looking up a key individually, not in a run of keys.
pub(super) const LONE_LOOKUP_STEPS: usize = 4;

/// The error for a key whose value has another type than the one that the command reads.
pub(super) const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// A value and its offset in the records section.
pub(super) type Stored<'s> = (&'s [u8], u64);

/// A table, and what a command does with a foreign key: text that is not a key of the table's type.
#[derive(Clone, Copy)]
pub(super) struct TextLookup<'s> {
    pub(super) store: &'s Store,
    pub(super) foreign_keys: ForeignKeys,
}

impl<'s> TextLookup<'s> {
    /// Parses a key. Returns `None` for a foreign key that counts as missing.
    pub(super) fn key<'k>(&self, text: &'k [u8]) -> Result<Option<TextKey<'k>>, String> {
        match key(self.store.key_type(), text) {
            Ok(key) => Ok(Some(key)),
            Err(_) if self.foreign_keys == ForeignKeys::Missing => Ok(None),
            Err(problem) => Err(format!("{problem} (see {})", Setting::ForeignKeys)),
        }
    }

    /// Returns whether all keys must be checked before a command looks the first one up, because a foreign key would
    /// fail the whole command.
    pub(super) fn must_check_keys(&self) -> bool {
        self.store.key_type() != KeyType::BYTES && self.foreign_keys == ForeignKeys::Error
    }

    /// Returns whether text is not a key of the table's type.
    pub(super) fn is_foreign(&self, text: &[u8]) -> bool {
        let key_type = self.store.key_type();
        match plain_kind(key_type) {
            Some(KeyKind::U64) => number(text).is_none(),
            Some(KeyKind::Bytes) => false,
            None => key_type.parse(text).is_err(),
        }
    }

    pub(super) fn find(&self, text: &[u8]) -> Result<Option<Stored<'s>>, String> {
        let Some(key) = self.key(text)? else { return Ok(None) };
        match self.store.find(key.as_key()) {
            Ok(Found::Damaged) | Err(_) => Err(damaged()),
            Ok(found) => Ok(found.value()),
        }
    }

    /// Returns the string at a key, and counts a hit or a miss.
    pub(super) fn find_string(&self, text: &[u8], counted: &mut Counted) -> Result<Option<Stored<'s>>, String> {
        let found = self.find_counted(text, counted)?;
        if found.is_some() && self.store.schema_ref().is_some() { Err(WRONG_TYPE.to_owned()) } else { Ok(found) }
    }

    /// Returns the value of a key, and counts a hit or a miss.
    pub(super) fn find_counted(&self, text: &[u8], counted: &mut Counted) -> Result<Option<Stored<'s>>, String> {
        let found = self.find(text)?;
        counted.lookup(found.is_some());
        Ok(found)
    }
}

/// The maximum number of keys of a command that are looked up before the command is executed.
const KEYS_MAX: usize = 64;

/// Returns whether a command must wait. If so, the pages that it reads are read before the next pass.
#[cold]
pub(super) fn must_wait(store: &Store, command: &Command<'_>, responses: &mut Responses) -> bool {
    let Ok(spec) = resolve(command) else { return false };
    let key_type = store.key_type();
    let mut args = command.args();
    args.next();
    let range = match spec.id {
        // These commands look their keys up in several steps, each of which waits.
        Id::MGet | Id::Exists | Id::Touch => return false,
        Id::ZkvRange => RangeCommand::range(key_type, args).ok(),
        Id::ZkvCount => RangeCommand::count(key_type, args).ok(),
        _ => None,
    };
    if let Some(range) = range {
        return must_wait_for(store, &[ColdLookup::Range(range.lookup(), range.limits())], responses);
    }
    let side = match spec.id {
        Id::ZkvFloor | Id::ZkvCover => Some(Side::After),
        Id::ZkvCeiling => Some(Side::Before),
        _ => None,
    };
    let positions = if side.is_some() { 1..2 } else { spec.key_positions(command.arg_count()) };
    let texts = command.args().skip(positions.start).take(positions.len().min(KEYS_MAX));
    let keys: Vec<TextKey<'_>> = texts.filter_map(|text| key(key_type, text).ok()).collect();
    let lookups = keys.iter().map(|key| match side {
        Some(side) => ColdLookup::Neighbor(key.as_key(), side),
        None => point_lookup(store, key.as_key()),
    });
    must_wait_for(store, &lookups.collect::<Vec<_>>(), responses)
}

/// Returns whether the lookup of a key must wait. If so, the pages that it reads are read before the next pass.
#[inline]
pub(super) fn must_wait_for_key(store: &Store, text: &[u8], responses: &mut Responses) -> bool {
    store.may_be_cold()
        && key(store.key_type(), text)
            .is_ok_and(|key| must_wait_for(store, &[point_lookup(store, key.as_key())], responses))
}

pub(super) fn must_wait_for(store: &Store, lookups: &[ColdLookup<Key<'_>>], responses: &mut Responses) -> bool {
    if !lookups.is_empty() {
        responses.ready_count(store, lookups.len(), |i| lookups[i]);
    }
    responses.cold().must_wait()
}

fn point_lookup<'k>(store: &Store, key: Key<'k>) -> ColdLookup<Key<'k>> {
    match key {
        Key::U64(key) if store.key_kind() == KeyKind::U64 => store.point_lookup(key),
        Key::Bytes(key) if store.key_kind() == KeyKind::Bytes => store.point_lookup(key),
        key => ColdLookup::Point(key),
    }
}
