//! A coarse histogram of latencies, for the text output and the HTML page.

use std::fmt::Write;

use hdrhistogram::Histogram;
use indicatif::{HumanCount, HumanFloatCount};

/// Bounds of the bins in the decade from 100 ns to 1 µs. In all other decades, these bounds are multiplied by a power
/// of ten.
const STEPS_NS: &[u64] = &[100, 150, 200, 300, 500, 700];
const BAR_LEN_MAX: f64 = 40.0;

/// A bin of the histogram: the number of latencies that are at least `from_ns` and less than `to_ns`.
#[derive(Debug, PartialEq)]
pub(crate) struct Bin {
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
    pub(crate) count: u64,
}

/// Returns the bins from the first nonempty one to the last nonempty one.
pub(crate) fn bins(latency_ns: &Histogram<u64>) -> Vec<Bin> {
    let mut bins: Vec<Bin> = Vec::new();
    let mut bounds = bounds_ns().peekable();
    for step in latency_ns.iter_recorded() {
        let latency_ns = step.value_iterated_to();
        while bins.last().is_none_or(|bin| bin.to_ns <= latency_ns) {
            let from_ns = bins.last().map_or(0, |bin| bin.to_ns);
            let Some(to_ns) = bounds.next() else { break };
            bins.push(Bin { from_ns, to_ns, count: 0 });
        }
        if let Some(bin) = bins.last_mut() {
            bin.count += step.count_since_last_iteration();
        }
    }
    let first = bins.iter().position(|bin| bin.count > 0).unwrap_or(bins.len());
    bins.drain(..first);
    bins
}

/// Returns the upper bounds of the bins in ascending order. The first bound is 100 ns.
fn bounds_ns() -> impl Iterator<Item = u64> {
    (0..17).flat_map(|decade| STEPS_NS.iter().map(move |step| step * 10u64.pow(decade))).chain([u64::MAX])
}

/// Formats nanoseconds as microseconds. Latencies below 10 µs get one decimal, unless they are whole microseconds.
pub(crate) fn format_us(ns: u64) -> String {
    match ns {
        ns if ns < 10_000 && !ns.is_multiple_of(1000) => format!("{:.1}", ns as f64 / 1e3),
        ns => HumanCount(ns / 1000).to_string(),
    }
}

/// Formats nanoseconds as ns, µs, ms, or s, with up to three decimals.
pub(crate) fn format_latency(ns: f64) -> String {
    let (divisor, unit) = match ns {
        ns if ns < 1e3 => (1.0, "ns"),
        ns if ns < 1e6 => (1e3, "µs"),
        ns if ns < 1e9 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    format!("{} {unit}", HumanFloatCount((ns / divisor * 1e3).round() / 1e3))
}

/// Formats one line per bin with its bounds, its share, and a bar. The text has no colors, so it can be piped.
pub(crate) fn format_lines(latency_ns: &Histogram<u64>) -> String {
    let bins = bins(latency_ns);
    let total = bins.iter().map(|bin| bin.count).sum::<u64>().max(1) as f64;
    let largest = bins.iter().map(|bin| bin.count).max().unwrap_or(1) as f64;
    let mut text = String::new();
    for bin in &bins {
        let eighths = (bin.count as f64 / largest * BAR_LEN_MAX * 8.0).round() as usize;
        let end = [None, Some('▏'), Some('▎'), Some('▍'), Some('▌'), Some('▋'), Some('▊'), Some('▉')][eighths % 8];
        let bar: String = std::iter::repeat_n('█', eighths / 8).chain(end).collect();
        let (from, to, share) = (format_us(bin.from_ns), format_us(bin.to_ns), bin.count as f64 / total * 100.0);
        let line = format!("{from:>9} - {to:>9} µs {share:6.2}% {bar}");
        let _ = write!(text, "\n{}", line.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_is_in_one_bin() {
        let mut latency_ns = Histogram::new(3).unwrap();
        for ns in [1, 99, 100, 149, 1_000, 1_000_000, 5_000_000_000, u64::MAX / 4] {
            latency_ns.record(ns).unwrap();
        }
        let bins = bins(&latency_ns);
        assert_eq!(bins.iter().map(|bin| bin.count).sum::<u64>(), 8);
        assert_eq!(bins[0], Bin { from_ns: 0, to_ns: 100, count: 2 });
        assert_eq!(bins[1], Bin { from_ns: 100, to_ns: 150, count: 2 });
        assert!(bins.iter().zip(&bins[1..]).all(|(bin, next)| bin.to_ns == next.from_ns));
    }

    #[test]
    fn an_empty_histogram_has_no_lines() {
        assert_eq!(format_lines(&Histogram::new(3).unwrap()), "");
    }
}
