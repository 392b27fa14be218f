//! Loads the files of a folder into the page cache, or drops them from it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use rustix::fs::{Advice, fadvise, fstatfs};

/// Writes back the dirty pages of a folder's files, and drops all pages that are not mapped.
pub(crate) fn drop_files(folder: &Path) -> Result<()> {
    for path in files(folder)? {
        let file = File::open(path)?;
        file.sync_all()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

/// Reads every file of a folder completely, which loads it into the page cache.
pub(crate) fn read_files(folder: &Path) -> Result<()> {
    let mut buffer = vec![0; 1 << 20];
    for path in files(folder)? {
        let mut file = File::open(path)?;
        while file.read(&mut buffer)? > 0 {}
    }
    Ok(())
}

/// Returns the disk space that a folder's files use.
pub(crate) fn allocated_bytes(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for path in files(folder)? {
        bytes += 512 * fs::metadata(path)?.blocks();
    }
    Ok(bytes)
}

/// Returns the free space, in bytes, of the disk that contains a folder. Returns an error if the folder's file system
/// is in memory (tmpfs).
pub(crate) fn free_disk_bytes(folder: &Path) -> Result<u64> {
    const TMPFS: i64 = 0x0102_1994;
    let file_system = fstatfs(File::open(folder)?)?;
    let in_memory = i128::from(file_system.f_type) == i128::from(TMPFS);
    ensure!(!in_memory, "{}: is in memory (tmpfs): name a folder on a disk with --dir", folder.display());
    Ok(file_system.f_bavail * file_system.f_bsize as u64)
}

fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    Ok(entries.into_iter().filter(|path| path.is_file()).collect())
}
