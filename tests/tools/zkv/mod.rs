//! `zkv`: exit status, standard output, and standard error.

mod bench;
mod both;
mod canary;
mod diff;
mod dump;
mod file;
mod formats;
mod health;
mod hostile;
mod info;
mod inspect;
mod key_types;
mod keys;
#[cfg(feature = "full")]
mod logins;
mod programs;
mod ranges;
mod reload;
mod server;
mod slot;
#[cfg(feature = "full")]
mod terminal;
mod top;
mod typed;
mod usage;
mod verify;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;
use zero_kv::bake::Keys;

use crate::helpers::rows::{bake_text, bake_to};
use crate::helpers::scripted_server::ScriptedServer;

const BINARY: &[u8] = b"\0\xff\n\r\n,\"\x1b[31m";

fn zkv() -> Command {
    Command::new(env!("CARGO_BIN_EXE_zkv"))
}

/// Runs a command with this standard input, of which it may read any part.
fn output_with(mut command: Command, input: &[u8]) -> Output {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input));
        child.wait_with_output().unwrap()
    })
}

fn ask_file(db: &Path, command_line: &[&str]) -> Output {
    zkv().args(command_line).arg("--db").arg(db).output().unwrap()
}

fn ask_peer(peer: &ScriptedServer, command_line: &[&str]) -> Output {
    zkv().args(command_line).arg("--socket").arg(peer.socket()).output().unwrap()
}

/// Checks the exit status and standard output, and that standard error is empty.
#[track_caller]
fn assert_answer(output: &Output, status: i32, stdout: &[u8]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &output.stdout[..], &*stderr), (Some(status), stdout, ""));
}

/// Checks that the exit status is 2, standard output is empty, and standard error is one line that begins with `zkv: `
/// and contains each expected text once.
#[track_caller]
fn assert_error(output: &Output, expected: &[&str]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(2), &b""[..]), "{stderr}");
    assert!(stderr.starts_with("zkv: ") && stderr.lines().count() == 1, "{stderr}");
    for part in expected {
        assert_eq!(stderr.matches(part).count(), 1, "{stderr} does not contain {part:?} once");
    }
}

/// Checks that the exit status is 1, standard output is empty, and standard error is one line that begins with `zkv: `
/// and contains the expected text.
#[track_caller]
fn assert_damaged(output: &Output, expected: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(1), &b""[..]), "{stderr}");
    assert!(stderr.starts_with("zkv: ") && stderr.lines().count() == 1, "{stderr}");
    assert!(stderr.contains(expected), "{stderr} does not contain {expected:?}");
}

/// Checks that clap rejected the command line with the expected text.
#[track_caller]
fn assert_usage_error(output: &Output, expected: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(2), &b""[..]), "{stderr}");
    assert!(stderr.starts_with("error: ") && stderr.contains(expected), "{stderr} does not contain {expected:?}");
}

/// Returns `zkv` with a limit of its private memory. Mapped files do not count.
fn zkv_within(memory_kib: usize) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -d {memory_kib} && exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_zkv")]);
    command
}

fn baked() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("table.db");
    let rows = [(7, &b"seven"[..]), (8, b""), (u64::MAX, b"last"), (9, BINARY)];
    bake_to(&db, &rows.map(|(key, value)| (key, value.to_vec())));
    (folder, db)
}
