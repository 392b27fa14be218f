//! The classes `Client` and `ClusterClient`: blocking requests to a server, and to the nodes of a cluster.
//!
//! In: addresses and options. Out: clients, whose lookups are those of `LookupTable`. Threads can share a client: each
//! call uses its own connections.

use std::path::PathBuf;

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use zero_kv::client::{self, Options};

use crate::connection::Connection;
use crate::connection_pool::ConnectionPool;
use crate::convert::info_dict;
use crate::lookup_table::{Arguments, LookupTable};
use crate::options::Keywords;

/// A blocking client of a server. The address is the path of a Unix socket (a path that starts with `@` names an
/// abstract socket), `zkv://host:port` for TCP, or `zkv+tls://host:port` for TCP with TLS. The default is the value
/// of the environment variable `ZERO_KV_SOCKET`, or `/tmp/zero-kv.sock`.
///
/// A client is a mapping whose `[]`, `in`, `len`, and iteration send requests. It is always true. `dict(client)`
/// sends a request for each key, so call `dict(client.items())`. If the server replaces its table during a call with
/// many keys or an iteration, the results may come from both the old and the new table.
///
/// Threads can share a client: each call uses its own connection, and other threads run during the call. Ctrl-C ends
/// a call. After a fork, the child process reconnects.
///
/// If the connection fails during a call, for example because the server restarted, the call is retried `retries`
/// times, and attempts to reconnect continue for up to `reconnect_timeout`. If no server runs, a call fails after
/// that time, and the next call reconnects. Connecting takes at most `connect_timeout`, and a call `timeout`. Times
/// are in seconds, and without a `timeout` (`None`), a call waits forever. `strict` is described at `LookupTable`.
///
/// With `cache`, a client keeps the values of hot keys in memory, at most this number of bytes, and `get`, `get_many`,
/// `get_bytes`, `get_bytes_many`, and `[]` send no requests for them. A call first reads what the server has announced,
/// without waiting: once the announcement of a new table has arrived, no call returns a value of the old one.
///
/// On a Unix socket, the server must run as root, as this process's user, or as `server_user` (a name or a number,
/// by default the value of the environment variable `ZERO_KV_SERVER_USER`). If no user is named, a server that runs
/// as another user is accepted if only that user, root, and this process's user can write to the socket's directory
/// and the directories above it.
///
/// With a user in the address, as in `zkv+tls://user@host:port`, or with `user`, each connection logs in. The
/// password is `password`, or is read from the file `password_file`, from the environment variable
/// `ZERO_KV_PASSWORD`, or from the file that `ZERO_KV_PASSWORD_FILE` names. With TLS, the server's certificate must
/// be signed by an authority in `ca_file` (by default, one that the system trusts), and must be valid for
/// `server_name` (by default, the host). `certificate_file` and `key_file` are the client's own certificate and its
/// key.
///
/// Raises `NotRunning`, `Refused`, `UntrustedServer`, `TlsFailed`, `LoginFailed`, `NotPermitted`, `TimedOut`,
/// `Closed`, `ProtocolError`, or `ServerError`, which are all subclasses of `Error`.
#[pyclass(frozen, extends = LookupTable, module = "zero_kv")]
pub(crate) struct Client;

/// A blocking client of a cluster, which sends each request to a node that has the rows of the key's slot.
///
/// `nodes` is the address of a node, or a list of addresses, such as `["zkv://10.0.0.1:6380",
/// "zkv://10.0.0.2:6380"]`. The client learns the topology from the first of them that responds, and learns it again
/// when a node responds that another node has the slot, or cannot be reached. Requests to different nodes are sent
/// at the same time. Results in key order are those of all nodes.
///
/// With `read_from_replicas=True`, requests go to replicas first; otherwise they go to a replica only if the primary
/// cannot be reached. `zone` is the zone of this process, whose nodes are preferred to other nodes with the same
/// role. In each of `attempts` attempts, a call tries all nodes of a slot until one answers. `timeout` is the
/// maximum time in seconds of one request to one node. After this time, a call that all nodes of a slot have failed
/// to answer is not attempted again, and after twice this time, a call ends. `None` means no limit. The other
/// options are those of `Client`, for the connections to all nodes, which share the `cache`.
///
/// A client is a mapping, as a `Client` is. Threads can share a client. After a fork, the child process reconnects.
/// Ctrl-C ends a call to one node; a call to several nodes ends when all of them have responded, or after `timeout`.
///
/// Raises `NotRunning`, `Refused`, `TimedOut`, or `Closed` if no node of a slot can be reached, `ProtocolError` if a
/// node sends an invalid topology, `ServerError` if nodes redirect requests to each other or have different types of
/// a requested column, `ValueError` if a server is not a node of a cluster, and the exceptions of `Client`.
#[pyclass(frozen, extends = LookupTable, module = "zero_kv")]
pub(crate) struct ClusterClient;

