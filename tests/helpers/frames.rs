//! Requests and responses of the native protocol as bytes.

use std::io::Read;

pub(crate) const GET: u32 = 0;
pub(crate) const EXISTS: u32 = 1;

/// Returns a short request.
pub(crate) fn request(op: u32, key: u64) -> [u8; 16] {
    let mut frame = [0; 16];
    frame[..4].copy_from_slice(&op.to_be_bytes());
    frame[8..].copy_from_slice(&key.to_be_bytes());
    frame
}

/// Returns a Get request for each key.
pub(crate) fn gets(keys: impl IntoIterator<Item = u64>) -> Vec<u8> {
    keys.into_iter().flat_map(|key| request(GET, key)).collect()
}

/// Returns a response.
pub(crate) fn answer(status: u32, value: &[u8]) -> Vec<u8> {
    let len = u32::try_from(value.len()).unwrap();
    [&status.to_be_bytes(), &len.to_be_bytes(), value].concat()
}

/// Reads as many bytes as are expected and compares them.
#[track_caller]
pub(crate) fn expect(stream: &mut impl Read, expected: &[u8]) {
    let mut found = vec![0; expected.len()];
    stream.read_exact(&mut found).unwrap();
    if let Some(at) = (0..found.len()).find(|at| found[*at] != expected[*at]) {
        panic!("byte {at} of {} is {}, expected {}", found.len(), found[at], expected[at]);
    }
}

/// Reads to the end of the stream and compares all bytes.
#[track_caller]
pub(crate) fn expect_end(stream: &mut impl Read, expected: &[u8]) {
    expect(stream, expected);
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the stream has more bytes than expected");
}
