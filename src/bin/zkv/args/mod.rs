//! The command-line options and commands of `zkv`.

#[cfg_attr(not(feature = "object-store"), allow(dead_code, reason = "only the feature object-store reads them"))]
mod publishing;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::{Parser, Subcommand, ValueEnum};
use zero_kv::DEFAULT_SOCKET;
use zero_kv::cli::args::{ServerArgs, parse_url};
use zero_kv::cli::examples::CommandExamples;
use zero_kv::cli::values::{BareUnit, DURATION_MAX, duration, parse_count};
use zero_kv::client::{Client, ClientError, Direct, DirectOptions, Options, SOCKET_VARIABLE, default_address};
use zero_kv::cluster::{Health, NodeAddress, Role, TopologyNode};
use zero_kv::format::header::MAGIC;

pub(crate) use publishing::PublishingCommand;
#[cfg(feature = "object-store")]
pub(crate) use publishing::{
    CopyArgs, GcArgs, GenerationsArgs, PinArgs, PolicyArgs, PublishArgs, PullArgs, Quota, Ready, RolloutArgs,
    StoreCommand, TableArgs, UnpinArgs, WatchNodesArgs,
};

const SERVER_OR_FILE: &str = "Server or file";

/// Looks up keys and ranges on a running kv_store or in a baked file, and inspects files and servers.
///
/// Keys are written and printed as their type says, such as 42, user:7, 192.0.2.1, or 2026-11-21. The parts of
/// a composite key have commas between them; a comma or a backslash in a part follows a backslash.
///
/// Rows are written as `key,value` lines that baker can read back, quoted where necessary, unless
/// --format selects another format.
///
/// Exit status: 0 if the key or row exists, 1 if it does not, 2 after an error. If a command uses other
/// exit statuses, its help lists them.
#[derive(Parser)]
#[command(name = "zkv", version, max_term_width = 100)]
pub(crate) struct Args {
    #[arg(
        long, visible_alias = "server", global = true, help_heading = SERVER_OR_FILE, value_name = "ADDRESS",
        help = format!(
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
    /// Measure how fast the client library looks up batches of keys
    ///
    /// The keys are the table's first million keys, or all keys of a smaller table, in random order. To measure a
    /// server under the load of many clients, use `zkv saturate`.
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
    /// Show, check, plan, and change which nodes of a cluster serve which slots
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
    #[arg(
        long,
        value_name = "KEYS",
        default_value_t = 256,
        value_parser = RangedU64ValueParser::<usize>::new().range(1..=65_536),
    )]
    pub(crate) batch: usize,
    /// Run this many threads, each with its own connection
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = RangedU64ValueParser::<usize>::new().range(1..=1024),
    )]
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

/// Parses a time-out or an interval.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    duration(BareUnit::Seconds, Duration::from_millis(10)..=DURATION_MAX)(text)
}

#[derive(Subcommand)]
pub(crate) enum ProgramCommand {
    /// Compile rows into a file to serve: runs `baker`
    ///
    /// All arguments are passed to `baker`; `zkv bake --help` lists them.
    Bake,
    /// Serve a baked file to all processes of this machine: runs `kv_store`
    ///
    /// All arguments are passed to `kv_store`; `zkv serve --help` lists them.
    Serve,
    /// Saturate a server with requests of many clients, and measure it: runs `benchmarker`
    ///
    /// All arguments are passed to `benchmarker`; `zkv saturate --help` lists them. To measure the client library
    /// instead of a server, use `zkv bench`.
    Saturate,
}

impl ProgramCommand {
    /// Returns the program that a command runs, or `None` if no such command exists.
    pub(crate) fn program(command: &str) -> Option<&'static str> {
        match command {
            "bake" => Some("baker"),
            "serve" => Some("kv_store"),
            "saturate" => Some("benchmarker"),
            _ => None,
        }
    }
}

