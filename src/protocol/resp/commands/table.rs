//! The supported commands, as Redis 7 describes them. The names of Zero-KV's own commands start with `ZKV.`.

use super::super::ARGS_MAX;
use super::{ARGS_MAX_AT_ONCE, KeyPositions, KeysNeeded, Missing, Spec};

/// Identifiers of commands. Each identifier is named after its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the table has a summary of each")]
#[rustfmt::skip]
pub enum Id {
    Get, MGet, Exists, StrLen, GetRange, Type, Ttl, PTtl, DbSize, RandomKey, Scan, Keys, Ping, Echo, Time, Info,
    Select, Hello, Auth, Reset, Quit, Multi, Exec, Discard, Watch, Unwatch, ZkvFloor, ZkvCeiling, ZkvCover, ZkvRange,
    ZkvCount, ZkvGeneration, Config, ConfigGet, ConfigHelp, Command, CommandCount, CommandDocs, CommandInfo,
    CommandList, CommandGetKeys, CommandHelp, Client, ClientSetInfo, ClientSetName, ClientGetName, ClientId,
    ClientInfo, ClientList, ClientNoEvict, ClientNoTouch, ClientHelp, Memory, MemoryUsage, MemoryHelp, SlowLog,
    Latency, Module, LastSave, Monitor, Unsubscribe, PUnsubscribe, SUnsubscribe, SlowLogGet, SlowLogLen,
    SlowLogReset, SlowLogHelp, LatencyLatest, LatencyHistogram, LatencyHelp, ModuleList, ModuleHelp, MemoryStats,
    ClientKill, Acl, AclWhoAmI, AclList, AclUsers, AclGetUser, AclCat, AclDryRun, AclHelp, Object, ObjectEncoding,
    ObjectHelp, GetBit, Touch, ExpireTime, PExpireTime, HExists, HGet, HGetAll, HKeys, HLen, HMGet, HRandField,
    HScan, HStrLen, HVals, Role, Wait, ReadOnly, ReadWrite, Asking, Cluster, ClusterCountKeysInSlot,
    ClusterGetKeysInSlot, ClusterHelp, ClusterInfo, ClusterKeySlot, ClusterMyId, ClusterNodes, ClusterReplicas,
    ClusterShards, ClusterSlots, Subscribe, PSubscribe, SSubscribe, ClientTracking, ClientCaching,
    ClientTrackingInfo, ClientGetRedir,
}

/// The positions of a command's keys, and the keys that its user must be allowed to use.
type Keys = (KeyPositions, KeysNeeded);

const fn positions(first: i32, last: i32) -> KeyPositions {
    KeyPositions { first, last, step: (first != 0) as i32 }
}

const NO_KEY: Keys = (positions(0, 0), KeysNeeded::None);
const ONE_KEY: Keys = (positions(1, 1), KeysNeeded::Named);
const SECOND_KEY: Keys = (positions(2, 2), KeysNeeded::Named);
const ALL_ARGS: Keys = (positions(1, -1), KeysNeeded::Named);
/// Redis counts the channels of a shard as keys.
const CHANNELS: Keys = (positions(1, -1), KeysNeeded::None);
const A_PREFIX: Keys = (positions(0, 0), KeysNeeded::Prefix);
/// The reply depends on rows of keys that the arguments do not name, or describes the served file.
const EVERY_KEY: Keys = (positions(0, 0), KeysNeeded::All);
/// The reply can be the row of another key than the argument.
const NEAREST_KEY: Keys = (positions(1, 1), KeysNeeded::All);

type Words = &'static [&'static str];
const CONTAINER: Words = &[];
const READ: Words = &["readonly"];
const FAST_READ: Words = &["readonly", "fast"];
const ALWAYS: Words = &["loading", "stale"];
const FAST_ALWAYS: Words = &["loading", "stale", "fast"];
const SESSION: Words = &["noscript", "loading", "stale"];
const HANDSHAKE: Words = &["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"];
const TRANSACTION_FLAGS: Words = &["noscript", "loading", "stale", "fast", "allow_busy"];
const SLOWLOG_FLAGS: Words = &["admin", "loading", "stale"];
const STALE: Words = &["stale"];
const ADMIN_STALE: Words = &["admin", "stale"];
const ADMIN: Words = &["admin", "noscript", "loading", "stale"];

