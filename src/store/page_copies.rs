//! A mapping of a file whose pages can be replaced by copies that no other process can change.
//!
//! In: ranges of the mapping. Out: at the same addresses, the same pages, copied into memory of this process. Lookups
//! that verify a copied page, and then read it, need not detect writers: see
//! [`Store::begin_batch`](super::Store::begin_batch). Does not interpret the bytes.
//!
//! Reasons and evidence: `docs/decisions/private-copies.md`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::ptr;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use memmap2::{Mmap, MmapMut};

use super::epoch::Epoch;
use super::guard::Guarded;
use super::verification;
use crate::machine_memory::page_len_bytes;
use crate::sync::unpoisoned;

/// Once the copies of a mapping have this total length, the next copy ends the epoch, and the copies are released.
pub(super) const COPIES_LEN_MAX_BYTES: usize = 64 << 20;
/// The number of copied ranges after which the next copy ends the epoch. Each range adds at most three mappings, and a
/// Linux process can have at most 65,530 by default.
const RANGES_MAX: usize = 2048;
/// The minimum time until copies are released because there are too many, so that a request that needs many copies can
/// be answered.
const KEEP_MIN: Duration = Duration::from_millis(50);

/// A read-only mapping of a file. Its pages can be replaced by copies.
#[derive(Debug)]
pub(super) struct CopyableMapping {
    copies: Mutex<Copies>,
    memory: Guarded,
}

/// The pages that are copies now.
#[derive(Debug, Default)]
struct Copies {
    /// The beginning of the epoch in which pages are copied. `None` if no page may be copied.
    epoch: Option<Epoch>,
    /// The replaced pages, by the offset of their range in the mapping. The ranges do not overlap.
    originals: BTreeMap<usize, Original>,
    len_bytes: usize,
    begun_at: Option<Instant>,
}

/// A second mapping of the pages that were replaced by a copy, with all properties of the first one, such as locked
/// memory.
#[derive(Debug)]
struct Original {
    address: usize,
    len_bytes: usize,
}

/// The locked copies of a mapping. Meanwhile, no other thread copies pages, releases copies, or begins an epoch.
pub(super) struct LockedCopies<'m> {
    copies: MutexGuard<'m, Copies>,
    memory: &'m Guarded,
}

/// Copies the pages of a mapped file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copier<'m> {
    mapping: &'m CopyableMapping,
    file: &'m File,
}

/// Keeps the copies of a mapping as they are. Meanwhile, a lookup on this thread that needs another copy is
/// interrupted, as if it had reached its limit on verification work.
pub(crate) struct FixedCopies<'m>(
    #[expect(dead_code, reason = "unlocks the copies when it is dropped")] LockedCopies<'m>,
);

impl CopyableMapping {
    /// `memory` must be a mapping of a whole file that was never written to.
    pub(super) fn new(memory: Mmap) -> CopyableMapping {
        CopyableMapping { copies: Mutex::default(), memory: Guarded::new(memory) }
    }

    #[inline]
    pub(super) fn memory(&self) -> &Guarded {
        &self.memory
    }

    /// Returns whether pages can be copied. An emulator, such as QEMU's user mode, may not be able to map a page twice.
    pub(super) fn can_copy(&self) -> bool {
        let page_len_bytes = page_len_bytes();
        // SAFETY: As in `LockedCopies::replace`: the call maps the first page a second time.
        let mapped = unsafe { remapped(self.memory.as_ptr().addr(), 0, page_len_bytes, None) };
        mapped.map(|address| drop(Original { address, len_bytes: page_len_bytes })).is_ok()
    }

    /// Waits until no other thread has the copies locked. Must not be called while this thread has [`FixedCopies`].
    pub(super) fn lock(&self) -> LockedCopies<'_> {
        LockedCopies { copies: unpoisoned(&self.copies), memory: &self.memory }
    }

    #[cfg(any(feature = "bake", feature = "server"))]
    pub(super) fn has_copies(&self) -> bool {
        !unpoisoned(&self.copies).originals.is_empty()
    }
}

impl<'m> Copier<'m> {
    /// `mapping` must be a mapping of `file`.
    pub(super) fn new(mapping: &'m CopyableMapping, file: &'m File) -> Copier<'m> {
        Copier { mapping, file }
    }

    pub(super) fn lock(self) -> LockedCopies<'m> {
        self.mapping.lock()
    }

    /// Copies the pages of `bytes`, a slice of the mapping, unless they already are copies. Returns whether they are
    /// copies now.
    pub(super) fn copy(self, copies: &mut LockedCopies<'_>, bytes: &[u8]) -> bool {
        let start = bytes.as_ptr().addr() - self.mapping.memory.as_ptr().addr();
        copies.copy(self.file, start..start + bytes.len()).is_ok()
    }
}

