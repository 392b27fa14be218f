//! A common interface for lookups on a server, in direct mode, and in a file.
//!
//! In: batches of keys, and ranges. Out: results in order, which a visitor receives as borrowed slices. This module
//! does not depend on output formats. A server may replace its table between two requests, so rows of a typed table are
//! requested by the names of their columns: the server encodes such rows by the schema that the client selected, or
//! responds that its schema has changed.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use zero_kv::client::{Client, ClientError, Direct, DirectSnapshot, KeyRange, ProjectedRows, Row as OwnedRow};
use zero_kv::store::{OpenOptions, Verify};
use zero_kv::typed::Schema;
use zero_kv::{Key, KeyType, Lookup, MappedStore, StoreError};

use crate::args::RangeArgs;

/// The neighbor to look up for a key: the last row at or before the key, or the first row at or after the key.
#[derive(Clone, Copy)]
pub(crate) enum Neighbor {
    Floor,
    Ceiling,
}

/// A request for the rows of a range, from either end, up to a limit.
pub(crate) struct Scan<'a> {
    pub(crate) range: &'a RangeArgs,
    pub(crate) reverse: bool,
    pub(crate) limit: Option<usize>,
}

pub(crate) fn open_whole(path: &Path) -> Result<MappedStore, StoreError> {
    let options = OpenOptions { verify: Verify::Full, ..OpenOptions::default() };
    MappedStore::open_with(path, &options)
}

pub(crate) type Row<'r> = (Key<'r>, &'r [u8]);
/// The first key, the last key, and the value of a range.
pub(crate) type RangeRow<'r> = (Key<'r>, Key<'r>, &'r [u8]);

/// The server replaced its table between [`Table::schema`] and a lookup.
#[derive(Debug)]
pub(crate) struct TableReplaced;

impl fmt::Display for TableReplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the server replaced its table by a table with other rows or columns during the lookup: run the command \
             again",
        )
    }
}

impl std::error::Error for TableReplaced {}

/// A table on a server or in a file. A lookup of keys calls `visit` with the index of each key in `keys`, and the
/// result for this key. A lookup of keys that fails with [`TableReplaced`] has not called `visit`.
pub(crate) trait Table {
    fn key_type(&mut self) -> anyhow::Result<KeyType>;

    /// Returns the schema of the rows that lookups return until the next call, or `None` if rows have no columns.
    fn schema(&mut self) -> anyhow::Result<Option<Arc<Schema>>>;

