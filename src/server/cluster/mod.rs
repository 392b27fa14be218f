//! The cluster that this server is a node of.
//!
//! In: topology documents. Out: the [`View`] that connections read: which slots this node serves, and the address of
//! the node that serves any other slot. A view replaces the preceding one as a whole. This folder does not depend on
//! connections.
//!
//! Reasons and evidence: `docs/decisions/cluster.md`.

mod node;
mod view;

pub(super) use node::follow;
pub use node::{ClusterError, ClusterNode};
pub(super) use view::View;
