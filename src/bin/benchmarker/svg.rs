//! Charts as inline SVG, with axes, lines, and bars, and without scripts.
//!
//! In: axes with their ticks, and points in the axes' units. Out: an `<svg>` element. The colors of the element come
//! from CSS classes that the enclosing page defines.

use std::fmt::Write;

const WIDTH: f64 = 440.0;
const HEIGHT: f64 = 280.0;
/// Minimum width of the area for the label of the y axis and its ticks. Wide ticks need more.
const LEFT_MIN: f64 = 92.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 52.0;
/// Width of the area for the rotated label of the y axis.
const Y_LABEL_WIDTH: f64 = 28.0;
/// Distance between the labels of the ticks of the y axis and the axis.
const TICK_GAP: f64 = 8.0;
/// Number of lines above the chart for the labels of bands. Labels of neighboring bands are on different lines.
const BAND_LABEL_LINES: usize = 2;
const BAND_LINE_HEIGHT: f64 = 16.0;
/// Estimated width of a character of a label. The characters of a font of 12 px are narrower, except for a few letters.
const CHARACTER_WIDTH: f64 = 7.0;
/// Minimum distance between the baselines of the labels of a y axis.
const LINE_HEIGHT: f64 = 18.0;
const LABEL_GAP: f64 = 8.0;
const TICKS: f64 = 6.0;

pub(crate) struct Axis {
    label: String,
    from: f64,
    to: f64,
    is_log: bool,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// Returns an axis that begins at `from`, and ends at the first tick that is at least `to`.
    pub(crate) fn linear(label: &str, from: f64, to: f64, name: impl Fn(f64) -> String) -> Self {
        let rough = ((to - from) / TICKS).max(1e-9);
        let decade = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|step| step * decade).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        let count = ((to - from) / step).ceil().max(1.0);
        let ticks = (0..=count as usize).map(|tick| from + tick as f64 * step).map(|at| (at, name(at))).collect();
        Axis { label: label.to_owned(), from, to: from + count * step, is_log: false, ticks }
    }

    /// Shortens the axis, so that it ends at `to`, and removes the ticks after `to`.
    pub(crate) fn ending_at(mut self, to: f64) -> Self {
        if to > self.from && to < self.to {
            self.to = to;
            self.ticks.retain(|(at, _)| *at <= to);
        }
        self
    }

    /// Returns a logarithmic axis that begins at 1, and ends at `to` or at 2, whichever is greater.
    pub(crate) fn log(label: &str, to: f64, ticks: Vec<(f64, String)>) -> Self {
        let to = to.max(2.0);
        Axis { label: label.to_owned(), from: 1.0, to, is_log: true, ticks }
    }

    /// Returns a logarithmic axis whose ticks are 1, 2, and 5 times a power of ten. The axis begins at the last tick
    /// that is at most `from`, and ends at the first tick that is at least `to`. Both must be at least 1.
    pub(crate) fn log_ticks(label: &str, from: f64, to: f64, name: impl Fn(f64) -> String) -> Self {
        let steps = || (0..20).flat_map(|decade| [1.0, 2.0, 5.0].map(|step| step * 10f64.powi(decade)));
        let first = steps().take_while(|step| *step <= from).last().unwrap_or(1.0);
        let last = steps().find(|step| *step >= to && *step > first).unwrap_or(first * 10.0);
        let ticks = steps().filter(|step| (first..=last).contains(step)).map(|at| (at, name(at))).collect();
        Axis { label: label.to_owned(), from: first, to: last, is_log: true, ticks }
    }

    /// Returns an axis for a bar chart. Bar n extends from n to n + 1.
    pub(crate) fn for_bars(label: &str, bars: usize, ticks: Vec<(f64, String)>) -> Self {
        Axis { label: label.to_owned(), from: 0.0, to: bars.max(1) as f64, is_log: false, ticks }
    }

    /// Returns the position of a value along the axis, from 0 to 1. Values beyond the axis are clamped.
    fn position(&self, value: f64) -> f64 {
        let position = match self.is_log {
            true => (value.max(self.from) / self.from).ln() / (self.to / self.from).ln(),
            false => (value - self.from) / (self.to - self.from),
        };
        position.clamp(0.0, 1.0)
    }
}

