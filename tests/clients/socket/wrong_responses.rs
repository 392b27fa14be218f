//! Servers that violate the protocol, and slow servers.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with, sockopt,
};
use tempfile::TempDir;
use zero_kv::client::{ClientError, Options, Phase};
use zero_kv::protocol::native::{Op, Status};
use zero_kv::protocol::response::Violation;

use super::both::{AnyClient, with_both};
use super::violation;
use crate::helpers::random::random;
use crate::helpers::scripted_server::{ERROR, EXISTS, NOT_FOUND, Script, ScriptedServer, found, page, response_header};
use crate::helpers::waiting::PATIENCE;

with_both!(
    every_violation_is_reported_and_the_next_call_reconnects,
    a_response_before_its_request_is_a_violation,
    a_call_is_retried_wherever_its_connection_breaks,
    a_batch_continues_after_the_last_response,
    an_error_for_one_key_fails_the_batch_but_not_the_connection,
    requests_with_side_effects_are_not_retried,
    a_client_that_is_never_admitted_is_rejected,
    a_call_with_a_slow_response_times_out,
    a_call_without_a_response_times_out,
    a_call_whose_requests_are_not_read_times_out,
    a_client_waits_for_a_stopped_server_and_then_reports_that_it_is_not_running,
    a_client_waits_for_a_server_with_a_full_queue,
    a_peer_that_reads_one_request_at_a_time_causes_no_deadlock,
);

fn options() -> Options {
    Options::default()
}

fn short_timeout_options() -> Options {
    Options { call_timeout: Some(Duration::from_millis(100)), ..options() }
}

fn no_retry_options() -> Options {
    Options { retries: 0, ..options() }
}

fn every_violation_is_reported_and_the_next_call_reconnects<C: AnyClient>() {
    let too_long = Violation::ValueLen { len_bytes: 101, max_bytes: 100 };
    let unexpected = |status, len_bytes| Violation::UnexpectedValue { op: Op::Get, status, len_bytes };
    for (answer, expected) in [
        (response_header(9, 0).to_vec(), Violation::Status { code: 9 }),
        (response_header(u32::MAX, 0).to_vec(), Violation::Status { code: u32::MAX }),
        (response_header(0, 101).to_vec(), too_long),
        (response_header(1, 5).to_vec(), unexpected(Status::NotFound, 5)),
        (response_header(2, u32::MAX).to_vec(), unexpected(Status::Error, u32::MAX as usize)),
        ([NOT_FOUND, b"abc"].concat(), Violation::UnexpectedBytes { len_bytes: 3 }),
    ] {
        let peer =
            ScriptedServer::with_scripts(vec![Script::answering(&[&answer]), Script::answering(&[&found(b"seven")])]);
        let limited = Options { value_len_max_bytes: 100, ..options() };
        let mut client = C::connect(peer.socket(), &limited).unwrap();
        assert_eq!(violation(client.get_number(7)), expected);
        assert_eq!(client.get_number(7).unwrap().as_deref(), Some(&b"seven"[..]));
    }
    let wrong_page = page(&[(9_u64, "")], 0);
    let peer = ScriptedServer::with_scripts(vec![
        Script::answering(&[&wrong_page]),
        Script::answering(&[&response_header(0, 1), EXISTS]),
    ]);
    let mut client = C::connect(peer.socket(), &options()).unwrap();
    assert!(matches!(violation(client.floor(7)), Violation::Page(_)));
    assert!(matches!(violation(client.ping()), Violation::UnexpectedValue { op: Op::Ping, .. }));
}

/// Starts a listener that passes its connections to `take`, one after the other.
fn listening(mut take: impl FnMut(UnixStream) + Send + 'static) -> (PathBuf, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("peer.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            take(stream);
        }
    });
    (socket, folder)
}

fn a_response_before_its_request_is_a_violation<C: AnyClient>() {
    // The peer reads nothing, and the requests exceed the socket buffer.
    for answer_count in [5, 1000] {
        let (socket, _folder) = listening(move |mut stream| {
            let _ = stream.write_all(&NOT_FOUND.repeat(answer_count));
            thread::sleep(PATIENCE);
        });
        let key = vec![b'k'; 60_000];
        let violation = violation(C::connect(&socket, &no_retry_options()).unwrap().get_many(&vec![&key[..]; 1000]));
        assert!(
            matches!(violation, Violation::ResponseBeforeRequest | Violation::UnexpectedBytes { .. }),
            "{violation:?}"
        );
    }
}

