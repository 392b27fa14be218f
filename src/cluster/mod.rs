//! The topology of a cluster: which node serves which slots.
//!
//! In: the JSON of a topology document. Out: the checked document, or what is wrong with it. Operators write documents,
//! nodes follow them, and clients of the cluster learn from the nodes where to send requests. This module does no I/O.

mod document;
mod plan;

pub use crate::slot_set::SlotSet;
#[cfg(feature = "object-store")]
pub(crate) use document::NUMBER_MAX;
#[cfg(feature = "server")]
pub(crate) use document::joined_ranges;
#[cfg(any(feature = "object-store", feature = "server"))]
pub(crate) use document::node_id_problem;
pub use document::{
    Health, LEN_MAX_BYTES as TOPOLOGY_LEN_MAX_BYTES, NODES_MAX as TOPOLOGY_NODES_MAX, NodeAddress, NodeIndex, Role,
    TOPOLOGY_FORMAT, Topology, TopologyError, TopologyNode,
};
pub use plan::{PlanError, moved_slots, plan, without_failed};
