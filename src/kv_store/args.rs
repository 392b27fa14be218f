//! The command-line options of `kv_store`, in the groups that the help shows.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{ArgGroup, Command, CommandFactory, Parser, ValueEnum};
use nix::unistd::{Group, User};
use zero_kv::cli::args::ReplaceArgs;
use zero_kv::cli::examples::{CommandExamples, add_examples};
use zero_kv::cli::generate;
use zero_kv::cli::values::{BareUnit, DURATION_MAX, duration, listening_address, parse_count, parse_size};
use zero_kv::client::{Address, SOCKET_VARIABLE};
use zero_kv::cluster::NodeAddress;
use zero_kv::server::{ClusterNode, Config, ForeignKeys, Inherited, Limits, MetricsAddress, Server, SocketAccess};
use zero_kv::store::{Memory, OpenOptions, Verify};
use zero_kv::{DEFAULT_FILE, DEFAULT_SOCKET};

use super::published::PublishedArgs;

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
    /// Read options from this TOML file, such as `workers = 2`
    ///
    /// An option on the command line precedes the environment variable of the option, such as KV_STORE_WORKERS, and the
    /// variable precedes the file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the options in effect, and where each comes from; then exit
    ///
    /// The output is a file for --config.
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
    pub(crate) fn config(self, inherited: Inherited) -> anyhow::Result<Config> {
        if let Some(folder) = self.file.rollback_folder.as_ref().filter(|folder| !folder.is_dir()) {
            return Err(anyhow!("--rollback-folder {}: is not a folder: name one that exists", folder.display()));
        }
        Ok(Config {
            cluster: self.cluster.node(&self.published)?,
            memory: self.file.memory.into(),
            open: OpenOptions {
                verify: self.file.verify.when_opened(),
                warm: self.file.warm,
                lock: self.file.lock,
                ..OpenOptions::default()
            },
            verify_in_background: self.file.verify == VerifyArg::Background,
            rollback_folder: self.file.rollback_folder,
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
            spin: self.threads.spin,
            limits: self.limits.into(),
            notify: true,
        })
    }
}