#[derive(Subcommand)]
pub(crate) enum ServerCommand {
    /// Print the server's settings, facts about its file, and its counters
    ///
    /// Each line is a name and a value. Counters begin at 0 when the server starts.
    ///
    /// Exit status: 0 after success, 2 after an error.
    Info {
        /// Write one JSON object on one line
        #[arg(long)]
        json: bool,
    },
    /// Measure the round-trip time of one ping request
    ///
    /// Exit status: 0 if the server responds, 2 after an error.
    Ping,
    /// Report whether the server responds and serves an intact file
    ///
    /// Exit status: 0 if the server is healthy; 1 if it is not, with a line for each reason; 2 after a
    /// usage error.
    Health(HealthArgs),
    /// Show live statistics of the server
    ///
    /// Press q, Esc, or Ctrl-C to quit. Rates cover the last interval. If standard output is not a terminal, one line
    /// is written per interval.
    ///
    /// Exit status: 0 after success, 2 after an error.
    Top(TopArgs),
    /// Reload the file now and wait until the server serves or rejects it
    ///
    /// Only root and the server's own user may request a reload.
    ///
    /// Exit status: 0 if the server serves the requested file or generation, even if the server already
    /// served it before; 1 if the server rejected the file, with the reason; 2 after an error.
    Reload(ReloadArgs),
}

#[derive(clap::Args)]
pub(crate) struct HealthArgs {
    /// Wait at most this long for the response
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_time)]
    pub(crate) timeout: Duration,
    /// Report a problem if a server that follows a published table has not read its store for this long [default: ten
    /// polls, and at least 30 s]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) stale_after: Option<Duration>,
    /// If the server is healthy, print the generation, digest, and number of rows of its table
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

#[derive(clap::Args)]
pub(crate) struct TopArgs {
    /// Sample the server at this interval
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    pub(crate) interval: Duration,
    /// Write this many lines, one per interval, even to a terminal
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<NonZeroU64>,
    /// Write one line (short for --count 1)
    #[arg(long, conflicts_with = "count")]
    pub(crate) once: bool,
}

#[derive(clap::Args)]
pub(crate) struct ReloadArgs {
    /// Go back to the previous table instead, and refuse the one at the path until another one is put there
    #[arg(long)]
    pub(crate) rollback: bool,
    /// Wait at most this long for the server to serve or reject the file
    #[arg(long, value_name = "TIME", default_value = "300s", value_parser = parse_time)]
    pub(crate) timeout: Duration,
}

#[derive(Subcommand)]
pub(crate) enum TopologyCommand {
    /// Print the nodes of a cluster and their slots
    ///
    /// Exit status: 0 if there is a topology, 1 if the table has none, 2 after an error.
    Show {
        /// Read the topology from this file, or the newest one from the table at this URL
        source: Source,
        /// Print the document, which `zkv topology apply` accepts
        #[arg(long)]
        json: bool,
    },
    /// Check that a topology file is valid
    ///
    /// Exit status: 0 if it is valid, 2 with the reason otherwise.
    Check {
        /// Check this file
        file: PathBuf,
    },
    /// Print the next topology for some nodes, which moves as few slots as possible
    ///
    /// Each primary gets an equal number of slots. The document is written to standard output, and a summary to
    /// standard error.
    ///
    /// Exit status: 0 after success, 2 after an error.
    Plan(PlanArgs),
    /// Make a topology the newest one
    ///
    /// A store accepts the topology only if its number is one more than the highest number in the store. The nodes put
    /// it into effect when all primaries have their rows. A file is replaced by rename if the number is higher.
    ///
    /// Exit status: 0 after success, 2 after an error.
    Apply {
        /// Apply the topology in this file; `-` reads standard input
        file: PathBuf,
        /// Apply the topology to the table at this URL, or to the file that nodes read
        #[arg(long, value_name = "URL|FILE")]
        to: Source,
    },
    /// Mark nodes that have stopped reporting as failed, and promote their replicas, until interrupted
    ///
    /// Run one process per cluster; several processes do not harm, because each topology is created only once. If more
    /// than half of the nodes have stopped reporting, nothing is changed.
    ///
    /// Exit status: 0 with --once, 2 after an error.
    Watch(WatchArgs),
}

