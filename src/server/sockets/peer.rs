//! The client at the other end of a connection.

use std::fmt;
use std::net::SocketAddr;

use tokio::net::UnixStream;

use crate::user_namespace::is_ambiguous;

/// The client at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Peer {
    /// A TCP client, and its address.
    Tcp(SocketAddr),
    /// A client of the Unix socket, and its process if the system reports it.
    Unix(Option<Process>),
}

/// A client's process and the user of that process, as they were when the client connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) struct Process {
    /// The process ID, or 0 if the process is not visible, for example because it is in another container.
    pid: i32,
    uid: u32,
}

impl Peer {
    pub(in crate::server) fn from_stream(stream: &UnixStream) -> Peer {
        let process = |cred: tokio::net::unix::UCred| Process { pid: cred.pid().unwrap_or_default(), uid: cred.uid() };
        Peer::Unix(stream.peer_cred().ok().map(process))
    }

    /// Returns the address of a TCP client, or `None` for a client of the Unix socket.
    pub(in crate::server) fn address(&self) -> Option<SocketAddr> {
        match self {
            Peer::Tcp(address) => Some(*address),
            Peer::Unix(_) => None,
        }
    }

    /// Returns whether the client uses the Unix socket, over which it can receive descriptors.
    pub(in crate::server) fn is_unix(&self) -> bool {
        matches!(self, Peer::Unix(_))
    }

    /// Returns whether the client may change which generation is served: its user must be root or the user that the
    /// server runs as. Returns false if the ID of the client's user is the overflow ID of a user namespace, and may
    /// therefore also represent other users.
    pub(in crate::server) fn is_admin(&self) -> bool {
        let ours = rustix::process::geteuid().as_raw();
        matches!(self, Peer::Unix(Some(Process { uid, .. })) if [0, ours].contains(uid) && !is_ambiguous(*uid))
    }
}

impl Default for Peer {
    fn default() -> Self {
        Peer::Unix(None)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Tcp(address) => write!(f, "{address}"),
            Peer::Unix(Some(Process { pid, uid })) => write!(f, "pid {pid} uid {uid}"),
            Peer::Unix(None) => write!(f, "unknown"),
        }
    }
}
