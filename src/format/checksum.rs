//! Checksums: XXH3-64 of each block, and of the list of them for a section.
//!
//! They detect accidents. XXH3 is not a cryptographic hash, so they give no protection against forged files.

use twox_hash::{XxHash3_64, XxHash3_128};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

/// Sections are summed in blocks of this length; the last may be shorter.
///
/// Long enough that the sums are 0.05 % of what they cover, short enough that
/// damage is named to within four pages.
pub const BLOCK_LEN_BYTES: usize = 16 << 10;

/// The sum of one block.
pub fn block_sum(block: &[u8]) -> U64 {
    U64::new(XxHash3_64::oneshot(block))
}

/// The checksum of a section, from the sums of its blocks in order.
pub fn section_sum(block_sums: &[U64]) -> u64 {
    XxHash3_64::oneshot(block_sums.as_bytes())
}

/// The checksum of a section that is at hand as a whole.
pub fn section_sum_of(section: &[u8]) -> u64 {
    let sums: Vec<U64> = section.chunks(BLOCK_LEN_BYTES).map(block_sum).collect();
    section_sum(&sums)
}

/// The digest of a header, and through its section checksums of the file.
pub(super) fn digest(header: &[u8]) -> u128 {
    XxHash3_128::oneshot(header)
}
