//! Outputs of a run for people and for programs.

use std::fs;
use std::time::Duration;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use roxmltree::{Document, ParsingOptions};

use super::test_server::*;

#[test]
fn the_printed_histogram_counts_every_pipeline() {
    let output = TestServer::new(small_rows(), correct_response).run(&[]);
    assert_good(&output);
    let text = stdout(&output);
    let (_, histogram) = text.split_once("pipeline latency: ").unwrap();
    let mut percent = 0.0;
    let mut end = String::new();
    for line in histogram.lines().skip(1) {
        // `  from - to µs  12.34% ████`
        let (bounds, share) = line.split_once(" µs ").unwrap();
        let (from, to) = bounds.split_once(" - ").unwrap();
        assert!(end.is_empty() || end == from.trim(), "{text}");
        to.trim().clone_into(&mut end);
        percent += share.split_once('%').unwrap().0.trim().parse::<f64>().unwrap();
    }
    assert!((percent - 100.0).abs() < 0.5, "{text}");
    assert!(histogram.contains('█') && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn an_hdr_log_counts_every_pipeline() {
    let served = TestServer::new(small_rows(), correct_response);
    let path = served.path("latencies.hdr");
    let output = served.run(&["--json", "--seconds=0.5", &format!("--hdr={}", path.display())]);
    assert_good(&output);
    let json = stdout(&output);

    let log = fs::read(&path).unwrap();
    let (mut start_times, mut base_times, mut intervals) = (0, 0, 0);
    let mut all: Histogram<u64> = Histogram::new(3).unwrap();
    let mut end = Duration::ZERO;
    for entry in IntervalLogIterator::new(&log) {
        match entry.unwrap() {
            LogEntry::StartTime(_) => start_times += 1,
            LogEntry::BaseTime(_) => base_times += 1,
            LogEntry::Interval(interval) => {
                intervals += 1;
                let gap = interval.start_timestamp().abs_diff(end);
                assert!(gap <= Duration::from_millis(2), "an interval begins {gap:?} from the end of the previous one");
                end = interval.start_timestamp() + interval.duration();
                let bytes = base64(interval.encoded_histogram());
                all += Deserializer::new().deserialize::<u64, _>(&mut &bytes[..]).unwrap();
            }
        }
    }
    assert_eq!((start_times, base_times), (1, 1));
    assert!(intervals >= 2, "{intervals}");
    assert_eq!(all.len() as f64, number(&json, "requests") / 16.0);
    let max_us = all.max() as f64 / 1e3;
    assert!((max_us / number(&json, "latency_us_max") - 1.0).abs() < 0.01, "{max_us} {json}");

    // Other readers expect comments first, then lines of four fields.
    let text = String::from_utf8(log).unwrap();
    assert!(text.contains("#[Histogram log format version 1.3]\n#"), "{text}");
    for line in text.lines().skip_while(|line| line.starts_with('#')) {
        assert_eq!(line.split(',').count(), 4, "{line}");
        assert!(line.rsplit(',').next().unwrap().starts_with("HISTFAAAA"), "{line}");
    }
}

fn base64(text: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'=').map(value).collect();
    let bytes = digits.chunks(4).flat_map(|four| {
        let bits = (0..4).fold(0, |bits, at| bits << 6 | u32::from(four.get(at).copied().unwrap_or(0)));
        bits.to_be_bytes()[1..four.len()].to_vec()
    });
    bytes.collect()
}

#[test]
fn the_page_is_well_formed_and_self_contained() {
    let served = TestServer::new(small_rows(), correct_response);
    let path = served.path("a & b <c>.html");
    let args = ["--ceiling", "--memory", "--distribution=zipf", "--json", "--seconds=0.5"];
    let output = served.run(&[&args[..], &[&format!("--report={}", path.display())]].concat());
    assert_good(&output);

    let page = fs::read_to_string(&path).unwrap();
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    let page = Document::parse_with_options(&page, options).unwrap();
    let elements = || page.descendants().filter(|node| node.is_element());
    for element in elements() {
        let name = element.tag_name().name();
        assert!(!["script", "link", "img", "iframe", "object", "embed", "base"].contains(&name), "{name}");
        for attribute in element.attributes() {
            assert!(!["src", "href", "srcset", "data", "style"].contains(&attribute.name()), "{attribute:?}");
        }
    }
    let style = elements().find(|element| element.has_tag_name("style")).unwrap().text().unwrap();
    assert!(!style.contains("url(") && !style.contains("@import"));

    let charts: Vec<_> = elements().filter(|element| element.has_tag_name("svg")).collect();
    assert_eq!(charts.len(), 3);
    let points = |chart: &roxmltree::Node| -> usize {
        let lines = chart.descendants().filter(|node| node.has_tag_name("polyline"));
        lines.map(|line| line.attribute("points").unwrap().split(' ').count()).sum()
    };
    assert!(points(&charts[0]) > 5 && points(&charts[1]) > 5);
    assert!(charts[2].descendants().any(|node| node.has_tag_name("rect")));
    let cells: Vec<&str> =
        elements().filter(|element| element.has_tag_name("td")).filter_map(|cell| cell.text()).collect();
    for cell in ["zipf 0.99", "4", "16", served.path("storage.db").to_str().unwrap()] {
        assert!(cells.contains(&cell), "{cell} is missing in {cells:?}");
    }
    let is_rate = |cell: &&str| ["kB/s", "MB/s", "GB/s"].iter().any(|unit| cell.ends_with(unit));
    assert!(cells.iter().any(is_rate), "a rate in bytes has a unit: {cells:?}");
    // On a wide screen, charts and tables are beside each other.
    let sections = elements().filter(|element| element.has_tag_name("section"));
    assert!(sections.into_iter().all(|section| section.parent().unwrap().has_tag_name("main")));
    assert!(style.contains("main { display: grid"), "{style}");
}

#[test]
fn an_output_that_cannot_be_written_is_reported_before_the_run() {
    let served = TestServer::new(small_rows(), correct_response);
    for option in ["--hdr", "--report"] {
        let output = served.run(&[&format!("{option}=/no/such/folder/file")]);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).starts_with("benchmarker: /no/such/folder/file: No such file"), "{}", stderr(&output));
    }
    assert_eq!(served.take_requests(), []);
}

#[test]
fn reported_memory_is_that_of_the_serving_process() {
    let served = TestServer::new(small_rows(), correct_response);
    let output = served.run(&["--json", "--memory"]);
    assert_good(&output);
    let json = stdout(&output);
    let of = |name: &str| number(&json, name);
    // The server is a thread of this test.
    assert_eq!(of("server_pid"), f64::from(std::process::id()));
    assert!(of("server_resident_bytes") >= of("server_proportional_bytes"), "{json}");
    assert!(of("server_proportional_bytes") > 0.0, "{json}");
    assert!(of("server_minor_faults") >= 0.0 && of("server_major_faults") >= 0.0);
    let file_len_bytes = fs::metadata(served.path("storage.db")).unwrap().len();
    assert!((of("file_bytes_per_key") - file_len_bytes as f64 / 1_000.0).abs() < 0.001, "{json}");

    let text = stdout(&served.run(&["--memory"]));
    assert!(text.contains(" bytes per key (") && text.contains(" proportional; "), "{text}");
}
