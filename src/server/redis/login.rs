//! Logins: AUTH, HELLO with its option AUTH, and RESET.

use super::clients::{NOT_QUEUEING, Names, valid_name};
use super::keys::quoted;
use super::subscriptions::Subscriptions;
use super::work::Outcome;
use super::{NOT_AN_INTEGER, Out, Replied, SYNTAX, Session};
use crate::protocol::resp::{Args, Reply, Version, integer};
use crate::server::responses::Responses;
use crate::server::users::{Access, LoginFailed};

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const HELLO_UNAUTHENTICATED: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
                                     HELLO AUTH <user> <pass> option can be used to authenticate the client and select \
                                     the RESP protocol version at the same time";

/// The cost, in steps, of hashing a password of maximum length.
const LOGIN_STEPS: usize = 60;

impl Session {
    pub(super) fn auth(&mut self, mut args: Args<'_>, out: &mut Out<'_>) -> Result<Outcome, String> {
        let (user, password) = match (args.next(), args.next(), args.next()) {
            (Some(user), Some(password), None) => (user, password),
            (Some(password), None, _) => {
                if self.worker.server.users.get(b"default").is_some_and(|user| user.is_nopass) {
                    return Err("ERR AUTH <password> called without any password configured for the default user. \
                                Are you sure your configuration is correct?"
                        .to_owned());
                }
                (&b"default"[..], password)
            }
            _ => return Err(SYNTAX.to_owned()),
        };
        match self.log_in(user, password, out) {
            Ok(()) => out.ok(),
            Err(LoginFailed::Delayed(until)) => return Ok(Outcome::Delay(until)),
            Err(LoginFailed::Now) => return Err(WRONG_PASSWORD.to_owned()),
        }
        Ok(Outcome::Done)
    }

    fn log_in(&mut self, user: &[u8], password: &[u8], out: &mut Out<'_>) -> Result<(), LoginFailed> {
        let server = &self.worker.server;
        out.sink().steps().add(LOGIN_STEPS);
        let mut access = self.access.clone();
        match access.log_in(&server.users, user, password, &mut self.state.attempts) {
            Ok(()) => self.set_access(access),
            Err(LoginFailed::Now) => {
                server.users.report_failed_login(&self.peer, user, &server.statistics.totals);
                return Err(LoginFailed::Now);
            }
            Err(delayed) => return Err(delayed),
        }
        Ok(())
    }

    pub(super) fn hello(&mut self, mut args: Args<'_>, out: &mut Out<'_>) -> Result<Outcome, String> {
        let version = match args.next() {
            None => self.state.version,
            Some(version) => match integer(version) {
                Some(2) => Version::Resp2,
                Some(3) => Version::Resp3,
                Some(_) => return Err("NOPROTO unsupported protocol version".to_owned()),
                None => return Err("ERR Protocol version is not an integer or out of range".to_owned()),
            },
        };
        // As in Redis, each option takes effect before the next one is read.
        while let Some(option) = args.next() {
            let (first, mut rest) = (args.next(), args.clone());
            match (first, rest.next()) {
                (Some(user), Some(password)) if option.eq_ignore_ascii_case(b"AUTH") => {
                    match self.log_in(user, password, out) {
                        Ok(()) => args = rest,
                        Err(LoginFailed::Delayed(until)) => return Ok(Outcome::Delay(until)),
                        Err(LoginFailed::Now) => return Err(WRONG_PASSWORD.to_owned()),
                    }
                }
                (Some(name), _) if option.eq_ignore_ascii_case(b"SETNAME") => {
                    self.client.names().name = valid_name("Client names", name)?;
                }
                _ => return Err(format!("ERR Syntax error in HELLO option {}", quoted(option))),
            }
        }
        if !self.access.is_authenticated() {
            return Err(HELLO_UNAUTHENTICATED.to_owned());
        }
        self.speak(version);
        out.set_version(version);
        self.push_hello(version, out);
        Ok(Outcome::Done)
    }

