//! Looks up pipelined ZKV.FLOOR and ZKV.CEILING commands together.
//!
//! In: commands, as they are parsed. Out: their replies.

use std::ops::ControlFlow;

use super::order::push_neighbor;
use super::text::{damaged, number};
use crate::Lookup;
use crate::format::key::{Key, KeyKind, LookupKey};
use crate::protocol::resp::{Reply, Version, floor_or_ceiling};
use crate::server::responses::Responses;
use crate::store::{ColdLookup, Side, Store, is_verification_interrupted};

/// The maximum number of commands that are looked up together.
const RUN_COMMANDS_MAX: usize = 256;

/// The counts of a run of commands that were answered together.
pub(super) struct NeighborRun {
    pub(super) count: usize,
    pub(super) damaged: usize,
    /// Whether the last answered command is a ZKV.FLOOR.
    pub(super) ends_with_floor: bool,
    /// The offset in the input at which the last answered command ends. 0 if no command was answered.
    pub(super) end_bytes: usize,
}

/// Answers the ZKV.FLOOR and ZKV.CEILING commands at the start of `input`, as long as there is room for replies and
/// verification is not interrupted. Returns `None` if `input` begins with another command, or if the first key is not
/// of the table's kind.
pub(super) fn answer(store: &Store, input: &[u8], version: Version, responses: &mut Responses) -> Option<NeighborRun> {
    let (_, first, _) = floor_or_ceiling(input)?;
    match store.key_kind() {
        KeyKind::U64 => {
            number(first)?;
            Some(run(store, 0, number, input, version, responses))
        }
        KeyKind::Bytes => Some(run(store, &[][..], Some, input, version, responses)),
    }
}

/// Answers the commands whose keys `parse` accepts.
fn run<'i, K: LookupKey + Into<Key<'i>>>(
    store: &Store,
    blank: K,
    parse: impl Fn(&'i [u8]) -> Option<K>,
    input: &'i [u8],
    version: Version,
    responses: &mut Responses,
) -> NeighborRun {
    let mut keys = [(blank, Side::After); RUN_COMMANDS_MAX];
    let mut ends_bytes = [0; RUN_COMMANDS_MAX];
    let (mut key_count, mut at_bytes) = (0, 0);
    while key_count < RUN_COMMANDS_MAX
        && let Some((is_floor, key, len_bytes)) = floor_or_ceiling(&input[at_bytes..])
        && let Some(key) = parse(key)
    {
        at_bytes += len_bytes;
        keys[key_count] = (key, if is_floor { Side::After } else { Side::Before });
        ends_bytes[key_count] = at_bytes;
        key_count += 1;
    }
    let lookup = |i: usize| ColdLookup::Neighbor(keys[i].0.into(), keys[i].1);
    let key_count = responses.ready_count(store, key_count, lookup);
    let (mut count, mut damaged_count) = (0, 0);
    store.neighbor_each(
        key_count,
        |i| keys[i],
        |_, neighbor| {
            if responses.is_full() {
                return ControlFlow::Break(());
            }
            match neighbor {
                Ok(neighbor) => push_neighbor(&mut Reply::new(responses, version), neighbor),
                Err(_) if is_verification_interrupted() => return ControlFlow::Break(()),
                Err(_) => {
                    damaged_count += 1;
                    Reply::new(responses, version).error(damaged());
                }
            }
            count += 1;
            responses.steps().continue_after(count)
        },
    );
    let last = count.checked_sub(1);
    NeighborRun {
        count,
        damaged: damaged_count,
        ends_with_floor: last.is_some_and(|last| keys[last].1 == Side::After),
        end_bytes: last.map_or(0, |last| ends_bytes[last]),
    }
}
