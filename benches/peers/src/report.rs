//! Formats the report as Markdown, and its tables as figures.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use crate::engine::UnavailableEngine;
use crate::figures::{FigureTable, Figures, Origin};
use crate::machine::commit;
use crate::measure::{Figure, Table};
use crate::resp::Comparison;
use crate::rows::{MIXED_GETS, MIXED_SCANS, Rows, SCAN_ROWS, SHORT_SCAN_ROWS};
use crate::server::{CLIENTS, DEPTHS, Line, Plan};

/// The results of a run.
pub(crate) struct Report {
    pub(crate) tables: Vec<Table>,
    pub(crate) servers: Vec<(Plan, Vec<Line>)>,
    pub(crate) comparisons: Vec<(Plan, Comparison)>,
    pub(crate) unavailable: Vec<UnavailableEngine>,
    origin: Origin,
}

impl Report {
    pub(crate) fn new(origin: Origin) -> Report {
        Report { tables: Vec::new(), servers: Vec::new(), comparisons: Vec::new(), unavailable: Vec::new(), origin }
    }

    /// Returns the figures of the run, in tables whose names state the rows.
    pub(crate) fn figures(&self) -> Figures {
        let mut figures = Figures::default();
        for table in &self.tables {
            let name = if table.plan.mixed { "mixed-load".to_owned() } else { name_of("engines", table.plan.rows) };
            figures.insert(name, engines(table, &self.origin));
        }
        for (plan, lines) in &self.servers {
            figures.insert(name_of("servers", plan.rows), servers(plan, lines, &self.origin));
        }
        for (plan, comparison) in &self.comparisons {
            figures.insert(name_of("redis-protocol", plan.rows), protocols(plan, comparison, &self.origin));
        }
        figures
    }
}

/// Returns the name of a table of figures.
fn name_of(kind: &str, rows: Rows) -> String {
    format!("{kind}-{}x{}", rows.count, rows.value_len_bytes)
}

/// Describes the rows of a table.
pub(crate) fn load_of(rows: Rows) -> String {
    format!("{} rows with values of {} bytes", grouped(rows.count), rows.value_len_bytes)
}

impl Display for Report {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        writeln!(out, "# Zero-KV and its peers\n")?;
        let Origin { command, machine, date } = &self.origin;
        writeln!(out, "- Reproduce: `{command}`\n- Machine: {machine}\n- Date: {date}")?;
        if let Some(commit) = commit() {
            writeln!(out, "- Commit: {commit}")?;
        }
        self.tables.iter().try_for_each(|table| self.table_of(table, out))?;
        self.servers.iter().try_for_each(|(plan, lines)| self.servers_of(plan, lines, out))?;
        self.comparisons.iter().try_for_each(|(plan, comparison)| self.comparison_of(plan, comparison, out))
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
        ("read at cold open, MB", Figure::ColdReadBytes, 2),
    ];
    if table.plan.mixed {
        titles.insert(0, ("mixed, ns", Figure::MixedNs, 0));
    }
    titles
}

fn engines(table: &Table, origin: &Origin) -> FigureTable {
    let titles = titles(table);
    let columns: Vec<&str> = ["engine"].into_iter().chain(titles.iter().map(|(title, ..)| *title)).collect();
    let mut figures = FigureTable::new(load_of(table.plan.rows), origin, &columns);
    for column in table.columns.iter().filter(|column| column.failure.is_none()) {
        let cell = |(_, figure, digits): &Title| {
            let scale = if matches!(figure, Figure::FileBytes | Figure::ColdReadBytes) { 1e-6 } else { 1.0 };
            or_dash(column.median(*figure).map(|median| format!("{:.digits$}", median * scale)))
        };
        figures.rows.push([column.engine.name.to_owned()].into_iter().chain(titles.iter().map(cell)).collect());
    }
    figures
}

fn servers(plan: &Plan, lines: &[Line], origin: &Origin) -> FigureTable {
    let depths = DEPTHS.map(|depth| format!("{depth} in flight"));
    let columns: Vec<&str> = ["server"].into_iter().chain(depths.iter().map(|depth| &**depth)).collect();
    let mut figures = FigureTable::new(load_of(plan.rows), origin, &[&columns[..], &["resident, MB"]].concat());
    for line in lines.iter().filter(|line| line.failure.is_none()) {
        let rates = DEPTHS
            .map(|depth| or_dash(line.medians(depth).map(|(rate, us)| format!("{:.2} ({us:.0} µs)", rate / 1e6))));
        let resident = or_dash(line.resident_bytes.map(|bytes| format!("{:.1}", bytes as f64 / 1e6)));
        figures.rows.push([line.name.to_owned()].into_iter().chain(rates).chain([resident]).collect());
    }
    figures
}

