//! The crate's client of a cluster.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use zero_kv::bake::Keys;
use zero_kv::client::request::{Ceiling, LastRow};
use zero_kv::client::{ClientError, ClusterClient, ClusterOptions, KeyRange, Options, OwnedKey, Row, RowsOrValues};
use zero_kv::typed::{Schema, TypedRow};
use zero_kv::{Key, KeyType};

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
        let exist: Vec<bool> = expected.iter().map(Option::is_some).collect();
        assert_eq!(client.contains_many(keys).unwrap(), exist);
        assert_eq!(client.contains(keys[0]).unwrap(), exist[0]);
        let RowsOrValues::Values(values) = client.get_rows_or_values(keys).unwrap() else { panic!("rows") };
        assert!(values.iter().eq(expected.iter().map(Option::as_deref)));
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

/// Nodes, shards, and clients all compute the slot of a key from its written form.
pub(crate) fn keys_of_all_types_are_routed_by_their_written_form() {
    for keys in ["i64", "ip", "bytes,date"] {
        let key_type: KeyType = keys.parse().unwrap();
        let written: Vec<String> = (0..300_i64)
            .map(|i| match keys {
                "i64" => (i * 7919 % 300 - 150).to_string(),
                "ip" => Ipv4Addr::from(0x0a00_0000 + i as u32 * 257).to_string(),
                _ => format!("city {},2026-{:02}-{:02}", i / 90, 1 + i % 9, 1 + i / 9 % 10),
            })
            .collect();
        let rows: String = written.iter().map(|key| format!("\"{key}\",\"value {key}\"\n")).collect();
        let (cluster, members) = (Cluster::new(Keys::Type(key_type), rows), members(3, 0));
        let _servers = start(&cluster, &members);
        let mut client = ClusterClient::connect(&seeds(&members)[..1]).unwrap();
        assert_eq!(client.key_type().unwrap(), key_type);
        let stored: Vec<OwnedKey> = written.iter().map(|key| key_type.parse(key.as_bytes()).unwrap()).collect();
        let keys: Vec<Key<'_>> = stored.iter().map(OwnedKey::as_key).collect();
        let expected: Vec<_> = written.iter().map(|key| Some(format!("value {key}").into_bytes())).collect();
        assert_eq!(client.get_many(&keys).unwrap(), expected);
        assert_eq!(client.count(..).unwrap(), 300);
        let mut sorted = stored.clone();
        sorted.sort();
        assert!(client.iter().map(|row| row.unwrap().0).eq(sorted));
    }
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
    assert_eq!((client.first().unwrap(), client.last().unwrap()), (row(0), row(ROWS - 1)));
    assert_eq!(client.count(..).unwrap(), ROWS);
    assert_eq!(client.count(10..ROWS - 5).unwrap(), ROWS - 15);
    assert_eq!(client.count(ROWS..).unwrap(), 0);
    for (start, end) in [(0, ROWS), (7, 30), (ROWS, 2 * ROWS)] {
        let rows: Vec<_> = client.range(start..end).unwrap().map(Result::unwrap).collect();
        assert!(rows.into_iter().map(Some).eq((start..end.min(ROWS)).map(row)), "{start}..{end}");
        let ends = (Bound::Included(OwnedKey::U64(start)), Bound::Excluded(OwnedKey::U64(end)));
        let (mut backward, mut rest) = (Vec::new(), Some(KeyRange::new(ends.0, ends.1)));
        while let Some(range) = rest.take() {
            let page = client.last_page(range.bounds()).unwrap();
            backward.splice(0..0, page.rows);
            rest = page.rest;
        }
        assert!(backward.into_iter().map(Some).eq((start..end.min(ROWS)).map(row)), "{start}..{end}");
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

/// Forwards connections to a port of this machine. Sends nothing to the server before more than `held_bytes` have arrived
/// from the client since the last time.
fn proxy(port: u16, held_bytes: &Arc<AtomicUsize>) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let proxy_port = listener.local_addr().unwrap().port();
    let held_bytes = Arc::clone(held_bytes);
    thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)) else { return };
            let (mut from_server, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || io::copy(&mut from_server, &mut to_client));
            let held_bytes = Arc::clone(&held_bytes);
            thread::spawn(move || {
                let (mut held, mut buffer) = (Vec::new(), [0; 4096]);
                while let Ok(read @ 1..) = client.read(&mut buffer) {
                    held.extend_from_slice(&buffer[..read]);
                    if held.len() > held_bytes.load(Ordering::Relaxed) && server.write_all(&held).is_ok() {
                        held.clear();
                    }
                }
            });
        }
    });
    proxy_port
}

