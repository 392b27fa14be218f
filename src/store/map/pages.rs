//! Reads, locks, releases, and counts the pages of a mapping.

use std::fs;
use std::io;
#[cfg(feature = "server")]
use std::io::IoSliceMut;
use std::num::NonZeroU64;
use std::ops::Range;

use rustix::fs::{Advice, fadvise};
#[cfg(feature = "server")]
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::{Map, PART_LEN_BYTES};
use crate::machine_memory::{PAGE_LEN_BYTES, huge_page_len_bytes, page_len_bytes};
use crate::store::pace::{Pace, for_each_part};
use crate::store::stamp::WatchedFile;

impl Map {
    /// Returns how many bytes of the file are resident in memory, according to the system.
    pub(in crate::store) fn resident_len_bytes(&self) -> io::Result<u64> {
        let mut resident_len_bytes = 0;
        let mut pages = vec![0_u8; PART_LEN_BYTES / PAGE_LEN_BYTES];
        for (part, bytes) in self.memory().chunks(PART_LEN_BYTES).enumerate() {
            let address = bytes.as_ptr().cast_mut();
            debug_assert!(address.addr().is_multiple_of(PAGE_LEN_BYTES), "part {part} begins with a page");
            // SAFETY: The range is mapped, because it is a part of `memory`, and begins with a page. The call writes
            // one byte to `pages` for each page of the range. `pages` is long enough even for the longest range with
            // the smallest pages.
            if unsafe { libc::mincore(address.cast(), bytes.len(), pages.as_mut_ptr().cast()) } != 0 {
                return Err(io::Error::last_os_error());
            }
            let page_len_bytes = page_len_bytes();
            let count = bytes.len().div_ceil(page_len_bytes);
            let resident = pages[..count].iter().filter(|page| **page & 1 == 1).count();
            resident_len_bytes += (resident * page_len_bytes) as u64;
        }
        Ok(resident_len_bytes.min(self.bytes.len() as u64))
    }

    /// Reads every page into memory and enters it into the page table, so that lookups wait neither for the disk nor
    /// for the kernel.
    pub(in crate::store) fn warm(&self, pace: &Pace) -> io::Result<()> {
        self.request_huge_pages();
        for_each_part(self.bytes.chunks(PART_LEN_BYTES).enumerate(), pace, |(part, bytes)| {
            match self.populate(part * PART_LEN_BYTES, bytes.len()) {
                Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {
                    touch(bytes);
                    Ok(())
                }
                populated => populated,
            }
        })
    }

    /// Advises the system how to read a range of the file from the disk. If `is_random` is set, it reads only the pages
    /// that are touched. Otherwise, it also reads the pages around them. Has no effect on a copy.
    pub(in crate::store) fn read_randomly(&self, range: Range<usize>, is_random: bool) {
        let Some(file) = self.watched().map(WatchedFile::file) else { return };
        // A system that rejects the advice reads more pages than necessary, or fewer at a time.
        let (memory, reads) = match is_random {
            true => (memmap2::Advice::Random, Advice::Random),
            false => (memmap2::Advice::Normal, Advice::Normal),
        };
        if !range.is_empty() {
            let _ = self.memory().advise_range(memory, range.start, range.len());
        }
        let _ = fadvise(file, 0, None, reads);
    }

    /// Begins to read a range of the file from the disk, and does not wait for it. Has no effect on a copy.
    pub(in crate::store) fn begin_read(&self, range: Range<usize>) {
        if let (Some(file), Some(len_bytes)) =
            (self.watched().map(WatchedFile::file), NonZeroU64::new(range.len() as u64))
        {
            // If the system rejects the advice, the pages are read when they are touched.
            let _ = fadvise(file, range.start as u64, Some(len_bytes), Advice::WillNeed);
        }
    }

    /// Returns whether the first and the last page of a nonempty range of the file are in memory. Returns `true` if the
    /// system cannot tell, and for a copy. The system begins to read a page that is not in memory.
    ///
    /// `mincore` and `cachestat` tell only processes that own the file or may write to it.
    #[cfg(feature = "server")]
    pub(in crate::store) fn is_in_memory(&self, range: Range<usize>) -> bool {
        let Some(file) = self.watched().map(WatchedFile::file) else { return true };
        let is_in_memory = |at: usize| {
            let read = preadv2(file, &mut [IoSliceMut::new(&mut [0])], at as u64, ReadWriteFlags::NOWAIT);
            read != Err(Errno::AGAIN)
        };
        let (first, last) = (range.start, range.end - 1);
        is_in_memory(first) && (first / PAGE_LEN_BYTES == last / PAGE_LEN_BYTES || is_in_memory(last))
    }

