//! Sends equal bytes to nodes of a real Redis cluster and to `kv_store` under the same topology, and compares the replies.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use zero_kv::bake::Keys;
use zero_kv::slots::slot_of;

use super::nodes::Cluster;
use super::redis_cluster::{RedisCluster, RedisNode, SLOTS};
use crate::helpers::frames::connect;
use crate::helpers::redis_replies::Reply;
use crate::helpers::redis_server::command;
use crate::helpers::servers::{Server, kv_store};
use crate::helpers::trials::Missing;

const ROWS: u64 = 300;

/// A Redis cluster, and our nodes with the ids of its first primary and of its replica.
struct Pair {
    redis: RedisCluster,
    primary: Server,
    replica: Server,
    _cluster: Cluster,
}

fn start() -> Result<Pair, Missing> {
    let rows: Vec<(String, Vec<u8>)> = (0..ROWS).map(|key| (key.to_string(), format!("v{key}").into_bytes())).collect();
    let redis = RedisCluster::start(&rows)?;
    // Nodes of Redis have only the rows of their slots, but our file has all rows, which no reply must show.
    let cluster = Cluster::new(Keys::U64, (0..ROWS).map(|key| format!("{key},v{key}\n")).collect::<String>());
    cluster.write_topology(&redis.topology());
    let [first, _, replica] = &redis.nodes;
    let primary = cluster.local(&first.id, &cluster.path("whole.db"), &[]);
    let replica = cluster.local(&replica.id, &cluster.path("whole.db"), &[]);
    Ok(Pair { redis, primary, replica, _cluster: cluster })
}

fn converse(socket: &Path, conversation: &str) -> Vec<u8> {
    let mut stream: UnixStream = connect(socket);
    for line in conversation.split("; ").chain(["QUIT"]) {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        stream.write_all(&command(&words)).unwrap();
    }
    let mut replies = Vec::new();
    stream.read_to_end(&mut replies).unwrap();
    replies
}

#[track_caller]
fn assert_all_same(node: &RedisNode, ours: &Server, conversations: &[String]) {
    for conversation in conversations {
        let [expected, found] = [node.redis.socket(), ours.socket()].map(|socket| converse(socket, conversation));
        let shown = |bytes: &[u8]| bytes[..bytes.len().min(2000)].escape_ascii().to_string();
        assert!(found == expected, "{conversation}\nours  {}\nRedis {}", shown(&found), shown(&expected));
    }
}

/// Returns keys of the first primary, in several slots, and keys of the second one.
fn keys() -> (Vec<u64>, Vec<u64>) {
    (0..ROWS).partition(|key| SLOTS[0].iter().any(|range| range.has(slot_of((*key).into()))))
}

