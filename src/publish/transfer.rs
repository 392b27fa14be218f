//! What uploads and downloads share: progress, cancellation, the division of objects into parts, a limit on the rate of
//! downloads, and the space of the disk.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

use super::error::PublishError;
use crate::bake::Cancel;
use crate::folder::{Folder, folder_of};
use crate::sync::unpoisoned;

/// The number of requests of a transfer that are in flight.
pub(super) const REQUESTS_MAX: usize = 8;
/// The length of a part, unless an object would have too many parts.
pub(super) const PART_LEN_BYTES: u64 = 8 << 20;
/// The maximum number of parts of an upload. S3 allows 10,000.
const PARTS_MAX: u64 = 9000;
/// How often a failed transfer of a part is repeated, besides the retries of each request.
pub(super) const ATTEMPTS_MAX: u32 = 4;

/// A runtime for the requests of a thread. Dropping it does not wait for system calls that hang, so that a program can
/// end on a signal although a network file system does not respond.
pub(super) struct TransferRuntime(Option<Runtime>);

impl TransferRuntime {
    pub(super) fn new() -> io::Result<TransferRuntime> {
        Builder::new_current_thread().enable_all().build().map(Some).map(TransferRuntime)
    }

    pub(super) fn block_on<T>(&self, operation: impl Future<Output = T>) -> T {
        self.0.as_ref().expect("the runtime is taken only by drop").block_on(operation)
    }
}

impl Drop for TransferRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

pub(super) fn check(cancel: &Cancel) -> Result<(), PublishError> {
    if cancel.is_set() { Err(PublishError::Canceled) } else { Ok(()) }
}

/// Runs a transfer until it ends or is canceled, even while it waits for the store.
pub(super) async fn until_canceled<T>(
    cancel: &Cancel,
    transfer: impl Future<Output = Result<T, PublishError>>,
) -> Result<T, PublishError> {
    const CHECK_EVERY: Duration = Duration::from_millis(50);
    let canceled = async {
        while !cancel.is_set() {
            tokio::time::sleep(CHECK_EVERY).await;
        }
    };
    tokio::select! {
        biased;
        result = transfer => result,
        () = canceled => Err(PublishError::Canceled),
    }
}

/// The stage of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Verifies a file on this machine.
    Verify,
    /// Uploads a file.
    Upload,
    /// Reads the uploaded bytes back, and compares them.
    ReadBack,
    /// Downloads a file.
    Download,
}

impl Stage {
    /// Returns the name of the stage as a verb.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Verify => "verify",
            Stage::Upload => "upload",
            Stage::ReadBack => "read back",
            Stage::Download => "download",
        }
    }
}

/// The progress of a transfer of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransferProgress {
    /// The stage.
    pub stage: Stage,
    /// The number of bytes that are complete.
    pub done_bytes: u64,
    /// The length of the file, in bytes.
    pub total_bytes: u64,
}

/// A function that observes the progress of a transfer.
pub(super) type OnProgress<'a> = &'a mut (dyn FnMut(TransferProgress) + Send);

pub(super) fn part_len_bytes(object_len_bytes: u64) -> u64 {
    const MIB: u64 = 1 << 20;
    PART_LEN_BYTES.max(object_len_bytes.div_ceil(PARTS_MAX).next_multiple_of(MIB))
}

/// The parts of an object. They are computed when they are needed, because a manifest states the length of the object,
/// and a long object has more parts than fit into memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    object_len_bytes: u64,
    part_len_bytes: u64,
}

impl Parts {
    /// Divides an object into parts of a length that is not 0.
    pub(super) fn new(object_len_bytes: u64, part_len_bytes: u64) -> Parts {
        Parts { object_len_bytes, part_len_bytes }
    }

    pub(super) fn count(self) -> u64 {
        self.object_len_bytes.div_ceil(self.part_len_bytes)
    }

    /// Returns the range of a part. The range is empty if there is no part with this number.
    pub(super) fn range(self, part: u64) -> Range<u64> {
        let start = part.saturating_mul(self.part_len_bytes).min(self.object_len_bytes);
        start..self.object_len_bytes.min(start.saturating_add(self.part_len_bytes))
    }

