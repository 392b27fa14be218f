//! Pipelines requests of one operation on a connection.
//!
//! In: the number of requests, an encoder, and a visitor for the responses. Out: encoded requests, up to the maximum
//! number in flight. This module does no I/O.
//!
//! Reasons and evidence: `docs/decisions/replaced-table.md`.

use zerocopy::IntoBytes;

use super::error::ClientError;
use super::request::{KeyRequest, RequestError, TypedRequest, check_len};
use crate::format::key::Key;
use crate::protocol::native::{Op, Request};
use crate::protocol::reader::{Response, ResponseReader};
use crate::protocol::response::Violation;

/// Maximum number of requests in flight. A server reads at most this many 16-byte requests with one system call.
const IN_FLIGHT_MAX: usize = 1024;
/// When the unsent requests reach this length, encoding pauses until these requests are sent.
const UNSENT_MAX_BYTES: usize = 256 << 10;

/// Requests of one operation, with counts of encoded requests and received responses.
pub(super) struct Batch<E, V> {
    op: Op,
    guards: Option<Guards>,
    len: usize,
    encode: E,
    visit: V,
    sent: usize,
    received: usize,
    /// The first [`RequestError`]. After this error, no more requests are encoded.
    error: Option<RequestError>,
}

/// Requests before and after a batch, whose responses show whether one table answered the whole batch. After a
/// reconnect, a batch with guards starts again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guards {
    /// The operations of the first requests. The operations of guards need no key, and have no effects.
    pub(super) before: &'static [Op],
    /// The operation of the last request.
    pub(super) after: Op,
}

