//! Draws the screen of `zkv top`.
//!
//! In: a view, and a frame of any size. Out: the drawn frame. Unknown values are drawn as dashes. A frame that is too
//! small for everything gets the most important figures. `rates` draws the chart.

use std::time::{Duration, Instant};

use indicatif::{DecimalBytes, HumanCount};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, LineGauge, Paragraph, RenderDirection, Sparkline};
use zero_kv::counted::counted;

use super::View;
use crate::top::sample::{Delta, Sample};

const UNKNOWN: &str = "–";

// A color means the same everywhere; figures that call for no action have no color.
/// Lookups fail, or the server does not work.
const ALARM: Style = Style::new().fg(Color::Red);
/// Something was rejected or restarted, and the server works.
const WARNING: Style = Style::new().fg(Color::Yellow);
const HEALTHY: Style = Style::new().fg(Color::Green);

/// Minimum width of a frame for three columns of figures.
const FULL_WIDTH_MIN: u16 = 72;
/// Minimum height of the chart in a frame that shows everything: two borders, and one line of columns.
const CHART_HEIGHT_MIN: u16 = 3;
/// Minimum height of a frame that shows a title and only the most important figures.
const TITLE_HEIGHT_MIN: u16 = 5;

pub(super) fn draw(view: &View, frame: &mut Frame<'_>, now: Instant) {
    let (sample, delta, window) = (view.last(), view.delta(), view.window());
    let columns = [
        ("requests/s by op", requests(sample, delta.as_ref())),
        ("responses", responses(delta.as_ref(), window.as_ref())),
        ("connections, batches", connections(sample, delta.as_ref(), window.as_ref())),
    ];
    let rows = columns.iter().map(|(_, rows)| rows.len()).max().unwrap_or(0) as u16;
    let file = file(sample);
    let fixed_heights = [rows + 2, file.len() as u16, 1, 1];
    let full_height_min = 2 + CHART_HEIGHT_MIN + fixed_heights.iter().sum::<u16>();
    if frame.area().width < FULL_WIDTH_MIN || frame.area().height < full_height_min {
        return draw_compact(view, frame, now);
    }
    let heights = [1, 1].map(Constraint::Length).into_iter();
    let heights = heights.chain([Constraint::Fill(1)]).chain(fixed_heights.map(Constraint::Length));
    let areas = Layout::vertical(heights).split(frame.area());
    frame.render_widget(Line::from(title(view)).reversed(), areas[0]);
    frame.render_widget(state(view, now), areas[1]);
    draw_bordered(view, frame, areas[2]);
    let thirds = Layout::horizontal([Constraint::Fill(1); 3]).split(areas[3]);
    for ((title, rows), area) in columns.into_iter().zip(thirds.iter()) {
        draw_column(title, &rows, frame, *area);
    }
    frame.render_widget(Paragraph::new(file), areas[4]);
    draw_gauge("resident", sample.share("resident_len_bytes", "file_len_bytes"), frame, areas[5]);
    draw_gauge("verified", sample.share("blocks_verified", "blocks"), frame, areas[6]);
}

/// Draws the most important figures, and the chart if lines are left.
fn draw_compact(view: &View, frame: &mut Frame<'_>, now: Instant) {
    let area = frame.area();
    let figures = wrapped(&important_figures(view), area.width.into());
    let title_height = u16::from(area.height >= TITLE_HEIGHT_MIN);
    let heights = [title_height, 1, figures.len() as u16].map(Constraint::Length);
    let areas = Layout::vertical(heights.into_iter().chain([Constraint::Fill(1)])).split(area);
    frame.render_widget(Line::from(format!("{}  (q quits)", view.socket)).reversed(), areas[0]);
    frame.render_widget(state(view, now), areas[1]);
    frame.render_widget(Paragraph::new(figures), areas[2]);
    draw_plain(view, frame, areas[3]);
}

