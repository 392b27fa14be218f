//! Tests of bakes with rows in memory.

use std::collections::BTreeMap;
use std::io;

use super::{Bench, numbers, open, options, sorted};
use crate::Lookup;
use crate::bake::{BakeError, Duplicates, Input, Keys, Options, Report, RowFault, bake_within};
use crate::format::key::{Key, KeyKind};

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
        assert_eq!(report.key_kind, KeyKind::U64);
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
    bake(&bench, rows.iter().map(|(key, value)| (key.into(), &value[..])), &options(Keys::Bytes)).unwrap();
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
        (1, "", Keys::Bytes, "rows:1: a key of 0 bytes"),
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
        let report = bake(&bench, [(key.into(), value.as_bytes())], &options(Keys::Bytes)).unwrap();
        assert_eq!(report.inputs[0].len_bytes, 3);
        report.inputs[0].digest
    };
    assert_ne!(digest("a", "bc"), digest("ab", "c"));
    assert_eq!(digest("ab", "c"), digest("ab", "c"));
}