impl FileArgs {
    pub(crate) fn path(&self) -> &Path {
        self.positional.as_ref().unwrap_or(&self.db)
    }
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
    /// Read the whole file into memory before serving it
    ///
    /// One thread per processor reads the file, at most 16.
    #[arg(long)]
    warm: bool,
    /// Lock the whole file in memory, and do not start if that fails
    #[arg(long)]
    lock: bool,
    /// Choose when the blocks of the file are verified
    #[arg(long, value_name = "WHEN", default_value = "touch")]
    verify: VerifyArg,
    /// Do not take a lease on the file; call fstat after every batch instead
    ///
    /// By default, the server takes a lease if it may, for example because it owns the file.
    #[arg(long)]
    no_lease: bool,
    /// Check for a new file only on SIGHUP or `zkv reload`
    #[arg(long)]
    no_watch: bool,
    /// Save the table that a rollback serves in this folder [default: the folder of the file]
    ///
    /// After a restart, the server serves the saved table instead of the one that the rollback replaced.
    #[arg(long, value_name = "FOLDER")]
    rollback_folder: Option<PathBuf>,
    /// Serve a table only if it matches the canaries in this file
    ///
    /// The file has lines `key,digest`, as `zkv canary` writes them.
    #[arg(long, value_name = "FILE")]
    canary: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum VerifyArg {
    /// On first access to the block
    Touch,
    /// On first access; also in the background once the file is served
    Background,
    /// Before the file is served, together with a lookup of every key
    Full,
}

impl VerifyArg {
    fn when_opened(self) -> Verify {
        match self {
            VerifyArg::Touch | VerifyArg::Background => Verify::Touch,
            VerifyArg::Full => Verify::Full,
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
    #[arg(
        long,
        value_name = "PATH",
        value_parser = OsStringValueParser::new().try_map(parse_socket),
        help = format!("Listen on this Unix socket [default: {DEFAULT_SOCKET}]"),
        long_help = format!(
            "Listen on this Unix socket [env: {SOCKET_VARIABLE}, which clients read, too] [default: {DEFAULT_SOCKET}]"
        ),
    )]
    pub(crate) socket: Option<PathBuf>,
    /// Treat --socket as an abstract name, to which EVERY PROCESS of the machine may connect
    ///
    /// An abstract socket, such as @zero-kv, has no owner and no mode: every process of the server's network namespace
    /// (usually, of the whole machine) may connect, unless --allow-uid or --allow-gid is given.
    #[arg(long = "abstract", conflicts_with_all = ["mode", "owner", "group"])]
    abstract_socket: bool,
    /// Also listen on this TCP address, such as 127.0.0.1:6380
    ///
    /// TCP is for clients that cannot use Unix sockets.
    #[arg(long, value_name = "ADDRESS", value_parser = listening_address(6380))]
    pub(crate) tcp: Option<SocketAddr>,
    /// Allow other machines to reach --tcp or --tls; without --users, THEY CAN READ THE TABLE
    ///
    /// The option also applies to a TCP socket passed by systemd. Without --users, EVERYBODY WHO CAN CONNECT CAN READ
    /// THE WHOLE TABLE; without TLS, passwords and values are not encrypted. --tls does not need this option if
    /// --tls-ca or --users is given.
    #[arg(long)]
    pub(crate) tcp_exposed: bool,
    /// Read users and their permissions from this file, in the format of Redis's ACL files
    ///
    /// The file has hashed passwords. The permissions apply to all clients over TCP, but to clients of the Unix socket
    /// only after they log in.
    #[arg(long, value_name = "FILE")]
    pub(crate) users: Option<PathBuf>,
    /// Choose what Redis commands do with text that is not a key of the table's type
    ///
    /// An example is a name in a table whose keys are numbers. Every text is a key of a table of bytes.
    #[arg(long, value_name = "RESULT", default_value = "error")]
    foreign_keys: ForeignKeysArg,
}

/// Parses the path of a Unix socket. Rejects the addresses of TCP ports.
fn parse_socket(text: OsString) -> Result<PathBuf, String> {
    match Address::parse(&text) {
        Ok(Address::Unix(path)) => Ok(path),
        _ => {
            let text = text.to_string_lossy();
            let port = text.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or(6380_u16);
            Err(format!(
                "expected the path of a Unix socket, such as /run/zero-kv/zero-kv.sock: for TCP, pass \
                 --tcp 127.0.0.1:{port}"
            ))
        }
    }
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
    /// Serve /metrics, /healthz and /readyz over HTTP on this address
    ///
    /// The address is one such as 127.0.0.1:9464, or the path of a Unix socket.
    #[arg(long, value_name = "ADDRESS|PATH")]
    pub(crate) metrics: Option<MetricsAddress>,
    /// Allow other machines to reach --metrics
    ///
    /// These machines can read the server's counters, but no rows.
    #[arg(long, requires = "metrics")]
    pub(crate) metrics_exposed: bool,
    /// Write log lines in this format
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
    /// Let idle workers poll this long [default: 50us, or 0 on one processor]
    ///
    /// A worker polls this long after a response before it sleeps. A number without a unit is in microseconds.
    #[arg(long, value_name = "TIME", value_parser = duration(BareUnit::Microseconds, Duration::ZERO..=DURATION_MAX))]
    spin: Option<Duration>,
}

// None of these options affects --tcp.
#[derive(clap::Args)]
pub(crate) struct AccessArgs {
    /// Set the permissions of the socket, in octal [default: 0660]
    ///
    /// A client needs write permission to connect.
    #[arg(long, value_name = "MODE", value_parser = parse_mode)]
    mode: Option<u32>,
    /// Set the owner of the socket, by name or UID [default: the server's user]
    ///
    /// Only root can set another owner.
    #[arg(long, value_name = "USER", value_parser = parse_uid)]
    owner: Option<u32>,
    /// Set the group of the socket, by name or GID
    ///
    /// The server must run as a member of the group or as root.
    #[arg(long, value_name = "GROUP", value_parser = parse_gid)]
    group: Option<u32>,
    /// Serve only processes of these users (names or numbers), and --allow-gid
    ///
    /// All other connections are closed, even from root.
    #[arg(long, value_name = "USER", value_parser = parse_uid, value_delimiter = ',')]
    allow_uid: Vec<u32>,
    /// Serve only processes of these groups (names or numbers), and --allow-uid
    ///
    /// The effective group of a process counts, and its supplementary groups do not; to admit all members of a group,
    /// use --group.
    #[arg(long, value_name = "GROUP", value_parser = parse_gid, value_delimiter = ',')]
    allow_gid: Vec<u32>,
    /// Reject direct mode, in which clients look keys up themselves
    ///
    /// In direct mode, a client maps the file of the server.
    #[arg(long)]
    pub(crate) no_direct: bool,
}

impl From<AccessArgs> for SocketAccess {
    fn from(args: AccessArgs) -> Self {
        SocketAccess {
            mode: args.mode,
            owner: args.owner,
            group: args.group,
            allow_uids: args.allow_uid,
            allow_gids: args.allow_gid,
        }
    }
}

fn parse_mode(text: &str) -> Result<u32, &'static str> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777 && !text.starts_with('+'));
    mode.ok_or("expected three octal digits, such as 0660 (owner and group) or 0666 (everybody)")
}

