//! Errors for commands that the server does not execute. If Redis has the same error, the text is Redis's text.
//!
//! Commands that write data in Redis and commands that the server does not support have errors of their own. `COMMAND`
//! does not list the latter, so that clients can find out that they are not supported.

use std::fmt;

use super::super::Command;
use super::{Spec, accepts};

/// An error quotes at most this many bytes of a name, and at most this many bytes of all arguments together.
const QUOTED_LEN_MAX_BYTES: usize = 128;

/// The reason why a command is not executed.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Refusal<'a> {
    /// The command is unknown.
    Unknown(Command<'a>),
    /// The command has no subcommand with this name.
    UnknownSubcommand {
        /// The name of the command that has subcommands.
        container: &'static str,
        /// The name of the unknown subcommand.
        name: &'a [u8],
    },
    /// The command with this name has a wrong number of arguments.
    ArgCount(&'static str),
    /// The command has more arguments than [`Spec::args_max`].
    TooManyArgs {
        /// The command.
        spec: &'static Spec,
        /// The number of arguments including the name.
        arg_count: usize,
    },
    /// The command writes data in Redis.
    Write,
    /// The server does not support this command of Redis. The text states the reason.
    Unsupported(&'static str),
}

impl Refusal<'_> {
    /// Returns the text for [`Reply::error`](super::super::Reply::error). As in Redis, the text quotes at most 128
    /// bytes of a name, and at most 128 bytes of all arguments together. A name or an argument is truncated before its
    /// first zero byte.
    pub fn text(&self) -> Vec<u8> {
        match self {
            Refusal::Unknown(command) => unknown(command),
            Refusal::UnknownSubcommand { container, name } => {
                let container = container.to_ascii_uppercase();
                [
                    b"ERR unknown subcommand '",
                    quoted(name, QUOTED_LEN_MAX_BYTES),
                    b"'. Try ",
                    container.as_bytes(),
                    b" HELP.",
                ]
                .concat()
            }
            Refusal::ArgCount(name) => format!("ERR wrong number of arguments for '{name}' command").into(),
            Refusal::TooManyArgs { spec, arg_count } => format!(
                "ERR too many arguments for '{}' command: {arg_count}, the limit is {}",
                spec.name, spec.args_max
            )
            .into(),
            Refusal::Write => b"READONLY You can't write against a read only replica.".to_vec(),
            Refusal::Unsupported(reason) => reason.as_bytes().to_vec(),
        }
    }
}

/// Returns whether the name of a command is the first word of an HTTP POST request or of a `Host` header.
///
/// Like Redis, the server closes the connection if a command's name is `POST` or `Host:`, in upper or lower case.
/// Otherwise, a web page could make a browser send an HTTP request with commands in its body to the server's port.
pub fn is_http(name: &[u8]) -> bool {
    [&b"post"[..], b"host:"].iter().any(|word| name.eq_ignore_ascii_case(word))
}

impl fmt::Display for Refusal<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&String::from_utf8_lossy(&self.text()))
    }
}

impl std::error::Error for Refusal<'_> {}

fn unknown(command: &Command) -> Vec<u8> {
    let mut args = Vec::new();
    for arg in command.args().skip(1) {
        if args.len() >= QUOTED_LEN_MAX_BYTES {
            break;
        }
        let quoted = quoted(arg, QUOTED_LEN_MAX_BYTES - args.len());
        args.extend([b"'", quoted, b"' "].concat());
    }
    let name = quoted(command.name(), QUOTED_LEN_MAX_BYTES);
    [b"ERR unknown command '", name, b"', with args beginning with: ", &args].concat()
}

fn quoted(text: &[u8], len_max: usize) -> &[u8] {
    let text = &text[..text.len().min(len_max)];
    text.split(|&byte| byte == 0).next().unwrap_or_default()
}

const PUBSUB: &str = "ERR reports about channels are not supported: the table is read-only, so nothing is ever \
                      published: to notice a new table, turn CLIENT TRACKING on, or poll ZKV.GENERATION";
const PUBLISH: &str = "ERR publishing is not supported: the table is read-only, and subscribers would not get the \
                       message: send messages through another server";
const SCRIPT: &str = "ERR scripts and functions are not supported: the server only looks up rows and has no \
                      interpreter: send the reads of the script in a pipeline, or between MULTI and EXEC";
