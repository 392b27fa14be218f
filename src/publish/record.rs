//! The record of what a node serves, in its folder.

use serde::{Deserialize, Serialize};

use super::limits::{self, EARLIER_SLOTS_MAX, NUMBER_MAX, RANGES_MAX};
use super::pin::Pin;
use crate::slots::SlotRange;

/// What a node serves, and the pin that it follows. A node that starts again follows this pin, or a newer one, even if the
/// store does not return it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The generation that the node serves or was about to serve, or 0.
    pub(super) generation: u64,
    /// The number of the newest pin that the node has read, or 0.
    pub(super) pin: u64,
    /// This pin. `None` if there is none, or if an earlier version recorded only its number.
    #[serde(default)]
    pub(super) pinned: Option<Pin>,
    /// The slots of the file. Empty if an earlier version recorded them.
    #[serde(default, deserialize_with = "limits::list::<_, _, RANGES_MAX>")]
    pub(super) slots: Vec<SlotRange>,
    /// The slots of the files that a node of a cluster served before. Files of older generations may have them.
    #[serde(default, deserialize_with = "limits::list::<_, _, EARLIER_SLOTS_MAX>")]
    pub(super) earlier_slots: Vec<Vec<SlotRange>>,
}

impl Record {
    /// Returns the record after a swap to this one failed: `before` is what the node served. Its pin stays the newest one.
    pub(super) fn after_failure(&self, before: Record) -> Record {
        Record { generation: before.generation, slots: before.slots, ..self.clone() }
    }

    /// Returns whether a node can have written the record.
    pub(super) fn is_possible(&self) -> bool {
        let is_pin = |pin: &Pin| self.pin > 0 && pin.check().is_ok();
        self.generation <= NUMBER_MAX && self.pin <= NUMBER_MAX && self.pinned.as_ref().is_none_or(is_pin)
    }
}
