//! The clients that speak the Redis protocol, and the CLIENT command.
//!
//! In: connections as they begin and end, and filters. Out: lines that describe the clients, and disconnected clients.
//! The list of clients is locked only when a client connects or disconnects, and by CLIENT LIST, CLIENT KILL, and INFO.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use tracing::info;

use super::keys::quoted;
use super::monitor::Monitors;
use super::tracking::SharedTracking;
use super::work::{Filters, Kill, Killing, List, Listed, LongListPermit, Outcome, Unsent, Work, WorkStep};
use super::{Out, Replied, SYNTAX};
use crate::counted::counted;
use crate::protocol::resp::commands::{Id, Spec, all_commands};
use crate::protocol::resp::{Args, Reply, Version, integer};
use crate::server::clients::registry::Registry;
use crate::server::clients::{Activity, Waits};
use crate::server::process::log_queue::LogLimit;
use crate::server::sockets::Peer;
use crate::server::state::{ServerState, Settings};
use crate::server::users::Users;
use crate::sync::unpoisoned;

/// The maximum length of each name that a client sets: its own name, its library's name, and its library's version.
pub(super) const NAME_LEN_MAX_BYTES: usize = 128;
/// The maximum number of bytes of a CLIENT LIST reply that one pass sends.
const LIST_PASS_LEN_BYTES: usize = 32 << 10;
/// The number of clients that a pass visits before it checks whether other connections should have their turn.
pub(super) const CLIENTS_PER_BATCH: usize = 256;
/// The cost, in steps, of writing a client's line.
pub(super) const LINE_STEPS: usize = 20;
/// The maximum number of long CLIENT LIST replies that are held in memory at a time. A reply is long if one pass cannot
/// send it whole.
const LISTS_MAX: u64 = 4;

/// The argument of [`RedisClient::set_queued`] outside a transaction.
pub(super) const NOT_QUEUEING: i64 = -1;

#[derive(Default)]
pub(in crate::server) struct Clients {
    last_id: AtomicU64,
    connected: Mutex<BTreeMap<u64, Arc<RedisClient>>>,
    lists: Arc<AtomicU64>,
    /// Limits the log lines about commands that are longer than the buffer.
    pub(super) long_command_log: LogLimit,
    /// Limits the log lines about connections that sent HTTP.
    pub(super) http_log: LogLimit,
    /// Limits the log lines about CLIENT KILL.
    pub(super) kill_log: LogLimit,
    pub(super) monitors: Monitors,
    /// The number of clients that track keys for a cache.
    tracking: AtomicU64,
}

impl Clients {
    pub(super) fn add(&self, activity: &Arc<Activity>, registry: &Arc<Registry>, user: String) -> Arc<RedisClient> {
        let id = 1 + self.last_id.fetch_add(1, Ordering::Relaxed);
        let client = Arc::new(RedisClient {
            id,
            activity: Arc::clone(activity),
            registry: Arc::clone(registry),
            since: Instant::now(),
            active_after_s: AtomicU64::new(0),
            command: AtomicU8::new(Id::Get as u8),
            is_resp3: AtomicBool::new(false),
            is_monitor: AtomicBool::new(false),
            reads_replicas: AtomicBool::new(false),
            queued: AtomicI64::new(NOT_QUEUEING),
            names: Mutex::default(),
            user: Mutex::new(user),
            subscriptions: Default::default(),
            tracking: SharedTracking::default(),
        });
        self.connected().insert(id, Arc::clone(&client));
        client
    }

    pub(super) fn remove(&self, client: &RedisClient) {
        self.connected().remove(&client.id);
    }

    /// Returns the first clients whose IDs are greater than `id`, in the order of their IDs: at most
    /// [`CLIENTS_PER_BATCH`].
    pub(super) fn after(&self, id: u64) -> Vec<Arc<RedisClient>> {
        let connected = self.connected();
        let after = connected.range((Bound::Excluded(id), Bound::Unbounded));
        after.take(CLIENTS_PER_BATCH).map(|(_, client)| Arc::clone(client)).collect()
    }

    pub(in crate::server) fn count(&self) -> usize {
        self.connected().len()
    }

