//! Gets of random keys in tables that are larger than the memory of the processes that read them.
//!
//! In: an engine that has a file. Out: gets per second of several processes in one control group, beside the rate at which
//! as many threads read random blocks of 4 KiB from the device. This program runs itself again for each process, and tells
//! it what to do in an environment variable.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::OFlags;

use crate::engine::{self, Engine};
use crate::page_cache::drop_files;
use crate::rows::{Random, Rows};

/// The arguments of a child: the engine, the folder, the rows, the length of values, keys per call, milliseconds, and a seed,
/// separated by line ends.
const CHILD: &str = "ZERO_KV_PEERS_COLD_CHILD";
const BLOCK_LEN_BYTES: usize = 4096;

/// The numbers of processes, and the keys of a call.
const LOADS: [(usize, usize); 3] = [(16, 1), (64, 1), (16, 256)];

/// The engines whose processes share the page cache. The others have caches in each process, whose lengths depend on the
/// memory of the machine.
const ENGINES: [&str; 2] = ["Zero-KV", "LMDB"];

/// Measures engines, and prints a line for each load.
pub(crate) fn measure(rows: Rows, memory_bytes: u64, measured: Duration, folder: &Path) -> Result<()> {
    let engines: Vec<Engine> = engine::all().into_iter().flatten().filter(|e| ENGINES.contains(&e.name)).collect();
    let group = Group::new(memory_bytes)?;
    println!(
        "| engine | processes | keys per call | gets/s | device, reads/s | ratio |\n|---|---:|---:|---:|---:|---:|"
    );
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
            println!("| {} | {processes} | {keys} | {rate:.0} | {device:.0} | {:.2} |", engine.name, rate / device);
        }
        fs::remove_dir_all(&folder)?;
    }
    Ok(())
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
    group: &Group,
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
        let mut command = group.command()?;
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
    let direct = OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(&longest);
    let file = direct.or_else(|_| File::open(&longest))?;
    let blocks = len_bytes(&longest) / BLOCK_LEN_BYTES as u64;
    let (is_over, reads, began) = (AtomicBool::new(false), AtomicU64::new(0), Instant::now());
    thread::scope(|scope| {
        for seed in 0..threads {
            let (file, is_over, reads) = (&file, &is_over, &reads);
            scope.spawn(move || {
                let mut random = Random::seeded(seed as u64);
                let mut buffer = vec![0; 2 * BLOCK_LEN_BYTES];
                let start = buffer.as_ptr().align_offset(BLOCK_LEN_BYTES);
                while !is_over.load(Ordering::Relaxed) {
                    let at = random.below(blocks.max(1)) * BLOCK_LEN_BYTES as u64;
                    file.read_at(&mut buffer[start..start + BLOCK_LEN_BYTES], at).expect("a block of the file");
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        thread::sleep(measured);
        is_over.store(true, Ordering::Relaxed);
    });
    Ok(reads.into_inner() as f64 / began.elapsed().as_secs_f64())
}

/// A control group that limits the memory of the processes in it. Removed when dropped.
struct Group(PathBuf);

impl Group {
    /// Creates a group in version 1 or version 2 of control groups.
    fn new(limit_bytes: u64) -> Result<Group> {
        let (name, version_1) = (format!("zero-kv-peers-{}", std::process::id()), Path::new("/sys/fs/cgroup/memory"));
        let (folder, limit) = match version_1.exists() {
            true => (version_1.join(name), "memory.limit_in_bytes"),
            false => (Path::new("/sys/fs/cgroup").join(name), "memory.max"),
        };
        fs::create_dir_all(&folder).with_context(|| format!("{}: run as root", folder.display()))?;
        let group = Group(folder);
        fs::write(group.0.join(limit), limit_bytes.to_string())?;
        Ok(group)
    }

    /// Returns a command that runs this program in the group.
    fn command(&self) -> Result<Command> {
        let mut command = Command::new("sh");
        let enter = format!("echo $$ > {} && exec \"$0\"", self.0.join("cgroup.procs").display());
        command.args(["-c", &enter]).arg(std::env::current_exe()?);
        Ok(command)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}
