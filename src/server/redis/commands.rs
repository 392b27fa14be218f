//! COMMAND: what the server says of its commands.
//!
//! In: names. Out: entries of the table. Replies about names that a client
//! gives are made name by name, for it may give any number of them.

use super::Out;
use super::execute::{Outcome, Step, Work};
use super::keyspace::PATTERN_LEN_MAX_BYTES;
use crate::protocol::resp::commands::info as write_info;
use crate::protocol::resp::commands::{COMMANDS, Spec, docs as write_docs, find, find_full, find_subcommand};
use crate::protocol::resp::{Args, Command, Glob};

/// Names that a pass looks up, at most.
const NAMES_MAX: usize = 4096;

pub(super) fn all(out: &mut Out<'_>) -> Outcome {
    out.array(COMMANDS.len());
    COMMANDS.iter().for_each(|spec| write_info(spec, out));
    Outcome::Done
}

pub(super) fn count(out: &mut Out<'_>) {
    out.integer(COMMANDS.len() as i64);
}

pub(super) fn list(mut args: Args<'_>, out: &mut Out<'_>) -> Result<(), String> {
    let filter = match (args.next(), args.next(), args.next(), args.next()) {
        (None, ..) => None,
        (Some(by), Some(kind), Some(wanted), None) if by.eq_ignore_ascii_case(b"FILTERBY") => Some((kind, wanted)),
        _ => return Err("ERR syntax error".to_owned()),
    };
    if filter.is_some_and(|(_, wanted)| wanted.len() > PATTERN_LEN_MAX_BYTES) {
        return Err(format!("ERR the filter is too long, the limit is {PATTERN_LEN_MAX_BYTES} bytes"));
    }
    let glob = Glob::new(filter.map_or(b"*", |(_, wanted)| wanted));
    let is_listed: &dyn Fn(&Spec) -> bool = match filter {
        None => &|_| true,
        Some((kind, _)) if kind.eq_ignore_ascii_case(b"PATTERN") => &|spec| glob.matches(spec.name.as_bytes()),
        Some((kind, wanted)) if kind.eq_ignore_ascii_case(b"ACLCAT") => {
            &move |spec| spec.categories.iter().any(|category| category.as_bytes()[1..].eq_ignore_ascii_case(wanted))
        }
        // There are no modules.
        Some((kind, _)) if kind.eq_ignore_ascii_case(b"MODULE") => &|_| false,
        Some(_) => return Err("ERR syntax error".to_owned()),
    };
    let listed = || COMMANDS.iter().filter(|spec| is_listed(spec));
    out.array(listed().count());
    listed().for_each(|spec| out.bulk(spec.name.as_bytes()));
    Ok(())
}

/// A COMMAND INFO or COMMAND DOCS of names under way.
#[derive(Clone)]
pub(super) struct Described {
    next_arg: usize,
    docs: bool,
}

pub(super) fn info(args: Args<'_>, command: &Command<'_>, out: &mut Out<'_>) -> Outcome {
    if command.arg_count() == 2 {
        return all(out);
    }
    out.array(command.arg_count() - 2);
    Outcome::Work(Work::Commands(Described { next_arg: args.offset_bytes(), docs: false }))
}

pub(super) fn docs(args: Args<'_>, command: &Command<'_>, out: &mut Out<'_>) -> Outcome {
    if command.arg_count() == 2 {
        out.map(COMMANDS.len());
        COMMANDS.iter().for_each(|spec| write_docs(spec, out));
        return Outcome::Done;
    }
    let next_arg = args.offset_bytes();
    out.map(args.filter(|name| find_full(name).is_some()).count());
    Outcome::Work(Work::Commands(Described { next_arg, docs: true }))
}

impl Described {
    pub(super) fn more(&mut self, command: &Command<'_>, out: &mut Out<'_>) -> Step {
        let mut args = command.args_from(self.next_arg);
        for _ in 0..NAMES_MAX {
            if out.sink().is_full() {
                return Step::Full;
            }
            let Some(name) = args.next() else { return Step::Done };
            match find_full(name) {
                Some(spec) if self.docs => write_docs(spec, out),
                Some(spec) => write_info(spec, out),
                None if self.docs => {}
                None => out.null(),
            }
            self.next_arg = args.offset_bytes();
        }
        Step::Yield
    }
}

/// A COMMAND GETKEYS under way.
#[derive(Clone)]
pub(super) struct GetKeys {
    next_arg: usize,
    left: usize,
}

/// The keys of the command that stands behind the name.
pub(super) fn get_keys(mut args: Args<'_>, command: &Command<'_>, out: &mut Out<'_>) -> Result<Outcome, String> {
    let (arg_count, first_arg) = (command.arg_count() as i64 - 2, args.clone());
    let mut spec = args.next().and_then(find).ok_or("ERR Invalid command specified")?;
    if !spec.subcommands.is_empty() {
        let found = args.next().and_then(|name| find_subcommand(spec, name));
        spec = found.ok_or("ERR Invalid command specified")?;
    }
    let arity = i64::from(spec.arity);
    if arg_count < arity.abs() || arity > 0 && arg_count != arity {
        return Err("ERR Invalid number of arguments specified for command".to_owned());
    }
    if spec.keys.first == 0 {
        return Err("ERR The command has no key arguments".to_owned());
    }
    let last = i64::from(spec.keys.last) + if spec.keys.last < 0 { arg_count } else { 0 };
    let left = (last + 1 - i64::from(spec.keys.first)) as usize;
    let mut args = first_arg;
    args.nth(spec.keys.first as usize - 1);
    out.array(left);
    Ok(Outcome::Work(Work::GetKeys(GetKeys { next_arg: args.offset_bytes(), left })))
}

impl GetKeys {
    pub(super) fn more(&mut self, command: &Command<'_>, out: &mut Out<'_>) -> Step {
        let mut args = command.args_from(self.next_arg);
        while self.left > 0 {
            if out.sink().is_full() {
                return Step::Full;
            }
            out.bulk(args.next().unwrap_or_default());
            (self.next_arg, self.left) = (args.offset_bytes(), self.left - 1);
        }
        Step::Done
    }
}
