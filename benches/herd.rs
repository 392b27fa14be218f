//! A simulation of a thousand nodes that fetch a generation from one store, with and without a limit for each node.
//!
//! The simulation has a virtual clock, and needs neither a store nor time. The output has the time until all nodes have
//! the generation, the maximum rate of the store, and the maximum number of nodes that fetch at the same time.

use std::time::Duration;

/// The mean time between two polls of a node.
const POLL: Duration = Duration::from_secs(5);
/// A network of 10 Gbit/s, in bytes per second.
const NETWORK_BYTES_PER_S: u64 = 1_250_000_000;

fn main() {
    for (store, store_bytes_per_s) in [("100 Gbit/s", 12_500_000_000), ("1 Tbit/s", 125_000_000_000)] {
        for (limit, node_bytes_per_s) in [("no limit (10 Gbit/s)", NETWORK_BYTES_PER_S), ("50 MB/s", 50_000_000)] {
            let report = simulate_herd(&HerdOptions {
                nodes: 1000,
                generation_bytes: 10_000_000_000,
                poll: POLL,
                store_bytes_per_s,
                node_bytes_per_s,
                seed: 1,
            });
            println!(
                "| store {store}, node {limit} | {:.0} s | {:.1} GB/s | {} |",
                report.all_s,
                report.peak_bytes_per_s as f64 / 1e9,
                report.peak_nodes
            );
        }
    }
    let limited = HerdOptions {
        nodes: 100,
        generation_bytes: 1000,
        poll: POLL,
        store_bytes_per_s: 1000,
        node_bytes_per_s: 1000,
        seed: 7,
    };
    let report = simulate_herd(&limited);
    assert!((100.0..108.0).contains(&report.all_s), "the store delivers all bytes one after the other: {report:?}");
    let fast = simulate_herd(&HerdOptions { store_bytes_per_s: u64::MAX, node_bytes_per_s: 10, ..limited });
    assert!(
        (100.0..108.0).contains(&fast.all_s) && fast.peak_bytes_per_s <= 1000,
        "nodes limit their downloads: {fast:?}"
    );
}

/// A store and the nodes that read it.
#[derive(Clone, Copy)]
struct HerdOptions {
    /// The number of nodes.
    nodes: u32,
    /// The length of a generation, in bytes.
    generation_bytes: u64,
    /// The mean time between two polls of a node.
    poll: Duration,
    /// The rate that the store delivers to all nodes together, in bytes per second.
    store_bytes_per_s: u64,
    /// The rate of a node's network, or the limit of its downloads, in bytes per second.
    node_bytes_per_s: u64,
    /// The seed of the random waits between polls.
    seed: u64,
}

/// What happens after a commit.
#[derive(Debug)]
struct HerdReport {
    /// The time from the commit until all nodes have the generation, in seconds.
    all_s: f64,
    /// The maximum rate of the store, in bytes per second.
    peak_bytes_per_s: u64,
    /// The maximum number of nodes that fetch at the same time.
    peak_nodes: u32,
}

/// Simulates the downloads after a commit. All downloads in progress have the same rate: the node's rate, or an equal
/// share of the store's rate if that is less.
fn simulate_herd(options: &HerdOptions) -> HerdReport {
    let poll_s = options.poll.as_secs_f64();
    let starts = starts_s(options.nodes, poll_s, options.seed);
    let (mut now_s, mut started, mut ends_s) = (0.0, 0, Vec::with_capacity(starts.len()));
    // Every download in progress receives the same number of bytes in a period. The counter has the sum of these
    // numbers, so a download ends when the counter has grown by the generation's length since its start.
    let (mut counter_bytes, mut ends_at_bytes) = (0.0_f64, Vec::with_capacity(starts.len()));
    let (mut peak_rate, mut peak_nodes) = (0.0_f64, 0);
    while ends_s.len() < starts.len() {
        let active = started - ends_s.len();
        let rate = match active {
            0 => 0.0,
            _ => (options.store_bytes_per_s as f64 / active as f64).min(options.node_bytes_per_s as f64),
        };
        peak_rate = peak_rate.max(rate * active as f64);
        peak_nodes = peak_nodes.max(active);
        let start_s = starts.get(started).copied().unwrap_or(f64::INFINITY);
        let end_s = match ends_at_bytes.get(ends_s.len()) {
            Some(end_bytes) => now_s + (end_bytes - counter_bytes) / rate,
            None => f64::INFINITY,
        };
        let next_s = start_s.min(end_s);
        counter_bytes += rate * (next_s - now_s);
        now_s = next_s;
        if start_s <= end_s {
            ends_at_bytes.push(counter_bytes + options.generation_bytes as f64);
            started += 1;
        } else {
            ends_s.push(now_s);
        }
    }
    HerdReport {
        all_s: ends_s.last().copied().unwrap_or_default(),
        peak_bytes_per_s: peak_rate as u64,
        peak_nodes: peak_nodes as u32,
    }
}

/// Returns the times after the commit at which the nodes find it, in ascending order.
fn starts_s(nodes: u32, poll_s: f64, seed: u64) -> Vec<f64> {
    let mut state = seed;
    let mut random = || {
        // SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    };
    // A wait takes from half of the mean to one and a half of it, and the commit comes at a random time of the wait.
    let mut starts: Vec<f64> = (0..nodes).map(|_| (0.5 + random()) * poll_s * random()).collect();
    starts.sort_by(f64::total_cmp);
    starts
}
