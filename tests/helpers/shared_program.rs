//! Programs for processes of another user.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::TempDir;

/// A copy of a program that every user can run. Other users may not reach the program itself, for example if the package is
/// below /root.
pub(crate) struct SharedProgram {
    folder: TempDir,
    path: String,
}

impl SharedProgram {
    pub(crate) fn copy(program: &str) -> SharedProgram {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let path = folder.path().join(Path::new(program).file_name().unwrap());
        fs::copy(program, &path).unwrap();
        SharedProgram { path: path.into_os_string().into_string().unwrap(), folder }
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }
}
