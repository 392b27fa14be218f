//! Forged files with byte-string keys.

use zero_kv::format::FormatError;

use super::{NOT_FOUND_BY_INDEX, row, rows};
use crate::helpers::encoder::{
    self, FENCE, FENCE_ROWS, FENCES, KEY_KIND, KEY_TYPE, PLACES, RECORDS, number, place_at, put, put_u32, seal,
};
use crate::helpers::rows::{ByteRows, Scratch};

/// Returns rows with keys of 7 bytes, `key-000` and every third after it. A record has 2 + 7 bytes of key and 7 bytes
/// of padding before its response.
pub(crate) fn byte_rows(count: usize) -> ByteRows {
    (0..count).map(|i| (format!("key-{:03}", i * 3).into_bytes(), vec![b'a' + (i % 26) as u8; i % 30])).collect()
}

/// Returns the offset of each row's record in the file.
fn records_of(file: &[u8], rows: &ByteRows) -> Vec<usize> {
    let mut at = encoder::section(file, RECORDS).0;
    rows.iter()
        .map(|(_, value)| {
            let here = at;
            at += (16 + 8 + value.len()).next_multiple_of(8);
            here
        })
        .collect()
}

/// Asserts that a file of these rows with this change and correct checksums is rejected with this error.
#[track_caller]
fn assert_refused(count: usize, change: impl FnOnce(&mut [u8], &[usize]), expected: &FormatError) {
    let scratch = Scratch::new();
    let rows = byte_rows(count);
    let mut file = scratch.bake(&rows);
    let records = records_of(&file, &rows);
    change(&mut file, &records);
    seal(&mut file);
    assert_eq!(scratch.refusal(&file), *expected);
}

fn put_len(file: &mut [u8], record: usize, len: u16) {
    file[record..record + 2].copy_from_slice(&len.to_le_bytes());
}

#[test]
fn an_empty_key_is_rejected() {
    // An empty key has 8 bytes with its padding. A valid response must follow, because the store checks that first.
    let empty = |file: &mut [u8], records: &[usize]| {
        put_len(file, records[9], 0);
        file[records[9] + 2..][..14].fill(0);
    };
    assert_refused(21, empty, &row(9, "the key is empty"));
    assert_eq!(row(9, "the key is empty").to_string(), "row 9: the key is empty: forged, or a bug of the baker");
    assert_refused(1, |file, records| file[records[0]..][..16].fill(0), &row(0, "the key is empty"));
}

#[test]
fn a_key_that_reaches_beyond_the_records_is_rejected() {
    for len in [4096, 32_767, 32_768, 65_527, 65_534, 65_535] {
        for (count, at) in [(21, 9), (21, 0), (1, 0)] {
            let expected = row(at as u64, "the record is missing or malformed");
            assert_refused(count, |file, records| put_len(file, records[at], len), &expected);
        }
    }
    // The key extends to the end of the section, or almost to its end, which leaves no room for a response: row 20 has
    // 16 + 8 + 24 bytes. The last key determines the common prefix of all keys, so the fence of row 0 is rejected
    // first.
    for len in (39..=46).chain([47, 65_535]) {
        let expected = row(0, "the fence does not match it");
        assert_refused(21, |file, records| put_len(file, records[20], len), &expected);
    }
}

#[test]
fn a_key_of_another_length_is_rejected() {
    // With a shorter key, a part of the key or padding is read as the response header.
    for len in 1..=6 {
        let refused = |file: &mut [u8], records: &[usize]| put_len(file, records[9], len);
        assert_refused(21, refused, &row(9, "the record is missing or malformed"));
    }
    // The longer key includes the padding, and no pilot was chosen for this key.
    for len in 8..=14 {
        let refused = |file: &mut [u8], records: &[usize]| put_len(file, records[9], len);
        assert_refused(21, refused, &row(9, NOT_FOUND_BY_INDEX));
    }
}

#[test]
fn nonzero_padding_after_a_key_is_rejected() {
    let expected = row(9, "the padding is missing or not zero");
    for at in 9..16 {
        for byte in [1, 128, 255] {
            assert_refused(21, |file, records| file[records[9] + at] = byte, &expected);
        }
    }
    // The padding after the response: row 9 has a value of 9 bytes.
    for at in 24 + 9..40 {
        assert_refused(21, |file, records| file[records[9] + at] = 1, &expected);
    }
}

#[test]
fn keys_of_bytes_out_of_order_are_rejected() {
    let put_key = |text: &'static str| {
        move |file: &mut [u8], records: &[usize]| file[records[9] + 2..][..7].copy_from_slice(text.as_bytes())
    };
    // Row 9 has key-027, row 8 has key-024, and row 10 has key-030.
    for (text, wrong) in [("key-024", 9), ("key-023", 9), ("key-000", 9), ("key-030", 10), ("key-0_0", 10)] {
        assert_refused(21, put_key(text), &row(wrong, "the key is not greater than the preceding key"));
    }
    let wrong_fence = row(0, "the fence does not match it");
    assert_refused(21, put_key("key-028"), &wrong_fence);
    // A comparison of signed bytes would put this key before the others.
    let high = |file: &mut [u8], records: &[usize]| file[records[9] + 8] = 0xb7;
    assert_refused(21, high, &wrong_fence);
}

