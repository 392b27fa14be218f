//! `--memory`, `--warm`, and `--lock`.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;

use rustix::thread::{CapabilitySet, disable_transparent_huge_pages, remove_capability_from_bounding_set};

use crate::helpers::frames::{expect, gets};
use crate::helpers::servers::Server;
use crate::helpers::tables::{Table, answers_to_gets};

const ROWS: u64 = 20_000;

/// Starts a kv_store with options, without waiting until it is ready.
fn start(table: &Table, options: &[&str]) -> Server {
    Server::spawn(table.command(options), &table.socket())
}

fn expect_all_answers(table: &Table, server: &Server) {
    let mut stream = server.connect();
    for first in (1..ROWS + 100).step_by(500) {
        stream.write_all(&gets(first..first + 500)).unwrap();
        expect(&mut stream, &answers_to_gets(&table.model, first..first + 500));
    }
}

fn len_bytes(table: &Table) -> u64 {
    fs::metadata(table.db()).unwrap().len()
}

/// Returns a number of KiB in a file of /proc, in bytes.
fn number_bytes(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

/// Returns the kernel's description of the server's mapping of the file.
fn mapping(table: &Table, server: &Server) -> Option<String> {
    let smaps = server.proc("smaps");
    smaps.split_once(table.db().to_str().unwrap()).map(|(_, rest)| rest.to_owned())
}

#[test]
fn a_copy_does_not_need_the_file() {
    let table = Table::of_rows(ROWS);
    let expected = format!(" {} bytes, ", len_bytes(&table));
    let mut server = start(&table, &["--memory", "copy"]);
    let copied = server.wait_for_log("copied into memory: ");
    assert!(copied.contains(&expected) && copied.contains(" in huge pages, "), "{copied}");
    server.wait_for_log("ready");
    assert_eq!(mapping(&table, &server), None);
    expect_all_answers(&table, &server);
    File::create(table.db()).unwrap();
    expect_all_answers(&table, &server);
    assert!(server.is_alive());
}

#[test]
fn a_damaged_file_is_not_served_from_a_copy() {
    let table = Table::of_rows(ROWS);
    let mut bytes = fs::read(table.db()).unwrap();
    let at = bytes.windows(9).position(|window| window == b"key_12345").unwrap();
    bytes[at] ^= 1;
    fs::write(table.db(), &bytes).unwrap();
    let mut server = start(&table, &["--memory", "copy", "--verify", "full"]);
    server.wait_for_log("of the records");
    assert_eq!(server.wait().code(), Some(1));
}

#[test]
fn a_copy_with_fewer_huge_pages_is_served_with_a_warning() {
    let table = Table::of_rows(ROWS);
    let mut command = table.command(&["--memory", "copy"]);
    // SAFETY: The closure makes one system call, which is safe between fork and exec, and allocates nothing.
    unsafe { command.pre_exec(|| Ok(disable_transparent_huge_pages(true)?)) };
    let mut server = Server::spawn(command, &table.socket());
    let warning = server.wait_for_log("copied into memory: ");
    assert!(warning.contains("WARN") && warning.contains(" 0 in huge pages"), "{warning}");
    assert!(warning.contains("fewer huge pages than requested"), "{warning}");
    server.wait_for_log("ready");
    let smaps = server.proc("smaps");
    let huge: Vec<&str> = smaps.lines().filter_map(|line| line.strip_prefix("AnonHugePages:")).collect();
    assert!(!huge.is_empty() && huge.iter().all(|len| len.trim() == "0 kB"), "{huge:?}");
    expect_all_answers(&table, &server);
}

#[test]
fn a_warmed_file_is_completely_in_memory() {
    let table = Table::of_rows(ROWS);
    let expected = format!("warmed: {} bytes, ", len_bytes(&table));
    let mut server = start(&table, &["--warm"]);
    server.wait_for_log(&expected);
    server.wait_for_log("ready");
    assert!(number_bytes(&mapping(&table, &server).unwrap(), "Rss:") >= len_bytes(&table));
    expect_all_answers(&table, &server);

    drop(server);
    let mut server = start(&table, &["--warm", "--memory", "copy"]);
    server.wait_for_log("copied into memory: ");
    server.wait_for_log(&expected);
    server.wait_for_log("ready");
}

/// Runs a function that spawns a process, without the capability that lets the process exceed the limit on locked
/// memory.
fn without_right_to_lock<T: Send>(spawn: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let limited = scope.spawn(|| {
            // Fails for a process without the right to do this, which does not have the capability either.
            let _ = remove_capability_from_bounding_set(CapabilitySet::IPC_LOCK);
            spawn()
        });
        limited.join().unwrap()
    })
}

/// Returns the command of a kv_store with `--lock`, in a shell that first sets a limit.
fn locking(table: &Table, limit: &str, options: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{limit}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_kv_store"), "--lock", "--db"]);
    command.arg(table.db()).arg("--socket").arg(table.socket()).args(options);
    command
}

#[test]
fn a_locked_file_stays_in_memory() {
    let table = Table::of_rows(ROWS);
    for options in [&[][..], &["--memory", "copy"]] {
        // The server raises its soft limit to the hard limit.
        let command = locking(&table, "ulimit -S -l 64", options);
        let mut server = without_right_to_lock(|| Server::spawn(command, &table.socket()));
        server.wait_for_log("limit of bytes of locked memory raised from 65536 to ");
        server.wait_for_log(&format!("locked in memory: {} bytes, ", len_bytes(&table)));
        server.wait_for_log("ready");
        let locked_bytes = server.status_bytes("VmLck");
        assert!(locked_bytes >= len_bytes(&table), "{locked_bytes} bytes are locked");
        expect_all_answers(&table, &server);
    }
}

#[test]
fn a_lock_beyond_the_limit_is_rejected_with_the_limit() {
    let table = Table::of_rows(ROWS);
    for options in [&[][..], &["--memory", "copy"]] {
        let mut command = locking(&table, "ulimit -l 64", options);
        let output = without_right_to_lock(|| command.env("RUST_LOG", "error").output().unwrap());
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains(&format!("locking {} bytes in memory: ", len_bytes(&table))), "{message}");
        assert!(message.contains(" is 65536: raise it (`ulimit -l`"), "{message}");
        assert!(!table.socket().exists());
    }
}