/// The reply of a Redis that has loaded no scripts. Clients then send the text of the script with EVAL, and get
/// [`SCRIPT`].
const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";
const NO_FUNCTION: &str = "ERR Function not found";
const STRING: &str = "ERR this command is not supported: read the value with GET, and compute the result in the client";
const OTHER_TYPE: &str = "WRONGTYPE a table has only strings, or hashes if it has columns: read its rows with GET or \
                          HGETALL";
const TOPOLOGY: &str = "ERR the topology of a cluster comes from a document: change the document instead";

/// The names of the unsupported commands and subcommands, each with the text of its error. The error of a command also
/// applies to its subcommands.
#[rustfmt::skip]
const UNSUPPORTED: &[(&[&str], &str)] = &[
    (&["pubsub"], PUBSUB),
    (&["publish", "spublish"], PUBLISH),
    (&["eval", "eval_ro", "script", "function"], SCRIPT),
    (&["evalsha", "evalsha_ro"], NO_SCRIPT),
    (&["fcall", "fcall_ro"], NO_FUNCTION),
    (&["geodist", "geohash", "geopos", "georadius_ro", "georadiusbymember_ro", "geosearch", "lindex", "llen", "lpos",
        "lrange", "pfcount", "scard", "sdiff", "sinter", "sintercard", "sismember", "smembers", "smismember", "sort_ro",
        "srandmember", "sscan", "sunion", "xinfo", "xlen", "xpending", "xrange", "xread", "xrevrange", "zcard",
        "zcount", "zdiff", "zinter", "zintercard", "zlexcount", "zmscore", "zrandmember", "zrange", "zrangebylex",
        "zrangebyscore", "zrank", "zrevrange", "zrevrangebylex", "zrevrangebyscore", "zrevrank", "zscan", "zscore",
        "zunion"], OTHER_TYPE),
    (&["bitcount", "bitfield_ro", "bitpos", "dump", "lcs", "substr"], STRING),
    (&["cluster|addslots", "cluster|addslotsrange", "cluster|bumpepoch", "cluster|delslots", "cluster|delslotsrange",
        "cluster|failover", "cluster|flushslots", "cluster|forget", "cluster|meet", "cluster|replicate",
        "cluster|reset", "cluster|saveconfig", "cluster|set-config-epoch", "cluster|setslot"], TOPOLOGY),
    (&["config|set"], "ERR settings cannot be changed while the server runs: restart kv_store with other options"),
    (&["config|resetstat"], "ERR counters cannot be reset, because several tools can read them at the same time: \
        subtract an earlier value, or restart kv_store"),
    (&["config|rewrite"], "ERR the server has no configuration file: its settings are the options of kv_store"),
    (&["client|pause"], "ERR clients cannot be paused: the table is read-only, so there are no writes to stop"),
    (&["client|reply"], "ERR replies cannot be turned off: the table is read-only, so a command without a reply has no \
        effect: receive and discard the replies"),
];

/// Returns whether the command or subcommand with this name is unsupported. The name must be in lower case.
pub fn is_unsupported_name(name: &[u8]) -> bool {
    UNSUPPORTED.iter().any(|(names, _)| names.iter().any(|listed| listed.as_bytes() == name))
}

