//! Commands about the connection.

use super::clients::{NOT_QUEUEING, Names, valid_name};
use super::text::quoted;
use super::{Out, Session};
use crate::protocol::resp::{Args, Version, integer};

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

pub(super) fn ping(mut args: Args<'_>, out: &mut Out<'_>) -> Result<(), String> {
    match (args.next(), args.next()) {
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
pub(super) fn select(mut args: Args<'_>, out: &mut Out<'_>) -> Result<(), String> {
    match integer(args.next().unwrap_or_default()) {
        Some(0) => out.ok(),
        Some(_) => return Err("ERR DB index is out of range".to_owned()),
        None => return Err("ERR value is not an integer or out of range".to_owned()),
    }
    Ok(())
}

/// Replies like a Redis without a password: the user `default` needs no password, and there is no other user.
pub(super) fn auth(mut args: Args<'_>, out: &mut Out<'_>) -> Result<(), String> {
    match (args.next(), args.next(), args.next()) {
        (Some(user), Some(_), None) => authenticate(user)?,
        (_, _, Some(_)) => return Err("ERR syntax error".to_owned()),
        _ => {
            return Err("ERR AUTH <password> called without any password configured for the default user. \
                        Are you sure your configuration is correct?"
                .to_owned());
        }
    }
    out.ok();
    Ok(())
}

fn authenticate(user: &[u8]) -> Result<(), String> {
    if user == b"default" { Ok(()) } else { Err(WRONG_PASSWORD.to_owned()) }
}

/// Replies to CLIENT NO-EVICT and CLIENT NO-TOUCH, which have no effect: the limit on client memory applies to all
/// clients, and accesses to keys are not recorded.
pub(super) fn on_or_off(mut args: Args<'_>, out: &mut Out<'_>) -> Result<(), String> {
    match args.next().unwrap_or_default().to_ascii_lowercase().as_slice() {
        b"on" | b"off" => out.ok(),
        _ => return Err("ERR syntax error".to_owned()),
    }
    Ok(())
}

impl Session {
    pub(super) fn hello(&mut self, mut args: Args<'_>, out: &mut Out<'_>) -> Result<(), String> {
        let version = match args.next() {
            None => self.state.version,
            Some(version) => match integer(version) {
                Some(2) => Version::Resp2,
                Some(3) => Version::Resp3,
                Some(_) => return Err("NOPROTO unsupported protocol version".to_owned()),
                None => return Err("ERR Protocol version is not an integer or out of range".to_owned()),
            },
        };
        while let Some(option) = args.next() {
            let (first, mut rest) = (args.next(), args.clone());
            match (first, rest.next()) {
                (Some(user), Some(_)) if option.eq_ignore_ascii_case(b"AUTH") => {
                    authenticate(user)?;
                    args = rest;
                }
                (Some(name), _) if option.eq_ignore_ascii_case(b"SETNAME") => {
                    self.client.names().name = valid_name("Client names", name)?;
                }
                _ => return Err(format!("ERR Syntax error in HELLO option {}", quoted(option))),
            }
        }
        self.speak(version);
        out.set_version(version);
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
        text(out, "mode", "standalone");
        // The role is `master` although nothing is replicated. With another role, clients that search for the master
        // would never stop searching.
        text(out, "role", "master");
        out.bulk(b"modules");
        out.array(0);
        Ok(())
    }

    pub(super) fn reset(&mut self, out: &mut Out<'_>) {
        self.state.transaction.clear();
        self.state.is_monitor = false;
        self.client.set_queued(NOT_QUEUEING);
        *self.client.names() = Names::default();
        self.speak(Version::default());
        out.set_version(Version::default());
        out.simple("RESET");
    }

    fn speak(&mut self, version: Version) {
        self.state.version = version;
        self.client.set_version(version);
    }
}
