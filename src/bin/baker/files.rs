//! Files that a command line names: none of them may be two things at once.

use std::fs::{self, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::whole_file::{WholeFile, folder_of, unwritten};

/// What a file is named for.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Role {
    /// It is only read; one may be named twice.
    Input,
    /// Its place is taken by a new file while it can still be read, so it may be the output.
    Table,
    Output,
    BadRows,
    Report,
}

impl Role {
    /// What it is, and how to name another.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Role::Input => ("an input", "give another"),
            Role::Table => ("a table to be read", "give another"),
            Role::Output => ("the output", "name another file with -o"),
            Role::BadRows => ("the file of bad rows", "name another with --bad-rows-file"),
            Role::Report => ("the report", "name another file with --report"),
        }
    }
}

/// A file that is named.
pub(crate) struct Named {
    role: Role,
    name: String,
    is: Is,
}

/// What tells files apart.
#[derive(PartialEq)]
enum Is {
    File {
        device: u64,
        inode: u64,
    },
    /// There is none yet: its folder, and its name there.
    Absent(PathBuf),
    /// A terminal or the like, which takes what it is given.
    Other,
}

impl Named {
    pub(crate) fn new(role: Role, path: &Path) -> Named {
        let is = match fs::metadata(path) {
            Ok(found) => Is::of(&found),
            Err(_) => match (path.parent(), path.file_name()) {
                (Some(parent), Some(name)) => {
                    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
                    Is::Absent(fs::canonicalize(parent).unwrap_or_else(|_| parent.to_path_buf()).join(name))
                }
                _ => Is::Other,
            },
        };
        Named { role, name: path.display().to_string(), is }
    }

    pub(crate) fn stdin() -> Named {
        let is = fs::metadata("/dev/stdin").map_or(Is::Other, |found| Is::of(&found));
        Named { role: Role::Input, name: "standard input".to_owned(), is }
    }
}

impl Is {
    fn of(found: &Metadata) -> Is {
        match found.is_file() {
            true => Is::File { device: found.dev(), inode: found.ino() },
            false => Is::Other,
        }
    }
}

/// An error if two of them are the same file and may not be.
pub(crate) fn check_apart(files: &[Named]) -> anyhow::Result<()> {
    for (index, later) in files.iter().enumerate() {
        for first in &files[..index] {
            let only_read = [Role::Input, Role::Table];
            let may_be = match (first.role, later.role) {
                (Role::Table, Role::Output) => true,
                (first, later) => first == later && only_read.contains(&later),
            };
            if first.is == later.is && later.is != Is::Other && !may_be {
                let (what, remedy) = later.role.words();
                bail!("{}: is also {what}: {remedy}", first.name);
            }
        }
    }
    Ok(())
}

/// Fails if no file can be put in place at this path. A bake calls it first, for at its end it would be too late.
pub(crate) fn check_can_be_written(path: &Path) -> anyhow::Result<()> {
    if is_written_to(path) {
        return Ok(());
    }
    let checked = match path.is_dir() {
        true => Err(io::Error::new(io::ErrorKind::IsADirectory, "is a folder: name a file in it")),
        false => tempfile::tempfile_in(folder_of(path)).map(drop),
    };
    checked.map_err(|error| unwritten(path, &error))
}

/// Writes a file that appears complete or not at all, and syncs it.
pub(crate) fn write_whole(path: &Path, text: &[u8]) -> anyhow::Result<()> {
    if is_written_to(path) {
        let written = fs::OpenOptions::new().write(true).open(path).and_then(|mut file| file.write_all(text));
        return written.with_context(|| path.display().to_string());
    }
    let file = WholeFile::beside(path)?;
    file.file().write_all(text).map_err(|error| file.unwritten(&error))?;
    file.put_in_place()
}

/// Whether it is a terminal, a pipe or the like, which no file may replace.
fn is_written_to(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}
