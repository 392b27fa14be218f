//! A folder with an old table, and rows to bake over that table.

use std::fs;
use std::process::{Child, Command};

use super::baker_runs::{BAKER, Ended, Folder, rows};
use super::random::Random;

/// The minimum memory of a bake. With it, the smallest inputs suffice to make a bake spill rows.
pub const LEAST_MEMORY: [&str; 2] = ["--memory", "16MiB"];
/// The maximum length of a run with [`LEAST_MEMORY`].
pub const RUN_LEN_BYTES: usize = 6 << 20;

/// A folder with an old table, and an empty folder `temp`.
pub struct Scene {
    pub folder: Folder,
    pub before: Vec<u8>,
}

impl Scene {
    pub fn new() -> Scene {
        let folder = Folder::new();
        folder.bake_text("1,from before\n", &["-q"]).succeeds();
        fs::create_dir(folder.path("temp")).unwrap();
        let before = fs::read(folder.path("storage.db")).unwrap();
        Scene { folder, before }
    }

    /// Returns a bake that prints nothing but errors.
    pub fn baker(&self, args: &[&str]) -> Command {
        let mut command = self.folder.command(&BAKER);
        command.arg("-q").args(args);
        command
    }

    /// Asserts that the bake fails with this message and changes nothing.
    #[track_caller]
    pub fn assert_fails(&self, args: &[&str], stdin: &[u8], message: &str) {
        let names = self.folder.names();
        self.folder.run(&mut self.baker(args), stdin).fails(message);
        assert_eq!(self.folder.names(), names);
        self.assert_untouched();
    }

    /// Asserts that the old table is intact, and that no temporary file is left.
    #[track_caller]
    pub fn assert_untouched(&self) {
        assert!(fs::read(self.folder.path("storage.db")).unwrap() == self.before, "the old table is unchanged");
        assert_eq!(self.folder.rows(), rows([(1, b"from before")]));
        self.assert_clean();
    }

    #[track_caller]
    pub fn assert_clean(&self) {
        let hidden: Vec<_> = self.folder.names().into_iter().filter(|name| name.starts_with('.')).collect();
        assert_eq!(hidden, [""; 0]);
        if let Ok(mut temporary) = fs::read_dir(self.folder.path("temp")) {
            assert!(temporary.next().is_none(), "nothing is left in temp");
        }
    }
}

/// Returns rows with keys from 0, whose values have this length and need no quotes.
pub fn sorted_rows(count: u64, value_len_bytes: usize) -> Vec<u8> {
    (0..count).flat_map(|key| plain_row(key, value_len_bytes)).collect()
}

/// Returns the rows of [`sorted_rows`] in another order.
pub fn shuffled_rows(count: u64, value_len_bytes: usize) -> Vec<u8> {
    let mut keys: Vec<u64> = (0..count).collect();
    Random(count).shuffle(&mut keys);
    keys.into_iter().flat_map(|key| plain_row(key, value_len_bytes)).collect()
}

pub fn plain_row(key: u64, value_len_bytes: usize) -> Vec<u8> {
    let mut row = format!("{key},").into_bytes();
    row.resize(row.len() + value_len_bytes, b'a' + (key % 26) as u8);
    row.push(b'\n');
    row
}

/// Returns rows that take more than one run with [`LEAST_MEMORY`], so that a bake spills most of them and keeps the
/// others in memory.
pub fn rows_to_spill() -> Vec<u8> {
    let text = shuffled_rows(4200, 1600);
    assert!(text.len() > RUN_LEN_BYTES);
    text
}

/// Waits for the end of a process, after closing its standard input.
pub fn end_of(mut child: Child) -> Ended {
    drop(child.stdin.take());
    Ended::wait_for(child)
}
