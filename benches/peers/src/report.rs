//! Formats the report as Markdown.

use std::collections::BTreeMap;
use std::env;
use std::fmt::{self, Display, Formatter};

use crate::engine::UnavailableEngine;
use crate::machine::{commit, date, kernel, machine};
use crate::measure::{Figure, Table};
use crate::resp::Comparison;
use crate::rows::{MIXED_GETS, MIXED_SCANS, SCAN_ROWS, SHORT_SCAN_ROWS};
use crate::server::{CLIENTS, DEPTHS, Line, Plan};

/// The results of a run.
pub(crate) struct Report {
    pub(crate) tables: Vec<Table>,
    pub(crate) servers: Vec<(Plan, Vec<Line>)>,
    pub(crate) comparisons: Vec<(Plan, Comparison)>,
    pub(crate) unavailable: Vec<UnavailableEngine>,
    started: String,
}

impl Report {
    pub(crate) fn new() -> Report {
        Report {
            tables: Vec::new(),
            servers: Vec::new(),
            comparisons: Vec::new(),
            unavailable: Vec::new(),
            started: date(),
        }
    }
}

impl Display for Report {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        writeln!(out, "# Zero-KV and its peers\n")?;
        let arguments: Vec<String> = env::args().skip(1).map(|argument| format!(" {argument}")).collect();
        writeln!(out, "- Reproduce: `benches/peers/run.sh{}`", arguments.concat())?;
        writeln!(out, "- Machine: {}, Linux {}", machine(), kernel())?;
        writeln!(out, "- Begun: {}", self.started)?;
        if let Some(commit) = commit() {
            writeln!(out, "- Commit: {commit}")?;
        }
        self.tables.iter().try_for_each(|table| table_of(table, &self.unavailable, out))?;
        self.servers.iter().try_for_each(|(plan, lines)| servers_of(plan, lines, out))?;
        self.comparisons.iter().try_for_each(|(plan, comparison)| comparison_of(plan, comparison, out))
    }
}

