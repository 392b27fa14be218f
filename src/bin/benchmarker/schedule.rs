//! The schedule of one client with `--rate`: the times at which the client sends its pipelines.
//!
//! In: the rate of all clients together. Out: the scheduled time of each pipeline, which does not depend on the server,
//! and a wait until that time. The wait uses a timerfd, because tokio's timers have a resolution of a millisecond.

use std::io;
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::plan::{Clock, Plan};

const NS_PER_SECOND: u128 = 1_000_000_000;

pub(crate) struct Schedule {
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

    /// Returns the scheduled time of the pipeline with this index.
    fn due(&self, pipeline: u64, clock: Clock) -> Instant {
        let after_ns = u128::from(pipeline) * self.pipeline_requests as u128 * NS_PER_SECOND / u128::from(self.rate);
        clock.start + Duration::from_nanos(u64::try_from(after_ns).unwrap_or(u64::MAX))
    }

    /// Returns the scheduled time of the next pipeline, or `None` if this time is not before the end of the run.
    pub(crate) fn next_due(&self, clock: Clock) -> Option<Instant> {
        Some(self.due(self.next_pipeline, clock)).filter(|due| *due < clock.end)
    }

    pub(crate) fn advance(&mut self) {
        self.next_pipeline += self.clients as u64;
    }

    /// Returns true if the client is late by at least one pipeline: its next pipeline and the pipeline after it are
    /// both due.
    pub(crate) fn is_late(&self, now: Instant, clock: Clock) -> bool {
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

    pub(crate) async fn wait_until(&self, due: Instant) -> io::Result<()> {
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
