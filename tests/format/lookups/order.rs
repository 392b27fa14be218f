//! Ordered lookups.

use std::fmt::Debug;
use std::ops::{Bound, RangeBounds};

use proptest::prelude::*;
use zero_kv::Lookup;
use zero_kv::format::OwnedKey;
use zero_kv::store::Rows;
use zero_kv::{Key, LookupError, MappedStore, Store};

use super::{DerivedKeys, Model, assert_agrees, bake_shuffled, keys_to_look_up, rows_of};
use crate::helpers::random::Random;
use crate::helpers::rows::{Scratch, TestKey};

/// Returns the key of a row with a number.
type KeyOf<K> = fn(u64) -> K;

/// Compares every ordered lookup of these keys with the model, with some of the keys as both ends of ranges.
pub(crate) fn assert_order_agrees<K: DerivedKeys>(store: &Store, model: &Model<K>, keys: &[K], random: &mut Random) {
    for key in keys {
        let (floor, ceiling) = (model.range(..=key).next_back(), model.range(key..).next());
        assert_eq!(store.floor(key.key()).unwrap(), row_of(floor), "floor of {key:?}");
        assert_eq!(store.ceiling(key.key()).unwrap(), row_of(ceiling), "ceiling of {key:?}");
    }
    assert_batches_agree(store, model, keys, random);
    let rows = rows_of(model);
    for _ in 0..(40_000 / (rows.len() + 1)).clamp(4, 40) {
        let mut bound = || {
            let key = keys[random.below(keys.len())].key();
            match random.below(5) {
                0 => Bound::Unbounded,
                1 | 2 => Bound::Included(key),
                _ => Bound::Excluded(key),
            }
        };
        let range = (bound(), bound());
        let expected = rows_between(&rows, range);
        assert_eq!(store.count(range).unwrap(), expected.len(), "rows in {range:?}");
        assert_rows(&range, || store.range(range).unwrap(), expected, random);
    }
    assert_batches_of_ranges_agree(store, &rows, keys, random);
}

/// Compares the rows and the counts of batches of ranges with the model. The batches have various lengths.
fn assert_batches_of_ranges_agree<K: DerivedKeys>(
    store: &Store,
    rows: &[(Key<'_>, &[u8])],
    keys: &[K],
    random: &mut Random,
) {
    for len in [0, 1, 2, 7, 8, 9, 1 + random.below(100)] {
        let mut bound = |near: usize| {
            let key = keys[near.min(keys.len() - 1)].key();
            match random.below(6) {
                0 => Bound::Unbounded,
                1..=3 => Bound::Included(key),
                _ => Bound::Excluded(key),
            }
        };
        let ranges: Vec<_> = (0..len)
            .map(|i| {
                let start = i * 7919 % keys.len();
                (bound(start), bound(if i % 3 == 0 { start + i } else { i * 104_729 % keys.len() }))
            })
            .collect();
        let expected: Vec<&[_]> = ranges.iter().map(|range| rows_between(rows, *range)).collect();
        let (counts, found) = (store.count_many(&ranges).unwrap(), store.range_many(&ranges).unwrap());
        assert!(counts.into_iter().eq(expected.iter().map(|rows| rows.len())), "counts of {ranges:?}");
        assert_eq!(found.len(), ranges.len());
        for (i, (found, expected)) in found.into_iter().zip(&expected).enumerate() {
            assert!(found.clone().map(Result::unwrap).eq(expected.iter().copied()), "forward in {:?}", ranges[i]);
            assert!(found.map(Result::unwrap).rev().eq(expected.iter().rev().copied()), "backward in {:?}", ranges[i]);
        }
    }
}

/// Compares the floors and ceilings of batches of keys with the model. The batches have various lengths.
fn assert_batches_agree<K: DerivedKeys>(store: &Store, model: &Model<K>, keys: &[K], random: &mut Random) {
    let mut rest = keys;
    while !rest.is_empty() {
        let (batch, later) = rest.split_at(rest.len().min(1 + random.below(100)));
        rest = later;
        let keys: Vec<Key<'_>> = batch.iter().map(TestKey::key).collect();
        let (floors, ceilings) = (store.floor_many(&keys).unwrap(), store.ceiling_many(&keys).unwrap());
        for (i, key) in batch.iter().enumerate() {
            assert_eq!(floors[i], row_of(model.range(..=key).next_back()), "floor of {key:?} in {keys:?}");
            assert_eq!(ceilings[i], row_of(model.range(key..).next()), "ceiling of {key:?} in {keys:?}");
        }
        assert_eq!((floors.len(), ceilings.len()), (keys.len(), keys.len()));
    }
}

fn row_of<'m, K: TestKey>(row: Option<(&'m K, &'m Vec<u8>)>) -> Option<(Key<'m>, &'m [u8])> {
    row.map(|(key, value)| (key.key(), value.as_slice()))
}

/// Returns the rows of the model in a range, which may end before it begins.
fn rows_between<'r, 'm>(
    rows: &'r [(Key<'m>, &'m [u8])],
    range: (Bound<Key<'_>>, Bound<Key<'_>>),
) -> &'r [(Key<'m>, &'m [u8])] {
    let Some(start) = rows.iter().position(|(key, _)| range.contains(key)) else { return &[] };
    let end = rows.iter().rposition(|(key, _)| range.contains(key)).expect("the one found from the start");
    &rows[start..=end]
}

