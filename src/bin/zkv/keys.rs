//! Parsing of keys and ranges.
//!
//! In: arguments, and the table's kind of keys. Out: keys of this kind. This module depends neither on servers nor on
//! the file format.

use std::borrow::Cow;
use std::ffi::OsString;
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;

use anyhow::{anyhow, bail};
use zero_kv::client::ClientError;
use zero_kv::format::key::KEY_LEN_MAX_BYTES;
use zero_kv::store::MappedRows;
use zero_kv::{Key, KeyKind, MappedStore};

use crate::args::RangeArgs;

impl RangeArgs {
    pub(crate) fn is_all(&self) -> bool {
        [&self.from, &self.after, &self.to, &self.before].iter().all(|key| key.is_none())
    }

    /// Returns both bounds of the range. Clap has checked that each bound is given at most once.
    pub(crate) fn bounds(&self, kind: KeyKind) -> anyhow::Result<(Bound<Key<'_>>, Bound<Key<'_>>)> {
        Ok((bound(kind, &self.from, &self.after)?, bound(kind, &self.to, &self.before)?))
    }

    pub(crate) fn rows<'s>(&self, store: &'s MappedStore) -> anyhow::Result<MappedRows<'s>> {
        match &self.prefix {
            Some(prefix) => Ok(store.prefix(check_len(prefix.as_bytes(), 0)?)?),
            None => Ok(store.range(self.bounds(store.key_kind())?)?),
        }
    }
}

fn bound<'a>(
    kind: KeyKind,
    included: &'a Option<OsString>,
    excluded: &'a Option<OsString>,
) -> anyhow::Result<Bound<Key<'a>>> {
    match (included, excluded) {
        (Some(key), _) => parse_key(kind, key.as_bytes(), 0).map(Bound::Included),
        (_, Some(key)) => parse_key(kind, key.as_bytes(), 0).map(Bound::Excluded),
        (None, None) => Ok(Bound::Unbounded),
    }
}

/// Checks the length of a byte key. Because of this check, lookups in a file return the same error as lookups on a
/// server.
fn check_len(text: &[u8], min_bytes: usize) -> Result<&[u8], ClientError> {
    let len_bytes = text.len();
    match (min_bytes..=KEY_LEN_MAX_BYTES).contains(&len_bytes) {
        true => Ok(text),
        false => Err(ClientError::KeyLen { len_bytes }),
    }
}

/// Parses a key of this kind. `min_bytes` is the minimum length of a byte key: 0 for a bound of a range, otherwise 1.
/// Like `baker`, this function rejects a `+` before a number, which Rust's `parse` accepts.
pub(crate) fn parse_key(kind: KeyKind, text: &[u8], min_bytes: usize) -> anyhow::Result<Key<'_>> {
    if kind == KeyKind::Bytes {
        return Ok(Key::Bytes(check_len(text, min_bytes)?));
    }
    let digits = str::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok()).map(Key::U64).ok_or_else(|| {
        anyhow!(
            "the key is \"{}\", but the keys of this table are numbers: pass an unsigned 64-bit decimal (0 to \
             18446744073709551615)",
            text.escape_ascii()
        )
    })
}

/// Decodes the escapes that `escape_ascii` writes, and `\0`.
pub(crate) fn unescape(text: &[u8]) -> anyhow::Result<Cow<'_, [u8]>> {
    if !text.contains(&b'\\') {
        return Ok(Cow::Borrowed(text));
    }
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let (byte, len_bytes) = match *rest {
            [b'n', ..] => (b'\n', 1),
            [b'r', ..] => (b'\r', 1),
            [b't', ..] => (b'\t', 1),
            [b'0', ..] => (b'\0', 1),
            [byte @ (b'\\' | b'"' | b'\''), ..] => (byte, 1),
            [b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or_default() as u8;
                (digit(high) << 4 | digit(low), 3)
            }
            _ => bail!(
                "\"{}\" has a backslash that does not begin an escape: use \\n, \\r, \\t, \\0, \\\\, \\\", \\' or \\xHH",
                String::from_utf8_lossy(text).escape_debug()
            ),
        };
        bytes.push(byte);
        rest = &rest[len_bytes..];
    }
    Ok(Cow::Owned(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unescape_reverses_escape_ascii_and_rejects_invalid_escapes() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(*unescape(all.escape_ascii().to_string().as_bytes()).unwrap(), all);
        assert_eq!(*unescape(b"a\\0\\xFfb").unwrap(), *b"a\0\xffb");
        for text in [&b"\\"[..], b"\\q", b"\\x", b"\\x0", b"\\x0g", b"a\\\\\\"] {
            assert!(unescape(text).is_err(), "{}", text.escape_ascii());
        }
    }
}
