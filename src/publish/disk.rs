//! The space of a disk, and the names of the files of a transfer.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::error::PublishError;
use crate::folder::{Folder, folder_of};

/// The space that a download leaves free on a disk.
const FREE_MIN_BYTES: u64 = 16 << 20;

/// Checks that the disk of a file has space for more bytes.
pub(super) fn check_space(path: &Path, needed_bytes: u64) -> Result<(), PublishError> {
    let available_bytes = available_bytes(path)?;
    if available_bytes < needed_bytes.saturating_add(FREE_MIN_BYTES) {
        return Err(disk_full(path, available_bytes, needed_bytes));
    }
    Ok(())
}

fn available_bytes(path: &Path) -> Result<u64, PublishError> {
    let folder = folder_of(path);
    let disk = rustix::fs::statvfs(folder).map_err(|error| PublishError::io(folder)(error.into()))?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Converts an error of a write to a partial file. A disk can become full after [`check_space`].
pub(super) fn write_error(partial: &Path, file: &File, len_bytes: u64, error: io::Error) -> PublishError {
    if error.kind() != io::ErrorKind::StorageFull {
        return PublishError::io(partial)(error);
    }
    let Ok(available_bytes) = available_bytes(partial) else { return PublishError::io(partial)(error) };
    let needed_bytes = len_bytes.saturating_sub(allocated_bytes(file));
    disk_full(partial, available_bytes, needed_bytes)
}

fn disk_full(path: &Path, available_bytes: u64, needed_bytes: u64) -> PublishError {
    let (path, reserve_bytes) = (folder_of(path).to_path_buf(), FREE_MIN_BYTES);
    PublishError::DiskFull { path, available_bytes, needed_bytes, reserve_bytes }
}

/// Returns the number of bytes of a file that have space on the disk.
pub(super) fn allocated_bytes(file: &File) -> u64 {
    const BLOCK_BYTES: u64 = 512;
    file.metadata().map_or(0, |metadata| metadata.blocks().saturating_mul(BLOCK_BYTES))
}

/// Returns a name with a suffix.
pub(super) fn with_suffix(name: &OsStr, suffix: &str) -> OsString {
    let mut name = name.to_owned();
    name.push(suffix);
    name
}

/// Removes a file, if it exists.
pub(super) fn remove(folder: &Folder, name: &OsStr) -> Result<(), PublishError> {
    folder.remove(name).map_err(PublishError::io(&folder.path().join(name)))
}

/// Makes the names in a folder durable.
pub(super) fn sync_folder(folder: &Folder) -> Result<(), PublishError> {
    folder.sync().map_err(PublishError::io(folder.path()))
}
