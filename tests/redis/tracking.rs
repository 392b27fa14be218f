//! Client-side caching, with clients that cache rows while the table is replaced.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;
use zero_kv::protocol::resp::reply_len_bytes;

use super::served::*;
use super::tools::assert_same_everywhere;
use crate::helpers::random::Random;
use crate::helpers::redis_replies::Reply;
use crate::helpers::redis_server::command;
use crate::helpers::repeating::StopOnDrop;
use crate::helpers::servers::Server;
use crate::helpers::tables::{Model, Table, bake};
use crate::helpers::trials::Missing;
use crate::helpers::waiting::eventually;

const KEYS: u64 = 300;

/// Returns rows whose values name their generation. Some values are sent from the file, not from a buffer.
fn rows_of(generation: u64) -> Model {
    let value = |key: u64| format!("{generation} {}", "x".repeat(if key.is_multiple_of(50) { 9000 } else { 20 }));
    (0..KEYS).map(|key| (key, value(key).into_bytes())).collect()
}

/// Puts a file of a generation in place, and waits until it is served.
fn swap_to(table: &Table, server: &Server, generation: u64) {
    let new = table.db().with_extension("new");
    bake(&rows_of(generation), &new);
    // The server may notice the new file at once.
    let before = server.number("generation");
    std::fs::rename(new, table.db()).unwrap();
    server.signal(Signal::HUP);
    server.wait_for("generation", before + 1);
}

/// A connection whose replies and messages are read one at a time.
struct Connection {
    stream: UnixStream,
    unread: Vec<u8>,
}

impl Connection {
    fn open(server: &Server) -> Connection {
        Connection { stream: server.connect(), unread: Vec::new() }
    }

    fn send(&mut self, lines: &[&str]) {
        let bytes: Vec<u8> =
            lines.iter().flat_map(|line| command(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>())).collect();
        self.stream.write_all(&bytes).unwrap();
    }

    fn next(&mut self) -> Reply {
        loop {
            if let Some(len) = reply_len_bytes(&self.unread).unwrap() {
                let bytes: Vec<u8> = self.unread.drain(..len).collect();
                return Reply::all(&bytes).remove(0);
            }
            let mut bytes = [0; 1 << 16];
            let read = self.stream.read(&mut bytes).unwrap();
            assert!(read > 0, "the server closed the connection");
            self.unread.extend_from_slice(&bytes[..read]);
        }
    }

    fn ask(&mut self, line: &str) -> Reply {
        self.send(&[line]);
        self.next()
    }

    /// Returns the number that CLIENT ID reports.
    fn id(&mut self) -> i64 {
        self.ask("CLIENT ID").integer()
    }
}

fn invalidation() -> Reply {
    Reply::Push(vec![Reply::Bytes(b"invalidate".to_vec()), Reply::Null])
}

/// A client that caches the rows it reads, and forgets them when the server says so.
struct CachingClient {
    connection: Connection,
    /// The generation of each cached row.
    cache: BTreeMap<u64, u64>,
    invalidations: usize,
}

impl CachingClient {
    fn open(server: &Server, options: &str) -> CachingClient {
        let mut connection = Connection::open(server);
        connection.ask("HELLO 3");
        assert_eq!(connection.ask(&format!("CLIENT TRACKING ON{options}")), Reply::Text("OK".to_owned()));
        CachingClient { connection, cache: BTreeMap::new(), invalidations: 0 }
    }

    /// Reads the next reply. Forgets all rows at each message before it.
    fn reply(&mut self) -> Reply {
        loop {
            match self.connection.next() {
                reply if reply == invalidation() => {
                    self.cache.clear();
                    self.invalidations += 1;
                }
                reply => return reply,
            }
        }
    }

    /// Caches a row. All rows that are cached at one time are of one generation.
    fn keep(&mut self, key: u64, value: &Reply) {
        let text = value.text();
        let generation = text.split(' ').next().unwrap().parse().unwrap();
        if let Some((other_key, other)) = self.cache.first_key_value() {
            let invalidations = self.invalidations;
            assert_eq!((generation, key), (*other, key), "key {other_key} is cached, {invalidations} invalidations");
        }
        self.cache.insert(key, generation);
    }