pub(crate) fn an_ordered_lookup_takes_one_round_trip() {
    let (cluster, mut members) = (Cluster::of_numbers(), members(2, 0));
    let servers = start(&cluster, &members);
    let held_bytes = Arc::new(AtomicUsize::new(0));
    for member in &mut members {
        member.port = proxy(member.port, &held_bytes);
    }
    cluster.write_topology(&topology(2, &members));
    for server in &servers {
        eventually("the new topology is in effect", || topology_number(server) == 2);
    }
    let client = Options { call_timeout: Some(Duration::from_secs(20)), ..Options::default() };
    let options = ClusterOptions { client, attempts: 1, ..ClusterOptions::default() };
    let mut client = ClusterClient::connect_with(&seeds(&members), &options).unwrap();
    check(&mut client);
    // A request has at least 16 bytes. The requests for the slots and the schema of the file and the lookup must arrive
    // together.
    held_bytes.store(3 * 16, Ordering::Relaxed);
    assert_eq!(client.floor(ROWS).unwrap().unwrap().0, OwnedKey::U64(ROWS - 1));
    assert_eq!(client.ceiling(7_u64).unwrap().unwrap().0, OwnedKey::U64(7));
    assert_eq!(client.count(..).unwrap(), ROWS);
    assert_eq!(client.first_page(5..8).unwrap().rows.len(), 3);
}

pub(crate) fn rows_of_typed_tables_have_the_columns_of_the_schema() {
    let rows: String = (0..ROWS).map(|key| format!("{key},{},name {key}\n", key / 2)).collect();
    let cluster = Cluster::typed("price:u32,name:text", rows);
    let members = members(3, 0);
    let mut servers = start(&cluster, &members);
    let mut client = ClusterClient::connect(&seeds(&members)).unwrap();
    let keys = [7, ROWS, 1999, 0, 8];
    let schema = client.schema().unwrap().unwrap();
    assert!(schema.columns().iter().map(|column| column.name.as_str()).eq(["price", "name"]));
    let rows = client.get_rows(&keys).unwrap();
    assert_eq!((rows.len(), rows.schema().id()), (keys.len(), schema.id()));
    let names = client.get_projected(&keys, &["name"]).unwrap();
    for (position, key) in keys.into_iter().enumerate() {
        let expected = (key < ROWS).then(|| (u32::try_from(key / 2).unwrap(), format!("name {key}")));
        let found = rows
            .row(position)
            .map(|row| (row.get::<u32>("price").unwrap(), row.get::<&str>("name").unwrap().to_owned()));
        assert_eq!(found, expected);
        let name = names.row(position).map(|row| row.get::<&str>("name").unwrap().to_owned());
        assert_eq!(name, expected.map(|(_, name)| name));
    }
    assert!(matches!(client.get_rows_or_values(&keys).unwrap(), RowsOrValues::Rows(rows) if rows.len() == keys.len()));
    assert_eq!(client.get_rows::<u64>(&[]).unwrap().schema().id(), schema.id());
    let error = client.get_projected(&keys, &["weight"]).unwrap_err().to_string();
    assert!(error.contains("weight"), "{error}");
    check_prices(&mut client, |_| false);
    let _other = serve_float_prices(&cluster, &members[0], &mut servers[0]);
    assert!(matches!(client.get_projected(&keys, &["price"]), Err(ClientError::SchemaDiffers { .. })));
    assert!(matches!(client.get_rows_or_values(&keys), Err(ClientError::SchemaDiffers { .. })));
    assert_eq!(client.get_projected(&keys, &["name"]).unwrap().len(), keys.len());
    // Each row in key order has the schema of the table that it comes from.
    check_prices(&mut client, |key| members[0].slots.has_key(Key::U64(key)));
}

/// Lets a node serve a table in which the prices are floats. Returns the folder of the table.
fn serve_float_prices(cluster: &Cluster, member: &Member, server: &mut Server) -> Cluster {
    let rows: String = (0..ROWS).map(|key| format!("{key},1.5,x\n")).collect();
    let other = Cluster::typed("price:f32,name:text", rows);
    server.kill();
    let address = format!("127.0.0.1:{}", member.port);
    let options = ["--tcp", &address, "--slots", &member.slots.to_string()];
    let command = cluster.command(&member.id, &other.shard(member.slots), member.port, &options);
    *server = Server::of(command, &cluster.path(&format!("{}.sock", member.id)));
    other
}

