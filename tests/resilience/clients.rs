//! Clients that are many, slow, silent, or malformed, and a server without free descriptors.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::helpers::frames::{answer, expect, gets};
use crate::helpers::generations::Shape;
use crate::helpers::pipelined_gets::{Answer, PipelinedConnection, Protocol};
use crate::helpers::random::random;
use crate::helpers::scenes::Scene;
use crate::helpers::servers::Server;
use crate::helpers::waiting::{configured_duration, eventually};
use crate::{report, run_alone, run_concurrently};

const SHAPE: Shape = Shape { rows: 1000, len_max_bytes: 200 };
/// A server, and the number of descriptors that it has open before the test.
struct ServerTest {
    scene: Scene,
    served: Server,
    descriptors: usize,
}

impl ServerTest {
    fn begin(options: &[&str]) -> ServerTest {
        let scene = Scene::new();
        SHAPE.bake(1, &scene.db());
        let served = scene.serve(options);
        ServerTest::new(scene, served)
    }

    fn new(scene: Scene, served: Server) -> ServerTest {
        // Every worker allocates its buffers.
        let first: Vec<PipelinedConnection> = (0..8).map(|_| answered_connection(&served)).collect();
        drop(first);
        eventually("all clients have disconnected", || served.number("connections") == 1);
        let descriptors = served.descriptors();
        ServerTest { scene, served, descriptors }
    }

    /// Runs `what` three times. After each time, the server must be alive, have all descriptors of clients closed, and
    /// hold no memory for connections. Reports the memory that the process keeps and the time of a pipeline, which
    /// depend on the allocator and on the machine's load.
    fn assert_nothing_leaks(&mut self, name: &str, mut what: impl FnMut(&Server)) {
        let mut memory_kib = vec![self.served.anonymous_bytes() >> 10];
        let mut pipeline_us = vec![self.pipeline_us()];
        for _ in 0..3 {
            what(&self.served);
            assert!(self.served.is_alive());
            eventually("all descriptors are closed", || self.served.descriptors() <= self.descriptors);
            eventually("no connection holds memory", || self.served.number("client_memory_bytes") == 0);
            memory_kib.push(self.served.anonymous_bytes() >> 10);
            pipeline_us.push(self.pipeline_us());
        }
        report(&format!(
            "{name}: RssAnon {memory_kib:?} KiB, a pipeline {pipeline_us:?} us, before and after each round"
        ));
    }

    /// Returns the median time of a pipeline.
    fn pipeline_us(&self) -> u128 {
        let mut connection = PipelinedConnection::new(Protocol::Native, self.served.connect());
        let keys: Vec<u64> = (1..=256).collect();
        let mut times_us: Vec<u128> = (0..201)
            .map(|_| {
                let started = Instant::now();
                assert_answered(&mut connection, &keys);
                started.elapsed().as_micros()
            })
            .collect();
        times_us.sort_unstable();
        times_us[100]
    }
}

fn assert_answered(connection: &mut PipelinedConnection, keys: &[u64]) {
    connection.ask(keys);
    for (key, found) in keys.iter().zip(connection.answers(keys.len()).unwrap()) {
        assert_eq!(found, SHAPE.value(1, *key).map_or(Answer::Missing, Answer::Value), "key {key}");
    }
}

/// Returns a connection that has got a response.
fn answered_connection(served: &Server) -> PipelinedConnection {
    let mut connection = PipelinedConnection::new(Protocol::Native, served.connect());
    assert_answered(&mut connection, &[7]);
    connection
}

/// Raises the limit on descriptors of this process, and of the servers that it starts, to the maximum. Returns the
/// limit.
fn raise_limit() -> u64 {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    maximum.unwrap_or(u64::MAX)
}

#[test]
fn ten_thousand_short_connections_leak_nothing() {
    let _guard = run_alone();
    let limit = raise_limit();
    let connections = limit.saturating_sub(256).min(10_000) as usize;
    if connections < 10_000 {
        report(&format!("a limit of {limit} descriptors: {connections} connections instead of 10000"));
    }
    let mut test_run = ServerTest::begin(&[]);
    test_run.assert_nothing_leaks("ten thousand connections", |served| {
        let mut opened: Vec<PipelinedConnection> = (0..connections).map(|_| answered_connection(served)).collect();
        assert_eq!(served.number("connections"), connections as u64 + 1);
        for connection in opened.iter_mut().step_by(37) {
            assert_answered(connection, &[1, 2, SHAPE.rows + 1]);
        }
    });
}

