//! Limits and timeouts, and clients that exceed them.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::helpers::frames::{answer, expect, expect_end, gets, read_until_closed, request};
use crate::helpers::reference_server::long;
use crate::helpers::servers::Server;
use crate::helpers::tables::{Model, Table, answer_to_get, answers_to_gets, bake};
use crate::helpers::waiting::eventually;

/// Returns a table whose responses do not fit into a socket.
fn long_table() -> Table {
    Table::new((0..300).map(|key| (key, format!("{key:05}").repeat(4000).into_bytes())))
}

fn serve(table: &Table, options: &[&str]) -> Server {
    let mut command = table.command(&[]);
    command.args(["--workers", "1"]).args(options);
    let mut server = Server::spawn(command, &table.socket());
    let ready = server.wait_for_log("ready");
    assert!(ready.contains(" workers=1"), "{ready}");
    server
}

/// Requests Info on an existing connection, and returns the value of a field.
fn info(stream: &mut UnixStream, name: &str) -> String {
    stream.write_all(&request(6, 0)).unwrap();
    let mut header = [0; 8];
    stream.read_exact(&mut header).unwrap();
    let mut text = vec![0; u32::from_be_bytes(header[4..].try_into().unwrap()) as usize];
    stream.read_exact(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let mut values = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    values.next().unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
}

fn ask(stream: &mut UnixStream, table: &Table, key: u64) {
    stream.write_all(&gets([key])).unwrap();
    expect(stream, &answer_to_get(&table.model, key));
}

fn setting(server: &Server, name: &str) -> String {
    let mut stream = server.connect();
    stream.write_all(format!("CONFIG GET {name}\r\nQUIT\r\n").as_bytes()).unwrap();
    let reply = String::from_utf8(read_until_closed(&mut stream)).unwrap();
    reply.split("\r\n").nth(4).unwrap().to_owned()
}

/// The pauses of a client between its steps.
struct Pauses {
    last_step: Instant,
    longest: Duration,
}

impl Pauses {
    fn pause(&mut self, pause: Duration) {
        sleep(pause);
        self.longest = self.longest.max(self.last_step.elapsed());
        self.last_step = Instant::now();
    }
}

/// Runs a client again until a run has no pause longer than `pause_max`, because a busy machine makes pauses longer.
/// Only the result of that run counts.
fn at_a_pace(pause_max: Duration, mut client: impl FnMut(&mut Pauses) -> io::Result<()>) {
    eventually("the client keeps its pace", || {
        let mut pauses = Pauses { last_step: Instant::now(), longest: Duration::ZERO };
        let result = client(&mut pauses);
        let kept_pace = pauses.longest.max(pauses.last_step.elapsed()) < pause_max;
        if kept_pace {
            result.unwrap();
        }
        kept_pace
    });
}

/// Reads as many bytes as are expected, and compares them.
fn read_expected(stream: &mut UnixStream, expected: &[u8]) -> io::Result<()> {
    let mut found = vec![0; expected.len()];
    stream.read_exact(&mut found)?;
    assert!(found == expected);
    Ok(())
}

#[test]
fn a_client_that_does_not_read_is_disconnected_and_others_are_not() {
    let table = long_table();
    let mut server = serve(&table, &["--stall-timeout", "1"]);
    let mut other = server.connect();
    ask(&mut other, &table, 7);
    let (mut native, mut redis) = (server.connect(), server.connect());
    native.write_all(&gets(0..300)).unwrap();
    redis.write_all("GET 5\r\n".repeat(300).as_bytes()).unwrap();
    for _ in 0..2 {
        let line = server.wait_for_log("disconnected: stalled: received none of");
        let peer = format!("pid {} uid {}", std::process::id(), rustix::process::getuid().as_raw());
        assert!(line.contains(&peer) && line.contains("bytes of pending responses for 1 s"), "{line}");
    }
    // The bytes that arrived are a prefix of the expected responses.
    let expected = answers_to_gets(&table.model, 0..300);
    let came = read_until_closed(&mut native);
    assert!(came.len() < expected.len() && expected.starts_with(&came));
    let reply = [b"$20000\r\n", &table.model[&5][..], b"\r\n"].concat();
    let came = read_until_closed(&mut redis);
    assert!(came.len() < 300 * reply.len() && reply.repeat(300).starts_with(&came));
    ask(&mut other, &table, 8);
    assert_eq!(info(&mut other, "connections_cut_stalled"), "2");
    assert_eq!(info(&mut other, "connections_cut_idle"), "0");
    assert_eq!(info(&mut other, "connections"), "1");
}

#[test]
fn an_incomplete_request_ends_its_connection() {
    let table = Table::of_rows(10);
    let mut server = serve(&table, &["--stall-timeout", "1"]);
    let mut other = server.connect();
    for (part, len_bytes) in [(&gets([3])[..9], 9), (b"*2\r\n$3\r\nGET\r\n$1", 15), (b"GE", 2)] {
        let mut stream = server.connect();
        // A complete request comes first and is answered.
        let (whole, reply) = match part[0] {
            0 => (gets([4]), answer_to_get(&table.model, 4)),
            _ => (b"PING\r\n".to_vec(), b"+PONG\r\n".to_vec()),
        };
        stream.write_all(&[&whole, part].concat()).unwrap();
        let line = server.wait_for_log("disconnected: stalled:");
        assert!(line.contains(&format!(" {len_bytes} bytes of a request arrived, and no more for 1 s")), "{line}");
        expect_end(&mut stream, &reply);
    }
    assert_eq!(info(&mut other, "connections_cut_stalled"), "3");
}

#[test]
fn a_client_that_sends_one_byte_at_a_time_is_not_disconnected() {
    let table = Table::of_rows(10);
    let server = serve(&table, &["--stall-timeout", "3"]);
    at_a_pace(Duration::from_secs(2), |pauses| {
        let mut stream = server.connect();
        for byte in gets([3]) {
            stream.write_all(&[byte])?;
            pauses.pause(Duration::from_millis(400));
        }
        read_expected(&mut stream, &answer_to_get(&table.model, 3))
    });
}

#[test]
fn a_client_that_reads_slowly_is_not_disconnected() {
    let table = long_table();
    let server = serve(&table, &["--stall-timeout", "3"]);
    let expected = answers_to_gets(&table.model, 0..300);
    at_a_pace(Duration::from_secs(2), |pauses| {
        let mut stream = server.connect();
        stream.write_all(&gets(0..300))?;
        for part in expected.chunks(expected.len() / 25 + 1) {
            read_expected(&mut stream, part)?;
            pauses.pause(Duration::from_millis(250));
        }
        Ok(())
    });
}

#[test]
fn a_client_that_reads_below_the_minimum_rate_is_disconnected() {
    let table = long_table();
    let keys = || (0..1024).map(|key| key % 300);
    let (requests, expected) = (gets(keys()), answers_to_gets(&table.model, keys()));
    // With longer pauses, the server may disconnect the client as stalled instead.
    at_a_pace(Duration::from_secs(2), |pauses| {
        // Over two stall timeouts, no client that pauses between reads reaches this rate.
        let mut server = serve(&table, &["--stall-timeout", "3", "--min-drain-rate", "100MiB"]);
        let mut other = server.connect();
        let mut slow = server.connect();
        slow.write_all(&requests)?;
        let (mut came, mut part) = (Vec::new(), vec![0; 64 << 10]);
        loop {
            match slow.read(&mut part) {
                Ok(0) => break,
                Ok(len_bytes) => came.extend_from_slice(&part[..len_bytes]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => return Err(error),
            }
            pauses.pause(Duration::from_millis(40));
        }
        assert!(came.len() < expected.len() && expected.starts_with(&came), "{} of {}", came.len(), expected.len());
        let line = server.wait_for_log("disconnected: s");
        let reason = "bytes in 6 s, where at least 629145600 were expected (--min-drain-rate \
                      [Limits::drain_rate_min_bytes_per_s])";
        if !line.contains("disconnected: slow: while responses were pending, received and sent ")
            || !line.contains(reason)
        {
            return Err(io::Error::other(line));
        }
        ask(&mut other, &table, 7);
        assert_eq!(info(&mut other, "connections_cut_slow"), "1");
        assert_eq!(info(&mut other, "connections_cut_stalled"), "0");
        Ok(())
    });
}

#[test]
fn an_idle_client_is_disconnected_after_the_idle_timeout() {
    let table = Table::of_rows(10);
    let mut server = serve(&table, &["--idle-timeout", "1"]);
    assert_eq!(setting(&server, "timeout"), "1");
    let mut silent = server.connect();
    let mut quiet = server.connect();
    ask(&mut quiet, &table, 3);
    for _ in 0..2 {
        let line = server.wait_for_log("disconnected: idle: sent no request for 1 s");
        assert!(line.contains(&format!("pid {}", std::process::id())), "{line}");
    }
    expect_end(&mut silent, b"");
    expect_end(&mut quiet, b"");
    assert_eq!(info(&mut server.connect(), "connections_cut_idle"), "2");
}

#[test]
fn a_server_that_was_stopped_by_a_signal_disconnects_nobody() {
    let table = Table::of_rows(10);
    let server = serve(&table, &["--idle-timeout", "3"]);
    let mut stream = server.connect();
    ask(&mut stream, &table, 3);
    server.signal(Signal::STOP);
    let other_table = Table::of_rows(10);
    let mut running = serve(&other_table, &["--idle-timeout", "3"]);
    let _idle = running.connect();
    running.wait_for_log("disconnected: idle");
    server.signal(Signal::CONT);
    ask(&mut stream, &table, 4);
    assert_eq!(info(&mut stream, "connections_cut_idle"), "0");
}

#[test]
fn many_simultaneous_disconnections_are_all_counted_in_few_log_lines() {
    const CLIENTS: usize = 60;
    let table = Table::of_rows(10);
    let mut server = serve(&table, &["--idle-timeout", "2"]);
    // The clients connect to a stopped server, which accepts them all at once when it continues.
    server.signal(Signal::STOP);
    let streams: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
    server.signal(Signal::CONT);
    let (mut disconnected, mut lines) = (0, 0);
    while disconnected < CLIENTS {
        let line = server.wait_for_log("disconnected: ");
        let after = line.split("disconnected: ").nth(1).unwrap();
        disconnected += after.split(' ').next().unwrap().parse::<usize>().unwrap_or(1);
        lines += 1;
    }
    assert_eq!(disconnected, CLIENTS);
    assert!(lines <= CLIENTS / 2, "{lines} lines");
    drop(streams);
    assert_eq!(info(&mut server.connect(), "connections_cut_idle"), CLIENTS.to_string());
}

#[test]
fn a_connection_beyond_the_limit_is_closed_until_another_one_ends() {
    let table = Table::of_rows(10);
    let mut server = table.serve_with(&["--workers", "2", "--max-connections", "3", "--tcp", "127.0.0.1:0"]);
    let address = server.tcp();
    assert_eq!(setting(&server, "maxclients"), "3");
    let mut streams: Vec<_> = (0..2).map(|_| server.connect()).collect();
    streams.iter_mut().for_each(|stream| ask(stream, &table, 3));
    // The connection that requested the setting may still be open.
    eventually("the third connection is accepted", || info(&mut streams[0], "connections") == "2");
    let mut third = TcpStream::connect(address).unwrap();
    third.write_all(b"PING\r\n").unwrap();
    expect(&mut third, b"+PONG\r\n");

    let mut unix = server.connect();
    expect_end(&mut unix, b"");
    let line = server
        .wait_for_log("refused: the server already has 3 connections (--max-connections [Limits::connections_max])");
    assert!(line.contains(&format!("pid {}", std::process::id())), "{line}");
    let mut tcp = TcpStream::connect(address).unwrap();
    expect_end(&mut tcp, b"");
    assert_eq!(info(&mut streams[0], "connections_refused"), "2");
    streams.iter_mut().for_each(|stream| ask(stream, &table, 4));

    drop(third);
    eventually("a connection slot is free again", || info(&mut streams[0], "connections") == "2");
    ask(&mut server.connect(), &table, 5);
}

#[test]
fn connections_leave_descriptors_for_a_new_file() {
    let table = Table::of_rows(10);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 200; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_kv_store"), "--workers", "1", "--db"]);
    command.arg(table.db()).arg("--socket").arg(table.socket());
    let server = Server::of(command, &table.socket());
    // docs/operations/limits.md specifies the reserved descriptors: 64, and 4 for each worker.
    assert_eq!(setting(&server, "maxclients"), "132");
    let mut streams = Vec::new();
    eventually("132 connections are open", || {
        let mut stream = server.connect();
        if stream.write_all(&gets([3])).is_ok() && stream.read_exact(&mut [0; 8]).is_ok() {
            expect(&mut stream, &table.model[&3]);
            streams.push(stream);
        }
        streams.len() == 132
    });
    expect_end(&mut server.connect(), b"");
    let newer: Model = (1..=10).map(|key| (key, b"newer".to_vec())).collect();
    let beside = table.folder.path().join("newer.db");
    bake(&newer, &beside);
    fs::rename(beside, table.db()).unwrap();
    eventually("the new file is served", || info(&mut streams[0], "generation") == "2");
    for stream in &mut streams {
        stream.write_all(&gets([3])).unwrap();
        expect(stream, &answer_to_get(&newer, 3));
    }
}

#[test]
fn a_stalled_client_keeps_an_old_file_no_longer_than_its_timeout() {
    let table = long_table();
    let mut server = serve(&table, &["--stall-timeout", "2"]);
    let mut other = server.connect();
    let mut stalled = server.connect();
    stalled.write_all(&gets(0..300)).unwrap();
    stalled.read_exact(&mut [0]).unwrap();
    let beside = table.folder.path().join("newer.db");
    bake(&Model::from([(7, b"newer".to_vec())]), &beside);
    fs::rename(beside, table.db()).unwrap();
    eventually("the new file is served", || info(&mut other, "generation") == "2");
    server.wait_for_log("disconnected: stalled: received none of");
    eventually("the old file is gone", || !server.proc("maps").contains("storage.db (deleted)"));
}

#[test]
fn a_command_that_does_not_fit_its_buffer_ends_its_connection() {
    let table = Table::of_rows(10);
    let mut server = serve(&table, &["--buffer", "256KiB"]);
    assert_eq!(setting(&server, "client-query-buffer-limit"), "262144");
    // A command that fits is answered.
    let mut stream = server.connect();
    let fitting = "x".repeat(250_000);
    stream.write_all(format!("*2\r\n$4\r\nECHO\r\n$250000\r\n{fitting}\r\n").as_bytes()).unwrap();
    expect(&mut stream, format!("$250000\r\n{fitting}\r\n").as_bytes());
    let mut command = b"*2\r\n$3\r\nGET\r\n$300000\r\n".to_vec();
    command.resize(270_000, b'x');
    stream.write_all(&command).unwrap();
    // The server does not read later bytes.
    assert_eq!(read_until_closed(&mut stream), b"-ERR Protocol error: too big command, the limit is 262144 bytes\r\n");
    let line = server.wait_for_log(
        "disconnected: a command exceeds the buffer of 262144 bytes (--buffer [Limits::buffer_max_bytes])",
    );
    assert!(line.contains(&format!("pid {}", std::process::id())), "{line}");
}

/// Writes requests that the server refuses, all of them before the client reads, and then reads to the end.
fn write_before_reading(mut stream: impl Read + Write, requests: &[u8]) -> Vec<u8> {
    stream.write_all(requests).unwrap();
    let mut responses = Vec::new();
    stream.read_to_end(&mut responses).unwrap();
    responses
}

#[test]
fn a_client_that_writes_a_command_that_is_too_long_reads_the_error() {
    let table = Table::of_rows(10);
    let server = table.serve_with(&["--tcp", "127.0.0.1:0"]);
    const KEYS: usize = 500_000;
    let keys: String = (0..KEYS).map(|key| format!("$12\r\n{key:012}\r\n")).collect();
    let mget = format!("*{}\r\n$4\r\nMGET\r\n{keys}", KEYS + 1);
    let too_many = mget.replacen(&(KEYS + 1).to_string(), "1048577", 1);
    let too_long = format!("*2\r\n$4\r\nECHO\r\n$8000000\r\n{}\r\n", "x".repeat(8_000_000));
    let inline = "x".repeat(8_000_000);
    for (command, error) in [
        (&mget, "too big command, the limit is 4194304 bytes"),
        (&too_many, "invalid multibulk length"),
        (&too_long, "invalid bulk length"),
        (&inline, "too big inline request"),
    ] {
        // A second command in the same pipeline is not executed.
        let commands = [b"PING\r\n", command.as_bytes(), b"PING\r\n"].concat();
        let expected = format!("+PONG\r\n-ERR Protocol error: {error}\r\n").into_bytes();
        for replies in [
            write_before_reading(server.connect(), &commands),
            write_before_reading(TcpStream::connect(server.tcp()).unwrap(), &commands),
        ] {
            assert_eq!(replies.escape_ascii().to_string(), expected.escape_ascii().to_string());
        }
    }
    // A Range request of the native protocol whose keys are too long.
    let mut range = long(4, &[]);
    range[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
    range.resize(8_000_000, 0);
    assert_eq!(write_before_reading(server.connect(), &range), answer(2, b""));
}

#[test]
fn a_client_that_never_ends_a_refused_command_is_disconnected() {
    let table = Table::of_rows(10);
    let server = table.serve_with(&["--stall-timeout", "1"]);
    // A client that sends without end.
    let mut stream = server.connect();
    stream.write_all(b"*x\r\n").unwrap();
    let chunk = vec![b'x'; 1 << 20];
    let mut sent_mib = 0;
    while stream.write_all(&chunk).is_ok() {
        sent_mib += 1;
        assert!(sent_mib <= 300, "{sent_mib} MiB were read");
    }
    assert_eq!(read_until_closed(&mut stream), b"-ERR Protocol error: invalid multibulk length\r\n");
    // A client that neither sends nor closes its socket.
    let mut stream = server.connect();
    stream.write_all(b"*x\r\n").unwrap();
    eventually("the server closes the connection", || server.info().get("connections") == Some("1"));
    assert_eq!(read_until_closed(&mut stream), b"-ERR Protocol error: invalid multibulk length\r\n");
}

/// Returns a command of 4 MiB without its last argument.
fn unfinished_command() -> Vec<u8> {
    const ARGS: usize = 60_000;
    let arg = format!("$60\r\n{}\r\n", "k".repeat(60));
    let mut command = format!("*{}\r\n$4\r\nMGET\r\n", ARGS + 2).into_bytes();
    command.extend(arg.repeat(ARGS).as_bytes());
    command
}

#[test]
fn unfinished_commands_of_many_clients_stay_within_the_limit_on_client_memory() {
    const CLIENTS: usize = 60;
    const MAX_BYTES: u64 = 24 << 20;
    let table = Table::of_rows(10);
    let mut server = table.serve_with(&["--workers", "2", "--client-memory-max", "24MiB"]);
    assert_eq!(setting(&server, "maxmemory-clients"), MAX_BYTES.to_string());
    let mut others = [server.connect(), server.connect()];
    let held_bytes = |other: &mut UnixStream| info(other, "client_memory_bytes").parse::<u64>().unwrap();
    let unfinished = unfinished_command();
    // All clients send at the same time. A client that is disconnected fails to write.
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| (server.connect(), true)).collect();
    let mut most_bytes = 0;
    for part in unfinished.chunks(256 << 10) {
        for (stream, is_connected) in clients.iter_mut().filter(|(_, is_connected)| *is_connected) {
            *is_connected = stream.write_all(part).is_ok();
        }
        for other in &mut others {
            ask(other, &table, 7);
            most_bytes = most_bytes.max(held_bytes(other));
        }
        eventually("the limit is kept", || held_bytes(&mut others[0]) <= MAX_BYTES);
    }
    assert!(most_bytes > MAX_BYTES / 4, "the clients were to hold more than {most_bytes} bytes");
    let line = server.wait_for_log("(--client-memory-max)");
    assert!(line.contains("connections that held the most memory"), "{line}");
    let disconnected: usize = info(&mut others[1], "connections_cut_memory").parse().unwrap();
    // Each remaining client holds one command in memory.
    assert!((CLIENTS - MAX_BYTES as usize / unfinished.len()..CLIENTS).contains(&disconnected), "{disconnected}");
    let mut replied = 0;
    for (stream, _) in &mut clients {
        stream.shutdown(std::net::Shutdown::Write).unwrap_or_default();
        let reply = String::from_utf8(read_until_closed(stream)).unwrap();
        let expected = format!("-ERR all connections together hold more than {MAX_BYTES} bytes (--client-memory-max)");
        assert!(reply.is_empty() || reply.starts_with(&expected), "{reply}");
        replied += usize::from(!reply.is_empty());
    }
    assert_eq!(replied, disconnected);
    drop(clients);
    eventually("memory is released", || held_bytes(&mut others[0]) < 256 << 10);
    for other in &mut others {
        ask(other, &table, 8);
    }
}

#[test]
fn a_client_memory_limit_too_small_for_one_command_is_rejected_at_startup() {
    let table = Table::of_rows(10);
    let output = table.command(&["--client-memory-max", "15MiB"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    let expected = "a maximum of 15728640 bytes of client memory, where at least 16777216 were expected, 4 times the \
                    maximum length of a command";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn a_buffer_that_is_too_small_is_rejected_at_startup() {
    let table = Table::of_rows(10);
    let output = table.command(&["--buffer", "255KiB"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8(output.stderr).unwrap();
    let expected = "a buffer of 261120 bytes, where at least 262144 were expected (--buffer \
                    [Limits::buffer_max_bytes])";
    assert!(message.contains(expected), "{message}");
}

/// A client that sends everything before it reads gets the replies to the commands within the limit, and then the
/// reason for the end.
#[test]
fn a_client_that_sends_more_than_its_buffer_gets_an_error_after_the_replies() {
    let table = Table::of_rows(10);
    let mut server = serve(&table, &["--buffer", "256KiB"]);
    let (command, reply) = (
        "GET 7\r\n",
        [b"$", table.model[&7].len().to_string().as_bytes(), b"\r\n", &table.model[&7][..], b"\r\n"].concat(),
    );
    let mut redis = server.connect();
    redis.write_all(command.repeat(1_000_000).as_bytes()).unwrap();
    let came = read_until_closed(&mut redis);
    let error = b"-ERR more than 262144 bytes of commands wait for their replies to be received (--buffer \
        [Limits::buffer_max_bytes]): the rest of the pipeline was not executed; receive replies while sending, or \
        send shorter pipelines\r\n";
    let replies = came.strip_suffix(error).expect("an error at the end");
    let count = replies.len() / reply.len();
    assert!(replies == reply.repeat(count));
    assert!(count >= (256 << 10) / command.len(), "{count} replies");
    let line = server.wait_for_log("disconnected: the client sent more than 262144 bytes of requests");
    assert!(line.contains(&format!("pid {}", std::process::id())), "{line}");
    assert!(line.contains("(--buffer [Limits::buffer_max_bytes])"), "{line}");

    let mut native = server.connect();
    native.write_all(&gets((0..200_000).map(|_| 7))).unwrap();
    let came = read_until_closed(&mut native);
    let (responses, error) = came.split_at(came.len() - 8);
    assert_eq!(error, [0, 0, 0, 2, 0, 0, 0, 0]);
    let response = answers_to_gets(&table.model, [7]);
    assert!(responses == response.repeat(responses.len() / response.len()));
    let mut other = server.connect();
    assert_eq!(info(&mut other, "connections_cut_buffer"), "2");
}

#[test]
fn keep_alive_is_set_on_tcp_connections() {
    let table = Table::of_rows(10);
    let server = table.serve_with(&["--tcp", "127.0.0.1:0"]);
    let address = server.tcp();
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"PING\r\n").unwrap();
    expect(&mut client, b"+PONG\r\n");
    let ports = (client.peer_addr().unwrap().port(), client.local_addr().unwrap().port());
    let (local, remote) = (format!(":{:04X}", ports.0), format!(":{:04X}", ports.1));
    // The timer of the server's end in the format of proc(5), in which 2 means keep-alive.
    eventually("keep-alive is on", || {
        let sockets = fs::read_to_string("/proc/net/tcp").unwrap();
        sockets.lines().any(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            fields[1].ends_with(&local) && fields[2].ends_with(&remote) && fields[5].starts_with("02:")
        })
    });
}
