//! Why a question to a server has no answer.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::format::key::{KEY_LEN_MAX_BYTES, KeyKind};
use crate::protocol::answer::Violation;

/// Why a question has no answer.
///
/// After [`ClientError::Server`], [`ClientError::Refused`],
/// [`ClientError::KeyLen`] and [`ClientError::MixedKeys`] the connection goes on;
/// after every other error it is of no more use.
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
    /// The server could not answer this question.
    #[error(
        "{}: the server answered {asked} with an error: the table's keys may be of the other kind (numbers, not \
         bytes, or bytes, not numbers); if they are not, see the log of kv_store, and if the value is damaged, \
         bake the file anew",
        path.display()
    )]
    Server {
        /// The socket.
        path: PathBuf,
        /// What was asked for, in words: a key, or a range.
        asked: String,
    },
    /// The server did not do what it was asked about itself.
    #[error("{}: the server answered the request for {asked} with an error: {reason}", path.display())]
    Refused {
        /// The socket.
        path: PathBuf,
        /// What was asked for, in words.
        asked: &'static str,
        /// What it may be due to.
        reason: &'static str,
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
