//! Draws the chart of rates, with a scale for each axis.
//!
//! In: a view, and an area of any size. Out: one column per interval, the newest on the right. The y axis extends from
//! 0 to the highest drawn rate. An area that is too small for the scales gets only columns.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, RenderDirection, Sparkline};

use super::{number, rate_per_s};
use crate::top::sample::Delta;
use crate::top::screen::view::View;

/// Minimum number of columns of the chart if it has a scale.
const COLUMNS_MIN: u16 = 8;

/// Draws the chart in a border with a title.
pub(super) fn draw_bordered(view: &View, frame: &mut Frame<'_>, area: Rect) {
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
pub(super) fn draw_plain(view: &View, frame: &mut Frame<'_>, area: Rect) {
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