    /// Sends a pipeline of reads, and caches their rows.
    fn read_some(&mut self, random: &mut Random) {
        let mut keys = |count: usize| -> Vec<u64> { (0..count).map(|_| random.below(KEYS as usize) as u64).collect() };
        let (single, many, queued) = (keys(20), keys(30), keys(5));
        let mut lines: Vec<String> = single.iter().map(|key| format!("GET {key}")).collect();
        lines.push(format!("MGET {}", many.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")));
        lines.push("MULTI".to_owned());
        lines.extend(queued.iter().map(|key| format!("GET {key}")));
        lines.push("EXEC".to_owned());
        self.connection.send(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        for key in single {
            let value = self.reply();
            self.keep(key, &value);
        }
        let values = self.reply();
        many.into_iter().zip(values.list()).for_each(|(key, value)| self.keep(key, value));
        (0..=queued.len()).for_each(|_| drop(self.reply()));
        let values = self.reply();
        queued.into_iter().zip(values.list()).for_each(|(key, value)| self.keep(key, value));
    }
}

pub(crate) fn a_caching_client_keeps_no_row_of_a_replaced_generation() {
    const SWAPS: u64 = 20;
    let table = Table::new(rows_of(1));
    let server = table.serve_with(&["--workers", "2"]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&is_over);
        let clients: Vec<_> = ["", " OPTIN", " OPTOUT NOLOOP", " BCAST PREFIX 1 PREFIX 2"]
            .iter()
            .enumerate()
            .map(|(number, options)| {
                let (server, is_over) = (&server, &is_over);
                scope.spawn(move || {
                    let mut client = CachingClient::open(server, options);
                    let mut random = Random(number as u64 + 1);
                    while !is_over.load(Ordering::Relaxed) {
                        client.read_some(&mut random);
                    }
                    client
                })
            })
            .collect();
        for generation in 2..=SWAPS {
            swap_to(&table, &server, generation);
        }
        // A rollback serves the rows of the preceding file again.
        let before = server.number("generation");
        let mut rollback = Command::new(env!("CARGO_BIN_EXE_zkv"));
        let output = rollback.args(["reload", "--rollback", "--server"]).arg(server.socket()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        server.wait_for("generation", before + 1);
        is_over.store(true, Ordering::Relaxed);
        let mut clients: Vec<CachingClient> = clients.into_iter().map(|client| client.join().unwrap()).collect();
        for client in &mut clients {
            // A message may be on its way.
            client.connection.send(&["PING"]);
            assert_eq!(client.reply(), Reply::Text("PONG".to_owned()));
            assert!(client.cache.values().all(|generation| *generation == SWAPS - 1), "{:?}", client.cache);
            assert!(client.invalidations > 1, "{} invalidations", client.invalidations);
        }
        // Clients that send nothing get the message, too.
        swap_to(&table, &server, SWAPS + 1);
        clients.iter_mut().for_each(|client| assert_eq!(client.connection.next(), invalidation()));
    });
}

pub(crate) fn a_swap_reaches_a_thousand_caching_clients() {
    let table = Table::new(rows_of(1));
    let server = table.serve_with(&["--workers", "2", "--max-connections", "1200"]);
    let mut clients: Vec<CachingClient> = (0..1000).map(|_| CachingClient::open(&server, "")).collect();
    let tracking = || {
        let info = Reply::all(&ask(server.socket(), &["INFO clients"])).remove(0).text();
        crate::helpers::redis_server::line_of(&info, "tracking_clients").unwrap().to_owned()
    };
    assert_eq!(tracking(), "1000");
    let before_bytes = server.number("client_memory_bytes");
    for generation in 2..5 {
        swap_to(&table, &server, generation);
        clients.iter_mut().for_each(|client| assert_eq!(client.connection.next(), invalidation()));
    }
    let grown_bytes = server.number("client_memory_bytes").saturating_sub(before_bytes);
    assert!(grown_bytes < 1 << 20, "{grown_bytes}");
    // A client that has turned tracking off, or begun anew, gets no message.
    assert_eq!(clients[0].connection.ask("CLIENT TRACKING OFF"), Reply::Text("OK".to_owned()));
    assert_eq!(clients[1].connection.ask("RESET"), Reply::Text("RESET".to_owned()));
    clients.truncate(2);
    eventually("the other clients have disconnected", || tracking() == "0");
    swap_to(&table, &server, 5);
    for client in &mut clients {
        assert_eq!(client.connection.ask("PING"), Reply::Text("PONG".to_owned()));
    }
}

pub(crate) fn messages_are_redirected_to_another_connection() {
    let table = Table::new(rows_of(1));
    let server = table.serve_with(&["--workers", "2"]);
    let [mut data, mut messages, mut newer] = [(); 3].map(|()| Connection::open(&server));
    let id = messages.id();
    assert_eq!(data.ask(&format!("CLIENT TRACKING ON REDIRECT {id}")), Reply::Text("OK".to_owned()));
    assert_eq!(data.ask("CLIENT GETREDIR"), Reply::Integer(id));
    let text = |text: &str| Reply::Bytes(text.as_bytes().to_vec());
    let channel = "__redis__:invalidate";
    let confirmed = Reply::List(vec![text("subscribe"), text(channel), Reply::Integer(1)]);
    assert_eq!(messages.ask(&format!("SUBSCRIBE {channel}")), confirmed);
    let line = data.ask("CLIENT LIST").text();
    assert!(line.contains(" flags=tU db=0 sub=0 psub=0 ssub=0 multi=-1"), "{line}");
    assert!(line.contains(&format!(" redir={id} ")) && line.contains(" flags=PU db=0 sub=1 "), "{line}");
    let message = Reply::List(vec![text("message"), text(channel), Reply::Null]);
    for generation in 2..4 {
        swap_to(&table, &server, generation);
        assert_eq!(messages.next(), message);
    }
    // The connection that reads gets no message, and a client without subscriptions gets none in RESP2.
    assert_eq!(data.ask("PING"), Reply::Text("PONG".to_owned()));
    // In RESP3, any connection gets the messages.
    newer.ask("HELLO 3");
    let id = newer.id();
    assert_eq!(data.ask(&format!("CLIENT TRACKING ON REDIRECT {id}")), Reply::Text("OK".to_owned()));
    swap_to(&table, &server, 4);
    assert_eq!(newer.next(), invalidation());
    assert_eq!(messages.ask("PING"), Reply::List(vec![text("pong"), text("")]));
    // The client learns that the other connection has ended.
    drop(newer);
    data.ask("HELLO 3");
    eventually("the connection ends", || {
        let list = Reply::all(&ask(server.socket(), &["CLIENT LIST"])).remove(0).text();
        !list.contains(&format!("id={id} "))
    });
    swap_to(&table, &server, 5);
    assert_eq!(data.next(), Reply::Push(vec![text("tracking-redir-broken"), Reply::Integer(id)]));
    let flags = data.ask("CLIENT TRACKINGINFO").fields()["flags"].clone();
    assert_eq!(flags, Reply::List(vec![text("on"), text("broken_redirect")]));
}

pub(crate) fn replies_about_tracking_are_equal() -> Result<(), Missing> {
    let redis = redis()?;
    let (_table, served) = serve(&[]);
    assert_same_everywhere(
        redis.socket(),
        served.socket(),
        &[
            "CLIENT TRACKINGINFO; CLIENT GETREDIR; CLIENT CACHING YES; CLIENT TRACKING OFF; CLIENT TRACKINGINFO",
            "CLIENT TRACKING ON; CLIENT TRACKINGINFO; CLIENT GETREDIR; CLIENT TRACKING ON; CLIENT TRACKING OFF",
            "CLIENT TRACKING ON OPTIN; CLIENT CACHING YES; CLIENT TRACKINGINFO; GET 1; CLIENT TRACKINGINFO",
            "CLIENT TRACKING ON OPTIN; CLIENT CACHING YES; PING; CLIENT TRACKINGINFO; CLIENT CACHING NO",
            "CLIENT TRACKING ON OPTOUT; CLIENT CACHING NO; CLIENT TRACKINGINFO; CLIENT CACHING YES; CLIENT CACHING x",
            "CLIENT TRACKING ON OPTOUT; CLIENT TRACKING ON OPTIN; CLIENT TRACKING ON; CLIENT TRACKINGINFO",
            "CLIENT TRACKING ON BCAST; CLIENT TRACKINGINFO; CLIENT TRACKING ON; CLIENT TRACKING ON BCAST OPTIN",
            "CLIENT TRACKING ON BCAST PREFIX b PREFIX a NOLOOP; CLIENT TRACKINGINFO; CLIENT TRACKING ON BCAST PREFIX ab",
            "CLIENT TRACKING ON BCAST PREFIX a PREFIX ab; CLIENT TRACKINGINFO; CLIENT TRACKING ON PREFIX a",
            "CLIENT TRACKING ON BCAST PREFIX b; CLIENT TRACKING ON BCAST PREFIX c; CLIENT TRACKINGINFO",
            "CLIENT TRACKING ON OPTIN OPTOUT; CLIENT TRACKING ON NOPE; CLIENT TRACKING nope; CLIENT TRACKING",
            "CLIENT TRACKING ON REDIRECT 999999; CLIENT TRACKING ON REDIRECT x; CLIENT TRACKING ON REDIRECT",
            "CLIENT TRACKING ON BCAST; RESET; CLIENT TRACKINGINFO; CLIENT CACHING; CLIENT GETREDIR x",
        ],
    );
    Ok(())
}

pub(crate) fn replies_about_subscriptions_are_equal() -> Result<(), Missing> {
    let redis = redis()?;
    let (_table, served) = serve(&[]);
    assert_same_everywhere(
        redis.socket(),
        served.socket(),
        &[
            "SUBSCRIBE a b a; PING; PING x; PING x y; UNSUBSCRIBE a; UNSUBSCRIBE nothing; UNSUBSCRIBE; GET 1; PING",
            "PSUBSCRIBE a*; SUBSCRIBE a; GET 1; MGET 1 2; CLIENT ID x; NOPE; PUNSUBSCRIBE a*; UNSUBSCRIBE; GET 1",
            "SSUBSCRIBE a b; SUBSCRIBE c; GET 1; SUNSUBSCRIBE b; SUNSUBSCRIBE; UNSUBSCRIBE; GET 1",
            "SUBSCRIBE; PSUBSCRIBE; SSUBSCRIBE; SUBSCRIBE a; RESET; GET 1; UNSUBSCRIBE",
            "SUBSCRIBE a; MULTI; GET 1; EXEC; DISCARD; WATCH 1; UNSUBSCRIBE; GET 1",
            "PUNSUBSCRIBE; SUBSCRIBE a; PUNSUBSCRIBE; SUNSUBSCRIBE; UNSUBSCRIBE a a",
        ],
    );
    Ok(())
}
