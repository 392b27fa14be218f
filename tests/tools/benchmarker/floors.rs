//! Floors, with `kv_store` as the server.

use std::path::PathBuf;
use std::process::Output;

use super::test_server::*;
use crate::helpers::rows::{TestKey, bake_to};
use crate::helpers::servers::Server;

/// Bakes one table for the benchmarker, and serves another.
struct Floors {
    folder: tempfile::TempDir,
    _server: Server,
    /// Only its defaults for the benchmarker's arguments are used.
    unused: TestServer,
}

impl Floors {
    fn new<K: TestKey>(rows: &[(K, Vec<u8>)], served: &[(K, Vec<u8>)]) -> Floors {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        bake_to(&path("storage.db"), rows);
        bake_to(&path("served.db"), served);
        let server = Server::start(&path("served.db"), &path("s.sock"));
        Floors { _server: server, unused: TestServer::new(Rows::new(), correct_response), folder }
    }

    fn run(&self, args: &[&str]) -> Output {
        let [db, socket]: [PathBuf; 2] = ["storage.db", "s.sock"].map(|name| self.folder.path().join(name));
        let place = ["--db", db.to_str().unwrap(), "--socket", socket.to_str().unwrap(), "--op=floor", "--json"];
        self.unused.run(&[&place[..], args].concat())
    }
}

fn number_rows() -> Vec<(u64, Vec<u8>)> {
    (1..=500).map(|key| (key * 10, vec![b'v'; key as usize % 40])).collect()
}

/// Returns rows whose keys and values have many lengths, and therefore many lengths of padding.
fn byte_rows() -> Vec<(Vec<u8>, Vec<u8>)> {
    (1..=500_usize).map(|row| (format!("{row:0width$}", width = 3 + row % 20).into(), vec![b'v'; row % 37])).collect()
}

#[track_caller]
fn assert_all_are_verified(floors: &Floors) {
    for (ratio, protocol) in ["0", "0.5", "1"].into_iter().flat_map(|ratio| [(ratio, "native"), (ratio, "resp")]) {
        let output = floors.run(&["--verify", "--miss-ratio", ratio, "--protocol", protocol]);
        assert_good(&output);
        let json = stdout(&output);
        let (requests, hits, misses) = (number(&json, "requests"), number(&json, "hits"), number(&json, "misses"));
        assert!(requests >= 64.0 && hits > 0.0 && hits + misses == requests, "{json}");
        // Only the absent keys below the first key have no floor.
        assert!(ratio != "0" || misses == 0.0, "{json}");
    }
}

#[test]
fn floors_of_present_and_absent_keys_are_verified() {
    assert_all_are_verified(&Floors::new(&number_rows(), &number_rows()));
    assert_all_are_verified(&Floors::new(&byte_rows(), &byte_rows()));
}

#[test]
fn with_verification_a_wrong_value_or_key_is_detected() {
    let mut value_differs = number_rows();
    value_differs[100].1[0] ^= 1;
    let mut key_differs = number_rows();
    key_differs[100].0 -= 1;
    let mut byte_value_differs = byte_rows();
    byte_value_differs[100].1[0] ^= 1;
    let wrong = [
        Floors::new(&number_rows(), &value_differs),
        Floors::new(&number_rows(), &key_differs),
        Floors::new(&byte_rows(), &byte_value_differs),
    ];
    for floors in wrong {
        for protocol in ["--protocol=native", "--protocol=resp"] {
            // Each pipeline requests every key once.
            let every_key = ["--distribution=sequential", "--pipeline=500", protocol];
            let output = floors.run(&[&every_key[..], &["--verify"]].concat());
            assert_bad(&output, "the value differs from the file's");
            assert_good(&floors.run(&every_key));
        }
    }
}

#[test]
fn a_wrong_floor_of_an_absent_key_is_detected() {
    // Many of the absent keys near the only key are below it.
    let only_row = (1 << 63, b"value".to_vec());
    let floors = Floors::new(std::slice::from_ref(&only_row), &[(0, Vec::new()), only_row.clone()]);
    assert_good(&floors.run(&[]));
    for protocol in ["--protocol=native", "--protocol=resp"] {
        assert_bad(&floors.run(&["--miss-ratio=1", protocol]), "expected NotFound, got Ok");
    }
}

#[test]
fn the_ceiling_of_floors_has_responses_of_the_same_mean_length() {
    let floors = Floors::new(&number_rows(), &number_rows());
    let output = floors.run(&["--ceiling", "--seconds=0.3"]);
    assert_good(&output);
    assert!(stdout(&output).contains("ceiling"), "{}", stdout(&output));
}
