//! The stream of a connection that uses TLS.
//!
//! In: records from the socket, and slices of responses. Out: decrypted requests, and records on the socket. All
//! connections of a thread share its buffers. Between calls, a connection keeps only an incomplete record, decrypted
//! bytes that its caller had no room for, and records that the socket has not taken.
//!
//! Each slice is encrypted during the call that passes it, and is read only once. The records therefore contain exactly
//! the bytes that the caller verified before the call.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::server::sockets::{ClientStream, Descriptors};
use crate::server::turns::READ_LEN_BYTES;

/// The maximum length of plaintext that is encrypted at a time: four records.
const CHUNK_LEN_BYTES: usize = 64 << 10;
/// The maximum length of the records of a chunk: four records with their headers and tags, and a few messages of the
/// TLS protocol itself.
const RECORDS_LEN_BYTES: usize = CHUNK_LEN_BYTES + (4 << 10);
/// The maximum length of a record that rustls accepts: a header, 16 KiB of plaintext, and 2048 bytes that encryption
/// may add.
const RECORD_LEN_MAX_BYTES: usize = 5 + (16 << 10) + 2048;
/// The length of one read: enough for a record whose plaintext fills the read buffer.
const ENCRYPTED_READ_LEN_BYTES: usize = READ_LEN_BYTES + 256;
/// The approximate memory of a session's keys and state.
pub(super) const SESSION_LEN_BYTES: usize = 4 << 10;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        received: vec![0; RECORD_LEN_MAX_BYTES + ENCRYPTED_READ_LEN_BYTES].into(),
        plaintext: Vec::new(),
        records: vec![0; RECORDS_LEN_BYTES].into(),
    });
}

struct Scratch {
    /// The incomplete record that a connection kept, followed by the bytes that were just read.
    received: Box<[u8]>,
    /// A chunk that was gathered from several slices.
    plaintext: Vec<u8>,
    records: Box<[u8]>,
}

/// A session whose handshake is complete, and what the client has sent after the handshake.
pub(in crate::server) struct TlsSession {
    pub(super) session: UnbufferedServerConnection,
    /// The beginning of an incomplete record.
    pub(super) incoming: Vec<u8>,
    pub(super) plaintext: Vec<u8>,
}

/// The stream of a connection that uses TLS.
///
/// If [`AsyncWrite::poll_write`] has taken only a part of the bytes, or is pending, the next call must pass the
/// remaining bytes again, optionally followed by more, because some of them may be encrypted already.
pub(in crate::server) struct TlsStream {
    tcp: TcpStream,
    session: Box<UnbufferedServerConnection>,
    /// The beginning of an incomplete record.
    incoming: Vec<u8>,
    /// Decrypted bytes that the caller had no room for.
    plaintext: Vec<u8>,
    /// The number of bytes of `plaintext` that the caller has received.
    delivered_bytes: usize,
    outgoing: Outgoing,
    /// Whether the client has ended its side of the session, or of the connection.
    has_ended: bool,
    /// Whether nothing more can be encrypted, because the server has announced the end of the session, or because the
    /// session has failed.
    has_sent_end: bool,
}

/// Encrypted records that the socket has not taken yet.
#[derive(Default)]
struct Outgoing {
    records: Vec<u8>,
    /// The number of bytes of `records` that have been sent.
    sent_bytes: usize,
    /// The length of the plaintext in these records.
    plaintext_len_bytes: usize,
    /// The number of bytes of the plaintext that have been reported to the caller as sent.
    reported_bytes: usize,
}

impl Outgoing {
    /// Returns how many more plaintext bytes count as sent since the last call. The plaintext counts as sent in
    /// proportion to the bytes of the records that were sent. The server measures the client's progress by this number.
    fn report(&mut self) -> usize {
        let sent = self.plaintext_len_bytes * self.sent_bytes / self.records.len().max(1);
        // The sent share of the records may have decreased, because messages of the TLS protocol itself may have been
        // appended since the last call.
        let new_bytes = sent.saturating_sub(self.reported_bytes);
        self.reported_bytes += new_bytes;
        new_bytes
    }
}

