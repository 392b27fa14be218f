//! Derives the structure of a command's arguments from their syntax.
//!
//! In: the syntax text of a command, such as `key [SAMPLES count]`. Out: the arguments as `COMMAND DOCS` describes
//! them. `redis-cli` prints help and hints from them.
//!
//! In a syntax text, a word in capitals is a token that clients send as it is, and any other word is the name of a
//! value. `[ ]` encloses an optional part, `< >` encloses alternatives, and `|` separates alternatives. An optional
//! part that repeats the preceding words and ends in `...`, such as `[key ...]`, means that these words can be
//! repeated. `[...]` means that the preceding group can be repeated.

use super::super::{Reply, Sink};

/// The names that stand for integers in a syntax text.
#[rustfmt::skip]
const INTEGERS: &[&str] = &[
    "bit", "client-id", "cluster_bus_port", "config-epoch", "count", "cursor", "end", "end-slot", "index", "len", "limit",
    "milliseconds", "num-matches", "numkeys", "numreplicas", "offset", "port", "protover", "rank", "seconds", "slot",
    "start", "start-slot", "stop", "timeout", "weight",
];

/// An argument, or a group of arguments.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Argument<'a> {
    name: String,
    kind: Kind<'a>,
    /// The token that clients send before the value.
    token: Option<&'a str>,
    is_optional: bool,
    repeats: Repeats,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind<'a> {
    Value,
    /// An argument that consists only of its token.
    Token,
    Block(Vec<Argument<'a>>),
    OneOf(Vec<Argument<'a>>),
}

/// Whether an argument can be repeated, and whether its token is then repeated, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeats {
    No,
    /// The values can be repeated; a token precedes only the first of them.
    Values,
    /// The token and the values can be repeated together.
    WithToken,
}

/// Returns the arguments that a syntax text describes.
pub(super) fn parse(syntax: &str) -> Vec<Argument<'_>> {
    sequence(&mut Words { rest: syntax })
}

/// The words and brackets of a syntax text.
struct Words<'a> {
    rest: &'a str,
}

impl<'a> Words<'a> {
    fn peek(&self) -> Option<&'a str> {
        let rest = self.rest.trim_start();
        let first = rest.chars().next()?;
        let len = match first {
            '[' | ']' | '<' | '>' | '|' => 1,
            _ => rest.find([' ', '[', ']', '<', '>', '|']).unwrap_or(rest.len()),
        };
        Some(&rest[..len])
    }

    fn next(&mut self) -> Option<&'a str> {
        let word = self.peek()?;
        self.rest = &self.rest.trim_start()[word.len()..];
        Some(word)
    }

    /// Skips a part in brackets that repeats earlier words and ends in `...`. Returns how these words can be repeated,
    /// and how many words the part repeats.
    fn skip_repetition(&mut self) -> Option<(Repeats, usize)> {
        let inner = self.rest.trim_start().strip_prefix('[')?;
        let (inner, rest) = inner.split_once(']')?;
        let repeated = inner.strip_suffix("...").filter(|repeated| !repeated.contains('['))?;
        self.rest = rest;
        let begins_with_token = repeated.split(' ').next().is_some_and(is_token);
        let repeats = if begins_with_token { Repeats::WithToken } else { Repeats::Values };
        Some((repeats, repeated.split_whitespace().count()))
    }
}

fn is_token(word: &str) -> bool {
    word.bytes().any(|byte| byte.is_ascii_uppercase()) && !word.bytes().any(|byte| byte.is_ascii_lowercase())
}

/// Parses arguments up to a closing bracket, a bar, or the end.
fn sequence<'a>(words: &mut Words<'a>) -> Vec<Argument<'a>> {
    let mut arguments: Vec<Argument<'a>> = Vec::new();
    while let Some(word) = words.peek() {
        if matches!(word, "]" | ">" | "|") {
            break;
        }
        if let Some((repeats, count)) = words.skip_repetition() {
            if repeats == Repeats::Values && (2..=arguments.len()).contains(&count) {
                let repeated = arguments.split_off(arguments.len() - count);
                arguments.push(block(repeated));
            }
            if let Some(last) = arguments.last_mut() {
                last.repeats = repeats;
            }
            continue;
        }
        words.next();
        arguments.push(match word {
            "[" => {
                let mut inner = alternatives(words);
                inner.is_optional = true;
                inner
            }
            "<" => alternatives(words),
            word if is_token(word) => token(word, words),
            name => Argument { name: name.to_owned(), ..Argument::of(Kind::Value) },
        });
    }
    arguments
}

/// Parses the text after an opening bracket, including the closing bracket.
fn alternatives<'a>(words: &mut Words<'a>) -> Argument<'a> {
    let mut alternatives = vec![block(sequence(words))];
    while words.next() == Some("|") {
        alternatives.push(block(sequence(words)));
    }
    match alternatives.len() {
        1 => alternatives.remove(0),
        _ => Argument { name: joined_names(&alternatives), ..Argument::of(Kind::OneOf(alternatives)) },
    }
}

