//! Answering native requests about the server itself.
//!
//! In: Info, Reload, Rollback, Open and Ping. Out: their answers. An Info takes as long as
//! hundreds of lookups, so only some are answered before other connections get
//! their turn.

use zerocopy::IntoBytes;

use super::answers::Answers;
use super::counters::Tally;
use super::generations::Generation;
use super::native::RunEnd;
use super::shared::Client;
use super::snapshot::Snapshot;
use crate::protocol::native::{OPEN_LEN_BYTES, Op, OpenHeader, REQUEST_LEN_BYTES, Request, ResponseHeader, Status};

/// So many are answered in a pass.
const PASS_MAX: usize = 10;

/// Steps of a request other than Info.
const OTHER_STEPS: usize = 10;

/// Answers the requests about the server at the start of `requests`, as far as
/// there is room. Tells how many bytes they take up.
pub(super) fn answer(
    client: &Client,
    generation: &Generation,
    requests: &[Request],
    answers: &mut Answers,
    tally: &mut Tally,
) -> (usize, RunEnd) {
    let mut len_bytes = 0;
    for (at, request) in requests.iter().enumerate() {
        let Some(op @ (Op::Info | Op::Reload | Op::Rollback | Op::Open | Op::Ping)) = Op::from_code(request.op_code())
        else {
            break;
        };
        // Descriptors go out with the first byte of an answer: it has a pass for itself.
        if answers.is_full() || op == Op::Open && answers.total_len_bytes() > 0 {
            return (len_bytes, RunEnd::Full);
        }
        if op == Op::Open && at + 1 == requests.len() && waits(client, generation, request.key()) {
            return (len_bytes, RunEnd::Wait(request.key()));
        }
        if tally.about_server() == PASS_MAX || answers.steps.are_enough() {
            return (len_bytes, RunEnd::Much);
        }
        tally.count(Some(op), answer_one(client, generation, op, answers));
        len_bytes += REQUEST_LEN_BYTES;
        if answers.hands_over {
            return (len_bytes, RunEnd::Full);
        }
    }
    (len_bytes, RunEnd::Here)
}

fn answer_one(client: &Client, generation: &Generation, op: Op, answers: &mut Answers) -> Status {
    let Client { peer, shared } = client;
    let serving = &shared.serving;
    answers.steps.add(if op == Op::Info { Snapshot::steps(serving) } else { OTHER_STEPS });
    let mut push = |value: &[u8]| {
        answers.push(ResponseHeader::of_page(value.len()).as_bytes());
        answers.push(value);
        Status::Ok
    };
    match op {
        Op::Info => push(Snapshot::of(serving).info().as_bytes()),
        Op::Reload if peer.is_admin() => push(&serving.control.reload().to_be_bytes()),
        Op::Rollback if peer.is_admin() => push(&serving.control.rollback().to_be_bytes()),
        Op::Open if is_open(client, generation) => {
            answers.hands_over = true;
            answers.push(ResponseHeader::of_page(OPEN_LEN_BYTES).as_bytes());
            answers.push(open_header(generation).as_bytes());
            Status::Ok
        }
        Op::Ping => bare(Status::Ok, answers),
        _ => bare(Status::Error, answers),
    }
}

fn is_open(client: &Client, generation: &Generation) -> bool {
    client.peer.is_unix() && client.shared.serving.hands_over(generation) && generation.store.is_trusted()
}

/// Whether an Open is only to be answered when something has become of what the client
/// knows.
fn waits(client: &Client, generation: &Generation, known: u64) -> bool {
    let board = &client.shared.serving.board;
    board.as_ref().is_some_and(|board| board.is_known(known)) && is_open(client, generation)
}

fn bare(status: Status, answers: &mut Answers) -> Status {
    answers.push(ResponseHeader::bare(status).as_bytes());
    status
}

fn open_header(generation: &Generation) -> OpenHeader {
    OpenHeader {
        generation: generation.number.into(),
        digest: generation.store.digest().to_be_bytes(),
        memory: u32::from(generation.store.is_private()).into(),
        reserved: [0; 4],
    }
}

#[cfg(all(test, feature = "bake"))]
mod tests {
    use super::*;
    use crate::bake::{Options, bake_csv};
    use crate::server::pass::{Pass, Then};
    use crate::server::peer::Peer;
    use crate::server::shared::tests::shared_over;
    use crate::server::{Config, native};

    #[test]
    fn others_get_their_turn_while_one_asks_about_the_server() {
        let folder = tempfile::tempdir().unwrap();
        let db = folder.path().join("storage.db");
        bake_csv(&b"7,seven\n"[..], &db, &Options::default(), &mut |_| ()).unwrap();
        let client = Client { peer: Peer::Unix(None), shared: shared_over(&db, &Config::default()) };
        let generation = client.shared.pin();
        for between in [Op::Info, Op::Get] {
            let requests: Vec<u8> = (0..100)
                .flat_map(|i| Request::new(if i % 2 == 0 { Op::Info } else { between }, 7).as_bytes().to_vec())
                .collect();
            let (mut answers, mut taken_bytes, mut yields) = (Answers::new(), 0, 0);
            while taken_bytes < requests.len() {
                answers.clear();
                let pass: Pass = native::answer(&client, &generation, &requests[taken_bytes..], &mut answers);
                assert!(pass.taken_bytes > 0 && pass.taken_bytes <= 2 * PASS_MAX * REQUEST_LEN_BYTES);
                yields += usize::from(pass.then == Then::Yield);
                taken_bytes += pass.taken_bytes;
            }
            assert!(yields >= 50 / PASS_MAX - 1, "{yields}");
        }
    }

    #[test]
    fn who_may_not_gets_an_error_and_nothing_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let db = folder.path().join("storage.db");
        bake_csv(&b"7,seven\n"[..], &db, &Options::default(), &mut |_| ()).unwrap();
        let client = Client { peer: Peer::Unix(None), shared: shared_over(&db, &Config::default()) };
        let mut answers = Answers::new();
        for op in [Op::Reload, Op::Rollback] {
            assert_eq!(answer_one(&client, &client.shared.pin(), op, &mut answers), Status::Error);
        }
        assert_eq!(answers.buffer[..answers.copied_len_bytes], [0, 0, 0, 2, 0, 0, 0, 0].repeat(2));
        assert!(Snapshot::of(&client.shared.serving).info().contains("\nreload_requested 0\n"));
    }
}
