//! A server that replaces its table by one whose keys have another type: no request that was encoded for the old type
//! finds a row, or misses one.

use std::path::PathBuf;

use rustix::process::Signal;
use tempfile::TempDir;
use zero_kv::bake::Keys;
use zero_kv::client::{Client, ClientError, Options, Pool, PoolOptions};
use zero_kv::{Key, KeyType, OwnedKey};

use super::both::{AnyClient, CallResult, with_both};
use crate::helpers::repeating::while_threads_repeat;
use crate::helpers::rows::bake_text;
use crate::helpers::servers::{Server, kv_store};

with_both!(
    keys_of_the_old_type_are_errors_after_a_swap,
    a_restart_with_keys_of_another_type_is_noticed,
    stored_keys_are_looked_up_in_any_table,
);

const KEYS: u64 = 200;

/// A folder with a table whose type of keys changes.
struct Scene {
    folder: TempDir,
}

impl Scene {
    fn new(key_type: &str) -> Scene {
        let scene = Scene { folder: tempfile::tempdir().unwrap() };
        scene.bake(key_type, &scene.db());
        scene
    }

    fn db(&self) -> PathBuf {
        self.folder.path().join("storage.db")
    }

    /// Bakes rows whose values name the type and the text of their keys.
    fn bake(&self, key_type: &str, path: &std::path::Path) {
        let rows: String =
            (0..KEYS).map(|number| text(key_type, number)).map(|key| format!("{key},{key_type} {key}\n")).collect();
        // A stored number that means another key in the other table.
        let extra = if key_type == "i64" { format!("{},wrong\n", i64::MIN + 7) } else { String::new() };
        bake_text(path, Keys::Type(key_type.parse().unwrap()), rows + &extra);
    }

    fn serve(&self) -> Server {
        let socket = self.folder.path().join("s.sock");
        let mut command = kv_store(&self.db(), &socket);
        command.arg("--allow-key-type-change");
        Server::of(command, &socket)
    }

    fn swap_to(&self, key_type: &str, server: &Server) {
        let new = self.folder.path().join("new.db");
        self.bake(key_type, &new);
        let before = server.number("generation");
        std::fs::rename(new, self.db()).unwrap();
        server.signal(Signal::HUP);
        server.wait_for("generation", before + 1);
    }
}

/// Returns the written form of a key.
fn text(key_type: &str, number: u64) -> String {
    match key_type {
        "ip" => format!("10.0.0.{number}"),
        "uuid" => format!("00000000-0000-0000-0000-{number:012x}"),
        _ => number.to_string(),
    }
}

fn key(key_type: KeyType, number: u64) -> OwnedKey {
    key_type.parse(text(&key_type.to_string(), number).as_bytes()).unwrap()
}

fn value(key_type: KeyType, number: u64) -> Vec<u8> {
    format!("{key_type} {}", text(&key_type.to_string(), number)).into_bytes()
}

#[track_caller]
fn assert_changed<T: std::fmt::Debug>(result: CallResult<T>) {
    match result {
        Err(ClientError::KeyTypeChanged { .. }) => {}
        other => panic!("an error for the type of the keys was expected, not {other:?}"),
    }
}

fn keys_of_the_old_type_are_errors_after_a_swap<C: AnyClient>() {
    let scene = Scene::new("u64");
    let server = scene.serve();
    let [mut client, mut other] = [(); 2].map(|()| C::connect(server.socket(), &Options::default()).unwrap());
    assert_eq!(client.key_type().unwrap(), KeyType::U64);
    other.expect_key_type(KeyType::U64);
    for client in [&mut client, &mut other] {
        assert_eq!(client.get_number(7).unwrap(), Some(value(KeyType::U64, 7)));
    }
    scene.swap_to("i64", &server);
    let before = server.number("hits") + server.number("misses");
    for client in [&mut client, &mut other] {
        assert_changed(client.get_number(7));
        assert_changed(client.get_many_with(&[7, 1 << 40], |_, value| panic!("{value:?}")));
        assert_changed(client.contains_many(&[7, 1 << 40]));
        assert_changed(client.floor(7));
        assert_changed(client.ceiling_many(&[7]));
        assert_changed(client.get_rows_or_values(&[7]));
        assert_changed(client.call_with_schema(&[zero_kv::client::request::Floor::new(7).unwrap()]));
        assert_changed(client.rows(false));
        assert_changed(client.count());
        // Requests without keys, and the connection, remain usable.
        client.ping().unwrap();
        assert_eq!(client.schema().unwrap(), None);
    }
    assert_eq!(server.number("hits") + server.number("misses"), before, "no key was looked up");
    let key_type = client.key_type().unwrap();
    assert_eq!(key_type.to_string(), "i64");
    let Key::U64(stored) = key(key_type, 7).as_key() else { panic!("a number") };
    assert_eq!(client.get_number(stored).unwrap(), Some(value(key_type, 7)));
    // The other client still expects the old type.
    assert_changed(other.get_number(7));
    // So it does for keys of 16 bytes.
    for (old, new) in [("ip", "uuid"), ("uuid", "ip")] {
        scene.swap_to(old, &server);
        let key_type = client.key_type().unwrap();
        assert_eq!(client.get(key(key_type, 9).as_key().as_bytes().unwrap()).unwrap(), Some(value(key_type, 9)));
        scene.swap_to(new, &server);
        assert_changed(client.get(key(key_type, 9).as_key().as_bytes().unwrap()));
    }
}

