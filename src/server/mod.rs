//! The socket server.
//!
//! In: paths of a file and of a socket. Out: answers, until it is told to stop.
//! `generations` opens files and puts new ones in the place of old ones, `listener` owns the socket's path, `worker` threads run one
//! single-threaded tokio runtime each, `connection` reads requests and sends
//! answers, `native`, `about` and `redis` make answers of requests, `answers` holds
//! them, `counters` counts, `residency` measures, `snapshot` is what the server
//! tells of itself, `metrics` tells it over HTTP, `spin` keeps a worker awake,
//! `limits` bound what clients take, `activity` is what a connection reports of itself, `registry` disconnects
//! connections by the rules of `timeouts`, `client_memory` bounds what all of them hold,
//! `panics` keeps a fault in one connection from the others, and `liveness` reports
//! threads that panic, end, or make no progress.
//! Connections stay with the worker that they were given to, so nothing is locked
//! on the way of a request.

mod about;
mod activity;
mod answers;
mod client_memory;
mod connection;
mod counters;
mod generations;
mod leases;
mod limits;
mod listener;
mod liveness;
mod log_limit;
#[cfg(feature = "metrics")]
mod metrics;
mod native;
mod panics;
mod pass;
mod peer;
mod redis;
mod registry;
mod residency;
mod service;
mod shared;
mod snapshot;
mod spin;
mod steps;
mod stream;
mod timeouts;
mod turn;
mod worker;

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use thiserror::Error;
use tokio::net::{TcpListener, UnixListener};
use tracing::{debug, info, warn};

use crate::DEFAULT_SOCKET;
use crate::direct::{BEAT_EVERY, Board};
use crate::replace::ReplaceRules;
use crate::store::{Memory, OpenOptions, Verify, survive_bus_errors};
pub use answers::Answers;
pub use generations::{CanaryError, Control, OpenError, value_digest};
use generations::{Generation, Plan, Source, Supervisor, Told};
pub use limits::Limits;
use listener::{Doorkeeper, Listener};
pub use listener::{Inherited, SocketAccess};
#[cfg(feature = "metrics")]
pub use metrics::MetricsAddress;
use service::Notifier;
use shared::{Beginning, Serving};
use worker::{Accepted, Worker};

/// How long a failing accept waits before it tries again.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// How long a worker polls unless it is told: about as long as the system takes
/// to wake a thread.
pub const SPIN: Duration = Duration::from_micros(50);

/// Why a server cannot start, or had to stop.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The file cannot be served.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The socket cannot be had.
    #[error("{}: {problem}", path.display())]
    Socket {
        /// The socket's path.
        path: PathBuf,
        /// What is in the way, and what to do.
        problem: String,
    },
    /// The TCP address cannot be had.
    #[error("{address}: {problem}")]
    Tcp {
        /// The address.
        address: SocketAddr,
        /// What is in the way, and what to do.
        problem: String,
    },
    /// A limit cannot be kept.
    #[error("{0}")]
    Limits(String),
    /// A thread or runtime cannot be started.
    #[error("starting a worker: {0}")]
    Worker(io::Error),
    /// Faults of mapped files cannot be survived.
    #[error("handling SIGBUS: {0}")]
    Signal(io::Error),
}

/// When the blocks of a file are held against their checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Check {
    /// Each when a request first touches it.
    #[default]
    Touch,
    /// So, and all others when the file is being served.
    Background,
    /// All before the file is served.
    Full,
}

