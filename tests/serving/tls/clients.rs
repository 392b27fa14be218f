//! Clients of both protocols over TLS, with and without certificates of their own.

use std::io::{Read, Write};

use rustls::version::{TLS12, TLS13};

use crate::helpers::frames::{answer, expect, expect_end, gets};
use crate::helpers::tables::Table;
use crate::helpers::tls::{Authority, TlsFiles, connect_tls};

#[test]
fn both_protocols_work_over_both_versions_of_tls() {
    let (table, authority) = (Table::of_rows(100), Authority::new());
    let files = TlsFiles::write(table.socket().parent().unwrap(), &authority, &authority.issue());
    let server = table.serve_with(&files.options());
    for version in [&TLS12, &TLS13] {
        let config = authority.clients(None, Some(version));
        let mut native = connect_tls(&server, &config);
        native.write_all(&gets([7, 101])).unwrap();
        expect(&mut native, &[answer(0, b"value_content_at_key_7"), answer(1, b"")].concat());
        assert_eq!(native.conn.protocol_version(), Some(version.version));
        let mut redis = connect_tls(&server, &config);
        redis.write_all(b"GET 7\r\nGET 101\r\n").unwrap();
        expect(&mut redis, b"$22\r\nvalue_content_at_key_7\r\n$-1\r\n");
    }
    assert_eq!(server.number("tls_handshakes"), 4);
}

#[test]
fn commands_may_be_split_into_records_at_any_byte() {
    let (table, authority) = (Table::of_rows(100), Authority::new());
    let files = TlsFiles::write(table.socket().parent().unwrap(), &authority, &authority.issue());
    let server = table.serve_with(&files.options());
    let command = b"*2\r\n$3\r\nGET\r\n$1\r\n7\r\n";
    let mut stream = connect_tls(&server, &authority.clients(None, None));
    for split in 0..=command.len() {
        stream.write_all(&command[..split]).unwrap();
        stream.flush().unwrap();
        stream.write_all(&command[split..]).unwrap();
        expect(&mut stream, b"$22\r\nvalue_content_at_key_7\r\n");
    }
}

#[test]
fn the_end_of_a_connection_is_announced() {
    let (table, authority) = (Table::of_rows(100), Authority::new());
    let files = TlsFiles::write(table.socket().parent().unwrap(), &authority, &authority.issue());
    let server = table.serve_with(&files.options());
    for version in [&TLS12, &TLS13] {
        let mut stream = connect_tls(&server, &authority.clients(None, Some(version)));
        stream.write_all(b"QUIT\r\n").unwrap();
        expect(&mut stream, b"+OK\r\n");
        // Without the announcement, rustls would report an unexpected end.
        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);

        let mut stream = connect_tls(&server, &authority.clients(None, Some(version)));
        stream.write_all(b"PING\r\n").unwrap();
        expect(&mut stream, b"+PONG\r\n");
        stream.conn.send_close_notify();
        stream.flush().unwrap();
        expect_end(&mut stream, b"");
    }
}

#[test]
fn a_client_without_a_valid_certificate_is_rejected_if_certificates_are_required() {
    let (table, authority, other) = (Table::of_rows(100), Authority::new(), Authority::new());
    let files = TlsFiles::write(table.socket().parent().unwrap(), &authority, &authority.issue());
    let mut server = table.serve_with(&[&files.options()[..], &["--tls-ca", files.ca.to_str().unwrap()]].concat());
    let (valid, foreign, expired) = (authority.issue(), other.issue(), authority.issue_until(2002));
    let mut failed = 0;
    for version in [&TLS12, &TLS13] {
        let mut stream = connect_tls(&server, &authority.clients(Some(&valid), Some(version)));
        stream.write_all(b"GET 7\r\n").unwrap();
        expect(&mut stream, b"$22\r\nvalue_content_at_key_7\r\n");
        for invalid in [None, Some(&foreign), Some(&expired)] {
            let mut stream = connect_tls(&server, &authority.clients(invalid, Some(version)));
            // With TLS 1.3, the client learns of the rejection only when it reads.
            let _ = stream.write_all(b"GET 7\r\n");
            let mut reply = Vec::new();
            let error = stream.read_to_end(&mut reply).unwrap_err();
            assert_eq!(reply, b"", "{error}");
            failed += 1;
            server.wait_for("tls_handshakes_failed", failed);
        }
    }
    assert_eq!((server.number("tls_handshakes"), server.number("requests_redis")), (2, 2));
    server.wait_for_log("the TLS handshake failed: ");
}

#[test]
fn values_of_any_length_arrive_from_every_kind_of_memory() {
    let lengths = [0, 1, 100, 4095, 4096, 4097, 16_000, 16_384, 65_536, 70_000, 1 << 20, 3_500_001];
    let value = |len: usize| (0..len).map(|at| (at % 251) as u8).collect::<Vec<u8>>();
    let table = Table::new(lengths.iter().zip(0..).map(|(len, key)| (key, value(*len))));
    let authority = Authority::new();
    let files = TlsFiles::write(table.socket().parent().unwrap(), &authority, &authority.issue());
    for memory in ["map", "copy", "sealed"] {
        let server = table.serve_with(&[&files.options()[..], &["--memory", memory]].concat());
        let mut stream = connect_tls(&server, &authority.clients(None, None));
        for round in 0..2 {
            stream.write_all(&gets(0..lengths.len() as u64)).unwrap();
            for len in lengths {
                let expected = answer(0, &value(len));
                let mut found = vec![0; expected.len()];
                stream.read_exact(&mut found).unwrap();
                assert!(found == expected, "{memory}, round {round}, {len} bytes");
            }
        }
    }
}