/// Checks the prices of all rows in key order. They are 1.5 if `is_float` returns true for the key, and otherwise half the
/// key.
#[track_caller]
fn check_prices(client: &mut ClusterClient, is_float: impl Fn(u64) -> bool) {
    let check = |(key, bytes): &Row, schema: &Option<Arc<Schema>>| {
        let key = key.as_key().as_u64().unwrap();
        let row = TypedRow::new(schema.as_ref().unwrap(), bytes).unwrap();
        if is_float(key) {
            assert_eq!(row.get::<f32>("price").unwrap(), 1.5, "{key}");
        } else {
            assert_eq!(u64::from(row.get::<u32>("price").unwrap()), key / 2, "{key}");
        }
    };
    let keys = 0..ROWS + 2;
    let ceilings: Vec<Ceiling<'_>> = keys.clone().map(|key| Ceiling::new(key).unwrap()).collect();
    let (rows, schemas) = client.call_with_schema(&ceilings).unwrap();
    assert_eq!((rows.len(), schemas.len()), (ceilings.len(), ceilings.len()));
    for ((key, row), schema) in keys.zip(&rows).zip(&schemas) {
        assert_eq!(row.as_ref().map(|(key, _)| key.clone()), (key < ROWS).then_some(OwnedKey::U64(key)));
        assert_eq!(row.is_some(), schema.is_some());
        row.iter().for_each(|row| check(row, schema));
    }
    let (rows, schemas) = client.call_with_schema(&[LastRow]).unwrap();
    check(rows[0].as_ref().unwrap(), &schemas[0]);
    assert_eq!(client.call_with_schema::<LastRow>(&[]).unwrap(), (Vec::new(), Vec::new()));
    let mut row_count = 0;
    let mut rest = Some(KeyRange::new(Bound::Unbounded, Bound::Unbounded));
    while let Some(range) = rest {
        let page = client.first_page(range.bounds()).unwrap();
        assert_eq!(page.rows.len(), page.schemas.len());
        page.rows.iter().zip(&page.schemas).for_each(|(row, schema)| check(row, schema));
        row_count += page.rows.len() as u64;
        rest = page.rest;
    }
    assert_eq!(row_count, ROWS);
}

pub(crate) fn all_nodes_of_a_slot_are_tried() {
    let (cluster, members) = (Cluster::of_numbers(), members(2, 2));
    let mut servers = start(&cluster, &members);
    // With one attempt, a call must try all nodes of a slot before it fails.
    let options = ClusterOptions { attempts: 1, ..ClusterOptions::default() };
    for reads_replicas in [false, true] {
        let options = ClusterOptions { reads_replicas, ..options.clone() };
        // Each node of the first shard is the only one that runs.
        for running in 0..3 {
            let mut client = ClusterClient::connect_with(&seeds(&members), &options).unwrap();
            (0..3).filter(|node| *node != running).for_each(|node| servers[node].kill());
            check(&mut client);
            check_order(&mut client);
            for node in (0..3).filter(|node| *node != running) {
                servers[node] = start_one(&cluster, &members[node]);
            }
        }
    }
    // A primary without the rows of its slots: its replicas have them.
    servers[0].kill();
    let address = format!("127.0.0.1:{}", members[0].port);
    let slots = members[3].slots;
    let options = ["--tcp", &address, "--slots", &slots.to_string()];
    let lacking = cluster.command(&members[0].id, &cluster.shard(slots), members[0].port, &options);
    servers[0] = Server::of(lacking, &cluster.path(&format!("{}.sock", members[0].id)));
    let mut client = ClusterClient::connect(&seeds(&members)).unwrap();
    check(&mut client);
    check_order(&mut client);
}

pub(crate) fn a_call_without_a_node_ends_after_its_time_out() {
    let (cluster, members) = (Cluster::of_numbers(), members(2, 1));
    let mut servers = start(&cluster, &members);
    // If only the number of attempts ended the call, it would take more than a century.
    let call_timeout = Some(Duration::from_millis(500));
    let client = Options { call_timeout, ..Options::default() };
    let options = ClusterOptions { client, attempts: u32::MAX, ..ClusterOptions::default() };
    let mut client = ClusterClient::connect_with(&seeds(&members), &options).unwrap();
    check(&mut client);
    servers[0].kill();
    servers[1].kill();
    let error = client.get(super::nodes::key_in(members[0].slots)).unwrap_err();
    assert!(matches!(error, ClientError::NotRunning { .. }), "{error}");
    let ports = [members[0].port, members[1].port].map(|port| port.to_string());
    assert!(ports.iter().any(|port| error.to_string().contains(port)), "{error}");
}
