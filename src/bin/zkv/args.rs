//! The command line.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::{Parser, Subcommand, ValueEnum};
use zero_kv::DEFAULT_SOCKET;
use zero_kv::client::{Client, ClientError, Direct, DirectOptions, Options};
use zero_kv::format::header::MAGIC;

/// Names the socket where --socket does not. Not by clap, to which it would be in conflict with --db.
const SOCKET_VARIABLE: &str = "ZERO_KV_SOCKET";
/// What all questions have, apart from what is each one's own.
const WHOM: &str = "Whom to ask";

/// Asks a running kv_store, or a baked file, for keys, or for rows in key order; tells what is in
/// files, and how a server is.
///
/// What a key is, the table says: if its keys are numbers, an unsigned 64-bit decimal; else the
/// bytes of the argument as they are.
///
/// Rows are written as lines `key,value`, quoted where they must be, as baker reads them, unless
/// --format says otherwise.
///
/// Exit status: 0 if there is such a key or row, 1 if there is none, 2 after an error. What it
/// is for the others, their help says.
#[derive(Parser)]
#[command(name = "zkv", version, max_term_width = 100)]
pub(crate) struct Args {
    #[arg(long, global = true, help_heading = WHOM, value_name = "PATH", help = format!(
        "Socket of the server to ask [env: {SOCKET_VARIABLE}] [default: {DEFAULT_SOCKET}]"
    ))]
    pub(crate) socket: Option<PathBuf>,
    /// Baked file to ask, without a server; not together with --socket
    #[arg(long, global = true, help_heading = WHOM, value_name = "FILE")]
    pub(crate) db: Option<PathBuf>,
    /// How long to wait for a server, and for each batch of its answers [default: 30]
    #[arg(long, global = true, help_heading = WHOM, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
    /// Have the server hand over its file, and look up in that, in this process
    #[arg(long, global = true, help_heading = WHOM)]
    pub(crate) direct: bool,
    /// Trust a server of this user, a name or number, besides root and you [env: ZERO_KV_SERVER_USER]
    ///
    /// Without this option, a server of another user is accepted only if no third user can write to its socket's folder
    /// or to one above it.
    #[arg(long, global = true, help_heading = WHOM, value_name = "USER")]
    pub(crate) server_user: Option<String>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// A server's socket, and how to connect to it.
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
    /// `get FILE KEY…` is `get KEY… --db FILE`, where nothing says whom to ask.
    pub(crate) fn take_file_of_get(&mut self) {
        if let (None, None, Command::Ask(Question::Get { keys: KeysArgs { keys, .. }, .. })) =
            (&self.socket, &self.db, &mut self.command)
            && keys.len() > 1
            && is_baked_file(Path::new(&keys[0]))
        {
            self.db = Some(keys.remove(0).into());
        }
    }

    /// The socket to ask.
    pub(crate) fn socket(&self) -> PathBuf {
        let named = || env::var_os(SOCKET_VARIABLE).filter(|path| !path.is_empty());
        self.socket.clone().or_else(|| named().map(PathBuf::from)).unwrap_or_else(|| DEFAULT_SOCKET.into())
    }

    /// A connection to the server. It is not made anew: what fails is told as it happens.
    pub(crate) fn connect(&self) -> Result<Client, ClientError> {
        Client::connect_with(self.socket(), &self.client_options())
    }

    /// The server's file.
    pub(crate) fn connect_direct(&self) -> Result<Direct, ClientError> {
        self.connect()?.direct_with(&DirectOptions { client: self.client_options(), ..DirectOptions::default() })
    }

    /// The server, for commands that have time-outs of their own.
    pub(crate) fn address(&self) -> Address {
        let options = Options { server_user: self.server_user.clone(), ..Options::default() };
        Address { socket: self.socket(), options }
    }

    fn client_options(&self) -> Options {
        let mut options = Options { retries: 0, server_user: self.server_user.clone(), ..Options::default() };
        if let Some(timeout) = self.timeout {
            (options.connect_timeout, options.call_timeout) = (timeout, Some(timeout));
        }
        options
    }
}

