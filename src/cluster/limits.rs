//! The limits of topologies. A program that writes a topology checks the same limits as the nodes and clients that read
//! it, so no topology works for some of them only. docs/CLUSTER.md lists them.

use crate::protocol::native;

/// The maximum length of a document, both as written by an operator and as nodes send it to clients.
pub const LEN_MAX_BYTES: usize = native::TOPOLOGY_LEN_MAX_BYTES;
/// The maximum number of a document. Every program that reads JSON represents such numbers exactly, and there is always
/// a next number.
pub(crate) const NUMBER_MAX: u64 = (1 << 53) - 1;
/// The maximum number of nodes: one primary for each slot.
pub const NODES_MAX: usize = 16_384;
/// The maximum length of a node's id.
pub(super) const ID_LEN_MAX_BYTES: usize = 100;
/// The maximum length of a host's name, as in DNS.
pub(super) const HOST_LEN_MAX_BYTES: usize = 253;
/// The maximum length of a zone's name.
pub(super) const ZONE_LEN_MAX_BYTES: usize = 253;
/// The maximum number of entries of CLUSTER SLOTS, which has the primary and all replicas of each range of slots. Without a
/// limit, a primary with thousands of ranges and of replicas would have a reply of gigabytes. Every slot can be a range of
/// its own, with three replicas.
pub(super) const SLOT_ENTRIES_MAX: usize = 65_536;
