//! Prints how long a thousand nodes take to fetch a generation from one store, with and without a limit for each node.
//!
//! ```console
//! $ cargo run --release --example herd --features object-store
//! ```

use std::time::Duration;

use zero_kv::publish::{HerdOptions, simulate_herd};

/// A network of 10 Gbit/s, in bytes per second.
const NETWORK_BYTES_PER_S: u64 = 1_250_000_000;

fn main() {
    for (store, store_bytes_per_s) in [("100 Gbit/s", 12_500_000_000), ("1 Tbit/s", 125_000_000_000)] {
        for (limit, node_bytes_per_s) in [("no limit (10 Gbit/s)", NETWORK_BYTES_PER_S), ("50 MB/s", 50_000_000)] {
            let report = simulate_herd(&HerdOptions {
                nodes: 1000,
                generation_bytes: 10_000_000_000,
                poll: Duration::from_secs(5),
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
}
