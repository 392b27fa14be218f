//! Records, fences, fence trees, pilots, and places that do not belong to one table.

use zero_kv::Lookup;
use zero_kv::format::FormatError;

use super::{NOT_FOUND_BY_INDEX, assert_refused, forged, row, rows};
use crate::helpers::encoder::{
    self, FENCE, FENCE_ROWS, FENCE_TREE, FENCES, PILOTS, PLACES, RECORDS, number, pilot_at, place_at, put, put_u32,
    seal,
};
use crate::helpers::rows::{Rows, Scratch};

/// Returns the offset of each row's record in the file.
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

/// Asserts that a file of 21 rows with this change and correct checksums is rejected with this error.
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
fn records_out_of_order_are_rejected() {
    // Row 9 has key 28, row 8 has key 25, and row 10 has key 31.
    for (key, wrong) in [(25, 9), (24, 9), (0, 9), (31, 10), (32, 10), (u64::MAX, 10)] {
        let expected = row(wrong, "the key is not greater than the preceding key");
        assert_forgery_refused(|file, records| put(file, records[9], key), &expected);
    }
    let message = "row 10: the key is not greater than the preceding key: forged, or a bug of the baker";
    assert_eq!(row(10, "the key is not greater than the preceding key").to_string(), message);
    // This key keeps the order, but the fence has the code of another key.
    let expected = row(0, "the fence does not match it");
    assert_forgery_refused(|file, records| put(file, records[9], 27), &expected);
}

#[test]
fn a_record_with_a_wrong_length_is_rejected() {
    // Response headers with a length above the section's, above a value's maximum, or above 32 bits, or with a status
    // other than found.
    for header in [4096, 1 << 30, (1 << 30) + 1, u32::MAX.into(), 1 << 32 | 9, u64::MAX - 15, u64::MAX] {
        let put_header =
            |file: &mut [u8], records: &[usize]| file[records[9] + 8..][..8].copy_from_slice(&u64::to_be_bytes(header));
        assert_forgery_refused(put_header, &row(9, "the record is missing or malformed"));
    }
    // Row 20 has a value of 20 bytes and is the last one; the section has 4 more bytes. Row 10 has a value of 10 bytes.
    assert_forgery_refused(|file, records| file[records[20] + 15] = 25, &row(20, "the record is missing or malformed"));
    let padding = row(10, "the padding is missing or not zero");
    assert_forgery_refused(|file, records| file[records[10] + 15] = 9, &padding);
    // With these lengths, the next record is looked for at a wrong offset.
    for len in [8, 17] {
        assert_forgery_refused(
            |file, records| file[records[9] + 15] = len,
            &row(10, "the record is missing or malformed"),
        );
    }
}

#[test]
fn nonzero_padding_in_a_record_is_rejected() {
    let expected = row(9, "the padding is missing or not zero");
    for at in 16 + 9..32 {
        assert_forgery_refused(|file, records| file[records[9] + at] = 1, &expected);
    }
}

#[test]
fn a_wrong_fence_is_rejected() {
    let scratch = Scratch::new();
    let good = scratch.bake(&rows(300));
    let (fences, len) = encoder::section(&good, FENCES);
    assert_eq!(len, 17 * FENCE);
    for at in (fences..fences + len).step_by(8 * 5) {
        let right = number(&good, at);
        for wrong in [right.wrapping_add(1), right.wrapping_sub(1), right.swap_bytes() ^ 1, !right] {
            let expected = row(((at - fences) / FENCE * FENCE_ROWS) as u64, "the fence does not match it");
            assert_eq!(scratch.refusal(&forged(&scratch, 300, at, wrong)), expected, "{wrong} at {at}");
        }
    }
}

