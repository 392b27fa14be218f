//! The listening socket and its path.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::ServerError;

/// What fits into a Unix socket address, without the zero at its end.
const PATH_LEN_MAX_BYTES: usize = 107;

/// A socket that listens. Its path is removed when it is dropped.
pub(super) struct Listener {
    socket: UnixListener,
    path: PathBuf,
    /// Device and inode, to tell this socket from one that another server put
    /// in its place.
    identity: (u64, u64),
}

impl Listener {
    /// Listens on a path, and takes it over from a server that is gone.
    pub(super) fn bind(path: &Path) -> Result<Listener, ServerError> {
        let refuse = |problem: String| ServerError::Socket { path: path.to_path_buf(), problem };
        check(path).map_err(refuse)?;
        let bound = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                make_way(path).map_err(refuse)?;
                UnixListener::bind(path)
            }
            bound => bound,
        };
        let listening = bound.and_then(|socket| {
            socket.set_nonblocking(true)?;
            Ok(Listener { socket, path: path.to_path_buf(), identity: identity(path)? })
        });
        listening.map_err(|error| refuse(format!("cannot listen: {error}")))
    }

    /// The socket, for a runtime.
    pub(super) fn socket(&self) -> io::Result<UnixListener> {
        self.socket.try_clone()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            // A path that cannot be removed is taken over by the next server.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

fn check(path: &Path) -> Result<(), String> {
    let len_bytes = path.as_os_str().as_bytes().len();
    if len_bytes > PATH_LEN_MAX_BYTES {
        return Err(format!(
            "{len_bytes} bytes, where at most {PATH_LEN_MAX_BYTES} fit into a Unix socket address: choose a shorter --socket"
        ));
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    match fs::metadata(folder) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(format!("{} is not a folder: choose another --socket", folder.display())),
        Err(error) => Err(format!("folder {}: {error}: create it, or choose another --socket", folder.display())),
    }
}

/// Removes a socket on which nobody listens.
fn make_way(path: &Path) -> Result<(), String> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err("is there and is not a socket: remove it, or choose another --socket".to_owned());
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(format!("cannot be looked at: {error}")),
    }
    match knock(path) {
        Ok(()) | Err(Errno::AGAIN) => {
            Err("another server answers on it: stop that one, or choose another --socket".to_owned())
        }
        Err(Errno::CONNREFUSED) => fs::remove_file(path)
            .map_err(|error| format!("left by a server that is gone, and cannot be removed: {error}")),
        Err(Errno::NOENT) => Ok(()),
        Err(error) => {
            Err(format!("another server may answer on it ({error}): stop that one, or choose another --socket"))
        }
    }
}

/// Connects without waiting: a listener with a full queue is one that lives.
fn knock(path: &Path) -> Result<(), Errno> {
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)
}
