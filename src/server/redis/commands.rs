//! The COMMAND command, which describes the commands of the server.
//!
//! In: names of commands. Out: descriptions of the commands. If the arguments are names of commands, the reply may take
//! several passes, because there can be many names.

use super::keyspace::{self, PATTERN_LEN_MAX_BYTES};
use super::work::{Described, GetKeys, Outcome, Task, Work, WorkStep};
use super::{Out, Replied, SYNTAX};
use crate::protocol::resp::commands::{
    COMMANDS, docs as write_docs, find, find_full, find_subcommand, info as write_info,
};
use crate::protocol::resp::{Args, Command};

/// The cost, in steps, of looking up a command's name.
const NAME_STEPS: usize = 1;

pub(super) fn all(out: &mut Out<'_>) -> Outcome {
    out.array(COMMANDS.len());
    COMMANDS.iter().for_each(|spec| write_info(spec, out));
    Outcome::Done
}

pub(super) fn count(out: &mut Out<'_>) {
    out.integer(COMMANDS.len() as i64);
}

pub(super) fn list(mut args: Args<'_>, out: &mut Out<'_>) -> Replied {
    let filter = match (args.next(), args.next(), args.next(), args.next()) {
        (None, ..) => None,
        (Some(by), Some(kind), Some(wanted), None) if by.eq_ignore_ascii_case(b"FILTERBY") => Some((kind, wanted)),
        _ => return Err(SYNTAX.to_owned()),
    };
    if filter.is_some_and(|(_, wanted)| wanted.len() > PATTERN_LEN_MAX_BYTES) {
        return Err(format!("ERR the filter is too long, the limit is {PATTERN_LEN_MAX_BYTES} bytes"));
    }
    let listed: Vec<&str> = match filter {
        None => COMMANDS.iter().map(|spec| spec.name).collect(),
        Some((kind, pattern)) if kind.eq_ignore_ascii_case(b"PATTERN") => {
            let steps = out.sink().steps();
            let glob = keyspace::compile(pattern, steps)?;
            let names = COMMANDS.iter().map(|spec| spec.name);
            names.filter(|name| keyspace::matches(&glob, name.as_bytes(), steps)).collect()
        }
        Some((kind, wanted)) if kind.eq_ignore_ascii_case(b"ACLCAT") => {
            let is_of = |category: &&str| category.as_bytes()[1..].eq_ignore_ascii_case(wanted);
            let specs = COMMANDS.iter().filter(|spec| spec.categories.iter().any(is_of));
            specs.map(|spec| spec.name).collect()
        }
        // The server has no modules.
        Some((kind, _)) if kind.eq_ignore_ascii_case(b"MODULE") => Vec::new(),
        Some(_) => return Err(SYNTAX.to_owned()),
    };
    out.sink().steps().add(COMMANDS.len());
    out.array(listed.len());
    listed.iter().for_each(|name| out.bulk(name.as_bytes()));
    Ok(())
}

pub(super) fn info(args: Args<'_>, command: &Command<'_>, out: &mut Out<'_>) -> Outcome {
    if command.arg_count() == 2 {
        return all(out);
    }
    out.array(command.arg_count() - 2);
    Outcome::Work(Work::Commands(Described { next_arg: args.offset_bytes(), task: Task::Info }))
}

pub(super) fn docs(args: Args<'_>, command: &Command<'_>, out: &mut Out<'_>) -> Outcome {
    if command.arg_count() == 2 {
        out.map(COMMANDS.len());
        COMMANDS.iter().for_each(|spec| write_docs(spec, out));
        return Outcome::Done;
    }
    Outcome::Work(Work::Commands(Described { next_arg: args.offset_bytes(), task: Task::CountDocs(0) }))
}

impl Described {
    pub(super) fn more(&mut self, command: &Command<'_>, out: &mut Out<'_>) -> WorkStep {
        let mut args = command.args_from(self.next_arg);
        loop {
            if out.sink().is_full() {
                return WorkStep::Full;
            }
            let Some(name) = args.next() else { return self.after_last_name(command, out) };
            let spec = find_full(name);
            match (&mut self.task, spec) {
                (Task::Info, Some(spec)) => write_info(spec, out),
                (Task::Info, None) => out.null(),
                (Task::CountDocs(count), Some(_)) => *count += 1,
                (Task::Docs, Some(spec)) => write_docs(spec, out),
                (Task::CountDocs(_) | Task::Docs, None) => {}
            }
            self.next_arg = args.offset_bytes();
            out.sink().steps().add(NAME_STEPS);
            out.sink().steps().add_bytes(name.len());
            if out.sink().steps().is_pass_over() {
                return WorkStep::Yield;
            }
        }
    }

    fn after_last_name(&mut self, command: &Command<'_>, out: &mut Out<'_>) -> WorkStep {
        let Task::CountDocs(count) = self.task else { return WorkStep::Done };
        out.map(count);
        *self = Described { next_arg: after_subcommand(command).offset_bytes(), task: Task::Docs };
        WorkStep::Next
    }
}

/// Returns the arguments after the names of a command and its subcommand.
fn after_subcommand<'a>(command: &Command<'a>) -> Args<'a> {
    let mut args = command.args();
    args.nth(1);
    args
}

/// Begins the reply to COMMAND GETKEYS. Its arguments form another command, and the reply contains the keys of that
/// command.
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
    let positions = spec.key_positions(arg_count as usize);
    let (mut args, left) = (first_arg, positions.len());
    args.nth(positions.start - 1);
    out.array(left);
    Ok(Outcome::Work(Work::GetKeys(GetKeys { next_arg: args.offset_bytes(), left })))
}

impl GetKeys {
    pub(super) fn more(&mut self, command: &Command<'_>, out: &mut Out<'_>) -> WorkStep {
        let mut args = command.args_from(self.next_arg);
        while self.left > 0 {
            if out.sink().is_full() {
                return WorkStep::Full;
            }
            let key = args.next().unwrap_or_default();
            out.bulk(key);
            (self.next_arg, self.left) = (args.offset_bytes(), self.left - 1);
            out.sink().steps().add(1);
            out.sink().steps().add_bytes(key.len());
            if out.sink().steps().is_pass_over() {
                return WorkStep::Yield;
            }
        }
        WorkStep::Done
    }
}
