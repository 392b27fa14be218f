//! All clients together: connecting them, the clock, and what they counted.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::bail;
use hdrhistogram::Histogram;
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use zero_kv::protocol::native::Op;

use crate::answers::Counts;
use crate::client::Client;
use crate::keys::Table;
use crate::report::LiveLine;

/// Tallies are shared by clients, since 10,000 histograms would fill gigabytes.
/// A client takes its tally's lock once a pipeline.
const TALLIES_MAX: usize = 64;
/// Significant decimal digits of a latency.
const LATENCY_DIGITS: u8 = 3;
/// How long after the end a pipeline in flight may go on before its server counts as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(60);
/// How long a full queue of connections is retried.
const CONNECT_RETRY_MAX: Duration = Duration::from_secs(5);
const LIVE_LINE_EVERY: Duration = Duration::from_millis(200);

/// What is to be done.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) socket: PathBuf,
    pub(crate) clients: usize,
    pub(crate) pipeline_requests: usize,
    pub(crate) measure: Duration,
    pub(crate) warmup: Duration,
    pub(crate) seed: u64,
    pub(crate) op: Op,
    pub(crate) verify: bool,
}

/// When to count, and when to stop.
#[derive(Clone, Copy)]
pub(crate) struct Clock {
    /// The end of the warm-up. A pipeline that began before does not count.
    pub(crate) measured_from: Instant,
    /// No pipeline begins after.
    pub(crate) end: Instant,
}

/// What some of the clients counted.
pub(crate) struct Tally {
    pub(crate) requests: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) answer_bytes: u64,
    /// Those of the warm-up and of broken pipelines too.
    pub(crate) wrong_answers: u64,
    pub(crate) latency_ns: Histogram<u64>,
    pub(crate) last_answer: Option<Instant>,
}

impl Tally {
    fn new() -> Self {
        Tally {
            requests: 0,
            hits: 0,
            misses: 0,
            answer_bytes: 0,
            wrong_answers: 0,
            // Grows with what it is given, so that no latency is cut short.
            latency_ns: Histogram::new(LATENCY_DIGITS).expect("3 digits are allowed"),
            last_answer: None,
        }
    }

    /// Counts a pipeline whose answers have all come.
    pub(crate) fn count(&mut self, counts: &Counts, started: Instant, finished: Instant) {
        self.requests += counts.answers as u64;
        self.hits += counts.hits;
        self.misses += counts.misses;
        self.answer_bytes += counts.bytes;
        let latency_ns = u64::try_from((finished - started).as_nanos()).unwrap_or(u64::MAX);
        self.latency_ns.record(latency_ns).expect("a histogram that grows takes any latency");
        self.last_answer = self.last_answer.max(Some(finished));
    }

    fn add(&mut self, other: &Tally) {
        self.requests += other.requests;
        self.hits += other.hits;
        self.misses += other.misses;
        self.answer_bytes += other.answer_bytes;
        self.wrong_answers += other.wrong_answers;
        self.latency_ns.add(&other.latency_ns).expect("a histogram that grows takes any other");
        self.last_answer = self.last_answer.max(other.last_answer);
    }
}

/// How it went.
pub(crate) struct Outcome {
    pub(crate) tally: Tally,
    /// From the end of the warm-up to the last answer that counts.
    pub(crate) elapsed: Duration,
    /// Clients whose connection failed or broke.
    pub(crate) broken_clients: u64,
    /// Of each client that met an error, its number and what it met.
    pub(crate) faults: Vec<(usize, String)>,
}

impl Outcome {
    pub(crate) fn errors(&self) -> u64 {
        self.tally.wrong_answers + self.broken_clients
    }
}

/// What one client's task hands back: its number, the first wrong answer, and
/// why it ended early.
type Ended = (usize, Option<String>, Result<(), String>);

