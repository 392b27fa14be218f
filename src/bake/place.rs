//! Giving a finished file its name, all at once.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, OFlags, linkat};

/// A file that is being written beside the place it is for.
///
/// Where the file system can, it has no name until it is complete, so that
/// nothing is left behind however the process ends. Elsewhere it has a hidden
/// one, which is removed when the bake fails.
pub(super) struct NewFile {
    file: File,
    folder: File,
    path: PathBuf,
    /// The hidden name, while the file has it.
    hidden: Option<PathBuf>,
}

impl NewFile {
    /// Creates an empty file in the folder of `path`.
    pub(super) fn beside(path: &Path) -> io::Result<NewFile> {
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
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // Opened now: a folder that cannot be synced must be known before the file has its name.
        let folder = File::open(parent)?;
        let (file, hidden) = match create_unnamed(parent) {
            Ok(file) => (file, None),
            Err(_) => {
                let options = OpenOptions::new().read(true).write(true).create_new(true).clone();
                let (file, hidden) = under_free_name(path, |hidden| options.open(hidden))?;
                (file, Some(hidden))
            }
        };
        Ok(NewFile { file, folder, path: path.to_path_buf(), hidden })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Waits until the disk has the file, and gives it its name in place of what
    /// had it before. The folder that is given is to be synced.
    pub(super) fn put_in_place(mut self) -> io::Result<File> {
        self.file.sync_all()?;
        let hidden = match self.hidden.take() {
            Some(hidden) => hidden,
            None => {
                let unnamed = proc_path(&self.file);
                let link = |hidden: &Path| Ok(linkat(CWD, &unnamed, CWD, hidden, AtFlags::SYMLINK_FOLLOW)?);
                under_free_name(&self.path, link)?.1
            }
        };
        let hidden = self.hidden.insert(hidden);
        fs::rename(hidden, &self.path)?;
        self.hidden = None;
        self.folder.try_clone()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(hidden) = &self.hidden {
            // Nothing more can be done about a file that cannot be removed; the bake has failed already.
            let _ = fs::remove_file(hidden);
        }
    }
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
    Ok(file)
}

fn proc_path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}
