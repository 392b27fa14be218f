//! The file as memory.

use std::fs::File;
use std::io;

use memmap2::Mmap;

/// A whole file, mapped read-only and shared with every process that maps it.
#[derive(Debug)]
pub(super) struct Map(Mmap);

impl Map {
    pub(super) fn of(file: &File) -> io::Result<Map> {
        // SAFETY: The mapping is private to this type, read-only, and lives as long as every slice borrowed from
        // it. What `Mmap::map` asks for beyond that, that nobody changes the file meanwhile, cannot be had from the
        // system: `Store` hands that duty to its caller, and bakes never write into a file that has its name. No
        // code here relies on a byte still being what it was when it was checked: every lookup bounds-checks the
        // offsets and lengths that it reads (`tests/damage.rs`: `a_file_overwritten_while_it_is_open`).
        let map = unsafe { Mmap::map(file)? };
        Ok(Map(map))
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}
