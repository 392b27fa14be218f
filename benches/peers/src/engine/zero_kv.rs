//! Zero-KV. The file is baked from CSV text, which is formatted during the bake. Lookups verify each block when they first
//! read it.

use std::io::{self, Read};
use std::path::Path;

use anyhow::Result;
use zero_kv::Lookup;
use zero_kv::Store;
use zero_kv::bake::{Options, bake_csv};

use super::{Engine, Opened, Table};
use crate::machine::locked_version;
use crate::rows::{Rows, Sink};

const FILE: &str = "storage.db";

pub(super) fn engine() -> Engine {
    Engine {
        name: "Zero-KV",
        version: locked_version("zero-kv"),
        ordered: true,
        batched: true,
        batched_floors: true,
        small: false,
        build: Some(|rows, folder| bake(rows, &folder.join(FILE))),
        // SAFETY: no process changes the file, which is in a folder of this benchmark.
        open: |_, folder| Ok(Box::new(unsafe { Store::map(folder.join(FILE)) }?) as Box<dyn Opened>),
    }
}

pub(crate) fn bake(rows: &Rows, output: &Path) -> Result<()> {
    bake_csv(Csv::new(rows), output, &Options::default())?;
    Ok(())
}

impl Table for Store {
    #[inline]
    fn get(&mut self, key: u64, sink: &mut impl Sink) -> Result<()> {
        sink.accept(zero_kv::Lookup::get(self, key)?);
        Ok(())
    }

    fn get_batch(&mut self, keys: &[u64], sink: &mut impl Sink) -> Result<()> {
        self.get_many_with(keys, |_, value| sink.accept(value))?;
        Ok(())
    }

    #[inline]
    fn floor(&mut self, key: u64, sink: &mut impl Sink) -> Result<()> {
        sink.accept(zero_kv::Lookup::floor(self, key)?.map(|(_, value)| value));
        Ok(())
    }

    fn floor_batch(&mut self, keys: &[u64], sink: &mut impl Sink) -> Result<()> {
        self.floor_many_with(keys, |_, row| sink.accept(row.map(|(_, value)| value)))?;
        Ok(())
    }

    fn scan(&mut self, start: u64, rows: u64, sink: &mut impl Sink) -> Result<()> {
        for row in self.range(start..)?.take(rows as usize) {
            sink.found(row?.1);
        }
        Ok(())
    }
}

/// A reader of the rows as CSV text, which formats them while they are read.
struct Csv<'r> {
    rows: &'r Rows,
    row: u64,
    value: Vec<u8>,
    line: Vec<u8>,
    read_bytes: usize,
}

impl<'r> Csv<'r> {
    fn new(rows: &'r Rows) -> Csv<'r> {
        Csv { rows, row: 0, value: Vec::new(), line: Vec::new(), read_bytes: 0 }
    }
}

impl Read for Csv<'_> {
    fn read(&mut self, mut buffer: &mut [u8]) -> io::Result<usize> {
        let wanted_bytes = buffer.len();
        while !buffer.is_empty() {
            if self.read_bytes == self.line.len() {
                if self.row == self.rows.count {
                    break;
                }
                let key = self.rows.key(self.row);
                self.line.clear();
                io::Write::write_fmt(&mut self.line, format_args!("{key},"))?;
                self.line.extend_from_slice(self.rows.value(key, &mut self.value));
                self.line.push(b'\n');
                (self.row, self.read_bytes) = (self.row + 1, 0);
            }
            let copied_bytes = (&self.line[self.read_bytes..]).read(buffer)?;
            self.read_bytes += copied_bytes;
            buffer = &mut buffer[copied_bytes..];
        }
        Ok(wanted_bytes - buffer.len())
    }
}
