//! Nodes of clusters: routed GETs beside a Redis cluster, the check of slots, reconnecting clients, and merged files.
//!
//! Canonical load: 200,000 rows with values of 26 bytes (2 million rows in four files for `merge`), values compared with the
//! expected ones. The parts, which can be named to run only some of them:
//!
//! - `routed`: one thread sends GETs to 1, 2, and 4 nodes, each of which gets a pipeline of the keys of its slots, and waits
//!   for all replies. Beside `kv_store`, the same with a Redis cluster of the same shape.
//! - `check`: 256 requests in flight to one server with and without `--cluster`, in both protocols, for keys that the table
//!   has and for keys that it does not have.
//! - `storm`: 10,000 connections are opened, and each sends CLUSTER SLOTS or CLUSTER NODES. Meanwhile, another connection
//!   sends one GET at a time.
//! - `merge`: the time to merge the files of a node, beside lookups in the merged file and in the files side by side.
//!
//! Servers are pinned to the first processor, and this process to the others, if there are several. The processor time of
//! servers is from `/proc`. All configurations of a part alternate in each round, and the tables have medians of the rounds.
//! `cargo bench --bench cluster -- --rounds N --seconds N` changes the number of rounds and the seconds per measurement.

mod cluster_loads;
mod support;

use std::error::Error;
use std::time::Duration;

use cluster_loads::{check, merge, routed, storm};
use support::{is_test, warn_if_slow};

/// What to measure.
pub(crate) struct Args {
    pub(crate) rounds: usize,
    pub(crate) measured: Duration,
    pub(crate) rows: u64,
    pub(crate) merged_rows: u64,
    pub(crate) connections: usize,
    parts: Vec<String>,
}

impl Args {
    fn parse() -> Result<Args, Box<dyn Error>> {
        let (rounds, seconds) = if is_test() { (1, 0.02) } else { (3, 1.0) };
        let (rows, merged_rows, connections) = if is_test() { (500, 500, 50) } else { (200_000, 2_000_000, 10_000) };
        let measured = Duration::from_secs_f64(seconds);
        let mut args = Args { rounds, measured, rows, merged_rows, connections, parts: Vec::new() };
        let mut given = std::env::args().skip(1);
        while let Some(name) = given.next() {
            let mut value = || given.next().ok_or_else(|| format!("{name}: found no value, expected one"));
            match name.as_str() {
                "--rounds" => args.rounds = value()?.parse()?,
                "--seconds" => args.measured = Duration::from_secs_f64(value()?.parse()?),
                // Cargo passes these.
                "--bench" | "--test" => {}
                "routed" | "check" | "storm" | "merge" => args.parts.push(name),
                _ => return Err(format!("{name}: not an option or a part of this bench").into()),
            }
        }
        Ok(args)
    }

    fn has(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|name| name == part)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    warn_if_slow();
    let args = Args::parse()?;
    cluster_loads::processors::pin_this_process()?;
    for (name, part) in [
        ("routed", routed::run as fn(&Args) -> Result<(), Box<dyn Error>>),
        ("check", check::run),
        ("storm", storm::run),
        ("merge", merge::run),
    ] {
        if args.has(name) {
            part(&args)?;
        }
    }
    Ok(())
}
