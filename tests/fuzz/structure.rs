//! Files that are assembled from forged parts: every field and section takes extreme values, and every checksum is
//! correct.
//!
//! The target `open` starts from baked files, so its files rarely pass the checks of the header. Here the header is
//! derived from the sections, so forged sections reach the code after those checks.

use std::collections::BTreeMap;
use std::path::Path;

use zero_kv::Lookup;
use zero_kv::store::{OpenOptions, Unchecked, Verify};
use zero_kv::{Key, KeyKind, LookupError, Store};

use super::source::Source;
use crate::helpers::encoder::{
    self, BLOCK_SUMS, FENCE, FENCE_ROWS, FENCE_TREE, FENCES, HASH_SEED, Keyed, PILOTS, PLACES, RECORDS, ROW_COUNT,
    SECTIONS, number, put, put_u32, seal, tree_len,
};
use crate::helpers::records::{RecordKey, assert_lookups_match_its_records};
use crate::helpers::rows::write_new;

/// Row counts around the limits of one fence (18 rows).
const ROW_COUNTS: [u64; 5] = [0, 1, 2, 17, 33];
/// Fields of the header: offset and width in bytes. The digest and the checksums are not included. [`Field::Entry`]
/// covers the offsets and lengths of sections.
const HEADER_FIELDS: [(usize, usize); 8] = [(0, 8), (8, 4), (12, 4), (16, 8), (24, 8), (32, 8), (40, 4), (44, 4)];
/// Fields of a section's entry in the header: kind, reserved, offset, and length.
const ENTRY_FIELDS: [(usize, usize); 4] = [(0, 4), (4, 4), (8, 8), (16, 8)];
/// The maximum number of elements at each end of a section that are forged.
const ENDS_MAX: usize = 8;

/// A part of a file that can be forged.
#[derive(Clone, Copy, Debug)]
enum Field {
    /// The row count; the number of fences is adjusted to it.
    Rows,
    /// The number of elements of a section; the header has the matching length.
    Count(usize),
    /// An element of a section.
    Element(usize, usize),
    /// The 16-bit length of a key of bytes, at an offset in the records.
    KeyLen(usize),
    /// A number in the header.
    Header(usize, usize),
}

/// What a field is set to.
#[derive(Clone, Copy, Debug)]
enum Value {
    Zero,
    One,
    Max,
    OneMore,
    OneLess,
}

const VALUES: [Value; 5] = [Value::Zero, Value::One, Value::Max, Value::OneMore, Value::OneLess];

impl Value {
    /// Returns the new number for a field of this many bytes.
    fn applied_to(self, old: u64, width_bytes: usize) -> u64 {
        let max = u64::MAX >> (64 - 8 * width_bytes);
        let new = match self {
            Value::Zero => 0,
            Value::One => 1,
            Value::Max => u64::MAX,
            Value::OneMore => old.wrapping_add(1),
            Value::OneLess => old.wrapping_sub(1),
        };
        new & max
    }
}

/// Returns the length of an element of a section. Sections with other elements are forged word by word.
fn element_len_bytes(section: usize) -> usize {
    match section {
        PILOTS => 1,
        PLACES => 4,
        _ => 8,
    }
}

/// The parts of a file.
#[derive(Clone)]
struct Parts {
    key_kind: u32,
    row_count: u64,
    hash_seed: u64,
    sections: [Vec<u8>; 7],
}

impl Parts {
    fn from_rows<K: Keyed + Ord>(rows: &BTreeMap<K, Vec<u8>>) -> Parts {
        let file = encoder::encode(rows);
        let sections = SECTIONS.map(|section| {
            let (start, len) = encoder::section(&file, section);
            file[start..start + len].to_vec()
        });
        let (row_count, hash_seed) = (number(&file, ROW_COUNT), number(&file, HASH_SEED));
        Parts { key_kind: K::KIND, row_count, hash_seed, sections }
    }

    /// Returns every field of the file.
    fn fields(&self) -> Vec<Field> {
        let mut fields = vec![Field::Rows];
        fields.extend(SECTIONS.map(Field::Count));
        for section in SECTIONS {
            let count = self.sections[section].len() / element_len_bytes(section);
            let ends = (0..count).filter(|at| *at < ENDS_MAX || *at + ENDS_MAX >= count);
            fields.extend(ends.map(|at| Field::Element(section, at)));
        }
        if self.key_kind == Vec::<u8>::KIND {
            fields.extend((0..self.sections[RECORDS].len().min(8 * ENDS_MAX)).step_by(8).map(Field::KeyLen));
        }
        fields.extend(HEADER_FIELDS.map(|(at, width)| Field::Header(at, width)));
        for entry in SECTIONS {
            fields.extend(ENTRY_FIELDS.map(|(at, width)| Field::Header(64 + entry * 32 + at, width)));
        }
        fields
    }

