//! Writes files that get their name only when they are complete.
//!
//! `baker` writes reports with this module, `benchmarker` writes pages and logs, and `zkv` writes dumps. A symbolic
//! link at the path is replaced and not followed, because another user may have created it.

use std::fmt::Display;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use tempfile::NamedTempFile;

use crate::special_file::{is_special, open_special};

/// A new file with a temporary name. [`WholeFile::put_in_place`] renames the file to its final name. If the value is
/// dropped without this call, the file is removed.
pub struct WholeFile {
    file: NamedTempFile,
    folder: File,
    path: PathBuf,
}

impl WholeFile {
    /// Creates an empty file with a temporary name in the folder of `path`. `path` is the final name of the file.
    pub fn beside(path: &Path) -> anyhow::Result<WholeFile> {
        Self::create(path).map_err(|error| write_error(path, &error))
    }

    fn create(path: &Path) -> io::Result<WholeFile> {
        check_is_no_folder(path)?;
        let parent = folder_of(path);
        // `put_in_place` syncs the folder. The folder is opened here, so that a failure to open the folder is reported
        // before the file gets its final name.
        let folder = File::open(parent)?;
        // The process's umask applies to this mode.
        let rights = Permissions::from_mode(0o666);
        let file =
            tempfile::Builder::new().prefix(".zero-kv.").suffix(".tmp").permissions(rights).tempfile_in(parent)?;
        Ok(WholeFile { file, folder, path: path.to_path_buf() })
    }

    pub fn file(&self) -> &File {
        self.file.as_file()
    }

    /// Converts the error of a failed write into an error that names the file and states that it was not written.
    pub fn write_error(&self, error: &io::Error) -> anyhow::Error {
        write_error(&self.path, error)
    }

    /// Syncs the file, gives it its final name, and syncs the folder.
    pub fn put_in_place(self) -> anyhow::Result<()> {
        let WholeFile { file, folder, path } = self;
        file.as_file().sync_all().map_err(|error| write_error(&path, &error))?;
        file.persist(&path).map_err(|error| write_error(&path, &error.error))?;
        folder.sync_all().map_err(|error| {
            let path = path.display();
            anyhow!("{path}: is in place, but its folder cannot be synced: {error}: a power loss may bring the old file back")
        })
    }
}

/// Checks that a file can be written to this path. Programs call this function before long work, because the results
/// would be lost if the file could not be written.
pub fn check_can_be_written(path: &Path) -> anyhow::Result<()> {
    let check = || -> io::Result<()> {
        match is_special(path)? {
            true => Ok(()),
            false => check_is_no_folder(path).and_then(|()| tempfile::tempfile_in(folder_of(path)).map(drop)),
        }
    };
    check().map_err(|error| write_error(path, &error))
}

/// Writes and syncs a file that gets its name only when it is complete. If the path leads to a special file, such as a
/// pipe, writes directly to the special file.
pub fn write_whole(path: &Path, text: &[u8]) -> anyhow::Result<()> {
    if let Some(mut special) = open_special(path).map_err(|error| write_error(path, &error))? {
        return special.write_all(text).with_context(|| path.display().to_string());
    }
    let file = WholeFile::beside(path)?;
    file.file().write_all(text).map_err(|error| file.write_error(&error))?;
    file.put_in_place()
}

fn check_is_no_folder(path: &Path) -> io::Result<()> {
    match path.is_dir() {
        true => Err(io::Error::new(io::ErrorKind::IsADirectory, "is a folder: name a file in it")),
        false => Ok(()),
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns an error that names the file and states that it was not written.
fn write_error(path: &Path, error: &dyn Display) -> anyhow::Error {
    anyhow!("{}: {error}: the file was not written", path.display())
}