fn parse_uid(text: &str) -> Result<u32, String> {
    parse_id(text, "passwd", || Ok(User::from_name(text)?.map(|user| user.uid.as_raw())))
}

fn parse_gid(text: &str) -> Result<u32, String> {
    parse_id(text, "group", || Ok(Group::from_name(text)?.map(|group| group.gid.as_raw())))
}

/// Returns the ID of a user or group: `text` itself if it is a number, otherwise the result of `look_up`. An error
/// names `database`, the database of getent(1) that lists the valid names.
fn parse_id(text: &str, database: &str, look_up: impl Fn() -> nix::Result<Option<u32>>) -> Result<u32, String> {
    // For chown, u32::MAX (-1) means "do not change".
    if let Some(id) = text.parse().ok().filter(|id| *id != u32::MAX) {
        return Ok(id);
    }
    match look_up() {
        Ok(Some(id)) => Ok(id),
        Ok(None) => Err(format!("no such name: pass a name that `getent {database}` lists, or a number")),
        Err(error) => Err(format!("the name cannot be looked up: {error}: pass a number")),
    }
}

/// The maximum time-out of clients.
const TIMEOUT_MAX: Duration = Duration::from_secs(u32::MAX as u64);

#[derive(clap::Args)]
pub(crate) struct ClientLimitArgs {
    /// Close connections beyond this number immediately
    ///
    /// [default: as many as the limit of file descriptors allows, at most 16384]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    max_connections: Option<NonZeroUsize>,
    /// Limit the unanswered requests of a connection
    ///
    /// The limit applies to an incomplete request together with requests that the client sends before it reads the
    /// responses to earlier requests. A client that sends more gets an error and is disconnected. The limit cannot be
    /// less than 256KiB.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "256MiB")]
    buffer: u64,
    /// Disconnect idle clients after this time; 0: never
    ///
    /// A client is idle if it sends no request.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "0",
        value_parser = duration(BareUnit::Seconds, Duration::ZERO..=TIMEOUT_MAX),
    )]
    idle_timeout: Duration,
    /// Disconnect stalled clients after this time; 0: never
    ///
    /// A client is stalled if it reads no byte of its pending responses, or sends no byte of an incomplete request.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "30s",
        value_parser = duration(BareUnit::Seconds, Duration::ZERO..=TIMEOUT_MAX),
    )]
    stall_timeout: Duration,
    /// Disconnect clients that read less per second
    ///
    /// The rate at which a client reads its pending responses is averaged over two stall time-outs (60 s by default).
    /// With 0, no client is disconnected.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1KiB")]
    min_drain_rate: u64,
    /// Keep this many replaced generations
    ///
    /// Pending responses need replaced generations. Beyond this number, clients with pending responses from the oldest
    /// generation are disconnected.
    #[arg(long, value_name = "N", default_value_t = Limits::GENERATIONS_MAX)]
    generations_max: usize,
    /// Limit the memory of all connections to this [default: an eighth]
    ///
    /// Beyond that, the clients that use the most memory for buffers are disconnected. The default is an eighth of the
    /// memory of the machine, or of the control group.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    client_memory_max: Option<u64>,
}