/// Returns a single argument as it is, and combines several arguments into a block.
fn block(mut arguments: Vec<Argument<'_>>) -> Argument<'_> {
    match arguments.len() {
        1 => arguments.remove(0),
        _ => Argument { name: joined_names(&arguments), ..Argument::of(Kind::Block(arguments)) },
    }
}

/// Parses the values after a token.
fn token<'a>(token: &'a str, words: &mut Words<'a>) -> Argument<'a> {
    let mut values = Vec::new();
    while let Some(word) = words.peek() {
        let is_value = word == "<" || !matches!(word, "[" | "]" | ">" | "|") && !is_token(word);
        if !is_value {
            break;
        }
        words.next();
        values.push(match word {
            "<" => alternatives(words),
            name => Argument { name: name.to_owned(), ..Argument::of(Kind::Value) },
        });
    }
    if values.is_empty() {
        return Argument { name: token.to_ascii_lowercase(), token: Some(token), ..Argument::of(Kind::Token) };
    }
    Argument { token: Some(token), ..block(values) }
}

fn joined_names(arguments: &[Argument<'_>]) -> String {
    arguments.iter().map(|argument| argument.name.as_str()).collect::<Vec<_>>().join("_")
}

impl<'a> Argument<'a> {
    fn of(kind: Kind<'a>) -> Argument<'a> {
        Argument { name: String::new(), kind, token: None, is_optional: false, repeats: Repeats::No }
    }

    fn type_name(&self) -> &'static str {
        match (&self.kind, self.name.as_str()) {
            (Kind::Block(_), _) => "block",
            (Kind::OneOf(_), _) => "oneof",
            (Kind::Token, _) => "pure-token",
            (Kind::Value, "key" | "key1" | "key2") => "key",
            (Kind::Value, "pattern") => "pattern",
            (Kind::Value, "longitude" | "latitude" | "radius") => "double",
            (Kind::Value, name) if INTEGERS.contains(&name) => "integer",
            (Kind::Value, _) => "string",
        }
    }

    /// Appends the map that describes the argument.
    pub(super) fn write<S: Sink>(&self, reply: &mut Reply<S>) {
        let flags = [
            (self.is_optional, "optional"),
            (self.repeats != Repeats::No, "multiple"),
            (self.repeats == Repeats::WithToken, "multiple_token"),
        ];
        let flags: Vec<&str> = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| *flag).collect();
        let is_key = self.type_name() == "key";
        let inner = match &self.kind {
            Kind::Block(inner) | Kind::OneOf(inner) => Some(inner),
            Kind::Value | Kind::Token => None,
        };
        let optional_fields = [is_key, self.token.is_some(), !flags.is_empty(), inner.is_some()];
        reply.map(2 + optional_fields.iter().filter(|is_set| **is_set).count());
        let text = |reply: &mut Reply<S>, name: &str, value: &str| {
            reply.bulk(name.as_bytes());
            reply.bulk(value.as_bytes());
        };
        text(reply, "name", &self.name);
        text(reply, "type", self.type_name());
        if is_key {
            reply.bulk(b"key_spec_index");
            reply.integer(0);
        }
        if let Some(token) = self.token {
            text(reply, "token", token);
        }
        if !flags.is_empty() {
            reply.bulk(b"flags");
            reply.set(flags.len());
            flags.iter().for_each(|flag| reply.simple(flag));
        }
        if let Some(inner) = inner {
            reply.bulk(b"arguments");
            reply.array(inner.len());
            inner.iter().for_each(|argument| argument.write(reply));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::COMMANDS;
    use super::*;

    /// Writes arguments in the form of the syntax text.
    fn syntax(arguments: &[Argument<'_>], separator: &str) -> String {
        arguments.iter().map(of_one).collect::<Vec<_>>().join(separator)
    }

    fn of_one(argument: &Argument<'_>) -> String {
        let values = match &argument.kind {
            Kind::Value => argument.name.clone(),
            Kind::Token => String::new(),
            Kind::Block(inner) => syntax(inner, " "),
            Kind::OneOf(inner) if argument.is_optional && argument.token.is_none() => syntax(inner, " | "),
            Kind::OneOf(inner) => format!("<{}>", syntax(inner, " | ")),
        };
        let with_token = [argument.token.unwrap_or_default(), &values].join(" ").trim().to_owned();
        let repeated = match argument.repeats {
            Repeats::No => with_token,
            Repeats::Values if matches!(argument.kind, Kind::OneOf(_)) => format!("{with_token} [...]"),
            Repeats::Values => format!("{with_token} [{values} ...]"),
            Repeats::WithToken => format!("{with_token} [{with_token} ...]"),
        };
        if argument.is_optional { format!("[{repeated}]") } else { repeated }
    }

    #[test]
    fn the_syntax_of_every_command_is_parsed_completely() {
        for spec in COMMANDS.iter().flat_map(|spec| std::iter::once(spec).chain(spec.subcommands)) {
            assert_eq!(syntax(&parse(spec.syntax), " "), spec.syntax, "{}", spec.name);
        }
    }

    #[test]
    fn a_token_belongs_to_the_values_after_it() {
        let [bounds, rev, limit, _from] = &parse("<min max | PREFIX prefix> [REV] [LIMIT count] [FROM cursor]")[..]
        else {
            panic!("four arguments");
        };
        assert_eq!((bounds.type_name(), bounds.is_optional), ("oneof", false));
        assert_eq!((rev.type_name(), rev.token, rev.is_optional), ("pure-token", Some("REV"), true));
        assert_eq!((limit.type_name(), limit.token, limit.name.as_str()), ("integer", Some("LIMIT"), "count"));
    }
}