#[test]
fn silent_connections_leak_nothing() {
    let _guard = run_alone();
    raise_limit();
    let mut test_run = ServerTest::begin(&[]);
    test_run.assert_nothing_leaks("silent connections", |served| {
        let silent: Vec<UnixStream> = (0..1000).map(|_| served.connect()).collect();
        let mut connection = answered_connection(served);
        for _ in 0..100 {
            assert_answered(&mut connection, &(1..=256).collect::<Vec<_>>());
        }
        drop(silent);
    });
}

#[test]
fn clients_that_send_and_never_read_delay_nobody_else() {
    let _guard = run_alone();
    raise_limit();
    let mut test_run = ServerTest::begin(&[]);
    let requests = gets((0..1024).map(|i| 1 + i % SHAPE.rows));
    test_run.assert_nothing_leaks("clients that never read", |served| {
        let mut connection = answered_connection(served);
        let non_reading: Vec<UnixStream> = (0..500)
            .map(|_| {
                let mut stream = served.connect();
                (0..8).for_each(|_| stream.write_all(&requests).unwrap());
                stream
            })
            .collect();
        for _ in 0..100 {
            assert_answered(&mut connection, &(1..=256).collect::<Vec<_>>());
        }
        // The server holds 64 KiB of responses, the end of the last one, and requests that it has read and not
        // answered.
        let info = served.info();
        let number = |name: &str| info.number::<u64>(name).unwrap();
        let held_bytes = number("client_memory_bytes").saturating_sub(number("client_sockets_bytes"));
        let max_bytes = 500 * ((112 << 10) + 16 * requests.len() as u64);
        assert!((1..=max_bytes).contains(&held_bytes), "{held_bytes} bytes");
        drop(non_reading);
    });
}

