//! Keys as text, their slots, and errors about text that is not a key.
//!
//! In: text that a client sent, or keys of a table. Out: keys as the table stores them, their written forms, or slots.
//! The text of a plain key is the stored key itself: the decimal representation of a number, or the bytes.

use std::borrow::Cow;

use super::Replied;
use crate::format::key::{Key, KeyKind, OwnedKey};
use crate::format::key_type::KeyType;
use crate::slots::{slot_of, slot_of_typed};
use crate::store::LookupError;

/// The maximum number of bytes of a client's text that an error quotes.
const QUOTED_LEN_MAX_BYTES: usize = 64;

/// The cost, in steps, of parsing or writing a key that is not plain.
const TYPED_KEY_STEPS: usize = 3;

/// A stored key that was parsed from text. A key of bytes borrows the text if it is plain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TextKey<'k> {
    U64(u64),
    Bytes(Cow<'k, [u8]>),
}

impl TextKey<'_> {
    #[inline]
    pub(super) fn as_key(&self) -> Key<'_> {
        match self {
            TextKey::U64(key) => Key::U64(*key),
            TextKey::Bytes(key) => Key::Bytes(key),
        }
    }
}

impl From<OwnedKey> for TextKey<'_> {
    fn from(key: OwnedKey) -> Self {
        match key {
            OwnedKey::U64(key) => TextKey::U64(key),
            OwnedKey::Bytes(key) => TextKey::Bytes(key.into()),
        }
    }
}

/// Returns the kind of the keys if they are plain.
#[inline]
pub(super) fn plain_kind(key_type: KeyType) -> Option<KeyKind> {
    key_type.is_plain().then(|| key_type.kind())
}

/// Returns the cost, in steps, of parsing, hashing, or writing a key.
#[inline]
pub(super) fn key_steps(key_type: KeyType) -> usize {
    if key_type.is_plain() { 1 } else { TYPED_KEY_STEPS }
}

/// Parses a key of the table's type.
pub(super) fn key(key_type: KeyType, text: &[u8]) -> Result<TextKey<'_>, String> {
    match plain_kind(key_type) {
        Some(KeyKind::U64) => number(text).map(TextKey::U64).ok_or_else(|| not_a_number(text)),
        Some(KeyKind::Bytes) => Ok(TextKey::Bytes(text.into())),
        None => key_type
            .parse(text)
            .map(TextKey::from)
            .map_err(|error| format!("ERR {} is not a key of this table: {error}", quoted(text))),
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
    refusal(LookupError::Damaged)
}

/// Returns the text of the error reply for a lookup that failed.
#[cold]
pub(super) fn refusal(error: LookupError) -> String {
    format!("ERR {error}")
}

/// The written forms of the keys of a table.
pub(super) struct KeyTexts {
    key_type: KeyType,
    number: itoa::Buffer,
    /// The written form of a key that is not plain.
    written: Vec<u8>,
}

impl KeyTexts {
    #[inline]
    pub(super) fn new(key_type: KeyType) -> KeyTexts {
        KeyTexts { key_type, number: itoa::Buffer::new(), written: Vec::new() }
    }

    #[inline]
    pub(super) fn text<'t>(&'t mut self, key: Key<'t>) -> &'t [u8] {
        if !self.key_type.is_plain() {
            self.written.clear();
            self.key_type.write(key, &mut self.written);
            return &self.written;
        }
        match key {
            Key::U64(key) => self.number.format(key).as_bytes(),
            Key::Bytes(key) => key,
        }
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

/// Returns the slot of a key that a client sent: the slot of its written form, whatever its spelling. Text that is not a
/// key has the slot of its bytes.
pub(super) fn slot_of_text(key_type: KeyType, text: &[u8]) -> u16 {
    match plain_kind(key_type) {
        Some(_) => slot_of(Key::Bytes(text)),
        None => match key_type.parse(text) {
            Ok(key) => slot_of_typed(key_type, key.as_key()),
            Err(_) => slot_of(Key::Bytes(text)),
        },
    }
}

#[derive(Clone, Copy, Default)]
pub(super) struct SlotOfKeys(Option<u16>);

impl SlotOfKeys {
    /// Returns the slot, or `None` if there are no keys.
    pub(super) fn get(self) -> Option<u16> {
        self.0
    }

    pub(super) fn add(&mut self, key_type: KeyType, text: &[u8]) -> Replied {
        if key_type == KeyType::U64 && is_padded(text) && number(text).is_some() {
            return Err(format!(
                "ERR {} is not a key of this cluster: write the number without leading zeros, because clients choose \
                 the node by the text of the key",
                quoted(text)
            ));
        }
        self.add_slot(slot_of_text(key_type, text))
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
    fn an_error_quotes_the_text_that_is_not_a_key_and_shows_the_expected_form() {
        let problem = key(KeyType::U64, b"user:1\r\n").unwrap_err();
        assert!(problem.contains(r"'user:1\r\n'") && problem.contains("unsigned 64-bit numbers"), "{problem}");
        assert_eq!(key(KeyType::BYTES, b"user:1"), Ok(TextKey::Bytes(b"user:1".into())));
        for (key_type, text, expected) in [
            (
                "ip",
                "10.0.0\n",
                "ERR '10.0.0\\n' is not a key of this table: \"10.0.0\\n\" is not an IP address, such as",
            ),
            ("date,bytes", "x,y", "ERR 'x,y' is not a key of this table: \"x\" is not a date, such as 2026-11-21"),
            ("u64,u64", "7", "ERR '7' is not a key of this table: \"7\" has 1 part, where a key has 2: u64,u64"),
        ] {
            let problem = key(key_type.parse().unwrap(), text.as_bytes()).unwrap_err();
            assert!(problem.starts_with(expected), "{problem}");
        }
        for key_type in ["u64", "ip", "i64,hex"] {
            assert!(key(key_type.parse().unwrap(), &[b'\n'; 1000]).unwrap_err().len() < 400);
        }
    }

    #[test]
    fn a_key_that_is_written_and_parsed_is_the_same_key() {
        for (key_type, text) in [
            ("u64", "18446744073709551615"),
            ("bytes", "a,b\\"),
            ("i64", "-7"),
            ("ip", "2001:db8::1"),
            ("bytes,ipv4", "a\\,b\\\\,10.0.0.1"),
        ] {
            let key_type: KeyType = key_type.parse().unwrap();
            let parsed = key(key_type, text.as_bytes()).unwrap();
            assert_eq!(KeyTexts::new(key_type).text(parsed.as_key()), text.as_bytes());
        }
    }

    #[test]
    fn every_spelling_of_a_key_has_the_slot_of_its_written_form() {
        let ip: KeyType = "ip".parse().unwrap();
        for text in ["2001:db8::1", "2001:DB8::1", "2001:0db8:0:0::1"] {
            assert_eq!(slot_of_text(ip, text.as_bytes()), slot_of("2001:db8::1".into()), "{text}");
        }
        assert_eq!(slot_of_text(ip, b"{x}"), slot_of("x".into()));
        assert_eq!(slot_of_text(KeyType::BYTES, b"2001:DB8::1"), slot_of("2001:DB8::1".into()));
    }
}