/// A colored range of the x axis with a label above the chart.
pub(crate) struct Band {
    pub(crate) class: &'static str,
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) label: String,
}

pub(crate) struct Chart {
    x: Axis,
    y: Axis,
    left: f64,
    top: f64,
    body: String,
}

impl Chart {
    pub(crate) fn new(x: Axis, y: Axis) -> Self {
        let tick_width = y.ticks.iter().map(|(_, name)| text_width(name)).fold(0.0, f64::max);
        let left = LEFT_MIN.max(Y_LABEL_WIDTH + tick_width + TICK_GAP);
        Chart { x, y, left, top: TOP, body: String::new() }
    }

    /// Adds bands, in ascending order, to a chart without lines and bars.
    pub(crate) fn with_bands(mut self, bands: &[Band]) -> Self {
        self.top = TOP + BAND_LABEL_LINES as f64 * BAND_LINE_HEIGHT;
        let mut free_from = [0.0; BAND_LABEL_LINES];
        for (index, band) in bands.iter().enumerate() {
            self.band(band);
            let line = index % BAND_LABEL_LINES;
            let (x, half) = ((self.x_at(band.from) + self.x_at(band.to)) / 2.0, text_width(&band.label) / 2.0);
            // A label that is too wide for its line is omitted. The color of the band still tells its meaning.
            if x - half < free_from[line] || x + half > WIDTH {
                continue;
            }
            free_from[line] = x + half + LABEL_GAP;
            let y = self.top - 9.0 - (BAND_LABEL_LINES - 1 - line) as f64 * BAND_LINE_HEIGHT;
            let label = escaped(&band.label);
            let _ =
                writeln!(self.body, "<text class=\"label {}\" x=\"{x:.1}\" y=\"{y:.1}\">{label}</text>", band.class);
        }
        self
    }

    fn x_at(&self, value: f64) -> f64 {
        self.left + self.x.position(value) * (WIDTH - self.left - RIGHT)
    }

    fn y_at(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.position(value) * (HEIGHT - self.top - BOTTOM)
    }

    /// Adds a line through these points, with a CSS class.
    pub(crate) fn line(&mut self, class: &str, points: impl IntoIterator<Item = (f64, f64)>) {
        let mut coordinates = String::new();
        for (x, y) in points {
            let _ = write!(coordinates, "{:.1},{:.1} ", self.x_at(x), self.y_at(y));
        }
        let _ = writeln!(self.body, "<polyline class=\"line {class}\" points=\"{}\"/>", coordinates.trim_end());
    }

    /// Adds a bar. On the x axis, its left edge is at `from` and its right edge at `to`. The tooltip is `title`.
    pub(crate) fn bar(&mut self, from: f64, to: f64, height: f64, title: &str) {
        let (left, right, top) = (self.x_at(from), self.x_at(to), self.y_at(height));
        let _ = writeln!(
            self.body,
            "<rect class=\"bar\" x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{}</title></rect>",
            left + 1.0,
            (right - left - 2.0).max(0.5),
            (HEIGHT - BOTTOM - top).max(0.0),
            escaped(title),
        );
    }

    fn band(&mut self, band: &Band) {
        let (left, right, top) = (self.x_at(band.from), self.x_at(band.to), self.top);
        let (width, height) = (right - left, HEIGHT - BOTTOM - top);
        let _ = writeln!(
            self.body,
            "<rect class=\"band {}\" x=\"{left:.1}\" y=\"{top}\" width=\"{width:.1}\" height=\"{height:.1}\"/>",
            band.class,
        );
    }

