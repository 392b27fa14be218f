//! The result of a pass, which a protocol returns to its connection.
//!
//! Reasons and evidence: `docs/decisions/two-protocols.md`.

use std::time::Instant;

use crate::protocol::native::REQUEST_LEN_BYTES;

/// The maximum number of 16-byte requests in a run, which is a sequence of requests that are answered together.
pub(in crate::server) const RUN_REQUESTS_MAX: usize = 1024;

/// The length of the read buffer. A read that does not fill the buffer shows that the socket is empty. To avoid a
/// second read, the buffer is longer than a pipeline of 256 requests, which is a common size.
pub(in crate::server) const READ_LEN_BYTES: usize = RUN_REQUESTS_MAX * REQUEST_LEN_BYTES;

/// The result of a pass over a client's unanswered requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) struct Pass {
    /// The number of input bytes that the pass consumed. The requests in these bytes are answered, or need no response.
    pub(in crate::server) taken_bytes: usize,
    /// What the connection does after the responses are sent.
    pub(in crate::server) then: Then,
}

/// What a connection does after a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Then {
    /// Reads more input, because the remaining input is not a complete request.
    Read,
    /// Runs another pass over the remaining input.
    Answer,
    /// Lets other connections have their turn, and then runs another pass over the remaining input.
    Yield,
    /// Waits for more input, or until the state of the table differs from the given state. The remaining input is an
    /// Open request that waits for this change.
    Wait(u64),
    /// Waits until the pages of the next lookups were read from the disk: see `ColdLookups::take_waiting`.
    Load,
    /// Answers nothing before this time, because a login failed.
    Delay(Instant),
    /// Closes the connection.
    Close,
}
