//! Sends each request to a `kv_store` that serves the table, over both kinds of socket.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use zero_kv::bake::Keys;

use super::{BYTES, NUMBERS, TYPED, bytes, hex, read, text};
use crate::helpers::frames::read_until_closed;
use crate::helpers::scenes::Scene;
use crate::helpers::servers::Server;
use crate::helpers::waiting::PATIENCE;

#[test]
fn a_server_of_numbers_responds_as_the_vectors_specify() {
    compare(NUMBERS, Keys::U64);
}

#[test]
fn a_server_of_byte_keys_responds_as_the_vectors_specify() {
    compare(BYTES, Keys::BYTES);
}

#[test]
fn a_server_of_a_typed_table_responds_as_the_vectors_specify() {
    let (file, vectors) = read(TYPED);
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("storage.db");
    let csv = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(text(&file, "table"));
    let baked = Command::new(env!("CARGO_BIN_EXE_baker"))
        .args(["--header", "--key", "id", "--types", text(&file, "types"), "-o"])
        .args([&db, &csv])
        .output()
        .unwrap();
    assert!(baked.status.success(), "{}", String::from_utf8_lossy(&baked.stderr));
    let server = Server::start(&db, &folder.path().join("s.sock"));
    for vector in &vectors {
        let stream = server.connect();
        assert_answered(vector, &stream, &stream, |how| stream.shutdown(how));
    }
}

fn compare(file: &str, keys: Keys) {
    let (file, vectors) = read(file);
    let csv = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(text(&file, "table"));
    let scene = Scene::baked(keys, std::fs::read(csv).unwrap());
    let server = scene.serve(&["--tcp", "127.0.0.1:0"]);

    let mut asked = [0, 0];
    for vector in &vectors {
        let over = vector["over"].as_str();
        if over != Some("tcp") {
            let stream = server.connect();
            assert_answered(vector, &stream, &stream, |how| stream.shutdown(how));
            asked[0] += 1;
        }
        if over != Some("unix") {
            let stream = TcpStream::connect(server.tcp()).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            assert_answered(vector, &stream, &stream, |how| stream.shutdown(how));
            asked[1] += 1;
        }
    }
    assert!(asked.iter().all(|asked| *asked > 40), "{asked:?} over each kind of socket");
}

/// Sends a request, and compares all bytes until the connection ends. The server must close the connection only where
/// the vector specifies it.
fn assert_answered(
    vector: &Value,
    mut from: impl Read,
    mut to: impl Write,
    shutdown: impl Fn(Shutdown) -> std::io::Result<()>,
) {
    let name = text(vector, "name");
    to.write_all(&bytes(text(vector, "request"))).unwrap();
    if vector["closes"] != true {
        shutdown(Shutdown::Write).unwrap();
    }
    let found = read_until_closed(&mut from);
    match vector["answer"].as_str() {
        Some(answer) => assert!(found == bytes(answer), "{name}: {} where {answer} was expected", hex(&found)),
        // The text differs between servers.
        None => {
            let len_bytes = u32::try_from(found.len() - 8).unwrap();
            assert_eq!(found[..8], [[0; 4], len_bytes.to_be_bytes()].concat(), "{name}");
            assert!(found[8..].starts_with(b"version "), "{name}: {}", found[8..].escape_ascii());
        }
    }
}
