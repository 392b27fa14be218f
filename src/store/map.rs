//! The file as memory: mapped, or copied.
//!
//! In: an open file. Out: its bytes, as one slice whatever they lie in, and
//! whether the file is still as it was. It knows nothing of what they mean.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::slice;
use std::thread;
use std::time::Duration;

use memmap2::{Mmap, MmapMut};

use super::guard::Guarded;
use super::lease::{Report, Writers};
use super::pace::Pace;
use super::parts::for_each_part;
use super::sealed;
use super::stamp::{Stamp, Watched};

/// What a copy lies in, if the system has pages of that size.
const HUGE_PAGE_LEN_BYTES: usize = 2 << 20;
/// The smallest page that a system has.
const PAGE_LEN_BYTES: usize = 4096;
/// What a thread reads at a time. A multiple of every page's size.
const PART_LEN_BYTES: usize = 4 * HUGE_PAGE_LEN_BYTES;
/// What a thread has between two files.
const BUFFER_LEN_BYTES: usize = 64 << 10;
/// How long to wait before a memory file is sealed that could not be.
const SEAL_AGAIN: Duration = Duration::from_millis(5);

/// A whole file's bytes, read-only.
pub(super) struct Map {
    /// The file's part of `memory`. Handed out for no longer than this `Map` lives.
    bytes: &'static [u8],
    memory: Guarded,
    held: Held,
}

/// What the memory is.
enum Held {
    /// The file itself, which others can change.
    File(Watched),
    /// A file that nobody can change.
    Immutable(File),
    /// A copy.
    Copy,
}

impl fmt::Debug for Map {
    /// Its length, not its bytes: there may be gigabytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map").field("len_bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

impl Map {
    /// Maps a file, shared with every process that does.
    pub(super) fn of(file: &File) -> io::Result<Map> {
        // SAFETY: The mapping is private to this type, read-only, and lives as long as every slice borrowed from it.
        // `Mmap::map` also asks that nobody changes the file meanwhile, which the system does not guarantee. Whoever
        // uses this function lends no byte of it to safe code: `Store::map` is unsafe and passes that duty on, and
        // `MappedStore`, the server, and bakes copy bytes and use the copies only if the file is unchanged after it. No
        // code relies on a byte still being what it was when it was verified: every lookup bounds-checks the offsets and
        // lengths that it reads (`tests/damage.rs`: `a_file_overwritten_while_it_is_open`).
        let memory = unsafe { Mmap::map(file)? };
        let len_bytes = memory.len();
        if sealed::is_sealed(file) {
            return Ok(Map::over(Guarded::unguarded(memory), len_bytes, Held::Immutable(file.try_clone()?)));
        }
        let memory = Guarded::new(memory);
        let watched = Watched::new(file, &memory)?;
        Ok(Map::over(memory, len_bytes, Held::File(watched)))
    }

    /// Maps a file that nobody can change: one that is sealed, or has fs-verity. `None` for any other.
    ///
    /// The mapping has no guard, whose zeros would change bytes that are lent: a page that the disk does not give ends
    /// the process, as for every mapped program.
    pub(super) fn of_immutable(file: &File) -> io::Result<Option<Map>> {
        if !sealed::is_sealed(file) && !sealed::has_verity(file) {
            return Ok(None);
        }
        // SAFETY: As in `Map::of`, and nobody changes the file: the system allows it to no process.
        let memory = unsafe { Mmap::map(file)? };
        let len_bytes = memory.len();
        Ok(Some(Map::over(Guarded::unguarded(memory), len_bytes, Held::Immutable(file.try_clone()?))))
    }

