//! Access control: modes, owners, and users of sockets.

use std::fs::{self, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{Signal, getgid, getuid};

use crate::helpers::frames::{expect, gets};
use crate::helpers::repeating::while_threads_repeat;
use crate::helpers::servers::{Server, failure_message, kv_store};
use crate::helpers::shared_program::SharedProgram;
use crate::helpers::tables::{Table, answer_to_get};
use crate::helpers::waiting::{PATIENCE, eventually};

/// A user and a group that no test runs as.
const OTHER: u32 = 4321;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn assert_answered(mut stream: UnixStream, table: &Table) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&gets([3])).unwrap();
    expect(&mut stream, &answer_to_get(&table.model, 3));
}

/// Asserts that the server closes the connection without a response.
fn assert_rejected(mut stream: UnixStream) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the server did not close the connection");
}

#[test]
fn owner_and_group_may_connect_by_default_for_any_umask() {
    let table = Table::of_rows(10);
    for umask in ["0", "0022", "0777"] {
        for (args, expected) in
            [(&[][..], 0o660), (&["--mode", "0600"], 0o600), (&["--mode", "666"], 0o666), (&["--mode", "0"], 0)]
        {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("umask {umask}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_kv_store"), "--db"]);
            command.arg(table.db()).arg("--socket").arg(table.socket()).args(args);
            let mut server = Server::of(command, &table.socket());
            assert_eq!(mode(&table.socket()), expected, "umask {umask}, {args:?}");
            server.signal(Signal::TERM);
            assert_eq!(server.wait().code(), Some(0));
        }
    }
}

#[test]
fn nobody_connects_before_the_mode_is_set() {
    let table = Table::of_rows(10);
    for _ in 0..30 {
        let server = Server::spawn(table.command(&["--mode", "0606"]), &table.socket());
        eventually("the server listens", || UnixStream::connect(table.socket()).is_ok());
        assert_eq!(mode(&table.socket()), 0o606);
        drop(server);
    }
}

#[test]
fn an_invalid_mode_user_or_group_is_a_usage_error() {
    let table = Table::of_rows(10);
    for (args, says) in [
        (["--mode", "rw"], "expected three octal digits"),
        (["--mode", "01777"], "expected three octal digits"),
        (["--mode", "680"], "expected three octal digits"),
        (["--owner", "no such user"], "`getent passwd` lists"),
        (["--group", "no such group"], "`getent group` lists"),
        (["--allow-uid", "0,no such user"], "`getent passwd` lists"),
        (["--allow-gid", "4294967295"], "`getent group` lists"),
        (["--owner", "-1"], "unexpected argument"),
    ] {
        let command = table.command(&args);
        let message = failure_message(command, 2);
        assert!(message.contains(says), "{args:?}: {message}");
    }
}

#[test]
fn owner_and_group_that_cannot_be_set_are_named() {
    let table = Table::of_rows(10);
    let folder = table.folder.path();
    // A user other than root must be able to reach all files.
    fs::set_permissions(folder, Permissions::from_mode(0o777)).unwrap();
    let program = SharedProgram::copy(env!("CARGO_BIN_EXE_kv_store"));
    for (option, says) in [("--owner", "CAP_CHOWN"), ("--group", "make the server's user a member")] {
        let mut command = Command::new(program.path());
        command.arg("--db").arg(table.db()).arg("--socket").arg(table.socket()).args([option, "0"]);
        command.env("RUST_LOG", "error");
        if getuid().is_root() {
            command.uid(OTHER).gid(OTHER);
        }
        let message = failure_message(command, 1);
        assert!(message.contains("cannot be assigned to") && message.contains(says), "{message}");
        assert!(!table.socket().exists(), "nothing is left behind");
    }
}

#[test]
fn peers_are_served_by_user_or_by_group() {
    let table = Table::of_rows(10);
    let (uid, gid) = (getuid().as_raw().to_string(), getgid().as_raw().to_string());
    for args in [
        &["--allow-uid", &uid][..],
        &["--allow-gid", &gid],
        &["--allow-uid", &format!("4321,{uid}")],
        &["--allow-uid", "4321", "--allow-gid", "4321", "--allow-gid", &gid],
    ] {
        assert_answered(table.serve_with(args).connect(), &table);
    }
}

