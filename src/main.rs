//! `kv_store`: serves a baked file over a Unix socket.

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;
use zero_kv::server::{Config, Server};

/// Serves a file that baker wrote to all processes of this machine.
///
/// The whole file is checked before the socket is there. Stops on SIGINT and
/// SIGTERM. Logs go to standard error; RUST_LOG=debug tells more.
#[derive(Parser)]
#[command(name = "kv_store", version, max_term_width = 100)]
struct Args {
    /// File to serve
    #[arg(long, value_name = "FILE", default_value = "storage.db")]
    db: PathBuf,
    /// Unix socket to answer on
    #[arg(long, value_name = "PATH", default_value = "/tmp/zero-kv.sock")]
    socket: PathBuf,
    /// Threads that answer [default: half the processors]
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,
}

fn main() -> ExitCode {
    let filter = EnvFilter::builder().with_default_directive(tracing::Level::INFO.into()).from_env_lossy();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_target(false).init();
    match run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "kv_store: {error}");
            ExitCode::from(1)
        }
    }
}

fn run(args: Args) -> anyhow::Result<()> {
    let config = Config { db: args.db, socket: args.socket, workers: args.workers };
    Ok(Server::bind(&config)?.run(stop_signal())?)
}

/// Done when the process is asked to stop.
async fn stop_signal() {
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        tracing::warn!("signals cannot be handled: they will end the process at once");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