impl<'m> FixedCopies<'m> {
    pub(super) fn new(copies: LockedCopies<'m>) -> FixedCopies<'m> {
        verification::fix_copies(true);
        FixedCopies(copies)
    }
}

impl Drop for FixedCopies<'_> {
    fn drop(&mut self) {
        verification::fix_copies(false);
    }
}

impl LockedCopies<'_> {
    /// Permits copies in the epoch that is about to begin with `epoch`, or in none.
    pub(super) fn begin(&mut self, epoch: Option<Epoch>) {
        (self.copies.epoch, self.copies.begun_at) = (epoch, Some(Instant::now()));
    }

    /// Returns whether pages are copied in an epoch: whether it is the one that last began.
    pub(super) fn is_in(&self, epoch: Epoch) -> bool {
        self.copies.epoch.is_some_and(|begun| epoch.is_copying() && !epoch.is_before(begun))
    }

    /// Returns whether the copies take so much memory that they should be released.
    pub(super) fn are_too_many(&self) -> bool {
        let is_over = self.copies.len_bytes >= COPIES_LEN_MAX_BYTES || self.copies.originals.len() >= RANGES_MAX;
        is_over && self.copies.begun_at.is_none_or(|begun_at| begun_at.elapsed() >= KEEP_MIN)
    }

    /// Replaces the pages of a range of the mapping by copies, except pages that already are copies.
    fn copy(&mut self, file: &File, range: Range<usize>) -> io::Result<()> {
        let page_len_bytes = page_len_bytes();
        let mut at = range.start / page_len_bytes * page_len_bytes;
        let end = range.end.min(self.memory.len()).next_multiple_of(page_len_bytes);
        while at < end {
            let before = self.copies.originals.range(..=at).next_back();
            match before.map(|(start, original)| start + original.len_bytes).filter(|end| *end > at) {
                Some(copied_until) => at = copied_until,
                None => {
                    let until = self.copies.originals.range(at..end).next().map_or(end, |(start, _)| *start);
                    self.replace(file, at..until)?;
                    at = until;
                }
            }
        }
        Ok(())
    }

    /// Replaces pages that are not copies.
    fn replace(&mut self, file: &File, pages: Range<usize>) -> io::Result<()> {
        let mut copy = MmapMut::map_anon(pages.len())?;
        read_at(file, &mut copy, pages.start)?;
        let copy = copy.make_read_only()?;
        let address = self.memory.as_ptr().addr() + pages.start;
        // SAFETY: A length of 0 maps the pages of a shared mapping a second time, at an address that the kernel
        // chooses. Nothing else changes. For other mappings, such as the zeros in place of a missing page, the call
        // fails.
        let original = unsafe { remapped(address, 0, pages.len(), None)? };
        let original = Original { address: original, len_bytes: pages.len() };
        // SAFETY: `copy` is moved as a whole, and is forgotten below. The pages that it replaces are whole pages of
        // `memory`, which is mapped as long as this type has a reference to it. They stay readable: the kernel replaces
        // them in one step, during which other threads that read them wait. Their bytes may change, which all code that
        // reads a mapped file through `Map` expects, because other processes can change them, too.
        unsafe { remapped(copy.as_ptr().addr(), pages.len(), pages.len(), Some(address))? };
        std::mem::forget(copy);
        self.copies.len_bytes += pages.len();
        self.copies.originals.insert(pages.start, original);
        Ok(())
    }

    /// Puts the file's pages back in the place of all copies. No epoch may rely on the copies any more.
    pub(super) fn restore(&mut self) {
        let base = self.memory.as_ptr().addr();
        self.copies.epoch = None;
        for (start, original) in std::mem::take(&mut self.copies.originals) {
            let len_bytes = original.len_bytes;
            // SAFETY: The second mapping of the replaced pages is moved back as a whole, and is forgotten below. The
            // proof in `replace` applies to the pages that it replaces.
            match unsafe { remapped(original.address, len_bytes, len_bytes, Some(base + start)) } {
                Ok(_) => {
                    std::mem::forget(original);
                    self.copies.len_bytes -= len_bytes;
                }
                // The copy stays, and is verified again before it is trusted.
                Err(_) => drop(self.copies.originals.insert(start, original)),
            }
        }
    }
}

impl Drop for Original {
    fn drop(&mut self) {
        // SAFETY: The range is a whole mapping that only this value knows of, and from which nothing is borrowed.
        unsafe { libc::munmap(ptr::without_provenance_mut(self.address), self.len_bytes) };
    }
}

