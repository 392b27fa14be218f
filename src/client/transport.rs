//! The unsent requests and the received bytes of a connection, and how they move between it and a socket, with or
//! without TLS.
//!
//! In: unsent requests, and a socket. Out: received bytes, in the buffer of the pipeline. Both clients use these
//! functions, and differ only in how they wait for the socket.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::address::Address;
use super::batch::{Batch, EncodeRequest, VisitResponse};
use super::cache::{Cache, CacheInState};
use super::columns::SelectedColumns;
use super::error::{ClientError, Phase};
use super::options::Options;
use super::retry::Deadline;
use super::tls::TlsSession;
use crate::format::key_type::KeyType;
use crate::protocol::reader::{PartialResponse, ResponseReader};
use crate::protocol::response::Violation;

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
        // NOSIGNAL: SIGPIPE would kill a program whose server closes the connection.
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

/// Receives the notices that have arrived while no request is in flight. The socket must not block. A server that never
/// stops sending notices does not keep a call going after the deadline.
pub(super) fn read_notices(
    tls: &mut Option<Box<TlsSession>>,
    pipeline: &mut Pipeline,
    socket: &mut (impl Read + Write),
    deadline: Deadline,
) -> Result<(), TransferError> {
    // Bytes of a TLS record are not always bytes of a response.
    while receive_responses(tls, pipeline, socket)? {
        pipeline.read_notices().map_err(TransferError::Violation)?;
        if deadline.left().is_some_and(|left| left.is_zero()) {
            return Err(TransferError::TimedOut(Phase::Receive));
        }
    }
    Ok(())
}

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

/// Encoded requests and received bytes of one connection.
#[derive(Debug)]
pub(super) struct Pipeline {
    requests: Vec<u8>,
    sent_bytes: usize,
    reader: ResponseReader,
    has_received: bool,
    /// The columns that were selected on the connection.
    pub(super) selected: Option<Arc<SelectedColumns>>,
    /// The type of the keys that the server looks up. `None` if it is unknown or was not requested.
    key_type: Option<KeyType>,
    /// Whether the state has changed since the type of the keys was requested last.
    has_changed: bool,
    pub(super) tracking: Tracking,
    cache: Option<Cache>,
    server: Address,
}

/// Whether the server announces changes of the connection's state.
#[derive(Debug, Default)]
pub(super) enum Tracking {
    /// The client has not asked for it.
    #[default]
    Off,
    /// The server does not do it, for example because the user may not read keys.
    Refused,
    /// The values of the current state.
    On(CacheInState),
}

impl Pipeline {
    pub(super) fn new(server: &Address, options: &Options) -> Self {
        let reader = ResponseReader::new(options.value_len_max_bytes);
        Pipeline {
            requests: Vec::new(),
            sent_bytes: 0,
            reader,
            has_received: false,
            selected: None,
            key_type: None,
            has_changed: false,
            tracking: Tracking::Off,
            cache: options.cache.clone(),
            server: server.clone(),
        }
    }

    /// Visits the responses that have arrived, and encodes more requests once the earlier ones are sent. Returns
    /// whether the batch is complete.
    #[inline]
    pub(super) fn advance<E: EncodeRequest, V: VisitResponse>(
        &mut self,
        batch: &mut Batch<E, V>,
    ) -> Result<bool, Violation> {
        batch.visit_responses(&mut self.reader)?;
        self.follow_state();
        if batch.is_all_received() {
            // Bytes beyond the last response would be taken for the response to the next request.
            self.reader.finish()?;
            self.follow_state();
            if !self.unsent().is_empty() {
                return Err(Violation::ResponseBeforeRequest);
            }
            if batch.is_all_sent() {
                return Ok(true);
            }
        }
        if self.unsent().is_empty() {
            self.requests.clear();
            self.sent_bytes = 0;
            batch.fill(&mut self.requests);
        }
        Ok(false)
    }

    /// Accepts notices from now on.
    pub(super) fn expect_notices(&mut self) {
        self.reader.expect_notices();
    }

    /// Reads the notices that have arrived while no request is in flight.
    pub(super) fn read_notices(&mut self) -> Result<(), Violation> {
        self.reader.finish()?;
        self.follow_state();
        Ok(())
    }

    /// Follows the last state that the server has named. In another state, keys may be of another type.
    #[inline]
    fn follow_state(&mut self) {
        if let (Some(state), Some(cache)) = (self.reader.take_state(), &self.cache) {
            self.tracking = Tracking::On(cache.enter(&self.server, state));
            (self.key_type, self.has_changed) = (None, true);
        }
    }

    /// Returns the type of the keys that the server looks up for the connection. `None` if it is unknown or was not
    /// requested.
    pub(super) fn key_type(&self) -> Option<KeyType> {
        self.key_type
    }

