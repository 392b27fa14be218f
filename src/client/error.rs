//! Errors of clients.

use std::fmt;
use std::io;
use std::time::Duration;

use thiserror::Error;

use super::address::{Address, AddressError};
use crate::format::key::{KEY_LEN_MAX_BYTES, KeyKind};
use crate::protocol::reader::ResponsePart;
use crate::protocol::response::Violation;
use crate::typed::ColumnError;

/// An error of a client's call.
///
/// After [`ClientError::Server`], [`ClientError::AuthenticationRequired`], [`ClientError::NotPermitted`],
/// [`ClientError::KeyLen`], [`ClientError::MixedKeys`], [`ClientError::NoSchema`], [`ClientError::Columns`],
/// [`ClientError::KeyTypeChanged`], and [`ClientError::TableUnstable`], the connection remains open. The connection also remains open if a call of
/// `authenticate` fails because the server rejects the login ([`ClientError::LoginFailed`]). After any other error of a
/// request, the connection is closed, and the next call reconnects.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The text cannot be parsed as a server's address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The options are invalid, or do not fit the address. Nothing was sent.
    #[error("{server}: {problem}")]
    Configuration {
        /// The address of the server.
        server: Address,
        /// The reason, and what to do.
        problem: String,
    },
    /// No encrypted connection could be established, or the encryption of a connection has failed. No request was sent
    /// to an untrusted server.
    #[error("{server}: no connection with TLS: {problem}")]
    Tls {
        /// The address of the server.
        server: Address,
        /// The reason, and what to do.
        problem: String,
    },
    /// The socket does not exist, or no process listens on the socket or port.
    #[error("{server}: cannot connect: {error}: is kv_store running, and on this {}?", socket_or_port(server))]
    NotRunning {
        /// The address of the server.
        server: Address,
        /// [`io::ErrorKind::NotFound`] if the socket does not exist, [`io::ErrorKind::ConnectionRefused`] if no process
        /// listens on the socket or port.
        #[source]
        error: io::Error,
    },
    /// The kernel refused the connection, because of the permissions of the socket or of its directory.
    #[error("{server}: cannot connect: Permission denied: ask for access to the socket and its directory")]
    NoPermission {
        /// The address of the server.
        server: Address,
    },
    /// The server accepted the connection, and closed it before sending a response.
    #[error(
        "{server}: the server closed the connection without a response: it does not allow this user, it has its \
         maximum number of connections, or it is stopping: see the log of kv_store{}",
        closed_hint(server)
    )]
    Refused {
        /// The address of the server.
        server: Address,
    },
    /// The server runs as a user that this client does not trust. Nothing was sent.
    #[error("{server}: {problem}")]
    UntrustedServer {
        /// The address of the server.
        server: Address,
        /// The user that the server runs as.
        uid: u32,
        /// The expected users, the reason, and the remedy.
        problem: String,
    },
    /// An attempt to connect, a call, or the wait for a pooled connection timed out.
    #[error("{server}: timed out after {after:.1?} {phase}")]
    TimedOut {
        /// The address of the server.
        server: Address,
        /// What the client was waiting for.
        phase: Phase,
        /// Time since the start of the call, of the attempt to connect, or of the wait for a pooled connection.
        after: Duration,
    },
    /// The server closed the connection before the response was complete.
    #[error(
        "{server}: the server closed the connection after {arrived_bytes} of {expected_bytes} bytes of the response's \
         {part}: connect again; if that does not help, see the log of kv_store"
    )]
    Closed {
        /// The address of the server.
        server: Address,
        /// The part of the response that is incomplete: the header or the value.
        part: ResponsePart,
        /// How many bytes of the incomplete header or value have arrived.
        arrived_bytes: usize,
        /// Total length of the incomplete header or value.
        expected_bytes: usize,
    },
    /// The peer violated the protocol.
    #[error("{server}: {error}: is this the {} of a kv_store of this version?", socket_or_port(server))]
    Protocol {
        /// The address of the server.
        server: Address,
        /// The violation.
        #[source]
        error: Violation,
    },
    /// The server responded with an error status.
    #[error("{server}: the server responded to {request} with an error: {hint}{}", tls_hint(server))]
    Server {
        /// The address of the server.
        server: Address,
        /// The text that names the request in the error message: the request's key, range, or name.
        request: String,
        /// The likely cause, and what to do.
        hint: &'static str,
    },
    /// The table has no columns.
    #[error(
        "{server}: the table has no schema, so it has no columns: bake it as a typed table, or request whole values"
    )]
    NoSchema {
        /// The address of the server.
        server: Address,
    },
    /// The columns cannot be looked up, for example because the table does not have one of them.
    #[error("{server}: {error}")]
    Columns {
        /// The address of the server.
        server: Address,
        /// The reason, with the name of the column.
        #[source]
        error: ColumnError,
    },
    /// The server kept replacing its table while requests were repeated that one table must answer.
    #[error("{server}: the server replaced its table {changes} times during the call: try again later")]
    TableUnstable {
        /// The address of the server.
        server: Address,
        /// The number of replacements after which requests were repeated.
        changes: u32,
    },
    /// Nodes of a cluster serve tables with different columns.
    #[error(
        "{server}: nodes of the cluster serve tables with different columns: try again when all nodes serve the same \
         generation"
    )]
    SchemaDiffers {
        /// The address of a node.
        server: Address,
    },
    /// The connection must log in before it can send the request.
    #[error(
        "{server}: the server requires a login for {request}: name the user in the address, as in \
         zkv+tls://user@host:port, or call authenticate(user, password) first"
    )]
    AuthenticationRequired {
        /// The address of the server.
        server: Address,
        /// The text that names the request in the error message: the request's key, range, or name.
        request: String,
    },
    /// The server rejected the user's name or password.
    #[error(
        "{server}: the login of user {user} failed: the user is unknown or disabled, or the password is wrong: see the \
         server's users file"
    )]
    LoginFailed {
        /// The address of the server.
        server: Address,
        /// The name of the user, quoted.
        user: String,
    },
    /// The user of the connection may not send the request, or may not use the requested keys.
    #[error(
        "{server}: the connection's user has no permission for {request}: ask the server's administrator for the \
         permission, or log in as another user"
    )]
    NotPermitted {
        /// The address of the server.
        server: Address,
        /// The text that names the request in the error message: the request's key, range, or name.
        request: String,
    },
    /// A node of a cluster sent a topology that is not valid.
    #[error("{server}: the topology that the node sent is not valid: {problem}")]
    Topology {
        /// The address of the node.
        server: Address,
        /// The value that was found, the value that was expected, and what to do.
        problem: String,
    },
    /// Another node of the cluster has the row of a key.
    #[error(
        "{server}: another node of the cluster serves the slot of {request}: use ClusterClient, which sends each \
         request to a node with the key, or read the topology (zkv topology show, Client::topology), and ask the \
         primary of the slot"
    )]
    Moved {
        /// The address of the server.
        server: Address,
        /// The text that names the request in the error message: the request's key.
        request: String,
    },
    /// The server has replaced its table by one whose keys have another type than the client knows, so the keys of the
    /// call may be encoded for the wrong type. No key was looked up in that table.
    #[error(
        "{server}: the type of the table's keys is no longer the one that the keys were encoded for: request it again \
         (key_type), and repeat the call with keys of this type"
    )]
    KeyTypeChanged {
        /// The address of the server.
        server: Address,
    },
    /// Direct mode is not possible.
    #[error("{server}: no direct mode: {problem}")]
    Direct {
        /// The address of the server.
        server: Address,
        /// The reason, and what to do.
        problem: String,
    },
    /// The key is empty or too long for any table. Nothing was sent.
    #[error("a key of {len_bytes} bytes, where 1 to {KEY_LEN_MAX_BYTES} are allowed")]
    KeyLen {
        /// The key's length.
        len_bytes: usize,
    },
    /// The start and the end of a range are keys of different kinds, but a table has keys of one kind. Nothing was
    /// sent.
    #[error("the range starts with a key of kind {start}, and ends with a key of kind {end}: use keys of one kind")]
    MixedKeys {
        /// The kind of the key at the start.
        start: KeyKind,
        /// The kind of the key at the end.
        end: KeyKind,
    },
    /// A system call failed.
    #[error("{server}: {phase}: {error}")]
    Io {
        /// The address of the server.
        server: Address,
        /// What the client was doing.
        phase: Phase,
        /// The error of the system call.
        #[source]
        error: io::Error,
    },
}

