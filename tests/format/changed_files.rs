//! `MappedStore` and `Store::open` while another process changes the file.

use std::fs::{self, File};
use std::ops::Bound;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};

use zero_kv::Lookup;
use zero_kv::client::{OwnedKey, Row};
use zero_kv::store::{OpenOptions, StepKind, Verify};
use zero_kv::{Key, LookupError, MappedStore, Store};

use crate::helpers::random::Random;
use crate::helpers::repeating::while_threads_repeat;
use crate::helpers::rows::{Rows, Scratch, bake_to};
use crate::helpers::waiting::eventually;

/// Returns rows with values from 0 bytes to more than a batch copies at a time.
fn rows(count: u64) -> Rows {
    let len = |i: u64| if i % 97 == 96 { 150_000 } else { (i % 60) as usize };
    (0..count).map(|i| (i * 3 + 1, vec![i as u8; len(i)])).collect()
}

/// The name of a change, and the function that makes it.
type Change<'a> = (&'a str, &'a dyn Fn(&File));

fn owned((key, value): (Key<'_>, &[u8])) -> Row {
    (key.into(), value.to_vec())
}

fn seeded() -> Random {
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    println!("seed {seed}");
    Random(seed)
}

#[test]
fn every_lookup_in_a_mapped_file_equals_the_lookup_in_a_private_copy() {
    let scratch = Scratch::new();
    scratch.bake(&rows(700));
    let (store, mapped) = (Store::open(scratch.path()).unwrap(), MappedStore::open(scratch.path()).unwrap());
    assert!(mapped.as_private().is_none() && store.is_private());
    let keys: Vec<u64> = (0..2200).collect();
    for key in &keys {
        let expected = store.get(*key).unwrap();
        assert_eq!(mapped.get(*key).unwrap().as_deref(), expected);
        assert!(mapped.get_with(*key, |value| value == expected).unwrap());
        assert_eq!(mapped.contains(*key), store.contains(*key));
        assert_eq!(mapped.floor(*key).unwrap(), store.floor(*key).unwrap().map(owned));
        assert_eq!(mapped.ceiling(*key).unwrap(), store.ceiling(*key).unwrap().map(owned));
    }
    let mut at = 0;
    let check = |i, value: Option<&[u8]>| {
        assert_eq!((i, value), (at, store.get(keys[i]).unwrap()));
        // A nested lookup has its own memory.
        assert_eq!(mapped.get_with(4, |value| value.map(<[u8]>::len)), Ok(Some(1)));
        at += 1;
    };
    mapped.get_many_with(&keys, check).unwrap();
    assert_eq!(at, keys.len());
    let kind = mapped.get_many(&["a key of bytes"]).unwrap_err();
    assert!(matches!(kind, LookupError::KeyKind { .. }));
    assert_eq!(mapped.first().unwrap(), store.first().unwrap().map(owned));
    assert_eq!(mapped.last().unwrap(), store.last().unwrap().map(owned));
    assert_eq!((mapped.len(), mapped.digest()), (store.len(), store.digest()));
}

#[test]
fn rows_of_a_mapped_file_can_be_taken_from_both_ends_in_any_order() {
    let scratch = Scratch::new();
    scratch.bake(&rows(700));
    let (store, mapped) = (Store::open(scratch.path()).unwrap(), MappedStore::open(scratch.path()).unwrap());
    let mut random = seeded();
    for _ in 0..60 {
        let (start, end) = (random.below(2200) as u64, random.below(2200) as u64);
        let range = || (Bound::Included(start), Bound::Excluded(end));
        let (mut expected, mut found) = (store.range(range()).unwrap(), mapped.range(range()).unwrap());
        loop {
            assert_eq!(found.len(), expected.len());
            let skipped = if random.below(4) == 0 { random.below(200) } else { 0 };
            let (expected, found) = match random.below(4) {
                0 => (expected.nth(skipped), found.nth(skipped)),
                1 => (expected.nth_back(skipped), found.nth_back(skipped)),
                2 => (expected.next(), found.next()),
                _ => (expected.next_back(), found.next_back()),
            };
            assert_eq!(found.map(Result::unwrap), expected.map(|row| owned(row.unwrap())));
            if expected.is_none() {
                break;
            }
        }
        assert!(found.is_empty() && found.next().is_none() && found.next_back().is_none());
    }
}

#[test]
fn a_mapped_file_that_is_truncated_or_overwritten_gives_errors() {
    let scratch = Scratch::new();
    let whole = scratch.bake(&rows(700));
    let changes: [Change<'_>; 3] = [
        ("truncated", &|file| file.set_len(0).unwrap()),
        ("cut in half", &|file| file.set_len(whole.len() as u64 / 2).unwrap()),
        ("overwritten", &|file| file.write_all_at(&vec![0x5a; whole.len()], 0).unwrap()),
    ];
    for (how, change) in changes {
        for verify in [Verify::Full, Verify::Touch] {
            println!("{how}, {verify:?}");
            fs::write(scratch.path(), &whole).unwrap();
            let file = File::options().write(true).open(scratch.path()).unwrap();
            file.set_modified(std::time::UNIX_EPOCH).unwrap();
            let options = OpenOptions { verify, ..OpenOptions::default() };
            let mapped = MappedStore::open_with(scratch.path(), &options).unwrap();
            let mut half = mapped.iter();
            assert!(half.next().is_some_and(|row| row.is_ok()));
            change(&file);
            assert_eq!(mapped.get(4), Err(LookupError::Damaged));
            assert_eq!(mapped.get_with(4, |_| ()), Err(LookupError::Damaged));
            assert_eq!(mapped.get_many(&[4, 7]), Err(LookupError::Damaged));
            assert_eq!(mapped.floor(1000), Err(LookupError::Damaged));
            assert_eq!(mapped.last(), Err(LookupError::Damaged));
            assert!(mapped.range(5..).is_err() && !mapped.is_trusted());
            // The iterator returns the rows that it has already copied, then one error, and then nothing.
            let rest: Vec<_> = half.by_ref().collect();
            assert!(rest.iter().rev().skip(1).all(Result::is_ok) && rest.len() < 700);
            assert_eq!(rest.last(), Some(&Err(LookupError::Damaged)));
            assert!(half.is_empty() && half.next_back().is_none());
        }
    }
}

#[test]
fn a_write_is_detected_although_the_modification_time_is_restored() {
    let scratch = Scratch::new();
    let whole = scratch.bake(&rows(700));
    fs::write(scratch.path(), &whole).unwrap();
    let mapped = MappedStore::open(scratch.path()).unwrap();
    let keys: Vec<u64> = (0..700).map(|i| i * 3 + 1).collect();
    let expected = mapped.get_many(&keys).unwrap();
    let (mut rest, mut halfway) = (mapped.iter(), mapped.iter());
    assert!(halfway.next().is_some_and(|row| row.is_ok()));

    // Overwrites the last record, which is in another block than the first one.
    let file = File::options().write(true).open(scratch.path()).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    let last = expected.last().unwrap().as_ref().unwrap();
    let at = whole.windows(last.len()).rposition(|window| window == last).unwrap();
    file.write_all_at(&vec![b'#'; last.len()], at as u64).unwrap();
    file.set_modified(modified).unwrap();

    // A block that was copied before the write has the value that it had, until the copies are released.
    let found_eventually = |key: usize, wanted: Result<Option<Vec<u8>>, LookupError>| loop {
        let found = mapped.get(keys[key]);
        if found == wanted {
            break;
        }
        assert!(matches!(&found, Ok(value) if *value == expected[key]), "key {key}: {found:?}");
    };
    found_eventually(699, Err(LookupError::Damaged));
    assert_eq!(mapped.get_many(&keys), Err(LookupError::Damaged));
    assert_eq!(mapped.get(keys[0]), Ok(expected[0].clone()), "an intact block");
    assert!(mapped.is_trusted() && mapped.last().is_err());
    for rows in [&mut rest, &mut halfway] {
        let rows: Vec<_> = rows.collect();
        assert!(rows.iter().rev().skip(1).all(Result::is_ok) && rows.last() == Some(&Err(LookupError::Damaged)));
    }

    // The root of the block sums is overwritten, too.
    file.write_all_at(&vec![0x5a; whole.len() - 4096], 4096).unwrap();
    file.set_modified(modified).unwrap();
    (0..keys.len()).filter(|key| *key != 699).for_each(|key| found_eventually(key, Err(LookupError::Damaged)));
    assert!(mapped.get(keys[699]) == Err(LookupError::Damaged) && !mapped.is_trusted());
}

#[test]
fn names_and_permissions_of_a_mapped_file_may_change_any_number_of_times() {
    let scratch = Scratch::new();
    scratch.bake(&rows(700));
    let mapped = MappedStore::open(scratch.path()).unwrap();
    let keys: Vec<u64> = (0..700).map(|i| i * 3 + 1).collect();
    let expected = mapped.get_many(&keys).unwrap();
    let link = scratch.path().with_extension("link");
    // More changes than there are numbers of epochs.
    for _ in 0..200 {
        fs::hard_link(scratch.path(), &link).unwrap();
        assert_eq!(mapped.get(keys[0]), Ok(expected[0].clone()));
        fs::remove_file(&link).unwrap();
        assert_eq!(mapped.floor(keys[1]).unwrap().map(|row| row.1), expected[1]);
    }
    let look_up = |_| || assert!(mapped.get_many(&keys).unwrap() == expected && mapped.iter().all(|row| row.is_ok()));
    while_threads_repeat(3, look_up, || {
        for _ in 0..20 {
            fs::hard_link(scratch.path(), &link).unwrap();
            fs::remove_file(&link).unwrap();
        }
    });
    fs::remove_file(scratch.path()).unwrap();
    assert!(mapped.get_many(&keys).unwrap() == expected && mapped.is_trusted());
}

/// A tag of a block has one byte, so the tags of epochs are used again after 127 changes.
#[test]
fn an_overwritten_value_is_an_error_after_any_number_of_changes() {
    let scratch = Scratch::new();
    let whole = scratch.bake(&rows(700));
    let options = OpenOptions { verify: Verify::Touch, ..OpenOptions::default() };
    let mapped = MappedStore::open_with(scratch.path(), &options).unwrap();
    let file = File::options().write(true).open(scratch.path()).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    let last = rows(700).pop().unwrap().1;
    let at = whole.windows(last.len()).rposition(|window| window == last).unwrap() as u64;
    for change in 0..600 {
        file.write_all_at(&vec![b'#'; last.len()], at).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        assert!(!mapped.is_trusted());
        assert_eq!(mapped.get(699 * 3 + 1), Err(LookupError::Damaged), "change {change}");
        assert_eq!(mapped.get_many(&[699 * 3 + 1]), Err(LookupError::Damaged), "change {change}");
        assert_eq!(mapped.last(), Err(LookupError::Damaged), "change {change}");
        assert!(mapped.range(5..).is_err() || mapped.iter().next_back().is_none_or(|row| row.is_err()));
        // No block is looked up while the file is trusted.
        file.write_all_at(&last, at).unwrap();
        file.set_modified(modified).unwrap();
        assert!(mapped.is_trusted(), "change {change}");
    }
    assert_eq!(mapped.get(699 * 3 + 1), Ok(Some(last)));
}

#[test]
fn no_lookup_of_a_mapped_file_that_is_being_overwritten_returns_a_wrong_value() {
    let scratch = Scratch::new();
    let table = |round: u8| -> Rows { (0..500).map(|key| (key, vec![round; 40])).collect() };
    let first = scratch.bake(&table(0));
    let second = scratch.path().with_extension("second");
    bake_to(&second, &table(1));
    let second = fs::read(second).unwrap();
    let answers = AtomicUsize::new(0);
    let keys: Vec<u64> = (0..500).collect();
    for _ in 0..20 {
        fs::write(scratch.path(), &first).unwrap();
        let file = File::options().write(true).open(scratch.path()).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        let mapped = MappedStore::open(scratch.path()).unwrap();
        let before = answers.load(Ordering::Relaxed);
        let look_up = || {
            for key in &keys {
                let found = mapped.get_with(*key, |value| assert_eq!(value, Some(&[0; 40][..])));
                answers.fetch_add(usize::from(found.is_ok()), Ordering::Relaxed);
            }
            let _ = mapped.get_many_with(&keys, |_, value| assert_eq!(value, Some(&[0; 40][..])));
            mapped.iter().map_while(Result::ok).for_each(|(_, value)| assert_eq!(value, [0; 40]));
        };
        let start = |_| look_up;
        while_threads_repeat(2, start, || {
            eventually("keys are found", || answers.load(Ordering::Relaxed) >= before + 100);
            file.write_all_at(&second, 0).unwrap();
        });
        assert_eq!(mapped.get(0), Err(LookupError::Damaged));
    }
}

#[test]
fn a_private_store_is_not_affected_by_changes_to_its_file() {
    let scratch = Scratch::new();
    let whole = scratch.bake(&rows(300));
    let open = |options: &OpenOptions| {
        let sealed = Store::open_sealed(scratch.path(), options);
        [Store::open_with(scratch.path(), options).unwrap(), sealed.unwrap()]
    };
    for verify in [Verify::Full, Verify::Touch] {
        fs::write(scratch.path(), &whole).unwrap();
        let stores = open(&OpenOptions { verify, ..OpenOptions::default() });
        let first = stores.each_ref().map(|store| store.get(4).unwrap().unwrap());
        fs::write(scratch.path(), vec![0xff; whole.len()]).unwrap();
        File::create(scratch.path()).unwrap();
        for (store, first) in stores.iter().zip(first) {
            assert_eq!((first, store.len()), (&[1][..], 300));
            let found: Rows =
                store.iter().map(Result::unwrap).map(|(key, value)| (key.as_u64().unwrap(), value.to_vec())).collect();
            assert!(found == rows(300));
        }
    }
}

/// `Store::open` uses the file itself only if the kernel lets nobody change it.
#[test]
fn a_sealed_file_is_opened_without_a_copy() {
    let scratch = Scratch::new();
    scratch.bake(&rows(300));
    let steps = |path: &std::path::Path| {
        let mut steps = Vec::new();
        let store =
            Store::open_with(path, OpenOptions::default().with_progress(&mut |step| steps.push(step.kind))).unwrap();
        assert!(store.is_private() && store.get(4).unwrap() == Some(&[1]));
        steps
    };
    assert_eq!(steps(&scratch.path()), [StepKind::Copied]);
    let sealed = Store::open_sealed(scratch.path(), &OpenOptions::default()).unwrap();
    let shared = sealed.share().unwrap().expect("sealed memory has a descriptor");
    assert_eq!(steps(format!("/proc/self/fd/{}", shared.as_raw_fd()).as_ref()), []);
    assert!(MappedStore::from(sealed).as_private().is_some());
}

#[test]
fn keys_of_bytes_are_copied_with_their_rows() {
    let scratch = Scratch::new();
    scratch.bake(&[
        (b"ant".to_vec(), b"1".to_vec()),
        (b"bee".to_vec(), b"2".to_vec()),
        (b"bug".to_vec(), b"3".to_vec()),
    ]);
    let mapped = MappedStore::open(scratch.path()).unwrap();
    let keys: Vec<OwnedKey> = mapped.prefix("b").unwrap().map(|row| row.unwrap().0).collect();
    assert_eq!(keys, ["bee", "bug"]);
    assert_eq!((mapped.count("b"..), mapped.get("ant")), (Ok(2), Ok(Some(b"1".to_vec()))));
    assert_eq!(mapped.row(1).unwrap(), Some((OwnedKey::Bytes(b"bee".to_vec()), b"2".to_vec())));
    assert_eq!(mapped.row(3), Ok(None));
}
