//! Measures the figures of `docs/cookbook`: `cargo run --release --example cookbook`, in the repository.
//!
//! Prints one or more lines for each page that has a Rust program. Times are medians of five rounds on one thread.

use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use zero_kv::Lookup;
use zero_kv::Store;
use zero_kv::bake::{self, Keys, Options};
use zero_kv::client::Client;
use zero_kv::server::{Config, Server};

const LOOKUPS: usize = 1_000_000;
const BATCH: usize = 256;
const WIDTH: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    ip_to_country(&folder.path().join("ip-ranges.db"))?;
    features(&folder.path().join("features.db"))?;
    configuration(&folder.path().join("settings.db"), &folder.path().join("s.sock"))
}

/// Runs five rounds of `count` items each, and returns the median time per item in nanoseconds.
fn each_ns(count: usize, mut round: impl FnMut()) -> f64 {
    let mut rounds: Vec<Duration> = (0..5)
        .map(|_| {
            let started = Instant::now();
            round();
            started.elapsed()
        })
        .collect();
    rounds.sort_unstable();
    rounds[2].as_secs_f64() * 1e9 / count as f64
}

/// Returns a generator of random numbers below a limit.
fn random(limit: u64) -> impl FnMut() -> u64 {
    let mut rng = SmallRng::seed_from_u64(1);
    move || rng.random_range(0..limit)
}

fn ip_to_country(file: &Path) -> Result<(), Box<dyn Error>> {
    let rows = std::fs::File::open("datasets/ip-ranges.csv")?;
    bake::bake_csv(rows, file, &Options::default())?;
    let ranges = Store::open(file)?;
    let (first, last) = (ranges.first()?.ok_or("no ranges")?.0, ranges.last()?.ok_or("no ranges")?.0);
    let (first, last) = (first.as_u64().ok_or("numbers")?, last.as_u64().ok_or("numbers")?);
    let mut next = random(last - first);
    let addresses: Vec<u64> = (0..LOOKUPS).map(|_| first + next()).collect();
    let is_in_range = |address: u64| {
        let value = ranges.floor(address).ok()??.1;
        let (last, _country) = std::str::from_utf8(value).ok()?.split_once(',')?;
        (address <= last.parse().ok()?).then_some(())
    };
    let found = addresses.iter().filter(|address| is_in_range(**address).is_some()).count();
    let ns = each_ns(LOOKUPS, || {
        addresses.iter().for_each(|address| {
            black_box(is_in_range(*address));
        });
    });
    println!("ip-to-country: {ns:.0} ns per address; {found} of {LOOKUPS} are in one of {} ranges", ranges.len());
    Ok(())
}

fn features(file: &Path) -> Result<(), Box<dyn Error>> {
    let items = 100_000;
    let rows = (0..items).map(|item| (item, [item as f32; WIDTH].map(f32::to_le_bytes).concat()));
    bake::bake_rows(rows, file, &Options::default())?;
    let table = Store::open(file)?;
    let mut next = random(items);
    let requested: Vec<u64> = (0..LOOKUPS).map(|_| next()).collect();
    let mut matrix = vec![0_f32; BATCH * WIDTH];
    let mut fill = |items: &[u64]| {
        table.get_many_with(items, |position, value| {
            let row = &mut matrix[position * WIDTH..(position + 1) * WIDTH];
            for (cell, bytes) in row.iter_mut().zip(value.unwrap_or_default().as_chunks().0) {
                *cell = f32::from_le_bytes(*bytes);
            }
        })
    };
    let ns = each_ns(LOOKUPS, || requested.chunks(BATCH).for_each(|items| fill(items).expect("intact file")));
    let mb = std::fs::metadata(file)?.len() as f64 / 1e6;
    println!(
        "features: {ns:.0} ns per vector of {WIDTH} float32 in batches of {BATCH}; {items} vectors in a file of {mb:.1} MB"
    );
    let ns = each_ns(LOOKUPS, || requested.iter().for_each(|item| fill(&[*item]).expect("intact file")));
    println!("features: {ns:.0} ns per vector, one lookup at a time");
    Ok(())
}

fn configuration(file: &Path, socket: &Path) -> Result<(), Box<dyn Error>> {
    let mut options = Options::default();
    options.keys = Keys::BYTES;
    let names: Vec<String> = (0..1000).map(|setting| format!("setting.{setting}")).collect();
    let bake = |value: &str| bake::bake_rows(names.iter().map(|name| (name, value)), file, &options);
    bake("1")?;
    let server = Server::bind(file, &Config { socket: socket.to_path_buf(), ..Config::default() })?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(|| server.run(async { stopped.await.unwrap_or_default() }));
        let direct = Client::connect(socket)?.direct()?;
        let ns = each_ns(LOOKUPS, || (0..LOOKUPS).for_each(|_| drop(black_box(direct.snapshot()))));
        println!("configuration: {ns:.0} ns per snapshot");
        let table = direct.snapshot();
        let ns = each_ns(LOOKUPS, || {
            (0..LOOKUPS).for_each(|i| {
                black_box(table.get(&names[i % names.len()]).expect("intact file"));
            });
        });
        println!("configuration: {ns:.0} ns per setting, with {} settings", table.len());

        let mut delays: Vec<Duration> = Vec::new();
        for round in 0..21 {
            let before = direct.generation();
            bake(&round.to_string())?;
            let baked = Instant::now();
            while direct.snapshot().generation() == before {
                std::thread::yield_now();
            }
            delays.push(baked.elapsed());
        }
        delays.sort_unstable();
        println!(
            "configuration: {:.1} ms (median) and {:.1} ms (maximum) from the end of a bake until clients use the new table",
            ms(delays[10]),
            ms(delays[20])
        );
        drop(stop);
        Ok(())
    })
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
