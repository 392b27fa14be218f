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
//! decisions/NUMBER.json         created once: whether nodes serve the generation that the pin with this number holds back
//! topology/NUMBER.json          created once, numbered without gaps: the nodes of a cluster and their slots
//! policies/NUMBER.json          created once, numbered without gaps: the quotas of the table; the highest number applies
//! status/NODE.json              overwritten by each node
//! ```
//!
//! `location` parses URLs, `document` reads the small objects, `create` creates them, and `numbers` finds the numbers
//! that were used. `manifest`, `pin`, `policy`, and `status` define them. Nothing in a store is trusted: `limits` bounds the
//! numbers and lengths of documents, `bounded_http` the responses, and `foreign_text` what is shown of them. `upload` and
//! `download` transfer files. [`Publication`] has the operations of publishers and operators: `change` compares a
//! generation with the one before it, `copy` copies generations between tables, and `shard` has the operations of engines
//! that bake a table in many processes. [`Follower`] is a node: `node` makes its decisions, `follow` carries them out,
//! a `cache` keeps its files, and `namesakes` notices other processes with its name.

mod bandwidth;
mod bounded_http;
mod busy;
mod byte_ranges;
mod cache;
mod change;
mod copy;
mod create;
mod disk;
mod document;
mod download;
mod error;
mod follow;
mod follow_control;
mod foreign_text;
mod garbage;
mod limits;
mod local_store;
mod location;
mod manifest;
mod membership;
mod node;
mod numbers;
mod partial;
mod pin;
mod policy;
mod probe;
mod publication;
mod record;
mod shard;
#[cfg(test)]
mod simulation;
mod status;
mod transfer;
mod upload;

pub use crate::canary::Canary;
pub use change::Change;
pub use copy::{Copied, CopyOptions};
pub use error::{FailureKind, PublishError, StoreFault};
pub use follow::Follower;
pub use follow_control::{FollowControl, FollowFacts, FollowOptions};
pub use garbage::{Garbage, GarbageRules};
pub use manifest::{Entry, MANIFEST_FORMAT, Manifest};
pub use membership::ClusterMember;
pub use node::Polled;
pub use pin::{Decision, Pin};
pub use policy::Policy;
pub use probe::StoreProbe;
pub use publication::{CommitOptions, Generation, Publication};
pub use shard::BakedShard;
pub use status::{NodeReports, NodeStatus, UnreadableStatus};
pub use transfer::{Progress, Stage};
pub use upload::ShardFile;
