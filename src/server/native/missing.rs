//! The status of a response for a key that the table does not have.
//!
//! In: keys. Out: Not found, or, on a node of a cluster, Moved if another node serves the key's slot.

use std::sync::Arc;

use crate::cluster::SlotSet;
use crate::format::key::Key;
use crate::protocol::native::Status;
use crate::server::cluster::{ClusterNode, View};
use crate::slots::slot_of;

/// Determines the status of the response for a missing key.
pub(super) trait Missing: Copy {
    /// Returns the status.
    fn status(self, key: Key<'_>) -> Status;
}

/// The keys of a server that is not part of a cluster.
#[derive(Clone, Copy)]
pub(super) struct Nowhere;

impl Missing for Nowhere {
    #[inline(always)]
    fn status(self, _: Key<'_>) -> Status {
        Status::NotFound
    }
}

/// The cluster during one pass.
pub(super) struct PassView(Arc<View>);

impl PassView {
    pub(super) fn new(node: &ClusterNode) -> PassView {
        PassView(node.view())
    }

    /// Returns the slots whose missing keys no node has. `of_file` has the slots whose rows the file has.
    pub(super) fn slots<'v>(&'v self, of_file: &'v SlotSet) -> NodeSlots<'v> {
        // The rows of a replica are those of its primary, and no client of this protocol needs a primary.
        NodeSlots { assigned: self.0.served_slots(true), of_file }
    }
}

/// The slots of a node of a cluster.
#[derive(Clone, Copy)]
pub(super) struct NodeSlots<'v> {
    assigned: &'v SlotSet,
    of_file: &'v SlotSet,
}

impl Missing for NodeSlots<'_> {
    fn status(self, key: Key<'_>) -> Status {
        let slot = slot_of(key);
        if self.assigned.has(slot) && self.of_file.has(slot) { Status::NotFound } else { Status::Moved }
    }
}
