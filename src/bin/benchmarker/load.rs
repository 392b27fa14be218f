//! The plan of a run, its phases, and its clients, whose results are added up.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use zero_kv::cli::stderr::live_bar;
use zero_kv::client::{AsyncStream, Options};
use zero_kv::protocol::native::{RESPONSE_HEADER_LEN_BYTES, ResponseHeader, Status};
use zero_kv::unpoisoned;
use zerocopy::IntoBytes;

use crate::canned::Canned;
use crate::client::Client;
use crate::keys::Table;
use crate::mix::OpMix;
use crate::tally::{Interval, Tally};
use crate::wire::Protocol;

/// Number of tallies per processor. Clients share tallies, because each tally has a histogram: 10,000 histograms would
/// need gigabytes, and a hundred would fill the processor's caches. A client locks its tally once per pipeline.
const TALLIES_PER_PROCESSOR: usize = 2;
/// A pipeline that is still in flight this long after the end of the run counts as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(60);
const LIVE_LINE_EVERY: Duration = Duration::from_millis(200);

pub(crate) struct Outcome {
    pub(crate) tally: Tally,
    /// A tally for each interval, if the plan requests intervals.
    pub(crate) intervals: Vec<Interval>,
    /// Time from the end of the warm-up to the last counted response.
    pub(crate) elapsed: Duration,
    /// Number of clients that could not be started, or that stopped early because of an error.
    pub(crate) failed_clients: u64,
    /// For each client that had errors, the client's number and a description of the errors.
    pub(crate) faults: Vec<(usize, String)>,
}

impl Outcome {
    pub(crate) fn errors(&self) -> u64 {
        self.tally.wrong_responses + self.failed_clients
    }

    pub(crate) fn requests_per_second(&self) -> f64 {
        self.per_second(self.tally.requests)
    }

    pub(crate) fn per_second(&self, quantity: u64) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { quantity as f64 / seconds } else { 0.0 }
    }

    pub(crate) fn add(&mut self, later: Outcome) {
        self.tally.add(&later.tally);
        self.intervals.extend(later.intervals);
        self.elapsed += later.elapsed;
        self.failed_clients += later.failed_clients;
        self.faults.extend(later.faults);
    }
}

/// The result of one client: its number, its first wrong response, and the error that stopped it.
type ClientResult = (usize, Option<String>, Result<(), String>);

/// Connects all clients, runs them, and returns their results.
///
/// # Errors
/// Fails if the first client cannot connect. If only later clients cannot connect, the run continues without them, and
/// the outcome contains their errors.
pub(crate) async fn run(plan: &Plan, table: &Arc<Table>) -> anyhow::Result<Outcome> {
    let (clients, mut faults) = connect(plan, table).await?;
    let mut failed_clients = faults.len() as u64;
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
                let (number, first_wrong, result): ClientResult = ended?;
                failed_clients += u64::from(result.is_err());
                let reasons: Vec<String> = first_wrong.into_iter().chain(result.err()).collect();
                if !reasons.is_empty() {
                    faults.push((number, reasons.join("; ")));
                }
            }
            () = record.end_of_interval() => record.collect(&tallies),
            _ = ticks.tick(), if live.is_shown() => live.show(requests_and_wrong(&record, &tallies)),
        }
    }
    live.clear();
    record.collect(&tallies);

    faults.sort_unstable();
    let elapsed = record.tally.last_response.map_or(Duration::ZERO, |last| last - clock.measured_from);
    Ok(Outcome { tally: record.tally, intervals: record.intervals, elapsed, failed_clients, faults })
}

/// Collects the counts of all clients, and splits them into intervals if the plan requests intervals.
struct Record {
    tally: Tally,
    intervals: Vec<Interval>,
    interval_started: Instant,
    interval: Option<Duration>,
}

impl Record {
    fn new(clock: Clock, interval: Option<Duration>) -> Self {
        Record { tally: Tally::new(), intervals: Vec::new(), interval_started: clock.measured_from, interval }
    }

    /// Waits for the end of the current interval. Never returns if the plan requests no intervals.
    async fn end_of_interval(&self) {
        match self.interval {
            Some(interval) => tokio::time::sleep_until((self.interval_started + interval).into()).await,
            None => std::future::pending().await,
        }
    }

