//! Creates new files, renames finished files to their final paths, and removes the files that killed bakes left behind.
//!
//! The [`Cancel`] handle also records the hidden names of unfinished files, and whether a bake has replaced its output.
//! A process that must exit during a bake can therefore remove these files and report whether the table was replaced.
//!
//! Reasons and evidence: `docs/decisions/unnamed-files.md`.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::folder::{Folder, proc_path, random_number, with_free_name};
use crate::progress::WithProgress;

/// A file that is being written, in the folder of its final path.
///
/// If the file system supports unnamed files, the file has no name until it is complete. The system removes an unnamed
/// file when the process ends, even if the process is killed. If the file system does not support unnamed files, the
/// file has a hidden name, and the bake removes the file on failure. A bake locks its file (`flock`), so an unlocked
/// hidden file belongs to no running bake.
pub(super) struct NewFile {
    file: File,
    folder: Arc<Folder>,
    /// The open folder, which is synced in the end.
    to_sync: File,
    name: OsString,
    /// The hidden name, as long as the file has one.
    hidden: Option<String>,
    cancel: Cancel,
}

impl NewFile {
    /// Creates an empty file in the folder of `path`, and removes the files that killed bakes left there.
    pub(super) fn beside(path: &Path, cancel: &Cancel) -> io::Result<NewFile> {
        let (folder, name) = Folder::of(path)?;
        folder.check_replaceable(&name)?;
        remove_files_of_killed_bakes(&folder);
        // Opens the folder first, so that no file is created in a folder that cannot be opened and synced.
        let (to_sync, folder) = (folder.to_sync()?, Arc::new(folder));
        let (file, hidden) = match create_unnamed(&folder) {
            Ok(file) => (file, None),
            Err(_) => {
                let (file, hidden) = create_hidden(&folder, cancel)?;
                (file, Some(hidden))
            }
        };
        Ok(NewFile { file, folder, to_sync, name, hidden, cancel: cancel.clone() })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Puts the file in place: see [`put_all_in_place`].
    pub(super) fn put_in_place(self) -> Result<(), PlaceError> {
        put_all_in_place(vec![self]).map_err(|(_, error)| error)
    }

    /// Gives the file a hidden name, unless it has one, because a link cannot replace a file, but a rename can.
    fn link(&mut self, names: &mut FileNames) -> io::Result<()> {
        if self.hidden.is_none() {
            let link = |hidden: &str| self.folder.link_unnamed(&self.file, hidden.as_ref());
            let (_, hidden) = with_free_hidden_name(link)?;
            names.hidden.push((Arc::clone(&self.folder), hidden.clone()));
            self.hidden = Some(hidden);
        }
        Ok(())
    }

    fn rename(&mut self, names: &mut FileNames) -> io::Result<()> {
        let hidden = self.hidden.as_deref().unwrap_or_default();
        self.folder.rename(hidden, &self.name)?;
        names.forget(&self.folder, hidden);
        names.is_in_place = true;
        self.hidden = None;
        Ok(())
    }
}

/// Syncs the files of one bake, renames them to their final paths, and syncs their folder. If the power fails during
/// the call, each path then has either the old file or the new file. If the power fails after a successful call, each
/// path has the new file.
///
/// All renames follow what is likely to fail, and no cancellation stops them. An error comes with the number of files
/// that were renamed.
pub(super) fn put_all_in_place(mut files: Vec<NewFile>) -> Result<(), (usize, PlaceError)> {
    let unplaced = |error| (0, PlaceError::Unplaced(error));
    for file in &files {
        file.folder.keep_rights(&file.name, &file.file).and_then(|()| file.file.sync_all()).map_err(unplaced)?;
    }
    let Some(cancel) = files.first().map(|file| file.cancel.clone()) else { return Ok(()) };
    {
        // The lock is held until the last rename, so that `abandon` knows whether the output was replaced.
        let mut names = cancel.names();
        if cancel.is_set() {
            return Err(unplaced(io::Error::new(io::ErrorKind::Interrupted, "stopped")));
        }
        files.iter_mut().try_for_each(|file| file.link(&mut names)).map_err(unplaced)?;
        for (placed, file) in files.iter_mut().enumerate() {
            file.rename(&mut names).map_err(|error| (placed, PlaceError::Unplaced(error)))?;
        }
    }
    files[0].to_sync.sync_all().map_err(|error| (files.len(), PlaceError::FolderSync(error)))
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(hidden) = &self.hidden {
            // The bake has failed already, so an error here changes nothing.
            let _ = self.folder.remove(hidden);
            self.cancel.names().forget(&self.folder, hidden);
        }
    }
}

