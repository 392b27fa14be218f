//! Compares the lookups in tables of every record form, with and without ranges, with a model that keeps the rows in a
//! map. The tables are written without a parser, so their keys can be any stored keys of the type.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use testkit::key_types::KEY_TYPES;

use crate::bake::budget::Budget;
use crate::bake::index;
use crate::bake::table::RecordsWriter;
use crate::format::form::RowKey;
use crate::format::header::TableLayout;
use crate::format::key_type::FIXED_KEY_LEN_BYTES;
use crate::store::{OpenOptions, Verify};
use crate::{Key, KeyKind, KeyType, Lookup, LookupError, MappedStore, OwnedKey, Store};

/// The first key of each row, and the last key of its range, or the same key in a table without ranges, and the value.
type Model = BTreeMap<OwnedKey, (OwnedKey, Vec<u8>)>;

/// Returns a random stored key. The range is small, so that many keys are near each other.
fn random_key(key_type: KeyType, random: &mut SmallRng) -> OwnedKey {
    if key_type.kind() == KeyKind::U64 {
        let high: u64 = [0, 1 << 63, u64::MAX - 5000, 77 << 40][random.random_range(0..4)];
        return OwnedKey::U64(high.wrapping_add(random.random_range(0..5000)));
    }
    let byte = |random: &mut SmallRng| *[0, 1, 0x7F, 0xFE, 0xFF].choose(random).unwrap();
    let mut key = vec![0x20; if key_type.fixed_len_bytes().is_some() { FIXED_KEY_LEN_BYTES } else { 3 }];
    let len_bytes = match key_type.fixed_len_bytes() {
        Some(len_bytes) => len_bytes,
        None => random.random_range(4..24),
    };
    key.resize(len_bytes, 0x20);
    let last = len_bytes - 1;
    for at in [3, len_bytes / 2, last] {
        key[at] = byte(random);
    }
    key[last / 2] = random.random_range(0..40);
    OwnedKey::Bytes(key)
}

fn random_model(key_type: KeyType, has_ranges: bool, row_count: usize, random: &mut SmallRng) -> Model {
    let keys: BTreeSet<OwnedKey> = (0..row_count * 2).map(|_| random_key(key_type, random)).collect();
    let (mut model, mut keys) = (Model::new(), keys.into_iter().peekable());
    while let Some(start) = keys.next() {
        let is_wide = has_ranges && random.random_bool(0.6);
        let end = if is_wide { keys.next().unwrap_or_else(|| start.clone()) } else { start.clone() };
        let value_len_bytes = if random.random_bool(0.02) { 5000 } else { random.random_range(0..90) };
        let value = (0..value_len_bytes).map(|_| random.random()).collect();
        model.insert(start, (end, value));
    }
    model
}

fn write(path: &Path, layout: TableLayout, key_type: KeyType, has_ranges: bool, align_bytes: usize, model: &Model) {
    let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
    let mut writer = RecordsWriter::new(&file, key_type, has_ranges, align_bytes, 1).unwrap();
    if layout == TableLayout::Compact {
        writer = writer.compact(path.parent().unwrap()).unwrap();
    }
    for (start, (end, value)) in model {
        let end = has_ranges.then_some(end.as_key());
        writer.push(RowKey { key: start.as_key(), end }, value).unwrap();
    }
    index::build(&file, &writer.finish().unwrap(), &[], &Budget::test(1 << 30, 1), &mut |_, _| ()).unwrap();
}

/// Returns keys of the model, and keys near them: greater, less, longer, shorter, and empty.
fn keys_near(model: &Model, key_type: KeyType, random: &mut SmallRng) -> Vec<OwnedKey> {
    let mut near: Vec<OwnedKey> = (0..200).map(|_| random_key(key_type, random)).collect();
    for key in model.iter().flat_map(|(start, (end, _))| [start, end]) {
        near.push(key.clone());
        match key {
            OwnedKey::U64(key) => near.extend([key.wrapping_add(1), key.wrapping_sub(1)].map(OwnedKey::U64)),
            OwnedKey::Bytes(key) => {
                let last = key.len() - 1;
                let (mut above, mut below) = (key.clone(), key.clone());
                (above[last], below[last]) = (above[last].wrapping_add(1), below[last].wrapping_sub(1));
                let others = [above, below, key[..last].to_vec(), [key, &b"\0"[..]].concat(), [key, &key[..]].concat()];
                near.extend(others.map(OwnedKey::Bytes));
            }
        }
    }
    near.extend(match key_type.kind() {
        KeyKind::U64 => [0, u64::MAX].map(OwnedKey::U64).to_vec(),
        KeyKind::Bytes => [vec![], vec![0], vec![0xFF; 40]].map(OwnedKey::Bytes).to_vec(),
    });
    near
}