/// Where to serve, and with what.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where files are held in memory.
    pub memory: Memory,
    /// How files are opened. Its `verify` is ignored: see `check`.
    pub open: OpenOptions,
    /// When they are checked.
    pub check: Check,
    /// A file of keys and digests of their values that every file must have before
    /// it is served, beside those that are drawn from its own index.
    pub canaries: Option<PathBuf>,
    /// What a file must be like to replace the one that is served, and to be the first. A rollback is not checked.
    pub replace: ReplaceRules,
    /// Whether files are leased where the system allows it, so that they need not be
    /// looked at behind every batch. Takes SIGIO of the process.
    pub lease: bool,
    /// Whether a new file that is put in place is served without being asked for.
    pub watch: bool,
    /// Whether clients on this machine may have the file itself, to look up in it without
    /// the server: see [`Direct`](crate::client::Direct). A `copy` is never handed over.
    pub direct: bool,
    /// Where clients connect: a path, or with `abstract_socket` an abstract name behind an `@`.
    pub socket: PathBuf,
    /// Whether `socket` is an abstract name. It has no mode and no owner: every process
    /// of the machine, or of the network namespace, may connect.
    pub abstract_socket: bool,
    /// Who may connect to `socket`. Nothing of it is for `tcp`.
    pub access: SocketAccess,
    /// Sockets that take the place of `socket` and `tcp`.
    pub inherited: Inherited,
    /// Where clients connect that cannot use Unix sockets. Port 0 takes any that
    /// is free.
    pub tcp: Option<SocketAddr>,
    /// Whether `tcp` may be an address that other machines reach. There is no
    /// password: whoever reaches it reads the table.
    pub tcp_exposed: bool,
    /// Threads that answer. `None`: one for every two processors, since clients need as many.
    pub workers: Option<NonZeroUsize>,
    /// How long a worker polls after an answer before it sleeps. Zero: it sleeps
    /// at once. `None`: [`SPIN`], or zero on one processor.
    pub spin: Option<Duration>,
    /// What clients may take.
    pub limits: Limits,
    /// Whether to tell the service manager (systemd, by NOTIFY_SOCKET) that this process is
    /// ready, reloads, stops, and lives (WATCHDOG_USEC). For programs that are nothing but
    /// this server.
    pub notify: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            memory: Memory::default(),
            open: OpenOptions::default(),
            check: Check::default(),
            canaries: None,
            replace: ReplaceRules::default(),
            lease: true,
            watch: true,
            direct: true,
            socket: DEFAULT_SOCKET.into(),
            abstract_socket: false,
            access: SocketAccess::default(),
            inherited: Inherited::default(),
            tcp: None,
            tcp_exposed: false,
            workers: None,
            spin: None,
            limits: Limits::default(),
            notify: false,
        }
    }
}

/// A file that was opened and checked, and is to be served: the first half of
/// [`Server::bind`], which may take long.
pub struct Opened {
    source: Source,
    generation: Generation,
}

impl Opened {
    /// Opens and checks a file.
    ///
    /// # Errors
    /// [`ServerError::Open`].
    pub fn new(db: impl AsRef<Path>, config: &Config) -> Result<Opened, ServerError> {
        panics::take_over();
        survive_bus_errors().map_err(ServerError::Signal)?;
        if config.lease {
            leases::take();
        }
        let source = source(db.as_ref(), config);
        let generation = source.open()?;
        Ok(Opened { source, generation })
    }

    /// Takes the socket. Clients can connect from here on, and are answered once
    /// the server runs.
    ///
    /// # Errors
    /// [`ServerError::Socket`], [`ServerError::Tcp`].
    pub fn bind(self, config: &Config) -> Result<Server, ServerError> {
        let Opened { source, generation } = self;
        config.limits.check().map_err(ServerError::Limits)?;
        let tcp = listener::tcp(config)?;
        let listener = Listener::new(config)?;
        let doorkeeper = Doorkeeper::new(&config.access);
        let workers = config.workers.map_or_else(default_workers, NonZeroUsize::get);
        let told = Told::new(Arc::default());
        let spin = config.spin.unwrap_or_else(default_spin);
        let limits = config.limits.clone();
        Ok(Server {
            source,
            generation,
            told,
            listener,
            doorkeeper,
            tcp,
            workers,
            spin,
            limits,
            notify: config.notify,
            #[cfg(feature = "metrics")]
            metrics: None,
        })
    }
}

/// A server that is ready to run.
pub struct Server {
    source: Source,
    generation: Generation,
    told: Told,
    listener: Listener,
    doorkeeper: Doorkeeper,
    tcp: Option<StdTcpListener>,
    workers: usize,
    spin: Duration,
    limits: Limits,
    #[cfg(feature = "metrics")]
    metrics: Option<metrics::Endpoint>,
    notify: bool,
}

