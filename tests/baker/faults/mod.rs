//! What goes wrong around a bake: processes that are killed, disks that are full,
//! inputs that change, break off or never end. Each is told in one line, the
//! table from before stays, and nothing else does.

mod contents;
mod file_sizes;
mod folders;
mod inputs;
mod kill;
mod limits;
mod memory;
mod pipes;
mod scene;
mod temporary;

use std::fs::{self, File};
use std::io::Write;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use super::runs::{BAKER, Folder, rows};
use super::support::Random;
use scene::*;

/// How long a test waits for what must happen, on however slow a machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Waits until there is something, which must be within [`PATIENCE`].
fn eventually<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::yield_now();
    }
}

/// The files of a process that have no name, as long as at least this.
fn unnamed_files(child: &Child, len_min_bytes: u64) -> Vec<File> {
    let descriptors = fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
    let paths = descriptors.filter_map(|entry| Some(entry.ok()?.path()));
    let unnamed = paths.filter(|path| fs::read_link(path).is_ok_and(|to| to.to_string_lossy().ends_with(" (deleted)")));
    let files = unnamed.filter_map(|path| fs::OpenOptions::new().read(true).write(true).open(path).ok());
    files.filter(|file| file.metadata().is_ok_and(|found| found.is_file() && found.len() >= len_min_bytes)).collect()
}

/// A pipe in the file system.
fn make_fifo(folder: &Folder, name: &str) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, folder.path(name), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

/// Writes to a process for as long as it reads.
fn feed(child: &mut Child, bytes: &[u8]) {
    // One that fails does not read to the end.
    let _ = child.stdin.as_mut().expect("a pipe").write_all(bytes);
}
