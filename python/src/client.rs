//! A server's clients that wait.
//!
//! In: keys. Out: what the server sent. Threads share a client: each call takes a
//! connection that lies idle, or makes one, and other threads of Python run until
//! the answer is there. A child process makes connections of its own.

use std::path::PathBuf;
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use zero_kv::Key;
use zero_kv::client::{self, ClientError, Options, OwnedKey, Page, Row};

use crate::errors::{Closed, of_client};
use crate::key::{key_of, to_python};
use crate::many::{self, Source};
use crate::question::Span;

/// Connections that are kept for the next calls.
const IDLE_MAX: usize = 64;

/// Questions to a server on its Unix socket; an `@` begins an abstract name.
///
/// Threads share it, each with a connection of its own while it waits; other threads run meanwhile. A child process
/// connects anew. A call whose connection fails, because the server was restarted, is made `retries` times more, and
/// the server is waited for up to `reconnect_timeout`. Times are in seconds. Ctrl-C is seen when the call ends.
///
/// The server must run as root, as this process's user, or as `server_user` (a name or a number, by default that of the
/// environment's `ZERO_KV_SERVER_USER`). Without a name, another user's server is accepted if nobody else can write to the
/// socket's folder or one above it.
///
/// Raises `NotRunning`, `Refused`, `UntrustedServer`, `TimedOut`, `Closed`, `ProtocolError` or `ServerError`, which are all
/// `Error`.
#[pyclass(frozen, module = "zero_kv")]
pub(crate) struct Client {
    path: PathBuf,
    options: Options,
    /// Only locked while Python is attached, which a fork by Python waits for: no child finds it locked.
    connections: Mutex<Connections>,
}

struct Connections {
    /// The process that made them.
    process_id: u32,
    /// None when the client is closed.
    idle: Option<Vec<client::Client>>,
}

/// A user's name or number.
#[derive(FromPyObject)]
pub(crate) enum UserName {
    Number(u32),
    Name(String),
}

impl From<UserName> for String {
    fn from(user: UserName) -> String {
        match user {
            UserName::Number(number) => number.to_string(),
            UserName::Name(name) => name,
        }
    }
}

/// Checks the user that a server runs as, for a client that has connected by itself.
#[pyfunction]
pub(crate) fn check_server_user(path: PathBuf, uid: u32, server_user: Option<UserName>) -> PyResult<()> {
    let server_user = server_user.map(String::from);
    client::check_server_user(&path, uid, server_user.as_deref()).map_err(|error| of_client(&error))
}

/// Seconds, of which there may be fractions, but not of a day in the past.
pub(crate) fn duration(argument: &str, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| PyValueError::new_err(format!("{argument} is {seconds}, where seconds, 0 or more, were expected")))
}

