//! `zkv bench`: measures how fast this library looks keys up, on a server or in a file.
//!
//! In: a table, and the duration of the measurement. Out: lookups per second, and the latency of batches. Each thread
//! looks up keys of the table in random order, one batch after another. `benchmarker` measures a server under the load
//! of many clients.

use std::sync::OnceLock;
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

use anyhow::{Context, anyhow, bail};
use hdrhistogram::Histogram;
use indicatif::HumanCount;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use serde::Serialize;
use zero_kv::Key;
use zero_kv::client::OwnedKey;

use crate::args::{BenchArgs, RangeArgs};
use crate::output::print_report;
use crate::server::THREAD_ERROR;
use crate::table::{Scan, Table};

const KEYS_MAX: usize = 1_000_000;
/// Seed of the shuffle of the keys. All runs look keys up in the same order.
const SEED: u64 = 1;
const LATENCY_DIGITS: u8 = 3;

/// Runs the benchmark, and returns whether all keys were found. `connect` is called once per thread.
pub(crate) fn bench<'t>(
    args: &BenchArgs,
    connect: impl Fn() -> anyhow::Result<Box<dyn Table + Send + 't>>,
) -> anyhow::Result<bool> {
    let mut tables = (0..args.threads).map(|_| connect()).collect::<anyhow::Result<Vec<_>>>()?;
    let rows = tables[0].count(&RangeArgs::default())?;
    let keys = shuffled_keys(&mut *tables[0])?;
    if keys.is_empty() {
        bail!("the table is empty, so there is no key to look up: bake a table with rows");
    }
    let report = measure(args, rows, &keys, tables)?;
    print_report(&report, args.json)?;
    Ok(report.not_found == 0)
}

/// Returns the first million keys of the table, or all keys of a smaller table, in shuffled order.
fn shuffled_keys(table: &mut dyn Table) -> anyhow::Result<Vec<OwnedKey>> {
    let mut keys = Vec::new();
    let scan = Scan { range: &RangeArgs::default(), reverse: false, limit: Some(KEYS_MAX) };
    table.scan(&scan, &mut |(key, _)| {
        keys.push(OwnedKey::from(key));
        Ok(())
    })?;
    keys.shuffle(&mut SmallRng::seed_from_u64(SEED));
    Ok(keys)
}

struct ThreadResult {
    lookups: u64,
    not_found: u64,
    value_len_bytes: u64,
    elapsed: Duration,
    batch_ns: Histogram<u64>,
}

fn measure(
    args: &BenchArgs,
    rows: u64,
    keys: &[OwnedKey],
    tables: Vec<Box<dyn Table + Send + '_>>,
) -> anyhow::Result<Report> {
    let all_threads_exist = OnceLock::new();
    let results = thread::scope(|scope| {
        let spawn = |(thread_index, mut table): (usize, Box<dyn Table + Send>)| {
            let all_threads_exist = &all_threads_exist;
            let run = move || run_thread(&mut *table, keys, args, thread_index, all_threads_exist);
            thread::Builder::new().spawn_scoped(scope, run)
        };
        let threads = tables.into_iter().enumerate().map(spawn).collect::<io::Result<Vec<_>>>();
        // All threads begin now, at the same time. If a thread could not be created, the created threads end without a
        // lookup.
        all_threads_exist.get_or_init(|| threads.is_ok());
        let threads = threads.context(THREAD_ERROR)?;
        let results = threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?);
        results.collect::<anyhow::Result<Vec<_>>>()
    })?;
    let mut batch_ns = Histogram::new(LATENCY_DIGITS)?;
    results.iter().try_for_each(|result| batch_ns.add(&result.batch_ns))?;
    let sum = |count: fn(&ThreadResult) -> u64| results.iter().map(count).sum::<u64>();
    let lookups = sum(|result| result.lookups);
    let seconds = |result: &ThreadResult| result.elapsed.as_secs_f64();
    let us = |quantile| batch_ns.value_at_quantile(quantile).min(batch_ns.max()) as f64 / 1e3;
    Ok(Report {
        rows,
        keys: keys.len(),
        threads: results.len(),
        batch: args.batch,
        lookups,
        not_found: sum(|result| result.not_found),
        value_len_bytes: sum(|result| result.value_len_bytes),
        lookups_per_s: results.iter().map(|result| result.lookups as f64 / seconds(result)).sum(),
        ns_per_lookup: results.iter().map(seconds).sum::<f64>() * 1e9 / lookups as f64,
        batch_us_p50: us(0.5),
        batch_us_p90: us(0.9),
        batch_us_p99: us(0.99),
        batch_us_p99_9: us(0.999),
        batch_us_max: us(1.0),
    })
}

