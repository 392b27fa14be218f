//! Whom questions are asked: a server, or a file.
//!
//! In: questions about many keys at a time, and about ranges. Out: the answers, in order,
//! to a visitor, in memory of who answers. It knows neither arguments nor formats.

use std::os::unix::ffi::OsStrExt;

use zero_kv::client::{Client, Direct};
use zero_kv::{Key, KeyKind, MappedStore};

use crate::args::RangeArgs;

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

/// A file. Its values are copied and verified: see [`MappedStore`].
impl Table for &MappedStore {
    fn key_kind(&mut self) -> anyhow::Result<KeyKind> {
        Ok(MappedStore::key_kind(self))
    }

    fn get(&mut self, keys: &[Key<'_>], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> anyhow::Result<()> {
        Ok(self.get_many_with(keys, found)?)
    }

    fn exists(&mut self, keys: &[Key<'_>], found: &mut dyn FnMut(usize, bool)) -> anyhow::Result<()> {
        Ok(self.get_many_with(keys, |at, value| found(at, value.is_some()))?)
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
        let mut rows = walk.range.rows(self)?;
        for _ in 0..walk.limit.unwrap_or(usize::MAX) {
            let Some(row) = (if walk.reverse { rows.next_back() } else { rows.next() }) else { break };
            let (key, value) = row?;
            found((key.as_key(), &value))?;
        }
        Ok(())
    }

    fn count(&mut self, range: &RangeArgs) -> anyhow::Result<u64> {
        Ok(range.rows(self)?.len() as u64)
    }
}

/// The file of a server. A call is answered of one generation.
impl Table for Direct {
    fn key_kind(&mut self) -> anyhow::Result<KeyKind> {
        Table::key_kind(&mut &*self.snapshot())
    }

    fn get(&mut self, keys: &[Key<'_>], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> anyhow::Result<()> {
        Ok(self.get_many_with(keys, found)?)
    }

    fn exists(&mut self, keys: &[Key<'_>], found: &mut dyn FnMut(usize, bool)) -> anyhow::Result<()> {
        Ok(self.get_many_with(keys, |at, value| found(at, value.is_some()))?)
    }

    fn beside(
        &mut self,
        side: Side,
        keys: &[Key<'_>],
        found: &mut dyn FnMut(usize, Option<Row<'_>>),
    ) -> anyhow::Result<()> {
        Table::beside(&mut &*self.snapshot(), side, keys, found)
    }

    fn walk(&mut self, walk: &Walk<'_>, found: &mut dyn FnMut(Row<'_>) -> anyhow::Result<()>) -> anyhow::Result<()> {
        Table::walk(&mut &*self.snapshot(), walk, found)
    }

    fn count(&mut self, range: &RangeArgs) -> anyhow::Result<u64> {
        Table::count(&mut &*self.snapshot(), range)
    }
}
