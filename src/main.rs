//! `kv_store`: serves a baked file over a Unix socket.

use std::io::{self, IsTerminal, Write};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::anyhow;
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;
use zero_kv::server::{Config, Server};
use zero_kv::{DEFAULT_FILE, DEFAULT_SOCKET, Store};

/// Serves a file that baker wrote to all processes of this machine.
///
/// The whole file is checked before the socket is there. Stops on SIGINT and
/// SIGTERM. Logs go to standard error; RUST_LOG=debug tells more.
#[derive(Parser)]
#[command(name = "kv_store", version, max_term_width = 100)]
struct Args {
    /// File to serve
    #[arg(long, value_name = "FILE", default_value = DEFAULT_FILE)]
    db: PathBuf,
    /// Unix socket to answer on
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
    /// Threads that answer [default: as many as there are processors]
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,
}

fn main() -> ExitCode {
    let filter = EnvFilter::builder().with_default_directive(tracing::Level::INFO.into()).from_env_lossy();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_target(false);
    log.with_writer(io::stderr).with_ansi(io::stderr().is_terminal()).init();
    match run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "kv_store: {error}");
            ExitCode::from(1)
        }
    }
}

fn run(args: Args) -> anyhow::Result<()> {
    let store = Store::open(&args.db)?;
    // From here on there may be a socket to remove, so a signal must not end the process at once.
    let stop = stop_signal().map_err(|error| anyhow!("handling signals: {error}"))?;
    let config = Config { socket: args.socket, workers: args.workers };
    Ok(Server::bind(store, &config)?.run(stop)?)
}

/// Done when the process is asked to stop, from this call on.
fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _context = runtime.enter();
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
