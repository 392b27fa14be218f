//! TLS for the connections of a TCP port.
//!
//! In: files with certificates and keys, and accepted TCP connections. Out: connections whose handshake is complete,
//! with decrypted requests and encrypted responses. Nothing in this folder depends on the protocol of the requests.
//!
//! Reasons and evidence: `docs/decisions/tls.md`.

mod certificates;
mod handshake;
mod stream;

use std::path::PathBuf;
use std::time::Duration;

pub(super) use certificates::Certificates;
pub(super) use handshake::{HandshakeError, handshake};
pub(super) use stream::{TlsSession, TlsStream};

/// The files and limits of a server's TLS port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// The PEM file with the server's certificate, followed by the intermediate certificates.
    pub certificate: PathBuf,
    /// The PEM file with the private key of the server's certificate, in the format PKCS #8, PKCS #1, or SEC 1.
    pub key: PathBuf,
    /// The PEM file with the certificates of the authorities that sign client certificates. If set, only clients with a
    /// certificate from one of these authorities can connect. `None`: clients need no certificate.
    pub client_ca: Option<PathBuf>,
    /// The time after which a client is disconnected if its handshake is not complete.
    pub handshake_timeout: Duration,
}

impl TlsConfig {
    /// The default time-out of a handshake.
    pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

    /// Returns a configuration that requires no client certificates and has the default time-out.
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> TlsConfig {
        TlsConfig {
            certificate: certificate.into(),
            key: key.into(),
            client_ca: None,
            handshake_timeout: Self::HANDSHAKE_TIMEOUT,
        }
    }
}
