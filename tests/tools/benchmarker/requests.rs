//! The requests follow the options.

use std::collections::{BTreeMap, BTreeSet};

use super::test_server::*;

const GET: u32 = 0;
const EXISTS: u32 = 1;

/// Number of requests that show a distribution.
const REQUESTS_MIN: usize = 10_000;

/// Returns the number of requests for each key, in descending order.
fn by_count(requests: &[(u32, u64)]) -> Vec<(usize, u64)> {
    let mut counts = BTreeMap::new();
    requests.iter().for_each(|(_, key)| *counts.entry(key).or_insert(0) += 1);
    let mut counts: Vec<(usize, u64)> = counts.into_iter().map(|(key, count)| (count, *key)).collect();
    counts.sort_unstable_by(|one, other| other.cmp(one));
    counts
}

/// Checks that `count` of `draws` is consistent with this probability.
#[track_caller]
fn assert_share(count: usize, draws: usize, probability: f64) {
    let (expected, draws) = (probability * draws as f64, draws as f64);
    let deviation = (draws * probability * (1.0 - probability)).sqrt();
    // Six standard deviations are exceeded less than once in a hundred million runs.
    assert!((count as f64 - expected).abs() <= 6.0 * deviation + 1.0, "{count}, expected about {expected:.0}");
}

#[test]
fn uniform_requests_every_row_equally_often() {
    let served = TestServer::new(small_rows(), correct_response);
    let seen = served.requests(REQUESTS_MIN, &[]);
    let counts = by_count(&seen);
    assert!(counts.iter().all(|(_, key)| (1..=1_000).contains(key)));
    assert_share(counts[0].0, seen.len(), 0.001);
    assert_share(counts.get(999).map_or(0, |count| count.0), seen.len(), 0.001);
    let first_half = seen.iter().filter(|(_, key)| *key <= 500).count();
    assert_share(first_half, seen.len(), 0.5);
}

#[test]
fn zipf_requests_ranks_in_proportion_to_their_power() {
    let served = TestServer::new(small_rows(), correct_response);
    for exponent in [1.0, 0.5] {
        let seen = served.requests(REQUESTS_MIN, &["--distribution=zipf", &format!("--zipf-exponent={exponent}")]);
        let counts = by_count(&seen);
        let weights: Vec<f64> = (1..=1_000).map(|rank| f64::from(rank).powf(-exponent)).collect();
        let all: f64 = weights.iter().sum();
        for ranks in [1, 10, 100] {
            let count: usize = counts[..ranks].iter().map(|(count, _)| count).sum();
            let share = weights[..ranks].iter().sum::<f64>() / all;
            // With few draws, the most frequent keys are not exactly the first ranks.
            let draws = seen.len();
            assert!(count as f64 > 0.9 * share * draws as f64, "{ranks}: {count} of {draws}");
            assert!((count as f64) < 1.2 * share * draws as f64 + 50.0, "{ranks}: {count} of {draws}");
        }
    }
}

#[test]
fn zipf_distributes_frequent_keys_over_the_table() {
    let served = TestServer::new(small_rows(), correct_response);
    let hot = |seed: &str| -> BTreeSet<u64> {
        let seen = served.requests(REQUESTS_MIN, &["--distribution=zipf", "--zipf-exponent=1.2", seed]);
        by_count(&seen)[..10].iter().map(|(_, key)| *key).collect()
    };
    let (first, second) = (hot("--seed=1"), hot("--seed=2"));
    assert!(first.last().unwrap() - first.first().unwrap() > 400, "{first:?}");
    assert_ne!(first, second);
}

#[test]
fn sequential_requests_are_in_key_order_and_cyclic() {
    let served = TestServer::new(small_rows(), correct_response);
    let seen = served.requests(2_000, &["--distribution=sequential", "--clients=1", "--pipeline=7"]);
    let in_order = (0..seen.len()).map(|request| (GET, request as u64 % 1_000 + 1));
    assert!(in_order.eq(seen.iter().copied()));
}

#[test]
fn sequential_clients_begin_at_different_rows() {
    let served = TestServer::new(small_rows(), correct_response);
    let seen = served.requests(1_000, &["--distribution=sequential", "--clients=4", "--pipeline=1"]);
    for key in [1, 251, 501, 751] {
        assert!(seen.contains(&(GET, key)), "{key}");
    }
}

#[test]
fn ops_have_their_shares_for_hits_and_misses() {
    let served = TestServer::new(small_rows(), correct_response);
    let seen = served.requests(REQUESTS_MIN, &["--op=get:0.9,exists:0.1", "--verify", "--miss-ratio=0.25"]);
    let exists: Vec<u64> = seen.iter().filter(|(op, _)| *op == EXISTS).map(|(_, key)| *key).collect();
    assert_share(exists.len(), seen.len(), 0.1);
    let is_there = |key: &u64| (1..=1_000).contains(key);
    assert_share(exists.iter().filter(|key| !is_there(key)).count(), exists.len(), 0.25);
    assert_share(seen.iter().filter(|(_, key)| !is_there(key)).count(), seen.len(), 0.25);
}

#[test]
fn equal_seeds_request_equal_keys() {
    let served = TestServer::new(small_rows(), correct_response);
    let first = |distribution: &str, seed: &str| {
        let mut seen = served.requests(16, &["--clients=1", distribution, seed, "--op=get:0.5,exists:0.5"]);
        seen.truncate(16);
        seen
    };
    for distribution in ["--distribution=uniform", "--distribution=zipf"] {
        assert_eq!(first(distribution, "--seed=3"), first(distribution, "--seed=3"));
        assert_ne!(first(distribution, "--seed=3"), first(distribution, "--seed=4"));
    }
}
