//! Long requests, which have a byte key, a range, or a selection of columns.

use std::ops::{ControlFlow, Range};

use super::columns::select;
use super::ordered::{RangeRequest, push_error};
use super::points::push_found;
use super::{Batch, Missing, ORDERED_STEPS, RunEnd, whole_requests};
use crate::Lookup;
use crate::format::key::{Key, KeyKind};
use crate::protocol::native::{LONG_BODY_MAX_BYTES, LONG_HEADER_LEN_BYTES, Op, OpKind, Status, long_len_bytes};
use crate::server::responses::Responses;
use crate::server::stats::Tally;
use crate::store::{ColdLookup, Found, LookupError, RangeLookup, Store};

/// The maximum number of long requests that are looked up together.
const LONG_REQUESTS_MAX: usize = 256;

/// The maximum number of Range and Count requests that are looked up together.
const RANGES_MAX: usize = 128;

/// A request with a byte key or a range.
#[derive(Clone, Copy)]
struct Long<'a> {
    op_code: u32,
    body: &'a [u8],
}

/// How long requests are looked up. Consecutive requests that are looked up in the same way are looked up together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Floor, Ceiling, and Cover requests for a table of byte keys.
    Neighbors,
    /// Range and Count requests.
    Ranges,
    /// GetColumns requests.
    Columns,
    /// Select requests.
    Selects,
    Others,
}

impl Long<'_> {
    fn way(&self, store: &Store) -> Way {
        match Op::from_long_code(self.op_code).map(|op| (op, op.kind())) {
            Some((_, OpKind::Neighbor)) if store.key_kind() == KeyKind::Bytes => Way::Neighbors,
            Some((_, OpKind::Range)) => Way::Ranges,
            Some((Op::GetColumns, _)) => Way::Columns,
            Some((_, OpKind::Select)) => Way::Selects,
            _ => Way::Others,
        }
    }

    /// Returns the op of a request of [`Way::Neighbors`].
    fn neighbor_op(&self) -> Op {
        Op::from_long_code(self.op_code).unwrap_or(Op::Floor)
    }
}

