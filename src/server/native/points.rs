//! Requests for one key.

use std::ops::ControlFlow;

use super::columns::Selection;
use super::ordered::{push_bare, push_neighbor, side};
use super::{Batch, Missing, Nowhere, ORDERED_STEPS, RunKind, counted};
use crate::Lookup;
use crate::format::key::{Key, KeyKind};
use crate::format::lookup_key::LookupKey;
use crate::protocol::native::{Op, OpKind, RESPONSE_HEADER_LEN_BYTES, Request, ResponseHeader, Status};
use crate::server::responses::{Appender, Responses};
use crate::server::stats::Tally;
use crate::server::turns::{RUN_REQUESTS_MAX, Steps};
use crate::store::{ColdLookup, Found, ShortAnswer, Store, Visitor, is_verification_interrupted};

/// Appends the responses to 16-byte Get and Exists requests, and an Error for each 16-byte request with an unknown op.
/// Stops at the first other request, when there is no room for a response, or when a limit of one pass is reached.
/// Returns the number of answered requests. Cleared [`Responses`] have room for at least one response.
pub fn answer_requests(store: &Store, requests: &[Request], responses: &mut Responses) -> usize {
    let (selection, tally) = (&mut Selection::default(), &mut Tally::default());
    Batch { store, missing: Nowhere, selection, responses, tally }.answer_points(requests)
}

impl<M: Missing> Batch<'_, M> {
    /// Does what [`answer_requests`] does, and counts the responses in the tally.
    pub(super) fn answer_points(&mut self, requests: &[Request]) -> usize {
        let requests = match self.requests_for_numbers(requests) {
            Ok(requests) => requests,
            Err(refused) => return refused,
        };
        let Batch { store, missing, responses, tally, .. } = self;
        let (store, missing) = (*store, *missing);
        let ready_count = responses.ready_count(store, requests.len(), |i| store.point_lookup(requests[i].key()));
        let requests = &requests[..ready_count];
        let counted_before = tally.total();
        let count = responses.append(|appender, steps| {
            store.find_each(requests, Request::key, Points { appender, steps, tally, missing })
        });
        responses.steps().add(count);
        tally.count_values(counted_before + count - tally.total());
        count
    }

    /// Appends the responses to 16-byte Floor, Ceiling, and Cover requests. Stops at the first request with another op, or when
    /// there is no room for a response. Returns the number of answered requests.
    pub(super) fn answer_neighbors(&mut self, requests: &[Request]) -> usize {
        let requests = match self.requests_for_numbers(requests) {
            Ok(requests) => requests,
            Err(refused) => return refused,
        };
        let op_of = |request: &Request| Op::from_code(request.op_code()).filter(|op| op.kind() == OpKind::Neighbor);
        let is_neighbor = |request: &&Request| op_of(request).is_some();
        let op = |i: usize| op_of(&requests[i]).unwrap_or(Op::Floor);
        let run_count = requests.iter().take_while(is_neighbor).count();
        let count = self.push_neighbors(run_count, |i| (requests[i].key(), op(i)));
        self.responses.steps().add(ORDERED_STEPS * count);
        count
    }

    /// Appends the responses to `count` requests for the floor, the ceiling, or the range of a key. Returns the number of answered
    /// requests.
    #[inline(always)]
    pub(super) fn push_neighbors<'k, K: LookupKey + Into<Key<'k>>>(
        &mut self,
        count: usize,
        request: impl Fn(usize) -> (K, Op),
    ) -> usize {
        let Batch { store, responses, tally, .. } = self;
        let key_at = |i: usize| {
            let (key, op) = request(i);
            (key, side(op))
        };
        let ready_count = responses.ready_count(store, count, |i| {
            let (key, side) = key_at(i);
            ColdLookup::Neighbor(key.into(), side)
        });
        let mut answered_count = 0;
        store.neighbor_each(ready_count, key_at, |i, neighbor| {
            if responses.is_full() || answered_count > 0 && responses.steps().is_time_over() {
                return ControlFlow::Break(());
            }
            let (key, op) = request(i);
            let neighbor = if op == Op::Cover { store.range_at_floor(neighbor, key.into()) } else { neighbor };
            let Some(status) = push_neighbor(store, neighbor, responses) else { return ControlFlow::Break(()) };
            tally.count(Some(op), status);
            answered_count += 1;
            responses.steps().continue_after(answered_count)
        });
        answered_count
    }

    /// Returns the requests that may be answered together, at most [`RUN_REQUESTS_MAX`], if the table's keys are
    /// numbers.
    ///
    /// # Errors
    /// If the table's keys are bytes, appends an Error for each request that looks up a number, and returns the number
    /// of these requests.
    #[inline]
    fn requests_for_numbers<'r>(&mut self, requests: &'r [Request]) -> Result<&'r [Request], usize> {
        let requests = &requests[..requests.len().min(RUN_REQUESTS_MAX)];
        if self.store.key_kind() == KeyKind::U64 {
            return Ok(requests);
        }
        let mut count = 0;
        for request in requests {
            let op_code = request.op_code();
            if matches!(RunKind::from_code(op_code), RunKind::Long | RunKind::Server) || self.responses.is_full() {
                break;
            }
            self.tally.count(Op::from_code(op_code), push_bare(Status::Error, self.responses));
            count += 1;
        }
        Err(count)
    }
}

