//! What `zkv` promises: exit status, standard output, standard error.

#![cfg(feature = "cli")]

mod common;
mod peer;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use peer::{COUNT_7, ERROR, EXISTS, NOT_FOUND, Peer, announced, found, page};
use tempfile::TempDir;
use zero_kv::bake::{self, Keys, Options};

const BINARY: &[u8] = b"\0\xff\n\r\n,\"\x1b[31m";

fn zkv() -> Command {
    Command::new(env!("CARGO_BIN_EXE_zkv"))
}

fn ask_file(db: &Path, question: &[&str]) -> Output {
    zkv().args(question).arg("--db").arg(db).output().unwrap()
}

fn ask_peer(peer: &Peer, question: &[&str]) -> Output {
    zkv().args(question).arg("--socket").arg(peer.socket()).output().unwrap()
}

/// Exit status and standard output are these, and nothing was complained about.
#[track_caller]
fn assert_answer(output: &Output, status: i32, stdout: &[u8]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &output.stdout[..], &*stderr), (Some(status), stdout, ""));
}

/// The exit status is 2, nothing was printed, and the only line of complaint
/// begins with `zkv: ` and says each of these once.
#[track_caller]
fn assert_error(output: &Output, said: &[&str]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(2), &b""[..]), "{stderr}");
    assert!(stderr.starts_with("zkv: ") && stderr.lines().count() == 1, "{stderr}");
    for part in said {
        assert_eq!(stderr.matches(part).count(), 1, "{stderr} does not say {part:?} once");
    }
}

/// clap refused the command line, and said this.
#[track_caller]
fn assert_usage_error(output: &Output, said: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(2), &b""[..]), "{stderr}");
    assert!(stderr.starts_with("error: ") && stderr.contains(said), "{stderr} does not say {said:?}");
}

fn baked() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("table.db");
    let mut csv = b"7,seven\n8,\n18446744073709551615,last\n9,\"".to_vec();
    for byte in BINARY {
        csv.extend(std::iter::repeat_n(byte, if *byte == b'"' { 2 } else { 1 }));
    }
    csv.extend(b"\"\n");
    bake::bake_csv(&csv[..], &db, &Options::default(), &mut |_| ()).unwrap();
    (folder, db)
}

#[test]
fn a_file_answers_with_the_bytes_as_they_are() {
    let (_folder, db) = baked();
    for (key, value) in [("7", &b"seven"[..]), ("8", b""), ("9", BINARY), ("18446744073709551615", b"last")] {
        assert_answer(&ask_file(&db, &["get", key]), 0, value);
        assert_answer(&ask_file(&db, &["exists", key]), 0, b"");
    }
    assert_answer(&ask_file(&db, &["get", "10"]), 1, b"");
    assert_answer(&ask_file(&db, &["exists", "10"]), 1, b"");
}

#[test]
fn options_come_before_or_after_the_subcommand() {
    let (_folder, db) = baked();
    let before = zkv().arg("--db").arg(&db).args(["get", "7"]).output().unwrap();
    assert_answer(&before, 0, b"seven");
    let between = zkv().arg("get").arg("--db").arg(&db).arg("7").output().unwrap();
    assert_answer(&between, 0, b"seven");
    let peer = Peer::answering(&[COUNT_7, NOT_FOUND]);
    let before = zkv().arg("--socket").arg(peer.socket()).args(["get", "7"]).output().unwrap();
    assert_answer(&before, 1, b"");
}

#[test]
fn a_damaged_file_is_an_error_whatever_it_is_asked() {
    let (_folder, db) = baked();
    let mut bytes = fs::read(&db).unwrap();
    let at = bytes.windows(5).position(|window| window == b"seven").unwrap();
    bytes[at] ^= 1;
    fs::write(&db, bytes).unwrap();
    for question in [["get", "7"], ["get", "9"], ["get", "10"], ["exists", "7"], ["exists", "10"]] {
        assert_error(&ask_file(&db, &question), &["table.db: ", "damaged"]);
    }
}

#[test]
fn a_file_that_is_none_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("table.db");
    assert_error(&ask_file(&db, &["get", "7"]), &["table.db: ", "No such file"]);
    fs::write(&db, "7,seven\n").unwrap();
    assert_error(&ask_file(&db, &["exists", "7"]), &["table.db: 8 bytes"]);
}

