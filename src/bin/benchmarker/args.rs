//! The command line: what can be asked for, and what makes sense together.

use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use zero_kv::{DEFAULT_FILE, DEFAULT_SOCKET};

use crate::ceiling::SERVE_CANNED;
use crate::keys::Distribution;
use crate::mix::{Op, OpMix};
use crate::plan::Plan;
use crate::wire::Protocol;

/// Three years: what is longer is a slip, and would overflow the clock.
const SECONDS_MAX: f64 = 1e8;
/// Intervals of a run, for --report and --hdr.
const INTERVALS: u32 = 50;
const INTERVAL_MIN: Duration = Duration::from_millis(20);

/// Saturates a kv_store with pipelined requests and measures it from outside.
///
/// Each client writes one pipeline of requests, reads all its answers, checks
/// the status and length of each, and begins the next. Every key is drawn anew from the
/// rows of the file that is served. A pipeline's latency runs from its first byte sent (with
/// --rate, from the moment at which that was to be sent) to its last answer read. Exits
/// with 1 if any answer was wrong or any connection broke.
#[derive(Parser)]
#[command(name = "benchmarker", version, max_term_width = 100)]
pub(crate) struct Args {
    /// The server's socket
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    pub(crate) socket: PathBuf,
    /// Trust a server of this user, a name or number, besides root and you [env: ZERO_KV_SERVER_USER]
    #[arg(long, value_name = "USER")]
    pub(crate) server_user: Option<String>,
    /// The file that is served; keys are drawn from it
    #[arg(long, value_name = "FILE", default_value = DEFAULT_FILE)]
    pub(crate) db: PathBuf,
    /// How the server is asked
    #[arg(long, value_enum, default_value = "native")]
    pub(crate) protocol: Protocol,
    /// Connections, each with one pipeline in flight
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) clients: u32,
    /// Requests in a pipeline
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) pipeline: u32,
    /// How long to measure; fractions are fine
    #[arg(long, default_value = "10", value_parser = seconds_above_zero)]
    pub(crate) seconds: f64,
    /// Seconds of load before that, which do not count (their errors do)
    #[arg(long, default_value = "1", value_parser = seconds)]
    pub(crate) warmup: f64,
    /// Where the random numbers begin: the same seed asks for the same keys
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// How requests are spread over the rows
    #[arg(long, value_enum, default_value = "uniform")]
    pub(crate) distribution: Distribution,
    /// How steep --distribution zipf is [default: 0.99]
    #[arg(long, value_name = "NUMBER", value_parser = exponent)]
    zipf_exponent: Option<f64>,
    /// Share of requests, 0 to 1, that ask for keys which are not in the file
    #[arg(long, value_name = "RATIO", default_value = "0", value_parser = ratio)]
    pub(crate) miss_ratio: f64,
    /// What to ask for: `get`, `exists`, or both with their shares, as in `get:0.9,exists:0.1`
    #[arg(long, value_name = "OPS", default_value = "get")]
    pub(crate) op: OpMix,
    /// Compare each value with the file's
    #[arg(long)]
    pub(crate) verify: bool,
    /// Send on a schedule, so many requests a second, and time from it
    #[arg(long, value_name = "REQUESTS", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) rate: Option<u64>,
    /// Find the highest rate that keeps --p99-us, in steps of --seconds each
    #[arg(long, conflicts_with_all = ["rate", "ceiling", "memory", "report", "hdr"])]
    pub(crate) sweep: bool,
    /// What --sweep allows 99 of 100 pipelines, in microseconds [default: 1000]
    #[arg(long, value_name = "MICROSECONDS", requires = "sweep", value_parser = us_above_zero)]
    p99_us: Option<f64>,
    /// Take turns with a server that looks nothing up and sends as many bytes, and tell the ratio
    #[arg(long, conflicts_with_all = ["rate", "verify"])]
    pub(crate) ceiling: bool,
    /// Tell bytes a key, and the server's memory and page faults
    #[arg(long)]
    pub(crate) memory: bool,
    /// Write a page to look at, with charts
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
    /// Write the latencies as an HdrHistogram log, in nanoseconds
    #[arg(long, value_name = "FILE")]
    pub(crate) hdr: Option<PathBuf>,
    /// Print one JSON object on one line
    #[arg(long)]
    pub(crate) json: bool,
    /// Be the server of --ceiling, whose answers have this mean length
    #[arg(long = SERVE_CANNED, hide = true, exclusive = true, value_name = "BYTES")]
    pub(crate) serve_canned: Option<f64>,
}

