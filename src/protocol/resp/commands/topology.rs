//! The commands of Redis about clusters and replication. The server is not part of a cluster, and has no replicas.

use super::Spec;
use super::table::{
    ALWAYS, CONNECTION, CONTAINER, FAST_ALWAYS, HELP_SUMMARY, Id, NO_KEY, SLOW, SLOW_CONNECTION, Words, spec,
};

/// Matches the [`Id`]s of all commands that Redis rejects if its cluster support is disabled.
macro_rules! cluster_commands {
    () => {
        Id::ReadOnly
            | Id::ReadWrite
            | Id::Asking
            | Id::ClusterAddSlots
            | Id::ClusterAddSlotsRange
            | Id::ClusterBumpEpoch
            | Id::ClusterCountFailureReports
            | Id::ClusterCountKeysInSlot
            | Id::ClusterDelSlots
            | Id::ClusterDelSlotsRange
            | Id::ClusterFailOver
            | Id::ClusterFlushSlots
            | Id::ClusterForget
            | Id::ClusterGetKeysInSlot
            | Id::ClusterHelp
            | Id::ClusterInfo
            | Id::ClusterKeySlot
            | Id::ClusterLinks
            | Id::ClusterMeet
            | Id::ClusterMyId
            | Id::ClusterNodes
            | Id::ClusterReplicas
            | Id::ClusterReplicate
            | Id::ClusterReset
            | Id::ClusterSaveConfig
            | Id::ClusterSetConfigEpoch
            | Id::ClusterSetSlot
            | Id::ClusterShards
            | Id::ClusterSlaves
            | Id::ClusterSlots
    };
}
pub(crate) use cluster_commands;

const STALE: Words = &["stale"];
const ADMIN_STALE: Words = &["admin", "stale"];
const ADMIN_CHANGE: Words = &["admin", "stale", "no_async_loading"];
const ADMIN_SLOW: Words = &["@admin", "@slow", "@dangerous"];

#[rustfmt::skip]
pub(super) const TOPOLOGY: &[Spec] = &[
    spec(Id::Role, "role", 1, NO_KEY, &["noscript", "loading", "stale", "fast"], &["@admin", "@fast", "@dangerous"])
        .documented("server", "2.8.12", "O(1)")
        .described("", "Return the role of the instance in the context of replication"),
    spec(Id::Wait, "wait", 3, NO_KEY, &["noscript"], SLOW_CONNECTION).documented("generic", "3.0.0", "O(1)")
        .described("numreplicas timeout",
            "Wait for the synchronous replication of all the write commands sent in the context of the current \
            connection").tips(&["request_policy:all_shards", "response_policy:agg_min"]),
    spec(Id::ReadOnly, "readonly", 1, NO_KEY, FAST_ALWAYS, CONNECTION).documented("cluster", "3.0.0", "O(1)")
        .described("", "Enables read queries for a connection to a cluster replica node"),
    spec(Id::ReadWrite, "readwrite", 1, NO_KEY, FAST_ALWAYS, CONNECTION).documented("cluster", "3.0.0", "O(1)")
        .described("", "Disables read queries for a connection to a cluster replica node"),
    spec(Id::Asking, "asking", 1, NO_KEY, &["fast"], CONNECTION).documented("cluster", "3.0.0", "O(1)")
        .described("", "Sent by cluster clients after an -ASK redirect"),
    spec(Id::Cluster, "cluster", -2, NO_KEY, CONTAINER, SLOW).documented("cluster", "3.0.0", "Depends on subcommand.")
        .described("", "A container for cluster commands").with(CLUSTER),
];

