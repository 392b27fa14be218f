//! The topology document: JSON with the nodes of a cluster and their slots.
//!
//! ```json
//! {"format": 1, "number": 3, "nodes": [
//!   {"id": "a", "host": "10.0.0.1", "port": 6380, "role": "primary", "slots": ["0-16383"], "zone": "east"},
//!   {"id": "b", "host": "10.0.0.2", "port": 6380, "role": "replica", "primary": "a", "health": "loading"}
//! ]}
//! ```
//!
//! Every slot has exactly one primary. A replica has the slots of its primary. A node follows only documents with higher
//! numbers than the one it has.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::SlotSet;
use crate::slots::{SLOT_COUNT, SlotRange};

/// The newest format of topology documents. Readers reject documents of newer formats.
pub const TOPOLOGY_FORMAT: u32 = 1;

/// The maximum number of nodes.
const NODES_MAX: usize = 16_384;
/// The maximum length of a document.
const LEN_MAX_BYTES: usize = 16 << 20;
/// The maximum length of a node's id.
const ID_LEN_MAX_BYTES: usize = 100;
/// The maximum length of a host's name, as in DNS.
const HOST_LEN_MAX_BYTES: usize = 253;

/// The topology of a cluster, which [`Topology::parse`] and [`Topology::check`] have found to be valid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// The format of the document: at most [`TOPOLOGY_FORMAT`].
    pub format: u32,
    /// The number of the document. A higher number replaces a lower one.
    pub number: u64,
    /// The nodes.
    pub nodes: Vec<TopologyNode>,
}

/// A node of a topology.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopologyNode {
    /// The unique name of the node.
    pub id: String,
    /// The host that clients connect to: a name or an IP address.
    pub host: String,
    /// The port that clients connect to.
    pub port: u16,
    /// Whether clients find the rows of a slot here first.
    pub role: Role,
    /// The id of the primary, for a replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary: Option<String>,
    /// The slots of the node, such as `0-8191`. A replica has the slots of its primary, so the list may be missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "range_texts")]
    pub slots: Vec<SlotRange>,
    /// The failure domain of the node, for clients that prefer near replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The state of the node, which clients see.
    #[serde(default, skip_serializing_if = "Health::is_online")]
    pub health: Health,
}

/// The role of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The node that clients ask for the rows of its slots.
    Primary,
    /// A node with the rows of its primary, for clients that allow reads from replicas.
    Replica,
}

/// The state of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// The node serves its rows.
    #[default]
    Online,
    /// The node does not have its rows yet. Clients do not read from it as a replica.
    Loading,
    /// The node is not reachable.
    Fail,
    /// Clients do not see the node.
    Hidden,
}

impl Health {
    fn is_online(&self) -> bool {
        *self == Health::Online
    }

    /// Returns the name of the state in a document.
    pub fn name(self) -> &'static str {
        match self {
            Health::Online => "online",
            Health::Loading => "loading",
            Health::Fail => "fail",
            Health::Hidden => "hidden",
        }
    }
}

/// Slot ranges in JSON: a list of texts such as `0-8191`.
mod range_texts {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use crate::slots::SlotRange;

    pub(super) fn serialize<S: Serializer>(ranges: &[SlotRange], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(ranges.iter().map(SlotRange::to_string))
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<Vec<SlotRange>, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        texts.iter().map(|text| text.parse().map_err(|problem| D::Error::custom(format!("slots: {problem}")))).collect()
    }
}

/// The reason why a topology document is rejected.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// The document is too long.
    #[error("the document has {len_bytes} bytes, expected at most {LEN_MAX_BYTES}: remove nodes that do not exist")]
    Long {
        /// The length of the document.
        len_bytes: usize,
    },
    /// The text is not a topology document.
    #[error("the document is malformed: {problem}: see docs/CLUSTER.md for its fields")]
    Json {
        /// What is wrong, and where.
        problem: String,
    },
    /// A newer program wrote the document.
    #[error("the document has format {found}, expected at most {TOPOLOGY_FORMAT}: update this program")]
    Format {
        /// The format of the document.
        found: u32,
    },
    /// The number of the document is not valid.
    #[error("the document has number 0, expected at least 1: number the first document 1")]
    Number,
    /// The number of nodes is not valid.
    #[error("the document has {found} nodes, expected 1 to {NODES_MAX}")]
    Nodes {
        /// The number of nodes.
        found: usize,
    },
    /// A field of a node is not valid.
    #[error("node {id:?}: {problem}")]
    Node {
        /// The id of the node.
        id: String,
        /// The field, the value that was found, and the value that was expected.
        problem: String,
    },
    /// A slot has no primary.
    #[error("slots {slots} have no primary, expected exactly one for each slot: assign them to a primary")]
    Uncovered {
        /// The slots.
        slots: Box<SlotSet>,
    },
    /// A slot has two primaries.
    #[error("slot {slot} has the primaries {first:?} and {second:?}, expected exactly one: remove it from one of them")]
    Twice {
        /// The slot.
        slot: u16,
        /// The id of a primary of the slot.
        first: String,
        /// The id of another primary, or of the same one.
        second: String,
    },
}

