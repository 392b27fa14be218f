//! Owns the owner word of the shared page. When the server's process ends, for whatever reason, the kernel changes this
//! word.
//!
//! The word is a robust futex (see get_robust_list(2) and the kernel's `Documentation/locking/robust-futex-ABI.rst`). A
//! thread of the server owns the futex for as long as the page exists. When a thread exits, the kernel first marks the
//! thread's robust futexes (`exit_mm` in `do_exit`) and then releases the thread's files (`exit_files`). Leases end
//! when the last thread of the process has released its files. The word is therefore marked before any process can open
//! the table's file for writing, even after SIGKILL or an exec.
//!
//! Reasons and evidence: `docs/decisions/owner-word.md`.

use std::io;
use std::mem::offset_of;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::page::SharedPage;

/// The length of the stack of the thread that owns the owner word. The thread only waits, so it needs little stack.
const STACK_LEN_BYTES: usize = 64 << 10;

/// A handle to the thread whose ID is in the owner word of the shared page. Dropping the handle ends the thread.
pub(super) struct Owner {
    _stop: Sender<()>,
}

impl Owner {
    /// Starts the thread, which writes its ID into the owner word of the shared page. The page stays mapped until the
    /// thread has ended.
    ///
    /// # Errors
    /// Fails if the system cannot start a thread, or has no robust futexes.
    pub(super) fn start(page: Arc<SharedPage>) -> io::Result<Owner> {
        let (stop, stopped) = channel();
        let (started, outcome) = channel();
        let run = move || run_owner(&page, &started, &stopped);
        thread::Builder::new().name("page owner".to_owned()).stack_size(STACK_LEN_BYTES).spawn(run)?;
        outcome.recv().unwrap_or_else(|_| Err(io::Error::other("the thread `page owner` ended")))?;
        Ok(Owner { _stop: stop })
    }
}

fn run_owner(page: &SharedPage, started: &Sender<io::Result<()>>, stopped: &Receiver<()>) {
    match claim(page) {
        Ok(_list) => {
            let _ = started.send(Ok(()));
            // No message is ever sent: this call returns when the `Owner` is dropped.
            let _ = stopped.recv();
            page.words().owner.store(0, Ordering::SeqCst);
        }
        Err(error) => {
            let _ = started.send(Err(error));
        }
    }
}

/// Writes the calling thread's ID into the owner word of the shared page. The ownership ends when the thread exits
/// or the returned list is dropped.
pub(super) fn claim(page: &SharedPage) -> io::Result<RobustList> {
    let list = RobustList::register(page)?;
    // The list is registered before the thread ID is stored. Therefore, if the thread exits while the word contains its
    // ID, the kernel marks the word.
    page.words().owner.store(rustix::thread::gettid().as_raw_pid().cast_unsigned(), Ordering::SeqCst);
    Ok(list)
}

/// The memory of a [`RobustList`]: the argument of set_robust_list(2), as <linux/futex.h> defines it, and the only
/// entry of the list.
#[repr(C)]
struct Layout {
    first: *const Entry,
    /// The offset from an entry to its futex.
    futex_offset_bytes: libc::c_long,
    /// An entry that is being added to or removed from the list. Null, because the list never changes.
    pending: *const Entry,
    entry: Entry,
}

/// An entry of the list. Each entry starts with a pointer to the next entry; the last entry points to the start of the
/// [`Layout`].
#[repr(C)]
struct Entry {
    next: *const Entry,
}

/// The length of the kernel's `struct robust_list_head`, which is the first part of `Layout`.
const HEAD_LEN_BYTES: usize = offset_of!(Layout, entry);
const _: () = assert!(HEAD_LEN_BYTES == 3 * size_of::<usize>() && offset_of!(Layout, first) == 0);

/// A list of robust futexes that has one entry. The list is registered for the calling thread until the `RobustList` is
/// dropped. Meanwhile, it replaces libc's list, which the thread does not need: libc's list has entries only while the
/// thread holds robust mutexes.
pub(super) struct RobustList {
    /// The memory of the list. It is shared memory (although no other process maps it), because the kernel's OOM reaper
    /// can discard the private memory of a killed process before the process's threads exit.
    _memory: MmapRaw,
}

