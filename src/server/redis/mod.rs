//! Answering the Redis protocol.
//!
//! In: bytes that a client sent. Out: answers. Runs of GETs are looked up
//! together (`gets`); everything else is told apart by [`crate::protocol::resp`]
//! and carried out here: one command at a time, and in several passes if its
//! reply is long. The reply is never held as a whole, and nothing else is done
//! for the connection meanwhile.

mod clients;
mod commands;
mod execute;
mod gets;
mod handshake;
mod info;
mod keyspace;
mod order;
mod stored;
mod strings;
mod text;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tracing::warn;

use super::answers::Answers;
use super::generations::Generation;
use super::pass::{Pass, Then};
use super::peer::Peer;
use super::shared::Shared;
use crate::protocol::resp::commands::Id;
use crate::protocol::resp::{Command, Parsed, Progress, Reply, Version, parse};
use crate::store::is_verification_interrupted;
use clients::Client;
pub(super) use clients::Clients;
use execute::{Outcome, Step, Work};

/// Where replies go.
type Out<'a> = Reply<'a, Answers>;

/// Steps of a command, beside those of its bytes and its reply's, and what it counts itself.
const COMMAND_STEPS: usize = 2;
/// Steps of a key of a pipeline or an MGET that is looked up.
const LOOKUP_STEPS: usize = 2;
/// Bytes of an inline command that are one step to cut into words.
const INLINE_STEP_LEN_BYTES: usize = 4;

/// What a connection that speaks the Redis protocol remembers.
pub(super) struct Session {
    shared: Arc<Shared>,
    peer: Peer,
    client: Arc<Client>,
    state: State,
    /// The state when the last pass began.
    kept: State,
    random: u64,
    counted: Counted,
}

/// What changes from one pass to the next.
#[derive(Clone, Default)]
struct State {
    version: Version,
    /// How far a command was read that has not come whole.
    progress: Progress,
    running: Option<Running>,
}

/// A command whose reply takes more than one pass. It stays at the head of the
/// input until it is answered.
#[derive(Clone)]
struct Running {
    /// The command, if it came as a line and is not in the input as it is read.
    line: Option<Arc<[u8]>>,
    /// What it takes up in the input.
    len_bytes: usize,
    work: Work,
}

impl Running {
    /// Returns the memory that the command holds beside the input.
    fn held_bytes(&self) -> usize {
        self.line.as_ref().map_or(0, |line| line.len()) + self.work.held_bytes()
    }
}

/// What one pass counts.
#[derive(Clone, Copy, Default)]
struct Counted {
    commands: u64,
    /// Those of them that were answered with an error.
    errors: u64,
    hits: u64,
    misses: u64,
}

impl Counted {
    fn lookup(&mut self, found: bool) {
        match found {
            true => self.hits += 1,
            false => self.misses += 1,
        }
    }
}

impl Session {
    pub(super) fn new(peer: Peer, shared: &Arc<Shared>) -> Self {
        Session {
            shared: Arc::clone(shared),
            peer,
            client: shared.serving.clients.enter(peer.address()),
            state: State::default(),
            kept: State::default(),
            random: RandomState::new().build_hasher().finish(),
            counted: Counted::default(),
        }
    }

    /// Answers the commands at the start of `input`, as far as they are whole and
    /// there is room. What is not taken must be handed in again, with or without
    /// more behind it.
    pub(super) fn answer(&mut self, generation: &Generation, input: &[u8], answers: &mut Answers) -> Pass {
        let pass = self.pass(generation, input, answers);
        let (counted, counters) = (std::mem::take(&mut self.counted), self.shared.counters());
        counters.count_redis(counted.commands, counted.errors, counted.hits, counted.misses);
        self.client.was_active();
        pass
    }

    /// Returns the memory that the session has allocated, with names of the client as long as they may be.
    #[inline]
    pub(super) fn held_bytes(&self) -> usize {
        let fixed_bytes = size_of::<Session>() + size_of::<Client>() + 3 * clients::NAME_LEN_MAX_BYTES;
        fixed_bytes + self.state.running.as_ref().map_or(0, Running::held_bytes)
    }

    /// The answers of the last pass are sent, and will not be asked for again.
    pub(super) fn keep(&mut self) {
        self.kept = self.state.clone();
    }

    /// The last pass is to be made again.
    pub(super) fn return_to_kept(&mut self) {
        self.state = self.kept.clone();
    }