const STRING: Words = &["@read", "@string", "@fast"];
const SLOW_STRING: Words = &["@read", "@string", "@slow"];
const BITMAP: Words = &["@read", "@bitmap", "@fast"];
const HASH: Words = &["@read", "@hash", "@fast"];
const SLOW_HASH: Words = &["@read", "@hash", "@slow"];
const KEYSPACE: Words = &["@keyspace", "@read", "@fast"];
const SLOW_KEYSPACE: Words = &["@keyspace", "@read", "@slow"];
const DANGEROUS: Words = &["@keyspace", "@read", "@slow", "@dangerous"];
const CONNECTION: Words = &["@fast", "@connection"];
const SLOW_CONNECTION: Words = &["@slow", "@connection"];
const SLOW: Words = &["@slow"];
const ADMIN_CATEGORIES: Words = &["@admin", "@slow", "@dangerous"];
const ADMIN_CONNECTION: Words = &["@admin", "@slow", "@dangerous", "@connection"];
const PUBSUB_FLAGS: Words = &["pubsub", "noscript", "loading", "stale"];
const PUBSUB_CATEGORIES: Words = &["@pubsub", "@slow"];
const TRANSACTION: Words = &["@fast", "@transaction"];

const HELP_SUMMARY: &str = "Show helpful text about the different subcommands";

/// Creates an entry of the table of commands. The caller must complete the entry with [`Spec::documented`].
const fn spec(
    id: Id,
    name: &'static str,
    arity: i32,
    (keys, keys_needed): Keys,
    flags: Words,
    categories: Words,
) -> Spec {
    let (key_flags, tips): (Words, Words) = (&["RO", "access"], &[]);
    let (group, since, syntax, summary) = ("", "", "", "");
    let (args_max, subcommands, missing) = (ARGS_MAX_AT_ONCE, &[], None);
    Spec {
        id,
        name,
        arity,
        args_max,
        flags,
        categories,
        keys,
        keys_needed,
        key_flags,
        tips,
        group,
        since,
        syntax,
        summary,
        subcommands,
        missing,
    }
}

impl Spec {
    /// Sets the group, the first version with the command, the syntax of the arguments, and the summary.
    const fn documented(
        mut self,
        group: &'static str,
        since: &'static str,
        syntax: &'static str,
        summary: &'static str,
    ) -> Spec {
        (self.group, self.since, self.syntax, self.summary) = (group, since, syntax, summary);
        self
    }

    /// Raises the maximum number of arguments to [`ARGS_MAX`]. Only for commands that are executed in several passes.
    const fn in_parts(mut self) -> Spec {
        self.args_max = ARGS_MAX;
        self
    }

    /// Replaces the flags of the keys, which are `RO` and `access` by default.
    const fn key_flags(mut self, key_flags: Words) -> Spec {
        self.key_flags = key_flags;
        self
    }

    const fn tips(mut self, tips: Words) -> Spec {
        self.tips = tips;
        self
    }

    const fn with(mut self, subcommands: &'static [Spec]) -> Spec {
        self.subcommands = subcommands;
        self
    }

    /// Sets the reply to a missing key. Only for commands that read hashes.
    const fn missing(mut self, missing: Missing) -> Spec {
        self.missing = Some(missing);
        self
    }
}

