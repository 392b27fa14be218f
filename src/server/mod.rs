//! The socket server.
//!
//! In: the path of a table's file, and a configuration. Out: responses to clients, until the server is stopped.
//!
//! The main thread accepts connections and assigns each to a worker, which serves the connection until it ends. A
//! worker is one thread with a single-threaded runtime, so lookups take no lock that workers share.
//!
//! Each module imports only modules that precede it in this list (`tests/structure.rs` checks this):
//!
//! 1. `limits`, `process`, `sockets`, `turns`, `watchers`: basics of all other modules
//! 2. `stats`: counters of each worker, and of the whole server
//! 3. `cluster`, `table`: the cluster that this server is a node of; the served table and its generations
//! 4. `users`: names, passwords, and permissions
//! 5. `clients`: the state of connected clients, and the rules that disconnect them
//! 6. `cold_reads`, `state`: threads that read from the disk; the state that threads share
//! 7. `tls`: encrypted connections
//! 8. `responses`, `facts`: responses, and what the server reports about itself
//! 9. `native`, `redis`: the two protocols
//! 10. `connection`, `worker`: reads requests and sends responses
//! 11. `listen`, `config`, `metrics`: sockets and configuration

mod clients;
mod cluster;
mod cold_reads;
mod config;
mod connection;
mod facts;
mod limits;
mod listen;
#[cfg(feature = "metrics")]
mod metrics;
mod native;
mod process;
mod redis;
mod responses;
mod sockets;
mod state;
mod stats;
mod table;
#[cfg(feature = "tls")]
mod tls;
mod turns;
mod users;
mod watchers;
mod worker;

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::Builder;
use tokio::sync::Mutex;
use tokio::sync::mpsc::unbounded_channel;
use tracing::{info, warn};

use crate::Lookup;
#[doc(hidden)]
pub use crate::canary::{CanaryError, value_digest};
use crate::counted::counted;
use crate::direct::{BEAT_EVERY, Board};
use crate::store::survive_bus_errors;
#[doc(hidden)]
pub use cluster::{ClusterError, ClusterNode};
pub use config::{Config, SPIN};
pub use limits::Limits;
use limits::OtherSockets;
use listen::Acceptor;
pub use listen::ServerError;
#[doc(hidden)]
pub use listen::listener::Inherited;
pub use listen::listener::SocketAccess;
use listen::listener::{Listener, PeerFilter};
#[cfg(feature = "metrics")]
pub use metrics::MetricsAddress;
#[doc(hidden)]
pub use native::answer_requests;
use process::Notifier;
#[doc(hidden)]
pub use process::log_queue::LogQueue;
#[doc(hidden)]
pub use process::lower_priority;
#[doc(hidden)]
pub use responses::Responses;
#[doc(hidden)]
pub use state::ForeignKeys;
use state::{ServerState, Settings};
use stats::Statistics;
pub use table::Control;
#[doc(hidden)]
pub use table::OpenError;
use table::{ControlChannel, Generation, ServedTable, Source, Supervised, Supervisor};
#[doc(hidden)]
pub use table::{PublishedFacts, PublishedTable};
#[cfg(feature = "tls")]
pub use tls::TlsConfig;
use users::Users;
#[doc(hidden)]
pub use users::UsersError;
use worker::Worker;

/// A table's file that was opened and checked, and can be served. [`Server::bind`] calls [`Opened::new`], which can
/// take a long time if the file is large, and then [`Opened::bind`].
#[doc(hidden)]
pub struct Opened {
    source: Source,
    generation: Generation,
}

impl Opened {
    /// Opens and checks a file.
    ///
    /// # Errors
    /// [`ServerError::Open`], [`ServerError::Signal`].
    pub fn new(db: impl AsRef<Path>, config: &Config) -> Result<Opened, ServerError> {
        process::panics::install_hook();
        survive_bus_errors().map_err(ServerError::Signal)?;
        if config.lease {
            table::start_leases();
        }
        let source = config.source(db.as_ref());
        let generation = source.open()?;
        Ok(Opened { source, generation })
    }

