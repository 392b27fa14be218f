//! Clients that keep values, and tables that are replaced.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::Signal;
use zero_kv::bake::Keys;
use zero_kv::client::{Cache, Client, Options, Pool, PoolOptions, RowsOrValues};

use super::both::{AnyClient, with_both};
use crate::helpers::generations::{Shape, named};
use crate::helpers::random::Random;
use crate::helpers::repeating::StopOnDrop;
use crate::helpers::rows::bake_text;
use crate::helpers::scenes::Scene;
use crate::helpers::servers::Server;
use crate::helpers::tables::Table;
use crate::helpers::waiting::eventually;

with_both!(
    a_cached_value_needs_no_request_until_the_table_is_replaced,
    a_restarted_server_and_a_closed_connection_have_no_cached_values,
    rows_of_typed_tables_are_cached_with_their_schema,
    a_cache_stays_within_its_limit,
);

const SHAPE: Shape = Shape { rows: 300, len_max_bytes: 9000 };

fn options(max_bytes: usize) -> (Cache, Options) {
    let cache = Cache::new(max_bytes);
    (cache.clone(), Options { cache: Some(cache), ..Options::default() })
}

/// Puts the file of a generation in place, and waits until it is served.
fn swap_to(db: &std::path::Path, server: &Server, generation: u64) {
    let new = db.with_extension("new");
    SHAPE.bake(generation, &new);
    let before = server.number("generation");
    std::fs::rename(new, db).unwrap();
    server.signal(Signal::HUP);
    server.wait_for("generation", before + 1);
}

fn a_cached_value_needs_no_request_until_the_table_is_replaced<C: AnyClient>() {
    let table = Table::new([(7, b"seven".to_vec()), (8, vec![b'8'; 20_000]), (9, Vec::new())]);
    let server = table.serve_with(&["--no-watch"]);
    let (cache, options) = options(1 << 20);
    let mut client = C::connect(server.socket(), &options).unwrap();
    let keys = [7, 8, 9, 10, 7];
    let values = |client: &mut C| {
        let mut values = Vec::new();
        client.get_many_with(&keys, |_, value| values.push(value.map(<[u8]>::to_vec))).unwrap();
        values
    };
    let expected: Vec<Option<Vec<u8>>> = keys.iter().map(|key| table.model.get(key).cloned()).collect();
    assert_eq!(client.get_number(7).unwrap(), expected[0]);
    assert_eq!(values(&mut client), expected);
    let before = server.number("requests_get");
    assert_eq!(before, 1 + 3, "two of the keys were cached or equal");
    for _ in 0..3 {
        assert_eq!(values(&mut client), expected);
        assert_eq!(client.get_number(10).unwrap(), None, "a key that the table does not have");
        let RowsOrValues::Values(found) = client.get_rows_or_values(&keys).unwrap() else { panic!("rows") };
        assert!(found.iter().eq(expected.iter().map(Option::as_deref)));
    }
    assert_eq!(server.number("requests_get"), before);
    assert_eq!(cache.len(), 4);
    // A new table, with the same keys.
    let new = table.db().with_extension("new");
    bake_text(&new, Keys::U64, "7,new\n10,ten\n");
    std::fs::rename(new, table.db()).unwrap();
    server.signal(Signal::HUP);
    server.wait_for("generation", 2);
    // Without another request, the announcement arrives.
    eventually("the cached value is forgotten", || client.get_number(7).unwrap() == Some(b"new".to_vec()));
    assert_eq!(values(&mut client), [Some(b"new".to_vec()), None, None, Some(b"ten".to_vec()), Some(b"new".to_vec())]);
    assert_eq!(client.get_number(8).unwrap(), None);
    assert_eq!(cache.len(), 4, "no value of the old table is kept");
}