#[test]
fn a_command_line_that_makes_no_sense_is_refused() {
    let (_folder, db) = baked();
    for key in ["", "-1", "+7", " 7", "0x7", "seven", "18446744073709551616"] {
        for question in [["get", key], ["exists", key], ["floor", key], ["ceiling", key]] {
            assert_error(&ask_file(&db, &question), &[&format!("the key is \"{key}\""), "an unsigned 64-bit decimal"]);
            assert_error(&ask_peer(&Peer::answering(&[COUNT_7]), &question), &["an unsigned 64-bit decimal"]);
        }
    }
    for bound in ["--from=x", "--after=", "--to=-1", "--before=0x7"] {
        for question in ["range", "count"] {
            assert_error(&ask_file(&db, &[question, bound]), &["an unsigned 64-bit decimal"]);
        }
    }
    for both in
        [["--from=1", "--after=1"], ["--to=1", "--before=1"], ["--prefix=1", "--to=1"], ["--after=1", "--prefix=1"]]
    {
        assert_usage_error(&ask_file(&db, &["range", both[0], both[1]]), "cannot be used with");
        assert_usage_error(&ask_file(&db, &["count", both[0], both[1]]), "cannot be used with");
    }
    assert_usage_error(&ask_file(&db, &["range", "--limit=-1"]), "invalid value");
    assert_error(&ask_file(&db, &["range", "--prefix", "1"]), &["keys of this table are unsigned 64-bit numbers"]);
    assert_usage_error(&ask_file(&db, &["get"]), "<KEY>");
    assert_usage_error(&ask_file(&db, &["put", "7"]), "put");
    for both in [["--socket", "s", "get", "7"], ["get", "7", "--socket", "s"]] {
        assert_usage_error(&ask_file(&db, &both), "--socket and --db cannot be used together");
    }
}

#[test]
fn the_help_tells_the_exit_status_and_the_default_socket() {
    let version = zkv().arg("--version").output().unwrap();
    assert_answer(&version, 0, concat!("zkv ", env!("CARGO_PKG_VERSION"), "\n").as_bytes());
    let output = zkv().arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(help.contains("Exit status: 0") && help.contains("[default: /tmp/zero-kv.sock]"), "{help}");
}

#[test]
fn output_that_nobody_reads_is_an_error() {
    let (_folder, db) = baked();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = zkv().args(["get", "7", "--db"]).arg(&db).stdout(writer).output().unwrap();
    assert_error(&output, &["standard output", "Broken pipe"]);
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = zkv().args(["get", "7", "--db"]).arg(&db).stdout(full).output().unwrap();
    assert_error(&output, &["standard output", "No space left"]);
}

#[test]
fn an_error_that_nobody_reads_is_no_panic() {
    let (_folder, db) = baked();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let (stdout, stderr) = (writer.try_clone().unwrap(), writer);
    let status = zkv().args(["get", "7", "--db"]).arg(&db).stdout(stdout).stderr(stderr).status().unwrap();
    assert_eq!(status.code(), Some(2));
}

