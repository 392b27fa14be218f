//! Giving a finished file its name, all at once, and removing what killed bakes left.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, OFlags, flock, linkat};
use rustix::io::Errno;

use super::Cancel;

/// A file that is being written beside the place it is for.
///
/// Where the file system can, it has no name until it is complete, so that
/// nothing is left behind however the process ends. Elsewhere it has a hidden
/// one, which is removed when the bake fails. As long as the file is open it is
/// locked (`flock`): a hidden file that is not is nobody's any more.
pub(super) struct NewFile {
    file: File,
    folder: File,
    path: PathBuf,
    /// The hidden name, while the file has it.
    hidden: Option<PathBuf>,
    cancel: Cancel,
}

impl NewFile {
    /// Creates an empty file in the folder of `path`, and removes what killed bakes left there.
    pub(super) fn beside(path: &Path, cancel: &Cancel) -> io::Result<NewFile> {
        let invalid = |message: &'static str| io::Error::new(io::ErrorKind::InvalidInput, message);
        if path.file_name().is_none() {
            return Err(invalid("is not the name of a file"));
        }
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_dir() => return Err(invalid("is a folder: name a file in it")),
            Ok(found) if !found.is_file() && !found.is_symlink() => {
                return Err(invalid("is not a regular file, and will not be replaced"));
            }
            _ => {}
        }
        let parent = folder_of(path);
        sweep(parent);
        match create_unnamed(parent) {
            Ok(file) => Self::new(file, parent, path, None, cancel),
            Err(_) => Self::hidden(parent, path, cancel),
        }
    }

    /// One that has a hidden name from the start.
    fn hidden(parent: &Path, path: &Path, cancel: &Cancel) -> io::Result<NewFile> {
        let mut names = cancel.names();
        let (file, hidden) = under_free_name(path, create_locked)?;
        names.add_hidden(&hidden);
        drop(names);
        Self::new(file, parent, path, Some(hidden), cancel)
    }

    fn new(file: File, parent: &Path, path: &Path, hidden: Option<PathBuf>, cancel: &Cancel) -> io::Result<NewFile> {
        // Opened now: a folder that cannot be synced must be known before the file has its name.
        let folder = File::open(parent)?;
        Ok(NewFile { file, folder, path: path.to_path_buf(), hidden, cancel: cancel.clone() })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Waits until the disk has the file, and gives it its name in place of what
    /// had it before. The folder that is given is to be synced.
    pub(super) fn put_in_place(mut self) -> io::Result<File> {
        self.file.sync_all()?;
        let cancel = self.cancel.clone();
        let mut names = cancel.names();
        if cancel.is_set() {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "stopped"));
        }
        let hidden = match self.hidden.take() {
            Some(hidden) => hidden,
            None => {
                let unnamed = proc_path(&self.file);
                let link = |hidden: &Path| Ok(linkat(CWD, &unnamed, CWD, hidden, AtFlags::SYMLINK_FOLLOW)?);
                let (_, hidden) = under_free_name(&self.path, link)?;
                names.add_hidden(&hidden);
                hidden
            }
        };
        let hidden = self.hidden.insert(hidden);
        fs::rename(&*hidden, &self.path)?;
        names.remove_hidden(hidden);
        names.note_in_place();
        self.hidden = None;
        self.folder.try_clone()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(hidden) = &self.hidden {
            // Nothing more can be done about a file that cannot be removed; the bake has failed already.
            let _ = fs::remove_file(hidden);
            self.cancel.names().remove_hidden(hidden);
        }
    }
}

/// The folder that a file is in.
pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Takes the first hidden name beside `path` that is free. One that is not may
/// belong to a process that was killed, or to one of another container: their
/// process numbers do not tell them apart.
fn under_free_name<T>(path: &Path, take: impl Fn(&Path) -> io::Result<T>) -> io::Result<(T, PathBuf)> {
    const ATTEMPTS: usize = 1000;
    let mut attempt = 0;
    loop {
        // Not made of the file's own name, which may be as long as a name can be.
        let hidden = path.with_file_name(format!(".baker.{}.{attempt}.tmp", std::process::id()));
        attempt += 1;
        match take(&hidden) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < ATTEMPTS => {}
            taken => return Ok((taken?, hidden)),
        }
    }
}

