//! The class `ClusterClient`: blocking requests to the nodes of a cluster.
//!
//! In: keys. Out: the results that the nodes sent. Threads can share a client: each call uses a set of connections of its
//! own.

use std::ops::Bound as End;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use zero_kv::client::{self, ClientError, ClusterOptions, Options};
use zero_kv::{Key, KeyKind};

use crate::arguments::{UserName, duration};
use crate::client_lookups::{
    all_rows, call_for_key, exist, exists, first_row, last_row, neighbor, rows, typed_row, typed_rows, value,
};
use crate::client_rows::{ClientRowIterator, ClientRows};
use crate::columns::{self, Wanted};
use crate::connection::Security;
use crate::connection_pool::{ConnectionPool, SendRequests};
use crate::convert::{missing_key, prefix_from, range_between, range_kind, range_with_prefix};
use crate::interrupt;
use crate::many;
use crate::neighbors::{Neighbor, neighbor_many};
use crate::rows::RowPart;
use crate::schema;
use crate::typed_row::TypedRow;

/// The addresses of nodes: one address, or several.
#[derive(FromPyObject)]
enum Nodes {
    One(PathBuf),
    Several(Vec<PathBuf>),
}

/// A blocking client of a cluster, which sends each request to a node that has the rows of the key's slot.
///
/// `nodes` is the address of a node, or a list of addresses, such as `["zkv://10.0.0.1:6380", "zkv://10.0.0.2:6380"]`. The
/// client learns the topology from the first of them that responds, and learns it again when a node responds that another
/// node has the slot, or cannot be reached. Requests to different nodes are sent at the same time.
///
/// With `read_from_replicas=True`, requests go to replicas first; otherwise they go to a replica only if the primary cannot
/// be reached. `zone` is the zone of this process, whose nodes are preferred to other nodes with the same role. In each of
/// `attempts` attempts, a call tries all nodes of a slot until one answers. `timeout` is the maximum time in seconds of one
/// request to one node. After this time, a call that all nodes of a slot have failed to answer is not attempted again, and
/// after twice this time, a call ends. `None` means no limit. The other options are those of `Client`, for the connections to
/// all nodes.
///
/// A client is a mapping, as a `Table` is, and `strict` is described at `Table`. Threads can share a client. After a fork,
/// the child process reconnects. Ctrl-C ends a call to one node; a call to several nodes ends when all of them have
/// responded, or after `timeout`.
///
/// Raises `NotRunning`, `Refused`, `TimedOut`, or `Closed` if no node of a slot can be reached, `ProtocolError` if a node sends
/// an invalid topology, `ServerError` if nodes redirect requests to each other, `ValueError` if a server is not a node of a
/// cluster, and the exceptions of `Client`.
#[pyclass(frozen, module = "zero_kv")]
pub(crate) struct ClusterClient {
    pool: Arc<ConnectionPool<client::ClusterClient>>,
    nodes: Vec<PathBuf>,
    options: ClusterOptions,
    security: Security,
    /// Whether a key that the table cannot have is an error.
    is_strict: bool,
}

impl SendRequests for ClusterClient {
    type Connection = client::ClusterClient;

    fn pool(&self) -> &Arc<ConnectionPool<client::ClusterClient>> {
        &self.pool
    }

    fn is_strict(&self) -> bool {
        self.is_strict
    }
}

impl ClusterClient {
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut client::ClusterClient) -> Result<T, ClientError> + Send,
    ) -> PyResult<T> {
        self.pool.call(py, call)
    }

    /// Returns the addresses as text, because a path object would drop a slash of a URL.
    fn addresses<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.nodes.iter().map(|node| node.as_os_str()))
    }
}

