//! Long pipelines over TLS, whose clients send everything before they read.

use std::io::{Read, Write};

use crate::helpers::frames::{expect, gets};
use crate::helpers::tables::{Table, answers_to_gets};
use crate::helpers::tls::{Authority, TlsFiles, connect_tls};
use crate::helpers::waiting::eventually;

const REQUESTS: u64 = 100_000;

#[test]
fn a_client_may_send_a_hundred_thousand_gets_before_it_reads() {
    let (table, authority) = (Table::of_rows(1000), Authority::new());
    let files = TlsFiles::write(table.socket().parent().unwrap(), &authority, &authority.issue());
    let server = table.serve_with(&files.options());
    let keys = || (0..REQUESTS).map(|number| number % 1000 + 1);

    let mut native = connect_tls(&server, &authority.clients(None, None));
    native.write_all(&gets(keys())).unwrap();
    let mut redis = connect_tls(&server, &authority.clients(None, None));
    let commands: String = keys().map(|key| format!("GET {key}\r\n")).collect();
    redis.write_all(commands.as_bytes()).unwrap();

    let value = |key: u64| format!("value_content_at_key_{key}");
    let model = (1..=1000).map(|key| (key, value(key).into_bytes())).collect();
    let expected = answers_to_gets(&model, keys());
    let mut found = vec![0; expected.len()];
    native.read_exact(&mut found).unwrap();
    assert!(found == expected, "the native responses differ");
    let expected: String = keys().map(|key| format!("${}\r\n{}\r\n", value(key).len(), value(key))).collect();
    let mut found = vec![0; expected.len()];
    redis.read_exact(&mut found).unwrap();
    assert!(found == expected.as_bytes(), "the replies differ");
    assert_eq!(server.number("requests_get"), REQUESTS);
}

#[test]
fn the_memory_of_encrypted_connections_is_counted_until_they_end() {
    let (table, authority) = (Table::of_rows(1000), Authority::new());
    let files = TlsFiles::write(table.socket().parent().unwrap(), &authority, &authority.issue());
    let server = table.serve_with(&files.options());
    let config = authority.clients(None, None);
    let mut idle: Vec<_> = (0..10).map(|_| connect_tls(&server, &config)).collect();
    for stream in &mut idle {
        stream.write_all(b"PING\r\n").unwrap();
        expect(stream, b"+PONG\r\n");
    }
    eventually("the memory of ten sessions is counted", || server.number("client_memory_bytes") >= 10 << 12);
    drop(idle);
    eventually("no memory is held", || server.number("client_memory_bytes") == 0);
}
