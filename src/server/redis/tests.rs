//! Tests of sessions: passes, turns, and the list of clients.

use super::*;
use crate::bake::{Options, bake_csv};
use crate::server::Config;
use crate::server::state::worker::tests::worker_over;

/// Returns a session on a table with this many rows, its worker, and the folder of the file.
pub(super) fn session(rows: usize) -> (tempfile::TempDir, Arc<WorkerState>, Session) {
    let folder = tempfile::tempdir().unwrap();
    let csv: String = (0..rows).map(|key| format!("{key},{key}\n")).collect();
    let db = folder.path().join("storage.db");
    bake_csv(csv.as_bytes(), &db, &Options::default()).unwrap();
    let worker = worker_over(&db, &Config::default());
    let context = ConnectionContext::new(Peer::default(), Arc::clone(&worker));
    let session = Session::new(&context, &Arc::default());
    (folder, worker, session)
}

/// Returns all replies to `input`, and the result of each pass.
fn answer_all(session: &mut Session, worker: &WorkerState, mut input: &[u8]) -> (Vec<u8>, Vec<(usize, Pass)>) {
    let (mut replies, mut passes, mut responses) = (Vec::new(), Vec::new(), Responses::new());
    loop {
        responses.clear();
        let generation = worker.pin();
        let pass = session.answer(&generation, input, &mut responses);
        let mut keep = |pieces: &[std::io::IoSlice]| pieces.iter().for_each(|piece| replies.extend(&**piece));
        responses.with_unsent(&generation.store, 0, &mut keep).unwrap();
        passes.push((responses.total_len_bytes(), pass));
        input = &input[pass.taken_bytes..];
        if matches!(pass.then, Then::Read | Then::Close) {
            return (replies, passes);
        }
    }
}

#[test]
fn a_pass_is_bounded_for_replies_of_any_length() {
    let (_folder, worker, mut session) = session(50_000);
    let mget = format!("MGET{}\r\n", " 7".repeat(20_000));
    let info = format!("COMMAND INFO{}\r\n", " get".repeat(5000));
    for (input, len_min_bytes) in
        [("KEYS *\r\n", 400_000), ("KEYS *1*\r\n", 100_000), (&mget, 140_000), (&info, 900_000)]
    {
        let (replies, passes) = answer_all(&mut session, &worker, input.as_bytes());
        assert!(replies.len() > len_min_bytes, "{}", replies.len());
        assert!(passes.iter().all(|(len_bytes, _)| *len_bytes <= 64 << 10), "{passes:?}");
        // The command stays at the beginning of the input until it is answered.
        assert!(passes.split_last().unwrap().1.iter().all(|(_, pass)| pass.taken_bytes == 0));
        assert!(passes.last().unwrap().1 == Pass { taken_bytes: input.len(), then: Then::Read });
    }
}

#[test]
fn other_connections_get_their_turn_while_a_command_visits_many_rows() {
    let (_folder, worker, mut session) = session(50_000);
    for input in ["KEYS *x*\r\n".to_owned(), "SCAN 0 COUNT 10000 MATCH x\r\n".repeat(6), "INFO memory\r\n".repeat(40)] {
        let (_, passes) = answer_all(&mut session, &worker, input.as_bytes());
        assert!(passes.iter().filter(|(_, pass)| pass.then == Then::Yield).count() >= 2, "{passes:?}");
    }
}

#[test]
fn a_get_that_arrives_in_parts_does_not_affect_the_next_command() {
    let (_folder, worker, mut session) = session(10);
    let input = b"*2\r\n$3\r\nGET\r\n$1\r\n7\r\n*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n";
    for first in 0..input.len() {
        let mut responses = Responses::new();
        let taken_bytes = session.answer(&worker.pin(), &input[..first], &mut responses).taken_bytes;
        let mut replies = responses.copied().to_vec();
        replies.extend(answer_all(&mut session, &worker, &input[taken_bytes..]).0);
        assert_eq!(replies, b"$1\r\n7\r\n$2\r\nhi\r\n", "{first}");
    }
}

#[test]
fn command_getkeys_finds_the_keys_among_the_arguments() {
    let (_folder, worker, mut session) = session(1);
    for (words, expected) in [
        ("GET a", "*1|$1|a|"),
        ("MGET a b c", "*3|$1|a|$1|b|$1|c|"),
        ("GETRANGE a 0 1", "*1|$1|a|"),
        ("MEMORY USAGE a SAMPLES 5", "*1|$1|a|"),
        ("PING a", "-ERR The command has no key arguments|"),
        ("SCAN 0", "-ERR The command has no key arguments|"),
    ] {
        let input = format!("COMMAND GETKEYS {words}\r\n");
        let (replies, _) = answer_all(&mut session, &worker, input.as_bytes());
        assert_eq!(String::from_utf8(replies).unwrap().replace("\r\n", "|"), expected, "{words}");
    }
}

#[test]
fn a_session_is_in_the_list_of_clients_until_it_ends() {
    let (_folder, _worker, session) = session(1);
    let clients = Arc::clone(&session.clients);
    assert_eq!(clients.count(), 1);
    drop(session);
    assert_eq!(clients.count(), 0);
}