    fn push_hello(&self, version: Version, out: &mut Out<'_>) {
        out.map(7);
        let text = |out: &mut Out<'_>, name: &str, value: &str| {
            out.bulk(name.as_bytes());
            out.bulk(value.as_bytes());
        };
        text(out, "server", "zero-kv");
        text(out, "version", super::info::REDIS_VERSION);
        out.bulk(b"proto");
        out.integer(if version == Version::Resp2 { 2 } else { 3 });
        out.bulk(b"id");
        out.integer(self.client.id() as i64);
        text(out, "mode", if self.cluster.is_some() { "cluster" } else { "standalone" });
        // Outside a cluster, the role is `master` although nothing is replicated. With another role, clients that
        // search for the master would never stop searching.
        text(out, "role", if self.is_replica() { "replica" } else { "master" });
        out.bulk(b"modules");
        out.array(0);
    }

    /// Resets the session to the state of a new connection. The delay of failed logins is not reset.
    pub(super) fn reset(&mut self, out: &mut Out<'_>) {
        self.state.transaction.clear();
        self.state.is_monitor = false;
        self.state.reads_replicas = false;
        self.set_subscriptions(Subscriptions::default());
        self.turn_tracking_off();
        self.client.set_reads_replicas(false);
        self.client.set_queued(NOT_QUEUEING);
        self.set_access(Access::new(&self.worker.server.users, self.peer.is_unix()));
        *self.client.names() = Names::default();
        self.speak(Version::default());
        out.set_version(Version::default());
        out.simple("RESET");
    }

    fn speak(&mut self, version: Version) {
        self.state.version = version;
        self.client.set_version(version);
    }

    /// Rejects an incomplete command that is too long for a client that must log in first.
    pub(super) fn refuse_unauthenticated(&mut self, responses: &mut Responses) {
        (self.counted.commands, self.counted.errors) = (self.counted.commands + 1, self.counted.errors + 1);
        Reply::new(responses, self.state.version).error("ERR Protocol error: unauthenticated bulk length");
    }
}

/// Replies to PING. A client with subscriptions that uses RESP2 gets the reply in the form of a message.
pub(super) fn ping(is_confined: bool, mut args: Args<'_>, out: &mut Out<'_>) -> Replied {
    match (args.next(), args.next()) {
        (message, None) if is_confined => {
            out.array(2);
            out.bulk(b"pong");
            out.bulk(message.unwrap_or_default());
        }
        (None, _) => out.simple("PONG"),
        (Some(message), None) => out.bulk(message),
        _ => return Err("ERR wrong number of arguments for 'ping' command".to_owned()),
    }
    Ok(())
}

pub(super) fn echo(mut args: Args<'_>, out: &mut Out<'_>) {
    out.bulk(args.next().unwrap_or_default());
}

/// Selects database 0, which is the only database.
pub(super) fn select(is_cluster: bool, mut args: Args<'_>, out: &mut Out<'_>) -> Replied {
    match integer(args.next().unwrap_or_default()) {
        Some(0) => out.ok(),
        Some(_) if is_cluster => return Err("ERR SELECT is not allowed in cluster mode".to_owned()),
        Some(_) => return Err("ERR DB index is out of range".to_owned()),
        None => return Err(NOT_AN_INTEGER.to_owned()),
    }
    Ok(())
}

/// Replies to CLIENT NO-EVICT and CLIENT NO-TOUCH, which have no effect: the limit on client memory applies to all
/// clients, and accesses to keys are not recorded.
pub(super) fn on_or_off(mut args: Args<'_>, out: &mut Out<'_>) -> Replied {
    match args.next().unwrap_or_default().to_ascii_lowercase().as_slice() {
        b"on" | b"off" => out.ok(),
        _ => return Err(SYNTAX.to_owned()),
    }
    Ok(())
}