impl Client {
    fn connections(&self) -> MutexGuard<'_, Connections> {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let process_id = process::id();
        if connections.process_id != process_id {
            connections.process_id = process_id;
            // These are the parent's, which goes on with them: closing them here does not close them there.
            if let Some(idle) = &mut connections.idle {
                idle.clear();
            }
        }
        connections
    }

    /// Makes a call while other threads of Python run.
    pub(crate) fn call<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut client::Client) -> Result<T, ClientError> + Send,
    ) -> PyResult<T> {
        let taken = match &mut self.connections().idle {
            Some(idle) => idle.pop(),
            None => return Err(Closed::new_err(format!("{}: the client is closed", self.path.display()))),
        };
        let called = py.detach(|| {
            let mut client = match taken {
                Some(client) => client,
                None => client::Client::connect_with(&self.path, &self.options)?,
            };
            Ok((call(&mut client), client))
        });
        let (answer, client) = called.map_err(|error| of_client(&error))?;
        if let Some(idle) = &mut self.connections().idle
            && idle.len() < IDLE_MAX
        {
            idle.push(client);
        }
        answer.map_err(|error| of_client(&error))
    }
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (path = "/tmp/zero-kv.sock".into(), *, connect_timeout = 5.0, timeout = Some(30.0), retries = 1,
                        reconnect_timeout = 2.0, server_user = None))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        connect_timeout: f64,
        timeout: Option<f64>,
        retries: u32,
        reconnect_timeout: f64,
        server_user: Option<UserName>,
    ) -> PyResult<Client> {
        let options = Options {
            connect_timeout: duration("connect_timeout", connect_timeout)?,
            call_timeout: timeout.map(|timeout| duration("timeout", timeout)).transpose()?,
            retries,
            reconnect_timeout: duration("reconnect_timeout", reconnect_timeout)?,
            server_user: server_user.map(String::from),
            ..Options::default()
        };
        let connections = Mutex::new(Connections { process_id: process::id(), idle: Some(Vec::new()) });
        let client = Client { path, options, connections };
        // So that a server that is not there is told of here.
        client.call(py, |_| Ok(()))?;
        Ok(client)
    }

    /// The value of a key, or `default` if the key is not in the table.
    #[pyo3(signature = (key, default = None, /))]
    fn get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, asked) = (key.py(), key_of(key)?);
        let value = self.call(py, |client| client.get(asked))?;
        Ok(value.map(|value| PyBytes::new(py, &value).into_any()).or(default))
    }

    /// The values of many keys, in their order, sent without waiting for each answer: see `Table.get_many`.
    ///
    /// Those that the server reads before and after a new table was baked are of different tables.
    #[pyo3(signature = (keys, *, dtype = None))]
    fn get_many<'py>(
        slf: &Bound<'py, Self>,
        keys: &Bound<'py, PyAny>,
        dtype: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        many::get_many(&Source::Client(slf.clone()), keys, dtype.as_ref())
    }

    /// Whether a key is in the table.
    fn exists(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let asked = key_of(key)?;
        self.call(key.py(), |client| client.exists(asked))
    }

    /// The row with the largest key that is not above `key`.
    fn floor<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let asked = key_of(key)?;
        row(key.py(), self.call(key.py(), |client| client.floor(asked))?)
    }

    /// The row with the smallest key that is not below `key`.
    fn ceiling<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let asked = key_of(key)?;
        row(key.py(), self.call(key.py(), |client| client.ceiling(asked))?)
    }

    /// The row with the smallest key.
    fn first<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        row(py, self.call(py, client::Client::first)?)
    }

    /// The row with the largest key.
    fn last<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        row(py, self.call(py, client::Client::last)?)
    }

    /// The rows from `start` on and before `end`, like a slice: `end` is not among them.
    #[pyo3(signature = (start = None, end = None))]
    fn range(slf: Py<Self>, start: Option<&Bound<'_, PyAny>>, end: Option<&Bound<'_, PyAny>>) -> PyResult<ClientRows> {
        Ok(ClientRows { client: slf, span: Span::between(start, end)? })
    }

    /// The rows whose keys begin with `prefix`.
    fn prefix(slf: Py<Self>, prefix: &Bound<'_, PyAny>) -> PyResult<ClientRows> {
        Ok(ClientRows { client: slf, span: Span::prefix(prefix)? })
    }

    /// How many keys there are from `start` on and before `end`.
    #[pyo3(signature = (start = None, end = None))]
    fn count(&self, py: Python<'_>, start: Option<&Bound<'_, PyAny>>, end: Option<&Bound<'_, PyAny>>) -> PyResult<u64> {
        let span = Span::between(start, end)?;
        self.call(py, |client| client.count(span.bounds()))
    }

    /// What the server says of itself.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        info(py, &self.call(py, client::Client::info)?)
    }

    /// Return if the server answers.
    fn ping(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, client::Client::ping)
    }

    /// Close the connections. Calls fail with `Closed` from here on.
    fn close(&self) {
        self.connections().idle = None;
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) {
        self.close();
    }

    fn __repr__(&self) -> String {
        format!("<zero_kv.Client {:?}>", self.path)
    }

    /// Clients are handed to other processes by their path and options.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let reconnect = py.import("zero_kv")?.getattr("_reconnect")?;
        let options = PyDict::new(py);
        options.set_item("connect_timeout", self.options.connect_timeout.as_secs_f64())?;
        options.set_item("timeout", self.options.call_timeout.map(|timeout| timeout.as_secs_f64()))?;
        options.set_item("retries", self.options.retries)?;
        options.set_item("reconnect_timeout", self.options.reconnect_timeout.as_secs_f64())?;
        options.set_item("server_user", self.options.server_user.as_deref())?;
        (reconnect, (&self.path, options)).into_pyobject(py)
    }
}

/// A row as Python has it.
pub(crate) fn row<'py>(py: Python<'py>, row: Option<Row>) -> PyResult<Option<Bound<'py, PyTuple>>> {
    row.map(|(key, value)| pair(py, key.as_key(), &value)).transpose()
}

pub(crate) fn pair<'py>(py: Python<'py>, key: Key<'_>, value: &[u8]) -> PyResult<Bound<'py, PyTuple>> {
    (to_python(py, key), PyBytes::new(py, value)).into_pyobject(py)
}

pub(crate) fn info<'py>(py: Python<'py>, info: &client::Info) -> PyResult<Bound<'py, PyDict>> {
    let facts = PyDict::new(py);
    for (name, value) in info.iter() {
        facts.set_item(name, value)?;
    }
    Ok(facts)
}

/// The rows of a range in key order, asked for page by page as they are wanted, anew by each loop.
///
/// Pages that are asked for before and after a new table was baked are of different tables.
#[pyclass(frozen, module = "zero_kv")]
pub(crate) struct ClientRows {
    client: Py<Client>,
    span: Span,
}

impl ClientRows {
    fn iterate(&self, py: Python<'_>, backward: bool) -> ClientRowIterator {
        ClientRowIterator {
            client: self.client.clone_ref(py),
            rest: Some(self.span.clone()),
            backward,
            page: Vec::new(),
        }
    }
}

#[pymethods]
impl ClientRows {
    fn __iter__(&self, py: Python<'_>) -> ClientRowIterator {
        self.iterate(py, false)
    }

    fn __reversed__(&self, py: Python<'_>) -> ClientRowIterator {
        self.iterate(py, true)
    }
}

#[pyclass(module = "zero_kv")]
pub(crate) struct ClientRowIterator {
    client: Py<Client>,
    /// What was not asked for yet.
    rest: Option<Span>,
    backward: bool,
    /// Rows that came and were not given, the next of them last.
    page: Vec<(OwnedKey, Vec<u8>)>,
}

#[pymethods]
impl ClientRowIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        if self.page.is_empty()
            && let Some(span) = self.rest.take()
        {
            let backward = self.backward;
            let asked = self.client.get().call(py, |client| match backward {
                false => client.first_page(span.bounds(), 0),
                true => client.last_page(span.bounds(), 0),
            });
            let page: Page = asked?;
            self.page = page.iter().map(|(key, value)| (OwnedKey::from(key), value.to_vec())).collect();
            if !backward {
                self.page.reverse();
            }
            self.rest = page.rest().map(Span::of_rest);
        }
        row(py, self.page.pop())
    }
}
