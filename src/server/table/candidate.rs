//! The checks that a file must pass before it is served.
//!
//! In: a file. Out: a table that was checked and brought into memory as configured, or the reason why the file was
//! rejected.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{io, thread};

use thiserror::Error;
use tracing::{info, warn};

use super::file_slots::{self, Finding};
use super::watch::Identity;
use crate::Lookup;
use crate::canary::{Canary, CanaryError};
use crate::cluster::SlotSet;
use crate::counted::counted;
use crate::replace::{ReplaceError, ReplaceRules, TableSummary};
use crate::server::process::panics;
use crate::setting::Setting;
use crate::slots::SlotRange;
use crate::store::{
    LookupError, Memory, OpenOptions, Pace, SETTLE, Step, Store, StoreError, Writers, open_file, survive_bus_errors,
    writers_of,
};

/// The maximum number of rows of a candidate that are sampled and looked up, besides the canaries. The table's last row
/// is always looked up and is not counted here.
const SAMPLE_ROWS: usize = 1000;
/// The maximum number of sampled rows of a server's first file, which clients wait for. Each sampled row can cost
/// several reads from the disk, and the verification of several blocks.
const FIRST_SAMPLE_ROWS: usize = 16;
/// The number of sampled rows that are looked up between two pauses of the check.
const ROWS_PER_STEP: usize = 16;
/// The maximum time that a check waits for the writers of a file to close the file.
const CLOSE_WAIT_MAX: Duration = Duration::from_millis(100);

/// The reason why a file is rejected.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file cannot be opened, is damaged, or has a format version that this server cannot read.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The check of the file panicked, which is a bug in the server.
    #[error(
        "{}: the check of this file panicked at {panic}: please report this, with the file if you can", path.display()
    )]
    Panic {
        /// The path of the file.
        path: PathBuf,
        /// The location and the message of the panic.
        panic: String,
    },
    /// The rules do not allow the file's table to replace the current table.
    #[error("{}: {error} ({})", path.display(), error.setting())]
    Replace {
        /// The path of the file.
        path: PathBuf,
        /// The rule that the table breaks.
        #[source]
        error: ReplaceError,
    },
    /// The file would be served from a mapping, but a process has it open for writing or has a writable mapping of it.
    #[error(
        "{}: a process has it open for writing, and could change it while it is served: close it in that process, \
         replace it with a finished copy by rename, or serve a private copy ({} copy or sealed)",
        path.display(),
        Setting::Memory
    )]
    Writer {
        /// The path of the file.
        path: PathBuf,
    },
    /// A rollback replaced the file's table.
    #[error(
        "{}: table {digest:032x} was replaced by a rollback and stays refused: put another table there by rename{hint}",
        path.display()
    )]
    RolledBack {
        /// The path of the file.
        path: PathBuf,
        /// The digest of the table.
        digest: u128,
        /// How long the table stays refused.
        hint: String,
    },
    /// The file's table lacks the rows of slots that this node of a cluster expects in it.
    #[error(
        "{}: the {} have slots {}, and none has one of the slots {gap}, but this node expects a file with \
         the rows of slots {expected} ({}): clients would get no value for existing rows: serve a file with these rows, \
         or pass the slots of the file to {}, as in the name of a shard's file",
        path.display(), counted(*rows, "sampled row"), slots, Setting::Slots, Setting::Slots
    )]
    Slots {
        /// The path of the file.
        path: PathBuf,
        /// The number of rows that were sampled.
        rows: usize,
        /// The lowest and the highest slot of these rows.
        slots: SlotRange,
        /// Slots without rows, some of which the node expects.
        gap: SlotRange,
        /// The slots whose rows the node expects.
        expected: String,
    },
    /// The file's table failed its canaries.
    #[error("{}: {error}", path.display())]
    Canary {
        /// The path of the file.
        path: PathBuf,
        /// Why the table failed its canaries.
        #[source]
        error: CanaryError,
    },
}

impl OpenError {
    /// Returns whether the check was canceled, for example because the server stops.
    pub fn is_canceled(&self) -> bool {
        matches!(self, OpenError::Store(StoreError::Canceled { .. }))
    }

