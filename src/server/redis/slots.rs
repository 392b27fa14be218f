//! The slots of keys, if the server is a node of a cluster.
//!
//! In: keys as clients sent them. Out: the slot that all of them have, or the error of Redis.

use super::text::{number, quoted};
use crate::format::key::{Key, KeyKind};
use crate::protocol::resp::Version;
use crate::server::responses::Responses;
use crate::slots::slot_of;

const CROSS_SLOT: &str = "CROSSSLOT Keys in request don't hash to the same slot";

/// Decides which keys of a run of lookups a node answers for.
pub(super) trait Routing: Copy {
    /// Returns whether a key may be looked up in a run. Another key is executed as a single command.
    fn admits(self, kind: KeyKind, text: &[u8]) -> bool;

    /// Replies with an error to a command whose key the table does not have, if another node may have it. Returns whether
    /// it did.
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
    fn refuse_missing(self, _: Key<'_>, _: Version, _: &mut Responses) -> bool {
        false
    }
}

/// Returns whether a text begins with zeros that its number does not need.
#[inline]
pub(super) fn is_padded(text: &[u8]) -> bool {
    matches!(text, [b'0', _, ..])
}

/// The slot of a command's keys.
#[derive(Clone, Copy, Default)]
pub(super) struct SlotOfKeys(Option<u16>);

impl SlotOfKeys {
    /// Returns the slot, or `None` if there are no keys.
    pub(super) fn get(self) -> Option<u16> {
        self.0
    }

    /// Adds a key.
    ///
    /// # Errors
    /// The text of the error reply, if the key has another slot than the others, or is not written as clients hash it.
    pub(super) fn add(&mut self, kind: KeyKind, text: &[u8]) -> Result<(), String> {
        if kind == KeyKind::U64 && is_padded(text) && number(text).is_some() {
            return Err(format!(
                "ERR {} is not a key of this cluster: write the number without leading zeros, because clients choose \
                 the node by the text of the key",
                quoted(text)
            ));
        }
        self.add_slot(slot_of(Key::Bytes(text)))
    }

    fn add_slot(&mut self, slot: u16) -> Result<(), String> {
        if *self.0.get_or_insert(slot) == slot { Ok(()) } else { Err(CROSS_SLOT.to_owned()) }
    }
}

/// The slots of the commands of a transaction.
#[derive(Clone, Copy, Default)]
pub(super) struct SlotsOfTransaction {
    slot: SlotOfKeys,
    /// Whether the commands have keys of several slots.
    is_cross: bool,
}

impl SlotsOfTransaction {
    /// Adds the slot of a command's keys.
    pub(super) fn add(&mut self, slot: SlotOfKeys) {
        self.is_cross |= slot.0.is_some_and(|slot| self.slot.add_slot(slot).is_err());
    }

    /// Adds the slots to those of EXEC.
    pub(super) fn add_to(&self, slot: &mut SlotOfKeys) -> Result<(), String> {
        *slot = self.slot;
        if self.is_cross { Err(CROSS_SLOT.to_owned()) } else { Ok(()) }
    }
}
