//! The serialized form of a string: the reply to DUMP, which a Redis server accepts in RESTORE.
//!
//! In: values. Out: the bytes before and after the value: a type, a length, a version, and a checksum. Unlike Redis,
//! this module never compresses a value.

use crate::protocol::resp::integer;

/// The version of Redis's RDB format, as in Redis 7.0.
const RDB_VERSION: [u8; 2] = 10_u16.to_le_bytes();
const TYPE_STRING: u8 = 0;
/// The byte that precedes a serialized integer: one byte each for integers of 8, 16, and 32 bits, in this order.
const INTEGERS: [u8; 3] = [0xC0, 0xC1, 0xC2];

/// The polynomial of Redis's checksum, CRC-64/Jones, with its bits reversed.
const POLYNOMIAL: u64 = 0xAD93_D235_94C9_35A9_u64.reverse_bits();

static CHECKSUMS: [u64; 256] = {
    let mut checksums = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut checksum, mut bit) = (byte as u64, 0);
        while bit < 8 {
            checksum = (checksum >> 1) ^ (POLYNOMIAL * (checksum & 1));
            bit += 1;
        }
        checksums[byte] = checksum;
        byte += 1;
    }
    checksums
};

/// Continues a checksum: returns the checksum of all bytes up to the end of `bytes`. `before` is the checksum of the
/// bytes that precede `bytes`, or 0 if there are none.
pub(super) fn checksum(before: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(before, |sum, byte| CHECKSUMS[usize::from(sum as u8 ^ byte)] ^ (sum >> 8))
}

/// Returns the whole serialized form of a value that Redis stores as an integer of at most 32 bits, or `None` for any
/// other value.
pub(super) fn short_integer(value: &[u8]) -> Option<Vec<u8>> {
    let number = i32::try_from(integer(value)?).ok()?;
    let (kind, len_bytes) = match number {
        -0x80..=0x7F => (INTEGERS[0], 1),
        -0x8000..=0x7FFF => (INTEGERS[1], 2),
        _ => (INTEGERS[2], 4),
    };
    let mut bytes = vec![TYPE_STRING, kind];
    bytes.extend_from_slice(&number.to_le_bytes()[..len_bytes]);
    let footer = footer(checksum(0, &bytes));
    bytes.extend_from_slice(&footer);
    Some(bytes)
}

/// Returns the bytes that precede a value of this length in the serialized form.
pub(super) fn header(value_len_bytes: usize) -> Vec<u8> {
    let len = value_len_bytes as u32;
    let mut bytes = vec![TYPE_STRING];
    match len {
        0..0x40 => bytes.push(len as u8),
        0x40..0x4000 => bytes.extend_from_slice(&(0x4000 | len as u16).to_be_bytes()),
        _ => {
            bytes.push(0x80);
            bytes.extend_from_slice(&len.to_be_bytes());
        }
    }
    bytes
}

/// Returns the footer that follows a value. `before` is the checksum of header and value.
pub(super) fn footer(before: u64) -> [u8; 10] {
    let mut bytes = [0; 10];
    let (version, sum) = bytes.split_at_mut(RDB_VERSION.len());
    version.copy_from_slice(&RDB_VERSION);
    sum.copy_from_slice(&checksum(before, &RDB_VERSION).to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_redis() {
        // The check value of CRC-64/REDIS in the catalogue of parametrised CRC algorithms.
        assert_eq!(checksum(0, b"123456789"), 0xE9C6_D914_C4B8_D9CA);
        assert_eq!(checksum(checksum(0, b"1234"), b"56789"), checksum(0, b"123456789"));
    }

    #[test]
    fn values_have_the_serialized_form_of_redis() {
        let text = [&header(5)[..], b"hello", &footer(checksum(checksum(0, &header(5)), b"hello"))].concat();
        assert_eq!(text, b"\x00\x05hello\n\x00cr\xdfve4 \n");
        assert_eq!(short_integer(b"5").unwrap(), b"\x00\xc0\x05\n\x00c/_f\x83/\xb3Q");
        assert_eq!(short_integer(b"-300").unwrap()[..4], [0, 0xC1, 0xD4, 0xFE]);
        assert_eq!(short_integer(b"2147483647").unwrap()[..6], [0, 0xC2, 0xFF, 0xFF, 0xFF, 0x7F]);
        for other in [&b"2147483648"[..], b"05", b"x", b""] {
            assert_eq!(short_integer(other), None);
        }
        assert_eq!([header(63), header(64)], [vec![0, 63], vec![0, 0x40, 64]]);
        assert_eq!([header(16_383), header(16_384)], [vec![0, 0x7F, 0xFF], vec![0, 0x80, 0, 0, 0x40, 0]]);
    }
}
