//! Key types: what the keys of a table mean, how they are written, and how they are encoded.
//!
//! In: the text of keys, as files and clients write them. Out: keys as a table stores them, in an encoding whose order is
//! the order of the values, and the text of stored keys. `docs/FORMAT.md` describes the encodings.
//!
//! | type | written form | also parsed | stored as |
//! |---|---|---|---|
//! | `u64` | decimal digits | leading zeros | the number |
//! | `i64` | decimal digits, with `-` if negative | leading zeros | the number with its highest bit flipped |
//! | `ipv4` | `192.0.2.1` | | the address as a number |
//! | `date` | `2026-11-21` | | the days since 1970-01-01, as an `i64` |
//! | `timestamp` | `2026-11-21T19:09:38.000000Z` | what a column of timestamps parses | the microseconds since 1970, as an `i64` |
//! | `ip` | `192.0.2.1`, `2001:db8::1` | any form of an IPv6 address | 16 bytes; an IPv4 address as `::ffff:192.0.2.1` |
//! | `uuid` | `0190163d-8694-739b-aea5-966c26f8ad91` | without hyphens, any case | 16 bytes |
//! | `hex` | an even number of hexadecimal digits | any case | the bytes |
//! | `bytes` | the bytes | | the bytes |
//!
//! A composite key has 2 to 8 parts, each with a type. Its written form has a comma between two parts; a comma or a
//! backslash in a part follows a backslash.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use thiserror::Error;

use super::ipv4;
use super::key::{KEY_LEN_MAX_BYTES, Key, KeyKind, OwnedKey};
use crate::calendar::{parse_date, parse_instant, write_date, write_instant};
use crate::excerpt::excerpt;

/// The maximum number of parts of a composite key.
pub const PART_COUNT_MAX: usize = 8;
/// The length of a fixed-length byte key: of an address or of a UUID.
pub const FIXED_KEY_LEN_BYTES: usize = 16;

/// In a composite key, this byte ends a part of variable length that is not the last one, and the next byte is
/// [`PART_END`]. A zero in the part is followed by [`ZERO_IN_PART`] instead, so that a part precedes all longer parts that
/// begin with it.
const ZERO: u8 = 0;
const PART_END: u8 = 0;
const ZERO_IN_PART: u8 = 0xFF;
const PART_END_LEN_BYTES: usize = 2;

/// The number of decimal places of a timestamp.
const MICROS_DIGITS: usize = 6;

/// The maximum length of a key or a type that an error quotes.
const QUOTED_LEN_MAX_BYTES: usize = 64;