/// The addresses of nodes: one address, or several.
#[derive(FromPyObject)]
enum Nodes {
    One(PathBuf),
    Several(Vec<PathBuf>),
}

/// Returns a client after it has connected, so the constructor raises an exception if no server runs.
fn connected<'py>(
    py: Python<'py>,
    pool: ConnectionPool,
    is_strict: bool,
    arguments: Arguments,
) -> PyResult<PyClassInitializer<LookupTable>> {
    pool.call(py, |_| Ok(()))?;
    Ok(PyClassInitializer::from(LookupTable::remote(pool, is_strict, arguments)))
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (address = None, **options))]
    fn new(
        py: Python<'_>,
        address: Option<PathBuf>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Client>> {
        let address = address.unwrap_or_else(client::default_address);
        // The address is text, because a path object would drop a slash of a URL.
        let arguments =
            Arguments::new(py.get_type::<Client>().into_any(), address.as_os_str().into_bound_py_any(py)?, options)?;
        let keywords = Keywords::new(py, options)?;
        let options = keywords.server_options(&address)?;
        let is_strict = keywords.finish()?;
        let pool = ConnectionPool::new(address.display().to_string(), options.cache.clone(), move |cache| {
            let options = Options { cache, ..options.clone() };
            client::Client::connect_with(&address, &options).map(Connection::Server)
        });
        Ok(connected(py, pool, is_strict, arguments)?.add_subclass(Client))
    }

    /// Return facts about the server and its table: see `ServerInfo`.
    fn info<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let pool = slf.as_super().get().pool();
        info_dict(slf.py(), &pool.call(slf.py(), |connection| connection.server().info())?)
    }

    /// Send a request without a key, and return when the server has responded.
    fn ping(slf: &Bound<'_, Self>) -> PyResult<()> {
        slf.as_super().get().pool().call(slf.py(), |connection| connection.server().ping())
    }
}

#[pymethods]
impl ClusterClient {
    #[new]
    #[pyo3(signature = (nodes, **options))]
    fn new(
        py: Python<'_>,
        nodes: Nodes,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<ClusterClient>> {
        let nodes = match nodes {
            Nodes::One(node) => vec![node],
            Nodes::Several(nodes) => nodes,
        };
        let Some(first) = nodes.first() else {
            return Err(PyValueError::new_err("nodes is empty: give the address of at least one node"));
        };
        let addresses: Vec<_> = nodes.iter().map(|node| node.as_os_str()).collect();
        let arguments =
            Arguments::new(py.get_type::<ClusterClient>().into_any(), addresses.into_bound_py_any(py)?, options)?;
        let keywords = Keywords::new(py, options)?;
        let options = keywords.cluster_options(first)?;
        let is_strict = keywords.finish()?;
        let name = nodes.iter().map(|node| node.display().to_string()).collect::<Vec<_>>().join(", ");
        let pool = ConnectionPool::new(name, options.client.cache.clone(), move |cache| {
            let mut options = options.clone();
            options.client.cache = cache;
            client::ClusterClient::connect_with(&nodes, &options).map(Connection::Cluster)
        });
        Ok(connected(py, pool, is_strict, arguments)?.add_subclass(ClusterClient))
    }

    /// Return the topology that the client follows, as the document that docs/CLUSTER.md describes.
    fn topology<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (py, pool) = (slf.py(), slf.as_super().get().pool());
        let json = pool.call(py, |connection| Ok(connection.cluster().topology().to_json()))?;
        py.import("json")?.getattr("loads")?.call1((json,))
    }
}
