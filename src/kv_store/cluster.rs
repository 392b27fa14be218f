//! Makes the server a node of a cluster.
//!
//! In: options. Out: the node, with the topology of its file.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use zero_kv::cluster::NodeAddress;
use zero_kv::server::ClusterNode;

use super::published::PublishedArgs;

/// How long a node that follows a store still serves the slots that a new topology assigns to other nodes: this number of
/// polls, but not less than the minimum. A wait between two polls is at most one and a half of the option, and a node
/// that cannot reach the store needs more.
const RETAINED_POLLS: u32 = 4;
const RETAINED_FOR_MIN: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ClusterArgs {
    /// Serve this server's slots to clients of a Redis Cluster, and redirect them to the nodes of other slots. Clients
    /// need --tcp or --tls
    #[arg(long, requires = "node", requires = "announce", requires = "topology-of")]
    cluster: bool,
    /// Announce this address to clients of the cluster, such as 10.0.0.1:6380
    #[arg(long, value_name = "HOST:PORT", requires = "cluster")]
    announce: Option<NodeAddress>,
    /// Read the nodes of the cluster and their slots from this JSON file, and again when the file changes. With --from,
    /// they are read from the store
    #[arg(long, value_name = "FILE", requires = "cluster", conflicts_with = "from")]
    topology: Option<PathBuf>,
}

impl ClusterArgs {
    /// Returns the node, or `None` if the server is not part of a cluster.
    pub(crate) fn node(&self, published: &PublishedArgs) -> anyhow::Result<Option<Arc<ClusterNode>>> {
        if !self.cluster {
            return Ok(None);
        }
        let missing = || anyhow!("--cluster needs --node and --announce");
        let (id, announced) = published.node.as_deref().zip(self.announce.clone()).ok_or_else(missing)?;
        let mut node = ClusterNode::new(id, announced)?;
        match (published.slots, &published.from) {
            (Some(_), Some(_)) => {
                return Err(anyhow!(
                    "--slots contradicts --cluster: with --from, the topology has the slots of this node"
                ));
            }
            (Some(slots), None) => node.set_file_slots([slots].into_iter().collect()),
            (None, Some(_)) => node.set_retained_for(RETAINED_FOR_MIN.max(RETAINED_POLLS * published.poll)),
            (None, None) => {}
        }
        if let Some(path) = &self.topology {
            node.follow_file(path)?;
        }
        Ok(Some(Arc::new(node)))
    }
}
