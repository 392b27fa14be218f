//! Lookups on servers that respond correctly or not.

use std::os::unix::net::UnixListener;
use std::process::Stdio;

use super::*;
use crate::helpers::scripted_server::{COUNT_7, ERROR, EXISTS, NO_SCHEMA, NOT_FOUND, found, page, response_header};
use crate::helpers::servers::{Server, kv_store};
use crate::helpers::tables::Table;

#[test]
fn values_from_a_server_are_written_unchanged() {
    for value in [&b"seven"[..], b"", BINARY, &[b'x'; 100_000]] {
        let peer = ScriptedServer::answering(&[COUNT_7, NO_SCHEMA, &found(value)]);
        assert_answer(&ask_peer(&peer, &["get", "258"]), 0, value);
        assert_eq!(peer.request()[..4], [0, 1, 0, 5], "the first request is for the kind of keys");
        assert_eq!(peer.request()[..4], [0, 0, 0, 12], "the second request is for the schema");
        assert_eq!(peer.request(), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
    }
    let peer = ScriptedServer::answering(&[COUNT_7, EXISTS]);
    assert_answer(&ask_peer(&peer, &["exists", "258"]), 0, b"");
    peer.request();
    assert_eq!(peer.request(), [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
    // In a table of byte keys, a key of digits is also a byte key.
    // A server of a version without schemas rejects the request for the schema.
    let peer = ScriptedServer::answering(&[ERROR, COUNT_7, ERROR, &found(b"bytes")]);
    assert_answer(&ask_peer(&peer, &["get", "258"]), 0, b"bytes");
    peer.request();
    peer.request();
    peer.request();
    assert_eq!(peer.request(), *b"\0\x01\0\0\0\0\0\x03258\0\0\0\0\0");
    assert_answer(&ask_peer(&ScriptedServer::answering(&[COUNT_7, NOT_FOUND]), &["exists", "7"]), 1, b"");
    for subcommand in ["get", "floor", "ceiling"] {
        let peer = ScriptedServer::answering(&[COUNT_7, NO_SCHEMA, NOT_FOUND]);
        assert_answer(&ask_peer(&peer, &[subcommand, "7"]), 1, b"");
    }
    for subcommand in ["first", "last", "range"] {
        assert_answer(&ask_peer(&ScriptedServer::answering(&[NO_SCHEMA, &page::<u64>(&[], 0)]), &[subcommand]), 1, b"");
        assert_answer(
            &ask_peer(&ScriptedServer::answering(&[NO_SCHEMA, &page(&[(5_u64, "five")], 0)]), &[subcommand]),
            0,
            b"5,five\n",
        );
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
    for (subcommand, before) in [("get", &[COUNT_7, NO_SCHEMA][..]), ("exists", &[COUNT_7])] {
        let ask =
            |answer: &[u8]| ask_peer(&ScriptedServer::answering(&with_answer(before, answer)), &[subcommand, "7"]);
        assert_error(&ask(ERROR), &["peer.sock: ", "responded to key 7 with an error"]);
        assert_error(&ask(&response_header(77, 0)), &["peer.sock: status code 77, where 0 (ok)"]);
        assert_error(&ask(&response_header(1, 5)), &["peer.sock: ", "a value of 5 bytes", "NotFound"]);
        assert_error(&ask(&response_header(0, u32::MAX)), &["peer.sock: ", "announces a value of 4294967295 bytes"]);
        let closed =
            ask_peer(&ScriptedServer::closing_after(&with_answer(before, &NOT_FOUND[..3])), &[subcommand, "7"]);
        assert_error(&closed, &["peer.sock: ", "closed the connection after 3 of 8 bytes of the response's header"]);
        let no_kind = ask_peer(&ScriptedServer::answering(&[ERROR, ERROR]), &[subcommand, "7"]);
        assert_error(&no_kind, &["peer.sock: ", "both kinds of keys with an error"]);
    }
    let unordered = page(&[(2_u64, ""), (1, "")], 0);
    assert_error(
        &ask_peer(&ScriptedServer::answering(&[NO_SCHEMA, &unordered]), &["range"]),
        &["peer.sock: ", "row 1 is out of key order"],
    );
}

#[test]
fn a_stated_length_allocates_no_memory_before_its_bytes_arrive() {
    let answer = [&response_header(0, 1 << 30)[..], b"seven"].concat();
    let peer = ScriptedServer::closing_after(&[COUNT_7, NO_SCHEMA, &answer]);
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
