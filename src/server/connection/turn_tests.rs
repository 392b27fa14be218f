//! Tests that a turn is short for every command and native op, with the arguments that make the server work hardest.
//!
//! `cargo test --release --lib a_turn_is_bounded -- --nocapture` prints the processor time of the longest turns.

use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Mutex;

use rustix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::runtime::Runtime;

use super::tests::{connections_over, runtime};
use super::*;
use crate::Lookup;
use crate::bake::{Keys, Options, bake_csv};
use crate::protocol::resp::commands::{ARGS_MAX_AT_ONCE, Id, all_commands};
use crate::server::turns::USED_ON_THREAD;

/// The maximum number of steps of a turn. A turn can exceed `TURN_STEPS_MAX`, because a pass ends only after the
/// command that exceeds `PASS_STEPS_MAX`, and one command with the longest arguments takes many thousands of steps.
pub(super) const STEPS_MAX: usize = 100_000;
/// The maximum number of turns of the busy connection between two responses to another connection.
pub(super) const TURNS_BETWEEN_MAX: usize = 8;
/// The length of the pipelines in which short commands are sent. Each pipeline takes several turns.
pub(super) const PIPELINE_LEN_BYTES: usize = 256 << 10;
/// A test drops its connection after this number of turns that did work. More turns would only repeat the same work.
const BUSY_TURNS_MAX: usize = 6;
const ROWS: u64 = 20_000;
const CLIENTS: usize = 3000;

/// The turns and steps that a connection used.
#[derive(Clone, Copy, Default)]
pub(super) struct Used {
    turns: usize,
    pub(super) busy_turns: usize,
    pub(super) steps: usize,
    pub(super) turn_steps_max: usize,
    turn_us_max: u64,
    /// The number of turns of this connection since the worker's other connection last received a response.
    /// `turns_between_max` is the maximum of this number.
    turns_since: usize,
    pub(super) turns_between_max: usize,
}

/// The beginning of the bytes that a client received.
#[derive(Default)]
pub(super) struct Response {
    pub(super) begin: Vec<u8>,
}

impl Response {
    const BEGIN_LEN_MAX_BYTES: usize = 64;

    pub(super) fn begins_with(&self, bytes: &[u8]) -> bool {
        self.begin.starts_with(bytes)
    }

    fn add(&mut self, bytes: &[u8]) {
        let room_bytes = Response::BEGIN_LEN_MAX_BYTES - self.begin.len();
        self.begin.extend_from_slice(&bytes[..bytes.len().min(room_bytes)]);
    }
}

/// A connection whose turns and steps are counted.
struct Metered {
    connection: Connection<UnixStream>,
    used: Arc<Mutex<Used>>,
    busy_turns_max: usize,
}

impl Future for Metered {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let (steps_before, us_before) = (USED_ON_THREAD.get(), thread_us());
        let polled = Pin::new(&mut self.connection).poll(cx);
        let (steps, us) = (USED_ON_THREAD.get() - steps_before, thread_us() - us_before);
        let mut used = self.used.lock().unwrap();
        used.turns += 1;
        used.busy_turns += usize::from(steps > 0);
        used.steps += steps;
        used.turns_since += 1;
        used.turn_steps_max = used.turn_steps_max.max(steps);
        used.turn_us_max = used.turn_us_max.max(us);
        used.turns_between_max = used.turns_between_max.max(used.turns_since);
        if used.busy_turns < self.busy_turns_max { polled } else { Poll::Ready(()) }
    }
}

fn thread_us() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}

fn connect(connections: &Connections) -> (UnixStream, Connection<UnixStream>) {
    let (client, server) = StdUnixStream::pair().unwrap();
    [&client, &server].into_iter().for_each(|stream| stream.set_nonblocking(true).unwrap());
    connections.worker.counters().connection_opened();
    let server = UnixStream::from_std(server).unwrap();
    // The client's user is the server's user, so the client is an administrator.
    let peer = Peer::from_stream(&server);
    let connection = connections.open(server, peer);
    (UnixStream::from_std(client).unwrap(), connection)
}

