//! The methods of both clients that look keys up in the client's cache first, written once for both.
//!
//! In: keys. Out: their values. The server announces each change of the state that values belong to, in the order of the
//! responses: see [`cache`](super::cache). A lookup reads what has arrived, and takes values only from the state in which
//! its connection is then. The macro expands as in [`methods`](super::methods).

use std::sync::Arc;

#[cfg(feature = "tokio")]
use super::AsyncClient;
#[cfg(feature = "tokio")]
use super::asynchronous::AsyncConnection;
use super::blocking::BlockingConnection;
use super::columns::{ReceivedValues, RowsOrValues, TABLE_CHANGES_MAX};
use super::error::ClientError;
use super::request::{Get, KeyRequest, RequestError, Track};
use super::retry::{Deadline, is_retried};
use super::transport::Tracking;
use super::{Client, batch};
use crate::format::key::Key;
use crate::protocol::native::{Op, StateId};
use crate::typed::Schema;

/// The cached values of some keys.
pub(super) struct Found {
    /// The state of all values. `None` if nothing is cached for the connection.
    state: Option<StateId>,
    values: ReceivedValues,
    /// The positions of the keys whose values are not cached.
    missing: Vec<usize>,
    schema: Option<Option<Arc<Schema>>>,
}

impl Found {
    fn nothing(key_count: usize) -> Found {
        let mut values = ReceivedValues::default();
        (0..key_count).for_each(|_| values.push(None));
        Found { state: None, values, missing: (0..key_count).collect(), schema: None }
    }

    /// Returns whether some values come from the cache, so that all values are of its state.
    fn has_values(&self, key_count: usize) -> bool {
        self.missing.len() < key_count
    }
}

