//! Logins and permissions in the Redis protocol.

use std::io::Write;
use std::net::TcpStream;

use zero_kv::bake::Keys;

use super::*;
use crate::helpers::frames::{answer, expect, request};
use crate::helpers::reference_server::{EXISTS, GET};
use crate::helpers::rows::bake_text;
use crate::helpers::servers::{Server, kv_store};
use crate::helpers::tables::answer_to_get;

#[test]
fn connections_to_the_unix_socket_have_all_permissions_until_they_log_in() {
    let scene = Scene::new("user default off\nuser a on nopass ~1* +@read +acl|whoami");
    let mut unix = scene.server.connect();
    assert_eq!(ask(&mut unix, &["GET", "7"]), "$22");
    expect(&mut unix, b"value_content_at_key_7\r\n");
    assert_eq!(ask(&mut unix, &["DBSIZE"]), ":2000");
    assert_eq!(ask(&mut unix, &["ACL", "WHOAMI"]), "$11");
    expect(&mut unix, b"(superuser)\r\n");
    assert_eq!(ask(&mut unix, &["AUTH", "a", "any"]), "+OK");
    assert!(ask(&mut unix, &["GET", "7"]).starts_with("-NOPERM"));
    assert!(ask(&mut unix, &["DBSIZE"]).starts_with("-NOPERM"));
    assert_eq!(ask(&mut unix, &["GET", "1"]), "$22");
    expect(&mut unix, b"value_content_at_key_1\r\n");
    assert_eq!(ask(&mut unix, &["RESET"]), "+RESET");
    assert_eq!(ask(&mut unix, &["DBSIZE"]), ":2000");
    assert_eq!(ask(&mut scene.tcp(), &["GET", "1"]), "-NOAUTH Authentication required.");
}

#[test]
fn prefixes_of_numbers_apply_to_the_number_without_leading_zeros() {
    let scene = Scene::new("user default on nopass ~12* ~00* +@read");
    let mut stream = scene.tcp();
    for (key, is_permitted) in
        [("12", true), ("0012", true), ("00000000000000000123", true), ("001", false), ("00", false)]
    {
        let reply = ask(&mut stream, &["STRLEN", key]);
        assert_eq!(reply.starts_with(':'), is_permitted, "{key}: {reply}");
        let many = ask(&mut stream, &["EXISTS", "12", key]);
        assert_eq!(many.starts_with(':'), is_permitted, "{key}: {many}");
    }
    for (key, is_permitted) in [(12, true), (120, true), (1, false), (2, false)] {
        let mut native = scene.tcp();
        native.write_all(&[request(GET, key), request(EXISTS, key)].concat()).unwrap();
        let denied = [answer(NOT_PERMITTED, b""), answer(NOT_PERMITTED, b"")].concat();
        let found = [answer_to_get(&scene.table.model, key), answer(0, b"")].concat();
        expect(&mut native, if is_permitted { &found } else { &denied });
    }
}

#[test]
fn ranges_by_prefix_need_only_the_keys_with_the_prefix() {
    let folder = tempfile::tempdir().unwrap();
    let (db, socket, file) =
        (folder.path().join("storage.db"), folder.path().join("s.sock"), folder.path().join("users.acl"));
    bake_text(&db, Keys::BYTES, b"a:1,x\na:2,x\nb:1,x\n");
    std::fs::write(&file, "user default on nopass ~a:* +@read").unwrap();
    let mut command = kv_store(&db, &socket);
    command.args(["--tcp", "127.0.0.1:0", "--users"]).arg(&file);
    let server = Server::of(command, &socket);
    let mut stream = TcpStream::connect(server.tcp()).unwrap();
    for (words, expected) in [
        (&["ZKV.COUNT", "PREFIX", "a:"][..], ":2"),
        (&["ZKV.COUNT", "prefix", "a:1"], ":1"),
        (&["ZKV.COUNT", "PREFIX", "a"], "-NOPERM"),
        (&["ZKV.COUNT", "PREFIX", ""], "-NOPERM"),
        (&["ZKV.COUNT", "PREFIX", "b:"], "-NOPERM"),
        (&["ZKV.COUNT", "[a:", "(a;"], "-NOPERM"),
        (&["ZKV.RANGE", "-", "+"], "-NOPERM"),
        (&["ZKV.FLOOR", "a:1"], "-NOPERM"),
    ] {
        let reply = ask(&mut stream, words);
        assert!(reply.starts_with(expected), "{words:?}: {reply}");
    }
    stream.write_all(b"ZKV.RANGE PREFIX a: FROM (a:1\r\nZKV.RANGE PREFIX a: REV FROM +\r\n").unwrap();
    expect(&mut stream, b"*2\r\n$-1\r\n*2\r\n$3\r\na:2\r\n$1\r\nx\r\n");
    expect(&mut stream, b"*2\r\n$-1\r\n*4\r\n$3\r\na:2\r\n$1\r\nx\r\n$3\r\na:1\r\n$1\r\nx\r\n");
}

