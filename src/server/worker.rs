//! Threads that answer: each has a runtime, its connections and its buffers.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tracing::warn;

use super::connection::Connection;
use super::shared::Shared;
use crate::store::Store;

/// How long a stopping worker waits for clients to take their answers.
const DRAIN: Duration = Duration::from_millis(500);

/// A running worker.
pub(super) struct Worker {
    shared: Arc<Shared>,
    streams: UnboundedSender<UnixStream>,
    thread: JoinHandle<()>,
}

impl Worker {
    pub(super) fn start(number: usize, store: &Arc<Store>, spin: Duration) -> io::Result<Worker> {
        let shared = Arc::new(Shared::new(Arc::clone(store), spin));
        let (streams, receiver) = unbounded_channel();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name(format!("worker-{number}"))
            .spawn(move || runtime.block_on(serve(receiver, of_thread)))?;
        Ok(Worker { shared, streams, thread })
    }

    /// How many connections it has.
    pub(super) fn connections(&self) -> usize {
        self.shared.connections()
    }

    /// Gives it a connection.
    pub(super) fn take(&self, stream: UnixStream) {
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
async fn serve(mut streams: UnboundedReceiver<UnixStream>, shared: Arc<Shared>) {
    if let Some(spin) = shared.spin.clone() {
        tokio::spawn(async move { spin.run().await });
    }
    while let Some(stream) = streams.recv().await {
        match Connection::new(stream, Arc::clone(&shared)) {
            Ok(connection) => drop(tokio::spawn(connection)),
            Err(error) => {
                shared.connection_closed();
                warn!("cannot serve a connection: {error}");
            }
        }
    }
    // Whoever has not taken its answers by then is cut off.
    let _ = tokio::time::timeout(DRAIN, shared.stop()).await;
}