/// Conversations about keys that every node answers like the node of Redis with the same role.
fn about_keys() -> Vec<String> {
    let (here, there) = keys();
    let (a, b, x, y) = (here[0], here[1], there[0], there[1]);
    let mut conversations: Vec<String> = [
        "GET {a}; GET {x}; GET {b}",
        "MGET {a}; MGET {a} {b}; MGET {x}; MGET {x} {y}; MGET {a} {x}; MGET {a} {a}; MGET {x} {x}",
        "EXISTS {a}; EXISTS {a} {x}; EXISTS {x}; TOUCH {x}; STRLEN {x}; STRLEN {a}; TYPE {x}; TTL {x}; TTL {a}",
        "GETRANGE {x} 0 1; OBJECT ENCODING {x}; MEMORY USAGE {x}; GETBIT {x} 1",
        "HGET {x} f; HGETALL {x}; HGET {a} f; HMGET {x} f g",
        "GET; MGET; GET {x} {x}; EXISTS; NOSUCH {x}; CLUSTER; CLUSTER NOSUCH",
        "WATCH {a}; WATCH {x}; WATCH {a} {b}; UNWATCH",
        "MULTI; GET {a}; EXEC",
        "MULTI; GET {a}; GET {a}; EXEC",
        "MULTI; GET {a}; GET {b}; EXEC; GET {a}",
        "MULTI; GET {a}; GET {x}; EXEC; GET {a}",
        "MULTI; GET {x}; DISCARD; GET {a}",
        "MULTI; MGET {a} {b}; GET {a}; EXEC",
        "MULTI; PING; EXEC",
        "MULTI; PING; GET {a}; ECHO {x}; EXEC",
        "MULTI; EXEC",
        "EXEC; MULTI; MULTI; EXEC",
        "MULTI; WATCH {x}; GET {a}; EXEC",
        "READONLY; GET {a}; GET {x}; MGET {a} {b}; READWRITE; GET {a}; GET {x}",
        "READONLY; MULTI; GET {a}; EXEC; RESET; GET {a}",
        "READONLY; MULTI; READWRITE; GET {a}; EXEC; GET {a}",
        "MULTI; READONLY; GET {a}; EXEC; GET {a}",
        "ASKING; GET {x}; GET {a}; ASKING; GET {a}",
        "READONLY 1; READWRITE 1; ASKING 1",
        "SELECT 0; SELECT 1; SELECT x; SELECT -1; GET {a}",
        "COMMAND GETKEYS MGET {a} {x}",
        "CLUSTER KEYSLOT {a}; CLUSTER KEYSLOT abc{xyz}d; CLUSTER KEYSLOT; CLUSTER KEYSLOT 1 2",
        "CLUSTER COUNTKEYSINSLOT 16384; CLUSTER COUNTKEYSINSLOT -1; CLUSTER COUNTKEYSINSLOT z; CLUSTER COUNTKEYSINSLOT",
        "CLUSTER GETKEYSINSLOT 16384 1; CLUSTER GETKEYSINSLOT 1 -1; CLUSTER GETKEYSINSLOT 1 z; CLUSTER GETKEYSINSLOT z 1",
        "CLUSTER GETKEYSINSLOT 1; CLUSTER GETKEYSINSLOT 1 0; CLUSTER REPLICAS nobody",
        "CLUSTER REPLICAS; CLUSTER MYID; CLUSTER MYID 1",
        "INFO cluster; COMMAND COUNT 1",
    ]
    .iter()
    .map(|text| {
        let named = [("{a}", a), ("{b}", b), ("{x}", x), ("{y}", y)];
        named.iter().fold((*text).to_owned(), |text, (name, key)| text.replace(name, &key.to_string()))
    })
    .collect();
    let slot = slot_of(a.into());
    conversations.push(format!("CLUSTER COUNTKEYSINSLOT {slot}; CLUSTER GETKEYSINSLOT {slot} 10"));
    // Missing keys of both nodes, and a long pipeline.
    conversations.push((ROWS..ROWS + 40).map(|key| format!("GET {key}")).collect::<Vec<_>>().join("; "));
    conversations.push((0..2000).map(|key| format!("GET {}", key % (2 * ROWS))).collect::<Vec<_>>().join("; "));
    conversations.push(format!("READONLY; {}", conversations[conversations.len() - 1]));
    // Keys of one slot, more than one pass checks.
    conversations.push(format!("MGET{}", format!(" {a}").repeat(5000)));
    conversations.push(format!("MGET{}", format!(" {x}").repeat(5000)));
    conversations.push(format!("MGET{} {b}", format!(" {a}").repeat(5000)));
    conversations.push(format!("MULTI; EXISTS{}; EXISTS {a}; EXEC", format!(" {a}").repeat(5000)));
    conversations.push(format!("MULTI; EXISTS{}; EXISTS {a}; EXEC", format!(" {x}").repeat(5000)));
    conversations
}

pub(crate) fn replies_of_a_primary_are_equal() -> Result<(), Missing> {
    let pair = start()?;
    assert_all_same(&pair.redis.nodes[0], &pair.primary, &about_keys());
    Ok(())
}

pub(crate) fn replies_of_a_replica_are_equal() -> Result<(), Missing> {
    let pair = start()?;
    assert_all_same(&pair.redis.nodes[2], &pair.replica, &about_keys());
    Ok(())
}

/// Returns the fields of a line of CLUSTER NODES, without the times and the epoch, which differ.
fn line_fields(line: &str) -> Vec<&str> {
    let fields: Vec<&str> = line.split(' ').collect();
    let bus = fields[1].find('@').unwrap();
    [&[fields[0], &fields[1][..bus], fields[2], fields[3], fields[7]], &fields[8..]].concat()
}

/// Returns shards in the order of their slots, without the offsets of replication.
fn shards(reply: &Reply) -> Vec<String> {
    let shard = |shard: &Reply| {
        let fields = shard.fields();
        let nodes: BTreeSet<String> = fields["nodes"]
            .list()
            .iter()
            .map(|node| {
                let fields = node.fields();
                let shown = fields.iter().filter(|(name, _)| *name != "replication-offset");
                format!("{:?}", shown.collect::<Vec<_>>())
            })
            .collect();
        format!("{:?} {nodes:?}", fields["slots"])
    };
    let mut shards: Vec<String> = reply.list().iter().map(shard).collect();
    shards.sort();
    shards
}