    pub(super) fn get(&self, id: i64) -> Option<Arc<RedisClient>> {
        self.connected().get(&u64::try_from(id).ok()?).map(Arc::clone)
    }

    /// Counts a client that begins or ends to track keys.
    pub(super) fn count_tracking(&self, is_on: bool) {
        match is_on {
            true => self.tracking.fetch_add(1, Ordering::Relaxed),
            false => self.tracking.fetch_sub(1, Ordering::Relaxed),
        };
    }

    pub(super) fn tracking_count(&self) -> u64 {
        self.tracking.load(Ordering::Relaxed)
    }

    fn connected(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<RedisClient>>> {
        unpoisoned(&self.connected)
    }
}

/// The data of a client that CLIENT LIST and CLIENT INFO report.
pub(super) struct RedisClient {
    id: u64,
    activity: Arc<Activity>,
    registry: Arc<Registry>,
    since: Instant,
    active_after_s: AtomicU64,
    /// The [`Id`] of the client's last command.
    command: AtomicU8,
    is_resp3: AtomicBool,
    is_monitor: AtomicBool,
    reads_replicas: AtomicBool,
    /// The number of commands since MULTI, or [`NOT_QUEUEING`].
    queued: AtomicI64,
    names: Mutex<Names>,
    user: Mutex<String>,
    /// The numbers of channels, patterns, and shard channels that the client has subscribed to.
    subscriptions: [AtomicUsize; 3],
    tracking: SharedTracking,
}

/// The names that a client sets with CLIENT SETNAME and CLIENT SETINFO.
#[derive(Default)]
pub(super) struct Names {
    pub(super) name: String,
    lib_name: String,
    lib_ver: String,
}

impl RedisClient {
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn names(&self) -> MutexGuard<'_, Names> {
        unpoisoned(&self.names)
    }

    pub(super) fn is_user(&self, name: &str) -> bool {
        *unpoisoned(&self.user) == name
    }

    pub(super) fn set_user(&self, user: String) {
        *unpoisoned(&self.user) = user;
    }

    pub(super) fn record_activity(&self) {
        self.active_after_s.store(self.since.elapsed().as_secs(), Ordering::Relaxed);
    }

    pub(super) fn set_last_command(&self, id: Id) {
        self.command.store(id as u8, Ordering::Relaxed);
    }

    pub(super) fn set_version(&self, version: Version) {
        self.is_resp3.store(version == Version::Resp3, Ordering::Relaxed);
    }

    pub(super) fn set_monitor(&self, is_monitor: bool) {
        self.is_monitor.store(is_monitor, Ordering::Relaxed);
    }

    pub(super) fn set_reads_replicas(&self, reads_replicas: bool) {
        self.reads_replicas.store(reads_replicas, Ordering::Relaxed);
    }

    /// Records the number of commands since MULTI, or [`NOT_QUEUEING`].
    pub(super) fn set_queued(&self, queued: i64) {
        self.queued.store(queued, Ordering::Relaxed);
    }

    pub(super) fn set_subscriptions(&self, counts: [usize; 3]) {
        self.subscriptions.iter().zip(counts).for_each(|(count, new)| count.store(new, Ordering::Relaxed));
    }

