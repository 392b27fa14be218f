//! Idle connections to a server or to a cluster, which threads share.
//!
//! In: a call. Out: its result. Each call takes an idle connection or opens a new one, and other Python threads run
//! until the response has arrived. After a fork, the child process opens its own connections.

use std::io;
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use zero_kv::client::{Cache, ClientError};
use zero_kv::{KeyKind, KeyType, LookupError};

use crate::connection::{Connection, call};
use crate::errors::{self, Closed, KeyTypeChanged, NotPermitted, client_exception, lookup_exception};
use crate::interrupt;

/// The maximum number of idle connections that are kept for later calls.
const IDLE_MAX: usize = 64;
/// The maximum number of repetitions of a call because the type of the keys has changed.
const TYPE_CHANGES_MAX: u32 = 10;
/// The pause before the second repetition. It doubles with each further one, up to the maximum: the nodes of a cluster
/// replace their tables one after another.
const PAUSE: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// Opens a connection that uses a cache, if any.
type Connect = Box<dyn Fn(Option<Cache>) -> Result<Connection, ClientError> + Send + Sync>;

/// Connections with the same options.
pub(crate) struct ConnectionPool {
    /// The name of the server or of the cluster, for error messages.
    pub(crate) name: String,
    connect: Connect,
    /// A thread locks this mutex only while it holds Python's global lock. A thread that forks holds Python's global
    /// lock, too, so no child process inherits a locked mutex.
    connections: Mutex<IdleConnections>,
}

struct IdleConnections {
    /// The process that opened the connections.
    process_id: u32,
    /// `None` after the pool was closed.
    clients: Option<Vec<Connection>>,
    /// The type of the keys of the server's table. `None` before it is known, and after it has changed.
    key_type: Option<KeyType>,
    /// The cache of all connections.
    cache: Option<Cache>,
}

/// The type that keys are encoded for.
#[derive(Clone, Copy)]
pub(crate) struct Encoding {
    pub(crate) key_type: KeyType,
    /// Whether the server has stated the type. If not, keys are sent as numbers or bytes, whatever the table's type is.
    is_known: bool,
}

/// Calls whose keys are encoded for one type.
#[derive(Clone, Copy)]
pub(crate) struct EncodedCalls<'p> {
    pool: &'p ConnectionPool,
    pub(crate) encoding: Encoding,
    /// Whether the type was requested for these calls.
    is_fresh: bool,
}

impl EncodedCalls<'_> {
    /// Makes a call for keys of the kind `asked`. If a server rejects the call because its table has keys of the other
    /// kind, raises `KeyKind`, as a lookup in a file does. Raises `KeyTypeChanged` if the table has keys of another type.
    pub(crate) fn call_with_kind<T: Send>(
        &self,
        py: Python<'_>,
        asked: Option<KeyKind>,
        call: impl FnOnce(&mut Connection) -> Result<T, ClientError> + Send,
    ) -> PyResult<T> {
        let Encoding { key_type, is_known } = self.encoding;
        let expected = is_known.then_some(key_type);
        self.pool.call_with_kind(py, asked, |client| {
            call!(client, expect_key_type(expected));
            call(client)
        })
    }

    /// Raises `KeyTypeChanged` if the server's table has keys of another type. Must be called before a call that sends no
    /// key, because the table cannot have the keys, returns.
    pub(crate) fn check_type(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_fresh || !self.encoding.is_known {
            return Ok(());
        }
        self.pool.connections().key_type = None;
        match self.pool.encoding(py)? {
            found if found.is_known && found.key_type != self.encoding.key_type => {
                Err(KeyTypeChanged::new_err(format!("{}: the type of the table's keys has changed", self.pool.name)))
            }
            _ => Ok(()),
        }
    }

    /// Raises `Closed` if the pool was closed.
    pub(crate) fn check_open(&self) -> PyResult<()> {
        self.pool.check_open()
    }
}

impl ConnectionPool {
    pub(crate) fn new(
        name: String,
        cache: Option<Cache>,
        connect: impl Fn(Option<Cache>) -> Result<Connection, ClientError> + Send + Sync + 'static,
    ) -> ConnectionPool {
        let (process_id, clients) = (process::id(), Some(Vec::new()));
        let connections = Mutex::new(IdleConnections { process_id, clients, key_type: None, cache });
        ConnectionPool { name, connect: Box::new(connect), connections }
    }