    /// Adds the counts of all tallies to the totals, resets the tallies, and begins the next interval.
    fn collect(&mut self, tallies: &[Mutex<Tally>]) {
        let mut tally = Tally::new();
        tallies.iter().for_each(|each| tally.add(&std::mem::replace(&mut *unpoisoned(each), Tally::new())));
        self.tally.add(&tally);
        let now = Instant::now();
        if self.interval.is_some() && now > self.interval_started {
            self.intervals.push(Interval { started: self.interval_started, len: now - self.interval_started, tally });
            self.interval_started = now;
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
) -> ClientResult {
    let tally = &tallies[number % tallies.len()];
    let stuck_at = tokio::time::Instant::from_std(clock.end + STUCK_AFTER);
    let ended = match tokio::time::timeout_at(stuck_at, client.run(plan, table, clock, tally)).await {
        Ok(ended) => ended,
        Err(_) => {
            let seconds = STUCK_AFTER.as_secs();
            Err(format!("a pipeline is still in flight {seconds} s after the end of the run, {}", client.progress()))
        }
    };
    (number, client.take_first_wrong(), ended)
}

/// Returns the number of requests and the number of wrong responses so far. The function is cheap, because it does not
/// read the histograms.
fn requests_and_wrong(record: &Record, tallies: &[Mutex<Tally>]) -> (u64, u64) {
    let each = tallies.iter().map(unpoisoned).map(|tally| (tally.requests, tally.wrong_responses));
    let collected = (record.tally.requests, record.tally.wrong_responses);
    each.fold(collected, |sum, tally| (sum.0 + tally.0, sum.1 + tally.1))
}

/// The connected clients, and the errors of the clients that could not be started, each with the client's number.
type Connected = (Vec<(usize, Client)>, Vec<(usize, String)>);

async fn connect(plan: &Plan, table: &Table) -> anyhow::Result<Connected> {
    let (mut clients, mut faults) = (Vec::new(), Vec::new());
    for number in 0..plan.clients {
        match AsyncStream::connect_with(&plan.socket, &plan.options).await {
            Ok(mut stream) => match send_first(&mut stream, table).await {
                Ok(()) => match Client::new(stream, plan, table, number) {
                    Ok(client) => clients.push((number, client)),
                    Err(error) => faults.push((number, format!("cannot create a timer: {error}"))),
                },
                Err(error) => faults.push((number, format!("cannot select columns: {error}"))),
            },
            Err(error) if clients.is_empty() => return Err(error.into()),
            // The server's limit of connections or this process's limit of open files may have been reached.
            Err(error) => faults.push((number, format!("cannot connect: {error}"))),
        }
    }
    Ok((clients, faults))
}

/// Sends the request that a connection sends first, if any, and waits for its response.
async fn send_first(stream: &mut AsyncStream, table: &Table) -> io::Result<()> {
    let Some(request) = table.first_request() else { return Ok(()) };
    stream.write_all(&request).await?;
    let mut response = [0; RESPONSE_HEADER_LEN_BYTES];
    stream.read_exact(&mut response).await?;
    match response == *ResponseHeader::bare(Status::Ok).as_bytes() {
        true => Ok(()),
        false => Err(io::Error::other("the server serves another table than --db, or is of an older version")),
    }
}

/// Minimum time between two updates of the displayed rate. The rate is the average since the previous update.
const RATE_OVER_MIN: Duration = Duration::from_millis(100);

struct LiveLine {
    bar: Option<ProgressBar>,
    clock: Clock,
    shown_at: Instant,
    requests_shown: u64,
}

impl LiveLine {
    pub(crate) fn new(clock: Clock) -> Self {
        let style = ProgressStyle::with_template("{spinner} {msg}").expect("a valid template");
        let bar = Some(live_bar(false).with_style(style)).filter(|bar| !bar.is_hidden());
        LiveLine { bar, clock, shown_at: clock.measured_from, requests_shown: 0 }
    }

    fn is_shown(&self) -> bool {
        self.bar.is_some()
    }

    pub(crate) fn show(&mut self, (requests, wrong_responses): (u64, u64)) {
        let Some(bar) = &self.bar else { return };
        let now = Instant::now();
        let left_seconds = |end: Instant| end.saturating_duration_since(now).as_secs_f64();
        if now <= self.clock.measured_from {
            bar.set_message(format!("warming up, {:.1} s left", left_seconds(self.clock.measured_from)));
        } else {
            let since_shown = now.saturating_duration_since(self.shown_at);
            if since_shown < RATE_OVER_MIN {
                return;
            }
            let per_second = (requests - self.requests_shown) as f64 / since_shown.as_secs_f64();
            bar.set_message(format!(
                "{} requests/s, {} errors, {:.1} s left",
                HumanCount(per_second as u64),
                HumanCount(wrong_responses),
                left_seconds(self.clock.end),
            ));
            (self.shown_at, self.requests_shown) = (now, requests);
        }
        bar.tick();
    }

    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[derive(Clone)]
pub(crate) struct Plan {
    /// The text of the server's address.
    pub(crate) socket: PathBuf,
    /// How to connect to the server.
    pub(crate) options: Options,
    pub(crate) protocol: Protocol,
    pub(crate) clients: usize,
    pub(crate) pipeline_requests: usize,
    pub(crate) measure: Duration,
    pub(crate) warmup: Duration,
    pub(crate) seed: u64,
    pub(crate) mix: OpMix,
    pub(crate) verify: bool,
    /// Scheduled requests per second of all clients together. Without a rate, each client sends its next pipeline as
    /// soon as it has all responses to the previous one.
    pub(crate) rate: Option<u64>,
    /// Length of the intervals that are recorded separately. `None` if no intervals are recorded.
    pub(crate) interval: Option<Duration>,
    /// The expected responses of a server that sends canned responses. `None` for a server that looks keys up.
    pub(crate) canned: Option<Arc<Canned>>,
}

/// The times at which the phases of a run begin and end.
#[derive(Clone, Copy)]
pub(crate) struct Clock {
    pub(crate) start: Instant,
    /// The end of the warm-up. For pipelines that start before this time, only errors are counted.
    pub(crate) measured_from: Instant,
    /// The end of the run. After this time, a client sends at most one more pipeline. Without `--rate`, this is its
    /// first measured pipeline, if it has sent none yet. With `--rate`, this is a pipeline that was scheduled before
    /// this time, unless the client's next pipeline after it is also due: then the client sends neither.
    pub(crate) end: Instant,
}

impl Clock {
    fn starting_now(plan: &Plan) -> Self {
        let start = Instant::now();
        let measured_from = start + plan.warmup;
        Clock { start, measured_from, end: measured_from + plan.measure }
    }
}
