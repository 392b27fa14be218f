//! Rows with keys of either kind, and files that are baked from them.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use zero_kv::bake::{self, Keys, Options, Report, TableLayout};
use zero_kv::store::{OpenOptions, Verify};
use zero_kv::{Key, KeyType, PartType, Store};

/// Numeric keys and values.
pub type Rows = Vec<(u64, Vec<u8>)>;
/// Byte-string keys and values.
pub type ByteRows = Vec<(Vec<u8>, Vec<u8>)>;

/// A key of either kind as tests store it.
pub trait TestKey: Clone + Debug + Ord {
    /// The key kind of a table with these keys.
    const KEYS: Keys;

    fn key(&self) -> Key<'_>;

    fn push_field(&self, text: &mut Vec<u8>);

    /// Returns the next key, or the least key after the greatest.
    fn next(&self) -> Self;

    /// Returns the last key of the range that begins with this key, in a table of ranges.
    fn last(&self) -> Option<Key<'_>> {
        None
    }
}

impl TestKey for u64 {
    const KEYS: Keys = Keys::U64;

    fn key(&self) -> Key<'_> {
        Key::U64(*self)
    }

    fn push_field(&self, text: &mut Vec<u8>) {
        text.extend_from_slice(self.to_string().as_bytes());
    }

    fn next(&self) -> u64 {
        self.wrapping_add(1)
    }
}

impl TestKey for Vec<u8> {
    const KEYS: Keys = Keys::BYTES;

    fn key(&self) -> Key<'_> {
        Key::Bytes(self)
    }

    fn push_field(&self, text: &mut Vec<u8>) {
        text.extend(quoted(self));
    }

    fn next(&self) -> Vec<u8> {
        [self, &b"\0"[..]].concat()
    }
}

/// A key of the type `ip`.
impl TestKey for [u8; 16] {
    const KEYS: Keys = Keys::Type(KeyType::of(PartType::Ip));

    fn key(&self) -> Key<'_> {
        Key::Bytes(self)
    }

    fn push_field(&self, text: &mut Vec<u8>) {
        KeyType::of(PartType::Ip).write(self.key(), text);
    }

    fn next(&self) -> [u8; 16] {
        u128::from_be_bytes(*self).wrapping_add(1).to_be_bytes()
    }
}

/// The range from one key to another, in a table of ranges. Spans are compared by their first keys.
#[derive(Clone, Debug)]
pub struct KeySpan<K> {
    pub first: K,
    pub last: K,
}

impl<K: Ord> PartialEq for KeySpan<K> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<K: Ord> Eq for KeySpan<K> {}

impl<K: Ord> PartialOrd for KeySpan<K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K: Ord> Ord for KeySpan<K> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.first.cmp(&other.first)
    }
}

impl<K: TestKey> TestKey for KeySpan<K> {
    const KEYS: Keys = K::KEYS;

    fn key(&self) -> Key<'_> {
        self.first.key()
    }

    fn push_field(&self, text: &mut Vec<u8>) {
        self.first.push_field(text);
        text.push(b',');
        self.last.push_field(text);
    }

    fn next(&self) -> Self {
        KeySpan { first: self.first.next(), last: self.last.clone() }
    }

    fn last(&self) -> Option<Key<'_>> {
        Some(self.last.key())
    }
}

/// Returns a row as delimited text with a quoted value.
pub fn csv_row(key: &impl TestKey, value: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    key.push_field(&mut text);
    text.push(b',');
    text.extend(quoted(value));
    text.push(b'\n');
    text
}

/// Returns a field in quotes.
pub fn quoted(field: &[u8]) -> Vec<u8> {
    let doubled = field.iter().flat_map(|byte| std::iter::repeat_n(*byte, if *byte == b'"' { 2 } else { 1 }));
    std::iter::once(b'"').chain(doubled).chain([b'"']).collect()
}

