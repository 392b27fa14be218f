//! The topology of a cluster: which node serves which slots.
//!
//! In: the JSON of a topology document. Out: the checked document, or what is wrong with it. Operators write documents,
//! nodes follow them, and clients of the cluster learn from the nodes where to send requests. This module does no I/O.
//!
//! ```json
//! {"format": 1, "number": 3, "nodes": [
//!   {"id": "a", "host": "10.0.0.1", "port": 6380, "role": "primary", "slots": ["0-16383"], "zone": "east"},
//!   {"id": "b", "host": "10.0.0.2", "port": 6380, "role": "replica", "primary": "a", "health": "loading"}
//! ]}
//! ```
//!
//! Every slot has exactly one primary. A replica has the slots of its primary. A node follows only documents with
//! higher numbers than the one it has.

mod plan;

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::net::Ipv6Addr;
use std::str::FromStr;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::counted::counted;
use crate::excerpt::excerpt;
use crate::protocol::native;
pub use crate::slots::SlotSet;
use crate::slots::{SLOT_COUNT, SlotRange};
pub use plan::{PlanError, moved_slots, plan, without_failed};

/// The newest format of topology documents. Readers reject documents of newer formats.
pub const TOPOLOGY_FORMAT: u32 = 1;

/// The maximum length of a text of the document in an error.
const EXCERPT_LEN_MAX_BYTES: usize = 120;
/// The maximum length of the message of a JSON parser, which has texts of the document.
const JSON_PROBLEM_LEN_MAX_BYTES: usize = 300;

/// The topology of a cluster, which [`Topology::parse`] and [`Topology::check`] have found to be valid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// The format of the document: at most [`TOPOLOGY_FORMAT`].
    pub format: u32,
    /// The number of the document. A higher number replaces a lower one.
    pub number: u64,
    /// The nodes.
    #[serde(deserialize_with = "deserialize_nodes")]
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
    use std::borrow::Cow;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::bounded_list;
    use crate::slots::{SLOT_COUNT, SlotRange};

    /// A range, parsed from its text.
    struct Parsed(SlotRange);

    impl<'d> Deserialize<'d> for Parsed {
        fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Parsed, D::Error> {
            let text = Cow::<str>::deserialize(deserializer)?;
            text.parse().map(Parsed).map_err(|problem| D::Error::custom(format!("slots: {problem}")))
        }
    }

    pub(super) fn serialize<S: Serializer>(ranges: &[SlotRange], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(ranges.iter().map(SlotRange::to_string))
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<Vec<SlotRange>, D::Error> {
        let ranges = bounded_list(deserializer, "slots", SLOT_COUNT.into())?;
        Ok(ranges.into_iter().map(|Parsed(range)| range).collect())
    }
}

fn deserialize_nodes<'d, D: Deserializer<'d>>(deserializer: D) -> Result<Vec<TopologyNode>, D::Error> {
    bounded_list(deserializer, "nodes", TOPOLOGY_NODES_MAX)
}

/// Deserializes a list. Stops at the maximum number of elements, because elements take more memory than their JSON.
fn bounded_list<'d, T: Deserialize<'d>, D: Deserializer<'d>>(
    deserializer: D,
    name: &'static str,
    elements_max: usize,
) -> Result<Vec<T>, D::Error> {
    struct List<T>(&'static str, usize, PhantomData<T>);
    impl<'d, T: Deserialize<'d>> Visitor<'d> for List<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list")
        }

        fn visit_seq<A: SeqAccess<'d>>(self, mut elements: A) -> Result<Vec<T>, A::Error> {
            let List(name, elements_max, _) = self;
            let mut list = Vec::new();
            while let Some(element) = elements.next_element()? {
                if list.len() == elements_max {
                    return Err(A::Error::custom(format!("{name}: more than {elements_max} elements in the list")));
                }
                list.push(element);
            }
            Ok(list)
        }
    }
    deserializer.deserialize_seq(List(name, elements_max, PhantomData))
}

