//! Runs of native requests that are answered together.

use zerocopy::FromBytes;

use crate::protocol::native::{Op, OpKind, REQUEST_LEN_BYTES, Request};
use crate::server::pass::RUN_REQUESTS_MAX;

/// The kind of a run. A run is a sequence of consecutive requests that are answered together.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Run {
    /// Requests that look up one key in the hash index, and requests with an unknown op.
    Points,
    /// 16-byte Floor and Ceiling requests.
    Neighbors,
    /// 16-byte GetColumns requests.
    Columns,
    /// Long requests, which have a byte key, a range, or a selection of columns.
    Long,
    /// Requests about the server.
    Server,
}

impl Run {
    #[inline(always)]
    pub(super) fn from_code(op_code: u32) -> Run {
        match Op::from_code(op_code).map(Op::kind) {
            _ if op_code == Op::GetColumns as u32 => Run::Columns,
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
    /// The pass ends before the next request, for example because there is no room for its response, or because
    /// verification was interrupted.
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
    let next = requests.get(count).filter(|_| count < RUN_REQUESTS_MAX);
    let is_full = next.is_some_and(|next| Run::from_code(next.op_code()) == run);
    (count * REQUEST_LEN_BYTES, if is_full { RunEnd::Full } else { RunEnd::NextRun })
}

/// Returns the complete 16-byte requests at the start of `input`.
pub(super) fn whole_requests(input: &[u8]) -> &[Request] {
    let len_bytes = input.len() - input.len() % REQUEST_LEN_BYTES;
    <[Request]>::ref_from_bytes(&input[..len_bytes]).expect("whole requests")
}
