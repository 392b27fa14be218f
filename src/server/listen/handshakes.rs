//! Accepts the connections of the TLS port, and performs their handshakes.
//!
//! In: a listening socket and certificates. Out: connections whose handshake is complete, which the main thread assigns
//! to workers. Handshakes run on a thread of their own, so their cryptography delays no lookup. The duration and the
//! number of handshakes are limited. If there are too many, the oldest one is aborted, because honest clients complete
//! their handshakes within milliseconds.

use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tracing::{debug, info, warn};
use zerocopy::IntoBytes;

use super::listener::{Exposure, listen_on_tcp};
use super::{ACCEPT_RETRY, ServerError};
use crate::protocol::native::{ResponseHeader, Status};
use crate::server::limits::handshakes_max;
use crate::server::process::log_queue::LogLimit;
use crate::server::process::newest_tasks::NewestTasks;
use crate::server::state::ServerState;
use crate::server::stats::Statistics;
use crate::server::tls::{Certificates, HandshakeError, TlsConfig, handshake};
use crate::server::worker::Accepted;
use crate::setting::Setting;

/// All handshakes together may hold at most 1/`CLIENT_MEMORY_SHARE` of the limit on client memory.
const CLIENT_MEMORY_SHARE: u64 = 8;

/// The listening socket of the TLS port, and its certificates.
pub(in crate::server) struct Endpoint {
    listener: StdTcpListener,
    pub(in crate::server) certificates: Arc<Certificates>,
}

impl Endpoint {
    /// Reads the certificates, and listens on an address. If clients need neither a certificate nor a password
    /// (`needs_password`), rejects an address that other machines can reach, unless `exposed` is true.
    pub(in crate::server) fn bind(
        address: SocketAddr,
        config: &TlsConfig,
        exposed: bool,
        needs_password: bool,
        statistics: &Arc<Statistics>,
    ) -> Result<Endpoint, ServerError> {
        let certificates = Certificates::load(config, statistics).map_err(ServerError::Tls)?;
        let is_authenticated = config.client_ca.is_some() || needs_password;
        let exposure = Exposure { is_encrypted: true, is_authenticated, is_allowed: exposed };
        let listener = listen_on_tcp(address, exposure)?;
        Ok(Endpoint { listener, certificates: Arc::new(certificates) })
    }

    /// Returns the address of the socket. If port 0 was requested, the port is the one that the system chose.
    pub(in crate::server) fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// Starts the handshake thread, which sends each connection to `established` when its handshake is complete.
    pub(in crate::server) fn start(
        self,
        state: &Arc<ServerState>,
        established: UnboundedSender<Accepted>,
    ) -> io::Result<HandshakeThread> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let Endpoint { listener, certificates } = self;
        let context = runtime.enter();
        let listener = TcpListener::from_std(listener)?;
        drop(context);
        let max = handshakes_max(state.settings.connections_max);
        let state = Arc::clone(state);
        let shared = Arc::new(Handshakes {
            state: Arc::clone(&state),
            certificates,
            established,
            running: NewestTasks::new(max),
            failure_log: LogLimit::default(),
            plaintext_log: LogLimit::default(),
            limit_log: LogLimit::default(),
        });
        let thread = Arc::clone(&state.liveness.handshakes);
        thread.started();
        let run = move || {
            let served = thread.catch(|| {
                runtime.block_on(async {
                    tokio::select! {
                        () = thread.keep(|| shared.accept(&listener)) => {}
                        () = thread.keep(|| thread.keep_beating(state.liveness.beat_every())) => {}
                        _ = stopped => {}
                    }
                });
            });
            if served.is_err() {
                thread.ended();
            }
        };
        let thread = thread::Builder::new().name("handshakes".to_owned()).spawn(run)?;
        Ok(HandshakeThread { stop, thread })
    }
}

pub(in crate::server) struct HandshakeThread {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl HandshakeThread {
    /// Ends the thread and all handshakes, and waits for the end of the thread.
    pub(in crate::server) fn stop(self) {
        // Fails only if the thread has ended.
        let _ = self.stop.send(());
        // If the thread panicked, the panic was already logged.
        let _ = self.thread.join();
    }
}

struct Handshakes {
    state: Arc<ServerState>,
    certificates: Arc<Certificates>,
    established: UnboundedSender<Accepted>,
    running: Arc<NewestTasks>,
    failure_log: LogLimit,
    plaintext_log: LogLimit,
    limit_log: LogLimit,
}

struct HeldMemory<'a> {
    state: &'a ServerState,
    held_bytes: u64,
}

impl HeldMemory<'_> {
    /// Records the memory of the handshake. Returns whether all handshakes together are within their memory limit.
    fn set(&mut self, held_bytes: u64) -> bool {
        let total = &self.state.statistics.tls.handshake_bytes;
        total.fetch_add(held_bytes, Ordering::Relaxed);
        let before_bytes = std::mem::replace(&mut self.held_bytes, held_bytes);
        let total_bytes = total.fetch_sub(before_bytes, Ordering::Relaxed) - before_bytes;
        total_bytes <= self.state.client_memory.max_bytes / CLIENT_MEMORY_SHARE
    }
}