    /// Listens on the sockets. Clients can connect after this call, and get responses once [`Server::run`] is called.
    ///
    /// # Errors
    /// [`ServerError::Limits`], [`ServerError::Users`], [`ServerError::Socket`], [`ServerError::Tcp`].
    pub fn bind(self, config: &Config) -> Result<Server, ServerError> {
        let Opened { source, generation } = self;
        config.limits.check().map_err(ServerError::Limits)?;
        let users = Arc::new(Users::new(config.users.as_deref())?);
        let tcp = listen::listener::tcp(&config.inherited, config.tcp, config.tcp_exposed, users.protect_tcp())?;
        if tcp.is_some() {
            users.warn_if_open();
        }
        let listener = Listener::new(&config.socket, config.abstract_socket, &config.access, &config.inherited)?;
        let statistics = Arc::new(Statistics::new(config.worker_count()));
        Ok(Server {
            source,
            generation,
            control: ControlChannel::new(Arc::clone(&statistics)),
            statistics,
            spin: config.spin_time(),
            limits: config.limits.clone(),
            users,
            foreign_keys: config.foreign_keys,
            notify: config.notify,
            sockets: Sockets {
                listener,
                peer_filter: PeerFilter::new(&config.access),
                tcp,
                #[cfg(feature = "tls")]
                tls: None,
                #[cfg(feature = "metrics")]
                metrics: None,
            },
        })
    }
}

/// A server that listens on its sockets and is ready to [`run`](Server::run).
pub struct Server {
    source: Source,
    generation: Generation,
    control: ControlChannel,
    statistics: Arc<Statistics>,
    spin: Duration,
    limits: Limits,
    users: Arc<Users>,
    foreign_keys: ForeignKeys,
    notify: bool,
    sockets: Sockets,
}

impl Server {
    /// Opens and checks the file, and listens on the sockets. Clients can connect after this call, and get responses
    /// once [`Server::run`] is called.
    ///
    /// After this call, the process survives SIGBUS from a mapped file that is truncated or cannot be read: see
    /// [`survive_bus_errors`].
    ///
    /// # Errors
    /// [`ServerError::Open`], [`ServerError::Signal`], [`ServerError::Limits`], [`ServerError::Users`],
    /// [`ServerError::Socket`], [`ServerError::Tcp`].
    ///
    /// # Example
    /// ```
    /// # #[cfg(all(feature = "bake", feature = "server"))] {
    /// # use zero_kv::bake::{self, Options};
    /// # let folder = tempfile::tempdir()?;
    /// # let (db, socket) = (folder.path().join("storage.db"), folder.path().join("s.sock"));
    /// # bake::bake_csv("7,seven\n".as_bytes(), &db, &Options::default())?;
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

    /// Returns a handle that requests reloads and rollbacks from the running server.
    pub fn control(&self) -> Control {
        self.control.control.clone()
    }

    /// Follows a published table: requested reloads look for new generations of the table, and the server reports about
    /// the table in Info and the metrics. Only the first call has an effect.
    #[doc(hidden)]
    pub fn follow(&mut self, table: Arc<dyn PublishedTable>) {
        self.control.control.follow(table);
    }

    /// Makes the server report how many log lines were dropped, and to clients with the right to reload also the last
    /// warnings. Only the first call has an effect.
    #[doc(hidden)]
    pub fn report_log(&mut self, log: LogQueue) {
        let _ = self.statistics.log.set(log);
    }

    /// Listens on an address, on which the running server serves `/metrics` for Prometheus, `/healthz`, and `/readyz`
    /// over HTTP. Rejects an address that other machines can reach, unless `exposed` is true.
    ///
    /// # Errors
    /// [`ServerError::Socket`], [`ServerError::Tcp`].
    #[cfg(feature = "metrics")]
    pub fn serve_metrics(&mut self, address: &MetricsAddress, exposed: bool) -> Result<(), ServerError> {
        self.sockets.metrics = Some(metrics::Endpoint::bind(address, exposed)?);
        Ok(())
    }

    /// Listens on an address for clients that use TLS. The running server reads certificates and keys again when they
    /// change. Rejects an address that other machines can reach, unless clients need certificates or passwords, or
    /// `exposed` is true.
    ///
    /// # Errors
    /// [`ServerError::Tls`], [`ServerError::Tcp`].
    #[cfg(feature = "tls")]
    pub fn serve_tls(&mut self, address: SocketAddr, config: &TlsConfig, exposed: bool) -> Result<(), ServerError> {
        self.sockets.tls = Some(listen::handshakes::Endpoint::bind(
            address,
            config,
            exposed,
            self.users.protect_tcp(),
            &self.statistics,
        )?);
        if self.sockets.tcp.is_none() && config.client_ca.is_none() {
            self.users.warn_if_open();
        }
        Ok(())
    }

