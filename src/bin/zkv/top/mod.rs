//! `zkv top`: shows live statistics of a server.
//!
//! In: a socket. Out: a screen that is redrawn, or lines, until the user quits. `sampler` requests samples, `sample`
//! computes rates and quantiles, `screen` shows them on a terminal, and `lines` formats them for other outputs. Without
//! the feature `full`, there is no screen, so terminals get lines, too.

mod sample;
#[cfg(feature = "full")]
mod screen;

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use zero_kv::client::{Client, ClientError};
use zero_kv::printable::Printable;

use crate::args::{Address, TopArgs};
use crate::output::{ignore_closed_pipe, print_error, stdout_error};
use crate::server::{run_within, spawn};
use sample::{Delta, Sample};

pub(crate) fn top(server: Address, args: &TopArgs) -> anyhow::Result<bool> {
    #[cfg(feature = "full")]
    let socket = server.socket.clone();
    let (first, mut sampler) = Sampler::start(server, args.interval)?;
    let count = if args.once { Some(1) } else { args.count.map(Into::into) };
    #[cfg(feature = "full")]
    if count.is_none() && io::IsTerminal::is_terminal(&io::stdout()) {
        screen::show(&socket, args.interval, first, &mut sampler)?;
        return Ok(true);
    }
    ignore_closed_pipe(write_lines(count, first, &mut sampler), true, stdout_error)
}

/// Writes `count` lines, and fails if a sample fails. Without a count, writes lines until the reader closes the pipe,
/// and continues after failed samples, because a stopped server may be restarted.
fn write_lines(count: Option<u64>, first: Sample, sampler: &mut Sampler) -> anyhow::Result<bool> {
    let (mut output, mut last, mut written, mut is_lost) = (io::stdout().lock(), first, 0, false);
    while count.is_none_or(|count| written < count) {
        match sampler.next(Duration::MAX) {
            Some(Ok(sample)) => {
                writeln!(output, "{}", Printable(line(&last, &sample))).and_then(|()| output.flush())?;
                (last, is_lost) = (sample, false);
                written += 1;
            }
            Some(Err(reason)) if count.is_some() => return Err(anyhow!(reason)),
            Some(Err(reason)) if !is_lost => {
                print_error(&format_args!("{reason}; retrying"));
                is_lost = true;
            }
            _ => {}
        }
    }
    Ok(true)
}

const INFO_FIELDS: &[&str] =
    &["connections", "generation", "digest", "state", "swaps", "refused_files", "faults", "uptime_s"];

fn line(from: &Sample, to: &Sample) -> String {
    let delta = Delta::between(from, to);
    let mut line = format!("requests_per_s={}", rounded(delta.as_ref().and_then(Delta::request_rate)));
    let mut push = |name: &str, value: &str| {
        let _ = write!(line, " {name}={value}");
    };
    for op in to.ops() {
        push(&format!("{op}_per_s"), &rounded(delta.as_ref().and_then(|delta| delta.op_rate(op))));
    }
    push("hit_ratio", &share(delta.as_ref().and_then(Delta::hit_ratio)));
    push("errors_per_s", &rounded(delta.as_ref().and_then(|delta| delta.rate("errors"))));
    for (name, quantile) in [("service_us_p50", 0.5), ("service_us_p99", 0.99), ("service_us_p99.9", 0.999)] {
        let ns = delta.as_ref().and_then(|delta| delta.service_ns(quantile));
        push(name, &ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.3}", ns as f64 / 1e3)));
    }
    for (name, quantile) in [("batch_requests_p50", 0.5), ("batch_requests_p99", 0.99)] {
        let requests = delta.as_ref().and_then(|delta| delta.batch_requests(quantile));
        push(name, &requests.map_or_else(|| "-".to_owned(), |requests| requests.to_string()));
    }
    for name in INFO_FIELDS {
        push(name, to.text(name).unwrap_or("-"));
    }
    push("resident", &share(to.share("resident_len_bytes", "file_len_bytes")));
    push("verified", &share(to.share("blocks_verified", "blocks")));
    line
}

fn rounded(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}"))
}

fn share(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{share:.4}"))
}

/// If no response arrives for this time, the server is reported as not responding.
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(3);

type SampleResult = Result<Sample, String>;