/// Returns a row of the model as [`Lookup`] returns it in copies.
fn row((key, (_, value)): (&OwnedKey, &(OwnedKey, Vec<u8>))) -> (OwnedKey, Vec<u8>) {
    (key.clone(), value.clone())
}

fn range_of(model: &Model, key: &OwnedKey) -> Option<(OwnedKey, OwnedKey, Vec<u8>)> {
    let (start, (end, value)) = model.range(..=key).next_back()?;
    (key <= end).then(|| (start.clone(), end.clone(), value.clone()))
}

/// Converts what tables lend, and what they copy, to what they copy.
trait Owned {
    type Owned;
    fn owned(self) -> Self::Owned;
}

impl Owned for Key<'_> {
    type Owned = OwnedKey;
    fn owned(self) -> OwnedKey {
        self.into()
    }
}

impl Owned for OwnedKey {
    type Owned = OwnedKey;
    fn owned(self) -> OwnedKey {
        self
    }
}

/// Compares all lookups in a table with the model.
fn compare<T: Lookup>(table: &T, model: &Model, has_ranges: bool, near: &[OwnedKey], random: &mut SmallRng)
where
    for<'t> T::Key<'t>: Owned<Owned = OwnedKey>,
{
    let keys: Vec<Key<'_>> = near.iter().map(OwnedKey::as_key).collect();
    let bytes = |value: &dyn AsRef<[u8]>| value.as_ref().to_vec();
    assert_eq!((table.len(), table.has_ranges()), (model.len(), has_ranges));

    let values = table.get_many(&keys).unwrap();
    let (floors, ceilings) = (table.floor_many(&keys).unwrap(), table.ceiling_many(&keys).unwrap());
    for (i, key) in near.iter().enumerate() {
        let value = model.get(key).map(|(_, value)| value.clone());
        assert_eq!(values[i].as_ref().map(|value| bytes(value)), value, "{key}");
        assert_eq!(table.get(keys[i]).unwrap().map(|value| bytes(&value)), value, "{key}");
        assert_eq!(table.contains(keys[i]).unwrap(), value.is_some(), "{key}");
    }
    for (i, ((floor, ceiling), key)) in floors.into_iter().zip(ceilings).zip(near).enumerate() {
        let (below, above) = (model.range(..=key).next_back().map(row), model.range(key..).next().map(row));
        assert_eq!(floor.map(|(key, value)| (key.owned(), bytes(&value))), below, "{key}");
        assert_eq!(ceiling.map(|(key, value)| (key.owned(), bytes(&value))), above, "{key}");
        if i % 7 == 0 {
            let (floor, ceiling) = (table.floor(keys[i]).unwrap(), table.ceiling(keys[i]).unwrap());
            assert_eq!(floor.map(|(key, value)| (key.owned(), bytes(&value))), below, "{key}");
            assert_eq!(ceiling.map(|(key, value)| (key.owned(), bytes(&value))), above, "{key}");
        }
    }

    if has_ranges {
        let ranges = table.cover_many(&keys).unwrap();
        let mut visited = Vec::new();
        let visit = |i, range: Option<(Key<'_>, Key<'_>, &[u8])>| {
            assert_eq!(i, visited.len());
            visited.push(range.map(|(start, end, value)| (start.owned(), end.owned(), value.to_vec())));
        };
        table.cover_many_with(&keys, visit).unwrap();
        for (i, (range, key)) in ranges.into_iter().zip(near).enumerate() {
            let expected = range_of(model, key);
            assert_eq!(range.map(|(start, end, value)| (start.owned(), end.owned(), bytes(&value))), expected, "{key}");
            assert_eq!(visited[i], expected, "{key}");
            let range = table.cover(keys[i]).unwrap();
            assert_eq!(range.map(|(start, end, value)| (start.owned(), end.owned(), bytes(&value))), expected, "{key}");
        }
    } else {
        assert_eq!(table.cover(keys[0]).map(|range| range.is_some()), Err(LookupError::NoRanges));
        assert_eq!(table.cover_many(&keys).map(|ranges| ranges.len()), Err(LookupError::NoRanges));
        let never = |_, _: Option<(Key<'_>, Key<'_>, &[u8])>| panic!("no range was expected");
        assert_eq!(table.cover_many_with(&keys, never), Err(LookupError::NoRanges));
    }

    let owned_rows = |rows: T::Rows<'_>| -> Vec<(OwnedKey, Vec<u8>)> {
        rows.map(|row| row.map(|(key, value)| (key.owned(), bytes(&value))).unwrap()).collect()
    };
    assert_eq!(owned_rows(table.iter()), model.iter().map(row).collect::<Vec<_>>());
    let backward = table.iter().rev().map(|row| row.map(|(key, value)| (key.owned(), bytes(&value))).unwrap());
    assert!(backward.eq(model.iter().rev().map(row)));
    for _ in 0..60 {
        let [start, end] = [(); 2].map(|()| near.choose(random).unwrap());
        let bound = |random: &mut SmallRng, key| match random.random_range(0..5) {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Included(key),
            _ => Bound::Excluded(key),
        };
        let range = (bound(random, start.as_key()), bound(random, end.as_key()));
        let is_after = |key: Key<'_>| match range.0 {
            Bound::Unbounded => true,
            Bound::Included(start) => key >= start,
            Bound::Excluded(start) => key > start,
        };
        let is_before = |key: Key<'_>| match range.1 {
            Bound::Unbounded => true,
            Bound::Included(end) => key <= end,
            Bound::Excluded(end) => key < end,
        };
        let inside = model.iter().filter(|(key, _)| is_after(key.as_key()) && is_before(key.as_key()));
        let expected: Vec<_> = inside.map(row).collect();
        assert_eq!(table.count(range).unwrap(), expected.len(), "{range:?}");
        assert_eq!(owned_rows(table.range(range).unwrap()), expected, "{range:?}");
        if let OwnedKey::Bytes(key) = start {
            let prefix = &key[..random.random_range(0..=key.len())];
            let has_prefix = |key: &OwnedKey| key.as_key().as_bytes().unwrap().starts_with(prefix);
            let expected: Vec<_> = model.iter().filter(|(key, _)| has_prefix(key)).map(row).collect();
            assert_eq!(table.count_prefix(prefix).unwrap(), expected.len());
            assert_eq!(owned_rows(table.prefix(prefix).unwrap()), expected);
        }
    }
    for number in 0..model.len().min(50) {
        let found = table.row(number).unwrap().map(|(key, value)| (key.owned(), bytes(&value)));
        assert_eq!(found, model.iter().nth(number).map(row));
    }
}

