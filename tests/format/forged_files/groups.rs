//! Forged files with the compact layout.

use zero_kv::Lookup;
use zero_kv::bake::TableLayout;
use zero_kv::format::FormatError;
use zero_kv::format::header::SectionKind;

use super::ranges::span_rows;
use super::{NOT_FOUND_BY_INDEX, row, rows};
use crate::helpers::encoder::{
    self, FENCE_TREE, FENCES, FLAGS, HASH_SEED, PLACES, RECORD_ALIGN, RECORDS, ROW_COUNT, number, put, put_u32, seal,
};
use crate::helpers::rows::Scratch;

const WRONG_GROUP: &str = "the group does not match its rows";
const NOT_GREATER: &str = "the key is not greater than the preceding key";

/// Returns the refusal of a file of 100 rows after a change.
fn refusal(change: impl FnOnce(&mut Vec<u8>)) -> FormatError {
    let scratch = Scratch::of(TableLayout::Compact);
    let mut file = scratch.bake(&rows(100));
    change(&mut file);
    seal(&mut file);
    scratch.refusal(&file)
}

/// Returns the offset of a group.
fn group_at(file: &[u8], group: usize) -> usize {
    let place = encoder::section(file, PLACES).0 + group * 4;
    encoder::section(file, FENCES).0 + u32::from_le_bytes(file[place..place + 4].try_into().unwrap()) as usize * 8
}

#[test]
fn header_fields_that_contradict_the_layout_are_rejected() {
    let field = |what, expected, found| FormatError::HeaderField { what, expected, found };
    assert_eq!(refusal(|file| put_u32(file, RECORD_ALIGN, 8)), field("the record alignment", 1, 8));
    assert_eq!(refusal(|file| put(file, HASH_SEED, 5)), field("the hash seed", 0, 5));
    assert_eq!(refusal(|file| put(file, FLAGS, 6)), field("the flags", 2, 6));
    assert!(matches!(refusal(|file| put(file, FLAGS, 3)), FormatError::Row { .. }));
    assert_eq!(refusal(|file| put(file, FLAGS, 0)), field("the record alignment", 8, 1));
    let many = refusal(|file| put(file, ROW_COUNT, 1 << 20));
    assert!(matches!(many, FormatError::HeaderField { what: "the length of the groups", .. }), "{many}");
    let few = refusal(|file| put(file, ROW_COUNT, 1));
    assert!(
        matches!(few, FormatError::SectionPlace { section: SectionKind::FenceTree | SectionKind::Places, .. }),
        "{few}"
    );
    let bytes = refusal(|file| {
        put_u32(file, encoder::KEY_KIND, 2);
        put_u32(file, encoder::KEY_TYPE, 2);
    });
    assert_eq!(bytes, field("the key kind of a table with the compact layout", 1, 2));
}

#[test]
fn a_wrong_place_is_rejected() {
    for (group, place) in [(0, 1), (1, 0), (3, 1 << 30)] {
        let found = refusal(|file| {
            let at = encoder::section(file, PLACES).0 + group * 4;
            put_u32(file, at, place);
        });
        assert_eq!(found, row(group as u64 * 32, WRONG_GROUP));
    }
}

#[test]
fn a_group_that_no_baker_writes_is_rejected() {
    // Widths, the code of a missing row, bits after the last entry, and padding.
    let last = |file: &[u8]| group_at(file, 3);
    let end = |file: &[u8]| encoder::section(file, FENCES).0 + encoder::section(file, FENCES).1;
    assert_eq!(
        refusal(|file| {
            let at = last(file) + 20 + 31;
            file[at] = 7;
        }),
        row(96, WRONG_GROUP)
    );
    assert_eq!(
        refusal(|file| {
            let at = end(file) - 1;
            file[at] |= 0x80;
        }),
        row(96, WRONG_GROUP)
    );
    for (width, found) in [(57, WRONG_GROUP), (255, WRONG_GROUP)] {
        assert_eq!(
            refusal(|file| {
                let at = group_at(file, 1) + 14;
                file[at] = width;
            }),
            row(32, found)
        );
    }
    assert_eq!(
        refusal(|file| {
            let at = group_at(file, 1) + 15;
            file[at] = 37;
        }),
        row(32, WRONG_GROUP)
    );
}

