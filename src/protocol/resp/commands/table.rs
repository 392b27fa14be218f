//! The list of supported commands. Commands of Redis have the descriptions of Redis 7. The names of Zero-KV's own
//! commands start with `ZKV.`.

mod acl;
mod client;
mod tools;

use super::super::ARGS_MAX;
use super::{ARGS_MAX_AT_ONCE, KeyPositions, Missing, Spec};

/// Identifiers of commands. Each identifier is named after its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the table has a summary of each")]
#[rustfmt::skip]
pub enum Id {
    Get, MGet, Exists, StrLen, GetRange, Type, Ttl, PTtl, DbSize, RandomKey, Scan, Keys,
    Ping, Echo, Time, Info, Select, Hello, Auth, Reset, Quit,
    Multi, Exec, Discard, Watch, Unwatch,
    ZkvFloor, ZkvCeiling, ZkvRange, ZkvCount, ZkvGeneration,
    Config, ConfigGet, ConfigHelp,
    Command, CommandCount, CommandDocs, CommandInfo, CommandList, CommandGetKeys, CommandHelp,
    Client, ClientSetInfo, ClientSetName, ClientGetName, ClientId, ClientInfo, ClientList, ClientNoEvict,
    ClientNoTouch, ClientHelp,
    Memory, MemoryUsage, MemoryHelp,
    SlowLog, Latency, Module, LastSave, Monitor, PubSub, Unsubscribe, PUnsubscribe, SUnsubscribe, SlowLogGet, SlowLogLen,
    SlowLogReset, SlowLogHelp, LatencyLatest, LatencyHistory, LatencyReset, LatencyGraph, LatencyDoctor,
    LatencyHistogram, LatencyHelp, ModuleList, ModuleHelp, MemoryStats, MemoryDoctor, MemoryPurge, MemoryMallocStats,
    PubSubChannels, PubSubNumSub, PubSubNumPat, PubSubShardChannels, PubSubShardNumSub, PubSubHelp, ClientKill, ClientReply,
    ClientUnpause, ClientUnblock, ClientTracking, ClientTrackingInfo, ClientGetRedir, ClientCaching,
    Acl, AclWhoAmI, AclList, AclUsers, AclGetUser, AclCat, AclLog, AclDryRun, AclHelp,
    Object, ObjectEncoding, ObjectFreq, ObjectIdleTime, ObjectRefCount, ObjectHelp,
    SubStr, GetBit, BitCount, BitPos, BitFieldRo, Lcs, Dump, Touch, ExpireTime, PExpireTime, GetEx,
    GeoRadiusRo, GeoRadiusByMemberRo, GeoDist, GeoHash, GeoPos, GeoSearch, HExists, HGet, HGetAll, HKeys, HLen, HMGet,
    HRandField, HScan, HStrLen, HVals, LIndex, LLen, LPos, LRange, PfCount, SCard, SDiff, SInter, SInterCard,
    SIsMember, SMembers, SMIsMember, SortRo, SRandMember, SScan, SUnion, XLen, XPending, XRange, XRevRange, ZCard,
    ZCount, ZDiff, ZInter, ZInterCard, ZLexCount, ZMScore, ZRandMember, ZRange, ZRangeByLex, ZRangeByScore, ZRank,
    ZRevRange, ZRevRangeByLex, ZRevRangeByScore, ZRevRank, ZScan, ZScore, ZUnion, XInfo, XInfoStream, XInfoGroups,
    XInfoConsumers, XInfoHelp,
    Role, Wait, ReadOnly, ReadWrite, Asking, Cluster, ClusterAddSlots, ClusterAddSlotsRange, ClusterBumpEpoch,
    ClusterCountFailureReports, ClusterCountKeysInSlot, ClusterDelSlots, ClusterDelSlotsRange, ClusterFailOver,
    ClusterFlushSlots, ClusterForget, ClusterGetKeysInSlot, ClusterHelp, ClusterInfo, ClusterKeySlot, ClusterLinks,
    ClusterMeet, ClusterMyId, ClusterNodes, ClusterReplicas, ClusterReplicate, ClusterReset, ClusterSaveConfig,
    ClusterSetConfigEpoch, ClusterSetSlot, ClusterShards, ClusterSlaves, ClusterSlots,
}