fn a_restarted_server_and_a_closed_connection_have_no_cached_values<C: AnyClient>() {
    let table = Table::new([(7, b"seven".to_vec())]);
    let mut server = table.serve();
    let (cache, options) = options(1 << 20);
    let mut client = C::connect(server.socket(), &options).unwrap();
    for _ in 0..2 {
        assert_eq!(client.get_number(7).unwrap(), Some(b"seven".to_vec()));
    }
    server.kill();
    drop(server);
    bake_text(&table.db(), Keys::U64, "7,new\n");
    let mut server = table.serve();
    assert_eq!(client.get_number(7).unwrap(), Some(b"new".to_vec()));
    server.kill();
    let (_, impatient) = self::options(1 << 20);
    let error = client.get_number(7).unwrap_err();
    assert!(error.to_string().contains("is kv_store running"), "{error}");
    assert!(cache.is_empty(), "{} entries without a connection", cache.len());
    assert!(C::connect(table.socket(), &Options { retries: 0, ..impatient }).is_err());
}

fn rows_of_typed_tables_are_cached_with_their_schema<C: AnyClient>() {
    let scene = Scene::new();
    let bake = |types: &str, text: &str| {
        let new = scene.db().with_extension("new");
        let mut typed = zero_kv::bake::TypedColumns::default();
        typed.types = zero_kv::bake::parse_types(types).unwrap();
        let mut options = zero_kv::bake::Options::default();
        options.typed = Some(typed);
        options.key = Some(zero_kv::bake::Column::Name("id".to_owned()));
        zero_kv::bake::bake_csv(text.as_bytes(), &new, &options).unwrap();
        std::fs::rename(new, scene.db()).unwrap();
    };
    bake("id:u64,age:u8,name:text", "1,30,Ada\n2,40,Bob\n");
    let server = scene.serve(&[]);
    let (_, options) = options(1 << 20);
    let mut client = C::connect(server.socket(), &options).unwrap();
    let rows = |client: &mut C| match client.get_rows_or_values(&[1, 2, 3]).unwrap() {
        RowsOrValues::Rows(rows) => {
            rows.iter().map(|row| row.map(|row| row.get::<u8>("age").unwrap())).collect::<Vec<_>>()
        }
        RowsOrValues::Values(_) => panic!("values"),
    };
    assert_eq!(rows(&mut client), [Some(30), Some(40), None]);
    let before = server.number("requests_get");
    assert_eq!(rows(&mut client), [Some(30), Some(40), None]);
    assert_eq!(server.number("requests_get"), before);
    // The columns change.
    bake("id:u64,name:text,age:u8", "1,Ada,31\n2,Bob,41\n");
    server.signal(Signal::HUP);
    server.wait_for("generation", 2);
    eventually("the new rows are found", || rows(&mut client) == [Some(31), Some(41), None]);
    // A table without columns.
    bake_text(&scene.db().with_extension("new"), Keys::U64, "1,one\n");
    std::fs::rename(scene.db().with_extension("new"), scene.db()).unwrap();
    server.signal(Signal::HUP);
    server.wait_for("generation", 3);
    eventually("values are found", || matches!(client.get_rows_or_values(&[1]).unwrap(), RowsOrValues::Values(_)));
}

fn a_cache_stays_within_its_limit<C: AnyClient>() {
    let table = Table::new((0..2000).map(|key| (key, vec![key as u8; (key % 300) as usize])));
    let server = table.serve();
    let (cache, options) = options(50_000);
    let mut client = C::connect(server.socket(), &options).unwrap();
    let mut random = Random(46);
    for _ in 0..300 {
        let keys: Vec<u64> = (0..20)
            .map(|_| {
                let below = if random.below(2) == 0 { 40 } else { 2500 };
                random.below(below) as u64
            })
            .collect();
        client
            .get_many_with(&keys, |at, value| assert_eq!(value, table.model.get(&keys[at]).map(Vec::as_slice)))
            .unwrap();
        assert!(cache.held_bytes() <= cache.max_bytes(), "{}", cache.held_bytes());
    }
    assert!(cache.held_bytes() > 40_000 && cache.len() > 100, "{} bytes, {}", cache.held_bytes(), cache.len());
    assert!(server.number("requests_get") < 300 * 20, "hot keys were found");
}

/// A client that checks what it reads: values name their generation, and the generations of one client never decrease.
struct Reader {
    random: Random,
    newest: u64,
}

impl Reader {
    fn keys(&mut self, count: usize) -> Vec<u64> {
        let mut key = || {
            let below = if self.random.below(3) > 0 { 10 } else { 300 };
            1 + self.random.below(below) as u64
        };
        (0..count).map(|_| key()).collect()
    }

