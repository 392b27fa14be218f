//! Clients over a socket. This file tests them against a scripted server.

mod both;
mod cache;
mod cancel;
mod columns;
mod key_types;
#[cfg(feature = "full")]
mod logins;
mod pages;
mod pools;
mod restarts;
mod server;
mod surfaces;
#[cfg(feature = "full")]
mod tls;
mod wrong_responses;

use std::ops::Bound;

use zero_kv::Key;
use zero_kv::client::{Client, ClientError, Options, ResponsePart};
use zero_kv::protocol::native::{Op, Status, VALUE_LEN_MAX_BYTES};
use zero_kv::protocol::response::Violation;

use crate::helpers::scripted_server::{ERROR, EXISTS, NOT_FOUND, Script, ScriptedServer, found, response_header};

/// Returns the result of `get(7)` with this response.
fn get(answer: &[u8]) -> Result<Option<Vec<u8>>, ClientError> {
    let peer = ScriptedServer::answering(&[answer]);
    Client::connect(peer.socket()).unwrap().get(7)
}

/// Returns the violation in a result.
fn violation<T: std::fmt::Debug>(result: Result<T, ClientError>) -> Violation {
    match result {
        Err(ClientError::Protocol { error, .. }) => error,
        other => panic!("a violation was expected, not {other:?}"),
    }
}

