//! The crate's client of a cluster whose nodes replace their tables: keys of another type, values that the client keeps,
//! and ranges.

use rustix::process::Signal;
use zero_kv::bake::{self, Column, Keys, Options, RangeEnds};
use zero_kv::client::{Cache, ClientError, ClusterClient, ClusterOptions};
use zero_kv::{Key, KeyType, OwnedKey};

use super::clients::start;
use super::nodes::{Cluster, Member, members, topology, topology_number};
use crate::helpers::rows::bake_text;
use crate::helpers::servers::Server;
use crate::helpers::waiting::eventually;

const KEYS: u64 = 300;

fn rows(text: &str) -> String {
    (0..KEYS).map(|key| format!("{key},{text} {key}\n")).collect()
}

fn values(text: &str) -> Vec<Option<Vec<u8>>> {
    (0..KEYS).map(|key| Some(format!("{text} {key}").into_bytes())).collect()
}

fn keys(key_type: KeyType) -> Vec<OwnedKey> {
    (0..KEYS).map(|key| key_type.parse(key.to_string().as_bytes()).unwrap()).collect()
}

fn get_all(client: &mut ClusterClient, keys: &[OwnedKey]) -> Result<Vec<Option<Vec<u8>>>, ClientError> {
    client.get_many(&keys.iter().map(OwnedKey::as_key).collect::<Vec<Key<'_>>>())
}

fn seeds(members: &[Member]) -> Vec<String> {
    members.iter().map(|member| format!("zkv://127.0.0.1:{}", member.port)).collect()
}

/// Starts a server for each member, with a file that is already baked.
fn start_with(cluster: &Cluster, members: &[Member], options: &[&str]) -> Vec<Server> {
    cluster.write_topology(&topology(1, members));
    let start = |member: &Member| {
        let (address, slots) = (format!("127.0.0.1:{}", member.port), member.slots.to_string());
        let options = [&["--tcp", &address, "--slots", &slots], options].concat();
        let command = cluster.command(&member.id, &cluster.path(&format!("{slots}.db")), member.port, &options);
        Server::of(command, &cluster.path(&format!("{}.sock", member.id)))
    };
    members.iter().map(start).collect()
}

/// Makes a node serve its slots of the newest whole table.
fn swap(cluster: &Cluster, member: &Member, server: &Server) {
    let before = server.number("generation");
    cluster.shard(member.slots);
    server.signal(Signal::HUP);
    server.wait_for("generation", before + 1);
}

fn requested(servers: &[Server]) -> u64 {
    servers.iter().map(|server| server.number("requests_get")).sum()
}

pub(crate) fn keys_of_another_type_are_errors_until_the_type_is_requested_again() {
    let i64_type: KeyType = "i64".parse().unwrap();
    let (cluster, members) = (Cluster::new(Keys::U64, rows("u64")), members(3, 0));
    members.iter().for_each(|member| drop(cluster.shard(member.slots)));
    let servers = start_with(&cluster, &members, &["--allow-key-type-change"]);
    let [mut client, mut stored] = [(); 2].map(|()| ClusterClient::connect(&seeds(&members)).unwrap());
    assert_eq!(client.key_type().unwrap(), KeyType::U64);
    assert_eq!(get_all(&mut client, &keys(KeyType::U64)).unwrap(), values("u64"));
    assert_eq!(get_all(&mut stored, &keys(KeyType::U64)).unwrap(), values("u64"));
    bake_text(&cluster.path("whole.db"), Keys::Type(i64_type), rows("i64"));
    for (member, server) in members.iter().zip(&servers) {
        swap(&cluster, member, server);
        let error = get_all(&mut client, &keys(KeyType::U64)).unwrap_err();
        assert!(matches!(error, ClientError::KeyTypeChanged { .. }), "{error}");
        let error = client.floor(7).unwrap_err();
        assert!(matches!(error, ClientError::KeyTypeChanged { .. }), "{error}");
    }
    assert_eq!(client.key_type().unwrap(), i64_type);
    assert_eq!(get_all(&mut client, &keys(i64_type)).unwrap(), values("i64"));
    assert_eq!(client.first().unwrap().unwrap().1, b"i64 0");
    // A client that has not requested the type sends stored keys to the nodes of their slots.
    assert_eq!(get_all(&mut stored, &keys(i64_type)).unwrap(), values("i64"));
}

pub(crate) fn cached_values_are_those_of_the_tables_that_nodes_serve() {
    let (cluster, members) = (Cluster::new(Keys::U64, rows("old")), members(3, 0));
    let servers = start(&cluster, &members);
    let cache = Cache::new(1 << 20);
    let mut options = ClusterOptions::default();
    options.client.cache = Some(cache.clone());
    let mut client = ClusterClient::connect_with(&seeds(&members), &options).unwrap();
    let keys = keys(KeyType::U64);
    assert_eq!(get_all(&mut client, &keys).unwrap(), values("old"));
    let before = requested(&servers);
    assert_eq!(get_all(&mut client, &keys).unwrap(), values("old"));
    for key in &keys[..20] {
        assert!(client.get(key).unwrap().is_some());
    }
    assert_eq!((requested(&servers), cache.len()), (before, KEYS as usize), "no request for a cached value");
    // One node replaces its table.
    bake_text(&cluster.path("whole.db"), Keys::U64, rows("new"));
    swap(&cluster, &members[1], &servers[1]);
    let expected: Vec<_> = (0..KEYS)
        .map(|key| if members[1].slots.has_key(key.into()) { "new" } else { "old" })
        .zip(0..)
        .map(|(text, key)| Some(format!("{text} {key}").into_bytes()))
        .collect();
    eventually("the new values of one node", || get_all(&mut client, &keys).unwrap() == expected);
    swap(&cluster, &members[0], &servers[0]);
    swap(&cluster, &members[2], &servers[2]);
    eventually("the new values of all nodes", || get_all(&mut client, &keys).unwrap() == values("new"));
    let before = requested(&servers);
    assert_eq!(get_all(&mut client, &keys).unwrap(), values("new"));
    assert_eq!(requested(&servers), before);
    // A topology with another number, and the same nodes.
    cluster.write_topology(&topology(2, &members));
    for server in &servers {
        eventually("the new topology is in effect", || topology_number(server) == 2);
    }
    eventually("the values are requested again", || {
        assert_eq!(get_all(&mut client, &keys).unwrap(), values("new"));
        requested(&servers) > before
    });
    assert!(cache.held_bytes() <= cache.max_bytes());
}

pub(crate) fn ranges_are_found_through_the_client_of_a_cluster() {
    let cluster = Cluster::new(Keys::U64, "");
    let mut options = Options::default();
    options.key = Some(Column::Number(1));
    options.ranges = Some(RangeEnds::Column(Column::Number(2)));
    options.replace = zero_kv::replace::ReplaceRules::any();
    let text: String = (0..KEYS).map(|range| format!("{},{},range {range}\n", range * 10, range * 10 + 5)).collect();
    bake::bake_csv(text.as_bytes(), &cluster.path("whole.db"), &options).unwrap();
    // Ranges are not divided by slots, so each node has all of them.
    let members = members(3, 0);
    cluster.write_topology(&topology(1, &members));
    let start = |member: &Member| {
        let address = format!("127.0.0.1:{}", member.port);
        let command = cluster.command(&member.id, &cluster.path("whole.db"), member.port, &["--tcp", &address]);
        Server::of(command, &cluster.path(&format!("{}.sock", member.id)))
    };
    let _servers: Vec<Server> = members.iter().map(start).collect();
    let mut client = ClusterClient::connect(&seeds(&members)).unwrap();
    let keys: Vec<u64> = (0..KEYS * 10 + 20).step_by(3).collect();
    let expected: Vec<_> = keys
        .iter()
        .map(|key| {
            let (range, rest) = (key / 10, key % 10);
            let value = format!("range {range}").into_bytes();
            (range < KEYS && rest <= 5).then(|| (OwnedKey::U64(range * 10), OwnedKey::U64(range * 10 + 5), value))
        })
        .collect();
    assert_eq!(client.cover_many(&keys).unwrap(), expected);
    for at in [0, 1, 7, 500, expected.len() - 1] {
        assert_eq!(client.cover(keys[at]).unwrap(), expected[at]);
    }
    assert_eq!(client.cover_many::<u64>(&[]).unwrap(), []);
    let (ranges, schemas) = client.cover_many_with_schema(&keys).unwrap();
    assert_eq!((ranges, schemas), (expected, vec![None; keys.len()]));
}
