//! Threads that answer: each has a runtime, its connections and its buffers.

use std::io;
use std::net::SocketAddr;
use std::net::TcpStream as StdTcpStream;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tracing::{debug, warn};

use super::connection::Connection;
use super::liveness::Thread;
use super::peer::Peer;
use super::shared::{Serving, Shared};

/// How long a stopping worker waits for clients to take their answers.
const DRAIN: Duration = Duration::from_millis(500);

/// What tells that a TCP client is gone, if nothing else does: it is asked when it was silent
/// for so long, so many times, and so long apart.
const KEEP_ALIVE: Duration = Duration::from_secs(120);
const KEEP_ALIVE_PROBES: u32 = 3;
const KEEP_ALIVE_PAUSE: Duration = Duration::from_secs(20);

/// A connection that was accepted, on its way to the runtime that serves it.
pub(super) struct Accepted {
    stream: Stream,
    pub(super) peer: Peer,
}

enum Stream {
    Unix(StdUnixStream),
    Tcp(StdTcpStream),
}

impl Accepted {
    pub(super) fn unix(stream: UnixStream) -> io::Result<Accepted> {
        let peer = Peer::of(&stream);
        Ok(Accepted { stream: Stream::Unix(stream.into_std()?), peer })
    }

    pub(super) fn tcp((stream, address): (TcpStream, SocketAddr)) -> io::Result<Accepted> {
        Ok(Accepted { stream: Stream::Tcp(stream.into_std()?), peer: Peer::Tcp(address) })
    }
}

/// A running worker.
pub(super) struct Worker {
    shared: Arc<Shared>,
    streams: UnboundedSender<Accepted>,
    thread: JoinHandle<()>,
}

impl Worker {
    pub(super) fn start(number: usize, serving: &Arc<Serving>, spin: Duration) -> io::Result<Worker> {
        let shared = Arc::new(Shared::new(Arc::clone(serving), number, spin));
        let (streams, receiver) = unbounded_channel();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let of_thread = Arc::clone(&shared);
        let beat_every = serving.liveness.beat_every();
        let thread = Arc::clone(serving.liveness.worker(number));
        thread.started();
        let run = move || {
            let beating = Arc::clone(&thread);
            runtime.spawn(async move { beating.keep(|| beating.keep_beating(beat_every)).await });
            let served = thread.catch(|| runtime.block_on(serve(receiver, of_thread, &thread)));
            if served.is_err() {
                thread.ended();
            }
        };
        let thread = thread::Builder::new().name(format!("worker-{number}")).spawn(run)?;
        Ok(Worker { shared, streams, thread })
    }

    /// How many connections it has.
    pub(super) fn connections(&self) -> u64 {
        self.shared.connections()
    }

    /// Gives it a connection.
    pub(super) fn take(&self, stream: Accepted) {
        self.shared.connection_opened();
        // A worker that has ended is reported by `Liveness`.
        let _ = self.streams.send(stream);
    }

    /// Has it read no more, and send what it owes.
    pub(super) fn stop(self) -> JoinHandle<()> {
        drop(self.streams);
        self.thread
    }
}

/// Serves connections until the server stops accepting them. Runs the worker's other tasks meanwhile, again after each panic.
async fn serve(mut streams: UnboundedReceiver<Accepted>, shared: Arc<Shared>, thread: &Arc<Thread>) {
    if let Some(spin) = shared.spin.clone() {
        let spinning = Arc::clone(thread);
        tokio::spawn(async move { spinning.keep(|| spin.run()).await });
    }
    let (disconnecting, of_worker) = (Arc::clone(thread), Arc::clone(&shared));
    tokio::spawn(async move { disconnecting.keep(|| of_worker.registry.run(&of_worker.serving)).await });
    while let Some(stream) = streams.recv().await {
        if let Err(error) = spawn(stream, &shared) {
            shared.connection_closed();
            warn!("cannot serve a connection: {error}");
        }
    }
    // Whoever has not taken its answers by then is cut off.
    let _ = tokio::time::timeout(DRAIN, shared.stop()).await;
}

fn spawn(Accepted { stream, peer }: Accepted, shared: &Arc<Shared>) -> io::Result<()> {
    match stream {
        Stream::Unix(stream) => Connection::new(UnixStream::from_std(stream)?, peer, Arc::clone(shared)).spawn(),
        Stream::Tcp(stream) => {
            if let Err(error) = set_options(&stream) {
                debug!(%peer, "a connection stays without its options: {error}");
            }
            Connection::new(TcpStream::from_std(stream)?, peer, Arc::clone(shared)).spawn();
        }
    }
    Ok(())
}

fn set_options(stream: &StdTcpStream) -> io::Result<()> {
    // Answers go out whole; none waits for the one after it.
    stream.set_nodelay(true)?;
    sockopt::set_tcp_keepidle(stream, KEEP_ALIVE)?;
    sockopt::set_tcp_keepintvl(stream, KEEP_ALIVE_PAUSE)?;
    sockopt::set_tcp_keepcnt(stream, KEEP_ALIVE_PROBES)?;
    sockopt::set_socket_keepalive(stream, true)?;
    // The same for answers that are on their way, which are not probes.
    let gone_after = KEEP_ALIVE + KEEP_ALIVE_PAUSE * KEEP_ALIVE_PROBES;
    Ok(sockopt::set_tcp_user_timeout(stream, gone_after.as_millis() as u32)?)
}
