//! A key of the other kind is an error. A key that no table can contain is not found.

use std::ops::Bound;

use zero_kv::Lookup;
use zero_kv::{Key, KeyKind, LookupError, Store};

use super::{Model, bake_shuffled};
use crate::helpers::rows::Scratch;

fn numbers(scratch: &Scratch) -> Store {
    bake_shuffled(scratch, &Model::<u64>::from([(7, b"seven".to_vec()), (9, b"nine".to_vec())]), 1)
}

fn words(scratch: &Scratch) -> Store {
    bake_shuffled(scratch, &Model::from([(b"7".to_vec(), b"seven".to_vec()), (b"9".to_vec(), b"nine".to_vec())]), 1)
}

/// Returns the outcome of every kind of lookup with a key.
fn outcomes(store: &Store, key: Key<'_>) -> Vec<(&'static str, Option<LookupError>)> {
    let ends = [Bound::Included(key), Bound::Excluded(key)];
    let mut outcomes = vec![
        ("get", store.get(key).err()),
        ("contains", store.contains(key).err()),
        ("get_many", store.get_many_with(&[key, key], |_, _| ()).err()),
        ("floor", store.floor(key).err()),
        ("ceiling", store.ceiling(key).err()),
    ];
    for end in ends {
        outcomes.push(("range from", store.range((end, Bound::Unbounded)).err()));
        outcomes.push(("range to", store.range((Bound::Unbounded, end)).err()));
        outcomes.push(("count from", store.count((end, Bound::Unbounded)).err()));
        outcomes.push(("count to", store.count((Bound::Unbounded, end)).err()));
    }
    outcomes
}

#[test]
fn a_key_of_the_other_kind_is_an_error_in_every_lookup() {
    let scratch = Scratch::new();
    let store = numbers(&scratch);
    assert_eq!(store.key_kind(), KeyKind::U64);
    let expected = LookupError::KeyKind { held: KeyKind::U64, asked: KeyKind::Bytes };
    for key in [&b"7"[..], b"", b"\x07\0\0\0\0\0\0\0", &[0; 65_536]] {
        for (how, error) in outcomes(&store, Key::Bytes(key)) {
            assert_eq!(error, Some(expected), "{how}");
        }
        assert_eq!(store.prefix(key).err(), Some(expected), "prefix");
    }
    assert_eq!(
        expected.to_string(),
        "keys of this table are unsigned 64-bit numbers, but the requested key is of another kind, bytes: \
         request a key of the table's kind, or bake a table with keys of the requested kind"
    );

    let store = words(&scratch);
    assert_eq!(store.key_kind(), KeyKind::Bytes);
    let expected = LookupError::KeyKind { held: KeyKind::Bytes, asked: KeyKind::U64 };
    for key in [7, 0, u64::MAX, 0x37] {
        for (how, error) in outcomes(&store, Key::U64(key)) {
            assert_eq!(error, Some(expected), "{how}");
        }
    }
    assert_eq!(
        expected.to_string(),
        "keys of this table are bytes, but the requested key is of another kind, unsigned 64-bit numbers: \
         request a key of the table's kind, or bake a table with keys of the requested kind"
    );
}

#[test]
fn keys_of_the_tables_kind_are_accepted() {
    let scratch = Scratch::new();
    let store = numbers(&scratch);
    assert!([7, 8, 0, u64::MAX].iter().all(|key| outcomes(&store, Key::U64(*key)).iter().all(|(_, e)| e.is_none())));
    let store = words(&scratch);
    for key in ["7", "8", "", "70"] {
        assert!(outcomes(&store, Key::from(key)).iter().all(|(_, error)| error.is_none()), "{key:?}");
    }
    assert_eq!(store.prefix("").map(|rows| rows.len()), Ok(2));
}

#[test]
fn an_empty_table_has_a_key_kind() {
    let scratch = Scratch::new();
    let store = bake_shuffled(&scratch, &Model::<u64>::new(), 1);
    assert!(outcomes(&store, Key::from("7")).iter().all(|(_, error)| error.is_some()));
    let store = bake_shuffled(&scratch, &Model::<Vec<u8>>::new(), 1);
    assert_eq!(store.key_kind(), KeyKind::Bytes);
    assert!(outcomes(&store, Key::U64(7)).iter().all(|(_, error)| error.is_some()));
    assert_eq!((store.get("7"), store.floor("7"), store.ceiling("")), (Ok(None), Ok(None), Ok(None)));
}

#[test]
fn a_batch_with_one_key_of_the_other_kind_visits_no_value() {
    let scratch = Scratch::new();
    let (store, mut answers) = (numbers(&scratch), 0);
    for at in [0, 1, 40, 99] {
        let mut keys = [Key::U64(7); 100];
        keys[at] = Key::from("7");
        assert!(store.get_many_with(&keys, |_, _| answers += 1).is_err());
    }
    assert_eq!(answers, 0);
}

#[test]
fn an_empty_or_too_long_key_is_not_found_without_an_error() {
    let scratch = Scratch::new();
    // If a length wraps around at two bytes, it is the length of one of these rows.
    let long = vec![b'k'; 65_535];
    let model = Model::from([(b"k".to_vec(), b"1".to_vec()), (long.clone(), b"2".to_vec())]);
    let store = bake_shuffled(&scratch, &model, 1);
    for len in [0, 65_536, 65_537, 65_536 + 65_535, 1 << 20] {
        let key = vec![b'k'; len];
        assert_eq!((store.get(&key), store.contains(&key)), (Ok(None), Ok(false)), "{len} bytes");
        store.get_many_with(&[&key, &key], |_, value| assert_eq!(value, None, "{len} bytes")).unwrap();
    }
    assert_eq!(store.get(&long), Ok(Some(&b"2"[..])));
    let longer = vec![b'k'; 65_536];
    assert_eq!(store.floor(&longer), Ok(Some((Key::from(&long), &b"2"[..]))));
    assert_eq!(store.ceiling(&longer), Ok(None));
    assert_eq!((store.floor(""), store.ceiling("")), (Ok(None), Ok(Some((Key::from("k"), &b"1"[..])))));
    assert_eq!((store.count(""..), store.count(&longer[..]..), store.count(..=&longer[..])), (Ok(2), Ok(0), Ok(2)));
}
