//! Listens on sockets, completes TLS handshakes, and accepts connections, each of which it assigns to a worker.

#[cfg(feature = "tls")]
pub(super) mod handshakes;
pub(super) mod listener;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use thiserror::Error;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::Mutex;
use tokio::sync::mpsc::UnboundedReceiver;
use tracing::{debug, info, warn};

use super::process::log_queue::LogLimit;
use super::state::ServerState;
use super::table::OpenError;
use super::users::UsersError;
use super::worker::{Accepted, Worker};
use crate::setting::Setting;
use listener::PeerFilter;

/// The pause between a failed attempt to accept a connection and the next attempt.
pub(super) const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Accepts the connections of the Unix socket and the TCP sockets.
pub(super) struct Acceptor {
    state: Arc<ServerState>,
    workers: Vec<Worker>,
    refusal_log: LogLimit,
    /// Limits the log lines about users that do not receive the responses of ended connections.
    unread_log: LogLimit,
}

impl Acceptor {
    pub(super) fn new(state: Arc<ServerState>, workers: Vec<Worker>) -> Acceptor {
        Acceptor { state, workers, refusal_log: LogLimit::default(), unread_log: LogLimit::default() }
    }

    /// Returns the workers, so that the caller can stop them.
    pub(super) fn into_workers(self) -> Vec<Worker> {
        self.workers
    }

    /// Accepts connections on the Unix socket from peers that `peer_filter` admits. Never returns.
    pub(super) async fn accept_unix(&self, listener: &UnixListener, peer_filter: &PeerFilter) {
        self.accept(async || {
            loop {
                let (stream, _) = listener.accept().await?;
                if peer_filter.admits(&stream) && !self.leaves_too_much_unread(&stream) {
                    return Accepted::unix(stream);
                }
                self.state.statistics.totals.refused.fetch_add(1, Ordering::Relaxed);
            }
        })
        .await;
    }

    /// Accepts connections on the TCP socket, if there is one. Never returns.
    pub(super) async fn accept_tcp(&self, listener: Option<&TcpListener>) {
        match listener {
            Some(listener) => self.accept(async || Accepted::tcp(listener.accept().await?)).await,
            None => std::future::pending().await,
        }
    }

    /// Accepts the connections of the TLS port, if there is one, each after its handshake is complete. Never returns.
    pub(super) async fn accept_established(&self, established: &Mutex<UnboundedReceiver<Accepted>>) {
        self.accept(async || match established.lock().await.recv().await {
            Some(accepted) => Ok(accepted),
            None => std::future::pending().await,
        })
        .await;
    }

    /// Accepts the connections that `next` returns, and assigns each to the worker with the fewest connections. Closes
    /// a new connection at once if the server already has the maximum number of connections. Never returns.
    async fn accept(&self, next: impl AsyncFn() -> io::Result<Accepted>) {
        let settings = &self.state.settings;
        let (connections_max, mut is_failing) = (settings.connections_max as u64, false);
        loop {
            match (next().await, self.workers.iter().min_by_key(|worker| worker.connections())) {
                (Ok(accepted), _) if self.connections() >= connections_max => self.refuse(&accepted),
                (Ok(accepted), Some(worker)) => {
                    if std::mem::take(&mut is_failing) {
                        info!("connections are accepted again");
                    }
                    let others = usize::try_from(self.connections() + 1).unwrap_or(usize::MAX);
                    self.state.lingering.abort_oldest(settings.sockets_max.saturating_sub(others));
                    worker.add_connection(accepted);
                }
                (Ok(_), None) => {}
                (Err(error), _) if error.kind() == io::ErrorKind::ConnectionAborted => {
                    debug!("a client disconnected before its connection was accepted: {error}");
                }
                (Err(error), _) => {
                    if !std::mem::replace(&mut is_failing, true) {
                        let retry_ms = ACCEPT_RETRY.as_millis();
                        warn!("cannot accept a connection: {error}: trying again every {retry_ms} ms");
                    }
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }

    /// Returns whether ended connections of the client's user hold too much memory for another connection, and logs it.
    fn leaves_too_much_unread(&self, stream: &UnixStream) -> bool {
        let memory = &self.state.client_memory;
        if !memory.is_lingering_full() {
            return false;
        }
        let user = stream.peer_cred().ok().map(|peer| peer.uid());
        let Some((uid, unread_bytes)) = user.and_then(|user| Some((user, memory.lingering_of(user)?))) else {
            return false;
        };
        if let Some(left_out) = self.unread_log.line() {
            warn!(
                uid,
                left_out,
                "refused: ended connections of this user hold {unread_bytes} bytes of responses that it has not \
                 received, and all ended connections hold the limit of {} bytes ({})",
                memory.max_bytes,
                Setting::ClientMemoryMax
            );
        }
        true
    }

    fn connections(&self) -> u64 {
        self.workers.iter().map(Worker::connections).sum()
    }

    /// Counts and logs a connection that exceeds the maximum number of connections. The caller closes the connection
    /// without a response, because the client's protocol is not known yet, and an error in one protocol would be
    /// malformed in the other.
    fn refuse(&self, accepted: &Accepted) {
        self.state.statistics.totals.refused.fetch_add(1, Ordering::Relaxed);
        if let Some(left_out) = self.refusal_log.line() {
            let (peer, max) = (accepted.peer, self.state.settings.connections_max);
            warn!(%peer, left_out, "refused: the server already has {max} connections ({})", Setting::ConnectionsMax);
        }
    }
}

/// Why a server cannot start or had to stop.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The file cannot be served.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The server cannot listen on the Unix socket.
    #[error("{}: {problem}", path.display())]
    Socket {
        /// The socket's path.
        path: PathBuf,
        /// The cause and the remedy.
        problem: String,
    },
    /// The server cannot listen on the TCP address.
    #[error("{address}: {problem}")]
    Tcp {
        /// The address.
        address: SocketAddr,
        /// The cause and the remedy.
        problem: String,
    },
    /// The certificates or keys of the TLS port cannot be used.
    #[error("{0}")]
    Tls(String),
    /// The users file cannot be used.
    #[error(transparent)]
    Users(#[from] UsersError),
    /// A configured limit is out of its range.
    #[error("{0}")]
    Limits(String),
    /// A thread or a runtime cannot be started.
    #[error("a thread or its runtime cannot be started: {0}")]
    Worker(#[source] io::Error),
    /// The handler of SIGBUS cannot be installed.
    #[error("the handler of SIGBUS cannot be installed: {0}")]
    Signal(#[source] io::Error),
}
