//! Copies of programs.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// A copy of a program that every user can run, in a folder of its own. Other users may not reach the program itself, for
/// example if the package is below /root.
pub struct SharedProgram {
    _folder: TempDir,
    path: String,
}

impl SharedProgram {
    pub fn copy(program: &str) -> SharedProgram {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let path = folder.path().join(Path::new(program).file_name().unwrap());
        // Another process writes the copy. Had this one the copy open, a process that another test starts at the same time
        // would inherit it, and the copy could not be executed until that process executes its own program.
        let copied = Command::new("cp").arg(program).arg(&path).status().unwrap();
        assert!(copied.success(), "{copied}");
        SharedProgram { path: path.into_os_string().into_string().unwrap(), _folder: folder }
    }

    pub fn path(&self) -> &str {
        &self.path
    }
}