/// Defines all types of keys and parts: variant, number in the file, name, what the written form looks like.
macro_rules! part_types {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $name:literal, $expected:literal;)*) => {
        /// The type of a key, or of a part of a composite key. The discriminant is the type's number in the file.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum PartType {
            $($(#[$doc])* $variant = $code,)*
        }

        impl PartType {
            /// All types, in the order of their numbers.
            pub const ALL: [PartType; [$($code),*].len()] = [$(PartType::$variant),*];

            /// Returns the type's name, which `baker --keys` takes.
            pub const fn name(self) -> &'static str {
                match self {
                    $(PartType::$variant => $name,)*
                }
            }

            /// Returns what a text of this type must be, with an example.
            pub const fn expected(self) -> &'static str {
                match self {
                    $(PartType::$variant => $expected,)*
                }
            }

            const fn from_code(code: u8) -> Option<PartType> {
                match code {
                    $($code => Some(PartType::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

part_types! {
    /// An unsigned 64-bit number.
    U64 = 1, "u64", "a number from 0 to 18446744073709551615 in decimal digits";
    /// A string of bytes.
    Bytes = 2, "bytes", "1 to 65535 bytes";
    /// A signed 64-bit number.
    I64 = 3, "i64", "a number from -9223372036854775808 to 9223372036854775807 in decimal digits";
    /// An IPv4 address.
    Ipv4 = 4, "ipv4", "an IPv4 address, such as 192.0.2.1";
    /// An IPv4 or IPv6 address. IPv4 addresses sort as IPv4-mapped IPv6 addresses.
    Ip = 5, "ip", "an IP address, such as 192.0.2.1 or 2001:db8::1";
    /// A UUID.
    Uuid = 6, "uuid", "a UUID, such as 0190163d-8694-739b-aea5-966c26f8ad91";
    /// A string of bytes that is written in hexadecimal digits.
    Hex = 7, "hex", "an even number of hexadecimal digits, such as 0a1f";
    /// A date.
    Date = 8, "date", "a date, such as 2026-11-21";
    /// An instant, in microseconds.
    Timestamp = 9, "timestamp", "a time with at most 6 decimal places, such as 2026-11-21T19:09:38Z";
}

impl PartType {
    /// Returns whether a table whose keys have this type stores them as numbers.
    const fn is_number(self) -> bool {
        matches!(self, PartType::U64 | PartType::I64 | PartType::Ipv4 | PartType::Date | PartType::Timestamp)
    }

    /// Returns the length of a part of this type in a composite key, or `None` if it depends on the part.
    const fn part_len_bytes(self) -> Option<usize> {
        match self {
            PartType::U64 | PartType::I64 | PartType::Timestamp => Some(8),
            PartType::Ipv4 | PartType::Date => Some(4),
            PartType::Ip | PartType::Uuid => Some(FIXED_KEY_LEN_BYTES),
            PartType::Hex | PartType::Bytes => None,
        }
    }

    /// Parses the written form of a value.
    pub fn parse(self, text: &[u8]) -> Option<KeyValue<'_>> {
        let ascii = || str::from_utf8(text).ok();
        match self {
            PartType::U64 => Some(KeyValue::U64(decimal(text)?)),
            PartType::I64 => {
                // Only digits and one minus sign are allowed, where `parse` also takes a plus sign.
                let digits = text.strip_prefix(b"-").unwrap_or(text);
                let is_number = digits.iter().all(u8::is_ascii_digit);
                ascii()?.parse().ok().filter(|_| is_number).map(KeyValue::I64)
            }
            PartType::Ipv4 => ipv4::parse(text).map(|address| KeyValue::Ip(IpAddr::V4(address))),
            PartType::Ip => match ipv4::parse(text) {
                Some(address) => Some(KeyValue::Ip(IpAddr::V4(address))),
                None => ascii()?.parse().ok().map(|address| KeyValue::Ip(IpAddr::V6(address))),
            },
            PartType::Uuid => uuid(text).map(KeyValue::Uuid),
            PartType::Hex => hex(text).map(|bytes| KeyValue::Bytes(bytes.into())),
            PartType::Bytes => Some(KeyValue::Bytes(text.into())),
            PartType::Date => parse_date(ascii()?)?.try_into().ok().map(KeyValue::Date),
            PartType::Timestamp => parse_instant(ascii()?, MICROS_DIGITS).map(KeyValue::Timestamp),
        }
    }

    /// Returns the number as which a table stores a value of this type, or `None` if the value has another type.
    pub fn number(self, value: &KeyValue<'_>) -> Option<u64> {
        match (self, value) {
            (PartType::U64, KeyValue::U64(number)) => Some(*number),
            (PartType::U64, KeyValue::I64(number)) => u64::try_from(*number).ok(),
            (PartType::I64, KeyValue::I64(number)) => Some(flip(*number)),
            (PartType::I64, KeyValue::U64(number)) => i64::try_from(*number).ok().map(flip),
            (PartType::Ipv4, KeyValue::Ip(address)) => match address.to_canonical() {
                IpAddr::V4(address) => Some(u32::from(address).into()),
                IpAddr::V6(_) => None,
            },
            (PartType::Date, KeyValue::Date(days)) => Some(flip((*days).into())),
            (PartType::Timestamp, KeyValue::Timestamp(micros)) => Some(flip(*micros)),
            _ => None,
        }
    }

    /// Returns the value of a stored number, or `None` if it is no number of this type.
    fn value_of_number(self, number: u64) -> Option<KeyValue<'static>> {
        let signed = (number ^ SIGN) as i64;
        match self {
            PartType::U64 => Some(KeyValue::U64(number)),
            PartType::I64 => Some(KeyValue::I64(signed)),
            PartType::Ipv4 => Some(KeyValue::Ip(IpAddr::V4(Ipv4Addr::from(u32::try_from(number).ok()?)))),
            PartType::Date => Some(KeyValue::Date(i32::try_from(signed).ok()?)),
            PartType::Timestamp => Some(KeyValue::Timestamp(signed)),
            PartType::Ip | PartType::Uuid | PartType::Hex | PartType::Bytes => None,
        }
    }

    /// Returns the bytes as which a table stores a value of this type, or `None` if the value has another type.
    fn bytes<'v>(self, value: &'v KeyValue<'_>) -> Option<Cow<'v, [u8]>> {
        match (self, value) {
            (PartType::Ip, KeyValue::Ip(address)) => Some(mapped(*address).to_vec().into()),
            (PartType::Uuid, KeyValue::Uuid(bytes)) => Some(bytes[..].into()),
            (PartType::Hex | PartType::Bytes, KeyValue::Bytes(bytes)) => Some(bytes[..].into()),
            _ => None,
        }
    }

    /// Returns the value of stored bytes, or `None` if they are no bytes of this type.
    fn value_of_bytes(self, bytes: Cow<'_, [u8]>) -> Option<KeyValue<'_>> {
        match self {
            PartType::Ip => {
                let address = Ipv6Addr::from(<[u8; FIXED_KEY_LEN_BYTES]>::try_from(&bytes[..]).ok()?);
                Some(KeyValue::Ip(IpAddr::V6(address).to_canonical()))
            }
            PartType::Uuid => Some(KeyValue::Uuid(bytes[..].try_into().ok()?)),
            PartType::Hex | PartType::Bytes => Some(KeyValue::Bytes(bytes)),
            PartType::U64 | PartType::I64 | PartType::Ipv4 | PartType::Date | PartType::Timestamp => None,
        }
    }

    /// Appends a part of a composite key. Returns `None` if the value has another type.
    fn write_part(self, value: &KeyValue<'_>, is_last: bool, to: &mut Vec<u8>) -> Option<()> {
        match self.part_len_bytes() {
            Some(FIXED_KEY_LEN_BYTES) => match (self, value) {
                (PartType::Ip, KeyValue::Ip(address)) => to.extend_from_slice(&mapped(*address)),
                _ => to.extend_from_slice(&self.bytes(value)?),
            },
            Some(8) => to.extend_from_slice(&self.number(value)?.to_be_bytes()),
            Some(_) => {
                let number = self.number(value)?;
                // As a part, a date is an `i32` with its sign bit flipped.
                let short = if self == PartType::Date { (number ^ SIGN) as u32 ^ 1 << 31 } else { number as u32 };
                to.extend_from_slice(&short.to_be_bytes());
            }
            None if is_last => to.extend_from_slice(&self.bytes(value)?),
            None => {
                for byte in &self.bytes(value)?[..] {
                    to.push(*byte);
                    if *byte == ZERO {
                        to.push(ZERO_IN_PART);
                    }
                }
                to.extend_from_slice(&[ZERO, PART_END]);
            }
        }
        Some(())
    }

    /// Reads a part at the start of the rest of a composite key, and removes it. Returns `None` if it is no part of this
    /// type.
    fn read_part<'k>(self, rest: &mut &'k [u8], is_last: bool) -> Option<KeyValue<'k>> {
        match self.part_len_bytes() {
            Some(len_bytes) => {
                let (part, after) = rest.split_at_checked(len_bytes)?;
                *rest = after;
                if len_bytes == FIXED_KEY_LEN_BYTES {
                    return self.value_of_bytes(part.into());
                }
                let number = part.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
                let number = match self {
                    PartType::Date => flip(i64::from((number as u32 ^ 1 << 31) as i32)),
                    _ => number,
                };
                self.value_of_number(number)
            }
            None if is_last => self.value_of_bytes(std::mem::take(rest).into()),
            None => {
                let (stored, after) = rest.split_at(variable_part_len_bytes(rest)?);
                *rest = after;
                let mut stored = stored[..stored.len() - PART_END_LEN_BYTES].iter();
                let mut part = Vec::with_capacity(stored.len());
                while let Some(byte) = stored.next() {
                    part.push(*byte);
                    if *byte == ZERO {
                        stored.next();
                    }
                }
                self.value_of_bytes(part.into())
            }
        }
    }
}

impl fmt::Display for PartType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PartType {
    type Err = KeyTypeError;

    fn from_str(text: &str) -> Result<PartType, KeyTypeError> {
        let named = PartType::ALL.into_iter().find(|part| part.name() == text);
        named.ok_or_else(|| KeyTypeError { text: excerpt(text, QUOTED_LEN_MAX_BYTES).into_owned() })
    }
}

/// A text is not the name of a key type.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "found {text:?}, expected u64, i64, ipv4, ip, uuid, hex, date, timestamp, or bytes, or the types of 2 to \
     {PART_COUNT_MAX} parts with commas between them"
)]
pub struct KeyTypeError {
    text: String,
}

