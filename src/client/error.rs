//! Why a question to a server has no answer.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use super::question::Unanswered;
use crate::format::key::{KEY_LEN_MAX_BYTES, KeyKind};
use crate::protocol::answer::Violation;
use crate::protocol::reader::AnswerPart;

/// Why a question has no answer.
///
/// Behind [`ClientError::Server`], [`ClientError::KeyLen`] and
/// [`ClientError::MixedKeys`] the connection goes on. Behind every other one the
/// client has dropped it, and its next call connects anew.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// There is no such socket, or nobody listens on it.
    #[error("{}: cannot connect: {error}: is kv_store running, and on this socket?", path.display())]
    NotRunning {
        /// The socket.
        path: PathBuf,
        /// [`io::ErrorKind::NotFound`] if there is no socket,
        /// [`io::ErrorKind::ConnectionRefused`] if nobody listens on it.
        error: io::Error,
    },
    /// The server is there, and this client may not ask it.
    #[error("{}: {reason}", path.display())]
    Refused {
        /// The socket.
        path: PathBuf,
        /// How it was refused.
        reason: Refusal,
    },
    /// The server runs as a user that this client does not trust. Nothing was sent.
    #[error("{}: {problem}", path.display())]
    UntrustedServer {
        /// The socket.
        path: PathBuf,
        /// The user that the server runs as.
        uid: u32,
        /// Which users were expected, why, and what to do.
        problem: String,
    },
    /// It took too long.
    #[error("{}: timed out after {after:.1?} {phase}", path.display())]
    TimedOut {
        /// The socket.
        path: PathBuf,
        /// What was waited for.
        phase: Phase,
        /// How long the call, or the connecting, had taken by then.
        after: Duration,
    },
    /// The server closed the connection before its answer was complete.
    #[error(
        "{}: the server closed the connection after {arrived_bytes} of {expected_bytes} bytes of the answer's {part}: \
         connect again; if that does not help, see the log of kv_store",
        path.display()
    )]
    Closed {
        /// The socket.
        path: PathBuf,
        /// The part of the answer that is not complete.
        part: AnswerPart,
        /// Bytes of this part that arrived.
        arrived_bytes: usize,
        /// Bytes that this part has.
        expected_bytes: usize,
    },
    /// What the peer sent is not an answer.
    #[error("{}: {error}: is this the socket of a kv_store of this version?", path.display())]
    Protocol {
        /// The socket.
        path: PathBuf,
        /// What was expected, and what came.
        error: Violation,
    },
    /// The server answered with an error status.
    #[error("{}: the server answered {asked} with an error: {hint}", path.display())]
    Server {
        /// The socket.
        path: PathBuf,
        /// What was asked for, in words: a key, a range, or a command.
        asked: String,
        /// What it may be due to.
        hint: &'static str,
    },
    /// The server's file cannot be looked up in directly.
    #[error("{}: no direct mode: {problem}", path.display())]
    Direct {
        /// The socket.
        path: PathBuf,
        /// What is in the way, and what to do.
        problem: String,
    },
    /// No table has this key. Nothing was sent.
    #[error("a key of {len_bytes} bytes, where 1 to {KEY_LEN_MAX_BYTES} are possible")]
    KeyLen {
        /// The key's length.
        len_bytes: usize,
    },
    /// No table has keys of both kinds. Nothing was sent.
    #[error("a range whose start is one of {start} and whose end is one of {end}, where both must be of one kind")]
    MixedKeys {
        /// The kind of the key at the start.
        start: KeyKind,
        /// The kind of the key at the end.
        end: KeyKind,
    },
    /// The system failed.
    #[error("{}: {phase}: {error}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// What was being done.
        phase: Phase,
        /// What the system said.
        error: io::Error,
    },
}

/// How a client was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// By the rights of the socket or of its folder.
    NoPermission,
    /// By the server: it took the connection and closed it before a byte of an answer.
    Closed,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::NoPermission => "cannot connect: Permission denied: ask for access to the socket and its folder",
            Refusal::Closed => {
                "the server took the connection and closed it without an answer: this user may not ask it, it has as \
                 many connections as it may, or it is ending: see the log of kv_store"
            }
        })
    }
}

/// What a client was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Connecting.
    Connect,
    /// Sending requests that the server does not read.
    Send,
    /// Waiting for an answer.
    Receive,
    /// Waiting for a connection of a pool's, all of which were in use.
    Turn,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Connect => "connecting",
            Phase::Send => "sending requests",
            Phase::Receive => "waiting for an answer",
            Phase::Turn => "waiting for a connection of the pool, all of which were in use",
        })
    }
}

impl ClientError {
    /// Of a connection that could not be had.
    pub(super) fn of_connect(path: &Path, error: io::Error) -> Self {
        let path = path.to_path_buf();
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ClientError::NotRunning { path, error },
            io::ErrorKind::PermissionDenied => ClientError::Refused { path, reason: Refusal::NoPermission },
            _ => ClientError::Io { path, phase: Phase::Connect, error },
        }
    }

    pub(super) fn violation(path: &Path, error: Violation) -> Self {
        ClientError::Protocol { path: path.to_path_buf(), error }
    }

    pub(super) fn unanswered(path: &Path, unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Error { asked, hint } => ClientError::Server { path: path.to_path_buf(), asked, hint },
            Unanswered::Violation(error) => ClientError::violation(path, error),
        }
    }

    /// What the keys of a table are, that answers for neither kind.
    pub(super) fn of_no_kind(path: &Path) -> Self {
        let asked = "the question what its keys are".to_owned();
        ClientError::Server { path: path.to_path_buf(), asked, hint: "see the log of kv_store" }
    }
}