/// Connects all clients, then lets them run, and waits for them.
///
/// # Errors
/// If no client can connect.
pub(crate) async fn run(plan: &Plan, table: Arc<Table>) -> anyhow::Result<Outcome> {
    let (clients, mut faults) = connect(plan).await?;
    let mut broken_clients = faults.len() as u64;
    let tallies: Arc<[Mutex<Tally>]> = (0..plan.clients.min(TALLIES_MAX)).map(|_| Mutex::new(Tally::new())).collect();

    let measured_from = Instant::now() + plan.warmup;
    let clock = Clock { measured_from, end: measured_from + plan.measure };
    let mut tasks = JoinSet::new();
    let shared_plan = Arc::new(plan.clone());
    for (number, client) in clients {
        let (plan, table, tallies) = (Arc::clone(&shared_plan), Arc::clone(&table), Arc::clone(&tallies));
        tasks.spawn(async move { run_client(number, client, &plan, &table, clock, &tallies).await });
    }
    let mut live = LiveLine::new(clock);
    let mut ticks = tokio::time::interval(LIVE_LINE_EVERY);
    loop {
        tokio::select! {
            ended = tasks.join_next() => {
                let Some(ended) = ended else { break };
                let (number, first_wrong, ended): Ended = ended?;
                broken_clients += u64::from(ended.is_err());
                let reasons: Vec<String> = first_wrong.into_iter().chain(ended.err()).collect();
                if !reasons.is_empty() {
                    faults.push((number, reasons.join("; ")));
                }
            }
            _ = ticks.tick(), if live.is_shown() => live.show(requests_and_wrong(&tallies)),
        }
    }
    live.clear();

    faults.sort_unstable();
    let tally = sum(&tallies);
    let elapsed = tally.last_answer.map_or(Duration::ZERO, |last| last - measured_from);
    Ok(Outcome { tally, elapsed, broken_clients, faults })
}

async fn run_client(
    number: usize,
    mut client: Client,
    plan: &Plan,
    table: &Table,
    clock: Clock,
    tallies: &[Mutex<Tally>],
) -> Ended {
    let tally = &tallies[number % tallies.len()];
    let stuck_at = tokio::time::Instant::from_std(clock.end + STUCK_AFTER);
    let ended = match tokio::time::timeout_at(stuck_at, client.run(plan, table, clock, tally)).await {
        Ok(ended) => ended,
        Err(_) => Err(format!("stuck {}: {} s after the end", client.reached(), STUCK_AFTER.as_secs())),
    };
    (number, client.first_wrong(), ended)
}

pub(crate) fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

fn sum(tallies: &[Mutex<Tally>]) -> Tally {
    let mut sum = Tally::new();
    tallies.iter().for_each(|tally| sum.add(&lock(tally)));
    sum
}

/// What the live line tells, without the work of adding histograms.
fn requests_and_wrong(tallies: &[Mutex<Tally>]) -> (u64, u64) {
    let each = tallies.iter().map(lock).map(|tally| (tally.requests, tally.wrong_answers));
    each.fold((0, 0), |sum, tally| (sum.0 + tally.0, sum.1 + tally.1))
}

/// The clients that could connect, and why the others could not.
type Connected = (Vec<(usize, Client)>, Vec<(usize, String)>);

async fn connect(plan: &Plan) -> anyhow::Result<Connected> {
    let (mut clients, mut faults) = (Vec::new(), Vec::new());
    for number in 0..plan.clients {
        match connect_one(&plan.socket).await {
            Ok(stream) => clients.push((number, Client::new(stream, plan, number))),
            Err(error) if clients.is_empty() => bail!("{}: {error}: is kv_store running?", plan.socket.display()),
            // The others may be over a limit on connections or on open files.
            Err(error) => faults.push((number, format!("cannot connect: {error}"))),
        }
    }
    Ok((clients, faults))
}

async fn connect_one(socket: &Path) -> io::Result<UnixStream> {
    let give_up = Instant::now() + CONNECT_RETRY_MAX;
    loop {
        match UnixStream::connect(socket).await {
            // The queue of connections to accept is full: unlike TCP, it does not wait.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < give_up => {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            result => return result,
        }
    }
}
