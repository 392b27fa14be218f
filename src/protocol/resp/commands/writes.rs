//! Lists the commands that write data in Redis. Their error differs from the error for unknown commands.

use super::super::Command;
use super::{Refusal, accepts};

/// The commands that `COMMAND` of Redis 7.0 flags as `write`, sorted, each with its arity: see
/// [`Spec::arity`](super::Spec::arity).
#[rustfmt::skip]
const WRITES: &[(&str, i32)] = &[
    ("append", 3), ("bitfield", -2), ("bitop", -4), ("blmove", 6), ("blmpop", -5), ("blpop", -3), ("brpop", -3),
    ("brpoplpush", 4), ("bzmpop", -5), ("bzpopmax", -3), ("bzpopmin", -3), ("copy", -3), ("decr", 2), ("decrby", 3),
    ("del", -2), ("expire", -3), ("expireat", -3), ("flushall", -1), ("flushdb", -1), ("function|delete", 3),
    ("function|flush", -2), ("function|load", -3), ("function|restore", -3), ("geoadd", -5), ("georadius", -6),
    ("georadiusbymember", -5), ("geosearchstore", -8), ("getdel", 2), ("getex", -2), ("getset", 3), ("hdel", -3),
    ("hincrby", 4), ("hincrbyfloat", 4), ("hmset", -4), ("hset", -4), ("hsetnx", 4), ("incr", 2), ("incrby", 3),
    ("incrbyfloat", 3), ("linsert", 5), ("lmove", 5), ("lmpop", -4), ("lpop", -2), ("lpush", -3), ("lpushx", -3),
    ("lrem", 4), ("lset", 4), ("ltrim", 4), ("migrate", -6), ("move", 3), ("mset", -3), ("msetnx", -3), ("persist", 2),
    ("pexpire", -3), ("pexpireat", -3), ("pfadd", -2), ("pfdebug", 3), ("pfmerge", -2), ("psetex", 4), ("rename", 3),
    ("renamenx", 3), ("restore", -4), ("restore-asking", -4), ("rpop", -2), ("rpoplpush", 3), ("rpush", -3),
    ("rpushx", -3), ("sadd", -3), ("sdiffstore", -3), ("set", -3), ("setbit", 4), ("setex", 4), ("setnx", 3),
    ("setrange", 4), ("sinterstore", -3), ("smove", 4), ("sort", -2), ("spop", -2), ("srem", -3), ("sunionstore", -3),
    ("swapdb", 3), ("unlink", -2), ("xack", -4), ("xadd", -5), ("xautoclaim", -6), ("xclaim", -6), ("xdel", -3),
    ("xgroup|create", -5), ("xgroup|createconsumer", 5), ("xgroup|delconsumer", 5), ("xgroup|destroy", 4),
    ("xgroup|setid", -5), ("xreadgroup", -7), ("xsetid", -3), ("xtrim", -4), ("zadd", -4), ("zdiffstore", -4),
    ("zincrby", 4), ("zinterstore", -4), ("zmpop", -4), ("zpopmax", -2), ("zpopmin", -2), ("zrangestore", -5),
    ("zrem", -3), ("zremrangebylex", 4), ("zremrangebyrank", 4), ("zremrangebyscore", 4), ("zunionstore", -4),
];

/// The only command whose subcommands, except `HELP`, all write data. The server executes none of them, not even
/// `HELP`.
const WRITING_CONTAINER: &str = "xgroup";

/// Returns the error for a command that writes data in Redis. Returns `None` for other commands.
///
/// Like a Redis replica, the server checks the number of arguments before it rejects the write.
pub(super) fn refusal<'a>(command: &Command<'a>) -> Option<Refusal<'a>> {
    let mut args = command.args();
    let name = args.next().unwrap_or_default().to_ascii_lowercase();
    if name.contains(&b'|') {
        return None;
    }
    let subcommand = args.next();
    let full_name = [&name[..], b"|", &subcommand.unwrap_or_default().to_ascii_lowercase()].concat();
    match listed(&name).or_else(|| listed(&full_name)) {
        Some(&(_, arity)) if accepts(arity, command.arg_count()) => Some(Refusal::Write),
        Some((name, _)) => Some(Refusal::ArgCount(name)),
        None if name != WRITING_CONTAINER.as_bytes() => None,
        None => Some(match subcommand {
            Some(name) => Refusal::UnknownSubcommand { container: WRITING_CONTAINER, name },
            None => Refusal::ArgCount(WRITING_CONTAINER),
        }),
    }
}

/// Returns the name of a command that writes data in Redis, such as `set` or `function|load`. Returns `None` for all
/// other commands.
pub fn write_name(command: &Command<'_>) -> Option<&'static str> {
    let mut args = command.args();
    let name = args.next().unwrap_or_default().to_ascii_lowercase();
    let subcommand = args.next().unwrap_or_default().to_ascii_lowercase();
    listed(&name).or_else(|| listed(&[&name[..], b"|", &subcommand].concat())).map(|(name, _)| *name)
}

/// Returns whether the command with this name, or one of its subcommands, writes data in Redis. The name must be in
/// lower case, such as `set`, `function`, or `function|load`.
pub fn is_write_name(name: &[u8]) -> bool {
    let is_in = |listed: &str| listed.as_bytes().strip_prefix(name).is_some_and(|rest| rest.starts_with(b"|"));
    listed(name).is_some() || WRITES.iter().any(|(listed, _)| is_in(listed))
}

fn listed(name: &[u8]) -> Option<&'static (&'static str, i32)> {
    WRITES.binary_search_by(|(listed, _)| listed.as_bytes().cmp(name)).ok().map(|at| &WRITES[at])
}

#[cfg(test)]
mod tests {
    use super::super::find_full;
    use super::*;

    #[test]
    fn the_list_is_sorted_and_has_no_supported_command() {
        assert!(WRITES.is_sorted());
        for (name, arity) in WRITES {
            assert!(listed(name.as_bytes()).is_some() && find_full(name.as_bytes()).is_none() && *arity != 0, "{name}");
        }
    }
}
