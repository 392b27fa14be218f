//! Who is at the other end of a connection.

use std::fmt;
use std::net::SocketAddr;

use tokio::net::UnixStream;

use crate::user_namespace::is_ambiguous;

/// Who connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// Over TCP, from there.
    Tcp(SocketAddr),
    /// Over the Unix socket: who did, if the system tells.
    Unix(Option<Process>),
}

/// A process, as it was when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    /// 0 if it cannot be seen from here, as from another container.
    pid: i32,
    uid: u32,
}

impl Peer {
    pub(super) fn of(stream: &UnixStream) -> Peer {
        let process = |of: tokio::net::unix::UCred| Process { pid: of.pid().unwrap_or_default(), uid: of.uid() };
        Peer::Unix(stream.peer_cred().ok().map(process))
    }

    /// Where it is, if it came over TCP.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        match self {
            Peer::Tcp(address) => Some(*address),
            Peer::Unix(_) => None,
        }
    }

    /// Whether it is on this machine, and can be handed descriptors.
    pub(super) fn is_unix(&self) -> bool {
        matches!(self, Peer::Unix(_))
    }

    /// Returns whether it may change which generation is served: it is root or the user that the server runs as. A number
    /// that different users share is neither.
    pub(super) fn is_admin(&self) -> bool {
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
