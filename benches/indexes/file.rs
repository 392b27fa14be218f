//! Bakes and opens files with the rows that the indexes are compared on.

use std::io::{self, Read};

use zero_kv::Store;
use zero_kv::bake::{Options, bake_csv};

use crate::support::push_csv_row;

/// Bakes a file of these keys, and opens it as a mapping and as a copy in huge pages.
pub(crate) fn bake(keys: &[u64], value_len_bytes: usize) -> [Store; 2] {
    let folder = tempfile::tempdir().expect("a folder");
    let output = folder.path().join("storage.db");
    let csv = Csv { keys, value_len_bytes, block: Vec::new(), read_bytes: 0 };
    bake_csv(csv, &output, &Options::default()).expect("a table");
    // SAFETY: no other process writes to the file, which is in a new temporary folder that is removed on return.
    let mapped = unsafe { Store::map(&output) };
    [mapped, Store::open(&output)].map(|store| store.expect("open the baked table"))
}

/// A reader of rows as CSV text, which is generated while it is read.
struct Csv<'a> {
    keys: &'a [u64],
    value_len_bytes: usize,
    block: Vec<u8>,
    read_bytes: usize,
}

impl Read for Csv<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.read_bytes == self.block.len() {
            self.block.clear();
            let (now, later) = self.keys.split_at(self.keys.len().min(4096));
            for key in now {
                push_csv_row(&mut self.block, *key, self.value_len_bytes);
            }
            (self.keys, self.read_bytes) = (later, 0);
        }
        let count = (&self.block[self.read_bytes..]).read(buffer)?;
        self.read_bytes += count;
        Ok(count)
    }
}
