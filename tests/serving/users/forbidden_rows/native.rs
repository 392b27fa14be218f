//! All ops, with keys and ranges of all kinds.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use zero_kv::client::Client;
use zero_kv::protocol::native::Op;

use super::{Kind, Pair, RESTRICTED};
use crate::helpers::frames::{connect, request};
use crate::helpers::reference_server::{BACKWARD, END, START, long, range_body};
use crate::helpers::typed_tables::selection;
use crate::serving::users::auth;

/// Returns requests of all ops with permitted and forbidden keys.
fn requests(kind: Kind, schema_id: u64) -> Vec<Vec<u8>> {
    let texts = kind.keys();
    let numbers = [1, 10, 19, 2, 20, 3, 9_446_744_073_709_551_615];
    let mut requests = vec![long(Op::Select as u32, &selection(schema_id, &[1]))];
    for op in Op::ALL.into_iter().filter(|op| *op != Op::Auth) {
        requests.extend(numbers.iter().map(|key| request(op as u32, *key).to_vec()));
        requests.extend(texts.iter().map(|key| long(op as u32, key.as_bytes())));
        let number = |key: u64| key.to_be_bytes().to_vec();
        let edges = [
            (b"pub:".to_vec(), b"pub;".to_vec()),
            (number(1), number(1)),
            (number(0), number(u64::MAX)),
            (Vec::new(), Vec::new()),
        ];
        for (start, end) in edges {
            let flags = if start.is_empty() { 0 } else { START | END };
            for flags in [flags, flags | BACKWARD] {
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