    /// Copies a file into memory of this process, in huge pages as far as the
    /// system gives them. What happens to the file later does not matter.
    pub(super) fn copy_of(file: &File, pace: &Pace) -> io::Result<Map> {
        let len_bytes = file.metadata()?.len() as usize;
        // Linux puts a mapping of whole huge pages where huge pages can be (before 6.7, all but its two ends).
        let mut memory = MmapMut::map_anon(len_bytes.next_multiple_of(HUGE_PAGE_LEN_BYTES).max(HUGE_PAGE_LEN_BYTES))?;
        // A system without huge pages refuses, and gives small ones.
        let _ = memory.advise(memmap2::Advice::HugePage);
        let parts = memory[..len_bytes].chunks_mut(PART_LEN_BYTES).enumerate();
        for_each_part(parts, pace, |(part, bytes)| file.read_exact_at(bytes, (part * PART_LEN_BYTES) as u64))?;
        Ok(Map::over(Guarded::unguarded(memory.make_read_only()?), len_bytes, Held::Copy))
    }

    /// Copies a file like [`Map::copy_of`]. A file that is shorter than a huge page does not take up a whole one.
    pub(super) fn compact_copy_of(file: &File, pace: &Pace) -> io::Result<Map> {
        let len_bytes = file.metadata()?.len() as usize;
        if len_bytes >= HUGE_PAGE_LEN_BYTES {
            return Map::copy_of(file, pace);
        }
        let mut memory = MmapMut::map_anon(len_bytes.max(1))?;
        file.read_exact_at(&mut memory[..len_bytes], 0)?;
        Ok(Map::over(Guarded::unguarded(memory.make_read_only()?), len_bytes, Held::Copy))
    }

    /// Copies a file into memory that no process can change, cut off or make longer
    /// any more, this one included, and that can be handed to others.
    pub(super) fn sealed_copy_of(file: &File, pace: &Pace) -> io::Result<Map> {
        let len_bytes = file.metadata()?.len();
        let sealed = sealed::create()?;
        sealed.set_len(len_bytes)?;
        let parts = (0..len_bytes).step_by(PART_LEN_BYTES);
        for_each_part(parts, pace, |start| {
            let end = len_bytes.min(start + PART_LEN_BYTES as u64);
            // Short, for an allocator may keep what was long for the next copy.
            let mut buffer = [0; BUFFER_LEN_BYTES];
            (start..end).step_by(BUFFER_LEN_BYTES).try_for_each(|at| {
                let bytes = &mut buffer[..BUFFER_LEN_BYTES.min((end - at) as usize)];
                file.read_exact_at(bytes, at)?;
                sealed.write_all_at(bytes, at)
            })
        })?;
        sealed::seal(&sealed, || thread::sleep(SEAL_AGAIN))?;
        // Linux before 6.7 does not map a sealed file that is open to write to it.
        Map::of(&sealed::reopened(&sealed)?)
    }

    /// The first bytes of some memory. Panics if it is shorter.
    fn over(memory: Guarded, len_bytes: usize, held: Held) -> Map {
        let bytes = &memory[..len_bytes];
        // SAFETY: The bytes are initialised and not null, for they are those of a slice. They stay where they are
        // and readable until `memory` is dropped, wherever it is moved meanwhile. `memory` stands beside `bytes` in
        // this type, is never changed, and `Map::bytes` lends the slice for no longer than the `Map` is borrowed.
        let bytes = unsafe { slice::from_raw_parts(bytes.as_ptr(), len_bytes) };
        Map { bytes, memory, held }
    }

    /// Whether the memory is the file itself, which others can change.
    #[inline]
    pub(super) fn is_file(&self) -> bool {
        self.watched().is_some()
    }

    #[inline]
    fn watched(&self) -> Option<&Watched> {
        match &self.held {
            Held::File(watched) => Some(watched),
            Held::Immutable(_) | Held::Copy => None,
        }
    }

    /// What others can map to read the same bytes from the same memory. `None` if it
    /// is a copy.
    pub(super) fn file(&self) -> Option<&File> {
        match &self.held {
            Held::File(watched) => Some(watched.file()),
            Held::Immutable(file) => Some(file),
            Held::Copy => None,
        }
    }

    /// Returns whether nobody has changed the bytes since they were last trusted.
    #[inline]
    pub(super) fn is_unchanged(&self) -> bool {
        self.watched().is_none_or(|file| file.is_unchanged(&self.memory))
    }

