//! TLS for the connections of a TCP port.
//!
//! In: files with certificates and keys, and accepted TCP connections. Out: connections whose handshake is complete,
//! with decrypted requests and encrypted responses. Nothing in this folder depends on the protocol of the requests. The
//! caller limits the time of a handshake.
//!
//! Reasons and evidence: `docs/decisions/tls.md`.

mod certificates;
mod stream;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use rustls::ServerConfig;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use tokio::net::TcpStream;

use crate::setting::Setting;
pub(super) use certificates::Certificates;
use stream::SESSION_LEN_BYTES;
pub(super) use stream::{TlsSession, TlsStream};

/// The files and limits of a server's TLS port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// The PEM file with the server's certificate, followed by the intermediate certificates.
    pub certificate: PathBuf,
    /// The PEM file with the private key of the server's certificate, in the format PKCS #8, PKCS #1, or SEC 1.
    pub key: PathBuf,
    /// The PEM file with the certificates of the authorities that sign client certificates. If set, only clients with a
    /// certificate from one of these authorities can connect. `None`: clients need no certificate.
    pub client_ca: Option<PathBuf>,
    /// The time after which a client is disconnected if its handshake is not complete.
    pub handshake_timeout: Duration,
}

impl TlsConfig {
    /// The default time-out of a handshake.
    pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

    /// Returns a configuration that requires no client certificates and has the default time-out.
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> TlsConfig {
        TlsConfig {
            certificate: certificate.into(),
            key: key.into(),
            client_ca: None,
            handshake_timeout: Self::HANDSHAKE_TIMEOUT,
        }
    }
}

/// The maximum length of one read. Most clients send no flight of a handshake that is longer.
const READ_LEN_BYTES: usize = 4 << 10;
/// The maximum number of received bytes that do not contain a complete handshake message. A handshake that reaches this
/// number fails. rustls has about the same limit on the length of a handshake message.
const INCOMING_MAX_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(super) enum HandshakeError {
    /// The client did not use TLS. The value is the first byte that it sent.
    Plaintext(u8),
    /// The connection ended or failed.
    Io(io::Error),
    /// All handshakes together hold too much memory.
    Memory,
    /// The client violated the protocol, or the client and the server could not agree, or the client's certificate was
    /// rejected.
    Tls(rustls::Error),
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> HandshakeError {
        HandshakeError::Io(error)
    }
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HandshakeError::Plaintext(byte) => write!(f, "sent plaintext, which began with {:?}", char::from(*byte)),
            HandshakeError::Memory => {
                write!(f, "all handshakes together hold more than an eighth of {}", Setting::ClientMemoryMax)
            }
            HandshakeError::Io(error) => error.fmt(f),
            HandshakeError::Tls(error) => error.fmt(f),
        }
    }
}

/// Performs the handshake of an accepted connection. Regularly calls `may_hold` with the number of bytes of memory that
/// the handshake holds. The handshake fails if `may_hold` returns false.
pub(super) async fn handshake(
    tcp: &TcpStream,
    config: Arc<ServerConfig>,
    mut may_hold: impl FnMut(usize) -> bool,
) -> Result<TlsSession, HandshakeError> {
    let mut session = UnbufferedServerConnection::new(config).map_err(HandshakeError::Tls)?;
    let (mut incoming, mut outgoing, mut plaintext) = (Vec::new(), Vec::new(), Vec::new());
    let mut is_first = true;
    loop {
        let UnbufferedStatus { mut discard, state, .. } = session.process_tls_records(&mut incoming);
        let mut needs_more = false;
        match state {
            Ok(ConnectionState::EncodeTlsData(mut message)) => append(&mut outgoing, |to| message.encode(to)),
            Ok(ConnectionState::TransmitTlsData(sent)) => {
                send(tcp, &mut outgoing).await?;
                sent.done();
            }
            // The last flight of a handshake may be followed by requests.
            Ok(ConnectionState::ReadTraffic(mut records)) => {
                while let Some(record) = records.next_record() {
                    let record = record.map_err(HandshakeError::Tls)?;
                    plaintext.extend_from_slice(record.payload);
                    discard += record.discard;
                }
            }
            Ok(ConnectionState::WriteTraffic(_)) => {
                incoming.drain(..discard);
                return Ok(TlsSession { session, incoming, plaintext });
            }
            Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            Ok(_) => needs_more = true,
            Err(error) => {
                send_alert(tcp, &mut session, &mut outgoing);
                return Err(HandshakeError::Tls(error));
            }
        }
        incoming.drain(..discard);
        if !may_hold(SESSION_LEN_BYTES + incoming.capacity() + outgoing.capacity() + plaintext.capacity()) {
            return Err(HandshakeError::Memory);
        }
        if needs_more {
            receive(tcp, &mut incoming).await?;
            if let (true, Some(byte)) =
                (std::mem::take(&mut is_first), incoming.first().filter(|byte| is_plaintext(**byte)))
            {
                return Err(HandshakeError::Plaintext(*byte));
            }
        }
    }
}

/// Returns whether a connection that begins with this byte does not use TLS: the byte begins a native request or a
/// command of the Redis protocol.
fn is_plaintext(byte: u8) -> bool {
    byte == 0 || byte.is_ascii_graphic() || byte.is_ascii_whitespace()
}

/// Waits for more bytes, and appends them.
async fn receive(tcp: &TcpStream, incoming: &mut Vec<u8>) -> io::Result<()> {
    let before = incoming.len();
    if before >= INCOMING_MAX_BYTES {
        let problem = format!("more than {INCOMING_MAX_BYTES} bytes of an incomplete handshake message");
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    incoming.resize(before + READ_LEN_BYTES, 0);
    loop {
        tcp.readable().await?;
        match tcp.try_read(&mut incoming[before..]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                incoming.truncate(before + read?);
                return Ok(());
            }
        }
    }
}

/// Appends the record that `encode` writes.
fn append(outgoing: &mut Vec<u8>, mut encode: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>) {
    let before = outgoing.len();
    if let Err(EncodeError::InsufficientSize(needed)) = encode(&mut []) {
        outgoing.resize(before + needed.required_size, 0);
        let len = encode(&mut outgoing[before..]).unwrap_or_default();
        outgoing.truncate(before + len);
    }
}

async fn send(tcp: &TcpStream, outgoing: &mut Vec<u8>) -> io::Result<()> {
    let mut sent = 0;
    while sent < outgoing.len() {
        tcp.writable().await?;
        match tcp.try_write(&outgoing[sent..]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            written => sent += written?,
        }
    }
    outgoing.clear();
    Ok(())
}

/// Sends as much of the alert about a failed handshake as the socket accepts without waiting.
fn send_alert(tcp: &TcpStream, session: &mut UnbufferedServerConnection, outgoing: &mut Vec<u8>) {
    // After an error, rustls must not get the same bytes again.
    while session.wants_write()
        && let Ok(ConnectionState::EncodeTlsData(mut alert)) = session.process_tls_records(&mut []).state
    {
        append(outgoing, |to| alert.encode(to));
    }
    let _ = tcp.try_write(outgoing);
}
