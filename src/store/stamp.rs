//! Detects changes of a mapped file.
//!
//! If a file was ever leased, only the lease counts: the file is unchanged while the lease is held, and is not trusted
//! after the lease was lost. See [`lease`](super::lease).
//!
//! A file that was never leased is examined with fstat or statx. A write or a truncation changes the file's
//! modification time or length before it changes a byte. A write through a mapping changes the time with the first
//! write to a page, except on file systems in memory, such as tmpfs. If time and length are equal before and after
//! bytes are read, nobody changed the bytes meanwhile. In addition, [`guard`](super::guard) counts pages that could not
//! be read.
//!
//! File systems store times in steps, and a second write within the same step does not change the time. A file
//! therefore counts as changed until it is [settled](super::settling).

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, StatxFlags, fstat, statx};

use super::guard::Guarded;
use super::lease::{Lease, LeaseState, Proof, Report, Writers};
use super::settling::{SETTLE, SETTLE_COARSE, unsettled_for};
use super::{Pace, file_system, sealed};

/// The state of a file at one time. The first number is a hash of the file's length, modification time, and number of
/// faults. The second number is the number of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp(u64, u64);

/// A mapped file that other processes can change, and the state with which changes are detected.
#[derive(Debug)]
pub(super) struct Watched {
    lease: Arc<Lease>,
    /// Whether the file has fs-verity, so that nobody can change it, with or without a lease.
    has_verity: bool,
    /// Whether a process can write to the file through a mapping without changing its modification time.
    hides_mapped_writes: bool,
    /// Whether the kernel may report an outdated modification time from a cache.
    may_cache_times: bool,
    /// The hash in the file's stamp when the file was last trusted.
    trusted_hash: AtomicU64,
    trusted_faults: AtomicU64,
}

impl Watched {
    /// Keeps the file open for later examination, and takes a lease on the file if the system grants one.
    pub(super) fn new(file: &File, guarded: &Guarded) -> io::Result<Watched> {
        let faults = guarded.faults();
        let may_cache_times = file_system::may_cache_times(file)?;
        let trusted_hash = AtomicU64::new(stamp(file, may_cache_times, faults)?.0);
        let (lease, has_verity) = (Lease::new(file.try_clone()?), sealed::has_verity(file));
        let hides_mapped_writes = file_system::hides_mapped_writes(file)?;
        let trusted_faults = AtomicU64::new(faults);
        let watched = Watched { lease, has_verity, hides_mapped_writes, may_cache_times, trusted_hash, trusted_faults };
        watched.lease(guarded);
        Ok(watched)
    }

    /// Waits until every further write to the file will change its stamp, then trusts the current stamp. Does nothing
    /// if the file was ever leased or is immutable. Must be called before bytes of the file are verified. If the wait
    /// is canceled, or a process continues to write, the file counts as changed.
    pub(super) fn settle(&self, guarded: &Guarded, pace: &Pace) -> io::Result<()> {
        let mut waited = Duration::ZERO;
        while self.is_examined() {
            let stamp = self.stamp(guarded)?;
            let Some(left) = self.unsettled_for()? else {
                self.trust(stamp);
                break;
            };
            if waited >= SETTLE_COARSE || !pace.goes_on() {
                self.trust(Stamp(!stamp.0, stamp.1));
                break;
            }
            let nap = left.min(SETTLE);
            thread::sleep(nap);
            waited += nap;
        }
        Ok(())
    }

    /// Returns how long to wait until every further write to the file will change its stamp. Returns `None` if no wait
    /// is necessary, or if changes are detected without the stamp.
    pub(super) fn unsettled_for(&self) -> io::Result<Option<Duration>> {
        match self.is_examined() {
            true => Ok(unsettled_for(self.file().metadata()?.modified()?, SystemTime::now())),
            false => Ok(None),
        }
    }

    /// Returns whether only the stamp reveals changes: the file is not immutable and was never leased.
    fn is_examined(&self) -> bool {
        !self.has_verity && self.lease.proof() == Proof::None
    }

    /// Takes a lease on the file, if none was ever taken and the system grants one.
    pub(super) fn lease(&self, guarded: &Guarded) {
        self.lease.take(|| self.looks_unchanged(guarded));
    }

    /// Retakes a lost lease: see [`Lease::retake`].
    pub(super) fn retake_lease(&self) -> io::Result<()> {
        if self.has_verity { Ok(()) } else { self.lease.retake() }
    }

    /// Returns `true` if the lease is held, or if fs-verity makes a lease unnecessary. In both cases, if the file is
    /// trusted, no process has written to it since it was mapped or last rechecked.
    #[cfg(feature = "server")]
    pub(super) fn is_lease_held(&self) -> bool {
        self.has_verity || self.lease.is_held()
    }

    /// Returns whether the lease is held or was never taken.
    pub(super) fn is_lease_held_or_unused(&self) -> bool {
        self.has_verity || self.lease.is_held_or_unused()
    }

    pub(super) fn file(&self) -> &File {
        self.lease.file()
    }

