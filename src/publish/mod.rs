//! Publishes tables to an object store, and keeps nodes up to date.
//!
//! In: baked files. Out: the same files on other machines, verified. A table has a URL in an object store. A publisher
//! uploads the files of a generation, and then creates the next manifest, which lists them: this is the commit. Nodes
//! read the next manifest, fetch its files, verify them, and serve them. The store needs one property: an object can be
//! created only once. There is no coordination between nodes, and no other service.
//!
//! ```text
//! data/JOB/SLOTS-DIGEST.zkv     files, never overwritten
//! manifests/NUMBER.json         created once, numbered without gaps; the highest number is the newest generation
//! pins/NUMBER.json              created once, numbered without gaps; the highest number applies
//! decisions/NUMBER.json         created once: whether nodes serve the generation that pin NUMBER holds back
//! topology/NUMBER.json          created once, numbered without gaps: the nodes of a cluster and their slots
//! policies/NUMBER.json          created once, numbered without gaps: the quotas; the highest number applies
//! status/NODE.json              overwritten by each node
//! ```
//!
//! `location` parses URLs, and `document` creates and reads the small objects. `manifest`, `pin`, `instructions`, and
//! `status` define them. Nothing in a store is trusted: `limits` bounds the numbers and lengths of documents and what
//! is shown of them, and `bounded_http` the responses. `upload` and `download` transfer files. [`Publication`] has the
//! operations of publishers and operators: `change` compares a generation with the one before it, `copy` copies
//! generations between tables, and `shard` has the operations of engines that bake a table in many processes.
//! [`Follower`] is a node: `node` makes its decisions, `follow` carries them out, and a `cache` keeps its files.

mod author;
mod bounded_http;
mod cache;
mod change;
mod copy;
mod document;
mod download;
mod error;
mod follow;
mod follow_control;
mod garbage;
mod instructions;
mod limits;
mod local_store;
mod location;
mod manifest;
mod node;
mod partial;
mod pin;
mod probe;
mod publication;
mod shard;
#[cfg(test)]
mod simulation;
mod status;
mod transfer;
mod upload;

use serde::{Deserialize, Serialize};

pub use crate::canary::Canary;
use crate::slots::SlotRange;
#[doc(hidden)]
pub use change::Change;
#[doc(hidden)]
pub use copy::{Copied, CopyOptions};
pub use error::PublishError;
#[doc(hidden)]
pub use error::{FailureKind, StoreFault};
pub use follow::Follower;
#[doc(hidden)]
pub use follow_control::{ClusterMember, FollowFacts};
pub use follow_control::{FollowControl, FollowOptions};
#[doc(hidden)]
pub use garbage::{Garbage, GarbageRules};
#[doc(hidden)]
pub use instructions::Policy;
use limits::{EARLIER_SLOTS_MAX, NUMBER_MAX, RANGES_MAX};
pub use manifest::{Entry, MANIFEST_FORMAT, Manifest};
#[doc(hidden)]
pub use node::Polled;
#[doc(hidden)]
pub use pin::{Decision, Pin};
#[doc(hidden)]
pub use probe::StoreProbe;
#[doc(hidden)]
pub use publication::PublishedGeneration;
pub use publication::{CommitOptions, Publication};
#[doc(hidden)]
pub use shard::BakedShard;
#[doc(hidden)]
pub use status::{NodeReports, NodeStatus, UnreadableStatus};
#[doc(hidden)]
pub use transfer::{Stage, TransferProgress};
pub use upload::ShardFile;

/// The served generation of a node, and its pin. A node that starts again follows this pin, or a newer one, even if the
/// store does not return it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    /// The generation that the node serves or was about to serve, or 0.
    generation: u64,
    /// The number of the newest pin that the node has read, or 0.
    pin: u64,
    /// This pin. `None` if there is none, or if an earlier version recorded only its number.
    #[serde(default)]
    pinned: Option<Pin>,
    /// The slots of the file. Empty if an earlier version wrote the record.
    #[serde(default, deserialize_with = "limits::list::<_, _, RANGES_MAX>")]
    slots: Vec<SlotRange>,
    /// The slots of the files that a node of a cluster served before. Files of older generations may have them.
    #[serde(default, deserialize_with = "limits::list::<_, _, EARLIER_SLOTS_MAX>")]
    earlier_slots: Vec<Vec<SlotRange>>,
}

impl Record {
    /// Returns the record after a swap to this one failed: `before` is what the node served. Its pin stays the newest
    /// one.
    fn after_failure(&self, before: Record) -> Record {
        Record { generation: before.generation, slots: before.slots, ..self.clone() }
    }

    /// Returns whether a node can have written the record.
    fn is_possible(&self) -> bool {
        let is_pin = |pin: &Pin| self.pin > 0 && pin.check().is_ok();
        self.generation <= NUMBER_MAX && self.pin <= NUMBER_MAX && self.pinned.as_ref().is_none_or(is_pin)
    }
}
