//! Draws the chart. Its bars show the time per get of engines, and the requests per second of servers.

use std::fmt::Write;

use crate::measure::{Figure, Table};
use crate::report::{Report, grouped};
use crate::server::{CLIENTS, DEPTHS, Line, Plan};

const WIDTH: usize = 760;
/// The x coordinate of the left end of all bars.
const BARS_AT: usize = 210;
/// The length of the longest bar, in the chart's pixels.
const BAR_LEN_MAX: f64 = 440.0;
const ROW_HEIGHT: usize = 26;

/// The chart's style sheet, which follows the reader's color scheme and highlights Zero-KV's bars.
const STYLE: &str = "<style>\
    text{font:13px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1f2328}\
    .title{font-size:15px;font-weight:600}.note{font-size:12px;fill:#59636e}\
    .ours{fill:#0969da}.peer{fill:#afb8c1}\
    @media(prefers-color-scheme:dark){text{fill:#e6edf3}.note{fill:#9198a1}.ours{fill:#4493f8}.peer{fill:#57606a}}\
    </style>";

struct Bar {
    name: String,
    value: f64,
    label: String,
}

struct Panel {
    title: String,
    note: String,
    bars: Vec<Bar>,
}

/// Returns a chart with a panel for engines and a panel for servers. Each panel shows the results for the table with a
/// million rows, or for the last table if no table has a million rows.
pub(crate) fn svg(report: &Report) -> String {
    let tables: Vec<&Table> = report.tables.iter().filter(|table| !table.plan.mixed).collect();
    let table = tables.iter().find(|table| table.plan.rows.count == 1_000_000).or(tables.last());
    let servers = report.servers.iter().find(|(plan, _)| plan.rows.count == 1_000_000).or(report.servers.last());
    let panels = [table.map(|table| engines(table)), servers.map(|(plan, lines)| servers_panel(plan, lines))];
    let mut body = String::new();
    let mut y = 16;
    for panel in panels.into_iter().flatten().filter(|panel| !panel.bars.is_empty()) {
        y = draw(&panel, y, &mut body);
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{y}\" viewBox=\"0 0 {WIDTH} {y}\" \
         role=\"img\" aria-label=\"Zero-KV and its peers\">{STYLE}\n{body}</svg>\n"
    )
}

fn engines(table: &Table) -> Panel {
    let mut bars = Vec::new();
    for column in &table.columns {
        let name = column.engine.name;
        let figures = [(name.to_owned(), Figure::GetNs), (format!("{name}, batches of 256"), Figure::BatchNs)];
        for (name, figure) in figures {
            if let Some(value) = column.median(figure) {
                bars.push(Bar { name, value, label: format!("{value:.0} ns") });
            }
        }
    }
    bars.sort_by(|a, b| a.value.total_cmp(&b.value));
    Panel {
        title: "Random gets in one process: time per get, shorter is better".to_owned(),
        note: note(table.plan.rows.count, table.plan.rows.value_len_bytes, "one thread, every byte read"),
        bars,
    }
}

fn servers_panel(plan: &Plan, lines: &[Line]) -> Panel {
    let depth = DEPTHS[DEPTHS.len() - 1];
    let bar = |line: &Line| {
        let (value, _) = line.medians(depth)?;
        Some(Bar { name: line.name.to_owned(), value, label: format!("{:.1} M/s", value / 1e6) })
    };
    let mut bars: Vec<Bar> = lines.iter().filter_map(bar).collect();
    bars.sort_by(|a, b| b.value.total_cmp(&a.value));
    let load = format!("{CLIENTS} clients, {depth} requests in flight each");
    Panel {
        title: "Gets over a Unix socket: requests per second, longer is better".to_owned(),
        note: note(plan.rows.count, plan.rows.value_len_bytes, &load),
        bars,
    }
}

fn note(rows: u64, value_len_bytes: usize, load: &str) -> String {
    format!("{} rows, values of {value_len_bytes} bytes, {load}", grouped(rows))
}

/// Draws a panel whose top is at the y coordinate `y`. Returns the y coordinate of the next panel's top.
fn draw(panel: &Panel, y: usize, body: &mut String) -> usize {
    let longest = panel.bars.iter().map(|bar| bar.value).fold(f64::MIN_POSITIVE, f64::max);
    // Writing to a string cannot fail.
    let _ = writeln!(body, "<text class=\"title\" x=\"16\" y=\"{}\">{}</text>", y + 14, panel.title);
    let _ = writeln!(body, "<text class=\"note\" x=\"16\" y=\"{}\">{}</text>", y + 33, panel.note);
    let mut at = y + 46;
    for bar in &panel.bars {
        let len = (bar.value / longest * BAR_LEN_MAX).max(1.0);
        let class = if bar.name.starts_with("Zero-KV") { "ours" } else { "peer" };
        let text_y = at + 14;
        let _ = writeln!(
            body,
            "<text x=\"{}\" y=\"{text_y}\" text-anchor=\"end\">{}</text>\
             <rect class=\"{class}\" x=\"{BARS_AT}\" y=\"{at}\" width=\"{len:.1}\" height=\"18\" rx=\"2\"/>\
             <text x=\"{:.1}\" y=\"{text_y}\">{}</text>",
            BARS_AT - 10,
            bar.name,
            BARS_AT as f64 + len + 8.0,
            bar.label
        );
        at += ROW_HEIGHT;
    }
    at + 18
}
