//! Forged headers, with correct checksums.

use zero_kv::format::FormatError;
use zero_kv::format::header::SectionKind;
use zero_kv::{Store, StoreError};

use super::{NOT_FOUND_BY_INDEX, assert_refused, forged, row, rows};
use crate::helpers::encoder::{
    self, BLOCK_SUMS, FENCE_TREE, FENCES, HASH_SEED, HEADER, PILOTS, PLACES, RECORD_ALIGN, RECORDS, ROW_COUNT, SCHEMA,
    SECTIONS, len_at, number, offset_at, put, put_u32, seal, seal_header,
};
use crate::helpers::rows::{Rows, Scratch};

#[test]
fn sections_that_overlap_are_rejected() {
    let scratch = Scratch::new();
    let refusal = scratch.refusal(&forged(&scratch, 21, offset_at(FENCES), 4096));
    let expected =
        FormatError::SectionOverlap { section: SectionKind::Fences, offset_bytes: 4096, previous_end_bytes: 4720 };
    let message = "section fences begins at offset 4096, where the preceding section ends at 4720: damaged or forged";
    assert_refused(&refusal, &expected, message);
    // The section starts in the header itself.
    let refusal = scratch.refusal(&forged(&scratch, 21, offset_at(RECORDS), 128));
    let expected =
        FormatError::SectionOverlap { section: SectionKind::Records, offset_bytes: 128, previous_end_bytes: 304 };
    assert_eq!(refusal, expected);
}

#[test]
fn a_section_beyond_the_file_is_rejected_and_no_sum_overflows() {
    let scratch = Scratch::new();
    let len = scratch.bake(&rows(21)).len() as u64;
    for section in SECTIONS {
        for far in [len, len + 1, 1 << 40, 1 << 63, u64::MAX - 7, u64::MAX] {
            for at in [offset_at(section), len_at(section)] {
                // The empty schema would end at the end of the file, and the section after it would overlap.
                if (at, far) == (offset_at(SCHEMA), len) {
                    continue;
                }
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
                    " has {len_bytes} bytes at offset {offset_bytes}, where the file has {len}: damaged or forged"
                );
                assert!(refusal.to_string().ends_with(&ending), "{refusal}");
            }
        }
    }
}

#[test]
fn a_section_at_an_offset_that_contradicts_the_header_is_rejected() {
    let scratch = Scratch::new();
    let records_len = encoder::section(&scratch.bake(&rows(21)), RECORDS).1 as u64;
    // Wrong lengths of the fences, block sums, places, and records, and row counts that require other fences.
    let cases = [
        (len_at(FENCES), 128),
        (len_at(FENCES), 257),
        (len_at(FENCE_TREE), 256),
        (len_at(BLOCK_SUMS), 0),
        (len_at(PLACES), 23 * 4 + 1),
        (len_at(RECORDS), records_len / 2),
        (ROW_COUNT, 18),
        (ROW_COUNT, 37),
        (ROW_COUNT, 0),
    ];
    for (at, number) in cases {
        let refusal = scratch.refusal(&forged(&scratch, 21, at, number));
        let expected = matches!(refusal, FormatError::SectionPlace { .. } | FormatError::SectionOverlap { .. });
        assert!(expected, "{at}: {refusal}");
    }
    let refusal = scratch.refusal(&forged(&scratch, 21, len_at(FENCES), 128));
    let message =
        "section fences has 128 bytes at offset 4736, where 256 bytes at 4736 were expected: damaged or forged";
    assert_eq!(refusal.to_string(), message);
}

#[test]
fn a_wrong_row_count_is_rejected() {
    let scratch = Scratch::new();
    // Both row counts require equally many fences, so only the records reveal the change.
    let refusal = scratch.refusal(&forged(&scratch, 21, ROW_COUNT, 20));
    let message = "row 20: there are records beyond the last row: forged, or a bug of the baker";
    assert_refused(&refusal, &row(20, "there are records beyond the last row"), message);
    assert_eq!(scratch.refusal(&forged(&scratch, 21, ROW_COUNT, 22)), row(21, "the record is missing or malformed"));
    for rows in [(1 << 32) + 1, u64::MAX] {
        let refusal = scratch.refusal(&forged(&scratch, 21, ROW_COUNT, rows));
        let message = format!(
            "the header says the number of rows is {rows}, where 4294967296 was expected: not written by a baker of this \
             version"
        );
        let (what, expected) = ("the number of rows", 1 << 32);
        assert_refused(&refusal, &FormatError::HeaderField { what, expected, found: rows }, &message);
    }
    // The header declares more parts than there are pilots.
    for parts in [8, 1 << 17] {
        let refusal = scratch.refusal(&forged(&scratch, 21, ROW_COUNT, parts << 15));
        let what = "the number of pilots of a part";
        assert_eq!(refusal, FormatError::HeaderField { what, expected: 1, found: 0 });
    }
}

