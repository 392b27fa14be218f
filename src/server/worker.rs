//! Worker threads. Each has its own runtime, connections, and buffers.
//!
//! Reasons and evidence: `docs/decisions/workers.md`.

use std::io;
use std::net::{SocketAddr, TcpStream as StdTcpStream};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tracing::{debug, warn};

use super::connection::Connections;
use super::process::liveness::Thread;
use super::redis;
use super::sockets::Peer;
use super::state::{ServerState, WorkerState};
#[cfg(feature = "tls")]
use super::tls::{TlsSession, TlsStream};

/// How long a stopping worker waits for clients to receive their responses.
const DRAIN: Duration = Duration::from_millis(500);

/// The time without traffic after which the kernel probes whether a TCP client still exists. The kernel sends
/// `KEEP_ALIVE_PROBES` probes, `KEEP_ALIVE_PAUSE` apart, before it closes the connection.
const KEEP_ALIVE: Duration = Duration::from_secs(120);
const KEEP_ALIVE_PROBES: u32 = 3;
const KEEP_ALIVE_PAUSE: Duration = Duration::from_secs(20);

/// The maximum number of turns between two checks for new requests if the table does not fit into memory. When the disk
/// has answered, many connections are ready at the same time, and each looks up to 64 keys up in memory that no
/// processor has in its cache.
const COLD_TURNS_MAX: u32 = 4;

/// Creates the runtime of a worker. `is_cold` states whether lookups may have to wait for the disk.
pub(super) fn runtime(is_cold: bool) -> io::Result<Runtime> {
    let mut builder = Builder::new_current_thread();
    if is_cold {
        builder.event_interval(COLD_TURNS_MAX);
    }
    builder.enable_all().build()
}

/// An accepted connection that is not registered with a worker's runtime yet.
pub(super) struct Accepted {
    stream: AcceptedStream,
    pub(super) peer: Peer,
}

enum AcceptedStream {
    Unix(StdUnixStream),
    Tcp(StdTcpStream),
    #[cfg(feature = "tls")]
    Tls(StdTcpStream, Box<TlsSession>),
}

impl Accepted {
    pub(super) fn unix(stream: UnixStream) -> io::Result<Accepted> {
        let peer = Peer::from_stream(&stream);
        Ok(Accepted { stream: AcceptedStream::Unix(stream.into_std()?), peer })
    }

    pub(super) fn tcp((stream, address): (TcpStream, SocketAddr)) -> io::Result<Accepted> {
        Ok(Accepted { stream: AcceptedStream::Tcp(stream.into_std()?), peer: Peer::Tcp(address) })
    }

    /// Returns a connection whose TLS handshake is complete.
    #[cfg(feature = "tls")]
    pub(super) fn tls(stream: TcpStream, address: SocketAddr, session: TlsSession) -> io::Result<Accepted> {
        let stream = AcceptedStream::Tls(stream.into_std()?, Box::new(session));
        Ok(Accepted { stream, peer: Peer::Tcp(address) })
    }
}

pub(super) struct Worker {
    state: Arc<WorkerState>,
    streams: UnboundedSender<Accepted>,
    thread: JoinHandle<()>,
}

impl Worker {
    pub(super) fn start(
        number: usize,
        server: &Arc<ServerState>,
        spin: Duration,
        redis_clients: &Arc<redis::Clients>,
    ) -> io::Result<Worker> {
        let state = Arc::new(WorkerState::new(Arc::clone(server), number, spin));
        let (streams, receiver) = unbounded_channel();
        let runtime = runtime(state.pin().store.may_be_cold())?;
        let connections = Connections { worker: Arc::clone(&state), redis_clients: Arc::clone(redis_clients) };
        let beat_every = server.liveness.beat_every();
        let thread = Arc::clone(server.liveness.worker(number));
        thread.started();
        let run = move || {
            let beating = Arc::clone(&thread);
            runtime.spawn(async move { beating.keep(|| beating.keep_beating(beat_every)).await });
            let served = thread.catch(|| runtime.block_on(connections.serve(receiver, &thread)));
            if served.is_err() {
                thread.ended();
            }
        };
        let thread = thread::Builder::new().name(format!("worker-{number}")).spawn(run)?;
        Ok(Worker { state, streams, thread })
    }

