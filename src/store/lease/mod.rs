//! Read leases: the system notifies the holder before anybody writes to a file.
//!
//! While a process holds a read lease on a file, no process has it open for writing. Whoever wants to
//! open it for writing, or to truncate it, waits while the holder gets SIGIO and gives the lease back.
//! So a leased file is unchanged without a look at it. The system grants leases to a file's owner and
//! to root (CAP_LEASE), on local file systems; see fcntl(2). A process that opens the file with
//! O_NONBLOCK does not wait: it gets EAGAIN until the lease is given back. Of the usual tools only
//! truncate(1) does that.
//!
//! A holder that does not run (SIGSTOP, a frozen control group, a debugger) does not give its lease
//! back, and the system takes it away after `/proc/sys/fs/lease-break-time`. So a lease is trusted only
//! until a deadline, which [`renew_leases`] moves.

mod kernel;
#[cfg(all(test, target_os = "linux"))]
mod tests;

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, PoisonError, Weak};
use std::time::Duration;

use super::guard::unblock;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, fence};

/// How long a lease is trusted after it was confirmed.
///
/// `/proc/sys/fs/lease-break-time` counts whole seconds, and 0 makes writers wait forever, so no writer
/// goes on sooner than one second after it began to wait, less two timer ticks of up to 10 ms. It began
/// to wait after the time at which the lease was last confirmed. Half a second is safe whatever the
/// setting is, also if it changes.
const TRUSTED_NS: u64 = 500_000_000;

/// How often [`renew_leases`] must be called, at least. A thread that is late by twice as much again
/// costs nothing but speed: files are examined until the next call.
pub const RENEW_LEASES_EVERY: Duration = Duration::from_millis(150);

const _: () = assert!(2 * RENEW_LEASES_EVERY.as_nanos() < TRUSTED_NS as u128);

/// Whether this process answers SIGIO by [`renew_leases`]. Otherwise the signal would end the process.
static ANSWERED: AtomicBool = AtomicBool::new(false);

/// All leases of this process.
static LEASES: std::sync::Mutex<Vec<Weak<Lease>>> = std::sync::Mutex::new(Vec::new());

fn leases() -> std::sync::MutexGuard<'static, Vec<Weak<Lease>>> {
    LEASES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes leases on mapped files from now on, where the system grants them, so that checking that a file
/// is unchanged costs no system call.
///
/// The caller handles SIGIO, which would otherwise end the process, and calls [`renew_leases`] whenever
/// it arrives, and at least every [`RENEW_LEASES_EVERY`].
pub fn take_leases() {
    unblock(libc::SIGIO);
    ANSWERED.store(true, Ordering::Release);
}

/// Gives back the leases that writers wait for, and extends the trust in the others.
pub fn renew_leases() {
    let leases: Vec<_> = leases().iter().filter_map(Weak::upgrade).collect();
    leases.iter().for_each(|lease| lease.renew());
}

/// Whether a process has a file open for writing, also through a mapping whose descriptor is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// None has, and none can without this process being notified first.
    None,
    /// At least one has.
    Some,
    /// The system does not tell.
    Unknown(WritersUnknown),
}

/// Why the system does not tell whether a file has writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritersUnknown {
    /// This process takes no leases.
    Off,
    /// This process neither owns the file nor has CAP_LEASE.
    NotOwner,
    /// The file system has no leases.
    Unsupported,
}

impl Writers {
    /// Interprets why a lease was refused.
    fn of_refusal(error: &io::Error) -> Writers {
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
            WritersUnknown::Unsupported => "the file system has no leases",
        })
    }
}

/// What a [`Lease`] needs of the system, so that tests can simulate it.
pub(super) trait Leasable {
    /// Returns the time in nanoseconds, by the clock that deadlines are compared with.
    fn now_ns(&self) -> u64;

    /// Takes a read lease.
    fn acquire(&self) -> io::Result<()>;

    /// Gives the lease back, if it is held.
    fn release(&self);

    /// Whether the lease is held, and no writer waits for it.
    fn is_held(&self) -> bool;
}

/// Receives the deadline until which a lease is trusted, 0 for none.
pub(super) type Report = Box<dyn Fn(u64) + Send + Sync>;

