//! The protocol that a client uses.

use std::sync::atomic::Ordering;
use std::task::Waker;

use tracing::warn;
use zerocopy::IntoBytes;

use crate::protocol::native::{ResponseHeader, Status};
use crate::server::limits::Limits;
use crate::server::native;
use crate::server::redis::{self, Session};
use crate::server::responses::Responses;
use crate::server::state::ConnectionContext;
use crate::server::stats::Tally;
use crate::server::table::Generation;
use crate::server::turns::{Pass, Then, VERIFICATION_WORK_MAX};
use crate::setting::Setting;
use crate::store::VerificationLimit;

/// The maximum number of attempts at a pass before other connections have their turn, if pages of the file are copied
/// or the file's names or permissions change during each attempt.
const ATTEMPTS_MAX: usize = 4;

/// The first byte of a TLS handshake. No request and no command begins with this byte.
const TLS_HANDSHAKE: u8 = 0x16;

/// The protocol that a client uses. The first byte from the client decides: native requests begin with a zero byte, and
/// commands of the Redis protocol never do.
pub(super) enum Protocol {
    /// No byte has arrived.
    Unknown,
    Native(Box<native::Session>),
    Redis(Box<Session>),
}

/// Counts and logs a client that uses TLS on a socket without TLS.
#[cold]
fn report_tls(context: &ConnectionContext) {
    let server = &context.worker.server;
    server.statistics.totals.cut_tls.fetch_add(1, Ordering::Relaxed);
    if let Some(left_out) = server.unexpected_tls_log.line() {
        warn!(
            peer = %context.peer,
            left_out,
            "disconnected: the client began a TLS handshake on a socket without TLS: it must use the TLS port ({}), or \
             connect without TLS",
            Setting::Tls
        );
    }
}

impl Protocol {
    /// Returns the number that identifies the connection's user, or 0 if the connection has no user.
    pub(super) fn user_number(&self) -> u64 {
        match self {
            Protocol::Redis(session) => session.access().user_number(),
            Protocol::Native(session) => session.access().user_number(),
            Protocol::Unknown => 0,
        }
    }

    /// Returns whether a command is partly answered, so that the rest of its reply needs the same generation.
    pub(super) fn is_in_command(&self) -> bool {
        match self {
            Protocol::Redis(session) => session.is_in_command(),
            Protocol::Native(_) | Protocol::Unknown => false,
        }
    }

    /// Returns the maximum total length of the unanswered requests that the connection may keep: `max_bytes`, but at
    /// most [`Limits::BUFFER_MIN_BYTES`] while the client must log in first.
    pub(super) fn unanswered_max_bytes(&self, max_bytes: usize) -> usize {
        let is_authenticated = match self {
            Protocol::Redis(session) => session.is_authenticated(),
            Protocol::Native(session) => session.is_authenticated(),
            Protocol::Unknown => true,
        };
        if is_authenticated { max_bytes } else { max_bytes.min(Limits::BUFFER_MIN_BYTES) }
    }

    /// Returns the queue of the lines that MONITOR shows, if the client is a monitor.
    #[inline]
    pub(super) fn monitor(&self) -> Option<&redis::Monitor> {
        match self {
            Protocol::Redis(session) => session.monitor(),
            Protocol::Native(_) | Protocol::Unknown => None,
        }
    }

    /// Returns whether the server sends a message now, although the client has sent no request. Afterward, `waker` is
    /// woken when it sends the next one.
    #[inline]
    pub(super) fn has_message(&mut self, context: &ConnectionContext, generation: &Generation, waker: &Waker) -> bool {
        match self {
            Protocol::Redis(session) => session.has_message(generation, waker),
            Protocol::Native(session) => session.has_notice(context, generation, waker),
            Protocol::Unknown => false,
        }
    }

    /// Returns whether a client that is a monitor still has the permission for MONITOR.
    pub(super) fn may_monitor(&mut self) -> bool {
        match self {
            Protocol::Redis(session) => session.may_monitor(),
            Protocol::Native(_) | Protocol::Unknown => true,
        }
    }

    /// Encodes an error response. In the native protocol, the response does not contain `text`.
    pub(super) fn error(&self, text: &str) -> Vec<u8> {
        match self {
            Protocol::Redis(_) => format!("-ERR {text}\r\n").into_bytes(),
            Protocol::Native(_) | Protocol::Unknown => ResponseHeader::bare(Status::Error).as_bytes().to_vec(),
        }
    }

    /// Runs one pass, which reads one generation. If the file changes during the pass, or pages of it had to be copied,
    /// discards the responses and repeats the pass, unless the pass executed a Reload or a Rollback. If the blocks of a
    /// request take too long to verify, the request stays in the input, and the next pass repeats it.
    pub(super) fn answer(
        &mut self,
        context: &ConnectionContext,
        redis_clients: &std::sync::Arc<redis::Clients>,
        generation: &Generation,
        input: &[u8],
        responses: &mut Responses,
    ) -> Pass {
        let store = &generation.store;
        let mut attempts = 0;
        loop {
            responses.clear();
            if store.may_be_cold() {
                responses.steps().limit_time();
            }
            let mut tally = None;
            // Every second attempt reads the copies that the attempt before it has made, and makes no others.
            let (epoch, fixed) = match attempts % 2 {
                0 => (store.begin_batch(), None),
                _ => store.begin_batch_again(),
            };
            let limit = VerificationLimit::begin(VERIFICATION_WORK_MAX);
            let pass = match self {
                Protocol::Redis(session) => session.answer(generation, input, responses),
                Protocol::Native(session) => {
                    session.answer(context, generation, input, responses, tally.insert(Tally::default()))
                }
                Protocol::Unknown => match input.first() {
                    None => Pass { taken_bytes: 0, then: Then::Read },
                    Some(0) => {
                        *self = Protocol::Native(Box::new(native::Session::new(context)));
                        continue;
                    }
                    Some(&TLS_HANDSHAKE) => {
                        report_tls(context);
                        return Pass { taken_bytes: input.len(), then: Then::Close };
                    }
                    Some(_) => {
                        *self = Protocol::Redis(Box::new(Session::new(context, redis_clients)));
                        continue;
                    }
                },
            };
            drop(limit);
            // A pass that only waits for more input has read nothing from the file.
            let is_nothing = responses.total_len_bytes() == 0 && pass.then == Then::Read;
            let is_unchanged = is_nothing || responses.stage_beginning(store) && store.is_unchanged_since(epoch);
            drop(fixed);
            if !is_unchanged && store.begin_batch().is_distrust() {
                context.worker.server.control.file_has_changed();
            }
            if is_unchanged || tally.as_ref().is_some_and(Tally::has_effects) {
                match (self, tally) {
                    (Protocol::Redis(session), _) => session.commit(),
                    (Protocol::Native(session), Some(tally)) => {
                        session.commit();
                        context.worker.counters().count_native(&tally);
                    }
                    _ => {}
                }
                return pass;
            }
            if let Protocol::Redis(session) = self {
                session.undo();
            }
            attempts += 1;
            if attempts == ATTEMPTS_MAX {
                responses.clear();
                return Pass { taken_bytes: 0, then: Then::Yield };
            }
        }
    }
}