/// Sends bytes on one connection. Until they are answered, sends PINGs on another connection of the worker.
pub(super) fn serve(
    runtime: &Runtime,
    connections: &Connections,
    bytes: Vec<u8>,
    busy_turns_max: usize,
) -> (Used, Response) {
    serve_and(runtime, connections, bytes, busy_turns_max, |_| ())
}

/// Does what [`serve`] does, and calls `after_ping` after each answer to a PING.
pub(super) fn serve_and(
    runtime: &Runtime,
    connections: &Connections,
    bytes: Vec<u8>,
    busy_turns_max: usize,
    mut after_ping: impl FnMut(&Used),
) -> (Used, Response) {
    runtime.block_on(async {
        let used = Arc::new(Mutex::new(Used::default()));
        let (busy, connection) = connect(connections);
        let (mut quick, other) = connect(connections);
        let busy_task = tokio::spawn(Metered { connection, used: Arc::clone(&used), busy_turns_max });
        let quick_task = tokio::spawn(other);
        let (mut reader, mut writer) = busy.into_split();
        // The connection may end before it has read all bytes.
        let written = tokio::spawn(async move {
            let _ = writer.write_all(&bytes).await;
        });
        let read = tokio::spawn(async move {
            let (mut response, mut buffer) = (Response::default(), vec![0; 64 << 10]);
            while let Ok(len_bytes @ 1..) = reader.read(&mut buffer).await {
                response.add(&buffer[..len_bytes]);
            }
            response
        });
        let mut pong = [0; 7];
        while !busy_task.is_finished() {
            quick.write_all(b"PING\r\n").await.unwrap();
            quick.read_exact(&mut pong).await.unwrap();
            assert_eq!(&pong, b"+PONG\r\n");
            let mut used = used.lock().unwrap();
            used.turns_since = 0;
            after_ping(&used);
        }
        written.await.unwrap();
        let response = read.await.unwrap();
        drop(quick);
        quick_task.await.unwrap();
        (*used.lock().unwrap(), response)
    })
}

fn redis_session(connections: &Connections) -> redis::Session {
    let context = ConnectionContext::new(Peer::default(), Arc::clone(&connections.worker));
    redis::Session::new(&context, &connections.redis_clients)
}

fn table(name: &str, keys: Keys, rows: impl Iterator<Item = (String, String)>) -> (tempfile::TempDir, Connections) {
    let folder = tempfile::tempdir().unwrap();
    let csv: String = rows.map(|(key, value)| format!("{key},{value}\n")).collect();
    let db = folder.path().join(name);
    let options = Options { keys, ..Options::default() };
    bake_csv(csv.as_bytes(), &db, &options).unwrap();
    let connections = connections_over(&db);
    (folder, connections)
}

#[test]
fn a_turn_is_bounded_for_every_command_and_op_with_its_worst_arguments() {
    let numbers = (0..ROWS).map(|key| (key.to_string(), format!("value {key}").repeat(key as usize % 20)));
    let long_keys = (0..40).map(|key| (format!("{}{key:05}", "a".repeat(65_530)), "v".repeat(5000)));
    let tables = [table("numbers.db", Keys::U64, numbers), table("bytes.db", Keys::BYTES, long_keys)];
    let runtime = runtime();
    let mut report = Vec::new();
    for (_folder, connections) in &tables {
        let kind = connections.worker.pin().store.key_kind();
        let _clients: Vec<_> = (0..CLIENTS).map(|_| redis_session(connections)).collect();
        for (name, bytes) in worst_commands::all_cases(ROWS) {
            let len_bytes = bytes.len();
            let pipeline = bytes.repeat((PIPELINE_LEN_BYTES / len_bytes).max(1));
            let (used, _) = serve(&runtime, connections, pipeline, BUSY_TURNS_MAX);
            let begin = bytes[..bytes.len().min(60)].escape_ascii().to_string();
            let case = format!("{name} on {kind}, {len_bytes} bytes: {begin}");
            assert!(used.turns > 0, "{case}");
            assert!(used.turn_steps_max <= STEPS_MAX, "{} steps in a turn: {case}", used.turn_steps_max);
            assert!(used.turns_between_max <= TURNS_BETWEEN_MAX, "{} turns: {case}", used.turns_between_max);
            report.push((used.turn_us_max, used, case));
        }
    }
    report.sort_by_key(|(us, ..)| std::cmp::Reverse(*us));
    println!("longest turn, us | steps of the turn with the most | turns | steps | command");
    for (us, used, case) in report {
        println!("{us:8} {:8} {:6} {:9} {case}", used.turn_steps_max, used.turns, used.steps);
    }
}

