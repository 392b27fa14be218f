//! Topology files, and what a single node replies.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;

use zero_kv::bake::Keys;
use zero_kv::client::ClientError;
use zero_kv::cluster::Topology;
use zero_kv::slots::{SLOT_COUNT, SlotRange, slot_of};

use super::nodes::{Cluster, ROWS, key_in, members, moved, reply, topology, topology_number};
use crate::helpers::frames::{EXISTS, GET, answer, request};
use crate::helpers::redis_replies::Reply;
use crate::helpers::redis_server::{command, line_of};
use crate::helpers::rows::bake_text;
use crate::helpers::servers::{Server, failure_message};
use crate::helpers::waiting::eventually;

const LOW: SlotRange = SlotRange { first_slot: 0, last_slot: 8191 };
const HIGH: SlotRange = SlotRange { first_slot: 8192, last_slot: 16383 };

/// Returns the replies to commands that are sent at once on one connection.
fn pipeline(server: &Server, lines: impl IntoIterator<Item = String>) -> Vec<Reply> {
    let mut bytes = Vec::new();
    for line in lines.into_iter().chain(["QUIT".to_owned()]) {
        bytes.extend(command(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>()));
    }
    let mut stream = server.connect();
    let mut writer = stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || writer.write_all(&bytes).unwrap());
        let mut replies = Vec::new();
        stream.read_to_end(&mut replies).unwrap();
        let mut replies = Reply::all(&replies);
        replies.pop();
        replies
    })
}

pub(crate) fn a_server_without_a_valid_topology_does_not_start() {
    let cluster = Cluster::of_numbers();
    let db = cluster.path("whole.db");
    let message = |options: &[&str]| failure_message(cluster.command("p0", &db, 1, options), 1);
    assert!(message(&[]).contains("topology.json: No such file"), "{}", message(&[]));
    cluster.write_topology("{}");
    assert!(message(&[]).contains("topology.json: the document is malformed: missing field `format`"));
    cluster.write_topology(&topology(1, &members(2, 0)).replace("0-8191", "0-8190"));
    assert!(message(&[]).contains("slots 8191-8191 have no primary"), "{}", message(&[]));
    for (options, expected) in [
        (&["--cluster", "--announce", "h:1", "--topology", "t"][..], "--node"),
        (&["--cluster", "--node", "a", "--topology", "t"], "--announce"),
        (&["--cluster", "--node", "a", "--announce", "h", "--topology", "t"], "expected HOST:PORT"),
        (&["--node", "a"], "<--from <URL>|--cluster>"),
    ] {
        let mut command = crate::helpers::servers::kv_store(&db, &cluster.path("x.sock"));
        command.args(options);
        let message = failure_message(command, 2);
        assert!(message.contains(expected), "{options:?}: {message}");
    }
}

pub(crate) fn a_topology_is_replaced_only_by_a_valid_one_with_a_higher_number() {
    let (cluster, members) = (Cluster::of_numbers(), members(2, 0));
    cluster.write_topology(&topology(5, &members));
    let mut node = cluster.local("p0", &cluster.path("whole.db"), &[]);
    let (low, high) = (key_in(LOW), key_in(HIGH));
    let value = |key: u64| Reply::Bytes(format!("value {key}").into_bytes());
    let [to_high, to_low] = [moved(high, members[1].port), moved(low, members[1].port)];
    assert_eq!((reply(&node, &format!("GET {low}")), reply(&node, &format!("GET {high}"))), (value(low), to_high));
    for (json, logged) in [
        (topology(4, &members), "has number 4, expected more than 5, which is in effect"),
        (topology(5, &members[1..]).replace("8192-16383", "0-16383"), "both have number 5"),
        (topology(6, &members[..1]), "slots 8192-16383 have no primary"),
        ("[".to_owned(), "the document is malformed"),
    ] {
        cluster.write_topology(&json);
        node.signal(rustix::process::Signal::HUP);
        assert!(node.wait_for_log(logged).contains("topology 5 stays in effect"));
        assert_eq!((topology_number(&node), reply(&node, &format!("GET {low}"))), (5, value(low)));
    }
    let info = node.info();
    let fields = ["cluster_node", "cluster_topology", "cluster_role", "cluster_slots", "cluster_file_slots"];
    let values = fields.map(|name| info.get(name).unwrap_or_default().to_owned());
    assert_eq!(values, ["p0", "5", "primary", "0-8191", "0-16383"]);
    // The roles of the nodes change.
    let mut swapped = members.clone();
    (swapped[0].slots, swapped[1].slots) = (HIGH, LOW);
    cluster.write_topology(&topology(7, &swapped));
    eventually("the new topology is in effect", || topology_number(&node) == 7);
    assert_eq!(reply(&node, &format!("GET {high}")), value(high));
    // The node serves its former slots until the other nodes have had the time to read the topology.
    assert_eq!(reply(&node, &format!("GET {low}")), value(low));
    eventually("the node releases its former slots", || reply(&node, &format!("GET {low}")) == to_low);
    // A topology without the node redirects all clients.
    cluster.write_topology(&topology(9, &members[1..]).replace("8192-16383", "0-16383"));
    eventually("the new topology is in effect", || topology_number(&node) == 9);
    eventually("the node releases its slots", || reply(&node, &format!("GET {high}")) == moved(high, members[1].port));
    assert!(!reply(&node, "CLUSTER NODES").text().contains("myself"));
}