/// A column of a table: its title, its figure, and its number of decimals.
type Title = (&'static str, Figure, usize);

fn titles(table: &Table) -> Vec<Title> {
    let mut titles = vec![
        ("get, ns", Figure::GetNs, 0),
        ("get in batches, ns", Figure::BatchNs, 0),
        ("miss, ns", Figure::MissNs, 0),
        ("floor, ns", Figure::FloorNs, 0),
        ("floor in batches, ns", Figure::FloorBatchNs, 0),
        ("scan, µs", Figure::ScanUs, 1),
        ("build, s", Figure::BuildSeconds, 2),
        ("file, MB", Figure::FileBytes, 1),
        ("cold open, ms", Figure::ColdOpenMs, 1),
        ("read by it, MB", Figure::ColdReadBytes, 2),
    ];
    if table.plan.mixed {
        titles.insert(0, ("mixed, ns", Figure::MixedNs, 0));
    }
    titles
}

fn table_of(table: &Table, unavailable: &[UnavailableEngine], out: &mut Formatter<'_>) -> fmt::Result {
    let plan = &table.plan;
    let (count, value_len_bytes) = (grouped(plan.rows.count), plan.rows.value_len_bytes);
    let mixed = if plan.mixed { "Mixed load: " } else { "" };
    writeln!(out, "\n## {mixed}{count} rows, values of {value_len_bytes} bytes\n")?;
    let (gets, scans) = (grouped(plan.amounts.gets as u64), grouped(plan.amounts.scans as u64));
    writeln!(
        out,
        "One thread, medians of {} rounds (builds {}) of {gets} gets, {gets} misses, {gets} floors, and {scans} scans of \
         {SCAN_ROWS} rows from a key on; engines alternate.\n\
         A floor is the row with the largest key that is not above the requested one; half of the requested keys are present. \
         Zero-KV's build formats and parses CSV text.",
        plan.rounds, plan.build_rounds
    )?;
    if plan.mixed {
        let misses = 100 - MIXED_GETS - MIXED_SCANS;
        writeln!(
            out,
            "Mixed: {gets} operations, {MIXED_GETS} % gets, {MIXED_SCANS} % scans of {SHORT_SCAN_ROWS} rows, \
             {misses} % misses; ns per operation."
        )?;
    }
    let titles = titles(table);
    write!(out, "\n| engine | version |")?;
    titles.iter().try_for_each(|(title, ..)| write!(out, " {title} |"))?;
    writeln!(out, "\n|---|---|{}", "---:|".repeat(titles.len()))?;
    for column in &table.columns {
        write!(out, "| {} | {} |", column.engine.name, column.engine.version)?;
        for (_, figure, digits) in &titles {
            let scale = if matches!(figure, Figure::FileBytes | Figure::ColdReadBytes) { 1e-6 } else { 1.0 };
            match column.median(*figure) {
                Some(median) => write!(out, " {:.digits$} |", median * scale)?,
                None => write!(out, " – |")?,
            }
        }
        writeln!(out)?;
    }
    let failures = table.columns.iter().filter_map(|column| Some((column.engine.name, column.failure.as_ref()?)));
    let unavailable = unavailable.iter().map(|unavailable| (unavailable.name, &unavailable.reason));
    not_measured(failures.chain(unavailable), out)
}

fn servers_of(plan: &Plan, lines: &[Line], out: &mut Formatter<'_>) -> fmt::Result {
    let (count, value_len_bytes) = (grouped(plan.rows.count), plan.rows.value_len_bytes);
    writeln!(out, "\n## Servers: {count} rows, values of {value_len_bytes} bytes\n")?;
    writeln!(
        out,
        "Unix sockets, {CLIENTS} clients of one load thread on the servers' machine, each with the given number of requests in \
         flight; all keys are present. Million responses per second, and in parentheses the median time per pipeline; medians \
         of {} alternating rounds of {} s. Resident memory includes a mapped file.\n",
        plan.rounds,
        plan.timed.as_secs_f64()
    )?;
    write!(out, "| server | version |")?;
    DEPTHS.iter().try_for_each(|depth| write!(out, " {depth} in flight |"))?;
    writeln!(out, " resident, MB |\n|---|---|{}---:|", "---:|".repeat(DEPTHS.len()))?;
    for line in lines {
        write!(out, "| {} | {} |", line.name, line.version)?;
        for depth in DEPTHS {
            match line.medians(depth) {
                Some((rate, us)) => write!(out, " {:.2} ({us:.0} µs) |", rate / 1e6)?,
                None => write!(out, " – |")?,
            }
        }
        match line.resident_bytes {
            Some(bytes) => writeln!(out, " {:.1} |", bytes as f64 / 1e6)?,
            None => writeln!(out, " – |")?,
        }
    }
    not_measured(lines.iter().filter_map(|line| Some((line.name, line.failure.as_ref()?))), out)
}

fn comparison_of(plan: &Plan, comparison: &Comparison, out: &mut Formatter<'_>) -> fmt::Result {
    let (count, value_len_bytes) = (grouped(plan.rows.count), plan.rows.value_len_bytes);
    writeln!(out, "\n## Redis's protocol: {count} rows, values of {value_len_bytes} bytes\n")?;
    writeln!(
        out,
        "Redis and kv_store alternately, over Unix sockets, {CLIENTS} clients that GET keys of the table; million replies \
         per second, medians of {} rounds of {} s.\n",
        plan.rounds,
        plan.timed.as_secs_f64()
    )?;
    writeln!(out, "| load | in flight | Redis | Zero-KV | ratio |\n|---|---:|---:|---:|---:|")?;
    for line in &comparison.lines {
        write!(out, "| {} | {} |", line.tool(), line.depth)?;
        match line.medians() {
            Some((redis, ours, ratio)) => writeln!(out, " {:.2} | {:.2} | {ratio:.2} |", redis / 1e6, ours / 1e6)?,
            None => writeln!(out, " – | – | – |")?,
        }
    }
    not_measured(comparison.failure.iter().map(|failure| ("Redis's protocol", failure)), out)
}

/// Lists the engines and servers without results, grouped by reason.
fn not_measured<'r>(failures: impl Iterator<Item = (&'r str, &'r String)>, out: &mut Formatter<'_>) -> fmt::Result {
    let mut names_by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, reason) in failures {
        names_by_reason.entry(reason).or_default().push(name);
    }
    names_by_reason
        .iter()
        .try_for_each(|(reason, names)| writeln!(out, "\nNot measured: {}: {reason}.", names.join(", ")))
}

/// Formats a number with thousands separators.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}
