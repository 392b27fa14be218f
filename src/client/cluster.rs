//! A client of a cluster, which sends each request to a node that has the key's slot.
//!
//! In: keys, and the addresses of some nodes. Out: values, in the order of the keys. The client learns the topology
//! from the nodes, and reads it again when a node responds with the status Moved or cannot be reached.

mod ordered;

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{io, thread};

use super::address::{Address, TcpAddress};
use super::batch::{self, Guards};
use super::blocking::Client;
use super::columns::{ProjectedRows, ReceivedValues, RowsOrValues, TABLE_CHANGES_MAX};
use super::error::ClientError;
use super::options::Options;
use super::pool::PoolMember;
use super::request::{GetKeyType, GetTopology, TypedRequest};
use super::retry::Deadline;
use super::target::Target;
use crate::cluster::{Health, Role, Topology, TopologyError, TopologyNode};
use crate::format::key::Key;
use crate::format::key_type::KeyType;
use crate::protocol::native::Op;
use crate::slots::slot_of_typed;
use crate::sync::unpoisoned;
use crate::typed::{OwnedRow, Schema};

pub use ordered::{ClusterPage, ClusterRows, NearestRow};

/// The pause before the third attempt of a call. It doubles with each attempt, up to the maximum.
const PAUSE: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// The maximum number of threads that send requests to nodes at the same time. A topology can have 16,384 nodes.
const THREADS_MAX: usize = 64;
/// The maximum number of connections that stay open after a call: half of the usual limit on open files.
const CONNECTIONS_MAX: usize = 512;

/// The options of a [`ClusterClient`].
///
/// # Example
/// ```
/// use zero_kv::client::ClusterOptions;
///
/// let options = ClusterOptions { reads_replicas: true, zone: Some("east".to_owned()), ..ClusterOptions::default() };
/// ```
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// The options of the connections to nodes. The number of retries does not matter, because a call is sent to
    /// another node instead. [`Options::call_timeout`] is the maximum time of each request to one node. After this
    /// time, a call is not attempted again if all nodes of a slot have failed. After twice this time, it ends in any
    /// case.
    pub client: Options,
    /// Whether requests are sent to replicas first. Without it, requests are sent to a replica only if the primary
    /// cannot be reached.
    pub reads_replicas: bool,
    /// The zone of this process. Nodes of this zone are preferred to other nodes with the same role.
    pub zone: Option<String>,
    /// The maximum number of attempts of a call. In each attempt, all nodes of a slot are tried until one answers. A
    /// response that another node has the slot also counts as an attempt. 10 by default, which takes about 1 s if all
    /// nodes fail at once.
    pub attempts: u32,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        ClusterOptions { client: Options::default(), reads_replicas: false, zone: None, attempts: 10 }
    }
}

/// Blocking connections to the nodes of a cluster.
///
/// # Example
/// ```no_run
/// use zero_kv::client::ClusterClient;
///
/// let mut client = ClusterClient::connect(&["zkv://10.0.0.1:6380", "zkv://10.0.0.2:6380"])?;
/// let value = client.get(7)?;
/// let values = client.get_many(&[7, 8, 9])?;
/// # Ok::<(), zero_kv::client::ClientError>(())
/// ```
#[derive(Debug)]
pub struct ClusterClient {
    seeds: Vec<Address>,
    options: ClusterOptions,
    routes: Routes,
    /// The type of the table's keys, which determines their slots.
    key_type: KeyType,
    /// The type that the keys of calls are encoded for. With `None`, they are stored keys.
    expected_key_type: Option<KeyType>,
    /// The open connections, by address.
    connections: HashMap<Address, Client>,
}

impl ClusterClient {
    /// Connects to a cluster. The topology is read from the first of these nodes that can be reached.
    ///
    /// # Errors
    /// [`ClientError`]: the error of the last node if no node can be reached, or the first other error of a node, such
    /// as [`ClientError::LoginFailed`], or [`ClientError::Configuration`] if a server is not a node of a cluster.
    pub fn connect<A: AsRef<OsStr>>(seeds: &[A]) -> Result<ClusterClient, ClientError> {
        ClusterClient::connect_with(seeds, &ClusterOptions::default())
    }

