//! The report of a run as one HTML page: results, charts, parameters, and machine.
//!
//! In: a report. Out: HTML that needs no other file, no script, and no network. The page is also well-formed XML.

use std::fmt::{Display, Write};
use std::time::SystemTime;

use indicatif::{BinaryBytes, DecimalBytes, HumanCount};

use crate::load::Outcome;
use crate::report::{self, Report};
use crate::svg::{Axis, Band, Chart, escaped};
use crate::tally::Interval;

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1d2330; --dim: #667; --grid: #dde1e8; --paper: #fff; --ours: #2563eb;
  --other: #b45309; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ef; --dim: #9aa3b2; --grid: #303744; --paper: #14171d; --ours: #6ea0ff; --other: #f0a84a; }
}
body { margin: 2rem auto; max-width: 1600px; padding: 0 1rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; }
main { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 1rem 2rem; }
section { min-width: 0; }
.headline { font-size: 2rem; font-weight: 600; margin: 0; }
.dim { color: var(--dim); }
table { border-collapse: collapse; }
td, th { padding: .15rem 1.5rem .15rem 0; text-align: left; vertical-align: top; font-weight: normal; }
th { color: var(--dim); } td { font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
svg { width: 100%; max-width: 720px; height: auto; } pre { white-space: pre-wrap; overflow-wrap: anywhere; }
svg text { fill: var(--dim); font-size: 12px; } svg .label { text-anchor: middle; }
svg text.ours, svg text.other { stroke: none; } svg text.ours { fill: var(--ours); }
svg text.other { fill: var(--other); }
.grid { stroke: var(--grid); } .line { fill: none; stroke-width: 2; } .ours { stroke: var(--ours); }
.other { stroke: var(--other); } .bar { fill: var(--ours); } .band { opacity: .14; }
.band.ours { fill: var(--ours); stroke: none; } .band.other { fill: var(--other); stroke: none; }
";

/// Number of ticks of the percentile axis: 0%, 90%, 99%, and so on.
const PERCENTILE_TICKS: u32 = 8;
/// Number of points of the percentile curve in each of these intervals: 0% to 50%, 50% to 75%, 75% to 87.5%, and so on.
const POINTS_PER_HALVING: u32 = 5;

pub(crate) fn render(report: &Report<'_>) -> String {
    let outcome = report.outcome;
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" \
         content=\"width=device-width\"/>\n<title>Zero-KV benchmark</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <h1>Zero-KV benchmark</h1>\n<p class=\"headline\">{} requests/s</p>\n",
        HumanCount(outcome.requests_per_second() as u64),
    );
    let when = humantime::format_rfc3339_seconds(SystemTime::now());
    let _ = writeln!(page, "<p class=\"dim\">{when}</p>\n<main>");
    table(&mut page, "Results", &results(report));
    section(&mut page, "Latency of a pipeline by percentile", &percentiles(outcome).svg());
    section(&mut page, "Requests per second over time", &throughput(report));
    section(&mut page, "Distribution of pipeline latencies", &histogram(outcome).svg());
    table(&mut page, "Parameters", &parameters(report));
    table(&mut page, "Machine", &machine());
    if let Some(memory) = report.memory {
        section(&mut page, "Memory", &format!("<pre>{}</pre>", escaped(&memory.text())));
    }
    page += "</main>\n</body>\n</html>\n";
    page
}

