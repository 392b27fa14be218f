//! Idle connections to a server or to a cluster, which threads share.
//!
//! In: a call. Out: its result. Each call takes an idle connection or opens a new one, and other Python threads run
//! until the response has arrived. After a fork, the child process opens its own connections.

use std::io;
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use zero_kv::client::ClientError;
use zero_kv::{KeyKind, LookupError};

use crate::connection::{Connection, call};
use crate::errors::{Closed, client_exception, lookup_exception};
use crate::interrupt;

/// The maximum number of idle connections that are kept for later calls.
const IDLE_MAX: usize = 64;

/// Connections with the same options.
pub(crate) struct ConnectionPool {
    /// The name of the server or of the cluster, for error messages.
    pub(crate) name: String,
    connect: Box<dyn Fn() -> Result<Connection, ClientError> + Send + Sync>,
    /// A thread locks this mutex only while it holds Python's global lock. A thread that forks holds Python's global
    /// lock, too, so no child process inherits a locked mutex.
    connections: Mutex<IdleConnections>,
}

struct IdleConnections {
    /// The process that opened the connections.
    process_id: u32,
    /// `None` after the pool was closed.
    clients: Option<Vec<Connection>>,
}

impl ConnectionPool {
    pub(crate) fn new(
        name: String,
        connect: impl Fn() -> Result<Connection, ClientError> + Send + Sync + 'static,
    ) -> ConnectionPool {
        let connections = Mutex::new(IdleConnections { process_id: process::id(), clients: Some(Vec::new()) });
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

    /// Makes a call while other Python threads run. Ctrl-C ends the wait for a response.
    pub(crate) fn call<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut Connection) -> Result<T, ClientError> + Send,
    ) -> PyResult<T> {
        self.call_with_kind(py, None, call)
    }

    /// Makes a call for keys of the kind `asked`. If a server rejects the call because its table has keys of the other
    /// kind, raises `KeyKind`, as a lookup in a file does.
    pub(crate) fn call_with_kind<T: Send>(
        &self,
        py: Python<'_>,
        asked: Option<KeyKind>,
        call: impl FnOnce(&mut Connection) -> Result<T, ClientError> + Send,
    ) -> PyResult<T> {
        let idle = match &mut self.connections().clients {
            Some(clients) => clients.pop(),
            None => return Err(self.closed()),
        };
        let called = py.detach(|| {
            let mut client = match idle {
                Some(client) => client,
                None => (self.connect)()?,
            };
            let result = call(&mut client);
            // The protocol has one error for all problems of a key.
            let held = match (&result, asked) {
                (Err(ClientError::Server { .. }), Some(_)) => call!(&mut client, key_kind()).ok(),
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
        match (held, asked) {
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
