//! The Open request and its response, byte by byte and descriptor by descriptor.

use std::fs::File;
use std::io::{ErrorKind, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixStream;

use rustix::fs::{FlockOperation, flock};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use zero_kv::Store;

use super::{SHAPE, direct};
use crate::helpers::frames::{GET, answer, expect, request};
use crate::helpers::scenes::Scene;
use crate::helpers::servers::Server;
use crate::helpers::waiting::eventually;

pub(super) const OPEN: u32 = 9;
const PING: u32 = 10;

/// Reads `len_bytes` bytes, and the descriptors that were sent with them.
pub(super) fn receive(stream: &UnixStream, len_bytes: usize) -> (Vec<u8>, Vec<File>) {
    let (mut bytes, mut files, mut at) = (vec![0; len_bytes], Vec::new(), 0);
    while at < len_bytes {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(stream, &mut [IoSliceMut::new(&mut bytes[at..])], &mut rights, RecvFlags::CMSG_CLOEXEC);
        let received = received.unwrap();
        assert_ne!(received.bytes, 0, "the server has closed after {at} of {len_bytes} bytes");
        at += received.bytes;
        for message in rights.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                files.extend(descriptors.map(|descriptor: OwnedFd| File::from(descriptor)));
            }
        }
    }
    (bytes, files)
}

/// Returns the expected response to Open for the first served file.
fn open_response(scene: &Scene, sealed: bool) -> Vec<u8> {
    let digest = Store::open(scene.db()).unwrap().digest();
    let value = [&1_u64.to_be_bytes()[..], &digest.to_be_bytes(), &u32::from(sealed).to_be_bytes(), &[0; 4]].concat();
    answer(0, &value)
}

#[test]
fn the_response_to_open_has_the_generation_and_two_descriptors() {
    for (memory, is_sealed) in [("map", false), ("sealed", true)] {
        let (scene, served, _direct) = direct(&["--memory", memory]);
        let expected = open_response(&scene, is_sealed);
        let mut stream = served.connect();
        stream.write_all(&request(OPEN, 0)).unwrap();
        let (bytes, files) = receive(&stream, expected.len());
        assert_eq!(bytes, expected);
        let [table, page] = &files[..] else { panic!("{} descriptors", files.len()) };
        let expected = std::fs::read(scene.db()).unwrap();
        let mut found = vec![0; expected.len()];
        table.read_exact_at(&mut found, 0).unwrap();
        assert!(found == expected, "the table has the file's bytes");
        assert_eq!(table.metadata().unwrap().ino() == std::fs::metadata(scene.db()).unwrap().ino(), !is_sealed);
        let mut word = [0; 8];
        page.read_exact_at(&mut word, 128).unwrap();
        assert_eq!(u64::from_ne_bytes(word) as u32, 1, "the generation");
        for file in &files {
            let refused = [file.write_at(b"x", 0).map(drop), file.set_len(0)];
            let refused = refused.map(|result| result.unwrap_err().raw_os_error());
            assert_eq!(refused, [Some(libc::EBADF), Some(libc::EINVAL)], "the descriptors are read-only");
        }
    }
}

/// File position and locks belong to an open file description, which no two clients share.
#[test]
fn one_clients_use_of_its_descriptors_does_not_affect_another() {
    for memory in ["map", "sealed"] {
        let (_scene, served, _direct) = direct(&["--memory", memory]);
        let [mine, others] = [(); 2].map(|()| {
            let mut stream = served.connect();
            stream.write_all(&request(OPEN, 0)).unwrap();
            receive(&stream, 8 + 32).1
        });
        assert_eq!((mine.len(), others.len()), (2, 2));
        for (mut mine, mut others) in mine.into_iter().zip(others) {
            mine.seek(SeekFrom::Start(7)).unwrap();
            assert_eq!(others.stream_position().unwrap(), 0);
            flock(&mine, FlockOperation::NonBlockingLockExclusive).unwrap();
            flock(&others, FlockOperation::Unlock).unwrap();
            let is_locked = flock(&others, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK);
            assert!(is_locked, "another client has unlocked the file");
        }
    }
}

#[test]
fn the_response_to_open_keeps_its_place_among_other_responses() {
    let (scene, served, _direct) = direct(&[]);
    let (open, value) = (open_response(&scene, false), answer(0, &SHAPE.value(1, 7).unwrap()));
    let (asked, expected, count): (&[u32], _, _) = (
        &[GET, OPEN, GET, GET, PING, OPEN, OPEN, PING, GET],
        [&value, &open, &value, &value, &answer(0, b""), &open, &open, &answer(0, b""), &value]
            .map(Vec::as_slice)
            .concat(),
        6,
    );
    let requests: Vec<u8> = asked.iter().flat_map(|op| request(*op, 7)).collect();
    for split in [1, 16, 17, 33, requests.len()] {
        let mut stream = served.connect();
        let mut writer = stream.try_clone().unwrap();
        for part in requests.chunks(split) {
            writer.write_all(part).unwrap();
        }
        let (bytes, files) = receive(&stream, expected.len());
        assert!(bytes == expected, "in pieces of {split} bytes");
        assert_eq!(files.len(), count);
        stream.write_all(&request(PING, 0)).unwrap();
        expect(&mut stream, &answer(0, b""));
    }
}

#[test]
fn a_client_that_sends_many_open_requests_and_reads_late_gets_all_responses() {
    let (scene, served, _direct) = direct(&[]);
    let before = served.descriptors();
    let expected = open_response(&scene, false);
    let count = 3000;
    let stream = served.connect();
    let mut writer = stream.try_clone().unwrap();
    let sent = std::thread::spawn(move || writer.write_all(&request(OPEN, 0).repeat(count)).unwrap());
    // The server sends one response, and waits until the client has received it.
    eventually("the server has answered a request", || served.number("requests_open") > 1);
    for at in 0..count {
        let (bytes, files) = receive(&stream, expected.len());
        assert!(bytes == expected && files.len() == 2, "answer {at} with {} descriptors", files.len());
    }
    sent.join().unwrap();
    drop(stream);
    eventually("the server has as few descriptors open as before", || served.descriptors() <= before);
}