    /// Checks values in the order in which they were returned.
    fn check(&mut self, keys: &[u64], values: &[Option<Vec<u8>>], is_one_table: bool) {
        let generations: Vec<u64> = values.iter().map(|value| named(value.as_ref().unwrap()).unwrap()).collect();
        for ((key, value), generation) in keys.iter().zip(values).zip(&generations) {
            assert!(*generation >= self.newest, "key {key}: generation {generation} after {}", self.newest);
            assert_eq!(value, &SHAPE.value(*generation, *key));
        }
        if is_one_table {
            assert!(generations.windows(2).all(|pair| pair[0] == pair[1]), "{generations:?}");
        }
        self.newest = generations.into_iter().max().unwrap_or(self.newest);
    }

    fn read<C: AnyClient>(&mut self, client: &mut C) {
        let key = self.keys(1);
        let value = client.get_number(key[0]).unwrap();
        self.check(&key, &[value], true);
        let keys = self.keys(16);
        let mut values = Vec::new();
        client.get_many_with(&keys, |_, value| values.push(value.map(<[u8]>::to_vec))).unwrap();
        self.check(&keys, &values, false);
        let RowsOrValues::Values(found) = client.get_rows_or_values(&keys).unwrap() else { panic!("rows") };
        let values: Vec<_> = found.iter().map(|value| value.map(<[u8]>::to_vec)).collect();
        self.check(&keys, &values, true);
    }
}

#[test]
fn no_client_returns_a_value_of_an_older_table_than_it_has_seen() {
    const SWAPS: u64 = 15;
    let scene = Scene::new();
    SHAPE.bake(1, &scene.db());
    let server = scene.serve(&["--workers", "2"]);
    let is_over = AtomicBool::new(false);
    let (shared, shared_options) = options(200_000);
    let pool_options = PoolOptions {
        connections_max: 3.try_into().unwrap(),
        client: shared_options.clone(),
        ..PoolOptions::default()
    };
    let pool = Pool::connect_with(server.socket(), &pool_options).unwrap();
    thread::scope(|scope| {
        let _stop = StopOnDrop(&is_over);
        let reader = |seed: u64| Reader { random: Random(seed), newest: 0 };
        let mut readers = Vec::new();
        for seed in 1..=2 {
            let (server, is_over, options) = (&server, &is_over, shared_options.clone());
            readers.push(scope.spawn(move || {
                let (mut reader, mut client) = (reader(seed), Client::connect_with(server.socket(), &options).unwrap());
                while !is_over.load(Ordering::Relaxed) {
                    reader.read(&mut client);
                }
                eventually("the client finds the last table", || {
                    reader.read(&mut client);
                    reader.newest == SWAPS
                });
            }));
        }
        {
            let (server, is_over) = (&server, &is_over);
            readers.push(scope.spawn(move || {
                let (cache, options) = options(100_000);
                let mut client = <super::both::OnTokio as AnyClient>::connect(server.socket(), &options).unwrap();
                let mut reader = reader(3);
                while !is_over.load(Ordering::Relaxed) {
                    reader.read(&mut client);
                    assert!(cache.held_bytes() <= cache.max_bytes());
                }
                assert!(!cache.is_empty());
            }));
        }
        for seed in 4..=7 {
            let (pool, is_over, shared) = (&pool, &is_over, &shared);
            readers.push(scope.spawn(move || {
                let mut random = Random(seed);
                while !is_over.load(Ordering::Relaxed) {
                    // Connections of a pool see a new table at slightly different times.
                    let mut client = pool.get().unwrap();
                    let mut reader = Reader { random: Random(seed * 1000 + random.below(1000) as u64), newest: 0 };
                    (0..5).for_each(|_| reader.read(&mut *client));
                    assert!(shared.held_bytes() <= shared.max_bytes());
                }
            }));
        }
        for generation in 2..=SWAPS {
            swap_to(&scene.db(), &server, generation);
        }
        is_over.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    // Requests for hot keys were answered by the caches.
    assert!(server.number("requests_get") > 0);
}
