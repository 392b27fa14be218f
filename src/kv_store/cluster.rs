//! Makes the server a node of a cluster.
//!
//! In: options. Out: the node, with the topology of its file.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::anyhow;
use zero_kv::server::{ClusterNode, NodeAddress};

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ClusterArgs {
    /// Serve this server's slots to clients of a Redis Cluster, and redirect them to the nodes of other slots. Clients
    /// need --tcp or --tls
    #[arg(long, requires = "node", requires = "announce", requires = "topology")]
    cluster: bool,
    /// Announce this address to clients of the cluster, such as 10.0.0.1:6380
    #[arg(long, value_name = "HOST:PORT", requires = "cluster")]
    announce: Option<NodeAddress>,
    /// Read the nodes of the cluster and their slots from this JSON file, and again when the file changes
    #[arg(long, value_name = "FILE", requires = "cluster")]
    topology: Option<PathBuf>,
}

impl ClusterArgs {
    /// Returns the node, which has the name `node`, or `None` if the server is not part of a cluster.
    pub(crate) fn node(
        &self,
        node: Option<&str>,
        slots: Option<zero_kv::slots::SlotRange>,
    ) -> anyhow::Result<Option<Arc<ClusterNode>>> {
        if !self.cluster {
            return Ok(None);
        }
        let missing = || anyhow!("--cluster needs --node and --announce");
        let (id, announced) = node.zip(self.announce.clone()).ok_or_else(missing)?;
        let mut node = ClusterNode::new(id, announced)?;
        if let Some(slots) = slots {
            node.set_file_slots([slots].into_iter().collect());
        }
        if let Some(path) = &self.topology {
            node.follow_file(path)?;
        }
        Ok(Some(Arc::new(node)))
    }
}