impl Server {
    /// Opens and checks the file, and takes the socket. Clients can connect from
    /// here on, and are answered once the server runs.
    ///
    /// The process survives a file that is cut off or cannot be read from here on:
    /// see [`survive_bus_errors`].
    ///
    /// # Errors
    /// [`ServerError::Open`], [`ServerError::Socket`], [`ServerError::Tcp`].
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
    /// let server = Server::bind(&db, &Config { socket: socket.clone(), ..Config::default() })?;
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
    pub fn bind(db: impl AsRef<Path>, config: &Config) -> Result<Server, ServerError> {
        Opened::new(db, config)?.bind(config)
    }

    /// What asks the running server for another generation.
    pub fn control(&self) -> Control {
        self.told.control.clone()
    }

    /// Also tells what it counts, over HTTP: `/metrics` for Prometheus, `/healthz`
    /// and `/readyz`. `exposed` is whether other machines may reach the address.
    ///
    /// # Errors
    /// [`ServerError::Socket`], [`ServerError::Tcp`].
    #[cfg(feature = "metrics")]
    pub fn serve_metrics(&mut self, address: &MetricsAddress, exposed: bool) -> Result<(), ServerError> {
        self.metrics = Some(metrics::Endpoint::bind(address, exposed)?);
        Ok(())
    }

    /// Where clients connect over TCP, if they can.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref().and_then(|tcp| tcp.local_addr().ok())
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
        let tcp_address = self.tcp_address();
        let socket = self.listener.path().to_path_buf();
        let serving = Arc::new(Serving::new(Beginning {
            generation: self.generation,
            control: self.told.control.clone(),
            totals: self.told.control.totals(),
            source: self.source.clone(),
            socket,
            tcp: tcp_address,
            workers: self.workers,
            notifier: Notifier::new(self.notify),
            limits: self.limits,
        }));
        let (wanted, borne) = (serving.connections_max, limits::connections_borne(self.workers));
        if wanted > borne {
            warn!("{wanted} connections take more descriptors than the limit leaves, {borne}: raise it (ulimit -n)");
        }
        let (liveness, main) = (&serving.liveness, &serving.liveness.main);
        main.started();
        let workers: Vec<Worker> = (0..self.workers)
            .map(|number| Worker::start(number, &serving, self.spin))
            .collect::<io::Result<_>>()
            .map_err(ServerError::Worker)?;
        let supervisor =
            Supervisor::start(self.source, Arc::clone(&serving), self.told).map_err(ServerError::Worker)?;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ServerError::Worker)?;
        // A panic is counted, and the number is measured again soon.
        let _ = liveness.residency.catch(|| residency::measure(&serving));
        liveness.residency.started();
        let served: io::Result<()> = runtime.block_on(async {
            tokio::spawn(residency::watch(Arc::clone(&serving)));
            if let Some(board) = serving.board.clone() {
                let main = Arc::clone(main);
                tokio::spawn(async move { main.keep(|| beat(&board)).await });
            }
            let unix = UnixListener::from_std(self.listener.socket()?)?;
            let tcp = self.tcp.map(TcpListener::from_std).transpose()?;
            #[cfg(feature = "metrics")]
            if let Some(endpoint) = self.metrics {
                info!("metrics on {}", endpoint.address()?);
                tokio::spawn(endpoint.serve(Arc::clone(&serving)));
            }
            let on_tcp = tcp_address.map(|address| format!(" and {address}")).unwrap_or_default();
            let path = self.listener.path().display();
            let generation = serving.generation();
            let (rows, digest) = (generation.store.len(), snapshot::digest_text(generation.store.digest()));
            info!(generation = generation.number, digest, rows, workers = workers.len(), "ready on {path}{on_tcp}");
            serving.notifier.ready(&format!("serves {rows} rows on {path}{on_tcp}"));
            drop(generation);
            tokio::select! {
                () = main.keep(|| accept_unix(&unix, &self.doorkeeper, &serving, &workers)) => {}
                () = main.keep(|| accept_tcp(tcp.as_ref(), &serving, &workers)) => {}
                () = main.keep(|| main.keep_beating(liveness.beat_every())) => {}
                () = main.keep(|| liveness.count_seconds()) => {}
                () = main.keep(|| liveness.keep_watchdog_quiet(&serving.notifier)) => {}
                () = stop => {}
            }
            Ok(())
        });
        // A measurement that is in progress is not waited for.
        runtime.shutdown_background();
        supervisor.cancel();
        served.map_err(ServerError::Worker)?;
        info!("stopping");
        serving.notifier.stopping();
        drop(self.listener);
        // All of them, before any is waited for.
        let stopping: Vec<_> = workers.into_iter().map(Worker::stop).collect();
        for worker in stopping {
            // One that has panicked has said so.
            let _ = worker.join();
        }
        supervisor.join();
        Ok(())
    }
}

