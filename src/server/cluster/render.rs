//! The replies of the CLUSTER command, in the formats of Redis 7.0.

use crate::cluster::{Health, NodeIndex, Role, Topology, TopologyNode, joined_ranges};
use crate::protocol::resp::{Reply, Version};
use crate::slots::{SLOT_COUNT, SlotRange};

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

/// Renders CLUSTER INFO, without a topology if the node has none yet.
pub(super) fn info(topology: Option<&Topology>) -> String {
    let nodes = topology.map_or(&[][..], |topology| &topology.nodes);
    let primaries = || nodes.iter().filter(|node| node.role == Role::Primary);
    let failed = primaries().filter(|node| node.health == Health::Fail).flat_map(|node| &node.slots);
    let failed_slots: usize = failed.map(|range| usize::from(range.slot_count())).sum();
    let primary_count = primaries().filter(|node| !node.slots.is_empty()).count();
    let slots = if nodes.is_empty() { 0 } else { usize::from(SLOT_COUNT) };
    let known = nodes.iter().filter(|node| node.health != Health::Hidden).count().max(1);
    let state = if nodes.is_empty() { "fail" } else { "ok" };
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