    /// Returns the length of a part. It is 0 if there is no part with this number.
    pub(super) fn len_bytes(self, part: u64) -> u64 {
        let range = self.range(part);
        range.end - range.start
    }

    pub(super) fn ranges(self) -> impl Iterator<Item = Range<u64>> {
        (0..self.count()).map(move |part| self.range(part))
    }
}

/// Waits before an attempt is repeated: at most 200 ms before the second attempt, and twice as long before each
/// further one. Half of the time is random, so that nodes do not repeat their attempts together.
pub(super) async fn back_off(attempt: u32) {
    let max_ms = 200_u64 << attempt.min(6);
    tokio::time::sleep(Duration::from_millis(max_ms / 2 + random_below(max_ms / 2 + 1))).await;
}

pub(super) fn random_below(end: u64) -> u64 {
    u64::from_le_bytes(random_bytes()) % end.max(1)
}

#[cfg(test)]
thread_local! {
    static SEEDED: std::cell::Cell<Option<u64>> = const { std::cell::Cell::new(None) };
}

/// Makes the random bytes of this thread depend on a seed, so that a simulation can be replayed.
#[cfg(test)]
pub(super) fn seed_random(seed: Option<u64>) {
    SEEDED.set(seed);
}

pub(super) fn random_bytes<const LEN: usize>() -> [u8; LEN] {
    let mut bytes = [0; LEN];
    #[cfg(test)]
    if let Some(state) = SEEDED.get() {
        let mut random = <rand::rngs::SmallRng as rand::SeedableRng>::seed_from_u64(state);
        rand::Rng::fill_bytes(&mut random, &mut bytes);
        SEEDED.set(Some(state.wrapping_add(1)));
        return bytes;
    }
    // The system call returns up to 256 bytes at once, and fails only if it is not supported.
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    debug_assert_eq!(filled, Ok(LEN));
    bytes
}

/// The space that a download leaves free on a disk.
const FREE_MIN_BYTES: u64 = 16 << 20;

/// Checks that the disk of a file has space for more bytes.
pub(super) fn check_space(path: &Path, needed_bytes: u64) -> Result<(), PublishError> {
    let available_bytes = available_bytes(path)?;
    if available_bytes < needed_bytes.saturating_add(FREE_MIN_BYTES) {
        return Err(disk_full(path, available_bytes, needed_bytes));
    }
    Ok(())
}

