//! Word from the system before anybody writes to a file.
//!
//! As long as a process holds a lease on a file, nobody has it open to write to
//! it, and whoever wants to open it so, or to cut it off, is made to wait while
//! the holder gets SIGIO. So a leased file need not be looked at to know that it
//! is as it was. Leases are given to the owner of a file and to root
//! (CAP_LEASE), on local file systems; see fcntl(2). Whoever opens the file with
//! O_NONBLOCK is not made to wait, but refused (EAGAIN) until the lease is back:
//! of the usual tools only truncate(1) does.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use super::guard::unblock;

/// Whether somebody answers SIGIO by [`yield_leases`]. Without that, writers would
/// wait for as long as the system lets them (45 s), and the signal would end the
/// process.
static ANSWERED: AtomicBool = AtomicBool::new(false);

/// All leases, to find those that are wanted back.
static LEASES: Mutex<Vec<Weak<Lease>>> = Mutex::new(Vec::new());

fn leases() -> MutexGuard<'static, Vec<Weak<Lease>>> {
    LEASES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has files leased where the system allows it, so that they need not be looked at
/// all the time. The caller sees to it that SIGIO does not end the process, and
/// calls [`yield_leases`] soon whenever it comes.
pub fn take_leases() {
    unblock(libc::SIGIO);
    ANSWERED.store(true, Ordering::Release);
}

/// Gives back the leases that others wait for, who can go on then. The files are
/// looked at from then on.
pub fn yield_leases() {
    let leases: Vec<_> = leases().iter().filter_map(Weak::upgrade).collect();
    leases.iter().for_each(|lease| lease.yield_if_wanted());
}

/// Is told whether a lease is relied on.
pub(super) type Report = Box<dyn Fn(bool) + Send + Sync>;

/// A lease on an open file, or none.
pub(super) struct Lease {
    file: File,
    /// Whether the system has given it, and not got it back. Locked while that changes: what is known of the file
    /// when it is taken holds until it is given back.
    is_taken: Mutex<bool>,
    /// Whether it is relied on. Never without the lease.
    is_held: AtomicBool,
    report: OnceLock<Report>,
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("file", &self.file).field("is_held", &self.is_held).finish_non_exhaustive()
    }
}

