//! Nodes and topologies that change while clients read.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use zero_kv::slots::{SLOT_COUNT, SlotRange, slot_of};

use super::clients::{start, start_one};
use super::nodes::{Cluster, Member, ROWS, members, topology, topology_number};
use crate::helpers::random::Random;
use crate::helpers::redis_replies::Reply;
use crate::helpers::redis_server::command;
use crate::helpers::servers::Server;
use crate::helpers::waiting::eventually;

/// A client of a cluster: it follows redirections, and reads from a replica if a primary does not answer.
struct Client {
    /// The ports of the primary and the replicas of each slot.
    ports: Vec<Vec<u16>>,
    seeds: Vec<u16>,
    connections: HashMap<u16, TcpStream>,
}

/// What the clients have observed.
#[derive(Default)]
struct Observed {
    replies: AtomicU64,
    /// Replies that were neither the row nor a reason to retry.
    wrong: AtomicU64,
    /// Requests that no node has answered in the end.
    unanswered: AtomicU64,
}

impl Client {
    fn new(seeds: &[u16]) -> Client {
        let mut client = Client { ports: Vec::new(), seeds: seeds.to_vec(), connections: HashMap::new() };
        client.learn();
        client
    }

    /// Asks the nodes for the topology until one answers.
    fn learn(&mut self) {
        for port in self.seeds.clone() {
            let Ok(Reply::List(ranges)) = self.ask(port, &[b"CLUSTER", b"SLOTS"]) else { continue };
            let mut ports = vec![Vec::new(); usize::from(SLOT_COUNT)];
            for range in &ranges {
                let range = range.list();
                let nodes: Vec<u16> = range[2..].iter().map(|node| node.list()[1].integer() as u16).collect();
                for slot in range[0].integer()..=range[1].integer() {
                    ports[slot as usize].clone_from(&nodes);
                }
            }
            self.ports = ports;
            return;
        }
    }

    /// Sends a command, and returns its reply. A connection that fails is closed.
    fn ask(&mut self, port: u16, words: &[&[u8]]) -> io::Result<Reply> {
        let result = self.try_ask(port, words);
        if result.is_err() {
            self.connections.remove(&port);
        }
        result
    }

    fn try_ask(&mut self, port: u16, words: &[&[u8]]) -> io::Result<Reply> {
        let stream = match self.connections.entry(port) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                let mut stream = TcpStream::connect(("127.0.0.1", port))?;
                stream.set_read_timeout(Some(Duration::from_secs(10)))?;
                stream.write_all(&command(&[b"READONLY"]))?;
                read_reply(&mut stream)?;
                entry.insert(stream)
            }
        };
        stream.write_all(&command(words))?;
        read_reply(stream)
    }

    /// Returns the value of a key, or `None` if no node has answered.
    fn get(&mut self, key: u64) -> Option<Reply> {
        let (slot, text) = (usize::from(slot_of(key.into())), key.to_string());
        for attempt in 0..200 {
            let mut asked = self.ports.get(slot).cloned().unwrap_or_default();
            let mut redirections = 0;
            while let Some(port) = asked.first().copied() {
                asked.remove(0);
                match self.ask(port, &[b"GET", text.as_bytes()]) {
                    Ok(Reply::Error(text)) if text.starts_with("MOVED ") => {
                        let port = text.rsplit(':').next().unwrap().parse().unwrap();
                        redirections += 1;
                        // Clients give up after five redirections (redis-py: 16).
                        assert!(redirections <= 5, "key {key} is redirected in a circle: {text}");
                        asked.insert(0, port);
                    }
                    Ok(Reply::Error(text)) if text.starts_with("LOADING ") => {}
                    Ok(reply) => {
                        if redirections > 0 {
                            self.learn();
                        }
                        return Some(reply);
                    }
                    Err(_) => {}
                }
            }
            std::thread::sleep(Duration::from_millis(attempt.min(20)));
            self.learn();
        }
        None
    }
}

/// Reads a reply whose length is known once its bytes have been parsed.
fn read_reply(stream: &mut TcpStream) -> io::Result<Reply> {
    let mut bytes = Vec::new();
    loop {
        let mut chunk = [0; 16 << 10];
        match stream.read(&mut chunk)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            len => bytes.extend_from_slice(&chunk[..len]),
        }
        if let Ok(Some(len)) = zero_kv::protocol::resp::reply_len_bytes(&bytes) {
            assert_eq!(len, bytes.len(), "a reply was requested once");
            return Ok(Reply::all(&bytes).swap_remove(0));
        }
    }
}

