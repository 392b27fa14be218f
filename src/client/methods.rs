//! The methods of [`Client`] and [`AsyncClient`](super::AsyncClient), written once for both.
//!
//! In: keys and ranges. Out: decoded responses, or an error within the call's time-out. The macro [`impl_client`]
//! expands to the methods of one client: `$async` stands for `async` or nothing, and `$await` for `.await` or nothing.
//! To add a method to both clients, add it to the macro.
//!
//! Reasons and evidence: `docs/decisions/client-protocol.md`.

use std::ffi::OsStr;
use std::sync::Arc;

#[cfg(feature = "tokio")]
use super::AsyncClient;
use super::address::Address;
#[cfg(feature = "tokio")]
use super::asynchronous::AsyncConnection;
use super::batch::{self, Batch, EncodeRequest, VisitResponse};
use super::blocking::BlockingConnection;
use super::columns::ColumnsCache;
use super::error::ClientError;
use super::login::Login;
use super::options::Options;
use super::pool::PoolMember;
use super::request::{
    Authenticate, Bounds, Ceiling, Count, Cover, Exists, FirstRow, Floor, Get, GetInfo, GetKeyType, GetPage,
    GetTopology, Info, KeyRange, KeyRequest, LastRow, Ping, RangeRow, Reload, Rollback, Row, RowPage, TypedRequest,
    check_bounds, prefix_range,
};
use super::retry::{Deadline, Retry};
use super::rows::RangeCursor;
use super::target::Target;
use super::transport::Tracking;
use super::{Client, ClientRows};
use crate::format::KeyBounds;
use crate::format::key::Key;
use crate::format::key_type::KeyType;