/// Appends the responses to Get and Exists requests.
struct Points<'p, 'b, M> {
    appender: &'p mut Appender<'b>,
    steps: &'p Steps,
    tally: &'p mut Tally,
    missing: M,
}

impl<'a, M: Missing> Visitor<'a, Request> for Points<'_, '_, M> {
    /// Not inlined, so that the loop over short responses can use all registers.
    #[inline(never)]
    fn found(&mut self, request: &Request, found: Found<'a>) -> ControlFlow<()> {
        let missing = self.missing;
        let missing = || missing.status(Key::U64(request.key()));
        match push_found(request.op_code(), found, missing, self.appender, self.tally) {
            Some(()) => ControlFlow::Continue(()),
            None => ControlFlow::Break(()),
        }
    }

    #[inline(always)]
    fn found_short(&mut self, request: &Request, answer: ShortAnswer<'a>) -> ControlFlow<()> {
        if request.op_code() == Op::Get as u32 && self.appender.push_short(answer).is_some() {
            return ControlFlow::Continue(());
        }
        self.found(request, Found::Answer(answer.response(), answer.offset_bytes))
    }

    #[inline(always)]
    fn found_missing(&mut self, request: &Request) -> ControlFlow<()> {
        if request.op_code() == Op::Get as u32
            && let Some(room) = self.appender.room().first_chunk_mut::<RESPONSE_HEADER_LEN_BYTES>()
        {
            let status = self.missing.status(Key::U64(request.key()));
            let header = ResponseHeader::bare(status);
            *room = zerocopy::transmute!(header);
            self.appender.advance(RESPONSE_HEADER_LEN_BYTES);
            self.tally.count(Some(Op::Get), counted(status));
            return ControlFlow::Continue(());
        }
        self.found(request, Found::Missing)
    }

