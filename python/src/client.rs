//! The class `Client`: blocking requests to a server.
//!
//! In: keys. Out: the results that the server sent. Threads can share a client: each call uses one of its connections.

use std::ffi::OsString;
use std::ops::Bound as End;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple, PyType};
use zero_kv::client::{self, ClientError, Options};
use zero_kv::{Key, KeyKind};

use crate::arguments::{UserName, duration};
use crate::client_lookups::{
    all_rows, call_for_key, exist, exists, first_row, last_row, neighbor, rows, typed_row, typed_rows, value,
};
use crate::client_rows::{ClientRowIterator, ClientRows};
use crate::columns::{self, Wanted};
use crate::connection::Security;
use crate::connection_pool::{ConnectionPool, SendRequests};
use crate::convert::{info_dict, missing_key, prefix_from, range_between, range_kind, range_with_prefix};
use crate::errors::client_exception;
use crate::interrupt;
use crate::many;
use crate::neighbors::{Neighbor, neighbor_many};
use crate::rows::RowPart;
use crate::schema;
use crate::typed_row::TypedRow;

/// A blocking client of a server. The address is the path of a Unix socket (a path that starts with `@` names an
/// abstract socket), `zkv://host:port` for TCP, or `zkv+tls://host:port` for TCP with TLS. The default is the value of the
/// environment variable `ZERO_KV_SOCKET`, or `/tmp/zero-kv.sock`.
///
/// A client is a mapping, as a `Table` is: `[]`, `in`, `len`, and iteration send requests, and `strict` is described at
/// `Table`. `dict(client)` sends a request for each key, so call `dict(client.items())`.
///
/// Threads can share a client: each call uses its own connection, and other threads run during the call. Ctrl-C ends a
/// call. After a fork, the child process reconnects.
///
/// If the connection fails during a call, for example because the server restarted, the call is retried `retries` times,
/// and attempts to reconnect continue for up to `reconnect_timeout`. If no server runs, a call fails after that time, and
/// the next call reconnects. Connecting takes at most `connect_timeout`, and a call `timeout`. Times are in seconds.
///
/// On a Unix socket, the server must run as root, as this process's user, or as `server_user` (a name or a number, by
/// default the value of the environment variable `ZERO_KV_SERVER_USER`). If no user is named, a server that runs as
/// another user is accepted if only that user, root, and this process's user can write to the socket's directory and
/// the directories above it.
///
/// With a user in the address, as in `zkv+tls://user@host:port`, or with `user`, each connection logs in. The password
/// is `password`, or is read from the file `password_file`, from the environment variable `ZERO_KV_PASSWORD`, or from
/// the file that `ZERO_KV_PASSWORD_FILE` names. With TLS, the server's certificate must be signed by an authority in
/// `ca_file` (by default, one that the system trusts), and must be valid for `server_name` (by default, the host).
/// `certificate_file` and `key_file` are the client's own certificate and its key.
///
/// Raises `NotRunning`, `Refused`, `UntrustedServer`, `TlsFailed`, `LoginFailed`, `NotPermitted`, `TimedOut`, `Closed`,
/// `ProtocolError`, or `ServerError`, which are all subclasses of `Error`.
#[pyclass(frozen, module = "zero_kv")]
pub(crate) struct Client {
    pool: Arc<ConnectionPool<client::Client>>,
    address: PathBuf,
    options: Options,
    security: Security,
    /// Whether a key that the table cannot have is an error.
    is_strict: bool,
}

/// Returns the address in the environment variable `ZERO_KV_SOCKET`, or otherwise the default. It is text, because a path
/// object would drop a slash of a URL.
#[pyfunction]
pub(crate) fn default_address() -> OsString {
    client::default_address().into_os_string()
}

