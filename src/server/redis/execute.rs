//! Executes commands.
//!
//! In: one complete command. Out: its reply, or the work that is left.

use super::lookup::TextLookup;
use super::order::{self, RangeCommand};
use super::subscriptions::is_allowed_with_subscriptions;
use super::work::{KeysOf, Outcome, Work, WorkStep};
use super::{
    COMMAND_STEPS, Out, Replied, Session, acl, clients, cluster, commands, hashes, info, keyspace, login, strings,
    transaction,
};
use crate::Lookup;
use crate::protocol::resp::commands::{ARGS_MAX_AT_ONCE, Id, Refusal, Spec, find_full, help, is_http, resolve};
use crate::protocol::resp::{Args, Command, Reply};
use crate::server::facts::{Snapshot, digest_text};
use crate::server::responses::Responses;
use crate::server::table::Generation;

impl Session {
    pub(super) fn execute(
        &mut self,
        generation: &Generation,
        command: &Command<'_>,
        responses: &mut Responses,
    ) -> Outcome {
        self.counted.commands += 1;
        responses.steps().add(COMMAND_STEPS);
        let mut out = Reply::new(responses, self.state.version);
        let spec = match resolve(command) {
            Ok(spec) => spec,
            Err(refusal) => {
                self.counted.errors += 1;
                if is_http(command.name()) {
                    self.counted.is_http = true;
                    return Outcome::Close;
                }
                let is_exec = matches!(refusal, Refusal::ArgCount("exec"));
                let text = self.refusal_text(&refusal, command);
                out.error(self.state.transaction.reject(is_exec, text));
                return Outcome::Done;
            }
        };
        self.client.set_last_command(spec.id);
        // This command reads all its arguments in this pass, so their steps are counted here. A command that accepts
        // more arguments reads them in several passes, and each pass counts the steps of the arguments that it reads.
        if spec.args_max == ARGS_MAX_AT_ONCE {
            out.sink().steps().add(command.arg_count());
            out.sink().steps().add_bytes(command.bytes().len());
        }
        if !self.access.is_unrestricted(&self.worker.server.users) {
            match self.check(generation.store.key_type(), spec, command, &mut out) {
                Ok(None) => {}
                Ok(Some(work)) => {
                    // The command is counted when all its keys have been checked.
                    self.counted.commands -= 1;
                    return Outcome::Work(work);
                }
                Err(denied) => return self.deny(denied, spec, &mut out),
            }
        }
        self.execute_permitted(generation, spec, command, &mut out)
    }

    /// Executes or queues a command that is permitted, unless another node of the cluster has its keys.
    pub(super) fn execute_permitted(
        &mut self,
        generation: &Generation,
        spec: &'static Spec,
        command: &Command<'_>,
        out: &mut Out<'_>,
    ) -> Outcome {
        if self.cluster.is_some()
            && let Some(outcome) = self.check_slots(generation, spec, command, out)
        {
            return outcome;
        }
        self.execute_routed(generation, spec, command, out)
    }