/// Returns the file with its pilots and places truncated or padded with zeros to these lengths.
fn resized(good: &[u8], pilots_len: usize, places_len: usize) -> Vec<u8> {
    let mut sections = SECTIONS.map(|section| {
        let (start, len) = encoder::section(good, section);
        good[start..start + len].to_vec()
    });
    sections[PILOTS].resize(pilots_len, 0);
    sections[PLACES].resize(places_len, 0);
    sections[BLOCK_SUMS] = encoder::block_sums_of(&sections[..BLOCK_SUMS]);
    encoder::assemble(1, number(good, ROW_COUNT), number(good, HASH_SEED), sections)
}

#[test]
fn a_wrong_number_of_pilots_or_slots_is_rejected() {
    let scratch = Scratch::new();
    let (good, empty) = (scratch.bake(&rows(21)), scratch.bake(&Rows::new()));
    assert!(scratch.open(&resized(&good, 7, 23 * 4)).is_ok(), "7 pilots and 23 slots are right");
    for (pilots, slots) in [(6, 23), (8, 23), (1000, 23), (1, 23), (7, 22), (7, 24), (7, 1), (7, 5000)] {
        let refusal = scratch.refusal(&resized(&good, pilots, slots * 4));
        assert!(matches!(refusal, FormatError::Row { what: NOT_FOUND_BY_INDEX, .. }), "{pilots}, {slots}: {refusal}");
    }
    let no_pilots = FormatError::HeaderField { what: "the number of pilots of a part", expected: 1, found: 0 };
    let message = "the header says the number of pilots of a part is 0, where 1 was expected: \
                   not written by a baker of this version";
    assert_refused(&scratch.refusal(&resized(&good, 0, 23 * 4)), &no_pilots, message);
    let no_slots = FormatError::HeaderField { what: "the number of slots of a part", expected: 21, found: 0 };
    for places_len in [0, 3] {
        assert_eq!(scratch.refusal(&resized(&good, 7, places_len)), no_slots);
    }
    // A table without rows has neither pilots nor places.
    for (pilots_len, places_len) in [(1, 0), (0, 4), (7, 92)] {
        let refusal = scratch.refusal(&resized(&empty, pilots_len, places_len));
        assert!(matches!(refusal, FormatError::SectionPlace { expected_len_bytes: 0, .. }), "{refusal}");
    }
}

#[test]
fn incomplete_parts_of_pilots_or_places_are_rejected() {
    let scratch = Scratch::new();
    let good = scratch.bake(&rows(32_769));
    let of = |section| encoder::section(&good, section).1;
    let (pilots, places) = (of(PILOTS), of(PLACES));
    assert_eq!((pilots % 2, places % 8), (0, 0), "there are two parts");
    let cases =
        [(pilots + 1, places), (pilots - 1, places), (pilots, places + 4), (pilots, places + 1), (pilots, places - 4)];
    for (pilots_len, places_len) in cases {
        let refusal = scratch.refusal(&resized(&good, pilots_len, places_len));
        let expected = match pilots_len == pilots {
            true => SectionKind::Places,
            false => SectionKind::Pilots,
        };
        assert!(matches!(refusal, FormatError::SectionPlace { section, .. } if section == expected), "{refusal}");
    }
    // The parts are complete, but the pilots were chosen for other numbers of pilots and slots.
    for (pilots_len, places_len) in [(pilots + 2, places), (pilots, places + 8), (pilots, places - 8)] {
        let refusal = scratch.refusal(&resized(&good, pilots_len, places_len));
        assert!(matches!(refusal, FormatError::Row { what: NOT_FOUND_BY_INDEX, .. }), "{refusal}");
    }
}

#[test]
fn more_records_pilots_or_slots_than_32_bits_count_are_rejected() {
    let scratch = Scratch::new();
    let cases = [
        (RECORDS, 1, "the length of the records section", 8 << 32, [(8 << 32) + 8, 16 << 32]),
        (PILOTS, 1, "the number of pilots of a part", 1, [1 << 32, (1 << 32) + 5]),
        (PLACES, 4, "the number of slots of a part", 21, [1 << 32, (1 << 32) + 5]),
    ];
    for (section, width, what, expected, numbers) in cases {
        for found in numbers {
            let good = scratch.bake(&rows(21));
            let mut header = good[..HEADER].to_vec();
            put(&mut header, len_at(section), found * width);
            let mut end = number(&header, offset_at(section)) + found * width;
            for next in section + 1..SECTIONS.len() {
                put(&mut header, offset_at(next), end.next_multiple_of(64));
                end = end.next_multiple_of(64) + number(&header, len_at(next));
            }
            put(&mut header, 16, end);
            seal_header(&mut header);
            // A sparse file, in which only the header takes space.
            std::fs::write(scratch.path(), &header).unwrap();
            std::fs::File::options().write(true).open(scratch.path()).unwrap().set_len(end).unwrap();
            let Err(StoreError::Format { error, .. }) = Store::open(scratch.path()) else { panic!("{found} {what}") };
            assert_eq!(error, FormatError::HeaderField { what, expected, found });
        }
    }
}

