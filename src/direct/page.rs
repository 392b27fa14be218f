//! The page of memory that holds the word.
//!
//! A memory file of one page that cannot be made shorter or longer. The server has
//! it mapped to write, and since then the system lets nobody map or write it so: see
//! F_SEAL_FUTURE_WRITE in fcntl(2).

#[cfg(feature = "server")]
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(feature = "server")]
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
#[cfg(feature = "server")]
use std::task::Waker;

use memmap2::{MmapOptions, MmapRaw};
#[cfg(feature = "server")]
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use super::State;
#[cfg(feature = "server")]
use super::{CHANGED, LEASED};

const LEN_BYTES: usize = 4096;
/// The page begins with it.
const MAGIC: u64 = u64::from_le_bytes(*b"zkvPAGE1");
const MAGIC_AT_BYTES: usize = 0;
/// On a line of the processor's cache that nothing else is written to.
const STATE_AT_BYTES: usize = 128;
/// Counts up as long as the server runs.
const BEAT_AT_BYTES: usize = 256;

const _: () = assert!(MAGIC_AT_BYTES + 8 <= LEN_BYTES && STATE_AT_BYTES.is_multiple_of(align_of::<AtomicU64>()));

/// A page that is mapped.
struct Page(MmapRaw);

impl Page {
    fn at(&self, offset_bytes: usize) -> &AtomicU64 {
        debug_assert!(offset_bytes < LEN_BYTES && offset_bytes.is_multiple_of(align_of::<AtomicU64>()));
        let address = self.0.as_mut_ptr().wrapping_add(offset_bytes).cast();
        // SAFETY: The mapping begins at a page's start and has LEN_BYTES bytes, so the eight bytes at one of the two
        // offsets lie in it and are aligned. It stays there for as long as `self` is borrowed. The file behind it
        // cannot become shorter, for `Board::new` has sealed it and `Notice::open` has asked for that seal. All
        // access, in every process, is by atomics; where the mapping is read-only, by relaxed loads of eight bytes,
        // which `std::sync::atomic` allows there.
        unsafe { AtomicU64::from_ptr(address) }
    }
}

/// The server's side: where it says what it serves.
#[cfg(feature = "server")]
#[derive(Clone)]
pub(crate) struct Board(Arc<Shared>);

#[cfg(feature = "server")]
struct Shared {
    page: Page,
    /// Only to read, and opened by itself: what is handed to others.
    file: File,
    /// Who wait until something has become of what is served, by their numbers.
    waiting: Mutex<BTreeMap<u64, Waker>>,
    last_number: AtomicU64,
}

/// One who may wait, and does no more when this is dropped.
#[cfg(feature = "server")]
pub(crate) struct Waiter {
    board: Board,
    number: u64,
}

