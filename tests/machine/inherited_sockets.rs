//! Sockets that the server inherits from a service manager.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::Signal;

use crate::helpers::frames::{expect, gets};
use crate::helpers::repeating::while_threads_repeat;
use crate::helpers::servers::{Server, failure_message};
use crate::helpers::tables::{Table, answer_to_get};
use crate::helpers::trials::{Missing, require};
use crate::helpers::waiting::{PATIENCE, eventually};

/// Returns the command of a kv_store that inherits one or two sockets, as descriptors 3 and 4.
fn command_with_sockets(table: &Table, first: impl Into<OwnedFd>, second: Option<OwnedFd>) -> Command {
    let count = 1 + usize::from(second.is_some());
    let mut command = Command::new("sh");
    // The shell replaces the service manager, because LISTEN_PID is known only after the fork.
    let script = "exec 3<&0 4<&1 </dev/null >/dev/null; LISTEN_PID=$$ LISTEN_FDS=$1 && export LISTEN_PID LISTEN_FDS; \
                  shift; exec \"$0\" \"$@\"";
    command.args(["-c", script, env!("CARGO_BIN_EXE_kv_store"), &count.to_string(), "--db"]).arg(table.db());
    command.stdin(Stdio::from(first.into())).env("RUST_LOG", "info");
    command.stdout(second.map_or_else(Stdio::null, Stdio::from));
    command
}

pub(crate) fn inherited_unix_and_tcp_sockets_are_served_and_not_removed() {
    let table = Table::of_rows(10);
    let unix = UnixListener::bind(table.socket()).unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap();
    let command = command_with_sockets(&table, unix.try_clone().unwrap(), Some(tcp.try_clone().unwrap().into()));
    let mut server = Server::spawn(command, &table.socket());
    let ready = server.wait_for_log("ready");
    assert!(ready.contains(&format!("{} and {address}", table.socket().display())), "{ready}");
    let mut stream = server.connect();
    stream.write_all(&gets([3])).unwrap();
    expect(&mut stream, &answer_to_get(&table.model, 3));
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&gets([4])).unwrap();
    expect(&mut stream, &answer_to_get(&table.model, 4));
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(0));
    assert!(table.socket().exists());
    UnixStream::connect(table.socket()).unwrap();
    TcpStream::connect(address).unwrap();
}

pub(crate) fn a_restart_with_an_inherited_socket_fails_no_connection() {
    const CLIENTS: usize = 4;
    const RESTARTS: usize = 8;
    let table = Table::of_rows(10);
    let listener = UnixListener::bind(table.socket()).unwrap();
    let expected = answer_to_get(&table.model, 3);
    let answered = AtomicUsize::new(0);
    let ask = || {
        let mut stream = UnixStream::connect(table.socket()).expect("a connection attempt never fails");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut answer = vec![0; expected.len()];
        // A stopping server closes the connections that it has accepted. The client's next connection succeeds.
        if stream.write_all(&gets([3])).and_then(|()| stream.read_exact(&mut answer)).is_ok() {
            assert_eq!(answer, expected);
            answered.fetch_add(1, Ordering::Relaxed);
        }
    };
    let spawn = || Server::spawn(command_with_sockets(&table, listener.try_clone().unwrap(), None), &table.socket());
    // The last connections also wait for a server, which runs until they have ended.
    let start = |_| ask;
    let _last = while_threads_repeat(CLIENTS, start, || {
        for _ in 0..RESTARTS {
            let mut server = spawn();
            let before = answered.load(Ordering::Relaxed);
            eventually("clients are answered", || answered.load(Ordering::Relaxed) > before + 100);
            server.signal(Signal::TERM);
            assert_eq!(server.wait().code(), Some(0));
        }
        spawn()
    });
}

pub(crate) fn an_inherited_descriptor_that_cannot_be_served_is_named() {
    let table = Table::of_rows(10);
    let (connected, _other_end) = UnixStream::pair().unwrap();
    assert!(
        failure_message(command_with_sockets(&table, connected, None), 1)
            .contains("socket 1 of 1 in LISTEN_FDS: a socket that does not listen")
    );
    let (datagrams, _other_end) = UnixDatagram::pair().unwrap();
    assert!(
        failure_message(command_with_sockets(&table, datagrams, None), 1)
            .contains("neither a Unix nor a TCP stream socket")
    );
    let listener = UnixListener::bind(table.socket()).unwrap();
    let twice = listener.try_clone().unwrap();
    let message = failure_message(command_with_sockets(&table, listener.try_clone().unwrap(), Some(twice.into())), 1);
    assert!(message.contains("socket 2 of 2 in LISTEN_FDS: a second Unix socket"), "{message}");

    for (args, says) in [
        (["--mode", "0600"], "SocketMode="),
        (["--owner", "0"], "SocketUser="),
        (["--socket", "/elsewhere.sock"], "--socket is /elsewhere.sock: leave --socket out"),
    ] {
        let mut command = command_with_sockets(&table, listener.try_clone().unwrap(), None);
        command.args(args);
        let message = failure_message(command, 1);
        assert!(message.contains(says), "{message}");
    }
}