/// Returns figures in descending order of importance.
fn important_figures(view: &View) -> Vec<String> {
    let (sample, delta, window) = (view.last(), view.delta(), view.window());
    let delta = delta.as_ref();
    vec![
        format!("{} requests/s", rate_per_s(delta.and_then(Delta::request_rate))),
        format!("hit ratio {}", percent(delta.and_then(Delta::hit_ratio))),
        format!("service p99 {}", time(window.and_then(|window| window.service_ns(0.99)))),
        format!("generation {}", sample.text("generation").unwrap_or(UNKNOWN)),
        format!("errors/s {}", rate_per_s(delta.and_then(|delta| delta.rate("errors")))),
        format!("connections {}", number(sample.number("connections"))),
    ]
}

/// Joins figures to lines of at most `width` characters. A figure that is wider has its own line.
fn wrapped(figures: &[String], width: usize) -> Vec<Line<'static>> {
    let mut lines: Vec<String> = Vec::new();
    for figure in figures {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 2 + figure.chars().count() <= width => {
                *line = format!("{line}  {figure}");
            }
            _ => lines.push(figure.clone()),
        }
    }
    lines.into_iter().map(Line::from).collect()
}

fn title(view: &View) -> String {
    let field = |name| view.last().text(name).unwrap_or(UNKNOWN);
    let uptime = view.last().number("uptime_s").map_or_else(
        || UNKNOWN.to_owned(),
        |seconds| humantime::format_duration(Duration::from_secs(seconds)).to_string(),
    );
    let (version, pid, workers) = (field("version"), field("pid"), field("workers"));
    format!("{}  kv_store {version}  pid {pid}  workers {workers}  up {uptime}  (q quits)", view.socket)
}

fn state(view: &View, now: Instant) -> Line<'static> {
    if let Some(lost) = &view.lost {
        let seconds = now.saturating_duration_since(lost.since).as_secs();
        return Line::styled(format!("no response for {seconds} s, retrying: {}", lost.reason), ALARM);
    }
    match view.last().text("state") {
        Some("serving") if view.last().text("rolled_back") == Some("yes") => {
            Line::styled("serving the previous table, after a rollback; the file at the path is refused", WARNING)
        }
        Some("serving") if view.is_restarted => Line::styled("serving; the server was restarted", WARNING),
        Some("serving") => Line::styled("serving", HEALTHY),
        Some("changed") => {
            Line::styled("changed: the file was changed in place; replace it with an intact file", ALARM)
        }
        state => Line::styled(state.unwrap_or(UNKNOWN).to_owned(), ALARM),
    }
}

/// A name, its value, and the style of both.
type Row = (String, String, Style);

fn row(name: &str, value: String) -> Row {
    (name.to_owned(), value, Style::new())
}

/// Returns a row that has a style if its count or rate is not 0.
fn row_of_problems(name: &str, value: String, problems: Option<f64>, style: Style) -> Row {
    (name.to_owned(), value, style_of_problems(problems, style))
}

fn style_of_problems(problems: Option<f64>, style: Style) -> Style {
    if problems.is_some_and(|problems| problems > 0.0) { style } else { Style::new() }
}

/// Returns one screen row for each op that the server has received requests for. The row shows the op's rate.
fn requests(sample: &Sample, delta: Option<&Delta<'_>>) -> Vec<Row> {
    let requested = sample.ops().filter(|op| sample.op_count(op) > Some(0));
    requested.map(|op| row(op, rate_per_s(delta.and_then(|delta| delta.op_rate(op))))).collect()
}

fn responses(delta: Option<&Delta<'_>>, window: Option<&Delta<'_>>) -> Vec<Row> {
    let rate = |name| delta.and_then(|delta| delta.rate(name));
    let bytes = |name| rate(name).map_or_else(|| UNKNOWN.to_owned(), |rate| DecimalBytes(rate as u64).to_string());
    let service = |quantile| time(window.and_then(|window| window.service_ns(quantile)));
    vec![
        row("hits/s", rate_per_s(rate("hits"))),
        row("misses/s", rate_per_s(rate("misses"))),
        row("hit ratio", percent(delta.and_then(Delta::hit_ratio))),
        row_of_problems("errors/s", rate_per_s(rate("errors")), rate("errors"), ALARM),
        row("read/s", bytes("read_len_bytes")),
        row("written/s", bytes("written_len_bytes")),
        row("service p50", service(0.5)),
        row("service p99", service(0.99)),
        row("service p99.9", service(0.999)),
    ]
}

