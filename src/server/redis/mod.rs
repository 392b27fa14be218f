//! The Redis protocol.
//!
//! In: bytes that a client sent. Out: replies. Runs of the most frequent reads are looked up together (`runs`).
//! All other commands are parsed by [`crate::protocol::resp`] and executed one at a time. A command with a
//! long reply takes several passes, and the connection executes no other command before this reply is complete. A reply
//! of unbounded length is sent piece by piece while it is computed, except CLIENT LIST, which is first held in memory.

mod acl;
mod clients;
mod cluster;
mod commands;
mod execute;
mod hashes;
mod info;
mod keys;
mod keyspace;
mod login;
mod lookup;
mod monitor;
mod order;
mod runs;
mod stored;
mod strings;
mod subscriptions;
mod tracking;
mod transaction;
mod work;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tracing::warn;

use super::clients::Activity;
use super::responses::Responses;
use super::sockets::Peer;
use super::state::{ConnectionContext, WorkerState};
use super::table::Generation;
use super::turns::{Pass, Then};
use super::users::{Access, Attempts};
use crate::protocol::resp::{Command, ParseProgress, Parsed, Reply, Sink, Version, parse};
use crate::setting::Setting;
use crate::store::is_verification_interrupted;
pub(super) use clients::Clients;
use clients::RedisClient;
use cluster::ClusterSession;
pub(super) use monitor::Monitor;
use runs::{Run, Runs, Unrouted};
use subscriptions::Subscriptions;
use tracking::Tracking;
use transaction::Transaction;
use work::{Outcome, Work, WorkStep};

type Out<'a> = Reply<'a, Responses>;

/// The end of a function that writes a reply. An error is the text of the error reply, and nothing was written.
type Replied = Result<(), String>;

const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
const SYNTAX: &str = "ERR syntax error";

impl Sink for Responses {
    #[inline]
    fn push_bytes(&mut self, bytes: &[u8]) {
        self.push(bytes);
    }
}

/// The fixed cost of a command, in steps. The costs of its bytes, of its reply, and of its own work come on top.
const COMMAND_STEPS: usize = 2;
/// The cost, in steps, of looking up one key of an MGET or of a pipeline of GET commands.
const LOOKUP_STEPS: usize = 2;
/// The number of bytes of an inline command that are split into words in one step.
const INLINE_STEP_LEN_BYTES: usize = 4;

/// The state of a connection that speaks the Redis protocol.
pub(super) struct Session {
    worker: Arc<WorkerState>,
    peer: Peer,
    activity: Arc<Activity>,
    clients: Arc<Clients>,
    client: Arc<RedisClient>,
    state: SessionState,
    /// The state after the last committed pass. [`Session::undo`] restores this state.
    kept: SessionState,
    /// The commands since MULTI, in array form, until EXEC has executed them.
    queued_commands: Arc<Vec<u8>>,
    /// The value of `queued_commands` after the last committed pass, if a transaction has begun since then.
    kept_commands: Option<Arc<Vec<u8>>>,
    random: Random,
    counted: Counted,
    /// Whether there were monitors when the pass began, or the pass executed MONITOR.
    is_monitored: bool,
    /// The lines that the pass shows to monitors.
    shown: Vec<u8>,
    /// The queue of the lines that this client gets, if it is a monitor.
    monitor: Option<Arc<Monitor>>,
    access: Access,
    /// The value of `access` after the last committed pass, if it has changed since then.
    kept_access: Option<Access>,
    /// The cluster, if the server is a node of one.
    cluster: Option<ClusterSession>,
    /// Whether the connection is woken when what it tracks changes.
    is_watching: bool,
    /// Whether the pass has taken a message that another connection has redirected to this one.
    has_taken_message: bool,
    /// Whether the pass redirects a message to another connection.
    has_redirected: bool,
}

/// Session state that a pass changes. The state is restored if the pass is repeated.
#[derive(Clone, Default)]
struct SessionState {
    version: Version,
    /// The parser's progress in an incomplete command.
    progress: ParseProgress,
    running: Option<Running>,
    transaction: Transaction,
    /// Whether the client is in MONITOR mode.
    is_monitor: bool,
    /// Whether the client reads rows of replicas (READONLY).
    reads_replicas: bool,
    attempts: Attempts,
    subscriptions: Subscriptions,
    tracking: Tracking,
}

/// A command whose reply takes more than one pass. The command stays at the beginning of the input until its reply is
/// complete.
#[derive(Clone)]
struct Running {
    /// The command in array form, if it was sent as an inline command. `None` for other commands, which every pass
    /// reads from the input again.
    line: Option<Arc<[u8]>>,
    /// The length of the command in the input.
    len_bytes: usize,
    work: Work,
}