/// A count of 2^31 - 1 would take gigabytes of memory.
pub(crate) fn wrong_variables_about_inherited_sockets_are_named() {
    let table = Table::of_rows(10);
    let limited = |variables: &[(&str, &str)]| {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -v 4000000; exec \"$0\" --db \"$1\" 3<&- 4<&-", env!("CARGO_BIN_EXE_kv_store")]);
        command.arg(table.db()).envs(variables.iter().copied());
        failure_message(command, 1)
    };
    for count in ["3", "2147483647", "4294967295", "18446744073709551616", "-1", "+", "0x2", "", "1 ", "\u{1b}[2J"] {
        let message = limited(&[("LISTEN_FDS", count)]);
        let expected = format!("LISTEN_FDS is {count:?}, where a number of sockets from 0 to 2 was expected");
        assert!(message.contains(&expected), "{message}");
    }
    for first in ["0", "2", "-2147483648", "2147483646", "2147483647", "x"] {
        let message = limited(&[("LISTEN_FDS", "2"), ("LISTEN_FDS_FIRST_FD", first)]);
        let expected = format!("LISTEN_FDS_FIRST_FD is {first:?}, where a descriptor from 3 on was expected");
        assert!(message.contains(&expected), "{message}");
    }
}

/// Descriptors that nobody has passed are not confused with descriptors that the server has opened, such as its log's.
pub(crate) fn announced_descriptors_that_are_closed_are_named() {
    let table = Table::of_rows(10);
    let (log, servers_log) = UnixStream::pair().unwrap();
    for (count, first) in [(1, 3), (2, 3), (1, 9), (1, i32::MAX - 2)] {
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" --db \"$1\" 3<&- 4<&-", env!("CARGO_BIN_EXE_kv_store")]).arg(table.db());
        command.env("LISTEN_FDS", count.to_string()).env("LISTEN_FDS_FIRST_FD", first.to_string());
        // Like the journal of systemd, standard error is a Unix stream socket.
        command.stderr(OwnedFd::from(servers_log.try_clone().unwrap()));
        assert_eq!(command.status().unwrap().code(), Some(1));
        let mut message = String::new();
        BufReader::new(&log).read_line(&mut message).unwrap();
        let expected = format!("socket 1 of {count} in LISTEN_FDS: neither a Unix nor a TCP stream socket");
        assert!(message.contains(&expected), "{message}");
    }
}

pub(crate) fn an_inherited_tcp_socket_beyond_loopback_requires_an_option() {
    let table = Table::of_rows(10);
    let tcp = TcpListener::bind("0.0.0.0:0").unwrap();
    let refused = command_with_sockets(&table, tcp.try_clone().unwrap(), None);
    assert!(failure_message(refused, 1).contains("pass --tcp-exposed"));
    let mut exposed = command_with_sockets(&table, tcp, None);
    exposed.arg("--tcp-exposed").arg("--socket").arg(table.socket());
    let server = Server::of(exposed, &table.socket());
    let mut stream = server.connect();
    stream.write_all(&gets([3])).unwrap();
    expect(&mut stream, &answer_to_get(&table.model, 3));
}

pub(crate) fn sockets_passed_to_another_process_are_ignored() {
    let table = Table::of_rows(10);
    let mut command = table.command(&[]);
    command.env("LISTEN_FDS", "1").env("LISTEN_PID", "1");
    let server = Server::of(command, &table.socket());
    let mut stream = server.connect();
    stream.write_all(&gets([3])).unwrap();
    expect(&mut stream, &answer_to_get(&table.model, 3));
}

pub(crate) fn systemd_socket_activate_starts_a_server() -> Result<(), Missing> {
    let table = Table::of_rows(10);
    require("systemd-socket-activate", "--version")?;
    let mut command = Command::new("systemd-socket-activate");
    command.arg("--listen").arg(table.socket()).arg(env!("CARGO_BIN_EXE_kv_store")).arg("--db").arg(table.db());
    let server = Server::spawn(command, &table.socket());
    eventually("a server listens", || UnixStream::connect(table.socket()).is_ok());
    let mut stream = server.connect();
    stream.write_all(&gets([3])).unwrap();
    expect(&mut stream, &answer_to_get(&table.model, 3));
    Ok(())
}
