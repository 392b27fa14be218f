//! What a server does, as a line an interval, for what is no terminal.
//!
//! In: two samples. Out: `name=value` pairs, always the same; what is not known
//! is `-`.

use std::fmt::Write as _;

use super::sample::{Sample, Span};

/// Values as the server says them.
const SAID: [&str; 8] =
    ["connections", "generation", "digest", "state", "swaps", "refused_files", "faults", "uptime_s"];

pub(super) fn line(from: &Sample, to: &Sample) -> String {
    let span = Span::between(from, to);
    let mut line = format!("requests_per_s={}", rounded(span.as_ref().and_then(Span::request_rate)));
    let mut push = |name: &str, value: &str| {
        let _ = write!(line, " {name}={value}");
    };
    for op in to.ops() {
        push(&format!("{op}_per_s"), &rounded(span.as_ref().and_then(|span| span.op_rate(op))));
    }
    push("hit_ratio", &share(span.as_ref().and_then(Span::hit_ratio)));
    push("errors_per_s", &rounded(span.as_ref().and_then(|span| span.rate("errors"))));
    for (name, share) in [("service_us_p50", 0.5), ("service_us_p99", 0.99), ("service_us_p99.9", 0.999)] {
        let ns = span.as_ref().and_then(|span| span.service_ns(share));
        push(name, &ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.3}", ns as f64 / 1e3)));
    }
    for (name, share) in [("batch_requests_p50", 0.5), ("batch_requests_p99", 0.99)] {
        let requests = span.as_ref().and_then(|span| span.batch_requests(share));
        push(name, &requests.map_or_else(|| "-".to_owned(), |requests| requests.to_string()));
    }
    for name in SAID {
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
    fn a_line_says_rates_and_what_the_server_says_and_a_dash_where_nothing_is_known() {
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
