//! The keys by which ranges are sorted.
//!
//! In: the first and the last key of a range, as a table stores them. Out: one key of bytes. These keys order ranges by
//! their starts, and ranges with equal starts by their ends, the last one first.

use super::keys::Keys;
use super::options::Options;
use crate::format::OwnedKey;
use crate::format::form::RowKey;
use crate::format::key::{Key, KeyKind};
use crate::format::key_type::KeyType;

/// The keys by which ranges are sorted: the stored form of the start, and the last part of the end with all bits
/// flipped.
#[derive(Clone, Copy, Debug)]
pub(super) struct RangeKeys {
    pub(super) key_type: KeyType,
    /// The length of the last part of a stored key.
    part_len_bytes: usize,
}

/// A sorting key, divided into its parts.
pub(super) struct Decoded<'k> {
    /// All parts of the start and of the end, except the last one.
    pub(super) leading: &'k [u8],
    pub(super) start: u128,
    pub(super) end: u128,
}

impl RangeKeys {
    /// Returns the sorting keys of a bake of ranges.
    pub(super) fn new(options: &Options) -> Option<RangeKeys> {
        options.ranges.as_ref()?;
        let Keys::Type(key_type) = options.keys else { return None };
        Some(RangeKeys { key_type, part_len_bytes: key_type.last_part_len_bytes()? })
    }

    /// Returns whether a stored row has a range of these keys: with a start that is at most the end, and whose parts
    /// before the last one are those of the end.
    pub(super) fn are_of(&self, row_key: RowKey<'_>) -> bool {
        match (row_key.key, row_key.end) {
            (Key::U64(start), Some(Key::U64(end))) => start <= end,
            (Key::Bytes(start), Some(Key::Bytes(end))) if start.len() == end.len() => {
                let leading_len_bytes = start.len().checked_sub(self.part_len_bytes);
                start <= end && leading_len_bytes.is_some_and(|len_bytes| start[..len_bytes] == end[..len_bytes])
            }
            _ => false,
        }
    }

    /// Encodes a range whose start and end differ only in the last part.
    pub(super) fn encode(&self, start: Key<'_>, end: Key<'_>, to: &mut Vec<u8>) {
        to.clear();
        for (key, is_end) in [(start, false), (end, true)] {
            let from = to.len();
            match key {
                Key::U64(number) => to.extend_from_slice(&number.to_be_bytes()),
                Key::Bytes(bytes) if is_end => to.extend_from_slice(&bytes[bytes.len() - self.part_len_bytes..]),
                Key::Bytes(bytes) => to.extend_from_slice(bytes),
            }
            if is_end {
                to[from..].iter_mut().for_each(|byte| *byte = !*byte);
            }
        }
    }

    pub(super) fn decode<'k>(&self, key: &'k [u8]) -> Decoded<'k> {
        let (start, end) = key.split_at(key.len() - self.part_len_bytes);
        let (leading, start) = start.split_at(start.len() - self.part_len_bytes);
        let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte));
        let all_bits = u128::MAX >> (u128::BITS as usize - 8 * self.part_len_bytes);
        Decoded { leading, start: number(start), end: number(end) ^ all_bits }
    }

    /// Returns the stored key with these leading parts and this last part. A byte key is written into `buffer`.
    pub(super) fn stored<'b>(&self, leading: &[u8], last: u128, buffer: &'b mut Vec<u8>) -> Key<'b> {
        match self.key_type.kind() {
            KeyKind::U64 => Key::U64(last as u64),
            KeyKind::Bytes => {
                let last = last.to_be_bytes();
                buffer.clear();
                buffer.extend_from_slice(leading);
                buffer.extend_from_slice(&last[last.len() - self.part_len_bytes..]);
                Key::Bytes(buffer)
            }
        }
    }

    /// Returns the written form of a range for messages.
    fn display(&self, Decoded { leading, start, end }: &Decoded<'_>) -> String {
        let [start, end] = [start, end].map(|last| {
            let mut buffer = Vec::new();
            self.key_type.display(self.stored(leading, *last, &mut buffer)).to_string()
        });
        format!("{start} to {end}")
    }

    /// Returns the written form of the range with a sorting key.
    pub(super) fn display_key(&self, key: &OwnedKey) -> String {
        match key {
            OwnedKey::Bytes(bytes) => self.display(&self.decode(bytes)),
            OwnedKey::U64(number) => number.to_string(),
        }
    }
}
