//! The command-line options of the commands for published tables.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{ArgGroup, Subcommand};
use zero_kv::cli::args::{GenerationArgs, parse_percent, parse_url};
use zero_kv::cli::values::{BareUnit, duration, parse_name, parse_rate, parse_size};
#[cfg(feature = "object-store")]
use zero_kv::publish::Change;

use super::parse_time;

/// The maximum age of files, about a century.
const AGE_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

fn parse_age(text: &str) -> Result<Duration, String> {
    duration(BareUnit::Seconds, Duration::ZERO..=AGE_MAX)(text)
}

#[derive(Subcommand)]
pub(crate) enum PublishingCommand {
    /// Upload baked files as the newest generation of a published table
    ///
    /// The files are verified before the upload, and the stored bytes are compared with them after it. A table without
    /// rows, with at most half of the rows, with keys of another type, or with other columns than the preceding
    /// generation is rejected unless an option allows it. Nodes see the generation only when it is complete. Ctrl-C
    /// cancels the command; if it is repeated, it continues the upload where it was interrupted, except on file://
    /// URLs.
    ///
    /// Exit status: 0 after success, 2 after an error.
    Publish(PublishArgs),
    /// List the newest generations of a published table, and their nodes
    ///
    /// Exit status: 0 if the table has a generation, 1 if it has none, 2 after an error.
    Generations(GenerationsArgs),
    /// Show the nodes of a published table
    ///
    /// The table shows what each node serves, fetches, or reports as its problem. On a terminal, the table is redrawn,
    /// and nodes that do not simply serve come first. Otherwise, each change of a node is a line. Statuses are read
    /// again after errors of the store.
    ///
    /// Exit status: 0 after success, 1 with --once if no node has reported, 2 after an error.
    Watch(WatchNodesArgs),
    /// Make nodes serve a certain generation of a published table
    ///
    /// The pin is in effect until another one is created. Nodes that the pin does not name serve the generation that
    /// the preceding pin selected for them. A generation that they only hold for a rollout does not count.
    ///
    /// Exit status: 0 after success, 2 after an error.
    Pin(PinArgs),
    /// Make nodes serve the newest generation of a published table
    ///
    /// Exit status: 0 after success, 2 after an error.
    Unpin(UnpinArgs),
    /// Show the quotas of a published table, or change them
    ///
    /// Publishers reject a generation that exceeds a quota. Without options, the command shows the quotas. A quota that
    /// is not given stays.
    ///
    /// Exit status: 0 after success, 2 after an error.
    Policy(PolicyArgs),
    /// Download a generation of a published table into one file
    ///
    /// The file is verified. A generation of several files is merged. Ctrl-C cancels the command; if it is repeated, it
    /// continues the download where it was interrupted.
    ///
    /// Exit status: 0 after success, 1 if the table does not have the generation, 2 after an error.
    Pull(PullArgs),
    /// Copy a generation of a published table to another table
    ///
    /// The other table can be in another region. The copy is the next generation of the other table, with the canaries
    /// and the note of the original. Each file is downloaded, verified, uploaded, and compared with the stored bytes.
    /// Environment variables with the prefix TO_, such as TO_AWS_REGION, replace those without it for the other table.
    /// Ctrl-C cancels the command; if it is repeated, it continues where it was interrupted. A generation that was
    /// copied before is not copied again.
    ///
    /// Exit status: 0 after success, 1 if the table does not have the generation, 2 after an error.
    Copy(CopyArgs),
    /// Delete files of a published table that no generation needs
    ///
    /// The files of retained, pinned, and served generations are not deleted. Without --delete, the command only lists
    /// the files.
    ///
    /// Exit status: 0 after success, 2 after an error.
    Gc(GcArgs),
    /// Check an object store
    Store {
        #[command(subcommand)]
        command: StoreCommand,
    },
    /// Make all nodes serve a generation of a published table, step by step
    ///
    /// By default, each node serves the generation as soon as it has verified it. With --canary-nodes, the first nodes
    /// must serve it before the others begin. With --barrier, all nodes verify the generation, wait, and serve it
    /// within one poll of each other. With --zones, one zone must serve it before the next one begins. Without these
    /// options and --wait, the command only pins all nodes, and waits for none. Nodes that have not reported for 3
    /// minutes are not waited for.
    ///
    /// To keep nodes from serving a new generation before its rollout, pin the current one before you publish.
    ///
    /// Exit status: 0 if the nodes serve the generation, except those that are tolerated, if the command only pins
    /// nodes, or after an abort; 1 if nodes failed, none has reported, or the time-out expired, with the reasons; 2
    /// after an error.
    Rollout(RolloutArgs),
}

