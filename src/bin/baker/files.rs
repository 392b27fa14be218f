//! Files that a command line names: none of them may be two things at once.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::bail;

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
