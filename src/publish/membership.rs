//! A node of a cluster: the part of a program that serves its slots, and the topology that its folder keeps.
//!
//! In: topologies. Out: the slots that the program serves. [`NodeMachine`](super::node::NodeMachine) decides when a
//! topology takes effect.

use super::cache::write_durably;
use super::document::{decode, encode};
use super::error::PublishError;
use super::limits::TOPOLOGY_LEN_MAX_BYTES;
use crate::cluster::{SlotSet, Topology};
use crate::folder::Folder;

/// The name of the file with the topology in effect, so that a node can start without the store.
const FILE: &str = "topology.json";

/// The part of a program that serves the slots of a node.
pub trait ClusterMember: Send {
    /// Puts a topology into effect, or returns why it cannot.
    ///
    /// # Errors
    /// The reason.
    fn apply(&mut self, topology: &Topology) -> Result<(), String>;

    /// Announces the slots of the file that is served next.
    fn set_file_slots(&mut self, slots: &SlotSet);

    /// Sets the slots of coming topologies that the node serves already, because it has confirmed that it has their rows.
    /// Other nodes may put such a topology into effect first, and redirect clients to this node.
    fn confirm(&mut self, slots: &SlotSet);

    /// Returns the slots that the node serves. After a change of the topology, these are more than the topology assigns to
    /// the node, until all other nodes must have read the topology.
    fn served_slots(&self) -> SlotSet;
}

/// Puts the topology into effect that the node followed last, and returns it, if the folder has it.
pub(super) fn restore(member: &mut dyn ClusterMember, folder: &Folder) -> Option<Topology> {
    let json = folder.read(FILE, TOPOLOGY_LEN_MAX_BYTES).ok()?;
    let topology = decode::<Topology>(&json).ok().filter(|topology| topology.check().is_ok())?;
    member.apply(&topology).ok().map(|()| topology)
}

/// Puts a topology into effect, and records it in the folder.
pub(super) fn activate(
    member: &mut dyn ClusterMember,
    topology: &Topology,
    folder: &Folder,
) -> Result<(), PublishError> {
    let rejected = |problem| PublishError::Topology { url: format!("topology {}", topology.number), problem };
    member.apply(topology).map_err(rejected)?;
    write_durably(folder, FILE, &encode(topology))
}
