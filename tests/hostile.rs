//! Forged files: every checksum is right, and what they cover is a lie.

mod support;

use support::encoder::{self, BLOCK_SUMS, DIRECTORY, LEAVES, RECORDS, len_at, number, offset_at, put, seal};
use support::{Random, Rows, Scratch};
use zero_kv::Store;
use zero_kv::format::FormatError;
use zero_kv::format::header::SectionKind;

fn rows(count: u64) -> Rows {
    (0..count).map(|i| (i * 3 + 1, vec![b'a' + (i % 26) as u8; (i % 30) as usize])).collect()
}

/// A file of `count` rows with one number changed, and every checksum right.
fn forged(scratch: &Scratch, count: u64, at: usize, number: u64) -> Vec<u8> {
    let mut file = scratch.bake(&rows(count));
    put(&mut file, at, number);
    seal(&mut file);
    file
}

#[track_caller]
fn assert_refused(refusal: &FormatError, expected: &FormatError, message: &str) {
    assert_eq!((refusal, &*refusal.to_string()), (expected, message));
}

#[test]
fn sealing_a_good_file_changes_nothing() {
    let scratch = Scratch::new();
    let good = scratch.bake(&rows(300));
    let mut sealed = good.clone();
    seal(&mut sealed);
    assert!(sealed == good, "or no forgery here gets past the checksums");
}

#[test]
fn sections_that_overlap_are_refused() {
    let scratch = Scratch::new();
    let refusal = scratch.refusal(&forged(&scratch, 21, offset_at(LEAVES), 256));
    let expected =
        FormatError::SectionOverlap { section: SectionKind::Leaves, offset_bytes: 256, previous_end_bytes: 384 };
    let message =
        "section leaves is said to begin at offset 256, where what precedes it ends at 384: damaged or forged";
    assert_refused(&refusal, &expected, message);
    // In the header itself.
    let refusal = scratch.refusal(&forged(&scratch, 21, offset_at(DIRECTORY), 128));
    let expected =
        FormatError::SectionOverlap { section: SectionKind::Directory, offset_bytes: 128, previous_end_bytes: 256 };
    assert_eq!(refusal, expected);
}

#[test]
fn a_section_beyond_the_file_is_refused_and_no_sum_overflows() {
    let scratch = Scratch::new();
    let len = scratch.bake(&rows(21)).len() as u64;
    for section in [DIRECTORY, LEAVES, RECORDS, BLOCK_SUMS] {
        for far in [len, len + 1, 1 << 40, 1 << 63, u64::MAX - 7, u64::MAX] {
            for at in [offset_at(section), len_at(section)] {
                let file = forged(&scratch, 21, at, far);
                let refusal = scratch.refusal(&file);
                let (offset_bytes, len_bytes) = (number(&file, offset_at(section)), number(&file, len_at(section)));
                let FormatError::SectionBeyondFile {
                    offset_bytes: found, len_bytes: found_len, file_len_bytes, ..
                } = refusal
                else {
                    panic!("{refusal}")
                };
                assert_eq!((found, found_len, file_len_bytes), (offset_bytes, len_bytes, len));
                let ending = format!(
                    " is said to take {len_bytes} bytes at offset {offset_bytes}, where the file has {len}: damaged or forged"
                );
                assert!(refusal.to_string().ends_with(&ending), "{refusal}");
            }
        }
    }
}

#[test]
fn a_section_elsewhere_than_the_row_count_asks_for_is_refused() {
    let scratch = Scratch::new();
    // Shorter leaves; a section not at a multiple of 128; a row count with other leaves.
    for (at, number) in [(len_at(LEAVES), 256), (len_at(BLOCK_SUMS), 0), (len_at(DIRECTORY), 0), (24, 25), (24, 129)] {
        let refusal = scratch.refusal(&forged(&scratch, 21, at, number));
        assert!(matches!(refusal, FormatError::SectionPlace { .. }), "{at}: {refusal}");
    }
    let refusal = scratch.refusal(&forged(&scratch, 21, len_at(LEAVES), 256));
    let message = "section leaves is said to take 256 bytes at offset 384, where 384 bytes at 384 were expected: damaged or forged";
    assert_eq!(refusal.to_string(), message);
}

#[test]
fn a_wrong_row_count_is_refused() {
    let scratch = Scratch::new();
    // As many leaves either way: the unused places tell.
    let refusal = scratch.refusal(&forged(&scratch, 21, 24, 20));
    let message = "row 20 of the index is out of order or points to the wrong place: forged, or a fault of the baker";
    assert_refused(&refusal, &FormatError::IndexRow { row: 20 }, message);
    assert_eq!(scratch.refusal(&forged(&scratch, 21, 24, 22)), FormatError::IndexRow { row: 21 });
    for rows in [(1 << 32) + 1, u64::MAX] {
        let refusal = scratch.refusal(&forged(&scratch, 21, 24, rows));
        let message = format!("{rows} rows, where a file holds at most 4294967296: split the table");
        assert_refused(&refusal, &FormatError::TooManyRows { rows }, &message);
    }
    let refusal = scratch.refusal(&forged(&scratch, 21, 24, 1 << 32));
    assert!(matches!(refusal, FormatError::SectionPlace { .. }), "{refusal}");
}