#[pymethods]
impl ClusterClient {
    #[new]
    #[pyo3(signature = (nodes, *, read_from_replicas = false, zone = None, attempts = 10, connect_timeout = 1.0,
                        timeout = Some(30.0), server_user = None, strict = false, **security),
           text_signature = "(nodes, *, read_from_replicas=False, zone=None, attempts=10, connect_timeout=1.0, \
                             timeout=30.0, server_user=None, strict=False, user=None, password=None, \
                             password_file=None, ca_file=None, certificate_file=None, key_file=None, \
                             server_name=None)")]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn new(
        py: Python<'_>,
        nodes: Nodes,
        read_from_replicas: bool,
        zone: Option<String>,
        attempts: u32,
        connect_timeout: f64,
        timeout: Option<f64>,
        server_user: Option<UserName>,
        strict: bool,
        security: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<ClusterClient> {
        let nodes = match nodes {
            Nodes::One(node) => vec![node],
            Nodes::Several(nodes) => nodes,
        };
        let Some(first) = nodes.first() else {
            return Err(PyValueError::new_err("nodes is empty: give the address of at least one node"));
        };
        let mut options = Options {
            connect_timeout: duration("connect_timeout", connect_timeout)?,
            call_timeout: timeout.map(|timeout| duration("timeout", timeout)).transpose()?,
            server_user: server_user.map(String::from),
            interrupt_check: Some(interrupt::is_raised),
            ..Options::default()
        };
        let security = Security::from_keywords(security)?;
        security.add_to(first, &mut options)?;
        let options = ClusterOptions { client: options, reads_replicas: read_from_replicas, zone, attempts };
        let name = nodes.iter().map(|node| node.display().to_string()).collect::<Vec<_>>().join(", ");
        let (seeds, connection_options) = (nodes.clone(), options.clone());
        let pool = ConnectionPool::new(name, move || client::ClusterClient::connect_with(&seeds, &connection_options));
        let client = ClusterClient { pool: Arc::new(pool), nodes, options, security, is_strict: strict };
        // This call connects, so the constructor raises an exception if no node responds.
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

    /// Return the bytes of the values or rows of many keys, in the order of the keys. The result has `None` for keys that
    /// the table does not have.
    fn get_bytes_many<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        many::get_bytes_many(self, keys)
    }

    /// Return the values of many keys, in the order of the keys: see `Table.get_many`. The requests to different nodes are
    /// sent at the same time.
    ///
    /// If nodes replace their tables during the call, the values may come from both the old and the new table.
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

    /// Return the columns of a node's table, or `None` if its values are bytes.
    fn schema(&self, py: Python<'_>) -> PyResult<Option<schema::Schema>> {
        Ok(self.call(py, client::ClusterClient::schema)?.map(schema::Schema))
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

    /// Return the rows of many keys in a typed table, in the order of the keys. The result has `None` for keys that the
    /// table does not have.
    fn get_rows(&self, keys: &Bound<'_, PyAny>) -> PyResult<Vec<Option<TypedRow>>> {
        typed_rows(self, keys)
    }

    /// Return some columns of the rows of many keys in a typed table, in the order of the keys: see `Table.columns`. The
    /// nodes send only these columns.
    ///
    /// Raises `ServerError` if the columns have different types on different nodes, as during the change to a table with
    /// other columns.
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

    /// Return whether the table has each of many keys.
    fn exists_many(&self, keys: &Bound<'_, PyAny>) -> PyResult<Vec<bool>> {
        exist(self, keys)
    }

    /// Return the number of rows of all nodes.
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

    /// Return all keys of all nodes in ascending order, requested page by page during each iteration.
    fn keys(&self) -> ClientRows {
        all_rows(self, RowPart::Keys)
    }

    /// Return all values of all nodes, in the order of their keys, requested page by page during each iteration.
    fn values(&self) -> ClientRows {
        all_rows(self, RowPart::Values)
    }

    /// Return all rows of all nodes, in the order of their keys, requested page by page during each iteration.
    fn items(&self) -> ClientRows {
        all_rows(self, RowPart::Both)
    }

    /// Return the row with the largest key less than or equal to `key`, of all nodes.
    fn floor<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        neighbor(self, key, Neighbor::Floor)
    }

    /// Return the result of `floor` for many keys, in the order of the keys: see `Table.floor_many`.
    #[pyo3(signature = (keys, *, dtype = None))]
    fn floor_many<'py>(
        slf: &Bound<'py, Self>,
        keys: &Bound<'py, PyAny>,
        dtype: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        neighbor_many(slf.as_any(), slf.get(), keys, dtype.as_ref(), Neighbor::Floor)
    }

    /// Return the row with the smallest key greater than or equal to `key`, of all nodes.
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

    /// Return the row with the smallest key of all nodes.
    fn first<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        first_row(self, py)
    }

    /// Return the row with the largest key of all nodes.
    fn last<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        last_row(self, py)
    }

    /// Return the rows of all nodes with keys from `start` up to, but not including, `end`, in key order.
    #[pyo3(signature = (start = None, end = None))]
    fn range(&self, start: Option<&Bound<'_, PyAny>>, end: Option<&Bound<'_, PyAny>>) -> PyResult<ClientRows> {
        Ok(rows(self, range_between(start, end)?, RowPart::Both))
    }

    /// Return the rows of all nodes whose keys start with `prefix`, in key order.
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

    /// Return the topology that the client follows, as the document that docs/CLUSTER.md describes.
    fn topology<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let json = self.call(py, |client| Ok(client.topology().to_json()))?;
        py.import("json")?.getattr("loads")?.call1((json,))
    }

    /// Disconnect from all nodes. Later calls raise `Closed`.
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

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let state = if self.pool.check_open().is_ok() { "" } else { ", closed" };
        Ok(format!("<zero_kv.ClusterClient {}{state}>", self.addresses(py)?.repr()?))
    }

    /// Pickles the addresses and the options, including a password. The process that unpickles the client opens its own
    /// connections.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let reconnect = py.import("zero_kv")?.getattr("_reconnect_to_cluster")?;
        let ClusterOptions { client: options, reads_replicas, zone, attempts } = &self.options;
        let keywords = PyDict::new(py);
        keywords.set_item("read_from_replicas", reads_replicas)?;
        keywords.set_item("zone", zone)?;
        keywords.set_item("attempts", attempts)?;
        keywords.set_item("connect_timeout", options.connect_timeout.as_secs_f64())?;
        keywords.set_item("timeout", options.call_timeout.map(|timeout| timeout.as_secs_f64()))?;
        keywords.set_item("server_user", options.server_user.as_deref())?;
        keywords.set_item("strict", self.is_strict)?;
        self.security.add_to_keywords(&keywords)?;
        (reconnect, (self.addresses(py)?, keywords)).into_pyobject(py)
    }
}