/// Asserts that an iterator over rows returns the same items as an iterator over a slice, whichever end is advanced.
fn assert_rows<'s>(what: &dyn Debug, rows: impl Fn() -> Rows<'s>, expected: &[(Key<'_>, &[u8])], random: &mut Random) {
    assert!(rows().map(Result::unwrap).eq(expected.iter().copied()), "forward in {what:?}");
    assert!(rows().map(Result::unwrap).rev().eq(expected.iter().rev().copied()), "backward in {what:?}");
    assert_eq!((rows().len(), rows().last()), (expected.len(), expected.last().copied().map(Ok)), "{:?}", rows());
    for farthest in [1, 3, 40] {
        let (mut found, mut model) = (rows(), expected.iter().copied().map(Ok));
        for _ in 0..120 {
            let count = random.below(farthest);
            let left = model.len();
            assert_eq!((found.len(), found.size_hint()), (left, (left.min(1), Some(left))));
            match random.below(4) {
                0 => assert_eq!(found.next(), model.next(), "in {what:?}"),
                1 => assert_eq!(found.next_back(), model.next_back(), "in {what:?}"),
                2 => assert_eq!(found.nth(count), model.nth(count), "{count} skipped in {what:?}"),
                _ => {
                    assert_eq!(
                        found.nth_back(count),
                        model.nth_back(count),
                        "{count} skipped from the end of {what:?}"
                    );
                }
            }
            let rest = found.clone();
            if random.below(20) == 0 {
                assert!(rest.eq(model.clone()), "what is left of {what:?}");
            }
        }
    }
}

/// Compares lookups of every prefix of each key, and of byte strings near it, with the model.
fn assert_prefixes_agree(store: &Store, model: &Model<Vec<u8>>, random: &mut Random) {
    let rows = rows_of(model);
    let mut prefixes = vec![vec![], vec![0], vec![255], vec![255; 3], vec![255; 65_536]];
    for key in model.keys().step_by(model.len() / 30 + 1) {
        prefixes.extend((0..=key.len().min(60)).map(|len| key[..len].to_vec()));
        prefixes.extend(key.near());
    }
    for prefix in prefixes {
        let begins = |key: &Key<'_>| key.as_bytes().unwrap().starts_with(&prefix);
        let expected: Vec<_> = rows.iter().copied().filter(|(key, _)| begins(key)).collect();
        assert_eq!(store.prefix(&prefix).unwrap().len(), expected.len(), "prefix {prefix:?}");
        if random.below(8) == 0 {
            assert_rows(&prefix, || store.prefix(&prefix).unwrap(), &expected, random);
        }
    }
}

const SIZES: [u64; 9] = [0, 1, 2, 17, 18, 19, 36, 288, 1000];

#[test]
fn ordered_lookups_of_numbers_match_the_model() {
    let scratch = Scratch::new();
    for rows in SIZES {
        let gaps: [(&str, KeyOf<u64>); 7] = [
            ("no gaps", |i| i),
            ("gaps of 9", |i| 5 + i * 10),
            ("ever wider gaps", |i| i * i * i),
            ("up to the greatest", |i| u64::MAX - i * 3),
            ("powers of two and their neighbors", |i| (1_u64 << (i % 59)).wrapping_add(i / 59 * 7)),
            ("small clusters far apart", |i| (i / 5).wrapping_mul(0x9E37_79B9_7F4A_7C15) / 256 * 256 + i % 5),
            ("spread over all numbers", |i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
        ];
        for (name, key) in gaps {
            println!("{rows} rows, {name}");
            let model: Model<u64> = (0..rows).map(|i| (key(i), key(i).to_string().into_bytes())).collect();
            assert_agrees(&bake_shuffled(&scratch, &model, 1), &model, 2);
        }
    }
}

/// Returns one of many keys that fences, which store 8 bytes of a key, cannot distinguish.
fn key_with_equal_fence(i: u64) -> Vec<u8> {
    [b"common", &[b'x'; 40][..], format!("{i:06}").as_bytes()].concat()
}

/// Returns one of many keys: some groups of keys have equal fences, and other keys precede or follow the groups.
fn key_with_equal_fence_in_groups(i: u64) -> Vec<u8> {
    match i % 7 {
        0 => [&i.to_be_bytes()[6..], b"behind the common ones: no"].concat(),
        1 => [b"commoner", &i.to_be_bytes()[..]].concat(),
        group => [format!("commo{group}..").as_bytes(), &[b'='; 40], &i.to_le_bytes()].concat(),
    }
}

/// Returns a key that is a prefix of the next key. The first key is the common prefix itself.
fn nested(i: u64) -> Vec<u8> {
    vec![0; i as usize + 1]
}

#[test]
fn ordered_lookups_of_byte_keys_match_the_model() {
    let scratch = Scratch::new();
    let mut random = Random(3);
    let distributions: [(&str, KeyOf<Vec<u8>>); 6] = [
        ("alike but for the end", key_with_equal_fence),
        ("alike in groups", key_with_equal_fence_in_groups),
        ("beginnings of each other", nested),
        ("numbers", |i| (i * 257).to_be_bytes().to_vec()),
        ("all zeros but one", |i| [vec![0; 12], vec![i as u8, (i >> 8) as u8]].concat()),
        ("words", |i| i.to_string().into_bytes()),
    ];
    for rows in SIZES {
        for (name, key) in distributions {
            println!("{rows} rows, {name}");
            let mut model: Model<Vec<u8>> = (0..rows).map(|i| (key(i), i.to_string().into_bytes())).collect();
            assert_eq!(model.len() as u64, rows, "keys differ");
            let store = bake_shuffled(&scratch, &model, 1);
            assert_agrees(&store, &model, 2);
            assert_prefixes_agree(&store, &model, &mut random);
            // Adds keys at both ends that share no prefix with the others.
            model.extend([(vec![0], vec![]), (vec![255; 3], vec![])]);
            let store = bake_shuffled(&scratch, &model, 1);
            assert_agrees(&store, &model, 2);
            assert_prefixes_agree(&store, &model, &mut random);
        }
    }
}

/// The values are long enough that a batch ends after a few keys.
#[test]
fn batches_from_a_mapped_file_match_the_model() {
    let scratch = Scratch::new();
    let value = |i: u64| vec![i as u8; if i.is_multiple_of(50) { 70_000 } else { i as usize }];
    let numbers: Model<u64> = (0..1000).map(|i| (i * 10, value(i))).collect();
    assert_mapped_batches_agree(&scratch, &numbers);
    let texts: Model<Vec<u8>> = (0..1000).map(|i| (key_with_equal_fence_in_groups(i), value(i))).collect();
    assert_mapped_batches_agree(&scratch, &texts);
}

fn assert_mapped_batches_agree<K: DerivedKeys>(scratch: &Scratch, model: &Model<K>) {
    bake_shuffled(scratch, model, 1);
    let table = MappedStore::open(scratch.path()).unwrap();
    let keys = keys_to_look_up(model, &mut Random(4));
    let asked: Vec<Key<'_>> = keys.iter().map(TestKey::key).collect();
    let owned = |row: Option<(Key<'_>, &[u8])>| row.map(|(key, value)| (OwnedKey::from(key), value.to_vec()));
    let floors = keys.iter().map(|key| owned(row_of(model.range(..=key).next_back())));
    let ceilings = keys.iter().map(|key| owned(row_of(model.range(key..).next())));
    assert!(table.floor_many(&asked).unwrap().into_iter().eq(floors));
    assert!(table.ceiling_many(&asked).unwrap().into_iter().eq(ceilings));
    let other = if asked[0].as_u64().is_some() { Key::from("other") } else { Key::from(7) };
    let mixed = [asked[0], other];
    assert!(matches!(table.floor_many(&mixed), Err(LookupError::KeyKind { .. })));
    assert!(matches!(table.ceiling_many(&mixed), Err(LookupError::KeyKind { .. })));
    assert_eq!(table.floor_many(&asked[..0]), Ok(vec![]));
    let rows = rows_of(model);
    let ranges: Vec<_> = asked.iter().zip(asked.iter().rev()).map(|(start, end)| *start..*end).collect();
    let expected: Vec<_> = ranges
        .iter()
        .map(|range| rows_between(&rows, (range.start_bound().cloned(), range.end_bound().cloned())))
        .collect();
    assert_eq!(table.count_many(&ranges).unwrap(), expected.iter().map(|rows| rows.len()).collect::<Vec<_>>());
    for (found, expected) in table.range_many(&ranges[..20]).unwrap().into_iter().zip(expected) {
        assert!(found.map(Result::unwrap).eq(expected.iter().map(|row| owned(Some(*row)).unwrap())));
    }
    assert!(matches!(table.count_many(&[mixed[0]..mixed[1]]), Err(LookupError::KeyKind { .. })));
}

#[test]
fn fences_with_equal_bytes_are_distinguished() {
    let scratch = Scratch::new();
    for (name, key) in [("in groups", key_with_equal_fence_in_groups as KeyOf<Vec<u8>>), ("all", key_with_equal_fence)]
    {
        println!("alike {name}");
        let mut model: Model<Vec<u8>> = (0..9000).map(|i| (key(i), i.to_string().into_bytes())).collect();
        model.extend([(vec![0], vec![]), (vec![255; 3], vec![])]);
        assert_agrees(&bake_shuffled(&scratch, &model, 1), &model, 2);
    }
}

/// The distance between two records of a fence has 16 bits, in units of 8 bytes. Values of 600,000 bytes are too long.
#[test]
fn rows_after_very_long_values_are_found() {
    let scratch = Scratch::new();
    for every in [1, 2, 5, 17, 18, 19] {
        let value = |i: u64| vec![i as u8; if i.is_multiple_of(every) && i < 40 { 600_000 } else { i as usize }];
        let numbers: Model<u64> = (0..50).map(|i| (i * 10, value(i))).collect();
        let texts: Model<Vec<u8>> = (0..50).map(|i| (key_with_equal_fence_in_groups(i), value(i))).collect();
        println!("every {every}th value is long");
        assert_agrees(&bake_shuffled(&scratch, &numbers, 1), &numbers, 2);
        assert_agrees(&bake_shuffled(&scratch, &texts, 1), &texts, 2);
    }
}

#[test]
fn a_range_is_accepted_in_every_form() {
    let scratch = Scratch::new();
    let model: Model<Vec<u8>> = b"abcde".iter().map(|key| (vec![*key], vec![])).collect();
    let store = bake_shuffled(&scratch, &model, 1);
    let (string, vec) = ("b".to_owned(), b"d".to_vec());
    assert_eq!((store.range(..).unwrap().len(), store.count(..)), (5, Ok(5)));
    assert_eq!(
        (store.count("b".."d"), store.count(b"b"..b"d"), store.count(string.as_str().."d")),
        (Ok(2), Ok(2), Ok(2))
    );
    assert_eq!(
        (store.count(&string..&string), store.count(&vec..&vec), store.count(&vec[..]..&vec)),
        (Ok(0), Ok(0), Ok(0))
    );
    assert_eq!((store.count("b"..), store.count(b"b"..), store.count(&string..)), (Ok(4), Ok(4), Ok(4)));
    assert_eq!((store.count(&vec..), store.count(&vec[..]..)), (Ok(2), Ok(2)));
    assert_eq!((store.count(.."b"), store.count(..b"b"), store.count(..&string)), (Ok(1), Ok(1), Ok(1)));
    assert_eq!((store.count(..&vec), store.count(..&vec[..])), (Ok(3), Ok(3)));
    assert_eq!((store.count("b"..="d"), store.count(b"b"..=b"d"), store.count(&vec..=&vec)), (Ok(3), Ok(3), Ok(1)));
    assert_eq!((store.count(..="d"), store.count(..=b"d"), store.count(..=&vec)), (Ok(4), Ok(4), Ok(4)));
    assert_eq!(store.count(Key::from(&string)..Key::from(&vec)), Ok(2));
    assert_eq!(store.count((Bound::Excluded(&string), Bound::Included(&string))), Ok(0));
    assert_eq!(store.count((Bound::Excluded(b"b"), Bound::Unbounded)), Ok(3));

    let model: Model<u64> = (1..=5).map(|key| (key, vec![])).collect();
    let store = bake_shuffled(&scratch, &model, 1);
    assert_eq!((store.count(..), store.count(2..4), store.count(2..), store.count(..2)), (Ok(5), Ok(2), Ok(4), Ok(1)));
    assert_eq!((store.count(2..=4), store.count(..=4)), (Ok(3), Ok(4)));
    assert_eq!(store.count((Bound::Excluded(2), Bound::Included(4))), Ok(2));
    let mut taken = 2..=4;
    assert_eq!((taken.by_ref().count(), store.count(taken)), (3, Ok(0)));
}

#[test]
fn skipping_rows_of_a_range_equals_skipping_in_the_model() {
    let scratch = Scratch::new();
    let model: Model<u64> = (0..1000).map(|key| (key * 3, vec![b'v'; key as usize % 30])).collect();
    let store = bake_shuffled(&scratch, &model, 6);
    let rows = rows_of(&model);
    for (first, last) in [(0, 999), (7, 500), (18, 36), (17, 19), (990, 999), (400, 400)] {
        let range = || store.range(first * 3..=last * 3).unwrap();
        let expected = &rows[first as usize..=last as usize];
        for skipped in [0, 1, 16, 17, 18, 19, 35, 36, 37, 200, 998, 999, 1000, usize::MAX] {
            let (mut found, mut model) = (range(), expected.iter().copied().map(Ok));
            assert_eq!(found.nth(skipped), model.nth(skipped), "{first} to {last}, {skipped} skipped");
            assert!(found.clone().rev().eq(model.clone().rev()), "backward from there");
            assert!(found.eq(model), "and forward");
            assert_eq!(range().rev().nth(skipped), expected.iter().rev().copied().map(Ok).nth(skipped));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(11),
        ..ProptestConfig::default()
    })]

    #[test]
    fn ranges_and_prefixes_of_any_keys_match_a_sorted_map(
        // Keys consist of few different bytes, so that many share a prefix.
        model in prop::collection::btree_map(
            prop::collection::vec(prop::sample::select(&b"\0\x01a\xfe\xff"[..]), 1..14),
            prop::collection::vec(any::<u8>(), 0..12),
            0..120,
        ),
        seed in any::<u64>(),
    ) {
        let store = bake_shuffled(&Scratch::new(), &model, seed);
        assert_agrees(&store, &model, seed);
        assert_prefixes_agree(&store, &model, &mut Random(seed));
    }
}
