//! Clusters whose topology is in an object store.

use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use zero_kv::bake::{Cancel, Keys, MEMORY_MIN_BYTES, Options, Shards, merge_shards};
use zero_kv::cluster::Topology;
use zero_kv::publish::{CommitOptions, ShardFile};
use zero_kv::slots::SlotRange;

use super::load::under_load;
use super::nodes::{Member, ROWS, key_in, members, moved, reply, topology, topology_number};
use crate::helpers::published::{Published, sealed, start_node};
use crate::helpers::redis_replies::Reply;
use crate::helpers::rows::bake_text;
use crate::helpers::servers::Server;
use crate::helpers::store_server::{Fault, StoreServer};
use crate::helpers::waiting::eventually;

/// Publishes a table in this number of shards.
pub(crate) fn publish(published: &Published, shards: u16) {
    publish_values(published, shards, "value");
}

/// Publishes a table whose values begin with a text.
fn publish_values(published: &Published, shards: u16, text: &str) {
    let (folder, db) = (tempfile::tempdir().unwrap(), published.folder.path().join("whole.db"));
    bake_text(&db, Keys::U64, (0..ROWS).map(|key| format!("{key},{text} {key}\n")).collect::<String>());
    let mut options = Options::default();
    options.memory_bytes = Some(MEMORY_MIN_BYTES);
    let divided = merge_shards(&[db], &folder.path().join("shards"), Shards::Count(shards), &options).unwrap();
    let files: Vec<ShardFile> =
        divided.iter().map(|shard| ShardFile { path: shard.path.clone(), slots: shard.slots }).collect();
    let commit = CommitOptions::default();
    published.publication.publish(&files, &commit, &Cancel::default()).unwrap();
}

fn command(published: &Published, id: &str, port: u16) -> Command {
    command_of(published, id, port, published.publication.url())
}

/// Returns the command that starts a node, which reads the store at a URL.
fn command_of(published: &Published, id: &str, port: u16, url: &str) -> Command {
    let mut command = published.node_command(id, url);
    let address = format!("127.0.0.1:{port}");
    command.args(["--cluster", "--announce", &address, "--tcp", &address]);
    command
}

fn start(published: &Published, member: &Member) -> Server {
    start_at(published, &member.id, member.port)
}

/// Starts a node at a port of this machine.
pub(crate) fn start_at(published: &Published, id: &str, port: u16) -> Server {
    start_node(command(published, id, port), &published.socket(id))
}

fn create(published: &Published, number: u64, members: &[Member]) {
    let topology = Topology::parse(topology(number, members).as_bytes()).unwrap();
    published.publication.create_topology(&topology).unwrap();
}

pub(crate) fn wait_for_topology<'s>(servers: impl IntoIterator<Item = &'s Server>, number: u64) {
    for server in servers {
        eventually(&format!("topology {number} is in effect"), || topology_number(server) == number);
    }
}

/// Returns the numbers of rows of servers.
fn rows(servers: &[Server]) -> Vec<u64> {
    servers.iter().map(|server| reply(server, "DBSIZE").integer() as u64).collect()
}

