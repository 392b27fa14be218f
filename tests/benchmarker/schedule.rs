//! Requests on a schedule: what they are timed from, and the rate that a latency allows.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use crate::served::*;

/// How long the server below stalls, once.
const STALL: Duration = Duration::from_millis(400);

fn stalling(rows: &Rows, number: usize, op: u32, key: u64) -> Option<Vec<u8>> {
    if number == 40 {
        thread::sleep(STALL);
    }
    honest(rows, number, op, key)
}

/// Answers at most this many requests a second, over all its connections.
const CAPACITY: u32 = 2_000;

fn limited(rows: &Rows, number: usize, op: u32, key: u64) -> Option<Vec<u8>> {
    static NEXT: Mutex<Option<Instant>> = Mutex::new(None);
    let turn = {
        let mut next = NEXT.lock().unwrap();
        let turn = next.map_or_else(Instant::now, |next| next.max(Instant::now()));
        *next = Some(turn + Duration::from_secs(1) / CAPACITY);
        turn
    };
    thread::sleep(turn.saturating_duration_since(Instant::now()));
    honest(rows, number, op, key)
}

#[test]
fn a_schedule_shows_a_stall_that_a_closed_loop_hides() {
    let served = Served::new(small_rows(), stalling);
    let one_by_one = ["--json", "--clients=1", "--pipeline=1", "--seconds=1"];
    let p90_us = |more: &[&str]| {
        let output = served.run(&[&one_by_one[..], more].concat());
        assert_good(&output);
        let json = stdout(&output);
        // Both met it.
        assert!(number(&json, "latency_us_max") >= STALL.as_micros() as f64, "{json}");
        number(&json, "latency_us_p90")
    };
    // A fifth of all requests were due in its first half and waited for its second.
    let half_a_stall_us = STALL.as_micros() as f64 / 2.0;
    assert!(p90_us(&["--rate=1000"]) > half_a_stall_us);
    // To the closed loop it is one request among many.
    assert!(p90_us(&[]) < half_a_stall_us);
}

#[test]
fn every_pipeline_of_the_schedule_is_sent_or_told() {
    let served = Served::new(small_rows(), honest);
    let output = served.run(&["--json", "--rate=4000", "--seconds=0.5"]);
    assert_good(&output);
    let json = stdout(&output);
    // 2,000 requests in half a second, in pipelines of 16.
    assert_eq!(number(&json, "requests") + number(&json, "unsent_requests"), 2_000.0);
    assert_eq!(number(&json, "rate"), 4_000.0);
    assert!(stdout(&served.run(&["--rate=4000"])).contains("\nschedule: 4,000 requests/s, "));
}

#[test]
fn what_a_slow_server_leaves_unsent_is_told_and_timed() {
    let served = Served::new(small_rows(), limited);
    let output = served.run(&["--json", "--rate=20000", "--seconds=0.5"]);
    assert_good(&output);
    let json = stdout(&output);
    let (requests, unsent) = (number(&json, "requests"), number(&json, "unsent_requests"));
    assert_eq!(requests + unsent, 10_000.0);
    assert!(unsent > requests, "{json}");
    // Half of all pipelines were due in the first half, and had not been sent at the end.
    assert!(number(&json, "latency_us_p50") > 100_000.0, "{json}");
}

#[test]
fn a_sweep_ends_near_what_the_server_can_do() {
    let served = Served::new(small_rows(), limited);
    let args = ["--sweep", "--p99-us=20000", "--seconds=0.3", "--pipeline=1"];
    let output = served.run(&[&args[..], &["--json"]].concat());
    assert_good(&output);
    let json = stdout(&output);
    // The object's own rate is the highest among those of the steps that were kept.
    let (before_steps, steps) = json.split_once("\"steps\":").unwrap();
    let rate = number(before_steps, "rate");
    assert!((f64::from(CAPACITY) / 8.0..f64::from(CAPACITY) * 1.2).contains(&rate), "{json}");
    let kept = steps.split("},{").filter(|step| step.contains("\"kept\":true"));
    assert_eq!(kept.map(|step| number(step, "rate")).fold(0.0, f64::max), rate);

    let text = stdout(&served.run(&args));
    assert!(text.starts_with("without a schedule: "), "{text}");
    assert!(text.contains("\nrate ") && text.contains("\nhighest rate with a p99 of at most 20000 µs: "), "{text}");
}

#[test]
fn a_sweep_that_finds_no_rate_says_so() {
    let served = Served::new(small_rows(), limited);
    let output = served.run(&["--sweep", "--p99-us=1", "--seconds=0.2", "--pipeline=1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(" requests/s kept a p99 of 1 µs"), "{}", stderr(&output));

    let output = served.run(&["--sweep", "--seconds=0.01"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("too few for a p99: pass longer --seconds"), "{}", stderr(&output));
}

#[test]
fn a_sweep_ends_at_the_first_wrong_answer() {
    let denying: Answer = |_, _, _, _| Some(frame(NOT_FOUND, b""));
    let output = Served::new(small_rows(), denying).run(&["--sweep"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("expected Ok, got NotFound"), "{}", stderr(&output));
    assert!(!stdout(&output).contains("highest rate"), "{}", stdout(&output));
}
