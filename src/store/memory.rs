//! Loads a file's bytes into memory.
//!
//! In: an open file and options. Out: the file's bytes in the requested kind of memory, and a [`Step`] for each
//! finished step. If the system rejects a requested option, the load fails.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::map::Map;

use super::{Pace, StoreError, sealed};
use crate::format::header::{HEADER_LEN_BYTES, Layout};
use crate::machine_memory::{self, Available, SHORT_HUGE_PAGE_LEN_BYTES, huge_page_len_bytes};
use crate::progress::WithProgress;

/// The kind of memory in which a server, or a process in direct mode, holds a table.
///
/// A program that embeds the library chooses the kind by the function with which it opens the file:
/// [`Store::open`](super::Store::open), [`Store::open_sealed`](super::Store::open_sealed),
/// [`Store::map`](super::Store::map), or [`MappedStore::open`](super::MappedStore::open).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Memory {
    /// The file itself, in the page cache, shared with every process that maps the file.
    #[default]
    Map,
    /// A copy in this process's memory, in huge pages if the system provides them. Later changes of the file, or its
    /// deletion, do not affect the copy.
    Copy,
    /// A copy in a sealed memory file (`memfd_create`), which no process, including this one, can change or truncate,
    /// and which can be transferred to other processes.
    Sealed,
}

/// Options for opening a file.
///
/// # Example
/// ```
/// # #[cfg(feature = "bake")] {
/// # use zero_kv::bake::{self, Options};
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("storage.db");
/// # bake::bake_csv("7,seven\n".as_bytes(), &path, &Options::default())?;
/// use zero_kv::{Lookup, OpenOptions, Store, Verify};
///
/// let options = OpenOptions { verify: Verify::Full, warm: true, ..OpenOptions::default() };
/// let store = Store::open_with(&path, options.with_progress(&mut |step| println!("{step}")))?;
/// std::fs::File::create(&path)?; // truncates the file
/// assert_eq!(store.get(7)?, Some(&b"seven"[..]));
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Whether to read every page and enter it into the page table, on several threads, when the file is opened.
    /// Lookups then wait neither for the disk nor for the kernel.
    pub warm: bool,
    /// Whether to lock every page in memory (`mlock`). Opening the file fails if the limit of the process,
    /// `RLIMIT_MEMLOCK`, is too low.
    pub lock: bool,
    /// Determines when blocks are verified against their checksums.
    pub verify: Verify,
    /// A callback that observes the opening of the file, and can cancel it.
    pub pace: Pace,
    /// Whether to treat a mapped file as if it did not fit into memory, and as if no record were in memory. For tests.
    #[doc(hidden)]
    pub assume_cold: bool,
}

impl OpenOptions {
    /// Adds a function that is called after each [`Step`] of loading the file into memory.
    pub fn with_progress<'a>(
        &'a self,
        progress: &'a mut (dyn FnMut(Step) + Send),
    ) -> WithProgress<'a, OpenOptions, Step> {
        WithProgress::new(self, progress)
    }
}

/// The time at which the blocks of a file are verified against their checksums: when the file is opened, or on first
/// access. The header is always verified when the file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verify {
    /// Verifies all blocks when the file is opened. Also checks that the keys are in order and that each key is found.
    /// For ten million rows of 100 bytes in the page cache, this takes 0.8 s on one core.
    Full,
    /// Verifies each block of records and index when a lookup first reads the block. A lookup that reads a damaged
    /// block returns [`LookupError::Damaged`](super::LookupError::Damaged). Mapping a file of any size therefore takes
    /// less than a millisecond. The exceptions are [`Store::open_sealed`](super::Store::open_sealed) and a server that
    /// copies the file: they copy the file and verify every byte of the copy.
    #[default]
    Touch,
}

/// A finished step of loading a file into memory. Its [`Display`](fmt::Display) output is one line.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Step {
    /// The kind of step.
    pub kind: StepKind,
    /// The length of the file.
    pub len_bytes: u64,
    /// The total length of the huge pages that hold the file. The last huge page may extend beyond the end of the file.
    pub huge_len_bytes: u64,
    /// The duration of the step.
    pub elapsed: Duration,
}

/// The kind of a [`Step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepKind {
    /// The file was copied.
    Copied,
    /// The file was copied into sealed memory.
    Sealed,
    /// Every page was read into memory.
    Warmed,
    /// Every page was locked in memory.
    Locked,
}