/// Looks up batches until the end of the measurement. `thread_index` determines the first key. The thread first waits
/// for the value of `all_threads_exist`. If the value is false, the thread ends without a lookup.
fn run_thread(
    table: &mut dyn Table,
    keys: &[OwnedKey],
    args: &BenchArgs,
    thread_index: usize,
    all_threads_exist: &OnceLock<bool>,
) -> anyhow::Result<ThreadResult> {
    let batch_ns = Histogram::new(LATENCY_DIGITS)?;
    let mut result = ThreadResult { lookups: 0, not_found: 0, value_len_bytes: 0, elapsed: Duration::ZERO, batch_ns };
    let mut order = keys.iter().map(OwnedKey::as_key).cycle();
    // Each thread begins at a different key.
    let _ = order.nth(thread_index * keys.len() / args.threads);
    let mut batch: Vec<Key<'_>> = Vec::with_capacity(args.batch);
    if !all_threads_exist.wait() {
        return Ok(result);
    }
    let started = Instant::now();
    let mut batch_started = started;
    while result.elapsed < args.seconds {
        batch.clear();
        batch.extend(order.by_ref().take(args.batch));
        let (mut not_found, mut value_len_bytes) = (0, 0);
        table.get(&batch, &mut |_, value| match value {
            Some(value) => value_len_bytes += value.len() as u64,
            None => not_found += 1,
        })?;
        let now = Instant::now();
        result.batch_ns.record(u64::try_from((now - batch_started).as_nanos())?)?;
        (batch_started, result.elapsed) = (now, now - started);
        result.lookups += args.batch as u64;
        result.not_found += not_found;
        result.value_len_bytes += value_len_bytes;
    }
    Ok(result)
}

#[derive(Serialize)]
struct Report {
    rows: u64,
    keys: usize,
    threads: usize,
    batch: usize,
    lookups: u64,
    not_found: u64,
    value_len_bytes: u64,
    lookups_per_s: f64,
    ns_per_lookup: f64,
    batch_us_p50: f64,
    batch_us_p90: f64,
    batch_us_p99: f64,
    #[serde(rename = "batch_us_p99.9")]
    batch_us_p99_9: f64,
    batch_us_max: f64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { rows, keys, threads, batch, lookups, not_found, .. } = self;
        let selection =
            if *keys as u64 == *rows { "all".to_owned() } else { format!("the first {}", HumanCount(*keys as u64)) };
        let threads = if *threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") };
        writeln!(f, "{selection} of {} keys in random order, batches of {batch}, {threads}", HumanCount(*rows))?;
        let per_s = HumanCount(self.lookups_per_s as u64);
        writeln!(f, "{per_s} lookups/s, {:.1} ns of thread time per lookup", self.ns_per_lookup)?;
        writeln!(f, "{} lookups, {} not found", HumanCount(*lookups), HumanCount(*not_found))?;
        let Report { batch_us_p50, batch_us_p90, batch_us_p99, batch_us_p99_9, batch_us_max, .. } = self;
        writeln!(
            f,
            "batch latency: p50 {batch_us_p50:.1} µs, p90 {batch_us_p90:.1} µs, p99 {batch_us_p99:.1} µs, \
             p99.9 {batch_us_p99_9:.1} µs, max {batch_us_max:.1} µs"
        )
    }
}
