//! A client of a cluster, which sends each request to a node that has the key's slot.
//!
//! In: keys, and the addresses of some nodes. Out: values, in the order of the keys. The client learns the topology from
//! the nodes, and reads it again when a node responds with the status Moved or cannot be reached.

mod columns;
mod ordered;

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::thread;
use std::time::Duration;

use super::address::{Address, TcpAddress};
use super::blocking::Client;
use super::error::ClientError;
use super::options::Options;
use super::retry::Deadline;
use crate::cluster::{Health, Role, Topology, TopologyNode};
use crate::format::key::Key;
use crate::slots::slot_of;

pub use ordered::{ClusterPage, ClusterRows, NearestRow};

/// The pause before the third attempt of a call. It doubles with each attempt, up to the maximum.
const PAUSE: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(200);

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
    /// another node instead. [`Options::call_timeout`] is the maximum time of each request to one node. After this time,
    /// a call that all nodes of a slot have failed to answer is not attempted again.
    pub client: Options,
    /// Whether requests are sent to replicas first. Without it, requests are sent to a replica only if the primary
    /// cannot be reached.
    pub reads_replicas: bool,
    /// The zone of this process. Nodes of this zone are preferred to other nodes with the same role.
    pub zone: Option<String>,
    /// The maximum number of attempts of a call. In each attempt, all nodes of a slot are tried until one answers. A
    /// response that another node has the slot also counts as an attempt. 10 by default, which takes about 1 s if all nodes
    /// fail at once.
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
    topology: Topology,
    /// The position of the primary of each slot.
    owners: Box<[u16]>,
    /// The open connections, by address.
    connections: HashMap<Address, Client>,
}

