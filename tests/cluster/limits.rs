//! The largest topologies that are valid: nodes and tools accept them, and clients read what the nodes send.

use std::collections::HashMap;
use std::fmt::Write;
use std::process::Command;

use zero_kv::client::{ClusterClient, OwnedKey};
use zero_kv::cluster::Topology;
use zero_kv::protocol::native::INFO_LEN_MAX_BYTES;

use super::nodes::{Cluster, ROWS, reply, topology_number};
use super::stores;
use crate::helpers::ports::free_port;
use crate::helpers::published::Published;
use crate::helpers::servers::Server;
use crate::helpers::waiting::eventually;

const SLOTS: usize = 16_384;

/// Returns a topology of nodes with these hosts, ports, and other fields.
fn document(number: u64, nodes: impl IntoIterator<Item = (String, String)>) -> String {
    let mut json = format!(r#"{{"format": 1, "number": {number}, "nodes": ["#);
    for (at, (address, rest)) in nodes.into_iter().enumerate() {
        let comma = if at > 0 { ",\n" } else { "" };
        write!(json, r#"{comma}{{"id": "n{at}", {address}, {rest}}}"#).unwrap();
    }
    json + "]}"
}

fn address(at: usize) -> String {
    format!(r#""host": "10.0.{}.{}", "port": {}"#, at / 256, at % 256, 7000 + at % 10)
}

/// Returns the field with every `step`-th slot from `from` on, each as a range of its own.
fn every(step: usize, from: usize) -> String {
    let ranges: Vec<String> = (from..SLOTS).step_by(step).map(|slot| format!(r#""{slot}-{slot}""#)).collect();
    format!(r#""role": "primary", "slots": [{}]"#, ranges.join(","))
}

fn replica(primary: usize) -> String {
    format!(r#""role": "replica", "primary": "n{primary}""#)
}

/// The topologies that are hardest to load, and the numbers of their ranges and of their entries in CLUSTER SLOTS.
fn worst() -> Vec<(&'static str, String, usize, usize)> {
    let nodes =
        |rest: &dyn Fn(usize) -> String, count: usize| (0..count).map(|at| (address(at), rest(at))).collect::<Vec<_>>();
    let whole = r#""role": "primary", "slots": ["0-16383"]"#.to_owned();
    let half = SLOTS / 2;
    let single = |slot: usize| format!(r#""role": "primary", "slots": ["{slot}-{slot}"]"#);
    let double = |pair: usize| format!(r#""role": "primary", "slots": ["{}-{}"]"#, 2 * pair, 2 * pair + 1);
    let with_slots = r#""role": "replica", "primary": "n0", "slots": ["0-16383"]"#;
    vec![
        ("primaries", document(1, nodes(&single, SLOTS)), SLOTS, SLOTS),
        (
            "pairs",
            document(2, nodes(&|at| if at < half { double(at) } else { replica(SLOTS - 1 - at) }, SLOTS)),
            half,
            SLOTS,
        ),
        ("replicas", document(3, nodes(&|at| if at == 0 { whole.clone() } else { replica(0) }, SLOTS)), 1, SLOTS),
        (
            "replicas with slots",
            document(4, nodes(&|at| if at == 0 { every(1, 0) } else { with_slots.to_owned() }, SLOTS)),
            1,
            SLOTS,
        ),
        ("single slots", document(5, nodes(&|_| every(1, 0), 1)), 1, 1),
        (
            "fragments",
            document(6, nodes(&|at| if at < 2 { every(2, at) } else { replica(at % 2) }, 8)),
            SLOTS,
            4 * SLOTS,
        ),
        (
            "long names",
            document(
                7,
                (0..9000).map(|at| {
                    let address = format!(r#""host": "{at:0>253}", "port": 1, "zone": "{}""#, "z".repeat(250));
                    (address, if at == 0 { whole.clone() } else { replica(0) })
                }),
            ),
            1,
            9000,
        ),
    ]
}

fn zkv(words: &[&str]) -> (String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_zkv")).args(words).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{words:?}: {stderr}");
    (stdout, stderr)
}

pub(crate) fn the_largest_topologies_are_checked_applied_and_served() {
    let cluster = Cluster::of_numbers();
    let port = free_port();
    // The node is part of none of these topologies, or the first node of all of them.
    let mut nodes: HashMap<&str, Server> = HashMap::new();
    for (name, json, ranges, entries) in worst() {
        let (new, file) = (cluster.path("next.json"), cluster.path("topology.json"));
        std::fs::write(&new, &json).unwrap();
        let paths = [&new, &file].map(|path| path.to_str().unwrap().to_owned());
        assert!(zkv(&["topology", "check", &paths[0]]).0.contains("is valid"), "{name}");
        zkv(&["topology", "apply", &paths[0], "--to", &paths[1]]);
        let shown = zkv(&["topology", "show", &paths[1]]).0;
        assert!(shown.len() < 20 << 20, "{name}: {} bytes", shown.len());
        let parsed = Topology::parse(json.as_bytes()).unwrap();
        for id in ["n0", "outside"] {
            let address = format!("127.0.0.1:{port}");
            let server = nodes.entry(id).or_insert_with(|| {
                let options: &[&str] = if id == "n0" { &["--tcp", &address] } else { &[] };
                cluster.local(id, &cluster.path("whole.db"), options)
            });
            eventually("the topology is in effect", || topology_number(server) == parsed.number);
            let replies = reply(server, "CLUSTER SLOTS");
            assert_eq!(replies.list().len(), ranges, "{name}");
            assert_eq!(replies.list().iter().map(|range| range.list().len() - 2).sum::<usize>(), entries, "{name}");
            let lines = reply(server, "CLUSTER NODES").text();
            assert_eq!(lines.lines().count(), parsed.nodes.len(), "{name}");
            reply(server, "CLUSTER SHARDS");
            let replicas = reply(server, "CLUSTER REPLICAS n0").list().len();
            assert_eq!(replicas, parsed.replicas_of("n0").count(), "{name}");
            let role = reply(server, "ROLE");
            assert_eq!(role.list()[2].list().len(), if id == "n0" { replicas } else { 0 }, "{name}");
            assert!(reply(server, "INFO").text().len() < INFO_LEN_MAX_BYTES, "{name}");
            let info = server.info();
            assert!(info.iter().all(|(_, value)| value.len() <= 4096), "{name}");
            let socket = server.socket().to_str().unwrap();
            for words in [&["health"][..], &["info"], &["top", "--interval", "1", "--count", "1"]] {
                zkv(&[words, &["--server", socket]].concat());
            }
            assert_eq!(server.client().topology().unwrap().unwrap(), parsed.to_json(), "{name}");
            let client = ClusterClient::connect(&[server.socket()]).unwrap();
            assert_eq!(*client.topology(), parsed, "{name}");
        }
    }
}

pub(crate) fn topologies_beyond_the_limits_are_rejected_by_writers_and_readers() {
    let cluster = Cluster::of_numbers();
    let whole = r#""role": "primary", "slots": ["0-16383"]"#.to_owned();
    let replicas = |count: usize| (1..=count).map(|at| (address(at), replica(0)));
    let documents = [
        (document(1, [(address(0), whole.clone())].into_iter().chain(replicas(SLOTS))), "nodes: more than 16384"),
        // Each of the primary's 8,192 ranges has the primary and 7 replicas.
        (
            document(1, [(address(0), every(2, 0)), (address(60_000), every(2, 1))].into_iter().chain(replicas(7))),
            "all slot ranges together have 73728 primaries and replicas, expected at most 65536",
        ),
        (
            document(1, [(address(0), whole.replace("0-16383\"", "0-16383\", \"1-1\""))]),
            "have 16385 slots, expected at most 16384: list each slot once",
        ),
        (
            document(1, [(format!(r#"{}, "zone": "{}""#, address(0), "z".repeat(254)), whole.clone())]),
            "has 254 bytes, expected at most 253",
        ),
    ];
    let valid = document(1, [(address(0), whole.clone())]);
    cluster.write_topology(&valid);
    let server = cluster.local("n0", &cluster.path("whole.db"), &[]);
    for (json, expected) in documents {
        let error = Topology::parse(json.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected) && error.len() < 500, "{expected}: {error}");
        cluster.write_topology(&json.replacen(r#""number": 1"#, r#""number": 2"#, 1));
        let refused = || server.info().get("cluster_topology_refused").unwrap().to_owned();
        eventually("the topology is rejected", || refused().contains(expected));
        assert_eq!(topology_number(&server), 1);
        let output = Command::new(env!("CARGO_BIN_EXE_zkv"))
            .args(["topology", "check", cluster.path("topology.json").to_str().unwrap()])
            .output()
            .unwrap();
        assert!(String::from_utf8(output.stderr).unwrap().contains(expected) && output.status.code() == Some(2));
    }
}

pub(crate) fn a_rejected_topology_file_is_logged_once_and_reported_until_it_is_replaced() {
    let cluster = Cluster::of_numbers();
    let valid = |number| document(number, [(address(0), r#""role": "primary", "slots": ["0-16383"]"#.to_owned())]);
    let path = cluster.write_topology(&valid(3));
    let server = cluster.local("n0", &cluster.path("whole.db"), &[]);
    let fact = || server.info().get("cluster_topology_refused").unwrap().to_owned();
    let health = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zkv"));
        let output = command.arg("health").arg("--server").arg(server.socket()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!((fact(), health()), (String::new(), (Some(0), String::new())));
    type Damage = fn(&std::path::Path);
    let damages: [(Damage, &str); 6] = [
        (|path| std::fs::write(path, "garbage").unwrap(), "the document is malformed"),
        (|path| std::fs::write(path, vec![b'['; 1 << 20]).unwrap(), "malformed: "),
        (|path| std::fs::File::create(path).unwrap().set_len(1 << 40).unwrap(), "found more than 16777216 bytes"),
        (|path| std::fs::remove_file(path).unwrap(), "No such file"),
        (
            |path| {
                rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
            },
            "found a pipe, expected a regular file",
        ),
        (
            |path| {
                std::fs::remove_file(path).unwrap();
                std::os::unix::fs::symlink("/dev/zero", path).unwrap();
            },
            "found a device, expected a regular file",
        ),
    ];
    for (damage, expected) in damages {
        damage(&path);
        eventually("the file is rejected", || fact().contains(expected));
        let (status, text) = health();
        assert!(status == Some(0) && text.contains("topology 3 stays in effect") && text.contains(expected), "{text}");
        assert_eq!((topology_number(&server), reply(&server, "GET 7").text()), (3, "value 7".to_owned()));
    }
    // While the server has read the file several more times, it has logged the last problem once.
    let polls = server.logged("found a device, expected a regular file");
    std::fs::remove_file(&path).unwrap();
    cluster.write_topology(&valid(4));
    eventually("the new topology is in effect", || topology_number(&server) == 4);
    assert_eq!((fact(), server.logged("found a device, expected a regular file"), polls), (String::new(), 1, 1));
}

pub(crate) fn a_file_with_thousands_of_ranges_answers_ordered_lookups() {
    let published = Published::new();
    stores::publish(&published, 2);
    let ports = [free_port(), free_port()];
    let nodes =
        ports.iter().enumerate().map(|(at, port)| (format!(r#""host": "127.0.0.1", "port": {port}"#), every(2, at)));
    published.publication.create_topology(&Topology::parse(document(1, nodes).as_bytes()).unwrap()).unwrap();
    let servers: Vec<Server> =
        ports.iter().enumerate().map(|(at, port)| stores::start_at(&published, &format!("n{at}"), *port)).collect();
    stores::wait_for_topology(&servers, 1);
    for server in &servers {
        let info = server.info();
        let slots = info.get("cluster_file_slots").unwrap();
        assert!(slots.ends_with("… (8192 slots in 8192 ranges)") && slots.len() < 500, "{slots}");
        assert_eq!(info.get("cluster_file_slots_digits").unwrap().len(), 4096);
        assert!(info.iter().map(|(name, value)| name.len() + value.len() + 2).sum::<usize>() <= INFO_LEN_MAX_BYTES);
    }
    let mut client = ClusterClient::connect(&[format!("zkv://127.0.0.1:{}", ports[0])]).unwrap();
    assert_eq!(client.count(..zero_kv::Key::U64(u64::MAX)).unwrap(), ROWS);
    assert_eq!(client.count(10..500_u64).unwrap(), 490);
    let value = |key: u64| format!("value {key}").into_bytes();
    assert_eq!(client.floor(700_u64).unwrap(), Some((OwnedKey::U64(700), value(700))));
    assert_eq!(client.last().unwrap(), Some((OwnedKey::U64(ROWS - 1), value(ROWS - 1))));
    let rows: Vec<_> = client.range(5..300_u64).unwrap().map(Result::unwrap).collect();
    assert!(rows.into_iter().eq((5..300).map(|key| (OwnedKey::U64(key), value(key)))));
}
