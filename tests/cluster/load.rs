//! Clients that read from a cluster while it changes, and check every reply.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use zero_kv::slots::{SLOT_COUNT, slot_of};

use super::nodes::ROWS;
use crate::helpers::random::Random;
use crate::helpers::redis_replies::Reply;
use crate::helpers::redis_server::command;
use crate::helpers::waiting::eventually;

/// A client of a cluster: it follows redirections, and reads from a replica if a primary does not answer.
pub(crate) struct Client {
    /// The ports of the primary and the replicas of each slot.
    ports: Vec<Vec<u16>>,
    seeds: Vec<u16>,
    connections: HashMap<u16, Connection>,
    /// The maximum number of times that a request is sent to all nodes of its slot.
    pub(crate) attempts: u32,
}

struct Connection {
    /// A number that no other connection of this process has.
    id: u64,
    stream: TcpStream,
}

/// A reply, and the connection that it came from.
pub(crate) struct Answer {
    pub(crate) reply: Reply,
    pub(crate) connection_id: u64,
}

/// What the clients have observed.
#[derive(Default)]
pub(crate) struct Observed {
    pub(crate) replies: AtomicU64,
    /// Replies that were neither the row nor a reason to retry.
    wrong: AtomicU64,
    /// Requests that no node has answered in the end.
    unanswered: AtomicU64,
    /// Requests that were sent again, to another node or later, because a node could not be reached or did not have the
    /// rows yet.
    repeated: AtomicU64,
}

impl Client {
    pub(crate) fn new(seeds: &[u16]) -> Client {
        let seeds = seeds.to_vec();
        let mut client = Client { ports: Vec::new(), seeds, connections: HashMap::new(), attempts: 200 };
        client.learn();
        client
    }

    /// Asks the nodes for the topology until one answers, and begins with another node each time.
    fn learn(&mut self) {
        self.seeds.rotate_left(1);
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
        static IDS: AtomicU64 = AtomicU64::new(0);
        let Connection { stream, .. } = match self.connections.entry(port) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let mut stream = TcpStream::connect(("127.0.0.1", port))?;
                stream.set_read_timeout(Some(Duration::from_secs(10)))?;
                stream.write_all(&command(&[b"READONLY"]))?;
                read_reply(&mut stream)?;
                entry.insert(Connection { id: IDS.fetch_add(1, Ordering::Relaxed), stream })
            }
        };
        stream.write_all(&command(words))?;
        read_reply(stream)
    }

    /// Returns the reply to a request for a key, or `None` if no node has answered. Counts repeated requests.
    pub(crate) fn get(&mut self, key: u64, repeated: &AtomicU64) -> Option<Answer> {
        let (slot, text) = (usize::from(slot_of(key.into())), key.to_string());
        for attempt in 0..self.attempts {
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
                    Ok(Reply::Error(text)) if text.starts_with("LOADING ") => {
                        repeated.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(reply) => {
                        let connection_id = self.connections[&port].id;
                        if redirections > 0 {
                            self.learn();
                        }
                        return Some(Answer { reply, connection_id });
                    }
                    Err(_) => {
                        repeated.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
            thread::sleep(Duration::from_millis(attempt.min(20).into()));
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

/// Returns whether the answer for a key is right.
pub(crate) type IsRight<'a> = dyn Fn(u64, &Answer) -> bool + Sync + 'a;

/// Reads random keys until `stop` is true.
fn load(seed: u64, seeds: &[u16], is_right: &IsRight<'_>, stop: &AtomicBool, observed: &Observed) {
    let (mut client, mut random) = (Client::new(seeds), Random(seed));
    while !stop.load(Ordering::Relaxed) {
        let key = random.next() % (ROWS + ROWS / 10);
        match client.get(key, &observed.repeated) {
            Some(answer) if is_right(key, &answer) => {}
            Some(answer) => {
                eprintln!("key {key}: {:?} is wrong", answer.reply);
                observed.wrong.fetch_add(1, Ordering::Relaxed);
            }
            None => {
                eprintln!("key {key} is not answered");
                observed.unanswered.fetch_add(1, Ordering::Relaxed);
            }
        }
        observed.replies.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs `changes` while clients read the rows of [`Cluster::of_numbers`](super::nodes::Cluster::of_numbers), and checks
/// their replies. The argument of `changes` waits until the clients have got some more replies.
pub(crate) fn under_load(seeds: &[u16], changes: impl FnOnce(&dyn Fn())) {
    let is_right = |key, answer: &Answer| match key < ROWS {
        true => answer.reply == Reply::Bytes(format!("value {key}").into_bytes()),
        false => answer.reply == Reply::Null,
    };
    under_load_of(seeds, &is_right, changes);
}

/// Does what [`under_load`] does, with another check of the answers. Returns the number of repeated requests.
pub(crate) fn under_load_of(seeds: &[u16], is_right: &IsRight<'_>, changes: impl FnOnce(&dyn Fn())) -> u64 {
    let (stop, observed) = (AtomicBool::new(false), Observed::default());
    thread::scope(|scope| {
        for client in 0..4 {
            let (stop, observed) = (&stop, &observed);
            scope.spawn(move || load(client, seeds, is_right, stop, observed));
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
    count(&observed.repeated)
}
