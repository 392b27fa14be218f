//! The read-only commands of Redis for keys of types other than string. A table has only strings, so these commands
//! either find no key, or fail because the key has the wrong type.

use super::table::{
    ALL_KEYS, ALWAYS, CONTAINER, FAST_READ, HELP_SUMMARY, Id, NO_KEY, ONE_KEY, READ, SECOND_KEY, SLOW, Words, spec,
};
use super::{Missing, Spec};

/// Matches the [`Id`]s of all commands whose `Spec::missing` is not `None`.
macro_rules! other_types {
    () => {
        Id::GeoRadiusRo
            | Id::GeoRadiusByMemberRo
            | Id::GeoDist
            | Id::GeoHash
            | Id::GeoPos
            | Id::GeoSearch
            | Id::HExists
            | Id::HGet
            | Id::HGetAll
            | Id::HKeys
            | Id::HLen
            | Id::HMGet
            | Id::HRandField
            | Id::HScan
            | Id::HStrLen
            | Id::HVals
            | Id::LIndex
            | Id::LLen
            | Id::LPos
            | Id::LRange
            | Id::PfCount
            | Id::SCard
            | Id::SDiff
            | Id::SInter
            | Id::SInterCard
            | Id::SIsMember
            | Id::SMembers
            | Id::SMIsMember
            | Id::SortRo
            | Id::SRandMember
            | Id::SScan
            | Id::SUnion
            | Id::XLen
            | Id::XPending
            | Id::XRange
            | Id::XRevRange
            | Id::ZCard
            | Id::ZCount
            | Id::ZDiff
            | Id::ZInter
            | Id::ZInterCard
            | Id::ZLexCount
            | Id::ZMScore
            | Id::ZRandMember
            | Id::ZRange
            | Id::ZRangeByLex
            | Id::ZRangeByScore
            | Id::ZRank
            | Id::ZRevRange
            | Id::ZRevRangeByLex
            | Id::ZRevRangeByScore
            | Id::ZRevRank
            | Id::ZScan
            | Id::ZScore
            | Id::ZUnion
            | Id::XInfoStream
            | Id::XInfoGroups
            | Id::XInfoConsumers
    };
}
pub(crate) use other_types;

const MOVABLE_KEYS: Words = &["readonly", "movablekeys"];
const SLOW_GEO: Words = &["@read", "@geo", "@slow"];
const HASH: Words = &["@read", "@hash", "@fast"];
const SLOW_HASH: Words = &["@read", "@hash", "@slow"];
const SLOW_LIST: Words = &["@read", "@list", "@slow"];
const SET: Words = &["@read", "@set", "@fast"];
const SLOW_SET: Words = &["@read", "@set", "@slow"];
const SLOW_STREAM: Words = &["@read", "@stream", "@slow"];
const SORTED_SET: Words = &["@read", "@sortedset", "@fast"];
const SLOW_SORTED_SET: Words = &["@read", "@sortedset", "@slow"];