#[test]
fn a_wrong_fence_tree_is_rejected() {
    let scratch = Scratch::new();
    let good = scratch.bake(&rows(300));
    let (tree, len) = encoder::section(&good, FENCE_TREE);
    // 17 fences take two nodes of the lowest level, and one node above them.
    assert_eq!(len, 3 * 16 * 8);
    for (at, (level, entry)) in [(0, (0, 0)), (16, (0, 16)), (17, (0, 17)), (31, (0, 31)), (33, (1, 1)), (47, (1, 15))]
    {
        let expected = number(&good, tree + at * 8);
        for found in [expected.wrapping_add(1), expected.wrapping_sub(1), !expected] {
            let refusal = scratch.refusal(&forged(&scratch, 300, tree + at * 8, found));
            assert_eq!(refusal, FormatError::FenceTree { level, entry, expected, found });
        }
    }
    let message = "entry 16 of level 0 of the fence tree is 0000000000000362, where 0000000000000361 was expected: \
                   damaged or forged";
    assert_eq!(scratch.refusal(&forged(&scratch, 300, tree + 16 * 8, 0x362)).to_string(), message);
}

/// Returns the key of a row of [`rows`].
fn key(row: u64) -> u64 {
    row * 3 + 1
}

/// Returns the place of a record.
fn place(records: &[usize], row: usize) -> u32 {
    ((records[row] - records[0]) / 8) as u32
}

#[test]
fn a_place_that_is_not_the_records_is_rejected() {
    // The place of row 0, places inside the record, between records, at the end of the section and beyond it, and the
    // greatest places.
    let (file, rows) = (Scratch::new().bake(&rows(21)), rows(21));
    let records = records_of(&file, &rows);
    let end = encoder::section(&file, RECORDS).1 as u32 / 8;
    let right = place(&records, 9);
    for wrong in [0, right - 1, right + 1, right + 2, end - 1, end, end + 1, u32::MAX - 1, u32::MAX] {
        let elsewhere = |file: &mut [u8], _: &[usize]| put_u32(file, place_at(file, &key(9)), wrong);
        assert_forgery_refused(elsewhere, &row(9, NOT_FOUND_BY_INDEX));
    }
    let message = "row 9: the index does not find it: forged, or a bug of the baker";
    assert_eq!(row(9, NOT_FOUND_BY_INDEX).to_string(), message);
}

#[test]
fn two_keys_with_one_place_are_rejected() {
    for (lost, other) in [(9, 10), (9, 0), (20, 19)] {
        let share = |file: &mut [u8], records: &[usize]| {
            put_u32(file, place_at(file, &key(lost)), place(records, other));
        };
        assert_forgery_refused(share, &row(lost, NOT_FOUND_BY_INDEX));
    }
    // The places of two rows are exchanged. The check reports the first row in key order.
    let swap = |file: &mut [u8], records: &[usize]| {
        put_u32(file, place_at(file, &key(9)), place(records, 14));
        put_u32(file, place_at(file, &key(14)), place(records, 9));
    };
    assert_forgery_refused(swap, &row(9, NOT_FOUND_BY_INDEX));
}

#[test]
fn a_key_inside_a_value_is_not_a_record() {
    // The value of row 20 contains the key of row 9 and a response header, at an offset that a place can have.
    let forge = |file: &mut [u8], records: &[usize]| {
        file[records[20] + 16..][..20].fill(0);
        put(file, records[20] + 16, key(9));
        put_u32(file, place_at(file, &key(9)), place(records, 20) + 2);
    };
    assert_forgery_refused(forge, &row(9, NOT_FOUND_BY_INDEX));
}

#[test]
fn an_unused_slot_with_a_nonzero_place_is_rejected() {
    let (scratch, rows) = (Scratch::new(), rows(21));
    let good = scratch.bake(&rows);
    let records = records_of(&good, &rows);
    let slots: Vec<usize> = (0..21).map(|row| place_at(&good, &key(row))).collect();
    let missing = (0_u64..).find(|key| key % 3 != 1 && !slots.contains(&place_at(&good, key)));
    let missing = missing.expect("a key that leads to an unused slot");
    // The place of a row, an impossible place, and the place of a forged record of the key in the value of row 20.
    for forged_place in [place(&records, 9), u32::MAX, place(&records, 20) + 2] {
        let mut file = good.clone();
        put(&mut file, records[20] + 16, missing);
        file[records[20] + 24..][..8].fill(0);
        put_u32(&mut file, place_at(&good, &missing), forged_place);
        seal(&mut file);
        let message = "21 places other than 0, where 20 were expected: forged, or a bug of the baker";
        assert_refused(&scratch.refusal(&file), &FormatError::PlaceCount { expected: 20, found: 21 }, message);
    }
}