impl Topology {
    /// Parses and checks a document.
    ///
    /// # Errors
    /// [`TopologyError`].
    ///
    /// # Example
    /// ```
    /// use zero_kv::cluster::Topology;
    ///
    /// let json = r#"{"format": 1, "number": 1, "nodes": [
    ///     {"id": "a", "host": "127.0.0.1", "port": 6380, "role": "primary", "slots": ["0-16383"]}]}"#;
    /// let topology = Topology::parse(json.as_bytes())?;
    /// assert_eq!(topology.slots_of("a").len(), 16384);
    /// assert!(Topology::parse(json.replace("16383", "16000").as_bytes()).is_err());
    /// # Ok::<(), zero_kv::cluster::TopologyError>(())
    /// ```
    pub fn parse(json: &[u8]) -> Result<Topology, TopologyError> {
        if json.len() > LEN_MAX_BYTES {
            return Err(TopologyError::Long { len_bytes: json.len() });
        }
        let malformed = |error: serde_json::Error| TopologyError::Json { problem: error.to_string() };
        // The format is read first, because fields of a newer format can have other types.
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let Format { format } = serde_json::from_slice(json).map_err(malformed)?;
        if format > TOPOLOGY_FORMAT {
            return Err(TopologyError::Format { found: format });
        }
        let topology: Topology = serde_json::from_slice(json).map_err(malformed)?;
        topology.check()?;
        Ok(topology)
    }

    /// Returns the document as JSON, one node per line.
    pub fn to_json(&self) -> String {
        let text = |node: &TopologyNode| serde_json::to_string(node).unwrap_or_default();
        let nodes: Vec<String> = self.nodes.iter().map(|node| format!("  {}", text(node))).collect();
        format!(
            "{{\"format\": {}, \"number\": {}, \"nodes\": [\n{}\n]}}\n",
            self.format,
            self.number,
            nodes.join(",\n")
        )
    }

    /// Checks the fields of all nodes, and that every slot has exactly one primary.
    ///
    /// # Errors
    /// [`TopologyError`].
    pub fn check(&self) -> Result<(), TopologyError> {
        if self.format > TOPOLOGY_FORMAT {
            return Err(TopologyError::Format { found: self.format });
        }
        if self.number == 0 {
            return Err(TopologyError::Number);
        }
        if self.nodes.is_empty() || self.nodes.len() > NODES_MAX {
            return Err(TopologyError::Nodes { found: self.nodes.len() });
        }
        let (mut ids, mut addresses) = (HashMap::new(), HashMap::new());
        for node in &self.nodes {
            node.check()?;
            if ids.insert(node.id.as_str(), node).is_some() {
                return Err(node.problem("another node has this id, expected unique ids: rename one of them"));
            }
            if let Some(other) = addresses.insert((node.host.as_str(), node.port), &node.id) {
                return Err(node.problem(format!(
                    "node {other:?} has the same address {}:{}, expected unique addresses: correct one of them",
                    node.host, node.port
                )));
            }
        }
        self.nodes.iter().try_for_each(|node| node.check_primary(&ids))?;
        self.owners().map(drop)
    }

    /// Returns the position of the primary of each slot.
    ///
    /// # Errors
    /// [`TopologyError::Uncovered`], [`TopologyError::Twice`].
    pub fn owners(&self) -> Result<Box<[u16]>, TopologyError> {
        const NO_NODE: u16 = u16::MAX;
        let mut owners = vec![NO_NODE; usize::from(SLOT_COUNT)].into_boxed_slice();
        for (position, node) in (0..).zip(&self.nodes).filter(|(_, node)| node.role == Role::Primary) {
            for slot in node.slots.iter().flat_map(|range| range.first_slot..=range.last_slot) {
                match &mut owners[usize::from(slot)] {
                    owner if *owner == NO_NODE => *owner = position,
                    owner => {
                        let first = self.nodes[usize::from(*owner)].id.clone();
                        return Err(TopologyError::Twice { slot, first, second: node.id.clone() });
                    }
                }
            }
        }
        let mut uncovered = SlotSet::NONE;
        (0..SLOT_COUNT).filter(|slot| owners[usize::from(*slot)] == NO_NODE).for_each(|slot| uncovered.insert(slot));
        if uncovered.is_empty() { Ok(owners) } else { Err(TopologyError::Uncovered { slots: Box::new(uncovered) }) }
    }

