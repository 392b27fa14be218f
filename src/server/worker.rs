//! Threads that answer: each has a runtime, its connections and its buffers.

use std::io;
use std::net::TcpStream as StdTcpStream;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tracing::warn;

use super::connection::Connection;
use super::shared::{Peer, Serving, Shared};

/// How long a stopping worker waits for clients to take their answers.
const DRAIN: Duration = Duration::from_millis(500);

/// A connection that was accepted, on its way to the runtime that serves it.
pub(super) enum Accepted {
    Unix(StdUnixStream),
    Tcp(StdTcpStream),
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
        let thread = thread::Builder::new()
            .name(format!("worker-{number}"))
            .spawn(move || runtime.block_on(serve(receiver, of_thread)))?;
        Ok(Worker { shared, streams, thread })
    }

    /// How many connections it has.
    pub(super) fn connections(&self) -> u64 {
        self.shared.connections()
    }

    /// Gives it a connection.
    pub(super) fn take(&self, stream: Accepted) {
        self.shared.connection_opened();
        // A worker that is gone has panicked, which its thread's message tells.
        let _ = self.streams.send(stream);
    }

    /// Has it read no more, and send what it owes.
    pub(super) fn stop(self) -> JoinHandle<()> {
        drop(self.streams);
        self.thread
    }
}

/// Serves connections until no more can come.
async fn serve(mut streams: UnboundedReceiver<Accepted>, shared: Arc<Shared>) {
    if let Some(spin) = shared.spin.clone() {
        tokio::spawn(async move { spin.run().await });
    }
    while let Some(stream) = streams.recv().await {
        if let Err(error) = spawn(stream, &shared) {
            shared.connection_closed();
            warn!("cannot serve a connection: {error}");
        }
    }
    // Whoever has not taken its answers by then is cut off.
    let _ = tokio::time::timeout(DRAIN, shared.stop()).await;
}

fn spawn(stream: Accepted, shared: &Arc<Shared>) -> io::Result<()> {
    match stream {
        Accepted::Unix(stream) => {
            stream.set_nonblocking(true)?;
            let peer = Peer { address: None, is_admin: is_admin(&stream) };
            tokio::spawn(Connection::new(UnixStream::from_std(stream)?, peer, Arc::clone(shared)));
        }
        Accepted::Tcp(stream) => {
            stream.set_nonblocking(true)?;
            // Answers go out whole; none waits for the one after it.
            stream.set_nodelay(true)?;
            let peer = Peer { address: Some(stream.peer_addr()?), is_admin: false };
            tokio::spawn(Connection::new(TcpStream::from_std(stream)?, peer, Arc::clone(shared)));
        }
    }
    Ok(())
}

/// Whether a client may have another generation served: root, and the server's own user.
fn is_admin(stream: &StdUnixStream) -> bool {
    let ours = rustix::process::geteuid();
    socket_peercred(stream).is_ok_and(|theirs| theirs.uid.is_root() || theirs.uid == ours)
}