    /// Returns whether the unchanged file may pass a later check: after its writers have closed it, or when the system
    /// has enough memory and descriptors again.
    pub(super) fn may_pass_later(&self) -> bool {
        if let OpenError::Writer { .. } = self {
            return true;
        }
        let (OpenError::Store(StoreError::Io { error, .. })
        | OpenError::Canary { error: CanaryError::Io { error, .. }, .. }) = self
        else {
            return false;
        };
        matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
    }
}

/// How a file is opened and checked before it is served.
#[derive(Clone, Debug)]
pub(in crate::server) struct Plan {
    pub(in crate::server) memory: Memory,
    pub(in crate::server) options: OpenOptions,
    /// Whether the blocks that no lookup has read are verified in the background.
    pub(in crate::server) background: bool,
    /// The path of the canary file, which is read for each check.
    pub(in crate::server) canaries: Option<PathBuf>,
    pub(in crate::server) replace: ReplaceRules,
    /// The slots whose rows the file must have, on a node of a cluster.
    pub(in crate::server) slots: Option<Arc<SlotSet>>,
}

/// What a candidate would replace.
#[derive(Clone, Copy)]
pub(super) enum Replaces<'r> {
    Nothing,
    /// The served table, by these rules.
    Table(TableSummary, &'r ReplaceRules),
    /// A rollback: the candidate was served before, so it may replace any table.
    Rollback,
}

pub(super) struct Candidate {
    pub(super) store: Store,
    pub(super) file: File,
    pub(super) identity: Identity,
    /// Whether the server detects processes that write to the file: see `Generation::writers`.
    pub(super) writers: Writers,
}

impl Plan {
    pub(super) fn open(&self, path: &Path, replaces: Replaces<'_>) -> Result<Candidate, OpenError> {
        self.open_file(open_file(path)?, path, replaces)
    }

    /// Checks an open file. Error messages name the file by `path`.
    pub(super) fn open_file(&self, file: File, path: &Path, replaces: Replaces<'_>) -> Result<Candidate, OpenError> {
        panics::catch(|| self.check(file, path, replaces))
            .unwrap_or_else(|panic| Err(OpenError::Panic { path: path.to_path_buf(), panic }))
    }

    fn check(&self, file: File, path: &Path, replaces: Replaces<'_>) -> Result<Candidate, OpenError> {
        let io = |error| StoreError::Io { path: path.to_path_buf(), error };
        // Other code in the process may have replaced the handler of SIGBUS since the last check.
        survive_bus_errors().map_err(io)?;
        let identity = Identity::from_file(&file).map_err(io)?;
        let mut unsettled = identity.unsettled();
        while let Some(left) = unsettled {
            if !self.options.pace.goes_on() {
                return Err(StoreError::Canceled { path: path.to_path_buf() }.into());
            }
            thread::sleep(left.min(SETTLE));
            unsettled = left.checked_sub(SETTLE);
        }
        // The identity is read before the check for writers. If a process opens the file after the check for writers
        // and writes to it, the identity at the end differs from this one.
        let identity = Identity::from_file(&file).map_err(io)?;
        self.wait_for_writers(&file, path)?;
        let store = Store::from_file(&file, path, self.memory, &self.options, &mut log_step)?;
        let checked = match replaces {
            Replaces::Nothing => self.replace.check(summary(&store), None),
            Replaces::Table(old, rules) => rules.check(summary(&store), Some(old)),
            Replaces::Rollback => Ok(()),
        };
        checked.map_err(|error| OpenError::Replace { path: path.to_path_buf(), error })?;
        store.with_random_reads(|| self.check_slots(&store, path))?;
        let canaries = self.canaries.as_deref().map_or(Ok(Vec::new()), Canary::read_file);
        let pace = &self.options.pace;
        let is_first = matches!(replaces, Replaces::Nothing);
        let sample_rows = if is_first { FIRST_SAMPLE_ROWS } else { SAMPLE_ROWS };
        let tried =
            canaries.and_then(|canaries| store.with_random_reads(|| look_up(&canaries, &store, sample_rows, pace)));
        if pace.is_canceled() {
            return Err(StoreError::Canceled { path: path.to_path_buf() }.into());
        }
        tried.map_err(|error| OpenError::Canary { path: path.to_path_buf(), error })?;
        if !is_first {
            self.finish_check(&store, path)?;
        }
        let writers = self.check_writers(&store, path)?;
        if self.memory == Memory::Map && Identity::from_file(&file).map_err(io)? != identity {
            return Err(OpenError::Writer { path: path.to_path_buf() });
        }
        Ok(Candidate { store, file, identity, writers })
    }

