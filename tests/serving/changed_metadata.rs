//! A file whose names or permissions change, without a lease: the next lookup verifies the file again, and copies the pages
//! that it reads.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::helpers::redis_server::command;
use crate::helpers::servers::{Server, kv_store};
use crate::helpers::tables::Table;
use crate::helpers::typed_tables::TypedTable;

/// Returns the replies to Redis commands, which are separated by semicolons, and have only arguments without spaces.
fn reply(client: &mut UnixStream, text: &str) -> String {
    let words = |text: &str| command(&text.split(' ').map(str::as_bytes).collect::<Vec<_>>());
    client.write_all(&text.split("; ").flat_map(words).collect::<Vec<_>>()).unwrap();
    // Sent later, so that the command is alone in a pass.
    client.write_all(&command(&[b"PING"])).unwrap();
    let (mut reply, mut part) = (Vec::new(), [0; 4096]);
    while !reply.ends_with(b"+PONG\r\n") {
        let len_bytes = client.read(&mut part).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!(len_bytes > 0, "{text}: the server has closed the connection");
        reply.extend_from_slice(&part[..len_bytes]);
    }
    String::from_utf8_lossy(&reply).into_owned()
}

/// Asserts that the reply to each command is the same immediately after a change of the permissions.
fn assert_replies_stay(server: &Server, db: &Path, commands: &[impl AsRef<str>]) {
    let mut client = server.connect();
    for text in commands {
        for key in [1, 700, 1999] {
            let text = text.as_ref().replace("%", &key.to_string());
            let before = reply(&mut client, &text);
            assert!(!before.contains("ERR"), "{text}: {before}");
            for mode in [0o600, 0o644] {
                fs::set_permissions(db, Permissions::from_mode(mode)).unwrap();
                assert_eq!(reply(&mut client, &text), before, "{text}");
            }
        }
    }
    assert_eq!(server.logged("was changed in place"), 0);
}

#[test]
fn commands_are_answered_after_a_change_of_the_permissions() {
    let table = Table::new((0..2000).map(|key| (key, format!("{key};").repeat(40).into_bytes())));
    let server = table.serve_with(&["--no-lease"]);
    // Keys in different blocks.
    let keys = (0..2000).step_by(33).map(|key| key.to_string()).collect::<Vec<_>>().join(" ");
    let (get, mget) = (format!("GET {}", keys.replace(' ', "; GET ")), format!("MGET {keys}"));
    let commands = [
        &get,
        &mget,
        &format!("MULTI; {mget}; {get}; EXEC"),
        "GET %",
        "MGET % 3 1500",
        "EXISTS %",
        "STRLEN %",
        "GETRANGE % 0 5",
        "ZKV.FLOOR %",
        "ZKV.CEILING %",
        "ZKV.RANGE % 1999",
        "ZKV.COUNT % 1999",
        "SCAN 0",
        "KEYS 1*",
    ];
    assert_replies_stay(&server, &table.db(), &commands);
    // The native protocol.
    let mut client = server.client();
    for key in [1_u64, 700, 1999] {
        fs::set_permissions(table.db(), Permissions::from_mode(0o600)).unwrap();
        assert_eq!(client.get(key).unwrap().as_ref(), table.model.get(&key));
        fs::set_permissions(table.db(), Permissions::from_mode(0o644)).unwrap();
        assert_eq!(client.floor(key).unwrap().map(|(_, value)| value).as_ref(), table.model.get(&key));
    }
}

/// No block was verified before the change.
#[test]
fn the_first_command_is_answered_after_a_change_of_the_permissions() {
    let table = Table::new((0..2000).map(|key| (key, format!("{key};").repeat(40).into_bytes())));
    let texts = ["GET 7", "MGET 7 8 900 1500", "MULTI; MGET 7 8; ZKV.FLOOR 5; EXEC", "ZKV.RANGE 7 20", "EXISTS 7 900"];
    for text in texts.into_iter().cycle().take(60) {
        let server = table.serve_with(&["--no-lease"]);
        let mut client = server.connect();
        fs::set_permissions(table.db(), Permissions::from_mode(0o600)).unwrap();
        let first = reply(&mut client, text);
        assert_eq!(reply(&mut client, text), first);
        assert!(!first.contains("ERR"), "{text}: {first}");
    }
}

#[test]
fn commands_of_typed_tables_are_answered_after_a_change_of_the_permissions() {
    let table = TypedTable::new("name:text price:f32? tags:list(u16)?", 0..2000_u64, 1);
    let mut command = kv_store(&table.db(), &table.socket());
    command.arg("--no-lease");
    let server = Server::of(command, &table.socket());
    let commands = ["HGET % name", "HMGET % price name", "HGETALL %", "HLEN %", "GET %", "ZKV.FLOOR %"];
    assert_replies_stay(&server, &table.db(), &commands);
}
