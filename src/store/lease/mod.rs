//! Takes read leases: the system notifies the holder of a lease before any process writes to the file.
//!
//! While a process holds a read lease on a file, no process has the file open for writing. A process that opens the
//! file for writing, or truncates it, waits while the holder gets SIGIO and releases the lease. While a file is leased,
//! it therefore does not change, and its modification time need not be read.
//!
//! There is one exception. The kernel grants a lease even if pages of the file are pinned for I/O on behalf of a
//! process that had a writable mapping: for a registered buffer of io_uring, for RDMA, or for a direct read in flight.
//! This I/O can write to the pages later, and nothing reveals the write.
//!
//! The system grants leases to a file's owner and to root (CAP_LEASE), on local file systems; see fcntl(2). Leases on
//! other file systems do not reveal every writer, so this module does not take them. A process that opens a leased file
//! with O_NONBLOCK does not wait: it gets EAGAIN until the lease is released. Among the usual tools, only truncate(1)
//! uses O_NONBLOCK.
//!
//! A holder that does not run (SIGSTOP, a frozen control group, a debugger) does not release its lease, and the system
//! revokes the lease after `/proc/sys/fs/lease-break-time`. A lease is therefore trusted without a system call only
//! until a deadline, which [`renew_leases`] extends. After the deadline, each check asks the system whether the lease
//! is still held.
//!
//! After a lease was lost, the file is not trusted. Examining the file would prove nothing: on tmpfs, a process can
//! change a file through a mapping without changing its modification time.
//!
//! Reasons and evidence: `docs/decisions/leases.md`.

mod kernel;
#[cfg(all(test, loom))]
mod models;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32};
use std::sync::{Arc, OnceLock, PoisonError, Weak};
use std::time::Duration;

use nix::sys::signal::Signal;

use super::guard::unblock;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};

/// The time for which a lease is trusted after it was confirmed.
///
/// A writer waits until the lease is released, or for `/proc/sys/fs/lease-break-time` seconds. This setting is a whole
/// number, and 0 means no limit, so the writer waits for at least one second, minus two ticks of the kernel's timer
/// (each at most 10 ms). A confirmed lease means that no writer was waiting yet, so no writer can open the file in the
/// next half second, even if the setting changes. The only exception: if the setting times the number of ticks per
/// second exceeds 2^31, the kernel computes a deadline in the past, and the writer does not wait. Only root can choose
/// such a setting.
const TRUSTED_NS: u64 = 500_000_000;

/// The recommended interval between calls of [`renew_leases`]. After half a second without a call, each batch of
/// lookups checks its lease with a system call, until the next call of [`renew_leases`].
pub const RENEW_LEASES_EVERY: Duration = Duration::from_millis(150);

const _: () = assert!(2 * RENEW_LEASES_EVERY.as_nanos() < TRUSTED_NS as u128);

/// Whether [`take_leases`] was called, and SIGIO is therefore handled. Before that call, the process takes no leases,
/// because SIGIO would end a process that does not handle it.
static IS_ENABLED: AtomicBool = AtomicBool::new(false);

/// The leases of this process that [`renew_leases`] renews.
static LEASES: std::sync::Mutex<Vec<Weak<Lease>>> = std::sync::Mutex::new(Vec::new());

fn leases() -> std::sync::MutexGuard<'static, Vec<Weak<Lease>>> {
    LEASES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Enables leases on mapped files: from now on, this process takes a lease on each file that it maps, if the system
/// grants the lease. Checking a leased file for changes makes no system call. A lease is lost when a process opens the
/// file for writing. The file is then not trusted until [`Store::look_again`](super::Store::look_again) has retaken the
/// lease.
///
/// The caller must handle SIGIO, which would otherwise end the process. The caller must call [`renew_leases`] whenever
/// the signal arrives, and at least every [`RENEW_LEASES_EVERY`].
pub fn take_leases() {
    unblock(Signal::SIGIO);
    IS_ENABLED.store(true, Ordering::Release);
}

/// Releases the leases that writers wait for, and extends the deadlines of all other leases of this process.
pub fn renew_leases() {
    let leases: Vec<_> = leases().iter().filter_map(Weak::upgrade).collect();
    leases.iter().for_each(|lease| lease.renew());
}

