//! One client: a connection with one pipeline in flight.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use indicatif::HumanCount;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;

use crate::answers::Answers;
use crate::keys::{Draw, Pipeline, Table};
use crate::plan::{Clock, Plan};
use crate::schedule::Schedule;
use crate::tally::Tally;

/// Far more than a pipeline of small answers: tokio spares the read that finds
/// nothing only if the one before it did not fill the buffer.
const READ_BUFFER_LEN_BYTES: usize = 128 << 10;

thread_local! {
    /// One a worker thread and not one a client: it stays in the cache.
    static READ_BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BUFFER_LEN_BYTES]);
}

pub(crate) struct Client {
    stream: UnixStream,
    draw: Draw,
    /// Where it is among those that are sent, if the clients send at a rate.
    schedule: Option<Schedule>,
    pipeline: Pipeline,
    sent_bytes: usize,
    answers: Answers,
    /// Whole pipelines' answers, those of the warm-up too.
    answers_before: u64,
}

impl Client {
    /// # Errors
    /// If there is no timer for its schedule.
    pub(crate) fn new(stream: UnixStream, plan: &Plan, table: &Table, number: usize) -> io::Result<Self> {
        Ok(Client {
            stream,
            draw: Draw::of_client(table, plan.seed, number, plan.clients),
            schedule: plan.rate.map(|rate| Schedule::of_client(plan, rate, number)).transpose()?,
            pipeline: Pipeline::new(plan.protocol, table.store.key_kind()),
            sent_bytes: 0,
            // An answer that was not looked up has no value to compare.
            answers: Answers::new(plan.protocol, plan.verify && plan.canned.is_none()),
            answers_before: 0,
        })
    }

    /// The first wrong answer, if there was one.
    pub(crate) fn first_wrong(&mut self) -> Option<String> {
        self.answers.first_wrong.take()
    }

    /// How far this client came, for a message about its end.
    pub(crate) fn reached(&self) -> String {
        let (answers, asked) = (self.answers.counts.answers, self.pipeline.requests.len());
        format!(
            "after {} answers ({answers} of {asked} in its last pipeline)",
            HumanCount(self.answers_before + answers as u64),
        )
    }

    /// Asks until the time is over, and tells the tally about each pipeline.
    ///
    /// # Errors
    /// Why it could not go on.
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

    /// Begins each pipeline when the one before is answered. A server that stalls is
    /// asked less meanwhile.
    async fn run_back_to_back(
        &mut self,
        plan: &Plan,
        table: &Table,
        clock: Clock,
        tally: &Mutex<Tally>,
    ) -> Result<(), String> {
        // Each client counts one pipeline at least, so that a server slower than
        // --seconds is measured and not passed over.
        let (mut counted, mut finished) = (false, clock.start);
        while !counted || finished < clock.end {
            self.draw(plan, table)?;
            let started = Instant::now();
            counted |= started >= clock.measured_from;
            finished = self.exchange(started, table, clock, tally).await?;
        }
        Ok(())
    }

    /// Begins each pipeline when its time has come, or, when the one before is late, as
    /// soon as that is answered; the wait for it is part of its latency.
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
            if now >= clock.end && schedule.is_behind(now, clock) {
                let (pipelines, first_due) = schedule.unsent(clock);
                let waited = now.saturating_duration_since(first_due);
                lock(tally).count_unsent(pipelines, plan.pipeline_requests, waited, schedule.interval());
                return Ok(());
            }
            schedule.wait_until(due).await.map_err(|error| format!("timer: {error}"))?;
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

    /// Sends the pipeline that was drawn, reads all its answers, counts it from
    /// `started` on, and returns when it was done.
    async fn exchange(
        &mut self,
        started: Instant,
        table: &Table,
        clock: Clock,
        tally: &Mutex<Tally>,
    ) -> Result<Instant, String> {
        self.answers.begin();
        self.sent_bytes = 0;
        let ended = poll_fn(|context| self.poll_exchange(context, table)).await;
        let finished = Instant::now();
        let mut tally = lock(tally);
        tally.wrong_answers += self.answers.counts.wrong;
        ended?;
        self.answers_before += self.answers.counts.answers as u64;
        if started >= clock.measured_from {
            tally.count(&self.answers.counts, started, finished);
        }
        Ok(finished)
    }

    /// Sends and reads by turns, whichever is possible, until all is answered:
    /// a server that waits for its answers to be read takes no more requests, so
    /// whoever would only write until all is written could wait forever.
    fn poll_exchange(&mut self, context: &mut Context<'_>, table: &Table) -> Poll<Result<(), String>> {
        READ_BUFFER.with_borrow_mut(|buffer| {
            while self.answers.counts.answers < self.pipeline.requests.len() {
                self.send(context);
                let mut read = ReadBuf::new(buffer);
                let ended = ready!(Pin::new(&mut self.stream).poll_read(context, &mut read));
                match ended {
                    Ok(()) if read.filled().is_empty() => return Poll::Ready(Err(self.closed())),
                    Ok(()) => self.answers.read(read.filled(), &self.pipeline, table)?,
                    Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                        return Poll::Ready(Err(self.closed()));
                    }
                    Err(error) => return Poll::Ready(Err(format!("{error} {}", self.reached()))),
                }
            }
            Poll::Ready(Ok(()))
        })
    }

    /// Sends as many of the requests as the socket takes.
    fn send(&mut self, context: &mut Context<'_>) {
        let requests = self.pipeline.requests.as_bytes();
        while self.sent_bytes < requests.len() {
            match Pin::new(&mut self.stream).poll_write(context, &requests[self.sent_bytes..]) {
                Poll::Ready(Ok(sent_bytes)) => self.sent_bytes += sent_bytes,
                // The server has closed. What it had answered is still there to be
                // read, and after it the read says so.
                Poll::Ready(Err(_)) => self.sent_bytes = requests.len(),
                Poll::Pending => return,
            }
        }
    }

    fn closed(&self) -> String {
        format!("the server closed the connection {}", self.reached())
    }
}

pub(crate) fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}
