//! The methods of both clients for the columns of typed tables, written once for both.
//!
//! In: keys, and names of columns. Out: rows of these columns. A client selects columns once for each connection. If
//! the server has replaced its table by a table with another schema, the client requests the schema, selects the
//! columns again, and repeats the requests that the new table answered. The macro expands as in
//! [`methods`](super::methods).

use std::sync::Arc;

#[cfg(feature = "tokio")]
use super::AsyncClient;
use super::columns::{
    BATCH_LEN_MAX, ColumnLookup, ProjectedRows, ReceivedValues, RowsOrValues, SelectedColumns, TABLE_CHANGES_MAX,
    TABLE_GUARDS, TableFound, Wanted,
};
use super::error::ClientError;
use super::request::{Get, GetColumns, GetSchema, KeyRequest, RequestError, Select, SelectedRow, TypedRequest};
use super::retry::{Deadline, Retry};
use super::{Client, batch};
use crate::format::key::Key;
use crate::protocol::native::Op;
use crate::protocol::reader::Response;
use crate::typed::{OwnedRow, Schema};

macro_rules! impl_column_methods {
    ($Client:ident, $sleep:path, [$($async:tt)?], [$($await:tt)*]) => {
        /// Columns of typed tables.
        impl $Client {
            /// Requests the schema of the server's table. Returns `None` if the table has no schema.
            ///
            /// # Errors
            /// [`ClientError::Server`] from a server that does not support the request, and the errors of
            /// [`Self::get`].
            pub $($async)? fn schema(&mut self) -> Result<Option<Arc<Schema>>, ClientError> {
                let schema = self.call(GetSchema)$($await)*?;
                Ok(self.columns.set_schema(schema))
            }

            /// Returns the row of a key in a typed table, or `None` if the table does not have the key.
            ///
            /// # Errors
            /// [`ClientError::NoSchema`] if the table has no schema, and the errors of [`Self::get`].
            pub $($async)? fn get_row<'k>(
                &mut self,
                key: impl Into<Key<'k>>,
            ) -> Result<Option<OwnedRow>, ClientError> {
                let rows = self.look_columns_up(&[key.into()], &Wanted::All, self.call_deadline())$($await)*?;
                Ok(rows.into_only_row())
            }

            /// Returns the rows of many keys in a typed table, in the order of the keys. Requests are pipelined as in
            /// [`Self::get_many`], and all rows have the same schema as in [`Self::get_projected`].
            ///
            /// # Errors
            /// [`ClientError::NoSchema`] if the table has no schema, and the errors of [`Self::get_many`].
            pub $($async)? fn get_rows<'k, K: Into<Key<'k>> + Copy>(
                &mut self,
                keys: &[K],
            ) -> Result<ProjectedRows, ClientError> {
                self.look_columns_up(keys, &Wanted::All, self.call_deadline())$($await)*
            }

            /// Returns the rows of many keys if the table has a schema, and their values otherwise. Unlike a call of
            /// [`Self::schema`] before a call of [`Self::get_many`], this call does not return rows of a typed table as
            /// values if the server replaces its table in between.
            ///
            /// The call takes one round trip for each 65,536 keys, and more if the table has become typed, has lost its
            /// schema, or is replaced during the call.
            ///
            /// # Errors
            /// [`ClientError::TableUnstable`], and the errors of [`Self::get_many`].
            pub $($async)? fn get_rows_or_values<'k, K: Into<Key<'k>> + Copy>(
                &mut self,
                keys: &[K],
            ) -> Result<RowsOrValues, ClientError> {
                batch::check_keys(keys)?;
                let deadline = self.call_deadline();
                if self.target.options.cache.is_some() && keys.len() <= BATCH_LEN_MAX {
                    return self.rows_or_values_cached(keys, deadline)$($await)*;
                }
                for _ in 0..=TABLE_CHANGES_MAX {
                    if self.columns.schema().is_some() {
                        match self.look_columns_up(keys, &Wanted::All, deadline)$($await)* {
                            Err(ClientError::NoSchema { .. }) => {}
                            rows => return Ok(RowsOrValues::Rows(rows?)),
                        }
                    }
                    if let Some(values) = self.values_without_schema(keys, deadline)$($await)*? {
                        return Ok(RowsOrValues::Values(values));
                    }
                }
                Err(self.table_unstable())
            }

            /// Returns the values of many keys, or `None` if the table has a schema.
            $($async)? fn values_without_schema<'k, K: Into<Key<'k>> + Copy>(
                &mut self,
                keys: &[K],
                deadline: Deadline,
            ) -> Result<Option<ReceivedValues>, ClientError> {
                let mut values = ReceivedValues::default();
                let mut start = 0;
                // If the table is replaced, only one batch is repeated.
                for keys in keys.chunks(BATCH_LEN_MAX) {
                    let request = |at: usize| Get::from_checked(keys[at].into());
                    let schema = self.exchange_with_table(
                        Op::Get,
                        keys.len(),
                        request,
                        |at, response| {
                            values.set(start + at, request(at).decode_borrowed(response)?);
                            Ok(())
                        },
                        deadline,
                    )
                    $($await)*?;
                    if self.columns.set_schema(schema).is_some() {
                        return Ok(None);
                    }
                    start += keys.len();
                }
                Ok(Some(values))
            }

            /// Sends requests of one operation, which must have no effects, together with requests for the table's
            /// schema and generation. Returns the decoded responses in the order of the requests, and the schema of the
            /// table that has sent them, or `None` if the table has no schema. If the server replaces its table during
            /// the call, the call repeats requests that may have been answered from several tables.
            ///
            /// The call takes one round trip for each 65,536 requests. The responses come from tables with the same
            /// schema, and those of each 65,536 requests from one table.
            ///
            /// # Errors
            /// [`ClientError::TableUnstable`], and the errors of [`Self::call`].
            pub $($async)? fn call_with_schema<R: TypedRequest + Copy>(
                &mut self,
                requests: &[R],
            ) -> Result<(Vec<R::Output>, Option<Arc<Schema>>), ClientError> {
                let Some(op) = requests.first().map(TypedRequest::op) else { return Ok((Vec::new(), None)) };
                let deadline = self.call_deadline();
                let (mut outputs, mut schema, mut changes) = (Vec::with_capacity(requests.len()), None, 0);
                while outputs.len() < requests.len() {
                    let start = outputs.len();
                    let batch = &requests[start..requests.len().min(start + BATCH_LEN_MAX)];
                    let found = self.exchange_with_table(
                        op,
                        batch.len(),
                        |at| batch[at],
                        |at, response| {
                            outputs.truncate(start + at);
                            outputs.push(batch[at].decode(response)?);
                            Ok(())
                        },
                        deadline,
                    )
                    $($await)*?;
                    let found = self.columns.set_schema(found);
                    if start > 0 && found.as_deref().map(Schema::id) != schema.as_deref().map(Schema::id) {
                        outputs.clear();
                        changes += 1;
                        if changes > TABLE_CHANGES_MAX {
                            return Err(self.table_unstable());
                        }
                    }
                    schema = found;
                }
                Ok((outputs, schema))
            }

            /// Sends a batch of requests, and returns the schema of the table that answered all of them. If there
            /// were several tables, sends all requests again. `visit` then gets all responses again,
            /// as after a reconnect.
            pub(super) $($async)? fn exchange_with_table<R: TypedRequest>(
                &mut self,
                op: Op,
                len: usize,
                request: impl Fn(usize) -> R,
                mut visit: impl FnMut(usize, Response<'_>) -> Result<(), RequestError>,
                deadline: Deadline,
            ) -> Result<Option<Schema>, ClientError> {
                for _ in 0..=TABLE_CHANGES_MAX {
                    let mut table = TableFound::default();
                    let set = |at: usize, response: Response<'_>| table.set(at, response);
                    let batch = batch::between(TABLE_GUARDS, op, len, &request, &mut visit, set);
                    self.exchange_until(batch, deadline)$($await)*?;
                    // The generations decide, because equal schemas would overlook a table that was replaced twice.
                    if let Some(schema) = table.schema() {
                        return Ok(schema);
                    }
                }
                Err(self.table_unstable())
            }

            pub(super) fn table_unstable(&self) -> ClientError {
                ClientError::TableUnstable { server: self.address().clone(), changes: TABLE_CHANGES_MAX + 1 }
            }

            /// Returns some columns of the rows of many keys, in the order of the keys. The server sends only these
            /// columns. Requests are pipelined as in [`Self::get_many`].
            ///
            /// If the server replaces its table by a table with other columns, the call continues with the new table,
            /// as long as it has the requested columns. All returned rows have the same schema.
            ///
            /// # Errors
            /// [`ClientError::NoSchema`] if the table has no schema, [`ClientError::Columns`] if it does not have one
            /// of the columns, and the errors of [`Self::get_many`].
            pub $($async)? fn get_projected<'k, K: Into<Key<'k>> + Copy>(
                &mut self,
                keys: &[K],
                columns: &[impl AsRef<str>],
            ) -> Result<ProjectedRows, ClientError> {
                let wanted = Wanted::Names(columns.iter().map(AsRef::as_ref).collect());
                self.look_columns_up(keys, &wanted, self.call_deadline())$($await)*
            }

            $($async)? fn look_columns_up<'k, K: Into<Key<'k>> + Copy>(
                &mut self,
                keys: &[K],
                wanted: &Wanted<'_>,
                deadline: Deadline,
            ) -> Result<ProjectedRows, ClientError> {
                batch::check_keys(keys)?;
                let mut retry = Retry::new(&self.target.options, true);
                let mut lookup = ColumnLookup::new(keys.len());
                loop {
                    let selected = self.selected_columns(wanted, deadline)$($await)*?;
                    match self.request_columns(keys, &selected, &mut lookup, deadline)$($await)* {
                        Ok(()) => {}
                        Err(error) => {
                            match retry.pause_after(&error, deadline) {
                                Some(pause) => $sleep(pause)$($await)*,
                                None => return Err(error),
                            }
                            continue;
                        }
                    }
                    if let Some(rows) = lookup.take_complete() {
                        return Ok(rows);
                    }
                    // Some rows are pending because the server has rejected the schema of the selected columns.
                    self.columns.forget();
                    lookup.count_change().map_err(|changes| {
                        ClientError::TableUnstable { server: self.address().clone(), changes }
                    })?;
                }
            }

            /// Returns the wanted columns of the table. Requests the schema if it is unknown, or if the known schema
            /// does not have the columns.
            $($async)? fn selected_columns(
                &mut self,
                wanted: &Wanted<'_>,
                deadline: Deadline,
            ) -> Result<Arc<SelectedColumns>, ClientError> {
                if let Some(selected) = self.columns.selected(wanted) {
                    return Ok(selected);
                }
                if let Some(selected) = self.columns.schema().and_then(|schema| wanted.select(&schema).ok()) {
                    return Ok(self.columns.select(selected));
                }
                let mut schema = None;
                self.exchange_until(
                    batch::single(&GetSchema, |response| {
                        schema = GetSchema.decode(response)?;
                        Ok(())
                    }),
                    deadline,
                )
                $($await)*?;
                let server = self.address().clone();
                let Some(schema) = self.columns.set_schema(schema) else {
                    return Err(ClientError::NoSchema { server });
                };
                let selected =
                    wanted.select(&schema).map_err(|error| ClientError::Columns { server, error })?;
                Ok(self.columns.select(selected))
            }

            /// Requests the columns of all keys that have no row yet, on one connection. After a change of the table's
            /// schema, some keys still have no row. The client keeps the connection only after success.
            $($async)? fn request_columns<'k, K: Into<Key<'k>> + Copy>(
                &mut self,
                keys: &[K],
                selected: &Arc<SelectedColumns>,
                lookup: &mut ColumnLookup,
                deadline: Deadline,
            ) -> Result<(), ClientError> {
                let mut connection = self.connection_for_keys(deadline)$($await)*?;
                let (positions, rows) = lookup.begin(selected);
                let is_selected = |current: &Option<Arc<SelectedColumns>>| {
                    current.as_ref().is_some_and(|at| Arc::ptr_eq(at, selected))
                };
                let mut failed = Ok(());
                if !is_selected(&connection.pipeline.selected) {
                    let select = Select::new(&selected.projection);
                    let mut is_accepted = false;
                    let mut batch = batch::single(&select, |response| {
                        is_accepted = select.decode(response)?;
                        Ok(())
                    });
                    self.transfer(&mut connection, &mut batch, deadline)$($await)*?;
                    failed = batch.into_result();
                    connection.pipeline.selected = is_accepted.then(|| Arc::clone(selected));
                }
                if failed.is_ok() && is_selected(&connection.pipeline.selected) {
                    let mut batch = batch::for_positions(keys, positions, |position, get: GetColumns<'k>, response| {
                        match get.decode_borrowed(response)? {
                            SelectedRow::Found(row) => rows.set(position, Some(row)),
                            SelectedRow::Missing => rows.set(position, None),
                            SelectedRow::SchemaChanged => Ok(()),
                        }
                    });
                    self.transfer(&mut connection, &mut batch, deadline)$($await)*?;
                    failed = batch.into_result();
                }
                self.connection = Some(connection);
                failed.map_err(|error| ClientError::request(self.address(), error))
            }
        }
    };
}

impl_column_methods!(Client, std::thread::sleep, [], []);
#[cfg(feature = "tokio")]
impl_column_methods!(AsyncClient, tokio::time::sleep, [async], [.await]);
