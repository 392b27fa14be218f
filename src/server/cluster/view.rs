//! What a node knows about the cluster at one time.
//!
//! In: a topology, and the id of this node. Out: the node that serves each slot, and the replies of the CLUSTER
//! command. The replies are rendered once, because many clients ask for them at the same time when they reconnect.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use crate::cluster::{
    Health, NodeAddress, NodeIndex, Role, SlotSet, Topology, TopologyError, TopologyNode, joined_ranges,
};
use crate::protocol::resp::{Reply, Version};
use crate::slots::{SLOT_COUNT, SlotRange};
use crate::sync::unpoisoned;

#[derive(Clone, PartialEq)]
pub(super) struct ServedSlots {
    /// The slots that it serves to all clients, because it is their primary.
    primary: SlotSet,
    /// The slots that it serves after READONLY: those of its primary if it is a replica, otherwise its own.
    readonly: SlotSet,
}

impl ServedSlots {
    pub(super) const NONE: ServedSlots = ServedSlots { primary: SlotSet::NONE, readonly: SlotSet::NONE };

    fn assigned(topology: &Topology, index: &NodeIndex<'_>, this: Option<usize>) -> ServedSlots {
        let Some(node) = this.map(|this| &topology.nodes[this]) else { return ServedSlots::NONE };
        let readonly = index.slots_of(&node.id);
        let primary = if node.role == Role::Primary { readonly.clone() } else { SlotSet::NONE };
        ServedSlots { primary, readonly }
    }

    /// Returns slots that a node serves as their primary.
    pub(super) fn as_primary(slots: SlotSet) -> ServedSlots {
        ServedSlots { primary: slots.clone(), readonly: slots }
    }

    pub(super) fn remove_all(&mut self, other: &ServedSlots) {
        self.primary.remove_all(&other.primary);
        self.readonly.remove_all(&other.readonly);
    }

    pub(super) fn insert_all(&mut self, other: &ServedSlots) {
        self.primary.insert_all(&other.primary);
        self.readonly.insert_all(&other.readonly);
    }
}