impl Args {
    /// Reads the command line, and ends with status 2 if it makes no sense.
    pub(crate) fn parse_and_check() -> Self {
        let args = Args::parse();
        if let Err((kind, message)) = args.check() {
            Args::command().error(kind, message).exit();
        }
        args
    }

    fn check(&self) -> Result<(), (ErrorKind, String)> {
        let conflict = |message: &str| Err((ErrorKind::ArgumentConflict, message.to_owned()));
        if self.zipf_exponent.is_some() && self.distribution != Distribution::Zipf {
            return conflict("the argument '--zipf-exponent <NUMBER>' cannot be used without '--distribution zipf'");
        }
        if self.verify && !self.op.asks_for(Op::Get) {
            return conflict(
                "the argument '--verify' cannot be used with '--op exists': there are no values to compare",
            );
        }
        if self.verify && self.miss_ratio == 1.0 {
            return conflict(
                "the argument '--verify' cannot be used with '--miss-ratio 1': there are no values to compare",
            );
        }
        if self.ceiling && self.protocol == Protocol::Resp {
            return conflict(
                "the argument '--ceiling' cannot be used with '--protocol resp': its server answers native frames only",
            );
        }
        if let Some(rate) = self.rate
            && rate as f64 * self.seconds < f64::from(self.pipeline)
        {
            let Args { seconds, pipeline, .. } = self;
            let message = format!(
                "invalid value '{rate}' for '--rate <REQUESTS>': in {seconds} s that is less than one pipeline of \
                 {pipeline} requests: pass a shorter '--pipeline' or longer '--seconds'"
            );
            return Err((ErrorKind::ValueValidation, message));
        }
        Ok(())
    }

    pub(crate) fn zipf_exponent(&self) -> f64 {
        self.zipf_exponent.unwrap_or(0.99)
    }

    pub(crate) fn p99_us_max(&self) -> f64 {
        self.p99_us.unwrap_or(1000.0)
    }

    /// The distribution as people call it, with its parameter.
    pub(crate) fn distribution_name(&self) -> String {
        match self.distribution {
            Distribution::Uniform => "uniform".to_owned(),
            Distribution::Zipf => format!("zipf {}", self.zipf_exponent()),
            Distribution::Sequential => "sequential".to_owned(),
        }
    }

    pub(crate) fn plan(&self) -> Plan {
        let measure = Duration::from_secs_f64(self.seconds);
        let keeps_intervals = self.report.is_some() || self.hdr.is_some();
        Plan {
            socket: self.socket.clone(),
            server_user: self.server_user.clone(),
            protocol: self.protocol,
            clients: self.clients as usize,
            pipeline_requests: self.pipeline as usize,
            measure,
            warmup: Duration::from_secs_f64(self.warmup),
            seed: self.seed,
            mix: self.op.clone(),
            verify: self.verify,
            rate: self.rate,
            interval: keeps_intervals.then(|| (measure / INTERVALS).max(INTERVAL_MIN)),
            canned: None,
        }
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=SECONDS_MAX).contains(&seconds) => Ok(seconds),
        _ => Err("seconds were expected, such as `10` or `0.5`".to_owned()),
    }
}

fn seconds_above_zero(text: &str) -> Result<f64, String> {
    match seconds(text)? {
        seconds if Duration::from_secs_f64(seconds).is_zero() => Err("more than 0 was expected".to_owned()),
        seconds => Ok(seconds),
    }
}

fn ratio(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(ratio),
        _ => Err("a number from 0 to 1 was expected".to_owned()),
    }
}

fn exponent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        // Beyond, all but one row are never asked for.
        Ok(exponent) if exponent > 0.0 && exponent <= 10.0 => Ok(exponent),
        _ => Err("a number above 0 and up to 10 was expected".to_owned()),
    }
}

fn us_above_zero(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(us) if us > 0.0 && us.is_finite() => Ok(us),
        _ => Err("microseconds were expected, such as `500`".to_owned()),
    }
}