    /// Requests huge pages for data that is read from the disk from now on. Many file systems do not support huge
    /// pages. Pages that are already in the page cache keep their size.
    fn request_huge_pages(&self) {
        let _ = self.memory().advise(memmap2::Advice::HugePage);
    }

    /// Reads a range into memory and enters its pages into the page table. Fails on Linux before 5.14.
    fn populate(&self, offset_bytes: usize, len_bytes: usize) -> io::Result<()> {
        self.memory().advise_range(memmap2::Advice::PopulateRead, offset_bytes, len_bytes)
    }

    /// Releases the pages of a range of a mapped file, so that they no longer count as memory of this process. The next
    /// read of a released page takes it from the page cache.
    #[cfg(any(feature = "bake", feature = "server"))]
    pub(in crate::store) fn release(&self, range: Range<usize>) {
        let is_inside = range.start < range.end && range.end <= self.bytes.len();
        if !is_inside || self.watched().is_none_or(WatchedFile::has_copied_pages) {
            return;
        }
        // SAFETY: `MADV_DONTNEED` discards the contents of a private mapping, but a shared mapping of a file only loses
        // its page table entries: a read through `bytes`, now or later, finds the file's bytes again. `watched` shows
        // that `memory` is a shared mapping, made by `Mmap::map` and never written to, and that no page of it is a
        // copy. The range is inside the mapping, and so are the whole pages to which the system extends the range.
        let released = unsafe {
            self.memory().unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, range.start, range.len())
        };
        // Pages that cannot be released stay resident, which has no other effect.
        let _ = released;
    }

    /// Locks every page in memory for as long as this `Map` lives.
    ///
    /// `mlock` alone would read the whole file in one call, which cannot be canceled. Therefore, this function first
    /// checks the process's limit on locked memory by locking all pages without reading them, and then reads the file
    /// part by part. `mlock` then finds every page in memory.
    pub(in crate::store) fn lock(&self, pace: &Pace) -> io::Result<()> {
        self.lock_on_fault()?;
        self.warm(pace)?;
        if pace.is_canceled() { Ok(()) } else { self.memory().lock() }
    }

    /// Locks the pages that are in memory now, and every other page when it is first read.
    fn lock_on_fault(&self) -> io::Result<()> {
        let memory = self.memory();
        // SAFETY: The range is the range of `memory`, which is mapped. The call changes no byte of it, and unmapping
        // unlocks it.
        let locked = unsafe { libc::mlock2(memory.as_ptr().cast(), memory.len(), libc::MLOCK_ONFAULT) };
        if locked == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Returns how many bytes of the memory are in huge pages, according to the system, or 0 if the system does not
    /// report this number.
    pub(in crate::store) fn huge_len_bytes(&self) -> u64 {
        // Reading the file takes longer than opening a short table, because it describes all mappings of the process.
        if self.memory().len() < huge_page_len_bytes() {
            return 0;
        }
        let smaps = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        huge_len_bytes(&smaps, self.memory().as_ptr() as u64)
    }
}

/// Reads one byte of each page.
pub(in crate::store) fn touch(bytes: &[u8]) {
    for byte in bytes.iter().step_by(PAGE_LEN_BYTES).chain(bytes.last()) {
        std::hint::black_box(*byte);
    }
}

/// Returns the length of the huge pages of the mapping that contains an address, from the text of `/proc/PID/smaps`.
pub(super) fn huge_len_bytes(smaps: &str, address: u64) -> u64 {
    let mut huge_len_bytes = 0;
    let mut is_inside = false;
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        match (words.next(), words.next()) {
            (Some("AnonHugePages:" | "FilePmdMapped:" | "ShmemPmdMapped:"), Some(len_kib)) if is_inside => {
                huge_len_bytes += len_kib.parse::<u64>().unwrap_or(0) << 10;
            }
            (Some(first), _) if !first.ends_with(':') => {
                let hex = |text| u64::from_str_radix(text, 16);
                let range = first.split_once('-').map(|(from, to)| (hex(from), hex(to)));
                is_inside = matches!(range, Some((Ok(from), Ok(to))) if (from..to).contains(&address));
            }
            _ => {}
        }
    }
    huge_len_bytes
}