impl<M: Missing> Batch<'_, M> {
    /// Answers the long requests at the start of `input`. Returns the length of the answered requests in bytes, and why
    /// their run ended.
    pub(super) fn answer_long(&mut self, input: &[u8]) -> (usize, RunEnd) {
        let mut requests = [Long { op_code: 0, body: &[] }; LONG_REQUESTS_MAX];
        let mut ends_bytes = [0; LONG_REQUESTS_MAX];
        let (mut found_count, mut at_bytes, mut end) = (0, 0, RunEnd::NextRun);
        while found_count < LONG_REQUESTS_MAX
            && let Some(first) = whole_requests(&input[at_bytes..]).first()
            && Op::is_long(first.op_code())
        {
            let body_len_bytes = first.body_len_bytes();
            if body_len_bytes > LONG_BODY_MAX_BYTES {
                end = RunEnd::TooLong;
                break;
            }
            let Some(request) = input[at_bytes..].get(..long_len_bytes(body_len_bytes)) else { break };
            let body = &request[LONG_HEADER_LEN_BYTES..LONG_HEADER_LEN_BYTES + body_len_bytes];
            requests[found_count] = Long { op_code: first.op_code(), body };
            at_bytes += request.len();
            ends_bytes[found_count] = at_bytes;
            found_count += 1;
        }
        let requests = &requests[..found_count];
        let count = self.push_all(requests);
        let (run_bytes, end) = match count.checked_sub(1) {
            _ if count == found_count => (at_bytes, end),
            Some(last) => (ends_bytes[last], RunEnd::Full),
            None => (0, RunEnd::Full),
        };
        self.responses.steps().add(ORDERED_STEPS * count);
        self.responses.steps().add_bytes(run_bytes);
        (run_bytes, end)
    }

    /// Answers long requests until all are answered or the pass must end. Returns the number of answered requests.
    fn push_all(&mut self, requests: &[Long<'_>]) -> usize {
        let (store, mut count) = (self.store, 0);
        for run in requests.chunk_by(|a, b| a.way(store) == b.way(store)) {
            let answered_count = match run[0].way(store) {
                Way::Neighbors => self.push_neighbors(run.len(), |i| (run[i].body, run[i].neighbor_op())),
                Way::Ranges => self.push_ranges(run),
                Way::Columns => self.push_columns(run, |request| request.body),
                Way::Selects => self.push_select(&run[0]),
                Way::Others => self.push_others(run),
            };
            count += answered_count;
            if answered_count < run.len() || self.responses.steps().continue_after(count).is_break() {
                break;
            }
        }
        count
    }

    /// Answers Range and Count requests. Returns the number of answered requests.
    fn push_ranges(&mut self, requests: &[Long<'_>]) -> usize {
        let Batch { store, responses, tally, .. } = self;
        let mut ranges: [Option<RangeRequest<'_>>; RANGES_MAX] = [None; RANGES_MAX];
        let mut count = 0;
        for run in requests.chunks(RANGES_MAX) {
            let op = |i: usize| Op::from_long_code(run[i].op_code);
            for (i, request) in run.iter().enumerate() {
                ranges[i] = op(i).and_then(|op| RangeRequest::parse(store.key_kind(), op, request.body));
            }
            let lookup = |i: usize| ranges[i].map_or(RangeLookup::NOTHING, |range| range.lookup);
            let cold_lookup = |i: usize| {
                ColdLookup::Range(lookup(i), ranges[i].map_or(RangeRequest::NO_ROWS, |range| range.limits()))
            };
            let ready_count = responses.ready_count(store, run.len(), cold_lookup);
            let mut run_count = 0;
            let mut answer = |i: usize, rows: Result<Range<usize>, LookupError>| {
                if responses.is_full() || count + i > 0 && responses.steps().is_time_over() {
                    return ControlFlow::Break(());
                }
                let pushed = match &ranges[i] {
                    Some(range) => range.push(store, rows, responses),
                    None => push_error(responses),
                };
                let Some(status) = pushed else { return ControlFlow::Break(()) };
                tally.count(op(i), status);
                run_count += 1;
                responses.steps().continue_after(count + run_count)
            };
            store.row_numbers_each(ready_count, lookup, &mut answer);
            count += run_count;
            if run_count < run.len() {
                break;
            }
        }
        count
    }

    /// Answers a Select request, unless it is not the first request of the pass. Returns the number of answered
    /// requests.
    ///
    /// A pass that reads a file is repeated if the file has changed meanwhile. A Select that is the first request of
    /// its pass affects only later requests, so it may be repeated.
    fn push_select(&mut self, request: &Long<'_>) -> usize {
        let Batch { store, selection, responses, tally, .. } = self;
        if responses.total_len_bytes() > 0 {
            return 0;
        }
        let status = select(store, selection, request.body, responses);
        tally.count(Some(Op::Select), if status == Status::Ok { status } else { Status::Error });
        1
    }

    /// Answers other requests. Returns the number of answered requests.
    fn push_others(&mut self, requests: &[Long<'_>]) -> usize {
        let Batch { store, missing, responses, tally, .. } = self;
        let (store, missing) = (*store, *missing);
        let requests = match store.key_kind() {
            KeyKind::Bytes => {
                &requests[..responses.ready_count(store, requests.len(), |i| store.point_lookup(requests[i].body))]
            }
            KeyKind::U64 => requests,
        };
        let counted_before = tally.total();
        let mut count = 0;
        let mut answer =
            |request: &Long<'_>, found: Found<'_>| match push_one(store, missing, request, found, responses, tally) {
                Some(()) => {
                    count += 1;
                    responses.steps().continue_after(count)
                }
                None => ControlFlow::Break(()),
            };
        match store.key_kind() {
            KeyKind::Bytes => {
                store.find_each(requests, |request| request.body, answer);
            }
            // A table whose keys are numbers has no byte keys to look up.
            KeyKind::U64 => {
                let _ = requests.iter().try_for_each(|request| answer(request, Found::Missing));
            }
        }
        tally.count_values(counted_before + count - tally.total());
        count
    }
}

/// Appends the response to a long request. Returns `None` if there is no room for the response, or if verification was
/// interrupted.
#[inline(always)]
fn push_one(
    store: &Store,
    missing: impl Missing,
    request: &Long<'_>,
    found: Found<'_>,
    responses: &mut Responses,
    tally: &mut Tally,
) -> Option<()> {
    if responses.is_full() {
        return None;
    }
    let is_bytes = store.key_kind() == KeyKind::Bytes;
    let op = Op::from_long_code(request.op_code);
    let status = match op.map(|op| (op, op.kind())) {
        // The next pass begins with this request.
        Some((_, OpKind::Login)) => return None,
        Some((op, OpKind::Point)) if is_bytes => {
            let missing = || missing.status(Key::Bytes(request.body));
            return responses.append(|appender, _| push_found(op as u32, found, missing, appender, tally));
        }
        _ => push_error(responses)?,
    };
    tally.count(op, status);
    Some(())
}
