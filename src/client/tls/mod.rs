//! TLS for connections over TCP.
//!
//! In: certificates, and records from a socket. Out: decrypted responses, and records with encrypted requests. Both
//! clients use the same sessions, which do no I/O of their own. Without the feature `tls`, there are no sessions.

#[cfg(not(feature = "tls"))]
mod disabled;
#[cfg(feature = "tls")]
mod session;
#[cfg(feature = "tls")]
mod source;

#[cfg(not(feature = "tls"))]
pub(super) use disabled::{TlsSession, TlsSource};
#[cfg(feature = "tls")]
pub(super) use session::TlsSession;
#[cfg(feature = "tls")]
pub(super) use source::TlsSource;