impl Running {
    /// Returns the number of bytes that the command holds besides the input.
    fn held_bytes(&self) -> usize {
        self.line.as_ref().map_or(0, |line| line.len()) + self.work.held_bytes()
    }
}

/// The commands and lookups that one pass has counted.
#[derive(Clone, Copy, Default)]
struct Counted {
    commands: u64,
    /// Commands that were answered with an error.
    errors: u64,
    hits: u64,
    misses: u64,
    /// Whether the connection sent an HTTP request.
    is_http: bool,
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
    pub(super) fn new(context: &ConnectionContext, clients: &Arc<Clients>) -> Self {
        let access = Access::new(&context.worker.server.users, context.peer.is_unix());
        let user_name = access.user_name(&context.worker.server.users);
        Session {
            worker: Arc::clone(&context.worker),
            peer: context.peer,
            activity: Arc::clone(&context.activity),
            clients: Arc::clone(clients),
            client: clients.add(&context.activity, context.worker.registry(), user_name),
            state: SessionState::default(),
            kept: SessionState::default(),
            queued_commands: Arc::default(),
            kept_commands: None,
            random: Random::new(),
            counted: Counted::default(),
            is_monitored: false,
            shown: Vec::new(),
            monitor: None,
            access,
            kept_access: None,
            cluster: context.worker.server.settings.source.cluster.as_ref().map(ClusterSession::new),
            is_watching: false,
            has_taken_message: false,
            has_redirected: false,
        }
    }

    /// Answers the complete commands at the start of `input` as long as there is room for replies. In the next call,
    /// the caller must pass the unanswered input again, followed by new input if there is any.
    pub(super) fn answer(&mut self, generation: &Generation, input: &[u8], responses: &mut Responses) -> Pass {
        if !self.access.is_unrestricted(&self.worker.server.users) && !self.follow_users() {
            return Pass { taken_bytes: input.len(), then: Then::Close };
        }
        self.is_monitored = self.clients.monitors.are_active();
        self.refresh_cluster();
        self.push_messages(generation, responses);
        let pass = self.pass(generation, input, responses);
        self.client.record_activity();
        pass
    }

    pub(super) fn access(&self) -> &Access {
        &self.access
    }

    /// Returns the number of bytes that the session has allocated. Counts the client's names at their maximum length.
    #[inline]
    pub(super) fn held_bytes(&self) -> usize {
        let fixed_bytes = size_of::<Session>() + size_of::<RedisClient>() + 3 * clients::NAME_LEN_MAX_BYTES;
        let monitor_bytes = self.monitor().map_or(0, Monitor::held_bytes) + self.shown.capacity();
        fixed_bytes
            + monitor_bytes
            + self.queued_commands.capacity()
            + self.state.subscriptions.held_bytes()
            + self.state.tracking.held_bytes()
            + self.state.running.as_ref().map_or(0, Running::held_bytes)
    }

    #[inline]
    pub(super) fn is_in_command(&self) -> bool {
        self.state.running.is_some() || self.state.transaction.is_executing()
    }

    /// Counts the commands of the last pass, and keeps the session's state for [`Session::undo`]. Must be called only
    /// if the replies of the pass will be sent.
    pub(super) fn commit(&mut self) {
        let Counted { commands, errors, hits, misses, is_http } = std::mem::take(&mut self.counted);
        self.worker.counters().count_redis(commands, errors, hits, misses);
        if is_http {
            self.report_http();
        }
        if self.is_monitored {
            self.commit_monitoring();
        }
        self.release_queue();
        self.commit_messages();
        self.kept_access = None;
        self.kept = self.state.clone();
    }

    /// Undoes the last pass, which will be repeated.
    pub(super) fn undo(&mut self) {
        self.counted = Counted::default();
        self.shown.clear();
        self.undo_messages();
        self.state = self.kept.clone();
        if let Some(commands) = self.kept_commands.take() {
            self.queued_commands = commands;
        }
        if let Some(access) = self.kept_access.take() {
            self.set_access(access);
            self.kept_access = None;
        }
    }

    fn pass(&mut self, generation: &Generation, input: &[u8], responses: &mut Responses) -> Pass {
        let mut taken_bytes = 0;
        loop {
            let answered = match self.state.transaction.executing() {
                None => self
                    .answer_next(generation, &input[taken_bytes..], responses)
                    .map(|len_bytes| taken_bytes += len_bytes),
                Some((commands, at_bytes)) => self
                    .answer_next(generation, &commands[at_bytes..], responses)
                    .map(|len_bytes| self.advance_transaction(len_bytes)),
            };
            match answered {
                Ok(()) => {}
                Err(then @ (Then::Close | Then::Refuse)) => return Pass { taken_bytes: input.len(), then },
                Err(then) => return Pass { taken_bytes, then },
            }
        }
    }

