//! The start of `kv_store`, the files and sockets that it rejects, and its stop.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::process::Signal;

use crate::helpers::frames::{expect, gets};
use crate::helpers::servers::{Server, kv_store};
use crate::helpers::tables::{Model, Table, answer_to_get, answers_to_gets, bake};
use crate::helpers::waiting::eventually;

/// Runs a kv_store that cannot start. Returns its standard error.
fn refused(db: &Path, socket: &Path) -> String {
    let output: Output = kv_store(db, socket).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(message.lines().count(), 1, "one clear line: {message}");
    assert!(message.starts_with("kv_store: "), "{message}");
    message
}

#[test]
fn a_file_that_cannot_be_served_is_named_with_the_reason() {
    let table = Table::of_rows(10);
    let folder = table.folder.path();
    let socket = table.socket();

    let missing = folder.join("missing.db");
    let message = refused(&missing, &socket);
    assert!(message.contains(missing.to_str().unwrap()) && message.contains("No such file"), "{message}");
    assert!(message.contains("bake one with `baker input.csv`"), "{message}");

    assert!(refused(folder, &socket).contains("not a regular file"));

    let text = folder.join("text.db");
    fs::write(&text, "1,one\n".repeat(1000)).unwrap();
    assert!(refused(&text, &socket).contains("bake one with"));

    let mut bytes = fs::read(table.db()).unwrap();
    fs::write(&text, &bytes[..bytes.len() - 1]).unwrap();
    assert!(refused(&text, &socket).contains("truncated"));

    // The server finds a damaged value before it creates the socket.
    let at = bytes.windows(5).position(|window| window == b"key_7").unwrap();
    bytes[at] ^= 1;
    fs::write(&text, &bytes).unwrap();
    assert!(refused(&text, &socket).contains("block 0 of the records"));
    assert!(!socket.exists());
}

#[test]
fn an_unusable_socket_path_is_named_with_the_reason() {
    let table = Table::of_rows(10);
    let folder = table.folder.path();

    let long = folder.join("s".repeat(120));
    let message = refused(&table.db(), &long);
    assert!(message.contains("at most 107 fit") && message.contains(&long.as_os_str().len().to_string()), "{message}");

    let message = refused(&table.db(), &folder.join("no/such/folder.sock"));
    assert!(message.contains("create it, or choose another path"), "{message}");

    let file = folder.join("file");
    fs::write(&file, "precious").unwrap();
    assert!(refused(&table.db(), &file).contains("is not a socket"));
    assert_eq!(fs::read(&file).unwrap(), b"precious");
    assert!(refused(&table.db(), &file.join("s.sock")).contains("is not a folder"));
    assert!(refused(&table.db(), &folder.join("s.sock/")).contains("ends in a slash"));
    assert!(refused(&table.db(), folder).contains("is not a socket"));
}

#[test]
fn usage_errors_exit_with_2() {
    for args in [&["--no-such-option"][..], &["--workers", "0"], &["--workers", "many"], &["a.db", "stray"]] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_kv_store")).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn the_socket_of_a_running_server_is_not_taken_over() {
    let table = Table::of_rows(10);
    let mut server = table.serve();
    assert!(refused(&table.db(), &table.socket()).contains("another server listens on it"));
    let mut stream = server.connect();
    stream.write_all(&gets([3])).unwrap();
    expect(&mut stream, &answer_to_get(&table.model, 3));
    assert!(server.is_alive());
}

#[test]
fn the_socket_of_a_server_too_busy_to_accept_is_not_taken_over() {
    let table = Table::of_rows(10);
    let listener = UnixListener::bind(table.socket()).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let _fills_the_queue = UnixStream::connect(table.socket()).unwrap();
    assert!(refused(&table.db(), &table.socket()).contains("another server listens on it"));
}

#[test]
fn a_socket_left_by_a_dead_server_is_taken_over() {
    let table = Table::of_rows(10);
    let mut killed = table.serve();
    killed.signal(Signal::KILL);
    killed.wait();
    assert!(table.socket().exists());

    let server = table.serve();
    let mut stream = server.connect();
    stream.write_all(&gets([3])).unwrap();
    expect(&mut stream, &answer_to_get(&table.model, 3));
}

#[test]
fn a_server_that_stops_on_a_signal_removes_its_socket_and_exits_with_0() {
    for signal in [Signal::INT, Signal::TERM] {
        let table = Table::of_rows(10);
        let mut server = table.serve();
        let mut idle = server.connect();
        idle.write_all(&gets([3])).unwrap();
        expect(&mut idle, &answer_to_get(&table.model, 3));
        server.signal(signal);
        assert_eq!(server.wait().code(), Some(0));
        assert!(!table.socket().exists());
        assert_eq!(idle.read(&mut [0]).unwrap(), 0, "the connection is closed");
    }
}