pub(crate) fn replies_about_the_cluster_are_equal() -> Result<(), Missing> {
    let pair = start()?;
    for (node, ours) in [(&pair.redis.nodes[0], &pair.primary), (&pair.redis.nodes[2], &pair.replica)] {
        for version in ["HELLO 2", "HELLO 3"] {
            let replies =
                |socket: &Path, line: &str| Reply::all(&converse(socket, &format!("{version}; {line}"))).swap_remove(1);
            let [redis, ours_socket] = [node.redis.socket(), ours.socket()];
            let both = |line: &str| [redis, ours_socket].map(|socket| replies(socket, line));
            // Redis and kv_store list the ranges in the order of their slots.
            let [expected, found] = both("CLUSTER SLOTS");
            assert_eq!(found, expected);
            let [expected, found] = both("CLUSTER SHARDS");
            assert_eq!(shards(&found), shards(&expected));
            let names =
                |reply: &Reply| reply.list()[0].fields()["nodes"].list()[0].fields().into_keys().collect::<Vec<_>>();
            assert_eq!(names(&found), names(&expected));
            let [expected, found] = both("CLUSTER NODES").map(|reply| {
                let text = reply.text();
                assert!(text.ends_with('\n') && !text.contains('\r'), "{text:?}");
                text.lines().map(|line| format!("{:?}", line_fields(line))).collect::<BTreeSet<_>>()
            });
            assert_eq!(found, expected);
            let [expected, found] = both("CLUSTER INFO").map(|reply| {
                let lines = reply.text();
                let is_equal = |line: &&str| !line.contains("stats") && !line.contains("epoch");
                lines.split("\r\n").filter(is_equal).map(str::to_owned).collect::<Vec<_>>()
            });
            assert_eq!(found, expected);
            let first = &pair.redis.nodes[0].id;
            let [expected, found] = both(&format!("CLUSTER REPLICAS {first}")).map(|reply| {
                reply.list().iter().map(|line| format!("{:?}", line_fields(&line.text()))).collect::<Vec<_>>()
            });
            assert_eq!(found, expected);
            let hello = |socket: &Path| Reply::all(&converse(socket, version)).swap_remove(0).fields();
            for name in ["mode", "role"] {
                assert_eq!(hello(ours_socket)[name], hello(redis)[name], "{name}");
            }
        }
        let role = |reply: Reply| {
            let mut role = reply.list().to_vec();
            // The offsets of replication differ.
            match role[0].text().as_str() {
                "master" => drop(role.remove(1)),
                _ => drop(role.remove(4)),
            }
            if let Reply::List(replicas) = &mut role[1] {
                replicas.iter_mut().for_each(|replica| *replica = Reply::List(replica.list()[..2].to_vec()));
            }
            role
        };
        assert_eq!(role(super::nodes::reply(ours, "ROLE")), role(node.ask("ROLE")));
        let [expected, found] = [node.ask("INFO"), super::nodes::reply(ours, "INFO")].map(|info| info.text());
        let names = [
            "redis_mode",
            "cluster_enabled",
            "role",
            "master_host",
            "master_port",
            "master_link_status",
            "slave_read_only",
            "connected_slaves",
        ];
        for name in names {
            let line = |info| crate::helpers::redis_server::line_of(info, name);
            assert_eq!(line(&found), line(&expected), "{name}");
        }
        let line = super::nodes::reply(ours, "CLIENT INFO").text();
        assert!(line.contains(" flags=U "), "{line}");
        let line = Reply::all(&converse(ours.socket(), "READONLY; CLIENT INFO"))[1].text();
        assert!(line.contains(" flags=Ur "), "{line}");
    }
    Ok(())
}

pub(crate) fn a_node_without_a_topology_replies_as_a_new_node_of_redis() -> Result<(), Missing> {
    let node = RedisNode::start()?;
    // A topology without this node assigns no slots to it, so the server has none of the keys of Redis's new node.
    let cluster = Cluster::of_numbers();
    cluster.write_topology(
        r#"{"format": 1, "number": 1, "nodes": [
            {"id": "other", "host": "127.0.0.1", "port": 9, "role": "primary", "slots": ["0-16383"]}]}"#,
    );
    let mut command = kv_store(&cluster.path("whole.db"), &cluster.path("new.sock"));
    command.args(["--cluster", "--node", &node.id, "--announce", "127.0.0.1:9", "--topology"]);
    command.arg(cluster.path("topology.json"));
    let ours = Server::of(command, &cluster.path("new.sock"));
    let slot = slot_of(7.into());
    assert_eq!(super::nodes::reply(&ours, "GET 7"), Reply::Error(format!("MOVED {slot} 127.0.0.1:9")));
    assert_eq!(super::nodes::reply(&ours, "CLUSTER MYID").text(), node.id);
    let conversations = ["CLUSTER MYID; READONLY; CLUSTER KEYSLOT 7; ROLE"].map(str::to_owned);
    assert_all_same(&node, &ours, &conversations);
    Ok(())
}