pub(crate) fn keys_of_slots_that_the_file_lacks_are_loading() {
    let (cluster, mut members) = (Cluster::of_numbers(), members(2, 1));
    cluster.write_topology(&topology(1, &members));
    let db = cluster.shard(LOW);
    let node = cluster.local("p0", &db, &["--slots", &LOW.to_string()]);
    let replica = cluster.local("r0-0", &db, &["--slots", &LOW.to_string()]);
    let (low, high) = (key_in(LOW), key_in(HIGH));
    assert_eq!(reply(&node, &format!("GET {low}")), Reply::Bytes(format!("value {low}").into_bytes()));
    assert_eq!(
        pipeline(&replica, ["READONLY".to_owned(), format!("GET {low}")])[1],
        reply(&node, &format!("GET {low}"))
    );
    members[0].slots = SlotRange::ALL;
    members.remove(2);
    members.retain(|member| member.primary.as_deref() != Some("p1"));
    cluster.write_topology(&topology(2, &members));
    for server in [&node, &replica] {
        eventually("the new topology is in effect", || topology_number(server) == 2);
    }
    let slot = slot_of(high.into());
    let loading = Reply::Error(format!("LOADING This node does not have the rows of hash slot {slot} yet"));
    assert_eq!(reply(&node, &format!("GET {high}")), loading);
    assert_eq!(reply(&node, &format!("MGET {high}")), loading);
    // A replica redirects to the primary.
    let read = |key: u64| pipeline(&replica, ["READONLY".to_owned(), format!("GET {key}")]).swap_remove(1);
    assert_eq!(read(high), moved(high, members[0].port));
    assert_eq!(read(low), Reply::Bytes(format!("value {low}").into_bytes()));
}

pub(crate) fn a_file_of_other_slots_than_its_node_is_rejected() {
    // Random numbers, so that the slots of few rows show which shard they are from.
    let key = |row: u64| row.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 1;
    let rows: String = (0..ROWS).map(|row| format!("{},value {row}\n", key(row))).collect();
    let (cluster, members) = (Cluster::new(Keys::U64, rows), members(2, 0));
    cluster.write_topology(&topology(1, &members));
    let (low, high, slots) = (cluster.shard(LOW), cluster.shard(HIGH), LOW.to_string());
    let message = |options: &[&str]| failure_message(cluster.command("p0", &high, 1, options), 1);
    let remedy = "serve a file with these rows, or pass the slots of the file to --slots";
    // Without --slots, the file must have the rows of all slots.
    for (options, expected) in [(&["--slots", &slots][..], "0-8191"), (&[], "0-16383")] {
        let message = message(options);
        assert!(message.contains("8192-16383.db: the 64 sampled rows have slots 8"), "{message}");
        assert!(message.contains(&format!("expects a file with the rows of slots {expected}")), "{message}");
        assert!(message.contains(remedy), "{message}");
    }
    // A file may have more rows than its node serves.
    drop(cluster.local("p0", &cluster.path("whole.db"), &["--slots", &slots]));
    let served = cluster.path("served.db");
    std::fs::copy(&low, &served).unwrap();
    let mut node = cluster.local("p0", &served, &["--slots", &slots, "--max-shrink", "100%"]);
    let present = (0..ROWS).map(key).find(|key| LOW.has_key((*key).into())).unwrap();
    let get = || reply(&node, &format!("GET {present}"));
    assert!(matches!(get(), Reply::Bytes(_)));
    std::fs::copy(&high, cluster.path("next.db")).unwrap();
    std::fs::rename(cluster.path("next.db"), &served).unwrap();
    assert!(matches!(get(), Reply::Bytes(_)));
    assert!(node.wait_for_log("served.db: the 64 sampled rows have slots").contains(remedy));
    assert!(matches!(reply(&node, &format!("GET {present}")), Reply::Bytes(_)));
}

