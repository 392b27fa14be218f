//! The subcommands of commands that tools such as dashboards, profilers, and monitoring agents send.

use super::*;

const SLOWLOG_FLAGS: Words = &["admin", "loading", "stale"];
const PUBSUB_FLAGS: Words = &["pubsub", "loading", "stale"];

#[rustfmt::skip]
pub(super) const SLOWLOG: &[Spec] = &[
    spec(Id::SlowLogGet, "slowlog|get", -2, NO_KEY, SLOWLOG_FLAGS, ADMIN_CATEGORIES)
        .documented("server", "2.2.12", "O(N) where N is the number of entries returned")
        .described("[count]", "Get the slow log's entries")
        .tips(&["request_policy:all_nodes", "nondeterministic_output"]),
    spec(Id::SlowLogLen, "slowlog|len", 2, NO_KEY, SLOWLOG_FLAGS, ADMIN_CATEGORIES)
        .documented("server", "2.2.12", "O(1)").described("", "Get the slow log's length")
        .tips(&["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"]),
    spec(Id::SlowLogReset, "slowlog|reset", 2, NO_KEY, SLOWLOG_FLAGS, ADMIN_CATEGORIES)
        .documented("server", "2.2.12", "O(N) where N is the number of entries in the slowlog")
        .described("", "Clear all entries from the slow log")
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    spec(Id::SlowLogHelp, "slowlog|help", 2, NO_KEY, ALWAYS, SLOW).documented("server", "6.2.0", "O(1)")
        .described("", HELP_SUMMARY),
];

#[rustfmt::skip]
pub(super) const LATENCY: &[Spec] = &[
    spec(Id::LatencyLatest, "latency|latest", 2, NO_KEY, ADMIN, ADMIN_CATEGORIES)
        .documented("server", "2.8.13", "O(1)").described("", "Return the latest latency samples for all events.")
        .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"]),
    spec(Id::LatencyHistory, "latency|history", 3, NO_KEY, ADMIN, ADMIN_CATEGORIES)
        .documented("server", "2.8.13", "O(1)").described("event", "Return timestamp-latency samples for the event.")
        .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"]),
    spec(Id::LatencyReset, "latency|reset", -2, NO_KEY, ADMIN, ADMIN_CATEGORIES).documented("server", "2.8.13", "O(1)")
        .described("[event [event ...]]", "Reset latency data for one or more events.")
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    spec(Id::LatencyGraph, "latency|graph", 3, NO_KEY, ADMIN, ADMIN_CATEGORIES).documented("server", "2.8.13", "O(1)")
        .described("event", "Return a latency graph for the event.")
        .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"]),
    spec(Id::LatencyDoctor, "latency|doctor", 2, NO_KEY, ADMIN, ADMIN_CATEGORIES)
        .documented("server", "2.8.13", "O(1)").described("", "Return a human readable latency analysis report.")
        .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"]),
    spec(Id::LatencyHistogram, "latency|histogram", -2, NO_KEY, ADMIN, ADMIN_CATEGORIES)
        .documented("server", "7.0.0", "O(N) where N is the number of commands with latency information being retrieved.")
        .described("[command [command ...]]", "Return the cumulative distribution of latencies of a subset of commands or all.")
        .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"]),
    spec(Id::LatencyHelp, "latency|help", 2, NO_KEY, ALWAYS, SLOW).documented("server", "2.8.13", "O(1)")
        .described("", "Show helpful text about the different subcommands."),
];

#[rustfmt::skip]
pub(super) const MODULE: &[Spec] = &[
    spec(Id::ModuleList, "module|list", 2, NO_KEY, &["admin", "noscript"], ADMIN_CATEGORIES)
        .documented("server", "4.0.0", "O(N) where N is the number of loaded modules.")
        .described("", "List all modules loaded by the server").tips(&["nondeterministic_output_order"]),
    spec(Id::ModuleHelp, "module|help", 2, NO_KEY, ALWAYS, SLOW).documented("server", "5.0.0", "O(1)")
        .described("", HELP_SUMMARY),
];

#[rustfmt::skip]
pub(super) const MEMORY: &[Spec] = &[
    spec(Id::MemoryUsage, "memory|usage", -3, SECOND_KEY, READ, &["@read", "@slow"]).documented("server", "4.0.0", "O(N) where N is the number of samples.")
        .described("key [SAMPLES count]", "Estimate the memory usage of a key").key_flags(&["RO"]),
    spec(Id::MemoryHelp, "memory|help", 2, NO_KEY, ALWAYS, SLOW).documented("server", "4.0.0", "O(1)").described("", HELP_SUMMARY),
    spec(Id::MemoryStats, "memory|stats", 2, NO_KEY, CONTAINER, SLOW).documented("server", "4.0.0", "O(1)")
        .described("", "Show memory usage details")
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
    spec(Id::MemoryDoctor, "memory|doctor", 2, NO_KEY, CONTAINER, SLOW).documented("server", "4.0.0", "O(1)")
        .described("", "Outputs memory problems report")
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
    spec(Id::MemoryPurge, "memory|purge", 2, NO_KEY, CONTAINER, SLOW)
        .documented("server", "4.0.0", "Depends on how much memory is allocated, could be slow")
        .described("", "Ask the allocator to release memory")
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    spec(Id::MemoryMallocStats, "memory|malloc-stats", 2, NO_KEY, CONTAINER, SLOW)
        .documented("server", "4.0.0", "Depends on how much memory is allocated, could be slow")
        .described("", "Show allocator internal stats")
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
];

#[rustfmt::skip]
pub(super) const PUBSUB: &[Spec] = &[
    spec(Id::PubSubChannels, "pubsub|channels", -2, NO_KEY, PUBSUB_FLAGS, PUBSUB_CATEGORIES)
        .documented("pubsub", "2.8.0", "O(N) where N is the number of active channels, and assuming constant time pattern matching (relatively short channels and patterns)")
        .described("[pattern]", "List active channels"),
    spec(Id::PubSubNumSub, "pubsub|numsub", -2, NO_KEY, PUBSUB_FLAGS, PUBSUB_CATEGORIES)
        .documented("pubsub", "2.8.0", "O(N) for the NUMSUB subcommand, where N is the number of requested channels")
        .described("[channel [channel ...]]", "Get the count of subscribers for channels"),
    spec(Id::PubSubNumPat, "pubsub|numpat", 2, NO_KEY, PUBSUB_FLAGS, PUBSUB_CATEGORIES)
        .documented("pubsub", "2.8.0", "O(1)").described("", "Get the count of unique patterns pattern subscriptions"),
    spec(Id::PubSubShardChannels, "pubsub|shardchannels", -2, NO_KEY, PUBSUB_FLAGS, PUBSUB_CATEGORIES)
        .documented("pubsub", "7.0.0", "O(N) where N is the number of active shard channels, and assuming constant time pattern matching (relatively short shard channels).")
        .described("[pattern]", "List active shard channels"),
    spec(Id::PubSubShardNumSub, "pubsub|shardnumsub", -2, NO_KEY, PUBSUB_FLAGS, PUBSUB_CATEGORIES)
        .documented("pubsub", "7.0.0", "O(N) for the SHARDNUMSUB subcommand, where N is the number of requested shard channels")
        .described("[shardchannel [shardchannel ...]]", "Get the count of subscribers for shard channels"),
    spec(Id::PubSubHelp, "pubsub|help", 2, NO_KEY, ALWAYS, SLOW).documented("pubsub", "6.2.0", "O(1)")
        .described("", HELP_SUMMARY),
];
