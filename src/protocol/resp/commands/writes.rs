//! Lists the commands that write data in Redis. Their error differs from the error for unknown commands.

use super::super::Command;

/// The commands that `COMMAND` of Redis 7.0 flags as `write`, sorted.
#[rustfmt::skip]
const WRITES: &[&str] = &[
    "append", "bitfield", "bitop", "blmove", "blmpop", "blpop", "brpop", "brpoplpush", "bzmpop", "bzpopmax",
    "bzpopmin", "copy", "decr", "decrby", "del", "expire", "expireat", "flushall", "flushdb", "function|delete",
    "function|flush", "function|load", "function|restore", "geoadd", "georadius", "georadiusbymember",
    "geosearchstore", "getdel", "getex", "getset", "hdel", "hincrby", "hincrbyfloat", "hmset", "hset", "hsetnx",
    "incr", "incrby", "incrbyfloat", "linsert", "lmove", "lmpop", "lpop", "lpush", "lpushx", "lrem", "lset", "ltrim",
    "migrate", "move", "mset", "msetnx", "persist", "pexpire", "pexpireat", "pfadd", "pfdebug", "pfmerge", "psetex",
    "rename", "renamenx", "restore", "restore-asking", "rpop", "rpoplpush", "rpush", "rpushx", "sadd", "sdiffstore",
    "set", "setbit", "setex", "setnx", "setrange", "sinterstore", "smove", "sort", "spop", "srem", "sunionstore",
    "swapdb", "unlink", "xack", "xadd", "xautoclaim", "xclaim", "xdel", "xgroup|create", "xgroup|createconsumer",
    "xgroup|delconsumer", "xgroup|destroy", "xgroup|setid", "xreadgroup", "xsetid", "xtrim", "zadd", "zdiffstore",
    "zincrby", "zinterstore", "zmpop", "zpopmax", "zpopmin", "zrangestore", "zrem", "zremrangebylex",
    "zremrangebyrank", "zremrangebyscore", "zunionstore",
];

/// Returns whether a command writes data in Redis.
pub(super) fn is_write(command: &Command) -> bool {
    let mut args = command.args();
    let name = args.next().unwrap_or_default().to_ascii_lowercase();
    if name.contains(&b'|') {
        return false;
    }
    let subcommand = args.next().unwrap_or_default().to_ascii_lowercase();
    is_listed(&name) || is_listed(&[&name[..], b"|", &subcommand].concat())
}

fn is_listed(name: &[u8]) -> bool {
    WRITES.binary_search_by(|listed| listed.as_bytes().cmp(name)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::super::find_full;
    use super::*;

    #[test]
    fn the_list_is_sorted_and_has_no_supported_command() {
        assert!(WRITES.is_sorted());
        assert!(WRITES.iter().all(|name| is_listed(name.as_bytes()) && find_full(name.as_bytes()).is_none()));
    }
}