/// The reason why a topology document is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// The document is too long.
    #[error(
        "the document has {len_bytes} bytes, expected at most {TOPOLOGY_LEN_MAX_BYTES}: remove nodes that do not exist"
    )]
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
    #[error(
        "the document has number {found}, expected at least 1 and at most {NUMBER_MAX}: number the first document 1"
    )]
    Number {
        /// The number of the document.
        found: u64,
    },
    /// The number of nodes is not valid.
    #[error("the document has {}, expected 1 to {TOPOLOGY_NODES_MAX}", counted(found, "node"))]
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
    /// Some slot ranges have too many nodes.
    #[error(
        "all slot ranges together have {found} primaries and replicas, expected at most {SLOT_ENTRIES_MAX}, because \
         clients read the nodes of each range: give each primary fewer, longer ranges, or fewer replicas"
    )]
    SlotEntries {
        /// The sum, over all ranges of all primaries, of one and the number of the primary's replicas.
        found: usize,
    },
    /// A slot has no primary.
    #[error("slots {} have no primary, expected exactly one for each slot: assign them to a primary", slots.summary())]
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
        if json.len() > TOPOLOGY_LEN_MAX_BYTES {
            return Err(TopologyError::Long { len_bytes: json.len() });
        }
        let malformed = |error: serde_json::Error| TopologyError::Json { problem: json_problem(&error) };
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
        if self.number == 0 || self.number > NUMBER_MAX {
            return Err(TopologyError::Number { found: self.number });
        }
        if self.nodes.is_empty() || self.nodes.len() > TOPOLOGY_NODES_MAX {
            return Err(TopologyError::Nodes { found: self.nodes.len() });
        }
        let index = NodeIndex::new(self);
        let mut addresses = HashMap::new();
        for (position, node) in self.nodes.iter().enumerate() {
            node.check()?;
            if index.position(&node.id) != Some(position) {
                return Err(node.problem("another node has this id, expected unique ids: rename one of them"));
            }
            if let Some(other) = addresses.insert((node.host.as_str(), node.port), &node.id) {
                return Err(node.problem(format!(
                    "node {other:?} has the same address {}:{}, expected unique addresses: correct one of them",
                    node.host, node.port
                )));
            }
        }
        let mut sets = HashMap::new();
        self.nodes.iter().try_for_each(|node| node.check_primary(&index, &mut sets))?;
        self.owners()?;
        let entries = |node: &TopologyNode| joined_ranges(&node.slots).len() * (1 + index.replicas_of(&node.id).len());
        let found = self.nodes.iter().filter(|node| node.role == Role::Primary).map(entries).sum();
        if found > SLOT_ENTRIES_MAX {
            return Err(TopologyError::SlotEntries { found });
        }
        // Readers get the document as this program writes it.
        match self.to_json().len() {
            len_bytes if len_bytes > TOPOLOGY_LEN_MAX_BYTES => Err(TopologyError::Long { len_bytes }),
            _ => Ok(()),
        }
    }

    /// Returns an index of the nodes.
    pub fn index(&self) -> NodeIndex<'_> {
        NodeIndex::new(self)
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
        NodeIndex::new(self).slots_of(id)
    }

    /// Returns the replicas of the node with this id.
    pub fn replicas_of<'t>(&'t self, id: &'t str) -> impl Iterator<Item = &'t TopologyNode> {
        self.nodes.iter().filter(move |node| node.primary.as_deref() == Some(id))
    }
}

impl TopologyNode {
    fn problem(&self, problem: impl Into<String>) -> TopologyError {
        TopologyError::Node { id: excerpt(&self.id, EXCERPT_LEN_MAX_BYTES).into_owned(), problem: problem.into() }
    }