#[test]
fn a_record_alignment_that_contradicts_the_records_is_rejected() {
    let scratch = Scratch::new();
    for align in [0, 1, 3, 4, 12, 8192, 1 << 31, u32::MAX] {
        let mut file = scratch.bake(&rows(21));
        put_u32(&mut file, RECORD_ALIGN, align);
        seal(&mut file);
        let expected = FormatError::HeaderField { what: "the record alignment", expected: 8, found: align.into() };
        assert_eq!(scratch.refusal(&file), expected);
    }
    let mut file = scratch.bake(&rows(21));
    put_u32(&mut file, RECORD_ALIGN, 16);
    seal(&mut file);
    // Row 1 has a value of one byte and a record of 24 bytes.
    let refusal = scratch.refusal(&file);
    assert!(matches!(refusal, FormatError::Row { row: 0..=2, .. }), "{refusal}");
}

/// The records are truncated, and every other section is as the header requires.
#[test]
fn records_shorter_than_the_row_count_requires_are_rejected() {
    let scratch = Scratch::new();
    let one = scratch.bake(&[(7_u64, b"x".to_vec())]);
    let cases = [
        // The shortest possible file with rows but without records.
        (&one, 0, "the records section has 0 bytes, where 1 rows take at least 16, a multiple of 8: damaged or forged"),
        (&one, 8, "the records section has 8 bytes, where 1 rows take at least 16, a multiple of 8: damaged or forged"),
        (
            &one,
            23,
            "the records section has 23 bytes, where 1 rows take at least 16, a multiple of 8: damaged or forged",
        ),
    ];
    for (good, len, message) in cases {
        let file = with_records_len(good, len);
        assert_eq!((scratch.refusal(&file).to_string().as_str(), file.len() == 4520), (message, len == 0));
    }
    let none = scratch.bake(&Rows::new());
    let refusal = scratch.refusal(&with_records_len(&none, 8));
    let message = "the records section has 8 bytes, where 0 rows take none: damaged or forged";
    let expected = FormatError::RecordsLen { rows: 0, align_bytes: 8, len_min_bytes: 0, len_bytes: 8 };
    assert_refused(&refusal, &expected, message);
    // 21 rows that are aligned to 4 KiB.
    let mut file = scratch.bake(&rows(21));
    put_u32(&mut file, RECORD_ALIGN, 4096);
    seal(&mut file);
    assert!(matches!(scratch.refusal(&file), FormatError::RecordsLen { len_min_bytes: 86_016, .. }));
}

/// Returns the file with its records truncated or padded with zeros to a length, and with matching block sums.
fn with_records_len(good: &[u8], len: usize) -> Vec<u8> {
    let mut sections = SECTIONS.map(|section| {
        let (start, len) = encoder::section(good, section);
        good[start..start + len].to_vec()
    });
    sections[RECORDS].resize(len, 0);
    sections[BLOCK_SUMS] = encoder::block_sums_of(&sections[..BLOCK_SUMS]);
    encoder::assemble(1, number(good, ROW_COUNT), number(good, HASH_SEED), sections)
}

#[test]
fn another_hash_seed_is_rejected() {
    let scratch = Scratch::new();
    let right = number(&scratch.bake(&rows(21)), HASH_SEED);
    for seed in [0, 1, right ^ 1, right.wrapping_add(0x9e37_79b9_7f4a_7c15), u64::MAX] {
        let refusal = scratch.refusal(&forged(&scratch, 21, HASH_SEED, seed));
        assert!(matches!(refusal, FormatError::Row { what: NOT_FOUND_BY_INDEX, .. }), "{refusal}");
    }
}

#[test]
fn fixed_numbers_of_the_format_are_checked() {
    let scratch = Scratch::new();
    let entry = |i: usize| encoder::ENTRIES + i * encoder::ENTRY;
    let cases = [
        (12, 3, "the key kind", 1),
        (12, 0, "the key kind", 1),
        (44, 16384, "the block length", 4096),
        (encoder::FLAGS, 4, "the flags", 0),
        (encoder::FLAGS, 7, "the flags", 3),
        (entry(0), 2, "the kind of a section", 1),
        (entry(3), 0, "the kind of a section", 4),
        (entry(4), 4, "the kind of a section", 5),
        (entry(5), 0, "the kind of a section", 6),
        (entry(1) + 4, 9, "a reserved field of a section", 0),
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
}

#[test]
fn bytes_after_the_last_section_are_rejected() {
    let scratch = Scratch::new();
    let mut file = scratch.bake(&rows(21));
    let len = file.len() as u64;
    file.extend_from_slice(&[0; 8]);
    put(&mut file, 16, len + 8);
    seal(&mut file);
    let expected = FormatError::HeaderField { what: "the file length", expected: len, found: len + 8 };
    assert_eq!(scratch.refusal(&file), expected);
}