#[test]
fn other_peers_are_closed_at_once_and_logged_once_a_second() {
    let table = Table::of_rows(10);
    for args in [&["--allow-uid", "4321"][..], &["--allow-gid", "4321"], &["--allow-uid=4321", "--allow-gid=4321"]] {
        let mut server = table.serve_with(args);
        for _ in 0..100 {
            assert_rejected(server.connect());
        }
        let line = server.wait_for_log("a connection was refused");
        let (uid, pid) = (getuid().as_raw(), std::process::id());
        for part in [format!("uid={uid}"), format!("pid={pid}"), "left_out=0".to_owned()] {
            assert!(line.contains(&part), "{part}: {line}");
        }
        // The log has no lines for the peers between the two lines.
        let is_rejected = || assert_rejected(UnixStream::connect(table.socket()).unwrap());
        let line = while_threads_repeat(1, |_| is_rejected, || server.wait_for_log("a connection was refused"));
        assert!(!line.contains("left_out=0"), "{line}");
        server.signal(Signal::TERM);
        assert_eq!(server.wait().code(), Some(0));
    }
}

#[test]
fn the_lock_file_follows_no_link_and_changes_no_file_of_others() {
    let table = Table::of_rows(10);
    let target = table.folder.path().join("target");
    let lock = table.folder.path().join("s.sock.lock");

    std::os::unix::fs::symlink(&target, &lock).unwrap();
    let message = failure_message(table.command(&[]), 1);
    assert!(message.contains("is a symbolic link") && message.contains("remove the file"), "{message}");
    assert!(!target.exists(), "the link's target was created");
    fs::remove_file(&lock).unwrap();

    fs::write(&target, "kept").unwrap();
    fs::set_permissions(&target, Permissions::from_mode(0o640)).unwrap();
    fs::hard_link(&target, &lock).unwrap();
    let message = failure_message(table.command(&[]), 1);
    assert!(message.contains("has 2 names"), "{message}");
    assert_eq!((mode(&target), fs::read(&target).unwrap()), (0o640, b"kept".to_vec()));
    fs::remove_file(&lock).unwrap();

    rustix::fs::mknodat(rustix::fs::CWD, &lock, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let message = failure_message(table.command(&[]), 1);
    assert!(message.contains("is not a regular file"), "{message}");
    assert!(!table.socket().exists());
    fs::remove_file(&lock).unwrap();

    assert_answered(table.serve().connect(), &table);
    assert!(!lock.exists(), "the lock is removed once the server listens");
}

#[test]
fn an_abstract_name_is_served_only_with_its_option() {
    let table = Table::of_rows(10);
    let name = format!("zero-kv-{}", table.folder.path().file_name().unwrap().to_str().unwrap());
    let socket = format!("@{name}");
    let command = |args: &[&str]| {
        let mut command = kv_store(&table.db(), Path::new(&socket));
        command.args(args).current_dir(table.folder.path());
        command
    };
    let message = failure_message(command(&[]), 1);
    assert!(message.contains("no owner and no mode") && message.contains("pass --abstract"), "{message}");
    for args in [["--mode", "0600"], ["--owner", "0"], ["--group", "0"]] {
        failure_message(command(&[&["--abstract"], &args[..]].concat()), 2);
    }
    let plain = table.command(&["--abstract"]);
    assert!(failure_message(plain, 1).contains("--abstract [Config::abstract_socket] requires a --socket"));

    let mut server = Server::of(command(&["--abstract"]), Path::new(&socket));
    let connect = || UnixStream::connect_addr(&SocketAddr::from_abstract_name(&name).unwrap());
    assert_answered(connect().unwrap(), &table);
    assert!(failure_message(command(&["--abstract"]), 1).contains("another server has this name"));
    assert_eq!(fs::read_dir(table.folder.path()).unwrap().count(), 1, "the table and nothing else");
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(0));
    assert_eq!(connect().unwrap_err().kind(), ErrorKind::ConnectionRefused);

    drop(server);
    let server = Server::of(command(&["--abstract", "--allow-uid", "4321"]), Path::new(&socket));
    assert_rejected(connect().unwrap());
    drop(server);
}