    /// Returns the address of the TLS socket, or `None` if the server does not listen for clients that use TLS.
    pub fn tls_address(&self) -> Option<SocketAddr> {
        #[cfg(feature = "tls")]
        return self.sockets.tls.as_ref().and_then(listen::handshakes::Endpoint::address);
        #[cfg(not(feature = "tls"))]
        None
    }

    /// Returns the address of the TCP socket, or `None` if the server does not listen on TCP.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.sockets.tcp.as_ref().and_then(|tcp| tcp.local_addr().ok())
    }

    /// Serves requests until the future `stop` is ready. The server then removes the socket's file, accepts no more
    /// connections, and reads no more requests. For at most half a second, it continues to send the responses to the
    /// requests that it has read.
    ///
    /// Blocks the calling thread. Must not be called inside a tokio runtime.
    ///
    /// # Errors
    /// [`ServerError::Worker`] if a thread or a runtime cannot be started.
    pub fn run(self, stop: impl Future<Output = ()>) -> Result<(), ServerError> {
        let (tcp_address, tls_address) = (self.tcp_address(), self.tls_address());
        let Server { source, generation, control, statistics, spin, limits, users, foreign_keys, notify, mut sockets } =
            self;
        let workers = statistics.worker_count();
        let others = OtherSockets { tls: tls_address.is_some(), metrics: sockets.has_metrics() };
        let table = ServedTable::new(generation, workers, source.direct);
        let available = limits::connections_available(workers, others);
        let connections_max = limits.connections_max(available);
        let settings = Settings {
            source,
            socket: sockets.listener.path().to_path_buf(),
            tcp: tcp_address,
            tls: tls_address,
            connections_max,
            sockets_max: limits::sockets_max(connections_max, available),
            limits,
            foreign_keys,
        };
        let notifier = Notifier::new(notify);
        let state = Arc::new(ServerState::new(settings, users, table, statistics, control.control.clone(), notifier));
        if connections_max > available {
            warn!(
                "{connections_max} connections need more descriptors than the limit leaves for connections \
                 ({available}): raise the limit (ulimit -n)"
            );
        }
        state.liveness.main.started();
        let clients = Arc::default();
        let workers: Vec<Worker> = (0..workers)
            .map(|number| Worker::start(number, &state, spin, &clients))
            .collect::<io::Result<_>>()
            .map_err(ServerError::Worker)?;
        let supervisor =
            Supervisor::start(supervised(&state, sockets.certificate_check()), control).map_err(ServerError::Worker)?;
        let runtime = Builder::new_current_thread().enable_all().build().map_err(ServerError::Worker)?;
        state.liveness.residency.started();
        let acceptor = Acceptor::new(Arc::clone(&state), workers);
        let served = runtime.block_on(sockets.serve(&state, &acceptor, stop));
        // Unlike dropping the runtime, this call does not wait for a residency measurement in progress.
        runtime.shutdown_background();
        supervisor.cancel();
        served.map_err(ServerError::Worker)?;
        info!("stopping");
        state.notifier.stopping();
        drop(sockets);
        // All workers are signaled before the first one is joined, so that they stop in parallel.
        let stopping: Vec<_> = acceptor.into_workers().into_iter().map(Worker::stop).collect();
        for worker in stopping {
            // If the worker panicked, the panic was already logged.
            let _ = worker.join();
        }
        state.cold_reads.stop();
        supervisor.join();
        Ok(())
    }
}

struct Sockets {
    listener: Listener,
    peer_filter: PeerFilter,
    tcp: Option<StdTcpListener>,
    #[cfg(feature = "tls")]
    tls: Option<listen::handshakes::Endpoint>,
    #[cfg(feature = "metrics")]
    metrics: Option<metrics::Endpoint>,
}