#[test]
fn the_file_can_be_an_argument_and_the_socket_a_variable() {
    let table = Table::of_rows(10);
    let mut command = Command::new(env!("CARGO_BIN_EXE_kv_store"));
    command.arg(table.db()).env("ZERO_KV_SOCKET", table.socket()).env("KV_STORE_DB", "/missing.db");
    let printed = command.arg("--print-config").output().unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    for (name, value, origin) in [("db", table.db(), "command line"), ("socket", table.socket(), "ZERO_KV_SOCKET")] {
        let line = format!("{name} = \"{}\"  # {origin}", value.display());
        assert!(printed.lines().any(|found| found == line), "{line}: {printed}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_kv_store"));
    command.arg(table.db()).env("ZERO_KV_SOCKET", table.socket()).env("RUST_LOG", "info");
    let server = Server::of(command, &table.socket());
    let mut stream = server.connect();
    stream.write_all(&gets([3])).unwrap();
    expect(&mut stream, &answer_to_get(&table.model, 3));
}

#[test]
fn an_invalid_number_is_rejected_with_the_numbers_that_are_allowed() {
    for (option, value, expected) in [
        ("--workers", "0", "expected a number of at least 1"),
        ("--workers", "two", "expected a number of at least 1"),
        ("--max-connections", "0", "expected a number of at least 1"),
        ("--idle-timeout", "-1", "expected 0 to 4294967295 seconds, such as 10, or a time with its unit"),
        ("--spin", "x", "expected 0 to 1000000000000 microseconds, such as 10, or a time with its unit"),
        ("--tcp", "6399", "expected an IP address and a port, such as 127.0.0.1:6399 or [::1]:6399"),
        ("--tcp", "localhost:6399", "such as 127.0.0.1:6399 or [::1]:6399"),
        ("--tls", "6399", "such as 127.0.0.1:6399 or [::1]:6399"),
        ("--metrics", "9464", "such as 127.0.0.1:9464 or [::1]:9464"),
        ("--keep", "0", "0 is not in 1..=65535"),
    ] {
        if option == "--tls" && !cfg!(feature = "tls") {
            continue;
        }
        let output =
            kv_store(Path::new("a.db"), Path::new("a.sock")).arg(format!("{option}={value}")).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(&format!("invalid value '{value}' for '{option} <")), "{message}");
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_server_can_be_stopped_once_it_logs_ready() {
    let table = Table::of_rows(10);
    for _ in 0..50 {
        let mut server = table.serve();
        server.signal(Signal::TERM);
        assert_eq!(server.wait().code(), Some(0));
        assert_eq!(fs::read_dir(table.folder.path()).unwrap().count(), 1, "the file and nothing else");
    }
}

#[test]
fn one_of_several_servers_that_start_on_a_stale_socket_serves() {
    let table = Table::of_rows(10);
    drop(UnixListener::bind(table.socket()).unwrap());
    let mut servers: Vec<_> =
        (0..8).map(|_| table.command(&[]).stderr(std::process::Stdio::piped()).spawn().unwrap()).collect();
    // All servers but one exit, and the remaining one answers.
    eventually("one server remains", || {
        let left = servers.iter_mut().filter_map(|server| server.try_wait().unwrap().is_none().then_some(())).count();
        left == 1
    });
    let mut stream = UnixStream::connect(table.socket()).unwrap();
    stream.write_all(&gets([3])).unwrap();
    expect(&mut stream, &answer_to_get(&table.model, 3));
    for mut server in servers {
        let _ = server.kill();
        let _ = server.wait();
    }
}

#[test]
fn a_stopping_server_does_not_remove_the_socket_of_its_successor() {
    let table = Table::of_rows(10);
    let mut server = table.serve();
    fs::remove_file(table.socket()).unwrap();
    let _successor = UnixListener::bind(table.socket()).unwrap();
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(0));
    assert!(table.socket().exists());
}