#[cfg(feature = "server")]
impl Board {
    /// An empty one.
    ///
    /// # Errors
    /// If the system has no sealed memory, or not this kind (before Linux 5.1).
    pub(crate) fn new() -> io::Result<Board> {
        let file = File::from(memfd_create("zero-kv-state", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        file.set_len(LEN_BYTES as u64)?;
        let page = Page(MmapOptions::new().len(LEN_BYTES).map_raw(&file)?);
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        fcntl_add_seals(&file, seals)?;
        page.at(MAGIC_AT_BYTES).store(MAGIC, Ordering::SeqCst);
        let (file, waiting, last_number) = (crate::store::reopened(&file)?, Mutex::default(), AtomicU64::default());
        Ok(Board(Arc::new(Shared { page, file, waiting, last_number })))
    }

    /// What other processes read it by.
    pub(crate) fn file(&self) -> &File {
        &self.0.file
    }

    /// Says that another generation is served.
    pub(crate) fn serve(&self, generation: u64) {
        self.update(|state| Some(state.next(generation, 0)));
    }

    /// Says whether the file of a generation is leased, if that is the one served.
    pub(crate) fn set_leased(&self, generation: u64, is_leased: bool) {
        self.update(|state| state.with(LEASED, is_leased).filter(|_| state.is_of(generation)));
    }

    /// Says whether the file that is served was changed in place.
    pub(crate) fn set_changed(&self, is_changed: bool) {
        self.update(|state| state.with(CHANGED, is_changed));
    }

    fn update(&self, change: impl Fn(State) -> Option<State>) {
        let state = self.0.page.at(STATE_AT_BYTES);
        let change = |word| change(State(word)).map(|state| state.0);
        // Nothing is to be said if nothing changes.
        if state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change).is_ok() {
            std::mem::take(&mut *self.waiting()).into_values().for_each(Waker::wake);
        }
    }

    /// Says that the server runs. Called more often than [`BEAT_EVERY`](super::BEAT_EVERY).
    pub(crate) fn beat(&self) {
        self.0.page.at(BEAT_AT_BYTES).fetch_add(1, Ordering::SeqCst);
    }

    /// Whether what a client knows is what is served.
    pub(crate) fn is_known(&self, known: u64) -> bool {
        State(self.0.page.at(STATE_AT_BYTES).load(Ordering::SeqCst)).known() == known
    }

    pub(crate) fn waiter(&self) -> Waiter {
        Waiter { board: self.clone(), number: self.0.last_number.fetch_add(1, Ordering::Relaxed) }
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<u64, Waker>> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(feature = "server")]
impl Waiter {
    /// Whether what a client knows is what is served; and if it is, has the task woken when
    /// it is no more.
    pub(crate) fn wait(&self, known: u64, waker: &Waker) -> bool {
        self.board.waiting().insert(self.number, waker.clone());
        // Asked last: who changes it then finds the waker.
        self.board.is_known(known)
    }
}

#[cfg(feature = "server")]
impl Drop for Waiter {
    fn drop(&mut self) {
        let waker = self.board.waiting().remove(&self.number);
        // What it wakes may end with it: not under the lock.
        drop(waker);
    }
}

/// A reader's side.
pub(crate) struct Notice(Page);

impl Notice {
    /// Maps the page that a server has handed over.
    ///
    /// # Errors
    /// If it is no such page, or one that could be cut off.
    pub(crate) fn open(file: &File) -> io::Result<Notice> {
        let refuse = |problem: &str| io::Error::new(io::ErrorKind::InvalidData, problem.to_owned());
        if file.metadata()?.len() != LEN_BYTES as u64 || !is_as_long_for_ever(file) {
            return Err(refuse("the page of the server's state is not one of 4096 bytes that cannot be cut off"));
        }
        let page = Page(MmapOptions::new().len(LEN_BYTES).map_raw_read_only(file)?);
        match page.at(MAGIC_AT_BYTES).load(Ordering::Relaxed) {
            MAGIC => Ok(Notice(page)),
            _ => Err(refuse("the page of the server's state does not begin as it must")),
        }
    }

    /// Another number as long as the server runs.
    pub(crate) fn beat(&self) -> u64 {
        self.0.at(BEAT_AT_BYTES).load(Ordering::Relaxed)
    }

    /// What is served. What is read after this is not older, and what was read before
    /// it not newer.
    #[inline(always)]
    pub(crate) fn state(&self) -> State {
        fence(Ordering::Acquire);
        let state = State(self.0.at(STATE_AT_BYTES).load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        state
    }
}

#[cfg(target_os = "linux")]
fn is_as_long_for_ever(file: &File) -> bool {
    rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(rustix::fs::SealFlags::SHRINK))
}

#[cfg(not(target_os = "linux"))]
fn is_as_long_for_ever(_file: &File) -> bool {
    false
}

#[cfg(all(test, feature = "server"))]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn what_the_server_says_is_seen_in_another_mapping() {
        let board = Board::new().unwrap();
        let notice = Notice::open(board.file()).unwrap();
        board.serve(1);
        let first = notice.state();
        assert!(first.is_of(1) && !first.is_leased());
        board.set_leased(1, true);
        assert!(notice.state().is_leased() && !notice.state().is_since(first));
        board.set_leased(2, false);
        assert!(notice.state().is_leased(), "that generation is not served");
        board.set_changed(true);
        assert!(notice.state().is_changed() && !notice.state().is_leased());
        board.serve(2);
        assert!(notice.state().is_of(2) && !notice.state().is_changed() && !notice.state().is_leased());
    }

    #[test]
    fn who_waits_is_woken_once_and_who_is_gone_is_forgotten() {
        let (board, waker) = (Board::new().unwrap(), Waker::noop());
        board.serve(1);
        let known = Notice::open(board.file()).unwrap().state().known();
        let [waiter, gone] = [board.waiter(), board.waiter()];
        assert!(waiter.wait(known, waker) && waiter.wait(known, waker) && gone.wait(known, waker));
        assert_eq!(board.waiting().len(), 2);
        drop(gone);
        assert_eq!(board.waiting().len(), 1);
        board.serve(2);
        assert_eq!(board.waiting().len(), 0);
        assert!(!waiter.wait(known, waker), "it is another");
    }

    #[test]
    fn nobody_else_can_write_to_it_or_cut_it_off() {
        let board = Board::new().unwrap();
        board.serve(7);
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(board.file()));
        let files = [board.file().try_clone().unwrap(), File::options().read(true).write(true).open(path).unwrap()];
        for file in files {
            assert!(file.write_at(&[0xff; 8], STATE_AT_BYTES as u64).is_err());
            assert!(file.set_len(0).is_err() && file.set_len(1 << 20).is_err());
            assert!(MmapOptions::new().len(LEN_BYTES).map_raw(&file).is_err());
        }
        assert!(Notice::open(board.file()).unwrap().state().is_of(7));
    }

    #[test]
    fn what_is_no_such_page_is_refused() {
        let memory = |len_bytes, seals| {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = File::from(memfd_create("other", flags).unwrap());
            file.set_len(len_bytes).unwrap();
            fcntl_add_seals(&file, seals).unwrap();
            file
        };
        let on_disk = tempfile::tempfile().unwrap();
        on_disk.set_len(4096).unwrap();
        for (file, problem) in [
            (on_disk, "cannot be cut off"),
            (memory(4096, SealFlags::GROW), "cannot be cut off"),
            (memory(8192, SealFlags::SHRINK), "4096 bytes"),
            (memory(4096, SealFlags::SHRINK), "does not begin"),
        ] {
            let error = Notice::open(&file).err().unwrap().to_string();
            assert!(error.contains(problem), "{error}");
        }
    }
}
