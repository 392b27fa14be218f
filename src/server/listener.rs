//! The listening socket and its path.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
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
        let _lock = Lock::take(path).map_err(refuse)?;
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

/// Holds off other servers that start on the same path: between a look at a socket
/// and its removal, and between `bind` and `listen`, it is not what it seems. The
/// lock's file is removed when it is dropped.
struct Lock {
    _file: File,
    path: PathBuf,
}

impl Lock {
    fn take(socket: &Path) -> Result<Lock, String> {
        const ATTEMPTS: u32 = 500;
        const PAUSE: Duration = Duration::from_millis(10);
        let mut path = socket.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        let fault = |error: io::Error| format!("cannot lock {}: {error}", path.display());
        for _ in 0..ATTEMPTS {
            let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(fault)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    // Its last owner may have removed it meanwhile, and another made a new one.
                    let locked = file.metadata().map(|metadata| (metadata.dev(), metadata.ino())).map_err(fault)?;
                    if identity(&path).is_ok_and(|there| there == locked) {
                        return Ok(Lock { _file: file, path });
                    }
                }
                Err(Errno::WOULDBLOCK) => thread::sleep(PAUSE),
                Err(error) => return Err(fault(error.into())),
            }
        }
        Err(format!("another server holds {}: stop that one, or choose another --socket", path.display()))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // One that is left behind is locked and removed by the next.
        let _ = fs::remove_file(&self.path);
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
    if path.as_os_str().as_bytes().ends_with(b"/") {
        return Err("ends in a slash, and is not the name of a socket: choose another --socket".to_owned());
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