#[rustfmt::skip]
pub(super) const OTHER_TYPES: &[Spec] = &[
    spec(Id::GeoDist, "geodist", -4, ONE_KEY, READ, SLOW_GEO).documented("geo", "3.2.0", "O(log(N))")
        .described("key member1 member2 [M | KM | FT | MI]",
            "Returns the distance between two members of a geospatial index").missing(Missing::Null),
    spec(Id::GeoHash, "geohash", -2, ONE_KEY, READ, SLOW_GEO).documented("geo", "3.2.0", "O(log(N)) for each member requested, where N is the number of elements in the sorted set.")
        .described("key member [member ...]",
            "Returns members of a geospatial index as standard geohash strings").missing(Missing::Nulls),
    spec(Id::GeoPos, "geopos", -2, ONE_KEY, READ, SLOW_GEO).documented("geo", "3.2.0", "O(N) where N is the number of members requested.")
        .described("key member [member ...]",
            "Returns longitude and latitude of members of a geospatial index").missing(Missing::NullArrays),
    spec(Id::GeoRadiusRo, "georadius_ro", -6, ONE_KEY, READ, SLOW_GEO).documented("geo", "3.2.10", "O(N+log(M)) where N is the number of elements inside the bounding box of the circular area delimited by center and radius and M is the number of items inside the index.")
        .described("key longitude latitude radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count \
            [ANY]] [ASC | DESC]",
            "A read-only variant for GEORADIUS").missing(Missing::Array),
    spec(Id::GeoRadiusByMemberRo, "georadiusbymember_ro", -5, ONE_KEY, READ, SLOW_GEO)
        .documented("geo", "3.2.10", "O(N+log(M)) where N is the number of elements inside the bounding box of the circular area delimited by center and radius and M is the number of items inside the index.")
        .described("key member radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC \
            | DESC]",
            "A read-only variant for GEORADIUSBYMEMBER").missing(Missing::Array),
    spec(Id::GeoSearch, "geosearch", -7, ONE_KEY, READ, SLOW_GEO).documented("geo", "6.2.0", "O(N+log(M)) where N is the number of elements in the grid-aligned bounding box area around the shape provided as the filter and M is the number of items inside the shape")
        .described("key <FROMMEMBER member | FROMLONLAT longitude latitude> <BYRADIUS radius <M | KM | FT | MI> | \
            BYBOX width height <M | KM | FT | MI>> [ASC | DESC] [COUNT count [ANY]] [WITHCOORD] [WITHDIST] \
            [WITHHASH]",
            "Query a sorted set representing a geospatial index to fetch members inside an area of a box or a circle.").missing(Missing::Array),
    spec(Id::HExists, "hexists", 3, ONE_KEY, FAST_READ, HASH).documented("hash", "2.0.0", "O(1)")
        .described("key field", "Determine if a hash field exists").missing(Missing::Zero).key_flags(&["RO"]),
    spec(Id::HGet, "hget", 3, ONE_KEY, FAST_READ, HASH).documented("hash", "2.0.0", "O(1)")
        .described("key field", "Get the value of a hash field").missing(Missing::Null),
    spec(Id::HGetAll, "hgetall", 2, ONE_KEY, READ, SLOW_HASH).documented("hash", "2.0.0", "O(N) where N is the size of the hash.")
        .described("key", "Get all the fields and values in a hash").missing(Missing::Map)
        .tips(&["nondeterministic_output_order"]),
    spec(Id::HKeys, "hkeys", 2, ONE_KEY, READ, SLOW_HASH).documented("hash", "2.0.0", "O(N) where N is the size of the hash.")
        .described("key", "Get all the fields in a hash").missing(Missing::Array)
        .tips(&["nondeterministic_output_order"]),
    spec(Id::HLen, "hlen", 2, ONE_KEY, FAST_READ, HASH).documented("hash", "2.0.0", "O(1)")
        .described("key", "Get the number of fields in a hash").missing(Missing::Zero).key_flags(&["RO"]),
    spec(Id::HMGet, "hmget", -3, ONE_KEY, FAST_READ, HASH).documented("hash", "2.0.0", "O(N) where N is the number of fields being requested.")
        .described("key field [field ...]", "Get the values of all the given hash fields").missing(Missing::Nulls),
    spec(Id::HRandField, "hrandfield", -2, ONE_KEY, READ, SLOW_HASH).documented("hash", "6.2.0", "O(N) where N is the number of fields returned")
        .described("key [count [WITHVALUES]]",
            "Get one or multiple random fields from a hash").missing(Missing::NullOrArray)
        .tips(&["nondeterministic_output"]),
    spec(Id::HScan, "hscan", -3, ONE_KEY, READ, SLOW_HASH).documented("hash", "2.8.0", "O(1) for every call. O(N) for a complete iteration, including enough command calls for the cursor to return back to 0. N is the number of elements inside the collection..")
        .described("key cursor [MATCH pattern] [COUNT count] [NOVALUES]",
            "Incrementally iterate hash fields and associated values").missing(Missing::Scan)
        .tips(&["nondeterministic_output"]),
    spec(Id::HStrLen, "hstrlen", 3, ONE_KEY, FAST_READ, HASH).documented("hash", "3.2.0", "O(1)")
        .described("key field", "Get the length of the value of a hash field").missing(Missing::Zero)
        .key_flags(&["RO"]),
    spec(Id::HVals, "hvals", 2, ONE_KEY, READ, SLOW_HASH).documented("hash", "2.0.0", "O(N) where N is the size of the hash.")
        .described("key", "Get all the values in a hash").missing(Missing::Array)
        .tips(&["nondeterministic_output_order"]),
    spec(Id::LIndex, "lindex", 3, ONE_KEY, READ, SLOW_LIST).documented("list", "1.0.0", "O(N) where N is the number of elements to traverse to get to the element at index. This makes asking for the first or the last element of the list O(1).")
        .described("key index", "Get an element from a list by its index").missing(Missing::Null),
    spec(Id::LLen, "llen", 2, ONE_KEY, FAST_READ, &["@read", "@list", "@fast"]).documented("list", "1.0.0", "O(1)")
        .described("key", "Get the length of a list").missing(Missing::Zero).key_flags(&["RO"]),
    spec(Id::LPos, "lpos", -3, ONE_KEY, READ, SLOW_LIST).documented("list", "6.0.6", "O(N) where N is the number of elements in the list, for the average case. When searching for elements near the head or the tail of the list, or when the MAXLEN option is provided, the command may run in constant time.")
        .described("key element [RANK rank] [COUNT num-matches] [MAXLEN len]",
            "Return the index of matching elements on a list").missing(Missing::NullOrMatches),
    spec(Id::LRange, "lrange", 4, ONE_KEY, READ, SLOW_LIST).documented("list", "1.0.0", "O(S+N) where S is the distance of start offset from HEAD for small lists, from nearest end (HEAD or TAIL) for large lists; and N is the number of elements in the specified range.")
        .described("key start stop", "Get a range of elements from a list").missing(Missing::Array),
    spec(Id::PfCount, "pfcount", -2, ALL_KEYS, READ, &["@read", "@hyperloglog", "@slow"])
        .documented("hyperloglog", "2.8.9", "O(1) with a very small average constant time when called with a single key. O(N) with N being the number of keys, and much bigger constant times, when called with multiple keys.")
        .described("key [key ...]",
            "Return the approximated cardinality of the set(s) observed by the HyperLogLog at key(s).").missing(Missing::Estimate)
        .key_flags(&["RW", "access"])
        .key_note("RW because it may change the internal representation of the key, and propagate to replicas"),
    spec(Id::SCard, "scard", 2, ONE_KEY, FAST_READ, SET).documented("set", "1.0.0", "O(1)")
        .described("key", "Get the number of members in a set").missing(Missing::Zero).key_flags(&["RO"]),
    spec(Id::SDiff, "sdiff", -2, ALL_KEYS, READ, SLOW_SET).documented("set", "1.0.0", "O(N) where N is the total number of elements in all given sets.")
        .described("key [key ...]", "Subtract multiple sets").missing(Missing::Set)
        .tips(&["nondeterministic_output_order"]),
    spec(Id::SInter, "sinter", -2, ALL_KEYS, READ, SLOW_SET).documented("set", "1.0.0", "O(N*M) worst case where N is the cardinality of the smallest set and M is the number of sets.")
        .described("key [key ...]", "Intersect multiple sets").missing(Missing::Set)
        .tips(&["nondeterministic_output_order"]),
    spec(Id::SInterCard, "sintercard", -3, NO_KEY, MOVABLE_KEYS, SLOW_SET).documented("set", "7.0.0", "O(N*M) worst case where N is the cardinality of the smallest set and M is the number of sets.")
        .described("numkeys key [key ...] [LIMIT limit]",
            "Intersect multiple sets and return the cardinality of the result").counted_keys().missing(Missing::Zero),
    spec(Id::SIsMember, "sismember", 3, ONE_KEY, FAST_READ, SET).documented("set", "1.0.0", "O(1)")
        .described("key member", "Determine if a given value is a member of a set").missing(Missing::Zero)
        .key_flags(&["RO"]),
    spec(Id::SMembers, "smembers", 2, ONE_KEY, READ, SLOW_SET).documented("set", "1.0.0", "O(N) where N is the set cardinality.")
        .described("key", "Get all the members in a set").missing(Missing::Set)
        .tips(&["nondeterministic_output_order"]),
    spec(Id::SMIsMember, "smismember", -3, ONE_KEY, FAST_READ, SET).documented("set", "6.2.0", "O(N) where N is the number of elements being checked for membership")
        .described("key member [member ...]",
            "Returns the membership associated with the given elements for a set").missing(Missing::Zeros),
    spec(Id::SortRo, "sort_ro", -2, ONE_KEY, MOVABLE_KEYS, &["@read", "@set", "@sortedset", "@list", "@slow", "@dangerous"])
        .documented("generic", "7.0.0", "O(N+M*log(M)) where N is the number of elements in the list or set to sort, and M the number of returned elements. When the elements are not sorted, complexity is O(N).")
        .described("key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC | DESC] [ALPHA]",
            "Sort the elements in a list, set or sorted set. Read-only variant of SORT.")
        .key_note("For the optional BY/GET keyword. It is marked 'unknown' because the key names derive from the \
            content of the key we sort").missing(Missing::Array),
    spec(Id::SRandMember, "srandmember", -2, ONE_KEY, READ, SLOW_SET).documented("set", "1.0.0", "Without the count argument O(1), otherwise O(N) where N is the absolute value of the passed count.")
        .described("key [count]", "Get one or multiple random members from a set").missing(Missing::NullOrArray)
        .tips(&["nondeterministic_output"]),
    spec(Id::SScan, "sscan", -3, ONE_KEY, READ, SLOW_SET).documented("set", "2.8.0", "O(1) for every call. O(N) for a complete iteration, including enough command calls for the cursor to return back to 0. N is the number of elements inside the collection..")
        .described("key cursor [MATCH pattern] [COUNT count]",
            "Incrementally iterate Set elements").missing(Missing::Scan).tips(&["nondeterministic_output"]),
    spec(Id::SUnion, "sunion", -2, ALL_KEYS, READ, SLOW_SET).documented("set", "1.0.0", "O(N) where N is the total number of elements in all given sets.")
        .described("key [key ...]", "Add multiple sets").missing(Missing::Set)
        .tips(&["nondeterministic_output_order"]),
    spec(Id::XLen, "xlen", 2, ONE_KEY, FAST_READ, &["@read", "@stream", "@fast"])
        .documented("stream", "5.0.0", "O(1)")
        .described("key", "Return the number of entries in a stream").missing(Missing::Zero).key_flags(&["RO"]),
    spec(Id::XPending, "xpending", -3, ONE_KEY, READ, SLOW_STREAM).documented("stream", "5.0.0", "O(N) with N being the number of elements returned, so asking for a small fixed number of entries per call is O(1). O(M), where M is the total number of entries scanned when used with the IDLE filter. When the command returns just the summary and the list of consumers is small, it runs in O(1) time; otherwise, an additional O(N) time for iterating every consumer.")
        .described("key group [[IDLE min-idle-time] start end count [consumer]]",
            "Return information and entries from a stream consumer group pending entries list, that are messages fetched but never acknowledged.").missing(Missing::NoGroup)
        .tips(&["nondeterministic_output"]),
    spec(Id::XRange, "xrange", -4, ONE_KEY, READ, SLOW_STREAM).documented("stream", "5.0.0", "O(N) with N being the number of elements being returned. If N is constant (e.g. always asking for the first 10 elements with COUNT), you can consider it O(1).")
        .described("key start end [COUNT count]",
            "Return a range of elements in a stream, with IDs matching the specified IDs \
            interval").missing(Missing::Array),
    spec(Id::XRevRange, "xrevrange", -4, ONE_KEY, READ, SLOW_STREAM).documented("stream", "5.0.0", "O(N) with N being the number of elements returned. If N is constant (e.g. always asking for the first 10 elements with COUNT), you can consider it O(1).")
        .described("key end start [COUNT count]",
            "Return a range of elements in a stream, with IDs matching the specified IDs interval, in reverse order \
            (from greater to smaller IDs) compared to XRANGE").missing(Missing::Array),
    spec(Id::ZCard, "zcard", 2, ONE_KEY, FAST_READ, SORTED_SET).documented("sorted-set", "1.2.0", "O(1)")
        .described("key", "Get the number of members in a sorted set").missing(Missing::Zero).key_flags(&["RO"]),
    spec(Id::ZCount, "zcount", 4, ONE_KEY, FAST_READ, SORTED_SET).documented("sorted-set", "2.0.0", "O(log(N)) with N being the number of elements in the sorted set.")
        .described("key min max",
            "Count the members in a sorted set with scores within the given values").missing(Missing::Zero),
    spec(Id::ZDiff, "zdiff", -3, NO_KEY, MOVABLE_KEYS, SLOW_SORTED_SET)
        .documented("sorted-set", "6.2.0", "O(L + (N-K)log(N)) worst case where L is the total number of elements in all the sets, N is the size of the first set, and K is the size of the result set.")
        .described("numkeys key [key ...] [WITHSCORES]",
            "Subtract multiple sorted sets").counted_keys().missing(Missing::Array),
    spec(Id::ZInter, "zinter", -3, NO_KEY, MOVABLE_KEYS, SLOW_SORTED_SET)
        .documented("sorted-set", "6.2.0", "O(N*K)+O(M*log(M)) worst case with N being the smallest input sorted set, K being the number of input sorted sets and M being the number of elements in the resulting sorted set.")
        .described("numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX>] [WITHSCORES]",
            "Intersect multiple sorted sets").counted_keys().missing(Missing::Array),
    spec(Id::ZInterCard, "zintercard", -3, NO_KEY, MOVABLE_KEYS, SLOW_SORTED_SET).documented("sorted-set", "7.0.0", "O(N*K) worst case with N being the smallest input sorted set, K being the number of input sorted sets.")
        .described("numkeys key [key ...] [LIMIT limit]",
            "Intersect multiple sorted sets and return the cardinality of the \
            result").counted_keys().missing(Missing::Zero),
    spec(Id::ZLexCount, "zlexcount", 4, ONE_KEY, FAST_READ, SORTED_SET).documented("sorted-set", "2.8.9", "O(log(N)) with N being the number of elements in the sorted set.")
        .described("key min max",
            "Count the number of members in a sorted set between a given lexicographical \
            range").missing(Missing::Zero),
    spec(Id::ZMScore, "zmscore", -3, ONE_KEY, FAST_READ, SORTED_SET).documented("sorted-set", "6.2.0", "O(N) where N is the number of members being requested.")
        .described("key member [member ...]",
            "Get the score associated with the given members in a sorted set").missing(Missing::Nulls),
    spec(Id::ZRandMember, "zrandmember", -2, ONE_KEY, READ, SLOW_SORTED_SET).documented("sorted-set", "6.2.0", "O(N) where N is the number of elements returned")
        .described("key [count [WITHSCORES]]",
            "Get one or multiple random elements from a sorted set").missing(Missing::NullOrArray)
        .tips(&["nondeterministic_output"]),
    spec(Id::ZRange, "zrange", -4, ONE_KEY, READ, SLOW_SORTED_SET).documented("sorted-set", "1.2.0", "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements returned.")
        .described("key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]",
            "Return a range of members in a sorted set").missing(Missing::Array),
    spec(Id::ZRangeByLex, "zrangebylex", -4, ONE_KEY, READ, SLOW_SORTED_SET)
        .documented("sorted-set", "2.8.9", "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements being returned. If M is constant (e.g. always asking for the first 10 elements with LIMIT), you can consider it O(log(N)).")
        .described("key min max [LIMIT offset count]",
            "Return a range of members in a sorted set, by lexicographical range").missing(Missing::Array),
    spec(Id::ZRangeByScore, "zrangebyscore", -4, ONE_KEY, READ, SLOW_SORTED_SET)
        .documented("sorted-set", "1.0.5", "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements being returned. If M is constant (e.g. always asking for the first 10 elements with LIMIT), you can consider it O(log(N)).")
        .described("key min max [WITHSCORES] [LIMIT offset count]",
            "Return a range of members in a sorted set, by score").missing(Missing::Array),
    spec(Id::ZRank, "zrank", 3, ONE_KEY, FAST_READ, SORTED_SET).documented("sorted-set", "2.0.0", "O(log(N))")
        .described("key member", "Determine the index of a member in a sorted set").missing(Missing::Null),
    spec(Id::ZRevRange, "zrevrange", -4, ONE_KEY, READ, SLOW_SORTED_SET)
        .documented("sorted-set", "1.2.0", "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements returned.")
        .described("key start stop [WITHSCORES]",
            "Return a range of members in a sorted set, by index, with scores ordered from high to \
            low").missing(Missing::Array),
    spec(Id::ZRevRangeByLex, "zrevrangebylex", -4, ONE_KEY, READ, SLOW_SORTED_SET)
        .documented("sorted-set", "2.8.9", "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements being returned. If M is constant (e.g. always asking for the first 10 elements with LIMIT), you can consider it O(log(N)).")
        .described("key max min [LIMIT offset count]",
            "Return a range of members in a sorted set, by lexicographical range, ordered from higher to lower strings.").missing(Missing::Array),
    spec(Id::ZRevRangeByScore, "zrevrangebyscore", -4, ONE_KEY, READ, SLOW_SORTED_SET)
        .documented("sorted-set", "2.2.0", "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements being returned. If M is constant (e.g. always asking for the first 10 elements with LIMIT), you can consider it O(log(N)).")
        .described("key max min [WITHSCORES] [LIMIT offset count]",
            "Return a range of members in a sorted set, by score, with scores ordered from high to \
            low").missing(Missing::Array),
    spec(Id::ZRevRank, "zrevrank", 3, ONE_KEY, FAST_READ, SORTED_SET).documented("sorted-set", "2.0.0", "O(log(N))")
        .described("key member",
            "Determine the index of a member in a sorted set, with scores ordered from high to \
            low").missing(Missing::Null),
    spec(Id::ZScan, "zscan", -3, ONE_KEY, READ, SLOW_SORTED_SET).documented("sorted-set", "2.8.0", "O(1) for every call. O(N) for a complete iteration, including enough command calls for the cursor to return back to 0. N is the number of elements inside the collection..")
        .described("key cursor [MATCH pattern] [COUNT count]",
            "Incrementally iterate sorted sets elements and associated scores").missing(Missing::Scan)
        .tips(&["nondeterministic_output"]),
    spec(Id::ZScore, "zscore", 3, ONE_KEY, FAST_READ, SORTED_SET).documented("sorted-set", "1.2.0", "O(1)")
        .described("key member",
            "Get the score associated with the given member in a sorted set").missing(Missing::Null),
    spec(Id::ZUnion, "zunion", -3, NO_KEY, MOVABLE_KEYS, SLOW_SORTED_SET)
        .documented("sorted-set", "6.2.0", "O(N)+O(M*log(M)) with N being the sum of the sizes of the input sorted sets, and M being the number of elements in the resulting sorted set.")
        .described("numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX>] [WITHSCORES]",
            "Add multiple sorted sets").counted_keys().missing(Missing::Array),
    spec(Id::XInfo, "xinfo", -2, NO_KEY, CONTAINER, SLOW).documented("stream", "5.0.0", "Depends on subcommand.")
        .described("", "A container for stream introspection commands").with(XINFO),
];

#[rustfmt::skip]
const XINFO: &[Spec] = &[
    spec(Id::XInfoStream, "xinfo|stream", -3, SECOND_KEY, READ, SLOW_STREAM).documented("stream", "5.0.0", "O(1)")
        .described("key [FULL [COUNT count]]", "Get information about a stream").missing(Missing::NoKey),
    spec(Id::XInfoGroups, "xinfo|groups", 3, SECOND_KEY, READ, SLOW_STREAM).documented("stream", "5.0.0", "O(1)")
        .described("key", "List the consumer groups of a stream").missing(Missing::NoKey),
    spec(Id::XInfoConsumers, "xinfo|consumers", 4, SECOND_KEY, READ, SLOW_STREAM)
        .documented("stream", "5.0.0", "O(1)")
        .described("key groupname", "List the consumers in a consumer group").missing(Missing::NoKey)
        .tips(&["nondeterministic_output"]),
    spec(Id::XInfoHelp, "xinfo|help", 2, NO_KEY, ALWAYS, &["@stream", "@slow"]).documented("stream", "5.0.0", "O(1)")
        .described("", HELP_SUMMARY),
];
