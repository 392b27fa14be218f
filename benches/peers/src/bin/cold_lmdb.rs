//! Lookups in an LMDB file that is larger than memory, for comparison with `cargo bench --bench cold`.
//!
//! The file has the rows of that bench: 60 million consecutive keys with values of 100 bytes. The program builds the file
//! if it does not exist, evicts it from the page cache, and enters a memory control group. Then threads look random keys
//! up, each with one lookup at a time, in a file that was opened without read-ahead.
//!
//! `cold_lmdb FOLDER [ROWS [MEMORY_MIB [SECONDS]]]` needs root, for the control group.

use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use heed::byteorder::NativeEndian;
use heed::types::{Bytes, U64};
use heed::{Database, Env, EnvFlags, EnvOpenOptions, IntegerComparator, PutFlags, WithoutTls};
use rustix::fs::{Advice, fadvise};

const VALUE_LEN_BYTES: usize = 100;
const TRANSACTION_ROWS: u64 = 1_000_000;
const THREADS: [usize; 2] = [64, 16];

type Table = Database<U64<NativeEndian>, Bytes, IntegerComparator>;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let folder = Path::new(args.first().context("found no folder, expected FOLDER [ROWS [MEMORY_MIB [SECONDS]]]")?);
    let number = |at: usize, default: u64| args.get(at).map_or(Ok(default), |text| text.parse());
    let (rows, memory_mib, seconds) = (number(1, 60_000_000)?, number(2, 2048)?, number(3, 5)?);
    let file = folder.join("data.mdb");
    if !file.exists() {
        fs::create_dir_all(folder)?;
        build(folder, rows)?;
    }
    println!("{} bytes, {rows} rows", fs::metadata(&file)?.len());
    enter_group(memory_mib << 20)?;
    for threads in THREADS {
        let file = File::open(&file)?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
        let per_second = lookups_per_second(folder, rows, threads, Duration::from_secs(seconds))?;
        println!("LMDB, {threads} threads: {per_second:.0} lookups/s");
    }
    Ok(())
}

fn environment(folder: &Path, rows: u64, flags: EnvFlags) -> Result<Env<WithoutTls>> {
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.map_size((rows as usize * 2 * (VALUE_LEN_BYTES + 64)).next_multiple_of(1 << 30));
    options.max_readers(2 * THREADS[0] as u32);
    // SAFETY: NO_SYNC is set only while the file is built, and a file that was not synced is built again. READ_ONLY and
    // NO_READ_AHEAD have no safety conditions.
    unsafe { options.flags(flags) };
    // SAFETY: no other process uses the folder, and only LMDB accesses its file.
    Ok(unsafe { options.open(folder) }?)
}

fn build(folder: &Path, rows: u64) -> Result<()> {
    let environment = environment(folder, rows, EnvFlags::NO_SYNC)?;
    let mut transaction = environment.write_txn()?;
    let options = environment.database_options().types::<U64<NativeEndian>, Bytes>();
    let table: Table = options.key_comparator::<IntegerComparator>().create(&mut transaction)?;
    transaction.commit()?;
    for first in (0..rows).step_by(TRANSACTION_ROWS as usize) {
        let mut transaction = environment.write_txn()?;
        for key in first..rows.min(first + TRANSACTION_ROWS) {
            table.put_with_flags(&mut transaction, PutFlags::APPEND, &key, &value(key))?;
        }
        transaction.commit()?;
    }
    Ok(environment.force_sync()?)
}

fn value(key: u64) -> [u8; VALUE_LEN_BYTES] {
    std::array::from_fn(|at| b'a' + ((key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (at % 8 * 8)) % 26) as u8)
}

/// Moves this process into a new memory control group, in version 1 or version 2 of control groups.
fn enter_group(limit_bytes: u64) -> Result<()> {
    let version_1 = Path::new("/sys/fs/cgroup/memory");
    let (parent, limit) = match version_1.exists() {
        true => (version_1, "memory.limit_in_bytes"),
        false => (Path::new("/sys/fs/cgroup"), "memory.max"),
    };
    let group = parent.join(format!("zero-kv-peers-{}", std::process::id()));
    fs::create_dir(&group).context("cannot create a control group: run as root")?;
    fs::write(group.join(limit), limit_bytes.to_string())?;
    Ok(fs::write(group.join("cgroup.procs"), std::process::id().to_string())?)
}

fn lookups_per_second(folder: &Path, rows: u64, threads: usize, measured: Duration) -> Result<f64> {
    let environment = environment(folder, rows, EnvFlags::READ_ONLY | EnvFlags::NO_READ_AHEAD)?;
    let (is_over, lookups, began) = (AtomicBool::new(false), AtomicU64::new(0), Instant::now());
    thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..threads as u64)
            .map(|thread| {
                let (environment, is_over, lookups) = (&environment, &is_over, &lookups);
                scope.spawn(move || -> Result<()> {
                    let transaction = environment.read_txn()?;
                    let options = environment.database_options().types::<U64<NativeEndian>, Bytes>();
                    let table: Table =
                        options.key_comparator::<IntegerComparator>().open(&transaction)?.context("no table")?;
                    let mut state = thread + 1;
                    while !is_over.load(Ordering::Relaxed) {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        let key = ((u128::from(state) * u128::from(rows)) >> 64) as u64;
                        let found = table.get(&transaction, &key)?.context("a key is missing")?;
                        assert!(*found == value(key), "key {key}: wrong value");
                        lookups.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        thread::sleep(measured);
        is_over.store(true, Ordering::Relaxed);
        workers.into_iter().try_for_each(|worker| worker.join().expect("a thread"))
    })?;
    Ok(lookups.into_inner() as f64 / began.elapsed().as_secs_f64())
}