#[derive(clap::Args)]
pub(crate) struct PlanArgs {
    /// Plan for these nodes, such as a=10.0.0.1:6380,b=10.0.0.2:6380@zone-2
    #[arg(long, required = true, value_name = "ID=HOST:PORT[@ZONE],…", value_delimiter = ',')]
    pub(crate) nodes: Vec<PlannedNode>,
    /// Give each primary this many replicas
    #[arg(long, value_name = "R", default_value_t = 0)]
    pub(crate) replicas: usize,
    /// Move slots from the topology in this file, or from the newest one of the table at this URL
    #[arg(long, value_name = "URL|FILE")]
    pub(crate) from: Option<Source>,
}

#[derive(clap::Args)]
#[cfg_attr(not(feature = "object-store"), allow(dead_code, reason = "only the feature object-store reads them"))]
pub(crate) struct WatchArgs {
    /// Watch the cluster of the table at this URL
    #[arg(value_parser = parse_url)]
    pub(crate) url: String,
    /// Mark a node as failed if its last report is older than this, such as 30s or 5min, and two of its reports are
    /// missing. A node reports after three polls, and at least every 60 s
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    pub(crate) fail_after: Duration,
    /// Read the reports of the nodes at this interval
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_time)]
    pub(crate) interval: Duration,
    /// Read the reports once, and end
    #[arg(long)]
    pub(crate) once: bool,
}