impl Step {
    /// Returns whether the table was copied, and less of it is in huge pages than could be. If a huge page has more
    /// than 2 MiB, the end of a copy is in ordinary pages.
    pub fn lacks_huge_pages(&self) -> bool {
        let expected_len_bytes = expected_in_huge_pages(self.len_bytes, huge_page_len_bytes() as u64);
        self.kind == StepKind::Copied && self.huge_len_bytes < expected_len_bytes
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = match self.kind {
            StepKind::Copied => "copied into memory",
            StepKind::Sealed => "copied into sealed memory",
            StepKind::Warmed => "warmed",
            StepKind::Locked => "locked in memory",
        };
        let Step { len_bytes, huge_len_bytes, elapsed, .. } = self;
        write!(f, "{done}: {len_bytes} bytes, {huge_len_bytes} in huge pages, {:.3} s", elapsed.as_secs_f64())
    }
}

/// Maps or copies a file, as `memory` and the options require. Calls `done` after each [`Step`] of loading the file
/// into memory. Error messages name the file by `path`.
pub(super) fn load(
    file: &File,
    path: &Path,
    memory: Memory,
    options: &OpenOptions,
    done: &mut dyn FnMut(Step),
) -> Result<Map, StoreError> {
    let map = match memory {
        Memory::Map => Map::map_file(file).map_err(StoreError::io(path))?,
        Memory::Copy => copy(file, path, Map::copy_of, StepKind::Copied, options, done)?,
        Memory::Sealed => copy(file, path, Map::sealed_copy_of, StepKind::Sealed, options, done)?,
    };
    prepare(map, path, options, done)
}

/// Loads a file so that nobody can change the bytes in memory: maps the file itself if it is sealed, and copies any
/// other file.
///
/// A file with fs-verity is copied, too. Nobody can change it, but a read from its mapping would end the process with
/// `SIGBUS` after a disk error, or if the data does not match the file's Merkle tree.
pub(super) fn load_immutable(
    file: &File,
    path: &Path,
    options: &OpenOptions,
    done: &mut dyn FnMut(Step),
) -> Result<Map, StoreError> {
    if sealed::is_sealed(file) {
        return load(file, path, Memory::Map, options, done);
    }
    let map = copy(file, path, Map::compact_copy_of, StepKind::Copied, options, done)?;
    prepare(map, path, options, done)
}

fn copy(
    file: &File,
    path: &Path,
    copy: impl FnOnce(&File, &Pace) -> io::Result<Map>,
    kind: StepKind,
    options: &OpenOptions,
    done: &mut dyn FnMut(Step),
) -> Result<Map, StoreError> {
    let started = Instant::now();
    let (_, len_bytes) = read_header(file, path)?;
    check_available(len_bytes, machine_memory::available())
        .map_err(|problem| StoreError::Memory { path: path.to_path_buf(), problem })?;
    let map = outcome(copy(file, &options.pace), path, &options.pace, |error| {
        format!("copying {len_bytes} bytes into memory: {error}: free some memory, or map the file")
    })?;
    report_step(&map, kind, started, done);
    Ok(map)
}

/// Returns the outcome of a loading step. If `pace` canceled the step, the outcome is [`StoreError::Canceled`],
/// whatever the step returned.
fn outcome<T>(
    result: io::Result<T>,
    path: &Path,
    pace: &Pace,
    problem: impl FnOnce(&io::Error) -> String,
) -> Result<T, StoreError> {
    let path = path.to_path_buf();
    match result {
        _ if pace.is_canceled() => Err(StoreError::Canceled { path }),
        Ok(output) => Ok(output),
        Err(error) => Err(StoreError::Memory { path, problem: problem(&error) }),
    }
}

/// Reads and checks a file's header, so that a file that is not a table is rejected before it is copied. Returns the
/// layout, and the file's length.
fn read_header(file: &File, path: &Path) -> Result<(Layout, u64), StoreError> {
    let len_bytes = file.metadata().map_err(StoreError::io(path))?.len();
    let mut header = vec![0; len_bytes.min(HEADER_LEN_BYTES as u64) as usize];
    file.read_exact_at(&mut header, 0).map_err(StoreError::io(path))?;
    let layout = Layout::decode_start(&header, len_bytes).map_err(StoreError::format(path))?;
    Ok((layout, len_bytes))
}

/// Returns the digest in a file's header: see [`Store::digest`](super::Store::digest).
#[cfg(feature = "server")]
pub(crate) fn header_digest(file: &File, path: &Path) -> Result<u128, StoreError> {
    Ok(read_header(file, path)?.0.digest())
}