fn protocols(plan: &Plan, comparison: &Comparison, origin: &Origin) -> FigureTable {
    let columns = ["load", "in flight", "Redis", "kv_store", "ratio"];
    let mut figures = FigureTable::new(load_of(plan.rows), origin, &columns);
    for line in &comparison.lines {
        let medians = line.medians();
        let cells =
            medians.map(|(redis, ours, ratio)| [redis / 1e6, ours / 1e6, ratio].map(|cell| format!("{cell:.2}")));
        let cells = cells.unwrap_or_else(|| ["–"; 3].map(str::to_owned));
        figures.rows.push([line.tool().to_owned(), line.depth.to_string()].into_iter().chain(cells).collect());
    }
    figures
}

fn or_dash(cell: Option<String>) -> String {
    cell.unwrap_or_else(|| "–".to_owned())
}

impl Report {
    fn table_of(&self, table: &Table, out: &mut Formatter<'_>) -> fmt::Result {
        let plan = &table.plan;
        let mixed = if plan.mixed { "Mixed load: " } else { "" };
        writeln!(out, "\n## {mixed}{}\n", load_of(plan.rows))?;
        let (gets, scans) = (grouped(plan.amounts.gets as u64), grouped(plan.amounts.scans as u64));
        writeln!(
            out,
            "One thread, medians of {} rounds (builds {}) of {gets} gets, {gets} misses, {gets} floors, and {scans} scans \
             of {SCAN_ROWS} rows from a key on; engines alternate.\n\
             A floor is the row with the largest key at or below the requested key; half of the requested keys are present. \
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
        writeln!(out, "\n{}", engines(table, &self.origin))?;
        versions(table.columns.iter().map(|column| (column.engine.name, &*column.engine.version)), out)?;
        let failures = table.columns.iter().filter_map(|column| Some((column.engine.name, column.failure.as_ref()?)));
        let unavailable = self.unavailable.iter().map(|unavailable| (unavailable.name, &unavailable.reason));
        not_measured(failures.chain(unavailable), out)
    }

    fn servers_of(&self, plan: &Plan, lines: &[Line], out: &mut Formatter<'_>) -> fmt::Result {
        writeln!(out, "\n## Servers: {}\n", load_of(plan.rows))?;
        writeln!(
            out,
            "Unix sockets, {CLIENTS} clients of one load thread on the servers' machine, each with the given number of \
             requests in flight; all keys are present. Million responses per second, and in parentheses the median time per \
             pipeline; medians of {} alternating rounds of {} s. Resident memory includes a mapped file.\n",
            plan.rounds,
            plan.timed.as_secs_f64()
        )?;
        writeln!(out, "{}", servers(plan, lines, &self.origin))?;
        versions(lines.iter().map(|line| (line.name, &*line.version)), out)?;
        not_measured(lines.iter().filter_map(|line| Some((line.name, line.failure.as_ref()?))), out)
    }

    fn comparison_of(&self, plan: &Plan, comparison: &Comparison, out: &mut Formatter<'_>) -> fmt::Result {
        writeln!(out, "\n## Redis's protocol: {}\n", load_of(plan.rows))?;
        writeln!(
            out,
            "Redis and kv_store alternately, over Unix sockets, {CLIENTS} clients that GET keys of the table; million \
             replies per second, medians of {} rounds of {} s.\n",
            plan.rounds,
            plan.timed.as_secs_f64()
        )?;
        writeln!(out, "{}", protocols(plan, comparison, &self.origin))?;
        not_measured(comparison.failure.iter().map(|failure| ("Redis's protocol", failure)), out)
    }
}

/// Lists the versions of engines or servers.
fn versions<'r>(versions: impl Iterator<Item = (&'r str, &'r str)>, out: &mut Formatter<'_>) -> fmt::Result {
    let versions: Vec<String> = versions.map(|(name, version)| format!("{name} {version}")).collect();
    writeln!(out, "\nVersions: {}.", versions.join(", "))
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
fn grouped(number: u64) -> String {
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
