//! A table in an S3 server, and the nodes that follow it, each through a gate that can fail.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use super::load::Answer;
use super::nodes::{Member, ROWS, topology, topology_number};
use crate::helpers::generations::{Shape, named};
use crate::helpers::redis_replies::Reply;
use crate::helpers::servers::Server;
use crate::helpers::store_servers::{Bucket, StoreKind};
use crate::helpers::trials::Missing;
use crate::helpers::waiting::eventually;

pub(crate) const SHAPE: Shape = Shape { rows: ROWS, len_max_bytes: 40 };

/// What a gate does with the connections of a node to the store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Passage {
    Open,
    /// Closes all connections, and every new one.
    Closed,
    /// Responds to every request that the store is unavailable.
    Unavailable,
    /// Forwards requests, and closes the connection instead of forwarding the response.
    LosesResponses,
    /// Forwards this many bytes of responses per second and connection.
    Slow {
        bytes_per_s: usize,
    },
}

/// The connections of a node to the store.
pub(crate) struct Gate {
    address: SocketAddr,
    state: Arc<GateState>,
}

struct GateState {
    passage: Mutex<Passage>,
    connections: Mutex<Vec<Weak<Connection>>>,
}

/// A connection of a node, and the one to the store that it is forwarded to.
struct Connection {
    client: TcpStream,
    server: TcpStream,
}

impl Gate {
    /// Forwards connections to the store while the gate is open.
    fn open_to(store: SocketAddr) -> Gate {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let state = GateState { passage: Mutex::new(Passage::Open), connections: Mutex::default() };
        let gate = Gate { address: listener.local_addr().unwrap(), state: Arc::new(state) };
        let state = Arc::clone(&gate.state);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(store) else { continue };
                let mut connections = state.connections.lock().unwrap();
                if state.passage() == Passage::Closed {
                    continue;
                }
                let connection = Arc::new(Connection { client, server });
                connections.retain(|connection| connection.strong_count() > 0);
                connections.push(Arc::downgrade(&connection));
                drop(connections);
                let (requests, responses) = (Arc::clone(&state), Arc::clone(&state));
                let responding = Arc::clone(&connection);
                thread::spawn(move || {
                    let Connection { client, server } = &*responding;
                    copy(server, client, |bytes| responses.respond(client, bytes));
                });
                thread::spawn(move || {
                    let Connection { client, server } = &*connection;
                    copy(client, server, |bytes| requests.request(client, server, bytes));
                });
            }
        });
        gate
    }

    /// Changes what the gate does. Ends all connections, so that it applies to all requests from now on.
    pub(crate) fn set(&self, passage: Passage) {
        let mut connections = self.state.connections.lock().unwrap();
        *self.state.passage.lock().unwrap() = passage;
        for connection in connections.drain(..).filter_map(|connection| connection.upgrade()) {
            let _ = connection.client.shutdown(Shutdown::Both);
            let _ = connection.server.shutdown(Shutdown::Both);
        }
    }
}

impl GateState {
    fn passage(&self) -> Passage {
        *self.passage.lock().unwrap()
    }