    fn check(&self) -> Result<(), TopologyError> {
        if let Some(expected) = node_id_problem(&self.id) {
            return Err(self.problem(format!("the id is {:?}, {expected}", excerpt(&self.id, EXCERPT_LEN_MAX_BYTES))));
        }
        if let Some(expected) = host_problem(&self.host) {
            let host = excerpt(&self.host, EXCERPT_LEN_MAX_BYTES);
            return Err(self.problem(format!("the host is {host:?}, {expected}")));
        }
        if self.port == 0 {
            return Err(self.problem("the port is 0, expected 1 to 65535"));
        }
        if let Some(zone) = self.zone.as_deref().filter(|zone| zone.len() > ZONE_LEN_MAX_BYTES) {
            let (zone, len_bytes) = (excerpt(zone, EXCERPT_LEN_MAX_BYTES), zone.len());
            return Err(self.problem(format!(
                "the zone {zone:?} has {len_bytes} bytes, expected at most {ZONE_LEN_MAX_BYTES}: shorten it"
            )));
        }
        if let Some(range) = self.slots.iter().find(|range| !range.is_valid()) {
            return Err(self.problem(format!("the slots are {range}, expected slots from 0 to 16383 in order")));
        }
        let slot_count: usize = self.slots.iter().map(|range| usize::from(range.slot_count())).sum();
        if slot_count > usize::from(SLOT_COUNT) {
            return Err(self.problem(format!(
                "the ranges of slots have {slot_count} slots, expected at most {SLOT_COUNT}: list each slot once"
            )));
        }
        if self.role == Role::Primary && self.health == Health::Hidden && !self.slots.is_empty() {
            return Err(self.problem(
                "a primary with slots is hidden, so no client finds them: change its health, or remove its slots",
            ));
        }
        Ok(())
    }

    /// Checks the primary of a replica, and that a primary has none. `sets` gets the slots of primaries whose replicas
    /// repeat them, because a primary can have thousands of replicas.
    fn check_primary<'t>(
        &'t self,
        index: &NodeIndex<'t>,
        sets: &mut HashMap<&'t str, SlotSet>,
    ) -> Result<(), TopologyError> {
        let shown = |id: &str| format!("{:?}", excerpt(id, EXCERPT_LEN_MAX_BYTES));
        let primary = match (self.role, self.primary.as_deref()) {
            (Role::Primary, None) => return Ok(()),
            (Role::Primary, Some(primary)) => {
                return Err(self.problem(format!(
                    "the role is primary, but its primary is {}: remove the field primary, or change the role to \
                     replica",
                    shown(primary)
                )));
            }
            (Role::Replica, None) => {
                return Err(self.problem("a replica has no field primary, expected the id of its primary"));
            }
            (Role::Replica, Some(primary)) => primary,
        };
        let Some(primary) = index.node(primary) else {
            return Err(self.problem(format!("its primary is {}, expected the id of a node", shown(primary))));
        };
        if primary.role != Role::Primary {
            return Err(self.problem(format!("its primary is {:?}, which is a replica: name a primary", primary.id)));
        }
        if self.slots.is_empty() {
            return Ok(());
        }
        let set = |node: &TopologyNode| node.slots.iter().copied().collect::<SlotSet>();
        let (found, expected) = (set(self), sets.entry(&primary.id).or_insert_with(|| set(primary)));
        if found != *expected {
            return Err(self.problem(format!(
                "the slots are {}, expected those of its primary {:?}, which are {}: remove the field slots",
                found.summary(),
                primary.id,
                expected.summary()
            )));
        }
        Ok(())
    }
}

/// Returns ranges in ascending order, with adjacent and overlapping ranges joined.
pub(crate) fn joined_ranges(ranges: &[SlotRange]) -> Vec<SlotRange> {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable();
    let mut joined: Vec<SlotRange> = Vec::with_capacity(sorted.len());
    for range in sorted {
        match joined.last_mut() {
            Some(last) if range.first_slot <= last.last_slot + 1 => {
                last.last_slot = last.last_slot.max(range.last_slot);
            }
            _ => joined.push(range),
        }
    }
    joined
}

