//! The programs of the main package, and the folder of builds.

use std::path::{Path, PathBuf};

/// Returns the path of a program. Cargo builds the programs before the test programs, into the folder that contains
/// `deps`, the folder of the test programs.
pub fn program(name: &str) -> String {
    let path = above_test_program(2).join(name);
    assert!(path.exists(), "{} is missing: build it with `cargo build`", path.display());
    path.into_os_string().into_string().unwrap()
}

/// Returns a path in the target folder.
pub fn in_target_folder(path: impl AsRef<Path>) -> PathBuf {
    above_test_program(3).join(path)
}

/// Returns the folder that is this number of levels above the running test program.
fn above_test_program(levels: usize) -> PathBuf {
    let test_program = std::env::current_exe().unwrap();
    test_program.ancestors().nth(levels).unwrap().to_path_buf()
}