    fn pass(&mut self, generation: &Generation, input: &[u8], answers: &mut Answers) -> Pass {
        let mut taken_bytes = 0;
        loop {
            let rest = &input[taken_bytes..];
            if let Some(mut running) = self.state.running.take() {
                let Running { line, len_bytes, work } = &mut running;
                let (command, work_before) =
                    (Command::new(line.as_deref().unwrap_or(&rest[..*len_bytes])), work.clone());
                let step = self.unless_interrupted(answers, |session, answers| {
                    session.step(&generation.store, &command, work, answers)
                });
                let then = match step {
                    Some(Step::Done) => {
                        taken_bytes += *len_bytes;
                        continue;
                    }
                    Some(Step::Next) => {
                        self.state.running = Some(running);
                        continue;
                    }
                    Some(Step::Full) => Then::Answer,
                    Some(Step::Yield) => Then::Yield,
                    None => {
                        *work = work_before;
                        Then::Yield
                    }
                };
                self.state.running = Some(running);
                return Pass { taken_bytes, then };
            }
            if answers.is_full() {
                return Pass { taken_bytes, then: Then::Answer };
            }
            if answers.steps.are_enough() {
                return Pass { taken_bytes, then: Then::Yield };
            }
            if let Some(run) = gets::answer(&generation.store, rest, self.state.version, answers) {
                self.state.progress = Progress::default();
                self.client.asked_for(Id::Get);
                self.counted.commands += run.count as u64;
                self.counted.errors += run.damaged as u64;
                self.counted.hits += run.hits() as u64;
                self.counted.misses += run.misses as u64;
                answers.steps.add(LOOKUP_STEPS * run.count);
                answers.steps.add_bytes(run.end_bytes);
                taken_bytes += run.end_bytes;
                continue;
            }
            let (line, len_bytes) = match parse(rest, &mut self.state.progress) {
                Ok(Parsed::Command { len_bytes, .. }) => (None, len_bytes),
                Ok(Parsed::Inline { command, len_bytes }) => {
                    answers.steps.add(len_bytes / INLINE_STEP_LEN_BYTES);
                    (Some(Arc::from(command)), len_bytes)
                }
                Ok(Parsed::Nothing { len_bytes }) => {
                    answers.steps.add_bytes(len_bytes);
                    taken_bytes += len_bytes;
                    continue;
                }
                Ok(Parsed::Incomplete) if rest.len() > self.shared.serving.limits.buffer_max_bytes => {
                    self.refuse_long(answers);
                    return Pass { taken_bytes: input.len(), then: Then::Close };
                }
                Ok(Parsed::Incomplete) => return Pass { taken_bytes, then: Then::Read },
                Err(error) => {
                    Reply::new(answers, self.state.version).error(format!("ERR {error}"));
                    return Pass { taken_bytes: input.len(), then: Then::Close };
                }
            };
            let command = Command::new(line.as_deref().unwrap_or(&rest[..len_bytes]));
            let execute = |session: &mut Self, answers: &mut Answers| session.execute(generation, &command, answers);
            match self.unless_interrupted(answers, execute) {
                Some(Outcome::Done) => taken_bytes += len_bytes,
                Some(Outcome::Work(work)) => self.state.running = Some(Running { line, len_bytes, work }),
                Some(Outcome::Close) => return Pass { taken_bytes: input.len(), then: Then::Close },
                None => return Pass { taken_bytes, then: Then::Yield },
            }
        }
    }

    /// Executes a command or a part of one, and counts the bytes that it replies. Undoes it and returns `None` if the
    /// verification of what it read was interrupted: then the next pass repeats it. Commands that read records have no
    /// side effects.
    fn unless_interrupted<T>(
        &mut self,
        answers: &mut Answers,
        execute: impl FnOnce(&mut Self, &mut Answers) -> T,
    ) -> Option<T> {
        // RANDOMKEY has to choose the same row again.
        let (end, counted, random) = (answers.end(), self.counted, self.random);
        let copied_before_bytes = answers.copied_len_bytes;
        let executed = execute(self, answers);
        answers.steps.add_bytes(answers.copied_len_bytes - copied_before_bytes);
        if !is_verification_interrupted() {
            return Some(executed);
        }
        answers.truncate(&end);
        (self.counted, self.random) = (counted, random);
        None
    }

    /// Answers a command that is longer than may wait here.
    fn refuse_long(&mut self, answers: &mut Answers) {
        let serving = &self.shared.serving;
        let limit = serving.limits.buffer_max_bytes;
        (self.counted.commands, self.counted.errors) = (self.counted.commands + 1, self.counted.errors + 1);
        let error = format!("ERR Protocol error: too big command, the limit is {limit} bytes");
        Reply::new(answers, self.state.version).error(error);
        if let Some(left_out) = serving.buffers_logged.line() {
            let peer = self.peer;
            warn!(%peer, left_out, "cut off: a command was not whole within the buffer of {limit} bytes (--buffer)");
        }
    }