    /// Forgets the type of the keys before it is requested.
    pub(super) fn begin_key_type(&mut self) {
        (self.key_type, self.has_changed) = (None, false);
    }

    /// Stores the type that was received, unless the state has changed since it was requested.
    pub(super) fn set_key_type(&mut self, key_type: Option<KeyType>) {
        self.key_type = key_type.filter(|_| !self.has_changed);
    }

    /// Returns the values of the connection's state.
    pub(super) fn cache(&self) -> Option<&CacheInState> {
        match &self.tracking {
            Tracking::On(cache) => Some(cache),
            Tracking::Off | Tracking::Refused => None,
        }
    }

    pub(super) fn unsent(&self) -> &[u8] {
        &self.requests[self.sent_bytes..]
    }

    /// Marks the first `len_bytes` of [`Pipeline::unsent`] as sent.
    pub(super) fn sent(&mut self, len_bytes: usize) {
        self.sent_bytes += len_bytes;
    }

    pub(super) fn spare(&mut self) -> &mut [u8] {
        self.reader.spare()
    }

    /// Marks the first `len_bytes` of [`Pipeline::spare`] as received.
    pub(super) fn received(&mut self, len_bytes: usize) {
        self.has_received = true;
        self.reader.received(len_bytes);
    }

    /// Returns [`Phase::Send`] if the connection has unsent requests, and [`Phase::Receive`] if it only waits for
    /// responses.
    pub(super) fn phase(&self) -> Phase {
        match self.unsent().is_empty() {
            true => Phase::Receive,
            false => Phase::Send,
        }
    }

    /// Returns the error of a call whose requests could not be sent, or whose responses could not be received.
    #[cold]
    pub(super) fn error(&self, server: &Address, error: TransferError, deadline: Deadline) -> ClientError {
        let server = server.clone();
        match error {
            TransferError::TimedOut(phase) => {
                ClientError::TimedOut { server, phase, after: deadline.started.elapsed() }
            }
            // The kernel reports these errors if the peer closed the connection before it read every request.
            TransferError::System(_, error)
                if [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe].contains(&error.kind()) =>
            {
                self.closed(server)
            }
            TransferError::System(phase, error) => ClientError::Io { server, phase, error },
            TransferError::Closed => self.closed(server),
            TransferError::Tls(problem) => ClientError::Tls { server, problem },
            TransferError::Violation(violation) => ClientError::violation(&server, violation),
        }
    }

    fn closed(&self, server: Address) -> ClientError {
        match self.has_received {
            // A server that stops, or that has its maximum number of connections, closes a connection without a byte.
            false => ClientError::Refused { server },
            true => {
                let PartialResponse { part, arrived_bytes, expected_bytes } = self.reader.partial();
                ClientError::Closed { server, part, arrived_bytes, expected_bytes }
            }
        }
    }
}

/// A failure to send requests or to receive responses.
#[derive(Debug)]
pub(super) enum TransferError {
    TimedOut(Phase),
    Closed,
    System(Phase, io::Error),
    /// The encryption failed: the reason, and what to do.
    Tls(String),
    /// Other bytes than notices have arrived without a request.
    Violation(Violation),
}

impl TransferError {
    /// Replaces the error's phase by [`Phase::Connect`], for an error that occurred before the connection was usable.
    pub(super) fn while_connecting(self) -> Self {
        match self {
            TransferError::TimedOut(_) => TransferError::TimedOut(Phase::Connect),
            TransferError::System(_, error) => TransferError::System(Phase::Connect, error),
            error => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A server that sends notices as fast as they are read.
    struct Notices;

    impl Read for Notices {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let notice = [&[0, 0, 0, 8, 0, 0, 0, 16][..], &[7; 16]].concat();
            let len_bytes = buffer.len() / notice.len() * notice.len();
            buffer[..len_bytes].chunks_mut(notice.len()).for_each(|to| to.copy_from_slice(&notice));
            Ok(len_bytes)
        }
    }

    impl Write for Notices {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn endless_notices_end_a_call_at_its_deadline() {
        let options = Options { cache: Some(Cache::new(1000)), ..Options::default() };
        let mut pipeline = Pipeline::new(&Address::Unix("s".into()), &options);
        pipeline.expect_notices();
        let deadline = Deadline::after(Some(Duration::from_millis(10)));
        let read = read_notices(&mut None, &mut pipeline, &mut Notices, deadline);
        assert!(matches!(read, Err(TransferError::TimedOut(Phase::Receive))), "{read:?}");
        assert!(pipeline.cache().is_some_and(|cache| cache.state() == [7; 16]));
    }
}