    fn subscription_counts(&self) -> [usize; 3] {
        self.subscriptions.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    fn is_subscriber(&self) -> bool {
        self.subscription_counts() != [0; 3]
    }

    #[inline]
    pub(super) fn tracking(&self) -> &SharedTracking {
        &self.tracking
    }

    /// Wakes the task of the connection.
    pub(super) fn wake(&self) {
        self.activity.wake();
    }

    /// Disconnects the client. Returns false if its connection has ended or is already being disconnected.
    pub(super) fn disconnect(&self) -> bool {
        self.registry.disconnect_one(&self.activity)
    }

    pub(super) fn age_s(&self) -> u64 {
        self.since.elapsed().as_secs()
    }

    /// Returns the address of the client as CLIENT LIST shows it. For a client of the Unix socket, the address is the
    /// socket's path followed by `:0`.
    pub(super) fn address(&self, settings: &Settings) -> String {
        self.activity.peer.address().map_or_else(|| socket_address(settings), |address| address.to_string())
    }

    /// Returns the listening address that the client has connected to.
    pub(super) fn local_address(&self, settings: &Settings) -> String {
        match settings.tcp {
            Some(tcp) if self.activity.peer.address().is_some() => tcp.to_string(),
            _ => socket_address(settings),
        }
    }

    /// Returns the client's flags in CLIENT LIST.
    fn flags(&self) -> String {
        let letters = |flags: &[(bool, &str)]| -> String {
            flags.iter().filter(|(is_set, _)| *is_set).map(|(_, letter)| *letter).collect()
        };
        let tracking = self.tracking.letters();
        let flags = letters(&[
            (self.is_monitor.load(Ordering::Relaxed), "O"),
            (self.is_subscriber(), "P"),
            (self.queued.load(Ordering::Relaxed) != NOT_QUEUEING, "x"),
            (true, &tracking),
            (self.activity.peer.is_unix(), "U"),
            (self.reads_replicas.load(Ordering::Relaxed), "r"),
        ]);
        if flags.is_empty() { "N".to_owned() } else { flags }
    }

    /// Returns the client's line in CLIENT INFO and CLIENT LIST.
    fn line(&self, settings: &Settings) -> String {
        let mut line = String::new();
        self.write_line(settings, &mut line);
        line
    }

    fn write_line(&self, settings: &Settings, line: &mut String) {
        let (peer, local, flags) = (self.address(settings), self.local_address(settings), self.flags());
        let (age_s, queued) = (self.age_s(), self.queued.load(Ordering::Relaxed));
        let held_bytes = self.activity.held_bytes();
        let (input_bytes, output_bytes) = match self.activity.waits() {
            Waits::Rest(bytes) => (bytes, 0),
            Waits::Client(bytes) => (0, bytes),
            Waits::Turn | Waits::Request => (0, 0),
        };
        let idle_s = age_s.saturating_sub(self.active_after_s.load(Ordering::Relaxed));
        let resp = if self.is_resp3.load(Ordering::Relaxed) { 3 } else { 2 };
        let (names, user) = (self.names(), unpoisoned(&self.user));
        let ([channels, patterns, shard_channels], redirect) = (self.subscription_counts(), self.tracking.redirect());
        let command = command_name(self.command.load(Ordering::Relaxed));
        let Names { name, lib_name, lib_ver } = &*names;
        // Unknown values are 0, because clients expect all fields of Redis, and fail if one is missing. Writing to a
        // string cannot fail.
        let _ = writeln!(
            line,
            "id={} addr={peer} laddr={local} fd=0 name={name} age={age_s} idle={idle_s} flags={flags} db=0 \
             sub={channels} psub={patterns} ssub={shard_channels} multi={queued} qbuf={input_bytes} qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 \
             obl={output_bytes} oll=0 omem=0 tot-mem={held_bytes} \
             events=r cmd={command} user={user} redir={redirect} resp={resp} lib-name={lib_name} lib-ver={lib_ver}",
            self.id
        );
    }
}

fn socket_address(settings: &Settings) -> String {
    format!("{}:0", settings.socket.display())
}

/// Returns the name of the command whose [`Id`] has this number, or an empty string if there is no such command.
fn command_name(id: u8) -> &'static str {
    let is = |spec: &&Spec| spec.id as u8 == id;
    let mut all = all_commands();
    all.find(is).map_or("", |spec| spec.name)
}

/// Checks a name that a client chose.
pub(super) fn valid_name(what: &str, name: &[u8]) -> Result<String, String> {
    if name.len() > NAME_LEN_MAX_BYTES {
        return Err(format!("ERR {what} cannot be longer than {NAME_LEN_MAX_BYTES} bytes."));
    }
    match std::str::from_utf8(name) {
        Ok(name) if name.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(name.to_owned()),
        _ => Err(format!("ERR {what} cannot contain spaces, newlines or special characters.")),
    }
}

pub(super) fn get_name(client: &RedisClient, out: &mut Out<'_>) {
    match client.names().name.as_str() {
        "" => out.null(),
        name => out.bulk(name.as_bytes()),
    }
}

