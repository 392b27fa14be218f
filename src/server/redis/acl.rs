//! Users and permissions: whether a command is executed, queued, or rejected, and the command ACL.
//!
//! In: commands, the [`Access`] of the session, and the users of the server. Out: errors with Redis's texts, and the
//! rules of users in the form of Redis. A command is checked before any of its keys is looked up. A command of a
//! transaction is checked when it is queued, and again when EXEC executes it. Users can be changed only in the users
//! file.

use std::ops::Bound;
use std::sync::Arc;

use super::keys::{key_steps, quoted};
use super::work::{Outcome, UserList, Work, WorkStep};
use super::{Out, Replied, Session};
use crate::Lookup;
use crate::format::key_type::KeyType;
use crate::protocol::resp::commands::{
    ARGS_MAX_AT_ONCE, COMMANDS, Id, KeysNeeded, Refusal, Spec, all_commands, find, find_subcommand, resolve, write_name,
};
use crate::protocol::resp::range::Span;
use crate::protocol::resp::{Args, Command};
use crate::server::table::Generation;
use crate::server::users::{Access, CATEGORIES, Denied, Users};

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

pub(super) fn cat(mut args: Args<'_>, out: &mut Out<'_>) -> Replied {
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
    let all = all_commands();
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
        key_type: KeyType,
        mut args: Args<'_>,
        command: &Command<'_>,
        out: &mut Out<'_>,
    ) -> Replied {
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
        match check_keys(&access, key_type, spec, first, arg_count) {
            Ok(()) => out.ok(),
            Err(Some(key)) => {
                out.bulk(&[b"This user has no permissions to access the '", key, b"' key"].concat());
            }
            Err(None) => out.bulk(b"This user has no permissions to access all keys"),
        }
        Ok(())
    }
}

/// The maximum length of an incomplete command from a client that must log in and has not done so yet.
const UNAUTHENTICATED_MAX_BYTES: usize = 32 << 10;

