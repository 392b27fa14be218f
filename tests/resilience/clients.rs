//! Clients that are many, slow, silent, or malformed, and a server without free descriptors.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::helpers::frames::{answer, expect, gets};
use crate::helpers::generations::Shape;
use crate::helpers::pipelined_gets::{Answer, Lane, Protocol};
use crate::helpers::random::random;
use crate::helpers::scenes::{Scene, Served};
use crate::helpers::waiting::{asked_time, eventually};
use crate::{alone, report, together};

const SHAPE: Shape = Shape { rows: 1000, len_max_bytes: 200 };
/// A server, and what it takes before anything happens to it.
struct Story {
    scene: Scene,
    served: Served,
    descriptors: usize,
}

impl Story {
    fn begin(options: &[&str]) -> Story {
        let scene = Scene::new();
        SHAPE.bake(1, &scene.db());
        let served = scene.serve(options);
        Story::of(scene, served)
    }

    fn of(scene: Scene, served: Served) -> Story {
        // Every worker has made its buffers.
        let first: Vec<Lane> = (0..8).map(|_| asked(&served)).collect();
        drop(first);
        eventually("all have left", || served.number("connections") == 1);
        let descriptors = served.descriptors();
        Story { scene, served, descriptors }
    }

    /// Does something three times. Each time the server stays alive, closes all descriptors, and holds no memory for
    /// connections in the end. Reports the memory that the process keeps and the time of a pipeline, which depend on the
    /// allocator and on the machine's load.
    fn assert_nothing_leaks(&mut self, name: &str, mut what: impl FnMut(&Served)) {
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

    /// The median time of a pipeline.
    fn pipeline_us(&self) -> u128 {
        let mut lane = Lane::new(Protocol::Native, self.served.connect());
        let keys: Vec<u64> = (1..=256).collect();
        let mut times_us: Vec<u128> = (0..201)
            .map(|_| {
                let started = Instant::now();
                assert_answered(&mut lane, &keys);
                started.elapsed().as_micros()
            })
            .collect();
        times_us.sort_unstable();
        times_us[100]
    }
}

fn assert_answered(lane: &mut Lane, keys: &[u64]) {
    lane.ask(keys);
    for (key, found) in keys.iter().zip(lane.answers(keys.len()).unwrap()) {
        assert_eq!(found, SHAPE.value(1, *key).map_or(Answer::Missing, Answer::Value), "key {key}");
    }
}

/// A connection that was answered.
fn asked(served: &Served) -> Lane {
    let mut lane = Lane::new(Protocol::Native, served.connect());
    assert_answered(&mut lane, &[7]);
    lane
}

/// Has this process, and the servers that it starts, use as many descriptors as it may.
fn raise_limit() -> u64 {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    maximum.unwrap_or(u64::MAX)
}

#[test]
fn ten_thousand_connections_come_and_go_and_leave_nothing() {
    let _alone = alone();
    let limit = raise_limit();
    let connections = limit.saturating_sub(256).min(10_000) as usize;
    if connections < 10_000 {
        report(&format!("a limit of {limit} descriptors: {connections} connections instead of 10000"));
    }
    let mut story = Story::begin(&[]);
    story.assert_nothing_leaks("ten thousand connections", |served| {
        let mut lanes: Vec<Lane> = (0..connections).map(|_| asked(served)).collect();
        assert_eq!(served.number("connections"), connections as u64 + 1);
        for lane in lanes.iter_mut().step_by(37) {
            assert_answered(lane, &[1, 2, SHAPE.rows + 1]);
        }
    });
}

#[test]
fn those_that_connect_and_say_nothing_are_no_burden() {
    let _alone = alone();
    raise_limit();
    let mut story = Story::begin(&[]);
    story.assert_nothing_leaks("silent connections", |served| {
        let silent: Vec<UnixStream> = (0..1000).map(|_| served.connect()).collect();
        let mut lane = asked(served);
        for _ in 0..100 {
            assert_answered(&mut lane, &(1..=256).collect::<Vec<_>>());
        }
        drop(silent);
    });
}

#[test]
fn those_that_send_and_never_read_hold_up_nobody_else() {
    let _alone = alone();
    raise_limit();
    let mut story = Story::begin(&[]);
    let requests = gets((0..1024).map(|i| 1 + i % SHAPE.rows));
    story.assert_nothing_leaks("clients that never read", |served| {
        let mut lane = asked(served);
        let deaf: Vec<UnixStream> = (0..500)
            .map(|_| {
                let mut stream = served.connect();
                stream.set_nonblocking(true).unwrap();
                // Until it takes no more.
                let error = loop {
                    if let Err(error) = stream.write(&requests) {
                        break error;
                    }
                };
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                stream
            })
            .collect();
        for _ in 0..100 {
            assert_answered(&mut lane, &(1..=256).collect::<Vec<_>>());
        }
        // 64 KiB of responses and the end of the last, and requests that were read and are not answered.
        let held_bytes = served.number("client_memory_bytes");
        assert!((1..=500 * (112 << 10)).contains(&held_bytes), "{held_bytes} bytes");
        drop(deaf);
    });
}

#[test]
fn requests_that_come_byte_by_byte_are_answered_and_half_of_one_is_forgotten() {
    let _together = together();
    let mut story = Story::begin(&[]);
    story.assert_nothing_leaks("requests byte by byte", |served| {
        let mut slow: Vec<UnixStream> = (0..50).map(|_| served.connect()).collect();
        let (native, redis) = (gets([7, 8]), b"*2\r\n$3\r\nGET\r\n$1\r\n7\r\nGET 8\r\n");
        for byte in &native {
            slow.iter_mut().for_each(|stream| stream.write_all(&[*byte]).unwrap());
            assert_answered(&mut asked(served), &[1]);
        }
        let expected: Vec<u8> = [7, 8].iter().flat_map(|key| answer(0, &SHAPE.value(1, *key).unwrap())).collect();
        slow.iter_mut().for_each(|stream| expect(stream, &expected));

        let mut stream = served.connect();
        redis.iter().for_each(|byte| stream.write_all(&[*byte]).unwrap());
        for key in [7, 8] {
            let value = SHAPE.value(1, key).unwrap();
            expect(&mut stream, &[format!("${}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat());
        }

        // A long request's header announces more than comes.
        let long = [&[0, 1, 0, 0, 0, 0, 1, 0][..], &[7; 100]].concat();
        for part in [&native[..1], &native[..15], &native[..17], &redis[..9], &redis[..20], &long, &long[..9]] {
            for _ in 0..50 {
                served.connect().write_all(part).unwrap();
            }
        }
        assert_answered(&mut asked(served), &[1, 2, 3]);
    });
}

#[test]
fn one_byte_a_second_is_slow_and_no_more() {
    let _together = together();
    let story = Story::begin(&[]);
    let request = gets([7]);
    let mut slow = story.served.connect();
    let mut lane = asked(&story.served);
    // A request takes 16 seconds: some of them are enough, unless there is time.
    let pauses = if asked_time().is_some() { request.len() - 1 } else { 2 };
    for (at, byte) in request.iter().enumerate() {
        slow.write_all(&[*byte]).unwrap();
        let started = Instant::now();
        while at < pauses && started.elapsed() < Duration::from_secs(1) {
            assert_answered(&mut lane, &[1, 2, 3]);
        }
    }
    expect(&mut slow, &answer(0, &SHAPE.value(1, 7).unwrap()));
}

#[test]
fn random_bytes_do_nothing_but_end_their_own_connection() {
    let _together = together();
    let time = asked_time().unwrap_or(Duration::from_secs(3));
    let story = Story::begin(&["--workers", "2"]);
    let seed = 0xBAD;
    let (mut random, started, mut connections, mut sent_bytes) = (random(seed), Instant::now(), 0_u64, 0_u64);
    let mut lane = asked(&story.served);
    while started.elapsed() < time {
        let mut stream = story.served.connect();
        stream.set_nonblocking(true).unwrap();
        let first = random();
        for _ in 0..1 + random() % 20 {
            let len_bytes = 1 << (random() % 15);
            let mut bytes: Vec<u8> = (0..len_bytes).map(|_| random() as u8).collect();
            match first % 4 {
                // Of no protocol; as native requests with ops that are known, and not; as words of Redis.
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
        assert_answered(&mut lane, &[1 + random() % SHAPE.rows, 0, 7]);
    }
    drop(lane);
    assert!(connections > 0 && sent_bytes > 0, "{connections} connections, {sent_bytes} bytes");
    eventually("all descriptors are closed", || story.served.descriptors() <= story.descriptors);
    assert_eq!((story.served.number("panics"), story.served.logged("panicked")), (0, 0), "seed {seed}");
    report(&format!("{sent_bytes} random bytes over {connections} connections: all others were answered"));
}

/// A server that may have so many descriptors, and is told to take more connections than that.
fn with_descriptors(scene: &Scene, descriptors: usize) -> Command {
    let mut command = Command::new("sh");
    let script = format!("ulimit -n {descriptors}; exec \"$0\" --db storage.db --socket s.sock --max-connections 1000");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_kv_store")]);
    command.current_dir(scene.path("")).env("RUST_LOG", "info");
    command
}

#[test]
fn a_server_without_descriptors_serves_on_and_says_so() {
    let _together = together();
    let scene = Scene::new();
    SHAPE.bake(1, &scene.db());
    let served = scene.run(with_descriptors(&scene, 64));
    let mut story = Story::of(scene, served);
    for round in 1..=3 {
        let mut first = asked(&story.served);
        let mut waiting: Vec<Lane> = (0..120).map(|_| Lane::new(Protocol::Native, story.served.connect())).collect();
        eventually("it says so", || story.served.logged("cannot accept a connection: Too many open files") >= round);
        // It does not say so again and again.
        for _ in 0..200 {
            assert_answered(&mut first, &(1..=256).collect::<Vec<_>>());
        }
        assert!(story.served.log().lines().count() < 20 * round, "{}", story.served.log());
        // Those that wait have their turn when others go.
        while !waiting.is_empty() {
            let rest = waiting.split_off(waiting.len().min(20));
            waiting.iter_mut().for_each(|lane| assert_answered(lane, &[1, 2, 3]));
            waiting = rest;
        }
        eventually("it says that it is over", || story.served.logged("connections are accepted again") >= round);
        drop(first);
        eventually("all descriptors are given back", || story.served.descriptors() <= story.descriptors);
    }
    assert!(story.served.is_alive());
}

#[test]
fn a_new_file_that_comes_while_there_are_no_descriptors_is_served_when_there_are() {
    let _together = together();
    let scene = Scene::new();
    SHAPE.bake(1, &scene.db());
    SHAPE.bake(2, &scene.path("next.db"));
    let served = scene.run(with_descriptors(&scene, 64));
    let story = Story::of(scene, served);
    let mut first = asked(&story.served);
    let waiting: Vec<UnixStream> = (0..100).map(|_| story.served.connect()).collect();
    eventually("it has none", || story.served.logged("cannot accept a connection") > 0);
    story.scene.put(&story.scene.path("next.db"));
    eventually("the new file is refused", || story.served.logged("refused: ") > 0);
    assert_answered(&mut first, &[1, 2, 3]);
    drop(waiting);
    story.served.wait_for("generation", 2);
}
