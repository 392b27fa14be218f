//! One client: a connection with one pipeline in flight.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use indicatif::HumanCount;
use rustix::fd::OwnedFd;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use zero_kv::Lookup;
use zero_kv::client::AsyncStream;
use zero_kv::unpoisoned;

use crate::keys::{KeyDraw, Pipeline, Table};
use crate::load::{Clock, Plan};
use crate::responses::ResponseReader;
use crate::tally::Tally;

/// Length of the read buffer, which has room for all responses to a pipeline if values are short. If a read does not
/// fill the buffer, tokio treats the socket as empty, which saves a second read.
const READ_BUFFER_LEN_BYTES: usize = 128 << 10;

thread_local! {
    /// The read buffer of a thread. The thread's clients share the buffer, so the buffer stays in the processor's
    /// cache.
    static READ_BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BUFFER_LEN_BYTES]);
}

pub(crate) struct Client {
    stream: AsyncStream,
    draw: KeyDraw,
    /// The schedule that `--rate` sets. If it is `None`, the client sends its next pipeline as soon as it has all
    /// responses.
    schedule: Option<Schedule>,
    pipeline: Pipeline,
    sent_bytes: usize,
    reader: ResponseReader,
    /// Number of responses to earlier pipelines, including pipelines of the warm-up.
    responses_before: u64,
}

impl Client {
    /// Creates a client for a connection, without sending anything.
    pub(crate) fn new(stream: AsyncStream, plan: &Plan, table: &Table, number: usize) -> io::Result<Self> {
        Ok(Client {
            stream,
            draw: KeyDraw::for_client(table, plan.seed, number, plan.clients),
            schedule: plan.rate.map(|rate| Schedule::for_client(plan, rate, number)).transpose()?,
            pipeline: Pipeline::new(plan.protocol, table.store.key_kind()),
            sent_bytes: 0,
            // Canned responses have no values to compare.
            reader: ResponseReader::new(plan.protocol, plan.verify && plan.canned.is_none()),
            responses_before: 0,
        })
    }

    /// Removes and returns the description of the first wrong response, if any response was wrong.
    pub(crate) fn take_first_wrong(&mut self) -> Option<String> {
        self.reader.first_wrong.take()
    }

    pub(crate) fn progress(&self) -> String {
        let (responses, requests) = (self.reader.counts.responses, self.pipeline.requests.len());
        format!(
            "after {} responses ({responses} of {requests} in its last pipeline)",
            HumanCount(self.responses_before + responses as u64),
        )
    }

    /// Sends pipelines until the run ends, and adds the counts of each pipeline to the tally.
    pub(crate) async fn run(
        &mut self,
        plan: &Plan,
        table: &Table,
        clock: Clock,
        tally: &Mutex<Tally>,
    ) -> Result<(), String> {
        match self.schedule.take() {
            Some(schedule) => self.run_on_schedule(schedule, plan, table, clock, tally).await,
            None => self.run_back_to_back(plan, table, clock, tally).await,
        }
    }

    /// Sends each pipeline when all responses to the previous pipeline have arrived. A server that stalls therefore
    /// receives fewer requests.
    async fn run_back_to_back(
        &mut self,
        plan: &Plan,
        table: &Table,
        clock: Clock,
        tally: &Mutex<Tally>,
    ) -> Result<(), String> {
        // Each client counts at least one pipeline, even if the server takes longer than --seconds to respond to it.
        let (mut counted, mut finished) = (false, clock.start);
        while !counted || finished < clock.end {
            self.draw(plan, table)?;
            let started = Instant::now();
            counted |= started >= clock.measured_from;
            finished = self.exchange(started, table, clock, tally).await?;
        }
        Ok(())
    }

    /// Sends each pipeline at its scheduled time. If some responses to the previous pipeline have not arrived by then,
    /// the client waits for them first. Latency is always measured from the scheduled time.
    async fn run_on_schedule(
        &mut self,
        mut schedule: Schedule,
        plan: &Plan,
        table: &Table,
        clock: Clock,
        tally: &Mutex<Tally>,
    ) -> Result<(), String> {
        while let Some(due) = schedule.next_due(clock) {
            self.draw(plan, table)?;
            let now = Instant::now();
            if now >= clock.end && schedule.is_late(now, clock) {
                let (pipelines, first_due) = schedule.unsent(clock);
                let waited = now.saturating_duration_since(first_due);
                unpoisoned(tally).count_unsent(pipelines, plan.pipeline_requests, waited, schedule.interval());
                return Ok(());
            }
            schedule.wait_until(due).await.map_err(|error| format!("the timer failed: {error}"))?;
            self.exchange(due, table, clock, tally).await?;
            schedule.advance();
        }
        Ok(())
    }

    fn draw(&mut self, plan: &Plan, table: &Table) -> Result<(), String> {
        self.pipeline
            .draw(table, &plan.mix, plan.canned.as_deref(), plan.pipeline_requests, &mut self.draw)
            .map_err(|error| error.to_string())
    }

    /// Sends the requests in `self.pipeline`, reads all responses, and returns the time of the last response. Counts
    /// the pipeline with its latency since `started`, unless the pipeline started during the warm-up.
    async fn exchange(
        &mut self,
        started: Instant,
        table: &Table,
        clock: Clock,
        tally: &Mutex<Tally>,
    ) -> Result<Instant, String> {
        self.reader.begin();
        self.sent_bytes = 0;
        let ended = poll_fn(|context| self.poll_exchange(context, table)).await;
        let finished = Instant::now();
        let mut tally = unpoisoned(tally);
        tally.wrong_responses += self.reader.counts.wrong;
        ended?;
        self.responses_before += self.reader.counts.responses as u64;
        if started >= clock.measured_from {
            tally.count(&self.reader.counts, started, finished);
        }
        Ok(finished)
    }

