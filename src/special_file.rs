//! Terminals, pipes and the like at the place of an output: text is written to them, and no file replaces them.
//!
//! In: a path that a command line names. Out: the open file, unless a new file is to take the path. The directory may be
//! one that other users can write to.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Opens what has this path if it is a terminal, a pipe or the like.
pub(crate) fn open_special(path: &Path) -> io::Result<Option<File>> {
    if !is_special(path)? {
        return Ok(None);
    }
    // A terminal must not become the process's own.
    let mut flags = OFlags::NOCTTY;
    if !fs::symlink_metadata(path)?.is_symlink() {
        flags |= OFlags::NOFOLLOW;
    }
    let file = OpenOptions::new().write(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    match is_stream(&file.metadata()?)? {
        true => Ok(Some(file)),
        false => Err(io::Error::other("another file replaced it while it was opened")),
    }
}

/// Returns whether a path leads to a terminal, a pipe or the like. Links of other users are not followed: whoever can write
/// to a directory can put one there.
pub(crate) fn is_special(path: &Path) -> io::Result<bool> {
    let Ok(named) = fs::symlink_metadata(path) else { return Ok(false) };
    let is_trusted = [0, nix::unistd::geteuid().as_raw()].contains(&named.uid());
    if named.is_symlink() && !is_trusted {
        return Ok(false);
    }
    fs::metadata(path).map_or(Ok(false), |found| is_stream(&found))
}

/// Returns whether a file takes text as it comes. A disk does, and would lose what is on it.
fn is_stream(found: &Metadata) -> io::Result<bool> {
    let kind = found.file_type();
    match kind.is_block_device() {
        true => Err(io::Error::new(io::ErrorKind::InvalidInput, "is a block device: name a file")),
        false => Ok(kind.is_char_device() || kind.is_fifo() || kind.is_socket()),
    }
}