/// A key is not a key of the table's type.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum KeyTextError {
    /// The text or the value is not one of the type.
    #[error("{found:?} is not {}", part_type.expected())]
    Value {
        /// The beginning of the text.
        found: String,
        /// The type of the key, or of its part.
        part_type: PartType,
    },
    /// A composite key has another number of parts.
    #[error(
        "{found:?} has {part_count} part{}, where a key has {expected_count}: {key_type}, with commas between \
         them",
        if *part_count == 1 { "" } else { "s" }
    )]
    PartCount {
        /// The beginning of the text.
        found: String,
        /// The number of parts.
        part_count: usize,
        /// The number of parts of a key.
        expected_count: usize,
        /// The type of the keys.
        key_type: KeyType,
    },
    /// The key is empty or too long.
    #[error("a key has 1 to {KEY_LEN_MAX_BYTES} bytes, found {len_bytes}")]
    Len {
        /// The length of the encoded key.
        len_bytes: usize,
    },
}

/// A key, or a part of a composite key, as a value of its type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyValue<'a> {
    /// An unsigned number.
    U64(u64),
    /// A signed number.
    I64(i64),
    /// An address.
    Ip(IpAddr),
    /// A UUID.
    Uuid([u8; 16]),
    /// Days since 1970-01-01.
    Date(i32),
    /// Microseconds since 1970-01-01T00:00:00Z.
    Timestamp(i64),
    /// Bytes.
    Bytes(Cow<'a, [u8]>),
}

impl KeyValue<'_> {
    /// Appends the written form. `part_type` decides only between hexadecimal digits and the bytes themselves.
    fn write(&self, part_type: PartType, to: &mut Vec<u8>) {
        let written = match self {
            KeyValue::U64(number) => write!(to, "{number}"),
            KeyValue::I64(number) => write!(to, "{number}"),
            KeyValue::Ip(IpAddr::V4(address)) => {
                ipv4::write(*address, to);
                Ok(())
            }
            KeyValue::Ip(IpAddr::V6(address)) => write!(to, "{address}"),
            KeyValue::Uuid(bytes) => bytes.iter().enumerate().try_for_each(|(i, byte)| {
                let hyphen = if matches!(i, 4 | 6 | 8 | 10) { "-" } else { "" };
                write!(to, "{hyphen}{byte:02x}")
            }),
            KeyValue::Date(days) => write_date((*days).into(), to),
            KeyValue::Timestamp(micros) => {
                let per_second = 10_i64.pow(MICROS_DIGITS as u32);
                write_instant(micros.div_euclid(per_second), micros.rem_euclid(per_second), MICROS_DIGITS, to);
                Ok(())
            }
            KeyValue::Bytes(bytes) if part_type == PartType::Hex => {
                bytes.iter().try_for_each(|byte| write!(to, "{byte:02x}"))
            }
            KeyValue::Bytes(bytes) => to.write_all(bytes),
        };
        written.expect("writes to a vector do not fail");
    }

    /// Returns the written form of a value of a part of this type, in which bytes that are not UTF-8 are replaced.
    pub fn text(&self, part_type: PartType) -> String {
        let mut text = Vec::new();
        self.write(part_type, &mut text);
        String::from_utf8_lossy(&text).into_owned()
    }

    fn excerpt(&self) -> String {
        let mut text = Vec::new();
        self.write(PartType::Bytes, &mut text);
        excerpt(&String::from_utf8_lossy(&text), QUOTED_LEN_MAX_BYTES).into_owned()
    }
}

macro_rules! impl_key_value_from {
    ($($type:ty, $value:ident => $key_value:expr;)*) => {$(
        impl<'a> From<$type> for KeyValue<'a> {
            fn from($value: $type) -> KeyValue<'a> {
                $key_value
            }
        }
    )*};
}

impl_key_value_from! {
    u64, number => KeyValue::U64(number);
    i64, number => KeyValue::I64(number);
    IpAddr, address => KeyValue::Ip(address);
    Ipv4Addr, address => KeyValue::Ip(address.into());
    Ipv6Addr, address => KeyValue::Ip(address.into());
    &'a [u8], bytes => KeyValue::Bytes(bytes.into());
    &'a str, text => KeyValue::Bytes(text.as_bytes().into());
    Vec<u8>, bytes => KeyValue::Bytes(bytes.into());
}

#[cfg(feature = "uuid")]
impl From<uuid::Uuid> for KeyValue<'_> {
    fn from(uuid: uuid::Uuid) -> Self {
        KeyValue::Uuid(uuid.into_bytes())
    }
}

