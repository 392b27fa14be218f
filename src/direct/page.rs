//! Creates and maps the page that a server shares with direct clients: a memory file that cannot be resized.
//!
//! The server maps the file for writing and then seals it. From then on, no process can write to the file or create
//! another writable mapping of it: see F_SEAL_FUTURE_WRITE in fcntl(2).
//!
//! Reasons and evidence: `docs/decisions/direct-mode.md`.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};
#[cfg(feature = "server")]
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use super::words::{TableState, Words};
use crate::store::Standing;
use crate::store::clock;

pub(super) const LEN_BYTES: usize = 4096;
/// The first bytes of the shared page, which identify the page and the version of its layout.
const MAGIC: u64 = u64::from_le_bytes(*b"zkvPAGE3");
const MAGIC_AT_BYTES: usize = 0;
/// The offsets of the device number and the inode number that identify the server's time namespace. Deadlines are times
/// of this namespace's clock.
pub(super) const TIME_NAMESPACE_AT_BYTES: [usize; 2] = [8, 16];
/// The offset of [`Words`], the words that lookups load. The words share a cache line, which contains nothing that
/// changes often.
pub(super) const WORDS_AT_BYTES: usize = 128;
/// The offset of the heartbeat counter.
const BEAT_AT_BYTES: usize = 256;

const _: () = {
    assert!(TIME_NAMESPACE_AT_BYTES[1] + 8 <= WORDS_AT_BYTES && BEAT_AT_BYTES + 8 <= LEN_BYTES);
    assert!(WORDS_AT_BYTES.is_multiple_of(64) && WORDS_AT_BYTES + 64 <= BEAT_AT_BYTES);
};

// Builds for loom skip these checks: `Words` then has loom's types, and no page is mapped.
#[cfg(not(all(test, loom)))]
const _: () = {
    assert!(size_of::<Words>() <= 64);
    assert!(std::mem::offset_of!(Words, state) == 0 && std::mem::offset_of!(Words, owner) == 16);
};

/// Returns the device and inode of `/proc/self/ns/time`, which identify the time namespace of this process. A time
/// namespace may offset CLOCK_MONOTONIC. Returns zeros on a kernel without time namespaces, because all processes then
/// have the same clock. Returns `None` if the system does not report the namespace, for example without `/proc`.
fn time_namespace() -> Option<[u64; 2]> {
    match rustix::fs::stat("/proc/self/ns/time") {
        Ok(stat) => Some([stat.st_dev, stat.st_ino]),
        Err(rustix::io::Errno::NOENT) => rustix::fs::stat("/proc/self/ns/mnt").ok().map(|_| [0, 0]),
        Err(_) => None,
    }
}

/// A mapping of the page that a server shares with direct clients.
pub(super) struct SharedPage(MmapRaw);

