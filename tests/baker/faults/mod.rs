//! What goes wrong around a bake: processes that are killed, disks that are full,
//! inputs that change, break off or never end. Each is told in one line, the
//! table from before stays, and nothing else does.

mod contents;
mod disks;
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
use std::time::{Duration, Instant};

use super::runs::{BAKER, Ended, Folder, rows};
use super::support::Random;

/// How long a test waits for what must happen, on however slow a machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// The least that a bake takes: so it spills with the least rows.
const LEAST_MEMORY: [&str; 2] = ["--memory", "16MiB"];
/// A run of a bake with [`LEAST_MEMORY`] is at most this long.
const RUN_LEN_BYTES: usize = 6 << 20;

/// A folder with a table from before, and an empty folder `temp`.
struct Scene {
    folder: Folder,
    before: Vec<u8>,
}

impl Scene {
    fn new() -> Scene {
        let folder = Folder::new();
        folder.bake_text("1,from before\n", &["-q"]).succeeds();
        fs::create_dir(folder.path("temp")).unwrap();
        let before = fs::read(folder.path("storage.db")).unwrap();
        Scene { folder, before }
    }

    /// A bake that says nothing but errors.
    fn baker(&self, args: &[&str]) -> Command {
        let mut command = self.folder.command(BAKER);
        command.arg("-q").args(args);
        command
    }

    /// Fails with this message and leaves everything as it was.
    #[track_caller]
    fn refuses(&self, args: &[&str], stdin: &[u8], message: &str) {
        let names = self.folder.names();
        self.folder.run(&mut self.baker(args), stdin).fails(message);
        assert_eq!(self.folder.names(), names);
        self.assert_untouched();
    }

    /// The table from before is there and whole, and nothing temporary is.
    #[track_caller]
    fn assert_untouched(&self) {
        assert!(fs::read(self.folder.path("storage.db")).unwrap() == self.before, "the table from before is as it was");
        assert_eq!(self.folder.rows(), rows([(1, b"from before")]));
        self.assert_clean();
    }

    #[track_caller]
    fn assert_clean(&self) {
        let hidden: Vec<_> = self.folder.names().into_iter().filter(|name| name.starts_with('.')).collect();
        assert_eq!(hidden, [""; 0]);
        if let Ok(mut temporary) = fs::read_dir(self.folder.path("temp")) {
            assert!(temporary.next().is_none(), "nothing is left in temp");
        }
    }
}

/// Rows with keys from 0 up, each with a value of so many bytes that need no quotes.
fn sorted_rows(count: u64, value_len_bytes: usize) -> Vec<u8> {
    (0..count).flat_map(|key| plain_row(key, value_len_bytes)).collect()
}

/// The same rows in another order.
fn shuffled_rows(count: u64, value_len_bytes: usize) -> Vec<u8> {
    let mut keys: Vec<u64> = (0..count).collect();
    Random(count).shuffle(&mut keys);
    keys.into_iter().flat_map(|key| plain_row(key, value_len_bytes)).collect()
}

fn plain_row(key: u64, value_len_bytes: usize) -> Vec<u8> {
    let mut row = format!("{key},").into_bytes();
    row.resize(row.len() + value_len_bytes, b'a' + (key % 26) as u8);
    row.push(b'\n');
    row
}

/// Rows of which a bake with [`LEAST_MEMORY`] spills the most, and keeps some.
fn rows_to_spill() -> Vec<u8> {
    let text = shuffled_rows(4200, 1600);
    assert!(text.len() > RUN_LEN_BYTES);
    text
}

/// The end of a process whose standard input ends here.
fn end_of(mut child: Child) -> Ended {
    drop(child.stdin.take());
    Ended::of(child)
}

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
