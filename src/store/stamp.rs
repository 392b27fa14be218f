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
//! A process can restore the modification time after a write, but not the change time. The change time also changes
//! when somebody changes the file's names or permissions, so if it alone has changed, the bytes may or may not have
//! changed. See [`Store::begin_batch`](super::Store::begin_batch).
//!
//! File systems store times with a limited resolution, so a write shortly after another write may not change the times.
//! A file is therefore not trusted until its modification time is [settled](super::settling): until every further write
//! will change the time. While only the change time is not settled, nothing reveals a write whose modification time was
//! restored, and lookups trust only [copies](super::page_copies) of pages.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use memmap2::Mmap;
use rustix::fs::{AtFlags, StatxFlags, fstat, statx};

use super::lease::{Lease, LeaseState, Proof, Writers};
use super::page_copies::{Copier, CopyableMapping, LockedCopies};
use super::settling::{SETTLE, SETTLE_COARSE, unsettled_for};
use super::{Pace, file_system, sealed};
use crate::sync::{AtomicU64, Ordering, fence};

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

    /// Returns whether everything except the change time is as in another stamp.
    pub(super) fn has_content_of(&self, other: &Stamp) -> bool {
        self.content_hash() == other.content_hash()
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

/// Returns the state of a file that `examine` reads with a system call. The file's bytes that are read afterward, such
/// as the root of the block sums, are no older than this state: a system call is not a fence on all processors.
pub(super) fn examined<T>(examine: impl FnOnce() -> T) -> T {
    let state = examine();
    fence(Ordering::Acquire);
    state
}

fn system_time([seconds, ns]: FileTime) -> SystemTime {
    // A time before 1970 is a large number here. Like a time in the future, it is not the time of a recent write.
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, ns as u32)).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// A mapped file that other processes can change: see [`Store::watched_file`](super::Store::watched_file). This process
/// detects changes of the file by a lease or, without a lease, by examining the file.
#[derive(Debug)]
pub struct WatchedFile {
    pages: CopyableMapping,
    lease: Arc<Lease>,
    /// Whether the file has fs-verity, so that nobody can change it, with or without a lease.
    has_verity: bool,
    /// Whether a process can write to the file through a mapping without changing its modification time.
    hides_mapped_writes: bool,
    /// Whether the kernel may report outdated times from a cache.
    may_cache_times: bool,
    trusted: TrustedStamp,
    /// A hash of the last stamp with which the root of the block sums was damaged: see [`WatchedFile::note_bad_root`].
    bad_root: AtomicU64,
}

/// What is known of the [`Stamp`] with which the file was last trusted.
///
/// The stamp is stored after the epoch of the earlier stamp has ended. A batch that loads the new stamp, although it
/// began before, must find that its epoch has ended. The loads are therefore not relaxed, and precede the load of the
/// epoch.
#[derive(Debug)]
pub(super) struct TrustedStamp {
    /// The stamp's hash, or another number if further changes of the file may leave the stamp as it is.
    hash: AtomicU64,
    /// The stamp's hash without the change time.
    content_hash: AtomicU64,
    faults: AtomicU64,
}

impl TrustedStamp {
    pub(super) fn new() -> TrustedStamp {
        TrustedStamp { hash: AtomicU64::new(0), content_hash: AtomicU64::new(0), faults: AtomicU64::new(0) }
    }

    pub(super) fn set(&self, hash: u64, content_hash: u64, faults: u64) {
        self.hash.store(hash, Ordering::Release);
        self.content_hash.store(content_hash, Ordering::Release);
        self.faults.store(faults, Ordering::Release);
    }

    pub(super) fn has_hash(&self, hash: u64) -> bool {
        self.hash.load(Ordering::Acquire) == hash
    }

    fn has_content_hash(&self, content_hash: u64) -> bool {
        self.content_hash.load(Ordering::Acquire) == content_hash
    }