fn connections(sample: &Sample, delta: Option<&Delta<'_>>, window: Option<&Delta<'_>>) -> Vec<Row> {
    let field = |name| number(sample.number(name));
    let problems = |title, name, style| row_of_problems(title, field(name), count(sample, name), style);
    let batch = |quantile| number(window.and_then(|window| window.batch_requests(quantile)));
    vec![
        row("open", field("connections")),
        row("accepted/s", rate_per_s(delta.and_then(|delta| delta.rate("connections_accepted")))),
        row("disconnected, idle", field("connections_cut_idle")),
        row("disconnected, other", number(disconnected_for_other_reasons(sample))),
        problems("rejected", "connections_refused", WARNING),
        problems("panics", "panics", ALARM),
        row("batch p50", batch(0.5)),
        row("batch p99", batch(0.99)),
        row("batch max", batch(1.0)),
    ]
}

fn count(sample: &Sample, name: &str) -> Option<f64> {
    sample.number(name).map(|count| count as f64)
}

/// Returns the number of connections that the server closed for reasons other than idleness, or `None` if Info has no
/// counters for these reasons.
fn disconnected_for_other_reasons(sample: &Sample) -> Option<u64> {
    let counts = sample.numbers_after("connections_cut_").filter(|(reason, _)| *reason != "idle");
    counts.map(|(_, count)| count).reduce(u64::saturating_add)
}

fn file(sample: &Sample) -> Vec<Line<'static>> {
    let field = |name| sample.text(name).unwrap_or(UNKNOWN);
    let len = sample.number("file_len_bytes").map_or_else(|| UNKNOWN.to_owned(), |len| DecimalBytes(len).to_string());
    let rows = counted(number(sample.number("rows")), "row");
    let problems = |name, title, style| {
        Span::styled(format!("{} {title}", field(name)), style_of_problems(count(sample, name), style))
    };
    let reload = sample.text("reload_last").filter(|text| !text.is_empty()).unwrap_or("none");
    let reload_style = if reload.starts_with("refused") { WARNING } else { Style::new() };
    vec![
        Line::from(format!("{}: {len}, {rows}, keys {}", field("file"), field("keys"))),
        Line::from(format!("generation {}, digest {}", field("generation"), field("digest"))),
        Line::from_iter([
            Span::raw(format!("{} swaps, {} rollbacks, ", field("swaps"), field("rollbacks"))),
            problems("refused_files", "files rejected", WARNING),
            Span::raw(", "),
            problems("faults", "faults", ALARM),
            Span::raw(format!("; memory {}, verify {}", field("memory"), field("verify"))),
        ]),
        Line::from_iter([Span::raw("last reload: "), Span::styled(reload.to_owned(), reload_style)]),
    ]
}

/// Draws a column of screen rows, each with its name on the left and its value on the right.
fn draw_column(title: &str, rows: &[Row], frame: &mut Frame<'_>, area: Rect) {
    let width = usize::from(area.width.saturating_sub(2));
    let lines = rows.iter().map(|(name, value, style)| {
        let room = width.saturating_sub(name.chars().count());
        Line::styled(format!("{name}{value:>room$}"), *style)
    });
    let block = Block::bordered().title(format!(" {title} "));
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()).block(block), area);
}

fn draw_gauge(name: &str, share: Option<f64>, frame: &mut Frame<'_>, area: Rect) {
    let gauge = LineGauge::default().label(format!("{name} {:>7}", percent(share))).ratio(share.unwrap_or(0.0));
    frame.render_widget(gauge.filled_symbol("█").unfilled_symbol("░"), area);
}

