//! Properties of a store that opens any bytes as a file: it rejects them, or every lookup returns the file's records.
//! In a baked file that was damaged later, a store that verifies blocks on first access returns the baked rows or an
//! error.

use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};

use zero_kv::Lookup;
use zero_kv::store::{OpenOptions, Verify};
use zero_kv::{Key, KeyKind, LookupError, Store};

use super::rows::{Numbers, Rows};
use super::source::Source;
use crate::helpers::encoder::{self, DIGEST, HEADER, SECTIONS, number, put, seal, seal_header};
use crate::helpers::records::assert_lookups_match_its_records;
use crate::helpers::rows::write_new;

/// Baked files, and the rows of each.
pub struct Files {
    good: Vec<(Numbers, Rows, Vec<u8>)>,
    path: PathBuf,
}

impl Files {
    /// Bakes the files in a folder.
    pub fn bake(folder: &Path) -> Files {
        let path = folder.join("storage.db");
        let value = |i: u64| vec![i as u8; [0, 1, 7, 60, 20_000][if i % 40 == 39 { 4 } else { i as usize % 4 }]];
        let number = |i: u64| (i * i * 3).to_be_bytes().to_vec();
        let bytes = |i: u64| format!("user:{}{}", i % 7, "/part".repeat(i as usize % 30)).into_bytes();
        let tables =
            [0, 1, 3, 17, 60].map(|count| (Numbers(true), (0..count).map(|i| (number(i), value(i))).collect()));
        let of_bytes = [1, 3, 17, 60].map(|count| (Numbers(false), (0..count).map(|i| (bytes(i), value(i))).collect()));
        let baked = |(numbers, rows): (Numbers, Rows)| {
            numbers.bake(&rows, &path);
            (numbers, rows, fs::read(&path).unwrap())
        };
        Files { good: tables.into_iter().chain(of_bytes).map(baked).collect(), path }
    }
}

/// Opens a file with changes that the bytes describe, or the bytes themselves.
pub fn check(files: &Files, data: &[u8]) {
    let mut source = Source::new(data);
    let (numbers, rows, good) = &files.good[source.below(files.good.len())];
    let (sealing, verify) = (source.below(4), [Verify::Full, Verify::Touch][source.below(2)]);
    let mut file = match source.one_in(16) {
        true => source.rest().to_vec(),
        false => good.clone(),
    };
    while !source.is_empty() && file.len() >= HEADER {
        change(&mut source, &mut file);
    }
    if file.len() >= HEADER {
        match sealing {
            0 => {}
            1 => seal_header(&mut file),
            _ => seal(&mut file),
        }
    }
    write_new(&files.path, &file);
    let options = OpenOptions { verify, ..OpenOptions::default() };
    let Ok(store) = Store::open_with(&files.path, &options) else { return };
    if verify == Verify::Touch {
        // A file with this digest has the baked header, and all checksums that depend on it.
        let is_baked = file[DIGEST] == good[DIGEST];
        return Touched { store: &store, numbers: *numbers, rows: rows.iter().collect(), is_baked }.ask();
    }
    match store.key_kind() {
        KeyKind::U64 => {
            let keys = rows.keys().filter_map(|key| Some(u64::from_be_bytes(key[..].try_into().ok()?)));
            let keys: Vec<u64> = keys.flat_map(|key| [key, key.wrapping_add(1), key ^ 1 << 63]).collect();
            assert_lookups_match_its_records(&store, &file, &keys);
        }
        _ => {
            assert_lookups_match_its_records(&store, &file, &rows.keys().flat_map(|key| near(key)).collect::<Vec<_>>());
        }
    }
}

fn near(key: &[u8]) -> [Vec<u8>; 3] {
    [key.to_vec(), [key, &b"\0"[..]].concat(), key[..key.len() - 1].to_vec()]
}

/// A file whose blocks are verified on first access.
struct Touched<'t> {
    store: &'t Store,
    numbers: Numbers,
    rows: Vec<(&'t Vec<u8>, &'t Vec<u8>)>,
    /// Whether the file was baked from these rows. Otherwise it is a forgery, which may return any value, but every
    /// lookup must return.
    is_baked: bool,
}

