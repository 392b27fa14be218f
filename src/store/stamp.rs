//! Detects changes of a mapped file.
//!
//! If a file was ever leased, only the lease counts: the file is unchanged while the lease is held, and is not trusted
//! after the lease was lost. See [`lease`](super::lease).
//!
//! A file that was never leased is examined with fstat or statx. A write or a truncation changes the file's
//! modification time, change time (ctime), or length before it changes a byte. The first write to a page through a
//! mapping changes the times, except on file systems in memory, such as tmpfs. If times and length are equal before and
//! after bytes are read, nobody changed the bytes meanwhile. In addition, [`guard`](super::guard) counts pages that
//! could not be read.
//!
//! A process can restore the modification time after a write, but not the change time. The change time also changes when
//! somebody changes the file's names or permissions, so if it alone has changed, the bytes may or may not have changed.
//! See [`Store::begin_batch`](super::Store::begin_batch).
//!
//! File systems store times with a limited resolution, so a write shortly after another write may not change the times.
//! A file is therefore not trusted until it is [settled](super::settling): until every further write will change the
//! times.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, SystemTime};

use memmap2::Mmap;
use rustix::fs::{AtFlags, StatxFlags, fstat, statx};

use super::guard::Guarded;
use super::lease::{Lease, LeaseState, Proof, Writers};
use super::settling::{SETTLE, SETTLE_COARSE, change_unsettled_for, file_clock, unsettled_for};
use super::{Pace, file_system, sealed};
use crate::sync::unpoisoned;

/// The maximum time for which a lookup waits until a change time is settled. Longer than [`SETTLE`], because the clock that
/// change times are compared with is late by up to a tick.
const RECHECK_WAIT_MAX: Duration = Duration::from_millis(100);

/// A time as fstat returns it: seconds and nanoseconds.
type FileTime = [u64; 2];

/// The state of a file at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    len_bytes: u64,
    modified: FileTime,
    /// The change time (ctime).
    changed: FileTime,
    /// The number of reads that failed because a page could not be read.
    faults: u64,
}

impl Stamp {
    /// Returns a hash of everything except the change time.
    fn content_hash(&self) -> u64 {
        [self.len_bytes, self.modified[0], self.modified[1], self.faults].into_iter().fold(0, mix)
    }

    /// Returns a hash of the whole state.
    fn hash(&self) -> u64 {
        self.changed.into_iter().fold(self.content_hash(), mix)
    }
}

/// Adds a number to a hash. The function is invertible in each argument, so a change of a single number always changes
/// the hash.
fn mix(hash: u64, number: u64) -> u64 {
    let hash = (hash ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    hash ^ (hash >> 32)
}

fn system_time([seconds, ns]: FileTime) -> SystemTime {
    // A time before 1970 is a large number here. Like a time in the future, it is not the time of a recent write.
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, ns as u32)).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// A mapped file that other processes can change: see [`Store::watched_file`](super::Store::watched_file). This process
/// detects changes of the file by a lease or, without a lease, by examining the file.
#[derive(Debug)]
pub struct WatchedFile {
    memory: Guarded,
    lease: Arc<Lease>,
    /// Whether the file has fs-verity, so that nobody can change it, with or without a lease.
    has_verity: bool,
    /// Whether a process can write to the file through a mapping without changing its modification time.
    hides_mapped_writes: bool,
    /// Whether the kernel may report outdated times from a cache.
    may_cache_times: bool,
    /// Whether the file's times may come from another clock than that of this machine's kernel.
    has_foreign_clock: bool,
    /// The hash of the file's [`Stamp`] when the file was last trusted, or another number if further changes of the file
    /// may leave that stamp as it is.
    trusted_hash: AtomicU64,
    /// The hash of that stamp without the change time.
    trusted_content_hash: AtomicU64,
    trusted_faults: AtomicU64,
    /// Locked while a thread rechecks the file.
    rechecking: Mutex<()>,
}