fn rate_per_s(rate: Option<f64>) -> String {
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

/// Minimum number of columns of the chart if it has a scale.
const COLUMNS_MIN: u16 = 8;

/// Draws the chart in a border with a title.
fn draw_bordered(view: &View, frame: &mut Frame<'_>, area: Rect) {
    let inner = Block::bordered().inner(area);
    let (columns, _) = split(view, inner);
    let title = format!(
        " {} requests/s, peak {} in {} s ",
        rate_per_s(view.delta().as_ref().and_then(Delta::request_rate)),
        number(highest(view, columns.width)),
        seconds(view, columns.width),
    );
    let block = Block::bordered().title(title);
    let scale = time_scale(view, columns.width, "─");
    let block = if columns.width < COLUMNS_MIN { block } else { block.title_bottom(Line::from(scale).right_aligned()) };
    frame.render_widget(block, area);
    draw_columns(view, frame, inner);
}

/// Draws the chart without a border. The last line is the scale of the time axis if there are at least two lines.
fn draw_plain(view: &View, frame: &mut Frame<'_>, area: Rect) {
    if area.height < 2 {
        return draw_columns(view, frame, area);
    }
    let areas = Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).split(area);
    let (columns, _) = split(view, areas[0]);
    draw_columns(view, frame, areas[0]);
    frame.render_widget(Line::from(time_scale(view, columns.width, " ")).right_aligned(), areas[1]);
}

fn draw_columns(view: &View, frame: &mut Frame<'_>, area: Rect) {
    let (columns, scale) = split(view, area);
    let highest = highest(view, columns.width);
    let chart = Sparkline::default().data(&view.rates).direction(RenderDirection::RightToLeft).absent_value_symbol(" ");
    frame.render_widget(chart.max(highest.unwrap_or(0).max(1)), columns);
    let Some(scale) = scale else { return };
    let last = usize::from(scale.height.saturating_sub(1));
    let lines = (0..=last).map(|line| match line {
        0 => Line::from(format!("{} ", number(highest))),
        line if line == last => Line::from("0 "),
        _ => Line::default(),
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()).right_aligned(), scale);
}

/// Returns the areas of the columns and of the scale of the y axis, if there is room for it. The scale has room for the
/// highest rate in the whole area, so that its width does not depend on itself.
fn split(view: &View, area: Rect) -> (Rect, Option<Rect>) {
    let scale_width = number(highest(view, area.width)).chars().count() as u16 + 1;
    if area.height == 0 || area.width < scale_width + COLUMNS_MIN {
        return (area, None);
    }
    let areas = Layout::horizontal([Constraint::Length(scale_width), Constraint::Fill(1)]).split(area);
    (areas[1], Some(areas[0]))
}

fn highest(view: &View, columns: u16) -> Option<u64> {
    view.rates.iter().take(columns.into()).flatten().max().copied()
}

fn seconds(view: &View, columns: u16) -> f64 {
    (view.interval.as_secs_f64() * f64::from(columns) * 1e3).round() / 1e3
}