    /// Calls `report` with the state of the lease now and whenever it changes. See [`Lease::report`].
    pub(super) fn report(&self, report: Report) {
        if self.has_verity {
            report(LeaseState::TrustedUntil(u64::MAX));
        } else {
            self.lease.report(report);
        }
    }

    /// Returns whether a process has the file open for writing.
    pub(super) fn writers(&self) -> Writers {
        if self.has_verity { Writers::None } else { self.lease.writers() }
    }

    /// Returns whether a process can write through a mapping without changing the file's stamp.
    pub(super) fn hides_mapped_writes(&self) -> bool {
        self.hides_mapped_writes
    }

    /// Returns `true` if the file is immutable, or if it is leased and the deadline of the lease has not passed. In
    /// both cases, [`Watched::is_unchanged`] makes no system call.
    #[inline]
    pub(super) fn is_leased(&self) -> bool {
        self.has_verity || self.lease.is_confirmed()
    }

    /// Returns whether nobody has changed the file since it was last trusted.
    #[inline]
    pub(super) fn is_unchanged(&self, guarded: &Guarded) -> bool {
        let proof = if self.has_verity { Proof::Unchanged } else { self.lease.proof() };
        match proof {
            Proof::Unchanged => guarded.faults() == self.trusted_faults.load(Ordering::Relaxed),
            Proof::None => self.looks_unchanged(guarded),
            Proof::Lost => false,
        }
    }

    fn looks_unchanged(&self, guarded: &Guarded) -> bool {
        stamp(self.lease.file(), self.may_cache_times, guarded.faults())
            .inspect_err(|error| self.lease.note_error(error))
            .is_ok_and(|stamp| stamp.0 == self.trusted_hash.load(Ordering::Acquire))
    }

    /// Returns the error of the last failed system call that examined or leased the file. A file that cannot be
    /// examined counts as changed.
    pub(super) fn system_error(&self) -> Option<io::Error> {
        self.lease.system_error()
    }

    /// Returns the current stamp of the file.
    pub(super) fn stamp(&self, guarded: &Guarded) -> io::Result<Stamp> {
        stamp(self.lease.file(), self.may_cache_times, guarded.faults())
    }

    /// Trusts the file as long as it has this stamp.
    pub(super) fn trust(&self, stamp: Stamp) {
        self.trusted_hash.store(stamp.0, Ordering::Release);
        self.trusted_faults.store(stamp.1, Ordering::Release);
    }
}

/// Returns the current stamp of a file. If the kernel may report a cached time, asks the file system itself.
fn stamp(file: &File, may_cache_times: bool, faults: u64) -> io::Result<Stamp> {
    let (len_bytes, seconds, ns) = if may_cache_times {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
        let stat = statx(file, "", flags, StatxFlags::SIZE | StatxFlags::MTIME)?;
        (stat.stx_size, stat.stx_mtime.tv_sec as u64, u64::from(stat.stx_mtime.tv_nsec))
    } else {
        let stat = fstat(file)?;
        (stat.st_size as u64, stat.st_mtime as u64, stat.st_mtime_nsec as u64)
    };
    // `mix` is invertible in each argument, so a change of a single number always changes the hash.
    let mix = |hash: u64, number: u64| {
        let hash = (hash ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        hash ^ (hash >> 32)
    };
    let numbers = [len_bytes, seconds, ns, faults];
    Ok(Stamp(numbers.into_iter().fold(0, mix), faults))
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
        let guarded = Guarded::unguarded(MmapMut::map_anon(4096).unwrap().make_read_only().unwrap());
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
            let watched = Watched::new(&file, &guarded).unwrap();
            assert!(watched.is_unchanged(&guarded));
            change(&file);
            assert!(!watched.is_unchanged(&guarded), "{how}");
            watched.trust(watched.stamp(&guarded).unwrap());
            assert!(watched.is_unchanged(&guarded));
        }
    }

    fn watched_file(modified: SystemTime) -> (File, Watched, Guarded) {
        let guarded = Guarded::unguarded(MmapMut::map_anon(4096).unwrap().make_read_only().unwrap());
        let file = tempfile::tempfile().unwrap();
        file.set_modified(modified).unwrap();
        let watched = Watched::new(&file, &guarded).unwrap();
        (file, watched, guarded)
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
        let (_file, watched, guarded) = watched_file(modified);
        watched.settle(&guarded, &Pace::default()).unwrap();
        assert!(watched.is_unchanged(&guarded));
        assert!(unsettled_for(modified, SystemTime::now()).is_none());

        // The wait is canceled. If this test was suspended until the file was settled, it tries again.
        loop {
            let modified = now_in_whole_seconds();
            let (_file, watched, guarded) = watched_file(modified);
            watched.settle(&guarded, &Pace::new(|| false)).unwrap();
            if unsettled_for(modified, SystemTime::now()).is_some() {
                assert!(!watched.is_unchanged(&guarded));
                break;
            }
        }
    }
}
