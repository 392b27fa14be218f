//! Runs of native requests that are answered together.

use zerocopy::FromBytes;

use crate::protocol::native::{Op, OpKind, REQUEST_LEN_BYTES, Request};
use crate::server::pass::PASS_REQUESTS_MAX;

/// The kind of the requests in a run: consecutive requests that are answered together.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Run {
    /// Requests that look up one key in the hash index, and requests with an unknown op.
    Points,
    /// Floor and Ceiling.
    Neighbors,
    /// Long requests.
    Long,
    /// Requests about the server.
    Server,
}

impl Run {
    #[inline(always)]
    pub(super) fn from_code(op_code: u32) -> Run {
        match Op::from_code(op_code).map(Op::kind) {
            Some(OpKind::Neighbor) => Run::Neighbors,
            Some(OpKind::Server) => Run::Server,
            _ if Op::is_long(op_code) => Run::Long,
            _ => Run::Points,
        }
    }
}

/// Why a run of requests ended.
pub(super) enum RunEnd {
    /// The next request belongs to another run, or is incomplete.
    NextRun,
    /// There is no room for the next response, or verification was interrupted.
    Full,
    /// Other connections get their turn before the next request.
    Yield,
    /// The next request is an Open at the end of the input, which waits until the state of the table differs from the
    /// given state.
    Wait(u64),
    /// The next request is longer than the maximum.
    TooLong,
}

/// Returns the length in bytes of the first `count` requests, and why their run ended.
pub(super) fn run_of(requests: &[Request], run: Run, count: usize) -> (usize, RunEnd) {
    let next = requests.get(count).filter(|_| count < PASS_REQUESTS_MAX);
    let is_full = next.is_some_and(|next| Run::from_code(next.op_code()) == run);
    (count * REQUEST_LEN_BYTES, if is_full { RunEnd::Full } else { RunEnd::NextRun })
}

/// Returns the complete 16-byte requests at the start of `input`.
pub(super) fn whole_requests(input: &[u8]) -> &[Request] {
    let len_bytes = input.len() - input.len() % REQUEST_LEN_BYTES;
    <[Request]>::ref_from_bytes(&input[..len_bytes]).expect("whole requests")
}