    #[inline(always)]
    pub(super) fn has_faults(&self, faults: u64) -> bool {
        self.faults.load(Ordering::Acquire) == faults
    }
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
        self.pages.memory().faults()
    }

    /// Keeps the file open for later examination, and takes a lease on the file if the system grants one. `memory` is a
    /// mapping of the file.
    pub(super) fn new(file: &File, memory: Mmap) -> io::Result<WatchedFile> {
        let watched = WatchedFile {
            pages: CopyableMapping::new(memory),
            lease: Lease::new(file.try_clone()?),
            has_verity: sealed::has_verity(file),
            hides_mapped_writes: file_system::hides_mapped_writes(file)?,
            may_cache_times: file_system::may_cache_times(file)?,
            trusted: TrustedStamp::new(),
            bad_root: AtomicU64::new(0),
        };
        watched.trust(&watched.stamp()?, true);
        // No byte was read yet, so a change of the file before the lease is taken does no harm.
        let mut stamped = Ok(());
        watched.lease.take(|| {
            stamped = watched.stamp().map(|stamp| watched.trust(&stamp, true));
            stamped.is_ok()
        });
        stamped.map(|()| watched)
    }

    /// Waits until every further write to the file will change the file's modification time, then trusts the current
    /// stamp. Does nothing if the file was ever leased or is immutable. Must be called before bytes of the file are
    /// verified. If the wait is canceled, or a process continues to write, the file counts as changed.
    ///
    /// Waits for the change time, too, only if lookups could copy no pages until then, because direct clients would
    /// receive a renamed file later. Otherwise, the first lookup that examines the file rechecks it.
    pub(super) fn settle(&self, pace: &Pace) -> io::Result<()> {
        let mut waited = Duration::ZERO;
        while self.is_examined() {
            let stamp = self.stamp()?;
            let unsettled_for = |time| unsettled_for(system_time(time), SystemTime::now());
            let changed = unsettled_for(stamp.changed).filter(|_| !self.pages.can_copy());
            let Some(left) = unsettled_for(stamp.modified).max(changed) else {
                self.trust(&stamp, self.detects_changes(&stamp));
                break;
            };
            if waited >= SETTLE_COARSE || !pace.goes_on() {
                self.trusted.set(!stamp.hash(), !stamp.content_hash(), stamp.faults);
                break;
            }
            let nap = left.min(SETTLE);
            thread::sleep(nap);
            waited += nap;
        }
        Ok(())
    }

    /// Returns the current stamp if every further write to the file will change its modification time, or if changes
    /// are detected without the stamp.
    pub(super) fn settled_stamp(&self) -> io::Result<Option<Stamp>> {
        let stamp = self.stamp()?;
        let is_settled = !self.is_examined() || unsettled_for(system_time(stamp.modified), SystemTime::now()).is_none();
        Ok(is_settled.then_some(stamp))
    }

    /// Returns the current stamp if, since the file was last trusted, nothing but the change time may have changed, and
    /// changes are detected with the stamp.
    pub(super) fn stamp_after_change_of_metadata(&self) -> io::Result<Option<Stamp>> {
        let stamp = self.stamp()?;
        Ok(Some(stamp).filter(|stamp| self.is_examined() && self.has_trusted_content(stamp)))
    }

    /// Returns whether everything except the change time is as it was when the file was last trusted.
    pub(super) fn has_trusted_content(&self, stamp: &Stamp) -> bool {
        self.trusted.has_content_hash(stamp.content_hash())
    }

    /// Returns whether every change of the file from now on is detected: because it changes the change time of `stamp`,
    /// or without the stamp.
    pub(super) fn detects_changes(&self, stamp: &Stamp) -> bool {
        !self.is_examined() || unsettled_for(system_time(stamp.changed), SystemTime::now()).is_none()
    }

    /// Records that the root of the block sums was damaged with this stamp, so that it is not read again. While the
    /// change time is not settled, a later write may restore the root and leave the stamp as it is, so the root is read
    /// again when the change time is settled.
    pub(super) fn note_bad_root(&self, stamp: &Stamp) {
        self.bad_root.store(self.root_hash(stamp), Ordering::Relaxed);
    }

    /// Returns whether [`WatchedFile::note_bad_root`] was last called with this stamp.
    pub(super) fn is_root_bad(&self, stamp: &Stamp) -> bool {
        self.bad_root.load(Ordering::Relaxed) == self.root_hash(stamp)
    }

    fn root_hash(&self, stamp: &Stamp) -> u64 {
        mix(stamp.hash(), u64::from(self.detects_changes(stamp)))
    }

    /// Locks out other threads that would recheck the file or copy its pages.
    pub(super) fn lock_copies(&self) -> LockedCopies<'_> {
        self.pages.lock()
    }

    pub(super) fn copier(&self) -> Copier<'_> {
        Copier::new(&self.pages, self.file())
    }

    /// Returns whether some pages of the mapping are copies.
    #[cfg(any(feature = "bake", feature = "server"))]
    pub(super) fn has_copied_pages(&self) -> bool {
        self.pages.has_copies()
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
        self.pages.memory()
    }

    /// Returns whether a process can write through a mapping without changing the file's modification time.
    pub(super) fn hides_mapped_writes(&self) -> bool {
        self.hides_mapped_writes
    }

    /// Returns whether nobody has changed the file since it was last trusted. Called by `Blocks::accept`, whose fence
    /// orders the reads of bytes before this function.
    #[inline]
    pub(super) fn is_unchanged(&self) -> bool {
        let proof = if self.has_verity { Proof::Unchanged } else { self.lease.proof() };
        match proof {
            Proof::Unchanged => self.trusted.has_faults(self.faults()),
            Proof::None => self.looks_unchanged(),
            Proof::Lost => false,
        }
    }

    fn looks_unchanged(&self) -> bool {
        self.stamp()
            .inspect_err(|error| self.lease.note_error(error))
            .is_ok_and(|stamp| self.trusted.has_hash(stamp.hash()))
    }

    /// Returns the current stamp of the file. If the kernel may report a cached time, asks the file system itself.
    pub(super) fn stamp(&self) -> io::Result<Stamp> {
        examined(|| self.read_stamp())
    }

    fn read_stamp(&self) -> io::Result<Stamp> {
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

    /// Trusts the file as long as it has this stamp, if further changes of the file will change the stamp. Otherwise,
    /// records only what the file must have in common with this stamp.
    pub(super) fn trust(&self, stamp: &Stamp, detects_changes: bool) {
        let hash = if detects_changes { stamp.hash() } else { !stamp.hash() };
        self.trusted.set(hash, stamp.content_hash(), stamp.faults);
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
            watched.trust(&watched.stamp().unwrap(), true);
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
