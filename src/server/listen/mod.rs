//! Listens on sockets, accepts connections, and completes TLS handshakes.

pub(super) mod accept;
#[cfg(feature = "tls")]
pub(super) mod handshakes;
pub(super) mod listener;
