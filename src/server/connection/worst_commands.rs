//! The most expensive arguments of every command and every native op.
//!
//! Every command gets few, many, short, and long arguments. Commands whose other arguments take more work have cases of
//! their own. A new op needs no case, but a new kind of op does.

use crate::protocol::native::{Op, OpKind, push_long, range_flags};
use crate::protocol::resp::commands::{ARGS_MAX_AT_ONCE, Id, Spec, all_commands};
use crate::protocol::resp::{BULK_LEN_MAX_BYTES, COMMAND_LEN_MAX_BYTES};

/// Returns the number 7 with as many leading zeros as an argument of the maximum length can have.
fn long_number() -> Vec<u8> {
    [vec![b'0'; BULK_LEN_MAX_BYTES - 1], b"7".to_vec()].concat()
}

/// Returns an argument that is not a number and has the maximum length.
fn long_text() -> Vec<u8> {
    vec![b'a'; BULK_LEN_MAX_BYTES]
}

/// Returns the patterns that take the most work to compile, or to match against a key of many letters `a`.
fn patterns() -> Vec<Vec<u8>> {
    let repeated = |part: &str| [part.repeat(1023 / part.len()).as_bytes(), b"b"].concat();
    let class = format!("*[{}]", "x".repeat(1000));
    let long = |element: &str| format!("*{}b*", element.repeat(1021 / element.len())).into_bytes();
    let parts = ["*a", "*?", "**a", "*[a-z]", "*aaaaaaa", "*aaaaaaab", "*aaaaaaaaaaaaaaaab", "?", "a"];
    let mut patterns: Vec<Vec<u8>> = parts.into_iter().map(repeated).collect();
    patterns.extend([b"*".to_vec(), b"*x*".to_vec(), class.into(), long("a"), long("?"), long("[^b]")]);
    patterns
}

