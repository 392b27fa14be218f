//! Requests about the server and its table: Info, Reload, Rollback, Open, Ping, Schema, Topology, Generation, KeyType, and
//! Track.
//!
//! An Info request takes as long as hundreds of lookups, so a pass answers only a few requests about the server before
//! other connections get their turn.

use std::sync::Arc;

use zerocopy::IntoBytes;

use super::RunEnd;
use super::ordered::push_bare;
use super::tracking::Tracking;
use crate::format::key_type::KeyType;
use crate::protocol::native::{
    OPEN_LEN_BYTES, Op, OpKind, OpenHeader, REQUEST_LEN_BYTES, Request, ResponseHeader, Status,
};
use crate::server::facts::{self, Snapshot};
use crate::server::responses::Responses;
use crate::server::state::ConnectionContext;
use crate::server::stats::Tally;
use crate::server::table::Generation;
use crate::store::Lookup;

/// The maximum number of requests about the server in a pass.
const PASS_MAX: usize = 10;

/// The cost, in steps, of each request about the server except Info, which costs more.
const OTHER_STEPS: usize = 10;

/// Answers the requests about the server at the start of `requests`, as long as there is room for responses. Stores the
/// type in a response to KeyType in `key_type`, and begins to track the state after a Track. Returns the length of the
/// answered requests in bytes, and why the function stopped.
pub(super) fn answer(
    context: &ConnectionContext,
    generation: &Generation,
    (key_type, tracking): (&mut Option<KeyType>, &mut Tracking),
    requests: &[Request],
    responses: &mut Responses,
    tally: &mut Tally,
) -> (usize, RunEnd) {
    let mut len_bytes = 0;
    for (at, request) in requests.iter().enumerate() {
        let Some(op) = Op::from_code(request.op_code()).filter(|op| op.kind() == OpKind::Server) else { break };
        // An Open is alone in its pass, because descriptors are passed with the first byte of the responses. A Reload
        // or a Rollback is alone in its pass, because a pass that reads the file may be repeated, and a Reload or a
        // Rollback must not be repeated. A KeyType or a Track is the first request of its pass: if the pass is
        // repeated, it affects only later requests, as if the pass had not been tried before.
        let is_alone = op == Op::Open || op.has_effects();
        let is_first = is_alone || matches!(op, Op::KeyType | Op::Track);
        if responses.is_full() || is_first && responses.total_len_bytes() > 0 {
            return (len_bytes, RunEnd::Full);
        }
        if op == Op::Open && at + 1 == requests.len() && waits(context, generation, request.key()) {
            return (len_bytes, RunEnd::Wait(request.key()));
        }
        if tally.about_server() == PASS_MAX || responses.steps().is_pass_over() {
            return (len_bytes, RunEnd::Yield);
        }
        let status = match op {
            Op::Track => tracking.begin(context, generation, responses),
            _ => answer_one(context, generation, op, responses),
        };
        if op == Op::KeyType {
            *key_type = Some(generation.store.key_type());
        }
        tally.count(Some(op), status);
        len_bytes += REQUEST_LEN_BYTES;
        if is_alone && status == Status::Ok {
            return (len_bytes, RunEnd::Full);
        }
    }
    (len_bytes, RunEnd::NextRun)
}

fn answer_one(context: &ConnectionContext, generation: &Generation, op: Op, responses: &mut Responses) -> Status {
    let ConnectionContext { peer, worker, .. } = context;
    let server = &worker.server;
    responses.steps().add(if op == Op::Info { Snapshot::steps(server) } else { OTHER_STEPS });
    let mut push = |value: &[u8]| {
        responses.push(ResponseHeader::of_page(value.len()).as_bytes());
        responses.push(value);
        Status::Ok
    };
    match op {
        Op::Info => push(facts::info(&Snapshot::take(server), peer.is_admin()).as_bytes()),
        Op::Reload if peer.is_admin() => push(&server.control.reload().to_be_bytes()),
        Op::Rollback if peer.is_admin() => push(&server.control.rollback().to_be_bytes()),
        Op::Open if may_map(context, generation) => {
            let status = push(open_header(generation).as_bytes());
            responses.pass_descriptors();
            status
        }
        Op::Topology => match server.settings.source.cluster.as_ref().map(|node| node.view()) {
            Some(view) if view.topology().is_some() => push_shared(view.topology_json(), responses),
            _ => push_bare(Status::NotFound, responses),
        },
        Op::Ping => push_bare(Status::Ok, responses),
        Op::Generation => push(&generation.number.to_be_bytes()),
        Op::KeyType => push(generation.store.key_type().to_string().as_bytes()),
        Op::Schema => match &generation.encoded_schema {
            Some(schema) => push_shared(schema, responses),
            None => push_bare(Status::NotFound, responses),
        },
        _ => push_bare(Status::Error, responses),
    }
}

/// Appends a response whose value many connections share.
fn push_shared(value: &Arc<[u8]>, responses: &mut Responses) -> Status {
    responses.push(ResponseHeader::of_page(value.len()).as_bytes());
    responses.push_shared(value);
    Status::Ok
}

/// Returns whether the client may map the generation.
fn may_map(context: &ConnectionContext, generation: &Generation) -> bool {
    context.peer.is_unix() && context.worker.server.table.is_direct(generation) && generation.store.is_trusted()
}

/// Returns whether an Open request must wait for the next change of the table's state, because the client already has
/// the current state, `known`.
fn waits(context: &ConnectionContext, generation: &Generation, known: u64) -> bool {
    let board = context.worker.server.table.board();
    board.is_some_and(|board| board.is_known(known)) && may_map(context, generation)
}