#[test]
fn requests_have_the_documented_bytes() {
    let peer = ScriptedServer::answering(&[NOT_FOUND, NOT_FOUND]);
    let mut client = Client::connect(peer.socket()).unwrap();
    client.get(0x0102_0304_0506_0708).unwrap();
    assert_eq!(peer.request(), [0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    client.contains(u64::MAX).unwrap();
    assert_eq!(peer.request(), [0, 0, 0, 1, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]);
}

#[test]
fn requests_for_byte_keys_have_the_documented_bytes() {
    let peer = ScriptedServer::answering(&[&found(b"22"), EXISTS, NOT_FOUND]);
    let mut client = Client::connect(peer.socket()).unwrap();
    assert_eq!(client.get("bee").unwrap(), Some(b"22".to_vec()));
    assert_eq!(peer.request(), *b"\0\x01\0\0\0\0\0\x03bee\0\0\0\0\0");
    assert!(client.contains("12345678").unwrap());
    assert_eq!(peer.request(), *b"\0\x01\0\x01\0\0\0\x0812345678");
    assert_eq!(client.get(&[7; 65_535]).unwrap(), None);
    let request = peer.request();
    assert_eq!((request.len(), &request[..9]), (65_552, &b"\0\x01\0\0\0\0\xff\xff\x07"[..]));
    assert_eq!(request[65_543..], [0; 9]);
}

#[test]
fn a_key_that_no_table_can_have_is_not_sent() {
    let peer = ScriptedServer::answering(&[NOT_FOUND]);
    let mut client = Client::connect(peer.socket()).unwrap();
    let long = vec![b'k'; 65_536];
    let refused = |result: Result<bool, ClientError>| result.unwrap_err().to_string();
    for (key, said) in [(&b""[..], "a key of 0 bytes, where 1 to 65535 are allowed"), (&long, "a key of 65536 bytes")] {
        assert!(refused(client.get(key).map(|_| true)).starts_with(said));
        assert!(refused(client.contains(key)).starts_with(said));
        assert!(refused(client.floor(key).map(|_| true)).starts_with(said));
        assert!(refused(client.ceiling(key).map(|_| true)).starts_with(said));
    }
    let key = Key::from(&long);
    for range in [(Bound::Included(key), Bound::Unbounded), (Bound::Unbounded, Bound::Excluded(key))] {
        assert!(matches!(client.range(range), Err(ClientError::KeyLen { len_bytes: 65_536 })));
        assert!(matches!(client.count(range), Err(ClientError::KeyLen { len_bytes: 65_536 })));
        assert!(matches!(client.first_page(range, 1), Err(ClientError::KeyLen { len_bytes: 65_536 })));
    }
    assert!(matches!(client.prefix(&long), Err(ClientError::KeyLen { len_bytes: 65_536 })));
    let mixed = client.count(Key::from(7)..Key::from("seven")).unwrap_err();
    let expected = "the range starts with a key of kind unsigned 64-bit numbers, and ends with a key of kind bytes: \
                    use keys of one kind";
    assert_eq!(mixed.to_string(), expected);
    // The connection remains usable.
    assert_eq!(client.get("k").unwrap(), None);
    assert_eq!(peer.request()[..9], *b"\0\x01\0\0\0\0\0\x01k");
}

#[test]
fn an_error_names_the_key_on_one_line() {
    let peer = ScriptedServer::answering(&[ERROR; 3]);
    let mut client = Client::connect(peer.socket()).unwrap();
    let mut said = |key: &[u8]| client.get(key).unwrap_err().to_string();
    let (text, long) = (said(b"a\n\"\xff"), said(&[b'k'; 1000]));
    assert!(text.contains(r#"responded to key "a\n\"\xff" with an error"#), "{text}");
    assert!(text.contains("keys may be of the other kind"), "{text}");
    assert!(long.contains(&format!("key \"{}...\" with", "k".repeat(64))), "{long}");
    let range = client.count("a".."b").unwrap_err().to_string();
    assert!(range.contains(r#"responded to the range from "a" to "b" with an error"#), "{range}");
}

#[test]
fn responses_follow_each_other_on_one_connection() {
    // Longer than the client's buffer and the socket's.
    let large: Vec<u8> = (0..3 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let answers = [&found(b"seven")[..], NOT_FOUND, ERROR, EXISTS, &found(&large), &found(b""), NOT_FOUND];
    let peer = ScriptedServer::answering(&answers);
    let mut client = Client::connect(peer.socket()).unwrap();
    assert_eq!(client.get(1).unwrap().as_deref(), Some(&b"seven"[..]));
    assert_eq!(client.get(2).unwrap(), None);
    assert!(matches!(client.get(3), Err(ClientError::Server { request, .. }) if request == "key 3"));
    assert!(client.contains(4).unwrap(), "an error status does not end the connection");
    assert!(client.get(5).unwrap() == Some(large));
    assert_eq!(client.get(6).unwrap(), Some(vec![]));
    assert!(!client.contains(7).unwrap());
}

#[test]
fn unexpected_values_are_rejected() {
    for status in [Status::NotFound, Status::Error] {
        let answer = [&response_header(status as u32, 3)[..], b"abc"].concat();
        let unwanted = Violation::UnexpectedValue { op: Op::Get, status, len_bytes: 3 };
        assert_eq!(violation(get(&answer)), unwanted);
    }
    let peer = ScriptedServer::answering(&[&found(b"abc")]);
    let exists = Client::connect(peer.socket()).unwrap().contains(7);
    let unwanted = Violation::UnexpectedValue { op: Op::Exists, status: Status::Ok, len_bytes: 3 };
    assert_eq!(violation(exists), unwanted);
}

#[test]
fn a_too_long_value_is_rejected_before_its_bytes_arrive() {
    let len_bytes = VALUE_LEN_MAX_BYTES + 1;
    assert_eq!(
        violation(get(&response_header(0, len_bytes as u32))),
        Violation::ValueLen { len_bytes, max_bytes: VALUE_LEN_MAX_BYTES }
    );
    assert_eq!(violation(get(&response_header(9, 0))), Violation::Status { code: 9 });
}

#[test]
fn missing_permissions_are_reported_and_the_connection_stays_open() {
    let answers = [3, 4, 1].map(|status| response_header(status, 0));
    let peer = ScriptedServer::answering(&[&answers[0], &answers[1], &answers[2]]);
    let mut client = Client::connect(peer.socket()).unwrap();
    let error = client.get(7).unwrap_err();
    assert!(matches!(&error, ClientError::AuthenticationRequired { request, .. } if request == "key 7"), "{error:?}");
    assert!(error.to_string().contains("requires a login for key 7: name the user in the address"));
    let error = client.count_prefix("a").unwrap_err();
    assert!(matches!(&error, ClientError::NotPermitted { .. }), "{error:?}");
    assert!(error.to_string().contains("no permission for the range from \"a\" to \"b\""), "{error}");
    assert_eq!(client.get(7).unwrap(), None);
}

#[test]
fn unexpected_bytes_are_not_the_next_response() {
    let two = [&found(b"seven")[..], &found(b"nine")].concat();
    let peer = ScriptedServer::with_scripts(vec![Script::answering(&[&two]), Script::answering(&[&found(b"eight")])]);
    let mut client = Client::connect(peer.socket()).unwrap();
    assert_eq!(violation(client.get(7)), Violation::UnexpectedBytes { len_bytes: 12 });
    assert_eq!(client.get(8).unwrap().as_deref(), Some(&b"eight"[..]), "on a new connection");
}

#[test]
fn the_call_after_a_violation_reconnects() {
    let wrong = response_header(9, 0);
    let peer = ScriptedServer::with_scripts(vec![
        Script::answering(&[&wrong]),
        Script::answering(&[&found(b"eight"), &wrong]),
    ]);
    let mut client = Client::connect(peer.socket()).unwrap();
    assert_eq!(violation(client.get(7)), Violation::Status { code: 9 });
    assert_eq!(client.get(8).unwrap().as_deref(), Some(&b"eight"[..]));
    assert_eq!(violation(client.contains(8)), Violation::Status { code: 9 });
}

/// Connects a client that never retries.
fn connect_once(peer: &ScriptedServer) -> Client {
    Client::connect_with(peer.socket(), &Options { retries: 0, ..Options::default() }).unwrap()
}

/// Returns where a client reports that its response was truncated, if the peer sends `answer` and closes the
/// connection.
fn position_of_truncation(answer: &[u8]) -> (ResponsePart, usize, usize) {
    let peer = ScriptedServer::closing_after(&[answer]);
    match connect_once(&peer).get(7) {
        Err(ClientError::Closed { part, arrived_bytes, expected_bytes, .. }) => (part, arrived_bytes, expected_bytes),
        other => panic!("{answer:?}: a closed connection was expected, not {other:?}"),
    }
}

#[test]
fn a_truncated_response_is_reported_with_its_position() {
    let whole = found(b"seven");
    for len_bytes in 1..8 {
        assert_eq!(position_of_truncation(&whole[..len_bytes]), (ResponsePart::Header, len_bytes, 8));
    }
    for len_bytes in 8..whole.len() {
        assert_eq!(position_of_truncation(&whole[..len_bytes]), (ResponsePart::Value, len_bytes - 8, 5));
    }
}

#[test]
fn a_connection_closed_without_a_response_is_an_error() {
    // Depending on timing, the client gets a broken pipe, a reset, or the end of the stream.
    for answers in [&[][..], &[&b""[..]]] {
        let error = connect_once(&ScriptedServer::closing_after(answers)).get(7).unwrap_err();
        assert!(matches!(error, ClientError::Refused { .. }), "{error:?}");
    }
}

#[test]
fn a_connection_closed_after_a_response_is_closed() {
    let peer = ScriptedServer::closing_after(&[NOT_FOUND]);
    let mut client = connect_once(&peer);
    assert_eq!(client.get(7).unwrap(), None);
    let error = client.get(7).unwrap_err();
    assert!(matches!(error, ClientError::Closed { arrived_bytes: 0, expected_bytes: 8, .. }), "{error:?}");
}

#[test]
fn server_info_is_read_by_name() {
    let text =
        "version 0.1.0\nrows 3\ngeneration 12\ndigest 000000000000000000000000000000ff\nsocket /tmp/a b.sock\ntcp \n";
    let peer = ScriptedServer::answering(&[&found(text.as_bytes()), ERROR]);
    let mut client = Client::connect(peer.socket()).unwrap();
    let info = client.info().unwrap();
    assert_eq!(peer.request(), [0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!((info.rows(), info.generation(), info.digest()), (Some(3), Some(12), Some(255)));
    assert_eq!([info.get("socket"), info.get("tcp"), info.get("row")], [Some("/tmp/a b.sock"), Some(""), None]);
    assert_eq!(info.number::<u64>("version"), None);
    assert_eq!(info.iter().count(), 6);
    let refused = client.info().unwrap_err().to_string();
    assert!(refused.contains("responded to the request for information with an error"), "{refused}");
}

#[test]
fn reload_and_rollback_return_the_number_of_the_attempt() {
    let peer =
        ScriptedServer::answering(&[&found(&7_u64.to_be_bytes()), &found(&8_u64.to_be_bytes()), ERROR, &found(b"7")]);
    let mut client = Client::connect(peer.socket()).unwrap();
    assert_eq!((client.reload().unwrap(), peer.request()[3]), (7, 7));
    assert_eq!((client.rollback().unwrap(), peer.request()[3]), (8, 8));
    let refused = client.reload().unwrap_err();
    assert!(
        matches!(&refused, ClientError::Server { request, .. } if request == "the request for a reload"),
        "{refused}"
    );
    let short = Violation::ResponseLen { op: Op::Reload, len_bytes: 1, min_bytes: 8, max_bytes: 8 };
    assert_eq!(violation(client.reload()), short);
}