/// Returns a hint for an error message: although the address starts with `zkv://`, the port may use TLS. If a client
/// sends a request without TLS to a TLS port, the server responds with an error and closes the connection. The hint is
/// empty for other addresses.
fn tls_hint(server: &Address) -> &'static str {
    match server.tcp() {
        Some(tcp) if !tcp.tls => "; or this port uses TLS: use zkv+tls://",
        _ => "",
    }
}

/// Returns a hint for an error message: a server may close a connection over TCP because only one of the two sides uses
/// TLS. The hint is empty for Unix sockets.
fn closed_hint(server: &Address) -> &'static str {
    match server.tcp() {
        Some(tcp) if tcp.tls => "; or this port does not use TLS: use zkv://",
        _ => tls_hint(server),
    }
}

fn socket_or_port(server: &Address) -> &'static str {
    match server {
        Address::Unix(_) => "socket",
        Address::Tcp(_) => "port",
    }
}

/// What a client was doing when a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// The client was connecting to the server.
    Connect,
    /// The client was sending requests.
    Send,
    /// The client was waiting for a response.
    Receive,
    /// The client was waiting for a connection of a pool.
    PoolWait,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Connect => "connecting",
            Phase::Send => "sending requests",
            Phase::Receive => "waiting for a response",
            Phase::PoolWait => "waiting for a connection of the pool, all of which were in use",
        })
    }
}

