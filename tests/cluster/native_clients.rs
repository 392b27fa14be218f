//! The crate's client of a cluster.

use zero_kv::client::{ClientError, ClusterClient, ClusterOptions, OwnedKey};

use super::clients::{start, start_one};
use super::nodes::{Cluster, Member, ROWS, members, topology, topology_number};
use crate::helpers::servers::Server;
use crate::helpers::waiting::eventually;

fn value(key: u64) -> Option<Vec<u8>> {
    (key < ROWS).then(|| format!("value {key}").into_bytes())
}

/// Checks batches of keys of all nodes, and single keys.
#[track_caller]
fn check(client: &mut ClusterClient) {
    let keys: Vec<u64> = (0..2 * ROWS).map(|key| key * 7919 % (2 * ROWS)).collect();
    for keys in keys.chunks(700) {
        let expected: Vec<Option<Vec<u8>>> = keys.iter().map(|key| value(*key)).collect();
        assert!(client.get_many(keys).unwrap() == expected);
        assert_eq!(client.get(keys[0]).unwrap(), expected[0]);
    }
}

fn seeds(members: &[Member]) -> Vec<String> {
    members.iter().map(|member| format!("zkv://127.0.0.1:{}", member.port)).collect()
}

pub(crate) fn the_client_routes_by_the_topology_and_follows_it() {
    let (cluster, members) = (Cluster::of_numbers(), members(4, 1));
    let mut servers = start(&cluster, &members);
    let seeds = seeds(&members);
    let mut client = ClusterClient::connect(&seeds[..1]).unwrap();
    assert_eq!((client.topology().number, client.topology().nodes.len()), (1, 8));
    assert_eq!(client.get_many::<u64>(&[]).unwrap(), []);
    check(&mut client);
    let mut of_replicas =
        ClusterClient::connect_with(&seeds, &ClusterOptions { reads_replicas: true, ..ClusterOptions::default() })
            .unwrap();
    let before = servers[0].number("requests_get");
    check(&mut of_replicas);
    assert_eq!(servers[0].number("requests_get"), before);
    // A replica answers for its primary, and a primary for its replica.
    for position in [0, 3] {
        servers[position].kill();
        check(&mut client);
        check(&mut of_replicas);
        servers[position] = start_one(&cluster, &members[position]);
    }
    // The primaries and the replicas change their roles, and two nodes disappear.
    let mut next: Vec<Member> = members.clone();
    for pair in next.chunks_mut(2) {
        pair[0].primary = Some(pair[1].id.clone());
        pair[1].primary = None;
    }
    next.remove(0);
    cluster.write_topology(&topology(2, &next));
    for server in &servers {
        eventually("the new topology is in effect", || topology_number(server) == 2);
    }
    servers[0].kill();
    check(&mut client);
    check(&mut of_replicas);
}

/// Checks floors, ceilings, counts, and ranges against the rows of the whole table.
#[track_caller]
fn check_order(client: &mut ClusterClient) {
    let row = |key: u64| value(key).map(|value| (OwnedKey::U64(key), value));
    let keys: Vec<u64> = (0..300).map(|key| key * 7919 % (2 * ROWS)).chain([0, ROWS - 1, ROWS, u64::MAX]).collect();
    let floors: Vec<_> = keys.iter().map(|key| row((*key).min(ROWS - 1))).collect();
    assert!(client.floor_many(&keys).unwrap() == floors);
    let ceilings: Vec<_> = keys.iter().map(|key| row(*key)).collect();
    assert!(client.ceiling_many(&keys).unwrap() == ceilings);
    assert_eq!(client.floor(u64::MAX).unwrap(), row(ROWS - 1));
    assert_eq!(client.ceiling(0_u64).unwrap(), row(0));
    assert_eq!(client.count(..).unwrap(), ROWS);
    assert_eq!(client.count(10..ROWS - 5).unwrap(), ROWS - 15);
    assert_eq!(client.count(ROWS..).unwrap(), 0);
    for (start, end) in [(0, ROWS), (7, 30), (ROWS, 2 * ROWS)] {
        let rows: Vec<_> = client.range(start..end).unwrap().map(Result::unwrap).collect();
        assert!(rows.into_iter().map(Some).eq((start..end.min(ROWS)).map(row)), "{start}..{end}");
    }
    assert!(client.prefix("1").unwrap().next().unwrap().is_err(), "the keys are numbers");
}

pub(crate) fn ordered_lookups_combine_the_rows_of_all_nodes() {
    let (cluster, members) = (Cluster::of_numbers(), members(4, 1));
    let mut servers = start(&cluster, &members);
    let seeds = seeds(&members);
    let mut client = ClusterClient::connect(&seeds[..1]).unwrap();
    check_order(&mut client);
    // A replica answers for its primary.
    servers[0].kill();
    check_order(&mut client);
    servers[0] = start_one(&cluster, &members[0]);
    // A node with more rows than its own: each key is counted once.
    servers[2].kill();
    let address = format!("127.0.0.1:{}", members[2].port);
    let whole = cluster.command(&members[2].id, &cluster.path("whole.db"), members[2].port, &["--tcp", &address]);
    servers[2] = Server::of(whole, &cluster.path(&format!("{}.sock", members[2].id)));
    check_order(&mut client);
    // A node without the rows of its slots, and without a replica that has them.
    servers[3].kill();
    servers[2].kill();
    let lacking = cluster.command(
        &members[2].id,
        &cluster.shard(members[0].slots),
        members[2].port,
        &["--tcp", &address, "--slots", &members[0].slots.to_string()],
    );
    servers[2] = Server::of(lacking, &cluster.path(&format!("{}.sock", members[2].id)));
    let options = ClusterOptions { attempts: 3, ..ClusterOptions::default() };
    let mut client = ClusterClient::connect_with(&seeds[..1], &options).unwrap();
    let error = client.floor(ROWS).unwrap_err().to_string();
    assert!(error.contains("rows in key order"), "{error}");
}

pub(crate) fn errors_name_the_reason() {
    let (cluster, members) = (Cluster::of_numbers(), members(2, 0));
    let mut servers = start(&cluster, &members);
    let seeds = seeds(&members);
    let options = ClusterOptions { attempts: 3, ..ClusterOptions::default() };
    let mut client = ClusterClient::connect_with(&seeds, &options).unwrap();
    check(&mut client);
    servers[1].kill();
    let key = super::nodes::key_in(members[1].slots);
    let error = client.get(key).unwrap_err();
    assert!(error.to_string().contains(&members[1].port.to_string()), "{error}");
    assert!(client.get(super::nodes::key_in(members[0].slots)).unwrap().is_some());
    drop(servers);
    assert!(matches!(ClusterClient::connect(&seeds), Err(ClientError::NotRunning { .. })));
    let alone = Server::start(&cluster.path("whole.db"), &cluster.path("alone.sock"));
    let error = ClusterClient::connect(&[alone.socket()]).unwrap_err();
    assert!(error.to_string().contains("the server is not a node of a cluster"), "{error}");
    let error = ClusterClient::connect::<&str>(&[]).unwrap_err();
    assert!(error.to_string().contains("name the address of at least one node"), "{error}");
}