impl TlsStream {
    pub(in crate::server) fn new(tcp: TcpStream, session: TlsSession) -> TlsStream {
        let TlsSession { session, incoming, plaintext } = session;
        TlsStream {
            tcp,
            session: Box::new(session),
            incoming,
            plaintext,
            delivered_bytes: 0,
            outgoing: Outgoing::default(),
            has_ended: false,
            has_sent_end: false,
        }
    }

    /// Delivers decrypted bytes that an earlier call had no room for.
    fn deliver(&mut self, to: &mut ReadBuf<'_>) {
        let rest = &self.plaintext[self.delivered_bytes..];
        let len = rest.len().min(to.remaining());
        to.put_slice(&rest[..len]);
        self.delivered_bytes += len;
        if self.delivered_bytes == self.plaintext.len() {
            (self.plaintext, self.delivered_bytes) = (Vec::new(), 0);
        }
    }

    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        received: &mut [u8],
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = to.filled().len();
        while to.filled().len() == before && !self.has_ended {
            let held = self.incoming.len();
            let Some(room) = received.get_mut(held..held + ENCRYPTED_READ_LEN_BYTES) else {
                return Poll::Ready(Err(io::Error::other("a TLS message that is longer than a record")));
            };
            let mut read = ReadBuf::new(room);
            ready!(Pin::new(&mut self.tcp).poll_read(cx, &mut read))?;
            let read_len = read.filled().len();
            if read_len == 0 {
                self.has_ended = true;
                break;
            }
            received[..held].copy_from_slice(&self.incoming);
            let records = &mut received[..held + read_len];
            let used = self.decrypt(cx, records, to)?;
            self.incoming.clear();
            self.incoming.extend_from_slice(&records[used..]);
            if self.incoming.is_empty() {
                self.incoming = Vec::new();
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Decrypts all complete records into `to`. Once `to` is full, appends the remaining decrypted bytes to
    /// `self.plaintext`. Returns the length of these records before decryption.
    fn decrypt(&mut self, cx: &mut Context<'_>, records: &mut [u8], to: &mut ReadBuf<'_>) -> io::Result<usize> {
        let mut used = 0;
        loop {
            let UnbufferedStatus { mut discard, state, .. } = self.session.process_tls_records(&mut records[used..]);
            let mut is_done = false;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record.map_err(invalid)?;
                        let (now, later) = record.payload.split_at(record.payload.len().min(to.remaining()));
                        to.put_slice(now);
                        self.plaintext.extend_from_slice(later);
                        discard += record.discard;
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut message)) => encode(&mut message, &mut self.outgoing.records)?,
                Ok(ConnectionState::TransmitTlsData(message)) => message.done(),
                Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                    self.has_ended = true;
                    is_done = true;
                }
                Ok(_) => is_done = true,
                Err(error) => {
                    self.send_alert(cx);
                    return Err(invalid(error));
                }
            }
            used += discard;
            if is_done {
                // If the socket is full, these messages are sent before the next response.
                let _ = self.poll_drain(cx)?;
                return Ok(used);
            }
        }
    }

    /// Sends as much of the alert about an error as the socket accepts without waiting.
    fn send_alert(&mut self, cx: &mut Context<'_>) {
        self.has_sent_end = true;
        // After an error, rustls must not get the same bytes again.
        while self.session.wants_write()
            && let Ok(ConnectionState::EncodeTlsData(mut alert)) = self.session.process_tls_records(&mut []).state
        {
            if encode(&mut alert, &mut self.outgoing.records).is_err() {
                return;
            }
        }
        let _ = self.poll_drain(cx);
    }

    fn poll_send_slices(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let drained = self.poll_drain(cx)?;
        if self.outgoing.plaintext_len_bytes > 0 {
            let new_bytes = self.outgoing.report();
            if drained.is_ready() {
                self.outgoing = Outgoing::default();
            }
            return if new_bytes > 0 { Poll::Ready(Ok(new_bytes)) } else { Poll::Pending };
        }
        ready!(drained);
        SCRATCH.with_borrow_mut(|scratch| self.poll_send_new(cx, slices, scratch))
    }

    /// Encrypts and sends the first bytes of `slices`. Must be called only when all earlier records have been sent.
    fn poll_send_new(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
        scratch: &mut Scratch,
    ) -> Poll<io::Result<usize>> {
        let Scratch { plaintext, records, .. } = scratch;
        let chunk = first_chunk(slices, plaintext);
        let len = self.encrypt(records, |traffic, to| traffic.encrypt(chunk, to))?;
        let mut sent = 0;
        while sent < len {
            match Pin::new(&mut self.tcp).poll_write(cx, &records[sent..len])? {
                Poll::Ready(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(written) => sent += written,
                Poll::Pending => {
                    self.outgoing = Outgoing {
                        records: records[..len].to_vec(),
                        sent_bytes: sent,
                        plaintext_len_bytes: chunk.len(),
                        reported_bytes: 0,
                    };
                    let new_bytes = self.outgoing.report();
                    return if new_bytes == 0 { Poll::Pending } else { Poll::Ready(Ok(new_bytes)) };
                }
            }
        }
        Poll::Ready(Ok(chunk.len()))
    }

    /// Calls `encrypt`, and writes the resulting records to the buffer `records`. If the session must first send
    /// messages of the TLS protocol itself, writes these messages before those records. Returns the total length.
    fn encrypt(
        &mut self,
        records: &mut [u8],
        encrypt: impl FnOnce(&mut WriteTraffic<'_, ServerConnectionData>, &mut [u8]) -> Result<usize, EncryptError>,
    ) -> io::Result<usize> {
        let mut len = 0;
        loop {
            // `incoming` has at most an incomplete record, which has no effect here.
            match self.session.process_tls_records(&mut self.incoming).state.map_err(invalid)? {
                ConnectionState::WriteTraffic(mut traffic) => {
                    return Ok(len + encrypt(&mut traffic, &mut records[len..]).map_err(io::Error::other)?);
                }
                ConnectionState::EncodeTlsData(mut message) => {
                    len += message.encode(&mut records[len..]).map_err(io::Error::other)?;
                }
                ConnectionState::TransmitTlsData(message) => message.done(),
                ConnectionState::PeerClosed => {}
                state => return Err(io::Error::other(format!("the TLS session cannot send: {state:?}"))),
            }
        }
    }

    /// Sends the unsent records, until all are sent or the socket is full.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outgoing = &mut self.outgoing;
        while outgoing.sent_bytes < outgoing.records.len() {
            match ready!(Pin::new(&mut self.tcp).poll_write(cx, &outgoing.records[outgoing.sent_bytes..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => outgoing.sent_bytes += written,
            }
        }
        if outgoing.plaintext_len_bytes == 0 && !outgoing.records.is_empty() {
            *outgoing = Outgoing::default();
        }
        Poll::Ready(Ok(()))
    }

    /// Adds the message that ends this side of the session to the unsent records, unless it was added before.
    fn add_end(&mut self) -> io::Result<()> {
        if !std::mem::replace(&mut self.has_sent_end, true) {
            let mut record = [0; 64];
            let len = self.encrypt(&mut record, |traffic, to| traffic.queue_close_notify(to))?;
            self.outgoing.records.extend_from_slice(&record[..len]);
        }
        Ok(())
    }
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Appends a message of the TLS protocol itself.
fn encode(message: &mut EncodeTlsData<'_, ServerConnectionData>, to: &mut Vec<u8>) -> io::Result<()> {
    let before = to.len();
    if let Err(EncodeError::InsufficientSize(needed)) = message.encode(&mut []) {
        to.resize(before + needed.required_size, 0);
        message.encode(&mut to[before..]).map_err(io::Error::other)?;
    }
    Ok(())
}

/// Returns the first bytes of `slices`, at most a chunk. Copies them into `gathered` if they are in several slices.
fn first_chunk<'a>(slices: &'a [IoSlice<'_>], gathered: &'a mut Vec<u8>) -> &'a [u8] {
    let from = slices.iter().take_while(|slice| slice.is_empty()).count();
    let slices = &slices[from..];
    if let [first, rest @ ..] = slices
        && (rest.is_empty() || first.len() >= CHUNK_LEN_BYTES)
    {
        return &first[..first.len().min(CHUNK_LEN_BYTES)];
    }
    gathered.clear();
    for slice in slices {
        let len = slice.len().min(CHUNK_LEN_BYTES - gathered.len());
        gathered.extend_from_slice(&slice[..len]);
    }
    gathered
}

impl AsyncRead for TlsStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        if !stream.plaintext.is_empty() {
            stream.deliver(to);
            return Poll::Ready(Ok(()));
        }
        SCRATCH.with_borrow_mut(|scratch| stream.poll_receive(cx, &mut scratch.received, to))
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll_send_slices(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_send_slices(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_drain(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        stream.add_end()?;
        ready!(stream.poll_drain(cx))?;
        Pin::new(&mut stream.tcp).poll_shutdown(cx)
    }
}

impl ClientStream for TlsStream {
    fn socket(&self) -> BorrowedFd<'_> {
        self.tcp.as_fd()
    }

    fn poll_send_with(&self, _: &mut Context<'_>, _: &[u8], _: &Descriptors) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }

    /// Announces the end of the session, so that the client does not take the end of the connection for a truncation
    /// attack. Sends no announcement if the socket does not accept it at once.
    fn announce_end(&mut self) {
        if self.outgoing.records.is_empty() && self.add_end().is_ok() {
            let _ = self.tcp.try_write(&self.outgoing.records);
        }
    }

    fn held_bytes(&self) -> usize {
        let buffers = self.incoming.capacity() + self.plaintext.capacity() + self.outgoing.records.capacity();
        SESSION_LEN_BYTES + buffers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plaintext_is_reported_as_sent_in_proportion_to_its_records_and_once() {
        for (plaintext_len_bytes, records_len_bytes) in [(1, 23), (16_384, 16_406), (65_536, 65_624), (100, 100)] {
            let records = vec![0; records_len_bytes];
            let mut outgoing = Outgoing { records, plaintext_len_bytes, ..Outgoing::default() };
            let mut total_bytes = 0;
            for sent_bytes in 0..=records_len_bytes {
                outgoing.sent_bytes = sent_bytes;
                total_bytes += outgoing.report();
                assert_eq!(outgoing.report(), 0, "nothing was sent since the last call");
                assert!(total_bytes <= sent_bytes);
                // Otherwise, a caller that was told that everything is sent would send the rest again.
                assert_eq!(total_bytes == plaintext_len_bytes, sent_bytes == records_len_bytes);
            }
        }
    }

    #[test]
    fn a_chunk_is_the_beginning_of_all_slices() {
        let long = vec![7; CHUNK_LEN_BYTES + 1];
        let cases: [(&[&[u8]], Vec<u8>); 6] = [
            (&[], vec![]),
            (&[b"", b"", b"one"], b"one".to_vec()),
            (&[b"one", b"", b"two"], b"onetwo".to_vec()),
            (&[&long, b"two"], long[1..].to_vec()),
            (&[b"\x07", &long], long[1..].to_vec()),
            (&[b"", &long], long[1..].to_vec()),
        ];
        for (slices, expected) in cases {
            let slices: Vec<IoSlice> = slices.iter().map(|slice| IoSlice::new(slice)).collect();
            assert!(first_chunk(&slices, &mut vec![1]) == expected, "{} slices", slices.len());
        }
    }
}
