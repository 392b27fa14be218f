//! The address of a server, and the keyword arguments for logins and TLS.

use std::path::PathBuf;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use zero_kv::client::{self, Address, Login, Options, TlsOptions};

use crate::arguments::UserName;
use crate::errors::client_exception;
use crate::interrupt;
use crate::request::Request;

/// The keyword arguments for logins and TLS.
#[derive(Clone, Default)]
pub(crate) struct Security {
    user: Option<String>,
    password: Option<String>,
    password_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    certificate_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
    server_name: Option<String>,
}

impl Security {
    /// Converts the keyword arguments for logins and TLS, which functions take as `**security`.
    pub(crate) fn from_keywords(keywords: Option<&Bound<'_, PyDict>>) -> PyResult<Security> {
        let mut security = Security::default();
        for (name, value) in keywords.into_iter().flatten() {
            match &*name.extract::<String>()? {
                "user" => security.user = value.extract()?,
                "password" => security.password = value.extract()?,
                "password_file" => security.password_file = value.extract()?,
                "ca_file" => security.ca_file = value.extract()?,
                "certificate_file" => security.certificate_file = value.extract()?,
                "key_file" => security.key_file = value.extract()?,
                "server_name" => security.server_name = value.extract()?,
                name => {
                    return Err(PyTypeError::new_err(format!("got an unexpected keyword argument {name:?}")));
                }
            }
        }
        Ok(security)
    }

    /// Sets the login and the TLS options in the options of a client.
    pub(crate) fn add_to(&self, address: &PathBuf, options: &mut Options) -> PyResult<()> {
        let parsed = Address::parse(address).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let user = self.user.as_deref().or(parsed.user());
        options.login = match (user, &self.password, &self.password_file) {
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
        options.tls = TlsOptions {
            ca_file: self.ca_file.clone(),
            certificate_file: self.certificate_file.clone(),
            key_file: self.key_file.clone(),
            server_name: self.server_name.clone(),
        };
        Ok(())
    }

    /// Adds the keyword arguments to a dictionary, for pickling.
    pub(crate) fn add_to_keywords(&self, keywords: &Bound<'_, PyDict>) -> PyResult<()> {
        keywords.set_item("user", &self.user)?;
        keywords.set_item("password", &self.password)?;
        keywords.set_item("password_file", &self.password_file)?;
        keywords.set_item("ca_file", &self.ca_file)?;
        keywords.set_item("certificate_file", &self.certificate_file)?;
        keywords.set_item("key_file", &self.key_file)?;
        keywords.set_item("server_name", &self.server_name)
    }
}

/// How the asyncio client connects: the host, the port, whether the connection uses TLS, and the request that logs in.
/// The host is `None` for a Unix socket.
type Endpoint = (Option<String>, u16, bool, Option<Request>);

/// Checks the address and the options of the asyncio client, and reads its password.
#[pyfunction]
#[pyo3(signature = (address, server_user, **security))]
pub(crate) fn endpoint(
    address: PathBuf,
    server_user: Option<UserName>,
    security: Option<&Bound<'_, PyDict>>,
) -> PyResult<Endpoint> {
    let mut options = Options {
        server_user: server_user.map(String::from),
        interrupt_check: Some(interrupt::is_raised),
        ..Options::default()
    };
    Security::from_keywords(security)?.add_to(&address, &mut options)?;
    let parsed = client::check_options(&address, &options).map_err(|error| client_exception(&error))?;
    let login = options.login.as_ref().map(|login| Request::authenticate(&address, login)).transpose()?;
    Ok(match parsed {
        Address::Unix(_) => (None, 0, false, login),
        Address::Tcp(tcp) => (Some(tcp.host), tcp.port, tcp.tls, login),
    })
}
