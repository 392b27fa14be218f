//! Charts as inline SVG, with axes, lines, and bars, and without scripts.
//!
//! In: axes with their ticks, and points in the axes' units. Out: an `<svg>` element. The colors of the element come
//! from CSS classes that the enclosing page defines.

use std::fmt::Write;

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 280.0;
const LEFT: f64 = 92.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 22.0;
const BOTTOM: f64 = 52.0;
/// Estimated width of a character of a label. The characters of a font of 12 px are narrower, except for a few letters.
const CHARACTER_WIDTH: f64 = 7.0;
/// Minimum distance between the baselines of the labels of a y axis.
const LINE_HEIGHT: f64 = 18.0;
/// Minimum distance between the labels of an x axis.
const LABEL_GAP: f64 = 8.0;
/// Approximate number of ticks of a linear axis.
const TICKS: f64 = 6.0;

/// An axis of a chart.
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

pub(crate) struct Chart {
    x: Axis,
    y: Axis,
    body: String,
}

impl Chart {
    pub(crate) fn new(x: Axis, y: Axis) -> Self {
        Chart { x, y, body: String::new() }
    }

    fn x_at(&self, value: f64) -> f64 {
        LEFT + self.x.position(value) * (WIDTH - LEFT - RIGHT)
    }

    fn y_at(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.position(value) * (HEIGHT - TOP - BOTTOM)
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

    /// Adds a band with a label at its top, from `from` to `to` on the x axis.
    pub(crate) fn band(&mut self, class: &str, from: f64, to: f64, label: &str) {
        let (left, right, bottom) = (self.x_at(from), self.x_at(to), HEIGHT - BOTTOM);
        let _ = writeln!(
            self.body,
            "<rect class=\"band {class}\" x=\"{left:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\"/>\n\
             <text class=\"label\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            right - left,
            bottom - TOP,
            (left + right) / 2.0,
            TOP - 5.0,
            escaped(label),
        );
    }

    /// Returns the chart as an `<svg>` element.
    pub(crate) fn svg(&self) -> String {
        let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n");
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        let mut lowest_free = f64::INFINITY;
        for (value, name) in self.y.ticks.iter().filter(|(value, _)| *value <= self.y.to * 1.001) {
            let (y, name) = (self.y_at(*value), escaped(name));
            // Ticks are in ascending order. A tick that is too close to the one below has no label.
            if y > lowest_free {
                continue;
            }
            lowest_free = y - LINE_HEIGHT;
            let _ = writeln!(svg, "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>");
            let _ = writeln!(svg, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>", LEFT - 8.0, y + 4.0);
        }
        let mut leftmost_free = 0.0;
        for (value, name) in self.x.ticks.iter().filter(|(value, _)| *value <= self.x.to * 1.001) {
            let (x, half) = (self.x_at(*value), name.chars().count() as f64 * CHARACTER_WIDTH / 2.0);
            if x - half < leftmost_free || x + half > WIDTH {
                continue;
            }
            leftmost_free = x + half + LABEL_GAP;
            let name_escaped = escaped(name);
            let _ = writeln!(svg, "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>");
            let _ = writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{name_escaped}</text>",
                bottom + 18.0
            );
        }
        svg += &self.body;
        let (middle_x, middle_y) = ((LEFT + right) / 2.0, (TOP + bottom) / 2.0);
        let (x_label, y_label) = (escaped(&self.x.label), escaped(&self.y.label));
        let _ = writeln!(svg, "<text class=\"label\" x=\"{middle_x}\" y=\"{}\">{x_label}</text>", HEIGHT - 8.0);
        let turned = format!("transform=\"translate(16 {middle_y}) rotate(-90)\"");
        let _ = writeln!(svg, "<text class=\"label\" {turned}>{y_label}</text>\n</svg>");
        svg
    }
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

    #[test]
    fn labels_of_a_histogram_with_25_buckets_do_not_overlap() {
        let ticks = (0..25).map(|at| (f64::from(at), format!("{at}00 µs"))).collect();
        let svg = Chart::new(Axis::for_bars("", 25, ticks), Axis::linear("", 0.0, 1.0, |at| format!("{at}"))).svg();
        let mut boxes = Vec::new();
        for line in svg.lines().filter(|line| line.contains("text-anchor=\"middle\"")) {
            let x: f64 = line.split("x=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap();
            let name = line.split('>').nth(1).unwrap().split('<').next().unwrap();
            let half = name.chars().count() as f64 * CHARACTER_WIDTH / 2.0;
            boxes.push((x - half, x + half));
        }
        assert!(boxes.len() >= 5, "{svg}");
        assert!(boxes.is_sorted_by(|one, next| one.1 < next.0), "{boxes:?}");
        assert!(boxes.iter().all(|(left, right)| *left >= 0.0 && *right <= WIDTH), "{boxes:?}");
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
