//! The client for threads, and its connection, whose calls block the calling thread.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::net::sockopt::Timeout;

use super::address::Address;
use super::columns::ColumnsCache;
use super::error::{ClientError, Phase};
use super::login::Login;
use super::retry::Deadline;
use super::socket::{self, connect_within, set_timeout};
use super::target::Target;
use super::tls::TlsSession;
use super::transport::{
    self, Pipeline, Socket, TransferError, decrypt, has_unsent_records, receive_responses, send_requests,
};
use crate::format::key_type::KeyType;

/// A blocking connection to a server.
///
/// Each call ends within [`Options::call_timeout`](super::Options::call_timeout). If the connection fails during a
/// call, for example because the server restarted or closed an idle connection, the call is retried on a new
/// connection; reloads and rollbacks are never retried. After an error that leaves the connection in an unknown state,
/// the client closes the connection, and the next call reconnects. A call therefore never receives the response of an
/// earlier call.
///
/// # Examples
/// Keys are numbers or bytes:
/// ```no_run
/// use zero_kv::client::Client;
///
/// let mut client = Client::connect("/tmp/zero-kv.sock")?;
/// match client.get(7)? {
///     Some(value) => println!("{} bytes", value.len()),
///     None => println!("not in the table"),
/// }
/// let mut names = Client::connect("/tmp/names.sock")?;
/// if let Some((key, value)) = names.floor("seven")? {
///     println!("{key}: {} bytes", value.len());
/// }
/// # Ok::<(), zero_kv::client::ClientError>(())
/// ```
/// The values of many keys at once, copied or borrowed:
/// ```no_run
/// # let mut client = zero_kv::client::Client::connect("/tmp/zero-kv.sock")?;
/// let values = client.get_many(&[7, 8, 9])?;
/// assert_eq!(values.len(), 3);
/// let mut total_bytes = 0;
/// client.get_many_with(&["ant", "bee"], |_, value| total_bytes += value.map_or(0, <[u8]>::len))?;
/// let sum = client.get_with(7, |value| value.map(|bytes| bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>()))?;
/// # Ok::<(), zero_kv::client::ClientError>(())
/// ```
/// Rows in key order, one by one or page by page:
/// ```no_run
/// # let mut client = zero_kv::client::Client::connect("/tmp/zero-kv.sock")?;
/// for row in client.range("ant".."cat")?.rev() {
///     let (key, value) = row?;
///     println!("{key}: {} bytes", value.len());
/// }
/// let mut page = client.first_page(1000_u64.., 100)?;
/// while let Some(rest) = page.rest() {
///     page = client.first_page(rest.bounds(), 100)?;
/// }
/// # Ok::<(), zero_kv::client::ClientError>(())
/// ```
/// Over TCP with TLS, as a user whose password is in the environment or in a file (see [`Login`]):
/// ```no_run
/// use zero_kv::client::{Client, Login, Options};
///
/// let mut client = Client::connect("zkv+tls://reader@db.example:6380")?;
/// let login = Login::with_password_file("reader", "/run/secrets/zero-kv");
/// let options = Options { login: Some(login), ..Options::default() };
/// let mut client = Client::connect_with("zkv+tls://db.example:6380", &options)?;
/// # Ok::<(), zero_kv::client::ClientError>(())
/// ```
/// Without a server, connecting fails at once:
/// ```
/// use zero_kv::client::Client;
///
/// let error = Client::connect("no/such/zero-kv.sock").unwrap_err();
/// assert!(error.to_string().starts_with("no/such/zero-kv.sock: cannot connect: "));
/// assert!(error.to_string().ends_with("is kv_store running, and on this socket?"));
/// ```
#[derive(Debug)]
pub struct Client {
    pub(super) target: Arc<Target>,
    /// The login of the last successful call of `authenticate`. It replaces the login of the target.
    pub(super) login: Option<Login>,
    /// The schema of the table, and the columns that were requested last.
    pub(super) columns: ColumnsCache,
    /// The type that the keys of calls are encoded for. With `None`, they are stored keys.
    pub(super) key_type: Option<KeyType>,
    /// The end of all calls, if they are parts of a call to a cluster.
    pub(super) call_end: Option<Deadline>,
    /// The open connection, if any. Each call takes the connection out and puts it back only after success.
    pub(super) connection: Option<BlockingConnection>,
}

/// A socket, with its unsent requests and received bytes.
#[derive(Debug)]
pub(super) struct BlockingConnection {
    socket: OwnedFd,
    tls: Option<Box<TlsSession>>,
    pub(super) pipeline: Pipeline,
    /// The socket's receive time-out (SO_RCVTIMEO).
    receive_timeout: Option<Duration>,
    /// [`Options::interrupt_check`](super::Options).
    interrupt_check: Option<fn() -> bool>,
}

