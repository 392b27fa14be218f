//! Lookups on servers that respond correctly or not.

use std::os::unix::net::UnixListener;
use std::process::Stdio;

use super::*;
use crate::helpers::scripted_server::{
    BYTE_KEYS, ERROR, EXISTS, NO_SCHEMA, NOT_FOUND, U64_KEYS, found, page, response_header,
};
use crate::helpers::servers::{Server, kv_store};
use crate::helpers::tables::Table;

#[test]
fn values_from_a_server_are_written_unchanged() {
    for value in [&b"seven"[..], b"", BINARY, &[b'x'; 100_000]] {
        let peer = ScriptedServer::answering(&[U64_KEYS, NO_SCHEMA, &found(value), U64_KEYS]);
        assert_answer(&ask_peer(&peer, &["get", "258"]), 0, value);
        assert_eq!(peer.request()[..4], [0, 0, 0, 17], "the first request is for the type of the keys");
        assert_eq!(peer.request()[..4], [0, 0, 0, 12], "the second request is for the schema");
        assert_eq!(peer.request(), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(peer.request()[..4], [0, 0, 0, 17], "the type of the keys has not changed");
    }
    let peer = ScriptedServer::answering(&[U64_KEYS, EXISTS, U64_KEYS]);
    assert_answer(&ask_peer(&peer, &["exists", "258"]), 0, b"");
    peer.request();
    assert_eq!(peer.request(), [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
    // In a table of byte keys, a key of digits is also a byte key.
    // A server of a version without schemas rejects the request for the schema.
    let peer = ScriptedServer::answering(&[BYTE_KEYS, ERROR, &found(b"bytes"), BYTE_KEYS]);
    assert_answer(&ask_peer(&peer, &["get", "258"]), 0, b"bytes");
    peer.request();
    peer.request();
    assert_eq!(peer.request(), *b"\0\x01\0\0\0\0\0\x03258\0\0\0\0\0");
    assert_answer(&ask_peer(&ScriptedServer::answering(&[U64_KEYS, NOT_FOUND, U64_KEYS]), &["exists", "7"]), 1, b"");
    for subcommand in ["get", "floor", "ceiling"] {
        let peer = ScriptedServer::answering(&[U64_KEYS, NO_SCHEMA, NOT_FOUND, U64_KEYS]);
        assert_answer(&ask_peer(&peer, &[subcommand, "7"]), 1, b"");
    }
    for subcommand in ["first", "last", "range"] {
        let ask =
            |page: &[u8]| ask_peer(&ScriptedServer::answering(&[U64_KEYS, NO_SCHEMA, page, U64_KEYS]), &[subcommand]);
        assert_answer(&ask(&page::<u64>(&[], 0)), 1, b"");
        assert_answer(&ask(&page(&[(5_u64, "five")], 0)), 0, b"5,five\n");
    }
}

#[test]
fn a_server_can_be_named_by_an_abstract_socket() {
    let table = Table::of_rows(10);
    // The name of the temporary folder is unique.
    let name = format!("@zkv{}", table.folder.path().display());
    let mut command = kv_store(&table.db(), name.as_ref());
    command.arg("--abstract");
    let _server = Server::of(command, name.as_ref());
    let output = zkv().args(["get", "7", "--socket", &name]).output().unwrap();
    assert_answer(&output, 0, &table.model[&7]);
}

fn with_answer<'a>(before: &[&'a [u8]], answer: &'a [u8]) -> Vec<&'a [u8]> {
    [before, &[answer]].concat()
}

#[test]
fn a_wrong_response_is_an_error() {
    for (subcommand, before) in [("get", &[U64_KEYS, NO_SCHEMA][..]), ("exists", &[U64_KEYS])] {
        let ask =
            |answer: &[u8]| ask_peer(&ScriptedServer::answering(&with_answer(before, answer)), &[subcommand, "7"]);
        assert_error(&ask(ERROR), &["peer.sock: ", "responded to key 7 with an error"]);
        assert_error(&ask(&response_header(77, 0)), &["peer.sock: status code 77, where 0 (ok)"]);
        assert_error(&ask(&response_header(1, 5)), &["peer.sock: ", "a value of 5 bytes", "NotFound"]);
        assert_error(&ask(&response_header(0, u32::MAX)), &["peer.sock: ", "announces a value of 4294967295 bytes"]);
        let closed =
            ask_peer(&ScriptedServer::closing_after(&with_answer(before, &NOT_FOUND[..3])), &[subcommand, "7"]);
        assert_error(&closed, &["peer.sock: ", "closed the connection after 3 of 8 bytes of the response's header"]);
        let no_type = ask_peer(&ScriptedServer::answering(&[ERROR]), &[subcommand, "7"]);
        assert_error(&no_type, &["peer.sock: ", "the request for the key type"]);
        // The keys of another type would have been misread.
        let answers = [before, &[NOT_FOUND, BYTE_KEYS]].concat();
        let changed = ask_peer(&ScriptedServer::answering(&answers), &[subcommand, "7"]);
        assert_error(&changed, &["the server replaced its table"]);
    }
    let unordered = page(&[(2_u64, ""), (1, "")], 0);
    assert_error(
        &ask_peer(&ScriptedServer::answering(&[U64_KEYS, NO_SCHEMA, &unordered]), &["range"]),
        &["peer.sock: ", "row 1 is out of key order"],
    );
}

#[test]
fn a_stated_length_allocates_no_memory_before_its_bytes_arrive() {
    let answer = [&response_header(0, 1 << 30)[..], b"seven"].concat();
    let peer = ScriptedServer::closing_after(&[U64_KEYS, NO_SCHEMA, &answer]);
    // The limit of memory is a quarter of the stated length.
    let limited = "ulimit -v 262144 && exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", limited, env!("CARGO_BIN_EXE_zkv"), "get", "7", "--socket"]).arg(peer.socket());
    let output = command.output().unwrap();
    assert_error(&output, &["closed the connection after 5 of 1073741824 bytes of the response's value"]);
}

#[test]
fn a_server_that_is_not_running_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("none.sock");
    let ask = || zkv().args(["get", "7", "--socket"]).arg(&socket).stdin(Stdio::null()).output().unwrap();
    assert_error(&ask(), &["none.sock: cannot connect", "No such file", "is kv_store running"]);
    drop(UnixListener::bind(&socket).unwrap());
    assert!(socket.exists());
    assert_error(&ask(), &["none.sock: cannot connect", "Connection refused", "is kv_store running"]);
}