pub(crate) fn nodes_fetch_the_slots_that_the_topology_assigns_to_them() {
    let published = Published::new();
    publish(&published, 3);
    let (two, four) = (members(2, 1), members(4, 0));
    create(&published, 1, &two);
    let mut servers: Vec<Server> = two.iter().map(|member| start(&published, member)).collect();
    wait_for_topology(&servers, 1);
    let counts = rows(&servers);
    assert_eq!((counts[0] + counts[2], counts[0], counts[2]), (ROWS, counts[1], counts[3]));
    let (low, high) = (key_in(two[0].slots), key_in(two[2].slots));
    assert_eq!(reply(&servers[0], &format!("GET {low}")), Reply::Bytes(format!("value {low}").into_bytes()));
    assert_eq!(reply(&servers[0], &format!("GET {high}")), moved(high, two[2].port));
    assert_eq!(reply(&servers[1], &format!("GET {low}")), moved(low, two[0].port));
    let seeds: Vec<u16> = two.iter().map(|member| member.port).collect();
    under_load(&seeds, |more| {
        more();
        // Two primaries more. The topology takes effect when all of them have their rows.
        let mut next = four.clone();
        (next[0].id, next[0].port) = (two[0].id.clone(), two[0].port);
        (next[1].id, next[1].port) = (two[2].id.clone(), two[2].port);
        (next[2].id, next[3].id) = ("new-2".to_owned(), "new-3".to_owned());
        create(&published, 2, &next);
        servers.push(start(&published, &next[2]));
        more();
        assert_eq!(topology_number(&servers[0]), 1, "a primary is missing");
        servers.push(start(&published, &next[3]));
        wait_for_topology(&servers, 2);
        more();
        // The nodes serve the slots that they have given away for some time, and drop their rows with the next generation.
        for (at, after) in [(0, &next[0]), (2, &next[1])] {
            let was_moved = |key: &u64| two[at].slots.has_key((*key).into()) && !after.slots.has_key((*key).into());
            let key = (0..ROWS).find(was_moved).unwrap();
            eventually(
                "the node redirects clients of moved slots",
                || matches!(reply(&servers[at], &format!("GET {key}")), Reply::Error(text) if text.starts_with("MOVED ")),
            );
        }
        publish(&published, 5);
        for (server, member) in [(&servers[0], &next[0]), (&servers[2], &next[1])] {
            let expected = (0..ROWS).filter(|key| member.slots.has_key((*key).into())).count() as i64;
            eventually("the node has only the rows of its slots", || reply(server, "DBSIZE").integer() == expected);
        }
        more();
    });
    // A node starts with the topology and the rows that it had, without the store.
    drop(servers);
    std::fs::rename(published.store(), published.folder.path().join("away")).unwrap();
    std::fs::create_dir_all(published.table()).unwrap();
    let node = start(&published, &two[0]);
    assert_eq!(topology_number(&node), 2);
    let key = key_in(SlotRange { first_slot: 0, last_slot: 4095 });
    assert_eq!(reply(&node, &format!("GET {key}")), Reply::Bytes(format!("value {key}").into_bytes()));
}

/// Returns two primaries, the first of which has the slots up to the last one.
fn divided_after(members: &[Member], last_slot: u16) -> [Member; 2] {
    let slots =
        [(0, last_slot), (last_slot + 1, 16383)].map(|(first_slot, last_slot)| SlotRange { first_slot, last_slot });
    [0, 1].map(|at| Member { slots: slots[at], ..members[at].clone() })
}

/// Two topologies wait, so the one before the newest is not in effect either. Nodes that follow different topologies would
/// redirect clients to each other.
pub(crate) fn a_node_with_an_empty_folder_follows_the_topology_that_others_report() {
    let published = Published::new();
    publish(&published, 4);
    let members = members(3, 0);
    let [a, b] = divided_after(&members, 8191);
    create(&published, 1, &[a.clone(), b.clone()]);
    let mut servers: Vec<Server> = [&a, &b].into_iter().map(|member| start(&published, member)).collect();
    wait_for_topology(&servers, 1);
    // The node that gets some slots is not there.
    let range = |first_slot, last_slot| SlotRange { first_slot, last_slot };
    for (number, slots) in
        [(2, [(8192, 16383), (0, 8000), (8001, 8191)]), (3, [(8192, 16383), (0, 7000), (7001, 8191)])]
    {
        let waiting: Vec<Member> = members
            .iter()
            .zip(slots)
            .map(|(member, (first, last))| Member { slots: range(first, last), ..member.clone() })
            .collect();
        create(&published, number, &waiting);
    }
    eventually("both nodes have the rows of topology 3", || {
        let statuses = published.publication.statuses().unwrap();
        statuses.len() == 2 && statuses.iter().all(|status| (status.topology, status.ready_topology) == (1, 3))
    });
    drop(servers.pop());
    std::fs::remove_dir_all(published.cache(&b.id)).unwrap();
    servers.push(start(&published, &b));
    let (low, high) = (key_in(a.slots), key_in(b.slots));
    for (key, owner) in [(low, &servers[0]), (high, &servers[1])] {
        let value = Reply::Bytes(format!("value {key}").into_bytes());
        eventually("the owner has the row", || reply(owner, &format!("GET {key}")) == value);
    }
    assert_eq!([0, 1].map(|at| topology_number(&servers[at])), [1, 1]);
    // With the third node, the newest topology takes effect.
    servers.push(start(&published, &members[2]));
    wait_for_topology(&servers, 3);
}