/// The type of a table's keys: one type, or those of 2 to [`PART_COUNT_MAX`] parts.
///
/// # Example
/// ```
/// use std::net::Ipv4Addr;
///
/// use zero_kv::KeyType;
///
/// let ip: KeyType = "ip".parse()?;
/// let key = ip.key([Ipv4Addr::new(192, 0, 2, 1).into()])?;
/// assert_eq!(key, ip.parse(b"192.0.2.1")?);
/// assert_eq!(ip.display(key.as_key()).to_string(), "192.0.2.1");
///
/// let city: KeyType = "bytes,bytes".parse()?;
/// assert_eq!(city.parse_prefix(b"DE")?, b"DE\0\0");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyType {
    /// The parts, followed by [`PartType::Bytes`], so that equal types are equal.
    parts: [PartType; PART_COUNT_MAX],
    part_count: u8,
}

impl KeyType {
    /// Unsigned 64-bit numbers.
    pub const U64: KeyType = KeyType::of(PartType::U64);
    /// Strings of bytes.
    pub const BYTES: KeyType = KeyType::of(PartType::Bytes);

    /// Returns the type of keys with one part.
    pub const fn of(part: PartType) -> KeyType {
        let mut parts = [PartType::Bytes; PART_COUNT_MAX];
        parts[0] = part;
        KeyType { parts, part_count: 1 }
    }

    /// Returns the type of keys with these parts, or `None` if there are none, or more than [`PART_COUNT_MAX`].
    pub fn of_parts(parts: &[PartType]) -> Option<KeyType> {
        let mut all = [PartType::Bytes; PART_COUNT_MAX];
        all.get_mut(..parts.len())?.copy_from_slice(parts);
        (!parts.is_empty()).then_some(KeyType { parts: all, part_count: parts.len() as u8 })
    }

    /// Returns the types of the parts.
    pub fn parts(&self) -> &[PartType] {
        &self.parts[..usize::from(self.part_count)]
    }

    /// Returns whether keys have several parts.
    pub const fn is_composite(&self) -> bool {
        self.part_count > 1
    }

    /// Returns the kind of the stored keys.
    #[inline]
    pub const fn kind(&self) -> KeyKind {
        if !self.is_composite() && self.parts[0].is_number() { KeyKind::U64 } else { KeyKind::Bytes }
    }

    /// Returns whether the written form of a key is the stored key itself: a decimal number, or the bytes.
    #[inline]
    pub const fn is_plain(&self) -> bool {
        !self.is_composite() && matches!(self.parts[0], PartType::U64 | PartType::Bytes)
    }

    /// Returns the length of the last part of stored keys, or `None` if it depends on the key. A number has 8 bytes.
    #[cfg(feature = "bake")]
    pub(crate) fn last_part_len_bytes(&self) -> Option<usize> {
        match self.parts() {
            [part] if part.is_number() => Some(8),
            parts => parts.last().and_then(|part| part.part_len_bytes()),
        }
    }

