//! The types of keys that tests of all types try.

/// All types of one part, and composites with parts of fixed and of variable length at all places.
pub const KEY_TYPES: [&str; 17] = [
    "u64",
    "bytes",
    "i64",
    "ipv4",
    "ip",
    "uuid",
    "hex",
    "date",
    "timestamp",
    "bytes,bytes",
    "bytes,date",
    "u64,hex",
    "ip,uuid",
    "hex,timestamp",
    "uuid,u64",
    "i64,timestamp,bytes",
    "bytes,ipv4,hex,i64,date",
];
