//! Word from the system before anybody writes to a file.
//!
//! As long as a process holds a lease on a file, nobody has it open to write to
//! it, and whoever wants to open it so, or to cut it off, is made to wait while
//! the holder gets SIGIO. So a leased file need not be looked at to know that it
//! is as it was. Leases are given to the owner of a file and to root
//! (CAP_LEASE), on local file systems; see fcntl(2). Whoever opens the file with
//! O_NONBLOCK is not made to wait, but refused (EAGAIN) until the lease is back:
//! of the usual tools only truncate(1) does.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

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
    ANSWERED.store(true, Ordering::Release);
}

/// Gives back the leases that others wait for, who can go on then. The files are
/// looked at from then on.
pub fn yield_leases() {
    let leases: Vec<_> = leases().iter().filter_map(Weak::upgrade).collect();
    leases.iter().filter(|lease| lease.is_wanted()).for_each(|lease| lease.yield_now());
}

/// A lease on an open file, or none.
#[derive(Debug)]
pub(super) struct Lease {
    file: File,
    /// Whether the system has given it, and not got it back.
    is_taken: AtomicBool,
    /// Whether it is relied on.
    is_held: AtomicBool,
}

impl Lease {
    /// None yet. The file must have been opened for reading only, and by itself: what
    /// is given back of one lease would else be another's.
    pub(super) fn new(file: File) -> Arc<Lease> {
        let lease = Arc::new(Lease { file, is_taken: AtomicBool::new(false), is_held: AtomicBool::new(false) });
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
        self.is_held.load(Ordering::Relaxed)
    }

    /// Takes the lease, if it can be had, and says so if the file is as it was.
    pub(super) fn take(&self, is_unchanged: impl FnOnce() -> bool) {
        if self.is_taken.load(Ordering::Acquire) || !ANSWERED.load(Ordering::Acquire) || !set_lease(&self.file, true) {
            return;
        }
        self.is_taken.store(true, Ordering::SeqCst);
        self.is_held.store(is_unchanged(), Ordering::SeqCst);
        // A signal that came before the lease was known to be taken was answered by nobody.
        if !self.is_held() || self.is_wanted() {
            self.yield_now();
        }
    }

    fn yield_now(&self) {
        self.is_held.store(false, Ordering::SeqCst);
        if self.is_taken.swap(false, Ordering::SeqCst) {
            set_lease(&self.file, false);
        }
    }

    /// Whether it is taken, and somebody waits for it.
    fn is_wanted(&self) -> bool {
        self.is_taken.load(Ordering::SeqCst) && is_unleased(&self.file)
    }
}

impl Drop for Lease {
    /// The file may stay open.
    fn drop(&mut self) {
        self.yield_now();
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
        assert!(!leased(&path).is_held(), "somebody has it open to write to it");
        let path = file.into_temp_path();
        let changes: [&dyn Fn(&Path); 3] = [
            &|path| std::fs::write(path, "new").unwrap(),
            &|path| drop(File::options().append(true).open(path).unwrap()),
            &|path| File::options().write(true).open(path).unwrap().set_len(0).unwrap(),
        ];
        for change in changes {
            let lease = leased(&path);
            assert!(lease.is_held());
            change(&path);
            assert!(!lease.is_held());
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