/// All commands, the most frequent ones first.
#[rustfmt::skip]
pub static COMMANDS: &[Spec] = &[
    spec(Id::Get, "get", 2, ONE_KEY, FAST_READ, STRING).documented("string", "1.0.0", "key", "Get the value of a key"),
    spec(Id::MGet, "mget", -2, ALL_ARGS, FAST_READ, STRING)
        .documented("string", "1.0.0", "key [key ...]", "Get the values of all the given keys").in_parts()
        .tips(&["request_policy:multi_shard"]),
    spec(Id::Exists, "exists", -2, ALL_ARGS, FAST_READ, KEYSPACE)
        .documented("generic", "1.0.0", "key [key ...]", "Determine if a key exists").in_parts()
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"]).key_flags(&["RO"]),
    spec(Id::StrLen, "strlen", 2, ONE_KEY, FAST_READ, STRING)
        .documented("string", "2.2.0", "key", "Get the length of the value stored in a key").key_flags(&["RO"]),
    spec(Id::GetRange, "getrange", 4, ONE_KEY, READ, SLOW_STRING)
        .documented("string", "2.4.0", "key start end", "Get a substring of the string stored at a key"),
    spec(Id::ZkvFloor, "zkv.floor", 2, NEAREST_KEY, READ, KEYSPACE)
        .documented("module", "0.1.0", "key", "Get the row with the largest key less than or equal to the given key"),
    spec(Id::ZkvCeiling, "zkv.ceiling", 2, NEAREST_KEY, READ, KEYSPACE)
        .documented("module", "0.1.0", "key",
            "Get the row with the smallest key greater than or equal to the given key"),
    spec(Id::ZkvCover, "zkv.cover", 2, NEAREST_KEY, READ, KEYSPACE)
        .documented("module", "0.1.0", "key", "Get the first key, the last key, and the value of the range that contains the given key"),
    spec(Id::ZkvRange, "zkv.range", -3, A_PREFIX, READ, SLOW_KEYSPACE)
        .documented("module", "0.1.0", "<min max | PREFIX prefix> [REV] [LIMIT count] [FROM cursor]",
            "Get a page of keys and values in key order"),
    spec(Id::ZkvCount, "zkv.count", 3, A_PREFIX, READ, KEYSPACE)
        .documented("module", "0.1.0", "<min max | PREFIX prefix>", "Count the keys of a range without reading them"),
    spec(Id::ZkvGeneration, "zkv.generation", 1, EVERY_KEY, FAST_READ, KEYSPACE)
        .documented("module", "0.1.0", "", "Get the number of the generation that the server serves"),
    spec(Id::Type, "type", 2, ONE_KEY, FAST_READ, KEYSPACE)
        .documented("generic", "1.0.0", "key", "Determine the type stored at key").key_flags(&["RO"]),
    spec(Id::Ttl, "ttl", 2, ONE_KEY, FAST_READ, KEYSPACE)
        .documented("generic", "1.0.0", "key", "Get the time to live for a key in seconds")
        .tips(&["nondeterministic_output"]),
    spec(Id::PTtl, "pttl", 2, ONE_KEY, FAST_READ, KEYSPACE)
        .documented("generic", "2.6.0", "key", "Get the time to live for a key in milliseconds")
        .tips(&["nondeterministic_output"]),
    spec(Id::DbSize, "dbsize", 1, EVERY_KEY, FAST_READ, KEYSPACE)
        .documented("server", "1.0.0", "", "Return the number of keys in the selected database")
        .tips(&["request_policy:all_shards", "response_policy:agg_sum"]),
    spec(Id::RandomKey, "randomkey", 1, EVERY_KEY, READ, SLOW_KEYSPACE)
        .documented("generic", "1.0.0", "", "Return a random key from the keyspace")
        .tips(&["request_policy:all_shards", "nondeterministic_output"]),
    spec(Id::Scan, "scan", -2, EVERY_KEY, READ, SLOW_KEYSPACE)
        .documented("generic", "2.8.0", "cursor [MATCH pattern] [COUNT count] [TYPE type]",
            "Incrementally iterate the keys space").tips(&["nondeterministic_output", "request_policy:special"]),
    spec(Id::Keys, "keys", 2, EVERY_KEY, READ, DANGEROUS)
        .documented("generic", "1.0.0", "pattern", "Find all keys matching the given pattern")
        .tips(&["request_policy:all_shards", "nondeterministic_output_order"]),
    spec(Id::Ping, "ping", -1, NO_KEY, &["fast"], CONNECTION)
        .documented("connection", "1.0.0", "[message]", "Ping the server")
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    spec(Id::Echo, "echo", 2, NO_KEY, FAST_ALWAYS, CONNECTION)
        .documented("connection", "1.0.0", "message", "Echo the given string"),
    spec(Id::Time, "time", 1, NO_KEY, FAST_ALWAYS, &["@fast"])
        .documented("server", "2.6.0", "", "Return the current server time").tips(&["nondeterministic_output"]),
    // The reply omits the sections that depend on rows, unless the user may use all keys.
    spec(Id::Info, "info", -1, NO_KEY, ALWAYS, &["@slow", "@dangerous"])
        .documented("server", "1.0.0", "[section [section ...]]", "Get information and statistics about the server")
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
    spec(Id::Select, "select", 2, NO_KEY, FAST_ALWAYS, CONNECTION)
        .documented("connection", "1.0.0", "index", "Change the selected database for the current connection"),
    spec(Id::Hello, "hello", -1, NO_KEY, HANDSHAKE, CONNECTION)
        .documented("connection", "6.0.0", "[protover [AUTH username password] [SETNAME clientname]]",
            "Handshake with Redis"),
    spec(Id::Auth, "auth", -2, NO_KEY, HANDSHAKE, CONNECTION)
        .documented("connection", "1.0.0", "[username] password", "Authenticate to the server"),
    spec(Id::Reset, "reset", 1, NO_KEY, HANDSHAKE, CONNECTION)
        .documented("connection", "6.2.0", "", "Reset the connection"),
    spec(Id::Quit, "quit", -1, NO_KEY, HANDSHAKE, CONNECTION)
        .documented("connection", "1.0.0", "", "Close the connection"),
    spec(Id::Multi, "multi", 1, NO_KEY, TRANSACTION_FLAGS, TRANSACTION)
        .documented("transactions", "1.2.0", "", "Mark the start of a transaction block"),
    // EXEC checks the permissions of each command again.
    spec(Id::Exec, "exec", 1, NO_KEY, &["noscript", "loading", "stale", "skip_slowlog"], &["@slow", "@transaction"])
        .documented("transactions", "1.2.0", "", "Execute all commands issued after MULTI"),
    spec(Id::Discard, "discard", 1, NO_KEY, TRANSACTION_FLAGS, TRANSACTION)
        .documented("transactions", "2.0.0", "", "Discard all commands issued after MULTI"),
    spec(Id::Watch, "watch", -2, ALL_ARGS, TRANSACTION_FLAGS, TRANSACTION)
        .documented("transactions", "2.2.0", "key [key ...]",
            "Watch the given keys to determine execution of the MULTI/EXEC block").key_flags(&["RO"]),
    spec(Id::Unwatch, "unwatch", 1, NO_KEY, TRANSACTION_FLAGS, TRANSACTION)
        .documented("transactions", "2.2.0", "", "Forget about all watched keys"),
    spec(Id::Client, "client", -2, NO_KEY, CONTAINER, SLOW)
        .documented("connection", "2.4.0", "", "A container for client connection commands").with(CLIENT),
    spec(Id::Command, "command", -1, NO_KEY, ALWAYS, SLOW_CONNECTION)
        .documented("server", "2.8.13", "", "Get array of Redis command details").with(COMMAND)
        .tips(&["nondeterministic_output_order"]),
    spec(Id::Config, "config", -2, NO_KEY, CONTAINER, SLOW)
        .documented("server", "2.0.0", "", "A container for server configuration commands").with(CONFIG),
    spec(Id::Memory, "memory", -2, NO_KEY, CONTAINER, SLOW)
        .documented("server", "4.0.0", "", "A container for memory diagnostics commands").with(MEMORY),
    spec(Id::Object, "object", -2, NO_KEY, CONTAINER, SLOW)
        .documented("generic", "2.2.3", "", "A container for object introspection commands").with(OBJECT),
    spec(Id::SlowLog, "slowlog", -2, NO_KEY, CONTAINER, SLOW)
        .documented("server", "2.2.12", "", "A container for slow log commands").with(SLOWLOG),
    spec(Id::Latency, "latency", -2, NO_KEY, CONTAINER, SLOW)
        .documented("server", "2.8.13", "", "A container for latency diagnostics commands").with(LATENCY),
    spec(Id::Module, "module", -2, NO_KEY, CONTAINER, SLOW)
        .documented("server", "4.0.0", "", "A container for module commands").with(MODULE),
    spec(Id::LastSave, "lastsave", 1, EVERY_KEY, FAST_ALWAYS, &["@admin", "@fast", "@dangerous"])
        .documented("server", "1.0.0", "", "Get the UNIX time stamp of the last successful save to disk")
        .tips(&["nondeterministic_output"]),
    spec(Id::Subscribe, "subscribe", -2, NO_KEY, PUBSUB_FLAGS, PUBSUB_CATEGORIES)
        .documented("pubsub", "2.0.0", "channel [channel ...]",
            "Listen for messages published to the given channels"),
    spec(Id::PSubscribe, "psubscribe", -2, NO_KEY, PUBSUB_FLAGS, PUBSUB_CATEGORIES)
        .documented("pubsub", "2.0.0", "pattern [pattern ...]",
            "Listen for messages published to channels matching the given patterns"),
    spec(Id::SSubscribe, "ssubscribe", -2, CHANNELS, PUBSUB_FLAGS, PUBSUB_CATEGORIES)
        .documented("pubsub", "7.0.0", "shardchannel [shardchannel ...]",
            "Listen for messages published to the given shard channels").key_flags(&["not_key"]),
    spec(Id::Unsubscribe, "unsubscribe", -1, NO_KEY, PUBSUB_FLAGS, PUBSUB_CATEGORIES)
        .documented("pubsub", "2.0.0", "[channel [channel ...]]",
            "Stop listening for messages posted to the given channels"),
    spec(Id::PUnsubscribe, "punsubscribe", -1, NO_KEY, PUBSUB_FLAGS, PUBSUB_CATEGORIES)
        .documented("pubsub", "2.0.0", "[pattern [pattern ...]]",
            "Stop listening for messages posted to channels matching the given patterns"),
    spec(Id::SUnsubscribe, "sunsubscribe", -1, CHANNELS, PUBSUB_FLAGS, PUBSUB_CATEGORIES)
        .documented("pubsub", "7.0.0", "[shardchannel [shardchannel ...]]",
            "Stop listening for messages posted to the given shard channels").key_flags(&["not_key"]),
    // The lines show the keys of other clients.
    spec(Id::Monitor, "monitor", 1, EVERY_KEY, ADMIN, ADMIN_CATEGORIES)
        .documented("server", "1.0.0", "", "Listen for all requests received by the server in real time"),
    spec(Id::Acl, "acl", -2, NO_KEY, CONTAINER, SLOW)
        .documented("server", "6.0.0", "", "A container for Access List Control commands ").with(ACL),
    spec(Id::GetBit, "getbit", 3, ONE_KEY, FAST_READ, BITMAP)
        .documented("bitmap", "2.2.0", "key offset",
            "Returns the bit value at offset in the string value stored at key"),
    spec(Id::Touch, "touch", -2, ALL_ARGS, FAST_READ, KEYSPACE)
        .documented("generic", "3.2.1", "key [key ...]",
            "Alters the last access time of a key(s). Returns the number of existing keys specified.").in_parts()
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"]).key_flags(&["RO"]),
    spec(Id::ExpireTime, "expiretime", 2, ONE_KEY, FAST_READ, KEYSPACE)
        .documented("generic", "7.0.0", "key", "Get the expiration Unix timestamp for a key"),
    spec(Id::PExpireTime, "pexpiretime", 2, ONE_KEY, FAST_READ, KEYSPACE)
        .documented("generic", "7.0.0", "key", "Get the expiration Unix timestamp for a key in milliseconds"),
    spec(Id::HExists, "hexists", 3, ONE_KEY, FAST_READ, HASH)
        .documented("hash", "2.0.0", "key field", "Determine if a hash field exists").missing(Missing::Zero)
        .key_flags(&["RO"]),
    spec(Id::HGet, "hget", 3, ONE_KEY, FAST_READ, HASH)
        .documented("hash", "2.0.0", "key field", "Get the value of a hash field").missing(Missing::Null),
    spec(Id::HGetAll, "hgetall", 2, ONE_KEY, READ, SLOW_HASH)
        .documented("hash", "2.0.0", "key", "Get all the fields and values in a hash").missing(Missing::Map)
        .tips(&["nondeterministic_output_order"]),
    spec(Id::HKeys, "hkeys", 2, ONE_KEY, READ, SLOW_HASH)
        .documented("hash", "2.0.0", "key", "Get all the fields in a hash").missing(Missing::Array)
        .tips(&["nondeterministic_output_order"]),
    spec(Id::HLen, "hlen", 2, ONE_KEY, FAST_READ, HASH)
        .documented("hash", "2.0.0", "key", "Get the number of fields in a hash").missing(Missing::Zero)
        .key_flags(&["RO"]),
    spec(Id::HMGet, "hmget", -3, ONE_KEY, FAST_READ, HASH)
        .documented("hash", "2.0.0", "key field [field ...]", "Get the values of all the given hash fields")
        .missing(Missing::Nulls),
    spec(Id::HRandField, "hrandfield", -2, ONE_KEY, READ, SLOW_HASH)
        .documented("hash", "6.2.0", "key [count [WITHVALUES]]", "Get one or multiple random fields from a hash")
        .missing(Missing::NullOrArray).tips(&["nondeterministic_output"]),
    spec(Id::HScan, "hscan", -3, ONE_KEY, READ, SLOW_HASH)
        .documented("hash", "2.8.0", "key cursor [MATCH pattern] [COUNT count] [NOVALUES]",
            "Incrementally iterate hash fields and associated values").missing(Missing::Scan)
        .tips(&["nondeterministic_output"]),
    spec(Id::HStrLen, "hstrlen", 3, ONE_KEY, FAST_READ, HASH)
        .documented("hash", "3.2.0", "key field", "Get the length of the value of a hash field").missing(Missing::Zero)
        .key_flags(&["RO"]),
    spec(Id::HVals, "hvals", 2, ONE_KEY, READ, SLOW_HASH)
        .documented("hash", "2.0.0", "key", "Get all the values in a hash").missing(Missing::Array)
        .tips(&["nondeterministic_output_order"]),
    spec(Id::Role, "role", 1, NO_KEY, &["noscript", "loading", "stale", "fast"], &["@admin", "@fast", "@dangerous"])
        .documented("server", "2.8.12", "", "Return the role of the instance in the context of replication"),
    spec(Id::Wait, "wait", 3, NO_KEY, &["noscript"], SLOW_CONNECTION)
        .documented("generic", "3.0.0", "numreplicas timeout",
            "Wait for the synchronous replication of all the write commands sent in the context of the current \
             connection")
        .tips(&["request_policy:all_shards", "response_policy:agg_min"]),
    spec(Id::ReadOnly, "readonly", 1, NO_KEY, FAST_ALWAYS, CONNECTION)
        .documented("cluster", "3.0.0", "", "Enables read queries for a connection to a cluster replica node"),
    spec(Id::ReadWrite, "readwrite", 1, NO_KEY, FAST_ALWAYS, CONNECTION)
        .documented("cluster", "3.0.0", "", "Disables read queries for a connection to a cluster replica node"),
    spec(Id::Asking, "asking", 1, NO_KEY, &["fast"], CONNECTION)
        .documented("cluster", "3.0.0", "", "Sent by cluster clients after an -ASK redirect"),
    spec(Id::Cluster, "cluster", -2, NO_KEY, CONTAINER, SLOW)
        .documented("cluster", "3.0.0", "", "A container for cluster commands").with(CLUSTER),
];