/// Replies to CLIENT INFO with the line of the client that sent the command.
pub(super) fn info(client: &RedisClient, settings: &Settings, out: &mut Out<'_>) {
    out.sink().steps().add(LINE_STEPS);
    out.verbatim(&client.line(settings));
}

pub(super) fn set_name(client: &RedisClient, mut args: Args<'_>, out: &mut Out<'_>) -> Replied {
    client.names().name = valid_name("Client names", args.next().unwrap_or_default())?;
    out.ok();
    Ok(())
}

pub(super) fn set_info(client: &RedisClient, mut args: Args<'_>, out: &mut Out<'_>) -> Replied {
    let (option, value) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
    if option.eq_ignore_ascii_case(b"LIB-NAME") {
        client.names().lib_name = valid_name("lib-name", value)?;
    } else if option.eq_ignore_ascii_case(b"LIB-VER") {
        client.names().lib_ver = valid_name("lib-ver", value)?;
    } else {
        return Err(format!("ERR Unrecognized option {}", quoted(option)));
    }
    out.ok();
    Ok(())
}

impl Listed {
    fn parse(mut args: Args<'_>) -> Result<Self, String> {
        let Some(option) = args.next() else { return Ok(Listed::All) };
        if option.eq_ignore_ascii_case(b"ID") {
            let ids: Option<Vec<i64>> = args.map(integer).collect();
            let mut ids = ids.ok_or("ERR Invalid client ID")?;
            ids.sort_unstable();
            return if ids.is_empty() { Err(SYNTAX.to_owned()) } else { Ok(Listed::Ids(ids)) };
        }
        match (args.next(), args.next()) {
            (Some(kind), None) if option.eq_ignore_ascii_case(b"TYPE") => match kind.to_ascii_lowercase().as_slice() {
                b"normal" => Ok(Listed::Subscribers(false)),
                b"pubsub" => Ok(Listed::Subscribers(true)),
                b"master" | b"replica" | b"slave" => Ok(Listed::None),
                _ => Err(format!("ERR Unknown client type {}", quoted(kind))),
            },
            _ => Err(SYNTAX.to_owned()),
        }
    }

    fn has(&self, client: &RedisClient) -> bool {
        match self {
            Listed::All => true,
            Listed::None => false,
            Listed::Subscribers(are_listed) => client.is_subscriber() == *are_listed,
            Listed::Ids(ids) => ids.binary_search(&(client.id as i64)).is_ok(),
        }
    }
}

pub(super) fn list(args: Args<'_>) -> Result<Outcome, String> {
    let list = Unsent { listed: Listed::parse(args)?, after_id: 0, bytes: Vec::new(), is_whole: false, held: None };
    Ok(Outcome::Work(Work::List(List { unsent: Arc::new(Mutex::new(list)), sent_bytes: 0 })))
}

impl LongListPermit {
    fn new(lists: &Arc<AtomicU64>) -> Option<LongListPermit> {
        let held = LongListPermit(Arc::clone(lists));
        (lists.fetch_add(1, Ordering::Relaxed) < LISTS_MAX).then_some(held)
    }
}

impl List {
    pub(super) fn len_bytes(&self) -> usize {
        unpoisoned(&self.unsent).bytes.capacity()
    }

    /// Continues a CLIENT LIST: writes more lines, or sends the next bytes of the complete reply.
    pub(super) fn more(
        &mut self,
        clients: &Clients,
        settings: &Settings,
        out: &mut Out<'_>,
    ) -> Result<WorkStep, String> {
        let mut unsent = unpoisoned(&self.unsent);
        while !unsent.is_whole {
            unsent.write_batch(clients, settings, out)?;
            if out.sink().steps().is_pass_over() {
                return Ok(WorkStep::Yield);
            }
        }
        if out.sink().is_full() {
            return Ok(WorkStep::Full);
        }
        let rest = &unsent.bytes[self.sent_bytes..];
        let part = &rest[..rest.len().min(LIST_PASS_LEN_BYTES)];
        out.sink().push(part);
        self.sent_bytes += part.len();
        Ok(if self.sent_bytes == unsent.bytes.len() { WorkStep::Done } else { WorkStep::Yield })
    }
}

