//! The server's side of the page that it shares with direct clients.
//!
//! In: changes of the table's state. Out: the state in the page, and wake-ups of the tasks that wait for a change.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

use tracing::warn;

use super::owner::Owner;
use super::page::SharedPage;
use crate::store::LeaseState;
use crate::sync::unpoisoned;

/// Publishes the state of a server's table in the shared page.
#[derive(Clone)]
pub(crate) struct Board(Arc<BoardState>);

struct BoardState {
    page: Arc<SharedPage>,
    /// The thread whose ID is in the owner word. If the thread could not be started, this field is `None`, and clients
    /// do not trust leases.
    _owner: Option<Owner>,
    /// The page's file, opened read-only. It is reopened for each client, so each client has its own open file
    /// description.
    file: File,
    /// Locked while the state or the lease's deadline is written. Without this lock, the deadline of one generation's
    /// lease could be written after the next generation was published.
    writing: Mutex<()>,
    /// The wakers of the tasks that wait for a change of the state, by the `number` of each task's [`Waiter`].
    waiting: Mutex<BTreeMap<u64, Waker>>,
    last_number: AtomicU64,
}

/// The registration of a task that waits for a change of the published state. Dropping the `Waiter` ends the
/// registration.
pub(crate) struct Waiter {
    board: Board,
    number: u64,
}

impl Board {
    /// Creates a shared page that does not show a generation yet.
    ///
    /// # Errors
    /// The errors of [`SharedPage::create`].
    pub(crate) fn new() -> io::Result<Board> {
        let (page, file) = SharedPage::create()?;
        let page = Arc::new(page);
        let file = crate::store::reopened(&file)?;
        let owner = Owner::start(Arc::clone(&page))
            .inspect_err(|error| {
                warn!(
                    "direct clients cannot detect the end of this server: {error}: they examine the file after each \
                     batch"
                );
            })
            .ok();
        let (writing, waiting, last_number) = (Mutex::default(), Mutex::default(), AtomicU64::default());
        Ok(Board(Arc::new(BoardState { page, _owner: owner, file, writing, waiting, last_number })))
    }

    /// Returns the file of the shared page, which clients map.
    pub(crate) fn file(&self) -> &File {
        &self.0.file
    }

    /// Publishes the number of a new generation, whose file is not leased yet.
    pub(crate) fn serve(&self, generation: u64) {
        let _writing = self.writing();
        self.0.page.words().serve(generation);
        self.wake();
    }

    /// Publishes the state of the lease on a generation's file, if that generation is the served one.
    pub(crate) fn set_lease(&self, generation: u64, lease: LeaseState) {
        let _writing = self.writing();
        let words = self.0.page.words();
        if words.state().is_of(generation) && words.set_lease(lease) {
            self.wake();
        }
    }

    /// Publishes whether the served file was changed in place.
    pub(crate) fn set_changed(&self, is_changed: bool) {
        let _writing = self.writing();
        if self.0.page.words().set_changed(is_changed) {
            self.wake();
        }
    }

    /// Wakes the tasks that wait for a change of the state.
    fn wake(&self) {
        // The lock is released before the wakers are called, because a waker runs code of the async runtime, which may
        // register or drop a `Waiter`.
        let wakers = std::mem::take(&mut *self.waiting());
        wakers.into_values().for_each(Waker::wake);
    }

    fn writing(&self) -> MutexGuard<'_, ()> {
        unpoisoned(&self.0.writing)
    }

    /// Publishes a heartbeat, which shows that the server runs. Must be called at least every
    /// [`BEAT_EVERY`](super::BEAT_EVERY).
    pub(crate) fn beat(&self) {
        self.0.page.beats().fetch_add(1, Ordering::SeqCst);
    }

    /// Returns whether the state that a client last read is still the current state. `known` is that state without its
    /// flags.
    pub(crate) fn is_known(&self, known: u64) -> bool {
        self.0.page.words().state().known() == known
    }

    pub(crate) fn waiter(&self) -> Waiter {
        Waiter { board: self.clone(), number: self.0.last_number.fetch_add(1, Ordering::Relaxed) }
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<u64, Waker>> {
        unpoisoned(&self.0.waiting)
    }
}