pub(super) const NO_KEY: KeyPositions = KeyPositions { first: 0, last: 0, step: 0 };
pub(super) const ONE_KEY: KeyPositions = KeyPositions { first: 1, last: 1, step: 1 };
pub(super) const ALL_KEYS: KeyPositions = KeyPositions { first: 1, last: -1, step: 1 };
pub(super) const SECOND_KEY: KeyPositions = KeyPositions { first: 2, last: 2, step: 1 };
pub(super) const TWO_KEYS: KeyPositions = KeyPositions { first: 1, last: 2, step: 1 };

pub(super) type Words = &'static [&'static str];
pub(super) const CONTAINER: Words = &[];
pub(super) const READ: Words = &["readonly"];
pub(super) const FAST_READ: Words = &["readonly", "fast"];
pub(super) const ALWAYS: Words = &["loading", "stale"];
pub(super) const FAST_ALWAYS: Words = &["loading", "stale", "fast"];
const SESSION: Words = &["noscript", "loading", "stale"];
const HANDSHAKE: Words = &["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"];
const TRANSACTION_FLAGS: Words = &["noscript", "loading", "stale", "fast", "allow_busy"];
const ADMIN: Words = &["admin", "noscript", "loading", "stale"];

pub(super) const STRING: Words = &["@read", "@string", "@fast"];
pub(super) const SLOW_STRING: Words = &["@read", "@string", "@slow"];
pub(super) const KEYSPACE: Words = &["@keyspace", "@read", "@fast"];
pub(super) const SLOW_KEYSPACE: Words = &["@keyspace", "@read", "@slow"];
const DANGEROUS: Words = &["@keyspace", "@read", "@slow", "@dangerous"];
pub(super) const CONNECTION: Words = &["@fast", "@connection"];
pub(super) const SLOW_CONNECTION: Words = &["@slow", "@connection"];
pub(super) const SLOW: Words = &["@slow"];
pub(super) const ADMIN_CATEGORIES: Words = &["@admin", "@slow", "@dangerous"];
const ADMIN_CONNECTION: Words = &["@admin", "@slow", "@dangerous", "@connection"];
const UNSUBSCRIBE_FLAGS: Words = &["pubsub", "noscript", "loading", "stale"];
const PUBSUB_CATEGORIES: Words = &["@pubsub", "@slow"];
const TRANSACTION: Words = &["@fast", "@transaction"];

/// Creates an entry of the table of commands. The caller must complete the entry with [`Spec::documented`] and
/// [`Spec::described`].
pub(super) const fn spec(
    id: Id,
    name: &'static str,
    arity: i32,
    keys: KeyPositions,
    flags: Words,
    categories: Words,
) -> Spec {
    let (group, since, complexity, syntax, summary) = ("", "", "", "", "");
    let args_max = ARGS_MAX_AT_ONCE;
    let (key_flags, tips): (Words, Words) = (&["RO", "access"], &[]);
    Spec {
        id,
        name,
        arity,
        args_max,
        flags,
        categories,
        keys,
        key_flags,
        tips,
        group,
        since,
        complexity,
        syntax,
        summary,
        subcommands: &[],
        missing: None,
        counts_keys: false,
        key_note: "",
    }
}

impl Spec {
    /// Sets the group, the first version with the command, and the time complexity.
    pub(super) const fn documented(
        mut self,
        group: &'static str,
        since: &'static str,
        complexity: &'static str,
    ) -> Spec {
        (self.group, self.since, self.complexity) = (group, since, complexity);
        self
    }

    /// Raises the maximum number of arguments to [`ARGS_MAX`]. Only for commands that are executed in several passes.
    pub(super) const fn in_parts(mut self) -> Spec {
        self.args_max = ARGS_MAX;
        self
    }

    /// Sets the syntax and the summary.
    pub(super) const fn described(mut self, syntax: &'static str, summary: &'static str) -> Spec {
        (self.syntax, self.summary) = (syntax, summary);
        self
    }

    /// Replaces the flags of the keys, which are `RO` and `access` by default.
    pub(super) const fn key_flags(mut self, key_flags: Words) -> Spec {
        self.key_flags = key_flags;
        self
    }

    pub(super) const fn tips(mut self, tips: Words) -> Spec {
        self.tips = tips;
        self
    }