#[derive(Subcommand)]
pub(crate) enum StoreCommand {
    /// Check that a store creates each object only once, as publishing requires, and measure the rates of transfers
    ///
    /// The command lets several clients create the same object at the same time, many times, because some stores lose
    /// only some of these races. It writes objects and 64 MiB below probe/ of the table's URL, reads them back, and
    /// deletes them.
    ///
    /// Exit status: 0 if the store can be used, 1 if it cannot, 2 after an error.
    Check {
        #[command(flatten)]
        table: TableArgs,
        /// Run this many races; more races give a more certain result
        #[arg(
            long,
            value_name = "N",
            default_value_t = 200,
            value_parser = clap::value_parser!(u64).range(1..=100_000),
        )]
        races: u64,
    },
}

/// The table, and the form of the output.
#[derive(clap::Args)]
pub(crate) struct TableArgs {
    /// Use the table at this URL: s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH, or file:///PATH; to
    /// read, also https://HOST/PATH
    #[arg(value_parser = parse_url)]
    pub(crate) url: String,
    /// Write one JSON object on one line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct PublishArgs {
    /// Publish these baked files; a file with a part of the slots is FILE:FIRST-LAST, such as users-1.db:0-8191, or has
    /// the name that `baker --shards` gave it, such as 0-8191.db
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Publish to the table at this URL: s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH, or file:///PATH
    #[arg(long, value_name = "URL", value_parser = parse_url)]
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) generation: GenerationArgs,
    #[command(flatten)]
    pub(crate) changes: ChangeArgs,
    /// Reject a table that lost more than this percentage of the rows of the preceding generation, such as 20%
    /// [default: reject the loss of half of the rows]
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent, conflicts_with = "allow_shrink")]
    pub(crate) max_shrink: Option<u8>,
    /// Write the manifest of the new generation as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The changes from the preceding generation that are allowed.
#[derive(clap::Args)]
pub(crate) struct ChangeArgs {
    /// Publish a table without rows although the preceding generation has rows
    #[arg(long)]
    allow_empty: bool,
    /// Publish although the table has at most half of the rows of the preceding generation
    #[arg(long)]
    allow_shrink: bool,
    /// Publish although the table has keys of another type than the preceding generation
    #[arg(long)]
    allow_key_type_change: bool,
    /// Publish although the table has other columns than the preceding generation
    #[arg(long)]
    allow_schema_change: bool,
}

#[cfg(feature = "object-store")]
impl ChangeArgs {
    pub(crate) fn allowed(&self) -> Vec<Change> {
        let options = [
            (self.allow_empty, Change::Empty),
            (self.allow_shrink, Change::Shrink),
            (self.allow_key_type_change, Change::KeyType),
            (self.allow_schema_change, Change::Schema),
        ];
        options.into_iter().filter(|(is_allowed, _)| *is_allowed).map(|(_, change)| change).collect()
    }
}

#[derive(clap::Args)]
pub(crate) struct CopyArgs {
    /// Copy from the table at this URL
    #[arg(value_name = "FROM", value_parser = parse_url)]
    pub(crate) from: String,
    /// Copy to the table at this URL
    #[arg(value_name = "TO", value_parser = parse_url)]
    pub(crate) to: String,
    /// Copy this generation [default: the generation that the pin selects, otherwise the newest one]
    #[arg(value_name = "N")]
    pub(crate) generation: Option<u64>,
    /// Keep each file in this folder until it is uploaded; to continue an interrupted copy, name the same folder
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) temp_dir: PathBuf,
    /// Download at most this much per second, such as 50MB
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub(crate) bandwidth: Option<u64>,
    #[command(flatten)]
    pub(crate) changes: ChangeArgs,
    /// Write one JSON object on one line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct GenerationsArgs {
    #[command(flatten)]
    pub(crate) table: TableArgs,
    /// List at most this many generations
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: u64,
}

#[derive(clap::Args)]
pub(crate) struct WatchNodesArgs {
    #[command(flatten)]
    pub(crate) table: TableArgs,
    /// Read the nodes' reports at this interval
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_time)]
    pub(crate) interval: Duration,
    /// Read the reports once, print the nodes, and end
    #[arg(long)]
    pub(crate) once: bool,
}

#[derive(clap::Args)]
pub(crate) struct PinArgs {
    #[command(flatten)]
    pub(crate) table: TableArgs,
    /// Serve this generation
    #[arg(value_name = "N")]
    pub(crate) generation: u64,
    /// Pin only these nodes
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = parse_name)]
    pub(crate) node: Vec<String>,
    /// Make nodes fetch and verify the generation, but not serve it before the decision of a rollout
    #[arg(long)]
    pub(crate) hold: bool,
}

#[derive(clap::Args)]
pub(crate) struct UnpinArgs {
    #[command(flatten)]
    pub(crate) table: TableArgs,
}

