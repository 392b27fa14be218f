//! A simulation of many nodes that fetch a generation from one store.
//!
//! In: the number of nodes, and rates. Out: when the nodes serve the generation, and what the store delivers. The
//! simulation has a virtual clock, and needs neither a store nor time.

use std::time::Duration;

use serde::Serialize;

/// A store and the nodes that read it.
#[derive(Clone, Copy, Debug)]
pub struct HerdOptions {
    /// The number of nodes.
    pub nodes: u32,
    /// The length of a generation, in bytes.
    pub generation_bytes: u64,
    /// The mean time between two polls of a node.
    pub poll: Duration,
    /// The rate that the store delivers to all nodes together, in bytes per second.
    pub store_bytes_per_s: u64,
    /// The rate of a node's network, or the limit of its downloads, in bytes per second.
    pub node_bytes_per_s: u64,
    /// The seed of the random waits between polls.
    pub seed: u64,
}

/// What happens after a commit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HerdReport {
    /// The time from the commit until half of the nodes have the generation, in seconds.
    pub half_s: f64,
    /// The time from the commit until all nodes have the generation, in seconds.
    pub all_s: f64,
    /// The maximum rate of the store, in bytes per second.
    pub peak_bytes_per_s: u64,
    /// The maximum number of nodes that fetch at the same time.
    pub peak_nodes: u32,
    /// The number of requests per second while no generation is fetched.
    pub idle_requests_per_s: f64,
    /// The number of requests of one node per hour while no generation is fetched.
    pub node_requests_per_hour: f64,
}

/// The number of requests of a poll: the next manifest and the next pin.
const REQUESTS_PER_POLL: f64 = 2.0;

/// Simulates the downloads after a commit. All downloads in progress have the same rate: the node's rate, or an equal
/// share of the store's rate if that is less.
///
/// # Example
/// ```
/// use std::time::Duration;
/// use zero_kv::publish::{HerdOptions, simulate_herd};
///
/// let options = HerdOptions {
///     nodes: 1000,
///     generation_bytes: 10_000_000_000,
///     poll: Duration::from_secs(5),
///     store_bytes_per_s: 12_500_000_000,
///     node_bytes_per_s: 1_250_000_000,
///     seed: 1,
/// };
/// let report = simulate_herd(&options);
/// // The store delivers 10 TB at 12.5 GB/s.
/// assert!(report.all_s >= 800.0 && report.all_s < 810.0);
/// ```
pub fn simulate_herd(options: &HerdOptions) -> HerdReport {
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
        half_s: ends_s.get(ends_s.len().saturating_sub(1) / 2).copied().unwrap_or_default(),
        all_s: ends_s.last().copied().unwrap_or_default(),
        peak_bytes_per_s: peak_rate as u64,
        peak_nodes: peak_nodes as u32,
        idle_requests_per_s: f64::from(options.nodes) * REQUESTS_PER_POLL / poll_s,
        node_requests_per_hour: REQUESTS_PER_POLL * 3600.0 / poll_s,
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

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: HerdOptions = HerdOptions {
        nodes: 1000,
        generation_bytes: 1_000_000,
        poll: Duration::from_secs(10),
        store_bytes_per_s: 10_000_000,
        node_bytes_per_s: 1_000_000,
        seed: 7,
    };

    #[test]
    fn a_store_that_limits_the_downloads_takes_the_time_of_all_bytes() {
        let report = simulate_herd(&OPTIONS);
        assert!((100.0..102.0).contains(&report.all_s), "{report:?}");
        assert_eq!(report.peak_bytes_per_s, OPTIONS.store_bytes_per_s);
        assert!(report.half_s < report.all_s && report.peak_nodes > 900, "{report:?}");
        assert_eq!((report.idle_requests_per_s, report.node_requests_per_hour), (200.0, 720.0));
    }

    #[test]
    fn nodes_that_limit_their_downloads_never_reach_the_rate_of_a_fast_store() {
        let fast = HerdOptions { store_bytes_per_s: u64::MAX, node_bytes_per_s: 10_000, ..OPTIONS };
        let report = simulate_herd(&fast);
        assert!(report.peak_bytes_per_s <= 1000 * 10_000, "{report:?}");
        // Each download takes 100 s, and begins at most 15 s after the commit.
        assert!((100.0..=115.0).contains(&report.all_s), "{report:?}");
        assert_eq!(report.peak_nodes, 1000);
    }

    #[test]
    fn one_node_needs_the_time_of_one_download() {
        let report = simulate_herd(&HerdOptions { nodes: 1, ..OPTIONS });
        assert!((1.0..=16.0).contains(&report.all_s) && report.peak_nodes == 1, "{report:?}");
        assert_eq!(simulate_herd(&HerdOptions { nodes: 0, ..OPTIONS }).all_s, 0.0);
    }
}
