//! Tests of tags, epochs, and counts of verified blocks.

use super::*;

fn records(blocks: usize) -> (Vec<u8>, Vec<U64>) {
    let records: Vec<u8> = (0..blocks * BLOCK_LEN_BYTES - 7).map(|at| ((at * 31) >> 3) as u8).collect();
    let sums = records.chunks(BLOCK_LEN_BYTES).map(block_sum).collect();
    (records, sums)
}

#[test]
fn a_block_is_verified_once_per_epoch() {
    let (mut records, sums) = records(4);
    let blocks = Blocks::of_records(4).unwrap();
    let epoch = blocks.epoch();
    let (start, end) = (BLOCK_LEN_BYTES - 1, BLOCK_LEN_BYTES + 1);
    assert!(!blocks.are_verified(epoch, start, end));
    assert!(blocks.verify_records(epoch, &records, &sums, start, end));
    assert!(blocks.are_verified(epoch, start, end));
    assert_eq!(blocks.verified_count(), 3, "two blocks of records, and the block of their checksums");
    assert!(!blocks.are_verified(epoch, 0, records.len()), "two of four blocks are verified");

    // Verified blocks are not verified again; unverified blocks are verified.
    records[0] ^= 1;
    records[3 * BLOCK_LEN_BYTES] ^= 1;
    assert!(blocks.verify_records(epoch, &records, &sums, start, end));
    assert!(!blocks.verify_records(epoch, &records, &sums, 0, records.len()));
    assert_eq!((blocks.take_damaged(), blocks.take_damaged()), (vec![3], vec![]));

    assert!(blocks.distrust(epoch) && !blocks.distrust(epoch));
    assert!(!blocks.are_verified(blocks.epoch(), start, end));
    assert!(!blocks.verify_records(blocks.epoch(), &records, &sums, start, end));
    assert!(blocks.trust_again(false));
    assert_eq!(blocks.verified_count(), 0);
    assert!(!blocks.verify_records(blocks.epoch(), &records, &sums, start, end));
    assert!(blocks.verify_records(blocks.epoch(), &records, &sums, end, end + 1));
}

#[test]
fn a_block_that_was_verified_in_one_epoch_is_unverified_in_the_next() {
    let (records, sums) = records(1);
    let blocks = Blocks::of_records(1).unwrap();
    let old = blocks.epoch();
    assert!(blocks.distrust(old) && blocks.trust_again(false));
    // A lookup that began before the change ends after the change.
    assert!(blocks.verify_records(old, &records, &sums, 0, 1));
    assert!(!blocks.are_verified(blocks.epoch(), 0, 1));
}

#[test]
fn a_group_is_verified_block_by_block_and_then_read_as_one_tag() {
    let (mut records, sums) = records(3 * GROUP_BLOCKS + 10);
    let blocks = Blocks::of_records(sums.len()).unwrap();
    let epoch = blocks.epoch();
    let (start, end) = (BLOCK_LEN_BYTES - 1, records.len());
    assert!(blocks.verify_records(epoch, &records, &sums, start, end));
    assert_eq!(blocks.verified_count(), sums.len() + sums.len().div_ceil(SUMS_PER_BLOCK));
    let byte = GROUP_BLOCKS * BLOCK_LEN_BYTES + 5;
    records[byte] ^= 1;
    assert!(blocks.verify_records(epoch, &records, &sums, start, end), "verified in this epoch");
    assert!(blocks.distrust(epoch) && blocks.trust_again(false));
    let epoch = blocks.epoch();
    assert!(!blocks.verify_records(epoch, &records, &sums, start, end));
    assert_eq!(blocks.take_damaged(), [GROUP_BLOCKS]);
    records[byte] ^= 1;
    assert!(blocks.verify_records(epoch, &records, &sums, start, end));
    // When the epoch ends, group tags become invalid, too.
    assert!(blocks.distrust(epoch) && !blocks.verify_records(blocks.epoch(), &records, &sums, start, end));
}

