//! Requests on a schedule: their latencies, and the search for the highest rate.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use super::test_server::*;

/// Duration of the server's only stall.
const STALL: Duration = Duration::from_millis(400);

fn stalling(rows: &Rows, number: usize, op: u32, key: u64) -> Option<Vec<u8>> {
    if number == 40 {
        thread::sleep(STALL);
    }
    correct_response(rows, number, op, key)
}

/// Maximum requests per second of the server, over all connections.
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
    correct_response(rows, number, op, key)
}

#[test]
fn a_schedule_shows_a_stall_that_a_closed_loop_hides() {
    let served = TestServer::new(small_rows(), stalling);
    let one_by_one = ["--json", "--clients=1", "--pipeline=1", "--seconds=1"];
    let p90_us = |more: &[&str]| {
        let output = served.run(&[&one_by_one[..], more].concat());
        assert_good(&output);
        let json = stdout(&output);
        // Both runs include the stall.
        assert!(number(&json, "latency_us_max") >= STALL.as_micros() as f64, "{json}");
        number(&json, "latency_us_p90")
    };
    // A fifth of all requests were due in the first half of the stall and waited for the second half.
    let half_a_stall_us = STALL.as_micros() as f64 / 2.0;
    assert!(p90_us(&["--rate=1000"]) > half_a_stall_us);
    // In the closed loop, the stall delays one request of many.
    assert!(p90_us(&[]) < half_a_stall_us);
}

#[test]
fn every_scheduled_pipeline_is_sent_or_reported() {
    let served = TestServer::new(small_rows(), correct_response);
    let output = served.run(&["--json", "--rate=4000", "--seconds=0.5"]);
    assert_good(&output);
    let json = stdout(&output);
    // 2,000 requests in half a second, in pipelines of 16.
    assert_eq!(number(&json, "requests") + number(&json, "unsent_requests"), 2_000.0);
    assert_eq!(number(&json, "rate"), 4_000.0);
    assert!(stdout(&served.run(&["--rate=4000"])).contains("\nschedule: 4,000 requests/s, "));
}

#[test]
fn unsent_requests_to_a_slow_server_are_counted_and_have_latencies() {
    let served = TestServer::new(small_rows(), limited);
    let output = served.run(&["--json", "--rate=20000", "--seconds=0.5"]);
    assert_good(&output);
    let json = stdout(&output);
    let (requests, unsent) = (number(&json, "requests"), number(&json, "unsent_requests"));
    assert_eq!(requests + unsent, 10_000.0);
    assert!(unsent > requests, "{json}");
    // Half of all pipelines were due in the first half of the run and not sent by its end.
    assert!(number(&json, "latency_us_p50") > 100_000.0, "{json}");
}

#[test]
fn a_sweep_ends_near_the_capacity_of_the_server() {
    let served = TestServer::new(small_rows(), limited);
    // A busy machine delays responses, by more than the first limits if it is very busy.
    let limits = [("--p99-us=100000", "--seconds=0.3"), ("--p99-us=1000000", "--seconds=3")];
    let sweep = |(p99, seconds), more: &[&str]| {
        let args = ["--sweep", p99, seconds, "--pipeline=1"];
        served.run(&[&args[..], more].concat())
    };
    let both = |limit| {
        let outputs = [sweep(limit, &["--json"]), sweep(limit, &[])];
        outputs.iter().all(|output| output.status.success()).then(|| outputs.map(|output| stdout(&output)))
    };
    let [json, text] = limits.into_iter().find_map(both).expect("a step passes with a limit of one second");
    // The reported rate is the highest of the steps that passed.
    let (before_steps, steps) = json.split_once("\"steps\":").unwrap();
    let rate = number(before_steps, "rate");
    assert!((f64::from(CAPACITY) / 8.0..f64::from(CAPACITY) * 1.2).contains(&rate), "{json}");
    let passed = steps.split("},{").filter(|step| step.contains("\"kept\":true"));
    assert_eq!(passed.map(|step| number(step, "rate")).fold(0.0, f64::max), rate);

    assert!(text.starts_with("without a schedule: "), "{text}");
    assert!(text.contains("\nrate ") && text.contains("\nhighest rate with a p99 of at most 1"), "{text}");
}

#[test]
fn a_sweep_without_a_result_is_an_error() {
    let served = TestServer::new(small_rows(), limited);
    let output = served.run(&["--sweep", "--p99-us=1", "--seconds=0.2", "--pipeline=1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("the p99 exceeds 1 µs even at "), "{}", stderr(&output));

    let output = served.run(&["--sweep", "--seconds=0.01"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("too few for a p99: pass longer --seconds"), "{}", stderr(&output));
}

#[test]
fn a_sweep_ends_at_the_first_wrong_response() {
    let denying: Respond = |_, _, _, _| Some(frame(NOT_FOUND, b""));
    let output = TestServer::new(small_rows(), denying).run(&["--sweep"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("expected Ok, got NotFound"), "{}", stderr(&output));
    assert!(!stdout(&output).contains("highest rate"), "{}", stdout(&output));
}
