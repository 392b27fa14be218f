//! The command-line options of `kv_store`, in the groups that the help shows.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgGroup, Parser, ValueEnum};
use zero_kv::cli::number::{parse_count, parse_u32};
use zero_kv::cli::replace_args::{self, ReplaceArgs};
use zero_kv::client::SOCKET_VARIABLE;
use zero_kv::server::{Check, Config, ForeignKeys, Inherited, MetricsAddress};
use zero_kv::store::{Memory, OpenOptions};
use zero_kv::{DEFAULT_FILE, DEFAULT_SOCKET, Setting};

use super::access::AccessArgs;
use super::client_limits::ClientLimitArgs;
use super::cluster::ClusterArgs;
use super::published::PublishedArgs;
use super::tls::TlsArgs;

/// Serves a baked file to all processes of this machine.
///
/// When a new file replaces the served one, the server checks the new file and then serves it
/// without a pause. SIGHUP makes the server look for a new file at once. SIGINT and SIGTERM stop the
/// server. Logs go to standard error; RUST_LOG=debug adds detail. Sockets that systemd passes
/// (LISTEN_FDS) replace --socket and --tcp.
#[derive(Parser)]
#[command(name = "kv_store", version, max_term_width = 100)]
#[command(group = ArgGroup::new("node-of").args(["from", "cluster"]).multiple(true))]
#[command(group = ArgGroup::new("topology-of").args(["from", "topology"]).multiple(true))]
pub(crate) struct Args {
    /// Read options from this TOML file, such as `workers = 2`. An option on the command line precedes the environment
    /// variable of the option, such as KV_STORE_WORKERS, and the variable precedes the file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the options in effect, as a file for --config, and where each comes from; then exit
    #[arg(long)]
    pub(crate) print_config: bool,
    #[command(flatten, next_help_heading = "File")]
    pub(crate) file: FileArgs,
    #[command(flatten, next_help_heading = "Published table")]
    pub(crate) published: PublishedArgs,
    #[command(flatten, next_help_heading = "Cluster")]
    cluster: ClusterArgs,
    #[command(flatten, next_help_heading = "Table replacement")]
    replace: ReplaceArgs,
    #[command(flatten, next_help_heading = "Listening")]
    pub(crate) listen: ListenArgs,
    #[command(flatten, next_help_heading = "TLS")]
    pub(crate) tls: TlsArgs,
    #[command(flatten, next_help_heading = "Access control (Unix socket)")]
    access: AccessArgs,
    #[command(flatten, next_help_heading = "Client limits")]
    limits: ClientLimitArgs,
    #[command(flatten, next_help_heading = "Logging and metrics")]
    pub(crate) logging: LoggingArgs,
    #[command(flatten, next_help_heading = "Threads")]
    threads: ThreadArgs,
}

impl Args {
    /// Returns the server's configuration.
    ///
    /// # Errors
    /// If the server cannot be a node of its cluster, for example because the topology is not valid.
    pub(crate) fn config(self, inherited: Inherited) -> anyhow::Result<Config> {
        Ok(Config {
            cluster: self.cluster.node(&self.published)?,
            memory: self.file.memory.into(),
            open: OpenOptions { warm: self.file.warm, lock: self.file.lock, ..OpenOptions::default() },
            check: self.file.verify.into(),
            canaries: self.file.canary,
            replace: self.replace.rules(),
            lease: !self.file.no_lease,
            watch: !self.file.no_watch,
            direct: !self.access.no_direct,
            socket: self.listen.socket.unwrap_or_else(|| DEFAULT_SOCKET.into()),
            abstract_socket: self.listen.abstract_socket,
            access: self.access.into(),
            inherited,
            tcp: self.listen.tcp,
            tcp_exposed: self.listen.tcp_exposed,
            users: self.listen.users,
            foreign_keys: self.listen.foreign_keys.into(),
            workers: self.threads.workers,
            spin: self.threads.spin.map(|us| Duration::from_micros(us.into())),
            limits: self.limits.into(),
            notify: true,
        })
    }
}

impl FileArgs {
    /// Returns the path of the file to serve.
    pub(crate) fn path(&self) -> &Path {
        self.positional.as_ref().unwrap_or(&self.db)
    }
}

/// Returns the name of the option for a setting of the server, or `None` if the setting has no option.
pub(crate) fn name_of(setting: Setting) -> Option<&'static str> {
    Some(match setting {
        Setting::Socket => "--socket",
        Setting::AbstractSocket => "--abstract",
        Setting::SocketMode => "--mode",
        Setting::SocketOwner => "--owner",
        Setting::SocketGroup => "--group",
        Setting::AllowUids => "--allow-uid",
        Setting::AllowGids => "--allow-gid",
        Setting::TcpExposed => "--tcp-exposed",
        Setting::Tls => "--tls",
        Setting::TlsClientCa => "--tls-ca",
        Setting::TlsHandshakeTimeout => "--tls-handshake-timeout",
        Setting::Users => "--users",
        Setting::ForeignKeys => "--foreign-keys",
        Setting::MetricsExposed => "--metrics-exposed",
        Setting::Memory => "--memory",
        Setting::NoLease => "--no-lease",
        Setting::ConnectionsMax => "--max-connections",
        Setting::BufferMax => "--buffer",
        Setting::ClientMemoryMax => "--client-memory-max",
        Setting::DrainRateMin => "--min-drain-rate",
        Setting::GenerationsMax => "--generations-max",
        rule => return replace_args::name_of(rule),
    })
}

