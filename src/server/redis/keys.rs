//! Keys as text, their slots, and errors about text that is not a key.
//!
//! In: text that a client sent, or keys of a table. Out: keys of the table's kind, text, or slots. If a table's keys
//! are numbers, the text of a key is its decimal representation.

use super::Replied;
use crate::format::key::{Key, KeyKind};
use crate::slots::slot_of;
use crate::store::LookupError;

/// The maximum number of bytes of a client's text that an error quotes.
const QUOTED_LEN_MAX_BYTES: usize = 64;

/// Parses a key of the table's kind.
pub(super) fn key(kind: KeyKind, text: &[u8]) -> Result<Key<'_>, String> {
    match kind {
        KeyKind::U64 => number(text).map(Key::U64).ok_or_else(|| not_a_number(text)),
        KeyKind::Bytes => Ok(Key::Bytes(text)),
    }
}

/// Quotes the beginning of a text that a client sent, for use in an error.
#[cold]
pub(super) fn quoted(text: &[u8]) -> String {
    let (start, rest) = text.split_at(text.len().min(QUOTED_LEN_MAX_BYTES));
    format!("'{}{}'", start.escape_ascii(), if rest.is_empty() { "" } else { "..." })
}

#[cold]
fn not_a_number(text: &[u8]) -> String {
    format!(
        "ERR {} is not a key of this table: its keys are {}, written in decimal, from 0 to {}",
        quoted(text),
        KeyKind::U64,
        u64::MAX
    )
}

/// Returns the text of the error reply for a damaged value.
#[cold]
pub(super) fn damaged() -> String {
    format!("ERR {}", LookupError::Damaged)
}

pub(super) fn key_text<'b>(key: Key<'b>, buffer: &'b mut itoa::Buffer) -> &'b [u8] {
    match key {
        Key::U64(key) => buffer.format(key).as_bytes(),
        Key::Bytes(key) => key,
    }
}

/// Parses a number in decimal digits. Leading zeros are allowed.
#[inline(always)]
pub(super) fn number(digits: &[u8]) -> Option<u64> {
    match digits.len() {
        1..8 => short(digits),
        8..=16 => {
            let (first, last) = (digits.first_chunk()?, digits.last_chunk()?);
            // The first 8 digits and the last 8 may overlap. The shift removes the overlap from the first 8, and puts
            // zeros in front of the other digits. The shift is split into two, because a shift by 64 bits is not
            // defined.
            let beyond_bits = 8 * (16 - digits.len());
            let high = subtract_zeros(first) << (beyond_bits / 2) << (beyond_bits - beyond_bits / 2);
            let low = subtract_zeros(last);
            (are_digits(high) && are_digits(low)).then(|| 100_000_000 * parse_digits(high) + parse_digits(low))
        }
        _ => long(digits),
    }
}

#[inline(always)]
fn short(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |number, digit| {
        let digit = digit.wrapping_sub(b'0');
        (digit <= 9).then(|| 10 * number + u64::from(digit))
    })
}

#[cold]
fn long(digits: &[u8]) -> Option<u64> {
    let add = |number: u64, digit: &u8| {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 { None } else { number.checked_mul(10)?.checked_add(digit.into()) }
    };
    digits.first()?;
    digits.iter().try_fold(0, add)
}

/// Converts each of eight digits to its value. A character that is not a digit becomes a byte above 9. The first
/// character is in the lowest byte of the result.
#[inline(always)]
fn subtract_zeros(characters: &[u8; 8]) -> u64 {
    u64::from_le_bytes(*characters) ^ u64::from_le_bytes([b'0'; 8])
}

/// Returns whether each byte is at most 9.
#[inline(always)]
fn are_digits(bytes: u64) -> bool {
    const HIGH_BITS: u64 = u64::from_le_bytes([0x80; 8]);
    // The addition sets the high bit of each byte above 9. A byte carries into the next one only if its own high bit is
    // set, and then the result is false anyway.
    ((bytes.wrapping_add(u64::from_le_bytes([0x7F - 9; 8]))) | bytes) & HIGH_BITS == 0
}

/// Converts the values of eight digits to a number. Combines the digits into four pairs, multiplies each pair by its
/// power of 100, and adds the products.
#[inline(always)]
fn parse_digits(digits: u64) -> u64 {
    const FOURS: u64 = 0x0000_00FF_0000_00FF;
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8);
    let high = (pairs & FOURS).wrapping_mul(100 + (1_000_000 << 32));
    let low = (pairs >> 16 & FOURS).wrapping_mul(1 + (10_000 << 32));
    high.wrapping_add(low) >> 32
}

