//! One screen.
//!
//! In: what is to be shown, and a buffer of any size. Out: the buffer filled. What
//! is not known is a dash.

use std::time::{Duration, Instant};

use indicatif::{DecimalBytes, HumanCount};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, LineGauge, Paragraph, RenderDirection, Sparkline};

use super::sample::{Sample, Span};
use super::view::View;

const UNKNOWN: &str = "–";
const ALARM: Style = Style::new().fg(Color::Red);

pub(super) fn draw(view: &View, frame: &mut Frame<'_>, now: Instant) {
    let (sample, span, window) = (view.last(), view.span(), view.window());
    let columns = [
        ("requests/s by op", requests(sample, span.as_ref())),
        ("answers", answers(span.as_ref(), window.as_ref())),
        ("connections, batches", connections(sample, span.as_ref(), window.as_ref())),
    ];
    let rows = columns.iter().map(|(_, rows)| rows.len()).max().unwrap_or(0) as u16;
    let file = file(sample);
    let heights = [1, 1].map(Constraint::Length).into_iter();
    let heights = heights.chain([Constraint::Fill(1)]);
    let heights = heights.chain([rows + 2, file.len() as u16, 1, 1].map(Constraint::Length));
    let areas = Layout::vertical(heights).split(frame.area());
    frame.render_widget(Line::from(title(view)).reversed(), areas[0]);
    frame.render_widget(state(view, now), areas[1]);
    draw_rates(view, span.as_ref(), frame, areas[2]);
    let thirds = Layout::horizontal([Constraint::Fill(1); 3]).split(areas[3]);
    for ((title, rows), area) in columns.into_iter().zip(thirds.iter()) {
        draw_column(title, &rows, frame, *area);
    }
    frame.render_widget(Paragraph::new(file), areas[4]);
    draw_gauge("resident", sample.share("resident_len_bytes", "file_len_bytes"), frame, areas[5]);
    draw_gauge("verified", sample.share("blocks_verified", "blocks"), frame, areas[6]);
}

fn title(view: &View) -> String {
    let said = |name| view.last().text(name).unwrap_or(UNKNOWN);
    let uptime = view.last().number("uptime_s").map_or_else(
        || UNKNOWN.to_owned(),
        |seconds| humantime::format_duration(Duration::from_secs(seconds)).to_string(),
    );
    let (version, pid, workers) = (said("version"), said("pid"), said("workers"));
    format!("{}  kv_store {version}  pid {pid}  workers {workers}  up {uptime}  (q leaves)", view.socket)
}

fn state(view: &View, now: Instant) -> Line<'static> {
    if let Some(lost) = &view.lost {
        let seconds = now.saturating_duration_since(lost.since).as_secs();
        return Line::styled(format!("gone for {seconds} s, trying again: {}", lost.reason), ALARM);
    }
    match view.last().text("state") {
        Some("serving") if view.is_anew => Line::from("serving; the server was started anew"),
        Some("serving") => Line::from("serving"),
        Some("changed") => {
            Line::styled("changed: the file is not as it was checked; put a good one in its place", ALARM)
        }
        state => Line::styled(state.unwrap_or(UNKNOWN).to_owned(), ALARM),
    }
}

fn draw_rates(view: &View, span: Option<&Span<'_>>, frame: &mut Frame<'_>, area: Rect) {
    let highest = view.rates.iter().take(area.width.into()).flatten().max();
    let title = format!(
        " {} requests/s, peak {} in {} s ",
        count(span.and_then(Span::request_rate)),
        number(highest.copied()),
        view.interval.as_secs_f64() * f64::from(area.width.saturating_sub(2)),
    );
    let chart = Sparkline::default().data(&view.rates).direction(RenderDirection::RightToLeft);
    frame.render_widget(chart.absent_value_symbol(" ").block(Block::bordered().title(title)), area);
}

type Row = (String, String);

fn row(name: &str, value: String) -> Row {
    (name.to_owned(), value)
}

/// Of the ops that were asked for since the server started.
fn requests(sample: &Sample, span: Option<&Span<'_>>) -> Vec<Row> {
    let asked = sample.ops().filter(|op| sample.op_count(op) > Some(0));
    asked.map(|op| row(op, count(span.and_then(|span| span.op_rate(op))))).collect()
}

