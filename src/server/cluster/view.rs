//! What a node knows about the cluster at one time.
//!
//! In: a topology, and the id of this node. Out: the node that serves each slot, and the replies of the CLUSTER command.
//! The replies are rendered once, because many clients ask for them at the same time when they reconnect.

use std::sync::Arc;

use super::render;
use crate::cluster::{Health, NodeAddress, Role, SlotSet, Topology, TopologyError, TopologyNode};
use crate::protocol::resp::Version;
use crate::slots::SLOT_COUNT;

/// The slots that a node serves.
#[derive(Clone)]
pub(super) struct ServedSlots {
    /// The slots that it serves to all clients, because it is their primary.
    primary: SlotSet,
    /// The slots that it serves after READONLY: those of its primary if it is a replica, otherwise its own.
    readonly: SlotSet,
}

impl ServedSlots {
    pub(super) const NONE: ServedSlots = ServedSlots { primary: SlotSet::NONE, readonly: SlotSet::NONE };

    /// Returns the slots that the topology assigns to a node.
    fn assigned(topology: &Topology, this: Option<usize>) -> ServedSlots {
        let Some(node) = this.map(|this| &topology.nodes[this]) else { return ServedSlots::NONE };
        let readonly = topology.slots_of(&node.id);
        let primary = if node.role == Role::Primary { readonly.clone() } else { SlotSet::NONE };
        ServedSlots { primary, readonly }
    }

    fn remove_all(&mut self, other: &ServedSlots) {
        self.primary.remove_all(&other.primary);
        self.readonly.remove_all(&other.readonly);
    }

    fn insert_all(&mut self, other: &ServedSlots) {
        self.primary.insert_all(&other.primary);
        self.readonly.insert_all(&other.readonly);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.primary.is_empty() && self.readonly.is_empty()
    }
}

/// What a node knows about the cluster.
pub(in crate::server) struct View {
    /// A number that differs between the views of a node.
    pub(super) version: u64,
    /// `None` before the node has a topology.
    topology: Option<Topology>,
    /// The position of this node in the topology. `None` if the topology does not have it.
    this: Option<usize>,
    /// The position of the primary of each slot. Empty before the node has a topology.
    owners: Box<[u16]>,
    served: ServedSlots,
    /// The slots among `served` that the topology does not assign to this node.
    retained: ServedSlots,
    /// The replies to CLUSTER SLOTS and CLUSTER SHARDS in both versions of the protocol.
    slots: [Arc<[u8]>; 2],
    shards: [Arc<[u8]>; 2],
    /// The reply to CLUSTER NODES in both versions of the protocol.
    nodes: [Arc<[u8]>; 2],
    /// The topology document.
    json: Arc<[u8]>,
}

impl View {
    /// Returns the view of a node without a topology: no node serves any slot.
    pub(super) fn unknown(id: &str, announced: &NodeAddress) -> View {
        let alone = TopologyNode {
            id: id.to_owned(),
            host: announced.host.clone(),
            port: announced.port,
            role: Role::Primary,
            primary: None,
            slots: Vec::new(),
            zone: None,
            health: Health::Online,
        };
        let alone = Topology { format: 0, number: 0, nodes: vec![alone] };
        let rendered = |render: fn(&Topology, Option<usize>, Version) -> Vec<u8>| {
            [Version::Resp2, Version::Resp3].map(|version| Arc::from(render(&alone, Some(0), version)))
        };
        View {
            version: 0,
            slots: rendered(render::slots),
            shards: rendered(render::shards),
            nodes: rendered(render::nodes),
            json: Arc::default(),
            topology: None,
            this: None,
            owners: Box::default(),
            served: ServedSlots::NONE,
            retained: ServedSlots::NONE,
        }
    }

    /// Returns the view of the node `id`, which also serves the slots `retained` if it still has their rows.
    ///
    /// # Errors
    /// [`TopologyError`], if a slot does not have exactly one primary.
    pub(super) fn new(
        topology: Topology,
        id: &str,
        version: u64,
        mut retained: ServedSlots,
    ) -> Result<View, TopologyError> {
        let (this, owners) = (topology.position(id), topology.owners()?);
        let mut served = ServedSlots::assigned(&topology, this);
        retained.remove_all(&served);
        served.insert_all(&retained);
        let rendered = |render: fn(&Topology, Option<usize>, Version) -> Vec<u8>| {
            [Version::Resp2, Version::Resp3].map(|version| Arc::from(render(&topology, this, version)))
        };
        Ok(View {
            version,
            slots: rendered(render::slots),
            shards: rendered(render::shards),
            nodes: rendered(render::nodes),
            json: topology.to_json().into_bytes().into(),
            this,
            owners,
            served,
            retained,
            topology: Some(topology),
        })
    }

    /// Returns a number that differs between the views of a node.
    #[inline]
    pub(in crate::server) fn version(&self) -> u64 {
        self.version
    }

    /// Returns the number of the topology, or 0 if there is none.
    pub(in crate::server) fn number(&self) -> u64 {
        self.topology.as_ref().map_or(0, |topology| topology.number)
    }

    /// Returns the offset of replication that clients see: the number of the topology, or 0 if this node is not part of it.
    /// Lettuce does not read from a replica whose offset is 0.
    pub(in crate::server) fn offset(&self) -> i64 {
        self.this_node().map_or(0, |_| i64::try_from(self.number()).unwrap_or(i64::MAX))
    }

    pub(in crate::server) fn topology(&self) -> Option<&Topology> {
        self.topology.as_ref()
    }

