//! The command-line options of `benchmarker`.

use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Command, CommandFactory, FromArgMatches, Parser};
use zero_kv::cli::args::ServerArgs;
use zero_kv::cli::examples::{CommandExamples, add_examples};
use zero_kv::cli::generate;
use zero_kv::cli::values::{BareUnit, DURATION_MAX, duration};
use zero_kv::client::{Address, SOCKET_VARIABLE, default_address};
use zero_kv::{DEFAULT_FILE, DEFAULT_SOCKET};

use crate::ceiling::SERVE_CANNED;
use crate::keys::Distribution;
use crate::load::Plan;
use crate::mix::{Op, OpMix};
use crate::wire::Protocol;

const INTERVALS: u32 = 50;
const INTERVAL_MIN: Duration = Duration::from_millis(20);

/// Help headings, in the order of the help.
const SERVER_AND_FILE: &str = "Server and file";
const LOAD: &str = "Load";
const KEYS: &str = "Keys";
const OPERATIONS: &str = "Operations";
const MEASUREMENTS: &str = "Measurements";
const OUTPUT: &str = "Output";

/// Saturates a kv_store with pipelined requests and measures throughput and latency.
///
/// Each client sends a pipeline of requests, reads all responses, checks the status and length of
/// each, and sends the next pipeline. Keys are drawn at random from the served file. The latency of
/// a pipeline is the time from its first byte sent (with --rate, from its scheduled time) to its last
/// response read.
///
/// Exit status: 0 after a valid run; 1 if a response was wrong or a connection failed, and after other
/// errors; 2 after a usage error.
#[derive(Parser)]
#[command(name = "benchmarker", version, max_term_width = 100)]
pub(crate) struct Args {
    #[arg(long, help_heading = SERVER_AND_FILE, visible_alias = "server", value_name = "ADDRESS", help = format!(
        "Connect to the server at this address: the path of its socket, or zkv+tls://user@host:port \
         [env: {SOCKET_VARIABLE}] [default: {DEFAULT_SOCKET}]"
    ))]
    socket: Option<PathBuf>,
    #[command(flatten, next_help_heading = SERVER_AND_FILE)]
    pub(crate) server: ServerArgs,
    /// Draw keys from this file, which the server must serve
    #[arg(long, help_heading = SERVER_AND_FILE, value_name = "FILE", default_value = DEFAULT_FILE)]
    pub(crate) db: PathBuf,
    /// Choose the protocol of requests
    #[arg(long, help_heading = LOAD, value_enum, default_value = "native")]
    pub(crate) protocol: Protocol,
    /// Open this many connections, each with one pipeline in flight
    #[arg(long, help_heading = LOAD, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) clients: u32,
    /// Send this many requests per pipeline
    #[arg(long, help_heading = LOAD, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) pipeline: u32,
    /// Measure for this long
    #[arg(long, help_heading = LOAD, value_name = "TIME", default_value = "10s", value_parser = parse_positive_seconds)]
    pub(crate) seconds: f64,
    /// Warm up for this long; during the warm-up, only errors are counted
    #[arg(long, help_heading = LOAD, value_name = "TIME", default_value = "1s", value_parser = parse_seconds)]
    pub(crate) warmup: f64,
    /// Seed the random number generator with this number; runs with equal seeds and options request equal keys
    #[arg(long, help_heading = KEYS, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Choose how requests are distributed over the rows
    #[arg(long, help_heading = KEYS, value_enum, default_value = "uniform")]
    pub(crate) distribution: Distribution,
    /// Set the exponent of --distribution zipf [default: 0.99]
    #[arg(long, help_heading = KEYS, value_name = "NUMBER", value_parser = parse_exponent)]
    zipf_exponent: Option<f64>,
    /// Use absent keys in this share of the requests; 0 is none, 1 is all
    #[arg(long, help_heading = KEYS, value_name = "RATIO", default_value = "0", value_parser = parse_ratio)]
    pub(crate) miss_ratio: f64,
    /// Choose the ops: `get`, `exists`, both with their shares, such as `get:0.9,exists:0.1`, or `floor`; for a typed
    /// table also `get_columns`, or, with --protocol resp, `hgetall` or `hmget`
    #[arg(long, help_heading = OPERATIONS, value_name = "OPS", default_value = "get")]
    pub(crate) op: OpMix,
    /// Request these columns of each row with `--op get_columns` or `--op hmget`
    #[arg(long, help_heading = OPERATIONS, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) columns: Vec<String>,
    /// Compare each value with the file's value for the key, and the key and value of each floor with the file's floor
    #[arg(long, help_heading = OPERATIONS)]
    pub(crate) verify: bool,
    /// Send this many requests per second on a schedule, and measure latency from the scheduled time
    #[arg(
        long,
        help_heading = LOAD,
        value_name = "REQUESTS",
        value_parser = clap::value_parser!(u64).range(1..=1_000_000_000),
    )]
    pub(crate) rate: Option<u64>,
    /// Find the highest rate whose p99 latency is at most --p99-us, by measuring different rates for --seconds each
    #[arg(long, help_heading = MEASUREMENTS, conflicts_with_all = ["rate", "ceiling", "memory", "report", "hdr"])]
    pub(crate) sweep: bool,
    /// Set the maximum p99 latency for --sweep, in microseconds or with a unit [default: 1000us]
    #[arg(
        long,
        help_heading = MEASUREMENTS,
        value_name = "TIME",
        requires = "sweep",
        value_parser = parse_positive_us,
    )]
    p99_us: Option<f64>,
    /// Alternately measure the server and a built-in server, which sends responses of the same mean length without
    /// looking keys up, and report the ratio of the two request rates
    #[arg(long, help_heading = MEASUREMENTS, conflicts_with_all = ["rate", "verify"])]
    pub(crate) ceiling: bool,
    /// Report the file's bytes per key, and the memory and page faults of the server
    #[arg(long, help_heading = MEASUREMENTS)]
    pub(crate) memory: bool,
    /// Write an HTML page with charts to this file
    #[arg(long, help_heading = OUTPUT, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
    /// Write latencies in nanoseconds to this file, as an HdrHistogram log
    #[arg(long, help_heading = OUTPUT, value_name = "FILE")]
    pub(crate) hdr: Option<PathBuf>,
    /// Print the results as one JSON object on one line
    #[arg(long, help_heading = OUTPUT)]
    pub(crate) json: bool,
    /// Run as the built-in server that --ceiling measures, and send responses of this mean length
    #[arg(long = SERVE_CANNED, hide = true, exclusive = true, value_name = "BYTES")]
    pub(crate) serve_canned: Option<f64>,
}

