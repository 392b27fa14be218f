//! The methods of both clients for the columns of typed tables, written once for both.
//!
//! In: keys, and names of columns. Out: rows of these columns. A client selects columns once for each connection. If the
//! server has replaced its table by a table with another schema, the client requests the schema, selects the columns
//! again, and repeats the requests that the new table has answered. The macro expands as in
//! [`methods`](super::methods).

use std::sync::Arc;

#[cfg(feature = "tokio")]
use super::AsyncClient;
use super::Client;
use super::batch;
use super::columns::{
    ColumnLookup, ProjectedRows, ReceivedRow, ReceivedValues, RowsOrValues, SCHEMA_CHANGES_MAX, SelectedColumns, Wanted,
};
use super::error::ClientError;
use super::request::{Get, GetColumns, GetSchema, Select, SelectedRow, TypedRequest};
use super::retry::{Deadline, Retry};
use crate::format::key::Key;
use crate::typed::Schema;

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
            ) -> Result<Option<ReceivedRow>, ClientError> {
                let rows = self.look_columns_up(&[key.into()], &Wanted::All)$($await)*?;
                Ok(rows.into_only_row())
            }

            /// Returns the rows of many keys in a typed table, in the order of the keys. Requests are pipelined as in
            /// [`Self::get_many`], and all rows have the same schema as in [`Self::get_columns`].
            ///
            /// # Errors
            /// [`ClientError::NoSchema`] if the table has no schema, and the errors of [`Self::get_many`].
            pub $($async)? fn get_rows<'k, K: Into<Key<'k>> + Copy>(
                &mut self,
                keys: &[K],
            ) -> Result<ProjectedRows, ClientError> {
                self.look_columns_up(keys, &Wanted::All)$($await)*
            }

            /// Returns the rows of many keys if the table has a schema, and their values otherwise. Unlike a call of
            /// [`Self::schema`] before a call of [`Self::get_many`], this call does not return rows of a typed table as
            /// values if the server replaces its table in between.
            ///
            /// The call takes one round trip, except if the table has become typed, or has lost its schema, since the
            /// last call.
            ///
            /// # Errors
            /// [`ClientError::SchemaUnstable`], and the errors of [`Self::get_many`].
            pub $($async)? fn get_rows_or_values<'k, K: Into<Key<'k>> + Copy>(
                &mut self,
                keys: &[K],
            ) -> Result<RowsOrValues, ClientError> {
                batch::check_keys(keys)?;
                for _ in 0..=SCHEMA_CHANGES_MAX {
                    if self.columns.schema().is_some() {
                        match self.get_rows(keys)$($await)* {
                            Err(ClientError::NoSchema { .. }) => {}
                            rows => return Ok(RowsOrValues::Rows(rows?)),
                        }
                    }
                    let (mut values, mut schema) = (ReceivedValues::default(), None);
                    let batch = batch::for_guarded_keys(
                        keys,
                        |_, get: Get<'k>, response| {
                            values.push(get.decode_borrowed(response)?);
                            Ok(())
                        },
                        |response| {
                            schema = schema.take().or(GetSchema.decode(response)?);
                            Ok(())
                        },
                    );
                    self.exchange(batch)$($await)*?;
                    if schema.is_none() {
                        return Ok(RowsOrValues::Values(values));
                    }
                    self.columns.set_schema(schema);
                }
                Err(ClientError::SchemaUnstable { server: self.address().clone(), changes: SCHEMA_CHANGES_MAX + 1 })
            }

            /// Sends requests of one operation, which must have no effects, between two requests for the table's schema, in
            /// one round trip. Returns the decoded responses in the order of the requests, and the schema that the table
            /// had before and after them, or `None` if the table has no schema. If the schema changed in between, the call
            /// repeats all requests.
            ///
            /// Requests that the server reads at once are answered from one table. In a longer batch, rows of another table
            /// go unnoticed if the server replaces its table twice during the call, and the second table has the first
            /// schema again.
            ///
            /// # Errors
            /// [`ClientError::SchemaUnstable`], and the errors of [`Self::call`].
            pub $($async)? fn call_with_schema<R: TypedRequest + Copy>(
                &mut self,
                requests: &[R],
            ) -> Result<(Vec<R::Output>, Option<Arc<Schema>>), ClientError> {
                let Some(op) = requests.first().map(TypedRequest::op) else { return Ok((Vec::new(), None)) };
                let deadline = Deadline::after(self.target.options.call_timeout);
                for _ in 0..=SCHEMA_CHANGES_MAX {
                    let (mut outputs, mut schemas) = (Vec::with_capacity(requests.len()), Vec::with_capacity(2));
                    let batch = batch::between(
                        GetSchema,
                        op,
                        requests.len(),
                        |at| requests[at],
                        |at, response| {
                            outputs.push(requests[at].decode(response)?);
                            Ok(())
                        },
                        |response| {
                            schemas.push(GetSchema.decode(response)?);
                            Ok(())
                        },
                    );
                    self.exchange_until(batch, deadline)$($await)*?;
                    let last = schemas.pop().expect("an exchange without an error has all responses");
                    if schemas[0].as_ref().map(Schema::id) == last.as_ref().map(Schema::id) {
                        return Ok((outputs, self.columns.set_schema(last)));
                    }
                }
                Err(ClientError::SchemaUnstable { server: self.address().clone(), changes: SCHEMA_CHANGES_MAX + 1 })
            }

            /// Returns some columns of the rows of many keys, in the order of the keys. The server sends only these
            /// columns. Requests are pipelined as in [`Self::get_many`].
            ///
            /// If the server replaces its table by a table with other columns, the call continues with the new table, as
            /// long as it has the requested columns. All returned rows have the same schema.
            ///
            /// # Errors
            /// [`ClientError::NoSchema`] if the table has no schema, [`ClientError::Columns`] if it does not have one of
            /// the columns, and the errors of [`Self::get_many`].
            pub $($async)? fn get_columns<'k, K: Into<Key<'k>> + Copy>(
                &mut self,
                keys: &[K],
                columns: &[impl AsRef<str>],
            ) -> Result<ProjectedRows, ClientError> {
                let wanted = Wanted::Names(columns.iter().map(AsRef::as_ref).collect());
                self.look_columns_up(keys, &wanted)$($await)*
            }

            $($async)? fn look_columns_up<'k, K: Into<Key<'k>> + Copy>(
                &mut self,
                keys: &[K],
                wanted: &Wanted<'_>,
            ) -> Result<ProjectedRows, ClientError> {
                batch::check_keys(keys)?;
                let deadline = Deadline::after(self.target.options.call_timeout);
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
                    self.columns.forget();
                    lookup.count_change().map_err(|changes| {
                        ClientError::SchemaUnstable { server: self.address().clone(), changes }
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
                let mut connection = match self.connection.take() {
                    Some(connection) => connection,
                    None => self.open_connection(deadline)$($await)*?,
                };
                let (positions, rows) = lookup.begin(selected);
                let is_selected =
                    |current: &Option<Arc<SelectedColumns>>| current.as_ref().is_some_and(|at| Arc::ptr_eq(at, selected));
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
