//! Encodes descriptions of commands.
//!
//! In: entries of [`COMMANDS`](super::COMMANDS). Out: the elements of the replies to `COMMAND`, `COMMAND INFO`,
//! `COMMAND DOCS`, and the subcommand `HELP`.

use super::super::{Reply, Sink};
use super::Spec;

/// Appends the description of one command, which is an element of the reply to `COMMAND INFO`.
pub fn info<S: Sink>(spec: &Spec, reply: &mut Reply<S>) {
    reply.array(10);
    reply.bulk(spec.name.as_bytes());
    reply.integer(spec.arity.into());
    words(spec.flags, reply);
    for number in [spec.keys.first, spec.keys.last, spec.keys.step] {
        reply.integer(number.into());
    }
    words(spec.categories, reply);
    reply.set(spec.tips.len());
    spec.tips.iter().for_each(|tip| reply.bulk(tip.as_bytes()));
    reply.set(usize::from(spec.keys.first != 0));
    if spec.keys.first != 0 {
        key_spec(spec, reply);
    }
    reply.set(spec.subcommands.len());
    for subcommand in spec.subcommands {
        info(subcommand, reply);
    }
}

/// Appends an entry of the reply to `COMMAND DOCS`: the name and the documentation of one command.
pub fn docs<S: Sink>(spec: &Spec, reply: &mut Reply<S>) {
    reply.bulk(spec.name.as_bytes());
    let arguments = arguments(spec.syntax);
    reply.map(3 + usize::from(!arguments.is_empty()) + usize::from(!spec.subcommands.is_empty()));
    for (name, text) in [("summary", spec.summary), ("since", spec.since), ("group", spec.group)] {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
    if !arguments.is_empty() {
        reply.bulk(b"arguments");
        reply.array(arguments.len());
        arguments.iter().for_each(|argument| push_argument(argument, reply));
    }
    if !spec.subcommands.is_empty() {
        reply.bulk(b"subcommands");
        reply.map(spec.subcommands.len());
        for subcommand in spec.subcommands {
            docs(subcommand, reply);
        }
    }
}

/// Appends the reply to the subcommand `HELP` of `container`, which is a command with subcommands.
pub fn help<S: Sink>(container: &Spec, reply: &mut Reply<S>) {
    reply.array(1 + 2 * container.subcommands.len());
    let name = container.name.to_ascii_uppercase();
    reply.simple(&format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    for subcommand in container.subcommands {
        let name = subcommand.own_name().to_ascii_uppercase();
        reply.simple(format!("{name} {}", subcommand.syntax).trim_end());
        reply.simple(&format!("    {}", subcommand.summary));
    }
}

fn words<S: Sink>(words: &[&str], reply: &mut Reply<S>) {
    reply.set(words.len());
    for word in words {
        reply.simple(word);
    }
}

/// Splits a syntax text, such as `key [SAMPLES count]`, at the spaces outside its brackets.
fn arguments(syntax: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let is_between = |letter: char| {
        match letter {
            '[' | '<' => depth += 1,
            ']' | '>' => depth -= 1,
            _ => {}
        }
        letter == ' ' && depth == 0
    };
    syntax.split(is_between).filter(|argument| !argument.is_empty()).collect()
}

/// Appends the map that describes an argument. `redis-cli` prints help and hints from the names, and encloses optional
/// arguments in brackets.
fn push_argument<S: Sink>(argument: &str, reply: &mut Reply<S>) {
    let optional = argument.strip_prefix('[').and_then(|inner| inner.strip_suffix(']'));
    let name = optional.or_else(|| argument.strip_prefix('<')?.strip_suffix('>')).unwrap_or(argument);
    reply.map(if optional.is_some() { 3 } else { 2 });
    for (field, text) in [("name", name), ("type", if name == "key" { "key" } else { "string" })] {
        reply.bulk(field.as_bytes());
        reply.bulk(text.as_bytes());
    }
    if optional.is_some() {
        reply.bulk(b"flags");
        words(&["optional"], reply);
    }
}

/// Appends a key specification. Clients for Redis 7 or later derive the positions of keys from it.
fn key_spec<S: Sink>(spec: &Spec, reply: &mut Reply<S>) {
    let keys = spec.keys;
    // In this reply, the position of the last key is relative to the first key.
    let last = if keys.last < 0 { keys.last } else { keys.last - keys.first };
    reply.map(3);
    reply.bulk(b"flags");
    words(spec.key_flags, reply);
    search_step("begin_search", "index", &[("index", keys.first)], reply);
    search_step("find_keys", "range", &[("lastkey", last), ("keystep", keys.step), ("limit", 0)], reply);
}

/// Appends a step by which a client finds keys: the step's name, the type of the method, and the method's parameters.
fn search_step<S: Sink>(name: &str, kind: &str, numbers: &[(&str, i32)], reply: &mut Reply<S>) {
    reply.bulk(name.as_bytes());
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(kind.as_bytes());
    reply.bulk(b"spec");
    reply.map(numbers.len());
    for (name, number) in numbers {
        reply.bulk(name.as_bytes());
        reply.integer((*number).into());
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Version, reply_len_bytes};
    use super::super::{COMMANDS, find, find_full};
    use super::*;

    fn written(version: Version, write: impl FnOnce(&mut Reply)) -> String {
        let mut out = Vec::new();
        write(&mut Reply::new(&mut out, version));
        String::from_utf8(out).unwrap().replace("\r\n", "|")
    }

    #[test]
    fn a_command_has_the_description_of_redis() {
        let spec = find(b"mget").unwrap();
        assert_eq!(
            written(Version::Resp2, |reply| info(spec, reply)),
            "*10|$4|mget|:-2|*2|+readonly|+fast|:1|:-1|:1|*3|+@read|+@string|+@fast|*1|$26|request_policy:multi_shard|\
             *1|*6|$5|flags|*2|+RO|+access|\
             $12|begin_search|*4|$4|type|$5|index|$4|spec|*2|$5|index|:1|\
             $9|find_keys|*4|$4|type|$5|range|$4|spec|*6|$7|lastkey|:-1|$7|keystep|:1|$5|limit|:0|*0|"
        );
        assert_eq!(
            written(Version::Resp3, |reply| info(find_full(b"config|get").unwrap(), reply)),
            "*10|$10|config|get|:-3|~4|+admin|+noscript|+loading|+stale|\
             :0|:0|:0|~3|+@admin|+@slow|+@dangerous|~0|~0|~0|"
        );
        assert_eq!(
            written(Version::Resp3, |reply| docs(find(b"strlen").unwrap(), reply)),
            "$6|strlen|%4|$7|summary|$43|Get the length of the value stored in a key|\
             $5|since|$5|2.2.0|$5|group|$6|string|\
             $9|arguments|*1|%2|$4|name|$3|key|$4|type|$3|key|"
        );
    }

    #[test]
    fn a_syntax_text_is_split_outside_its_brackets() {
        for (syntax, expected) in [
            ("", &[][..]),
            ("key", &["key"]),
            ("key [key ...]", &["key", "[key ...]"]),
            ("<min max | PREFIX prefix> [REV] [LIMIT count]", &["<min max | PREFIX prefix>", "[REV]", "[LIMIT count]"]),
            ("key [count [WITHVALUES]]", &["key", "[count [WITHVALUES]]"]),
        ] {
            assert_eq!(arguments(syntax), expected);
        }
    }

    #[test]
    fn every_description_is_one_complete_reply() {
        for version in [Version::Resp2, Version::Resp3] {
            let mut out = Vec::new();
            let mut reply = Reply::new(&mut out, version);
            reply.array(3);
            reply.array(COMMANDS.len());
            COMMANDS.iter().for_each(|spec| info(spec, &mut reply));
            reply.map(COMMANDS.len());
            COMMANDS.iter().for_each(|spec| docs(spec, &mut reply));
            let containers: Vec<_> = COMMANDS.iter().filter(|spec| !spec.subcommands.is_empty()).collect();
            reply.array(containers.len());
            containers.iter().for_each(|spec| help(spec, &mut reply));
            assert_eq!(reply_len_bytes(&out), Ok(Some(out.len())));
        }
    }

    #[test]
    fn help_lists_the_subcommands() {
        assert_eq!(
            written(Version::Resp2, |reply| help(find(b"module").unwrap(), reply)),
            "*5|+MODULE <subcommand> [<arg> [value] [opt] ...]. Subcommands are:|+LIST|\
             +    List all modules loaded by the server|+HELP|+    Show helpful text about the different subcommands|"
        );
    }
}
