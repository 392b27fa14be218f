//! A node of a cluster that follows the topologies in the store.
//!
//! In: topology documents, and the statuses of nodes. Out: the slots that the node needs, and the topology in effect. A
//! new topology takes effect when the primaries that get slots have the rows of these slots. Until then, the nodes that
//! have the rows continue to serve them, so there is no moment without an owner.

use super::cache::write_durably;
use super::document::{Series, decode, encode};
use super::error::PublishError;
use super::limits::{DOCUMENTS_PER_POLL_MAX, TOPOLOGY_LEN_MAX_BYTES};
use super::location::Location;
use super::status::NodeStatus;
use super::topology;
use crate::cluster::{Health, Role, SlotSet, Topology};
use crate::folder::Folder;

/// The name of the file with the topology in effect.
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

    /// Returns the slots that the node serves. After a change of the topology, these are more than the topology assigns to
    /// the node, until all other nodes must have read the topology.
    fn served_slots(&self) -> SlotSet;
}

/// The topologies that a node knows.
pub(super) struct Membership {
    member: Box<dyn ClusterMember>,
    node: String,
    /// The folder with the topology in effect, so that the node can start without the store.
    folder: Folder,
    current: Option<Topology>,
    /// A newer topology that is not in effect yet.
    next: Option<Topology>,
    /// Whether the newest topology was read since the follower was opened.
    is_newest_known: bool,
}

impl Membership {
    /// Puts the topology into effect that the node followed last, if the folder has it.
    pub(super) fn open(member: Box<dyn ClusterMember>, node: &str, folder: Folder) -> Membership {
        let mut membership =
            Membership { member, node: node.to_owned(), current: None, next: None, is_newest_known: false, folder };
        let json = membership.folder.read(FILE, TOPOLOGY_LEN_MAX_BYTES).ok();
        let cached = json.and_then(|json| decode::<Topology>(&json).ok()).filter(|topology| topology.check().is_ok());
        if let Some(topology) = cached
            && membership.member.apply(&topology).is_ok()
        {
            membership.current = Some(topology);
        }
        membership
    }

    /// Returns the number of the topology in effect, or 0 if there is none.
    pub(super) fn number(&self) -> u64 {
        self.current.as_ref().map_or(0, |topology| topology.number)
    }

    /// Returns the slots that the node needs: those that it serves, and those of the topology in effect and of the next one.
    pub(super) fn slots_needed(&self) -> SlotSet {
        let mut needed = self.member.served_slots();
        let topologies = self.current.iter().chain(&self.next);
        topologies.for_each(|topology| needed.insert_all(&topology.slots_of(&self.node)));
        needed
    }

    /// Announces the slots of the file that is served next.
    pub(super) fn set_file_slots(&mut self, slots: &SlotSet) {
        self.member.set_file_slots(slots);
    }

    /// Reads the topologies that follow the newest known one.
    pub(super) async fn read(&mut self, location: &Location) -> Result<(), PublishError> {
        let known = self.next.as_ref().map_or(self.number(), |next| next.number);
        let mut number = match self.is_newest_known {
            true => known + 1,
            false => location.newest(Series::Topologies, 0).await?.max(known + 1),
        };
        // A node that starts serves the preceding topology until the primaries of the newest one have their rows.
        if self.current.is_none()
            && !self.is_newest_known
            && number > 1
            && let Some(before) = topology::read(location, number - 1).await?
        {
            self.activate(before)?;
        }
        let end = number.saturating_add(DOCUMENTS_PER_POLL_MAX);
        while number < end
            && let Some(topology) = topology::read(location, number).await?
        {
            self.next = Some(topology);
            number += 1;
        }
        self.is_newest_known = true;
        // Nobody expects this node to serve slots before its first topology.
        match self.next.clone() {
            Some(first) if self.current.is_none() => self.activate(first),
            _ => Ok(()),
        }
    }

    /// Puts the next topology into effect, if the primaries that get slots have their rows. `held` has the slots whose
    /// rows this node serves.
    pub(super) async fn advance(&mut self, location: &Location, held: &SlotSet) -> Result<(), PublishError> {
        let Some(next) = &self.next else { return Ok(()) };
        if location.is_writable && !self.are_ready(next, location, held).await? {
            return Ok(());
        }
        let next = next.clone();
        self.activate(next)
    }

    /// Returns whether all primaries that get slots have reported that they have the rows.
    async fn are_ready(&self, next: &Topology, location: &Location, held: &SlotSet) -> Result<bool, PublishError> {
        let serves = |node: &&crate::cluster::TopologyNode| node.role == Role::Primary && node.health != Health::Fail;
        let current = self.current.as_ref().map(Topology::index);
        for primary in next.nodes.iter().filter(serves) {
            let needed: SlotSet = primary.slots.iter().copied().collect();
            // A replica that is promoted has the rows already.
            let had = current.as_ref().map_or(SlotSet::NONE, |current| current.slots_of(&primary.id));
            if needed.is_subset(&had) {
                continue;
            }
            let has = match primary.id == self.node {
                true => held.clone(),
                false => {
                    NodeStatus::read(location, &primary.id).await?.map_or(SlotSet::NONE, |status| status.slot_set())
                }
            };
            if !needed.is_subset(&has) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn activate(&mut self, topology: Topology) -> Result<(), PublishError> {
        let rejected = |problem| PublishError::Topology { url: format!("topology {}", topology.number), problem };
        self.member.apply(&topology).map_err(rejected)?;
        write_durably(&self.folder, FILE, &encode(&topology))?;
        if self.next.as_ref().is_some_and(|next| next.number <= topology.number) {
            self.next = None;
        }
        self.current = Some(topology);
        Ok(())
    }
}