    /// Returns how many connections the worker has.
    pub(super) fn connections(&self) -> u64 {
        self.state.counters().connections()
    }

    /// Passes an accepted connection to the worker's thread.
    pub(super) fn add_connection(&self, stream: Accepted) {
        self.state.counters().connection_opened();
        // Fails only if the worker has ended, which `Liveness` reports.
        let _ = self.streams.send(stream);
    }

    /// Stops the worker: it reads no more requests, sends its pending responses, and ends. Returns the handle of its
    /// thread without waiting.
    pub(super) fn stop(self) -> JoinHandle<()> {
        drop(self.streams);
        self.thread
    }
}

impl Connections {
    /// Serves connections until the server stops. Also runs the worker's background tasks, and restarts a task that
    /// panics.
    async fn serve(self, mut streams: UnboundedReceiver<Accepted>, thread: &Arc<Thread>) {
        if let Some(spin) = self.worker.spin.clone() {
            let spinning = Arc::clone(thread);
            tokio::spawn(async move { spinning.keep(|| spin.run()).await });
        }
        let (disconnecting, state) = (Arc::clone(thread), Arc::clone(&self.worker));
        tokio::spawn(async move {
            let (registry, server) = (state.registry(), &state.server);
            let on_tick = async || {
                server.client_memory.measure(registry).await;
                server.evict_if_over_limit();
            };
            disconnecting.keep(|| registry.run(&server.statistics.totals, &on_tick)).await;
        });
        while let Some(stream) = streams.recv().await {
            if let Err(error) = self.spawn(stream) {
                self.worker.counters().connection_closed();
                warn!("cannot serve a connection: {error}");
            }
        }
        // Clients that have not received their responses after `DRAIN` are disconnected.
        let _ = tokio::time::timeout(DRAIN, self.worker.stop()).await;
    }

    fn spawn(&self, Accepted { stream, peer }: Accepted) -> io::Result<()> {
        match stream {
            AcceptedStream::Unix(stream) => self.open(UnixStream::from_std(stream)?, peer).spawn(),
            AcceptedStream::Tcp(stream) => self.open(tcp_stream(stream, &peer)?, peer).spawn(),
            #[cfg(feature = "tls")]
            AcceptedStream::Tls(stream, session) => {
                self.open(TlsStream::new(tcp_stream(stream, &peer)?, *session), peer).spawn();
            }
        }
        Ok(())
    }
}

/// Registers a TCP connection with the runtime of this thread.
fn tcp_stream(stream: StdTcpStream, peer: &Peer) -> io::Result<TcpStream> {
    if let Err(error) = set_options(&stream) {
        debug!(%peer, "the TCP options of a connection cannot be set: {error}");
    }
    TcpStream::from_std(stream)
}

fn set_options(stream: &StdTcpStream) -> io::Result<()> {
    // Responses are written as a whole, so waiting for more bytes (Nagle's algorithm) would only delay them.
    stream.set_nodelay(true)?;
    sockopt::set_tcp_keepidle(stream, KEEP_ALIVE)?;
    sockopt::set_tcp_keepintvl(stream, KEEP_ALIVE_PAUSE)?;
    sockopt::set_tcp_keepcnt(stream, KEEP_ALIVE_PROBES)?;
    sockopt::set_socket_keepalive(stream, true)?;
    // The kernel sends no probes while sent bytes are unacknowledged. This time-out closes such a connection after the
    // same time that unanswered probes would take to close it.
    let gone_after = KEEP_ALIVE + KEEP_ALIVE_PAUSE * KEEP_ALIVE_PROBES;
    Ok(sockopt::set_tcp_user_timeout(stream, gone_after.as_millis() as u32)?)
}
