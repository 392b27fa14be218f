//! Encodes descriptions of commands.
//!
//! In: entries of [`COMMANDS`](super::COMMANDS). Out: the elements of the replies to `COMMAND`, `COMMAND INFO`,
//! `COMMAND DOCS`, and the subcommand `HELP`.

use super::super::{Reply, Sink};
use super::{Spec, arguments};

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
    let is_incomplete = has_unlisted_keys(spec);
    reply.set(usize::from(spec.keys.first != 0 || spec.counts_keys) + usize::from(is_incomplete));
    if spec.counts_keys {
        counted_keys(spec, reply);
    } else if spec.keys.first != 0 {
        key_spec(spec, reply);
    }
    if is_incomplete {
        unlisted_keys(spec, reply);
    }
    reply.set(spec.subcommands.len());
    for subcommand in spec.subcommands {
        info(subcommand, reply);
    }
}

/// Appends an entry of the reply to `COMMAND DOCS`: the name and the documentation of one command.
pub fn docs<S: Sink>(spec: &Spec, reply: &mut Reply<S>) {
    reply.bulk(spec.name.as_bytes());
    let arguments = arguments::parse(spec.syntax);
    let texts =
        [("summary", spec.summary), ("since", spec.since), ("group", spec.group), ("complexity", spec.complexity)];
    let texts = texts.iter().filter(|(_, text)| !text.is_empty());
    reply.map(texts.clone().count() + usize::from(!arguments.is_empty()) + usize::from(!spec.subcommands.is_empty()));
    for (name, text) in texts {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
    if !arguments.is_empty() {
        reply.bulk(b"arguments");
        reply.array(arguments.len());
        arguments.iter().for_each(|argument| argument.write(reply));
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

/// Appends a key specification. Clients for Redis 7 or later derive the positions of keys from it.
fn key_spec<S: Sink>(spec: &Spec, reply: &mut Reply<S>) {
    let keys = spec.keys;
    // In this reply, the position of the last key is relative to the first key.
    let last = if keys.last < 0 { keys.last } else { keys.last - keys.first };
    let note = if has_unlisted_keys(spec) { "" } else { spec.key_note };
    search(spec, note, ("index", &[("index", keys.first)]), reply);
    find_step("range", &[("lastkey", last), ("keystep", keys.step), ("limit", 0)], reply);
}

/// Appends the key specification of a command whose first argument is the number of its keys.
fn counted_keys<S: Sink>(spec: &Spec, reply: &mut Reply<S>) {
    search(spec, spec.key_note, ("index", &[("index", 1)]), reply);
    find_step("keynum", &[("keynumidx", 0), ("firstkey", 1), ("keystep", 1)], reply);
}

/// Returns whether the command reads keys that its arguments do not contain.
fn has_unlisted_keys(spec: &Spec) -> bool {
    spec.flags.contains(&"movablekeys") && !spec.counts_keys
}

/// Appends the key specification of keys that the arguments do not contain.
fn unlisted_keys<S: Sink>(spec: &Spec, reply: &mut Reply<S>) {
    search(spec, spec.key_note, ("unknown", &[]), reply);
    find_step("unknown", &[], reply);
}

/// Begins a key specification. Appends `note` (unless it is empty), the flags of the keys, and the method by which a
/// client finds the first key: the method's type `kind` and its parameters `numbers`.
fn search<S: Sink>(spec: &Spec, note: &str, (kind, numbers): (&str, &[(&str, i32)]), reply: &mut Reply<S>) {
    reply.map(if note.is_empty() { 3 } else { 4 });
    if !note.is_empty() {
        reply.bulk(b"notes");
        reply.bulk(note.as_bytes());
    }
    reply.bulk(b"flags");
    words(spec.key_flags, reply);
    reply.bulk(b"begin_search");
    search_step(kind, numbers, reply);
}

/// Appends how a client finds the keys after the first key.
fn find_step<S: Sink>(kind: &str, numbers: &[(&str, i32)], reply: &mut Reply<S>) {
    reply.bulk(b"find_keys");
    search_step(kind, numbers, reply);
}

fn search_step<S: Sink>(kind: &str, numbers: &[(&str, i32)], reply: &mut Reply<S>) {
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
            "$6|strlen|%5|$7|summary|$43|Get the length of the value stored in a key|\
             $5|since|$5|2.2.0|$5|group|$6|string|\
             $10|complexity|$4|O(1)|\
             $9|arguments|*1|%3|$4|name|$3|key|$4|type|$3|key|$14|key_spec_index|:0|"
        );
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