    fn connections(&self) -> MutexGuard<'_, IdleConnections> {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let process_id = process::id();
        if connections.process_id != process_id {
            connections.process_id = process_id;
            // Closing this process's copies of the descriptors does not affect the parent process, which keeps using
            // its connections.
            if let Some(clients) = &mut connections.clients {
                clients.clear();
            }
            // Another thread of the parent may have locked the cache during the fork.
            connections.cache = connections.cache.as_ref().map(|cache| Cache::new(cache.max_bytes()));
        }
        connections
    }

    /// Raises `Closed` if the pool was closed.
    pub(crate) fn check_open(&self) -> PyResult<()> {
        if self.connections().clients.is_some() { Ok(()) } else { Err(self.closed()) }
    }

    fn closed(&self) -> PyErr {
        Closed::new_err(format!("{}: the client is closed", self.name))
    }

    /// Makes a call with keys that `make` encodes. If the server has replaced its table by one whose keys have another
    /// type, makes the call again, with keys of this type.
    pub(crate) fn with_key_type<T>(
        &self,
        py: Python<'_>,
        mut make: impl FnMut(EncodedCalls<'_>) -> PyResult<T>,
    ) -> PyResult<T> {
        let mut pause = PAUSE;
        for attempt in 0.. {
            let is_fresh = self.connections().key_type.is_none();
            let calls = EncodedCalls { is_fresh, ..self.calls(self.encoding(py)?) };
            let made = make(calls).or_else(|error| match is_conversion_error(py, &error) {
                // A key that is no key of the known type may be one of the table's type.
                true => calls.check_type(py).and(Err(error)),
                false => Err(error),
            });
            match made {
                Err(error) if attempt < TYPE_CHANGES_MAX && error.is_instance_of::<KeyTypeChanged>(py) => {
                    self.connections().key_type = None;
                    if attempt > 0 {
                        py.detach(|| thread::sleep(pause));
                        pause = (2 * pause).min(PAUSE_MAX);
                    }
                    py.check_signals()?;
                }
                made => return made,
            }
        }
        unreachable!("the last attempt returns")
    }

    pub(crate) fn calls(&self, encoding: Encoding) -> EncodedCalls<'_> {
        EncodedCalls { pool: self, encoding, is_fresh: false }
    }

    /// Returns the type of the keys of the server's table. It is requested once, and again when it has changed. A user
    /// who may read no key, but for example count keys, does not learn it, and can use only numbers and bytes.
    pub(crate) fn encoding(&self, py: Python<'_>) -> PyResult<Encoding> {
        let known = self.connections().key_type;
        let key_type = match known {
            Some(key_type) => key_type,
            None => match self.call(py, |client| call!(client, key_type())) {
                Err(error) if error.is_instance_of::<NotPermitted>(py) => {
                    return Ok(Encoding { key_type: KeyType::BYTES, is_known: false });
                }
                found => found?,
            },
        };
        self.connections().key_type = Some(key_type);
        Ok(Encoding { key_type, is_known: true })
    }

    /// Makes a call while other Python threads run. Ctrl-C ends the wait for a response.
    pub(crate) fn call<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut Connection) -> Result<T, ClientError> + Send,
    ) -> PyResult<T> {
        self.call_with_kind(py, None, call)
    }

    fn call_with_kind<T: Send>(
        &self,
        py: Python<'_>,
        asked: Option<KeyKind>,
        call: impl FnOnce(&mut Connection) -> Result<T, ClientError> + Send,
    ) -> PyResult<T> {
        let (idle, cache) = {
            let connections = &mut *self.connections();
            match &mut connections.clients {
                Some(clients) => (clients.pop(), connections.cache.clone()),
                None => return Err(self.closed()),
            }
        };
        let called = py.detach(|| {
            let mut client = match idle {
                Some(client) => client,
                None => (self.connect)(cache)?,
            };
            let result = call(&mut client);
            // The protocol has one error for all problems of a key.
            let held = match (&result, asked) {
                (Err(ClientError::Server { .. }), Some(_)) => call!(&mut client, key_type()).ok(),
                _ => None,
            };
            Ok((result, held, client))
        });
        let (result, held, client) = called.map_err(|error| self.exception(&error))?;
        if let Some(clients) = &mut self.connections().clients
            && clients.len() < IDLE_MAX
        {
            clients.push(client);
        }
        if held.is_some() {
            self.connections().key_type = held;
        }
        match (held.map(|held| held.kind()), asked) {
            (Some(held), Some(asked)) if held != asked => Err(lookup_exception(LookupError::KeyKind { held, asked })),
            _ => result.map_err(|error| self.exception(&error)),
        }
    }

    /// Returns the exception for an error, or the exception of a signal handler that has ended the call.
    fn exception(&self, error: &ClientError) -> PyErr {
        match error {
            ClientError::Io { error: system, .. } if system.kind() == io::ErrorKind::Interrupted => {
                interrupt::take().unwrap_or_else(|| client_exception(error))
            }
            _ => client_exception(error),
        }
    }

    /// Closes all connections. Later calls raise `Closed`.
    pub(crate) fn close(&self) {
        self.connections().clients = None;
    }
}

/// Returns whether an exception may come from the conversion of an object to a key.
fn is_conversion_error(py: Python<'_>, error: &PyErr) -> bool {
    let is_one = error.is_instance_of::<PyTypeError>(py)
        || error.is_instance_of::<PyValueError>(py)
        || error.is_instance_of::<PyOverflowError>(py);
    is_one && !error.is_instance_of::<errors::KeyKind>(py)
}