/// Whether a process has a file open for writing, or has a writable mapping of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// No process has the file open for writing. If this process holds a lease on the file, the system notifies this
    /// process before another process can open the file for writing.
    None,
    /// At least one process has the file open for writing.
    Some,
    /// This process cannot determine whether there are writers, for the given reason.
    Unknown(WritersUnknown),
}

/// The reason why this process cannot determine whether a file has writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritersUnknown {
    /// This process takes no leases.
    Off,
    /// This process neither owns the file nor has CAP_LEASE.
    NotOwner,
    /// The file system has no leases, or grants them although a process has the file open for writing.
    Unsupported,
}

impl Writers {
    /// Determines whether the file has writers, from the error with which the system refused a lease.
    fn from_refusal(error: &io::Error) -> Writers {
        match error.kind() {
            io::ErrorKind::WouldBlock => Writers::Some,
            io::ErrorKind::PermissionDenied => Writers::Unknown(WritersUnknown::NotOwner),
            _ => Writers::Unknown(WritersUnknown::Unsupported),
        }
    }
}

impl fmt::Display for WritersUnknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WritersUnknown::Off => "leases are switched off",
            WritersUnknown::NotOwner => "this process neither owns the file nor has CAP_LEASE",
            WritersUnknown::Unsupported => "the file system has no leases that reveal every writer",
        })
    }
}

/// The system calls that a [`Lease`] needs, as a trait so that tests can simulate the system.
pub(crate) trait Leasable {
    /// Returns whether [`take_leases`] was called. If not, leases are neither taken nor used to detect writers.
    fn are_leases_on(&self) -> bool {
        true
    }

    /// Returns the time, in nanoseconds, of the clock that lease deadlines are compared with.
    fn now_ns(&self) -> u64;

    /// Takes a read lease.
    fn acquire(&self) -> io::Result<()>;

    /// Releases the lease, if it is held.
    fn release(&self);

    /// Returns whether the lease is held and no writer waits for its release.
    fn is_held(&self) -> io::Result<bool>;
}

/// The state of the lease on a file: see [`WatchedFile::report_lease`](super::WatchedFile::report_lease).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// No process can write to the file before this time, in nanoseconds of CLOCK_MONOTONIC.
    TrustedUntil(u64),
    /// A process may have the file open for writing.
    Lost,
    /// This process has released the lease, because it no longer uses the file. Until the release, no process had the
    /// file open for writing.
    Released,
}

/// A callback that receives each new state of a lease.
pub(super) type Report = Box<dyn Fn(LeaseState) + Send + Sync>;

/// The result of [`Lease::proof`]: what a lease proves about bytes that were read before the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// The lease proves nothing, because it was never taken.
    None,
    /// No process has written to the file since the lease was taken.
    Unchanged,
    /// The lease was lost: a process may have written to the file.
    Lost,
}

/// The value of `Lease::trusted_until_ns` until the first lease is taken.
const NEVER_TAKEN: u64 = 0;
/// The value of `Lease::trusted_until_ns` after the lease was lost. While a lease is held, the value is greater.
const LOST: u64 = 1;

/// An open file, on which this process may hold a lease.
pub(super) struct Lease<F: Leasable = File> {
    file: F,
    /// Whether the lease was taken and not released. The mutex is locked while this value changes and while the lease
    /// is confirmed.
    is_taken: Mutex<bool>,
    /// The time until which the lease is trusted without a system call. At most [`TRUSTED_NS`] before this time, the
    /// system confirmed that the lease was held and that no writer waited for its release. [`NEVER_TAKEN`] and [`LOST`]
    /// are special values.
    trusted_until_ns: AtomicU64,
    report: OnceLock<Report>,
    /// The error number of the last failed system call that leased or examined the file, or 0 if none has failed.
    system_error: AtomicI32,
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("file", &self.file)
            .field("trusted_until_ns", &self.trusted_until_ns)
            .finish_non_exhaustive()
    }
}