#[rustfmt::skip]
const CLUSTER: &[Spec] = &[
    spec(Id::ClusterAddSlots, "cluster|addslots", -3, NO_KEY, ADMIN_CHANGE, ADMIN_SLOW)
        .documented("cluster", "3.0.0", "O(N) where N is the total number of hash slot arguments")
        .described("slot [slot ...]", "Assign new hash slots to receiving node"),
    spec(Id::ClusterAddSlotsRange, "cluster|addslotsrange", -4, NO_KEY, ADMIN_CHANGE, ADMIN_SLOW)
        .documented("cluster", "7.0.0", "O(N) where N is the total number of the slots between the start slot and end slot arguments.")
        .described("start-slot end-slot [start-slot end-slot ...]", "Assign new hash slots to receiving node"),
    spec(Id::ClusterBumpEpoch, "cluster|bumpepoch", 2, NO_KEY, ADMIN_CHANGE, ADMIN_SLOW)
        .documented("cluster", "3.0.0", "O(1)")
        .described("", "Advance the cluster config epoch").tips(&["nondeterministic_output"]),
    spec(Id::ClusterCountFailureReports, "cluster|count-failure-reports", 3, NO_KEY, ADMIN_STALE, ADMIN_SLOW)
        .documented("cluster", "3.0.0", "O(N) where N is the number of failure reports")
        .described("node-id", "Return the number of failure reports active for a given node")
        .tips(&["nondeterministic_output"]),
    spec(Id::ClusterCountKeysInSlot, "cluster|countkeysinslot", 3, NO_KEY, STALE, SLOW)
        .documented("cluster", "3.0.0", "O(1)")
        .described("slot", "Return the number of local keys in the specified hash slot"),
    spec(Id::ClusterDelSlots, "cluster|delslots", -3, NO_KEY, ADMIN_CHANGE, ADMIN_SLOW)
        .documented("cluster", "3.0.0", "O(N) where N is the total number of hash slot arguments")
        .described("slot [slot ...]", "Set hash slots as unbound in receiving node"),
    spec(Id::ClusterDelSlotsRange, "cluster|delslotsrange", -4, NO_KEY, ADMIN_CHANGE, ADMIN_SLOW)
        .documented("cluster", "7.0.0", "O(N) where N is the total number of the slots between the start slot and end slot arguments.")
        .described("start-slot end-slot [start-slot end-slot ...]", "Set hash slots as unbound in receiving node"),
    spec(Id::ClusterFailOver, "cluster|failover", -2, NO_KEY, ADMIN_CHANGE, ADMIN_SLOW)
        .documented("cluster", "3.0.0", "O(1)")
        .described("[FORCE | TAKEOVER]", "Forces a replica to perform a manual failover of its master."),
    spec(Id::ClusterFlushSlots, "cluster|flushslots", 2, NO_KEY, ADMIN_CHANGE, ADMIN_SLOW)
        .documented("cluster", "3.0.0", "O(1)")
        .described("", "Delete a node's own slots information"),
    spec(Id::ClusterForget, "cluster|forget", 3, NO_KEY, ADMIN_CHANGE, ADMIN_SLOW)
        .documented("cluster", "3.0.0", "O(1)")
        .described("node-id", "Remove a node from the nodes table"),
    spec(Id::ClusterGetKeysInSlot, "cluster|getkeysinslot", 4, NO_KEY, STALE, SLOW)
        .documented("cluster", "3.0.0", "O(log(N)) where N is the number of requested keys")
        .described("slot count", "Return local key names in the specified hash slot")
        .tips(&["nondeterministic_output"]),
    spec(Id::ClusterHelp, "cluster|help", 2, NO_KEY, ALWAYS, SLOW).documented("cluster", "5.0.0", "O(1)")
        .described("", HELP_SUMMARY),
    spec(Id::ClusterInfo, "cluster|info", 2, NO_KEY, STALE, SLOW).documented("cluster", "3.0.0", "O(1)")
        .described("", "Provides info about Redis Cluster node state").tips(&["nondeterministic_output"]),
    spec(Id::ClusterKeySlot, "cluster|keyslot", 3, NO_KEY, STALE, SLOW).documented("cluster", "3.0.0", "O(N) where N is the number of bytes in the key")
        .described("key", "Returns the hash slot of the specified key"),
    spec(Id::ClusterLinks, "cluster|links", 2, NO_KEY, STALE, SLOW).documented("cluster", "7.0.0", "O(N) where N is the total number of Cluster nodes")
        .described("", "Returns a list of all TCP links to and from peer nodes in cluster")
        .tips(&["nondeterministic_output"]),
    spec(Id::ClusterMeet, "cluster|meet", -4, NO_KEY, ADMIN_CHANGE, ADMIN_SLOW).documented("cluster", "3.0.0", "O(1)")
        .described("ip port [cluster_bus_port]", "Force a node cluster to handshake with another node"),
    spec(Id::ClusterMyId, "cluster|myid", 2, NO_KEY, STALE, SLOW).documented("cluster", "3.0.0", "O(1)")
        .described("", "Return the node id"),
    spec(Id::ClusterNodes, "cluster|nodes", 2, NO_KEY, STALE, SLOW).documented("cluster", "3.0.0", "O(N) where N is the total number of Cluster nodes")
        .described("", "Get Cluster config for the node").tips(&["nondeterministic_output"]),
    spec(Id::ClusterReplicas, "cluster|replicas", 3, NO_KEY, ADMIN_STALE, ADMIN_SLOW)
        .documented("cluster", "5.0.0", "O(1)")
        .described("node-id", "List replica nodes of the specified master node").tips(&["nondeterministic_output"]),
    spec(Id::ClusterReplicate, "cluster|replicate", 3, NO_KEY, ADMIN_CHANGE, ADMIN_SLOW)
        .documented("cluster", "3.0.0", "O(1)")
        .described("node-id", "Reconfigure a node as a replica of the specified master node"),
    spec(Id::ClusterReset, "cluster|reset", -2, NO_KEY, &["admin", "noscript", "stale"], ADMIN_SLOW)
        .documented("cluster", "3.0.0", "O(N) where N is the number of known nodes. The command may execute a FLUSHALL as a side effect.")
        .described("[HARD | SOFT]", "Reset a Redis Cluster node"),
    spec(Id::ClusterSaveConfig, "cluster|saveconfig", 2, NO_KEY, ADMIN_CHANGE, ADMIN_SLOW)
        .documented("cluster", "3.0.0", "O(1)")
        .described("", "Forces the node to save cluster state on disk"),
    spec(Id::ClusterSetConfigEpoch, "cluster|set-config-epoch", 3, NO_KEY, ADMIN_CHANGE, ADMIN_SLOW)
        .documented("cluster", "3.0.0", "O(1)")
        .described("config-epoch", "Set the configuration epoch in a new node"),
    spec(Id::ClusterSetSlot, "cluster|setslot", -4, NO_KEY, ADMIN_CHANGE, ADMIN_SLOW)
        .documented("cluster", "3.0.0", "O(1)")
        .described("slot <IMPORTING node-id | MIGRATING node-id | NODE node-id | STABLE>",
            "Bind a hash slot to a specific node"),
    spec(Id::ClusterShards, "cluster|shards", 2, NO_KEY, STALE, SLOW).documented("cluster", "7.0.0", "O(N) where N is the total number of cluster nodes")
        .described("", "Get array of cluster slots to node mappings").tips(&["nondeterministic_output"]),
    spec(Id::ClusterSlaves, "cluster|slaves", 3, NO_KEY, ADMIN_STALE, ADMIN_SLOW)
        .documented("cluster", "3.0.0", "O(1)")
        .described("node-id", "List replica nodes of the specified master node").tips(&["nondeterministic_output"]),
    spec(Id::ClusterSlots, "cluster|slots", 2, NO_KEY, STALE, SLOW).documented("cluster", "3.0.0", "O(N) where N is the total number of Cluster nodes")
        .described("", "Get array of Cluster slot to node mappings").tips(&["nondeterministic_output"]),
];
