//! A connection to a running server.
//!
//! In: keys. Out: values that the server sent, each in memory of its own. One
//! question at a time, and the calling thread waits for the answer. What bytes
//! mean is the business of [`crate::protocol`].

mod error;

use std::io::{self, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use zerocopy::{FromZeros, IntoBytes};

pub use error::{AnswerPart, ClientError};

use crate::protocol::answer::{Announced, Violation};
use crate::protocol::native::{Op, RESPONSE_HEADER_LEN_BYTES, Request, ResponseHeader};

/// A blocking connection to a server's Unix socket.
///
/// There are no timeouts: a server that does not answer holds the caller.
///
/// After an error other than [`ClientError::Server`] nobody can say where the
/// next answer begins. All further questions then fail with
/// [`ClientError::Broken`], rather than be answered with another key's bytes.
///
/// # Example
/// ```no_run
/// use zero_kv::client::Client;
///
/// let mut client = Client::connect("/tmp/zero-kv.sock")?;
/// match client.get(7)? {
///     Some(value) => println!("{} bytes", value.len()),
///     None => println!("not in the table"),
/// }
/// # Ok::<(), zero_kv::client::ClientError>(())
/// ```
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    /// Header and small values arrive in one read.
    stream: BufReader<UnixStream>,
    broken: bool,
}

impl Client {
    /// Connects to the socket at `path`.
    ///
    /// # Errors
    /// [`ClientError::Connect`].
    ///
    /// # Example
    /// ```
    /// use zero_kv::client::Client;
    ///
    /// let error = Client::connect("no/such/zero-kv.sock").unwrap_err();
    /// assert!(error.to_string().starts_with("no/such/zero-kv.sock: cannot connect: "));
    /// assert!(error.to_string().ends_with("is kv_store running, and on this socket?"));
    /// ```
    pub fn connect(path: impl AsRef<Path>) -> Result<Client, ClientError> {
        let path = path.as_ref().to_path_buf();
        match UnixStream::connect(&path) {
            Ok(stream) => Ok(Client { path, stream: BufReader::new(stream), broken: false }),
            Err(error) => Err(ClientError::Connect { path, error }),
        }
    }

    /// The value of a key, or `None` if the key is not in the table.
    ///
    /// Memory for the value grows as its bytes arrive, up to
    /// [`VALUE_LEN_MAX_BYTES`](crate::protocol::native::VALUE_LEN_MAX_BYTES); an
    /// answer that announces more is refused.
    ///
    /// # Errors
    /// [`ClientError`], but not [`ClientError::Connect`].
    pub fn get(&mut self, key: u64) -> Result<Option<Vec<u8>>, ClientError> {
        self.ask(Op::Get, key)
    }

    /// Whether a key is in the table. The value is neither read nor checked.
    ///
    /// # Errors
    /// [`ClientError`], but not [`ClientError::Connect`].
    pub fn exists(&mut self, key: u64) -> Result<bool, ClientError> {
        Ok(self.ask(Op::Exists, key)?.is_some())
    }

    /// One question and its answer; a key that is there without a value to send
    /// has the empty one.
    fn ask(&mut self, op: Op, key: u64) -> Result<Option<Vec<u8>>, ClientError> {
        // Broken until the answer is whole, so that no way out leaves it half read.
        if std::mem::replace(&mut self.broken, true) {
            return Err(ClientError::Broken { path: self.path.clone() });
        }
        self.send(&Request::new(op, key))?;
        let header = self.receive_header()?;
        let announced = Announced::check(op, &header).map_err(|error| self.violation(error))?;
        let value = match announced {
            Announced::Found { value_len_bytes } => Some(self.receive_value(value_len_bytes)?),
            Announced::NotFound | Announced::Error => None,
        };
        let len_bytes = self.stream.buffer().len();
        if len_bytes > 0 {
            return Err(self.violation(Violation::Unasked { len_bytes }));
        }
        self.broken = false;
        match announced {
            Announced::Error => Err(ClientError::Server { path: self.path.clone(), key }),
            _ => Ok(value),
        }
    }

    fn send(&mut self, request: &Request) -> Result<(), ClientError> {
        let sent = self.stream.get_mut().write_all(request.as_bytes());
        sent.map_err(|error| self.failed(AnswerPart::Header, 0, RESPONSE_HEADER_LEN_BYTES, error))
    }

    fn receive_header(&mut self) -> Result<ResponseHeader, ClientError> {
        let mut header = ResponseHeader::new_zeroed();
        let bytes = header.as_mut_bytes();
        let (expected_bytes, mut arrived_bytes) = (bytes.len(), 0);
        while arrived_bytes < expected_bytes {
            match self.stream.read(&mut bytes[arrived_bytes..]) {
                Ok(0) => return Err(self.closed(AnswerPart::Header, arrived_bytes, expected_bytes)),
                Ok(len_bytes) => arrived_bytes += len_bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(AnswerPart::Header, arrived_bytes, expected_bytes, error)),
            }
        }
        Ok(header)
    }

    fn receive_value(&mut self, len_bytes: usize) -> Result<Vec<u8>, ClientError> {
        // Not with the announced capacity: eight bytes from a peer must not take 1 GiB.
        let mut value = Vec::new();
        let received = self.stream.by_ref().take(len_bytes as u64).read_to_end(&mut value);
        match received {
            Ok(_) if value.len() == len_bytes => Ok(value),
            Ok(_) => Err(self.closed(AnswerPart::Value, value.len(), len_bytes)),
            Err(error) => Err(self.failed(AnswerPart::Value, value.len(), len_bytes, error)),
        }
    }

    /// A peer that closes before it has read everything is seen as a reset or a
    /// broken pipe; for the caller it is the same.
    fn failed(&self, part: AnswerPart, arrived_bytes: usize, expected_bytes: usize, error: io::Error) -> ClientError {
        match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                self.closed(part, arrived_bytes, expected_bytes)
            }
            _ => ClientError::Io { path: self.path.clone(), error },
        }
    }

    fn closed(&self, part: AnswerPart, arrived_bytes: usize, expected_bytes: usize) -> ClientError {
        ClientError::Closed { path: self.path.clone(), part, arrived_bytes, expected_bytes }
    }

    fn violation(&self, error: Violation) -> ClientError {
        ClientError::Protocol { path: self.path.clone(), error }
    }
}