fn a_restart_with_keys_of_another_type_is_noticed<C: AnyClient>() {
    let scene = Scene::new("u64");
    let mut server = scene.serve();
    let mut client = C::connect(server.socket(), &Options::default()).unwrap();
    assert_eq!(client.key_type().unwrap(), KeyType::U64);
    for (key_type, is_same) in [("u64", true), ("i64", false)] {
        scene.bake(key_type, &scene.db());
        server.kill();
        drop(server);
        server = scene.serve();
        match is_same {
            true => assert_eq!(client.get_number(7).unwrap(), Some(value(KeyType::U64, 7))),
            false => assert_changed(client.get_number(7)),
        }
    }
    assert_eq!(client.key_type().unwrap().to_string(), "i64");
}

fn stored_keys_are_looked_up_in_any_table<C: AnyClient>() {
    let scene = Scene::new("u64");
    let server = scene.serve();
    let mut client = C::connect(server.socket(), &Options::default()).unwrap();
    assert_eq!(client.get_number(7).unwrap(), Some(value(KeyType::U64, 7)));
    scene.swap_to("i64", &server);
    assert_eq!(client.get_number(7).unwrap(), Some(b"wrong".to_vec()));
}

#[test]
fn no_client_of_a_pool_misses_a_key_while_the_type_changes() {
    let scene = Scene::new("u64");
    let server = scene.serve();
    let options = PoolOptions { connections_max: 3.try_into().unwrap(), ..PoolOptions::default() };
    let pool = Pool::connect_with(server.socket(), &options).unwrap();
    // Each thread uses the type that it has requested last, on whatever connection the pool lends it.
    let start = |thread: usize| {
        let (pool, mut number) = (&pool, thread as u64);
        let mut key_type = pool.get().unwrap().key_type().unwrap();
        move || {
            number = (number + 1) % KEYS;
            let mut client = pool.get().unwrap();
            client.expect_key_type(key_type);
            let keys: Vec<OwnedKey> = (0..4).map(|at| key(key_type, (number + at) % KEYS)).collect();
            let keys: Vec<Key<'_>> = keys.iter().map(OwnedKey::as_key).collect();
            match client.get_many(&keys) {
                Ok(values) => {
                    let expected = (0..4).map(|at| Some(value(key_type, (number + at) % KEYS)));
                    assert!(values.iter().cloned().eq(expected), "{key_type}: {values:?}");
                }
                Err(ClientError::KeyTypeChanged { .. }) => key_type = client.key_type().unwrap(),
                Err(error) => panic!("{error}"),
            }
        }
    };
    while_threads_repeat(5, start, || {
        for key_type in ["i64", "ip", "uuid", "i64", "u64", "uuid", "ip", "u64"] {
            scene.swap_to(key_type, &server);
        }
    });
}

#[test]
fn a_borrower_of_a_pool_does_not_inherit_an_expected_type() {
    let scene = Scene::new("u64");
    let server = scene.serve();
    let options = PoolOptions { connections_max: 1.try_into().unwrap(), ..PoolOptions::default() };
    let pool = Pool::connect_with(server.socket(), &options).unwrap();
    assert_eq!(pool.get().unwrap().key_type().unwrap(), KeyType::U64);
    scene.swap_to("i64", &server);
    assert_eq!(pool.get().unwrap().get(7).unwrap(), Some(b"wrong".to_vec()), "the stored number 7");
}

#[test]
fn a_snapshot_of_direct_mode_has_its_type() {
    let scene = Scene::new("u64");
    let server = scene.serve();
    let direct = Client::connect(server.socket()).unwrap().direct().unwrap();
    let table = direct.snapshot();
    scene.swap_to("i64", &server);
    direct.refresh().unwrap();
    use zero_kv::Lookup;
    for (table, key_type) in [(table, "u64"), (direct.snapshot(), "i64")] {
        assert_eq!(table.key_type().to_string(), key_type);
        let found = table.get(&key(table.key_type(), 7)).unwrap();
        assert_eq!(found, Some(value(table.key_type(), 7)));
    }
}