    /// Returns the file with some fields set to other values and correct checksums.
    fn forge(&self, changes: &[(Field, Value)]) -> Vec<u8> {
        let mut parts = self.clone();
        for (field, value) in changes {
            parts.change(*field, *value);
        }
        // A change of only the block sums is kept. After any other change, the block sums are computed from the
        // records.
        let Parts { key_kind, row_count, hash_seed, mut sections } = parts;
        if !changes.iter().any(|(field, _)| matches!(field, Field::Count(BLOCK_SUMS))) {
            sections[BLOCK_SUMS] = encoder::block_sums_of(&sections[..BLOCK_SUMS]);
        }
        let mut file = encoder::assemble(key_kind, row_count, hash_seed, sections);
        for (field, value) in changes {
            match *field {
                Field::Header(at, 4) => {
                    let old = u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes"));
                    put_u32(&mut file, at, value.applied_to(old.into(), 4) as u32);
                }
                Field::Header(at, width) => {
                    let new = value.applied_to(number(&file, at), width);
                    put(&mut file, at, new);
                }
                _ => {}
            }
        }
        seal(&mut file);
        file
    }

    fn change(&mut self, field: Field, value: Value) {
        match field {
            Field::Rows => {
                // The greatest row count would take gigabytes of fences.
                self.row_count = value.applied_to(self.row_count, 8).min(1000);
                let fence_count = self.row_count.div_ceil(FENCE_ROWS as u64) as usize;
                self.sections[FENCES].resize(fence_count * FENCE, 0);
                self.sections[FENCE_TREE].resize(tree_len(fence_count), 0);
            }
            Field::Count(section) => {
                let len_bytes = element_len_bytes(section);
                let old = self.sections[section].len() / len_bytes;
                let new = value.applied_to(old as u64, 8).min(2 * old as u64 + 2) as usize;
                self.sections[section].resize(new * len_bytes, 0);
            }
            Field::Element(section, at) => {
                let len_bytes = element_len_bytes(section);
                let Some(element) = self.sections[section].get_mut(at * len_bytes..(at + 1) * len_bytes) else {
                    return;
                };
                set(element, value);
            }
            Field::KeyLen(at) => {
                if let Some(len) = self.sections[RECORDS].get_mut(at..at + 2) {
                    set(len, value);
                }
            }
            Field::Header(..) => {}
        }
    }
}

fn set(field: &mut [u8], value: Value) {
    let mut old = [0; 8];
    old[..field.len()].copy_from_slice(field);
    let new = value.applied_to(u64::from_le_bytes(old), field.len());
    field.copy_from_slice(&new.to_le_bytes()[..field.len()]);
}

/// Correct files to forge from, and the keys that are looked up in the forged ones.
pub struct Originals(Vec<Parts>);

impl Originals {
    pub fn encode() -> Originals {
        let value = |i: u64| vec![i as u8; (i % 11) as usize];
        let numbers = ROW_COUNTS.map(|count| Parts::from_rows(&(0..count).map(|i| (i * i * 3, value(i))).collect()));
        let bytes = ROW_COUNTS.map(|count| {
            let key = |i: u64| format!("user:{}{i}", "x".repeat(i as usize % 12)).into_bytes();
            Parts::from_rows(&(0..count).map(|i| (key(i), value(i))).collect())
        });
        Originals(numbers.into_iter().chain(bytes).collect())
    }

    /// Returns every file with one forged field.
    pub fn single_forgeries(&self) -> impl Iterator<Item = (String, Vec<u8>)> {
        self.0.iter().flat_map(|parts| {
            let changes = parts.fields().into_iter().flat_map(|field| VALUES.map(|value| (field, value)));
            changes.map(|change| (format!("{} rows, {change:?}", parts.row_count), parts.forge(&[change])))
        })
    }

    /// Returns a file with one to four forged fields, which the bytes select.
    pub fn forgery(&self, data: &[u8]) -> Vec<u8> {
        let mut source = Source::new(data);
        let parts = &self.0[source.below(self.0.len())];
        let fields = parts.fields();
        // Sections and the row count are selected as often as all other fields together.
        let structural = 1 + SECTIONS.len();
        let changes: Vec<(Field, Value)> = (0..1 + source.below(4))
            .map(|_| {
                let limit = if source.one_in(2) { structural } else { fields.len() };
                (fields[source.below(1 << 16) % limit], VALUES[source.below(VALUES.len())])
            })
            .collect();
        parts.forge(&changes)
    }
}