#[test]
fn lookups_in_tables_of_every_form_match_a_model() {
    let folder = tempfile::tempdir().unwrap();
    for (number, (name, has_ranges)) in
        KEY_TYPES.iter().flat_map(|name| [false, true].map(|has_ranges| (*name, has_ranges))).enumerate()
    {
        let key_type: KeyType = name.parse().unwrap();
        let layouts = match key_type.kind() {
            KeyKind::U64 => &[TableLayout::Fast, TableLayout::Compact][..],
            KeyKind::Bytes => &[TableLayout::Fast],
        };
        let seed = number as u64;
        for (layout, row_count) in layouts.iter().flat_map(|layout| [0, 1, 300].map(|count| (*layout, count))) {
            println!("{name}, {layout:?}, ranges: {has_ranges}, seed {seed}, {row_count} rows");
            let random = &mut SmallRng::seed_from_u64(seed);
            let model = random_model(key_type, has_ranges, row_count, random);
            let path: PathBuf = folder.path().join(format!("{number}-{layout}-{row_count}.db"));
            write(&path, layout, key_type, has_ranges, if seed % 5 == 4 { 16 } else { 8 }, &model);
            let near = keys_near(&model, key_type, random);
            let full = OpenOptions { verify: Verify::Full, ..OpenOptions::default() };
            compare(&Store::open_with(&path, &full).unwrap(), &model, has_ranges, &near, random);
            let touch = OpenOptions { verify: Verify::Touch, ..OpenOptions::default() };
            compare(&MappedStore::open_with(&path, &touch).unwrap(), &model, has_ranges, &near, random);
            let cold = OpenOptions { assume_cold: true, ..touch };
            compare(&MappedStore::open_with(&path, &cold).unwrap(), &model, has_ranges, &near, random);
        }
    }
}

#[test]
fn a_row_of_another_form_than_the_table_is_not_written() {
    let file = tempfile::tempfile().unwrap();
    let refused = |key_type: &str, has_ranges, row_key: RowKey<'_>| {
        let mut writer = RecordsWriter::new(&file, key_type.parse().unwrap(), has_ranges, 8, 1).unwrap();
        writer.push(row_key, b"value").unwrap_err().to_string()
    };
    let (sixteen, range) = (Key::from(&[1; 16]), RowKey { key: Key::U64(1), end: Some(Key::U64(2)) });
    for text in [
        refused("ip", false, Key::from("short").into()),
        refused("ip", true, sixteen.into()),
        refused("ip", true, RowKey { key: sixteen, end: Some(Key::from("short")) }),
        refused("u64", false, range),
        refused("u64", true, Key::U64(1).into()),
        refused("bytes", true, range),
    ] {
        assert!(text.contains("does not have the form of the table's keys"), "{text}");
    }
}
