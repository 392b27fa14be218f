//! The crate's client of a cluster, and nodes that send bad topologies, redirect in circles, stall, or disconnect.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use zero_kv::client::{ClientError, ClusterClient, ClusterOptions, Options, OwnedKey};

use crate::helpers::ports::free_port;
use crate::helpers::scripted_server::{NOT_FOUND, found, page, response_header};

const GET: u32 = 0;
const FLOOR: u32 = 2;
const INFO: u32 = 6;
const SCHEMA: u32 = 12;
const TOPOLOGY: u32 = 15;
const KEY_TYPE: u32 = 17;
const MOVED: [u8; 8] = [0, 0, 0, 6, 0, 0, 0, 0];

/// What a node does with a request.
enum Answer {
    Bytes(Vec<u8>),
    Close,
    Stall,
}

/// A node that answers each request as a test specifies.
struct HostileNode {
    port: u16,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    connections: AtomicUsize,
    requests: AtomicUsize,
    open: AtomicUsize,
    open_max: AtomicUsize,
}

impl HostileNode {
    /// Starts a node whose keys are numbers. `answer` answers all requests but those for the type of the keys, which are
    /// not counted: see [`HostileNode::start_without_keys`].
    fn start(answer: impl Fn(u16, usize, u32) -> Answer + Send + Sync + 'static) -> HostileNode {
        HostileNode::start_with(Some(b"u64"), answer)
    }

    /// Starts a node on all addresses of this machine. `answer` gets the port of the node, the number of the request,
    /// counted from 0 over all connections, and its op.
    fn start_without_keys(answer: impl Fn(u16, usize, u32) -> Answer + Send + Sync + 'static) -> HostileNode {
        HostileNode::start_with(None, answer)
    }