#[rustfmt::skip]
const ACL: &[Spec] = &[
    spec(Id::AclWhoAmI, "acl|whoami", 2, NO_KEY, SESSION, SLOW)
        .documented("server", "6.0.0", "", "Return the name of the user associated to the current connection"),
    spec(Id::AclList, "acl|list", 2, NO_KEY, ADMIN, ADMIN_CATEGORIES)
        .documented("server", "6.0.0", "", "List the current ACL rules in ACL config file format"),
    spec(Id::AclUsers, "acl|users", 2, NO_KEY, ADMIN, ADMIN_CATEGORIES)
        .documented("server", "6.0.0", "", "List the username of all the configured ACL rules"),
    spec(Id::AclGetUser, "acl|getuser", 3, NO_KEY, ADMIN, ADMIN_CATEGORIES)
        .documented("server", "6.0.0", "username", "Get the rules for a specific ACL user"),
    spec(Id::AclCat, "acl|cat", -2, NO_KEY, SESSION, SLOW)
        .documented("server", "6.0.0", "[categoryname]", "List the ACL categories or the commands inside a category"),
    spec(Id::AclDryRun, "acl|dryrun", -4, NO_KEY, ADMIN, ADMIN_CATEGORIES)
        .documented("server", "7.0.0", "username command [arg [arg ...]]",
            "Returns whether the user can execute the given command without executing the command."),
    spec(Id::AclHelp, "acl|help", 2, NO_KEY, ALWAYS, SLOW).documented("server", "6.0.0", "", HELP_SUMMARY),
];

