//! Idle connections to a server or to a cluster, which threads share.
//!
//! In: a call. Out: its result. Each call takes an idle connection or opens a new one, and other Python threads run
//! until the response has arrived. After a fork, the child process opens its own connections.

use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use zero_kv::client::ClientError;

use crate::errors::{Closed, client_exception};

/// The maximum number of idle connections that are kept for later calls.
const IDLE_MAX: usize = 64;

/// Connections of type `C` with the same options. A connection to a cluster consists of connections to its nodes.
pub(crate) struct ConnectionPool<C> {
    /// The name of the server or of the cluster, for error messages.
    name: String,
    connect: Box<dyn Fn() -> Result<C, ClientError> + Send + Sync>,
    /// A thread locks this mutex only while it holds Python's global lock. A thread that forks holds Python's global
    /// lock, too, so no child process inherits a locked mutex.
    connections: Mutex<IdleConnections<C>>,
}

struct IdleConnections<C> {
    /// The process that opened the connections.
    process_id: u32,
    /// `None` after the pool was closed.
    clients: Option<Vec<C>>,
}

impl<C: Send> ConnectionPool<C> {
    pub(crate) fn new(
        name: String,
        connect: impl Fn() -> Result<C, ClientError> + Send + Sync + 'static,
    ) -> ConnectionPool<C> {
        let connections = Mutex::new(IdleConnections { process_id: process::id(), clients: Some(Vec::new()) });
        ConnectionPool { name, connect: Box::new(connect), connections }
    }

    fn connections(&self) -> MutexGuard<'_, IdleConnections<C>> {
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

    /// Makes a call while other Python threads run.
    pub(crate) fn call<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut C) -> Result<T, ClientError> + Send,
    ) -> PyResult<T> {
        let idle = match &mut self.connections().clients {
            Some(clients) => clients.pop(),
            None => return Err(Closed::new_err(format!("{}: the client is closed", self.name))),
        };
        let called = py.detach(|| {
            let mut client = match idle {
                Some(client) => client,
                None => (self.connect)()?,
            };
            Ok((call(&mut client), client))
        });
        let (result, client) = called.map_err(|error| client_exception(&error))?;
        if let Some(clients) = &mut self.connections().clients
            && clients.len() < IDLE_MAX
        {
            clients.push(client);
        }
        result.map_err(|error| client_exception(&error))
    }

    /// Closes all connections. Later calls raise `Closed`.
    pub(crate) fn close(&self) {
        self.connections().clients = None;
    }
}
