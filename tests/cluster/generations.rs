//! Nodes that fetch generations and topologies from an S3 server. While nodes end, topologies change, and nodes lose their
//! connections to the store, clients check that every value belongs to a published generation.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::process::Signal;
use tempfile::TempDir;
use zero_kv::client::ClusterClient;
use zero_kv::slots::SlotRange;

use super::load::{Answer, Client, Effort, under_load_of};
use super::nodes::{Member, ROWS, members, topology, topology_number};
use crate::helpers::generations::{Shape, named};
use crate::helpers::redis_replies::Reply;
use crate::helpers::servers::Server;
use crate::helpers::store_servers::{Bucket, StoreKind};
use crate::helpers::trials::Missing;
use crate::helpers::waiting::eventually;

const SHAPE: Shape = Shape { rows: ROWS, len_max_bytes: 40 };

/// The connections of a node to the store, which a test can cut.
struct Gate {
    address: SocketAddr,
    state: Arc<GateState>,
}

#[derive(Default)]
struct GateState {
    is_closed: AtomicBool,
    connections: Mutex<Vec<TcpStream>>,
}

impl Gate {
    /// Forwards connections to the store while the gate is open.
    fn open_to(store: SocketAddr) -> Gate {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let gate = Gate { address: listener.local_addr().unwrap(), state: Arc::default() };
        let state = Arc::clone(&gate.state);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(store) else { continue };
                let mut connections = state.connections.lock().unwrap();
                if state.is_closed.load(Ordering::Relaxed) {
                    continue;
                }
                connections.extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
                let (from_server, to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                thread::spawn(move || copy(from_server, to_client));
                thread::spawn(move || copy(client, server));
            }
        });
        gate
    }

    fn close(&self) {
        let mut connections = self.state.connections.lock().unwrap();
        self.state.is_closed.store(true, Ordering::Relaxed);
        for connection in connections.drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    fn open(&self) {
        self.state.is_closed.store(false, Ordering::Relaxed);
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    // Either side may close its connection at any time.
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Both);
}

/// A table in a bucket, and the nodes that follow it.
struct Cluster {
    folder: TempDir,
    bucket: Bucket,
    /// The number of the newest generation that clients may see.
    published: Arc<AtomicU64>,
    gates: HashMap<String, Gate>,
    servers: HashMap<String, Server>,
}