macro_rules! impl_cached_methods {
    ($Client:ident, $Connection:ident, [$($async:tt)?], [$($await:tt)*]) => {
        impl $Client {
            /// Returns the values of keys, some of them from the cache. The keys have valid lengths.
            pub(super) $($async)? fn get_cached<'k, K: Into<Key<'k>> + Copy>(
                &mut self,
                keys: &[K],
            ) -> Result<ReceivedValues, ClientError> {
                let deadline = self.call_deadline();
                let mut found = self.find_cached(keys, deadline)$($await)*?;
                if found.missing.is_empty() {
                    return Ok(found.values);
                }
                let mut received = self.request_missing(keys, &found.missing, deadline)$($await)*?;
                // The rest of the call must not be older than what the client has read from the connection meanwhile.
                if self.state() != found.state && found.has_values(keys.len()) {
                    found = Found::nothing(keys.len());
                    received = self.request_missing(keys, &found.missing, deadline)$($await)*?;
                } else {
                    self.keep(keys, &found, &received, None);
                }
                Ok(found.values.with(&found.missing, &received))
            }

            /// Requests the values of the keys at some positions.
            $($async)? fn request_missing<'k, K: Into<Key<'k>> + Copy>(
                &mut self,
                keys: &[K],
                missing: &[usize],
                deadline: Deadline,
            ) -> Result<ReceivedValues, ClientError> {
                let mut received = ReceivedValues::default();
                self.exchange_until(
                    batch::for_positions(keys, missing, |_, get: Get<'k>, response| {
                        received.push(get.decode_borrowed(response)?);
                        Ok(())
                    }),
                    deadline,
                )
                $($await)*?;
                Ok(received)
            }

            /// Returns the rows of keys if the table has a schema, and their values otherwise, some of them from the cache.
            pub(super) $($async)? fn rows_or_values_cached<'k, K: Into<Key<'k>> + Copy>(
                &mut self,
                keys: &[K],
                deadline: Deadline,
            ) -> Result<RowsOrValues, ClientError> {
                for _ in 0..=TABLE_CHANGES_MAX {
                    let found = self.find_cached(keys, deadline)$($await)*?;
                    let (schema, values) = match &found.schema {
                        Some(schema) if found.missing.is_empty() => (schema.clone(), found.values),
                        _ => {
                            let request = |at: usize| Get::from_checked(keys[found.missing[at]].into());
                            let mut received = ReceivedValues::default();
                            let schema = self.exchange_with_table(
                                Op::Get,
                                found.missing.len(),
                                request,
                                |at, response| {
                                    received.set(at, request(at).decode_borrowed(response)?);
                                    Ok(())
                                },
                                deadline,
                            )
                            $($await)*?;
                            let schema = schema.map(Arc::new);
                            if self.state() != found.state && found.has_values(keys.len()) {
                                continue;
                            }
                            self.keep(keys, &found, &received, Some(schema.clone()));
                            (schema, found.values.with(&found.missing, &received))
                        }
                    };
                    let rows = self.columns.rows_or_values(schema, values);
                    return rows.map_err(|error: RequestError| ClientError::request(self.address(), error));
                }
                Err(self.table_unstable())
            }

            /// Looks keys up in the cache, in the state of the connection after reading what has arrived on it. Finds nothing
            /// if no connection can be opened now: the request is then sent as without a cache, with retries.
            ///
            /// # Errors
            /// An error after which no request is sent again.
            $($async)? fn find_cached<'k, K: Into<Key<'k>> + Copy>(
                &mut self,
                keys: &[K],
                deadline: Deadline,
            ) -> Result<Found, ClientError> {
                let connection = match self.tracked_connection(deadline)$($await)* {
                    Ok(connection) => connection,
                    Err(error) if is_retried(&error) => return Ok(Found::nothing(keys.len())),
                    Err(error) => return Err(error),
                };
                let found = connection.pipeline.cache().map(|cache| {
                    let mut values = ReceivedValues::default();
                    let missing = cache.look_up(keys, &mut values);
                    Found { state: Some(cache.state()), values, missing, schema: cache.schema() }
                });
                self.connection = Some(connection);
                Ok(found.unwrap_or_else(|| Found::nothing(keys.len())))
            }

            /// Takes the connection out of the client, or opens one, and reads the notices that have arrived. The server
            /// announces changes of the state of the connection, unless it refuses to.
            $($async)? fn tracked_connection(&mut self, deadline: Deadline) -> Result<$Connection, ClientError> {
                // A connection that is open may have been closed by the server. A new one is not tried twice.
                let mut is_new = self.connection.is_none();
                loop {
                    let mut connection = self.any_connection(deadline)$($await)*?;
                    if let Tracking::Off = connection.pipeline.tracking {
                        self.track(&mut connection, deadline)$($await)*?;
                    }
                    match connection.read_notices(deadline) {
                        Ok(()) => self.connection = Some(connection),
                        Err(_) if !is_new => {
                            is_new = true;
                            continue;
                        }
                        Err(error) => return Err(connection.pipeline.error(self.address(), error, deadline)),
                    }
                    let connection = self.connection_for_keys(deadline)$($await)*?;
                    match connection.pipeline.tracking {
                        // To find out the type of the keys, the client has opened a connection.
                        Tracking::Off => self.connection = Some(connection),
                        Tracking::Refused | Tracking::On(_) => return Ok(connection),
                    }
                }
            }

            /// Makes the server announce changes of the state of a connection.
            $($async)? fn track(&self, connection: &mut $Connection, deadline: Deadline) -> Result<(), ClientError> {
                connection.pipeline.expect_notices();
                // The pipeline follows the state in the response.
                connection.pipeline.tracking = Tracking::Refused;
                let mut batch = batch::single(&Track, |_| Ok(()));
                self.transfer(connection, &mut batch, deadline)$($await)*
            }

            /// Returns the state of the connection, if the server announces its changes.
            fn state(&self) -> Option<StateId> {
                Some(self.connection.as_ref()?.pipeline.cache()?.state())
            }

            /// Keeps received values, if the state has not changed since the keys were looked up in the cache.
            fn keep<'k, K: Into<Key<'k>> + Copy>(
                &self,
                keys: &[K],
                found: &Found,
                received: &ReceivedValues,
                schema: Option<Option<Arc<Schema>>>,
            ) {
                let cache = self.connection.as_ref().and_then(|connection| connection.pipeline.cache());
                if let Some(cache) = cache.filter(|cache| Some(cache.state()) == found.state) {
                    cache.insert(found.missing.iter().map(|position| keys[*position].into()).zip(received.iter()));
                    if let Some(schema) = schema {
                        cache.set_schema(schema);
                    }
                }
            }
        }
    };
}

impl_cached_methods!(Client, BlockingConnection, [], []);
#[cfg(feature = "tokio")]
impl_cached_methods!(AsyncClient, AsyncConnection, [async], [.await]);
