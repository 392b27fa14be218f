//! How fast a server, or a file, answers the client of this library.
//!
//! In: whom to ask, and for how long. Out: lookups a second, and how long a batch took. It asks
//! for keys of the table in random order, as fast as its threads can, and says nothing of what
//! a server could do for others at the same time: that is `benchmarker`'s business.

use std::fmt;
use std::io::{self, Write};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use hdrhistogram::Histogram;
use indicatif::HumanCount;
use serde::Serialize;
use zero_kv::Key;
use zero_kv::client::OwnedKey;

use crate::args::{BenchArgs, RangeArgs};
use crate::output::{settle_stdout, write_json};
use crate::random::Random;
use crate::table::{Table, Walk};

/// Of a larger table, so many keys are asked for.
const KEYS_MAX: usize = 1_000_000;
/// The order of the keys, the same in every run.
const SEED: u64 = 1;
/// Percentiles are told to so many digits.
const LATENCY_DIGITS: u8 = 3;

/// `connect` gives whom to ask, anew for each thread.
pub(crate) fn bench<'t>(
    args: &BenchArgs,
    connect: impl Fn() -> anyhow::Result<Box<dyn Table + Send + 't>>,
) -> anyhow::Result<bool> {
    let mut tables = (0..args.threads).map(|_| connect()).collect::<anyhow::Result<Vec<_>>>()?;
    let rows = tables[0].count(&RangeArgs::default())?;
    let keys = draw(&mut *tables[0])?;
    if keys.is_empty() {
        bail!("the table is empty: there is no key to ask for");
    }
    let report = measure(args, rows, &keys, tables)?;
    let mut output = io::stdout().lock();
    let written = if args.json { write_json(&mut output, &report) } else { write!(output, "{report}") };
    settle_stdout(written.and_then(|()| output.flush()))?;
    Ok(report.not_found == 0)
}

/// Keys of the table, shuffled.
fn draw(table: &mut dyn Table) -> anyhow::Result<Vec<OwnedKey>> {
    let mut keys = Vec::new();
    let walk = Walk { range: &RangeArgs::default(), reverse: false, limit: Some(KEYS_MAX) };
    table.walk(&walk, &mut |(key, _)| {
        keys.push(OwnedKey::from(key));
        Ok(())
    })?;
    Random::of_seed(SEED).shuffle(&mut keys);
    Ok(keys)
}

/// What one thread has seen.
struct Seen {
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
    let start = Barrier::new(tables.len());
    let seen = thread::scope(|scope| {
        let ask = |(number, mut table): (usize, Box<dyn Table + Send>)| {
            let start = &start;
            scope.spawn(move || ask(&mut *table, keys, args, number, start))
        };
        let threads: Vec<_> = tables.into_iter().enumerate().map(ask).collect();
        let ended = threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a thread has panicked"))?);
        ended.collect::<anyhow::Result<Vec<_>>>()
    })?;
    let mut batch_ns = Histogram::new(LATENCY_DIGITS)?;
    seen.iter().try_for_each(|seen| batch_ns.add(&seen.batch_ns))?;
    let sum = |of: fn(&Seen) -> u64| seen.iter().map(of).sum::<u64>();
    let (lookups, seconds) = (sum(|seen| seen.lookups), |seen: &Seen| seen.elapsed.as_secs_f64());
    let us = |quantile| batch_ns.value_at_quantile(quantile).min(batch_ns.max()) as f64 / 1e3;
    Ok(Report {
        rows,
        keys: keys.len(),
        threads: seen.len(),
        batch: args.batch,
        lookups,
        not_found: sum(|seen| seen.not_found),
        value_len_bytes: sum(|seen| seen.value_len_bytes),
        lookups_per_s: seen.iter().map(|seen| seen.lookups as f64 / seconds(seen)).sum(),
        ns_per_lookup: seen.iter().map(seconds).sum::<f64>() * 1e9 / lookups as f64,
        batch_us_p50: us(0.5),
        batch_us_p90: us(0.9),
        batch_us_p99: us(0.99),
        batch_us_p99_9: us(0.999),
        batch_us_max: us(1.0),
    })
}

/// Asks batch after batch until the time is over.
fn ask(
    table: &mut dyn Table,
    keys: &[OwnedKey],
    args: &BenchArgs,
    number: usize,
    start: &Barrier,
) -> anyhow::Result<Seen> {
    let batch_ns = Histogram::new(LATENCY_DIGITS)?;
    let mut seen = Seen { lookups: 0, not_found: 0, value_len_bytes: 0, elapsed: Duration::ZERO, batch_ns };
    let mut order = keys.iter().map(OwnedKey::as_key).cycle();
    let _ = order.nth(Random::of_client(SEED, number).below(keys.len()));
    let mut asked: Vec<Key<'_>> = Vec::with_capacity(args.batch);
    start.wait();
    let started = Instant::now();
    let mut before = started;
    while seen.elapsed < args.seconds {
        asked.clear();
        asked.extend(order.by_ref().take(args.batch));
        let (mut not_found, mut value_len_bytes) = (0, 0);
        table.get(&asked, &mut |_, value| match value {
            Some(value) => value_len_bytes += value.len() as u64,
            None => not_found += 1,
        })?;
        let now = Instant::now();
        seen.batch_ns.record(u64::try_from((now - before).as_nanos())?)?;
        (before, seen.elapsed) = (now, now - started);
        seen.lookups += args.batch as u64;
        seen.not_found += not_found;
        seen.value_len_bytes += value_len_bytes;
    }
    Ok(seen)
}

/// What a run came to.
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
        let of =
            if *keys as u64 == *rows { "all".to_owned() } else { format!("the first {}", HumanCount(*keys as u64)) };
        let threads = if *threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") };
        writeln!(f, "{of} of {} keys in random order, batches of {batch}, {threads}", HumanCount(*rows))?;
        let per_s = HumanCount(self.lookups_per_s as u64);
        writeln!(f, "{per_s} lookups/s, {:.1} ns each on its thread", self.ns_per_lookup)?;
        writeln!(f, "{} lookups, {} not found", HumanCount(*lookups), HumanCount(*not_found))?;
        let Report { batch_us_p50, batch_us_p90, batch_us_p99, batch_us_p99_9, batch_us_max, .. } = self;
        writeln!(
            f,
            "a batch: p50 {batch_us_p50:.1} µs, p90 {batch_us_p90:.1} µs, p99 {batch_us_p99:.1} µs, \
             p99.9 {batch_us_p99_9:.1} µs, max {batch_us_max:.1} µs"
        )
    }
}
