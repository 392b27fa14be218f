//! Checks that no file on the command line has two conflicting roles, such as input and output.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::bail;

/// How a bake uses a file that the command line names.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Role {
    /// An input. The command line may name an input twice, because inputs are only read.
    Input,
    /// A table that the bake reads. The output may have the same path, because the bake first writes the output to
    /// another file.
    Table,
    Output,
    BadRows,
    Report,
}

impl Role {
    /// Returns the name of this role for error messages, and the remedy if the role conflicts with another one.
    fn name_and_remedy(self) -> (&'static str, &'static str) {
        match self {
            Role::Input => ("an input", "pass another file"),
            Role::Table => ("an input table", "pass another file"),
            Role::Output => ("the output", "name another file with -o"),
            Role::BadRows => ("the file of bad rows", "name another file with --bad-rows-file"),
            Role::Report => ("the report", "name another file with --report"),
        }
    }
}

/// A file that the command line names, and its role.
pub(crate) struct NamedFile {
    role: Role,
    name: String,
    identity: FileIdentity,
}

/// Identifies a file, so that different paths to one file compare equal.
#[derive(PartialEq)]
enum FileIdentity {
    File {
        device: u64,
        inode: u64,
    },
    /// The path of a file that does not exist. The path of its folder is canonical.
    Absent(PathBuf),
    /// A terminal or another special file. A special file may have several roles, because it is never replaced.
    Other,
}

impl NamedFile {
    pub(crate) fn new(role: Role, path: &Path) -> NamedFile {
        let identity = match fs::metadata(path) {
            Ok(found) => FileIdentity::new(&found),
            Err(_) => match (path.parent(), path.file_name()) {
                (Some(parent), Some(name)) => {
                    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
                    FileIdentity::Absent(fs::canonicalize(parent).unwrap_or_else(|_| parent.to_path_buf()).join(name))
                }
                _ => FileIdentity::Other,
            },
        };
        NamedFile { role, name: path.display().to_string(), identity }
    }

    pub(crate) fn stdin() -> NamedFile {
        let identity = fs::metadata("/dev/stdin").map_or(FileIdentity::Other, |found| FileIdentity::new(&found));
        NamedFile { role: Role::Input, name: "standard input".to_owned(), identity }
    }
}

impl FileIdentity {
    fn new(found: &Metadata) -> FileIdentity {
        match found.is_file() {
            true => FileIdentity::File { device: found.dev(), inode: found.ino() },
            false => FileIdentity::Other,
        }
    }
}

/// Returns an error if one file has two conflicting roles. An input or a table may be named twice, and a table may also
/// be the output.
pub(crate) fn check_apart(files: &[NamedFile]) -> anyhow::Result<()> {
    for (index, later) in files.iter().enumerate() {
        for first in &files[..index] {
            let only_read = [Role::Input, Role::Table];
            let may_be = match (first.role, later.role) {
                (Role::Table, Role::Output) => true,
                (first, later) => first == later && only_read.contains(&later),
            };
            if first.identity == later.identity && later.identity != FileIdentity::Other && !may_be {
                let (what, remedy) = later.role.name_and_remedy();
                bail!("{}: is also {what}: {remedy}", first.name);
            }
        }
    }
    Ok(())
}
