//! Properties of a client whose server sends any bytes: it never panics or hangs, it accepts only pages whose rows are
//! in ascending order within the requested range, and it reads equal responses however the bytes are split.

use std::path::Path;
use std::time::Duration;

use zero_kv::Key;
use zero_kv::client::{Client, ClientError, Options};
use zero_kv::protocol::native::Op;
use zero_kv::protocol::reader::{Response, ResponseReader};

use super::in_process_server::InProcessServer;
use super::rows::{Numbers, Rows};
use super::source::Source;
use super::tamper::{self, Relay};

const OPS: [Op; 9] = [Op::Get, Op::Exists, Op::Floor, Op::Ceiling, Op::Range, Op::Count, Op::Info, Op::Open, Op::Track];
const VALUE_LEN_MAX_BYTES: usize = 1 << 16;

/// Tables, their servers, and the relays that tamper with the responses.
pub struct Tables(Vec<(Numbers, Rows, Relay)>);

impl Tables {
    pub fn start(folder: &Path) -> Tables {
        let value = |i: u8| vec![i; [0, 1, 7, 60, 3000][usize::from(i) % 5]];
        let tables = [true, false].map(|are_numbers| {
            let key = |i: u8| if are_numbers { u64::from(i).to_be_bytes().to_vec() } else { vec![b'k', i] };
            let (numbers, rows) = (Numbers(are_numbers), (0..60).map(|i| (key(i), value(i))).collect());
            let db = folder.join(format!("{are_numbers}.db"));
            numbers.bake(&rows, &db);
            let socket = db.with_extension("sock");
            InProcessServer::start(&db, socket.clone());
            (numbers, rows, Relay::start(&socket, |source, answer| tamper::change(source, &mut answer.bytes)))
        });
        Tables(tables.into())
    }
}

/// Sends requests through the relay, which follows the bytes as its script, or reads the bytes as responses.
pub fn check(tables: &Tables, data: &[u8]) {
    let mut source = Source::new(data);
    if source.one_in(2) {
        return read_in_pieces(&mut source);
    }
    let (numbers, rows, relay) = &tables.0[source.below(2)];
    let keys: Vec<&Vec<u8>> = rows.keys().collect();
    let [first, last] = [(); 2].map(|()| numbers.key(keys[source.below(keys.len())]));
    let kind = source.below(7);
    relay.follow(source.rest());
    let options = Options {
        call_timeout: Some(Duration::from_secs(60)),
        retries: 0,
        value_len_max_bytes: VALUE_LEN_MAX_BYTES,
        ..Options::default()
    };
    let mut client = Client::connect_with(&relay.socket, &options).unwrap();
    let outcome = ask(&mut client, kind, first, last);
    let error = outcome.err().map(|error| error.to_string());
    assert!(error.is_none_or(|error| !error.is_empty() && !error.contains("timed out")));
}

fn ask(client: &mut Client, kind: usize, first: Key<'_>, last: Key<'_>) -> Result<(), ClientError> {
    match kind {
        0 => client.get(first).map(drop),
        1 => client.contains(first).map(drop),
        2 => {
            let row = client.floor(first)?;
            assert!(row.is_none_or(|(key, _)| Key::from(&key) <= first), "a row above the key");
            Ok(())
        }
        3 => {
            let row = client.ceiling(first)?;
            assert!(row.is_none_or(|(key, _)| Key::from(&key) >= first), "a row below the key");
            Ok(())
        }
        4 => client.count(first..).map(drop),
        5 => client.info().map(|info| drop(format!("{info:?}"))),
        _ => {
            let (first, last) = if first <= last { (first, last) } else { (last, first) };
            let mut before = None;
            for row in client.range(first..=last)? {
                let (key, value) = row?;
                let key_now = Key::from(&key);
                assert!(first <= key_now && key_now <= last, "a row outside the range");
                assert!(before.is_none_or(|before| before < key), "rows that do not ascend");
                assert!(value.len() <= VALUE_LEN_MAX_BYTES);
                before = Some(key);
            }
            Ok(())
        }
    }
}

/// Asserts that the client reads equal responses, and then an equal error, wherever the bytes are split.
fn read_in_pieces(source: &mut Source<'_>) {
    let ops: Vec<Op> = (0..1 + source.below(8)).map(|_| OPS[source.below(OPS.len())]).collect();
    let pieces_len_bytes = [(); 4].map(|()| 1 + source.below(100));
    let has_notices = source.one_in(2);
    let bytes = source.rest();
    let whole = read(&ops, bytes, &[bytes.len().max(1)], has_notices);
    assert_eq!(whole, read(&ops, bytes, &pieces_len_bytes, has_notices));
}

fn read(ops: &[Op], mut bytes: &[u8], pieces_len_bytes: &[usize], has_notices: bool) -> Vec<String> {
    let mut reader = ResponseReader::new(VALUE_LEN_MAX_BYTES);
    if has_notices {
        reader.expect_notices();
    }
    let (mut outcomes, mut pieces) = (Vec::new(), pieces_len_bytes.iter().cycle());
    for op in ops {
        let outcome = loop {
            match reader.next(*op) {
                Ok(None) if bytes.is_empty() => return outcomes,
                Ok(None) => {}
                Ok(Some(Response::Found(value))) => break Ok(format!("{op:?}: {value:?}")),
                Ok(Some(answer)) => break Ok(format!("{op:?}: {answer:?}")),
                Err(violation) => break Err(violation.to_string()),
            }
            let spare = reader.spare();
            let len_bytes = spare.len().min(bytes.len()).min(*pieces.next().expect("an endless iterator"));
            assert!(len_bytes > 0, "the buffer has spare room while more bytes are needed");
            let (piece, rest) = bytes.split_at(len_bytes);
            spare[..len_bytes].copy_from_slice(piece);
            reader.received(len_bytes);
            bytes = rest;
        };
        let is_end = outcome.is_err();
        outcomes.push(outcome.unwrap_or_else(|error| error));
        if !is_end {
            outcomes.push(format!("{:?}", reader.take_state()));
        }
        if is_end {
            break;
        }
    }
    outcomes
}
