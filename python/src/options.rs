//! The addresses and the keyword arguments of clients.
//!
//! In: keyword arguments. Out: the library's options, whose defaults are also those of the arguments.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use zero_kv::client::{self, Address, Cache, ClusterOptions, DirectOptions, Login, Options, TlsOptions};

use crate::arguments::{UserName, duration, memory_name};
use crate::errors::client_exception;
use crate::interrupt;
use crate::request::Request;

/// Keyword arguments that have not been used yet.
pub(crate) struct Keywords<'py>(Bound<'py, PyDict>);

impl<'py> Keywords<'py> {
    pub(crate) fn new(py: Python<'py>, keywords: Option<&Bound<'py, PyDict>>) -> PyResult<Keywords<'py>> {
        Ok(Keywords(keywords.map_or_else(|| Ok(PyDict::new(py)), |keywords| keywords.copy())?))
    }

    /// Returns the value of an argument, or `None` if the argument is missing.
    pub(crate) fn take<T: FromPyObjectOwned<'py>>(&self, name: &str) -> PyResult<Option<T>> {
        let Some(value) = self.0.get_item(name)? else { return Ok(None) };
        self.0.del_item(name)?;
        let value = value.extract().map_err(Into::<PyErr>::into).map_err(|error| {
            let py = self.0.py();
            match error.is_instance_of::<PyTypeError>(py) {
                true => PyTypeError::new_err(format!("argument '{name}': {}", error.value(py))),
                false => error,
            }
        });
        value.map(Some)
    }

    /// Returns the options of all clients.
    pub(crate) fn client_options(&self) -> PyResult<Options> {
        let mut options = Options { interrupt_check: Some(interrupt::is_raised), ..Options::default() };
        if let Some(timeout) = self.take("connect_timeout")? {
            options.connect_timeout = duration("connect_timeout", timeout)?;
        }
        if let Some(timeout) = self.take::<Option<f64>>("timeout")? {
            options.call_timeout = timeout.map(|timeout| duration("timeout", timeout)).transpose()?;
        }
        options.server_user = self.take::<Option<UserName>>("server_user")?.flatten().map(String::from);
        Ok(options)
    }

    /// Returns the options of a client of the server at `address`.
    pub(crate) fn server_options(&self, address: &Path) -> PyResult<Options> {
        let mut options = self.secure_options(address)?;
        if let Some(retries) = self.take("retries")? {
            options.retries = retries;
        }
        if let Some(timeout) = self.take("reconnect_timeout")? {
            options.reconnect_timeout = duration("reconnect_timeout", timeout)?;
        }
        Ok(options)
    }

    /// Returns the options of a client of a cluster. `address` is the address of one of its nodes.
    pub(crate) fn cluster_options(&self, address: &Path) -> PyResult<ClusterOptions> {
        let default = ClusterOptions::default();
        Ok(ClusterOptions {
            client: self.secure_options(address)?,
            reads_replicas: self.take("read_from_replicas")?.unwrap_or(default.reads_replicas),
            zone: self.take("zone")?.unwrap_or(default.zone),
            attempts: self.take("attempts")?.unwrap_or(default.attempts),
        })
    }

    /// Returns the options of all clients, with the login and the TLS options of clients over TCP.
    fn secure_options(&self, address: &Path) -> PyResult<Options> {
        let mut options = self.client_options()?;
        let user: Option<String> = self.take("user")?.flatten();
        let password: Option<String> = self.take("password")?.flatten();
        let password_file: Option<PathBuf> = self.take("password_file")?.flatten();
        let parsed = Address::parse(address).map_err(|error| PyValueError::new_err(error.to_string()))?;
        options.login = match (user.as_deref().or(parsed.user()), password, password_file) {
            (_, Some(_), Some(_)) => {
                return Err(PyValueError::new_err("password and password_file are given: give one of them"));
            }
            (None, None, None) => None,
            (None, ..) => {
                let message = "a password is given without a user: name the user with user, or in the address";
                return Err(PyValueError::new_err(message));
            }
            (Some(user), Some(password), None) => Some(Login::new(user, password.as_bytes())),
            (Some(user), None, Some(path)) => Some(Login::with_password_file(user, path)),
            (Some(user), None, None) => Some(Login::from_environment(user)),
        };
        options.cache = self.cache()?;
        options.tls = TlsOptions {
            ca_file: self.take("ca_file")?.flatten(),
            certificate_file: self.take("certificate_file")?.flatten(),
            key_file: self.take("key_file")?.flatten(),
            server_name: self.take("server_name")?.flatten(),
        };
        Ok(options)
    }

    /// Returns the cache of a client. `cache` is its maximum number of bytes, of which 0 means no cache.
    fn cache(&self) -> PyResult<Option<Cache>> {
        let max_bytes: usize = self.take("cache")?.unwrap_or_default();
        Ok((max_bytes > 0).then(|| Cache::new(max_bytes)))
    }

    /// Returns the last argument: whether a key that the table cannot have is an error. Raises `TypeError` if there are
    /// other arguments.
    pub(crate) fn finish(self) -> PyResult<bool> {
        let is_strict = self.take("strict")?.unwrap_or(false);
        match self.0.keys().iter().next() {
            Some(name) => Err(PyTypeError::new_err(format!("got an unexpected keyword argument {}", name.repr()?))),
            None => Ok(is_strict),
        }
    }
}

