//! Copies files into memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

use memmap2::MmapMut;

use super::{Map, Memory, PART_LEN_BYTES};
use crate::machine_memory::SHORT_HUGE_PAGE_LEN_BYTES;
use crate::store::pace::Pace;
use crate::store::pace::for_each_part;
use crate::store::sealed;

/// The number of bytes that a thread copies between two files at a time.
const BUFFER_LEN_BYTES: usize = 64 << 10;
/// The time to wait before the next attempt to seal a memory file.
const SEAL_AGAIN: Duration = Duration::from_millis(5);

impl Map {
    /// Copies a file into this process's memory, in huge pages if the system provides them. Later changes of the file
    /// do not affect the copy.
    pub(in crate::store) fn copy_of(file: &File, pace: &Pace) -> io::Result<Map> {
        let len_bytes = file.metadata()?.len() as usize;
        // From version 6.7 on, Linux aligns a large anonymous mapping, so that huge pages can cover the whole mapping.
        // Earlier versions use small pages at both ends of the mapping.
        let padded_len_bytes = len_bytes.max(1).next_multiple_of(SHORT_HUGE_PAGE_LEN_BYTES);
        let mut memory = MmapMut::map_anon(padded_len_bytes)?;
        // A system without huge pages rejects this advice and uses small pages.
        let _ = memory.advise(memmap2::Advice::HugePage);
        let parts = memory[..len_bytes].chunks_mut(PART_LEN_BYTES).enumerate();
        for_each_part(parts, pace, |(part, bytes)| file.read_exact_at(bytes, (part * PART_LEN_BYTES) as u64))?;
        Ok(Map::from_memory(Memory::Copy(memory.make_read_only()?), len_bytes))
    }

    /// Copies a file as [`Map::copy_of`] does, with one exception: the copy of a file that is shorter than a huge page
    /// does not take a whole huge page.
    pub(in crate::store) fn compact_copy_of(file: &File, pace: &Pace) -> io::Result<Map> {
        let len_bytes = file.metadata()?.len() as usize;
        if len_bytes >= SHORT_HUGE_PAGE_LEN_BYTES {
            return Map::copy_of(file, pace);
        }
        let mut memory = MmapMut::map_anon(len_bytes.max(1))?;
        file.read_exact_at(&mut memory[..len_bytes], 0)?;
        Ok(Map::from_memory(Memory::Copy(memory.make_read_only()?), len_bytes))
    }

    /// Copies a file into memory that no process, including this one, can write to or resize any more, and that can be
    /// transferred to other processes.
    pub(in crate::store) fn sealed_copy_of(file: &File, pace: &Pace) -> io::Result<Map> {
        let len_bytes = file.metadata()?.len();
        let sealed = sealed::create()?;
        sealed.set_len(len_bytes)?;
        let parts = (0..len_bytes).step_by(PART_LEN_BYTES);
        for_each_part(parts, pace, |start| {
            let end = len_bytes.min(start + PART_LEN_BYTES as u64);
            // The buffer is short and on the stack, because an allocator may keep the memory of a long buffer.
            let mut buffer = [0; BUFFER_LEN_BYTES];
            (start..end).step_by(BUFFER_LEN_BYTES).try_for_each(|at| {
                let bytes = &mut buffer[..BUFFER_LEN_BYTES.min((end - at) as usize)];
                file.read_exact_at(bytes, at)?;
                sealed.write_all_at(bytes, at)
            })
        })?;
        sealed::seal(&sealed, || thread::sleep(SEAL_AGAIN))?;
        // Linux before 6.7 cannot map a sealed file through a descriptor that is open for writing.
        Map::map_file(&sealed::reopened(&sealed)?)
    }
}