#[test]
fn a_server_answers_with_the_bytes_as_they_are() {
    for value in [&b"seven"[..], b"", BINARY, &[b'x'; 100_000]] {
        let peer = Peer::answering(&[COUNT_7, &found(value)]);
        assert_answer(&ask_peer(&peer, &["get", "258"]), 0, value);
        assert_eq!(peer.request()[..4], [0, 1, 0, 5], "the table is asked what its keys are");
        assert_eq!(peer.request(), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
    }
    let peer = Peer::answering(&[COUNT_7, EXISTS]);
    assert_answer(&ask_peer(&peer, &["exists", "258"]), 0, b"");
    peer.request();
    assert_eq!(peer.request(), [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
    // A table of bytes has no numbers, so digits are bytes.
    let peer = Peer::answering(&[ERROR, COUNT_7, &found(b"bytes")]);
    assert_answer(&ask_peer(&peer, &["get", "258"]), 0, b"bytes");
    peer.request();
    peer.request();
    assert_eq!(peer.request(), *b"\0\x01\0\0\0\0\0\x03258\0\0\0\0\0");
    for question in ["get", "exists", "floor", "ceiling"] {
        assert_answer(&ask_peer(&Peer::answering(&[COUNT_7, NOT_FOUND]), &[question, "7"]), 1, b"");
    }
    for question in ["first", "last", "range"] {
        assert_answer(&ask_peer(&Peer::answering(&[&page::<u64>(&[], 0)]), &[question]), 1, b"");
        assert_answer(&ask_peer(&Peer::answering(&[&page(&[(5_u64, "five")], 0)]), &[question]), 0, b"5,five\n");
    }
}

#[test]
fn a_server_that_answers_wrongly_is_an_error() {
    for question in ["get", "exists"] {
        let ask = |answer: &[u8]| ask_peer(&Peer::answering(&[COUNT_7, answer]), &[question, "7"]);
        assert_error(&ask(ERROR), &["peer.sock: ", "answered key 7 with an error"]);
        assert_error(&ask(&announced(77, 0)), &["peer.sock: status code 77, where 0 (ok)"]);
        assert_error(&ask(&announced(1, 5)), &["peer.sock: a value of 5 bytes", "NotFound"]);
        assert_error(&ask(&announced(0, u32::MAX)), &["peer.sock: a value of 4294967295 bytes announced"]);
        let closed = ask_peer(&Peer::closing_after(&[COUNT_7, &NOT_FOUND[..3]]), &[question, "7"]);
        assert_error(&closed, &["peer.sock: ", "closed the connection after 3 of 8 bytes of the answer's header"]);
        let no_kind = ask_peer(&Peer::answering(&[ERROR, ERROR]), &[question, "7"]);
        assert_error(&no_kind, &["peer.sock: ", "what its keys are"]);
    }
    let unordered = page(&[(2_u64, ""), (1, "")], 0);
    assert_error(&ask_peer(&Peer::answering(&[&unordered]), &["range"]), &["peer.sock: ", "row 1 is not in key order"]);
}

/// Exit status, standard output and standard error.
type Outcome = (Option<i32>, Vec<u8>, String);

/// A table, asked as a file and over a socket.
struct Both {
    folder: TempDir,
    _server: common::Server,
}

impl Both {
    fn new(keys: Keys, csv: &[u8]) -> Both {
        let folder = tempfile::tempdir().unwrap();
        let (db, socket) = (folder.path().join("table.db"), folder.path().join("s.sock"));
        bake_as(keys, csv, &db).unwrap();
        let server = common::Server::start(&db, &socket);
        Both { folder, _server: server }
    }

    /// What both say; standard error may differ.
    #[track_caller]
    fn ask<S: AsRef<OsStr>>(&self, question: &[S]) -> Outcome {
        let [file, server] = [("--db", "table.db"), ("--socket", "s.sock")].map(|(option, name)| {
            let output = zkv().arg(option).arg(self.folder.path().join(name)).args(question).output().unwrap();
            (output.status.code(), output.stdout, String::from_utf8(output.stderr).unwrap())
        });
        assert_eq!((&file.0, &file.1), (&server.0, &server.1), "{} {}", file.2, server.2);
        server
    }

    #[track_caller]
    fn assert<S: AsRef<OsStr>>(&self, question: &[S], status: i32, stdout: &str) {
        let (code, found, stderr) = self.ask(question);
        assert_eq!((code, str::from_utf8(&found).unwrap(), &*stderr), (Some(status), stdout, ""));
    }
}

fn bake_as(keys: Keys, csv: &[u8], db: &Path) -> Result<bake::Report, bake::BakeError> {
    let mut options = Options::default();
    options.keys = keys;
    bake::bake_csv(csv, db, &options, &mut |_| ())
}

#[test]
fn a_table_of_numbers_answers_in_key_order_over_socket_and_file_alike() {
    let table = Both::new(Keys::U64, b"10,ten\n20,\"twenty, quoted\"\n30,\n");
    table.assert(&["floor", "19"], 0, "10,ten\n");
    table.assert(&["floor", "9"], 1, "");
    table.assert(&["ceiling", "11"], 0, "20,\"twenty, quoted\"\n");
    table.assert(&["ceiling", "31"], 1, "");
    table.assert(&["first"], 0, "10,ten\n");
    table.assert(&["last"], 0, "30,\n");
    table.assert(&["range"], 0, "10,ten\n20,\"twenty, quoted\"\n30,\n");
    table.assert(&["range", "--reverse"], 0, "30,\n20,\"twenty, quoted\"\n10,ten\n");
    table.assert(&["range", "--limit", "1"], 0, "10,ten\n");
    table.assert(&["range", "--limit", "1", "--reverse"], 0, "30,\n");
    table.assert(&["range", "--limit", "0"], 1, "");
    table.assert(&["range", "--from", "10", "--before", "20"], 0, "10,ten\n");
    table.assert(&["range", "--after", "10", "--to", "30", "--limit", "5"], 0, "20,\"twenty, quoted\"\n30,\n");
    table.assert(&["range", "--after", "30"], 1, "");
    table.assert(&["range", "--from", "30", "--to", "10"], 1, "");
    table.assert(&["count"], 0, "3\n");
    table.assert(&["count", "--after", "10"], 0, "2\n");
    table.assert(&["count", "--before", "10"], 1, "0\n");
    for question in [["range", "--prefix", "1"], ["count", "--prefix", "1"]] {
        let (status, stdout, stderr) = table.ask(&question);
        assert_eq!((status, &stdout[..]), (Some(2), &b""[..]));
        assert!(stderr.contains("keys may be of the other kind"), "{stderr}");
    }
}

#[test]
fn a_table_of_bytes_answers_in_key_order_over_socket_and_file_alike() {
    let table = Both::new(Keys::Bytes, b"ant,1\nbee,22\nbumblebee,\n-5,minus five\n7,seven\n");
    table.assert(&["get", "7"], 0, "seven");
    table.assert(&["get", "-5"], 0, "minus five");
    table.assert(&["exists", "--", "--bee"], 1, "");
    table.assert(&["floor", "bean"], 0, "ant,1\n");
    table.assert(&["ceiling", "bean"], 0, "bee,22\n");
    table.assert(&["range", "--prefix", "b"], 0, "bee,22\nbumblebee,\n");
    table.assert(&["range", "--prefix", "b", "--reverse", "--limit", "1"], 0, "bumblebee,\n");
    table.assert(&["range", "--prefix", "c"], 1, "");
    table.assert(&["count", "--prefix", ""], 0, "5\n");
    table.assert(&["range", "--from", "7", "--before", "bee"], 0, "7,seven\nant,1\n");
    table.assert(&["count", "--from", "bee", "--to", "bumblebee"], 0, "2\n");
    let not_utf8 = OsStr::from_bytes(b"b\xff");
    table.assert(&[OsStr::new("floor"), not_utf8], 0, "bumblebee,\n");
    table.assert(&[OsStr::new("count"), OsStr::new("--before"), not_utf8], 0, "5\n");
}

#[test]
fn a_key_that_no_table_has_is_an_error_over_socket_and_file_alike() {
    let table = Both::new(Keys::Bytes, b"ant,1\n");
    let long = "k".repeat(65_536);
    for key in ["", &long] {
        let said = format!("zkv: a key of {} bytes, where 1 to 65535 are possible\n", key.len());
        for question in ["get", "exists", "floor", "ceiling"] {
            assert_eq!(table.ask(&[question, key]), (Some(2), Vec::new(), said.clone()));
        }
    }
    for bound in ["--from", "--after", "--to", "--before", "--prefix"] {
        for question in ["range", "count"] {
            assert_eq!(table.ask(&[question, bound, &long]).0, Some(2));
            assert_ne!(table.ask(&[question, bound, ""]).0, Some(2));
        }
    }
}

#[test]
fn rows_are_written_as_baker_reads_them() {
    let folder = tempfile::tempdir().unwrap();
    let (db, again) = (folder.path().join("table.db"), folder.path().join("again.db"));
    let seed = 0xc57;
    println!("seed {seed}");
    let mut random = common::random(seed);
    let mut field = |least: u64| -> Vec<u8> {
        let len = least + random() % 6;
        (0..len).map(|_| b"a,\"\n\r \0\xff;\xef\xbb\xbf7"[(random() % 13) as usize]).collect()
    };
    let quoted = |field: &[u8]| -> Vec<u8> {
        let doubled = field.iter().flat_map(|byte| std::iter::repeat_n(*byte, if *byte == b'"' { 2 } else { 1 }));
        std::iter::once(b'"').chain(doubled).chain([b'"']).collect()
    };
    // The least key begins with a byte order mark in some tables.
    for marked in [false, true] {
        let mut rows: BTreeMap<Vec<u8>, Vec<u8>> = (0..500).map(|_| (field(1), field(0))).collect();
        if marked {
            rows.retain(|key, _| key[0] > 0xef);
            rows.insert(b"\xef\xbb\xbfmark".to_vec(), b"v".to_vec());
        }
        let csv: Vec<u8> =
            rows.iter().flat_map(|(key, value)| [&quoted(key)[..], b",", &quoted(value), b"\n"].concat()).collect();
        bake_as(Keys::Bytes, &csv, &db).unwrap();
        let output = ask_file(&db, &["range"]);
        assert_eq!(output.status.code(), Some(0));
        bake_as(Keys::Bytes, &output.stdout, &again).unwrap();
        assert!(fs::read(&db).unwrap() == fs::read(&again).unwrap());
    }
}

#[test]
fn an_announced_length_takes_no_memory_before_its_bytes_come() {
    let answer = [&announced(0, 1 << 30)[..], b"seven"].concat();
    let peer = Peer::closing_after(&[COUNT_7, &answer]);
    // A quarter of the announced length is all the memory there is.
    let limited = "ulimit -v 262144 && exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", limited, env!("CARGO_BIN_EXE_zkv"), "get", "7", "--socket"]).arg(peer.socket());
    let output = command.output().unwrap();
    assert_error(&output, &["closed the connection after 5 of 1073741824 bytes of the answer's value"]);
}

#[test]
fn a_server_that_does_not_run_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("none.sock");
    let ask = || zkv().args(["get", "7", "--socket"]).arg(&socket).stdin(Stdio::null()).output().unwrap();
    assert_error(&ask(), &["none.sock: cannot connect", "No such file", "is kv_store running"]);
    drop(UnixListener::bind(&socket).unwrap());
    assert!(socket.exists());
    assert_error(&ask(), &["none.sock: cannot connect", "Connection refused", "is kv_store running"]);
}