/// Returns the state word of the shared page, and an Open request that waits for the next state.
fn next_state_request(page: &File) -> (u64, [u8; 16]) {
    let mut word = [0; 8];
    page.read_exact_at(&mut word, 128).unwrap();
    let word = u64::from_ne_bytes(word);
    (word, request(OPEN, word & !(7 << 61)))
}

/// Asserts that nothing has arrived once a server with one worker has answered requests that were sent later.
#[track_caller]
fn assert_waits(served: &Server, stream: &UnixStream) {
    (0..3).for_each(|_| assert_eq!(served.number("workers"), 1));
    stream.set_nonblocking(true).unwrap();
    let arrived = { stream }.read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(arrived, Err(ErrorKind::WouldBlock));
    stream.set_nonblocking(false).unwrap();
}

#[test]
fn open_with_the_current_state_is_answered_when_the_state_changes() {
    for memory in ["map", "sealed"] {
        let (scene, served, _direct) = direct(&["--memory", memory, "--workers", "1"]);
        let mut streams: Vec<UnixStream> = (0..5).map(|_| served.connect()).collect();
        let mut page = None;
        for stream in &mut streams {
            stream.write_all(&request(OPEN, 0)).unwrap();
            let (_, mut files) = receive(stream, 40);
            let (word, next) = next_state_request(&files[1]);
            assert_eq!(word as u32, 1, "the generation");
            stream.write_all(&next).unwrap();
            page = files.pop();
        }
        streams.iter().for_each(|stream| assert_waits(&served, stream));
        let asked = served.number("requests_open");
        super::put(&scene, 2);
        for stream in &streams {
            let (bytes, files) = receive(stream, 40);
            assert_eq!((&bytes[..16], files.len()), (&[0, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0, 2][..], 2));
        }
        assert_eq!(next_state_request(&page.unwrap()).0 as u32, 2, "the page is the same for all generations");
        assert!(served.number("requests_open") >= asked + 5, "no request was answered before the swap");
    }
}

#[test]
fn any_further_request_ends_the_wait_for_a_new_state() {
    let (_scene, served, _direct) = direct(&["--memory", "sealed", "--workers", "1"]);
    let mut stream = served.connect();
    stream.write_all(&request(OPEN, 0)).unwrap();
    let (_, files) = receive(&stream, 40);
    let (_, next) = next_state_request(&files[1]);
    stream.write_all(&next).unwrap();
    assert_waits(&served, &stream);
    stream.write_all(&request(PING, 0)).unwrap();
    let (_, files) = receive(&stream, 48);
    assert_eq!(files.len(), 2);
    stream.write_all(&[next, next, request(GET, 7), next, request(PING, 0)].concat()).unwrap();
    let (bytes, files) = receive(&stream, 40 + 40 + 8 + SHAPE.value(1, 7).unwrap().len() + 40 + 8);
    assert_eq!((files.len(), &bytes[80..88]), (6, &answer(0, &SHAPE.value(1, 7).unwrap())[..8]));
    // The two requests arrive byte by byte.
    for byte in [next, request(PING, 0)].concat() {
        stream.write_all(&[byte]).unwrap();
    }
    let (_, files) = receive(&stream, 48);
    assert_eq!(files.len(), 2);
}

#[test]
fn a_client_that_disconnects_while_it_waits_is_detected() {
    let (_scene, served, _direct) = direct(&["--stall-timeout", "1", "--workers", "1"]);
    let before = served.number("connections");
    let mut streams: Vec<UnixStream> = (0..20).map(|_| served.connect()).collect();
    for stream in &mut streams {
        stream.write_all(&request(OPEN, 0)).unwrap();
        let (_, files) = receive(stream, 40);
        stream.write_all(&next_state_request(&files[1]).1).unwrap();
    }
    // Info uses another connection. A waiting connection does not count as stalled and is not disconnected.
    served.wait_for("uptime_s", 3);
    assert_eq!((served.number("connections"), served.number("connections_cut_stalled")), (before + 20, 0));
    streams.iter().for_each(|stream| assert_waits(&served, stream));
    drop(streams);
    eventually("the server has closed the connections", || served.number("connections") <= before);
}

#[test]
fn a_client_that_receives_no_descriptors_gets_the_bytes() {
    let (scene, served, _direct) = direct(&[]);
    let mut stream = served.connect();
    stream.write_all(&request(OPEN, 0).repeat(20)).unwrap();
    expect(&mut stream, &open_response(&scene, false).repeat(20));
}

#[test]
fn no_descriptors_are_passed_over_tcp() {
    let scene = Scene::new();
    SHAPE.bake(1, &scene.db());
    let served = scene.serve(&["--tcp", "127.0.0.1:0"]);
    let address = served.info().get("tcp").unwrap().to_owned();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.write_all(&[request(OPEN, 0), request(PING, 0)].concat()).unwrap();
    let mut bytes = [0; 16];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes.to_vec(), [answer(2, b""), answer(0, b"")].concat());
}

#[test]
fn ping_is_answered_for_both_key_kinds() {
    let (_scene, served, _direct) = direct(&[]);
    let mut stream = served.connect();
    stream.write_all(&request(PING, u64::MAX)).unwrap();
    expect(&mut stream, &answer(0, b""));
    assert_eq!(served.number("requests_ping"), 1);
}
