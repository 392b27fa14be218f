//! The permissions of a connection that speaks the native protocol.
//!
//! In: requests. Out: the permitted requests, which [`answer`] answers, and a response without a value to each rejected
//! request. A connection with all permissions is checked once per pass. On other connections, each request is checked
//! before its key is looked up.

use std::sync::atomic::Ordering;
use std::task::Waker;

use super::ordered::{RangeRequest, push_bare};
use super::tracking::user_of;
use super::{Setup, answer, whole_requests};
use crate::Lookup;
use crate::format::key::{Key, KeyKind};
use crate::format::key_type::KeyType;
use crate::protocol::native::{
    LONG_BODY_MAX_BYTES, LONG_HEADER_LEN_BYTES, Op, OpKind, OpNeeds, REQUEST_LEN_BYTES, Request, Status, long_len_bytes,
};
use crate::protocol::resp::commands::KeysNeeded;
use crate::server::responses::Responses;
use crate::server::state::ConnectionContext;
use crate::server::stats::Tally;
use crate::server::table::Generation;
use crate::server::turns::{Pass, Then};
use crate::server::users::{Access, Attempts, Denied, LoginFailed};
use crate::store::{RangeEnd, Side};

/// The maximum number of requests whose permissions are checked before the first of them is answered.
const CHECKED_MAX: usize = 256;
const CHECK_STEPS: usize = 1;
const LOGIN_STEPS: usize = 60;
const LOGIN_CODE: [u8; 4] = Op::Auth.long_code().to_be_bytes();

/// The state of a connection that speaks the native protocol.
pub(in crate::server) struct Session {
    access: Access,
    attempts: Attempts,
    setup: Setup,
}

/// What the input begins with.
enum Next<'a> {
    /// A complete request, its op, and its length in bytes.
    Complete {
        op: Option<Op>,
        key: RequestKey<'a>,
        len_bytes: usize,
    },
    Login,
    /// The rest of the input is an incomplete request, or a request that is too long.
    Rest,
}

enum RequestKey<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl Session {
    /// Returns whether the client needs no login, or has logged in.
    pub(in crate::server) fn is_authenticated(&self) -> bool {
        self.access.is_authenticated()
    }

    pub(in crate::server) fn new(context: &ConnectionContext) -> Session {
        let access = Access::new(&context.worker.server.users, context.peer.is_unix());
        Session { access, attempts: Attempts::default(), setup: Setup::default() }
    }

    /// Returns the approximate number of bytes that the session has allocated.
    pub(in crate::server) fn held_bytes(&self) -> usize {
        self.setup.selection.held_bytes()
    }

    pub(in crate::server) fn access(&self) -> &Access {
        &self.access
    }

    /// Returns whether a notice is due, although the client has sent no request. Afterward, `waker` is woken when the next
    /// one is due.
    #[inline]
    pub(in crate::server) fn has_notice(
        &mut self,
        context: &ConnectionContext,
        generation: &Generation,
        waker: &Waker,
    ) -> bool {
        let tracking = &mut self.setup.tracking;
        tracking.is_on() && tracking.has_notice(context, generation, &self.access, waker)
    }

    /// Records that the responses of the last pass are sent.
    #[inline]
    pub(in crate::server) fn commit(&mut self) {
        self.setup.tracking.commit();
    }

    /// Answers the complete requests at the start of `input` as long as there is room for responses, and counts the
    /// responses in `tally`.
    pub(in crate::server) fn answer(
        &mut self,
        context: &ConnectionContext,
        generation: &Generation,
        input: &[u8],
        responses: &mut Responses,
        tally: &mut Tally,
    ) -> Pass {
        if self.setup.tracking.is_on() {
            self.setup.tracking.push_notice(context, generation, &self.access, responses);
        }
        if input.starts_with(&LOGIN_CODE) {
            return self.log_in(context, input, responses, tally);
        }
        self.setup.tracking.user = user_of(&self.access);
        if self.access.is_unrestricted(&context.worker.server.users) {
            return self.answer_of_type(context, generation, input, responses, tally);
        }
        self.answer_permitted(context, generation, input, responses, tally)
    }