impl ClusterClient {
    /// Connects to a cluster. The topology is read from the first of these nodes that can be reached.
    ///
    /// # Errors
    /// [`ClientError`]: the error of the last node if no node can be reached, or the first other error of a node, such as
    /// [`ClientError::LoginFailed`], or [`ClientError::Configuration`] if a server is not a node of a cluster.
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
            topology: Topology { format: 0, number: 0, nodes: Vec::new() },
            owners: Box::default(),
            connections: HashMap::new(),
        };
        client.options.client.retries = 0;
        client.learn(&[], &HashSet::new())?;
        Ok(client)
    }

    /// Returns the topology that the client follows.
    pub fn topology(&self) -> &Topology {
        &self.topology
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
            |client, keys| client.get_many(keys),
            |positions, found| {
                positions.zip(found).for_each(|(position, value)| values[position] = value);
            },
        )?;
        Ok(values)
    }

    /// Returns whether the table has a key.
    ///
    /// # Errors
    /// The errors of [`ClusterClient::get`].
    pub fn exists<'k>(&mut self, key: impl Into<Key<'k>>) -> Result<bool, ClientError> {
        Ok(self.exists_many(&[key.into()])?.pop().unwrap_or_default())
    }

    /// Returns whether the table has each of many keys, in the order of the keys, as [`ClusterClient::get_many`] does.
    ///
    /// # Errors
    /// The errors of [`ClusterClient::get_many`].
    pub fn exists_many<'k, K: Into<Key<'k>> + Copy>(&mut self, keys: &[K]) -> Result<Vec<bool>, ClientError> {
        let mut found = vec![false; keys.len()];
        self.answer_keys(
            keys,
            |client, keys| client.exists_many(keys),
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
        call: impl Fn(&mut Client, &[Key<'k>]) -> Result<T, ClientError> + Sync,
        mut answered: impl FnMut(&mut dyn Iterator<Item = usize>, T),
    ) -> Result<(), ClientError> {
        let keys: Vec<Key<'k>> = keys.iter().map(|key| (*key).into()).collect();
        let pending = keys.iter().enumerate().map(|(position, key)| (slot_of(*key), position)).collect();
        let look_up = |client: &mut Client, items: &[(u16, usize)]| {
            call(client, &items.iter().map(|(_, position)| keys[*position]).collect::<Vec<_>>())
        };
        self.answer_all(pending, look_up, |items, result| {
            answered(&mut items.iter().map(|(_, position)| *position), result);
        })
    }

    /// Makes a call for all items, which are slots with any data: groups the items by the nodes of their slots, makes one
    /// call to each node, at the same time, and passes each result to `answered`. Repeats calls that fail although another
    /// node or the same node may answer later.
    fn answer_all<X: Copy + Send + Sync, T: Send>(
        &mut self,
        mut pending: Vec<(u16, X)>,
        call: impl Fn(&mut Client, &[(u16, X)]) -> Result<T, ClientError> + Sync,
        mut answered: impl FnMut(&[(u16, X)], T),
    ) -> Result<(), ClientError> {
        let deadline = Deadline::after(self.options.client.call_timeout);
        let (mut avoided, mut pause, mut attempts) = (HashSet::new(), PAUSE, 0);
        loop {
            let mut moved_from = Vec::new();
            let mut last_error = None;
            for Answered { address, items, result } in self.exchange(std::mem::take(&mut pending), &call, &avoided) {
                let error = match result {
                    Ok(result) => {
                        answered(&items, result);
                        continue;
                    }
                    Err(error) => error,
                };
                match error {
                    ClientError::Moved { .. } => moved_from.push(address.clone()),
                    _ if is_connection_error(&error) => {}
                    _ => return Err(error),
                }
                avoided.insert(address);
                last_error = Some(error);
                pending.extend(items);
            }
            let Some(error) = last_error else { return Ok(()) };
            let have_all_failed = self.retry_failed_nodes(&pending, &mut avoided);
            if have_all_failed || !moved_from.is_empty() {
                attempts += 1;
                if attempts >= self.options.attempts {
                    return Err(error);
                }
            }
            if have_all_failed && attempts > 1 {
                if deadline.left().is_some_and(|left| left <= pause) {
                    return Err(error);
                }
                thread::sleep(pause);
                pause = (2 * pause).min(PAUSE_MAX);
            }
            // If no node can be reached, the next attempt reads the topology again.
            let number = self.topology.number;
            let _ = self.learn(&moved_from, &avoided);
            // With another topology, these nodes may have the slots.
            if self.topology.number != number {
                avoided.retain(|address| !moved_from.contains(address));
            }
        }
    }

    /// Removes the nodes of a pending slot from the nodes to avoid if all of them are avoided. Returns whether there is a
    /// pending slot with only such nodes.
    fn retry_failed_nodes<X>(&self, pending: &[(u16, X)], avoided: &mut HashSet<Address>) -> bool {
        let primaries: HashSet<u16> = pending.iter().map(|(slot, _)| self.owners[usize::from(*slot)]).collect();
        let mut have_all_failed = false;
        for primary in primaries {
            let addresses: Vec<Address> = self.nodes_of(primary).map(|node| self.address_of(node)).collect();
            if addresses.iter().all(|address| avoided.contains(address)) {
                have_all_failed = true;
                avoided.retain(|address| !addresses.contains(address));
            }
        }
        have_all_failed
    }

    /// Makes one call for the items of each node, to the best node of their slots that is not in `avoided`.
    fn exchange<X: Copy + Send + Sync, T: Send>(
        &mut self,
        items: Vec<(u16, X)>,
        call: &(impl Fn(&mut Client, &[(u16, X)]) -> Result<T, ClientError> + Sync),
        avoided: &HashSet<Address>,
    ) -> Vec<Answered<X, T>> {
        let mut groups: Vec<Vec<(u16, X)>> = Vec::new();
        groups.resize_with(self.topology.nodes.len(), Vec::new);
        for item in items {
            groups[usize::from(self.owners[usize::from(item.0)])].push(item);
        }
        let options = &self.options.client;
        let mut tasks = Vec::new();
        for items in groups.into_iter().filter(|items| !items.is_empty()) {
            let address = self.best_node(self.owners[usize::from(items[0].0)], avoided);
            let client = self.connections.remove(&address);
            tasks.push(Task { address, items, client });
        }
        let run = |Task { address, items, client }: Task<X>| {
            let mut client = match client.map_or_else(|| Client::connect_with(address.to_string(), options), Ok) {
                Ok(client) => client,
                Err(error) => return (None, Answered { address, items, result: Err(error) }),
            };
            let result = call(&mut client, &items);
            (Some(client), Answered { address, items, result })
        };
        let finished = match tasks.pop() {
            Some(only) if tasks.is_empty() => vec![run(only)],
            last => thread::scope(|scope| {
                let threads: Vec<_> =
                    tasks.into_iter().chain(last).map(|task| scope.spawn(move || run(task))).collect();
                threads.into_iter().map(|thread| thread.join().expect("a lookup does not panic")).collect()
            }),
        };
        let mut answered = Vec::with_capacity(finished.len());
        for (client, group) in finished {
            self.connections.extend(client.map(|client| (group.address.clone(), client)));
            answered.push(group);
        }
        answered
    }

    /// Returns the address of the best node with the slots of a primary that is not in `avoided`, or of the primary if all
    /// are. A primary is named by its position in the topology.
    fn best_node(&self, primary: u16, avoided: &HashSet<Address>) -> Address {
        let is_preferred = |node: &TopologyNode| (node.role == Role::Replica) == self.options.reads_replicas;
        let badness = |node: &TopologyNode| {
            let is_far = self.options.zone.is_some() && node.zone != self.options.zone;
            (node.health == Health::Fail, !is_preferred(node), is_far)
        };
        let nodes = self.nodes_of(primary).filter(|node| !avoided.contains(&self.address_of(node)));
        let best = nodes.min_by_key(|node| badness(node));
        self.address_of(best.unwrap_or(&self.topology.nodes[usize::from(primary)]))
    }

    /// Returns a primary, and its replicas that clients may read from.
    fn nodes_of(&self, primary: u16) -> impl Iterator<Item = &TopologyNode> {
        let primary = &self.topology.nodes[usize::from(primary)];
        let is_usable = |node: &&TopologyNode| matches!(node.health, Health::Online | Health::Fail);
        [primary].into_iter().chain(self.topology.replicas_of(&primary.id).filter(is_usable))
    }

    /// Returns the address of a node. The user and the encryption are those of the first seed.
    fn address_of(&self, node: &TopologyNode) -> Address {
        let seed = self.seeds.iter().find_map(Address::tcp);
        Address::Tcp(TcpAddress {
            host: node.host.clone(),
            port: node.port,
            user: seed.and_then(|seed| seed.user.clone()),
            tls: seed.is_some_and(|seed| seed.tls),
        })
    }

    /// Reads the topology from the first node that can be reached. Nodes of `first` are asked first, then the nodes that
    /// the client is connected to, the other nodes of the topology, and the seeds. Other nodes of `avoided` are not asked.
    /// An older topology than the current one is ignored.
    fn learn(&mut self, first: &[Address], avoided: &HashSet<Address>) -> Result<(), ClientError> {
        let connected: Vec<Address> = self.connections.keys().cloned().collect();
        let nodes: Vec<Address> = self.topology.nodes.iter().map(|node| self.address_of(node)).collect();
        let others = connected.into_iter().chain(nodes).chain(self.seeds.clone());
        let addresses: Vec<Address> =
            first.iter().cloned().chain(others.filter(|address| !avoided.contains(address))).collect();
        let mut asked = HashSet::new();
        let mut reported: Option<ClientError> = None;
        for address in addresses {
            if !asked.insert(address.clone()) {
                continue;
            }
            match self.topology_at(&address) {
                Ok((topology, owners)) => {
                    if topology.number >= self.topology.number {
                        (self.topology, self.owners) = (topology, owners);
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

    /// Closes the connections to servers that are neither nodes of the topology nor seeds. They may have an old topology.
    fn close_other_connections(&mut self) {
        let nodes = self.topology.nodes.iter().map(|node| self.address_of(node));
        let kept: HashSet<Address> = nodes.chain(self.seeds.iter().cloned()).collect();
        self.connections.retain(|address, _| kept.contains(address));
    }

    /// Reads the topology of a node, and the positions of the primaries of all slots.
    fn topology_at(&mut self, address: &Address) -> Result<(Topology, Box<[u16]>), ClientError> {
        let mut client = match self.connections.remove(address) {
            Some(client) => client,
            None => Client::connect_with(address.to_string(), &self.options.client)?,
        };
        let json = client.topology()?;
        self.connections.insert(address.clone(), client);
        let problem = |problem: String| ClientError::Configuration { server: address.clone(), problem };
        let json = json.ok_or_else(|| {
            problem(
                "the server is not a node of a cluster, or has no topology yet: use Client for one server".to_owned(),
            )
        })?;
        let topology = Topology::parse(json.as_bytes()).map_err(|error| problem(error.to_string()))?;
        let owners = topology.owners().map_err(|error| problem(error.to_string()))?;
        Ok((topology, owners))
    }
}

/// A call to one node, with the open connection to the node, if any.
struct Task<X> {
    address: Address,
    items: Vec<(u16, X)>,
    client: Option<Client>,
}

/// The result of a call to one node.
struct Answered<X, T> {
    address: Address,
    items: Vec<(u16, X)>,
    result: Result<T, ClientError>,
}

/// Returns whether another node may answer after this error: this node cannot be reached, or is overloaded. A signal that
/// ends a call ends it for all nodes.
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