    pub(super) const fn with(mut self, subcommands: &'static [Spec]) -> Spec {
        self.subcommands = subcommands;
        self
    }

    /// Sets the reply to a missing key. Only for commands that read keys of a type other than string.
    pub(super) const fn missing(mut self, missing: Missing) -> Spec {
        self.missing = Some(missing);
        self
    }

    /// Sets [`Spec::counts_keys`].
    pub(super) const fn counted_keys(mut self) -> Spec {
        self.counts_keys = true;
        self
    }

    /// Sets [`Spec::key_note`].
    pub(super) const fn key_note(mut self, note: &'static str) -> Spec {
        self.key_note = note;
        self
    }
}

/// The commands that clients use most often, the most frequent ones first.
#[rustfmt::skip]
pub(super) const FREQUENT: &[Spec] = &[
    spec(Id::Get, "get", 2, ONE_KEY, FAST_READ, STRING).documented("string", "1.0.0", "O(1)")
        .described("key", "Get the value of a key"),
    spec(Id::MGet, "mget", -2, ALL_KEYS, FAST_READ, STRING).in_parts()
        .documented("string", "1.0.0", "O(N) where N is the number of keys to retrieve.")
        .described("key [key ...]", "Get the values of all the given keys").tips(&["request_policy:multi_shard"]),
    spec(Id::Exists, "exists", -2, ALL_KEYS, FAST_READ, KEYSPACE).in_parts()
        .documented("generic", "1.0.0", "O(N) where N is the number of keys to check.")
        .described("key [key ...]", "Determine if a key exists")
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"]).key_flags(&["RO"]),
    spec(Id::StrLen, "strlen", 2, ONE_KEY, FAST_READ, STRING).documented("string", "2.2.0", "O(1)")
        .described("key", "Get the length of the value stored in a key").key_flags(&["RO"]),
    spec(Id::GetRange, "getrange", 4, ONE_KEY, READ, SLOW_STRING)
        .documented("string", "2.4.0", "O(N) where N is the length of the returned string. The complexity is ultimately determined by the returned length, but because creating a substring from an existing string is very cheap, it can be considered O(1) for small strings.")
        .described("key start end", "Get a substring of the string stored at a key"),
    spec(Id::ZkvFloor, "zkv.floor", 2, ONE_KEY, READ, KEYSPACE).documented("module", "0.1.0", "O(log N)")
        .described("key", "Get the row with the largest key less than or equal to the given key"),
    spec(Id::ZkvCeiling, "zkv.ceiling", 2, ONE_KEY, READ, KEYSPACE).documented("module", "0.1.0", "O(log N)")
        .described("key", "Get the row with the smallest key greater than or equal to the given key"),
    spec(Id::ZkvRange, "zkv.range", -3, NO_KEY, READ, SLOW_KEYSPACE)
        .documented("module", "0.1.0", "O(log N + M) where M is the number of rows returned")
        .described("<min max | PREFIX prefix> [REV] [LIMIT count] [FROM cursor]",
            "Get a page of keys and values in key order"),
    spec(Id::ZkvCount, "zkv.count", 3, NO_KEY, READ, KEYSPACE).documented("module", "0.1.0", "O(log N)")
        .described("<min max | PREFIX prefix>", "Count the keys of a range without reading them"),
    spec(Id::ZkvGeneration, "zkv.generation", 1, NO_KEY, FAST_READ, KEYSPACE).documented("module", "0.1.0", "O(1)")
        .described("", "Get the number of the generation that the server serves"),
    spec(Id::Type, "type", 2, ONE_KEY, FAST_READ, KEYSPACE).documented("generic", "1.0.0", "O(1)")
        .described("key", "Determine the type stored at key").key_flags(&["RO"]),
    spec(Id::Ttl, "ttl", 2, ONE_KEY, FAST_READ, KEYSPACE).documented("generic", "1.0.0", "O(1)")
        .described("key", "Get the time to live for a key in seconds").tips(&["nondeterministic_output"]),
    spec(Id::PTtl, "pttl", 2, ONE_KEY, FAST_READ, KEYSPACE).documented("generic", "2.6.0", "O(1)")
        .described("key", "Get the time to live for a key in milliseconds").tips(&["nondeterministic_output"]),
    spec(Id::DbSize, "dbsize", 1, NO_KEY, FAST_READ, KEYSPACE).documented("server", "1.0.0", "O(1)")
        .described("", "Return the number of keys in the selected database")
        .tips(&["request_policy:all_shards", "response_policy:agg_sum"]),
    spec(Id::RandomKey, "randomkey", 1, NO_KEY, READ, SLOW_KEYSPACE).documented("generic", "1.0.0", "O(1)")
        .described("", "Return a random key from the keyspace")
        .tips(&["request_policy:all_shards", "nondeterministic_output"]),
    spec(Id::Scan, "scan", -2, NO_KEY, READ, SLOW_KEYSPACE)
        .documented("generic", "2.8.0", "O(1) for every call. O(N) for a complete iteration, including enough command calls for the cursor to return back to 0. N is the number of elements inside the collection.")
        .described("cursor [MATCH pattern] [COUNT count] [TYPE type]", "Incrementally iterate the keys space")
        .tips(&["nondeterministic_output", "request_policy:special"]),
    spec(Id::Keys, "keys", 2, NO_KEY, READ, DANGEROUS)
        .documented("generic", "1.0.0", "O(N) with N being the number of keys in the database, under the assumption that the key names in the database and the given pattern have limited length.")
        .described("pattern", "Find all keys matching the given pattern")
        .tips(&["request_policy:all_shards", "nondeterministic_output_order"]),
    spec(Id::Ping, "ping", -1, NO_KEY, &["fast"], CONNECTION).documented("connection", "1.0.0", "O(1)")
        .described("[message]", "Ping the server")
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    spec(Id::Echo, "echo", 2, NO_KEY, FAST_ALWAYS, CONNECTION).documented("connection", "1.0.0", "O(1)")
        .described("message", "Echo the given string"),
    spec(Id::Time, "time", 1, NO_KEY, FAST_ALWAYS, &["@fast"]).documented("server", "2.6.0", "O(1)")
        .described("", "Return the current server time").tips(&["nondeterministic_output"]),
    spec(Id::Info, "info", -1, NO_KEY, ALWAYS, &["@slow", "@dangerous"]).documented("server", "1.0.0", "O(1)")
        .described("[section [section ...]]", "Get information and statistics about the server")
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
    spec(Id::Select, "select", 2, NO_KEY, FAST_ALWAYS, CONNECTION).documented("connection", "1.0.0", "O(1)")
        .described("index", "Change the selected database for the current connection"),
    spec(Id::Hello, "hello", -1, NO_KEY, HANDSHAKE, CONNECTION).documented("connection", "6.0.0", "O(1)")
        .described("[protover [AUTH username password] [SETNAME clientname]]", "Handshake with Redis"),
    spec(Id::Auth, "auth", -2, NO_KEY, HANDSHAKE, CONNECTION).documented("connection", "1.0.0", "O(N) where N is the number of passwords defined for the user")
        .described("[username] password", "Authenticate to the server"),
    spec(Id::Reset, "reset", 1, NO_KEY, HANDSHAKE, CONNECTION).documented("connection", "6.2.0", "O(1)")
        .described("", "Reset the connection"),
    spec(Id::Quit, "quit", -1, NO_KEY, HANDSHAKE, CONNECTION).documented("connection", "1.0.0", "O(1)")
        .described("", "Close the connection"),
    spec(Id::Multi, "multi", 1, NO_KEY, TRANSACTION_FLAGS, TRANSACTION).documented("transactions", "1.2.0", "O(1)")
        .described("", "Mark the start of a transaction block"),
    spec(Id::Exec, "exec", 1, NO_KEY, &["noscript", "loading", "stale", "skip_slowlog"], &["@slow", "@transaction"])
        .documented("transactions", "1.2.0", "Depends on commands in the transaction")
        .described("", "Execute all commands issued after MULTI"),
    spec(Id::Discard, "discard", 1, NO_KEY, TRANSACTION_FLAGS, TRANSACTION)
        .documented("transactions", "2.0.0", "O(N), when N is the number of queued commands")
        .described("", "Discard all commands issued after MULTI"),
    spec(Id::Watch, "watch", -2, ALL_KEYS, TRANSACTION_FLAGS, TRANSACTION)
        .documented("transactions", "2.2.0", "O(1) for every key.")
        .described("key [key ...]", "Watch the given keys to determine execution of the MULTI/EXEC block")
        .key_flags(&["RO"]),
    spec(Id::Unwatch, "unwatch", 1, NO_KEY, TRANSACTION_FLAGS, TRANSACTION)
        .documented("transactions", "2.2.0", "O(1)").described("", "Forget about all watched keys"),
    spec(Id::Client, "client", -2, NO_KEY, CONTAINER, SLOW).documented("connection", "2.4.0", "Depends on subcommand.")
        .described("", "A container for client connection commands").with(client::CLIENT),
    spec(Id::Command, "command", -1, NO_KEY, ALWAYS, SLOW_CONNECTION)
        .documented("server", "2.8.13", "O(N) where N is the total number of Redis commands")
        .described("", "Get array of Redis command details").with(COMMAND).tips(&["nondeterministic_output_order"]),
    spec(Id::Config, "config", -2, NO_KEY, CONTAINER, SLOW).documented("server", "2.0.0", "Depends on subcommand.")
        .described("", "A container for server configuration commands").with(CONFIG),
    spec(Id::Memory, "memory", -2, NO_KEY, CONTAINER, SLOW).documented("server", "4.0.0", "Depends on subcommand.")
        .described("", "A container for memory diagnostics commands").with(tools::MEMORY),
    spec(Id::Object, "object", -2, NO_KEY, CONTAINER, SLOW).documented("generic", "2.2.3", "Depends on subcommand.")
        .described("", "A container for object introspection commands").with(OBJECT),
    spec(Id::SlowLog, "slowlog", -2, NO_KEY, CONTAINER, SLOW).documented("server", "2.2.12", "Depends on subcommand.")
        .described("", "A container for slow log commands").with(tools::SLOWLOG),
    spec(Id::Latency, "latency", -2, NO_KEY, CONTAINER, SLOW).documented("server", "2.8.13", "Depends on subcommand.")
        .described("", "A container for latency diagnostics commands").with(tools::LATENCY),
    spec(Id::Module, "module", -2, NO_KEY, CONTAINER, SLOW).documented("server", "4.0.0", "Depends on subcommand.")
        .described("", "A container for module commands").with(tools::MODULE),
    spec(Id::LastSave, "lastsave", 1, NO_KEY, FAST_ALWAYS, &["@admin", "@fast", "@dangerous"])
        .documented("server", "1.0.0", "O(1)")
        .described("", "Get the UNIX time stamp of the last successful save to disk")
        .tips(&["nondeterministic_output"]),
    spec(Id::PubSub, "pubsub", -2, NO_KEY, CONTAINER, SLOW).documented("pubsub", "2.8.0", "Depends on subcommand.")
        .described("", "A container for Pub/Sub commands").with(tools::PUBSUB),
    spec(Id::Unsubscribe, "unsubscribe", -1, NO_KEY, UNSUBSCRIBE_FLAGS, PUBSUB_CATEGORIES)
        .documented("pubsub", "2.0.0", "O(N) where N is the number of clients already subscribed to a channel.")
        .described("[channel [channel ...]]", "Stop listening for messages posted to the given channels"),
    spec(Id::PUnsubscribe, "punsubscribe", -1, NO_KEY, UNSUBSCRIBE_FLAGS, PUBSUB_CATEGORIES)
        .documented("pubsub", "2.0.0", "O(N+M) where N is the number of patterns the client is already subscribed and M is the number of total patterns subscribed in the system (by any client).")
        .described("[pattern [pattern ...]]", "Stop listening for messages posted to channels matching the given patterns"),
    spec(Id::SUnsubscribe, "sunsubscribe", -1, ALL_KEYS, UNSUBSCRIBE_FLAGS, PUBSUB_CATEGORIES)
        .documented("pubsub", "7.0.0", "O(N) where N is the number of clients already subscribed to a shard channel.")
        .described("[shardchannel [shardchannel ...]]", "Stop listening for messages posted to the given shard channels")
        .key_flags(&["not_key"]),
    spec(Id::Monitor, "monitor", 1, NO_KEY, ADMIN, ADMIN_CATEGORIES).documented("server", "1.0.0", "")
        .described("", "Listen for all requests received by the server in real time"),
    spec(Id::Acl, "acl", -2, NO_KEY, CONTAINER, SLOW).documented("server", "6.0.0", "Depends on subcommand.")
        .described("", "A container for Access List Control commands ").with(acl::ACL),
];

