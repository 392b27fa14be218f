//! Failures around a bake: killed processes, full disks, and inputs that change, break off, or never end. Each is
//! reported in one line, and only the old table is left.

mod contents;
mod file_sizes;
mod folders;
mod inputs;
mod kill;
mod limits;
mod memory;
mod pipes;
mod temporary;

use std::fs::{self, File};
use std::io::Write;
use std::process::{Child, Command};

use crate::helpers::baker_runs::{BAKER, Folder, rows};
use crate::helpers::baker_scenes::*;
use crate::helpers::random::Random;
use crate::helpers::shared_program::SharedProgram;
use crate::helpers::waiting::found_eventually;

/// Returns the unnamed files of a process with at least this length.
fn unnamed_files(child: &Child, len_min_bytes: u64) -> Vec<File> {
    let descriptors = fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
    let paths = descriptors.filter_map(|entry| Some(entry.ok()?.path()));
    let unnamed = paths.filter(|path| fs::read_link(path).is_ok_and(|to| to.to_string_lossy().ends_with(" (deleted)")));
    let files = unnamed.filter_map(|path| fs::OpenOptions::new().read(true).write(true).open(path).ok());
    files.filter(|file| file.metadata().is_ok_and(|found| found.is_file() && found.len() >= len_min_bytes)).collect()
}

/// Creates a named pipe.
fn make_fifo(folder: &Folder, name: &str) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, folder.path(name), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

/// Writes to a process as long as it reads.
fn feed(child: &mut Child, bytes: &[u8]) {
    // A process that fails does not read to the end.
    let _ = child.stdin.as_mut().expect("a pipe").write_all(bytes);
}