type Rows = Vec<(&'static str, String)>;

fn section(page: &mut String, title: &str, content: &str) {
    let _ = writeln!(page, "<section>\n<h2>{title}</h2>\n{content}</section>");
}

fn table(page: &mut String, title: &str, rows: &Rows) {
    let row =
        |(name, value): &(&str, String)| format!("<tr><th>{}</th><td>{}</td></tr>\n", escaped(name), escaped(value));
    let rows: String = rows.iter().map(row).collect();
    section(page, title, &format!("<table>\n{rows}</table>\n"));
}

fn results(report: &Report<'_>) -> Rows {
    let (outcome, tally) = (report.outcome, &report.outcome.tally);
    let count = |number: u64| HumanCount(number).to_string();
    let mut rows = vec![
        ("requests", count(tally.requests)),
        ("measured", format!("{:.2} s", outcome.elapsed.as_secs_f64())),
        ("hits", format!("{:.2}%", report.hit_rate() * 100.0)),
        ("errors", count(outcome.errors())),
        ("received", format!("{}/s", DecimalBytes(outcome.per_second(tally.response_bytes) as u64))),
    ];
    rows.extend(report.latencies_us().map(|(name, us)| (name, report::format_latency((us * 1e3).round()))));
    if report.args.rate.is_some() {
        rows.push(("scheduled, not sent", format!("{} requests", HumanCount(tally.unsent_requests))));
    }
    if let Some(ceiling) = report.ceiling {
        let per_second = HumanCount(ceiling.outcome.requests_per_second() as u64);
        rows.push((
            "ceiling",
            format!("{per_second} requests/s, responses of {:.2} bytes", ceiling.response_len_bytes),
        ));
        let (min, max) = ceiling.ratio_min_max();
        let ratio = ceiling.ratio(outcome);
        rows.push(("server / ceiling", format!("{ratio:.3} (rounds from {min:.3} to {max:.3})")));
    }
    rows
}

fn parameters(report: &Report<'_>) -> Rows {
    let args = report.args;
    let text = |value: &dyn Display| value.to_string();
    vec![
        ("protocol", args.protocol.name().to_owned()),
        ("clients", HumanCount(args.clients.into()).to_string()),
        ("requests per pipeline", HumanCount(args.pipeline.into()).to_string()),
        ("sent", args.rate.map_or("back to back".to_owned(), |rate| format!("{} requests/s", HumanCount(rate)))),
        ("ops", text(&args.op)),
        ("distribution", args.distribution_name()),
        ("miss ratio", text(&args.miss_ratio)),
        ("values verified", if args.verify { "yes" } else { "no" }.to_owned()),
        ("seed", text(&args.seed)),
        ("seconds", text(&args.seconds)),
        ("warm-up", format!("{} s", args.warmup)),
        ("file", args.db.display().to_string()),
        ("socket", args.socket().display().to_string()),
        ("benchmarker", env!("CARGO_PKG_VERSION").to_owned()),
    ]
}

fn machine() -> Rows {
    let field = |path: &str, name: &str| {
        let text = std::fs::read_to_string(path).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'));
        line.map(|value| value.trim().to_owned())
    };
    let unknown = || "unknown".to_owned();
    let memory = field("/proc/meminfo", "MemTotal");
    let memory = memory.and_then(|memory| Some(memory.strip_suffix(" kB")?.parse::<u64>().ok()? * 1024));
    let cpus = std::thread::available_parallelism().map_or_else(|_| unknown(), |cpus| cpus.to_string());
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").map(|text| text.trim().to_owned());
    vec![
        ("processor", field("/proc/cpuinfo", "model name").unwrap_or_else(unknown)),
        ("processors", cpus),
        ("memory", memory.map_or_else(unknown, |memory| BinaryBytes(memory).to_string())),
        ("Linux", kernel.unwrap_or_else(|_| unknown())),
    ]
}

/// Charts latency by percentile. The x axis shows quantile p at the logarithm of 1/(1-p), so the distances between 90%,
/// 99%, and 99.9% are equal.
fn percentiles(outcome: &Outcome) -> Chart {
    let latency_ns = &outcome.tally.latency_ns;
    let ticks = (0..PERCENTILE_TICKS).map(|nines| match nines {
        0 => (1.0, "0%".to_owned()),
        1 => (10.0, "90%".to_owned()),
        2 => (100.0, "99%".to_owned()),
        nines => (10f64.powi(nines as i32), format!("99.{}%", "9".repeat(nines as usize - 2))),
    });
    let x = Axis::log("percentile", latency_ns.len() as f64, ticks.collect());
    let (min, max) = (latency_ns.min().max(1) as f64, latency_ns.max().max(1) as f64);
    let y = Axis::log_ticks("latency", min, max, report::format_latency);
    let mut chart = Chart::new(x, y);
    let points = latency_ns.iter_quantiles(POINTS_PER_HALVING).map(|step| {
        let rarity = 1.0 / (1.0 - step.quantile_iterated_to()).max(1e-12);
        (rarity, step.value_iterated_to().min(latency_ns.max()) as f64)
    });
    chart.line("ours", points);
    chart
}

/// Charts the rates of the tested server and of the server without lookups (the ceiling) in each interval. The turns of
/// the two servers follow each other without the warm-ups between them.
fn throughput(report: &Report<'_>) -> String {
    let rate = |interval: &Interval| interval.tally.requests as f64 / interval.len.as_secs_f64();
    let seconds = |turn: &[Interval]| turn.iter().map(|interval| interval.len.as_secs_f64()).sum::<f64>();
    let ceiling = report.ceiling.map_or(&[][..], |ceiling| &ceiling.outcome.intervals);
    let turns = turns(&report.outcome.intervals, ceiling);
    let intervals = || turns.iter().flat_map(|(_, _, turn)| turn.iter());
    let total = turns.iter().map(|(_, _, turn)| seconds(turn)).sum();
    let x = Axis::linear("measured seconds", 0.0, total, |at| format!("{}", (at * 1e3).round() / 1e3));
    let rate_max = intervals().map(rate).fold(0.0, f64::max);
    let y = Axis::linear("requests/s", 0.0, rate_max, |rate| HumanCount(rate as u64).to_string());
    let mut chart = Chart::new(x.ending_at(total), y);
    if report.ceiling.is_some() {
        let mut to = 0.0;
        let bands = turns.iter().map(|(class, label, turn)| {
            let from = to;
            to += seconds(turn);
            Band { class, from, to, label: label.clone() }
        });
        chart = chart.with_bands(&bands.collect::<Vec<_>>());
    }
    let mut start = 0.0;
    for (class, _, turn) in &turns {
        let mut end = start;
        let points = turn.iter().map(|interval| {
            let len = interval.len.as_secs_f64();
            end += len;
            (end - len / 2.0, rate(interval))
        });
        chart.line(class, points);
        start += seconds(turn);
    }
    chart.svg()
}

/// Returns the turns of both servers in the order in which they ran, each with its CSS class and its label.
fn turns<'i>(server: &'i [Interval], ceiling: &'i [Interval]) -> Vec<(&'static str, String, &'i [Interval])> {
    let mut turns = Vec::new();
    for (class, name, intervals) in [("ours", "server", server), ("other", "ceiling", ceiling)] {
        let each = intervals.chunk_by(|one, next| next.started == one.started + one.len);
        turns.extend(each.enumerate().map(|(number, turn)| (class, format!("{name} {}", number + 1), turn)));
    }
    turns.sort_by_key(|(_, _, turn)| turn[0].started);
    turns
}

fn histogram(outcome: &Outcome) -> Chart {
    let bins = report::bins(&outcome.tally.latency_ns);
    let total = bins.iter().map(|bin| bin.count).sum::<u64>().max(1) as f64;
    let share = |count: u64| count as f64 / total * 100.0;
    let share_max = bins.iter().map(|bin| share(bin.count)).fold(0.0, f64::max);
    let ticks = bins
        .iter()
        .enumerate()
        .map(|(index, bin)| (index as f64, report::format_latency(bin.from_ns as f64)))
        .collect();
    let y = Axis::linear("% of pipelines", 0.0, share_max, |percent| format!("{}", (percent * 1e3).round() / 1e3));
    let mut chart = Chart::new(Axis::for_bars("latency", bins.len(), ticks), y);
    for (index, bin) in bins.iter().enumerate() {
        let [from, to] = [bin.from_ns, bin.to_ns].map(|ns| report::format_latency(ns as f64));
        let title = format!("{from} to {to}: {} pipelines, {:.3}%", HumanCount(bin.count), share(bin.count));
        chart.bar(index as f64, index as f64 + 1.0, share(bin.count), &title);
    }
    chart
}