    fn start_with(
        key_type: Option<&'static [u8]>,
        answer: impl Fn(u16, usize, u32) -> Answer + Send + Sync + 'static,
    ) -> HostileNode {
        let listener = TcpListener::bind(("0.0.0.0", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let counts: Arc<Counts> = Arc::default();
        let (answer, counted) = (Arc::new(answer), Arc::clone(&counts));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                counted.connections.fetch_add(1, Ordering::Relaxed);
                let open = counted.open.fetch_add(1, Ordering::Relaxed) + 1;
                counted.open_max.fetch_max(open, Ordering::Relaxed);
                let (answer, counted) = (Arc::clone(&answer), Arc::clone(&counted));
                thread::spawn(move || {
                    converse(stream, key_type, &counted.requests, |number, op| answer(port, number, op));
                    counted.open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        HostileNode { port, counts }
    }

    fn address(&self) -> String {
        format!("zkv://127.0.0.1:{}", self.port)
    }

    fn connections(&self) -> usize {
        self.counts.connections.load(Ordering::Relaxed)
    }

    /// Returns the largest number of connections that were open at a time.
    fn open_connections_max(&self) -> usize {
        self.counts.open_max.load(Ordering::Relaxed)
    }

    fn requests(&self) -> usize {
        self.counts.requests.load(Ordering::Relaxed)
    }
}

fn converse(
    mut stream: TcpStream,
    key_type: Option<&[u8]>,
    requests: &AtomicUsize,
    answer: impl Fn(usize, u32) -> Answer,
) {
    let mut request = [0; 16];
    while stream.read_exact(&mut request).is_ok() {
        let op = u32::from_be_bytes(request[..4].try_into().unwrap());
        let answer = match key_type {
            Some(key_type) if op == KEY_TYPE => Answer::Bytes(found(key_type)),
            _ => answer(requests.fetch_add(1, Ordering::Relaxed), op),
        };
        match answer {
            Answer::Bytes(bytes) if stream.write_all(&bytes).is_ok() => {}
            Answer::Bytes(_) | Answer::Close => return,
            Answer::Stall => {
                let _ = stream.read_to_end(&mut Vec::new());
                return;
            }
        }
    }
}

/// Returns a topology with nodes: their ids, hosts, ports, and other fields.
fn topology(number: u64, nodes: &[(&str, &str, u16, &str)]) -> String {
    let nodes: Vec<String> = nodes
        .iter()
        .map(|(id, host, port, rest)| format!(r#"{{"id": "{id}", "host": "{host}", "port": {port}, {rest}}}"#))
        .collect();
    format!(r#"{{"format": 1, "number": {number}, "nodes": [{}]}}"#, nodes.join(","))
}

const ALL_SLOTS: &str = r#""role": "primary", "slots": ["0-16383"]"#;

fn found_text(text: &str) -> Answer {
    Answer::Bytes(found(text.as_bytes()))
}

/// Returns options with a short time-out of requests.
fn options(call_timeout_ms: u64, attempts: u32) -> ClusterOptions {
    let call_timeout = Some(Duration::from_millis(call_timeout_ms));
    ClusterOptions { client: Options { call_timeout, ..Options::default() }, attempts, ..ClusterOptions::default() }
}

pub(crate) fn bad_topologies_are_errors_that_state_the_value_and_the_remedy() {
    let valid = topology(1, &[("a", "127.0.0.1", 1, ALL_SLOTS)]);
    let replaced = |from: &str, to: &str| {
        let changed = valid.replace(from, to);
        assert_ne!(changed, valid, "{from}");
        changed
    };
    let huge = "x".repeat(1 << 20);
    for (json, expected) in [
        (replaced("0-16383", "0-16382"), "slots 16383-16383 have no primary"),
        (replaced(r#"["0-16383"]"#, r#"["0-16383", "7-7"]"#), "expected at most 16384: list each slot once"),
        (replaced(r#"["0-16383"]"#, r#"["0-9000", "7-16382"]"#), "list each slot once"),
        (replaced(r#"["0-16383"]"#, r#"["0-90", "80-16300"]"#), "slot 80 has the primaries"),
        (replaced("primary", "owner"), "unknown variant `owner`"),
        (replaced("primary", &huge), "unknown variant `xxx"),
        (replaced(r#""port": 1"#, r#""port": 0"#), "the port is 0, expected 1 to 65535"),
        (replaced(r#""port": 1"#, r#""port": 65536"#), "invalid value: integer `65536`"),
        (replaced(r#""port": 1"#, r#""port": -1"#), "invalid value: integer `-1`"),
        (replaced(r#""port": 1"#, r#""port": 1e99"#), "invalid type: floating point"),
        (replaced(r#""port": 1"#, r#""port": "1""#), "invalid type: string"),
        (replaced(r#""number": 1"#, r#""number": 18446744073709551616"#), "expected u64"),
        (replaced("127.0.0.1", "/run/zero-kv.sock"), "expected a host name or an IP address"),
        (replaced("127.0.0.1", "[::1]"), "expected a host name or an IP address"),
        (replaced("127.0.0.1", "::g"), "expected a host name or an IP address"),
        (replaced("127.0.0.1", "::1%"), "expected a host name or an IP address"),
        (replaced("127.0.0.1", "a:b@c"), "expected a host name or an IP address"),
        (replaced("127.0.0.1", "h\\u0007st"), "expected a host name or an IP address"),
        (replaced("127.0.0.1", &huge), "expected a host name or an IP address"),
        (replaced(r#""id": "a""#, &format!(r#""id": "{huge}""#)), "expected at most 100 letters"),
        (replaced("0-16383", &huge), "expected two slots from 0 to 16383"),
        (replaced(r#"["0-16383"]"#, "7"), "invalid type: integer `7`, expected a list"),
        (topology(1, &[]), "0 nodes, expected 1 to 16384"),
        (topology(1, &[("a", "h", 1, ALL_SLOTS), ("a", "h", 2, r#""role": "primary""#)]), "another node has this id"),
        (topology(1, &[("a", "h", 1, ALL_SLOTS), ("b", "h", 1, r#""role": "primary""#)]), "has the same address h:1"),
        ("[]".to_owned(), "malformed: invalid"),
        ("null".to_owned(), "malformed: invalid type: null"),
        ("[".repeat(100_000), "malformed: "),
        ("\0".to_owned(), "malformed: "),
        (r#"{"format": 2, "nodes": "new"}"#.to_owned(), "has format 2, expected at most 1: update"),
    ] {
        let node = HostileNode::start(move |_, _, _| found_text(&json));
        let error = ClusterClient::connect(&[node.address()]).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, ClientError::Topology { .. }), "{text}");
        assert!(text.starts_with(&node.address()) && text.contains(expected), "{expected}: {text}");
        assert!(text.len() < 1000 && !text.contains(char::is_control), "{} bytes: {text}", text.len());
        assert_eq!(node.connections(), 1);
    }
    // The addresses of a valid topology need not be valid in a URL.
    let json = topology(1, &[("a", "fe80::1%nothing", 9, ALL_SLOTS)]);
    let node = HostileNode::start(move |_, _, _| found_text(&json));
    let mut client = ClusterClient::connect_with(&[node.address()], &options(500, 2)).unwrap();
    assert!(matches!(client.get(1), Err(ClientError::Io { .. })));
}

pub(crate) fn nodes_that_redirect_to_each_other_end_a_call_after_its_attempts() {
    // Each node sends a topology in which the other node has all slots.
    let ports = Arc::new(Mutex::new(Vec::new()));
    let start = || {
        let ports = Arc::clone(&ports);
        HostileNode::start(move |this, _, op| match op {
            TOPOLOGY => {
                let other = ports.lock().unwrap().iter().copied().find(|port| *port != this).unwrap();
                let here = ("here", "127.0.0.1", this, r#""role": "primary""#);
                found_text(&topology(1, &[here, ("other", "127.0.0.1", other, ALL_SLOTS)]))
            }
            _ => Answer::Bytes(MOVED.to_vec()),
        })
    };
    let nodes = [start(), start()];
    *ports.lock().unwrap() = nodes.iter().map(|node| node.port).collect();
    let mut client = ClusterClient::connect_with(&[nodes[0].address()], &options(20_000, 5)).unwrap();
    let error = client.get(7).unwrap_err();
    assert!(matches!(error, ClientError::Moved { .. }), "{error}");
    let requests: usize = nodes.iter().map(HostileNode::requests).sum();
    assert!(requests <= 1 + 5 * 3, "{requests} requests");
}

pub(crate) fn topologies_that_always_change_end_a_call_after_its_attempts() {
    // Every response has a higher number, and a primary and a replica that no client knows and nobody runs.
    let closed = free_port();
    let node = HostileNode::start(move |_, number, _| {
        let host = |node: usize| format!("127.{}.{}.{}", 1 + node, number / 250, 1 + number % 250);
        let [primary, replica] = [host(0), host(1)];
        let replica = ("b", replica.as_str(), closed, r#""role": "replica", "primary": "a""#);
        found_text(&topology(1 + number as u64, &[("a", &primary, closed, ALL_SLOTS), replica]))
    });
    let mut client = ClusterClient::connect_with(&[node.address()], &options(20_000, 6)).unwrap();
    let error = client.get(7).unwrap_err();
    assert!(matches!(error, ClientError::NotRunning { .. }), "{error}");
    assert!(node.requests() <= 1 + 2 * 6, "{} requests", node.requests());
}

pub(crate) fn a_node_that_disconnects_at_any_step_causes_an_error() {
    for step in 0..9 {
        let node = HostileNode::start_without_keys(move |this, number, op| match op {
            _ if number >= step => Answer::Close,
            TOPOLOGY => found_text(&topology(1, &[("a", "127.0.0.1", this, ALL_SLOTS)])),
            KEY_TYPE => found_text("u64"),
            INFO => found_text("generation 1\nkeys u64\ncluster_file_slots 0-16383\n"),
            SCHEMA => Answer::Bytes(NOT_FOUND.to_vec()),
            FLOOR => Answer::Bytes(page(&[(7_u64, "seven")], 0)),
            _ => Answer::Bytes(found(b"seven")),
        });
        let result = ClusterClient::connect_with(&[node.address()], &options(20_000, 3)).and_then(|mut client| {
            let value = client.get(7)?;
            client.floor(7).map(|row| (value, row.map(|(_, value)| value)))
        });
        match result {
            Ok(found) => assert_eq!(found, (Some(b"seven".to_vec()), Some(b"seven".to_vec()))),
            Err(ClientError::Closed { .. } | ClientError::Refused { .. } | ClientError::Io { .. }) => {
                assert!(step < 7, "{step}");
            }
            Err(error) => panic!("{step}: {error:?}"),
        }
        assert!(node.requests() <= 30, "{} requests", node.requests());
    }
}

pub(crate) fn nodes_that_never_respond_end_a_call_after_its_time() {
    const REPLICAS: u16 = 2000;
    // All replicas are addresses of one node that accepts connections and never responds.
    let stalled = HostileNode::start(|_, _, _| Answer::Stall);
    let port = stalled.port;
    let json = {
        let hosts: Vec<String> =
            (0..REPLICAS).map(|number| format!("127.7.{}.{}", number / 250, number % 250)).collect();
        let ids: Vec<String> = (0..REPLICAS).map(|number| format!("r{number}")).collect();
        let mut nodes = vec![("a", "127.0.0.1", port, ALL_SLOTS)];
        let replicas = ids.iter().zip(&hosts);
        nodes.extend(
            replicas.map(|(id, host)| (id.as_str(), host.as_str(), port, r#""role": "replica", "primary": "a""#)),
        );
        topology(1, &nodes)
    };
    // The seed sends the topology once.
    let node = HostileNode::start(move |_, number, _| if number == 0 { found_text(&json) } else { Answer::Stall });
    let mut client = ClusterClient::connect_with(&[node.address()], &options(400, 10)).unwrap();
    let error = client.get(7).unwrap_err();
    assert!(matches!(error, ClientError::TimedOut { .. }), "{error}");
    // Each request has half of the remaining time, so few of the nodes are asked.
    assert!(stalled.connections() <= 100, "{} connections", stalled.connections());
    // A node that states no type of its keys is like one that never responds.
    let silent = HostileNode::start_without_keys(|this, _, op| match op {
        TOPOLOGY => found_text(&topology(1, &[("a", "127.0.0.1", this, ALL_SLOTS)])),
        _ => Answer::Stall,
    });
    let error = ClusterClient::connect_with(&[silent.address()], &options(400, 10)).unwrap_err();
    assert!(matches!(error, ClientError::TimedOut { .. }), "{error}");
    // A client that connects gives up as well.
    let seeds: Vec<String> =
        (0..REPLICAS).map(|number| format!("zkv://127.8.{}.{}:{port}", number / 250, number % 250)).collect();
    let error = ClusterClient::connect_with(&seeds, &options(400, 10)).unwrap_err();
    assert!(matches!(error, ClientError::TimedOut { .. }), "{error}");
    assert!(stalled.connections() <= 200, "{} connections", stalled.connections());
}

pub(crate) fn a_node_that_stalls_leaves_time_for_its_replica() {
    let stalled = HostileNode::start(|_, _, _| Answer::Stall);
    let stalled_port = stalled.port;
    let replica = HostileNode::start(move |this, _, op| match op {
        TOPOLOGY => {
            let replica = ("b", "127.0.0.1", this, r#""role": "replica", "primary": "a""#);
            found_text(&topology(1, &[("a", "127.0.0.1", stalled_port, ALL_SLOTS), replica]))
        }
        _ => Answer::Bytes(found(b"seven")),
    });
    let mut client = ClusterClient::connect_with(&[replica.address()], &options(1000, 10)).unwrap();
    assert_eq!(client.get(7).unwrap(), Some(b"seven".to_vec()));
    assert_eq!(stalled.connections(), 1);
}

pub(crate) fn malformed_slots_of_a_file_are_a_violation_of_the_protocol() {
    let digits = |text: String| {
        format!("generation 1\nkeys u64\ncluster_file_slots 0-0,2-2,…\ncluster_file_slots_digits {text}\n")
    };
    for (info, is_valid) in [
        ("generation 1\nkeys u64\ncluster_file_slots 0-16383\n".to_owned(), true),
        (digits("f".repeat(4096)), true),
        ("generation 1\nkeys u64\ncluster_file_slots 0-16384\n".to_owned(), false),
        ("generation 1\nkeys u64\ncluster_file_slots 0-0,2-2,… (8192 slots in 8192 ranges)\n".to_owned(), false),
        ("generation 1\nkeys u64\ncluster_file_slots \n".to_owned(), false),
        (digits("f".repeat(4095)), false),
        (digits("x".repeat(4096)), false),
        (digits(String::new()), false),
        ("generation 1\nkeys u64\ncluster_file_slots -\n".to_owned(), false),
    ] {
        let text = info.clone();
        let node = HostileNode::start(move |this, _, op| match op {
            TOPOLOGY => found_text(&topology(1, &[("a", "127.0.0.1", this, ALL_SLOTS)])),
            INFO => found_text(&info),
            SCHEMA => Answer::Bytes(NOT_FOUND.to_vec()),
            GET => Answer::Bytes(response_header(1, 0).to_vec()),
            _ => Answer::Bytes(page(&[(7_u64, "seven")], 0)),
        });
        let mut client = ClusterClient::connect_with(&[node.address()], &options(20_000, 3)).unwrap();
        match client.floor(8) {
            Ok(row) => assert!(is_valid && row == Some((OwnedKey::U64(7), b"seven".to_vec())), "{text}"),
            Err(error) => {
                assert!(!is_valid && matches!(error, ClientError::Protocol { .. }), "{text}: {error}");
                assert!(error.to_string().contains("the slots of the node's file"), "{error}");
            }
        }
    }
}

pub(crate) fn a_topology_of_thousands_of_nodes_needs_few_threads_and_connections() {
    // 16,384 primaries, which are all one process with many addresses. An ordered lookup asks every one of them.
    const NODES: u32 = 16_384;
    let host = |number: u32| format!("127.{}.{}.{}", 1 + number / 50_000, number / 200 % 250, 1 + number % 200);
    let hosts: HashSet<String> = (0..NODES).map(host).collect();
    assert_eq!(hosts.len(), NODES as usize);
    let node = HostileNode::start(move |this, _, op| match op {
        TOPOLOGY => {
            let nodes: Vec<[String; 3]> = (0..NODES)
                .map(|slot| {
                    [format!("n{slot}"), host(slot), format!(r#""role": "primary", "slots": ["{slot}-{slot}"]"#)]
                })
                .collect();
            let nodes: Vec<_> =
                nodes.iter().map(|[id, host, rest]| (id.as_str(), host.as_str(), this, rest.as_str())).collect();
            found_text(&topology(1, &nodes))
        }
        _ => Answer::Bytes(NOT_FOUND.to_vec()),
    });
    let mut client = ClusterClient::connect_with(&[node.address()], &options(600_000, 2)).unwrap();
    let keys: Vec<u64> = (0..3000).collect();
    assert_eq!(client.contains_many(&keys).unwrap(), vec![false; 3000]);
    assert!(node.connections() >= 2000, "{} connections", node.connections());
    // The client has at most 512 connections. The node may not have noticed yet that others are closed.
    assert!(node.open_connections_max() < 1000, "{} connections at a time", node.open_connections_max());
}
