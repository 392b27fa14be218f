//! Users that change while their connections are busy.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use zero_kv::Lookup;

use super::*;
use crate::helpers::frames::{answer, expect, request};
use crate::helpers::reference_server::GET;
use crate::helpers::repeating::StopOnDrop;
use crate::helpers::tables::answer_to_get;

/// The length of the values of a table whose replies do not fit into the buffers of a socket.
const LONG_LEN_BYTES: usize = 64 << 10;

fn long_rows() -> Table {
    Table::new((1..=100).map(|key| (key, vec![b'v'; LONG_LEN_BYTES])))
}

#[test]
fn a_user_that_is_removed_gets_no_replies_to_the_rest_of_its_pipeline() {
    const REQUESTS: usize = 10_000;
    let scene = Scene::of(long_rows(), "user default off\nuser a on nopass ~* +@read\nuser b on nopass ~* +@read");
    let redis = [&command(&[b"AUTH", b"a", b"x"])[..], &command(&[b"GET", b"1"]).repeat(REQUESTS)].concat();
    let native = [&auth("b", "x")[..], &request(GET, 1).repeat(REQUESTS)].concat();
    let mut streams = [redis, native].map(|requests| {
        let mut stream = scene.tcp();
        stream.write_all(&requests).unwrap();
        stream
    });
    // A long reply to one command.
    let mut keys = scene.logged_in("a");
    let words: Vec<&[u8]> = [&b"MGET"[..]].into_iter().chain(std::iter::repeat_n(&b"2"[..], REQUESTS)).collect();
    keys.write_all(&command(&words)).unwrap();
    for stream in streams.iter_mut().chain([&mut keys]) {
        stream.read_exact(&mut [0; 1000]).unwrap();
    }
    scene.replace_users("user default off");
    scene.server.wait_for("connections_cut_user", 3);
    for stream in streams.iter_mut().chain([&mut keys]) {
        let received_bytes = read_until_closed(stream).len();
        assert!(received_bytes < REQUESTS * LONG_LEN_BYTES / 2, "{received_bytes}");
    }
}

#[test]
fn commands_of_a_transaction_are_checked_with_the_permissions_at_exec() {
    let scene = Scene::new("user default off\nuser a on nopass ~* +@read +multi +exec +watch");
    let mut stream = scene.logged_in("a");
    assert_eq!(ask(&mut stream, &["WATCH", "1"]), "+OK");
    assert_eq!(ask(&mut stream, &["MULTI"]), "+OK");
    for words in [&["EXISTS", "1"][..], &["EXISTS", "2"], &["DBSIZE"], &["EXISTS", "1"]] {
        assert_eq!(ask(&mut stream, words), "+QUEUED");
    }
    let mut other = scene.logged_in("a");
    scene.replace_users("user default off\nuser a on nopass ~1* +exists +multi +exec");
    while ask(&mut other, &["EXISTS", "2"]) == ":1" {
        std::thread::yield_now();
    }
    stream.write_all(&command(&[b"EXEC"])).unwrap();
    let changed = "-NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This \
                   command is no longer allowed for the following reason: no permission to ";
    let keys = format!("{changed}touch the specified keys\r\n");
    let command = format!("{changed}execute the command or subcommand\r\n");
    expect(&mut stream, format!("*4\r\n:1\r\n{keys}{command}:1\r\n").as_bytes());
}

#[test]
fn every_reply_follows_from_the_permissions_before_or_after_a_change() {
    let scene =
        Scene::new("user default off\nuser a on nopass ~1* +@read +multi +exec\nuser fixed on nopass ~2* +@read");
    let is_over = AtomicBool::new(false);
    let redis: Vec<u8> = [&b"EXISTS 1\r\nEXISTS 2\r\nMULTI\r\nEXISTS 1\r\nEXEC\r\n"[..], b"EXISTS 1 2\r\n"].concat();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let (mut busy, mut fixed) = (scene.logged_in("a"), scene.logged_in("fixed"));
                let mut native = scene.tcp();
                native.write_all(&auth("a", "x")).unwrap();
                expect(&mut native, &answer(0, b""));
                while !is_over.load(Ordering::Relaxed) {
                    busy.write_all(&redis).unwrap();
                    let [one, two] = [(); 2].map(|()| line(&mut busy));
                    assert!([&one, &two].iter().all(|reply| *reply == ":1" || reply.starts_with("-NOPERM")));
                    assert_eq!(line(&mut busy), "+OK");
                    let queued = line(&mut busy);
                    match line(&mut busy).as_str() {
                        "*1" => drop(line(&mut busy)),
                        error => assert!(error.starts_with("-EXECABORT") && queued.starts_with("-NOPERM"), "{error}"),
                    }
                    assert!(line(&mut busy).starts_with("-NOPERM"), "both keys are never permitted together");
                    assert_eq!(ask(&mut fixed, &["EXISTS", "2"]), ":1");
                    assert!(ask(&mut fixed, &["EXISTS", "1"]).starts_with("-NOPERM"));
                    native.write_all(&request(GET, 1)).unwrap();
                    let mut header = [0; 8];
                    native.read_exact(&mut header).unwrap();
                    match header[..4] {
                        [0, 0, 0, 0] => expect(&mut native, &answer_to_get(&scene.table.model, 1)[8..]),
                        _ => assert_eq!(header[..4], NOT_PERMITTED.to_be_bytes()),
                    }
                }
            });
        }
        let stop = StopOnDrop(&is_over);
        let mut probe = scene.logged_in("a");
        for round in 0..20 {
            let (prefix, key) = if round % 2 == 0 { ("2", "2") } else { ("1", "1") };
            scene.replace_users(&format!(
                "user default off\nuser a on nopass ~{prefix}* +@read +multi +exec\nuser fixed on nopass ~2* +@read"
            ));
            while ask(&mut probe, &["EXISTS", key]) != ":1" {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        drop(stop);
    });
    assert_eq!(scene.server.number("connections_cut_user"), 0);
}

/// Reads one line.
fn line(stream: &mut impl Read) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap().trim_end().to_owned()
}

#[test]
fn a_removed_user_is_disconnected_while_it_waits_for_the_next_table() {
    let scene = Scene::new("user default off\nuser a on nopass ~* +@all");
    let mut client = scene.server.client();
    client.authenticate("a", "x").unwrap();
    let direct = client.direct().unwrap();
    assert_eq!(direct.get(1).unwrap().as_deref(), Some(&b"value_content_at_key_1"[..]));
    let before = scene.server.number("connections_cut_user");
    scene.replace_users("user default off");
    scene.server.wait_for("connections_cut_user", before + 1);
}
