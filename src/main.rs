//! `kv_store`: serves a baked file over Unix and TCP sockets.

mod kv_store;

use std::ffi::c_int;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::anyhow;
use nix::sys::signal::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ, SigSet};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::flag;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};
use zero_kv::cli::generate;
use zero_kv::cli::generate::MoreCompletions;
use zero_kv::server::{Config, Control, Inherited, Opened, ServerError};
use zero_kv::store::Pace;

use kv_store::allocator::return_large_allocations;
use kv_store::args::{Args, command};
use kv_store::log::{self, Log};
#[cfg(feature = "object-store")]
use kv_store::published::Following;
use kv_store::{inherited, settings_sources};

fn main() -> ExitCode {
    if let Some(code) = generate::run_if_requested(command, MoreCompletions::default()) {
        return code;
    }
    let args = match settings_sources::parse() {
        Ok(args) => args,
        Err(code) => return code,
    };
    // The log opens a descriptor and starts a thread.
    let inherited = inherited::take();
    return_large_allocations();
    let log = match log::start(args.logging.log_format) {
        Ok(log) => log,
        Err(error) => {
            let _ = writeln!(io::stderr(), "kv_store: the log cannot be started: {error}");
            return ExitCode::from(1);
        }
    };
    match inherited.and_then(|inherited| run(args, inherited, &log)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log.error(&error);
            ExitCode::from(1)
        }
    }
}

fn run(args: Args, inherited: Inherited, log: &Log) -> anyhow::Result<()> {
    inherited::check(&inherited, &args.listen, args.tls.tls.is_some())?;
    // Each connection needs a file descriptor.
    raise_limit(Resource::Nofile, "descriptors");
    let db = args.file.path().to_owned();
    let (metrics, metrics_exposed) = (args.logging.metrics.clone(), args.logging.metrics_exposed);
    let (tls, tcp_exposed) = (args.tls.clone(), args.listen.tcp_exposed);
    #[cfg(feature = "object-store")]
    let published = args.published.from.is_some().then(|| args.published.clone());
    let mut config = args.config(inherited)?;
    if config.open.lock {
        raise_limit(Resource::Memlock, "bytes of locked memory");
    }
    if config.access.names_peers()
        && (config.tcp.is_some() || config.inherited.tcp_address().is_some() || tls.tls.is_some())
    {
        warn!(
            "--allow-uid and --allow-gid do not restrict TCP: the server serves every client that reaches its address"
        );
    }
    #[cfg_attr(not(feature = "object-store"), allow(unused_mut, reason = "only a wait for a store changes it"))]
    let mut signals = Signals::new().map_err(|error| anyhow!("signals cannot be handled: {error}"))?;
    let is_stopping = Arc::clone(&signals.is_stopping);
    config.open.pace = Pace::new(move || !is_stopping.load(Ordering::Relaxed));
    #[cfg(feature = "object-store")]
    let mut following = published.map(|published| Following::start(published, &mut config)).transpose()?;
    #[cfg(feature = "object-store")]
    let opened = match &mut following {
        Some(following) => signals.block_on(following.opened())?.transpose()?,
        None => open(&db, &config)?,
    };
    #[cfg(not(feature = "object-store"))]
    let opened = open(&db, &config)?;
    let Some(opened) = opened else { return Ok(()) };
    let mut server = opened.bind(&config)?;
    server.report_log(log.queue.clone());
    #[cfg(feature = "object-store")]
    if let Some(following) = following {
        following.connect(&mut server);
    }
    tls.serve(&mut server, tcp_exposed)?;
    if let Some(address) = &metrics {
        server.serve_metrics(address, metrics_exposed)?;
    }
    let control = server.control();
    Ok(server.run(signals.until_stop(control))?)
}

/// Raises the soft limit of a resource to its hard limit. Log lines state the limit in `unit`.
fn raise_limit(resource: Resource, unit: &str) {
    let Rlimit { current, maximum } = getrlimit(resource);
    if current == maximum {
        return;
    }
    let number = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
    let (from, to) = (number(current), number(maximum));
    match setrlimit(resource, Rlimit { current: maximum, maximum }) {
        Ok(()) => info!("limit of {unit} raised from {from} to {to}"),
        Err(error) => warn!("limit of {unit} cannot be raised from {from} to {to}: {error}"),
    }
}

/// Opens and checks the file. Returns `None` if a signal stops the program first.
fn open(db: &Path, config: &Config) -> anyhow::Result<Option<Opened>> {
    match Opened::new(db, config) {
        Err(ServerError::Open(error)) if error.is_canceled() => {
            info!("{error}: stopped before the file was served");
            Ok(None)
        }
        opened => Ok(Some(opened?)),
    }
}

/// Handlers of the signals that stop or reload the server. The handlers are installed before the file is opened:
/// opening can take long, and the first process of a container does not receive signals that it has no handlers for.
struct Signals {
    /// True after SIGINT or SIGTERM.
    is_stopping: Arc<AtomicBool>,
    hang_up: Signal,
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let context = runtime.enter();
        let hang_up = signal(SignalKind::hangup())?;
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let is_stopping = Arc::new(AtomicBool::new(false));
        for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
            flag::register(kind.as_raw_value(), Arc::clone(&is_stopping))?;
        }
        // A process inherits blocked signals from its parent, so the handled signals are unblocked.
        let handled = [SIGHUP, SIGINT, SIGTERM];
        handled.into_iter().collect::<SigSet>().thread_unblock()?;
        // With this handler, a write to the log beyond the file size limit returns an error instead of killing the
        // process.
        flag::register(SIGXFSZ as c_int, Arc::default())?;
        // This runtime only registers the signal handlers. The handlers stay registered after the runtime is dropped,
        // and any runtime can receive the signals. The context is dropped first, because a runtime must not be dropped
        // inside a context.
        drop(context);
        Ok(Signals { is_stopping, hang_up, interrupt, terminate })
    }

    /// Runs a future. Returns `None` if SIGINT or SIGTERM arrives first.
    #[cfg(feature = "object-store")]
    fn block_on<T>(&mut self, future: impl Future<Output = T>) -> io::Result<Option<T>> {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        Ok(runtime.block_on(async {
            tokio::select! {
                result = future => Some(result),
                _ = self.interrupt.recv() => None,
                _ = self.terminate.recv() => None,
            }
        }))
    }

    /// Reloads the file on each SIGHUP, and returns on SIGINT or SIGTERM.
    async fn until_stop(mut self, control: Control) {
        loop {
            tokio::select! {
                _ = self.hang_up.recv() => {
                    control.reload();
                }
                _ = self.interrupt.recv() => return,
                _ = self.terminate.recv() => return,
            }
        }
    }
}