    /// Checks that the table has rows of the slots that this node expects in it.
    fn check_slots(&self, store: &Store, path: &Path) -> Result<(), OpenError> {
        let Some(expected) = &self.slots else { return Ok(()) };
        match file_slots::check(store, expected, &self.options.pace) {
            Finding::Plausible => Ok(()),
            Finding::NoExpected(sampled) => {
                warn!(
                    "{}: the {} have slots {}, and none has one of the slots {} that this node expects ({}): if the \
                     file is of another node, clients get no value for existing rows",
                    path.display(),
                    counted(sampled.rows, "sampled row"),
                    sampled.slots,
                    expected.summary(),
                    Setting::Slots
                );
                Ok(())
            }
            Finding::Lacking(gap, sampled) => {
                let (path, expected) = (path.to_path_buf(), expected.summary());
                Err(OpenError::Slots { path, rows: sampled.rows, slots: sampled.slots, gap, expected })
            }
        }
    }

    /// Verifies what lookups in the first generation of a server verify themselves, because nobody waits for a
    /// candidate: the whole index, and the records that are in memory.
    fn finish_check(&self, store: &Store, path: &Path) -> Result<(), OpenError> {
        let (pace, path) = (&self.options.pace, path.to_path_buf());
        let checked = store.verify_index(pace);
        if checked.is_ok() && !pace.is_canceled() {
            store.verify_records_in_memory(pace);
        }
        if pace.is_canceled() {
            return Err(StoreError::Canceled { path }.into());
        }
        checked.map_err(|error| StoreError::Format { path, error }.into())
    }

    /// Waits up to [`CLOSE_WAIT_MAX`] until no process has the file open for writing. The wait is for processes that
    /// rename a file to the path before they close the file.
    fn wait_for_writers(&self, file: &File, path: &Path) -> Result<(), OpenError> {
        if self.memory != Memory::Map {
            return Ok(());
        }
        let started = Instant::now();
        while writers_of(file) == Writers::Some {
            if !self.options.pace.goes_on() {
                return Err(StoreError::Canceled { path: path.to_path_buf() }.into());
            }
            if started.elapsed() >= CLOSE_WAIT_MAX {
                return Err(OpenError::Writer { path: path.to_path_buf() });
            }
            thread::sleep(CLOSE_WAIT_MAX / 20);
        }
        Ok(())
    }

    /// Checks that the lease has been held since the file was mapped, so that no process can have opened the file for
    /// writing. A check with fstat is not enough: on tmpfs, fstat does not show writes through a mapping. If writers
    /// cannot be detected, logs a warning instead of returning an error.
    fn check_writers(&self, store: &Store, path: &Path) -> Result<Writers, OpenError> {
        let Some(file) = store.watched_file() else { return Ok(Writers::None) };
        match file.writers() {
            Writers::Some => Err(OpenError::Writer { path: path.to_path_buf() }),
            // The lease was refused when the file was mapped, or was lost since then: a process had the file open for
            // writing, or a system call failed.
            Writers::None if !file.is_lease_held() => Err(match file.system_error() {
                Some(error) if error.kind() != io::ErrorKind::WouldBlock => {
                    StoreError::Io { path: path.to_path_buf(), error }.into()
                }
                _ => OpenError::Writer { path: path.to_path_buf() },
            }),
            Writers::Unknown(reason) => {
                warn!(
                    "{}: processes that write to the file cannot be detected: {reason}: run the server as the file's \
                     owner or with CAP_LEASE and without {}, or serve a private copy ({} copy or sealed)",
                    path.display(),
                    Setting::NoLease,
                    Setting::Memory
                );
                Ok(Writers::Unknown(reason))
            }
            Writers::None => Ok(Writers::None),
        }
    }
}

/// Returns the properties of a table that the replacement rules compare.
pub(super) fn summary(store: &Store) -> TableSummary {
    TableSummary { rows: store.len() as u64, key_type: store.key_type() }
}

fn log_step(step: Step) {
    match step.lacks_huge_pages() {
        true => warn!(
            "{step}: fewer huge pages than requested: memory is fragmented, or \
             /sys/kernel/mm/transparent_hugepage/enabled says `never`"
        ),
        false => info!("{step}"),
    }
}