const CROSS_SLOT: &str = "CROSSSLOT Keys in request don't hash to the same slot";

/// Returns whether a text begins with zeros that its number does not need.
#[inline]
pub(super) fn is_padded(text: &[u8]) -> bool {
    matches!(text, [b'0', _, ..])
}

#[derive(Clone, Copy, Default)]
pub(super) struct SlotOfKeys(Option<u16>);

impl SlotOfKeys {
    /// Returns the slot, or `None` if there are no keys.
    pub(super) fn get(self) -> Option<u16> {
        self.0
    }

    pub(super) fn add(&mut self, kind: KeyKind, text: &[u8]) -> Replied {
        if kind == KeyKind::U64 && is_padded(text) && number(text).is_some() {
            return Err(format!(
                "ERR {} is not a key of this cluster: write the number without leading zeros, because clients choose \
                 the node by the text of the key",
                quoted(text)
            ));
        }
        self.add_slot(slot_of(Key::Bytes(text)))
    }

    fn add_slot(&mut self, slot: u16) -> Replied {
        if *self.0.get_or_insert(slot) == slot { Ok(()) } else { Err(CROSS_SLOT.to_owned()) }
    }
}

#[derive(Clone, Copy, Default)]
pub(super) struct SlotsOfTransaction {
    slot: SlotOfKeys,
    /// Whether the commands have keys of several slots.
    is_cross: bool,
}

impl SlotsOfTransaction {
    pub(super) fn add(&mut self, slot: SlotOfKeys) {
        self.is_cross |= slot.0.is_some_and(|slot| self.slot.add_slot(slot).is_err());
    }

    /// Adds the slots to those of EXEC.
    pub(super) fn add_to(&self, slot: &mut SlotOfKeys) -> Replied {
        *slot = self.slot;
        if self.is_cross { Err(CROSS_SLOT.to_owned()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_parsed_with_any_leading_zeros() {
        let mut seed = 0x5EED_u64;
        let mut numbers = vec![0, 1, 9, u64::MAX, u64::MAX - 1];
        for digits in 1..20 {
            numbers.extend([10_u64.pow(digits) - 1, 10_u64.pow(digits), 10_u64.pow(digits) + 1]);
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            numbers.push(seed >> (digits * 3));
        }
        for zeros in [0, 1, 2, 5, 8, 9, 12, 16, 30, 1000] {
            for value in &numbers {
                let text = format!("{}{value}", "0".repeat(zeros));
                assert_eq!(number(text.as_bytes()), Some(*value), "{text}");
            }
        }
    }

    #[test]
    fn text_that_is_not_a_decimal_number_is_rejected() {
        for text in ["", "-1", "+1", " 1", "1 ", "0x1", "1e3", "18446744073709551616", "99999999999999999999999999"] {
            assert_eq!(number(text.as_bytes()), None, "{text}");
        }
        for len in 1..=24 {
            for at in 0..len {
                for byte in (0..=u8::MAX).filter(|byte| !byte.is_ascii_digit()) {
                    let mut text = vec![b'0'; len];
                    text[at] = byte;
                    assert_eq!(number(&text), None, "{byte} at {at} of {len}");
                }
            }
        }
    }

    #[test]
    fn an_error_quotes_the_text_that_is_not_a_key_and_names_the_kind_of_keys() {
        let problem = key(KeyKind::U64, b"user:1\r\n").unwrap_err();
        assert!(problem.contains(r"'user:1\r\n'") && problem.contains("unsigned 64-bit numbers"), "{problem}");
        assert!(key(KeyKind::U64, &[b'x'; 1000]).unwrap_err().len() < 250);
        assert_eq!(key(KeyKind::Bytes, b"user:1"), Ok(Key::Bytes(b"user:1")));
    }

    #[test]
    fn a_key_that_is_formatted_and_parsed_is_the_same_key() {
        for value in [0, 7, u64::MAX] {
            let mut buffer = itoa::Buffer::new();
            assert_eq!(key(KeyKind::U64, key_text(Key::U64(value), &mut buffer)), Ok(Key::U64(value)));
        }
    }
}
