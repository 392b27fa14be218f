//! The process and its threads: panics, priorities, the log, the service manager, and the health of threads.
//!
//! Notifications to the service manager (systemd) are datagrams to NOTIFY_SOCKET, if this variable is set and the
//! configuration enables them. A failure to notify does not stop the server.

pub(super) mod liveness;
pub(super) mod log_queue;
pub(super) mod newest_tasks;
pub(super) mod panics;

use std::fmt::Write;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use sd_notify::NotifyState;
use tracing::warn;

use crate::printable::Printable;
use log_queue::LogLimit;

/// How long a notification may wait for a service manager that does not read.
const SEND_TIMEOUT: Duration = Duration::from_millis(100);

/// Sends notifications to the service manager.
pub(super) struct Notifier {
    wanted: bool,
    log_limit: LogLimit,
}

impl Notifier {
    /// Creates a notifier, which sends notifications only if they are `wanted`.
    pub(super) fn new(wanted: bool) -> Self {
        Notifier { wanted, log_limit: LogLimit::default() }
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Reports that the server answers requests. The service manager shows `status` to its users.
    pub(super) fn ready(&self, status: &str) {
        self.send(&[NotifyState::Ready, NotifyState::Status(&one_line(status))]);
    }

    /// Changes the status that the service manager shows to its users.
    pub(super) fn status(&self, status: &str) {
        self.send(&[NotifyState::Status(&one_line(status))]);
    }

    /// Reports that the server is checking another file. The next call of [`Notifier::ready`] ends this state.
    pub(super) fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.send(&[NotifyState::Reloading, now]),
            Err(_) => self.send(&[NotifyState::Reloading]),
        }
    }

    pub(super) fn stopping(&self) {
        self.send(&[NotifyState::Stopping]);
    }

    /// Reports that the server's threads make progress.
    pub(super) fn alive(&self) {
        self.send(&[NotifyState::Watchdog]);
    }

    fn send(&self, states: &[NotifyState<'_>]) {
        if self.wanted
            && let Err(error) = notify(states)
            && let Some(left_out) = self.log_limit.line()
        {
            warn!(left_out, "the service manager cannot be notified: {error}: check NOTIFY_SOCKET");
        }
    }
}

/// Returns a status that cannot be mistaken for another notification, whatever its paths contain.
fn one_line(status: &str) -> String {
    Printable(status).to_string()
}

/// Sends states to the service manager. Unlike `sd_notify::notify`, does not wait without a limit.
fn notify(states: &[NotifyState<'_>]) -> io::Result<()> {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(SEND_TIMEOUT))?;
    match path.as_encoded_bytes().strip_prefix(b"@") {
        Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        None => socket.connect(path)?,
    }
    let mut message = String::new();
    states.iter().for_each(|state| writeln!(message, "{state}").expect("a String takes any text"));
    socket.send(message.as_bytes()).map(drop)
}

/// Lowers the priority of this thread below the workers'. Threads that it starts later have the same priority.
pub fn lower_priority() {
    const NICE: i32 = 10;
    // On Linux, this call sets the priority of one thread. If it fails, the priority stays the same.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
}