#[cfg(feature = "server")]
#[test]
fn interrupted_verification_continues_after_the_verified_blocks() {
    use super::super::verification::{VerificationLimit, is_verification_interrupted, verification_work_on_thread};

    const BLOCKS_MAX: usize = 100;
    let (records, sums) = records(2 * GROUP_BLOCKS + 10);
    let blocks = Blocks::of_records(sums.len()).unwrap();
    let verify_all = || {
        let _limit = VerificationLimit::begin(BLOCKS_MAX * BLOCK_WORK);
        let is_complete = blocks.verify_records(blocks.epoch(), &records, &sums, 0, records.len());
        assert_ne!(is_complete, is_verification_interrupted());
        is_complete
    };
    let mut rounds = 0;
    while !verify_all() {
        rounds += 1;
        assert_eq!(blocks.verified_count(), rounds * BLOCKS_MAX);
        // The file changes once, so the whole file is verified again.
        if rounds == 3 {
            assert!(blocks.distrust(blocks.epoch()));
            assert!(
                !blocks.verify_records(blocks.epoch(), &records, &sums, 0, records.len()) && blocks.trust_again(false)
            );
            break;
        }
    }
    assert_eq!(blocks.verified_count(), 0);
    let rounds = 1 + (0..).take_while(|_| !verify_all()).count();
    assert_eq!(rounds, (sums.len() + sums.len().div_ceil(SUMS_PER_BLOCK)).div_ceil(BLOCKS_MAX));
    assert!(blocks.take_damaged().is_empty() && !is_verification_interrupted());

    // The lookup reads two group tags, and the tags of the last ten blocks.
    let work_before = verification_work_on_thread();
    assert!(verify_all());
    assert_eq!(verification_work_on_thread() - work_before, 2 + 10);
}