impl Unsent {
    /// Writes the lines of the next clients.
    fn write_batch(&mut self, clients: &Clients, settings: &Settings, out: &mut Out<'_>) -> Replied {
        let batch = clients.after(self.after_id);
        out.sink().steps().add(batch.len());
        for client in &batch {
            self.after_id = client.id;
            if self.listed.has(client) {
                out.sink().steps().add(LINE_STEPS);
                self.bytes.extend_from_slice(client.line(settings).as_bytes());
            }
        }
        if self.bytes.len() > LIST_PASS_LEN_BYTES && self.held.is_none() {
            self.held = Some(LongListPermit::new(&clients.lists).ok_or(
                "ERR too many long lists are pending for other clients: \
                 request fewer clients with CLIENT LIST ID, or try again",
            )?);
        }
        if batch.len() < CLIENTS_PER_BATCH {
            let lines = String::from_utf8(std::mem::take(&mut self.bytes)).expect("lines are text");
            Reply::new(&mut self.bytes, out.version()).verbatim(&lines);
            self.is_whole = true;
        }
        Ok(())
    }
}

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
            let value = args.next().ok_or(SYNTAX)?;
            match name.to_ascii_uppercase().as_slice() {
                b"ID" => {
                    let id = integer(value).and_then(|id| u64::try_from(id).ok()).filter(|id| *id > 0);
                    filters.id = Some(id.ok_or("ERR client-id should be greater than 0")?);
                }
                b"TYPE" => match value.to_ascii_lowercase().as_slice() {
                    b"normal" => filters.is_subscriber = Some(false),
                    b"pubsub" => filters.is_subscriber = Some(true),
                    b"master" | b"replica" | b"slave" => filters.is_none = true,
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
                    _ => return Err(SYNTAX.to_owned()),
                },
                b"MAXAGE" => {
                    let age_s = integer(value).ok_or("ERR maxage is not an integer or out of range")?;
                    let age_s = u64::try_from(age_s).ok().filter(|age_s| *age_s > 0);
                    filters.older_than_s = Some(age_s.ok_or("ERR maxage should be greater than 0")?);
                }
                _ => return Err(SYNTAX.to_owned()),
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
            && self.is_subscriber.is_none_or(|is_subscriber| is_subscriber == client.is_subscriber())
            && self.user.as_ref().is_none_or(|user| client.is_user(user))
            && self.older_than_s.is_none_or(|age_s| client.age_s() > age_s)
            && is_address(&self.address, &|| client.address(&server.settings))
            && is_address(&self.local_address, &|| client.local_address(&server.settings))
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::limits::Limits;
    use crate::server::sockets::Peer;
    use crate::server::users::Users;

    #[test]
    fn clients_have_unique_ids_and_are_removed_when_they_disconnect() {
        let users = Arc::new(Users::new(None).unwrap());
        let (clients, registry) = (Clients::default(), Arc::new(Registry::new(&Limits::default(), &users)));
        let add = || clients.add(&registry.activity(Peer::default()), &registry, String::new());
        let (first, second) = (add(), add());
        assert!(first.id() != second.id());
        clients.remove(&first);
        assert_eq!(clients.count(), 1);
        assert_ne!(add().id(), first.id());
    }

    #[test]
    fn the_number_of_long_lists_is_limited() {
        let lists = Arc::default();
        let mut held: Vec<_> = (0..LISTS_MAX).map(|_| LongListPermit::new(&lists).unwrap()).collect();
        assert!(LongListPermit::new(&lists).is_none());
        held.pop();
        assert!(LongListPermit::new(&lists).is_some());
    }

    #[test]
    fn names_that_are_too_long_or_not_printable_are_rejected() {
        assert_eq!(valid_name("x", b"worker-1:a"), Ok("worker-1:a".to_owned()));
        assert_eq!(valid_name("x", b""), Ok(String::new()));
        for name in [&b"a b"[..], b"a\n", b"\x7f", b"\xff", &[b'a'; NAME_LEN_MAX_BYTES + 1]] {
            assert!(valid_name("x", name).unwrap_err().starts_with("ERR x cannot "), "{name:?}");
        }
    }

    #[test]
    fn every_command_has_a_unique_id() {
        for spec in all_commands() {
            assert_eq!(command_name(spec.id as u8), spec.name);
        }
    }
}