impl Sockets {
    /// Accepts connections until `stop` is ready, and runs the other tasks of the main thread at the same time.
    async fn serve(
        &mut self,
        state: &Arc<ServerState>,
        acceptor: &Acceptor,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let (liveness, main) = (&state.liveness, &state.liveness.main);
        let (table, residency) = (Arc::clone(&state.table), Arc::clone(&state.residency));
        tokio::spawn(state::watch(table, residency, Arc::clone(&liveness.residency)));
        let following = Arc::clone(state);
        tokio::spawn(async move { following.liveness.main.keep(|| follow_users(&following)).await });
        if let Some(node) = &state.settings.source.cluster {
            let (main, node, reloads) = (Arc::clone(main), Arc::clone(node), state.control.reloads());
            tokio::spawn(async move { main.keep(|| cluster::follow(Arc::clone(&node), reloads.clone())).await });
        }
        if let Some(board) = state.table.board().cloned() {
            let main = Arc::clone(main);
            tokio::spawn(async move { main.keep(|| beat(&board)).await });
        }
        let unix = UnixListener::from_std(self.listener.socket()?)?;
        let tcp = self.tcp.take().map(TcpListener::from_std).transpose()?;
        #[cfg(feature = "metrics")]
        if let Some(endpoint) = self.metrics.take() {
            info!("metrics on {}", endpoint.address()?);
            tokio::spawn(endpoint.serve(Arc::clone(state)));
        }
        let (established, receiver) = unbounded_channel();
        #[cfg(feature = "tls")]
        let handshakes = self.tls.take().map(|endpoint| endpoint.start(state, established)).transpose()?;
        #[cfg(not(feature = "tls"))]
        drop(established);
        let established = Mutex::new(receiver);
        report_ready(state);
        tokio::select! {
            () = main.keep(|| acceptor.accept_unix(&unix, &self.peer_filter)) => {}
            () = main.keep(|| acceptor.accept_tcp(tcp.as_ref())) => {}
            () = main.keep(|| acceptor.accept_established(&established)) => {}
            () = main.keep(|| main.keep_beating(liveness.beat_every())) => {}
            () = main.keep(|| liveness.count_seconds()) => {}
            () = main.keep(|| liveness.notify_watchdog(&state.notifier)) => {}
            () = stop => {}
        }
        #[cfg(feature = "tls")]
        if let Some(handshakes) = handshakes {
            handshakes.stop();
        }
        Ok(())
    }

    fn has_metrics(&self) -> bool {
        #[cfg(feature = "metrics")]
        return self.metrics.is_some();
        #[cfg(not(feature = "metrics"))]
        false
    }

    /// Returns the function that checks the TLS certificates: see [`Supervised`].
    fn certificate_check(&self) -> Box<dyn Fn(bool) + Send> {
        #[cfg(feature = "tls")]
        if let Some(endpoint) = &self.tls {
            let certificates = Arc::clone(&endpoint.certificates);
            return Box::new(move |is_requested| certificates.check(is_requested));
        }
        Box::new(|_| ())
    }
}

/// Logs that the server accepts connections, and notifies the service manager.
fn report_ready(state: &ServerState) {
    let (generation, settings) = (state.table.current(), &state.settings);
    let on_tcp = settings.tcp.map(|address| format!(" and {address}")).unwrap_or_default();
    let on_tls = settings.tls.map(|address| format!(" and {address} with TLS")).unwrap_or_default();
    let (path, workers) = (settings.socket.display(), state.statistics.worker_count());
    let (rows, digest) = (generation.store.len(), facts::digest_text(generation.store.digest()));
    info!(generation = generation.number, digest, rows, workers, "ready on {path}{on_tcp}{on_tls}");
    state.notifier.ready(&format!("serves {} on {path}{on_tcp}{on_tls}", counted(rows, "row")));
}

/// Returns the parts of the state that the supervisor uses.
fn supervised(state: &ServerState, check_certificates: Box<dyn Fn(bool) + Send>) -> Supervised {
    let registries = Arc::clone(&state.registries);
    Supervised {
        source: state.settings.source.clone(),
        generations_max: state.settings.limits.generations_max,
        table: Arc::clone(&state.table),
        statistics: Arc::clone(&state.statistics),
        notifier: Arc::clone(&state.notifier),
        liveness: Arc::clone(&state.liveness),
        disconnect_before: Box::new(move |number| {
            registries.iter().for_each(|registry| registry.disconnect_generations_before(number));
        }),
        check_certificates,
    }
}

/// Reads the users file again when it changes or a reload is requested, disconnects users that are removed or disabled, and
/// wakes clients that keep values, whose permissions may have changed.
async fn follow_users(state: &ServerState) {
    let (users, statistics) = (Arc::clone(&state.users), Arc::clone(&state.statistics));
    let disconnect = || {
        state.registries.iter().for_each(|registry| registry.disconnect_users());
        state.table.watchers().wake();
    };
    let (reloads, watch) = (state.control.reloads(), state.settings.source.watch);
    users::watch(users, statistics, reloads, watch, Arc::clone(&state.liveness.folder_watch), disconnect).await;
}

/// Increments the heartbeat on the shared page. Direct clients read the heartbeat to find out whether the server runs.
/// Never returns.
async fn beat(board: &Board) {
    loop {
        board.beat();
        tokio::time::sleep(BEAT_EVERY).await;
    }
}
