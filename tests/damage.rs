//! Damaged files: what happened to them is noticed, and nothing wrong is told.

mod support;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use support::encoder::{self, BLOCK_SUMS, DIGEST, DIRECTORY, HEADER, LEAVES, RECORDS, put, seal_header};
use support::{Random, Rows, Scratch};
use zero_kv::format::FormatError;
use zero_kv::format::header::SectionKind;
use zero_kv::{Store, StoreError};

/// A table with all sections, and padding in front of the last.
fn rows() -> Rows {
    (0..21).map(|i| (i * 3 + 1, vec![b'a' + i as u8; i as usize])).collect()
}

#[test]
fn a_truncated_file_is_refused_at_open() {
    let scratch = Scratch::new();
    let whole = scratch.bake(&rows());
    for len in 0..whole.len() {
        let found = len as u64;
        let expected = match len < HEADER {
            true => FormatError::TooShort { len_bytes: found },
            false => FormatError::FileLen { expected_bytes: whole.len() as u64, found_bytes: found },
        };
        assert_eq!(scratch.refusal(&whole[..len]), expected);
    }
    let message = scratch.open(&whole[..300]).unwrap_err().to_string();
    let expected = format!(
        "{}: 300 bytes, where its header says {}: cut short or appended to; copy or bake it anew",
        scratch.path().display(),
        whole.len()
    );
    assert_eq!(message, expected);
    let message = scratch.refusal(&whole[..255]).to_string();
    assert_eq!(message, "255 bytes, where a header alone takes 256: not a baked file, or cut short");
}

#[test]
fn a_file_appended_to_is_refused_at_open() {
    let scratch = Scratch::new();
    for rows in [rows(), Vec::new()] {
        let whole = scratch.bake(&rows);
        for more in [1, 8, 128, 4096] {
            let mut longer = whole.clone();
            longer.resize(whole.len() + more, 0);
            let lens = (whole.len() as u64, longer.len() as u64);
            let refusal = scratch.refusal(&longer);
            assert_eq!(refusal, FormatError::FileLen { expected_bytes: lens.0, found_bytes: lens.1 });
        }
    }
}

#[test]
fn a_flipped_bit_outside_the_records_is_refused_at_open() {
    let scratch = Scratch::new();
    let whole = scratch.bake(&rows());
    let (records, records_len) = encoder::section(&whole, RECORDS);
    let outside = (0..records).chain(records + records_len..whole.len());
    for at in outside {
        for bit in 0..8 {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << bit;
            let refusal = scratch.refusal(&damaged);
            let padding = at >= records + records_len && at < encoder::section(&whole, BLOCK_SUMS).0;
            if padding {
                let before_bytes = encoder::section(&whole, BLOCK_SUMS).0 as u64;
                assert_eq!(refusal, FormatError::Padding { before_bytes }, "byte {at}, bit {bit}");
            }
        }
    }
}

#[test]
fn a_flipped_bit_in_the_records_is_refused_by_verify() {
    let scratch = Scratch::new();
    let rows = rows();
    let whole = scratch.bake(&rows);
    let (records, len) = encoder::section(&whole, RECORDS);
    for at in records..records + len {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        let store = scratch.open(&damaged).expect("records are not read at open");
        let error = store.verify().unwrap_err();
        let StoreError::Format { source: FormatError::BlockChecksum { block: 0, offset_bytes, .. }, .. } = error else {
            panic!("byte {at}: {error}");
        };
        assert_eq!(offset_bytes, records as u64, "byte {at}");
        for (key, _) in &rows {
            assert!(store.get_verified(*key).is_err(), "byte {at}, key {key}: they share the damaged block");
        }
        assert_eq!(store.get_verified(0).unwrap(), None, "byte {at}: a key that is not there needs no block");
    }
}

