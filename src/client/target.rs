//! The address, login, and options that all connections of a client or pool share.
//!
//! In: the text of an address, and options. Out: the parsed address, the login, and the source of TLS sessions, or the
//! reason why the options do not fit the address.

use std::ffi::OsStr;
use std::sync::Arc;

use super::address::Address;
use super::error::ClientError;
use super::login::Login;
use super::options::{Options, TlsOptions};
use super::request::Authenticate;
use super::tls::{TlsSession, TlsSource};
use crate::setting::Setting;

/// Checks that options can be used for an address, and returns the parsed address. Programs with their own socket code
/// should call this function before they connect.
///
/// # Errors
/// [`ClientError::Address`], [`ClientError::Configuration`].
pub fn check_options(address: impl AsRef<OsStr>, options: &Options) -> Result<Address, ClientError> {
    Target::new(address.as_ref(), options).map(|target| target.address.clone())
}

/// A server, and how clients connect to it.
#[derive(Debug)]
pub struct Target {
    pub(super) address: Address,
    pub(super) options: Options,
    /// The login of each connection, unless a client has authenticated as another user.
    login: Option<Login>,
    tls: Option<TlsSource>,
}

impl Target {
    pub(super) fn new(address: &OsStr, options: &Options) -> Result<Arc<Target>, ClientError> {
        Target::at(&Address::parse(address)?, options)
    }

    pub(super) fn at(address: &Address, options: &Options) -> Result<Arc<Target>, ClientError> {
        match Target::with_address(address, options) {
            Ok(target) => Ok(Arc::new(target)),
            Err(problem) => Err(ClientError::Configuration { server: address.clone(), problem }),
        }
    }

    fn with_address(address: &Address, options: &Options) -> Result<Target, String> {
        let tls = match address.tcp() {
            Some(tcp) if tcp.tls => Some(TlsSource::new(&tcp.host, &options.tls)?),
            _ if options.tls == TlsOptions::default() => None,
            _ => return Err("the options for TLS need an address that starts with zkv+tls://".to_owned()),
        };
        if address.tcp().is_some() && options.server_user.is_some() {
            return Err(format!(
                "the user that the server runs as cannot be determined over TCP: remove {}, and let a certificate \
                 identify the server (zkv+tls://)",
                Setting::ServerUser
            ));
        }
        let login = match (address.user(), &options.login) {
            (Some(user), Some(login)) if user != login.user() => {
                return Err("the user in the address differs from the user of the login: name one of them".to_owned());
            }
            (Some(user), None) => Some(Login::from_environment(user)),
            (_, login) => login.clone(),
        };
        Ok(Target { address: address.clone(), options: options.clone(), login, tls })
    }

    /// Returns the login request of a new connection, or `None` if the connection needs no login. `login` replaces the
    /// login of the target.
    pub(super) fn authenticate(&self, login: Option<&Login>) -> Result<Option<Authenticate>, ClientError> {
        let request = login.or(self.login.as_ref()).map(Authenticate::new).transpose();
        request.map_err(|problem| self.configuration(problem))
    }

    /// Starts a session for a new connection, if the connection uses TLS.
    pub(super) fn start_tls(&self) -> Result<Option<Box<TlsSession>>, ClientError> {
        self.tls.as_ref().map(TlsSource::start).transpose().map_err(|problem| self.configuration(problem))
    }

    pub(super) fn configuration(&self, problem: String) -> ClientError {
        ClientError::Configuration { server: self.address.clone(), problem }
    }
}
