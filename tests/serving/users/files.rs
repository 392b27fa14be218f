//! Users files: errors at the start, and new files while the server runs.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use rustix::process::Signal;

use super::*;
use crate::helpers::frames::{answer, expect, request};
use crate::helpers::reference_server::GET;
use crate::helpers::servers::failure_message;
use crate::helpers::tables::answer_to_get;
use crate::helpers::waiting::eventually;

#[test]
fn a_server_with_an_invalid_file_of_users_does_not_start() {
    let table = Table::of_rows(10);
    let file = users_file(&table);
    let path = file.to_str().unwrap();
    let start = || failure_message(table.command(&["--users", path]), 1);
    assert!(start().contains("users.acl: the users file cannot be read: No such file"), "{}", start());
    std::fs::write(&file, "user a on nopass ~* +@all\nuser b on >hunter2 +@all\n").unwrap();
    let message = start();
    for part in ["users.acl: line 2: found a plain password", "#HASH", "sha256sum"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(!message.contains("hunter2"), "{message}");
    assert!(!table.socket().exists());
}

#[test]
fn an_address_that_other_machines_reach_needs_encryption_even_with_users() {
    let table = Table::of_rows(10);
    let file = users_file(&table);
    for (users, says) in [("user default off", "passwords and values are not encrypted"), ("", "there is no password")]
    {
        std::fs::write(&file, users).unwrap();
        let message = failure_message(table.command(&["--tcp", "0.0.0.0:0", "--users", file.to_str().unwrap()]), 1);
        assert!(message.contains(says) && message.contains("--tcp-exposed"), "{message}");
    }
}

#[test]
fn a_file_that_does_not_restrict_tcp_clients_is_reported() {
    for (users, warnings) in [("user a on nopass", 1), ("user default on nopass ~* +@read", 0), ("user default off", 0)]
    {
        let mut scene = Scene::new(users);
        scene.server.expect_logged("add the line: user default off", warnings);
        assert!(scene.server.is_alive());
    }
}

#[test]
fn new_files_change_permissions_and_disconnect_users_that_are_gone() {
    let before = "user default off\nuser keeps on nopass ~* +@read\nuser changes on nopass ~* +@read\n\
                  user removed on nopass ~* +@read\nuser disabled on nopass ~* +@read";
    let scene = Scene::new(before);
    let [mut keeps, mut changes, mut removed, mut disabled] =
        ["keeps", "changes", "removed", "disabled"].map(|user| scene.logged_in(user));
    let mut native = scene.tcp();
    native.write_all(&[auth("removed", "x"), request(GET, 1).to_vec()].concat()).unwrap();
    expect(&mut native, &[answer(0, b""), answer_to_get(&scene.table.model, 1)].concat());
    for stream in [&mut keeps, &mut changes, &mut removed, &mut disabled] {
        assert_eq!(ask(stream, &["EXISTS", "1"]), ":1");
    }
    scene.replace_users(
        "user default off\nuser keeps on nopass ~* +@read\nuser changes on nopass ~2* +@read\n\
         user disabled off nopass ~* +@read\nuser added on nopass ~* +@read",
    );
    // These connections send nothing.
    for stream in [&mut removed, &mut disabled, &mut native] {
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the connection is closed");
    }
    assert_eq!(ask(&mut keeps, &["EXISTS", "1"]), ":1");
    assert!(ask(&mut changes, &["EXISTS", "1"]).starts_with("-NOPERM"));
    assert_eq!(ask(&mut changes, &["EXISTS", "2"]), ":1");
    assert_eq!(ask(&mut scene.logged_in("added"), &["EXISTS", "1"]), ":1");
    assert_eq!(scene.server.number("connections_cut_user"), 3);

    // An invalid file leaves everything as it is.
    scene.replace_users("user keeps on nope");
    scene.server.wait_for("refused_users_files", 1);
    assert!(scene.server.info().get("users_refused").unwrap().contains("line 1: found \"nope\""));
    assert_eq!(ask(&mut keeps, &["EXISTS", "1"]), ":1");
    assert_eq!(ask(&mut scene.logged_in("added"), &["EXISTS", "1"]), ":1");
    scene.server.expect_logged("the previous users stay in effect", 1);
    let health =
        Command::new(env!("CARGO_BIN_EXE_zkv")).args(["health", "--server"]).arg(scene.server.socket()).output();
    let notes = String::from_utf8(health.unwrap().stderr).unwrap();
    assert!(notes.contains("the users file was rejected, and the previous users are in effect: "), "{notes}");
    assert!(notes.contains("line 1: found \"nope\""), "{notes}");
    // A request to reload tries the file again.
    scene.server.signal(Signal::HUP);
    scene.server.wait_for("refused_users_files", 2);
    scene.replace_users(before);
    eventually("the file is accepted", || scene.server.info().get("users_refused") == Some(""));
    assert_eq!(ask(&mut changes, &["EXISTS", "1"]), ":1");
}

#[test]
fn a_new_file_cannot_let_tcp_clients_connect_without_a_password() {
    let scene = Scene::new("user default off\nuser a on nopass ~* +@read");
    for (number, users) in [(1, ""), (2, "user default on nopass ~1* +get"), (3, "user a on nopass ~* +@read")] {
        scene.replace_users(users);
        scene.server.wait_for("refused_users_files", number);
        assert!(scene.server.info().get("users_refused").unwrap().contains("add the line `user default off`"));
        assert!(ask(&mut scene.tcp(), &["EXISTS", "1"]).starts_with("-NOAUTH"));
        assert_eq!(ask(&mut scene.logged_in("a"), &["EXISTS", "1"]), ":1");
    }
}

#[test]
fn a_truncated_file_does_not_give_tcp_clients_all_permissions() {
    let scene = Scene::new("user default on nopass ~1* +@read\nuser a on nopass ~* +@read");
    for (number, users) in [(1, ""), (2, "user a on nopass ~* +@read\n"), (3, "user default on nopass ~* &* +@all")] {
        scene.replace_users(users);
        scene.server.wait_for("refused_users_files", number);
        let refused = scene.server.info().get("users_refused").unwrap().to_owned();
        assert!(refused.contains("more permissions without a password: add the line `user default off`"), "{refused}");
        assert_eq!(ask(&mut scene.tcp(), &["EXISTS", "1"]), ":1");
        assert!(ask(&mut scene.tcp(), &["EXISTS", "2"]).starts_with("-NOPERM"));
    }
    // Other permissions of this user can change.
    scene.replace_users("user default on nopass ~2* +@read");
    eventually("the file is accepted", || ask(&mut scene.tcp(), &["EXISTS", "2"]) == ":1");
}

#[test]
fn a_client_that_loses_the_permission_for_monitor_sees_no_more_commands() {
    let users = "user default off\nuser other on nopass ~* +@read\nuser watcher on nopass ";
    let scene = Scene::new(&format!("{users}~* +@all"));
    let mut watcher = scene.logged_in("watcher");
    assert_eq!(ask(&mut watcher, &["MONITOR"]), "+OK");
    scene.replace_users(&format!("{users}~1* +@read"));
    scene.server.expect_logged("the server has 3 users now", 1);
    assert_eq!(ask(&mut scene.logged_in("other"), &["EXISTS", "2"]), ":1");
    assert_eq!(read_until_closed(&mut watcher), b"");
}

#[test]
fn without_watching_a_new_file_takes_effect_on_sighup() {
    let table = Table::of_rows(10);
    let file = users_file(&table);
    std::fs::write(&file, "user default on nopass ~* +@read").unwrap();
    let mut server = table.serve_with(&["--tcp", "127.0.0.1:0", "--no-watch", "--users", file.to_str().unwrap()]);
    let mut stream = TcpStream::connect(server.tcp()).unwrap();
    assert_eq!(ask(&mut stream, &["EXISTS", "1"]), ":1");
    std::fs::write(&file, "user default on nopass ~2* +@read").unwrap();
    server.signal(Signal::HUP);
    server.wait_for_log("the server has 1 user now");
    assert!(ask(&mut stream, &["EXISTS", "1"]).starts_with("-NOPERM"));
}

#[test]
fn a_default_user_that_needs_a_password_now_is_disconnected() {
    let scene = Scene::new("user default on nopass ~* +@read");
    let mut stream = scene.tcp();
    assert_eq!(ask(&mut stream, &["EXISTS", "1"]), ":1");
    scene.replace_users("user default on #HASH ~* +@read");
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the connection is closed");
    let mut stream = scene.tcp();
    assert!(ask(&mut stream, &["EXISTS", "1"]).starts_with("-NOAUTH"));
    assert_eq!(ask(&mut stream, &["AUTH", "secret"]), "+OK");
    assert_eq!(ask(&mut stream, &["EXISTS", "1"]), ":1");
}