    /// Returns the key that has all parts of `key`, except that the written form of its last part is `text`. The length
    /// of the last part must not depend on the key. A byte key is written into `buffer`.
    ///
    /// # Errors
    /// [`KeyTextError`] if the text is not one of the part's type.
    #[cfg(feature = "bake")]
    pub(crate) fn with_last_part<'b>(
        &self,
        key: Key<'_>,
        text: &[u8],
        buffer: &'b mut Vec<u8>,
    ) -> Result<Key<'b>, KeyTextError> {
        let (Key::Bytes(bytes), true) = (key, self.is_composite()) else { return self.parse_into(text, buffer) };
        let part = self.parts()[self.parts().len() - 1];
        let wrong = || KeyTextError::Value { found: quoted(text), part_type: part };
        let value = part.parse(text).ok_or_else(wrong)?;
        let leading_len_bytes = bytes.len() - part.part_len_bytes().expect("a part of fixed length");
        buffer.clear();
        buffer.extend_from_slice(&bytes[..leading_len_bytes]);
        part.write_part(&value, true, buffer).ok_or_else(wrong)?;
        Ok(Key::Bytes(buffer))
    }

    /// Returns where the first part of a type, which keys must have, begins in a key of several parts. Returns `None`
    /// if the key is incomplete or invalid before it.
    pub(super) fn first_part_at(&self, wanted: PartType, key: &[u8]) -> Option<usize> {
        let mut at = 0;
        for part in self.parts().iter().take_while(|part| **part != wanted) {
            at += match part.part_len_bytes() {
                Some(len_bytes) => len_bytes,
                None => variable_part_len_bytes(key.get(at..)?)?,
            };
        }
        Some(at)
    }

    /// Returns the length of the stored byte keys if all have the same length, so that records contain no length.
    #[inline]
    pub const fn fixed_len_bytes(&self) -> Option<usize> {
        match self.parts[0] {
            PartType::Ip | PartType::Uuid if !self.is_composite() => Some(FIXED_KEY_LEN_BYTES),
            _ => None,
        }
    }

    /// Returns the type's bytes in the header: the numbers of the parts, and zeros.
    pub(crate) fn to_code(self) -> [u8; PART_COUNT_MAX] {
        std::array::from_fn(|i| self.parts().get(i).map_or(0, |part| *part as u8))
    }

    /// Returns the type with these bytes in the header, or `None` if there is no such type.
    pub(crate) fn from_code(code: [u8; PART_COUNT_MAX]) -> Option<KeyType> {
        let part_count = code.iter().position(|code| *code == 0).unwrap_or(code.len());
        let parts: Option<Vec<PartType>> = code[..part_count].iter().map(|code| PartType::from_code(*code)).collect();
        KeyType::of_parts(&parts?).filter(|key_type| key_type.to_code() == code)
    }

    /// Parses the written form of a key.
    ///
    /// # Errors
    /// [`KeyTextError`] if the text is not a key of this type.
    pub fn parse(&self, text: &[u8]) -> Result<OwnedKey, KeyTextError> {
        let mut buffer = Vec::new();
        match self.parse_into(text, &mut buffer)? {
            Key::U64(number) => Ok(OwnedKey::U64(number)),
            Key::Bytes(_) => Ok(OwnedKey::Bytes(buffer)),
        }
    }

    /// Parses the written form of a key. A byte key is written into `buffer`, whose content is replaced.
    ///
    /// # Errors
    /// As [`KeyType::parse`].
    pub(crate) fn parse_into<'b>(&self, text: &[u8], buffer: &'b mut Vec<u8>) -> Result<Key<'b>, KeyTextError> {
        buffer.clear();
        if self.is_composite() {
            *buffer = self.key_of_parts(text)?;
            return Ok(Key::Bytes(buffer));
        }
        let part_type = self.parts[0];
        let wrong = || KeyTextError::Value { found: quoted(text), part_type };
        let value = part_type.parse(text).ok_or_else(wrong)?;
        if part_type.is_number() {
            return part_type.number(&value).map(Key::U64).ok_or_else(wrong);
        }
        part_type.write_part(&value, true, buffer).ok_or_else(wrong)?;
        match buffer.len() {
            1..=KEY_LEN_MAX_BYTES => Ok(Key::Bytes(buffer)),
            len_bytes => Err(KeyTextError::Len { len_bytes }),
        }
    }

    /// Parses the written form of a composite key.
    fn key_of_parts(&self, text: &[u8]) -> Result<Vec<u8>, KeyTextError> {
        let parts = split(text);
        let count = self.part_count.into();
        match parts.len() == count {
            true => match self.key_of_texts(parts.iter().map(|part| &part[..]))? {
                OwnedKey::Bytes(key) => Ok(key),
                OwnedKey::U64(_) => unreachable!("composite keys are bytes"),
            },
            false => Err(KeyTextError::PartCount {
                found: quoted(text),
                part_count: parts.len(),
                expected_count: count,
                key_type: *self,
            }),
        }
    }

    /// Returns the key whose parts have these written forms, one for each part, without backslashes.
    ///
    /// # Errors
    /// [`KeyTextError`] if a text is not one of the part's type.
    ///
    /// # Panics
    /// If the number of texts is not the number of parts.
    pub fn key_of_texts<'t>(&self, texts: impl IntoIterator<Item = &'t [u8]>) -> Result<OwnedKey, KeyTextError> {
        let mut values = Vec::with_capacity(self.part_count.into());
        for (text, part) in texts.into_iter().zip(self.parts()) {
            let value = part.parse(text);
            values.push(value.ok_or_else(|| KeyTextError::Value { found: quoted(text), part_type: *part })?);
        }
        self.key(values)
    }

    /// Returns the key with these values, one for each part.
    ///
    /// # Errors
    /// [`KeyTextError`] if a value has another type than its part, or if the key is empty or too long.
    ///
    /// # Panics
    /// If the number of values is not the number of parts.
    pub fn key<'v>(&self, values: impl IntoIterator<Item = KeyValue<'v>>) -> Result<OwnedKey, KeyTextError> {
        let values: Vec<_> = values.into_iter().collect();
        assert_eq!(values.len(), self.parts().len(), "the number of values of a key");
        let wrong =
            |part: PartType, value: &KeyValue<'_>| KeyTextError::Value { found: value.excerpt(), part_type: part };
        let key = match self.parts() {
            [part] if part.is_number() => {
                return part.number(&values[0]).map(OwnedKey::U64).ok_or_else(|| wrong(*part, &values[0]));
            }
            [part] => part.bytes(&values[0]).ok_or_else(|| wrong(*part, &values[0]))?.into_owned(),
            _ => {
                let mut key = Vec::new();
                self.write_prefix(&values, &mut key)?;
                key
            }
        };
        match key.len() {
            1..=KEY_LEN_MAX_BYTES => Ok(OwnedKey::Bytes(key)),
            len_bytes => Err(KeyTextError::Len { len_bytes }),
        }
    }

    /// Parses the written form of the beginning of byte keys, and returns the bytes with which the stored keys begin: one
    /// or more leading parts of a composite key, or the beginning of the text if the last part is `bytes` or `hex`.
    ///
    /// # Errors
    /// [`KeyTextError`] if the text is no such beginning.
    pub fn parse_prefix(&self, text: &[u8]) -> Result<Vec<u8>, KeyTextError> {
        let mut prefix = Vec::new();
        self.with_prefix_values(text, |value, part, is_last| part.write_part(value, is_last, &mut prefix))?;
        Ok(prefix)
    }

    /// Returns the text with which the written forms of all keys begin that [`KeyType::parse_prefix`] of the same text
    /// selects. The text that a client sent may have another spelling.
    ///
    /// # Errors
    /// As [`KeyType::parse_prefix`].
    #[cfg(feature = "server")]
    pub(crate) fn written_prefix(&self, text: &[u8]) -> Result<Vec<u8>, KeyTextError> {
        let mut written = Vec::new();
        self.with_prefix_values(text, |value, part, is_last| {
            let mut text = Vec::new();
            value.write(part, &mut text);
            match self.is_composite() {
                true => escape_part(&text, &mut written),
                false => written = text,
            }
            if !is_last {
                written.push(b',');
            }
            Some(())
        })?;
        Ok(written)
    }

    /// Calls `visit` with the values of the leading parts that a text has, their types, and whether the part is the last
    /// one of a key. An empty text has none. If `visit` returns `None`, the value is rejected.
    fn with_prefix_values(
        &self,
        text: &[u8],
        mut visit: impl FnMut(&KeyValue<'_>, PartType, bool) -> Option<()>,
    ) -> Result<(), KeyTextError> {
        let texts = match text {
            b"" => Vec::new(),
            text if self.is_composite() => split(text),
            text => vec![text.to_vec()],
        };
        let count = self.part_count.into();
        if texts.len() > count {
            return Err(KeyTextError::PartCount {
                found: quoted(text),
                part_count: texts.len(),
                expected_count: count,
                key_type: *self,
            });
        }
        for (i, (text, part)) in texts.iter().zip(self.parts()).enumerate() {
            let visited = part.parse(text).and_then(|value| visit(&value, *part, i + 1 == count));
            visited.ok_or_else(|| KeyTextError::Value { found: quoted(text), part_type: *part })?;
        }
        Ok(())
    }

    /// Appends the bytes with which the stored byte keys begin whose leading parts have these values. The value of the
    /// last part, if it is `bytes` or `hex`, can be the beginning of a value.
    ///
    /// # Errors
    /// [`KeyTextError`] if a value has another type than its part, or if there are more values than parts.
    pub fn write_prefix(&self, values: &[KeyValue<'_>], prefix: &mut Vec<u8>) -> Result<(), KeyTextError> {
        let count = self.parts().len();
        if values.len() > count {
            let found = values.iter().map(KeyValue::excerpt).collect::<Vec<_>>().join(",");
            let part_count = values.len();
            return Err(KeyTextError::PartCount { found, part_count, expected_count: count, key_type: *self });
        }
        for (i, (value, part)) in values.iter().zip(self.parts()).enumerate() {
            let wrong = || KeyTextError::Value { found: value.excerpt(), part_type: *part };
            part.write_part(value, i + 1 == count, prefix).ok_or_else(wrong)?;
        }
        Ok(())
    }

    /// Returns the values of a stored key's parts, or `None` if the key is not a key of this type, which is possible
    /// only in a forged file.
    pub fn values<'k>(&self, key: Key<'k>) -> Option<Vec<KeyValue<'k>>> {
        match (self.parts(), key) {
            ([part], Key::U64(number)) => Some(vec![part.value_of_number(number)?]),
            ([part], Key::Bytes(bytes)) => Some(vec![part.value_of_bytes(bytes.into())?]),
            (_, Key::U64(_)) => None,
            (parts, Key::Bytes(mut rest)) => {
                let values: Option<Vec<_>> = (parts.iter().enumerate())
                    .map(|(i, part)| part.read_part(&mut rest, i + 1 == parts.len()))
                    .collect();
                values.filter(|_| rest.is_empty())
            }
        }
    }

    /// Appends the written form of a stored key. In a forged file, a key may be none of this type; its stored form is
    /// appended then.
    pub fn write(&self, key: Key<'_>, to: &mut Vec<u8>) {
        if let [part] = self.parts() {
            let value = match key {
                Key::U64(number) => part.value_of_number(number),
                Key::Bytes(bytes) => part.value_of_bytes(bytes.into()),
            };
            if let Some(value) = value {
                return value.write(*part, to);
            }
        }
        match (self.values(key), key) {
            (Some(values), _) => {
                let mut text = Vec::new();
                for (i, (value, part)) in values.iter().zip(self.parts()).enumerate() {
                    text.clear();
                    value.write(*part, &mut text);
                    if i > 0 {
                        to.push(b',');
                    }
                    escape_part(&text, to);
                }
            }
            (None, Key::U64(number)) => KeyValue::U64(number).write(PartType::U64, to),
            (None, Key::Bytes(bytes)) => to.extend_from_slice(bytes),
        }
    }

    /// Returns the written forms of a stored key's parts, for a file with a column per part.
    pub fn texts(&self, key: Key<'_>) -> Vec<Vec<u8>> {
        let text = |value: &KeyValue<'_>, part: PartType| {
            let mut text = Vec::new();
            value.write(part, &mut text);
            text
        };
        match self.values(key) {
            Some(values) => values.iter().zip(self.parts()).map(|(value, part)| text(value, *part)).collect(),
            None => {
                let mut all = Vec::new();
                self.write(key, &mut all);
                let rest = std::iter::repeat_n(Vec::new(), self.parts().len() - 1);
                std::iter::once(all).chain(rest).collect()
            }
        }
    }

    /// Returns the written form of a stored key, for messages. Bytes that are not UTF-8 are replaced.
    pub fn display(&self, key: Key<'_>) -> impl fmt::Display {
        let mut text = Vec::new();
        self.write(key, &mut text);
        String::from_utf8_lossy(&text).into_owned()
    }
}