    /// Answers the commands at the start of `rest` that are looked up together, if there are any.
    #[inline]
    fn answer_run(&mut self, generation: &Generation, rest: &[u8], responses: &mut Responses) -> Option<Run> {
        let Session { worker, state, access, cluster, .. } = self;
        let (store, fields, version) = (&generation.store, generation.fields.as_ref(), state.version);
        let users = &worker.server.users;
        match cluster.as_mut().filter(|_| !state.transaction.is_executing()) {
            None => Runs { store, version, routing: Unrouted, responses }.answer(fields, access, users, rest),
            Some(cluster) => {
                let routing = cluster.route(generation, state.reads_replicas);
                Runs { store, version, routing, responses }.answer(fields, access, users, rest)
            }
        }
    }

    /// Counts a run of commands. Returns their length.
    ///
    /// # Errors
    /// If no command is answered. Repeating the run in the same pass would change nothing.
    fn count_run(&mut self, run: &Run, responses: &mut Responses) -> Result<usize, Then> {
        let Some(last) = run.last else {
            return Err(match responses.cold().must_wait() {
                _ if run.is_full => Then::Answer,
                true => Then::Load,
                // The verification of blocks was interrupted.
                false => Then::Yield,
            });
        };
        self.state.progress = ParseProgress::default();
        self.end_caching();
        self.client.set_last_command(last);
        self.counted.commands += run.count as u64;
        self.counted.errors += run.errors as u64;
        self.counted.hits += run.hits as u64;
        self.counted.misses += run.misses as u64;
        responses.steps().add(run.steps);
        responses.steps().add_bytes(run.end_bytes);
        Ok(run.end_bytes)
    }

    /// Continues the command in progress, if there is one. Otherwise, answers the run at the start of `rest`, or
    /// executes the next command. Returns the length of the commands that are now completely answered.
    ///
    /// # Errors
    /// If the pass ends: what the connection does next.
    fn answer_next(&mut self, generation: &Generation, rest: &[u8], responses: &mut Responses) -> Result<usize, Then> {
        if let Some(running) = self.state.running.take() {
            return self.continue_running(running, generation, rest, responses);
        }
        if responses.cold().must_wait() {
            return Err(Then::Load);
        }
        if responses.is_full() {
            return Err(Then::Answer);
        }
        if responses.steps().is_pass_over() {
            return Err(Then::Yield);
        }
        if !self.state.transaction.is_queueing()
            && !self.is_monitored
            && !self.is_confined()
            && let Some(run) = self.answer_run(generation, rest, responses)
        {
            return self.count_run(&run, responses);
        }
        let (line, len_bytes) = match parse(rest, &mut self.state.progress) {
            Ok(Parsed::Command { len_bytes, .. }) => (None, len_bytes),
            Ok(Parsed::Inline { command, len_bytes }) => {
                responses.steps().add(len_bytes / INLINE_STEP_LEN_BYTES);
                (Some(Arc::from(command)), len_bytes)
            }
            Ok(Parsed::Nothing { len_bytes }) => {
                responses.steps().add_bytes(len_bytes);
                return Ok(len_bytes);
            }
            Ok(Parsed::Incomplete) if !self.may_send(rest.len()) => {
                self.refuse_unauthenticated(responses);
                return Err(Then::Refuse);
            }
            Ok(Parsed::Incomplete) if rest.len() > self.worker.server.settings.limits.buffer_max_bytes => {
                self.refuse_long(responses);
                return Err(Then::Refuse);
            }
            Ok(Parsed::Incomplete) => return Err(Then::Read),
            Err(error) => {
                Reply::new(responses, self.state.version).error(format!("ERR {error}"));
                return Err(Then::Refuse);
            }
        };
        let command = Command::new(line.as_deref().unwrap_or(&rest[..len_bytes]));
        let may_wait = generation.store.may_be_cold() && !self.state.transaction.is_queueing();
        if may_wait
            && (lookup::must_wait(&generation.store, &command, responses)
                || keyspace::must_wait(&generation.store, &command, self.random.clone().next(), responses))
        {
            return Err(Then::Load);
        }
        let execute = |session: &mut Self, responses: &mut Responses| session.execute(generation, &command, responses);
        match self.unless_interrupted(responses, execute) {
            Some(Outcome::Done) => Ok(len_bytes),
            Some(Outcome::Work(work)) => {
                self.state.running = Some(Running { line, len_bytes, work });
                Ok(0)
            }
            Some(Outcome::Delay(until)) => Err(Then::Delay(until)),
            Some(Outcome::Close) => Err(Then::Close),
            None => Err(Then::Yield),
        }
    }