impl Drop for HeldMemory<'_> {
    fn drop(&mut self) {
        self.state.statistics.tls.handshake_bytes.fetch_sub(self.held_bytes, Ordering::Relaxed);
    }
}

impl Handshakes {
    /// Accepts connections, and starts their handshakes. Never returns.
    async fn accept(self: &Arc<Self>, listener: &TcpListener) {
        let mut is_failing = false;
        loop {
            match listener.accept().await {
                Ok((tcp, address)) => {
                    if std::mem::take(&mut is_failing) {
                        info!("TLS connections are accepted again");
                    }
                    self.begin(tcp, address);
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    if !std::mem::replace(&mut is_failing, true) {
                        let retry_ms = ACCEPT_RETRY.as_millis();
                        warn!("cannot accept a TLS connection: {error}: trying again every {retry_ms} ms");
                    }
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }

    fn begin(self: &Arc<Self>, tcp: TcpStream, address: SocketAddr) {
        let handshakes = Arc::clone(self);
        let is_oldest_aborted = self.running.spawn(|place| async move {
            // A panic is logged, and ends only this connection.
            let _ = handshakes.state.liveness.handshakes.catch_in(handshakes.run(tcp, address)).await;
            drop(place);
        });
        if is_oldest_aborted {
            self.report_limit(&format!("it was the oldest of {} handshakes, which is the maximum", self.running.max()));
        }
    }

    async fn run(&self, tcp: TcpStream, address: SocketAddr) {
        let config = self.certificates.current();
        let timeout = self.certificates.handshake_timeout();
        let mut memory = HeldMemory { state: &self.state, held_bytes: 0 };
        let may_hold = |held_bytes: usize| memory.set(held_bytes as u64);
        match tokio::time::timeout(timeout, handshake(&tcp, config, may_hold)).await {
            Ok(Ok(session)) => {
                let totals = &self.state.statistics.totals;
                totals.tls_handshakes.fetch_add(1, Ordering::Relaxed);
                match Accepted::tls(tcp, address, session) {
                    // Fails only if the server is stopping.
                    Ok(accepted) => drop(self.established.send(accepted)),
                    Err(error) => warn!(peer = %address, "cannot serve a TLS connection: {error}"),
                }
            }
            Ok(Err(HandshakeError::Plaintext(byte))) => self.refuse_plaintext(&tcp, address, byte),
            Ok(Err(HandshakeError::Memory)) => self.report_limit(&HandshakeError::Memory.to_string()),
            Ok(Err(error)) => self.report_failure(address, &error),
            Err(_) => self.report_timeout(address, timeout.as_secs_f64()),
        }
    }

    /// Counts, logs, and answers a client that does not use TLS.
    fn refuse_plaintext(&self, tcp: &TcpStream, peer: SocketAddr, byte: u8) {
        self.state.statistics.totals.cut_plaintext.fetch_add(1, Ordering::Relaxed);
        if let Some(left_out) = self.plaintext_log.line() {
            let error = HandshakeError::Plaintext(byte);
            warn!(%peer, left_out, "disconnected: the client {error}, to the TLS port ({})", Setting::Tls);
        }
        // The connection ends, whether or not the client learns the reason.
        let _ = match byte {
            0 => tcp.try_write(ResponseHeader::bare(Status::Error).as_bytes()),
            _ => tcp.try_write(b"-ERR this port requires TLS\r\n"),
        };
    }

    fn report_failure(&self, peer: SocketAddr, error: &HandshakeError) {
        if let HandshakeError::Io(error) = error
            && error.kind() != io::ErrorKind::InvalidData
        {
            debug!(%peer, "a TLS connection ended before its handshake was complete: {error}");
            return;
        }
        self.state.statistics.totals.tls_handshakes_failed.fetch_add(1, Ordering::Relaxed);
        if let Some(left_out) = self.failure_log.line() {
            warn!(%peer, left_out, "disconnected: the TLS handshake failed: {error}");
        }
    }

    fn report_timeout(&self, peer: SocketAddr, timeout_s: f64) {
        self.state.statistics.totals.cut_handshake.fetch_add(1, Ordering::Relaxed);
        if let Some(left_out) = self.limit_log.line() {
            let setting = Setting::TlsHandshakeTimeout;
            warn!(%peer, left_out, "disconnected: the TLS handshake was not complete after {timeout_s} s ({setting})");
        }
    }

    fn report_limit(&self, limit: &str) {
        self.state.statistics.totals.cut_handshake.fetch_add(1, Ordering::Relaxed);
        if let Some(left_out) = self.limit_log.line() {
            warn!(left_out, "disconnected during a TLS handshake: {limit}");
        }
    }
}