impl From<ClientLimitArgs> for Limits {
    fn from(args: ClientLimitArgs) -> Limits {
        Limits {
            connections_max: args.max_connections,
            buffer_max_bytes: usize::try_from(args.buffer).unwrap_or(usize::MAX),
            idle_timeout: args.idle_timeout,
            stall_timeout: args.stall_timeout,
            drain_rate_min_bytes_per_s: args.min_drain_rate,
            generations_max: args.generations_max,
            client_memory_max_bytes: args.client_memory_max,
        }
    }
}

/// How long a node that follows a store still serves the slots that a new topology assigns to other nodes: this number
/// of polls, but not less than the minimum. A wait between two polls is at most one and a half of the option, and a
/// node that cannot reach the store needs more.
const RETAINED_POLLS: u32 = 4;
const RETAINED_FOR_MIN: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ClusterArgs {
    /// Serve this server's slots to clients of a Redis Cluster
    ///
    /// Clients are redirected to the nodes of other slots. They need --tcp or --tls.
    #[arg(long, requires = "node", requires = "announce", requires = "topology-of")]
    cluster: bool,
    /// Announce this address to clients, such as 10.0.0.1:6380
    #[arg(long, value_name = "HOST:PORT", requires = "cluster")]
    announce: Option<NodeAddress>,
    /// Read the nodes and their slots from this JSON file
    ///
    /// The file is read again when it changes. With --from, the nodes and their slots are read from the store.
    #[arg(long, value_name = "FILE", requires = "cluster", conflicts_with = "from")]
    topology: Option<PathBuf>,
}

impl ClusterArgs {
    /// Returns the node, or `None` if the server is not part of a cluster.
    pub(crate) fn node(&self, published: &PublishedArgs) -> anyhow::Result<Option<Arc<ClusterNode>>> {
        if !self.cluster {
            return Ok(None);
        }
        let missing = || anyhow!("--cluster needs --node and --announce");
        let (id, announced) = published.node.as_deref().zip(self.announce.clone()).ok_or_else(missing)?;
        let mut node = ClusterNode::new(id, announced)?;
        match (published.slots, &published.from) {
            (Some(_), Some(_)) => {
                return Err(anyhow!(
                    "--slots contradicts --cluster: with --from, the topology has the slots of this node"
                ));
            }
            (Some(slots), None) => node.set_file_slots([slots].into_iter().collect()),
            (None, Some(_)) => node.set_retained_for(RETAINED_FOR_MIN.max(RETAINED_POLLS * published.poll)),
            (None, None) => {}
        }
        if let Some(path) = &self.topology {
            node.follow_file(path)?;
        }
        Ok(Some(Arc::new(node)))
    }
}

#[derive(Clone, clap::Args)]
#[cfg_attr(not(feature = "tls"), allow(dead_code, reason = "only TLS reads the files and the time"))]
pub(crate) struct TlsArgs {
    /// Also listen on this TCP address for TLS, such as 127.0.0.1:6390
    #[arg(long, value_name = "ADDRESS", requires_all = ["tls_cert", "tls_key"], value_parser = parse_address)]
    pub(crate) tls: Option<SocketAddr>,
    /// Use the server's certificate in this PEM file
    ///
    /// The file may also contain intermediate certificates. The files of --tls-cert, --tls-key, and --tls-ca are read
    /// again when they change, and on SIGHUP.
    #[arg(long, value_name = "FILE", requires = "tls")]
    tls_cert: Option<PathBuf>,
    /// Use the private key of the certificate in this PEM file
    #[arg(long, value_name = "FILE", requires = "tls")]
    tls_key: Option<PathBuf>,
    /// Serve only clients with a certificate of an authority in this PEM file
    #[arg(long, value_name = "FILE", requires = "tls")]
    tls_ca: Option<PathBuf>,
    /// Disconnect clients whose handshake takes longer
    #[arg(
        long,
        value_name = "TIME",
        requires = "tls",
        default_value = "10s",
        value_parser = duration(BareUnit::Seconds, Duration::from_secs(1)..=TIMEOUT_MAX),
    )]
    tls_handshake_timeout: Duration,
}

