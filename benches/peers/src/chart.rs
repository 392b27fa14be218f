//! Draws the chart. Its bars show the time per get of engines, and the requests per second of servers.

use std::fmt::Write;

use crate::figures::{FigureTable, Figures};
use crate::server::{CLIENTS, DEPTHS};

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

/// Returns a chart with a panel for engines and a panel for servers. Each panel shows the figures of the table with a
/// million rows, or of the last table if no table has a million rows.
pub(crate) fn svg(figures: &Figures) -> String {
    let table = |kind: &str| figures.get(&format!("{kind}-1000000x26")).or_else(|| figures.last(kind));
    let panels = [table("engines").map(engines), table("servers").map(servers)];
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

fn engines(table: &FigureTable) -> Panel {
    let mut bars = bars_of(table, "get, ns", "", "ns");
    bars.extend(bars_of(table, "get in batches, ns", ", batches of 256", "ns"));
    bars.sort_by(|a, b| a.value.total_cmp(&b.value));
    Panel {
        title: "Random gets in one process: time per get, shorter is better".to_owned(),
        note: format!("{}, one thread, every byte read", table.load),
        bars,
    }
}

fn servers(table: &FigureTable) -> Panel {
    let depth = DEPTHS[DEPTHS.len() - 1];
    let mut bars = bars_of(table, &format!("{depth} in flight"), "", "M/s");
    bars.sort_by(|a, b| b.value.total_cmp(&a.value));
    Panel {
        title: "Gets over a Unix socket: requests per second, longer is better".to_owned(),
        note: format!("{}, {CLIENTS} clients, {depth} requests in flight each", table.load),
        bars,
    }
}

/// Returns the bars of the numbers in a column. The name of a bar is the first cell of its row.
fn bars_of(table: &FigureTable, column: &str, suffix: &str, unit: &str) -> Vec<Bar> {
    let cells = table.column(column).into_iter().flatten();
    let bar = |(row, cell): (&Vec<String>, &str)| {
        let number = cell.split(' ').next().unwrap_or_default();
        let value = number.parse().ok()?;
        Some(Bar { name: format!("{}{suffix}", row[0]), value, label: format!("{number} {unit}") })
    };
    table.rows.iter().zip(cells).filter_map(bar).collect()
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