#[rustfmt::skip]
const CLIENT: &[Spec] = &[
    spec(Id::ClientSetInfo, "client|setinfo", 4, NO_KEY, SESSION, SLOW_CONNECTION)
        .documented("connection", "7.2.0", "<LIB-NAME libname | LIB-VER libver>",
            "Set client or connection specific info"),
    spec(Id::ClientSetName, "client|setname", 3, NO_KEY, SESSION, SLOW_CONNECTION)
        .documented("connection", "2.6.9", "connection-name", "Set the current connection name"),
    spec(Id::ClientGetName, "client|getname", 2, NO_KEY, SESSION, SLOW_CONNECTION)
        .documented("connection", "2.6.9", "", "Get the current connection name"),
    spec(Id::ClientId, "client|id", 2, NO_KEY, SESSION, SLOW_CONNECTION)
        .documented("connection", "5.0.0", "", "Returns the client ID for the current connection"),
    spec(Id::ClientInfo, "client|info", 2, NO_KEY, SESSION, SLOW_CONNECTION)
        .documented("connection", "6.2.0", "", "Returns information about the current client connection.")
        .tips(&["nondeterministic_output"]),
    spec(Id::ClientList, "client|list", -2, NO_KEY, ADMIN, ADMIN_CONNECTION)
        .documented("connection", "2.4.0", "[TYPE type] [ID client-id [client-id ...]]",
            "Get the list of client connections").tips(&["nondeterministic_output"]),
    spec(Id::ClientNoEvict, "client|no-evict", 3, NO_KEY, ADMIN, ADMIN_CONNECTION)
        .documented("connection", "7.0.0", "<ON | OFF>", "Set client eviction mode for the current connection"),
    spec(Id::ClientNoTouch, "client|no-touch", 3, NO_KEY, SESSION, SLOW_CONNECTION)
        .documented("connection", "7.2.0", "<ON | OFF>",
            "Controls whether commands sent by the client will alter the LRU/LFU of the keys they access"),
    spec(Id::ClientTracking, "client|tracking", -3, NO_KEY, SESSION, SLOW_CONNECTION)
        .documented("connection", "6.0.0", "<ON | OFF> [REDIRECT client-id] [PREFIX prefix [PREFIX prefix ...]] \
            [BCAST] [OPTIN] [OPTOUT] [NOLOOP]", "Enable or disable server assisted client side caching support"),
    spec(Id::ClientCaching, "client|caching", 3, NO_KEY, SESSION, SLOW_CONNECTION)
        .documented("connection", "6.0.0", "<YES | NO>",
            "Instruct the server about tracking or not keys in the next request"),
    spec(Id::ClientTrackingInfo, "client|trackinginfo", 2, NO_KEY, SESSION, SLOW_CONNECTION)
        .documented("connection", "6.2.0", "",
            "Return information about server assisted client side caching for the current connection"),
    spec(Id::ClientGetRedir, "client|getredir", 2, NO_KEY, SESSION, SLOW_CONNECTION)
        .documented("connection", "6.0.0", "", "Get tracking notifications redirection client ID if any"),
    spec(Id::ClientHelp, "client|help", 2, NO_KEY, ALWAYS, SLOW_CONNECTION)
        .documented("connection", "5.0.0", "", HELP_SUMMARY),
    spec(Id::ClientKill, "client|kill", -3, NO_KEY, ADMIN, ADMIN_CONNECTION)
        .documented("connection", "2.4.0", "<ip:port | <ID client-id | TYPE <NORMAL | MASTER | REPLICA | PUBSUB> | \
        USER username | ADDR ip:port | LADDR ip:port | SKIPME yes/no | MAXAGE maxage> [...]>",
            "Kill the connection of a client"),
];

