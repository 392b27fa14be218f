//! A connection to a running server.
//!
//! In: keys. Out: values and rows that the server sent, in memory of their own.
//! One question at a time, and the calling thread waits for the answer. What
//! bytes mean is the business of [`crate::protocol`].
//!
//! [`Client`] has the questions that a [`Store`](crate::Store) answers, by the
//! same names. `ordered` asks those about the order of keys, `page` checks the
//! rows that come back, `rows` asks for page after page, `info` asks about the
//! server itself.

mod error;
mod info;
mod key;
mod ordered;
mod page;
mod rows;

use std::io::{self, BufReader, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};

use zerocopy::{FromZeros, IntoBytes};

pub use error::{AnswerPart, ClientError};
pub use info::Info;
pub use key::{KeyRange, OwnedKey};
pub use ordered::Row;
pub use page::Page;
pub use rows::Rows;

use crate::format::key::{KEY_LEN_MAX_BYTES, Key};
use crate::protocol::answer::{Announced, PageFault, Violation};
use crate::protocol::native::{Op, RESPONSE_HEADER_LEN_BYTES, Request, ResponseHeader, long_len_bytes, push_long};

/// Of a key that is named in an error, so much is shown.
const KEY_SHOWN_MAX_BYTES: usize = 64;

/// A blocking connection to a server's Unix socket.
///
/// There are no timeouts: a server that does not answer holds the caller.
///
/// After an error that is neither [`ClientError::Server`] nor
/// [`ClientError::Refused`] nor about a question that was not sent, nobody can say where the next answer begins. All further questions then fail with
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
/// // Another table's keys are bytes.
/// let mut client = Client::connect("/tmp/names.sock")?;
/// if let Some((key, value)) = client.floor("seven")? {
///     println!("{key}: {} bytes", value.len());
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
    /// Connects to the socket at `path`, or if that begins with an `@`, to the one
    /// with the abstract name behind it.
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
        let connected = match path.as_os_str().as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name).and_then(|address| UnixStream::connect_addr(&address)),
            None => UnixStream::connect(&path),
        };
        match connected {
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
    pub fn get<'k>(&mut self, key: impl Into<Key<'k>>) -> Result<Option<Vec<u8>>, ClientError> {
        self.ask_key(Op::Get, key.into())
    }

    /// Whether a key is in the table. The value is neither read nor checked.
    ///
    /// # Errors
    /// [`ClientError`], but not [`ClientError::Connect`].
    pub fn exists<'k>(&mut self, key: impl Into<Key<'k>>) -> Result<bool, ClientError> {
        Ok(self.ask_key(Op::Exists, key.into())?.is_some())
    }

    /// One question about a key, and the value of its answer.
    fn ask_key(&mut self, op: Op, key: Key<'_>) -> Result<Option<Vec<u8>>, ClientError> {
        check_len(key, 1)?;
        let answer = match key {
            Key::U64(key) => self.ask(op, Request::new(op, key).as_bytes()),
            Key::Bytes(key) => {
                let mut request = Vec::with_capacity(long_len_bytes(key.len()));
                push_long(op, &[key], &mut request);
                self.ask(op, &request)
            }
        };
        match answer? {
            Answer::Value(value) => Ok(Some(value)),
            Answer::NotFound => Ok(None),
            Answer::Error => Err(self.refused(format!("key {}", quoted(key)))),
        }
    }

    /// One question and its answer; one that is found without a value to send has
    /// the empty one.
    fn ask(&mut self, op: Op, request: &[u8]) -> Result<Answer, ClientError> {
        // Broken until the answer is whole, so that no way out leaves it half read.
        if std::mem::replace(&mut self.broken, true) {
            return Err(ClientError::Broken { path: self.path.clone() });
        }
        self.send(request)?;
        let header = self.receive_header()?;
        let answer = match Announced::check(op, &header).map_err(|error| self.violation(error))? {
            Announced::Found { value_len_bytes } => Answer::Value(self.receive_value(value_len_bytes)?),
            Announced::NotFound => Answer::NotFound,
            Announced::Error => Answer::Error,
        };
        let len_bytes = self.stream.buffer().len();
        if len_bytes > 0 {
            return Err(self.violation(Violation::Unasked { len_bytes }));
        }
        self.broken = false;
        Ok(answer)
    }

    fn send(&mut self, request: &[u8]) -> Result<(), ClientError> {
        let sent = self.stream.get_mut().write_all(request);
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

    /// A peer that sends such a page is no server: what else it sends is not
    /// believed either.
    fn page_fault(&mut self, fault: PageFault) -> ClientError {
        self.broken = true;
        self.violation(Violation::Page(fault))
    }

    fn refused(&self, asked: String) -> ClientError {
        ClientError::Server { path: self.path.clone(), asked }
    }
}

/// What a server says.
enum Answer {
    Value(Vec<u8>),
    NotFound,
    Error,
}

/// Whether a key can be sent.
fn check_len(key: Key<'_>, least_bytes: usize) -> Result<(), ClientError> {
    match key.as_bytes().map(<[u8]>::len) {
        Some(len_bytes) if !(least_bytes..=KEY_LEN_MAX_BYTES).contains(&len_bytes) => {
            Err(ClientError::KeyLen { len_bytes })
        }
        _ => Ok(()),
    }
}

/// A key in an error: on one line, and not longer than one reads.
fn quoted(key: Key<'_>) -> String {
    match key {
        Key::U64(key) => key.to_string(),
        Key::Bytes(key) if key.len() <= KEY_SHOWN_MAX_BYTES => format!("\"{}\"", key.escape_ascii()),
        Key::Bytes(key) => format!("\"{}...\"", key[..KEY_SHOWN_MAX_BYTES].escape_ascii()),
    }
}