fn answers(span: Option<&Span<'_>>, window: Option<&Span<'_>>) -> Vec<Row> {
    let rate = |name| span.and_then(|span| span.rate(name));
    let bytes = |name| rate(name).map_or_else(|| UNKNOWN.to_owned(), |rate| DecimalBytes(rate as u64).to_string());
    let service = |share| time(window.and_then(|window| window.service_ns(share)));
    vec![
        row("hits/s", count(rate("hits"))),
        row("misses/s", count(rate("misses"))),
        row("hit ratio", percent(span.and_then(Span::hit_ratio))),
        row("errors/s", count(rate("errors"))),
        row("read/s", bytes("read_len_bytes")),
        row("written/s", bytes("written_len_bytes")),
        row("service p50", service(0.5)),
        row("service p99", service(0.99)),
        row("service p99.9", service(0.999)),
    ]
}

fn connections(sample: &Sample, span: Option<&Span<'_>>, window: Option<&Span<'_>>) -> Vec<Row> {
    let said = |name| number(sample.number(name));
    let batch = |share| number(window.and_then(|window| window.batch_requests(share)));
    vec![
        row("now", said("connections")),
        row("accepted/s", count(span.and_then(|span| span.rate("connections_accepted")))),
        row("disconnected, idle", said("connections_cut_idle")),
        row("disconnected, other", number(disconnected_for_other_reasons(sample))),
        row("refused", said("connections_refused")),
        row("panics", said("panics")),
        row("batch p50", batch(0.5)),
        row("batch p99", batch(0.99)),
        row("batch max", batch(1.0)),
    ]
}

/// Returns how many connections were disconnected for a reason other than that they were idle. An older server lacks some
/// of the reasons.
fn disconnected_for_other_reasons(sample: &Sample) -> Option<u64> {
    let reasons = ["stalled", "slow", "generation", "memory", "http"];
    reasons.iter().filter_map(|reason| sample.number(&format!("connections_cut_{reason}"))).reduce(u64::saturating_add)
}

fn file(sample: &Sample) -> Vec<Line<'static>> {
    let said = |name| sample.text(name).unwrap_or(UNKNOWN);
    let len = sample.number("file_len_bytes").map_or_else(|| UNKNOWN.to_owned(), |len| DecimalBytes(len).to_string());
    let rows = number(sample.number("rows"));
    vec![
        Line::from(format!("{}: {len}, {rows} rows, keys {}", said("file"), said("keys"))),
        Line::from(format!("generation {}, digest {}", said("generation"), said("digest"))),
        Line::from(format!(
            "{} swaps, {} rollbacks, {} files refused, {} faults; memory {}, verify {}",
            said("swaps"),
            said("rollbacks"),
            said("refused_files"),
            said("faults"),
            said("memory"),
            said("verify"),
        )),
        Line::from(format!(
            "last reload: {}",
            sample.text("reload_last").filter(|text| !text.is_empty()).unwrap_or("none")
        )),
    ]
}

/// Names on the left, values on the right.
fn draw_column(title: &str, rows: &[Row], frame: &mut Frame<'_>, area: Rect) {
    let width = usize::from(area.width.saturating_sub(2));
    let lines = rows.iter().map(|(name, value)| {
        let room = width.saturating_sub(name.chars().count());
        Line::from(format!("{name}{value:>room$}"))
    });
    let block = Block::bordered().title(format!(" {title} "));
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()).block(block), area);
}

fn draw_gauge(name: &str, share: Option<f64>, frame: &mut Frame<'_>, area: Rect) {
    let gauge = LineGauge::default().label(format!("{name} {:>7}", percent(share))).ratio(share.unwrap_or(0.0));
    frame.render_widget(gauge.filled_symbol("█").unfilled_symbol("░"), area);
}

fn count(rate: Option<f64>) -> String {
    number(rate.map(|rate| rate.round() as u64))
}

fn number(number: Option<u64>) -> String {
    number.map_or_else(|| UNKNOWN.to_owned(), |number| HumanCount(number).to_string())
}

fn time(ns: Option<u64>) -> String {
    match ns {
        None => UNKNOWN.to_owned(),
        Some(ns @ ..1_000_000) => format!("{:.1} µs", ns as f64 / 1e3),
        Some(ns @ ..1_000_000_000) => format!("{:.1} ms", ns as f64 / 1e6),
        Some(ns) => format!("{:.1} s", ns as f64 / 1e9),
    }
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| UNKNOWN.to_owned(), |share| format!("{:.1} %", 100.0 * share))
}

#[cfg(test)]
#[path = "draw_tests.rs"]
mod tests;
