//! Lookups return the rows of a model and of the server.

use std::collections::BTreeMap;

use zero_kv::Lookup;
use zero_kv::bake::Keys;
use zero_kv::client::{Client, ClientError, OwnedKey};
use zero_kv::{KeyKind, LookupError};

use super::{SHAPE, copy_options, direct};
use crate::helpers::random::random;
use crate::helpers::scenes::Scene;
use crate::helpers::waiting::eventually;

const MEMORIES: [&str; 2] = ["map", "sealed"];

#[test]
fn every_lookup_of_numbers_equals_the_servers_response() {
    for memory in MEMORIES {
        let (_scene, served, direct) = direct(&["--memory", memory]);
        let mut client = served.client();
        assert_eq!(served.info().get("direct"), Some("yes"));
        let seed = 7;
        println!("seed {seed}");
        let mut random = random(seed);
        for _ in 0..2000 {
            let key = random() % (SHAPE.rows + 10);
            let expected = SHAPE.value(1, key);
            assert_eq!(direct.get(key).unwrap(), expected);
            assert_eq!(direct.get_with(key, |value| value.map(<[u8]>::len)).unwrap(), expected.as_ref().map(Vec::len));
            assert_eq!(direct.contains(key).unwrap(), expected.is_some());
            assert_eq!(direct.floor(key).unwrap(), client.floor(key).unwrap());
            assert_eq!(direct.ceiling(key).unwrap(), client.ceiling(key).unwrap());
        }
        let keys: Vec<u64> = (0..1000).map(|_| random() % (SHAPE.rows + 10)).collect();
        let mut seen = 0;
        direct
            .get_many_with(&keys, |at, value| {
                assert_eq!((at, value), (seen, SHAPE.value(1, keys[at]).as_deref()));
                seen += 1;
            })
            .unwrap();
        assert_eq!(seen, keys.len());
        let table = direct.snapshot();
        assert_eq!((table.len() as u64, table.key_kind(), direct.generation()), (SHAPE.rows, KeyKind::U64, 1));
        let rows: Vec<_> = table.range(100_u64..200).unwrap().map(Result::unwrap).collect();
        let expected: Vec<_> = client.range(100_u64..200).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows, expected);
        assert_eq!(
            direct.get("a key of bytes"),
            Err(LookupError::KeyKind { held: KeyKind::U64, asked: KeyKind::Bytes })
        );
    }
}

#[test]
fn every_lookup_of_bytes_equals_the_model() {
    let model: BTreeMap<String, String> = (0..3000).map(|i| (format!("key/{}", i * 7), format!("value {i}"))).collect();
    let csv: String = model.iter().map(|(key, value)| format!("{key},{value}\n")).collect();
    let scene = Scene::baked(Keys::BYTES, csv);
    for memory in MEMORIES {
        let served = scene.serve(&["--memory", memory]);
        let direct = super::open(served.socket());
        let asked: Vec<String> = (0..500).map(|i| format!("key/{}", i * 43)).collect();
        let keys: Vec<&str> = asked.iter().map(String::as_str).collect();
        let expected: Vec<_> = asked.iter().map(|key| model.get(key).map(|value| value.clone().into_bytes())).collect();
        assert_eq!(direct.get_many(&keys).unwrap(), expected);
        for key in keys {
            let floor = model.range(..=key.to_owned()).next_back();
            let expected = floor.map(|(key, value)| (OwnedKey::Bytes(key.clone().into()), value.clone().into_bytes()));
            assert_eq!(direct.floor(key).unwrap(), expected);
        }
    }
}

#[test]
fn a_private_copy_has_the_rows_of_the_passed_table() {
    for memory in MEMORIES {
        let (_scene, served, _direct) = direct(&["--memory", memory]);
        let direct = Client::connect(served.socket()).unwrap().direct_with(&copy_options()).unwrap();
        super::assert_all(&direct, 1);
        assert!(direct.snapshot().as_private().is_some());
    }
}

#[test]
fn a_server_that_does_not_pass_its_file_reports_the_reason() {
    for options in [&["--no-direct"][..], &["--memory", "copy"]] {
        let scene = Scene::new();
        SHAPE.bake(1, &scene.db());
        let served = scene.serve(options);
        let mut client = served.client();
        let Err(error @ ClientError::Direct { .. }) = client.direct() else { panic!("the server passed its file") };
        let text = error.to_string();
        assert!(text.contains("direct mode is off") && text.contains("choose map or sealed"), "{text}");
        assert_eq!(served.info().get("direct"), Some("no"));
        // The connection remains usable.
        assert_eq!(client.get(7).unwrap(), SHAPE.value(1, 7));
    }
}

#[test]
fn a_dropped_direct_client_leaves_no_descriptor_or_thread() {
    let (_scene, served, _direct) = direct(&["--memory", "sealed"]);
    // Counts the threads of all direct clients in this process, which other tests also start and end.
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.filter(|name| name.starts_with("zero-kv-direct")).count()
    };
    let before = served.descriptors();
    for _ in 0..50 {
        let direct = super::open(served.socket());
        let other = direct.clone();
        drop(direct);
        assert_eq!(other.get(7).unwrap(), SHAPE.value(1, 7));
    }
    eventually("the server has as few descriptors open as before", || served.descriptors() <= before);
    eventually("the threads have ended", || threads() < 30);
}
