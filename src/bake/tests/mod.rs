//! Tests of whole bakes with less memory than [`Options`] accepts. With little memory, a few thousand rows are enough
//! to cover spilled runs, several merge passes, and interrupted streams.

mod forms;
mod model;
mod ranges;
mod tables;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::budget::Budget;
use super::table::RecordsWriter;
use super::{BakeError, Duplicates, Input, Keys, Options, Report, RowFault, bake_within, index};
use crate::Lookup;
use crate::format::key::{Key, KeyKind};
use crate::format::key_type::KeyType;
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
        let mut writer = RecordsWriter::new(&file, kind.into(), false, align_bytes, 1).unwrap();
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

/// Bakes rows from memory, with at most 50 rows per piece.
fn bake<'r>(
    bench: &Bench,
    rows: impl IntoIterator<Item = (Key<'r>, &'r [u8]), IntoIter: Send>,
    options: &Options,
) -> Result<Report, BakeError> {
    let mut rows = rows.into_iter();
    let input = Input::rows("rows", move |piece| {
        rows.by_ref().take(50).for_each(|(key, value)| piece.push(key, value));
        Ok(())
    });
    bake_within(bench.budget.clone(), vec![input], &bench.path("new.db"), options, &mut |_| ())
}

#[test]
fn rows_in_memory_give_the_same_file_as_text() {
    for memory_bytes in [64 << 10, 1 << 30] {
        let bench = Bench::new(memory_bytes, 2);
        let rows = numbers(0..5000, "from memory");
        for kind in [KeyKind::U64, KeyKind::Bytes] {
            let expected = bench.expected(kind, &rows);
            // Rows arrive in the order of the table's keys, or in the reverse order of keys of the other kind.
            for ordered_as in [KeyKind::U64, KeyKind::Bytes] {
                let mut given = sorted(ordered_as, &rows);
                if ordered_as != kind {
                    given.reverse();
                }
                let report = bake(&bench, given, &options(kind.into())).unwrap();
                assert_eq!(report.rows, 5000);
                assert!(bench.bytes("new.db") == expected, "{kind}, {ordered_as}, {memory_bytes}");
            }
        }
        let report = bake(&bench, sorted(KeyKind::U64, &rows), &options(Keys::Auto)).unwrap();
        assert_eq!(report.key_type, KeyType::U64);
    }
}

#[test]
fn keys_and_values_in_memory_can_be_any_bytes() {
    let bench = Bench::tight(2);
    let mut rows = BTreeMap::new();
    for byte in 0..=u8::MAX {
        rows.insert(vec![byte], vec![b'"', byte, b'\n', byte, b',', b'\r']);
        rows.insert(vec![b',', byte, b'\n'], vec![]);
    }
    bake(&bench, rows.iter().map(|(key, value)| (key.into(), &value[..])), &options(Keys::BYTES)).unwrap();
    let table = open(&bench.path("new.db"));
    assert!(table.iter().map(Result::unwrap).eq(rows.iter().map(|(key, value)| (Key::from(key), &value[..]))));
}

#[test]
fn errors_name_bad_rows_in_memory_by_their_number() {
    let bench = Bench::tight(2);
    let text: Vec<String> = (0..200).map(|row| row.to_string()).collect();
    let rows = |at: usize, key: &'static str| {
        let row = move |(row, text): (usize, &'_ String)| if row + 1 == at { key.to_owned() } else { text.clone() };
        text.iter().enumerate().map(row).collect::<Vec<_>>()
    };
    for (at, key, keys, wanted) in [
        (120, "seven", Keys::U64, "rows:120: the key is \"seven\" where an unsigned 64-bit decimal"),
        (1, "", Keys::BYTES, "rows:1: a key of 0 bytes"),
        (200, "7", Keys::U64, "rows:200: key 7 is already on row 8: remove one"),
    ] {
        let rows = rows(at, key);
        let error = bake(&bench, rows.iter().map(|key| (key.into(), &b"value"[..])), &options(keys)).unwrap_err();
        assert!(error.to_string().starts_with(wanted), "{error}");
        assert!(matches!(error, BakeError::Row { line, fault: RowFault::Key { .. } | RowFault::KeyLen { .. }
            | RowFault::Duplicate { .. }, .. } if line == at as u64));
    }
    let twice = [(7.into(), &b"first"[..]), (7.into(), b"last")];
    for (duplicates, kept) in [(Duplicates::First, b"first".as_slice()), (Duplicates::Last, b"last")] {
        bake(&bench, twice, &Options { duplicates, ..options(Keys::U64) }).unwrap();
        assert_eq!(open(&bench.path("new.db")).get(7).unwrap(), Some(kept));
    }
}

#[test]
fn an_error_of_the_caller_leaves_no_file() {
    let bench = Bench::tight(1);
    let mut pieces = 0;
    let input = Input::rows("rows", |piece| {
        pieces += 1;
        piece.push(pieces, "value");
        if pieces < 3 { Ok(()) } else { Err(io::Error::other("the third piece is not available")) }
    });
    let options = Options::default();
    let error = bake_within(bench.budget.clone(), vec![input], &bench.path("new.db"), &options, &mut |_| ());
    assert_eq!(error.unwrap_err().to_string(), "rows: the third piece is not available");
    assert!(bench.names().is_empty());
}

/// The same bytes, divided differently into keys and values, must have different digests.
#[test]
fn the_digest_of_rows_depends_on_where_keys_and_values_end() {
    let bench = Bench::tight(1);
    let digest = |key: &'static str, value: &'static str| {
        let report = bake(&bench, [(key.into(), value.as_bytes())], &options(Keys::BYTES)).unwrap();
        assert_eq!(report.inputs[0].len_bytes, 3);
        report.inputs[0].digest
    };
    assert_ne!(digest("a", "bc"), digest("ab", "c"));
    assert_eq!(digest("ab", "c"), digest("ab", "c"));
}