struct Sampler {
    socket: PathBuf,
    results: Receiver<SampleResult>,
    interval: Duration,
    /// The time at which [`Sampler::next`] last returned a sample or an error.
    last_result_at: Instant,
}

impl Sampler {
    /// Takes the first sample, and starts a thread that takes all further samples. Fails if the first sample fails.
    fn start(address: Address, interval: Duration) -> anyhow::Result<(Sample, Sampler)> {
        let socket = address.socket.clone();
        let mut server = Server { address, client: None };
        let first = run_within(RESPONSE_TIME_MAX, move || server.sample().map(|sample| (sample, server)))?;
        let (sample, mut server) = first.ok_or_else(|| anyhow!(no_response(&socket)))??;
        let (sender, results) = mpsc::channel();
        spawn(move || {
            let mut due = Instant::now();
            loop {
                // Samples that are overdue are skipped.
                due = (due + interval).max(Instant::now());
                thread::sleep(due.saturating_duration_since(Instant::now()));
                if sender.send(server.sample().map_err(|error| error.to_string())).is_err() {
                    return;
                }
            }
        })?;
        Ok((sample, Sampler { socket, results, interval, last_result_at: Instant::now() }))
    }

    /// Waits at most `wait` for the next result, and returns the result, or `None` if there is none yet. Returns an
    /// error if the next sample is overdue by more than [`RESPONSE_TIME_MAX`].
    fn next(&mut self, wait: Duration) -> Option<SampleResult> {
        let deadline = self.last_result_at + self.interval + RESPONSE_TIME_MAX;
        let result = match self.results.recv_timeout(wait.min(deadline.saturating_duration_since(Instant::now()))) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => Err(no_response(&self.socket)),
            Err(RecvTimeoutError::Timeout) => return None,
            Err(RecvTimeoutError::Disconnected) => Err("the thread that samples the server has ended".to_owned()),
        };
        self.last_result_at = Instant::now();
        Some(result)
    }
}

fn no_response(socket: &Path) -> String {
    format!("{}: no response for {} s", socket.display(), RESPONSE_TIME_MAX.as_secs())
}

struct Server {
    address: Address,
    client: Option<Client>,
}

impl Server {
    fn sample(&mut self) -> Result<Sample, ClientError> {
        // If this sample fails, the server may have closed the idle connection or may have been restarted. The client
        // therefore connects again once.
        if let Some(Ok(sample)) = self.client.as_mut().map(sample) {
            return Ok(sample);
        }
        self.client = None;
        let mut client = self.address.connect()?;
        let sample = sample(&mut client)?;
        self.client = Some(client);
        Ok(sample)
    }
}

fn sample(client: &mut Client) -> Result<Sample, ClientError> {
    let info = client.info()?;
    Ok(Sample::new(Instant::now(), info.iter()))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_line_lists_rates_and_info_fields_with_dashes_for_unknown_values() {
        let start = Instant::now();
        let from = [("pid", "7"), ("uptime_s", "1"), ("requests_get", "0"), ("hits", "0"), ("misses", "0")];
        let from = from.into_iter().chain([("service_ns_buckets", "")]);
        let to = [("pid", "7"), ("uptime_s", "3"), ("requests_get", "8000"), ("hits", "7500"), ("misses", "500")];
        let more = [
            ("generation", "3"),
            ("blocks", "4"),
            ("blocks_verified", "1"),
            ("state", "serving"),
            ("service_ns_buckets", "999:99 1999:1"),
        ];
        let from = Sample::new(start, from);
        let to = Sample::new(start + Duration::from_secs(2), to.into_iter().chain(more));
        assert_eq!(
            line(&from, &to),
            "requests_per_s=4000 get_per_s=4000 hit_ratio=0.9375 errors_per_s=- service_us_p50=0.999 \
             service_us_p99=0.999 service_us_p99.9=1.999 batch_requests_p50=- batch_requests_p99=- connections=- \
             generation=3 digest=- state=serving swaps=- refused_files=- faults=- uptime_s=3 resident=- verified=0.2500"
        );
        let restarted = line(&to, &from);
        assert!(restarted.starts_with("requests_per_s=- get_per_s=- hit_ratio=- errors_per_s=- "), "{restarted}");
    }
}
