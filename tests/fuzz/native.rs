//! Properties of a server that receives any bytes in the native protocol: it responds as docs/PROTOCOL.md specifies,
//! wherever the bytes are split, and to each complete request before the next bytes arrive.

use super::in_process_server::{Connection, InProcessServer};
use super::source::Source;
use crate::helpers::reference_server::{GENERATION, LONG, RANGE, Reference, long, number, range_body};

/// Tables with both kinds of keys, each with its server.
pub struct Tables(Vec<(Reference, InProcessServer)>);

impl Tables {
    pub fn start() -> Tables {
        let value = |i: u8| vec![i; [0, 1, 7, 60, 5000, 70_000][usize::from(i) % 6]];
        let number = |i: u8| if i < 30 { u64::from(i) } else { u64::MAX - u64::from(i) };
        let key = |i: u8| [&b"key"[..usize::from(i) % 4], &[i], &vec![b'k'; usize::from(i / 30) * 100]].concat();
        let tables = [
            Reference::of_numbers((0..60).map(|i| (number(i), value(i)))),
            Reference::of_bytes((0..60).map(|i| (key(i), value(i)))),
            Reference::of_numbers([]),
        ];
        let served = |table: Reference| {
            let served = InProcessServer::start(&table.db(), table.socket());
            (table, served)
        };
        Tables(tables.map(served).into())
    }
}

/// Sends the requests that the bytes describe to one of the tables, in pieces.
pub fn check(tables: &Tables, data: &[u8]) {
    let mut source = Source::new(data);
    let (table, served) = &tables.0[source.below(tables.0.len())];
    let mut cuts: Vec<usize> = (0..source.below(4)).map(|_| source.below(1 << 16)).collect();
    let mut stream = Vec::new();
    while !source.is_empty() && stream.len() < 1 << 16 {
        stream.extend(request(&mut source, table));
    }
    // Another first byte selects the other protocol.
    let Some(first) = stream.first_mut() else { return };
    *first = 0;

    cuts.iter_mut().for_each(|cut| *cut %= stream.len());
    cuts.sort_unstable();
    let mut connection = served.connect();
    let (mut sent, mut answered, mut is_closed) = (0, 0, false);
    for end in cuts.into_iter().chain([stream.len()]) {
        connection.send(&stream[sent..end]);
        sent = end;
        // A closed connection gets no responses to later requests.
        if !is_closed {
            let (answers, closes) = table.each_answer(&stream[..end]);
            answers[answered..].iter().for_each(|answer| expect(&mut connection, answer.as_deref()));
            (answered, is_closed) = (answers.len(), closes);
        }
    }
    assert_eq!(connection.exchange(&[]), b"", "the server sent bytes after the last response");
}

/// Returns a valid or almost valid request.
fn request(source: &mut Source<'_>, table: &Reference) -> Vec<u8> {
    let op = source.below(GENERATION as usize + 2) as u32;
    match source.below(6) {
        0 => {
            let len = source.below(48);
            source.bytes(len).to_vec()
        }
        1 => {
            let len = source.below(200);
            long(u32::from(source.byte()), source.bytes(len))
        }
        2 => {
            let announced = u32::from_le_bytes(std::array::from_fn(|_| source.byte()));
            [(LONG | op).to_be_bytes(), announced.to_be_bytes()].concat()
        }
        _ if op >= RANGE && source.one_in(2) => {
            let flags = u32::from(source.byte() & 63);
            let keys = [2, 8].map(|given| if flags & given == 0 { Vec::new() } else { key(source, table) });
            long(op.min(RANGE + 1), &range_body(flags, source.below(40) as u32, &keys[0], &keys[1]))
        }
        _ if table.numbers => [&[0, 0, 0, op as u8, 0, 0, 0, 0], &key(source, table)[..]].concat(),
        _ => long(op, &key(source, table)),
    }
}

/// Returns a key of the table, or a key near one.
fn key(source: &mut Source<'_>, table: &Reference) -> Vec<u8> {
    let row = source.below(table.rows.len().max(1));
    let mut key = table.rows.keys().nth(row).cloned().unwrap_or(vec![0; 8]);
    match source.below(4) {
        0 if !table.numbers => key.push(source.byte()),
        1 if !table.numbers => key.truncate(source.below(1 + key.len())),
        2 => key.last_mut().map_or((), |last| *last ^= 1),
        _ => {}
    }
    key
}

/// Reads and compares a response. A response that describes the server (`None`) can be any text, the number of an
/// attempt, the state that it tracks, or the description of its table.
fn expect(connection: &mut Connection, answer: Option<&[u8]>) {
    if let Some(answer) = answer {
        assert!(connection.read(answer.len()) == answer, "a different response");
        return;
    }
    let header = connection.read(8);
    let (status, len_bytes) = (number(&header[..4]), number(&header[4..]) as usize);
    assert!(status == 0 && len_bytes <= 64 << 10 || status == 2 && len_bytes == 0, "{header:?}");
    let value = connection.read(len_bytes);
    assert!([8, 16, 32].contains(&len_bytes) || str::from_utf8(&value).is_ok(), "{}", value.escape_ascii());
}