    /// Returns the position of the node with this id.
    pub fn position(&self, id: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.id == id)
    }

    /// Returns the node with this id.
    pub fn node(&self, id: &str) -> Option<&TopologyNode> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// Returns the slots of the node with this id, which are those of its primary if it is a replica. Returns no slots
    /// if there is no such node.
    pub fn slots_of(&self, id: &str) -> SlotSet {
        let node = self.node(id);
        let primary = match node.and_then(|node| node.primary.as_deref()) {
            Some(primary) => self.node(primary),
            None => node,
        };
        primary.map_or(SlotSet::NONE, |primary| primary.slots.iter().copied().collect())
    }

    /// Returns the replicas of the node with this id.
    pub fn replicas_of<'t>(&'t self, id: &'t str) -> impl Iterator<Item = &'t TopologyNode> {
        self.nodes.iter().filter(move |node| node.primary.as_deref() == Some(id))
    }
}

impl TopologyNode {
    fn problem(&self, problem: impl Into<String>) -> TopologyError {
        TopologyError::Node { id: self.id.clone(), problem: problem.into() }
    }

    fn check(&self) -> Result<(), TopologyError> {
        if let Some(expected) = node_id_problem(&self.id) {
            return Err(self.problem(format!("the id is {:?}, {expected}", self.id)));
        }
        if let Some(expected) = host_problem(&self.host) {
            return Err(self.problem(format!("the host is {:?}, {expected}", self.host)));
        }
        if self.port == 0 {
            return Err(self.problem("the port is 0, expected 1 to 65535"));
        }
        if let Some(range) = self.slots.iter().find(|range| !range.is_valid()) {
            return Err(self.problem(format!("the slots are {range}, expected slots from 0 to 16383 in order")));
        }
        if self.role == Role::Primary && self.health == Health::Hidden && !self.slots.is_empty() {
            return Err(self.problem(
                "a primary with slots is hidden, expected another state: clients cannot find its slots otherwise",
            ));
        }
        Ok(())
    }

    /// Checks the primary of a replica, and that a primary has none.
    fn check_primary(&self, nodes: &HashMap<&str, &TopologyNode>) -> Result<(), TopologyError> {
        let primary = match (self.role, self.primary.as_deref()) {
            (Role::Primary, None) => return Ok(()),
            (Role::Primary, Some(primary)) => {
                return Err(self.problem(format!(
                    "the role is primary, but its primary is {primary:?}: remove the field primary, or change the role \
                     to replica"
                )));
            }
            (Role::Replica, None) => {
                return Err(self.problem("a replica has no field primary, expected the id of its primary"));
            }
            (Role::Replica, Some(primary)) => primary,
        };
        let Some(primary) = nodes.get(primary) else {
            return Err(self.problem(format!("its primary is {primary:?}, expected the id of a node")));
        };
        if primary.role != Role::Primary {
            return Err(self.problem(format!("its primary is {:?}, which is a replica: name a primary", primary.id)));
        }
        let set = |node: &TopologyNode| node.slots.iter().copied().collect::<SlotSet>();
        if !self.slots.is_empty() && set(self) != set(primary) {
            return Err(self.problem(format!(
                "the slots are {}, expected those of its primary {:?}, which are {}: remove the field slots",
                set(self),
                primary.id,
                set(primary)
            )));
        }
        Ok(())
    }
}

/// Returns what is expected of a node's id, if the text cannot be one. `CLUSTER NODES` separates fields by spaces and
/// commas, and the id is part of the name of an object.
pub(crate) fn node_id_problem(id: &str) -> Option<&'static str> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_invalid = id.is_empty() || id.len() > ID_LEN_MAX_BYTES || id.starts_with('.') || !id.bytes().all(is_valid);
    is_invalid.then_some("expected at most 100 letters, digits, `-`, `_`, or `.`, not beginning with `.`")
}

/// Returns what is expected of a host, if the text cannot be one.
pub(super) fn host_problem(host: &str) -> Option<&'static str> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':' | b'%');
    let is_invalid = host.is_empty() || host.len() > HOST_LEN_MAX_BYTES || !host.bytes().all(is_valid);
    is_invalid.then_some("expected a host name or an IP address, without brackets and port")
}

#[cfg(test)]
mod tests;