#[rustfmt::skip]
const CLUSTER: &[Spec] = &[
    spec(Id::ClusterCountKeysInSlot, "cluster|countkeysinslot", 3, EVERY_KEY, STALE, SLOW)
        .documented("cluster", "3.0.0", "slot", "Return the number of local keys in the specified hash slot"),
    spec(Id::ClusterGetKeysInSlot, "cluster|getkeysinslot", 4, EVERY_KEY, STALE, SLOW)
        .documented("cluster", "3.0.0", "slot count", "Return local key names in the specified hash slot")
        .tips(&["nondeterministic_output"]),
    spec(Id::ClusterHelp, "cluster|help", 2, NO_KEY, ALWAYS, SLOW).documented("cluster", "5.0.0", "", HELP_SUMMARY),
    spec(Id::ClusterInfo, "cluster|info", 2, NO_KEY, STALE, SLOW)
        .documented("cluster", "3.0.0", "", "Provides info about Redis Cluster node state")
        .tips(&["nondeterministic_output"]),
    // The key is not looked up.
    spec(Id::ClusterKeySlot, "cluster|keyslot", 3, NO_KEY, STALE, SLOW)
        .documented("cluster", "3.0.0", "key", "Returns the hash slot of the specified key"),
    spec(Id::ClusterMyId, "cluster|myid", 2, NO_KEY, STALE, SLOW)
        .documented("cluster", "3.0.0", "", "Return the node id"),
    spec(Id::ClusterNodes, "cluster|nodes", 2, NO_KEY, STALE, SLOW)
        .documented("cluster", "3.0.0", "", "Get Cluster config for the node").tips(&["nondeterministic_output"]),
    spec(Id::ClusterReplicas, "cluster|replicas", 3, NO_KEY, ADMIN_STALE, ADMIN_CATEGORIES)
        .documented("cluster", "5.0.0", "node-id", "List replica nodes of the specified master node")
        .tips(&["nondeterministic_output"]),
    spec(Id::ClusterShards, "cluster|shards", 2, NO_KEY, STALE, SLOW)
        .documented("cluster", "7.0.0", "", "Get array of cluster slots to node mappings")
        .tips(&["nondeterministic_output"]),
    spec(Id::ClusterSlots, "cluster|slots", 2, NO_KEY, STALE, SLOW)
        .documented("cluster", "3.0.0", "", "Get array of Cluster slot to node mappings")
        .tips(&["nondeterministic_output"]),
];

