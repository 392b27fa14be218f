//! The parameters of a run, and its phases.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use zero_kv::client::Options;

use crate::canned::Canned;
use crate::mix::OpMix;
use crate::wire::Protocol;

/// The parameters of a run.
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
    pub(crate) fn starting_now(plan: &Plan) -> Self {
        let start = Instant::now();
        let measured_from = start + plan.warmup;
        Clock { start, measured_from, end: measured_from + plan.measure }
    }
}