/// Encodes a command and its arguments as an array of RESP, the Redis protocol.
pub(super) fn command<A: AsRef<[u8]>>(args: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        bytes.extend_from_slice(format!("${}\r\n", arg.as_ref().len()).as_bytes());
        bytes.extend_from_slice(arg.as_ref());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Returns a command that consists of `words`, and of `arg` repeated as often as the maximum length of a command and
/// `args_max` allow.
fn most(words: &str, arg: &[u8], args_max: usize) -> Vec<u8> {
    let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
    let framed_len = |arg: &[u8]| arg.len() + format!("$\r\n{}\r\n", arg.len()).len();
    let room = COMMAND_LEN_MAX_BYTES - 16 - words.iter().map(|word| framed_len(word)).sum::<usize>();
    let count = (room / framed_len(arg)).min(args_max - words.len());
    command(&[words, vec![arg; count]].concat())
}

/// Returns a command that consists of `words`, and of `options` repeated as often as `ARGS_MAX_AT_ONCE` allows.
fn with_options(words: &str, options: &[&str]) -> Vec<u8> {
    let words: Vec<&str> = words.split(' ').collect();
    let rounds = (ARGS_MAX_AT_ONCE - words.len()) / options.len();
    command(&[words, options.repeat(rounds)].concat())
}

fn words(words: &str) -> Vec<u8> {
    command(&words.split(' ').collect::<Vec<_>>())
}

/// Returns three commands that differ in their only argument: a long number, long text, and a short number.
fn with_long(name: &str) -> Vec<Vec<u8>> {
    let before: Vec<&[u8]> = name.split(' ').map(str::as_bytes).collect();
    [long_number(), long_text(), b"7".to_vec()].iter().map(|arg| command(&[&before[..], &[arg]].concat())).collect()
}

/// Returns an argument of the maximum length. An error that quotes it contains four characters for each byte (`\xff`).
fn unprintable() -> Vec<u8> {
    vec![0xff; BULK_LEN_MAX_BYTES]
}

/// Returns one command for each argument in `short`, and for each of several long arguments. Each command repeats its
/// argument as often as the maximum length of a command allows.
fn with_many(name: &str, short: &[&str]) -> Vec<Vec<u8>> {
    let longest = [long_number(), long_text(), vec![b'0'; 16 << 10], vec![b'|'; 1000]];
    let short = short.iter().map(|arg| most(name, arg.as_bytes(), usize::MAX));
    short.chain(longest.iter().map(|arg| most(name, arg, usize::MAX))).collect()
}

/// Returns a command with equal arguments: as few as it accepts, one more, and as many as possible.
fn with_equal_args(spec: &Spec) -> Vec<Vec<u8>> {
    let (name, least) = (spec.name.replace('|', " "), spec.arity.unsigned_abs() as usize);
    let mut commands: Vec<Vec<u8>> = Vec::new();
    for arg in [long_number(), long_text(), unprintable(), b"7".to_vec(), b"missing".to_vec()] {
        commands.push(most(&name, &arg, least));
    }
    if spec.arity < 0 {
        for arg in [long_text(), b"7".to_vec()] {
            commands.extend([least + 1, spec.args_max].map(|args_max| most(&name, &arg, args_max)));
        }
    }
    commands.sort();
    commands.dedup();
    commands
}

/// Returns the given command with each of the argument lists that can take the most work.
#[rustfmt::skip]
fn worst_commands(spec: &Spec) -> Vec<Vec<u8>> {
    let matching = |before: &str, after: &str| -> Vec<Vec<u8>> {
        let split = |words: &str| words.split_whitespace().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
        patterns().into_iter().map(|pattern| command(&[split(before), vec![pattern], split(after)].concat())).collect()
    };
    let special = match spec.id {
        Id::GetBit => vec![words("GETBIT 7 4294967295"), command(&[b"GETBIT", &long_number()[..], &long_number()[..]])],
        _ if spec.missing.is_some() => vec![
            with_options(spec.name, &["1000000"]),
            command(&[vec![spec.name.as_bytes().to_vec()], vec![long_text(); 3]].concat()),
        ],
        Id::Auth => with_long("AUTH default"),
        Id::ClientSetInfo => [with_long("CLIENT SETINFO LIB-NAME"), with_long("CLIENT SETINFO LIB-VER")].concat(),
        Id::MGet | Id::Exists | Id::Touch => with_many(spec.name, &["7", "x", "123456789"]),
        Id::GetRange => vec![command(&[b"GETRANGE", &long_number()[..], b"0", b"-1"]), words("GETRANGE 7 0 -1")],
        Id::MemoryUsage => vec![
            with_options("MEMORY USAGE 7", &["SAMPLES", "5"]),
            command(&[&b"MEMORY"[..], b"USAGE", &long_number()[..]]),
        ],
        Id::Scan => [
            matching("SCAN 0 COUNT 1000000000 MATCH", ""),
            matching("SCAN 0 MATCH", "COUNT 1"),
            vec![with_options("SCAN 0", &["COUNT", "1000000"]), words("SCAN 0 COUNT 1000000 TYPE x")],
        ].concat(),
        Id::Keys => matching("KEYS", ""),
        Id::ConfigGet => [
            matching("CONFIG GET", ""),
            vec![
                with_options("CONFIG GET", &["*"]),
                with_options("CONFIG GET", &[""]),
                most("CONFIG GET", &[b'*'; 1024], 4000),
                most("CONFIG GET", &[b"*[".to_vec(), vec![b'x'; 1000]].concat(), ARGS_MAX_AT_ONCE),
            ],
        ].concat(),
        Id::Info => vec![with_options("INFO", &["everything"]), with_options("INFO", &["x"])],
        Id::Hello => vec![
            with_options("HELLO 3", &["SETNAME", "x"]),
            with_options("HELLO 3", &["AUTH", "default", "x"]),
            command(&[&b"HELLO"[..], b"3", &unprintable()]),
            words("HELLO 3"),
        ],
        Id::ZkvRange => vec![
            words("ZKV.RANGE - + LIMIT 1000000"),
            words("ZKV.RANGE - + REV LIMIT 1000000"),
            words("ZKV.RANGE PREFIX a LIMIT 1000000"),
            words("ZKV.RANGE - + LIMIT 1000000 FROM 7"),
            with_options("ZKV.RANGE - +", &["LIMIT", "1000000"]),
            command(&[&b"ZKV.RANGE"[..], b"PREFIX", &long_text()[..]]),
        ],
        Id::ZkvCount => vec![
            words("ZKV.COUNT - +"),
            command(&[&b"ZKV.COUNT"[..], b"PREFIX", &long_text()[..]]),
        ],
        Id::CommandDocs => with_many("COMMAND DOCS", &["get", "client", "client|no-touch", "xyz"]),
        Id::CommandInfo => with_many("COMMAND INFO", &["get", "client", "client|no-touch", "xyz"]),
        Id::CommandGetKeys => with_many("COMMAND GETKEYS MGET", &["7", "123456789"]),
        Id::CommandList => [
            matching("COMMAND LIST FILTERBY PATTERN", ""),
            vec![words("COMMAND LIST FILTERBY ACLCAT slow")],
        ].concat(),
        Id::ClientList => vec![
            command(&[&b"CLIENT"[..], b"LIST", b"TYPE", &unprintable()]),
            most("CLIENT LIST ID", b"7", ARGS_MAX_AT_ONCE),
        ],
        Id::ClientKill => vec![
            words("CLIENT KILL TYPE normal"),
            words("CLIENT KILL ADDR x LADDR x SKIPME no"),
            words("CLIENT KILL MAXAGE 1000000"),
            with_options("CLIENT KILL", &["ID", "7"]),
            command(&[&b"CLIENT"[..], b"KILL", b"TYPE", &unprintable()]),
        ],
        Id::AclGetUser => vec![words("ACL GETUSER default")],
        Id::AclCat => vec![words("ACL CAT slow")],
        Id::AclDryRun => vec![most("ACL DRYRUN default MGET", b"7", ARGS_MAX_AT_ONCE)],
        _ => Vec::new(),
    };
    [with_equal_args(spec), special].concat()
}

/// Returns more inputs that take much work: commands with too many arguments, unknown commands, inline commands, and
/// empty commands. Each input is paired with the name of its command, or with `none`.
fn worst_refusals() -> Vec<(String, Vec<u8>)> {
    let at_once = all_commands().filter(|spec| spec.args_max == ARGS_MAX_AT_ONCE);
    let too_many = at_once.map(|spec| (spec.name.to_owned(), most(&spec.name.replace('|', " "), b"7", 20_000)));
    let unknown = [
        most("unknown", b"7", usize::MAX),
        most("unknown", b"", usize::MAX),
        command(&[long_text(), long_text()]),
        command(&[b"FUNCTION", &long_text()[..]]),
        [vec![b'x'; 60_000], b"\n".to_vec()].concat(),
        [b"x ".repeat(30_000), b"\n".to_vec()].concat(),
        [b"MGET", &b" 7".repeat(30_000)[..], b"\n"].concat(),
        b"\r\n".repeat(30_000),
        b"*0\r\n".repeat(30_000),
    ];
    too_many.chain(unknown.into_iter().map(|bytes| ("none".to_owned(), bytes))).collect()
}

/// Returns the native requests with the given op and the arguments that take the most work. `rows` is the table's
/// number of rows. A table of numbers must have the keys 0 to `rows - 1`.
fn worst_requests(op: Op, rows: u64) -> Vec<Vec<u8>> {
    let short = |key: u64| [&(op as u32).to_be_bytes()[..], &[0; 4], &key.to_be_bytes()].concat();
    let long = |body: &[&[u8]]| {
        let mut request = Vec::new();
        push_long(op, body, &mut request);
        request
    };
    // A range consists of flags, a limit, the lengths of the two keys, and the keys.
    let range = |flags: u32, start: &[u8], end: &[u8]| {
        let numbers = [flags, 0, start.len() as u32, end.len() as u32];
        long(&[&numbers.map(u32::to_be_bytes).concat(), start, end])
    };
    let key = vec![b'a'; 65_535];
    match op.kind() {
        OpKind::Point | OpKind::Neighbor => {
            // The keys are spread over the table, so that each lookup may be the first to read its block.
            let spread: Vec<u8> = (0..4096).flat_map(|at| short(at * 7919 % rows)).collect();
            vec![spread, short(u64::MAX), long(&[&key]), long(&[b"x"])]
        }
        OpKind::Range => {
            let (both, numbers) = (range_flags::START | range_flags::END, range_flags::NUMBERS);
            let mut requests = vec![range(both, &key, &key), range(both | numbers, &[0; 8], &[0xFF; 8]), long(&[b""])];
            for flags in [0, range_flags::BACKWARD, numbers, numbers | range_flags::BACKWARD] {
                requests.push(range(flags, b"", b""));
            }
            requests
        }
        OpKind::Login => vec![long(&[b"default\0", &key]), long(&[&key])],
        OpKind::Select => vec![long(&[&[0; 8], &key]), long(&[b""])],
        OpKind::Server => vec![short(0)],
    }
}

/// Returns all worst cases, each with the name of its command or op.
pub(super) fn all_cases(rows: u64) -> impl Iterator<Item = (String, Vec<u8>)> {
    let named = |name: String, cases: Vec<Vec<u8>>| cases.into_iter().map(move |bytes| (name.clone(), bytes));
    let commands = all_commands().flat_map(move |spec| named(spec.name.to_owned(), worst_commands(spec)));
    let requests = Op::ALL.into_iter().flat_map(move |op| named(format!("{op:?}"), worst_requests(op, rows)));
    worst_refusals().into_iter().chain(commands).chain(requests)
}
