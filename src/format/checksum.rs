//! Checksums: the XXH3-64 of each block, and of the list of block checksums for a section.
//!
//! Checksums detect accidental damage. XXH3 is not a cryptographic hash, so checksums give no protection against forged
//! files.

use twox_hash::{XxHash3_64, XxHash3_128};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

/// The length of a checksummed block; the last block may be shorter.
///
/// The checksums take 0.05 % of the length of what they cover, and damage is located to within four pages.
pub const BLOCK_LEN_BYTES: usize = 16 << 10;

/// Returns the checksum of one block.
pub fn block_sum(block: &[u8]) -> U64 {
    U64::new(XxHash3_64::oneshot(block))
}

/// Returns the checksum of a section from the checksums of its blocks in order.
pub fn section_sum(block_sums: &[U64]) -> u64 {
    XxHash3_64::oneshot(block_sums.as_bytes())
}

/// Returns the checksum of a whole section.
pub fn section_sum_of(section: &[u8]) -> u64 {
    let sums: Vec<U64> = section.chunks(BLOCK_LEN_BYTES).map(block_sum).collect();
    section_sum(&sums)
}

/// Returns the digest of a header. The header holds the checksums of all sections, so the digest covers the whole file.
pub(super) fn digest(header: &[u8]) -> u128 {
    XxHash3_128::oneshot(header)
}