    fn get(&mut self, keys: &[Key<'_>], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> anyhow::Result<()>;

    fn exists(&mut self, keys: &[Key<'_>], visit: &mut dyn FnMut(usize, bool)) -> anyhow::Result<()>;

    fn neighbors(
        &mut self,
        neighbor: Neighbor,
        keys: &[Key<'_>],
        visit: &mut dyn FnMut(usize, Option<Row<'_>>),
    ) -> anyhow::Result<()>;

    /// Looks up the range that contains each key. `visit` receives the first and the last key of the range, and its value.
    fn covers(&mut self, keys: &[Key<'_>], visit: &mut dyn FnMut(usize, Option<RangeRow<'_>>)) -> anyhow::Result<()>;

    /// Calls `visit` with each row of the scan, and stops at the first error that `visit` returns.
    fn scan(&mut self, scan: &Scan<'_>, visit: &mut dyn FnMut(Row<'_>) -> anyhow::Result<()>) -> anyhow::Result<()>;

    fn count(&mut self, range: &RangeArgs) -> anyhow::Result<u64>;
}

/// Calls `visit` with each of these rows in the direction of the scan, until the limit of the scan is reached.
fn visit_rows<E: Into<anyhow::Error>>(
    scan: &Scan<'_>,
    mut rows: impl DoubleEndedIterator<Item = Result<OwnedRow, E>>,
    visit: &mut dyn FnMut(Row<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for _ in 0..scan.limit.unwrap_or(usize::MAX) {
        let Some(row) = (if scan.reverse { rows.next_back() } else { rows.next() }) else { break };
        let (key, value) = row.map_err(Into::into)?;
        visit((key.as_key(), &value))?;
    }
    Ok(())
}

/// Lookups in a file. Values are copied and verified, as described at [`MappedStore`].
impl Table for &MappedStore {
    fn key_type(&mut self) -> anyhow::Result<KeyType> {
        Ok(MappedStore::key_type(self))
    }

    fn schema(&mut self) -> anyhow::Result<Option<Arc<Schema>>> {
        Ok(MappedStore::schema(self))
    }

    fn get(&mut self, keys: &[Key<'_>], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> anyhow::Result<()> {
        Ok(self.get_many_with(keys, visit)?)
    }

    fn exists(&mut self, keys: &[Key<'_>], visit: &mut dyn FnMut(usize, bool)) -> anyhow::Result<()> {
        Ok(self.get_many_with(keys, |at, value| visit(at, value.is_some()))?)
    }

    fn neighbors(
        &mut self,
        neighbor: Neighbor,
        keys: &[Key<'_>],
        visit: &mut dyn FnMut(usize, Option<Row<'_>>),
    ) -> anyhow::Result<()> {
        match neighbor {
            Neighbor::Floor => self.floor_many_with(keys, visit)?,
            Neighbor::Ceiling => self.ceiling_many_with(keys, visit)?,
        }
        Ok(())
    }

    fn covers(&mut self, keys: &[Key<'_>], visit: &mut dyn FnMut(usize, Option<RangeRow<'_>>)) -> anyhow::Result<()> {
        Ok(self.cover_many_with(keys, visit)?)
    }

    fn scan(&mut self, scan: &Scan<'_>, visit: &mut dyn FnMut(Row<'_>) -> anyhow::Result<()>) -> anyhow::Result<()> {
        visit_rows(scan, scan.range.rows(self)?, visit)
    }

    fn count(&mut self, range: &RangeArgs) -> anyhow::Result<u64> {
        Ok(range.rows(self)?.len() as u64)
    }
}

/// A server's table in direct mode. All lookups of one call read the same generation. After [`Table::schema`], all
/// lookups until its next call read the generation with this schema. After [`Table::key_type`], lookups in a table
/// whose keys have another type fail with [`TableReplaced`].
#[derive(Clone)]
pub(crate) struct DirectTable {
    direct: Direct,
    pinned: Option<DirectSnapshot>,
    key_type: Option<KeyType>,
}

impl DirectTable {
    pub(crate) fn new(direct: Direct) -> DirectTable {
        DirectTable { direct, pinned: None, key_type: None }
    }

    fn current(&self) -> DirectSnapshot {
        self.pinned.clone().unwrap_or_else(|| self.direct.snapshot())
    }

    /// Returns the generation for a lookup.
    fn snapshot(&self) -> Result<DirectSnapshot, TableReplaced> {
        let current = self.current();
        let is_of_type = self.key_type.is_none_or(|key_type| MappedStore::key_type(&current) == key_type);
        if is_of_type { Ok(current) } else { Err(TableReplaced) }
    }
}

impl Table for DirectTable {
    fn key_type(&mut self) -> anyhow::Result<KeyType> {
        let key_type = MappedStore::key_type(&self.current());
        self.key_type = Some(key_type);
        Ok(key_type)
    }

    fn schema(&mut self) -> anyhow::Result<Option<Arc<Schema>>> {
        let snapshot = self.pinned.insert(self.direct.snapshot());
        Table::schema(&mut &**snapshot)
    }

    fn get(&mut self, keys: &[Key<'_>], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> anyhow::Result<()> {
        Table::get(&mut &*self.snapshot()?, keys, visit)
    }

    fn exists(&mut self, keys: &[Key<'_>], visit: &mut dyn FnMut(usize, bool)) -> anyhow::Result<()> {
        Table::exists(&mut &*self.snapshot()?, keys, visit)
    }

    fn neighbors(
        &mut self,
        neighbor: Neighbor,
        keys: &[Key<'_>],
        visit: &mut dyn FnMut(usize, Option<Row<'_>>),
    ) -> anyhow::Result<()> {
        Table::neighbors(&mut &*self.snapshot()?, neighbor, keys, visit)
    }

    fn covers(&mut self, keys: &[Key<'_>], visit: &mut dyn FnMut(usize, Option<RangeRow<'_>>)) -> anyhow::Result<()> {
        Table::covers(&mut &*self.snapshot()?, keys, visit)
    }

    fn scan(&mut self, scan: &Scan<'_>, visit: &mut dyn FnMut(Row<'_>) -> anyhow::Result<()>) -> anyhow::Result<()> {
        Table::scan(&mut &*self.snapshot()?, scan, visit)
    }

    fn count(&mut self, range: &RangeArgs) -> anyhow::Result<u64> {
        Table::count(&mut &*self.snapshot()?, range)
    }
}

/// A server's table. If [`Table::schema`] returned a schema, lookups return rows of this schema until its next call, or
/// [`TableReplaced`]. Before the first call, lookups return values as the server stores them.
pub(crate) struct ServedTable {
    client: Client,
    schema: Option<Arc<Schema>>,
    /// The last result of [`Table::key_type`], which the client expects from then on.
    key_type: Option<KeyType>,
}

impl ServedTable {
    pub(crate) fn new(client: Client) -> ServedTable {
        ServedTable { client, schema: None, key_type: None }
    }

    fn typed_rows(&mut self, schema: &Schema, keys: &[Key<'_>]) -> anyhow::Result<ProjectedRows> {
        let names: Vec<&str> = schema.columns().iter().map(|column| &*column.name).collect();
        match self.client.get_projected(keys, &names) {
            Ok(rows) if rows.schema().columns() == schema.columns() => Ok(rows),
            Ok(_) | Err(ClientError::NoSchema { .. } | ClientError::Columns { .. }) => Err(TableReplaced.into()),
            Err(error) => Err(error.into()),
        }
    }

    fn scan_typed(
        &mut self,
        schema: &Schema,
        scan: &Scan<'_>,
        visit: &mut dyn FnMut(Row<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut rest = Some(self.key_range(scan.range)?);
        let mut remaining_rows = scan.limit.unwrap_or(usize::MAX);
        while let (Some(range), 1..) = (&rest, remaining_rows) {
            let limit_rows = u32::try_from(remaining_rows).unwrap_or(u32::MAX);
            let page = match scan.reverse {
                false => self.client.first_page(range.bounds(), limit_rows)?,
                true => self.client.last_page(range.bounds(), limit_rows)?,
            };
            let mut keys: Vec<Key<'_>> = page.iter().map(|(key, _)| key).collect();
            if scan.reverse {
                keys.reverse();
            }
            // A key without a row was in the table from which the page was read, but is not in the current table.
            for (key, row) in keys.iter().zip(self.typed_rows(schema, &keys)?.iter()) {
                if let Some(row) = row {
                    visit((*key, row.as_bytes()))?;
                    remaining_rows -= 1;
                }
            }
            rest = page.rest().cloned();
        }
        Ok(())
    }

    fn key_range(&mut self, range: &RangeArgs) -> anyhow::Result<KeyRange> {
        // The bounds of all keys have no type.
        match self.key_type {
            _ if range.is_all() => range.key_range(KeyType::U64),
            Some(key_type) => range.key_range(key_type),
            None => range.key_range(Table::key_type(self)?),
        }
    }
}

impl Table for ServedTable {
    fn key_type(&mut self) -> anyhow::Result<KeyType> {
        let key_type = self.client.key_type()?;
        self.key_type = Some(key_type);
        Ok(key_type)
    }

    fn schema(&mut self) -> anyhow::Result<Option<Arc<Schema>>> {
        self.schema = match self.client.schema() {
            // A server of a version without typed tables rejects the request.
            Err(ClientError::Server { .. }) => None,
            schema => schema?,
        };
        Ok(self.schema.clone())
    }

    fn get(&mut self, keys: &[Key<'_>], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> anyhow::Result<()> {
        let Some(schema) = self.schema.clone() else {
            return Ok(self.client.get_many_with(keys, visit)?);
        };
        for (at, row) in self.typed_rows(&schema, keys)?.iter().enumerate() {
            visit(at, row.map(|row| row.as_bytes()));
        }
        Ok(())
    }

    fn exists(&mut self, keys: &[Key<'_>], visit: &mut dyn FnMut(usize, bool)) -> anyhow::Result<()> {
        self.client.contains_many(keys)?.into_iter().enumerate().for_each(|(at, is_found)| visit(at, is_found));
        Ok(())
    }

    fn neighbors(
        &mut self,
        neighbor: Neighbor,
        keys: &[Key<'_>],
        visit: &mut dyn FnMut(usize, Option<Row<'_>>),
    ) -> anyhow::Result<()> {
        let rows = match neighbor {
            Neighbor::Floor => self.client.floor_many(keys)?,
            Neighbor::Ceiling => self.client.ceiling_many(keys)?,
        };
        let Some(schema) = self.schema.clone() else {
            for (at, row) in rows.iter().enumerate() {
                visit(at, row.as_ref().map(|(key, value)| (key.as_key(), &value[..])));
            }
            return Ok(());
        };
        let found: Vec<Key<'_>> = rows.iter().flatten().map(|(key, _)| key.as_key()).collect();
        let typed = self.typed_rows(&schema, &found)?;
        let typed: Option<Vec<_>> = found.iter().zip(typed.iter()).map(|(key, row)| Some((*key, row?))).collect();
        let mut typed = typed.ok_or(TableReplaced)?.into_iter();
        for (at, row) in rows.iter().enumerate() {
            let row = row.as_ref().and_then(|_| typed.next());
            visit(at, row.map(|(key, row)| (key, row.as_bytes())));
        }
        Ok(())
    }

    fn covers(&mut self, keys: &[Key<'_>], visit: &mut dyn FnMut(usize, Option<RangeRow<'_>>)) -> anyhow::Result<()> {
        let ranges = self.client.cover_many(keys)?;
        let Some(schema) = self.schema.clone() else {
            for (at, range) in ranges.iter().enumerate() {
                visit(at, range.as_ref().map(|(start, end, value)| (start.as_key(), end.as_key(), &value[..])));
            }
            return Ok(());
        };
        let starts: Vec<Key<'_>> = ranges.iter().flatten().map(|(start, ..)| start.as_key()).collect();
        let typed = self.typed_rows(&schema, &starts)?;
        let mut typed = typed.iter();
        for (at, range) in ranges.iter().enumerate() {
            let Some((start, end, _)) = range else {
                visit(at, None);
                continue;
            };
            let row = typed.next().flatten().ok_or(TableReplaced)?;
            visit(at, Some((start.as_key(), end.as_key(), row.as_bytes())));
        }
        Ok(())
    }

    fn scan(&mut self, scan: &Scan<'_>, visit: &mut dyn FnMut(Row<'_>) -> anyhow::Result<()>) -> anyhow::Result<()> {
        if let Some(schema) = self.schema.clone() {
            return self.scan_typed(&schema, scan, visit);
        }
        let range = self.key_range(scan.range)?;
        let rows = self.client.range(range.bounds())?;
        let limit = scan.limit.map_or(u32::MAX, |limit| u32::try_from(limit).unwrap_or(u32::MAX));
        visit_rows(scan, rows.page_rows(limit), visit)
    }

    fn count(&mut self, range: &RangeArgs) -> anyhow::Result<u64> {
        let range = self.key_range(range)?;
        Ok(self.client.count(range.bounds())?)
    }
}
