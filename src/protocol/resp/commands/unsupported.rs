//! Lists the commands of Redis that the server rejects with an error that states the reason and the remedy.
//!
//! `COMMAND` does not list these commands, so that clients can find out that these commands are not supported.

use super::super::Command;

const SUBSCRIBE: &str = "ERR subscriptions are not supported: the table is read-only, so nothing is ever published: to \
                         notice a new table, poll ZKV.GENERATION, or execute WATCH, MULTI, and EXEC";
const PUBLISH: &str = "ERR publishing is not supported: the table is read-only, and no client can subscribe: send \
                       messages through another server";
const SCRIPT: &str = "ERR scripts and functions are not supported: the server only looks up rows and has no \
                      interpreter: send the reads of the script in a pipeline, or between MULTI and EXEC";
const STRING: &str = "ERR this command is not supported: read the value with GET, and compute the result in the client";
const OTHER_TYPE: &str = "WRONGTYPE a table has only strings, or hashes if it has columns: read its rows with GET or \
                          HGETALL";
const TOPOLOGY: &str = "ERR the topology of a cluster comes from a document: change the document instead";

/// The names of the unsupported commands and subcommands, each with the text of its error. The error of a command also
/// applies to its subcommands.
#[rustfmt::skip]
const UNSUPPORTED: &[(&[&str], &str)] = &[
    (&["subscribe", "psubscribe", "ssubscribe", "pubsub"], SUBSCRIBE),
    (&["publish", "spublish"], PUBLISH),
    (&["eval", "eval_ro", "evalsha", "evalsha_ro", "script", "fcall", "fcall_ro", "function"], SCRIPT),
    (&["geodist", "geohash", "geopos", "georadius_ro", "georadiusbymember_ro", "geosearch", "lindex", "llen", "lpos",
        "lrange", "pfcount", "scard", "sdiff", "sinter", "sintercard", "sismember", "smembers", "smismember", "sort_ro",
        "srandmember", "sscan", "sunion", "xinfo", "xlen", "xpending", "xrange", "xread", "xrevrange", "zcard", "zcount",
        "zdiff", "zinter", "zintercard", "zlexcount", "zmscore", "zrandmember", "zrange", "zrangebylex", "zrangebyscore",
        "zrank", "zrevrange", "zrevrangebylex", "zrevrangebyscore", "zrevrank", "zscan", "zscore", "zunion"], OTHER_TYPE),
    (&["bitcount", "bitfield_ro", "bitpos", "dump", "lcs", "substr"], STRING),
    (&["cluster|addslots", "cluster|addslotsrange", "cluster|bumpepoch", "cluster|delslots", "cluster|delslotsrange",
        "cluster|failover", "cluster|flushslots", "cluster|forget", "cluster|meet", "cluster|replicate", "cluster|reset",
        "cluster|saveconfig", "cluster|set-config-epoch", "cluster|setslot"], TOPOLOGY),
    (&["config|set"], "ERR settings cannot be changed while the server runs: restart kv_store with other options"),
    (&["config|resetstat"], "ERR counters cannot be reset, because several tools can read them at the same time: \
        subtract an earlier value, or restart kv_store"),
    (&["config|rewrite"], "ERR the server has no configuration file: its settings are the options of kv_store"),
    (&["client|pause"], "ERR clients cannot be paused: the table is read-only, so there are no writes to stop"),
    (&["client|reply"], "ERR replies cannot be turned off: the table is read-only, so a command without a reply has no \
        effect: receive and discard the replies"),
    (&["client|tracking"], "ERR the server sends no invalidation messages: a cached row stays valid until the generation \
        changes: poll ZKV.GENERATION"),
];

/// Returns whether the command or subcommand with this name is unsupported. The name must be in lower case.
pub fn is_unsupported_name(name: &[u8]) -> bool {
    UNSUPPORTED.iter().any(|(names, _)| names.iter().any(|listed| listed.as_bytes() == name))
}

/// Returns the text of the error for an unsupported command. Returns `None` for other commands.
pub(super) fn reason(command: &Command<'_>) -> Option<&'static str> {
    let mut args = command.args();
    let (name, subcommand) = (args.next()?, args.next());
    let is_named = |listed: &str| match listed.split_once('|') {
        None => name.eq_ignore_ascii_case(listed.as_bytes()),
        Some((container, own_name)) => {
            name.eq_ignore_ascii_case(container.as_bytes())
                && subcommand.is_some_and(|subcommand| subcommand.eq_ignore_ascii_case(own_name.as_bytes()))
        }
    };
    let found = UNSUPPORTED.iter().find(|(names, _)| names.iter().any(|listed| is_named(listed)));
    found.map(|(_, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use super::super::find_full;
    use super::UNSUPPORTED;

    #[test]
    fn no_unsupported_command_is_in_the_table() {
        let mut names = UNSUPPORTED.iter().flat_map(|(names, _)| names.iter());
        assert!(names.all(|name| find_full(name.as_bytes()).is_none()));
    }
}
