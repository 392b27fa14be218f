//! Clients of a real server: large batches, and restarts of the server.

use std::sync::atomic::{AtomicU64, Ordering};

use zero_kv::Lookup;
use zero_kv::client::{Options, OwnedKey};
use zero_kv::{Key, Store};

use super::both::{AnyClient, with_both};
use crate::helpers::random::random;
use crate::helpers::repeating::while_threads_repeat;
use crate::helpers::tables::Table;
use crate::helpers::waiting::{PATIENCE, eventually};

with_both!(large_batches_return_the_values_of_the_file_in_order, no_call_fails_when_the_server_is_killed_and_restarted,);

/// The table has the even keys below twice this number.
const ROWS: u64 = 5000;

fn table() -> Table {
    // Some values are short enough for the server to copy, some are not.
    Table::new((0..ROWS).map(|row| {
        let len = if row % 100 == 0 { 20_000 } else { 1 + row % 60 };
        (2 * row, format!("{row:0len$}", len = len as usize).into_bytes())
    }))
}

fn large_batches_return_the_values_of_the_file_in_order<C: AnyClient>() {
    let table = table();
    let _server = table.serve();
    let store = Store::open(table.db()).unwrap();
    let mut client = C::connect(table.socket(), &Options::default()).unwrap();
    let seed = 0xa11;
    println!("seed {seed}");
    let mut random = random(seed);
    for len in [0, 1, 2, 255, 256, 1023, 1024, 1025, 20_000] {
        let keys: Vec<u64> = (0..len).map(|_| random() % (2 * ROWS)).collect();
        let mut asked = 0;
        let visit = |position: usize, value: Option<&[u8]>| {
            assert_eq!(position, asked);
            assert!(value == table.model.get(&keys[position]).map(Vec::as_slice), "key {}", keys[position]);
            asked += 1;
        };
        client.get_many_with(&keys, visit).unwrap();
        assert_eq!(asked, len);
        let are_there = client.contains_many(&keys).unwrap();
        assert!(are_there.into_iter().eq(keys.iter().map(|key| table.model.contains_key(key))));
        let owned = |row: Option<(Key<'_>, &[u8])>| row.map(|(key, value)| (OwnedKey::from(key), value.to_vec()));
        let floors = keys.iter().map(|key| owned(store.floor(*key).unwrap()));
        assert!(client.floor_many(&keys).unwrap().into_iter().eq(floors));
        let ceilings = keys.iter().map(|key| owned(store.ceiling(*key).unwrap()));
        assert!(client.ceiling_many(&keys).unwrap().into_iter().eq(ceilings));
    }
    client.ping().unwrap();
    assert_eq!(client.floor(7).unwrap().unwrap().0, 6);
    assert_eq!(client.count().unwrap(), ROWS);
    let rows = |backward| -> Vec<_> {
        let rows = store.iter().map(Result::unwrap).map(|(key, value)| (OwnedKey::from(key), value.to_vec()));
        if backward { rows.rev().collect() } else { rows.collect() }
    };
    for backward in [false, true] {
        assert!(client.rows(backward).unwrap() == rows(backward));
    }
}

fn no_call_fails_when_the_server_is_killed_and_restarted<C: AnyClient>() {
    let table = table();
    let mut server = table.serve();
    // The number of calls of each client.
    let calls: [AtomicU64; 4] = Default::default();
    let start = |number: usize| {
        let patient = Options { reconnect_timeout: PATIENCE, call_timeout: Some(PATIENCE), ..Options::default() };
        let mut client = C::connect(table.socket(), &patient).unwrap();
        let (mut random, model, calls) = (random(number as u64), &table.model, &calls[number]);
        move || {
            let keys: Vec<u64> = (0..random() % 3000).map(|_| random() % (2 * ROWS)).collect();
            let visit = |position: usize, value: Option<&[u8]>| {
                assert!(value == model.get(&keys[position]).map(Vec::as_slice));
            };
            client.get_many_with(&keys, visit).unwrap();
            let key = random() % (2 * ROWS);
            assert_eq!(client.get_number(key).unwrap().as_ref(), model.get(&key));
            calls.fetch_add(1, Ordering::Relaxed);
        }
    };
    // The server runs until all calls have ended.
    let _server = while_threads_repeat(calls.len(), start, || {
        for _ in 0..5 {
            let before = calls.each_ref().map(|calls| calls.load(Ordering::Relaxed));
            // One call may have succeeded before the restart, but not two.
            eventually("calls of each client have succeeded", || {
                calls.iter().zip(before).all(|(calls, before)| calls.load(Ordering::Relaxed) > before + 1)
            });
            server.kill();
            server = table.serve();
        }
        server
    });
}
