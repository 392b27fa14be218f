//! Random reads of the device, without the page cache.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, OFlags, fadvise};

const BLOCK_LEN_BYTES: usize = 4096;

pub(crate) fn evict(db: &Path) -> io::Result<()> {
    let file = File::open(db)?;
    file.sync_all()?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}

/// Returns the number of random blocks that threads read per second from the device. If the file system does not
/// support O_DIRECT, the result is the rate of the page cache. `seeded` returns the random numbers of a thread: a function
/// of the number that they are below.
pub(crate) fn device_rate<R: FnMut(u64) -> u64>(
    db: &Path,
    threads: usize,
    measured: Duration,
    seeded: impl Fn(u64) -> R + Sync,
) -> io::Result<f64> {
    let direct = OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(db);
    let file = direct.or_else(|_| File::open(db))?;
    let blocks = (file.metadata()?.len() / BLOCK_LEN_BYTES as u64).max(1);
    let (is_over, reads, started) = (AtomicBool::new(false), AtomicU64::new(0), Instant::now());
    thread::scope(|scope| {
        for thread in 0..threads {
            let (file, is_over, reads, seeded) = (&file, &is_over, &reads, &seeded);
            scope.spawn(move || {
                let mut random = seeded(thread as u64);
                let mut buffer = vec![0; 2 * BLOCK_LEN_BYTES];
                let start = buffer.as_ptr().align_offset(BLOCK_LEN_BYTES);
                while !is_over.load(Ordering::Relaxed) {
                    let at = random(blocks) * BLOCK_LEN_BYTES as u64;
                    file.read_at(&mut buffer[start..start + BLOCK_LEN_BYTES], at).expect("a block of the file");
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        thread::sleep(measured);
        is_over.store(true, Ordering::Relaxed);
    });
    Ok(reads.into_inner() as f64 / started.elapsed().as_secs_f64())
}