impl Touched<'_> {
    /// Makes every kind of lookup.
    fn ask(&self) {
        let store = self.store;
        let mut keys: Vec<Vec<u8>> = self.rows.iter().flat_map(|(key, _)| near(key)).collect();
        // In a table of numbers, only keys of 8 bytes are numbers.
        keys.retain(|key| !self.numbers.0 || key.len() == 8);
        keys.extend(
            self.rows.iter().filter(|_| self.numbers.0).map(|(key, _)| key.iter().map(|byte| byte ^ 1).collect()),
        );
        for key in &keys {
            let (below, from) =
                (self.rows.partition_point(|row| row.0 <= key), self.rows.partition_point(|row| row.0 < key));
            let value = self.rows.get(from).filter(|row| row.0 == key).map(|row| &row.1[..]);
            let asked = self.numbers.key(key);
            self.is_right(store.get(asked), value);
            self.is_right(store.contains(asked), value.is_some());
            self.is_right(store.floor(asked), below.checked_sub(1).map(|row| self.row(row)));
            self.is_right(store.ceiling(asked), (from < self.rows.len()).then(|| self.row(from)));
            self.is_right(store.count(asked..), self.rows.len() - from);
            self.is_right(store.count(..=asked), below);
            if let Ok(range) = store.range(asked..) {
                self.are_right(range, from..self.rows.len(), false);
            }
            if let Ok(range) = store.range(..=asked) {
                self.are_right(range, 0..below, true);
            }
        }
        self.are_right(store.iter(), 0..self.rows.len(), false);
        self.are_right(store.iter(), 0..self.rows.len(), true);
        for row in 0..=store.len() {
            self.is_right(store.row(row), (row < self.rows.len()).then(|| self.row(row)));
        }
        let asked: Vec<Key<'_>> = keys.iter().map(|key| self.numbers.key(key)).collect();
        let mut answers = 0;
        let outcome = store.get_many_with(&asked, |i, value| {
            assert_eq!(i, answers);
            answers += 1;
            let expected = self.rows.iter().find(|row| *row.0 == keys[i]).map(|row| &row.1[..]);
            assert!(!self.is_baked || value == expected, "{:?}", asked[i]);
        });
        assert!(outcome.is_err() || answers == keys.len());
    }

    fn row(&self, row: usize) -> (Key<'_>, &[u8]) {
        let (key, value) = self.rows[row];
        (self.numbers.key(key), value)
    }

    fn is_right<T: Debug + PartialEq>(&self, found: Result<T, LookupError>, expected: T) {
        if self.is_baked {
            assert!(found.as_ref() == Ok(&expected) || found == Err(LookupError::Damaged), "{found:?}: {expected:?}");
        }
    }

    /// Asserts that the rows are the baked ones, up to the first damaged row.
    fn are_right(&self, mut found: zero_kv::store::Rows<'_>, expected: std::ops::Range<usize>, is_backward: bool) {
        let mut left = expected;
        let mut is_damaged = false;
        while let Some(row) = if is_backward { found.next_back() } else { found.next() } {
            assert!(!is_damaged, "the rows continue after an error");
            let Ok(row) = row else {
                is_damaged = true;
                continue;
            };
            if self.is_baked {
                let expected = if is_backward { left.next_back() } else { left.next() };
                assert!(expected.map(|at| self.row(at)) == Some(row), "a different row");
            }
        }
        assert!(!self.is_baked || left.is_empty() || is_damaged, "rows are missing");
    }
}

/// Changes a number, a byte, a range of bytes, or the length.
fn change(source: &mut Source<'_>, file: &mut Vec<u8>) {
    let section = source.below(8);
    let (start, len) = match SECTIONS.get(section) {
        Some(section) => encoder::section(file, *section),
        None if section == 7 => (0, file.len()),
        None => (0, HEADER),
    };
    let last = file.len() - 8;
    let at = start.saturating_add(source.below(1 << 16) % len.max(1)).min(last);
    let word = at / 8 * 8;
    let old = number(file, word);
    match source.below(12) {
        0..3 => file[at] ^= 1 << source.below(8),
        3..5 => file[at] = source.byte(),
        5 => put(file, word, old.wrapping_add(1)),
        6 => put(file, word, old.wrapping_sub(1)),
        7 => put(file, word, source.number()),
        8 => put(file, word, u64::from(source.byte())),
        9 => {
            let (from, len) = (source.below(1 << 16) % file.len(), 1 + source.below(256));
            let copied = file[from..(from + len).min(file.len())].to_vec();
            let to = at.min(file.len() - copied.len());
            file[to..to + copied.len()].copy_from_slice(&copied);
        }
        10 => file.truncate(at),
        _ => file.resize(file.len() + source.below(1 << 16), source.byte()),
    }
}
