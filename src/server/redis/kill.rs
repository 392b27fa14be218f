//! CLIENT KILL.
//!
//! In: an address, or filters. Out: disconnected clients. The clients are visited in batches, and the worker serves its
//! other connections between batches.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use tracing::info;

use super::Out;
use super::clients::{CLIENTS_PER_BATCH, Clients, LINE_STEPS, RedisClient};
use super::text::quoted;
use super::work::{Filters, Kill, Killing, Outcome, Work, WorkStep};
use crate::counted::counted;
use crate::protocol::resp::{Args, integer};
use crate::server::sockets::peer::Peer;
use crate::server::state::server::ServerState;
use crate::server::users::Users;
use crate::sync::unpoisoned;

/// The cost, in steps, of disconnecting a client.
const KILL_STEPS: usize = 20;

impl Filters {
    fn parse(mut args: Args<'_>, users: &Users) -> Result<Filters, String> {
        if args.clone().count() == 1 {
            let address = args.next().map(<[u8]>::to_vec);
            return Ok(Filters { address, is_address_only: true, ..Filters::default() });
        }
        let mut filters = Filters { skips_self: true, ..Filters::default() };
        while let Some(name) = args.next() {
            let value = args.next().ok_or("ERR syntax error")?;
            match name.to_ascii_uppercase().as_slice() {
                b"ID" => {
                    let id = integer(value).and_then(|id| u64::try_from(id).ok()).filter(|id| *id > 0);
                    filters.id = Some(id.ok_or("ERR client-id should be greater than 0")?);
                }
                b"TYPE" => match value.to_ascii_lowercase().as_slice() {
                    b"normal" => {}
                    b"master" | b"replica" | b"slave" | b"pubsub" => filters.is_none = true,
                    _ => return Err(format!("ERR Unknown client type {}", quoted(value))),
                },
                b"ADDR" => filters.address = Some(value.to_vec()),
                b"LADDR" => filters.local_address = Some(value.to_vec()),
                b"USER" => match users.get(value) {
                    Some(user) => filters.user = Some(user.name.clone()),
                    None => return Err(format!("ERR No such user {}", quoted(value))),
                },
                b"SKIPME" => match value.to_ascii_lowercase().as_slice() {
                    b"yes" => filters.skips_self = true,
                    b"no" => filters.skips_self = false,
                    _ => return Err("ERR syntax error".to_owned()),
                },
                b"MAXAGE" => {
                    let age_s = integer(value).ok_or("ERR maxage is not an integer or out of range")?;
                    let age_s = u64::try_from(age_s).ok().filter(|age_s| *age_s > 0);
                    filters.older_than_s = Some(age_s.ok_or("ERR maxage should be greater than 0")?);
                }
                _ => return Err("ERR syntax error".to_owned()),
            }
        }
        Ok(filters)
    }

    /// Returns the cost, in steps, of comparing a client with the filters.
    fn steps(&self) -> usize {
        if self.address.is_some() || self.local_address.is_some() { LINE_STEPS } else { 1 }
    }

    fn has(&self, client: &RedisClient, server: &ServerState) -> bool {
        let is_address = |wanted: &Option<Vec<u8>>, address: &dyn Fn() -> String| {
            wanted.as_ref().is_none_or(|wanted| *wanted == address().as_bytes())
        };
        !self.is_none
            && self.id.is_none_or(|id| id == client.id())
            && self.user.as_ref().is_none_or(|user| client.is_user(user))
            && self.older_than_s.is_none_or(|age_s| client.age_s() > age_s)
            && is_address(&self.address, &|| client.address(&server.settings))
            && is_address(&self.local_address, &|| client.local_address(&server.settings))
    }
}

/// Begins CLIENT KILL.
///
/// # Errors
/// The text of the error reply, if an argument is not valid.
pub(super) fn kill(args: Args<'_>, users: &Users) -> Result<Outcome, String> {
    let filters = Filters::parse(args, users)?;
    let after_id = filters.id.map_or(0, |id| id - 1);
    let killing = Arc::new(Mutex::new(Killing { filters, after_id, killed: 0, is_reported: false, kills_self: false }));
    Ok(Outcome::Work(Work::Kill(Kill { is_committed: false, killing })))
}

impl Kill {
    /// Disconnects the next matching clients. After the last client, writes the reply.
    ///
    /// # Errors
    /// If the command has only an address, and no client has this address.
    pub(super) fn more(
        &mut self,
        clients: &Clients,
        (own_id, peer): (u64, Peer),
        server: &ServerState,
        out: &mut Out<'_>,
    ) -> Result<WorkStep, String> {
        if !std::mem::replace(&mut self.is_committed, true) {
            return Ok(WorkStep::Yield);
        }
        let killing = &mut *unpoisoned(&self.killing);
        loop {
            let batch = clients.after(killing.after_id);
            out.sink().steps().add(batch.len() * killing.filters.steps());
            for client in &batch {
                killing.after_id = client.id();
                if killing.filters.has(client, server) && !(killing.filters.skips_self && client.id() == own_id) {
                    out.sink().steps().add(KILL_STEPS);
                    let is_own = client.id() == own_id;
                    killing.kills_self |= is_own;
                    killing.killed += u64::from(is_own || client.disconnect());
                }
            }
            if batch.len() < CLIENTS_PER_BATCH || killing.filters.id.is_some_and(|id| id <= killing.after_id) {
                break;
            }
            if out.sink().steps().is_pass_over() {
                return Ok(WorkStep::Yield);
            }
        }
        let killed = killing.killed;
        if killed > 0 && !std::mem::replace(&mut killing.is_reported, true) {
            server.statistics.totals.cut_killed.fetch_add(killed, Ordering::Relaxed);
            if let Some(left_out) = clients.kill_log.line() {
                let connections = counted(killed, "connection");
                info!(%peer, left_out, "disconnected: {connections}, which this client ended with CLIENT KILL");
            }
        }
        match killed {
            0 if killing.filters.is_address_only => return Err("ERR No such client".to_owned()),
            _ if killing.filters.is_address_only => out.ok(),
            killed => out.integer(killed as i64),
        }
        Ok(if killing.kills_self { WorkStep::Close } else { WorkStep::Done })
    }
}