impl From<KeyKind> for KeyType {
    fn from(kind: KeyKind) -> KeyType {
        match kind {
            KeyKind::U64 => KeyType::U64,
            KeyKind::Bytes => KeyType::BYTES,
        }
    }
}

impl fmt::Display for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, part) in self.parts().iter().enumerate() {
            if i > 0 {
                f.write_char(',')?;
            }
            part.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Debug for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyType({self})")
    }
}

impl FromStr for KeyType {
    type Err = KeyTypeError;

    fn from_str(text: &str) -> Result<KeyType, KeyTypeError> {
        let parts: Result<Vec<PartType>, KeyTypeError> = text.split(',').map(str::parse).collect();
        let too_many = || KeyTypeError { text: excerpt(text, QUOTED_LEN_MAX_BYTES).into_owned() };
        KeyType::of_parts(&parts?).ok_or_else(too_many)
    }
}

/// Returns the length of the part of variable length with which `rest` begins, with the two bytes that end it. Returns
/// `None` if it does not end.
fn variable_part_len_bytes(rest: &[u8]) -> Option<usize> {
    let mut len_bytes = 0;
    loop {
        len_bytes += match rest.get(len_bytes..)? {
            [ZERO, PART_END, ..] => return Some(len_bytes + PART_END_LEN_BYTES),
            [ZERO, ZERO_IN_PART, ..] => 2,
            [ZERO, ..] | [] => return None,
            _ => 1,
        };
    }
}

/// Returns the bytes of an address, in IPv6.
fn mapped(address: IpAddr) -> [u8; FIXED_KEY_LEN_BYTES] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

const SIGN: u64 = 1 << 63;

/// Returns the unsigned number that has the order of a signed number.
const fn flip(number: i64) -> u64 {
    number as u64 ^ SIGN
}