/// Implements the methods of one client.
macro_rules! impl_client {
    ($Client:ident, $Connection:ident, $sleep:path, [$($async:tt)?], [$($await:tt)*]) => {
        /// Creating a connected client.
        impl $Client {
            /// Connects to the server at an [`Address`]: a path, or a URL such as `zkv+tls://user@host:port`.
            ///
            /// # Errors
            /// [`ClientError`]. Connecting is not retried.
            pub $($async)? fn connect(address: impl AsRef<OsStr>) -> Result<Self, ClientError> {
                Self::connect_with(address, &Options::default())$($await)*
            }

            /// Connects like [`Self::connect`], with options.
            ///
            /// # Errors
            /// [`ClientError`].
            pub $($async)? fn connect_with(address: impl AsRef<OsStr>, options: &Options) -> Result<Self, ClientError> {
                let mut client = Self::unconnected(&Target::new(address.as_ref(), options)?);
                client.connection = Some(client.open_connection(Deadline::after(None))$($await)*?);
                Ok(client)
            }

            /// Returns the address of the server.
            pub fn address(&self) -> &Address {
                &self.target.address
            }
        }

        /// Lookups of keys.
        impl $Client {
            /// Returns the value of a key, or `None` if the table does not have the key.
            ///
            /// Memory for the value grows as its bytes arrive, up to [`Options::value_len_max_bytes`]. A response that
            /// announces a longer value is an error.
            ///
            /// # Errors
            /// [`ClientError`].
            pub $($async)? fn get<'k>(&mut self, key: impl Into<Key<'k>>) -> Result<Option<Vec<u8>>, ClientError> {
                if self.target.options.cache.is_some() {
                    return self.get_with(key, |value| value.map(<[u8]>::to_vec))$($await)*;
                }
                self.call(Get::new(key)?)$($await)*
            }

            /// Passes the value of a key to `visit`, and returns the result of `visit`. The value is borrowed from the
            /// receive buffer.
            ///
            /// # Errors
            /// [`ClientError`]. `visit` is called only after a valid response.
            pub $($async)? fn get_with<'k, T>(
                &mut self,
                key: impl Into<Key<'k>>,
                visit: impl FnOnce(Option<&[u8]>) -> T,
            ) -> Result<T, ClientError> {
                let get = Get::new(key)?;
                if self.target.options.cache.is_some() {
                    return Ok(visit(self.get_cached(&[get.key()])$($await)*?.iter().next().flatten()));
                }
                let (mut visit, mut output) = (Some(visit), None);
                self.exchange(batch::single(&get, |response| {
                    let value = get.decode_borrowed(response)?;
                    output = visit.take().map(|visit| visit(value));
                    Ok(())
                }))
                $($await)*?;
                Ok(output.expect("an exchange without an error has one response"))
            }

            /// Returns the values of many keys, in the order of the keys. Requests are pipelined: hundreds of requests
            /// take one round trip.
            ///
            /// # Errors
            /// [`ClientError`]. If the server responds to one key with an error, the whole call fails.
            pub $($async)? fn get_many<'k, K: Into<Key<'k>> + Copy>(
                &mut self,
                keys: &[K],
            ) -> Result<Vec<Option<Vec<u8>>>, ClientError> {
                let mut values = Vec::with_capacity(keys.len());
                self.get_many_with(keys, |_, value| values.push(value.map(<[u8]>::to_vec)))$($await)*?;
                Ok(values)
            }

            /// Passes the values of many keys to `visit`, in the order of the keys, each with the position of its key
            /// in `keys`. The values are borrowed from the receive buffer.
            ///
            /// # Errors
            /// [`ClientError`]. If the server responds to a key with an error, `visit` is called only for the keys
            /// before that key.
            pub $($async)? fn get_many_with<'k, K: Into<Key<'k>> + Copy>(
                &mut self,
                keys: &[K],
                mut visit: impl FnMut(usize, Option<&[u8]>),
            ) -> Result<(), ClientError> {
                if self.target.options.cache.is_some() {
                    batch::check_keys(keys)?;
                    let values = self.get_cached(keys)$($await)*?;
                    values.iter().enumerate().for_each(|(position, value)| visit(position, value));
                    return Ok(());
                }
                self.exchange(batch::for_keys(keys, |position, get: Get<'k>, response| {
                    visit(position, get.decode_borrowed(response)?);
                    Ok(())
                })?)
                $($await)*
            }

            /// Returns whether the table has a key. The server does not read or verify the value.
            ///
            /// # Errors
            /// [`ClientError`].
            pub $($async)? fn contains<'k>(&mut self, key: impl Into<Key<'k>>) -> Result<bool, ClientError> {
                self.call(Exists::new(key)?)$($await)*
            }

            /// Returns whether the table has each of many keys, in the order of the keys.
            /// Requests are pipelined as in [`Self::get_many`].
            ///
            /// # Errors
            /// The errors of [`Self::get_many`].
            pub $($async)? fn contains_many<'k, K: Into<Key<'k>> + Copy>(
                &mut self,
                keys: &[K],
            ) -> Result<Vec<bool>, ClientError> {
                self.call_many::<_, Exists<'k>>(keys)$($await)*
            }

            /// Returns the row with the largest key less than or equal to `key`.
            ///
            /// # Errors
            /// [`ClientError`].
            pub $($async)? fn floor<'k>(&mut self, key: impl Into<Key<'k>>) -> Result<Option<Row>, ClientError> {
                self.call(Floor::new(key)?)$($await)*
            }

            /// Returns the result of [`Self::floor`] for each of many keys, in the order of the keys. Requests are
            /// pipelined as in [`Self::get_many`].
            ///
            /// # Errors
            /// The errors of [`Self::get_many`].
            pub $($async)? fn floor_many<'k, K: Into<Key<'k>> + Copy>(
                &mut self,
                keys: &[K],
            ) -> Result<Vec<Option<Row>>, ClientError> {
                self.call_many::<_, Floor<'k>>(keys)$($await)*
            }

            /// Returns the row with the smallest key greater than or equal to `key`.
            ///
            /// # Errors
            /// [`ClientError`].
            pub $($async)? fn ceiling<'k>(&mut self, key: impl Into<Key<'k>>) -> Result<Option<Row>, ClientError> {
                self.call(Ceiling::new(key)?)$($await)*
            }

            /// Returns the result of [`Self::ceiling`] for each of many keys, in the order of the keys. Requests are
            /// pipelined as in [`Self::get_many`].
            ///
            /// # Errors
            /// The errors of [`Self::get_many`].
            pub $($async)? fn ceiling_many<'k, K: Into<Key<'k>> + Copy>(
                &mut self,
                keys: &[K],
            ) -> Result<Vec<Option<Row>>, ClientError> {
                self.call_many::<_, Ceiling<'k>>(keys)$($await)*
            }
        }

        /// Ranges of keys.
        impl $Client {
            /// Returns the range that contains `key`, in a table of ranges: its first key, its last key, and its value.
            ///
            /// # Errors
            /// [`ClientError::Server`] if the rows are no ranges; other [`ClientError`].
            pub $($async)? fn cover<'k>(&mut self, key: impl Into<Key<'k>>) -> Result<Option<RangeRow>, ClientError> {
                self.call(Cover::new(key)?)$($await)*
            }

            /// Returns the result of [`Self::cover`] for each of many keys, in the order of the keys. Requests are
            /// pipelined as in [`Self::get_many`].
            ///
            /// # Errors
            /// The errors of [`Self::get_many`] and [`Self::cover`].
            pub $($async)? fn cover_many<'k, K: Into<Key<'k>> + Copy>(
                &mut self,
                keys: &[K],
            ) -> Result<Vec<Option<RangeRow>>, ClientError> {
                self.call_many::<_, Cover<'k>>(keys)$($await)*
            }
        }

        /// Rows in key order.
        impl $Client {
            /// Returns the row with the smallest key.
            ///
            /// # Errors
            /// [`ClientError`].
            pub $($async)? fn first(&mut self) -> Result<Option<Row>, ClientError> {
                self.call(FirstRow)$($await)*
            }

            /// Returns the row with the largest key.
            ///
            /// # Errors
            /// [`ClientError`].
            pub $($async)? fn last(&mut self) -> Result<Option<Row>, ClientError> {
                self.call(LastRow)$($await)*
            }

            /// Iterates over all rows in key order, from either end.
            pub fn iter(&mut self) -> ClientRows<'_, $Client> {
                ClientRows::new(self, KeyRange::from(Bounds::ALL))
            }

            /// Iterates over the rows whose keys are in a range, in key order, from either end. A range whose end
            /// precedes its start has no rows.
            ///
            /// No request is sent before the first row is taken. After that, each request is for one page of rows.
            ///
            /// # Errors
            /// [`ClientError::KeyLen`] if a key is too long, and [`ClientError::MixedKeys`]. Unlike a key to look up,
            /// the key at an end of the range may be empty.
            pub fn range<'k>(&mut self, range: impl KeyBounds<'k>) -> Result<ClientRows<'_, $Client>, ClientError> {
                let range = KeyRange::from(check_bounds(&range)?);
                Ok(ClientRows::new(self, range))
            }

            /// Iterates over the rows whose keys start with `prefix`, in key order, from either end.
            ///
            /// # Errors
            /// [`ClientError::KeyLen`].
            pub fn prefix(&mut self, prefix: impl AsRef<[u8]>) -> Result<ClientRows<'_, $Client>, ClientError> {
                let range = prefix_range(prefix.as_ref())?;
                Ok(ClientRows::new(self, range))
            }

            /// Returns the first rows of a range: at most `limit_rows`, or as many as fit into a page if `limit_rows`
            /// is 0. [`RowPage::rest`] is the range to request next, on this or another connection.
            ///
            /// # Errors
            /// [`ClientError`]. Unlike a key to look up, the key at an end of the range may be empty.
            pub $($async)? fn first_page<'k>(
                &mut self,
                range: impl KeyBounds<'k>,
                limit_rows: u32,
            ) -> Result<RowPage, ClientError> {
                self.call(GetPage::first(range, limit_rows)?)$($await)*
            }

            /// Returns the last rows of a range, like [`Self::first_page`]. The rows are in ascending key order.
            ///
            /// # Errors
            /// The errors of [`Self::first_page`].
            pub $($async)? fn last_page<'k>(
                &mut self,
                range: impl KeyBounds<'k>,
                limit_rows: u32,
            ) -> Result<RowPage, ClientError> {
                self.call(GetPage::last(range, limit_rows)?)$($await)*
            }

            /// Returns the number of keys in a range. The server sends no rows.
            ///
            /// # Errors
            /// The errors of [`Self::first_page`].
            pub $($async)? fn count<'k>(&mut self, range: impl KeyBounds<'k>) -> Result<u64, ClientError> {
                self.call(Count::new(range)?)$($await)*
            }

            /// Returns the number of keys that start with `prefix`.
            ///
            /// # Errors
            /// The errors of [`Self::first_page`].
            pub $($async)? fn count_prefix(&mut self, prefix: impl AsRef<[u8]>) -> Result<u64, ClientError> {
                self.call(Count::new(prefix_range(prefix.as_ref())?.bounds())?)$($await)*
            }

            /// Returns the type of the table's keys, which parses and writes keys. A user who may read any key may
            /// send the request. From then on, the client expects keys of this type: see [`Self::expect_key_type`].
            ///
            /// # Errors
            /// [`ClientError`].
            pub $($async)? fn key_type(&mut self) -> Result<KeyType, ClientError> {
                let key_type = self.call(GetKeyType)$($await)*?;
                self.key_type = Some(key_type);
                if let Some(connection) = &mut self.connection {
                    connection.pipeline.set_key_type(Some(key_type));
                }
                Ok(key_type)
            }

            /// Makes later calls with keys fail with [`ClientError::KeyTypeChanged`] unless the keys of the table have
            /// this type. With `None`, and before a call of [`Self::key_type`], keys are stored keys: the number 7 finds
            /// the row with the stored number 7, whatever it means.
            ///
            /// A server can replace its table by one whose keys have another type. Each connection of the client
            /// requests the type, and the server looks no key up in a table of another type. A client that a pool lends
            /// expects no type at first.
            pub fn expect_key_type(&mut self, key_type: impl Into<Option<KeyType>>) {
                self.key_type = key_type.into();
            }

            /// Returns the next row of an iteration that goes forward from the start of a range, or, if `backward` is
            /// true, backward from its end. Requests the next page if the cursor has no received row left.
            pub(super) $($async)? fn next_row(
                &mut self,
                cursor: &mut RangeCursor,
                backward: bool,
            ) -> Result<Option<Row>, ClientError> {
                loop {
                    if let Some(row) = cursor.next(backward) {
                        return Ok(Some(row));
                    }
                    // The cursor changes only after the page has arrived, so a future that is dropped before then loses
                    // no rows.
                    let Some(range) = cursor.unread().cloned() else { return Ok(None) };
                    match self.call(cursor.page_request(&range, backward))$($await)* {
                        Ok(page) => cursor.add_page(page, backward),
                        Err(error) => {
                            cursor.end();
                            return Err(error);
                        }
                    }
                }
            }
        }

        /// Requests about the server.
        impl $Client {
            /// Sends a request without a key and waits for the response. The request succeeds for tables with either
            /// kind of keys.
            ///
            /// # Errors
            /// [`ClientError::Server`] from a server that does not support the request, and the errors of
            /// [`Self::get`].
            pub $($async)? fn ping(&mut self) -> Result<(), ClientError> {
                self.call(Ping)$($await)*
            }

            /// Returns facts about the server and its table.
            ///
            /// # Errors
            /// [`ClientError::Server`] from a server that does not support the request, and the errors of
            /// [`Self::get`].
            pub $($async)? fn info(&mut self) -> Result<Info, ClientError> {
                self.call(GetInfo)$($await)*
            }

            /// Returns the topology of the cluster that the server is a node of, as JSON: see docs/CLUSTER.md. Returns
            /// `None` if the server is not a node of a cluster, or has no topology yet.
            ///
            /// # Errors
            /// [`ClientError::Server`] from a server that does not support the request, and the errors of
            /// [`Self::get`].
            pub $($async)? fn topology(&mut self) -> Result<Option<String>, ClientError> {
                self.call(GetTopology)$($await)*
            }

            /// Logs in as a user of the server. From then on, the client has the permissions of this user, even after
            /// it reconnects. Over the Unix socket, a client that does not log in has all permissions.
            ///
            /// # Errors
            /// - [`ClientError::LoginFailed`] if the user is unknown or disabled, or if the password is wrong. The
            ///   server delays the response to a failed login. The connection keeps its previous permissions.
            /// - The errors of [`Self::get`].
            pub $($async)? fn authenticate(
                &mut self,
                user: &str,
                password: impl AsRef<[u8]>,
            ) -> Result<(), ClientError> {
                let login = Login::new(user, password.as_ref());
                let authenticate = Authenticate::new(&login);
                self.call(authenticate.map_err(|problem| self.target.configuration(problem))?)$($await)*?;
                self.login = Some(login);
                // The values are those of the user who was logged in before.
                if let Some(connection) = &mut self.connection {
                    connection.pipeline.tracking = Tracking::Off;
                }
                Ok(())
            }

            /// Makes the server reload its file. Returns the number of the attempt, without waiting until the attempt
            /// ends. [`Self::info`] reports the last completed attempt: its number as `reload_done`, and its outcome as
            /// `reload_last`.
            ///
            /// # Errors
            /// [`ClientError::Server`] if this client may not send the request, and the errors of [`Self::get`]. The
            /// request is never retried.
            pub $($async)? fn reload(&mut self) -> Result<u64, ClientError> {
                self.call(Reload)$($await)*
            }

            /// Makes the server go back to the previous table, and refuse the one that it replaces. Returns the number
            /// of the attempt, like [`Self::reload`].
            ///
            /// # Errors
            /// The errors of [`Self::reload`].
            pub $($async)? fn rollback(&mut self) -> Result<u64, ClientError> {
                self.call(Rollback)$($await)*
            }
        }

        /// Requests of any type.
        impl $Client {
            /// Sends one request and returns its decoded response.
            ///
            /// # Errors
            /// [`ClientError`].
            pub $($async)? fn call<R: TypedRequest>(&mut self, request: R) -> Result<R::Output, ClientError> {
                let mut output = None;
                self.exchange(batch::single(&request, |response| {
                    output = Some(request.decode(response)?);
                    Ok(())
                }))
                $($await)*?;
                Ok(output.expect("an exchange without an error has one response"))
            }
        }

        /// Connection and retries.
        impl $Client {
            /// Sends a request for each key, and returns the decoded responses in the order of the keys.
            $($async)? fn call_many<'k, K, R>(&mut self, keys: &[K]) -> Result<Vec<R::Output>, ClientError>
            where
                K: Into<Key<'k>> + Copy,
                R: KeyRequest<'k>,
            {
                let mut outputs = Vec::with_capacity(keys.len());
                self.exchange(batch::for_keys(keys, |_, request: R, response| {
                    outputs.push(request.decode(response)?);
                    Ok(())
                })?)
                $($await)*?;
                Ok(outputs)
            }

            /// Connects. Also logs in if the address or the options name a user, or if a call of `authenticate` has
            /// succeeded before.
            pub(super) $($async)? fn open_connection(&self, deadline: Deadline) -> Result<$Connection, ClientError> {
                let authenticate = self.target.authenticate(self.login.as_ref())?;
                let mut connection = $Connection::connect(&self.target, deadline)$($await)*?;
                if let Some(request) = &authenticate {
                    // Outside a call, `deadline` is unlimited. The login then gets the time-out of a call.
                    let deadline = deadline.or_after(self.target.options.call_timeout);
                    let mut batch = batch::single(request, |response| request.decode(response));
                    self.transfer(&mut connection, &mut batch, deadline)$($await)*?;
                    batch.into_result().map_err(|error| ClientError::request(self.address(), error))?;
                }
                Ok(connection)
            }

            /// Sends all requests of a batch and visits their responses. Reconnects after a failure, and then resends
            /// only requests without a response, or, in a batch with guards, all requests.
            pub(super) $($async)? fn exchange<E: EncodeRequest, V: VisitResponse>(
                &mut self,
                batch: Batch<E, V>,
            ) -> Result<(), ClientError> {
                self.exchange_until(batch, self.call_deadline())$($await)*
            }

            /// Returns the end of the time-out of a call that starts now.
            pub(super) fn call_deadline(&self) -> Deadline {
                Deadline::after(self.target.options.call_timeout).or_earlier(self.call_end)
            }

            /// Does what [`Self::exchange`] does, until a deadline.
            pub(super) $($async)? fn exchange_until<E: EncodeRequest, V: VisitResponse>(
                &mut self,
                mut batch: Batch<E, V>,
                deadline: Deadline,
            ) -> Result<(), ClientError> {
                let mut retry = Retry::new(&self.target.options, batch.is_idempotent());
                while let Err(error) = self.exchange_once(&mut batch, deadline)$($await)* {
                    match retry.pause_after(&error, deadline) {
                        Some(pause) => $sleep(pause)$($await)*,
                        None => return Err(error),
                    }
                }
                batch.into_result().map_err(|error| ClientError::request(&self.target.address, error))
            }

            /// Sends the unsent requests of a batch, on one connection. The client keeps the connection only after
            /// success: an error, a panic, or a dropped future closes the connection.
            $($async)? fn exchange_once<E: EncodeRequest, V: VisitResponse>(
                &mut self,
                batch: &mut Batch<E, V>,
                deadline: Deadline,
            ) -> Result<(), ClientError> {
                // Taken out until the batch is complete: a connection with a response in flight must never serve a
                // later call, even if this call panics or its future is dropped.
                let mut connection = match batch.has_keys() {
                    true => self.connection_for_keys(deadline)$($await)*?,
                    false => self.any_connection(deadline)$($await)*?,
                };
                if batch.requests_key_type() {
                    connection.pipeline.begin_key_type();
                }
                batch.resend();
                self.transfer(&mut connection, batch, deadline)$($await)*?;
                self.connection = Some(connection);
                Ok(())
            }

            /// Takes the connection out of the client, or opens one.
            pub(super) $($async)? fn any_connection(&mut self, deadline: Deadline) -> Result<$Connection, ClientError> {
                match self.connection.take() {
                    Some(connection) => Ok(connection),
                    None => self.open_connection(deadline)$($await)*,
                }
            }

            /// Takes the connection out of the client, or opens one. The server looks keys of the connection up only in
            /// tables with keys of the expected type.
            pub(super) $($async)? fn connection_for_keys(
                &mut self,
                deadline: Deadline,
            ) -> Result<$Connection, ClientError> {
                let Some(expected) = self.key_type else {
                    // A connection on which another borrower of the pool has requested the type is of no use.
                    self.connection.take_if(|connection| connection.pipeline.key_type().is_some());
                    return self.any_connection(deadline)$($await)*;
                };
                loop {
                    let mut connection = self.any_connection(deadline)$($await)*?;
                    if connection.pipeline.key_type() == Some(expected) {
                        return Ok(connection);
                    }
                    connection.pipeline.begin_key_type();
                    let mut found = None;
                    let mut batch = batch::single(&GetKeyType, |response| {
                        found = Some(GetKeyType.decode(response)?);
                        Ok(())
                    });
                    self.transfer(&mut connection, &mut batch, deadline)$($await)*?;
                    let result = batch.into_result().map_err(|error| ClientError::request(self.address(), error));
                    connection.pipeline.set_key_type(found);
                    self.connection = Some(connection);
                    result?;
                    if found != Some(expected) {
                        return Err(ClientError::KeyTypeChanged { server: self.address().clone() });
                    }
                }
            }

            /// Sends the requests of a batch over a connection, until all responses have arrived.
            pub(super) $($async)? fn transfer<E: EncodeRequest, V: VisitResponse>(
                &self,
                connection: &mut $Connection,
                batch: &mut Batch<E, V>,
                deadline: Deadline,
            ) -> Result<(), ClientError> {
                loop {
                    // Responses are read while requests are unsent, because a server buffers only a limited number of
                    // requests while its responses are not read.
                    match connection.pipeline.advance(batch) {
                        Ok(false) => {}
                        Ok(true) => return Ok(()),
                        Err(violation) => return Err(ClientError::violation(&self.target.address, violation)),
                    }
                    if let Err(error) = connection.transfer(deadline)$($await)* {
                        return Err(connection.pipeline.error(&self.target.address, error, deadline));
                    }
                }
            }
        }

        impl PoolMember for $Client {
            fn unconnected(target: &Arc<Target>) -> Self {
                $Client {
                    target: Arc::clone(target),
                    login: None,
                    columns: ColumnsCache::default(),
                    key_type: None,
                    call_end: None,
                    connection: None,
                }
            }

            fn target(&self) -> &Arc<Target> {
                &self.target
            }

            fn is_connected(&self) -> bool {
                self.connection.is_some()
            }

            fn forget_key_type(&mut self) {
                self.key_type = None;
            }

            fn drop_unless_idle(&mut self) {
                let deadline = self.call_deadline();
                self.connection.take_if(|connection| !connection.is_idle(deadline));
            }
        }
    };
}

impl_client!(Client, BlockingConnection, std::thread::sleep, [], []);
#[cfg(feature = "tokio")]
impl_client!(AsyncClient, AsyncConnection, tokio::time::sleep, [async], [.await]);
