//! The command line, in groups as its help shows them.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use zero_kv::server::{Check, Config, Inherited, MetricsAddress};
use zero_kv::store::{Memory, OpenOptions};
use zero_kv::{DEFAULT_FILE, DEFAULT_SOCKET};

use super::access::AccessArgs;
use super::connections::LimitArgs;
use crate::replace_args::ReplaceArgs;

/// Serves a file that baker wrote to all processes of this machine.
///
/// A new file that is put in the place of the old one is checked and then served,
/// without a pause; SIGHUP asks for that. Stops on SIGINT and SIGTERM. Logs go to
/// standard error; RUST_LOG=debug tells more. Sockets that systemd hands
/// in (LISTEN_FDS) take the place of --socket and --tcp.
#[derive(Parser)]
#[command(name = "kv_store", version, max_term_width = 100)]
pub(crate) struct Args {
    #[command(flatten, next_help_heading = "File")]
    pub(crate) file: FileArgs,
    #[command(flatten, next_help_heading = "Replacing the file")]
    replace: ReplaceArgs,
    #[command(flatten, next_help_heading = "Where it answers")]
    pub(crate) places: PlaceArgs,
    #[command(flatten, next_help_heading = "Who may connect to the Unix socket")]
    access: AccessArgs,
    #[command(flatten, next_help_heading = "What clients may take")]
    limits: LimitArgs,
    #[command(flatten, next_help_heading = "What is told of it")]
    pub(crate) told: ToldArgs,
    #[command(flatten, next_help_heading = "Threads")]
    threads: ThreadArgs,
}

impl Args {
    /// What the library is to serve with.
    pub(crate) fn config(self, inherited: Inherited) -> Config {
        Config {
            memory: self.file.memory(),
            open: self.file.open_options(),
            check: self.file.verify.into(),
            canaries: self.file.canary,
            replace: self.replace.rules(),
            lease: !self.file.no_lease,
            watch: !self.file.no_watch,
            direct: !self.access.no_direct,
            socket: self.places.socket.unwrap_or_else(|| DEFAULT_SOCKET.into()),
            abstract_socket: self.places.abstract_socket,
            access: self.access.into(),
            inherited,
            tcp: self.places.tcp,
            tcp_exposed: self.places.tcp_exposed,
            workers: self.threads.workers,
            spin: self.threads.spin.map(|us| Duration::from_micros(us.into())),
            limits: self.limits.into(),
            notify: true,
        }
    }
}

#[derive(clap::Args)]
pub(crate) struct FileArgs {
    /// File to serve
    #[arg(long, value_name = "FILE", default_value = DEFAULT_FILE)]
    pub(crate) db: PathBuf,
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

impl From<VerifyArg> for Check {
    fn from(arg: VerifyArg) -> Check {
        match arg {
            VerifyArg::Touch => Check::Touch,
            VerifyArg::Background => Check::Background,
            VerifyArg::Full => Check::Full,
        }
    }
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

impl FileArgs {
    fn memory(&self) -> Memory {
        match self.memory {
            MemoryArg::Map => Memory::Map,
            MemoryArg::Copy => Memory::Copy,
            MemoryArg::Sealed => Memory::Sealed,
        }
    }

    fn open_options(&self) -> OpenOptions {
        OpenOptions { warm: self.warm, lock: self.lock, ..OpenOptions::default() }
    }
}

#[derive(clap::Args)]
pub(crate) struct PlaceArgs {
    #[arg(long, value_name = "PATH", help = format!("Unix socket to answer on [default: {DEFAULT_SOCKET}]"))]
    pub(crate) socket: Option<PathBuf>,
    /// Let --socket be an abstract name, such as @zero-kv. It has no owner and no mode: EVERY PROCESS
    /// of the machine (of the network namespace) may connect, unless --allow-uid or --allow-gid is given
    #[arg(long = "abstract", conflicts_with_all = ["mode", "owner", "group"])]
    abstract_socket: bool,
    /// Also answer on this TCP address, such as 127.0.0.1:6380, for clients without Unix sockets
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) tcp: Option<SocketAddr>,
    /// Let --tcp, or a TCP socket that systemd hands in, be an address that other machines reach.
    /// There is no password and no encryption: WHOEVER REACHES IT READS THE WHOLE TABLE
    #[arg(long, requires = "tcp")]
    tcp_exposed: bool,
}

#[derive(clap::Args)]
pub(crate) struct ToldArgs {
    /// Also answer /metrics, /healthz and /readyz over HTTP, on an address such as 127.0.0.1:9464 or a Unix socket
    #[arg(long, value_name = "ADDRESS|PATH")]
    pub(crate) metrics: Option<MetricsAddress>,
    /// Let --metrics be an address that other machines reach: they see what the server counts, and no row
    #[arg(long, requires = "metrics")]
    pub(crate) metrics_exposed: bool,
    /// How log lines are written
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum LogFormat {
    /// A line for people
    Text,
    /// A JSON object a line
    Json,
}

#[derive(clap::Args)]
struct ThreadArgs {
    /// Threads that answer [default: one for every two processors]
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,
    /// How long a worker polls after an answer before it sleeps [default: 50, or 0 on one processor]
    #[arg(long, value_name = "MICROSECONDS")]
    spin: Option<u32>,
}