pub(crate) fn a_node_whose_slots_have_no_rows_starts() {
    // The slots of the keys 1 and 4 are 9842 and 14039.
    let (cluster, members) = (Cluster::new(Keys::U64, "1,one\n4,four\n"), members(2, 0));
    cluster.write_topology(&topology(1, &members));
    let node = cluster.local("p0", &cluster.path("whole.db"), &["--slots", &LOW.to_string()]);
    node.expect_logged("the 2 sampled rows have slots 9842-14039, and none has one of the slots 0-8191", 1);
    assert_eq!(reply(&node, "DBSIZE"), Reply::Integer(2));
    drop(node);
    let node = cluster.local("p0", &cluster.shard(LOW), &["--slots", &LOW.to_string()]);
    node.expect_logged("sampled rows", 0);
    assert_eq!(reply(&node, "DBSIZE"), Reply::Integer(0));
}

pub(crate) fn a_node_reports_the_slots_that_its_file_lacks() {
    let (cluster, mut members) = (Cluster::of_numbers(), members(2, 0));
    // The node gets one slot more than its file has, as after a mistake in a topology.
    (members[0].slots.last_slot, members[1].slots.first_slot) = (LOW.last_slot + 1, HIGH.first_slot + 1);
    cluster.write_topology(&topology(1, &members));
    let mut node = cluster.local("p0", &cluster.shard(LOW), &["--slots", &LOW.to_string()]);
    let line = node.wait_for_log("topology 1 assigns slots 8192-8192 to this node");
    assert!(line.contains("its file has only rows of slots 0-8191 (--slots") && line.contains("LOADING"), "{line}");
    let health = || {
        let output = Command::new(env!("CARGO_BIN_EXE_zkv")).args(["health", "--server"]).arg(node.socket()).output();
        let output = output.unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, message) = health();
    let expected = "topology 1 assigns slots 8192-8192 to this node, but its file lacks their rows";
    assert!(status == Some(1) && message.contains(expected) && message.contains("--slots"), "{message}");
    let lacking = || node.info().get("cluster_slots_lacking").unwrap().to_owned();
    let states = || {
        let info = reply(&node, "CLUSTER INFO").text();
        let names = ["cluster_state", "cluster_slots_assigned", "cluster_slots_ok", "cluster_slots_fail"];
        names.map(|name| line_of(&info, name).unwrap().to_owned())
    };
    assert_eq!((lacking().as_str(), states()), ("8192-8192", ["fail", "16384", "16383", "1"].map(str::to_owned)));
    // A topology whose slots the file has ends the problem.
    (members[0].slots, members[1].slots) = (LOW, HIGH);
    cluster.write_topology(&topology(2, &members));
    eventually("the new topology is in effect", || topology_number(&node) == 2);
    assert_eq!((lacking().as_str(), states()), ("", ["ok", "16384", "16384", "0"].map(str::to_owned)));
    assert_eq!(health().0, Some(0));
}