impl Session {
    /// Updates the session's permissions if the users have changed. Returns false if the connection must end, because
    /// its user was removed or disabled, or now needs a password.
    #[cold]
    pub(super) fn follow_users(&mut self) -> bool {
        let server = &self.worker.server;
        let is_enabled = self.access.follow(&server.users);
        if !is_enabled {
            server.statistics.totals.cut_user.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        is_enabled
    }

    /// Changes the permissions of the session. [`Session::undo`] restores the previous permissions.
    pub(super) fn set_access(&mut self, access: Access) {
        self.client.set_user(access.user_name(&self.worker.server.users));
        let before = std::mem::replace(&mut self.access, access);
        self.kept_access.get_or_insert(before);
    }

    /// Returns whether the client needs no login, or has logged in.
    pub(in crate::server) fn is_authenticated(&self) -> bool {
        self.access.is_authenticated()
    }

    /// Returns whether the client has the permission for MONITOR, according to the current users.
    pub(in crate::server) fn may_monitor(&mut self) -> bool {
        let is_permitted = |access: &Access| access.permits_all_keys() && access.check_permission(Id::Monitor).is_ok();
        self.access.is_unrestricted(&self.worker.server.users) || self.follow_users() && is_permitted(&self.access)
    }

    /// Returns whether the client may send a command of this length.
    #[inline]
    pub(super) fn may_send(&self, len_bytes: usize) -> bool {
        len_bytes <= UNAUTHENTICATED_MAX_BYTES || self.access.is_authenticated()
    }

    /// Checks whether a command is permitted. If the command can have many keys, returns the work that checks them.
    pub(super) fn check(
        &self,
        key_type: KeyType,
        spec: &Spec,
        command: &Command<'_>,
        out: &mut Out<'_>,
    ) -> Result<Option<Work>, Denied> {
        self.access.check_command(spec)?;
        if self.access.permits_all_keys() {
            return Ok(None);
        }
        if spec.keys_needed == KeysNeeded::Named && spec.args_max > ARGS_MAX_AT_ONCE {
            let mut args = command.args();
            args.nth(spec.keys.first as usize - 1);
            return Ok(Some(Work::CheckAccess { next_arg: args.offset_bytes() }));
        }
        out.sink().steps().add(key_steps(key_type) * command.arg_count());
        let checked = check_keys(&self.access, key_type, spec, command.args(), command.arg_count());
        checked.map(|()| None).map_err(|_| Denied::Keys)
    }

    /// Continues to check the keys of a command with many keys, and then begins to execute or queue the command.
    pub(super) fn more_of_check(
        &mut self,
        generation: &Generation,
        command: &Command<'_>,
        work: &mut Work,
        out: &mut Out<'_>,
    ) -> WorkStep {
        let Work::CheckAccess { next_arg } = work else { return WorkStep::Done };
        let (key_type, mut args) = (generation.store.key_type(), command.args_from(*next_arg));
        let mut is_permitted = true;
        while let Some(key) = args.next().filter(|_| is_permitted) {
            is_permitted = self.access.permits_key(key_type, key);
            let steps = out.sink().steps();
            steps.add(key_steps(key_type));
            steps.add_bytes(key.len());
            if steps.is_pass_over() && is_permitted {
                *next_arg = args.offset_bytes();
                return WorkStep::Yield;
            }
        }
        let Ok(spec) = resolve(command) else { return WorkStep::Done };
        self.counted.commands += 1;
        let outcome = match is_permitted {
            true => self.execute_permitted(generation, spec, command, out),
            false => self.deny(Denied::Keys, spec, out),
        };
        match outcome {
            Outcome::Work(next) => {
                *work = next;
                WorkStep::Next
            }
            // Commands with many keys neither log in nor close the connection.
            Outcome::Done | Outcome::Delay(_) | Outcome::Close => WorkStep::Done,
        }
    }

    /// Rejects a command that is not permitted.
    pub(super) fn deny(&mut self, denied: Denied, spec: &Spec, out: &mut Out<'_>) -> Outcome {
        let text = self.denied_text(denied, spec.name);
        self.counted.errors += 1;
        out.error(self.state.transaction.reject(spec.id == Id::Exec, text.into_bytes()));
        Outcome::Done
    }

    /// Returns the error for a command that the server does not execute.
    pub(super) fn refusal_text(&self, refusal: &Refusal<'_>, command: &Command<'_>) -> Vec<u8> {
        match (refusal, self.access.check_write()) {
            (Refusal::Write, Err(denied)) => {
                self.denied_text(denied, write_name(command).unwrap_or_default()).into_bytes()
            }
            _ => refusal.text(),
        }
    }

    fn denied_text(&self, denied: Denied, name: &str) -> String {
        if self.state.transaction.is_executing() {
            let reason = match denied {
                Denied::Keys => "no permission to touch the specified keys",
                Denied::Command | Denied::Unauthenticated => "no permission to execute the command or subcommand",
            };
            return format!(
                "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This \
                 command is no longer allowed for the following reason: {reason}"
            );
        }
        match denied {
            Denied::Unauthenticated => "NOAUTH Authentication required.".to_owned(),
            Denied::Command => format!("NOPERM this user has no permissions to run the '{name}' command"),
            Denied::Keys => {
                "NOPERM this user has no permissions to access one of the keys used as arguments".to_owned()
            }
        }
    }
}

/// Checks the keys of a command. `args` begins with the name of the command.
///
/// # Errors
/// The first key that is not permitted, or `None` if the command needs access to keys that its arguments do not name.
pub(super) fn check_keys<'a>(
    access: &Access,
    key_type: KeyType,
    spec: &Spec,
    mut args: Args<'a>,
    arg_count: usize,
) -> Result<(), Option<&'a [u8]>> {
    match spec.keys_needed {
        KeysNeeded::None => Ok(()),
        _ if access.permits_all_keys() => Ok(()),
        KeysNeeded::All => Err(None),
        KeysNeeded::Some if access.permits_some_key() => Ok(()),
        KeysNeeded::Some => Err(None),
        KeysNeeded::Prefix => {
            let (by, prefix) = (args.nth(1).unwrap_or_default(), args.next().unwrap_or_default());
            if Span::is_prefix(by) && access.permits_prefix(key_type, prefix) { Ok(()) } else { Err(None) }
        }
        KeysNeeded::Named => {
            let positions = spec.key_positions(arg_count);
            let mut keys = args.take(positions.end).skip(positions.start);
            keys.find(|key| !access.permits_key(key_type, key)).map_or(Ok(()), |key| Err(Some(key)))
        }
    }
}
