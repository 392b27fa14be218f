//! Headers that say what is not so.

use crate::support::Scratch;
use crate::support::encoder::{
    self, BLOCK_SUMS, BUCKET, BUCKETS, FENCES, HASH_SEED, RECORD_ALIGN, RECORDS, len_at, number, offset_at, put,
    put_u32, seal,
};
use crate::{assert_refused, forged, row, rows};
use zero_kv::format::FormatError;
use zero_kv::format::header::SectionKind;

#[test]
fn sections_that_overlap_are_refused() {
    let scratch = Scratch::new();
    let refusal = scratch.refusal(&forged(&scratch, 21, offset_at(RECORDS), 256));
    let expected =
        FormatError::SectionOverlap { section: SectionKind::Records, offset_bytes: 256, previous_end_bytes: 304 };
    let message =
        "section records is said to begin at offset 256, where what precedes it ends at 304: damaged or forged";
    assert_refused(&refusal, &expected, message);
    // In the header itself.
    let refusal = scratch.refusal(&forged(&scratch, 21, offset_at(FENCES), 128));
    let expected =
        FormatError::SectionOverlap { section: SectionKind::Fences, offset_bytes: 128, previous_end_bytes: 256 };
    assert_eq!(refusal, expected);
}

#[test]
fn a_section_beyond_the_file_is_refused_and_no_sum_overflows() {
    let scratch = Scratch::new();
    let len = scratch.bake(&rows(21)).len() as u64;
    for section in [FENCES, RECORDS, BUCKETS, BLOCK_SUMS] {
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
fn a_section_elsewhere_than_the_header_asks_for_is_refused() {
    let scratch = Scratch::new();
    let records_len = encoder::section(&scratch.bake(&rows(21)), RECORDS).1 as u64;
    // Other fences, no sums, buckets that are no whole ones, half the records, a row count with fewer fences.
    let cases = [
        (len_at(FENCES), 32),
        (len_at(FENCES), 49),
        (len_at(BLOCK_SUMS), 0),
        (len_at(BUCKETS), 3 * 64 + 8),
        (len_at(RECORDS), records_len / 2),
        (24, 16),
    ];
    for (at, number) in cases {
        let refusal = scratch.refusal(&forged(&scratch, 21, at, number));
        let expected = matches!(refusal, FormatError::SectionPlace { .. } | FormatError::SectionOverlap { .. });
        assert!(expected, "{at}: {refusal}");
    }
    let refusal = scratch.refusal(&forged(&scratch, 21, len_at(FENCES), 32));
    let message =
        "section fences is said to take 32 bytes at offset 256, where 48 bytes at 256 were expected: damaged or forged";
    assert_eq!(refusal.to_string(), message);
}

#[test]
fn a_wrong_row_count_is_refused() {
    let scratch = Scratch::new();
    // As many fences and homes either way: the records tell.
    let refusal = scratch.refusal(&forged(&scratch, 21, 24, 20));
    let message = "row 20: there are records beyond the last row: forged, or a fault of the baker";
    assert_refused(&refusal, &row(20, "there are records beyond the last row"), message);
    assert_eq!(scratch.refusal(&forged(&scratch, 21, 24, 22)), row(21, "the record does not fit"));
    for rows in [(1 << 32) + 1, u64::MAX] {
        let refusal = scratch.refusal(&forged(&scratch, 21, 24, rows));
        let message = format!("{rows} rows, where a file holds at most 4294967296: split the table");
        assert_refused(&refusal, &FormatError::TooManyRows { rows }, &message);
    }
    for (rows, homes) in [(25, 4), (1 << 32, 1 << 29), (0, 0)] {
        let refusal = scratch.refusal(&forged(&scratch, 21, 24, rows));
        assert_eq!(refusal, FormatError::HeaderField { what: "the number of buckets", expected: homes, found: 3 });
    }
}

#[test]
fn a_wrong_number_of_buckets_is_refused() {
    let scratch = Scratch::new();
    let good = scratch.bake(&rows(21));
    let ((start, len), (sums, _)) = (encoder::section(&good, BUCKETS), encoder::section(&good, BLOCK_SUMS));
    assert_eq!((len, sums), (3 * BUCKET, start + len));
    for count in [0, 1, 2, 3 + 16, 3 + 17, 1000] {
        let mut file = good[..start].to_vec();
        file.resize(start + count * BUCKET, 0);
        file.extend_from_slice(&good[sums..]);
        put(&mut file, len_at(BUCKETS), (count * BUCKET) as u64);
        put(&mut file, offset_at(BLOCK_SUMS), (start + count * BUCKET) as u64);
        let file_len = file.len() as u64;
        put(&mut file, 16, file_len);
        seal(&mut file);
        let expected = FormatError::HeaderField { what: "the number of buckets", expected: 3, found: count as u64 };
        let message = format!(
            "the header says the number of buckets is {count}, where 3 was expected: not written by a baker of this version"
        );
        assert_refused(&scratch.refusal(&file), &expected, &message);
    }
}

#[test]
fn a_record_alignment_that_is_not_the_records_is_refused() {
    let scratch = Scratch::new();
    for align in [0, 1, 3, 4, 12, 8192, 1 << 31, u32::MAX] {
        let mut file = scratch.bake(&rows(21));
        put_u32(&mut file, RECORD_ALIGN, align);
        seal(&mut file);
        let expected = FormatError::HeaderField { what: "the record alignment", expected: 8, found: align.into() };
        assert_eq!(scratch.refusal(&file), expected);
    }
    for align in [16, 4096] {
        let mut file = scratch.bake(&rows(21));
        put_u32(&mut file, RECORD_ALIGN, align);
        seal(&mut file);
        // Row 1 has a value of one byte, and takes up 24 bytes.
        let refusal = scratch.refusal(&file);
        assert!(matches!(refusal, FormatError::Row { row: 0..=2, .. }), "{align}: {refusal}");
    }
}

#[test]
fn another_hash_seed_is_refused() {
    let scratch = Scratch::new();
    for seed in [1, encoder::seed(1), u64::MAX] {
        let refusal = scratch.refusal(&forged(&scratch, 21, HASH_SEED, seed));
        assert!(matches!(refusal, FormatError::Row { what: "the buckets do not lead to it", .. }), "{refusal}");
    }
}

#[test]
fn numbers_that_the_format_fixes_are_held_to_it() {
    let scratch = Scratch::new();
    let entry = |i: usize| 64 + i * 32;
    let cases = [
        (12, 2, "the key kind", 1),
        (12, 0, "the key kind", 1),
        (44, 4096, "the block length", 16384),
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