/// Returns the message of a JSON parser: its beginning, and the position of the problem.
fn json_problem(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    match message.strip_suffix(&position) {
        Some(problem) => format!("{}{position}", excerpt(problem, JSON_PROBLEM_LEN_MAX_BYTES)),
        None => excerpt(&message, JSON_PROBLEM_LEN_MAX_BYTES).into_owned(),
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
fn host_problem(host: &str) -> Option<&'static str> {
    let is_valid = match host.split_once('%') {
        // The scope of a link-local address is the name or the number of an interface.
        Some((ip, scope)) => ip.parse::<Ipv6Addr>().is_ok() && is_name(scope),
        None => host.parse::<Ipv6Addr>().is_ok() || is_name(host),
    };
    let is_invalid = host.len() > HOST_LEN_MAX_BYTES || !is_valid;
    is_invalid.then_some("expected a host name or an IP address, without brackets and port")
}

fn is_name(text: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !text.is_empty() && text.bytes().all(is_valid)
}

/// The maximum length of a document, both as written by an operator and as nodes send it to clients.
pub const TOPOLOGY_LEN_MAX_BYTES: usize = native::TOPOLOGY_LEN_MAX_BYTES;
/// The maximum number of a document. Every program that reads JSON represents such numbers exactly, and there is always
/// a next number.
pub(crate) const NUMBER_MAX: u64 = (1 << 53) - 1;
/// The maximum number of nodes: one primary for each slot.
pub const TOPOLOGY_NODES_MAX: usize = 16_384;
/// The maximum length of a node's id.
const ID_LEN_MAX_BYTES: usize = 100;
/// The maximum length of a host's name, as in DNS.
const HOST_LEN_MAX_BYTES: usize = 253;
/// The maximum length of a zone's name.
const ZONE_LEN_MAX_BYTES: usize = 253;
/// The maximum number of entries of CLUSTER SLOTS, which has the primary and all replicas of each range of slots.
/// Without a limit, a primary with thousands of ranges and of replicas would have a reply of gigabytes. Every slot can
/// be a range of its own, with three replicas.
const SLOT_ENTRIES_MAX: usize = 65_536;

/// The address of a node that clients connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeAddress {
    /// A host name or an IP address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl fmt::Display for NodeAddress {
    /// Shows the address as `HOST:PORT`, as Redis does, also for IPv6 addresses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl FromStr for NodeAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<NodeAddress, String> {
        let expected = || format!("found {text:?}, expected HOST:PORT, such as 10.0.0.1:6380 or [::1]:6380");
        let (host, port) = text.rsplit_once(':').ok_or_else(expected)?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(expected)?;
        if host_problem(host).is_some() {
            return Err(expected());
        }
        Ok(NodeAddress { host: host.to_owned(), port })
    }
}

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

