//! Whether there is another file at a path.
//!
//! In: a path. Out: what the file there can be told by, and a call whenever
//! something happens in its folder. Missed events do no harm: whoever is called
//! looks for himself, and does so from time to time anyway.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use notify::{EventKind, RecursiveMode, Watcher};

/// The system tells the time of a change in steps of up to 10 ms, so two changes
/// within one cannot be told apart: a file is only looked at when it is older.
/// Whoever writes to a file goes on within this time, as a rule.
pub(super) const SETTLE: Duration = Duration::from_millis(50);

/// What a file's contents at a time can be told by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
    len_bytes: u64,
    modified: SystemTime,
}

impl Identity {
    /// Of the file at a path.
    pub(super) fn at(path: &Path) -> io::Result<Identity> {
        std::fs::metadata(path).and_then(|metadata| Identity::of(&metadata))
    }

    /// Of an open file.
    pub(super) fn of_file(file: &File) -> io::Result<Identity> {
        file.metadata().and_then(|metadata| Identity::of(&metadata))
    }

    fn of(metadata: &Metadata) -> io::Result<Identity> {
        let (device, inode, len_bytes) = (metadata.dev(), metadata.ino(), metadata.len());
        Ok(Identity { device, inode, len_bytes, modified: metadata.modified()? })
    }

    /// Whether it is the same file, whatever is in it.
    pub(super) fn is_same_file(&self, other: &Identity) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// How long to wait until it is [`SETTLE`] old. A time that lies ahead tells
    /// nothing.
    pub(super) fn unsettled(&self) -> Option<Duration> {
        let age = SystemTime::now().duration_since(self.modified).ok()?;
        SETTLE.checked_sub(age).filter(|left| !left.is_zero())
    }
}

/// A file at a path, and when it, its rights or its names last changed: whoever was
/// refused it may have it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tried {
    identity: Identity,
    changed: (i64, i64),
}

impl Tried {
    pub(super) fn at(path: &Path) -> io::Result<Tried> {
        let metadata = std::fs::metadata(path)?;
        Ok(Tried { identity: Identity::of(&metadata)?, changed: (metadata.ctime(), metadata.ctime_nsec()) })
    }
}

/// Calls whenever something changes in the folders where a file is, until it is
/// dropped.
pub(super) struct FolderWatch {
    _watcher: notify::RecommendedWatcher,
}

impl FolderWatch {
    /// Of the folder of a path, and, if it is a symbolic link, of the one where it
    /// leads.
    pub(super) fn new(path: &Path, call: impl Fn() + Send + 'static) -> notify::Result<FolderWatch> {
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Looking at a file is no change, and we look ourselves.
            if !event.is_ok_and(|event| matches!(event.kind, EventKind::Access(notify::event::AccessKind::Open(_)))) {
                call();
            }
        })?;
        for folder in folders(path) {
            watcher.watch(&folder, RecursiveMode::NonRecursive)?;
        }
        Ok(FolderWatch { _watcher: watcher })
    }
}

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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_file_put_in_place_is_noticed_wherever_a_link_leads() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().join("real");
        std::fs::create_dir(&real).unwrap();
        std::fs::write(real.join("a.db"), "old").unwrap();
        symlink(real.join("a.db"), folder.path().join("link.db")).unwrap();
        for path in [real.join("a.db"), folder.path().join("link.db")] {
            let before = Identity::at(&path).unwrap();
            let (sender, called) = mpsc::channel();
            let call = move || {
                let _ = sender.send(());
            };
            let _watch = FolderWatch::new(&path, call).unwrap();
            std::fs::write(real.join("new"), "new").unwrap();
            std::fs::rename(real.join("new"), real.join("a.db")).unwrap();
            while Identity::at(&path).unwrap() == before {
                called.recv().unwrap();
            }
            called.recv_timeout(Duration::from_secs(60)).unwrap();
        }
    }

    #[test]
    fn a_file_is_settled_when_it_is_old_enough() {
        let file = tempfile::tempfile().unwrap();
        let unsettled = |modified| {
            file.set_modified(modified).unwrap();
            Identity::of_file(&file).unwrap().unsettled()
        };
        let now = SystemTime::now();
        assert_eq!(unsettled(now - Duration::from_secs(1)), None);
        assert_eq!(unsettled(now + Duration::from_secs(100)), None);
        assert!(unsettled(SystemTime::now()).is_none_or(|left| left <= SETTLE));
    }
}
