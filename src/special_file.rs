//! Special files, such as terminals and pipes, as outputs. They are written to directly and never replaced.
//!
//! In: a path from a command line. Out: the open file, if it is special. Other users may be able to write to its folder.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Opens the file at this path if it is special.
pub fn open_special(path: &Path) -> io::Result<Option<File>> {
    if !is_special(path)? {
        return Ok(None);
    }
    // A terminal must not become the controlling terminal.
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

/// Returns whether a path leads to a special file. Links of other users are not followed, because anyone who can write to the
/// folder can create them.
pub fn is_special(path: &Path) -> io::Result<bool> {
    let Ok(named) = fs::symlink_metadata(path) else { return Ok(false) };
    let is_trusted = [0, nix::unistd::geteuid().as_raw()].contains(&named.uid());
    if named.is_symlink() && !is_trusted {
        return Ok(false);
    }
    fs::metadata(path).map_or(Ok(false), |found| is_stream(&found))
}

/// Returns whether text can be written to a file without replacing it. Block devices are an error, because writing would
/// destroy their contents.
fn is_stream(found: &Metadata) -> io::Result<bool> {
    let kind = found.file_type();
    match kind.is_block_device() {
        true => Err(io::Error::new(io::ErrorKind::InvalidInput, "is a block device: name a file")),
        false => Ok(kind.is_char_device() || kind.is_fifo() || kind.is_socket()),
    }
}
