//! Requests for one key.

use std::ops::ControlFlow;

use super::ORDERED_STEPS;
use super::ordered::{push_bare, push_neighbor, side};
use super::run::Run;
use crate::format::key::{Key, KeyKind};
use crate::protocol::native::{Op, RESPONSE_HEADER_LEN_BYTES, Request, ResponseHeader, Status};
use crate::server::counters::Tally;
use crate::server::pass::RUN_REQUESTS_MAX;
use crate::server::responses::{Appender, Responses};
use crate::store::{ColdLookup, Found, Store, is_verification_interrupted};

/// Appends the responses to 16-byte Get and Exists requests, and an Error for each 16-byte request with an unknown op.
/// Stops at the first other request, when there is no room for a response, or when a limit of one pass is reached.
/// Returns the number of answered requests. Cleared [`Responses`] have room for at least one response.
pub fn answer_requests(store: &Store, requests: &[Request], responses: &mut Responses) -> usize {
    answer_points(store, requests, responses, &mut Tally::default())
}

/// Does what [`answer_requests`] does, and counts the responses in `tally`.
pub(super) fn answer_points(
    store: &Store,
    requests: &[Request],
    responses: &mut Responses,
    tally: &mut Tally,
) -> usize {
    let requests = match requests_for_numbers(store, requests, responses, tally) {
        Ok(requests) => requests,
        Err(refused) => return refused,
    };
    let requests = &requests[..responses.ready_count(store, requests.len(), |i| store.point_lookup(requests[i].key()))];
    let counted_before = tally.total();
    let mut count = 0;
    responses.append(|appender, steps| {
        store.find_each(
            requests.len(),
            |i| requests[i].key(),
            |i, found| match push_found(requests[i].op_code(), found, appender, tally) {
                Some(()) => {
                    count += 1;
                    steps.continue_after(count)
                }
                None => ControlFlow::Break(()),
            },
        );
    });
    responses.steps().add(count);
    tally.count_values(counted_before + count - tally.total());
    count
}

/// Appends the responses to 16-byte Floor and Ceiling requests. Stops at the first request with another op, or when
/// there is no room for a response. Returns the number of answered requests.
pub(super) fn answer_neighbors(
    store: &Store,
    requests: &[Request],
    responses: &mut Responses,
    tally: &mut Tally,
) -> usize {
    let requests = match requests_for_numbers(store, requests, responses, tally) {
        Ok(requests) => requests,
        Err(refused) => return refused,
    };
    let is_neighbor = |request: &&Request| matches!(Op::from_code(request.op_code()), Some(Op::Floor | Op::Ceiling));
    let op = |i: usize| if requests[i].op_code() == Op::Floor as u32 { Op::Floor } else { Op::Ceiling };
    let run_requests = requests.iter().take_while(is_neighbor).count();
    let run_requests =
        responses.ready_count(store, run_requests, |i| ColdLookup::Neighbor(Key::U64(requests[i].key()), side(op(i))));
    let mut count = 0;
    store.neighbor_each(
        run_requests,
        |i| (requests[i].key(), side(op(i))),
        |i, neighbor| {
            if responses.is_full() || count > 0 && responses.steps().is_time_over() {
                return ControlFlow::Break(());
            }
            let Some(status) = push_neighbor(store, neighbor, responses) else { return ControlFlow::Break(()) };
            tally.count(Some(op(i)), status);
            count += 1;
            responses.steps().continue_after(count)
        },
    );
    responses.steps().add(ORDERED_STEPS * count);
    count
}

/// Returns the requests that may be answered together, at most [`RUN_REQUESTS_MAX`], if the table's keys are numbers.
///
/// # Errors
/// If the table's keys are bytes, appends an Error for each request that looks up a number, and returns the number of
/// these requests.
#[inline]
fn requests_for_numbers<'r>(
    store: &Store,
    requests: &'r [Request],
    responses: &mut Responses,
    tally: &mut Tally,
) -> Result<&'r [Request], usize> {
    let requests = &requests[..requests.len().min(RUN_REQUESTS_MAX)];
    if store.key_kind() == KeyKind::U64 {
        return Ok(requests);
    }
    let mut count = 0;
    for request in requests {
        let op_code = request.op_code();
        if matches!(Run::from_code(op_code), Run::Long | Run::Server) || responses.is_full() {
            break;
        }
        tally.count(Op::from_code(op_code), push_bare(Status::Error, responses));
        count += 1;
    }
    Err(count)
}

/// Appends the response to a request for one key of the table's kind. Returns `None` if there is no room for the
/// response, if the request belongs to another kind of [`Run`], or if verification was interrupted. Counts every
/// response in `tally`, except values that a Get found, which the caller counts.
#[inline(always)]
pub(super) fn push_found(op_code: u32, found: Found<'_>, appender: &mut Appender<'_>, tally: &mut Tally) -> Option<()> {
    let is_present = match found {
        Found::Answer(response, offset_bytes) if op_code == Op::Get as u32 => {
            return appender.push_stored(response, offset_bytes);
        }
        Found::Answer(..) => Some(true),
        Found::Missing => Some(false),
        Found::Damaged => None,
    };
    let len_bytes = write_without_value(op_code, is_present, appender.room()?, tally)?;
    appender.advance(len_bytes);
    Some(())
}

/// Writes the response to any request for one key, except to a Get that found a value. `is_present` is `None` if the
/// bytes that the result depends on are damaged. Returns the length of the response, or `None` in the cases in which
/// [`push_found`] returns `None`. Not inlined, so that the loop over found values can use all registers.
#[inline(never)]
fn write_without_value(op_code: u32, is_present: Option<bool>, room: &mut [u8], tally: &mut Tally) -> Option<usize> {
    let op = Op::from_code(op_code);
    let status = match (op, is_present) {
        (Some(Op::Get | Op::Exists), Some(false)) => Status::NotFound,
        (Some(Op::Exists), Some(true)) => Status::Ok,
        _ if Run::from_code(op_code) != Run::Points => return None,
        (_, None) if is_verification_interrupted() => return None,
        _ => Status::Error,
    };
    let header = ResponseHeader::bare(status);
    *room.first_chunk_mut::<RESPONSE_HEADER_LEN_BYTES>()? = zerocopy::transmute!(header);
    tally.count(op, status);
    Some(RESPONSE_HEADER_LEN_BYTES)
}
