//! Clients that send a long pipeline before they read a reply.

use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use super::{ServedRows, command};
use crate::helpers::frames::{expect, expect_end, gets};
use crate::helpers::tables::{Table, answers_to_gets};

const COMMANDS: usize = 300_000;
const ROWS: usize = 1000;

/// Returns pieces of the pipeline with their replies: short and long replies, replies that take several passes, and
/// errors.
fn pieces(served: &ServedRows) -> Vec<(Vec<u8>, Vec<u8>)> {
    let all: Vec<&[u8]> = served.rows.keys().map(Vec::as_slice).collect();
    let mget = super::array([&b"MGET"[..]].into_iter().chain(all.iter().copied()));
    let values: Vec<u8> = served.rows.values().flat_map(|value| super::bulk(value)).collect();
    (0..COMMANDS)
        .map(|i| match i % 30_000 {
            0 => (mget.clone(), [format!("*{ROWS}\r\n").as_bytes(), &values].concat()),
            1 => (b"PING\r\n".to_vec(), b"+PONG\r\n".to_vec()),
            2 => (command("DBSIZE 1"), b"-ERR wrong number of arguments for 'dbsize' command\r\n".to_vec()),
            _ => {
                let key = (i % (ROWS + 1)).to_string();
                (command(&format!("GET {key}")), served.get(key.as_bytes()))
            }
        })
        .collect()
}

#[test]
fn a_pipeline_of_any_length_may_be_sent_before_a_reply_is_read() {
    let served = ServedRows::numbers(ROWS);
    let (commands, replies): (Vec<_>, Vec<_>) = pieces(&served).into_iter().unzip();
    let (commands, replies) = (commands.concat(), replies.concat());
    for ends_first in [false, true] {
        let mut stream = served.connect();
        stream.write_all(&commands).unwrap();
        if ends_first {
            stream.shutdown(Shutdown::Write).unwrap();
        }
        let held_bytes = client_memory_bytes(&served);
        assert!(held_bytes <= 2 * commands.len() + (256 << 10), "{held_bytes} bytes for {}", commands.len());
        if ends_first {
            expect_end(&mut stream, &replies);
        } else {
            expect(&mut stream, &replies);
            stream.write_all(&command("GET 7")).unwrap();
            expect(&mut stream, &served.get(b"7"));
        }
    }
}

/// Returns the memory of all connections, in bytes, without the kernel's memory for their sockets.
fn client_memory_bytes(served: &ServedRows) -> usize {
    let mut client = zero_kv::client::Client::connect(served.scene.socket()).unwrap();
    let info = client.info().unwrap();
    let number = |name: &str| info.number::<usize>(name).unwrap();
    number("client_memory_bytes").saturating_sub(number("client_sockets_bytes"))
}

#[test]
fn the_memory_of_a_long_pipeline_is_released_once_it_is_answered() {
    let served = ServedRows::numbers(ROWS);
    let mut streams: Vec<UnixStream> = (0..4).map(|_| served.connect()).collect();
    let (commands, reply) = (command("GET 7").repeat(100_000), served.get(b"7"));
    for stream in &mut streams {
        stream.write_all(&commands).unwrap();
        expect(stream, &reply.repeat(100_000));
    }
    let held_bytes = client_memory_bytes(&served);
    assert!(held_bytes < 4 * (64 << 10), "{held_bytes} bytes are held for idle connections");
}

#[test]
fn a_pipeline_of_native_requests_may_be_sent_before_a_response_is_read() {
    let table = Table::new((0..64).map(|key| (key, vec![b'v'; if key % 8 == 7 { 6000 } else { 20 }])));
    let server = table.serve();
    let keys = || (0..200_000_u64).map(|i| i % 70);
    // Computed first: the server disconnects a client that reads nothing for 30 s.
    let expected = answers_to_gets(&table.model, keys());
    let mut stream = server.connect();
    stream.write_all(&gets(keys())).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    expect_end(&mut stream, &expected);
}