impl WatchedFile {
    /// Takes a lease on the file, if none was ever taken and the system grants one: see
    /// [`take_leases`](super::take_leases). Only [`Store::look_again`](super::Store::look_again) retakes a lost lease.
    pub fn lease(&self) {
        self.lease.take(|| self.looks_unchanged());
    }

    /// Calls `report` with the state of the lease on the file: once now, if a lease has already been taken, and again
    /// at each change. A lease is released only after `report` has returned. Only the first call of this method has an
    /// effect.
    pub fn report_lease(&self, report: impl Fn(LeaseState) + Send + Sync + 'static) {
        if self.has_verity {
            report(LeaseState::TrustedUntil(u64::MAX));
        } else {
            self.lease.report(Box::new(report));
        }
    }

    /// Returns `true` if the file is immutable (fs-verity), or if it is leased and the deadline of the lease has not
    /// passed. In both cases, [`Store::is_unchanged_since`](super::Store::is_unchanged_since) makes no system call.
    #[inline]
    pub fn is_leased(&self) -> bool {
        self.has_verity || self.lease.is_confirmed()
    }

    /// Returns whether a process has the file open for writing. Unless the file is immutable, only a process of the
    /// file's owner or of root that called [`take_leases`](super::take_leases) can determine this.
    pub fn writers(&self) -> Writers {
        if self.has_verity { Writers::None } else { self.lease.writers() }
    }

    /// Returns the error of the last failed system call that examined or leased the file. A file that cannot be
    /// examined counts as changed, so this error may be the reason why lookups fail.
    pub fn system_error(&self) -> Option<io::Error> {
        self.lease.system_error()
    }

    /// Returns the number of faults: reads that failed because a page of the mapping could not be read. Only faults
    /// after a call of [`survive_bus_errors`](super::survive_bus_errors) are counted.
    #[inline]
    pub fn faults(&self) -> u64 {
        self.memory.faults()
    }

    /// Keeps the file open for later examination, and takes a lease on the file if the system grants one. `memory` is a
    /// mapping of the file.
    pub(super) fn new(file: &File, memory: Mmap) -> io::Result<WatchedFile> {
        let watched = WatchedFile {
            memory: Guarded::new(memory),
            lease: Lease::new(file.try_clone()?),
            has_verity: sealed::has_verity(file),
            hides_mapped_writes: file_system::hides_mapped_writes(file)?,
            may_cache_times: file_system::may_cache_times(file)?,
            has_foreign_clock: file_system::has_foreign_clock(file)?,
            trusted_hash: AtomicU64::new(0),
            trusted_content_hash: AtomicU64::new(0),
            trusted_faults: AtomicU64::new(0),
            rechecking: Mutex::default(),
        };
        watched.trust(&watched.stamp()?);
        // No byte was read yet, so a change of the file before the lease is taken does no harm.
        watched.lease.take(|| watched.stamp().inspect(|stamp| watched.trust(stamp)).is_ok());
        Ok(watched)
    }

    /// Waits until every further write to the file will change the file's modification time, then trusts the current
    /// stamp. Does nothing if the file was ever leased or is immutable. Must be called before bytes of the file are
    /// verified. If the wait is canceled, or a process continues to write, the file counts as changed.
    ///
    /// Does not wait for the change time, because direct clients would then receive a renamed file later. If the change
    /// time is not settled, the first lookup that examines the file rechecks it.
    pub(super) fn settle(&self, pace: &Pace) -> io::Result<()> {
        let mut waited = Duration::ZERO;
        while self.is_examined() {
            let stamp = self.stamp()?;
            let Some(left) = unsettled_for(system_time(stamp.modified), SystemTime::now()) else {
                self.trust(&stamp);
                if self.change_unsettled_for(&stamp).is_some() {
                    self.trusted_hash.store(!stamp.hash(), Ordering::Release);
                }
                break;
            };
            if waited >= SETTLE_COARSE || !pace.goes_on() {
                self.trusted_hash.store(!stamp.hash(), Ordering::Release);
                self.trusted_content_hash.store(!stamp.content_hash(), Ordering::Release);
                break;
            }
            let nap = left.min(SETTLE);
            thread::sleep(nap);
            waited += nap;
        }
        Ok(())
    }

