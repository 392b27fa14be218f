//! Pages that are gone.
//!
//! Reading a page of a mapped file that was cut off, or that the disk no longer
//! gives, raises SIGBUS, which ends the process. With the handler of this module
//! in place, such a page of a mapping that is guarded becomes one of zeros, and
//! is counted; whoever read it looks at the count before it believes what it
//! read. A SIGBUS for any other address goes the way it went before; one that
//! another process sends ends this one.

use std::io;
use std::mem;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use libc::{c_int, c_void, siginfo_t};

/// Mappings that can be guarded at a time. One more is not guarded.
const REGIONS_MAX: usize = 256;
/// What becomes zeros for one fault: the smallest pages are 4 KiB.
const PATCH_LEN_BYTES: usize = 64 << 10;
/// Faults after which all of a mapping becomes zeros: each patch is a mapping of
/// its own, of which a process can have 65,530 on Linux.
const PATCHES_MAX: u64 = 256;

/// A mapping.
struct Region {
    /// 0 if the region is free, [`TAKEN`] while it is entered.
    start: AtomicUsize,
    end: AtomicUsize,
    faults: AtomicU64,
}

const FREE: usize = 0;
/// No address of a page.
const TAKEN: usize = 1;

static REGIONS: [Region; REGIONS_MAX] =
    [const { Region { start: AtomicUsize::new(FREE), end: AtomicUsize::new(0), faults: AtomicU64::new(0) } };
        REGIONS_MAX];

/// What SIGBUS did before.
static PREVIOUS: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

/// Has a fault in a mapped file answered as damage, in this whole process, from
/// now on: a lookup of a [`Store`](super::Store) then gives
/// [`LookupError::Damaged`](super::LookupError), or ends the process no more than
/// any other fault does. What was to become of SIGBUS elsewhere stays as it was, but
/// that one which another process sends ends this one.
///
/// A server does this when it is bound; a program that looks up by itself may.
///
/// # Errors
/// If the system refuses the handler.
pub fn survive_bus_errors() -> io::Result<()> {
    // One that is raised while it is blocked ends the process, whatever handler there is.
    unblock(libc::SIGBUS);
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| install().map_err(|error| error.raw_os_error().unwrap_or_default()));
    installed.map_err(io::Error::from_raw_os_error)
}

/// Lets a signal come to this thread, and to those that it starts from now on: whoever
/// started the process may have blocked it.
pub(super) fn unblock(signal: c_int) {
    // SAFETY: `sigset_t` is plain data, for which all zeros are a value.
    let mut signals: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: Writes to a `sigset_t` of ours.
    unsafe { libc::sigemptyset(&mut signals) };
    // SAFETY: As above.
    unsafe { libc::sigaddset(&mut signals, signal) };
    // SAFETY: Reads a `sigset_t` of ours; the third argument may be null. Fails only for a first argument that is none.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &signals, ptr::null_mut()) };
}