impl ClientError {
    /// Returns the error of a failed attempt to connect.
    pub(super) fn connect(server: &Address, error: io::Error) -> Self {
        let server = server.clone();
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ClientError::NotRunning { server, error },
            io::ErrorKind::PermissionDenied => ClientError::NoPermission { server },
            _ => ClientError::Io { server, phase: Phase::Connect, error },
        }
    }

    pub(super) fn violation(server: &Address, error: Violation) -> Self {
        ClientError::Protocol { server: server.clone(), error }
    }

    /// Returns the error of a call whose request has failed.
    pub fn request(server: &Address, error: RequestError) -> Self {
        let to_server = || server.clone();
        match error {
            RequestError::Rejected { request, hint } => ClientError::Server { server: to_server(), request, hint },
            RequestError::Unauthenticated { request } => {
                ClientError::AuthenticationRequired { server: to_server(), request }
            }
            RequestError::LoginFailed { user } => ClientError::LoginFailed { server: to_server(), user },
            RequestError::NotPermitted { request } => ClientError::NotPermitted { server: to_server(), request },
            RequestError::Moved { request } => ClientError::Moved { server: to_server(), request },
            RequestError::KeyTypeChanged => ClientError::KeyTypeChanged { server: to_server() },
            RequestError::Violation(violation) => ClientError::violation(server, violation),
        }
    }
}

/// The reason why a request failed although its response arrived completely.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestError {
    /// The server responded with an error status. The connection remains usable.
    Rejected {
        /// The text that names the request in the error message: the request's key, range, or name.
        request: String,
        /// The likely cause, and what to do.
        hint: &'static str,
    },
    /// The connection must log in first.
    Unauthenticated {
        /// The text that names the request in the error message: the request's key, range, or name.
        request: String,
    },
    /// The server rejected the user's name or password.
    LoginFailed {
        /// The name of the user, quoted.
        user: String,
    },
    /// The user of the connection may not send the request, or may not use the requested keys.
    NotPermitted {
        /// The text that names the request in the error message: the request's key, range, or name.
        request: String,
    },
    /// The table does not have the row, and another node of the cluster serves its slot.
    Moved {
        /// The text that names the request in the error message: the request's key.
        request: String,
    },
    /// The server's table has keys of another type than the client has requested last.
    KeyTypeChanged,
    /// The response violates the protocol. The connection is unusable, because further bytes from this peer cannot be
    /// trusted.
    Violation(Violation),
}
