//! The topology of a cluster: which node serves which slots.
//!
//! In: the JSON of a topology document. Out: the checked document, or what is wrong with it. Operators write documents,
//! nodes follow them, and clients of the cluster learn from the nodes where to send requests. This module does no I/O.

mod address;
mod document;
mod index;
mod limits;
mod plan;
mod replica_places;

pub use crate::slot_set::SlotSet;
pub use address::NodeAddress;
#[cfg(feature = "server")]
pub(crate) use document::joined_ranges;
#[cfg(any(feature = "object-store", feature = "server"))]
pub(crate) use document::node_id_problem;
pub use document::{Health, Role, TOPOLOGY_FORMAT, Topology, TopologyError, TopologyNode};
pub use index::NodeIndex;
#[cfg(feature = "object-store")]
pub(crate) use limits::NUMBER_MAX;
pub use limits::{LEN_MAX_BYTES as TOPOLOGY_LEN_MAX_BYTES, NODES_MAX as TOPOLOGY_NODES_MAX};
pub use plan::{PlanError, moved_slots, plan, without_failed};
