//! The native protocol.
//!
//! In: bytes that a client sent. Out: responses, and a tally of them. Consecutive 16-byte Get and Exists requests are
//! looked up together, and so are consecutive Floor, Ceiling, and Cover requests, consecutive GetColumns requests, consecutive
//! Range and Count requests, and other consecutive long requests.

mod about;
mod columns;
mod long;
mod ordered;
mod points;
mod session;
mod tracking;

use std::sync::Arc;

use zerocopy::FromBytes;

use super::cluster::{ClusterNode, View};
use super::responses::Responses;
use super::state::ConnectionContext;
use super::stats::Tally;
use super::table::Generation;
use super::turns::{Pass, RUN_REQUESTS_MAX, Then};
use crate::cluster::SlotSet;
use crate::format::key::Key;
use crate::format::key_type::KeyType;
use crate::protocol::native::{Op, OpKind, REQUEST_LEN_BYTES, Request, Status};
use crate::slots::slot_of_typed;
use crate::store::{Lookup, Store};
use columns::Selection;
use ordered::push_bare;
pub use points::answer_requests;
pub(super) use session::Session;
use tracking::Tracking;

/// The cost, in steps, of a Floor, a Ceiling, a Cover, or any long request. For a long request, the steps of reading its bytes
/// are added.
const ORDERED_STEPS: usize = 8;

/// The table that answers the requests of a pass, and where the responses go. Each method answers the requests at the
/// start of its input that are looked up in the same way.
struct Batch<'b, M> {
    store: &'b Store,
    /// Determines the responses for keys that the table does not have.
    missing: M,
    selection: &'b mut Selection,
    responses: &'b mut Responses,
    tally: &'b mut Tally,
}

/// What earlier requests of a connection determine for its later requests.
#[derive(Default)]
struct Setup {
    selection: Selection,
    /// The type in the last response to KeyType. `None` if the client has not requested it.
    key_type: Option<KeyType>,
    tracking: Tracking,
}

impl Setup {
    /// Returns whether the client knows a key type, and the table now has another one. Keys in its requests may then be
    /// encoded wrongly.
    #[inline]
    fn is_of_other_type(&self, generation: &Generation) -> bool {
        self.key_type.is_some_and(|known| known != generation.store.key_type())
    }
}

/// Returns the status that a response is counted as: a redirection counts as an error, as in Redis.
#[inline(always)]
fn counted(status: Status) -> Status {
    if status == Status::Moved { Status::Error } else { status }
}

/// Answers the complete requests at the start of `input` as long as there is room for responses, and counts the
/// responses in `tally`. The caller has checked that the requests are permitted, and that their keys are of the table's
/// type. Auth requests are not answered.
fn answer(
    context: &ConnectionContext,
    generation: &Generation,
    setup: &mut Setup,
    input: &[u8],
    responses: &mut Responses,
    tally: &mut Tally,
) -> Pass {
    match &context.worker.server.settings.source.cluster {
        None => answer_with(context, generation, Nowhere, setup, input, responses, tally),
        Some(node) => {
            let view = PassView::new(node);
            let slots = view.slots(generation.store.key_type(), &generation.slots);
            answer_with(context, generation, slots, setup, input, responses, tally)
        }
    }
}