/// Looks up the canaries, and a sample of at most `sample_rows` of the table's rows. Stops early, without an error, if
/// `pace` cancels the work.
fn look_up(canaries: &[Canary], store: &Store, sample_rows: usize, pace: &Pace) -> Result<(), CanaryError> {
    for canary in canaries.iter().take_while(|_| pace.goes_on()) {
        canary.check(store.key_type(), |key| store.get(key))?;
    }
    let step = store.len().div_ceil(sample_rows).max(1);
    let rows: Vec<usize> = (0..store.len()).step_by(step).chain(store.len().checked_sub(1)).collect();
    store.begin_reads_of_rows(&rows);
    let steps = || rows.chunks(ROWS_PER_STEP).take_while(|_| pace.goes_on()).flatten().copied();
    let keys = steps().map(|row| store.row(row));
    store.begin_index_reads(keys.filter_map(|row| row.ok().flatten()).map(|(key, _)| key));
    steps().try_for_each(|row| find_row(store, row).map_err(|problem| CanaryError::Row { row, problem }))
}

/// Checks that the index finds a row by its key.
fn find_row(store: &Store, row: usize) -> Result<(), &'static str> {
    let damaged = |_: LookupError| "it is damaged";
    let (key, value) = store.row(row).map_err(damaged)?.ok_or("it does not exist")?;
    match store.get(key).map_err(damaged)? {
        Some(found) if found.as_ptr() == value.as_ptr() && found.len() == value.len() => Ok(()),
        _ => Err("the index does not find it"),
    }
}

#[cfg(all(test, feature = "bake"))]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::SystemTime;

    use super::*;
    use crate::bake::{self, Options};
    use crate::server::Config;
    use crate::store::Pace;
    use crate::store::Verify;

    const VALUE: &[u8] = b"the value of key 7";

    /// Checks a table, and changes a byte of a value when the check calls its [`Pace`] for the `change_at`th time.
    /// Returns the result of the check and the number of calls.
    fn check_and_change(change_at: usize) -> (Result<Candidate, OpenError>, usize) {
        let folder = tempfile::tempdir().unwrap();
        let db = folder.path().join("storage.db");
        let rows = [&b"7,"[..], VALUE, b"\n"].concat();
        bake::bake_csv(&rows[..], &db, &Options::default()).unwrap();
        let bytes = std::fs::read(&db).unwrap();
        let at = bytes.windows(VALUE.len()).position(|window| window == VALUE).unwrap() as u64;
        let file = File::options().write(true).open(&db).unwrap();
        // Sets an old modification time. Otherwise, a change within the same tick of the file system's clock would
        // leave the modification time as it is, and would not be detected.
        file.set_modified(SystemTime::now() - Duration::from_secs(10)).unwrap();
        drop(file);
        let call_count = Arc::new(AtomicUsize::new(0));
        let (counted, changed) = (Arc::clone(&call_count), db.clone());
        let pace = Pace::new(move || {
            if counted.fetch_add(1, Ordering::Relaxed) + 1 == change_at {
                let file = File::options().write(true).open(&changed).unwrap();
                file.write_all_at(b"T", at).unwrap();
            }
            true
        });
        let canaries = folder.path().join("canaries");
        std::fs::write(&canaries, format!("7,{:032x}\n8,absent\n", crate::canary::value_digest(VALUE))).unwrap();
        let mut config = Config { canaries: Some(canaries), ..Config::default() };
        config.open = OpenOptions { verify: Verify::Full, pace, ..OpenOptions::default() };
        let checked = config.source(&db).plan.open(&db, Replaces::Nothing);
        let call_count = call_count.load(Ordering::Relaxed);
        (checked, call_count)
    }

    #[test]
    fn a_file_that_changes_at_any_moment_of_its_check_is_not_served() {
        let (unchanged, call_count) = check_and_change(usize::MAX);
        assert!(unchanged.is_ok());
        // The check makes at least one call for each of the two canaries, after it has verified the whole file.
        assert!(call_count > 2, "{call_count}");
        for change_at in 1..=call_count {
            let (changed, _) = check_and_change(change_at);
            assert!(changed.is_err(), "changed at call {change_at} of {call_count}");
        }
    }
}