pub(crate) fn a_new_topology_invalidates_client_side_caches() {
    let (cluster, mut members) = (Cluster::of_numbers(), members(2, 0));
    cluster.write_topology(&topology(1, &members));
    let node = cluster.local("p0", &cluster.path("whole.db"), &[]);
    let mut stream = node.connect();
    let read_until = |stream: &mut UnixStream, end: &[u8]| {
        let mut bytes = Vec::new();
        while !bytes.ends_with(end) {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            bytes.extend(byte);
        }
        bytes
    };
    stream.write_all(b"HELLO 3\r\nCLIENT TRACKING ON\r\n").unwrap();
    read_until(&mut stream, b"+OK\r\n");
    for number in 2..4 {
        (members[0].slots, members[1].slots) = (members[1].slots, members[0].slots);
        cluster.write_topology(&topology(number, &members));
        let message = b">2\r\n$10\r\ninvalidate\r\n_\r\n";
        assert_eq!(read_until(&mut stream, message), message);
        assert_eq!(topology_number(&node), number);
    }
}

/// If each command read all rows, this test would take minutes.
pub(crate) fn the_keys_of_slots_are_counted_once_for_each_generation() {
    const MANY_ROWS: u64 = 100_000;
    let rows = |count: u64| (0..count).map(|key| format!("{key},v\n")).collect::<String>();
    let cluster = Cluster::new(Keys::U64, rows(MANY_ROWS));
    cluster.write_topology(&topology(1, &members(1, 0)));
    let db = cluster.path("whole.db");
    let node = cluster.local("p0", &db, &[]);
    for (generation, count) in [(1, MANY_ROWS), (2, 1)] {
        if generation > 1 {
            bake_text(&cluster.path("new.db"), Keys::U64, rows(count).into_bytes());
            std::fs::rename(cluster.path("new.db"), &db).unwrap();
            node.signal(rustix::process::Signal::HUP);
            node.wait_for("generation", generation);
        }
        let mut expected = vec![0; usize::from(SLOT_COUNT)];
        (0..count).for_each(|key| expected[usize::from(slot_of(key.into()))] += 1);
        let replies = pipeline(&node, (0..SLOT_COUNT).map(|slot| format!("CLUSTER COUNTKEYSINSLOT {slot}")));
        assert_eq!(replies.iter().map(Reply::integer).collect::<Vec<_>>(), expected);
        // Keys of the first slot that has some, of an empty one, and none of a full one.
        let (full, empty) = (slot_of(0.into()), expected.iter().position(|count| *count == 0).unwrap_or_default());
        let lines = [(full, 1000), (full, 1), (empty as u16, 5), (full, 0)];
        let replies = pipeline(&node, lines.map(|(slot, max)| format!("CLUSTER GETKEYSINSLOT {slot} {max}")));
        for ((slot, max), reply) in lines.into_iter().zip(replies) {
            let keys: Vec<u64> = reply.list().iter().map(|key| key.text().parse().unwrap()).collect();
            let of_slot = (0..count).filter(|key| slot_of((*key).into()) == slot);
            assert_eq!(keys, of_slot.take(max).collect::<Vec<_>>(), "slot {slot}");
        }
    }
}

pub(crate) fn numbers_with_leading_zeros_are_rejected() {
    let cluster = Cluster::of_numbers();
    cluster.write_topology(&topology(1, &members(1, 0)));
    let node = cluster.local("p0", &cluster.path("whole.db"), &[]);
    let lines = ["GET 7", "GET 007", "MGET 7 07", "EXISTS 00", "GET 0", "MULTI", "GET 07", "EXEC"].map(str::to_owned);
    let replies = pipeline(&node, lines);
    let rejected = |reply: &Reply| match reply {
        Reply::Error(text) => text.contains("is not a key of this cluster: write the number without leading zeros"),
        _ => false,
    };
    let expected = [false, true, true, true, false, false, true, false];
    assert_eq!(replies.iter().map(rejected).collect::<Vec<_>>(), expected, "{replies:?}");
    assert_eq!(replies[0], Reply::Bytes(b"value 7".to_vec()));
}