/// The layouts of tables whose keys are numbers.
pub const LAYOUTS: [TableLayout; 2] = [TableLayout::Fast, TableLayout::Compact];

/// Bakes rows in this order.
pub fn bake_to<K: TestKey>(path: &Path, rows: &[(K, Vec<u8>)]) -> Report {
    bake_as(path, TableLayout::Fast, rows)
}

/// Bakes rows in this order, with a layout.
pub fn bake_as<K: TestKey>(path: &Path, layout: TableLayout, rows: &[(K, Vec<u8>)]) -> Report {
    let text: Vec<u8> = rows.iter().flat_map(|(key, value)| csv_row(key, value)).collect();
    bake_text_as(path, layout, K::KEYS, text)
}

/// Bakes delimited text. The table may replace any other table.
pub fn bake_text(path: &Path, keys: Keys, text: impl AsRef<[u8]>) -> Report {
    bake_text_as(path, TableLayout::Fast, keys, text)
}

fn bake_text_as(path: &Path, layout: TableLayout, keys: Keys, text: impl AsRef<[u8]>) -> Report {
    let mut options = Options::default();
    options.layout = layout;
    options.replace = zero_kv::replace::ReplaceRules::any();
    options.keys = keys;
    bake::bake_csv(text.as_ref(), path, &options).expect("valid rows")
}

/// Writes a new file, which replaces the file at the path. If an existing file were truncated instead, some file systems
/// would write the new bytes to the disk before the file is closed, which takes milliseconds.
pub fn write_new(path: &Path, bytes: &[u8]) {
    // The path may have no file.
    let _ = std::fs::remove_file(path);
    std::fs::write(path, bytes).expect("room for a small file");
}

/// A temporary folder with one file, whose content each method sets.
pub struct Scratch {
    folder: TempDir,
    layout: TableLayout,
}

impl Scratch {
    pub fn new() -> Scratch {
        Scratch::of(TableLayout::Fast)
    }

    /// Returns a folder for tables with a layout.
    pub fn of(layout: TableLayout) -> Scratch {
        Scratch { folder: tempfile::tempdir().expect("a folder for temporary files"), layout }
    }

    /// Bakes ranges, and returns the bytes of the file.
    pub fn bake_ranges<K: TestKey>(&self, rows: &BTreeMap<KeySpan<K>, Vec<u8>>) -> Vec<u8> {
        let mut options = Options::default();
        options.layout = self.layout;
        options.replace = zero_kv::replace::ReplaceRules::any();
        options.keys = K::KEYS;
        options.key = Some(bake::Column::Number(1));
        options.ranges = Some(bake::RangeEnds::Column(bake::Column::Number(2)));
        let text: Vec<u8> = rows.iter().flat_map(|(span, value)| csv_row(span, value)).collect();
        bake::bake_csv(&text[..], &self.path(), &options).expect("valid ranges");
        std::fs::read(self.path()).expect("the baked file")
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("storage.db")
    }

    /// Bakes these rows and returns the bytes of the file.
    pub fn bake<K: TestKey>(&self, rows: &[(K, Vec<u8>)]) -> Vec<u8> {
        bake_as(&self.path(), self.layout, rows);
        std::fs::read(self.path()).expect("the file just baked")
    }

    /// Opens a file with these bytes, and verifies all of it.
    pub fn open(&self, bytes: &[u8]) -> Result<Store, zero_kv::StoreError> {
        write_new(&self.path(), bytes);
        let options = OpenOptions { verify: Verify::Full, ..OpenOptions::default() };
        Store::open_with(self.path(), &options)
    }

    /// Returns the error with which the store rejects a file with these bytes.
    pub fn refusal(&self, bytes: &[u8]) -> zero_kv::format::FormatError {
        match self.open(bytes) {
            Err(zero_kv::StoreError::Format { error, .. }) => error,
            other => panic!("a refusal was expected, not {other:?}"),
        }
    }
}