#[test]
fn a_count_of_blocks_that_exceeds_the_address_space_is_an_error() {
    assert_eq!(Blocks::of_records(isize::MAX as usize).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
}

/// A tag is one byte, so after 127 trusted epochs, an epoch has the tag of an earlier one.
#[test]
fn a_block_is_verified_again_in_a_later_epoch_with_the_same_tag() {
    let (mut records, sums) = records(GROUP_BLOCKS);
    let blocks = Blocks::of_records(sums.len()).unwrap();
    let first = blocks.epoch();
    assert!(blocks.verify_records(first, &records, &sums, 0, records.len()) && blocks.are_records_verified(first));
    records[5] ^= 1;
    for _ in 0..300 {
        assert!(blocks.distrust(blocks.epoch()) && blocks.trust_again(false));
        let epoch = blocks.epoch();
        assert!(epoch != first && !epoch.is_distrust() && blocks.verified_count() == 0);
        assert!(!blocks.are_verified(epoch, 0, 1) && !blocks.are_records_verified(epoch));
        // A lookup of the first epoch verifies blocks only now.
        let (start, end) = (BLOCK_LEN_BYTES, 2 * BLOCK_LEN_BYTES);
        assert!(blocks.verify_records(first, &records, &sums, start, end) && blocks.verified_count() == 0);
        assert!(!blocks.verify_records(epoch, &records, &sums, 0, records.len()));
        assert!(blocks.verify_records(epoch, &records, &sums, start, end) && !blocks.are_records_verified(epoch));
    }
}

/// In no epoch without trust, a block counts as verified that was never verified.
#[test]
fn no_block_is_verified_in_a_distrusted_epoch() {
    let (records, sums) = records(GROUP_BLOCKS);
    let blocks = Blocks::of_records(sums.len()).unwrap();
    for _ in 0..600 {
        assert!(blocks.distrust(blocks.epoch()));
        let epoch = blocks.epoch();
        assert!(epoch.is_distrust() && epoch.tag() != NEVER && blocks.verified_count() == 0);
        assert!((0..sums.len()).all(|block| !blocks.is_verified(epoch, block)));
        assert!(!blocks.is_in_verified_block(epoch, 0, 1) && !blocks.are_verified(epoch, 0, 1));
        assert!(!blocks.verify_records(epoch, &records, &sums, 0, records.len()));
        assert!(!blocks.are_records_verified(epoch));
        assert!(blocks.trust_again(false));
    }
}

#[test]
fn a_range_beyond_the_end_is_damaged() {
    let (records, sums) = records(2);
    let blocks = Blocks::of_records(2).unwrap();
    for (start, end) in [(0, records.len() + 1), (3 * BLOCK_LEN_BYTES, 3 * BLOCK_LEN_BYTES + 1), (0, usize::MAX)] {
        assert!(!blocks.are_verified(blocks.epoch(), start, end));
        assert!(!blocks.verify_records(blocks.epoch(), &records, &sums, start, end));
    }
}

/// A file with blocks in each section: 3 of records, 1 of fences, 1 of the fence tree, 1 of pilots, 2 of places, and an
/// empty schema.
struct Indexed {
    sections: [Vec<u8>; 6],
    sums: Vec<U64>,
    root: Vec<U64>,
    blocks: Blocks,
}

impl Indexed {
    fn new() -> Indexed {
        let lens = [3 * BLOCK_LEN_BYTES - 7, 96, 128, BLOCK_LEN_BYTES, BLOCK_LEN_BYTES + 4, 0];
        let sections = lens.map(|len| (0..len).map(|at| ((at * 31 + len) >> 3) as u8).collect::<Vec<u8>>());
        let sums: Vec<U64> =
            sections.iter().flat_map(|section| section.chunks(BLOCK_LEN_BYTES).map(block_sum)).collect();
        let numbers = BlockNumbers { fences: 3..5, pilots: 5..6, places: 6..8, sums: 8..9 };
        let root = crate::format::checksum::root_of(&sums);
        Indexed { sections, sums, root, blocks: Blocks::new(numbers).unwrap() }
    }

    fn verify(&self, block: usize) -> bool {
        let sections = self.sections.each_ref().map(Vec::as_slice);
        let data = BlockData { sections, sums: &self.sums, root: &self.root, copier: None };
        self.blocks.verify_block(self.blocks.epoch(), &data, block)
    }

    /// Returns whether the records, the pilots and places, and the fences are verified.
    fn are_parts_verified(&self) -> (bool, bool, bool) {
        let (blocks, epoch) = (&self.blocks, self.blocks.epoch());
        (blocks.are_records_verified(epoch), blocks.are_slots_verified(epoch), blocks.are_fences_verified(epoch))
    }
}

#[test]
fn a_part_of_the_file_counts_as_verified_when_all_its_blocks_are_verified_in_one_epoch() {
    let file = Indexed::new();
    for _ in 0..2 {
        for block in [0, 4, 5, 5, 7, 1, 1] {
            assert!(file.verify(block));
            assert_eq!(file.are_parts_verified(), (false, false, false), "block {block}");
        }
        assert!(file.verify(6) && file.are_parts_verified() == (false, true, false));
        assert!(file.verify(3) && file.are_parts_verified() == (false, true, true));
        assert!(file.verify(2) && file.are_parts_verified() == (true, true, true));
        assert!(file.blocks.distrust(file.blocks.epoch()));
        assert_eq!(file.are_parts_verified(), (false, false, false));
        assert!(!file.verify(6) && file.blocks.trust_again(false));
    }
    assert!(file.blocks.take_damaged().is_empty());
}

#[test]
fn a_damaged_block_of_any_section_is_noted_and_other_blocks_are_verified() {
    for (section, block) in [(0, 2), (1, 3), (2, 4), (3, 5), (4, 7)] {
        let mut file = Indexed::new();
        *file.sections[section].last_mut().unwrap() ^= 1;
        let intact: Vec<usize> = (0..10).filter(|block| file.verify(*block)).collect();
        assert_eq!(intact, (0..9).filter(|other| *other != block).collect::<Vec<_>>());
        assert_eq!(file.blocks.take_damaged(), [block]);
        assert_eq!(file.are_parts_verified(), (block >= 3, block < 5, !(3..5).contains(&block)));
    }
    // Without intact checksums, no block can be verified.
    let mut file = Indexed::new();
    file.sums[7] = U64::new(!file.sums[7].get());
    assert!(!(0..10).any(|block| file.verify(block)));
    assert_eq!(file.blocks.take_damaged(), [8]);
}