/// The nodes of a new cluster do not know a topology in effect.
pub(crate) fn nodes_that_start_while_several_topologies_wait_follow_the_newest_when_all_have_its_rows() {
    let published = Published::new();
    publish(&published, 4);
    let members = members(2, 0);
    for (number, last_slot) in [(1, 8191), (2, 4095), (3, 12287)] {
        create(&published, number, &divided_after(&members, last_slot));
    }
    let servers: Vec<Server> = members.iter().map(|member| start(&published, member)).collect();
    wait_for_topology(&servers, 3);
    let divided = divided_after(&members, 12287);
    for (member, server) in divided.iter().zip(&servers) {
        let key = key_in(member.slots);
        assert_eq!(reply(server, &format!("GET {key}")), Reply::Bytes(format!("value {key}").into_bytes()));
    }
}

pub(crate) fn older_generations_stay_in_the_folder_after_a_topology_changes() {
    let published = Published::new();
    let members = members(2, 0);
    create(&published, 1, &divided_after(&members, 12287));
    let publish = |number: u64| publish_values(&published, 4, &format!("generation {number}"));
    publish(1);
    let store = StoreServer::start(&published.store());
    let start = |member: &Member| {
        let command = command_of(&published, &member.id, member.port, &store.url("users"));
        start_node(command, &published.socket(&member.id))
    };
    let servers: Vec<Server> = members.iter().map(start).collect();
    let serve = |number: u64| {
        for server in &servers {
            eventually("the generation is served", || server.number("published_generation") == number);
        }
    };
    for number in 2..=3 {
        publish(number);
        serve(number);
    }
    create(&published, 2, &divided_after(&members, 8191));
    wait_for_topology(&servers, 2);
    // A node serves the slots that it has given away for some time, and needs their rows.
    let moved_key =
        (0..ROWS).find(|key| SlotRange { first_slot: 8192, last_slot: 12287 }.has_key((*key).into())).unwrap();
    eventually(
        "the slots were given away",
        || matches!(reply(&servers[0], &format!("GET {moved_key}")), Reply::Error(text) if text.starts_with("MOVED ")),
    );
    publish(4);
    serve(4);
    let kept = || crate::helpers::published::names(&published.cache(&members[0].id).join("manifests"));
    eventually("three generations are kept", || kept().len() == 3);
    // The first node has all rows of an older generation, and needs no store to go back.
    store.fail("/data/", Fault::Dead);
    published.pin(Some(3));
    eventually("generation 3 is served", || servers[0].number("published_generation") == 3);
    let key = key_in(SlotRange { first_slot: 0, last_slot: 8191 });
    assert_eq!(reply(&servers[0], &format!("GET {key}")), Reply::Bytes(format!("generation 3 {key}").into_bytes()));
}

