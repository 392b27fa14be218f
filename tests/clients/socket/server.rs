//! Results of `Client` from a kv_store equal the lookups in its file.

use std::ops::Bound;

use zero_kv::Lookup;
use zero_kv::bake::Keys;
use zero_kv::client::{Client, ClientError, OwnedKey};
use zero_kv::{Key, KeyKind, Store};

use crate::helpers::random::random;
use crate::helpers::scenes::Scene;
use crate::helpers::servers::Server;

/// A table in a file, and a client of a server of the file.
struct StoreAndClient {
    store: Store,
    client: Client,
    _server: Server,
    _scene: Scene,
}

fn serve(keys: Keys, csv: &str) -> StoreAndClient {
    let scene = Scene::baked(keys, csv);
    let server = scene.serve(&[]);
    let (store, client) = (Store::open(scene.db()).unwrap(), server.client());
    StoreAndClient { store, client, _server: server, _scene: scene }
}

fn of_bytes() -> StoreAndClient {
    let rows = (0..3000).map(|i: u64| format!("key/{},{}\n", i.wrapping_mul(0x9e37_79b9) % 100_000, "v".repeat(90)));
    serve(Keys::BYTES, &rows.collect::<String>())
}

fn of_numbers() -> StoreAndClient {
    let rows = (0..3000).map(|i: u64| format!("{},{}\n", i * 7, "v".repeat((i % 300) as usize)));
    serve(Keys::U64, &rows.collect::<String>())
}

/// Returns a row as clients do.
fn owned((key, value): (Key<'_>, &[u8])) -> (OwnedKey, Vec<u8>) {
    (key.into(), value.to_vec())
}

#[test]
fn every_lookup_equals_the_lookup_in_the_file() {
    let seed = 0xc11e;
    println!("seed {seed}");
    for StoreAndClient { store, mut client, .. } in [of_bytes(), of_numbers()].into_iter() {
        let mut random = random(seed);
        let kind = store.key_kind();
        assert_eq!(client.key_type().unwrap(), store.key_type());
        let mut key = || match (kind, random() % 23_000) {
            (KeyKind::U64, key) => OwnedKey::U64(key),
            (KeyKind::Bytes, key) => OwnedKey::Bytes(format!("key/{}", key * 5).into_bytes()),
        };
        for _ in 0..300 {
            let (a, b) = (key(), key());
            assert_eq!(client.get(&a).unwrap().as_deref(), store.get(&a).unwrap());
            assert_eq!(client.contains(&a).unwrap(), store.contains(&a).unwrap());
            assert_eq!(client.floor(&a).unwrap(), store.floor(&a).unwrap().map(owned));
            assert_eq!(client.ceiling(&a).unwrap(), store.ceiling(&a).unwrap().map(owned));
            let (a, b) = (a.as_key(), b.as_key());
            assert_eq!(client.count(a..b).unwrap(), store.count(a..b).unwrap() as u64);
            let page = client.last_page(a..=b, 5).unwrap();
            assert!(page.iter().rev().eq(store.range(a..=b).unwrap().map(Result::unwrap).rev().take(5)));
        }
        assert_eq!(client.first().unwrap(), store.first().unwrap().map(owned));
        assert_eq!(client.last().unwrap(), store.last().unwrap().map(owned));
        assert_eq!(client.count(..).unwrap(), store.len() as u64);
    }
}

#[test]
fn rows_equal_the_rows_of_the_file_from_either_end() {
    for StoreAndClient { store, mut client, .. } in [of_bytes(), of_numbers()].into_iter() {
        for page_rows in [0, 1, 7, 1000] {
            let rows: Vec<_> = client.iter().page_rows(page_rows).map(Result::unwrap).collect();
            assert!(rows.iter().cloned().eq(store.iter().map(Result::unwrap).map(owned)), "pages of {page_rows}");
            let rows: Vec<_> = client.iter().page_rows(page_rows).rev().map(Result::unwrap).collect();
            assert!(
                rows.into_iter().eq(store.iter().map(Result::unwrap).rev().map(owned)),
                "pages of {page_rows}, backward"
            );
            // From both ends in turn, until they meet.
            let (mut here, mut there) = (client.iter().page_rows(page_rows), store.iter().map(Result::unwrap));
            let mut random = random(9);
            loop {
                let (found, expected) = match random().is_multiple_of(2) {
                    true => (here.next(), there.next()),
                    false => (here.next_back(), there.next_back()),
                };
                assert_eq!(found.map(Result::unwrap), expected.map(owned));
                if expected.is_none() {
                    break;
                }
            }
        }
    }
}

#[test]
fn a_prefix_selects_the_keys_that_start_with_it() {
    let mut served = of_bytes();
    let StoreAndClient { store, client, .. } = &mut served;
    for prefix in [&b""[..], b"k", b"key/1", b"key/123", b"key/99999", b"key/\xff", b"l", b"\xff\xff"] {
        let rows: Vec<_> = client.prefix(prefix).unwrap().map(Result::unwrap).collect();
        assert_eq!(client.count_prefix(prefix).unwrap(), rows.len() as u64);
        assert!(
            rows.into_iter().eq(store.prefix(prefix).unwrap().map(Result::unwrap).map(owned)),
            "{}",
            prefix.escape_ascii()
        );
    }
}

#[test]
fn a_range_that_ends_before_its_start_has_no_rows() {
    let mut served = of_numbers();
    let range = (Bound::Included(500_u64), Bound::Excluded(20_u64));
    assert_eq!(served.client.count(range).unwrap(), 0);
    assert!(served.client.range(range).unwrap().next().is_none());
    assert!(served.client.range(range).unwrap().next_back().is_none());
    let page = served.client.first_page(range, 0).unwrap();
    assert!(page.is_empty() && page.rest().is_none());
}

#[test]
fn a_key_of_the_other_kind_is_an_error_and_the_connection_remains_usable() {
    for (StoreAndClient { mut client, .. }, right, wrong) in
        [(of_numbers(), Key::from(7), Key::from("seven")), (of_bytes(), Key::from("key/0"), Key::from(7))]
    {
        let refused = |result: Result<(), ClientError>| matches!(result, Err(ClientError::Server { .. }));
        assert!(refused(client.get(wrong).map(drop)));
        assert!(refused(client.contains(wrong).map(drop)));
        assert!(refused(client.floor(wrong).map(drop)));
        assert!(refused(client.ceiling(wrong).map(drop)));
        assert!(refused(client.count(wrong..).map(drop)));
        assert!(refused(client.first_page(..=wrong, 0).map(drop)));
        assert!(refused(client.range(wrong..).unwrap().next().unwrap().map(drop)));
        assert!(client.get(right).unwrap().is_some());
    }
}