#[test]
fn numbers_that_the_format_fixes_are_held_to_it() {
    let scratch = Scratch::new();
    let entry = |i: usize| 64 + i * 32;
    let cases = [
        (12, 2, "the key kind", 1),
        (12, 0, "the key kind", 1),
        (32, 4096, "the block length", 16384),
        (36, 5, "the section count", 4),
        (40, 1, "a reserved field", 0),
        (entry(0), 2, "the kind of a section", 1),
        (entry(3), 0, "the kind of a section", 4),
        (entry(1) + 4, 9, "a reserved field of a section", 0),
        (entry(4), 5, "the kind of a section", 0),
        (entry(5) + 4, 5, "a reserved field of a section", 0),
    ];
    for (at, found, what, expected) in cases {
        let mut file = scratch.bake(&rows(21));
        file[at..at + 4].copy_from_slice(&(found as u32).to_le_bytes());
        seal(&mut file);
        let message = format!(
            "the header says {what} is {found}, where {expected} was expected: not written by a baker of this version"
        );
        assert_refused(&scratch.refusal(&file), &FormatError::HeaderField { what, expected, found }, &message);
    }
    for at in (entry(4) + 8..256).step_by(8).filter(|at| *at != entry(5)) {
        let refusal = scratch.refusal(&forged(&scratch, 21, at, 1));
        let message = "the padding before offset 256 is not zero: damaged or forged";
        assert_refused(&refusal, &FormatError::Padding { before_bytes: 256 }, message);
    }
}

#[test]
fn bytes_behind_the_last_section_are_refused() {
    let scratch = Scratch::new();
    let mut file = scratch.bake(&rows(21));
    let len = file.len() as u64;
    file.extend_from_slice(&[0; 8]);
    put(&mut file, 16, len + 8);
    seal(&mut file);
    let expected = FormatError::HeaderField { what: "the file length", expected: len, found: len + 8 };
    assert_eq!(scratch.refusal(&file), expected);
}

#[test]
fn an_index_out_of_order_is_refused() {
    let scratch = Scratch::new();
    let (leaves, _) = encoder::section(&scratch.bake(&rows(21)), LEAVES);
    // Rows 9 and 10, whose keys are 28 and 31: at places 1 and 2 of leaf 1.
    let key_9 = leaves + 128 + 8;
    for (key, row) in [(25, 9), (24, 9), (0, 9), (31, 10), (32, 10), (u64::MAX, 10)] {
        let refusal = scratch.refusal(&forged(&scratch, 21, key_9, key));
        assert_eq!(refusal, FormatError::IndexRow { row }, "key {key}");
    }
    // A key that keeps the order is a table of its own.
    let file = forged(&scratch, 21, key_9, 27);
    let store = scratch.open(&file).unwrap();
    assert_eq!((store.get(28), store.get(27)), (None, Some(&rows(21)[9].1[..])));
}

#[test]
fn a_locator_that_leads_astray_is_refused() {
    let scratch = Scratch::new();
    let good = scratch.bake(&rows(21));
    let (leaves, _) = encoder::section(&good, LEAVES);
    let locator_9 = leaves + 128 + 64 + 8;
    let (right, next) = (number(&good, locator_9), number(&good, locator_9 + 8));
    let beyond = (encoder::section(&good, RECORDS).1 as u64 / 8) << 24;
    // Other records, lengths that leave a gap or overlap, the end and far beyond it, all ones.
    for wrong in
        [0, next, right + 8, right - 8, right + (1 << 24), right | 0xff_ffff, beyond, beyond | 5, 1 << 63, u64::MAX]
    {
        let refusal = scratch.refusal(&forged(&scratch, 21, locator_9, wrong));
        assert!(matches!(refusal, FormatError::IndexRow { row: 9 | 10 }), "locator {wrong:x}: {refusal}");
    }
    // Marks in unused places.
    for place in 5..8 {
        for at in [leaves + 256 + place * 8, leaves + 256 + 64 + place * 8] {
            assert_eq!(scratch.refusal(&forged(&scratch, 21, at, 77)), FormatError::IndexRow { row: 21 });
        }
    }
}

