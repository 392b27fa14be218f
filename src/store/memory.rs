//! How a file's bytes are held in memory.
//!
//! In: an open file and what is wanted. Out: its bytes, held so, with a word on
//! each thing that was done. Nothing is done by halves: what is asked for and
//! cannot be had is an error.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::map::Map;
use super::{Pace, StoreError};
use crate::machine_memory::{self, Available};

/// Where the bytes lie that lookups read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Memory {
    /// In the page cache, shared with every process that maps the file.
    #[default]
    Map,
    /// In memory of this process, in huge pages as far as the system gives them.
    /// The file may be changed in place, or vanish.
    Copy,
    /// In a sealed memory file (`memfd_create`), which no process can change or
    /// cut off, this one included, and which can be handed to others. Linux only.
    Sealed,
}

/// How [`Store::open_with`](super::Store::open_with) holds a file.
///
/// # Example
/// ```
/// # #[cfg(feature = "bake")] {
/// # use zero_kv::bake::{self, Options};
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("storage.db");
/// # bake::bake_csv("7,seven\n".as_bytes(), &path, &Options::default(), &mut |_| ())?;
/// use zero_kv::Store;
/// use zero_kv::store::{Memory, OpenOptions};
///
/// let options = OpenOptions { memory: Memory::Copy, warm: true, ..OpenOptions::default() };
/// let store = Store::open_with(&path, &options, &mut |step| println!("{step}"))?;
/// std::fs::File::create(&path)?; // empties the file
/// assert_eq!(store.get(7)?, Some(&b"seven"[..]));
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Where the bytes lie.
    pub memory: Memory,
    /// Reads every page in, on several threads, and enters it into the page
    /// table, so that no lookup waits for the disk or the system.
    pub warm: bool,
    /// Keeps every page in memory (`mlock`), however little the system has left.
    /// The limit is that of the process, `RLIMIT_MEMLOCK`.
    pub lock: bool,
    /// When the records are held against their checksums.
    pub verify: Verify,
    /// Observes and cancels the opening of the file.
    pub pace: Pace,
}

/// When the records of a file are held against their checksums. All else is when
/// the file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verify {
    /// When the file is opened, as are the order of the keys, and that each key is
    /// found.
    #[default]
    Full,
    /// Each block when a lookup first touches it; a lookup that meets a damaged one
    /// gives [`LookupError::Damaged`](super::LookupError::Damaged). The file opens
    /// in the time that a look at its index takes.
    Touch,
}

/// Something that was done to hold a file in memory. As text, one line.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Step {
    /// What was done.
    pub kind: StepKind,
    /// The file's length.
    pub len_bytes: u64,
    /// How much lies in huge pages. The last of them may reach beyond the file's
    /// end.
    pub huge_len_bytes: u64,
    /// How long it took.
    pub elapsed: Duration,
}

/// What a [`Step`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepKind {
    /// Copied the file.
    Copied,
    /// Copied the file into sealed memory.
    Sealed,
    /// Read every page in.
    Warmed,
    /// Locked every page.
    Locked,
}

impl Step {
    /// Whether a copy lies in fewer huge pages than it fills.
    pub fn lacks_huge_pages(&self) -> bool {
        self.kind == StepKind::Copied && self.huge_len_bytes < self.len_bytes
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

/// Holds a file in memory as the options say. `path` is what errors call it.
pub(super) fn hold(
    file: &File,
    path: &Path,
    options: &OpenOptions,
    done: &mut dyn FnMut(&Step),
) -> Result<Map, StoreError> {
    let io = |error| StoreError::Io { path: path.to_path_buf(), error };
    let refuse = |problem| StoreError::Memory { path: path.to_path_buf(), problem };
    let (started, pace) = (Instant::now(), &options.pace);
    let ends_if_canceled = || match pace.is_canceled() {
        true => Err(StoreError::Canceled { path: path.to_path_buf() }),
        false => Ok(()),
    };
    let map = match options.memory {
        Memory::Map => Map::of(file).map_err(io)?,
        memory => {
            let len_bytes = file.metadata().map_err(io)?.len();
            check_available(len_bytes, machine_memory::available()).map_err(refuse)?;
            let copied = match memory {
                Memory::Sealed => Map::sealed_copy_of(file, pace),
                _ => Map::copy_of(file, pace),
            };
            ends_if_canceled()?;
            copied.map_err(|error| {
                refuse(format!("copying {len_bytes} bytes into memory: {error}: free some, or serve the file itself"))
            })?
        }
    };
    let len_bytes = map.bytes().len() as u64;
    let mut tell = |kind, started: Instant| {
        let elapsed = started.elapsed();
        done(&Step { kind, len_bytes, huge_len_bytes: map.huge_len_bytes(), elapsed });
    };
    match options.memory {
        Memory::Map => {}
        Memory::Copy => tell(StepKind::Copied, started),
        Memory::Sealed => tell(StepKind::Sealed, started),
    }
    if options.warm {
        let started = Instant::now();
        let warmed = map.warm(pace);
        ends_if_canceled()?;
        warmed.map_err(|error| refuse(format!("reading {len_bytes} bytes into memory: {error}")))?;
        tell(StepKind::Warmed, started);
    }
    if options.lock {
        let started = Instant::now();
        let locked = map.lock(pace);
        ends_if_canceled()?;
        locked.map_err(|error| refuse(lock_problem(len_bytes, &error, &limits())))?;
        tell(StepKind::Locked, started);
    }
    Ok(map)
}

/// Rejects a copy that does not fit: the system would end some process rather than fail the allocation.
fn check_available(len_bytes: u64, available: Option<Available>) -> Result<(), String> {
    match available {
        Some(Available { bytes, source }) if bytes < len_bytes => Err(format!(
            "a copy takes {len_bytes} bytes of memory, and {bytes} are available, by {}: free some, raise that limit, \
             or serve the file itself",
            source.display()
        )),
        _ => Ok(()),
    }
}

fn limits() -> String {
    fs::read_to_string("/proc/self/limits").unwrap_or_default()
}

/// What to say of a lock that was refused, with the text of `/proc/PID/limits`.
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
    fn a_copy_that_does_not_fit_is_refused_before_it_is_made() {
        let available = |bytes| Some(Available { bytes, source: "/sys/fs/cgroup/memory.max".into() });
        assert!(check_available(1 << 30, available(1 << 30)).is_ok());
        assert!(check_available(1 << 30, None).is_ok());
        let problem = check_available(1 << 30, available((1 << 30) - 1)).unwrap_err();
        let expected = "a copy takes 1073741824 bytes of memory, and 1073741823 are available, by \
                        /sys/fs/cgroup/memory.max: free some";
        assert!(problem.starts_with(expected), "{problem}");
    }

    #[test]
    fn a_refused_lock_tells_the_limit_and_what_to_do() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max locked memory         8388608              unlimited            bytes     \n";
        let error = io::Error::from(io::ErrorKind::OutOfMemory);
        let problem = lock_problem(1 << 30, &error, limits);
        assert!(problem.starts_with("locking 1073741824 bytes in memory: "), "{problem}");
        assert!(problem.contains(" is 8388608: raise it (`ulimit -l`"), "{problem}");
        assert!(lock_problem(1, &error, "").contains("is not known: raise it"));
    }
}