/// Returns the text of the error for an unsupported command. Returns `None` for other commands.
pub(super) fn unsupported_reason(command: &Command<'_>) -> Option<&'static str> {
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
pub(super) fn write_refusal<'a>(command: &Command<'a>) -> Option<Refusal<'a>> {
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
    use super::super::super::inline;
    use super::super::resolve;

    fn error_or_name(words: &str) -> String {
        let bytes = inline::to_command(words.as_bytes()).unwrap();
        match resolve(&super::Command::new(&bytes)) {
            Ok(spec) => spec.name.to_owned(),
            Err(refusal) => refusal.to_string(),
        }
    }

    #[test]
    fn known_commands_with_valid_arguments_are_accepted() {
        for (words, name) in [
            ("GET k", "get"),
            ("mGet a b c", "mget"),
            ("PING", "ping"),
            ("config GET save", "config|get"),
            ("client setinfo LIB-NAME x", "client|setinfo"),
            ("COMMAND", "command"),
            ("Zkv.Range - +", "zkv.range"),
        ] {
            assert_eq!(error_or_name(words), name);
        }
    }

    #[test]
    fn an_unknown_command_has_the_error_of_redis() {
        for (words, text) in [
            ("foo a b", "ERR unknown command 'foo', with args beginning with: 'a' 'b' ".to_owned()),
            ("FOO", "ERR unknown command 'FOO', with args beginning with: ".to_owned()),
            ("''", "ERR unknown command '', with args beginning with: ".to_owned()),
            (r#""fo\x00o" "a\x00b""#, "ERR unknown command 'fo', with args beginning with: 'a' ".to_owned()),
            (
                &format!("foo{} {} {} c", "x".repeat(200), "a".repeat(100), "b".repeat(100)),
                format!(
                    "ERR unknown command 'foo{}', with args beginning with: '{}' '{}' ",
                    "x".repeat(125),
                    "a".repeat(100),
                    "b".repeat(25)
                ),
            ),
            (
                &format!("foo {} bbbbb c", "a".repeat(124)),
                format!("ERR unknown command 'foo', with args beginning with: '{}' 'b' ", "a".repeat(124)),
            ),
            (
                &format!("foo {} bbbbb c", "a".repeat(125)),
                format!("ERR unknown command 'foo', with args beginning with: '{}' ", "a".repeat(125)),
            ),
        ] {
            assert_eq!(error_or_name(words), text);
        }
    }

    #[test]
    fn an_unknown_subcommand_has_the_error_of_redis() {
        assert_eq!(error_or_name("Client X"), "ERR unknown subcommand 'X'. Try CLIENT HELP.");
        assert_eq!(error_or_name("config sett a b"), "ERR unknown subcommand 'sett'. Try CONFIG HELP.");
        let long = format!("ERR unknown subcommand '{}'. Try COMMAND HELP.", "x".repeat(128));
        assert_eq!(error_or_name(&format!("COMMAND {}", "x".repeat(200))), long);
    }

    #[test]
    fn a_wrong_number_of_arguments_has_the_error_of_redis() {
        for (words, name) in [
            ("get", "get"),
            ("GET a b", "get"),
            ("mget", "mget"),
            ("CLIENT", "client"),
            ("cliENT geTNAME x", "client|getname"),
            ("config get", "config|get"),
            ("zkv.floor", "zkv.floor"),
        ] {
            assert_eq!(error_or_name(words), format!("ERR wrong number of arguments for '{name}' command"));
        }
    }

    #[test]
    fn a_write_command_gets_the_read_only_error_of_redis() {
        for words in [
            "set k v",
            "getex k persist",
            "Del k",
            "georadiusbymember k m 1 m x",
            "FUNCTION LOAD x",
            "xgroup setid k g 0",
            "flushall",
            "sort k",
        ] {
            assert_eq!(error_or_name(words), "READONLY You can't write against a read only replica.", "{words}");
        }
        for (words, error) in [
            ("SET", "wrong number of arguments for 'set' command"),
            ("FUNCTION DELETE", "wrong number of arguments for 'function|delete' command"),
            ("xgroup create k g", "wrong number of arguments for 'xgroup|create' command"),
            ("xgroup", "wrong number of arguments for 'xgroup' command"),
            ("xgroup X", "unknown subcommand 'X'. Try XGROUP HELP."),
        ] {
            assert_eq!(error_or_name(words), format!("ERR {error}"), "{words}");
        }
        for words in ["sett", "xreads", "georadiusbymemberx", "function|load", "xgroup|create k g 0"] {
            assert!(error_or_name(words).starts_with("ERR unknown command"), "{words}");
        }
    }

    #[test]
    fn an_unsupported_command_gets_an_error_with_the_reason() {
        for (words, reason) in [
            ("pubsub channels", "reports about channels are not supported"),
            ("spublish a b", "publishing is not supported"),
            ("function list", "scripts and functions are not supported"),
            ("EVAL x 0", "scripts and functions are not supported"),
            ("config set a b", "settings cannot be changed"),
            ("CONFIG resetStat", "counters cannot be reset"),
        ] {
            assert!(error_or_name(words).starts_with(&format!("ERR {reason}")), "{words}");
        }
    }
}

#[cfg(test)]
mod unsupported_tests {
    use super::UNSUPPORTED;
    use crate::protocol::resp::commands::find_full;

    #[test]
    fn no_unsupported_command_is_in_the_table() {
        let mut names = UNSUPPORTED.iter().flat_map(|(names, _)| names.iter());
        assert!(names.all(|name| find_full(name.as_bytes()).is_none()));
    }
}

#[cfg(test)]
mod writes_tests {
    use super::*;
    use crate::protocol::resp::commands::find_full;

    #[test]
    fn the_list_is_sorted_and_has_no_supported_command() {
        assert!(WRITES.is_sorted());
        for (name, arity) in WRITES {
            assert!(listed(name.as_bytes()).is_some() && find_full(name.as_bytes()).is_none() && *arity != 0, "{name}");
        }
    }
}