#[test]
fn a_stopping_server_sends_its_pending_responses() {
    // The responses do not fit into the socket, so the server waits for the client in the middle of one.
    let table = Table::new((0..300).map(|key| (key, vec![b'v'; 5000])));
    let mut server = table.serve();
    let mut stream = server.connect();
    stream.write_all(&gets(0..300)).unwrap();
    let expected = answers_to_gets(&table.model, 0..300);
    // The server read all requests at once, so a byte of a response shows that it has read them all.
    expect(&mut stream, &expected[..1]);
    server.signal(Signal::TERM);
    expect(&mut stream, &expected[1..]);
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_client_that_does_not_read_does_not_prevent_a_server_from_stopping() {
    let table = Table::new((0..300).map(|key| (key, vec![b'v'; 5000])));
    let mut server = table.serve();
    let mut stream = server.connect();
    stream.write_all(&gets(0..300)).unwrap();
    stream.read_exact(&mut [0]).unwrap();
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(0));
    drop(stream);
}

#[test]
fn a_bake_over_the_served_file_is_served_without_a_pause() {
    let table = Table::of_rows(1000);
    let server = table.serve();
    let mut stream = server.connect();
    let mut older = table.model.clone();
    for letter in [b'a', b'b', b'c'] {
        // The new values have the lengths of the old ones, so the length of the responses is known.
        let newer: Model = older.iter().map(|(key, value)| (*key, vec![letter; value.len()])).collect();
        bake(&newer, &table.db());
        let [old, new] = [&older, &newer].map(|model| answers_to_gets(model, 1..=1000));
        let mut found = vec![0; old.len()];
        eventually("the new file is served", || {
            stream.write_all(&gets(1..=1000)).unwrap();
            stream.read_exact(&mut found).unwrap();
            assert!(found == old || found == new, "the responses come from both files");
            found == new
        });
        older = newer;
    }
}

#[test]
fn a_new_file_is_served_while_a_process_has_the_old_one_open_for_writing() {
    let table = Table::of_rows(10);
    let server = table.serve();
    let _writer = fs::File::options().write(true).open(table.db()).unwrap();
    let newer: Model = [(1, b"newer".to_vec())].into();
    bake(&newer, &table.db());
    let mut stream = server.connect();
    eventually("the new file is served", || {
        // Only the old table has this key.
        stream.write_all(&gets([10])).unwrap();
        let mut status = [0; 8];
        stream.read_exact(&mut status).unwrap();
        let mut value = vec![0; status[7].into()];
        stream.read_exact(&mut value).unwrap();
        status[3] == 1
    });
    stream.write_all(&gets([1])).unwrap();
    expect(&mut stream, &answer_to_get(&newer, 1));
}

/// Returns the processor time of each worker so far, in nanoseconds.
fn worker_times_ns(server: &Server) -> Vec<u64> {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.id())).unwrap();
    let of_task = |task: PathBuf| {
        let is_worker = fs::read_to_string(task.join("comm")).unwrap().starts_with("worker-");
        let times = fs::read_to_string(task.join("schedstat")).unwrap();
        is_worker.then(|| times.split(' ').next().unwrap().parse().unwrap())
    };
    tasks.filter_map(|task| of_task(task.unwrap().path())).collect()
}

#[test]
fn every_worker_answers() {
    let table = Table::of_rows(100);
    let server = table.serve_with(&["--workers", "4"]);
    let mut streams: Vec<_> = (0..16).map(|_| server.connect()).collect();
    let mut ask_all = || {
        for (key, stream) in (90..).zip(&mut streams) {
            stream.write_all(&gets([key])).unwrap();
        }
        for (key, stream) in (90..).zip(&mut streams) {
            expect(stream, &answer_to_get(&table.model, key));
        }
    };
    // After the first round, each worker has all its connections.
    ask_all();
    let before = worker_times_ns(&server);
    assert_eq!(before.len(), 4);
    eventually("every worker has answered a request", || {
        ask_all();
        worker_times_ns(&server).iter().zip(&before).all(|(now_ns, then_ns)| now_ns > then_ns)
    });
}

#[test]
fn a_server_out_of_descriptors_keeps_serving_and_accepts_again() {
    let table = Table::of_rows(10);
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -n 40; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_kv_store"), "--db"]);
    command.arg(table.db()).arg("--socket").arg(table.socket()).args(["--max-connections", "1000"]);
    let mut server = Server::spawn(command, &table.socket());
    server.wait_for_log("1000 connections need more descriptors than the limit leaves");
    server.wait_for_log("ready");
    let mut first = server.connect();
    // The kernel queues these connections, whether or not the server can accept them.
    let more: Vec<_> = (0..60).map(|_| server.connect()).collect();
    server.wait_for_log("cannot accept a connection");
    first.write_all(&gets([3])).unwrap();
    expect(&mut first, &answer_to_get(&table.model, 3));
    drop(more);
    let mut last = server.connect();
    last.write_all(&gets([4])).unwrap();
    expect(&mut last, &answer_to_get(&table.model, 4));
}
