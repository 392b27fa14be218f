//! Finds the nodes of a topology by id, and the replicas of a primary. A topology can have 16,384 nodes, so whoever looks
//! up more than one of them needs an index.

use std::collections::HashMap;

use super::{Topology, TopologyNode};
use crate::slot_set::SlotSet;

/// The nodes of a topology by id, and the replicas of each primary.
#[derive(Debug)]
pub struct NodeIndex<'t> {
    nodes: HashMap<&'t str, (usize, &'t TopologyNode)>,
    replicas: HashMap<&'t str, Vec<&'t TopologyNode>>,
}

impl<'t> NodeIndex<'t> {
    pub(super) fn new(topology: &'t Topology) -> NodeIndex<'t> {
        let mut index = NodeIndex { nodes: HashMap::with_capacity(topology.nodes.len()), replicas: HashMap::new() };
        for (position, node) in topology.nodes.iter().enumerate() {
            index.nodes.entry(node.id.as_str()).or_insert((position, node));
            if let Some(primary) = &node.primary {
                index.replicas.entry(primary).or_default().push(node);
            }
        }
        index
    }

    /// Returns the node with this id.
    pub fn node(&self, id: &str) -> Option<&'t TopologyNode> {
        self.nodes.get(id).map(|(_, node)| *node)
    }

    /// Returns the position of the node with this id.
    pub fn position(&self, id: &str) -> Option<usize> {
        self.nodes.get(id).map(|(position, _)| *position)
    }

    /// Returns the replicas of the node with this id, in the order of the topology.
    pub fn replicas_of(&self, id: &str) -> &[&'t TopologyNode] {
        self.replicas.get(id).map_or(&[], Vec::as_slice)
    }

    /// Returns the slots of the node with this id: see [`Topology::slots_of`].
    pub fn slots_of(&self, id: &str) -> SlotSet {
        let node = self.node(id);
        let primary = match node.and_then(|node| node.primary.as_deref()) {
            Some(primary) => self.node(primary),
            None => node,
        };
        primary.map_or(SlotSet::NONE, |primary| primary.slots.iter().copied().collect())
    }
}