#[test]
fn a_wrong_key_in_a_fence_of_byte_keys_is_rejected() {
    let scratch = Scratch::new();
    let good = scratch.bake(&byte_rows(300));
    let (fences, len) = encoder::section(&good, FENCES);
    assert_eq!(len, 17 * FENCE);
    for at in (fences..fences + len).step_by(8 * 5) {
        let right = number(&good, at);
        for wrong in [right.wrapping_add(1), right.wrapping_sub(1), right.swap_bytes() ^ 1, !right] {
            let mut file = good.clone();
            put(&mut file, at, wrong);
            seal(&mut file);
            let expected = row(((at - fences) / FENCE * FENCE_ROWS) as u64, "the fence does not match it");
            assert_eq!(scratch.refusal(&file), expected, "{wrong:x} at {at}");
        }
    }
    // Fences with the first 8 bytes of each key, as if the keys had no common prefix.
    let mut file = good.clone();
    for (fence, (key, _)) in byte_rows(300).iter().step_by(FENCE_ROWS).enumerate() {
        let head = u64::from_be_bytes([&key[..], b"\0"].concat().try_into().unwrap());
        put(&mut file, fences + fence * FENCE, head);
    }
    seal(&mut file);
    assert_eq!(scratch.refusal(&file), row(0, "the fence does not match it"));
}

#[test]
fn a_last_key_with_a_shorter_common_prefix_is_rejected() {
    // The last key determines the common prefix, after which a fence stores 8 bytes of its key.
    let change_last_key = |file: &mut [u8], records: &[usize]| file[records[20] + 2] = b'z';
    assert_refused(21, change_last_key, &row(0, "the fence does not match it"));
}

#[test]
fn a_byte_key_that_leads_to_another_record_is_rejected() {
    let rows = byte_rows(21);
    let good = Scratch::new().bake(&rows);
    let records = records_of(&good, &rows);
    let place = |row: usize| ((records[row] - records[0]) / 8) as u32;
    for (lost, wrong) in [(9, place(10)), (9, 0), (9, place(9) + 1), (9, u32::MAX), (20, place(19))] {
        let elsewhere = |file: &mut [u8], _: &[usize]| put_u32(file, place_at(file, &rows[lost].0), wrong);
        assert_refused(21, elsewhere, &row(lost as u64, NOT_FOUND_BY_INDEX));
    }
    // The place of row 9 points to a forged record in the value of row 20, whose 20 bytes hold a short key and an empty
    // response.
    let forge = |file: &mut [u8], records: &[usize]| {
        file[records[20] + 24..][..20].fill(0);
        file[records[20] + 24..][..9].copy_from_slice(b"\x07\0key-027");
        put_u32(file, place_at(file, &rows[9].0), place(20) + 3);
    };
    assert_refused(21, forge, &row(9, NOT_FOUND_BY_INDEX));
    // An unused slot points to a forged record of a key that no row has.
    let slots: Vec<usize> = rows.iter().map(|(key, _)| place_at(&good, key)).collect();
    let unused = |key: &Vec<u8>| !slots.contains(&place_at(&good, key));
    let missing = (0_u32..).map(|i| format!("k{i:04}").into_bytes()).find(unused).expect("a slot that is not used");
    let forge = |file: &mut [u8], records: &[usize]| {
        file[records[20] + 24..][..20].fill(0);
        file[records[20] + 24] = 5;
        file[records[20] + 26..][..5].copy_from_slice(&missing);
        put_u32(file, place_at(&good, &missing), place(20) + 3);
    };
    assert_refused(21, forge, &FormatError::PlaceCount { expected: 20, found: 21 });
}

#[test]
fn a_file_declared_to_be_of_the_other_kind_is_rejected() {
    let scratch = Scratch::new();
    let declare = |mut file: Vec<u8>, kind: u32, key_type: u32| {
        put_u32(&mut file, KEY_KIND, kind);
        put_u32(&mut file, KEY_TYPE, key_type);
        seal(&mut file);
        scratch.refusal(&file)
    };
    // The types `u64` and `bytes` have the numbers of their kinds.
    for count in [1, 5, 16, 21, 300] {
        let refusal = declare(scratch.bake(&rows(count)), 2, 2);
        assert!(matches!(refusal, FormatError::Row { .. }), "{count} numbers as bytes: {refusal}");
        let refusal = declare(scratch.bake(&byte_rows(count as usize)), 1, 1);
        assert!(matches!(refusal, FormatError::Row { .. }), "{count} keys of bytes as numbers: {refusal}");
    }
    for kind in [0, 3, 256, u32::MAX] {
        let expected = FormatError::HeaderField { what: "the key kind", expected: 2, found: kind.into() };
        assert_eq!(declare(scratch.bake(&byte_rows(21)), kind, 2), expected);
    }
    // This number can also be read as a byte key, but its slot belongs to the hash of a number.
    let row = [(u64::from_le_bytes(*b"\x06\0abcdef"), b"value".to_vec())];
    let refusal = declare(scratch.bake(&row), 2, 2);
    assert!(matches!(refusal, FormatError::Row { row: 0, .. }), "{refusal}");
}

#[test]
fn sealing_a_good_file_of_bytes_changes_nothing() {
    let good = Scratch::new().bake(&byte_rows(300));
    let mut sealed = good.clone();
    seal(&mut sealed);
    assert!(sealed == good && encoder::section(&good, PLACES).1 > 0);
}