    /// Counts and logs a connection that is closed because it sent an HTTP request.
    fn report_http(&self) {
        let serving = &self.shared.serving;
        serving.totals.cut_http.fetch_add(1, Ordering::Relaxed);
        if let Some(left_out) = serving.http_logged.line() {
            warn!(
                peer = %self.peer,
                left_out,
                "disconnected: sent POST or Host: where a command was expected, as an HTTP client does; a web page may be \
                 trying to have a browser send commands (cross-protocol scripting)"
            );
        }
    }

    /// The next of a sequence of numbers that look random (SplitMix64).
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.serving.clients.leave(&self.client);
    }
}

#[cfg(all(test, feature = "bake"))]
mod tests {
    use super::*;
    use crate::bake::{Options, bake_csv};
    use crate::server::Config;
    use crate::server::shared::tests::shared_over;

    /// A session over a table of so many rows, and what removes the file.
    fn session(rows: usize) -> (tempfile::TempDir, Arc<Shared>, Session) {
        let folder = tempfile::tempdir().unwrap();
        let csv: String = (0..rows).map(|key| format!("{key},{key}\n")).collect();
        let db = folder.path().join("storage.db");
        bake_csv(csv.as_bytes(), &db, &Options::default(), &mut |_| ()).unwrap();
        let shared = shared_over(&db, &Config::default());
        let session = Session::new(Peer::default(), &shared);
        (folder, shared, session)
    }

    /// All replies to `input`, and how each pass went.
    fn answered(session: &mut Session, shared: &Shared, mut input: &[u8]) -> (Vec<u8>, Vec<(usize, Pass)>) {
        let (mut replies, mut passes, mut answers) = (Vec::new(), Vec::new(), Answers::new());
        loop {
            answers.clear();
            let generation = shared.pin();
            let pass = session.answer(&generation, input, &mut answers);
            let mut keep = |pieces: &[std::io::IoSlice]| pieces.iter().for_each(|piece| replies.extend(&**piece));
            answers.with_unsent(&generation.store, 0, &mut keep).unwrap();
            passes.push((answers.total_len_bytes(), pass));
            input = &input[pass.taken_bytes..];
            if matches!(pass.then, Then::Read | Then::Close) {
                return (replies, passes);
            }
        }
    }

    #[test]
    fn a_pass_is_bounded_however_long_the_reply() {
        let (_folder, shared, mut session) = session(50_000);
        let mget = format!("MGET{}\r\n", " 7".repeat(20_000));
        let info = format!("COMMAND INFO{}\r\n", " get".repeat(5000));
        for (input, len_min_bytes) in
            [("KEYS *\r\n", 400_000), ("KEYS *1*\r\n", 100_000), (&mget, 140_000), (&info, 900_000)]
        {
            let (replies, passes) = answered(&mut session, &shared, input.as_bytes());
            assert!(replies.len() > len_min_bytes, "{}", replies.len());
            assert!(passes.iter().all(|(len_bytes, _)| *len_bytes <= 64 << 10), "{passes:?}");
            // The command stays at the head of the input until it is answered.
            assert!(passes.split_last().unwrap().1.iter().all(|(_, pass)| pass.taken_bytes == 0));
            assert!(passes.last().unwrap().1 == Pass { taken_bytes: input.len(), then: Then::Read });
        }
    }

    #[test]
    fn others_get_their_turn_while_many_rows_are_looked_at() {
        let (_folder, shared, mut session) = session(50_000);
        for input in
            ["KEYS *x*\r\n".to_owned(), "SCAN 0 COUNT 10000 MATCH x\r\n".repeat(6), "INFO memory\r\n".repeat(40)]
        {
            let (_, passes) = answered(&mut session, &shared, input.as_bytes());
            assert!(passes.iter().filter(|(_, pass)| pass.then == Then::Yield).count() >= 2, "{passes:?}");
        }
    }

    #[test]
    fn a_get_that_comes_in_parts_leaves_nothing_behind_for_the_next_command() {
        let (_folder, shared, mut session) = session(10);
        let input = b"*2\r\n$3\r\nGET\r\n$1\r\n7\r\n*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n";
        for first in 0..input.len() {
            let mut answers = Answers::new();
            let taken_bytes = session.answer(&shared.pin(), &input[..first], &mut answers).taken_bytes;
            let mut replies = answers.buffer[..answers.copied_len_bytes].to_vec();
            replies.extend(answered(&mut session, &shared, &input[taken_bytes..]).0);
            assert_eq!(replies, b"$1\r\n7\r\n$2\r\nhi\r\n", "{first}");
        }
    }

    #[test]
    fn a_session_is_in_the_list_of_clients_until_it_ends() {
        let (_folder, shared, session) = session(1);
        assert_eq!(shared.serving.clients.count(), 1);
        drop(session);
        assert_eq!(shared.serving.clients.count(), 0);
    }
}