    /// Continues a command whose reply takes more than one pass. Returns the length of the command in the input if the
    /// reply is now complete, or 0 if the command can continue at once with the next phase of its work.
    ///
    /// # Errors
    /// [`Then::Answer`] if the output buffer has no room for more replies, [`Then::Yield`] if other connections get
    /// their turn before this command continues, and [`Then::Close`] if the command ends the connection.
    fn continue_running(
        &mut self,
        mut running: Running,
        generation: &Generation,
        rest: &[u8],
        responses: &mut Responses,
    ) -> Result<usize, Then> {
        let Running { line, len_bytes, work } = &mut running;
        let (command, work_before) = (Command::new(line.as_deref().unwrap_or(&rest[..*len_bytes])), work.clone());
        let step = self
            .unless_interrupted(responses, |session, responses| session.step(generation, &command, work, responses));
        let end = match step {
            Some(WorkStep::Done) => return Ok(*len_bytes),
            Some(WorkStep::Close) => return Err(Then::Close),
            Some(WorkStep::Next) => Ok(0),
            Some(WorkStep::Full) => Err(Then::Answer),
            Some(WorkStep::Yield) => Err(Then::Yield),
            Some(WorkStep::Load) => Err(Then::Load),
            None => {
                *work = work_before;
                Err(Then::Yield)
            }
        };
        self.state.running = Some(running);
        end
    }

    /// Executes a command or a part of a command, and counts the steps of its reply. If the verification of records was
    /// interrupted, undoes the execution and returns `None`, so that the next pass repeats the execution. Repeating is
    /// safe, because commands that read records have no side effects.
    fn unless_interrupted<T>(
        &mut self,
        responses: &mut Responses,
        execute: impl FnOnce(&mut Self, &mut Responses) -> T,
    ) -> Option<T> {
        // A repeated RANDOMKEY must choose the same row again.
        let (end, counted, random, shown_bytes) = (responses.end(), self.counted, self.random, self.shown.len());
        let copied_before_bytes = responses.copied().len();
        let executed = execute(self, responses);
        let reply_len_bytes = responses.copied().len() - copied_before_bytes;
        responses.steps().add_bytes(reply_len_bytes);
        if !is_verification_interrupted() {
            return Some(executed);
        }
        responses.truncate(&end);
        (self.counted, self.random) = (counted, random);
        self.shown.truncate(shown_bytes);
        None
    }

    /// Rejects an incomplete command that is longer than the buffer.
    fn refuse_long(&mut self, responses: &mut Responses) {
        let limit = self.worker.server.settings.limits.buffer_max_bytes;
        (self.counted.commands, self.counted.errors) = (self.counted.commands + 1, self.counted.errors + 1);
        let error = format!("ERR Protocol error: too big command, the limit is {limit} bytes");
        Reply::new(responses, self.state.version).error(error);
        if let Some(left_out) = self.clients.long_command_log.line() {
            let peer = self.peer;
            let setting = Setting::BufferMax;
            warn!(%peer, left_out, "disconnected: a command exceeds the buffer of {limit} bytes ({setting})");
        }
    }

    /// Counts and logs a connection that is closed because it sent an HTTP request.
    fn report_http(&self) {
        self.worker.server.statistics.totals.cut_http.fetch_add(1, Ordering::Relaxed);
        if let Some(left_out) = self.clients.http_log.line() {
            warn!(
                peer = %self.peer,
                left_out,
                "disconnected: sent POST or Host: where a command was expected, as an HTTP client does; a web page may \
                 be trying to have a browser send commands (cross-protocol scripting)"
            );
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end_monitor();
        self.end_tracking();
        self.clients.remove(&self.client);
    }
}

/// The state of a sequence. A copy continues with the same numbers.
#[derive(Clone, Copy)]
struct Random(u64);

impl Random {
    /// Begins a sequence that differs from others.
    fn new() -> Random {
        Random(RandomState::new().build_hasher().finish())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0)
    }
}

/// Returns a pseudorandom number (SplitMix64) for a position in a sequence.
fn mix(position: u64) -> u64 {
    let mixed = position.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(all(test, feature = "bake"))]
mod tests {
    use super::*;
    use crate::bake::{Options, bake_csv};
    use crate::server::Config;
    use crate::server::state::tests::worker_over;

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
            if matches!(pass.then, Then::Read | Then::Close | Then::Refuse) {
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
        for input in
            ["KEYS *x*\r\n".to_owned(), "SCAN 0 COUNT 10000 MATCH x\r\n".repeat(6), "INFO memory\r\n".repeat(40)]
        {
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
}