#[test]
fn failed_logins_are_counted_and_logged_without_passwords() {
    let scene = Scene::new("user default off\nuser a on #HASH ~* +@read");
    let mut stream = scene.tcp();
    assert!(ask(&mut stream, &["AUTH", "a\nb", "hunter2"]).starts_with("-WRONGPASS"));
    assert!(ask(&mut stream, &["HELLO", "3", "AUTH", "a", "hunter2"]).starts_with("-WRONGPASS"));
    let mut native = scene.tcp();
    native.write_all(&[auth("a", "hunter2"), auth("a", "secret"), request(GET, 1).to_vec()].concat()).unwrap();
    let value = answer_to_get(&scene.table.model, 1);
    expect(&mut native, &[answer(UNAUTHENTICATED, b""), answer(0, b""), value].concat());
    assert_eq!(scene.server.number("logins_failed"), 3);
    let log = scene.server.log();
    assert!(log.contains("a login failed") && log.contains("a\\\\nb") && log.contains("127.0.0.1:"), "{log}");
    assert!(!log.contains("hunter2") && !log.contains("secret"), "{log}");
}

#[test]
fn a_flood_of_wrong_passwords_does_not_delay_other_clients() {
    let scene = Scene::new("user default off\nuser a on #HASH ~* +@read");
    let flood: Vec<u8> = command(&[b"AUTH", b"a", b"wrong"]).repeat(1000);
    let mut guessing: Vec<TcpStream> = (0..200).map(|_| scene.tcp()).collect();
    for stream in &mut guessing {
        stream.write_all(&flood).unwrap();
    }
    scene.server.wait_for("logins_failed", 200);
    let mut stream = scene.tcp();
    assert_eq!(ask(&mut stream, &["AUTH", "a", "secret"]), "+OK");
    let before = scene.server.number("logins_failed");
    for _ in 0..2000 {
        assert_eq!(ask(&mut stream, &["EXISTS", "1"]), ":1");
    }
    // Without delays, the flood would be over.
    let failed = scene.server.number("logins_failed");
    assert!(failed >= before && failed < 200 * 1000 / 2, "{failed}");
    drop(guessing);
}

#[test]
fn an_incomplete_command_before_a_login_is_short() {
    let scene = Scene::new("user default off\nuser a on nopass ~* +@all");
    let mut stream = scene.tcp();
    stream.write_all(b"*2\r\n$3\r\nGET\r\n$1000000\r\n").unwrap();
    // The server may close the connection before it has read everything.
    let _ = stream.write_all(&[b'x'; 100_000]);
    let reply = read_until_closed(&mut stream);
    assert!(reply.starts_with(b"-ERR Protocol error: unauthenticated bulk length\r\n"), "{}", reply.escape_ascii());
    let mut stream = scene.logged_in("a");
    stream.write_all(&command(&[b"ECHO", &[b'x'; 100_000]])).unwrap();
    expect(&mut stream, b"$100000\r\nxxx");
}

#[test]
fn before_a_login_a_connection_keeps_few_requests() {
    let scene = Scene::new("user default off");
    let mut stream = scene.tcp();
    stream.write_all(&b"PING\r\n".repeat(6 << 20)).unwrap();
    let replies = read_until_closed(&mut stream);
    let error = b"-ERR more than 262144 bytes of commands wait for their replies to be received";
    let last = replies.split(|&byte| byte == b'\n').rfind(|line| !line.is_empty()).unwrap();
    assert!(last.starts_with(error), "{}", last.escape_ascii());
    assert_eq!(scene.server.number("connections_cut_buffer"), 1);
}

#[test]
fn logins_under_load_do_not_mix_the_permissions_of_connections() {
    let scene = Scene::new("user default off\nuser one on nopass ~1* +@read\nuser two on nopass ~2* +@read");
    let rounds = |user: &'static str, mine: &'static str, other: &'static str| {
        let scene = &scene;
        move || {
            let mut stream = scene.logged_in(user);
            for _ in 0..50 {
                assert_eq!(ask(&mut stream, &["EXISTS", mine]), ":1");
                assert!(ask(&mut stream, &["EXISTS", other]).starts_with("-NOPERM"));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(rounds("one", "1", "2"));
            scope.spawn(rounds("two", "2", "1"));
        }
    });
}
