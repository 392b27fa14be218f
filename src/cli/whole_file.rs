//! Writes files that get their name only when they are complete.
//!
//! `baker` writes reports with this module, `benchmarker` writes pages and logs, and `zkv` writes dumps and topologies.
//! A symbolic link at the path is replaced and not followed, because another user may have created it.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};

use crate::folder::{Folder, NewFile};
use crate::special_file::{is_special, open_special};

/// A new file without its name, which [`WholeFile::put_in_place`] gives it. If the value is dropped without this call,
/// the file is removed.
pub struct WholeFile {
    new: NewFile,
    name: OsString,
    /// The open folder, which is synced in the end.
    to_sync: File,
    path: PathBuf,
}

impl WholeFile {
    /// Creates an empty file in the folder of `path`. `path` is the final name of the file.
    pub fn beside(path: &Path) -> anyhow::Result<WholeFile> {
        Self::create(path).map_err(|error| write_error(path, &error))
    }

    fn create(path: &Path) -> io::Result<WholeFile> {
        check_is_no_folder(path)?;
        let (folder, name) = Folder::of(path)?;
        folder.check_replaceable(&name)?;
        // `put_in_place` syncs the folder. The folder is opened here, so that a failure to open the folder is reported
        // before the file gets its final name.
        let to_sync = folder.to_sync()?;
        Ok(WholeFile { new: folder.new_file()?, name, to_sync, path: path.to_path_buf() })
    }

    pub fn file(&self) -> &File {
        self.new.file()
    }

    /// Converts the error of a failed write into an error that names the file and states that it was not written.
    pub fn write_error(&self, error: &io::Error) -> anyhow::Error {
        write_error(&self.path, error)
    }

    /// Syncs the file, gives it its final name, and syncs the folder.
    pub fn put_in_place(self) -> anyhow::Result<()> {
        let WholeFile { new, name, to_sync, path } = self;
        let kept = new.folder().keep_rights(&name, new.file());
        let placed = kept.and_then(|()| new.file().sync_all()).and_then(|()| new.replace(&name));
        placed.map_err(|error| write_error(&path, &error))?;
        to_sync.sync_all().map_err(|error| {
            let path = path.display();
            anyhow!(
                "{path}: is in place, but its folder cannot be synced: {error}: a power loss may bring the old \
                     file back"
            )
        })
    }
}

/// Checks that a file can be written to this path. Programs call this function before long work, because the results
/// would be lost if the file could not be written.
pub fn check_can_be_written(path: &Path) -> anyhow::Result<()> {
    let check = || -> io::Result<()> {
        match is_special(path)? {
            true => Ok(()),
            false => WholeFile::create(path).map(drop),
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

/// Returns an error that names the file and states that it was not written.
fn write_error(path: &Path, error: &dyn Display) -> anyhow::Error {
    anyhow!("{}: {error}: the file was not written", path.display())
}