/// Checks whether a client may trust a server at `path` that runs as the user `uid`. The asyncio client calls this
/// function, because it has its own socket code.
#[pyfunction]
pub(crate) fn check_server_user(path: PathBuf, uid: u32, server_user: Option<UserName>) -> PyResult<()> {
    let server_user = server_user.map(String::from);
    client::check_server_user(&path, uid, server_user.as_deref()).map_err(|error| client_exception(&error))
}

impl Client {
    /// Makes a call while other Python threads run.
    pub(crate) fn call<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut client::Client) -> Result<T, ClientError> + Send,
    ) -> PyResult<T> {
        self.pool.call(py, call)
    }
}

impl SendRequests for Client {
    type Connection = client::Client;

    fn pool(&self) -> &Arc<ConnectionPool<client::Client>> {
        &self.pool
    }

    fn is_strict(&self) -> bool {
        self.is_strict
    }
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (address = None, *, connect_timeout = 1.0, timeout = Some(30.0), retries = 1,
                        reconnect_timeout = 0.5, server_user = None, strict = false, **security),
           text_signature = "(address=None, *, connect_timeout=1.0, timeout=30.0, retries=1, reconnect_timeout=0.5, \
                             server_user=None, strict=False, user=None, password=None, password_file=None, \
                             ca_file=None, certificate_file=None, key_file=None, server_name=None)")]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn new(
        py: Python<'_>,
        address: Option<PathBuf>,
        connect_timeout: f64,
        timeout: Option<f64>,
        retries: u32,
        reconnect_timeout: f64,
        server_user: Option<UserName>,
        strict: bool,
        security: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Client> {
        let address = address.unwrap_or_else(client::default_address);
        let mut options = Options {
            connect_timeout: duration("connect_timeout", connect_timeout)?,
            call_timeout: timeout.map(|timeout| duration("timeout", timeout)).transpose()?,
            retries,
            reconnect_timeout: duration("reconnect_timeout", reconnect_timeout)?,
            server_user: server_user.map(String::from),
            interrupt_check: Some(interrupt::is_raised),
            ..Options::default()
        };
        let security = Security::from_keywords(security)?;
        security.add_to(&address, &mut options)?;
        let (server, connection_options) = (address.clone(), options.clone());
        let pool = ConnectionPool::new(address.display().to_string(), move || {
            client::Client::connect_with(&server, &connection_options)
        });
        let client = Client { pool: Arc::new(pool), address, options, security, is_strict: strict };
        // This call connects, so the constructor raises an exception if no server runs.
        client.call(py, |_| Ok(()))?;
        Ok(client)
    }

    /// Return the value of a key, or `default` if the table does not have the key. The value is `bytes`, or, in a typed
    /// table, a `TypedRow`.
    #[pyo3(signature = (key, default = None, /))]
    fn get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(value(self, key)?.or(default))
    }

    /// Return the value of a key, or raise `KeyError` if the table does not have the key.
    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        value(self, key)?.ok_or_else(|| missing_key(key))
    }

    /// Return the bytes of a value or row, or `default` if the table does not have the key.
    #[pyo3(signature = (key, default = None, /))]
    fn get_bytes<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let value = call_for_key(self, key, |client, key| client.get(key))?.flatten();
        Ok(value.map(|value| PyBytes::new(key.py(), &value).into_any()).or(default))
    }

    /// Return the bytes of the values or rows of many keys, in the order of the keys, with pipelined requests. The result
    /// has `None` for keys that the table does not have.
    fn get_bytes_many<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        many::get_bytes_many(self, keys)
    }

    /// Return the values of many keys, in the order of the keys, with pipelined requests: see `Table.get_many`.
    ///
    /// If the server replaces its table during the call, the values may come from both the old and the new table.
    #[pyo3(signature = (keys, *, dtype = None))]
    fn get_many<'py>(
        slf: &Bound<'py, Self>,
        keys: &Bound<'py, PyAny>,
        dtype: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        many::get_many(slf.as_any(), slf.get(), keys, dtype.as_ref())
    }

    /// Whether a key that the table cannot have is an error.
    #[getter]
    fn strict(&self) -> bool {
        self.is_strict
    }

    /// Return the columns of the server's table, or `None` if its values are bytes.
    fn schema(&self, py: Python<'_>) -> PyResult<Option<schema::Schema>> {
        Ok(self.call(py, client::Client::schema)?.map(schema::Schema))
    }

    /// Return the row of a key in a typed table, or `default` if the table does not have the key.
    #[pyo3(signature = (key, default = None, /))]
    fn get_row<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let row = typed_row(self, key)?.map(|row| Bound::new(key.py(), row)).transpose()?;
        Ok(row.map(Bound::into_any).or(default))
    }

    /// Return the rows of many keys in a typed table, in the order of the keys, with pipelined requests. The result has
    /// `None` for keys that the table does not have.
    fn get_rows(&self, keys: &Bound<'_, PyAny>) -> PyResult<Vec<Option<TypedRow>>> {
        typed_rows(self, keys)
    }

    /// Return some columns of the rows of many keys in a typed table, in the order of the keys, with pipelined requests:
    /// see `Table.columns`. The server sends only these columns.
    ///
    /// If the server replaces its table during the call, the rows may come from both the old and the new table. If the new
    /// table has other columns, the client requests its schema, and all rows come from tables with one schema.
    #[pyo3(signature = (keys, columns = None, *, fill = None, out = None, format = "numpy"))]
    fn columns<'py>(
        slf: &Bound<'py, Self>,
        keys: &Bound<'py, PyAny>,
        columns: Option<Bound<'py, PyAny>>,
        fill: Option<Bound<'py, PyAny>>,
        out: Option<Bound<'py, PyAny>>,
        format: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let wanted = Wanted { fill: fill.as_ref(), out: out.as_ref(), format };
        columns::columns(slf.as_any(), slf.get(), keys, columns.as_ref(), &wanted)
    }

    /// Return whether the table has a key. `key in client` does the same.
    fn exists(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        exists(self, key)
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.exists(key)
    }

    /// Return whether the table has each of many keys, with pipelined requests.
    fn exists_many(&self, keys: &Bound<'_, PyAny>) -> PyResult<Vec<bool>> {
        exist(self, keys)
    }

    /// Return the number of rows of the server's table.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let count = self.call(py, |client| client.count((End::Unbounded::<Key<'_>>, End::Unbounded)))?;
        Ok(usize::try_from(count)?)
    }

    fn __iter__(&self) -> PyResult<ClientRowIterator> {
        self.pool.check_open()?;
        Ok(all_rows(self, RowPart::Keys).iterate(false))
    }

    fn __reversed__(&self) -> PyResult<ClientRowIterator> {
        self.pool.check_open()?;
        Ok(all_rows(self, RowPart::Keys).iterate(true))
    }

    /// Return all keys in ascending order, requested page by page during each iteration.
    fn keys(&self) -> ClientRows {
        all_rows(self, RowPart::Keys)
    }

    /// Return all values, in the order of their keys, requested page by page during each iteration.
    fn values(&self) -> ClientRows {
        all_rows(self, RowPart::Values)
    }

    /// Return all rows, in the order of their keys, requested page by page during each iteration.
    fn items(&self) -> ClientRows {
        all_rows(self, RowPart::Both)
    }

    /// Return the row with the largest key less than or equal to `key`.
    fn floor<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        neighbor(self, key, Neighbor::Floor)
    }

    /// Return the result of `floor` for many keys, in the order of the keys, with pipelined requests: see
    /// `Table.floor_many`.
    ///
    /// If the server replaces its table during the call, the rows may come from both the old and the new table.
    #[pyo3(signature = (keys, *, dtype = None))]
    fn floor_many<'py>(
        slf: &Bound<'py, Self>,
        keys: &Bound<'py, PyAny>,
        dtype: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        neighbor_many(slf.as_any(), slf.get(), keys, dtype.as_ref(), Neighbor::Floor)
    }

    /// Return the row with the smallest key greater than or equal to `key`.
    fn ceiling<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        neighbor(self, key, Neighbor::Ceiling)
    }

    /// Return the result of `ceiling` for many keys, in the order of the keys: see `floor_many`.
    #[pyo3(signature = (keys, *, dtype = None))]
    fn ceiling_many<'py>(
        slf: &Bound<'py, Self>,
        keys: &Bound<'py, PyAny>,
        dtype: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        neighbor_many(slf.as_any(), slf.get(), keys, dtype.as_ref(), Neighbor::Ceiling)
    }

    /// Return the row with the smallest key.
    fn first<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        first_row(self, py)
    }

    /// Return the row with the largest key.
    fn last<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        last_row(self, py)
    }

    /// Return the rows with keys from `start` up to, but not including, `end`.
    #[pyo3(signature = (start = None, end = None))]
    fn range(&self, start: Option<&Bound<'_, PyAny>>, end: Option<&Bound<'_, PyAny>>) -> PyResult<ClientRows> {
        Ok(rows(self, range_between(start, end)?, RowPart::Both))
    }

    /// Return the rows whose keys start with `prefix`.
    fn prefix(&self, prefix: &Bound<'_, PyAny>) -> PyResult<ClientRows> {
        Ok(rows(self, range_with_prefix(prefix)?, RowPart::Both))
    }

    /// Return the number of keys from `start` up to, but not including, `end`.
    #[pyo3(signature = (start = None, end = None))]
    fn count(&self, py: Python<'_>, start: Option<&Bound<'_, PyAny>>, end: Option<&Bound<'_, PyAny>>) -> PyResult<u64> {
        let range = range_between(start, end)?;
        self.pool.call_with_kind(py, range_kind(&range), |client| client.count(range.bounds()))
    }

    /// Return the number of keys that start with `prefix`.
    fn count_prefix(&self, prefix: &Bound<'_, PyAny>) -> PyResult<u64> {
        let (py, prefix) = (prefix.py(), prefix_from(prefix)?);
        self.pool.call_with_kind(py, Some(KeyKind::Bytes), |client| client.count_prefix(prefix))
    }

    /// Return facts about the server and its table: see `ServerInfo`.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        info_dict(py, &self.call(py, client::Client::info)?)
    }

    /// Send a request without a key, and return when the server has responded.
    fn ping(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, client::Client::ping)
    }

    /// Disconnect from the server. Later calls raise `Closed`.
    fn close(&self) {
        self.pool.close();
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) {
        self.close();
    }

    /// Returns the class, so that annotations such as `Client[int, bytes]` are valid at run time.
    #[classmethod]
    fn __class_getitem__<'py>(cls: &Bound<'py, PyType>, _types: &Bound<'py, PyAny>) -> Bound<'py, PyType> {
        cls.clone()
    }

    fn __repr__(&self) -> String {
        let state = if self.pool.check_open().is_ok() { "" } else { ", closed" };
        format!("<zero_kv.Client {:?}{state}>", self.address)
    }

    /// Pickles the address and the options, including a password. The address is pickled as text, because a path object
    /// would drop a slash of a URL such as `zkv://host:port`. The process that unpickles the client opens its own
    /// connections.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let reconnect = py.import("zero_kv")?.getattr("_reconnect")?;
        let options = &self.options;
        let keywords = PyDict::new(py);
        keywords.set_item("connect_timeout", options.connect_timeout.as_secs_f64())?;
        keywords.set_item("timeout", options.call_timeout.map(|timeout| timeout.as_secs_f64()))?;
        keywords.set_item("retries", options.retries)?;
        keywords.set_item("reconnect_timeout", options.reconnect_timeout.as_secs_f64())?;
        keywords.set_item("server_user", options.server_user.as_deref())?;
        keywords.set_item("strict", self.is_strict)?;
        self.security.add_to_keywords(&keywords)?;
        (reconnect, (self.address.as_os_str(), keywords)).into_pyobject(py)
    }
}