impl SharedPage {
    /// Creates a page that does not show a generation yet. Returns the page and its file.
    ///
    /// # Errors
    /// Fails if the system cannot create a memory file or seal it: `F_SEAL_FUTURE_WRITE` requires Linux 5.1.
    #[cfg(feature = "server")]
    pub(super) fn create() -> io::Result<(SharedPage, File)> {
        let file = File::from(memfd_create("zero-kv-state", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        file.set_len(LEN_BYTES as u64)?;
        let page = SharedPage(MmapOptions::new().len(LEN_BYTES).map_raw(&file)?);
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        fcntl_add_seals(&file, seals)?;
        page.at(MAGIC_AT_BYTES).store(MAGIC, Ordering::SeqCst);
        // If the namespace is unknown, the page has the number `u64::MAX`, which no namespace has, so no client trusts
        // a deadline.
        let time_namespace = time_namespace().unwrap_or([u64::MAX; 2]);
        for (at_bytes, number) in TIME_NAMESPACE_AT_BYTES.into_iter().zip(time_namespace) {
            page.at(at_bytes).store(number, Ordering::SeqCst);
        }
        Ok((page, file))
    }

    /// Returns the heartbeat counter, which the server increases regularly.
    pub(super) fn beats(&self) -> &AtomicU64 {
        self.at(BEAT_AT_BYTES)
    }

    pub(super) fn at(&self, offset_bytes: usize) -> &AtomicU64 {
        debug_assert!(offset_bytes < LEN_BYTES && offset_bytes.is_multiple_of(align_of::<AtomicU64>()));
        let address = self.0.as_mut_ptr().wrapping_add(offset_bytes).cast();
        // SAFETY: The mapping starts at a page boundary and has LEN_BYTES bytes, so the eight bytes at each of the
        // offsets above are inside it and aligned. The mapping exists for as long as `self` is borrowed. The mapped
        // file cannot become shorter: `SharedPage::create` has sealed it, and `Notice::open` has checked that seal.
        // Every process accesses the page only by atomic operations. Where the mapping is read-only, these are relaxed
        // loads of at most eight bytes, which `std::sync::atomic` allows.
        unsafe { AtomicU64::from_ptr(address) }
    }

    /// Returns the words that lookups load from the page.
    #[inline(always)]
    pub(super) fn words(&self) -> &Words {
        if cfg!(all(test, loom)) {
            unreachable!("models map no page");
        }
        let address = self.0.as_mut_ptr().wrapping_add(WORDS_AT_BYTES).cast_const().cast();
        // SAFETY: The proof in `SharedPage::at` applies to the bytes of `Words`. Every field is an atomic, for which
        // all bit patterns are valid. No offset that is passed to `SharedPage::at` is inside `Words`. The kernel
        // changes the owner word atomically.
        unsafe { &*address }
    }
}

/// A client's read-only mapping of the shared page, which shows the state of the server's table.
pub(crate) struct Notice {
    page: SharedPage,
    /// Whether this process is in the server's time namespace. Only then can this process compare the server's
    /// deadlines with its own clock.
    has_same_clock: bool,
}

impl Notice {
    /// Maps the shared page. `file` is the descriptor that the server has passed.
    ///
    /// # Errors
    /// Fails if the file is not a shared page of this version, or if the file can be truncated.
    pub(crate) fn open(file: &File) -> io::Result<Notice> {
        let refuse = |problem: &str| io::Error::new(io::ErrorKind::InvalidData, problem.to_owned());
        if file.metadata()?.len() != LEN_BYTES as u64 || !cannot_be_truncated(file) {
            return Err(refuse("the server's shared page is not a memory file of 4096 bytes that cannot be truncated"));
        }
        let page = SharedPage(MmapOptions::new().len(LEN_BYTES).map_raw_read_only(file)?);
        let load = |at_bytes| page.at(at_bytes).load(Ordering::Relaxed);
        if load(MAGIC_AT_BYTES) != MAGIC {
            return Err(refuse(
                "the server's shared page does not begin with zkvPAGE3: use a client and a server of the same version",
            ));
        }
        let has_same_clock = time_namespace() == Some(TIME_NAMESPACE_AT_BYTES.map(load));
        Ok(Notice { page, has_same_clock })
    }

    /// Returns the value of the heartbeat counter, which the server increases regularly.
    pub(crate) fn beat(&self) -> u64 {
        self.page.beats().load(Ordering::Relaxed)
    }

    /// Returns whether a process may have changed the file before this client finished reading bytes from it. The
    /// client must load the state, read the bytes, and then call this function with that state as `then`.
    #[inline(always)]
    pub(crate) fn standing_since(&self, then: TableState) -> Standing {
        let is_before = |until_ns| self.has_same_clock.then(|| clock::now_ns() < until_ns);
        self.page.words().standing_since(then, is_before)
    }

    /// Returns the current state. Reads of memory are not reordered across this call.
    #[inline(always)]
    pub(crate) fn state(&self) -> TableState {
        self.page.words().state()
    }
}

fn cannot_be_truncated(file: &File) -> bool {
    rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(rustix::fs::SealFlags::SHRINK))
}