#[test]
fn damage_in_one_block_leaves_the_values_in_others() {
    let scratch = Scratch::new();
    let rows: Rows = (0..60).map(|i| (i, vec![i as u8; 1500])).collect();
    let whole = scratch.bake(&rows);
    let (records, len) = encoder::section(&whole, RECORDS);
    for block in 0..len.div_ceil(16384) {
        let mut damaged = whole.clone();
        damaged[records + block * 16384 + 77] ^= 0x10;
        let store = scratch.open(&damaged).unwrap();
        let message = store.verify().unwrap_err().to_string();
        let place = format!(
            "block {block} of the records (its 16384 bytes from file offset {}) has checksum ",
            records + block * 16384
        );
        assert!(message.contains(&place) && message.contains(", where "), "{message}");
        let mut refused = 0;
        for (key, value) in &rows {
            // A record takes 1512 bytes.
            let (start, end) = (*key as usize * 1512, *key as usize * 1512 + 8 + value.len());
            let touches = start / 16384 <= block && block <= (end - 1) / 16384;
            match store.get_verified(*key) {
                Ok(found) => assert!(found == Some(&value[..]) && !touches, "key {key}, block {block}"),
                Err(_) => assert!(touches, "key {key}, block {block}"),
            }
            refused += usize::from(touches);
        }
        assert!((1..rows.len()).contains(&refused), "block {block}: {refused} refused");
    }
}

#[test]
fn a_long_value_with_a_damaged_header_is_never_said_to_be_missing() {
    let scratch = Scratch::new();
    let long = vec![b'v'; (1 << 24) + 5];
    let whole = scratch.bake(&[(1, long.clone()), (2, vec![b's'; 1000])]);
    let (records, _) = encoder::section(&whole, RECORDS);
    // Damaged before it is opened: the index needs this header.
    let mut damaged = whole.clone();
    damaged[records + 6] ^= 1;
    assert_eq!(scratch.refusal(&damaged), FormatError::IndexRow { row: 1 });
    damaged[records..records + 8].fill(0xff);
    assert_eq!(scratch.refusal(&damaged), FormatError::IndexRow { row: 0 });
    // A length that leads to the same next record is one that verify finds.
    damaged = whole.clone();
    damaged[records + 7] ^= 1;
    let store = scratch.open(&damaged).unwrap();
    assert!(store.get_verified(1).is_err() && store.verify().is_err());
    drop(store);
    // Damaged while it is open.
    for header in [[0xff; 8], [0; 8], (1_u64 << 30).to_be_bytes(), (1_u64 << 24).to_be_bytes()] {
        let store = scratch.open(&whole).unwrap();
        assert_eq!(store.get_verified(1).unwrap(), Some(&long[..]));
        let file = OpenOptions::new().write(true).open(scratch.path()).unwrap();
        file.write_all_at(&header, records as u64).unwrap();
        let found = store.get_verified(1);
        assert!(found.is_err(), "header {header:02x?}: {:?} bytes", found.map(|value| value.map(<[u8]>::len)));
    }
}

#[test]
fn a_file_of_another_kind_is_told_apart() {
    let scratch = Scratch::new();
    let mut other = scratch.bake(&rows());
    other[..8].copy_from_slice(b"1,one\n2,");
    let refusal = scratch.refusal(&other);
    assert_eq!(refusal, FormatError::Magic { found: *b"1,one\n2," });
    let message =
        "begins with [31, 2c, 6f, 6e, 65, 0a, 32, 2c], which is not a baked file: bake one with `baker input.csv`";
    assert_eq!(refusal.to_string(), message);
}

#[test]
fn another_version_is_refused_and_named() {
    let scratch = Scratch::new();
    for version in [0_u32, 2, u32::MAX] {
        let mut other = scratch.bake(&rows());
        other[8..12].copy_from_slice(&version.to_le_bytes());
        seal_header(&mut other);
        let refusal = scratch.refusal(&other);
        assert_eq!(refusal, FormatError::Version { found: version });
        let message = format!(
            "format version {version}, where this build reads 1: bake the file anew, or use the build that baked it"
        );
        assert_eq!(refusal.to_string(), message);
    }
}