/// Creates a file without a name that can be given one later.
fn create_unnamed(folder: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE.bits().cast_signed();
    let file = OpenOptions::new().read(true).write(true).mode(0o666).custom_flags(flags).open(folder)?;
    // A name is given through /proc, which must be there.
    fs::metadata(proc_path(&file))?;
    // Where nothing can be locked, nothing is removed by others either.
    let _ = lock(&file);
    Ok(file)
}

/// Creates a file that is locked from the moment at which it is known to have its name.
fn create_locked(hidden: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(hidden)?;
    let is_locked_by_other = lock(&file) == Err(Errno::WOULDBLOCK);
    if is_locked_by_other || file.metadata()?.nlink() == 0 {
        // Another bake swept it before it was locked.
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    Ok(file)
}

fn lock(file: &File) -> Result<(), Errno> {
    flock(file, FlockOperation::NonBlockingLockExclusive)
}

/// Removes the hidden files of bakes that were killed. What cannot be removed stays, and is in nobody's way.
fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(is_hidden_name) {
            let _ = remove_left_behind(&entry.path());
        }
    }
}

fn remove_left_behind(hidden: &Path) -> io::Result<()> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(hidden)?;
    lock(&file)?;
    let (locked, named) = (file.metadata()?, fs::symlink_metadata(hidden)?);
    // Its bake may have put it in place before it was locked here, and another may have the name now.
    if locked.is_file() && (locked.dev(), locked.ino()) == (named.dev(), named.ino()) {
        fs::remove_file(hidden)?;
    }
    Ok(())
}

/// As [`under_free_name`] makes them.
fn is_hidden_name(name: &str) -> bool {
    let numbers = name.strip_prefix(".baker.").and_then(|name| name.strip_suffix(".tmp"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.and_then(|numbers| numbers.split_once('.')).is_some_and(|(pid, n)| is_number(pid) && is_number(n))
}

fn proc_path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
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

    #[test]
    fn a_hidden_file_that_nobody_works_on_is_removed_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("storage.db");
        let others = [".baker.1.tmp", ".baker.x.0.tmp", ".baker.1.0.tmp.old", "baker.1.0.tmp", ".baker.1.2.3.tmp"];
        for name in others.iter().chain(&[".baker.1.0.tmp", ".baker.4194304.999.tmp"]) {
            fs::write(folder.path().join(name), "left").unwrap();
        }
        fs::create_dir(folder.path().join(".baker.2.0.tmp")).unwrap();
        std::os::unix::fs::symlink("nowhere", folder.path().join(".baker.3.0.tmp")).unwrap();
        let at_work = NewFile::hidden(folder.path(), &path, &Cancel::default()).unwrap();
        let hidden = at_work.hidden.clone().unwrap();
        sweep(folder.path());
        let hidden_name = hidden.file_name().unwrap().to_str().unwrap();
        let mut expected: Vec<&str> = [".baker.2.0.tmp", ".baker.3.0.tmp", hidden_name].into();
        expected.extend(others);
        expected.sort_unstable();
        assert_eq!(names(folder.path()), expected);
        drop(at_work);
        assert!(!hidden.exists(), "a bake that fails removes its own");
    }

    #[test]
    fn a_file_with_a_hidden_name_is_put_in_place_beside_others_at_work() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("storage.db");
        let cancel = Cancel::default();
        let one = NewFile::hidden(folder.path(), &path, &cancel).unwrap();
        let two = NewFile::hidden(folder.path(), &path, &cancel).unwrap();
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
                true => NewFile::hidden(folder.path(), &path, &cancel),
                false => NewFile::beside(&path, &cancel),
            };
            let file = file.unwrap();
            assert!(cancel.abandon(), "nothing is in place");
            assert_eq!(names(folder.path()), [""; 0]);
            assert_eq!(file.put_in_place().unwrap_err().kind(), io::ErrorKind::Interrupted);
            assert_eq!(names(folder.path()), [""; 0]);
        }
        let folder = tempfile::tempdir().unwrap();
        let cancel = Cancel::default();
        NewFile::beside(&folder.path().join("storage.db"), &cancel).unwrap().put_in_place().unwrap();
        assert!(!cancel.abandon(), "one is in place");
        assert_eq!(names(folder.path()), ["storage.db"]);
    }
}