/// The defaults of the keyword arguments of all clients. The default of other arguments is `None`.
#[derive(IntoPyObject)]
pub(crate) struct Defaults {
    connect_timeout: f64,
    timeout: Option<f64>,
    retries: u32,
    reconnect_timeout: f64,
    read_from_replicas: bool,
    cache: usize,
    attempts: u32,
    memory: &'static str,
    strict: bool,
}

/// Returns the library's defaults as a dict of keyword arguments.
#[pyfunction]
pub(crate) fn default_options() -> Defaults {
    let ClusterOptions { client, reads_replicas, attempts, .. } = ClusterOptions::default();
    Defaults {
        connect_timeout: client.connect_timeout.as_secs_f64(),
        timeout: client.call_timeout.map(|timeout| timeout.as_secs_f64()),
        retries: client.retries,
        reconnect_timeout: client.reconnect_timeout.as_secs_f64(),
        read_from_replicas: reads_replicas,
        cache: client.cache.map_or(0, |cache| cache.max_bytes()),
        attempts,
        memory: memory_name(DirectOptions::default().memory),
        strict: false,
    }
}

/// Returns the address in the environment variable `ZERO_KV_SOCKET`, or otherwise the default. It is text, because a
/// path object would drop a slash of a URL.
#[pyfunction]
pub(crate) fn default_address() -> OsString {
    client::default_address().into_os_string()
}

/// How the asyncio client connects: the host, the port, whether the connection uses TLS, and the request that logs in.
/// The host is `None` for a Unix socket.
type Endpoint = (Option<String>, u16, bool, Option<Request>);

/// Checks the address and the keyword arguments of the asyncio client, and reads its password.
#[pyfunction]
#[pyo3(signature = (address, **options))]
pub(crate) fn endpoint(py: Python<'_>, address: PathBuf, options: Option<&Bound<'_, PyDict>>) -> PyResult<Endpoint> {
    let keywords = Keywords::new(py, options)?;
    let options = keywords.server_options(&address)?;
    keywords.finish()?;
    let parsed = client::check_options(&address, &options).map_err(|error| client_exception(&error))?;
    let login = options.login.as_ref().map(|login| Request::authenticate(&address, login)).transpose()?;
    Ok(match parsed {
        Address::Unix(_) => (None, 0, false, login),
        Address::Tcp(tcp) => (Some(tcp.host), tcp.port, tcp.tls, login),
    })
}

/// Checks whether a client may trust a server at `path` that runs as the user `uid`. The asyncio client calls this
/// function, because it has its own socket code.
#[pyfunction]
pub(crate) fn check_server_user(path: PathBuf, uid: u32, server_user: Option<UserName>) -> PyResult<()> {
    let server_user = server_user.map(String::from);
    client::check_server_user(&path, uid, server_user.as_deref()).map_err(|error| client_exception(&error))
}