impl Args {
    /// Parses the command line. Exits with status 2 after a usage error.
    pub(crate) fn parse_and_check() -> Self {
        let args = Args::from_arg_matches(&command().get_matches()).unwrap_or_else(|error| error.exit());
        if let Err((kind, message)) = args.check() {
            command().error(kind, message).exit();
        }
        args
    }

    #[cfg(test)]
    fn check_command_line(args: &[String]) -> Result<(), String> {
        let args = command().try_get_matches_from(args).and_then(|matches| Args::from_arg_matches(&matches));
        args.map_err(|error| error.to_string())?.check().map_err(|(_, message)| message)
    }

    fn check(&self) -> Result<(), (ErrorKind, String)> {
        let conflict = |message: &str| Err((ErrorKind::ArgumentConflict, message.to_owned()));
        if self.zipf_exponent.is_some() && self.distribution != Distribution::Zipf {
            return conflict("the argument '--zipf-exponent <NUMBER>' cannot be used without '--distribution zipf'");
        }
        if self.verify && self.op.single() == Some(Op::Exists) {
            return conflict(
                "the argument '--verify' cannot be used with '--op exists': there are no values to compare",
            );
        }
        if self.verify && self.miss_ratio == 1.0 && !self.op.contains(Op::Floor) {
            return conflict(
                "the argument '--verify' cannot be used with '--miss-ratio 1': there are no values to compare",
            );
        }
        self.check_columns()?;
        if self.ceiling && self.protocol == Protocol::Resp {
            return conflict(
                "the argument '--ceiling' cannot be used with '--protocol resp': its server supports only native \
                 requests",
            );
        }
        if let Some(rate) = self.rate
            && rate as f64 * self.seconds < f64::from(self.pipeline)
        {
            let Args { seconds, pipeline, .. } = self;
            let message = format!(
                "invalid value '{rate}' for '--rate <REQUESTS>': less than one pipeline of {pipeline} requests in \
                 {seconds} s: pass a shorter '--pipeline' or longer '--seconds'"
            );
            return Err((ErrorKind::ValueValidation, message));
        }
        Ok(())
    }