    /// Returns the current stamp if every further write to the file will change it, or if changes are detected without
    /// the stamp. Waits until the change time is settled, but at most [`RECHECK_WAIT_MAX`]. Returns `None` if one of the
    /// two times is not settled.
    pub(super) fn settled_stamp(&self) -> io::Result<Option<Stamp>> {
        self.stamp_with_settled_change_time(|stamp| {
            !self.is_examined() || unsettled_for(system_time(stamp.modified), SystemTime::now()).is_none()
        })
    }

    /// Returns the current stamp if, since the file was last trusted, nothing but the change time may have changed, and
    /// changes are detected with the stamp. Waits as [`WatchedFile::settled_stamp`] does.
    pub(super) fn stamp_after_change_of_metadata(&self) -> io::Result<Option<Stamp>> {
        self.stamp_with_settled_change_time(|stamp| {
            self.is_examined() && stamp.content_hash() == self.trusted_content_hash.load(Ordering::Acquire)
        })
    }

    fn stamp_with_settled_change_time(&self, is_accepted: impl Fn(&Stamp) -> bool) -> io::Result<Option<Stamp>> {
        let mut waited = Duration::ZERO;
        loop {
            let stamp = self.stamp()?;
            if !is_accepted(&stamp) {
                return Ok(None);
            }
            let Some(left) = self.change_unsettled_for(&stamp).filter(|_| self.is_examined()) else {
                return Ok(Some(stamp));
            };
            if waited + left > RECHECK_WAIT_MAX {
                return Ok(None);
            }
            // The clock advances in ticks of at least a millisecond.
            let nap = left.max(Duration::from_millis(1));
            thread::sleep(nap);
            waited += nap;
        }
    }

    /// Returns how long to wait until every further change of the file will change its change time.
    fn change_unsettled_for(&self, stamp: &Stamp) -> Option<Duration> {
        change_unsettled_for(system_time(stamp.changed), file_clock(), self.has_foreign_clock)
    }