    /// Executes or queues a command whose keys this node has.
    pub(super) fn execute_routed(
        &mut self,
        generation: &Generation,
        spec: &'static Spec,
        command: &Command<'_>,
        out: &mut Out<'_>,
    ) -> Outcome {
        let shown_before_bytes = self.shown.len();
        if self.is_confined() && !is_allowed_with_subscriptions(spec) && !self.state.transaction.is_executing() {
            self.counted.errors += 1;
            let text = format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
                 this context",
                spec.name
            );
            out.error(self.state.transaction.reject(spec.id == Id::Exec, text.into_bytes()));
            return Outcome::Done;
        }
        if self.state.tracking.is_on() && !spec.name.starts_with("client|") && spec.id != Id::Exec {
            self.end_caching();
        }
        let executed = if self.state.transaction.is_queueing() && !transaction::is_immediate(spec) {
            self.queue(command, out).map(|()| Outcome::Done)
        } else {
            if self.is_monitored {
                self.show_command(spec, command, out);
            }
            self.execute_known(generation, spec, command, out)
        };
        match executed {
            Ok(Outcome::Delay(until)) => {
                // The command is executed again after the delay, and is counted and shown to monitors then.
                self.shown.truncate(shown_before_bytes);
                self.counted.commands -= 1;
                Outcome::Delay(until)
            }
            Ok(outcome) => outcome,
            Err(problem) => {
                self.counted.errors += 1;
                out.error(problem);
                Outcome::Done
            }
        }
    }

    /// Executes a command that the server supports.
    fn execute_known(
        &mut self,
        generation: &Generation,
        spec: &'static Spec,
        command: &Command<'_>,
        out: &mut Out<'_>,
    ) -> Result<Outcome, String> {
        let server = &*self.worker.server;
        let (store, counted) = (&generation.store, &mut self.counted);
        let lookup = TextLookup { store, foreign_keys: server.settings.foreign_keys };
        let args = args_of(spec, command);
        if let Some(missing) = spec.missing {
            let Some(fields) = &generation.fields else {
                hashes::execute_on_strings(lookup, missing, command, counted, out)?;
                return Ok(Outcome::Done);
            };
            let random = self.random.next();
            return hashes::execute(lookup, fields, (spec.id, missing), command, random, counted, out);
        }
        match spec.id {
            Id::Get => strings::get(lookup, args, counted, out)?,
            Id::MGet => return Ok(strings::check_keys(args, KeysOf::MGet)),
            Id::Exists => return Ok(strings::check_keys(args, KeysOf::Exists)),
            Id::StrLen => strings::strlen(lookup, args, counted, out)?,
            Id::GetRange => strings::get_range(lookup, args, counted, out)?,
            Id::Type => strings::type_of(lookup, args, out)?,
            Id::GetBit => strings::get_bit(lookup, args, counted, out)?,
            Id::Touch => return Ok(strings::check_keys(args, KeysOf::Exists)),
            Id::Ttl | Id::PTtl | Id::ExpireTime | Id::PExpireTime => strings::time_to_live(lookup, args, out)?,
            Id::ObjectEncoding => match &generation.fields {
                Some(fields) => hashes::encoding(lookup, fields, args, out)?,
                None => strings::encoding(lookup, args, out)?,
            },
            Id::HExists
            | Id::HGet
            | Id::HGetAll
            | Id::HKeys
            | Id::HLen
            | Id::HMGet
            | Id::HRandField
            | Id::HScan
            | Id::HStrLen
            | Id::HVals => unreachable!("commands that read hashes have a reply to missing keys"),
            Id::MemoryUsage => strings::memory_usage(lookup, args, out)?,
            Id::DbSize => out.integer(store.len() as i64),
            Id::RandomKey => {
                let random = self.random.next();
                keyspace::random_key(store, random, out)?;
            }
            Id::Scan => keyspace::scan(store, args, out)?,
            Id::Keys => return keyspace::keys(store, args, out),
            Id::ZkvFloor => order::neighbor(store, true, args, out)?,
            Id::ZkvCeiling => order::neighbor(store, false, args, out)?,
            Id::ZkvCover => order::cover(store, args, out)?,
            Id::ZkvRange => order::range_or_count(store, RangeCommand::range(store.key_type(), args), out)?,
            Id::ZkvCount => order::range_or_count(store, RangeCommand::count(store.key_type(), args), out)?,
            Id::ZkvGeneration => push_generation(generation, out),
            Id::Ping => login::ping(self.is_confined(), args, out)?,
            Id::Echo => login::echo(args, out),
            Id::Time => info::time(out),
            Id::Info => {
                out.sink().steps().add(Snapshot::steps(server));
                info::info(server, &self.clients, self.access.permits_all_keys(), args, out);
            }
            Id::ConfigGet => info::config_get(server, args, out)?,
            Id::Select => login::select(server.settings.source.cluster.is_some(), args, out)?,
            Id::Auth => return self.auth(args, out),
            Id::Hello => return self.hello(args, out),
            Id::Reset => self.reset(out),
            Id::Multi => self.multi(out)?,
            Id::Exec => {
                let executed = self.exec(generation, out);
                self.show_exec();
                executed?;
            }
            Id::Discard => self.discard(out)?,
            Id::Watch => self.watch(generation, out)?,
            Id::Unwatch => self.unwatch(out),
            Id::Quit => {
                out.ok();
                return Ok(Outcome::Close);
            }
            Id::Command => return Ok(commands::all(out)),
            Id::CommandCount => commands::count(out),
            Id::CommandList => commands::list(args, out)?,
            Id::CommandInfo => return Ok(commands::info(args, command, out)),
            Id::CommandDocs => return Ok(commands::docs(args, command, out)),
            Id::CommandGetKeys => return commands::get_keys(args, command, out),
            Id::ClientId => out.integer(self.client.id() as i64),
            Id::ClientGetName => clients::get_name(&self.client, out),
            Id::ClientSetName => clients::set_name(&self.client, args, out)?,
            Id::ClientSetInfo => clients::set_info(&self.client, args, out)?,
            Id::ClientInfo => clients::info(&self.client, &server.settings, out),
            Id::ClientList => return clients::list(args),
            Id::ClientNoEvict | Id::ClientNoTouch => login::on_or_off(args, out)?,
            Id::AclWhoAmI => acl::who_am_i(&self.access, &server.users, out),
            Id::AclList => return Ok(acl::list(&server.users, true, out)),
            Id::AclUsers => return Ok(acl::list(&server.users, false, out)),
            Id::AclGetUser => acl::get_user(&server.users, args, out),
            Id::AclCat => acl::cat(args, out)?,
            Id::AclDryRun => self.dry_run(store.key_type(), args, command, out)?,
            Id::Role => self.role(out),
            Id::Wait => cluster::wait(args, out)?,
            Id::ClusterHelp if self.cluster.is_some() => push_help(spec, out),
            Id::ReadOnly
            | Id::ReadWrite
            | Id::Asking
            | Id::ClusterCountKeysInSlot
            | Id::ClusterGetKeysInSlot
            | Id::ClusterHelp
            | Id::ClusterInfo
            | Id::ClusterKeySlot
            | Id::ClusterMyId
            | Id::ClusterNodes
            | Id::ClusterReplicas
            | Id::ClusterShards
            | Id::ClusterSlots => return self.execute_about_cluster(generation, spec, args, out),
            Id::ClientKill => {
                self.require_admin(spec)?;
                return clients::kill(args, &server.users);
            }
            Id::Monitor => {
                self.require_admin(spec)?;
                self.start_monitor(out)?;
            }
            Id::SlowLogGet => info::slow_log(args, out)?,
            Id::SlowLogLen => out.integer(0),
            Id::SlowLogReset => out.ok(),
            Id::LatencyLatest | Id::ModuleList => out.array(0),
            Id::LatencyHistogram => out.map(0),
            Id::MemoryStats => info::memory_stats(server, out),
            Id::LastSave => info::last_save(server, out),
            Id::Subscribe | Id::PSubscribe | Id::SSubscribe => self.subscribe(spec, args, out)?,
            Id::Unsubscribe | Id::PUnsubscribe | Id::SUnsubscribe => self.unsubscribe(spec, args, out),
            Id::ClientTracking => self.track(generation, args, out)?,
            Id::ClientCaching => self.caching(args, out)?,
            Id::ClientTrackingInfo => self.tracking_info(out),
            Id::ClientGetRedir => self.tracking_redirect(out),
            Id::Acl
            | Id::Config
            | Id::Client
            | Id::Memory
            | Id::Object
            | Id::SlowLog
            | Id::Latency
            | Id::Module
            | Id::Cluster => {
                return Err(Refusal::ArgCount(spec.name).to_string());
            }
            Id::AclHelp
            | Id::ConfigHelp
            | Id::CommandHelp
            | Id::ClientHelp
            | Id::MemoryHelp
            | Id::ObjectHelp
            | Id::SlowLogHelp
            | Id::LatencyHelp
            | Id::ModuleHelp => push_help(spec, out),
        }
        Ok(Outcome::Done)
    }

    fn require_admin(&self, spec: &Spec) -> Replied {
        // If the client has logged in, `execute` has already checked that its user may run the command.
        let users = &self.worker.server.users;
        if self.peer.is_admin() || users.path().is_some() && self.access.is_named_user() {
            return Ok(());
        }
        Err(format!(
            "NOPERM this user has no permissions to run the '{}' command: connect to the Unix socket as root or as the \
             user that runs kv_store",
            spec.name
        ))
    }

    /// Continues a command as long as there is room for its reply.
    pub(super) fn step(
        &mut self,
        generation: &Generation,
        command: &Command<'_>,
        work: &mut Work,
        responses: &mut Responses,
    ) -> WorkStep {
        let store = &generation.store;
        let out = &mut Reply::new(responses, self.state.version);
        if let Work::CheckAccess { .. } = work {
            return self.more_of_check(generation, command, work, out);
        }
        if let Work::CheckSlots { .. } = work {
            return self.more_of_slots(generation, command, work, out);
        }
        let counted = &mut self.counted;
        let lookup = TextLookup { store, foreign_keys: self.worker.server.settings.foreign_keys };
        let step = match work {
            Work::CheckAccess { .. } | Work::CheckSlots { .. } => Ok(WorkStep::Done),
            Work::Users(list) => Ok(list.more(out)),
            Work::CheckKeys { next_arg, of } => {
                strings::more_of_check_keys(lookup, command, next_arg, *of, out).map(|next| match next {
                    None => WorkStep::Yield,
                    Some(next) => {
                        *work = next;
                        WorkStep::Next
                    }
                })
            }
            Work::MGet { next_arg } => Ok(strings::more_of_mget(lookup, command, next_arg, counted, out)),
            Work::Exists { next_arg, count } => strings::more_of_exists(lookup, command, next_arg, count, counted, out),
            Work::Hash(reply) => Ok(hashes::more(reply, lookup, generation.fields.as_ref(), command, out)),
            Work::Keys(keys) => Ok(keys.more(store, command, out)),
            Work::SlotCounts(_) => keyspace::more_of_slot(work, generation, out),
            Work::Commands(described) => Ok(described.more(command, out)),
            Work::GetKeys(keys) => Ok(keys.more(command, out)),
            Work::List(list) => list.more(&self.clients, &self.worker.server.settings, out),
            Work::Kill(kill) => kill.more(&self.clients, (self.client.id(), self.peer), &self.worker.server, out),
        };
        step.unwrap_or_else(|problem| {
            counted.errors += 1;
            out.error(problem);
            WorkStep::Done
        })
    }
}

fn push_generation(generation: &Generation, out: &mut Out<'_>) {
    out.array(2);
    out.integer(generation.number as i64);
    out.bulk(digest_text(generation.store.digest()).as_bytes());
}

/// Replies to a HELP subcommand with the help text of its command.
fn push_help(spec: &Spec, out: &mut Out<'_>) {
    if let Some(container) = spec.name.split('|').next().and_then(|name| find_full(name.as_bytes())) {
        help(container, out);
    }
}

/// Returns the arguments after the name of a command, or after the name of its subcommand if it has one.
fn args_of<'a>(spec: &Spec, command: &Command<'a>) -> Args<'a> {
    let mut args = command.args();
    args.next();
    if spec.name.contains('|') {
        args.next();
    }
    args
}