/// Work that is not counted would not end a turn, so each argument of a command with many arguments must count as at
/// least one step.
#[test]
fn each_of_100_000_arguments_counts_as_a_step() {
    let (_folder, connections) = table("numbers.db", Keys::U64, (0..100).map(|key| (key.to_string(), "v".to_owned())));
    let runtime = runtime();
    let mut checked = 0;
    for spec in all_commands().filter(|spec| spec.args_max > ARGS_MAX_AT_ONCE) {
        let args = [spec.name.split('|').map(str::to_owned).collect(), vec!["7".to_owned(); 100_000]].concat();
        let (used, _) = serve(&runtime, &connections, worst_commands::command(&args), usize::MAX);
        // The steps of COMMAND GETKEYS are not checked, because its first argument must be the name of a command, and
        // no command has the name 7.
        if spec.id != Id::CommandGetKeys {
            assert!(used.steps >= 100_000 && used.turns >= 5, "{}: {} steps", spec.name, used.steps);
            checked += 1;
        }
    }
    assert_eq!(checked, 5, "MGET, EXISTS, TOUCH, COMMAND INFO and COMMAND DOCS");
}

/// The more connections have work left, the shorter are their turns.
#[test]
fn a_request_waits_for_little_work_of_many_busy_connections() {
    const BUSY: usize = 150;
    const PINGS: usize = 4;
    /// A request waits for at most two rounds of all turns.
    const STEPS_BETWEEN_MAX: usize = 2 * BUSY * 1500;
    let (_folder, connections) = table("numbers.db", Keys::U64, (0..ROWS).map(|key| (key.to_string(), "v".to_owned())));
    let runtime = runtime();
    let (steps_between_max, used) = runtime.block_on(async {
        let used = Arc::new(Mutex::new(Used::default()));
        let mut busy_clients = Vec::new();
        for _ in 0..BUSY {
            let (mut client, connection) = connect(&connections);
            tokio::spawn(Metered { connection, used: Arc::clone(&used), busy_turns_max: usize::MAX });
            client.write_all("KEYS *x*\r\n".repeat(1000).as_bytes()).await.unwrap();
            busy_clients.push(client);
        }
        let (mut quick, other) = connect(&connections);
        tokio::spawn(other);
        let mut steps_between_max = 0;
        for _ in 0..PINGS {
            let steps_before = USED_ON_THREAD.get();
            quick.write_all(b"PING\r\n").await.unwrap();
            quick.read_exact(&mut [0; 7]).await.unwrap();
            // The first request may be answered before the other connections are busy.
            steps_between_max = steps_between_max.max(USED_ON_THREAD.get() - steps_before);
        }
        (steps_between_max, *used.lock().unwrap())
    });
    assert!(used.busy_turns > BUSY, "{} turns", used.busy_turns);
    assert!(
        (BUSY * 500..STEPS_BETWEEN_MAX).contains(&steps_between_max),
        "{steps_between_max} steps between a request and its response"
    );
}
