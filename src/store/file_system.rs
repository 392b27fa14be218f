//! What the type of a file system implies for its files.

use std::fs::File;
use std::io;

use rustix::fs::{FsWord, fstat, fstatfs};

/// The magic numbers, from `<linux/magic.h>`, of file systems in memory: tmpfs, ramfs, and hugetlbfs. On these, a write
/// through a mapping does not change a file's modification time.
const IN_MEMORY: [FsWord; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];

/// The length of the unit in which `st_blocks` is counted.
const STAT_BLOCK_LEN_BYTES: u64 = 512;

/// The magic numbers of file systems on which a lease reveals every writer: ext2 to ext4, XFS, Btrfs, F2FS, Bcachefs,
/// ZFS, EROFS, and SquashFS. These file systems are local, and a mapping of a file maps the file itself. On some other
/// file systems, a lease does not reveal every writer: a stacked file system, such as an overlay, maps a file of the
/// file system below it, and a remote file system cannot detect writers on other machines.
const LOCAL: [FsWord; 8] =
    [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0xca45_1a4e, 0x2fc1_2fc1, 0xe0f5_e1e2, 0x7371_7368];

/// Returns whether a process can write to a file through a mapping without changing the file's modification time.
pub(super) fn hides_mapped_writes(file: &File) -> io::Result<bool> {
    Ok(IN_MEMORY.contains(&fstatfs(file)?.f_type))
}

/// Returns whether reading a file allocates memory for its holes. On a file system in memory, reading a page of a hole
/// allocates the page.
pub(crate) fn has_holes_that_take_memory(file: &File) -> io::Result<bool> {
    let stat = fstat(file)?;
    let allocated_bytes = stat.st_blocks as u64 * STAT_BLOCK_LEN_BYTES;
    Ok(allocated_bytes < stat.st_size as u64 && IN_MEMORY.contains(&fstatfs(file)?.f_type))
}

/// Returns whether a lease on a file reveals every process that opens the file for writing or has a writable mapping of
/// the file.
pub(super) fn has_reliable_leases(file: &File) -> io::Result<bool> {
    let kind = fstatfs(file)?.f_type;
    Ok(LOCAL.contains(&kind) || IN_MEMORY.contains(&kind))
}

/// Returns whether the kernel may report a file's modification time from a cache, although the file has been changed by
/// another machine or by the process that implements the file system.
pub(super) fn may_cache_times(file: &File) -> io::Result<bool> {
    Ok(!has_reliable_leases(file)?)
}