/// The reason why [`NewFile::put_in_place`] failed.
#[derive(Debug)]
pub(super) enum PlaceError {
    /// The file was not renamed: the path still has the old file, if there was one.
    Unplaced(io::Error),
    /// The file has its final path, but a power loss may bring the old file back, because the folder was not synced.
    FolderSync(io::Error),
}

/// Calls `take` with random hidden names until one is not in use. A hidden name contains the process ID, for people.
fn with_free_hidden_name<T>(take: impl Fn(&str) -> io::Result<T>) -> io::Result<(T, String)> {
    // The hidden name does not contain the file's own name, which may already have the maximum length.
    with_free_name(|| format!(".baker.{}.{}.tmp", std::process::id(), random_number()), take)
}

/// Creates a file without a name, and checks that it can be linked to a name later.
fn create_unnamed(folder: &Folder) -> io::Result<File> {
    let file = folder.create_unnamed()?;
    // The file is linked through /proc, so /proc must be mounted.
    fs::metadata(proc_path(&file))?;
    // Ignores the error of a file system without locks: other bakes cannot lock the file either, so they do not remove
    // it.
    let _ = lock(&file);
    Ok(file)
}

/// Creates a file with a hidden name, for file systems that do not support unnamed files.
fn create_hidden(folder: &Arc<Folder>, cancel: &Cancel) -> io::Result<(File, String)> {
    let mut names = cancel.names();
    let (file, hidden) = with_free_hidden_name(|hidden| create_locked(folder, hidden))?;
    names.hidden.push((Arc::clone(folder), hidden.clone()));
    Ok((file, hidden))
}

/// Creates and locks a file with a hidden name. Returns `AlreadyExists` if the name is in use, or if another bake locks
/// or removes the file first.
fn create_locked(folder: &Folder, hidden: &str) -> io::Result<File> {
    let file = folder.create(hidden)?;
    let is_locked_by_other = lock(&file) == Err(Errno::WOULDBLOCK);
    match folder.has_file(hidden, &file) {
        Ok(true) if !is_locked_by_other => Ok(file),
        Err(error) if !is_locked_by_other && error.kind() != io::ErrorKind::NotFound => {
            let _ = folder.remove(hidden);
            Err(error)
        }
        _ => Err(io::ErrorKind::AlreadyExists.into()),
    }
}

fn lock(file: &File) -> Result<(), Errno> {
    flock(file, FlockOperation::NonBlockingLockExclusive)
}

/// Removes the hidden files of killed bakes. Errors are ignored, because a leftover file does no harm.
fn remove_files_of_killed_bakes(folder: &Folder) {
    for name in folder.names().into_iter().flatten() {
        if let Some(name) = name.to_str().filter(|name| is_hidden_name(name)) {
            let _ = remove_left_behind(folder, name);
        }
    }
}

fn remove_left_behind(folder: &Folder, hidden: &str) -> io::Result<()> {
    let file = folder.open_file(hidden)?;
    lock(&file)?;
    // The bake that wrote the file may have renamed the file before this function locked it, so another file may have
    // the hidden name now.
    if folder.has_file(hidden, &file)? {
        folder.remove(hidden)?;
    }
    Ok(())
}