/// Parses an unsigned 64-bit decimal. Only digits are allowed.
pub(crate) fn decimal(text: &[u8]) -> Option<u64> {
    let digit = |byte: &u8| byte.is_ascii_digit().then(|| u64::from(byte - b'0'));
    let (first, rest) = text.split_first()?;
    rest.iter().try_fold(digit(first)?, |number, byte| number.checked_mul(10)?.checked_add(digit(byte)?))
}

/// Returns the byte with two hexadecimal digits.
fn byte_of_digits([high, low]: [u8; 2]) -> Option<u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    Some((digit(high)? << 4 | digit(low)?) as u8)
}

fn hex(text: &[u8]) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_chunks::<2>();
    let bytes: Option<Vec<u8>> = pairs.iter().map(|pair| byte_of_digits(*pair)).collect();
    bytes.filter(|_| rest.is_empty() && !text.is_empty())
}

/// Parses a UUID: 32 hexadecimal digits, with hyphens at the usual four places or without hyphens.
fn uuid(text: &[u8]) -> Option<[u8; 16]> {
    const HYPHENS: [usize; 4] = [8, 13, 18, 23];
    let mut digits = [0; 32];
    match text.len() {
        32 => digits.copy_from_slice(text),
        36 if HYPHENS.iter().all(|at| text[*at] == b'-') => {
            let without = text.iter().enumerate().filter(|(at, _)| !HYPHENS.contains(at));
            digits.iter_mut().zip(without).for_each(|(to, (_, digit))| *to = *digit);
        }
        _ => return None,
    }
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.as_chunks().0) {
        *byte = byte_of_digits(*pair)?;
    }
    Some(bytes)
}

/// Appends a part of the written form of a composite key.
pub(crate) fn escape_part(text: &[u8], to: &mut Vec<u8>) {
    for byte in text {
        if matches!(byte, b',' | b'\\') {
            to.push(b'\\');
        }
        to.push(*byte);
    }
}

/// Splits the written form of a composite key, or the name of a composite key, into its parts, without the backslashes.
pub fn split(text: &[u8]) -> Vec<Vec<u8>> {
    let mut parts = vec![Vec::new()];
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        let part = parts.last_mut().expect("there is always a part");
        match byte {
            b',' => parts.push(Vec::new()),
            // A backslash at the end is a backslash.
            b'\\' => part.push(*bytes.next().unwrap_or(byte)),
            _ => part.push(*byte),
        }
    }
    parts
}