pub(super) const HELP_SUMMARY: &str = "Show helpful text about the different subcommands";

#[rustfmt::skip]
const COMMAND: &[Spec] = &[
    spec(Id::CommandCount, "command|count", 2, NO_KEY, ALWAYS, SLOW_CONNECTION).documented("server", "2.8.13", "O(1)")
        .described("", "Get total number of Redis commands"),
    spec(Id::CommandDocs, "command|docs", -2, NO_KEY, ALWAYS, SLOW_CONNECTION).in_parts()
        .documented("server", "7.0.0", "O(N) where N is the number of commands to look up")
        .described("[command-name [command-name ...]]", "Get array of specific Redis command documentation")
        .tips(&["nondeterministic_output_order"]),
    spec(Id::CommandInfo, "command|info", -2, NO_KEY, ALWAYS, SLOW_CONNECTION).in_parts()
        .documented("server", "2.8.13", "O(N) where N is the number of commands to look up")
        .described("[command-name [command-name ...]]",
            "Get array of specific Redis command details, or all when no argument is given.")
        .tips(&["nondeterministic_output_order"]),
    spec(Id::CommandList, "command|list", -2, NO_KEY, ALWAYS, SLOW_CONNECTION)
        .documented("server", "7.0.0", "O(N) where N is the total number of Redis commands")
        .described("[FILTERBY <MODULE module-name | ACLCAT category | PATTERN pattern>]",
            "Get an array of Redis command names").tips(&["nondeterministic_output_order"]),
    spec(Id::CommandGetKeys, "command|getkeys", -4, NO_KEY, ALWAYS, SLOW_CONNECTION).in_parts()
        .documented("server", "2.8.13", "O(N) where N is the number of arguments to the command")
        .described("command arg [arg ...]", "Extract keys given a full Redis command"),
    spec(Id::CommandHelp, "command|help", 2, NO_KEY, ALWAYS, SLOW_CONNECTION).documented("server", "5.0.0", "O(1)")
        .described("", HELP_SUMMARY),
];