/// Returns whether `name` has the form of the names that [`with_free_hidden_name`] generates.
fn is_hidden_name(name: &str) -> bool {
    let numbers = name.strip_prefix(".baker.").and_then(|name| name.strip_suffix(".tmp"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.and_then(|numbers| numbers.split_once('.')).is_some_and(|(pid, n)| is_number(pid) && is_number(n))
}

/// A handle that cancels bakes. All clones of a handle cancel the same bakes.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<CancelState>);

#[derive(Debug, Default)]
struct CancelState {
    is_set: AtomicBool,
    names: Mutex<FileNames>,
}

/// The hidden names of unfinished files, and whether a bake has replaced its output. A bake holds the lock on this
/// struct while it renames a file.
#[derive(Debug, Default)]
pub(super) struct FileNames {
    pub(super) hidden: Vec<(Arc<Folder>, String)>,
    pub(super) is_in_place: bool,
}

impl FileNames {
    pub(super) fn forget(&mut self, folder: &Arc<Folder>, hidden: &str) {
        self.hidden.retain(|(other, name)| !Arc::ptr_eq(other, folder) || name != hidden);
    }
}

impl Cancel {
    /// Cancels all bakes that use this handle: each fails with [`BakeError::Canceled`](super::BakeError::Canceled) at
    /// its next check. A bake checks the handle at every piece of the input, while it verifies the checksums of old
    /// tables, while it merges and writes rows, while it reads the new file back, and between stages. A bake cannot be
    /// interrupted while it sorts a run, builds the index, or waits for the input or the disk.
    pub fn set(&self) {
        self.0.is_set.store(true, Ordering::Relaxed);
    }

    /// Returns whether [`Cancel::set`] was called.
    pub fn is_set(&self) -> bool {
        self.0.is_set.load(Ordering::Relaxed)
    }

    /// Adds a function that a transfer calls with each event of its progress: see [`crate::publish`].
    pub fn with_progress<'a, E>(&'a self, progress: &'a mut (dyn FnMut(E) + Send)) -> WithProgress<'a, Cancel, E> {
        WithProgress::new(self, progress)
    }

    /// Cancels all bakes that use this handle and removes their hidden files, so that the process can exit without
    /// waiting for the bakes. After this call, no bake replaces its output. Returns true if no bake had replaced its
    /// output before the call.
    pub fn abandon(&self) -> bool {
        self.set();
        let mut names = self.names();
        for (folder, hidden) in names.hidden.drain(..) {
            // The process is about to end, so an error here changes nothing.
            let _ = folder.remove(hidden);
        }
        !names.is_in_place
    }

    pub(super) fn names(&self) -> MutexGuard<'_, FileNames> {
        self.0.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Creates a file as on a file system without unnamed files.
    fn hidden(path: &Path, cancel: &Cancel) -> NewFile {
        let mut new = NewFile::beside(path, cancel).unwrap();
        let (file, hidden) = create_hidden(&new.folder, cancel).unwrap();
        (new.file, new.hidden) = (file, Some(hidden));
        new
    }

    #[test]
    fn only_hidden_files_of_killed_bakes_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("storage.db");
        let others = [".baker.1.tmp", ".baker.x.0.tmp", ".baker.1.0.tmp.old", "baker.1.0.tmp", ".baker.1.2.3.tmp"];
        for name in others.iter().chain(&[".baker.1.0.tmp", ".baker.4194304.999.tmp"]) {
            fs::write(folder.path().join(name), "left").unwrap();
        }
        fs::create_dir(folder.path().join(".baker.2.0.tmp")).unwrap();
        std::os::unix::fs::symlink("nowhere", folder.path().join(".baker.3.0.tmp")).unwrap();
        let running = hidden(&path, &Cancel::default());
        let hidden = running.hidden.clone().unwrap();
        remove_files_of_killed_bakes(&running.folder);
        let hidden_name = hidden.as_str();
        let mut expected: Vec<&str> = [".baker.2.0.tmp", ".baker.3.0.tmp", hidden_name].into();
        expected.extend(others);
        expected.sort_unstable();
        assert_eq!(names(folder.path()), expected);
        drop(running);
        assert!(!folder.path().join(hidden).exists(), "a failed bake removes its file");
    }

    #[test]
    fn a_file_with_a_hidden_name_is_put_in_place_while_other_bakes_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("storage.db");
        let cancel = Cancel::default();
        let [one, two] = [hidden(&path, &cancel), hidden(&path, &cancel)];
        let three = NewFile::beside(&path, &cancel).unwrap();
        assert_ne!(one.hidden, two.hidden);
        one.put_in_place().unwrap();
        two.put_in_place().unwrap();
        three.put_in_place().unwrap();
        assert_eq!(names(folder.path()), ["storage.db"]);
    }

    #[test]
    fn an_abandoned_bake_leaves_nothing_and_puts_nothing_in_place() {
        for is_hidden in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("storage.db");
            let cancel = Cancel::default();
            let file = match is_hidden {
                true => hidden(&path, &cancel),
                false => NewFile::beside(&path, &cancel).unwrap(),
            };
            assert!(cancel.abandon(), "nothing is in place");
            assert_eq!(names(folder.path()), [""; 0]);
            let error = file.put_in_place().unwrap_err();
            assert!(
                matches!(&error, PlaceError::Unplaced(error) if error.kind() == io::ErrorKind::Interrupted),
                "{error:?}"
            );
            assert_eq!(names(folder.path()), [""; 0]);
        }
        let folder = tempfile::tempdir().unwrap();
        let cancel = Cancel::default();
        NewFile::beside(&folder.path().join("storage.db"), &cancel).unwrap().put_in_place().unwrap();
        assert!(!cancel.abandon(), "the file is in place");
        assert_eq!(names(folder.path()), ["storage.db"]);
    }
}
