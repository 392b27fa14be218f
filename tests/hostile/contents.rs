//! Records, fences and buckets that are not those of one table.

use crate::support::encoder::{
    self, BUCKET, BUCKETS, FENCES, OVERFLOWS, PLACES, RECORDS, RESERVED, number, put, put_u32, seal,
};
use crate::support::{Rows, Scratch};
use crate::{assert_refused, forged, row, rows};
use zero_kv::format::FormatError;

/// Where each row's record is, in the file.
fn records_of(file: &[u8], rows: &Rows) -> Vec<usize> {
    let mut at = encoder::section(file, RECORDS).0;
    rows.iter()
        .map(|(_, value)| {
            let here = at;
            at += (16 + value.len()).next_multiple_of(8);
            here
        })
        .collect()
}

/// Asserts that a file of 21 rows, changed and with every checksum right, is
/// refused for this.
#[track_caller]
fn assert_forgery_refused(change: impl FnOnce(&mut [u8], &[usize]), expected: &FormatError) {
    let scratch = Scratch::new();
    let rows = rows(21);
    let mut file = scratch.bake(&rows);
    let records = records_of(&file, &rows);
    change(&mut file, &records);
    seal(&mut file);
    assert_eq!(scratch.refusal(&file), *expected);
}

#[test]
fn records_out_of_order_are_refused() {
    // Row 9 has the key 28, those beside it 25 and 31.
    for (key, wrong) in [(25, 9), (24, 9), (0, 9), (31, 10), (32, 10), (u64::MAX, 10)] {
        let expected = row(wrong, "the key is not above the one before");
        assert_forgery_refused(|file, records| put(file, records[9], key), &expected);
    }
    let message = "row 10: the key is not above the one before: forged, or a fault of the baker";
    assert_eq!(row(10, "the key is not above the one before").to_string(), message);
    // A key that keeps the order is one that the buckets do not have.
    let expected = row(9, "the buckets do not lead to it");
    assert_forgery_refused(|file, records| put(file, records[9], 27), &expected);
}

#[test]
fn a_record_with_a_wrong_length_is_refused() {
    // Longer than the section, than a value may be, than a number; a status that is not that of a value.
    for header in [4096, 1 << 30, (1 << 30) + 1, u32::MAX.into(), 1 << 32 | 9, u64::MAX - 15, u64::MAX] {
        let put_header =
            |file: &mut [u8], records: &[usize]| file[records[9] + 8..][..8].copy_from_slice(&u64::to_be_bytes(header));
        assert_forgery_refused(put_header, &row(9, "the record does not fit"));
    }
    // Row 20 has a value of 20 bytes and ends the section, which has four more; row 10 one of 10 bytes.
    assert_forgery_refused(|file, records| file[records[20] + 15] = 25, &row(20, "the record does not fit"));
    let padding = row(10, "the padding is not zero, or not there");
    assert_forgery_refused(|file, records| file[records[10] + 15] = 9, &padding);
    // Lengths that lead the next record astray.
    for len in [8, 17] {
        assert_forgery_refused(|file, records| file[records[9] + 15] = len, &row(10, "the record does not fit"));
    }
}

#[test]
fn padding_in_a_record_that_is_not_zero_is_refused() {
    let expected = row(9, "the padding is not zero, or not there");
    for at in 16 + 9..32 {
        assert_forgery_refused(|file, records| file[records[9] + at] = 1, &expected);
    }
}

#[test]
fn a_fence_that_lies_is_refused() {
    let scratch = Scratch::new();
    let good = scratch.bake(&rows(300));
    let (fences, len) = encoder::section(&good, FENCES);
    assert_eq!(len, 38 * 16);
    for at in (fences..fences + len).step_by(8 * 5) {
        let right = number(&good, at);
        for wrong in [right.wrapping_add(1), right.wrapping_add(8), right.wrapping_sub(1), u64::MAX] {
            let expected = row((at - fences) as u64 / 16 * 8, "the fence does not lead to it");
            assert_eq!(scratch.refusal(&forged(&scratch, 300, at, wrong)), expected, "{wrong} at {at}");
        }
    }
}

/// The bucket and slot in which a file of 21 rows, seed 0 and no overflow has a row.
fn slot_of(file: &[u8], records: &[usize], row: usize) -> (usize, usize) {
    let place = (records[row] - records[0]) as u32 / 8;
    let bucket = encoder::home(encoder::hash(number(file, records[row]), 0), 3);
    let start = encoder::section(file, BUCKETS).0 + bucket * BUCKET;
    let slot =
        (0..12).find(|slot| file[start + PLACES + slot * 4..][..4] == place.to_le_bytes() && file[start + slot] != 0);
    (start, slot.expect("the row in its home"))
}