/// By its first bytes: a damaged one is one too. Opening anything but a file might wait for a writer.
fn is_baked_file(path: &Path) -> bool {
    let mut magic = [0; MAGIC.len()];
    fs::metadata(path).is_ok_and(|found| found.is_file())
        && File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok()
        && magic == MAGIC
}

#[derive(Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    Ask(Question),
    /// Measure how fast the client of this library gets keys, in batches and in random order
    ///
    /// Keys are those of the table, or its first million. What a server can do for many clients at
    /// once, `benchmarker` tells.
    ///
    /// Exit status: 0 done, 1 if keys were not found, as when another file came meanwhile, 2 after an error.
    Bench(BenchArgs),
    #[command(flatten)]
    File(FileCommand),
    #[command(flatten)]
    Server(ServerCommand),
}

/// What a server and a file answer alike.
#[derive(Subcommand)]
pub(crate) enum Question {
    /// Write the key's value to standard output, as it is, without a line end
    ///
    /// Of several keys, or with keys from standard input, write the rows of those that are in the table, in
    /// the order in which they are asked for. A baked file in front of the keys is the one to ask:
    /// `zkv get FILE KEY…`
    ///
    /// Exit status: 0 if all keys are in the table, 1 if some are not, 2 after an error.
    Get {
        #[command(flatten)]
        keys: KeysArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Print nothing, and tell by the exit status whether the keys are in the table
    ///
    /// Exit status: 0 if all keys are, 1 if some are not, 2 after an error.
    Exists {
        #[command(flatten)]
        keys: KeysArgs,
        /// Write those keys that are in the table, or those that are not, one a line, as they are
        #[arg(long, value_name = "WHICH")]
        print: Option<Presence>,
        /// NUL instead of line ends, in standard input and output
        #[arg(short = 'z', long)]
        null: bool,
    },
    /// Write the row with the largest key that is not above KEY
    ///
    /// Of several keys, or with keys from standard input, the key that was asked for stands before each row.
    ///
    /// Exit status: 0 if each key has such a row, 1 if some have not, 2 after an error.
    Floor {
        #[command(flatten)]
        keys: KeysArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Write the row with the smallest key that is not below KEY
    ///
    /// Of several keys, or with keys from standard input, the key that was asked for stands before each row.
    ///
    /// Exit status: 0 if each key has such a row, 1 if some have not, 2 after an error.
    Ceiling {
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
    /// Write the rows of a range in key order; without bounds, all
    Range {
        #[command(flatten)]
        range: RangeArgs,
        /// Begin with the largest key
        #[arg(long)]
        reverse: bool,
        /// Write so many rows at most
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Write all rows in key order, or those whose keys begin with PREFIX: a range by another name
    Scan {
        /// Bytes that keys begin with
        prefix: Option<OsString>,
        /// Write so many rows at most
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Write how many keys lie in a range; without bounds, all
    Count {
        #[command(flatten)]
        range: RangeArgs,
    },
}

#[derive(clap::Args)]
pub(crate) struct KeysArgs {
    /// Unsigned 64-bit decimals, or bytes; after `--` if one begins with `-`. A single `-` takes them from
    /// standard input, one a line, as they are
    #[arg(required = true, value_name = "KEY", allow_negative_numbers = true)]
    pub(crate) keys: Vec<OsString>,
    /// Keys are escaped: `\n`, `\x00`, `\\` and the like, as --format escaped writes them
    #[arg(short, long)]
    pub(crate) escapes: bool,
}

#[derive(clap::Args)]
pub(crate) struct OutputArgs {
    /// How to write; csv unless given, and raw of one key that is asked for with get
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) format: Option<Format>,
    /// Write only keys, or only values
    #[arg(long, value_name = "PART")]
    pub(crate) only: Option<Part>,
    /// NUL instead of line ends, in standard input and in all formats but csv and json
    #[arg(short = 'z', long)]
    pub(crate) null: bool,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Format {
    /// Lines `key,value`, quoted where they must be
    Csv,
    /// Bytes as they are, with a tab between key and value
    Raw,
    /// The same with all but printable ASCII escaped, as `\n` and `\xff`
    Escaped,
    /// The same with bytes as hexadecimal digits; numbers are decimals
    Hex,
    /// Lines `{"key":…,"value":"…"}`; what is no UTF-8 is in `key_hex` or `value_hex`
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

/// What is done with files.
#[derive(Subcommand)]
pub(crate) enum FileCommand {
    /// Tell what a file holds: header, sections, keys, sizes of values
    ///
    /// The whole file is read and checked. Of a damaged one it tells what the header says and
    /// which sections are damaged.
    ///
    /// Exit status: 0 if the file is whole, 1 if it is damaged or no baked file, 2 if it cannot be read.
    Inspect {
        /// Baked file
        file: PathBuf,
        /// Write one JSON object on one line
        #[arg(long)]
        json: bool,
    },
    /// Check a file as a whole: every checksum, the order of the keys, and that each is found
    ///
    /// Exit status: 0 if the file is whole, 1 if it is damaged or no baked file, 2 if it cannot be read.
    Verify {
        /// Baked file
        file: PathBuf,
    },
    /// Write the rows of a file as text that bakes to the same file
    ///
    /// Exit status: 0 done, 2 after an error. Who closes the pipe early has read enough: that is no error.
    Dump(DumpArgs),
    /// Tell in which rows two files differ, in key order
    ///
    /// A line of text begins with `-` for a key that only A has, `+` for one that only B has, `~`
    /// for one with another value. The last line counts them. Files whose headers have the same
    /// digest count as equal, and nothing more is read of them. A digest can be forged: compare files that you do not
    /// trust with cmp.
    ///
    /// Exit status: 0 if all rows are the same, 1 if not, 2 after an error.
    Diff(DiffArgs),
    /// Write lines `key,digest` by which `kv_store --canary` tries a new file before it serves it
    ///
    /// The digest is the XXH3-128 of the key's value, as 32 hexadecimal digits, or `absent` for a key
    /// that is not in the table.
    ///
    /// Exit status: 0 done, 2 after an error.
    Canary(CanaryArgs),
}

/// What is asked of a server about itself.
#[derive(Subcommand)]
pub(crate) enum ServerCommand {
    /// Tell what the server serves, and what it has counted since it started, in lines `name value`
    ///
    /// Exit status: 0 done, 2 after an error.
    Info {
        /// Write one JSON object on one line
        #[arg(long)]
        json: bool,
    },
    /// Tell how long the server takes to answer a request that asks for nothing
    ///
    /// Exit status: 0 if it answers, 2 after an error.
    Ping,
    /// Tell by the exit status whether the server answers, and serves a file that is as it was checked
    ///
    /// Exit status: 0 if so, 1 if not, with one line that says why, 2 if the command line makes no sense.
    Health(HealthArgs),
    /// Show live what the server does, or on what is no terminal, write a line of it again and again
    ///
    /// q, Esc and Ctrl-C leave. Rates are those of the last interval.
    ///
    /// Exit status: 0 done, 2 after an error.
    Top(TopArgs),
    /// Have the server look at its file now, and wait until it serves it or has refused it
    ///
    /// Only root and the server's own user may ask for it.
    ///
    /// Exit status: 0 if the server serves what it was asked for, also if it did before; 1 if it refused
    /// it, with the reason; 2 after an error.
    Reload(ReloadArgs),
}

#[derive(clap::Args)]
pub(crate) struct BenchArgs {
    /// How long to measure
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = seconds)]
    pub(crate) seconds: Duration,
    /// Keys that are asked for at once
    #[arg(long, value_name = "KEYS", default_value_t = 256, value_parser = RangedU64ValueParser::<usize>::new().range(1..=65_536))]
    pub(crate) batch: usize,
    /// Threads that ask, each over a connection of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1024))]
    pub(crate) threads: usize,
    /// Write one JSON object on one line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct HealthArgs {
    /// How long to wait for the answer
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    pub(crate) timeout: Duration,
    /// Write generation, digest and rows if all is well
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

#[derive(clap::Args)]
pub(crate) struct TopArgs {
    /// How far apart to ask the server
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub(crate) interval: Duration,
    /// Write so many lines, an interval each, also on a terminal
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<NonZeroU64>,
    /// Write one line: --count 1
    #[arg(long, conflicts_with = "count")]
    pub(crate) once: bool,
}

#[derive(clap::Args)]
pub(crate) struct ReloadArgs {
    /// Have it go back to the generation before instead
    #[arg(long)]
    pub(crate) rollback: bool,
    /// How long to wait for the end of it
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = seconds)]
    pub(crate) timeout: Duration,
}

/// A time that is long enough to be one, and short enough to wait for.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds @ 0.01..=1e6) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("0.01 to 1000000 seconds are possible".to_owned()),
    }
}

#[derive(clap::Args)]
pub(crate) struct DumpArgs {
    /// Baked file
    pub(crate) file: PathBuf,
    /// What to write
    #[arg(long, value_name = "FORMAT", default_value = "csv")]
    pub(crate) format: DumpFormat,
    /// File to write, put in place whole; `-` is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) range: RangeArgs,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum DumpFormat {
    /// Lines `key,value`, quoted where they must be
    Csv,
    /// The same with tabs, for `baker --format tsv`
    Tsv,
    /// Lines `{"key":…,"value":"…"}`; only for tables that are UTF-8
    Jsonl,
}

#[derive(clap::Args)]
pub(crate) struct DiffArgs {
    /// Baked file
    pub(crate) a: PathBuf,
    /// Baked file to compare with it
    pub(crate) b: PathBuf,
    /// Write the values too
    #[arg(long)]
    pub(crate) values: bool,
    /// Write nothing but the counts
    #[arg(long, conflicts_with = "values")]
    pub(crate) summary: bool,
    /// What to write
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: DiffFormat,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum DiffFormat {
    /// Lines to read: keys and values of bytes are quoted, what is not printable ASCII is escaped
    Text,
    /// A JSON object a line; only for tables that are UTF-8
    Jsonl,
}

#[derive(clap::Args)]
pub(crate) struct CanaryArgs {
    /// Baked file
    pub(crate) file: PathBuf,
    /// Unsigned 64-bit decimals, or bytes; after `--` if one begins with `-`. A single `-` takes them from
    /// standard input, one a line, as they are
    #[arg(required_unless_present = "sample", value_name = "KEY", allow_negative_numbers = true)]
    pub(crate) keys: Vec<OsString>,
    /// Take so many keys of the table, or all if it has fewer, spread evenly over it
    #[arg(long, value_name = "N", conflicts_with = "keys")]
    pub(crate) sample: Option<NonZeroUsize>,
}

#[derive(clap::Args, Default)]
pub(crate) struct RangeArgs {
    /// Keys from this one on
    #[arg(long, value_name = "KEY", conflicts_with = "after")]
    pub(crate) from: Option<OsString>,
    /// Keys above this one
    #[arg(long, value_name = "KEY")]
    pub(crate) after: Option<OsString>,
    /// Keys up to this one
    #[arg(long, value_name = "KEY", conflicts_with = "before")]
    pub(crate) to: Option<OsString>,
    /// Keys below this one
    #[arg(long, value_name = "KEY")]
    pub(crate) before: Option<OsString>,
    /// Keys that begin with these bytes
    #[arg(long, value_name = "BYTES", conflicts_with_all = ["from", "after", "to", "before"])]
    pub(crate) prefix: Option<OsString>,
}