    pub(crate) fn svg(&self) -> String {
        let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n");
        let (left, top, bottom, right) = (self.left, self.top, HEIGHT - BOTTOM, WIDTH - RIGHT);
        let ticks: Vec<_> = self.y.ticks.iter().map(|(value, name)| (self.y_at(*value), &**name)).collect();
        for (y, _) in &ticks {
            let _ = writeln!(svg, "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>");
        }
        let boxes = ticks.iter().map(|(y, _)| (-y, LINE_HEIGHT - 1.0)).collect::<Vec<_>>();
        for (y, name) in ticks.iter().step_by(label_step(&boxes, 1.0)) {
            let (x, y, name) = (left - TICK_GAP, y + 4.0, escaped(name));
            let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{name}</text>");
        }
        let ticks = self.x.ticks.iter().filter(|(value, _)| *value <= self.x.to * 1.001);
        let ticks: Vec<_> = ticks.map(|(value, name)| (self.x_at(*value), &**name)).collect();
        for (x, _) in &ticks {
            let _ = writeln!(svg, "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>");
        }
        let boxes = ticks.iter().map(|(x, name)| (*x, text_width(name))).collect::<Vec<_>>();
        for (x, name) in ticks.iter().step_by(label_step(&boxes, LABEL_GAP)) {
            if x + text_width(name) / 2.0 <= WIDTH {
                let (y, name) = (bottom + 18.0, escaped(name));
                let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{name}</text>");
            }
        }
        svg += &self.body;
        let (middle_x, middle_y) = ((left + right) / 2.0, (top + bottom) / 2.0);
        let (x_label, y_label) = (escaped(&self.x.label), escaped(&self.y.label));
        let _ = writeln!(svg, "<text class=\"label\" x=\"{middle_x}\" y=\"{}\">{x_label}</text>", HEIGHT - 8.0);
        let turned = format!("transform=\"translate(16 {middle_y}) rotate(-90)\"");
        let _ = writeln!(svg, "<text class=\"label\" {turned}>{y_label}</text>\n</svg>");
        svg
    }
}

/// Returns the smallest n for which every n-th label, from the first one on, is at least `gap` from the next one. The
/// labels are in ascending order. Each has a center and a width.
fn label_step(labels: &[(f64, f64)], gap: f64) -> usize {
    let fits = |step: &usize| {
        let every: Vec<_> = labels.iter().step_by(*step).collect();
        every.windows(2).all(|pair| pair[1].0 - pair[0].0 >= (pair[0].1 + pair[1].1) / 2.0 + gap)
    };
    (1..labels.len()).find(fits).unwrap_or(labels.len().max(1))
}

fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * CHARACTER_WIDTH
}