/// Renders a reply of the CLUSTER command.
type Render = fn(&Topology, &NodeIndex<'_>, Version) -> Vec<u8>;

/// Renders a reply in both versions of the protocol.
fn in_both_versions(render: impl Fn(Version) -> Vec<u8>) -> [Arc<[u8]>; 2] {
    [Version::Resp2, Version::Resp3].map(|version| render(version).into())
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
    /// The lines of CLUSTER INFO of a node that has the rows of all its slots.
    info: String,
    /// The positions of all nodes, in the order of their ids.
    by_id: Box<[u16]>,
    /// The positions of the primary and of the visible replicas of this node.
    primary_of_this: Option<u16>,
    replicas_of_this: Box<[u16]>,
    /// The replies to CLUSTER REPLICAS that clients have requested, by the position of the primary, and the reply to
    /// ROLE of a primary. They are the same in both versions of the protocol. Together, they have each node once or
    /// twice.
    replicas: Mutex<BTreeMap<u16, Arc<[u8]>>>,
    role: OnceLock<Arc<[u8]>>,
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
        let index = alone.index();
        let rendered = |render: Render| in_both_versions(|version| render(&alone, &index, version));
        View {
            version: 0,
            slots: rendered(slots),
            shards: rendered(shards),
            nodes: in_both_versions(|version| nodes(&alone, Some(0), version)),
            info: info(None, &SlotSet::NONE),
            by_id: Box::default(),
            primary_of_this: None,
            replicas_of_this: Box::default(),
            replicas: Mutex::default(),
            role: OnceLock::new(),
            json: Arc::default(),
            topology: None,
            this: None,
            owners: Box::default(),
            served: ServedSlots::NONE,
            retained: ServedSlots::NONE,
        }
    }

    /// Returns the view of the node `id`, which also serves the slots `retained` if it still has their rows.
    pub(super) fn new(
        topology: Topology,
        id: &str,
        version: u64,
        mut retained: ServedSlots,
    ) -> Result<View, TopologyError> {
        let (index, owners) = (topology.index(), topology.owners()?);
        let this = index.position(id);
        let mut served = ServedSlots::assigned(&topology, &index, this);
        retained.remove_all(&served);
        served.insert_all(&retained);
        let rendered = |render: Render| in_both_versions(|version| render(&topology, &index, version));
        // A topology has at most 16,384 nodes.
        let positions = || (0..).zip(&topology.nodes);
        let mut by_id: Vec<u16> = positions().map(|(position, _)| position).collect();
        by_id.sort_by_key(|position| topology.nodes[usize::from(*position)].id.as_str());
        let is_replica = |node: &TopologyNode| this.is_some() && node.primary.as_deref() == Some(id);
        let replicas = positions().filter(|(_, node)| is_replica(node) && node.health != Health::Hidden);
        let primary = this.and_then(|this| index.position(topology.nodes[this].primary.as_deref()?));
        Ok(View {
            version,
            slots: rendered(slots),
            shards: rendered(shards),
            nodes: in_both_versions(|version| nodes(&topology, this, version)),
            info: info(Some(&topology), &SlotSet::NONE),
            by_id: by_id.into(),
            primary_of_this: primary.and_then(|position| u16::try_from(position).ok()),
            replicas_of_this: replicas.map(|(position, _)| position).collect(),
            replicas: Mutex::default(),
            role: OnceLock::new(),
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

    /// Returns the offset of replication that clients see: the number of the topology, or 0 if this node is not part of
    /// it. Lettuce does not read from a replica whose offset is 0.
    pub(in crate::server) fn offset(&self) -> i64 {
        self.this_node().map_or(0, |_| i64::try_from(self.number()).unwrap_or(i64::MAX))
    }

    pub(in crate::server) fn node_count(&self) -> usize {
        self.by_id.len()
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

    pub(super) fn served(&self) -> &ServedSlots {
        &self.served
    }

    /// Returns the slots that the topology assigns to this node, but whose rows a file with the slots `of_file` lacks.
    pub(in crate::server) fn lacking_slots(&self, of_file: &SlotSet) -> SlotSet {
        let mut lacking = self.served.clone();
        lacking.remove_all(&self.retained);
        lacking.readonly.remove_all(of_file);
        lacking.readonly
    }

    /// Returns the slots that this node still serves although the topology does not assign them to it.
    pub(super) fn retained(&self) -> &ServedSlots {
        &self.retained
    }

    #[cfg(test)]
    pub(super) fn is_primary_of(&self, slot: u16) -> bool {
        self.served.primary.has(slot)
    }

    /// Returns the node that clients should send requests for a slot to, or `None` before the node has a topology.
    pub(in crate::server) fn owner(&self, slot: u16) -> Option<&TopologyNode> {
        self.node_at(*self.owners.get(usize::from(slot))?)
    }

    pub(in crate::server) fn is_this(&self, node: &TopologyNode) -> bool {
        self.this_node().is_some_and(|this| this.id == node.id)
    }

    fn this_node(&self) -> Option<&TopologyNode> {
        self.topology.as_ref()?.nodes.get(self.this?)
    }

    /// Returns the primary of this node, if this node is a replica.
    pub(in crate::server) fn primary_of_this(&self) -> Option<&TopologyNode> {
        self.node_at(self.primary_of_this?)
    }

    /// Returns the replicas of this node that clients see.
    pub(in crate::server) fn replicas_of_this(&self) -> Vec<&TopologyNode> {
        self.replicas_of_this.iter().filter_map(|position| self.node_at(*position)).collect()
    }

    fn node_at(&self, position: u16) -> Option<&TopologyNode> {
        self.topology.as_ref()?.nodes.get(usize::from(position))
    }

    pub(in crate::server) fn slots_reply(&self, version: Version) -> &Arc<[u8]> {
        &self.slots[usize::from(version == Version::Resp3)]
    }

    pub(in crate::server) fn shards_reply(&self, version: Version) -> &Arc<[u8]> {
        &self.shards[usize::from(version == Version::Resp3)]
    }

    /// Returns the topology document, or an empty text if there is none.
    pub(in crate::server) fn topology_json(&self) -> &Arc<[u8]> {
        &self.json
    }

    pub(in crate::server) fn nodes_reply(&self, version: Version) -> &Arc<[u8]> {
        &self.nodes[usize::from(version == Version::Resp3)]
    }

    fn require_position(&self, id: &[u8]) -> Result<(u16, &TopologyNode), String> {
        let node_id = |position: &u16| self.node_at(*position).map(|node| node.id.as_bytes());
        let found = self.by_id.binary_search_by(|position| node_id(position).cmp(&Some(id))).ok();
        let position = found.map(|at| self.by_id[at]);
        position
            .and_then(|position| Some((position, self.node_at(position)?)))
            .ok_or_else(|| format!("ERR Unknown node {}", String::from_utf8_lossy(id)))
    }

    /// Returns the reply to CLUSTER REPLICAS, which is rendered once for each primary.
    pub(in crate::server) fn replicas_reply(&self, id: &[u8]) -> Result<Arc<[u8]>, String> {
        let (position, node) = self.require_position(id)?;
        if node.role == Role::Replica {
            return Err("ERR The specified node is not a master".to_owned());
        }
        let topology = self.topology.as_ref();
        let render = || topology.map_or_else(Vec::new, |topology| replicas(topology, &node.id, self.this));
        let mut replies = unpoisoned(&self.replicas);
        Ok(Arc::clone(replies.entry(position).or_insert_with(|| render().into())))
    }

    /// Returns the reply to ROLE of a primary, or of a node that is not part of the topology.
    pub(in crate::server) fn primary_role_reply(&self) -> &Arc<[u8]> {
        self.role.get_or_init(|| primary_role(self.offset(), &self.replicas_of_this()).into())
    }

    /// Returns the lines of CLUSTER INFO of a node whose file has the slots `of_file`.
    pub(in crate::server) fn info_text(&self, of_file: &SlotSet) -> Cow<'_, str> {
        let lacking = self.lacking_slots(of_file);
        if lacking.is_empty() { Cow::Borrowed(&self.info) } else { Cow::Owned(info(self.topology(), &lacking)) }
    }
}

/// The distance between a node's port and the port of the bus that nodes of Redis use. This server has no bus, but
/// clients expect a number.
const BUS_PORT_DISTANCE: u32 = 10_000;

/// Returns the ranges of the primaries in the order of their slots.
fn ranges(topology: &Topology) -> Vec<(SlotRange, &TopologyNode)> {
    let primaries = topology.nodes.iter().filter(|node| node.role == Role::Primary);
    let mut ranges: Vec<_> =
        primaries.flat_map(|node| joined_ranges(&node.slots).into_iter().map(move |range| (range, node))).collect();
    ranges.sort_by_key(|(range, _)| range.first_slot);
    ranges
}

/// Renders CLUSTER SLOTS. As in Redis, the reply has the primary of each range and those of its replicas that are
/// online.
pub(super) fn slots(topology: &Topology, index: &NodeIndex<'_>, version: Version) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut reply = Reply::new(&mut bytes, version);
    let ranges = ranges(topology);
    reply.array(ranges.len());
    for (range, primary) in ranges {
        let replicas = index.replicas_of(&primary.id).iter().copied();
        let replicas: Vec<_> = replicas.filter(|replica| replica.health == Health::Online).collect();
        reply.array(3 + replicas.len());
        reply.integer(range.first_slot.into());
        reply.integer(range.last_slot.into());
        for node in [primary].into_iter().chain(replicas) {
            reply.array(4);
            reply.bulk(node.host.as_bytes());
            reply.integer(node.port.into());
            reply.bulk(node.id.as_bytes());
            reply.map(0);
        }
    }
    bytes
}

/// Renders CLUSTER SHARDS. A shard is a primary with its replicas.
pub(super) fn shards(topology: &Topology, index: &NodeIndex<'_>, version: Version) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut reply = Reply::new(&mut bytes, version);
    let is_shard = |node: &&TopologyNode| node.role == Role::Primary && node.health != Health::Hidden;
    let primaries: Vec<_> = topology.nodes.iter().filter(is_shard).collect();
    reply.array(primaries.len());
    for primary in primaries {
        let ranges = joined_ranges(&primary.slots);
        let replicas = index.replicas_of(&primary.id).iter().copied();
        let replicas: Vec<_> = replicas.filter(|replica| replica.health != Health::Hidden).collect();
        reply.map(2);
        reply.bulk(b"slots");
        reply.array(2 * ranges.len());
        ranges.iter().flat_map(|range| [range.first_slot, range.last_slot]).for_each(|slot| reply.integer(slot.into()));
        reply.bulk(b"nodes");
        reply.array(1 + replicas.len());
        [primary].into_iter().chain(replicas).for_each(|node| shard_node(node, topology.number, &mut reply));
    }
    bytes
}

fn shard_node(node: &TopologyNode, offset: u64, reply: &mut Reply<'_>) {
    let role = if node.role == Role::Primary { "master" } else { "replica" };
    let text = |reply: &mut Reply<'_>, name: &str, value: &str| {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    };
    reply.map(7);
    text(reply, "id", &node.id);
    reply.bulk(b"port");
    reply.integer(node.port.into());
    text(reply, "ip", &node.host);
    text(reply, "endpoint", &node.host);
    text(reply, "role", role);
    reply.bulk(b"replication-offset");
    reply.integer(i64::try_from(offset).unwrap_or(i64::MAX));
    text(reply, "health", node.health.name());
}

/// Renders CLUSTER NODES: a line for each node that clients see. `this` is the position of this node.
pub(super) fn nodes(topology: &Topology, this: Option<usize>, version: Version) -> Vec<u8> {
    let visible = topology.nodes.iter().filter(|node| node.health != Health::Hidden);
    let lines: String = visible.map(|node| node_line(topology, node, this) + "\n").collect();
    let mut bytes = Vec::new();
    Reply::new(&mut bytes, version).verbatim(&lines);
    bytes
}

/// Renders CLUSTER REPLICAS: a line for each replica of a node that clients see.
pub(super) fn replicas(topology: &Topology, primary_id: &str, this: Option<usize>) -> Vec<u8> {
    let visible = topology.replicas_of(primary_id).filter(|node| node.health != Health::Hidden);
    let lines: Vec<String> = visible.map(|replica| node_line(topology, replica, this)).collect();
    let mut bytes = Vec::new();
    let mut reply = Reply::new(&mut bytes, Version::Resp2);
    reply.array(lines.len());
    lines.iter().for_each(|line| reply.bulk(line.as_bytes()));
    bytes
}

/// Renders ROLE of a primary with these replicas.
pub(super) fn primary_role(offset: i64, replicas: &[&TopologyNode]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut reply = Reply::new(&mut bytes, Version::Resp2);
    reply.array(3);
    reply.bulk(b"master");
    reply.integer(offset);
    reply.array(replicas.len());
    for replica in replicas {
        reply.array(3);
        reply.bulk(replica.host.as_bytes());
        reply.bulk(replica.port.to_string().as_bytes());
        reply.bulk(offset.to_string().as_bytes());
    }
    bytes
}

/// Renders a node as CLUSTER NODES and CLUSTER REPLICAS do, without a line end.
fn node_line(topology: &Topology, node: &TopologyNode, this: Option<usize>) -> String {
    let is_this = this.and_then(|this| topology.nodes.get(this)).is_some_and(|this| std::ptr::eq(this, node));
    let has_failed = node.health == Health::Fail;
    let flags = [
        is_this.then_some("myself"),
        Some(if node.role == Role::Primary { "master" } else { "slave" }),
        has_failed.then_some("fail"),
    ];
    let ranges = match node.role {
        Role::Primary => joined_ranges(&node.slots),
        Role::Replica => Vec::new(),
    };
    let mut line = format!(
        "{} {}:{}@{} {} {} 0 0 {} {}",
        node.id,
        node.host,
        node.port,
        u32::from(node.port) + BUS_PORT_DISTANCE,
        flags.into_iter().flatten().collect::<Vec<_>>().join(","),
        node.primary.as_deref().unwrap_or("-"),
        topology.number,
        if has_failed { "disconnected" } else { "connected" },
    );
    for range in ranges {
        line += " ";
        line += &match range {
            SlotRange { first_slot, last_slot } if first_slot == last_slot => first_slot.to_string(),
            range => range.to_string(),
        };
    }
    line
}

/// Renders CLUSTER INFO, without a topology if the node has none yet. `lacking` has the slots of this node whose rows
/// it lacks.
pub(super) fn info(topology: Option<&Topology>, lacking: &SlotSet) -> String {
    let nodes = topology.map_or(&[][..], |topology| &topology.nodes);
    let primaries = || nodes.iter().filter(|node| node.role == Role::Primary);
    let failed = primaries().filter(|node| node.health == Health::Fail).flat_map(|node| &node.slots);
    let mut failed: SlotSet = failed.copied().collect();
    failed.insert_all(lacking);
    let failed_slots = failed.len();
    let primary_count = primaries().filter(|node| !node.slots.is_empty()).count();
    let slots = if nodes.is_empty() { 0 } else { usize::from(SLOT_COUNT) };
    let known = nodes.iter().filter(|node| node.health != Health::Hidden).count().max(1);
    let state = if nodes.is_empty() || !lacking.is_empty() { "fail" } else { "ok" };
    let number = topology.map_or(0, |topology| topology.number);
    [
        ("state", state.to_owned()),
        ("slots_assigned", slots.to_string()),
        ("slots_ok", (slots - failed_slots).to_string()),
        ("slots_pfail", "0".to_owned()),
        ("slots_fail", failed_slots.to_string()),
        ("known_nodes", known.to_string()),
        ("size", primary_count.to_string()),
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
