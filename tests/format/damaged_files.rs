//! Damaged files are detected, and no lookup returns a wrong value.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use zero_kv::Lookup;
use zero_kv::bake::TableLayout;
use zero_kv::format::FormatError;
use zero_kv::format::header::SectionKind;
use zero_kv::{Key, LookupError, Store};

use crate::helpers::encoder::{
    self, BLOCK_SUMS, DIGEST, FENCE_TREE, FENCES, HEADER, PILOTS, PLACES, RECORDS, SECTIONS, number, put, seal_header,
};
use crate::helpers::random::Random;
use crate::helpers::rows::{ByteRows, LAYOUTS, Rows, Scratch};

/// Returns rows of a table with all sections, and with padding before every section except the first.
fn rows() -> Rows {
    (0..21).map(|i| (i * 3 + 1, vec![b'a' + i as u8; i as usize])).collect()
}

/// Returns as many rows as `rows`, with byte keys of many lengths.
fn byte_rows() -> ByteRows {
    (0..21).map(|i| (format!("key{}", "/part".repeat(i)).into_bytes(), vec![b'a' + i as u8; i])).collect()
}

#[test]
fn a_truncated_file_is_rejected_at_open() {
    let (scratch, compact) = (Scratch::new(), Scratch::of(TableLayout::Compact));
    for whole in [scratch.bake(&byte_rows()), scratch.bake(&rows()), compact.bake(&rows())] {
        for len in 0..whole.len() {
            let found = len as u64;
            let expected = match len < HEADER {
                true => FormatError::TooShort { len_bytes: found },
                false => FormatError::FileLen { expected_bytes: whole.len() as u64, found_bytes: found },
            };
            assert_eq!(scratch.refusal(&whole[..len]), expected);
        }
    }
    let whole = scratch.bake(&rows());
    let message = scratch.open(&whole[..310]).unwrap_err().to_string();
    let expected = format!(
        "{}: 310 bytes, where its header says {}: truncated or extended; copy or bake it again",
        scratch.path().display(),
        whole.len()
    );
    assert_eq!(message, expected);
    let message = scratch.refusal(&whole[..303]).to_string();
    assert_eq!(message, "303 bytes, where a header alone takes 304: not a baked file, or truncated");
}

