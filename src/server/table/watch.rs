//! Detects a new file at a path, and changes of the served file.
//!
//! In: a path, and SIGIO, which the kernel sends when a process tries to open a leased file for writing. Out: the
//! identity of the file at the path, a call whenever something changes in the folder of the path, and renewed and
//! released leases. A lost event does no harm, because the path is also checked periodically.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, SystemTime};

use notify::{EventKind, RecursiveMode, Watcher};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use signal_hook::consts::SIGIO;
use signal_hook::low_level::pipe;
use tracing::warn;

use crate::server::process::liveness::{LEASES, Thread, beat_every};
use crate::store::{RENEW_LEASES_EVERY, renew_leases, take_leases, unsettled_for};

/// Identifies a file and its contents. A file that is replaced or changed gets another identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
    len_bytes: u64,
    pub(super) modified: SystemTime,
}

impl Identity {
    pub(super) fn at(path: &Path) -> io::Result<Identity> {
        std::fs::metadata(path).and_then(|metadata| Identity::from_metadata(&metadata))
    }

    pub(super) fn from_file(file: &File) -> io::Result<Identity> {
        file.metadata().and_then(|metadata| Identity::from_metadata(&metadata))
    }

    fn from_metadata(metadata: &Metadata) -> io::Result<Identity> {
        let (device, inode, len_bytes) = (metadata.dev(), metadata.ino(), metadata.len());
        Ok(Identity { device, inode, len_bytes, modified: metadata.modified()? })
    }

    /// Returns whether both identities belong to the same file. Its contents may differ.
    pub(super) fn is_same_file(&self, other: &Identity) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// Returns how long to wait before the file is opened, or `None` if no wait is needed. After the wait, every
    /// further change of the file changes its identity, and a process that was writing to the file has probably
    /// finished.
    pub(super) fn unsettled(&self) -> Option<Duration> {
        unsettled_for(self.modified, SystemTime::now())
    }
}

/// The identity of a file at a path, and the time when the file's contents, permissions, or names last changed. Because
/// of this time, a file that was rejected for its permissions is tried again after the permissions change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) struct FileVersion {
    identity: Identity,
    changed: (i64, i64),
}

impl FileVersion {
    /// Returns how long to wait before the file is opened: see [`Identity::unsettled`].
    pub(in crate::server) fn unsettled(&self) -> Option<Duration> {
        self.identity.unsettled()
    }

    /// Returns whether this is a version of the file with this identity.
    pub(super) fn is_of(&self, identity: &Identity) -> bool {
        self.identity == *identity
    }

