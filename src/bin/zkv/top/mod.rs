//! `zkv top`: shows live statistics of a server.
//!
//! In: a socket. Out: a screen that is redrawn, or lines, until the user quits. `sampler` requests samples, `sample`
//! computes rates and quantiles, `screen` shows them on a terminal, and `lines` formats them for other outputs. Without
//! the feature `full`, there is no screen, so terminals get lines, too.

mod sample;
mod sampler;
#[cfg(feature = "full")]
mod screen;

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

use anyhow::anyhow;
use zero_kv::printable::Printable;

use super::args::{Address, TopArgs};
use super::output::{ignore_closed_pipe, print_error, stdout_error};
use sample::{Delta, Sample};
use sampler::Sampler;

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

/// Fields of Info that are written unchanged.
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
            "requests_per_s=4000 get_per_s=4000 hit_ratio=0.9375 errors_per_s=- service_us_p50=0.999 service_us_p99=0.999 \
             service_us_p99.9=1.999 batch_requests_p50=- batch_requests_p99=- connections=- generation=3 digest=- \
             state=serving swaps=- refused_files=- faults=- uptime_s=3 resident=- verified=0.2500"
        );
        let restarted = line(&to, &from);
        assert!(restarted.starts_with("requests_per_s=- get_per_s=- hit_ratio=- errors_per_s=- "), "{restarted}");
    }
}
