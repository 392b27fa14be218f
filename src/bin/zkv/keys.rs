//! Keys and ranges, as arguments give them.
//!
//! In: arguments, and what the keys of a table are. Out: keys of that kind. It
//! knows neither server nor file format.

use std::ffi::{OsStr, OsString};
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;

use anyhow::anyhow;
use zero_kv::client::ClientError;
use zero_kv::format::key::KEY_LEN_MAX_BYTES;
use zero_kv::store::Rows;
use zero_kv::{Key, KeyKind, Store};

use crate::args::RangeArgs;

impl RangeArgs {
    pub(crate) fn is_all(&self) -> bool {
        [&self.from, &self.after, &self.to, &self.before].iter().all(|key| key.is_none())
    }

    /// The two ends, of which clap has seen that each is given once at most.
    pub(crate) fn bounds(&self, kind: KeyKind) -> anyhow::Result<(Bound<Key<'_>>, Bound<Key<'_>>)> {
        Ok((bound(kind, &self.from, &self.after)?, bound(kind, &self.to, &self.before)?))
    }

    pub(crate) fn rows<'s>(&self, store: &'s Store) -> anyhow::Result<Rows<'s>> {
        match &self.prefix {
            Some(prefix) => Ok(store.prefix(read_bytes(prefix, 0)?)?),
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
        (Some(key), _) => read_key(kind, key, 0).map(Bound::Included),
        (_, Some(key)) => read_key(kind, key, 0).map(Bound::Excluded),
        (None, None) => Ok(Bound::Unbounded),
    }
}

/// Bytes that a server can be asked for; a file answers alike.
fn read_bytes(arg: &OsStr, least_bytes: usize) -> Result<&[u8], ClientError> {
    let len_bytes = arg.len();
    match (least_bytes..=KEY_LEN_MAX_BYTES).contains(&len_bytes) {
        true => Ok(arg.as_bytes()),
        false => Err(ClientError::KeyLen { len_bytes }),
    }
}

/// A key as the table has them; at the end of a range, bytes may be none. Of
/// numbers as strict as `baker`, which refuses the `+` that Rust reads.
pub(crate) fn read_key(kind: KeyKind, arg: &OsStr, least_bytes: usize) -> anyhow::Result<Key<'_>> {
    if kind == KeyKind::Bytes {
        return Ok(Key::Bytes(read_bytes(arg, least_bytes)?));
    }
    let digits = arg.to_str().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok()).map(Key::U64).ok_or_else(|| {
        anyhow!(
            "the key is \"{}\" where an unsigned 64-bit decimal (0 to 18446744073709551615) was expected: the keys of \
             this table are numbers",
            arg.as_bytes().escape_ascii()
        )
    })
}