#[test]
fn a_pilot_is_rejected_exactly_if_it_leads_a_key_to_a_wrong_slot() {
    let (scratch, rows) = (Scratch::new(), rows(21));
    let good = scratch.bake(&rows);
    let records = records_of(&good, &rows);
    let (pilots, len) = encoder::section(&good, PILOTS);
    assert_eq!(len, 7);
    let (mut refused, mut accepted) = (0, 0);
    for at in pilots..pilots + len {
        for pilot in 0..=255 {
            let mut file = good.clone();
            file[at] = pilot;
            seal(&mut file);
            let leads = |row: &usize| {
                let at = place_at(&file, &key(*row as u64));
                file[at..at + 4] == place(&records, *row).to_le_bytes()
            };
            match (0..rows.len()).find(|row| !leads(row)) {
                Some(lost) => {
                    assert_eq!(scratch.refusal(&file), row(lost as u64, NOT_FOUND_BY_INDEX), "pilot {pilot} at {at}");
                    refused += 1;
                }
                None => {
                    let store = scratch.open(&file).unwrap();
                    assert!(rows.iter().all(|(key, value)| store.get(*key).unwrap() == Some(value)));
                    accepted += 1;
                }
            }
        }
    }
    assert!(refused > 7 * 128 && accepted >= 7, "{refused} refused, {accepted} accepted");
}

#[test]
fn equal_pilots_or_places_everywhere_are_rejected() {
    for (section, byte) in [(PILOTS, 0), (PILOTS, 255), (PLACES, 0), (PLACES, 255)] {
        let (scratch, rows) = (Scratch::new(), rows(300));
        let mut file = scratch.bake(&rows);
        let (start, len) = encoder::section(&file, section);
        file[start..start + len].fill(byte);
        seal(&mut file);
        let refusal = scratch.refusal(&file);
        assert!(matches!(refusal, FormatError::Row { what: NOT_FOUND_BY_INDEX, .. }), "{section}, {byte}: {refusal}");
    }
}

#[test]
fn keys_led_to_one_slot_are_rejected() {
    // Changes the pilot of a key that shares it with no other key, so that it leads to the slot of row 14. The slot
    // then has the place of one of the two rows.
    let (scratch, rows) = (Scratch::new(), rows(300));
    let good = scratch.bake(&rows);
    let records = records_of(&good, &rows);
    let slot = place_at(&good, &key(14));
    let alone =
        |row: &u64| (0..300).all(|other| other == *row || pilot_at(&good, &key(other)) != pilot_at(&good, &key(*row)));
    let with_pilot = |row: u64, pilot: u8| {
        let mut file = good.clone();
        let at = pilot_at(&file, &key(row));
        file[at] = pilot;
        file
    };
    let shares = |row: u64| {
        (0..=255)
            .map(move |pilot| (row, pilot))
            .find(|(row, pilot)| place_at(&with_pilot(*row, *pilot), &key(*row)) == slot)
    };
    let (other, pilot) = (15..300).filter(alone).find_map(shares).expect("a key that a pilot leads to this slot");
    for (owner, lost) in [(14, other), (other, 14)] {
        let mut file = with_pilot(other, pilot);
        assert_eq!(place_at(&file, &key(other)), slot);
        put_u32(&mut file, slot, place(&records, owner as usize));
        seal(&mut file);
        assert_eq!(scratch.refusal(&file), row(lost, NOT_FOUND_BY_INDEX));
    }
}
