//! Keys and ranges, as arguments give them.
//!
//! In: arguments, and what the keys of a table are. Out: keys of that kind. It
//! knows neither server nor file format.

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

    /// The two ends, of which clap has seen that each is given once at most.
    pub(crate) fn bounds(&self, kind: KeyKind) -> anyhow::Result<(Bound<Key<'_>>, Bound<Key<'_>>)> {
        Ok((bound(kind, &self.from, &self.after)?, bound(kind, &self.to, &self.before)?))
    }

    pub(crate) fn rows<'s>(&self, store: &'s MappedStore) -> anyhow::Result<MappedRows<'s>> {
        match &self.prefix {
            Some(prefix) => Ok(store.prefix(read_bytes(prefix.as_bytes(), 0)?)?),
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
        (Some(key), _) => read_key(kind, key.as_bytes(), 0).map(Bound::Included),
        (_, Some(key)) => read_key(kind, key.as_bytes(), 0).map(Bound::Excluded),
        (None, None) => Ok(Bound::Unbounded),
    }
}

/// Bytes that a server can be asked for; a file answers alike.
fn read_bytes(text: &[u8], least_bytes: usize) -> Result<&[u8], ClientError> {
    let len_bytes = text.len();
    match (least_bytes..=KEY_LEN_MAX_BYTES).contains(&len_bytes) {
        true => Ok(text),
        false => Err(ClientError::KeyLen { len_bytes }),
    }
}

/// A key as the table has them; at the end of a range, bytes may be none. Of
/// numbers as strict as `baker`, which refuses the `+` that Rust reads.
pub(crate) fn read_key(kind: KeyKind, text: &[u8], least_bytes: usize) -> anyhow::Result<Key<'_>> {
    if kind == KeyKind::Bytes {
        return Ok(Key::Bytes(read_bytes(text, least_bytes)?));
    }
    let digits = str::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok()).map(Key::U64).ok_or_else(|| {
        anyhow!(
            "the key is \"{}\" where an unsigned 64-bit decimal (0 to 18446744073709551615) was expected: the keys of \
             this table are numbers",
            text.escape_ascii()
        )
    })
}

/// The bytes that a text with escapes stands for: what `escape_ascii` writes, and `\0`.
pub(crate) fn unescape(text: &[u8]) -> anyhow::Result<Cow<'_, [u8]>> {
    if !text.contains(&b'\\') {
        return Ok(Cow::Borrowed(text));
    }
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
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
                "\"{}\" has a backslash that begins no escape: \\n, \\r, \\t, \\0, \\\\, \\\", \\' and \\xHH are possible",
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
    fn what_is_escaped_is_read_back() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(*unescape(all.escape_ascii().to_string().as_bytes()).unwrap(), all);
        assert_eq!(*unescape(b"a\\0\\xFfb").unwrap(), *b"a\0\xffb");
        for text in [&b"\\"[..], b"\\q", b"\\x", b"\\x0", b"\\x0g", b"a\\\\\\"] {
            assert!(unescape(text).is_err(), "{}", text.escape_ascii());
        }
    }
}