impl BlockingConnection {
    /// Connects, and completes the TLS handshake if the connection uses TLS.
    pub(super) fn connect(target: &Target, call: Deadline) -> Result<Self, ClientError> {
        let (options, server) = (&target.options, &target.address);
        let timeout = call.left().map_or(options.connect_timeout, |left| left.min(options.connect_timeout));
        let deadline = Deadline::after(Some(timeout));
        let tls = target.start_tls()?;
        let socket = match server {
            Address::Unix(path) => connect_within(path, timeout, options.server_user.as_deref())?,
            Address::Tcp(tcp) => socket::connect_tcp(server, tcp, deadline)?.into(),
        };
        let (pipeline, interrupt_check) = (Pipeline::new(server, options), options.interrupt_check);
        let mut connection = BlockingConnection { socket, tls, pipeline, receive_timeout: None, interrupt_check };
        match connection.shake_hands(deadline) {
            Ok(()) => Ok(connection),
            Err(error) => Err(connection.pipeline.error(server, error.while_connecting(), deadline)),
        }
    }

    fn shake_hands(&mut self, deadline: Deadline) -> Result<(), TransferError> {
        loop {
            self.send()?;
            if self.tls.as_ref().is_none_or(|session| !session.is_handshaking()) {
                return Ok(());
            }
            self.receive(deadline)?;
        }
    }

    /// Reads the notices that have arrived, without waiting.
    pub(super) fn read_notices(&mut self, deadline: Deadline) -> Result<(), TransferError> {
        transport::read_notices(&mut self.tls, &mut self.pipeline, &mut Socket::nonblocking(&self.socket), deadline)
    }

    /// Returns true if the connection is open and has no unread bytes, apart from notices.
    pub(super) fn is_idle(&mut self, deadline: Deadline) -> bool {
        if self.pipeline.cache().is_some() {
            return self.read_notices(deadline).is_ok();
        }
        transport::is_idle(&mut self.tls, &self.socket)
    }

    /// Sends as many bytes of requests as the socket accepts, then waits for bytes of responses and receives them.
    pub(super) fn transfer(&mut self, deadline: Deadline) -> Result<(), TransferError> {
        self.send()?;
        self.receive(deadline)
    }

    fn send(&mut self) -> Result<(), TransferError> {
        send_requests(&mut self.tls, &mut self.pipeline, &mut Socket::nonblocking(&self.socket))
    }

    /// Waits for bytes and receives them. While requests are unsent, the wait also ends when the socket is writable.
    /// Waiting only for bytes, or only for room in the socket, could take forever: a server may stop reading requests
    /// until the client receives responses, and a server sends no response before it has read the whole request.
    fn receive(&mut self, deadline: Deadline) -> Result<(), TransferError> {
        let is_all_sent = self.pipeline.unsent().is_empty() && !has_unsent_records(&self.tls);
        let phase = self.pipeline.phase();
        if decrypt(&mut self.tls, &mut self.pipeline, &mut Socket::nonblocking(&self.socket))? {
            return Ok(());
        }
        loop {
            let left = deadline.left();
            if left.is_some_and(|left| left.is_zero()) {
                return Err(TransferError::TimedOut(phase));
            }
            let mut socket = Socket::nonblocking(&self.socket);
            // A blocking receive with a time-out takes one system call, and poll with a receive takes two.
            if is_all_sent {
                set_receive_timeout(&self.socket, &mut self.receive_timeout, left)
                    .map_err(|error| TransferError::System(phase, error.into()))?;
                socket.receive_flags = RecvFlags::empty();
            } else {
                self.wait_until_ready(left)?;
            }
            // After an interruption or the time-out of the socket, the loop checks the remaining time.
            if receive_responses(&mut self.tls, &mut self.pipeline, &mut socket)? || !is_all_sent {
                return Ok(());
            }
            if self.is_interrupted() {
                return Err(TransferError::System(phase, Errno::INTR.into()));
            }
        }
    }

    fn wait_until_ready(&self, left: Option<Duration>) -> Result<(), TransferError> {
        // A time-out beyond the kernel's range counts as unlimited.
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN | PollFlags::OUT)], timeout.as_ref()) {
            Ok(0) => Err(TransferError::TimedOut(Phase::Send)),
            Err(Errno::INTR) if self.is_interrupted() => Err(TransferError::System(Phase::Send, Errno::INTR.into())),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(TransferError::System(Phase::Send, error.into())),
        }
    }

    /// Returns whether a call that a signal has interrupted must end.
    fn is_interrupted(&self) -> bool {
        self.interrupt_check.is_some_and(|check| check())
    }
}

/// Sets the socket's receive time-out to `left`. Keeps the current time-out if the difference is at most 1/64 of it, so
/// calls that end quickly set the time-out once per connection instead of once per call.
fn set_receive_timeout(socket: &OwnedFd, current: &mut Option<Duration>, left: Option<Duration>) -> Result<(), Errno> {
    let is_close = match (*current, left) {
        (Some(current), Some(left)) => current.abs_diff(left) <= current / 64,
        (current, left) => current == left,
    };
    if !is_close {
        set_timeout(socket, Timeout::Recv, left)?;
        *current = left;
    }
    Ok(())
}