pub(crate) fn the_slot_of_a_key_is_that_of_its_written_form() {
    let (cluster, members) = (Cluster::of_numbers(), members(2, 0));
    cluster.write_topology(&topology(1, &members));
    let written = |number: u64| format!("2001:db8::{number:x}");
    let spelled = |number: u64| format!("2001:0DB8:0:0::{number:X}");
    let rows: String = (1..=ROWS).map(|number| format!("{},value {number}\n", written(number))).collect();
    let db = cluster.path("addresses.db");
    bake_text(&db, Keys::Type("ip".parse().unwrap()), rows);
    let node = cluster.local("p0", &db, &[]);
    let mut commands = Vec::new();
    for number in 1..=ROWS {
        for text in [written(number), spelled(number)] {
            commands.extend([format!("GET {text}"), format!("MGET {text}"), format!("CLUSTER KEYSLOT {text}")]);
        }
    }
    let mut replies = pipeline(&node, commands).into_iter();
    let mut counts = vec![0; usize::from(SLOT_COUNT)];
    for number in 1..=ROWS {
        let slot = slot_of(written(number).as_str().into());
        counts[usize::from(slot)] += 1;
        for text in [written(number), spelled(number)] {
            let value = Reply::Bytes(format!("value {number}").into_bytes());
            let expected = match LOW.has(slot) {
                true => [value.clone(), Reply::List(vec![value]), Reply::Integer(slot.into())],
                false => {
                    let moved = Reply::Error(format!("MOVED {slot} 127.0.0.1:{}", members[1].port));
                    [moved.clone(), moved, Reply::Integer(slot.into())]
                }
            };
            assert_eq!(replies.by_ref().take(3).collect::<Vec<_>>(), expected, "{text}");
        }
    }
    let found = pipeline(&node, (0..SLOT_COUNT).map(|slot| format!("CLUSTER COUNTKEYSINSLOT {slot}")));
    assert_eq!(found.iter().map(Reply::integer).collect::<Vec<_>>(), counts);
    let slot = slot_of(written(7).as_str().into());
    let keys = pipeline(&node, [format!("CLUSTER GETKEYSINSLOT {slot} 1000")]);
    assert!(keys[0].list().contains(&Reply::Bytes(written(7).into_bytes())), "{keys:?}");
}

pub(crate) fn pipelines_redirect_only_the_keys_of_other_nodes() {
    let (cluster, members) = (Cluster::of_numbers(), members(2, 0));
    cluster.write_topology(&topology(1, &members));
    let slots = LOW.to_string();
    // The file has the rows of all slots, or only those of the node: the first one needs a check of each key.
    for (db, options) in [(cluster.path("whole.db"), &[][..]), (cluster.shard(LOW), &["--slots", &slots])] {
        let server = cluster.local("p0", &db, options);
        let keys = || (0..2 * ROWS).map(|key| key * 7919 % (2 * ROWS));
        let replies = pipeline(&server, keys().map(|key| format!("GET {key}")));
        for (key, found) in keys().zip(replies) {
            let expected = match (LOW.has_key(key.into()), key < ROWS) {
                (false, _) => moved(key, members[1].port),
                (true, true) => Reply::Bytes(format!("value {key}").into_bytes()),
                (true, false) => Reply::Null,
            };
            assert_eq!(found, expected, "key {key}");
        }
    }
}

/// Returns the responses to short requests of the native protocol.
fn native(server: &Server, requests: impl IntoIterator<Item = (u32, u64)>, len_bytes: usize) -> Vec<u8> {
    let mut stream = server.connect();
    let bytes: Vec<u8> = requests.into_iter().flat_map(|(op, key)| request(op, key)).collect();
    stream.write_all(&bytes).unwrap();
    let mut responses = vec![0; len_bytes];
    stream.read_exact(&mut responses).unwrap();
    responses
}