#[derive(clap::Args)]
pub(crate) struct FileArgs {
    /// Serve this baked file, like --db
    #[arg(value_name = "FILE", conflicts_with = "db")]
    positional: Option<PathBuf>,
    /// Serve this baked file
    #[arg(long, value_name = "FILE", default_value = DEFAULT_FILE)]
    db: PathBuf,
    /// Choose the memory that responses are read from
    #[arg(long, value_name = "MEMORY", default_value = "map")]
    memory: MemoryArg,
    /// Read the whole file into memory, with one thread per processor (at most 16), before serving it
    #[arg(long)]
    warm: bool,
    /// Lock the whole file in memory; the server does not start if locking fails
    #[arg(long)]
    lock: bool,
    /// Choose when each block of the file is verified against its checksum
    #[arg(long, value_name = "WHEN", default_value = "touch")]
    verify: VerifyArg,
    /// Do not take a lease on the file, even if the server owns the file; call fstat after every batch instead
    #[arg(long)]
    no_lease: bool,
    /// Do not watch for new files; check for one only on SIGHUP or `zkv reload`
    #[arg(long)]
    no_watch: bool,
    /// Serve a table only if it matches the canaries that this file lists: lines `key,digest`, as `zkv canary` writes
    /// them
    #[arg(long, value_name = "FILE")]
    canary: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum VerifyArg {
    /// On first access to the block
    Touch,
    /// On first access; also in the background once the file is served
    Background,
    /// Before the file is served, together with a lookup of every key
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
    /// A private copy in huge pages
    Copy,
    /// A sealed copy that no process can change, not even the server
    Sealed,
}

impl From<MemoryArg> for Memory {
    fn from(arg: MemoryArg) -> Memory {
        match arg {
            MemoryArg::Map => Memory::Map,
            MemoryArg::Copy => Memory::Copy,
            MemoryArg::Sealed => Memory::Sealed,
        }
    }
}

#[derive(clap::Args)]
pub(crate) struct ListenArgs {
    #[arg(long, value_name = "PATH", help = format!(
        "Listen on this Unix socket [env: {SOCKET_VARIABLE}, which clients read, too] [default: {DEFAULT_SOCKET}]"
    ))]
    pub(crate) socket: Option<PathBuf>,
    /// Treat --socket as an abstract name, such as @zero-kv. An abstract socket has no owner and no mode: EVERY PROCESS
    /// of the server's network namespace (usually, of the whole machine) may connect, unless --allow-uid or --allow-gid
    /// is given
    #[arg(long = "abstract", conflicts_with_all = ["mode", "owner", "group"])]
    abstract_socket: bool,
    /// Also listen on this TCP address, such as 127.0.0.1:6380, for clients that cannot use Unix sockets
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) tcp: Option<SocketAddr>,
    /// Allow other machines to reach --tcp, a TCP socket passed by systemd, or --tls. Without --users, EVERYBODY WHO
    /// CAN CONNECT CAN READ THE WHOLE TABLE; without TLS, passwords and values are not encrypted. --tls does not need
    /// this option if --tls-ca or --users is given
    #[arg(long)]
    pub(crate) tcp_exposed: bool,
    /// Read users, with hashed passwords and permissions, from this file in the format of Redis's ACL files. The
    /// permissions apply to all clients over TCP, but to clients of the Unix socket only after they log in
    #[arg(long, value_name = "FILE")]
    pub(crate) users: Option<PathBuf>,
    /// Choose what Redis commands do with a key that is not a number, if the table's keys are numbers
    #[arg(long, value_name = "RESULT", default_value = "error")]
    foreign_keys: ForeignKeysArg,
}

#[derive(Clone, Copy, ValueEnum)]
enum ForeignKeysArg {
    /// The command fails with an error
    Error,
    /// The key counts as a missing key
    Missing,
}

impl From<ForeignKeysArg> for ForeignKeys {
    fn from(arg: ForeignKeysArg) -> ForeignKeys {
        match arg {
            ForeignKeysArg::Error => ForeignKeys::Error,
            ForeignKeysArg::Missing => ForeignKeys::Missing,
        }
    }
}

#[derive(clap::Args)]
pub(crate) struct LoggingArgs {
    /// Serve /metrics, /healthz and /readyz over HTTP, on an address such as 127.0.0.1:9464 or on a Unix socket
    #[arg(long, value_name = "ADDRESS|PATH")]
    pub(crate) metrics: Option<MetricsAddress>,
    /// Allow --metrics on an address that other machines can reach; these machines can read the server's counters, but
    /// no rows
    #[arg(long, requires = "metrics")]
    pub(crate) metrics_exposed: bool,
    /// Choose the format of log lines
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Text for people
    Text,
    /// One JSON object per line
    Json,
}

#[derive(clap::Args)]
struct ThreadArgs {
    /// Run this many worker threads [default: one for every two processors]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    workers: Option<NonZeroUsize>,
    /// Let a worker poll this long after a response before it sleeps [default: 50, or 0 on one processor]
    #[arg(long, value_name = "MICROSECONDS", value_parser = parse_u32)]
    spin: Option<u32>,
}