    /// Answers the requests of a connection whose permissions may be restricted.
    #[cold]
    fn answer_permitted(
        &mut self,
        context: &ConnectionContext,
        generation: &Generation,
        input: &[u8],
        responses: &mut Responses,
        tally: &mut Tally,
    ) -> Pass {
        let server = &context.worker.server;
        if !self.access.follow(&server.users) {
            server.statistics.totals.cut_user.fetch_add(1, Ordering::Relaxed);
            return Pass { taken_bytes: input.len(), then: Then::Close };
        }
        if self.access.is_unrestricted(&server.users) {
            return self.answer_of_type(context, generation, input, responses, tally);
        }
        let mut taken_bytes = 0;
        loop {
            let rest = &input[taken_bytes..];
            let permitted_bytes = self.permitted_bytes(generation.store.key_type(), rest, responses);
            let permitted = &rest[..permitted_bytes];
            let pass = self.answer_of_type(context, generation, permitted, responses, tally);
            taken_bytes += pass.taken_bytes;
            if pass.then != Then::Read || pass.taken_bytes < permitted_bytes || taken_bytes == input.len() {
                return Pass { taken_bytes, then: pass.then };
            }
            let (denied, op, len_bytes) = match next(&input[taken_bytes..]) {
                Next::Complete { op, key, len_bytes } => match self.check(generation.store.key_type(), op, &key) {
                    Err(denied) => (denied, op, len_bytes),
                    // The limit on checked requests was reached.
                    Ok(()) => continue,
                },
                Next::Login => return Pass { taken_bytes, then: Then::Answer },
                Next::Rest => continue,
            };
            if responses.is_full() {
                return Pass { taken_bytes, then: Then::Answer };
            }
            if responses.steps().is_pass_over() {
                return Pass { taken_bytes, then: Then::Yield };
            }
            push_bare(status_of(denied), responses);
            responses.steps().add(CHECK_STEPS);
            tally.count(op, Status::Error);
            taken_bytes += len_bytes;
        }
    }

    /// Answers requests that are permitted. Keys are looked up only if the client knows the type of the table's keys.
    #[inline]
    fn answer_of_type(
        &mut self,
        context: &ConnectionContext,
        generation: &Generation,
        input: &[u8],
        responses: &mut Responses,
        tally: &mut Tally,
    ) -> Pass {
        if self.setup.is_of_other_type(generation) {
            return self.answer_of_other_type(context, generation, input, responses, tally);
        }
        answer(context, generation, &mut self.setup, input, responses, tally)
    }

    /// Answers requests, and looks no key up before a KeyType. Until then, the client encodes keys for the type of an
    /// older table, so a lookup could find a wrong row, or miss one.
    #[cold]
    fn answer_of_other_type(
        &mut self,
        context: &ConnectionContext,
        generation: &Generation,
        input: &[u8],
        responses: &mut Responses,
        tally: &mut Tally,
    ) -> Pass {
        let mut taken_bytes = 0;
        loop {
            let rest = &input[taken_bytes..];
            let without_keys = &rest[..len_bytes_without_keys(rest)];
            let pass = answer(context, generation, &mut self.setup, without_keys, responses, tally);
            taken_bytes += pass.taken_bytes;
            if pass.then != Then::Read || pass.taken_bytes < without_keys.len() || taken_bytes == input.len() {
                return Pass { taken_bytes, then: pass.then };
            }
            let rest = &input[taken_bytes..];
            if !self.setup.is_of_other_type(generation) {
                let pass = answer(context, generation, &mut self.setup, rest, responses, tally);
                return Pass { taken_bytes: taken_bytes + pass.taken_bytes, then: pass.then };
            }
            let Next::Complete { op, len_bytes, .. } = next(rest) else { continue };
            if responses.is_full() {
                return Pass { taken_bytes, then: Then::Answer };
            }
            if responses.steps().is_pass_over() {
                return Pass { taken_bytes, then: Then::Yield };
            }
            push_bare(Status::KeyTypeChanged, responses);
            responses.steps().add(CHECK_STEPS);
            tally.count(op, Status::Error);
            taken_bytes += len_bytes;
        }
    }

    /// Returns the length in bytes of the permitted requests at the start of `input`, before the first login or request
    /// that is not permitted. Checks at most [`CHECKED_MAX`] requests. An incomplete request counts as permitted,
    /// because it is not answered yet.
    fn permitted_bytes(&self, key_type: KeyType, input: &[u8], responses: &mut Responses) -> usize {
        let mut permitted_bytes = 0;
        for _ in 0..CHECKED_MAX {
            match next(&input[permitted_bytes..]) {
                Next::Complete { op, key, len_bytes } if self.check(key_type, op, &key).is_ok() => {
                    permitted_bytes += len_bytes;
                }
                Next::Complete { .. } | Next::Login => return permitted_bytes,
                Next::Rest => return input.len(),
            }
            responses.steps().add(CHECK_STEPS);
        }
        permitted_bytes
    }

    fn check(&self, key_type: KeyType, op: Option<Op>, key: &RequestKey<'_>) -> Result<(), Denied> {
        if !self.access.is_authenticated() {
            return Err(Denied::Unauthenticated);
        }
        // A request with an unknown op gets an Error.
        let Some(op) = op else { return Ok(()) };
        let (command, keys) = match op.needs() {
            OpNeeds::Nothing => return Ok(()),
            OpNeeds::Command(command, keys) => (command, keys),
            // The requests of a connection with all permissions are not checked one by one.
            OpNeeds::Everything => return Err(Denied::Command),
        };
        self.access.check_permission(command)?;
        let is_permitted = match keys {
            KeysNeeded::None => true,
            KeysNeeded::Named => {
                let key = match key {
                    RequestKey::Number(key) => Key::U64(*key),
                    RequestKey::Bytes(key) => Key::Bytes(key),
                };
                self.access.permits_stored_key(key_type, key)
            }
            KeysNeeded::Some => self.access.permits_some_key(),
            KeysNeeded::Prefix if self.access.permits_all_keys() => true,
            KeysNeeded::Prefix => match key {
                RequestKey::Number(_) => false,
                // Patterns apply to written keys. Only keys of type bytes are stored in the order of their written form.
                RequestKey::Bytes(body) => key_type == KeyType::BYTES && is_range_permitted(&self.access, op, body),
            },
            KeysNeeded::All => self.access.permits_all_keys(),
        };
        if is_permitted { Ok(()) } else { Err(Denied::Keys) }
    }

