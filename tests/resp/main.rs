//! The parser of the Redis protocol, from outside: random streams, cut at
//! random, are read as if they had come whole.
#![cfg(feature = "server")]

mod splits;

use std::time::{SystemTime, UNIX_EPOCH};

/// Pieces that, in a row, are now commands, now nearly commands.
const PIECES: &[&[u8]] = &[
    b"*1\r\n$4\r\nPING\r\n",
    b"*2\r\n$3\r\nGET\r\n$16\r\nkey:000000012345\r\n",
    b"*2\r\n$3\r\nget\r\n$1\r\nk\r\n",
    b"*3\r\n$4\r\nMGET\r\n$0\r\n\r\n$3\r\na\r\n\r\n",
    b"PING\r\n",
    b"set 'a b' \"\\x00\\n\"\n",
    b"\r\n",
    b" \t\n",
    b"*0\r\n",
    b"*-1\r\n",
    b"*2\r\n",
    b"$3\r\n",
    b"GET\r\n",
    b"$1048576\r\n",
    b"*1048577\r\n",
    b"*699049\r\n",
    b"\"",
    b"'",
    b"\\",
    b"*",
    b"$",
    b"\r",
    b"\n",
    b"1",
    b"x",
    b"\0",
    b"\xff",
];

#[test]
fn random_streams_are_read_the_same_however_they_are_cut() {
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    println!("seed {seed}");
    let mut random = splits::Random::new(seed);
    for _ in 0..20_000 {
        let mut data = random.next().to_le_bytes().to_vec();
        // Whole commands for the most part, so that streams go on past the first.
        let usual = 4 + random.below(PIECES.len() - 3);
        for _ in 0..random.below(12) {
            data.extend_from_slice(PIECES[random.below(usual)]);
        }
        splits::check(&data);
    }
}
