//! Checks a socket's path, and removes an abandoned socket.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// The maximum length of the path or abstract name of a Unix socket, without the zero byte after a path or before an
/// abstract name.
pub(super) const PATH_LEN_MAX_BYTES: usize = 107;

/// The device number and the inode number of a file.
pub(super) type Identity = (u64, u64);

/// Opens the file of a socket that was just bound to this path. The caller sets the owner, group, and mode through the
/// returned descriptor, because a user who can write to the folder could replace the file at the path.
pub(super) fn open_node(path: &Path) -> Result<(OwnedFd, Identity), String> {
    let fault = |error: Errno| format!("cannot be examined: {error}");
    let node = open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).map_err(fault)?;
    let status = fstat(&node).map_err(fault)?;
    if FileType::from_raw_mode(status.st_mode) != FileType::Socket {
        return Err("was replaced by another file right after it was created: choose a folder that only the server's \
                    user can write to"
            .to_owned());
    }
    Ok((node, (status.st_dev, status.st_ino)))
}

pub(super) fn identity(path: &Path) -> io::Result<Identity> {
    fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Checks whether a socket can have this path.
pub(super) fn check(path: &Path) -> Result<(), String> {
    let len_bytes = path.as_os_str().as_bytes().len();
    if len_bytes > PATH_LEN_MAX_BYTES {
        return Err(format!(
            "{len_bytes} bytes, where at most {PATH_LEN_MAX_BYTES} fit into a Unix socket address: choose a shorter path"
        ));
    }
    if path.as_os_str().as_bytes().ends_with(b"/") {
        return Err("ends in a slash, and is not the name of a socket: choose another path".to_owned());
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    match fs::metadata(folder) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(format!("{} is not a folder: choose another path", folder.display())),
        Err(error) => Err(format!("folder {}: {error}: create it, or choose another path", folder.display())),
    }
}

/// Removes a socket's file, if no process listens on the socket.
pub(super) fn remove_abandoned(path: &Path) -> Result<(), String> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err("exists and is not a socket: remove it, or choose another path".to_owned());
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(format!("cannot be examined: {error}")),
    }
    match probe(path) {
        Ok(()) | Err(Errno::AGAIN) => {
            Err("another server listens on it: stop that server, or choose another path".to_owned())
        }
        Err(Errno::CONNREFUSED) => fs::remove_file(path)
            .map_err(|error| format!("was left by a server that no longer runs, and cannot be removed: {error}")),
        Err(Errno::NOENT) => Ok(()),
        Err(error) => {
            Err(format!("another server may listen on it ({error}): stop that server, or choose another path"))
        }
    }
}

/// Connects without waiting, to find out whether a process listens. `EAGAIN` means that a process listens and that its
/// queue is full.
fn probe(path: &Path) -> Result<(), Errno> {
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)
}