#[test]
fn a_wrong_digest_is_refused_with_both() {
    let scratch = Scratch::new();
    let mut damaged = scratch.bake(&rows());
    let expected = u128::from_le_bytes(damaged[DIGEST].try_into().unwrap());
    damaged[DIGEST.start] ^= 1;
    let refusal = scratch.refusal(&damaged);
    assert_eq!(refusal, FormatError::Digest { expected, found: expected ^ 1 });
    let message = format!(
        "the header's digest is {:032x}, where its bytes give {expected:032x}: damaged; copy or bake it anew",
        expected ^ 1
    );
    assert_eq!(refusal.to_string(), message);
}

#[test]
fn a_damaged_section_is_named() {
    let scratch = Scratch::new();
    let whole = scratch.bake(&rows());
    let sections = [
        (DIRECTORY, SectionKind::Directory, "directory"),
        (LEAVES, SectionKind::Leaves, "leaves"),
        // The records' checksum is over their block sums, and is looked at first.
        (BLOCK_SUMS, SectionKind::Records, "records"),
    ];
    for (i, kind, name) in sections {
        let mut damaged = whole.clone();
        damaged[encoder::section(&whole, i).0] ^= 1;
        let refusal = scratch.refusal(&damaged);
        let FormatError::SectionChecksum { section, expected, found } = refusal else { panic!("{refusal}") };
        assert_eq!(section, kind);
        let message = format!(
            "section {name} has checksum {found:016x}, where {expected:016x} was expected: damaged; copy or bake it anew"
        );
        assert_eq!(refusal.to_string(), message);
    }
    let mut forged = whole.clone();
    put(&mut forged, 64 + BLOCK_SUMS * 32 + 24, 1);
    seal_header(&mut forged);
    let refusal = scratch.refusal(&forged);
    assert!(
        matches!(refusal, FormatError::SectionChecksum { section: SectionKind::BlockSums, expected: 1, .. }),
        "{refusal}"
    );
}

#[test]
fn a_file_overwritten_while_it_is_open_is_read_within_its_bounds() {
    let rows: Rows = (0..600).map(|i| (i * 7, vec![i as u8; 20])).collect();
    for seed in 0..12 {
        println!("seed {seed}");
        let scratch = Scratch::new();
        let len = scratch.bake(&rows).len();
        let store = Store::open(scratch.path()).unwrap();
        let mut random = Random(seed);
        let garbage = match seed {
            0 => vec![0; len],
            1 => vec![0xff; len],
            // Locators that lead into the records, or nearly so.
            2..6 => (0..len)
                .step_by(8)
                .flat_map(|_| (((random.next() % 3000) << 24) | (random.next() % (1 << 14))).to_le_bytes())
                .take(len)
                .collect(),
            _ => random.bytes(len),
        };
        let file = OpenOptions::new().write(true).open(scratch.path()).unwrap();
        file.write_all_at(&garbage, 0).unwrap();
        assert_eq!(fs::metadata(scratch.path()).unwrap().len(), len as u64, "not truncated");
        let file_bytes = garbage.as_slice();
        let mut keys: Vec<u64> = (0..4300).chain([u64::MAX, u64::MAX - 1]).collect();
        keys.extend((0..500).map(|_| random.next()));
        // Keys that are found, so that their garbage locators are followed.
        let (leaves, leaves_len) = encoder::section(&encoder::encode(&rows.iter().cloned().collect()), LEAVES);
        keys.extend((leaves..leaves + leaves_len).step_by(8).map(|at| encoder::number(file_bytes, at)));
        for key in &keys {
            let _ = (store.get(*key), store.contains(*key), store.get_verified(*key));
        }
        let mut answers = 0;
        store.get_many(&keys, |_, _| answers += 1);
        assert_eq!(answers, keys.len());
        let _ = (store.iter().count(), store.iter().rev().map(|(_, value)| value.len()).sum::<usize>());
        assert!(store.verify().is_err(), "what is there now is not what was baked");
        assert_eq!(store.len(), rows.len());
    }
}
