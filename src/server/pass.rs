//! What a protocol reports to its connection after a pass.

use crate::protocol::native::REQUEST_LEN_BYTES;

/// The maximum number of 16-byte requests in a pass.
pub(super) const PASS_REQUESTS_MAX: usize = 1024;

/// The length of one read. Longer than a common batch of 256 requests, because a read that does not fill its buffer shows
/// that the socket is empty.
pub(super) const READ_LEN_BYTES: usize = PASS_REQUESTS_MAX * REQUEST_LEN_BYTES;

/// The result of a pass over a client's pending requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pass {
    /// The number of input bytes that are done: their requests are answered, or need no response.
    pub(super) taken_bytes: usize,
    /// What follows once the responses are sent.
    pub(super) then: Then,
}

/// What follows a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// A read, because the rest of the input is not a complete request.
    Read,
    /// Another pass over the rest of the input.
    Answer,
    /// Another pass over the rest of the input, after other connections had their turn.
    Yield,
    /// A wait for more input, or for a state of the table that differs from this one. The rest of the input is an Open
    /// that waits for another state.
    Wait(u64),
    /// The end of the connection.
    Close,
}