impl Cluster {
    fn new() -> Result<Cluster, Missing> {
        let (folder, bucket) = (tempfile::tempdir().unwrap(), Bucket::create(StoreKind::Moto)?);
        let published = Arc::default();
        Ok(Cluster { folder, bucket, published, gates: HashMap::new(), servers: HashMap::new() })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn url(&self) -> String {
        self.bucket.url("users")
    }

    /// Runs a program that changes the table in the bucket.
    fn run(&self, program: &str, args: &[&str]) {
        let output = Command::new(program).args(args).envs(self.bucket.variables()).output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
    }

    /// Publishes the next generation, whose number of shards depends on its number.
    fn publish(&self) {
        let generation = self.published.fetch_add(1, Ordering::Relaxed) + 1;
        let (whole, shards) = (self.path("whole.db"), self.path(&format!("shards-{generation}")));
        SHAPE.bake(generation, &whole);
        let (whole, shards) = (whole.to_str().unwrap(), shards.to_str().unwrap());
        let count = [4, 3, 8, 5][generation as usize % 4].to_string();
        let args = ["merge", whole, "--shards", &count, "-o", shards, "--quiet", "--to", &self.url()];
        self.run(env!("CARGO_BIN_EXE_baker"), &args);
    }

    fn apply(&self, number: u64, members: &[Member]) {
        let file = self.path("topology.json");
        std::fs::write(&file, topology(number, members)).unwrap();
        self.run(env!("CARGO_BIN_EXE_zkv"), &["topology", "apply", file.to_str().unwrap(), "--to", &self.url()]);
    }

    /// Starts a node, and waits until it is ready.
    fn start(&mut self, member: &Member) {
        let (id, address) = (member.id.clone(), format!("127.0.0.1:{}", member.port));
        let gate = self.gates.entry(id.clone()).or_insert_with(|| Gate::open_to(self.bucket.address));
        let endpoint = format!("http://{}", gate.address);
        let socket = self.folder.path().join(format!("{id}.sock"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_kv_store"));
        command.args(["--from", &self.bucket.url("users"), "--node", &id, "--poll", "200ms", "--cache"]);
        command.arg(self.folder.path().join(format!("cache-{id}"))).arg("--socket").arg(&socket);
        command.args(["--cluster", "--announce", &address, "--tcp", &address]).env("RUST_LOG", "info");
        command.envs(self.bucket.variables()).env("AWS_ENDPOINT_URL", endpoint);
        self.servers.insert(id, Server::of(command, &socket));
    }

    fn kill(&mut self, member: &Member) {
        self.servers.get_mut(&member.id).unwrap().kill();
    }

    /// Waits until all nodes except some follow a topology and serve the newest generation.
    fn wait_for(&self, number: u64, except: &[&str]) {
        let generation = self.published.load(Ordering::Relaxed);
        for (id, server) in self.servers.iter().filter(|(id, _)| !except.contains(&id.as_str())) {
            eventually(&format!("node {id} follows topology {number}"), || topology_number(server) == number);
            eventually(&format!("node {id} serves generation {generation}"), || {
                server.number("published_generation") == generation
            });
        }
    }
}

/// Returns as many pairs of a primary and a replica as there are ranges of slots, which are equally long.
fn pairs(members: &[Member], shards: u16, rotated_by: u16) -> Vec<Member> {
    let slots = |shard: u16| {
        let first_slot = shard * (16384 / shards);
        SlotRange { first_slot, last_slot: first_slot + (16384 / shards - 1) }
    };
    let pair = |shard: u16| {
        let pair = &members[usize::from(2 * shard)..usize::from(2 * shard + 2)];
        pair.iter().map(move |member| Member { slots: slots((shard + rotated_by) % shards), ..member.clone() })
    };
    (0..shards).flat_map(pair).collect()
}

/// Checks that each value belongs to a published generation, and that a connection never sees an older generation after a
/// newer one. Every generation has the keys from 1 to [`ROWS`].
struct Check {
    published: Arc<AtomicU64>,
    /// The newest generation that each connection has seen.
    seen: Mutex<HashMap<u64, u64>>,
}

impl Check {
    fn is_right(&self, key: u64, answer: &Answer) -> bool {
        let Reply::Bytes(value) = &answer.reply else {
            return answer.reply == Reply::Null && !(1..=ROWS).contains(&key);
        };
        let Some(generation) = named(value) else { return false };
        let mut seen = self.seen.lock().unwrap();
        let newest = seen.entry(answer.connection_id).or_default();
        let is_right = generation <= self.published.load(Ordering::Relaxed)
            && generation >= *newest
            && SHAPE.value(generation, key).as_ref() == Some(value);
        *newest = generation;
        is_right
    }
}

pub(crate) fn every_value_is_of_a_published_generation_while_everything_fails() -> Result<(), Missing> {
    let mut cluster = Cluster::new()?;
    let all = members(8, 1);
    let four = pairs(&all, 4, 0);
    cluster.publish();
    cluster.apply(1, &four);
    four.iter().for_each(|member| cluster.start(member));
    cluster.wait_for(1, &[]);
    let check = Check { published: Arc::clone(&cluster.published), seen: Mutex::default() };
    let seeds: Vec<u16> = four.iter().map(|member| member.port).collect();
    let is_right = |key, answer: &Answer| check.is_right(key, answer);
    let mut while_clients_read = |what: &str, changes: &mut dyn FnMut(&mut Cluster, &dyn Fn())| {
        let Effort { repeated, longest_wait_ms } = under_load_of(&seeds, &is_right, |more| {
            more();
            changes(&mut cluster, more);
        });
        println!(
            "{what}: {repeated} requests were sent again, and the longest wait for an answer was {longest_wait_ms} ms"
        );
    };
    while_clients_read("nodes end", &mut |cluster, more| nodes_are_killed_and_restarted(cluster, &four, more));
    while_clients_read("topologies change", &mut |cluster, more| a_node_misses_topologies(cluster, &all, more));
    while_clients_read("no store", &mut |cluster, more| the_store_is_out_of_reach(cluster, &four, more));
    without_a_node_only_its_slots_fail(&mut cluster, &four, &seeds);
    Ok(())
}

/// Kills a primary and a replica, and restarts all nodes, one after the other.
fn nodes_are_killed_and_restarted(cluster: &mut Cluster, four: &[Member], more: &dyn Fn()) {
    for member in [&four[0], &four[3]] {
        cluster.kill(member);
        cluster.publish();
        more();
        cluster.start(member);
        cluster.wait_for(1, &[]);
    }
    for (position, member) in four.iter().enumerate() {
        let server = cluster.servers.get_mut(&member.id).unwrap();
        server.signal(Signal::TERM);
        assert!(server.wait().success());
        if position % 4 == 0 {
            cluster.publish();
        }
        cluster.start(member);
        more();
    }
    cluster.wait_for(1, &[]);
}

/// Changes to twice as many nodes, moves their slots, and changes back, while one node is down.
fn a_node_misses_topologies(cluster: &mut Cluster, all: &[Member], more: &dyn Fn()) {
    let (four, eight) = (pairs(all, 4, 0), pairs(all, 8, 0));
    cluster.apply(2, &eight);
    all[four.len()..].iter().for_each(|member| cluster.start(member));
    cluster.publish();
    cluster.wait_for(2, &[]);
    more();
    let stale = &all[5];
    cluster.kill(stale);
    for (number, members) in (3..).zip([pairs(all, 8, 1), pairs(all, 8, 3), four.clone()]) {
        cluster.apply(number, &members);
        cluster.publish();
        cluster.wait_for(number, &[&stale.id]);
        more();
    }
    // The nodes that have no slots anymore are not needed.
    for member in &all[four.len()..] {
        cluster.kill(member);
        cluster.servers.remove(&member.id);
    }
    more();
    cluster.start(stale);
    cluster.wait_for(5, &[]);
    more();
}

/// Cuts one node and then all nodes off from the store, while generations and topologies change.
fn the_store_is_out_of_reach(cluster: &mut Cluster, four: &[Member], more: &dyn Fn()) {
    let cut_off = &four[4];
    cluster.gates[&cut_off.id].close();
    let before = cluster.published.load(Ordering::Relaxed);
    cluster.publish();
    cluster.publish();
    let mut changed = four.to_vec();
    // The replica of another shard becomes its primary.
    changed[0].primary = Some(changed[1].id.clone());
    changed[1].primary = None;
    cluster.apply(6, &changed);
    cluster.wait_for(6, &[&cut_off.id]);
    more();
    let server = &cluster.servers[&cut_off.id];
    eventually("the node reports that it cannot reach the store", || {
        !server.info().get("published_error").unwrap_or_default().is_empty()
    });
    assert_eq!((server.number("published_generation"), topology_number(server)), (before, 5));
    cluster.gates[&cut_off.id].open();
    cluster.wait_for(6, &[]);
    cluster.gates.values().for_each(Gate::close);
    cluster.publish();
    more();
    cluster.gates.values().for_each(Gate::open);
    cluster.apply(7, four);
    cluster.wait_for(7, &[]);
    more();
    let seeds: Vec<String> = four.iter().map(|member| format!("zkv://127.0.0.1:{}", member.port)).collect();
    let rows = ClusterClient::connect(&seeds).unwrap().count(..).unwrap();
    let generation = cluster.published.load(Ordering::Relaxed);
    assert_eq!(rows, ROWS + u64::from(generation.is_multiple_of(2)));
}

/// Without the primary and the replica of a shard, requests for its keys fail, and all others are answered.
fn without_a_node_only_its_slots_fail(cluster: &mut Cluster, four: &[Member], seeds: &[u16]) {
    let generation = cluster.published.load(Ordering::Relaxed);
    four[..2].iter().for_each(|member| cluster.kill(member));
    let mut client = Client::new(seeds);
    client.attempts = 2;
    let mut answered = |key: u64| client.get(key, &AtomicU64::new(0)).map(|answer| answer.reply);
    for key in 1..=ROWS {
        let expected = SHAPE.value(generation, key).filter(|_| !four[0].slots.has_key(key.into()));
        assert_eq!(answered(key), expected.map(Reply::Bytes), "key {key}");
    }
    cluster.start(&four[1]);
    for key in 1..=ROWS {
        assert_eq!(answered(key), SHAPE.value(generation, key).map(Reply::Bytes), "key {key}");
    }
}