    /// Locks out other threads that would recheck the file.
    pub(super) fn rechecking(&self) -> MutexGuard<'_, ()> {
        unpoisoned(&self.rechecking)
    }

    /// Returns whether only the [`Stamp`] reveals changes: the file is not immutable and was never leased.
    fn is_examined(&self) -> bool {
        !self.has_verity && self.lease.proof() == Proof::None
    }

    /// Retakes a lost lease: see [`Lease::retake`].
    pub(super) fn retake_lease(&self) -> io::Result<()> {
        if self.has_verity { Ok(()) } else { self.lease.retake() }
    }

    /// Returns `true` if the lease is held, or if fs-verity makes a lease unnecessary. In both cases, if the file is
    /// trusted, no process has written to it since it was mapped or last rechecked.
    #[cfg(feature = "server")]
    pub(crate) fn is_lease_held(&self) -> bool {
        self.has_verity || self.lease.is_held()
    }

    /// Returns whether the lease is held or was never taken.
    pub(super) fn is_lease_held_or_unused(&self) -> bool {
        self.has_verity || self.lease.is_held_or_unused()
    }

    pub(super) fn file(&self) -> &File {
        self.lease.file()
    }

    pub(super) fn memory(&self) -> &Mmap {
        &self.memory
    }

    /// Returns whether a process can write through a mapping without changing the file's modification time.
    pub(super) fn hides_mapped_writes(&self) -> bool {
        self.hides_mapped_writes
    }

    /// Returns whether nobody has changed the file since it was last trusted.
    #[inline]
    pub(super) fn is_unchanged(&self) -> bool {
        let proof = if self.has_verity { Proof::Unchanged } else { self.lease.proof() };
        match proof {
            Proof::Unchanged => self.faults() == self.trusted_faults.load(Ordering::Relaxed),
            Proof::None => self.looks_unchanged(),
            Proof::Lost => false,
        }
    }

    fn looks_unchanged(&self) -> bool {
        self.stamp()
            .inspect_err(|error| self.lease.note_error(error))
            .is_ok_and(|stamp| stamp.hash() == self.trusted_hash.load(Ordering::Acquire))
    }

    /// Returns the current stamp of the file. If the kernel may report a cached time, asks the file system itself.
    pub(super) fn stamp(&self) -> io::Result<Stamp> {
        let (len_bytes, modified, changed) = if self.may_cache_times {
            let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
            let stat = statx(self.file(), "", flags, StatxFlags::SIZE | StatxFlags::MTIME | StatxFlags::CTIME)?;
            let [modified, changed] =
                [stat.stx_mtime, stat.stx_ctime].map(|time| [time.tv_sec as u64, u64::from(time.tv_nsec)]);
            (stat.stx_size, modified, changed)
        } else {
            let stat = fstat(self.file())?;
            let modified = [stat.st_mtime as u64, stat.st_mtime_nsec as u64];
            (stat.st_size as u64, modified, [stat.st_ctime as u64, stat.st_ctime_nsec as u64])
        };
        Ok(Stamp { len_bytes, modified, changed, faults: self.faults() })
    }

    /// Trusts the file as long as it has this stamp.
    pub(super) fn trust(&self, stamp: &Stamp) {
        self.trusted_hash.store(stamp.hash(), Ordering::Release);
        self.trusted_content_hash.store(stamp.content_hash(), Ordering::Release);
        self.trusted_faults.store(stamp.faults, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    use memmap2::MmapMut;

    use super::*;

    /// The name of a change, and the function that makes the change.
    type Change<'a> = (&'a str, &'a dyn Fn(&File));

    #[test]
    fn every_change_of_a_file_is_detected() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 10_000]).unwrap();
        let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        let changes: [Change<'_>; 5] = [
            ("written to", &|file| file.write_all_at(b"8", 5000).unwrap()),
            ("written to, with the same byte", &|file| file.write_all_at(&[7], 5000).unwrap()),
            ("truncated", &|file| file.set_len(0).unwrap()),
            ("extended", &|file| file.set_len(20_000).unwrap()),
            ("touched", &|file| file.set_modified(long_ago + std::time::Duration::from_nanos(1)).unwrap()),
        ];
        for (how, change) in changes {
            file.set_len(10_000).unwrap();
            file.set_modified(long_ago).unwrap();
            let watched = watched(&file);
            assert!(watched.is_unchanged());
            change(&file);
            assert!(!watched.is_unchanged(), "{how}");
            watched.trust(&watched.stamp().unwrap());
            assert!(watched.is_unchanged());
        }
    }

    fn watched(file: &File) -> WatchedFile {
        WatchedFile::new(file, MmapMut::map_anon(4096).unwrap().make_read_only().unwrap()).unwrap()
    }

    fn watched_since(modified: SystemTime) -> WatchedFile {
        let file = tempfile::tempfile().unwrap();
        file.set_modified(modified).unwrap();
        watched(&file)
    }

    /// Returns the current time in whole seconds: the modification time that a new file has if its file system stores
    /// whole seconds.
    fn now_in_whole_seconds() -> SystemTime {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        SystemTime::UNIX_EPOCH + Duration::from_secs(since_epoch.as_secs())
    }

    #[test]
    fn a_file_is_trusted_only_when_each_write_changes_its_stamp() {
        let modified = now_in_whole_seconds();
        let watched = watched_since(modified);
        watched.settle(&Pace::default()).unwrap();
        assert!(watched.is_unchanged());
        assert!(unsettled_for(modified, SystemTime::now()).is_none());

        // The wait is canceled. If this test was suspended until the file was settled, it tries again.
        loop {
            let modified = now_in_whole_seconds();
            let watched = watched_since(modified);
            watched.settle(&Pace::new(|| false)).unwrap();
            if unsettled_for(modified, SystemTime::now()).is_some() {
                assert!(!watched.is_unchanged());
                break;
            }
        }
    }
}
