//! Holds the bytes of a file in memory, mapped or copied.
//!
//! In: an open file. Out: the file's bytes as one slice. Does not interpret the bytes.

mod copies;
mod pages;
#[cfg(test)]
mod tests;

#[cfg(feature = "server")]
pub(super) use pages::touch;

use std::fmt;
use std::fs::File;
use std::io;
use std::slice;

use memmap2::Mmap;

use super::sealed;
use super::stamp::WatchedFile;

/// The number of bytes of a file that a thread reads at a time. A multiple of the length of every page that is not
/// huge.
const PART_LEN_BYTES: usize = 8 << 20;

/// All bytes of a file, read-only.
pub(super) struct Map {
    /// The bytes of the file, which are in `memory`. Despite the type, they live only as long as this `Map`, so
    /// `Map::bytes` lends them for no longer.
    bytes: &'static [u8],
    memory: Memory,
}

/// The memory that holds the bytes of a [`Map`].
enum Memory {
    /// A mapping of a file that other processes can change.
    Watched(WatchedFile),
    /// A mapping of a sealed memory file, which nobody can change.
    Sealed(Mmap, File),
    /// A copy in this process's memory.
    Copy(Mmap),
}

impl Memory {
    fn mapping(&self) -> &Mmap {
        match self {
            Memory::Watched(watched) => watched.memory(),
            Memory::Sealed(memory, _) | Memory::Copy(memory) => memory,
        }
    }
}

impl fmt::Debug for Map {
    /// Writes the length instead of the bytes, because the bytes can be gigabytes long.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map").field("len_bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

impl Map {
    /// Maps a file. All processes that map the file share its pages.
    pub(super) fn map_file(file: &File) -> io::Result<Map> {
        // SAFETY: The mapping is private to this type, read-only, and lives as long as every slice borrowed from it.
        // `Mmap::map` also requires that nobody changes the file meanwhile, which the system does not guarantee. The
        // callers of this function lend no byte of the mapping to safe code. `Store::map` is unsafe and passes this
        // requirement on to its caller. `MappedStore`, the server, and bakes copy bytes and use the copies only if the
        // file is unchanged after the copy. A verified byte may change, so no code relies on its value: every lookup
        // bounds-checks the offsets and lengths that it reads (`tests/format/damaged_files.rs`:
        // `a_file_overwritten_while_it_is_open_is_read_within_its_bounds`).
        let memory = unsafe { Mmap::map(file)? };
        let len_bytes = memory.len();
        let memory = match sealed::is_sealed(file) {
            true => Memory::Sealed(memory, file.try_clone()?),
            false => Memory::Watched(WatchedFile::new(file, memory)?),
        };
        Ok(Map::from_memory(memory, len_bytes))
    }

    /// Creates a `Map` of the first `len_bytes` bytes of `memory`. Panics if `memory` is shorter.
    fn from_memory(memory: Memory, len_bytes: usize) -> Map {
        let bytes = &memory.mapping()[..len_bytes];
        // SAFETY: The bytes are initialized and not null, because they are the bytes of a slice. They stay at their
        // address and readable until `memory` is dropped, even if it is moved meanwhile. `memory` is stored beside
        // `bytes` in this type, is never changed, and `Map::bytes` lends the slice for no longer than the `Map` is
        // borrowed.
        let bytes = unsafe { slice::from_raw_parts(bytes.as_ptr(), len_bytes) };
        Map { bytes, memory }
    }

    /// Returns the file, if other processes can change it.
    #[inline]
    pub(super) fn watched(&self) -> Option<&WatchedFile> {
        match &self.memory {
            Memory::Watched(watched) => Some(watched),
            Memory::Sealed(..) | Memory::Copy(_) => None,
        }
    }

    /// Returns the file that other processes can map to read these bytes. Returns `None` if the bytes are a copy in
    /// this process's memory.
    pub(super) fn file(&self) -> Option<&File> {
        match &self.memory {
            Memory::Watched(watched) => Some(watched.file()),
            Memory::Sealed(_, file) => Some(file),
            Memory::Copy(_) => None,
        }
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes
    }

    fn memory(&self) -> &Mmap {
        self.memory.mapping()
    }
}