/// Escapes text for an XML element or attribute.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            // XML cannot contain these characters, not even escaped.
            control if control < ' ' && !matches!(control, '\t' | '\n' | '\r') => escaped.push('\u{fffd}'),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_axis_ends_at_a_tick_at_or_after_its_last_value() {
        for to in [0.0, 0.3, 1.0, 7.0, 99.0, 18_900_000.0] {
            let axis = Axis::linear("x", 0.0, to, |at| format!("{at}"));
            let last = axis.ticks.last().unwrap().0;
            assert!(last >= to && (last - axis.to).abs() < 1e-6 * axis.to && axis.ticks.len() <= 12, "{to}");
        }
    }

    #[test]
    fn positions_are_within_the_chart() {
        let log = Axis::log("x", 1000.0, Vec::new());
        assert_eq!([0.0, 1.0, 1e9].map(|value| log.position(value)), [0.0, 0.0, 1.0]);
        assert!((log.position(10.0) - 1.0 / 3.0).abs() < 1e-9);
    }

    /// Returns the left edge, the right edge, and the y coordinate of each unrotated text of a chart.
    fn text_boxes(svg: &str) -> Vec<(f64, f64, f64)> {
        let texts = svg.lines().filter(|line| line.starts_with("<text") && !line.contains("rotate"));
        let text_box = |line: &str| {
            let number = |name: &str| -> f64 {
                line.split(&format!(" {name}=\"")).nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
            };
            let width = text_width(line.split('>').nth(1).unwrap().split('<').next().unwrap());
            let left = number("x") - if line.contains("\"end\"") { width } else { width / 2.0 };
            (left, left + width, number("y"))
        };
        texts.map(text_box).collect()
    }

    #[track_caller]
    fn assert_no_overlaps(svg: &str) {
        let boxes = text_boxes(svg);
        for (index, one) in boxes.iter().enumerate() {
            assert!(one.0 >= 0.0 && one.1 <= WIDTH && one.2 >= 11.0 && one.2 <= HEIGHT, "{one:?}\n{svg}");
            for other in &boxes[index + 1..] {
                let is_apart = one.1 < other.0 || other.1 < one.0 || (one.2 - other.2).abs() >= 13.0;
                assert!(is_apart, "{one:?} overlaps {other:?}\n{svg}");
            }
        }
        // The rotated label of the y axis extends to x = 20.
        assert!(boxes.iter().all(|one| one.0 >= 20.0), "{boxes:?}");
    }

    #[test]
    fn labels_of_ticks_do_not_overlap_and_every_tick_has_a_grid_line() {
        for bars in [1, 2, 11, 25, 60] {
            let ticks = (0..bars).map(|at| (at as f64, format!("{at}00 µs"))).collect();
            for y_max in [1.0, 50_000_000.0, 900_000_000_000.0] {
                let y = Axis::linear("requests/s", 0.0, y_max, |at| indicatif::HumanCount(at as u64).to_string());
                let grid_lines = bars + y.ticks.len();
                let svg = Chart::new(Axis::for_bars("latency", bars, Vec::clone(&ticks)), y).svg();
                assert_no_overlaps(&svg);
                assert_eq!(svg.matches("class=\"grid\"").count(), grid_lines, "{svg}");
                assert!(text_boxes(&svg).len() >= bars.min(4), "{svg}");
            }
        }
    }

    #[test]
    fn labels_of_bands_do_not_overlap() {
        for rounds in [1, 3, 20] {
            let end = f64::from(2 * rounds);
            let x = Axis::linear("measured seconds", 0.0, end + 0.1, |at| format!("{at}")).ending_at(end);
            let y = Axis::linear("requests/s", 0.0, 50e6, |at| indicatif::HumanCount(at as u64).to_string());
            let name = |turn: u32| ["server", "ceiling"][turn as usize % 2];
            let bands = (0..2 * rounds).map(|turn| Band {
                class: "ours",
                from: f64::from(turn),
                to: f64::from(turn + 1),
                label: format!("{} {}", name(turn), turn / 2 + 1),
            });
            let svg = Chart::new(x, y).with_bands(&bands.collect::<Vec<_>>()).svg();
            assert_no_overlaps(&svg);
            let labels = (1..=rounds).flat_map(|round| [format!(">server {round}<"), format!(">ceiling {round}<")]);
            let labeled = labels.filter(|label| svg.contains(&**label)).count();
            assert!(labeled >= 2 && (rounds > 3 || labeled == 2 * rounds as usize), "{svg}");
            // The last band ends at the end of the x axis.
            let rect = svg.lines().rfind(|line| line.starts_with("<rect")).unwrap();
            let number =
                |name: &str| -> f64 { rect.split(name).nth(1).unwrap().split('"').next().unwrap().parse().unwrap() };
            assert!((number(" x=\"") + number(" width=\"") - (WIDTH - RIGHT)).abs() < 0.2, "{svg}");
        }
    }

    #[test]
    fn a_log_axis_encloses_its_values() {
        let axis = Axis::log_ticks("x", 30.0, 60_000.0, |at| format!("{at}"));
        assert_eq!((axis.from, axis.to), (20.0, 100_000.0));
        assert!((axis.position(20.0), axis.position(100_000.0)) == (0.0, 1.0));
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(escaped("<a b=\"c\">&\u{1}"), "&lt;a b=&quot;c&quot;&gt;&amp;\u{fffd}");
    }
}
