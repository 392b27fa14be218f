//! The lock file that lets only one server at a time start on a path.
//!
//! In: a socket's path. Out: a lock, or the reason why it cannot be acquired. The lock file is in the socket's
//! directory, where other users may be able to create files. Symbolic links are not followed. Files of users other than
//! root and the server's user are neither locked nor changed.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock, major, minor};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::folder::Folder;

/// How long a server waits for the lock, which another server may hold while it starts.
const WAIT_MAX: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);

const REMEDY: &str = "stop the server that uses it, if there is one, and remove the file, or choose a path in a directory \
                      that only the server's user can write to";

/// A lock that prevents other servers from starting on the same socket path. Without the lock, another server could
/// remove a socket that is bound but does not listen yet, because the socket looks abandoned. Another server could also
/// replace an abandoned socket just before this server removes it, so that this server removes the new socket. Dropping
/// the lock removes the lock file.
pub(super) struct Lock {
    _file: File,
    folder: Folder,
    name: OsString,
}

impl Lock {
    pub(super) fn acquire(socket: &Path) -> Result<Lock, String> {
        Lock::acquire_within(socket, WAIT_MAX)
    }

    fn acquire_within(socket: &Path, wait_max: Duration) -> Result<Lock, String> {
        let mut path = socket.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        let fault = |problem: String| format!("cannot lock {}: {problem}", path.display());
        let (folder, name) = Folder::of(&path).map_err(|error| fault(error.to_string()))?;
        let started = Instant::now();
        loop {
            let file = folder.open_lock_file(&name).map_err(|error| fault(not_opened(&path, &error)))?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    // The previous holder may have removed the file after this server opened it.
                    if folder.has_file(&name, &file).unwrap_or(false) {
                        return Ok(Lock { _file: file, folder, name });
                    }
                }
                Err(Errno::WOULDBLOCK) if started.elapsed() >= wait_max => {
                    let holder = file.metadata().ok().and_then(|found| holder(&found));
                    return Err(fault(held(holder.as_deref().unwrap_or("another process"))));
                }
                Err(Errno::WOULDBLOCK) => thread::sleep(PAUSE),
                Err(error) => return Err(fault(error.to_string())),
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // If the file cannot be removed, the next server locks and removes it.
        let _ = self.folder.remove(&self.name);
    }
}

/// Describes why the lock file could not be opened or created.
fn not_opened(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::InvalidInput => return format!("it {error}: {REMEDY}"),
        io::ErrorKind::PermissionDenied => {}
        _ => return error.to_string(),
    }
    let Ok(found) = fs::symlink_metadata(path) else { return error.to_string() };
    let (owner, ours) = (found.uid(), geteuid().as_raw());
    match holder(&found) {
        Some(holder) => held(&holder),
        None => format!("it belongs to user {owner}, so this server's user {ours} cannot open it: {REMEDY}"),
    }
}

fn held(holder: &str) -> String {
    format!("{holder} holds the lock: stop that process, or choose another path")
}

/// Describes the process and the user that hold the lock on a file. Returns `None` if the system does not list the
/// lock.
fn holder(found: &Metadata) -> Option<String> {
    let place = format!("{:02x}:{:02x}:{}", major(found.dev()), minor(found.dev()), found.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    // An example of a line: `1: FLOCK  ADVISORY  WRITE 4242 fd:01:131077 0 EOF`.
    let pid = locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        (fields.get(1) == Some(&"FLOCK") && fields.get(5) == Some(&place.as_str())).then(|| fields[4].to_owned())
    })?;
    let user = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    Some(format!("process {pid} of user {user}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_and_user_that_hold_the_lock_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s.sock");
        let held = Lock::acquire(&socket).unwrap();
        let error = Lock::acquire_within(&socket, Duration::ZERO).err().unwrap();
        // On a file system with its own device numbers (Btrfs), the error does not name the holder, because /proc/locks
        // lists the lock with a different device number.
        let holder = format!("process {} of user {} holds the lock", std::process::id(), geteuid().as_raw());
        assert!(error.contains(&holder) || error.contains("another process holds the lock"), "{error}");
        // A server of another user cannot even open the lock file.
        let path = folder.path().join("s.sock.lock");
        let denied = || not_opened(&path, &io::ErrorKind::PermissionDenied.into());
        assert_eq!(denied().contains(&holder), error.contains(&holder), "{}", denied());
        drop(held);
        fs::write(&path, "").unwrap();
        let user = geteuid().as_raw();
        let expected =
            format!("it belongs to user {user}, so this server's user {user} cannot open it: stop the server");
        assert!(denied().starts_with(&expected), "{}", denied());
        fs::remove_file(&path).unwrap();
        Lock::acquire_within(&socket, Duration::ZERO).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "no lock file is left");
    }
}
