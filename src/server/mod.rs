//! The socket server.
//!
//! In: a checked file and a path for the socket. Out: answers, until it is told
//! to stop. `listener` owns the socket's path, `worker` threads run one
//! single-threaded tokio runtime each, `connection` reads requests and sends
//! answers, `answers` puts answers together, `spin` keeps a worker awake. Connections stay with the worker
//! that they were given to, so nothing is locked on the way of a request.

mod answers;
mod connection;
mod listener;
mod shared;
mod spin;
mod worker;

use std::future::Future;
use std::io;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use thiserror::Error;
use tokio::net::UnixListener;
use tracing::{info, warn};

use crate::DEFAULT_SOCKET;
use crate::store::Store;
pub use answers::Answers;
use listener::Listener;
use worker::Worker;

/// How long a failing accept waits before it tries again.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Why a server cannot start, or had to stop.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The socket cannot be had.
    #[error("{}: {problem}", path.display())]
    Socket {
        /// The socket's path.
        path: PathBuf,
        /// What is in the way, and what to do.
        problem: String,
    },
    /// A thread or runtime cannot be started.
    #[error("starting a worker: {0}")]
    Worker(io::Error),
}

/// Where to serve, and with what.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where clients connect.
    pub socket: PathBuf,
    /// Threads that answer. `None`: one for every two processors, since clients need as many.
    pub workers: Option<NonZeroUsize>,
    /// How long a worker polls after an answer before it sleeps. Zero: it sleeps
    /// at once.
    pub spin: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Config { socket: DEFAULT_SOCKET.into(), workers: None, spin: Duration::ZERO }
    }
}

/// A server that is ready to run.
pub struct Server {
    store: Arc<Store>,
    listener: Listener,
    workers: usize,
    spin: Duration,
}

impl Server {
    /// Takes the socket. Clients can connect from here on, and are answered once
    /// the server runs.
    ///
    /// # Errors
    /// [`ServerError::Socket`].
    ///
    /// # Example
    /// ```
    /// # #[cfg(all(feature = "bake", feature = "server"))] {
    /// # use zero_kv::bake::{self, Options};
    /// # let folder = tempfile::tempdir()?;
    /// # let (db, socket) = (folder.path().join("storage.db"), folder.path().join("s.sock"));
    /// # bake::bake_csv("7,seven\n".as_bytes(), &db, &Options::default(), &mut |_| ())?;
    /// use zero_kv::client::Client;
    /// use zero_kv::server::{Config, Server};
    ///
    /// let server = Server::bind(zero_kv::Store::open(&db)?, &Config { socket: socket.clone(), ..Config::default() })?;
    /// let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| server.run(async { stopped.await.unwrap_or_default() }));
    ///     let mut client = Client::connect(&socket)?;
    ///     assert_eq!(client.get(7)?, Some(b"seven".to_vec()));
    ///     drop(stop);
    ///     Ok::<(), zero_kv::client::ClientError>(())
    /// })?;
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bind(store: Store, config: &Config) -> Result<Server, ServerError> {
        let listener = Listener::bind(&config.socket)?;
        let workers = config.workers.map_or_else(default_workers, NonZeroUsize::get);
        Ok(Server { store: Arc::new(store), listener, workers, spin: config.spin })
    }

    /// Answers requests until `stop` is done. Then it takes no more connections
    /// and no more requests, sends the answers to those that it has read, for at
    /// most half a second, and removes the socket.
    ///
    /// Blocks the thread; must not be called inside a runtime.
    ///
    /// # Errors
    /// [`ServerError::Worker`] if a thread cannot be started.
    pub fn run(self, stop: impl Future<Output = ()>) -> Result<(), ServerError> {
        let workers: Vec<Worker> = (0..self.workers)
            .map(|number| Worker::start(number, &self.store, self.spin))
            .collect::<io::Result<_>>()
            .map_err(ServerError::Worker)?;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ServerError::Worker)?;
        let served: io::Result<()> = runtime.block_on(async {
            let listener = UnixListener::from_std(self.listener.socket()?)?;
            info!(rows = self.store.len(), workers = workers.len(), "ready on {}", self.listener.path().display());
            tokio::select! {
                () = accept(&listener, &workers) => {}
                () = stop => {}
            }
            Ok(())
        });
        served.map_err(ServerError::Worker)?;
        info!("stopping");
        drop(self.listener);
        // All of them, before any is waited for.
        let stopping: Vec<_> = workers.into_iter().map(Worker::stop).collect();
        for worker in stopping {
            // One that has panicked has said so.
            let _ = worker.join();
        }
        Ok(())
    }
}

/// Clients are on this machine too, and take about as long for a request.
fn default_workers() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get).div_ceil(2)
}

/// Gives each connection to the worker that has the fewest.
async fn accept(listener: &UnixListener, workers: &[Worker]) {
    let mut failing = false;
    loop {
        let accepted = listener.accept().await.and_then(|(stream, _)| stream.into_std());
        match (accepted, workers.iter().min_by_key(|worker| worker.connections())) {
            (Ok(stream), Some(worker)) => {
                if std::mem::take(&mut failing) {
                    info!("connections are accepted again");
                }
                worker.take(stream);
            }
            (Ok(_), None) => {}
            (Err(error), _) => {
                if !std::mem::replace(&mut failing, true) {
                    warn!("cannot accept a connection: {error}: trying again every {} ms", ACCEPT_RETRY.as_millis());
                }
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}
