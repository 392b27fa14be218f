//! The command ACL, which describes users and permissions.
//!
//! In: the users of the server. Out: their rules, in the form of Redis. Users can be changed only in the users file.

use std::ops::Bound;
use std::sync::Arc;

use super::permission::check_keys;
use super::text::quoted;
use super::work::{Outcome, UserList, Work, WorkStep};
use super::{Out, Session};
use crate::format::key::KeyKind;
use crate::protocol::resp::commands::{COMMANDS, find, find_subcommand};
use crate::protocol::resp::{Args, Command};
use crate::server::users::{Access, CATEGORIES, Users};

/// The cost, in steps, of describing one password or one rule of a user.
const RULE_STEPS: usize = 10;

pub(super) fn who_am_i(access: &Access, users: &Users, out: &mut Out<'_>) {
    out.bulk(access.user_name(users).as_bytes());
}

/// Begins the reply to ACL LIST or ACL USERS.
pub(super) fn list(users: &Users, has_rules: bool, out: &mut Out<'_>) -> Outcome {
    let users = users.by_name();
    out.array(users.len());
    Outcome::Work(Work::Users(UserList { users, last: None, has_rules }))
}

impl UserList {
    pub(super) fn more(&mut self, out: &mut Out<'_>) -> WorkStep {
        loop {
            let after = self.last.as_ref().map_or(Bound::Unbounded, |last| Bound::Excluded(last.name.as_str()));
            let Some((_, user)) = self.users.range::<str, _>((after, Bound::Unbounded)).next() else {
                return WorkStep::Done;
            };
            if out.sink().is_full() {
                return WorkStep::Full;
            }
            match self.has_rules {
                true => out.bulk(user.line().as_bytes()),
                false => out.bulk(user.name.as_bytes()),
            }
            out.sink().steps().add(RULE_STEPS * if self.has_rules { user.rule_count() } else { 1 });
            self.last = Some(Arc::clone(user));
            if out.sink().steps().is_pass_over() {
                return WorkStep::Yield;
            }
        }
    }
}

pub(super) fn get_user(users: &Users, mut args: Args<'_>, out: &mut Out<'_>) {
    let Some(user) = users.get(args.next().unwrap_or_default()) else {
        out.null();
        return;
    };
    out.sink().steps().add(RULE_STEPS * user.rule_count());
    out.map(6);
    out.bulk(b"flags");
    let flags = user.flags();
    out.set(flags.len());
    flags.iter().for_each(|flag| out.bulk(flag.as_bytes()));
    out.bulk(b"passwords");
    let hashes = user.hash_texts();
    out.array(hashes.len());
    hashes.iter().for_each(|hash| out.bulk(hash.as_bytes()));
    for (name, rules) in
        [("commands", user.command_rules()), ("keys", user.key_rules()), ("channels", user.channel_rules())]
    {
        out.bulk(name.as_bytes());
        out.bulk(rules.as_bytes());
    }
    out.bulk(b"selectors");
    out.array(0);
}

pub(super) fn cat(mut args: Args<'_>, out: &mut Out<'_>) -> Result<(), String> {
    let (wanted, more) = (args.next(), args.next());
    if more.is_some() {
        return Err("ERR unknown subcommand or wrong number of arguments for 'CAT'. Try ACL HELP.".to_owned());
    }
    let Some(wanted) = wanted else {
        out.array(CATEGORIES.len());
        CATEGORIES.iter().for_each(|category| out.bulk(category.as_bytes()));
        return Ok(());
    };
    if !CATEGORIES.iter().any(|category| category.as_bytes().eq_ignore_ascii_case(wanted)) {
        return Err(format!("ERR Unknown category {}", quoted(wanted)));
    }
    let is_of = |category: &&str| category.as_bytes()[1..].eq_ignore_ascii_case(wanted);
    let all = COMMANDS.iter().flat_map(|spec| std::iter::once(spec).chain(spec.subcommands));
    let names: Vec<&str> = all.filter(|spec| spec.categories.iter().any(is_of)).map(|spec| spec.name).collect();
    out.sink().steps().add(COMMANDS.len());
    out.array(names.len());
    names.iter().for_each(|name| out.bulk(name.as_bytes()));
    Ok(())
}

impl Session {
    /// Replies to ACL DRYRUN: whether a user may execute a command.
    pub(super) fn dry_run(
        &self,
        kind: KeyKind,
        mut args: Args<'_>,
        command: &Command<'_>,
        out: &mut Out<'_>,
    ) -> Result<(), String> {
        let name = args.next().unwrap_or_default();
        let users = &self.worker.server.users;
        let user = users.get(name).ok_or_else(|| format!("ERR User {} not found", quoted(name)))?;
        let (access, arg_count, first) = (Access::of(user), command.arg_count() - 3, args.clone());
        let name = args.next().unwrap_or_default();
        let mut spec = find(name).ok_or_else(|| format!("ERR Command {} not found", quoted(name)))?;
        if !spec.subcommands.is_empty() {
            let found = args.next().and_then(|name| find_subcommand(spec, name));
            spec = found.ok_or_else(|| format!("ERR Command {} not found", quoted(name)))?;
        }
        if !spec.accepts(arg_count) {
            return Err(format!("ERR wrong number of arguments for '{}' command", spec.name));
        }
        out.sink().steps().add(arg_count);
        if access.check_command(spec).is_err() {
            out.bulk(format!("This user has no permissions to run the '{}' command", spec.name).as_bytes());
            return Ok(());
        }
        match check_keys(&access, kind, spec, first, arg_count) {
            Ok(()) => out.ok(),
            Err(Some(key)) => {
                out.bulk(&[b"This user has no permissions to access the '", key, b"' key"].concat());
            }
            Err(None) => out.bulk(b"This user has no permissions to access all keys"),
        }
        Ok(())
    }
}