impl RobustList {
    fn register(page: &SharedPage) -> io::Result<RobustList> {
        let file = memfd_create("zero-kv-owner", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, size_of::<Layout>() as u64)?;
        let memory = MmapOptions::new().len(size_of::<Layout>()).map_raw(&file)?;
        let list = memory.as_mut_ptr().cast::<Layout>();
        let entry = list.wrapping_byte_add(HEAD_LEN_BYTES).cast::<Entry>().cast_const();
        let futex_offset_bytes =
            page.words().owner.as_ptr().addr().wrapping_sub(entry.addr()).cast_signed() as libc::c_long;
        let layout =
            Layout { first: entry, futex_offset_bytes, pending: ptr::null(), entry: Entry { next: list.cast() } };
        // SAFETY: The mapping is writable, has the size of a `Layout`, and starts at a page boundary. Nothing else
        // refers to it.
        unsafe { list.write(layout) };
        set_robust_list(list)?;
        let registered = RobustList { _memory: memory };
        // An emulator can accept the list and never read it. Clients would then trust a lease of a server that has
        // ended.
        match robust_list()? == list.cast_const() {
            true => Ok(registered),
            false => Err(io::Error::new(io::ErrorKind::Unsupported, "the system ignores lists of robust futexes")),
        }
    }
}

impl Drop for RobustList {
    /// Unregisters the list before its memory is unmapped. Otherwise, when the thread exits, the kernel would read
    /// whatever memory is then mapped at the list's address.
    fn drop(&mut self) {
        let _ = set_robust_list(ptr::null());
    }
}

/// Replaces the calling thread's list of robust futexes.
fn set_robust_list(list: *const Layout) -> io::Result<()> {
    // SAFETY: The kernel only stores the address, and reads the list when the thread exits or the process calls exec. A
    // null pointer is an empty list. `RobustList` is dropped on the thread that registered it, so the list's memory is
    // mapped for as long as the kernel has its address: until null replaces the address, or until the process ends. The
    // entry's futex is the page's owner word, and `run_owner` borrows the page for longer than the `RobustList` lives.
    // The kernel changes the word only while the word contains this thread's ID.
    match unsafe { libc::syscall(libc::SYS_set_robust_list, list, HEAD_LEN_BYTES) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the calling thread's list of robust futexes, as the system knows it.
fn robust_list() -> io::Result<*const Layout> {
    let (mut list, mut len_bytes) = (ptr::null::<Layout>(), 0_usize);
    // SAFETY: The kernel writes a pointer and a length to two variables of these types. 0 is the calling thread.
    match unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut list, &raw mut len_bytes) } {
        0 => Ok(list),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes the kernel accept every list of this thread and do nothing, as an emulator may.
    fn ignore_lists() {
        let statement = |code: u32, jf, k| libc::sock_filter { code: code as u16, jt: 0, jf, k };
        let mut filter = [
            // The number of the system call is at offset 0 of `seccomp_data`.
            statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
            statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, libc::SYS_set_robust_list as u32),
            // Error 0 is success.
            statement(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO),
            statement(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: The call changes a property of this thread, which a filter requires.
        assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
        // SAFETY: The kernel copies the filter, which `program` describes, and applies it to this thread.
        let filtered = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
        assert_eq!(filtered, 0, "{}", io::Error::last_os_error());
    }

    #[test]
    fn a_system_that_ignores_lists_of_robust_futexes_is_detected() {
        let claim_with = |prepare: fn()| {
            let (page, _file) = SharedPage::create().unwrap();
            let claimed = thread::spawn(move || {
                prepare();
                claim(&page).map(drop).map_err(|error| error.kind())
            });
            claimed.join().unwrap()
        };
        assert_eq!(claim_with(|| ()), Ok(()));
        assert_eq!(claim_with(ignore_lists), Err(io::ErrorKind::Unsupported));
    }
}