    /// Connects like [`ClusterClient::connect`], with options.
    ///
    /// # Errors
    /// The errors of [`ClusterClient::connect`].
    pub fn connect_with<A: AsRef<OsStr>>(seeds: &[A], options: &ClusterOptions) -> Result<ClusterClient, ClientError> {
        let seeds = seeds.iter().map(Address::parse).collect::<Result<Vec<Address>, _>>()?;
        let mut client = ClusterClient {
            seeds,
            options: options.clone(),
            routes: Routes::unknown(),
            key_type: KeyType::BYTES,
            expected_key_type: None,
            connections: HashMap::new(),
        };
        // A failed call is sent to another node instead.
        client.options.client.retries = 0;
        let deadline = client.deadline();
        client.learn(&[], &HashSet::new(), deadline)?;
        Ok(client)
    }

    /// Returns the topology that the client follows.
    pub fn topology(&self) -> &Topology {
        &self.routes.topology
    }

    /// Returns the end of a call that starts now: after two time-outs, so that a slow node gets a whole one, and
    /// another node gets the other if the first does not answer.
    fn deadline(&self) -> Deadline {
        Deadline::after(self.options.client.call_timeout.map(|timeout| timeout.saturating_mul(2)))
    }

    /// Returns the value of a key, or `None` if the table does not have the key.
    ///
    /// # Errors
    /// [`ClientError`]. If no node of the key's slot can be reached after all attempts, the error of the last node.
    pub fn get<'k>(&mut self, key: impl Into<Key<'k>>) -> Result<Option<Vec<u8>>, ClientError> {
        Ok(self.get_many(&[key.into()])?.pop().flatten())
    }

    /// Returns the values of many keys, in the order of the keys. The requests to different nodes are sent at the same
    /// time.
    ///
    /// # Errors
    /// The errors of [`ClusterClient::get`]. If the request for one key fails, the whole call fails.
    pub fn get_many<'k, K: Into<Key<'k>> + Copy>(&mut self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>, ClientError> {
        let mut values: Vec<Option<Vec<u8>>> = vec![None; keys.len()];
        self.answer_keys(
            keys,
            self.deadline(),
            |client, keys| client.get_many(keys),
            |positions, found| {
                positions.zip(found).for_each(|(position, value)| values[position] = value);
            },
        )?;
        Ok(values)
    }

    /// Passes the value of a key to `visit`, and returns the result of `visit`.
    ///
    /// # Errors
    /// The errors of [`ClusterClient::get`].
    pub fn get_with<'k, T>(
        &mut self,
        key: impl Into<Key<'k>>,
        visit: impl FnOnce(Option<&[u8]>) -> T,
    ) -> Result<T, ClientError> {
        Ok(visit(self.get(key)?.as_deref()))
    }

    /// Passes the values of many keys to `visit`, in the order of the keys, each with the position of its key in
    /// `keys`, after all values have arrived.
    ///
    /// # Errors
    /// The errors of [`ClusterClient::get_many`].
    pub fn get_many_with<'k, K: Into<Key<'k>> + Copy>(
        &mut self,
        keys: &[K],
        mut visit: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), ClientError> {
        self.get_many(keys)?.iter().enumerate().for_each(|(at, value)| visit(at, value.as_deref()));
        Ok(())
    }

    /// Returns whether the table has a key.
    ///
    /// # Errors
    /// The errors of [`ClusterClient::get`].
    pub fn contains<'k>(&mut self, key: impl Into<Key<'k>>) -> Result<bool, ClientError> {
        Ok(self.contains_many(&[key.into()])?.pop().unwrap_or_default())
    }

    /// Returns whether the table has each of many keys, in the order of the keys, as [`ClusterClient::get_many`] does.
    ///
    /// # Errors
    /// The errors of [`ClusterClient::get_many`].
    pub fn contains_many<'k, K: Into<Key<'k>> + Copy>(&mut self, keys: &[K]) -> Result<Vec<bool>, ClientError> {
        let mut found = vec![false; keys.len()];
        self.answer_keys(
            keys,
            self.deadline(),
            |client, keys| client.contains_many(keys),
            |positions, exist| {
                positions.zip(exist).for_each(|(position, exists)| found[position] = exists);
            },
        )?;
        Ok(found)
    }

    /// Makes a call to the nodes of the slots of all keys, as [`ClusterClient::answer_all`] does. `answered` gets the
    /// positions of the keys of each call.
    fn answer_keys<'k, K: Into<Key<'k>> + Copy, T: Send>(
        &mut self,
        keys: &[K],
        deadline: Deadline,
        call: impl Fn(&mut Client, &[Key<'k>]) -> Result<T, ClientError> + Sync,
        mut answered: impl FnMut(&mut dyn Iterator<Item = usize>, T),
    ) -> Result<(), ClientError> {
        let keys: Vec<Key<'k>> = keys.iter().map(|key| (*key).into()).collect();
        let slot = |key_type, position: &usize| slot_of_typed(key_type, keys[*position]);
        let look_up = |client: &mut Client, positions: &[usize]| {
            call(client, &positions.iter().map(|position| keys[*position]).collect::<Vec<_>>())
        };
        self.answer_all((0..keys.len()).collect(), slot, deadline, look_up, |positions, result| {
            answered(&mut positions.iter().copied(), result);
        })
    }

    /// Makes a call for all items: groups the items by the nodes of their slots, makes one call to each node, at the
    /// same time, and passes each result to `answered`. Repeats calls that fail although another node or the same node
    /// may answer later, until the deadline. `slot` returns the slot of an item in a table with keys of a type, which
    /// can differ between the attempts.
    fn answer_all<X: Copy + Send + Sync, T: Send>(
        &mut self,
        mut pending: Vec<X>,
        slot: impl Fn(KeyType, &X) -> u16,
        deadline: Deadline,
        call: impl Fn(&mut Client, &[X]) -> Result<T, ClientError> + Sync,
        mut answered: impl FnMut(&[X], T),
    ) -> Result<(), ClientError> {
        let attempts_end = Deadline::after(self.options.client.call_timeout);
        let (mut avoided, mut pause, mut attempts) = (HashSet::new(), PAUSE, 0);
        let mut is_topology_new = false;
        loop {
            let mut moved_from = Vec::new();
            let mut last_error = None;
            for Answered { address, items, result } in
                self.exchange(std::mem::take(&mut pending), &slot, &call, &avoided, deadline)
            {
                let error = match result {
                    Ok(result) => {
                        answered(&items, result);
                        continue;
                    }
                    Err(error) => error,
                };
                match error {
                    ClientError::Moved { .. } => moved_from.push(address.clone()),
                    // Stored keys mean the same for any type, apart from their slots.
                    ClientError::KeyTypeChanged { .. } if self.expected_key_type.is_none() => {
                        moved_from.push(address.clone());
                    }
                    _ if is_connection_error(&error) => {}
                    _ => return Err(error),
                }
                avoided.insert(address);
                last_error = Some(error);
                pending.extend(items);
            }
            let Some(error) = last_error else { return Ok(()) };
            let have_all_failed = self.retry_failed_nodes(&pending, &slot, &mut avoided);
            // Nodes that always send other topologies must not keep a call going.
            if have_all_failed || !moved_from.is_empty() || is_topology_new {
                attempts += 1;
                if attempts >= self.options.attempts {
                    return Err(error);
                }
            }
            if deadline.left().is_some_and(|left| left.is_zero()) {
                return Err(error);
            }
            // The first retry follows at once: it reads the topology, which may name other nodes.
            if have_all_failed && attempts > 1 {
                if attempts_end.left().is_some_and(|left| left <= pause) {
                    return Err(error);
                }
                thread::sleep(pause);
                pause = (2 * pause).min(PAUSE_MAX);
            }
            // If no node can be reached, the next attempt reads the topology again.
            let number = self.routes.topology.number;
            let _ = self.learn(&moved_from, &avoided, deadline);
            // With another topology, these nodes may have the slots.
            is_topology_new = self.routes.topology.number != number;
            if is_topology_new {
                avoided.retain(|address| !moved_from.contains(address));
            }
        }
    }

    /// Makes later calls with keys fail with [`ClientError::KeyTypeChanged`] unless the keys of the table have this type,
    /// as [`Client::expect_key_type`] does.
    pub fn expect_key_type(&mut self, key_type: impl Into<Option<KeyType>>) {
        self.expected_key_type = key_type.into();
    }

    /// Returns the type of the keys whose slots determine the nodes of a call.
    fn slot_key_type(&self) -> KeyType {
        self.expected_key_type.unwrap_or(self.key_type)
    }

    /// If all nodes of a pending slot are avoided, tries them again. Returns whether a pending slot had only avoided
    /// nodes.
    fn retry_failed_nodes<X>(
        &self,
        pending: &[X],
        slot: impl Fn(KeyType, &X) -> u16,
        avoided: &mut HashSet<Address>,
    ) -> bool {
        let primaries: HashSet<u16> =
            pending.iter().map(|item| self.routes.owner(slot(self.slot_key_type(), item))).collect();
        let mut have_all_failed = false;
        for primary in primaries {
            let addresses = || self.routes.readable(primary).map(|node| self.routes.address(node));
            if addresses().all(|address| avoided.contains(address)) {
                have_all_failed = true;
                addresses().for_each(|address| {
                    avoided.remove(address);
                });
            }
        }
        have_all_failed
    }

    /// Makes one call for the items of each node, to the best node of their slots that is not in `avoided`.
    fn exchange<X: Copy + Send + Sync, T: Send>(
        &mut self,
        items: Vec<X>,
        slot: impl Fn(KeyType, &X) -> u16,
        call: &(impl Fn(&mut Client, &[X]) -> Result<T, ClientError> + Sync),
        avoided: &HashSet<Address>,
        deadline: Deadline,
    ) -> Vec<Answered<X, T>> {
        let mut groups: HashMap<u16, Vec<X>> = HashMap::new();
        for item in items {
            groups.entry(self.routes.owner(slot(self.slot_key_type(), &item))).or_default().push(item);
        }
        let mut tasks = Vec::new();
        for (primary, items) in groups {
            let (node, has_others) = self.routes.best_node(primary, &self.options, |address| avoided.contains(address));
            let address = self.routes.address(node).clone();
            let client = self.connections.remove(&address);
            tasks.push(Task { address, items, client, has_others });
        }
        let open_connections = AtomicUsize::new(self.connections.len());
        let expected_key_type = self.expected_key_type;
        let run = |Task { address, items, client, has_others }: Task<X>| {
            let mut client = match client.map_or_else(|| self.unconnected(&address), Ok) {
                Ok(client) => client,
                Err(error) => return (None, Answered { address, items, result: Err(error) }),
            };
            client.key_type = expected_key_type;
            // Another node must have time to answer if this one does not.
            client.call_end = Some(if has_others { deadline.half() } else { deadline });
            let result = call(&mut client, &items);
            let is_kept = client.is_connected() && open_connections.fetch_add(1, Ordering::Relaxed) < CONNECTIONS_MAX;
            (is_kept.then_some(client), Answered { address, items, result })
        };
        let finished = in_threads(tasks, run);
        let mut answered = Vec::with_capacity(finished.len());
        for (client, group) in finished {
            self.connections.extend(client.map(|client| (group.address.clone(), client)));
            answered.push(group);
        }
        answered
    }

    /// Returns a client of a node, which connects with its first request.
    fn unconnected(&self, address: &Address) -> Result<Client, ClientError> {
        match Target::at(address, &self.options.client) {
            Ok(target) => Ok(Client::unconnected(&target)),
            // The seeds have shown that the options are valid, so the host in the topology is not.
            Err(ClientError::Configuration { server, problem }) if self.is_only_in_topology(address) => {
                Err(ClientError::Tls { server, problem })
            }
            Err(error) => Err(error),
        }
    }

    fn is_only_in_topology(&self, address: &Address) -> bool {
        address.tcp().is_some_and(|tcp| tcp.tls) && !self.seeds.contains(address)
    }

    /// Reads the topology from the first node that can be reached. Nodes of `first` come first, then the nodes that the
    /// client is connected to, the other nodes of the topology, and the seeds. Other nodes of `avoided` are skipped. An
    /// older topology than the current one is ignored. Ends at the deadline.
    fn learn(&mut self, first: &[Address], avoided: &HashSet<Address>, deadline: Deadline) -> Result<(), ClientError> {
        let mut connected: Vec<Address> = first.to_vec();
        connected.extend(self.connections.keys().filter(|address| !avoided.contains(address)).cloned());
        let count = connected.len() + self.routes.addresses().len() + self.seeds.len();
        let mut asked = HashSet::new();
        let mut reported: Option<ClientError> = None;
        for at in 0..count {
            let others = || self.routes.addresses().iter().chain(&self.seeds);
            let address = match connected.get(at) {
                Some(address) => Some(address),
                None => others().nth(at - connected.len()).filter(|address| !avoided.contains(*address)),
            };
            let Some(address) = address.filter(|address| asked.insert((*address).clone())).cloned() else { continue };
            if reported.is_some() && deadline.left().is_some_and(|left| left.is_zero()) {
                break;
            }
            match self.routes_at(&address, if at + 1 < count { deadline.half() } else { deadline }) {
                Ok((routes, key_type)) => {
                    // A node that was cut off from the others may still have an old topology.
                    if routes.topology.number >= self.routes.topology.number {
                        (self.routes, self.key_type) = (routes, key_type.unwrap_or(self.key_type));
                        self.close_other_connections();
                    }
                    return Ok(());
                }
                // A failed login or a server that is not a node explains more than a node that does not run.
                Err(error) if reported.as_ref().is_none_or(is_connection_error) => reported = Some(error),
                Err(_) => {}
            }
        }
        let no_seeds = || ClientError::Configuration {
            server: Address::Unix("cluster".into()),
            problem: "no nodes were named: name the address of at least one node".to_owned(),
        };
        Err(reported.unwrap_or_else(no_seeds))
    }

    /// Closes the connections to servers that are neither nodes nor seeds, because they may have an old topology.
    fn close_other_connections(&mut self) {
        let kept: HashSet<&Address> = self.routes.addresses().iter().chain(&self.seeds).collect();
        self.connections.retain(|address, _| kept.contains(address));
    }

    /// Returns the topology of a node, and the type of its table's keys, or `None` if the user may not read keys.
    fn routes_at(&mut self, address: &Address, deadline: Deadline) -> Result<(Routes, Option<KeyType>), ClientError> {
        let mut client = match self.connections.remove(address) {
            Some(client) => client,
            None => self.unconnected(address)?,
        };
        client.call_end = Some(deadline);
        let (mut json, mut key_type) = (None, None);
        // One round trip for both.
        client.exchange(batch::between(
            Guards { before: &[Op::Topology], after: Op::KeyType },
            Op::Topology,
            0,
            |_| GetTopology,
            |_, _| Ok(()),
            |at, response| {
                match at {
                    0 => json = GetTopology.decode(response)?,
                    // The nodes know the slots: with a wrong type, they redirect.
                    _ => key_type = GetKeyType.decode(response).ok(),
                }
                Ok(())
            },
        ))?;
        self.connections.insert(address.clone(), client);
        let json = json.ok_or_else(|| ClientError::Configuration {
            server: address.clone(),
            problem: "the server is not a node of a cluster, or has no topology yet: use Client for one server"
                .to_owned(),
        })?;
        let seed = self.seeds.iter().find_map(Address::tcp);
        let routes = Routes::parse(&json, seed)
            .map_err(|error| ClientError::Topology { server: address.clone(), problem: error.to_string() })?;
        Ok((routes, key_type))
    }
}

/// Runs tasks in several threads, of which the calling thread is one. Returns their results in any order.
fn in_threads<X: Send, T: Send>(tasks: Vec<X>, run: impl Fn(X) -> T + Sync) -> Vec<T> {
    let (count, tasks) = (tasks.len(), Mutex::new(tasks.into_iter()));
    let results = Mutex::new(Vec::with_capacity(count));
    let work = || {
        loop {
            // The lock is released before the task runs.
            let next = unpoisoned(&tasks).next();
            let Some(task) = next else { return };
            let result = run(task);
            unpoisoned(&results).push(result);
        }
    };
    thread::scope(|scope| {
        for _ in 1..count.min(THREADS_MAX) {
            // Without another thread, this thread runs all tasks.
            if thread::Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A call to one node, with the open connection to the node, if any.
struct Task<X> {
    address: Address,
    items: Vec<X>,
    client: Option<Client>,
    /// Whether another node has the same slots.
    has_others: bool,
}

struct Answered<X, T> {
    address: Address,
    items: Vec<X>,
    result: Result<T, ClientError>,
}

/// Returns whether another node may answer after this error: this node cannot be reached, or is overloaded. A signal
/// that ends a call ends it for all nodes.
fn is_connection_error(error: &ClientError) -> bool {
    match error {
        ClientError::Io { error, .. } => error.kind() != io::ErrorKind::Interrupted,
        ClientError::NotRunning { .. }
        | ClientError::Refused { .. }
        | ClientError::TimedOut { .. }
        | ClientError::Closed { .. } => true,
        _ => false,
    }
}

/// The result of a call to one node, with the positions of its keys.
type Part<T> = (Vec<usize>, T);

/// Columns of typed tables.
impl ClusterClient {
    /// Returns the schema of a node's table, or `None` if the table has no schema.
    ///
    /// # Errors
    /// The errors of [`ClusterClient::get`].
    pub fn schema(&mut self) -> Result<Option<Arc<Schema>>, ClientError> {
        let mut schema = None;
        self.ask_any(self.deadline(), |client| client.schema(), |found| schema = found)?;
        Ok(schema)
    }

    /// Makes a call to any node.
    fn ask_any<T: Send>(
        &mut self,
        deadline: Deadline,
        call: impl Fn(&mut Client) -> Result<T, ClientError> + Sync,
        mut answered: impl FnMut(T),
    ) -> Result<(), ClientError> {
        self.answer_all(vec![()], |_, ()| 0, deadline, |client, _| call(client), |_, result| answered(result))
    }

    /// Returns the row of a key in a typed table, or `None` if the table does not have the key.
    ///
    /// # Errors
    /// The errors of [`ClusterClient::get_projected`].
    pub fn get_row<'k>(&mut self, key: impl Into<Key<'k>>) -> Result<Option<OwnedRow>, ClientError> {
        Ok(self.get_rows(&[key.into()])?.into_only_row())
    }

    /// Returns the rows of many keys in a typed table, in the order of the keys: see [`Client::get_rows`].
    ///
    /// # Errors
    /// The errors of [`ClusterClient::get_projected`].
    pub fn get_rows<'k, K: Into<Key<'k>> + Copy>(&mut self, keys: &[K]) -> Result<ProjectedRows, ClientError> {
        self.combine(keys, |client, keys| client.get_rows(keys), ProjectedRows::combine)
    }

    /// Returns some columns of the rows of many keys, in the order of the keys: see [`Client::get_projected`].
    ///
    /// # Errors
    /// [`ClientError::SchemaDiffers`] if the columns have different types on different nodes, the errors of
    /// [`Client::get_projected`], and the errors of [`ClusterClient::get`].
    pub fn get_projected<'k, K: Into<Key<'k>> + Copy>(
        &mut self,
        keys: &[K],
        columns: &[impl AsRef<str> + Sync],
    ) -> Result<ProjectedRows, ClientError> {
        self.combine(keys, |client, keys| client.get_projected(keys, columns), ProjectedRows::combine)
    }

    /// Returns the rows of many keys if the table has a schema, and their values otherwise: see
    /// [`Client::get_rows_or_values`].
    ///
    /// # Errors
    /// The errors of [`ClusterClient::get_projected`].
    pub fn get_rows_or_values<'k, K: Into<Key<'k>> + Copy>(&mut self, keys: &[K]) -> Result<RowsOrValues, ClientError> {
        self.combine(
            keys,
            |client, keys| client.get_rows_or_values(keys),
            |key_count, parts| {
                let (mut rows, mut values) = (Vec::new(), Vec::new());
                for (positions, part) in parts {
                    match part {
                        RowsOrValues::Rows(part) => rows.push((positions, part)),
                        RowsOrValues::Values(part) => values.push((positions, part)),
                    }
                }
                match (rows.is_empty(), values.is_empty()) {
                    (_, true) => ProjectedRows::combine(key_count, rows).map(RowsOrValues::Rows),
                    (true, false) => Some(RowsOrValues::Values(ReceivedValues::combine(key_count, values))),
                    (false, false) => None,
                }
            },
        )
    }

    /// Makes a call to each node, and combines the results. Repeats all calls while they cannot be combined.
    fn combine<'k, K: Into<Key<'k>> + Copy, T: Send>(
        &mut self,
        keys: &[K],
        call: impl Fn(&mut Client, &[Key<'k>]) -> Result<T, ClientError> + Sync,
        combine: impl Fn(usize, Vec<Part<T>>) -> Option<T>,
    ) -> Result<T, ClientError> {
        let (mut pause, deadline) = (PAUSE, self.deadline());
        for attempt in 0..=TABLE_CHANGES_MAX {
            if attempt > 0 {
                thread::sleep(pause);
                pause = (2 * pause).min(PAUSE_MAX);
            }
            let mut parts: Vec<Part<T>> = Vec::new();
            self.answer_keys(keys, deadline, &call, |positions, result| parts.push((positions.collect(), result)))?;
            // Without keys, one node returns the columns of the result.
            if keys.is_empty() {
                self.ask_any(deadline, |client| call(client, &[]), |result| parts.push((Vec::new(), result)))?;
            }
            if let Some(combined) = combine(keys.len(), parts) {
                return Ok(combined);
            }
        }
        Err(ClientError::SchemaDiffers { server: self.routes.address(0).clone() })
    }
}

/// A topology, and how to reach its nodes. A node is named by its position in the topology.
#[derive(Debug)]
struct Routes {
    pub(super) topology: Topology,
    /// The primary of each slot.
    owners: Box<[u16]>,
    /// The address of each node.
    addresses: Box<[Address]>,
    /// For each primary, the nodes that clients may read from: the primary, and its replicas.
    readable: Box<[Vec<u16>]>,
}

impl Routes {
    pub(super) fn unknown() -> Routes {
        let topology = Topology { format: 0, number: 0, nodes: Vec::new() };
        Routes { topology, owners: Box::default(), addresses: Box::default(), readable: Box::default() }
    }

    /// Parses a topology. Connections to all nodes use the user and the encryption of `seed`.
    pub(super) fn parse(json: &str, seed: Option<&TcpAddress>) -> Result<Routes, TopologyError> {
        let topology = Topology::parse(json.as_bytes())?;
        let address = |node: &TopologyNode| {
            Address::Tcp(TcpAddress {
                host: node.host.clone(),
                port: node.port,
                user: seed.and_then(|seed| seed.user.clone()),
                tls: seed.is_some_and(|seed| seed.tls),
            })
        };
        let index = topology.index();
        let mut readable = vec![Vec::new(); topology.nodes.len()];
        // A topology has at most 16,384 nodes. Primaries come first in their lists.
        let of_role = |role: Role| (0_u16..).zip(&topology.nodes).filter(move |(_, node)| node.role == role);
        for (position, _) in of_role(Role::Primary) {
            readable[usize::from(position)].push(position);
        }
        for (position, node) in of_role(Role::Replica) {
            let is_readable = matches!(node.health, Health::Online | Health::Fail);
            if let Some(primary) = node.primary.as_deref().and_then(|primary| index.position(primary))
                && is_readable
            {
                readable[primary].push(position);
            }
        }
        Ok(Routes {
            owners: topology.owners()?,
            addresses: topology.nodes.iter().map(address).collect(),
            readable: readable.into(),
            topology,
        })
    }

    pub(super) fn owner(&self, slot: u16) -> u16 {
        self.owners[usize::from(slot)]
    }

    pub(super) fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    pub(super) fn address(&self, node: u16) -> &Address {
        &self.addresses[usize::from(node)]
    }

    /// Returns a primary and its readable replicas.
    pub(super) fn readable(&self, primary: u16) -> impl Iterator<Item = u16> + '_ {
        self.readable[usize::from(primary)].iter().copied()
    }

    /// Returns the best node with the slots of a primary that `is_avoided` does not exclude, or the primary if all are
    /// excluded. Also returns whether other nodes are left.
    fn best_node(&self, primary: u16, options: &ClusterOptions, is_avoided: impl Fn(&Address) -> bool) -> (u16, bool) {
        // A failed node is the last choice, but still one: the topology may be out of date.
        let is_preferred = |node: &TopologyNode| (node.role == Role::Replica) == options.reads_replicas;
        let badness = |position: &u16| {
            let node = &self.topology.nodes[usize::from(*position)];
            let is_far = options.zone.is_some() && node.zone != options.zone;
            (node.health == Health::Fail, !is_preferred(node), is_far)
        };
        let left = || self.readable(primary).filter(|node| !is_avoided(self.address(*node)));
        let best = left().min_by_key(badness).unwrap_or(primary);
        (best, left().nth(1).is_some())
    }
}
