//! All clients together: connecting them, letting them run, and summing up.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::client::{Client, lock};
use crate::connect;
use crate::keys::Table;
use crate::live::LiveLine;
use crate::plan::{Clock, Plan};
use crate::tally::{Interval, Tally};

/// Tallies are shared by clients, since 10,000 histograms would fill gigabytes, and even a
/// hundred the caches. A client takes its tally's lock once a pipeline.
const TALLIES_PER_PROCESSOR: usize = 2;
/// How long after the end a pipeline in flight may go on before its server counts as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(60);
const LIVE_LINE_EVERY: Duration = Duration::from_millis(200);

/// How it went.
pub(crate) struct Outcome {
    pub(crate) tally: Tally,
    /// The same, piece by piece, if the plan keeps intervals.
    pub(crate) intervals: Vec<Interval>,
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

    pub(crate) fn requests_per_second(&self) -> f64 {
        self.per_second(self.tally.requests)
    }

    pub(crate) fn per_second(&self, quantity: u64) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { quantity as f64 / seconds } else { 0.0 }
    }

    /// Adds a later run of the same plan.
    pub(crate) fn add(&mut self, later: Outcome) {
        self.tally.add(&later.tally);
        self.intervals.extend(later.intervals);
        self.elapsed += later.elapsed;
        self.broken_clients += later.broken_clients;
        self.faults.extend(later.faults);
    }
}

/// What one client's task hands back: its number, the first wrong answer, and
/// why it ended early.
type Ended = (usize, Option<String>, Result<(), String>);

/// Connects all clients, then lets them run, and waits for them.
///
/// # Errors
/// If no client can connect.
pub(crate) async fn run(plan: &Plan, table: &Arc<Table>) -> anyhow::Result<Outcome> {
    let (clients, mut faults) = connect(plan, table).await?;
    let mut broken_clients = faults.len() as u64;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let tallies: Arc<[Mutex<Tally>]> =
        (0..processors * TALLIES_PER_PROCESSOR).map(|_| Mutex::new(Tally::new())).collect();

    let clock = Clock::starting_now(plan);
    let mut tasks = JoinSet::new();
    let shared_plan = Arc::new(plan.clone());
    for (number, client) in clients {
        let (plan, table, tallies) = (Arc::clone(&shared_plan), Arc::clone(table), Arc::clone(&tallies));
        tasks.spawn(async move { run_client(number, client, &plan, &table, clock, &tallies).await });
    }
    let mut live = LiveLine::new(clock);
    let mut ticks = tokio::time::interval(LIVE_LINE_EVERY);
    let mut record = Record::new(clock, plan.interval);
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
            () = record.interval_ends() => record.keep(&tallies),
            _ = ticks.tick(), if live.is_shown() => live.show(requests_and_wrong(&record, &tallies)),
        }
    }
    live.clear();
    record.keep(&tallies);

    faults.sort_unstable();
    let elapsed = record.tally.last_answer.map_or(Duration::ZERO, |last| last - clock.measured_from);
    Ok(Outcome { tally: record.tally, intervals: record.intervals, elapsed, broken_clients, faults })
}

/// What has been collected from the tallies.
struct Record {
    tally: Tally,
    intervals: Vec<Interval>,
    began: Instant,
    interval: Option<Duration>,
}

impl Record {
    fn new(clock: Clock, interval: Option<Duration>) -> Self {
        Record { tally: Tally::new(), intervals: Vec::new(), began: clock.measured_from, interval }
    }

    /// Waits for the end of the interval, for ever if none are kept.
    async fn interval_ends(&self) {
        match self.interval {
            Some(interval) => tokio::time::sleep_until((self.began + interval).into()).await,
            None => std::future::pending().await,
        }
    }

    /// Ends the interval, and begins the next.
    fn keep(&mut self, tallies: &[Mutex<Tally>]) {
        let mut tally = Tally::new();
        tallies.iter().for_each(|each| tally.add(&std::mem::replace(&mut *lock(each), Tally::new())));
        self.tally.add(&tally);
        let now = Instant::now();
        if self.interval.is_some() && now > self.began {
            self.intervals.push(Interval { began: self.began, len: now - self.began, tally });
            self.began = now;
        }
    }
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

/// What the live line tells, without the work of adding histograms.
fn requests_and_wrong(record: &Record, tallies: &[Mutex<Tally>]) -> (u64, u64) {
    let each = tallies.iter().map(lock).map(|tally| (tally.requests, tally.wrong_answers));
    let kept = (record.tally.requests, record.tally.wrong_answers);
    each.fold(kept, |sum, tally| (sum.0 + tally.0, sum.1 + tally.1))
}

/// The clients that could connect, and why the others could not.
type Connected = (Vec<(usize, Client)>, Vec<(usize, String)>);

async fn connect(plan: &Plan, table: &Table) -> anyhow::Result<Connected> {
    let (mut clients, mut faults) = (Vec::new(), Vec::new());
    for number in 0..plan.clients {
        match connect::connect(&plan.socket, plan.server_user.as_deref()).await {
            Ok(stream) => match Client::new(stream, plan, table, number) {
                Ok(client) => clients.push((number, client)),
                Err(error) => faults.push((number, format!("no timer: {error}"))),
            },
            Err(error) if clients.is_empty() => return Err(error),
            // The others may be over a limit on connections or on open files.
            Err(error) => faults.push((number, format!("cannot connect: {error}"))),
        }
    }
    Ok((clients, faults))
}