#[rustfmt::skip]
const COMMAND: &[Spec] = &[
    spec(Id::CommandCount, "command|count", 2, NO_KEY, ALWAYS, SLOW_CONNECTION)
        .documented("server", "2.8.13", "", "Get total number of Redis commands"),
    spec(Id::CommandDocs, "command|docs", -2, NO_KEY, ALWAYS, SLOW_CONNECTION)
        .documented("server", "7.0.0", "[command-name [command-name ...]]",
            "Get array of specific Redis command documentation").in_parts().tips(&["nondeterministic_output_order"]),
    spec(Id::CommandInfo, "command|info", -2, NO_KEY, ALWAYS, SLOW_CONNECTION)
        .documented("server", "2.8.13", "[command-name [command-name ...]]",
            "Get array of specific Redis command details, or all when no argument is given.").in_parts()
        .tips(&["nondeterministic_output_order"]),
    spec(Id::CommandList, "command|list", -2, NO_KEY, ALWAYS, SLOW_CONNECTION)
        .documented("server", "7.0.0", "[FILTERBY <MODULE module-name | ACLCAT category | PATTERN pattern>]",
            "Get an array of Redis command names").tips(&["nondeterministic_output_order"]),
    spec(Id::CommandGetKeys, "command|getkeys", -4, NO_KEY, ALWAYS, SLOW_CONNECTION)
        .documented("server", "2.8.13", "command arg [arg ...]", "Extract keys given a full Redis command").in_parts(),
    spec(Id::CommandHelp, "command|help", 2, NO_KEY, ALWAYS, SLOW_CONNECTION)
        .documented("server", "5.0.0", "", HELP_SUMMARY),
];