    /// Takes the first lease on the file, if the system grants it.
    pub(super) fn lease(&self) {
        if let Some(file) = self.watched() {
            file.lease(&self.memory);
        }
    }

    /// Takes a lease that was lost again: see [`Watched::retake_lease`].
    pub(super) fn retake_lease(&self) -> io::Result<()> {
        self.watched().map_or(Ok(()), Watched::retake_lease)
    }

    /// Returns whether the bytes are a copy or the lease on the file is held.
    #[cfg(feature = "server")]
    pub(super) fn is_lease_held(&self) -> bool {
        self.watched().is_none_or(Watched::is_lease_held)
    }

    /// Returns whether the lease on the file is held or was never taken.
    pub(super) fn is_lease_held_or_unused(&self) -> bool {
        self.watched().is_none_or(Watched::is_lease_held_or_unused)
    }

    /// Calls `report` with the state of the lease: see [`Watched::report`].
    pub(super) fn report(&self, report: Report) {
        if let Some(file) = self.watched() {
            file.report(report);
        }
    }

    /// Whether a process has the file open for writing. Nobody writes to a copy.
    pub(super) fn writers(&self) -> Writers {
        self.watched().map_or(Writers::None, Watched::writers)
    }

    /// Whether nobody can change the bytes without word of it: they are a copy, or
    /// the file is leased.
    pub(super) fn is_leased(&self) -> bool {
        self.watched().is_none_or(Watched::is_leased)
    }

    /// What the file looks like now. `None` if the memory is no file's.
    pub(super) fn stamp(&self) -> io::Result<Option<Stamp>> {
        self.watched().map(|file| file.stamp(&self.memory)).transpose()
    }

    /// From now on the bytes are unchanged if the file looks like this.
    pub(super) fn believe(&self, stamp: Stamp) {
        if let Some(file) = self.watched() {
            file.believe(stamp);
        }
    }

    /// Pages of the mapping that were found gone, or groups of them.
    pub(super) fn faults(&self) -> u64 {
        self.memory.faults()
    }

