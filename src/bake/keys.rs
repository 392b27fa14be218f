//! Parses keys.

use super::error::RowFault;
use crate::format::key::{KEY_LEN_MAX_BYTES, Key, KeyKind};

/// Selects the kind of a table's keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keys {
    /// Unsigned 64-bit numbers. Every key must be a decimal.
    #[default]
    U64,
    /// The bytes of each row's key field, unchanged.
    Bytes,
    /// Numbers if every key is a decimal without leading zeros, otherwise bytes.
    Auto,
}

impl Keys {
    /// Returns the kind that keys have in memory while the input is read. With `Auto`, keys are held as bytes.
    pub(super) fn kind(self) -> KeyKind {
        match self {
            Keys::U64 => KeyKind::U64,
            Keys::Bytes | Keys::Auto => KeyKind::Bytes,
        }
    }
}

impl From<KeyKind> for Keys {
    fn from(kind: KeyKind) -> Keys {
        match kind {
            KeyKind::U64 => Keys::U64,
            KeyKind::Bytes => Keys::Bytes,
        }
    }
}

/// Parses a field as a key of this kind. If `may_be_header` is true, the error for a field that is not a number can
/// suggest reading the row as a header.
pub(super) fn parse(kind: KeyKind, field: &[u8], may_be_header: bool) -> Result<Key<'_>, RowFault> {
    match kind {
        KeyKind::U64 => decimal(field).map(Key::U64).ok_or_else(|| RowFault::key(field, may_be_header)),
        KeyKind::Bytes if (1..=KEY_LEN_MAX_BYTES).contains(&field.len()) => Ok(Key::Bytes(field)),
        KeyKind::Bytes => Err(RowFault::KeyLen { len_bytes: field.len() }),
    }
}

/// Parses an unsigned 64-bit decimal without leading zeros.
pub(super) fn canonical_decimal(key: &[u8]) -> Option<u64> {
    // As numbers, `007` and `7` would be the same key.
    decimal(key).filter(|_| key[0] != b'0' || key.len() == 1)
}

/// Parses an unsigned 64-bit decimal. Only digits are allowed.
fn decimal(field: &[u8]) -> Option<u64> {
    let digit = |byte: &u8| byte.is_ascii_digit().then(|| u64::from(byte - b'0'));
    let (first, rest) = field.split_first()?;
    rest.iter().try_fold(digit(first)?, |number, byte| number.checked_mul(10)?.checked_add(digit(byte)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_has_only_digits_and_fits_into_64_bits() {
        let cases: [(&str, Option<u64>); 12] = [
            ("0", Some(0)),
            ("007", Some(7)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("99999999999999999999999", None),
            ("", None),
            ("+1", None),
            ("-1", None),
            (" 1", None),
            ("1.0", None),
            ("0x1", None),
            ("\u{0661}", None),
        ];
        for (text, expected) in cases {
            assert_eq!(decimal(text.as_bytes()), expected, "{text:?}");
        }
    }
}
