//! redb. One transaction stores the rows in key order. The file is opened read-only, with a cache as large as the file,
//! but at most a quarter of the memory. One read transaction serves all lookups.

use std::fs;
use std::path::Path;

use anyhow::Result;
use redb::{Builder, ReadOnlyDatabase, ReadOnlyTable, ReadableDatabase, TableDefinition};

use super::{Engine, Opened, Table};
use crate::machine::{locked_version, memory_total_bytes};
use crate::rows::{Rows, Sink};

const FILE: &str = "rows.redb";
const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("rows");

pub(super) fn engine() -> Engine {
    Engine {
        name: "redb",
        version: locked_version("redb"),
        ordered: true,
        batched: false,
        batched_floors: false,
        small: false,
        build: Some(build),
        open,
    }
}

struct Redb {
    table: ReadOnlyTable<u64, &'static [u8]>,
    _database: ReadOnlyDatabase,
}

fn build(rows: &Rows, folder: &Path) -> Result<()> {
    let database = Builder::new().create(folder.join(FILE))?;
    let transaction = database.begin_write()?;
    let mut table = transaction.open_table(TABLE)?;
    rows.each(|key, value| {
        table.insert(key, value)?;
        Ok(())
    })?;
    drop(table);
    Ok(transaction.commit()?)
}

fn open(_: &Rows, folder: &Path) -> Result<Box<dyn Opened>> {
    let path = folder.join(FILE);
    let file_len_bytes = fs::metadata(&path)?.len();
    // The cache is limited, because the page cache needs memory for this file, too.
    let cache_len_bytes = file_len_bytes.min(memory_total_bytes()? / 4).max(1 << 20);
    let database = Builder::new().set_cache_size(cache_len_bytes as usize).open_read_only(path)?;
    let table = database.begin_read()?.open_table(TABLE)?;
    Ok(Box::new(Redb { table, _database: database }))
}

impl Table for Redb {
    #[inline]
    fn get(&mut self, key: u64, sink: &mut impl Sink) -> Result<()> {
        sink.accept(self.table.get(key)?.as_ref().map(|value| value.value()));
        Ok(())
    }

    #[inline]
    fn floor(&mut self, key: u64, sink: &mut impl Sink) -> Result<()> {
        let row = self.table.range(..=key)?.next_back().transpose()?;
        sink.accept(row.as_ref().map(|(_, value)| value.value()));
        Ok(())
    }

    fn scan(&mut self, start: u64, rows: u64, sink: &mut impl Sink) -> Result<()> {
        for row in self.table.range(start..)?.take(rows as usize) {
            sink.found(row?.1.value());
        }
        Ok(())
    }
}
