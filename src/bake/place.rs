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
    folder: PathBuf,
    path: PathBuf,
    hidden: PathBuf,
    has_name: bool,
}

impl NewFile {
    /// Creates an empty file in the folder of `path`.
    pub(super) fn beside(path: &Path) -> io::Result<NewFile> {
        let invalid = |message: &'static str| io::Error::new(io::ErrorKind::InvalidInput, message);
        let name = path.file_name().ok_or_else(|| invalid("is not the name of a file"))?;
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_dir() => return Err(invalid("is a folder: name a file in it")),
            Ok(found) if !found.is_file() && !found.is_symlink() => {
                return Err(invalid("is not a regular file, and will not be replaced"));
            }
            _ => {}
        }
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
            _ => PathBuf::from("."),
        };
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.tmp", std::process::id()));
        let hidden = folder.join(hidden);
        let (file, has_name) = match create_unnamed(&folder) {
            Ok(file) => (file, false),
            Err(_) => (OpenOptions::new().read(true).write(true).create_new(true).open(&hidden)?, true),
        };
        Ok(NewFile { file, folder, path: path.to_path_buf(), hidden, has_name })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Waits until the disk has the file, gives it its name in place of what had
    /// it before, and waits until the disk has that too.
    pub(super) fn put_in_place(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        if !self.has_name {
            linkat(CWD, proc_path(&self.file), CWD, &self.hidden, AtFlags::SYMLINK_FOLLOW)?;
            self.has_name = true;
        }
        fs::rename(&self.hidden, &self.path)?;
        self.has_name = false;
        File::open(&self.folder)?.sync_all()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if self.has_name {
            // Nothing more can be done about a file that cannot be removed; the bake has failed already.
            let _ = fs::remove_file(&self.hidden);
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