#[test]
fn requests_sent_byte_by_byte_are_answered_and_incomplete_ones_leak_nothing() {
    let _guard = run_concurrently();
    let mut test_run = ServerTest::begin(&[]);
    test_run.assert_nothing_leaks("requests byte by byte", |served| {
        let mut slow: Vec<UnixStream> = (0..50).map(|_| served.connect()).collect();
        let (native, redis) = (gets([7, 8]), b"*2\r\n$3\r\nGET\r\n$1\r\n7\r\nGET 8\r\n");
        for byte in &native {
            slow.iter_mut().for_each(|stream| stream.write_all(&[*byte]).unwrap());
            assert_answered(&mut answered_connection(served), &[1]);
        }
        let expected: Vec<u8> = [7, 8].iter().flat_map(|key| answer(0, &SHAPE.value(1, *key).unwrap())).collect();
        slow.iter_mut().for_each(|stream| expect(stream, &expected));

        let mut stream = served.connect();
        redis.iter().for_each(|byte| stream.write_all(&[*byte]).unwrap());
        for key in [7, 8] {
            let value = SHAPE.value(1, key).unwrap();
            expect(&mut stream, &[format!("${}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat());
        }

        // The header of a long request announces more bytes than are sent.
        let long = [&[0, 1, 0, 0, 0, 0, 1, 0][..], &[7; 100]].concat();
        for part in [&native[..1], &native[..15], &native[..17], &redis[..9], &redis[..20], &long, &long[..9]] {
            for _ in 0..50 {
                served.connect().write_all(part).unwrap();
            }
        }
        assert_answered(&mut answered_connection(served), &[1, 2, 3]);
    });
}

#[test]
fn a_request_sent_at_one_byte_per_second_is_answered() {
    let _guard = run_concurrently();
    let test_run = ServerTest::begin(&[]);
    let request = gets([7]);
    let mut slow = test_run.served.connect();
    let mut connection = answered_connection(&test_run.served);
    // A complete request would take 16 seconds, so the test pauses after each byte only if it has time.
    let pauses = if configured_duration().is_some() { request.len() - 1 } else { 2 };
    for (at, byte) in request.iter().enumerate() {
        slow.write_all(&[*byte]).unwrap();
        let started = Instant::now();
        while at < pauses && started.elapsed() < Duration::from_secs(1) {
            assert_answered(&mut connection, &[1, 2, 3]);
        }
    }
    expect(&mut slow, &answer(0, &SHAPE.value(1, 7).unwrap()));
}

#[test]
fn random_bytes_end_only_their_own_connection() {
    let _guard = run_concurrently();
    let time = configured_duration().unwrap_or(Duration::from_secs(3));
    let test_run = ServerTest::begin(&["--workers", "2"]);
    let seed = 0xBAD;
    let (mut random, started, mut connections, mut sent_bytes) = (random(seed), Instant::now(), 0_u64, 0_u64);
    let mut connection = answered_connection(&test_run.served);
    while started.elapsed() < time {
        let mut stream = test_run.served.connect();
        stream.set_nonblocking(true).unwrap();
        let first = random();
        for _ in 0..1 + random() % 20 {
            let len_bytes = 1 << (random() % 15);
            let mut bytes: Vec<u8> = (0..len_bytes).map(|_| random() as u8).collect();
            match first % 4 {
                // Bytes of no protocol, native requests with known and unknown ops, and words of the Redis protocol.
                0 => {}
                1 => bytes.chunks_mut(16).for_each(|frame| {
                    let op = [0, (random() % 3) as u8, 0, (random() % 9) as u8];
                    frame.iter_mut().zip(op).for_each(|(byte, op)| *byte = op);
                }),
                2 => bytes.iter_mut().for_each(|byte| *byte = b"*$\r\n0123 GETkeyMSCAN"[*byte as usize % 20]),
                _ => bytes[0] = 0,
            }
            match stream.write(&bytes) {
                Ok(len_bytes) => sent_bytes += len_bytes as u64,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
            let _ = stream.read(&mut [0; 4096]);
        }
        connections += 1;
        assert_answered(&mut connection, &[1 + random() % SHAPE.rows, 0, 7]);
    }
    drop(connection);
    assert!(connections > 0 && sent_bytes > 0, "{connections} connections, {sent_bytes} bytes");
    eventually("all descriptors are closed", || test_run.served.descriptors() <= test_run.descriptors);
    assert_eq!((test_run.served.number("panics"), test_run.served.logged("panicked")), (0, 0), "seed {seed}");
    report(&format!("{sent_bytes} random bytes over {connections} connections: all others were answered"));
}

/// Returns the command of a server with a limit on descriptors that is lower than its limit on connections.
fn with_descriptors(scene: &Scene, descriptors: usize) -> Command {
    let mut command = Command::new("sh");
    let script = format!("ulimit -n {descriptors}; exec \"$0\" --db storage.db --socket s.sock --max-connections 1000");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_kv_store")]);
    command.current_dir(scene.path("")).env("RUST_LOG", "info");
    command
}

#[test]
fn a_server_out_of_descriptors_keeps_serving_and_logs_it() {
    let _guard = run_concurrently();
    let scene = Scene::new();
    SHAPE.bake(1, &scene.db());
    let served = scene.run(with_descriptors(&scene, 64));
    let mut test_run = ServerTest::new(scene, served);
    for round in 1..=3 {
        let mut first = answered_connection(&test_run.served);
        let mut waiting: Vec<PipelinedConnection> =
            (0..120).map(|_| PipelinedConnection::new(Protocol::Native, test_run.served.connect())).collect();
        eventually("the server logs that it cannot accept a connection", || {
            test_run.served.logged("cannot accept a connection: Too many open files") >= round
        });
        // The server does not repeat the log line.
        for _ in 0..200 {
            assert_answered(&mut first, &(1..=256).collect::<Vec<_>>());
        }
        assert!(test_run.served.log().lines().count() < 20 * round, "{}", test_run.served.log());
        // The waiting clients are accepted when others disconnect.
        while !waiting.is_empty() {
            let rest = waiting.split_off(waiting.len().min(20));
            waiting.iter_mut().for_each(|connection| assert_answered(connection, &[1, 2, 3]));
            waiting = rest;
        }
        eventually("the server logs that it accepts connections again", || {
            test_run.served.logged("connections are accepted again") >= round
        });
        drop(first);
        eventually("all descriptors are closed again", || test_run.served.descriptors() <= test_run.descriptors);
    }
    assert!(test_run.served.is_alive());
}

#[test]
fn a_new_file_is_served_once_descriptors_are_available_again() {
    let _guard = run_concurrently();
    let scene = Scene::new();
    SHAPE.bake(1, &scene.db());
    SHAPE.bake(2, &scene.path("next.db"));
    let served = scene.run(with_descriptors(&scene, 64));
    let test_run = ServerTest::new(scene, served);
    let mut first = answered_connection(&test_run.served);
    let waiting: Vec<UnixStream> = (0..100).map(|_| test_run.served.connect()).collect();
    eventually("the server has no free descriptor", || test_run.served.logged("cannot accept a connection") > 0);
    test_run.scene.put(&test_run.scene.path("next.db"));
    eventually("the new file is rejected", || test_run.served.logged("refused: ") > 0);
    assert_answered(&mut first, &[1, 2, 3]);
    drop(waiting);
    test_run.served.wait_for("generation", 2);
}
