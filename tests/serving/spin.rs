//! `--spin`.

use std::fs;
use std::io::Write;

use crate::helpers::frames::{expect, gets};
use crate::helpers::servers::Server;
use crate::helpers::tables::{Table, answer_to_get, answers_to_gets};
use crate::helpers::waiting::eventually;

/// Starts a kv_store that polls for this many microseconds.
fn serve(table: &Table, spin_us: &str) -> Server {
    table.serve_with(&["--workers", "2", "--spin", spin_us])
}

/// Returns the state of each of the server's threads, and its processor time so far, in nanoseconds.
fn threads(server: &Server) -> Vec<(char, u64)> {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.id())).unwrap();
    let state = |task: &fs::DirEntry| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap();
        let taken = fs::read_to_string(task.path().join("schedstat")).unwrap();
        let state = stat.rsplit_once(") ").unwrap().1.chars().next().unwrap();
        (state, taken.split(' ').next().unwrap().parse().unwrap())
    };
    tasks.map(|task| state(&task.unwrap())).collect()
}

#[test]
fn responses_are_right_while_workers_poll() {
    let table = Table::of_rows(2000);
    for spin_us in ["1", "200", "1000000"] {
        let server = serve(&table, spin_us);
        let mut streams: Vec<_> = (0..5).map(|_| server.connect()).collect();
        for key in 1..300 {
            for stream in &mut streams {
                stream.write_all(&gets([key])).unwrap();
            }
            for stream in &mut streams {
                expect(stream, &answer_to_get(&table.model, key));
            }
        }
        for stream in &mut streams {
            stream.write_all(&gets(0..1000)).unwrap();
            expect(stream, &answers_to_gets(&table.model, 0..1000));
        }
        drop(streams);
        server.signal(rustix::process::Signal::TERM);
        let mut server = server;
        assert_eq!(server.wait().code(), Some(0));
    }
}

#[test]
fn a_worker_polls_after_a_response_and_not_before() {
    let table = Table::of_rows(10);
    let server = serve(&table, "3600000000");
    eventually("a server without requests sleeps", || threads(&server).iter().all(|(state, _)| *state == 'S'));
    let mut stream = server.connect();
    stream.write_all(&gets([3])).unwrap();
    expect(&mut stream, &answer_to_get(&table.model, 3));
    // One worker polls for much longer than any request takes.
    let before = threads(&server);
    eventually("a worker polls", || {
        let grown = threads(&server).into_iter().zip(&before).map(|((_, now_ns), (_, then_ns))| now_ns - then_ns);
        grown.filter(|grown_ns| *grown_ns > 100_000_000).count() == 1
    });
}

#[test]
fn a_worker_sleeps_again_without_requests() {
    let table = Table::of_rows(10);
    let server = serve(&table, "2000");
    let mut stream = server.connect();
    for key in 1..=10 {
        stream.write_all(&gets([key])).unwrap();
        expect(&mut stream, &answer_to_get(&table.model, key));
        // Each thread sleeps and uses no processor time between two checks.
        let mut before = threads(&server);
        eventually("the server sleeps", || {
            let now = threads(&server);
            let sleeps = now == before && now.iter().all(|(state, _)| *state == 'S');
            before = now;
            sleeps
        });
    }
}
