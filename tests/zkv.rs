//! What `zkv` promises: exit status, standard output, standard error.

#![cfg(feature = "cli")]

mod peer;

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use peer::{ERROR, EXISTS, NOT_FOUND, Peer, announced, found};
use tempfile::TempDir;
use zero_kv::bake::{self, Options};

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
    let peer = Peer::answering(&[NOT_FOUND]);
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
        assert_usage_error(&ask_file(&db, &["get", key]), "an unsigned 64-bit decimal");
        assert_usage_error(&ask_file(&db, &["exists", key]), "an unsigned 64-bit decimal");
    }
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
        let peer = Peer::answering(&[&found(value)]);
        assert_answer(&ask_peer(&peer, &["get", "258"]), 0, value);
        assert_eq!(peer.request(), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
    }
    let peer = Peer::answering(&[EXISTS]);
    assert_answer(&ask_peer(&peer, &["exists", "258"]), 0, b"");
    assert_eq!(peer.request(), [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
    for question in ["get", "exists"] {
        assert_answer(&ask_peer(&Peer::answering(&[NOT_FOUND]), &[question, "7"]), 1, b"");
    }
}

#[test]
fn a_server_that_answers_wrongly_is_an_error() {
    for question in ["get", "exists"] {
        let ask = |answer: &[u8]| ask_peer(&Peer::answering(&[answer]), &[question, "7"]);
        assert_error(&ask(ERROR), &["peer.sock: ", "answered key 7 with an error"]);
        assert_error(&ask(&announced(77, 0)), &["peer.sock: status code 77, where 0 (ok)"]);
        assert_error(&ask(&announced(1, 5)), &["peer.sock: a value of 5 bytes", "NotFound"]);
        assert_error(&ask(&announced(0, u32::MAX)), &["peer.sock: a value of 4294967295 bytes announced"]);
        let closed = ask_peer(&Peer::closing_after(&[&NOT_FOUND[..3]]), &[question, "7"]);
        assert_error(&closed, &["peer.sock: ", "closed the connection after 3 of 8 bytes of the answer's header"]);
    }
}

#[test]
fn an_announced_length_takes_no_memory_before_its_bytes_come() {
    let answer = [&announced(0, 1 << 30)[..], b"seven"].concat();
    let peer = Peer::closing_after(&[&answer]);
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