/// A function that encodes the request at a position in the batch, and appends it to a buffer.
pub(super) trait EncodeRequest: Fn(usize, &mut Vec<u8>) {}
/// A function that handles one response. Its first argument is the position of the request in the batch.
pub(super) trait VisitResponse: FnMut(usize, Response<'_>) -> Result<(), RequestError> {}

impl<E: Fn(usize, &mut Vec<u8>)> EncodeRequest for E {}
impl<V: FnMut(usize, Response<'_>) -> Result<(), RequestError>> VisitResponse for V {}

pub(super) fn single<R: TypedRequest>(
    request: &R,
    mut visit: impl FnMut(Response<'_>) -> Result<(), RequestError>,
) -> Batch<impl EncodeRequest, impl VisitResponse> {
    let encode = |_, requests: &mut Vec<u8>| request.encode(requests);
    Batch::new(request.op(), 1, encode, move |_, response: Response<'_>| visit(response))
}

/// Creates a batch with a request for each key, after checking the lengths of all keys.
pub(super) fn for_keys<'k, K, R>(
    keys: &[K],
    mut visit: impl FnMut(usize, R, Response<'_>) -> Result<(), RequestError>,
) -> Result<Batch<impl EncodeRequest, impl VisitResponse>, ClientError>
where
    K: Into<Key<'k>> + Copy,
    R: KeyRequest<'k>,
{
    check_keys(keys)?;
    let request = |position: usize| R::from_checked(keys[position].into());
    let encode = move |position, requests: &mut Vec<u8>| request(position).encode(requests);
    let visit = move |position, response: Response<'_>| visit(position, request(position), response);
    Ok(Batch::new(R::OP, keys.len(), encode, visit))
}

/// Creates a batch with a request for each of the keys at some positions. The lengths of all keys must be valid. The
/// visitor gets the position of the key in `keys`.
pub(super) fn for_positions<'k, K, R>(
    keys: &[K],
    positions: &[usize],
    mut visit: impl FnMut(usize, R, Response<'_>) -> Result<(), RequestError>,
) -> Batch<impl EncodeRequest, impl VisitResponse>
where
    K: Into<Key<'k>> + Copy,
    R: KeyRequest<'k>,
{
    let request = |at: usize| R::from_checked(keys[positions[at]].into());
    let encode = move |at, requests: &mut Vec<u8>| request(at).encode(requests);
    let visit = move |at, response: Response<'_>| visit(positions[at], request(at), response);
    Batch::new(R::OP, positions.len(), encode, visit)
}

/// Creates a batch of `len` requests for one operation, between guards. `visit_guard` gets the responses to the guards,
/// with the position of the guard among all guards. After a reconnect, both visitors get all responses again.
pub(super) fn between<R: TypedRequest>(
    guards: Guards,
    op: Op,
    len: usize,
    request: impl Fn(usize) -> R,
    mut visit: impl FnMut(usize, Response<'_>) -> Result<(), RequestError>,
    mut visit_guard: impl FnMut(usize, Response<'_>) -> Result<(), RequestError>,
) -> Batch<impl EncodeRequest, impl VisitResponse> {
    let start = guards.before.len();
    // The position among the requests between the guards, or `None` for a guard.
    let position = move |at: usize| at.checked_sub(start).filter(|position| *position < len);
    let encode = move |at, requests: &mut Vec<u8>| match position(at) {
        Some(at) => request(at).encode(requests),
        None => requests.extend_from_slice(Request::new(guards.op_at(at), 0).as_bytes()),
    };
    let visit = move |at: usize, response: Response<'_>| match position(at) {
        Some(at) => visit(at, response),
        None => visit_guard(at.min(start), response),
    };
    Batch { guards: Some(guards), ..Batch::new(op, start + len + 1, encode, visit) }
}

pub(super) fn check_keys<'k>(keys: &[impl Into<Key<'k>> + Copy]) -> Result<(), ClientError> {
    keys.iter().try_for_each(|key| check_len((*key).into(), 1))
}

impl Guards {
    fn op_at(&self, position: usize) -> Op {
        self.before.get(position).copied().unwrap_or(self.after)
    }
}

impl<E: EncodeRequest, V: VisitResponse> Batch<E, V> {
    fn new(op: Op, len: usize, encode: E, visit: V) -> Self {
        Batch { op, guards: None, len, encode, visit, sent: 0, received: 0, error: None }
    }

    fn op_at(&self, position: usize) -> Op {
        let is_guard = |guards: &Guards| position < guards.before.len() || position + 1 == self.len;
        self.guards.filter(is_guard).map_or(self.op, |guards| guards.op_at(position))
    }

    /// Returns whether the requests have keys, which are encoded for a type.
    pub(super) fn has_keys(&self) -> bool {
        self.op.has_keys()
    }

    /// Returns whether a request is for the type of the keys. The server then looks up keys of this type.
    pub(super) fn requests_key_type(&self) -> bool {
        let of_guards = |guards: Guards| guards.after == Op::KeyType || guards.before.contains(&Op::KeyType);
        self.op == Op::KeyType || self.guards.is_some_and(of_guards)
    }

    /// Returns whether the requests have no side effects and can be repeated.
    pub(super) fn is_idempotent(&self) -> bool {
        !self.op.has_effects()
    }

    /// Marks requests as unsent, so that they are sent again on a new connection: those without a response or, in a
    /// batch with guards, all.
    pub(super) fn resend(&mut self) {
        // The guards on both sides must come from one connection: a restarted server counts generations from 1 again.
        if self.guards.is_some() {
            self.received = 0;
        }
        self.sent = self.received;
    }

    pub(super) fn is_all_received(&self) -> bool {
        self.received == self.sent
    }

    /// Returns true if all requests were encoded, or if a [`RequestError`] stopped the encoding.
    pub(super) fn is_all_sent(&self) -> bool {
        self.sent == self.len || self.error.is_some()
    }

    /// Encodes more requests, unless more than half of the maximum number of requests are in flight.
    pub(super) fn fill(&mut self, requests: &mut Vec<u8>) {
        // Requests are refilled in halves, so that one system call sends many of them.
        if self.sent - self.received > IN_FLIGHT_MAX / 2 {
            return;
        }
        while !self.is_all_sent() && self.sent - self.received < IN_FLIGHT_MAX && requests.len() < UNSENT_MAX_BYTES {
            (self.encode)(self.sent, requests);
            self.sent += 1;
        }
    }

    pub(super) fn visit_responses(&mut self, reader: &mut ResponseReader) -> Result<(), Violation> {
        while self.received < self.sent {
            let Some(response) = reader.next(self.op_at(self.received))? else { break };
            // After an error, the responses in flight are read and dropped, so that the connection remains usable.
            if self.error.is_none() {
                match (self.visit)(self.received, response) {
                    Ok(()) => {}
                    Err(RequestError::Violation(violation)) => return Err(violation),
                    Err(error) => self.error = Some(error),
                }
            }
            self.received += 1;
        }
        Ok(())
    }

    /// Returns the first [`RequestError`], if any. Must be called only after all responses have been received.
    pub(super) fn into_result(self) -> Result<(), RequestError> {
        self.error.map_or(Ok(()), Err)
    }
}