impl Waiter {
    /// Registers a task to be woken when the state changes. Returns whether `known`, the state that a client last read
    /// (without its flags), is still the current state. If it is not, the task must not wait.
    pub(crate) fn wait(&self, known: u64, waker: &Waker) -> bool {
        self.board.waiting().insert(self.number, waker.clone());
        // The comparison comes after the registration, so a thread that changes the state after the comparison finds
        // the waker.
        self.board.is_known(known)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let waker = self.board.waiting().remove(&self.number);
        // The waker is dropped after the lock is released, because dropping the last waker of a task can drop the task.
        drop(waker);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use memmap2::MmapOptions;
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

    use super::*;
    use crate::direct::page::{LEN_BYTES, Notice, TIME_NAMESPACE_AT_BYTES, WORDS_AT_BYTES};
    use crate::direct::words::TableState;
    use crate::store::{Standing, clock};

    impl Notice {
        fn is_leased_since(&self, then: TableState) -> bool {
            self.standing_since(then) == Standing::Unchanged
        }
    }

    #[test]
    fn the_published_state_is_visible_in_another_mapping() {
        let board = Board::new().unwrap();
        let notice = Notice::open(board.file()).unwrap();
        board.serve(1);
        let first = notice.state();
        assert!(first.is_of(1) && !first.is_leased());
        board.set_lease(1, LeaseState::TrustedUntil(u64::MAX));
        assert!(notice.state().is_leased() && !notice.state().is_since(first));
        board.set_lease(2, LeaseState::Lost);
        assert!(notice.state().is_leased(), "generation 2 is not served");
        board.set_changed(true);
        assert!(notice.state().is_changed() && !notice.state().is_leased());
        board.serve(2);
        assert!(notice.state().is_of(2) && !notice.state().is_changed() && !notice.state().is_leased());
    }

    #[test]
    fn a_lease_is_trusted_until_the_deadline_of_its_own_generation() {
        let board = Board::new().unwrap();
        let notice = Notice::open(board.file()).unwrap();
        board.serve(1);
        board.set_lease(1, LeaseState::TrustedUntil(u64::MAX));
        let first = notice.state();
        assert!(notice.is_leased_since(first));
        board.set_lease(1, LeaseState::TrustedUntil(clock::now_ns()));
        assert_eq!(notice.standing_since(first), Standing::Expired);
        board.set_lease(1, LeaseState::TrustedUntil(u64::MAX));
        assert!(notice.is_leased_since(first), "the lease was renewed");
        board.serve(2);
        let second = notice.state();
        board.set_lease(1, LeaseState::TrustedUntil(u64::MAX));
        assert!(!notice.is_leased_since(first) && !notice.is_leased_since(second));
        board.set_lease(2, LeaseState::TrustedUntil(u64::MAX));
        let leased = notice.state();
        assert!(notice.is_leased_since(leased) && !notice.is_leased_since(second));
        // Between two leases, a process may have written to the file.
        board.set_lease(2, LeaseState::Lost);
        board.set_lease(2, LeaseState::TrustedUntil(u64::MAX));
        assert_eq!(notice.standing_since(leased), Standing::Changed);
        // The server ends, and nobody has written to the file.
        let leased = notice.state();
        board.set_lease(2, LeaseState::Released);
        assert_eq!(notice.standing_since(leased), Standing::Unknown);
    }

    #[test]
    fn the_owner_is_a_thread_of_the_server_until_the_board_is_dropped() {
        let board = Board::new().unwrap();
        let notice = Notice::open(board.file()).unwrap();
        board.serve(1);
        board.set_lease(1, LeaseState::TrustedUntil(u64::MAX));
        let leased = notice.state();
        let owner = board.0.page.words().owner.load(Ordering::SeqCst);
        assert!(std::path::Path::new(&format!("/proc/self/task/{owner}")).exists());
        assert!(notice.is_leased_since(leased));
        drop(board);
        while notice.is_leased_since(leased) {
            std::thread::yield_now();
        }
    }

    /// This test also covers SIGKILL, because the kernel marks the owner word on every path by which a thread exits.
    #[test]
    fn the_kernel_marks_the_owner_when_its_thread_exits() {
        let board = Board::new().unwrap();
        let page = Arc::clone(&board.0.page);
        std::thread::spawn(move || std::mem::forget(crate::direct::owner::claim(&page).unwrap())).join().unwrap();
        // The word no longer contains a thread ID, only FUTEX_OWNER_DIED.
        assert_eq!(board.0.page.words().owner.load(Ordering::SeqCst), 0x4000_0000);
    }

    #[test]
    fn a_process_in_another_time_namespace_trusts_no_deadline() {
        let board = Board::new().unwrap();
        board.serve(1);
        board.set_lease(1, LeaseState::TrustedUntil(u64::MAX));
        let namespace = board.0.page.at(TIME_NAMESPACE_AT_BYTES[1]);
        namespace.store(namespace.load(Ordering::SeqCst) ^ 1, Ordering::SeqCst);
        let notice = Notice::open(board.file()).unwrap();
        assert!(notice.state().is_leased() && !notice.is_leased_since(notice.state()));
    }

    #[test]
    fn a_waiter_is_woken_once_and_a_dropped_waiter_is_removed() {
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
        assert!(!waiter.wait(known, waker), "the state has changed");
    }

    #[test]
    fn no_other_process_can_write_to_or_resize_the_page() {
        let board = Board::new().unwrap();
        board.serve(7);
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(board.file()));
        let files = [board.file().try_clone().unwrap(), File::options().read(true).write(true).open(path).unwrap()];
        for file in files {
            assert!(file.write_at(&[0xff; 8], WORDS_AT_BYTES as u64).is_err());
            assert!(file.set_len(0).is_err() && file.set_len(1 << 20).is_err());
            assert!(MmapOptions::new().len(LEN_BYTES).map_raw(&file).is_err());
        }
        assert!(Notice::open(board.file()).unwrap().state().is_of(7));
    }

    #[test]
    fn a_file_that_is_not_a_sealed_page_is_rejected() {
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
            (on_disk, "cannot be truncated"),
            (memory(4096, SealFlags::GROW), "cannot be truncated"),
            (memory(8192, SealFlags::SHRINK), "4096 bytes"),
            (memory(4096, SealFlags::SHRINK), "does not begin"),
        ] {
            let error = Notice::open(&file).err().unwrap().to_string();
            assert!(error.contains(problem), "{error}");
        }
    }
}