/// A node that has given slots away still answers for them, until the other nodes must know the new topology. A new
/// generation in this time must not take their rows away, because a node that does not know the topology yet would redirect
/// clients back to it.
pub(crate) fn the_rows_of_moved_slots_stay_in_new_generations_while_the_node_serves_them() {
    let published = Published::new();
    publish(&published, 4);
    let members = members(2, 0);
    let divided_after = |last_slot: u16| {
        let slots =
            [(0, last_slot), (last_slot + 1, 16383)].map(|(first_slot, last_slot)| SlotRange { first_slot, last_slot });
        [0, 1].map(|at| Member { slots: slots[at], ..members[at].clone() })
    };
    create(&published, 1, &divided_after(8191));
    // A node serves moved slots for four polls.
    let start = |member: &Member| {
        let mut command = command(&published, &member.id, member.port);
        command.env("KV_STORE_POLL", "60s");
        start_node(command, &published.socket(&member.id))
    };
    let servers: Vec<Server> = members.iter().map(start).collect();
    wait_for_topology(&servers, 1);
    let poll = || servers.iter().for_each(|server| drop(server.client().reload()));
    create(&published, 2, &divided_after(4095));
    eventually("the slots have moved", || {
        poll();
        servers.iter().all(|server| topology_number(server) == 2)
    });
    let moved = key_in(SlotRange { first_slot: 4096, last_slot: 8191 });
    let replies = || servers.iter().map(|server| reply(server, &format!("GET {moved}"))).collect::<Vec<Reply>>();
    let value = Reply::Bytes(format!("value {moved}").into_bytes());
    assert_eq!(replies(), [value.clone(), value.clone()]);
    publish(&published, 4);
    eventually("the new generation is served", || {
        poll();
        servers.iter().all(|server| server.number("published_generation") == 2)
    });
    assert_eq!(replies(), [value.clone(), value.clone()]);
}

pub(crate) fn a_topology_takes_effect_while_nodes_fetch() {
    let published = Published::new();
    publish(&published, 2);
    let members = members(2, 0);
    create(&published, 1, &members);
    let store = StoreServer::start(&published.store());
    let start = |member: &Member| {
        start_node(command_of(&published, &member.id, member.port, &store.url("users")), &published.socket(&member.id))
    };
    let servers: Vec<Server> = members.iter().map(start).collect();
    wait_for_topology(&servers, 1);
    store.fail("/data/", Fault::Stalled);
    // Another number of shards makes the same rows another generation.
    publish(&published, 3);
    eventually("both nodes fetch", || store.fault_count() >= 2);
    let mut swapped = [members[0].clone(), members[1].clone()];
    (swapped[0].slots, swapped[1].slots) = (members[1].slots, members[0].slots);
    create(&published, 2, &swapped);
    wait_for_topology(&servers, 2);
    store.recover();
    for server in &servers {
        eventually("generation 2 is served", || server.number("published_generation") == 2);
    }
}

/// Writes a status of a node that has the rows of all slots for topology 2.
fn confirm(published: &Published, id: &str, beat: u64, age: Duration) {
    let status = format!(
        r#"{{"node":"{id}","serving":1,"digest":"","prepared":0,"newest":1,"pin":0,"lag_s":0,"error":"","failed":0,
            "slots":[{{"first_slot":0,"last_slot":16383}}],"topology":1,"ready_topology":2,"beat":{beat},
            "updated":"2026-11-28T16:00:00Z","tool":"x"}}"#
    );
    let (path, new) = (published.table().join(format!("status/{id}.json")), published.folder.path().join("status.new"));
    std::fs::write(&new, sealed(&status)).unwrap();
    let file = std::fs::File::options().write(true).open(&new).unwrap();
    file.set_modified(SystemTime::now() - age).unwrap();
    std::fs::rename(new, path).unwrap();
}

pub(crate) fn a_topology_waits_for_a_primary_that_has_stopped_reporting() {
    let published = Published::new();
    publish(&published, 2);
    let (two, three) = (members(2, 0), members(3, 0));
    create(&published, 1, &two);
    let servers: Vec<Server> = two.iter().map(|member| start(&published, member)).collect();
    wait_for_topology(&servers, 1);
    // The third primary had the rows, and was killed an hour ago.
    confirm(&published, &three[2].id, 1, Duration::from_secs(3600));
    let mut next = three.clone();
    (next[0].port, next[1].port) = (two[0].port, two[1].port);
    create(&published, 2, &next);
    for server in &servers {
        let polls = server.number("published_polls");
        server.wait_for("published_polls", polls + 20);
        assert_eq!(topology_number(server), 1);
    }
    confirm(&published, &three[2].id, 2, Duration::ZERO);
    wait_for_topology(&servers, 2);
}

