//! Commands whose lookups may have to wait for the disk, and that are not looked up in runs.
//!
//! In: a command, or one of its keys. Out: whether the command must wait until the pages that it reads are in memory.
//! Only tables that do not fit into memory need this.

use super::order::RangeCommand;
use super::text::key;
use crate::Lookup;
use crate::format::key::{Key, KeyKind};
use crate::protocol::resp::Command;
use crate::protocol::resp::commands::{Id, resolve};
use crate::server::responses::Responses;
use crate::store::{ColdLookup, Side, Store};

/// The maximum number of keys of a command that are looked up before the command is executed.
const KEYS_MAX: usize = 64;

/// Returns whether a command must wait. If so, the pages that it reads are read before the next pass.
#[cold]
pub(super) fn must_wait(store: &Store, command: &Command<'_>, responses: &mut Responses) -> bool {
    let Ok(spec) = resolve(command) else { return false };
    let kind = store.key_kind();
    let mut args = command.args();
    args.next();
    let range = match spec.id {
        // These commands look their keys up in several steps, each of which waits.
        Id::MGet | Id::Exists | Id::Touch => return false,
        Id::ZkvRange => RangeCommand::range(args.clone()).ok(),
        Id::ZkvCount => RangeCommand::count(args.clone()).ok(),
        _ => None,
    };
    let neighbor = |side| args.clone().next().and_then(|text| key(kind, text).ok()).map(|key| (key, side));
    let lookups: Vec<ColdLookup<Key<'_>>> = match (spec.id, &range) {
        (Id::ZkvFloor, _) => {
            neighbor(Side::After).map(|(key, side)| ColdLookup::Neighbor(key, side)).into_iter().collect()
        }
        (Id::ZkvCeiling, _) => {
            neighbor(Side::Before).map(|(key, side)| ColdLookup::Neighbor(key, side)).into_iter().collect()
        }
        (_, Some(range)) => {
            range.lookup(kind).ok().map(|lookup| ColdLookup::Range(lookup, range.limits())).into_iter().collect()
        }
        _ => {
            let positions = spec.key_positions(command.arg_count());
            let texts = command.args().skip(positions.start).take(positions.len().min(KEYS_MAX));
            texts.filter_map(|text| key(kind, text).ok()).map(|key| point_lookup(store, key)).collect()
        }
    };
    must_wait_for(store, &lookups, responses)
}

/// Returns whether the lookup of a key must wait. If so, the pages that it reads are read before the next pass.
#[inline]
pub(super) fn must_wait_for_key(store: &Store, text: &[u8], responses: &mut Responses) -> bool {
    store.may_be_cold()
        && key(store.key_kind(), text).is_ok_and(|key| must_wait_for(store, &[point_lookup(store, key)], responses))
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