#[derive(clap::Args)]
pub(crate) struct PolicyArgs {
    #[command(flatten)]
    pub(crate) table: TableArgs,
    /// Allow generations whose files have at most this length, such as 50GB; `none` removes the quota
    #[arg(long, value_name = "SIZE|none", value_parser = parse_size_quota)]
    pub(crate) max_bytes: Option<Quota>,
    /// Allow generations with at most this number of rows; `none` removes the quota
    #[arg(long, value_name = "N|none", value_parser = parse_rows_quota)]
    pub(crate) max_rows: Option<Quota>,
}

/// A quota, or `None` if it is removed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Quota(pub(crate) Option<u64>);

fn parse_size_quota(text: &str) -> Result<Quota, String> {
    if text == "none" { Ok(Quota(None)) } else { parse_size(text).map(|size| Quota(Some(size))) }
}

fn parse_rows_quota(text: &str) -> Result<Quota, String> {
    match text {
        "none" => Ok(Quota(None)),
        rows => rows.parse().map(|rows| Quota(Some(rows))).map_err(|_| "expected a number of rows, or none".to_owned()),
    }
}

#[derive(clap::Args)]
pub(crate) struct PullArgs {
    #[command(flatten)]
    pub(crate) table: TableArgs,
    /// Download this generation [default: the generation that the pin selects, otherwise the newest one]
    #[arg(value_name = "N")]
    pub(crate) generation: Option<u64>,
    /// Write the table to this file, which gets its name only when it is complete
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Download at most this much per second, such as 50MB
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub(crate) bandwidth: Option<u64>,
}

#[derive(clap::Args)]
pub(crate) struct GcArgs {
    #[command(flatten)]
    pub(crate) table: TableArgs,
    /// Retain the files of this many newest generations
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) keep: u64,
    /// Retain files that are younger than this, such as 12h or 1d, because they may belong to a generation that is
    /// being published
    #[arg(long, value_name = "TIME", default_value = "1d", value_parser = parse_age)]
    pub(crate) older_than: Duration,
    /// Delete the files
    #[arg(long)]
    pub(crate) delete: bool,
}

#[derive(clap::Args)]
#[command(group = ArgGroup::new("awaiting").args(["wait", "barrier", "canary_nodes", "zones"]).multiple(true))]
pub(crate) struct RolloutArgs {
    #[command(flatten)]
    pub(crate) table: TableArgs,
    /// Roll this generation out
    #[arg(value_name = "N")]
    pub(crate) generation: u64,
    /// Pin this many nodes first, in the order of their names, and pin all nodes when these nodes serve the generation
    #[arg(long, value_name = "K", conflicts_with = "barrier", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) canary_nodes: Option<u64>,
    /// Pin the nodes of these zones, one zone at a time (kv_store --zone): the next zone begins when all nodes of
    /// the zone serve the generation. Name all zones that have nodes. Nodes without a zone come last
    #[arg(
        long,
        value_name = "ZONE,…",
        value_delimiter = ',',
        value_parser = parse_name,
        conflicts_with = "canary_nodes",
    )]
    pub(crate) zones: Vec<String>,
    /// Succeed although up to this many nodes have failed, are silent, or do not serve the generation in time, and name
    /// them. Nodes that were silent before the rollout count, too
    #[arg(long, value_name = "K", requires = "awaiting")]
    pub(crate) tolerate: Option<usize>,
    /// Wait until all nodes serve the generation
    #[arg(long)]
    pub(crate) wait: bool,
    /// Let all nodes prepare the generation, and let them serve it when enough nodes are ready, with --zones zone by
    /// zone
    #[arg(long)]
    pub(crate) barrier: bool,
    /// With --barrier, wait for this number of nodes, or for this percentage of the nodes that have reported, before
    /// they serve the generation
    #[arg(long, value_name = "M|PERCENT", default_value = "100%", requires = "barrier")]
    pub(crate) ready: Ready,
    /// Cancel a rollout: nodes serve the generation that the pin before the rollout selects
    #[arg(long, conflicts_with_all = ["canary_nodes", "zones", "tolerate", "wait", "barrier"])]
    pub(crate) abort: bool,
    /// Wait at most this long for nodes, such as 90s or 1h
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = parse_time)]
    pub(crate) timeout: Duration,
    /// Read the nodes' reports at this interval
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    pub(crate) interval: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Ready {
    Nodes(usize),
    Percent(usize),
}

impl FromStr for Ready {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Ready, &'static str> {
        let ready = match text.strip_suffix('%') {
            Some(percent) => percent.parse().ok().filter(|percent| (1..=100).contains(percent)).map(Ready::Percent),
            None => text.parse().ok().filter(|nodes| *nodes >= 1).map(Ready::Nodes),
        };
        ready.ok_or("expected a number of nodes, such as 3, or a percentage from 1% to 100%")
    }
}

impl Ready {
    /// Returns the number of nodes that must be ready if `nodes` nodes have reported, which may be less.
    pub(crate) fn of(self, nodes: usize) -> usize {
        match self {
            Ready::Nodes(ready) => ready,
            Ready::Percent(percent) => (nodes * percent).div_ceil(100),
        }
    }
}
