//! Encodes the metrics in the text format of Prometheus.

use std::fmt::{Display, Write};
use std::ops::RangeInclusive;

use crate::server::counters::Distribution;
use crate::server::facts::Value::{Counter, Counters, Gauge, Gauges, Histogram};
use crate::server::facts::{FACTS, Metric};
use crate::server::snapshot::Snapshot;

/// The media type of the encoded metrics.
pub(super) const TEXT_FORMAT: &str = "text/plain; version=0.0.4";

/// Returns all metrics in the text format.
pub(super) fn encode(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    for Metric { name, help, value } in FACTS.iter().filter_map(|fact| fact.metric.as_ref()) {
        let kind = match value {
            Gauge(_) | Gauges(_) => "gauge",
            Counter(_) | Counters(_) => "counter",
            Histogram(..) => "histogram",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        match value {
            Gauge(number) | Counter(number) => push_line(&mut text, name, &[], number(snapshot)),
            Gauges(series) | Counters(series) => {
                series(snapshot).iter().for_each(|(labels, number)| push_line(&mut text, name, labels, number));
            }
            Histogram(of, powers, unit) => push_histogram(&mut text, name, of(snapshot), powers.clone(), *unit),
        }
    }
    text
}

fn push_histogram(text: &mut String, name: &str, of: &Distribution, powers: RangeInclusive<u32>, unit: f64) {
    let bucket = format!("{name}_bucket");
    for power in powers {
        let bound = (1_u64 << power) as f64 * unit;
        push_line(text, &bucket, &[("le", bound.to_string())], of.up_to_power(power));
    }
    push_line(text, &bucket, &[("le", "+Inf".to_owned())], of.count());
    push_line(text, &format!("{name}_sum"), &[], of.sum as f64 * unit);
    push_line(text, &format!("{name}_count"), &[], of.count());
}

/// Appends the line of one series. The text format escapes only three characters in the values of labels.
fn push_line(text: &mut String, name: &str, labels: &[(&str, String)], number: impl Display) {
    text.push_str(name);
    for (at, (label, value)) in labels.iter().enumerate() {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(text, "{}{label}=\"{value}\"", if at == 0 { '{' } else { ',' });
    }
    let _ = writeln!(text, "{} {number}", if labels.is_empty() { "" } else { "}" });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_is_one_value_of_a_label() {
        let mut line = String::new();
        push_line(&mut line, "m", &[("a", "\"} 1\nm2 7\\".to_owned()), ("b", String::new())], 5);
        assert_eq!(line, "m{a=\"\\\"} 1\\nm2 7\\\\\",b=\"\"} 5\n");
    }
}
