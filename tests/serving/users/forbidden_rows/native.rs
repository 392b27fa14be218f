//! All ops, with keys and ranges of all kinds.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use zero_kv::OwnedKey;
use zero_kv::client::{Client, ClientError};
use zero_kv::protocol::native::Op;

use super::{Kind, Pair, RESTRICTED};
use crate::helpers::frames::{connect, request};
use crate::helpers::reference_server::{BACKWARD, END, END_EXCLUDED, START, START_EXCLUDED, long, range_body};
use crate::helpers::typed_tables::selection;
use crate::serving::users::auth;

/// Returns requests of all ops with permitted and forbidden keys.
fn requests(kind: Kind, schema_id: u64) -> Vec<Vec<u8>> {
    let texts = kind.keys();
    let numbers = [1, 10, 19, 2, 20, 3, 9_446_744_073_709_551_615];
    let mut requests = vec![long(Op::Select as u32, &selection(schema_id, &[1]))];
    // The state in a response to Track has a hash of the server's run, so it differs between any two servers.
    for op in Op::ALL.into_iter().filter(|op| !matches!(op, Op::Auth | Op::Track)) {
        requests.extend(numbers.iter().map(|key| request(op as u32, *key).to_vec()));
        requests.extend(texts.iter().map(|key| long(op as u32, key.as_bytes())));
        let number = |key: u64| key.to_be_bytes().to_vec();
        let edges = [
            (b"pub:".to_vec(), b"pub;".to_vec()),
            (b"pub:1".to_vec(), b"pub:9".to_vec()),
            (b"pub:1".to_vec(), b"pub".to_vec()),
            (b"pub:9".to_vec(), b"pub:1".to_vec()),
            (b"pua".to_vec(), b"pub:9".to_vec()),
            (number(1), number(1)),
            (number(0), number(u64::MAX)),
            (Vec::new(), Vec::new()),
        ];
        for (start, end) in edges {
            let flags = if start.is_empty() { 0 } else { START | END };
            for flags in [0, START_EXCLUDED, END_EXCLUDED]
                .map(|excluded| [flags | excluded, flags | excluded | BACKWARD])
                .concat()
            {
                requests.push(long(op as u32, &range_body(flags, 100, &start, &end)));
            }
        }
    }
    requests
}

#[test]
fn native_responses_do_not_depend_on_forbidden_rows() {
    for kind in Kind::ALL {
        let pair = Pair::new(kind);
        let schema = Client::connect(pair.servers[0].socket()).unwrap().schema().unwrap();
        let requests = requests(kind, schema.map_or(0, |schema| schema.id()));
        for user in RESTRICTED.into_iter().chain(["unknown"]) {
            let begin = if user == "unknown" { Vec::new() } else { auth(user, "any") };
            let all = [begin.clone(), requests.concat()].concat();
            let over_unix = |at: usize| {
                let mut stream: UnixStream = connect(pair.servers[at].socket());
                // Without a login, a client of the Unix socket may use all keys.
                stream.write_all(&auth("none", "any")).unwrap();
                stream.write_all(&all).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
                let mut responses = Vec::new();
                stream.read_to_end(&mut responses).unwrap();
                responses
            };
            if pair.responses(0, &all) != pair.responses(1, &all) || over_unix(0) != over_unix(1) {
                for request in &requests {
                    let bytes = [begin.clone(), request.clone()].concat();
                    let [first, second] = [0, 1].map(|at| pair.responses(at, &bytes).escape_ascii().to_string());
                    assert_eq!(first, second, "{kind:?}: {user}: {}", request.escape_ascii());
                }
                panic!("{kind:?}: {user}: only the responses to all requests together differ");
            }
        }
        let all = [auth("admin", "any"), requests.concat()].concat();
        assert_ne!(pair.responses(0, &all), pair.responses(1, &all), "{kind:?}: the tables differ");
    }
}

#[test]
fn a_user_of_a_prefix_reads_and_counts_its_ranges() {
    let pair = Pair::new(Kind::Bytes);
    let mut all = Client::connect(pair.servers[1].socket()).unwrap();
    let mut client = Client::connect(pair.servers[1].socket()).unwrap();
    client.authenticate("prefix", "any").unwrap();
    let texts = |rows: Vec<(OwnedKey, Vec<u8>)>| rows.into_iter().map(|(key, _)| key.to_string()).collect::<Vec<_>>();
    for prefix in ["pub:", "pub:1", "pub:\u{7f}"] {
        let read = |client: &mut Client| client.prefix(prefix).unwrap().map(Result::unwrap).collect::<Vec<_>>();
        let expected = read(&mut all);
        assert_eq!(read(&mut client), expected, "{prefix}");
        assert_eq!(client.count_prefix(prefix).unwrap(), expected.len() as u64);
        let mut backward: Vec<_> = client.prefix(prefix).unwrap().rev().map(Result::unwrap).collect();
        backward.reverse();
        assert_eq!(backward, expected, "{prefix}");
    }
    let expected = texts(all.range("pub:3".."pub:5").unwrap().map(Result::unwrap).collect());
    assert_eq!(texts(client.range("pub:3".."pub:5").unwrap().map(Result::unwrap).collect()), expected);
    assert_eq!(client.count("pub:3".."pub:5").unwrap(), expected.len() as u64);
    assert!(expected.len() > 10);
    assert!(matches!(client.count_prefix("pub"), Err(ClientError::NotPermitted { .. })));
    assert!(matches!(client.count("pub:"..="pub;"), Err(ClientError::NotPermitted { .. })));
    assert!(matches!(client.count("pub:"..), Err(ClientError::NotPermitted { .. })));
    assert!(matches!(client.count(.."pub:9"), Err(ClientError::NotPermitted { .. })));
}
