//! Whom questions are asked: a server, or a file.
//!
//! In: questions about many keys at a time, and about ranges. Out: the answers, in order,
//! to a visitor, in memory of who answers. It knows neither arguments nor formats.

use std::os::unix::ffi::OsStrExt;

use zero_kv::client::{Client, Direct, OwnedKey, Snapshot};
use zero_kv::{Key, KeyKind, LookupError, Store};

use crate::args::RangeArgs;
use crate::output::all_read;

/// Rows of a file that can change are given in pages of about this length.
const PAGE_LEN_BYTES: usize = 256 << 10;

/// The row at or beside a key.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Floor,
    Ceiling,
}

/// Some rows of a range.
pub(crate) struct Walk<'a> {
    pub(crate) range: &'a RangeArgs,
    pub(crate) reverse: bool,
    pub(crate) limit: Option<usize>,
}

type Row<'r> = (Key<'r>, &'r [u8]);

/// Answers to keys are given with the key's place among those that were asked for.
pub(crate) trait Table {
    fn key_kind(&mut self) -> anyhow::Result<KeyKind>;

    fn get(&mut self, keys: &[Key<'_>], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> anyhow::Result<()>;

    /// Like `get`, but what was found before an error may be wrong.
    fn visit(&mut self, keys: &[Key<'_>], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> anyhow::Result<()> {
        self.get(keys, found)
    }

    fn exists(&mut self, keys: &[Key<'_>], found: &mut dyn FnMut(usize, bool)) -> anyhow::Result<()>;

    fn beside(
        &mut self,
        side: Side,
        keys: &[Key<'_>],
        found: &mut dyn FnMut(usize, Option<Row<'_>>),
    ) -> anyhow::Result<()>;

    /// Ends at the first error of the visitor's.
    fn walk(&mut self, walk: &Walk<'_>, found: &mut dyn FnMut(Row<'_>) -> anyhow::Result<()>) -> anyhow::Result<()>;

    fn count(&mut self, range: &RangeArgs) -> anyhow::Result<u64>;
}

impl Table for Client {
    fn key_kind(&mut self) -> anyhow::Result<KeyKind> {
        Ok(Client::key_kind(self)?)
    }

    fn get(&mut self, keys: &[Key<'_>], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> anyhow::Result<()> {
        Ok(self.get_many_with(keys, found)?)
    }

    fn exists(&mut self, keys: &[Key<'_>], found: &mut dyn FnMut(usize, bool)) -> anyhow::Result<()> {
        self.exists_many(keys)?.into_iter().enumerate().for_each(|(at, is_found)| found(at, is_found));
        Ok(())
    }

    fn beside(
        &mut self,
        side: Side,
        keys: &[Key<'_>],
        found: &mut dyn FnMut(usize, Option<Row<'_>>),
    ) -> anyhow::Result<()> {
        let rows = match side {
            Side::Floor => self.floor_many(keys)?,
            Side::Ceiling => self.ceiling_many(keys)?,
        };
        for (at, row) in rows.iter().enumerate() {
            found(at, row.as_ref().map(|(key, value)| (key.as_key(), &value[..])));
        }
        Ok(())
    }

    fn walk(&mut self, walk: &Walk<'_>, found: &mut dyn FnMut(Row<'_>) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let rows = match &walk.range.prefix {
            Some(prefix) => self.prefix(prefix.as_bytes())?,
            None if walk.range.is_all() => self.rows(),
            None => {
                let kind = Client::key_kind(self)?;
                self.range(walk.range.bounds(kind)?)?
            }
        };
        let limit = walk.limit.unwrap_or(usize::MAX);
        let mut rows = rows.page_rows(u32::try_from(limit).unwrap_or(u32::MAX));
        for _ in 0..limit {
            let Some(row) = (if walk.reverse { rows.next_back() } else { rows.next() }) else { break };
            let (key, value) = row?;
            found((key.as_key(), &value))?;
        }
        Ok(())
    }

    fn count(&mut self, range: &RangeArgs) -> anyhow::Result<u64> {
        Ok(match &range.prefix {
            Some(prefix) => self.count_prefix(prefix.as_bytes())?,
            None if range.is_all() => Client::count(self, ..)?,
            None => {
                let kind = Client::key_kind(self)?;
                Client::count(self, range.bounds(kind)?)?
            }
        })
    }
}

impl Table for &Store {
    fn key_kind(&mut self) -> anyhow::Result<KeyKind> {
        Ok(Store::key_kind(self))
    }

    fn get(&mut self, keys: &[Key<'_>], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> anyhow::Result<()> {
        Ok(self.get_many(keys, found)?)
    }

    fn exists(&mut self, keys: &[Key<'_>], found: &mut dyn FnMut(usize, bool)) -> anyhow::Result<()> {
        Ok(self.get_many(keys, |at, value| found(at, value.is_some()))?)
    }

    fn beside(
        &mut self,
        side: Side,
        keys: &[Key<'_>],
        found: &mut dyn FnMut(usize, Option<Row<'_>>),
    ) -> anyhow::Result<()> {
        for (at, key) in keys.iter().enumerate() {
            let row = match side {
                Side::Floor => self.floor(*key)?,
                Side::Ceiling => self.ceiling(*key)?,
            };
            found(at, row);
        }
        Ok(())
    }

    fn walk(&mut self, walk: &Walk<'_>, found: &mut dyn FnMut(Row<'_>) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let mut rows = walk.range.rows(self)?;
        let limit = walk.limit.unwrap_or(usize::MAX).min(rows.len());
        for _ in 0..limit {
            match if walk.reverse { rows.next_back() } else { rows.next() } {
                Some(row) => found(row)?,
                None => return all_read(&rows),
            }
        }
        Ok(())
    }

    fn count(&mut self, range: &RangeArgs) -> anyhow::Result<u64> {
        Ok(range.rows(self)?.len() as u64)
    }
}

/// The file of a server, which can change while it is read: nothing of it is given before it is known
/// that it has not.
impl Table for Direct {
    fn key_kind(&mut self) -> anyhow::Result<KeyKind> {
        Ok(self.snapshot().key_kind())
    }

    fn get(&mut self, keys: &[Key<'_>], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> anyhow::Result<()> {
        let values = self.get_many(keys)?;
        values.iter().enumerate().for_each(|(at, value)| found(at, value.as_deref()));
        Ok(())
    }

    fn visit(&mut self, keys: &[Key<'_>], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> anyhow::Result<()> {
        Ok(self.get_many_with(keys, found)?)
    }

    fn exists(&mut self, keys: &[Key<'_>], found: &mut dyn FnMut(usize, bool)) -> anyhow::Result<()> {
        let mut are_there = Vec::with_capacity(keys.len());
        self.get_many_with(keys, |_, value| are_there.push(value.is_some()))?;
        are_there.into_iter().enumerate().for_each(|(at, is_found)| found(at, is_found));
        Ok(())
    }

    fn beside(
        &mut self,
        side: Side,
        keys: &[Key<'_>],
        found: &mut dyn FnMut(usize, Option<Row<'_>>),
    ) -> anyhow::Result<()> {
        for (at, key) in keys.iter().enumerate() {
            let row = match side {
                Side::Floor => self.floor(*key)?,
                Side::Ceiling => self.ceiling(*key)?,
            };
            found(at, row.as_ref().map(|(key, value)| (key.as_key(), &value[..])));
        }
        Ok(())
    }

    fn walk(&mut self, walk: &Walk<'_>, found: &mut dyn FnMut(Row<'_>) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let snapshot = self.snapshot();
        let mut rows = walk.range.rows(&snapshot)?;
        let mut left = walk.limit.unwrap_or(usize::MAX).min(rows.len());
        while left > 0 {
            let (mut page, mut len_bytes) = (Vec::new(), 0);
            while page.len() < left && len_bytes < PAGE_LEN_BYTES {
                let Some((key, value)) = (if walk.reverse { rows.next_back() } else { rows.next() }) else { break };
                len_bytes += key.as_bytes().map_or(size_of::<u64>(), <[u8]>::len) + value.len();
                page.push((OwnedKey::from(key), value.to_vec()));
            }
            unchanged(&snapshot)?;
            if page.is_empty() {
                return all_read(&rows);
            }
            left -= page.len();
            page.iter().try_for_each(|(key, value)| found((key.as_key(), value)))?;
        }
        Ok(())
    }

    fn count(&mut self, range: &RangeArgs) -> anyhow::Result<u64> {
        let snapshot = self.snapshot();
        let count = range.rows(&snapshot)?.len();
        unchanged(&snapshot)?;
        Ok(count as u64)
    }
}

fn unchanged(snapshot: &Snapshot) -> Result<(), LookupError> {
    if snapshot.is_unchanged() { Ok(()) } else { Err(LookupError::Damaged) }
}