/// Reads random keys until `stop` is true.
fn load(seed: u64, seeds: &[u16], stop: &AtomicBool, observed: &Observed) {
    let (mut client, mut random) = (Client::new(seeds), Random(seed));
    while !stop.load(Ordering::Relaxed) {
        let key = random.next() % (ROWS + ROWS / 10);
        let expected = if key < ROWS { Reply::Bytes(format!("value {key}").into_bytes()) } else { Reply::Null };
        match client.get(key) {
            Some(found) if found == expected => {}
            Some(found) => {
                eprintln!("key {key}: {found:?}, expected {expected:?}");
                observed.wrong.fetch_add(1, Ordering::Relaxed);
            }
            None => {
                observed.unanswered.fetch_add(1, Ordering::Relaxed);
            }
        }
        observed.replies.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs `changes` while clients read, and checks their replies. The argument of `changes` waits until the clients have
/// got some more replies.
pub(crate) fn under_load(seeds: &[u16], changes: impl FnOnce(&dyn Fn())) {
    let (stop, observed) = (AtomicBool::new(false), Observed::default());
    std::thread::scope(|scope| {
        for client in 0..4 {
            let (stop, observed) = (&stop, &observed);
            scope.spawn(move || load(client, seeds, stop, observed));
        }
        /// Stops the clients also after a failed assertion.
        struct Stop<'s>(&'s AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _stop = Stop(&stop);
        changes(&|| {
            let before = observed.replies.load(Ordering::Relaxed);
            eventually("the clients get more replies", || observed.replies.load(Ordering::Relaxed) >= before + 500);
        });
    });
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    assert_eq!(
        (count(&observed.wrong), count(&observed.unanswered)),
        (0, 0),
        "of {} replies",
        count(&observed.replies)
    );
}

pub(crate) fn a_primary_and_a_replica_are_killed_and_restarted_under_load() {
    let (cluster, members) = (Cluster::of_numbers(), members(4, 1));
    let mut servers = start(&cluster, &members);
    let seeds: Vec<u16> = members.iter().map(|member| member.port).collect();
    under_load(&seeds, |more| {
        more();
        for (position, member) in members.iter().enumerate() {
            servers[position].kill();
            more();
            servers[position] = start_one(&cluster, member);
            more();
        }
        // A topology without the primary promotes its replica.
        servers[0].kill();
        let mut promoted = members.clone();
        promoted.remove(0);
        promoted[0].primary = None;
        cluster.write_topology(&topology(2, &promoted));
        for server in &servers[1..] {
            eventually("the new topology is in effect", || topology_number(server) == 2);
        }
        more();
    });
}

pub(crate) fn no_reply_is_wrong_while_topologies_change_under_load() {
    let cluster = Cluster::of_numbers();
    let members = members(8, 0);
    let seeds: Vec<u16> = members.iter().map(|member| member.port).collect();
    // Every node has the whole table, so the slots of nodes can change without new files.
    let serve = |member: &Member| {
        let address = format!("127.0.0.1:{}", member.port);
        let command = cluster.command(&member.id, &cluster.path("whole.db"), member.port, &["--tcp", &address]);
        Server::of(command, &cluster.path(&format!("{}.sock", member.id)))
    };
    let four: Vec<Member> = members
        .iter()
        .step_by(2)
        .enumerate()
        .map(|(shard, member)| {
            let first_slot = shard as u16 * 4096;
            Member { slots: SlotRange { first_slot, last_slot: first_slot + 4095 }, ..member.clone() }
        })
        .collect();
    cluster.write_topology(&topology(1, &four));
    let servers: Vec<Server> = members.iter().map(serve).collect();
    under_load(&seeds[..1], |more| {
        // Twice as many nodes, half as many, and the slots of all nodes rotated.
        let rotated: Vec<Member> =
            (0..8).map(|at| Member { slots: members[(at + 3) % 8].slots, ..members[at].clone() }).collect();
        for (number, members) in (2..).zip([&members, &four, &rotated, &members]) {
            more();
            cluster.write_topology(&topology(number, members));
            for server in &servers {
                eventually("the new topology is in effect", || topology_number(server) == number);
            }
        }
        more();
    });
}