impl Lease {
    /// Registers a file for [`renew_leases`], without taking a lease yet. The file must be open for reading only. Two
    /// `Lease`s must not share an open file description, because a lease belongs to the description.
    pub(super) fn new(file: File) -> Arc<Lease> {
        let lease = Arc::new(Lease::unregistered(file));
        let mut leases = leases();
        leases.retain(|lease| lease.strong_count() > 0);
        leases.push(Arc::downgrade(&lease));
        lease
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

/// Determines whether a process has a file open for writing: takes a lease on the file, and releases it. This call
/// releases any lease on the open file description of `file`.
pub(crate) fn writers_of(file: &impl Leasable) -> Writers {
    if !file.are_leases_on() {
        return Writers::Unknown(WritersUnknown::Off);
    }
    match file.acquire() {
        Ok(()) => {
            file.release();
            Writers::None
        }
        Err(error) => Writers::from_refusal(&error),
    }
}

impl<F: Leasable> Lease<F> {
    /// Creates a `Lease` that is not registered for [`renew_leases`], without taking a lease yet.
    pub(super) fn unregistered(file: F) -> Lease<F> {
        let trusted_until_ns = AtomicU64::new(NEVER_TAKEN);
        let (is_taken, report, system_error) = (Mutex::new(false), OnceLock::new(), AtomicI32::new(0));
        Lease { file, is_taken, trusted_until_ns, report, system_error }
    }

    /// Returns what the lease proves about the bytes that were read before this call. An Acquire fence must order these
    /// reads before this call, as in `Blocks::accept`. If the lease was lost, the caller must end the epoch before it
    /// takes the lease again. A proof then never covers bytes that were read under an earlier lease.
    #[inline(always)]
    pub(super) fn proof(&self) -> Proof {
        let until_ns = self.trusted_until_ns.load(Ordering::Acquire);
        match until_ns {
            NEVER_TAKEN => Proof::None,
            LOST => Proof::Lost,
            _ if self.file.now_ns() < until_ns || self.is_held_after_deadline() => Proof::Unchanged,
            _ => Proof::Lost,
        }
    }

    /// Returns whether the lease was taken and not lost, and its deadline has not passed. If so, [`Lease::proof`] makes
    /// no system call.
    #[inline]
    pub(super) fn is_confirmed(&self) -> bool {
        let until_ns = self.trusted_until_ns.load(Ordering::Acquire);
        until_ns > LOST && self.file.now_ns() < until_ns
    }

    /// Asks the system whether the lease is held, after the deadline has passed. The deadline passes only if this
    /// process, or its thread that renews leases, did not run for a while.
    #[cold]
    fn is_held_after_deadline(&self) -> bool {
        self.is_confirmed_by_system()
    }

    /// Asks the system whether the lease is held. If the system call fails, the lease counts as lost.
    fn is_confirmed_by_system(&self) -> bool {
        self.file.is_held().unwrap_or_else(|error| {
            self.note_error(&error);
            false
        })
    }

    /// Records the error of a failed system call that leases or examines the file.
    #[cold]
    pub(super) fn note_error(&self, error: &io::Error) {
        self.system_error.store(error.raw_os_error().unwrap_or(0), Ordering::Relaxed);
    }

    /// Returns the last recorded error.
    pub(super) fn system_error(&self) -> Option<io::Error> {
        let number = self.system_error.load(Ordering::Relaxed);
        (number != 0).then(|| io::Error::from_raw_os_error(number))
    }

    /// Takes a lease, if none was ever taken and the system grants one. Then calls `is_unchanged`, and releases the
    /// lease if the result is `false`. Does not retake a lost lease: see [`Lease::retake`].
    pub(super) fn take(&self, is_unchanged: impl FnOnce() -> bool) {
        if !self.file.are_leases_on() {
            return;
        }
        let mut is_taken = self.is_taken();
        // A writer that has to wait for the lease begins to wait after this time, and waits for at least a second
        // unless the lease is released.
        let started_ns = self.file.now_ns();
        if self.trusted_until_ns.load(Ordering::SeqCst) != NEVER_TAKEN {
            return;
        }
        if let Err(refusal) = self.file.acquire() {
            return self.note_error(&refusal);
        }
        match is_unchanged() {
            true => {
                *is_taken = true;
                self.publish(started_ns + TRUSTED_NS);
            }
            // Lookups find that the file has changed when they examine it.
            false => self.file.release(),
        }
    }

    /// Retakes a lost lease, or takes the first lease. Must only be called while no byte of the file is trusted,
    /// because a process may have changed the file while there was no lease.
    ///
    /// # Errors
    /// The system's error if the system refuses the lease. If no lease was ever taken, and the error does not reveal
    /// whether the file has writers, the result is `Ok`, because the file can be examined instead.
    pub(super) fn retake(&self) -> io::Result<()> {
        if !self.file.are_leases_on() {
            return Ok(());
        }
        self.renew();
        let mut is_taken = self.is_taken();
        if *is_taken {
            return Ok(());
        }
        let started_ns = self.file.now_ns();
        match self.file.acquire() {
            Ok(()) => {
                *is_taken = true;
                self.publish(started_ns + TRUSTED_NS);
                Ok(())
            }
            Err(error) => match Writers::from_refusal(&error) {
                Writers::Unknown(_) if self.trusted_until_ns.load(Ordering::SeqCst) == NEVER_TAKEN => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Returns whether a process has the file open for writing.
    pub(super) fn writers(&self) -> Writers {
        self.renew();
        match *self.is_taken() {
            true => Writers::None,
            false => writers_of(&self.file),
        }
    }

    /// Renews the lease. Returns whether the lease is held or was never taken.
    pub(super) fn is_held_or_unused(&self) -> bool {
        self.is_held() || self.trusted_until_ns.load(Ordering::SeqCst) == NEVER_TAKEN
    }

    /// Renews the lease. Returns whether the lease is held.
    pub(super) fn is_held(&self) -> bool {
        self.renew();
        *self.is_taken()
    }

    /// Asks the system whether the lease is held. If it is held, extends the deadline. If a writer waits for the
    /// release, or the system has revoked the lease, marks the lease as lost and releases it. Does nothing if no lease
    /// is taken.
    pub(super) fn renew(&self) {
        let mut is_taken = self.is_taken();
        if !*is_taken {
            return;
        }
        // The clock is read first: a writer that arrives after the confirmation also arrives after this time.
        let started_ns = self.file.now_ns();
        match self.is_confirmed_by_system() {
            true => self.publish(started_ns + TRUSTED_NS),
            false => self.lose(&mut is_taken),
        }
    }

    /// Marks the lease as lost, calls `report`, and then releases the lease. The order matters: a writer changes bytes
    /// only after the release. Every batch that copied a changed byte therefore finds that the lease was lost, whether
    /// the batch runs in this process or in a process that `report` informs.
    fn lose(&self, is_taken: &mut bool) {
        self.publish(LOST);
        if std::mem::take(is_taken) {
            self.file.release();
        }
    }

    /// Sets `trusted_until_ns` and reports the new state. Must be called while `is_taken` is locked.
    fn publish(&self, until_ns: u64) {
        self.trusted_until_ns.store(until_ns, Ordering::SeqCst);
        self.report_deadline(until_ns);
    }

    fn report_deadline(&self, until_ns: u64) {
        match (self.report.get(), until_ns) {
            (None, _) | (_, NEVER_TAKEN) => {}
            (Some(report), LOST) => report(LeaseState::Lost),
            (Some(report), _) => report(LeaseState::TrustedUntil(until_ns)),
        }
    }

    /// Calls `report` with the lease's current state, and again at each change. The lease is released only after
    /// `report` has returned. Does not call `report` until the first lease is taken. Only the first call of this method
    /// has an effect.
    pub(super) fn report(&self, report: Report) {
        let _locked = self.is_taken();
        if self.report.set(report).is_ok() {
            self.report_deadline(self.trusted_until_ns.load(Ordering::SeqCst));
        }
    }

    fn is_taken(&self) -> MutexGuard<'_, bool> {
        self.is_taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Leasable> Drop for Lease<F> {
    /// Releases the lease explicitly, because another descriptor may keep the file open.
    fn drop(&mut self) {
        let mut is_taken = self.is_taken();
        if !*is_taken {
            return;
        }
        if !self.is_confirmed_by_system() {
            return self.lose(&mut is_taken);
        }
        if let Some(report) = self.report.get() {
            report(LeaseState::Released);
        }
        *is_taken = false;
        self.file.release();
    }
}