#[cfg(test)]
mod address_tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_with_and_without_brackets() {
        for (text, host, port) in [
            ("10.0.0.1:6380", "10.0.0.1", 6380),
            ("[::1]:1", "::1", 1),
            ("::1:65535", "::1", 65535),
            ("h.x:5", "h.x", 5),
        ] {
            assert_eq!(text.parse(), Ok(NodeAddress { host: host.to_owned(), port }), "{text}");
        }
        for text in ["", "h", "h:", "h:0", "h:65536", ":5", "a b:5", "h:-1", "[]:5"] {
            let error = text.parse::<NodeAddress>().unwrap_err();
            assert!(error.contains("expected HOST:PORT"), "{text}: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = r#"{"format": 1, "number": 7, "nodes": [
    {"id": "a", "host": "10.0.0.1", "port": 6380, "role": "primary", "slots": ["0-99", "200-16383"], "zone": "east"},
    {"id": "a2", "host": "10.0.0.1", "port": 6381, "role": "replica", "primary": "a", "health": "loading"},
    {"id": "b", "host": "::1", "port": 6380, "role": "primary", "slots": ["100-199"], "added_later": {"x": 1}},
    {"id": "new.node_1-x", "host": "host.example", "port": 1, "role": "primary", "health": "hidden"}
]}"#;

    /// Returns the error for the valid document with a text replaced.
    #[track_caller]
    fn error_with(from: &str, to: &str) -> String {
        let changed = VALID.replacen(from, to, 1);
        assert_ne!(changed, VALID, "{from} occurs in the document");
        Topology::parse(changed.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn a_valid_document_has_the_slots_that_it_states() {
        let topology = Topology::parse(VALID.as_bytes()).unwrap();
        assert_eq!(topology.slots_of("a").to_string(), "0-99,200-16383");
        assert_eq!(topology.slots_of("a2"), topology.slots_of("a"));
        assert_eq!(topology.slots_of("b").to_string(), "100-199");
        assert_eq!((topology.slots_of("new.node_1-x"), topology.slots_of("c")), (SlotSet::NONE, SlotSet::NONE));
        let owners = topology.owners().unwrap();
        assert_eq!((owners[0], owners[99], owners[100], owners[199], owners[200], owners[16383]), (0, 0, 2, 2, 0, 0));
        assert!(topology.replicas_of("a").map(|node| node.id.as_str()).eq(["a2"]));
        assert_eq!((topology.position("b"), topology.position("c")), (Some(2), None));
    }

    #[test]
    fn a_document_that_is_written_and_read_is_equal() {
        let topology = Topology::parse(VALID.as_bytes()).unwrap();
        assert_eq!(Topology::parse(topology.to_json().as_bytes()), Ok(topology));
    }

    #[test]
    fn errors_state_the_value_found_and_the_value_expected() {
        for (from, to, expected) in [
            (r#""format": 1"#, r#""format": 2, "more": []"#, "has format 2, expected at most 1: update"),
            (r#""number": 7"#, r#""number": 0"#, "number 0, expected at least 1"),
            (r#""number": 7"#, r#""number": -1"#, "malformed: invalid value: integer `-1`"),
            (r#""number": 7,"#, "", "malformed: missing field `number`"),
            (r#""id": "b""#, r#""id": "a""#, r#"node "a": another node has this id, expected unique"#),
            (r#""id": "b""#, r#""id": "b c""#, r#"node "b c": the id is "b c", expected at most 100 letters"#),
            (r#""id": "b""#, r#""id": "b,c""#, "expected at most 100 letters"),
            (r#""id": "b""#, r#""id": ".b""#, "not beginning with `.`"),
            (r#""id": "b""#, r#""id": """#, r#"node "": the id is """#),
            (r#""host": "::1""#, r#""host": "[::1]:5""#, "without brackets and port"),
            (r#""host": "::1""#, r#""host": "a b""#, r#"the host is "a b", expected a host name"#),
            (r#""host": "::1""#, r#""host": "10.0.0.1""#, r#"node "a" has the same address 10.0.0.1:6380"#),
            (r#""port": 1,"#, r#""port": 0,"#, "the port is 0, expected 1 to 65535"),
            (r#""port": 1,"#, r#""port": 65536,"#, "malformed: invalid value: integer `65536`"),
            (r#""100-199""#, r#""100-198""#, "slots 199-199 have no primary, expected exactly one"),
            (r#""100-199""#, r#""100-199", "150-150""#, r#"slot 150 has the primaries "b" and "b""#),
            (r#""100-199""#, r#""99-199""#, r#"slot 99 has the primaries "a" and "b", expected exactly one"#),
            (r#""100-199""#, r#""100-16384""#, "expected two slots from 0 to 16383, such as 0-8191"),
            (r#""100-199""#, r#""199-100""#, "expected two slots from 0 to 16383"),
            (r#""replica", "primary": "a""#, r#""replica""#, "a replica has no field primary"),
            (
                r#""replica", "primary": "a""#,
                r#""replica", "primary": "x""#,
                r#"its primary is "x", expected the id of a"#,
            ),
            (r#""replica", "primary": "a""#, r#""replica", "primary": "a2""#, "which is a replica: name a primary"),
            (r#""primary": "a""#, r#""primary": "a", "slots": ["0-9"]"#, r#"the slots are 0-9, expected those of its"#),
            (r#""zone": "east""#, r#""primary": "b""#, "the role is primary, but its primary is"),
            (r#""zone": "east""#, r#""health": "hidden""#, "a primary with slots is hidden"),
            ("loading", "lost", "unknown variant `lost`"),
            ("]}", "]", "malformed: EOF"),
        ] {
            let error = error_with(from, to);
            assert!(error.contains(expected), "{to}: {error}");
        }
        assert!(
            Topology::parse(br#"{"format": 1, "number": 1, "nodes": []}"#).unwrap_err().to_string().contains("0 nodes")
        );
        assert!(matches!(Topology::parse(&vec![b' '; TOPOLOGY_LEN_MAX_BYTES + 1]), Err(TopologyError::Long { .. })));
    }

    #[test]
    fn damaged_documents_cause_no_panic() {
        for at in 0..VALID.len() {
            let _ = Topology::parse(&VALID.as_bytes()[..at]);
            for byte in [b'"', b'0', b'-', b'{', 0xFF] {
                let mut damaged = VALID.as_bytes().to_vec();
                damaged[at] = byte;
                if let Ok(topology) = Topology::parse(&damaged) {
                    assert_eq!(topology.check(), Ok(()));
                }
            }
        }
    }
}
