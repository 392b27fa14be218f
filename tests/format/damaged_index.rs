//! Damaged blocks of the index are found when a lookup first reads them, and only lookups that need them fail.

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::{Duration, SystemTime};

use zero_kv::bake::TableLayout;
use zero_kv::client::Row;
use zero_kv::format::header::SectionKind;
use zero_kv::{Key, Lookup, LookupError, MappedStore, Store};

use crate::helpers::encoder::{
    self, BLOCK_SUMS, FENCE, FENCE_ROWS, FENCE_TREE, FENCES, GROUP_ROWS, PILOTS, PLACES, RECORDS,
};
use crate::helpers::rows::{Rows, Scratch, write_new};

const BLOCK: usize = 4096;
/// The number of rows. With so many, every section of the index has several blocks.
const ROWS: u64 = 70_000;

/// Returns rows with even keys.
fn rows() -> Rows {
    (0..ROWS).map(|row| (row * 2, row.to_le_bytes()[..3].to_vec())).collect()
}

fn value(key: u64) -> Option<Vec<u8>> {
    (key.is_multiple_of(2) && key < 2 * ROWS).then(|| (key / 2).to_le_bytes()[..3].to_vec())
}

/// Returns the range of bytes of a block of a section.
fn block_of(file: &[u8], section: usize, block: usize) -> Range<usize> {
    let (start, len) = encoder::section(file, section);
    start + block * BLOCK..start + len.min((block + 1) * BLOCK)
}

/// Flips a bit in the middle of a range of a file, which is not open.
fn damage(scratch: &Scratch, range: &Range<usize>) {
    let file = File::options().read(true).write(true).open(scratch.path()).unwrap();
    let (mut byte, at) = ([0], (range.start + range.end) as u64 / 2);
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x40], at).unwrap();
    // Sets an old time, so that opening the file does not wait.
    file.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
}

/// Returns whether a lookup of a key reads the damaged range.
fn reads(whole: &[u8], damaged: &Range<usize>, key: u64) -> bool {
    let (pilot, place) = (encoder::pilot_at(whole, &key), encoder::place_at(whole, &key));
    damaged.contains(&pilot) || damaged.contains(&place)
}

#[test]
fn a_damaged_block_of_pilots_or_places_fails_exactly_the_lookups_that_read_it() {
    let scratch = Scratch::new();
    let whole = scratch.bake(&rows());
    for (section, kind) in [(PILOTS, SectionKind::Pilots), (PLACES, SectionKind::Places)] {
        let count = encoder::section(&whole, section).1.div_ceil(BLOCK);
        assert!(count > 1, "{count} blocks of {kind}");
        for block in [0, count - 1] {
            write_new(&scratch.path(), &whole);
            let damaged = block_of(&whole, section, block);
            damage(&scratch, &damaged);
            for by_batch in [false, true] {
                let table = MappedStore::open(scratch.path()).unwrap();
                let keys: Vec<u64> = (0..2 * ROWS + 100).step_by(7).collect();
                let mut failed = 0;
                for key in &keys {
                    let expected = match reads(&whole, &damaged, *key) {
                        true => Err(LookupError::Damaged),
                        false => Ok(value(*key)),
                    };
                    failed += usize::from(expected.is_err());
                    let found = match by_batch {
                        true => table.get_many(&[*key]).map(|mut values| values.pop().flatten()),
                        false => table.get(*key),
                    };
                    assert_eq!(found, expected, "key {key}, block {block} of {kind}, by batch: {by_batch}");
                }
                assert!(failed > 0 && failed < keys.len(), "{failed} of {} lookups failed", keys.len());
                // SAFETY: Nobody changes the file any more.
                let store = unsafe { table.as_store() };
                let found: Vec<_> = store.take_damaged_blocks();
                assert_eq!(found.len(), 1);
                assert_eq!(store.section_of_block(found[0]), Some((kind, block)));
                assert_eq!(table.floor(5), Ok(Some((Key::U64(4).into(), value(4).unwrap()))), "fences are intact");
            }
        }
    }
}

/// The number of rows that a block of fences describes, and that the lowest level of a block of the fence tree leads to.
const FENCES_BLOCK_ROWS: u64 = (BLOCK / FENCE * FENCE_ROWS) as u64;
const TREE_BLOCK_ROWS: u64 = (BLOCK / size_of::<u64>() * FENCE_ROWS) as u64;