    fn check_columns(&self) -> Result<(), (ErrorKind, String)> {
        let conflict = |message: &str| Err((ErrorKind::ArgumentConflict, message.to_owned()));
        let op = self.op.single();
        let needs_columns = matches!(op, Some(Op::GetColumns | Op::Hmget));
        if needs_columns && self.columns.is_empty() {
            let message = format!("the argument '--op {}' needs '--columns <NAMES>'", self.op);
            return Err((ErrorKind::MissingRequiredArgument, message));
        }
        if !needs_columns && !self.columns.is_empty() {
            return conflict("the argument '--columns <NAMES>' needs '--op get_columns' or '--op hmget'");
        }
        match (op, self.protocol) {
            (Some(Op::GetColumns), Protocol::Resp) => {
                conflict("the argument '--op get_columns' cannot be used with '--protocol resp': pass '--op hmget'")
            }
            (Some(Op::Hgetall | Op::Hmget), Protocol::Native) => {
                let message = format!("the argument '--op {}' needs '--protocol resp'", self.op);
                Err((ErrorKind::ArgumentConflict, message))
            }
            (Some(Op::Hmget), _) if self.miss_ratio > 0.0 => conflict(
                "the argument '--op hmget' cannot be used with '--miss-ratio': the reply for an absent key looks like \
                 a row of nulls",
            ),
            (Some(Op::GetColumns), _) if self.ceiling => conflict(
                "the argument '--ceiling' cannot be used with '--op get_columns': its server does not select columns",
            ),
            _ => Ok(()),
        }
    }

    pub(crate) fn zipf_exponent(&self) -> f64 {
        self.zipf_exponent.unwrap_or(0.99)
    }

    pub(crate) fn p99_us_max(&self) -> f64 {
        self.p99_us.unwrap_or(1000.0)
    }

    pub(crate) fn distribution_name(&self) -> String {
        match self.distribution {
            Distribution::Uniform => "uniform".to_owned(),
            Distribution::Zipf => format!("zipf {}", self.zipf_exponent()),
            Distribution::Sequential => "sequential".to_owned(),
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.socket.clone().unwrap_or_else(default_address)
    }

    pub(crate) fn plan(&self) -> anyhow::Result<Plan> {
        let socket = self.socket();
        let options = self.server.options(socket.as_os_str()).map_err(anyhow::Error::msg)?;
        let has_user = Address::parse(&socket)?.user().is_some();
        if has_user && self.protocol == Protocol::Resp {
            anyhow::bail!(
                "--protocol resp cannot log in, but the address names a user: choose --protocol native, or remove the \
                 user from the address"
            );
        }
        let measure = Duration::from_secs_f64(self.seconds);
        let keeps_intervals = self.report.is_some() || self.hdr.is_some();
        Ok(Plan {
            socket,
            options,
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
        })
    }
}

/// Parses a duration of at least `min`. Returns the number of seconds.
fn parse_seconds_from(text: &str, min: Duration) -> Result<f64, String> {
    duration(BareUnit::Seconds, min..=DURATION_MAX)(text).map(|duration| duration.as_secs_f64())
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    parse_seconds_from(text, Duration::ZERO)
}

fn parse_positive_seconds(text: &str) -> Result<f64, String> {
    parse_seconds_from(text, Duration::from_millis(1))
}

fn parse_ratio(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(ratio),
        _ => Err("expected a number from 0 to 1".to_owned()),
    }
}

fn parse_exponent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        // With an exponent above 10, one row would get nearly all requests.
        Ok(exponent) if exponent > 0.0 && exponent <= 10.0 => Ok(exponent),
        _ => Err("expected a number above 0 and up to 10".to_owned()),
    }
}

fn parse_positive_us(text: &str) -> Result<f64, String> {
    let limits = Duration::from_nanos(1)..=DURATION_MAX;
    duration(BareUnit::Microseconds, limits)(text).map(|latency| latency.as_nanos() as f64 / 1e3)
}

const EXAMPLES: &[CommandExamples] = &[(
    "",
    &[
        ("Saturate the server on the default socket, which serves ./storage.db", "benchmarker"),
        ("Compare every value with the file", "benchmarker --db storage.db --verify --seconds 3"),
        (
            "Measure latencies at 100,000 requests per second, and write a page with charts",
            "benchmarker --rate 100000 --clients 16 --pipeline 16 --report run.html",
        ),
        ("Find the highest rate whose p99 latency is at most 2 ms", "benchmarker --sweep --p99-us 2000 --seconds 2"),
        (
            "Request popular keys more often, and absent keys in a tenth of the requests",
            "benchmarker --distribution zipf --miss-ratio 0.1",
        ),
        (
            "Request columns of a typed table with Redis commands",
            "benchmarker --db items.db --protocol resp --op hmget --columns price,name",
        ),
        ("Compare the server with a server that looks nothing up", "benchmarker --ceiling --seconds 5"),
    ],
)];

pub(crate) fn command() -> Command {
    add_examples(generate::with_option(Args::command()), EXAMPLES)
}

#[cfg(test)]
mod tests {
    use zero_kv::cli::examples::check_examples;
    use zero_kv::cli::values::check_spellings;

    use super::*;

    #[test]
    fn all_durations_accept_the_same_spellings() {
        check_spellings(&command());
    }

    #[test]
    fn the_examples_of_the_help_are_valid_command_lines() {
        check_examples(&command(), EXAMPLES, Args::check_command_line);
    }
}