fn a_call_is_retried_wherever_its_connection_breaks<C: AnyClient>() {
    let whole = found(b"seven");
    for len_bytes in 0..whole.len() {
        let cut = Script::closing_after(&[&whole[..len_bytes]]);
        let peer = ScriptedServer::with_scripts(vec![cut.clone(), Script::answering(&[&whole])]);
        let mut client = C::connect(peer.socket(), &options()).unwrap();
        assert_eq!(client.get_number(7).unwrap().as_deref(), Some(&b"seven"[..]), "cut at {len_bytes}");
        if len_bytes > 0 {
            let peer = ScriptedServer::with_scripts(vec![cut.clone(), cut, Script::answering(&[&whole])]);
            let error = C::connect(peer.socket(), &options()).unwrap().get_number(7).unwrap_err();
            assert!(matches!(error, ClientError::Closed { .. }), "once more, not twice: {error:?}");
        }
    }
}

fn a_batch_continues_after_the_last_response<C: AnyClient>() {
    let answers: Vec<_> = (0..6_u8).map(|number| found(&[number])).collect();
    // The connection breaks in the middle of a response, and between two responses.
    for half in [&answers[3][..5], b""] {
        let first = [&answers[0][..], &answers[1], &answers[2], half];
        let rest = [&answers[3][..], &answers[4], &answers[5]];
        let peer = ScriptedServer::with_scripts(vec![Script::closing_after(&first), Script::answering(&rest)]);
        let mut client = C::connect(peer.socket(), &options()).unwrap();
        let mut taken = Vec::new();
        let visit = |position, value: Option<&[u8]>| taken.push((position, value.unwrap().to_vec()));
        client.get_many_with(&[10, 11, 12, 13, 14, 15], visit).unwrap();
        assert_eq!(taken, (0..6).map(|position| (position, vec![position as u8])).collect::<Vec<_>>());
        let keys: Vec<_> = (0..7).map(|_| peer.request()[15]).collect();
        assert_eq!(keys, [10, 11, 12, 13, 13, 14, 15]);
    }
}

fn an_error_for_one_key_fails_the_batch_but_not_the_connection<C: AnyClient>() {
    let (one, two) = (found(b"one"), found(b"two"));
    let peer = ScriptedServer::answering(&[&one, ERROR, &two, ERROR, &one]);
    let mut client = C::connect(peer.socket(), &no_retry_options()).unwrap();
    let mut taken = Vec::new();
    let asked = client.get_many_with(&[1, 2, 3, 4], |position, _| taken.push(position));
    assert!(matches!(asked, Err(ClientError::Server { request, .. }) if request == "key 2"));
    assert_eq!(taken, [0], "no value is visited after the error");
    assert_eq!(client.get_number(5).unwrap().as_deref(), Some(&b"one"[..]), "on the same connection");
}

fn requests_with_side_effects_are_not_retried<C: AnyClient>() {
    let done = found(&7_u64.to_be_bytes());
    let peer = ScriptedServer::with_scripts(vec![Script::closing_after(&[&done, b"\0"]), Script::answering(&[&done])]);
    let mut client = C::connect(peer.socket(), &options()).unwrap();
    assert_eq!(client.reload().unwrap(), 7);
    assert!(matches!(client.reload(), Err(ClientError::Closed { arrived_bytes: 1, .. })));
    assert_eq!(client.reload().unwrap(), 7);
}