/// Opens a file in every mode and makes every kind of lookup. The file is rejected, or every answer is one of its
/// records.
pub fn check(path: &Path, file: &[u8]) {
    write_new(path, file);
    let is_whole = Unchecked::open(path).is_ok_and(|unchecked| {
        let damaged = unchecked.damaged_sections();
        let row_count = unchecked.layout().dimensions.row_count;
        unchecked.check().is_ok_and(|store| {
            assert!(damaged.is_empty(), "{damaged:?} are damaged in a file that passed its check");
            assert_eq!(store.iter().map(Result::unwrap).count() as u64, row_count);
            true
        })
    });
    let [full, touch] = [Verify::Full, Verify::Touch].map(|verify| {
        let options = OpenOptions { verify, ..OpenOptions::default() };
        Store::open_with(path, &options).ok()
    });
    assert_eq!(full.is_some(), is_whole, "both full checks agree");
    assert!(full.is_none() || touch.is_some(), "a whole file opens in every mode");
    for store in full.iter().chain(&touch) {
        match store.key_kind() {
            KeyKind::U64 => ask(store, file, &number_keys(), is_whole),
            _ => ask(store, file, &byte_keys(), is_whole),
        }
    }
}

fn number_keys() -> Vec<u64> {
    (0..8).flat_map(|i: u64| [i * i * 3, i * i * 3 + 1]).chain([u64::MAX]).collect()
}

fn byte_keys() -> Vec<Vec<u8>> {
    let keys = (0..8).map(|i| format!("user:{}{i}", "x".repeat(i % 12)).into_bytes());
    keys.chain([vec![], vec![0], vec![255; 3], b"user:".to_vec()]).collect()
}

/// Makes every kind of lookup. In an invalid file, results can be missing or in any order, but each is a record.
fn ask<K: RecordKey>(store: &Store, file: &[u8], keys: &[K], is_whole: bool) {
    if is_whole {
        assert_lookups_match_its_records(store, file, keys);
    }
    let (start, len) = encoder::section(file, RECORDS);
    let records = &file[start..start + len];
    let is_stored = |key: Key<'_>, value: &[u8]| {
        let prefix = match key {
            Key::U64(key) => key.to_le_bytes().to_vec(),
            Key::Bytes(key) => [&(key.len() as u16).to_le_bytes()[..], key].concat(),
        };
        let answer = [&[0; 4], &(value.len() as u32).to_be_bytes(), value].concat();
        // The padding of a key can be forged, too.
        let is_record = |record: &[u8]| {
            let answer_at = prefix.len().next_multiple_of(8);
            record.starts_with(&prefix) && record.get(answer_at..).is_some_and(|rest| rest.starts_with(&answer))
        };
        assert!((0..len).any(|at| is_record(&records[at..])), "{key:?} is not a record");
    };
    let rows = |rows: Result<zero_kv::store::Rows<'_>, LookupError>| {
        let Ok(rows) = rows else { return };
        let skipped = rows.clone().nth(17).into_iter().chain(rows.clone().nth_back(17));
        let found = rows.clone().chain(rows.clone().rev()).chain(skipped);
        found.flatten().for_each(|(key, value)| is_stored(key, value));
    };
    let row = |row: Result<Option<(Key<'_>, &[u8])>, LookupError>| {
        if let Ok(Some((key, value))) = row {
            is_stored(key, value);
        }
    };
    for key in keys {
        let key = key.key();
        if let Ok(Some(value)) = store.get(key) {
            is_stored(key, value);
        }
        let _ = store.contains(key);
        row(store.floor(key));
        row(store.ceiling(key));
        rows(store.range(key..));
        rows(store.range(..=key));
        let _ = store.count(key..);
        if let Some(prefix) = key.as_bytes() {
            rows(store.prefix(prefix));
        }
    }
    let asked: Vec<Key<'_>> = keys.iter().map(|key| key.key()).collect();
    let _ = store.get_many_with(&asked, |i, value| {
        if let Some(value) = value {
            is_stored(asked[i], value);
        }
    });
    row(store.first());
    row(store.last());
    rows(store.range(..));
    (0..store.len() + 2).for_each(|number| row(store.row(number)));
    let blocks: usize =
        SECTIONS[..BLOCK_SUMS].iter().map(|section| encoder::section(file, *section).1.div_ceil(4096)).sum();
    // The checksums of so few blocks are one block.
    let blocks = if blocks == 0 { 0 } else { blocks + 1 };
    for block in 0..blocks + 2 {
        assert_eq!(store.verify_block(block).is_some(), block < blocks, "block {block}");
    }
}
