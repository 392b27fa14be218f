//! Requests of one client over one connection.
//!
//! Canonical load: a server in this process with one worker, 100,000 rows, values of 26 bytes, random keys of the
//! table, seed 1. `get_with` requests one key per call; the other benches request 256 keys per call. `get_many_with`
//! borrows each value from the receive buffer, `get_many` copies each value into a vector, and `contains_many` gets no
//! values. `get_many_with_on_tokio` uses the client on tokio. The benches whose names end in `cached` use a client with a
//! cache that has the values of all requested keys. A sample is 1,000 calls. The responses to one batch are
//! checked before each measurement.

mod support;

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::thread;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use support::{VALUE_LEN_MIN_BYTES, is_test, push_csv_row, push_value, warn_if_slow};
use tempfile::TempDir;
use zero_kv::bake::{self, Options};
use zero_kv::client::{AsyncClient, Cache, Client, Options as ClientOptions};
use zero_kv::server::{Config, Server};

const BATCH_KEYS: usize = 256;
const BATCHES: usize = 512;
const SAMPLES: u32 = 20;
const CALLS: u32 = 1_000;

fn main() {
    warn_if_slow();
    divan::main();
}

fn rows() -> u64 {
    if is_test() { 1_000 } else { 100_000 }
}

/// Returns the socket of the server. The first call starts the server.
fn socket() -> PathBuf {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().expect("temporary folder");
        let mut csv = Vec::new();
        (1..=rows()).for_each(|key| push_csv_row(&mut csv, key, VALUE_LEN_MIN_BYTES));
        let db = folder.path().join("storage.db");
        bake::bake_csv(&csv[..], &db, &Options::default()).expect("bake");
        let config = Config { socket: folder.path().join("s.sock"), workers: NonZero::new(1), ..Config::default() };
        let server = Server::bind(&db, &config).expect("bind");
        thread::spawn(move || server.run(std::future::pending()));
        folder
    });
    folder.path().join("s.sock")
}

fn connect() -> Client {
    Client::connect(socket()).expect("connect")
}

/// Returns options with a cache that has room for all rows.
fn with_cache() -> ClientOptions {
    ClientOptions { cache: Some(Cache::new(64 << 20)), ..ClientOptions::default() }
}

/// Returns a client whose cache has all values that the benches request.
fn connect_cached() -> Client {
    let mut client = Client::connect_with(socket(), &with_cache()).expect("connect");
    let mut batch = batches();
    for _ in 0..BATCHES {
        let keys = batch();
        client.get_many_with(keys, |position, value| check(keys[position], value)).expect("responses");
    }
    client
}

/// Returns a function that returns the next batch of keys on each call.
fn batches() -> impl FnMut() -> &'static [u64] {
    static KEYS: OnceLock<Vec<u64>> = OnceLock::new();
    let keys = KEYS.get_or_init(|| {
        let mut random = SmallRng::seed_from_u64(1);
        (0..BATCHES * BATCH_KEYS).map(|_| 1 + random.random_range(0..rows())).collect()
    });
    let mut batches = keys.chunks(BATCH_KEYS).cycle();
    move || batches.next().expect("endless iterator")
}

fn check(key: u64, value: Option<&[u8]>) {
    let mut expected = Vec::new();
    push_value(&mut expected, key, VALUE_LEN_MIN_BYTES);
    assert_eq!(value, Some(&expected[..]), "key {key}");
}

#[divan::bench(sample_count = SAMPLES, sample_size = CALLS)]
fn get_with(bencher: Bencher) {
    let (mut client, keys) = (connect(), batches()());
    keys.iter().for_each(|key| client.get_with(*key, |value| check(*key, value)).expect("response"));
    let mut keys = keys.iter().cycle();
    bencher.counter(ItemsCount::new(1_usize)).bench_local(|| {
        client.get_with(*keys.next().expect("endless iterator"), |value| value.map(<[u8]>::len)).expect("response")
    });
}

#[divan::bench(sample_count = SAMPLES, sample_size = CALLS)]
fn get_with_cached(bencher: Bencher) {
    let (mut client, keys) = (connect_cached(), batches()());
    keys.iter().for_each(|key| client.get_with(*key, |value| check(*key, value)).expect("response"));
    let mut keys = keys.iter().cycle();
    bencher.counter(ItemsCount::new(1_usize)).bench_local(|| {
        client.get_with(*keys.next().expect("endless iterator"), |value| value.map(<[u8]>::len)).expect("response")
    });
}

#[divan::bench(sample_count = SAMPLES, sample_size = CALLS)]
fn get_many_with_cached(bencher: Bencher) {
    let (mut client, mut batch) = (connect_cached(), batches());
    bencher.counter(ItemsCount::new(BATCH_KEYS)).bench_local(|| {
        client
            .get_many_with(batch(), |_, value| {
                black_box(value);
            })
            .expect("responses");
    });
}

#[divan::bench(sample_count = SAMPLES, sample_size = CALLS)]
fn get_many_with(bencher: Bencher) {
    let (mut client, mut batch) = (connect(), batches());
    let keys = batch();
    client.get_many_with(keys, |position, value| check(keys[position], value)).expect("responses");
    bencher.counter(ItemsCount::new(BATCH_KEYS)).bench_local(|| {
        client
            .get_many_with(batch(), |_, value| {
                black_box(value);
            })
            .expect("responses");
    });
}

#[divan::bench(sample_count = SAMPLES, sample_size = CALLS)]
fn get_many_with_on_tokio(bencher: Bencher) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    let mut batch = batches();
    let mut client = runtime.block_on(AsyncClient::connect(socket())).expect("connect");
    let keys = batch();
    let checked = client.get_many_with(keys, |position, value| check(keys[position], value));
    runtime.block_on(checked).expect("responses");
    bencher.counter(ItemsCount::new(BATCH_KEYS)).bench_local(|| {
        let call = client.get_many_with(batch(), |_, value| {
            black_box(value);
        });
        runtime.block_on(call).expect("responses");
    });
}

#[divan::bench(sample_count = SAMPLES, sample_size = CALLS)]
fn get_many(bencher: Bencher) {
    let (mut client, mut batch) = (connect(), batches());
    let keys = batch();
    let values = client.get_many(keys).expect("responses");
    keys.iter().zip(values).for_each(|(key, value)| check(*key, value.as_deref()));
    bencher.counter(ItemsCount::new(BATCH_KEYS)).bench_local(|| client.get_many(batch()).expect("responses"));
}

#[divan::bench(sample_count = SAMPLES, sample_size = CALLS)]
fn contains_many(bencher: Bencher) {
    let (mut client, mut batch) = (connect(), batches());
    assert!(client.contains_many(batch()).expect("responses").into_iter().all(|is_found| is_found));
    bencher.counter(ItemsCount::new(BATCH_KEYS)).bench_local(|| client.contains_many(batch()).expect("responses"));
}