/// Returns the scale of the time axis, which is as wide as the columns: the age of the oldest column on the left, `now`
/// on the right, and `fill` between them.
fn time_scale(view: &View, columns: u16, fill: &str) -> String {
    let (oldest, now) = (format!("{} s ago ", seconds(view, columns)), " now");
    match usize::from(columns).checked_sub(oldest.chars().count() + now.len()) {
        Some(room) => format!("{oldest}{}{now}", fill.repeat(room)),
        None => now.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    //! Tests that compare drawn screens as text.

    use std::path::Path;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    const FIRST: &str = "pid 4711\nuptime_s 7381\nrequests_get 1000\nrequests_range 0\nrequests_info 1\nhits 0\n\
        misses 0\n\
        errors 0\nread_len_bytes 0\nwritten_len_bytes 0\nconnections_accepted 100\nbatch_requests_buckets\n\
        service_ns_buckets\n";
    const SECOND: &str = "version 0.1.0\npid 4711\nuptime_s 7383\nworkers 2\nfile /srv/storage.db\nmemory map\n\
        verify touch\ngeneration 3\ndigest bca90a0883f5f3781f46240713f3ee61\nkeys u64\nrows 34924\n\
        file_len_bytes 1780872\n\
        resident_len_bytes 890436\nblocks 96\nblocks_verified 96\nstate serving\nconnections 101\n\
        connections_accepted 102\n\
        connections_cut_idle 1\nconnections_cut_stalled 2\nconnections_cut_slow 4\nconnections_cut_generation 8\n\
        connections_cut_memory 16\n\
        connections_cut_http 32\nconnections_cut_buffer 64\nconnections_refused 3\npanics 0\nrequests_get 2469134\n\
        requests_range 0\nrequests_info 2\nhits 2000000\nmisses 500000\nerrors 4\nread_len_bytes 32000000\n\
        written_len_bytes 64000000\nbatch_requests_buckets 1:10 255:990\n\
        service_ns_buckets 1023:500 98303:490 2097151:10\n\
        swaps 2\nrollbacks 1\nrefused_files 5\nfaults 6\nreload_last refused: damaged\n";

    fn sample(at: Instant, text: &str) -> Sample {
        Sample::new(at, text.lines().map(|line| line.split_once(' ').unwrap_or((line, ""))))
    }

    /// Returns a view of two samples, the second of which was taken two seconds after the first one.
    fn view() -> (View, Instant) {
        let start = Instant::now();
        let mut view = View::new(Path::new("/run/kv.sock"), Duration::from_secs(2), sample(start, FIRST));
        let now = start + Duration::from_secs(2);
        view.update(Ok(sample(now, SECOND)), now);
        (view, now)
    }

    fn screen(view: &View, now: Instant, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(view, frame, now)).unwrap();
        let cells = terminal.backend().buffer().content.chunks(width.into());
        let lines = cells.map(|cells| cells.iter().map(|cell| cell.symbol()).collect::<String>());
        lines.map(|line| format!("{}\n", line.trim_end())).collect()
    }

    #[test]
    fn a_rollback_is_shown_as_long_as_it_lasts() {
        let (mut view, now) = view();
        let rolled_back = |answer: &str| sample(now, &format!("{SECOND}rolled_back {answer}\n"));
        view.update(Ok(rolled_back("yes")), now);
        let shown = "\nserving the previous table, after a rollback; the file at the path is refused\n";
        assert!(screen(&view, now, 80, 24).contains(shown), "{}", screen(&view, now, 80, 24));
        view.update(Ok(rolled_back("no")), now);
        assert!(!screen(&view, now, 80, 24).contains("rollback;"));
    }

    #[test]
    fn a_screen_of_80_by_24_shows_everything() {
        let (view, now) = view();
        let expected = "\
/run/kv.sock  kv_store 0.1.0  pid 4711  workers 2  up 2h 3m 3s  (q quits)
serving
┌ 1,234,068 requests/s, peak 1,234,068 in 136 s ───────────────────────────────┐
│1,234,068                                                                    █│
│                                                                             █│
│        0                                                                    █│
└──────────136 s ago ────────────────────────────────────────────────────── now┘
┌ requests/s by op ───────┐┌ responses ─────────────┐┌ connections, batches ───┐
│get             1,234,067││hits/s         1,000,000││open                  101│
│info                    1││misses/s         250,000││accepted/s              1│
│                         ││hit ratio         80.0 %││disconnected, idle      1│
│                         ││errors/s               2││disconnected, other   126│
│                         ││read/s          16.00 MB││rejected                3│
│                         ││written/s       32.00 MB││panics                  0│
│                         ││service p50       1.0 µs││batch p50             255│
│                         ││service p99      98.3 µs││batch p99             255│
│                         ││service p99.9     2.1 ms││batch max             255│
└─────────────────────────┘└────────────────────────┘└─────────────────────────┘
/srv/storage.db: 1.78 MB, 34,924 rows, keys u64
generation 3, digest bca90a0883f5f3781f46240713f3ee61
2 swaps, 1 rollbacks, 5 files rejected, 6 faults; memory map, verify touch
last reload: refused: damaged
resident  50.0 % ███████████████████████████████░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░
verified 100.0 % ███████████████████████████████████████████████████████████████
";
        let screen = screen(&view, now, 80, 24);
        assert_eq!(screen, expected, "\n{screen}");
    }

    /// Returns the words of a screen that have a color, in their order.
    fn colored(view: &View, now: Instant) -> Vec<(Color, String)> {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| draw(view, frame, now)).unwrap();
        let cells = terminal.backend().buffer().content.iter();
        let mut runs: Vec<(Color, String)> = Vec::new();
        for cell in cells {
            match runs.last_mut() {
                Some((color, text)) if *color == cell.fg => text.push_str(cell.symbol()),
                _ => runs.push((cell.fg, cell.symbol().to_owned())),
            }
        }
        runs.retain(|(color, _)| *color != Color::Reset);
        let words = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
        runs.into_iter().map(|(color, text)| (color, words(text))).collect()
    }

    #[test]
    fn only_figures_that_call_for_action_have_a_color() {
        let (view, now) = view();
        let expected = [
            (Color::Green, "serving"),
            (Color::Red, "errors/s 2"),
            (Color::Yellow, "rejected 3"),
            (Color::Yellow, "5 files rejected"),
            (Color::Red, "6 faults"),
            (Color::Yellow, "refused: damaged"),
        ];
        assert_eq!(colored(&view, now), expected.map(|(color, text)| (color, text.to_owned())));
        let healthy = SECOND.replace("errors 4", "errors 0").replace("refused 3", "refused 0");
        let healthy = healthy.replace("refused_files 5", "refused_files 0").replace("faults 6", "faults 0");
        let healthy = healthy.replace("reload_last refused: damaged", "reload_last served");
        let mut view = View::new(Path::new("s"), Duration::from_secs(2), sample(now, FIRST));
        view.update(Ok(sample(now + Duration::from_secs(2), &healthy)), now);
        assert_eq!(colored(&view, now), [(Color::Green, "serving".to_owned())]);
    }

    #[test]
    fn problems_are_shown_below_the_title() {
        let (mut view, now) = view();
        let state = |view: &View, now| screen(view, now, 80, 24).lines().nth(1).unwrap().to_owned();
        let changed = sample(now + view.interval, &SECOND.replace("state serving", "state changed"));
        view.update(Ok(changed), now);
        assert!(state(&view, now).starts_with("changed: the file was changed in place"));
        view.update(Err("s: cannot connect".to_owned()), now);
        view.update(Err("s: no response".to_owned()), now + view.interval);
        let later = now + Duration::from_secs(60);
        assert_eq!(state(&view, later), "no response for 60 s, retrying: s: no response");
        let lost = screen(&view, later, 80, 24);
        assert!(lost.contains(" – requests/s, peak 1,234,068 "), "no rate while samples fail\n{lost}");
        let restarted = SECOND.replace("pid 4711", "pid 4712").replace("get 2469134", "get 5");
        view.update(Ok(sample(later, &restarted)), later);
        assert_eq!(state(&view, later), "serving; the server was restarted");
    }

    #[test]
    fn a_screen_of_40_by_8_shows_the_most_important_figures_and_a_chart_with_scales() {
        let (view, now) = view();
        let expected = "\
/run/kv.sock  (q quits)
serving
1,234,068 requests/s  hit ratio 80.0 %
service p99 98.3 µs  generation 3
errors/s 2  connections 101
1,234,068                              █
        0                              █
          60 s ago                   now
";
        let screen = screen(&view, now, 40, 8);
        assert_eq!(screen, expected, "\n{screen}");
    }

    #[test]
    fn a_screen_of_20_by_4_shows_rate_hit_ratio_and_service_time() {
        let (view, now) = view();
        let expected = "serving\n1,234,068 requests/s\nhit ratio 80.0 %\nservice p99 98.3 µs\n";
        let screen = screen(&view, now, 20, 4);
        assert_eq!(screen, expected, "\n{screen}");
    }

    #[test]
    fn a_screen_of_any_size_is_drawn() {
        let (view, now) = view();
        for width in [1, 2, 3, 10, 26, 79, 300] {
            for height in [1, 2, 3, 5, 11, 23, 100] {
                screen(&view, now, width, height);
            }
        }
        // A server that reports no fields.
        let empty = View::new(Path::new("s"), Duration::from_secs(1), sample(now, ""));
        assert!(screen(&empty, now, 80, 24).contains("generation –, digest –"));
    }
}
