//! Opens special files, such as terminals and pipes, as outputs. Programs write to a special file, and never replace
//! it.
//!
//! In: a path from a command line. Out: the open file, if it is special. The functions protect against other users who
//! can write to the file's folder.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Opens the file at this path for writing if it is special. Returns `None` for any other path.
pub fn open_special(path: &Path) -> io::Result<Option<File>> {
    if !is_special(path)? {
        return Ok(None);
    }
    // Without this flag, a terminal could become the controlling terminal of the process.
    let mut flags = OFlags::NOCTTY;
    if !fs::symlink_metadata(path)?.is_symlink() {
        flags |= OFlags::NOFOLLOW;
    }
    let file = OpenOptions::new().write(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    match is_stream(&file.metadata()?)? {
        true => Ok(Some(file)),
        false => Err(io::Error::other("another file replaced the special file while it was being opened")),
    }
}

/// Returns whether a path leads to a special file. A symbolic link or a FIFO counts only if root or the current user
/// owns it, because other users may be able to create links and FIFOs in the folder: a program would wait until such a
/// user reads from the FIFO.
pub fn is_special(path: &Path) -> io::Result<bool> {
    let Ok(named) = fs::symlink_metadata(path) else { return Ok(false) };
    let is_trusted = [0, nix::unistd::geteuid().as_raw()].contains(&named.uid());
    if (named.is_symlink() || named.file_type().is_fifo()) && !is_trusted {
        return Ok(false);
    }
    fs::metadata(path).map_or(Ok(false), |found| is_stream(&found))
}

/// Returns whether a file is a character device, a pipe, or a socket. A block device is an error, because writing would
/// destroy its contents.
fn is_stream(found: &Metadata) -> io::Result<bool> {
    let kind = found.file_type();
    match kind.is_block_device() {
        true => Err(io::Error::new(io::ErrorKind::InvalidInput, "is a block device: name a file")),
        false => Ok(kind.is_char_device() || kind.is_fifo() || kind.is_socket()),
    }
}