#[test]
fn keys_out_of_order_are_rejected() {
    let group_head = |group: usize, head: u64| {
        refusal(move |file| {
            let at = group_at(file, group);
            put(file, at, head);
        })
    };
    assert_eq!(group_head(1, 5), row(32, NOT_GREATER));
    assert_eq!(group_head(2, u64::MAX), row(65, NOT_GREATER));
    // Codes of rows that do not ascend.
    assert_eq!(
        refusal(|file| {
            let at = group_at(file, 0) + 20 + 6;
            file[at] = 0;
        }),
        row(6, NOT_GREATER)
    );
}

#[test]
fn values_with_gaps_or_beyond_their_section_are_rejected() {
    let gap = "the value is not where the preceding value ends";
    assert_eq!(
        refusal(|file| {
            let at = group_at(file, 1) + 8;
            file[at] ^= 1;
        }),
        row(32, gap)
    );
    let more = refusal(|file| {
        let at = group_at(file, 3) + 16;
        file[at] += 1;
    });
    assert_eq!(more, row(99, "the value is not inside the records"));
    let scratch = Scratch::of(TableLayout::Compact);
    let file = scratch.bake(&rows(100));
    let values = encoder::section(&file, RECORDS).1;
    assert!(!values.is_multiple_of(64), "padding follows the values");
    let longer = refusal(|file| {
        let len = number(file, encoder::len_at(RECORDS));
        put(file, encoder::len_at(RECORDS), len + 1);
    });
    assert_eq!(longer, row(100, "there are groups or values beyond the last row"));
}

#[test]
fn ranges_that_end_elsewhere_are_rejected() {
    let scratch = Scratch::new();
    // The ranges from 0 to 0, 20 to 30, 40 to 50, and 60 to 60.
    let good = encoder::encode_compact(&span_rows(4, |i| i * 10));
    assert_eq!(scratch.open(&good).unwrap().cover(30).unwrap(), Some((20.into(), 30.into(), &b"a"[..])));
    let refusal = |change: &dyn Fn(&mut [u8])| {
        let mut file = good.clone();
        let (start, len) = encoder::section(&file, FENCES);
        change(&mut file[start..start + len]);
        seal(&mut file);
        scratch.refusal(&file)
    };
    // Values of 6 bytes take 3 bits for each of 32 ends, so the entries are 12 bytes. The ends of ranges follow.
    let adjacent_at = 52 + 4 * 3;
    let overlap = "the range begins before the preceding range ends";
    // Extents of 8, 0, and more than 64 bits instead of 4.
    assert_eq!(refusal(&|group| group[adjacent_at + 4] = 8), row(1, overlap));
    assert_eq!(refusal(&|group| group[adjacent_at + 4] = 0), row(0, WRONG_GROUP));
    assert_eq!(refusal(&|group| group[adjacent_at + 4] = 255), row(1, overlap));
    // The last row ends before a row that the group does not have.
    assert_eq!(refusal(&|group| group[adjacent_at] |= 8), row(0, WRONG_GROUP));
    assert_eq!(refusal(&|group| group[adjacent_at + 3] = 0), row(0, WRONG_GROUP));
    // A bit after the last extent.
    assert_eq!(refusal(&|group| group[adjacent_at + 7] = 1), row(0, WRONG_GROUP));
}

#[test]
fn a_wrong_fence_tree_is_rejected() {
    let found = refusal(|file| {
        let at = encoder::section(file, FENCE_TREE).0 + 8;
        put(file, at, 98);
    });
    // The search for the key 97 leads to the first group.
    assert_eq!(found, row(32, NOT_FOUND_BY_INDEX));
}