fn a_client_that_is_never_admitted_is_rejected<C: AnyClient>() {
    let patient = Options { reconnect_timeout: Duration::from_millis(20), ..options() };
    let peer = ScriptedServer::closing_after(&[]);
    let error = C::connect(peer.socket(), &patient).unwrap().get_number(7).unwrap_err();
    assert!(matches!(error, ClientError::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains("closed the connection without a response"), "{error}");
}

fn timed_out<T: std::fmt::Debug>(asked: Result<T, ClientError>) -> (Phase, Duration) {
    match asked {
        Err(ClientError::TimedOut { phase, after, .. }) => (phase, after),
        other => panic!("a timeout was expected, not {other:?}"),
    }
}

fn a_call_with_a_slow_response_times_out<C: AnyClient>() {
    // Only the client ends the connection.
    let (socket, _folder) = listening(|mut stream| {
        stream.write_all(&response_header(0, 1 << 30)).unwrap();
        while stream.write_all(b"x").is_ok() {
            thread::sleep(Duration::from_millis(1));
        }
    });
    let (phase, after) = timed_out(C::connect(&socket, &short_timeout_options()).unwrap().get_number(7));
    assert!(phase == Phase::Receive && after >= Duration::from_millis(90), "{after:?}");
}

fn a_call_without_a_response_times_out<C: AnyClient>() {
    let peer = ScriptedServer::with_scripts(vec![Script::answering(&[b""]), Script::answering(&[NOT_FOUND])]);
    let mut client = C::connect(peer.socket(), &short_timeout_options()).unwrap();
    let error = client.get_number(7).unwrap_err();
    assert!(error.to_string().ends_with(" waiting for a response"), "{error}");
    assert_eq!(timed_out::<()>(Err(error)).0, Phase::Receive);
    assert_eq!(client.get_number(8).unwrap(), None, "on a new connection");
}

fn a_call_whose_requests_are_not_read_times_out<C: AnyClient>() {
    let (socket, _folder) = listening(|_stream| thread::sleep(PATIENCE));
    let key = vec![b'k'; 60_000];
    let asked = C::connect(&socket, &short_timeout_options()).unwrap().get_many(&vec![&key[..]; 100]);
    assert_eq!(timed_out(asked).0, Phase::Send);
}

fn a_client_waits_for_a_stopped_server_and_then_reports_that_it_is_not_running<C: AnyClient>() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("peer.sock");
    let none = C::connect(&socket, &options()).map(drop).unwrap_err();
    assert!(matches!(none, ClientError::NotRunning { .. }), "{none:?}");

    let listener = UnixListener::bind(&socket).unwrap();
    let impatient = Options { reconnect_timeout: Duration::from_millis(20), ..options() };
    let mut client = C::connect(&socket, &impatient).unwrap();
    drop(listener.accept().unwrap());
    drop(listener);
    let nobody = client.get_number(7).unwrap_err();
    assert!(matches!(nobody, ClientError::NotRunning { .. }), "{nobody:?}");
    assert!(nobody.to_string().contains("Connection refused"), "{nobody}");
    std::fs::remove_file(&socket).unwrap();
    assert!(matches!(client.get_number(7), Err(ClientError::NotRunning { .. })));

    // The client finds a server that was restarted.
    let patient = Options { reconnect_timeout: PATIENCE, ..options() };
    let listener = UnixListener::bind(&socket).unwrap();
    let mut client = C::connect(&socket, &patient).unwrap();
    drop((listener.accept().unwrap(), listener));
    std::fs::remove_file(&socket).unwrap();
    let asking = thread::spawn(move || client.get_number(7));
    let listener = UnixListener::bind(&socket).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    stream.read_exact(&mut [0; 16]).unwrap();
    stream.write_all(&found(b"seven")).unwrap();
    assert_eq!(asking.join().unwrap().unwrap().as_deref(), Some(&b"seven"[..]));
}

fn a_client_waits_for_a_server_with_a_full_queue<C: AnyClient>() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("peer.sock");
    let address = SocketAddrUnix::new(&path).unwrap();
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = || socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    let listener = socket();
    bind(&listener, &address).unwrap();
    listen(&listener, 1).unwrap();
    let mut queued = Vec::new();
    loop {
        let socket = socket();
        match connect(&socket, &address) {
            Ok(()) => queued.push(socket),
            Err(error) => break assert_eq!(error, Errno::AGAIN),
        }
    }
    let connect_timeout = Duration::from_millis(50);
    let impatient = Options { connect_timeout, ..options() };
    let (phase, after) = timed_out(C::connect(&path, &impatient).map(drop));
    assert!(phase == Phase::Connect && after >= connect_timeout, "{after:?}");

    let patient = Options { connect_timeout: PATIENCE, ..options() };
    let asking = thread::spawn(move || C::connect(&path, &patient).map(drop));
    let listener = UnixListener::from(listener);
    listener.set_nonblocking(false).unwrap();
    for _ in 0..=queued.len() {
        listener.accept().unwrap();
    }
    asking.join().unwrap().unwrap();
}

/// Responds to each request with its key as the value, one at a time, through a small buffer.
fn echo_one_by_one(mut stream: UnixStream) {
    sockopt::set_socket_send_buffer_size(&stream, 1).unwrap();
    sockopt::set_socket_recv_buffer_size(&stream, 1).unwrap();
    let mut header = [0; 8];
    while stream.read_exact(&mut header).is_ok() {
        let len = u32::from_be_bytes(*header.last_chunk().unwrap()) as usize;
        let mut body = vec![0; (8 + len).next_multiple_of(16) - 8];
        stream.read_exact(&mut body).unwrap();
        stream.write_all(&found(&body[..len])).unwrap();
    }
}

fn a_peer_that_reads_one_request_at_a_time_causes_no_deadlock<C: AnyClient>() {
    let seed = 0xbeef;
    println!("seed {seed}");
    let mut random = random(seed);
    let (socket, _folder) = listening(echo_one_by_one);
    let mut client = C::connect(&socket, &options()).unwrap();
    let keys: Vec<Vec<u8>> = (0..2500)
        .map(|number: u32| {
            let len = if random().is_multiple_of(8) { 1 + random() % 65_535 } else { 1 + random() % 50 };
            let mut key = vec![b'k'; len as usize];
            key.splice(..4.min(key.len()), number.to_be_bytes()[..4.min(len as usize)].iter().copied());
            key
        })
        .collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let values = client.get_many(&keys).unwrap();
    assert!(values.iter().map(|value| value.as_deref().unwrap()).eq(keys.iter().copied()));
    assert_eq!(client.get(b"seven").unwrap().as_deref(), Some(&b"seven"[..]), "the connection remains usable");
}