    /// Answers the Auth request at the start of `input`. The body is the user's name, a zero byte, and the password.
    fn log_in(
        &mut self,
        context: &ConnectionContext,
        input: &[u8],
        responses: &mut Responses,
        tally: &mut Tally,
    ) -> Pass {
        let body_len_bytes = whole_requests(input).first().map(Request::body_len_bytes);
        let Some(body_len_bytes) = body_len_bytes else { return Pass { taken_bytes: 0, then: Then::Read } };
        if body_len_bytes > LONG_BODY_MAX_BYTES {
            push_bare(Status::Error, responses);
            tally.count(None, Status::Error);
            return Pass { taken_bytes: input.len(), then: Then::Refuse };
        }
        let len_bytes = long_len_bytes(body_len_bytes);
        let Some(request) = input.get(..len_bytes) else { return Pass { taken_bytes: 0, then: Then::Read } };
        let body = &request[LONG_HEADER_LEN_BYTES..LONG_HEADER_LEN_BYTES + body_len_bytes];
        let name_len_bytes = body.iter().position(|byte| *byte == 0).unwrap_or(body.len());
        let (name, password) = (&body[..name_len_bytes], body.get(name_len_bytes + 1..));
        responses.steps().add(LOGIN_STEPS);
        responses.steps().add_bytes(len_bytes);
        let server = &context.worker.server;
        let logged_in = password.map(|password| self.access.log_in(&server.users, name, password, &mut self.attempts));
        let status = match logged_in {
            None => Status::Error,
            Some(Ok(())) => Status::Ok,
            Some(Err(LoginFailed::Delayed(until))) => return Pass { taken_bytes: 0, then: Then::Delay(until) },
            Some(Err(LoginFailed::Now)) => {
                server.users.report_failed_login(&context.peer, name, &server.statistics.totals);
                Status::Unauthenticated
            }
        };
        push_bare(status, responses);
        tally.count(Some(Op::Auth), if status == Status::Ok { status } else { Status::Error });
        Pass { taken_bytes: len_bytes, then: Then::Answer }
    }
}

fn next(input: &[u8]) -> Next<'_> {
    let Some(first) = whole_requests(input).first() else { return Next::Rest };
    let code = first.op_code();
    if !Op::is_long(code) {
        let key = RequestKey::Number(first.key());
        return Next::Complete { op: Op::from_code(code), key, len_bytes: REQUEST_LEN_BYTES };
    }
    let body_len_bytes = first.body_len_bytes();
    if code == Op::Auth.long_code() {
        return Next::Login;
    }
    let len_bytes = if body_len_bytes > LONG_BODY_MAX_BYTES { usize::MAX } else { long_len_bytes(body_len_bytes) };
    let Some(request) = input.get(..len_bytes) else { return Next::Rest };
    let key = RequestKey::Bytes(&request[LONG_HEADER_LEN_BYTES..LONG_HEADER_LEN_BYTES + body_len_bytes]);
    Next::Complete { op: Op::from_long_code(code).filter(|op| op.kind() != OpKind::Login), key, len_bytes }
}

/// Returns the length in bytes of the requests at the start of `input` before the first request with keys, and up to the
/// first KeyType.
fn len_bytes_without_keys(input: &[u8]) -> usize {
    let mut len_bytes = 0;
    loop {
        match next(&input[len_bytes..]) {
            Next::Complete { op: Some(op), .. } if op.has_keys() => return len_bytes,
            Next::Complete { op, len_bytes: next_len_bytes, .. } => {
                len_bytes += next_len_bytes;
                if op == Some(Op::KeyType) {
                    return len_bytes;
                }
            }
            Next::Login | Next::Rest => return input.len(),
        }
    }
}

/// Returns whether a user may use all keys that a Range or a Count reads, because they begin with a permitted prefix.
/// Numbers with the same first digits are not a range.
fn is_range_permitted(access: &Access, op: Op, body: &[u8]) -> bool {
    let range = RangeRequest::parse(KeyKind::Bytes, op, body).map(|range| (range.lookup.start, range.lookup.end));
    match range {
        Some((RangeEnd::Beside(Key::Bytes(start), _), RangeEnd::Beside(Key::Bytes(end), side))) => {
            access.permits_range(start, end, side == Side::Before)
        }
        _ => false,
    }
}

fn status_of(denied: Denied) -> Status {
    match denied {
        Denied::Unauthenticated => Status::Unauthenticated,
        Denied::Command | Denied::Keys => Status::NotPermitted,
    }
}
