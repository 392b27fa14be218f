//! What is to be done, and when.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::canned::Canned;
use crate::mix::OpMix;
use crate::wire::Protocol;

/// What is to be done.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) socket: PathBuf,
    /// User that the server may run as, besides root and this process's own.
    pub(crate) server_user: Option<String>,
    pub(crate) protocol: Protocol,
    pub(crate) clients: usize,
    pub(crate) pipeline_requests: usize,
    pub(crate) measure: Duration,
    pub(crate) warmup: Duration,
    pub(crate) seed: u64,
    pub(crate) mix: OpMix,
    pub(crate) verify: bool,
    /// Requests a second of all clients, sent on a schedule; without it, each client
    /// sends its next pipeline as soon as the last is answered.
    pub(crate) rate: Option<u64>,
    /// How long an interval is that is kept for itself, if any are.
    pub(crate) interval: Option<Duration>,
    /// What the server answers, if it looks nothing up.
    pub(crate) canned: Option<Arc<Canned>>,
}

/// When to count, and when to stop.
#[derive(Clone, Copy)]
pub(crate) struct Clock {
    pub(crate) start: Instant,
    /// The end of the warm-up. A pipeline that began before does not count.
    pub(crate) measured_from: Instant,
    /// No pipeline begins after.
    pub(crate) end: Instant,
}

impl Clock {
    pub(crate) fn starting_now(plan: &Plan) -> Self {
        let start = Instant::now();
        let measured_from = start + plan.warmup;
        Clock { start, measured_from, end: measured_from + plan.measure }
    }
}