    #[inline(always)]
    fn group_ended(&mut self) -> ControlFlow<()> {
        if self.steps.is_pass_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Appends the response to a request for one key of the table's kind. Returns `None` if there is no room for the
/// response, if the request belongs to another kind of [`RunKind`], or if verification was interrupted. Counts every
/// response in `tally`, except values that a Get found, which the caller counts. `missing` returns the status of a
/// missing key.
#[inline(always)]
pub(super) fn push_found(
    op_code: u32,
    found: Found<'_>,
    missing: impl FnOnce() -> Status,
    appender: &mut Appender<'_>,
    tally: &mut Tally,
) -> Option<()> {
    let status = match found {
        Found::Answer(response, offset_bytes) if op_code == Op::Get as u32 => {
            return appender.push_stored(response, offset_bytes);
        }
        Found::Value(value, offset_bytes) if op_code == Op::Get as u32 => {
            let header: [u8; RESPONSE_HEADER_LEN_BYTES] = zerocopy::transmute!(ResponseHeader::of_value(value.len())?);
            return appender.push_headed(&header, value, offset_bytes);
        }
        Found::Answer(..) | Found::Value(..) => Some(Status::Ok),
        Found::Missing => Some(missing()),
        Found::Damaged => None,
    };
    let len_bytes = write_without_value(op_code, status, appender.room(), tally)?;
    appender.advance(len_bytes);
    Some(())
}

/// Writes the response to any request for one key, except to a Get that found a value. `found` is `None` if the bytes
/// that the result depends on are damaged. Returns the length of the response, or `None` in the cases in which
/// [`push_found`] returns `None`. Not inlined, so that the loop over found values can use all registers.
#[inline(never)]
fn write_without_value(op_code: u32, found: Option<Status>, room: &mut [u8], tally: &mut Tally) -> Option<usize> {
    let op = Op::from_code(op_code);
    let status = match (op, found) {
        (Some(Op::Get | Op::Exists), Some(missing @ (Status::NotFound | Status::Moved))) => missing,
        (Some(Op::Exists), Some(Status::Ok)) => Status::Ok,
        _ if RunKind::from_code(op_code) != RunKind::Points => return None,
        (_, None) if is_verification_interrupted() => return None,
        _ => Status::Error,
    };
    let header = ResponseHeader::bare(status);
    *room.first_chunk_mut::<RESPONSE_HEADER_LEN_BYTES>()? = zerocopy::transmute!(header);
    tally.count(op, counted(status));
    Some(RESPONSE_HEADER_LEN_BYTES)
}

#[cfg(all(test, feature = "bake"))]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;
    use crate::bake::{Options, bake_csv};

    fn value(key: u64) -> Vec<u8> {
        vec![b'a' + (key % 26) as u8; (key % 97) as usize]
    }

    /// Returns the response to a request, according to the rows of the test table.
    fn expected(op: Op, key: u64) -> Vec<u8> {
        let header =
            |status: Status, len_bytes: usize| [(status as u32).to_be_bytes(), (len_bytes as u32).to_be_bytes()];
        match (op, key < 3000) {
            (_, false) => header(Status::NotFound, 0).concat(),
            (Op::Get, true) => [&header(Status::Ok, value(key).len()).concat()[..], &value(key)].concat(),
            (_, true) => header(Status::Ok, 0).concat(),
        }
    }

    #[test]
    fn values_of_every_length_are_answered_before_and_after_their_blocks_are_verified() {
        let folder = tempfile::tempdir().unwrap();
        let db = folder.path().join("storage.db");
        let rows = (0..3000).map(|key| format!("{key},{}\n", String::from_utf8(value(key)).unwrap()));
        bake_csv(rows.collect::<String>().as_bytes(), &db, &Options::default()).unwrap();
        let store = crate::MappedStore::open(&db).unwrap();
        let requests: Vec<(Op, u64)> = (0..6100_u64)
            .map(|i| (if i % 7 == 0 { Op::Exists } else { Op::Get }, i * 7919 % 3050))
            .chain([(Op::Get, 2999), (Op::Get, u64::MAX), (Op::Exists, 2998)])
            .collect();
        // In the first round, lookups verify the blocks. The last row ends at the end of the records.
        for round in 0..2 {
            for run_requests in [1, 5, 16, 17, 300] {
                for run in requests.chunks(run_requests) {
                    let bytes: Vec<u8> = run
                        .iter()
                        .flat_map(|(op, key)| [&(*op as u32).to_be_bytes()[..], &[0; 4], &key.to_be_bytes()].concat())
                        .collect();
                    let mut responses = Responses::new();
                    let parsed = crate::server::native::whole_requests(bytes.as_bytes());
                    assert_eq!(answer_requests(store.unverified(), parsed, &mut responses), run.len());
                    let expected: Vec<u8> = run.iter().flat_map(|(op, key)| expected(*op, *key)).collect();
                    assert!(responses.copied() == expected, "round {round}, runs of {run_requests} from {:?}", run[0]);
                }
            }
        }
    }
}
