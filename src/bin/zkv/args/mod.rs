//! The command-line options and commands of `zkv`.

mod files;
mod lookups;
mod programs;
mod publishing;
mod servers;
mod topology;

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::{Parser, Subcommand};
use zero_kv::DEFAULT_SOCKET;
use zero_kv::cli::server_args::ServerArgs;
use zero_kv::client::{Client, ClientError, Direct, DirectOptions, Options, SOCKET_VARIABLE, default_address};
use zero_kv::format::header::MAGIC;

pub(crate) use files::{CanaryArgs, DiffArgs, DiffFormat, DumpArgs, DumpFormat, FileCommand};
pub(crate) use lookups::{Format, KeysArgs, Lookup, OutputArgs, Part, Presence, RangeArgs};
pub(crate) use programs::ProgramCommand;
pub(crate) use publishing::PublishingCommand;
#[cfg(feature = "object-store")]
pub(crate) use publishing::{
    CopyArgs, GcArgs, GenerationsArgs, PinArgs, PolicyArgs, PublishArgs, PullArgs, Quota, Ready, RolloutArgs,
    StoreCommand, TableArgs, UnpinArgs, WatchNodesArgs,
};
pub(crate) use servers::{HealthArgs, ReloadArgs, ServerCommand, TopArgs};
#[cfg(feature = "object-store")]
pub(crate) use topology::WatchArgs;
pub(crate) use topology::{PlanArgs, Source, TopologyCommand};

/// Help heading of the options that all lookups share.
const SERVER_OR_FILE: &str = "Server or file";

/// Looks up keys and ranges on a running kv_store or in a baked file, and inspects files and servers.
///
/// The keys of a table are either all numbers or all bytes. If they are numbers, pass a key as an
/// unsigned 64-bit decimal; otherwise, the bytes of the argument are the key.
///
/// Rows are written as `key,value` lines that baker can read back, quoted where necessary, unless
/// --format selects another format.
///
/// Exit status: 0 if the key or row exists, 1 if it does not, 2 after an error. If a command uses other
/// exit statuses, its help lists them.
#[derive(Parser)]
#[command(name = "zkv", version, max_term_width = 100)]
pub(crate) struct Args {
    #[arg(long, visible_alias = "server", global = true, help_heading = SERVER_OR_FILE, value_name = "ADDRESS", help = format!(
        "Connect to the server at this address: the path of its socket, or zkv+tls://user@host:port \
         [env: {SOCKET_VARIABLE}] [default: {DEFAULT_SOCKET}]"
    ), long_help = format!(
        "Connect to the server at this address [env: {SOCKET_VARIABLE}] [default: {DEFAULT_SOCKET}]\n\n\
         The path of the server's socket, zkv://host:port for TCP, or zkv+tls://host:port for TCP with TLS. A user \
         before the host, as in zkv+tls://user@host:port, logs in. The password is never part of the address."
    ))]
    pub(crate) socket: Option<PathBuf>,
    /// Look keys up in this baked file, without a server; conflicts with --socket
    #[arg(long, global = true, help_heading = SERVER_OR_FILE, value_name = "FILE")]
    pub(crate) db: Option<PathBuf>,
    /// Wait at most this long for the connection, and for each batch of responses [default: 5s for the connection, 30s
    /// for each batch]
    #[arg(long, global = true, help_heading = SERVER_OR_FILE, value_name = "TIME", value_parser = parse_time)]
    pub(crate) timeout: Option<Duration>,
    /// Use direct mode: map the server's file and look keys up in this process
    #[arg(long, global = true, help_heading = SERVER_OR_FILE)]
    pub(crate) direct: bool,
    #[command(flatten, next_help_heading = SERVER_OR_FILE)]
    pub(crate) server: ServerArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// A server's address, and the client options for connections to it.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) socket: PathBuf,
    pub(crate) options: Options,
}

impl Address {
    pub(crate) fn connect(&self) -> Result<Client, ClientError> {
        Client::connect_with(&self.socket, &self.options)
    }
}

impl Args {
    /// Interprets `get FILE KEY…` as `get KEY… --db FILE`, if FILE is a baked file and neither `--socket` nor `--db`
    /// is given.
    pub(crate) fn take_file_of_get(&mut self) {
        if let (None, None, Command::Lookup(Lookup::Get { keys: KeysArgs { keys, .. }, .. })) =
            (&self.socket, &self.db, &mut self.command)
            && keys.len() > 1
            && is_baked_file(Path::new(&keys[0]))
        {
            self.db = Some(keys.remove(0).into());
        }
    }