/// Has those who look up in the file themselves know that the server runs.
async fn beat(board: &Board) {
    loop {
        board.beat();
        tokio::time::sleep(BEAT_EVERY).await;
    }
}

fn source(db: &Path, config: &Config) -> Source {
    let verify = if config.check == Check::Full { Verify::Full } else { Verify::Touch };
    let options = OpenOptions { verify, ..config.open.clone() };
    let (background, canaries) = (config.check == Check::Background, config.canaries.clone());
    let plan = Plan { memory: config.memory, options, background, canaries, replace: config.replace.clone() };
    Source { path: db.to_path_buf(), plan, watch: config.watch, direct: config.direct }
}

/// Clients are on this machine too, and take about as long for a request.
fn default_workers() -> usize {
    processors().div_ceil(2)
}

/// On one processor, who polls keeps the client from asking.
fn default_spin() -> Duration {
    if processors() > 1 { SPIN } else { Duration::ZERO }
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

async fn next_admitted(listener: &UnixListener, doorkeeper: &Doorkeeper, refused: &AtomicU64) -> io::Result<Accepted> {
    loop {
        let (stream, _) = listener.accept().await?;
        if doorkeeper.admits(&stream) {
            return Accepted::unix(stream);
        }
        refused.fetch_add(1, Ordering::Relaxed);
    }
}

async fn accept_unix(listener: &UnixListener, doorkeeper: &Doorkeeper, serving: &Serving, workers: &[Worker]) {
    accept(serving, workers, async || next_admitted(listener, doorkeeper, &serving.totals.refused).await).await;
}

async fn accept_tcp(listener: Option<&TcpListener>, serving: &Serving, workers: &[Worker]) {
    match listener {
        Some(listener) => accept(serving, workers, async || Accepted::tcp(listener.accept().await?)).await,
        None => std::future::pending().await,
    }
}

/// Gives each connection to the worker that has the fewest.
async fn accept(serving: &Serving, workers: &[Worker], next: impl AsyncFn() -> io::Result<Accepted>) {
    let mut failing = false;
    loop {
        match (next().await, workers.iter().min_by_key(|worker| worker.connections())) {
            (Ok(stream), _) if connections(workers) >= serving.connections_max as u64 => refuse(serving, &stream),
            (Ok(stream), Some(worker)) => {
                if std::mem::take(&mut failing) {
                    info!("connections are accepted again");
                }
                worker.take(stream);
            }
            (Ok(_), None) => {}
            // The client has gone already.
            (Err(error), _) if error.kind() == io::ErrorKind::ConnectionAborted => debug!("not accepted: {error}"),
            (Err(error), _) => {
                if !std::mem::replace(&mut failing, true) {
                    warn!("cannot accept a connection: {error}: trying again every {} ms", ACCEPT_RETRY.as_millis());
                }
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

fn connections(workers: &[Worker]) -> u64 {
    workers.iter().map(Worker::connections).sum()
}

/// What it would have spoken is not known, and a refusal in one protocol would be
/// a wrong answer in the other: it is closed without a word.
fn refuse(serving: &Serving, stream: &Accepted) {
    serving.totals.refused.fetch_add(1, Ordering::Relaxed);
    if let Some(left_out) = serving.refusals_logged.line() {
        let (peer, max) = (stream.peer, serving.connections_max);
        warn!(%peer, left_out, "refused: {max} connections are there already (--max-connections)");
    }
}