pub(crate) fn native_clients_are_told_which_keys_other_nodes_have() {
    const MOVED: u32 = 6;
    let (cluster, members) = (Cluster::of_numbers(), members(2, 1));
    cluster.write_topology(&topology(3, &members));
    let (slots, db) = (LOW.to_string(), cluster.shard(LOW));
    for id in ["p0", "r0-0"] {
        let server = cluster.local(id, &db, &["--slots", &slots]);
        let keys = || (0..2 * ROWS).map(|key| key * 7919 % (2 * ROWS));
        let expected = |op: u32, key: u64| match (LOW.has_key(key.into()), key < ROWS) {
            (false, _) => answer(MOVED, b""),
            (true, true) if op == GET => answer(0, format!("value {key}").as_bytes()),
            (true, true) => answer(0, b""),
            (true, false) => answer(1, b""),
        };
        for op in [GET, EXISTS] {
            let expected: Vec<u8> = keys().flat_map(|key| expected(op, key)).collect();
            assert!(native(&server, keys().map(|key| (op, key)), expected.len()) == expected, "{id} {op}");
        }
        let mut client = server.client();
        let key = key_in(HIGH);
        let error = client.get(key).unwrap_err();
        assert!(matches!(error, ClientError::Moved { .. }), "{error}");
        assert!(error.to_string().contains("another node of the cluster serves the slot of key"), "{error}");
        // The connection is still usable.
        assert_eq!(client.get(key_in(LOW)).unwrap(), Some(format!("value {}", key_in(LOW)).into_bytes()));
        let json = client.topology().unwrap().unwrap();
        let parsed = Topology::parse(json.as_bytes()).unwrap();
        assert_eq!((parsed.number, parsed.slots_of("r0-0").to_string()), (3, slots.clone()));
        assert!(server.client().direct().is_err(), "a mapped file does not show which keys other nodes have");
    }
    let alone = crate::helpers::servers::Server::start(&db, &cluster.path("alone.sock"));
    assert_eq!(alone.client().topology().unwrap(), None);
    assert_eq!(alone.client().get(key_in(HIGH)).unwrap(), None);
}

pub(crate) fn byte_keys_of_other_nodes_are_moved() {
    let rows: String = (0..ROWS).map(|key| format!("user:{key},value {key}\n")).collect();
    let (cluster, members) = (Cluster::new(Keys::BYTES, rows), members(2, 0));
    cluster.write_topology(&topology(1, &members));
    let slots = LOW.to_string();
    let server = cluster.local("p0", &cluster.shard(LOW), &["--slots", &slots]);
    let mut client = server.client();
    for key in 0..ROWS + 20 {
        let (text, slot) = (format!("user:{key}"), slot_of(format!("user:{key}").as_str().into()));
        let (found, redis) = (client.get(text.as_str()), reply(&server, &format!("GET {text}")));
        let value = format!("value {key}").into_bytes();
        match (LOW.has(slot), key < ROWS) {
            (false, _) => {
                assert!(matches!(found, Err(ClientError::Moved { .. })), "{text}");
                assert_eq!(redis, Reply::Error(format!("MOVED {slot} 127.0.0.1:{}", members[1].port)));
            }
            (true, true) => assert_eq!((found.unwrap(), redis), (Some(value.clone()), Reply::Bytes(value))),
            (true, false) => assert_eq!((found.unwrap(), redis), (None, Reply::Null)),
        }
    }
}

pub(crate) fn typed_tables_redirect_pipelined_hash_commands() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("rows.csv");
    let rows: String = (0..ROWS).map(|key| format!("{key},{},n{key}\n", key * 2)).collect();
    std::fs::write(&input, format!("id,count,name\n{rows}")).unwrap();
    let (cluster, members) = (Cluster { folder }, members(2, 0));
    let mut baker = std::process::Command::new(env!("CARGO_BIN_EXE_baker"));
    baker.arg(&input).arg("-o").arg(cluster.path("whole.db"));
    baker.args(["--header", "--key", "id", "--types", "count:u64,name:text"]);
    let output = baker.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    cluster.write_topology(&topology(1, &members));
    let slots = LOW.to_string();
    for (db, options) in [(cluster.path("whole.db"), &[][..]), (cluster.shard(LOW), &["--slots", &slots])] {
        let server = cluster.local("p0", &db, options);
        let lines = (0..2 * ROWS).flat_map(|key| [format!("HGET {key} count"), format!("HGETALL {key}")]);
        let replies = pipeline(&server, lines);
        for (key, pair) in (0..2 * ROWS).zip(replies.chunks(2)) {
            let expected = match (LOW.has_key(key.into()), key < ROWS) {
                (false, _) => [moved(key, members[1].port), moved(key, members[1].port)],
                (true, true) => {
                    let texts = ["count".to_owned(), (key * 2).to_string(), "name".to_owned(), format!("n{key}")];
                    let texts = texts.map(|text| Reply::Bytes(text.into_bytes()));
                    [texts[1].clone(), Reply::List(texts.to_vec())]
                }
                (true, false) => [Reply::Null, Reply::List(Vec::new())],
            };
            assert_eq!(pair, expected, "key {key}");
        }
    }
}