    /// Returns the slots that this node serves for a connection. `reads_replicas` says whether the client allows reads
    /// from replicas.
    #[inline]
    pub(in crate::server) fn served_slots(&self, reads_replicas: bool) -> &SlotSet {
        if reads_replicas { &self.served.readonly } else { &self.served.primary }
    }

    /// Returns all slots that this node serves.
    pub(super) fn served(&self) -> &ServedSlots {
        &self.served
    }

    /// Returns the slots that this node still serves although the topology does not assign them to it.
    pub(super) fn retained(&self) -> &ServedSlots {
        &self.retained
    }

    /// Returns whether this node is the primary of a slot.
    #[cfg(test)]
    pub(super) fn is_primary_of(&self, slot: u16) -> bool {
        self.served.primary.has(slot)
    }

    /// Returns the node that clients should send requests for a slot to, or `None` before the node has a topology.
    pub(in crate::server) fn owner(&self, slot: u16) -> Option<&TopologyNode> {
        let position = *self.owners.get(usize::from(slot))?;
        self.topology.as_ref()?.nodes.get(usize::from(position))
    }

    /// Returns whether a node of the topology is this node.
    pub(in crate::server) fn is_this(&self, node: &TopologyNode) -> bool {
        self.this_node().is_some_and(|this| this.id == node.id)
    }

    /// Returns this node as the topology describes it.
    fn this_node(&self) -> Option<&TopologyNode> {
        self.topology.as_ref()?.nodes.get(self.this?)
    }

    /// Returns the primary of this node, if this node is a replica.
    pub(in crate::server) fn primary_of_this(&self) -> Option<&TopologyNode> {
        self.topology.as_ref()?.node(self.this_node()?.primary.as_deref()?)
    }

    /// Returns the replicas of this node that clients see.
    pub(in crate::server) fn replicas_of_this(&self) -> Vec<&TopologyNode> {
        let replicas = |this: &'_ TopologyNode| {
            let id = this.id.as_str();
            let nodes = self.topology.iter().flat_map(|topology| &topology.nodes);
            nodes.filter(|node| node.primary.as_deref() == Some(id) && node.health != Health::Hidden).collect()
        };
        self.this_node().map(replicas).unwrap_or_default()
    }

    /// Returns the reply to CLUSTER SLOTS.
    pub(in crate::server) fn slots_reply(&self, version: Version) -> &Arc<[u8]> {
        &self.slots[usize::from(version == Version::Resp3)]
    }

    /// Returns the reply to CLUSTER SHARDS.
    pub(in crate::server) fn shards_reply(&self, version: Version) -> &Arc<[u8]> {
        &self.shards[usize::from(version == Version::Resp3)]
    }

    /// Returns the topology document, or an empty text if there is none.
    pub(in crate::server) fn topology_json(&self) -> &Arc<[u8]> {
        &self.json
    }

    /// Returns the reply to CLUSTER NODES.
    pub(in crate::server) fn nodes_reply(&self, version: Version) -> &Arc<[u8]> {
        &self.nodes[usize::from(version == Version::Resp3)]
    }

    /// Returns the node with this id.
    ///
    /// # Errors
    /// The text of Redis's error, if there is no such node.
    pub(in crate::server) fn require_node(&self, id: &[u8]) -> Result<&TopologyNode, String> {
        let mut nodes = self.topology.iter().flat_map(|topology| &topology.nodes);
        nodes
            .find(|node| node.id.as_bytes() == id)
            .ok_or_else(|| format!("ERR Unknown node {}", String::from_utf8_lossy(id)))
    }

    /// Returns the lines of CLUSTER REPLICAS.
    ///
    /// # Errors
    /// The text of Redis's error, if there is no such node or it is a replica.
    pub(in crate::server) fn replica_lines(&self, id: &[u8]) -> Result<Vec<String>, String> {
        let node = self.require_node(id)?;
        let Some(topology) = &self.topology else { return Ok(Vec::new()) };
        if node.role == Role::Replica {
            return Err("ERR The specified node is not a master".to_owned());
        }
        let visible = topology.replicas_of(&node.id).filter(|node| node.health != Health::Hidden);
        Ok(visible.map(|replica| render::node_line(topology, replica, self.this)).collect())
    }

    /// Returns the lines of CLUSTER INFO.
    pub(in crate::server) fn info_text(&self) -> String {
        let nodes = self.topology.as_ref().map_or(&[][..], |topology| &topology.nodes);
        let failed_slots: usize = nodes
            .iter()
            .filter(|node| node.role == Role::Primary && node.health == Health::Fail)
            .map(|node| node.slots.iter().copied().collect::<SlotSet>().len())
            .sum();
        let primaries = nodes.iter().filter(|node| node.role == Role::Primary && !node.slots.is_empty()).count();
        let slots = if nodes.is_empty() { 0 } else { usize::from(SLOT_COUNT) };
        let known = nodes.iter().filter(|node| node.health != Health::Hidden).count().max(1);
        let (state, number) = (if nodes.is_empty() { "fail" } else { "ok" }, self.number());
        [
            ("state", state.to_owned()),
            ("slots_assigned", slots.to_string()),
            ("slots_ok", (slots - failed_slots).to_string()),
            ("slots_pfail", "0".to_owned()),
            ("slots_fail", failed_slots.to_string()),
            ("known_nodes", known.to_string()),
            ("size", primaries.to_string()),
            ("current_epoch", number.to_string()),
            ("my_epoch", number.to_string()),
            ("stats_messages_sent", "0".to_owned()),
            ("stats_messages_received", "0".to_owned()),
        ]
        .iter()
        .map(|(name, value)| format!("cluster_{name}:{value}\r\n"))
        .chain(["total_cluster_links_buffer_limit_exceeded:0\r\n".to_owned()])
        .collect()
    }
}
