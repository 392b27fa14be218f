//! Notices: a client that tracks the state learns of each change, in the order of the responses.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use rustix::process::Signal;
use zero_kv::bake::Keys;

use crate::helpers::frames::{answer, connect, expect, request};
use crate::helpers::reference_server::{GENERATION, GET, OPEN, PING, TRACK};
use crate::helpers::rows::bake_text;
use crate::helpers::servers::Server;
use crate::helpers::tables::Table;

const NOTICE: u32 = 8;

fn swap_to(text: &str, table: &Table, server: &Server) {
    let new = table.db().with_extension("new");
    bake_text(&new, Keys::U64, text);
    let before = server.number("generation");
    std::fs::rename(new, table.db()).unwrap();
    server.signal(Signal::HUP);
    server.wait_for("generation", before + 1);
}

/// Reads a header with this status and 16 bytes. Returns the bytes.
#[track_caller]
fn state(stream: &mut UnixStream, status: u32) -> [u8; 16] {
    expect(stream, &answer(status, &[0; 16])[..8]);
    let mut state = [0; 16];
    stream.read_exact(&mut state).unwrap();
    state
}

#[test]
fn a_notice_separates_the_responses_of_two_generations() {
    let table = Table::new([(7, b"1".to_vec())]);
    let server = table.serve();
    let [mut tracking, mut idle, mut other] = [(); 3].map(|()| connect(server.socket()));
    let mut states = Vec::new();
    for stream in [&mut tracking, &mut idle] {
        stream.write_all(&[request(GET, 7), request(TRACK, 0), request(GET, 7)].concat()).unwrap();
        expect(stream, &answer(0, b"1"));
        states.push(state(stream, 0));
        expect(stream, &answer(0, b"1"));
    }
    assert_eq!(states[0], states[1], "the connections are in one state");
    for generation in 2..5_u64 {
        swap_to(&format!("7,{generation}\n"), &table, &server);
        let value = answer(0, generation.to_string().as_bytes());
        tracking.write_all(&[request(GET, 7), request(GENERATION, 0)].concat()).unwrap();
        let new = state(&mut tracking, NOTICE);
        expect(&mut tracking, &[&value[..], &answer(0, &generation.to_be_bytes())].concat());
        assert!(!states.contains(&new), "each generation has another state");
        states.push(new);
        // A client that sends nothing gets the notice, too.
        assert_eq!(state(&mut idle, NOTICE), new);
        other.write_all(&request(GET, 7)).unwrap();
        expect(&mut other, &value);
    }
    // The notice precedes a response with descriptors.
    swap_to("7,5\n", &table, &server);
    tracking.write_all(&[request(OPEN, 0), request(PING, 0)].concat()).unwrap();
    let new = state(&mut tracking, NOTICE);
    expect(&mut tracking, &[&answer(0, &[0; 32])[..8], &5_u64.to_be_bytes()].concat());
    tracking.read_exact(&mut [0; 24]).unwrap();
    expect(&mut tracking, &answer(0, b""));
    // A repeated Track responds with the same state.
    tracking.write_all(&request(TRACK, 0)).unwrap();
    assert_eq!(state(&mut tracking, 0), new);
}

#[test]
fn responses_of_a_pipeline_follow_the_notice_of_their_generation() {
    const REQUESTS: usize = 200_000;
    let table = Table::new([(7, b"1".to_vec())]);
    let server = table.serve();
    let mut stream = connect(server.socket());
    stream.write_all(&request(TRACK, 0)).unwrap();
    state(&mut stream, 0);
    let mut writer = stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || writer.write_all(&request(GET, 7).repeat(REQUESTS)).unwrap());
        scope.spawn(|| (2..6).for_each(|generation| swap_to(&format!("7,{generation}\n"), &table, &server)));
        let (mut generation, mut received, mut notices) = (1, 0, 0);
        while received < REQUESTS || notices == 0 {
            let mut header = [0; 8];
            stream.read_exact(&mut header).unwrap();
            match header {
                [0, 0, 0, 8, 0, 0, 0, 16] => {
                    stream.read_exact(&mut [0; 16]).unwrap();
                    (generation, notices) = (0, notices + 1);
                }
                [0, 0, 0, 0, 0, 0, 0, 1] => {
                    let mut value = [0];
                    stream.read_exact(&mut value).unwrap();
                    let found = value[0] - b'0';
                    assert!(generation == 0 || generation == found, "generation {found} without a notice");
                    (generation, received) = (found, received + 1);
                }
                other => panic!("{other:?}"),
            }
        }
    });
}
