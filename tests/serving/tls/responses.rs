//! Responses over TLS to clients that read slowly, that change their keys, and while the file is overwritten.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;
use rustls::version::TLS13;

use crate::helpers::frames::{answer, expect, gets};
use crate::helpers::tables::Table;
use crate::helpers::tls::{Authority, TlsFiles, connect_tls, shake_hands};
use crate::helpers::waiting::eventually;

const KEYS: u64 = 40;

fn value(key: u64) -> Vec<u8> {
    vec![key as u8; 20_000 + key as usize]
}

fn scene() -> (Table, Authority, TlsFiles) {
    let (table, authority) = (Table::new((0..KEYS).map(|key| (key, value(key)))), Authority::new());
    let files = TlsFiles::write(table.socket().parent().unwrap(), &authority, &authority.issue());
    (table, authority, files)
}

#[test]
fn a_client_that_reads_in_small_pieces_gets_every_byte() {
    let (table, authority, files) = scene();
    for memory in ["map", "copy"] {
        let server = table.serve_with(&[&files.options()[..], &["--memory", memory]].concat());
        let mut stream = connect_tls(&server, &authority.clients(None, None));
        rustix::net::sockopt::set_socket_recv_buffer_size(&stream.sock, 64 << 10).unwrap();
        let keys: Vec<u64> = (0..KEYS).chain((0..KEYS).rev()).collect();
        stream.write_all(&gets(keys.iter().copied())).unwrap();
        let expected: Vec<u8> = keys.iter().flat_map(|key| answer(0, &value(*key))).collect();
        let (mut found, mut piece) = (Vec::new(), [0; 701]);
        while found.len() < expected.len() {
            let len = stream.read(&mut piece).unwrap();
            assert!(len > 0, "the connection ended after {} bytes", found.len());
            found.extend_from_slice(&piece[..len]);
        }
        assert!(found == expected, "{memory}: the responses differ");
    }
}

#[test]
fn a_client_that_reads_nothing_is_disconnected_and_its_memory_is_released() {
    let (table, authority, files) = scene();
    let server = table.serve_with(&[&files.options()[..], &["--stall-timeout", "1"]].concat());
    let mut stream = connect_tls(&server, &authority.clients(None, None));
    // The responses exceed all buffers of the kernel.
    for _ in 0..100 {
        stream.write_all(&gets(0..KEYS)).unwrap();
    }
    server.wait_for("connections_cut_stalled", 1);
    eventually("the memory is released", || server.number("client_memory_bytes") == 0);
}

#[test]
fn a_client_may_replace_its_keys_at_any_time() {
    let (table, authority, files) = scene();
    let server = table.serve_with(&files.options());
    let mut stream = connect_tls(&server, &authority.clients(None, Some(&TLS13)));
    shake_hands(&mut stream).unwrap();
    for key in 0..KEYS {
        stream.write_all(&gets([key])).unwrap();
        // Requests that the server replaces its keys, too.
        stream.conn.refresh_traffic_keys().unwrap();
        stream.write_all(&gets([key])).unwrap();
        expect(&mut stream, &answer(0, &value(key)).repeat(2));
    }
}

#[test]
fn pending_responses_are_sent_when_the_server_stops() {
    let (table, authority, files) = scene();
    let mut server = table.serve_with(&files.options());
    let mut stream = connect_tls(&server, &authority.clients(None, None));
    stream.write_all(&gets(0..KEYS)).unwrap();
    expect(&mut stream, &answer(0, &value(0)));
    server.signal(Signal::TERM);
    for key in 1..KEYS {
        expect(&mut stream, &answer(0, &value(key)));
    }
    assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0);
    assert!(server.wait().success());
}

#[test]
fn no_wrong_byte_is_encrypted_while_the_file_is_overwritten_in_place() {
    let (table, authority, files) = scene();
    let original = std::fs::read(table.db()).unwrap();
    // Without a lease, the server learns of a write only from the file itself.
    let server = table.serve_with(&[&files.options()[..], &["--no-lease"]].concat());
    let config = authority.clients(None, None);
    let is_over = AtomicBool::new(false);
    let (right, failed) = std::thread::scope(|scope| {
        let overwriting = scope.spawn(|| {
            let file = File::options().write(true).open(table.db()).unwrap();
            let garbage: Vec<u8> = original.iter().map(|byte| byte ^ 0x55).collect();
            let half = original.len() / 2;
            for round in 0..200 {
                let from = if round % 2 == 0 { &garbage } else { &original };
                file.write_all_at(&from[half..], half as u64).unwrap();
                std::thread::yield_now();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let (mut right, mut failed) = (0, 0);
        while !is_over.load(Ordering::Relaxed) {
            let mut stream = connect_tls(&server, &config);
            if stream.write_all(&gets(0..KEYS)).is_err() {
                continue;
            }
            for key in 0..KEYS {
                let mut header = [0; 8];
                // The server ends a connection if the file changes while a long response is in flight.
                if stream.read_exact(&mut header).is_err() {
                    failed += 1;
                    break;
                }
                let mut body = vec![0; u32::from_be_bytes(header[4..].try_into().unwrap()) as usize];
                if stream.read_exact(&mut body).is_err() {
                    failed += 1;
                    break;
                }
                match header[..4] {
                    [0, 0, 0, 0] => {
                        assert!(body == value(key), "a wrong value of key {key}");
                        right += 1;
                    }
                    _ => failed += 1,
                }
            }
        }
        overwriting.join().unwrap();
        (right, failed)
    });
    assert!(failed > 0, "no write met a response: {right} values were right");
}