fn available_bytes(path: &Path) -> Result<u64, PublishError> {
    let folder = folder_of(path);
    let disk = rustix::fs::statvfs(folder).map_err(|error| PublishError::io(folder)(error.into()))?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Converts an error of a write to a partial file. A disk can become full after [`check_space`].
pub(super) fn write_error(partial: &Path, file: &File, len_bytes: u64, error: io::Error) -> PublishError {
    if error.kind() != io::ErrorKind::StorageFull {
        return PublishError::io(partial)(error);
    }
    let Ok(available_bytes) = available_bytes(partial) else { return PublishError::io(partial)(error) };
    let needed_bytes = len_bytes.saturating_sub(allocated_bytes(file));
    disk_full(partial, available_bytes, needed_bytes)
}

fn disk_full(path: &Path, available_bytes: u64, needed_bytes: u64) -> PublishError {
    let (path, reserve_bytes) = (folder_of(path).to_path_buf(), FREE_MIN_BYTES);
    PublishError::DiskFull { path, available_bytes, needed_bytes, reserve_bytes }
}

/// Returns the number of bytes of a file that have space on the disk.
pub(super) fn allocated_bytes(file: &File) -> u64 {
    const BLOCK_BYTES: u64 = 512;
    file.metadata().map_or(0, |metadata| metadata.blocks().saturating_mul(BLOCK_BYTES))
}

pub(super) fn with_suffix(name: &OsStr, suffix: &str) -> OsString {
    let mut name = name.to_owned();
    name.push(suffix);
    name
}

pub(super) fn remove(folder: &Folder, name: &OsStr) -> Result<(), PublishError> {
    folder.remove(name).map_err(PublishError::io(&folder.path().join(name)))
}

pub(super) fn sync_folder(folder: &Folder) -> Result<(), PublishError> {
    folder.sync().map_err(PublishError::io(folder.path()))
}

/// A limit on the number of bytes per second of all transfers together.
pub(super) struct Bandwidth {
    /// `None` for no limit.
    bytes_per_s: Option<u64>,
    /// When all bytes that were reserved so far will have been transferred at the limit.
    free_at: Mutex<Option<Instant>>,
}

impl Bandwidth {
    pub(super) fn new(bytes_per_s: Option<u64>) -> Bandwidth {
        Bandwidth { bytes_per_s: bytes_per_s.filter(|rate| *rate > 0), free_at: Mutex::default() }
    }

    /// Waits until `bytes` more bytes may be requested. The first bytes after an idle time need not wait.
    pub(super) async fn reserve(&self, bytes: u64) {
        if let Some(start) = self.reserve_at(bytes, Instant::now()) {
            tokio::time::sleep_until(start).await;
        }
    }

    /// Reserves the time that `bytes` bytes take at the limit. Returns when this time begins, or `None` if it is now.
    fn reserve_at(&self, bytes: u64, now: Instant) -> Option<Instant> {
        let rate = self.bytes_per_s?;
        let mut free_at = unpoisoned(&self.free_at);
        let start = free_at.map_or(now, |free_at| free_at.max(now));
        *free_at = Some(start + Duration::from_secs_f64(bytes as f64 / rate as f64));
        (start > now).then_some(start)
    }

    /// Returns the length of the ranges that a transfer requests, for parts of at most `len_max_bytes`: less than a
    /// second's worth of bytes if the rate is limited.
    pub(super) fn range_len_bytes(&self, len_max_bytes: u64) -> u64 {
        const LEN_MIN_BYTES: u64 = 64 << 10;
        self.bytes_per_s.map_or(len_max_bytes, |rate| (rate / 4).clamp(LEN_MIN_BYTES, len_max_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_an_object_and_are_few_enough_for_every_store() {
        let ranges = |len_bytes, part_len_bytes| Parts::new(len_bytes, part_len_bytes).ranges().collect::<Vec<_>>();
        assert_eq!(ranges(0, 8), []);
        assert_eq!(ranges(17, 8), [0..8, 8..16, 16..17]);
        for len in [1, PART_LEN_BYTES, 100 << 30, 5 << 40] {
            let parts = Parts::new(len, part_len_bytes(len));
            assert!(parts.count() <= PARTS_MAX);
            assert_eq!(parts.ranges().last().unwrap().end, len);
        }
    }

    #[test]
    fn no_length_and_no_number_of_a_part_overflows() {
        for (len_bytes, part_len_bytes) in [(u64::MAX, 1), (u64::MAX, u64::MAX), (1 << 62, 64 << 10), (17, 8)] {
            let parts = Parts::new(len_bytes, part_len_bytes);
            assert_eq!(parts.range(parts.count() - 1).end, len_bytes);
            for part in [parts.count(), u64::MAX] {
                assert_eq!(parts.len_bytes(part), 0, "part {part} of {parts:?}");
            }
        }
    }

    #[test]
    fn reserved_bytes_take_the_time_that_the_limit_implies() {
        let (limited, start) = (Bandwidth::new(Some(1000)), Instant::now());
        let after = |ms| Some(start + Duration::from_millis(ms));
        assert_eq!(limited.reserve_at(500, start), None);
        assert_eq!(limited.reserve_at(250, start), after(500));
        assert_eq!(limited.reserve_at(250, start + Duration::from_millis(600)), after(750));
        // Unused time is not saved up.
        assert_eq!(limited.reserve_at(1000, start + Duration::from_secs(9)), None);
        assert_eq!(limited.reserve_at(1, start + Duration::from_secs(9)), after(10_000));
        assert_eq!(Bandwidth::new(None).reserve_at(1 << 40, start), None);
    }
}