/// Does what [`answer`] does. `missing` determines the responses for keys that the table does not have.
fn answer_with(
    context: &ConnectionContext,
    generation: &Generation,
    missing: impl Missing,
    setup: &mut Setup,
    input: &[u8],
    responses: &mut Responses,
    tally: &mut Tally,
) -> Pass {
    let Setup { selection, key_type, tracking } = setup;
    let mut batch = Batch { store: &generation.store, missing, selection, responses, tally };
    let mut taken_bytes = 0;
    loop {
        let rest = &input[taken_bytes..];
        let requests = whole_requests(rest);
        let Some(first) = requests.first() else { return Pass { taken_bytes, then: Then::Read } };
        let (run_bytes, end) = match RunKind::from_code(first.op_code()) {
            RunKind::Points => run_of(requests, RunKind::Points, batch.answer_points(requests)),
            RunKind::Neighbors => run_of(requests, RunKind::Neighbors, batch.answer_neighbors(requests)),
            RunKind::Columns => run_of(requests, RunKind::Columns, batch.answer_columns(requests)),
            RunKind::Long => batch.answer_long(rest),
            RunKind::Server => about::answer(
                context,
                generation,
                (&mut *key_type, &mut *tracking),
                requests,
                batch.responses,
                batch.tally,
            ),
        };
        let Batch { responses, tally, .. } = &mut batch;
        taken_bytes += run_bytes;
        match end {
            RunEnd::Full if responses.cold().must_wait() => return Pass { taken_bytes, then: Then::Load },
            RunEnd::NextRun if responses.steps().is_pass_over() => return Pass { taken_bytes, then: Then::Yield },
            RunEnd::NextRun if run_bytes == 0 => return Pass { taken_bytes, then: Then::Read },
            RunEnd::NextRun => {}
            RunEnd::Full => return Pass { taken_bytes, then: Then::Answer },
            RunEnd::Yield => return Pass { taken_bytes, then: Then::Yield },
            RunEnd::Wait(known) => return Pass { taken_bytes, then: Then::Wait(known) },
            RunEnd::TooLong => {
                tally.count(None, push_bare(Status::Error, responses));
                return Pass { taken_bytes: input.len(), then: Then::Refuse };
            }
        }
    }
}

/// The kind of a run. A run is a sequence of consecutive requests that are answered together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RunKind {
    /// Requests that look up one key in the hash index, and requests with an unknown op.
    Points,
    /// 16-byte Floor, Ceiling, and Cover requests.
    Neighbors,
    /// 16-byte GetColumns requests.
    Columns,
    /// Long requests, which have a byte key, a range, or a selection of columns.
    Long,
    /// Requests about the server.
    Server,
}

impl RunKind {
    #[inline(always)]
    fn from_code(op_code: u32) -> RunKind {
        match Op::from_code(op_code).map(Op::kind) {
            _ if op_code == Op::GetColumns as u32 => RunKind::Columns,
            Some(OpKind::Neighbor) => RunKind::Neighbors,
            Some(OpKind::Server) => RunKind::Server,
            _ if Op::is_long(op_code) => RunKind::Long,
            _ => RunKind::Points,
        }
    }
}

/// Why a run of requests ended.
enum RunEnd {
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
fn run_of(requests: &[Request], run: RunKind, count: usize) -> (usize, RunEnd) {
    let next = requests.get(count).filter(|_| count < RUN_REQUESTS_MAX);
    let is_full = next.is_some_and(|next| RunKind::from_code(next.op_code()) == run);
    (count * REQUEST_LEN_BYTES, if is_full { RunEnd::Full } else { RunEnd::NextRun })
}

/// Returns the complete 16-byte requests at the start of `input`.
fn whole_requests(input: &[u8]) -> &[Request] {
    let len_bytes = input.len() - input.len() % REQUEST_LEN_BYTES;
    <[Request]>::ref_from_bytes(&input[..len_bytes]).expect("whole requests")
}

/// Determines the status of the response for a missing key.
trait Missing: Copy {
    fn status(self, key: Key<'_>) -> Status;
}

/// The keys of a server that is not part of a cluster.
#[derive(Clone, Copy)]
struct Nowhere;

impl Missing for Nowhere {
    #[inline(always)]
    fn status(self, _: Key<'_>) -> Status {
        Status::NotFound
    }
}

struct PassView(Arc<View>);

impl PassView {
    fn new(node: &ClusterNode) -> PassView {
        PassView(node.view())
    }

    /// Returns the slots whose missing keys no node has. `of_file` has the slots whose rows the file has.
    fn slots<'v>(&'v self, key_type: KeyType, of_file: &'v SlotSet) -> NodeSlots<'v> {
        // The rows of a replica are those of its primary, and no client of this protocol needs a primary.
        NodeSlots { key_type, assigned: self.0.served_slots(true), of_file }
    }
}

#[derive(Clone, Copy)]
struct NodeSlots<'v> {
    key_type: KeyType,
    assigned: &'v SlotSet,
    of_file: &'v SlotSet,
}

impl Missing for NodeSlots<'_> {
    fn status(self, key: Key<'_>) -> Status {
        // Only missing keys are hashed: a row is the same on every node that has it.
        let slot = slot_of_typed(self.key_type, key);
        if self.assigned.has(slot) && self.of_file.has(slot) { Status::NotFound } else { Status::Moved }
    }
}