fn open_header(generation: &Generation) -> OpenHeader {
    const { assert!(size_of::<OpenHeader>() == OPEN_LEN_BYTES) };
    OpenHeader {
        generation: generation.number.into(),
        digest: generation.store.digest().to_be_bytes(),
        memory: u32::from(generation.store.is_private()).into(),
        reserved: [0; 4],
    }
}

#[cfg(all(test, feature = "bake"))]
mod tests {
    use super::super::{Session, Setup};
    use super::*;
    use crate::bake::{Keys, Options, bake_csv};
    use crate::format::key::Key;
    use crate::protocol::native::NOTICE_LEN_BYTES;
    use crate::server::sockets::Peer;
    use crate::server::state::tests::worker_over;
    use crate::server::turns::{Pass, Then};
    use crate::server::{Config, native};

    #[test]
    fn other_connections_get_their_turn_between_requests_about_the_server() {
        let folder = tempfile::tempdir().unwrap();
        let db = folder.path().join("storage.db");
        bake_csv(&b"7,seven\n"[..], &db, &Options::default()).unwrap();
        let context = ConnectionContext::new(Peer::Unix(None), worker_over(&db, &Config::default()));
        let generation = context.worker.pin();
        for between in [Op::Info, Op::Get] {
            let requests: Vec<u8> = (0..100)
                .flat_map(|i| Request::new(if i % 2 == 0 { Op::Info } else { between }, 7).as_bytes().to_vec())
                .collect();
            let (mut responses, mut taken_bytes, mut yields) = (Responses::new(), 0, 0);
            while taken_bytes < requests.len() {
                responses.clear();
                let pass: Pass = native::answer(
                    &context,
                    &generation,
                    &mut Setup::default(),
                    &requests[taken_bytes..],
                    &mut responses,
                    &mut Tally::default(),
                );
                assert!(pass.taken_bytes > 0 && pass.taken_bytes <= 2 * PASS_MAX * REQUEST_LEN_BYTES);
                yields += usize::from(pass.then == Then::Yield);
                taken_bytes += pass.taken_bytes;
            }
            assert!(yields >= 50 / PASS_MAX - 1, "{yields}");
        }
    }

    #[test]
    fn a_reload_or_rollback_by_an_unprivileged_client_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let db = folder.path().join("storage.db");
        bake_csv(&b"7,seven\n"[..], &db, &Options::default()).unwrap();
        let context = ConnectionContext::new(Peer::Unix(None), worker_over(&db, &Config::default()));
        let mut responses = Responses::new();
        for op in [Op::Reload, Op::Rollback] {
            assert_eq!(answer_one(&context, &context.worker.pin(), op, &mut responses), Status::Error);
        }
        assert_eq!(responses.copied(), [0, 0, 0, 2, 0, 0, 0, 0].repeat(2));
        assert!(facts::info(&Snapshot::take(&context.worker.server), true).contains("\nreload_requested 0\n"));
    }
    /// A pass is repeated if the file has changed meanwhile.
    #[test]
    fn a_pass_that_is_repeated_has_the_same_responses() {
        let folder = tempfile::tempdir().unwrap();
        let [numbers, dates] = ["numbers", "dates"].map(|name| folder.path().join(name));
        bake_csv(&b"7,seven\n"[..], &numbers, &Options::default()).unwrap();
        let keys = Keys::Type("date".parse().unwrap());
        bake_csv(&b"1970-01-08,a date\n"[..], &dates, &Options { keys, ..Options::default() }).unwrap();
        let config = Config::default();
        let context = ConnectionContext::new(Peer::Unix(None), worker_over(&numbers, &config));
        let first = config.source(&numbers).open().unwrap();
        let mut second = config.source(&dates).open().unwrap();
        second.number = first.number + 1;
        let Ok(Some((Key::U64(date), _))) = second.store.first() else { panic!("no row") };
        let [get, key_type, track] = [Op::Get, Op::KeyType, Op::Track].map(|op| Request::new(op, date));
        let mut session = Session::new(&context);
        let mut pass = |generation: &Generation, requests: &[Request], is_committed: bool| {
            let (mut responses, mut tally) = (Responses::new(), Tally::default());
            let pass = session.answer(&context, generation, requests.as_bytes(), &mut responses, &mut tally);
            if is_committed {
                session.commit();
            }
            (pass.taken_bytes / REQUEST_LEN_BYTES, responses.copied().to_vec())
        };
        assert_eq!(pass(&first, &[key_type], true).0, 1);
        assert_eq!(pass(&first, &[track], true).0, 1);
        // The key of the first Get is encoded for the type of the first table. The notice precedes the first response
        // from the second table.
        let (mut requests, mut all) = (&[get, key_type, get, track, get][..], Vec::new());
        while !requests.is_empty() {
            let tried = pass(&second, requests, false);
            let (taken, responses) = pass(&second, requests, true);
            assert_eq!(tried, (taken, responses.clone()));
            requests = &requests[taken..];
            all.extend(responses);
        }
        let status = |status: Status| [0, 0, 0, status as u8];
        let is_notice = all.starts_with(&status(Status::Notice));
        let after_notice = &all[NOTICE_LEN_BYTES..];
        let wrong_type = [status(Status::KeyTypeChanged), [0; 4]].concat();
        let value = [&status(Status::Ok)[..], &[0, 0, 0, 6], b"a date"].concat();
        assert!(is_notice && after_notice.starts_with(&wrong_type) && all.ends_with(&value), "{all:?}");
    }
}