#[rustfmt::skip]
const CONFIG: &[Spec] = &[
    spec(Id::ConfigGet, "config|get", -3, NO_KEY, ADMIN, ADMIN_CATEGORIES)
        .documented("server", "2.0.0", "parameter [parameter ...]", "Get the values of configuration parameters"),
    spec(Id::ConfigHelp, "config|help", 2, NO_KEY, ALWAYS, SLOW).documented("server", "5.0.0", "", HELP_SUMMARY),
];

#[rustfmt::skip]
const LATENCY: &[Spec] = &[
    spec(Id::LatencyLatest, "latency|latest", 2, NO_KEY, ADMIN, ADMIN_CATEGORIES)
        .documented("server", "2.8.13", "", "Return the latest latency samples for all events.")
        .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"]),
    spec(Id::LatencyHistogram, "latency|histogram", -2, NO_KEY, ADMIN, ADMIN_CATEGORIES)
        .documented("server", "7.0.0", "[command [command ...]]",
            "Return the cumulative distribution of latencies of a subset of commands or all.")
        .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"]),
    spec(Id::LatencyHelp, "latency|help", 2, NO_KEY, ALWAYS, SLOW)
        .documented("server", "2.8.13", "", "Show helpful text about the different subcommands."),
];

#[rustfmt::skip]
const MEMORY: &[Spec] = &[
    spec(Id::MemoryUsage, "memory|usage", -3, SECOND_KEY, READ, &["@read", "@slow"])
        .documented("server", "4.0.0", "key [SAMPLES count]", "Estimate the memory usage of a key").key_flags(&["RO"]),
    spec(Id::MemoryHelp, "memory|help", 2, NO_KEY, ALWAYS, SLOW).documented("server", "4.0.0", "", HELP_SUMMARY),
    spec(Id::MemoryStats, "memory|stats", 2, EVERY_KEY, CONTAINER, SLOW)
        .documented("server", "4.0.0", "", "Show memory usage details")
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
];

#[rustfmt::skip]
const MODULE: &[Spec] = &[
    spec(Id::ModuleList, "module|list", 2, NO_KEY, &["admin", "noscript"], ADMIN_CATEGORIES)
        .documented("server", "4.0.0", "", "List all modules loaded by the server")
        .tips(&["nondeterministic_output_order"]),
    spec(Id::ModuleHelp, "module|help", 2, NO_KEY, ALWAYS, SLOW).documented("server", "5.0.0", "", HELP_SUMMARY),
];

#[rustfmt::skip]
const OBJECT: &[Spec] = &[
    spec(Id::ObjectEncoding, "object|encoding", 3, SECOND_KEY, READ, SLOW_KEYSPACE)
        .documented("generic", "2.2.3", "key", "Inspect the internal encoding of a Redis object")
        .tips(&["nondeterministic_output"]).key_flags(&["RO"]),
    spec(Id::ObjectHelp, "object|help", 2, NO_KEY, ALWAYS, &["@keyspace", "@slow"])
        .documented("generic", "6.2.0", "", HELP_SUMMARY),
];

#[rustfmt::skip]
const SLOWLOG: &[Spec] = &[
    spec(Id::SlowLogGet, "slowlog|get", -2, NO_KEY, SLOWLOG_FLAGS, ADMIN_CATEGORIES)
        .documented("server", "2.2.12", "[count]", "Get the slow log's entries")
        .tips(&["request_policy:all_nodes", "nondeterministic_output"]),
    spec(Id::SlowLogLen, "slowlog|len", 2, NO_KEY, SLOWLOG_FLAGS, ADMIN_CATEGORIES)
        .documented("server", "2.2.12", "", "Get the slow log's length")
        .tips(&["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"]),
    spec(Id::SlowLogReset, "slowlog|reset", 2, NO_KEY, SLOWLOG_FLAGS, ADMIN_CATEGORIES)
        .documented("server", "2.2.12", "", "Clear all entries from the slow log")
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    spec(Id::SlowLogHelp, "slowlog|help", 2, NO_KEY, ALWAYS, SLOW).documented("server", "6.2.0", "", HELP_SUMMARY),
];
