//! Moves bytes between a pipeline and a socket, with or without TLS.
//!
//! In: unsent requests, and a socket. Out: received bytes, in the buffer of the pipeline. Both clients use these
//! functions, and differ only in how they wait for the socket.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;

use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::error::Phase;
use super::pipeline::{Pipeline, TransferError};
use super::tls::TlsSession;

/// A socket as a reader and a writer. Writing never blocks.
pub(super) struct Socket<S> {
    pub(super) socket: S,
    /// With [`RecvFlags::DONTWAIT`], a read never blocks. Without flags, a read waits for bytes until the socket's
    /// time-out.
    pub(super) receive_flags: RecvFlags,
}

impl<S: AsFd> Socket<S> {
    pub(super) fn nonblocking(socket: S) -> Self {
        Socket { socket, receive_flags: RecvFlags::DONTWAIT }
    }
}

impl<S: AsFd> Read for Socket<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (_, len_bytes) = recv(&self.socket, buffer, self.receive_flags)?;
        Ok(len_bytes)
    }
}

impl<S: AsFd> Write for Socket<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(&self.socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends as many bytes of requests as the socket accepts.
pub(super) fn send_requests(
    tls: &mut Option<Box<TlsSession>>,
    pipeline: &mut Pipeline,
    socket: &mut (impl Read + Write),
) -> Result<(), TransferError> {
    loop {
        let sent = match tls {
            None if pipeline.unsent().is_empty() => return Ok(()),
            None => socket.write(pipeline.unsent()).map(|len_bytes| pipeline.sent(len_bytes)),
            Some(session) => {
                let len_bytes = session.encrypt(pipeline.unsent());
                pipeline.sent(len_bytes);
                if !session.has_unsent() {
                    return Ok(());
                }
                session.send(socket)
            }
        };
        match sent {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                // A server that ends a TLS session sends the reason before it closes the connection. The received
                // reason becomes the error.
                if tls.is_some() {
                    while receive_responses(tls, pipeline, socket)? {}
                }
                return Err(TransferError::System(Phase::Send, error));
            }
        }
    }
}

/// Receives bytes of responses. Returns false if no bytes have arrived yet.
pub(super) fn receive_responses(
    tls: &mut Option<Box<TlsSession>>,
    pipeline: &mut Pipeline,
    socket: &mut (impl Read + Write),
) -> Result<bool, TransferError> {
    let phase = pipeline.phase();
    if decrypt(tls, pipeline, socket)? {
        return Ok(true);
    }
    let received = match tls {
        None => socket.read(pipeline.spare()),
        Some(session) => session.receive(socket),
    };
    match received {
        Ok(0) => Err(TransferError::Closed),
        Ok(len_bytes) => {
            match tls {
                None => pipeline.received(len_bytes),
                Some(_) => _ = decrypt(tls, pipeline, socket)?,
            }
            Ok(true)
        }
        Err(error) if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind()) => Ok(false),
        Err(error) => Err(TransferError::System(phase, error)),
    }
}

/// Decrypts received records into the pipeline's buffer. Returns whether any bytes were decrypted. A client must
/// decrypt all received records before it waits for the socket, because the socket does not become readable for these
/// records.
pub(super) fn decrypt(
    tls: &mut Option<Box<TlsSession>>,
    pipeline: &mut Pipeline,
    socket: &mut impl Write,
) -> Result<bool, TransferError> {
    let Some(session) = tls else { return Ok(false) };
    match session.decrypt(pipeline.spare()) {
        Ok(Some(0)) => Err(TransferError::Closed),
        Ok(Some(len_bytes)) => {
            pipeline.received(len_bytes);
            Ok(true)
        }
        Ok(None) => Ok(false),
        Err(problem) => {
            // This sends an alert, which tells the server the reason. A failure to send the alert does not matter.
            let _ = session.send(socket);
            Err(TransferError::Tls(problem))
        }
    }
}

/// Returns whether encrypted bytes are unsent.
pub(super) fn has_unsent_records(tls: &Option<Box<TlsSession>>) -> bool {
    tls.as_ref().is_some_and(|session| session.has_unsent())
}

/// Returns true if a connection is open and has no unread bytes. Messages of the TLS protocol itself, such as session
/// tickets, do not count as unread bytes.
pub(super) fn is_idle(tls: &mut Option<Box<TlsSession>>, socket: impl AsFd) -> bool {
    let Some(session) = tls else {
        return recv(socket, &mut [0], RecvFlags::PEEK | RecvFlags::DONTWAIT) == Err(rustix::io::Errno::AGAIN);
    };
    let mut socket = Socket::nonblocking(socket);
    loop {
        match session.decrypt(&mut [0]) {
            Ok(None) => {}
            Ok(Some(_)) | Err(_) => return false,
        }
        match session.receive(&mut socket) {
            Ok(1..) => {}
            Ok(0) => return false,
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}