    pub(in crate::server) fn at(path: &Path) -> io::Result<FileVersion> {
        let metadata = std::fs::metadata(path)?;
        Ok(FileVersion {
            identity: Identity::from_metadata(&metadata)?,
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

/// Returns whether a path is the mount of a single file that has no name any more, because it was replaced or removed
/// where it was mounted from. Such a path shows the old file until it is mounted again, and never a new one. Returns
/// false before Linux 5.8, which does not report mounts.
pub(super) fn is_stale_mount(path: &Path) -> bool {
    let needed = StatxFlags::NLINK | StatxFlags::MNT_ID;
    let found = |path: &Path| {
        statx(CWD, path, AtFlags::empty(), needed).ok().filter(|found| found.stx_mask & needed.bits() == needed.bits())
    };
    // The link count of other files at a path is at least 1, except on some file systems of other machines.
    let Some(file) = found(path).filter(|file| file.stx_nlink == 0) else { return false };
    folders(path).last().and_then(|folder| found(folder)).is_some_and(|folder| folder.stx_mnt_id != file.stx_mnt_id)
}

/// Calls a function whenever something changes in the watched folders, until this value is dropped.
pub(in crate::server) struct FolderWatch {
    _watcher: notify::RecommendedWatcher,
}

impl FolderWatch {
    /// Watches the folder of a path, and, if the path is a symbolic link, also the folder of its target. Records the
    /// liveness of the watching thread in `thread`. A panic of `call` does not end the watching thread.
    pub(in crate::server) fn new(
        path: &Path,
        thread: &Arc<Thread>,
        call: impl Fn() + Send + 'static,
    ) -> notify::Result<FolderWatch> {
        let end = EndReport(Arc::clone(thread));
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Opening a file is not a change, and the checks themselves open the file.
            if !event.is_ok_and(|event| matches!(event.kind, EventKind::Access(notify::event::AccessKind::Open(_)))) {
                let _ = end.0.catch(&call);
            }
        })?;
        for folder in folders(path) {
            watcher.watch(&folder, RecursiveMode::NonRecursive)?;
        }
        thread.started();
        Ok(FolderWatch { _watcher: watcher })
    }
}

/// Records the end of a thread when the thread drops this value.
struct EndReport(Arc<Thread>);

impl Drop for EndReport {
    fn drop(&mut self) {
        self.0.ended();
    }
}

/// Returns the folder of a path, and, if the path is a symbolic link, also the folder of its target.
fn folders(path: &Path) -> Vec<PathBuf> {
    let folder_of = |path: &Path| match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_path_buf(),
        _ => PathBuf::from("."),
    };
    let mut folders = vec![folder_of(path)];
    if let Ok(real) = path.canonicalize() {
        let there = folders[0].canonicalize().ok();
        let real_folder = folder_of(&real);
        if there.is_none_or(|there| there != real_folder) {
            folders.push(real_folder);
        }
    }
    folders
}

/// Starts the thread that renews leases, and enables leases on served files for as long as the process runs. Later
/// calls have no effect.
pub(in crate::server) fn start_leases() {
    static STARTED: OnceLock<()> = OnceLock::new();
    STARTED.get_or_init(|| {
        if let Err(error) = start_lease_thread() {
            warn!("files cannot be leased: {error}: the server calls fstat after every batch instead");
        }
    });
}

fn start_lease_thread() -> io::Result<()> {
    let (mut signals, sender) = UnixStream::pair()?;
    pipe::register(SIGIO, sender)?;
    signals.set_read_timeout(Some(RENEW_LEASES_EVERY.min(beat_every(sd_notify::watchdog_enabled()))))?;
    thread::Builder::new().name("leases".to_owned()).spawn(move || {
        LEASES.started();
        loop {
            LEASES.beat();
            // Waits for a signal, or until leases must be renewed. One call of `renew_leases` handles all signals that
            // have arrived.
            let _ = signals.read(&mut [0; 64]);
            let _ = LEASES.catch(renew_leases);
        }
    })?;
    take_leases();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::mpsc::{self, Receiver};

    use super::*;
    use crate::server::process::liveness::Liveness;
    use crate::server::process::panics;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Watches a path. The receiver gets a message for each call.
    fn watch(path: &Path, thread: &Arc<Thread>) -> (FolderWatch, Receiver<()>) {
        let (sender, called) = mpsc::channel();
        let call = move || {
            let _ = sender.send(());
        };
        (FolderWatch::new(path, thread, call).unwrap(), called)
    }

    #[test]
    fn a_renamed_file_is_detected_directly_and_through_a_symbolic_link() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().join("real");
        std::fs::create_dir(&real).unwrap();
        std::fs::write(real.join("a.db"), "old").unwrap();
        symlink(real.join("a.db"), folder.path().join("link.db")).unwrap();
        for path in [real.join("a.db"), folder.path().join("link.db")] {
            let before = Identity::at(&path).unwrap();
            let (_watch, called) = watch(&path, &Liveness::new(1, false).folder_watch);
            std::fs::write(real.join("new"), "new").unwrap();
            std::fs::rename(real.join("new"), real.join("a.db")).unwrap();
            while Identity::at(&path).unwrap() == before {
                called.recv().unwrap();
            }
            called.recv_timeout(PATIENCE).unwrap();
        }
    }

    #[test]
    fn panics_of_the_watching_thread_are_reported_and_the_next_change_is_detected() {
        const PANICS: u64 = 3;
        panics::install_hook();
        let (folder, liveness) = (tempfile::tempdir().unwrap(), Liveness::new(1, false));
        let thread = &liveness.folder_watch;
        let [path, last] = ["a.db", "last"].map(|name| folder.path().join(name));
        let (sender, called) = mpsc::channel();
        let call = {
            let (thread, last) = (Arc::clone(thread), last.clone());
            move || {
                let _ = sender.send(last.exists());
                assert!(thread.panics() == PANICS, "injected");
            }
        };
        let _watch = FolderWatch::new(&path, thread, call).unwrap();
        while thread.panics() < PANICS {
            std::fs::write(&path, "new").unwrap();
            called.recv_timeout(PATIENCE).expect("the thread continues after a panic");
        }
        let problems = liveness.problems();
        let expected = "the folder watch thread has panicked 3 times, most recently at src/";
        assert!(problems.len() == 1 && problems[0].starts_with(expected), "{problems:?}");
        assert!(problems[0].ends_with(": injected"), "{problems:?}");
        std::fs::write(&last, "new").unwrap();
        while !called.recv_timeout(PATIENCE).expect("the thread continues after the last panic") {}
        assert_eq!(thread.panics(), PANICS);
    }
}
