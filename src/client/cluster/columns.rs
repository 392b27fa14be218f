//! Rows and columns of typed tables in a cluster.
//!
//! In: keys, and names of columns. Out: rows of these columns, in the order of the keys. Nodes replace their tables at
//! different times, so rows of different nodes can have different columns. A call is then repeated.

use std::sync::Arc;
use std::thread;

use super::{ClusterClient, PAUSE, PAUSE_MAX};
use crate::client::blocking::Client;
use crate::client::columns::{ProjectedRows, ReceivedValues, RowsOrValues, TABLE_CHANGES_MAX};
use crate::client::error::ClientError;
use crate::format::key::Key;
use crate::typed::{OwnedRow, Schema};

/// The result of a call to one node, with the positions of its keys.
type Part<T> = (Vec<usize>, T);

/// Columns of typed tables.
impl ClusterClient {
    /// Returns the schema of a node's table, or `None` if the table has no schema.
    ///
    /// # Errors
    /// The errors of [`ClusterClient::get`].
    pub fn schema(&mut self) -> Result<Option<Arc<Schema>>, ClientError> {
        let mut schema = None;
        self.answer_all(vec![(0, ())], self.deadline(), |client, _| client.schema(), |_, found| schema = found)?;
        Ok(schema)
    }

    /// Returns the row of a key in a typed table, or `None` if the table does not have the key.
    ///
    /// # Errors
    /// The errors of [`ClusterClient::get_projected`].
    pub fn get_row<'k>(&mut self, key: impl Into<Key<'k>>) -> Result<Option<OwnedRow>, ClientError> {
        Ok(self.get_rows(&[key.into()])?.into_only_row())
    }

    /// Returns the rows of many keys in a typed table, in the order of the keys: see [`Client::get_rows`].
    ///
    /// # Errors
    /// The errors of [`ClusterClient::get_projected`].
    pub fn get_rows<'k, K: Into<Key<'k>> + Copy>(&mut self, keys: &[K]) -> Result<ProjectedRows, ClientError> {
        self.combine(keys, |client, keys| client.get_rows(keys), ProjectedRows::combine)
    }

    /// Returns some columns of the rows of many keys, in the order of the keys: see [`Client::get_projected`].
    ///
    /// # Errors
    /// [`ClientError::SchemaDiffers`] if the columns have different types on different nodes, the errors of
    /// [`Client::get_projected`], and the errors of [`ClusterClient::get`].
    pub fn get_projected<'k, K: Into<Key<'k>> + Copy>(
        &mut self,
        keys: &[K],
        columns: &[impl AsRef<str> + Sync],
    ) -> Result<ProjectedRows, ClientError> {
        self.combine(keys, |client, keys| client.get_projected(keys, columns), ProjectedRows::combine)
    }

    /// Returns the rows of many keys if the table has a schema, and their values otherwise: see
    /// [`Client::get_rows_or_values`].
    ///
    /// # Errors
    /// The errors of [`ClusterClient::get_projected`].
    pub fn get_rows_or_values<'k, K: Into<Key<'k>> + Copy>(&mut self, keys: &[K]) -> Result<RowsOrValues, ClientError> {
        self.combine(
            keys,
            |client, keys| client.get_rows_or_values(keys),
            |key_count, parts| {
                let (mut rows, mut values) = (Vec::new(), Vec::new());
                for (positions, part) in parts {
                    match part {
                        RowsOrValues::Rows(part) => rows.push((positions, part)),
                        RowsOrValues::Values(part) => values.push((positions, part)),
                    }
                }
                match (rows.is_empty(), values.is_empty()) {
                    (_, true) => ProjectedRows::combine(key_count, rows).map(RowsOrValues::Rows),
                    (true, false) => Some(RowsOrValues::Values(ReceivedValues::combine(key_count, values))),
                    (false, false) => None,
                }
            },
        )
    }

    /// Makes a call to each node, and combines the results. Repeats all calls while they cannot be combined.
    fn combine<'k, K: Into<Key<'k>> + Copy, T: Send>(
        &mut self,
        keys: &[K],
        call: impl Fn(&mut Client, &[Key<'k>]) -> Result<T, ClientError> + Sync,
        combine: impl Fn(usize, Vec<Part<T>>) -> Option<T>,
    ) -> Result<T, ClientError> {
        let (mut pause, deadline) = (PAUSE, self.deadline());
        for attempt in 0..=TABLE_CHANGES_MAX {
            if attempt > 0 {
                thread::sleep(pause);
                pause = (2 * pause).min(PAUSE_MAX);
            }
            let mut parts: Vec<Part<T>> = Vec::new();
            self.answer_keys(keys, deadline, &call, |positions, result| parts.push((positions.collect(), result)))?;
            // Without keys, a node is asked for the columns of the result.
            if keys.is_empty() {
                self.answer_all(
                    vec![(0, ())],
                    deadline,
                    |client, _| call(client, &[]),
                    |_, result| {
                        parts.push((Vec::new(), result));
                    },
                )?;
            }
            if let Some(combined) = combine(keys.len(), parts) {
                return Ok(combined);
            }
        }
        Err(ClientError::SchemaDiffers { server: self.routes.address(0).clone() })
    }
}