pub(crate) fn a_node_that_fetches_is_not_failed_over() {
    let published = Published::new();
    published.publish(1);
    let members = members(1, 1);
    create(&published, 1, &members);
    let mut slow = command(&published, &members[0].id, members[0].port);
    slow.args(["--fetch-bandwidth", "20KB"]);
    let slow = start_node(slow, &published.socket(&members[0].id));
    let replica = start(&published, &members[1]);
    wait_for_topology([&slow, &replica], 1);
    published.publish(2);
    eventually("the node fetches", || slow.number("published_fetching_total_bytes") > 0);
    // The fetch takes longer than the node may be silent.
    let started = Instant::now();
    while slow.number("published_generation") == 1 {
        let mut watch = Command::new(env!("CARGO_BIN_EXE_zkv"));
        watch.args(["topology", "watch", published.publication.url(), "--once", "--fail-after", "10s"]);
        let output = watch.output().unwrap();
        assert!(output.status.success() && output.stdout.is_empty(), "{output:?} after {:?}", started.elapsed());
        std::thread::yield_now();
    }
    assert_eq!(published.publication.topology(None).unwrap().unwrap().number, 1);
}

pub(crate) fn a_node_with_several_ranges_has_their_rows() {
    let published = Published::new();
    publish(&published, 4);
    let members = members(1, 0);
    let ranges = r#""slots": ["0-99", "5000-5999", "16383-16383"]"#;
    let rest = r#""slots": ["100-4999", "6000-16382"]"#;
    let json = format!(
        r#"{{"format": 1, "number": 1, "nodes": [
            {{"id": "p0", "host": "127.0.0.1", "port": {}, "role": "primary", {ranges}}},
            {{"id": "other", "host": "127.0.0.1", "port": 9, "role": "primary", {rest}}}]}}"#,
        members[0].port
    );
    published.publication.create_topology(&Topology::parse(json.as_bytes()).unwrap()).unwrap();
    let node = start(&published, &members[0]);
    let is_here = |slot: u16| slot < 100 || (5000..6000).contains(&slot) || slot == 16383;
    let expected = (0..ROWS).filter(|key| is_here(zero_kv::slots::slot_of((*key).into())));
    assert_eq!(reply(&node, "DBSIZE").integer(), expected.clone().count() as i64);
    for key in 0..ROWS {
        let expected = match is_here(zero_kv::slots::slot_of(key.into())) {
            true => Reply::Bytes(format!("value {key}").into_bytes()),
            false => moved(key, 9),
        };
        assert_eq!(reply(&node, &format!("GET {key}")), expected);
    }
    assert_eq!(node.info().get("published_slots"), Some("0-99,5000-5999,16383-16383"));
}

pub(crate) fn a_failed_primary_is_replaced_by_its_replica() {
    let published = Published::new();
    publish(&published, 2);
    let members = members(3, 1);
    create(&published, 1, &members);
    let mut servers: Vec<Server> = members.iter().map(|member| start(&published, member)).collect();
    wait_for_topology(&servers, 1);
    let watch = |fail_after: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zkv"));
        command.args(["topology", "watch", published.publication.url(), "--once", "--fail-after", fail_after]);
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    assert_eq!(watch("30s"), (true, String::new()));
    let seeds: Vec<u16> = members[2..].iter().map(|member| member.port).collect();
    under_load(&seeds, |more| {
        more();
        servers[0].kill();
        eventually("the primary is replaced", || watch("3s").1.contains("topology 2: failed: p0"));
        wait_for_topology(&servers[1..], 2);
        let key = key_in(members[0].slots);
        assert_eq!(reply(&servers[1], &format!("GET {key}")), Reply::Bytes(format!("value {key}").into_bytes()));
        more();
        // The node comes back as a replica.
        servers[0] = start(&published, &members[0]);
        eventually("the node is back", || watch("3s").1.contains("topology 3: failed: no node"));
        wait_for_topology(&servers, 3);
        assert_eq!(reply(&servers[0], "ROLE").list()[0].text(), "slave");
        more();
    });
    // If the reports of most nodes are old, the fault is elsewhere.
    drop(servers);
    eventually("the watch does nothing", || watch("1s").1.contains("nodes have stopped reporting: check the store"));
    let number = || published.publication.topology(None).unwrap().unwrap().number;
    let before = number();
    assert!(!watch("1s").0);
    assert_eq!(number(), before);
}