#[test]
fn a_file_appended_to_is_rejected_at_open() {
    for (scratch, rows) in
        LAYOUTS.iter().flat_map(|layout| [rows(), Vec::new()].map(|rows| (Scratch::of(*layout), rows)))
    {
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
fn a_flipped_bit_anywhere_is_rejected_at_open() {
    let (scratch, compact) = (Scratch::new(), Scratch::of(TableLayout::Compact));
    for whole in [scratch.bake(&rows()), scratch.bake(&byte_rows()), compact.bake(&rows())] {
        assert_each_flip_is_rejected(&scratch, &whole);
    }
}

fn assert_each_flip_is_rejected(scratch: &Scratch, whole: &[u8]) {
    let sections = SECTIONS.map(|i| encoder::section(whole, i));
    let mut seen = [0; 3];
    for at in 0..whole.len() {
        let bits = if at < HEADER { 0..8 } else { at % 8..at % 8 + 1 };
        for bit in bits {
            let mut damaged = whole.to_vec();
            damaged[at] ^= 1 << bit;
            let refusal = scratch.refusal(&damaged);
            // The first section that ends after the byte. The byte is in this section, or in the padding before it.
            let next = sections.iter().find(|(start, len)| at < start + len);
            let (start, _) = *next.expect("nothing follows the last section");
            let (part, as_expected) = match refusal {
                _ if at < HEADER => (0, true),
                FormatError::Padding { before_bytes } => (1, at < start && before_bytes == start as u64),
                FormatError::SectionChecksum { .. } | FormatError::BlockChecksum { .. } => (2, at >= start),
                _ => (2, false),
            };
            assert!(as_expected, "byte {at}, bit {bit}: {refusal}");
            seen[part] += 1;
        }
    }
    assert_eq!(seen[0], 8 * HEADER);
    assert_eq!(seen[1] + seen[2], whole.len() - HEADER);
    assert!(seen[1] > 0, "the file has padding");
}

#[test]
fn a_flipped_bit_in_the_records_is_rejected_with_its_block() {
    let scratch = Scratch::new();
    let rows: Rows = (0..60).map(|i| (i, vec![i as u8; 1500])).collect();
    let whole = scratch.bake(&rows);
    let (records, len) = encoder::section(&whole, RECORDS);
    assert!(len > 2 * 4096);
    for block in 0..len.div_ceil(4096) {
        let mut damaged = whole.clone();
        damaged[records + block * 4096 + 77] ^= 0x10;
        let message = scratch.refusal(&damaged).to_string();
        let place = format!(
            "block {block} of the records (its 4096 bytes from file offset {}) has checksum ",
            records + block * 4096
        );
        assert!(message.starts_with(&place) && message.contains(", where "), "{message}");
        assert!(message.ends_with(" was expected: damaged; copy or bake the file again"), "{message}");
    }
}

#[test]
fn a_file_of_another_format_is_named_as_such() {
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
fn a_file_of_another_version_is_rejected_with_its_version() {
    let scratch = Scratch::new();
    for version in [0_u32, 1, 2, 3, 4, 5, 7, u32::MAX] {
        let mut other = scratch.bake(&rows());
        other[8..12].copy_from_slice(&version.to_le_bytes());
        seal_header(&mut other);
        let refusal = scratch.refusal(&other);
        assert_eq!(refusal, FormatError::Version { found: version });
        let message = format!(
            "format version {version}, where this build reads 6: bake the file again, or use the build that baked it"
        );
        assert_eq!(refusal.to_string(), message);
    }
}

#[test]
fn a_wrong_digest_is_rejected_with_both_digests() {
    let scratch = Scratch::new();
    let mut damaged = scratch.bake(&rows());
    let expected = u128::from_le_bytes(damaged[DIGEST].try_into().unwrap());
    damaged[DIGEST.start] ^= 1;
    let refusal = scratch.refusal(&damaged);
    assert_eq!(refusal, FormatError::Digest { expected, found: expected ^ 1 });
    let message = format!(
        "the header's digest is {:032x}, where its bytes give {expected:032x}: damaged; copy or bake it again",
        expected ^ 1
    );
    assert_eq!(refusal.to_string(), message);
}

#[test]
fn a_damaged_section_is_named() {
    let scratch = Scratch::new();
    let whole = scratch.bake(&rows());
    let sections = [
        (FENCES, SectionKind::Fences, "fences"),
        (FENCE_TREE, SectionKind::FenceTree, "fence tree"),
        (PILOTS, SectionKind::Pilots, "pilots"),
        (PLACES, SectionKind::Places, "places"),
        (BLOCK_SUMS, SectionKind::BlockSums, "block sums"),
    ];
    for (i, kind, name) in sections {
        let mut damaged = whole.clone();
        damaged[encoder::section(&whole, i).0] ^= 1;
        let refusal = scratch.refusal(&damaged);
        let FormatError::SectionChecksum { section, expected, found } = refusal else { panic!("{refusal}") };
        assert_eq!(section, kind);
        let message = format!(
            "section {name} has checksum {found:016x}, where {expected:016x} was expected: damaged; copy or bake it again"
        );
        assert_eq!(refusal.to_string(), message);
    }
    let mut forged = whole.clone();
    put(&mut forged, encoder::checksum_at(BLOCK_SUMS), 1);
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
    for (seed, layout) in (0..12).flat_map(|seed| LAYOUTS.map(|layout| (seed, layout))) {
        println!("seed {seed}, {layout}");
        let scratch = Scratch::of(layout);
        let whole = scratch.bake(&rows);
        let store = map(&scratch);
        let mut random = Random(seed);
        let garbage = match seed {
            // Keeps all but a few bytes.
            0..9 if layout == TableLayout::Compact => with_random_bytes(&whole, 1 << seed, &mut random),
            // The index still finds each key, but the key's record is invalid.
            6..9 => with_invalid_lengths(&whole, seed),
            _ => garbage(whole.len(), seed, &mut random),
        };
        overwrite(&scratch, &garbage);
        let mut keys: Vec<u64> = (0..4300).chain([u64::MAX, u64::MAX - 1]).collect();
        keys.extend((0..500).map(|_| random.next()));
        // Adds the numbers at all offsets where a record can have a key.
        keys.extend((0..whole.len() - 7).step_by(8).map(|at| number(&garbage, at)));
        make_every_lookup(&store, &keys.into_iter().map(Key::U64).collect::<Vec<_>>(), &mut random);
    }
}

#[test]
fn a_file_of_bytes_overwritten_while_it_is_open_is_read_within_its_bounds() {
    let rows: ByteRows = (0..600).map(|i| (format!("common {i:07}").into_bytes(), vec![i as u8; 20])).collect();
    for seed in 0..12 {
        println!("seed {seed}");
        let scratch = Scratch::new();
        let whole = scratch.bake(&rows);
        let store = map(&scratch);
        let mut random = Random(seed);
        let mut garbage = garbage(whole.len(), seed, &mut random);
        if (6..9).contains(&seed) {
            // Keeps the index, and changes the lengths of the keys.
            garbage.copy_from_slice(&whole);
            let (start, len) = encoder::section(&whole, RECORDS);
            for record in garbage[start..start + len].chunks_mut(48) {
                record[..2]
                    .copy_from_slice(&[(random.next() as u16 % 100), u16::MAX, 0][seed as usize % 3].to_le_bytes());
            }
        }
        overwrite(&scratch, &garbage);
        let mut keys: Vec<Vec<u8>> = rows.iter().map(|(key, _)| key.clone()).collect();
        keys.extend([vec![], vec![0], b"common".to_vec(), b"common 9".to_vec(), vec![255; 70_000]]);
        keys.extend((0..300).map(|_| garbage[random.below(whole.len())..].iter().copied().take(20).collect()));
        make_every_lookup(&store, &keys.iter().map(Key::from).collect::<Vec<_>>(), &mut random);
    }
}

/// An ordered lookup that depends on the damaged row is an error, and never returns another row.
#[test]
fn a_row_damaged_after_open_is_an_error_and_is_never_skipped() {
    let rows: Vec<(u64, Vec<u8>)> = (0..100).map(|key| (key, format!("value of {key}").into_bytes())).collect();
    let scratch = Scratch::new();
    let mut file = scratch.bake(&rows);
    let store = map(&scratch);
    let value_at = file.windows(11).position(|window| window == b"value of 42").unwrap();
    file[value_at - 8..value_at].fill(0xFF);
    overwrite(&scratch, &file);
    // The fences alone determine which row is next to a key, so each lookup reads only the row that it returns.
    for key in 0..100_u64 {
        let expected = if key == 42 { Err(LookupError::Damaged) } else { Ok(Some(key)) };
        let key_of = |row: Option<(Key<'_>, &[u8])>| row.and_then(|(key, _)| key.as_u64());
        assert_eq!(store.floor(key).map(key_of), expected, "floor {key}");
        assert_eq!(store.ceiling(key).map(key_of), expected, "ceiling {key}");
        let (mut floor, mut ceiling) = (None, None);
        let found_floor = store.floor_many_with(&[key], |_, row| floor = key_of(row)).map(|()| floor);
        let found_ceiling = store.ceiling_many_with(&[key], |_, row| ceiling = key_of(row)).map(|()| ceiling);
        assert_eq!((found_floor, found_ceiling), (expected, expected), "batches of {key}");
        assert_eq!(store.count(key..), Ok(100 - key as usize), "count from {key}");
        assert_eq!(store.range(..=key).unwrap().len(), key as usize + 1, "range to {key}");
        let (mut rows, last) = (store.range(key..).unwrap(), if key <= 42 { 41 } else { 99 });
        assert!((key..=last).eq(rows.by_ref().map_while(|row| key_of(row.ok()))), "rows from {key}");
        if key <= 42 {
            assert_eq!(store.range(key..).unwrap().nth(42 - key as usize), Some(Err(LookupError::Damaged)));
        }
        assert_eq!((rows.next(), rows.len()), (None, 0));
    }
}

/// An iteration in either direction does not end silently.
#[test]
fn an_iteration_that_reaches_a_damaged_row_ends_with_an_error() {
    const ROWS: u64 = 100_000;
    let rows: Vec<(u64, Vec<u8>)> = (0..ROWS).map(|key| (key, format!("value of {key}").into_bytes())).collect();
    let scratch = Scratch::new();
    let mut file = scratch.bake(&rows);
    let store = map(&scratch);
    let value_at = file.windows(14).position(|window| window == b"value of 25497").unwrap();
    file[value_at - 8..value_at - 4].fill(0xFF);
    overwrite(&scratch, &file);
    let key = |row: (Key<'_>, &[u8])| row.0.as_u64().unwrap();
    let forward: Vec<_> = store.range(0..).unwrap().map(|row| row.map(key)).collect();
    let backward: Vec<_> = store.iter().rev().map(|row| row.map(key)).collect();
    for (keys, expected) in [(&forward, (0..ROWS).collect::<Vec<_>>()), (&backward, (0..ROWS).rev().collect())] {
        let (error, keys) = keys.split_last().unwrap();
        assert_eq!(*error, Err(LookupError::Damaged));
        assert!(keys.iter().copied().map(Result::unwrap).eq(expected[..keys.len()].iter().copied()));
    }
    assert!(forward.len() + backward.len() < ROWS as usize + 2, "the damaged row is returned");
    assert_eq!(store.iter().count(), forward.len());
    assert_eq!(store.iter().collect::<Result<Vec<_>, _>>(), Err(LookupError::Damaged));
}

fn map(scratch: &Scratch) -> Store {
    let options = zero_kv::store::OpenOptions { verify: zero_kv::store::Verify::Full, ..Default::default() };
    // SAFETY: The tests change the file while nothing is borrowed from the store. What is borrowed after the change is
    // only compared or dropped.
    unsafe { Store::map_with(scratch.path(), &options) }.unwrap()
}

/// Returns the file with some other bytes after the header.
fn with_random_bytes(whole: &[u8], count: usize, random: &mut Random) -> Vec<u8> {
    let mut file = whole.to_vec();
    for _ in 0..count {
        file[HEADER + random.below(whole.len() - HEADER)] = random.next() as u8;
    }
    file
}

/// Returns bytes that are not a valid file.
fn garbage(len: usize, seed: u64, random: &mut Random) -> Vec<u8> {
    match seed {
        0 => vec![0; len],
        1 => vec![0xff; len],
        // Numbers that are valid or almost valid places and fences.
        2..6 => (0..len / 4 + 1).flat_map(|_| (random.next() as u32 % 3000).to_le_bytes()).take(len).collect(),
        _ => random.bytes(len),
    }
}

fn overwrite(scratch: &Scratch, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(scratch.path()).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    assert_eq!(fs::metadata(scratch.path()).unwrap().len(), bytes.len() as u64, "not truncated");
}

/// Makes every kind of lookup. All results must be from within the file.
fn make_every_lookup(store: &Store, keys: &[Key<'_>], random: &mut Random) {
    for key in keys {
        let _ = (store.get(*key), store.contains(*key), store.floor(*key), store.ceiling(*key));
    }
    let mut answers = 0;
    let outcome = store.get_many_with(keys, |_, _| answers += 1);
    // A batch ends at the first invalid record.
    assert_eq!(outcome.is_ok(), answers == keys.len());
    let _ = (
        store.iter().flatten().map(|(_, value)| value.len()).sum::<usize>(),
        store.iter().rev().flatten().map(|(_, value)| value.len()).sum::<usize>(),
    );
    for _ in 0..300 {
        let range = keys[random.below(keys.len())]..keys[random.below(keys.len())];
        let _ = range.start.as_bytes().map(|prefix| store.prefix(prefix).map(Iterator::count));
        // In the compact layout, a damaged group can have the numbers of its rows, but no positions.
        let (Ok(count), Ok(_)) = (store.count(range.clone()), store.range(range.clone())) else { continue };
        assert!(count <= store.len());
        let rows = || store.range(range.clone()).unwrap();
        assert!(rows().map(drop).count() <= count && rows().rev().count() <= count);
        let _ = (rows().nth(random.below(700)), rows().nth_back(random.below(70)));
    }
    for row in (0..store.len()).chain([store.len(), usize::MAX]) {
        let _ = store.row(row);
    }
    assert_eq!(store.len(), 600);
}

/// Returns the file with its index unchanged, and with response headers in the records whose lengths are invalid.
fn with_invalid_lengths(whole: &[u8], seed: u64) -> Vec<u8> {
    let mut file = whole.to_vec();
    let (start, len) = encoder::section(whole, RECORDS);
    // Each record has 40 bytes, of which 20 are the value.
    for record in file[start..start + len].chunks_mut(40) {
        let header = [u64::MAX, 1 << 30, (1 << 32) | 20][seed as usize % 3];
        record[8..16].copy_from_slice(&header.to_be_bytes());
    }
    file
}

#[test]
fn a_change_of_a_file_that_is_trusted_again_is_detected_since_an_earlier_epoch() {
    let scratch = Scratch::new();
    let whole = scratch.bake(&rows());
    fs::write(scratch.path(), &whole).unwrap();
    let options = zero_kv::store::OpenOptions { verify: zero_kv::store::Verify::Touch, ..Default::default() };
    // SAFETY: As in `map`.
    let store = unsafe { Store::map_with(scratch.path(), &options) }.unwrap();
    let file = OpenOptions::new().write(true).open(scratch.path()).unwrap();
    let modified = |seconds| std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    file.set_modified(modified(1)).unwrap();
    assert!(!store.is_trusted());

    // A batch begins, the file becomes trusted again, a value is read, and then the file changes.
    let untrusted_epoch = store.epoch();
    assert!(store.get(4) == Err(LookupError::Damaged) && store.is_unchanged_since(untrusted_epoch));
    store.look_again().unwrap();
    assert_eq!(store.get(4).unwrap(), Some(&b"b"[..]));
    file.set_modified(modified(2)).unwrap();
    assert!(!store.is_unchanged_since(untrusted_epoch));
    // The change is also detected if the store already knows of it.
    assert!(!store.is_trusted() && !store.is_unchanged_since(untrusted_epoch));
}
