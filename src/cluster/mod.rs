//! The topology of a cluster: which node serves which slots.
//!
//! In: the JSON of a topology document. Out: the checked document, or what is wrong with it. Operators write documents,
//! nodes follow them, and clients of the cluster learn from the nodes where to send requests. This module does no I/O.

mod address;
mod document;
mod plan;
mod slot_set;

pub use address::NodeAddress;
#[cfg(any(feature = "object-store", feature = "server"))]
pub(crate) use document::node_id_problem;
pub use document::{Health, Role, TOPOLOGY_FORMAT, Topology, TopologyError, TopologyNode};
pub use plan::{PlanError, moved_slots, plan, without_failed};
pub use slot_set::SlotSet;
