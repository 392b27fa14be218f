//! What one client gets over one connection.
//!
//! Canonical load: a server in this process with one worker, 100,000 rows, values of
//! 26 bytes, keys drawn at random, seed 1, all of them there. `get_with` asks for one
//! key at a time; the others for 256, and take each value where it was received to
//! (`get_many_with`), into memory of its own (`get_many`), or are told only that it is
//! there (`exists_many`); `get_many_with_on_tokio` is the client on tokio. A sample is
//! 1,000 calls. All answers are checked once before anything is timed.

mod support;

use std::path::PathBuf;
use std::sync::OnceLock;
use std::thread;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use support::{Random, VALUE_LEN_MIN_BYTES, is_test, push_csv_row, push_value, warn_if_slow};
use tempfile::TempDir;
use zero_kv::bake::{self, Options};
use zero_kv::client::{AsyncClient, Client};
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

/// Where a server answers until the process ends.
fn socket() -> PathBuf {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let mut csv = Vec::new();
        (1..=rows()).for_each(|key| push_csv_row(&mut csv, key, VALUE_LEN_MIN_BYTES));
        let db = folder.path().join("storage.db");
        bake::bake_csv(&csv[..], &db, &Options::default(), &mut |_| ()).expect("a bake");
        let config = Config { socket: folder.path().join("s.sock"), ..Config::default() };
        let server = Server::bind(&db, &config).expect("a server");
        thread::spawn(move || server.run(std::future::pending()));
        folder
    });
    folder.path().join("s.sock")
}

fn connect() -> Client {
    Client::connect(socket()).expect("a connection")
}

/// Batches of keys, one after the other.
fn batches() -> impl FnMut() -> &'static [u64] {
    static KEYS: OnceLock<Vec<u64>> = OnceLock::new();
    let keys = KEYS.get_or_init(|| {
        let mut random = Random(1);
        (0..BATCHES * BATCH_KEYS).map(|_| 1 + random.below(rows())).collect()
    });
    let mut batches = keys.chunks(BATCH_KEYS).cycle();
    move || batches.next().expect("a cycle")
}

fn check(key: u64, value: Option<&[u8]>) {
    let mut expected = Vec::new();
    push_value(&mut expected, key, VALUE_LEN_MIN_BYTES);
    assert_eq!(value, Some(&expected[..]), "key {key}");
}

#[divan::bench(sample_count = SAMPLES, sample_size = CALLS)]
fn get_with(bencher: Bencher) {
    let (mut client, keys) = (connect(), batches()());
    keys.iter().for_each(|key| client.get_with(*key, |value| check(*key, value)).expect("an answer"));
    let mut keys = keys.iter().cycle();
    bencher.counter(ItemsCount::new(1_usize)).bench_local(|| {
        client.get_with(*keys.next().expect("a cycle"), |value| value.map(<[u8]>::len)).expect("an answer")
    });
}

#[divan::bench(sample_count = SAMPLES, sample_size = CALLS)]
fn get_many_with(bencher: Bencher) {
    let (mut client, mut batch) = (connect(), batches());
    let keys = batch();
    client.get_many_with(keys, |position, value| check(keys[position], value)).expect("answers");
    bencher.counter(ItemsCount::new(BATCH_KEYS)).bench_local(|| {
        client
            .get_many_with(batch(), |_, value| {
                black_box(value);
            })
            .expect("answers");
    });
}

#[divan::bench(sample_count = SAMPLES, sample_size = CALLS)]
fn get_many_with_on_tokio(bencher: Bencher) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut batch = batches();
    let mut client = runtime.block_on(AsyncClient::connect(socket())).expect("a connection");
    let keys = batch();
    let checked = client.get_many_with(keys, |position, value| check(keys[position], value));
    runtime.block_on(checked).expect("answers");
    bencher.counter(ItemsCount::new(BATCH_KEYS)).bench_local(|| {
        let asked = client.get_many_with(batch(), |_, value| {
            black_box(value);
        });
        runtime.block_on(asked).expect("answers");
    });
}

#[divan::bench(sample_count = SAMPLES, sample_size = CALLS)]
fn get_many(bencher: Bencher) {
    let (mut client, mut batch) = (connect(), batches());
    let keys = batch();
    let values = client.get_many(keys).expect("answers");
    keys.iter().zip(values).for_each(|(key, value)| check(*key, value.as_deref()));
    bencher.counter(ItemsCount::new(BATCH_KEYS)).bench_local(|| client.get_many(batch()).expect("answers"));
}

#[divan::bench(sample_count = SAMPLES, sample_size = CALLS)]
fn exists_many(bencher: Bencher) {
    let (mut client, mut batch) = (connect(), batches());
    assert!(client.exists_many(batch()).expect("answers").into_iter().all(|is_there| is_there));
    bencher.counter(ItemsCount::new(BATCH_KEYS)).bench_local(|| client.exists_many(batch()).expect("answers"));
}