    fn request(&self, mut client: &TcpStream, mut server: &TcpStream, bytes: &[u8]) -> io::Result<()> {
        if self.passage() == Passage::Unavailable {
            client.write_all(b"HTTP/1.1 503 Slow Down\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")?;
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        server.write_all(bytes)
    }

    fn respond(&self, mut client: &TcpStream, bytes: &[u8]) -> io::Result<()> {
        match self.passage() {
            Passage::LosesResponses => Err(io::ErrorKind::ConnectionAborted.into()),
            Passage::Slow { bytes_per_s } => {
                for part in bytes.chunks(bytes_per_s.div_ceil(20)) {
                    client.write_all(part)?;
                    thread::sleep(Duration::from_millis(50));
                }
                Ok(())
            }
            _ => client.write_all(bytes),
        }
    }
}

/// Forwards bytes until one side closes its connection, or `forward` fails.
fn copy(mut from: &TcpStream, to: &TcpStream, forward: impl Fn(&[u8]) -> io::Result<()>) {
    let mut bytes = vec![0; 16 << 10];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        if forward(&bytes[..len]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// A table in a bucket, and the nodes that follow it.
pub(crate) struct Cluster {
    pub(crate) folder: TempDir,
    pub(crate) bucket: Bucket,
    /// The number of the newest generation that clients may see.
    pub(crate) published: Arc<AtomicU64>,
    pub(crate) gates: HashMap<String, Gate>,
    pub(crate) servers: HashMap<String, Server>,
}

impl Cluster {
    pub(crate) fn new() -> Result<Cluster, Missing> {
        let (folder, bucket) = (tempfile::tempdir().unwrap(), Bucket::create(StoreKind::Moto)?);
        let published = Arc::default();
        Ok(Cluster { folder, bucket, published, gates: HashMap::new(), servers: HashMap::new() })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn url(&self) -> String {
        self.bucket.url("users")
    }

    /// Runs a program that changes the table in the bucket.
    pub(crate) fn run(&self, program: &str, args: &[&str]) {
        let output = Command::new(program).args(args).envs(self.bucket.variables()).output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
    }

    /// Publishes the next generation, whose number of shards depends on its number.
    pub(crate) fn publish(&self) {
        let generation = self.published.fetch_add(1, Ordering::Relaxed) + 1;
        let (whole, shards) = (self.path("whole.db"), self.path(&format!("shards-{generation}")));
        SHAPE.bake(generation, &whole);
        let (whole, shards) = (whole.to_str().unwrap(), shards.to_str().unwrap());
        let count = [4, 3, 8, 5][generation as usize % 4].to_string();
        let args = ["merge", whole, "--shards", &count, "-o", shards, "--quiet", "--to", &self.url()];
        self.run(env!("CARGO_BIN_EXE_baker"), &args);
    }

    pub(crate) fn apply(&self, number: u64, members: &[Member]) {
        let file = self.path("topology.json");
        std::fs::write(&file, topology(number, members)).unwrap();
        self.run(env!("CARGO_BIN_EXE_zkv"), &["topology", "apply", file.to_str().unwrap(), "--to", &self.url()]);
    }

    /// Starts a node, and waits until it is ready.
    pub(crate) fn start(&mut self, member: &Member) {
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

    pub(crate) fn kill(&mut self, member: &Member) {
        self.servers.get_mut(&member.id).unwrap().kill();
    }

    /// Waits until all nodes serve a generation.
    pub(crate) fn wait_for_generation(&self, generation: u64) {
        for (id, server) in &self.servers {
            eventually(&format!("node {id} serves generation {generation}"), || {
                server.number("published_generation") == generation
            });
        }
    }

    /// Waits until all nodes except some follow a topology and serve the newest generation.
    pub(crate) fn wait_for(&self, number: u64, except: &[&str]) {
        let generation = self.published.load(Ordering::Relaxed);
        for (id, server) in self.servers.iter().filter(|(id, _)| !except.contains(&id.as_str())) {
            eventually(&format!("node {id} follows topology {number}"), || topology_number(server) == number);
            eventually(&format!("node {id} serves generation {generation}"), || {
                server.number("published_generation") == generation
            });
        }
    }
}

/// Checks that each value belongs to a published generation, and that a connection never sees an older generation after a
/// newer one. Every generation has the keys from 1 to [`ROWS`].
pub(crate) struct Check {
    published: Arc<AtomicU64>,
    /// The newest generation that each connection has seen.
    seen: Mutex<HashMap<u64, u64>>,
}

impl Check {
    pub(crate) fn of(cluster: &Cluster) -> Check {
        Check { published: Arc::clone(&cluster.published), seen: Mutex::default() }
    }

    /// Returns whether an answer is of a published generation, even if its connection has seen a newer one.
    pub(crate) fn is_published(&self, key: u64, answer: &Answer) -> bool {
        self.seen.lock().unwrap().remove(&answer.connection_id);
        self.is_right(key, answer)
    }

    pub(crate) fn is_right(&self, key: u64, answer: &Answer) -> bool {
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