    /// Returns the text of the server's address.
    pub(crate) fn socket(&self) -> PathBuf {
        self.socket.clone().unwrap_or_else(default_address)
    }

    /// Connects to the server. The client reports the first error of a request instead of retrying the request.
    pub(crate) fn connect(&self) -> anyhow::Result<Client> {
        Ok(Client::connect_with(self.socket(), &self.client_options()?)?)
    }

    /// Connects to the server in direct mode, which maps the server's file.
    pub(crate) fn connect_direct(&self) -> anyhow::Result<Direct> {
        let options = DirectOptions { client: self.client_options()?, ..DirectOptions::default() };
        Ok(self.connect()?.direct_with(&options)?)
    }

    /// Returns the server's address and the client options, without the time-out that `--timeout` sets. This function
    /// is for commands that have their own limit for the time of the whole operation.
    pub(crate) fn address(&self) -> anyhow::Result<Address> {
        let socket = self.socket();
        let options = self.server.options(socket.as_os_str()).map_err(anyhow::Error::msg)?;
        Ok(Address { socket, options })
    }

    fn client_options(&self) -> anyhow::Result<Options> {
        let mut options = Options { retries: 0, ..self.address()?.options };
        if let Some(timeout) = self.timeout {
            (options.connect_timeout, options.call_timeout) = (timeout, Some(timeout));
        }
        Ok(options)
    }
}

/// Returns whether a file begins with the magic number of baked files. The rest of the file is not checked. Only
/// regular files are opened, because opening a pipe may block until there is a writer.
fn is_baked_file(path: &Path) -> bool {
    let mut magic = [0; MAGIC.len()];
    fs::metadata(path).is_ok_and(|found| found.is_file())
        && File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok()
        && magic == MAGIC
}

#[derive(Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    Lookup(Lookup),
    /// Measure how fast the client library looks up batches of keys, in random order
    ///
    /// The keys are the table's first million keys, or all keys of a smaller table. To measure a server under the load
    /// of many clients, use `zkv saturate`.
    ///
    /// Exit status: 0 after success, 1 if keys were not found, for example because the table was
    /// replaced during the run, 2 after an error.
    Bench(BenchArgs),
    #[command(flatten)]
    File(FileCommand),
    /// Print the slot of each key, which decides the shard that has the key
    ///
    /// Each line of the output is a number from 0 to 16383: the slot of Redis Cluster, as CLUSTER KEYSLOT prints it.
    ///
    /// Exit status: 0 after success, 2 after an error.
    Slot(SlotArgs),
    #[command(flatten)]
    Server(ServerCommand),
    /// Show, check, plan, and change the topology of a cluster: which nodes serve which slots
    Topology {
        #[command(subcommand)]
        command: TopologyCommand,
    },
    #[command(flatten)]
    Publishing(PublishingCommand),
    #[command(flatten)]
    Program(ProgramCommand),
}

#[derive(clap::Args)]
pub(crate) struct BenchArgs {
    /// Measure for this long
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_time)]
    pub(crate) seconds: Duration,
    /// Look up this many keys per batch
    #[arg(long, value_name = "KEYS", default_value_t = 256, value_parser = RangedU64ValueParser::<usize>::new().range(1..=65_536))]
    pub(crate) batch: usize,
    /// Run this many threads, each with its own connection
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1024))]
    pub(crate) threads: usize,
    /// Write one JSON object on one line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct SlotArgs {
    /// Print the slots of these keys. Write a number without leading zeros. Pass `--` before the keys if one begins
    /// with `-`. A single `-` reads keys from standard input, one per line
    #[arg(required = true, value_name = "KEY", allow_negative_numbers = true)]
    pub(crate) keys: Vec<std::ffi::OsString>,
}

/// Parses a time-out or an interval: a number of seconds, or a time with its unit. There is an upper limit, because adding
/// a longer time to the clock could overflow.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    const SECONDS: std::ops::RangeInclusive<f64> = 0.01..=1e6;
    let seconds = text.parse().ok().filter(|seconds| SECONDS.contains(seconds)).map(Duration::from_secs_f64);
    let with_unit = || humantime::parse_duration(text).ok().filter(|time| SECONDS.contains(&time.as_secs_f64()));
    let expected = "expected 0.01 to 1000000 seconds, such as 10, or a time with its unit, such as 500ms or 5min";
    seconds.or_else(with_unit).ok_or_else(|| expected.to_owned())
}
