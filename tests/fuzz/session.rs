//! Properties of a server that receives any bytes in the Redis protocol: each command has one reply, and the replies
//! are equal wherever the bytes are split.

use zero_kv::protocol::resp::reply_len_bytes;

use super::in_process_server::InProcessServer;
use super::resp;
use super::source::Source;
use crate::helpers::random::Random;
use crate::helpers::reference_server::Reference;

/// Commands whose replies depend on the time or on the connection.
const VARYING: [&[u8]; 6] = [b"INFO", b"CLIENT", b"HELLO", b"TIME", b"RANDOMKEY", b"COMMAND"];

/// Tables with both kinds of keys, each with its server.
pub struct Tables(Vec<(Reference, InProcessServer)>);

impl Tables {
    pub fn start() -> Tables {
        let value = |i: u8| vec![b'a' + i % 26; [0, 1, 7, 60, 5000, 70_000][usize::from(i) % 6]];
        let tables = [
            Reference::of_numbers((0..60).map(|i| (u64::from(i), value(i)))),
            Reference::of_bytes((0..60).map(|i| (format!("k{i}").into_bytes(), value(i)))),
        ];
        let served = |table: Reference| {
            let served = InProcessServer::start(&table.db(), table.socket());
            (table, served)
        };
        Tables(tables.map(served).into())
    }
}

/// Sends the bytes to the server of one of the tables, as a whole and in pieces.
pub fn check(tables: &Tables, data: &[u8]) {
    let mut source = Source::new(data);
    let (_, served) = &tables.0[source.below(tables.0.len())];
    let (seed, piece_len_max) = (source.number(), 1 + source.below(300));
    let stream = source.rest();
    // A first byte of zero selects the native protocol.
    if stream.is_empty() || stream[0] == 0 || stream.len() > 1 << 16 {
        return;
    }
    let read = resp::read(stream, stream.len(), &mut Random(0));
    let is = |command: &[Vec<u8>], name: &[u8]| command[0].eq_ignore_ascii_case(name);
    let quits = read.commands.iter().position(|command| is(command, b"QUIT"));
    let expected = quits.map_or(read.commands.len() + usize::from(read.error.is_some()), |at| at + 1);

    let whole = served.connect().exchange(&[stream]);
    let (mut rest, mut random, mut pieces) = (stream, Random(seed), Vec::new());
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at((1 + random.below(piece_len_max)).min(rest.len()));
        pieces.push(piece);
        rest = behind;
    }
    let pieces = served.connect().exchange(&pieces);
    let (whole, pieces) = (replies(&whole), replies(&pieces));
    // When a connection is reset, the kernel decides which replies still arrive.
    let is_reset = quits.is_some() || read.error.is_some();
    for replies in [&whole, &pieces] {
        assert!(replies.len() == expected || is_reset && replies.len() < expected, "{} replies", replies.len());
    }
    for ((command, whole), pieces) in read.commands.iter().zip(&whole).zip(&pieces) {
        if !VARYING.iter().any(|name| is(command, name)) {
            assert!(whole == pieces, "a different reply to {}", command[0].escape_ascii());
        }
    }
}

fn replies(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut replies = Vec::new();
    while let Some(len_bytes) = reply_len_bytes(bytes).expect("replies") {
        let (reply, rest) = bytes.split_at(len_bytes);
        replies.push(reply);
        bytes = rest;
    }
    assert!(bytes.is_empty(), "a reply was truncated");
    replies
}