#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "object-store"), allow(dead_code, reason = "only the feature object-store reads URLs"))]
pub(crate) enum Source {
    File(PathBuf),
    Url(String),
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Source, String> {
        match text.contains("://") {
            true => Ok(Source::Url(parse_url(text)?.to_owned())),
            false => Ok(Source::File(text.into())),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct PlannedNode(pub(crate) TopologyNode);

impl FromStr for PlannedNode {
    type Err = String;

    fn from_str(text: &str) -> Result<PlannedNode, String> {
        let expected = || format!("found {text:?}, expected ID=HOST:PORT or ID=HOST:PORT@ZONE");
        let (id, rest) = text.split_once('=').ok_or_else(expected)?;
        let (address, zone) = rest.split_once('@').map_or((rest, None), |(address, zone)| (address, Some(zone)));
        let NodeAddress { host, port } = address.parse()?;
        Ok(PlannedNode(TopologyNode {
            id: id.to_owned(),
            host,
            port,
            role: Role::Primary,
            primary: None,
            slots: Vec::new(),
            zone: zone.map(str::to_owned),
            health: Health::Online,
        }))
    }
}

#[derive(Subcommand)]
pub(crate) enum FileCommand {
    /// Describe a file: its header, sections, keys, and lengths of values
    ///
    /// The command reads and verifies the whole file. For a damaged file, it prints the header and
    /// marks the damaged sections.
    ///
    /// Exit status: 0 if the file is intact, 1 if it is damaged or not a baked file, 2 if it cannot be
    /// read.
    Inspect {
        /// Read this baked file
        file: PathBuf,
        /// Write one JSON object on one line
        #[arg(long)]
        json: bool,
    },
    /// Verify a whole file
    ///
    /// All checksums and the order of the keys are checked, and every key is looked up.
    ///
    /// Exit status: 0 if the file is intact, 1 if it is damaged or not a baked file, 2 if it cannot be
    /// read.
    Verify {
        /// Verify this baked file
        file: PathBuf,
    },
    /// Write the rows of a file as text or Parquet that bakes to the same file
    ///
    /// Exit status: 0 after success, 2 after an error. If the reader of the output closes the pipe early,
    /// the exit status is 0.
    Dump(DumpArgs),
    /// Print the rows that differ between two files, in key order
    ///
    /// A line of text begins with `-` for a key that only A has, with `+` for a key that only B has, and
    /// with `~` for a key whose values differ. The last line counts these keys and the equal rows. If the
    /// headers of both files have the same digest, the command reports all rows as equal without reading
    /// them. A digest can be forged: if you do not trust the files, use cmp to compare them.
    ///
    /// In typed tables, the first lines are the columns that differ, and each line `~` names the columns whose values
    /// differ. Rows are compared by the columns that both tables have.
    ///
    /// Exit status: 0 if all rows and columns are equal, 1 if some differ, 2 after an error.
    Diff(DiffArgs),
    /// Write canaries, which servers look up in a new file before serving it
    ///
    /// A canary is a line `key,digest`, for `kv_store --canary`. The digest is the XXH3-128 of the key's value, as 32
    /// hexadecimal digits, or `absent` for a key that is not in the table.
    ///
    /// Exit status: 0 after success, 2 after an error.
    Canary(CanaryArgs),
}

#[derive(clap::Args)]
pub(crate) struct DumpArgs {
    /// Read this baked file
    pub(crate) file: PathBuf,
    /// Choose the output format
    #[arg(long, value_name = "FORMAT", default_value = "csv")]
    pub(crate) format: DumpFormat,
    /// Write to this file, which gets its name only when it is complete; `-` is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub(crate) output: PathBuf,
    /// Write only these columns of a typed table, in this order
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',')]
    pub(crate) columns: Vec<String>,
    /// Write the ranges of addresses of a table of ranges as blocks, such as 192.0.2.0/24, for `baker --cidr`
    #[arg(long)]
    pub(crate) cidr: bool,
    #[command(flatten)]
    pub(crate) range: RangeArgs,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum DumpFormat {
    /// Lines `key,value`, quoted where necessary, with one field per part of a key; for a typed table, a row of column
    /// names and one field per column
    Csv,
    /// Like csv, with tabs instead of commas and without quotes, for `baker --format tsv`; only for tables without tabs
    /// and line ends in keys and values
    Tsv,
    /// Lines `{"key":…,"value":"…"}`, or for a typed table, with one field per column; only for tables whose keys and
    /// values are UTF-8
    Jsonl,
    /// Apache Parquet, with the types of a typed table's columns and one column per part of a key; requires the feature `parquet`
    Parquet,
}

#[derive(clap::Args)]
pub(crate) struct DiffArgs {
    /// Compare this baked file
    pub(crate) a: PathBuf,
    /// Compare A with this baked file
    pub(crate) b: PathBuf,
    /// Write the values too
    #[arg(long)]
    pub(crate) values: bool,
    /// Write only the counts
    #[arg(long, conflicts_with = "values")]
    pub(crate) summary: bool,
    /// Choose the output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: DiffFormat,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum DiffFormat {
    /// Text for people: byte keys and values are quoted, with everything but printable ASCII escaped
    Text,
    /// One JSON object per line; only for tables whose keys and values are UTF-8
    Jsonl,
}

#[derive(clap::Args)]
pub(crate) struct CanaryArgs {
    /// Read this baked file
    pub(crate) file: PathBuf,
    /// Write canaries for these keys. A key is an unsigned 64-bit decimal, or bytes. Pass `--` before the keys if one
    /// begins with `-`. A single `-` reads keys from standard input, one per line
    #[arg(required_unless_present = "sample", value_name = "KEY", allow_negative_numbers = true)]
    pub(crate) keys: Vec<OsString>,
    /// Write canaries for this many evenly spaced keys of the table, or for all keys if there are fewer
    #[arg(long, value_name = "N", conflicts_with = "keys", value_parser = parse_count)]
    pub(crate) sample: Option<NonZeroUsize>,
}

#[derive(Subcommand)]
pub(crate) enum Lookup {
    /// Write the value of a key, unchanged
    ///
    /// A line end follows the value only on a terminal. In a typed table, write one line `name: value` per column
    /// instead.
    ///
    /// For several keys, or keys from standard input, write the rows of the keys that are in the table,
    /// in the order in which the keys are given. If the first argument is a baked file, keys are looked
    /// up in this file: `zkv get FILE KEY…`
    ///
    /// Exit status: 0 if all keys are in the table, 1 if some are not, 2 after an error.
    Get {
        #[command(flatten)]
        keys: KeysArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Check whether keys are in the table
    ///
    /// Without --print, only the exit status reports the result.
    ///
    /// Exit status: 0 if all keys are in the table, 1 if some are not, 2 after an error.
    Exists {
        #[command(flatten)]
        keys: KeysArgs,
        /// Write the keys that are in the table, or the keys that are absent, one per line, unchanged
        #[arg(long, value_name = "WHICH")]
        print: Option<Presence>,
        /// Terminate keys with NUL instead of line ends, in standard input and output
        #[arg(short = 'z', long)]
        null: bool,
    },
    /// Write the row with the largest key that is less than or equal to KEY
    ///
    /// For several keys, or keys from standard input, each row is preceded by the key that was looked up.
    ///
    /// Exit status: 0 if every key has such a row, 1 if some keys have none, 2 after an error.
    Floor {
        #[command(flatten)]
        keys: KeysArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Write the row with the smallest key that is greater than or equal to KEY
    ///
    /// For several keys, or keys from standard input, each row is preceded by the key that was looked up.
    ///
    /// Exit status: 0 if every key has such a row, 1 if some keys have none, 2 after an error.
    Ceiling {
        #[command(flatten)]
        keys: KeysArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Write the range that contains KEY: its first key, its last key, and its value
    ///
    /// For several keys, or keys from standard input, each row is preceded by the key that was looked up.
    ///
    /// Exit status: 0 if a range contains each key, 1 if none contains some keys, 2 after an error.
    Cover {
        #[command(flatten)]
        keys: KeysArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Write the row with the smallest key
    First {
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Write the row with the largest key
    Last {
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Write the rows of a range in key order; without bounds, all rows
    Range {
        #[command(flatten)]
        range: RangeArgs,
        /// Write the rows in descending key order
        #[arg(long)]
        reverse: bool,
        /// Write at most this many rows
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Write the rows whose keys begin with PREFIX, in key order
    ///
    /// Without PREFIX, all rows are written.
    Scan {
        /// Write only rows whose keys begin with these bytes
        prefix: Option<OsString>,
        /// Write at most this many rows
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Write the number of keys in a range; without bounds, of all keys
    Count {
        #[command(flatten)]
        range: RangeArgs,
    },
}

#[derive(clap::Args)]
pub(crate) struct KeysArgs {
    /// Look up these keys: unsigned 64-bit decimals, or bytes. Pass `--` before the keys if one begins with
    /// `-`. A single `-` reads keys from standard input, one per line
    #[arg(required = true, value_name = "KEY", allow_negative_numbers = true)]
    pub(crate) keys: Vec<OsString>,
    /// Decode escapes in keys, such as `\n`, `\x00`, and `\\`; --format escaped writes the same escapes
    #[arg(short, long)]
    pub(crate) escapes: bool,
}

#[derive(clap::Args)]
pub(crate) struct OutputArgs {
    /// Choose the output format [default: csv, but raw for `get` with one key]
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) format: Option<Format>,
    /// Write only keys, or only values
    #[arg(long, value_name = "PART")]
    pub(crate) only: Option<Part>,
    /// Write only these columns of a typed table, in this order
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',')]
    pub(crate) columns: Vec<String>,
    /// Terminate keys and rows with NUL instead of line ends, in standard input and in all formats except csv
    /// and json
    #[arg(short = 'z', long)]
    pub(crate) null: bool,
}

impl OutputArgs {
    /// Returns the options that write only keys, unchanged.
    pub(crate) fn for_keys(null: bool) -> OutputArgs {
        OutputArgs { format: Some(Format::Raw), only: Some(Part::Keys), columns: Vec::new(), null }
    }
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Format {
    /// Lines `key,value`, or in a typed table, with one field per column; quoted where necessary
    Csv,
    /// Unchanged bytes, with a tab between key and value
    Raw,
    /// Like raw, but bytes that are not printable ASCII are written as escapes, such as `\n` and `\xff`
    Escaped,
    /// Like raw, with bytes as hexadecimal digits; keys that are numbers stay decimal
    Hex,
    /// Lines `{"key":…,"value":"…"}`, or in a typed table, with one field per column; bytes that are not UTF-8 are
    /// written as `key_hex` or `value_hex`
    Json,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Part {
    Keys,
    Values,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Presence {
    Present,
    Absent,
}

#[derive(clap::Args, Default)]
pub(crate) struct RangeArgs {
    /// Begin at this key, inclusive; the last parts of a composite key may be missing
    #[arg(long, value_name = "KEY", allow_negative_numbers = true, conflicts_with = "after")]
    pub(crate) from: Option<OsString>,
    /// Begin after this key
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    pub(crate) after: Option<OsString>,
    /// End at this key, inclusive
    #[arg(long, value_name = "KEY", allow_negative_numbers = true, conflicts_with = "before")]
    pub(crate) to: Option<OsString>,
    /// End before this key
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    pub(crate) before: Option<OsString>,
    /// Include only keys that begin with these bytes, or composite keys with these first parts
    #[arg(long, value_name = "PREFIX", conflicts_with_all = ["from", "after", "to", "before"])]
    pub(crate) prefix: Option<OsString>,
}

#[rustfmt::skip]
pub(crate) const EXAMPLES: &[CommandExamples] = &[
    ("", &[
        ("Write the value of a key in the local server's table", "zkv get 128512"),
        ("Read a file instead, without a server", "zkv range --from 65 --limit 26 --db storage.db"),
        (
            "Log in to a server on another machine",
            "zkv get 7 --socket zkv+tls://reader@tables.internal:6390 --password-file password",
        ),
        ("Bake a table, and serve it", "zkv bake rows.csv && zkv serve"),
    ]),
    ("get", &[
        ("Write the value of one key", "zkv get 128512"),
        ("Write the rows of several keys of a file as JSON", "zkv get storage.db 65 66 --format json"),
        ("Look up the keys in a file, one per line", "zkv get - < keys.txt"),
    ]),
    ("exists", &[
        ("Test a key in a script", "zkv exists 128512 && echo found"),
        ("Print the keys of a list that the table does not have", "zkv exists --print absent - < keys.txt"),
    ]),
    ("floor", &[("Find the row with the largest key at or below 15000", "zkv floor 15000")]),
    ("cover", &[("Find the range of addresses that contains an address", "zkv cover 192.0.2.1")]),
    ("ceiling", &[("Find the row with the smallest key at or above 15000", "zkv ceiling 15000")]),
    ("first", &[("Write the first row of a file", "zkv first --db storage.db")]),
    ("last", &[("Write the last row", "zkv last")]),
    ("range", &[
        ("Write the first ten rows with keys from 1000 on", "zkv range --from 1000 --limit 10"),
        ("Write the last row with a key below 2000", "zkv range --to 2000 --reverse --limit 1"),
    ]),
    ("scan", &[("Write the rows of a file whose keys begin with a prefix", "zkv scan user: --limit 10 --db users.db")]),
    ("count", &[("Count the keys from 1000 to below 2000", "zkv count --from 1000 --to 2000")]),
    ("bench", &[
        ("Measure lookups through the server", "zkv bench --seconds 1 --batch 16"),
        ("Measure lookups in a file, with two threads", "zkv bench --seconds 1 --threads 2 --db storage.db"),
    ]),
    ("inspect", &[("Describe a file", "zkv inspect storage.db")]),
    ("verify", &[("Verify a file before copying it to other machines", "zkv verify storage.db")]),
    ("dump", &[
        ("Write the rows as CSV", "zkv dump storage.db -o rows.csv"),
        ("Write two columns of a typed table as JSON Lines", "zkv dump items.db --format jsonl --columns price,name"),
    ]),
    ("diff", &[
        ("Print the rows that differ between two files", "zkv diff storage.db storage.db --values"),
        ("Count these rows", "zkv diff storage.db storage.db --summary"),
    ]),
    ("canary", &[(
        "Let servers check 100 keys of the next table before they serve it",
        "zkv canary storage.db --sample 100 > canaries.csv",
    )]),
    ("slot", &[("Print the slots of two keys", "zkv slot user:1 user:2")]),
    ("info", &[("Print the counters of the server as JSON", "zkv info --json")]),
    ("ping", &[("Measure one round trip to a server at a certain address", "zkv ping --socket /tmp/zero-kv.sock")]),
    ("health", &[("Report the health of the server, for example to an orchestrator", "zkv health --verbose")]),
    ("top", &[
        ("Show live statistics", "zkv top"),
        ("Write one line of statistics", "zkv top --once --interval 0.1"),
    ]),
    ("reload", &[
        ("Serve a new file now", "zkv reload"),
        ("Go back to the preceding table", "zkv reload --rollback"),
    ]),
    ("topology", &[("Show the nodes of a cluster, and their slots", "zkv topology show topology.json")]),
    ("topology show", &[(
        "Show the newest topology of a published table",
        "zkv topology show s3://tables/users --json",
    )]),
    ("topology check", &[("Check a file", "zkv topology check topology.json")]),
    ("topology plan", &[(
        "Plan a cluster of two nodes",
        "zkv topology plan --nodes a=10.0.0.1:6380,b=10.0.0.2:6380 > topology.json",
    )]),
    ("topology apply", &[(
        "Make a planned topology the newest one of a published table",
        "zkv topology apply topology.json --to s3://tables/users",
    )]),
    ("topology watch", &[(
        "Promote replicas of nodes that have not reported for 30 s",
        "zkv topology watch s3://tables/users --fail-after 30s",
    )]),
    ("publish", &[
        ("Publish a file to a bucket", "zkv publish users.db --to s3://tables/users --note nightly"),
        (
            "Publish to a folder, for a test without an object store",
            "zkv publish users.db --to file:///srv/tables/users",
        ),
    ]),
    ("generations", &[(
        "List the newest generations, and the nodes that serve them",
        "zkv generations s3://tables/users",
    )]),
    ("watch", &[
        ("Show the nodes of a table, and what they fetch", "zkv watch s3://tables/users"),
        ("Print the nodes as JSON, for a script", "zkv watch s3://tables/users --once --json"),
    ]),
    ("pin", &[("Go back to generation 41 on all nodes", "zkv pin s3://tables/users 41")]),
    ("unpin", &[("Serve the newest generation again", "zkv unpin s3://tables/users")]),
    ("policy", &[
        ("Show the quotas of a table", "zkv policy s3://tables/users"),
        ("Reject generations of more than 50 GB", "zkv policy s3://tables/users --max-bytes 50GB"),
    ]),
    ("pull", &[("Download the table into one file", "zkv pull s3://tables/users -o users.db")]),
    ("copy", &[
        ("Copy the table to a bucket in another region", "zkv copy s3://tables/users s3://tables-eu/users"),
        ("Copy generation 42 to a folder", "zkv copy s3://tables/users file:///srv/tables/users 42"),
    ]),
    ("gc", &[
        ("List the files that only older generations than the newest ten need", "zkv gc s3://tables/users --keep 10"),
        ("Delete these files", "zkv gc s3://tables/users --keep 10 --delete"),
    ]),
    ("store", &[("Check a bucket before publishing to it", "zkv store check s3://tables/users")]),
    ("store check", &[("Check a bucket before publishing to it", "zkv store check s3://tables/users")]),
    ("rollout", &[
        (
            "Serve generation 42 on one node first, then on all nodes",
            "zkv rollout s3://tables/users 42 --canary-nodes 1",
        ),
        ("Serve generation 42 on all nodes at the same time", "zkv rollout s3://tables/users 42 --barrier"),
    ]),
    ("bake", &[("Bake rows of key,value into ./storage.db", "zkv bake rows.csv")]),
    ("serve", &[("Serve a file on the default socket", "zkv serve storage.db")]),
    ("saturate", &[(
        "Saturate the server for 3 s, and compare every value with the file",
        "zkv saturate --db storage.db --verify --seconds 3",
    )]),
];
