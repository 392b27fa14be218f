//! Lookups on a server over a connection.
//!
//! In: batches of keys, and ranges. Out: values, or rows of a typed table. The server may replace its table between two
//! requests, so rows of a typed table are requested by the names of their columns: the server encodes such rows by the
//! schema that the client selected, or responds that its schema has changed.

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use zero_kv::client::request::prefix_range;
use zero_kv::client::{Client, ClientError, KeyRange, ProjectedRows};
use zero_kv::typed::Schema;
use zero_kv::{Key, KeyKind};

use crate::args::RangeArgs;
use crate::table::{Neighbor, Row, Scan, Table, TableReplaced, visit_rows};

/// A server's table. If [`Table::schema`] returned a schema, lookups return rows of this schema until its next call, or
/// [`TableReplaced`]. Before the first call, lookups return values as the server stores them.
pub(crate) struct ServedTable {
    client: Client,
    schema: Option<Arc<Schema>>,
}

impl ServedTable {
    pub(crate) fn new(client: Client) -> ServedTable {
        ServedTable { client, schema: None }
    }

    /// Returns the rows of keys, encoded by a schema.
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
        if let Some(prefix) = &range.prefix {
            return Ok(prefix_range(prefix.as_bytes())?);
        }
        // The bounds of all keys have no kind.
        let kind = if range.is_all() { KeyKind::U64 } else { self.client.key_kind()? };
        let (start, end) = range.bounds(kind)?;
        Ok(KeyRange::new(start.map(Into::into), end.map(Into::into)))
    }
}

impl Table for ServedTable {
    fn key_kind(&mut self) -> anyhow::Result<KeyKind> {
        Ok(self.client.key_kind()?)
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