/// Returns the row that the table has beside a key of [`rows`], if its lookup needs no row of `damaged`.
fn unless_damaged(damaged: &Range<u64>, needed: &[u64], row: u64) -> Result<Option<Row>, LookupError> {
    match needed.iter().any(|row| damaged.contains(row)) {
        true => Err(LookupError::Damaged),
        false => Ok((row < ROWS).then(|| (Key::U64(2 * row).into(), value(2 * row).unwrap()))),
    }
}

fn copied(row: Option<(Key<'_>, &[u8])>) -> Option<Row> {
    row.map(|(key, value)| (key.into(), value.to_vec()))
}

/// Returns the only row that a lookup of many keys passes to its callback.
fn only_of_many(mut rows: Vec<Option<(Key<'_>, &[u8])>>) -> Option<Row> {
    copied(rows.pop().flatten())
}

#[test]
fn a_damaged_block_of_fences_or_of_their_tree_fails_exactly_the_lookups_that_read_it() {
    let scratch = Scratch::new();
    let whole = scratch.bake(&rows());
    for (section, block_rows) in [(FENCES, FENCES_BLOCK_ROWS), (FENCE_TREE, TREE_BLOCK_ROWS)] {
        fs::write(scratch.path(), &whole).unwrap();
        damage(&scratch, &block_of(&whole, section, 1));
        let damaged = block_rows..2 * block_rows;
        // Each of the two ways to look keys up begins with a file of which no block is verified.
        for by_batch in [false, true] {
            let table = MappedStore::open(scratch.path()).unwrap();
            // SAFETY: Nobody changes the file any more.
            let store = unsafe { table.as_store() };
            let (mut keys, mut failed) = ((0..2 * ROWS - 1).step_by(101).collect::<Vec<u64>>(), 0);
            keys.extend([damaged.start, damaged.end].iter().flat_map(|row| 2 * row - 3..=2 * row + 3));
            for key in keys {
                let (below, above) = (key / 2, key.div_ceil(2));
                // The search for the ceiling reads the fence of the last row below the key. If the row above is the first
                // one of the next fence, it reads this fence, too.
                let before = key.saturating_sub(1) / 2;
                let needed = if section == FENCES { vec![before, above] } else { vec![before] };
                let (floor, ceiling) = match by_batch {
                    true => (store.floor_many(&[key]).map(only_of_many), store.ceiling_many(&[key]).map(only_of_many)),
                    false => (store.floor(key).map(copied), store.ceiling(key).map(copied)),
                };
                let place = format!("key {key}, section {section}, by batch: {by_batch}");
                failed += usize::from(floor.is_err());
                assert_eq!(floor, unless_damaged(&damaged, &[below], below), "floor, {place}");
                assert_eq!(ceiling, unless_damaged(&damaged, &needed, above), "ceiling, {place}");
                // A search that needs a damaged block is repeated as the search for the ceiling.
                let is_damaged = damaged.contains(&below) && damaged.contains(&before);
                let count = if is_damaged { Err(LookupError::Damaged) } else { Ok(above as usize) };
                assert_eq!(store.count(..key), count, "{place}");
                assert_eq!(store.count_many(&[..key, ..0]), count.map(|count| vec![count, 0]), "{place}");
                assert_eq!(store.get(key).map(|value| value.map(<[u8]>::to_vec)), Ok(value(key)));
            }
            assert!(failed > 3, "{failed} lookups failed");
            let found = store.take_damaged_blocks();
            assert_eq!(found.len(), 1, "{found:?}");
        }
    }
}

#[test]
fn a_damaged_block_of_fences_fails_the_rows_that_need_it() {
    let scratch = Scratch::new();
    let whole = scratch.bake(&rows());
    damage(&scratch, &block_of(&whole, FENCES, 1));
    let table = MappedStore::open(scratch.path()).unwrap();
    let block_rows = FENCES_BLOCK_ROWS as usize;
    assert!(table.row(block_rows - 1).is_ok() && table.row(2 * block_rows).is_ok());
    assert_eq!(table.row(block_rows), Err(LookupError::Damaged));
    assert_eq!(table.row(2 * block_rows - 1), Err(LookupError::Damaged));
}

/// The length of a group of [`rows`], whose values have one length, and whose keys are near each other.
const GROUP: usize = 56;

/// Returns whether the lookup of the row of a key, or of the row `row` beside it, reads a damaged range of a file with the
/// compact layout.
fn reads_in_groups(whole: &[u8], damaged: &Range<usize>, key: u64, row: Option<u64>) -> bool {
    let start = |section| encoder::section(whole, section).0;
    let group = |row: u64| (row.min(ROWS - 1) / GROUP_ROWS as u64) as usize;
    // The search reads the group of the last row at or below the key, even if the row beside the key is in the next one.
    let groups = [group(key / 2), row.map_or(group(key / 2), group)];
    let of_groups = groups.into_iter().flat_map(|group| {
        let group_at = start(FENCES) + group * GROUP;
        [start(PLACES) + group * 4..start(PLACES) + group * 4 + 4, group_at..group_at + GROUP]
    });
    // Only the lowest level of the tree has several blocks.
    let node = start(FENCE_TREE) + groups[0] / 16 * 128;
    let value = row.map(|row| start(RECORDS) + row as usize * 3..start(RECORDS) + row as usize * 3 + 3);
    let mut all = of_groups.chain(std::iter::once(node..node + 128)).chain(value);
    all.any(|read| read.start < damaged.end && damaged.start < read.end)
}

#[test]
fn a_damaged_block_of_a_compact_table_fails_exactly_the_lookups_that_read_it() {
    let scratch = Scratch::of(TableLayout::Compact);
    let whole = scratch.bake(&rows());
    assert_eq!(encoder::section(&whole, FENCES).1, ROWS.div_ceil(GROUP_ROWS as u64) as usize * GROUP);
    for section in [RECORDS, FENCES, FENCE_TREE, PLACES] {
        write_new(&scratch.path(), &whole);
        let damaged = block_of(&whole, section, 1);
        damage(&scratch, &damaged);
        for by_batch in [false, true] {
            let table = MappedStore::open(scratch.path()).unwrap();
            // SAFETY: Nobody changes the file any more.
            let store = unsafe { table.as_store() };
            let mut failed = 0;
            for key in (0..2 * ROWS + 100).step_by(7) {
                let (below, above) = ((key / 2).min(ROWS - 1), key.div_ceil(2));
                let (get, floor, ceiling) = match by_batch {
                    true => (
                        store.get_many(&[key]).map(|mut values| values.pop().flatten().map(<[u8]>::to_vec)),
                        store.floor_many(&[key]).map(only_of_many),
                        store.ceiling_many(&[key]).map(only_of_many),
                    ),
                    false => (
                        store.get(key).map(|value| value.map(<[u8]>::to_vec)),
                        store.floor(key).map(copied),
                        store.ceiling(key).map(copied),
                    ),
                };
                let place = format!("key {key}, section {section}, by batch: {by_batch}");
                let fails = |row| reads_in_groups(&whole, &damaged, key, row);
                let found = value(key).map(|_| below);
                let expected = if fails(found) { Err(LookupError::Damaged) } else { Ok(value(key)) };
                assert_eq!(get, expected, "get, {place}");
                let row = |row: u64| (row < ROWS).then(|| (Key::U64(2 * row).into(), value(2 * row).unwrap()));
                let expected = if fails(Some(below)) { Err(LookupError::Damaged) } else { Ok(row(below)) };
                assert_eq!(floor, expected, "floor, {place}");
                let is_row = (above < ROWS).then_some(above);
                let expected = if fails(is_row) { Err(LookupError::Damaged) } else { Ok(row(above)) };
                assert_eq!(ceiling, expected, "ceiling, {place}");
                let count = if fails(None) { Err(LookupError::Damaged) } else { Ok(above.min(ROWS) as usize) };
                assert_eq!(store.count(..key), count, "count, {place}");
                failed += usize::from(get.is_err());
            }
            assert!(failed > 100 && failed < 19_000, "{failed} lookups failed");
            let found = store.take_damaged_blocks();
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(store.section_of_block(found[0]).map(|(_, block)| block), Some(1));
        }
    }
}

#[test]
fn lookups_of_byte_keys_by_order_return_the_right_rows_or_errors_whatever_block_is_damaged() {
    let scratch = Scratch::new();
    // Keys in pairs with equal heads, so that lookups compare the keys of records.
    let key = |row: u64| format!("user:{:06}:{}", row / 2, if row.is_multiple_of(2) { "a" } else { "b" }).into_bytes();
    let rows: Vec<(Vec<u8>, Vec<u8>)> = (0..9000).map(|row| (key(row), row.to_le_bytes()[..3].to_vec())).collect();
    let whole = scratch.bake(&rows);
    let intact = scratch.open(&whole).unwrap();
    let lookups: Vec<Vec<u8>> =
        (0..9000).step_by(37).flat_map(|row| [key(row), [&key(row)[..], b"+"].concat()]).collect();
    for section in [FENCES, FENCE_TREE] {
        for block in 0..encoder::section(&whole, section).1.div_ceil(BLOCK) {
            write_new(&scratch.path(), &whole);
            damage(&scratch, &block_of(&whole, section, block));
            // The first and the last fence are needed to open the file.
            let Ok(table) = MappedStore::open(scratch.path()) else { continue };
            let mut failed = 0;
            for key in &lookups {
                let key = &key[..];
                let results = [
                    (table.floor(key), copied(intact.floor(key).unwrap())),
                    (table.ceiling(key), copied(intact.ceiling(key).unwrap())),
                    (table.floor_many(&[key]).map(|mut rows| rows.pop().flatten()), copied(intact.floor(key).unwrap())),
                ];
                for (found, expected) in results {
                    failed += usize::from(found == Err(LookupError::Damaged));
                    assert!(found == Err(LookupError::Damaged) || found == Ok(expected), "{found:?}");
                }
                // SAFETY: Nobody changes the file any more.
                let count = unsafe { table.as_store() }.count(..key);
                let expected = intact.count(..key);
                assert!(count == Err(LookupError::Damaged) || count == expected, "{count:?}, {expected:?}");
            }
            assert!(failed > 0, "no lookup read block {block} of section {section}");
        }
    }
}

#[test]
fn a_file_with_a_damaged_root_or_with_damaged_checksums_is_rejected_at_open() {
    let scratch = Scratch::new();
    let whole = scratch.bake(&rows());
    let (start, len) = encoder::section(&whole, BLOCK_SUMS);
    // The root of so few blocks is one checksum. Opening the file needs the checksums before it, too.
    for part in [start + len - 8..start + len, start..start + 8] {
        fs::write(scratch.path(), &whole).unwrap();
        damage(&scratch, &part);
        let message = MappedStore::open(scratch.path()).unwrap_err().to_string();
        assert!(message.contains("section block sums has checksum"), "{message}");
    }
}

/// A change of the file ends the trust in the index, even if the whole index was verified before.
#[test]
fn an_index_block_that_is_damaged_while_the_file_is_open_fails_lookups_after_the_file_is_trusted_again() {
    let scratch = Scratch::new();
    let whole = scratch.bake(&rows());
    let all: Vec<u64> = (0..ROWS).map(|row| row * 2).collect();
    for section in [PILOTS, PLACES] {
        fs::write(scratch.path(), &whole).unwrap();
        File::options().write(true).open(scratch.path()).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let table = MappedStore::open(scratch.path()).unwrap();
        // These lookups read the whole index.
        assert!(table.get_many(&all).unwrap().iter().all(Option::is_some) && table.floor(5).unwrap().is_some());
        let damaged = block_of(&whole, section, 0);
        damage(&scratch, &damaged);
        assert_eq!(table.get(4), Err(LookupError::Damaged));
        table.look_again().unwrap();
        for key in (0..2 * ROWS).step_by(13) {
            let expected = if reads(&whole, &damaged, key) { Err(LookupError::Damaged) } else { Ok(value(key)) };
            assert_eq!(table.get(key), expected, "key {key}");
        }
        assert_eq!(table.floor(5), Ok(Some((Key::U64(4).into(), value(4).unwrap()))));
    }
}

#[test]
fn the_library_opens_a_file_without_verifying_its_blocks_and_verifies_each_block_once() {
    let scratch = Scratch::new();
    scratch.bake(&rows());
    let store = Store::open(scratch.path()).unwrap();
    let (blocks, at_open) = store.block_counts();
    // The first and the last fence, the first record, the records after the last fence, in at most two blocks, and the
    // checksums of these blocks, in at most three.
    assert!(at_open <= 8, "{at_open} of {blocks} blocks");
    assert_eq!(store.get(4).unwrap(), value(4).as_deref());
    let after_one = store.block_counts().1;
    assert!((at_open..=at_open + 3).contains(&after_one), "{at_open}, then {after_one}");
    assert_eq!(store.get(4).unwrap(), value(4).as_deref());
    assert_eq!(store.block_counts().1, after_one);
}