    /// How much of it is in memory, as far as the system tells.
    pub(super) fn resident_len_bytes(&self) -> io::Result<u64> {
        let mut resident_len_bytes = 0;
        let mut pages = vec![0_u8; PART_LEN_BYTES / PAGE_LEN_BYTES];
        for (part, bytes) in self.memory.chunks(PART_LEN_BYTES).enumerate() {
            let address = bytes.as_ptr().cast_mut();
            debug_assert!(address.addr().is_multiple_of(PAGE_LEN_BYTES), "part {part} begins with a page");
            // SAFETY: The range is mapped, for it is a part of `memory`, and begins with a page. For each of its pages
            // one byte is written to `pages`, which has as many as the longest part has pages of the smallest size.
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

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes
    }

    /// Reads every page in and enters it into the page table, before a lookup needs it.
    pub(super) fn warm(&self, pace: &Pace) -> io::Result<()> {
        self.ask_for_huge_pages();
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

    /// Has what is read from the disk from now on in huge pages. Many file systems
    /// cannot, and what the page cache holds already stays as it is.
    fn ask_for_huge_pages(&self) {
        let _ = self.memory.memory().advise(memmap2::Advice::HugePage);
    }

    /// Linux before 5.14 does not know it.
    fn populate(&self, offset_bytes: usize, len_bytes: usize) -> io::Result<()> {
        self.memory.memory().advise_range(memmap2::Advice::PopulateRead, offset_bytes, len_bytes)
    }

    /// Gives back the pages of a range of a mapped file, which then no longer count
    /// as this process's. Reading them again takes them from the page cache.
    #[cfg(feature = "bake")]
    pub(super) fn release(&self, range: std::ops::Range<usize>) {
        let is_inside = range.start < range.end && range.end <= self.bytes.len();
        if !self.is_file() || !is_inside {
            return;
        }
        // SAFETY: `MADV_DONTNEED` forgets what a private mapping holds; a shared mapping of a file only loses its page
        // table entries, and whoever reads through `bytes`, now or later, finds the file's bytes again. `is_file`
        // says that `memory` is such a mapping, made by `Mmap::map` and never written to. The range lies inside it, up to
        // whole pages, which are the mapping's own.
        let released = unsafe {
            self.memory.memory().unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, range.start, range.len())
        };
        // What cannot be given back stays resident, and nothing else is different.
        let _ = released;
    }

    /// Keeps every page in memory for as long as this lives.
    ///
    /// `mlock` by itself reads the whole file in one call, which cannot be canceled. So the limit is checked first, then
    /// the file is read in parts, and `mlock` finds every page in memory.
    pub(super) fn lock(&self, pace: &Pace) -> io::Result<()> {
        self.lock_later_pages()?;
        self.warm(pace)?;
        if pace.is_canceled() { Ok(()) } else { self.memory.memory().lock() }
    }

    /// Keeps those pages in memory that are there, and each other one once it is read.
    fn lock_later_pages(&self) -> io::Result<()> {
        let memory = self.memory.memory();
        // SAFETY: The range is that of `memory`, which is mapped. The call changes no byte of it, and what it locks is
        // unlocked when it is unmapped.
        let locked = unsafe { libc::mlock2(memory.as_ptr().cast(), memory.len(), libc::MLOCK_ONFAULT) };
        if locked == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// How much of it lies in huge pages, as far as the system tells.
    pub(super) fn huge_len_bytes(&self) -> u64 {
        let smaps = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        huge_len_bytes(&smaps, self.memory.as_ptr() as u64)
    }
}

/// The length of a page of this system.
fn page_len_bytes() -> usize {
    // SAFETY: Asks for a number, and touches no memory of ours.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(PAGE_LEN_BYTES).max(PAGE_LEN_BYTES)
}

/// Reads a byte of each page.
fn touch(bytes: &[u8]) {
    for byte in bytes.iter().step_by(PAGE_LEN_BYTES) {
        std::hint::black_box(*byte);
    }
}

/// The huge pages of the mapping in which an address lies, from the text of
/// `/proc/PID/smaps`.
fn huge_len_bytes(smaps: &str, address: u64) -> u64 {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn file_of(bytes: &[u8]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file
    }

    fn resident_len_bytes(map: &Map) -> usize {
        let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
        let mapping = format!("{:x}-", map.memory.as_ptr() as usize);
        let resident = smaps.split(&mapping).nth(1).unwrap().lines().find(|line| line.starts_with("Rss:")).unwrap();
        resident.split_ascii_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
    }

    fn some_bytes(len_bytes: usize) -> Vec<u8> {
        (0..len_bytes as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
    }

    #[test]
    fn a_copy_holds_the_bytes_that_the_file_had() {
        for len_bytes in [0, 1, 4096, PART_LEN_BYTES, 2 * PART_LEN_BYTES + 1, 5 * PART_LEN_BYTES - 1] {
            let expected = some_bytes(len_bytes);
            let file = file_of(&expected);
            let map = Map::of(&file).unwrap();
            assert!(map.bytes() == expected, "{len_bytes} bytes");
            let pace = Pace::default();
            let copies = [Map::copy_of(&file, &pace).unwrap(), Map::compact_copy_of(&file, &pace).unwrap()];
            drop(map);
            file.set_len(0).unwrap();
            for moved in copies.map(Box::new) {
                assert!(moved.bytes() == expected, "{len_bytes} bytes");
                assert!(!moved.is_file() && moved.is_unchanged());
            }
        }
    }

    #[test]
    fn nobody_changes_sealed_memory() {
        for len_bytes in [1, 4096, PART_LEN_BYTES + 5] {
            let expected = some_bytes(len_bytes);
            let file = file_of(&expected);
            let map = Map::sealed_copy_of(&file, &Pace::default()).unwrap();
            file.set_len(0).unwrap();
            assert!(map.bytes() == expected && map.is_unchanged() && !map.is_file());
            // As whoever is handed it would.
            let address = format!("{:x}-", map.memory.as_ptr().addr());
            let entry = fs::read_dir("/proc/self/map_files").unwrap().map(|entry| entry.unwrap());
            let path = entry.into_iter().find(|entry| entry.file_name().to_str().unwrap().starts_with(&address));
            let Ok(file) = File::options().write(true).open(path.unwrap().path()) else { continue };
            assert!(file.set_len(0).is_err() && file.set_len(1 << 30).is_err() && file.write_at(b"x", 0).is_err());
            assert!(map.bytes() == expected);
        }
    }

    #[test]
    fn what_is_in_memory_is_told() {
        let file = file_of(&some_bytes(PART_LEN_BYTES + 5));
        let map = Map::of(&file).unwrap();
        map.warm(&Pace::default()).unwrap();
        assert_eq!(map.resident_len_bytes().unwrap(), (PART_LEN_BYTES + 5) as u64);
    }

    #[test]
    fn a_file_that_is_cut_off_is_not_as_it_was() {
        crate::store::guard::survive_bus_errors().unwrap();
        let file = file_of(&some_bytes(100_000));
        let map = Map::of(&file).unwrap();
        assert!(map.is_unchanged() && map.is_file());
        file.set_len(0).unwrap();
        assert!(!map.is_unchanged());
        map.believe(map.stamp().unwrap().unwrap());
        assert!(map.is_unchanged());
        assert_eq!((map.bytes()[50_000], map.faults()), (0, 1));
        assert!(!map.is_unchanged(), "a page was gone since");
    }

    #[test]
    fn a_warmed_map_is_in_memory_as_a_whole() {
        let bytes = some_bytes(3 * PART_LEN_BYTES + 5);
        let file = file_of(&bytes);
        let map = Map::of(&file).unwrap();
        assert_eq!(resident_len_bytes(&map), 0);
        map.warm(&Pace::default()).unwrap();
        assert_eq!(resident_len_bytes(&map), bytes.len().next_multiple_of(PAGE_LEN_BYTES));

        let map = Map::of(&file).unwrap();
        touch(map.bytes());
        assert_eq!(resident_len_bytes(&map), bytes.len().next_multiple_of(PAGE_LEN_BYTES));
    }

    #[test]
    #[cfg(feature = "bake")]
    fn released_pages_are_not_resident_and_hold_what_they_held() {
        let expected = some_bytes(PART_LEN_BYTES + 5);
        let file = file_of(&expected);
        for map in [Map::of(&file).unwrap(), Map::copy_of(&file, &Pace::default()).unwrap()] {
            assert!(map.bytes() == expected);
            map.release(0..PART_LEN_BYTES / 2);
            if map.is_file() {
                assert!(resident_len_bytes(&map) <= PART_LEN_BYTES / 2 + PAGE_LEN_BYTES);
            }
            for range in [0..0, 0..expected.len(), 7..expected.len(), 0..expected.len() + 1, 1..usize::MAX] {
                map.release(range);
            }
            assert!(map.bytes() == expected);
        }
    }

    #[test]
    fn huge_pages_are_those_of_the_mapping_that_is_asked_about() {
        let smaps = "\
            7f0000000000-7f0000400000 rw-p 00000000 00:00 0\nSize: 4096 kB\nAnonHugePages:      2048 kB\n\
            7f0000400000-7f0000a00000 r--p 00000000 00:00 0 [anon: x]\nSize: 6144 kB\nAnonHugePages:      4096 kB\n\
            ShmemPmdMapped:        0 kB\nFilePmdMapped:        2048 kB\nVmFlags: rd mr mw me hg\n\
            7f0000a00000-7f0000b00000 r--p 00000000 fe:00 12 /tmp/a: b\nAnonHugePages:         0 kB\n";
        assert_eq!(huge_len_bytes(smaps, 0x7f00_0000_0000), 2 << 20);
        assert_eq!(huge_len_bytes(smaps, 0x7f00_0040_0000), 6 << 20);
        assert_eq!(huge_len_bytes(smaps, 0x7f00_00af_ffff), 0);
        assert_eq!(huge_len_bytes(smaps, 0x7f00_00b0_0000), 0);
        assert_eq!(huge_len_bytes("", 0x7f00_0000_0000), 0);
    }
}
