//! The files of a node's slots: merged into one file, beside lookups in all files.

use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use zero_kv::Lookup;
use zero_kv::Store;
use zero_kv::bake::{self, Options};
use zero_kv::slots::{SlotRange, slot_of};

use super::processors::{own_cpu_seconds, unpin_this_process};
use super::servers::Table;
use crate::Args;
use crate::support::is_test;

const FILE_COUNTS: [u16; 4] = [1, 2, 4, 16];
/// The number of keys of a batch.
const BATCH: usize = 256;

pub(crate) fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    unpin_this_process()?;
    let table = Table::bake(args.merged_rows)?;
    let len_gb = fs::metadata(table.whole())?.len() as f64 / 1e9;
    println!("{} rows, {:.0} MB, in one file after a merge, and side by side:", args.merged_rows, len_gb * 1e3);
    println!(
        "| files | merge, s/GB | merge, processor s/GB | Get in batches, ns | the same side by side | floor, ns | the same side by side |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|");
    let mut keys: Vec<u64> = (0..args.merged_rows).collect();
    keys.shuffle(&mut SmallRng::seed_from_u64(7));
    keys.truncate(1_000_000.min(keys.len()));
    for count in FILE_COUNTS {
        let shards = table.shards(count)?;
        let merged = table.path("merged.db");
        let paths: Vec<PathBuf> = shards.iter().map(|(_, path)| path.clone()).collect();
        let (began, cpu_began) = (Instant::now(), own_cpu_seconds());
        bake::merge(&paths, &merged, &Options::default())?;
        let (seconds, cpu) = (began.elapsed().as_secs_f64(), own_cpu_seconds() - cpu_began);
        let one = Store::open(&merged)?;
        let many: Vec<(SlotRange, Store)> = shards
            .into_iter()
            .map(|(slots, path)| Ok((slots, Store::open(path)?)))
            .collect::<Result<_, Box<dyn Error>>>()?;
        let merge = if count == 1 {
            ["–".to_owned(), "–".to_owned()]
        } else {
            [seconds, cpu].map(|s| format!("{:.2}", s / len_gb))
        };
        println!(
            "| {count} | {} | {} | {:.0} | {:.0} | {:.0} | {:.0} |",
            merge[0],
            merge[1],
            per_key_ns(&keys, args.measured, |keys| gets(&one, keys))?,
            per_key_ns(&keys, args.measured, |keys| gets_side_by_side(&many, keys))?,
            per_key_ns(&keys, args.measured, |keys| floors(&one, keys))?,
            per_key_ns(&keys, args.measured, |keys| floors_side_by_side(&many, keys))?,
        );
        fs::remove_file(&merged)?;
    }
    Ok(())
}

/// Returns the time per key. `look_up` returns the sum of something that all ways of looking up find.
fn per_key_ns(
    keys: &[u64],
    duration: Duration,
    mut look_up: impl FnMut(&[u64]) -> Result<u64, Box<dyn Error>>,
) -> Result<f64, Box<dyn Error>> {
    let (began, mut count) = (Instant::now(), 0);
    loop {
        for keys in keys.chunks(BATCH) {
            let found = look_up(keys)?;
            // The value of a key contains the key, and the floor of a key of the table is the key.
            let expected: u64 = keys.iter().sum();
            if found != expected {
                return Err(format!("the lookups found {found}, expected {expected}").into());
            }
            count += keys.len();
            if began.elapsed() > duration || is_test() {
                return Ok(began.elapsed().as_secs_f64() * 1e9 / count as f64);
            }
        }
    }
}

/// Returns the number at the beginning of a value.
fn number(value: Option<&[u8]>) -> u64 {
    let digits = value.and_then(|value| value.get(..20)).unwrap_or_default();
    digits.iter().fold(0, |number, digit| 10 * number + u64::from(digit - b'0'))
}

fn gets(store: &Store, keys: &[u64]) -> Result<u64, Box<dyn Error>> {
    let mut sum = 0;
    store.get_many_with(keys, |_, value| sum += number(value))?;
    Ok(black_box(sum))
}

/// Computes the slot of each key, and looks up the keys of each file in a batch.
fn gets_side_by_side(stores: &[(SlotRange, Store)], keys: &[u64]) -> Result<u64, Box<dyn Error>> {
    let mut parts = vec![Vec::with_capacity(keys.len()); stores.len()];
    for key in keys {
        let slot = slot_of((*key).into());
        parts[stores.partition_point(|(slots, _)| slots.last_slot < slot)].push(*key);
    }
    stores.iter().zip(&parts).map(|((_, store), keys)| gets(store, keys)).sum()
}

fn floors(store: &Store, keys: &[u64]) -> Result<u64, Box<dyn Error>> {
    let mut sum = 0;
    store.floor_many_with(keys, |_, row| sum += row.and_then(|(key, _)| key.as_u64()).unwrap_or_default())?;
    Ok(black_box(sum))
}

/// Looks the floors of all keys up in each file, and takes the greatest ones.
fn floors_side_by_side(stores: &[(SlotRange, Store)], keys: &[u64]) -> Result<u64, Box<dyn Error>> {
    let mut greatest = vec![0; keys.len()];
    for (_, store) in stores {
        store.floor_many_with(keys, |at, row| {
            greatest[at] = greatest[at].max(row.and_then(|(key, _)| key.as_u64()).unwrap_or_default());
        })?;
    }
    Ok(black_box(greatest.iter().sum()))
}