fn install() -> io::Result<()> {
    // SAFETY: `sigaction` is plain data, for which all zeros are a value.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = on_bus_error as *const () as usize;
    // On the stack that std gives its threads for signals, if there is one.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: As above. It stays where it is for as long as the process runs, for the handler reads it.
    let previous: &'static mut libc::sigaction = Box::leak(Box::new(unsafe { mem::zeroed() }));
    // SAFETY: Asks only; the second argument may be null, and the third points to a `sigaction` of ours.
    if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), previous) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Before the handler can run.
    PREVIOUS.store(previous, Ordering::Release);
    // SAFETY: The handler does only what a signal handler may: it reads and adds to atomics, makes system calls, and
    // keeps `errno`. It takes no lock, allocates nothing and does not panic.
    if unsafe { libc::sigaction(libc::SIGBUS, &action, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Returns to the instruction that faulted, which then finds zeros; or, if the
/// fault is not ours, faults again and meets what was there before.
extern "C" fn on_bus_error(_signal: c_int, info: *mut siginfo_t, _context: *mut c_void) {
    // SAFETY: With SA_SIGINFO the system passes a valid `siginfo_t`.
    let info = unsafe { &*info };
    // SAFETY: Of a SIGBUS, `si_addr` is what the field holds; for one that another process sent it is some number, which
    // is then taken for an address and, at worst, leads to zeros that are counted as a fault.
    let address = unsafe { info.si_addr() } as usize;
    // SAFETY: Gives this thread's `errno`, as long as the thread lives.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: Valid, as said, and this thread's own.
    let before = unsafe { *errno };
    // One that a process has sent, and no fault, has a code of 0 or less.
    if info.si_code <= 0 {
        // No instruction raises it again, so it ends the process here.
        // SAFETY: May be called in a handler, and touches no memory of ours.
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
        // SAFETY: As above. The signal waits until this one returns.
        unsafe { libc::raise(libc::SIGBUS) };
    } else if !REGIONS.iter().any(|region| region.patch(address)) {
        let previous = PREVIOUS.load(Ordering::Acquire);
        // SAFETY: `previous` was leaked by `install` before this handler was there, and is not written to any more.
        unsafe { libc::sigaction(libc::SIGBUS, previous, ptr::null_mut()) };
    }
    // SAFETY: As above.
    unsafe { *errno = before };
}

impl Region {
    /// Puts zeros where a fault was, if it was here and that can be done.
    fn patch(&self, address: usize) -> bool {
        let (start, end) = (self.start.load(Ordering::Acquire), self.end.load(Ordering::Acquire));
        if start <= TAKEN || !(start..end).contains(&address) {
            return false;
        }
        let faults = self.faults.fetch_add(1, Ordering::AcqRel);
        let (patch_start, patch_end) = if faults < PATCHES_MAX {
            let patch_start = start.max(address - address % PATCH_LEN_BYTES);
            (patch_start, end.min((address - address % PATCH_LEN_BYTES) + PATCH_LEN_BYTES))
        } else {
            (start, end)
        };
        let (protection, flags) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
        // SAFETY: The range lies inside one mapping that `Guarded::new` was given and whose owner, who keeps the `Guarded`
        // beside it, has not unmapped: nothing else is there. Its pages stay readable, and what they held is gone anyway
        // or, around the fault, is given up; no reference of Rust relies on the bytes of a mapped file staying the same
        // (see `Map::of`).
        let mapped = unsafe {
            libc::mmap(
                ptr::without_provenance_mut(patch_start),
                patch_end - patch_start,
                protection,
                flags | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        mapped != libc::MAP_FAILED
    }
}

/// A mapping whose faults are counted, for as long as this lives. Its owner keeps
/// it beside the mapping, and drops it first.
#[derive(Debug)]
pub(super) struct Guarded {
    region: Option<usize>,
}

impl Guarded {
    /// Guards whole pages: from the address where a mapping of a file begins, over
    /// its length.
    pub(super) fn new(memory: &[u8]) -> Guarded {
        const PAGE_LEN_BYTES: usize = 4096;
        let start = memory.as_ptr() as usize;
        if memory.is_empty() || !start.is_multiple_of(PAGE_LEN_BYTES) {
            return Guarded { region: None };
        }
        let region = REGIONS
            .iter()
            .position(|region| region.start.compare_exchange(FREE, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok());
        if let Some(region) = region.map(|region| &REGIONS[region]) {
            region.end.store(start + memory.len().next_multiple_of(PAGE_LEN_BYTES), Ordering::Relaxed);
            region.faults.store(0, Ordering::Relaxed);
            region.start.store(start, Ordering::Release);
        }
        Guarded { region }
    }

    /// How many pages were found gone.
    #[inline]
    pub(super) fn faults(&self) -> u64 {
        self.region.map_or(0, |region| REGIONS[region].faults.load(Ordering::Acquire))
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if let Some(region) = self.region {
            REGIONS[region].start.store(FREE, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use memmap2::Mmap;

    use super::*;

    fn file_of(len_bytes: usize) -> std::fs::File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&vec![7; len_bytes], 0).unwrap();
        file
    }

    #[test]
    fn a_page_that_is_gone_reads_as_zeros_and_is_counted() {
        survive_bus_errors().unwrap();
        let file = file_of(1 << 20);
        // SAFETY: The test is about a file that changes while it is mapped; nothing relies on its bytes.
        let map = unsafe { Mmap::map(&file).unwrap() };
        let guarded = Guarded::new(&map);
        assert_eq!((map[5000], guarded.faults()), (7, 0));
        file.set_len(4096).unwrap();
        assert_eq!((map[5000], guarded.faults()), (0, 1));
        assert_eq!((map[6000], guarded.faults()), (0, 1), "the same patch");
        assert_eq!((map[(1 << 20) - 1], guarded.faults()), (0, 2));
        assert_eq!(map[100], 0, "the page that is left stands in the same patch");
    }

    #[test]
    fn however_many_pages_are_gone_few_mappings_are_made() {
        survive_bus_errors().unwrap();
        let len_bytes = 1024 * PATCH_LEN_BYTES;
        let file = tempfile::tempfile().unwrap();
        file.set_len(len_bytes as u64).unwrap();
        // SAFETY: As above.
        let map = unsafe { Mmap::map(&file).unwrap() };
        let guarded = Guarded::new(&map);
        file.set_len(0).unwrap();
        assert!(map.iter().step_by(4096).all(|byte| *byte == 0));
        assert!((PATCHES_MAX..PATCHES_MAX + 2).contains(&guarded.faults()), "{}", guarded.faults());
    }

    #[test]
    fn faults_are_counted_from_many_threads() {
        survive_bus_errors().unwrap();
        for _ in 0..20 {
            let file = file_of(4 << 20);
            // SAFETY: As above.
            let map = unsafe { Mmap::map(&file).unwrap() };
            let guarded = Guarded::new(&map);
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let map = &map;
                    scope.spawn(move || {
                        assert!((thread..map.len()).step_by(4099).all(|at| [0, 7].contains(&map[at])));
                    });
                }
                file.set_len(0).unwrap();
            });
            assert!((0..map.len()).all(|at| map[at] == 0));
            assert!(guarded.faults() > 0);
        }
    }

    #[test]
    fn regions_are_used_again() {
        let bytes = vec![0; 3 * 4096];
        let at = bytes.as_ptr().align_offset(4096);
        for _ in 0..2 * REGIONS_MAX {
            assert!(Guarded::new(&bytes[at..at + 4096]).region.is_some());
        }
    }

    /// Set for the process that is to end.
    const VICTIM: &str = "ZERO_KV_TEST_VICTIM";

    #[test]
    fn a_fault_elsewhere_ends_the_process_as_before() {
        if std::env::var_os(VICTIM).is_some() {
            survive_bus_errors().unwrap();
            let file = file_of(8192);
            // SAFETY: As above.
            let map = unsafe { Mmap::map(&file).unwrap() };
            file.set_len(0).unwrap();
            std::process::exit(i32::from(map[5000]));
        }
        let name = "store::guard::tests::a_fault_elsewhere_ends_the_process_as_before";
        let mut victim = Command::new(std::env::current_exe().unwrap());
        let output = victim.args([name, "--exact"]).env(VICTIM, "1").output().unwrap();
        assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{output:?}");
    }

    #[test]
    fn a_fault_is_survived_where_its_signal_was_blocked() {
        std::thread::spawn(|| {
            // SAFETY: `sigset_t` is plain data, for which all zeros are a value.
            let mut signals: libc::sigset_t = unsafe { mem::zeroed() };
            // SAFETY: Writes to a `sigset_t` of ours.
            unsafe { libc::sigfillset(&mut signals) };
            // SAFETY: Reads a `sigset_t` of ours.
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &signals, ptr::null_mut()) };
            survive_bus_errors().unwrap();
            let file = file_of(8192);
            // SAFETY: As above.
            let map = unsafe { Mmap::map(&file).unwrap() };
            let guarded = Guarded::new(&map);
            file.set_len(0).unwrap();
            assert_eq!((map[5000], guarded.faults()), (0, 1));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_bus_error_that_is_sent_ends_the_process() {
        if std::env::var_os(VICTIM).is_some() {
            survive_bus_errors().unwrap();
            // SAFETY: Sends this process a signal, and touches no memory of ours.
            unsafe { libc::kill(std::process::id() as i32, libc::SIGBUS) };
            std::thread::sleep(std::time::Duration::from_secs(60));
            std::process::exit(0);
        }
        let name = "store::guard::tests::a_bus_error_that_is_sent_ends_the_process";
        let mut victim = Command::new(std::env::current_exe().unwrap());
        let output = victim.args([name, "--exact"]).env(VICTIM, "1").output().unwrap();
        assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{output:?}");
    }
}
