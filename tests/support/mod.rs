//! What several tests need: rows, an encoder of their own, random numbers.
//!
//! Each test takes the part that it needs, so none uses all of it.
#![allow(dead_code)]

pub(crate) mod encoder;
pub(crate) mod records;

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use zero_kv::bake::{self, Keys, Options, Report};
use zero_kv::{Key, Store};

/// Keys and values.
pub(crate) type Rows = Vec<(u64, Vec<u8>)>;
/// The same with keys of bytes.
pub(crate) type ByteRows = Vec<(Vec<u8>, Vec<u8>)>;

/// A key of either kind, as the tests hold it.
pub(crate) trait TestKey: Clone + Debug + Ord {
    /// What it is baked as.
    const KEYS: Keys;

    fn key(&self) -> Key<'_>;

    fn push_field(&self, text: &mut Vec<u8>);

    /// The key behind it, or, behind the greatest, the least.
    fn next(&self) -> Self;
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
    const KEYS: Keys = Keys::Bytes;

    fn key(&self) -> Key<'_> {
        Key::Bytes(self)
    }

    fn push_field(&self, text: &mut Vec<u8>) {
        push_quoted(text, self);
    }

    fn next(&self) -> Vec<u8> {
        [self, &b"\0"[..]].concat()
    }
}

/// A seeded generator (splitmix64), so that a failure can be repeated.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

/// A row as delimited text, its value quoted.
pub(crate) fn csv_row(key: &impl TestKey, value: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    key.push_field(&mut text);
    text.push(b',');
    push_quoted(&mut text, value);
    text.push(b'\n');
    text
}

fn push_quoted(text: &mut Vec<u8>, field: &[u8]) {
    text.push(b'"');
    for byte in field {
        if *byte == b'"' {
            text.push(b'"');
        }
        text.push(*byte);
    }
    text.push(b'"');
}

/// Bakes rows in the order given.
pub(crate) fn bake_to<K: TestKey>(path: &Path, rows: &[(K, Vec<u8>)]) -> Report {
    let text: Vec<u8> = rows.iter().flat_map(|(key, value)| csv_row(key, value)).collect();
    let mut options = Options::default();
    options.replace = zero_kv::replace::ReplaceRules::any();
    options.keys = K::KEYS;
    bake::bake_csv(&text[..], path, &options, &mut |_| ()).expect("good rows")
}

/// A folder of the test's own, with one file that holds whatever is asked for.
pub(crate) struct Scratch {
    folder: TempDir,
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch { folder: tempfile::tempdir().expect("a folder for temporary files") }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("storage.db")
    }

    /// The bytes that a bake of these rows gives.
    pub(crate) fn bake<K: TestKey>(&self, rows: &[(K, Vec<u8>)]) -> Vec<u8> {
        bake_to(&self.path(), rows);
        std::fs::read(self.path()).expect("the file just baked")
    }

    /// Opens a file of these bytes.
    pub(crate) fn open(&self, bytes: &[u8]) -> Result<Store, zero_kv::StoreError> {
        std::fs::write(self.path(), bytes).expect("room for a small file");
        Store::open(self.path())
    }

    /// What a file of these bytes is refused for.
    pub(crate) fn refusal(&self, bytes: &[u8]) -> zero_kv::format::FormatError {
        match self.open(bytes) {
            Err(zero_kv::StoreError::Format { error, .. }) => error,
            other => panic!("a refusal was expected, not {other:?}"),
        }
    }
}
