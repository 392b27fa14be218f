//! Why a question to a server has no answer.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::protocol::answer::Violation;

/// Why a question has no answer.
///
/// After [`ClientError::Server`] the connection goes on; after every other
/// error it is of no more use.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The socket cannot be connected to.
    #[error("{}: cannot connect: {error}{}", path.display(), remedy(error))]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the system said: [`io::ErrorKind::NotFound`] if there is no
        /// socket, [`io::ErrorKind::ConnectionRefused`] if nobody listens on it.
        error: io::Error,
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
        /// What is wrong with it.
        error: Violation,
    },
    /// The server could not answer for this key.
    #[error(
        "{}: the server answered key {key} with an error, where a value or none was expected: \
         see the log of kv_store; if the value is damaged, bake the file anew",
        path.display()
    )]
    Server {
        /// The socket.
        path: PathBuf,
        /// The key asked for.
        key: u64,
    },
    /// The system failed to send or to receive.
    #[error("{}: {error}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// An earlier question ended in mid-answer.
    #[error("{}: this connection has failed before, and what arrives on it is unknown: connect again", path.display())]
    Broken {
        /// The socket.
        path: PathBuf,
    },
}

/// A part of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerPart {
    /// The header, which comes first.
    Header,
    /// The value that the header announced.
    Value,
}

impl std::fmt::Display for AnswerPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            AnswerPart::Header => "header",
            AnswerPart::Value => "value",
        })
    }
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ": is kv_store running, and on this socket?",
        io::ErrorKind::PermissionDenied => ": ask for access to the socket and its folder",
        _ => "",
    }
}
