//! Requests and responses of the native protocol as bytes.

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::waiting::PATIENCE;

pub const GET: u32 = 0;
pub const EXISTS: u32 = 1;

/// Returns a short request.
pub fn request(op: u32, key: u64) -> [u8; 16] {
    let mut frame = [0; 16];
    frame[..4].copy_from_slice(&op.to_be_bytes());
    frame[8..].copy_from_slice(&key.to_be_bytes());
    frame
}

/// Returns a Get request for each key.
pub fn gets(keys: impl IntoIterator<Item = u64>) -> Vec<u8> {
    keys.into_iter().flat_map(|key| request(GET, key)).collect()
}

/// Returns a response.
pub fn answer(status: u32, value: &[u8]) -> Vec<u8> {
    let len = u32::try_from(value.len()).unwrap();
    [&status.to_be_bytes(), &len.to_be_bytes(), value].concat()
}

/// Connects to a socket, with timeouts so that no test waits forever.
pub fn connect(socket: &Path) -> UnixStream {
    let stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Returns all bytes until the server closes the connection, or resets it because it has not read everything.
#[track_caller]
pub fn read_until_closed(stream: &mut impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
    bytes
}

/// Reads as many bytes as are expected and compares them.
#[track_caller]
pub fn expect(stream: &mut impl Read, expected: &[u8]) {
    let mut found = vec![0; expected.len()];
    stream.read_exact(&mut found).unwrap();
    if let Some(at) = (0..found.len()).find(|at| found[*at] != expected[*at]) {
        panic!("byte {at} of {} is {}, expected {}", found.len(), found[at], expected[at]);
    }
}

/// Reads to the end of the stream and compares all bytes.
#[track_caller]
pub fn expect_end(stream: &mut impl Read, expected: &[u8]) {
    expect(stream, expected);
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the stream has more bytes than expected");
}