#[test]
fn a_directory_that_lies_is_refused() {
    let scratch = Scratch::new();
    // 300 rows: 38 leaves, 3 nodes above them, and the root.
    let good = scratch.bake(&rows(300));
    let (directory, len) = encoder::section(&good, DIRECTORY);
    assert_eq!(len, 4 * 128);
    for place in 0..len / 8 {
        let (level, entry) = if place < 16 { (1, place) } else { (0, place - 16) };
        let right = number(&good, directory + place * 8);
        for wrong in [right.wrapping_add(1), right.wrapping_sub(1), 0, u64::MAX] {
            if wrong == right || (wrong == 0 && right == 1) {
                continue;
            }
            let refusal = scratch.refusal(&forged(&scratch, 300, directory + place * 8, wrong));
            // The first key of a node also stands in the node above, which is looked at later.
            assert_eq!(refusal, FormatError::DirectoryEntry { level, entry }, "{wrong} at place {place}");
        }
    }
    let message = "entry 3 of directory level 1 does not match the level below: forged, or a fault of the baker";
    assert_eq!(scratch.refusal(&forged(&scratch, 300, directory + 24, 5)).to_string(), message);
}

#[test]
fn a_record_header_that_disagrees_with_its_locator_is_not_believed() {
    let scratch = Scratch::new();
    let rows = rows(21);
    let records = encoder::section(&scratch.bake(&rows), RECORDS).0;
    for header in [0, 1, 4, 1 << 24, 1 << 30, u32::MAX.into(), u64::MAX] {
        let mut file = scratch.bake(&rows);
        let mut at = records;
        for (_, value) in &rows {
            file[at..at + 8].copy_from_slice(&u64::to_be_bytes(header));
            at += (8 + value.len()).next_multiple_of(8);
        }
        seal(&mut file);
        let store = scratch.open(&file).unwrap();
        for (key, value) in &rows {
            assert_eq!(store.get(*key), Some(&value[..]), "header {header:x}, key {key}");
            assert_eq!(store.get_verified(*key).unwrap(), Some(&value[..]), "header {header:x}, key {key}");
        }
        store.verify().unwrap();
    }
}

/// Asks for everything; the answers may be anything.
fn ask(store: &Store, keys: &[u64]) {
    for key in keys {
        assert_eq!(store.get(*key).is_some(), store.contains(*key), "key {key}");
        let _ = store.get_verified(*key);
    }
    let mut answered = 0;
    store.get_many(keys, |i, value| {
        assert_eq!((i, value), (answered, store.get(keys[i])));
        answered += 1;
    });
    assert_eq!(answered, keys.len());
    assert_eq!(store.iter().count(), store.len());
    assert_eq!(store.iter().rev().count(), store.len());
    let _ = store.verify();
}

/// Changes one to eight bytes, or one whole number, anywhere or in a section.
fn mutate(file: &mut [u8], random: &mut Random) {
    let ranges: [(usize, usize); 5] = std::array::from_fn(|i| match i {
        0 => (0, 256),
        _ => encoder::section(file, i - 1),
    });
    for _ in 0..random.below(8) + 1 {
        let (start, len) = match random.below(6) {
            5 => (0, file.len()),
            i => ranges[i],
        };
        let at = start + random.below(len.max(1));
        let near = |random: &mut Random, old: u64| match random.below(5) {
            0 => old.wrapping_add(1),
            1 => old.wrapping_sub(1),
            2 => 0,
            3 => u64::MAX,
            _ => random.next(),
        };
        match random.below(3) {
            0 if at / 8 * 8 + 8 <= file.len() => {
                let at = at / 8 * 8;
                let old = number(file, at);
                put(file, at, near(random, old));
            }
            1 => file[at.min(file.len() - 1)] ^= 1 << random.below(8),
            _ => file[at.min(file.len() - 1)] = random.next() as u8,
        }
    }
}

#[test]
fn no_forgery_makes_a_lookup_panic() {
    let scratch = Scratch::new();
    let good: Vec<Vec<u8>> = [0, 5, 21, 300].map(|count| scratch.bake(&rows(count))).into();
    let mut keys: Vec<u64> = (0..910).step_by(2).chain([u64::MAX, u64::MAX - 1, 1 << 63]).collect();
    let (mut opened, mut refused) = (0, 0);
    for seed in 0..4000 {
        let mut random = Random(seed);
        let mut file = good[random.below(good.len())].clone();
        mutate(&mut file, &mut random);
        seal(&mut file);
        keys[0] = random.next();
        let outcome = std::panic::catch_unwind(|| match scratch.open(&file) {
            Ok(store) => {
                ask(&store, &keys);
                true
            }
            Err(_) => false,
        });
        match outcome {
            Ok(true) => opened += 1,
            Ok(false) => refused += 1,
            Err(_) => panic!("seed {seed}: see the message above"),
        }
    }
    assert!(opened > 100 && refused > 1000, "both are tried: {opened} opened, {refused} refused");
}