/// Warms the memory if `options.warm` is set, and then locks it if `options.lock` is set.
fn prepare(map: Map, path: &Path, options: &OpenOptions, done: &mut dyn FnMut(Step)) -> Result<Map, StoreError> {
    let (pace, len_bytes) = (&options.pace, map.bytes().len() as u64);
    if options.warm {
        let started = Instant::now();
        outcome(map.warm(pace), path, pace, |error| format!("reading {len_bytes} bytes into memory: {error}"))?;
        report_step(&map, StepKind::Warmed, started, done);
    }
    if options.lock {
        let started = Instant::now();
        outcome(map.lock(pace), path, pace, |error| lock_problem(len_bytes, error, &limits()))?;
        report_step(&map, StepKind::Locked, started, done);
    }
    Ok(map)
}

/// Returns how many bytes of a copy are in huge pages of a length if the system provides all that it can.
fn expected_in_huge_pages(len_bytes: u64, page_len_bytes: u64) -> u64 {
    let padded_len_bytes = len_bytes.next_multiple_of(SHORT_HUGE_PAGE_LEN_BYTES as u64);
    len_bytes.min(padded_len_bytes - padded_len_bytes % page_len_bytes)
}

fn report_step(map: &Map, kind: StepKind, started: Instant, done: &mut dyn FnMut(Step)) {
    let (len_bytes, elapsed) = (map.bytes().len() as u64, started.elapsed());
    done(Step { kind, len_bytes, huge_len_bytes: map.huge_len_bytes(), elapsed });
}

/// Returns an error if a copy does not fit into the available memory. Without this check, the allocation would succeed,
/// and the system would end some process later.
fn check_available(len_bytes: u64, available: Option<Available>) -> Result<(), String> {
    match available {
        Some(Available { bytes, source }) if bytes < len_bytes => Err(format!(
            "a copy takes {len_bytes} bytes of memory, but only {bytes} are available, according to {}: free some \
             memory, raise the limit, or map the file",
            source.display()
        )),
        _ => Ok(()),
    }
}

fn limits() -> String {
    fs::read_to_string("/proc/self/limits").unwrap_or_default()
}

/// Describes why a lock failed, given the text of `/proc/PID/limits`.
fn lock_problem(len_bytes: u64, error: &io::Error, limits: &str) -> String {
    let limit = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    let limit = limit.and_then(|line| line.split_ascii_whitespace().next()).unwrap_or("not known");
    format!(
        "locking {len_bytes} bytes in memory: {error}: the limit (RLIMIT_MEMLOCK, in bytes) is {limit}: raise it \
         (`ulimit -l`, systemd's LimitMEMLOCK), or do not lock"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_does_not_fit_into_memory_is_rejected_before_it_is_made() {
        let available = |bytes| Some(Available { bytes, source: "/sys/fs/cgroup/memory.max".into() });
        assert!(check_available(1 << 30, available(1 << 30)).is_ok());
        assert!(check_available(1 << 30, None).is_ok());
        let problem = check_available(1 << 30, available((1 << 30) - 1)).unwrap_err();
        let expected = "a copy takes 1073741824 bytes of memory, but only 1073741823 are available, according to \
                        /sys/fs/cgroup/memory.max: free some memory";
        assert!(problem.starts_with(expected), "{problem}");
    }

    #[test]
    fn a_copy_need_not_be_entirely_in_long_huge_pages() {
        const MIB: u64 = 1 << 20;
        // The length of a copy, the length of a huge page, and the length that is expected to be in huge pages.
        for (len_bytes, page_len_bytes, expected) in [
            (1, 2 * MIB, 1),
            (5 * MIB, 2 * MIB, 5 * MIB),
            (5 * MIB, 32 * MIB, 0),
            (32 * MIB, 32 * MIB, 32 * MIB),
            (70 * MIB, 32 * MIB, 64 * MIB),
            (600 * MIB, 512 * MIB, 512 * MIB),
        ] {
            assert_eq!(expected_in_huge_pages(len_bytes, page_len_bytes), expected, "{len_bytes} {page_len_bytes}");
        }
    }

    #[test]
    fn the_error_of_a_failed_lock_states_the_limit_and_the_remedy() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max locked memory         8388608              unlimited            bytes     \n";
        let error = io::Error::from(io::ErrorKind::OutOfMemory);
        let problem = lock_problem(1 << 30, &error, limits);
        assert!(problem.starts_with("locking 1073741824 bytes in memory: "), "{problem}");
        assert!(problem.contains(" is 8388608: raise it (`ulimit -l`"), "{problem}");
        assert!(lock_problem(1, &error, "").contains("is not known: raise it"));
    }
}
