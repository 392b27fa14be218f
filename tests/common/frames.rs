//! Frames of the native protocol.

/// An answer's bytes.
#[allow(unreachable_pub, reason = "a test binary of its own may have it as a module of common")]
pub fn answer(status: u32, value: &[u8]) -> Vec<u8> {
    let len = u32::try_from(value.len()).unwrap();
    [&status.to_be_bytes(), &len.to_be_bytes(), value].concat()
}
