//! `kv_store`: serves a baked file over a Unix socket.

mod generate;
mod kv_store;
mod size;

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::anyhow;
use clap::{CommandFactory, Parser, ValueEnum};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};
use tracing_subscriber::EnvFilter;
use zero_kv::server::{Check, Config, Control, MetricsAddress, Opened};
use zero_kv::store::{Memory, OpenOptions};
use zero_kv::{DEFAULT_FILE, DEFAULT_SOCKET};

use kv_store::connections::LimitArgs;

/// Serves a file that baker wrote to all processes of this machine.
///
/// A new file that is put in the place of the old one is checked and then served,
/// without a pause; SIGHUP asks for that. Stops on SIGINT and SIGTERM. Logs go to
/// standard error; RUST_LOG=debug tells more.
#[derive(Parser)]
#[command(name = "kv_store", version, max_term_width = 100)]
struct Args {
    /// File to serve
    #[arg(long, value_name = "FILE", default_value = DEFAULT_FILE)]
    db: PathBuf,
    /// Unix socket to answer on
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
    /// Also answer on this TCP address, such as 127.0.0.1:6380, for clients without Unix sockets
    #[arg(long, value_name = "ADDRESS")]
    tcp: Option<SocketAddr>,
    /// Let --tcp be an address that other machines reach. There is no password and no encryption:
    /// WHOEVER REACHES IT READS THE WHOLE TABLE
    #[arg(long, requires = "tcp")]
    tcp_exposed: bool,
    /// Threads that answer [default: one for every two processors]
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,
    /// How long a worker polls after an answer before it sleeps [default: 50, or 0 on one processor]
    #[arg(long, value_name = "MICROSECONDS")]
    spin: Option<u32>,
    /// Where the bytes lie that answers are made of
    #[arg(long, value_name = "WHERE", default_value = "map")]
    memory: MemoryArg,
    /// Read the whole file in, on all processors, before serving
    #[arg(long)]
    warm: bool,
    /// Keep the whole file in memory, or refuse to start
    #[arg(long)]
    lock: bool,
    /// When each block of the file is held against its checksum
    #[arg(long, value_name = "WHEN", default_value = "touch")]
    verify: VerifyArg,
    /// Do not lease the file, but look at it behind every batch, whoever owns it
    #[arg(long)]
    no_lease: bool,
    /// Look for new files only when asked to
    #[arg(long)]
    no_watch: bool,
    /// Serve a file only if it says what the lines of this one say: `key,digest`, made by `zkv canary`
    #[arg(long, value_name = "FILE")]
    canary: Option<PathBuf>,
    /// Also answer /metrics, /healthz and /readyz over HTTP, on an address such as 127.0.0.1:9464 or a Unix socket
    #[arg(long, value_name = "ADDRESS|PATH")]
    metrics: Option<MetricsAddress>,
    /// Let --metrics be an address that other machines reach: they see what the server counts, and no row
    #[arg(long, requires = "metrics")]
    metrics_exposed: bool,
    /// How log lines are written
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
    #[command(flatten)]
    limits: LimitArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum VerifyArg {
    /// When a request first touches it
    Touch,
    /// So, and all others when the file is being served
    Background,
    /// Before the file is served, and that each key is found
    Full,
}

#[derive(Clone, Copy, ValueEnum)]
enum LogFormat {
    /// A line for people
    Text,
    /// A JSON object a line
    Json,
}

#[derive(Clone, Copy, ValueEnum)]
enum MemoryArg {
    /// The page cache, shared with every process that maps the file
    Map,
    /// A copy of this process's own, in huge pages
    Copy,
    /// A copy that nobody can change, not even this process
    Sealed,
}

fn main() -> ExitCode {
    if let Some(code) = generate::if_asked(Args::command) {
        return code;
    }
    let args = Args::parse();
    start_log(args.log_format);
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "kv_store: {error}");
            ExitCode::from(1)
        }
    }
}

fn start_log(format: LogFormat) {
    let filter = EnvFilter::builder().with_default_directive(tracing::Level::INFO.into()).from_env_lossy();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_target(false).with_writer(io::stderr);
    match format {
        LogFormat::Text => log.with_ansi(io::stderr().is_terminal()).init(),
        LogFormat::Json => log.json().flatten_event(true).with_current_span(false).with_span_list(false).init(),
    }
}

fn run(args: Args) -> anyhow::Result<()> {
    let memory = match args.memory {
        MemoryArg::Map => Memory::Map,
        MemoryArg::Copy => Memory::Copy,
        MemoryArg::Sealed => Memory::Sealed,
    };
    let check = match args.verify {
        VerifyArg::Touch => Check::Touch,
        VerifyArg::Background => Check::Background,
        VerifyArg::Full => Check::Full,
    };
    let open = OpenOptions { memory, warm: args.warm, lock: args.lock, ..OpenOptions::default() };
    // Each connection takes one.
    raise_limit(Resource::Nofile, "descriptors");
    if open.lock {
        raise_limit(Resource::Memlock, "bytes of locked memory");
    }
    let config = Config {
        open,
        check,
        canaries: args.canary,
        lease: !args.no_lease,
        watch: !args.no_watch,
        socket: args.socket,
        tcp: args.tcp,
        tcp_exposed: args.tcp_exposed,
        workers: args.workers,
        spin: args.spin.map(|us| Duration::from_micros(us.into())),
        limits: args.limits.into(),
    };
    let opened = Opened::new(&args.db, &config)?;
    // From here on there may be a socket to remove, so a signal must not end the process at once.
    let signals = Signals::new().map_err(|error| anyhow!("handling signals: {error}"))?;
    let mut server = opened.bind(&config)?;
    if let Some(address) = &args.metrics {
        server.serve_metrics(address, args.metrics_exposed)?;
    }
    let control = server.control();
    Ok(server.run(signals.until_stop(control))?)
}

/// Raises a limit as far as this process may.
fn raise_limit(resource: Resource, what: &str) {
    let Rlimit { current, maximum } = getrlimit(resource);
    if current == maximum {
        return;
    }
    let number = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
    let (from, to) = (number(current), number(maximum));
    match setrlimit(resource, Rlimit { current: maximum, maximum }) {
        Ok(()) => info!("limit of {what} raised from {from} to {to}"),
        Err(error) => warn!("limit of {what} stays at {from}, not {to}: {error}"),
    }
}

/// The signals that this process answers, from when this is made.
struct Signals {
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
        // They are received in whatever runtime they are waited for; a runtime must not be dropped inside another.
        drop(context);
        Ok(Signals { hang_up, interrupt, terminate })
    }

    /// Asks for the file at its path whenever the process is hung up; done when it
    /// is asked to stop.
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