/// Reads bytes of a file, until `bytes` is full or the file ends.
fn read_at(file: &File, bytes: &mut [u8], start: usize) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], (start + done) as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Moves a mapping to an address, or to one that the kernel chooses. Returns the address.
///
/// # Safety
/// The caller must own the memory at both addresses, as mremap(2) describes.
unsafe fn remapped(address: usize, old_len_bytes: usize, len_bytes: usize, to: Option<usize>) -> io::Result<usize> {
    let address = ptr::without_provenance_mut(address);
    let moved = match to {
        // SAFETY: The caller guarantees it.
        Some(to) => unsafe {
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            libc::mremap(address, old_len_bytes, len_bytes, flags, ptr::without_provenance_mut::<libc::c_void>(to))
        },
        // SAFETY: The caller guarantees it.
        None => unsafe { libc::mremap(address, old_len_bytes, len_bytes, libc::MREMAP_MAYMOVE) },
    };
    if moved == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(moved.addr()) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const PAGES: usize = 40;

    /// Returns a file of [`PAGES`] pages and a half one, and a mapping of it. Each byte is the number of its page.
    fn mapped() -> (File, CopyableMapping) {
        let mut file = tempfile::tempfile().unwrap();
        for page in 0..=PAGES {
            let len_bytes = if page == PAGES { page_len_bytes() / 2 } else { page_len_bytes() };
            file.write_all(&vec![page as u8; len_bytes]).unwrap();
        }
        // SAFETY: The bytes are read only through volatile reads below.
        let mapping = CopyableMapping::new(unsafe { Mmap::map(&file).unwrap() });
        (file, mapping)
    }

    fn first_byte(mapping: &CopyableMapping, page: usize) -> u8 {
        let address = mapping.memory.as_ptr().wrapping_add(page * page_len_bytes());
        // SAFETY: The address is inside the mapping. Another write may change the byte.
        unsafe { address.read_volatile() }
    }

    /// Returns the number of this process's mappings that begin inside the mapping.
    fn mappings(mapping: &CopyableMapping) -> usize {
        let (start, len_bytes) = (mapping.memory.as_ptr().addr(), mapping.memory.len());
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let begins = maps.lines().filter_map(|line| usize::from_str_radix(line.split_once('-')?.0, 16).ok());
        begins.filter(|begin| (start..start + len_bytes).contains(begin)).count()
    }

    #[test]
    fn a_copied_page_keeps_its_bytes_until_it_is_restored() {
        let (file, mapping) = mapped();
        let page = page_len_bytes();
        let before = mappings(&mapping);
        let whole = 0..PAGES + 1;
        for ranges in [
            &[3..4, PAGES - 1..PAGES + 1][..],
            &[0..1, 7..9, 5..20, 2..3],
            &[0..9, 9..PAGES],
            std::slice::from_ref(&whole),
        ] {
            let mut copies = mapping.lock();
            for range in ranges {
                let end = (range.end * page).min(mapping.memory.len());
                copies.copy(&file, range.start * page + 1..end).unwrap();
                copies.copy(&file, range.start * page + 1..end).unwrap();
            }
            file.write_all_at(&vec![0xEE; mapping.memory.len()], 0).unwrap();
            let is_copied = |number: usize| ranges.iter().any(|range| range.contains(&number));
            for number in 0..=PAGES {
                let expected = if is_copied(number) { number as u8 } else { 0xEE };
                assert_eq!(first_byte(&mapping, number), expected, "page {number} of {ranges:?}");
            }
            let copied: usize = (0..=PAGES).filter(|number| is_copied(*number)).count();
            assert_eq!(copies.copies.len_bytes, copied * page);
            copies.restore();
            assert_eq!((copies.copies.len_bytes, copies.copies.originals.len()), (0, 0));
            assert!((0..=PAGES).all(|number| first_byte(&mapping, number) == 0xEE));
            for number in 0..=PAGES {
                let len_bytes = if number == PAGES { page / 2 } else { page };
                file.write_all_at(&vec![number as u8; len_bytes], (number * page) as u64).unwrap();
            }
        }
        assert_eq!(mappings(&mapping), before, "the restored pages are one mapping again");
    }

    #[test]
    fn pages_stay_readable_while_they_are_copied_and_restored() {
        let (file, mapping) = mapped();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                (0..20_000).for_each(|i| assert_eq!(usize::from(first_byte(&mapping, i % PAGES)), i % PAGES));
            });
            let mut rounds = 0;
            while !reader.is_finished() || rounds == 0 {
                let mut copies = mapping.lock();
                (0..PAGES).for_each(|at| copies.copy(&file, at * page_len_bytes()..at * page_len_bytes() + 1).unwrap());
                copies.restore();
                rounds += 1;
            }
        });
    }

    #[test]
    fn a_page_of_a_truncated_file_is_copied_as_zeros() {
        let (file, mapping) = mapped();
        file.set_len(page_len_bytes() as u64 + 10).unwrap();
        let mut copies = mapping.lock();
        copies.copy(&file, 0..mapping.memory.len()).unwrap();
        assert_eq!([0, 1, 2, PAGES].map(|page| first_byte(&mapping, page)), [0, 1, 0, 0]);
    }
}