fn quoted(text: &[u8]) -> String {
    excerpt(&String::from_utf8_lossy(text), QUOTED_LEN_MAX_BYTES).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A value of each type that the type stores, in no particular order.
    fn value(part: PartType) -> BoxedStrategy<KeyValue<'static>> {
        match part {
            PartType::U64 => any::<u64>().prop_map(KeyValue::U64).boxed(),
            PartType::I64 => prop_oneof![any::<i64>(), -3..3_i64].prop_map(KeyValue::I64).boxed(),
            PartType::Ipv4 => any::<u32>().prop_map(|bits| KeyValue::Ip(Ipv4Addr::from(bits).into())).boxed(),
            PartType::Ip => prop_oneof![
                any::<u32>().prop_map(|bits| KeyValue::Ip(Ipv4Addr::from(bits).into())),
                any::<u128>().prop_map(|bits| KeyValue::Ip(Ipv6Addr::from(bits).to_canonical())),
            ]
            .boxed(),
            PartType::Uuid => any::<[u8; 16]>().prop_map(KeyValue::Uuid).boxed(),
            PartType::Date => prop_oneof![any::<i32>(), -3..3_i32].prop_map(KeyValue::Date).boxed(),
            PartType::Timestamp => prop_oneof![any::<i64>(), -3..3_i64].prop_map(KeyValue::Timestamp).boxed(),
            PartType::Hex | PartType::Bytes => {
                let bytes = prop::collection::vec(prop_oneof![Just(0), Just(b','), Just(b'\\'), any::<u8>()], 1..6);
                bytes.prop_map(|bytes| KeyValue::Bytes(bytes.into())).boxed()
            }
        }
    }

    fn key_type() -> impl Strategy<Value = KeyType> {
        let parts = prop::collection::vec(prop::sample::select(PartType::ALL.to_vec()), 1..=PART_COUNT_MAX);
        parts.prop_map(|parts| KeyType::of_parts(&parts).expect("the number of parts is valid"))
    }

    fn values(key_type: KeyType) -> impl Strategy<Value = Vec<KeyValue<'static>>> {
        key_type.parts().iter().map(|part| value(*part)).collect::<Vec<_>>()
    }

    /// Compares the values of a part as the type orders them.
    fn order(a: &KeyValue<'_>, b: &KeyValue<'_>) -> std::cmp::Ordering {
        let address = |value: &IpAddr| match value {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => *address,
        };
        match (a, b) {
            (KeyValue::U64(a), KeyValue::U64(b)) => a.cmp(b),
            (KeyValue::I64(a), KeyValue::I64(b)) | (KeyValue::Timestamp(a), KeyValue::Timestamp(b)) => a.cmp(b),
            (KeyValue::Date(a), KeyValue::Date(b)) => a.cmp(b),
            (KeyValue::Ip(a), KeyValue::Ip(b)) => address(a).cmp(&address(b)),
            (KeyValue::Uuid(a), KeyValue::Uuid(b)) => a.cmp(b),
            (KeyValue::Bytes(a), KeyValue::Bytes(b)) => a.cmp(b),
            _ => panic!("{a:?} and {b:?} have different types"),
        }
    }

    proptest! {
        #[test]
        fn keys_keep_the_order_of_their_values_and_are_parsed_from_their_written_form(
            (key_type, a, b) in key_type().prop_flat_map(|kind| (Just(kind), values(kind), values(kind)))
        ) {
            let [key, other] = [&a, &b].map(|values| key_type.key(values.clone()).unwrap());
            prop_assert_eq!(key.as_key().kind(), key_type.kind());
            prop_assert_eq!(key_type.values(key.as_key()), Some(a.clone()));
            let expected = a.iter().zip(&b).map(|(a, b)| order(a, b)).find(|order| order.is_ne());
            prop_assert_eq!(key.cmp(&other), expected.unwrap_or(std::cmp::Ordering::Equal));
            let mut text = Vec::new();
            key_type.write(key.as_key(), &mut text);
            prop_assert_eq!(key_type.parse(&text), Ok(key.clone()));
            let texts = key_type.texts(key.as_key());
            prop_assert_eq!(key_type.key_of_texts(texts.iter().map(|text| &text[..])), Ok(key));
            prop_assert_eq!(KeyType::from_code(key_type.to_code()), Some(key_type));
            prop_assert_eq!(key_type.to_string().parse(), Ok(key_type));
        }

        #[test]
        fn a_prefix_of_leading_parts_selects_exactly_the_keys_with_these_parts(
            (key_type, a, b) in key_type()
                .prop_filter("a composite", KeyType::is_composite)
                .prop_flat_map(|kind| (Just(kind), values(kind), values(kind))),
            count in 1..PART_COUNT_MAX,
        ) {
            let count = count.min(key_type.parts().len() - 1);
            let key = key_type.key(a.clone()).unwrap();
            let mut text = Vec::new();
            key_type.write(key.as_key(), &mut text);
            // The leading parts, with their backslashes.
            let (mut end, mut commas, mut is_escaped) = (text.len(), 0, false);
            for (at, byte) in text.iter().enumerate() {
                commas += usize::from(*byte == b',' && !is_escaped);
                if commas == count {
                    end = at;
                    break;
                }
                is_escaped = *byte == b'\\' && !is_escaped;
            }
            let prefix = key_type.parse_prefix(&text[..end]).unwrap();
            #[cfg(feature = "server")]
            prop_assert_eq!(key_type.written_prefix(&text[..end]).unwrap(), &text[..=end]);
            for values in [&a, &b] {
                let key = key_type.key(values.clone()).unwrap();
                let has_prefix = key.as_key().as_bytes().unwrap().starts_with(&prefix);
                prop_assert_eq!(has_prefix, values[..count] == a[..count]);
            }
        }

        #[test]
        fn any_stored_key_has_a_written_form(key_type in key_type(), bytes in prop::collection::vec(any::<u8>(), 1..40)) {
            for key in [Key::U64(bytes.len() as u64), Key::Bytes(&bytes)] {
                let mut text = Vec::new();
                key_type.write(key, &mut text);
                prop_assert!(!text.is_empty());
                prop_assert_eq!(key_type.texts(key).len(), key_type.parts().len());
            }
        }

        #[test]
        fn any_text_is_parsed_or_rejected(key_type in key_type(), text in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Err(error) = key_type.parse(&text) {
                prop_assert!(!error.to_string().is_empty());
            }
            let _ = key_type.parse_prefix(&text);
        }
    }

    #[cfg(feature = "uuid")]
    #[test]
    fn a_uuid_of_the_crate_uuid_is_a_key() {
        let key_type: KeyType = "uuid".parse().unwrap();
        let text = "0190163d-8694-739b-aea5-966c26f8ad91";
        let value = KeyValue::from(text.parse::<uuid::Uuid>().unwrap());
        assert_eq!(key_type.key([value]), key_type.parse(text.as_bytes()));
    }

    #[test]
    fn texts_are_written_in_one_form() {
        for (key_type, text, written) in [
            ("u64", "007", "7"),
            ("i64", "-0", "0"),
            ("i64", "-9223372036854775808", "-9223372036854775808"),
            ("ipv4", "192.0.2.1", "192.0.2.1"),
            ("ip", "::ffff:192.0.2.1", "192.0.2.1"),
            ("ip", "2001:DB8:0::1", "2001:db8::1"),
            ("uuid", "0190163D8694739BAEA5966C26F8AD91", "0190163d-8694-739b-aea5-966c26f8ad91"),
            ("hex", "0A1f", "0a1f"),
            ("date", "-0044-03-15", "-0044-03-15"),
            ("timestamp", "2026-11-21 19:09:38.5+01:00", "2026-11-21T18:09:38.500000Z"),
            ("bytes,date", "a\\,b,2026-11-21", "a\\,b,2026-11-21"),
        ] {
            let key_type: KeyType = key_type.parse().unwrap();
            let key = key_type.parse(text.as_bytes()).unwrap();
            assert_eq!(key_type.display(key.as_key()).to_string(), written);
        }
    }

    #[test]
    fn a_text_of_another_type_is_rejected_with_the_expected_form() {
        for (key_type, text, expected) in [
            ("u64", "-1", "\"-1\" is not a number from 0 to 18446744073709551615"),
            ("i64", "+5", "\"+5\" is not a number from -9223372036854775808"),
            ("i64", "9223372036854775808", "is not a number from"),
            ("ipv4", "2001:db8::1", "such as 192.0.2.1"),
            ("ip", "192.0.2", "such as 192.0.2.1 or 2001:db8::1"),
            ("ip", "192.0.2.01", "is not an IP address"),
            ("uuid", "0190163d-8694-739b-aea5966c26f8ad91", "is not a UUID, such as"),
            ("hex", "abc", "an even number of hexadecimal digits"),
            ("hex", "", "an even number of hexadecimal digits"),
            ("date", "2026-02-30", "is not a date, such as 2026-11-21"),
            ("timestamp", "2026-11-21", "is not a time"),
            ("bytes", "", "a key has 1 to 65535 bytes, found 0"),
            ("bytes,date", "a", "\"a\" has 1 part, where a key has 2: bytes,date"),
            ("bytes,date", "a,b", "\"b\" is not a date"),
        ] {
            let key_type: KeyType = key_type.parse().unwrap();
            let error = key_type.parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        for text in ["", "u32", "u64,", "bytes,bytes,bytes,bytes,bytes,bytes,bytes,bytes,bytes"] {
            let error = text.parse::<KeyType>().unwrap_err().to_string();
            assert!(error.contains("expected u64, i64"), "{error}");
        }
    }
}
