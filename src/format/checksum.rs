//! Computes checksums. The checksum of a block is its XXH3-64. The checksum of a section is the XXH3-64 of the list of
//! its block checksums.
//!
//! Checksums detect accidental damage. XXH3 is not a cryptographic hash, so checksums give no protection against forged
//! files.

use std::hash::Hasher;

use twox_hash::{XxHash3_64, XxHash3_128};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

/// The length of a block. The last block of a section may be shorter.
///
/// Each block has its own checksum, so a mismatch identifies the damaged block. With blocks of this length, checksums
/// are 0.2 % as long as the data. Each block of the records is one memory page of 4 KiB, so a lookup whose record is
/// not in memory reads one page.
pub const BLOCK_LEN_BYTES: usize = 4 << 10;

/// The number of checksums in a block of the section of block sums.
pub const SUMS_PER_BLOCK: usize = BLOCK_LEN_BYTES / size_of::<U64>();

/// Returns the checksum of one block.
pub fn block_sum(block: &[u8]) -> U64 {
    U64::new(XxHash3_64::oneshot(block))
}

/// Computes a section's checksum from the checksums of its blocks. The checksums must be in the order of the blocks.
pub fn section_sum(block_sums: &[U64]) -> u64 {
    XxHash3_64::oneshot(block_sums.as_bytes())
}

/// Computes a section's checksum from its bytes.
pub fn section_sum_of(section: &[u8]) -> u64 {
    let mut sum = SectionSum::new();
    sum.add_bytes(section);
    sum.finish()
}

/// Computes the checksum of a section from consecutive pieces. The memory use does not depend on the section's length.
pub(crate) struct SectionSum(XxHash3_64);

impl SectionSum {
    pub(crate) fn new() -> SectionSum {
        SectionSum(XxHash3_64::new())
    }

    /// Adds the next bytes of the section. Every piece except the last must consist of whole blocks.
    pub(crate) fn add_bytes(&mut self, bytes: &[u8]) {
        bytes.chunks(BLOCK_LEN_BYTES).for_each(|block| self.add_block_sums(&[block_sum(block)]));
    }

    /// Adds the checksums of the section's next blocks.
    pub(crate) fn add_block_sums(&mut self, block_sums: &[U64]) {
        self.0.write(block_sums.as_bytes());
    }

    /// Returns the checksum of all pieces added so far.
    pub(crate) fn finish(&self) -> u64 {
        self.0.finish()
    }
}

/// Splits the section of block sums into the checksums of the blocks of the other sections, and the root: the checksum
/// of each block of these checksums. The checksum of the section is the checksum of the root's bytes.
pub fn split_root(block_sums: &[U64]) -> (&[U64], &[U64]) {
    // The root has one checksum per `SUMS_PER_BLOCK` checksums.
    block_sums.split_at(block_sums.len() - block_sums.len().div_ceil(SUMS_PER_BLOCK + 1))
}

/// Returns the root of the checksums of all blocks: the checksum of each block of these checksums.
pub fn root_of(block_sums: &[U64]) -> Vec<U64> {
    block_sums.chunks(SUMS_PER_BLOCK).map(|sums| block_sum(sums.as_bytes())).collect()
}

/// Returns the digest of a header. The header holds the checksums of all sections, so the digest covers the whole file.
pub(super) fn digest(header: &[u8]) -> u128 {
    XxHash3_128::oneshot(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_has_one_checksum_per_block_of_checksums() {
        for count in [0, 1, SUMS_PER_BLOCK, SUMS_PER_BLOCK + 1, 2 * SUMS_PER_BLOCK, 3 * SUMS_PER_BLOCK + 5] {
            let sums: Vec<U64> = (0..count as u64).map(|number| U64::new(number * number)).collect();
            let root = root_of(&sums);
            assert_eq!(root.len(), sums.as_bytes().len().div_ceil(BLOCK_LEN_BYTES));
            assert_eq!(section_sum(&root), section_sum_of(sums.as_bytes()));
            let section = [&sums[..], &root].concat();
            assert!(split_root(&section) == (&sums, &root), "{count}");
        }
    }

    #[test]
    fn the_checksum_of_a_section_does_not_depend_on_how_the_section_is_split() {
        for len_bytes in [0, 1, BLOCK_LEN_BYTES, BLOCK_LEN_BYTES + 1, 70 * BLOCK_LEN_BYTES + 5] {
            let section: Vec<u8> = (0..len_bytes).map(|at| (at * at / 7) as u8).collect();
            let block_sums: Vec<U64> = section.chunks(BLOCK_LEN_BYTES).map(block_sum).collect();
            let expected = section_sum(&block_sums);
            assert_eq!(section_sum_of(&section), expected, "{len_bytes} bytes");
            for part_blocks in [1, 2, 32, 100] {
                let (mut of_bytes, mut of_sums) = (SectionSum::new(), SectionSum::new());
                section.chunks(part_blocks * BLOCK_LEN_BYTES).for_each(|part| of_bytes.add_bytes(part));
                block_sums.chunks(part_blocks).for_each(|part| of_sums.add_block_sums(part));
                assert_eq!((of_bytes.finish(), of_sums.finish()), (expected, expected), "{len_bytes}, {part_blocks}");
            }
        }
    }
}