impl Lease {
    /// None yet. The file must have been opened for reading only, and by itself: what
    /// is given back of one lease would else be another's.
    pub(super) fn new(file: File) -> Arc<Lease> {
        let (is_taken, is_held) = (Mutex::new(false), AtomicBool::new(false));
        let lease = Arc::new(Lease { file, is_taken, is_held, report: OnceLock::new() });
        let mut leases = leases();
        leases.retain(|lease| lease.strong_count() > 0);
        leases.push(Arc::downgrade(&lease));
        lease
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Whether nobody can have written to the file since the lease was taken, up to
    /// all that was read before this.
    #[inline(always)]
    pub(super) fn is_held(&self) -> bool {
        // What was read before this is not read after it. Whoever gives the lease back says so first.
        fence(Ordering::Acquire);
        self.is_held.load(Ordering::Acquire)
    }

    /// Takes the lease, if it can be had, and says so if the file is as it was. One that is taken already is given back
    /// if somebody waits for it of whom no signal has told.
    pub(super) fn take(&self, is_unchanged: impl FnOnce() -> bool) {
        self.yield_if_wanted();
        let mut is_taken = self.is_taken();
        if *is_taken || !ANSWERED.load(Ordering::Acquire) || !set_lease(&self.file, true) {
            return;
        }
        *is_taken = true;
        // Who wants it meanwhile waits for us.
        if is_unchanged() {
            self.hold(true);
        } else {
            self.give_back(&mut is_taken);
        }
    }

    /// Whether somebody has the file open to write to it, as far as the system tells: to
    /// those who may have a lease.
    pub(super) fn has_writer(&self) -> bool {
        let is_taken = self.is_taken();
        if *is_taken || !ANSWERED.load(Ordering::Acquire) {
            return false;
        }
        if set_lease(&self.file, true) {
            set_lease(&self.file, false);
            return false;
        }
        io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock
    }

    /// Gives it back if somebody waits for it.
    fn yield_if_wanted(&self) {
        let mut is_taken = self.is_taken();
        if *is_taken && is_unleased(&self.file) {
            self.give_back(&mut is_taken);
        }
    }

    fn give_back(&self, is_taken: &mut bool) {
        self.hold(false);
        if std::mem::take(is_taken) {
            set_lease(&self.file, false);
        }
    }

    /// Called while `is_taken` is locked.
    fn hold(&self, is_held: bool) {
        self.is_held.store(is_held, Ordering::SeqCst);
        if let Some(report) = self.report.get() {
            report(is_held);
        }
    }

    /// Has told whether it is relied on: now, and whenever that changes, before anybody
    /// can write to the file. Only the first who asks is told.
    pub(super) fn report(&self, report: Report) {
        let _unchanging = self.is_taken();
        report(self.is_held.load(Ordering::SeqCst));
        // The second is none of ours: a file is served once.
        let _ = self.report.set(report);
    }

    fn is_taken(&self) -> MutexGuard<'_, bool> {
        self.is_taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Lease {
    /// The file may stay open.
    fn drop(&mut self) {
        self.give_back(&mut self.is_taken());
    }
}

#[cfg(target_os = "linux")]
fn set_lease(file: &File, wanted: bool) -> bool {
    let kind = if wanted { libc::F_RDLCK } else { libc::F_UNLCK };
    // SAFETY: Is about a descriptor that is open as long as `file` lives; the argument is a number.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) == 0 }
}

/// Whether there is no lease, or one that is to be given back.
#[cfg(target_os = "linux")]
fn is_unleased(file: &File) -> bool {
    // SAFETY: As above, without an argument.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLEASE) == libc::F_UNLCK }
}

#[cfg(not(target_os = "linux"))]
fn set_lease(_file: &File, _wanted: bool) -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
fn is_unleased(_file: &File) -> bool {
    true
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::path::Path;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    /// Answers SIGIO for all tests of this process.
    fn answer() {
        static ANSWERING: std::sync::Once = std::sync::Once::new();
        ANSWERING.call_once(|| {
            let mut signals = signal_hook::iterator::Signals::new([libc::SIGIO]).unwrap();
            thread::spawn(move || signals.forever().for_each(|_| yield_leases()));
            take_leases();
        });
    }

    fn leased(path: &Path) -> Arc<Lease> {
        let lease = Lease::new(File::open(path).unwrap());
        lease.take(|| true);
        lease
    }

    #[test]
    fn whoever_writes_waits_until_the_lease_is_given_back() {
        answer();
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_path_buf();
        let lease = leased(&path);
        assert!(!lease.is_held() && lease.has_writer(), "somebody has it open to write to it");
        let path = file.into_temp_path();
        let changes: [&dyn Fn(&Path); 3] = [
            &|path| std::fs::write(path, "new").unwrap(),
            &|path| drop(File::options().append(true).open(path).unwrap()),
            &|path| File::options().write(true).open(path).unwrap().set_len(0).unwrap(),
        ];
        for change in changes {
            let lease = leased(&path);
            assert!(lease.is_held() && !lease.has_writer());
            change(&path);
            assert!(!lease.is_held() && !lease.has_writer());
        }
        // Who reads, renames or removes it does not disturb.
        let lease = leased(&path);
        std::fs::read(&path).unwrap();
        let other = path.with_extension("other");
        std::fs::rename(&path, &other).unwrap();
        std::fs::remove_file(&other).unwrap();
        assert!(lease.is_held());
    }

    #[test]
    fn whoever_does_not_wait_is_refused_until_the_lease_is_given_back() {
        use std::os::unix::fs::OpenOptionsExt;
        answer();
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let lease = leased(&path);
        let open = || File::options().write(true).custom_flags(libc::O_NONBLOCK).open(&path);
        assert_eq!(open().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        while let Err(error) = open() {
            assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
        }
        assert!(!lease.is_held());
    }

    #[test]
    fn a_lease_is_not_held_on_a_file_that_has_changed() {
        answer();
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let lease = Lease::new(File::open(&path).unwrap());
        lease.take(|| false);
        assert!(!lease.is_held());
        std::fs::write(&path, "nobody is made to wait").unwrap();
        lease.take(|| true);
        assert!(lease.is_held());
    }

    #[test]
    fn a_lease_that_is_wanted_back_while_it_is_taken_is_not_relied_on() {
        answer();
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let lease = Lease::new(File::open(&path).unwrap());
        let (opened, opening) = std::sync::mpsc::channel();
        thread::scope(|scope| {
            lease.take(|| {
                scope.spawn(|| opened.send(File::options().write(true).open(&path).unwrap()).unwrap());
                // As long as it takes to open it, if nothing hinders. Nobody has written to it yet.
                let _file = opening.recv_timeout(std::time::Duration::from_millis(200));
                true
            });
            // It is open by now, or was before.
            let _file = opening.recv();
            assert!(!lease.is_held());
        });
    }

    #[test]
    fn nothing_is_written_while_a_lease_is_held() {
        answer();
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let (rounds, seen) = (200, AtomicUsize::new(0));
        for round in 0..rounds {
            let lease = leased(&path);
            thread::scope(|scope| {
                let writer = scope.spawn(|| std::fs::write(&path, [b'x'; 100].repeat(round + 1)).unwrap());
                let before = std::fs::read(&path).unwrap().len();
                if lease.is_held() {
                    seen.fetch_add(1, Ordering::Relaxed);
                    assert_eq!(before, 100 * round, "what was read while the lease was held was from before");
                }
                writer.join().unwrap();
            });
            assert!(!lease.is_held());
        }
        println!("held in {} of {rounds} rounds", seen.into_inner());
    }
}
