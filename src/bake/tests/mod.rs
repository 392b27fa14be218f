//! Tests of whole bakes with less memory than [`Options`] accepts. With little memory, a few thousand rows are enough
//! to cover spilled runs, several merge passes, and interrupted streams.

mod memory;
mod model;
mod shards;
mod tables;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::budget::Budget;
use super::table::RecordsWriter;
use super::{BakeError, Input, Keys, Options, Report, index};
use crate::format::key::{Key, KeyKind};
use crate::format::record::ALIGN_BYTES;
use crate::replace::ReplaceRules;

/// Values by key. Keys are text.
type Rows = BTreeMap<String, Vec<u8>>;

/// Returns options with which a bake may replace any table.
fn any_replacement() -> Options {
    Options { replace: ReplaceRules::any(), ..Options::default() }
}

/// The value that removes its row's key.
const DELETED: &str = "-";

/// A temporary folder, and a budget for the bakes in it.
struct Bench {
    folder: TempDir,
    budget: Budget,
}

impl Bench {
    /// Returns a bench with little memory: every piece of the input becomes a run, and at most two runs are merged at
    /// once.
    fn tight(threads: usize) -> Bench {
        Bench::new(64 << 10, threads)
    }

    fn new(memory_bytes: u64, threads: usize) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let budget = Budget { temp_dir: folder.path().to_path_buf(), ..Budget::test(memory_bytes, threads) };
        Bench { folder, budget }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn bake(&self, texts: &[String], name: &str, options: &Options) -> Result<Report, BakeError> {
        let named = texts.iter().zip('a'..);
        let inputs = named.map(|(text, name)| Input::reader(format!("{name}.csv"), text.as_bytes())).collect();
        super::bake_within(self.budget.clone(), inputs, &self.path(name), options, &mut |_| ())
    }

    fn merge(&self, tables: &[&str], name: &str, options: &Options) -> Result<Report, BakeError> {
        let tables: Vec<PathBuf> = tables.iter().map(|table| self.path(table)).collect();
        super::merge_within(self.budget.clone(), &tables, &self.path(name), options, &mut |_| ())
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    /// Writes a table without a bake. `align_bytes` is the alignment of its records.
    fn write_table(&self, name: &str, kind: KeyKind, rows: &Rows, align_bytes: usize) {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(self.path(name)).unwrap();
        let mut writer = RecordsWriter::new(&file, kind, align_bytes, 1).unwrap();
        for (key, value) in sorted(kind, rows) {
            writer.push(key, value).unwrap();
        }
        index::build(&file, &writer.finish().unwrap(), &[], &Budget::test(1 << 30, 1), &mut |_, _| ()).unwrap();
    }

    /// Returns the bytes of the file that any bake of these rows must produce.
    fn expected(&self, kind: KeyKind, rows: &Rows) -> Vec<u8> {
        self.write_table("expected.db", kind, rows, ALIGN_BYTES);
        self.bytes("expected.db")
    }

    /// Returns the names of all files in the folder.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn key(kind: KeyKind, text: &str) -> Key<'_> {
    match kind {
        KeyKind::U64 => Key::U64(text.parse().unwrap()),
        KeyKind::Bytes => Key::Bytes(text.as_bytes()),
    }
}

fn sorted(kind: KeyKind, rows: &Rows) -> Vec<(Key<'_>, &[u8])> {
    let mut rows: Vec<_> = rows.iter().map(|(text, value)| (key(kind, text), &value[..])).collect();
    rows.sort();
    rows
}

fn csv<'r>(rows: impl IntoIterator<Item = (&'r str, &'r str)>) -> String {
    rows.into_iter().map(|(key, value)| format!("{key},{value}\n")).collect()
}

fn options(keys: Keys) -> Options {
    Options { keys, delete_marker: Some(DELETED.into()), replace: ReplaceRules::any(), ..Options::default() }
}

/// Returns rows whose keys are numbers. Each value consists of `from` and the key of the same row.
fn numbers(keys: impl IntoIterator<Item = u64>, from: &str) -> Rows {
    keys.into_iter().map(|key| (key.to_string(), format!("{from} {key}").into_bytes())).collect()
}

fn open(path: &Path) -> crate::Store {
    crate::Store::open(path).unwrap()
}