#[rustfmt::skip]
const CONFIG: &[Spec] = &[
    spec(Id::ConfigGet, "config|get", -3, NO_KEY, ADMIN, &["@admin", "@slow", "@dangerous"])
        .documented("server", "2.0.0", "O(N) when N is the number of configuration parameters provided")
        .described("parameter [parameter ...]", "Get the values of configuration parameters"),
    spec(Id::ConfigHelp, "config|help", 2, NO_KEY, ALWAYS, SLOW).documented("server", "5.0.0", "O(1)").described("", HELP_SUMMARY),
];

#[rustfmt::skip]
const OBJECT: &[Spec] = &[
    spec(Id::ObjectEncoding, "object|encoding", 3, SECOND_KEY, READ, SLOW_KEYSPACE).documented("generic", "2.2.3", "O(1)")
        .described("key", "Inspect the internal encoding of a Redis object")
        .tips(&["nondeterministic_output"]).key_flags(&["RO"]),
    spec(Id::ObjectFreq, "object|freq", 3, SECOND_KEY, READ, SLOW_KEYSPACE).documented("generic", "4.0.0", "O(1)")
        .described("key", "Get the logarithmic access frequency counter of a Redis object")
        .tips(&["nondeterministic_output"]).key_flags(&["RO"]),
    spec(Id::ObjectIdleTime, "object|idletime", 3, SECOND_KEY, READ, SLOW_KEYSPACE)
        .documented("generic", "2.2.3", "O(1)")
        .described("key", "Get the time since a Redis object was last accessed")
        .tips(&["nondeterministic_output"]).key_flags(&["RO"]),
    spec(Id::ObjectRefCount, "object|refcount", 3, SECOND_KEY, READ, SLOW_KEYSPACE)
        .documented("generic", "2.2.3", "O(1)")
        .described("key", "Get the number of references to the value of the key")
        .tips(&["nondeterministic_output"]).key_flags(&["RO"]),
    spec(Id::ObjectHelp, "object|help", 2, NO_KEY, ALWAYS, &["@keyspace", "@slow"]).documented("generic", "6.2.0", "O(1)")
        .described("", HELP_SUMMARY),
];
