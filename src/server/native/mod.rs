//! The native protocol.
//!
//! In: bytes that a client sent. Out: responses, and a tally of them. Consecutive 16-byte Get and Exists requests are
//! looked up together, and so are consecutive Floor and Ceiling requests, consecutive GetColumns requests, consecutive
//! Range and Count requests, and other consecutive long requests.

mod about;
mod columns;
mod long;
mod missing;
mod ordered;
mod points;
mod run;
mod session;

use crate::protocol::native::Status;
use crate::server::counters::Tally;
use crate::server::generations::Generation;
use crate::server::pass::{Pass, Then};
use crate::server::responses::Responses;
use crate::server::worker_state::ConnectionContext;
use columns::{Selection, answer_columns};
use long::answer_long;
use missing::{Missing, Nowhere, PassView};
use ordered::push_bare;
pub use points::answer_requests;
use points::{answer_neighbors, answer_points};
use run::{Run, RunEnd, run_of, whole_requests};
pub(super) use session::Session;

/// The cost, in steps, of a Floor, a Ceiling, or any long request. For a long request, the steps of reading its bytes
/// are added.
const ORDERED_STEPS: usize = 8;

/// Answers the complete requests at the start of `input` as long as there is room for responses, and counts the
/// responses in `tally`. The caller has checked that the requests are permitted. Auth requests are not answered.
fn answer(
    context: &ConnectionContext,
    generation: &Generation,
    selection: &mut Selection,
    input: &[u8],
    responses: &mut Responses,
    tally: &mut Tally,
) -> Pass {
    match &context.worker.server.settings.source.cluster {
        None => answer_with(context, generation, Nowhere, selection, input, responses, tally),
        Some(node) => {
            let view = PassView::new(node);
            let slots = view.slots(&generation.slots);
            answer_with(context, generation, slots, selection, input, responses, tally)
        }
    }
}

/// Does what [`answer`] does. `missing` determines the responses for keys that the table does not have.
fn answer_with(
    context: &ConnectionContext,
    generation: &Generation,
    missing: impl Missing,
    selection: &mut Selection,
    input: &[u8],
    responses: &mut Responses,
    tally: &mut Tally,
) -> Pass {
    let store = &generation.store;
    let mut taken_bytes = 0;
    loop {
        let rest = &input[taken_bytes..];
        let requests = whole_requests(rest);
        let Some(first) = requests.first() else { return Pass { taken_bytes, then: Then::Read } };
        let (run_bytes, end) = match Run::from_code(first.op_code()) {
            Run::Points => run_of(requests, Run::Points, answer_points(store, missing, requests, responses, tally)),
            Run::Neighbors => run_of(requests, Run::Neighbors, answer_neighbors(store, requests, responses, tally)),
            Run::Columns => {
                run_of(requests, Run::Columns, answer_columns(store, missing, selection, requests, responses, tally))
            }
            Run::Long => answer_long(store, missing, selection, rest, responses, tally),
            Run::Server => about::answer(context, generation, requests, responses, tally),
        };
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
                return Pass { taken_bytes: input.len(), then: Then::Close };
            }
        }
    }
}