impl TlsArgs {
    /// Makes the server listen on the TLS port, if the options name one.
    #[cfg(feature = "tls")]
    pub(crate) fn serve(self, server: &mut Server, exposed: bool) -> anyhow::Result<()> {
        use zero_kv::server::TlsConfig;

        let (Some(address), Some(certificate), Some(key)) = (self.tls, self.tls_cert, self.tls_key) else {
            return Ok(());
        };
        let handshake_timeout = self.tls_handshake_timeout;
        let config = TlsConfig { certificate, key, client_ca: self.tls_ca, handshake_timeout };
        Ok(server.serve_tls(address, &config, exposed)?)
    }

    /// Does nothing. Without the feature `tls`, [`parse_address`] rejects every address, so there is no TLS port.
    #[cfg(not(feature = "tls"))]
    pub(crate) fn serve(self, _: &mut Server, _: bool) -> anyhow::Result<()> {
        Ok(())
    }
}

#[cfg(feature = "tls")]
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    listening_address(6390)(text)
}

#[cfg(not(feature = "tls"))]
fn parse_address(_: &str) -> Result<SocketAddr, &'static str> {
    Err("this program was built without the feature tls: build it with the feature tls or full")
}

const EXAMPLES: &[CommandExamples] = &[(
    "",
    &[
        ("Serve ./storage.db on the default socket", "kv_store"),
        (
            "Serve a file on another socket, after reading the whole file into memory",
            "kv_store users.db --socket /run/zero-kv/users.sock --warm",
        ),
        (
            "Also serve Redis clients of this machine over TCP, and metrics over HTTP",
            "kv_store --tcp 127.0.0.1:6380 --metrics 127.0.0.1:9464",
        ),
        (
            "Let only user 1000 connect, and only as a member of group 2000",
            "kv_store --mode 660 --group 2000 --allow-uid 1000",
        ),
        (
            "Serve other machines with TLS, to users with passwords",
            "kv_store --tls 0.0.0.0:6390 --tls-cert server.crt --tls-key server.key --users users.acl",
        ),
        (
            "Serve the newest generation of a published table, and follow the table",
            "kv_store --from s3://tables/users --cache /var/cache/zero-kv",
        ),
        ("Print the options that a file and the environment set", "kv_store --config kv_store.toml --print-config"),
    ],
)];

pub(crate) fn command() -> Command {
    add_examples(generate::with_option(Args::command()), EXAMPLES)
}

// Some examples of the help need optional features.
#[cfg(all(test, feature = "full"))]
mod tests {
    use zero_kv::cli::examples::check_examples;
    use zero_kv::cli::values::check_spellings;

    use super::*;

    #[test]
    fn the_address_of_a_tcp_port_is_no_socket() {
        for (text, port) in [("6399", 6399), ("localhost:6399", 6399), ("zkv://h:7", 7), ("http://h", 6380)] {
            let error = command().try_get_matches_from(["kv_store", "--socket", text]).unwrap_err().to_string();
            assert!(error.contains(&format!("for TCP, pass --tcp 127.0.0.1:{port}\n")), "{error}");
        }
        for path in ["s.sock", "./6399", "/run/s", "@abstract"] {
            assert_eq!(parse_socket(path.into()), Ok(path.into()));
        }
    }

    #[test]
    fn all_durations_and_sizes_accept_the_same_spellings() {
        check_spellings(&command());
    }

    #[test]
    fn the_examples_of_the_help_are_valid_command_lines() {
        check_examples(&command(), EXAMPLES, |args| {
            command().try_get_matches_from(args).map(drop).map_err(|error| error.to_string())
        });
    }
}