    /// Sends requests and reads responses until all responses have arrived. The client must read before the whole
    /// pipeline is sent: some servers stop reading requests while their responses are not read, so client and server
    /// would wait for each other forever.
    fn poll_exchange(&mut self, context: &mut Context<'_>, table: &Table) -> Poll<Result<(), String>> {
        READ_BUFFER.with_borrow_mut(|buffer| {
            while self.reader.counts.responses < self.pipeline.requests.len() {
                self.send(context);
                let mut read = ReadBuf::new(buffer);
                let ended = ready!(Pin::new(&mut self.stream).poll_read(context, &mut read));
                match ended {
                    Ok(()) if read.filled().is_empty() => return Poll::Ready(Err(self.closed_error())),
                    Ok(()) => self.reader.read(read.filled(), &self.pipeline, table)?,
                    Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                        return Poll::Ready(Err(self.closed_error()));
                    }
                    Err(error) => return Poll::Ready(Err(format!("{error} {}", self.progress()))),
                }
            }
            Poll::Ready(Ok(()))
        })
    }

    fn send(&mut self, context: &mut Context<'_>) {
        let requests = self.pipeline.requests.as_bytes();
        while self.sent_bytes < requests.len() {
            match Pin::new(&mut self.stream).poll_write(context, &requests[self.sent_bytes..]) {
                Poll::Ready(Ok(sent_bytes)) => self.sent_bytes += sent_bytes,
                // The server closed the connection. Reads still return the server's last responses, and then fail or
                // return the end of the stream.
                Poll::Ready(Err(_)) => self.sent_bytes = requests.len(),
                Poll::Pending => return,
            }
        }
    }

    fn closed_error(&self) -> String {
        format!("the server closed the connection {}", self.progress())
    }
}

const NS_PER_SECOND: u128 = 1_000_000_000;

struct Schedule {
    rate: u64,
    pipeline_requests: usize,
    clients: usize,
    /// Index of this client's next pipeline among the pipelines of all clients. Pipeline n belongs to client n modulo
    /// the number of clients.
    next_pipeline: u64,
    timer: AsyncFd<OwnedFd>,
}

impl Schedule {
    pub(crate) fn for_client(plan: &Plan, rate: u64, number: usize) -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        #[allow(
            deprecated,
            reason = "its successor is unsafe, because a type may not own its descriptor; OwnedFd does"
        )]
        let timer = AsyncFd::with_interest(timer, Interest::READABLE)?;
        Ok(Schedule {
            rate,
            pipeline_requests: plan.pipeline_requests,
            clients: plan.clients,
            next_pipeline: number as u64,
            timer,
        })
    }

    fn due(&self, pipeline: u64, clock: Clock) -> Instant {
        let after_ns = u128::from(pipeline) * self.pipeline_requests as u128 * NS_PER_SECOND / u128::from(self.rate);
        clock.start + Duration::from_nanos(u64::try_from(after_ns).unwrap_or(u64::MAX))
    }

    /// Returns the scheduled time of the next pipeline, or `None` if this time is not before the end of the run.
    fn next_due(&self, clock: Clock) -> Option<Instant> {
        Some(self.due(self.next_pipeline, clock)).filter(|due| *due < clock.end)
    }

    pub(crate) fn advance(&mut self) {
        self.next_pipeline += self.clients as u64;
    }

    /// Returns true if the client is late by at least one pipeline: its next pipeline and the pipeline after it are
    /// both due.
    fn is_late(&self, now: Instant, clock: Clock) -> bool {
        self.due(self.next_pipeline + self.clients as u64, clock) <= now
    }

    /// Returns the number of unsent pipelines that were scheduled between the end of the warm-up and the end of the
    /// run, and the scheduled time of the first one.
    pub(crate) fn unsent(&self, clock: Clock) -> (u64, Instant) {
        let pipelines_before = |moment: Instant| {
            let after_ns = moment.saturating_duration_since(clock.start).as_nanos();
            // Pipeline n is due n * pipeline_requests / rate seconds after the start. The number of pipelines that are
            // due in the first s seconds is therefore s * rate / pipeline_requests, rounded up.
            let pipelines = (after_ns * u128::from(self.rate)).div_ceil(self.pipeline_requests as u128 * NS_PER_SECOND);
            (pipelines.saturating_sub(u128::from(self.next_pipeline))).div_ceil(self.clients as u128) as u64
        };
        let uncounted = pipelines_before(clock.measured_from);
        let first_due = self.due(self.next_pipeline + uncounted * self.clients as u64, clock);
        (pipelines_before(clock.end) - uncounted, first_due)
    }

    /// Returns the scheduled time between two consecutive pipelines of this client.
    pub(crate) fn interval(&self) -> Duration {
        Duration::from_secs_f64(self.clients as f64 * self.pipeline_requests as f64 / self.rate as f64)
    }

    async fn wait_until(&self, due: Instant) -> io::Result<()> {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        let time =
            |duration: Duration| Timespec { tv_sec: duration.as_secs() as _, tv_nsec: duration.subsec_nanos() as _ };
        let once = Itimerspec { it_interval: time(Duration::ZERO), it_value: time(left) };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        let read = |timer: &OwnedFd| rustix::io::read(timer, &mut [0; 8]).map_err(io::Error::from);
        self.timer.async_io(Interest::READABLE, read).await.map(drop)
    }
}
