//! Commands that read strings, and that clients use less often than those in `table`.

use super::Spec;
use super::table::{
    ALL_KEYS, FAST_READ, Id, KEYSPACE, ONE_KEY, READ, SLOW_KEYSPACE, SLOW_STRING, TWO_KEYS, Words, spec,
};

/// Matches the [`Id`]s of the commands in this module, and of the subcommands of OBJECT that report a statistic.
macro_rules! string_reads {
    () => {
        Id::SubStr
            | Id::GetBit
            | Id::BitCount
            | Id::BitPos
            | Id::BitFieldRo
            | Id::Lcs
            | Id::Dump
            | Id::Touch
            | Id::ExpireTime
            | Id::PExpireTime
            | Id::GetEx
            | Id::ObjectFreq
            | Id::ObjectIdleTime
            | Id::ObjectRefCount
    };
}
pub(crate) use string_reads;

const BITMAP: Words = &["@read", "@bitmap", "@fast"];
const SLOW_BITMAP: Words = &["@read", "@bitmap", "@slow"];

#[rustfmt::skip]
pub(super) const STRING_READS: &[Spec] = &[
    spec(Id::SubStr, "substr", 4, ONE_KEY, READ, SLOW_STRING).documented("string", "1.0.0", "O(N) where N is the length of the returned string. The complexity is ultimately determined by the returned length, but because creating a substring from an existing string is very cheap, it can be considered O(1) for small strings.")
        .described("key start end", "Get a substring of the string stored at a key"),
    spec(Id::GetBit, "getbit", 3, ONE_KEY, FAST_READ, BITMAP)
        .documented("bitmap", "2.2.0", "O(1)")
        .described("key offset", "Returns the bit value at offset in the string value stored at key"),
    spec(Id::BitCount, "bitcount", -2, ONE_KEY, READ, SLOW_BITMAP)
        .documented("bitmap", "2.6.0", "O(N)")
        .described("key [start end [BYTE | BIT]]", "Count set bits in a string"),
    spec(Id::BitPos, "bitpos", -3, ONE_KEY, READ, SLOW_BITMAP)
        .documented("bitmap", "2.8.7", "O(N)")
        .described("key bit [start [end [BYTE | BIT]]]", "Find first bit set or clear in a string"),
    spec(Id::BitFieldRo, "bitfield_ro", -2, ONE_KEY, FAST_READ, BITMAP)
        .documented("bitmap", "6.0.0", "O(1) for each subcommand specified")
        .described("key [GET encoding offset [GET encoding offset ...]]",
            "Perform arbitrary bitfield integer operations on strings. Read-only variant of BITFIELD"),
    spec(Id::Lcs, "lcs", -3, TWO_KEYS, READ, SLOW_STRING).documented("string", "7.0.0", "O(N*M) where N and M are the lengths of s1 and s2, respectively")
        .described("key1 key2 [LEN] [IDX] [MINMATCHLEN len] [WITHMATCHLEN]", "Find longest common substring"),
    spec(Id::Dump, "dump", 2, ONE_KEY, READ, SLOW_KEYSPACE).documented("generic", "2.6.0", "O(1) to access the key and additional O(N*M) to serialize it, where N is the number of Redis objects composing the value and M their average size. For small string values the time complexity is thus O(1)+O(1*M) where M is small, so simply O(1).")
        .described("key", "Return a serialized version of the value stored at the specified key.")
        .tips(&["nondeterministic_output"]),
    spec(Id::Touch, "touch", -2, ALL_KEYS, FAST_READ, KEYSPACE).in_parts()
        .documented("generic", "3.2.1", "O(N) where N is the number of keys that will be touched.")
        .described("key [key ...]",
            "Alters the last access time of a key(s). Returns the number of existing keys specified.")
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"]).key_flags(&["RO"]),
    spec(Id::ExpireTime, "expiretime", 2, ONE_KEY, FAST_READ, KEYSPACE).documented("generic", "7.0.0", "O(1)")
        .described("key", "Get the expiration Unix timestamp for a key"),
    spec(Id::PExpireTime, "pexpiretime", 2, ONE_KEY, FAST_READ, KEYSPACE).documented("generic", "7.0.0", "O(1)")
        .described("key", "Get the expiration Unix timestamp for a key in milliseconds"),
    spec(Id::GetEx, "getex", -2, ONE_KEY, &["write", "fast"], &["@write", "@string", "@fast"])
        .documented("string", "6.2.0", "O(1)")
        .described("key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | \
            PERSIST]",
            "Get the value of a key and optionally set its expiration").key_flags(&["RW", "access", "update"])
        .key_note("RW and UPDATE because it changes the TTL"),
];
