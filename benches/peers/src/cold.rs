//! Gets of random keys in tables that are larger than the memory of the processes that read them.
//!
//! In: an engine that has a file. Out: gets per second of several processes in one control group, beside the rate at which
//! as many threads read random blocks of 4 KiB from the device. This program runs itself again for each process, and tells
//! it what to do in an environment variable.

#[path = "../../cold_loads/device.rs"]
#[allow(dead_code, reason = "this program uses a part of the module")]
mod device;
#[path = "../../cold_loads/group.rs"]
#[allow(dead_code, reason = "this program uses a part of the module")]
mod group;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use group::{MemoryGroup, command_in};

use crate::engine::{self, Engine};
use crate::figures::{FigureTable, Figures, Origin};
use crate::page_cache::drop_files;
use crate::report::load_of;
use crate::rows::{Random, Rows};

/// The arguments of a child: the engine, the folder, the rows, the length of values, keys per call, milliseconds, and a seed,
/// separated by line ends.
const CHILD: &str = "ZERO_KV_PEERS_COLD_CHILD";

/// The numbers of processes, and the keys of a call.
const LOADS: [(usize, usize); 3] = [(16, 1), (64, 1), (16, 256)];

/// The engines whose processes share the page cache. RocksDB reads uncompressed blocks from the mapping, and does not copy
/// them into its block cache. The other engines have caches in each process.
const ENGINES: [&str; 3] = ["Zero-KV", "LMDB", "RocksDB"];

/// Measures engines, and prints the table.
pub(crate) fn measure(
    rows: Rows,
    memory_bytes: u64,
    measured: Duration,
    folder: &Path,
    origin: &Origin,
) -> Result<Figures> {
    let engines: Vec<Engine> = engine::all().into_iter().flatten().filter(|e| ENGINES.contains(&e.name)).collect();
    let group = MemoryGroup::new(memory_bytes).context("run as root, for a control group")?;
    let columns = ["engine", "processes", "keys per call", "gets/s", "device, reads/s", "ratio"];
    let mut table = FigureTable::new(load_of(rows), origin, &columns);
    for engine in &engines {
        let Some(build) = engine.build else { continue };
        let folder = folder.join(engine.name);
        fs::create_dir(&folder)?;
        build(&rows, &folder).with_context(|| engine.name)?;
        for (processes, keys) in LOADS {
            if keys > 1 && !engine.batched {
                continue;
            }
            drop_files(&folder)?;
            let device = device_rate(&folder, processes, measured)?;
            drop_files(&folder)?;
            let rate = rate(engine.name, rows, &folder, &group, processes, keys, measured)?;
            let rates = [rate, device].map(|rate| format!("{:.0} k", rate / 1e3));
            let load = [engine.name.to_owned(), processes.to_string(), keys.to_string()];
            table.rows.push(load.into_iter().chain(rates).chain([format!("{:.2}", rate / device)]).collect());
        }
        fs::remove_dir_all(&folder)?;
    }
    println!("{table}");
    let mut figures = Figures::default();
    figures.insert("cold-engines".to_owned(), table);
    Ok(figures)
}

/// Runs a child, if this process is one. Returns whether it is.
pub(crate) fn run_child() -> Result<bool> {
    let Ok(given) = std::env::var(CHILD) else { return Ok(false) };
    let args: Vec<&str> = given.lines().collect();
    let &[name, folder, count, value_len_bytes, keys, measured_ms, seed] = &args[..] else { bail!("seven arguments") };
    let rows = Rows { count: count.parse()?, value_len_bytes: value_len_bytes.parse()? };
    let (keys, measured) = (keys.parse()?, Duration::from_millis(measured_ms.parse()?));
    let engine = engine::all().into_iter().flatten().find(|engine| engine.name == name).context("an engine")?;
    let mut opened = (engine.open)(&rows, Path::new(folder))?;
    let mut random = Random::seeded(seed.parse()?);
    let (mut gets, began) = (0, Instant::now());
    while began.elapsed() < measured {
        let batch: Vec<u64> = (0..keys).map(|_| rows.key(random.below(rows.count))).collect();
        let sum = if keys == 1 { opened.gets(&batch)? } else { opened.batches(&batch)? };
        ensure!(sum.found_count() == keys as u64, "{} of {keys} keys were found", sum.found_count());
        gets += keys as u64;
    }
    println!("{}", gets as f64 / began.elapsed().as_secs_f64());
    Ok(true)
}

fn rate(
    engine: &str,
    rows: Rows,
    folder: &Path,
    group: &MemoryGroup,
    processes: usize,
    keys: usize,
    measured: Duration,
) -> Result<f64> {
    let start = |seed: usize| {
        let args = [
            engine.to_owned(),
            folder.display().to_string(),
            rows.count.to_string(),
            rows.value_len_bytes.to_string(),
            keys.to_string(),
            measured.as_millis().to_string(),
            seed.to_string(),
        ];
        let mut command = command_in(Some(group), &std::env::current_exe()?);
        Ok(command.env(CHILD, args.join("\n")).stdout(Stdio::piped()).spawn()?)
    };
    let children = (0..processes).map(start).collect::<Result<Vec<_>>>()?;
    let mut sum = 0.0;
    for child in children {
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "{engine}: a process ended with {}", output.status);
        sum += String::from_utf8(output.stdout)?.trim().parse::<f64>()?;
    }
    Ok(sum)
}

/// Returns the number of random blocks of the longest file that threads read per second, without the page cache.
fn device_rate(folder: &Path, threads: usize, measured: Duration) -> Result<f64> {
    let len_bytes = |path: &PathBuf| fs::metadata(path).map_or(0, |found| found.len());
    let files = fs::read_dir(folder)?.map(|file| Ok(file?.path())).collect::<Result<Vec<_>>>()?;
    let longest = files.into_iter().max_by_key(len_bytes).context("a file")?;
    let seeded = |seed| {
        let mut random = Random::seeded(seed);
        move |end| random.below(end)
    };
    Ok(device::device_rate(&longest, threads, measured, seeded)?)
}