/// A lease on an open file, or none.
pub(super) struct Lease<F: Leasable = File> {
    file: F,
    /// Whether the lease was taken and not given back. Locked while that changes and while the lease is confirmed.
    is_taken: Mutex<bool>,
    /// The deadline of the trust in the lease; 0 without one. The lease was held, and no writer waited for it, less than
    /// [`TRUSTED_NS`] before this.
    trusted_until_ns: AtomicU64,
    report: OnceLock<Report>,
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
    /// Registers a file for [`renew_leases`], without a lease yet. The file must have been opened for
    /// reading only, and not be shared with another `Lease`: a lease belongs to an open file description.
    pub(super) fn new(file: File) -> Arc<Lease> {
        let lease = Arc::new(Lease::over(file));
        let mut leases = leases();
        leases.retain(|lease| lease.strong_count() > 0);
        leases.push(Arc::downgrade(&lease));
        lease
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Takes the lease, if that is granted, and trusts it if the file is unchanged. A lease that is held and that a
    /// writer waits for is given back instead.
    pub(super) fn take(&self, is_unchanged: impl FnOnce() -> bool) {
        if ANSWERED.load(Ordering::Acquire) {
            self.take_now(is_unchanged);
        }
    }

    /// Whether a process has the file open for writing.
    pub(super) fn writers(&self) -> Writers {
        match ANSWERED.load(Ordering::Acquire) {
            true => self.writers_now(),
            false => Writers::Unknown(WritersUnknown::Off),
        }
    }
}

/// Whether a process has a file open for writing. No [`Lease`] may be on this open file description.
#[cfg(feature = "server")]
pub(crate) fn writers_of(file: &File) -> Writers {
    match ANSWERED.load(Ordering::Acquire) {
        true => probe(file),
        false => Writers::Unknown(WritersUnknown::Off),
    }
}

/// Asks for a lease only to learn whether there are writers.
fn probe(file: &impl Leasable) -> Writers {
    match file.acquire() {
        Ok(()) => {
            file.release();
            Writers::None
        }
        Err(error) => Writers::of_refusal(&error),
    }
}

impl<F: Leasable> Lease<F> {
    pub(super) fn over(file: F) -> Lease<F> {
        Lease { file, is_taken: Mutex::new(false), trusted_until_ns: AtomicU64::new(0), report: OnceLock::new() }
    }

    /// Whether nobody can have written to the file between the lease being taken and this call. What was read
    /// before the call is covered.
    #[inline(always)]
    pub(super) fn is_trusted(&self) -> bool {
        // Reads of the file stay before the reads of the deadline and the clock.
        fence(Ordering::Acquire);
        let until_ns = self.trusted_until_ns.load(Ordering::Acquire);
        // Without a lease the caller makes a system call, and need not pay for the clock as well.
        until_ns != 0 && self.file.now_ns() < until_ns
    }

    pub(super) fn take_now(&self, is_unchanged: impl FnOnce() -> bool) {
        self.renew();
        let mut is_taken = self.is_taken();
        // From here on a writer waits for the lease for at least a second.
        let asked_ns = self.file.now_ns();
        if *is_taken || self.file.acquire().is_err() {
            return;
        }
        *is_taken = true;
        match is_unchanged() {
            true => self.trust_until(asked_ns + TRUSTED_NS),
            false => self.give_back(&mut is_taken),
        }
    }

    pub(super) fn writers_now(&self) -> Writers {
        self.renew();
        match *self.is_taken() {
            true => Writers::None,
            false => probe(&self.file),
        }
    }

    /// Confirms the lease and moves the deadline, or gives the lease back if a writer waits for it or the system has
    /// taken it away.
    pub(super) fn renew(&self) {
        let mut is_taken = self.is_taken();
        if !*is_taken {
            return;
        }
        // The time comes first: a writer that comes after the confirmation comes after this time.
        let asked_ns = self.file.now_ns();
        match self.file.is_held() {
            true => self.trust_until(asked_ns + TRUSTED_NS),
            false => self.give_back(&mut is_taken),
        }
    }

    fn give_back(&self, is_taken: &mut bool) {
        // Everybody stops to trust it before a writer can go on.
        self.trust_until(0);
        if std::mem::take(is_taken) {
            self.file.release();
        }
    }

    /// Called while `is_taken` is locked.
    fn trust_until(&self, until_ns: u64) {
        self.trusted_until_ns.store(until_ns, Ordering::SeqCst);
        if let Some(report) = self.report.get() {
            report(until_ns);
        }
    }

    /// Calls `report` with the deadline now and whenever it changes, in particular before the lease is given back. Only
    /// the first caller is served.
    pub(super) fn report(&self, report: Report) {
        let _unchanging = self.is_taken();
        report(self.trusted_until_ns.load(Ordering::SeqCst));
        let _ = self.report.set(report);
    }

    fn is_taken(&self) -> MutexGuard<'_, bool> {
        self.is_taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Leasable> Drop for Lease<F> {
    /// Gives the lease back, for the file may stay open.
    fn drop(&mut self) {
        self.give_back(&mut self.is_taken());
    }
}