#[test]
fn a_bucket_that_lost_a_row_or_leads_elsewhere_is_refused() {
    let expected = row(9, "the buckets do not lead to it");
    let without_it = |file: &mut [u8], records: &[usize]| {
        let (bucket, slot) = slot_of(file, records, 9);
        file[bucket + slot] = 0;
        put_u32(file, bucket + PLACES + slot * 4, 0);
    };
    assert_forgery_refused(without_it, &expected);
    let with_other_tag = |file: &mut [u8], records: &[usize]| {
        let (bucket, slot) = slot_of(file, records, 9);
        file[bucket + slot] = file[bucket + slot].wrapping_add(1).max(1);
    };
    assert_forgery_refused(with_other_tag, &expected);
    // Row 0, inside the record, between records, beyond the section, and as far as a place leads.
    for place in [0, 1, 2, 200, u32::MAX] {
        let elsewhere = |file: &mut [u8], records: &[usize]| {
            let (bucket, slot) = slot_of(file, records, 9);
            put_u32(file, bucket + PLACES + slot * 4, place);
        };
        assert_forgery_refused(elsewhere, &expected);
    }
}

#[test]
fn a_key_inside_a_value_is_not_a_record() {
    // Row 20 holds the key of row 9 in its value, where a place can lead to.
    let forge = |file: &mut [u8], records: &[usize]| {
        put(file, records[20] + 16, 28);
        let (bucket, slot) = slot_of(file, records, 9);
        put_u32(file, bucket + PLACES + slot * 4, (records[20] + 16 - records[0]) as u32 / 8);
    };
    assert_forgery_refused(forge, &row(9, "the buckets do not lead to it"));
}

#[test]
fn a_bucket_with_an_extra_row_is_refused() {
    let scratch = Scratch::new();
    let rows = rows(21);
    let mut file = scratch.bake(&rows);
    let records = records_of(&file, &rows);
    let (bucket, slot) = slot_of(&file, &records, 9);
    let free = (0..12).find(|slot| file[bucket + slot] == 0).expect("room in the bucket");
    assert!(free > slot);
    file[bucket + free] = file[bucket + slot];
    put_u32(&mut file, bucket + PLACES + free * 4, ((records[9] - records[0]) / 8) as u32);
    seal(&mut file);
    let message = "the buckets hold 22 records, where 21 were expected: forged, or a fault of the baker";
    assert_refused(&scratch.refusal(&file), &FormatError::BucketCount { expected: 21, found: 22 }, message);
}

#[test]
fn what_a_bucket_does_not_use_is_zero_or_refused() {
    let bucket = |what| FormatError::Bucket { bucket: 1, what };
    let second = |file: &[u8]| encoder::section(file, BUCKETS).0 + BUCKET;
    for at in RESERVED..RESERVED + 3 {
        let expected = bucket("the reserved bytes are not zero");
        assert_forgery_refused(|file, _| file[second(file) + at] = 1, &expected);
    }
    for wrong in [2, 255] {
        let expected = bucket("the overflow byte is neither 0 nor 1");
        assert_forgery_refused(|file, _| file[second(file) + OVERFLOWS] = wrong, &expected);
    }
    let expected = bucket("the place in an unused slot is not zero");
    assert_forgery_refused(|file, _| file[second(file) + BUCKET - 1] = 1, &expected);
    let message = "bucket 1: the place in an unused slot is not zero: forged, or a fault of the baker";
    assert_eq!(expected.to_string(), message);
}

#[test]
fn a_bucket_without_its_overflow_byte_is_refused() {
    let scratch = Scratch::new();
    let rows: Rows = encoder::colliding(100, 3).take(100).map(|key| (key, Vec::new())).collect();
    let good = scratch.bake(&rows);
    let (start, len) = encoder::section(&good, BUCKETS);
    let overflows: Vec<_> = (start + OVERFLOWS..start + len).step_by(BUCKET).filter(|at| good[*at] == 1).collect();
    assert_eq!(overflows.len(), 8, "100 rows fill eight buckets and begin a ninth");
    for at in overflows {
        let mut file = good.clone();
        file[at] = 0;
        seal(&mut file);
        let refusal = scratch.refusal(&file);
        assert!(matches!(refusal, FormatError::Row { what: "the buckets do not lead to it", .. }), "{at}: {refusal}");
    }
}
